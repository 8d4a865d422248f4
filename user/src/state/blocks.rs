//! Records in blocks of memory that outlives the process.
//!
//! A record is written into free blocks first, and its former blocks are freed afterwards: whenever the process dies, either the former or the
//! new record is whole. Each block has a checksum, the number of its part, and the number of the write that it is of, so that no order of
//! blocks has to be kept anywhere else: opening reads all blocks, keeps the newest whole record of each name, and frees the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::logger::StateRecord;

/// Octets of a block.
pub(super) const BLOCK_OCTETS: usize = 256;
/// Octets of a block before its part of the record.
const HEADER_OCTETS: usize = 24;
/// Octets of a record in one block.
pub(super) const PART_OCTETS: usize = BLOCK_OCTETS - HEADER_OCTETS;
/// Octets before the first block: what the memory is, and how many blocks there are.
pub(super) const FIRST_BLOCK_AT: u64 = 4096;
/// Where it says how many blocks may have been used: twice, of which the higher counts, for a write may be torn.
const MADE_AT: [u64; 2] = [1024, 1032];
/// Where it says how many blocks were written or freed: what follows the records looks there first. Zero: no count was written.
const CHANGES_AT: u64 = 1040;
/// Where it names the blocks that were written or freed last, by the number of the change.
const CHANGED_BLOCKS_AT: u64 = 2048;
/// Names there are room for: what follows the records and is farther behind looks at all blocks.
const CHANGED_BLOCKS: u64 = (FIRST_BLOCK_AT - CHANGED_BLOCKS_AT) / 4;
/// So many blocks are made at once, before they are needed.
const MADE_AT_ONCE: u32 = 2048;
/// Blocks that a record may have: the parts' numbers have 16 bits.
const PARTS_MAX: usize = u16::MAX as usize;
/// Blocks that new sessions leave free, so that the records of those that stand can be written again: a thousand of usual ones, or ten of
/// sessions with all the filters that they may have.
pub(crate) const SPARE_BLOCKS: usize = 1024;

/// Memory that outlives the process: a file of a memory file system, mapped.
pub trait StateMemory: Send {
    /// How much there is.
    fn octets(&self) -> u64;

    /// Reads; what is beyond the end reads as zero.
    fn read(&self, at: u64, to: &mut [u8]);

    /// Writes; what is beyond the end is not written.
    fn write(&mut self, at: u64, octets: &[u8]);

    /// Sees to it that all up to there can be written. False where the host has no more.
    fn reserve(&mut self, _until: u64) -> bool {
        true
    }
}

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum StateRecordKind {
    /// The UPF: associations, and what it counts.
    Node = 1,
    /// An application that an SMF has provisioned.
    Application = 2,
    /// A place among the sessions.
    Session = 3,
    /// What the pipeline has counted of a session.
    Counted = 4,
    /// A request of the UPF's own that awaits its answer.
    Request = 5,
}

impl StateRecordKind {
    const ALL: [Self; 5] = [Self::Node, Self::Application, Self::Session, Self::Counted, Self::Request];

    pub(super) fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|k| *k as u8 == code)
    }
}

/// A record that was found.
pub(crate) struct FoundRecord {
    pub(crate) kind: StateRecordKind,
    pub(crate) id: u32,
    /// Later writes have higher numbers.
    pub(crate) write: u64,
    pub(crate) octets: Vec<u8>,
}

/// There is no room for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The end of a record's list of blocks.
const END: u32 = u32::MAX;
/// The header of a block that is to be looked at again: no block has it.
const UNSEEN: [u8; HEADER_OCTETS] = [0xff; HEADER_OCTETS];

/// All records of the state file.
pub(crate) struct Blocks {
    memory: Box<dyn StateMemory>,
    /// Checksums begin with it: blocks of a former state are none of this one.
    salt: u32,
    /// Blocks that there can be.
    total: u32,
    /// Blocks that there are.
    made: u32,
    free: Vec<u32>,
    /// The block behind each one in its record.
    next: Vec<u32>,
    first: BTreeMap<(StateRecordKind, u32), u32>,
    writes: u64,
    changes: u64,
    /// Records that were written or removed since they were taken last; `None`: there is no packet logger.
    journal: Option<Vec<StateRecord>>,
}

impl Blocks {
    /// A state file without records.
    pub(super) fn empty(mut memory: Box<dyn StateMemory>, salt: u32) -> Self {
        MADE_AT.iter().for_each(|at| memory.write(*at, &0u64.to_le_bytes()));
        let mut it = Self::of(memory, salt);
        it.begin_changes();
        it.make();
        it
    }

