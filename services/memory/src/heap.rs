//! The heap: records in regions.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::activation::Activation;
use crate::colocate::Cycle;
use crate::device::{BackingFile, Device};
use crate::histogram::Histogram;
use crate::memory::{Backing, REGION_OCTETS, RegionMemory};
use crate::record::{
    self, HEADER_OCTETS, MAX_RECORD_OCTETS, MAX_REGIONS, Owner, REMOVED, RecordHeader, RecordLocation,
    UNIT_OCTETS,
};
use crate::writer::RecordWriter;

/// Records in cold regions that were read since the last slice and wait to be moved to fast memory. At the bound, further ones stay
/// where they are until they are read again.
const PROMOTIONS_MAX: usize = 4096;

/// Octets that a read from a device takes at first: a record of most callers, with its header.
const READ_OCTETS: usize = 512;

/// How a heap places its records.
#[derive(Clone, Debug)]
pub struct Config {
    /// Fast memory for regions, in octets.
    pub fast_octets: u64,
    /// All memory for regions, fast and slow, in octets. At most 64 GiB are used.
    pub max_octets: u64,
    /// Where cold regions go.
    pub backing: Backing,
    /// Records are moved out of a region if its share of hot octets is between these, in percent: below, moving is not worth the scan;
    /// above, the region is hot already.
    pub hot_percent: (u8, u8),
    /// Whether the cutoff bin fills what the hotter bins leave of fast memory.
    pub partial_fill: bool,
    /// Counters are halved after so many colocation cycles.
    pub decay_cycles: u32,
}

impl Config {
    /// So much fast memory, and all else in `backing`.
    #[must_use]
    pub fn new(fast_octets: u64, backing: Backing) -> Self {
        Self {
            fast_octets,
            max_octets: u64::MAX,
            backing,
            hot_percent: (5, 90),
            partial_fill: true,
            decay_cycles: 4,
        }
    }
}

