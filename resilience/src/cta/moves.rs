//! A UE moves from one CPF to another, in order: when it comes to another region, or since its own drains (Neutrino
//! §4.3). Where the other holds the UE's state, its clock is checked and it serves at once (the fast form); else it gets the state first (the
//! default form), and the UE's inputs wait for that.
//!
//! A UE comes to another region with HANDOVER REQUIRED that names a gNB there, with PATH SWITCH REQUEST of one, or, from idle, with what
//! it says there first. A handover is run by who serves the UE then, so it moves before; from idle it moves when it rests. A handover
//! that fails leads it back the same way. Within a region nobody moves.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{AssociationId, Envelope, UeId};
use whimbrel_ids::Instant;

use super::cpfs::{Cpfs, Service, serve};
use super::{Cta, Entropy, Inspect, Outbox};
use crate::link::CpfCommand;
use crate::region::Region;
use crate::replication::{CpfId, Ledger};

/// How long a UE's inputs may wait for its state to be there: well above a transfer in any network, below a UE's patience
/// (T3517, TS 24.501 table 10.2.1).
const PATIENCE: Duration = Duration::from_secs(1);

/// So many inputs of a UE may wait: more than a procedure has.
const HELD_MAX: usize = 64;

/// A UE that is to be served by another.
#[derive(Serialize, Deserialize)]
pub(super) struct Moving {
    to: CpfId,
    since: Instant,
    /// Who serves it now backs it then; not where the other got the state for this alone.
    keep: bool,
    /// What came for the UE meanwhile.
    pub(super) held: Vec<Envelope>,
}

