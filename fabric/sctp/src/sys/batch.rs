//! Many packets with one call: recvmmsg(2) and sendmmsg(2). One call a packet costs about three times as much.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{check, read_sockaddr, storage_octets, to_sockaddr};

/// Packets moved with one call. Beyond 32 nothing more is gained.
pub(crate) const BATCH: usize = 32;
/// The largest IP packet; peers on the same host send up to the loopback's 64 KiB.
const PACKET_OCTETS_MAX: usize = 65_536;
/// Room for one in_pktinfo or in6_pktinfo with its header, and to spare.
const CONTROL_OCTETS: usize = 64;

/// Control data, aligned as cmsghdr must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct CmsgBuffer([u8; CONTROL_OCTETS]);

/// Buffers for a batch of received packets.
pub(crate) struct ReceiveBatch {
    octets: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<CmsgBuffer>,
    /// Octets of the packet, and octets of control data, of each packet of the last batch.
    lengths: Vec<(usize, usize)>,
}

impl ReceiveBatch {
    pub(crate) fn new() -> Self {
        // SAFETY: all-zero octets are a valid sockaddr_storage.
        let name: libc::sockaddr_storage = unsafe { zeroed() };
        Self {
            octets: vec![0; BATCH * PACKET_OCTETS_MAX],
            names: vec![name; BATCH],
            controls: vec![CmsgBuffer([0; CONTROL_OCTETS]); BATCH],
            lengths: Vec::with_capacity(BATCH),
        }
    }

    /// Receives what is there, at most a batch; returns how many packets. Never blocks.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: all-zero octets are valid mmsghdr and iovec values.
        let (mut headers, mut iovecs): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) = unsafe { zeroed() };
        let buffers = self.octets.chunks_exact_mut(PACKET_OCTETS_MAX);
        let parts =
            headers.iter_mut().zip(&mut iovecs).zip(buffers).zip(&mut self.names).zip(&mut self.controls);
        for ((((header, iovec), buffer), name), control) in parts {
            iovec.iov_base = buffer.as_mut_ptr().cast();
            iovec.iov_len = buffer.len();
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_OCTETS as _;
        }
        self.lengths.clear();
        // SAFETY: each header points to an iovec, a buffer, a name and control data with their true lengths; all
        // outlive the call, none is shared with another header.
        let n = check(unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        })?;
        let n = usize::try_from(n).unwrap_or(0).min(BATCH);
        #[allow(clippy::unnecessary_cast)] // msg_controllen has another type with other C libraries
        let length = |h: &libc::mmsghdr| (h.msg_len as usize, h.msg_hdr.msg_controllen as usize);
        self.lengths.extend(headers[..n].iter().map(length));
        Ok(n)
    }

    /// Packet `i` of the last batch: its octets, its source address, and its destination address, if known.
    pub(crate) fn packet(&self, i: usize) -> Option<(&[u8], SocketAddr, Option<IpAddr>)> {
        let (len, control_len) = *self.lengths.get(i)?;
        let start = i * PACKET_OCTETS_MAX;
        let octets = self.octets.get(start..start + len.min(PACKET_OCTETS_MAX))?;
        let from = read_sockaddr(storage_octets(self.names.get(i)?))?;
        let control = self.controls.get(i)?.0.get(..control_len)?;
        Some((octets, from, destination(control)))
    }
}

/// Our address in a packet's control data: the first cmsg, whose header is a length, a level and a type.
fn destination(control: &[u8]) -> Option<IpAddr> {
    let word = |at: usize| control.get(at..)?.first_chunk::<4>().map(|o| i32::from_ne_bytes(*o));
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let (level, kind) = (word(HEADER - 8)?, word(HEADER - 4)?);
    match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // ipi_ifindex, ipi_spec_dst, ipi_addr: the last is the packet's destination.
            let o = control.get(HEADER + 8..)?.first_chunk::<4>()?;
            Some(Ipv4Addr::from(*o).into())
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let o = control.get(HEADER..)?.first_chunk::<16>()?;
            Some(Ipv6Addr::from(*o).into())
        }
        _ => None,
    }
}

/// Writes the control data that sets a packet's source address; returns its length.
fn write_source(control: &mut CmsgBuffer, source: IpAddr) -> usize {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let mut o = [0; CONTROL_OCTETS];
    let (level, kind, body) = match source {
        IpAddr::V4(a) => {
            o[HEADER + 4..HEADER + 8].copy_from_slice(&a.octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 12)
        }
        IpAddr::V6(a) => {
            o[HEADER..HEADER + 16].copy_from_slice(&a.octets());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20)
        }
    };
    let len = HEADER + body;
    o[..HEADER - 8].copy_from_slice(&len.to_ne_bytes()[..HEADER - 8]);
    o[HEADER - 8..HEADER - 4].copy_from_slice(&level.to_ne_bytes());
    o[HEADER - 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
    control.0 = o;
    len.next_multiple_of(size_of::<usize>())
}

/// A packet to send: its octets, where to, and with which source address if not the socket's own.
pub(crate) type OutgoingPacket<'a> = (&'a [u8], SocketAddr, Option<IpAddr>);

/// Sends packets in order until one is refused; returns how many went. Never blocks.
pub(crate) fn send_batch(fd: BorrowedFd<'_>, packets: &[OutgoingPacket<'_>]) -> io::Result<usize> {
    // SAFETY: all-zero octets are valid values of these three.
    let (mut headers, mut iovecs, mut names): (
        [libc::mmsghdr; BATCH],
        [libc::iovec; BATCH],
        [libc::sockaddr_storage; BATCH],
    ) = unsafe { zeroed() };
    let mut controls = [CmsgBuffer([0; CONTROL_OCTETS]); BATCH];
    let n = packets.len().min(BATCH);
    for (i, (octets, to, source)) in packets.iter().take(n).enumerate() {
        let header = &mut headers[i].msg_hdr;
        // sendmmsg only reads through this pointer, although iovec has no const.
        iovecs[i].iov_base = octets.as_ptr().cast_mut().cast();
        iovecs[i].iov_len = octets.len();
        header.msg_iov = &raw mut iovecs[i];
        header.msg_iovlen = 1;
        let (name, len) = to_sockaddr(*to);
        names[i] = name;
        header.msg_name = (&raw mut names[i]).cast();
        header.msg_namelen = len;
        if let Some(source) = source {
            let len = write_source(&mut controls[i], *source);
            header.msg_control = controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = len as _;
        }
    }
    // SAFETY: the first `n` headers point to packets, names and control data with their true lengths, all of which
    // outlive the call and are only read.
    let sent = check(unsafe {
        libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), n as libc::c_uint, libc::MSG_DONTWAIT)
    })?;
    Ok(usize::try_from(sent).unwrap_or(0))
}
