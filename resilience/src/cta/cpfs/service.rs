//! The CTA's use of its CPFs: inputs to them, their reports, and the loss of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_control::config::Config;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{
    Disposition, Envelope, Event, OutputId, UeEvent, UeId, UeIdentities, UpfId, amf, smf,
};
use whimbrel_ids::Instant;
use whimbrel_pfcp::message_type;

use super::{BETWEEN_SLICES, Cpfs, LogLimits, ProtocolViolation, ReplicationCounters};
use crate::Cpf;
use crate::cta::restart::ToStore;
use crate::cta::{Cta, Entropy, Inspect, Outbox, send};
use crate::link::{CpfCommand, CpfReport};
use crate::region::Rings;
use crate::replication::{BatchVerdict, CpfId, UeLog};

/// What runs the UEs' procedures.
pub(in crate::cta) enum Service {
    /// A part of this program.
    Here(Box<Cpf>),
    /// The CPFs of a region.
    Region(Box<Cpfs>),
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// Has an input run.
    pub(in crate::cta) fn submit(&mut self, now: Instant, envelope: Envelope, out: &mut Outbox) {
        match &mut self.service {
            Service::Here(cpf) => {
                let batch = cpf.run(&envelope);
                if !batch.fault {
                    self.inspect.ran(&envelope, &batch);
                }
                self.ran(now, (envelope.ue, envelope.clock), envelope.payload.association(), batch, out);
            }
            Service::Region(cpfs) => {
                let ue = envelope.ue;
                if !cpfs.rings.areas().is_empty() {
                    self.set_initial_region(ue, envelope.payload.association());
                }
                let Service::Region(cpfs) = &mut self.service else { return };
                if cpfs.submit(envelope, out) {
                    self.state_lost(now, ue, out);
                }
            }
        }
    }

