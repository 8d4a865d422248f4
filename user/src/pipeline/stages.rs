//! What happens to one packet of a session: TS 29.244 §5.2.1, §5.2.3, §5.2.4, §5.4.4; TS 23.501 §5.7.3.2, §5.8.3.2.

use std::net::IpAddr;

use whimbrel_gtpu::{GpduHeader, PduSessionInformation};
use whimbrel_ids::{Instant, Qfi, Teid};
use whimbrel_pfcp::ie::{
    ApplicationId, ApplyAction, DestinationInterface, Gate, SourceInterface, UsageReportTrigger,
};
use whimbrel_pfcp::rule::ApplicationDetectionInformation;

use super::detect::detect;
use super::inner::{InnerPacket, mark_congestion};
use super::packet::Packet;
use super::session::SessionState;
use super::shared::PipelineContext;
use super::slice::Pass;
use super::{Destination, DropReason, PacketVerdict};
use super::{advertise, held, kept, naming, unstructured};
use crate::exchange::UserPlaneReport;
use crate::limits::URRS_PER_PDR_MAX;
use crate::rules::{Far, Flow, NONE, Names, Pdr, PeerTunnel, Qer, SessionKind, SessionRules, is_of, upper};

/// How a packet came to its session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ingress {
    /// The tunnel; zero for one from a data network.
    pub(super) teid: Teid,
    /// Its PDU session container.
    pub(super) container: Option<PduSessionInformation>,
}

/// What a session carries, as its rules see it.
pub(super) trait Pdu {
    /// Whether the filters of a rule are for it.
    fn matches(&self, pdr: &Pdr, names: Names) -> bool;

    /// With what its first fragment has shown, if it is a later one; a first one leaves word.
    fn joined(&self, _: &SessionState, _: &mut PipelineContext, _: Instant, _: &Packet) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// The names that its flow is known by.
    fn names(
        &self,
        _: &mut SessionState,
        _: &mut PipelineContext,
        _: &SessionRules,
        _: Instant,
        _: Ingress,
        _: &Packet,
    ) -> Names {
        Names::NONE
    }

    /// What an index of rules compares of it, seen from the UE; `None` if its rules have no index.
    fn flow(&self, _uplink: bool) -> Option<Flow> {
        None
    }

    /// Its class, for paging policies.
    fn dscp(&self) -> u8;

    /// Whether its ends understand a mark for congestion.
    fn knows_ecn(&self) -> bool {
        false
    }

    /// Whether a UE that sends it there uses an address that is not its own.
    fn is_spoofed(&self, _rules: &SessionRules, _to: DestinationInterface) -> bool {
        false
    }

    /// Whether a UE that sends it reaches its destination.
    fn reaches(&self, _: &PipelineContext, _: &Packet) -> Result<(), DropReason> {
        Ok(())
    }

    /// The firewall of its session's data network, if it is one that has to pass there.
    fn leave(
        &self,
        _: &mut SessionState,
        _: &mut PipelineContext,
        _: &SessionRules,
        _: Instant,
        _: &mut Packet,
    ) -> Result<(), DropReason> {
        Ok(())
    }

    /// What becomes of it, if it is for the link alone.
    fn link_scope(
        &self,
        _: &mut SessionState,
        _: &SessionRules,
        _: Ingress,
        _: &Packet,
    ) -> Option<PacketVerdict> {
        None
    }
}

impl Pdu for InnerPacket {
    #[inline]
    fn matches(&self, pdr: &Pdr, names: Names) -> bool {
        let flow = || if pdr.is_uplink() { self.uplink() } else { self.downlink() };
        pdr.filters.is_empty() && pdr.application.is_none() || pdr.is_for(&flow(), names)
    }

    fn joined(
        &self,
        state: &SessionState,
        shared: &mut PipelineContext,
        now: Instant,
        packet: &Packet,
    ) -> Option<Self> {
        // Most packets are seen to be whole by a look at what is read of them anyway.
        let p = packet.octets();
        let whole = match self.source {
            IpAddr::V4(_) => matches!(p, [_, _, _, _, _, _, high, low, ..] if high & 0x3f == 0 && *low == 0),
            IpAddr::V6(_) => self.payload_at == 40,
        };
        let ports = if whole { None } else { shared.fragments.ports(now, state.id(), self, p) };
        ports.map(|ports| InnerPacket::joined(*self, ports))
    }