/// Why a heap refuses.
#[derive(Debug)]
pub enum Error {
    /// The record is longer than [`MAX_RECORD_OCTETS`].
    TooLong {
        /// Octets of the record.
        octets: usize,
    },
    /// No memory is left within `max_octets`.
    Full,
    /// The kernel gives no memory.
    NoMemory(io::Error),
    /// No record of this owner is at this place.
    NotHere {
        /// The owner that asked.
        owner: Owner,
    },
    /// The device cannot read the record.
    Unreadable(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { octets } => {
                write!(f, "a record of {octets} octets is longer than {MAX_RECORD_OCTETS}")
            }
            Self::Full => write!(f, "the heap has reached its limit"),
            Self::NoMemory(error) => write!(f, "the kernel gives no memory for a region: {error}"),
            Self::NotHere { owner } => write!(f, "no record of owner {owner} is at this place"),
            Self::Unreadable(error) => write!(f, "the slow tier cannot read a record: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// What a heap holds and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of records.
    pub records: u64,
    /// Octets of records, with headers.
    pub live_octets: u64,
    /// Octets of regions that are in fast memory.
    pub fast_octets: u64,
    /// Octets of regions that are paged out.
    pub slow_octets: u64,
    /// Reads of records in regions of fast memory.
    pub fast_reads: u64,
    /// Reads of records in regions that are paged out: each may wait for the slow tier.
    pub slow_reads: u64,
    /// Records that a colocation moved.
    pub moved: u64,
    /// Regions that were paged out.
    pub paged_out: u64,
    /// Regions that could not be paged out, since the device was full or failed: they stay in fast memory.
    pub write_errors: u64,
    /// Records that the device could not read.
    pub read_errors: u64,
    /// Colocation cycles that ended.
    pub cycles: u64,
}

/// What is known of a region without touching it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeapRegion {
    pub(crate) state: RegionState,
    /// Octets that records have been given, from the beginning.
    pub(crate) used: usize,
    /// Octets of those that were not removed.
    pub(crate) live: usize,
    /// Increases when the region is freed: what was known of its records is void.
    pub(crate) generation: u32,
    /// The decay epoch up to which its counters are halved.
    pub(crate) epoch: u32,
    /// Octets by hotness, up to this decay epoch.
    pub(crate) histogram: (Histogram, u32),
    /// Records were counted, written or removed since the last scan.
    pub(crate) changed: bool,
    /// Units of records that were removed after the region had been copied to be written: the copy still has them.
    pub(crate) removed: Vec<u32>,
}

impl HeapRegion {
    /// How often its counters are still to be halved.
    pub(crate) fn halvings(&self, epoch: u32) -> u32 {
        // The last of sixteen bits goes with the sixteenth halving: a record that is counted now is to have one left.
        epoch.wrapping_sub(self.epoch).min(u16::BITS - 1)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RegionState {
    /// The region holds nothing.
    #[default]
    Free,
    /// The region takes records.
    Filling,
    /// In fast memory.
    Fast,
    /// In fast memory; a copy of it is made or being written, by this job.
    Writing(u32),
    /// Paged out. A scan does not touch it.
    Slow,
}

/// What a region that takes records is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// The region of new records.
    New,
    /// Hot records that a colocation moved.
    Hot,
    /// Cold records that a colocation moved.
    Cold,
}

/// A heap of records.
pub struct Heap {
    pub(crate) config: Config,
    pub(crate) memory: RegionMemory,
    device: Option<Arc<dyn Device>>,
    pub(crate) writer: Option<RecordWriter>,
    /// Jobs of the writer so far.
    pub(crate) jobs: u32,
    /// No region is written before this cycle: the device has failed lately.
    pub(crate) writes_from_cycle: u64,
    /// The record that was read from the device last, with its header.
    read: Vec<u8>,
    pub(crate) regions: Vec<HeapRegion>,
    free: Vec<usize>,
    filling: [Option<usize>; 3],
    pub(crate) activation: Activation,
    pub(crate) promotions: Vec<(RecordLocation, Owner)>,
    pub(crate) cycle: Option<Cycle>,
    pub(crate) epoch: u32,
    pub(crate) stats: Stats,
}

impl Heap {
    /// An empty heap, whose reads are counted while `activation` is active.
    ///
    /// # Errors
    /// The backing file cannot be created, or no thread for a device.
    pub fn new(config: Config, activation: Activation) -> io::Result<Self> {
        let device: Option<Arc<dyn Device>> = match &config.backing {
            Backing::None | Backing::Swap => None,
            Backing::File(path) => Some(Arc::new(BackingFile::create(path)?)),
            Backing::Device(device) => Some(device.clone()),
        };
        Ok(Self {
            memory: RegionMemory::default(),
            writer: device.clone().map(RecordWriter::start).transpose()?,
            device,
            jobs: 0,
            writes_from_cycle: 0,
            read: Vec::new(),
            config,
            regions: Vec::new(),
            free: Vec::new(),
            filling: [None; 3],
            activation,
            promotions: Vec::new(),
            cycle: None,
            epoch: 0,
            stats: Stats::default(),
        })
    }

    /// Keeps a record.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Full`], [`Error::NoMemory`].
    pub fn insert(&mut self, owner: Owner, octets: &[u8]) -> Result<RecordLocation, Error> {
        assert_ne!(owner, REMOVED, "the last number is no owner");
        let len = u16::try_from(octets.len()).map_err(|_| Error::TooLong { octets: octets.len() })?;
        let header = RecordHeader { len, owner };
        let (region, offset) = self.allocate(Fill::New, header.span())?;
        self.write(region, offset, (0, header), octets);
        self.placed(region, 0, header);
        self.stats.records += 1;
        Ok(place(region, offset))
    }

    /// A record has come to a region: it counts in how hot the region is before the next scan.
    pub(crate) fn placed(&mut self, region: usize, counter: u16, header: RecordHeader) {
        self.regions[region].histogram.0.add(counter, header.span());
        self.regions[region].changed = true;
    }

    /// Writes a record where room was allocated.
    pub(crate) fn write(
        &mut self,
        region: usize,
        offset: usize,
        (counter, header): (u16, RecordHeader),
        octets: &[u8],
    ) {
        self.memory.access_counter(region, offset).store(counter, Ordering::Relaxed);
        self.memory.set_header(region, offset, header);
        self.memory.set_octets(region, offset, octets);
        self.regions[region].changed = true;
    }