    fn of(memory: Box<dyn StateMemory>, salt: u32) -> Self {
        let room = memory.octets().saturating_sub(FIRST_BLOCK_AT) / BLOCK_OCTETS as u64;
        let total = u32::try_from(room).unwrap_or(u32::MAX).min(END - 1);
        let (free, next) = (Vec::new(), Vec::new());
        let first = BTreeMap::new();
        Self { memory, salt, total, made: 0, free, next, first, writes: 0, changes: 0, journal: None }
    }

    /// What follows the records from before this process looks at all blocks.
    fn begin_changes(&mut self) {
        let next = self.read_changes().saturating_add(CHANGED_BLOCKS + 1);
        self.changes = if next < u64::MAX / 2 { next } else { CHANGED_BLOCKS + 1 };
        self.memory.write(CHANGES_AT, &self.changes.to_le_bytes());
    }

    /// How many blocks were written or freed, from some number on.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    fn read_changes(&self) -> u64 {
        let mut octets = [0; 8];
        self.memory.read(CHANGES_AT, &mut octets);
        u64::from_le_bytes(octets)
    }

    /// A block was written or freed.
    fn changed(&mut self, block: u32) {
        self.memory.write(changed_block_at(self.changes), &block.to_le_bytes());
        self.changes += 1;
        self.memory.write(CHANGES_AT, &self.changes.to_le_bytes());
    }

    /// Makes some blocks more, if the host lets them be.
    fn make(&mut self) {
        let made = self.made + MADE_AT_ONCE.min(self.total - self.made);
        if made == self.made || !self.memory.reserve(Self::at(made)) {
            return;
        }
        // Those in front are used first.
        self.free.splice(0..0, (self.made..made).rev());
        self.next.resize(made as usize, END);
        self.made = made;
        MADE_AT.iter().for_each(|at| self.memory.write(*at, &u64::from(made).to_le_bytes()));
    }

    /// With the records that are there, in the order in which they were written.
    pub(super) fn open(memory: Box<dyn StateMemory>, salt: u32) -> (Self, Vec<FoundRecord>) {
        let mut it = Self::of(memory, salt);
        it.made = it.read_made();
        it.next.resize(it.made as usize, END);
        let mut parts: Vec<BlockHead> =
            (0..it.made).filter_map(|block| it.read(block).map(|(part, _)| part)).collect();
        parts.sort_unstable_by_key(BlockHead::order);
        let mut taken = vec![false; it.made as usize];
        let mut found = Vec::new();
        for record in parts.chunk_by(BlockHead::is_of_record) {
            let BlockHead { kind, id, write, block, .. } = record[0];
            it.writes = it.writes.max(write);
            if !is_whole(record.iter()) || it.first.contains_key(&(kind, id)) {
                continue;
            }
            let mut octets = Vec::with_capacity(record.len() * PART_OCTETS);
            for (n, p) in record.iter().enumerate() {
                taken[p.block as usize] = true;
                it.next[p.block as usize] = record.get(n + 1).map_or(END, |p| p.block);
                octets.extend(it.read(p.block).into_iter().flat_map(|(_, part)| part));
            }
            it.first.insert((kind, id), block);
            found.push(FoundRecord { kind, id, write, octets });
        }
        found.sort_unstable_by_key(|f| f.write);
        it.begin_changes();
        for block in (0..it.made).rev().filter(|b| !taken[*b as usize]) {
            it.wipe(block);
            it.free.push(block);
        }
        it.make_ahead();
        (it, found)
    }

    /// How many blocks there are, as the memory says.
    fn read_made(&self) -> u32 {
        let made = MADE_AT.map(|at| {
            let mut octets = [0; 8];
            self.memory.read(at, &mut octets);
            u64::from_le_bytes(octets).min(self.total.into()) as u32
        });
        made[0].max(made[1])
    }

    /// Makes blocks before they are needed, so that whether there is room is known before a record is to be written.
    fn make_ahead(&mut self) {
        if self.free.len() < MADE_AT_ONCE as usize / 2 + SPARE_BLOCKS {
            self.make();
        }
    }

    fn at(block: u32) -> u64 {
        FIRST_BLOCK_AT + u64::from(block) * BLOCK_OCTETS as u64
    }

    /// A block and its part of a record, if it has one.
    fn read(&self, block: u32) -> Option<(BlockHead, Vec<u8>)> {
        let mut octets = [0; BLOCK_OCTETS];
        self.memory.read(Self::at(block), &mut octets);
        let number =
            |at: usize| u32::from_le_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
        let short = |at: usize| u16::from_le_bytes([octets[at], octets[at + 1]]);
        let kind = StateRecordKind::of(octets[4])?;
        let end = HEADER_OCTETS + usize::from(short(6));
        let covered = octets.get(4..end)?;
        if crc32c(self.salt, covered) != number(0) {
            return None;
        }
        let write = u64::from(number(20)) << 32 | u64::from(number(16));
        let part = BlockHead { kind, id: number(12), write, part: short(8), parts: short(10), block };
        Some((part, octets[HEADER_OCTETS..end].to_vec()))
    }

    /// Whether there is room for a record of so many octets, and for so many blocks besides, or an eighth of all.
    pub(crate) fn fits(&self, octets: usize, spare: usize) -> bool {
        parts_of(octets) + spare.min(self.total as usize / 8) <= self.free.len()
    }

    /// Writes a record in the place of the one of that name. Errors: there is no room, and the former one stands.
    pub(crate) fn put(&mut self, kind: StateRecordKind, id: u32, octets: &[u8]) -> Result<(), Full> {
        let parts = parts_of(octets.len());
        let former = self.first.get(&(kind, id)).copied();
        if parts > PARTS_MAX {
            return Err(Full);
        }
        if parts > self.free.len() {
            // Rather not whole for a moment than not at all.
            let behind = |b: &u32| Some(self.next[*b as usize]).filter(|b| *b != END);
            let own = std::iter::successors(former, behind).count();
            if parts > self.free.len() + own {
                return Err(Full);
            }
            self.remove(kind, id);
        }
        self.writes += 1;
        let mut begin = END;
        // From the last part on, so that each knows the one behind it.
        for part in (0..parts).rev() {
            let from = part * PART_OCTETS;
            let own = &octets[from..octets.len().min(from + PART_OCTETS)];
            let Some(block) = self.free.pop() else { return Err(Full) };
            let place =
                BlockHead { kind, id, write: self.writes, part: part as u16, parts: parts as u16, block };
            self.write(&place, own);
            self.next[block as usize] = begin;
            begin = block;
        }
        if let Some(former) = self.first.insert((kind, id), begin) {
            self.free_from(former);
        }
        self.make_ahead();
        if let Some(journal) = &mut self.journal {
            let octets = Some(octets.to_vec());
            journal.push(StateRecord { kind: kind as u8, id, write: self.writes, octets });
        }
        Ok(())
    }

    /// Removes a record, if there is one.
    pub(crate) fn remove(&mut self, kind: StateRecordKind, id: u32) {
        if let Some(first) = self.first.remove(&(kind, id)) {
            self.free_from(first);
            if let Some(journal) = &mut self.journal {
                journal.push(StateRecord { kind: kind as u8, id, write: self.writes, octets: None });
            }
        }
    }

    /// All records, in the order in which they were written; [`Self::take_journal`] has what changes from now on.
    pub(crate) fn all(&mut self) -> Vec<StateRecord> {
        self.journal = Some(Vec::new());
        let behind = |b: &u32| Some(self.next[*b as usize]).filter(|b| *b != END);
        let mut all: Vec<StateRecord> = Vec::with_capacity(self.first.len());
        for ((kind, id), first) in &self.first {
            let (mut write, mut octets) = (0, Vec::new());
            for block in std::iter::successors(Some(*first), behind) {
                let Some((part, own)) = self.read(block) else { continue };
                write = part.write;
                octets.extend(own);
            }
            all.push(StateRecord { kind: *kind as u8, id: *id, write, octets: Some(octets) });
        }
        all.sort_unstable_by_key(|r| r.write);
        all
    }

    /// What was written or removed since the last call, in order; nothing before [`Self::all`].
    pub(crate) fn take_journal(&mut self) -> Vec<StateRecord> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn write(&mut self, place: &BlockHead, part: &[u8]) {
        let mut octets = [0; BLOCK_OCTETS];
        octets[4] = place.kind as u8;
        octets[6..8].copy_from_slice(&(part.len() as u16).to_le_bytes());
        octets[8..10].copy_from_slice(&place.part.to_le_bytes());
        octets[10..12].copy_from_slice(&place.parts.to_le_bytes());
        octets[12..16].copy_from_slice(&place.id.to_le_bytes());
        octets[16..24].copy_from_slice(&place.write.to_le_bytes());
        let end = HEADER_OCTETS + part.len();
        octets[HEADER_OCTETS..end].copy_from_slice(part);
        let crc = crc32c(self.salt, &octets[4..end]);
        octets[..4].copy_from_slice(&crc.to_le_bytes());
        self.memory.write(Self::at(place.block), &octets[..end]);
        self.changed(place.block);
    }

    fn free_from(&mut self, first: u32) {
        let mut block = first;
        while block != END {
            self.wipe(block);
            self.free.push(block);
            block = std::mem::replace(&mut self.next[block as usize], END);
        }
    }

    /// A block is of no record any more.
    fn wipe(&mut self, block: u32) {
        self.memory.write(Self::at(block) + 4, &[0; 4]);
        self.changed(block);
    }
}