    #[cold]
    fn names(
        &self,
        state: &mut SessionState,
        shared: &mut PipelineContext,
        rules: &SessionRules,
        now: Instant,
        ingress: Ingress,
        packet: &Packet,
    ) -> Names {
        naming::names_of(state, shared, rules, now, ingress.teid != Teid(0), self, packet.octets())
    }

    fn flow(&self, uplink: bool) -> Option<Flow> {
        Some(if uplink { self.uplink() } else { self.downlink() })
    }

    fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    fn knows_ecn(&self) -> bool {
        Self::knows_ecn(self)
    }

    #[inline]
    fn is_spoofed(&self, rules: &SessionRules, to: DestinationInterface) -> bool {
        let of_link = to == DestinationInterface::CpFunction && is_of_link(self.source);
        to != DestinationInterface::Access && is_spoofed(rules, self.source) && !of_link
    }

    #[inline]
    fn reaches(&self, shared: &PipelineContext, packet: &Packet) -> Result<(), DropReason> {
        shared.guard(self, packet.octets())
    }

    #[cold]
    fn leave(
        &self,
        state: &mut SessionState,
        shared: &mut PipelineContext,
        rules: &SessionRules,
        now: Instant,
        packet: &mut Packet,
    ) -> Result<(), DropReason> {
        let Some(firewall) = shared.firewall(rules.data_network) else { return Ok(()) };
        firewall.leave(now, state.id().index, rules.ue_ipv4, self, packet)
    }

    #[inline]
    fn link_scope(
        &self,
        state: &mut SessionState,
        rules: &SessionRules,
        ingress: Ingress,
        packet: &Packet,
    ) -> Option<PacketVerdict> {
        link_scope(state, rules, ingress, self, packet)
    }
}

impl Ingress {
    /// From a data network, or from another UE of it.
    pub(super) const NETWORK: Self = Self { teid: Teid(0), container: None };

    /// Its QoS flow.
    pub(super) fn qfi(self) -> Option<Qfi> {
        self.container.map(PduSessionInformation::qfi)
    }
}

/// All stages, in order.
pub(super) fn run<C: Pdu>(
    rules: &SessionRules,
    state: &mut SessionState,
    shared: &mut PipelineContext,
    now: Instant,
    ingress: Ingress,
    pdu: &C,
    packet: &mut Packet,
) -> PacketVerdict {
    if let Some(verdict) = pdu.link_scope(state, rules, ingress, packet) {
        return verdict;
    }
    let joined = if rules.compared.ports { pdu.joined(state, shared, now, packet) } else { None };
    let seen = joined.as_ref().unwrap_or(pdu);
    let names = match rules.compared.named {
        true => seen.names(state, shared, rules, now, ingress, packet),
        false => Names::NONE,
    };
    let pdr = match detect(rules, state, shared, ingress, seen, names) {
        Ok(pdr) => pdr,
        Err(reason) => return PacketVerdict::Drop(reason),
    };
    let Some(far) = rules.fars.get(usize::from(pdr.far)) else {
        return PacketVerdict::Drop(DropReason::FarDrop);
    };
    if pdr.is_uplink() && pdu.is_spoofed(rules, far.destination) {
        return PacketVerdict::Drop(DropReason::SpoofedSource);
    }
    if far.action.has(ApplyAction::DROP) {
        return PacketVerdict::Drop(DropReason::FarDrop);
    }
    if far.action.has(ApplyAction::BUFF) {
        return held::hold(state, shared, rules, now, (pdr, far), ingress, pdu, packet);
    }
    let octets = packet.len();
    let uplink = pdr.is_uplink();
    if uplink
        && leaves(far)
        && let Err(reason) = pdu.reaches(shared, packet)
    {
        return PacketVerdict::Drop(reason);
    }
    if rules.firewalled
        && uplink
        && leaves(far)
        && let Err(reason) = pdu.leave(state, shared, rules, now, packet)
    {
        return PacketVerdict::Drop(reason);
    }
    if let Err(reason) = enforce(state, rules, pdr, now, uplink, octets) {
        return PacketVerdict::Drop(reason);
    }
    if rules.slice != NONE
        && let Err(reason) = shape(state, shared, rules, pdr, now, (uplink, pdu.knows_ecn()), packet)
    {
        return PacketVerdict::Drop(reason);
    }
    if let Some(to) = far.copies() {
        copy(shared, to, packet);
    }
    let verdict = forward(rules, pdr, far, ingress.container, packet);
    if let PacketVerdict::Send(_) = verdict {
        account(state, shared, rules, pdr, now, uplink, octets);
        state.last_packet = now;
        state.inactive = false;
        let (s, all) = (&mut state.counters, &mut shared.counters);
        let counters = if uplink {
            [(&mut s.ul_packets, &mut s.ul_octets), (&mut all.ul_packets, &mut all.ul_octets)]
        } else {
            [(&mut s.dl_packets, &mut s.dl_octets), (&mut all.dl_packets, &mut all.dl_octets)]
        };
        for (p, o) in counters {
            *p += 1;
            *o += octets as u64;
        }
    }
    verdict
}

