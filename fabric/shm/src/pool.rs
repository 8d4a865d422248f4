//! A pool as the processes of a unit have it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::layout::Layout;
use crate::memory::{Mapping, sealed_file};
use crate::port::{Memory, Port, padded};

/// The first word of a pool: its form.
const FORM: u64 = u64::from_be_bytes(*b"wpool\0\0\x01");

/// What [`create`] makes.
pub struct Made {
    /// The memory.
    pub memory: OwnedFd,
    /// The bell of each function.
    pub bells: Vec<OwnedFd>,
}

/// Creates a pool. Pages that nothing was written to take no memory.
///
/// Errors: those of memfd_create(2), ftruncate(2), mmap(2) and eventfd(2).
pub fn create() -> io::Result<Made> {
    let layout = Layout::POOL;
    let memory = sealed_file(8 * layout.words())?;
    let mut id = [0; 8];
    getrandom(&mut id, GetRandomFlags::empty())?;
    let header = Mapping::open(&memory, layout.words(), 0..layout.page)?;
    for (at, value) in [FORM, u64::from_ne_bytes(id)].into_iter().enumerate() {
        if let Some(word) = header.writable(at) {
            word.store(value, Ordering::Relaxed);
        }
    }
    let bell = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
    let bells = (0..layout.functions).map(bell).collect::<io::Result<_>>()?;
    Ok(Made { memory, bells })
}

/// Why a pool cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// There is no function of this number, or not a bell for each.
    NoSuchFunction(usize),
    /// The memory is no pool of this form.
    Foreign,
    /// It cannot be mapped.
    System(io::Error),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchFunction(n) => write!(f, "the pool has no area {n} with a bell for each function"),
            Self::Foreign => f.write_str("the memory is no pool of this program"),
            Self::System(e) => write!(f, "the pool cannot be mapped: {e}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// The memory and the bells of a pool.
pub struct Pooled {
    mapping: Mapping,
    bells: Vec<OwnedFd>,
}

impl Memory for Pooled {
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
        if let Some(bell) = self.bells.get(of) {
            // A counter at its limit is readable already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}

/// A function's place in a pool.
pub struct Pool {
    /// Its end of the rings.
    pub port: Port<Pooled>,
    id: u64,
}

impl Pool {
    /// Takes over the area of a function, whose former process has ended. `bells`: those of all functions, in order.
    ///
    /// Errors: [`OpenError`].
    pub fn open(memory: impl AsFd, bells: Vec<OwnedFd>, own: usize) -> Result<Self, OpenError> {
        let layout = Layout::POOL;
        if own >= layout.functions || bells.len() != layout.functions {
            return Err(OpenError::NoSuchFunction(own));
        }
        let area = layout.area(own)..layout.area(own) + layout.area_words();
        let mapping = Mapping::open(memory, layout.words(), area).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => OpenError::Foreign,
            _ => OpenError::System(e),
        })?;
        let pooled = Pooled { mapping, bells };
        if pooled.load(0) != FORM {
            return Err(OpenError::Foreign);
        }
        let id = pooled.load(1);
        Ok(Self { port: Port::open(pooled, layout, own), id })
    }

    /// The number of this pool, drawn at random.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Becomes readable when another function has something for this one while it sleeps. No other process reads it.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.port.memory().bells.get(self.port.own()).map(AsFd::as_fd)
    }
}
