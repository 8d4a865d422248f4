//! The experiments of LOCA (chapter 4.6 of the dissertation), one file each.

mod tokens;

use std::io;
use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

/// What can be measured.
#[derive(Clone, Subcommand)]
pub(crate) enum Experiment {
    /// Blind tokens that are issued and redeemed in a second of one core (chapter 4.6.2.1).
    Tokens(tokens::Options),
}

/// Runs an experiment; for tests with so little to measure that it shows nothing but that it can be drawn.
///
/// Errors: those of writing the plot.
pub(crate) fn run(mut experiment: Experiment, quick: bool, plots: &Path) -> io::Result<()> {
    if quick {
        match &mut experiment {
            Experiment::Tokens(options) => options.quick(),
        }
    }
    match &experiment {
        Experiment::Tokens(options) => tokens::run(options, plots),
    }
}

/// The one line that ends an experiment.
fn finish(experiment: &str, figures: &Value) {
    println!("{}", json!({ "bench": format!("loca {experiment}"), "figures": figures }));
}
