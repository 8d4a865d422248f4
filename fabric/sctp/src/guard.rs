//! A lock on an address and port: raw sockets do not exclude each other, and two endpoints behind one port would
//! abort each other's associations.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};

/// Holds the lock while it lives; the kernel frees it with the process. It is valid in one network namespace, as the
/// port is.
#[derive(Debug)]
pub(crate) struct PortGuard(#[allow(dead_code)] UnixDatagram);

impl PortGuard {
    /// Takes the lock; `AddrInUse` if another process, or another endpoint of this one, holds it.
    pub(crate) fn take(address: IpAddr, port: u16) -> io::Result<Self> {
        let name = format!("sctp-raw {}", SocketAddr::new(address, port));
        UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(name)?).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let a = IpAddr::from([127, 99, 0, 1]);
        let first = PortGuard::take(a, 1).unwrap();
        assert_eq!(PortGuard::take(a, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        PortGuard::take(a, 1).unwrap();
    }
}
