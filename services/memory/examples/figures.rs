//! Fava's figures 2.2, 2.4, 2.8, 2.11 and 2.12 on generated traces, each with the chapter's result beside: `./x bench tier figures
//! [RECORDS] [ACCESSES]`. The chapter's are of a JVM on two sockets, whose far one stands for CXL; ours are of one thread on the heap.

#[path = "shared/trace.rs"]
mod trace;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use whimbrel_memory::{Activation, Config, Heap, REGION_OCTETS, RecordLocation};

use crate::trace::{Disk, Random, Trace, Workload, settle, shuffled};

/// Octets of a record with its header: that of a UE with one session.
const SPAN: usize = 304;
const RECORD: [u8; SPAN - 8] = [0x5a; SPAN - 8];
/// Accesses in a millisecond of a busy shard.
const PERIOD: usize = 5000;
/// What colocation may do in that time, in looks at records: more than a core's, since only places are compared here, not times.
const LOOKS: usize = 15_000;
/// Octets that a processor writes for a sample.
const SAMPLE: usize = 192;
/// An access to slow memory takes so many times that of one to fast memory: between the chapter's CXL devices of two and four.
const SLOW: f64 = 3.0;

fn main() -> ExitCode {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    let records = numbers.first().copied().unwrap_or(500_000).clamp(20_000, 50_000_000);
    let accesses = numbers.get(1).copied().unwrap_or(16).clamp(1, 1000);
    println!("{records} records of {SPAN} octets, {accesses} accesses of each on average");
    let lines = [
        sampling(records, accesses),
        indirection(records, accesses),
        activation(records, accesses),
        adaptation(records, accesses),
        hybrid(records),
    ];
    println!(
        "{{\"bench\": \"tier-figures\", \"figures\": {{\"records\": {records}, {}}}}}",
        lines.join(", ")
    );
    ExitCode::SUCCESS
}

/// The time of this machine: what is measured here is real.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn clock() -> Instant {
    Instant::now()
}

/// A heap with records in random order, of which `kept` fit in fast memory.
struct Filled {
    heap: Heap,
    places: Vec<Option<RecordLocation>>,
    fast: u64,
}

impl Filled {
    fn new(records: usize, kept: usize, activation: Activation) -> Self {
        Self::decaying(records, kept, activation, u32::MAX)
    }

    /// Its counters are halved after so many cycles.
    fn decaying(records: usize, kept: usize, activation: Activation, decay_cycles: u32) -> Self {
        let fast = (kept * SPAN / REGION_OCTETS * REGION_OCTETS) as u64;
        let config = Config { decay_cycles, ..Config::new(fast, Disk::backing()) };
        let mut heap = Heap::new(config, activation).expect("a heap without a file");
        let mut places = vec![None; records];
        for owner in shuffled(records, &mut Random::new(5)) {
            places[owner as usize] = Some(heap.insert(owner, &RECORD).expect("memory for the records"));
        }
        Self { heap, places, fast }
    }

    #[inline]
    fn read(&mut self, owner: usize) {
        let place = self.places[owner].expect("each record has a place");
        black_box(self.heap.read(owner as u32, place).expect("it is there")[7]);
    }

    fn colocate(&mut self) {
        let places = &mut self.places;
        self.heap.colocate(LOOKS, |owner, place| places[owner as usize] = Some(place));
    }

    /// Colocates until fast memory holds no more than it may.
    fn settle(&mut self) {
        let fast = self.fast;
        settle(&mut self.heap, &mut self.places, fast);
    }

    fn share_of_fast_reads(&mut self, accesses: impl Iterator<Item = usize>) -> f64 {
        let before = self.heap.stats_of_reads();
        accesses.for_each(|owner| self.read(owner));
        let after = self.heap.stats_of_reads();
        let (fast, slow) = (after.fast_reads - before.fast_reads, after.slow_reads - before.slow_reads);
        fast as f64 / (fast + slow).max(1) as f64
    }
}

