//! Shards: several pipelines, each on a thread of its own, each with its own sessions.
//!
//! The lowest bits of a session's index name its shard, so the tunnel of a packet from a UE names it too. UPF-C gives a session
//! an address with the same lowest bits where it may choose, so that drivers and the kernel can steer packets to UEs likewise. Where
//! they do not, or may not (an SMF's own addresses), a pipeline hands a packet to the one that has its session
//! ([`PacketVerdict::Hand`](super::PacketVerdict::Hand)): all there is to a session happens in one place, packets in order, and needs no lock. What
//! sessions of different shards share is in [`Common`], and no packet of a usual session touches it.
//!
//! Some things are the first shard's: Ethernet sessions, which a switch joins, and the supervision of paths. Framed routes and addresses
//! outside the pools are too few to be in a common index: a shard that does not know such an address asks the next one.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use whimbrel_ids::Instant;

use super::DropReason;
use super::guard::DestinationFilter;
use super::peers::Peers;
use super::slice::Slice;
use crate::buffering::Buffering;
use crate::config::{Config, DataNetwork, DnIndex};
use crate::exchange::UserPlaneChange;
use crate::limits::{ECHOES_PER_SECOND_MAX, ERROR_INDICATIONS_PER_SECOND_MAX, POOL_ADDRESSES_MAX};
use crate::rules::{SessionRules, upper};
use crate::session_id::SessionId;

/// Which of the shards a pipeline is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    number: u8,
    /// How many there are, a power of two.
    of: u8,
}

impl Shard {
    pub(super) fn new(number: u8, of: u8) -> Self {
        debug_assert!(of.is_power_of_two() && number < of);
        Self { number, of }
    }

    /// Whether there are others.
    #[inline]
    pub(super) fn has_others(self) -> bool {
        self.of > 1
    }

    pub(super) fn is_first(self) -> bool {
        self.number == 0
    }

    pub(super) fn number(self) -> u8 {
        self.number
    }

    pub(super) fn of(self) -> u8 {
        self.of
    }

    /// The bits of an index that name a shard.
    pub(super) fn bits(self) -> u32 {
        self.of.trailing_zeros()
    }

    /// The shard of a session.
    #[inline]
    pub(super) fn of_index(self, index: u32) -> u8 {
        shard_of(index.into(), self.of)
    }

    /// Whether a session is of this shard.
    #[inline]
    pub(super) fn is_own(self, index: u32) -> bool {
        self.of_index(index) == self.number
    }

    /// The one that is asked after this one.
    pub(super) fn next(self) -> u8 {
        (self.number + 1) & (self.of - 1)
    }
}

/// The shard of an index, or of the number of a UE's address, as far as UPF-C could choose that.
#[inline]
pub(crate) fn shard_of(number: u64, shards: u8) -> u8 {
    number as u8 & (shards - 1)
}

/// How often something happened in the present second, in all shards.
#[derive(Default)]
pub(super) struct PerSecond(AtomicU64);

impl PerSecond {
    /// Counts once more; whether that is within the bound.
    pub(super) fn once_more(&self, now: Instant, max: u32) -> bool {
        // The second is above, the count below; a thread whose clock is behind does not restart the past second.
        let second = now.as_secs() << 32;
        let counted = |old: u64| Some(if old < second { second | 1 } else { old.saturating_add(1) });
        let old = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted).unwrap_or_default();
        old < second && max > 0 || old >= second && ((old & u64::from(u32::MAX)) as u32) < max
    }
}

/// What all shards share.
pub(super) struct Common {
    pub(super) slices: Box<[Slice]>,
    /// Destinations that may be denied to UEs.
    pub(super) suspects: DestinationFilter,
    /// Where tunnels lead.
    pub(super) peers: Peers,
    /// What waits for UEs, and what may.
    held: AtomicU64,
    held_octets: AtomicU64,
    buffering: Buffering,
    errors: PerSecond,
    /// None are sent before.
    errors_from: AtomicU64,
    echoes: PerSecond,
    /// Where UEs are, for each data network; none where there is one shard.
    ues: Box<[Ues]>,
    /// Some session has a framed route, or an address outside the pools.
    beyond_pools: AtomicBool,
    /// Some path's peer may be dead: bursts are looked through for packets from there.
    paths_in_doubt: AtomicBool,
}

