//! Values as plain octets, in the order of their fields: what records of the state are made of.
//!
//! Integers are little-endian. [`STATE_VERSION`](super::STATE_VERSION) changes whenever a field is added, moved or removed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use whimbrel_ids::{Instant, Qfi, Seid, Teid};
use whimbrel_pfcp::ie::{
    ApplyAction, BarId, CpFunctionFeatures, DestinationInterface, FSeid, FarId, Gate, GateStatus, MacAddress,
    MeasurementInformation, MeasurementMethod, NodeId, NtpTime, PdrId, QerId, RecoveryTimeStamp,
    ReportingTriggers, SourceInterface, TrafficEndpointId, UrrId, Volume,
};

use crate::config::{DnIndex, PointToPoint};
use crate::rules::{Application, Bar, Endpoint, Far, Pdr, PeerTunnel, Qer, SessionKind, SessionRules, Urr};

/// Values within each other in boxes, at most: a filter of frames that has IP filters, of which none has one of frames.
const NESTED_MAX: u8 = 2;

/// Values of a list for which there is room before they are read: what usual sessions have, and no more than a damaged record can claim without harm.
const ROOM_MAX: usize = 64;

/// Octets that are read from the front.
pub(crate) struct StoredReader<'a> {
    octets: &'a [u8],
    nested: u8,
}

impl<'a> StoredReader<'a> {
    pub(crate) fn new(octets: &'a [u8]) -> Self {
        Self { octets, nested: 0 }
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.octets.split_first_chunk::<N>()?;
        self.octets = rest;
        Some(*first)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.octets
    }
}

/// A value that can be written into a record and read from one.
pub(crate) trait Stored: Sized {
    /// Appends the value to the octets.
    fn store(&self, to: &mut Vec<u8>);

    /// Reads it; `None` where the octets are none of it.
    fn restore(from: &mut StoredReader<'_>) -> Option<Self>;
}

macro_rules! stored_integers {
    ($($of:ty),*) => { $(
        impl Stored for $of {
            fn store(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
            fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
                from.take().map(Self::from_le_bytes)
            }
        }
    )* };
}

/// Structs of one public number.
macro_rules! stored_numbers {
    ($($of:ident),* $(,)?) => { $(
        impl Stored for $of {
            fn store(&self, to: &mut Vec<u8>) {
                self.0.store(to);
            }
            fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
                Stored::restore(from).map(Self)
            }
        }
    )* };
}

/// Enumerations of one octet.
macro_rules! stored_codes {
    ($($of:ident),* $(,)?) => { $(
        impl Stored for $of {
            fn store(&self, to: &mut Vec<u8>) {
                to.push(*self as u8);
            }
            fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
                Self::from_code(u8::restore(from)?)
            }
        }
    )* };
}

/// A struct, by its fields in this order.
macro_rules! stored {
    ($of:ty { $($field:ident),* $(,)? }) => {
        impl $crate::state::Stored for $of {
            fn store(&self, to: &mut Vec<u8>) {
                $( $crate::state::Stored::store(&self.$field, to); )*
            }
            fn restore(from: &mut $crate::state::StoredReader<'_>) -> Option<Self> {
                $( let $field = $crate::state::Stored::restore(from)?; )*
                Some(Self { $($field),* })
            }
        }
    };
}
pub(crate) use stored;

