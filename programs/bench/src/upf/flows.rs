//! Flow state in two levels (Synergy §III-B): access time over active flows, for each way to keep it, with and without buffering.
//!
//! Then the pipeline itself, which remembers so which rule the flows of sessions with filters meet (`product`).
//!
//! The paper's levels are a network card's SRAM and DRAM. Here a table that fits into the second cache stands for the first, a table in
//! memory for the second; the ratio of their access times is like the card's.

pub(super) mod product;

use std::hint::black_box;
use std::io;
use std::path::Path;

use crate::upf::classifier::common::rule_sets::Random;
use clap::Args;
use serde_json::{Map, Value, json};
use whimbrel_prefetch::prefetch;

use super::finish;
use crate::measure::{core_time, median};
use crate::plot::{Axis, Plot, Series};

/// Packets of a burst.
const BURST: usize = 16;
/// Packets of a round.
const ROUND: usize = 65_536;
/// Flows of the first level: half of a second cache of 2 MiB.
const FIRST: usize = 16_384;
/// Places among which a flow of the first level may stand.
const WAYS: usize = 8;
/// Octets of a buffered packet, and of the ring of buffers: more than fits into the second cache.
const PACKET: usize = 1_400;
const RING: usize = 32 << 20;
/// One packet in so many is buffered.
const BUFFERED: usize = 8;

/// Rounds of the pipeline that are timed at most: each flow is met before.
const PIPELINE_ROUNDS_MAX: usize = 9;

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Numbers of active flows.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000, 1_000_000, 12_000_000])]
    flows: Vec<u32>,
    /// Numbers of active flows of sessions with filters.
    #[arg(long, value_delimiter = ',', default_values_t = [4_000, 64_000, 500_000, 2_000_000])]
    pipeline_flows: Vec<u32>,
    /// Numbers of filters of such a session.
    #[arg(long, value_delimiter = ',', default_values_t = product::FILTERS)]
    filters: Vec<u16>,
    /// Rounds of 65,536 packets that are timed.
    #[arg(long, default_value_t = 25)]
    rounds: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.flows, self.pipeline_flows, self.filters, self.rounds) = (vec![100], vec![100], vec![8], 1);
    }
}

/// The state of a flow: a cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
struct Flow {
    key: u64,
    packets: u64,
    octets: u64,
    rest: [u64; 5],
}

impl Flow {
    /// What a packet does with it; the next packet depends on the result, which is zero.
    fn meet(&mut self) -> u64 {
        self.packets += 1;
        self.octets += PACKET as u64;
        self.rest[0]
    }
}

fn hash(key: u64) -> u64 {
    let x = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 29)
}

/// A flow's name as packets have it: nothing that an array could be indexed by. Never zero.
fn key(n: u32) -> u64 {
    (u64::from(n) + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// All flows in memory, by a hash.
struct Second {
    flows: Vec<Flow>,
    mask: usize,
}

impl Second {
    fn new(flows: u32) -> Self {
        let places = (flows as usize * 4 / 3).next_power_of_two();
        let mut table = Self { flows: vec![Flow::default(); places], mask: places - 1 };
        for n in 0..flows {
            let place = table.place(key(n));
            table.flows[place].key = key(n);
        }
        table
    }

    fn first(&self, key: u64) -> usize {
        (hash(key) >> 8) as usize & self.mask
    }

    /// Where a flow is, or would be.
    fn place(&self, key: u64) -> usize {
        let mut at = self.first(key);
        while self.flows[at].key != key && self.flows[at].key != 0 {
            at = (at + 1) & self.mask;
        }
        at
    }
}

/// Places of the first level of which a flow may take one.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Set {
    keys: [u64; WAYS],
    /// Zero for the last used, one for the one before it.
    ages: [u8; WAYS],
}

impl Set {
    fn used(&mut self, way: usize) {
        let age = self.ages[way];
        self.ages.iter_mut().for_each(|a| *a += u8::from(*a < age));
        self.ages[way] = 0;
    }

    fn oldest(&self) -> usize {
        self.ages.iter().position(|a| usize::from(*a) == WAYS - 1).unwrap_or(0)
    }
}

/// Some flows, the last used, in what the second cache holds.
struct First {
    flows: Vec<[Flow; WAYS]>,
    sets: Vec<Set>,
    hits: u64,
    looks: u64,
}

impl First {
    fn new() -> Self {
        let empty = Set { keys: [0; WAYS], ages: std::array::from_fn(|way| way as u8) };
        let sets = FIRST / WAYS;
        Self { flows: vec![[Flow::default(); WAYS]; sets], sets: vec![empty; sets], hits: 0, looks: 0 }
    }

    fn set(&self, key: u64) -> usize {
        (hash(key) >> 40) as usize % self.sets.len()
    }

    fn prefetch(&self, key: u64) {
        let set = &self.sets[self.set(key)];
        prefetch(&set.keys);
        prefetch(&set.ages);
    }

    /// The flow, now the last used.
    fn find(&mut self, key: u64) -> Option<&mut Flow> {
        let at = self.set(key);
        self.looks += 1;
        let set = &mut self.sets[at];
        let way = set.keys.iter().position(|k| *k == key)?;
        self.hits += 1;
        set.used(way);
        Some(&mut self.flows[at][way])
    }

    /// Takes a flow in; the one that was used least lately leaves.
    fn take(&mut self, flow: Flow) -> Flow {
        let at = self.set(flow.key);
        let set = &mut self.sets[at];
        let way = set.oldest();
        set.used(way);
        set.keys[way] = flow.key;
        std::mem::replace(&mut self.flows[at][way], flow)
    }
}

/// Where packets are copied to that wait.
struct Buffers {
    ring: Vec<u8>,
    packet: Vec<u8>,
    at: usize,
}

impl Buffers {
    fn new() -> Self {
        Self { ring: vec![0; RING], packet: vec![7; PACKET], at: 0 }
    }

    fn hold(&mut self) {
        self.ring[self.at..self.at + PACKET].copy_from_slice(&self.packet);
        self.at = if self.at + 2 * PACKET > RING { 0 } else { self.at + PACKET };
    }
}

/// A way to keep the state of flows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    /// DeepMatch: what the first level does not hold goes to the host.
    FirstOnly,
    /// SmartWatch: memory, behind the cache that the hardware has.
    SecondOnly,
    /// Synergy: the last used under the program's control, the others in memory.
    TwoLevels,
    /// The pipeline's: what the UPF itself chose is an index; no hash, and no first level.
    Direct,
}

