//! UPF-U: the packet pipeline. A burst of packets in, a verdict for each out; rules change between bursts.
//!
//! A packet's way: outer header, session (by TEID or UE address), rule (PDR), buffer or drop (FAR), rate
//! (QER), account (URR), forward (FAR). The protocol logic is per packet, in [`stages`]; the loop over the
//! burst is here.

mod advertise;
mod apply;
mod drops;
mod ethernet;
mod gtpu;
mod inner;
mod lookup;
mod meter;
mod packet;
mod path;
mod relay;
mod session;
mod shared;
mod stages;
mod timers;
mod unstructured;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use whimbrel_ids::{Instant, Teid};

use crate::config::{Config, ConfigError, DnIndex};
use crate::exchange::Report;
use crate::rules::SessionKind;
use crate::session_id::{SessionId, TeidLayout};
pub use drops::{Counters, DropReason};
use ethernet::Switch;
use inner::Inner;
use lookup::UeAddresses;
pub use packet::{PACKET_HEADROOM, Packet};
use path::Paths;
pub use session::SessionCounters;
use session::SessionU;
use shared::Shared;
use stages::{Arrival, Content};

/// Packets whose memory is loaded together: more than 16 gain nothing, as there are no more line fill buffers.
const TOUCHED_TOGETHER: usize = 16;

/// Where a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A datagram on the GTP-U port.
    N3 {
        /// Its source.
        peer: SocketAddr,
        /// The address at which it arrived.
        local: IpAddr,
    },
    /// A packet of a data network.
    N6 {
        /// The network.
        dn: DnIndex,
    },
    /// An Ethernet frame of a data network.
    Frames {
        /// The network.
        dn: DnIndex,
    },
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// As a datagram from the GTP-U port.
    N3 {
        /// Its destination.
        peer: SocketAddr,
        /// Type of service or traffic class of its header.
        tos: u8,
    },
    /// Into a data network.
    N6 {
        /// The network.
        dn: DnIndex,
    },
    /// Into a data network, as an Ethernet frame.
    Frames {
        /// The network.
        dn: DnIndex,
    },
}

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not decided yet.
    Pending,
    /// Send it.
    Send(Destination),
    /// Nothing: it was for the UPF itself, or is held; the slot's packet is another, empty one then.
    Taken,
    /// Nothing: it was dropped and counted.
    Drop(DropReason),
}

/// A packet of a burst.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Where it came from.
    pub origin: Origin,
    /// The packet.
    pub packet: Packet,
    /// What is to be done with it.
    pub verdict: Verdict,
}

/// What the pipeline knows of a data network.
struct Network {
    addresses: UeAddresses,
    switch: Switch,
    mtu: u16,
    resolvers: Box<[Ipv6Addr]>,
}

/// Whether a destination is on the link alone, or many.
fn is_link_scope(a: IpAddr) -> bool {
    match a {
        IpAddr::V4(a) => a.is_multicast() || a.is_link_local() || a.is_broadcast(),
        IpAddr::V6(a) => a.is_multicast() || a.is_unicast_link_local(),
    }
}

/// Octets that the buffer of every packet has for it, whatever made it: the MTU and the outer headers that a packet from
/// N3 may have in front of it, generously; and never less than usual links need, so that a phone that does not keep to
/// its MTU is not cut.
pub const fn packet_room(mtu: u16) -> usize {
    const OUTER_OCTETS: usize = 256;
    let octets = mtu as usize + OUTER_OCTETS;
    if octets < 2048 { 2048 } else { octets }
}

const _: () = assert!(packet_room(0) >= advertise::ADVERTISEMENT_OCTETS_MAX);

/// All stages, for a packet of this session.
fn run_in<C: Content>(
    session: &mut SessionU,
    shared: &mut Shared,
    now: Instant,
    arrival: Arrival,
    content: &C,
    packet: &mut Packet,
) -> Verdict {
    let SessionU { rules, state } = session;
    let verdict = stages::run(rules, state, shared, now, arrival, content, packet);
    if let Verdict::Drop(_) = verdict {
        state.counters.dropped += 1;
    }
    verdict
}

/// The packet pipeline.
pub struct UpfU {
    teids: TeidLayout,
    sessions: Vec<Option<Box<SessionU>>>,
    networks: Box<[Network]>,
    /// Tunnels at peers, for error indications.
    remote: BTreeMap<(Teid, IpAddr), u32>,
    deadlines: BTreeSet<(Instant, u32)>,
    paths: Paths,
    shared: Shared,
}

