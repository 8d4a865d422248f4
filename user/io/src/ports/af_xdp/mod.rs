//! AF_XDP in front of the sockets and devices: a program in the driver gives N3's datagrams and N6's packets to rings that
//! this thread shares with the kernel, before the kernel makes packets of them.
//!
//! The GTP-U sockets and TUN devices stay. They get what the program leaves to the kernel (fragments, IP options, what
//! arrives on other interfaces, what the kernel must answer) and send what this cannot: to gNBs elsewhere or whose
//! Ethernet address is not known yet, and what goes to this host or from UE to UE.

pub(crate) mod frame;
mod hops;
pub(crate) mod packet;
mod wire;
pub(crate) mod xdp_fast_path;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use whimbrel_user::{BurstPacket, DataNetwork, Destination, DnIndex, Origin, Packet};

use super::{Ports, system::System};
use crate::config::{Config, N3Io, RouterLink, Vlan};
use crate::error::Obstacle;
use crate::gre::{self, GreTunnel};
use crate::host::features::has_zero_copy;
use crate::host::route::{Interface, NoInterface, Routes};
use crate::sys::ethtool::takes_tags_off;
use crate::sys::monotonic_us;
use crate::thread::IoCounters;
use crate::xdp::fast::{Fast, Time};
use crate::xdp::steer::{SteeredFrames, UeAddressPool};
use frame::{DatagramRoute, OutgoingDatagram};
pub use wire::Rings;
use wire::{Lane, Wire};
use xdp_fast_path::FastPathMemory;

/// The interfaces with rings, and what goes over each.
pub(crate) struct Front {
    wires: Vec<Wire>,
    /// Addresses of N3 on this host.
    own: Vec<SocketAddr>,
    /// Where N3 is, if it has a wire.
    n3: Option<WireLane>,
    /// For each data network the way into it, if it has a wire.
    n6: Vec<Option<Uplink>>,
    /// Tunnels of all data networks.
    tunnels: Vec<GreTunnel>,
    /// All UEs' addresses.
    pools: Vec<(UeAddressPool, DnIndex)>,
    /// Of the last datagram: threads' are never the same, for it distinguishes fragments from one address.
    identification: u32,
    threads: u32,
    /// Which wire is asked first.
    first: usize,
    /// How long its thread looks at the rings before it sleeps.
    busy_poll: Duration,
    fast: Option<FastSide>,
}

/// What is to be seen to for a fast path.
struct FastSide {
    memory: Arc<FastPathMemory>,
    /// When next hops were last written, and how many gNBs there were.
    updated: Instant,
    gnbs: usize,
    /// Some are not known.
    unknown: bool,
    /// All packets are to come up.
    all_up: bool,
}

/// Time between two looks at the fast path's next hops; each costs some 50 ns a gNB.
const HOPS_EVERY: Duration = Duration::from_millis(20);
/// The same while some are not known: the kernel is not asked for all at once.
const UNKNOWN_HOPS_EVERY: Duration = Duration::from_millis(1);
/// Sessions that a fast path can have at most: 128 MiB that are there from the start. Others are the pipeline's.
const FAST_SESSIONS_MAX: u32 = 1 << 20;

/// A lane of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WireLane {
    wire: usize,
    lane: usize,
}

/// The way into a data network.
#[derive(Clone)]
struct Uplink {
    at: WireLane,
    routers: Vec<IpAddr>,
    tunnel: Option<GreTunnel>,
}

impl Uplink {
    /// The router of a family, if there is no tunnel to it.
    fn router(&self, v4: bool) -> Option<IpAddr> {
        self.routers.iter().copied().find(|r| r.is_ipv4() == v4 && self.tunnel.is_none())
    }

    /// The owner of the next hop of a packet to an address.
    fn next(&self, to: IpAddr) -> Option<IpAddr> {
        match &self.tunnel {
            Some(tunnel) => Some(tunnel.remote),
            None => self.routers.iter().copied().find(|r| r.is_ipv4() == to.is_ipv4()),
        }
    }
}

