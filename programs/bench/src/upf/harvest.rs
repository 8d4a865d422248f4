//! Background work in the stalls of the packet pipeline: what it gets, what packets pay, and what is left of the stalls by the pipeline's own
//! prefetching.
//!
//! A burst's headers, addresses and sessions are prefetched together. Between each prefetch and the first use, three times a burst, a scavenger
//! runs. It is compared with the same work between bursts, where nothing is waited for, and with bursts of one packet, which is a pipeline that
//! prefetches nothing ahead.
//!
//! Two kinds of work: inference by a small network, whose weights stay in the first cache, and usage aggregation, which itself reads memory.

use std::hint::black_box;
use std::io;
use std::rc::Rc;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_background::{Harvest, Work};
use whimbrel_ids::Instant;
use whimbrel_user::{SessionTable, Stage, StageObserver};

use super::finish;
use super::population::{Packets, Population, Traffic};
use crate::measure::{core_time, median};
use crate::upf::classifier::common::rule_sets::Random;

/// Packets in memory: their lines are twice the second cache.
const PACKETS: usize = 32_768;
const OCTETS: usize = 68;
/// Inputs and outputs of a layer; its weights take 16 KiB.
const WIDTH: usize = 64;
/// Usage records: 16 MiB, as many as a report interval of a million sessions leaves behind.
const RECORDS: usize = 1 << 20;
const NETWORKS: usize = 16;

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Numbers of sessions.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 1_000_000, 12_000_000])]
    sessions: Vec<u32>,
    /// Packets of a burst.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 32])]
    bursts: Vec<usize>,
    /// Nanoseconds of work in one stall, as it takes when the core does nothing else.
    #[arg(long, value_delimiter = ',', default_values_t = [25.0, 50.0, 100.0, 200.0])]
    pieces: Vec<f64>,
    /// Rounds over all packets, of each row.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.sessions, self.bursts, self.pieces, self.rounds) = (vec![100], vec![32], vec![50.0], 1);
    }
}

/// What one session has used since the last report.
#[derive(Clone, Copy)]
struct Usage {
    network: u32,
    packets: u32,
    octets: u64,
}

fn usage() -> Rc<[Usage]> {
    let mut random = Random::new(3);
    let mut record = || Usage {
        network: random.below(NETWORKS as u64) as u32,
        packets: random.below(1000) as u32,
        octets: random.below(1 << 20),
    };
    (0..RECORDS).map(|_| record()).collect()
}

/// Work that can be done in pieces.
trait Job: 'static {
    const NAME: &'static str;

    /// Does one unit: a row of a layer, or eight usage records.
    fn unit(&mut self);
}

/// Adds up records, in order and again from the first.
struct Aggregation {
    usage: Rc<[Usage]>,
    next: usize,
    sums: [(u64, u64); NETWORKS],
}

impl Aggregation {
    fn new(usage: &Rc<[Usage]>) -> Self {
        Self { usage: usage.clone(), next: 0, sums: [(0, 0); NETWORKS] }
    }
}

impl Job for Aggregation {
    const NAME: &'static str = "aggregation";

    #[inline]
    fn unit(&mut self) {
        for record in &self.usage[self.next..self.next + 8] {
            let (packets, octets) = &mut self.sums[record.network as usize % NETWORKS];
            *packets += u64::from(record.packets);
            *octets += record.octets;
        }
        self.next = if self.next + 8 == RECORDS { 0 } else { self.next + 8 };
        black_box(&self.sums);
    }
}

/// Applies one layer again and again, a row at a time.
struct Inference {
    weights: Box<[[f32; WIDTH]; WIDTH]>,
    values: [[f32; WIDTH]; 2],
    row: usize,
}

impl Inference {
    fn new() -> Self {
        let mut random = Random::new(5);
        let mut weights = Box::new([[0.0; WIDTH]; WIDTH]);
        weights.iter_mut().flatten().for_each(|w| *w = random.below(1000) as f32 / 1000.0 - 0.5);
        Self { weights, values: [[0.5; WIDTH]; 2], row: 0 }
    }
}

impl Job for Inference {
    const NAME: &'static str = "inference";

    #[inline]
    fn unit(&mut self) {
        let [input, output] = &mut self.values;
        let products = self.weights[self.row].iter().zip(&*input).map(|(w, x)| w * x);
        output[self.row] = products.sum::<f32>().clamp(-1.0, 1.0);
        self.row += 1;
        if self.row == WIDTH {
            self.row = 0;
            self.values.swap(0, 1);
        }
        black_box(&self.values);
    }
}

/// The same, a piece in each stall.
fn scavenger(mut job: impl Job, units: usize) -> Work {
    Box::new(move |primary| {
        loop {
            (0..units).for_each(|_| job.unit());
            primary.resume();
        }
    })
}

/// Lets scavengers run while memory of a burst is being loaded.
struct Stalls<'h>(&'h mut Harvest);