/// Where the journal has the name of a change's block.
const fn changed_block_at(change: u64) -> u64 {
    CHANGED_BLOCKS_AT + change % CHANGED_BLOCKS * 4
}

/// What has become of a record since it was looked at last.
pub(crate) struct SeenRecord {
    pub(crate) kind: StateRecordKind,
    pub(crate) id: u32,
    /// Later writes have higher numbers. Of a record that was removed: that of its last write.
    pub(crate) write: u64,
    /// `None`: it was removed.
    pub(crate) octets: Option<Vec<u8>>,
}

/// The records that another process writes. It may do so while they are looked at: a record that is not whole at one look is so at the next.
pub(crate) struct FollowedBlocks {
    blocks: Blocks,
    /// The header of each block at the last look. It has a checksum of all that the block holds.
    headers: Vec<[u8; HEADER_OCTETS]>,
    /// The write of each record, and its blocks.
    records: BTreeMap<(StateRecordKind, u32), (u64, Vec<u32>)>,
    /// Blocks that name a record and are of none that is whole: its other parts may come.
    loose: BTreeSet<u32>,
    /// The changes that were looked at; zero: all blocks are to be looked at.
    changes: u64,
}

impl FollowedBlocks {
    /// Of which none was looked at.
    pub(super) fn new(memory: Box<dyn StateMemory>, salt: u32) -> Self {
        let (headers, records, loose) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self { blocks: Blocks::of(memory, salt), headers, records, loose, changes: 0 }
    }

