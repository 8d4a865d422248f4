//! The program `whimbrel-lab`: emulated gNBs and UEs, demonstrations and measurements, for a core that is a program of its own.

#[cfg(any(test, feature = "bench"))]
mod bench;
mod cli;
mod demo;
mod playground;
mod programs;
mod ran;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
