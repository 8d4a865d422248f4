//! Moves of a UE from one CPF to another, when it enters another region or its CPF is drained (Neutrino
//! §4.3). If the other CPF holds the current checkpoint it serves at once (fast form); else the checkpoint
//! goes first and the UE's inputs wait (default form).
//!
//! A UE comes to another region with HANDOVER REQUIRED that names a gNB there, with a PATH SWITCH REQUEST of
//! one, or from CM-IDLE with its first message there. The current primary runs a handover, so the UE is moved
//! first; from CM-IDLE it moves when no procedure runs. A handover that fails moves it back in the same way.
//! Within a region a UE moves only where CPFs are of several kinds ([`versions`](super::versions)).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{AssociationId, Envelope, UeId};
use whimbrel_ids::Instant;

use super::cpfs::{Cpfs, Service, serve};
use super::{Cta, Entropy, Inspect, Outbox};
use crate::link::CpfCommand;
use crate::region::Region;
use crate::replication::{CpfId, UeLog};

/// How long a UE's inputs may wait for its checkpoint to arrive: well above a transfer in any network, below the UE's own timer (T3517, TS
/// 24.501 table 10.2.1).
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(1);

/// Inputs of a UE that may wait: more than a procedure has.
const MAX_HELD_INPUTS: usize = 64;

/// A move under way.
#[derive(Serialize, Deserialize)]
pub(super) struct UeMove {
    to: CpfId,
    since: Instant,
    /// The former primary stays as a backup; not if the target became a backup for this move alone.
    is_former_kept: bool,
    /// Inputs that came for the UE meanwhile.
    pub(super) held: Vec<Envelope>,
}

impl Cpfs {
    pub(super) fn begin_to_move(&mut self, now: Instant, ue: UeId, to: CpfId, out: &mut Outbox) {
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        if !self.trusted.contains(&to) || ledger.assignment().0 == to || self.moves.ues.contains_key(&ue) {
            return;
        }
        let keep = ledger.backups().any(|backup| backup == to);
        if !keep {
            ledger.add_backup(to);
            serve(ue, ledger, &mut self.waiting, out);
        }
        self.moves.ues.insert(ue, UeMove { to, since: now, is_former_kept: keep, held: Vec::new() });
        self.moves.begun.push_back((now, ue));
        if self.try_to_move(ue, out) {
            self.counts.moved_fast += 1;
        }
    }

    /// The region that a UE is in.
    pub(super) fn region(&self, ue: UeId) -> &Region {
        self.away.get(&ue).unwrap_or_else(|| self.rings.home())
    }

    /// A UE is or will be in a region: one of that region's CPFs becomes its primary, preferably one that has its checkpoint.
    fn enter_region(&mut self, now: Instant, ue: UeId, region: &Region, out: &mut Outbox) {
        match region == self.rings.home() {
            true => drop(self.away.remove(&ue)),
            false if self.away.get(&ue) != Some(region) => drop(self.away.insert(ue, region.clone())),
            false => {}
        }
        let Some(ledger) = self.ledgers.get(&ue) else { return };
        let kind = self.kind(ue);
        let is_there = |cpf: &CpfId| self.trusted.contains(cpf) && self.rings.region_of(*cpf) == Some(region);
        if is_there(&ledger.assignment().0) {
            return;
        }
        let fits = |cpf: &CpfId| is_there(cpf) && self.rings.fits_best(region, *cpf, kind);
        let backs = ledger.backups().filter(fits).max_by_key(|cpf| ledger.holds(*cpf));
        let to = backs.or_else(|| self.rings.own(region, ue, kind, &self.loads).filter(is_there));
        if let Some(to) = to {
            self.begin_to_move(now, ue, to, out);
        }
    }

