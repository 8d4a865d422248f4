//! Packet filters in their three forms: configuration text, NAS (TS 24.501 §9.11.4.13) and PFCP (TS 29.244 §8.2.5,
//! §7.5.2.2-3); and the check of a UE's filter.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_nas::ie::{FilterComponent as C, FilterDirection, PacketFilter, PduSessionType, SmCause};
use whimbrel_pfcp::ie::{Ethertype, MacAddress, SdfFilter, VlanTag};
use whimbrel_pfcp::rule::EthernetPacketFilter;

use crate::state::UeAddress;

/// Protocols with ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// Protocols with a security parameter index: ESP and AH.
const WITH_SPI: [u8; 2] = [50, 51];

/// Reads a packet filter.
///
/// `[uplink|downlink] permit out PROTOCOL from ADDRESS [PORTS] to ADDRESS [PORTS]` is the IPFilterRule of TS 29.212
/// §5.4.2, seen from the network: `from` is the far end, `to` the UE; without a first word both directions are meant.
/// `[uplink|downlink] ethernet [destination MAC] [source MAC] [type HEX] [vlan N]` is one of an Ethernet session.
pub(crate) fn parse(text: &str) -> Option<PacketFilter> {
    let mut words = text.split_ascii_whitespace().peekable();
    let direction = match *words.peek()? {
        "uplink" => FilterDirection::Uplink,
        "downlink" => FilterDirection::Downlink,
        _ => FilterDirection::Bidirectional,
    };
    if direction != FilterDirection::Bidirectional {
        words.next();
    }
    let rest: Vec<&str> = words.collect();
    let components = match rest.split_first()? {
        (&"permit", rest) => ip_components(rest)?,
        (&"ethernet", rest) => ethernet_components(rest)?,
        _ => return None,
    };
    Some(PacketFilter { id: 0, direction, components })
}

fn ip_components(words: &[&str]) -> Option<Vec<C>> {
    let mut words = words.iter().copied().peekable();
    let out = match words.next()? {
        "out" => true,
        "in" => false,
        _ => return None,
    };
    let mut components = Vec::new();
    match words.next()? {
        "ip" => {}
        protocol => components.push(C::Protocol([protocol.parse().ok()?])),
    }
    for (keyword, remote) in [("from", out), ("to", !out)] {
        (words.next()? == keyword).then_some(())?;
        components.extend(address(words.next()?, remote)?);
        if let Some(ports) = words.next_if(|w| *w != "to") {
            components.push(port_range(ports, remote)?);
        }
    }
    words.next().is_none().then_some(())?;
    if components.is_empty() {
        components.push(C::MatchAll);
    }
    judge_components(&components, PduSessionType::Ipv4v6).ok()?;
    Some(components)
}

fn address(text: &str, remote: bool) -> Option<Option<C>> {
    if text == "any" || text == "assigned" {
        return Some(None);
    }
    let (address, prefix) = match text.split_once('/') {
        Some((a, p)) => (a, Some(p.parse::<u8>().ok()?)),
        None => (text, None),
    };
    Some(Some(match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(a) => {
            let prefix = prefix.unwrap_or(32);
            let mask = u32::MAX.checked_shl(32u32.checked_sub(prefix.into())?).unwrap_or(0);
            let mut value = [0; 8];
            value[..4].copy_from_slice(&(a.to_bits() & mask).to_be_bytes());
            value[4..].copy_from_slice(&mask.to_be_bytes());
            if remote { C::Ipv4Remote(value) } else { C::Ipv4Local(value) }
        }
        IpAddr::V6(a) => {
            let prefix = prefix.unwrap_or(128);
            let mask = u128::MAX.checked_shl(128u32.checked_sub(prefix.into())?).unwrap_or(0);
            let mut value = [0; 17];
            value[..16].copy_from_slice(&(a.to_bits() & mask).to_be_bytes());
            value[16] = prefix;
            if remote { C::Ipv6Remote(value) } else { C::Ipv6Local(value) }
        }
    }))
}

fn port_range(text: &str, remote: bool) -> Option<C> {
    let Some((low, high)) = text.split_once('-') else {
        let port = text.parse::<u16>().ok()?.to_be_bytes();
        return Some(if remote { C::RemotePort(port) } else { C::LocalPort(port) });
    };
    let (low, high) = (low.parse::<u16>().ok()?, high.parse::<u16>().ok()?);
    let [a, b] = low.to_be_bytes();
    let [c, d] = high.to_be_bytes();
    (low <= high).then_some(if remote { C::RemotePorts([a, b, c, d]) } else { C::LocalPorts([a, b, c, d]) })
}