/// A counter that never counts.
fn never() -> Activation {
    let activation = Activation::one_in(u32::MAX);
    activation.next_period();
    activation
}

/// The time of the same accesses in several ways, each the least of five turns, so that what else runs on the machine disturbs none.
fn least<const N: usize>(mut ways: [&mut dyn FnMut(); N]) -> [Duration; N] {
    let mut times = [Duration::MAX; N];
    for _ in 0..5 {
        for (way, time) in ways.iter_mut().zip(&mut times) {
            let begun = clock();
            way();
            *time = begun.elapsed().min(*time);
        }
    }
    times
}

fn percent_more(time: Duration, than: Duration) -> f64 {
    100.0 * (time.as_secs_f64() / than.as_secs_f64() - 1.0)
}

fn accesses_of(trace: &Trace, accesses: usize, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..accesses).map(|_| trace.access(&mut random) as u32).collect()
}

/// Figure 2.2: one access in N is sampled.
fn sampling(records: usize, accesses: usize) -> String {
    println!(
        "\n2.2: samples: cost in percent, and percent of the records that should be in fast memory and were sampled"
    );
    println!("{:>10} {:>8} {:>8} {:>8} {:>8} {:>8}", "one in", "cost", "10%", "20%", "30%", "50%");
    let trace = Trace::new(Workload::Zipf(0.99), records);
    let all = accesses_of(&trace, records * accesses, 3);
    let mut filled = Filled::new(records, records, never());
    let part = &all[..all.len() / 4];
    let [without] = least([&mut || part.iter().for_each(|owner| filled.read(*owner as usize))]);
    let mut rows = Vec::new();
    for every in [1usize, 10, 100, 1000, 10_000] {
        let (mut buffer, mut at) = (vec![0u8; SAMPLE << 12], 0);
        let [with] = least([&mut || {
            let mut left = every;
            for owner in part {
                filled.read(*owner as usize);
                left -= 1;
                if left == 0 {
                    left = every;
                    at = (at + SAMPLE) % buffer.len();
                    buffer[at..at + SAMPLE].fill(*owner as u8);
                }
            }
            black_box(&buffer);
        }]);
        let mut seen = vec![false; records];
        all.iter().step_by(every).for_each(|owner| seen[*owner as usize] = true);
        // Records are numbered by popularity.
        let covered = [10, 20, 30, 50].map(|local| {
            let hot = &seen[..records * local / 100];
            100.0 * hot.iter().filter(|seen| **seen).count() as f64 / hot.len() as f64
        });
        let cost = percent_more(with, without);
        println!(
            "{every:>10} {cost:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
            covered[0], covered[1], covered[2], covered[3]
        );
        rows.push(format!("[{every}, {cost:.1}, {:.1}, {:.1}]", covered[0], covered[3]));
    }
    println!(
        "chapter: more than 20 % of time for more than 60 % at 10 % local; lower rates: under 40 %. A sample is a copy of {SAMPLE} octets here: the processor's own cost is not in it"
    );
    format!("\"sampling\": [{}]", rows.join(", "))
}

/// Figure 2.4: a handle between the reference and the record.
fn indirection(records: usize, accesses: usize) -> String {
    println!("\n2.4: percent more time of an access through a handle than with the slot's own place");
    let mut rows = Vec::new();
    for exponent in [0.99, 0.8] {
        let trace = Trace::new(Workload::Zipf(exponent), records);
        let all = accesses_of(&trace, records * accesses / 4, 4);
        let mut filled = Filled::new(records, records, never());
        // The handle of a record is somewhere: what an allocator of handles gives after some time.
        let handle_of = shuffled(records, &mut Random::new(6));
        let mut table = vec![(0u32, None); records];
        for (owner, handle) in handle_of.iter().enumerate() {
            table[*handle as usize] = (owner as u32, filled.places[owner]);
        }
        let heap = std::cell::RefCell::new(&mut filled);
        let [direct, through] = least([
            &mut || all.iter().for_each(|owner| heap.borrow_mut().read(*owner as usize)),
            &mut || {
                for owner in &all {
                    let (owner, place) = table[handle_of[*owner as usize] as usize];
                    let place = place.expect("each record has a place");
                    black_box(heap.borrow_mut().heap.read(owner, place).expect("it is there")[7]);
                }
            },
        ]);
        let more = percent_more(through, direct);
        println!("zipf {exponent:>5}: {more:>6.1}");
        rows.push(format!("[{exponent}, {more:.1}]"));
    }
    println!("chapter: 8 to 13 points (Zipf 0.99), 10 to 15 points (Zipf 0.8) of slowdown");
    format!("\"indirection\": [{}]", rows.join(", "))
}