/// A fast path for the data networks that have interfaces, and what its programs have to know.
fn fast_path(
    config: &Config,
    n6: &[Option<Uplink>],
    pools: &[(UeAddressPool, DnIndex)],
    is_tagged: impl Fn(WireLane) -> bool,
) -> Result<(Arc<FastPathMemory>, Fast), Obstacle> {
    let plain = |u: &Uplink| u.router(true).is_some() && !is_tagged(u.at);
    let networks = n6.iter().enumerate().filter(|(_, u)| u.as_ref().is_some_and(plain));
    let networks: Vec<DnIndex> = networks.map(|(i, _)| DnIndex(i as u8)).collect();
    let own = config.user.n3_ipv4.filter(|_| !networks.is_empty()).ok_or(Obstacle::NoFastPath)?;
    let sessions = config.user.sessions_max.min(FAST_SESSIONS_MAX);
    let memory = FastPathMemory::new(sessions, pools, networks).map_err(Obstacle::Memory)?;
    let offset_us = (config.clock)().0.wrapping_sub(monotonic_us());
    let time = Time::Kernel { offset_us };
    let fast = memory.fast(config.user.teids(), &config.user.isolation.deny, own, config.port, time);
    Ok((Arc::new(memory), fast))
}

/// An interface that is to be opened, and what goes by it: what is steered on each lane, and the kernel's own end of it.
struct PlannedInterface {
    interface: Interface,
    lanes: Vec<(SteeredFrames, Interface)>,
}

/// Interfaces that are to be opened.
struct Plan {
    routes: Routes,
    port: u16,
    all: Vec<PlannedInterface>,
}

impl Plan {
    /// The place of an interface, by the Ethernet interface that has its frames.
    fn place(&mut self, interface: Interface, vlan: Option<&Vlan>) -> Result<WireLane, Obstacle> {
        let (below, vlan) = match (vlan, interface.vlan) {
            (Some(vlan), _) => {
                (self.routes.interface_named(&vlan.interface).map_err(Obstacle::Interface)?, Some(vlan.id))
            }
            (None, Some((below, id))) => match self.routes.interface(below) {
                Ok(below) if below.vlan.is_none() => (below, Some(id)),
                _ => (interface.clone(), None), // a tag within a tag: behind the VLAN's own device
            },
            (None, None) => (interface.clone(), None),
        };
        if vlan.is_some() && takes_tags_off(&below.name) {
            return Err(Obstacle::TagsTaken { interface: below.name });
        }
        let wire = self.all.iter().position(|p| p.interface == below).unwrap_or(self.all.len());
        if wire == self.all.len() {
            self.all.push(PlannedInterface { interface: below, lanes: Vec::new() });
        }
        let lanes = &mut self.all[wire].lanes;
        let lane = lanes.iter().position(|(steered, _)| steered.vlan == vlan).unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push((SteeredFrames::new(interface.mac, vlan, self.port), interface));
        }
        Ok(WireLane { wire, lane })
    }

    fn steered(&mut self, at: WireLane) -> &mut SteeredFrames {
        &mut self.all[at.wire].lanes[at.lane].0
    }
}

/// The pools of a data network, and what its UEs are translated to.
pub(super) fn pools(dn: &DataNetwork) -> impl Iterator<Item = UeAddressPool> {
    let mtu = dn.mtu;
    let v4 = dn.all_ipv4_pools().map(move |p| UeAddressPool {
        first: IpAddr::V4(p.first().into()),
        prefix: p.prefix,
        gateway: p.gateway().into(),
        mtu,
    });
    let v6 = dn.all_ipv6_pools().map(move |p| UeAddressPool {
        first: IpAddr::V6((u128::from(p.first()) << 64).into()),
        prefix: p.prefix,
        gateway: p.gateway().into(),
        mtu,
    });
    let outside = dn.nat_pools().map(move |p| UeAddressPool {
        first: IpAddr::V4(p.first().into()),
        prefix: p.prefix,
        // The host has none of them.
        gateway: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        mtu,
    });
    v4.chain(v6).chain(outside)
}

/// The interface with N3's addresses, if AF_XDP is configured for it.
fn n3_interface(config: &Config, routes: &mut Routes) -> Result<Interface, Obstacle> {
    let mut interface: Option<Interface> = None;
    for address in config.n3_addresses() {
        let has = routes.interface_of(address.ip()).map_err(Obstacle::Interface)?;
        if interface.as_ref().is_some_and(|i| *i != has) {
            return Err(Obstacle::TwoInterfaces);
        }
        interface = Some(has);
    }
    let interface = interface.ok_or(Obstacle::Interface(NoInterface::NoAddress))?;
    if config.n3_io == N3Io::Auto {
        let name = || interface.name.clone();
        let below = interface.vlan.map_or(interface.index, |(below, _)| below);
        match has_zero_copy(below) {
            Ok(true) => {}
            Ok(false) => return Err(Obstacle::Copies { interface: name() }),
            Err(error) => return Err(Obstacle::Features { interface: name(), error }),
        }
    }
    Ok(interface)
}

