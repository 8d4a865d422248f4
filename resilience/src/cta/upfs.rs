//! The UPFs of the CTA: N4 with each, their states that are stamped into envelopes, and what their failures mean for UEs (TS 23.501 §6.3.3,
//! TS 23.527 §4.3, §4.4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::config::{Smf, Upf};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{Command, OutputId, Payload, UPFS_MAX, UeId, UpfId, UpfState, UpfStates};
use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::AnnouncedPool;

use super::n4::{N4, N4Arrival, OutgoingPfcp};
use super::upf_drain::{RELEASE_TIME, UpfDrain};
use super::{Cta, Entropy, Inspect, Outbox, UpfChange};

/// How often to check whether a UPF that asked for its release still has sessions.
const LOOK: Duration = Duration::from_secs(1);

/// All of them, by [`UpfId`].
#[derive(Serialize, Deserialize)]
pub(super) struct Upfs {
    all: Vec<N4>,
    states: UpfStates,
    /// When to check that next.
    look: Option<Instant>,
    /// Those that are drained.
    drains: BTreeMap<UpfId, UpfDrain>,
    /// Those that give UEs addresses that another one gives too.
    overlapping: BTreeSet<UpfId>,
}

impl Upfs {
    pub(super) fn new(smf: &Smf, now: Instant) -> Self {
        let one = |(id, upf): (u8, &Upf)| {
            N4::new(UpfId(id), smf.node_id, &upf.ue_pools, now).of_smf_set(smf.set_id.clone())
        };
        let all = (0u8..).zip(&smf.upfs).take(UPFS_MAX).map(one).collect();
        Self {
            all,
            states: UpfStates::default(),
            look: None,
            drains: BTreeMap::new(),
            overlapping: BTreeSet::new(),
        }
    }

    pub(super) fn get(&mut self, upf: UpfId) -> Option<&mut N4> {
        self.all.get_mut(usize::from(upf.0))
    }

    /// Whether a UPF answers.
    pub(super) fn is_up(&self, upf: UpfId) -> bool {
        self.all.get(usize::from(upf.0)).is_some_and(N4::is_up)
    }

