//! A rule: packet detection information, packed like a [`PacketKey`].

use std::net::IpAddr;

use crate::key::{PacketKey, WORDS, has, has_too, split, word};

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefix {
    /// An address; its bits beyond the length do not matter.
    pub address: IpAddr,
    /// Bits that count: at most 32 of IPv4, 128 of IPv6; more are as these.
    pub length: u8,
}

/// Packet detection information (TS 29.244 §7.5.2.2-2): each field is a condition, or accepts everything.
///
/// These are the twenty fields that a packet can meet: source interface and its type, TEID and address of the local
/// F-TEID, network instance, traffic endpoint, the UE's IPv4 or IPv6 address, application, QoS flow, addresses and
/// ports of both ends, protocol, type of service, security parameter index, flow label, and the version of IP, which an
/// address implies. What else a PDI has (CHOOSE ID, SDF filter ID, lengths) names rules and is met by no packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pdi {
    /// The far end's address.
    pub remote: Option<AddressPrefix>,
    /// The UE's address, by the flow description.
    pub local: Option<AddressPrefix>,
    /// The UE's address, by the UE IP Address.
    pub ue: Option<AddressPrefix>,
    /// The far end's port, from and to.
    pub remote_ports: Option<(u16, u16)>,
    /// The UE's port, from and to.
    pub local_ports: Option<(u16, u16)>,
    /// Protocol number of the IP header.
    pub protocol: Option<u8>,
    /// Value and mask of type of service or traffic class.
    pub tos: Option<(u8, u8)>,
    /// IPv6 flow label.
    pub flow_label: Option<u32>,
    /// IPsec security parameter index.
    pub spi: Option<u32>,
    /// The local tunnel.
    pub teid: Option<u32>,
    /// The UPF's address at which the tunnel ends.
    pub f_teid_address: Option<u16>,
    /// QoS flow identifier of the packet.
    pub qfi: Option<u8>,
    /// Number of the source interface.
    pub source_interface: Option<u8>,
    /// Its 3GPP interface type.
    pub interface_type: Option<u8>,
    /// Number of the network instance.
    pub network_instance: Option<u16>,
    /// Number of the traffic endpoint.
    pub traffic_endpoint: Option<u8>,
    /// Number of the application.
    pub application: Option<u32>,
}

/// Which of two rules wins: the lower precedence value (TS 29.244 §8.2.11), of equal ones the lower identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(u64);

impl Rank {
    /// Behind every rule.
    pub(crate) const LAST: Self = Self(u64::MAX);

    /// Of a precedence value and an identity that no other rule of the set has.
    pub const fn new(precedence: u32, id: u32) -> Self {
        Self((precedence as u64) << 32 | id as u64)
    }

    /// The rank behind this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The precedence value.
    pub const fn precedence(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Identity of the rule.
    pub const fn id(self) -> u32 {
        self.0 as u32
    }
}

/// A rule as the classifiers compare it.
///
/// A packet matches if its key under the mask is the value, and its ports are in the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Rule {
    pub(crate) value: [u32; WORDS],
    pub(crate) mask: [u32; WORDS],
    /// Remote and local port: from, to.
    pub(crate) ports: [(u16, u16); 2],
    pub(crate) rank: Rank,
}