    /// Reads beside the blocks.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) {
        self.blocks.memory.read(at, to);
    }

    /// The records that have changed since the last call, in the order in which they were written. Only the blocks are read that have changed,
    /// as far as the writer's journal reaches.
    pub(crate) fn look(&mut self) -> Vec<SeenRecord> {
        let changes = self.blocks.read_changes();
        if changes == 0 || self.changes == 0 {
            return self.look_at_all();
        }
        let Some(blocks) = self.read_journal(changes) else { return self.look_at_all() };
        self.changes = changes;
        if blocks.is_empty() {
            return Vec::new();
        }
        self.see_made();
        let mut names = BTreeSet::new();
        for block in &blocks {
            self.see_header(*block, &mut names);
        }
        let known = names.iter().filter_map(|name| self.records.get(name)).flat_map(|(_, blocks)| blocks);
        let mut candidates: BTreeSet<u32> = known.copied().chain(blocks).collect();
        candidates.append(&mut self.loose);
        self.see(names, candidates)
    }

    /// The same, where the headers of all blocks are read: the writer may have ended before it noted a change.
    pub(crate) fn look_at_all(&mut self) -> Vec<SeenRecord> {
        self.changes = self.blocks.read_changes();
        self.see_made();
        let mut names = BTreeSet::new();
        for block in 0..self.blocks.made {
            let mut header = [0; HEADER_OCTETS];
            self.blocks.memory.read(Blocks::at(block), &mut header);
            if self.headers.get(block as usize) != Some(&header) {
                self.see_header(block, &mut names);
            }
        }
        if names.is_empty() {
            return Vec::new();
        }
        let of_these = |(_, header): &(u32, _)| name_of(header).is_some_and(|name| names.contains(&name));
        let candidates = (0..).zip(self.headers.iter().copied()).filter(of_these).map(|(block, _)| block);
        let mut candidates: BTreeSet<u32> = candidates.collect();
        candidates.append(&mut self.loose);
        self.see(names, candidates)
    }

    /// The blocks that were written or freed since the last look. `None`: the journal does not reach so far back.
    fn read_journal(&self, changes: u64) -> Option<BTreeSet<u32>> {
        let missed = |changes: u64| changes.checked_sub(self.changes).is_none_or(|n| n > CHANGED_BLOCKS);
        if missed(changes) {
            return None;
        }
        let blocks = (self.changes..changes).map(|change| {
            let mut octets = [0; 4];
            self.blocks.memory.read(changed_block_at(change), &mut octets);
            u32::from_le_bytes(octets)
        });
        let blocks = blocks.collect();
        // What the writer has written meanwhile may stand in the place of what was to be read.
        if missed(self.blocks.read_changes().saturating_add(1)) { None } else { Some(blocks) }
    }

    fn see_made(&mut self) {
        self.blocks.made = self.blocks.read_made();
        self.headers.resize(self.blocks.made as usize, [0; HEADER_OCTETS]);
    }

    /// Reads a block's header: `names` gets the record that it is of, and the one that it was of.
    fn see_header(&mut self, block: u32, names: &mut BTreeSet<(StateRecordKind, u32)>) {
        let Some(seen) = self.headers.get_mut(block as usize) else { return };
        let mut header = [0; HEADER_OCTETS];
        self.blocks.memory.read(Blocks::at(block), &mut header);
        names.extend([*seen, header].iter().filter_map(name_of));
        *seen = header;
    }

    /// What has become of these records, whose parts are among these blocks.
    fn see(
        &mut self,
        mut names: BTreeSet<(StateRecordKind, u32)>,
        candidates: BTreeSet<u32>,
    ) -> Vec<SeenRecord> {
        let mut parts: Vec<(BlockHead, Vec<u8>)> = Vec::with_capacity(candidates.len());
        for block in candidates {
            let header = self.headers.get_mut(block as usize).filter(|header| name_of(header).is_some());
            let Some(header) = header else { continue };
            self.loose.insert(block);
            match self.blocks.read(block) {
                Some(part) => parts.push(part),
                // It is being written. Its header may be whole already, and is not compared at the next look.
                None => *header = UNSEEN,
            }
        }
        parts.sort_unstable_by_key(|(p, _)| p.order());
        let mut seen = Vec::new();
        for record in parts.chunk_by(|(a, _), (b, _)| a.is_of_record(b)) {
            let BlockHead { kind, id, write, .. } = record[0].0;
            let whole = is_whole(record.iter().map(|(p, _)| p));
            if !whole || !names.remove(&(kind, id)) {
                continue;
            }
            let blocks: Vec<u32> = record.iter().map(|(p, _)| p.block).collect();
            blocks.iter().for_each(|block| _ = self.loose.remove(block));
            let former = self.records.insert((kind, id), (write, blocks));
            if former.is_none_or(|(former, _)| former != write) {
                let mut octets = Vec::with_capacity(record.len() * PART_OCTETS);
                record.iter().for_each(|(_, part)| octets.extend_from_slice(part));
                seen.push(SeenRecord { kind, id, write, octets: Some(octets) });
            }
        }
        for (kind, id) in names {
            if let Some((write, _)) = self.records.remove(&(kind, id)) {
                seen.push(SeenRecord { kind, id, write, octets: None });
            }
        }
        seen.sort_by_key(|s| s.write);
        seen
    }

    /// All records, as they were at the last look; the process that wrote them has ended since before that.
    pub(crate) fn take_over(self) -> Blocks {
        let Self { mut blocks, headers, records, .. } = self;
        blocks.begin_changes();
        blocks.next = vec![END; headers.len()];
        let mut taken = vec![false; headers.len()];
        for (name, (write, chain)) in records {
            blocks.writes = blocks.writes.max(write);
            for (n, block) in chain.iter().enumerate() {
                taken[*block as usize] = true;
                blocks.next[*block as usize] = chain.get(n + 1).copied().unwrap_or(END);
            }
            blocks.first.extend(chain.first().map(|first| (name, *first)));
        }
        for block in (0..blocks.made).rev().filter(|b| !taken[*b as usize]) {
            if headers[block as usize][4] != 0 {
                blocks.wipe(block);
            }
            blocks.free.push(block);
        }
        blocks.make_ahead();
        blocks
    }
}

