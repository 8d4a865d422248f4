//! A UDP socket that receives and sends many datagrams per system call.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use whimbrel_user::Packet;

/// Datagrams in one system call at most.
pub(crate) const BATCH: usize = 32;

/// Octets asked of the kernel for what arrives while the thread is busy: 2 ms at 10 Gbit/s. The kernel may give less.
const RECEIVE_BUFFER_OCTETS: libc::c_int = 4 << 20;

/// The option that reads a socket's memory figures (asm-generic/socket.h); `libc` has it not.
const SO_MEMINFO: libc::c_int = 55;

/// The accumulator, as what a classic program returns (linux/filter.h); `libc` has it not.
const BPF_A: u32 = 0x10;

/// Octets of a control message with a type of service.
const CONTROL_OCTETS: usize = 24;

/// The socket, and the arrays that its system calls read.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    local: IpAddr,
    names: Box<[libc::sockaddr_storage]>,
    parts: Box<[libc::iovec]>,
    controls: Box<[[u64; CONTROL_OCTETS / 8]]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the raw pointers in `parts` and `headers` are written anew before each system call that reads them, and mean
// nothing between calls.
unsafe impl Send for Datagrams {}

impl Datagrams {
    /// Binds so many sockets to one address. What comes for a tunnel goes to the one whose number the lowest bits of the tunnel, less
    /// one, say. Errors: those of `bind`.
    pub(crate) fn bind(address: SocketAddr, sockets: usize) -> io::Result<Vec<Self>> {
        if sockets == 1 {
            return Ok(vec![Self::of(UdpSocket::bind(address)?, address)?]);
        }
        if in_use(address) {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        let all = (0..sockets).map(|_| Self::of(bind_shared(address)?, address));
        let all: Vec<_> = all.collect::<io::Result<_>>()?;
        steer_by_tunnel(&all[0].socket, sockets)?;
        Ok(all)
    }

    fn of(socket: UdpSocket, address: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let set = |level, name, value: libc::c_int| {
            // SAFETY: the option's value is one int, which lives through the call. What the kernel does not grant is
            // not needed.
            unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    level,
                    name,
                    (&raw const value).cast(),
                    size_of::<libc::c_int>() as _,
                )
            }
        };
        // The first may go beyond net.core.rmem_max and needs CAP_NET_ADMIN, which the TUN device needs too.
        if set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_OCTETS) != 0 {
            set(libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER_OCTETS);
        }
        // Outer packets may be fragmented: a phone's packet of full size must reach a gNB behind a link of 1,500.
        match address {
            SocketAddr::V4(_) => set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
            SocketAddr::V6(_) => set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        };
        // SAFETY: for these plain C structs all zeroes are values.
        let (name, part, header) = unsafe { (zeroed(), zeroed::<libc::iovec>(), zeroed::<libc::mmsghdr>()) };
        Ok(Self {
            socket,
            local: address.ip(),
            names: vec![name; BATCH].into(),
            parts: vec![part; BATCH].into(),
            controls: vec![[0; CONTROL_OCTETS / 8]; BATCH].into(),
            headers: vec![header; BATCH].into(),
        })
    }

    /// The address at which datagrams arrive.
    pub(crate) fn local(&self) -> IpAddr {
        self.local
    }

    /// Datagrams that the kernel has dropped because the socket's buffer was full.
    pub(crate) fn lost(&self) -> u64 {
        let mut figures = [0u32; libc::SK_MEMINFO_DROPS as usize + 1];
        let mut octets = size_of_val(&figures) as libc::socklen_t;
        // SAFETY: the figures are as many writable octets as said.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_MEMINFO,
                figures.as_mut_ptr().cast(),
                &mut octets,
            )
        };
        if result == 0 { figures[libc::SK_MEMINFO_DROPS as usize].into() } else { 0 }
    }

    /// Receives into the packets, from the first on, and says where each came from; how many there were.
    pub(crate) fn receive<'p>(
        &mut self,
        packets: impl Iterator<Item = &'p mut Packet>,
        mut each: impl FnMut(usize, SocketAddr, usize),
    ) -> io::Result<usize> {
        let mut offered = 0;
        for (i, packet) in packets.take(BATCH).enumerate() {
            let room = packet.room();
            self.parts[i] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            self.prepare(i, size_of::<libc::sockaddr_storage>(), 0);
            offered = i + 1;
        }
        // SAFETY: the first `offered` headers point at names and parts of `self` that nothing else touches during the
        // call, and these at the rooms of packets that the iterator lent exclusively and that outlive the call.
        let received = super::check(unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                offered as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        });
        let received = match received {
            Ok(n) => n as usize,
            Err(e) if would_block(&e) => 0,
            Err(e) => return Err(e),
        };
        for i in 0..received {
            // A datagram longer than the room is cut by the kernel, and then not a whole packet for the pipeline.
            if let Some(peer) = address(&self.names[i]) {
                each(i, peer, self.headers[i].msg_len as usize);
            }
        }
        Ok(received)
    }

    /// Sends packets, at most [`BATCH`]; how many the kernel took.
    pub(crate) fn send<'p>(
        &mut self,
        packets: impl Iterator<Item = (SocketAddr, u8, &'p [u8])>,
    ) -> io::Result<usize> {
        let mut offered = 0;
        for (i, (peer, tos, octets)) in packets.take(BATCH).enumerate() {
            self.parts[i] =
                libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
            let name_octets = set_address(&mut self.names[i], peer);
            let control_octets = if tos == 0 { 0 } else { self.mark(i, peer.is_ipv4(), tos) };
            self.prepare(i, name_octets, control_octets);
            offered = i + 1;
        }
        // SAFETY: as in `receive`; the kernel only reads the parts of a message that it sends.
        let sent = super::check(unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                offered as _,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        });
        match sent {
            Ok(n) => Ok(n as usize),
            Err(e) if would_block(&e) => Ok(0),
            Err(e) => Err(e),
        }
    }

    fn prepare(&mut self, i: usize, name_octets: usize, control_octets: usize) {
        // SAFETY: for this plain C struct all zeroes are a value.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_name = (&raw mut self.names[i]).cast();
        header.msg_namelen = name_octets as _;
        header.msg_iov = &raw mut self.parts[i];
        header.msg_iovlen = 1;
        if control_octets > 0 {
            header.msg_control = self.controls[i].as_mut_ptr().cast();
            header.msg_controllen = control_octets as _;
        }
        self.headers[i] = libc::mmsghdr { msg_hdr: header, msg_len: 0 };
    }

    /// Writes a control message with a type of service; its octets.
    fn mark(&mut self, i: usize, ipv4: bool, tos: u8) -> usize {
        let (level, kind) =
            if ipv4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
        // struct cmsghdr (length, level, type), then an int, padded to eight octets.
        const LENGTH: u64 = 16 + 4;
        let kinds = [level.to_ne_bytes(), kind.to_ne_bytes()].concat();
        let mut word = [0; 8];
        word.copy_from_slice(&kinds);
        let mut value = [0; 8];
        value[..4].copy_from_slice(&i32::from(tos).to_ne_bytes());
        self.controls[i] = [LENGTH, u64::from_ne_bytes(word), u64::from_ne_bytes(value)];
        CONTROL_OCTETS
    }
}

