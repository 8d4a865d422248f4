//! A plain session: what a packet that passes needs of it, in two cache lines, and the rest, folded small.
//!
//! Plain is an IP session of one PDR each way without filters, of a slice without a rate and a network without a firewall, with two
//! QERs at most (the session's AMBR and its flow, as our SMF asks for) and one URR, none of whose limits is near. A packet of such a
//! session is decided on by [`Hot::uplink`] and [`Hot::downlink`], as the stages would decide; what these leave
//! ([`Decision::Full`]) goes through the stages, and so does everything that is not a packet. Folding loses nothing:
//! [`Cold::unfold`] gives the session back as the stages would have left it.

mod offloaded;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use whimbrel_gtpu::{GpduHeader, PORT, PduSessionInformation};
use whimbrel_ids::{Instant, Qfi, Teid};
use whimbrel_pfcp::ie::{ApplyAction, DestinationInterface, Gate, SourceInterface};
use whimbrel_prefetch::prefetch;

use super::burst::{Stage, StageObserver};
use super::inner::InnerPacket;
use super::meter::{self, Meter};
use super::session::{SessionCounters, SessionState, SessionU};
use super::stages::{Ingress, flow_of};
use super::usage::{BulkUsage, Usage};
use super::{Destination, DropReason};
use crate::config::DnIndex;
use crate::limits::TUNNELS_PER_SESSION_MAX;
use crate::rules::{Far, NONE, OwnRules, Pdr, PeerTunnel, Qer, SessionKind, SessionRules, upper};

/// Shapes of rules that are kept; sessions of further shapes are not folded. An operator has a handful: a data network's, times those
/// of idle and active UEs.
const SHAPES_MAX: usize = 64;
/// A session that may count fewer octets than this before something is due is not folded: it would soon be unfolded.
const ROOM_OCTETS_MIN: u64 = 64 * 1024;
/// Octets of a packet that a GTP-U header with an extension can surely carry.
const OCTETS_MAX: usize = 65_000;
/// QERs of a plain session at most: its AMBR's and its flow's.
const QERS_MAX: usize = 2;
/// No rate is policed.
pub(super) const UNPOLICED: u32 = u32::MAX;
/// Any QoS flow, or none.
pub(super) const ANY_FLOW: u8 = u8::MAX;

/// What is so in a plain session.
mod flag {
    /// There is a plain session.
    pub(super) const PLAIN: u16 = 1;
    /// The UE has an IPv4 address.
    pub(super) const IPV4: u16 = 1 << 1;
    /// The UE has an IPv6 prefix.
    pub(super) const IPV6: u16 = 1 << 2;
    /// Of either direction, the uplink's shifted by none: packets are forwarded.
    pub(super) const FORWARDS: u16 = 1 << 3;
    /// Packets are dropped at the FAR's word.
    pub(super) const DROPS: u16 = 1 << 4;
    /// The gate of a QER is closed.
    pub(super) const CLOSED: u16 = 1 << 5;
    /// The downlink's flags are the uplink's, shifted by so many bits.
    pub(super) const DOWNLINK_SHIFT: u16 = 3;
    /// What packets change is in the fast path's memory.
    pub(super) const OFFLOADED: u16 = 1 << 9;
    /// It is about to go there.
    pub(super) const WATCHED: u16 = 1 << 10;
    /// Two QERs have rates: there is a [`super::Second`].
    pub(super) const TWICE_METERED: u16 = 1 << 11;
    /// No rule names a gNB.
    pub(super) const NO_GNB: u16 = 1 << 12;
}

/// What is to be done with a packet of a plain session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It passes, and is counted.
    Forward,
    /// It is dropped; the session has counted it.
    Drop(DropReason),
    /// The stages are to decide. Nothing has changed.
    Full,
    /// The same, because something may be due: afterwards the session is soon plain again.
    Due,
    /// To be asked again while the session is reclaimed from the fast path. Nothing has changed.
    Offloaded,
    /// To be asked again with the second meter. Nothing has changed.
    TwiceMetered,
}

/// The second QER that has rates, of the few sessions that have one.
pub(super) struct Second {
    qer: Qer,
    meter: Meter,
}