impl StageObserver for Stalls<'_> {
    fn done(&mut self, _: Stage) {}

    #[inline]
    fn loading(&mut self, _: SessionTable<'_>) {
        self.0.stall();
    }
}

/// Stalls of a burst: see [`StageObserver::loading`].
const STALLS: usize = 3;

/// Where the background work is done.
enum Background<'a> {
    None,
    InStalls(&'a mut Harvest),
    BetweenBursts(&'a mut dyn FnMut()),
}

/// Nanoseconds a packet, of one round.
fn round(
    population: &mut Population,
    packets: &mut Packets,
    (now, size): (&mut Instant, usize),
    mut background: Background<'_>,
) -> f64 {
    let begin = core_time();
    for burst in packets.slots.chunks_mut(size) {
        *now = Instant(now.0 + 3);
        match &mut background {
            Background::None => population.upf.burst(*now, burst),
            Background::InStalls(harvest) => {
                population.upf.burst_observed(*now, burst, &mut Stalls(harvest));
            }
            Background::BetweenBursts(work) => {
                population.upf.burst(*now, burst);
                work();
            }
        }
    }
    (core_time() - begin).as_nanos() as f64 / PACKETS as f64
}

pub(super) fn run(options: &Options) -> io::Result<()> {
    let usage = usage();
    println!(
        "background work in the stalls of the pipeline: one core, packets of {OCTETS} octets, both ways"
    );
    println!("all rows of a number of sessions alternate; medians of {} rounds", options.rounds);
    println!(
        "\n   sessions burst work         ns a stall   packet ns: alone  in stalls         between bursts      work, of a core"
    );
    let mut figures = Vec::new();
    for &sessions in &options.sessions {
        let mut population = Population::new(sessions);
        for &burst in &options.bursts {
            figures.extend(rows(&mut population, burst, options, Inference::new)?);
            figures.extend(rows(&mut population, burst, options, || Aggregation::new(&usage))?);
        }
    }
    finish("harvest", &json!({ "rows": figures }));
    Ok(())
}

/// The rows of one kind of work.
fn rows<J: Job>(
    population: &mut Population,
    burst: usize,
    options: &Options,
    job: impl Fn() -> J,
) -> io::Result<Vec<Value>> {
    let unit = unit_ns(job());
    let mut packets = Packets::new(PACKETS, OCTETS);
    let mut random = Random::new(11);
    let mut now = super::smf::START;
    let mut rows: Vec<_> = options
        .pieces
        .iter()
        .map(|ns| {
            let units = (ns / unit).round().max(1.0) as usize;
            let harvest = Harvest::new(vec![scavenger(job(), units)]);
            (units, harvest, job(), Vec::new(), Vec::new())
        })
        .collect();
    let mut alone = Vec::new();
    let mut timed = |background: Background<'_>| {
        packets.draw(population, Traffic::Both, &mut random);
        round(population, &mut packets, (&mut now, burst), background)
    };
    for _ in 0..options.rounds + 1 {
        alone.push(timed(Background::None));
        for (units, harvest, job, in_stalls, between) in &mut rows {
            let Some(harvest) = harvest else {
                return Err(io::Error::other("no switches on this processor, or no memory for a stack"));
            };
            in_stalls.push(timed(Background::InStalls(harvest)));
            between.push(timed(Background::BetweenBursts(&mut || {
                (0..STALLS * *units).for_each(|_| job.unit())
            })));
        }
    }
    // The first round warms up.
    let median_of = |rounds: Vec<f64>| median(rounds[1..].to_vec());
    let alone = median_of(alone);
    let sessions = population.sessions();
    let mut figures = Vec::new();
    for (units, harvest, _, in_stalls, between) in rows {
        let stalls = PACKETS.div_ceil(burst) * STALLS * in_stalls.len();
        assert_eq!(harvest.map(|h| h.switches()), Some(stalls as u64), "a burst has {STALLS} stalls");
        let (in_stalls, between) = (median_of(in_stalls), median_of(between));
        let piece = units as f64 * unit;
        let (slower, beside) = ((in_stalls / alone - 1.0) * 100.0, (between / alone - 1.0) * 100.0);
        let share = STALLS as f64 * piece / burst as f64 / in_stalls * 100.0;
        println!(
            "{sessions:>11} {burst:>5} {:<12} {piece:>10.0} {alone:>18.1} {in_stalls:>10.1} {slower:>+7.1} % {between:>8.1} {beside:>+7.1} % {share:>12.1} %",
            J::NAME
        );
        figures.push(json!([sessions, burst, J::NAME, piece, alone, in_stalls, between, share]));
    }
    Ok(figures)
}

/// Nanoseconds of one unit, when the core does nothing else.
fn unit_ns(mut job: impl Job) -> f64 {
    const UNITS: usize = 1 << 15;
    let rounds = (0..9).map(|_| {
        let begin = core_time();
        (0..UNITS).for_each(|_| job.unit());
        (core_time() - begin).as_nanos() as f64 / UNITS as f64
    });
    median(rounds.collect())
}
