//! The experiments of CellBricks (SIGCOMM 2021; chapter 3.6 of the dissertation), one file each.

mod attach;
mod billing;
mod broker;
mod forwarder;
mod mobility;
mod parties;

use std::io;
use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

/// What can be measured.
#[derive(Clone, Subcommand)]
pub(crate) enum Experiment {
    /// Attach by SAP beside a standard one of two round trips to the home, and beside 5G roaming, with the home near and far, by module
    /// (figure 3.7).
    Attach(attach::Options),
    /// Attaches that a broker answers in a second of one core.
    Broker(broker::Options),
    /// Lying operators and users that a broker finds, and false alarms (chapter 3.4.3).
    Billing(billing::Options),
    /// A download through the move to another operator, by the kernel's MPTCP (table 3.1, figures 3.8 and 3.9).
    Mobility(mobility::Options),
}

/// Runs an experiment; for tests with so little to measure that it shows nothing but that it can be drawn.
///
/// Errors: those of sockets and of writing the plot.
pub(crate) fn run(mut experiment: Experiment, quick: bool, plots: &Path) -> io::Result<()> {
    if quick {
        match &mut experiment {
            Experiment::Attach(options) => options.quick(),
            Experiment::Broker(options) => options.quick(),
            Experiment::Billing(options) => options.quick(),
            Experiment::Mobility(options) => options.quick(),
        }
    }
    match &experiment {
        Experiment::Attach(options) => attach::run(options, plots),
        Experiment::Broker(options) => broker::run(options, plots),
        Experiment::Billing(options) => billing::run(options, plots),
        Experiment::Mobility(options) => mobility::run(options, plots),
    }
}

/// The one line that ends an experiment.
fn finish(experiment: &str, figures: &Value) {
    println!("{}", json!({ "bench": format!("bricks {experiment}"), "figures": figures }));
}
