//! A phone moves from one control function to another, in order: when it comes to another region, or since its own drains (Neutrino
//! §4.3). Where the other holds the phone's state, its clock is checked and it serves at once (the fast form); else it gets the state first (the
//! default form), and the phone's inputs wait for that.
//!
//! A phone comes to another region with HANDOVER REQUIRED that names a gNB there, with PATH SWITCH REQUEST of one, or, from idle, with what
//! it says there first. A handover is run by who serves the phone then, so it moves before; from idle it moves when it rests. A handover
//! that fails leads it back the same way. Within a region nobody moves.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{AssociationId, Envelope, PhoneId};
use whimbrel_ids::Instant;

use super::cpfs::{Cpfs, Service, serve};
use super::{Cta, Entropy, Inspect, Outbox};
use crate::link::Down;
use crate::region::Region;
use crate::replication::{CpfId, Ledger};

/// How long a phone's inputs may wait for its state to be there: well above a transfer in any network, below a phone's patience
/// (T3517, TS 24.501 table 10.2.1).
const PATIENCE: Duration = Duration::from_secs(1);

/// So many inputs of a phone may wait: more than a procedure has.
const HELD_MAX: usize = 64;

/// A phone that is to be served by another.
#[derive(Serialize, Deserialize)]
pub(super) struct Moving {
    to: CpfId,
    since: Instant,
    /// Who serves it now backs it then; not where the other got the state for this alone.
    keep: bool,
    /// What came for the phone meanwhile.
    pub(super) held: Vec<Envelope>,
}

