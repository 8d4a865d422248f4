//! What a subscriber may use: the access and mobility, slice and session data of TS 29.503 §6.1.6.2.
//!
//! Many subscribers have the same subscription; records share it ([`std::sync::Arc`]).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, FiveQi, ParseIdError, SNssai, Tac};

use crate::bit_rate::Ambr;
use crate::forms::{TacNumber, Text};
use crate::text::{self, serde_as_text};

/// Subscribed S-NSSAIs of one UE at most (TS 23.501 §5.15.3).
pub const SLICES_MAX: usize = 16;
/// DNNs of one slice at most: a bound of ours, several times what networks configure.
pub const DNNS_MAX: usize = 32;
/// QoS flows of one DNN at most: what is left of a session's 63 is the UE's (TS 24.501 §9.11.4.12).
pub const FLOWS_MAX: usize = 16;
/// Packet filters of one flow at most: four bits count those of a QoS rule (TS 24.501 §9.11.4.13).
pub const FILTERS_MAX: usize = 15;
/// Networks behind one UE in one DNN at most: what the UPF takes.
pub const FRAMED_ROUTES_MAX: usize = 16;
/// Forbidden areas of one UE at most: a bound of ours, one list of TS 24.501 §9.11.3.9 holds 16.
pub const AREAS_MAX: usize = 16;

/// Indices to RAT/frequency selection priority (TS 36.300 annex I.2).
const RFSP: core::ops::RangeInclusive<u16> = 1..=256;
/// Priority levels of ARP (TS 23.501 §5.7.2.2).
const ARP_PRIORITY: core::ops::RangeInclusive<u8> = 1..=15;

/// Everything subscribed but the identity and the keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Subscription {
    /// Subscribed UE-AMBR (TS 23.501 §5.7.2.6).
    pub ue_ambr: Ambr,
    /// Subscribed slices; at least one is a default slice.
    #[schemars(length(min = 1, max = SLICES_MAX))]
    pub slices: Vec<SubscribedSlice>,
    /// Index to RAT/frequency selection priority, 1 to 256 (TS 23.501 §5.3.4.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = *RFSP.start(), max = *RFSP.end()))]
    pub rfsp: Option<u16>,
    /// Radio access technologies that the UE may not use (TS 23.501 §5.3.4.1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rat_restrictions: Vec<RatType>,
    /// Tracking areas in which the UE gets no service (TS 23.501 §5.3.4.1).
    #[serde(with = "tacs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<TacNumber>", length(max = AREAS_MAX))]
    pub forbidden_areas: Vec<Tac>,
    /// Where the UE may start services; absent: everywhere (TS 23.501 §5.3.4.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_area: Option<ServiceArea>,
    /// Multimedia priority service: access identity 1 (TS 23.501 §5.16.5).
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub mps_priority: bool,
    /// Mission critical services: access identity 2 (TS 23.501 §5.16.6).
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub mcs_priority: bool,
}

/// Where a UE may start services: `{"allowed": [1, 2]}` or `{"not_allowed": [3]}` (TS 23.501 §5.3.4.1.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceArea {
    /// In these tracking areas alone.
    Allowed(
        #[serde(with = "tacs")]
        #[schemars(with = "Vec<TacNumber>", length(max = AREAS_MAX))]
        Vec<Tac>,
    ),
    /// Everywhere but in these.
    NotAllowed(
        #[serde(with = "tacs")]
        #[schemars(with = "Vec<TacNumber>", length(max = AREAS_MAX))]
        Vec<Tac>,
    ),
}

impl ServiceArea {
    fn tacs(&self) -> &[Tac] {
        match self {
            Self::Allowed(tacs) | Self::NotAllowed(tacs) => tacs,
        }
    }
}

