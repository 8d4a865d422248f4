//! Tables with one small entry for each UE of a network: they take little beyond the entries themselves, and never copy all of them at
//! once, as a vector or a hash table does when it grows.

use std::collections::BTreeMap;
use std::ops::{Bound, Index, IndexMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Entries that are moved at most for one insertion, some kilobytes.
const RUN_MAX: usize = 256;
/// A run with fewer entries joins the next one, if both fit well.
const RUN_MIN: usize = RUN_MAX / 4;
/// Room is made for so many entries at once.
const ROOM: usize = 32;

/// An ordered map of small entries in sorted runs. Entries that come in ascending order fill their runs.
#[derive(Clone, Debug)]
pub struct CompactMap<K, V> {
    /// Runs by a key that is not above their first one, and above the last one of the run before.
    runs: BTreeMap<K, Vec<(K, V)>>,
    len: usize,
}

impl<K, V> Default for CompactMap<K, V> {
    fn default() -> Self {
        Self { runs: BTreeMap::new(), len: 0 }
    }
}

impl<K: Copy + Ord, V: Copy> CompactMap<K, V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    pub fn get(&self, key: K) -> Option<V> {
        let (_, run) = self.runs.range(..=key).next_back()?;
        run.binary_search_by_key(&key, |(k, _)| *k).ok().map(|at| run[at].1)
    }

    /// The entry with the smallest key.
    pub fn first(&self) -> Option<(K, V)> {
        self.runs.first_key_value().and_then(|(_, run)| run.first().copied())
    }

    /// All entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.runs.values().flatten().copied()
    }

    /// Sets the value of a key. Returns the former one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let run_of = match self.runs.range(..=key).next_back() {
            Some((of, _)) => *of,
            // Below all others: the first run begins with it.
            None => {
                let run = self.runs.pop_first().map_or_else(Vec::new, |(_, run)| run);
                self.runs.insert(key, run);
                key
            }
        };
        let is_last = self.runs.range((Bound::Excluded(run_of), Bound::Unbounded)).next().is_none();
        let run = self.runs.get_mut(&run_of).expect("found above");
        let at = match run.binary_search_by_key(&key, |(k, _)| *k) {
            Ok(at) => return Some(std::mem::replace(&mut run[at].1, value)),
            Err(at) => at,
        };
        self.len += 1;
        if run.len() < RUN_MAX {
            if run.len() == run.capacity() {
                run.reserve_exact(ROOM);
            }
            run.insert(at, (key, value));
            return None;
        }
        if at == RUN_MAX && is_last {
            self.runs.insert(key, vec![(key, value)]);
            return None;
        }
        let mut upper = run.split_off(RUN_MAX / 2);
        run.shrink_to(RUN_MAX / 2 + ROOM);
        let into = if at <= RUN_MAX / 2 { &mut *run } else { &mut upper };
        let at = if at <= RUN_MAX / 2 { at } else { at - RUN_MAX / 2 };
        into.insert(at, (key, value));
        self.runs.insert(upper[0].0, upper);
        None
    }

    /// Removes a key. Returns its value.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let (of, run) = self.runs.range_mut(..=key).next_back()?;
        let of = *of;
        let at = run.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        let (_, value) = run.remove(at);
        self.len -= 1;
        if run.is_empty() {
            self.runs.remove(&of);
        } else if run.len() < RUN_MIN {
            let len = run.len();
            let after = self.runs.range((Bound::Excluded(of), Bound::Unbounded)).next();
            let after = after.filter(|(_, after)| len + after.len() <= RUN_MAX - RUN_MIN);
            let after = after.map(|(of, _)| *of).and_then(|after| self.runs.remove(&after));
            if let (Some(after), Some(run)) = (after, self.runs.get_mut(&of)) {
                run.reserve_exact(after.len());
                run.extend(after);
            }
        }
        Some(value)
    }
}

/// Entries by slot: a table that grows at its end, in pieces.
#[derive(Clone, Debug)]
pub struct SlotTable<T> {
    pieces: Vec<Vec<T>>,
}

