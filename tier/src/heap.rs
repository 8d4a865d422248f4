//! The heap: records in regions.

use std::fmt;
use std::io;

use crate::activation::Activation;
use crate::colocate::Cycle;
use crate::histogram::Histogram;
use crate::memory::{Backing, Memory, REGION_OCTETS};
use crate::record::{self, Header, MAX_RECORD_OCTETS, MAX_REGIONS, Owner, Place, REMOVED, UNIT_OCTETS};

/// Records in cold regions that were read since the last slice and wait to be moved to fast memory. At the bound, further ones stay
/// where they are until they are read again.
const PROMOTIONS_MAX: usize = 4096;

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
        /// Its octets.
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
        }
    }
}

impl std::error::Error for Error {}

/// What a heap holds and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records.
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
    /// Colocation cycles that ended.
    pub cycles: u64,
}

/// What is known of a region without touching it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    pub(crate) state: State,
    /// Octets that records have been given, from the beginning.
    pub(crate) used: usize,
    /// Octets of those that were not removed.
    pub(crate) live: usize,
    /// Increases when the region is freed: what was known of its records is void.
    pub(crate) generation: u32,
    /// The decay epoch up to which its counters are halved.
    pub(crate) epoch: u32,
    /// Octets by hotness at the last scan.
    pub(crate) histogram: Histogram,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Holds nothing.
    #[default]
    Free,
    /// Takes records.
    Filling,
    /// In fast memory.
    Fast,
    /// In fast memory; its changed pages are being written to the backing file.
    Writing,
    /// Paged out. A scan does not touch it.
    Slow,
}

/// What a region that takes records is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// New records.
    New,
    /// Hot records that a colocation moved.
    Hot,
    /// Cold records that a colocation moved.
    Cold,
}

/// A heap of records.
pub struct Heap {
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    pub(crate) regions: Vec<Region>,
    free: Vec<usize>,
    filling: [Option<usize>; 3],
    pub(crate) activation: Activation,
    pub(crate) promotions: Vec<(Place, Owner)>,
    pub(crate) cycle: Option<Cycle>,
    pub(crate) epoch: u32,
    pub(crate) stats: Stats,
}