stored_integers!(u8, u16, u32, u64, u128);
stored_numbers!(
    ApplyAction,
    BarId,
    CpFunctionFeatures,
    DnIndex,
    FarId,
    Instant,
    MeasurementInformation,
    MeasurementMethod,
    NtpTime,
    PdrId,
    QerId,
    RecoveryTimeStamp,
    ReportingTriggers,
    Seid,
    Teid,
    TrafficEndpointId,
    UrrId,
);
stored_codes!(DestinationInterface, Gate, SourceInterface);
stored!(GateStatus { ul, dl });
stored!(Volume { total, ul, dl });
stored!(MacAddress { source, destination, upper_source, upper_destination });
stored!(FSeid { seid, ipv4, ipv6 });
stored!(PointToPoint { peer, port });
stored!(PeerTunnel { teid, peer });
stored!(Far { action, destination, tunnel, tos, far_id, bar_id, has_parameters, copies_to });
stored!(Qer { gate, qfi, rqi, ppi, mbr_ul_kbps, mbr_dl_kbps, gbr_ul_kbps, gbr_dl_kbps, window_ms, qer_id });
stored!(Urr {
    urr_id,
    method,
    triggers,
    information,
    volume_threshold,
    volume_quota,
    time_threshold_s,
    time_quota_s,
    event_threshold,
    event_quota,
    period_s,
    quota_holding_s,
    inactivity_detection_s,
    monitoring,
    ethernet_inactivity_s,
    linked,
    revision,
});
stored!(Bar { bar_id, packets, delay });
stored!(Endpoint { id, teid });
stored!(Pdr {
    teid,
    precedence,
    qfis,
    filters,
    application,
    source,
    far,
    qers,
    urrs,
    pdr_id,
    deletes_container,
    choose_id,
    endpoint,
});

