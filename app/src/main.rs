//! The whimbrel program: configuration, commands, API, and the threads around the pure core.

mod api;
mod cli;
mod clock;
mod command;
mod config;
mod console;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
