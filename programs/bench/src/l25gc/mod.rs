//! The experiments of L25GC that concern how network functions reach each other (§3.2, §5.2), one file each.

mod fabric;
mod failover;
mod forms;
mod messages;
mod n4;
mod procedures;
mod replica;

use std::io;
use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

/// What can be measured.
#[derive(Clone, Subcommand)]
pub(crate) enum Experiment {
    /// Messages of the service-based interface as JSON, protobuf, FlatBuffers, and through shared memory (figures 6 and 9).
    Messages(messages::Options),
    /// Shared memory between the processes of a host: round trips, waking, a service request between CTA and CPF.
    Fabric(fabric::Options),
    /// N4 between SMF and UPF: establishment, update and report as PFCP over UDP and through shared memory (figure 7).
    N4(n4::Options),
    /// Whole procedures over four ways to build the core, and a service request with CTA and CPF as one process and as two (figure 8).
    Procedures(procedures::Options),
    /// The UPF's replica: what a synchronisation takes, and a look at a state that has not changed.
    Replica(replica::Options),
    /// TCP through failures and handovers: the program's processes are killed while a UE downloads (figures 15 to 17).
    Failover(failover::Options),
    /// A network function of `procedures`, which starts it.
    #[command(hide = true)]
    Function(procedures::FunctionOptions),
}

/// Runs an experiment; for tests with so little to measure that it shows nothing but that it can be drawn.
///
/// Errors: those of sockets, of shared memory, and of writing the plot.
pub(crate) fn run(mut experiment: Experiment, quick: bool, plots: &Path) -> io::Result<()> {
    if quick {
        match &mut experiment {
            Experiment::Messages(options) => options.quick(),
            Experiment::Fabric(options) => options.quick(),
            Experiment::N4(options) => options.quick(),
            Experiment::Procedures(options) => options.quick(),
            Experiment::Replica(options) => options.quick(),
            Experiment::Failover(options) => options.quick(),
            Experiment::Function(_) => {}
        }
    }
    match &experiment {
        Experiment::Messages(options) => messages::run(options, plots),
        Experiment::Fabric(options) => fabric::run(options, plots),
        Experiment::N4(options) => n4::run(options, plots),
        Experiment::Procedures(options) => procedures::run(options, plots),
        Experiment::Replica(options) => replica::run(options, plots),
        Experiment::Failover(options) => failover::run(options, plots),
        Experiment::Function(options) => procedures::function(options),
    }
}

/// The one line that ends an experiment.
fn finish(experiment: &str, figures: &Value) {
    println!("{}", json!({ "bench": format!("l25gc {experiment}"), "figures": figures }));
}

/// With so many digits that a difference shows.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
