//! A pool as the processes of a unit have it: areas of their own, and those of the functions with which each is linked.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{pread, pwrite};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::layout::Layout;
use crate::memory::{self, Mapping};
use crate::port::{Memory, Port, padded};

/// The first word of an area's file: its form.
const FORM: u64 = u64::from_be_bytes(*b"wpool\0\0\x02");

/// The area of one life of a function: its file, of which the first page names the pool, and the bell by which it is woken.
pub struct Area {
    /// The memory file of the area.
    pub memory: OwnedFd,
    /// An eventfd: a write to it wakes the function that owns the area.
    pub bell: OwnedFd,
}

impl Area {
    /// Creates an area of a pool for a process that is about to start. Pages that nothing was written to take no memory.
    ///
    /// Errors: those of memfd_create(2), ftruncate(2), write(2) and eventfd(2).
    pub fn create(pool: u64) -> io::Result<Self> {
        let layout = Layout::POOL;
        let memory = memory::file_of_fixed_size(8 * (layout.page + layout.area_words()))?;
        let mut random = [0; 4];
        let mut number = || -> io::Result<u32> {
            getrandom(&mut random, GetRandomFlags::empty())?;
            // Not the last one: the incarnation that follows is not zero.
            Ok(u32::from_ne_bytes(random) >> 1)
        };
        let (life, generation) = (number()?, number()?);
        let area = |word: usize| layout.page + word - layout.area(0);
        let words = [
            (0, FORM),
            (1, pool),
            (area(layout.owner(0)), life.into()),
            // Peers remember the last generation of the process before in words of their own.
            (area(layout.generation(0)), generation.into()),
        ];
        for (at, value) in words {
            pwrite(&memory, &value.to_ne_bytes(), 8 * at as u64)?;
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { memory, bell })
    }

    /// Seals the memory: only the process that has mapped it already can write to it.
    ///
    /// Errors: those of fcntl(2).
    pub fn seal(&self) -> io::Result<()> {
        memory::seal(&self.memory)
    }

    /// The same area with duplicated descriptors. Errors: those of dup(2).
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { memory: self.memory.try_clone()?, bell: self.bell.try_clone()? })
    }

    /// The number of its pool.
    fn pool(&self) -> Result<u64, PoolOpenError> {
        let mut octets = [0; 16];
        let read = pread(&self.memory, &mut octets[..], 0).map_err(|e| PoolOpenError::System(e.into()))?;
        let word = |at: usize| octets.get(at..at + 8)?.try_into().map(u64::from_ne_bytes).ok();
        match (word(0), word(8)) {
            (Some(FORM), Some(pool)) if read == octets.len() => Ok(pool),
            _ => Err(PoolOpenError::Foreign),
        }
    }
}

/// All areas of a pool, for processes that trust each other as one program does: tests and experiments. They are not sealed.
pub struct Made {
    /// That of each function.
    pub areas: Vec<Area>,
}

/// Creates all areas of a pool.
///
/// Errors: those of [`Area::create`].
pub fn create() -> io::Result<Made> {
    let mut id = [0; 8];
    getrandom(&mut id, GetRandomFlags::empty())?;
    let area = |_| Area::create(u64::from_ne_bytes(id));
    Ok(Made { areas: (0..Layout::POOL.functions).map(area).collect::<io::Result<_>>()? })
}

impl Made {
    /// The pool of one of the functions, which is linked with all others.
    ///
    /// Errors: [`PoolOpenError`].
    pub fn open(&self, own: usize) -> Result<Pool, PoolOpenError> {
        let area = |of: usize| {
            self.areas
                .get(of)
                .ok_or(PoolOpenError::NoSuchFunction(of))?
                .try_clone()
                .map_err(PoolOpenError::System)
        };
        let mut pool = Pool::open(&area(own)?, own)?;
        for of in (0..self.areas.len()).filter(|of| *of != own) {
            pool.add(of, area(of)?)?;
        }
        Ok(pool)
    }
}

/// Why a pool cannot be used.
#[derive(Debug)]
pub enum PoolOpenError {
    /// There is no function of this number.
    NoSuchFunction(usize),
    /// The memory is no area of this form, or of another pool.
    Foreign,
    /// It cannot be mapped.
    System(io::Error),
}

impl std::fmt::Display for PoolOpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchFunction(n) => write!(f, "the pool has no area {n}"),
            Self::Foreign => f.write_str("the memory is no area of this pool and program"),
            Self::System(e) => write!(f, "an area cannot be mapped: {e}"),
        }
    }
}

impl std::error::Error for PoolOpenError {}

/// The memory and the bells of a pool.
pub struct PooledMemory {
    mapping: Mapping,
    bells: Vec<Option<OwnedFd>>,
}

