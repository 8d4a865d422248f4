//! QoS rules (TS 24.501 §9.11.4.13).
//!
//! The element keeps its octets; errors inside are answered by a 5GSM cause of the procedure (§6.3.2.4, §6.4.1.3,
//! §6.4.2.4), not by §7, so reading them is a step of its own.

use whimbrel_ids::{DecodeError, Qfi, Reader};

use super::{Octets, SmCause};
use crate::codec::Ie;

/// QoS rules as carried: requested, authorized, or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosRules(Octets<4, 65535>);

/// Rule operation code, with the packet filters that it operates on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleOperation {
    /// Create a new rule.
    Create(Vec<PacketFilter>),
    /// Delete the rule.
    Delete,
    /// Modify the rule and add packet filters.
    AddFilters(Vec<PacketFilter>),
    /// Modify the rule and replace all packet filters.
    ReplaceFilters(Vec<PacketFilter>),
    /// Modify the rule and delete packet filters, by their identifiers.
    DeleteFilters(Vec<u8>),
    /// Modify the rule without modifying packet filters.
    KeepFilters,
}

/// One QoS rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosRule {
    /// QoS rule identifier; 0 if the network is to assign it.
    pub id: u8,
    /// What to do with it.
    pub operation: RuleOperation,
    /// It is the default QoS rule (DQR).
    pub default: bool,
    /// Precedence and QoS flow; absent if the operation deletes the rule.
    pub binding: Option<QosFlowBinding>,
}

/// Precedence and flow of a QoS rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosFlowBinding {
    /// Precedence: the lowest is tried first.
    pub precedence: u8,
    /// Segregation: the UE requests a dedicated QoS flow for the traffic of this rule.
    pub segregation: bool,
    /// Identifier of the QoS flow.
    pub qfi: Qfi,
}

/// To which direction a packet filter applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FilterDirection {
    /// The filter is for the downlink only.
    Downlink = 1,
    /// The filter is for the uplink only.
    Uplink = 2,
    /// The filter is for both directions.
    Bidirectional = 3,
}

/// One packet filter: all its components must match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketFilter {
    /// Packet filter identifier, 0 to 15.
    pub id: u8,
    /// Direction of the packets.
    pub direction: FilterDirection,
    /// Components that all must match.
    pub components: Vec<FilterComponent>,
}

macro_rules! components {
    ( $( $code:literal $name:ident [$n:literal] $doc:literal, )* ) => {
        /// One component of a packet filter, its value in network octet order (addresses are followed by their
        /// mask or prefix length, ranges are low limit then high limit, the traffic class is followed by its mask).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FilterComponent {
            /// The component that each packet matches.
            MatchAll,
            $( #[doc = $doc] $name([u8; $n]), )*
        }

        impl FilterComponent {
            fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
                Ok(Some(match r.u8("packet filter component type")? {
                    0x01 => Self::MatchAll,
                    $( $code => Self::$name(r.array("packet filter component")?), )*
                    _ => return Ok(None),
                }))
            }

            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    Self::MatchAll => out.push(0x01),
                    $( Self::$name(value) => { out.push($code); out.extend_from_slice(value); } )*
                }
            }
        }
    };
}

components! {
    0x10 Ipv4Remote[8] "IPv4 remote address: address, mask.",
    0x11 Ipv4Local[8] "IPv4 local address: address, mask.",
    0x21 Ipv6Remote[17] "IPv6 remote address: address, prefix length.",
    0x23 Ipv6Local[17] "IPv6 local address: address, prefix length.",
    0x30 Protocol[1] "Protocol identifier, or next header.",
    0x40 LocalPort[2] "Single local port.",
    0x41 LocalPorts[4] "Local port range.",
    0x50 RemotePort[2] "Single remote port.",
    0x51 RemotePorts[4] "Remote port range.",
    0x60 Spi[4] "Security parameter index.",
    0x70 TrafficClass[2] "Type of service, or traffic class: value, mask.",
    0x80 FlowLabel[3] "Flow label, 20 bits right-aligned.",
    0x81 DestinationMac[6] "Destination MAC address.",
    0x82 SourceMac[6] "Source MAC address.",
    0x83 CTagVid[2] "802.1Q C-TAG VID, 12 bits right-aligned.",
    0x84 STagVid[2] "802.1Q S-TAG VID, 12 bits right-aligned.",
    0x85 CTagPcpDei[1] "802.1Q C-TAG PCP and DEI, 4 bits right-aligned.",
    0x86 STagPcpDei[1] "802.1Q S-TAG PCP and DEI, 4 bits right-aligned.",
    0x87 Ethertype[2] "Ethertype.",
    0x88 DestinationMacs[12] "Destination MAC address range.",
    0x89 SourceMacs[12] "Source MAC address range.",
}

/// Maximum number of packet filters of a rule: the number is a four-bit field.
const FILTERS_MAX: usize = 15;

impl PacketFilter {
    fn decode(r: &mut Reader<'_>) -> Result<Self, SmCause> {
        let bad = |_: DecodeError| SmCause::SyntacticalErrorInQosOperation;
        let head = r.u8("packet filter").map_err(bad)?;
        let direction = match head >> 4 & 0x03 {
            1 => FilterDirection::Downlink,
            2 => FilterDirection::Uplink,
            3 => FilterDirection::Bidirectional,
            _ => return Err(SmCause::SyntacticalErrorInPacketFilters),
        };
        let len = r.u8("packet filter").map_err(bad)?;
        let mut contents = r.sub(usize::from(len), "packet filter").map_err(bad)?;
        let mut components = Vec::new();
        while !contents.is_empty() {
            let component = FilterComponent::decode(&mut contents).ok().flatten();
            components.push(component.ok_or(SmCause::SyntacticalErrorInPacketFilters)?);
        }
        Ok(Self { id: head & 0x0f, direction, components })
    }
}

