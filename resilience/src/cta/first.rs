//! First messages of N2 connections: which UE sent one is found by asking contexts.
//!
//! INITIAL UE MESSAGE goes to the UE that its 5G-S-TMSI names if that UE accepts it, else to a new slot as an unauthenticated UE; there the
//! NAS message may still name a UE by its 5G-GUTI. A message with a 5G-GUTI that another AMF had assigned goes to the UE that came from
//! that AMF, if it accepts it. A context answers with its batch, so the follow-up of either answer is stored here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{
    AssociationId, Command, Disposition, Event, Payload, UeEvent, UeId, amf, digest, event::MessageDropReason,
};
use whimbrel_ids::{AmfUeNgapId, Instant};
use whimbrel_ngap::Peek;
use whimbrel_ngap::ie::CauseMisc;

use super::cpfs::Service;
use super::{Cta, Entropy, Inspect, Outbox, send};

/// The first message of a connection.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct FirstMessage {
    pub(super) association: AssociationId,
    pub(super) stream: u16,
    pub(super) octets: Arc<[u8]>,
    /// Used only to recognise a repetition by the same gNB.
    digest: u64,
}

impl FirstMessage {
    pub(super) fn new(association: AssociationId, stream: u16, octets: &[u8]) -> Self {
        Self { association, stream, octets: octets.into(), digest: digest(0, octets) }
    }
}

/// A first message that a context was asked about.
#[derive(Serialize, Deserialize)]
pub(super) struct FirstMessageQuery {
    first: FirstMessage,
    candidate: Candidate,
    /// The AMF-UE-NGAP-ID of the connection that would begin.
    pub(super) amf_ue_ngap_id: AmfUeNgapId,
}

/// First messages without an answer, by the input that asks.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Asks {
    by_input: BTreeMap<(UeId, u64), FirstMessageQuery>,
    under_way: BTreeSet<(AssociationId, u64)>,
    /// First messages of UEs that are in transfer between two AMFs. They are asked about again when the context has had its next input.
    waiting: BTreeMap<UeId, FirstMessage>,
}

impl Asks {
    fn insert(&mut self, ue: UeId, clock: u64, asked: FirstMessageQuery) {
        self.under_way.insert((asked.first.association, asked.first.digest));
        self.by_input.insert((ue, clock), asked);
    }

    /// The context has answered this input.
    pub(super) fn remove(&mut self, ue: UeId, clock: u64) -> Option<FirstMessageQuery> {
        let asked = self.by_input.remove(&(ue, clock))?;
        self.under_way.remove(&(asked.first.association, asked.first.digest));
        Some(asked)
    }

    /// The UE is in transfer: a later first message of it replaces the one that waits.
    fn wait(&mut self, ue: UeId, first: FirstMessage) {
        self.under_way.insert((first.association, first.digest));
        if let Some(former) = self.waiting.insert(ue, first) {
            self.under_way.remove(&(former.association, former.digest));
        }
    }

    /// The first message that waits for the next input of this UE.
    pub(super) fn take_waiting(&mut self, ue: UeId) -> Option<FirstMessage> {
        let first = self.waiting.remove(&ue)?;
        self.under_way.remove(&(first.association, first.digest));
        Some(first)
    }

    /// The unanswered questions to a UE between these clocks.
    pub(super) fn between(
        &self,
        ue: UeId,
        first: u64,
        last: u64,
    ) -> impl Iterator<Item = (u64, &FirstMessageQuery)> {
        self.by_input.range((ue, first)..=(ue, last)).map(|(&(_, clock), asked)| (clock, asked))
    }

    fn has(&self, first: &FirstMessage) -> bool {
        self.under_way.contains(&(first.association, first.digest))
    }
}

