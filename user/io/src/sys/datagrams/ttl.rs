//! A UDP socket that sends with TTL 255 and says with which TTL a datagram arrived (RFC 5082): `std` does neither.

use std::io;
use std::mem::zeroed;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::control::ControlMessages;
use super::names::address;

/// The TTL, or hop limit, that no router has lowered.
const TTL_MAX: libc::c_int = 255;

/// A socket that sees the TTL of datagrams.
#[derive(Debug)]
pub struct TtlSocket {
    socket: UdpSocket,
}

impl TtlSocket {
    /// A socket that is bound. Errors: those of setsockopt(2), if neither IP version takes the options.
    pub fn of(socket: UdpSocket) -> io::Result<Self> {
        let set = |level, name, value: libc::c_int| {
            // SAFETY: the option's value is one int, which lives through the call.
            super::super::check(unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    level,
                    name,
                    (&raw const value).cast(),
                    size_of::<libc::c_int>() as _,
                )
            })
        };
        let v4 = set(libc::IPPROTO_IP, libc::IP_TTL, TTL_MAX)
            .and_then(|_| set(libc::IPPROTO_IP, libc::IP_RECVTTL, 1));
        let v6 = set(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, TTL_MAX)
            .and_then(|_| set(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1));
        v4.or(v6)?;
        Ok(Self { socket })
    }

    /// Its address. Errors: those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The next datagram that waits: its octets, where it came from, and its TTL. Errors: those of recvmsg(2), [`io::ErrorKind::WouldBlock`] if there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, Option<u8>)> {
        // SAFETY: for these plain C structs all zeroes are values.
        let (mut name, mut header) =
            unsafe { (zeroed::<libc::sockaddr_storage>(), zeroed::<libc::msghdr>()) };
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = ControlMessages::room_for_one();
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.octets.as_mut_ptr().cast();
        header.msg_controllen = control.words * size_of::<u64>();
        // SAFETY: the header points at a name, a part and a control message of this function, and the part at `buffer`, each as long as given.
        let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let octets = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let from = address(&name).ok_or(io::ErrorKind::InvalidData)?;
        let there = header.msg_controllen >= ControlMessages::ONE_OCTETS;
        let ttl = control
            .int_of(libc::IPPROTO_IP, libc::IP_TTL)
            .or_else(|| control.int_of(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT))
            .filter(|_| there);
        Ok((octets, from, ttl.and_then(|ttl| u8::try_from(ttl).ok())))
    }

    /// Sends a datagram. Errors: those of sendto(2).
    pub fn send_to(&self, octets: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.socket.send_to(octets, to)
    }
}

impl AsFd for TtlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one socket receives of another, which sends with this TTL.
    fn received(at: &str, ttl: u32) -> (Vec<u8>, Option<u8>) {
        let receiver = TtlSocket::of(UdpSocket::bind(at).unwrap()).unwrap();
        let sender = UdpSocket::bind(at).unwrap();
        let mut buffer = [0; 8];
        let nothing = receiver.receive(&mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        sender.set_ttl(ttl).unwrap();
        sender.send_to(b"probe", receiver.local_addr().unwrap()).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            match receiver.receive(&mut buffer) {
                Ok((n, from, ttl)) => {
                    assert_eq!(from, sender.local_addr().unwrap());
                    return (buffer[..n].to_vec(), ttl);
                }
                Err(e) => assert!(e.kind() == io::ErrorKind::WouldBlock && std::time::Instant::now() < until),
            }
        }
    }

    #[test] // RFC 5082: what is not 255 came through a router
    fn the_ttl_of_a_datagram_is_reported() {
        assert_eq!(received("127.0.0.1:0", 255), (b"probe".to_vec(), Some(255)));
        assert_eq!(received("127.0.0.1:0", 64), (b"probe".to_vec(), Some(64)));
    }

    #[test]
    fn datagrams_leave_with_ttl_255() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(at) else { continue }; // a host without IPv6
            let (sender, receiver) =
                (TtlSocket::of(UdpSocket::bind(at).unwrap()).unwrap(), TtlSocket::of(socket).unwrap());
            sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
            let mut buffer = [0; 8];
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            let ttl = loop {
                match receiver.receive(&mut buffer) {
                    Ok((_, _, ttl)) => break ttl,
                    Err(_) => assert!(std::time::Instant::now() < until),
                }
            };
            assert_eq!(ttl, Some(255), "{at}");
        }
    }
}
