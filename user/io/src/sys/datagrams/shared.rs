//! Sockets that share an address, one for each packet thread.

use std::io;
use std::mem::zeroed;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use super::names::set_address;
use crate::sys::{check, owned};

/// Whether another socket has the address exclusively. Binding a shared socket would not report others that share it too.
pub(super) fn in_use(address: SocketAddr) -> bool {
    matches!(UdpSocket::bind(address), Err(e) if e.kind() == io::ErrorKind::AddrInUse)
}

/// A socket that shares its address with others of this user.
pub(super) fn bind_shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain values in, a descriptor or -1 out.
    let socket = owned(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    let one: libc::c_int = 1;
    // SAFETY: the option's value is one int, which lives through the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEPORT,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as _,
        )
    })?;
    // SAFETY: for this plain C struct all zeroes are a value.
    let mut name: libc::sockaddr_storage = unsafe { zeroed() };
    let octets = set_address(&mut name, address);
    // SAFETY: the name is as many octets as given and lives through the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), octets as _) })?;
    Ok(socket.into())
}