/// Whether packets go into a data network.
fn leaves(far: &Far) -> bool {
    let network = matches!(far.destination, DestinationInterface::Core | DestinationInterface::N6Lan);
    network && far.tunnel.is_none()
}

/// What a UE says to its link alone: router solicitations are answered, the rest has nowhere to go. The SMF may have either sent to itself by a
/// rule, and answer by another one: then it is the router.
fn link_scope(
    state: &mut SessionState,
    rules: &SessionRules,
    ingress: Ingress,
    inner: &InnerPacket,
    packet: &Packet,
) -> Option<PacketVerdict> {
    if !is_of_link(inner.source) || ingress.teid == Teid(0) {
        return None;
    }
    let of_cp_function = |p: &&Pdr| p.teid == ingress.teid && rules.is_of_cp_function(p);
    let accepts = |p: &Pdr| p.accepts(ingress.qfi()) && inner.matches(p, Names::NONE);
    if rules.pdrs.iter().filter(of_cp_function).any(accepts) {
        return None;
    }
    if rules.ue_ipv6.is_some() && advertise::is_solicitation(inner, packet.octets()) {
        // Sent by the timers that follow this packet at once, which know the network.
        state.next_advertisement = Some(Instant::ZERO);
        state.rearm = true;
        return Some(PacketVerdict::Taken);
    }
    Some(PacketVerdict::Drop(DropReason::LinkScope))
}

/// True of a source address that a node has before it has any other (RFC 4861 §4.1, §4.2).
#[inline]
fn is_of_link(source: IpAddr) -> bool {
    matches!(source, IpAddr::V6(a) if a.is_unicast_link_local() || a.is_unspecified())
}

/// Whether a source address is not the UE's (TS 33.513 §4.2.2.7). A session without addresses (an intermediate UPF's) cannot
/// tell.
fn is_spoofed(rules: &SessionRules, source: IpAddr) -> bool {
    let own = match source {
        IpAddr::V4(a) => rules.ue_ipv4 == Some(a),
        IpAddr::V6(a) => rules.ue_ipv6.is_some_and(|p| upper(p) == upper(a)),
    };
    !own && (rules.ue_ipv4.is_some() || rules.ue_ipv6.is_some()) && !is_framed(rules, source)
}

/// Whether an address is of a network behind the UE (TS 23.501 §5.6.14).
#[cold]
fn is_framed(rules: &SessionRules, source: IpAddr) -> bool {
    rules.framed.iter().any(|n| is_of(source, *n))
}

/// Gates, quotas and rates (TS 29.244 §5.4, §5.2.2.2). A packet that one of them stops is counted by none.
pub(super) fn enforce(
    state: &mut SessionState,
    rules: &SessionRules,
    pdr: &Pdr,
    now: Instant,
    uplink: bool,
    octets: usize,
) -> Result<(), DropReason> {
    if pdr.urrs().any(|i| state.usage.get(i).is_some_and(|u| u.exhausted)) {
        return Err(DropReason::QuotaExhausted);
    }
    let gate = |q: &Qer| if uplink { q.gate.ul } else { q.gate.dl };
    if pdr.qers().filter_map(|i| rules.qers.get(i)).any(|q| gate(q) == Gate::Closed) {
        return Err(DropReason::GateClosed);
    }
    for (n, i) in pdr.qers().enumerate() {
        let (Some(qer), Some(meter)) = (rules.qers.get(i), state.meters.get_mut(i)) else { continue };
        if !meter.take(now, qer, uplink, octets) {
            give_back(state, rules, pdr.qers().take(n), uplink, octets);
            return Err(DropReason::RateExceeded);
        }
    }
    Ok(())
}