impl Scheme {
    const ALL: [Self; 4] = [Self::FirstOnly, Self::SecondOnly, Self::TwoLevels, Self::Direct];

    fn name(self) -> &'static str {
        match self {
            Self::FirstOnly => "first level only (DeepMatch)",
            Self::SecondOnly => "second level, hardware's cache (SmartWatch)",
            Self::TwoLevels => "two levels (Synergy)",
            Self::Direct => "direct array (the pipeline's)",
        }
    }
}

/// All of them over the same flows.
struct State {
    first: First,
    second: Second,
    direct: Vec<Flow>,
    buffers: Buffers,
}

impl State {
    fn new(flows: u32) -> Self {
        Self {
            first: First::new(),
            second: Second::new(flows),
            direct: vec![Flow::default(); flows as usize],
            buffers: Buffers::new(),
        }
    }

    /// The flows of a burst are met; what they say together, which is zero. Packets that wait do not take their flow into the first level.
    fn burst(&mut self, scheme: Scheme, flows: &[u32], buffering: bool, mut last: u64) -> u64 {
        for n in flows {
            match scheme {
                Scheme::FirstOnly => self.first.prefetch(key(*n)),
                Scheme::SecondOnly => prefetch(&self.second.flows[self.second.first(key(*n))]),
                Scheme::TwoLevels => {
                    self.first.prefetch(key(*n));
                    prefetch(&self.second.flows[self.second.first(key(*n))]);
                }
                Scheme::Direct => prefetch(&self.direct[*n as usize]),
            }
        }
        for (i, n) in flows.iter().enumerate() {
            let n = n ^ last as u32;
            let waits = buffering && (n as usize + i).is_multiple_of(BUFFERED);
            last = match scheme {
                Scheme::Direct => self.direct[n as usize].meet(),
                Scheme::SecondOnly => self.meet_second(key(n)),
                Scheme::FirstOnly => match self.first.find(key(n)) {
                    Some(flow) => flow.meet(),
                    None => {
                        self.first.take(Flow { key: key(n), ..Flow::default() });
                        0
                    }
                },
                Scheme::TwoLevels => match self.first.find(key(n)) {
                    Some(flow) => flow.meet(),
                    None if waits => self.meet_second(key(n)),
                    None => {
                        let place = self.second.place(key(n));
                        let flow = &mut self.second.flows[place];
                        let met = flow.meet();
                        let out = self.first.take(*flow);
                        if out.key != 0 {
                            let place = self.second.place(out.key);
                            self.second.flows[place] = out;
                        }
                        met
                    }
                },
            };
            if waits {
                self.buffers.hold();
            }
        }
        last
    }

    fn meet_second(&mut self, key: u64) -> u64 {
        let place = self.second.place(key);
        self.second.flows[place].meet()
    }
}

