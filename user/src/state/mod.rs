//! What a UPF keeps for its successor: sessions with their rules, identifiers and usage, in memory that outlives the process.
//!
//! [`UpfC`](crate::UpfC) writes a session's record before the response to the SMF leaves, so that a successor has every identifier that an SMF,
//! a gNB or a UE knows. A successor has the same seed, so its F-TEIDs lead to the same sessions, and the same Recovery Time Stamp, so SMFs take it for the
//! UPF that they know (TS 23.527 §4.2). [`blocks`] says how records survive a process that dies while it writes.

mod blocks;
mod held;
mod stored;

use std::collections::BTreeSet;
use std::fmt;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::RecoveryTimeStamp;

pub use blocks::StateMemory;
use blocks::{BLOCK_OCTETS, FIRST_BLOCK_AT};
pub(crate) use blocks::{
    Blocks, FollowedBlocks, FoundRecord, SPARE_BLOCKS, SeenRecord, StateRecordKind, crc32c,
};
use held::HELD_OCTETS;
pub(crate) use held::{HeldPackets, KeptPacket};
pub(crate) use stored::{Stored, StoredReader, stored};

use crate::config::Config;
use crate::logger::StateRecord;
use crate::session_id::mix;

/// The form of records. One program reads one form alone.
pub const STATE_VERSION: u32 = 3;

/// What such memory begins with.
const MAGIC: [u8; 8] = *b"whimupf\0";
/// Octets of the header, its checksum included.
const HEADER_OCTETS: usize = 8 + 4 + 4 + 4 + 8 + 16 + 8 + 4 + 4;
/// Blocks of a session, with a margin: its rules, those of a handover that is predicted, what it has counted, and a former place. Most
/// have two.
const BLOCKS_PER_SESSION: u64 = 4;

/// Why the sessions in a memory are not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateRefusal {
    /// It is not the memory of a UPF.
    Foreign,
    /// A program that writes records in another form has written it.
    Version {
        /// The form that was found.
        found: u32,
    },
    /// It is of a UPF that is configured otherwise: other addresses, data networks or bounds.
    Configuration,
    /// The host has been rebooted since: what was written last may be missing.
    Boot,
    /// The header is damaged.
    Damaged,
    /// The UPF had another number of packet threads, which share the sessions by their places.
    Shards {
        /// How many there were.
        found: u8,
    },
}

impl fmt::Display for StateRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is not the state of a UPF"),
            Self::Version { found } => {
                write!(f, "it has form {found}, and this version of the program reads form {STATE_VERSION}")
            }
            Self::Configuration => f.write_str(
                "it is of a UPF with other addresses, data networks or bounds in its configuration",
            ),
            Self::Boot => f.write_str("it is from before the last reboot of the host"),
            Self::Damaged => f.write_str("its header is damaged"),
            Self::Shards { found } => write!(f, "it is of a UPF with {found} packet threads"),
        }
    }
}

/// The memory of a UPF's sessions, opened.
pub struct SessionMemory {
    blocks: Blocks,
    found: Vec<FoundRecord>,
    recovery: RecoveryTimeStamp,
    refusal: Option<StateRefusal>,
}

impl SessionMemory {
    /// Octets that the memory of a UPF of this configuration should have: its sessions, which use it from the front as they come, and packets that wait for
    /// idle UEs.
    pub fn octets_for(config: &Config) -> u64 {
        Self::held_at(config) + HELD_OCTETS
    }

    /// Where the packets that wait begin.
    pub fn held_at(config: &Config) -> u64 {
        let blocks = u64::from(config.sessions_max) * BLOCKS_PER_SESSION + 8 * SPARE_BLOCKS as u64;
        FIRST_BLOCK_AT + blocks * BLOCK_OCTETS as u64
    }

    /// Opens the memory, or begins it where nothing has been written or what there is cannot be taken over. `config` has the seed of the
    /// former UPF afterwards: the pipelines and UPF-C are to be made with that. `boot` names the time since the host was started.
    pub fn open(memory: Box<dyn StateMemory>, config: &mut Config, boot: [u8; 16], now: Instant) -> Self {
        let key = key(config);
        let mut header = [0; HEADER_OCTETS];
        memory.read(0, &mut header);
        let refusal = match read(&header, key, boot) {
            Ok(Some((salt, seed, recovery))) => {
                config.seed = seed;
                let memory = front_of(memory, config);
                let (blocks, found) = Blocks::open(memory, salt);
                return Self { blocks, found, recovery, refusal: None };
            }
            Ok(None) => None,
            Err(refusal) => Some(refusal),
        };
        let (recovery, salt) = (RecoveryTimeStamp::at(now), mix(config.seed ^ now.0) as u32);
        let memory = front_of(begin(memory, salt, key, boot, config.seed, recovery), config);
        let blocks = Blocks::empty(memory, salt);
        Self { blocks, found: Vec::new(), recovery, refusal }
    }

