//! Many countries: `./x sim --seeds N [--from S] [--hours H] [--county]`.
//!
//! Each seed is a country with two hundred gNBs and two thousand phones, or with `--county` the small one of the test suite. A
//! seed that fails is printed with the command that runs it again; the exit status says whether any did. Two threads, or as
//! many as there are processors.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use whimbrel_sim::{Country, Plan, Tally};

#[derive(Clone)]
struct Options {
    seeds: u64,
    from: u64,
    minutes: u64,
    county: bool,
}

#[derive(Default)]
struct Totals {
    failed: Vec<u64>,
    inputs: u64,
    tally: Tally,
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: country [--seeds N] [--from S] [--minutes M] [--county]");
        return ExitCode::FAILURE;
    };
    let begun = clock();
    let (next, totals) = (AtomicU64::new(options.from), Mutex::new(Totals::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::disallowed_methods, reason = "seeds have nothing to do with one another")]
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&options, &next, &totals));
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(&options, &totals, begun.elapsed());
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options() -> Option<Options> {
    let mut options = Options { seeds: 1, from: 0, minutes: 60, county: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next()?.parse::<u64>().ok();
        match argument.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--minutes" => options.minutes = number()?,
            "--county" => options.county = true,
            _ => return None,
        }
    }
    Some(options)
}

fn work(options: &Options, next: &AtomicU64, totals: &Mutex<Totals>) {
    let plan = if options.county { Plan::county() } else { Plan::country() };
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= options.from.saturating_add(options.seeds) {
            return;
        }
        let ran = catch_unwind(|| {
            let mut country = Country::new(seed, plan);
            country.run(Duration::from_secs(options.minutes * 60));
            country.evening();
            (country.net.inputs(), country.net.tally().clone())
        });
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        match ran {
            Ok((inputs, tally)) => {
                totals.inputs += inputs;
                totals.tally.add(&tally);
            }
            Err(_) => {
                totals.failed.push(seed);
                let county = if options.county { " --county" } else { "" };
                eprintln!(
                    "seed {seed} fails: ./x sim --seeds 1 --from {seed} --minutes {}{county}",
                    options.minutes
                );
            }
        }
    }
}

fn report(options: &Options, totals: &Totals, took: Duration) {
    let tally = &totals.tally;
    println!("{:<32} {:>12} {:>12}", "procedure", "completed", "refused");
    let names = tally.completed.keys().chain(tally.refused.keys());
    for name in names.collect::<std::collections::BTreeSet<_>>() {
        let of = |counts: &std::collections::BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
        println!("{name:<32} {:>12} {:>12}", of(&tally.completed), of(&tally.refused));
    }
    println!(
        "{{\"bench\": \"sim\", \"figures\": {{\"seeds\": {}, \"from\": {}, \"procedures\": {}, \"inputs\": {}, \
         \"repeated\": {}, \"failed\": {}, \"seconds\": {:.1}}}}}",
        options.seeds,
        options.from,
        tally.procedures(),
        totals.inputs,
        tally.repeated,
        totals.failed.len(),
        took.as_secs_f64()
    );
}

#[expect(clippy::disallowed_methods, reason = "how long it took is told at the end")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
