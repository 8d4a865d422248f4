//! An interface with its program and rings.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::hops::{Hop, Hops};
use super::packet::FrameAddresses;
use crate::error::Obstacle;
use crate::host::route::{Interface, Routes};
use crate::sys::bpf::{self, Attach, Program, SocketMap};
use crate::sys::xsk::{CopyMode, Xsk};
use crate::xdp::fast::Fast;
use crate::xdp::steer::{self, SteeredFrames};

/// Queues of an interface that get a socket, each with 8 or 16 MiB; what arrives on others is the kernel's.
const QUEUES_MAX: u32 = 16;
/// Octets of Ethernet's header, with a VLAN's tag.
const ETHERNET_OCTETS: usize = 18;

/// How an interface's packets come by AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Name of the interface.
    pub interface: String,
    /// Receive queues that have a ring.
    pub queues: usize,
    /// Whether the device writes into our memory itself; the kernel copies otherwise.
    pub zero_copy: bool,
    /// Whether the program runs in the driver, or later in the kernel.
    pub in_driver: bool,
    /// Whether the program decides on packets of plain sessions itself.
    pub fast_path: bool,
}

impl fmt::Display for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, queues, zero_copy, in_driver, fast_path } = self;
        let copying = if *zero_copy { "zero-copy" } else { "copying" };
        let place = if *in_driver { "in the driver" } else { "behind the driver (generic XDP)" };
        let plural = if *queues == 1 { "" } else { "s" };
        let fast = if *fast_path { ", with a fast path for plain sessions" } else { "" };
        write!(f, "AF_XDP on {interface}: {queues} queue{plural}, {copying}, its program {place}{fast}")
    }
}

/// Frames of one VLAN of an interface, or those without a tag.
pub(super) struct Lane {
    /// The kernel's own end, which has the addresses and answers for them.
    pub(super) interface: Interface,
    pub(super) vlan: Option<u16>,
    pub(super) hops: Hops,
}

impl Lane {
    pub(super) fn new(interface: Interface, vlan: Option<u16>) -> Result<Self, Obstacle> {
        let routes = Routes::open().map_err(|e| Obstacle::Interface(e.into()))?;
        Ok(Self { hops: Hops::new(routes, &interface), interface, vlan })
    }

    /// The way of frames to a next hop.
    pub(super) fn link(&self, hop: &Hop) -> FrameAddresses {
        FrameAddresses { to: hop.mac, from: self.interface.mac, vlan: self.vlan }
    }
}

/// The interface with its rings.
pub(super) struct Wire {
    pub(super) lanes: Vec<Lane>,
    pub(super) rings: Rings,
    queues: Vec<Xsk>,
    program: Arc<bpf::BpfLink>,
}

impl Wire {
    /// Attaches the program and opens the rings; so many queues also send. Errors: what stands in the way; nothing stays set then.
    pub(super) fn open(
        interface: &Interface,
        steered: &[SteeredFrames],
        lanes: Vec<Lane>,
        fast: Option<&Fast>,
        senders: usize,
    ) -> Result<Self, Obstacle> {
        let sockets = SocketMap::new(QUEUES_MAX).map_err(Obstacle::Program)?;
        let program =
            Program::load(&steer::program(steered, sockets.fd(), fast)).map_err(Obstacle::Program)?;
        let (link, how) = attach(&program, interface)?;
        let (queues, copying) = open_queues(interface, senders as u32)?;
        for (queue, socket) in queues.iter().enumerate() {
            sockets.set(queue as u32, socket.as_fd()).map_err(Obstacle::Program)?;
        }
        let rings = Rings {
            interface: interface.name.clone(),
            queues: queues.len(),
            zero_copy: copying == CopyMode::ZeroCopy,
            in_driver: how == Attach::Driver,
            fast_path: fast.is_some(),
        };
        Ok(Self { lanes, rings, queues, program: Arc::new(link) })
    }

    /// The same interface for each of so many threads, each with its own of the queues, of which there are as many at least.
    pub(super) fn split(self, threads: usize) -> Result<Vec<Self>, Obstacle> {
        let Self { lanes, rings, queues, program } = self;
        let mut parts: Vec<Vec<Xsk>> = (0..threads).map(|_| Vec::new()).collect();
        for (n, queue) in queues.into_iter().enumerate() {
            parts[n % threads].push(queue);
        }
        let of = |queues| {
            let lanes = lanes.iter().map(|l| Lane::new(l.interface.clone(), l.vlan));
            let lanes = lanes.collect::<Result<_, _>>()?;
            Ok(Self { lanes, rings: rings.clone(), queues, program: Arc::clone(&program) })
        };
        parts.into_iter().map(of).collect()
    }

    /// As [`Xsk::poll_busily`], on all queues. Errors: those, and where the program runs behind the driver, which then cannot be polled.
    pub(super) fn poll_busily(&mut self, within: Duration) -> io::Result<()> {
        if !self.rings.in_driver {
            let what = format!("{} has its XDP program behind the driver", self.rings.interface);
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        self.queues.iter_mut().try_for_each(|q| q.poll_busily(within))
    }

    /// Takes up to `max` frames and shows each to `each`; how many there were.
    pub(super) fn receive(&mut self, max: usize, mut each: impl FnMut(&[u8])) -> usize {
        let mut n = 0;
        for queue in &mut self.queues {
            n += queue.receive(max - n, &mut each);
        }
        // Each queue is the first to be asked in turn.
        self.queues.rotate_left(1);
        n
    }

    /// Puts a frame up for transmission, as [`Xsk::send`] does.
    pub(super) fn send(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        self.queues.iter_mut().find(|q| q.transmits()).is_some_and(|q| q.send(write))
    }

    /// Has the kernel send what was put up. Errors: of the device.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.queues.iter().try_for_each(Xsk::flush)
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(AsFd::as_fd)
    }

    pub(super) fn lost(&self) -> u64 {
        self.queues.iter().map(Xsk::lost).sum()
    }
}

/// Attaches the program, in the driver if it can.
fn attach(program: &Program, interface: &Interface) -> Result<(bpf::BpfLink, Attach), Obstacle> {
    let of = |error| Obstacle::Attach { interface: interface.name.clone(), error };
    match program.attach(interface.index, Attach::Driver) {
        Ok(link) => Ok((link, Attach::Driver)),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Ok((program.attach(interface.index, Attach::Generic).map_err(of)?, Attach::Generic))
        }
        Err(e) => Err(of(e)),
    }
}

/// A socket for each queue, with zero-copy if the driver has it. The first `senders` also send.
fn open_queues(interface: &Interface, senders: u32) -> Result<(Vec<Xsk>, CopyMode), Obstacle> {
    let of = |error| Obstacle::Rings { interface: interface.name.clone(), error };
    let octets = interface.mtu as usize + ETHERNET_OCTETS;
    let open = |queue: u32, copying| Xsk::open(interface.index, queue, octets, copying, queue < senders);
    let (first, copying) = match open(0, CopyMode::ZeroCopy) {
        Ok(first) => (first, CopyMode::ZeroCopy),
        Err(_) => (open(0, CopyMode::Copy).map_err(of)?, CopyMode::Copy),
    };
    let mut queues = vec![first];
    for queue in 1..QUEUES_MAX {
        match open(queue, copying) {
            Ok(socket) => queues.push(socket),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => break, // there is no such queue
            Err(e) => return Err(of(e)),
        }
    }
    Ok((queues, copying))
}
