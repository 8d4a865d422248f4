//! `bench neutrino`: figures 7 to 11 of Neutrino with real processes: a CTA, CPFs, gNBs and UEs on sockets, each in its place, and CPFs that are
//! killed. Both schemes are this program: the same transport, the same codec, the same procedures. `existing` is without replicas: a UE
//! whose CPF is lost attaches again.

mod completion;
mod fig10;

use clap::{Args, Subcommand};
use whimbrel_cli::Done;
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{HandoverKind, HandoverStep, Step};

use super::attach::pools;
use super::{processors, stay_on};
use crate::playground::{Playground, SuciScheme, Wish};

/// Figures of Neutrino that real processes repeat.
#[derive(Subcommand)]
pub(crate) enum Figure {
    /// Completion time of service requests against their rate.
    Fig7(Options),
    /// The same of attaches: a registration and a session.
    Fig8(Options),
    /// Attaches in bursts.
    Fig9(Options),
    /// Handovers whose CPF is killed meanwhile: from the kill to the end of the UE's procedure.
    Fig10(fig10::Options),
    /// Handovers to another CPF, which has the UE's state already (fast) or gets it then (default).
    Fig11(Options),
}

/// How much is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// A few UEs and rates: shows that it runs, and no figure.
    #[arg(long)]
    pub(super) quick: bool,
    /// Seconds of each rate.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) seconds: u32,
    /// Rates a second, in place of the figure's own; of figure 9: UEs of a burst.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) at: Vec<u32>,
    /// UEs; where too few are free, arrivals are left out. Figure 9 takes twice those of a burst.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) ues: u32,
}

pub(crate) fn run(figure: &Figure) -> Done {
    let (core_cpu, own_cpu) = processors();
    stay_on(own_cpu);
    match figure {
        Figure::Fig7(options) => completion::fig7(options, core_cpu),
        Figure::Fig8(options) => completion::fig8(options, core_cpu),
        Figure::Fig9(options) => completion::fig9(options, core_cpu),
        Figure::Fig10(options) => fig10::run(options, core_cpu),
        Figure::Fig11(options) => completion::fig11(options, core_cpu),
    }
}

/// The region of the CPFs.
const REGION: &str = "load/home";
/// A host that others use too is held up now and then, which is no reason to declare a CPF lost that lives, or to keep UEs away. The loss of a
/// process that is killed shows in its link.
const HEARTBEATS: &str = "heartbeat_interval: 500ms, heartbeat_misses: 4";
const OVERLOAD: &str = "overload: { start_delay_ms: 10000 }\n";
/// gNBs; UEs are handed over from each to the next.
const GNBS: u8 = 4;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// Each UE has a replica at the other CPF, and its log at the CTA.
    Ours,
    /// No replica: what an existing core does.
    Existing,
}

const SCHEMES: [Scheme; 2] = [Scheme::Ours, Scheme::Existing];

impl Scheme {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Existing => "existing",
        }
    }

    fn replicas(self) -> u8 {
        u8::from(self == Self::Ours)
    }

    /// A region of CPFs.
    fn cluster(self) -> String {
        format!(
            "cluster: {{ listen: \"127.0.0.1:7380\", region: {REGION}, replicas: {}, {HEARTBEATS} }}\n{OVERLOAD}",
            self.replicas()
        )
    }
}

/// A core with a CTA and CPFs as processes of their own.
fn start(
    ues: u32,
    cluster: &str,
    cpfs: Vec<&'static str>,
    core_cpu: Option<u32>,
) -> Result<Playground, String> {
    Playground::start(&Wish {
        ues,
        gnbs: GNBS,
        configuration: pools() + cluster,
        capture: None,
        core_cpu,
        suci: SuciScheme::Null,
        slices: vec![whimbrel_ids::SNssai::sst(1)],
        cpfs,
        unit: false,
        added_ues: 0,
        data_limit: None,
        keeps_ues: false,
    })
}

fn handover() -> Step {
    Step::Handover(HandoverStep { via: HandoverKind::N2, to: None })
}

/// Median and 99th percentile of a step, in microseconds; `None` if no UE has done it.
fn times(report: &ScenarioReport, step: &str) -> Option<[u64; 2]> {
    let step = report.steps.get(step).filter(|s| s.latency.count() > 0)?;
    Some([0.5, 0.99].map(|q| step.latency.quantile_micros(q)))
}

/// What the first UE that failed did, and why, after a colon; nothing if none did.
fn first_failure(reports: &[ScenarioReport]) -> String {
    let first = reports.iter().find_map(|report| report.failures.first());
    first.map_or_else(String::new, |f| format!(": {} failed in the step {}: {}", f.supi, f.step, f.reason))
}

/// How many times as fast the first is.
fn ratio(ours: f64, existing: f64) -> Option<f64> {
    (ours > 0.0 && existing > 0.0).then(|| (existing / ours * 100.0).round() / 100.0)
}