/// What packets need of a plain session: a cache line that they read, and one that they write.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Hot {
    flags: u16,
    window_ms: u16,
    teid: Teid,
    ue_ipv4: u32,
    ul_kbps: u32,
    ue_ipv6: u64,
    gnb: Ipv6Addr,
    gnb_teid: Teid,
    dl_kbps: u32,
    container: Option<PduSessionInformation>,
    ul_flow: u8,
    tos: u8,
    data_network: DnIndex,
    /// Packets decided on here since the session is watched.
    decided: u16,
    written: CounterState,
}

/// What packets change.
#[repr(C, align(64))]
#[derive(Clone, Default)]
struct CounterState {
    ul_tokens: u64,
    dl_tokens: u64,
    filled: Instant,
    first_packet: Instant,
    last_packet: Instant,
    /// Octets that may pass before the stages must look.
    room: u32,
    ul_octets: u32,
    dl_octets: u32,
    ul_packets: u32,
    dl_packets: u32,
    dropped: u32,
}

const _: () = assert!(size_of::<Hot>() == 128 && std::mem::offset_of!(Hot, written) == 64);

impl Default for Hot {
    /// No plain session.
    fn default() -> Self {
        Self {
            flags: 0,
            window_ms: 0,
            teid: Teid(0),
            ue_ipv4: 0,
            ul_kbps: UNPOLICED,
            ue_ipv6: 0,
            gnb: Ipv6Addr::UNSPECIFIED,
            gnb_teid: Teid(0),
            dl_kbps: UNPOLICED,
            container: None,
            ul_flow: ANY_FLOW,
            tos: 0,
            data_network: DnIndex(0),
            decided: 0,
            written: CounterState::default(),
        }
    }
}