// The layout that `mark` writes is that of 64-bit Linux.
const _: () = assert!(size_of::<libc::cmsghdr>() == 16 && size_of::<usize>() == 8);

/// Whether somebody has the address for himself. A socket that shares it would not be told of others that share it too.
fn in_use(address: SocketAddr) -> bool {
    matches!(UdpSocket::bind(address), Err(e) if e.kind() == io::ErrorKind::AddrInUse)
}

/// A socket that shares its address with others of this user.
fn bind_shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain values in, a descriptor or -1 out.
    let socket = super::owned(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    let one: libc::c_int = 1;
    // SAFETY: the option's value is one int, which lives through the call.
    super::check(unsafe {
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
    // SAFETY: the name is as many octets as said and lives through the call.
    super::check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), octets as _) })?;
    Ok(socket.into())
}

/// Has the kernel choose among sockets that share an address by the tunnel of a datagram (TS 29.281 §5.1), with a program of the classic
/// kind, for which nobody needs privileges. What has no tunnel goes to the last.
fn steer_by_tunnel(socket: &UdpSocket, sockets: usize) -> io::Result<()> {
    const TEID_AT: u32 = 4;
    let instruction = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, TEID_AT),
        instruction(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, 1),
        instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, sockets as u32 - 1),
        instruction(libc::BPF_RET | BPF_A, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as _, filter: program.as_mut_ptr() };
    // SAFETY: the option's value names the program, and both live through the call.
    super::check(unsafe {
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

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn would_block(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
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

fn set_address(name: &mut libc::sockaddr_storage, to: SocketAddr) -> usize {
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
