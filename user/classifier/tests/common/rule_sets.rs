//! Rule sets and packets for tests and measurements, of a seed.
//!
//! The mixes follow what ClassBench (Taylor and Turner, 2007) found in access lists, firewalls and IP chains: lengths of
//! prefixes, clustered addresses, kinds of port ranges, protocols. The shares are our own round numbers. The PDI mix is
//! of rules as an SMF sends them, over all twenty fields. The last three are what an adversary, or a paper's best and worst
//! case, would install.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_classifier::{AddressPrefix, Fields, Pdi, Rank, Rule};

/// A generator of numbers (splitmix64): small, and the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Of a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below a bound, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// One of a list, which is not empty.
    pub(crate) fn one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    fn sometimes<T>(&mut self, share: u64, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.percent(share).then(|| value(self))
    }
}

/// Kinds of rule sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// An access list over IPv4: long prefixes, exact destination ports.
    AccessList,
    /// A firewall over IPv4: wildcards, ranges of ports.
    Firewall,
    /// IP chains over IPv4: some of both.
    IpChains,
    /// An access list over IPv6.
    AccessList6,
    /// PDRs of sessions, over all twenty fields, IPv4 and IPv6.
    Pdi,
    /// All rules of one tuple: the best case of tuple space search.
    OneTuple,
    /// Each rule of a tuple of its own, by lengths of prefixes and what else it asks for: the worst case.
    TupleEach,
    /// Ranges of ports that overlap, for everyone and for one address: no hash separates them.
    Ranges,
}

impl Mix {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::AccessList,
        Self::Firewall,
        Self::IpChains,
        Self::AccessList6,
        Self::Pdi,
        Self::OneTuple,
        Self::TupleEach,
        Self::Ranges,
    ];

    /// A name for tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AccessList => "acl",
            Self::Firewall => "fw",
            Self::IpChains => "ipc",
            Self::AccessList6 => "acl6",
            Self::Pdi => "pdi",
            Self::OneTuple => "one-tuple",
            Self::TupleEach => "tuple-each",
            Self::Ranges => "ranges",
        }
    }
}

/// So many PDIs of a mix, and what they are drawn from.
pub(crate) fn pdis(mix: Mix, count: usize, seed: u64) -> Vec<Pdi> {
    let mut r = Random::new(seed);
    let sites = Sites::new(count, &mut r);
    (0..count).map(|n| sites.pdi(mix, n, &mut r)).collect()
}

/// Rules of PDIs: the first has the lowest precedence value and its number is its identity.
pub(crate) fn rules(pdis: &[Pdi]) -> Vec<Rule> {
    let ranks = (0..).map(|n| Rank::new(n, n));
    ranks.zip(pdis).filter_map(|(rank, pdi)| Rule::new(rank, pdi)).collect()
}

