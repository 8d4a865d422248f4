//! A session's rules as the packet pipeline reads them: compact, checked, their references resolved to places.

mod allocate;
mod application;
mod apply;
mod compared;
mod draft;
mod far;
mod filter;
mod frame;
mod index;
mod own;
mod pdr;
mod refusal;
mod simple;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use whimbrel_ids::{Instant, Qfi, Teid};
use whimbrel_pfcp::ie::{
    ApplyAction, BarId, DestinationInterface, FarId, GateStatus, MeasurementInformation, MeasurementMethod,
    PdnType, PdrId, QerId, ReportingTriggers, RouteNetwork, SourceInterface, TrafficEndpointId, UrrId,
    Volume,
};

use whimbrel_pfcp::rule::UpdateBarInReportResponse;

pub(crate) use allocate::{Allocator, NetworkPools, RequestEffects, upper};
pub(crate) use application::{Application, KnownApplications, Names};
pub(crate) use compared::Compared;
pub(crate) use draft::Draft;
pub(crate) use filter::{Flow, PdiFilter};
pub(crate) use frame::{Frame, FrameFilter, Mac, is_group};
pub(crate) use index::Index;
pub(crate) use own::OwnRules;
pub use refusal::RuleRefusal;

use crate::config::{DnIndex, PointToPoint};
use crate::exchange::SessionKey;
use crate::limits::{QERS_PER_PDR_MAX, TUNNELS_PER_SESSION_MAX, URRS_PER_PDR_MAX};

/// Whether a rule can stand.
type RuleCheck = Result<(), RuleRefusal>;

/// No rule at this place of a PDR's list.
pub(crate) const NONE: u8 = u8::MAX;

/// What a session carries (TS 23.501 §5.6.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionKind {
    /// Sessions of IP packets.
    #[default]
    Ip,
    /// Sessions of Ethernet frames.
    Ethernet,
    /// Whatever the UE sends.
    Unstructured,
}

impl SessionKind {
    pub(crate) const fn of(pdn_type: Option<PdnType>) -> Self {
        match pdn_type {
            Some(PdnType::Ethernet) => Self::Ethernet,
            Some(PdnType::NonIp) => Self::Unstructured,
            None | Some(PdnType::Ipv4 | PdnType::Ipv6 | PdnType::Ipv4v6) => Self::Ip,
        }
    }
}

/// All rules of a session, immutable once made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRules {
    pub(crate) ue_ipv4: Option<Ipv4Addr>,
    /// The prefix of 64 bits.
    pub(crate) ue_ipv6: Option<Ipv6Addr>,
    pub(crate) data_network: DnIndex,
    pub(crate) kind: SessionKind,
    /// The tunnel on N6 of an unstructured session.
    pub(crate) point_to_point: Option<Box<PointToPoint>>,
    /// Bit n: what comes by local tunnel n goes on to another tunnel as it is (`pipeline/relay.rs`).
    pub(crate) relays: u8,
    /// Counts the tunnels that the session was given, so that none comes back with its former name.
    pub(crate) tunnels_given: u16,
    /// Local tunnels; zero where none is.
    pub(crate) tunnels: [Teid; TUNNELS_PER_SESSION_MAX],
    /// Networks behind the UE (TS 29.244 §5.16); those of changed rules stay until the session ends.
    pub(crate) framed: Box<[RouteNetwork]>,
    /// By precedence, lowest first.
    pub(crate) pdrs: Box<[Pdr]>,
    pub(crate) fars: Box<[Far]>,
    pub(crate) qers: Box<[Qer]>,
    pub(crate) urrs: Box<[Urr]>,
    pub(crate) bars: Box<[Bar]>,
    pub(crate) endpoints: Box<[Endpoint]>,
    /// The applications that PDRs name, each once.
    pub(crate) applications: Box<[Arc<Application>]>,
    /// The PDRs' conditions, where there are more than a handful.
    pub(crate) index: Option<Index>,
    /// What their filters compare.
    pub(crate) compared: Compared,
    /// Seconds of silence to report; zero for never.
    pub(crate) inactivity_s: u32,
    /// The place of its slice among those that have a rate, or [`NONE`].
    pub(crate) slice: u8,
    /// Its packets pass the firewall of the data network.
    pub(crate) firewalled: bool,
}