/// Exchanges the ends of a filter that takes the UE for the far end.
///
/// Deviation: free5GC's PCF describes uplink flows of an AF from the UE to the far end, where TS 29.512 §5.6.2.14 has the UE at the end.
pub(crate) fn turn_towards(filter: &mut PacketFilter, ue: UeAddress) {
    let is_ue = |c: &C| match c {
        C::Ipv4Remote([a, b, c, d, 255, 255, 255, 255]) => ue.ipv4 == Some(Ipv4Addr::new(*a, *b, *c, *d)),
        C::Ipv6Remote(value) => {
            ue.ipv6.is_some_and(|prefix| value[16] >= 64 && value[..8] == prefix.octets()[..8])
        }
        _ => false,
    };
    if !filter.components.iter().any(is_ue) {
        return;
    }
    for component in &mut filter.components {
        *component = match std::mem::replace(component, C::MatchAll) {
            C::Ipv4Remote(v) => C::Ipv4Local(v),
            C::Ipv4Local(v) => C::Ipv4Remote(v),
            C::Ipv6Remote(v) => C::Ipv6Local(v),
            C::Ipv6Local(v) => C::Ipv6Remote(v),
            C::RemotePort(v) => C::LocalPort(v),
            C::LocalPort(v) => C::RemotePort(v),
            C::RemotePorts(v) => C::LocalPorts(v),
            C::LocalPorts(v) => C::RemotePorts(v),
            other => other,
        };
    }
}