impl Default for Subscription {
    /// Slice SST 1 with the DNN `internet`, 1 Gbit/s, no restriction.
    fn default() -> Self {
        Self {
            ue_ambr: Ambr::DEFAULT,
            slices: vec![SubscribedSlice::default()],
            rfsp: None,
            rat_restrictions: Vec::new(),
            forbidden_areas: Vec::new(),
            service_area: None,
            mps_priority: false,
            mcs_priority: false,
        }
    }
}

/// Radio access technology (TS 29.571 §5.4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RatType {
    /// New Radio, the radio access of 5G.
    #[serde(rename = "NR")]
    Nr,
    /// E-UTRA connected to the 5G core.
    #[serde(rename = "EUTRA")]
    Eutra,
    /// Wireless LAN, which is not 3GPP access.
    #[serde(rename = "WLAN")]
    Wlan,
    /// Virtual: any non-3GPP access.
    #[serde(rename = "VIRTUAL")]
    Virtual,
}

/// A subscribed slice and the data networks reached through it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscribedSlice {
    /// The slice, as `1` or `1-0000ab`.
    #[serde(with = "text")]
    #[schemars(with = "Text<SNssai>")]
    pub s_nssai: SNssai,
    /// Whether it serves a UE that asks for none (TS 23.501 §5.15.3). Absent means yes.
    #[serde(default = "yes")]
    pub default: bool,
    /// Its data networks; one is the default.
    #[serde(default = "internet")]
    #[schemars(length(min = 1, max = DNNS_MAX))]
    pub dnns: Vec<DnnConfiguration>,
}

impl Default for SubscribedSlice {
    fn default() -> Self {
        Self { s_nssai: SNssai::sst(1), default: true, dnns: internet() }
    }
}

fn yes() -> bool {
    true
}

fn internet() -> Vec<DnnConfiguration> {
    // A constant text that is a DNN.
    "internet"
        .parse()
        .map(|dnn| vec![DnnConfiguration { default: true, ..DnnConfiguration::new(dnn) }])
        .unwrap_or_default()
}

/// How sessions of one data network are served (TS 29.503 §6.1.6.2.9).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DnnConfiguration {
    /// The data network.
    #[serde(with = "text")]
    #[schemars(with = "Text<Dnn>")]
    pub dnn: Dnn,
    /// Whether it serves a UE that names none.
    #[serde(default)]
    pub default: bool,
    /// Session type where the UE leaves it open.
    #[serde(default = "ipv4v6")]
    pub session_type: SessionType,
    /// Session types that the UE may ask for; contains the default one.
    #[serde(default = "ip_types")]
    pub allowed_session_types: Vec<SessionType>,
    /// Session and service continuity mode (TS 23.501 §5.6.9).
    #[serde(default)]
    pub ssc_mode: SscMode,
    /// 5QI of the default QoS flow: a non-GBR one (TS 23.501 §5.7.2.7).
    #[serde(with = "five_qi", default = "five_qi::default")]
    #[schemars(with = "u8")]
    pub five_qi: FiveQi,
    /// Priority of the default QoS flow.
    #[serde(default)]
    pub arp: Arp,
    /// Session-AMBR of the subscription.
    #[serde(default = "default_ambr")]
    pub session_ambr: Ambr,
    /// The address that this subscriber always gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4Addr>,
    /// The prefix that this subscriber always gets.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ipv6: Option<Ipv6Prefix>,
    /// QoS flows on top of those of the data network; one of the same name takes its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = FLOWS_MAX))]
    pub flows: Vec<SubscribedFlow>,
    /// Networks behind the UE, such as `192.168.7.0/24` (TS 23.501 §5.6.14).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = FRAMED_ROUTES_MAX))]
    pub framed_routes: Vec<FramedRoute>,
    /// How the radio is to protect its packets; absent: as the data network's configuration has it (TS 29.503 §6.1.6.2.9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_security: Option<UpSecurity>,
}

/// User plane security policy (TS 23.501 §5.10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpSecurity {
    /// Integrity protection of user packets.
    pub integrity: UpProtection,
    /// Confidentiality protection of user packets.
    pub confidentiality: UpProtection,
}

