//! State, addresses and routes of network devices: requests of rtnetlink(7), each acknowledged by the kernel.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice};

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IFF_UP: u32 = 1;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
/// A message's header.
const HEADER_OCTETS: usize = 16;

/// A socket of rtnetlink, in the network namespace of the thread that opened it.
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        // NETLINK_ROUTE is protocol 0.
        Ok(Self(rustix::net::socket_with(family, SocketType::RAW, flags, None)?))
    }

    /// The index of a device.
    pub(super) fn index(&self, device: &str) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.0, device)?)
    }

    /// Brings a device up, with an MTU if one is given.
    pub(super) fn bring_up(&self, index: u32, mtu: Option<u32>) -> io::Result<()> {
        // struct ifinfomsg: family, padding, type (2 octets); index; flags; which flags change.
        let words = [[0; 4], index.to_ne_bytes(), IFF_UP.to_ne_bytes(), IFF_UP.to_ne_bytes()];
        let mut request = NetlinkRequest::new(RTM_NEWLINK, 0, words.as_flattened());
        if let Some(mtu) = mtu {
            request = request.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        }
        self.ask(request)
    }

    /// Gives a device an address that is usable at once, without duplicate address detection: no other host is on the
    /// link.
    pub(super) fn add_address(&self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let (family, octets) = match address {
            IpAddr::V4(a) => (AF_INET, a.octets().to_vec()),
            IpAddr::V6(a) => (AF_INET6, a.octets().to_vec()),
        };
        // struct ifaddrmsg: family, prefix length, flags, scope; index.
        let words = [[family, prefix, IFA_F_NODAD, 0], index.to_ne_bytes()];
        let request = NetlinkRequest::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, words.as_flattened());
        self.ask(request.attribute(IFA_LOCAL, &octets).attribute(IFA_ADDRESS, &octets))
    }

    /// Sets a device's default route of an address family, with a metric.
    pub(super) fn add_default_route(&self, index: u32, ipv6: bool, metric: u32) -> io::Result<()> {
        let family = if ipv6 { AF_INET6 } else { AF_INET };
        // struct rtmsg: family, lengths of destination and source, type of service; table, protocol, scope, type; flags.
        let words = [
            [family, 0, 0, 0],
            [RT_TABLE_MAIN, RTPROT_STATIC, if ipv6 { 0 } else { RT_SCOPE_LINK }, RTN_UNICAST],
            [0; 4],
        ];
        let request = NetlinkRequest::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, words.as_flattened());
        let request = request.attribute(RTA_OIF, &index.to_ne_bytes());
        self.ask(request.attribute(RTA_PRIORITY, &metric.to_ne_bytes()))
    }

    /// Sends a request and waits for the kernel's answer, which comes at once.
    fn ask(&self, request: NetlinkRequest) -> io::Result<()> {
        rustix::net::send(&self.0, &request.finish(), SendFlags::empty())?;
        let mut answer = [0; 512];
        let (got, _) = rustix::net::recv(&self.0, &mut answer, RecvFlags::empty())?;
        acknowledged(answer.get(..got).unwrap_or_default())
    }
}

/// An acknowledgement: header, then zero or a negative error number.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6) == Some(&NLMSG_ERROR.to_ne_bytes()[..]);
    let code = answer.get(HEADER_OCTETS..).and_then(|rest| rest.first_chunk()).filter(|_| kind);
    match code.map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A request: header, fixed part, attributes.
struct NetlinkRequest(Vec<u8>);

impl NetlinkRequest {
    fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut octets = vec![0; HEADER_OCTETS];
        octets[4..6].copy_from_slice(&kind.to_ne_bytes());
        octets[6..8].copy_from_slice(&(flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        octets.extend_from_slice(fixed);
        Self(octets)
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_refusal_is_an_error() {
        let mut answer = vec![0; 36];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert!(acknowledged(&answer).is_ok());
        answer[HEADER_OCTETS..HEADER_OCTETS + 4].copy_from_slice(&(-1i32).to_ne_bytes());
        assert_eq!(acknowledged(&answer).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(acknowledged(&answer[..HEADER_OCTETS]).is_err());
    }
}