impl Front {
    /// Whether [`Self::open`] would attach programs; and why not for N3, if that was left to us.
    pub(crate) fn is_needed(config: &Config) -> (bool, Option<Obstacle>) {
        let linked = config.devices.iter().any(|device| device.link.is_some());
        let n3 = match config.n3_io {
            N3Io::Udp => Ok(false),
            N3Io::AfXdp | N3Io::Xdp => Ok(true),
            N3Io::Auto => {
                let routes = Routes::open().map_err(|e| Obstacle::Interface(e.into()));
                routes.and_then(|mut routes| n3_interface(config, &mut routes)).map(|_| true)
            }
        };
        (linked || matches!(n3, Ok(true)), n3.err())
    }

    /// Attaches programs and opens rings where that is configured, for each packet thread its own queues: there are as many threads as are
    /// configured, or fewer where there are fewer queues, and none if it is configured nowhere; and why not for N3 if that was left to us.
    ///
    /// Errors: what stands in the way where it was demanded; nothing stays set then.
    pub(crate) fn open(config: &Config) -> Result<(Vec<Self>, Option<Obstacle>), Obstacle> {
        let routes = Routes::open().map_err(|e| Obstacle::Interface(e.into()))?;
        let mut plan = Plan { routes, port: config.port, all: Vec::new() };
        let mut n6 = Vec::new();
        for device in &config.devices {
            let Some(RouterLink { interface, routers, vlan, tunnel }) = &device.link else {
                n6.push(None);
                continue;
            };
            let interface = plan.routes.interface_named(interface).map_err(Obstacle::Interface)?;
            if routers.is_empty() && tunnel.is_none() {
                return Err(Obstacle::NoRouter { interface: interface.name });
            }
            let at = plan.place(interface, vlan.as_ref())?;
            n6.push(Some(Uplink { at, routers: routers.clone(), tunnel: *tunnel }));
        }
        let (mut n3, mut obstacle) = (None, None);
        if config.n3_io != N3Io::Udp {
            let demanded = matches!(config.n3_io, N3Io::AfXdp | N3Io::Xdp);
            let found = n3_interface(config, &mut plan.routes);
            match found.and_then(|interface| plan.place(interface, None)) {
                Ok(place) => n3 = Some(place),
                Err(o) if demanded => return Err(o),
                Err(o) => obstacle = Some(o),
            }
        }
        let mut all_pools = Vec::new();
        for (i, (dn, uplink)) in config.user.data_networks.iter().zip(&n6).enumerate() {
            all_pools.extend(pools(dn).map(|p| (p, DnIndex(i as u8))));
            match uplink {
                Some(Uplink { at, tunnel: Some(tunnel), .. }) => {
                    plan.steered(*at).tunnels.push((*tunnel, pools(dn).collect()));
                }
                Some(Uplink { at, .. }) => plan.steered(*at).pools.extend(pools(dn)),
                None => {}
            }
        }
        let own: Vec<SocketAddr> = config.n3_addresses().collect();
        if let Some(at) = n3 {
            let steered = plan.steered(at);
            *steered = steered.clone().with_addresses(own.iter().map(SocketAddr::ip));
        }
        let is_tagged = |at: WireLane| plan.all[at.wire].lanes[at.lane].0.vlan.is_some();
        let fast = match config.n3_io {
            N3Io::Xdp if n3.is_some_and(is_tagged) => return Err(Obstacle::NoFastPath),
            N3Io::Xdp => Some(fast_path(config, &n6, &all_pools, is_tagged)?),
            N3Io::Auto | N3Io::Udp | N3Io::AfXdp => None,
        };
        let mut wires = Vec::new();
        for (at, PlannedInterface { interface, lanes }) in plan.all.into_iter().enumerate() {
            let of_n3 = n3.is_some_and(|n3| n3.wire == at);
            let only_n3 = lanes.iter().all(|(s, _)| s.pools.is_empty() && s.tunnels.is_empty());
            let index = interface.index;
            let (steered, lanes): (Vec<_>, Vec<_>) =
                lanes.into_iter().map(|(s, own_end)| (s.clone(), Lane::new(own_end, s.vlan))).unzip();
            let lanes = lanes.into_iter().collect::<Result<_, _>>()?;
            let fast_side = fast.as_ref().map(|(_, fast)| fast);
            match Wire::open(&interface, &steered, lanes, fast_side, config.user.shards.into()) {
                Ok(wire) => {
                    if let Some((memory, _)) = &fast {
                        memory.set_device(wires.len() as u32, index).map_err(Obstacle::Program)?;
                    }
                    wires.push(wire);
                }
                // N3's own interface is the last that was planned.
                Err(o) if of_n3 && only_n3 && config.n3_io == N3Io::Auto => {
                    (n3, obstacle) = (None, Some(o));
                }
                Err(o) => return Err(o),
            }
        }
        if wires.is_empty() {
            return Ok((Vec::new(), obstacle));
        }
        let side =
            |(memory, _)| FastSide { memory, updated: Instant::now(), gnbs: 0, unknown: true, all_up: false };
        let fast = fast.map(side);
        let tunnels = n6.iter().flatten().filter_map(|u| u.tunnel).collect();
        let pools = all_pools;
        let mut front = Self {
            wires,
            own,
            n3,
            n6,
            tunnels,
            pools,
            identification: 0,
            threads: 1,
            first: 0,
            busy_poll: Duration::ZERO,
            fast,
        };
        front.tell_hops(Instant::now());
        Ok((front.split(config.user.shards.into())?, obstacle))
    }

