//! Schedules: `./x sim --schedules N [--from S]`.
//!
//! Each is a procedure in the middle of which CPFs or the CTA are lost, at a message and in a way that the seed chooses
//! ([`whimbrel_sim::Schedules`]). One that fails is printed with the command that runs it again, with those of its history that were before
//! it; the exit status says whether any did. Two threads, or as many as there are processors.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use whimbrel_sim::{SCHEDULES_PER_NETWORK, ScheduleReport, Schedules};

#[derive(Default)]
struct Totals {
    report: ScheduleReport,
    failed: u64,
}

fn main() -> ExitCode {
    let Some((number, from)) = options() else {
        eprintln!("usage: schedules N [--from S]");
        return ExitCode::FAILURE;
    };
    let begun = clock();
    let schedules = Schedules::default();
    let until = from.saturating_add(number);
    let (next, totals) = (AtomicU64::new(from / SCHEDULES_PER_NETWORK), Mutex::new(Totals::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::disallowed_methods, reason = "histories have nothing to do with one another")]
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&schedules, from..until, &next, &totals));
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    print_report(&totals, from, begun.elapsed().as_secs_f64());
    if totals.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options() -> Option<(u64, u64)> {
    let (mut number, mut from) = (10_000, 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--from" => from = arguments.next()?.parse().ok()?,
            all => number = all.parse().ok()?,
        }
    }
    Some((number, from))
}

fn work(schedules: &Schedules, numbers: std::ops::Range<u64>, next: &AtomicU64, totals: &Mutex<Totals>) {
    loop {
        let first = next.fetch_add(1, Ordering::Relaxed) * SCHEDULES_PER_NETWORK;
        if first >= numbers.end {
            return;
        }
        let mut report = ScheduleReport::default();
        let (from, through) =
            (first.max(numbers.start), (first + SCHEDULES_PER_NETWORK).min(numbers.end) - 1);
        let ran = catch_unwind(AssertUnwindSafe(|| schedules.history(from, through, &mut report)));
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(ran, Ok(Ok(()))) {
            totals.failed += 1;
            let (schedule, what) = &report.at;
            let why = ran.ok().and_then(Result::err).unwrap_or_else(|| "see above".into());
            eprintln!("./x sim --schedules 1 --from {schedule} fails: {what}: {why}");
        }
        totals.report.add(report);
    }
}

fn print_report(totals: &Totals, from: u64, seconds: f64) {
    let report = &totals.report;
    let table = |what: &str, counts: &BTreeMap<&'static str, u64>| {
        println!("{what:<80} {:>10}", "times");
        counts.iter().for_each(|(name, times)| println!("  {name:<78} {times:>10}"));
    };
    table("procedure", &report.procedures);
    table("a CPF was lost at", &report.losses[0]);
    table("the CTA was lost at", &report.losses[1]);
    let (boundaries, least) = report.boundaries();
    let reported = &report.replicated;
    println!(
        "{{\"bench\": \"schedules\", \"figures\": {{\"schedules\": {}, \"from\": {from}, \"procedures\": {}, \"boundaries\": {boundaries}, \
         \"least_of_a_boundary\": {least}, \"without_loss\": {}, \"cpfs_lost\": {}, \"ctas_lost\": {}, \"taken_over\": {}, \
         \"replayed\": {}, \"moved\": {}, \"registered_again\": {}, \"failed\": {}, \"seconds\": {seconds:.1}}}}}",
        report.schedules,
        report.procedures.len(),
        report.quiet,
        reported.cpfs_lost,
        report.takeovers,
        reported.taken_over,
        reported.replayed,
        reported.moved,
        report.registered_again,
        totals.failed,
    );
}

#[expect(clippy::disallowed_methods, reason = "the report at the end has the duration")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