/// Whether one kind of protection applies (TS 38.413 §9.3.1.27).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UpProtection {
    /// No session without it.
    Required,
    /// Where the gNB can.
    Preferred,
    /// Protection is never used.
    NotNeeded,
}

/// A QoS flow that a subscriber's sessions have (TS 23.503 §6.3.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscribedFlow {
    /// Its name: 1 to 16 lower-case letters, digits or dashes.
    pub name: String,
    /// 5QI of the flow.
    #[serde(with = "five_qi")]
    #[schemars(with = "u8")]
    pub five_qi: FiveQi,
    /// Allocation and retention priority of the flow.
    #[serde(default)]
    pub arp: Arp,
    /// Guaranteed rates, of a GBR flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed: Option<Ambr>,
    /// Rates above which packets are dropped; absent: the guaranteed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<Ambr>,
    /// Precedence of its QoS rule: the lowest is tried first.
    pub precedence: u8,
    /// Its packets: `[uplink|downlink] permit out PROTOCOL from ADDRESS [PORTS] to ADDRESS [PORTS]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = FILTERS_MAX))]
    pub filters: Vec<String>,
    /// Which directions pass.
    #[serde(default)]
    pub gate: FlowGate,
    /// What sets it up.
    #[serde(default)]
    pub setup: FlowSetup,
}

/// Which directions of a flow pass (TS 29.512 §5.6.3.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FlowGate {
    /// The gate is open in both directions.
    #[default]
    Enabled,
    /// The gate is open for the uplink only.
    #[serde(rename = "ENABLED-UPLINK")]
    Uplink,
    /// The gate is open for the downlink only.
    #[serde(rename = "ENABLED-DOWNLINK")]
    Downlink,
    /// The gate is closed in both directions.
    Disabled,
}

/// What sets a flow up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FlowSetup {
    /// The network, with each session.
    #[default]
    Always,
    /// A UE that asks for it, within these rates.
    OnRequest,
    /// The operator, by its name.
    ByOperator,
}

impl DnnConfiguration {
    /// A data network with the defaults: IPv4v6, SSC mode 1, 5QI 9, 1 Gbit/s, addresses from a pool.
    pub fn new(dnn: Dnn) -> Self {
        Self {
            dnn,
            default: false,
            session_type: ipv4v6(),
            allowed_session_types: ip_types(),
            ssc_mode: SscMode::default(),
            five_qi: five_qi::default(),
            arp: Arp::default(),
            session_ambr: default_ambr(),
            ipv4: None,
            ipv6: None,
            flows: Vec::new(),
            framed_routes: Vec::new(),
            up_security: None,
        }
    }
}

fn ipv4v6() -> SessionType {
    SessionType::Ipv4v6
}

fn ip_types() -> Vec<SessionType> {
    vec![SessionType::Ipv4, SessionType::Ipv6, SessionType::Ipv4v6]
}

fn default_ambr() -> Ambr {
    Ambr::DEFAULT
}

/// PDU session type (TS 29.571 §5.4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionType {
    /// Sessions of type IPv4.
    Ipv4,
    /// Sessions of type IPv6.
    Ipv6,
    /// Sessions with an IPv4 address and an IPv6 prefix.
    Ipv4v6,
    /// Octets without structure.
    Unstructured,
    /// Sessions that carry Ethernet frames.
    Ethernet,
}

const SESSION_TYPES: [(SessionType, &str); 5] = [
    (SessionType::Ipv4, "IPV4"),
    (SessionType::Ipv6, "IPV6"),
    (SessionType::Ipv4v6, "IPV4V6"),
    (SessionType::Unstructured, "UNSTRUCTURED"),
    (SessionType::Ethernet, "ETHERNET"),
];

impl fmt::Display for SessionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SESSION_TYPES.iter().find(|(t, _)| t == self).map_or("", |(_, name)| name))
    }
}

impl FromStr for SessionType {
    type Err = ParseIdError;

