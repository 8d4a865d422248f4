//! The colocation cycle, in slices that the owner of the heap runs between two of its inputs.
//!
//! 1. Scan: the counters of each region in fast memory make a histogram. Regions that are paged out are not touched.
//! 2. Select: the cutoff is the hotness from which records fit into fast memory; the regions whose share of hot octets
//!    is between the watermarks are selected, and those with little left in them.
//! 3. Move: hot records of selected regions go to regions for hot records, the others to regions for cold ones.
//! 4. Page out: the coldest regions leave fast memory until the rest fits.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use crate::heap::{Error, Fill, Heap, State, place};
use crate::histogram::{Cutoff, Histogram};
use crate::memory::{PAGE_OUT_OCTETS, REGION_OCTETS};
use crate::record::{Owner, Place, UNIT_OCTETS};

/// A region is emptied if less than this share of what was written to it is live, whatever its hotness.
const SPARSE_PERCENT: usize = 30;

/// A region with a file counts as paged out once no more of its pages are in memory: a quarter.
const RESIDENT_MAX: usize = REGION_OCTETS / 4096 / 4;

/// What a slice did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// The cycle goes on with the next slice.
    Unfinished,
    /// The cycle has ended.
    Finished(Colocation),
}

/// What a colocation cycle did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Colocation {
    /// Records that were read from their region's counters.
    pub scanned: u64,
    /// Records that were moved to regions for hot ones.
    pub hot: u64,
    /// Records that were moved to regions for cold ones.
    pub cold: u64,
    /// Regions that were paged out.
    pub paged_out: u64,
}

/// A cycle that has begun.
#[derive(Debug)]
pub(crate) struct Cycle {
    step: Step,
    cutoff: Cutoff,
    saturated: u64,
    done: Colocation,
}

#[derive(Debug)]
enum Step {
    Scan { next: usize },
    Move { regions: Vec<(usize, u32)>, offset: usize },
    PageOut { regions: Vec<(usize, u32)>, offset: usize },
}

impl Heap {
    /// Runs a slice of a colocation cycle, and begins a new cycle if none is under way. A slice looks at `records_max` records (at least the
    /// records of one region in the scan), and reports each one that it moved to `moved`, which must write the new place into the
    /// owner's table: the old place is void.
    pub fn colocate(&mut self, records_max: usize, mut moved: impl FnMut(Owner, Place)) -> Slice {
        let mut cycle = self.cycle.take().unwrap_or_else(|| Cycle {
            step: Step::Scan { next: 0 },
            cutoff: Cutoff::default(),
            saturated: 0,
            done: Colocation::default(),
        });
        let mut left = self.promote(records_max, &mut moved);
        while left > 0 {
            let finished = match &mut cycle.step {
                Step::Scan { next } => {
                    let region = *next;
                    *next += 1;
                    if region < self.regions.len() {
                        let (records, saturated) = self.scan(region);
                        cycle.done.scanned += records as u64;
                        cycle.saturated += saturated;
                        left = left.saturating_sub(records.max(1));
                        continue;
                    }
                    let (cutoff, regions) = self.select();
                    cycle.cutoff = cutoff;
                    cycle.step = Step::Move { regions, offset: UNIT_OCTETS };
                    false
                }
                Step::Move { regions, offset } => match regions.last().copied() {
                    Some(region) => {
                        let (at, records) =
                            self.empty(region, *offset, left, &mut cycle.cutoff, &mut cycle.done, &mut moved);
                        left = left.saturating_sub(records.max(1));
                        *offset = at.unwrap_or(UNIT_OCTETS);
                        if at.is_none() {
                            regions.pop();
                        }
                        false
                    }
                    None => {
                        cycle.step = Step::PageOut { regions: self.coldest(), offset: 0 };
                        false
                    }
                },
                Step::PageOut { regions, offset } => match regions.last().copied() {
                    Some((region, generation)) => {
                        // One step of paging out takes as long as a slice of records.
                        left = 0;
                        if self.page_out(region, generation, offset) {
                            regions.pop();
                            *offset = 0;
                            cycle.done.paged_out += u64::from(self.regions[region].state == State::Slow);
                        }
                        false
                    }
                    None => true,
                },
            };
            if finished {
                self.finish(&cycle);
                return Slice::Finished(cycle.done);
            }
        }
        self.cycle = Some(cycle);
        Slice::Unfinished
    }

    /// Moves the records that were read in slow memory to fast memory. Returns how many records may still be looked at.
    fn promote(&mut self, records_max: usize, moved: &mut impl FnMut(Owner, Place)) -> usize {
        let mut left = records_max;
        while left > 0
            && let Some((at, owner)) = self.promotions.pop()
        {
            left -= 1;
            let (region, offset) = (at.region(), at.offset());
            let is_slow = self.regions[region].state == State::Slow && offset < self.regions[region].used;
            // The record may have been removed since, or its region freed and filled again.
            if is_slow && self.memory.header(region, offset).owner == owner {
                let halvings = self.epoch - self.regions[region].epoch;
                let counter = self.memory.counter(region, offset);
                counter.store(halved(counter.load(Ordering::Relaxed), halvings), Ordering::Relaxed);
                if self.move_record(region, offset, Fill::Hot, moved).is_err() {
                    break;
                }
            }
        }
        left
    }

