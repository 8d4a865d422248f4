//! The system calls that std lacks, behind safe faces. `unsafe` lives here and nowhere else in the crate: raw and SCTP
//! sockets, socket options and batched transfer have no safe interface in std.

mod batch;
pub(crate) mod memory;
mod message;

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) use batch::{BATCH, ReceiveBatch, send_batch};
pub(crate) use message::{receive_message, send_message};

/// Turns a C result into a Rust one.
fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// The address family of an address.
pub(crate) fn family(a: IpAddr) -> libc::c_int {
    if a.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

/// A non-blocking socket that children do not inherit.
pub(crate) fn socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes no pointers.
    let fd = check(unsafe { libc::socket(domain, kind, protocol) })?;
    // SAFETY: the call just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option to octets.
pub(crate) fn set_option_octets(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: pointer and length are those of `value`, which the kernel only reads.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) })?;
    Ok(())
}

/// Sets a socket option to an integer.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: i32,
) -> io::Result<()> {
    set_option_octets(fd, level, name, &value.to_ne_bytes())
}

/// Gets a socket option; `value` is what the kernel reads and overwrites. Returns how many octets it wrote.
pub(crate) fn get_option_octets(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: pointer and length are those of `value`; the kernel writes at most `len` octets and then sets `len`.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len) })?;
    Ok((len as usize).min(value.len()))
}

/// Attaches a classic BPF program to a socket.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let fprog = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: `fprog` and the program that it points to outlive the call, and the kernel only reads them.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const fprog).cast(),
            len,
        )
    })?;
    Ok(())
}

/// Binds a socket to an address.
pub(crate) fn bind(fd: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    let (storage, len) = to_sockaddr(to);
    // SAFETY: `storage` holds a sockaddr of `len` octets and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const storage).cast(), len) })?;
    Ok(())
}

/// Makes the socket listen.
pub(crate) fn listen(fd: BorrowedFd<'_>, backlog: libc::c_int) -> io::Result<()> {
    // SAFETY: listen(2) takes no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) })?;
    Ok(())
}

/// The socket calls that take packed addresses through pointers, as connect(2) does.
pub(crate) fn connectx(fd: BorrowedFd<'_>, addresses: &[u8]) -> io::Result<i32> {
    /// The kernel's `struct sctp_getaddrs_old`, which SCTP_SOCKOPT_CONNECTX3 takes.
    #[repr(C)]
    struct SctpAddresses {
        association: i32,
        len: i32,
        addresses: *const u8,
    }
    const SCTP_SOCKOPT_CONNECTX3: libc::c_int = 111;
    let len = i32::try_from(addresses.len()).unwrap_or(i32::MAX);
    let mut param = SctpAddresses { association: 0, len, addresses: addresses.as_ptr() };
    let mut size = size_of::<SctpAddresses>() as libc::socklen_t;
    // SAFETY: `param` has the layout and size that the kernel expects, points to `addresses` with their length, and
    // both outlive the call; the kernel writes the association's name into its first four octets.
    let rc = check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_SCTP,
            SCTP_SOCKOPT_CONNECTX3,
            (&raw mut param).cast(),
            &mut size,
        )
    });
    match rc {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(param.association),
    }
}

/// A socket address in the kernel's form, and its length.
pub(crate) fn to_sockaddr(a: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero octets are a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let octets = sockaddr_octets(a);
    // SAFETY: sockaddr_storage is larger than any sockaddr that `sockaddr_octets` makes, and has no invalid values.
    unsafe {
        std::ptr::copy_nonoverlapping(octets.as_ptr(), (&raw mut storage).cast::<u8>(), octets.len());
    }
    (storage, octets.len() as libc::socklen_t)
}

/// A socket address as the octets of `sockaddr_in` or `sockaddr_in6`.
pub(crate) fn sockaddr_octets(a: SocketAddr) -> Vec<u8> {
    let mut o = Vec::with_capacity(28);
    o.extend_from_slice(&(family(a.ip()) as u16).to_ne_bytes());
    o.extend_from_slice(&a.port().to_be_bytes());
    match a {
        SocketAddr::V4(a) => {
            o.extend_from_slice(&a.ip().octets());
            o.extend_from_slice(&[0; 8]);
        }
        SocketAddr::V6(a) => {
            o.extend_from_slice(&a.flowinfo().to_be_bytes());
            o.extend_from_slice(&a.ip().octets());
            o.extend_from_slice(&a.scope_id().to_ne_bytes());
        }
    }
    o
}

/// Reads a `sockaddr_in` or `sockaddr_in6` from octets; an IPv4-mapped address becomes the IPv4 one.
pub(crate) fn read_sockaddr(o: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*o.first_chunk()?);
    let port = u16::from_be_bytes(*o.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(*o.get(4..)?.first_chunk::<4>()?);
            Some(SocketAddrV4::new(ip, port).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(*o.get(8..)?.first_chunk::<16>()?);
            let scope = u32::from_ne_bytes(*o.get(24..)?.first_chunk()?);
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddrV4::new(ip, port).into(),
                None => SocketAddrV6::new(ip, port, 0, scope).into(),
            })
        }
        _ => None,
    }
}

/// The octets of a socket address that the kernel wrote.
fn storage_octets(s: &libc::sockaddr_storage) -> &[u8] {
    // SAFETY: any initialised struct may be read as octets; sockaddr_storage has no padding that is not initialised
    // here, because it begins as zeros.
    unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(s).cast::<u8>(), size_of::<libc::sockaddr_storage>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses_survive_the_kernels_form() {
        for a in ["127.0.0.1:38412", "[fd00::1]:9899"] {
            let a: SocketAddr = a.parse().unwrap();
            let (storage, _) = to_sockaddr(a);
            assert_eq!(read_sockaddr(storage_octets(&storage)), Some(a));
        }
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:7".parse().unwrap();
        assert_eq!(read_sockaddr(&sockaddr_octets(mapped)), Some("10.0.0.1:7".parse().unwrap()));
        assert_eq!(read_sockaddr(&[1, 2]), None);
    }
}