    /// Assigns the backups of the UE's region, and removes those of its former region and any surplus ones
    /// once the others hold the checkpoint.
    pub(super) fn reassign_backups(&mut self, ue: UeId, out: &mut Outbox) {
        let region = self.away.get(&ue).unwrap_or_else(|| self.rings.home());
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let (primary, _) = ledger.assignment();
        let region = self.rings.backed_in(region, primary);
        let present: Vec<CpfId> = ledger.backups().collect();
        let further = self.rings.further_backups(region, ue, primary, &present);
        let mut changed = false;
        for cpf in further.into_iter().filter(|c| self.trusted.contains(c) && !present.contains(c)) {
            ledger.add_backup(cpf);
            changed = true;
        }
        let leaves = |c: &CpfId| self.draining.is_leaving(*c); // the drain handles it
        let outside = present.into_iter().filter(|c| !self.rings.backs(region, *c) && !leaves(c));
        let mut settled = true;
        for cpf in outside {
            let goes = ledger.dismiss(cpf);
            settled &= goes;
            if goes {
                out.cpfs.push((cpf, CpfCommand::Forget { ue, term: ledger.assignment().1 }));
                changed = true;
            }
        }
        let mut backs: Vec<CpfId> = ledger.backups().filter(|c| self.rings.backs(region, *c)).collect();
        while backs.len() > self.rings.backups()
            && let Some(last) = backs.pop()
        {
            let code = |c: &CpfId| self.code.get(c);
            let has = backs.iter().filter(|c| ledger.holds(**c) && code(c) == code(&primary)).count();
            let spared = has >= self.rings.backups() && !self.moves.ues.contains_key(&ue);
            if !spared || !ledger.remove_backup(last) {
                settled = false;
                break;
            }
            out.cpfs.push((last, CpfCommand::Forget { ue, term: ledger.assignment().1 }));
            changed = true;
        }
        if changed {
            serve(ue, ledger, &mut self.waiting, out);
            self.pruned(ue);
        }
        match settled {
            true => drop(self.pending_reassignments.remove(&ue)),
            false => drop(self.pending_reassignments.insert(ue)),
        }
    }

    /// Follow-up after an acknowledgement or another change of the UE's ledger.
    pub(super) fn advance(&mut self, ue: UeId, out: &mut Outbox) {
        self.pruned(ue);
        if !self.without_backup.is_empty() && self.ledgers.get(&ue).is_some_and(UeLog::is_backed) {
            self.without_backup.remove(&ue);
        }
        self.try_to_move(ue, out);
        if self.pending_reassignments.contains(&ue) {
            self.reassign_backups(ue, out);
        }
    }

    /// Completes the UE's move if the target holds its checkpoint. Returns whether it did.
    fn try_to_move(&mut self, ue: UeId, out: &mut Outbox) -> bool {
        let Some(&UeMove { to, is_former_kept: keep, .. }) = self.moves.ues.get(&ue) else { return false };
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        let (former, _) = ledger.assignment();
        if !ledger.move_to(to, keep) {
            return false;
        }
        self.loads.moved(Some(former), Some(to));
        if !self.alike(former, to) {
            self.restart_log(ue, out);
        }
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        if !keep {
            out.cpfs.push((former, CpfCommand::Forget { ue, term: ledger.assignment().1 }));
        }
        serve(ue, ledger, &mut self.waiting, out);
        self.spare_unlike(ue);
        self.counts.moved += 1;
        if !self.rings.areas().is_empty() {
            self.reassign_backups(ue, out);
        }
        self.end_move(ue, out);
        true
    }

    /// Restarts a UE's log at a primary that runs other code: earlier inputs are never replayed. Backups are from now on CPFs that run the
    /// same code.
    fn restart_log(&mut self, ue: UeId, out: &mut Outbox) {
        let Some(ledger) = self.ledgers.get(&ue) else { return };
        let (by, _) = ledger.assignment();
        let alike: Vec<CpfId> = ledger.backups().filter(|cpf| self.alike(*cpf, by)).collect();
        let further = self.rings.further_backups(self.region(ue), ue, by, &alike);
        let further: Vec<CpfId> = further.into_iter().filter(|cpf| self.trusted.contains(cpf)).collect();
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        let lagging = ledger.give_up_log();
        further.into_iter().for_each(|cpf| ledger.add_backup(cpf));
        self.outdated(ue, lagging, out);
        self.pruned(ue);
    }

