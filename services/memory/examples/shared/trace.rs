//! Generated traces of accesses to records.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use whimbrel_memory::{Backing, Device, Heap, REGION_OCTETS, RecordLocation, Slice};

#[derive(Clone, Copy)]
pub(crate) enum Workload {
    /// Popularity by rank to the power of minus this.
    Zipf(f64),
    /// Nine accesses of ten go to a tenth of the records.
    Hotspot,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zipf(_) => "zipf",
            Self::Hotspot => "hotspot",
        }
    }
}

/// The generator xorshift128+.
pub(crate) struct Random(u64, u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed, 777)
    }

    pub(crate) fn next(&mut self) -> u64 {
        let (mut a, b) = (self.0, self.1);
        self.0 = b;
        a ^= a << 23;
        a ^= a >> 17;
        a ^= b ^ (b >> 26);
        self.1 = a;
        a.wrapping_add(b)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub(crate) fn shuffled(n: usize, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    (1..n).rev().for_each(|i| order.swap(i, random.below(i + 1)));
    order
}

/// A distribution of accesses over records, the most popular first.
pub(crate) struct Trace {
    workload: Workload,
    records: usize,
    /// Of Zipf: cumulated weights.
    cumulated: Vec<f64>,
}

impl Trace {
    pub(crate) fn new(workload: Workload, records: usize) -> Self {
        let mut sum = 0.0;
        let cumulated = match workload {
            Workload::Zipf(exponent) => (1..=records)
                .map(|rank| {
                    sum += (rank as f64).powf(-exponent);
                    sum
                })
                .collect(),
            Workload::Hotspot => Vec::new(),
        };
        Self { workload, records, cumulated }
    }

    pub(crate) fn access(&self, random: &mut Random) -> usize {
        match self.workload {
            Workload::Zipf(_) => {
                let at = random.unit() * self.cumulated[self.records - 1];
                self.cumulated.partition_point(|sum| *sum < at).min(self.records - 1)
            }
            Workload::Hotspot if random.below(10) < 9 => random.below(self.records / 10),
            Workload::Hotspot => self.records / 10 + random.below(self.records - self.records / 10),
        }
    }

    /// The share of all accesses that each record gets.
    pub(crate) fn shares(&self) -> Vec<f64> {
        match self.workload {
            Workload::Zipf(_) => {
                let before = std::iter::once(0.0).chain(self.cumulated.iter().copied());
                let all = self.cumulated[self.records - 1];
                self.cumulated.iter().zip(before).map(|(sum, before)| (sum - before) / all).collect()
            }
            Workload::Hotspot => {
                let hot = self.records / 10;
                let share = |n| if n < hot { 0.9 / hot as f64 } else { 0.1 / (self.records - hot) as f64 };
                (0..self.records).map(share).collect()
            }
        }
    }

    pub(crate) fn counts(&self, accesses: usize, random: &mut Random) -> Vec<u32> {
        let mut counts = vec![0; self.records];
        (0..accesses).for_each(|_| counts[self.access(random)] += 1);
        counts
    }
}

/// A slow tier in memory: places are compared, not times.
#[derive(Debug, Default)]
pub(crate) struct Disk(Mutex<Vec<u8>>);

impl Disk {
    pub(crate) fn backing() -> Backing {
        Backing::Device(Arc::<Self>::default())
    }
}

impl Device for Disk {
    fn write(&self, offset: u64, octets: &[u8]) -> io::Result<()> {
        let (from, to) = (offset as usize, offset as usize + octets.len());
        let mut disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let len = disk.len().max(to);
        disk.resize(len, 0);
        disk[from..to].copy_from_slice(octets);
        Ok(())
    }

    fn read(&self, offset: u64, octets: &mut [u8]) -> io::Result<()> {
        let disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        octets.copy_from_slice(&disk[offset as usize..][..octets.len()]);
        Ok(())
    }
}

/// Colocates until fast memory holds no more than it may: regions are written in a thread of the heap.
#[expect(clippy::disallowed_methods, reason = "what is waited for is a thread of the heap")]
pub(crate) fn settle(heap: &mut Heap, places: &mut [Option<RecordLocation>], fast: u64) {
    // A heap fills up to three regions at once.
    let most = fast.max(3 * REGION_OCTETS as u64);
    loop {
        let slice = heap.colocate(1000, |owner, place| places[owner as usize] = Some(place));
        if slice != Slice::Unfinished && heap.stats().fast_octets <= most {
            return;
        }
        // Each cycle ages the counters: there are to be few.
        if slice != Slice::Unfinished {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
