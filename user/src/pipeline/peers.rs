//! The addresses of gNBs and other UPFs that sessions name: GTP-U comes from there and from nowhere else (TS 29.281 §4.3.0).
//!
//! A session's own rules name one gNB. In a handover its packets come by another one before the SMF has updated the rules; that is accepted from a gNB
//! which rules of any session of this UPF name. All pipelines share the table: fingerprints of addresses, each with the number of tunnels that lead
//! there, found without a lock and in a bounded number of steps.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use whimbrel_ids::{Instant, Teid};

use super::packet::Packet;
use super::{DropReason, PacketVerdict, UpfU};
use crate::limits::{
    PATHS_MAX, UNKNOWN_PEER_PACKETS_MAX, UNKNOWN_PEER_PACKETS_PER_PEER_MAX,
    UNKNOWN_PEER_PACKETS_PER_SESSION_MAX,
};
use crate::session_id::mix;

/// Places for fingerprints: four times as many as there are peers, so that of [`PROBES`] in a row one is free.
const PLACES: usize = 4 * PATHS_MAX;
/// Places in a row that may have an address: two cache lines.
const PROBES: usize = 16;
/// How long a packet waits for the SMF to name the gNB from which it came. A gNB may send as soon as it has answered PDU SESSION RESOURCE
/// SETUP REQUEST or PATH SWITCH REQUEST was sent; the SMF's word comes some milliseconds later, behind a burst of procedures some hundred.
const UNPLACED_AGE: Duration = Duration::from_millis(500);

/// How long a gNB is believed after the last tunnel that led to it: what is under way from the source of a handover goes on, by the session's own
/// tunnel and by one for forwarding, as long as a source keeps it (TS 23.502 §4.9.1.3.3 step 14: a timer of some seconds).
const LEFT_FOR: Duration = Duration::from_secs(10);
/// No peer is about to be forgotten.
const NEVER: u64 = u64::MAX;

/// The addresses to which tunnels of any session lead, or led until lately, in all pipelines.
pub(super) struct Peers {
    seed: u64,
    fingerprints: Box<[AtomicU64]>,
    /// Changes of rules take the lock; packets read the fingerprints.
    known: Mutex<KnownPeers>,
    /// When the first of those to which no tunnel leads any more is forgotten, in microseconds.
    due: AtomicU64,
}

/// By address: how many tunnels lead there, and when the last one ended.
type KnownPeers = BTreeMap<IpAddr, (u32, Instant)>;

impl Peers {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed: mix(seed ^ 0x5045_4552),
            fingerprints: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            known: Mutex::default(),
            due: AtomicU64::new(NEVER),
        }
    }

    /// What stands for an address; never zero.
    fn fingerprint(&self, address: IpAddr) -> u64 {
        let number = match address {
            IpAddr::V4(a) => mix(self.seed ^ u64::from(a.to_bits())),
            IpAddr::V6(a) => {
                let (upper, lower) = ((a.to_bits() >> 64) as u64, a.to_bits() as u64);
                mix(mix(self.seed ^ 1 << 32 ^ upper) ^ lower)
            }
        };
        number | 1
    }

    fn places(&self, fingerprint: u64) -> impl Iterator<Item = &AtomicU64> {
        let first = (fingerprint >> 1) as usize;
        (0..PROBES).map(move |n| &self.fingerprints[(first + n) % PLACES])
    }

    /// Whether a tunnel leads to an address.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        let fingerprint = self.fingerprint(address);
        self.places(fingerprint).any(|p| p.load(Ordering::Relaxed) == fingerprint)
    }

    /// A tunnel begins, or ends, to lead to an address; whether it is the first one. Addresses beyond [`PATHS_MAX`] are those of their own sessions
    /// alone.
    pub(super) fn lead(&self, now: Instant, address: IpAddr, begins: bool) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let room = known.len() < PATHS_MAX;
        match (known.get_mut(&address), begins) {
            (Some((tunnels, _)), true) => *tunnels += 1,
            (Some((tunnels, left)), false) => {
                (*tunnels, *left) = (tunnels.saturating_sub(1), now);
                if *tunnels == 0 {
                    self.due.fetch_min((now + LEFT_FOR).0, Ordering::Relaxed);
                }
            }
            (None, true) if room => {
                known.insert(address, (1, now));
                self.replace(address, false);
                return true;
            }
            (None, _) => {}
        }
        false
    }

    /// An address is known from now on, or no longer.
    fn replace(&self, address: IpAddr, is_known: bool) {
        let fingerprint = self.fingerprint(address);
        let (from, to) = if is_known { (fingerprint, 0) } else { (0, fingerprint) };
        let place = self.places(fingerprint).find(|p| p.load(Ordering::Relaxed) == from);
        place.into_iter().for_each(|p| p.store(to, Ordering::Relaxed));
    }

    /// When [`Self::forget`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.due.load(Ordering::Relaxed);
        (due != NEVER).then_some(Instant(due))
    }

    /// Forgets those to which no tunnel has led for long enough.
    pub(super) fn forget(&self, now: Instant) {
        if self.due().is_none_or(|at| at > now) {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = NEVER;
        known.retain(|address, (tunnels, left)| {
            let at = *left + LEFT_FOR;
            let stays = *tunnels > 0 || at > now;
            match stays {
                true if *tunnels == 0 => next = next.min(at.0),
                true => {}
                false => self.replace(*address, true),
            }
            stays
        });
        self.due.store(next, Ordering::Relaxed);
    }
}

/// A datagram of a session's tunnel from an address that nothing names.
struct UnplacedDatagram {
    session: u32,
    since: Instant,
    teid: Teid,
    peer: SocketAddr,
    local: IpAddr,
    packet: Packet,
}

