//! Requests to the kernel over netlink: built octet by octet, answered by an acknowledgement each.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// How long the kernel may take to answer; it answers at once or not at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Octets of a netlink message's header.
const HEADER_OCTETS: usize = 16;

/// A netlink socket.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// A request under construction: the header, a fixed part, attributes.
pub(crate) struct Request(Vec<u8>);

impl Request {
    pub(crate) fn new(kind: u16, flags: libc::c_int, fixed: &[u8]) -> Self {
        let mut m = vec![0; HEADER_OCTETS];
        m[4..6].copy_from_slice(&kind.to_ne_bytes());
        m[6..8].copy_from_slice(&((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        m.extend_from_slice(fixed);
        Self(m)
    }

    /// Appends an attribute.
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends an attribute that holds attributes.
    pub(crate) fn nested(self, kind: u16, inside: Attributes) -> Self {
        self.attribute(kind | libc::NLA_F_NESTED as u16, &inside.0)
    }
}

/// Attributes on their own, to be nested.
#[derive(Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn with(self, kind: u16, value: &[u8]) -> Self {
        Self(Request(self.0).attribute(kind, value).0)
    }

    pub(crate) fn nested(self, kind: u16, inside: Attributes) -> Self {
        Self(Request(self.0).nested(kind, inside).0)
    }
}

impl Netlink {
    /// A socket of a netlink family (`NETLINK_ROUTE`, `NETLINK_NETFILTER`).
    pub(crate) fn open(family: libc::c_int) -> io::Result<Self> {
        // SAFETY: plain values in, a descriptor or -1 out.
        let socket = super::owned(unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, family)
        })?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends requests as one message and waits until each is acknowledged. Errors: the first that the kernel refuses.
    pub(crate) fn ask(&mut self, requests: Vec<Request>) -> io::Result<()> {
        let mut message = Vec::new();
        let mut awaited = 0;
        for Request(mut r) in requests {
            self.sequence += 1;
            let len = r.len() as u32;
            r[0..4].copy_from_slice(&len.to_ne_bytes());
            r[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
            let flags = u16::from_ne_bytes([r[6], r[7]]);
            awaited += u32::from(flags & libc::NLM_F_ACK as u16 != 0);
            message.extend_from_slice(&r);
            message.resize(message.len().next_multiple_of(4), 0);
        }
        // SAFETY: `message` is as many readable octets as said.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        while awaited > 0 {
            awaited = awaited.saturating_sub(self.acknowledged()?);
        }
        Ok(())
    }

    /// Reads one answer: how many acknowledgements it holds.
    fn acknowledged(&self) -> io::Result<u32> {
        let mut polled = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry is given, and it lives through the call.
        if super::check(unsafe { libc::poll(&mut polled, 1, ANSWER_WITHIN.as_millis() as _) })? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut answer = vec![0u8; 16_384];
        // SAFETY: `answer` is as many writable octets as said.
        let n = unsafe { libc::recv(self.socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut rest = &answer[..n as usize];
        let mut count = 0;
        while rest.len() >= HEADER_OCTETS + 4 {
            let len = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            let kind = u16::from_ne_bytes([rest[4], rest[5]]);
            if libc::c_int::from(kind) == libc::NLMSG_ERROR {
                let code = i32::from_ne_bytes([rest[16], rest[17], rest[18], rest[19]]);
                if code != 0 {
                    return Err(io::Error::from_raw_os_error(-code));
                }
                count += 1;
            }
            rest = rest.get(len.next_multiple_of(4).max(4)..).unwrap_or_default();
        }
        Ok(count)
    }
}

/// The index of an interface.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: `name` is a string that ends with a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
