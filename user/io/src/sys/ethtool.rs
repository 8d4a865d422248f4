//! What a driver is set to, by the older of ethtool's two ways: one request for a word of flags.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use super::tun::NAME_OCTETS_MAX;

/// ETHTOOL_GFLAGS and ETH_FLAG_RXVLAN of linux/ethtool.h, SIOCETHTOOL of linux/sockios.h; `libc` has them not.
const GET_FLAGS: u32 = 0x25;
const TAKES_TAGS: u32 = 1 << 8;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// The kernel's struct ethtool_value.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Whether an interface takes VLAN tags off received frames before anybody sees them. Not where the kernel does not say.
pub(crate) fn takes_tags_off(interface: &str) -> bool {
    let Ok(socket) = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("::1", 0))) else {
        return false;
    };
    let mut value = EthtoolValue { command: GET_FLAGS, data: 0 };
    // SAFETY: for this plain C struct all zeroes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(NAME_OCTETS_MAX)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names the value, which has the form that the command fills, and both live through the call.
    let got = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    got == 0 && value.data & TAKES_TAGS != 0
}
