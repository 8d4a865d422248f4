//! What measurements of packet I/O need besides a user plane: frames from nowhere, an end for them, and a program that does no more than
//! any must. Not for the product.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use whimbrel_ids::Teid;
use whimbrel_user::FastEntry;

use crate::sys::bpf::{Attach, DeviceMap, Instruction, Link, Program, SharedArray};
use crate::sys::datagrams::Datagrams;
use crate::xdp::measure as programs;
pub use crate::xdp::measure::Addresses;

/// A socket that sends datagrams in rows, as the UPF's does.
pub struct Rows(Datagrams);

impl Rows {
    /// Errors: those of `bind`.
    pub fn bind(local: SocketAddr) -> io::Result<Self> {
        let mut one = Datagrams::bind(local, 1)?;
        one.pop().map(Self).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Sends up to 32; how many the kernel took. Errors: of the first.
    pub fn send<'p>(
        &mut self,
        datagrams: impl Iterator<Item = (SocketAddr, &'p [u8])> + Clone,
    ) -> io::Result<usize> {
        self.0.send(datagrams.map(|(to, octets)| (to, 0, octets)))
    }
}

/// What a frame of one session differs in.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The UPF's tunnel; of packets to phones, nothing.
    pub teid: Teid,
    /// The phone.
    pub phone: Ipv4Addr,
}

/// Frames of sessions by chance, made by a program that the kernel runs on the calling thread (`BPF_PROG_TEST_RUN` with live frames).
pub struct Flood {
    program: Program,
    template: Vec<u8>,
    _sources: SharedArray<[AtomicU64; 2]>,
}

impl Flood {
    /// Frames that leave by an interface (of the network namespace of whoever calls [`Self::run`]): G-PDUs of a gNB with packets of so
    /// many octets, or such packets of a data network.
    ///
    /// Errors: those of bpf(2).
    pub fn new(
        uplink: bool,
        addresses: &Addresses,
        octets: usize,
        interface: u32,
        sources: &[Source],
    ) -> io::Result<Self> {
        let template = programs::frame(uplink, addresses, octets);
        let shared = SharedArray::<[AtomicU64; 2]>::new(sources.len() as u32)?;
        for (to, source) in shared.iter().zip(sources) {
            let [t0, t1, t2, t3] = source.teid.0.to_be_bytes();
            let [a, b, c, d] = source.phone.octets();
            let checksum = programs::checksum(uplink, addresses, octets, source.phone);
            to[0].store(u64::from_ne_bytes([t0, t1, t2, t3, a, b, c, d]), Ordering::Relaxed);
            let [s0, s1] = checksum.to_be_bytes();
            to[1].store(u64::from_ne_bytes([s0, s1, 0, 0, 0, 0, 0, 0]), Ordering::Relaxed);
        }
        let code = programs::flood(uplink, &template, shared.fd(), sources.len() as u32, interface);
        Ok(Self { program: Program::load(&code)?, template, _sources: shared })
    }

    /// Sends so many. Errors: those of bpf(2).
    pub fn run(&self, frames: u32) -> io::Result<()> {
        self.program.flood(&self.template, frames)
    }
}

/// A program on an interface, as long as this lives.
pub struct Attached {
    _link: Link,
    _devices: Option<DeviceMap>,
    _entries: Option<SharedArray<FastEntry>>,
}

fn attached(code: &[Instruction], interface: u32) -> io::Result<Link> {
    Program::load(code)?.attach(interface, Attach::Driver)
}

impl Attached {
    /// Drops whatever arrives. Errors: those of bpf(2).
    pub fn end(interface: u32) -> io::Result<Self> {
        Ok(Self { _link: attached(&programs::end(), interface)?, _devices: None, _entries: None })
    }

    /// Reads the entry of a packet's session, both lines, takes the outer headers off, or makes room for them, and sends the packet out
    /// of another interface: nothing else is looked at. A phone's last octets are its session's index.
    ///
    /// Errors: those of bpf(2).
    pub fn bare(
        uplink: bool,
        interface: u32,
        out: u32,
        addresses: &Addresses,
        sessions: u32,
        mask: u32,
    ) -> io::Result<Self> {
        let (devices, entries) = (DeviceMap::new(1)?, SharedArray::<FastEntry>::new(sessions)?);
        devices.set(0, out)?;
        let code = programs::bare(uplink, addresses, entries.fd(), devices.fd(), mask);
        Ok(Self { _link: attached(&code, interface)?, _devices: Some(devices), _entries: Some(entries) })
    }
}
