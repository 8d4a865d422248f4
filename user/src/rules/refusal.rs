//! Why a rule set is refused, and the cause that is sent to the SMF.

use std::fmt;

use whimbrel_pfcp::ie::{BarId, Cause, FailedRuleId, FarId, PdrId, QerId, TrafficEndpointId, UrrId};

/// Why a rule set is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleRefusal {
    /// There is no PDR.
    NoPdr,
    /// There is no FAR.
    NoFar,
    /// More rules, filters, or references than the bounds.
    TooMany(FailedRuleId),
    /// A PDR names no FAR.
    PdrWithoutFar(PdrId),
    /// A PDR names a FAR that is not there.
    UnknownFar(PdrId, FarId),
    /// A PDR names a QER that is not there.
    UnknownQer(PdrId, QerId),
    /// A PDR names a URR that is not there.
    UnknownUrr(PdrId, UrrId),
    /// A PDR names a traffic endpoint that is not there.
    UnknownTrafficEndpoint(PdrId, TrafficEndpointId),
    /// An update or removal names a rule that is not there.
    NoSuchRule(FailedRuleId),
    /// A rule is created twice.
    DuplicateRule(FailedRuleId),
    /// A flow description that is not one.
    FlowDescription(PdrId),
    /// A PDR from the access side, or from the CP function, without a tunnel.
    NoFTeid(PdrId),
    /// The SMF chose an F-TEID; here the UPF chooses.
    FTeidOfCp(PdrId),
    /// The SMF wants an F-TEID chosen; here the SMF chooses.
    FTeidOfUp(PdrId),
    /// An F-TEID of an SMF with a TEID of zero, or an address that this UPF does not have on N3.
    FTeidNotLocal(PdrId),
    /// An F-TEID of an SMF that another session has.
    FTeidInUse(PdrId),
    /// An F-TEID of an address family that this UPF has no N3 address of.
    FTeidFamily(PdrId),
    /// More local tunnels than the bound.
    TooManyTunnels(PdrId),
    /// A network instance that is not configured.
    UnknownNetworkInstance(PdrId, Box<str>),
    /// The data network is ambiguous.
    NoNetworkInstance,
    /// An address family of which the network has no pool, or whose pools are empty.
    PoolEmpty {
        /// IPv6 instead of IPv4.
        ipv6: bool,
    },
    /// A static address that another session has.
    AddressInUse(PdrId),
    /// A session of two addresses of one family.
    SecondAddress(PdrId),
    /// A prediction that gives a session that stands an address, which would stay taken if it did not come true.
    PredictedAddress,
    /// An IPv6 prefix of another length than 64.
    PrefixLength(PdrId),
    /// An application together with filters, or in a session that is not of IP.
    ApplicationId(PdrId),
    /// An application that is neither configured nor provisioned.
    UnknownApplication(PdrId, Box<str>),
    /// Predefined rules; none is configured.
    PredefinedRule(PdrId),
    /// Filters of Ethernet frames in a session of another type.
    Ethernet(PdrId),
    /// FORW without Forwarding Parameters.
    FarWithoutParameters(FarId),
    /// Neither, or more than one, of DROP, FORW and BUFF; or an action that is not supported.
    ApplyAction(FarId),
    /// An outer header other than GTP-U, or to an address family that this UPF has no N3 address of.
    OuterHeader(FarId),
    /// More is promised to flows of guaranteed rate than can be kept.
    Guaranteed(QerId),
    /// A destination other than access, core and N6-LAN, and the CP function by a tunnel.
    Destination(FarId),
    /// A forwarding policy; none is configured.
    ForwardingPolicy(FarId),
    /// Duplication to anything but one LI function, or of packets that are not forwarded.
    Duplication(FarId),
    /// An unstructured or Ethernet session, which the data network does not carry.
    PdnType,
    /// The SMF's own SEID is zero, which names no session (TS 29.244 §7.2.2.4.2).
    CpSeid,
    /// All sessions are in use.
    NoSession,
    /// A session that is to be restored has a tunnel which another one has now, or that this UPF cannot have.
    TunnelInUse,
    /// The state that is kept for a successor has no room for it.
    StateFull,
}

