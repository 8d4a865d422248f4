//! The colocation cycle, in slices that the owner of the heap runs between two of its inputs.
//!
//! 1. Scan: the counters of each region in fast memory make a histogram. Regions that are paged out are not touched.
//! 2. Select: the cutoff is the hotness from which records fit into fast memory; the regions whose share of hot octets
//!    is between the watermarks are selected, and those with little left in them.
//! 3. Move: hot records of selected regions go to regions for hot records, the others to regions for cold ones.
//! 4. Page out: the coldest regions leave fast memory until the rest fits. A copy of each goes to the thread that writes to the device; the
//!    memory is given back when the device has it.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use crate::heap::{Error, Fill, Heap, RegionState, device_offset, place};
use crate::histogram::{Cutoff, Histogram};
use crate::memory::{Backing, REGION_OCTETS};
use crate::record::{Owner, RecordHeader, RecordLocation, UNIT_OCTETS};
use crate::writer::Job;

/// A region is emptied if less than this share of what was written to it is live, whatever its hotness.
const SPARSE_PERCENT: usize = 30;

/// The parts of a slice, in looks at a record's counter (some hundred nanoseconds each): a record that is moved with its reference,
const MOVE: usize = 4;
/// the same from a device,
const MOVE_FROM_DEVICE: usize = 40;
/// 4 KiB that are copied to be written,
const COPY_PAGE: usize = 4;
/// 4 KiB that the kernel moves to swap,
const SWAP_PAGE: usize = 60;
/// a region that is given back to the kernel.
const UNMAP: usize = 400;

/// Octets of a page.
const PAGE: usize = 4096;

/// Cycles without writing after the device has failed: with one every half a second, a quarter of a minute.
const CYCLES_AFTER_ERROR: u64 = 32;

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
    step: ColocationStep,
    cutoff: Cutoff,
    saturated: u64,
    done: Colocation,
}

#[derive(Debug)]
enum ColocationStep {
    Scan {
        next: usize,
        part: Option<PartlyScanned>,
    },
    Move {
        regions: Vec<(usize, u32)>,
        offset: usize,
    },
    PageOut {
        regions: Vec<(usize, u32)>,
        /// How far the last of them is, and the copy that is made of it.
        offset: usize,
        copy: Option<(u32, Vec<u8>)>,
    },
}

/// A region that has been scanned in part.
#[derive(Debug)]
struct PartlyScanned {
    generation: u32,
    offset: usize,
    histogram: Histogram,
}

