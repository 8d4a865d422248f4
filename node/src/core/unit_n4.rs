//! N4 within a unit while its CTA and its UPF share no memory: Unix datagram sockets in the runtime directory, which only the unit's user may
//! enter. A UDP port would be open to every program of the host.

use std::collections::VecDeque;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use whimbrel_ids::Instant;

use crate::function::UnitDirectory;

/// The largest PFCP message: its length has 16 bits (TS 29.244 §7.2.2.1).
const MESSAGE_OCTETS_MAX: usize = 4 + u16::MAX as usize;
/// Octets that wait for the other end, whose socket the kernel may hold to ten datagrams. What does not fit is repeated by PFCP.
const WAITING_OCTETS_MAX: usize = 4 << 20;
/// Between two attempts to send what waits.
const RETRY: Duration = Duration::from_millis(1);

/// One end of N4 within a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitN4End {
    /// The SMF, in the primary CTA.
    Smf,
    /// The UPF of the unit, a process of its own.
    Upf,
}

impl UnitN4End {
    const fn other(self) -> Self {
        match self {
            Self::Smf => Self::Upf,
            Self::Upf => Self::Smf,
        }
    }

    fn path(self, directory: &UnitDirectory) -> PathBuf {
        directory.n4(match self {
            Self::Smf => "smf",
            Self::Upf => "upf",
        })
    }
}

/// The socket of one end.
pub(super) struct UnitN4 {
    socket: UnixDatagram,
    other: PathBuf,
    buffer: Vec<u8>,
    waiting: VecDeque<Vec<u8>>,
    waiting_octets: usize,
}

impl UnitN4 {
    /// Opens this end; `former`: the socket of the process that this one replaces, with the datagrams that wait in it. Errors: those of bind(2).
    pub(super) fn open(
        directory: &UnitDirectory,
        end: UnitN4End,
        former: Option<OwnedFd>,
    ) -> std::io::Result<Self> {
        let own = end.path(directory);
        let former = former.map(UnixDatagram::from).filter(|socket| is_bound_to(socket, &own));
        let socket = match former {
            Some(socket) => socket,
            None => {
                // A socket file whose process has ended may be left at this path.
                let _ = fs::remove_file(&own);
                let socket = UnixDatagram::bind(&own)?;
                fs::set_permissions(&own, fs::Permissions::from_mode(0o600))?;
                socket
            }
        };
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            other: end.other().path(directory),
            buffer: vec![0; MESSAGE_OCTETS_MAX],
            waiting: VecDeque::new(),
            waiting_octets: 0,
        })
    }

    /// The next message that has come.
    pub(super) fn receive(&mut self) -> Option<&[u8]> {
        loop {
            match self.socket.recv(&mut self.buffer) {
                Ok(octets) => return self.buffer.get(..octets),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends a message, or keeps it while the other end's socket is full. Returns whether it did; PFCP repeats what was lost.
    pub(super) fn send(&mut self, octets: &[u8]) -> bool {
        self.flush();
        if self.waiting.is_empty() {
            match self.socket.send_to(octets, &self.other) {
                Ok(_) => return true,
                Err(e) if is_full(&e) => {}
                Err(_) => return false,
            }
        }
        if self.waiting_octets + octets.len() > WAITING_OCTETS_MAX {
            return false;
        }
        self.waiting_octets += octets.len();
        self.waiting.push_back(octets.to_vec());
        true
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        while let Some(octets) = self.waiting.front() {
            if let Err(e) = self.socket.send_to(octets, &self.other)
                && is_full(&e)
            {
                return;
            }
            self.waiting_octets -= octets.len();
            self.waiting.pop_front();
        }
    }

    /// When [`Self::flush`] is due.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| now + RETRY)
    }
}

impl AsFd for UnitN4 {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// True if datagrams to that path arrive at the socket. A former program may have left a socket of another
/// kind.
fn is_bound_to(socket: &UnixDatagram, path: &Path) -> bool {
    let at = socket.local_addr();
    path.exists() && at.is_ok_and(|at| at.as_pathname() == Some(path))
}

fn is_full(e: &std::io::Error) -> bool {
    e.kind() == ErrorKind::WouldBlock || e.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(folder: &Path) -> (UnitN4, UnitN4) {
        let directory = UnitDirectory::of(folder);
        let open = |end| UnitN4::open(&directory, end, None).unwrap();
        (open(UnitN4End::Smf), open(UnitN4End::Upf))
    }

    #[test]
    fn messages_arrive_in_order_though_the_kernel_takes_few_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let (mut smf, mut upf) = ends(folder.path());
        let message = |n: u32| [n.to_be_bytes().to_vec(), vec![0; 1996]].concat();
        assert!((0..2_000).all(|n| smf.send(&message(n))));
        assert!(smf.next_deadline(Instant(5)).is_some(), "some of them wait");
        for n in 0..2_000 {
            smf.flush();
            assert_eq!(upf.receive(), Some(message(n).as_slice()), "{n}");
        }
        assert_eq!((upf.receive(), smf.next_deadline(Instant(5))), (None, None));
        assert!(upf.send(b"answer"));
        assert_eq!(smf.receive(), Some(&b"answer"[..]));
        // Bounded.
        let taken = (0..10_000).filter(|n| smf.send(&message(*n))).count();
        assert!((WAITING_OCTETS_MAX / 2_000..WAITING_OCTETS_MAX / 2_000 + 1_000).contains(&taken), "{taken}");
    }

    #[test]
    fn what_waits_for_a_upf_that_has_ended_is_with_the_one_that_takes_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let directory = UnitDirectory::of(folder.path());
        let (mut smf, upf) = ends(folder.path());
        let kept = upf.as_fd().try_clone_to_owned().unwrap();
        drop(upf);
        assert!(smf.send(b"request"));
        let mut next = UnitN4::open(&directory, UnitN4End::Upf, Some(kept)).unwrap();
        assert_eq!(next.receive(), Some(&b"request"[..]));
        // A socket of another kind, as a former version has left it, is of no use.
        let udp: OwnedFd = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
        let mut next = UnitN4::open(&directory, UnitN4End::Upf, Some(udp)).unwrap();
        assert!(smf.send(b"again"));
        assert_eq!(next.receive(), Some(&b"again"[..]));
        drop(next);
        assert!(!smf.send(b"to no peer"));
    }

    #[test]
    fn only_the_unit_s_user_may_send() {
        let folder = tempfile::tempdir().unwrap();
        let _ends = ends(folder.path());
        for name in ["smf", "upf"] {
            let mode = fs::metadata(UnitDirectory::of(folder.path()).n4(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
