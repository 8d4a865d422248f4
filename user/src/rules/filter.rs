//! Packet filters: the IPFilterRule of a flow description, and what else an SDF Filter compares.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_classifier::{AddressPrefix, Pdi};
use whimbrel_pfcp::ie::SdfFilter;

use super::frame::FrameFilter;
use crate::limits::PORT_RANGES_MAX;
use crate::state::{Stored, StoredReader, stored};

/// What a filter looks at in a packet: fields of the inner headers, seen from the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The far end's address.
    pub(crate) remote: IpAddr,
    /// The UE's address.
    pub(crate) local: IpAddr,
    /// Ports of far end and UE; `None` where the packet shows none (a later fragment, another protocol).
    pub(crate) ports: Option<(u16, u16)>,
    /// Protocol behind IP and its extension headers.
    pub(crate) protocol: u8,
    /// Type of service or traffic class.
    pub(crate) tos: u8,
    /// IPv6 flow label.
    pub(crate) flow_label: u32,
    /// IPsec security parameter index.
    pub(crate) spi: Option<u32>,
}

/// Addresses that a filter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Net {
    Any,
    V4 { address: u32, mask: u32 },
    V6 { address: u128, mask: u128 },
}

impl Net {
    fn holds(self, a: IpAddr) -> bool {
        match (self, a) {
            (Self::Any, _) => true,
            (Self::V4 { address, mask }, IpAddr::V4(a)) => a.to_bits() & mask == address,
            (Self::V6 { address, mask }, IpAddr::V6(a)) => a.to_bits() & mask == address,
            _ => false,
        }
    }

    /// Whether it accepts all that `other` does.
    fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::V4 { address, mask }, Self::V4 { address: a, mask: m }) => {
                m & mask == mask && a & mask == address
            }
            (Self::V6 { address, mask }, Self::V6 { address: a, mask: m }) => {
                m & mask == mask && a & mask == address
            }
            _ => false,
        }
    }

    /// As a prefix, which it is by its form.
    fn prefix(self) -> Option<AddressPrefix> {
        match self {
            Self::Any => None,
            Self::V4 { address, mask } => Some(AddressPrefix {
                address: Ipv4Addr::from_bits(address).into(),
                length: mask.count_ones() as u8,
            }),
            Self::V6 { address, mask } => Some(AddressPrefix {
                address: Ipv6Addr::from_bits(address).into(),
                length: mask.count_ones() as u8,
            }),
        }
    }

    fn parse(s: &str) -> Option<Self> {
        if s == "any" || s == "assigned" {
            return Some(Self::Any);
        }
        let (address, prefix) = match s.split_once('/') {
            Some((a, p)) => (a, Some(p.parse::<u32>().ok()?)),
            None => (s, None),
        };
        if let Ok(a) = address.parse::<Ipv4Addr>() {
            let prefix = prefix.unwrap_or(32);
            let mask = u32::MAX.checked_shl(32u32.checked_sub(prefix)?).unwrap_or(0);
            return Some(Self::V4 { address: a.to_bits() & mask, mask });
        }
        let a = address.parse::<Ipv6Addr>().ok()?;
        let mask = u128::MAX.checked_shl(128u32.checked_sub(prefix.unwrap_or(128))?).unwrap_or(0);
        Some(Self::V6 { address: a.to_bits() & mask, mask })
    }
}

/// Ports that a filter accepts; none listed accepts all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ports(Box<[(u16, u16)]>);

impl Ports {
    fn parse(s: &str) -> Option<Self> {
        let range = |r: &str| match r.split_once('-') {
            Some((a, b)) => Some((a.parse().ok()?, b.parse().ok()?)),
            None => r.parse().ok().map(|p| (p, p)),
        };
        let ranges: Vec<_> = s.split(',').map(range).collect::<Option<_>>()?;
        (ranges.len() <= PORT_RANGES_MAX).then(|| Self(ranges.into()))
    }

    /// The ranges; `None` is any port, or no port at all.
    fn ranges(&self) -> impl Iterator<Item = Option<(u16, u16)>> {
        let any = self.0.is_empty().then_some(None);
        self.0.iter().copied().map(Some).chain(any)
    }

    /// Whether they accept all that `other` do. A range that two of ours cover together counts as not covered.
    fn cover(&self, other: &Self) -> bool {
        let within = |(from, to): &(u16, u16)| self.0.iter().any(|(a, b)| a <= from && to <= b);
        self.0.is_empty() || !other.0.is_empty() && other.0.iter().all(within)
    }

    fn hold(&self, port: u16) -> bool {
        self.0.is_empty() || self.0.iter().any(|(a, b)| (*a..=*b).contains(&port))
    }
}

