//! A phone moves from one control function to another, in order: at a handover into the other's area, or since its own drains (Neutrino
//! §4.3). Where the other holds the phone's state, its clock is checked and it serves at once (the fast form); else it gets the state first (the
//! default form), and the phone's inputs wait for that.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{Envelope, PhoneId};
use whimbrel_ids::Instant;

use super::cpfs::{Cpfs, Service, serve};
use super::{Cta, Entropy, Inspect, Outbox};
use crate::link::Down;
use crate::replication::CpfId;

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
        self.try_to_move(phone, out);
    }

    /// The phone's move comes about if its state is where it goes.
    pub(super) fn try_to_move(&mut self, phone: PhoneId, out: &mut Outbox) {
        let Some(&Moving { to, keep, .. }) = self.moving.get(&phone) else { return };
        let Some(ledger) = self.ledgers.get_mut(&phone) else { return };
        let (former, _) = ledger.assignment();
        if !ledger.move_to(to, keep) {
            return;
        }
        if !keep {
            out.cpfs.push((former, Down::Forget(phone)));
        }
        serve(phone, ledger, &mut self.waiting, out);
        self.counts.moved += 1;
        self.stop_moving(phone, out);
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
        let late =
            self.moving.iter().filter(|(_, m)| now.since(m.since) >= PATIENCE).map(|(phone, _)| *phone);
        late.collect::<Vec<_>>().into_iter().for_each(|phone| self.stop_moving(phone, out));
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// A phone is to be served by another member of the region.
    pub(super) fn move_phone(&mut self, now: Instant, phone: PhoneId, to: CpfId, out: &mut Outbox) {
        if let Service::Region(cpfs) = &mut self.service {
            cpfs.begin_to_move(now, phone, to, out);
        }
    }
}
