//! The prediction table: from a packet's tunnel or address to a prediction.

use whimbrel_prefetch::prefetch;

/// An entry. Open addressing, so that a lookup mostly costs one cache line.
#[derive(Clone, Copy)]
struct PredictionSlot {
    hash: u64,
    /// The prediction's number, or [`NOTHING`].
    number: u64,
}

const NOTHING: u64 = u64::MAX;
/// Places of a new table.
const PLACES_MIN: usize = 64;

/// From hashes to the numbers of predictions.
pub(super) struct PredictionTable {
    places: Vec<PredictionSlot>,
    len: usize,
}

impl PredictionTable {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), len: 0 }
    }

    fn mask(&self) -> usize {
        self.places.len() - 1
    }

    /// Adds the prediction of a key.
    pub(super) fn put(&mut self, hash: u64, number: u64) {
        if self.len * 2 >= self.places.len() {
            self.grow();
        }
        let mut at = hash as usize & self.mask();
        while self.places[at].number != NOTHING {
            at = (at + 1) & self.mask();
        }
        self.places[at] = PredictionSlot { hash, number };
        self.len += 1;
    }

    /// Doubles the table, at once: it happens a dozen times in a UPF's life.
    fn grow(&mut self) {
        let places = (self.places.len() * 2).max(PLACES_MIN);
        let old =
            std::mem::replace(&mut self.places, vec![PredictionSlot { hash: 0, number: NOTHING }; places]);
        self.len = 0;
        for place in old.into_iter().filter(|p| p.number != NOTHING) {
            self.put(place.hash, place.number);
        }
    }

    /// The prediction of a key. `is_it` checks an entry with the same hash.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let mut at = hash as usize & self.mask();
        loop {
            let place = self.places[at];
            if place.number == NOTHING {
                return None;
            }
            if place.hash == hash && is_it(place.number) {
                return Some(place.number);
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Prefetches what [`Self::find`] reads.
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(place) = self.places.get(hash as usize & self.places.len().wrapping_sub(1)) {
            prefetch(place);
        }
    }

    /// Removes a key's prediction; following entries move up, so that there are no gaps.
    pub(super) fn remove(&mut self, hash: u64, number: u64) {
        if self.len == 0 {
            return;
        }
        let mask = self.mask();
        let mut hole = hash as usize & mask;
        while (self.places[hole].hash, self.places[hole].number) != (hash, number) {
            if self.places[hole].number == NOTHING {
                return;
            }
            hole = (hole + 1) & mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let place = self.places[at];
            if place.number == NOTHING {
                break;
            }
            // It may move up unless that would be before its hash position.
            let from_home = at.wrapping_sub(place.hash as usize) & mask;
            if from_home >= (at.wrapping_sub(hole) & mask) {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole].number = NOTHING;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    use super::*;
    use crate::session_id::mix;

    #[test]
    fn a_table_is_a_map_whatever_comes_and_goes() {
        let (mut table, mut map) = (PredictionTable::new(), BTreeMap::new());
        for step in 0..20_000u64 {
            // Few hashes, close together, so that they meet.
            let hash = mix(step) % 300;
            if mix(step ^ 7).is_multiple_of(3) {
                if let Some(number) = map.remove(&hash) {
                    table.remove(hash, number);
                }
                table.remove(hash, NOTHING - 1);
            } else if let Entry::Vacant(vacant) = map.entry(hash) {
                table.put(hash, step);
                vacant.insert(step);
            }
            assert_eq!(table.len, map.len());
            let looked_up = mix(step ^ 9) % 300;
            assert_eq!(table.find(looked_up, |_| true), map.get(&looked_up).copied(), "step {step}");
        }
        assert!(map.len() > 100);
    }

    #[test]
    fn keys_of_equal_hash_are_distinguished() {
        let mut table = PredictionTable::new();
        (0..9).for_each(|number| table.put(5, number));
        assert_eq!(table.find(5, |n| n == 7), Some(7));
        table.remove(5, 7);
        assert_eq!(table.find(5, |n| n == 7), None);
        assert_eq!(table.find(5, |n| n == 8), Some(8));
    }
}
