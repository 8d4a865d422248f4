//! PDU sessions of type Ethernet: the UPF is a switch between UEs, and towards the data network.
//!
//! Spec: TS 23.501 §5.6.10.2, §5.8.2.5.3; TS 29.244 §5.13, §5.13.5 (MAC addresses are learnt and reported).
//!
//! A UE's address is the source address that it uses: learnt with its first frame that a rule lets pass, up to a bound
//! a session, and forgotten after silence. As long as one session has it no other may use it. A frame for a known
//! address goes to that session, whether it comes from the data network or from another UE; one for a group goes to
//! the data network and to every other session of it; one for an unknown address goes to the data network
//! if a UE sends it, and nowhere if the data network does. Nothing goes back to where it came from.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{MacAddresses, ReportingTriggers, UsageReportTrigger};
use whimbrel_pfcp::rule::EthernetTrafficInformation;

use super::inner::InnerPacket;
use super::packet::Packet;
use super::session::SessionState;
use super::shard::PerSecond;
use super::shared::PipelineContext;
use super::stages::{self, Ingress, Pdu};
use super::{Destination, DropReason, PacketVerdict, UpfU, kept};
use crate::config::DnIndex;
use crate::exchange::UserPlaneReport;
use crate::limits::{FLOODED_SESSIONS_MAX, FLOODS_PER_SECOND_MAX, MACS_PER_SESSION_MAX};
use crate::rules::{Frame, Mac, Names, Pdr, SessionRules, is_group};

/// How long an address that is not used stays a session's, where the SMF gives no Ethernet inactivity timer: the ageing
/// time of IEEE 802.1Q §8.8.3.
const AGEING: Duration = Duration::from_secs(300);

/// An address that a UE uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learnt {
    pub(super) mac: Mac,
    pub(super) last: Instant,
}

/// MAC addresses of one data network, and the session of each.
#[derive(Default)]
pub(super) struct Switch {
    by_mac: BTreeMap<Mac, u32>,
    sessions: BTreeSet<u32>,
    floods: PerSecond,
}

impl Switch {
    pub(super) fn plug(&mut self, session: u32) {
        self.sessions.insert(session);
    }

    pub(super) fn unplug(&mut self, session: u32) {
        self.sessions.remove(&session);
    }

    pub(super) fn forget(&mut self, mac: &Mac) {
        self.by_mac.remove(mac);
    }
}

/// A frame, and the IP packet in it.
struct EthernetPdu {
    frame: Frame,
    inner: Option<InnerPacket>,
}

impl EthernetPdu {
    fn parse(p: &[u8]) -> Option<Self> {
        let frame = Frame::parse(p)?;
        let inner = frame.ip_at().and_then(|at| p.get(at..)).and_then(InnerPacket::parse);
        Some(Self { frame, inner })
    }
}

impl Pdu for EthernetPdu {
    fn matches(&self, pdr: &Pdr, _: Names) -> bool {
        let flow = || self.inner.map(|i| if pdr.is_uplink() { i.uplink() } else { i.downlink() });
        pdr.filters.is_empty() || {
            let flow = flow();
            pdr.filters.iter().any(|f| match &f.frame {
                Some(frame) => frame.matches(&self.frame, flow.as_ref()),
                None => flow.as_ref().is_some_and(|flow| f.matches(flow)),
            })
        }
    }

    /// What its frames carry for this host or the core is dropped like any UE's packet. Among themselves the sessions of a network are one
    /// LAN.
    fn reaches(&self, shared: &PipelineContext, packet: &Packet) -> Result<(), DropReason> {
        let (Some(inner), Some(at)) = (&self.inner, self.frame.ip_at()) else { return Ok(()) };
        match shared.guard(inner, packet.octets().get(at..).unwrap_or_default()) {
            Err(DropReason::LinkScope | DropReason::UeToUe) | Ok(()) => Ok(()),
            denied => denied,
        }
    }

    fn dscp(&self) -> u8 {
        self.inner.map_or(self.frame.dscp(), |i| i.tos >> 2)
    }
}