    /// Reads the names of TS 29.571 in any case.
    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError =
            ParseIdError { expected: "a session type: IPV4, IPV6, IPV4V6, UNSTRUCTURED or ETHERNET" };
        SESSION_TYPES.iter().find(|(_, name)| name.eq_ignore_ascii_case(s)).map(|(t, _)| *t).ok_or(E)
    }
}

serde_as_text!(SessionType);

impl JsonSchema for SessionType {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SessionType".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "enum": SESSION_TYPES.map(|(_, name)| name) })
    }
}

/// SSC mode (TS 29.571 §5.4.3.6).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SscMode {
    /// The anchor stays.
    #[default]
    #[serde(rename = "SSC_MODE_1")]
    One,
    /// Break before make.
    #[serde(rename = "SSC_MODE_2")]
    Two,
    /// Make before break.
    #[serde(rename = "SSC_MODE_3")]
    Three,
}

/// Allocation and retention priority (TS 23.501 §5.7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arp {
    /// 1 (highest) to 15.
    #[schemars(range(min = *ARP_PRIORITY.start(), max = *ARP_PRIORITY.end()))]
    pub priority_level: u8,
    /// Whether it may take the resources of others.
    #[serde(default)]
    pub may_preempt: bool,
    /// Whether others may take its resources.
    #[serde(default)]
    pub preemptable: bool,
}

impl Default for Arp {
    /// Priority 8, the middle, and no pre-emption.
    fn default() -> Self {
        Self { priority_level: 8, may_preempt: false, preemptable: false }
    }
}

/// A network behind a UE (TS 23.501 §5.6.14): its address, with zeros behind the prefix, and the prefix's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FramedRoute {
    address: IpAddr,
    length: u8,
}

impl FramedRoute {
    /// The network's address and the length of its prefix.
    pub const fn network(self) -> (IpAddr, u8) {
        (self.address, self.length)
    }
}

impl fmt::Display for FramedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for FramedRoute {
    type Err = ParseIdError;

    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError = ParseIdError {
            expected: "a network whose address ends in zeros behind its prefix, such as 192.168.7.0/24",
        };
        let (address, length) = s.split_once('/').ok_or(E)?;
        let (address, length): (IpAddr, u8) =
            (address.parse().map_err(|_| E)?, length.parse().map_err(|_| E)?);
        let hosts = |bits: u8| u128::MAX.checked_shr(u32::from(128 - bits) + u32::from(length)).unwrap_or(0);
        let good = match address {
            IpAddr::V4(a) => length <= 32 && u128::from(a.to_bits()) & hosts(32) == 0,
            IpAddr::V6(a) => length <= 128 && a.to_bits() & hosts(128) == 0,
        };
        if good { Ok(Self { address, length }) } else { Err(E) }
    }
}

serde_as_text!(FramedRoute);

impl JsonSchema for FramedRoute {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FramedRoute".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// An IPv6 prefix of a session: 64 bits (TS 23.501 §5.8.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ipv6Prefix(Ipv6Addr);

impl Ipv6Prefix {
    /// The prefix, with zeros in its lower 64 bits.
    pub const fn address(self) -> Ipv6Addr {
        self.0
    }
}

impl fmt::Display for Ipv6Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/64", self.0)
    }
}

impl FromStr for Ipv6Prefix {
    type Err = ParseIdError;

    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError =
            ParseIdError { expected: "an IPv6 prefix of 64 bits, such as 2001:db8:0:1::/64" };
        let address: Ipv6Addr = s.strip_suffix("/64").ok_or(E)?.parse().map_err(|_| E)?;
        if address.to_bits() as u64 == 0 { Ok(Self(address)) } else { Err(E) }
    }
}

mod five_qi {
    use super::FiveQi;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Best effort (TS 23.501 table 5.7.4-1).
    pub(super) fn default() -> FiveQi {
        FiveQi(9)
    }