impl Heap {
    /// Runs a slice of a colocation cycle, and begins a new cycle if none is under way. A slice does about as much as looking at
    /// `records_max` records takes, and reports each record that it moved to `moved`, which must write the new place into the owner's
    /// table: the old place is void.
    pub fn colocate(&mut self, records_max: usize, mut moved: impl FnMut(Owner, RecordLocation)) -> Slice {
        let mut cycle = self.cycle.take().unwrap_or_else(|| Cycle {
            step: ColocationStep::Scan { next: 0, part: None },
            cutoff: Cutoff::default(),
            saturated: 0,
            done: Colocation::default(),
        });
        let mut left = records_max;
        self.unmap_written(&mut left);
        self.promote(&mut left, &mut moved);
        while left > 0 {
            let finished = match &mut cycle.step {
                ColocationStep::Scan { next, part } => {
                    let region = *next;
                    if region < self.regions.len() {
                        if self.scan(region, part, &mut left, &mut cycle.done) {
                            cycle.saturated += self.regions[region].histogram.0.hottest_octets();
                            *next += 1;
                        }
                        continue;
                    }
                    let (cutoff, regions) = self.select();
                    cycle.cutoff = cutoff;
                    cycle.step = ColocationStep::Move { regions, offset: UNIT_OCTETS };
                    left = left.saturating_sub(self.regions.len());
                    false
                }
                ColocationStep::Move { regions, offset } => match regions.last().copied() {
                    Some(region) => {
                        let (cutoff, done) = (&mut cycle.cutoff, &mut cycle.done);
                        let at = self.empty(region, *offset, &mut left, (cutoff, done), &mut moved);
                        *offset = at.unwrap_or(UNIT_OCTETS);
                        if at.is_none() {
                            regions.pop();
                        }
                        false
                    }
                    None => {
                        cycle.step =
                            ColocationStep::PageOut { regions: self.coldest(), offset: 0, copy: None };
                        left = left.saturating_sub(self.regions.len());
                        false
                    }
                },
                ColocationStep::PageOut { regions, offset, copy } => match regions.last().copied() {
                    Some(region) => {
                        let before = self.stats.paged_out;
                        if self.page_out(region, offset, copy, &mut left) {
                            regions.pop();
                            *offset = 0;
                        }
                        cycle.done.paged_out += self.stats.paged_out - before;
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

    /// Gives the memory of a region back that a device has by now, if there is one. It needs no cycle.
    pub fn settle(&mut self) {
        self.unmap_written(&mut 1);
    }

    fn unmap_written(&mut self, left: &mut usize) {
        while *left > 0
            && let Some(written) = self.writer.as_mut().and_then(|writer| writer.written())
        {
            let region = written.region;
            if let Err(_error) = &written.result {
                self.stats.write_errors += 1;
                self.writes_from_cycle = self.stats.cycles + CYCLES_AFTER_ERROR;
            }
            // It may have been changed meanwhile, or be free.
            if self.regions[region].state != RegionState::Writing(written.number) {
                continue;
            }
            match written.result {
                Ok(()) => {
                    self.memory.unmap(region);
                    self.regions[region].state = RegionState::Slow;
                    self.stats.paged_out += 1;
                    *left = left.saturating_sub(UNMAP);
                }
                Err(_) => self.stays_fast(region),
            }
        }
    }

    /// Moves the records that were read in slow memory to fast memory.
    fn promote(&mut self, left: &mut usize, moved: &mut impl FnMut(Owner, RecordLocation)) {
        while *left > 0
            && let Some((at, owner)) = self.promotions.pop()
        {
            let (region, offset) = (at.region(), at.offset());
            // The record may have been removed since, or its region freed and filled again.
            if self.regions[region].state != RegionState::Slow || offset >= self.regions[region].used {
                continue;
            }
            let halvings = self.regions[region].halvings(self.epoch);
            if self.memory.is_mapped(region) {
                *left = left.saturating_sub(MOVE);
                if self.memory.header(region, offset).owner != owner {
                    continue;
                }
                let counter = self.memory.access_counter(region, offset);
                counter.store(counter.load(Ordering::Relaxed) >> halvings, Ordering::Relaxed);
                let span = self.memory.header(region, offset).span();
                if self.move_record(region, offset, Fill::Hot, moved).is_err() {
                    return;
                }
                self.page_out_again(region, offset..offset + span, left);
                continue;
            }
            *left = left.saturating_sub(MOVE_FROM_DEVICE);
            let mut read = Vec::new();
            let Ok((counter, header)) = self.fetch(owner, at, &mut read) else { continue };
            // The device has the counter as it was written; the read counts as well.
            let counter = (counter >> halvings).saturating_add(1);
            let Ok((to, room)) = self.allocate(Fill::Hot, header.span()) else { return };
            let octets = &read[crate::record::HEADER_OCTETS..][..usize::from(header.len)];
            self.write(to, room, (counter, header), octets);
            self.placed(to, counter, header);
            self.has_moved((region, offset, header), (to, room), moved);
        }
    }

    /// Pages out what a read has brought back from swap: the other records there are as cold as before.
    fn page_out_again(&mut self, region: usize, record: std::ops::Range<usize>, left: &mut usize) {
        // Its last record may have left, and the region with it.
        if self.regions[region].state == RegionState::Slow && self.memory.is_mapped(region) {
            let from = record.start / PAGE * PAGE;
            self.memory.page_out(region, from, record.end.next_multiple_of(PAGE) - from);
            *left = left.saturating_sub(SWAP_PAGE);
        }
    }

    /// Counts a region's octets by hotness, or a part of it. Returns whether it is done with the region.
    fn scan(
        &mut self,
        region: usize,
        part: &mut Option<PartlyScanned>,
        left: &mut usize,
        done: &mut Colocation,
    ) -> bool {
        *left -= 1;
        let epoch = self.epoch;
        let state = &mut self.regions[region];
        if !matches!(state.state, RegionState::Filling | RegionState::Fast | RegionState::Writing(_)) {
            *part = None;
            return true;
        }
        let halvings = state.halvings(epoch);
        let begun = part.take().filter(|part| part.generation == state.generation);
        if begun.is_none() && !state.changed {
            // No counter of it is read: the histogram follows from the last one.
            state.histogram = (state.histogram.0.halved(epoch.wrapping_sub(state.histogram.1)), epoch);
            return true;
        }
        state.changed = false;
        let fresh = || PartlyScanned {
            generation: state.generation,
            offset: UNIT_OCTETS,
            histogram: Histogram::default(),
        };
        let mut at = begun.unwrap_or_else(fresh);
        while at.offset < self.regions[region].used {
            if *left == 0 {
                *part = Some(at);
                return false;
            }
            *left -= 1;
            let header = self.memory.header(region, at.offset);
            done.scanned += 1;
            if !header.is_removed() {
                let counter = self.memory.access_counter(region, at.offset);
                let counted = counter.load(Ordering::Relaxed);
                // A page that is not changed need not be written again.
                if halvings > 0 && counted > 0 {
                    counter.store(counted >> halvings, Ordering::Relaxed);
                }
                at.histogram.add(counted >> halvings, header.span());
            }
            at.offset += header.span();
        }
        self.regions[region].histogram = (at.histogram, epoch);
        self.regions[region].epoch = epoch;
        true
    }

    /// The cutoff, and the regions to be emptied.
    fn select(&self) -> (Cutoff, Vec<(usize, u32)>) {
        let mut all = Histogram::default();
        let in_fast =
            |state| matches!(state, RegionState::Filling | RegionState::Fast | RegionState::Writing(_));
        self.regions.iter().filter(|r| in_fast(r.state)).for_each(|r| all.add_all(&r.histogram.0));
        let cutoff = all.cutoff(self.config.fast_octets, self.config.partial_fill);
        let (low, high) = self.config.hot_percent;
        let selected = self.regions.iter().enumerate().filter(|(_, r)| {
            let hot = r.histogram.0.hot_octets(cutoff) * 100 / REGION_OCTETS as u64;
            let sparse = r.live * 100 < r.used * SPARSE_PERCENT;
            r.state == RegionState::Fast && (sparse || (u64::from(low) <= hot && hot <= u64::from(high)))
        });
        (cutoff, selected.map(|(index, r)| (index, r.generation)).collect())
    }

    /// Moves the records of a region out of it, from an offset on. Returns where to go on.
    fn empty(
        &mut self,
        (region, generation): (usize, u32),
        mut offset: usize,
        left: &mut usize,
        (cutoff, done): (&mut Cutoff, &mut Colocation),
        moved: &mut impl FnMut(Owner, RecordLocation),
    ) -> Option<usize> {
        // The last record's move frees the region, which may be reused at once.
        while self.regions[region].generation == generation
            && self.regions[region].state == RegionState::Fast
            && offset < self.regions[region].used
        {
            if *left == 0 {
                return Some(offset);
            }
            let header = self.memory.header(region, offset);
            *left -= 1;
            if !header.is_removed() {
                *left = left.saturating_sub(MOVE);
                let halvings = self.regions[region].halvings(self.epoch);
                let counter = self.memory.access_counter(region, offset).load(Ordering::Relaxed) >> halvings;
                let hot = cutoff.takes(counter, header.span());
                let fill = if hot { Fill::Hot } else { Fill::Cold };
                self.memory.access_counter(region, offset).store(counter, Ordering::Relaxed);
                if self.move_record(region, offset, fill, moved).is_err() {
                    return None;
                }
                *if hot { &mut done.hot } else { &mut done.cold } += 1;
            }
            offset += header.span();
        }
        None
    }

    /// Errors: no room. The record stays where it is.
    fn move_record(
        &mut self,
        region: usize,
        offset: usize,
        fill: Fill,
        moved: &mut impl FnMut(Owner, RecordLocation),
    ) -> Result<(), Error> {
        let header = self.memory.header(region, offset);
        let (to, at) = self.allocate(fill, header.span())?;
        let counter = self.memory.access_counter(region, offset).load(Ordering::Relaxed);
        self.memory.copy((region, offset), (to, at), header.span());
        self.placed(to, counter, header);
        self.has_moved((region, offset, header), (to, at), moved);
        Ok(())
    }

    fn has_moved(
        &mut self,
        (region, offset, header): (usize, usize, RecordHeader),
        (to, at): (usize, usize),
        moved: &mut impl FnMut(Owner, RecordLocation),
    ) {
        moved(header.owner, place(to, at));
        self.vacate(region, offset, header);
        self.stats.moved += 1;
    }

    /// The coldest regions of fast memory, as many as are too much for it; the coldest last.
    fn coldest(&self) -> Vec<(usize, u32)> {
        let waits = self.stats.cycles < self.writes_from_cycle;
        if waits || (self.writer.is_none() && !matches!(self.config.backing, Backing::Swap)) {
            return Vec::new();
        }
        // Those that are being written leave anyway.
        let fast = self
            .regions
            .iter()
            .filter(|r| matches!(r.state, RegionState::Filling | RegionState::Fast))
            .count();
        let over = fast.saturating_sub((self.config.fast_octets / REGION_OCTETS as u64) as usize);
        let of_fast = |region: &usize| self.regions[*region].state == RegionState::Fast;
        let mut regions: Vec<usize> = (0..self.regions.len()).filter(of_fast).collect();
        regions.sort_by_cached_key(|region| Reverse(self.regions[*region].histogram.0.mean_bin()));
        let coldest = regions.split_off(regions.len().saturating_sub(over));
        coldest.into_iter().map(|region| (region, self.regions[region].generation)).collect()
    }

    /// Pages out a part of a region, and returns whether nothing of it is left to do. To a device, a copy goes: no caller waits for the
    /// disk.
    fn page_out(
        &mut self,
        (region, generation): (usize, u32),
        offset: &mut usize,
        copy: &mut Option<(u32, Vec<u8>)>,
        left: &mut usize,
    ) -> bool {
        *left = left.saturating_sub(1);
        let is = |heap: &Self, state| {
            heap.regions[region].generation == generation && heap.regions[region].state == state
        };
        let Some(writer) = &mut self.writer else {
            if !is(self, RegionState::Fast) {
                return true;
            }
            let pages = (*left / SWAP_PAGE).max(1).min((REGION_OCTETS - *offset) / PAGE);
            *left = left.saturating_sub(pages * SWAP_PAGE);
            self.memory.page_out(region, *offset, pages * PAGE);
            *offset += pages * PAGE;
            if *offset < REGION_OCTETS {
                return false;
            }
            self.regions[region].state = RegionState::Slow;
            self.stats.paged_out += 1;
            return true;
        };
        if copy.is_none() {
            // Without a free buffer, the region waits for the next cycle.
            let Some(buffer) = writer.buffer() else { return true };
            if !is(self, RegionState::Fast) {
                self.give_back(buffer);
                return true;
            }
            self.jobs = self.jobs.wrapping_add(1);
            self.regions[region].state = RegionState::Writing(self.jobs);
            *copy = Some((self.jobs, buffer));
        }
        let Some((number, mut octets)) = copy.take() else { return true };
        if !is(self, RegionState::Writing(number)) {
            self.give_back(octets);
            return true;
        }
        let used = self.regions[region].used;
        let part = ((*left / COPY_PAGE).max(1) * PAGE).min(used - *offset);
        *left = left.saturating_sub(part.div_ceil(PAGE) * COPY_PAGE);
        octets.extend_from_slice(self.memory.raw_octets(region, *offset, part));
        *offset += part;
        if *offset < used {
            *copy = Some((number, octets));
            return false;
        }
        let job = Job { region, number, offset: device_offset(region), octets };
        if self.writer.as_mut().is_some_and(|writer| !writer.write(job)) {
            self.stays_fast(region);
            self.writes_from_cycle = u64::MAX;
        }
        true
    }

    fn give_back(&mut self, buffer: Vec<u8>) {
        if let Some(writer) = &mut self.writer {
            writer.give_back(buffer);
        }
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
