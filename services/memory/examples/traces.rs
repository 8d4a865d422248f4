//! Hit ratio of fast memory on generated traces: `./x bench tier [RECORDS] [ACCESSES]`.
//!
//! Records are inserted in random order, and fast memory holds a part of them. Compared are the heap as it runs, with colocation between
//! the accesses; and what could be had with knowledge of the trace: the best records, the best pages of 4 KiB and of 2 MiB, and the
//! records whose access bit is set, as many as fit (Fava's figures 2.1, 2.7, 2.9 and 2.10). Counted accesses of a record are stated.

#[path = "shared/trace.rs"]
mod trace;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use whimbrel_memory::{Activation, Config, Heap, REGION_OCTETS, RecordLocation, Slice};

use crate::trace::{Disk, Random, Trace, Workload, settle, shuffled};

/// Octets of a record with its header: that of a UE with one session.
const SPAN: usize = 304;
const RECORD: [u8; SPAN - 8] = [0x5a; SPAN - 8];
/// Shares of the records that fast memory holds, in percent.
const LOCAL: [u64; 4] = [10, 20, 30, 50];
/// Accesses between which colocation goes on, in slices of a core's size; so many, since only places are compared here, not times.
const ACCESSES: usize = 5000;
const SLICES: usize = 15;
const SLICE: usize = 1000;

fn main() -> ExitCode {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    let records = numbers.first().copied().unwrap_or(1_000_000).clamp(20_000, 50_000_000);
    let accesses = numbers.get(1).copied().unwrap_or(32).clamp(1, 1000);
    println!("{records} records of {SPAN} octets, {accesses} counted accesses of each on average");
    let mut lines = Vec::new();
    for workload in [Workload::Zipf(0.99), Workload::Hotspot] {
        let mut random = Random::new(88_172_645_463_325_252);
        let trace = Trace::new(workload, records);
        let order = shuffled(records, &mut random);
        let counts = trace.counts(records * accesses, &mut random);
        let bests = Bests::new(&trace.shares(), &order, &counts);
        println!(
            "{:<8} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}",
            workload.name(),
            "local",
            "heap",
            "whole",
            "object",
            "4 KiB",
            "2 MiB",
            "one bit",
            "moved",
            "slice us"
        );
        for local in LOCAL {
            let kept = records * local as usize / 100;
            let [partial, whole] = [true, false].map(|fill| run(&trace, &order, (kept, fill), accesses));
            let ideal = bests.hits(kept);
            let cells = [partial.hits, whole.hits, ideal[0], ideal[1], ideal[2], ideal[3]];
            let percents = cells.map(|hits| format!("{:>8.1}", 100.0 * hits)).join(" ");
            let longest = partial.longest.as_micros();
            println!("{:<8} {local:>5}% {percents} {:>9} {longest:>9}", "", partial.moved);
            lines.push(format!(
                "{{\"workload\": \"{}\", \"local_percent\": {local}, \"heap\": {:.4}, \"without_partial_fill\": {:.4}, \
                 \"ideal_object\": {:.4}, \"ideal_4k\": {:.4}, \"ideal_2m\": {:.4}, \"one_bit\": {:.4}, \"longest_slice_us\": {longest}}}",
                workload.name(), cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]
            ));
        }
    }
    println!(
        "{{\"bench\": \"tier\", \"figures\": {{\"records\": {records}, \"counted_accesses\": {accesses}, \"rows\": [{}]}}}}",
        lines.join(", ")
    );
    ExitCode::SUCCESS
}

/// What a policy with knowledge of the trace would have in fast memory.
struct Bests {
    /// Shares of records, hottest first.
    objects: Vec<f64>,
    /// Shares of pages, hottest first, with the records of a page.
    pages: [(Vec<f64>, f64); 2],
    /// Shares of the records with a set bit, in the order of memory, then of the others.
    bits: Vec<f64>,
}