impl Hot {
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.flags & flag::PLAIN != 0
    }

    /// Whether it is plain, and packets from the UE go into the data network.
    #[inline]
    pub(super) fn leads_out(&self) -> bool {
        self.flags & (flag::PLAIN | flag::FORWARDS) == flag::PLAIN | flag::FORWARDS
    }

    /// Begins to load both lines.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.flags);
        prefetch(&self.written);
    }

    /// Whether an address is that of the gNB which the rules name.
    #[inline]
    pub(super) fn is_gnb(&self, peer: IpAddr) -> bool {
        match peer {
            IpAddr::V4(a) => self.gnb.to_ipv4_mapped() == Some(a),
            IpAddr::V6(a) => self.gnb == a,
        }
    }

    /// Whether no rule names one.
    pub(super) fn names_no_gnb(&self) -> bool {
        self.flags & flag::NO_GNB != 0
    }

    /// Decides on a packet from the UE, by way of its gNB; with the second meter, if the caller has it. `reaches`: whether
    /// its destination is one that UEs reach.
    #[inline]
    pub(super) fn uplink(
        &mut self,
        now: Instant,
        ingress: Ingress,
        inner: &InnerPacket,
        reaches: Result<(), DropReason>,
        second: Option<&mut Second>,
        observer: &mut impl StageObserver,
    ) -> Decision {
        if !self.is_here(second.is_some()) || ingress.teid != self.teid {
            return self.not_here(second.is_some());
        }
        let own = match inner.source {
            IpAddr::V4(a) => self.flags & flag::IPV4 != 0 && a.to_bits() == self.ue_ipv4,
            IpAddr::V6(a) if a.is_unicast_link_local() || a.is_unspecified() => return Decision::Full,
            IpAddr::V6(a) => self.flags & flag::IPV6 != 0 && upper(a) == self.ue_ipv6,
        };
        if self.ul_flow != ANY_FLOW && ingress.qfi().map(Qfi::value) != Some(self.ul_flow) {
            return self.drop(DropReason::QfiMismatch);
        }
        if !own && self.flags & (flag::IPV4 | flag::IPV6) != 0 {
            return self.drop(DropReason::SpoofedSource);
        }
        self.pass(now, true, inner.octets, reaches, second, observer)
    }

    /// Decides on a packet to the UE, likewise.
    #[inline]
    pub(super) fn downlink(
        &mut self,
        now: Instant,
        inner: &InnerPacket,
        second: Option<&mut Second>,
        observer: &mut impl StageObserver,
    ) -> Decision {
        // What the header's length cannot say is the stages' to refuse.
        if self.is_here(second.is_some()) && inner.octets <= OCTETS_MAX {
            self.pass(now, false, inner.octets, Ok(()), second, observer)
        } else {
            self.not_here(second.is_some())
        }
    }

    /// Whether all that a packet needs is here.
    #[inline]
    fn is_here(&self, second: bool) -> bool {
        let elsewhere = if second { flag::OFFLOADED } else { flag::OFFLOADED | flag::TWICE_METERED };
        self.flags & (flag::PLAIN | elsewhere) == flag::PLAIN
    }

    #[cold]
    fn not_here(&self, second: bool) -> Decision {
        if self.flags & flag::OFFLOADED != 0 {
            Decision::Offloaded
        } else if self.flags & flag::TWICE_METERED != 0 && !second {
            Decision::TwiceMetered
        } else {
            Decision::Full
        }
    }

    /// Action, gate, rates and account.
    #[inline]
    fn pass(
        &mut self,
        now: Instant,
        uplink: bool,
        octets: usize,
        reaches: Result<(), DropReason>,
        mut second: Option<&mut Second>,
        observer: &mut impl StageObserver,
    ) -> Decision {
        let flags = if uplink { self.flags } else { self.flags >> flag::DOWNLINK_SHIFT };
        if flags & flag::DROPS != 0 {
            return self.drop(DropReason::FarDrop);
        }
        if let Err(reason) = reaches
            && flags & flag::FORWARDS != 0
        {
            return self.drop(reason);
        }
        let w = &mut self.written;
        let Some(room) = u32::try_from(octets).ok().and_then(|o| w.room.checked_sub(o)) else {
            return Decision::Due;
        };
        if flags & flag::FORWARDS == 0 {
            return Decision::Full;
        }
        if flags & flag::CLOSED != 0 {
            return self.drop(DropReason::GateClosed);
        }
        observer.done(Stage::Classify);
        if let Some(Second { qer, meter }) = &mut second
            && !meter.take(now, qer, uplink, octets)
        {
            return self.drop(DropReason::RateExceeded);
        }
        let elapsed_us = now.0.saturating_sub(w.filled.0);
        if elapsed_us > 0 {
            let window_ms = u64::from(self.window_ms);
            // Tokens of a direction that is not policed are never read.
            w.ul_tokens = meter::refilled(w.ul_tokens, elapsed_us, self.ul_kbps.into(), window_ms);
            w.dl_tokens = meter::refilled(w.dl_tokens, elapsed_us, self.dl_kbps.into(), window_ms);
            w.filled = now;
        }
        let (rate, tokens) =
            if uplink { (self.ul_kbps, &mut w.ul_tokens) } else { (self.dl_kbps, &mut w.dl_tokens) };
        if rate != UNPOLICED {
            match tokens.checked_sub(meter::cost(octets)) {
                Some(left) => *tokens = left,
                None => {
                    if let Some(Second { qer, meter }) = second {
                        meter.give_back(qer, uplink, octets);
                    }
                    return self.drop(DropReason::RateExceeded);
                }
            }
        }
        observer.done(Stage::Meter);
        if w.ul_packets | w.dl_packets == 0 {
            w.first_packet = now;
        }
        w.last_packet = now;
        w.room = room;
        let (packets, counted) = if uplink {
            (&mut w.ul_packets, &mut w.ul_octets)
        } else {
            (&mut w.dl_packets, &mut w.dl_octets)
        };
        // Neither exceeds the room that there was.
        *packets += 1;
        *counted += octets as u32;
        observer.done(Stage::Account);
        self.count_decided();
        Decision::Forward
    }

    /// Counts a packet of a session that is watched, so that it is known when none is on its way any more.
    #[inline]
    fn count_decided(&mut self) {
        if self.flags & flag::WATCHED != 0 {
            self.decided = self.decided.wrapping_add(1);
        }
    }

    fn drop(&mut self, reason: DropReason) -> Decision {
        self.count_decided();
        match self.written.dropped.checked_add(1) {
            Some(n) => {
                self.written.dropped = n;
                Decision::Drop(reason)
            }
            None => Decision::Due,
        }
    }

    /// Where packets from the UE go.
    #[inline]
    pub(super) fn to_network(&self) -> Destination {
        Destination::N6 { dn: self.data_network }
    }

    /// Where packets to the UE go, and what stands before them.
    #[inline]
    pub(super) fn to_gnb(&self) -> (Destination, GpduHeader) {
        let peer = SocketAddr::new(self.gnb.to_canonical(), PORT);
        (Destination::N3 { peer, tos: self.tos }, GpduHeader::new(self.gnb_teid, self.container))
    }

    pub(super) fn data_network(&self) -> DnIndex {
        self.data_network
    }

    pub(super) fn last_packet(&self) -> Instant {
        self.written.last_packet
    }

    /// What was counted since it was folded.
    fn counted(&self) -> BulkUsage {
        let w = &self.written;
        BulkUsage {
            ul: (w.ul_packets.into(), w.ul_octets.into()),
            dl: (w.dl_packets.into(), w.dl_octets.into()),
            first_packet: w.first_packet,
            last_packet: w.last_packet,
        }
    }

    /// Of a plain session, with its second meter if it has one; `None` if it is none.
    fn of(session: &SessionU, own: &OwnRules) -> Option<(Self, Option<Second>)> {
        let SessionU { rules, state } = session;
        let (up, down) = match &*rules.pdrs {
            [a] if a.is_uplink() => (Some(a), None),
            [a] => (None, Some(a)),
            [a, b] if a.is_uplink() && !b.is_uplink() => (Some(a), Some(b)),
            [a, b] if b.is_uplink() && !a.is_uplink() => (Some(b), Some(a)),
            _ => return None,
        };
        let counted = rules.pdrs.iter().filter(|p| p.urrs().next().is_some()).count();
        if counted != 0 && counted != rules.pdrs.len() {
            return None;
        }
        let room = match (rules.urrs.first(), state.usage.first()) {
            (Some(urr), Some(usage)) if counted > 0 => usage.room(urr)?,
            _ => u64::MAX,
        };
        if room < ROOM_OCTETS_MIN || own.ue_ipv6.is_some_and(|a| a.to_bits() as u64 != 0) {
            return None;
        }
        let mut hot = Self {
            flags: flag::PLAIN,
            teid: own.teid,
            data_network: rules.data_network,
            ue_ipv4: own.ue_ipv4.map_or(0, Ipv4Addr::to_bits),
            ue_ipv6: own.ue_ipv6.map_or(0, upper),
            ..Self::default()
        };
        hot.flags |= if own.ue_ipv4.is_some() { flag::IPV4 } else { 0 };
        hot.flags |= if own.ue_ipv6.is_some() { flag::IPV6 } else { 0 };
        hot.written.room = u32::try_from(room).unwrap_or(u32::MAX);
        hot.written.last_packet = state.last_packet;
        let second = hot.police(rules, state)?;
        if let Some(tunnel) = own.tunnel {
            hot.lead_to(tunnel)?;
        }
        up.map_or(Some(()), |p| hot.go_up(rules, p))?;
        down.map_or(Some(()), |p| hot.go_down(rules, p))?;
        hot.flags |= if down.is_none() { flag::NO_GNB } else { 0 };
        Some((hot, second))
    }

    /// Gates and rates: those of each QER are those of each PDR.
    fn police(&mut self, rules: &SessionRules, state: &SessionState) -> Option<Option<Second>> {
        let of_all = |p: &Pdr| (0..rules.qers.len()).all(|i| p.qers().any(|at| at == i));
        if !rules.pdrs.iter().all(of_all) {
            return None;
        }
        let closed = |gate| if gate == Gate::Closed { flag::CLOSED } else { 0 };
        for qer in &rules.qers {
            self.flags |= closed(qer.gate.ul) | closed(qer.gate.dl) << flag::DOWNLINK_SHIFT;
        }
        let mut metered = rules.qers.iter().zip(&state.meters).filter(|(qer, _)| qer.has_rates());
        let Some((qer, meter)) = metered.next() else { return Some(None) };
        let rate = |kbps: Option<u64>| match kbps {
            None => Some(UNPOLICED),
            Some(v) => u32::try_from(v).ok().filter(|v| *v != UNPOLICED),
        };
        (self.ul_kbps, self.dl_kbps) = (rate(qer.mbr_ul_kbps)?, rate(qer.mbr_dl_kbps)?);
        self.window_ms = u16::try_from(meter::window_ms(qer)).ok()?;
        let w = &mut self.written;
        (w.ul_tokens, w.dl_tokens, w.filled) = meter.level(qer);
        let second = metered.next().map(|(qer, meter)| Second { qer: qer.clone(), meter: *meter });
        self.flags |= if second.is_some() { flag::TWICE_METERED } else { 0 };
        Some(second)
    }

    fn lead_to(&mut self, tunnel: PeerTunnel) -> Option<()> {
        self.gnb = match tunnel.peer.ip() {
            IpAddr::V4(a) => a.to_ipv6_mapped(),
            IpAddr::V6(a) => a,
        };
        self.gnb_teid = tunnel.teid;
        (SocketAddr::new(self.gnb.to_canonical(), PORT) == tunnel.peer).then_some(())
    }

    fn go_up(&mut self, rules: &SessionRules, pdr: &Pdr) -> Option<()> {
        let far = rules.fars.get(usize::from(pdr.far))?;
        rules.place(pdr.teid)?;
        self.ul_flow = match pdr.qfis.count_ones() {
            0 => ANY_FLOW,
            1 => pdr.qfis.trailing_zeros() as u8,
            _ => return None,
        };
        let network = matches!(far.destination, DestinationInterface::Core | DestinationInterface::N6Lan);
        if !network {
            return None;
        }
        self.flags |= actions(far, far.tunnel.is_none());
        Some(())
    }

    fn go_down(&mut self, rules: &SessionRules, pdr: &Pdr) -> Option<()> {
        let far = rules.fars.get(usize::from(pdr.far))?;
        if !matches!(pdr.source, SourceInterface::Core | SourceInterface::N6Lan)
            || pdr.teid != Teid(0)
            || pdr.qfis != 0
        {
            return None;
        }
        self.container =
            flow_of(rules, pdr).map(|(qfi, rqi, ppi)| PduSessionInformation::Dl { qfi, rqi, ppi });
        self.tos = far.tos;
        let to_gnb = far.destination == DestinationInterface::Access && far.tunnel.is_some();
        self.flags |= actions(far, to_gnb) << flag::DOWNLINK_SHIFT;
        Some(())
    }
}

