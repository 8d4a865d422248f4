//! `./x demo --scenario harvest`: a UPF with millions of sessions forwards at set rates below saturation, and the usage survey of all
//! sessions runs on the same core: in the packet thread (`n3.harvest`), or as a thread of the kernel at its lowest priority.
//!
//! `[--sessions N] [--rates A,B,…] [--budgets A,B,…] [--rounds N] [--seconds S] [--real-time]`. Rates are per cent of saturation, budgets per cent of the
//! 95th percentile.

mod measured;

use std::process::ExitCode;

use measured::{Options, run};

fn main() -> ExitCode {
    let Some(options) = Options::read(std::env::args().skip(1)) else {
        eprintln!(
            "usage: harvest [--sessions N] [--rates A,B] [--budgets A,B] [--rounds N] [--seconds S] [--real-time]"
        );
        return ExitCode::FAILURE;
    };
    match run(&options) {
        Ok(_) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("harvest: {e}");
            ExitCode::FAILURE
        }
    }
}
