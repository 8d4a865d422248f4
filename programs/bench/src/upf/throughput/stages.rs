//! What part of a packet's time each step takes.
//!
//! The clock is read after each step of a burst. Within the rules the steps are a packet's own and shorter than reading the clock, which
//! also ends what the processor does beside: so these are read in a run of their own, what reading takes is taken off, and they only say
//! how the time of the rules is shared.

use std::hint::black_box;
use std::time::Instant as Clock;

use crate::upf::classifier::common::rule_sets::Random;
use serde_json::{Map, Value};
use whimbrel_ids::Instant;
use whimbrel_user::{PacketVerdict, Stage, StageObserver};

use super::super::population::{Packets, Population, Traffic};
use super::super::smf::START;
use super::{BURST, Options, PACKETS, SMALL};
use crate::measure::{median, nanoseconds};

/// The steps, in order. What remembers flows is asked of no plain session, for it has no filters: `pdrs` shows those that have.
const STAGES: [(Stage, &str); 7] = [
    (Stage::Parse, "parse"),
    (Stage::Session, "session"),
    (Stage::Classify, "classify"),
    (Stage::Meter, "meter"),
    (Stage::Account, "account"),
    (Stage::Rules, "verdict"),
    (Stage::Rewrite, "rewrite"),
];
/// Those of one packet.
const OF_A_PACKET: std::ops::Range<usize> = 2..6;

/// Reads the clock at the end of each step.
struct Stopwatch {
    /// Those of one packet too.
    each_packet: bool,
    last: Clock,
    /// Of this burst.
    spent_ns: [f64; STAGES.len()],
    reads: [u32; STAGES.len()],
}

impl Stopwatch {
    fn read(&mut self, stage: Stage) {
        let now = Clock::now();
        if let Some(at) = STAGES.iter().position(|(s, _)| *s == stage) {
            self.spent_ns[at] += (now - self.last).as_nanos() as f64;
            self.reads[at] += 1;
        }
        self.last = now;
    }
}

impl StageObserver for Stopwatch {
    fn done(&mut self, stage: Stage) {
        if self.each_packet || !matches!(stage, Stage::Classify | Stage::Meter | Stage::Account) {
            self.read(stage);
        }
    }

    fn decided(&mut self, now: Instant, _: &PacketVerdict) -> Instant {
        if self.each_packet {
            self.read(Stage::Rules);
        }
        now
    }
}

/// Nanoseconds of each step of a burst, less what reading the clock takes: medians, for others want the core too.
fn spent(population: &mut Population, options: &Options, each_packet: bool) -> [f64; STAGES.len()] {
    let mut packets = Packets::new(PACKETS, SMALL);
    let random = &mut Random::new(options.seed);
    let reading = reading_ns();
    let mut bursts = [(); STAGES.len()].map(|()| Vec::new());
    let mut now = START;
    for _ in 0..options.rounds {
        packets.draw(population, Traffic::Both, random);
        for burst in packets.slots.chunks_mut(BURST) {
            now = Instant(now.0 + 3);
            let (spent_ns, reads) = ([0.0; STAGES.len()], [0; STAGES.len()]);
            let mut watch = Stopwatch { each_packet, last: Clock::now(), spent_ns, reads };
            population.upf.burst_observed(now, burst, &mut watch);
            for (at, all) in bursts.iter_mut().enumerate() {
                all.push((watch.spent_ns[at] - f64::from(watch.reads[at]) * reading).max(0.0));
            }
        }
    }
    bursts.map(median)
}

/// What it takes to read the clock.
fn reading_ns() -> f64 {
    nanoseconds(&mut [&mut || _ = black_box(Clock::now())])[0]
}

/// Percent of a burst that each step takes.
pub(super) fn shares(population: &mut Population, options: &Options) -> Vec<f64> {
    let mut all = spent(population, options, false);
    let of_a_packet = spent(population, options, true);
    let (rules, shared): (f64, f64) = (all[OF_A_PACKET].iter().sum(), of_a_packet[OF_A_PACKET].iter().sum());
    for at in OF_A_PACKET {
        all[at] = rules * of_a_packet[at] / shared.max(1.0);
    }
    let whole: f64 = all.iter().sum();
    all.iter().map(|ns| ns * 100.0 / whole.max(1.0)).collect()
}

pub(super) fn text(shares: &[f64]) -> String {
    let parts: Vec<_> =
        STAGES.iter().zip(shares).map(|((_, name), percent)| format!("{name} {percent:.0} %")).collect();
    parts.join(", ")
}

/// The same for the line at the end.
pub(super) fn figures(shares: &[f64]) -> Value {
    let named = STAGES.iter().zip(shares);
    named
        .map(|((_, name), percent)| ((*name).to_owned(), ((percent * 10.0).round() / 10.0).into()))
        .collect::<Map<String, Value>>()
        .into()
}