    /// A record's octets. The read is counted if a window is open.
    ///
    /// # Errors
    /// [`Error::NotHere`], [`Error::Unreadable`].
    pub fn read(&mut self, owner: Owner, at: RecordLocation) -> Result<&[u8], Error> {
        let (region, offset) = (at.region(), at.offset());
        if self.is_on_device(at) {
            let mut read = std::mem::take(&mut self.read);
            let found = self.fetch(owner, at, &mut read);
            self.read = read;
            let (_, header) = found
                .inspect_err(|e| self.stats.read_errors += u64::from(matches!(e, Error::Unreadable(_))))?;
            self.stats.slow_reads += 1;
            self.promote_later(at, owner);
            return Ok(&self.read[HEADER_OCTETS..][..usize::from(header.len)]);
        }
        let header = self.find(owner, at)?;
        if self.activation.is_active() {
            let halvings = self.regions[region].halvings(self.epoch);
            self.memory.add_accesses(region, offset, 1 << halvings);
            self.regions[region].changed = true;
        }
        if self.regions[region].state == RegionState::Slow {
            self.stats.slow_reads += 1;
            self.promote_later(at, owner);
        } else {
            self.stats.fast_reads += 1;
        }
        Ok(self.memory.octets(region, offset, usize::from(header.len)))
    }

    fn promote_later(&mut self, at: RecordLocation, owner: Owner) {
        if self.promotions.len() < PROMOTIONS_MAX {
            self.promotions.push((at, owner));
        }
    }

    /// A record's octets, without counting: for readers that say nothing of how often the record is used, as lists and copies.
    ///
    /// # Errors
    /// [`Error::NotHere`], [`Error::Unreadable`].
    pub fn peek(&self, owner: Owner, at: RecordLocation) -> Result<Cow<'_, [u8]>, Error> {
        if self.is_on_device(at) {
            let mut read = Vec::new();
            let (_, header) = self.fetch(owner, at, &mut read)?;
            read.truncate(HEADER_OCTETS + usize::from(header.len));
            read.drain(..HEADER_OCTETS);
            return Ok(read.into());
        }
        let header = self.find(owner, at)?;
        Ok(self.memory.octets(at.region(), at.offset(), usize::from(header.len)).into())
    }

    /// Whether the record at a place is in the slow tier: a read may wait for it.
    #[must_use]
    pub fn is_slow(&self, at: RecordLocation) -> bool {
        self.regions.get(at.region()).is_some_and(|region| region.state == RegionState::Slow)
    }

    /// Whether a place is in a region that only a device has.
    fn is_on_device(&self, at: RecordLocation) -> bool {
        self.is_slow(at) && !self.memory.is_mapped(at.region())
    }

    /// Reads a record from the device, with its counter and header.
    pub(crate) fn fetch(
        &self,
        owner: Owner,
        at: RecordLocation,
        into: &mut Vec<u8>,
    ) -> Result<(u16, RecordHeader), Error> {
        let (region, offset) = (&self.regions[at.region()], at.offset());
        if offset >= region.used || region.removed.contains(&unit(offset)) {
            return Err(Error::NotHere { owner });
        }
        let device = self.device.as_ref().ok_or(Error::NotHere { owner })?;
        let from = device_offset(at.region()) + offset as u64;
        into.resize(READ_OCTETS.min(region.used - offset), 0);
        device.read(from, into).map_err(Error::Unreadable)?;
        let (counter, header) = RecordHeader::read(into).ok_or(Error::NotHere { owner })?;
        let end = offset + HEADER_OCTETS + usize::from(header.len);
        if header.owner != owner || header.is_removed() || end > region.used {
            return Err(Error::NotHere { owner });
        }
        let had = into.len();
        if end - offset > had {
            into.resize(end - offset, 0);
            device.read(from + had as u64, &mut into[had..]).map_err(Error::Unreadable)?;
        }
        Ok((counter, header))
    }

    /// A record's counter and header, wherever it is.
    fn look(&mut self, owner: Owner, at: RecordLocation) -> Result<(u16, RecordHeader), Error> {
        if self.is_on_device(at) {
            return self.fetch(owner, at, &mut Vec::new());
        }
        let header = self.find(owner, at)?;
        let counter = self.memory.access_counter(at.region(), at.offset()).load(Ordering::Relaxed);
        Ok((counter, header))
    }

    /// Sets how much fast memory regions may take; the next colocation cycle pages out what is too much.
    pub fn set_fast_octets(&mut self, fast_octets: u64) {
        self.config.fast_octets = fast_octets;
    }