/// Figure 2.8: counting for one period in N.
fn activation(records: usize, accesses: usize) -> String {
    println!(
        "\n2.8: counting in one period of N: cost in percent, and percent of reads in fast memory at 20 % local"
    );
    println!("{:>8} {:>8} {:>8} {:>8} {:>8}", "N", "zipf", "hits", "hotspot", "hits");
    let mut rows = Vec::new();
    for every in [1u32, 8, 16, 32, 64, 256] {
        let cells = [Workload::Zipf(0.99), Workload::Hotspot].map(|workload| {
            let trace = Trace::new(workload, records);
            let all = accesses_of(&trace, records * accesses, 7);
            let mut quiet = Filled::new(records, records, never());
            let switch = Activation::one_in(every);
            let mut counted = Filled::new(records, records, switch.clone());
            let part = &all[..all.len() / 4];
            let [without, with] =
                least([&mut || part.iter().for_each(|owner| quiet.read(*owner as usize)), &mut || {
                    for period in part.chunks(PERIOD) {
                        switch.next_period();
                        period.iter().for_each(|owner| counted.read(*owner as usize));
                    }
                }]);
            let switch = Activation::one_in(every);
            let mut small = Filled::new(records, records / 5, switch.clone());
            for period in all.chunks(PERIOD) {
                switch.next_period();
                period.iter().for_each(|owner| small.read(*owner as usize));
                small.colocate();
            }
            // Hot records that were paged out in the crowd come back when they are read again.
            for again in all.chunks(records / 4).take(3) {
                small.settle();
                for period in again.chunks(PERIOD) {
                    period.iter().for_each(|owner| small.read(*owner as usize));
                    small.colocate();
                }
            }
            small.settle();
            let hits = small.share_of_fast_reads(part.iter().map(|owner| *owner as usize));
            (percent_more(with, without), 100.0 * hits)
        });
        let [(zipf, zipf_hits), (hotspot, hotspot_hits)] = cells;
        println!("{every:>8} {zipf:>8.1} {zipf_hits:>8.1} {hotspot:>8.1} {hotspot_hits:>8.1}");
        rows.push(format!("[{every}, {zipf:.1}, {zipf_hits:.1}, {hotspot:.1}, {hotspot_hits:.1}]"));
    }
    println!(
        "chapter: always on 5.5 and 4 %; N = 8 to 32 nothing, with the same hits; fewer hits from N = 64 on"
    );
    format!("\"activation\": [{}]", rows.join(", "))
}

/// Figure 2.11: the hot records are other ones in each of eight parts.
fn adaptation(records: usize, accesses: usize) -> String {
    println!(
        "\n2.11: latency beside all records in fast memory, at 20 % local, a slow access {SLOW} times as long, over time"
    );
    println!("{:>8} {:>12} {:>14}", "part", "each cycle", "only the first");
    let trace = Trace::new(Workload::Zipf(0.99), records);
    let [mut always, mut once] =
        [(); 2].map(|()| Filled::decaying(records, records / 5, Activation::one_in(1), 4));
    let mut rows = Vec::new();
    for part in 0..8usize {
        let shift = part * records / 16;
        let all = accesses_of(&trace, records * accesses / 4, 8 + part as u64);
        let [mut with, mut without] = [0.0; 2];
        let periods = all.len().div_ceil(PERIOD) as f64;
        for period in all.chunks(PERIOD) {
            let owners = || period.iter().map(|owner| (*owner as usize + shift) % records);
            with += always.share_of_fast_reads(owners()) / periods;
            without += once.share_of_fast_reads(owners()) / periods;
            always.colocate();
            if part == 0 {
                once.colocate();
            }
        }
        always.settle();
        if part == 0 {
            once.settle();
        }
        let [with, without] = [with, without].map(|hits| hits + SLOW * (1.0 - hits));
        println!("{part:>8} {with:>12.2} {without:>14.2}");
        rows.push(format!("[{part}, {with:.3}, {without:.3}]"));
    }
    println!("chapter: colocation at the beginning alone is worse than in each cycle from the second one on");
    format!("\"adaptation\": [{}]", rows.join(", "))
}