impl Common {
    pub(super) fn new(config: &Config) -> Self {
        let networks = if config.shards > 1 { config.data_networks.as_slice() } else { &[] };
        Self {
            slices: config.slices.iter().map(Slice::new).collect(),
            suspects: DestinationFilter::default(),
            peers: Peers::new(config.seed),
            held: AtomicU64::new(0),
            held_octets: AtomicU64::new(0),
            buffering: config.buffering,
            errors: PerSecond::default(),
            errors_from: AtomicU64::new(0),
            echoes: PerSecond::default(),
            ues: networks.iter().map(Ues::new).collect(),
            beyond_pools: AtomicBool::new(false),
            paths_in_doubt: AtomicBool::new(false),
        }
    }

    /// Packets that may wait beside those that do.
    pub(super) fn free_to_hold(&self) -> usize {
        u64::from(self.buffering.packets).saturating_sub(self.held.load(Ordering::Relaxed)) as usize
    }

    /// One more packet waits. Errors: which bound it exceeds.
    pub(super) fn hold(&self, octets: u64) -> Result<(), DropReason> {
        let add = |to: &AtomicU64, one: u64, most: u64| {
            let more = |held: u64| held.checked_add(one).filter(|held| *held <= most);
            to.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        };
        if !add(&self.held, 1, self.buffering.packets.into()) {
            return Err(DropReason::BuffersExhausted);
        }
        if !add(&self.held_octets, octets, self.buffering.octets.into()) {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return Err(DropReason::BuffersOctets);
        }
        Ok(())
    }

    /// So many wait no longer.
    pub(super) fn release(&self, packets: u64, octets: u64) {
        self.held.fetch_sub(packets, Ordering::Relaxed);
        self.held_octets.fetch_sub(octets, Ordering::Relaxed);
    }

    /// Whether one more error indication may be sent in this second.
    pub(super) fn may_send_error(&self, now: Instant) -> bool {
        now.0 >= self.errors_from.load(Ordering::Relaxed)
            && self.errors.once_more(now, ERROR_INDICATIONS_PER_SECOND_MAX)
    }

    /// No error indications until then.
    pub(super) fn hold_errors(&self, until: Instant) {
        self.errors_from.store(until.0, Ordering::Relaxed);
    }

    /// Whether one more echo request may be answered in this second.
    pub(super) fn may_answer_echo(&self, now: Instant) -> bool {
        self.echoes.once_more(now, ECHOES_PER_SECOND_MAX)
    }

    /// The shard whose session has, had or will have an address of a pool.
    pub(super) fn shard_of(&self, dn: DnIndex, address: IpAddr) -> Option<u8> {
        self.ues.get(usize::from(dn.0))?.get(address)
    }

    /// Whether some shard may have a session for an address that is in no pool, or of a pool and behind a UE.
    pub(super) fn beyond_pools(&self) -> bool {
        self.beyond_pools.load(Ordering::Relaxed)
    }

    /// Whether some path's peer may be dead.
    #[inline]
    pub(super) fn paths_in_doubt(&self) -> bool {
        self.paths_in_doubt.load(Ordering::Relaxed)
    }

    pub(super) fn set_paths_in_doubt(&self, are: bool) {
        self.paths_in_doubt.store(are, Ordering::Relaxed);
    }

    fn learn(&self, shard: u8, rules: &SessionRules) {
        let Some(ues) = self.ues.get(usize::from(rules.data_network.0)) else { return };
        let own = [rules.ue_ipv4.map(IpAddr::V4), rules.ue_ipv6.map(IpAddr::V6)];
        let beyond = own.into_iter().flatten().fold(false, |beyond, a| beyond | !ues.set(a, shard));
        if beyond || !rules.framed.is_empty() {
            self.beyond_pools.store(true, Ordering::Relaxed);
        }
    }
}

/// Addresses of one piece of a pool, which is there from its first UE on.
const PIECE: usize = 65_536;

