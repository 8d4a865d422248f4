//! What the kernel knows of interfaces, routes and neighbours: asked, and not kept here.

use std::io;
use std::net::IpAddr;

use crate::sys::netlink::{Netlink, NetlinkRequest, attributes, interface_index};

/// An Ethernet interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
    /// Its frames go by another interface of this host, with a tag of IEEE 802.1Q: that one's index, and the VLAN's number.
    pub(crate) vlan: Option<(u32, u16)>,
}

/// Why an address is of no Ethernet interface.
#[derive(Debug)]
pub enum NoInterface {
    /// No interface has the address.
    NoAddress,
    /// There is no interface of that name.
    NoSuch(String),
    /// The interface carries no Ethernet: loopback, a tunnel.
    NoEthernet(String),
    /// The kernel does not say.
    Unknown(io::Error),
}

impl From<io::Error> for NoInterface {
    fn from(e: io::Error) -> Self {
        Self::Unknown(e)
    }
}

/// Next on the way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextHop {
    pub(crate) interface: u32,
    pub(crate) address: IpAddr,
    /// Octets of an IP packet that the path is known to carry, where that is less than what the interface does.
    pub(crate) mtu: Option<u32>,
}

/// The next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) mac: [u8; 6],
    /// Set by hand, not resolved.
    pub(crate) is_set: bool,
}

/// Questions to the kernel.
pub(crate) struct Routes(Netlink);

/// A family and the octets of an address.
fn family(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(a) => (libc::AF_INET as u8, a.octets().to_vec()),
        IpAddr::V6(a) => (libc::AF_INET6 as u8, a.octets().to_vec()),
    }
}

pub(super) fn number(octets: &[u8]) -> Option<u32> {
    octets.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

pub(super) fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(octets).ok().map(IpAddr::from);
    v4().or_else(v6)
}

/// The value of an attribute.
pub(super) fn attribute(all: &[u8], which: u16) -> Option<&[u8]> {
    attributes(all).find(|(kind, _)| *kind == which).map(|(_, value)| value)
}

/// By which interface of this namespace, and with which tag, the frames of a link with these attributes go, if it is a VLAN device of
/// IEEE 802.1Q.
fn vlan(link: &[u8]) -> Option<(u32, u16)> {
    let info = attribute(link, libc::IFLA_LINKINFO)?;
    let data = attribute(info, IFLA_INFO_DATA)?;
    let id = attribute(data, IFLA_VLAN_ID)?.first_chunk().map(|id| u16::from_ne_bytes(*id))?;
    let ours = attribute(info, IFLA_INFO_KIND)? == b"vlan\0"
        && attribute(data, IFLA_VLAN_PROTOCOL)? == [0x81, 0]
        && attribute(link, libc::IFLA_LINK_NETNSID).is_none();
    attribute(link, libc::IFLA_LINK).and_then(number).filter(|_| ours).map(|below| (below, id))
}

impl Routes {
    pub(crate) fn open() -> io::Result<Self> {
        Netlink::open(libc::NETLINK_ROUTE).map(Self)
    }

    /// The Ethernet interface that has an address.
    pub(crate) fn interface_of(&mut self, address: IpAddr) -> Result<Interface, NoInterface> {
        let (of_family, octets) = family(address);
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let fixed = [of_family, 0, 0, 0, 0, 0, 0, 0];
        let answers = self.0.query(NetlinkRequest::new(libc::RTM_GETADDR, libc::NLM_F_DUMP, &fixed))?;
        let has = |answer: &&Vec<u8>| {
            attributes(answer.get(8..).unwrap_or_default())
                .any(|(kind, v)| matches!(kind, libc::IFA_LOCAL | libc::IFA_ADDRESS) && v == octets)
        };
        let index =
            answers.iter().find(has).and_then(|a| number(a.get(4..)?)).ok_or(NoInterface::NoAddress)?;
        self.interface(index)
    }

    /// The Ethernet interface of a name.
    pub(crate) fn interface_named(&mut self, name: &str) -> Result<Interface, NoInterface> {
        let index = interface_index(name).map_err(|_| NoInterface::NoSuch(name.to_owned()))?;
        self.interface(index)
    }

    /// The Ethernet interface of an index.
    pub(crate) fn interface(&mut self, index: u32) -> Result<Interface, NoInterface> {
        // struct ifinfomsg: family, padding, type (2 octets), index, flags, change.
        let words = [[0; 4], index.to_ne_bytes(), [0; 4], [0; 4]];
        let answers = self.0.query(NetlinkRequest::new(libc::RTM_GETLINK, 0, words.as_flattened()))?;
        let answer = answers.first().ok_or(NoInterface::NoAddress)?;
        let all = answer.get(16..).unwrap_or_default();
        let find = |which: u16| attribute(all, which);
        let name = find(libc::IFLA_IFNAME).unwrap_or_default();
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        let ethernet = answer.get(2..4) == Some(&libc::ARPHRD_ETHER.to_ne_bytes()[..]);
        let mac = find(libc::IFLA_ADDRESS).and_then(|m| m.try_into().ok()).filter(|_| ethernet);
        match (mac, find(libc::IFLA_MTU).and_then(number)) {
            (Some(mac), Some(mtu)) => Ok(Interface { index, name, mac, mtu, vlan: vlan(all) }),
            _ => Err(NoInterface::NoEthernet(name)),
        }
    }

