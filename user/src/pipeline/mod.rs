//! UPF-U: the packet pipeline. A burst of packets in, a verdict for each out; rules change between bursts.
//!
//! A packet's way: outer header, session (by TEID or UE address), rule (PDR), buffer or drop (FAR), rate
//! (QER), account (URR), forward (FAR). The protocol logic is per packet, in [`stages`]; the loop over the
//! burst is here.

mod advertise;
mod apply;
mod burst;
mod detect;
mod drops;
mod ethernet;
mod fast;
mod firewall;
mod flows;
mod fragments;
mod gtpu;
mod guard;
mod guesses;
mod held;
mod inner;
mod kept;
mod lookup;
mod meter;
mod naming;
mod packet;
mod path;
mod peers;
mod plain;
mod predicted;
mod relay;
mod session;
mod sessions;
mod shard;
mod shared;
mod slice;
mod stages;
mod strays;
mod survey;
mod timers;
mod traffic;
mod unstructured;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use whimbrel_ids::{Instant, Teid};

use crate::config::{Config, ConfigError, DnIndex};
use crate::exchange::{SessionKey, UserPlaneReport};
use crate::isolation::HostAddresses;
use crate::rules::SessionKind;
use crate::session_id::{SessionId, Teids};
use crate::smf_f_teids::SmfTeids;
pub use burst::{Stage, StageObserver};
pub use drops::{Counters, DropReason, FirewallCounters};
use ethernet::Switch;
use fast::Offloader;
pub use fast::{FastEntry, FastPath, FastPathCounters, state as fast_state};
use firewall::Behind;
pub use guard::DestinationFilter;
use inner::InnerPacket;
use lookup::UeAddresses;
#[cfg(feature = "samples")]
pub(crate) use naming::read_names;
pub use packet::{PACKET_HEADROOM, Packet};
pub use path::PathUse;
use path::Paths;
use predicted::Predictions;
pub(crate) use predicted::prediction_stands;
pub use session::SessionCounters;
use session::SessionU;
use sessions::Sessions;
pub use shard::ShardSteering;
pub(crate) use shard::shard_of;
use shard::{Common, Shard};
use shared::PipelineContext;
use stages::{Ingress, Pdu};
use strays::Strays;
pub use survey::{ACTIVE_WITHIN, NetworkUsage, SessionTable, UsageSurvey};

/// Where a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A datagram on the GTP-U port.
    N3 {
        /// Address and port that sent it.
        peer: SocketAddr,
        /// The address at which it arrived.
        local: IpAddr,
    },
    /// A packet of a data network.
    N6 {
        /// Data network that sent it.
        dn: DnIndex,
    },
    /// An Ethernet frame of a data network.
    Frames {
        /// Data network that sent it.
        dn: DnIndex,
    },
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// As a datagram from the GTP-U port.
    N3 {
        /// Address and port that get it.
        peer: SocketAddr,
        /// Type of service or traffic class of its header.
        tos: u8,
    },
    /// Into a data network.
    N6 {
        /// Data network that gets it.
        dn: DnIndex,
    },
    /// Into a data network, as an Ethernet frame.
    Frames {
        /// Data network that gets it.
        dn: DnIndex,
    },
}

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketVerdict {
    /// Not decided yet.
    Pending,
    /// The packet is to be sent.
    Send(Destination),
    /// Nothing: it was for the UPF itself, or is held; the slot's packet is another, empty one then.
    Taken,
    /// Nothing: it was dropped and counted.
    Drop(DropReason),
    /// It is for another shard, which is to get it with this verdict.
    Hand {
        /// Shard that takes the packet on.
        to: u8,
        /// How often it was handed on, with this time.
        hops: u8,
    },
}

/// A packet of a burst.
#[derive(Clone, Debug)]
pub struct BurstPacket {
    /// Where it came from.
    pub origin: Origin,
    /// The packet in its buffer.
    pub packet: Packet,
    /// What is to be done with it. Before a burst: the verdict of another shard, if the packet comes from there, and else
    /// [`PacketVerdict::Pending`].
    pub verdict: PacketVerdict,
}

