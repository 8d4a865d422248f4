//! What a packet costs the pipeline, of one core and from memory: by sessions, sizes and directions.
//!
//! Sessions are drawn uniformly, the packets occupy more memory than the second cache has, and each burst begins with what the last
//! one left: nothing is quick because it was there already, or because the processor could begin before.

mod firewall;
mod shapes;
mod stages;

use std::fs;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant as Clock};

use crate::upf::classifier::common::rule_sets::Random;
use clap::Args;
use serde_json::{Value, json};
use whimbrel_ids::Instant;
use whimbrel_user::{Destination, PacketVerdict, Stage, StageObserver};

use super::limit::Limit;
use super::population::{Packets, Population, Traffic};
use super::xdp::{UES, again_inside};
use super::{finish, kinds};
use crate::measure::{core_time, median};
use crate::plot::{Axis, Plot, Series};

/// Packets in memory: the lines of them that are touched are twice the second cache, or more.
const PACKETS: usize = 32_768;
/// Packets of a burst, as `user/io` receives them.
const BURST: usize = 32;
/// Octets of the smallest packet.
const SMALL: usize = 68;
/// Memory that a session is thought to need before it is known.
const SESSION_OCTETS_GUESSED: u64 = 700;

/// Rounds at the firewall of the data network, each over packets of either kind: more would only be longer.
const FIREWALL_ROUNDS_MAX: usize = 15;

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Numbers of sessions.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10_000, 1_000_000, 12_000_000])]
    sessions: Vec<u32>,
    /// Octets of a UE's packet.
    #[arg(long, value_delimiter = ',', default_values_t = [SMALL, 128, 256, 512, 1_024, 1_400])]
    sizes: Vec<usize>,
    /// Sessions where sizes are compared.
    #[arg(long, default_value_t = 10_000)]
    sessions_of_sizes: u32,
    /// Rounds over all packets in memory that are timed, of each row.
    #[arg(long, default_value_t = 60)]
    rounds: usize,
    /// PDRs of a session, where these are compared.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64, 128, 256])]
    pdrs: Vec<u16>,
    /// Seed of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Numbers of sessions by each kind of I/O; behind the first one, of the first size alone, and no delays.
    #[arg(long, value_delimiter = ',', default_values_t = [UES, 1_000_000])]
    io_sessions: Vec<u32>,
    /// Times that each kind of I/O is measured; 0: from memory alone. It takes root.
    #[arg(long, default_value_t = 3)]
    io_rounds: usize,
    /// Milliseconds of one measurement of I/O.
    #[arg(long, default_value_t = 200)]
    io_milliseconds: u64,
    /// Packets that are timed from one end to the other, of each size, way and kind of I/O.
    #[arg(long, default_value_t = 2_000)]
    timed: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.sessions, self.sizes, self.pdrs) = (vec![100], vec![SMALL], vec![1, 8]);
        (self.sessions_of_sizes, self.rounds, self.io_rounds) = (100, 1, 0);
    }
}

/// What one kind of traffic took.
struct Row {
    sessions: u32,
    octets: usize,
    traffic: Traffic,
    /// Each packet waited for what was written of the one before.
    chained: bool,
    /// Nanoseconds of core time a packet, medians of rounds.
    ns: f64,
    /// The same in the best round.
    best: f64,
    /// Microseconds of a burst: median and 99th percentile.
    burst_us: (f64, f64),
}

impl Row {
    fn mpps(&self) -> f64 {
        1e3 / self.ns
    }