/// What a FAR does that is done here.
fn actions(far: &Far, simply: bool) -> u16 {
    if far.action.has(ApplyAction::DROP) {
        flag::DROPS
    } else if far.action.has(ApplyAction::FORW) && !far.action.has(ApplyAction::BUFF) && simply {
        flag::FORWARDS
    } else {
        0
    }
}

/// What a plain session has besides its hot part.
pub(super) struct Cold {
    shape: Arc<SessionRules>,
    tunnels: [Teid; TUNNELS_PER_SESSION_MAX],
    generation: u32,
    tunnels_given: u16,
    notified: bool,
    error_reported: bool,
    counters: SessionCounters,
    deadline: Option<Instant>,
    next_advertisement: Option<Instant>,
    usage: Option<Usage>,
    second: Option<Box<Second>>,
}

// With its hot part, its places in the table and in that of tunnels: 512 octets.
const _: () = assert!(size_of::<Cold>() <= 304);

impl Cold {
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Begins to load what it had counted when it was folded.
    #[inline]
    pub(super) fn prefetch_counters(&self) {
        prefetch(&self.counters.ul_packets);
        prefetch(&self.counters.dropped);
    }

    /// Its local tunnels.
    pub(super) fn tunnels(&self) -> &[Teid] {
        &self.tunnels
    }

