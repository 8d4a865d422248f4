//! A day of ten thousand UEs: `./x soak [--hours 24] [--ues 10000] [--gnbs 200] [--seed 1] [--pace 300]`.
//!
//! UEs come and go all day, move, sleep and wake, nodes fail. After each simulated hour one line: what was done, and the octets
//! that the allocator has given out, which is exact where resident memory is rounded and depends on the system. The exit
//! status says whether the end is within two in a hundred of the end of the warm-up.
//!
//! The day ends each hour in the same state: everyone registered, nothing under way. What grows then is a leak.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use whimbrel_sim::{NetworkPlan, NetworkRun, Tally};

/// Counts what is given out.
struct Counting;

static GIVEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        GIVEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        GIVEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Hours after which every table has had its greatest size.
const WARM_UP: u64 = 3;

/// How far the end may be from the warm-up, in thousandths.
const TOLERANCE_PER_MILLE: u64 = 20;

struct Options {
    hours: u64,
    ues: u32,
    gnbs: u32,
    seed: u64,
    /// Mean seconds between two wishes of a UE.
    pace: u64,
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: soak [--hours H] [--ues N] [--gnbs N] [--seed S] [--pace SECONDS]");
        return ExitCode::FAILURE;
    };
    let begun = clock();
    let faults = NetworkPlan::large().faults;
    let pace = Duration::from_secs(options.pace);
    let plan = NetworkPlan { gnbs: options.gnbs, ues: options.ues, pace, faults, ..NetworkPlan::large() };
    let mut run = NetworkRun::new(options.seed, plan);
    println!(
        "{:>5} {:>12} {:>10} {:>10} {:>14} {:>12}",
        "hour", "procedures", "ues", "sessions", "octets", "resident"
    );
    let (mut warm, mut end, mut before) = (0, 0, Tally::default());
    for hour in 1..=options.hours {
        run.run(Duration::from_secs(3600));
        run.rest();
        let given = GIVEN.load(Ordering::Relaxed) as u64;
        let tally = run.net.tally().clone();
        println!(
            "{hour:>5} {:>12} {:>10} {:>10} {given:>14} {:>12}",
            tally.procedures() - before.procedures(),
            run.net.cta().contexts().count(),
            run.net.upf_sessions(),
            resident()
        );
        before = tally;
        if hour == WARM_UP.min(options.hours) {
            warm = given;
        }
        end = given;
    }
    let per_mille = end.abs_diff(warm) * 1000 / warm.max(1);
    let flat = end <= warm || per_mille <= TOLERANCE_PER_MILLE;
    run.heal_and_verify();
    println!(
        "{{\"bench\": \"soak\", \"figures\": {{\"hours\": {}, \"ues\": {}, \"procedures\": {}, \"octets_warm\": {warm}, \
         \"octets_end\": {end}, \"grown_per_mille\": {}, \"octets_empty\": {}, \"seconds\": {:.1}}}}}",
        options.hours,
        options.ues,
        before.procedures(),
        if end > warm { per_mille as i64 } else { -(per_mille as i64) },
        GIVEN.load(Ordering::Relaxed),
        begun.elapsed().as_secs_f64()
    );
    if flat { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options() -> Option<Options> {
    let mut options = Options { hours: 24, ues: 10_000, gnbs: 200, seed: 1, pace: 300 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = arguments.next()?.parse::<u64>().ok()?;
        match argument.as_str() {
            "--hours" => options.hours = number,
            "--ues" => options.ues = u32::try_from(number).ok()?,
            "--gnbs" => options.gnbs = u32::try_from(number).ok()?,
            "--seed" => options.seed = number,
            "--pace" => options.pace = number,
            _ => return None,
        }
    }
    Some(options)
}

/// What the system holds for this process, in octets.
#[expect(clippy::disallowed_methods, reason = "shown beside the allocator's count")]
fn resident() -> u64 {
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status).into_owned();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[expect(clippy::disallowed_methods, reason = "the report at the end has the duration")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