    /// One for each thread, of which there are so many at most, a power of two. What a fast path leaves is one thread's: it lends
    /// sessions when no packet of theirs waits in any place but its own.
    fn split(self, threads: usize) -> Result<Vec<Self>, Obstacle> {
        let queues = self.wires.iter().map(|w| w.rings.queues).min().unwrap_or(1);
        let threads = if self.fast.is_some() { 1 } else { threads.min(1 << queues.ilog2()) };
        if threads == 1 {
            return Ok(vec![self]);
        }
        let Self { wires, own, n3, n6, tunnels, pools, .. } = self;
        let empty = |thread: usize| Self {
            wires: Vec::new(),
            own: own.clone(),
            n3,
            n6: n6.clone(),
            tunnels: tunnels.clone(),
            pools: pools.clone(),
            identification: thread as u32,
            threads: threads as u32,
            first: 0,
            busy_poll: Duration::ZERO,
            fast: None,
        };
        let mut fronts: Vec<Self> = (0..threads).map(empty).collect();
        for wire in wires {
            fronts.iter_mut().zip(wire.split(threads)?).for_each(|(front, wire)| front.wires.push(wire));
        }
        Ok(fronts)
    }

    /// Has the drivers receive when the thread looks, and the thread look for so long before it sleeps. Errors: the last of those where
    /// the kernel does not permit it, or has it not, or the driver cannot; the others are polled all the same.
    pub(crate) fn poll_busily(&mut self, within: Duration) -> io::Result<()> {
        let mut result = Ok(());
        for wire in &mut self.wires {
            match wire.poll_busily(within) {
                Ok(()) => self.busy_poll = within,
                refused => result = refused,
            }
        }
        result
    }

    /// Writes the next hops of the fast path, when due.
    fn see_to_hops(&mut self) {
        let Some(fast) = &self.fast else { return };
        let now = Instant::now();
        let every = if fast.unknown { UNKNOWN_HOPS_EVERY } else { HOPS_EVERY };
        if now.duration_since(fast.updated) >= every || fast.gnbs != fast.memory.gnbs().len() {
            self.tell_hops(now);
        }
    }

