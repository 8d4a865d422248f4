//! Lines of JSON over a Unix socket, with descriptors beside them (SCM_RIGHTS, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Octets of a line: a list of descriptors, or a record.
const LINE_OCTETS_MAX: usize = 64 << 10;
/// Descriptors in one message: a unit has some two dozen, one for each packet thread, and two for each area of shared memory.
pub const DESCRIPTORS_MAX: usize = 128;

/// Reads lines, and the descriptors that came with them, in order.
pub struct Lines<'a> {
    stream: &'a UnixStream,
    octets: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl<'a> Lines<'a> {
    pub fn of(stream: &'a UnixStream) -> Self {
        Self { stream, octets: Vec::new(), descriptors: Vec::new() }
    }

    /// The next line; `None` at the end. Errors: those of the socket, and a line that is too long.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.octets.iter().position(|o| *o == b'\n') {
                let mut line: Vec<u8> = self.octets.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            if self.octets.len() > LINE_OCTETS_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.receive()? == 0 {
                return Ok(None);
            }
        }
    }

    /// The first `n` descriptors that have come and were not taken. Errors: there are fewer.
    pub fn take_descriptors(&mut self, n: usize) -> io::Result<Vec<OwnedFd>> {
        if n > self.descriptors.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(self.descriptors.drain(..n).collect())
    }

    fn receive(&mut self) -> io::Result<usize> {
        let mut octets = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut slices = [IoSliceMut::new(&mut octets)];
            match rustix::net::recvmsg(self.stream, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if self.descriptors.len() > 2 * DESCRIPTORS_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.octets.extend_from_slice(octets.get(..received.bytes).unwrap_or_default());
        Ok(received.bytes)
    }
}

/// Sends a line without descriptors, or nothing if there is no room for it: its receiver hangs then.
pub fn beat(stream: &UnixStream) {
    let _ = rustix::net::send(stream, b"[]\n", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Sends a line, and descriptors with its first octet. Errors: those of the socket.
pub fn send(stream: &UnixStream, line: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut octets = line.to_vec();
    octets.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let slices = [IoSlice::new(&octets)];
    let sent = rustix::net::sendmsg(stream.as_fd(), &slices, &mut ancillary, SendFlags::NOSIGNAL)?;
    io::Write::write_all(&mut &*stream, octets.get(sent..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn descriptors_arrive_with_their_line() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"kept").unwrap();
        file.rewind().unwrap();
        send(&near, b"one", &[]).unwrap();
        send(&near, b"two", &[file.as_fd()]).unwrap();
        drop(near);
        let mut lines = Lines::of(&far);
        assert_eq!(lines.next_line().unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(lines.next_line().unwrap().as_deref(), Some(&b"two"[..]));
        let mut received = lines.take_descriptors(1).unwrap();
        let mut text = String::new();
        std::fs::File::from(received.remove(0)).read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept");
        assert!(lines.take_descriptors(1).is_err(), "no more came than were sent");
        assert_eq!(lines.next_line().unwrap(), None);
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            let _ = near.write_all(&vec![b'x'; 2 * LINE_OCTETS_MAX]);
        });
        assert!(Lines::of(&far).next_line().is_err());
        drop(far);
        writer.join().unwrap();
    }
}
