//! Which words a new table hashes: what lets it take most of the rules that are scanned, in short buckets.

use crate::key::{WORDS, word};
use crate::rule::Rule;
use crate::table::{HashedParts, covers, hash};

/// Rules that are looked at. The time of a choice is in proportion.
pub(crate) const SAMPLE: usize = 192;
/// Rules that a bucket may have on average: half its room, as some have more than others.
const BUCKET_MEAN: f32 = 4.0;
/// Counters for collisions, several times the sample.
const COUNTERS: usize = 1024;

const NO_PART: (u8, u32) = (0, 0);

/// Parts that tables are made of: of an address whole words or leading octets, of other words a field.
fn all_parts() -> impl Iterator<Item = (u8, u32)> {
    const OCTETS: [u32; 4] = [0xffff_ffff, 0xffff_ff00, 0xffff_0000, 0xff00_0000];
    const WHOLE: [usize; 4] = [word::TEID, word::SPI, word::FLOW_LABEL, word::APPLICATION];
    const FIELDS: [(usize, u32); 9] = [
        (word::PORTS, 0xffff),
        (word::PORTS, 0xffff_0000),
        (word::NETWORK, 0xffff_0000),
        (word::NETWORK, 0xffff),
        (word::PROTOCOL, 0xff00_0000),
        (word::PROTOCOL, 0xfc_0000),
        (word::PROTOCOL, 0xff),
        (word::FLOW, 0xff00_0000),
        (word::FLOW, 0xffff00),
    ];
    let addresses = (word::REMOTE..word::TEID).flat_map(|at| OCTETS.map(|mask| (at, mask)));
    let all = addresses.chain(WHOLE.map(|at| (at, u32::MAX))).chain(FIELDS);
    all.map(|(at, mask)| (at as u8, mask))
}

/// How many of `standing` rules a table of these parts is likely to take.
fn taken(parts: &HashedParts, factors: &[u64; 3], sample: &[&Rule], standing: usize) -> f32 {
    let mut counters = [0u8; COUNTERS];
    let (mut eligible, mut met) = (0u32, 0u32);
    for rule in sample.iter().filter(|r| covers(parts, r)) {
        let counter = &mut counters[hash(parts, factors, &rule.value) as usize % COUNTERS];
        met += u32::from(*counter);
        *counter += 1;
        eligible += 1;
    }
    if eligible == 0 {
        return 0.0;
    }
    // Each pair of the sample that meets stands for as many more of the whole set as that is larger.
    let scale = standing as f32 / sample.len() as f32;
    let chance = eligible as f32 / COUNTERS as f32 / 2.0;
    let neighbours = (2.0 * met as f32 / eligible as f32 - chance).max(0.0) * scale;
    let mean = 1.0 + neighbours;
    eligible as f32 * scale * (BUCKET_MEAN / mean).min(1.0)
}

/// The parts that take most of `standing` rules, of which `sample` are some, and how many that will be.
pub(crate) fn choose(factors: &[u64; 3], sample: &[&Rule], standing: usize) -> (HashedParts, f32) {
    debug_assert!(sample.len() <= SAMPLE && SAMPLE <= u8::MAX as usize);
    let used = sample.iter().fold([0; WORDS], |mut used: [u32; WORDS], r| {
        used.iter_mut().zip(&r.mask).for_each(|(used, mask)| *used |= mask);
        used
    });
    let mut best = ([NO_PART; 3], 0.0);
    for n in 0..best.0.len() {
        let before = best;
        for (at, mask) in all_parts() {
            if used[usize::from(at)] & mask != mask
                || before.0[..n].iter().any(|(a, m)| *a == at && m & mask == mask)
            {
                continue;
            }
            let mut parts = before.0;
            parts[n] = (at, mask);
            let taken = taken(&parts, factors, sample, standing);
            if taken > best.1 {
                best = (parts, taken);
            }
        }
        // A further part costs every packet a little: it has to be worth it.
        if best.1 <= before.1 * 1.05 {
            return before;
        }
    }
    best
}
