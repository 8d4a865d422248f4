//! Memory in which the state of associations outlives the process that serves them.
//!
//! ```text
//! header | owner | current | bank 0: a slot for each association | bank 1
//! ```
//!
//! One process owns the memory: the one whose generation is in `owner`. It writes one bank. A successor raises `owner`, reads the bank that
//! `current` names, writes what it continues to the other bank, and then names that one. So neither a former owner that is only frozen, and
//! writes again later, nor a successor that dies on its way harms the state that is read.
//!
//! **What remains.** A former owner checks `owner` after it has published the state that its packets depend on, and before it sends them. One
//! that is stopped between that check and the system call sends one batch of packets later: its successor has read the state behind them, so
//! to the peer they are packets that the network delayed. One that is stopped before it reads a socket may take one batch of packets from the
//! successor, which peers send again. The memory of a generation is used again by the next but one: the starter of successors has to end a
//! former owner, frozen or not, before it starts another one.

use std::io;
use std::os::fd::OwnedFd;

use whimbrel_sctp::{Config, Layout, SavedStore, Store};

use crate::sys::memory::{SharedMemory, sealed_file};

const MAGIC: &[u8; 8] = b"sctp-st1";
/// The header: magic, slots, layout, secret, checksum. It is written once.
const HEADER_OCTETS: usize = 76;
const OWNER_AT: usize = 1024;
const CURRENT_AT: usize = 1088;
const BANKS_AT: usize = 4096;
/// More associations than any configuration has; it bounds what a header may claim.
const SLOTS_MAX: u32 = 1 << 20;

/// Creates the memory for the associations of an endpoint with this configuration. Pages that nothing was written to take no memory.
///
/// Errors: those of memfd_create(2) and ftruncate(2).
pub fn create_store(config: &Config, secret: [u8; 32]) -> io::Result<OwnedFd> {
    let layout = Layout::of(config);
    let slots = u32::try_from(config.associations_max).unwrap_or(SLOTS_MAX).min(SLOTS_MAX);
    let bank = slots as usize * layout.slot_octets();
    let file = sealed_file((BANKS_AT + 2 * bank) as u64)?;
    let mut header = Vec::with_capacity(HEADER_OCTETS);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&slots.to_be_bytes());
    for field in [layout.head_octets, layout.journal_octets] {
        header.extend_from_slice(&(field as u64).to_be_bytes());
    }
    header.extend_from_slice(&secret);
    header.extend_from_slice(&[0; 12]);
    header.extend_from_slice(&crc32c_of(&header).to_be_bytes());
    let mut memory = SharedMemory::open(file.try_clone()?)?;
    memory.write(0, &header);
    Ok(file)
}

fn crc32c_of(octets: &[u8]) -> u32 {
    crc32c::crc32c(octets)
}

/// The memory of associations, as the process has it that owns it, or did.
pub(crate) struct AssociationStore {
    memory: SharedMemory,
    slots: u32,
    layout: Layout,
    /// The generation of this owner, and the bank that it writes.
    generation: u64,
    bank: usize,
    /// The bank of the former owner; `None` if there was none.
    former: Option<usize>,
}

impl AssociationStore {
    /// Takes the memory over: from here on no former owner sends anything new. Returns the secret of the endpoints, too.
    ///
    /// Errors: it is no such memory, or it cannot be mapped.
    pub(crate) fn take(file: OwnedFd) -> io::Result<(Self, [u8; 32])> {
        let memory = SharedMemory::open(file)?;
        let (slots, layout, secret) = memory
            .read(0, HEADER_OCTETS)
            .and_then(|header| read_header(&header, memory.octets()))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is no memory of associations"))?;
        let generation = memory.increment(OWNER_AT);
        let former = match memory.load(CURRENT_AT) {
            0 => None,
            current => Some((current & 1) as usize),
        };
        let bank = former.map_or(0, |former| 1 - former);
        let store = Self { memory, slots, layout, generation, bank, former };
        store.clear(store.bank)?;
        Ok((store, secret))
    }

    fn clear(&self, bank: usize) -> io::Result<()> {
        self.memory.clear(self.slot_at(bank, 0), self.slots as usize * self.layout.slot_octets())
    }

    fn slot_at(&self, bank: usize, slot: u32) -> usize {
        BANKS_AT + (bank * self.slots as usize + slot as usize) * self.layout.slot_octets()
    }

    /// How many owners there were before.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether no other process has taken it over.
    pub(crate) fn is_owner(&self) -> bool {
        self.memory.load(OWNER_AT) == self.generation
    }

    /// All that is continued is in this owner's bank: that one counts from now on, and the former one's memory is free.
    pub(crate) fn settle(&mut self) {
        self.memory.store(CURRENT_AT, self.generation << 1 | self.bank as u64);
        if let Some(former) = self.former.take() {
            // Not given back, it is cleared by the next owner.
            let _ = self.clear(former);
        }
    }
}

