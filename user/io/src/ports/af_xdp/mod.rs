//! AF_XDP in front of the sockets: a program in the driver gives N3's datagrams to rings that this thread shares with the
//! kernel, before the kernel makes packets of them.
//!
//! The GTP-U sockets stay. They get what the program leaves to the kernel (fragments, IP options, what arrives on other
//! interfaces) and send what this cannot (to gNBs elsewhere, or whose Ethernet address is not known yet).

mod frame;
mod hops;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use whimbrel_user::{Destination, Origin, Packet, Slot};

use super::{Ports, system::System};
use crate::config::{Config, N3Io};
use crate::error::Obstacle;
use crate::host::features::has_zero_copy;
use crate::host::route::{Interface, NoInterface, Routes};
use crate::sys::bpf::{Attach, Link, Program, SocketMap};
use crate::sys::xsk::{Copying, Xsk};
use crate::thread::IoCounters;
use crate::xdp::steer::{self, Steered};
use frame::{Outgoing, Way};
use hops::Hops;

/// Queues of an interface that get a socket, each with 8 or 16 MiB; what arrives on others goes to the UDP sockets.
const QUEUES_MAX: u32 = 16;
/// Octets of Ethernet's header, with a VLAN's tag.
const ETHERNET_OCTETS: usize = 18;

/// How N3's packets come by AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rings {
    /// The interface that has N3's address.
    pub interface: String,
    /// Receive queues that have a ring.
    pub queues: usize,
    /// Whether the device writes into our memory itself; the kernel copies otherwise.
    pub zero_copy: bool,
    /// Whether the program runs in the driver, or later in the kernel.
    pub in_driver: bool,
}

impl fmt::Display for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, queues, zero_copy, in_driver } = self;
        let copying = if *zero_copy { "zero-copy" } else { "copying" };
        let place = if *in_driver { "in the driver" } else { "behind the driver (generic XDP)" };
        let plural = if *queues == 1 { "" } else { "s" };
        write!(f, "AF_XDP on {interface}: {queues} queue{plural}, {copying}, its program {place}")
    }
}

/// The interface with its program and rings.
pub(crate) struct Front {
    queues: Vec<Xsk>,
    hops: Hops,
    mac: [u8; 6],
    /// N3's addresses.
    own: Vec<SocketAddr>,
    identification: u32,
    rings: Rings,
    _program: Link,
}

impl Front {
    /// Attaches the program and opens the rings. Errors: what stands in the way; nothing stays set then.
    pub(crate) fn open(config: &Config) -> Result<Self, Obstacle> {
        let addresses: Vec<IpAddr> = config.n3_addresses().map(|a| a.ip()).collect();
        let mut routes = Routes::open().map_err(|e| Obstacle::Interface(e.into()))?;
        let mut interface: Option<Interface> = None;
        for address in &addresses {
            let has = routes.interface_of(*address).map_err(Obstacle::Interface)?;
            if interface.as_ref().is_some_and(|i| *i != has) {
                return Err(Obstacle::TwoInterfaces);
            }
            interface = Some(has);
        }
        let interface = interface.ok_or(Obstacle::Interface(NoInterface::NoAddress))?;
        if config.n3_io == N3Io::Auto {
            let name = || interface.name.clone();
            match has_zero_copy(interface.index) {
                Ok(true) => {}
                Ok(false) => return Err(Obstacle::Copies { interface: name() }),
                Err(error) => return Err(Obstacle::Features { interface: name(), error }),
            }
        }
        let sockets = SocketMap::new(QUEUES_MAX).map_err(Obstacle::Program)?;
        let steered = Steered { mac: interface.mac, ipv4: None, ipv6: None, port: config.port };
        let steered = steered.with_addresses(addresses);
        let program = Program::load(&steer::program(&steered, sockets.fd())).map_err(Obstacle::Program)?;
        let (link, how) = attach(&program, &interface)?;
        let (queues, copying) = open_queues(&interface)?;
        for (queue, socket) in queues.iter().enumerate() {
            sockets.set(queue as u32, socket.as_fd()).map_err(Obstacle::Program)?;
        }
        let rings = Rings {
            interface: interface.name.clone(),
            queues: queues.len(),
            zero_copy: copying == Copying::ZeroCopy,
            in_driver: how == Attach::Driver,
        };
        let own = config.n3_addresses().collect();
        let (hops, mac) = (Hops::new(routes, &interface), interface.mac);
        Ok(Self { queues, hops, mac, own, identification: 0, rings, _program: link })
    }

    /// What was opened.
    pub(crate) fn rings(&self) -> &Rings {
        &self.rings
    }

