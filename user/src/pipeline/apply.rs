//! Changes of UPF-C, applied between bursts.

use std::sync::Arc;

use whimbrel_gtpu::GpduHeader;
use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{ApplyAction, UsageReportTrigger};
use whimbrel_pfcp::rule::UsageReport;

use super::held::{self, BufferedPacket};
use super::inner::InnerPacket;
use super::meter::Meter;
use super::packet::Packet;
use super::predicted::Future;
use super::session::{SessionCounters, SessionState, SessionU};
use super::shared::PipelineContext;
use super::stages::Ingress;
use super::timers::{advertise, is_active, readvertise};
use super::usage::Usage;
use super::{Destination, DropReason, PacketVerdict, UpfU, ethernet, kept, stages, unstructured};
use crate::config::Config;
use crate::exchange::{Effects, Query, UsageToken, UserPlaneChange, UserPlaneReport};
use crate::limits::SESSIONS_MAX;
use crate::rules::{Qer, SessionKind, SessionRules};
use crate::session_id::SessionId;
use crate::state::{HeldPackets, KeptPacket, SessionMemory, StateMemory};

impl UpfU {
    /// Applies a change; the next burst sees it.
    pub fn apply(&mut self, now: Instant, change: UserPlaneChange) {
        match change {
            UserPlaneChange::Put { session, rules, effects } => self.put(now, session, rules, effects),
            UserPlaneChange::Remove { session, token } => self.remove(now, session, token),
            UserPlaneChange::Restore { session, rules, counted } => {
                self.restore(now, session, rules, counted.as_deref())
            }
            UserPlaneChange::NoSession { lead, .. } => self.turn_away_strays(now, lead),
            UserPlaneChange::Predict { session, rules, effects } => {
                self.predict(now, Future { session, rules, effects });
            }
        }
    }

    pub(super) fn put(&mut self, now: Instant, id: SessionId, rules: Arc<SessionRules>, effects: Effects) {
        self.seat(now, id, rules, effects, false);
    }

    /// `restored`: the UE knows the session, which stood before this process did.
    pub(super) fn seat(
        &mut self,
        now: Instant,
        id: SessionId,
        rules: Arc<SessionRules>,
        effects: Effects,
        restored: bool,
    ) {
        let index = id.index;
        if index >= SESSIONS_MAX || !self.shard.is_own(index) {
            return; // UPF-C gives no such index, and whoever takes changes here knows whose they are
        }
        if !effects.keeps_prediction {
            self.predictions.forget_session(index);
        }
        // Packets already on their way to the old tunnel go first, then its end marker, then what was held.
        for m in &effects.end_markers {
            let header = GpduHeader::new(m.teid, None);
            let to = Destination::N3 { peer: m.peer, tos: m.tos };
            self.shared.send_octets(to, &header.end_marker()[..header.octets_len()]);
            self.shared.counters.end_markers_sent += 1;
        }
        if let Some(generation) = self.sessions.generation(index).filter(|g| *g != id.generation) {
            // Its removal was lost on the way; a place has one session.
            self.remove(now, SessionId { index, generation }, None);
        }
        let mut reports = Vec::new();
        let was_active = match self.sessions.take(index) {
            Some(mut s) => {
                self.forget(now, index, &s.rules);
                let was_active = is_active(&s.rules);
                held::expire(&mut s.state, &mut self.shared, now);
                let ends = |r: &SessionRules| (r.ue_ipv4, r.ue_ipv6, r.data_network);
                if ends(&s.rules) != ends(&rules) {
                    self.forget_flows(index, &s.rules);
                }
                replace(&mut s, &rules, &effects, now, &mut reports);
                if let Some(naming) = s.state.naming.take_if(|_| !rules.compared.named) {
                    self.shared.names_known(-(naming.len() as i64));
                }
                self.sessions.put(index, s);
                was_active
            }
            None => {
                self.shared.counters.sessions += 1;
                self.sessions.put(index, Box::new(new_session(id, &rules, now)));
                false
            }
        };
        if let Some(s) = self.sessions.get(index) {
            s.state.rules_number = self.shared.number_rules();
        }
        self.learn(now, index, &rules);
        if let Some(firewall) = self.shared.firewall(rules.data_network).filter(|_| rules.firewalled) {
            firewall.welcome(index);
        }
        self.looks.set(index, Some(&rules));
        if let Some(s) = self.sessions.get(index).filter(|_| effects.token.is_some()) {
            kept::report(&mut self.shared, &s.rules, &s.state);
        }
        if let Some(token) = effects.token {
            self.shared.report(UserPlaneReport::Usage { session: id, token: Some(token), reports });
        }
        let network = self.networks.get(usize::from(rules.data_network.0));
        if let (Some(s), Some(network)) = (self.sessions.get(index), network)
            && is_active(&rules)
            && !was_active
        {
            if restored {
                readvertise(&s.rules, &mut s.state, now);
            } else {
                advertise(&s.rules, &mut s.state, &mut self.shared, network, now);
            }
        }
        self.drain(now, index, effects.drop_buffered);
        self.place_waiting(now, index);
        if self.strays.are_kept() {
            self.welcome_strays(now, &rules);
        }
        if let Some(s) = self.sessions.get(index).filter(|_| effects.notify_again) {
            s.state.notified = false;
            s.state.error_reported = false;
        }
        self.arm(index);
        self.sessions.fold(index);
    }