    fn name(&self) -> String {
        format!("{}{}", self.traffic.name(), if self.chained { ", chained" } else { "" })
    }
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let io = options.io_rounds > 0 && is_root();
    if io && let Some(ran) = again_inside()? {
        return if ran {
            Ok(())
        } else {
            Err(io::Error::other("kinds of I/O need `ip`, `nft` and XDP: --io-rounds 0"))
        };
    }
    println!(
        "throughput: memory to memory, one core, bursts of {BURST}; medians of {} rounds",
        options.rounds
    );
    println!(
        "each session has two PDRs, two FARs, a QER and a URR of its own; every packet is metered and counted"
    );
    println!(
        "paper (L25GC figure 10, one core, 68 octets): 27 times the kernel's UPF; Synergy holds 12 million flows"
    );
    println!(
        "chained: each packet's time is read from the verdict on the one before, so that the processor cannot begin it sooner"
    );
    println!("\n   sessions  octets  way                ns   best     Mpps   burst us p50    p99");
    let (mut rows, mut limits, mut memory, mut stages) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for &sessions in &options.sessions {
        if u64::from(sessions) * SESSION_OCTETS_GUESSED > available() {
            println!("{sessions:>11}  left out: it needs more memory than is free");
            continue;
        }
        let before = resident();
        let mut population = Population::new(sessions);
        let octets = resident().saturating_sub(before) as f64 / f64::from(sessions);
        for traffic in Traffic::ALL {
            rows.push(measured(&mut population, (traffic, false), SMALL, options));
        }
        rows.push(measured(&mut population, (Traffic::Both, true), SMALL, options));
        if sessions == options.sessions_of_sizes {
            for &octets in options.sizes.iter().filter(|o| **o != SMALL) {
                for traffic in Traffic::ALL {
                    rows.push(measured(&mut population, (traffic, false), octets, options));
                }
            }
        }
        let parts = stages::shares(&mut population, options);
        println!("{sessions:>11}  {}", stages::text(&parts));
        stages.push((sessions, parts));
        drop(population);
        let limit = Limit::new(sessions).nanoseconds(options.rounds);
        println!(
            "{sessions:>11}  an index and a record of two cache lines, prefetched, alone: {limit:.1} ns"
        );
        if sessions >= 1_000_000 {
            println!("{sessions:>11}  {octets:.0} octets a session");
            memory.push((sessions, octets));
        }
        limits.push((sessions, limit));
    }
    draw(&rows, plots)?;
    let access = access(&rows, &limits);
    targets(&rows, &memory, &access);
    let mut figures = figures(&rows, &limits, &memory, &access);
    figures["firewall"] = firewall::run(options.rounds.min(FIREWALL_ROUNDS_MAX));
    figures["stage_percent"] = stages.iter().map(|(s, parts)| json!([s, stages::figures(parts)])).collect();
    figures["pdrs"] = shapes::run(&options.pdrs, options.rounds.min(FIREWALL_ROUNDS_MAX));
    if io {
        figures["io"] = by_io(options, &rows, plots)?;
    } else {
        println!("\nby kind of I/O: left out; it takes root, and --io-rounds of 1 at least");
    }
    finish("throughput", &figures);
    Ok(())
}

/// The kinds of I/O, beside what the pipeline carries from memory.
fn by_io(options: &Options, rows: &[Row], plots: &Path) -> io::Result<Value> {
    let plan = kinds::Plan {
        sizes: options.sizes.clone(),
        sessions: options.io_sessions.clone(),
        rounds: options.io_rounds,
        within: Duration::from_millis(options.io_milliseconds),
        timed: options.timed,
    };
    let shown = kinds::run(&plan)?;
    kinds::show(&shown);
    let first = options.io_sessions.first().copied().unwrap_or(UES);
    let both = |octets: usize| shown.rows.iter().filter(move |r| (r.sessions, r.octets) == (first, octets));
    let mut series: Vec<Series> = Vec::new();
    for kind in &kinds::KINDS {
        let points = options.sizes.iter().enumerate().filter_map(|(at, octets)| {
            let of = both(*octets).filter(|r| r.kind.name == kind.name);
            let best = of.map(kinds::Row::mpps).fold(f64::NAN, f64::min);
            best.is_finite().then_some((at as f64, best))
        });
        series.push(Series { name: kind.name.into(), points: points.collect() });
    }
    let memory = options.sizes.iter().enumerate().filter_map(|(at, octets)| {
        let of = rows
            .iter()
            .filter(|r| (r.sessions, r.octets, r.chained) == (options.sessions_of_sizes, *octets, false));
        let least = of.map(Row::mpps).fold(f64::NAN, f64::min);
        least.is_finite().then_some((at as f64, least))
    });
    series.push(Series { name: "memory".into(), points: memory.collect() });
    Plot {
        title: "Packets of one core by kind of I/O, the slowest way (L25GC, figure 10)",
        x: "octets of a UE's packet",
        y: "Mpps",
        log_y: true,
        axis: Axis::Names(options.sizes.iter().map(ToString::to_string).collect()),
        series,
    }
    .write(plots, "upf-throughput-io")?;
    Ok(kinds::figures(&shown))
}