    /// Handles a report of a CPF.
    pub(in crate::cta) fn up(&mut self, now: Instant, from: CpfId, message: CpfReport, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        if !cpfs.trusted.contains(&from) {
            return; // it was declared lost: what it did since has no effect
        }
        match message {
            CpfReport::Ran { ue, term, clock, from: sender, batch } => {
                *cpfs.taken.entry(from).or_default() += 1;
                cpfs.waiting.ran(from, batch.idle);
                let Some(ledger) = cpfs.ledgers.get_mut(&ue) else { return };
                let verdict = ledger.batch(now, from, term, clock, batch.digest(), batch.idle);
                cpfs.advance(ue, out);
                match verdict {
                    BatchVerdict::Release => {
                        cpfs.counts_answered(now, from, (ue, clock), &batch);
                        out.takeover_times.extend(cpfs.after_loss.recovery.ue_answered(ue, now));
                        if !self.ran(now, (ue, clock), sender, *batch, out)
                            && let Service::Region(cpfs) = &mut self.service
                        {
                            cpfs.report(from, ProtocolViolation::NasCountReuse, out);
                        }
                    }
                    BatchVerdict::Suppress => {}
                    BatchVerdict::Fenced => cpfs.report(from, ProtocolViolation::Fenced, out),
                    BatchVerdict::Diverged => {
                        cpfs.report(from, ProtocolViolation::Diverged, out);
                        self.state_lost(now, ue, out);
                    }
                }
            }
            CpfReport::Stored { term, state } => self.store_state(from, term, &state, out),
            CpfReport::AllStored => out.stored.push(ToStore::All(from)),
            CpfReport::Poisoned { ue, term, inputs: inputs @ (first, last) } => match cpfs.ledgers.get(&ue) {
                Some(l) if l.assignment() == (from, term) && first <= last && last <= l.clock() => {
                    self.poisoned(now, ue, inputs, out);
                }
                _ => cpfs.report(from, ProtocolViolation::Fenced, out),
            },
            CpfReport::CheckpointUnusable { ue, term } => {
                match cpfs.ledgers.get(&ue).map(UeLog::assignment) {
                    Some(assignment) if assignment == (from, term) => {
                        cpfs.report(from, ProtocolViolation::CheckpointUnusable, out);
                        if cpfs.remove_cpfs(ue, vec![from], out) {
                            self.state_lost(now, ue, out);
                        }
                    }
                    // It was sent an unusable checkpoint and has not stored it: it counts as lagging.
                    Some((by, _)) if by != from && cpfs.concerns(ue, from) => {
                        cpfs.report(from, ProtocolViolation::CheckpointUnusable, out);
                    }
                    _ => cpfs.report(from, ProtocolViolation::Fenced, out),
                }
            }
            // No checkpoint of this term or clock can exist (rule 1): this CPF or the sender of the checkpoint is faulty. The CPF may have
            // dropped its older checkpoint and would reject later ones, so it forgets all and is removed from the UE, unless it has
            // acknowledged nothing yet: then it is replaced as a late backup, since a new checkpoint would meet the same fault.
            CpfReport::CheckpointHeld { ue, term, clock }
                if (cpfs.ledgers.get(&ue))
                    .is_some_and(|l| term > l.assignment().1 || clock > l.released()) =>
            {
                cpfs.report(from, ProtocolViolation::AckRefused, out);
                out.cpfs.push((from, CpfCommand::Forget { ue, term: u32::MAX }));
                let counts = cpfs.ledgers.get(&ue).is_some_and(|l| l.concerns(from) && !l.is_joining(from));
                if counts && cpfs.remove_cpfs(ue, vec![from], out) {
                    self.state_lost(now, ue, out);
                }
            }
            CpfReport::CheckpointHeld { ue, term, clock } => match cpfs.ledgers.get_mut(&ue) {
                Some(ledger) => {
                    ledger.acknowledged(now, from, term, clock);
                    if !ledger.concerns(from) {
                        // The checkpoint arrived after the order to forget the UE; or, if it is of the current term, it came from a CPF
                        // that should not have sent it.
                        let term = ledger.assignment().1.max(term.saturating_add(1));
                        out.cpfs.push((from, CpfCommand::Forget { ue, term }));
                    }
                    cpfs.advance(ue, out);
                }
                None => out.cpfs.push((from, CpfCommand::Forget { ue, term: u32::MAX })),
            },
        }
    }

    /// A new version of the configuration is in force for the inputs to come.
    pub(in crate::cta) fn configure_cpfs(&mut self, config: &Arc<Config>, out: &mut Outbox) {
        match &mut self.service {
            Service::Here(cpf) => cpf.configure(config.clone()),
            Service::Region(cpfs) => {
                let configure = cpfs.trusted.iter().map(|&cpf| (cpf, CpfCommand::Configure(config.clone())));
                out.cpfs.extend(configure);
            }
        }
    }

