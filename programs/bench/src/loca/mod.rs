//! The experiments of LOCA (chapter 4.6 of the dissertation), one file each.

mod claims;
mod subset;
mod tokens;
mod trajectory;

use std::io;
use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

/// What can be measured.
#[derive(Clone, Subcommand)]
pub(crate) enum Experiment {
    /// Claims that are proved and verified, over the slots of a claim and the rows of a table (chapter 4.6.2.3).
    Claims(claims::Options),
    /// How many subsets of a table have the claimed sum (chapter 4.5.1.2, Figure 4.5).
    Subset(subset::Options),
    /// How far an operator follows a user over reattachments (chapter 4.5.1.3, Figure 4.6).
    Trajectory(trajectory::Options),
    /// Blind tokens that are issued and redeemed in a second of one core (chapter 4.6.2.1).
    Tokens(tokens::Options),
}

/// Runs an experiment; for tests with so little to measure that it shows nothing but that it can be drawn.
///
/// Errors: those of writing the plot.
pub(crate) fn run(mut experiment: Experiment, quick: bool, plots: &Path) -> io::Result<()> {
    if quick {
        match &mut experiment {
            Experiment::Claims(options) => options.quick(),
            Experiment::Subset(options) => options.quick(),
            Experiment::Tokens(options) => options.quick(),
            Experiment::Trajectory(options) => options.quick(),
        }
    }
    match &experiment {
        Experiment::Claims(options) => claims::run(options, plots),
        Experiment::Subset(options) => subset::run(options, plots),
        Experiment::Tokens(options) => tokens::run(options, plots),
        Experiment::Trajectory(options) => trajectory::run(options, plots),
    }
}

/// Numbers for simulations, the same in each run (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// From 0 to below 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Below `bound`, which is above 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// The one line that ends an experiment.
fn finish(experiment: &str, figures: &Value) {
    println!("{}", json!({ "bench": format!("loca {experiment}"), "figures": figures }));
}