    /// Counts a region's octets by hotness. Returns its records, and octets whose counters are at their end.
    fn scan(&mut self, region: usize) -> (usize, u64) {
        if !matches!(self.regions[region].state, State::Filling | State::Fast | State::Writing) {
            return (0, 0);
        }
        let halvings = self.epoch - self.regions[region].epoch;
        let (mut histogram, mut records, mut saturated) = (Histogram::default(), 0, 0);
        let mut offset = UNIT_OCTETS;
        while offset < self.regions[region].used {
            let header = self.memory.header(region, offset);
            records += 1;
            if !header.is_removed() {
                let counter = self.memory.counter(region, offset);
                let counted = counter.load(Ordering::Relaxed);
                let value = halved(counted, halvings);
                // A page that is not changed need not be written again.
                if value != counted {
                    counter.store(value, Ordering::Relaxed);
                }
                histogram.add(value, header.span());
                saturated += if value == u16::MAX { header.span() as u64 } else { 0 };
            }
            offset += header.span();
        }
        self.regions[region].histogram = histogram;
        self.regions[region].epoch = self.epoch;
        (records, saturated)
    }

    /// The cutoff, and the regions to be emptied.
    fn select(&self) -> (Cutoff, Vec<(usize, u32)>) {
        let mut all = Histogram::default();
        let in_fast = |state| matches!(state, State::Filling | State::Fast | State::Writing);
        self.regions.iter().filter(|r| in_fast(r.state)).for_each(|r| all.add_all(&r.histogram));
        let cutoff = all.cutoff(self.config.fast_octets, self.config.partial_fill);
        let (low, high) = self.config.hot_percent;
        let selected = self.regions.iter().enumerate().filter(|(_, r)| {
            let hot = r.histogram.hot_octets(cutoff) * 100 / REGION_OCTETS as u64;
            let sparse = r.live * 100 < r.used * SPARSE_PERCENT;
            matches!(r.state, State::Fast | State::Writing)
                && (sparse || (u64::from(low) <= hot && hot <= u64::from(high)))
        });
        (cutoff, selected.map(|(index, r)| (index, r.generation)).collect())
    }

    /// Moves the records of a region out of it, from an offset on. Returns where to go on, and how many records were looked at.
    fn empty(
        &mut self,
        (region, generation): (usize, u32),
        mut offset: usize,
        records_max: usize,
        cutoff: &mut Cutoff,
        done: &mut Colocation,
        moved: &mut impl FnMut(Owner, Place),
    ) -> (Option<usize>, usize) {
        let mut records = 0;
        // The last record's move frees the region, which may be reused at once.
        while self.regions[region].generation == generation && offset < self.regions[region].used {
            if records == records_max {
                return (Some(offset), records);
            }
            records += 1;
            let header = self.memory.header(region, offset);
            if !header.is_removed() {
                let counter = self.memory.counter(region, offset).load(Ordering::Relaxed);
                let hot = cutoff.takes(counter, header.span());
                let fill = if hot { Fill::Hot } else { Fill::Cold };
                if self.move_record(region, offset, fill, moved).is_err() {
                    return (None, records);
                }
                *if hot { &mut done.hot } else { &mut done.cold } += 1;
            }
            offset += header.span();
        }
        (None, records)
    }

    /// Errors: no room. The record stays where it is.
    fn move_record(
        &mut self,
        region: usize,
        offset: usize,
        fill: Fill,
        moved: &mut impl FnMut(Owner, Place),
    ) -> Result<(), Error> {
        let header = self.memory.header(region, offset);
        let (to, at) = self.allocate(fill, header.span())?;
        self.memory.copy((region, offset), (to, at), header.span());
        moved(header.owner, place(to, at));
        self.vacate(region, offset, header);
        self.stats.moved += 1;
        Ok(())
    }

    /// The coldest regions of fast memory, as many as are too much for it; the coldest last.
    fn coldest(&self) -> Vec<(usize, u32)> {
        let fast =
            self.regions.iter().filter(|r| !matches!(r.state, State::Free | State::Slow)).count() as u64;
        let over = fast.saturating_sub(self.config.fast_octets / REGION_OCTETS as u64) as usize;
        let mut regions: Vec<usize> = (0..self.regions.len())
            .filter(|region| matches!(self.regions[*region].state, State::Fast | State::Writing))
            .filter(|region| self.memory.pages_out(*region))
            .collect();
        regions.sort_by_key(|region| Reverse(self.regions[*region].histogram.mean_bin()));
        let coldest = regions.split_off(regions.len().saturating_sub(over));
        coldest.into_iter().map(|region| (region, self.regions[region].generation)).collect()
    }

    /// Pages out a step of a region, and returns whether that was the last one. A region with a file is written in one cycle and paged out in
    /// the next one, unless it was changed meanwhile: no caller waits for the disk.
    fn page_out(&mut self, region: usize, generation: u32, offset: &mut usize) -> bool {
        let state = &mut self.regions[region];
        if state.generation != generation || !matches!(state.state, State::Fast | State::Writing) {
            return true;
        }
        if self.memory.writes_first(region) && state.state == State::Fast {
            state.state = State::Writing;
            self.memory.begin_writing(region);
            return true;
        }
        self.memory.page_out(region, *offset, PAGE_OUT_OCTETS);
        *offset += PAGE_OUT_OCTETS;
        if *offset < REGION_OCTETS {
            return false;
        }
        // Pages that are still being written stay in memory: the next cycle tries again.
        if !self.memory.writes_first(region) || self.memory.resident_pages(region) <= RESIDENT_MAX {
            self.regions[region].state = State::Slow;
            self.stats.paged_out += 1;
        }
        true
    }

    fn finish(&mut self, cycle: &Cycle) {
        self.stats.cycles += 1;
        let on_time = self.stats.cycles.is_multiple_of(u64::from(self.config.decay_cycles.max(1)));
        // One octet in a hundred at the end of its counter: the hottest can no longer be distinguished.
        let saturated = cycle.saturated * 100 > self.config.fast_octets;
        if on_time || saturated {
            self.epoch += 1;
        }
    }
}

fn halved(counter: u16, times: u32) -> u16 {
    counter.checked_shr(times).unwrap_or(0)
}