/// Has each packet wait for the one before, and not for the burst before alone: its time is that of the other, to which what was written of
/// that is added, made zero.
struct Chain {
    /// Zero, though the compiler does not know.
    nothing: u64,
}

impl StageObserver for Chain {
    fn done(&mut self, _: Stage) {}

    fn decided(&mut self, now: Instant, verdict: &PacketVerdict) -> Instant {
        // Both come from the session's memory.
        let written = match verdict {
            PacketVerdict::Send(Destination::N3 { peer, .. }) => peer.port().into(),
            PacketVerdict::Send(Destination::N6 { dn }) => dn.0.into(),
            _ => 0,
        };
        Instant(now.0 + (written & self.nothing))
    }
}

/// Times rounds over all packets.
fn measured(
    population: &mut Population,
    (traffic, chained): (Traffic, bool),
    octets: usize,
    options: &Options,
) -> Row {
    let mut packets = Packets::new(PACKETS, octets);
    let random = &mut Random::new(options.seed ^ octets as u64);
    let (mut rounds, mut bursts) = (Vec::new(), Vec::new());
    // Zero, though the compiler does not know: what is or-ed with it ties a burst to the one before.
    let nothing = black_box(0u64);
    let mut now = super::smf::START;
    for round in 0..options.rounds + 2 {
        packets.draw(population, traffic, random);
        let (mut sent, mut last) = (0, 0u64);
        let begin = core_time();
        let mut burst_began = Clock::now();
        for burst in packets.slots.chunks_mut(BURST) {
            now = Instant(now.0 + 3 + (last & nothing));
            if chained {
                population.upf.burst_observed(now, burst, &mut Chain { nothing });
            } else {
                population.upf.burst(now, burst);
            }
            for slot in burst.iter() {
                // What a driver does: it looks where to, and reads the packet.
                if let PacketVerdict::Send(_) = slot.verdict {
                    sent += 1;
                    last ^= u64::from(slot.packet.octets().first().copied().unwrap_or(0));
                }
            }
            let ended = Clock::now();
            bursts.push((ended - burst_began).as_nanos() as f64 / 1e3);
            burst_began = ended;
        }
        let ns = (core_time() - begin).as_nanos() as f64 / PACKETS as f64;
        assert_eq!(sent, PACKETS, "{:?}", population.upf.counters());
        // The first rounds warm up.
        if round >= 2 {
            rounds.push(ns);
        } else {
            bursts.clear();
        }
    }
    bursts.sort_by(f64::total_cmp);
    let row = Row {
        sessions: population.sessions(),
        octets,
        traffic,
        chained,
        best: rounds.iter().copied().fold(f64::INFINITY, f64::min),
        ns: median(rounds),
        burst_us: (bursts[bursts.len() / 2], bursts[bursts.len() * 99 / 100]),
    };
    println!(
        "{:>11} {:>7}  {:<14} {:>6.1} {:>6.1} {:>8.2}   {:>12.2} {:>6.2}",
        row.sessions,
        row.octets,
        row.name(),
        row.ns,
        row.best,
        row.mpps(),
        row.burst_us.0,
        row.burst_us.1
    );
    row
}

