//! What a driver can do with XDP, as the kernel's netlink family "netdev" says (Linux 6.3 and later): asked without
//! touching the interface, as trying would reset it.

use std::io;

use crate::sys::netlink::{Netlink, NetlinkRequest, attributes};

/// Code points of linux/netdev.h that `libc` does not have.
mod netdev {
    pub(super) const FAMILY: &[u8] = b"netdev\0";
    pub(super) const CMD_DEV_GET: u8 = 1;
    pub(super) const A_DEV_IFINDEX: u16 = 1;
    pub(super) const A_DEV_XDP_FEATURES: u16 = 3;
    /// The bit NETDEV_XDP_ACT_XSK_ZEROCOPY of the kernel.
    pub(super) const XSK_ZEROCOPY: u64 = 8;
}

/// struct genlmsghdr: command, version, reserved.
const GENERIC_OCTETS: usize = 4;

/// Whether a driver gives AF_XDP its frames without copying. Errors: `ENOENT` where the kernel does not say.
pub(crate) fn has_zero_copy(interface: u32) -> io::Result<bool> {
    let mut netlink = Netlink::open(libc::NETLINK_GENERIC)?;
    let mut ask = |family: u16, command: u8, kind: u16, value: &[u8], attribute: u16| {
        let request = NetlinkRequest::new(family, 0, &[command, 1, 0, 0]).attribute(kind, value);
        let answers = netlink.query(request)?;
        let answer = answers.first().and_then(|a| a.get(GENERIC_OCTETS..)).unwrap_or_default();
        let found = attributes(answer).find(|(k, _)| *k == attribute).map(|(_, v)| v.to_vec());
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    let family = ask(
        libc::GENL_ID_CTRL as u16,
        libc::CTRL_CMD_GETFAMILY as u8,
        libc::CTRL_ATTR_FAMILY_NAME as u16,
        netdev::FAMILY,
        libc::CTRL_ATTR_FAMILY_ID as u16,
    )?;
    let family = family.first_chunk().map_or(0, |id| u16::from_ne_bytes(*id));
    let index = interface.to_ne_bytes();
    let features =
        ask(family, netdev::CMD_DEV_GET, netdev::A_DEV_IFINDEX, &index, netdev::A_DEV_XDP_FEATURES)?;
    let features = features.first_chunk().map_or(0, |f| u64::from_ne_bytes(*f));
    Ok(features & netdev::XSK_ZEROCOPY != 0)
}