impl SessionRules {
    /// No rules of a network: what a new session's draft begins with.
    pub(crate) fn empty(data_network: DnIndex) -> Self {
        Self {
            ue_ipv4: None,
            ue_ipv6: None,
            data_network,
            kind: SessionKind::default(),
            point_to_point: None,
            relays: 0,
            applications: [].into(),
            index: None,
            compared: Compared::default(),
            tunnels_given: 0,
            tunnels: [Teid(0); TUNNELS_PER_SESSION_MAX],
            framed: [].into(),
            pdrs: [].into(),
            fars: [].into(),
            qers: [].into(),
            urrs: [].into(),
            bars: [].into(),
            endpoints: [].into(),
            inactivity_s: 0,
            slice: NONE,
            firewalled: false,
        }
    }

    /// The UE's IPv4 address.
    pub fn ue_ipv4(&self) -> Option<Ipv4Addr> {
        self.ue_ipv4
    }

    /// The UE's IPv6 prefix, of 64 bits.
    pub fn ue_ipv6(&self) -> Option<Ipv6Addr> {
        self.ue_ipv6
    }

    /// What the session carries.
    pub fn kind(&self) -> SessionKind {
        self.kind
    }

    /// The session's network.
    pub fn data_network(&self) -> DnIndex {
        self.data_network
    }

    /// Tunnels whose local end is here.
    pub fn tunnels(&self) -> impl Iterator<Item = Teid> {
        self.tunnels.into_iter().filter(|t| t.0 != 0)
    }

    /// The place of a local tunnel.
    #[inline]
    pub(crate) fn place(&self, teid: Teid) -> Option<usize> {
        self.tunnels.iter().position(|t| *t == teid).filter(|_| teid != Teid(0))
    }

    /// Whether a packet that is led so is the session's, or would be.
    pub(crate) fn is_led_to(&self, lead: SessionKey) -> bool {
        match lead {
            SessionKey::Tunnel(teid) => self.place(teid).is_some(),
            SessionKey::Ue(dn, _) if dn != self.data_network => false,
            SessionKey::Ue(_, IpAddr::V4(a)) => self.ue_ipv4 == Some(a),
            SessionKey::Ue(_, IpAddr::V6(a)) => self.ue_ipv6.is_some_and(|p| upper(p) == upper(a)),
        }
    }

    /// Whether a local tunnel is a forwarding tunnel of a handover.
    pub(crate) fn is_relay(&self, place: usize) -> bool {
        self.relays >> place & 1 != 0
    }

    /// These rules with a BAR as a report's answer wants it; `None` if the session has no such BAR.
    pub(crate) fn with_bar(&self, m: &UpdateBarInReportResponse) -> Option<Self> {
        let mut rules = self.clone();
        let bar = rules.bars.iter_mut().find(|b| b.bar_id == m.bar_id)?;
        bar.packets = m.suggested_buffering_packets_count.map(|c| c.0).or(bar.packets);
        bar.delay = m.downlink_data_notification_delay.map_or(bar.delay, |d| d.0);
        Some(rules)
    }

    /// Whether packets of a local tunnel come from an address: one to which packets of the session go, or any, where the rules name none on the
    /// side from which the tunnel comes.
    pub(crate) fn takes_from(&self, teid: Teid, peer: IpAddr) -> bool {
        if self.remote_tunnels().any(|(_, p)| p == peer) {
            return true;
        }
        let Some(from) = self.pdrs.iter().find(|p| p.teid == teid) else { return true };
        let back = |p: &&Pdr| p.is_uplink() != from.is_uplink();
        let mut fars = self.pdrs.iter().filter(back).filter_map(|p| self.fars.get(usize::from(p.far)));
        let names = |f: &Far| match f.destination {
            DestinationInterface::Access => from.is_uplink(),
            _ => !from.is_uplink() && f.tunnel.is_some(),
        };
        !fars.any(names)
    }