impl UpfU {
    /// A frame that a UE sends.
    pub(super) fn frame_from_ue(
        &mut self,
        now: Instant,
        index: u32,
        ingress: Ingress,
        packet: &mut Packet,
    ) -> PacketVerdict {
        let Some(pdu) = EthernetPdu::parse(packet.octets()) else {
            return PacketVerdict::Drop(DropReason::InnerMalformed);
        };
        let Frame { source, destination, .. } = pdu.frame;
        if let Err(reason) = self.may_use(now, index, source) {
            return PacketVerdict::Drop(reason);
        }
        let verdict = self.in_session(now, index, ingress, &pdu, packet);
        let PacketVerdict::Send(Destination::Frames { dn }) = verdict else { return verdict };
        self.learn_mac(now, index, dn, source);
        let Some(network) = self.networks.get(usize::from(dn.0)) else { return verdict };
        match network.switch.by_mac.get(&destination).copied() {
            Some(own) if own == index => PacketVerdict::Drop(DropReason::FrameReturns),
            Some(other) => self.in_session(now, other, Ingress::NETWORK, &pdu, packet),
            None => {
                if is_group(destination) {
                    self.flood(now, dn, Some(index), &pdu, packet);
                }
                verdict
            }
        }
    }

    /// A frame from a data network.
    pub(super) fn network_frame(&mut self, now: Instant, dn: DnIndex, packet: &mut Packet) -> PacketVerdict {
        if !self.shard.is_first() {
            return self.to_first(0);
        }
        let Some(pdu) = EthernetPdu::parse(packet.octets()) else {
            return PacketVerdict::Drop(DropReason::InnerMalformed);
        };
        let Frame { source, destination, .. } = pdu.frame;
        let Some(network) = self.networks.get(usize::from(dn.0)) else {
            return PacketVerdict::Drop(DropReason::UnknownMac);
        };
        // A bridge may send a UE's own frame back.
        let sender = network.switch.by_mac.get(&source).copied();
        if is_group(destination) {
            return self.flood(now, dn, sender, &pdu, packet);
        }
        match network.switch.by_mac.get(&destination).copied() {
            Some(own) if Some(own) == sender => PacketVerdict::Drop(DropReason::FrameReturns),
            Some(index) => self.in_session(now, index, Ingress::NETWORK, &pdu, packet),
            None => PacketVerdict::Drop(DropReason::UnknownMac),
        }
    }

    /// Copies a frame to every session of the network but the sender's. What a copy meets there counts there.
    fn flood(
        &mut self,
        now: Instant,
        dn: DnIndex,
        but: Option<u32>,
        pdu: &EthernetPdu,
        packet: &Packet,
    ) -> PacketVerdict {
        let Some(network) = self.networks.get_mut(usize::from(dn.0)) else {
            return PacketVerdict::Drop(DropReason::UnknownMac);
        };
        if !network.switch.floods.once_more(now, FLOODS_PER_SECOND_MAX) {
            self.shared.counters.drop(DropReason::FloodRate);
            return PacketVerdict::Taken;
        }
        let sessions = network.switch.sessions.iter().copied().filter(|s| Some(*s) != but);
        let sessions: Vec<u32> = sessions.take(FLOODED_SESSIONS_MAX).collect();
        for index in sessions {
            let mut copy = self.shared.fresh();
            copy.fill(packet.octets());
            match self.in_session(now, index, Ingress::NETWORK, pdu, &mut copy) {
                PacketVerdict::Send(to) => self.shared.send(to, copy),
                PacketVerdict::Drop(reason) => {
                    self.shared.counters.drop(reason);
                    self.shared.recycle(copy);
                }
                // All Ethernet sessions are of one shard.
                PacketVerdict::Taken | PacketVerdict::Pending | PacketVerdict::Hand { .. } => {
                    self.shared.recycle(copy)
                }
            }
        }
        PacketVerdict::Taken
    }