impl Cpfs {
    pub(super) fn begin_to_move(&mut self, now: Instant, phone: PhoneId, to: CpfId, out: &mut Outbox) {
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return };
        if !self.trusted.contains(&to) || ledger.assignment().0 == to || self.moving.contains_key(&phone) {
            return;
        }
        let keep = ledger.backups().any(|backup| backup == to);
        if !keep {
            ledger.add_backup(to);
            serve(phone, ledger, &mut self.waiting, out);
        }
        self.moving.insert(phone, Moving { to, since: now, keep, held: Vec::new() });
        self.moves_begun.push_back((now, phone));
        if self.try_to_move(phone, out) {
            self.counts.moved_fast += 1;
        }
    }

    /// The region that a phone is in.
    pub(super) fn region(&self, phone: PhoneId) -> &Region {
        self.away.get(&phone).unwrap_or_else(|| self.rings.home())
    }

    /// A phone is, or is about to be, in a region: one of that region's control functions is to serve it, best one that has its state.
    fn enters(&mut self, now: Instant, phone: PhoneId, region: &Region, out: &mut Outbox) {
        match region == self.rings.home() {
            true => drop(self.away.remove(&phone)),
            false if self.away.get(&phone) != Some(region) => drop(self.away.insert(phone, region.clone())),
            false => {}
        }
        let Some(ledger) = self.ledgers.get(&phone) else { return };
        let is_there = |cpf: &CpfId| self.trusted.contains(cpf) && self.rings.region_of(*cpf) == Some(region);
        if is_there(&ledger.assignment().0) {
            return;
        }
        let backs = ledger.backups().filter(is_there).max_by_key(|cpf| ledger.holds(*cpf));
        let to = backs.or_else(|| self.rings.own(region, phone).filter(is_there));
        if let Some(to) = to {
            self.begin_to_move(now, phone, to, out);
        }
    }

    /// A phone that has come to a region is backed as those that begin there; who backed it where it came from is not needed any more
    /// once others have its state. Nor is who was late with it, once who took its place has it.
    pub(super) fn settle(&mut self, phone: PhoneId, out: &mut Outbox) {
        let region = self.away.get(&phone).unwrap_or_else(|| self.rings.home());
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return };
        let (primary, _) = ledger.assignment();
        let region = self.rings.backed_in(region, primary);
        let present: Vec<CpfId> = ledger.backups().collect();
        let further = self.rings.further_backups(region, phone, primary, &present);
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
                out.cpfs.push((cpf, Down::Forget { phone, term: ledger.assignment().1 }));
                changed = true;
            }
        }
        let mut backs: Vec<CpfId> = ledger.backups().filter(|c| self.rings.backs(region, *c)).collect();
        while backs.len() > self.rings.backups()
            && let Some(last) = backs.pop()
        {
            let code = |c: &CpfId| self.code.get(c);
            let has = backs.iter().filter(|c| ledger.holds(**c) && code(c) == code(&primary)).count();
            let spared = has >= self.rings.backups() && !self.moving.contains_key(&phone);
            if !spared || !ledger.let_go(last) {
                settled = false;
                break;
            }
            out.cpfs.push((last, Down::Forget { phone, term: ledger.assignment().1 }));
            changed = true;
        }
        if changed {
            serve(phone, ledger, &mut self.waiting, out);
            self.pruned(phone);
        }
        match settled {
            true => drop(self.unsettled.remove(&phone)),
            false => drop(self.unsettled.insert(phone)),
        }
    }

    /// A phone's state has come to one more place, or its ledger has changed otherwise.
    pub(super) fn progress(&mut self, phone: PhoneId, out: &mut Outbox) {
        self.pruned(phone);
        if !self.unbacked.is_empty() && self.ledgers.get(&phone).is_some_and(Ledger::is_backed) {
            self.unbacked.remove(&phone);
        }
        self.try_to_move(phone, out);
        if self.unsettled.contains(&phone) {
            self.settle(phone, out);
        }
    }

    /// The phone's move comes about if its state is where it goes. Whether it did.
    fn try_to_move(&mut self, phone: PhoneId, out: &mut Outbox) -> bool {
        let Some(&Moving { to, keep, .. }) = self.moving.get(&phone) else { return false };
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return false };
        let (former, _) = ledger.assignment();
        if !ledger.move_to(to, keep) {
            return false;
        }
        if !self.alike(former, to) {
            self.begin_anew(phone, out);
        }
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return false };
        if !keep {
            out.cpfs.push((former, Down::Forget { phone, term: ledger.assignment().1 }));
        }
        serve(phone, ledger, &mut self.waiting, out);
        self.counts.moved += 1;
        if !self.rings.areas().is_empty() {
            self.settle(phone, out);
        }
        self.stop_moving(phone, out);
        true
    }

    /// A phone's log begins anew with who serves it now, who runs other code: what was before is never run again. Those back it from here on who
    /// can run its log.
    fn begin_anew(&mut self, phone: PhoneId, out: &mut Outbox) {
        let Some(ledger) = self.ledgers.get(&phone) else { return };
        let (by, _) = ledger.assignment();
        let alike: Vec<CpfId> = ledger.backups().filter(|cpf| self.alike(*cpf, by)).collect();
        let further = self.rings.further_backups(self.region(phone), phone, by, &alike);
        let further: Vec<CpfId> = further.into_iter().filter(|cpf| self.trusted.contains(cpf)).collect();
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return };
        let lagging = ledger.give_up_log();
        further.into_iter().for_each(|cpf| ledger.add_backup(cpf));
        self.outdated(phone, lagging, out);
        self.pruned(phone);
    }

    /// An input waits if its phone rests and its state is on its way. It comes back if it does not.
    pub(super) fn waits(&mut self, envelope: Envelope, out: &mut Outbox) -> Option<Envelope> {
        let phone = envelope.phone;
        let Some(moving) = self.moving.get_mut(&phone) else { return Some(envelope) };
        if moving.held.is_empty() && !self.ledgers.get(&phone).is_some_and(|l| l.rests()) {
            return Some(envelope); // what runs has to end where it began
        }
        moving.held.push(envelope);
        if moving.held.len() > HELD_MAX {
            self.stop_moving(phone, out);
        }
        None
    }

    /// The phone is where it stays: what waited goes on.
    pub(super) fn stop_moving(&mut self, phone: PhoneId, out: &mut Outbox) {
        let held = self.moving.remove(&phone).map(|m| m.held).unwrap_or_default();
        held.into_iter().for_each(|envelope| self.hand_over(envelope, out));
    }

    /// Phones whose state did not come where they were to go stay.
    pub(super) fn give_up_moves(&mut self, now: Instant, out: &mut Outbox) {
        while let Some((since, phone)) = self.moves_begun.front().copied().filter(|m| m.0 + PATIENCE <= now) {
            self.moves_begun.pop_front();
            if self.moving.get(&phone).is_some_and(|m| m.since == since) {
                self.counts.moves_given_up += 1;
                self.stop_moving(phone, out);
            }
        }
    }

    /// When that is next.
    pub(super) fn moves_due(&self) -> Option<Instant> {
        self.moves_begun.front().map(|(since, _)| *since + PATIENCE)
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// A phone is to be served by another member of the region.
    pub(super) fn move_phone(&mut self, now: Instant, phone: PhoneId, to: CpfId, out: &mut Outbox) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.begin_to_move(now, phone, to, out);
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

    /// A phone that begins does so in the region of its gNB.
    pub(super) fn begins_at(&mut self, phone: PhoneId, association: Option<AssociationId>) {
        let Some(region) = association.and_then(|a| self.region_at(a)) else { return };
        if let Service::Region(cpfs) = &mut self.service
            && !cpfs.ledgers.contains_key(&phone)
            && region != *cpfs.rings.home()
        {
            cpfs.away.insert(phone, region);
        }
    }

    /// A phone is, or is about to be, under a gNB.
    pub(super) fn comes_to(
        &mut self,
        now: Instant,
        phone: PhoneId,
        association: AssociationId,
        out: &mut Outbox,
    ) {
        let Some(region) = self.region_at(association) else { return };
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.enters(now, phone, &region, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan::tests::{cpfs, phone};
    use super::*;

    #[test] // one that lacks the state is not missed, but until it has gone another one might be
    fn each_of_several_that_are_to_go_goes() {
        let (mut cpfs, phone, now) = (cpfs(3, 1), phone(0), Instant(2));
        let ledger = cpfs.ledgers.get_mut(&phone).unwrap();
        let backups: Vec<CpfId> = ledger.backups().collect();
        let elsewhere = [CpfId(8), CpfId(9)];
        elsewhere.into_iter().for_each(|cpf| ledger.add_backup(cpf));
        [backups[0], CpfId(8)].into_iter().for_each(|cpf| ledger.acknowledged(now, cpf, 1, 1));
        for left in [1, 0] {
            cpfs.settle(phone, &mut Outbox::default());
            let stay = elsewhere.iter().filter(|cpf| cpfs.ledgers[&phone].concerns(**cpf)).count();
            assert_eq!((stay, cpfs.unsettled.len()), (left, left));
        }
    }
}