    /// Rewrites a record; returns its new place.
    ///
    /// # Errors
    /// [`Error::NotHere`], and those of [`Heap::insert`]; the record is then as it was.
    pub fn replace(
        &mut self,
        owner: Owner,
        at: RecordLocation,
        octets: &[u8],
    ) -> Result<RecordLocation, Error> {
        let (counter, old) = match self.look(owner, at) {
            Err(Error::Unreadable(_)) => {
                let new = self.insert(owner, octets)?;
                self.lose(at);
                return Ok(new);
            }
            found => found?,
        };
        let (region, offset) = (at.region(), at.offset());
        let len = u16::try_from(octets.len()).map_err(|_| Error::TooLong { octets: octets.len() })?;
        let header = RecordHeader { len, owner };
        if header.span() != old.span() || !self.memory.is_mapped(region) {
            let (new, to) = self.allocate(Fill::New, header.span())?;
            self.write(new, to, (counter, header), octets);
            self.placed(new, counter, header);
            self.vacate(region, offset, old);
            return Ok(place(new, to));
        }
        if let RegionState::Writing(_) = self.regions[region].state {
            self.stays_fast(region);
        }
        self.write(region, offset, (counter, header), octets);
        Ok(at)
    }

    /// A region that was to be written is in fast memory only.
    pub(crate) fn stays_fast(&mut self, region: usize) {
        self.regions[region].state = RegionState::Fast;
        self.regions[region].removed = Vec::new();
    }

    /// Removes a record.
    ///
    /// # Errors
    /// [`Error::NotHere`].
    pub fn remove(&mut self, owner: Owner, at: RecordLocation) -> Result<(), Error> {
        match self.look(owner, at) {
            Err(Error::Unreadable(_)) => self.lose(at),
            found => {
                let (_, header) = found?;
                self.stats.records -= 1;
                self.vacate(at.region(), at.offset(), header);
            }
        }
        Ok(())
    }

    /// A record that the device cannot read is no longer of use. Its room is not used again.
    fn lose(&mut self, at: RecordLocation) {
        self.stats.records -= 1;
        self.regions[at.region()].removed.push(unit(at.offset()));
    }

