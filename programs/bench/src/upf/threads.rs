//! Packet threads that share the sessions: the threads of the program, with packets from memory that never end.
//!
//! Where each packet arrives at the thread that has its session, nothing is shared. Where packets arrive at any, all but one of as many as there
//! are threads are handed over: by a ring, and from one core's caches to another's.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::upf::classifier::common::rule_sets::Random;
use clap::Args;
use serde_json::json;
use whimbrel_ids::Teid;
use whimbrel_user::samples::SampleSession;
use whimbrel_user::{Config as User, DnIndex, Origin, SHARDS_MAX, SessionId};
use whimbrel_user_io::measure::endless;
use whimbrel_user_io::{Config, Handle};

use super::finish;
use super::population::{address, asked_for, config};
use super::smf::{SERVER, from_gnb, g_pdu, udp4};
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};

/// Packets that a thread receives again and again.
const PACKETS: usize = 8_192;
/// Until sessions stand and caches are warm.
const WARM_UP: Duration = Duration::from_millis(200);

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Number of sessions.
    #[arg(long, default_value_t = 10_000)]
    sessions: u32,
    /// Octets of a UE's packet.
    #[arg(long, default_value_t = 68)]
    octets: usize,
    /// Times that everything is measured; medians are shown.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of one measurement.
    #[arg(long, default_value_t = 400)]
    milliseconds: u64,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.sessions, self.rounds, self.milliseconds) = (100, 1, 100);
    }
}

/// So many threads, whose packets arrive at the right one or at any.
struct Row {
    threads: u8,
    steered: bool,
    /// Millions a second, nanoseconds of a core for each, and the part that was handed over and that found no room.
    seen: Vec<[f64; 4]>,
}

impl Row {
    fn median(&self, of: usize) -> f64 {
        median(self.seen.iter().map(|s| s[of]).collect())
    }
}

/// Measures.
///
/// Errors: where a thread or the kernel's figures of it cannot be had.
pub(crate) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let processors = thread::available_parallelism()?.get();
    let counts = (0..=SHARDS_MAX.ilog2()).map(|n| 1u8 << n).filter(|n| usize::from(*n) <= processors);
    let row = |threads| [true, false].map(|steered| Row { threads, steered, seen: Vec::new() });
    let mut rows: Vec<_> = counts.flat_map(row).filter(|r| r.threads > 1 || r.steered).collect();
    println!(
        "packet threads, memory to memory: {} sessions, packets of {} octets both ways; {processors} processors",
        options.sessions, options.octets
    );
    for _ in 0..options.rounds {
        for row in &mut rows {
            row.seen.push(measure(options, row.threads, row.steered)?);
        }
    }
    println!(
        "{:>8} {:>12} {:>10} {:>14} {:>12} {:>8}",
        "threads", "arriving", "Mpps", "ns of a core", "handed over", "lost"
    );
    for r in &rows {
        let arriving = if r.steered { "at theirs" } else { "at any" };
        let [mpps, ns, handed, lost] = [0, 1, 2, 3].map(|of| r.median(of));
        let (handed, lost) = (handed * 100.0, lost * 100.0);
        println!("{:>8} {arriving:>12} {mpps:>10.2} {ns:>14.1} {handed:>11.0}% {lost:>7.1}%", r.threads);
    }
    let line = |steered: bool, name: &str| Series {
        name: name.into(),
        points: rows
            .iter()
            .filter(|r| r.steered == steered)
            .map(|r| (f64::from(r.threads), r.median(0)))
            .collect(),
    };
    Plot {
        title: "Packet threads that share the sessions",
        x: "threads",
        y: "million packets a second",
        log_y: false,
        axis: Axis::Numbers,
        series: vec![line(true, "packets arrive at their thread"), line(false, "at any")],
    }
    .write(plots, "upf-threads")?;
    let figure = |r: &Row| {
        let [mpps, ns, handed, lost] = [0, 1, 2, 3].map(|of| (r.median(of) * 1_000.0).round() / 1_000.0);
        json!({ "threads": r.threads, "steered": r.steered, "mpps": mpps, "ns": ns, "handed_over": handed, "lost": lost })
    };
    finish(
        "threads",
        &json!({ "sessions": options.sessions, "rows": rows.iter().map(figure).collect::<Vec<_>>() }),
    );
    Ok(())
}

fn measure(options: &Options, threads: u8, steered: bool) -> io::Result<[f64; 4]> {
    let user = User { shards: threads, echo_interval: None, ..config(options.sessions) };
    let sample = SampleSession::of(&asked_for(&user), user.sessions_max, user.seed).expect("rules");
    let session =
        |n: u32| sample.session(SessionId { index: n, generation: n }, address(n), Teid(0x8000_0000 | n));
    let random = &mut Random::new(1);
    let mut packet = |thread: u32| {
        let mut n = random.below(options.sessions.into()) as u32;
        if steered {
            n = (n / u32::from(threads) * u32::from(threads) + thread) % options.sessions;
        }
        let payload = options.octets.max(28) - 28;
        match random.below(2) {
            0 => (from_gnb(), g_pdu(session(n).0, 1, &udp4(address(n), SERVER, (1, 2), payload))),
            _ => (Origin::N6 { dn: DnIndex(0) }, udp4(SERVER, address(n), (1, 2), payload)),
        }
    };
    let packets = (0..threads.into()).map(|t| (0..PACKETS).map(|_| packet(t)).collect()).collect();
    let handle = endless(Config::new(user, "none"), packets).map_err(|e| io::Error::other(e.to_string()))?;
    for n in 0..options.sessions {
        let mut change = session(n).1;
        while let Err(full) = handle.apply(change) {
            change = full.0;
            thread::yield_now();
        }
    }
    thread::sleep(WARM_UP);
    let before = look(&handle)?;
    thread::sleep(Duration::from_millis(options.milliseconds));
    let after = look(&handle)?;
    let passed = (after.passed - before.passed) as f64;
    if passed == 0.0 {
        return Err(io::Error::other(format!("no packet passed: {:?}", handle.counters())));
    }
    let seconds = (after.at - before.at).as_secs_f64();
    let part = |before: u64, after: u64| (after - before) as f64 / passed;
    Ok([
        passed / seconds / 1e6,
        (after.ran - before.ran) as f64 / passed,
        part(before.handed, after.handed),
        part(before.lost, after.lost),
    ])
}

/// What the threads have done until now.
struct Look {
    at: Instant,
    /// Packets that passed, those that were handed over, and those that found no room there.
    passed: u64,
    handed: u64,
    lost: u64,
    /// Nanoseconds that the threads have run.
    ran: u64,
}

fn look(handle: &Handle) -> io::Result<Look> {
    let mut ran = 0;
    for task in fs::read_dir("/proc/self/task")?.flatten() {
        if fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("upf-u")) {
            let text = fs::read_to_string(task.path().join("schedstat"))?;
            let first = text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
            ran += first.ok_or_else(|| io::Error::other("the kernel keeps no schedstat"))?;
        }
    }
    let (c, io) = (handle.counters(), handle.io_counters());
    let passed = c.ul_packets + c.dl_packets;
    Ok(Look { at: Instant::now(), passed, handed: io.handed_over, lost: io.hand_over_full, ran })
}