    /// Why the memory's former content was not taken over, if it had any.
    pub fn refusal(&self) -> Option<StateRefusal> {
        self.refusal
    }

    /// When the UPF, or the one that it goes on for, started.
    pub fn recovery(&self) -> RecoveryTimeStamp {
        self.recovery
    }

    pub(crate) fn take(self) -> (Blocks, Vec<FoundRecord>) {
        (self.blocks, self.found)
    }
}

/// The memory of a UPF's sessions, which another process writes that this one will succeed.
pub struct FollowedState {
    blocks: FollowedBlocks,
    header: [u8; HEADER_OCTETS],
    recovery: RecoveryTimeStamp,
}

impl FollowedState {
    /// Opens the memory to read it. `config` has the seed of the UPF afterwards, as with [`SessionMemory::open`]. `None`: nothing has been written yet.
    /// Errors: why this process cannot succeed that UPF.
    pub fn open(
        memory: Box<dyn StateMemory>,
        config: &mut Config,
        boot: [u8; 16],
    ) -> Result<Option<Self>, StateRefusal> {
        let mut header = [0; HEADER_OCTETS];
        memory.read(0, &mut header);
        let Some((salt, seed, recovery)) = read(&header, key(config), boot)? else { return Ok(None) };
        config.seed = seed;
        Ok(Some(Self { blocks: FollowedBlocks::new(front_of(memory, config), salt), header, recovery }))
    }

    /// Whether it is still the state that was opened, and has not been begun again since.
    pub fn stands(&self) -> bool {
        let mut header = [0; HEADER_OCTETS];
        self.blocks.read(0, &mut header);
        header == self.header
    }

    pub(crate) fn recovery(&self) -> RecoveryTimeStamp {
        self.recovery
    }

    pub(crate) fn look(&mut self) -> Vec<SeenRecord> {
        self.blocks.look()
    }

    /// The last look, when the process that wrote the state has ended.
    pub(crate) fn look_at_all(&mut self) -> Vec<SeenRecord> {
        self.blocks.look_at_all()
    }

    pub(crate) fn take_over(self) -> Blocks {
        self.blocks.take_over()
    }
}

/// The state of a UPF on another host, record by record as it comes, in memory of this process's own.
pub struct ReceivedState {
    blocks: Blocks,
    recovery: RecoveryTimeStamp,
    seen: Vec<SeenRecord>,
    /// Records that found no room, or are of no kind.
    lost: usize,
}

impl ReceivedState {
    /// Begins the memory for the state of a UPF with this seed, which `config` has afterwards, and this Recovery Time Stamp.
    pub fn begin(
        memory: Box<dyn StateMemory>,
        config: &mut Config,
        (seed, recovery): (u64, RecoveryTimeStamp),
        boot: [u8; 16],
        now: Instant,
    ) -> Self {
        config.seed = seed;
        let salt = mix(seed ^ now.0) as u32;
        let blocks = Blocks::empty(begin(memory, salt, key(config), boot, seed, recovery), salt);
        Self { blocks, recovery, seen: Vec::new(), lost: 0 }
    }

    /// Takes a record.
    pub(crate) fn receive(&mut self, record: StateRecord) {
        let StateRecord { kind, id, write, octets } = record;
        let Some(kind) = StateRecordKind::of(kind) else {
            self.lost += 1;
            return;
        };
        match &octets {
            Some(octets) => self.lost += usize::from(self.blocks.put(kind, id, octets).is_err()),
            None => self.blocks.remove(kind, id),
        }
        self.seen.push(SeenRecord { kind, id, write, octets });
    }
}

/// Where a replica has the state from.
pub(crate) enum ReplicaState {
    /// A process of this host.
    Followed(FollowedState),
    /// One of another host.
    Received(ReceivedState),
}

impl ReplicaState {
    pub(crate) fn stands(&self) -> bool {
        match self {
            Self::Followed(followed) => followed.stands(),
            Self::Received(_) => true,
        }
    }

    pub(crate) fn recovery(&self) -> RecoveryTimeStamp {
        match self {
            Self::Followed(followed) => followed.recovery(),
            Self::Received(received) => received.recovery,
        }
    }

    /// What has changed since the last call, in the order in which it was written.
    pub(crate) fn look(&mut self) -> Vec<SeenRecord> {
        match self {
            Self::Followed(followed) => followed.look(),
            Self::Received(received) => newest(std::mem::take(&mut received.seen)),
        }
    }

    /// The last look, when the UPF whose state it is has ended.
    pub(crate) fn look_at_all(&mut self) -> Vec<SeenRecord> {
        match self {
            Self::Followed(followed) => followed.look_at_all(),
            Self::Received(_) => self.look(),
        }
    }