/// What the pipeline knows of a data network.
struct PipelineNetwork {
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
/// N3 may have in front of it, generously; and never less than usual links need, so that a UE that does not keep to
/// its MTU is not cut.
pub const fn packet_room(mtu: u16) -> usize {
    const OUTER_OCTETS: usize = 256;
    let octets = mtu as usize + OUTER_OCTETS;
    if octets < 2048 { 2048 } else { octets }
}

const _: () = assert!(packet_room(0) >= advertise::ADVERTISEMENT_OCTETS_MAX);

/// All stages, for a packet of this session.
fn run_in<C: Pdu>(
    session: &mut SessionU,
    shared: &mut PipelineContext,
    now: Instant,
    ingress: Ingress,
    pdu: &C,
    packet: &mut Packet,
) -> PacketVerdict {
    let SessionU { rules, state } = session;
    let verdict = stages::run(rules, state, shared, now, ingress, pdu, packet);
    if let PacketVerdict::Drop(_) = verdict {
        state.counters.dropped += 1;
    }
    verdict
}

/// The packet pipeline.
pub struct UpfU {
    shard: Shard,
    teids: Teids,
    /// Tunnels of this shard's sessions, where SMFs allocate them.
    smf_teids: Option<SmfTeids>,
    sessions: Sessions,
    networks: Box<[PipelineNetwork]>,
    /// Tunnels at peers, for error indications.
    remote: BTreeMap<(Teid, IpAddr), u32>,
    deadlines: BTreeSet<(Instant, u32)>,
    paths: Paths,
    predictions: Predictions,
    strays: Strays,
    /// Packets from gNBs that no session names yet.
    unplaced: peers::UnplacedPackets,
    /// When what sessions have counted is kept.
    looks: kept::Looks,
    shared: PipelineContext,
}

impl UpfU {
    /// The pipelines, as many as are configured, without sessions. Errors: what [`Config::check`] finds.
    pub fn shards(config: &Config) -> Result<Vec<Self>, ConfigError> {
        config.check()?;
        let common = Arc::new(Common::new(config));
        let shard = |n| Self::of_shard(config, Shard::new(n, config.shards), Arc::clone(&common));
        Ok((0..config.shards).map(shard).collect())
    }

    /// The one pipeline of a UPF that has no more, without sessions. Errors: what [`Config::check`] finds.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let config = Config { shards: 1, ..config.clone() };
        Ok(Self::of_shard(&config, Shard::new(0, 1), Arc::new(Common::new(&config))))
    }

    fn of_shard(config: &Config, shard: Shard, common: Arc<Common>) -> Self {
        let network = |dn: &crate::config::DataNetwork| PipelineNetwork {
            addresses: UeAddresses::new(dn),
            switch: Switch::default(),
            mtu: dn.mtu,
            resolvers: dn.dns_ipv6.as_slice().into(),
        };
        let mtu = config.data_networks.iter().map(|d| d.mtu).max().unwrap_or(1500);
        Self {
            shard,
            teids: config.teids(),
            smf_teids: config
                .smf_f_teids
                .then(|| SmfTeids::new(config.sessions_max.div_ceil(shard.of().into()), config.seed)),
            sessions: Sessions::new(shard.bits()),
            networks: config.data_networks.iter().map(network).collect(),
            remote: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            paths: Paths::new(config.echo_interval, config.seed),
            predictions: Predictions::new(config.seed),
            strays: Strays::new(&config.buffering, shard.of()),
            unplaced: peers::UnplacedPackets::default(),
            looks: kept::Looks::default(),
            shared: PipelineContext::new(config, common, shard, packet_room(mtu)),
        }
    }

    /// Which of the pipelines each change is for.
    pub fn steering(&self) -> ShardSteering {
        ShardSteering::new(Arc::clone(&self.shared.common), self.shard.of())
    }

    /// To the shard of a session that is not of this one.
    #[cold]
    fn hand(&self, index: u32) -> PacketVerdict {
        PacketVerdict::Hand { to: self.shard.of_index(index), hops: self.shard.of() }
    }

    /// To the first shard, which is asked before the others.
    #[cold]
    fn to_first(&self, hops: u8) -> PacketVerdict {
        PacketVerdict::Hand { to: 0, hops: hops + 1 }
    }

    /// To the next shard, unless all were asked.
    #[cold]
    fn ask_next(&self, hops: u8) -> Option<PacketVerdict> {
        let more = self.shard.has_others() && hops < self.shard.of();
        more.then(|| PacketVerdict::Hand { to: self.shard.next(), hops: hops + 1 })
    }