    /// Its second meter, if it has one.
    pub(super) fn second(&mut self) -> Option<&mut Second> {
        self.second.as_deref_mut()
    }

    /// What the session sent, received and lost.
    pub(super) fn counters(&self, hot: &Hot) -> SessionCounters {
        let (c, counted) = (self.counters, hot.counted());
        SessionCounters {
            ul_packets: c.ul_packets + counted.ul.0,
            ul_octets: c.ul_octets + counted.ul.1,
            dl_packets: c.dl_packets + counted.dl.0,
            dl_octets: c.dl_octets + counted.dl.1,
            dropped: c.dropped + u64::from(hot.written.dropped),
        }
    }

    /// Folds a session; `None` if it is not plain.
    pub(super) fn fold(session: &SessionU, shapes: &mut Shapes) -> Option<(Hot, Self)> {
        let SessionU { rules, state } = session;
        // Asked first: to take rules apart is long where they are many.
        if !is_simple(rules) || !is_at_rest(state) {
            return None;
        }
        let (own, shape) = rules.split()?;
        let (hot, second) = Hot::of(session, &own)?;
        let cold = Self {
            shape: shapes.find(shape)?,
            tunnels: own.tunnels,
            generation: state.generation,
            tunnels_given: own.tunnels_given,
            notified: state.notified,
            error_reported: state.error_reported,
            counters: state.counters,
            deadline: state.deadline,
            next_advertisement: state.next_advertisement,
            usage: state.usage.first().cloned(),
            second: second.map(Box::new),
        };
        Some((hot, cold))
    }