/// The rate of the session's slice, after the session's own (`slice.rs`).
#[cold]
fn shape(
    state: &mut SessionState,
    shared: &mut PipelineContext,
    rules: &SessionRules,
    pdr: &Pdr,
    now: Instant,
    (uplink, knows_ecn): (bool, bool),
    packet: &mut Packet,
) -> Result<(), DropReason> {
    let Some(slice) = shared.common.slices.get(usize::from(rules.slice)) else { return Ok(()) };
    let octets = packet.len();
    let guaranteed = pdr.qers().any(|i| match (rules.qers.get(i), state.meters.get_mut(i)) {
        (Some(qer), Some(meter)) => meter.is_guaranteed(now, qer, uplink, octets),
        _ => false,
    });
    match slice.take(now, uplink, octets, guaranteed, knows_ecn, &mut shared.random) {
        Pass::Whole => {}
        Pass::Marked => {
            mark_congestion(packet.octets_mut());
            shared.counters.ecn_marked += 1;
        }
        Pass::Dropped(reason) => {
            give_back(state, rules, pdr.qers(), uplink, octets);
            return Err(reason);
        }
    }
    Ok(())
}

/// The rates that a packet has used before one stopped it are its no more.
#[cold]
fn give_back(
    state: &mut SessionState,
    rules: &SessionRules,
    qers: impl Iterator<Item = usize>,
    uplink: bool,
    octets: usize,
) {
    for i in qers {
        if let (Some(qer), Some(meter)) = (rules.qers.get(i), state.meters.get_mut(i)) {
            meter.give_back(qer, uplink, octets);
        }
    }
}

/// Usage (TS 29.244 §5.2.2): what is forwarded counts.
pub(super) fn account(
    state: &mut SessionState,
    shared: &mut PipelineContext,
    rules: &SessionRules,
    pdr: &Pdr,
    now: Instant,
    uplink: bool,
    octets: usize,
) {
    let mut due = [None; URRS_PER_PDR_MAX];
    for (due, i) in due.iter_mut().zip(pdr.urrs()) {
        let (Some(urr), Some(usage)) = (rules.urrs.get(i), state.usage.get_mut(i)) else { continue };
        state.rearm |= usage.starts_timers(urr);
        *due = usage.count(urr, now, uplink, octets).map(|trigger| (i, trigger));
    }
    if due.iter().any(Option::is_some) {
        report_usage(rules, state, shared, now, &due);
    }
}

/// Reports the URRs of these places, and those linked to them: when all have counted.
pub(super) fn report_usage(
    rules: &SessionRules,
    state: &mut SessionState,
    shared: &mut PipelineContext,
    now: Instant,
    due: &[Option<(usize, UsageReportTrigger)>],
) {
    let mut reports = Vec::with_capacity(1);
    for (at, (urr, usage)) in rules.urrs.iter().zip(state.usage.iter_mut()).enumerate() {
        let own = due.iter().flatten().find(|(i, _)| *i == at).map(|(_, trigger)| *trigger);
        let others = due.iter().flatten().filter(|(i, _)| *i != at).filter_map(|(i, _)| rules.urrs.get(*i));
        let linked = others.into_iter().any(|other| urr.linked.contains(&other.urr_id));
        let trigger = match own {
            Some(own) if linked => own | UsageReportTrigger::LIUSA,
            Some(own) => own,
            None if linked => UsageReportTrigger::LIUSA,
            None => continue,
        };
        usage.report(urr, now, trigger, &mut reports);
        if let Some(last) = reports.last_mut() {
            last.application_detection_information = detected(rules, at, trigger);
        }
    }
    kept::report(shared, rules, state);
    shared.report(UserPlaneReport::Usage { session: state.id(), token: None, reports });
}