    /// Where a packet for a UE that this shard does not have is to go before this shard is asked further, if anywhere.
    #[cold]
    fn elsewhere(&self, dn: DnIndex, ue: IpAddr, hops: u8) -> Option<PacketVerdict> {
        let common = &self.shared.common;
        match common.shard_of(dn, ue) {
            Some(own) if own == self.shard.number() => None,
            Some(to) if hops == 0 => Some(PacketVerdict::Hand { to, hops: 1 }),
            _ if !common.beyond_pools() => None,
            _ if hops == 0 && !self.shard.is_first() => Some(self.to_first(hops)),
            _ => self.ask_next(hops),
        }
    }

    /// Sends no GTP-U error indications until then: SMFs may restore sessions that this UPF has lost (TS 23.527 §4.3), and a gNB that gets one
    /// releases its session.
    pub fn hold_errors(&self, until: Instant) {
        self.shared.common.hold_errors(until);
    }

    /// The host takes packets for these addresses from now on: no UE reaches them, but as the configuration permits.
    pub fn set_host_addresses(&mut self, host: Arc<HostAddresses>) {
        self.shared.guard.set_host(host, &self.shared.common.suspects);
        self.show_suspects();
    }

    /// A fast path learns which destinations it is to hand up.
    fn show_suspects(&mut self) {
        if let Some(offloader) = self.sessions.offloader() {
            offloader.show(&self.shared.common.suspects);
        }
    }

    /// Offloads plain sessions to a fast path from now on; none where SMFs allocate tunnels, whose TEIDs name no entry there.
    pub fn attach_fast_path(&mut self, path: Box<dyn FastPath>) {
        self.shared.common.suspects.merge_into(path.suspects());
        if self.smf_teids.is_some() {
            return;
        }
        self.sessions.attach_fast_path(Offloader::new(path));
    }

    /// Offloads the sessions that wait for it; to be called between bursts. `drained`: all that had come is decided on, and sent.
    pub fn offload_ready(&mut self, now: Instant, drained: bool) {
        self.sessions.offload_ready(now, drained);
    }

    /// When [`Self::offload_ready`] has something to do, if nothing comes before.
    pub fn next_offload(&self) -> Option<Instant> {
        self.sessions.next_offload()
    }

    /// Sessions that are plain now: what packets need of them is two cache lines, and a fast path may have them.
    pub fn plain(&self) -> u64 {
        self.sessions.plain()
    }

    /// Sessions that the fast path has now.
    pub fn offloaded(&self) -> u64 {
        self.sessions.offloaded()
    }

    /// Adds to [`Self::counters`] what the fast path and the firewalls have counted since the last call.
    pub fn collect_counters(&mut self) {
        self.shared.collect_firewall_counters();
        if let Some(offloader) = self.sessions.offloader() {
            offloader.collect_counters(&mut self.shared.counters);
        }
    }

    /// A packet from a data network.
    fn network_packet(&mut self, now: Instant, dn: DnIndex, hops: u8, packet: &mut Packet) -> PacketVerdict {
        let Some(inner) = InnerPacket::parse(packet.octets()) else {
            return PacketVerdict::Drop(DropReason::InnerMalformed);
        };
        packet.truncate(inner.octets);
        if is_link_scope(inner.destination) {
            return PacketVerdict::Drop(DropReason::LinkScope);
        }
        if self.shared.guard.is_foreign_ue_source(inner.source) {
            return PacketVerdict::Drop(DropReason::UeToUe);
        }
        let ue = match self.shared.firewall(dn).map(|b| b.ue_of(now, &inner, packet.octets())) {
            None => inner.destination,
            Some(Behind::Ue(ue)) => ue,
            Some(Behind::NoUe(reason)) => return PacketVerdict::Drop(reason),
            Some(Behind::Shard(to)) if hops == 0 => return PacketVerdict::Hand { to, hops: 1 },
            Some(Behind::Shard(_)) => return PacketVerdict::Drop(DropReason::FirewallUnasked),
            Some(Behind::Unknown) => {
                return self.ask_next(hops).unwrap_or(PacketVerdict::Drop(DropReason::FirewallFragment));
            }
        };
        let index = match self.ue(now, dn, ue, hops) {
            Ok(index) => index,
            Err(PacketVerdict::Drop(DropReason::UnknownUeAddress)) if self.strays.are_kept() => {
                return self.keep_stray(now, SessionKey::to_ue(dn, ue), Origin::N6 { dn }, packet);
            }
            Err(verdict) => return verdict,
        };
        let session = self.sessions.get(index).map(|s| (s.rules.kind, s.rules.firewalled));
        if session.is_some_and(|(kind, _)| kind == SessionKind::Unstructured) {
            return self.octets_to_ue(now, index, &inner, packet);
        }
        let firewall = self.shared.firewall(dn).filter(|_| session.is_some_and(|(_, firewalled)| firewalled));
        let inner = match firewall.map(|b| b.enter(now, index, ue, &inner, packet)) {
            None => inner,
            Some(Ok(inner)) => inner,
            Some(Err(reason)) => return self.dropped_at_border(index, reason),
        };
        self.in_session(now, index, Ingress::NETWORK, &inner, packet)
    }

