//! Predicted handovers (Synergy §III-C, figure 14c): what the prediction table costs the packets that no session has, with no filter in
//! front of it and with eight.
//!
//! The filters are full: predictions were made in each of the eight periods. Packets are as in the throughput experiment, but some are
//! for unknown UEs, in the paper's share.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::upf::classifier::common::rule_sets::Random;
use clap::Args;
use serde_json::json;
use whimbrel_ids::Instant;
use whimbrel_user::{BurstPacket, PREDICTIONS_MAX, UserPlaneChange};

use super::finish;
use super::population::{Packets, Population, Traffic, address};
use super::smf::START;
use crate::measure::{core_time, median};
use crate::plot::{Axis, Plot, Series};

/// Octets of a packet (Synergy §IV-E).
const OCTETS: usize = 256;
/// Packets for UEs without a session, of ten thousand (Synergy §III-C.3).
const UNKNOWN: u64 = 2_234;
/// Sessions that stand.
const SESSIONS: u32 = 10_000;
/// Packets in memory, and of a burst.
const PACKETS: usize = 32_768;
const BURST: usize = 32;
/// Addresses among which those of unknown UEs are drawn, behind all others.
const UNKNOWN_UES: u32 = 4_000_000;
const FIRST_UNKNOWN_UE: u32 = 1_000_000;
/// Between two of the eight periods, and how many there are.
const PERIOD: Duration = Duration::from_millis(625);
const PERIODS: u32 = 8;

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Numbers of predictions.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, PREDICTIONS_MAX as u32])]
    predictions: Vec<u32>,
    /// Rounds over all packets in memory that are timed.
    #[arg(long, default_value_t = 40)]
    rounds: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.predictions, self.rounds) = (vec![1_000], 1);
    }
}

/// What stands between a packet without a session and the prediction table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Nothing is predicted.
    Nothing,
    /// Nothing: each such packet looks into the table.
    Table,
    /// Bloom filters are asked first.
    Filters,
}

impl Way {
    const ALL: [Self; 3] = [Self::Nothing, Self::Table, Self::Filters];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no predictions",
            Self::Table => "table alone",
            Self::Filters => "filters, table",
        }
    }
}

struct Row {
    predictions: u32,
    way: Way,
    ns: f64,
}

impl Row {
    fn mpps(&self) -> f64 {
        1e3 / self.ns
    }

    fn gbps(&self) -> f64 {
        OCTETS as f64 * 8.0 / self.ns
    }
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!(
        "bloom: {OCTETS} octets downlink, {SESSIONS} sessions, {UNKNOWN} of 10,000 packets for UEs without one"
    );
    println!(
        "paper (figure 14c, a card's memories): table alone under 18 Gbit/s; filters in slow memory 5 Gbit/s below line rate, in fast \
         memory at line rate; false positives under 1.5 %"
    );
    println!("\n predictions                       ns    Mpps  Gbit/s   of none");
    let (mut rows, mut shares, mut arrivals) = (Vec::new(), Vec::new(), Vec::new());
    for &predictions in &options.predictions {
        let (mut none, _) = world(0);
        let (mut some, now) = world(predictions);
        let (of_ways, share) = measured(&mut none, &mut some, predictions, now, options.rounds);
        rows.extend(of_ways);
        let arrival = arrival(&mut some, predictions, now);
        println!(
            "{predictions:>12}  {:.3} % of looks are false positives; an arrival takes {arrival:.0} ns",
            share * 100.0
        );
        shares.push(share);
        arrivals.push(arrival);
    }
    draw(options, &rows, plots)?;
    let round = |v: f64, to: f64| (v * to).round() / to;
    let row = |r: &Row| {
        json!({
            "predictions": r.predictions, "way": r.way.name(), "ns": round(r.ns, 100.0), "mpps": round(r.mpps(), 100.0),
            "gbps": round(r.gbps(), 100.0),
        })
    };
    let figures = json!({
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "false_positives": shares.iter().map(|s| round(*s, 1e5)).collect::<Vec<_>>(),
        "arrival_ns": arrivals.iter().map(|ns| ns.round()).collect::<Vec<_>>(),
    });
    finish("bloom", &figures);
    Ok(())
}