/// All of a pipeline, the oldest first.
#[derive(Default)]
pub(super) struct UnplacedPackets(VecDeque<UnplacedDatagram>);

impl UnplacedPackets {
    /// Whether packets of a session wait that came from this address.
    pub(super) fn has_any_from(&self, session: u32, peer: IpAddr) -> bool {
        self.0.iter().any(|unplaced| unplaced.session == session && unplaced.peer.ip() == peer)
    }
}

impl UpfU {
    /// Whether a session's tunnel takes packets from an address: from the peer that the session's rules name, from one that any
    /// session's name, and from where the operator says that gNBs are. Rules without a peer on that side take them from everywhere. No UE is
    /// a peer: that is seen to before.
    #[cold]
    pub(super) fn is_placed(&self, now: Instant, session: u32, teid: Teid, peer: IpAddr) -> bool {
        self.sessions.takes_from(session, teid, peer) || self.shared.is_peer(now, peer, false)
    }

    /// Keeps a packet until the SMF names the gNB from which it came.
    #[cold]
    pub(super) fn await_place(
        &mut self,
        now: Instant,
        session: u32,
        teid: Teid,
        (peer, local): (SocketAddr, IpAddr),
        packet: &mut Packet,
    ) -> PacketVerdict {
        let all = &self.unplaced.0;
        let full = all.len() >= UNKNOWN_PEER_PACKETS_MAX
            || all.iter().filter(|u| u.session == session).count() >= UNKNOWN_PEER_PACKETS_PER_SESSION_MAX
            || all.iter().filter(|u| u.peer.ip() == peer.ip()).count() >= UNKNOWN_PEER_PACKETS_PER_PEER_MAX;
        if full {
            return PacketVerdict::Drop(DropReason::GtpuForeignPeer);
        }
        let packet = std::mem::replace(packet, self.shared.fresh());
        self.unplaced.0.push_back(UnplacedDatagram { session, since: now, teid, peer, local, packet });
        PacketVerdict::Taken
    }

    /// Packets of a session go on whose gNB is known by now.
    pub(super) fn place_waiting(&mut self, now: Instant, session: u32) {
        if self.unplaced.0.is_empty() {
            return;
        }
        for waiting in std::mem::take(&mut self.unplaced.0) {
            let UnplacedDatagram { teid, peer, local, .. } = waiting;
            if waiting.session != session || !self.is_placed(now, session, teid, peer.ip()) {
                self.unplaced.0.push_back(waiting);
                continue;
            }
            let mut packet = waiting.packet;
            match self.datagram(now, peer, local, 0, &mut packet) {
                PacketVerdict::Send(to) => self.shared.send(to, packet),
                PacketVerdict::Drop(reason) => {
                    self.shared.counters.drop(reason);
                    self.shared.recycle(packet);
                }
                PacketVerdict::Taken | PacketVerdict::Pending | PacketVerdict::Hand { .. } => {
                    self.shared.recycle(packet)
                }
            }
        }
    }

    /// A session has ended: nothing will name the peers of its packets.
    pub(super) fn drop_waiting(&mut self, session: u32) {
        let (ended, stay) =
            std::mem::take(&mut self.unplaced.0).into_iter().partition(|u| u.session == session);
        self.unplaced.0 = stay;
        let ended: VecDeque<UnplacedDatagram> = ended;
        for waiting in ended {
            self.shared.counters.drop(DropReason::GtpuForeignPeer);
            self.shared.recycle(waiting.packet);
        }
    }

    /// When the oldest has waited for as long as it may.
    pub(super) fn waiting_deadline(&self) -> Option<Instant> {
        self.unplaced.0.front().map(|u| u.since + UNPLACED_AGE)
    }

    /// Drops those whose gNB no rule has named in time.
    pub(super) fn expire_waiting(&mut self, now: Instant) {
        while self.waiting_deadline().is_some_and(|at| at <= now)
            && let Some(waiting) = self.unplaced.0.pop_front()
        {
            self.shared.counters.drop(DropReason::GtpuForeignPeer);
            self.shared.recycle(waiting.packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_known_while_a_tunnel_leads_to_it_and_for_a_while_after() {
        let peers = Peers::new(7);
        let address = |n: u32| IpAddr::V4((0x0a00_0000 + n).into());
        let now = Instant(1_800_000_000_000_000);
        for n in 0..PATHS_MAX as u32 {
            assert!(peers.lead(now, address(n), true));
        }
        assert!(!peers.lead(now, address(3), true), "a second tunnel");
        assert!((0..PATHS_MAX as u32).all(|n| peers.has(address(n))));
        assert!((PATHS_MAX as u32..100_000).all(|n| !peers.has(address(n))));
        assert!(!peers.lead(now, address(70_000), true) && !peers.has(address(70_000)), "one too many");
        peers.lead(now, address(3), false);
        assert_eq!(peers.due(), None);
        peers.lead(now, address(3), false);
        assert_eq!(peers.due(), Some(now + LEFT_FOR));
        peers.forget(now + LEFT_FOR - Duration::from_micros(1));
        assert!(peers.has(address(3)));
        // It leaves twice: the second time counts.
        let later = now + Duration::from_secs(4);
        assert!(!peers.lead(later, address(3), true), "it was known");
        peers.lead(later, address(3), false);
        peers.forget(now + LEFT_FOR);
        assert!(peers.has(address(3)) && peers.due() == Some(later + LEFT_FOR));
        peers.forget(later + LEFT_FOR);
        assert!(!peers.has(address(3)) && peers.due().is_none());
        let v6: IpAddr = "2001:db8::9".parse().unwrap();
        assert!(!peers.has(v6) && peers.lead(now, v6, true) && peers.has(v6), "there is room again");
    }
}