impl Rule {
    /// A rule that matches what meets all conditions. `None` if no packet can: two addresses that exclude each other,
    /// a range that ends before it begins.
    pub fn new(rank: Rank, pdi: &Pdi) -> Option<Self> {
        let mut r = Self { value: [0; WORDS], mask: [0; WORDS], ports: [(0, u16::MAX); 2], rank };
        let mut needs = 0;
        let prefixes = [(pdi.remote, word::REMOTE), (pdi.local, word::LOCAL), (pdi.ue, word::LOCAL)];
        for (prefix, at) in prefixes {
            let Some(prefix) = prefix else { continue };
            let (value, mask, family) = prefix.words();
            needs |= family;
            for (at, (value, mask)) in (at..).zip(value.into_iter().zip(mask)) {
                if (r.value[at] ^ value) & r.mask[at] & mask != 0 {
                    return None;
                }
                r.set(at, value, mask);
            }
        }
        if needs & has::IPV4 != 0 && needs & has::IPV6 != 0 {
            return None;
        }
        for (i, range) in [pdi.remote_ports, pdi.local_ports].into_iter().enumerate() {
            let Some((from, to)) = range else { continue };
            if from > to {
                return None;
            }
            needs |= has::PORTS;
            r.ports[i] = (from, to);
            if from == to {
                let shift = 16 * (1 - i);
                r.set(word::PORTS, u32::from(from) << shift, 0xffff << shift);
            }
        }
        let words = [
            (word::SPI, pdi.spi, has::SPI),
            (word::TEID, pdi.teid, has::TEID),
            (word::APPLICATION, pdi.application, has::APPLICATION),
            (word::FLOW_LABEL, pdi.flow_label, 0),
        ];
        for (at, value, bit) in words {
            let Some(value) = value else { continue };
            r.set(at, value, u32::MAX);
            needs |= bit;
        }
        let halves = [(pdi.network_instance, 16), (pdi.f_teid_address, 0)];
        for (value, shift) in halves {
            let Some(value) = value else { continue };
            r.set(word::NETWORK, u32::from(value) << shift, 0xffff << shift);
        }
        if pdi.qfi.is_some() {
            needs |= has::QFI;
        }
        let mut needs_too = 0;
        if pdi.interface_type.is_some() {
            needs_too |= has_too::INTERFACE_TYPE;
        }
        if pdi.traffic_endpoint.is_some() {
            needs_too |= has_too::TRAFFIC_ENDPOINT;
        }
        let whole = |value: Option<u8>| value.map(|v| (v, u8::MAX));
        let octets = [
            (word::PROTOCOL, 24, whole(pdi.protocol)),
            (word::PROTOCOL, 16, pdi.tos),
            (word::PROTOCOL, 8, Some((needs, needs))),
            (word::PROTOCOL, 0, whole(pdi.source_interface)),
            (word::FLOW, 24, whole(pdi.qfi)),
            (word::FLOW, 16, whole(pdi.interface_type)),
            (word::FLOW, 8, whole(pdi.traffic_endpoint)),
            (word::FLOW, 0, Some((needs_too, needs_too))),
        ];
        for (at, shift, condition) in octets {
            let Some((value, mask)) = condition else { continue };
            r.set(at, u32::from(value) << shift, u32::from(mask) << shift);
        }
        Some(r)
    }

    fn set(&mut self, at: usize, value: u32, mask: u32) {
        self.value[at] |= value & mask;
        self.mask[at] |= mask;
    }

    /// Which of two rules wins, and what names the rule.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Whether a packet meets every condition.
    #[inline(always)]
    pub fn matches(&self, key: &PacketKey) -> bool {
        let ([remote, local], [(remote_from, remote_to), (local_from, local_to)]) = (key.ports(), self.ports);
        self.matches_words(key)
            && (remote_from..=remote_to).contains(&remote)
            && (local_from..=local_to).contains(&local)
    }

    /// Whether a packet meets every condition that is not a range of ports.
    #[inline(always)]
    pub(crate) fn matches_words(&self, key: &PacketKey) -> bool {
        // Without a closure, which might stay a function of its own.
        let mut unmet = 0;
        for at in 0..WORDS {
            unmet |= key.words[at] & self.mask[at] ^ self.value[at];
        }
        unmet == 0
    }
}

impl AddressPrefix {
    /// Value, mask and version of IP.
    fn words(self) -> ([u32; 4], [u32; 4], u8) {
        match self.address {
            IpAddr::V4(a) => {
                let mask = !u32::MAX.checked_shr(self.length.into()).unwrap_or(0);
                ([a.to_bits() & mask, 0, 0, 0], [mask, 0, 0, 0], has::IPV4)
            }
            IpAddr::V6(a) => {
                let mask = !u128::MAX.checked_shr(self.length.into()).unwrap_or(0);
                (split(a.to_bits() & mask), split(mask), has::IPV6)
            }
        }
    }
}
