//! Which QoS flow a packet belongs to, by the UE's QoS rules: TS 23.501 §5.7.1.5, §5.7.6; TS 24.501 §9.11.4.13.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_ids::Qfi;
use whimbrel_nas::ie::{FilterComponent, FilterDirection, PacketFilter, QosRule, RuleOperation};

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficDirection {
    Up,
    Down,
}

/// The flow of the first rule, by precedence, with a matching filter; `None` if there is none: the packet is not sent (TS
/// 23.501 §5.7.1.5).
pub(super) fn flow_of(
    rules: &[QosRule],
    ethernet: bool,
    way: TrafficDirection,
    packet: &[u8],
) -> Option<Qfi> {
    let packet =
        if ethernet { FilterFields::of_frame(packet, way) } else { FilterFields::of_ip(packet, way) };
    let applies = |f: &PacketFilter| match f.direction {
        FilterDirection::Bidirectional => true,
        FilterDirection::Uplink => way == TrafficDirection::Up,
        FilterDirection::Downlink => way == TrafficDirection::Down,
    };
    let takes = |rule: &&QosRule| match &rule.operation {
        RuleOperation::Create(filters) => filters.iter().any(|f| applies(f) && packet.fits(f)),
        _ => false,
    };
    let taking = rules.iter().filter(takes).filter_map(|r| r.binding);
    taking.min_by_key(|b| b.precedence).map(|b| b.qfi)
}

/// The packet fields that filters match. "Local" is the UE's side.
#[derive(Debug, Default)]
struct FilterFields {
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
    /// Protocol, or the next header behind the fixed header of IPv6.
    protocol: Option<u8>,
    local_port: Option<u16>,
    remote_port: Option<u16>,
    spi: Option<[u8; 4]>,
    traffic_class: Option<u8>,
    flow_label: Option<[u8; 3]>,
    destination_mac: Option<[u8; 6]>,
    source_mac: Option<[u8; 6]>,
    ethertype: Option<[u8; 2]>,
    c_tag: Option<u16>,
    s_tag: Option<u16>,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;

fn array<const N: usize>(octets: &[u8], at: usize) -> Option<[u8; N]> {
    octets.get(at..)?.first_chunk().copied()
}

impl FilterFields {
    fn of_ip(octets: &[u8], way: TrafficDirection) -> Self {
        let mut p = Self::default();
        p.read_ip(octets, way);
        p
    }

    /// IEEE 802.3, with up to two tags of IEEE 802.1Q.
    fn of_frame(octets: &[u8], way: TrafficDirection) -> Self {
        let mut p =
            Self { destination_mac: array(octets, 0), source_mac: array(octets, 6), ..Self::default() };
        let mut at = 12;
        while let Some(kind @ ([0x81, 0x00] | [0x88, 0xa8])) = array::<2>(octets, at) {
            let tag = array(octets, at + 2).map(u16::from_be_bytes);
            if kind == [0x81, 0x00] {
                p.c_tag = tag;
            } else {
                p.s_tag = tag;
            }
            at += 4;
        }
        p.ethertype = array(octets, at);
        if matches!(p.ethertype, Some([0x08, 0x00] | [0x86, 0xdd])) {
            p.read_ip(octets.get(at + 2..).unwrap_or_default(), way);
        }
        p
    }

    fn read_ip(&mut self, o: &[u8], way: TrafficDirection) {
        let (source, destination, payload) = match o.first().map(|o| o >> 4) {
            Some(4) => {
                let header = usize::from(o[0] & 15) * 4;
                self.traffic_class = o.get(1).copied();
                self.protocol = o.get(9).copied();
                // A fragment but the first has no ports.
                let first = array::<2>(o, 6).is_some_and(|[a, b]| a & 0x1f == 0 && b == 0);
                let v4 = |at| array::<4>(o, at).map(|a| IpAddr::V4(Ipv4Addr::from(a)));
                (v4(12), v4(16), if first { o.get(header..) } else { None })
            }
            Some(6) => {
                self.traffic_class = array::<2>(o, 0).map(|[a, b]| a << 4 | b >> 4);
                self.flow_label = array::<3>(o, 1).map(|[a, b, c]| [a & 15, b, c]);
                self.protocol = o.get(6).copied();
                let v6 = |at| array::<16>(o, at).map(|a| IpAddr::V6(Ipv6Addr::from(a)));
                (v6(8), v6(24), o.get(40..))
            }
            _ => return,
        };
        let payload = payload.unwrap_or_default();
        let ports = matches!(self.protocol, Some(TCP | UDP));
        let port = |at| array(payload, at).filter(|_| ports).map(u16::from_be_bytes);
        self.spi = array(payload, 0).filter(|_| self.protocol == Some(ESP));
        let (from, to) = ((source, port(0)), (destination, port(2)));
        let (local, remote) = if way == TrafficDirection::Up { (from, to) } else { (to, from) };
        (self.local, self.local_port) = local;
        (self.remote, self.remote_port) = remote;
    }

