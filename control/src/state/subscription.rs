//! What a subscriber may use (TS 29.503 §6.1.6.2): stored by the UDM, read by AMF and SMF.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, FiveQi, SNssai, Tac};
use whimbrel_nas::ie::SscMode;

use crate::config::UpSecurity;
use crate::policy::FlowPolicy;

/// What a subscriber may use (TS 29.503 §6.1.6.2.4, §6.1.6.2.8). Shared by all subscribers with the same terms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subscription {
    /// Aggregate maximum bit rate over all sessions.
    pub ue_ambr: Ambr,
    /// Slices, in order of preference.
    pub slices: Vec<SubscribedSlice>,
    /// Index to RAT/frequency selection priority, 1 to 256 (TS 38.413 §9.3.1.61).
    pub rfsp: Option<u16>,
    /// Restrictions of the UE's mobility.
    pub restrictions: MobilityRestrictions,
    /// Subscription to priority services.
    pub priority: Priority,
}

impl Subscription {
    /// The subscribed slice of this name.
    pub fn slice(&self, s_nssai: SNssai) -> Option<&SubscribedSlice> {
        self.slices.iter().find(|s| s.s_nssai == s_nssai)
    }
}

/// Subscribed priority (TS 23.501 §5.22.2, TS 29.503 §6.1.6.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Priority {
    /// Multimedia priority service: access identity 1 is valid.
    pub mps: bool,
    /// Mission critical services: access identity 2 is valid.
    pub mcs: bool,
}

/// Subscribed mobility restrictions (TS 23.501 §5.3.4.1, TS 29.503 §6.1.6.2.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MobilityRestrictions {
    /// New Radio is barred.
    pub nr_barred: bool,
    /// Tracking areas in which the UE gets no service.
    pub forbidden_areas: Vec<Tac>,
    /// Service area restriction; `None`: none.
    pub service_area: Option<ServiceArea>,
}

/// Service area restriction (TS 23.501 §5.3.4.1.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ServiceArea {
    /// Allowed only in these areas.
    Allowed(Vec<Tac>),
    /// Not allowed in these areas.
    NotAllowed(Vec<Tac>),
}

impl ServiceArea {
    /// Whether services may be started in a tracking area.
    pub fn allows(&self, tac: Tac) -> bool {
        match self {
            Self::Allowed(tacs) => tacs.contains(&tac),
            Self::NotAllowed(tacs) => !tacs.contains(&tac),
        }
    }
}

/// Aggregate maximum bit rate, in kbit/s (1 kbit = 1000 bit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ambr {
    /// Uplink rate in kbit/s.
    pub ul_kbps: u64,
    /// Downlink rate in kbit/s.
    pub dl_kbps: u64,
}

/// A slice that a subscriber may use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SubscribedSlice {
    /// Name of the slice.
    pub s_nssai: SNssai,
    /// Default: used if the UE requests none (TS 23.501 §5.15.3).
    pub default: bool,
    /// Data networks within it.
    pub dnns: Vec<SubscribedDnn>,
}

/// A data network that a subscriber may use within a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SubscribedDnn {
    /// Name of the data network.
    pub dnn: Dnn,
    /// Default: used if the UE names none.
    pub default: bool,
    /// Session types allowed.
    pub session_types: SessionTypes,
    /// Default SSC mode; mode 1 is allowed too (TS 23.501 §5.6.9.3).
    pub ssc_mode: SscMode,
    /// 5QI of the default QoS flow.
    pub five_qi: FiveQi,
    /// Allocation and retention priority of the default QoS flow.
    pub arp: Arp,
    /// Session aggregate maximum bit rate.
    pub session_ambr: Ambr,
    /// Static IPv4 address.
    pub static_ipv4: Option<Ipv4Addr>,
    /// Static /64 prefix.
    pub static_ipv6: Option<Ipv6Addr>,
    /// QoS flows in addition to those of the data network.
    pub flows: Vec<FlowPolicy>,
    /// Framed routes: networks behind the UE with prefix lengths (TS 23.501 §5.6.14).
    pub framed_routes: Vec<(IpAddr, u8)>,
    /// User plane security policy; it overrides the data network's (TS 23.501 §5.10.3).
    pub up_security: Option<UpSecurity>,
}

/// PDU session types (TS 24.501 §9.11.4.11) that a subscription allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionTypes {
    /// IPv4 sessions are allowed.
    pub ipv4: bool,
    /// IPv6 sessions are allowed.
    pub ipv6: bool,
    /// Ethernet sessions are allowed.
    pub ethernet: bool,
    /// Unstructured sessions are allowed.
    pub unstructured: bool,
}

impl SessionTypes {
    /// None at all.
    pub const NONE: Self = Self { ipv4: false, ipv6: false, ethernet: false, unstructured: false };
    /// IPv4, IPv6, and both in one.
    pub const IP: Self = Self { ipv4: true, ipv6: true, ..Self::NONE };
}

impl fmt::Display for SessionTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.ipv4, "IPv4"),
            (self.ipv6, "IPv6"),
            (self.ethernet, "Ethernet"),
            (self.unstructured, "unstructured"),
        ];
        let mut names = all.iter().filter(|(allowed, _)| *allowed).map(|(_, name)| *name);
        f.write_str(names.next().unwrap_or("none"))?;
        names.try_for_each(|name| write!(f, ", {name}"))
    }
}

/// Allocation and retention priority (TS 23.501 §5.7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Arp {
    /// 1 (highest) to 15.
    pub priority: u8,
    /// Pre-emption capability: it may pre-empt others.
    pub may_preempt: bool,
    /// Pre-emption vulnerability: others may pre-empt it.
    pub preemptable: bool,
}

/// kbit/s in bit/s, limited to the range of the IE (TS 38.413 §9.3.1.4: 4 Tbit/s).
pub(crate) fn bits(kbps: u64) -> u64 {
    kbps.saturating_mul(1000).min(4_000_000_000_000)
}