impl UpfU {
    /// A pipeline without sessions. Errors: what [`Config::check`] finds.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let network = |dn: &crate::config::DataNetwork| Network {
            addresses: UeAddresses::new(dn),
            switch: Switch::default(),
            mtu: dn.mtu,
            resolvers: dn.dns_ipv6.as_slice().into(),
        };
        let mtu = config.data_networks.iter().map(|d| d.mtu).max().unwrap_or(1500);
        Ok(Self {
            teids: TeidLayout::of(config.sessions_max),
            sessions: Vec::new(),
            networks: config.data_networks.iter().map(network).collect(),
            remote: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            paths: Paths::new(config.echo_interval, config.seed),
            shared: Shared::new(packet_room(mtu)),
        })
    }

    /// Decides on every packet of a burst. Packets that the pipeline itself sends wait in
    /// [`Self::next_output`]; what it has to tell in [`Self::take_reports`].
    pub fn burst(&mut self, now: Instant, slots: &mut [Slot]) {
        for slots in slots.chunks_mut(TOUCHED_TOGETHER) {
            self.touch(slots);
            for slot in slots {
                slot.verdict = match slot.origin {
                    Origin::N3 { peer, local } => self.datagram(now, peer, local, &mut slot.packet),
                    Origin::N6 { dn } => self.network_packet(now, dn, &mut slot.packet),
                    Origin::Frames { dn } => self.network_frame(now, dn, &mut slot.packet),
                };
                if let Verdict::Drop(reason) = slot.verdict {
                    self.shared.counters.drop(reason);
                }
            }
        }
    }

    /// Loads what the stages will read, one step of indirection at a time for all packets: the loads of a step do not
    /// depend on each other, so their cache misses overlap, where the stages would wait for each in turn.
    fn touch(&self, slots: &[Slot]) {
        let mut sessions: [Option<&SessionU>; TOUCHED_TOGETHER] = [None; TOUCHED_TOGETHER];
        for (session, slot) in sessions.iter_mut().zip(slots) {
            *session = self.locate(slot);
        }
        let found = || sessions.iter().flatten();
        let state = found().fold(0, |sum, s| sum ^ s.state.generation);
        let rules = found().fold(0, |sum, s| sum ^ s.rules.fars.len() ^ s.rules.tunnels[0].0 as usize);
        let lists = found().fold(0, |sum, s| {
            let pdr = s.rules.pdrs.last().map_or(0, |p| p.precedence);
            let far = s.rules.fars.last().map_or(0, |f| f.far_id.0);
            let qer = s.rules.qers.first().map_or(0, |q| q.qer_id.0);
            let urr = s.rules.urrs.first().map_or(0, |u| u.urr_id.0);
            let usage = s.state.usage.first().map_or(0, |u| u.urr_id.0);
            let meter = s.state.meters.first().map_or(0, |m| m.touch());
            sum ^ pdr ^ far ^ qer ^ urr ^ usage ^ meter
        });
        std::hint::black_box((state, rules, lists));
    }

    /// The session that a packet probably belongs to.
    fn locate(&self, slot: &Slot) -> Option<&SessionU> {
        let octets = slot.packet.octets();
        let index = match slot.origin {
            Origin::N3 { .. } => {
                let teid = octets.get(4..8).and_then(|t| t.try_into().ok()).map(u32::from_be_bytes)?;
                self.teids.index_of(Teid(teid))
            }
            Origin::N6 { dn } => {
                let inner = Inner::parse(octets)?;
                self.networks.get(usize::from(dn.0))?.addresses.find(inner.destination)?
            }
            Origin::Frames { .. } => return None,
        };
        self.sessions.get(index as usize)?.as_deref()
    }

    /// A packet from a data network.
    fn network_packet(&mut self, now: Instant, dn: DnIndex, packet: &mut Packet) -> Verdict {
        let Some(inner) = Inner::parse(packet.octets()) else {
            return Verdict::Drop(DropReason::InnerMalformed);
        };
        packet.truncate(inner.octets);
        if is_link_scope(inner.destination) {
            return Verdict::Drop(DropReason::LinkScope);
        }
        let Some(network) = self.networks.get(usize::from(dn.0)) else {
            return Verdict::Drop(DropReason::UnknownUeAddress);
        };
        let Some(index) = network.addresses.find(inner.destination) else {
            return Verdict::Drop(DropReason::UnknownUeAddress);
        };
        let session = self.sessions.get(index as usize).and_then(Option::as_deref);
        if session.is_some_and(|s| s.rules.kind == SessionKind::Unstructured) {
            return self.octets_to_phone(now, index, &inner, packet);
        }
        self.in_session(now, index, Arrival::NETWORK, &inner, packet)
    }

    /// A packet of a session, whichever way it came.
    fn in_session<C: Content>(
        &mut self,
        now: Instant,
        index: u32,
        arrival: Arrival,
        content: &C,
        packet: &mut Packet,
    ) -> Verdict {
        let Some(session) = self.sessions.get_mut(index as usize).and_then(Option::as_deref_mut) else {
            return Verdict::Drop(DropReason::UnknownTunnel);
        };
        let verdict = run_in(session, &mut self.shared, now, arrival, content, packet);
        if session.state.rearm && !matches!(verdict, Verdict::Drop(_)) {
            self.arm(index);
        }
        verdict
    }

    /// The next packet that the pipeline itself sends; it comes before the packets of later bursts.
    pub fn next_output(&mut self) -> Option<(Destination, Packet)> {
        self.shared.outputs.pop_front()
    }

    /// Takes back the buffer of a packet of [`Self::next_output`].
    pub fn recycle(&mut self, packet: Packet) {
        self.shared.recycle(packet);
    }

    /// What the pipeline has to tell.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.shared.reports)
    }

    /// How many of everything there were.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// What one session sent, received and lost.
    pub fn session_counters(&self, id: SessionId) -> Option<SessionCounters> {
        self.session(id).map(|s| s.state.counters)
    }

    fn session(&self, id: SessionId) -> Option<&SessionU> {
        self.sessions.get(id.index as usize)?.as_deref().filter(|s| s.state.generation == id.generation)
    }
}
