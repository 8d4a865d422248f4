//! `bench l25gc`: what the TCP connections of a UE see of failures and handovers (L25GC §5.5 and appendix C): the program's processes, sockets and
//! kills, the kernel's TCP, and an emulated RAN.

mod failover;
mod flows;
mod tcp_info;
mod world;

use clap::Subcommand;

use whimbrel_cli::Done;

/// Experiments of L25GC with real processes.
#[derive(Subcommand)]
pub(crate) enum Experiment {
    /// Downloads while a part of the core is killed (figure 15), also in the middle of an N2 handover (figure 16), and through many handovers (figure 17).
    Failover(failover::Options),
}

pub(crate) fn run(experiment: &Experiment) -> Done {
    match experiment {
        Experiment::Failover(options) => failover::run(options),
    }
}
