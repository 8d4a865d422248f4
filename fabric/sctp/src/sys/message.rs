//! One message with its control data: recvmsg(2) and sendmsg(2), for the kernel's SCTP.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Room for the control data that we asked for, and to spare.
const CONTROL_OCTETS: usize = 256;

/// Control data, aligned as cmsghdr must be.
#[repr(C, align(8))]
struct CmsgBuffer([u8; CONTROL_OCTETS]);

/// What recvmsg returned.
pub(crate) struct ReceivedMessage {
    /// Octets of the message that were written.
    pub(crate) len: usize,
    /// MSG_EOR, MSG_NOTIFICATION and others.
    pub(crate) flags: i32,
    /// Body of the first control message, and its type.
    pub(crate) control: Option<(i32, Vec<u8>)>,
}

/// Receives one message, or a part of one, into `octets`. Never blocks.
pub(crate) fn receive_message(fd: BorrowedFd<'_>, octets: &mut [u8]) -> io::Result<ReceivedMessage> {
    let mut control = CmsgBuffer([0; CONTROL_OCTETS]);
    let mut iovec = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    // SAFETY: all-zero octets are a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_OCTETS as _;
    // SAFETY: the header points to one iovec and to control data with their true lengths; both outlive the call.
    let n = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    const HEADER: usize = size_of::<libc::cmsghdr>();
    #[allow(clippy::unnecessary_cast)] // its type differs between C libraries
    let written = control.0.get(..header.msg_controllen as usize).unwrap_or(&[]);
    let body = written.get(..HEADER).and_then(|h| {
        let len = usize::from_ne_bytes(*h.first_chunk()?);
        let kind = i32::from_ne_bytes(*h.get(HEADER - 4..)?.first_chunk()?);
        Some((kind, written.get(HEADER..len)?.to_vec()))
    });
    Ok(ReceivedMessage { len: usize::try_from(n).unwrap_or(0), flags: header.msg_flags, control: body })
}

/// Sends one message with one control message at level SCTP. Never blocks, never raises SIGPIPE.
pub(crate) fn send_message(fd: BorrowedFd<'_>, octets: &[u8], kind: i32, body: &[u8]) -> io::Result<()> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let len = HEADER + body.len();
    let mut control = CmsgBuffer([0; CONTROL_OCTETS]);
    let Some(room) = control.0.get_mut(..len) else { return Err(io::ErrorKind::InvalidInput.into()) };
    room[..HEADER - 8].copy_from_slice(&len.to_ne_bytes()[..HEADER - 8]);
    room[HEADER - 8..HEADER - 4].copy_from_slice(&libc::IPPROTO_SCTP.to_ne_bytes());
    room[HEADER - 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
    room[HEADER..].copy_from_slice(body);
    // sendmsg only reads through these pointers, although iovec has no const.
    let mut iovec = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    // SAFETY: all-zero octets are a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    if !octets.is_empty() {
        header.msg_iov = &raw mut iovec;
        header.msg_iovlen = 1;
    }
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = len.next_multiple_of(size_of::<usize>()) as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header points to at most one iovec and to control data with their true lengths, all of which outlive
    // the call and are only read.
    let n = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
