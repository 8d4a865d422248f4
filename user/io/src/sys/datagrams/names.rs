//! Addresses as the kernel has them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub(super) fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the storage holds a sockaddr_in, and it is large and aligned enough.
            let a = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = IpAddr::from(a.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip, u16::from_be(a.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the storage holds a sockaddr_in6, and it is large and aligned enough.
            let a = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let ip = IpAddr::V6(Ipv6Addr::from(a.sin6_addr.s6_addr));
            Some(SocketAddr::new(ip, u16::from_be(a.sin6_port)))
        }
        _ => None,
    }
}

pub(super) fn set_address(name: &mut libc::sockaddr_storage, to: SocketAddr) -> usize {
    match to {
        SocketAddr::V4(a) => {
            // SAFETY: a sockaddr_in fits in the storage and any octets are a value of it.
            let n = unsafe { &mut *(&raw mut *name).cast::<libc::sockaddr_in>() };
            n.sin_family = libc::AF_INET as _;
            n.sin_port = a.port().to_be();
            n.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(a) => {
            // SAFETY: a sockaddr_in6 fits in the storage and any octets are a value of it.
            let n = unsafe { &mut *(&raw mut *name).cast::<libc::sockaddr_in6>() };
            n.sin6_family = libc::AF_INET6 as _;
            n.sin6_port = a.port().to_be();
            n.sin6_flowinfo = 0;
            n.sin6_addr.s6_addr = a.ip().octets();
            n.sin6_scope_id = a.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    }
}
