//! Eight Bloom filters in parallel (Synergy §III-C, figure 8): bit n of every octet belongs to filter n, so that one lookup covers
//! all filters.
//!
//! A lookup costs one cache line: all positions of a key are in the line that its hash selects.

use whimbrel_prefetch::prefetch;

/// Filters, one of each period: the bits of an octet.
pub(super) const FILTERS: u32 = u8::BITS;
/// Positions of a key. With [`POSITIONS_PER_KEY`], more would increase the false positives.
const HASHES: u32 = 4;
/// Positions of a filter for each of its keys: one lookup in some two hundred is a false positive with all eight filters full; in
/// the paper one in seventy.
const POSITIONS_PER_KEY: usize = 24;
/// Positions of a cache line, and bits of a hash that choose one.
const LINE: usize = 64;
const LINE_BITS: u32 = LINE.ilog2();

#[repr(align(64))]
#[derive(Clone)]
struct BloomLine([u8; LINE]);

/// Eight Bloom filters that are asked at once.
pub(super) struct Bloom {
    lines: Box<[BloomLine]>,
}

impl Bloom {
    /// Filters for this number of keys each.
    pub(super) fn new(keys: usize) -> Self {
        let lines = (keys * POSITIONS_PER_KEY).div_ceil(LINE).next_power_of_two();
        Self { lines: vec![BloomLine([0; LINE]); lines].into() }
    }

    fn line(&self, hash: u64) -> usize {
        (hash >> (u64::BITS / 2)) as usize & (self.lines.len() - 1)
    }

    /// Adds the key of a hash to one filter.
    pub(super) fn put(&mut self, filter: u32, hash: u64) {
        let at = self.line(hash);
        for position in positions(hash) {
            self.lines[at].0[position] |= 1 << filter;
        }
    }

    /// Whether the key of a hash may be in any filter.
    #[inline]
    pub(super) fn has(&self, hash: u64) -> bool {
        let line = &self.lines[self.line(hash)].0;
        positions(hash).fold(u8::MAX, |filters, position| filters & line[position]) != 0
    }

    /// Prefetches what [`Self::has`] reads.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&self.lines[self.line(hash)]);
    }

    /// Clears one filter.
    pub(super) fn clear(&mut self, filter: u32) {
        for octet in self.lines.iter_mut().flat_map(|l| &mut l.0) {
            *octet &= !(1 << filter);
        }
    }
}

/// The positions of a key in its line.
#[inline]
fn positions(hash: u64) -> impl Iterator<Item = usize> {
    (0..HASHES).map(move |n| (hash >> (n * LINE_BITS)) as usize % LINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_id::mix;

    #[test]
    fn what_was_put_into_any_filter_is_found_until_that_filter_is_cleared() {
        let mut bloom = Bloom::new(1_000);
        for filter in 0..FILTERS {
            (0..1_000).for_each(|n| bloom.put(filter, mix(u64::from(filter) << 32 | n)));
        }
        for filter in 0..FILTERS {
            let of_filter =
                |b: &Bloom| (0..1_000).filter(|n| b.has(mix(u64::from(filter) << 32 | n))).count();
            assert_eq!(of_filter(&bloom), 1_000);
            bloom.clear(filter);
            assert!(of_filter(&bloom) < 20, "{}", of_filter(&bloom));
        }
        assert!(bloom.lines.iter().all(|l| l.0 == [0; LINE]));
    }

    #[test]
    fn false_positives_of_full_filters_stay_below_the_papers_share() {
        const KEYS: u64 = 20_000;
        let mut bloom = Bloom::new(KEYS as usize);
        for filter in 0..FILTERS {
            (0..KEYS).for_each(|n| bloom.put(filter, mix(u64::from(filter) << 32 | n)));
        }
        let false_positives = (1 << 40..(1 << 40) + 100_000).filter(|n| bloom.has(mix(*n))).count();
        assert!(false_positives < 1_500, "{false_positives} of 100,000");
        assert!(false_positives > 0, "a filter that knows everything");
    }
}
