//! A UDP socket that receives and sends many datagrams per system call.

mod control;
mod joined;
mod names;
mod row;
mod shared;
mod spread;
#[cfg(test)]
mod tests;
mod ttl;

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use whimbrel_user::{Packet, Teids};

use crate::config::SpreadBy;
use control::ControlMessages;
use joined::JoinedDatagrams;
use names::{address, set_address};
use row::Row;
use shared::{bind_shared, in_use};
pub use ttl::TtlSocket;

/// Datagrams in one system call at most.
pub(crate) const BATCH: usize = 32;

/// Octets asked of the kernel for what arrives while the thread is busy: 2 ms at 10 Gbit/s. The kernel may give less.
const RECEIVE_BUFFER_OCTETS: libc::c_int = 4 << 20;

/// The option that reads a socket's memory figures (asm-generic/socket.h); `libc` has it not.
const SO_MEMINFO: libc::c_int = 55;

/// Octets that joined datagrams may have beyond the room of a packet: with it they have what an IP packet can have.
const BEYOND_OCTETS: usize = 64 << 10;

/// The socket, and the arrays that its system calls read.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    local: IpAddr,
    names: Box<[libc::sockaddr_storage]>,
    parts: Box<[libc::iovec]>,
    controls: Box<[ControlMessages]>,
    /// Octets of a datagram that the kernel cuts messages into, at most; it says that by refusing.
    segments: usize,
    /// Where what is received of joined datagrams goes beyond the room of a packet; nothing where none are joined.
    beyond: Box<[u8]>,
    /// The parts of messages that may go there.
    pairs: Box<[[libc::iovec; 2]]>,
    joined: JoinedDatagrams,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the raw pointers in `parts` and `headers` are written before each system call that reads them, and mean
// nothing between calls.
unsafe impl Send for Datagrams {}

impl Datagrams {
    /// Binds one socket to an address. Errors: those of `bind`.
    #[cfg(any(test, feature = "measure"))]
    pub(crate) fn bind_one(address: SocketAddr) -> io::Result<Self> {
        Self::of(UdpSocket::bind(address)?, address, true)
    }

