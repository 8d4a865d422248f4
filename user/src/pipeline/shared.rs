//! What the pipeline's stages share besides the session: counters, buffers, outputs, reports.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use whimbrel_ids::Instant;

use super::Destination;
use super::drops::{Counters, DropReason};
use super::firewall::N6Firewall;
use super::flows::Flows;
use super::fragments::Fragments;
use super::guard::UeIsolation;
use super::guesses::Guesses;
use super::inner::InnerPacket;
use super::packet::Packet;
use super::path::PathUse;
use super::shard::{Common, Shard};
use crate::buffering::Buffering;
use crate::config::{Config, DnIndex};
use crate::exchange::UserPlaneReport;
use crate::limits::{NAMES_KNOWN_MAX, OWN_OUTPUTS_MAX, REPORTS_MAX};
use crate::session_id::{SessionId, mix};
use crate::state::HeldPackets;

/// Spare buffers kept for reuse; more are given back to the allocator.
const SPARE_MAX: usize = 1024;

pub(super) struct PipelineContext {
    pub(super) counters: Counters,
    pub(super) outputs: VecDeque<(Destination, Packet)>,
    pub(super) reports: Vec<UserPlaneReport>,
    /// What the other shards share too.
    pub(super) common: Arc<Common>,
    /// What UEs do not reach.
    pub(super) guard: UeIsolation,
    /// Peers that name tunnels which no session has.
    pub(super) guesses: Guesses,
    /// By data network.
    pub(super) firewalls: Box<[Option<Box<N6Firewall>>]>,
    /// What flows have met, if it is remembered.
    pub(super) flows: Option<Flows>,
    /// What later fragments' ports are.
    pub(super) fragments: Fragments,
    /// Rules that sessions were given.
    rules_given: u64,
    /// Path uses and signs of life for the first shard, which supervises paths.
    pub(super) path_uses: Vec<(IpAddr, PathUse)>,
    /// Of what is drawn by chance.
    pub(super) random: u64,
    /// Of a packet that waited for a UE, while it meets its session's rules again.
    pub(super) waited_since: Option<Instant>,
    /// What may wait for UEs.
    pub(super) buffering: Buffering,
    /// Whose answers about names are believed; anybody's, if there are none.
    resolvers: Box<[IpAddr]>,
    /// Addresses and flows that are known by name, at most.
    names_max: u64,
    /// What sessions have counted is reported to UPF-C, which keeps it.
    pub(super) keeps_counted: bool,
    /// Packets that wait for idle UEs, for a successor.
    pub(super) kept_held: Option<HeldPackets>,
    /// Counters of packets that ended here after they had waited, or whose buffers came back: for the packet logger.
    pub(super) ended: Vec<u64>,
    spare: Vec<Packet>,
    room: usize,
}

impl PipelineContext {
    pub(super) fn new(config: &Config, common: Arc<Common>, shard: Shard, room: usize) -> Self {
        let part = |flows: u32| flows.div_ceil(shard.of().into());
        let firewall = |(at, dn)| N6Firewall::of(at, dn, config.seed, shard).map(Box::new);
        let guard = UeIsolation::new(config);
        guard.suspect_configured(config, &common.suspects);
        Self {
            common,
            guard,
            guesses: Guesses::default(),
            firewalls: config.data_networks.iter().enumerate().map(firewall).collect(),
            flows: Flows::new(part(config.flows_first), part(config.flows_second), config.seed),
            fragments: Fragments::new(config.seed),
            rules_given: 0,
            path_uses: Vec::new(),
            random: mix(config.seed ^ u64::from(shard.number())),
            counters: Counters::default(),
            outputs: VecDeque::new(),
            reports: Vec::new(),
            waited_since: None,
            buffering: config.buffering,
            resolvers: config.applications.resolvers.as_slice().into(),
            names_max: NAMES_KNOWN_MAX / u64::from(shard.of()),
            keeps_counted: false,
            kept_held: None,
            ended: Vec::new(),
            spare: Vec::new(),
            room,
        }
    }

    /// A number that no rules had before; never zero.
    pub(super) fn number_rules(&mut self) -> u64 {
        self.rules_given += 1;
        self.rules_given
    }