impl Bests {
    fn new(shares: &[f64], order: &[u32], counts: &[u32]) -> Self {
        let sorted = |mut shares: Vec<f64>| {
            shares.sort_by(|a, b| b.total_cmp(a));
            shares
        };
        let in_memory: Vec<f64> = order.iter().map(|n| shares[*n as usize]).collect();
        let pages = [4096, REGION_OCTETS].map(|page| {
            let mut of_pages = vec![0.0; (shares.len() * SPAN).div_ceil(page)];
            in_memory.iter().enumerate().for_each(|(i, share)| of_pages[i * SPAN / page] += share);
            (sorted(of_pages), page as f64 / SPAN as f64)
        });
        let set = |is: bool| order.iter().filter(move |n| (counts[**n as usize] > 0) == is);
        let bits = set(true).chain(set(false)).map(|n| shares[*n as usize]).collect();
        Self { objects: sorted(shares.to_vec()), pages, bits }
    }

    fn hits(&self, kept: usize) -> [f64; 4] {
        let of = |shares: &[f64], n: usize| shares[..n.min(shares.len())].iter().sum::<f64>();
        let [small, large] = [0, 1].map(|i| {
            let (shares, records) = &self.pages[i];
            of(shares, (kept as f64 / records) as usize)
        });
        [of(&self.objects, kept), small, large, of(&self.bits, kept)]
    }
}

struct Ran {
    hits: f64,
    moved: u64,
    longest: Duration,
}

/// The time of this machine: what is measured here is real.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn clock() -> Instant {
    Instant::now()
}

/// The heap with room for `kept` records in fast memory: it counts and colocates, then hits are counted while it goes on.
fn run(trace: &Trace, order: &[u32], (kept, partial_fill): (usize, bool), accesses: usize) -> Ran {
    let fast = (kept * SPAN / REGION_OCTETS * REGION_OCTETS) as u64;
    // The distribution stays: all accesses count.
    let config = Config { partial_fill, decay_cycles: u32::MAX, ..Config::new(fast, Disk::backing()) };
    let mut heap = Heap::new(config, Activation::one_in(1)).expect("a heap without a file");
    let mut places: Vec<Option<RecordLocation>> = vec![None; order.len()];
    for owner in order {
        places[*owner as usize] = Some(heap.insert(*owner, &RECORD).expect("memory for the records"));
    }
    let mut random = Random::new(1);
    let mut longest = Duration::ZERO;
    let mut part = |heap: &mut Heap, places: &mut [Option<RecordLocation>], accesses: usize| {
        for n in 1..=accesses {
            let owner = trace.access(&mut random);
            let place = places[owner].expect("each record has a place");
            std::hint::black_box(heap.read(owner as u32, place).expect("it is there"));
            for _ in 0..if n % ACCESSES == 0 { SLICES } else { 0 } {
                let begun = clock();
                let slice = heap.colocate(SLICE, |owner, place| places[owner as usize] = Some(place));
                longest = longest.max(begun.elapsed());
                if slice != Slice::Unfinished {
                    break;
                }
            }
        }
    };
    part(&mut heap, &mut places, order.len() * accesses);
    // Hot records that were paged out in the crowd come back when they are read again.
    for _ in 0..3 {
        settle(&mut heap, &mut places, fast);
        part(&mut heap, &mut places, order.len() / 4);
    }
    settle(&mut heap, &mut places, fast);
    // Nothing moves while hits are counted: all is within fast memory that counts as being in it.
    let before = heap.stats();
    for _ in 0..order.len() {
        let owner = trace.access(&mut random);
        let place = places[owner].expect("each record has a place");
        std::hint::black_box(heap.read(owner as u32, place).expect("it is there"));
    }
    let after = heap.stats();
    let (fast, slow) = (after.fast_reads - before.fast_reads, after.slow_reads - before.slow_reads);
    Ran { hits: fast as f64 / (fast + slow) as f64, moved: after.moved, longest }
}