    /// Where packets (from one of our addresses, if that is given) to a destination go next; `None` where they do not leave by a neighbour.
    pub(crate) fn next_hop(&mut self, from: Option<IpAddr>, to: IpAddr) -> io::Result<Option<NextHop>> {
        let (of_family, destination) = family(to);
        let bits = 8 * destination.len() as u8;
        let source_bits = if from.is_some() { bits } else { 0 };
        // struct rtmsg: family, lengths of destination and source, type of service, table, protocol, scope, type, flags.
        let fixed = [of_family, bits, source_bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut request =
            NetlinkRequest::new(libc::RTM_GETROUTE, 0, &fixed).attribute(libc::RTA_DST, &destination);
        if let Some(from) = from {
            request = request.attribute(libc::RTA_SRC, &family(from).1);
        }
        let answers = self.0.query(request)?;
        let Some(answer) = answers.first().filter(|a| a.get(7) == Some(&libc::RTN_UNICAST)) else {
            return Ok(None);
        };
        let (mut interface, mut address, mut mtu) = (None, Some(to), None);
        for (kind, value) in attributes(answer.get(12..).unwrap_or_default()) {
            match kind {
                libc::RTA_OIF => interface = number(value),
                libc::RTA_GATEWAY => address = ip(value),
                // struct rtvia: a family of two octets, then the address.
                libc::RTA_VIA => address = value.get(2..).and_then(ip),
                libc::RTA_METRICS => {
                    mtu = attributes(value).find(|(k, _)| *k == RTAX_MTU).and_then(|(_, v)| number(v));
                }
                _ => {}
            }
        }
        Ok(interface.zip(address).map(|(interface, address)| NextHop { interface, address, mtu }))
    }

    /// A neighbour, if the kernel has an Ethernet address of it that it trusts.
    pub(crate) fn neighbour(&mut self, hop: &NextHop) -> io::Result<Option<Neighbour>> {
        let request = neighbour(libc::RTM_GETNEIGH, 0, hop, 0);
        let answers = match self.0.query(request) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            other => other?,
        };
        const USABLE: u16 =
            libc::NUD_REACHABLE | libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE | libc::NUD_PERMANENT;
        let Some(answer) = answers.first() else { return Ok(None) };
        let state = answer.get(8..10).map_or(0, |s| u16::from_ne_bytes([s[0], s[1]]));
        let mut all = attributes(answer.get(12..).unwrap_or_default());
        let mac = all.find(|(kind, _)| *kind == libc::NDA_LLADDR).and_then(|(_, m)| m.try_into().ok());
        let is_set = state & libc::NUD_PERMANENT != 0;
        Ok(mac.filter(|_| state & USABLE != 0).map(|mac| Neighbour { mac, is_set }))
    }

    /// Reports to the kernel that a neighbour is used, so that it resolves its address and keeps it current.
    pub(crate) fn uses(&mut self, hop: &NextHop) -> io::Result<()> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_ACK;
        self.0.ask(vec![neighbour(libc::RTM_NEWNEIGH, flags, hop, libc::NTF_USE)])
    }
}

/// struct ndmsg: family, padding (3 octets), interface, state (2 octets), flags, type; then the address.
fn neighbour(kind: u16, flags: libc::c_int, hop: &NextHop, use_flag: u8) -> NetlinkRequest {
    let (family, octets) = family(hop.address);
    let words = [[family, 0, 0, 0], hop.interface.to_ne_bytes(), [0, 0, use_flag, 0]];
    NetlinkRequest::new(kind, flags, words.as_flattened()).attribute(libc::NDA_DST, &octets)
}

/// Attributes of a link's kind and of a VLAN device (linux/if_link.h); `libc` has them not.
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;
/// The metric of a route that is its MTU (linux/rtnetlink.h); `libc` has it not.
const RTAX_MTU: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::Attributes;

    fn link(kind: &[u8], protocol: [u8; 2], more: Option<u16>) -> Vec<u8> {
        let data = Attributes::default()
            .with(IFLA_VLAN_ID, &100u16.to_ne_bytes())
            .with(IFLA_VLAN_PROTOCOL, &protocol);
        let info = Attributes::default().with(IFLA_INFO_KIND, kind).nested(IFLA_INFO_DATA, data);
        let mut all = Attributes::default().with(libc::IFLA_LINK, &3u32.to_ne_bytes());
        if let Some(kind) = more {
            all = all.with(kind, &[0; 4]);
        }
        all.nested(libc::IFLA_LINKINFO, info).octets().to_vec()
    }

    #[test]
    fn a_vlan_device_is_known_by_its_kind() {
        assert_eq!(vlan(&link(b"vlan\0", [0x81, 0], None)), Some((3, 100)));
        assert_eq!(vlan(&link(b"vlan\0", [0x88, 0xa8], None)), None, "a provider's tag");
        assert_eq!(vlan(&link(b"macvlan\0", [0x81, 0], None)), None);
        assert_eq!(
            vlan(&link(b"vlan\0", [0x81, 0], Some(libc::IFLA_LINK_NETNSID))),
            None,
            "of another namespace"
        );
        assert_eq!(vlan(&[]), None);
    }
}
