//! The whimbrel program: configuration, commands, API, and the threads around the pure core.

mod aftermath;
mod api;
mod archive;
mod audit;
mod backup;
#[cfg(any(test, feature = "bench"))]
mod bench;
mod capture;
mod cli;
mod client;
mod clock;
mod cluster;
mod command;
mod config;
mod console;
mod core;
mod entropy;
mod local_socket;
mod local_time;
mod log_limiter;
mod logging;
mod memory_access;
mod observe;
mod open;
mod otlp;
mod packet_logger;
mod pcapng;
mod playground;
mod sbfd;
mod subscribers;
mod support_bundle;
mod unit;
mod veil;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A unit's manager runs programs by their descriptors, after whose numbers the kernel would call the process.
    let _ = rustix::thread::set_name(c"whimbrel");
    cli::run()
}