/// Figure 2.12: a search tree over arrays of 64 records, whose first records are the hotter ones. Nodes are objects in both; an array is one
/// object, or its pages are placed by themselves.
fn hybrid(records: usize) -> String {
    const OF_ARRAY: usize = 64;
    const NODE: usize = 64;
    /// Nodes in the processor's cache, in percent.
    const CACHED: usize = 20;
    const PAGE: usize = 4096;
    println!(
        "\n2.12: percent of accesses in fast memory: the best objects, and the best nodes and pages of arrays"
    );
    let arrays = (records / OF_ARRAY).next_power_of_two();
    let (outer, inner) =
        (Trace::new(Workload::Zipf(0.99), arrays), Trace::new(Workload::Zipf(0.99), OF_ARRAY));
    let pages_of = (OF_ARRAY * SPAN).div_ceil(PAGE);
    let place_of = shuffled(arrays, &mut Random::new(9));
    let (mut nodes, mut pages) = (vec![0u64; arrays], vec![0u64; arrays * pages_of]);
    let mut random = Random::new(10);
    for _ in 0..records * 8 {
        let array = place_of[outer.access(&mut random)] as usize;
        // A balanced tree: node 1 is its root, and the path ends above the leaf. Its upper levels are in the processor's cache.
        let mut node = (array + arrays) / 2;
        while node > CACHED * arrays / 100 {
            nodes[node] += 1;
            node /= 2;
        }
        pages[array * pages_of + inner.access(&mut random) * SPAN / PAGE] += 1;
    }
    let total = (nodes.iter().sum::<u64>() + pages.iter().sum::<u64>()) as f64;
    let of_nodes = || nodes.iter().map(|count| (*count, NODE));
    let objects: Vec<(u64, usize)> =
        of_nodes().chain(pages.chunks(pages_of).map(|array| (array.iter().sum(), pages_of * PAGE))).collect();
    let parts: Vec<(u64, usize)> = of_nodes().chain(pages.iter().map(|count| (*count, PAGE))).collect();
    let all: usize = objects.iter().map(|(_, octets)| octets).sum();
    let hits = |pieces: &[(u64, usize)], local: usize| {
        let mut sorted = pieces.to_vec();
        sorted.sort_by(|a, b| (b.0 as f64 / b.1 as f64).total_cmp(&(a.0 as f64 / a.1 as f64)));
        let mut left = all * local / 100;
        let fit = sorted.iter().take_while(|(_, octets)| {
            let fits = *octets <= left;
            left = left.saturating_sub(*octets);
            fits
        });
        100.0 * fit.map(|(count, _)| *count).sum::<u64>() as f64 / total
    };
    let mut rows = Vec::new();
    for local in [10, 20, 30, 50] {
        let (best, both) = (hits(&objects, local), hits(&parts, local));
        println!("{local:>7}% {best:>8.1} {both:>8.1}");
        rows.push(format!("[{local}, {best:.1}, {both:.1}]"));
    }
    println!("(accesses that miss a cache with the tree's upper levels)");
    println!("chapter: up to 10 % more with pages of arrays than with the best objects");
    format!("\"hybrid\": [{}]", rows.join(", "))
}