impl Memory for PooledMemory {
    fn load(&self, at: usize) -> u64 {
        self.mapping.words().get(at).map_or(0, |word: &AtomicU64| word.load(Ordering::Relaxed))
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.mapping.writable(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        let words = self.mapping.words().get(at..).unwrap_or_default();
        for (octets, word) in into.chunks_mut(8).zip(words) {
            let word = word.load(Ordering::Relaxed).to_ne_bytes();
            match <&mut [u8; 8]>::try_from(&mut *octets) {
                Ok(octets) => *octets = word,
                Err(_) => octets.copy_from_slice(&word[..octets.len()]),
            }
        }
    }

    fn write(&self, at: usize, octets: &[u8]) {
        let words = self.mapping.writable_range(at, octets.len().div_ceil(8));
        for (octets, word) in octets.chunks(8).zip(words) {
            let value = octets.try_into().map_or_else(|_| padded(octets), u64::from_ne_bytes);
            word.store(value, Ordering::Relaxed);
        }
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }

    fn ring(&self, of: usize) {
        if let Some(Some(bell)) = self.bells.get(of) {
            // A counter at its limit is readable already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}

/// Areas of other functions that have come while the pool is in use.
#[derive(Clone)]
pub struct AreaArrivals(Arc<Arrived>);

struct Arrived {
    any: AtomicBool,
    areas: Mutex<BTreeMap<usize, Area>>,
    bell: OwnedFd,
}

impl AreaArrivals {
    /// Hands the area of another function's present life to the pool, and wakes its thread.
    pub fn put(&self, of: usize, area: Area) {
        self.0.areas.lock().unwrap_or_else(PoisonError::into_inner).insert(of, area);
        self.0.any.store(true, Ordering::Release);
        // A counter at its limit is readable already.
        let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes());
    }
}

/// A function's place in a pool.
pub struct Pool {
    /// Its end of the rings.
    pub port: Port<PooledMemory>,
    id: u64,
    arrivals: AreaArrivals,
}

impl Pool {
    /// Takes the area of a function for this process: no other has it. Nothing can be written to the area from elsewhere once it is sealed.
    ///
    /// Errors: [`PoolOpenError`].
    pub fn open(area: &Area, own: usize) -> Result<Self, PoolOpenError> {
        let layout = Layout::POOL;
        if own >= layout.functions {
            return Err(PoolOpenError::NoSuchFunction(own));
        }
        let id = area.pool()?;
        let Area { memory, bell } = area.try_clone().map_err(PoolOpenError::System)?;
        let mut mapping = Mapping::reserve(layout.words()).map_err(PoolOpenError::System)?;
        place(&mut mapping, &memory, own, true)?;
        let arrived = Arrived {
            any: AtomicBool::new(false),
            areas: Mutex::default(),
            bell: bell.try_clone().map_err(PoolOpenError::System)?,
        };
        let mut bells: Vec<Option<OwnedFd>> = (0..layout.functions).map(|_| None).collect();
        if let Some(at) = bells.get_mut(own) {
            *at = Some(bell);
        }
        let port = Port::open(PooledMemory { mapping, bells }, layout, own);
        Ok(Self { port, id, arrivals: AreaArrivals(Arc::new(arrived)) })
    }

    /// Maps the area of another function, in place of that of its former life.
    ///
    /// Errors: [`PoolOpenError`].
    pub fn add(&mut self, of: usize, area: Area) -> Result<(), PoolOpenError> {
        if of >= Layout::POOL.functions || of == self.port.own() {
            return Err(PoolOpenError::NoSuchFunction(of));
        }
        if area.pool()? != self.id {
            return Err(PoolOpenError::Foreign);
        }
        let pooled = self.port.memory_mut();
        place(&mut pooled.mapping, &area.memory, of, false)?;
        if let Some(bell) = pooled.bells.get_mut(of) {
            *bell = Some(area.bell);
        }
        Ok(())
    }

    /// True if the area of function `of` is mapped, and this incarnation of the function owns it.
    pub fn maps(&self, of: usize, incarnation: u32) -> bool {
        let layout = Layout::POOL;
        of < layout.functions
            && self.port.memory().load(layout.owner(of)) == u64::from(incarnation)
            && incarnation != 0
    }

    /// True if this area of a function is already mapped. A new manager hands out areas that are in use.
    pub fn has(&self, of: usize, area: &Area) -> bool {
        let layout = Layout::POOL;
        let mut octets = [0; 8];
        let owner = layout.page + layout.owner(0) - layout.area(0);
        let read = pread(&area.memory, &mut octets[..], 8 * owner as u64);
        read.is_ok_and(|n| n == octets.len())
            && u32::try_from(u64::from_ne_bytes(octets)).is_ok_and(|incarnation| self.maps(of, incarnation))
    }

    /// Where areas of others are put that come from now on.
    pub fn arrivals(&self) -> AreaArrivals {
        self.arrivals.clone()
    }

    /// The areas that have come since the last call.
    pub fn take_arrived(&self) -> BTreeMap<usize, Area> {
        let arrived = &self.arrivals.0;
        // A load alone in nearly every turn.
        if !arrived.any.load(Ordering::Relaxed) || !arrived.any.swap(false, Ordering::Acquire) {
            return BTreeMap::new();
        }
        std::mem::take(&mut *arrived.areas.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of this pool, drawn at random.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Becomes readable when another function has something for this one while it sleeps. No other process reads it.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.port.memory().bells.get(self.port.own())?.as_ref().map(AsFd::as_fd)
    }
}

/// Maps the words of an area to their place.
fn place(mapping: &mut Mapping, memory: &OwnedFd, of: usize, is_own: bool) -> Result<(), PoolOpenError> {
    let layout = Layout::POOL;
    let at = layout.area(of)..layout.area(of) + layout.area_words();
    mapping.place(memory, layout.page, at, is_own).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidData => PoolOpenError::Foreign,
        _ => PoolOpenError::System(e),
    })
}