    /// Whether a UE's packet may go into its data network. Errors: why not.
    #[inline]
    pub(super) fn guard(&self, inner: &InnerPacket, packet: &[u8]) -> Result<(), DropReason> {
        if self.guard.suspects(inner.destination, &self.common.suspects) {
            self.guard.judge(inner, packet, &self.common.peers)
        } else {
            Ok(())
        }
    }

    /// Whether GTP-U may come from an address other than the gNB's of its session: from one that any session names, or where the operator has
    /// gNBs, unless it is suspended; and from any but a UE's, where the session names `no_gnb`.
    #[cold]
    pub(super) fn is_peer(&self, now: Instant, address: IpAddr, no_gnb: bool) -> bool {
        let known = no_gnb || self.common.peers.has(address) || self.guard.is_in_gnb_networks(address);
        known && !self.guard.is_ue(address) && !self.guesses.suspends(now, address)
    }

    /// The firewall of a data network, if it has one.
    pub(super) fn firewall(&mut self, dn: DnIndex) -> Option<&mut N6Firewall> {
        self.firewalls.get_mut(usize::from(dn.0))?.as_deref_mut()
    }

    /// What the firewalls have counted goes to the other figures.
    pub(super) fn collect_firewall_counters(&mut self) {
        self.counters.firewalls.clear();
        let firewalls = self.firewalls.iter().flatten();
        self.counters.firewalls.extend(firewalls.map(|b| b.counters().clone()));
    }

    /// An empty packet; a used buffer where one is spare.
    pub(super) fn fresh(&mut self) -> Packet {
        let mut p = self.spare.pop().unwrap_or_else(|| Packet::with_room(self.room));
        p.received(0);
        p.take_counter();
        p
    }

    pub(super) fn recycle(&mut self, mut packet: Packet) {
        let counter = packet.take_counter();
        if counter != 0 {
            self.ended.push(counter);
        }
        if self.spare.len() < SPARE_MAX && packet.room().len() >= self.room {
            self.spare.push(packet);
        }
    }

    /// One more packet waits for a UE. Errors: which bound of all sessions it exceeds.
    pub(super) fn hold(&mut self, octets: usize) -> Result<(), DropReason> {
        self.common.hold(octets as u64)?;
        self.counters.held += 1;
        self.counters.held_octets += octets as u64;
        Ok(())
    }

    /// Keeps a packet that waits for a successor; where, if it is kept.
    pub(super) fn keep_held(&mut self, session: SessionId, since: Instant, octets: &[u8]) -> Option<u32> {
        self.kept_held.as_mut()?.put(session, since, octets)
    }

    /// It waits no longer.
    pub(super) fn forget_held(&mut self, place: Option<u32>) {
        self.kept_held.iter_mut().for_each(|kept| kept.free(place));
    }

    /// Whether what this server says of names is believed.
    pub(super) fn believes(&self, server: IpAddr) -> bool {
        self.resolvers.is_empty() || self.resolvers.contains(&server)
    }

    /// Addresses and flows that may be known by name besides those that are.
    pub(super) fn names_room(&self) -> i64 {
        self.names_max.saturating_sub(self.counters.names_known) as i64
    }

    /// So many more are known by name, or fewer.
    pub(super) fn names_known(&mut self, more: i64) {
        self.counters.names_known = self.counters.names_known.saturating_add_signed(more);
    }

    /// So many wait no longer.
    pub(super) fn released(&mut self, packets: usize, octets: usize) {
        self.common.release(packets as u64, octets as u64);
        self.counters.held -= packets as u64;
        self.counters.held_octets -= octets as u64;
    }

    /// Sends a packet of the pipeline's own.
    pub(super) fn send(&mut self, to: Destination, packet: Packet) {
        // All that waits for UEs may be released at once.
        if self.outputs.len() < self.buffering.packets as usize + OWN_OUTPUTS_MAX {
            self.outputs.push_back((to, packet));
        } else {
            self.counters.drop(DropReason::OutputFull);
            self.recycle(packet);
        }
    }

    /// Sends octets of the pipeline's own.
    pub(super) fn send_octets(&mut self, to: Destination, octets: &[u8]) {
        let mut packet = self.fresh();
        packet.fill(octets);
        self.send(to, packet);
    }

    pub(super) fn report(&mut self, report: UserPlaneReport) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        } else {
            self.counters.reports_lost += 1;
        }
    }
}