impl Stored for Net {
    fn store(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Any => 0u8.store(to),
            Self::V4 { address, mask } => (4u8, (address, mask)).store(to),
            Self::V6 { address, mask } => (6u8, (address, mask)).store(to),
        }
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        match u8::restore(from)? {
            0 => Some(Self::Any),
            4 => Stored::restore(from).map(|(address, mask)| Self::V4 { address, mask }),
            6 => Stored::restore(from).map(|(address, mask)| Self::V6 { address, mask }),
            _ => None,
        }
    }
}

impl Stored for Ports {
    fn store(&self, to: &mut Vec<u8>) {
        self.0.store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        Stored::restore(from).map(Self)
    }
}

stored!(PdiFilter { remote, local, protocol, remote_ports, local_ports, tos, flow_label, spi, id, frame });

/// One packet filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PdiFilter {
    remote: Net,
    local: Net,
    protocol: Option<u8>,
    remote_ports: Ports,
    local_ports: Ports,
    tos: Option<[u8; 2]>,
    flow_label: Option<u32>,
    spi: Option<u32>,
    /// Name of the filter (BID), by which another PDR may refer to it.
    pub(crate) id: Option<u32>,
    /// What it says of a frame; then all else is in there.
    pub(crate) frame: Option<Box<FrameFilter>>,
}

impl PdiFilter {
    /// From the element. `None` if the flow description is not the form of TS 29.212 §5.4.2: `permit`, a
    /// direction, a protocol, `from` and `to`; options behind them do not occur in the 3GPP profile and are
    /// refused.
    pub(crate) fn new(sdf: &SdfFilter) -> Option<Self> {
        let mut f = Self {
            remote: Net::Any,
            local: Net::Any,
            protocol: None,
            remote_ports: Ports::default(),
            local_ports: Ports::default(),
            tos: sdf.tos_traffic_class,
            flow_label: sdf.flow_label,
            spi: sdf.security_parameter_index,
            id: sdf.filter_id,
            frame: None,
        };
        if let Some(d) = &sdf.flow_description {
            f.read(d)?;
        }
        Some(f)
    }

    /// A filter of frames.
    pub(crate) fn of_frames(frame: FrameFilter) -> Option<Self> {
        Some(Self { frame: Some(Box::new(frame)), ..Self::new(&SdfFilter::default())? })
    }

    fn read(&mut self, description: &str) -> Option<()> {
        let mut words = description.split_ascii_whitespace().peekable();
        (words.next()? == "permit").then_some(())?;
        let out = match words.next()? {
            "out" => true,
            "in" => false,
            _ => return None,
        };
        self.protocol = match words.next()? {
            "ip" => None,
            p => Some(p.parse().ok()?),
        };
        (words.next()? == "from").then_some(())?;
        let source = Net::parse(words.next()?)?;
        let mut source_ports = Ports::default();
        if let Some(p) = words.next_if(|w| *w != "to") {
            source_ports = Ports::parse(p)?;
        }
        (words.next()? == "to").then_some(())?;
        let destination = Net::parse(words.next()?)?;
        let mut destination_ports = Ports::default();
        if let Some(p) = words.next() {
            destination_ports = Ports::parse(p)?;
        }
        words.next().is_none().then_some(())?;
        // "out" is towards the UE: its source is the far end (TS 29.212 §5.4.2).
        let (far, near) = ((source, source_ports), (destination, destination_ports));
        let ((remote, remote_ports), (local, local_ports)) = if out { (far, near) } else { (near, far) };
        (self.remote, self.remote_ports, self.local, self.local_ports) =
            (remote, remote_ports, local, local_ports);
        Some(())
    }

    /// The conditions that [`Self::matches`] compares, each with a range of ports of either end, and what else is asked
    /// for.
    pub(crate) fn conditions(&self, base: Pdi) -> impl Iterator<Item = Pdi> {
        let pdi = Pdi {
            remote: self.remote.prefix(),
            local: self.local.prefix(),
            protocol: self.protocol,
            tos: self.tos.map(|[value, mask]| (value, mask)),
            flow_label: self.flow_label,
            spi: self.spi,
            ..base
        };
        let local_ports = || self.local_ports.ranges();
        let pairs = self
            .remote_ports
            .ranges()
            .flat_map(move |remote| local_ports().map(move |local| (remote, local)));
        pairs.map(move |(remote_ports, local_ports)| Pdi { remote_ports, local_ports, ..pdi })
    }

