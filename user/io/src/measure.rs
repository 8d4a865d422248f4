//! What measurements of packet I/O need besides a user plane: frames from nowhere, an end for them, and a program that does no more than
//! any must. Not for the product.

mod paced;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use whimbrel_ids::Teid;
use whimbrel_user::{BurstPacket, Destination, FastEntry, Origin, Packet};

use crate::config::Config;
use crate::error::StartError;
use crate::handle::{Handle, HostSetup, spawn};
use crate::ports::Ports;
use crate::sys::bpf::{Attach, BpfLink, DeviceMap, HashOf, Instruction, Program, SharedArray};
use crate::sys::datagrams::Datagrams;
use crate::sys::scheduling;
pub use crate::sys::scheduling::Priority;
use crate::thread::IoCounters;
use crate::xdp::measure as programs;
pub use crate::xdp::measure::{Addresses, BareProgram};
pub use paced::{Draw, Pace, PacedOutcome, paced};

/// A user plane whose threads receive packets without end, each its own again and again, and whose packets go nowhere.
///
/// Errors: those of a start.
pub fn endless(config: Config, packets: Vec<Vec<(Origin, Vec<u8>)>>) -> Result<Handle, StartError> {
    let ports = packets.into_iter().map(|packets| Endless { packets, next: 0 }).collect();
    spawn(config, ports, HostSetup::default())
}

struct Endless {
    packets: Vec<(Origin, Vec<u8>)>,
    next: usize,
}

impl Ports for Endless {
    fn receive(&mut self, slots: &mut [BurstPacket], _: &mut IoCounters) -> usize {
        for slot in &mut *slots {
            let (origin, octets) = &self.packets[self.next];
            slot.packet.fill(octets);
            slot.origin = *origin;
            self.next = (self.next + 1) % self.packets.len();
        }
        slots.len()
    }

    fn send(&mut self, packets: &mut dyn Iterator<Item = (Destination, &Packet)>, counters: &mut IoCounters) {
        for (to, _) in packets {
            match to {
                Destination::N3 { .. } => counters.n3_sent += 1,
                Destination::N6 { .. } | Destination::Frames { .. } => counters.n6_sent += 1,
            }
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn lost(&self) -> u64 {
        0
    }
}

/// The calling thread runs on this processor alone, as do threads that it starts. Errors: those of sched_setaffinity(2).
pub fn run_on(processor: usize) -> io::Result<()> {
    scheduling::run_on(processor)
}

/// It runs when this priority says, as do threads that it starts. Errors: those of sched_setscheduler(2).
pub fn run_at(priority: Priority) -> io::Result<()> {
    scheduling::run_at(priority)
}

/// A socket that sends datagrams in rows, as the UPF's does.
pub struct Rows(Datagrams);

impl Rows {
    /// Errors: those of `bind`.
    pub fn bind(local: SocketAddr) -> io::Result<Self> {
        Datagrams::bind_one(local).map(Self)
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
pub struct FrameSession {
    /// The UPF's tunnel; of packets to UEs, nothing.
    pub teid: Teid,
    /// Address of the UE.
    pub ue: Ipv4Addr,
}

/// Frames of sessions by chance, made by a program that the kernel runs on the calling thread (`BPF_PROG_TEST_RUN` with live frames).
pub struct Flood {
    program: Program,
    template: Vec<u8>,
    _sources: SharedArray<[AtomicU64; 2]>,
}

impl Flood {
    /// Frames that leave by an interface (of the network namespace in which [`Self::run`] is called): G-PDUs of a gNB with packets of so
    /// many octets, or such packets of a data network.
    ///
    /// Errors: those of bpf(2).
    pub fn new(
        uplink: bool,
        addresses: &Addresses,
        octets: usize,
        interface: u32,
        sources: &[FrameSession],
    ) -> io::Result<Self> {
        let template = programs::frame(uplink, addresses, octets);
        let shared = SharedArray::<[AtomicU64; 2]>::new(sources.len() as u32)?;
        for (to, source) in shared.iter().zip(sources) {
            let [t0, t1, t2, t3] = source.teid.0.to_be_bytes();
            let [a, b, c, d] = source.ue.octets();
            let checksum = programs::inner_checksum(uplink, addresses, octets, source.ue);
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
pub struct AttachedProgram(#[expect(dead_code, reason = "held for its drop")] BpfLink);

impl AttachedProgram {
    fn of(code: &[Instruction], interface: u32) -> io::Result<Self> {
        Program::load(code)?.attach(interface, Attach::Driver).map(Self)
    }

    /// Drops whatever arrives. Errors: those of bpf(2).
    pub fn end(interface: u32) -> io::Result<Self> {
        Self::of(&programs::drop_all(), interface)
    }

    /// Lets pass whatever arrives. Errors: those of bpf(2).
    pub fn pass(interface: u32) -> io::Result<Self> {
        Self::of(&programs::pass_all(), interface)
    }
}

/// What bare programs need: a session's entry, found in the ways that there are.
pub struct Ladder {
    entries: SharedArray<FastEntry>,
    by_hash: HashOf<FastEntry>,
    by_array: SharedArray<AtomicU64>,
    mask: u32,
}

impl Ladder {
    /// For packets of these sources, from UEs and to them. Errors: those of bpf(2).
    pub fn new(sources: &[FrameSession]) -> io::Result<Self> {
        let count = sources.len().next_power_of_two() as u32;
        let by_hash = HashOf::new(2 * count)?;
        for source in sources {
            by_hash.put(u32::from_ne_bytes(source.teid.0.to_be_bytes()))?;
            by_hash.put(u32::from_ne_bytes(source.ue.octets()))?;
        }
        let by_array = SharedArray::<AtomicU64>::new(count)?;
        for (to, place) in by_array.iter().zip(0..) {
            to.store(place, Ordering::Relaxed);
        }
        Ok(Self { entries: SharedArray::new(count)?, by_hash, by_array, mask: count - 1 })
    }

    /// The program of a step on an interface, which sends packets out of another. Errors: those of bpf(2).
    pub fn attach(
        &self,
        step: BareProgram,
        uplink: bool,
        (interface, out): (u32, u32),
        addresses: &Addresses,
    ) -> io::Result<AttachedProgram> {
        let devices = DeviceMap::new(1)?;
        devices.set(0, out)?;
        let memory = programs::BareProgramMemory {
            entries: self.entries.fd(),
            by_hash: self.by_hash.fd(),
            by_array: self.by_array.fd(),
            devices: devices.fd(),
            mask: self.mask,
        };
        let code = programs::bare(step, uplink, addresses, &memory);
        // The program keeps its maps.
        AttachedProgram::of(&code, interface)
    }
}