/// The record that a block is of, as its header says.
fn name_of(header: &[u8; HEADER_OCTETS]) -> Option<(StateRecordKind, u32)> {
    let id = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
    Some((StateRecordKind::of(header[4])?, id))
}

/// Whether these are all parts of a record, in order.
fn is_whole<'a>(record: impl ExactSizeIterator<Item = &'a BlockHead>) -> bool {
    let parts = record.len();
    let in_order = |(n, p): (usize, &BlockHead)| usize::from(p.part) == n && usize::from(p.parts) == parts;
    record.enumerate().all(in_order)
}

/// What a block says of itself.
#[derive(Clone, Copy)]
struct BlockHead {
    kind: StateRecordKind,
    id: u32,
    write: u64,
    part: u16,
    parts: u16,
    block: u32,
}

impl BlockHead {
    /// The newest write of a name first, and its parts in order.
    fn order(&self) -> (StateRecordKind, u32, u64, u16, u32) {
        (self.kind, self.id, u64::MAX - self.write, self.part, self.block)
    }

    /// Whether both are of one write of one record.
    fn is_of_record(&self, other: &Self) -> bool {
        (self.kind, self.id, self.write) == (other.kind, other.id, other.write)
    }
}

fn parts_of(octets: usize) -> usize {
    octets.div_ceil(PART_OCTETS).max(1)
}