fn read_header(header: &[u8], octets: usize) -> Option<(u32, Layout, [u8; 32])> {
    let (content, sum) = header.split_last_chunk::<4>()?;
    let (magic, rest) = content.split_first_chunk::<8>()?;
    if magic != MAGIC || crc32c_of(content).to_be_bytes() != *sum {
        return None;
    }
    let (slots, rest) = rest.split_first_chunk::<4>()?;
    let (head, rest) = rest.split_first_chunk::<8>()?;
    let (journal, rest) = rest.split_first_chunk::<8>()?;
    let size = |field: &[u8; 8]| usize::try_from(u64::from_be_bytes(*field)).ok().filter(|s| *s < 1 << 40);
    let layout = Layout { head_octets: size(head)?, journal_octets: size(journal)? };
    let slots = u32::from_be_bytes(*slots);
    let bank = layout.slot_octets().checked_mul(slots as usize)?;
    let fits = slots <= SLOTS_MAX && bank.checked_mul(2)?.checked_add(BANKS_AT)? == octets;
    fits.then_some((slots, layout, *rest.first_chunk()?))
}

impl Store for AssociationStore {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn slots(&self) -> u32 {
        self.slots
    }

    fn write(&mut self, slot: u32, at: usize, octets: &[u8]) {
        if slot < self.slots && at + octets.len() <= self.layout.slot_octets() {
            self.memory.write(self.slot_at(self.bank, slot) + at, octets);
        }
    }

    fn publish(&mut self, slot: u32, word: u64) {
        if slot < self.slots {
            self.memory.store(self.slot_at(self.bank, slot), word);
        }
    }
}

impl SavedStore for AssociationStore {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn word(&self, slot: u32) -> u64 {
        match self.former {
            Some(former) if slot < self.slots => self.memory.load(self.slot_at(former, slot)),
            _ => 0,
        }
    }

    fn read(&self, slot: u32, at: usize, octets: usize) -> Option<Vec<u8>> {
        let former = self.former.filter(|_| slot < self.slots)?;
        let inside = at.checked_add(octets)? <= self.layout.slot_octets();
        inside.then(|| self.memory.read(self.slot_at(former, slot) + at, octets))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config { associations_max: 3, ..Config::new(38412) }
    }

    #[test]
    fn a_successor_reads_what_its_predecessor_published_and_fences_it() {
        let file = create_store(&config(), [1; 32]).unwrap();
        let (mut first, secret) = AssociationStore::take(file.try_clone().unwrap()).unwrap();
        assert_eq!((first.generation(), secret, first.word(0)), (1, [1; 32], 0));
        first.settle();
        first.write(2, 100, b"state");
        first.publish(2, 7);
        assert!(first.is_owner());
        let (mut second, _) = AssociationStore::take(file.try_clone().unwrap()).unwrap();
        assert!(!first.is_owner() && second.is_owner());
        assert_eq!((second.word(2), second.read(2, 100, 5)), (7, Some(b"state".to_vec())));
        assert_eq!((second.word(1), second.word(3)), (0, 0));
        second.write(2, 100, b"newer");
        second.publish(2, 8);
        first.write(2, 100, b"late!"); // it was frozen, and goes on
        second.settle();
        let (third, _) = AssociationStore::take(file).unwrap();
        assert_eq!((third.word(2), third.read(2, 100, 5)), (8, Some(b"newer".to_vec())));
    }

    #[test]
    fn a_successor_that_dies_before_it_has_settled_changes_nothing() {
        let file = create_store(&config(), [1; 32]).unwrap();
        let (mut first, _) = AssociationStore::take(file.try_clone().unwrap()).unwrap();
        first.settle();
        first.publish(0, 5);
        let (mut second, _) = AssociationStore::take(file.try_clone().unwrap()).unwrap();
        second.publish(1, 6);
        drop(second);
        let (third, _) = AssociationStore::take(file).unwrap();
        assert_eq!((third.word(0), third.word(1)), (5, 0));
    }

    #[test]
    fn other_memory_is_refused() {
        assert!(AssociationStore::take(sealed_file(1 << 20).unwrap()).is_err(), "zeros");
        let file = create_store(&config(), [1; 32]).unwrap();
        SharedMemory::open(file.try_clone().unwrap()).unwrap().write(9, &[0xff]);
        assert!(AssociationStore::take(file).is_err(), "another number of slots");
        let unsealed = tempfile::tempfile().unwrap();
        unsealed.set_len(1 << 20).unwrap();
        assert!(AssociationStore::take(unsealed.into()).is_err(), "it could be shortened");
    }
}
