//! The records of UEs at rest, in a heap that places each in fast or slow memory by how often it is used (`tier`).

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use whimbrel_control::{RestPlace, RestStore};
use whimbrel_memory::{Activation, Backing, Config, Heap, RecordLocation, Slice, Stats};

/// Time between two colocation cycles: a scan of all counters takes a thousandth of it.
const CYCLE_EVERY: Duration = Duration::from_secs(5);
/// The same while regions take more memory than they may.
const CYCLE_EVERY_ABOVE_LIMIT: Duration = Duration::from_millis(500);
/// Slices between two counts of what is in which tier, within a cycle: a count passes over all regions.
const SLICES_PER_COUNT: u32 = 32;
/// Octets of a page, as far as touching each page needs it.
const PAGE: usize = 4096;

/// What the control loop sets and sees of a heap that its shard owns.
#[derive(Debug, Default)]
pub(super) struct RestHeapState {
    /// Memory that regions may take.
    pub(super) fast_octets: Cell<u64>,
    pub(super) stats: Cell<Stats>,
    /// Time that inputs waited for records in the slow tier.
    pub(super) stalled: Cell<Duration>,
    /// The longest of these waits.
    pub(super) longest_stall: Cell<Duration>,
    /// The longest slice of a colocation cycle.
    pub(super) longest_slice: Cell<Duration>,
    /// Whether a cycle is under way or due, so that the control loop has work for its idle time.
    pub(super) is_busy: Cell<bool>,
}

/// A shard's heap.
pub(super) struct RestHeap {
    heap: Heap,
    state: Rc<RestHeapState>,
    next_cycle: Instant,
    in_cycle: bool,
    slices: u32,
}

impl RestHeap {
    /// An empty heap. Errors: the backing file cannot be created.
    pub(super) fn new(fast_octets: u64, backing: Backing) -> std::io::Result<(Self, Rc<RestHeapState>)> {
        // A control store has some thousand accesses a second: all of them are counted.
        let heap = Heap::new(Config::new(fast_octets, backing), Activation::one_in(1))?;
        let state = Rc::new(RestHeapState::default());
        state.fast_octets.set(fast_octets);
        let own = state.clone();
        Ok((Self { heap, state: own, next_cycle: Instant::now(), in_cycle: false, slices: 0 }, state))
    }
}

fn place_of(at: RestPlace) -> RecordLocation {
    RecordLocation::from_number(at.0)
}

impl RestStore for RestHeap {
    fn insert(&mut self, slot: u32, record: &[u8]) -> Option<RestPlace> {
        self.heap.insert(slot, record).ok().map(|at| RestPlace(at.number()))
    }

    fn replace(&mut self, slot: u32, at: RestPlace, record: &[u8]) -> Option<RestPlace> {
        self.heap.replace(slot, place_of(at), record).ok().map(|at| RestPlace(at.number()))
    }

    fn read(&mut self, slot: u32, at: RestPlace) -> Option<&[u8]> {
        let is_slow = self.heap.is_slow(place_of(at));
        let begun = Instant::now();
        let record = self.heap.read(slot, place_of(at)).ok()?;
        // Waits for the pages here, where the wait is measured.
        record.iter().step_by(PAGE).chain(record.last()).for_each(|octet| {
            std::hint::black_box(*octet);
        });
        if is_slow {
            let (state, waited) = (&self.state, begun.elapsed());
            state.stalled.set(state.stalled.get() + waited);
            state.longest_stall.set(state.longest_stall.get().max(waited));
        }
        Some(record)
    }

    fn peek(&self, slot: u32, at: RestPlace) -> Option<Cow<'_, [u8]>> {
        self.heap.peek(slot, place_of(at)).ok()
    }

    fn remove(&mut self, slot: u32, at: RestPlace) {
        // A place that has no record of this UE is a place that needs no removal.
        let _ = self.heap.remove(slot, place_of(at));
    }

    fn relocate(&mut self, records_max: usize, moved: &mut dyn FnMut(u32, RestPlace)) {
        let begun = Instant::now();
        if !self.in_cycle && begun < self.next_cycle && !self.heap.has_promotions() {
            self.heap.settle();
            let (octets, counts) = (self.state.stats.get(), self.heap.stats_of_reads());
            let (fast_octets, slow_octets, live_octets) =
                (octets.fast_octets, octets.slow_octets, octets.live_octets);
            self.state.stats.set(Stats { fast_octets, slow_octets, live_octets, ..counts });
            self.state.is_busy.set(false);
            return;
        }
        self.heap.set_fast_octets(self.state.fast_octets.get());
        let slice = self.heap.colocate(records_max, |slot, at| moved(slot, RestPlace(at.number())));
        self.in_cycle = slice == Slice::Unfinished;
        let state = &self.state;
        state.is_busy.set(self.in_cycle);
        self.slices = self.slices.wrapping_add(1);
        if !self.in_cycle || self.slices.is_multiple_of(SLICES_PER_COUNT) {
            state.stats.set(self.heap.stats());
        }
        if !self.in_cycle {
            let above = state.stats.get().fast_octets > state.fast_octets.get();
            self.next_cycle = begun + if above { CYCLE_EVERY_ABOVE_LIMIT } else { CYCLE_EVERY };
        }
        state.longest_slice.set(state.longest_slice.get().max(begun.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_not_used_leave_memory_and_come_back_when_read() {
        let folder = tempfile::tempdir().unwrap();
        let (mut heap, state) = RestHeap::new(2 << 20, Backing::File(folder.path().join("ues"))).unwrap();
        let record = |slot: u32| [&slot.to_le_bytes()[..], &[0x5a; 396]].concat();
        let mut places: Vec<RestPlace> =
            (0..40_000).map(|slot| heap.insert(slot, &record(slot)).unwrap()).collect();
        for _ in 0..25 {
            heap.next_cycle = Instant::now();
            heap.relocate(5000, &mut |slot, at| places[slot as usize] = at);
            if state.stats.get().slow_octets >= 8 << 20 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for (slot, at) in (0..).zip(&places) {
            assert_eq!(heap.read(slot, *at), Some(&record(slot)[..]));
        }
        heap.remove(3, places[3]);
        assert_eq!(heap.read(3, places[3]), None);
        assert!(heap.peek(3, places[3]).is_none());
        assert_eq!(heap.read(4, places[5]), None, "a place of another UE");
    }
}