/// A packet that a PDI accepts; what it does not ask for is random.
pub(crate) fn packet(pdi: &Pdi, r: &mut Random) -> Fields {
    let asked = [pdi.remote, pdi.local, pdi.ue].into_iter().flatten().next();
    let ipv6 = asked.map_or_else(|| r.percent(30), |p| p.address.is_ipv6());
    let local = match (pdi.local, pdi.ue) {
        (Some(a), Some(b)) => Some(if a.length > b.length { a } else { b }),
        (a, b) => a.or(b),
    };
    let port = |range: Option<(u16, u16)>, r: &mut Random| {
        let (from, to) = range.unwrap_or((0, u16::MAX));
        from + r.below(u64::from(to - from) + 1) as u16
    };
    let has_ports = pdi.remote_ports.is_some() || pdi.local_ports.is_some() || r.percent(95);
    let ports = (port(pdi.remote_ports, r), port(pdi.local_ports, r));
    Fields {
        remote: within(pdi.remote, ipv6, r),
        local: within(local, ipv6, r),
        ports: has_ports.then_some(ports),
        protocol: pdi.protocol.unwrap_or_else(|| r.one(&PROTOCOLS)),
        tos: pdi.tos.map_or(0, |(value, mask)| value & mask) | r.below(4) as u8 & !pdi.tos.map_or(0, |t| t.1),
        flow_label: pdi.flow_label.unwrap_or(0),
        spi: pdi.spi.or_else(|| r.sometimes(5, |r| r.bits() as u32)),
        teid: pdi.teid.or_else(|| r.sometimes(50, |r| r.below(1 << 20) as u32)),
        f_teid_address: pdi.f_teid_address.unwrap_or_else(|| r.below(3) as u16),
        qfi: pdi.qfi.or_else(|| r.sometimes(50, |r| r.below(64) as u8)),
        source_interface: pdi.source_interface.unwrap_or_else(|| r.below(3) as u8),
        interface_type: pdi.interface_type.or_else(|| r.sometimes(50, |r| r.below(8) as u8)),
        network_instance: pdi.network_instance.unwrap_or_else(|| r.below(4) as u16),
        traffic_endpoint: pdi.traffic_endpoint.or_else(|| r.sometimes(50, |r| r.below(8) as u8)),
        application: pdi.application.or_else(|| r.sometimes(20, |r| r.below(100) as u32)),
    }
}

