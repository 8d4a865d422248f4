//! The program `whimbrel-broker`: a broker as a service, with the relays of veiled UEs, the commands of agencies, and an operator's settlement.

mod agency;
mod cli;
mod epoch;
mod init;
mod operator;
mod period;
mod relay;
mod settle;
mod settlement;
mod user;
mod veil;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