    pub(super) fn serialize<S: Serializer>(v: &FiveQi, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u8(v.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<FiveQi, D::Error> {
        u8::deserialize(d).map(FiveQi)
    }
}

mod tacs {
    use super::Tac;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(v: &[Tac], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(v.iter().map(|t| t.value()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Tac>, D::Error> {
        let tac = |v| Tac::new(v).ok_or_else(|| D::Error::custom("a TAC has at most 24 bits"));
        Vec::<u32>::deserialize(d)?.into_iter().map(tac).collect()
    }
}

/// A subscription that contradicts itself or the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidSubscription {
    /// No slice, or more than [`SLICES_MAX`].
    SliceCount,
    /// The same slice twice.
    SliceTwice(SNssai),
    /// No slice is a default slice.
    NoDefaultSlice,
    /// A slice without a DNN, or with more than [`DNNS_MAX`].
    DnnCount(SNssai),
    /// The same DNN twice in a slice.
    DnnTwice(SNssai),
    /// Not exactly one default DNN in a slice.
    DefaultDnn(SNssai),
    /// The default session type of a DNN is not among its allowed ones.
    SessionType(SNssai),
    /// A 5QI that is not a non-GBR one.
    FiveQi(FiveQi),
    /// An ARP priority level outside 1 to 15.
    Arp(u8),
    /// An RFSP outside 1 to 256.
    Rfsp(u16),
    /// More than [`AREAS_MAX`] forbidden areas.
    AreaCount,
    /// More than [`FLOWS_MAX`] flows of a DNN, or more than [`FILTERS_MAX`] filters of one.
    FlowCount(SNssai),
    /// More than [`FRAMED_ROUTES_MAX`] networks behind the UE in a DNN.
    FramedRouteCount(SNssai),
    /// Two flows of a DNN of one name or of one precedence.
    FlowTwice(SNssai),
}

impl fmt::Display for InvalidSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SliceCount => write!(f, "a subscription has 1 to {SLICES_MAX} slices"),
            Self::SliceTwice(s) => write!(f, "slice {s} is listed twice"),
            Self::NoDefaultSlice => f.write_str("at least one slice must be a default slice"),
            Self::DnnCount(s) => write!(f, "slice {s} must have 1 to {DNNS_MAX} DNNs"),
            Self::DnnTwice(s) => write!(f, "slice {s} lists a DNN twice"),
            Self::DefaultDnn(s) => write!(f, "slice {s} must have exactly one default DNN"),
            Self::SessionType(s) => {
                write!(f, "the session type of a DNN in slice {s} is not among its allowed session types")
            }
            Self::FiveQi(q) => write!(
                f,
                "5QI {} cannot carry a default QoS flow: use 5 to 9, 69, 70, 79, 80 or one of the operator's, 128 to 254",
                q.0
            ),
            Self::Arp(v) => write!(f, "ARP priority level {v} is not within 1 to 15"),
            Self::Rfsp(v) => write!(f, "RFSP index {v} is not within 1 to 256"),
            Self::FlowCount(s) => write!(
                f,
                "a DNN in slice {s} has more than {FLOWS_MAX} flows, or one of them more than {FILTERS_MAX} filters"
            ),
            Self::FramedRouteCount(s) => {
                write!(f, "a DNN in slice {s} has more than {FRAMED_ROUTES_MAX} framed routes")
            }
            Self::FlowTwice(s) => {
                write!(f, "two flows of a DNN in slice {s} have the same name or the same precedence")
            }
            Self::AreaCount => write!(f, "a subscription has at most {AREAS_MAX} forbidden areas"),
        }
    }
}

impl core::error::Error for InvalidSubscription {}

impl Subscription {
    /// Whether it keeps to the standard and to the bounds here.
    pub fn check(&self) -> Result<(), InvalidSubscription> {
        use InvalidSubscription as E;
        if self.slices.is_empty() || self.slices.len() > SLICES_MAX {
            return Err(E::SliceCount);
        }
        if let Some(s) = first_repeated(self.slices.iter().map(|s| s.s_nssai)) {
            return Err(E::SliceTwice(s));
        }
        if !self.slices.iter().any(|s| s.default) {
            return Err(E::NoDefaultSlice);
        }
        if let Some(rfsp) = self.rfsp.filter(|v| !RFSP.contains(v)) {
            return Err(E::Rfsp(rfsp));
        }
        let service = self.service_area.as_ref().map_or(&[][..], ServiceArea::tacs);
        if self.forbidden_areas.len() > AREAS_MAX || service.len() > AREAS_MAX {
            return Err(E::AreaCount);
        }
        self.slices.iter().try_for_each(SubscribedSlice::check)
    }
}

impl SubscribedSlice {
    fn check(&self) -> Result<(), InvalidSubscription> {
        use InvalidSubscription as E;
        let s = self.s_nssai;
        if self.dnns.is_empty() || self.dnns.len() > DNNS_MAX {
            return Err(E::DnnCount(s));
        }
        if first_repeated(self.dnns.iter().map(|d| &d.dnn)).is_some() {
            return Err(E::DnnTwice(s));
        }
        if self.dnns.iter().filter(|d| d.default).count() != 1 {
            return Err(E::DefaultDnn(s));
        }
        for d in &self.dnns {
            if !d.allowed_session_types.contains(&d.session_type) {
                return Err(E::SessionType(s));
            }
            // Standardised non-GBR 5QIs of TS 23.501 table 5.7.4-1, and those that an operator defines.
            if !matches!(d.five_qi.0, 5..=9 | 69 | 70 | 79 | 80 | 128..=254) {
                return Err(E::FiveQi(d.five_qi));
            }
            let arps = d.flows.iter().map(|f| f.arp).chain([d.arp]);
            if let Some(arp) = arps.into_iter().find(|a| !ARP_PRIORITY.contains(&a.priority_level)) {
                return Err(E::Arp(arp.priority_level));
            }
            if d.flows.len() > FLOWS_MAX || d.flows.iter().any(|f| f.filters.len() > FILTERS_MAX) {
                return Err(E::FlowCount(s));
            }
            if d.framed_routes.len() > FRAMED_ROUTES_MAX {
                return Err(E::FramedRouteCount(s));
            }
            let names = first_repeated(d.flows.iter().map(|f| &f.name));
            if names.is_some() || first_repeated(d.flows.iter().map(|f| f.precedence)).is_some() {
                return Err(E::FlowTwice(s));
            }
        }
        Ok(())
    }
}

/// Lists here are short: comparing all pairs needs no set.
fn first_repeated<T: PartialEq + Clone>(items: impl Iterator<Item = T> + Clone) -> Option<T> {
    items.clone().enumerate().find(|(i, v)| items.clone().take(*i).any(|w| w == *v)).map(|(_, v)| v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 23.501 §5.6.14
    fn networks_behind_ues_in_their_text() {
        for text in ["192.168.7.0/24", "10.0.0.0/8", "0.0.0.0/0", "192.0.2.9/32", "2001:db8:99::/48", "::/0"]
        {
            assert_eq!(text.parse::<FramedRoute>().map(|r| r.to_string()), Ok(text.to_string()));
        }
        for text in [
            "",
            "192.168.7.1/24",
            "192.168.7.0",
            "10.0.0.0/33",
            "2001:db8::1/64",
            "::/129",
            "x/8",
            "1.2.3.4/",
        ] {
            assert!(text.parse::<FramedRoute>().is_err(), "{text}");
        }
    }

    #[test]
    fn networks_behind_one_ue_are_bounded() {
        let mut s = Subscription::default();
        let route = "192.168.7.0/24".parse().unwrap();
        s.slices[0].dnns[0].framed_routes = vec![route; FRAMED_ROUTES_MAX];
        assert_eq!(s.check(), Ok(()));
        s.slices[0].dnns[0].framed_routes.push(route);
        assert_eq!(s.check(), Err(InvalidSubscription::FramedRouteCount(SNssai::sst(1))));
    }
}