/// The context that is asked.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Candidate {
    /// The UE that the 5G-S-TMSI names, or the 5G-GUTI that another AMF had given it.
    Named,
    /// A new slot. `asked`: a UE that the message names was asked before.
    NewSlot { asked: bool },
    /// The UE that the 5G-GUTI in the NAS message names; the new slot waits.
    NamedWithin { new_slot: UeId },
    /// The new slot once more: no other context accepted the message.
    NewSlotAgain,
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    pub(super) fn initial_ue_message(
        &mut self,
        now: Instant,
        peek: &Peek,
        first: FirstMessage,
        out: &mut Outbox,
    ) {
        if !self.ran.admit_first_message(now, first.association) {
            return self.limited(now, Some(first.association), "first_messages_per_s", out);
        }
        // A gNB may repeat a message after a takeover.
        if self.asked.has(&first) {
            return self.repeated(peek, &first, out);
        }
        if self.free_ran_ue_ngap_id(now, first.association, peek.ran_ue_ngap_id, first.digest, out) {
            return self.repeated(peek, &first, out);
        }
        self.ask_named(now, peek, first, out);
    }

    /// Asks the context of the UE that the message names.
    fn ask_named(&mut self, now: Instant, peek: &Peek, first: FirstMessage, out: &mut Outbox) {
        let amf_id = self.config.amf.amf_id;
        let ours = peek.five_g_s_tmsi.filter(|t| t.set == amf_id.set() && t.pointer == amf_id.pointer());
        // A UE may come back with a 5G-GUTI that this AMF had given it before it went to another one.
        let named = ours.and_then(|t| self.slots.by_tmsi(t.tmsi));
        let named = named.or_else(|| self.arrived(&first.octets, peek.five_g_s_tmsi));
        match named {
            Some(ue) if self.is_served(ue) => self.ask(now, ue, first, Candidate::Named, out),
            Some(_) => self.refuse_first(now, &first, "cpfs", out),
            None => self.ask_new_slot(now, first, false, out),
        }
    }

    /// A UE that was in transfer has had an input: the message that waited for that may go to another context now.
    pub(super) fn ask_again(&mut self, now: Instant, first: FirstMessage, out: &mut Outbox) {
        if let Some(peek) = whimbrel_ngap::peek(&first.octets) {
            self.ask_named(now, &peek, first, out);
        }
    }

    /// A first message that came twice has no further effect.
    fn repeated(&self, peek: &Peek, first: &FirstMessage, out: &mut Outbox) {
        let named = peek.ran_ue_ngap_id.and_then(|n| self.slots.by_ran_ue_ngap_id(first.association, n));
        let Some(ue) = named else { return };
        let subject = self.context(ue).map(|p| p.subject()).unwrap_or_default();
        let event = Event::Dropped { subject, why: MessageDropReason::Duplicate };
        out.events.push(UeEvent { ue, on: Some(first.association), event });
    }

    /// Gives a first message a new slot.
    fn ask_new_slot(&mut self, now: Instant, first: FirstMessage, asked: bool, out: &mut Outbox) {
        self.release_rejected(now, first.association, out);
        let limits = self.config.limits;
        let bound =
            if self.slots.unauthenticated_ues_on(first.association) >= limits.unauthenticated_ues_per_gnb {
                Err("unauthenticated_ues_per_gnb")
            } else if self.slots.unauthenticated_ues() >= limits.unauthenticated_ues {
                Err("unauthenticated_ues")
            } else {
                self.slots.allocate(limits.ues, first.association).ok_or("ues")
            };
        let bound = bound.and_then(|ue| match self.can_place(ue) {
            true => Ok(ue),
            false => {
                self.vacate(now, ue, out);
                Err("cpfs")
            }
        });
        let ue = match bound {
            Ok(ue) => ue,
            Err(limit) => return self.refuse_first(now, &first, limit, out),
        };
        self.update_load(now, out);
        self.ask(now, ue, first, Candidate::NewSlot { asked }, out);
    }

    /// Answers a first message for which a resource lacks.
    fn refuse_first(&mut self, now: Instant, first: &FirstMessage, limit: &'static str, out: &mut Outbox) {
        self.limited(now, Some(first.association), limit, out);
        if self.ran.may_send_error_indication(now, first.association) {
            let answer = amf::overloaded(&first.octets, CauseMisc::ControlProcessingOverload);
            send(first.association, first.stream, &answer, out);
        }
    }

    /// At half of a limit, a rejected UE that could still register again on its connection gives its slot up. So a flood of rejected
    /// requests takes no slots from others, and is no overload.
    fn release_rejected(&mut self, now: Instant, association: AssociationId, out: &mut Outbox) {
        let limits = self.config.limits;
        let of = if self.slots.unauthenticated_ues_on(association) >= limits.unauthenticated_ues_per_gnb / 2 {
            Some(association)
        } else if self.slots.unauthenticated_ues() >= limits.unauthenticated_ues / 2
            || self.slots.used() >= limits.ues as usize
        {
            None
        } else {
            return;
        };
        let delay = self.config.timers.release_delay;
        let Some(rejected) = self.slots.rejected_ue(now, delay, of) else { return };
        let Some(names) = self.slots.names(rejected).next() else { return };
        let stream = self.stream(rejected, names.association);
        let release = amf::release_of(names.amf_ue_ngap_id, names.ran_ue_ngap_id);
        send(names.association, stream, &release, out);
        match &self.service {
            // Its procedures end the context.
            Service::Here(_) => {
                let lost = Payload::Command(Command::ConnectionLost(names.association));
                self.input(now, rejected, lost, out);
            }
            Service::Region(_) => self.vacate(now, rejected, out),
        }
    }

    /// A context has begun a connection with the message: its answers keep to that stream. Returns the stream of the connection before.
    pub(super) fn begun(&mut self, ue: UeId, asked: &FirstMessageQuery) -> u16 {
        let former = self.slots.stream_begun(ue);
        self.slots.begin(ue, asked.first.digest, asked.first.stream);
        former
    }

    /// Releases the connections that these inputs would have begun.
    pub(super) fn release_first_messages(&self, ue: UeId, (first, last): (u64, u64), out: &mut Outbox) {
        for (_, FirstMessageQuery { first, amf_ue_ngap_id, .. }) in self.asked.between(ue, first, last) {
            let release = amf::release_of_first(&first.octets, *amf_ue_ngap_id);
            send(first.association, first.stream, &release, out);
        }
    }

    fn ask(&mut self, now: Instant, ue: UeId, first: FirstMessage, candidate: Candidate, out: &mut Outbox) {
        let Some(amf_ue_ngap_id) = self.slots.new_connection(ue) else { return };
        let payload = Payload::InitialUeMessage {
            association: first.association,
            amf_ue_ngap_id,
            octets: first.octets.clone(),
            addressed: !matches!(candidate, Candidate::NewSlot { asked: false }),
        };
        let Some(envelope) = self.stamp(now, ue, payload) else { return };
        self.asked.insert(ue, envelope.clock, FirstMessageQuery { first, candidate, amf_ue_ngap_id });
        self.submit(now, envelope, out);
    }

    /// A context has answered a question about a first message.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        ue: UeId,
        asked: FirstMessageQuery,
        answer: Disposition,
        out: &mut Outbox,
    ) {
        let FirstMessageQuery { first, candidate, .. } = asked;
        match (candidate, answer) {
            (Candidate::Named, Disposition::OtherUe) => self.ask_new_slot(now, first, true, out),
            (Candidate::NewSlot { .. }, Disposition::Elsewhere(tmsi)) => {
                match self.slots.by_tmsi(tmsi).filter(|&p| p != ue) {
                    Some(named) => self.ask(now, named, first, Candidate::NamedWithin { new_slot: ue }, out),
                    None => self.ask(now, ue, first, Candidate::NewSlotAgain, out),
                }
            }
            (Candidate::NamedWithin { new_slot }, Disposition::OtherUe) => {
                self.ask(now, new_slot, first, Candidate::NewSlotAgain, out);
            }
            (Candidate::Named, Disposition::NotYet) => self.asked.wait(ue, first),
            (Candidate::NamedWithin { new_slot }, Disposition::NotYet) => {
                self.vacate(now, new_slot, out);
                self.asked.wait(ue, first);
            }
            (Candidate::NamedWithin { new_slot }, _) => self.vacate(now, new_slot, out),
            // Its slot was freed before it was asked: it gets another one.
            (Candidate::NewSlot { asked }, Disposition::OtherUe) if !self.slots.holds(ue) => {
                self.ask_new_slot(now, first, asked, out);
            }
            (Candidate::NewSlotAgain, Disposition::OtherUe) if !self.slots.holds(ue) => {
                self.ask_new_slot(now, first, true, out);
            }
            _ => {}
        }
    }
}