    /// The session as it was folded, with what was counted since.
    pub(super) fn unfold(&self, hot: &Hot, index: u32) -> SessionU {
        let shape = &self.shape;
        let rate = |kbps: u32| if kbps == UNPOLICED { 0 } else { u64::from(kbps) };
        let second = self.second.as_deref();
        let second_kbps =
            second.map_or([0; 2], |s| [s.qer.mbr_ul_kbps, s.qer.mbr_dl_kbps].map(|kbps| kbps.unwrap_or(0)));
        let tunnel = PeerTunnel { teid: hot.gnb_teid, peer: SocketAddr::new(hot.gnb.to_canonical(), PORT) };
        let own = OwnRules {
            ue_ipv4: (hot.flags & flag::IPV4 != 0).then_some(Ipv4Addr::from_bits(hot.ue_ipv4)),
            ue_ipv6: (hot.flags & flag::IPV6 != 0)
                .then_some(Ipv6Addr::from_bits(u128::from(hot.ue_ipv6) << 64)),
            tunnels: self.tunnels,
            tunnels_given: self.tunnels_given,
            teid: hot.teid,
            tunnel: shape.fars.iter().any(|f| f.tunnel.is_some()).then_some(tunnel),
            mbr_kbps: [[rate(hot.ul_kbps), rate(hot.dl_kbps)], second_kbps],
        };
        let w = &hot.written;
        let mut usage = self.usage.clone();
        if let (Some(usage), Some(urr)) = (&mut usage, shape.urrs.first())
            && shape.pdrs.iter().any(|p| p.urrs().next().is_some())
        {
            usage.absorb(urr, &hot.counted());
        }
        // As many as QERs have rates; the meters of the others are never read.
        let first = Meter::of(w.ul_tokens, w.dl_tokens, w.filled);
        let mut metered = [Some(first), second.map(|s| s.meter)].into_iter().flatten();
        let mut meter = |q: &Qer| if q.has_rates() { metered.next() } else { None };
        let state = SessionState {
            meters: shape.qers.iter().map(|q| meter(q).unwrap_or(Meter::new(w.filled))).collect(),
            usage: usage.into_iter().collect(),
            generation: self.generation,
            notified: self.notified,
            inactive: false,
            error_reported: self.error_reported,
            rearm: false,
            last_packet: w.last_packet,
            rules_number: 0,
            counters: self.counters(hot),
            index,
            deadline: self.deadline,
            next_advertisement: self.next_advertisement,
            held: Default::default(),
            notice: None,
            quiet_until: None,
            fold_at: Instant::ZERO,
            naming: None,
            macs: Vec::new(),
        };
        SessionU { rules: Arc::new(SessionRules::clone(shape).with(&own)), state }
    }
}

/// Whether rules are such that packets need no more of them than [`Hot`] has, as far as that is quick to tell.
fn is_simple(rules: &SessionRules) -> bool {
    rules.kind == SessionKind::Ip
        && rules.relays == 0
        && rules.slice == NONE
        && !rules.firewalled
        && rules.framed.is_empty()
        && rules.pdrs.len() <= 2
        && rules.pdrs.iter().all(|p| p.filters.is_empty() && p.application.is_none())
        && rules.qers.len() <= QERS_MAX
        && rules.urrs.len() <= 1
        && rules.fars.iter().all(|far| far.copies().is_none())
}

/// Whether nothing is going on but packets that pass.
fn is_at_rest(state: &SessionState) -> bool {
    state.held.is_empty()
        && state.notice.is_none()
        && state.quiet_until.is_none()
        && !state.inactive
        && !state.rearm
        && state.macs.is_empty()
}

/// The shapes of rules that plain sessions have.
#[derive(Default)]
pub(super) struct Shapes(Vec<Arc<SessionRules>>);

impl Shapes {
    /// The shape, kept once; `None` if there are too many.
    fn find(&mut self, shape: SessionRules) -> Option<Arc<SessionRules>> {
        if let Some(known) = self.0.iter().find(|s| ***s == shape) {
            return Some(Arc::clone(known));
        }
        if self.0.len() == SHAPES_MAX {
            self.0.retain(|s| Arc::strong_count(s) > 1);
        }
        (self.0.len() < SHAPES_MAX).then(|| {
            self.0.push(Arc::new(shape));
            self.0.last().map(Arc::clone)
        })?
    }
}