/// The shards of a pool's addresses, each with one added; zero for those that never were a UE's.
struct ShardNumbers {
    first: u64,
    pieces: Box<[OnceLock<Box<[AtomicU8]>>]>,
    len: u64,
}

impl ShardNumbers {
    fn new(first: u64, count: u64) -> Self {
        let len = count.min(u64::from(POOL_ADDRESSES_MAX));
        let pieces = (len as usize).div_ceil(PIECE);
        Self { first, pieces: (0..pieces).map(|_| OnceLock::new()).collect(), len }
    }

    fn place(&self, number: u64) -> Option<usize> {
        let at = number.checked_sub(self.first)?;
        (at < self.len).then_some(at as usize)
    }
}

/// The shards of a data network's UEs. What is written here once may be out of date later: it says where to ask, no more.
struct Ues {
    ipv4: Box<[ShardNumbers]>,
    ipv6: Box<[ShardNumbers]>,
}

impl Ues {
    fn new(dn: &DataNetwork) -> Self {
        let ipv4 = dn.all_ipv4_pools().map(|p| ShardNumbers::new(p.first().into(), p.numbers()));
        let ipv6 = dn.all_ipv6_pools().map(|p| ShardNumbers::new(p.first(), p.numbers()));
        Self { ipv4: ipv4.collect(), ipv6: ipv6.collect() }
    }

    fn place(&self, address: IpAddr) -> Option<(&ShardNumbers, usize)> {
        let (all, number) = match address {
            IpAddr::V4(a) => (&self.ipv4, a.to_bits().into()),
            IpAddr::V6(a) => (&self.ipv6, upper(a)),
        };
        all.iter().find_map(|n| Some((n, n.place(number)?)))
    }

    fn get(&self, address: IpAddr) -> Option<u8> {
        let (numbers, at) = self.place(address)?;
        let shard = numbers.pieces.get(at / PIECE)?.get()?.get(at % PIECE)?;
        shard.load(Ordering::Relaxed).checked_sub(1)
    }

    /// False if it is of no pool.
    fn set(&self, address: IpAddr, shard: u8) -> bool {
        let Some((numbers, at)) = self.place(address) else { return false };
        if let Some(piece) = numbers.pieces.get(at / PIECE) {
            let piece = piece.get_or_init(|| (0..PIECE).map(|_| AtomicU8::new(0)).collect());
            piece[at % PIECE].store(shard + 1, Ordering::Relaxed);
        }
        true
    }
}

/// Which shard a change, or a question, is for. For the caller that takes changes from UPF-C to the pipelines.
#[derive(Clone)]
pub struct ShardSteering {
    common: Arc<Common>,
    shards: u8,
}

impl ShardSteering {
    pub(super) fn new(common: Arc<Common>, shards: u8) -> Self {
        Self { common, shards }
    }

    /// The shard of a session.
    pub fn of_session(&self, session: SessionId) -> usize {
        shard_of(session.index.into(), self.shards).into()
    }

    /// The shard that a change is for, to be asked before it is taken there: from now on the others know where its UE's packets
    /// go.
    pub fn of_change(&self, change: &UserPlaneChange) -> usize {
        let (session, rules) = match change {
            UserPlaneChange::NoSession { shard, .. } => return usize::from(*shard),
            UserPlaneChange::Put { session, rules, .. }
            | UserPlaneChange::Predict { session, rules, .. }
            | UserPlaneChange::Restore { session, rules, .. } => (session, Some(rules)),
            UserPlaneChange::Remove { session, .. } => (session, None),
        };
        let shard = shard_of(session.index.into(), self.shards);
        if let Some(rules) = rules {
            self.common.learn(shard, rules);
        }
        shard.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_bound_happens_in_a_second_whatever_the_threads_clocks_say() {
        let (errors, at) = (PerSecond::default(), |s: u64| Instant(s * 1_000_000));
        assert!(!errors.once_more(at(9), 0), "none at all");
        let passed = |s| (0..9).filter(|_| errors.once_more(at(s), 5)).count();
        assert_eq!((passed(10), passed(9), passed(10), passed(11)), (5, 0, 0, 5));
    }
}