/// Types of the information elements named in answers (TS 29.244 table 8.1.2-1).
mod ie {
    pub(super) const CREATE_PDR: u16 = 1;
    pub(super) const CREATE_FAR: u16 = 3;
    pub(super) const FORWARDING_PARAMETERS: u16 = 4;
    pub(super) const DUPLICATING_PARAMETERS: u16 = 5;
    pub(super) const F_TEID: u16 = 21;
    pub(super) const NETWORK_INSTANCE: u16 = 22;
    pub(super) const SDF_FILTER: u16 = 23;
    pub(super) const APPLICATION_ID: u16 = 24;
    pub(super) const FORWARDING_POLICY: u16 = 41;
    pub(super) const DESTINATION_INTERFACE: u16 = 42;
    pub(super) const APPLY_ACTION: u16 = 44;
    pub(super) const F_SEID: u16 = 57;
    pub(super) const URR_ID: u16 = 81;
    pub(super) const OUTER_HEADER_CREATION: u16 = 84;
    pub(super) const UE_IP_ADDRESS: u16 = 93;
    pub(super) const ACTIVATE_PREDEFINED_RULES: u16 = 106;
    pub(super) const FAR_ID: u16 = 108;
    pub(super) const QER_ID: u16 = 109;
    pub(super) const PDN_TYPE: u16 = 113;
    pub(super) const TRAFFIC_ENDPOINT_ID: u16 = 131;
    pub(super) const ETHERNET_PACKET_FILTER: u16 = 132;
}

