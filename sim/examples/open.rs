//! Several operators serve the users of several brokers while processes and links of every party fail:
//! `./x sim --open [--seeds N] [--from S] [--minutes M] [--size small|medium|large] [-v]`.
//!
//! Each seed is a run, with the kinds and rates of faults that the seed decides. `-v` prints a line for each run, and of a single run that fails
//! the last messages. The invariants are
//! checked after each event (`sim/src/open_run`); at the end the faults stop, and every UE must attach again. A failing seed is printed
//! with the command that runs it again and its faults; the exit status is 1 if any failed. One thread per processor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use whimbrel_sim::{OpenCounts, OpenPlan, OpenRun};

/// Lines of the trace that are printed of a run that fails.
const TRACE_LINES: usize = 4_000;

#[derive(Clone, Copy)]
struct Options {
    seeds: u64,
    from: u64,
    minutes: u64,
    plan: OpenPlan,
    verbose: bool,
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: open [--seeds N] [--from S] [--minutes M] [--size small|medium|large] [-v]");
        return ExitCode::FAILURE;
    };
    let (next, totals) = (AtomicU64::new(options.from), Mutex::new((OpenCounts::default(), 0)));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::disallowed_methods, reason = "seeds are independent of one another")]
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(options, &next, &totals));
        }
    });
    let (t, failed) = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{{\"bench\": \"open_sim\", \"figures\": {{\"seeds\": {}, \"from\": {}, \"minutes\": {}, \"registrations\": {}, \"grants\": {}, \
         \"refusals\": {}, \"refused_ues\": {}, \"answers_repeated\": {}, \"grants_over\": {}, \"moves\": {}, \"brokers_lost\": {}, \
         \"cpfs_lost\": {}, \"ctas_lost\": {}, \"lost_all_holders\": {}, \"checks\": {}, \"failed\": {failed}}}}}",
        options.seeds,
        options.from,
        options.minutes,
        t.registrations,
        t.grants,
        t.refusals,
        t.refused_ues,
        t.repeated,
        t.grants_over,
        t.moves,
        t.brokers_lost,
        t.cpfs_lost,
        t.ctas_lost,
        t.lost_all_holders,
        t.checks,
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options() -> Option<Options> {
    let mut options = Options { seeds: 20, from: 0, minutes: 10, plan: OpenPlan::MEDIUM, verbose: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next()?.parse::<u64>().ok();
        match argument.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--minutes" => options.minutes = number()?,
            "--size" => options.plan = OpenPlan::named(&arguments.next()?)?,
            "-v" => options.verbose = true,
            _ => return None,
        }
    }
    Some(options)
}

fn work(options: Options, next: &AtomicU64, totals: &Mutex<(OpenCounts, u64)>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= options.from.saturating_add(options.seeds) {
            return;
        }
        let mut run = OpenRun::new(seed, options.plan, options.minutes);
        if options.verbose || options.seeds == 1 {
            println!("{run}");
        }
        if options.seeds == 1 && options.verbose {
            run.trace_all();
        }
        let ran = catch_unwind(AssertUnwindSafe(|| {
            run.run();
            run.heal_and_verify();
        }));
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.0.add(&run.counts());
        if ran.is_err() {
            totals.1 += 1;
            eprintln!("seed {seed} fails: {run}");
            if options.seeds == 1 && options.verbose {
                eprintln!("{}", run.trace_tail(TRACE_LINES));
            }
        }
    }
}
