//! What UEs may reach besides their data networks, and whose GTP-U is taken: TS 33.513 §4.2.2 (protection of the UPF), TS 29.281 §4.3.0.

use std::net::{IpAddr, Ipv6Addr};

use crate::firewall::FirewallRule;

/// The prefix of IPv4 addresses that a NAT64 translates to (RFC 6052 §2.1).
const NAT64: u128 = 0x0064_ff9b << 96;

/// An IP network: every address whose first `prefix` bits are those of `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpNetwork {
    /// Any address of it.
    pub address: IpAddr,
    /// 0 to 32, or 0 to 128.
    pub prefix: u8,
}

impl IpNetwork {
    /// The network of one address.
    pub const fn host(address: IpAddr) -> Self {
        Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether an address is of it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(n), IpAddr::V4(a)) => {
                (n.to_bits() ^ a.to_bits()).leading_zeros() >= self.prefix.into()
            }
            (IpAddr::V6(n), IpAddr::V6(a)) => {
                (n.to_bits() ^ a.to_bits()).leading_zeros() >= self.prefix.into()
            }
            _ => false,
        }
    }

    /// The one address that it has, if it has no more.
    pub fn single(&self) -> Option<IpAddr> {
        (*self == Self::host(self.address)).then_some(self.address)
    }
}

/// Where the core or another network function listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreEndpoint {
    /// The address; unspecified for every address of this host.
    pub address: IpAddr,
    /// The IP protocol.
    pub protocol: u8,
    /// Port on which the core listens.
    pub port: u16,
}

/// Which destinations UEs do not reach through the UPF. What is not configured is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// UEs reach the services of this host, but for [`Self::core`].
    pub ue_to_host: bool,
    /// UEs of IP sessions reach other UEs. Ethernet sessions of a data network are one LAN in any case (TS 23.501 §5.6.10.2).
    pub ue_to_ue: bool,
    /// Exceptions, each a `permit in` rule; they stand above everything else here.
    pub allow: Vec<FirewallRule>,
    /// Networks that UEs do not reach: those of management, an address behind which this host stands.
    pub deny: Vec<IpNetwork>,
    /// Where the core listens, here and elsewhere. Addresses elsewhere are denied as a whole.
    pub core: Vec<CoreEndpoint>,
    /// Networks in which gNBs and other UPFs have their user plane addresses: GTP-U of a session is taken from any of them.
    pub gnb_networks: Vec<IpNetwork>,
}

/// The addresses that this host takes packets for: its own, and those of broadcast, as its routing tables have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// Single addresses in ascending order.
    singles: Box<[IpAddr]>,
    networks: Box<[IpNetwork]>,
}

impl FromIterator<IpNetwork> for HostAddresses {
    fn from_iter<I: IntoIterator<Item = IpNetwork>>(all: I) -> Self {
        let (singles, networks): (Vec<_>, Vec<_>) = all.into_iter().partition(|n| n.single().is_some());
        let mut singles: Vec<IpAddr> = singles.into_iter().map(|n| n.address).collect();
        singles.sort_unstable();
        singles.dedup();
        Self { singles: singles.into(), networks: networks.into() }
    }
}

impl HostAddresses {
    /// Whether a packet to an address is for this host.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.singles.binary_search(&address).is_ok() || self.networks.iter().any(|n| n.contains(address))
    }

    /// Single addresses of the host, in ascending order.
    pub fn singles(&self) -> &[IpAddr] {
        &self.singles
    }

    /// Whole networks that are this host's.
    pub fn networks(&self) -> &[IpNetwork] {
        &self.networks
    }
}

/// Where a packet ends: of an address that a NAT64 translates, the IPv4 address.
pub(crate) fn translated(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(a) if a.to_bits() >> 32 == NAT64 >> 32 => IpAddr::V4((a.to_bits() as u32).into()),
        other => other,
    }
}

/// Whether no data network has a destination: loopback, link-local, multicast, broadcast, unspecified, addresses that are never on a wire.
pub(crate) fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => matches!(a.octets(), [0 | 127 | 224.., ..] | [169, 254, ..]),
        // `::/64` holds the unspecified, loopback, IPv4-compatible and IPv4-mapped addresses (RFC 4291 §2.5).
        IpAddr::V6(a) => a.is_multicast() || a.is_unicast_link_local() || upper_is_zero(a),
    }
}

fn upper_is_zero(a: Ipv6Addr) -> bool {
    a.to_bits() >> 64 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test] // RFC 6052 §2.1
    fn an_address_of_nat64_ends_at_its_ipv4_address() {
        assert_eq!(translated(ip("64:ff9b::c000:207")), ip("192.0.2.7"));
        assert_eq!(translated(ip("64:ff9b:1::c000:207")), ip("64:ff9b:1::c000:207"));
    }

    #[test]
    fn destinations_that_no_data_network_has() {
        for special in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.5",
            "127.255.255.255",
            "169.254.169.254",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:192.0.2.7",
            "::192.0.2.7",
            "fe80::1",
            "ff02::1",
            "ff0e::1",
        ] {
            assert!(is_special(ip(special)), "{special}");
        }
        for usual in [
            "1.0.0.1",
            "126.0.0.1",
            "128.0.0.1",
            "169.253.0.1",
            "223.255.255.255",
            "64:ff9b::1",
            "2001:db8::1",
            "fd00::1",
        ] {
            assert!(!is_special(ip(usual)), "{usual}");
        }
    }

    #[test]
    fn host_addresses_are_found_alone_and_in_networks() {
        let networks = ["192.0.2.7/32", "198.51.100.0/24", "2001:db8::7/128"];
        let host: HostAddresses = networks
            .iter()
            .map(|n| n.split_once('/').unwrap())
            .map(|(a, p)| IpNetwork { address: ip(a), prefix: p.parse().unwrap() })
            .collect();
        for (address, is) in [
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("198.51.100.255", true),
            ("198.51.101.0", false),
            ("2001:db8::7", true),
            ("2001:db8::8", false),
        ] {
            assert_eq!(host.contains(ip(address)), is, "{address}");
        }
        assert_eq!((host.singles().len(), host.networks().len()), (2, 1));
    }
}