    fn receive(&mut self, slots: &mut [Slot], counters: &mut IoCounters) -> usize {
        let mut n = 0;
        // A frame that is none does not use a slot; it counts against the burst all the same.
        let mut left = slots.len();
        for queue in &mut self.queues {
            left -= queue.receive(left, |frame| match frame::read(frame) {
                Some(d) => {
                    slots[n].packet.fill(d.payload);
                    slots[n].origin = Origin::N3 { peer: d.from, local: d.to };
                    n += 1;
                }
                None => counters.n3_malformed += 1,
            });
        }
        // Each queue is the first to be asked in turn.
        self.queues.rotate_left(1);
        counters.n3_received += n as u64;
        n
    }

    /// Takes a datagram to send; false if the socket is to.
    fn send(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        tos: u8,
        packet: &Packet,
        counters: &mut IoCounters,
    ) -> bool {
        let Some(&from) = self.own.iter().find(|own| own.is_ipv4() == peer.is_ipv4()) else { return false };
        let Some(hop) = self.hops.of(now, from.ip(), peer.ip()) else { return false };
        self.identification = self.identification.wrapping_add(1);
        let way = Way {
            from_mac: self.mac,
            to_mac: hop.mac,
            from,
            to: peer,
            tos,
            mtu: hop.mtu as usize,
            identification: self.identification,
        };
        let Some(outgoing) = Outgoing::new(way, packet.octets()) else { return false };
        let Some(socket) = self.queues.iter_mut().find(|q| q.transmits()) else { return false };
        match (0..outgoing.frames()).all(|i| socket.send(|room| outgoing.write(i, room))) {
            true => counters.n3_sent += 1,
            false => counters.send_full += 1,
        }
        true
    }
}

/// Attaches the program, in the driver if it can.
fn attach(program: &Program, interface: &Interface) -> Result<(Link, Attach), Obstacle> {
    let of = |error| Obstacle::Attach { interface: interface.name.clone(), error };
    match program.attach(interface.index, Attach::Driver) {
        Ok(link) => Ok((link, Attach::Driver)),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Ok((program.attach(interface.index, Attach::Generic).map_err(of)?, Attach::Generic))
        }
        Err(e) => Err(of(e)),
    }
}

/// A socket for each queue, with zero-copy if the driver has it. The first also sends.
fn open_queues(interface: &Interface) -> Result<(Vec<Xsk>, Copying), Obstacle> {
    let of = |error| Obstacle::Rings { interface: interface.name.clone(), error };
    let octets = interface.mtu as usize + ETHERNET_OCTETS;
    let open = |queue: u32, copying| Xsk::open(interface.index, queue, octets, copying, queue == 0);
    let (first, copying) = match open(0, Copying::ZeroCopy) {
        Ok(first) => (first, Copying::ZeroCopy),
        Err(_) => (open(0, Copying::Copy).map_err(of)?, Copying::Copy),
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

/// The floor with AF_XDP in front.
pub(crate) struct AfXdp {
    pub(crate) front: Front,
    pub(crate) system: System,
    /// Who is asked first; they take turns, so that a flood on one does not starve the other.
    pub(crate) front_first: bool,
}

impl Ports for AfXdp {
    fn receive(&mut self, slots: &mut [Slot], counters: &mut IoCounters) -> usize {
        let Self { front, system, front_first } = self;
        *front_first = !*front_first;
        let mut n = 0;
        for of_front in [*front_first, !*front_first] {
            let room = &mut slots[n..];
            n += if of_front { front.receive(room, counters) } else { system.receive(room, counters) };
        }
        n
    }

    fn send(&mut self, packets: &mut dyn Iterator<Item = (Destination, &Packet)>, counters: &mut IoCounters) {
        let Self { front, system, .. } = self;
        let now = Instant::now();
        let mut by_front = IoCounters::default();
        let mut by_socket = packets.filter(|(to, packet)| {
            let Destination::N3 { peer, tos } = *to else { return true };
            let taken = front.send(now, peer, tos, packet, &mut by_front);
            by_front.n3_sent_by_socket += u64::from(!taken);
            !taken
        });
        system.send(&mut by_socket, counters);
        counters.n3_sent += by_front.n3_sent;
        counters.n3_sent_by_socket += by_front.n3_sent_by_socket;
        counters.send_full += by_front.send_full;
        if front.queues.iter().any(|q| q.flush().is_err()) {
            counters.send_errors += 1;
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = self.system.descriptors();
        all.extend(self.front.queues.iter().map(AsFd::as_fd));
        all
    }

    fn lost(&self) -> u64 {
        self.system.lost() + self.front.queues.iter().map(Xsk::lost).sum::<u64>()
    }
}
