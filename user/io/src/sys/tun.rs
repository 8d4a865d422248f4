//! A TUN or TAP device: packets or frames of a data network as reads and writes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::bpf::Program;

/// The request that gives a device a program to choose queues: _IOR('T', 224, int) (linux/if_tun.h); `libc` has it not.
const TUNSETSTEERINGEBPF: libc::c_ulong = 0x8004_54e0;

/// Octets of an interface's name at most, its ending zero aside (IFNAMSIZ).
pub(crate) const NAME_OCTETS_MAX: usize = 15;

/// The request of TUNSETIFF: struct ifreq with its flags.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: libc::c_short,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

/// What a device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// IP packets (TUN).
    Packets,
    /// Ethernet frames (TAP).
    Frames,
}

/// A TUN or TAP device that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Tun(File);

impl Tun {
    /// Makes a device, with so many queues. Errors: those of opening /dev/net/tun and of TUNSETIFF (`EBUSY` where another program has
    /// it).
    pub(crate) fn open(name: &str, kind: Kind, queues: usize) -> io::Result<Vec<Self>> {
        (0..queues).map(|_| Self::open_queue(name, kind, queues > 1)).collect()
    }

    /// Makes a device, or one more queue of one that has several.
    fn open_queue(name: &str, kind: Kind, one_of_several: bool) -> io::Result<Self> {
        if name.is_empty() || name.len() > NAME_OCTETS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        let layer = match kind {
            Kind::Packets => libc::IFF_TUN,
            Kind::Frames => libc::IFF_TAP,
        };
        let several = if one_of_several { libc::IFF_MULTI_QUEUE } else { 0 };
        let mut request = InterfaceRequest {
            name: [0; 16],
            flags: (layer | several | libc::IFF_NO_PI) as libc::c_short,
            rest: [0; 22],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: TUNSETIFF reads and writes one struct ifreq, whose size the request has.
        super::check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })?;
        Ok(Self(file))
    }

    /// Has a program choose the queue of each packet.
    pub(crate) fn steer(&self, program: &Program) -> io::Result<()> {
        let fd = program.fd();
        // SAFETY: TUNSETSTEERINGEBPF reads one int, which lives through the call.
        super::check(unsafe { libc::ioctl(self.0.as_raw_fd(), TUNSETSTEERINGEBPF as _, &fd) }).map(drop)
    }

    /// Takes a packet; 0 if none is there.
    pub(crate) fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.0.read(room) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    pub(crate) fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        self.0.write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