    fn remove(&mut self, now: Instant, id: SessionId, token: Option<UsageToken>) {
        let mut reports = Vec::new();
        self.predictions.forget_session(id.index);
        if self.shard.is_own(id.index)
            && self.sessions.generation(id.index) == Some(id.generation)
            && let Some(mut s) = self.sessions.take(id.index)
        {
            self.shared.counters.sessions -= 1;
            self.looks.set(id.index, None);
            self.drop_waiting(id.index);
            self.forget(now, id.index, &s.rules);
            self.forget_flows(id.index, &s.rules);
            if let Some(network) = self.networks.get_mut(usize::from(s.rules.data_network.0)) {
                network.switch.unplug(id.index);
                s.state.macs.iter().for_each(|l| network.switch.forget(&l.mac));
            }
            if let Some(at) = s.state.deadline {
                self.deadlines.remove(&(at, id.index));
            }
            for (usage, urr) in s.state.usage.iter_mut().zip(s.rules.urrs.iter()) {
                usage.report(urr, now, UsageReportTrigger::TERMR, &mut reports);
            }
            let known = s.state.naming.as_ref().map_or(0, |n| n.len());
            self.shared.names_known(-(known as i64));
            for BufferedPacket { packet, .. } in held::take(&mut s.state, &mut self.shared) {
                self.shared.counters.drop(DropReason::BufferDiscarded);
                self.shared.recycle(packet);
            }
        }
        if token.is_some() {
            self.shared.report(UserPlaneReport::Usage { session: id, token, reports });
        }
    }

    /// What was held meets the new rules, in order, before any later packet.
    fn drain(&mut self, now: Instant, index: u32, discard: bool) {
        let Some(session) = self.sessions.get(index) else {
            return;
        };
        for BufferedPacket { since, ingress, mut packet, .. } in
            held::take(&mut session.state, &mut self.shared)
        {
            let verdict = if discard {
                PacketVerdict::Drop(DropReason::BufferDiscarded)
            } else {
                self.shared.waited_since = Some(since);
                again(session, &mut self.shared, now, ingress, &mut packet)
            };
            match verdict {
                PacketVerdict::Send(to) => self.shared.send(to, packet),
                PacketVerdict::Drop(reason) => {
                    self.shared.counters.drop(reason);
                    session.state.counters.dropped += 1;
                    self.shared.recycle(packet);
                }
                // It is of a session of this shard.
                PacketVerdict::Taken | PacketVerdict::Pending | PacketVerdict::Hand { .. } => {
                    self.shared.recycle(packet)
                }
            }
        }
        self.shared.waited_since = None;
    }