    /// Whether a UE may use an address.
    fn may_use(&mut self, now: Instant, index: u32, mac: Mac) -> Result<(), DropReason> {
        let session = self.sessions.get(index);
        let Some(session) = session else { return Err(DropReason::UnknownTunnel) };
        if let Some(known) = session.state.macs.iter_mut().find(|l| l.mac == mac) {
            known.last = now;
            return Ok(());
        }
        if is_group(mac) || mac == Mac::default() {
            return Err(DropReason::InnerMalformed);
        }
        let (full, dn) = (session.state.macs.len() >= MACS_PER_SESSION_MAX, session.rules.data_network);
        let network = self.networks.get(usize::from(dn.0));
        match network.and_then(|n| n.switch.by_mac.get(&mac)) {
            Some(_) => Err(DropReason::SpoofedSource),
            None if full => Err(DropReason::MacTableFull),
            None => Ok(()),
        }
    }

    fn learn_mac(&mut self, now: Instant, index: u32, dn: DnIndex, mac: Mac) {
        let session = self.sessions.get(index);
        let (Some(session), Some(network)) = (session, self.networks.get_mut(usize::from(dn.0))) else {
            return;
        };
        if session.state.macs.iter().any(|l| l.mac == mac) {
            return;
        }
        session.state.macs.push(Learnt { mac, last: now });
        network.switch.by_mac.insert(mac, index);
        report(&session.rules, &mut session.state, &mut self.shared, now, vec![mac], Vec::new());
        self.arm(index);
    }
}

/// When the oldest address of a session is forgotten, if it stays silent.
pub(super) fn ageing(rules: &SessionRules, state: &SessionState) -> Option<Instant> {
    state.macs.iter().map(|l| l.last).min().map(|at| at + age(rules))
}

fn age(rules: &SessionRules) -> Duration {
    let given = rules.urrs.iter().filter_map(|u| u.ethernet_inactivity_s).filter(|s| *s > 0).min();
    given.map_or(AGEING, |s| Duration::from_secs(s.into()))
}

/// Forgets the addresses that were silent too long.
pub(super) fn forget_silent(
    rules: &SessionRules,
    state: &mut SessionState,
    shared: &mut PipelineContext,
    switch: &mut Switch,
    now: Instant,
) {
    let age = age(rules);
    let mut removed = Vec::new();
    state.macs.retain(|l| {
        let stays = l.last + age > now;
        if !stays {
            removed.push(l.mac);
        }
        stays
    });
    removed.iter().for_each(|mac| switch.forget(mac));
    if !removed.is_empty() {
        report(rules, state, shared, now, Vec::new(), removed);
    }
}

/// Reports to the SMF, if a URR asks for it (MACAR).
fn report(
    rules: &SessionRules,
    state: &mut SessionState,
    shared: &mut PipelineContext,
    now: Instant,
    detected: Vec<Mac>,
    removed: Vec<Mac>,
) {
    let reports_macs = |u: &&crate::rules::Urr| u.triggers.has(ReportingTriggers::MACAR);
    let Some(urr) = rules.urrs.iter().find(reports_macs) else { return };
    let Some(usage) = state.usage.iter_mut().find(|u| u.urr_id == urr.urr_id) else { return };
    let mut reports = Vec::with_capacity(1);
    usage.report(urr, now, UsageReportTrigger::MACAR, &mut reports);
    let list = |macs: Vec<Mac>| if macs.is_empty() { vec![] } else { vec![MacAddresses(macs)] };
    let traffic = EthernetTrafficInformation {
        mac_addresses_detected: list(detected),
        mac_addresses_removed: list(removed),
    };
    if let Some(last) = reports.last_mut() {
        last.ethernet_traffic_information = Some(traffic);
    }
    kept::report(shared, rules, state);
    shared.report(UserPlaneReport::Usage { session: state.id(), token: None, reports });
}

/// What was held of an Ethernet session meets its rules again.
pub(super) fn again(
    rules: &SessionRules,
    state: &mut SessionState,
    shared: &mut PipelineContext,
    now: Instant,
    ingress: Ingress,
    packet: &mut Packet,
) -> PacketVerdict {
    match EthernetPdu::parse(packet.octets()) {
        Some(pdu) => stages::run(rules, state, shared, now, ingress, &pdu, packet),
        None => PacketVerdict::Drop(DropReason::InnerMalformed),
    }
}
