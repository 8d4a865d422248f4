//! UPF-C and UPF-U joined by function calls.

use std::net::SocketAddr;
use std::sync::Arc;

use whimbrel_ids::Instant;

use crate::config::{Config, ConfigError};
use crate::control::{Input, Outbox, RestoredSessions, UpfC};
use crate::exchange::{UserPlaneChange, UserPlaneReport};
use crate::isolation::HostAddresses;
use crate::limits::COUNTED_EVERY;
use crate::pipeline::{
    BurstPacket, Counters, Destination, Packet, PacketVerdict, SessionCounters, ShardSteering, UpfU,
};
use crate::session_id::SessionId;
use crate::state::{SessionMemory, StateMemory};

/// Both sides in one thread: what a test, a simulation or a small deployment drives.
pub struct Upf {
    /// The PFCP endpoint.
    pub c: UpfC,
    /// The packet pipelines.
    pub u: Shards,
}

impl Upf {
    /// Errors: what [`Config::check`] finds.
    pub fn new(config: Config, now: Instant) -> Result<Self, ConfigError> {
        Ok(Self { u: Shards::new(&config)?, c: UpfC::new(config, now)? })
    }

    /// Keeps its sessions in a state, and goes on with those that are there. Errors: what [`Config::check`] finds.
    pub fn with_state(
        config: Config,
        now: Instant,
        state: SessionMemory,
        out: &mut Outbox,
    ) -> Result<(Self, RestoredSessions), ConfigError> {
        let mut u = Shards::new(&config)?;
        u.shards.iter_mut().for_each(|shard| shard.keep_counted(COUNTED_EVERY));
        let (c, restored) = UpfC::with_state(config, now, state, out)?;
        let mut upf = Self { c, u };
        upf.settle(now, out);
        Ok((upf, restored))
    }

    /// Writes all that sessions have counted into the state.
    pub fn keep_all_counted(&mut self, now: Instant, out: &mut Outbox) {
        self.u.shards.iter_mut().for_each(UpfU::look_at_all);
        self.settle(now, out);
    }

    /// Handles a PFCP datagram to its end: changes are applied, and what the pipeline reports of them is
    /// answered.
    pub fn pfcp(&mut self, now: Instant, peer: SocketAddr, octets: &[u8], out: &mut Outbox) {
        self.c.handle(now, Input::Pfcp { peer, octets }, out);
        self.settle(now, out);
    }

    /// Runs both sides' timers.
    pub fn tick(&mut self, now: Instant, out: &mut Outbox) {
        self.u.tick(now);
        self.c.handle(now, Input::Tick, out);
        self.settle(now, out);
    }

    /// Carries changes and reports between the sides until neither has any.
    pub fn settle(&mut self, now: Instant, out: &mut Outbox) {
        loop {
            for change in out.changes.drain(..) {
                self.u.apply(now, change);
            }
            let reports: Vec<UserPlaneReport> = self.u.take_reports();
            if reports.is_empty() {
                return;
            }
            for report in reports {
                self.c.handle(now, Input::Report(report), out);
            }
        }
    }

    /// When [`Self::tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.c.next_deadline(), self.u.next_deadline()].into_iter().flatten().min()
    }
}

/// The pipelines of all shards, one after the other in one thread.
pub struct Shards {
    shards: Vec<UpfU>,
    steering: ShardSteering,
    /// The shard at which the next packet arrives: each in turn, so that most are for another one.
    arrives: usize,
}

impl Shards {
    /// As many as are configured. Errors: what [`Config::check`] finds.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let shards = UpfU::shards(config)?;
        let steering = shards[0].steering();
        Ok(Self { shards, steering, arrives: 0 })
    }

    /// The pipeline, where there is one.
    pub fn only(&mut self) -> Option<&mut UpfU> {
        if let [only] = self.shards.as_mut_slice() { Some(only) } else { None }
    }

    /// Does what [`UpfU::hold_errors`] does, at each shard.
    pub fn hold_errors(&self, until: Instant) {
        self.shards[0].hold_errors(until);
    }

    /// As [`UpfU::set_host_addresses`], of all.
    pub fn set_host_addresses(&mut self, host: HostAddresses) {
        let host = Arc::new(host);
        self.shards.iter_mut().for_each(|s| s.set_host_addresses(Arc::clone(&host)));
    }

    /// As [`UpfU::keep_held`], of all, each with a memory of the same octets.
    pub fn keep_held(&mut self, now: Instant, config: &Config, memory: &dyn Fn() -> Box<dyn StateMemory>) {
        self.shards.iter_mut().for_each(|s| s.keep_held(now, memory(), config));
    }

    /// A change that will be applied: from now on all pipelines know where its UE's packets go.
    pub fn announce(&self, change: &UserPlaneChange) {
        self.steering.of_change(change);
    }

    /// Does what [`UpfU::apply`] does, at each shard.
    pub fn apply(&mut self, now: Instant, change: UserPlaneChange) {
        self.shards[self.steering.of_change(&change)].apply(now, change);
        self.tell_paths(now);
    }

    /// The first shard supervises the paths of all.
    fn tell_paths(&mut self, now: Instant) {
        for shard in 1..self.shards.len() {
            for (peer, what) in self.shards[shard].take_path_uses() {
                self.shards[0].path_used(now, peer, what);
            }
        }
    }

    /// Does what [`UpfU::burst`] does, at the shards of the packets.
    pub fn burst(&mut self, now: Instant, slots: &mut [BurstPacket]) {
        if let Some(only) = self.only() {
            return only.burst(now, slots);
        }
        for slot in slots {
            let mut at = self.arrives;
            self.arrives = (self.arrives + 1) % self.shards.len();
            slot.verdict = PacketVerdict::Pending;
            loop {
                self.shards[at].burst(now, std::slice::from_mut(slot));
                self.tell_paths(now); // a predicted session may have begun
                let PacketVerdict::Hand { to, .. } = slot.verdict else { break };
                at = to.into();
            }
        }
    }

    /// As [`UpfU::next_output`], those of one shard after those of the other.
    pub fn next_output(&mut self) -> Option<(Destination, Packet)> {
        self.shards.iter_mut().find_map(UpfU::next_output)
    }

    /// Does what [`UpfU::recycle`] does.
    pub fn recycle(&mut self, packet: Packet) {
        self.shards[0].recycle(packet);
    }

    /// Reports of all shards, as [`UpfU::take_reports`] gives them.
    pub fn take_reports(&mut self) -> Vec<UserPlaneReport> {
        self.shards.iter_mut().flat_map(UpfU::take_reports).collect()
    }

    /// Does what [`UpfU::collect_counters`] does, at each shard.
    pub fn collect_counters(&mut self) {
        self.shards.iter_mut().for_each(UpfU::collect_counters);
    }

    /// As [`UpfU::counters`], of all together.
    pub fn counters(&self) -> Counters {
        self.shards.iter().fold(Counters::default(), |sum, s| sum + s.counters())
    }

    /// Counters of a session, as [`UpfU::session_counters`] gives them.
    pub fn session_counters(&self, id: SessionId) -> Option<SessionCounters> {
        self.shards[self.steering.of_session(id)].session_counters(id)
    }

    /// Does what [`UpfU::tick`] does, at each shard.
    pub fn tick(&mut self, now: Instant) {
        self.shards.iter_mut().for_each(|s| s.tick(now));
        self.tell_paths(now);
    }

    /// The earliest deadline of all shards ([`UpfU::next_deadline`]).
    pub fn next_deadline(&self) -> Option<Instant> {
        self.shards.iter().filter_map(UpfU::next_deadline).min()
    }
}