    /// From now on packets that wait for idle UEs are kept in a memory that outlives this process, in the places of this pipeline, of a UPF with this
    /// configuration. Those that the process before this one has left there wait for their sessions, which have been restored; they have met nothing yet that
    /// they would be counted by twice.
    pub fn keep_held(&mut self, now: Instant, memory: Box<dyn StateMemory>, config: &Config) {
        let (thread, threads) = (self.shard.number(), self.shard.of());
        let mut kept = HeldPackets::new(memory, SessionMemory::held_at(config), thread, threads);
        let left = kept.take_all();
        self.shared.kept_held = Some(kept);
        for KeptPacket { session, since, octets, .. } in left {
            let Some(s) =
                self.sessions.get(session.index).filter(|s| s.state.generation == session.generation)
            else {
                continue;
            };
            let mut packet = self.shared.fresh();
            packet.fill(&octets);
            self.shared.waited_since = Some(since.min(now));
            let verdict = again(s, &mut self.shared, now, Ingress::NETWORK, &mut packet);
            self.shared.waited_since = None;
            match verdict {
                PacketVerdict::Send(to) => self.shared.send(to, packet),
                PacketVerdict::Drop(reason) => {
                    self.shared.counters.drop(reason);
                    s.state.counters.dropped += 1;
                    self.shared.recycle(packet);
                }
                PacketVerdict::Taken | PacketVerdict::Pending | PacketVerdict::Hand { .. } => {
                    self.shared.recycle(packet)
                }
            }
            self.arm(session.index);
            self.sessions.fold(session.index);
        }
    }

    /// Makes a session found by its addresses and its tunnels.
    fn learn(&mut self, now: Instant, index: u32, rules: &SessionRules) {
        self.set_addresses(rules, Some(index));
        if let Some(teids) = &mut self.smf_teids {
            rules.tunnels().for_each(|t| teids.insert(t, index));
        }
        self.set_routes(index, rules, true);
        for tunnel in rules.remote_tunnels() {
            self.remote.insert(tunnel, index);
            self.lead_to(now, tunnel.1, true);
        }
    }

    fn forget(&mut self, now: Instant, index: u32, rules: &SessionRules) {
        self.set_addresses(rules, None);
        if let Some(teids) = &mut self.smf_teids {
            rules.tunnels().for_each(|t| teids.remove(t, index));
        }
        self.set_routes(index, rules, false);
        for tunnel in rules.remote_tunnels() {
            if self.remote.get(&tunnel) == Some(&index) {
                self.remote.remove(&tunnel);
            }
            self.lead_to(now, tunnel.1, false);
        }
    }

    /// What went through a firewall ends: the next UE with these addresses has not asked for it.
    fn forget_flows(&mut self, index: u32, rules: &SessionRules) {
        if let Some(firewall) = self.shared.firewall(rules.data_network).filter(|_| rules.firewalled) {
            firewall.forget(index);
        }
    }

    fn set_addresses(&mut self, rules: &SessionRules, session: Option<u32>) {
        let Some(network) = self.networks.get_mut(usize::from(rules.data_network.0)) else { return };
        if let (SessionKind::Ethernet, Some(index)) = (rules.kind, session) {
            network.switch.plug(index);
        }
        if let Some(a) = rules.ue_ipv4 {
            network.addresses.set(a.into(), session);
        }
        if let Some(a) = rules.ue_ipv6 {
            network.addresses.set(a.into(), session);
        }
    }

    /// The networks behind the UE lead to the session, or no longer.
    fn set_routes(&mut self, index: u32, rules: &SessionRules, there: bool) {
        let Some(network) = self.networks.get_mut(usize::from(rules.data_network.0)) else { return };
        for route in &rules.framed {
            network.addresses.set_route(*route, index, there);
        }
    }
}

/// A packet that was held meets its session's rules again.
fn again(
    s: &mut SessionU,
    shared: &mut PipelineContext,
    now: Instant,
    ingress: Ingress,
    packet: &mut Packet,
) -> PacketVerdict {
    let SessionU { rules, state } = s;
    match rules.kind {
        SessionKind::Ip => match InnerPacket::parse(packet.octets()) {
            Some(inner) => stages::run(rules, state, shared, now, ingress, &inner, packet),
            None => PacketVerdict::Drop(DropReason::InnerMalformed),
        },
        SessionKind::Ethernet => ethernet::again(rules, state, shared, now, ingress, packet),
        SessionKind::Unstructured => unstructured::again(rules, state, shared, now, ingress, packet),
    }
}

