//! Interfaces of this host as the kernel has them now, with their addresses.

use std::io;
use std::net::IpAddr;

use whimbrel_user::IpNetwork;

use super::route::{attribute, ip, number};
use crate::sys::netlink::{Netlink, NetlinkRequest, attributes};

/// Attributes of a link's kind (linux/if_link.h); `libc` does not define it.
const IFLA_INFO_KIND: u16 = 1;

/// A network interface, as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkInterface {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) is_up: bool,
    /// A TUN device: of this program, or of another one with UEs or ends of tunnels of its own.
    pub(crate) is_tun: bool,
}

/// An address of an interface, with the prefix that is reached by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkAddress {
    pub(crate) index: u32,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

/// All interfaces and their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostLinks {
    pub(crate) links: Vec<NetworkInterface>,
    pub(crate) addresses: Vec<LinkAddress>,
}

impl HostLinks {
    /// Errors: the kernel does not say.
    pub(crate) fn now() -> io::Result<Self> {
        let mut netlink = Netlink::open(libc::NETLINK_ROUTE)?;
        // struct ifinfomsg: family, padding, type (2 octets), index, flags, change.
        let links = netlink.query(NetlinkRequest::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16]))?;
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let addresses = netlink.query(NetlinkRequest::new(libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; 8]))?;
        Ok(Self {
            links: links.iter().filter_map(|answer| link(answer)).collect(),
            addresses: addresses.iter().filter_map(|answer| address(answer)).collect(),
        })
    }

    pub(crate) fn named(&self, name: &str) -> Option<&NetworkInterface> {
        self.links.iter().find(|link| link.name == name)
    }

    pub(crate) fn has(&self, index: u32, address: IpAddr, prefix: u8) -> bool {
        self.addresses.contains(&LinkAddress { index, address, prefix })
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.address == address)
    }

    /// Networks that interfaces reach, with their names: all but TUN devices, those of a single address, and links on their own.
    pub(crate) fn networks(&self) -> impl Iterator<Item = (&str, IpNetwork)> {
        self.addresses.iter().filter_map(|a| {
            let link = self.links.iter().find(|link| link.index == a.index && !link.is_tun)?;
            let (bits, is_local) = match a.address {
                IpAddr::V4(_) => (32, false),
                IpAddr::V6(a) => (128, a.is_unicast_link_local()),
            };
            let network = first_of(IpNetwork { address: a.address, prefix: a.prefix });
            (a.prefix < bits && !is_local).then_some((link.name.as_str(), network))
        })
    }
}

/// The network that an address of it names.
fn first_of(n: IpNetwork) -> IpNetwork {
    let address = match n.address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(n.prefix.into())).unwrap_or(0);
            IpAddr::V4((a.to_bits() & mask).into())
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(n.prefix.into())).unwrap_or(0);
            IpAddr::V6((a.to_bits() & mask).into())
        }
    };
    IpNetwork { address, ..n }
}

/// True if the two networks share at least one address.
pub(crate) fn overlap(a: IpNetwork, b: IpNetwork) -> bool {
    let prefix = a.prefix.min(b.prefix);
    a.address.is_ipv4() == b.address.is_ipv4()
        && first_of(IpNetwork { prefix, ..a }) == first_of(IpNetwork { prefix, ..b })
}

fn link(answer: &[u8]) -> Option<NetworkInterface> {
    let all = answer.get(16..)?;
    let flags = number(answer.get(8..)?)?;
    let name = String::from_utf8_lossy(attribute(all, libc::IFLA_IFNAME)?).trim_end_matches('\0').to_owned();
    let kind = attribute(all, libc::IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_KIND));
    Some(NetworkInterface {
        index: number(answer.get(4..)?)?,
        name,
        is_up: flags & libc::IFF_UP as u32 != 0,
        is_tun: kind == Some(b"tun\0"),
    })
}

fn address(answer: &[u8]) -> Option<LinkAddress> {
    let (prefix, index) = (*answer.get(1)?, number(answer.get(4..)?)?);
    let all: Vec<_> = attributes(answer.get(8..)?).collect();
    // IFA_ADDRESS of a link from point to point is the other end's.
    let of = |which: u16| all.iter().find(|(kind, _)| *kind == which).and_then(|(_, value)| ip(value));
    Some(LinkAddress { index, address: of(libc::IFA_LOCAL).or_else(|| of(libc::IFA_ADDRESS))?, prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str, prefix: u8) -> IpNetwork {
        IpNetwork { address: address.parse().unwrap(), prefix }
    }

    #[test]
    fn networks_overlap_if_one_is_in_the_other() {
        let pool = network("10.45.0.0", 16);
        assert!(overlap(pool, network("10.45.7.1", 24)) && overlap(network("10.0.0.0", 8), pool));
        assert!(!overlap(pool, network("10.46.0.0", 16)) && !overlap(pool, network("::", 0)));
        assert!(overlap(network("fd00:45::", 48), network("fd00:45:0:7::1", 64)));
        assert!(overlap(network("0.0.0.0", 0), pool));
    }

    #[test]
    fn networks_of_interfaces_are_those_of_their_addresses() {
        let link =
            |index, name: &str, is_tun| NetworkInterface { index, name: name.into(), is_up: true, is_tun };
        let of =
            |index, address: &str, prefix| LinkAddress { index, address: address.parse().unwrap(), prefix };
        let links = HostLinks {
            links: vec![link(1, "eth0", false), link(2, "tun9", true)],
            addresses: vec![
                of(1, "10.45.7.9", 24),
                of(1, "192.0.2.1", 32),
                of(1, "fe80::1", 64),
                of(1, "fd00::9", 64),
                of(2, "10.46.0.1", 16),
            ],
        };
        let all: Vec<_> = links.networks().collect();
        assert_eq!(all, [("eth0", network("10.45.7.0", 24)), ("eth0", network("fd00::", 64))]);
    }
}