/// Nanoseconds of a packet, and the share that the first level served.
struct Cell {
    ns: f64,
    hits: f64,
}

fn measured(state: &mut State, scheme: Scheme, draws: &[u32], buffering: bool, rounds: usize) -> Cell {
    (state.first.hits, state.first.looks) = (0, 0);
    let mut all = Vec::with_capacity(rounds);
    let mut last = black_box(0);
    for (round, draws) in draws.chunks(ROUND).cycle().take(rounds + 2).enumerate() {
        let begin = core_time();
        for flows in draws.chunks(BURST) {
            last = state.burst(scheme, flows, buffering, last);
        }
        if round >= 2 {
            all.push((core_time() - begin).as_nanos() as f64 / draws.len() as f64);
        }
    }
    black_box(last);
    Cell { ns: median(all), hits: state.first.hits as f64 / (state.first.looks.max(1)) as f64 }
}

/// How flows are drawn.
const DRAWS: [&str; 2] = ["uniform", "few are busy"];

pub(super) fn draws(kind: usize, flows: u32, rounds: usize) -> Vec<u32> {
    let random = &mut Random::new(u64::from(flows));
    let mut one = || match kind {
        0 => random.below(flows.into()) as u32,
        // As often as one over their rank: the density of the logarithm is level.
        _ => {
            let u = random.below(1 << 30) as f64 / f64::from(1 << 30);
            (f64::from(flows).powf(u) as u32).min(flows - 1)
        }
    };
    // A flow's rank is independent of its place in memory.
    let spread = |n: u32| ((u64::from(n) * 0x9e37_79b1) % u64::from(flows)) as u32;
    (0..ROUND * rounds.min(16)).map(|_| spread(one())).collect()
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!(
        "flow state: ns a packet, bursts of {BURST}, prefetched; of {FIRST} flows in the first level, {WAYS} ways"
    );
    println!(
        "paper (Synergy figures 10 and 12): two levels at least 15 % below SmartWatch's, and 1.4 times its throughput;"
    );
    println!(
        "       first level only holds 44 times fewer flows. There a hash and a card's DRAM; here ours beside them"
    );
    let mut figures = Map::new();
    let mut series: Vec<Series> =
        Scheme::ALL.iter().map(|s| Series { name: s.name().into(), points: Vec::new() }).collect();
    for (kind, name) in DRAWS.iter().enumerate() {
        println!("\n{name}; buffering copies every {BUFFERED}th packet of {PACKET} octets");
        println!("{:>12}{:>44}{:>9}{:>12}{:>14}", "flows", "", "ns", "buffering", "first level");
        let mut rows = Vec::new();
        for (at, &flows) in options.flows.iter().enumerate() {
            let draws = draws(kind, flows, options.rounds);
            let mut state = State::new(flows);
            for (scheme, series) in Scheme::ALL.into_iter().zip(&mut series) {
                let plain = measured(&mut state, scheme, &draws, false, options.rounds);
                let busy = measured(&mut state, scheme, &draws, true, options.rounds);
                let looks = matches!(scheme, Scheme::FirstOnly | Scheme::TwoLevels);
                let hits = if looks { format!("{:.0} %", plain.hits * 100.0) } else { String::new() };
                println!("{flows:>12}{:>44}{:>9.1}{:>12.1}{hits:>14}", scheme.name(), plain.ns, busy.ns);
                rows.push(row(flows, scheme, &plain, &busy));
                if kind == 1 {
                    series.points.push((at as f64, plain.ns));
                }
            }
        }
        figures.insert((*name).into(), rows.into());
    }
    Plot {
        title: "Flow state: access, few flows are busy (Synergy, figure 10)",
        x: "active flows",
        y: "ns a packet",
        log_y: true,
        axis: Axis::Names(options.flows.iter().map(u32::to_string).collect()),
        series,
    }
    .write(plots, "upf-flows")?;
    println!(
        "in front of an index the processor's caches are the first level already: sessions have no other"
    );
    let rows =
        product::run(&options.filters, &options.pipeline_flows, options.rounds.min(PIPELINE_ROUNDS_MAX));
    figures.insert("pipeline".into(), rows.into());
    finish("flows", &Value::Object(figures));
    Ok(())
}

fn row(flows: u32, scheme: Scheme, plain: &Cell, busy: &Cell) -> Value {
    let round = |v: f64| (v * 100.0).round() / 100.0;
    json!({
        "flows": flows, "scheme": scheme.name(), "ns": round(plain.ns), "ns_buffering": round(busy.ns),
        "first_level": round(plain.hits),
    })
}