    fn tell_hops(&mut self, now: Instant) {
        let Self { wires, own, n3, n6, fast: Some(fast), .. } = self else { return };
        let gnbs = fast.memory.gnbs();
        (fast.updated, fast.gnbs, fast.unknown) = (now, gnbs.len(), false);
        let unknown = &mut fast.unknown;
        let mut tell = |number: u16, at: WireLane, from: Option<IpAddr>, to: IpAddr| {
            let lane = &mut wires[at.wire].lanes[at.lane];
            let hop = lane.hops.of(now, from, to);
            *unknown |= hop.is_none();
            let hop = hop.filter(|_| !fast.all_up);
            fast.memory.set_hop(number, at.wire as u16, lane.interface.mac, hop);
        };
        for dn in fast.memory.networks() {
            let Some(Some(uplink)) = n6.get(usize::from(dn.0)) else { continue };
            for (v4, number) in [(true, dn.0.into()), (false, FastPathMemory::ipv6_hop(*dn))] {
                uplink.router(v4).into_iter().for_each(|router| tell(number, uplink.at, None, router));
            }
        }
        let from = own.iter().map(SocketAddr::ip).find(IpAddr::is_ipv4);
        for (gnb, number) in gnbs {
            n3.iter().for_each(|at| tell(number, *at, from, gnb.into()));
        }
    }

    /// How N3 comes, if by rings.
    pub(crate) fn n3(&self) -> Option<&Rings> {
        self.n3.map(|at| &self.wires[at.wire].rings)
    }

    /// How each data network that has rings is reached.
    pub(crate) fn n6(&self) -> impl Iterator<Item = (DnIndex, &Rings)> {
        let all = self.n6.iter().enumerate();
        all.filter_map(|(i, u)| Some((DnIndex(i as u8), &self.wires[u.as_ref()?.at.wire].rings)))
    }

    fn receive(&mut self, slots: &mut [BurstPacket], counters: &mut IoCounters) -> usize {
        let Self { wires, own, pools, tunnels, first, .. } = self;
        *first = (*first + 1) % wires.len();
        let mut n = 0;
        // A frame that is none does not use a slot; it counts against the burst all the same.
        let mut left = slots.len();
        for i in 0..wires.len() {
            let at = (*first + i) % wires.len();
            left -= wires[at].receive(left, |frame| {
                n += usize::from(arrived(frame, own, pools, tunnels, &mut slots[n], counters));
            });
        }
        n
    }

    /// Takes a datagram to send; false if the socket is to.
    fn send_n3(
        &mut self,
        now: Instant,
        (peer, tos): (SocketAddr, u8),
        packet: &Packet,
        counters: &mut IoCounters,
    ) -> bool {
        let Some(at) = self.n3 else { return false };
        let wire = &mut self.wires[at.wire];
        let lane = &mut wire.lanes[at.lane];
        let Some(&from) = self.own.iter().find(|own| own.is_ipv4() == peer.is_ipv4()) else { return false };
        let Some(hop) = lane.hops.of(now, Some(from.ip()), peer.ip()) else {
            counters.n3_sent_by_socket += 1;
            return false;
        };
        self.identification = self.identification.wrapping_add(self.threads);
        let way = DatagramRoute {
            link: lane.link(&hop),
            from,
            to: peer,
            tos,
            mtu: hop.mtu as usize,
            identification: self.identification,
        };
        let Some(outgoing) = OutgoingDatagram::new(way, packet.octets()) else { return false };
        let mut frames = 0..outgoing.frames();
        match frames.all(|i| wire.send(|room| outgoing.write(i, room))) {
            true => counters.n3_sent += 1,
            false => counters.send_full += 1,
        }
        true
    }

    /// Takes a packet to send into a data network; false if the TUN device is to.
    fn send_n6(&mut self, now: Instant, dn: DnIndex, packet: &Packet, counters: &mut IoCounters) -> bool {
        let Some(Some(uplink)) = self.n6.get(usize::from(dn.0)) else { return false };
        let wire = &mut self.wires[uplink.at.wire];
        let lane = &mut wire.lanes[uplink.at.lane];
        let next = packet::destination(packet.octets())
            .filter(|to| !self.pools.iter().any(|(pool, _)| pool.contains(*to)))
            .and_then(|to| uplink.next(to));
        let tunnel = uplink.tunnel.as_ref();
        let octets = packet.len() + tunnel.map_or(0, GreTunnel::overhead);
        let hop = next.and_then(|next| lane.hops.of(now, tunnel.map(|t| t.local), next));
        let Some(hop) = hop.filter(|h| octets <= h.mtu as usize) else {
            counters.n6_sent_by_device += 1;
            return false;
        };
        let link = lane.link(&hop);
        match wire.send(|room| packet::write(room, link, tunnel, packet.octets())) {
            true => counters.n6_sent += 1,
            false => counters.send_full += 1,
        }
        true
    }
}

