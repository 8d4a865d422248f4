//! Experiments of papers, repeated on this core: `whimbrel-bench PAPER FIGURE`, or `./x bench neutrino FIGURE`,
//! `./x bench upf EXPERIMENT`, `./x bench bricks EXPERIMENT`, `./x bench l25gc EXPERIMENT`, `./x bench loca EXPERIMENT`.
//!
//! Each prints the paper's figure beside ours, writes a plot, and ends with one line of JSON. An experiment is one file
//! and one line in the list of its paper; `measure` and `plot` are there for all of them.

mod bricks;
mod codec;
mod l25gc;
mod loca;
mod measure;
mod neutrino;
mod plot;
mod upf;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Experiments of papers, repeated on this core")]
struct Arguments {
    /// Where the plots go.
    #[arg(long, default_value = ".", global = true)]
    plots: PathBuf,
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand)]
enum Paper {
    /// CellBricks: users of brokers at operators without a contract.
    Bricks {
        /// For tests: hardly anything is measured.
        #[arg(long, global = true)]
        quick: bool,
        #[command(subcommand)]
        experiment: bricks::Experiment,
    },
    /// L25GC: network functions of one host that reach each other through shared memory.
    L25gc {
        /// For tests: hardly anything is measured.
        #[arg(long, global = true)]
        quick: bool,
        #[command(subcommand)]
        experiment: l25gc::Experiment,
    },
    /// LOCA: an operator that knows the place, a broker that knows the identity.
    Loca {
        /// For tests: hardly anything is measured.
        #[arg(long, global = true)]
        quick: bool,
        #[command(subcommand)]
        experiment: loca::Experiment,
    },
    /// Neutrino: a fast and consistent edge-based cellular control plane.
    Neutrino {
        #[command(subcommand)]
        figure: neutrino::Figure,
    },
    /// L25GC and Synergy: the user plane.
    Upf {
        /// For tests: hardly anything is measured.
        #[arg(long, global = true)]
        quick: bool,
        #[command(subcommand)]
        experiment: upf::Experiment,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.paper {
        Paper::Bricks { quick, experiment } => bricks::run(experiment, quick, &arguments.plots),
        Paper::L25gc { quick, experiment } => l25gc::run(experiment, quick, &arguments.plots),
        Paper::Loca { quick, experiment } => loca::run(experiment, quick, &arguments.plots),
        Paper::Neutrino { figure } => neutrino::run(&figure, &arguments.plots),
        Paper::Upf { quick, experiment } => upf::run(experiment, quick, &arguments.plots),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("whimbrel-bench: {e}");
            ExitCode::FAILURE
        }
    }
}