    /// Records that are missing.
    pub(crate) fn lost(&self) -> usize {
        match self {
            Self::Followed(_) => 0,
            Self::Received(received) => received.lost,
        }
    }

    pub(crate) fn take_over(self) -> Blocks {
        match self {
            Self::Followed(followed) => followed.take_over(),
            Self::Received(received) => received.blocks,
        }
    }
}

/// The last of each record, in order.
fn newest(seen: Vec<SeenRecord>) -> Vec<SeenRecord> {
    let mut known = BTreeSet::new();
    let mut newest: Vec<SeenRecord> =
        seen.into_iter().rev().filter(|s| known.insert((s.kind, s.id))).collect();
    newest.reverse();
    newest
}

/// A memory without what is behind its sessions.
struct Front {
    memory: Box<dyn StateMemory>,
    octets: u64,
}

fn front_of(memory: Box<dyn StateMemory>, config: &Config) -> Box<dyn StateMemory> {
    let octets = memory.octets().min(SessionMemory::held_at(config));
    Box::new(Front { memory, octets })
}

impl StateMemory for Front {
    fn octets(&self) -> u64 {
        self.octets
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        self.memory.read(at, to);
    }

    fn write(&mut self, at: u64, octets: &[u8]) {
        self.memory.write(at, octets);
    }

    fn reserve(&mut self, until: u64) -> bool {
        self.memory.reserve(until)
    }
}

/// Reads a header. `None`: nothing was written there.
fn read(
    header: &[u8; HEADER_OCTETS],
    key: u64,
    boot: [u8; 16],
) -> Result<Option<(u32, u64, RecoveryTimeStamp)>, StateRefusal> {
    if header.iter().all(|o| *o == 0) {
        return Ok(None);
    }
    let mut from = StoredReader::new(header);
    let mut read = || {
        let (magic, version): ([u8; 8], u32) = Stored::restore(&mut from)?;
        let (block, salt): (u32, u32) = Stored::restore(&mut from)?;
        let (its_key, its_boot): (u64, [u8; 16]) = Stored::restore(&mut from)?;
        let (seed, recovery): (u64, RecoveryTimeStamp) = Stored::restore(&mut from)?;
        let sum = u32::restore(&mut from)?;
        Some((magic, version, block, salt, its_key, its_boot, seed, recovery, sum))
    };
    let (magic, version, block, salt, its_key, its_boot, seed, recovery, sum) =
        read().ok_or(StateRefusal::Damaged)?;
    if magic != MAGIC {
        return Err(StateRefusal::Foreign);
    }
    if version != STATE_VERSION || block != BLOCK_OCTETS as u32 {
        return Err(StateRefusal::Version { found: version });
    }
    if crc32c(0, &header[..HEADER_OCTETS - 4]) != sum {
        return Err(StateRefusal::Damaged);
    }
    if its_key != key {
        return Err(StateRefusal::Configuration);
    }
    if its_boot != boot {
        return Err(StateRefusal::Boot);
    }
    Ok(Some((salt, seed, recovery)))
}

/// Writes a header.
fn begin(
    mut memory: Box<dyn StateMemory>,
    salt: u32,
    key: u64,
    boot: [u8; 16],
    seed: u64,
    recovery: RecoveryTimeStamp,
) -> Box<dyn StateMemory> {
    let mut header = Vec::with_capacity(HEADER_OCTETS);
    (MAGIC, STATE_VERSION).store(&mut header);
    (BLOCK_OCTETS as u32, salt).store(&mut header);
    (key, boot).store(&mut header);
    (seed, recovery).store(&mut header);
    crc32c(0, &header).store(&mut header);
    memory.write(0, &header);
    memory
}

impl Config {
    /// A number for what two UPFs must have in common for one to go on with the sessions of the other.
    pub fn state_key(&self) -> u64 {
        key(self)
    }
}

/// What two UPFs must have in common for one to go on with the sessions of the other.
fn key(config: &Config) -> u64 {
    let mut octets = Vec::new();
    config.node_id.store(&mut octets);
    config.n4.store(&mut octets);
    (config.n3_ipv4, config.n3_ipv6).store(&mut octets);
    (config.sessions_max, config.cp_port).store(&mut octets);
    // A key of 1 would change the number of every UPF there is.
    config.smf_f_teids.then_some(1u8).iter().for_each(|one| one.store(&mut octets));
    for network in &config.data_networks {
        Box::<str>::from(network.dnn.as_str()).store(&mut octets);
        (network.ethernet, network.unstructured).store(&mut octets);
        network.firewall.is_some().store(&mut octets);
    }
    for slice in &config.slices {
        octets.extend_from_slice(format!("{:?}", slice.slice).as_bytes());
    }
    octets.chunks(8).fold(0, |key, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        mix(key ^ u64::from_le_bytes(word))
    })
}