/// The application whose traffic starts or stops, where the rules that the URR counts name one (TS 29.244 §5.2.2.3.1).
fn detected(
    rules: &SessionRules,
    urr: usize,
    trigger: UsageReportTrigger,
) -> Option<ApplicationDetectionInformation> {
    if !trigger.has(UsageReportTrigger::START) && !trigger.has(UsageReportTrigger::STOPT) {
        return None;
    }
    let mut counted = rules.pdrs.iter().filter(|p| p.urrs().any(|i| i == urr));
    let application = counted.find_map(|p| p.application.as_ref())?;
    Some(ApplicationDetectionInformation { application_id: ApplicationId(application.id.clone()) })
}

/// The flow that a PDR's packets belong to by its QERs: its identifier, reflective QoS, paging policy.
pub(super) fn flow_of(rules: &SessionRules, pdr: &Pdr) -> Option<(Qfi, bool, Option<u8>)> {
    pdr.qers().filter_map(|i| rules.qers.get(i)).find_map(|q| q.qfi.map(|qfi| (qfi, q.rqi, q.ppi)))
}

/// The flow of packets of the CP function whose PDR has no QER of one: that of the rule that serves what no other does, and shares their FAR. A gNB
/// takes no packet without a QoS flow (TS 29.281 §5.2.2.7).
fn flow_of_cp_function(rules: &SessionRules, pdr: &Pdr) -> Option<(Qfi, bool, Option<u8>)> {
    let of_cp_function = pdr.source == SourceInterface::CpFunction;
    let others = rules.pdrs.iter().rev().filter(|p| of_cp_function && p.far == pdr.far);
    others.into_iter().find_map(|p| flow_of(rules, p))
}

/// Sends a copy of what is forwarded to the LI function, in GTP-U.
fn copy(shared: &mut PipelineContext, to: PeerTunnel, packet: &Packet) {
    let mut header = [0; whimbrel_gtpu::HEADER_OCTETS_MAX];
    let written = GpduHeader::new(to.teid, None).write_before(packet.len(), &mut header);
    let Some(n) = written else { return };
    let octets = [&header[header.len() - n..], packet.octets()].concat();
    shared.send_octets(Destination::N3 { peer: to.peer, tos: 0 }, &octets);
    shared.counters.copies_sent += 1;
}

/// Sends a packet where its FAR says.
pub(super) fn forward(
    rules: &SessionRules,
    pdr: &Pdr,
    far: &Far,
    came_with: Option<PduSessionInformation>,
    packet: &mut Packet,
) -> PacketVerdict {
    let Some(tunnel) = far.tunnel else {
        return match far.destination {
            DestinationInterface::Core | DestinationInterface::N6Lan => match rules.kind {
                SessionKind::Ip => PacketVerdict::Send(Destination::N6 { dn: rules.data_network }),
                SessionKind::Ethernet => PacketVerdict::Send(Destination::Frames { dn: rules.data_network }),
                SessionKind::Unstructured => unstructured::encapsulate(rules, packet),
            },
            _ => PacketVerdict::Drop(DropReason::NoTunnel),
        };
    };
    let container = match flow_of(rules, pdr).or_else(|| flow_of_cp_function(rules, pdr)) {
        Some((qfi, rqi, ppi)) if far.destination == DestinationInterface::Access => {
            Some(PduSessionInformation::Dl { qfi, rqi, ppi })
        }
        // N4-u has no QoS flows: the container is of N3 and N9 (TS 29.281 §5.2.2.7).
        _ if far.destination == DestinationInterface::CpFunction => None,
        Some((qfi, ..)) => Some(PduSessionInformation::Ul { qfi }),
        // From tunnel to tunnel it goes on as it came (TS 29.244 §8.2.64).
        None => came_with.filter(|_| !pdr.deletes_container),
    };
    let octets = packet.len();
    match GpduHeader::new(tunnel.teid, container).write_before(octets, packet.headroom()) {
        Some(n) => {
            packet.pushed(n);
            PacketVerdict::Send(Destination::N3 { peer: tunnel.peer, tos: far.tos })
        }
        None => PacketVerdict::Drop(DropReason::TooLong),
    }
}
