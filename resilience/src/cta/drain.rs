//! Draining: a CPF that no ring names any more, though it is not lost, hands its UEs to other CPFs in slices. When none is left,
//! [`Outbox::drained`] names it.

use serde::{Deserialize, Serialize};
use whimbrel_control::UeId;
use whimbrel_ids::Instant;

use super::Outbox;
use super::cpfs::{BETWEEN_SLICES, Cpfs, serve};
use crate::link::CpfCommand;
use crate::replication::CpfId;

use std::collections::BTreeMap;
use std::time::Duration;

/// UEs that one slice examines at most: each may have its checkpoint sent.
const SLICE: usize = 16;
/// Pause between two rounds over a CPF's UEs, for procedures and checkpoints to complete.
const LOOK: Duration = Duration::from_millis(20);

/// The CPFs that drain.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct DrainingCpfs {
    leaving: BTreeMap<CpfId, Look>,
    due: Option<Instant>,
}

/// A round over all UEs, in the order of their slots.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Look {
    next: UeId,
    /// A UE was found of which it is primary or backup.
    found: bool,
}

const BEGIN: Look = Look { next: UeId { slot: 0, generation: 0 }, found: false };

impl DrainingCpfs {
    /// A draining CPF is lost.
    pub(super) fn lost(&mut self, cpf: CpfId) {
        self.leaving.remove(&cpf);
    }

    /// Whether a CPF drains.
    pub(super) fn is_leaving(&self, cpf: CpfId) -> bool {
        self.leaving.contains_key(&cpf)
    }

    /// When there is something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Cpfs {
    /// The rings have changed: CPFs that are not lost and on no ring drain.
    pub(super) fn drain_unlisted(&mut self, now: Instant) {
        let stays: Vec<CpfId> = self.rings.members().collect();
        self.draining.leaving.retain(|cpf, _| !stays.contains(cpf));
        for cpf in self.trusted.iter().filter(|c| !stays.contains(c)) {
            self.draining.leaving.entry(*cpf).or_insert(BEGIN);
        }
        self.draining.due = (!self.draining.leaving.is_empty()).then_some(now);
    }

    /// The next slice of UEs of draining CPFs moves.
    pub(super) fn drain(&mut self, now: Instant, out: &mut Outbox) {
        if self.draining.due.is_none_or(|due| due > now) {
            return;
        }
        let mut soon = false;
        for (cpf, mut look) in self.draining.leaving.clone() {
            let ues: Vec<UeId> = self.ledgers.range(look.next..).map(|(ue, _)| *ue).take(SLICE).collect();
            for &ue in &ues {
                look.found |= self.remove_draining(now, ue, cpf, out);
            }
            match ues.last() {
                Some(last) if ues.len() == SLICE => {
                    (look.next, soon) = (*last, true);
                    self.draining.leaving.insert(cpf, look);
                }
                _ if look.found => drop(self.draining.leaving.insert(cpf, BEGIN)),
                _ => {
                    self.draining.leaving.remove(&cpf);
                    out.drained.push(cpf);
                }
            }
        }
        let next = now + if soon { BETWEEN_SLICES } else { LOOK };
        self.draining.due = (!self.draining.leaving.is_empty()).then_some(next);
    }

    /// Removes a draining CPF from a UE, now or when that is possible. Returns whether the CPF still is its primary or backup.
    fn remove_draining(&mut self, now: Instant, ue: UeId, cpf: CpfId, out: &mut Outbox) -> bool {
        let kind = self.kind(ue);
        let Some(ledger) = self.ledgers.get_mut(&ue) else { return false };
        let (primary, _) = ledger.assignment();
        let runs_its_log = self.code.get(&primary) == self.code.get(&cpf);
        let present: Vec<CpfId> = ledger.backups().collect();
        if primary == cpf {
            let region = self.away.get(&ue).unwrap_or_else(|| self.rings.home());
            let stays = |c: &CpfId| self.rings.serves(*c) && self.rings.fits_best(region, *c, kind);
            let to = present
                .into_iter()
                .filter(stays)
                .min_by_key(|c| !ledger.holds(*c)) // a backup with the checkpoint takes over at once
                .or_else(|| self.rings.place(region, ue, kind, &self.loads).map(|p| p.primary));
            if let Some(to) = to {
                self.begin_to_move(now, ue, to, out);
            }
            return self
                .ledgers
                .get(&ue)
                .is_some_and(|l| l.assignment().0 == cpf || l.backups().any(|b| b == cpf));
        }
        if !present.contains(&cpf) {
            return false;
        }
        if self.draining.leaving.contains_key(&primary) && runs_its_log {
            return true; // it may be the only one that can run the log until the UE has moved
        }
        let region = self.away.get(&ue).unwrap_or_else(|| self.rings.home());
        let further = self.rings.further_backups(region, ue, primary, &present);
        let new = further.iter().any(|c| !present.contains(c));
        if new {
            further.into_iter().filter(|c| self.trusted.contains(c)).for_each(|c| ledger.add_backup(c));
            serve(ue, ledger, &mut self.waiting, out);
            return true;
        }
        if ledger.dismiss(cpf) {
            serve(ue, ledger, &mut self.waiting, out);
            out.cpfs.push((cpf, CpfCommand::Forget { ue, term: ledger.assignment().1 }));
            self.pruned(ue);
            return false;
        }
        true
    }
}