impl Stored for bool {
    fn store(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        match u8::restore(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<T: Stored> Stored for Option<T> {
    fn store(&self, to: &mut Vec<u8>) {
        self.is_some().store(to);
        self.iter().for_each(|v| v.store(to));
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        Some(if bool::restore(from)? { Some(T::restore(from)?) } else { None })
    }
}

impl<T: Stored, const N: usize> Stored for [T; N] {
    fn store(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|v| v.store(to));
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        let all: Vec<T> = (0..N).map(|_| T::restore(from)).collect::<Option<_>>()?;
        all.try_into().ok()
    }
}

/// Every element has an octet at least, so a length that the rest cannot hold ends the reading before much is allocated.
impl<T: Stored> Stored for Vec<T> {
    fn store(&self, to: &mut Vec<u8>) {
        (self.len() as u32).store(to);
        self.iter().for_each(|v| v.store(to));
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        let len = u32::restore(from)? as usize;
        if len > from.octets.len() {
            return None;
        }
        let mut all = Self::with_capacity(len.min(ROOM_MAX));
        for _ in 0..len {
            all.push(T::restore(from)?);
        }
        Some(all)
    }
}

impl<T: Stored> Stored for Box<[T]> {
    fn store(&self, to: &mut Vec<u8>) {
        (self.len() as u32).store(to);
        self.iter().for_each(|v| v.store(to));
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        Vec::restore(from).map(Vec::into_boxed_slice)
    }
}

impl<T: Stored> Stored for Box<T> {
    fn store(&self, to: &mut Vec<u8>) {
        (**self).store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        from.nested += 1;
        let value = if from.nested > NESTED_MAX { None } else { T::restore(from).map(Box::new) };
        from.nested -= 1;
        value
    }
}

impl Stored for Box<str> {
    fn store(&self, to: &mut Vec<u8>) {
        (self.len() as u32).store(to);
        to.extend_from_slice(self.as_bytes());
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        let octets: Vec<u8> = Vec::restore(from)?;
        String::from_utf8(octets).ok().map(String::into_boxed_str)
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn store(&self, to: &mut Vec<u8>) {
        self.0.store(to);
        self.1.store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        Some((A::restore(from)?, B::restore(from)?))
    }
}

impl Stored for Ipv4Addr {
    fn store(&self, to: &mut Vec<u8>) {
        self.to_bits().store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        u32::restore(from).map(Self::from_bits)
    }
}

impl Stored for Ipv6Addr {
    fn store(&self, to: &mut Vec<u8>) {
        self.to_bits().store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        u128::restore(from).map(Self::from_bits)
    }
}

impl Stored for IpAddr {
    fn store(&self, to: &mut Vec<u8>) {
        match self {
            Self::V4(a) => (4u8, *a).store(to),
            Self::V6(a) => (6u8, *a).store(to),
        }
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        match u8::restore(from)? {
            4 => Ipv4Addr::restore(from).map(Self::V4),
            6 => Ipv6Addr::restore(from).map(Self::V6),
            _ => None,
        }
    }
}

impl Stored for SocketAddr {
    fn store(&self, to: &mut Vec<u8>) {
        (self.ip(), self.port()).store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        <(IpAddr, u16)>::restore(from).map(Self::from)
    }
}

impl Stored for SocketAddrV6 {
    fn store(&self, to: &mut Vec<u8>) {
        (*self.ip(), self.port()).store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        let (ip, port) = Stored::restore(from)?;
        Some(Self::new(ip, port, 0, 0))
    }
}

impl Stored for NodeId {
    fn store(&self, to: &mut Vec<u8>) {
        match self {
            Self::Ipv4(a) => (4u8, *a).store(to),
            Self::Ipv6(a) => (6u8, *a).store(to),
            Self::Fqdn(name) => (0u8, name.clone()).store(to),
        }
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        match u8::restore(from)? {
            4 => Stored::restore(from).map(Self::Ipv4),
            6 => Stored::restore(from).map(Self::Ipv6),
            0 => Stored::restore(from).map(Self::Fqdn),
            _ => None,
        }
    }
}

impl Stored for Qfi {
    fn store(&self, to: &mut Vec<u8>) {
        to.push(self.value());
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        Self::new(u8::restore(from)?)
    }
}

impl Stored for SessionKind {
    fn store(&self, to: &mut Vec<u8>) {
        to.push(match self {
            Self::Ip => 0,
            Self::Ethernet => 1,
            Self::Unstructured => 2,
        });
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        match u8::restore(from)? {
            0 => Some(Self::Ip),
            1 => Some(Self::Ethernet),
            2 => Some(Self::Unstructured),
            _ => None,
        }
    }
}

/// By its name: the present definition takes its place when the rules are restored.
impl Stored for Arc<Application> {
    fn store(&self, to: &mut Vec<u8>) {
        self.id.store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        let id: Box<str> = Stored::restore(from)?;
        Some(Arc::new(Application::nothing(&id, 0)))
    }
}

impl Stored for Arc<SessionRules> {
    fn store(&self, to: &mut Vec<u8>) {
        (**self).store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        SessionRules::restore(from).map(Self::new)
    }
}

/// All but what [`Draft::close`](crate::rules::Draft::close) makes of the rest.
impl Stored for SessionRules {
    fn store(&self, to: &mut Vec<u8>) {
        (self.ue_ipv4, self.ue_ipv6).store(to);
        (self.data_network, self.kind).store(to);
        self.point_to_point.store(to);
        self.tunnels_given.store(to);
        self.tunnels.store(to);
        self.framed.store(to);
        self.pdrs.store(to);
        self.fars.store(to);
        self.qers.store(to);
        self.urrs.store(to);
        self.bars.store(to);
        self.endpoints.store(to);
        self.inactivity_s.store(to);
        (self.slice, self.firewalled).store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        let (ue_ipv4, ue_ipv6) = Stored::restore(from)?;
        let (data_network, kind) = Stored::restore(from)?;
        let mut rules = Self { ue_ipv4, ue_ipv6, kind, ..Self::empty(data_network) };
        rules.point_to_point = Stored::restore(from)?;
        rules.tunnels_given = Stored::restore(from)?;
        rules.tunnels = Stored::restore(from)?;
        rules.framed = Stored::restore(from)?;
        rules.pdrs = Stored::restore(from)?;
        rules.fars = Stored::restore(from)?;
        rules.qers = Stored::restore(from)?;
        rules.urrs = Stored::restore(from)?;
        rules.bars = Stored::restore(from)?;
        rules.endpoints = Stored::restore(from)?;
        rules.inactivity_s = Stored::restore(from)?;
        (rules.slice, rules.firewalled) = Stored::restore(from)?;
        Some(rules)
    }
}
