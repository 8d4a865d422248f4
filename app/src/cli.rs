//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::command;

/// A 5G core: AMF, SMF, UPF and their kin in one program.
#[derive(Parser)]
#[command(name = "whimbrel", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a configuration file without starting anything.
    Check {
        /// The file; without it, whimbrel.yaml here or in /etc/whimbrel.
        file: Option<PathBuf>,
    },
    /// Print the defaults as a commented YAML file.
    Config,
}

/// Where the configuration stands.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConfigFile {
    /// Configuration file; without it, whimbrel.yaml here or in /etc/whimbrel, else the defaults.
    #[arg(short, long = "config", value_name = "FILE", global = true)]
    pub(crate) file: Option<PathBuf>,
}

/// Runs the command that the program was started with.
pub(crate) fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Check { file } => command::check::run(file.as_deref()),
        Command::Config => command::print(&crate::config::defaults()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    }
}
