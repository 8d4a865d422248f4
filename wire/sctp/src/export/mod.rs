//! The state of associations for a successor: what another endpoint needs to continue them when this one has ended.
//!
//! [`Endpoint::export`](crate::Endpoint::export) writes what has changed into memory that outlives the process, before the packets that depend
//! on it leave; [`Endpoint::adopt`](crate::Endpoint::adopt) reads it. The order of writes makes it safe at each instant:
//!
//! 1. *Records* of the queued and the received messages are appended to a journal, where the last published head does not point.
//! 2. The *head* (tags, sequence numbers, paths, how much of the journal counts) goes over the older one of two heads.
//! 3. One store of eight octets, the *word*, publishes it.
//!
//! A process that dies in 1 or 2 leaves the former state published, and none of the packets of the new one has left. Head and journal have
//! checksums, and the word names the head: overwritten memory is refused and never read as an older state, whose packets may have
//! left.
//!
//! ```text
//! slot: word | head 0 | head 1 | journal 0 | journal 1        Layout
//! ```
//!
//! A journal is only appended to, so a packet costs its own octets and a head. When little of it counts any more, or it is full, what counts
//! is written to the other journal.

pub(crate) mod record;

use core::fmt;

use crate::config::Config;
use crate::cookie::PEER_ADDRESSES_MAX;
use crate::receive::RANGES_MAX;

/// The form of a head and of its journal. Another one is refused.
pub(crate) const VERSION: u32 = 1;
/// Octets of a head before its body: version, sequence, length and checksum of the body.
pub(crate) const HEAD_PREFIX_OCTETS: usize = 16;
/// Octets of a head's body without paths, streams and gaps: more than there are.
const BODY_FIXED_OCTETS: usize = 192;
/// Octets of a path in a head, two IPv6 addresses and 51 octets of numbers.
const PATH_OCTETS: usize = 96;
/// Room that the journals have beside the most that can count, so that rewriting is rare when much counts.
const JOURNAL_SPARE_OCTETS: usize = 1024 * 1024;
/// A journal is rewritten only when it is longer than this: less is not worth a copy, and stays in a cache.
const REWRITTEN_ABOVE_OCTETS: usize = 32 * 1024;
/// And when less than one part in so many counts: each octet is then copied once more at most.
const REWRITTEN_BELOW_PART: usize = 4;
/// The word of a slot, alone in a cache line.
const WORD_OCTETS: usize = 64;

/// Where things are in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Octets of each of the two heads.
    pub head_octets: usize,
    /// Octets of each of the two journals.
    pub journal_octets: usize,
}

impl Layout {
    /// Whether what this layout has room for has room in another one.
    pub fn fits(&self, other: &Layout) -> bool {
        self.head_octets <= other.head_octets && self.journal_octets <= other.journal_octets
    }

    /// Room for every association that this configuration allows.
    pub fn of(config: &Config) -> Self {
        let streams = usize::from(config.inbound_streams_max) + usize::from(config.outbound_streams);
        let body = BODY_FIXED_OCTETS + PEER_ADDRESSES_MAX * PATH_OCTETS + 2 * streams + 16 * RANGES_MAX;
        // What is received and not released is at most twice the window (`DataReceiver::take`); of what is sent, the beginning of a message whose end
        // is not acknowledged counts beside the buffer.
        let counts = 2 * config.send_buffer_octets + 2 * config.receive_window_octets as usize;
        Self {
            head_octets: (HEAD_PREFIX_OCTETS + body).next_multiple_of(64),
            journal_octets: (counts + JOURNAL_SPARE_OCTETS).next_multiple_of(4096),
        }
    }

    /// Octets of a slot: a multiple of a page.
    pub fn slot_octets(&self) -> usize {
        (WORD_OCTETS + 2 * self.head_octets + 2 * self.journal_octets).next_multiple_of(4096)
    }

    pub(crate) fn head_at(&self, sequence: u32) -> usize {
        WORD_OCTETS + (sequence & 1) as usize * self.head_octets
    }

    pub(crate) fn journal_at(&self, which: u8) -> usize {
        WORD_OCTETS + 2 * self.head_octets + usize::from(which & 1) * self.journal_octets
    }
}

/// Memory that outlives this process, in slots of [`Layout::slot_octets`]; the word is at the beginning of a slot.
pub trait Store {
    /// Where things are in a slot: [`Layout::of`] the endpoint's configuration, or more.
    fn layout(&self) -> Layout;
    /// How many slots there are. Associations beyond have no successor.
    fn slots(&self) -> u32;
    /// Writes octets at a place of a slot, inside the slot and behind its word.
    fn write(&mut self, slot: u32, at: usize, octets: &[u8]);
    /// Sets the word of a slot in one store, after all that was written before.
    fn publish(&mut self, slot: u32, word: u64);
}

/// What a [`Store`] of a former process holds. It may be anything.
pub trait SavedStore {
    /// Where things are in a slot.
    fn layout(&self) -> Layout;
    /// The word of a slot; zero if there is no such slot.
    fn word(&self, slot: u32) -> u64;
    /// A copy of octets of a slot; `None` if they are not all there.
    fn read(&self, slot: u32, at: usize, octets: usize) -> Option<Vec<u8>>;
}