    /// Holds an input if its UE moves, no procedure of it runs, and the checkpoint has not arrived. Returns
    /// the input if it need not wait.
    pub(super) fn hold_if_moving(&mut self, envelope: Envelope, out: &mut Outbox) -> Option<Envelope> {
        let ue = envelope.ue;
        let Some(moving) = self.moves.ues.get_mut(&ue) else { return Some(envelope) };
        if moving.held.is_empty() && !self.ledgers.get(&ue).is_some_and(|l| l.rests()) {
            return Some(envelope); // the CPF that started a procedure completes it
        }
        moving.held.push(envelope);
        if moving.held.len() > MAX_HELD_INPUTS {
            self.end_move(ue, out);
        }
        None
    }

    /// Ends the move: held inputs go to the primary.
    pub(super) fn end_move(&mut self, ue: UeId, out: &mut Outbox) {
        let held = self.moves.ues.remove(&ue).map(|m| m.held).unwrap_or_default();
        held.into_iter().for_each(|envelope| self.hand_over(envelope, out));
    }

    /// Gives up moves whose checkpoint did not arrive in time.
    pub(super) fn give_up_moves(&mut self, now: Instant, out: &mut Outbox) {
        while let Some((since, ue)) =
            self.moves.begun.front().copied().filter(|m| m.0 + CHECKPOINT_TIMEOUT <= now)
        {
            self.moves.begun.pop_front();
            if self.moves.ues.get(&ue).is_some_and(|m| m.since == since) {
                self.counts.moves_given_up += 1;
                if self.rings.has_kinds() {
                    self.kinds.gives_up(now, ue);
                }
                self.end_move(ue, out);
            }
        }
    }

    /// The deadline of the oldest move.
    pub(super) fn move_deadline(&self) -> Option<Instant> {
        self.moves.begun.front().map(|(since, _)| *since + CHECKPOINT_TIMEOUT)
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// Moves a UE to another CPF of the region.
    pub(super) fn move_ue(&mut self, now: Instant, ue: UeId, to: CpfId, out: &mut Outbox) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.begin_to_move(now, ue, to, out);
        }
    }

    /// The region of an association's gNB; `None` where there is one region only.
    fn region_at(&self, association: AssociationId) -> Option<Region> {
        let Service::Region(cpfs) = &self.service else { return None };
        let rings = &cpfs.rings;
        if rings.areas().is_empty() {
            return None;
        }
        let node = self.ran.get(association)?;
        let region = rings.areas().region_of(node.gnb?.gnb_id, &node.tacs);
        Some(region.unwrap_or(rings.home()).clone())
    }

    /// Records the region of the gNB from which a UE's first message came.
    pub(super) fn set_initial_region(&mut self, ue: UeId, association: Option<AssociationId>) {
        let Some(region) = association.and_then(|a| self.region_at(a)) else { return };
        if let Service::Region(cpfs) = &mut self.service
            && !cpfs.ledgers.contains_key(&ue)
            && region != *cpfs.rings.home()
        {
            cpfs.away.insert(ue, region);
        }
    }

    /// Begins a move if this gNB, which serves or will serve the UE, is in another region.
    pub(super) fn follow_to_gnb(
        &mut self,
        now: Instant,
        ue: UeId,
        association: AssociationId,
        out: &mut Outbox,
    ) {
        let Some(region) = self.region_at(association) else { return };
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.enter_region(now, ue, &region, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan::tests::{cpfs, ue};
    use super::*;

    #[test] // dismissing one backup must not prevent dismissing the next
    fn every_superfluous_backup_is_dismissed() {
        let (mut cpfs, ue, now) = (cpfs(3, 1), ue(0), Instant(2));
        let ledger = cpfs.ledgers.get_mut(&ue).unwrap();
        let backups: Vec<CpfId> = ledger.backups().collect();
        let elsewhere = [CpfId(8), CpfId(9)];
        elsewhere.into_iter().for_each(|cpf| ledger.add_backup(cpf));
        [backups[0], CpfId(8)].into_iter().for_each(|cpf| ledger.acknowledged(now, cpf, 1, 1));
        for left in [1, 0] {
            cpfs.reassign_backups(ue, &mut Outbox::default());
            let stay = elsewhere.iter().filter(|cpf| cpfs.ledgers[&ue].concerns(**cpf)).count();
            assert_eq!((stay, cpfs.pending_reassignments.len()), (left, left));
        }
    }
}