    fn fits(&self, filter: &PacketFilter) -> bool {
        !filter.components.is_empty() && filter.components.iter().all(|c| self.has(c))
    }

    fn has(&self, component: &FilterComponent) -> bool {
        use FilterComponent as C;
        let between = |port: Option<u16>, [a, b, c, d]: [u8; 4]| {
            let range = u16::from_be_bytes([a, b])..=u16::from_be_bytes([c, d]);
            port.is_some_and(|p| range.contains(&p))
        };
        let macs = |mac: Option<[u8; 6]>, range: &[u8; 12]| {
            let (low, high) = range.split_at(6);
            mac.is_some_and(|m| (low..=high).contains(&&m[..]))
        };
        let vid =
            |tag: Option<u16>, v: [u8; 2]| tag.map(|t| t & 0x0fff) == Some(u16::from_be_bytes(v) & 0x0fff);
        let priority = |tag: Option<u16>, v: u8| tag.map(|t| (t >> 12) as u8) == Some(v & 15);
        match *component {
            C::MatchAll => true,
            C::Ipv4Remote(v) => in_v4(self.remote, v),
            C::Ipv4Local(v) => in_v4(self.local, v),
            C::Ipv6Remote(v) => in_v6(self.remote, &v),
            C::Ipv6Local(v) => in_v6(self.local, &v),
            C::Protocol([v]) => self.protocol == Some(v),
            C::LocalPort(v) => self.local_port == Some(u16::from_be_bytes(v)),
            C::LocalPorts(v) => between(self.local_port, v),
            C::RemotePort(v) => self.remote_port == Some(u16::from_be_bytes(v)),
            C::RemotePorts(v) => between(self.remote_port, v),
            C::Spi(v) => self.spi == Some(v),
            C::TrafficClass([v, mask]) => self.traffic_class.is_some_and(|t| t & mask == v & mask),
            C::FlowLabel([a, b, c]) => self.flow_label == Some([a & 15, b, c]),
            C::DestinationMac(v) => self.destination_mac == Some(v),
            C::SourceMac(v) => self.source_mac == Some(v),
            C::CTagVid(v) => vid(self.c_tag, v),
            C::STagVid(v) => vid(self.s_tag, v),
            C::CTagPcpDei([v]) => priority(self.c_tag, v),
            C::STagPcpDei([v]) => priority(self.s_tag, v),
            C::Ethertype(v) => self.ethertype == Some(v),
            C::DestinationMacs(v) => macs(self.destination_mac, &v),
            C::SourceMacs(v) => macs(self.source_mac, &v),
        }
    }
}

fn in_v4(address: Option<IpAddr>, v: [u8; 8]) -> bool {
    let [a, b, c, d, mask @ ..] = v;
    let (network, mask) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(mask));
    matches!(address, Some(IpAddr::V4(address)) if address.to_bits() & mask == network & mask)
}

fn in_v6(address: Option<IpAddr>, v: &[u8; 17]) -> bool {
    let (Some(IpAddr::V6(address)), Some((network, &[length]))) = (address, v.split_first_chunk::<16>())
    else {
        return false;
    };
    let mask = u128::MAX.checked_shl(128u32.saturating_sub(length.into())).unwrap_or(0);
    address.to_bits() & mask == u128::from_be_bytes(*network) & mask
}

#[cfg(test)]
mod tests {
    use whimbrel_nas::ie::QosFlowBinding;

    use super::*;