fn ethernet_components(words: &[&str]) -> Option<Vec<C>> {
    let mut components = Vec::new();
    for pair in words.chunks(2) {
        let [key, value] = pair else { return None };
        components.push(match *key {
            "destination" => C::DestinationMac(mac(value)?),
            "source" => C::SourceMac(mac(value)?),
            "type" => C::Ethertype(u16::from_str_radix(value, 16).ok()?.to_be_bytes()),
            "vlan" => C::CTagVid(value.parse::<u16>().ok().filter(|v| (1..4095).contains(v))?.to_be_bytes()),
            _ => return None,
        });
    }
    judge_components(&components, PduSessionType::Ethernet).ok()?;
    (!components.is_empty()).then_some(components)
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut address {
        *octet = u8::from_str_radix(parts.next().filter(|p| p.len() == 2)?, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

/// Whether a filter can match anything in a session of this type: one of IPv4 cannot in an IPv6 session.
pub(crate) fn suits(filter: &PacketFilter, session_type: PduSessionType) -> bool {
    judge(filter, session_type).is_ok()
}

/// The error of a filter: #44 if no packet can match it, #45 if it is not well formed (TS 24.501 §6.4.2.4, §6.3.2.4 c
/// and d).
pub(crate) fn judge(filter: &PacketFilter, session_type: PduSessionType) -> Result<(), SmCause> {
    if filter.components.is_empty() {
        return Err(SmCause::SyntacticalErrorInPacketFilters);
    }
    judge_components(&filter.components, session_type)
}

fn judge_components(components: &[C], session_type: PduSessionType) -> Result<(), SmCause> {
    const SEMANTIC: SmCause = SmCause::SemanticErrorsInPacketFilters;
    const SYNTACTICAL: SmCause = SmCause::SyntacticalErrorInPacketFilters;
    let kind = |c: &C| std::mem::discriminant(c);
    let twice =
        components.iter().enumerate().any(|(i, c)| components.iter().take(i).any(|d| kind(c) == kind(d)));
    if twice {
        return Err(SYNTACTICAL);
    }
    let has = |f: fn(&C) -> bool| components.iter().any(f);
    if has(|c| matches!(c, C::MatchAll)) {
        return if components.len() == 1 { Ok(()) } else { Err(SEMANTIC) };
    }
    let ethernet = has(is_ethernet);
    let ip = components.iter().any(|c| !is_ethernet(c));
    let v4 = has(|c| matches!(c, C::Ipv4Remote(_) | C::Ipv4Local(_)));
    let v6 = has(|c| matches!(c, C::Ipv6Remote(_) | C::Ipv6Local(_) | C::FlowLabel(_)));
    let fits = match session_type {
        PduSessionType::Ipv4 => !ethernet && !v6,
        PduSessionType::Ipv6 => !ethernet && !v4,
        PduSessionType::Ipv4v6 => !ethernet,
        // An IP packet within a frame: TS 24.501 §9.11.4.13 allows it with ethertype 0x0800 or 0x86dd, or none named.
        PduSessionType::Ethernet => !ip || ethertype_allows(components, v4, v6),
        PduSessionType::Unstructured => false,
    };
    if !fits || v4 && v6 {
        return Err(SEMANTIC);
    }
    let range = |low: [u8; 2], high: [u8; 2]| low <= high;
    for c in components {
        let well_formed = match *c {
            C::LocalPorts([a, b, c, d]) | C::RemotePorts([a, b, c, d]) => range([a, b], [c, d]),
            C::Ipv4Remote(v) | C::Ipv4Local(v) => prefix_of(v).is_some(),
            C::Ipv6Remote(v) | C::Ipv6Local(v) => v[16] <= 128,
            C::DestinationMacs(v) | C::SourceMacs(v) => v[..6] <= v[6..],
            _ => true,
        };
        if !well_formed {
            return Err(SYNTACTICAL);
        }
    }
    let single_and_range = has(|c| matches!(c, C::LocalPort(_))) && has(|c| matches!(c, C::LocalPorts(_)))
        || has(|c| matches!(c, C::RemotePort(_))) && has(|c| matches!(c, C::RemotePorts(_)));
    let ports =
        has(|c| matches!(c, C::LocalPort(_) | C::LocalPorts(_) | C::RemotePort(_) | C::RemotePorts(_)));
    let spi = has(|c| matches!(c, C::Spi(_)));
    let protocol = components.iter().find_map(|c| if let C::Protocol([p]) = c { Some(*p) } else { None });
    let wrong_protocol = |allowed: &[u8]| protocol.is_some_and(|p| !allowed.contains(&p));
    if single_and_range || ports && (spi || wrong_protocol(&WITH_PORTS)) || spi && wrong_protocol(&WITH_SPI) {
        return Err(SEMANTIC);
    }
    Ok(())
}

fn is_ethernet(c: &C) -> bool {
    matches!(
        c,
        C::DestinationMac(_)
            | C::SourceMac(_)
            | C::CTagVid(_)
            | C::STagVid(_)
            | C::CTagPcpDei(_)
            | C::STagPcpDei(_)
            | C::Ethertype(_)
            | C::DestinationMacs(_)
            | C::SourceMacs(_)
    )
}

fn ethertype_allows(components: &[C], v4: bool, v6: bool) -> bool {
    let named = components
        .iter()
        .find_map(|c| if let C::Ethertype(t) = c { Some(u16::from_be_bytes(*t)) } else { None });
    match named {
        None => true,
        Some(0x0800) => !v6,
        Some(0x86dd) => !v4,
        Some(_) => false,
    }
}

/// Address and prefix length of an address with its mask; `None` if the mask has gaps, which a flow description cannot
/// express.
fn prefix_of(value: [u8; 8]) -> Option<(Ipv4Addr, u32)> {
    let [a, b, c, d, m @ ..] = value;
    let mask = u32::from_be_bytes(m);
    (mask.leading_ones() + mask.trailing_zeros() == 32)
        .then_some((Ipv4Addr::new(a, b, c, d), mask.leading_ones()))
}

/// Whether the filter is of this direction.
pub(crate) fn is_of(filter: &PacketFilter, uplink: bool) -> bool {
    let other = if uplink { FilterDirection::Downlink } else { FilterDirection::Uplink };
    filter.direction != other
}

/// The SDF filter of an IP session. Match-all is any packet.
pub(crate) fn sdf(filter: &PacketFilter) -> SdfFilter {
    let mut protocol = "ip".to_owned();
    let (mut remote, mut local) = ("any".to_owned(), "assigned".to_owned());
    let (mut remote_ports, mut local_ports) = (String::new(), String::new());
    let mut sdf = SdfFilter::default();
    let port = |[a, b]: [u8; 2]| u16::from_be_bytes([a, b]);
    for c in &filter.components {
        match *c {
            C::Protocol([p]) => protocol = p.to_string(),
            C::Ipv4Remote(v) => remote = v4_text(v),
            C::Ipv4Local(v) => local = v4_text(v),
            C::Ipv6Remote(v) => remote = v6_text(v),
            C::Ipv6Local(v) => local = v6_text(v),
            C::RemotePort(p) => remote_ports = format!(" {}", port(p)),
            C::LocalPort(p) => local_ports = format!(" {}", port(p)),
            C::RemotePorts([a, b, c, d]) => remote_ports = format!(" {}-{}", port([a, b]), port([c, d])),
            C::LocalPorts([a, b, c, d]) => local_ports = format!(" {}-{}", port([a, b]), port([c, d])),
            C::Spi(v) => sdf.security_parameter_index = Some(u32::from_be_bytes(v)),
            C::TrafficClass(v) => sdf.tos_traffic_class = Some(v),
            C::FlowLabel([a, b, c]) => sdf.flow_label = Some(u32::from_be_bytes([0, a, b, c]) & 0xf_ffff),
            _ => {}
        }
    }
    let description = format!("permit out {protocol} from {remote}{remote_ports} to {local}{local_ports}");
    sdf.flow_description = Some(description.into());
    sdf
}

fn v4_text(value: [u8; 8]) -> String {
    match prefix_of(value) {
        Some((a, 32)) => a.to_string(),
        Some((a, prefix)) => format!("{a}/{prefix}"),
        None => "any".to_owned(), // refused before
    }
}

fn v6_text(value: [u8; 17]) -> String {
    let [address @ .., prefix] = value;
    let a = Ipv6Addr::from(address);
    if prefix == 128 { a.to_string() } else { format!("{a}/{prefix}") }
}

/// The filter of an Ethernet session, in the form for the UPF. IP components become an SDF filter within it.
pub(crate) fn ethernet(filter: &PacketFilter, uplink: bool) -> EthernetPacketFilter {
    let mut out = EthernetPacketFilter {
        ethernet_filter_id: None,
        ethernet_filter_properties: None,
        mac_addresses: Vec::new(),
        ethertype: None,
        c_tag: None,
        s_tag: None,
        sdf_filters: Vec::new(),
    };
    let mut addresses = MacAddress::default();
    let range = |v: [u8; 12]| {
        let (mut low, mut high) = ([0; 6], [0; 6]);
        low.copy_from_slice(&v[..6]);
        high.copy_from_slice(&v[6..]);
        (low, high)
    };
    for c in &filter.components {
        match *c {
            C::DestinationMac(m) => addresses.destination = Some(m),
            C::SourceMac(m) => addresses.source = Some(m),
            C::DestinationMacs(v) => {
                let (low, high) = range(v);
                (addresses.destination, addresses.upper_destination) = (Some(low), Some(high));
            }
            C::SourceMacs(v) => {
                let (low, high) = range(v);
                (addresses.source, addresses.upper_source) = (Some(low), Some(high));
            }
            C::Ethertype(t) => out.ethertype = Some(Ethertype(u16::from_be_bytes(t))),
            C::CTagVid(v) => out.c_tag = Some(with_vid(out.c_tag, v)),
            C::STagVid(v) => out.s_tag = Some(with_vid(out.s_tag, v)),
            C::CTagPcpDei([v]) => out.c_tag = Some(with_pcp(out.c_tag, v)),
            C::STagPcpDei([v]) => out.s_tag = Some(with_pcp(out.s_tag, v)),
            _ => {}
        }
    }
    // A bidirectional filter is written with the addresses of uplink frames; downlink frames have them swapped.
    if !uplink && filter.direction == FilterDirection::Bidirectional {
        std::mem::swap(&mut addresses.source, &mut addresses.destination);
        std::mem::swap(&mut addresses.upper_source, &mut addresses.upper_destination);
    }
    if addresses != MacAddress::default() {
        out.mac_addresses.push(addresses);
    }
    if filter.components.iter().any(|c| !is_ethernet(c) && *c != C::MatchAll) {
        out.sdf_filters.push(sdf(filter));
    }
    out
}

/// The three octets of TS 29.244 §8.2.94: flags VID, DEI, PCP; PCP, DEI and the upper VID; the lower VID.
fn with_vid(tag: Option<VlanTag>, [high, low]: [u8; 2]) -> VlanTag {
    let [flags, head, _] = tag.map_or([0; 3], |t| t.0);
    VlanTag([flags | 0x04, head & 0x0f | (high & 0x0f) << 4, low])
}

fn with_pcp(tag: Option<VlanTag>, pcp_dei: u8) -> VlanTag {
    let [flags, head, low] = tag.map_or([0; 3], |t| t.0);
    let (pcp, dei) = (pcp_dei >> 1 & 0x07, pcp_dei & 0x01);
    VlanTag([flags | 0x03, head & 0xf0 | dei << 3 | pcp, low])
}

/// A filter as text, as [`parse`] reads it.
pub(crate) fn text(filter: &PacketFilter) -> String {
    let mut out = match filter.direction {
        FilterDirection::Uplink => "uplink ".to_owned(),
        FilterDirection::Downlink => "downlink ".to_owned(),
        FilterDirection::Bidirectional => String::new(),
    };
    if filter.components.iter().any(is_ethernet) {
        out.push_str("ethernet");
        for c in &filter.components {
            let _ = match c {
                C::DestinationMac(m) => write!(out, " destination {}", mac_text(m)),
                C::SourceMac(m) => write!(out, " source {}", mac_text(m)),
                C::Ethertype(t) => write!(out, " type {:04x}", u16::from_be_bytes(*t)),
                C::CTagVid(v) => write!(out, " vlan {}", u16::from_be_bytes(*v) & 0x0fff),
                _ => write!(out, " …"),
            };
        }
        return out;
    }
    out.push_str(sdf(filter).flow_description.as_deref().unwrap_or_default());
    out
}

fn mac_text(m: &[u8; 6]) -> String {
    m.map(|o| format!("{o:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.212 §5.4.2
    fn flow_descriptions_are_read_and_written() {
        for (given, written) in [
            ("permit out 17 from 8.8.0.0/16 53 to assigned 4000-4010", None),
            ("uplink permit out 6 from 2001:db8::/32 443 to assigned", None),
            ("permit out ip from any to assigned", None),
            ("permit in 17 from any 4000 to 10.0.0.1", Some("permit out 17 from 10.0.0.1 to assigned 4000")),
            ("ethernet destination 01:1b:19:00:00:00 type 88f7 vlan 5", None),
        ] {
            let filter = parse(given).unwrap();
            assert_eq!(text(&filter), written.unwrap_or(given));
        }
    }

    #[test]
    fn an_invalid_filter_is_refused() {
        for bad in [
            "",
            "permit",
            "deny out ip from any to any",
            "permit out 300 from any to any",
            "permit out ip from 1.2.3.4/33 to any",
            "permit out 17 from any 70000 to any",
            "permit out 17 from any 20-10 to any",
            "permit out 1 from any 20 to any",
            "permit out ip from 1.2.3.4 to 2001:db8::1",
            "permit out ip from any to any 5 6",
            "ethernet",
            "ethernet type",
            "ethernet vlan 4095",
            "ethernet source 01:02:03",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    fn filter(components: Vec<C>) -> PacketFilter {
        PacketFilter { id: 1, direction: FilterDirection::Bidirectional, components }
    }

    #[test] // TS 24.501 §6.3.2.4 c: components that exclude each other
    fn a_filter_that_never_matches_is_a_semantic_error() {
        let v4 = C::Ipv4Remote([10, 0, 0, 0, 255, 0, 0, 0]);
        let semantic = Err(SmCause::SemanticErrorsInPacketFilters);
        for (components, session_type) in [
            (vec![v4, C::Ipv6Local([0; 17])], PduSessionType::Ipv4v6),
            (vec![v4], PduSessionType::Ipv6),
            (vec![v4], PduSessionType::Unstructured),
            (vec![C::MatchAll, v4], PduSessionType::Ipv4),
            (vec![C::Protocol([1]), C::LocalPort([0, 80])], PduSessionType::Ipv4),
            (vec![C::Spi([0; 4]), C::LocalPort([0, 80])], PduSessionType::Ipv4),
            (vec![C::Ethertype([8, 6])], PduSessionType::Ipv4),
            (vec![C::Ethertype([8, 6]), v4], PduSessionType::Ethernet),
        ] {
            assert_eq!(judge(&filter(components.clone()), session_type), semantic, "{components:?}");
        }
    }

    #[test] // TS 24.501 §6.3.2.4 d
    fn a_filter_that_is_not_well_formed_is_a_syntactical_error() {
        let syntactical = Err(SmCause::SyntacticalErrorInPacketFilters);
        for components in [
            vec![],
            vec![C::LocalPort([0, 1]), C::LocalPort([0, 2])],
            vec![C::MatchAll, C::MatchAll],
            vec![C::LocalPorts([0, 9, 0, 1])],
            vec![C::Ipv4Remote([10, 0, 0, 0, 255, 0, 255, 0])],
        ] {
            assert_eq!(
                judge(&filter(components.clone()), PduSessionType::Ipv4),
                syntactical,
                "{components:?}"
            );
        }
        assert_eq!(judge(&filter(vec![C::MatchAll]), PduSessionType::Ipv4), Ok(()));
    }

    #[test]
    fn masks_are_prefixes() {
        assert_eq!(prefix_of([10, 0, 0, 0, 255, 0, 0, 0]).map(|p| p.1), Some(8));
        assert_eq!(prefix_of([0; 8]).map(|p| p.1), Some(0));
        assert_eq!(prefix_of([1, 2, 3, 4, 255, 255, 255, 255]).map(|p| p.1), Some(32));
        assert_eq!(prefix_of([1, 2, 3, 4, 0, 255, 0, 0]), None);
    }
}
