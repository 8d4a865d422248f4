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
        let name = format!("{PREFIX}{}", SocketAddr::new(address, port));
        let guard = UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(name)?).map(Self)?;
        // A program that serves all addresses excludes programs that serve one, and the reverse. Two that start in the
        // same instant may both see each other and both give up, never both go on.
        let overlaps = |other: SocketAddr| {
            let same_family = other.is_ipv4() == address.is_ipv4();
            let differs = other.ip() != address;
            let all = other.ip().is_unspecified() || address.is_unspecified();
            other.port() == port && same_family && differs && all
        };
        if held().into_iter().any(overlaps) {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        Ok(guard)
    }
}

/// How the locks' names begin.
const PREFIX: &str = "sctp-raw ";

/// The addresses that are locked in this network namespace, by anyone.
fn held() -> Vec<SocketAddr> {
    // The kernel lists abstract sockets with an @ in place of their leading zero octet.
    let all = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = |line: &str| line.split_once('@')?.1.strip_prefix(PREFIX)?.trim_end_matches('@').parse().ok();
    all.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let a = IpAddr::from([127, 99, 0, 1]);
        let first = PortGuard::take(a, 1).unwrap();
        assert_eq!(PortGuard::take(a, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let all = IpAddr::from([0, 0, 0, 0]);
        assert_eq!(PortGuard::take(all, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse, "all includes one");
        let other_port = PortGuard::take(all, 2).unwrap();
        assert_eq!(PortGuard::take(a, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse, "one is among all");
        PortGuard::take("::1".parse().unwrap(), 2).unwrap();
        drop((first, other_port));
        PortGuard::take(a, 1).unwrap();
        PortGuard::take(a, 2).unwrap();
    }
}