/// Entries of a piece.
const PIECE: usize = 1024;

impl<T> Default for SlotTable<T> {
    fn default() -> Self {
        Self { pieces: Vec::new() }
    }
}

impl<T> SlotTable<T> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        let full = self.pieces.len().saturating_sub(1) * PIECE;
        full + self.pieces.last().map_or(0, Vec::len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The entry at an index.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.pieces.get(index / PIECE)?.get(index % PIECE)
    }

    /// An entry, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.pieces.get_mut(index / PIECE)?.get_mut(index % PIECE)
    }

    /// Adds an entry at the end.
    pub fn push(&mut self, entry: T) {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(entry);
        }
    }

    /// All entries, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.pieces.iter().flatten()
    }

    /// All entries, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flatten()
    }
}

impl<T> Index<usize> for SlotTable<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.pieces[index / PIECE][index % PIECE]
    }
}

impl<T> IndexMut<usize> for SlotTable<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.pieces[index / PIECE][index % PIECE]
    }
}

impl<T> FromIterator<T> for SlotTable<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut table = Self::default();
        entries.into_iter().for_each(|entry| table.push(entry));
        table
    }
}

/// As a vector is written.
impl<T: Serialize> Serialize for SlotTable<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut seq = to.serialize_seq(Some(self.len()))?;
        self.iter().try_for_each(|entry| seq.serialize_element(entry))?;
        seq.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SlotTable<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::from_iter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_compact_map_has_what_a_map_has(
            ops in vec((0..900u16, any::<u8>(), 0..10u8), 0..4000),
            removals in 1..8u8,
        ) {
            let (mut map, mut model) = (CompactMap::default(), BTreeMap::new());
            for (key, value, kind) in ops {
                if kind < removals {
                    assert_eq!(map.remove(key), model.remove(&key));
                } else {
                    assert_eq!(map.insert(key, value), model.insert(key, value));
                }
                assert_eq!(map.get(key), model.get(&key).copied());
                assert_eq!(map.first(), model.first_key_value().map(|(k, v)| (*k, *v)));
            }
            assert_eq!(map.len(), model.len());
            assert!(map.iter().eq(model.into_iter()));
        }
    }

    #[test]
    fn runs_of_ascending_keys_are_full_and_those_of_others_more_than_half() {
        let mut ascending = CompactMap::default();
        for n in 0..10_000u32 {
            ascending.insert(n, ());
        }
        assert_eq!(ascending.runs.len(), 10_000usize.div_ceil(RUN_MAX));
        let mut scattered = CompactMap::default();
        for n in 0..10_000u32 {
            scattered.insert(n.wrapping_mul(2_654_435_761), ());
        }
        let room: usize = scattered.runs.values().map(Vec::capacity).sum();
        assert!(room < 18_000, "{room} places for 10,000 entries");
        // What is left after most were removed shares runs.
        for n in (0..10_000u32).filter(|n| n % 50 != 0) {
            scattered.remove(n.wrapping_mul(2_654_435_761));
        }
        assert_eq!(scattered.len(), 200);
        assert!(scattered.runs.len() <= 8, "{} runs", scattered.runs.len());
    }

    #[test]
    fn a_slot_table_is_written_as_a_vector_is() {
        let vector: Vec<u32> = (0..3000).collect();
        let mut table: SlotTable<u32> = vector.iter().copied().collect();
        assert_eq!((table.len(), table.get(2999), table.get(3000)), (3000, Some(&2999), None));
        assert!(table.iter().eq(&vector));
        let written = postcard::to_allocvec(&table).unwrap();
        assert_eq!(written, postcard::to_allocvec(&vector).unwrap());
        let read: SlotTable<u32> = postcard::from_bytes(&written).unwrap();
        assert!(read.iter().eq(&vector));
        table[1024] = 7;
        table.iter_mut().for_each(|n| *n += 1);
        assert_eq!((table[1024], table[2047]), (8, 2048));
    }
}