/// Why the saved state of an association cannot be continued. Its peer sets up a new association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A checksum is wrong.
    Checksum,
    /// Another version wrote it.
    Version,
    /// The sums are right, and the content contradicts itself.
    Contradiction(&'static str),
    /// It is an association of another port, or the peer has one here already.
    NotOurs,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum => f.write_str("its checksum is wrong"),
            Self::Version => f.write_str("another version wrote it"),
            Self::Contradiction(what) => write!(f, "it contradicts itself: {what}"),
            Self::NotOurs => f.write_str("it belongs to another endpoint, or its peer is already connected"),
        }
    }
}

impl core::error::Error for Defect {}

/// The word that publishes a head: its sequence number, and a checksum of that and the slot.
pub(crate) fn word(slot: u32, sequence: u32) -> u64 {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&slot.to_be_bytes()), &sequence.to_be_bytes());
    u64::from(sequence) << 32 | u64::from(sum)
}

/// The sequence number that a word of this slot names.
pub(crate) fn sequence_of(slot: u32, published: u64) -> Option<u32> {
    let sequence = (published >> 32) as u32;
    (word(slot, sequence) == published).then_some(sequence)
}

/// What is written of the association in a slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The last head.
    sequence: u32,
    /// Whether a word is published.
    published: bool,
    /// The journal that counts, its octets and their checksum.
    pub(crate) journal: u8,
    pub(crate) journal_octets: usize,
    pub(crate) journal_sum: u32,
    /// The chunk of the sending half that its first record is of, and the first that has no record: both counted from the first ever queued.
    pub(crate) first_chunk: u64,
    pub(crate) next_chunk: u64,
}

impl Progress {
    /// Whether what counts has to be written to the other journal: `more` octets are to be appended, and at most `counting` count.
    pub(crate) fn is_rewrite_due(&self, more: usize, counting: usize, layout: &Layout) -> bool {
        let after = self.journal_octets + more;
        !self.published
            || after > layout.journal_octets
            || after > REWRITTEN_ABOVE_OCTETS && counting < after / REWRITTEN_BELOW_PART
    }

    /// Begins the other journal.
    pub(crate) fn begin_journal(&mut self) {
        self.journal ^= 1;
        (self.journal_octets, self.journal_sum) = (0, 0);
    }

    /// Appends to the journal.
    pub(crate) fn append(&mut self, slot: u32, records: &[u8], layout: &Layout, store: &mut impl Store) {
        if !records.is_empty() {
            store.write(slot, layout.journal_at(self.journal) + self.journal_octets, records);
            self.journal_octets += records.len();
            self.journal_sum = crc32c::crc32c_append(self.journal_sum, records);
        }
    }

    /// Writes and publishes a head, whose body begins at [`HEAD_PREFIX_OCTETS`] of `head`.
    pub(crate) fn publish(&mut self, slot: u32, head: &mut [u8], layout: &Layout, store: &mut impl Store) {
        self.sequence = self.sequence.wrapping_add(1);
        let octets = (head.len() - HEAD_PREFIX_OCTETS) as u32;
        for (at, field) in [VERSION, self.sequence, octets].into_iter().enumerate() {
            head[4 * at..4 * at + 4].copy_from_slice(&field.to_be_bytes());
        }
        let sum = head_sum(head);
        head[12..16].copy_from_slice(&sum.to_be_bytes());
        store.write(slot, layout.head_at(self.sequence), head);
        store.publish(slot, word(slot, self.sequence));
        self.published = true;
    }

    /// The association has ended.
    pub(crate) fn withdraw(&mut self, slot: u32, store: &mut impl Store) {
        if core::mem::take(&mut self.published) {
            store.publish(slot, 0);
        }
    }

    /// All is to be written again.
    pub(crate) fn forget(&mut self) {
        self.published = false;
    }
}

/// The checksum of a head: over all of it but the sum itself.
fn head_sum(head: &[u8]) -> u32 {
    let (before, behind) = (head.get(..12).unwrap_or(&[]), head.get(16..).unwrap_or(&[]));
    crc32c::crc32c_append(crc32c::crc32c(before), behind)
}

/// The body of the head that is published in a slot; `None` if none is.
pub(crate) fn read_head(slot: u32, saved: &impl SavedStore) -> Result<Option<Vec<u8>>, Defect> {
    let layout = saved.layout();
    let published = saved.word(slot);
    if published == 0 {
        return Ok(None);
    }
    let sequence = sequence_of(slot, published).ok_or(Defect::Checksum)?;
    let at = layout.head_at(sequence);
    let prefix = saved.read(slot, at, HEAD_PREFIX_OCTETS).ok_or(Defect::Checksum)?;
    let field = |at: usize| crate::packet::be32(&prefix, at);
    if field(0) != Some(VERSION) {
        return Err(Defect::Version);
    }
    let octets = field(8).map_or(usize::MAX, |octets| octets as usize);
    if field(4) != Some(sequence) || octets > layout.head_octets - HEAD_PREFIX_OCTETS {
        return Err(Defect::Checksum);
    }
    let mut head = saved.read(slot, at, HEAD_PREFIX_OCTETS + octets).ok_or(Defect::Checksum)?;
    if field(12) != Some(head_sum(&head)) || head.get(..16) != Some(&prefix) {
        return Err(Defect::Checksum);
    }
    head.drain(..HEAD_PREFIX_OCTETS);
    Ok(Some(head))
}