    /// Whether it accepts all that `other` does, as far as flow descriptions go.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.remote.covers(other.remote)
            && self.local.covers(other.local)
            && (self.protocol.is_none() || self.protocol == other.protocol)
            && self.remote_ports.cover(&other.remote_ports)
            && self.local_ports.cover(&other.local_ports)
    }

    /// The UEs' addresses that it accepts, and how many of their bits count; `None` if all.
    pub(crate) fn local_network(&self) -> Option<(IpAddr, u8)> {
        self.local.prefix().map(|p| (p.address, p.length))
    }

    pub(crate) fn compares_ports(&self) -> bool {
        !self.remote_ports.0.is_empty() || !self.local_ports.0.is_empty()
    }

    pub(crate) fn compares_tos(&self) -> bool {
        self.tos.is_some()
    }

    pub(crate) fn compares_flow_label(&self) -> bool {
        self.flow_label.is_some()
    }

    pub(crate) fn compares_spi(&self) -> bool {
        self.spi.is_some()
    }

    /// Whether it accepts a flow, whatever its ports are.
    pub(crate) fn matches_but_ports(&self, flow: &Flow) -> bool {
        self.protocol.is_none_or(|p| p == flow.protocol)
            && self.remote.holds(flow.remote)
            && self.local.holds(flow.local)
    }

    pub(crate) fn matches(&self, flow: &Flow) -> bool {
        let ports = match flow.ports {
            Some((remote, local)) => self.remote_ports.hold(remote) && self.local_ports.hold(local),
            None => self.remote_ports.0.is_empty() && self.local_ports.0.is_empty(),
        };
        ports
            && self.protocol.is_none_or(|p| p == flow.protocol)
            && self.remote.holds(flow.remote)
            && self.local.holds(flow.local)
            && self.tos.is_none_or(|[value, mask]| flow.tos & mask == value & mask)
            && self.flow_label.is_none_or(|l| l == flow.flow_label)
            && self.spi.is_none_or(|s| flow.spi == Some(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(remote: &str, remote_port: u16, local_port: u16, protocol: u8) -> Flow {
        Flow {
            remote: remote.parse().unwrap(),
            local: "10.45.0.2".parse().unwrap(),
            ports: Some((remote_port, local_port)),
            protocol,
            tos: 0xb8,
            flow_label: 5,
            spi: None,
        }
    }

    fn filter(d: &str) -> PdiFilter {
        PdiFilter::new(&SdfFilter::flow(d)).unwrap()
    }

    #[test] // TS 29.212 §5.4.2
    fn flow_descriptions_match_from_the_ues_side() {
        let f = filter("permit out 17 from 8.8.0.0/16 53,1000-2000 to assigned 4000");
        assert!(f.matches(&flow("8.8.8.8", 53, 4000, 17)));
        assert!(f.matches(&flow("8.8.8.8", 1500, 4000, 17)));
        assert!(!f.matches(&flow("8.8.8.8", 54, 4000, 17)));
        assert!(!f.matches(&flow("8.9.8.8", 53, 4000, 17)));
        assert!(!f.matches(&flow("8.8.8.8", 53, 4001, 17)));
        assert!(!f.matches(&flow("8.8.8.8", 53, 4000, 6)));
        assert!(!f.matches(&Flow { ports: None, ..flow("8.8.8.8", 53, 4000, 17) }), "a later fragment");
        let f = filter("permit in 6 from any 4000 to 2001:db8::/32 443");
        let mut v6 = flow("2001:db8::1", 443, 4000, 6);
        assert!(f.matches(&v6));
        v6.remote = "2001:db9::1".parse().unwrap();
        assert!(!f.matches(&v6));
        assert!(filter("permit out ip from any to assigned").matches(&flow("1.1.1.1", 1, 2, 1)));
    }

    #[test] // TS 29.244 §8.2.5
    fn marking_and_label_are_compared_under_their_masks() {
        let sdf =
            SdfFilter { tos_traffic_class: Some([0xb9, 0xfc]), flow_label: Some(5), ..SdfFilter::default() };
        assert!(PdiFilter::new(&sdf).unwrap().matches(&flow("1.1.1.1", 1, 2, 17)));
        let sdf = SdfFilter { flow_label: Some(6), ..sdf };
        assert!(!PdiFilter::new(&sdf).unwrap().matches(&flow("1.1.1.1", 1, 2, 17)));
    }

    #[test]
    fn what_is_not_a_flow_description_is_refused() {
        for bad in [
            "",
            "permit",
            "deny out ip from any to any",
            "permit out ip from any",
            "permit out 300 from any to any",
            "permit out ip from 1.2.3.4/33 to any",
            "permit out ip from any 70000 to any",
            "permit out ip from any 1,2,3,4,5,6,7,8,9 to any",
            "permit out ip from any to any established",
            "permit out ip from any to any 5 6",
        ] {
            assert_eq!(PdiFilter::new(&SdfFilter::flow(bad)), None, "{bad}");
        }
    }
}
