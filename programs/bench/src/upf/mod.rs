//! The user plane's experiments, one file each.

mod bloom;
mod change;
mod classifier;
mod flows;
mod handover;
mod harvest;
mod kinds;
mod limit;
mod population;
#[path = "../../../../user/tests/common/mod.rs"]
pub(crate) mod smf;
mod threads;
mod throughput;
pub(crate) mod xdp;

use std::io;
use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

/// What can be measured.
#[derive(Clone, Subcommand)]
pub(crate) enum Experiment {
    /// Predicted handovers: throughput without filters in front of the prediction table and with them, and what a filter finds wrongly
    /// (Synergy, figure 14c).
    Bloom(bloom::Options),
    /// Classification: look-ups and updates over 2 to 10,000 rules (L25GC, figure 11 and §5.3).
    Classifier(classifier::Options),
    /// Flow state: access time over active flows of each way to keep it (Synergy, figures 10 and 12).
    Flows(flows::Options),
    /// Handover and paging at 10,000 packets a second: lost, reordered, longest delay, by where packets are buffered, and live by kind of I/O
    /// (L25GC table 2, Synergy figure 12).
    Handover(handover::Options),
    /// Background work in the stalls of the packet pipeline: what it gets and what packets pay, over sessions (MSH).
    Harvest(harvest::Options),
    /// Packet threads that share the sessions: packets a second, and of a core's time, where packets arrive at their thread and where they
    /// arrive at any.
    Threads(threads::Options),
    /// What a packet costs the pipeline: 1 to 12 million sessions, 68 to 1,400 octets, both ways, 1 to 128 PDRs; and by each kind of I/O,
    /// with delays (L25GC, figure 10).
    Throughput(throughput::Options),
    /// Kinds of packet I/O: what a packet costs the packet thread by sockets and TUN, and by AF_XDP.
    Xdp(xdp::Options),
}

/// Runs an experiment; for tests with so little to measure that it shows nothing but that it can be drawn.
///
/// Errors: those of writing the plot.
pub(crate) fn run(mut experiment: Experiment, quick: bool, plots: &Path) -> io::Result<()> {
    if quick {
        match &mut experiment {
            Experiment::Bloom(options) => options.quick(),
            Experiment::Classifier(options) => options.quick(),
            Experiment::Flows(options) => options.quick(),
            Experiment::Handover(options) => options.quick(),
            Experiment::Harvest(options) => options.quick(),
            Experiment::Threads(options) => options.quick(),
            Experiment::Throughput(options) => options.quick(),
            Experiment::Xdp(options) => options.quick(),
        }
    }
    match &experiment {
        Experiment::Bloom(options) => bloom::run(options, plots),
        Experiment::Classifier(options) => classifier::run(options, plots),
        Experiment::Flows(options) => flows::run(options, plots),
        Experiment::Handover(options) => handover::run(options, plots),
        Experiment::Harvest(options) => harvest::run(options),
        Experiment::Threads(options) => threads::run(options, plots),
        Experiment::Throughput(options) => throughput::run(options, plots),
        Experiment::Xdp(options) => xdp::run(options, plots),
    }
}

/// The one line that ends an experiment.
fn finish(experiment: &str, figures: &Value) {
    println!("{}", json!({ "bench": format!("upf {experiment}"), "figures": figures }));
}