    fn rule(
        id: u8,
        precedence: u8,
        qfi: u8,
        direction: FilterDirection,
        components: &[FilterComponent],
    ) -> QosRule {
        let filter = PacketFilter { id: 1, direction, components: components.to_vec() };
        let qfi = Qfi::new(qfi).unwrap();
        QosRule {
            id,
            operation: RuleOperation::Create(vec![filter]),
            default: false,
            binding: Some(QosFlowBinding { precedence, segregation: false, qfi }),
        }
    }

    /// UDP from 10.45.0.2 port 1000 to 10.45.0.1 port 5001.
    fn udp() -> Vec<u8> {
        let mut p = vec![0x45, 0xb8, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 45, 0, 2, 10, 45, 0, 1];
        p.extend_from_slice(&[0x03, 0xe8, 0x13, 0x89, 0, 12, 0, 0, 1, 2, 3, 4]);
        p
    }

    #[test] // TS 23.501 §5.7.1.5: the rule of the lowest precedence value that takes the packet
    fn rules_by_precedence_and_direction() {
        use FilterComponent as C;
        use FilterDirection::{Bidirectional, Downlink, Uplink};
        let all = rule(1, 255, 1, Bidirectional, &[C::MatchAll]);
        let to = C::Ipv4Remote([10, 45, 0, 1, 255, 255, 255, 255]);
        let port = rule(2, 20, 2, Bidirectional, &[to, C::Protocol([17]), C::RemotePort([0x13, 0x89])]);
        let other = rule(3, 10, 3, Downlink, &[C::LocalPorts([0x03, 0xe0, 0x03, 0xf0])]);
        let marked = rule(4, 5, 4, Uplink, &[C::TrafficClass([0xb8, 0xfc])]);
        let flow = |rules: &[&QosRule], way, packet: &[u8]| {
            let rules: Vec<QosRule> = rules.iter().map(|r| (*r).clone()).collect();
            flow_of(&rules, false, way, packet).map(Qfi::value)
        };
        assert_eq!(flow(&[&all, &port, &other], TrafficDirection::Up, &udp()), Some(2));
        assert_eq!(flow(&[&all, &port, &other, &marked], TrafficDirection::Up, &udp()), Some(4));
        let mut down = udp();
        down[12..20].rotate_left(4);
        down[20..24].rotate_left(2);
        assert_eq!(flow(&[&all, &port, &other, &marked], TrafficDirection::Down, &down), Some(3));
        assert_eq!(flow(&[&all, &port], TrafficDirection::Down, &down), Some(2));
        assert_eq!(flow(&[&port], TrafficDirection::Up, &[0x45]), None);
        assert_eq!(flow(&[&all], TrafficDirection::Up, &[]), Some(1));
        // Behind a fragment but the first there are no ports.
        let mut fragment = udp();
        fragment[7] = 1;
        assert_eq!(flow(&[&all, &port], TrafficDirection::Up, &fragment), Some(1));
    }

    #[test] // TS 23.501 §5.7.6.3
    fn frames_by_tag_type_and_address() {
        use FilterComponent as C;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x81, 0x00, 0x60, 0x07, 0x08, 0x00];
        frame.extend(udp());
        let fits = |components: &[C]| {
            let rules = [rule(1, 1, 5, FilterDirection::Uplink, components)];
            flow_of(&rules, true, TrafficDirection::Up, &frame).is_some()
        };
        assert!(fits(&[C::CTagVid([0, 7]), C::CTagPcpDei([6]), C::Ethertype([8, 0])]));
        assert!(fits(&[C::SourceMac([2, 0, 0, 0, 0, 9]), C::RemotePort([0x13, 0x89])]));
        assert!(fits(&[C::DestinationMacs([2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2])]));
        assert!(!fits(&[C::CTagVid([0, 8])]));
        assert!(!fits(&[C::STagVid([0, 7])]));
    }

    #[test]
    fn prefixes_of_any_length() {
        let address = Some(IpAddr::V6("2001:db8::7".parse().unwrap()));
        let mut v = [0; 17];
        v[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        for (length, fits) in [(0, true), (32, true), (124, true), (126, false), (128, false), (255, false)] {
            v[16] = length;
            assert_eq!(in_v6(address, &v), fits, "/{length}");
        }
        assert!(in_v4(Some(Ipv4Addr::LOCALHOST.into()), [0; 8]));
    }
}
