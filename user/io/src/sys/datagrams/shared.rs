//! Sockets that share an address, one for each packet thread.

use std::io;
use std::mem::zeroed;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use whimbrel_user::Teids;

use super::names::set_address;
use crate::sys::{check, owned};

/// The accumulator, as what a classic program returns (linux/filter.h); `libc` has it not.
const BPF_A: u32 = 0x10;

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

/// Has the kernel choose among sockets that share an address by the tunnel of a datagram (TS 29.281 §5.1), with a program of the classic
/// kind, which needs no privileges. What has no tunnel goes to any.
pub(super) fn steer_by_tunnel(socket: &UdpSocket, sockets: usize, teids: &Teids) -> io::Result<()> {
    const TEID_AT: u32 = 4;
    let instruction = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, TEID_AT)];
    // As `Teids::index_of`.
    for round in teids.rounds() {
        program.extend([
            instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K, round.key),
            instruction(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, round.multiplier),
            instruction(libc::BPF_MISC | libc::BPF_TAX, 0),
            instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, round.shift),
            instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        ]);
    }
    program.extend([
        instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K, teids.last()),
        instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, sockets as u32 - 1),
        instruction(libc::BPF_RET | BPF_A, 0),
    ]);
    let filter = libc::sock_fprog { len: program.len() as _, filter: program.as_mut_ptr() };
    // SAFETY: the option's value names the program, and both live through the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of_val(&filter) as _,
        )
    })
    .map(drop)
}