impl Ie for PacketFilter {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = r.error(whimbrel_ids::DecodeErrorKind::InvalidValue, "packet filter");
        Self::decode(r).map_err(|_| at)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push((self.direction as u8) << 4 | self.id & 0x0f);
        let mut components = Vec::new();
        self.components.iter().for_each(|c| c.encode(&mut components));
        components.truncate(usize::from(u8::MAX));
        out.push(components.len() as u8);
        out.extend_from_slice(&components);
    }
}

impl QosRule {
    /// The default QoS rule of a flow: one match-all filter, in both directions.
    pub fn new_default(id: u8, precedence: u8, qfi: Qfi) -> Self {
        let filter = PacketFilter {
            id: 1,
            direction: FilterDirection::Bidirectional,
            components: vec![FilterComponent::MatchAll],
        };
        Self {
            id,
            operation: RuleOperation::Create(vec![filter]),
            default: true,
            binding: Some(QosFlowBinding { precedence, segregation: false, qfi }),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, SmCause> {
        let bad = |_: DecodeError| SmCause::SyntacticalErrorInQosOperation;
        let id = r.u8("QoS rule").map_err(bad)?;
        let len = r.u16("QoS rule").map_err(bad)?;
        let mut r = r.sub(usize::from(len), "QoS rule").map_err(bad)?;
        let head = r.u8("QoS rule").map_err(bad)?;
        let count = usize::from(head & 0x0f);
        let filters =
            |r: &mut Reader<'_>| (0..count).map(|_| PacketFilter::decode(r)).collect::<Result<Vec<_>, _>>();
        let operation = match head >> 5 {
            1 => RuleOperation::Create(filters(&mut r)?),
            2 if count == 0 => RuleOperation::Delete,
            3 => RuleOperation::AddFilters(filters(&mut r)?),
            4 => RuleOperation::ReplaceFilters(filters(&mut r)?),
            5 => RuleOperation::DeleteFilters(
                r.take(count, "packet filter").map_err(bad)?.iter().map(|o| o & 0x0f).collect(),
            ),
            6 if count == 0 => RuleOperation::KeepFilters,
            _ => return Err(SmCause::SyntacticalErrorInQosOperation),
        };
        let binding = if r.is_empty() {
            None
        } else {
            let [precedence, octet] = r.array("QoS rule precedence").map_err(bad)?;
            let qfi = Qfi::new(octet & 0x3f).ok_or(SmCause::SyntacticalErrorInQosOperation)?;
            Some(QosFlowBinding { precedence, segregation: octet & 0x40 != 0, qfi })
        };
        Ok(Self { id, operation, default: head & 0x10 != 0, binding })
    }
}

impl RuleOperation {
    const fn code(&self) -> u8 {
        match self {
            Self::Create(_) => 1,
            Self::Delete => 2,
            Self::AddFilters(_) => 3,
            Self::ReplaceFilters(_) => 4,
            Self::DeleteFilters(_) => 5,
            Self::KeepFilters => 6,
        }
    }
}

impl QosRule {
    /// Appends the rule without its identifier and length.
    fn encode_contents(&self, out: &mut Vec<u8>) {
        let (filters, ids): (&[PacketFilter], &[u8]) = match &self.operation {
            RuleOperation::Create(f) | RuleOperation::AddFilters(f) | RuleOperation::ReplaceFilters(f) => {
                (f, &[])
            }
            RuleOperation::DeleteFilters(ids) => (&[], ids),
            RuleOperation::Delete | RuleOperation::KeepFilters => (&[], &[]),
        };
        let count = (filters.len() + ids.len()).min(FILTERS_MAX);
        out.push(self.operation.code() << 5 | u8::from(self.default) << 4 | count as u8);
        filters.iter().take(count).for_each(|f| f.encode(out));
        out.extend(ids.iter().take(count).map(|id| id & 0x0f));
        if let Some(binding) = self.binding {
            out.push(binding.precedence);
            out.push(u8::from(binding.segregation) << 6 | binding.qfi.value());
        }
    }
}

impl QosRules {
    /// Encodes rules; `None` if there are none, or if the IE would exceed 65,535 octets.
    pub fn new(rules: &[QosRule]) -> Option<Self> {
        let mut octets = Vec::new();
        for rule in rules {
            octets.push(rule.id);
            let mut contents = Vec::new();
            rule.encode_contents(&mut contents);
            octets.extend_from_slice(&u16::try_from(contents.len()).ok()?.to_be_bytes());
            octets.extend_from_slice(&contents);
        }
        Octets::new(octets).map(Self)
    }

    /// The rules.
    ///
    /// Errors: the 5GSM cause that the procedure answers: #84, or #45 for a packet filter.
    pub fn rules(&self) -> Result<Vec<QosRule>, SmCause> {
        let mut r = Reader::new(&self.0);
        let mut rules = Vec::new();
        while !r.is_empty() {
            rules.push(QosRule::decode(&mut r)?);
        }
        Ok(rules)
    }

    /// The octets as received or built.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl Ie for QosRules {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Octets::decode(r).map(Self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
