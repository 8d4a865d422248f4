//! The program `whimbrel`: the core, and the commands of its operator.

mod archive;
mod backup;
mod cli;
mod command;
mod support_bundle;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A unit's manager runs programs by their descriptors, after whose numbers the kernel would call the process.
    let _ = rustix::thread::set_name(c"whimbrel");
    cli::run()
}
