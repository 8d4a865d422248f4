//! The last cache of this machine, from how long a chain of loads takes over how much memory it goes through.

use std::hint::black_box;

use crate::Error;

/// A cache as the simulation wants it, and what a load costs that misses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cache {
    pub(crate) octets: u64,
    pub(crate) ways: u64,
    pub(crate) line: u64,
    pub(crate) memory_ns: f64,
}

/// Octets that a line has on every x86-64 processor.
const LINE: u64 = 64;
/// Ways of the last caches of servers: 11 to 20; the simulation wants sets in a power of two.
const WAYS: u64 = 16;
/// The sweep: from what any second cache holds to what no last cache does.
const SWEEP_MIB: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 256];
const STEPS: usize = 1 << 20;

impl Cache {
    /// Reads the text `OCTETS,WAYS,LINE`.
    pub(crate) fn parse(text: &str, memory_ns: f64) -> Result<Self, Error> {
        let numbers: Vec<u64> = text.split(',').filter_map(|n| n.parse().ok()).collect();
        let [octets, ways, line] = numbers[..] else {
            return Err(format!("{text:?} is not OCTETS,WAYS,LINE").into());
        };
        let sets = octets.checked_div(ways.saturating_mul(line)).unwrap_or(0);
        if !sets.is_power_of_two() || !line.is_power_of_two() || sets * ways * line != octets {
            return Err(format!("{text:?}: octets are a power of two of sets, times ways, times line").into());
        }
        Ok(Self { octets, ways, line, memory_ns })
    }
}

/// Measures the cache: it holds what is smaller than the first size whose loads take half of what those of the largest take.
pub(crate) fn measure() -> Cache {
    let times: Vec<f64> = SWEEP_MIB.iter().map(|mib| chain_ns(mib << 20)).collect();
    let memory_ns = times[times.len() - 1];
    let held = times.iter().position(|ns| *ns >= memory_ns / 2.0).unwrap_or(1).max(1) - 1;
    Cache { octets: SWEEP_MIB[held] << 20, ways: WAYS, line: LINE, memory_ns }
}

/// Nanoseconds of a load in a random ring through so much memory.
fn chain_ns(octets: u64) -> f64 {
    let count = (octets / LINE) as usize;
    let words = (LINE / 8) as usize;
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = 88_172_645_463_325_252_u64;
    for i in (1..count).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(i, random as usize % (i + 1));
    }
    let mut ring = vec![0usize; count * words];
    for (i, &from) in order.iter().enumerate() {
        ring[from * words] = order[(i + 1) % count] * words;
    }
    let mut at = 0;
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let begin = std::time::Instant::now();
        for _ in 0..STEPS {
            at = ring[at];
        }
        black_box(at);
        best = best.min(begin.elapsed().as_nanos() as f64 / STEPS as f64);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_whose_sets_are_no_power_of_two_is_refused() {
        let cache = Cache::parse("33554432,16,64", 90.0).expect("a cache of 32 MiB");
        assert_eq!((cache.octets, cache.ways, cache.line), (32 << 20, 16, 64));
        for text in ["33554432,12,64", "1000,1,64", "0,0,0", "33554432,16", "a,b,c"] {
            assert!(Cache::parse(text, 90.0).is_err(), "{text}");
        }
    }
}