    /// Sets the log limits. With a limit of 0, a lost CPF costs the UEs whose inputs it had not answered: a baseline of experiments.
    pub fn set_log_limits(&mut self, logs: LogLimits) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.logs = logs;
        }
    }

    /// The CPFs of the region have changed.
    pub(in crate::cta) fn rings(&mut self, now: Instant, rings: Rings) {
        if let Service::Region(cpfs) = &mut self.service {
            let before = cpfs.trusted.len();
            cpfs.trusted.extend(rings.members());
            if cpfs.after_loss.rounds.is_empty() {
                cpfs.code.retain(|cpf, _| cpfs.trusted.contains(cpf));
            }
            cpfs.code.extend(rings.members().filter_map(|cpf| Some((cpf, rings.code_of(cpf)?))));
            let canary = cpfs.rings.canary().map(|canary| canary.code);
            cpfs.rings = rings;
            cpfs.drain_unlisted(now);
            if cpfs.trusted.len() > before && !cpfs.ledgers.is_empty() {
                // A CPF has joined: UEs may lack a backup since the last loss, or since they began.
                cpfs.after_loss.rounds.push_back(None);
                cpfs.after_loss.next = now + BETWEEN_SLICES;
            }
            self.canary_changed(canary);
        }
        self.resume_restored(now);
    }

    /// A CPF of the region is lost: its UEs are taken over.
    pub(in crate::cta) fn cpf_lost(&mut self, now: Instant, dead: CpfId, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        for ue in cpfs.cpf_lost(now, dead, out) {
            self.state_lost(now, ue, out);
        }
    }

    /// One of these inputs of a UE ended the replay sandbox, and would end any CPF that runs it.
    fn poisoned(&mut self, now: Instant, ue: UeId, inputs: (u64, u64), out: &mut Outbox) {
        // If it is a first message, no other UE is asked about it; the sender repeats it. Other messages that came for the UE meanwhile
        // have had no effect, and may be another UE's.
        self.release_first_messages(ue, inputs, out);
        self.unanswered(now, ue, inputs, Disposition::Ended, out);
        self.discard(now, ue, DeregistrationReason::Fault, out);
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts.poisoned += 1;
        }
    }

    /// No CPF has a usable checkpoint of the UE.
    fn state_lost(&mut self, now: Instant, ue: UeId, out: &mut Outbox) {
        self.discard(now, ue, DeregistrationReason::StateLost, out);
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts.lost += 1;
        }
    }

    /// Discards a UE: its gNBs release it, and it registers again.
    pub(in crate::cta) fn discard(
        &mut self,
        now: Instant,
        ue: UeId,
        why: DeregistrationReason,
        out: &mut Outbox,
    ) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.counts_discarded(ue);
        }
        for names in self.slots.names(ue) {
            if self.path_switches.is_of(ue, &names) {
                continue; // its path switch is answered with a failure
            }
            let stream = self.stream(ue, names.association);
            let release = amf::release_of(names.amf_ue_ngap_id, names.ran_ue_ngap_id);
            send(names.association, stream, &release, out);
        }
        let event = Event::Deregistered { subject: UeIdentities::default(), why };
        out.events.push(UeEvent { ue, on: None, event });
        self.vacate(now, ue, out);
    }

    /// A UPF has answered a UE: a session that was established has to be deleted if the UE is discarded.
    pub(in crate::cta) fn session_answered(&mut self, ue: UeId, upf: UpfId, octets: &[u8]) {
        if octets.get(1) == Some(&message_type::SESSION_ESTABLISHMENT_RESPONSE)
            && let Some(deletion) = smf::deletion_of_orphan(octets)
        {
            self.session_stands(ue, upf, deletion);
        }
    }

    /// Notes the request that deletes a UE's session at a UPF.
    pub(in crate::cta) fn session_stands(&mut self, ue: UeId, upf: UpfId, deletion: Vec<u8>) {
        if let Service::Region(cpfs) = &mut self.service {
            let sessions = cpfs.deletions.entry(ue).or_default();
            if !sessions.contains(&(upf, deletion.clone())) {
                sessions.push((upf, deletion));
            }
        }
    }

    /// A UE's request goes to a UPF: a session that it deletes itself, or gives to another SMF, need not be deleted.
    pub(in crate::cta) fn session_asked(&mut self, ue: UeId, upf: UpfId, octets: &[u8]) {
        let ends = octets.get(1) == Some(&message_type::SESSION_DELETION_REQUEST);
        if let Service::Region(cpfs) = &mut self.service
            && (ends || smf::changes_cp_f_seid(octets))
            && let Some(sessions) = cpfs.deletions.get_mut(&ue)
        {
            let seid = |octets: &[u8]| octets.get(4..12).map(<[u8]>::to_vec);
            sessions.retain(|(of, deletion)| *of != upf || seid(deletion) != seid(octets));
        }
    }

    /// A UPF has lost its sessions.
    pub(in crate::cta) fn sessions_gone(&mut self, upf: UpfId) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.deletions.values_mut().for_each(|sessions| sessions.retain(|(of, _)| *of != upf));
        }
    }

    /// Frees the slot of a UE. Its inputs that are under way are answered in its place: a session that stands at a UPF by then is deleted,
    /// and other UEs are asked about a first message.
    pub(in crate::cta) fn vacate(&mut self, now: Instant, ue: UeId, out: &mut Outbox) {
        self.refuse_path_switch(ue, out);
        self.slots.release(ue, now);
        if let Some(unstored) = &mut self.unstored {
            unstored.remove(&ue);
        }
        out.stored.push(ToStore::Gone(ue));
        self.arrivals.remove(ue);
        self.remote_ues.remove(ue);
        if let Some(first) = self.asked.take_waiting(ue) {
            self.ask_again(now, first, out);
        }
        if let Service::Region(cpfs) = &mut self.service {
            for (upf, deletion) in cpfs.forget(ue, out) {
                // The UE is gone, so an unknown UPF matters no more.
                let _ = self.ask_upf(now, upf, ue, OutputId { clock: 0, index: 0 }, deletion, &mut out.pfcp);
            }
            self.unanswered(now, ue, (0, u64::MAX), Disposition::OtherUe, out);
        }
    }

    /// Answers in place of a UE that was asked about first messages and will not answer.
    fn unanswered(
        &mut self,
        now: Instant,
        ue: UeId,
        (first, last): (u64, u64),
        answer: Disposition,
        out: &mut Outbox,
    ) {
        let clocks: Vec<u64> = self.asked.between(ue, first, last).map(|(clock, _)| clock).collect();
        for clock in clocks {
            if let Some(asked) = self.asked.remove(ue, clock) {
                self.answered(now, ue, asked, answer, out);
            }
        }
    }

    /// Runs what is due in the region: takeovers, late backups, moves that take too long.
    pub(in crate::cta) fn tick_cpfs(&mut self, now: Instant, out: &mut Outbox) {
        let Service::Region(cpfs) = &mut self.service else { return };
        for ue in cpfs.fail_over_more(now, out) {
            self.state_lost(now, ue, out);
        }
        let Service::Region(cpfs) = &mut self.service else { return };
        cpfs.drain(now, out);
        cpfs.give_up_moves(now, out);
        cpfs.scan_more(now, out);
    }

    /// When [`Self::tick_cpfs`] has something to do.
    pub(in crate::cta) fn next_scan(&self) -> Instant {
        match &self.service {
            Service::Here(_) => Instant::FAR_FUTURE,
            Service::Region(cpfs) => {
                let without_backup = cpfs.rings.has_more() && !cpfs.without_backup.is_empty();
                let scan = (!cpfs.logged.ues.is_empty() || without_backup).then_some(cpfs.late_backups.next);
                let look = (!cpfs.after_loss.rounds.is_empty()).then_some(cpfs.after_loss.next);
                let due = scan.into_iter().chain(look).chain(cpfs.draining.due()).chain(cpfs.move_deadline());
                due.min().unwrap_or(Instant::FAR_FUTURE)
            }
        }
    }

    /// Sends waiting CPFs how many of their batches were released, once per input.
    pub(in crate::cta) fn report_released(&mut self, now: Instant, out: &mut Outbox) {
        if let Service::Region(cpfs) = &mut self.service {
            for limit in std::mem::take(&mut cpfs.logged.limits_reached) {
                self.limited(now, None, limit, out);
            }
        }
        let Service::Region(cpfs) = &mut self.service else { return };
        for member in std::mem::take(&mut cpfs.waiting.await_release) {
            let released = cpfs.taken.get(&member).copied().unwrap_or(0);
            out.cpfs.push((member, CpfCommand::Released(released)));
        }
        if !cpfs.after_loss.rounds.is_empty() {
            out.cpfs.retain(|(to, _)| cpfs.trusted.contains(to));
        }
    }

    /// A CPF could serve a new UE.
    pub(in crate::cta) fn can_place(&self, ue: UeId) -> bool {
        match &self.service {
            Service::Here(_) => true,
            Service::Region(cpfs) => {
                let (home, kind) = (cpfs.rings.home(), cpfs.kind(ue));
                cpfs.rings.place(home, ue, kind, &cpfs.loads).is_some()
            }
        }
    }

    /// Inputs of the UE have a CPF: those of a restored UE have none until one has joined.
    pub(in crate::cta) fn is_served(&self, ue: UeId) -> bool {
        match &self.service {
            Service::Here(_) => true,
            Service::Region(cpfs) => {
                !cpfs.restored.contains_key(&ue)
                    || cpfs.rings.place(cpfs.region(ue), ue, cpfs.kind(ue), &cpfs.loads).is_some()
            }
        }
    }

    /// An input of the UE has no answer yet.
    pub(in crate::cta) fn is_at_work(&self, ue: UeId) -> bool {
        matches!(&self.service, Service::Region(cpfs) if cpfs.is_at_work(ue))
    }

    /// Whether a CPF of the region is not lost.
    pub(crate) fn trusts(&self, cpf: CpfId) -> bool {
        matches!(&self.service, Service::Region(cpfs) if cpfs.trusted.contains(&cpf))
    }

    /// The CPFs of the region that are not lost.
    pub(crate) fn trusted(&self) -> impl Iterator<Item = CpfId> {
        let trusted = match &self.service {
            Service::Here(_) => None,
            Service::Region(cpfs) => Some(&cpfs.trusted),
        };
        trusted.into_iter().flatten().copied()
    }

    /// The primary of a UE.
    pub fn served_by(&self, ue: UeId) -> Option<CpfId> {
        match &self.service {
            Service::Here(_) => None,
            Service::Region(cpfs) => cpfs.ledgers.get(&ue).map(|l| l.assignment().0),
        }
    }

    /// The backups of a UE.
    pub fn backed_by(&self, ue: UeId) -> Vec<CpfId> {
        match &self.service {
            Service::Here(_) => Vec::new(),
            Service::Region(cpfs) => cpfs.ledgers.get(&ue).into_iter().flat_map(UeLog::backups).collect(),
        }
    }

    /// Of how many UEs each CPF is primary and backup; `None` if more than `ues_max` would have to be counted.
    pub fn ues_of_cpfs(&self, ues_max: usize) -> Option<BTreeMap<CpfId, (u64, u64)>> {
        let mut counts: BTreeMap<CpfId, (u64, u64)> = BTreeMap::new();
        let Service::Region(cpfs) = &self.service else { return Some(counts) };
        if cpfs.ledgers.len() > ues_max {
            return None;
        }
        for ledger in cpfs.ledgers.values() {
            counts.entry(ledger.assignment().0).or_default().0 += 1;
            ledger.backups().for_each(|backup| counts.entry(backup).or_default().1 += 1);
        }
        Some(counts)
    }

    /// UEs that would be lost with their primary, as far as known. Not zero while a lost CPF is being replaced.
    pub fn without_backup(&self) -> usize {
        match &self.service {
            Service::Here(_) => 0,
            Service::Region(c) => {
                c.without_backup.len() + c.after_loss.first.len() + c.after_loss.rounds.len()
            }
        }
    }

    /// Octets in all logs, and the number of UEs with a log. Zero with a single CPF.
    pub fn logged(&self) -> (usize, usize) {
        match &self.service {
            Service::Here(_) => (0, 0),
            Service::Region(cpfs) => (cpfs.logged.octets, cpfs.logged.ues.len()),
        }
    }

    /// Whether UEs remain to be examined after a CPF was lost or has joined.
    pub fn is_failing_over(&self) -> bool {
        matches!(&self.service, Service::Region(cpfs) if !cpfs.after_loss.rounds.is_empty())
    }

    /// Counters of replication.
    pub fn replication_counters(&self) -> ReplicationCounters {
        match &self.service {
            Service::Here(_) => ReplicationCounters::default(),
            Service::Region(cpfs) => cpfs.counts,
        }
    }
}