    /// Binds so many sockets to one address. Errors: those of `bind`.
    pub(crate) fn sockets(address: SocketAddr, sockets: usize) -> io::Result<Vec<UdpSocket>> {
        if sockets == 1 {
            return UdpSocket::bind(address).map(|only| vec![only]);
        }
        if in_use(address) {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        (0..sockets).map(|_| bind_shared(address)).collect()
    }

    /// Has the kernel choose among so many sockets of this one's address, a power of two. Errors: those of setsockopt(2).
    pub(crate) fn spread(&self, by: SpreadBy, sockets: usize, teids: &Teids) -> io::Result<()> {
        spread::spread(&self.socket, by, sockets, teids)
    }

    /// Has the kernel hand over datagrams of one peer in a row, of one size, as one message, where it comes by them so. Not for one of
    /// several sockets: joined datagrams are of many tunnels.
    fn join(&mut self) {
        let one: libc::c_int = 1;
        // SAFETY: the option's value is one int, which lives through the call.
        let set = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_GRO,
                (&raw const one).cast(),
                size_of::<libc::c_int>() as _,
            )
        };
        if set == 0 {
            self.beyond = vec![0; BATCH * BEYOND_OCTETS].into();
        }
    }

    /// A socket that is bound to an address; the `only` one there, or one of several. Errors: those of fcntl(2).
    pub(crate) fn of(socket: UdpSocket, address: SocketAddr, only: bool) -> io::Result<Self> {
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
        // Outer packets may be fragmented: a UE's packet of full size must reach a gNB behind a link of 1,500.
        match address {
            SocketAddr::V4(_) => set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
            SocketAddr::V6(_) => set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        };
        // SAFETY: for these plain C structs all zeroes are values.
        let (name, part, header) = unsafe { (zeroed(), zeroed::<libc::iovec>(), zeroed::<libc::mmsghdr>()) };
        let mut it = Self {
            socket,
            local: address.ip(),
            names: vec![name; BATCH].into(),
            parts: vec![part; BATCH].into(),
            controls: vec![ControlMessages::default(); BATCH].into(),
            segments: usize::MAX,
            beyond: Box::default(),
            pairs: vec![[part; 2]; BATCH].into(),
            joined: JoinedDatagrams::default(),
            headers: vec![header; BATCH].into(),
        };
        if only {
            it.join();
        }
        Ok(it)
    }

    /// The address at which datagrams arrive.
    pub(crate) fn local(&self) -> IpAddr {
        self.local
    }

    /// Datagrams that the kernel has dropped because the socket's buffer was full.
    pub(crate) fn lost(&self) -> u64 {
        let mut figures = [0u32; libc::SK_MEMINFO_DROPS as usize + 1];
        let mut octets = size_of_val(&figures) as libc::socklen_t;
        // SAFETY: the figures are as many writable octets as given.
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

    /// Receives into the packets, from the first on, and says where each came from; how many there were. What the kernel hands over
    /// joined is cut again; what of it finds no packet waits for the next call.
    pub(crate) fn receive<'p>(
        &mut self,
        packets: impl Iterator<Item = &'p mut Packet>,
        mut each: impl FnMut(usize, SocketAddr, usize),
    ) -> io::Result<usize> {
        let mut lent: [Option<&mut Packet>; BATCH] = [const { None }; BATCH];
        let mut offered = 0;
        for (to, packet) in lent.iter_mut().zip(packets) {
            *to = Some(packet);
            offered += 1;
        }
        let lent = &mut lent[..offered];
        if !self.joined.is_empty() {
            return Ok(self.joined.take(lent, each));
        }
        for (i, packet) in lent.iter_mut().flatten().enumerate() {
            let room = packet.room();
            self.parts[i] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            self.controls[i] = ControlMessages::room_for_one();
            self.prepare(i, size_of::<libc::sockaddr_storage>());
            if let Some(beyond) = self.beyond.get_mut(i * BEYOND_OCTETS..(i + 1) * BEYOND_OCTETS) {
                let parts = [
                    self.parts[i],
                    libc::iovec { iov_base: beyond.as_mut_ptr().cast(), iov_len: beyond.len() },
                ];
                self.pairs[i] = parts;
                self.headers[i].msg_hdr.msg_iov = self.pairs[i].as_mut_ptr();
                self.headers[i].msg_hdr.msg_iovlen = 2;
            }
        }
        // SAFETY: the first `offered` headers point at names, control messages and parts of `self` that nothing else touches during the
        // call, and these at the rooms of packets that the iterator lent exclusively and that outlive the call, and at `self.beyond`.
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
        if (0..received).all(|i| self.segment(i).is_none()) {
            for i in 0..received {
                // A datagram longer than the room is cut by the kernel, and then not a whole packet for the pipeline.
                if let Some(peer) = address(&self.names[i]) {
                    each(i, peer, self.headers[i].msg_len as usize);
                }
            }
            return Ok(received);
        }
        for (i, packet) in lent.iter_mut().flatten().take(received).enumerate() {
            let octets = self.headers[i].msg_len as usize;
            let room = packet.room();
            let here = octets.min(room.len());
            let beyond = self.beyond.get(i * BEYOND_OCTETS..).unwrap_or_default();
            let beyond = beyond.get(..octets - here).unwrap_or_default();
            if let Some(peer) = address(&self.names[i]) {
                self.joined.put(peer, [&room[..here], beyond], self.segment(i).unwrap_or(octets));
            }
        }
        Ok(self.joined.take(lent, each))
    }

    /// Octets of each datagram of a message that was received, if it is several.
    fn segment(&self, i: usize) -> Option<usize> {
        let control = &self.controls[i];
        let octets = usize::try_from(control.int_of(libc::SOL_UDP, libc::UDP_GRO)?).ok()?;
        let there = self.headers[i].msg_hdr.msg_controllen >= ControlMessages::ONE_OCTETS;
        (there && octets > 0).then_some(octets)
    }

    /// Sends packets, at most [`BATCH`]; how many the kernel took. Those in a row to one peer, of one size but for the last, which may be
    /// shorter, are one message that the kernel, or the device, cuts: most of what a datagram costs the kernel is then paid once.
    ///
    /// Errors: of the first packet; the others may still be sent.
    pub(crate) fn send<'p>(
        &mut self,
        packets: impl Iterator<Item = (SocketAddr, u8, &'p [u8])> + Clone,
    ) -> io::Result<usize> {
        loop {
            let messages = self.messages(packets.clone());
            // SAFETY: the first `messages` headers point at names, parts and control messages of `self` that nothing else touches
            // during the call, and the parts at packets that outlive it; the kernel only reads what it sends.
            let sent = super::check(unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    messages as _,
                    (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
                )
            });
            match sent {
                Ok(n) => return Ok(self.headers[..n as usize].iter().map(|h| h.msg_hdr.msg_iovlen).sum()),
                Err(e) if would_block(&e) => return Ok(0),
                Err(e) if self.headers[0].msg_hdr.msg_iovlen > 1 && is_uncut(&e) => {
                    // They are to be fragmented, or it cannot cut at all. Smaller ones may still be cut.
                    self.segments = self.parts[0].iov_len - 1;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Prepares messages of packets; how many.
    fn messages<'p>(&mut self, packets: impl Iterator<Item = (SocketAddr, u8, &'p [u8])>) -> usize {
        let mut messages = 0;
        let mut row: Option<Row> = None;
        for (i, (peer, tos, octets)) in packets.take(BATCH).enumerate() {
            self.parts[i] =
                libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
            if !row.as_mut().is_some_and(|r| r.takes(peer, tos, octets.len(), self.segments)) {
                messages += usize::from(self.message(messages, row));
                row = Some(Row::new(i, peer, tos, octets.len()));
            }
        }
        messages + usize::from(self.message(messages, row))
    }

    /// Prepares a message of a row of packets; false if there is none.
    fn message(&mut self, at: usize, row: Option<Row>) -> bool {
        let Some(Row { peer, tos, first, octets, packets, .. }) = row else { return false };
        let name_octets = set_address(&mut self.names[at], peer);
        let mut control = ControlMessages::default();
        if tos != 0 {
            match peer {
                SocketAddr::V4(_) => control.int(libc::IPPROTO_IP, libc::IP_TOS, tos.into()),
                SocketAddr::V6(_) => control.int(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos.into()),
            }
        }
        if packets > 1 {
            control.short(libc::SOL_UDP, libc::UDP_SEGMENT, octets as u16);
        }
        self.controls[at] = control;
        self.prepare(at, name_octets);
        self.headers[at].msg_hdr.msg_iov = &raw mut self.parts[first];
        self.headers[at].msg_hdr.msg_iovlen = packets as _;
        true
    }

    fn prepare(&mut self, i: usize, name_octets: usize) {
        // SAFETY: for this plain C struct all zeroes are a value.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_name = (&raw mut self.names[i]).cast();
        header.msg_namelen = name_octets as _;
        header.msg_iov = &raw mut self.parts[i];
        header.msg_iovlen = 1;
        let control = &mut self.controls[i];
        if control.words > 0 {
            header.msg_control = control.octets.as_mut_ptr().cast();
            header.msg_controllen = (control.words * 8) as _;
        }
        self.headers[i] = libc::mmsghdr { msg_hdr: header, msg_len: 0 };
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether the kernel does not cut a message into datagrams of this size: they are longer than the way carries whole, or it is not made
/// for it.
fn is_uncut(e: &io::Error) -> bool {
    let codes = [libc::EINVAL, libc::EMSGSIZE, libc::EIO, libc::EOPNOTSUPP, libc::ENOPROTOOPT];
    e.raw_os_error().is_some_and(|code| codes.contains(&code))
}

fn would_block(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
