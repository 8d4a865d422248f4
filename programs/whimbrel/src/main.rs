//! The whimbrel program: configuration, commands, API, and the threads around the pure core.

mod archive;
mod backup;
#[cfg(any(test, feature = "bench"))]
mod bench;
mod cli;
mod command;
mod playground;
mod support_bundle;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A unit's manager runs programs by their descriptors, after whose numbers the kernel would call the process.
    let _ = rustix::thread::set_name(c"whimbrel");
    cli::run()
}