    /// True if a PDR's packets come from the CP function, or go there (N4-u, TS 29.244 §5.3.1).
    pub(crate) fn is_of_cp_function(&self, pdr: &Pdr) -> bool {
        let far = self.fars.get(usize::from(pdr.far));
        pdr.source == SourceInterface::CpFunction
            || far.is_some_and(|f| {
                f.destination == DestinationInterface::CpFunction && f.action.has(ApplyAction::FORW)
            })
    }

    /// Tunnels at peers to which packets are forwarded.
    pub(crate) fn remote_tunnels(&self) -> impl Iterator<Item = (Teid, IpAddr)> {
        self.fars.iter().filter_map(|f| f.tunnel).map(|t| (t.teid, t.peer.ip()))
    }
}

/// A packet detection rule. What a packet is compared with stands first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pdr {
    /// The tunnel by which packets come; zero for packets from a data network.
    pub(crate) teid: Teid,
    pub(crate) precedence: u32,
    /// Bit n for QoS flow n; zero accepts all.
    pub(crate) qfis: u64,
    pub(crate) filters: Box<[PdiFilter]>,
    /// Instead of filters: whose packets they are.
    pub(crate) application: Option<Arc<Application>>,
    pub(crate) source: SourceInterface,
    pub(crate) far: u8,
    pub(crate) qers: [u8; QERS_PER_PDR_MAX],
    pub(crate) urrs: [u8; URRS_PER_PDR_MAX],
    pub(crate) pdr_id: PdrId,
    /// The PDU session container is not carried on.
    pub(crate) deletes_container: bool,
    /// By which CHOOSE ID its tunnel was chosen.
    pub(crate) choose_id: Option<u8>,
    pub(crate) endpoint: Option<TrafficEndpointId>,
}

impl Pdr {
    /// Whether its packets come from the UE.
    pub(crate) fn is_uplink(&self) -> bool {
        self.source == SourceInterface::Access
    }

    /// Whether its packets may be of a QoS flow.
    pub(crate) fn accepts(&self, qfi: Option<Qfi>) -> bool {
        self.qfis == 0 || qfi.is_some_and(|q| self.qfis >> q.value() & 1 != 0)
    }

    /// Whether its filters, or its application, are for a flow that is known by these names.
    #[inline]
    pub(crate) fn is_for(&self, flow: &Flow, names: Names) -> bool {
        match &self.application {
            None => self.filters.is_empty() || self.filters.iter().any(|f| f.matches(flow)),
            Some(application) => application.has(flow, names),
        }
    }

    pub(crate) fn qers(&self) -> impl Iterator<Item = usize> {
        places(&self.qers)
    }

    pub(crate) fn urrs(&self) -> impl Iterator<Item = usize> {
        places(&self.urrs)
    }
}

/// Whether an address is of a network.
pub(crate) fn is_of(address: IpAddr, (network, length): RouteNetwork) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => masked_v4(a, length) == n,
        (IpAddr::V6(a), IpAddr::V6(n)) => masked_v6(a, length) == n,
        _ => false,
    }
}

/// The network of so many bits that an address is of.
pub(crate) fn masked_v4(a: Ipv4Addr, length: u8) -> Ipv4Addr {
    let hosts = u32::MAX.checked_shr(length.into()).unwrap_or(0);
    Ipv4Addr::from_bits(a.to_bits() & !hosts)
}

/// The same for an IPv6 address.
pub(crate) fn masked_v6(a: Ipv6Addr, length: u8) -> Ipv6Addr {
    let hosts = u128::MAX.checked_shr(length.into()).unwrap_or(0);
    Ipv6Addr::from_bits(a.to_bits() & !hosts)
}