/// What more a packet costs than with one session, over the bare prefetched limit.
fn access(rows: &[Row], limits: &[(u32, f64)]) -> Vec<(u32, f64, f64)> {
    let both = |sessions: u32| {
        let of = (sessions, SMALL, Traffic::Both, false);
        rows.iter().find(|r| (r.sessions, r.octets, r.traffic, r.chained) == of)
    };
    let Some(one) = both(1) else { return Vec::new() };
    let of = |(sessions, limit): &(u32, f64)| Some((*sessions, both(*sessions)?.ns - one.ns, *limit));
    limits.iter().filter(|(sessions, _)| *sessions > 1).filter_map(of).collect()
}

fn targets(rows: &[Row], memory: &[(u32, f64)], access: &[(u32, f64, f64)]) {
    println!("\nreached, and the aim");
    for (sessions, aim) in [(10_000, 12.0), (12_000_000, 6.0)] {
        for r in rows.iter().filter(|r| (r.sessions, r.octets) == (sessions, SMALL)) {
            println!("  {sessions} sessions, {}: {:.1} Mpps of {aim:.0}", r.name(), r.mpps());
        }
    }
    for (sessions, octets) in memory {
        println!("  {sessions} sessions: {octets:.0} octets each of 512");
    }
    for (sessions, more, limit) in access {
        println!(
            "  {sessions} sessions: {more:.1} ns more than with one, {:.2} times the prefetched limit of {limit:.1}; aim 1.5",
            more / limit
        );
    }
}

fn draw(rows: &[Row], plots: &Path) -> io::Result<()> {
    let names = |of: &dyn Fn(&Row) -> Option<String>| {
        let mut names: Vec<String> = rows.iter().filter_map(of).collect();
        names.dedup();
        names
    };
    let plot = |title: &str, x: &str, file: &str, of: &dyn Fn(&Row) -> Option<String>| {
        let names = names(of);
        let mut kinds: Vec<String> = Vec::new();
        for row in rows {
            if !kinds.contains(&row.name()) {
                kinds.push(row.name());
            }
        }
        let series = kinds.into_iter().map(|name| Series {
            points: rows
                .iter()
                .filter(|r| r.name() == name)
                .filter_map(|r| {
                    Some((names.iter().position(|n| Some(n) == of(r).as_ref())? as f64, r.mpps()))
                })
                .collect(),
            name,
        });
        Plot { title, x, y: "Mpps", log_y: false, axis: Axis::Names(names.clone()), series: series.collect() }
            .write(plots, file)
    };
    plot("Throughput of one core, 68 octets", "sessions", "upf-throughput-sessions", &|r| {
        (r.octets == SMALL).then(|| r.sessions.to_string())
    })?;
    let sizes = rows.iter().find(|r| r.octets != SMALL).map(|r| r.sessions);
    plot("Throughput of one core (L25GC, figure 10)", "octets", "upf-throughput-sizes", &|r| {
        (Some(r.sessions) == sizes).then(|| r.octets.to_string())
    })
}

fn figures(rows: &[Row], limits: &[(u32, f64)], memory: &[(u32, f64)], access: &[(u32, f64, f64)]) -> Value {
    let round = |v: f64| (v * 100.0).round() / 100.0;
    let row = |r: &Row| {
        json!({
            "sessions": r.sessions, "octets": r.octets, "traffic": r.traffic.name(), "chained": r.chained,
            "ns": round(r.ns),
            "best_ns": round(r.best), "mpps": round(r.mpps()), "burst_us": [round(r.burst_us.0), round(r.burst_us.1)],
        })
    };
    json!({
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "limit_ns": limits.iter().map(|(s, ns)| json!([s, round(*ns)])).collect::<Vec<_>>(),
        "session_octets": memory.iter().map(|(s, o)| json!([s, o.round()])).collect::<Vec<_>>(),
        "access_of_limit": access.iter().map(|(s, more, limit)| json!([s, round(more / limit)])).collect::<Vec<_>>(),
    })
}

/// Whether this process is root's.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// Octets of memory that are this process's.
fn resident() -> u64 {
    kilobytes("/proc/self/status", "VmRSS:") * 1024
}

/// Octets of memory that are free.
fn available() -> u64 {
    kilobytes("/proc/meminfo", "MemAvailable:") * 1024
}

fn kilobytes(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
