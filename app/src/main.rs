//! The whimbrel program: configuration, commands, API, and the threads around the pure core.

mod cli;
mod command;
mod config;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
