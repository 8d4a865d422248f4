//! Timers of sessions: periodic usage, inactivity, router advertisements.

use std::time::Duration;

use whimbrel_ids::{Instant, Teid};
use whimbrel_pfcp::ie::{ApplyAction, DestinationInterface, SourceInterface};

use super::session::{SessionState, SessionU};
use super::shared::PipelineContext;
use super::stages::{forward, report_usage};
use super::{PacketVerdict, PipelineNetwork, UpfU, advertise, ethernet, held};
use crate::exchange::UserPlaneReport;
use crate::limits::TIMERS_PER_TICK_MAX;
use crate::rules::{Pdr, SessionKind, SessionRules};

/// Time between unsolicited router advertisements. The advertised lifetime is 65,535 s; a third of it
/// tolerates the loss of two.
const ADVERTISE_EVERY: Duration = Duration::from_secs(21_600);

impl UpfU {
    /// When [`Self::tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sessions = self.deadlines.first().map(|(at, _)| *at);
        [
            sessions,
            self.paths.next_deadline(),
            self.strays_deadline(),
            self.waiting_deadline(),
            self.shared.common.peers.due(),
            self.looks.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Runs what is due, a bounded number of sessions at a time.
    pub fn tick(&mut self, now: Instant) {
        self.paths.tick(now, &mut self.shared);
        self.expire_strays(now);
        self.expire_waiting(now);
        self.shared.common.peers.forget(now);
        self.shared.firewalls.iter_mut().flatten().for_each(|b| b.tick(now));
        self.look_at_some(now);
        for _ in 0..TIMERS_PER_TICK_MAX {
            let Some(&(at, index)) = self.deadlines.first() else { return };
            if at > now {
                return;
            }
            self.deadlines.remove(&(at, index));
            let Some(session) = self.sessions.get(index) else {
                continue;
            };
            session.state.deadline = None;
            let network = self.networks.get_mut(usize::from(session.rules.data_network.0));
            due(session, &mut self.shared, network, now);
            self.arm(index);
            self.sessions.fold(index);
        }
    }

    /// Sets a session's deadline to when its next timer is due.
    pub(super) fn arm(&mut self, index: u32) {
        let Some(session) = self.sessions.get(index) else {
            return;
        };
        session.state.rearm = false;
        let at = next(session, self.shared.buffering.age);
        if at == session.state.deadline {
            return;
        }
        if let Some(old) = session.state.deadline {
            self.deadlines.remove(&(old, index));
        }
        if let Some(at) = at {
            self.deadlines.insert((at, index));
        }
        session.state.deadline = at;
    }
}

fn next(session: &SessionU, age: Duration) -> Option<Instant> {
    let rules = &session.rules;
    let usage =
        session.state.usage.iter().zip(rules.urrs.iter()).filter_map(|(u, urr)| u.deadline(urr)).min();
    let silence = (rules.inactivity_s > 0 && !session.state.inactive)
        .then(|| session.state.last_packet + Duration::from_secs(rules.inactivity_s.into()));
    let ageing = ethernet::ageing(rules, &session.state);
    let notice = session.state.notice.as_ref().map(|n| n.0);
    let held = held::deadline(&session.state, age);
    [usage, silence, ageing, notice, held, session.state.next_advertisement].into_iter().flatten().min()
}

fn due(
    session: &mut SessionU,
    shared: &mut PipelineContext,
    network: Option<&mut PipelineNetwork>,
    now: Instant,
) {
    let SessionU { rules, state } = session;
    let usage = state.usage.iter_mut().zip(rules.urrs.iter()).enumerate();
    let due = usage.map(|(i, (usage, urr))| usage.timers(urr, now).map(|trigger| (i, trigger)));
    let due: Vec<_> = due.filter(Option::is_some).collect();
    if !due.is_empty() {
        report_usage(rules, state, shared, now, &due);
    }
    let limit = Duration::from_secs(rules.inactivity_s.into());
    if rules.inactivity_s > 0 && !state.inactive && state.last_packet + limit <= now {
        state.inactive = true;
        shared.report(UserPlaneReport::Inactivity { session: state.id() });
    }
    held::expire(state, shared, now);
    if let Some((_, report)) = state.notice.take_if(|n| n.0 <= now).map(|n| *n)
        && !state.held.is_empty()
    {
        shared.report(report);
    }
    let Some(network) = network else { return };
    if ethernet::ageing(rules, state).is_some_and(|at| at <= now) {
        ethernet::forget_silent(rules, state, shared, &mut network.switch, now);
    }
    if state.next_advertisement.is_some_and(|at| at <= now) {
        state.next_advertisement = None;
        advertise(rules, state, shared, network, now);
    }
}

/// Whether the session's packets reach the UE now.
pub(super) fn is_active(rules: &SessionRules) -> bool {
    // A forwarding tunnel of a handover leads to a gNB, but not the session's packets.
    let fars =
        rules.pdrs.iter().filter(|p| !p.is_uplink()).filter_map(|p| rules.fars.get(usize::from(p.far)));
    fars.into_iter().any(|f| {
        f.action.has(ApplyAction::FORW) && f.destination == DestinationInterface::Access && f.tunnel.is_some()
    })
}

/// A UE that had an advertisement before this process began gets the next one in time, not all UEs at once.
pub(super) fn readvertise(rules: &SessionRules, state: &mut SessionState, now: Instant) {
    if rules.ue_ipv6.is_some() && rules.kind == SessionKind::Ip {
        state.next_advertisement = Some(now + ADVERTISE_EVERY / 64 * (state.index % 64 + 1));
    }
}

/// Sends a router advertisement, if the UE is reached now; else the activation that follows does.
pub(super) fn advertise(
    rules: &SessionRules,
    state: &mut SessionState,
    shared: &mut PipelineContext,
    network: &PipelineNetwork,
    now: Instant,
) {
    let Some(prefix) = rules.ue_ipv6.filter(|_| rules.kind == SessionKind::Ip) else { return };
    // An SMF that has solicitations sent to itself is the router (TS 23.501 §5.8.2.2.3).
    if rules.pdrs.iter().any(|p| p.is_uplink() && rules.is_of_cp_function(p)) {
        return;
    }
    // By the rule that serves what no other does: the one of the highest value of precedence.
    let to_ue = |p: &&Pdr| p.teid == Teid(0) && p.source != SourceInterface::Access;
    let Some(pdr) = rules.pdrs.iter().rev().find(to_ue) else { return };
    let Some(far) = rules.fars.get(usize::from(pdr.far)).filter(|f| f.action.has(ApplyAction::FORW)) else {
        return;
    };
    let mut packet = shared.fresh();
    advertise::advertisement(prefix, network.mtu, &network.resolvers, &mut packet);
    if let PacketVerdict::Send(to) = forward(rules, pdr, far, None, &mut packet) {
        shared.counters.router_advertisements += 1;
        state.next_advertisement = Some(now + ADVERTISE_EVERY);
        shared.send(to, packet);
    }
}
