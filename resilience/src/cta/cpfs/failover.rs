//! Takeovers after the loss of a CPF: UEs that wait for an answer at once, the others in slices (Neutrino §4.2.4).

use std::collections::VecDeque;
use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::UeId;
use whimbrel_ids::Instant;

use super::{Cpfs, ReplicationCounters, serve};
use crate::cta::Outbox;
use crate::cta::recovery::Recovery;
use crate::link::CpfCommand;
use crate::replication::{CpfId, TakeoverOutcome};

/// Pause between slices of the work that follows the loss or the leaving of a CPF. UEs that wait for an answer are not part of slices.
/// Slices are short, since a UE that sends a message meanwhile waits for the end of one.
pub(in crate::cta) const BETWEEN_SLICES: Duration = Duration::from_micros(125);
/// UEs that one slice examines at most, some ten microseconds.
const SLICE: usize = 256;
/// Work that one slice gives to each remaining CPF at most, in messages: inputs to replay, takeovers (two each), new backups. A message
/// takes up to ten microseconds there, so CPFs keep more than half of their time for UEs with running procedures.
const SLICE_WORK: u64 = 8;
/// Cost for the CTA of discarding a UE that no CPF can take over, in the same unit.
const GIVEN_UP_WORK: u64 = 10;

/// The work that follows the loss or the joining of a CPF.
#[derive(Serialize, Deserialize)]
pub(super) struct AfterLoss {
    /// Rounds over all UEs that are due: the last UE that each has examined.
    pub(super) rounds: VecDeque<Option<UeId>>,
    /// When the next slice is due.
    pub(super) next: Instant,
    /// UEs of a lost CPF that have a running procedure and wait for no answer: they come before the round.
    pub(super) first: VecDeque<UeId>,
    /// How long takeovers take, for metrics. Not part of a snapshot.
    #[serde(skip)]
    pub(super) recovery: Recovery,
}

impl Cpfs {
    /// A CPF is lost. UEs that wait for its answer are taken over now, the others in slices or when they send a message, those with a
    /// running procedure first. Returns the UEs without a usable checkpoint.
    pub(in crate::cta) fn cpf_lost(&mut self, now: Instant, dead: CpfId, out: &mut Outbox) -> Vec<UeId> {
        if !self.trusted.remove(&dead) {
            return Vec::new();
        }
        self.counts.cpfs_lost += 1;
        self.counts_lost(dead);
        self.loads.gone(dead);
        self.reported.retain(|(cpf, _)| *cpf != dead);
        self.taken.remove(&dead);
        self.waiting.lost(dead);
        self.draining.lost(dead);
        self.after_loss.rounds.push_back(None);
        self.after_loss.recovery.begins(now, self.after_loss.rounds.len());
        self.after_loss.next = now + BETWEEN_SLICES;
        let ledgers = self.logged.ues.keys().filter_map(|ue| Some((*ue, self.ledgers.get(ue)?)));
        let served = ledgers.filter(|(_, l)| l.assignment().0 == dead);
        let (unanswered, behind): (Vec<_>, Vec<_>) = served.partition(|(_, l)| l.released() < l.clock());
        self.after_loss.first.extend(behind.into_iter().map(|(ue, _)| ue));
        let unanswered: Vec<UeId> = unanswered.into_iter().map(|(ue, _)| ue).collect();
        unanswered.iter().for_each(|&ue| self.after_loss.recovery.ue_waits(ue, now));
        unanswered.into_iter().filter(|&ue| self.fail_over(ue, out)).collect()
    }

    /// The next slice of takeovers and new backups after a loss. Returns the UEs without a usable checkpoint.
    pub(in crate::cta) fn fail_over_more(&mut self, now: Instant, out: &mut Outbox) -> Vec<UeId> {
        if now < self.after_loss.next {
            return Vec::new();
        }
        self.after_loss.next = now + BETWEEN_SLICES;
        let done = |counts: &ReplicationCounters, out: &Outbox| {
            counts.replayed + counts.taken_over + out.cpfs.len() as u64
        };
        let enough = done(&self.counts, out) + SLICE_WORK * self.trusted.len().max(1) as u64;
        let mut lost = Vec::new();
        for _ in 0..SLICE {
            if done(&self.counts, out) + GIVEN_UP_WORK * lost.len() as u64 >= enough {
                break;
            }
            let Some(ue) = self.next_unexamined() else { break };
            // UEs with a running procedure come first, and once more in the round.
            if !lost.contains(&ue) && self.fail_over(ue, out) {
                lost.push(ue);
            }
        }
        out.takeover_times.extend(self.after_loss.recovery.completed(now));
        lost
    }