impl Cpfs {
    pub(super) fn begin_to_move(&mut self, now: Instant, ue: UeId, to: CpfId, out: &mut Outbox) {
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return };
        if !self.trusted.contains(&to) || ledger.assignment().0 == to || self.moving.contains_key(&ue) {
            return;
        }
        let keep = ledger.backups().any(|backup| backup == to);
        if !keep {
            ledger.add_backup(to);
            serve(ue, ledger, &mut self.waiting, out);
        }
        self.moving.insert(ue, Moving { to, since: now, keep, held: Vec::new() });
        self.moves_begun.push_back((now, ue));
        if self.try_to_move(ue, out) {
            self.counts.moved_fast += 1;
        }
    }

    /// The region that a UE is in.
    pub(super) fn region(&self, ue: UeId) -> &Region {
        self.away.get(&ue).unwrap_or_else(|| self.rings.home())
    }

    /// A UE is, or is about to be, in a region: one of that region's CPFs is to serve it, best one that has its state.
    fn enters(&mut self, now: Instant, ue: UeId, region: &Region, out: &mut Outbox) {
        match region == self.rings.home() {
            true => drop(self.away.remove(&ue)),
            false if self.away.get(&ue) != Some(region) => drop(self.away.insert(ue, region.clone())),
            false => {}
        }
        let Some(ledger) = self.ledgers.get(&ue) else { return };
        let is_there = |cpf: &CpfId| self.trusted.contains(cpf) && self.rings.region_of(*cpf) == Some(region);
        if is_there(&ledger.assignment().0) {
            return;
        }
        let backs = ledger.backups().filter(is_there).max_by_key(|cpf| ledger.holds(*cpf));
        let to = backs.or_else(|| self.rings.own(region, ue).filter(is_there));
        if let Some(to) = to {
            self.begin_to_move(now, ue, to, out);
        }
    }

    /// A UE that has come to a region is backed as those that begin there; who backed it where it came from is not needed any more
    /// once others have its state. Nor is who was late with it, once who took its place has it.
    pub(super) fn settle(&mut self, ue: UeId, out: &mut Outbox) {
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
        let leaves = |c: &CpfId| self.draining.is_leaving(*c); // it has an order of its own
        let strangers = present.into_iter().filter(|c| !self.rings.backs(region, *c) && !leaves(c));
        let mut settled = true;
        for cpf in strangers {
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
            let spared = has >= self.rings.backups() && !self.moving.contains_key(&ue);
            if !spared || !ledger.let_go(last) {
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
            true => drop(self.unsettled.remove(&ue)),
            false => drop(self.unsettled.insert(ue)),
        }
    }

    /// A UE's state has come to one more place, or its ledger has changed otherwise.
    pub(super) fn progress(&mut self, ue: UeId, out: &mut Outbox) {
        self.pruned(ue);
        if !self.without_backup.is_empty() && self.ledgers.get(&ue).is_some_and(Ledger::is_backed) {
            self.without_backup.remove(&ue);
        }
        self.try_to_move(ue, out);
        if self.unsettled.contains(&ue) {
            self.settle(ue, out);
        }
    }

    /// The UE's move comes about if its state is where it goes. Whether it did.
    fn try_to_move(&mut self, ue: UeId, out: &mut Outbox) -> bool {
        let Some(&Moving { to, keep, .. }) = self.moving.get(&ue) else { return false };
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        let (former, _) = ledger.assignment();
        if !ledger.move_to(to, keep) {
            return false;
        }
        if !self.alike(former, to) {
            self.begin_anew(ue, out);
        }
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        if !keep {
            out.cpfs.push((former, CpfCommand::Forget { ue, term: ledger.assignment().1 }));
        }
        serve(ue, ledger, &mut self.waiting, out);
        self.counts.moved += 1;
        if !self.rings.areas().is_empty() {
            self.settle(ue, out);
        }
        self.stop_moving(ue, out);
        true
    }

    /// A UE's log begins anew with who serves it now, who runs other code: what was before is never run again. Those back it from here on who
    /// can run its log.
    fn begin_anew(&mut self, ue: UeId, out: &mut Outbox) {
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

    /// An input waits if its UE rests and its state is on its way. It comes back if it does not.
    pub(super) fn waits(&mut self, envelope: Envelope, out: &mut Outbox) -> Option<Envelope> {
        let ue = envelope.ue;
        let Some(moving) = self.moving.get_mut(&ue) else { return Some(envelope) };
        if moving.held.is_empty() && !self.ledgers.get(&ue).is_some_and(|l| l.rests()) {
            return Some(envelope); // what runs has to end where it began
        }
        moving.held.push(envelope);
        if moving.held.len() > HELD_MAX {
            self.stop_moving(ue, out);
        }
        None
    }

    /// The UE is where it stays: what waited goes on.
    pub(super) fn stop_moving(&mut self, ue: UeId, out: &mut Outbox) {
        let held = self.moving.remove(&ue).map(|m| m.held).unwrap_or_default();
        held.into_iter().for_each(|envelope| self.hand_over(envelope, out));
    }

    /// UEs whose state did not come where they were to go stay.
    pub(super) fn give_up_moves(&mut self, now: Instant, out: &mut Outbox) {
        while let Some((since, ue)) = self.moves_begun.front().copied().filter(|m| m.0 + PATIENCE <= now) {
            self.moves_begun.pop_front();
            if self.moving.get(&ue).is_some_and(|m| m.since == since) {
                self.counts.moves_given_up += 1;
                self.stop_moving(ue, out);
            }
        }
    }

    /// When that is next.
    pub(super) fn moves_due(&self) -> Option<Instant> {
        self.moves_begun.front().map(|(since, _)| *since + PATIENCE)
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// A UE is to be served by another member of the region.
    pub(super) fn move_ue(&mut self, now: Instant, ue: UeId, to: CpfId, out: &mut Outbox) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.begin_to_move(now, ue, to, out);
        }
    }

    /// The region of the gNB that an association is with; `None` where all are of one.
    fn region_at(&self, association: AssociationId) -> Option<Region> {
        let Service::Region(cpfs) = &self.service else { return None };
        let rings = &cpfs.rings;
        if rings.areas().is_empty() {
            return None;
        }
        let node = self.ran.get(association)?;
        let said = rings.areas().region_of(node.gnb?.gnb_id, &node.tacs);
        Some(said.unwrap_or(rings.home()).clone())
    }

    /// A UE that begins does so in the region of its gNB.
    pub(super) fn begins_at(&mut self, ue: UeId, association: Option<AssociationId>) {
        let Some(region) = association.and_then(|a| self.region_at(a)) else { return };
        if let Service::Region(cpfs) = &mut self.service
            && !cpfs.ledgers.contains_key(&ue)
            && region != *cpfs.rings.home()
        {
            cpfs.away.insert(ue, region);
        }
    }

    /// A UE is, or is about to be, under a gNB.
    pub(super) fn comes_to(&mut self, now: Instant, ue: UeId, association: AssociationId, out: &mut Outbox) {
        let Some(region) = self.region_at(association) else { return };
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.enters(now, ue, &region, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan::tests::{cpfs, ue};
    use super::*;

    #[test] // one that lacks the state is not missed, but until it has gone another one might be
    fn each_of_several_that_are_to_go_goes() {
        let (mut cpfs, ue, now) = (cpfs(3, 1), ue(0), Instant(2));
        let ledger = cpfs.ledgers.get_mut(&ue).unwrap();
        let backups: Vec<CpfId> = ledger.backups().collect();
        let elsewhere = [CpfId(8), CpfId(9)];
        elsewhere.into_iter().for_each(|cpf| ledger.add_backup(cpf));
        [backups[0], CpfId(8)].into_iter().for_each(|cpf| ledger.acknowledged(now, cpf, 1, 1));
        for left in [1, 0] {
            cpfs.settle(ue, &mut Outbox::default());
            let stay = elsewhere.iter().filter(|cpf| cpfs.ledgers[&ue].concerns(**cpf)).count();
            assert_eq!((stay, cpfs.unsettled.len()), (left, left));
        }
    }
}