impl RuleRefusal {
    /// The cause, the offending element and the failed rule of the answer (TS 29.244 table 8.2.1-1).
    pub fn answer(&self) -> (Cause, Option<u16>, Option<FailedRuleId>) {
        const FAILED: Cause = Cause::RuleCreationModificationFailure;
        let pdr = |id: &PdrId| Some(FailedRuleId::Pdr(*id));
        let far = |id: &FarId| Some(FailedRuleId::Far(*id));
        match self {
            Self::NoPdr => (Cause::MandatoryIeMissing, Some(ie::CREATE_PDR), None),
            Self::NoFar => (Cause::MandatoryIeMissing, Some(ie::CREATE_FAR), None),
            Self::TooMany(id) => (Cause::NoResourcesAvailable, None, Some(*id)),
            Self::PdrWithoutFar(p) => (Cause::ConditionalIeMissing, Some(ie::FAR_ID), pdr(p)),
            Self::UnknownFar(p, _) => (FAILED, Some(ie::FAR_ID), pdr(p)),
            Self::UnknownQer(p, _) => (FAILED, Some(ie::QER_ID), pdr(p)),
            Self::UnknownUrr(p, _) => (FAILED, Some(ie::URR_ID), pdr(p)),
            Self::UnknownTrafficEndpoint(p, _) => (FAILED, Some(ie::TRAFFIC_ENDPOINT_ID), pdr(p)),
            Self::NoSuchRule(id) | Self::DuplicateRule(id) => (FAILED, None, Some(*id)),
            Self::FlowDescription(p) => (FAILED, Some(ie::SDF_FILTER), pdr(p)),
            Self::NoFTeid(p) => (Cause::ConditionalIeMissing, Some(ie::F_TEID), pdr(p)),
            Self::FTeidOfCp(p) | Self::FTeidOfUp(p) => {
                (Cause::InvalidFTeidAllocationOption, Some(ie::F_TEID), pdr(p))
            }
            Self::FTeidFamily(p) | Self::FTeidNotLocal(p) | Self::FTeidInUse(p) => {
                (FAILED, Some(ie::F_TEID), pdr(p))
            }
            Self::TooManyTunnels(p) => (Cause::NoResourcesAvailable, Some(ie::F_TEID), pdr(p)),
            Self::UnknownNetworkInstance(p, _) => (FAILED, Some(ie::NETWORK_INSTANCE), pdr(p)),
            Self::NoNetworkInstance => (Cause::ConditionalIeMissing, Some(ie::NETWORK_INSTANCE), None),
            Self::PoolEmpty { .. } => (Cause::AllDynamicAddressesAreOccupied, Some(ie::UE_IP_ADDRESS), None),
            Self::AddressInUse(p) | Self::SecondAddress(p) | Self::PrefixLength(p) => {
                (FAILED, Some(ie::UE_IP_ADDRESS), pdr(p))
            }
            Self::PredictedAddress => (Cause::RequestRejected, Some(ie::UE_IP_ADDRESS), None),
            Self::ApplicationId(p) => (Cause::ServiceNotSupported, Some(ie::APPLICATION_ID), pdr(p)),
            Self::UnknownApplication(p, _) => (Cause::UnknownApplicationId, Some(ie::APPLICATION_ID), pdr(p)),
            Self::PredefinedRule(p) => {
                (Cause::UnknownPreDefinedRule, Some(ie::ACTIVATE_PREDEFINED_RULES), pdr(p))
            }
            Self::Ethernet(p) => (Cause::ServiceNotSupported, Some(ie::ETHERNET_PACKET_FILTER), pdr(p)),
            Self::FarWithoutParameters(f) => {
                (Cause::ConditionalIeMissing, Some(ie::FORWARDING_PARAMETERS), far(f))
            }
            Self::ApplyAction(f) => (Cause::MandatoryIeIncorrect, Some(ie::APPLY_ACTION), far(f)),
            Self::OuterHeader(f) => (FAILED, Some(ie::OUTER_HEADER_CREATION), far(f)),
            Self::Guaranteed(q) => (Cause::NoResourcesAvailable, None, Some(FailedRuleId::Qer(*q))),
            Self::Destination(f) => (FAILED, Some(ie::DESTINATION_INTERFACE), far(f)),
            Self::ForwardingPolicy(f) => {
                (Cause::InvalidForwardingPolicy, Some(ie::FORWARDING_POLICY), far(f))
            }
            Self::Duplication(f) => (Cause::ServiceNotSupported, Some(ie::DUPLICATING_PARAMETERS), far(f)),
            Self::PdnType => (Cause::ServiceNotSupported, Some(ie::PDN_TYPE), None),
            Self::CpSeid => (Cause::MandatoryIeIncorrect, Some(ie::F_SEID), None),
            Self::TunnelInUse => (Cause::PfcpSessionRestorationFailure, Some(ie::F_TEID), None),
            Self::NoSession | Self::StateFull => (Cause::NoResourcesAvailable, None, None),
        }
    }
}

/// How a rule is named in a sentence.
struct Name(FailedRuleId);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FailedRuleId::Pdr(PdrId(n)) => write!(f, "PDR {n}"),
            FailedRuleId::Far(FarId(n)) => write!(f, "FAR {n}"),
            FailedRuleId::Qer(QerId(n)) => write!(f, "QER {n}"),
            FailedRuleId::Urr(UrrId(n)) => write!(f, "URR {n}"),
            FailedRuleId::Bar(BarId(n)) => write!(f, "BAR {n}"),
        }
    }
}