    /// The next UE that a loss may affect.
    fn next_unexamined(&mut self) -> Option<UeId> {
        if let Some(ue) = self.after_loss.first.pop_front() {
            return Some(ue);
        }
        loop {
            let after = self.after_loss.rounds.front_mut()?;
            let next = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            if let Some((ue, _)) = self.ledgers.range(next).next() {
                *after = Some(*ue);
                return Some(*ue);
            }
            self.after_loss.rounds.pop_front();
            self.after_loss.recovery.round_ended();
        }
    }

    /// Replaces the lost CPFs of a UE. Returns whether no CPF has a usable checkpoint.
    pub(in crate::cta) fn fail_over(&mut self, ue: UeId, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        let (primary, _) = ledger.assignment();
        let mut gone: Vec<CpfId> = ledger.backups().filter(|c| !self.trusted.contains(c)).collect();
        if !self.trusted.contains(&primary) {
            gone.push(primary); // last, so that no lost backup is promoted
        }
        if gone.is_empty() {
            self.back(ue, out);
            return false;
        }
        self.remove_cpfs(ue, gone, out)
    }

    /// Adds backups that have joined to a UE that lacks some.
    fn back(&mut self, ue: UeId, out: &mut Outbox) {
        let region = self.away.get(&ue).unwrap_or_else(|| self.rings.home());
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let present: Vec<CpfId> = ledger.backups().collect();
        let mut further = self.rings.further_backups(region, ue, ledger.assignment().0, &present);
        further.retain(|cpf| self.trusted.contains(cpf) && !present.contains(cpf));
        if !further.is_empty() {
            further.into_iter().for_each(|cpf| ledger.add_backup(cpf));
            serve(ue, ledger, &mut self.waiting, out);
            self.spare_unlike(ue);
        }
    }

    /// A UE that has more backups than it needs loses those that run other code than its primary, as soon as the others have its checkpoint.
    pub(in crate::cta) fn spare_unlike(&mut self, ue: UeId) {
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let (primary, _) = ledger.assignment();
        let on_rings: Vec<CpfId> = ledger.backups().filter(|cpf| self.rings.serves(*cpf)).collect();
        let is_unlike = |cpf: &CpfId| self.code.get(cpf) != self.code.get(&primary);
        let unlike: Vec<CpfId> = on_rings.iter().copied().filter(is_unlike).collect();
        if !unlike.is_empty() && on_rings.len() > self.rings.backups() {
            ledger.put_last(&unlike);
            self.pending_reassignments.insert(ue);
        }
    }

    /// Removes CPFs from a UE; the primary, if among them, stands last. Returns whether no CPF has a usable checkpoint.
    pub(in crate::cta) fn remove_cpfs(&mut self, ue: UeId, gone: Vec<CpfId>, out: &mut Outbox) -> bool {
        let Some(ledger) = self.ledgers.get_mut(&ue).filter(|_| !gone.is_empty()) else { return false };
        let mut replay = Vec::new();
        let (former, _) = ledger.assignment();
        for cpf in gone {
            let runs = self.code.get(&cpf);
            match ledger.failed_among(cpf, |other| self.code.get(&other) == runs) {
                TakeoverOutcome::Lost => return true,
                TakeoverOutcome::Unaffected => {}
                TakeoverOutcome::Serve { replay: rest, .. } => {
                    self.counts.taken_over += 1;
                    self.counts.replayed += rest.len() as u64;
                    replay = rest;
                }
            }
        }
        let (by, _) = ledger.assignment();
        self.loads.moved(Some(former), Some(by));
        let present: Vec<CpfId> = ledger.backups().collect();
        let region = self.away.get(&ue).unwrap_or_else(|| self.rings.home());
        let further = self.rings.further_backups(region, ue, by, &present);
        further.into_iter().filter(|c| self.trusted.contains(c)).for_each(|c| ledger.add_backup(c));
        let is_backed = ledger.is_backed();
        serve(ue, ledger, &mut self.waiting, out);
        // The lost CPF received all of these. Those that it answered are harmless; one of the others may have ended it.
        let unanswered = replay.iter().filter(|(clock, _)| *clock > ledger.released()).count();
        self.spare_unlike(ue);
        self.counts.tried += unanswered as u64;
        let inputs = replay.into_iter().map(|(_, input)| input);
        let log = self.log_of(ue, by);
        match unanswered {
            0 => out.cpfs.extend(inputs.map(|input| (by, CpfCommand::RunLogged(input.to_flat(log))))),
            _ => {
                let read = inputs.map(|input| input.read(log));
                let Ok(inputs) = read.collect() else { return true }; // the log came from another CTA's snapshot
                out.cpfs.push((by, CpfCommand::RunAfterTrial { ue, inputs }));
            }
        }
        if !is_backed {
            self.without_backup.insert(ue);
        }
        self.end_move(ue, out);
        false
    }
}