    /// What the heap holds and did.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let octets = |is: fn(RegionState) -> bool| {
            self.regions.iter().filter(|r| is(r.state)).count() as u64 * REGION_OCTETS as u64
        };
        Stats {
            live_octets: self.regions.iter().map(|r| r.live as u64).sum(),
            fast_octets: octets(|state| !matches!(state, RegionState::Free | RegionState::Slow)),
            slow_octets: octets(|state| state == RegionState::Slow),
            ..self.stats
        }
    }

    /// The counts in [`Heap::stats`] that need no pass over the regions: of octets it has none.
    #[must_use]
    pub fn stats_of_reads(&self) -> Stats {
        self.stats
    }

    /// Whether records were read in slow memory that the next slice moves to fast memory.
    #[must_use]
    pub fn has_promotions(&self) -> bool {
        !self.promotions.is_empty()
    }

    /// Octets of the heap that the kernel has in memory now, by mincore(2): for reports, since it asks for every page.
    #[must_use]
    pub fn resident_octets(&self) -> u64 {
        (0..self.regions.len()).map(|region| self.memory.resident_pages(region) as u64 * 4096).sum()
    }

    fn find(&self, owner: Owner, at: RecordLocation) -> Result<RecordHeader, Error> {
        let (region, offset) = (at.region(), at.offset());
        let within = self.regions.get(region).is_some_and(|r| offset < r.used);
        let header = within.then(|| self.memory.header(region, offset));
        header.filter(|h| h.owner == owner && !h.is_removed()).ok_or(Error::NotHere { owner })
    }

    /// Room for a record, in the region that is filled for this purpose.
    pub(crate) fn allocate(&mut self, fill: Fill, span: usize) -> Result<(usize, usize), Error> {
        if let Some(region) = self.filling[fill as usize] {
            if REGION_OCTETS - self.regions[region].used >= span {
                return Ok(self.take(region, span));
            }
            self.regions[region].state = RegionState::Fast;
            self.filling[fill as usize] = None;
            self.free_if_empty(region);
        }
        let region = match self.free.pop() {
            Some(region) => region,
            None => self.grow()?,
        };
        if let Err(error) = self.memory.map(region) {
            self.free.push(region);
            return Err(Error::NoMemory(error));
        }
        let generation = self.regions[region].generation;
        // No record begins at unit 0, so that no place is zero.
        self.regions[region] = HeapRegion {
            state: RegionState::Filling,
            used: UNIT_OCTETS,
            epoch: self.epoch,
            histogram: (Histogram::default(), self.epoch),
            generation,
            ..HeapRegion::default()
        };
        self.filling[fill as usize] = Some(region);
        Ok(self.take(region, span))
    }

    fn take(&mut self, region: usize, span: usize) -> (usize, usize) {
        let state = &mut self.regions[region];
        let offset = state.used;
        state.used += span;
        state.live += span;
        (region, offset)
    }

    fn grow(&mut self) -> Result<usize, Error> {
        let regions = self.memory.regions();
        let octets = (regions as u64 + 1) * REGION_OCTETS as u64;
        if regions == MAX_REGIONS || octets > self.config.max_octets {
            return Err(Error::Full);
        }
        self.memory.add();
        self.regions.push(HeapRegion::default());
        Ok(regions)
    }

    /// A record is no longer here: it was removed, or has moved.
    pub(crate) fn vacate(&mut self, region: usize, offset: usize, header: RecordHeader) {
        let is_mapped = self.memory.is_mapped(region);
        if is_mapped {
            self.memory.set_header(region, offset, RecordHeader { owner: REMOVED, ..header });
        }
        let state = &mut self.regions[region];
        if !is_mapped || matches!(state.state, RegionState::Writing(_)) {
            state.removed.push(unit(offset));
        }
        state.live -= header.span();
        state.changed = true;
        self.free_if_empty(region);
    }

    fn free_if_empty(&mut self, region: usize) {
        let state = &mut self.regions[region];
        if state.live > 0 || matches!(state.state, RegionState::Filling | RegionState::Free) {
            return;
        }
        let generation = state.generation.wrapping_add(1);
        *state = HeapRegion { generation, ..HeapRegion::default() };
        self.memory.unmap(region);
        self.free.push(region);
    }

    /// Checks what must hold between two calls. For tests: it reads every record of fast and slow memory.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn check(&self) {
        let mut records = 0;
        for (index, region) in self.regions.iter().enumerate() {
            let mut live = 0;
            for header in self.records(index) {
                live += header.span();
                records += 1;
            }
            assert_eq!(region.live, live, "region {index} counts its live octets");
            assert!(region.used <= REGION_OCTETS);
            assert_eq!(region.state == RegionState::Free, self.free.contains(&index));
        }
        assert_eq!(self.stats.records, records, "the heap counts its records");
        for region in self.filling.iter().flatten() {
            assert_eq!(self.regions[*region].state, RegionState::Filling);
        }
    }

    /// The records of a region, as memory or the device has them.
    fn records(&self, index: usize) -> Vec<RecordHeader> {
        let region = &self.regions[index];
        let mut image = vec![0; region.used];
        match &self.device {
            _ if region.state == RegionState::Free => return Vec::new(),
            Some(device) if !self.memory.is_mapped(index) => {
                device.read(device_offset(index), &mut image).expect("the device reads");
            }
            _ => image.copy_from_slice(self.memory.raw_octets(index, 0, region.used)),
        }
        let (mut headers, mut offset) = (Vec::new(), UNIT_OCTETS);
        while let Some((_, header)) = image.get(offset..).and_then(RecordHeader::read) {
            if !header.is_removed() && !region.removed.contains(&unit(offset)) {
                headers.push(header);
            }
            offset += header.span();
        }
        headers
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("config", &self.config)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// The place of a record that was just allocated.
pub(crate) fn place(region: usize, offset: usize) -> RecordLocation {
    debug_assert!(offset >= record::UNIT_OCTETS);
    RecordLocation::new(region, offset).expect("no record begins at unit 0")
}

/// The number of the unit at an offset.
fn unit(offset: usize) -> u32 {
    (offset / UNIT_OCTETS) as u32
}

/// Where a region is on the device.
pub(crate) fn device_offset(region: usize) -> u64 {
    region as u64 * REGION_OCTETS as u64
}