/// CRC-32C (RFC 3385), begun with a number of one's own.
pub(crate) fn crc32c(salt: u32, octets: &[u8]) -> u32 {
    let mut crc = !salt;
    let mut eights = octets.chunks_exact(8);
    for eight in &mut eights {
        let low = crc ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
        let [a, b, c, d] = low.to_le_bytes();
        let of = |table: usize, octet: u8| TABLES[table][usize::from(octet)];
        crc = of(7, a) ^ of(6, b) ^ of(5, c) ^ of(4, d);
        crc ^= of(3, eight[4]) ^ of(2, eight[5]) ^ of(1, eight[6]) ^ of(0, eight[7]);
    }
    for octet in eights.remainder() {
        crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ octet)];
    }
    !crc
}

/// What an octet makes of the sum, with none to seven octets behind it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut octet = 0;
    while octet < 256 {
        let mut crc = octet as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][octet] = crc;
        octet += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut octet = 0;
        while octet < 256 {
            let before = tables[table - 1][octet];
            tables[table][octet] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            octet += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;

    /// Memory that others see, and that stops to be written after so many writes: the process died.
    #[derive(Clone)]
    struct CrashingMemory(Arc<Mutex<(Vec<u8>, usize)>>);

    impl CrashingMemory {
        fn of(blocks: usize) -> Self {
            let octets = vec![0; FIRST_BLOCK_AT as usize + blocks * BLOCK_OCTETS];
            Self(Arc::new(Mutex::new((octets, usize::MAX))))
        }

        fn boxed(&self) -> Box<dyn StateMemory> {
            Box::new(self.clone())
        }
    }

    impl StateMemory for CrashingMemory {
        fn octets(&self) -> u64 {
            self.0.lock().unwrap().0.len() as u64
        }

        fn read(&self, at: u64, to: &mut [u8]) {
            let all = self.0.lock().unwrap();
            to.copy_from_slice(&all.0[at as usize..][..to.len()]);
        }

        /// The last write may be of its first octets alone.
        fn write(&mut self, at: u64, octets: &[u8]) {
            let mut all = self.0.lock().unwrap();
            let left = all.1.min(octets.len());
            all.1 -= left;
            all.0[at as usize..][..left].copy_from_slice(&octets[..left]);
        }
    }

    /// Memory whose writes others see later, one octet after the other.
    #[derive(Clone)]
    struct LoggedMemory {
        memory: CrashingMemory,
        log: Arc<Mutex<std::collections::VecDeque<(usize, u8)>>>,
    }

    impl LoggedMemory {
        /// Others see so many further octets.
        fn apply(&self, to: &CrashingMemory, octets: usize) {
            let mut log = self.log.lock().unwrap();
            let count = octets.min(log.len());
            let mut all = to.0.lock().unwrap();
            log.drain(..count).for_each(|(at, octet)| all.0[at] = octet);
        }
    }

    impl StateMemory for LoggedMemory {
        fn octets(&self) -> u64 {
            self.memory.octets()
        }

        fn read(&self, at: u64, to: &mut [u8]) {
            self.memory.read(at, to);
        }

        fn write(&mut self, at: u64, octets: &[u8]) {
            self.memory.write(at, octets);
            self.log.lock().unwrap().extend((at as usize..).zip(octets.iter().copied()));
        }
    }

    /// Memory that counts the octets that are read.
    struct CountingMemory(CrashingMemory, Arc<Mutex<usize>>);

    impl StateMemory for CountingMemory {
        fn octets(&self) -> u64 {
            self.0.octets()
        }

        fn read(&self, at: u64, to: &mut [u8]) {
            *self.1.lock().unwrap() += to.len();
            self.0.read(at, to);
        }

        fn write(&mut self, at: u64, octets: &[u8]) {
            self.0.write(at, octets);
        }
    }

    fn records(found: Vec<FoundRecord>) -> BTreeMap<(StateRecordKind, u32), Vec<u8>> {
        found.into_iter().map(|f| ((f.kind, f.id), f.octets)).collect()
    }

    #[test] // RFC 3720 appendix B.4
    fn the_checksum_is_crc_32c() {
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(0, &(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
    }

    proptest! {
        /// Each record is the one before or the one after the write that the process died in, at any octet.
        #[test]
        fn a_process_that_dies_at_any_octet_leaves_every_record_whole(
            steps in proptest::collection::vec((0..4u32, 0..700usize, any::<u8>()), 1..30),
            last in 0..20_000usize,
        ) {
            let memory = CrashingMemory::of(64);
            let mut blocks = Blocks::empty(memory.boxed(), 7);
            memory.0.lock().unwrap().1 = last;
            let mut known = BTreeMap::new();
            let mut before = BTreeMap::new();
            for (id, octets, fill) in steps {
                before = known.clone();
                if octets < 50 {
                    blocks.remove(StateRecordKind::Session, id);
                    known.remove(&(StateRecordKind::Session, id));
                } else if blocks.put(StateRecordKind::Session, id, &vec![fill; octets]).is_ok() {
                    known.insert((StateRecordKind::Session, id), vec![fill; octets]);
                }
                if memory.0.lock().unwrap().1 == 0 {
                    break;
                }
            }
            let (_, found) = Blocks::open(memory.boxed(), 7);
            let found = records(found);
            prop_assert!(found == known || found == before, "{found:?}, not {known:?} or {before:?}");
        }

        /// Followed records are those that a process would find that begins with them, at each look.
        #[test]
        fn followed_records_are_those_that_are_found(
            steps in proptest::collection::vec((0..5u32, 0..700usize, any::<u8>(), any::<bool>()), 1..40),
        ) {
            let memory = CrashingMemory::of(64);
            let mut blocks = Blocks::empty(memory.boxed(), 7);
            let mut followed = FollowedBlocks::new(memory.boxed(), 7);
            let mut known = BTreeMap::new();
            let mut look = |followed: &mut FollowedBlocks| {
                for seen in followed.look() {
                    match seen.octets {
                        Some(octets) => _ = known.insert((seen.kind, seen.id), octets),
                        None => _ = known.remove(&(seen.kind, seen.id)),
                    }
                }
                known.clone()
            };
            for (id, octets, fill, looks) in steps {
                if octets < 50 {
                    blocks.remove(StateRecordKind::Session, id);
                } else {
                    blocks.put(StateRecordKind::Session, id, &vec![fill; octets]).unwrap();
                }
                if looks {
                    look(&mut followed);
                }
            }
            let (found, _) = (records(Blocks::open(memory.boxed(), 7).1), blocks);
            prop_assert_eq!(&look(&mut followed), &found);
            // And what is written after a takeover is found as well.
            let mut blocks = followed.take_over();
            blocks.put(StateRecordKind::Session, 0, &[1; 600]).unwrap();
            blocks.remove(StateRecordKind::Session, 1);
            let again = records(Blocks::open(memory.boxed(), 7).1);
            prop_assert_eq!(&again[&(StateRecordKind::Session, 0)], &vec![1; 600]);
            let others = |all: &BTreeMap<(StateRecordKind, u32), Vec<u8>>| all.iter().filter(|((_, id), _)| *id > 1).count();
            prop_assert_eq!((others(&again), again.contains_key(&(StateRecordKind::Session, 1))), (others(&found), false));
        }

        #[test]
        fn a_record_that_is_looked_at_while_it_is_written_is_seen_at_the_next_look(
            former in 1..700usize,
            later in 1..700usize,
            written in 0..2_000usize,
            at_all in any::<bool>(),
        ) {
            let memory = CrashingMemory::of(64);
            let own = LoggedMemory { memory: CrashingMemory::of(64), log: Arc::default() };
            let mut blocks = Blocks::empty(Box::new(own.clone()), 7);
            let mut followed = FollowedBlocks::new(memory.boxed(), 7);
            blocks.put(StateRecordKind::Session, 1, &vec![1; former]).unwrap();
            own.apply(&memory, usize::MAX);
            prop_assert_eq!(followed.look().len(), 1);
            blocks.put(StateRecordKind::Session, 1, &vec![2; later]).unwrap();
            own.apply(&memory, written);
            let mut seen = followed.look();
            own.apply(&memory, usize::MAX);
            seen.extend(if at_all { followed.look_at_all() } else { followed.look() });
            prop_assert_eq!(seen.len(), 1);
            prop_assert_eq!(seen[0].octets.as_ref(), Some(&vec![2; later]));
        }

        #[test]
        fn rubbish_is_no_record(rubbish in proptest::collection::vec(any::<u8>(), 0..5_000), at in 0..6_000usize) {
            let memory = CrashingMemory::of(16);
            let mut blocks = Blocks::empty(memory.boxed(), 7);
            blocks.put(StateRecordKind::Node, 0, &[1; 500]).unwrap();
            {
                let mut all = memory.0.lock().unwrap();
                let room = all.0.len().saturating_sub(at);
                let n = rubbish.len().min(room);
                all.0[at..at + n].copy_from_slice(&rubbish[..n]);
            }
            let (mut blocks, found) = Blocks::open(memory.boxed(), 7);
            let found = records(found);
            prop_assert!(found.is_empty() || found[&(StateRecordKind::Node, 0)] == [1; 500]);
            blocks.put(StateRecordKind::Node, 0, &[2; 300]).unwrap();
            prop_assert_eq!(&records(Blocks::open(memory.boxed(), 7).1)[&(StateRecordKind::Node, 0)], &vec![2; 300]);
        }
    }

    #[test]
    fn a_look_reads_the_blocks_that_have_changed_and_no_others() {
        let memory = CrashingMemory::of(4_000);
        let mut blocks = Blocks::empty(memory.boxed(), 7);
        (0..1_000).for_each(|id| blocks.put(StateRecordKind::Session, id, &[1; 400]).unwrap());
        let octets = Arc::new(Mutex::new(0));
        let mut followed = FollowedBlocks::new(Box::new(CountingMemory(memory.clone(), octets.clone())), 7);
        let mut look = || {
            *octets.lock().unwrap() = 0;
            let seen = followed.look().len();
            (seen, *octets.lock().unwrap())
        };
        assert_eq!(look().0, 1_000);
        assert_eq!(look(), (0, 16), "what is unchanged is not read");
        blocks.put(StateRecordKind::Session, 5, &[2; 400]).unwrap();
        blocks.remove(StateRecordKind::Session, 6);
        let (seen, read) = look();
        assert!(seen == 2 && read < 8 * BLOCK_OCTETS, "{seen} records, {read} octets");
        // Farther behind than the journal reaches.
        (0..600).for_each(|id| blocks.put(StateRecordKind::Session, id, &[3; 400]).unwrap());
        assert_eq!(look().0, 600);
        assert_eq!(look(), (0, 16));
    }

    #[test]
    fn records_of_a_former_state_are_none_of_the_next() {
        let memory = CrashingMemory::of(16);
        Blocks::empty(memory.boxed(), 7).put(StateRecordKind::Node, 0, &[1; 500]).unwrap();
        assert_eq!(Blocks::open(memory.boxed(), 7).1.len(), 1);
        assert!(Blocks::open(memory.boxed(), 8).1.is_empty());
    }

    #[test]
    fn a_full_memory_takes_no_new_record_and_keeps_those_that_it_has() {
        let memory = CrashingMemory::of(20);
        let mut blocks = Blocks::empty(memory.boxed(), 7);
        let fit = (0..).find(|id| blocks.put(StateRecordKind::Session, *id, &[1; 400]).is_err()).unwrap();
        assert_eq!(fit, 10);
        assert!(!blocks.fits(1, 1) && !blocks.fits(1, SPARE_BLOCKS));
        // One that stands can be written again, for it gives its own blocks.
        blocks.put(StateRecordKind::Session, 3, &[2; 400]).unwrap();
        assert_eq!(blocks.put(StateRecordKind::Session, 3, &[3; 700]), Err(Full));
        let found = records(Blocks::open(memory.boxed(), 7).1);
        assert_eq!((found.len(), &found[&(StateRecordKind::Session, 3)]), (10, &vec![2; 400]));
        blocks.remove(StateRecordKind::Session, 0);
        blocks.put(StateRecordKind::Session, 3, &[3; 700]).unwrap();
    }
}