    /// A packet for a session that the firewall did not let in.
    fn dropped_at_border(&mut self, index: u32, reason: DropReason) -> PacketVerdict {
        if let Some(session) = self.sessions.get(index) {
            session.state.counters.dropped += 1;
        }
        PacketVerdict::Drop(reason)
    }

    /// The session of a UE's address, or of one that is awaited. Errors: what becomes of a packet for it.
    fn ue(&mut self, now: Instant, dn: DnIndex, address: IpAddr, hops: u8) -> Result<u32, PacketVerdict> {
        let find = |upf: &Self| upf.networks.get(usize::from(dn.0))?.addresses.find(address);
        if let Some(index) = find(self) {
            return Ok(index);
        }
        if self.shard.has_others()
            && let Some(elsewhere) = self.elsewhere(dn, address, hops)
        {
            return Err(elsewhere);
        }
        let awaited =
            !self.predictions.is_empty(now) && self.comes_true(now, SessionKey::Ue(dn, address), None);
        if awaited && let Some(index) = find(self) {
            return Ok(index);
        }
        // It may be behind a UE of another shard, though it was a UE's own of this one.
        let next = if self.shared.common.beyond_pools() { self.ask_next(hops) } else { None };
        Err(next.unwrap_or(PacketVerdict::Drop(DropReason::UnknownUeAddress)))
    }

    /// A packet of a session, uplink or downlink.
    fn in_session<C: Pdu>(
        &mut self,
        now: Instant,
        index: u32,
        ingress: Ingress,
        pdu: &C,
        packet: &mut Packet,
    ) -> PacketVerdict {
        let Some(session) = self.sessions.get(index) else {
            return PacketVerdict::Drop(DropReason::UnknownTunnel);
        };
        let verdict = run_in(session, &mut self.shared, now, ingress, pdu, packet);
        self.after(now, index, verdict);
        verdict
    }

    /// What is left to do for a session when the stages have decided on a packet of it.
    fn after(&mut self, now: Instant, index: u32, verdict: PacketVerdict) {
        let Some(session) = self.sessions.get(index) else { return };
        if session.state.rearm && !matches!(verdict, PacketVerdict::Drop(_)) {
            self.arm(index);
        }
        self.sessions.fold_in_time(now, index);
    }

    /// The next packet that the pipeline itself sends; it comes before the packets of later bursts.
    pub fn next_output(&mut self) -> Option<(Destination, Packet)> {
        self.shared.outputs.pop_front()
    }

    /// Takes back the buffer of a packet of [`Self::next_output`].
    pub fn recycle(&mut self, packet: Packet) {
        self.shared.recycle(packet);
    }

    /// Counters of packets from a packet logger that have ended here after they had waited for a UE, and of those that were
    /// [recycled](Self::recycle).
    pub fn take_ended(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.shared.ended)
    }

    /// What the pipeline has to tell.
    pub fn take_reports(&mut self) -> Vec<UserPlaneReport> {
        std::mem::take(&mut self.shared.reports)
    }

    /// How many of everything there were.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// What one session sent, received and lost.
    pub fn session_counters(&self, id: SessionId) -> Option<SessionCounters> {
        self.sessions.counters(id)
    }
}