fn new_session(id: SessionId, rules: &Arc<SessionRules>, now: Instant) -> SessionU {
    let state = SessionState {
        meters: rules.qers.iter().map(|_| Meter::new(now)).collect(),
        usage: rules.urrs.iter().map(|u| Usage::new(u, now)).collect(),
        generation: id.generation,
        notified: false,
        inactive: false,
        error_reported: false,
        rearm: false,
        last_packet: now,
        rules_number: 0,
        counters: SessionCounters::default(),
        index: id.index,
        deadline: None,
        next_advertisement: None,
        held: Default::default(),
        notice: None,
        quiet_until: None,
        fold_at: Instant::ZERO,
        naming: None,
        macs: Vec::new(),
    };
    SessionU { rules: Arc::clone(rules), state }
}

/// Sets new rules; meters and figures of rules that stay go on.
fn replace(
    s: &mut SessionU,
    rules: &Arc<SessionRules>,
    effects: &Effects,
    now: Instant,
    reports: &mut Vec<UsageReport>,
) {
    let old = std::mem::replace(&mut s.rules, Arc::clone(rules));
    let s = &mut s.state;
    let rates = |q: &Qer| (q.qer_id, q.mbr_ul_kbps, q.mbr_dl_kbps, q.gbr_ul_kbps, q.gbr_dl_kbps, q.window_ms);
    let meter = |q: &Qer| {
        let at = old.qers.iter().position(|o| rates(o) == rates(q));
        at.and_then(|i| s.meters.get(i)).copied().unwrap_or(Meter::new(now))
    };
    s.meters = rules.qers.iter().map(meter).collect();
    let mut usage: Vec<Option<Usage>> = std::mem::take(&mut s.usage).into_iter().map(Some).collect();
    let mut kept = Vec::with_capacity(rules.urrs.len());
    for urr in &rules.urrs {
        let known = usage.iter_mut().find(|u| u.as_ref().is_some_and(|u| u.urr_id == urr.urr_id));
        let mut u = known.and_then(Option::take).unwrap_or_else(|| Usage::new(urr, now));
        u.update(urr, now);
        let asked = match &effects.query {
            Query::Nothing => false,
            Query::All => true,
            Query::Some(ids) => ids.contains(&urr.urr_id),
        };
        if asked && effects.token.is_some() {
            u.report(urr, now, UsageReportTrigger::IMMER, reports);
        }
        kept.push(u);
    }
    s.usage = kept.into();
    if effects.token.is_some() {
        for mut u in usage.into_iter().flatten() {
            if let Some(urr) = old.urrs.iter().find(|o| o.urr_id == u.urr_id) {
                u.report(urr, now, UsageReportTrigger::TERMR, reports);
            }
        }
    }
    let all = |r: &SessionRules| r.fars.iter().map(|f| (f.far_id, f.action, f.tunnel)).collect::<Vec<_>>();
    let (before, after) = (all(&old), all(rules));
    s.error_reported &= before == after;
    // Of packets that wait as they did the SMF knows, or will when it is due, whatever else there is for others.
    let waits = |(_, action, _): &&(_, ApplyAction, _)| action.has(ApplyAction::BUFF);
    if !before.iter().filter(waits).eq(after.iter().filter(waits)) {
        s.notified = false;
        (s.notice, s.quiet_until) = (None, None);
    }
    if let Some(quiet) = effects.quiet {
        s.quiet_until = Some(now + quiet);
    }
    s.inactive &= old.inactivity_s == rules.inactivity_s;
    // A user plane that is set up again is new: its silence begins now.
    if super::timers::is_active(rules) && !super::timers::is_active(&old) {
        (s.inactive, s.last_packet) = (false, now);
    }
}
