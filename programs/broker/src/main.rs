//! The program `whimbrel-broker`: a broker as a service, with the relays of veiled UEs and the commands of agencies.

mod agency;
mod cli;
mod epoch;
mod init;
mod operator;
mod period;
mod relay;
mod settlement;
mod user;
mod veil;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
