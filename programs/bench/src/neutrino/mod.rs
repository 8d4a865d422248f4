//! The figures of Neutrino's paper (its §6), one file each, and what the paper leaves out.

mod detection;
mod fig18;
mod fig19;
mod fig20;
mod live;
mod pct;

use std::io;
use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

pub(crate) use pct::links_of_a_service_request;

/// What can be repeated.
#[derive(Subcommand)]
pub(crate) enum Figure {
    /// Video start-up and page load of an idle UE against what the core has to do.
    Fig3(pct::Options),
    /// Completion time of service requests against their rate.
    Fig7(pct::Options),
    /// Completion time of attaches against their rate.
    Fig8(pct::Options),
    /// Completion time of attaches in bursts.
    Fig9(pct::Options),
    /// Completion time of handovers whose CPF dies.
    Fig10(pct::Options),
    /// Completion time of handovers to another CPF against their rate.
    Fig11(pct::Options),
    /// A self-driving car's packets that a handover makes too late.
    Fig13(pct::Options),
    /// The same of a headset.
    Fig14(pct::Options),
    /// What replicas cost an attach.
    Fig15(pct::Options),
    /// What the log costs an attach.
    Fig16(pct::Options),
    /// Octets of the log against active UEs.
    Fig17(pct::Options),
    /// Encoding and decoding against the number of fields, as a multiple of ASN.1.
    Fig18,
    /// Encoding and decoding real messages.
    Fig19,
    /// Octets of real messages.
    Fig20,
    /// Time of detection of a dead process against false alarms, at loads.
    Detection(detection::Options),
    /// Figures 7 to 11 with real processes, sockets and kills: `live fig10 [ARGUMENTS]`.
    Live(live::Options),
    /// All figures of the paper and the time of detection, one after the other.
    All(pct::Options),
}

/// Repeats a figure.
///
/// Errors: those of writing the plot.
pub(crate) fn run(figure: &Figure, plots: &Path) -> io::Result<()> {
    match figure {
        Figure::Fig3(options) => pct::fig3(options, plots),
        Figure::Fig7(options) => pct::fig7(options, plots),
        Figure::Fig8(options) => pct::fig8(options, plots),
        Figure::Fig9(options) => pct::fig9(options, plots),
        Figure::Fig10(options) => pct::fig10(options, plots),
        Figure::Fig11(options) => pct::fig11(options, plots),
        Figure::Fig13(options) => pct::fig13(options, plots),
        Figure::Fig14(options) => pct::fig14(options, plots),
        Figure::Fig15(options) => pct::fig15(options, plots),
        Figure::Fig16(options) => pct::fig16(options, plots),
        Figure::Fig17(options) => pct::fig17(options, plots),
        Figure::Fig18 => fig18::run(plots),
        Figure::Fig19 => fig19::run(plots),
        Figure::Fig20 => fig20::run(plots),
        Figure::Detection(options) => detection::run(options, plots),
        Figure::Live(options) => live::run(options, plots),
        Figure::All(options) => all(options, plots),
    }
}

fn all(options: &pct::Options, plots: &Path) -> io::Result<()> {
    let against_load = [
        pct::fig3,
        pct::fig7,
        pct::fig8,
        pct::fig9,
        pct::fig10,
        pct::fig11,
        pct::fig13,
        pct::fig14,
        pct::fig15,
        pct::fig16,
        pct::fig17,
    ];
    for figure in against_load {
        figure(options, plots)?;
        println!();
    }
    for figure in [fig18::run, fig19::run, fig20::run] {
        figure(plots)?;
        println!();
    }
    detection::run(&detection::Options::default(), plots)
}

/// The one line that ends an experiment.
fn finish(figure: &str, figures: &Value) {
    println!("{}", json!({ "bench": format!("neutrino {figure}"), "figures": figures }));
}