impl fmt::Display for RuleRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPdr => f.write_str("the session has no PDR"),
            Self::NoFar => f.write_str("the session has no FAR"),
            Self::TooMany(id) => write!(f, "{} exceeds a bound on rules, filters or references", Name(*id)),
            Self::PdrWithoutFar(p) => write!(f, "PDR {} names no FAR", p.0),
            Self::UnknownFar(p, id) => write!(f, "PDR {} names FAR {}, which is not there", p.0, id.0),
            Self::UnknownQer(p, id) => write!(f, "PDR {} names QER {}, which is not there", p.0, id.0),
            Self::UnknownUrr(p, id) => write!(f, "PDR {} names URR {}, which is not there", p.0, id.0),
            Self::UnknownTrafficEndpoint(p, id) => {
                write!(f, "PDR {} names traffic endpoint {}, which is not there", p.0, id.0)
            }
            Self::NoSuchRule(id) => write!(f, "{} is to be changed or removed and is not there", Name(*id)),
            Self::DuplicateRule(id) => write!(f, "{} is created twice", Name(*id)),
            Self::FlowDescription(p) => write!(f, "a flow description of PDR {} cannot be read", p.0),
            Self::NoFTeid(p) => {
                write!(f, "PDR {} looks at the access side or the CP function without a tunnel", p.0)
            }
            Self::FTeidOfCp(p) => write!(f, "PDR {} brings an F-TEID; here the UPF chooses (CHOOSE)", p.0),
            Self::FTeidOfUp(p) => {
                write!(f, "PDR {} has the UPF choose its F-TEID (CHOOSE); here the SMF chooses", p.0)
            }
            Self::FTeidNotLocal(p) => {
                write!(
                    f,
                    "PDR {} has an F-TEID that is not of this UPF: an address that N3 does not have, or TEID 0",
                    p.0
                )
            }
            Self::FTeidInUse(p) => write!(f, "PDR {} has an F-TEID that another session has", p.0),
            Self::FTeidFamily(p) => write!(f, "PDR {} wants a tunnel of a family that N3 does not have", p.0),
            Self::TooManyTunnels(p) => write!(f, "PDR {} wants one local tunnel too many", p.0),
            Self::UnknownNetworkInstance(p, n) => {
                write!(f, "PDR {} is of network instance {n:?}, which is not configured here", p.0)
            }
            Self::NoNetworkInstance => f.write_str("no rule says which data network is meant"),
            Self::PoolEmpty { ipv6: false } => f.write_str("the network has no free IPv4 address"),
            Self::PoolEmpty { ipv6: true } => f.write_str("the network has no free IPv6 prefix"),
            Self::AddressInUse(p) => write!(f, "the UE address of PDR {} is in use by another session", p.0),
            Self::PredictedAddress => f.write_str("a prediction gives the session another address"),
            Self::SecondAddress(p) => write!(f, "PDR {} gives the session a second address of a family", p.0),
            Self::PrefixLength(p) => write!(f, "PDR {} has an IPv6 prefix of another length than 64", p.0),
            Self::ApplicationId(p) => {
                write!(
                    f,
                    "PDR {} names an application beside filters, or in a session that is not of IP",
                    p.0
                )
            }
            Self::UnknownApplication(p, id) => {
                write!(f, "PDR {} names the application {id:?}, which is not known here", p.0)
            }
            Self::PredefinedRule(p) => write!(f, "PDR {} names a predefined rule; none is configured", p.0),
            Self::Ethernet(p) => write!(f, "PDR {} filters Ethernet frames in an IP session", p.0),
            Self::FarWithoutParameters(id) => {
                write!(f, "FAR {} forwards without forwarding parameters", id.0)
            }
            Self::ApplyAction(id) => write!(f, "FAR {} must drop, forward or buffer", id.0),
            Self::OuterHeader(id) => write!(f, "FAR {} wants an outer header that N3 cannot send", id.0),
            Self::Guaranteed(id) => write!(f, "QER {} guarantees more than is left to be promised", id.0),
            Self::Destination(id) => write!(f, "FAR {} goes to a side that this UPF does not have", id.0),
            Self::ForwardingPolicy(id) => {
                write!(f, "FAR {} names a forwarding policy; none is configured", id.0)
            }
            Self::Duplication(id) => write!(
                f,
                "FAR {} duplicates to another than one LI function, or what it does not forward",
                id.0
            ),
            Self::PdnType => {
                f.write_str("the data network does not carry sessions of that type (unstructured, Ethernet)")
            }
            Self::CpSeid => f.write_str("the SMF's own SEID is zero, which names no session"),
            Self::TunnelInUse => {
                f.write_str("a tunnel of a session that is to be restored is in use, or cannot be had")
            }
            Self::StateFull => f.write_str("the UPF's state file is full"),
            Self::NoSession => f.write_str("all sessions of the UPF are in use"),
        }
    }
}