    /// What the next run of this SMF needs to go on with the sessions at the UPFs.
    pub(super) fn recovery_time_stamps(&self) -> impl Iterator<Item = (u32, Option<u32>)> + '_ {
        self.all.iter().map(N4::recovery_time_stamps)
    }

    /// Updates the state of a UPF.
    fn update_state(&mut self, upf: UpfId) {
        if let Some(n4) = self.all.get(usize::from(upf.0)) {
            let state = n4.state();
            let kept_away = self.drains.contains_key(&upf) || self.overlapping.contains(&upf);
            self.states.set(upf, UpfState { usable: state.usable && !kept_away, ..state });
        }
    }

    /// A UPF is connected. Its pools must be its own: of two that share one, the later gets no sessions while the former has its association.
    fn check_pools(&mut self, upf: UpfId) -> Option<UpfChange> {
        self.overlapping.remove(&upf);
        let taken = self.taken_pool(upf);
        if taken.is_some() {
            self.overlapping.insert(upf);
        }
        self.update_state(upf);
        taken
    }

    /// UPFs that shared a pool with one that has lost its association, or has other pools now: they can have sessions.
    fn check_others(&mut self) -> Vec<UpfId> {
        let mut freed = Vec::new();
        for upf in self.overlapping.clone() {
            if self.taken_pool(upf).is_none() {
                self.overlapping.remove(&upf); // it has the pool for those that come after it
                self.update_state(upf);
                freed.extend(self.is_up(upf).then_some(upf));
            }
        }
        freed
    }

    fn taken_pool(&self, upf: UpfId) -> Option<UpfChange> {
        let own = self.all.get(usize::from(upf.0))?;
        let others = self.ids().zip(&self.all).filter(|(id, _)| *id != upf && !self.overlapping.contains(id));
        others.into_iter().find_map(|(by, n4)| {
            let AnnouncedPool { address, length } = own.shared_pool(n4)?;
            Some(UpfChange::PoolTaken { by, address, length })
        })
    }

    /// Begins, continues or ends the drain of a UPF.
    pub(super) fn set_drain(&mut self, upf: UpfId, drain: Option<UpfDrain>) {
        match drain.filter(|_| usize::from(upf.0) < self.all.len()) {
            Some(drain) => drop(self.drains.insert(upf, drain)),
            None => drop(self.drains.remove(&upf)),
        }
        self.update_state(upf);
    }

    /// The drains that go on.
    pub(super) fn drains(&self) -> impl Iterator<Item = (UpfId, UpfDrain)> + '_ {
        self.drains.iter().map(|(upf, drain)| (*upf, *drain))
    }

    pub(super) fn next_deadline(&self) -> Instant {
        let n4 = self.all.iter().map(N4::next_deadline).min().unwrap_or(Instant::FAR_FUTURE);
        let drains = self.drains.values().map(UpfDrain::due);
        drains.chain(self.look).fold(n4, Instant::min)
    }

    fn ids(&self) -> impl Iterator<Item = UpfId> + use<> {
        (0u8..).map(UpfId).take(self.all.len())
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// Whether the first UPF answers.
    pub fn upf_is_up(&self) -> bool {
        self.upfs.is_up(UpfId(0))
    }

    /// The states by which UPFs for new sessions are selected. A UPF with a configured capacity is loaded as its UEs show, or as it reports, if that is more.
    pub fn upf_states(&self) -> UpfStates {
        let mut states = self.upfs.states;
        for (id, upf) in (0u8..).map(UpfId).zip(&self.config.smf.upfs) {
            let Some(capacity) = upf.capacity else { continue };
            let percent = u64::from(self.slots.ues_at(id)) * 100 / u64::from(capacity.max(1));
            let state = states.get(id);
            states.set(id, UpfState { load: state.load.max(percent.min(100) as u8), ..state });
        }
        states
    }

    /// Ends the association with a UPF (TS 29.244 §6.2.8.2). Its sessions end with it.
    pub fn release_upf(&mut self, now: Instant, upf: UpfId, out: &mut Outbox) {
        let mut arrived = std::mem::take(&mut self.arrived);
        if let Some(n4) = self.upfs.get(upf) {
            n4.release(now, &mut out.pfcp, &mut arrived);
        }
        self.n4_arrived(now, upf, arrived, out);
        self.run(now, out);
    }

    /// The SMF's set speaks from these addresses (TS 29.244 §5.22.2).
    pub(super) fn smf_addresses(&mut self, now: Instant, addresses: Vec<IpAddr>, out: &mut Outbox) {
        self.upfs.all.iter_mut().for_each(|n4| n4.announce(now, addresses.clone()));
        self.tick_upfs(now, out);
    }

    /// A UPF, or the path to it, has failed (S-BFD): it gets no new sessions until it answers a heartbeat, and one leaves at once.
    pub(super) fn upf_unreachable(&mut self, now: Instant, upf: UpfId, out: &mut Outbox) {
        let mut arrived = std::mem::take(&mut self.arrived);
        if let Some(n4) = self.upfs.get(upf) {
            n4.path_failed(now, &mut arrived);
        }
        self.n4_arrived(now, upf, arrived, out);
        self.tick_upfs(now, out);
    }

    pub(super) fn pfcp(&mut self, now: Instant, upf: UpfId, octets: &[u8], out: &mut Outbox) {
        let mut arrived = std::mem::take(&mut self.arrived);
        if let Some(n4) = self.upfs.get(upf) {
            n4.receive(now, octets, &mut out.pfcp, &mut arrived);
        }
        self.n4_arrived(now, upf, arrived, out);
    }

    /// Sends a UE's request to a UPF; an unknown UPF counts as one that does not answer.
    pub(super) fn ask_upf(
        &mut self,
        now: Instant,
        upf: UpfId,
        ue: UeId,
        to: OutputId,
        octets: Vec<u8>,
        out: &mut OutgoingPfcp,
    ) -> Option<N4Arrival> {
        match self.upfs.get(upf) {
            Some(n4) => n4.request(now, ue, to, octets, out),
            None => Some(N4Arrival::Answer { ue, to, octets: None }),
        }
    }

    pub(super) fn tick_upfs(&mut self, now: Instant, out: &mut Outbox) {
        for upf in self.upfs.ids() {
            let mut arrived = std::mem::take(&mut self.arrived);
            match self.upfs.get(upf) {
                Some(n4) if n4.next_deadline() <= now => n4.tick(now, &mut out.pfcp, &mut arrived),
                _ => {}
            }
            self.n4_arrived(now, upf, arrived, out);
        }
        if self.upfs.look.is_some_and(|at| at <= now) {
            self.leave_upfs(now, out);
        }
        self.continue_drains(now, out);
    }

    /// Releases UPFs that asked for it, when they have no session left or their grace period ends (TS 29.244 §6.2.8.3).
    fn leave_upfs(&mut self, now: Instant, out: &mut Outbox) {
        self.upfs.look = None;
        for upf in self.upfs.ids() {
            let Some(until) = self.upfs.get(upf).and_then(|n4| n4.leaving()) else { continue };
            let used = self.slots.sessions().any(|(_, upfs)| upfs.contains(upf));
            if used && now < until {
                self.upfs.look = Some((now + LOOK).min(until));
            } else {
                self.release_upf(now, upf, out);
            }
        }
    }

    pub(super) fn n4_arrived(
        &mut self,
        now: Instant,
        upf: UpfId,
        mut arrived: Vec<N4Arrival>,
        out: &mut Outbox,
    ) {
        self.upfs.update_state(upf);
        for a in arrived.drain(..) {
            if let N4Arrival::Answer { ue, to, octets } = &a {
                self.charged_session_deleted(now, (*ue, *to), octets.as_deref(), out);
            }
            match a {
                // A session of a UE that is gone is deleted by the CTA itself.
                N4Arrival::Answer { ue, octets, .. } if !self.slots.holds(ue) => {
                    let deletion = octets.and_then(|o| whimbrel_control::smf::deletion_of_orphan(&o));
                    if let Some(octets) = deletion {
                        let to = OutputId { clock: 0, index: 0 };
                        self.ask_upf(now, upf, ue, to, octets, &mut out.pfcp);
                    }
                }
                N4Arrival::Answer { ue, to, octets } => {
                    self.session_answered(ue, upf, octets.as_deref().unwrap_or_default());
                    let octets = octets.map(Into::into);
                    self.inbox.push_back((ue, Payload::PfcpAnswer { to, upf, octets }));
                }
                N4Arrival::Report { ue, psi, octets } => {
                    if self.slots.holds(ue) {
                        let octets = octets.into();
                        self.inbox.push_back((ue, Payload::PfcpReport { upf, psi, octets }));
                    } else {
                        let answer = whimbrel_control::smf::no_such_session(&octets);
                        out.pfcp.extend(answer.map(|a| (upf, a)));
                    }
                }
                N4Arrival::ReportOfAnotherSmf { ue, smf } => self.reported_to_set(ue, smf, out),
                N4Arrival::Upf(change) => {
                    let change = match change {
                        UpfChange::Up => self.upfs.check_pools(upf).unwrap_or(change),
                        _ => change,
                    };
                    out.upfs.push((upf, change));
                    match change {
                        UpfChange::Lost | UpfChange::Released => {
                            self.sessions_gone(upf);
                            self.restoring.forget(upf);
                            self.association_ended(upf, out);
                            self.command_sessions_of(upf, Command::UpfRestarted(upf));
                            self.command_sessions_of(upf, Command::LeaveUpf(upf));
                        }
                        UpfChange::Restarted => {
                            self.sessions_gone(upf);
                            self.restoring.awaits(upf);
                            self.command_sessions_of(upf, Command::UpfRestarted(upf));
                        }
                        UpfChange::Leaving => {
                            self.upf_leaves(now, upf);
                            self.upfs.look = Some(now + LOOK);
                        }
                        UpfChange::Up | UpfChange::PoolTaken { .. } => {
                            self.report_freed(out);
                            self.resume_restored(now);
                        }
                        UpfChange::Unanswered | UpfChange::Unfit | UpfChange::Silent | UpfChange::Back => {}
                    }
                }
            }
        }
        self.arrived = arrived;
    }

    /// A UPF asks for its release. With a period in which sessions can be moved it is drained; otherwise they end now, and are set up again elsewhere.
    fn upf_leaves(&mut self, now: Instant, upf: UpfId) {
        let leaving = self.upfs.get(upf).and_then(|n4| n4.leaving());
        let until = leaving.filter(|until| now + RELEASE_TIME * 2 < *until);
        match until {
            None => self.command_sessions_of(upf, Command::LeaveUpf(upf)),
            Some(_) if self.upfs.drains.contains_key(&upf) => {} // it is drained at the operator's order
            Some(until) => self.upfs.set_drain(upf, Some(UpfDrain::new(now, until - RELEASE_TIME, false))),
        }
    }

    /// UPFs whose pools no other connected one shares any more get sessions.
    fn report_freed(&mut self, out: &mut Outbox) {
        out.upfs.extend(self.upfs.check_others().into_iter().map(|upf| (upf, UpfChange::Up)));
    }

    /// The association ended, and with it what belonged to it alone: a drain that the UPF itself had asked for, and its hold of its pools.
    fn association_ended(&mut self, upf: UpfId, out: &mut Outbox) {
        self.report_freed(out);
        if self.upfs.drains.get(&upf).is_some_and(|drain| !drain.is_ordered()) {
            self.upfs.set_drain(upf, None);
        }
    }

    /// Sends a command to the UEs with a session at a UPF.
    pub(super) fn command_sessions_of(&mut self, upf: UpfId, command: Command) {
        let ues = self.slots.sessions().filter(|(_, upfs)| upfs.contains(upf));
        self.inbox.extend(ues.map(|(ue, _)| (ue, Payload::Command(command))));
    }
}