/// Sessions, and so many predictions made evenly over eight periods; and when the last one is.
fn world(predictions: u32) -> (Population, Instant) {
    let mut world = Population::new(SESSIONS);
    // Addresses are looked for in one array, as long as the highest that has a session.
    let (_, last) = world.another(SESSIONS, FIRST_UNKNOWN_UE + UNKNOWN_UES);
    world.upf.apply(START, last);
    let first = SESSIONS + 1;
    let mut now = START;
    for n in 0..predictions {
        now = START + PERIOD * (n * PERIODS / predictions);
        let (_, change) = world.another(first + n, first + n);
        if let UserPlaneChange::Put { session, rules, effects } = change {
            world.upf.apply(now, UserPlaneChange::Predict { session, rules, effects });
        }
    }
    world.upf.take_reports();
    (world, now)
}

/// All three ways, round by round in turn; and the share of the looks at the filters that these let pass wrongly.
fn measured(
    none: &mut Population,
    some: &mut Population,
    predictions: u32,
    now: Instant,
    rounds: usize,
) -> (Vec<Row>, f64) {
    let mut packets = Packets::new(PACKETS, OCTETS);
    let random = &mut Random::new(predictions.into());
    let (mut passed, mut looks) = (0, 0);
    let mut all = Way::ALL.map(|_| Vec::with_capacity(rounds));
    for round in 0..rounds + 2 {
        for (way, ns) in Way::ALL.into_iter().zip(&mut all) {
            let world = if way == Way::Nothing { &mut *none } else { &mut *some };
            world.upf.lookup_unfiltered(way == Way::Table);
            packets.draw(world, Traffic::Downlink, random);
            for slot in &mut packets.slots {
                if random.below(10_000) < UNKNOWN {
                    lead_to(slot, FIRST_UNKNOWN_UE + random.below(UNKNOWN_UES.into()) as u32);
                }
            }
            let before = seen(world);
            let begin = core_time();
            for burst in packets.slots.chunks_mut(BURST) {
                world.upf.burst(now, burst);
                black_box(&burst[0].verdict);
            }
            let spent = core_time() - begin;
            if way == Way::Filters {
                let after = seen(world);
                passed += after.0 - before.0;
                looks += after.1 - before.1;
            }
            // The first rounds warm up.
            if round >= 2 {
                ns.push(spent.as_nanos() as f64 / PACKETS as f64);
            }
        }
    }
    some.upf.lookup_unfiltered(false);
    let rows = Way::ALL.into_iter().zip(all).map(|(way, ns)| Row { predictions, way, ns: median(ns) });
    let rows: Vec<_> = rows.collect();
    for r in &rows {
        println!(
            "{:>12}  {:<16} {:>8.1} {:>7.2} {:>7.1} {:>9.2}",
            r.predictions,
            r.way.name(),
            r.ns,
            r.mpps(),
            r.gbps(),
            rows[0].ns / r.ns
        );
    }
    (rows, passed as f64 / looks.max(1) as f64)
}

/// Looks that the filters let pass wrongly, and all.
fn seen(world: &Population) -> (u64, u64) {
    let c = world.upf.counters();
    (c.predictions_false, c.predictions_false + c.predictions_filtered)
}

/// A packet to another UE.
fn lead_to(slot: &mut BurstPacket, n: u32) {
    slot.packet.room()[16..20].copy_from_slice(&address(n).octets());
}

/// Nanoseconds from the packet that shows that a UE is there to its way out, the session then standing.
fn arrival(world: &mut Population, predictions: u32, now: Instant) -> f64 {
    let first = SESSIONS + 1;
    let mut packets = Packets::new(predictions as usize, OCTETS);
    packets.draw(world, Traffic::Downlink, &mut Random::new(1));
    for (slot, n) in packets.slots.iter_mut().zip(first..) {
        lead_to(slot, n);
    }
    let before = world.upf.counters().predictions_true;
    let begin = core_time();
    for burst in packets.slots.chunks_mut(BURST) {
        world.upf.burst(now, burst);
    }
    let spent = core_time() - begin;
    assert_eq!(world.upf.counters().predictions_true - before, u64::from(predictions), "all are alive");
    spent.as_nanos() as f64 / f64::from(predictions)
}

fn draw(options: &Options, rows: &[Row], plots: &Path) -> io::Result<()> {
    let series = Way::ALL.map(|way| Series {
        name: way.name().into(),
        points: rows
            .iter()
            .filter(|r| r.way == way)
            .enumerate()
            .map(|(at, r)| (at as f64, r.gbps()))
            .collect(),
    });
    Plot {
        title: "Predicted handovers: throughput (Synergy, figure 14c)",
        x: "predictions",
        y: "Gbit/s",
        log_y: false,
        axis: Axis::Names(options.predictions.iter().map(u32::to_string).collect()),
        series: series.into(),
    }
    .write(plots, "upf-bloom")
}
