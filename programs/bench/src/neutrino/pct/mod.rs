//! Procedure completion time: from when a UE was to begin something to the last message of the core for it.
//!
//! | what | where |
//! | --- | --- |
//! | the region in virtual time: real messages through the real program, its processor time charged to the cores of a deployment | `deployment` |
//! | what is compared: codec, replication, log, recovery | `scheme`, `codec` |
//! | when UEs begin and when they are done | `load` |
//! | when a backup that lags may not serve: the paper's rule and ours, in a UE's second procedure | `marking` |
//! | what the processor's time of a procedure is made of | `parts` |
//! | one procedure at rising rates, scheme beside scheme | `sweep` |
//! | what applications of UEs feel of it: their packets go through gNBs and the UPF | `apps`, `deployment/packets`, `fig3`, `fig13` |
//! | handovers between two CTAs, by N14 | `between` |
//! | the other figures | `fig7` to `fig17` |

mod apps;
mod between;
mod clock;
mod codec;
mod crowd;
mod deployment;
mod fig10;
mod fig13;
mod fig15;
mod fig17;
mod fig3;
mod fig7;
mod fig9;
mod load;
mod marking;
mod parts;
mod scheme;
mod sweep;

use clap::Args;

pub(super) use fig3::run as fig3;
pub(super) use fig7::{fig7, fig8, fig11};
pub(super) use fig9::run as fig9;
pub(super) use fig10::run as fig10;
pub(super) use fig13::{fig13, fig14};
pub(super) use fig15::{fig15, fig16};
pub(super) use fig17::run as fig17;
pub(crate) use parts::links_of_a_service_request;

/// How much is measured, and how far apart the parts are.
#[derive(Args)]
pub(crate) struct Options {
    /// A few UEs and rates: shows that it runs, and no figure.
    #[arg(long)]
    quick: bool,
    /// Number of UEs.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(10..=50_000))]
    ues: u32,
    /// One way between two parts of the deployment, in microseconds.
    #[arg(long, default_value_t = 5.0)]
    hop_us: f64,
}

impl Options {
    fn ues(&self) -> u32 {
        if self.quick { 40 } else { self.ues }
    }

    fn hop_ns(&self) -> u64 {
        (self.hop_us.clamp(0.0, 1e6) * 1000.0) as u64
    }

    /// What there is of the deployment, for the reader.
    fn deployment(&self) -> String {
        format!(
            "here:  virtual time: {} CPFs and {} threads of the CTA with a core each; the processor time of every message\n       \
             is measured on this machine, and links take {} us each way; {} UEs; gNBs, UEs and UPF answer at once",
            deployment::CPFS,
            deployment::CTA_THREADS,
            self.hop_us,
            self.ues()
        )
    }
}