/// A packet of no rule in particular, near the addresses that rules are about.
pub(crate) fn stray(pdis: &[Pdi], r: &mut Random) -> Fields {
    let (a, b) = (r.one(pdis), r.one(pdis));
    Fields { remote: packet(&a, r).remote, ..packet(&Pdi { remote: None, ..b }, r) }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;
const PROTOCOLS: [u8; 4] = [TCP, UDP, 1, ESP];

/// An address of a prefix.
fn within(prefix: Option<AddressPrefix>, ipv6: bool, r: &mut Random) -> IpAddr {
    match prefix.map(|p| (p.address, p.length)) {
        Some((IpAddr::V4(a), length)) => {
            let free = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv4Addr::from_bits(a.to_bits() & !free | r.bits() as u32 & free).into()
        }
        Some((IpAddr::V6(a), length)) => {
            let free = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            let bits = u128::from(r.bits()) << 64 | u128::from(r.bits());
            Ipv6Addr::from_bits(a.to_bits() & !free | bits & free).into()
        }
        None if ipv6 => Ipv6Addr::from_bits(0x2001 << 112 | u128::from(r.bits())).into(),
        None => Ipv4Addr::from_bits(r.bits() as u32).into(),
    }
}

/// Networks and services that the rules of a set share.
struct Sites {
    networks: Vec<u32>,
    services: Vec<u16>,
    sessions: Vec<u32>,
}

/// Lengths of IPv4 prefixes, each as often as it stands here; zero is any address.
struct Lengths {
    remote: &'static [u8],
    local: &'static [u8],
}

const ACL: Lengths = Lengths {
    remote: &[0, 0, 8, 16, 16, 24, 24, 24, 24, 28, 30, 32, 32, 32, 32, 32, 32, 32, 32, 32],
    local: &[0, 16, 16, 24, 24, 24, 24, 24, 24, 28, 28, 30, 32, 32, 32, 32, 32, 32, 32, 32],
};
const FIREWALL: Lengths = Lengths {
    remote: &[0, 0, 0, 0, 0, 0, 8, 16, 16, 24, 24, 24, 28, 32, 32, 32, 32, 32, 32, 32],
    local: &[0, 0, 0, 0, 0, 16, 16, 24, 24, 24, 24, 28, 32, 32, 32, 32, 32, 32, 32, 32],
};
const CHAINS: Lengths = Lengths {
    remote: &[0, 0, 0, 8, 16, 16, 24, 24, 24, 27, 28, 29, 30, 32, 32, 32, 32, 32, 32, 32],
    local: &[0, 0, 16, 16, 20, 24, 24, 24, 24, 27, 28, 29, 30, 32, 32, 32, 32, 32, 32, 32],
};

impl Sites {
    fn new(count: usize, r: &mut Random) -> Self {
        let some = |n: usize| 0..n.max(4);
        Self {
            networks: some(count / 5).map(|_| r.bits() as u32).collect(),
            services: some(100).map(|_| r.below(10_000) as u16).collect(),
            sessions: some(count / 6).map(|_| r.below(1 << 20) as u32).collect(),
        }
    }

    fn pdi(&self, mix: Mix, n: usize, r: &mut Random) -> Pdi {
        match mix {
            Mix::AccessList => self.five_tuple(&ACL, [2, 55], r),
            Mix::Firewall => self.five_tuple(&FIREWALL, [25, 45], r),
            Mix::IpChains => self.five_tuple(&CHAINS, [12, 50], r),
            Mix::AccessList6 => self.five_tuple_6(r),
            Mix::Pdi => self.session_rule(r),
            Mix::OneTuple => self.exact(r),
            Mix::TupleEach => self.tuple(n, r),
            Mix::Ranges => self.ranges(n, r),
        }
    }

    /// An IPv4 prefix of one of the networks.
    fn prefix(&self, lengths: &[u8], r: &mut Random) -> Option<AddressPrefix> {
        let length = r.one(lengths);
        let address = r.one(&self.networks) ^ r.bits() as u32 & 0x3ff;
        (length != 0).then(|| AddressPrefix { address: Ipv4Addr::from_bits(address).into(), length })
    }

    /// `ports`: how many of a hundred rules ask for the remote port, and for an exact local one.
    fn five_tuple(&self, lengths: &Lengths, ports: [u64; 2], r: &mut Random) -> Pdi {
        let remote = self.prefix(lengths.remote, r);
        let mut local = self.prefix(lengths.local, r);
        if remote.is_none_or(|p| p.length < 16) && local.is_none_or(|p| p.length < 16) && r.percent(95) {
            // Few rules are for everyone.
            local = self.prefix(&[24, 32], r);
        }
        let [remote_ports, local_ports] = ports;
        Pdi {
            remote,
            local,
            remote_ports: r.sometimes(remote_ports, |r| self.port_range(r)),
            local_ports: if r.percent(local_ports) {
                let port = r.one(&self.services);
                Some((port, port))
            } else {
                r.sometimes(40, |r| self.port_range(r))
            },
            protocol: r.one(&[
                Some(TCP),
                Some(TCP),
                Some(TCP),
                Some(TCP),
                Some(UDP),
                Some(UDP),
                Some(1),
                None,
            ]),
            ..Pdi::default()
        }
    }

    fn port_range(&self, r: &mut Random) -> (u16, u16) {
        let from = r.one(&self.services);
        match r.below(4) {
            0 => (1024, u16::MAX),
            1 => (0, 1023),
            2 => (from, from),
            _ => (from, from.saturating_add(r.below(2_000) as u16)),
        }
    }

    /// An IPv6 address of one of the networks: an operator's 32 bits, then the network, then few hosts.
    fn ipv6(&self, r: &mut Random) -> Ipv6Addr {
        let network = u128::from(r.one(&self.networks));
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | network << 64 | u128::from(r.below(16)))
    }

    fn five_tuple_6(&self, r: &mut Random) -> Pdi {
        let mut prefix = |lengths: &[u8]| {
            let length = r.one(lengths);
            (length != 0).then(|| AddressPrefix { address: self.ipv6(r).into(), length })
        };
        let remote = prefix(&[0, 48, 56, 64, 64, 64, 128, 128]);
        let local = prefix(&[48, 56, 64, 64, 64, 128, 128, 128]);
        Pdi { remote, local, ue: None, ..self.five_tuple(&ACL, [2, 55], r) }
    }

    /// A rule of a session, of either direction.
    fn session_rule(&self, r: &mut Random) -> Pdi {
        let session = r.one(&self.sessions);
        let ipv6 = session.is_multiple_of(4);
        let ue = if ipv6 {
            AddressPrefix {
                address: Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(session) << 64).into(),
                length: 64,
            }
        } else {
            AddressPrefix { address: Ipv4Addr::from_bits(10 << 24 | session).into(), length: 32 }
        };
        let uplink = r.percent(50);
        let flow = r.sometimes(65, |r| self.five_tuple(&FIREWALL, [50, 20], r)).unwrap_or_default();
        let remote = if ipv6 {
            flow.remote.map(|_| AddressPrefix { address: self.ipv6(r).into(), length: 64 })
        } else {
            flow.remote
        };
        let spi = r.sometimes(4, |r| r.below(1_000) as u32);
        Pdi {
            remote,
            local: None,
            ue: (!uplink || r.percent(60)).then_some(ue),
            teid: uplink.then_some(session),
            f_teid_address: uplink.then(|| 1 + (session % 2) as u16),
            qfi: if uplink { r.sometimes(80, |r| 1 + r.below(8) as u8) } else { None },
            source_interface: Some(u8::from(!uplink)),
            interface_type: r.sometimes(40, |r| r.below(4) as u8),
            network_instance: Some(1 + (session % 3) as u16),
            traffic_endpoint: r.sometimes(20, |r| r.below(4) as u8),
            application: r.sometimes(15, |r| r.below(50) as u32),
            tos: r.sometimes(15, |r| (4 * r.below(64) as u8, 0xfc)),
            flow_label: if ipv6 { r.sometimes(15, |r| r.below(8) as u32) } else { None },
            protocol: if spi.is_some() { Some(ESP) } else { flow.protocol },
            spi,
            ..flow
        }
    }

    /// Rules in which every field is exact.
    fn exact(&self, r: &mut Random) -> Pdi {
        let mut end = || AddressPrefix { address: Ipv4Addr::from_bits(r.bits() as u32).into(), length: 32 };
        let (remote, local) = (end(), end());
        let port = r.one(&self.services);
        let other = r.bits() as u16;
        Pdi {
            remote: Some(remote),
            local: Some(local),
            remote_ports: Some((other, other)),
            local_ports: Some((port, port)),
            protocol: Some(r.one(&[TCP, UDP])),
            ..Pdi::default()
        }
    }

    /// A tuple for each number below 16,384.
    fn tuple(&self, n: usize, r: &mut Random) -> Pdi {
        let prefix = |n: usize, r: &mut Random| AddressPrefix {
            address: Ipv4Addr::from_bits(r.bits() as u32).into(),
            length: 1 + (n % 32) as u8,
        };
        let exact = self.exact(r);
        let bit = |n: usize| n & 1 != 0;
        Pdi {
            remote: Some(prefix(n, r)),
            local: Some(prefix(n >> 5, r)),
            remote_ports: exact.remote_ports.filter(|_| bit(n >> 10)),
            local_ports: exact.local_ports.filter(|_| bit(n >> 11)),
            protocol: exact.protocol.filter(|_| bit(n >> 12)),
            tos: bit(n >> 13).then(|| (4 * r.below(64) as u8, 0xfc)),
            ..Pdi::default()
        }
    }

    /// Every second for one address, the others for everyone.
    fn ranges(&self, n: usize, r: &mut Random) -> Pdi {
        let range = |r: &mut Random| {
            let (a, b) = (r.bits() as u16, r.bits() as u16);
            Some((a.min(b), a.max(b).max(a.min(b) | 1)))
        };
        let one = AddressPrefix { address: Ipv4Addr::from_bits(self.networks[0]).into(), length: 32 };
        Pdi {
            remote: n.is_multiple_of(2).then_some(one),
            remote_ports: range(r),
            local_ports: range(r),
            ..Pdi::default()
        }
    }
}