impl Heap {
    /// An empty heap, whose reads are counted while `activation` is active.
    ///
    /// # Errors
    /// The backing file cannot be created.
    pub fn new(config: Config, activation: Activation) -> io::Result<Self> {
        Ok(Self {
            memory: Memory::new(&config.backing)?,
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
    pub fn insert(&mut self, owner: Owner, octets: &[u8]) -> Result<Place, Error> {
        assert_ne!(owner, REMOVED, "the last number is no owner");
        let len = u16::try_from(octets.len()).map_err(|_| Error::TooLong { octets: octets.len() })?;
        let header = Header { len, owner };
        let (region, offset) = self.allocate(Fill::New, header.span())?;
        self.memory.counter(region, offset).store(0, std::sync::atomic::Ordering::Relaxed);
        self.memory.set_header(region, offset, header);
        self.memory.set_octets(region, offset, octets);
        self.stats.records += 1;
        Ok(place(region, offset))
    }

    /// A record's octets. The read is counted if a window is open.
    ///
    /// # Errors
    /// [`Error::NotHere`].
    pub fn read(&mut self, owner: Owner, at: Place) -> Result<&[u8], Error> {
        let header = self.find(owner, at)?;
        let (region, offset) = (at.region(), at.offset());
        if self.activation.is_active() {
            self.memory.count(region, offset);
        }
        if self.regions[region].state == State::Slow {
            self.stats.slow_reads += 1;
            if self.promotions.len() < PROMOTIONS_MAX {
                self.promotions.push((at, owner));
            }
        } else {
            self.stats.fast_reads += 1;
        }
        Ok(self.memory.octets(region, offset, usize::from(header.len)))
    }

    /// A record's octets, without counting: for readers that say nothing of how often the record is used, as lists and copies.
    ///
    /// # Errors
    /// [`Error::NotHere`].
    pub fn peek(&self, owner: Owner, at: Place) -> Result<&[u8], Error> {
        let header = self.find(owner, at)?;
        Ok(self.memory.octets(at.region(), at.offset(), usize::from(header.len)))
    }

    /// Sets how much fast memory regions may take; the next colocation cycle pages out what is too much.
    pub fn set_fast_octets(&mut self, fast_octets: u64) {
        self.config.fast_octets = fast_octets;
    }

    /// Rewrites a record; returns its new place.
    ///
    /// # Errors
    /// [`Error::NotHere`], and those of [`Heap::insert`]; the record is then as it was.
    pub fn replace(&mut self, owner: Owner, at: Place, octets: &[u8]) -> Result<Place, Error> {
        let old = self.find(owner, at)?;
        let (region, offset) = (at.region(), at.offset());
        let fits = u16::try_from(octets.len()).is_ok_and(|len| Header { len, owner }.span() == old.span());
        if !fits {
            let new = self.insert(owner, octets)?;
            let hotness = self.memory.counter(region, offset).load(std::sync::atomic::Ordering::Relaxed);
            self.memory
                .counter(new.region(), new.offset())
                .store(hotness, std::sync::atomic::Ordering::Relaxed);
            self.remove(owner, at)?;
            return Ok(new);
        }
        if self.regions[region].state == State::Writing {
            self.regions[region].state = State::Fast;
        }
        self.memory.set_header(region, offset, Header { len: octets.len() as u16, owner });
        self.memory.set_octets(region, offset, octets);
        Ok(at)
    }

    /// Removes a record.
    ///
    /// # Errors
    /// [`Error::NotHere`].
    pub fn remove(&mut self, owner: Owner, at: Place) -> Result<(), Error> {
        let header = self.find(owner, at)?;
        self.stats.records -= 1;
        self.vacate(at.region(), at.offset(), header);
        Ok(())
    }

    /// What the heap holds and did.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let octets = |is: fn(State) -> bool| {
            self.regions.iter().filter(|r| is(r.state)).count() as u64 * REGION_OCTETS as u64
        };
        Stats {
            live_octets: self.regions.iter().map(|r| r.live as u64).sum(),
            fast_octets: octets(|state| !matches!(state, State::Free | State::Slow)),
            slow_octets: octets(|state| state == State::Slow),
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

    fn find(&self, owner: Owner, at: Place) -> Result<Header, Error> {
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
            self.regions[region].state = State::Fast;
            self.filling[fill as usize] = None;
            self.free_if_empty(region);
        }
        let region = match self.free.pop() {
            Some(region) => region,
            None => self.grow()?,
        };
        let state = &mut self.regions[region];
        // No record begins at unit 0, so that no place is zero.
        *state = Region {
            state: State::Filling,
            used: UNIT_OCTETS,
            epoch: self.epoch,
            generation: state.generation,
            ..Region::default()
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
        self.memory.grow().map_err(Error::NoMemory)?;
        self.regions.push(Region::default());
        Ok(regions)
    }

    /// A record is no longer here: it was removed, or has moved.
    pub(crate) fn vacate(&mut self, region: usize, offset: usize, header: Header) {
        self.memory.set_header(region, offset, Header { owner: REMOVED, ..header });
        self.regions[region].live -= header.span();
        self.free_if_empty(region);
    }

    fn free_if_empty(&mut self, region: usize) {
        let state = &mut self.regions[region];
        if state.live > 0 || matches!(state.state, State::Filling | State::Free) {
            return;
        }
        let generation = state.generation.wrapping_add(1);
        *state = Region { generation, ..Region::default() };
        self.memory.discard(region);
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
            for (_, header) in self.records(index).filter(|(_, header)| !header.is_removed()) {
                live += header.span();
                records += 1;
            }
            assert_eq!(region.live, live, "region {index} counts its live octets");
            assert!(region.used <= REGION_OCTETS);
            assert_eq!(region.state == State::Free, self.free.contains(&index));
        }
        assert_eq!(self.stats.records, records, "the heap counts its records");
        for region in self.filling.iter().flatten() {
            assert_eq!(self.regions[*region].state, State::Filling);
        }
    }

    /// The records of a region, with where they begin.
    fn records(&self, region: usize) -> impl Iterator<Item = (usize, Header)> {
        let mut offset = UNIT_OCTETS;
        std::iter::from_fn(move || {
            let at = offset;
            (at < self.regions[region].used).then(|| {
                let header = self.memory.header(region, at);
                offset += header.span();
                (at, header)
            })
        })
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
pub(crate) fn place(region: usize, offset: usize) -> Place {
    debug_assert!(offset >= record::UNIT_OCTETS);
    Place::new(region, offset).expect("no record begins at unit 0")
}