/// Puts what a frame has into a slot; false, and counted, where that is nothing.
pub(super) fn arrived(
    frame: &[u8],
    own: &[SocketAddr],
    pools: &[(UeAddressPool, DnIndex)],
    tunnels: &[GreTunnel],
    slot: &mut BurstPacket,
    counters: &mut IoCounters,
) -> bool {
    let packet = packet::of(frame);
    let carried = tunnels.iter().find_map(|t| t.read(packet));
    let (packet, congested) = carried.map_or((packet, false), |c| (c.packet, c.congested));
    let to = packet::destination(packet);
    if let Some((_, dn)) = to.and_then(|to| pools.iter().find(|(pool, _)| pool.contains(to))) {
        let room = slot.packet.room();
        let octets = packet.len().min(room.len());
        room[..octets].copy_from_slice(&packet[..octets]);
        if congested && !gre::congested(&mut room[..octets]) {
            counters.malformed += 1;
            return false;
        }
        packet::hop(&mut room[..octets]);
        slot.packet.received(octets);
        slot.origin = Origin::N6 { dn: *dn };
        counters.n6_received += 1;
        return true;
    }
    match frame::read(frame).filter(|d| own.iter().any(|own| own.ip() == d.to)) {
        Some(d) => {
            slot.packet.fill(d.payload);
            slot.origin = Origin::N3 { peer: d.from, local: d.to };
            counters.n3_received += 1;
            true
        }
        None => {
            counters.malformed += 1;
            false
        }
    }
}

/// The floor with AF_XDP in front.
pub(crate) struct AfXdp {
    pub(crate) front: Front,
    pub(crate) system: System,
    turn: u32,
}

/// Turns in which sockets and devices are asked once, and first, while the rings have packets: asking costs a system call
/// each, and this is 50 µs of full bursts.
const SYSTEM_EVERY: u32 = 4;

impl AfXdp {
    pub(crate) fn new(front: Front, system: System) -> Self {
        Self { front, system, turn: 0 }
    }
}

impl Ports for AfXdp {
    fn receive(&mut self, slots: &mut [BurstPacket], counters: &mut IoCounters) -> usize {
        let Self { front, system, turn } = self;
        *turn = (*turn + 1) % SYSTEM_EVERY;
        front.see_to_hops();
        if *turn == 0 {
            let n = system.receive(slots, counters);
            return n + front.receive(&mut slots[n..], counters);
        }
        let n = front.receive(slots, counters);
        if n > 0 { n } else { system.receive(slots, counters) }
    }

    fn send(&mut self, packets: &mut dyn Iterator<Item = (Destination, &Packet)>, counters: &mut IoCounters) {
        let Self { front, system, .. } = self;
        let now = Instant::now();
        let mut of_front = *counters;
        let mut others = packets.filter(|(to, packet)| match *to {
            Destination::N3 { peer, tos } => !front.send_n3(now, (peer, tos), packet, &mut of_front),
            Destination::N6 { dn } => !front.send_n6(now, dn, packet, &mut of_front),
            Destination::Frames { .. } => true,
        });
        let mut of_system = IoCounters::default();
        system.send(&mut others, &mut of_system);
        *counters = of_front;
        counters.n3_sent += of_system.n3_sent;
        counters.n6_sent += of_system.n6_sent;
        counters.send_full += of_system.send_full;
        counters.send_errors += of_system.send_errors;
        for wire in &front.wires {
            counters.send_errors += u64::from(wire.flush().is_err());
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = self.system.descriptors();
        all.extend(self.front.wires.iter().flat_map(Wire::descriptors));
        all
    }

    fn fast_path(&self) -> Option<Arc<FastPathMemory>> {
        self.front.fast.as_ref().map(|fast| Arc::clone(&fast.memory))
    }

    fn busy_poll(&self) -> Duration {
        self.front.busy_poll
    }

    fn in_driver(&self) -> [u64; 3] {
        self.front.fast.as_ref().map_or([0; 3], |fast| fast.memory.forwarded())
    }

    fn all_up(&mut self, all_up: bool) {
        if let Some(fast) = self.front.fast.as_mut().filter(|f| f.all_up != all_up) {
            fast.all_up = all_up;
            self.front.tell_hops(Instant::now());
        }
    }

    fn lost(&self) -> u64 {
        self.system.lost() + self.front.wires.iter().map(Wire::lost).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_user::PacketVerdict;

    use super::*;

    /// Numbers that are always the same (splitmix64).
    struct FixedNumbers(u64);

    impl FixedNumbers {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % n as u64) as usize
        }
    }

