//! Requests to the kernel over netlink: built octet by octet, answered by an acknowledgement each.

use std::ffi::CString;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long the kernel may take to answer; it answers at once or not at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Octets of a netlink message's header.
const HEADER_OCTETS: usize = 16;
/// Octets that the kernel puts into one answer at most (NLMSG_GOODSIZE for lists).
const ANSWER_OCTETS_MAX: usize = 32_768;

/// A netlink socket.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// A request under construction: the header, a fixed part, attributes.
pub(crate) struct NetlinkRequest(Vec<u8>);

impl NetlinkRequest {
    pub(crate) fn new(kind: u16, flags: libc::c_int, fixed: &[u8]) -> Self {
        let mut m = vec![0; HEADER_OCTETS];
        m[4..6].copy_from_slice(&kind.to_ne_bytes());
        m[6..8].copy_from_slice(&((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        m.extend_from_slice(fixed);
        Self(m)
    }

    fn flags(&self) -> u16 {
        u16::from_ne_bytes([self.0[6], self.0[7]])
    }

    fn wants_acknowledgement(&self) -> bool {
        self.flags() & libc::NLM_F_ACK as u16 != 0
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
        Self(NetlinkRequest(self.0).attribute(kind, value).0)
    }

    pub(crate) fn nested(self, kind: u16, inside: Attributes) -> Self {
        Self(NetlinkRequest(self.0).nested(kind, inside).0)
    }

    /// As they stand in a message.
    #[cfg(test)]
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
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

    /// Has the kernel leave out of its lists what a request does not ask for (Linux 4.20); an older one lists all.
    pub(crate) fn filter_strictly(&mut self) {
        const NETLINK_GET_STRICT_CHK: libc::c_int = 12;
        let one: libc::c_int = 1;
        // SAFETY: the option's value is one int, which lives through the call. Where there is no such option, nothing changes.
        unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_NETLINK,
                NETLINK_GET_STRICT_CHK,
                (&raw const one).cast(),
                size_of::<libc::c_int>() as _,
            )
        };
    }

    /// Receives what the kernel reports to groups of listeners from now on.
    pub(crate) fn subscribe(&mut self, groups: u32) -> io::Result<()> {
        // SAFETY: for this plain C struct all zeroes are a value.
        let mut name: libc::sockaddr_nl = unsafe { zeroed() };
        (name.nl_family, name.nl_groups) = (libc::AF_NETLINK as _, groups);
        // SAFETY: the name is as many octets as given and lives through the call.
        super::check(unsafe {
            libc::bind(self.socket.as_raw_fd(), (&raw const name).cast(), size_of_val(&name) as _)
        })
        .map(drop)
    }

    /// Takes what was reported, unseen: that there was something is all. Where the kernel had no room for more, it is as much.
    pub(crate) fn drain(&mut self) {
        let mut octets = [0u8; 8192];
        loop {
            let (fd, room) = (self.socket.as_raw_fd(), octets.as_mut_ptr().cast());
            // SAFETY: `octets` is as many writable octets as given.
            let n = unsafe { libc::recv(fd, room, octets.len(), libc::MSG_DONTWAIT) };
            if n < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOBUFS) {
                return;
            }
        }
    }

    /// Sends requests as one message and waits until each is acknowledged. Errors: the first that the kernel refuses.
    pub(crate) fn ask(&mut self, requests: Vec<NetlinkRequest>) -> io::Result<()> {
        let awaited = requests.iter().filter(|r| r.wants_acknowledgement()).count();
        self.send(requests)?;
        let mut acknowledged = 0;
        while acknowledged < awaited {
            for (kind, content) in messages(&self.receive()?) {
                if kind == libc::NLMSG_ERROR {
                    refused(content)?;
                    acknowledged += 1;
                }
            }
        }
        Ok(())
    }

    /// Sends a request and collects what the kernel answers: one message, or all of a list where the request has
    /// `NLM_F_DUMP`; each without its header. Errors: the kernel's refusal.
    pub(crate) fn query(&mut self, request: NetlinkRequest) -> io::Result<Vec<Vec<u8>>> {
        let list = request.flags() & libc::NLM_F_DUMP as u16 == libc::NLM_F_DUMP as u16;
        self.send(vec![request])?;
        let mut answers = Vec::new();
        loop {
            for (kind, content) in messages(&self.receive()?) {
                match kind {
                    libc::NLMSG_ERROR => refused(content)?,
                    libc::NLMSG_DONE => return Ok(answers),
                    _ => answers.push(content.to_vec()),
                }
            }
            if !list {
                return Ok(answers);
            }
        }
    }

    fn send(&mut self, requests: Vec<NetlinkRequest>) -> io::Result<()> {
        let mut message = Vec::new();
        for NetlinkRequest(mut r) in requests {
            self.sequence += 1;
            let len = r.len() as u32;
            r[0..4].copy_from_slice(&len.to_ne_bytes());
            r[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
            message.extend_from_slice(&r);
            message.resize(message.len().next_multiple_of(4), 0);
        }
        // SAFETY: `message` is as many readable octets as given.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits for what the kernel says next.
    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut polled = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry is given, and it lives through the call.
        if super::check(unsafe { libc::poll(&mut polled, 1, ANSWER_WITHIN.as_millis() as _) })? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut answer = vec![0u8; ANSWER_OCTETS_MAX];
        // SAFETY: `answer` is as many writable octets as given.
        let n = unsafe { libc::recv(self.socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        answer.truncate(n as usize);
        Ok(answer)
    }
}

/// The messages of an answer: kind, and what follows the header.
fn messages(answer: &[u8]) -> impl Iterator<Item = (libc::c_int, &[u8])> {
    let mut rest = answer;
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes([*rest.get(4)?, *rest.get(5)?]);
        let content = rest.get(HEADER_OCTETS..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind.into(), content))
    })
}

/// What a message of the kind NLMSG_ERROR says: nothing bad, or an error.
fn refused(content: &[u8]) -> io::Result<()> {
    match content.first_chunk().map(|c| i32::from_ne_bytes(*c)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The attributes in an answer's octets: kind and value.
pub(crate) fn attributes(octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]);
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !(libc::NLA_F_NESTED as u16), value))
    })
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
