//! A TUN or TAP device: packets or frames of a data network as reads and writes.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::bpf::Program;
use crate::ports::segments::{OFFLOAD_OCTETS, Offload};

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
pub(crate) enum DeviceKind {
    /// IP packets (TUN).
    Packets,
    /// Ethernet frames (TAP).
    Frames,
}

/// A queue of a TUN or TAP device, which ends with its last queue unless it is to stay.
#[derive(Debug)]
pub(crate) struct Tun(File);

impl Tun {
    /// Makes a device, or takes the one that stayed, with so many queues; whether it `stays` when all descriptors of it are closed. Errors: those of opening /dev/net/tun and of TUNSETIFF (`EBUSY` where another program has
    /// it).
    pub(crate) fn open(name: &str, kind: DeviceKind, queues: usize, stays: bool) -> io::Result<Vec<Self>> {
        let all: Vec<Self> =
            (0..queues).map(|_| Self::open_queue(name, kind, queues > 1)).collect::<io::Result<_>>()?;
        if stays {
            Self::let_stay(all[0].as_fd())?;
        }
        Ok(all)
    }

    /// The device stays when all descriptors of it are closed.
    pub(crate) fn let_stay(queue: BorrowedFd<'_>) -> io::Result<()> {
        let stays: libc::c_ulong = 1;
        // SAFETY: TUNSETPERSIST takes a plain value.
        super::check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETPERSIST as _, stays) }).map(drop)
    }

    /// Makes a device, or one more queue of one that has several.
    fn open_queue(name: &str, kind: DeviceKind, one_of_several: bool) -> io::Result<Self> {
        if name.is_empty() || name.len() > NAME_OCTETS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        Self::attach(file.as_fd(), name, kind, one_of_several)?;
        Ok(Self(file))
    }

    /// Makes a device for a descriptor of /dev/net/tun, whose own was deleted, if it had one. Errors: those of TUNSETIFF.
    pub(crate) fn attach(
        file: BorrowedFd<'_>,
        name: &str,
        kind: DeviceKind,
        one_of_several: bool,
    ) -> io::Result<()> {
        let layer = match kind {
            DeviceKind::Packets => libc::IFF_TUN | libc::IFF_VNET_HDR,
            DeviceKind::Frames => libc::IFF_TAP,
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
        if kind == DeviceKind::Packets {
            // What a kernel does not know, it refuses with all the rest: those before 6.2 have no UDP.
            let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
            let offer = |offloads: libc::c_uint| {
                // SAFETY: TUNSETOFFLOAD takes a plain value.
                super::check(unsafe {
                    libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(offloads))
                })
            };
            // Where it leaves nothing to us, that is as well.
            offer(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6).or_else(|_| offer(tcp)).ok();
        }
        Ok(())
    }

    /// Takes a packet, which may be longer than the `room` and go on `beyond`: what is left to be done with it, and its octets; `None`
    /// if none is there.
    pub(crate) fn receive_long(
        &mut self,
        room: &mut [u8],
        beyond: &mut [u8],
    ) -> io::Result<Option<(Offload, usize)>> {
        let mut offload = [0; OFFLOAD_OCTETS];
        let parts = &mut [IoSliceMut::new(&mut offload), IoSliceMut::new(room), IoSliceMut::new(beyond)];
        match self.0.read_vectored(parts) {
            Ok(n) => Ok(n.checked_sub(OFFLOAD_OCTETS).map(|octets| (Offload::read(offload), octets))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Gives a whole packet.
    pub(crate) fn send_whole(&mut self, packet: &[u8]) -> io::Result<()> {
        self.0.write_vectored(&[IoSlice::new(&[0; OFFLOAD_OCTETS]), IoSlice::new(packet)]).map(drop)
    }

    /// Has a program choose the queue of each packet.
    pub(crate) fn steer(queue: BorrowedFd<'_>, program: &Program) -> io::Result<()> {
        let fd = program.fd();
        // SAFETY: TUNSETSTEERINGEBPF reads one int, which lives through the call.
        super::check(unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETSTEERINGEBPF as _, &fd) }).map(drop)
    }

    /// Takes a frame; 0 if none is there.
    pub(crate) fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.0.read(room) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// Gives a frame.
    pub(crate) fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.0.write(frame).map(drop)
    }
}

impl From<OwnedFd> for Tun {
    fn from(queue: OwnedFd) -> Self {
        Self(queue.into())
    }
}

impl From<Tun> for OwnedFd {
    fn from(tun: Tun) -> Self {
        tun.0.into()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