    fn datagram(v4: bool) -> Vec<u8> {
        let ip = |a: &str, b: &str| if v4 { a.parse().unwrap() } else { b.parse().unwrap() };
        let way = DatagramRoute {
            link: packet::FrameAddresses { to: [4; 6], from: [2; 6], vlan: None },
            from: SocketAddr::new(ip("192.0.2.9", "2001:db8::9"), 2152),
            to: SocketAddr::new(ip("192.0.2.7", "2001:db8::7"), 2152),
            tos: 0,
            mtu: 1500,
            identification: 1,
        };
        let mut frame = vec![0; 200];
        let n = OutgoingDatagram::new(way, &[0x30, 0xff, 0, 4, 0, 0, 0, 1, 9, 9, 9, 9])
            .unwrap()
            .write(0, &mut frame);
        frame.truncate(n);
        frame
    }

    #[test]
    fn whatever_a_frame_has_becomes_a_packet_or_is_counted() {
        let own = ["192.0.2.7:2152".parse().unwrap(), "[2001:db8::7]:2152".parse().unwrap()];
        let pool = |first: &str, prefix| UeAddressPool {
            first: first.parse().unwrap(),
            prefix,
            gateway: first.parse().unwrap(),
            mtu: 1400,
        };
        let pools = [(pool("10.45.0.0", 16), DnIndex(0)), (pool("2001:db8:45::", 48), DnIndex(1))];
        let origin = Origin::Frames { dn: DnIndex(9) };
        let mut slot =
            BurstPacket { origin, packet: Packet::with_room(2048), verdict: PacketVerdict::Pending };
        let mut counters = IoCounters::default();
        let mut ipv4 = datagram(true);
        ipv4[30..34].copy_from_slice(&[10, 45, 0, 2]);
        let words = |o: &[u8]| o.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
        ipv4[24..26].fill(0);
        let sum = words(&ipv4[14..34]);
        let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        ipv4[24..26].copy_from_slice(&checksum.to_be_bytes());
        let mut ipv6 = datagram(false);
        ipv6[38..54].copy_from_slice(&"2001:db8:45::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
        let ends = ["203.0.113.2", "203.0.113.1"].map(|a| a.parse().unwrap());
        let tunnel = GreTunnel { local: ends[1], remote: ends[0], key: Some(9) };
        let far_end = GreTunnel { local: ends[0], remote: ends[1], ..tunnel };
        let link = packet::FrameAddresses { to: [4; 6], from: [2; 6], vlan: Some(100) };
        let mut tunnelled = vec![0; 200];
        let n = packet::write(&mut tunnelled, link, Some(&far_end), &ipv4[14..]);
        tunnelled.truncate(n);
        let whole = [datagram(true), datagram(false), ipv4, ipv6, tunnelled];
        let arrived = |frame: &[u8], slot: &mut BurstPacket, counters: &mut IoCounters| {
            arrived(frame, &own, &pools, &[tunnel], slot, counters)
        };
        for frame in &whole {
            assert!(arrived(frame, &mut slot, &mut counters));
        }
        assert_eq!((counters.n3_received, counters.n6_received, counters.malformed), (2, 3, 0));
        let mut numbers = FixedNumbers(7);
        for _ in 0..200_000 {
            let mut frame = whole[numbers.below(whole.len())].clone();
            for _ in 0..numbers.below(4) {
                let at = numbers.below(frame.len());
                frame[at] = numbers.below(256) as u8;
            }
            if numbers.below(2) == 0 {
                frame.truncate(numbers.below(frame.len() + 1));
            }
            let before = counters;
            let taken = arrived(&frame, &mut slot, &mut counters);
            let steps = [
                counters.n3_received - before.n3_received,
                counters.n6_received - before.n6_received,
                counters.malformed - before.malformed,
            ];
            assert_eq!((steps.iter().sum::<u64>(), taken), (1, steps[2] == 0));
        }
        assert!(
            counters.malformed > 10_000 && counters.n3_received > 10_000 && counters.n6_received > 10_000
        );
    }
}