/// The places in a PDR's list, which stand together at its beginning.
fn places(list: &[u8]) -> impl Iterator<Item = usize> {
    list.iter().map_while(|at| (*at != NONE).then_some(usize::from(*at)))
}

/// A tunnel at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerTunnel {
    pub(crate) teid: Teid,
    pub(crate) peer: SocketAddr,
}

/// A forwarding action rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Far {
    pub(crate) action: ApplyAction,
    pub(crate) destination: DestinationInterface,
    pub(crate) tunnel: Option<PeerTunnel>,
    pub(crate) tos: u8,
    pub(crate) far_id: FarId,
    pub(crate) bar_id: Option<BarId>,
    /// Whether Forwarding Parameters were ever given.
    pub(crate) has_parameters: bool,
    /// Where copies go (TS 29.244 §5.2.3.1), while DUPL is set.
    pub(crate) copies_to: Option<Box<PeerTunnel>>,
}

impl Far {
    /// Where a copy of each packet that is forwarded goes.
    pub(crate) fn copies(&self) -> Option<PeerTunnel> {
        self.copies_to.as_deref().copied().filter(|_| self.action.has(ApplyAction::DUPL))
    }
}

/// A QoS enforcement rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qer {
    pub(crate) gate: GateStatus,
    pub(crate) qfi: Option<Qfi>,
    pub(crate) rqi: bool,
    pub(crate) ppi: Option<u8>,
    /// kbit/s; `None` is not policed.
    pub(crate) mbr_ul_kbps: Option<u64>,
    pub(crate) mbr_dl_kbps: Option<u64>,
    /// kbit/s; zero guarantees nothing.
    pub(crate) gbr_ul_kbps: u32,
    pub(crate) gbr_dl_kbps: u32,
    pub(crate) window_ms: Option<u32>,
    pub(crate) qer_id: QerId,
}

impl Qer {
    /// Whether it polices a direction.
    pub(crate) fn has_rates(&self) -> bool {
        self.mbr_ul_kbps.is_some() || self.mbr_dl_kbps.is_some()
    }
}

/// A usage reporting rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Urr {
    pub(crate) urr_id: UrrId,
    pub(crate) method: MeasurementMethod,
    pub(crate) triggers: ReportingTriggers,
    pub(crate) information: MeasurementInformation,
    pub(crate) volume_threshold: Option<Volume>,
    pub(crate) volume_quota: Option<Volume>,
    pub(crate) time_threshold_s: Option<u32>,
    pub(crate) time_quota_s: Option<u32>,
    pub(crate) event_threshold: Option<u32>,
    pub(crate) event_quota: Option<u32>,
    pub(crate) period_s: Option<u32>,
    pub(crate) quota_holding_s: Option<u32>,
    pub(crate) inactivity_detection_s: Option<u32>,
    /// When a separate measurement begins.
    pub(crate) monitoring: Option<Instant>,
    /// Seconds of silence after which a MAC address is forgotten.
    pub(crate) ethernet_inactivity_s: Option<u32>,
    pub(crate) linked: Box<[UrrId]>,
    /// Counts updates that bring new thresholds or quotas: these count from then.
    pub(crate) revision: u16,
}

/// A buffering action rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) bar_id: BarId,
    /// Packets to keep, where the SMF suggests it.
    pub(crate) packets: Option<u8>,
    /// Units of 50 ms between the first packet kept and its report (TS 29.244 §8.2.28).
    pub(crate) delay: u8,
}

/// A traffic endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) id: TrafficEndpointId,
    pub(crate) teid: Teid,
}

// A session of two PDRs, two FARs, one QER and one URR is to stay within about a kilobyte.
const _: () = assert!(size_of::<SessionRules>() <= 224 && size_of::<Pdr>() <= 64 && size_of::<Far>() <= 64);
const _: () = assert!(size_of::<Qer>() <= 64 && size_of::<Urr>() <= 208);
