//! First messages of connections: whose they are is found out by asking.
//!
//! A message goes to the UE that its 5G-S-TMSI names if that UE owns up to it, else to a slot of its own (DESIGN:
//! unauthenticated UEs); there it may turn out to name a UE after all, by a 5G-GUTI in the NAS message. One that names a UE as another AMF
//! did, from which the UE has come, is that UE's if it owns up to it. Who is asked answers with its batch, so what is to be done with
//! either answer waits here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{
    AssociationId, Command, Disposition, Event, Payload, UeEvent, UeId, amf, digest, event::Dropped,
};
use whimbrel_ids::{AmfUeNgapId, Instant};
use whimbrel_ngap::Peek;
use whimbrel_ngap::ie::CauseMisc;

use super::cpfs::Service;
use super::{Cta, Entropy, Inspect, Outbox, send};

/// The first message of a connection.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct First {
    pub(super) association: AssociationId,
    pub(super) stream: u16,
    pub(super) octets: Arc<[u8]>,
    /// Recognises a repetition by the same gNB, decides nothing else.
    digest: u64,
}

impl First {
    pub(super) fn new(association: AssociationId, stream: u16, octets: &[u8]) -> Self {
        Self { association, stream, octets: octets.into(), digest: digest(0, octets) }
    }
}

/// A UE is asked whether a first message is its own.
#[derive(Serialize, Deserialize)]
pub(super) struct Asked {
    first: First,
    whom: Whom,
    /// The name of the connection that would begin.
    pub(super) amf_ue_ngap_id: AmfUeNgapId,
}

/// First messages whose UEs are being looked for, by the input that asks.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Asks {
    by_input: BTreeMap<(UeId, u64), Asked>,
    under_way: BTreeSet<(AssociationId, u64)>,
}

impl Asks {
    fn insert(&mut self, ue: UeId, clock: u64, asked: Asked) {
        self.under_way.insert((asked.first.association, asked.first.digest));
        self.by_input.insert((ue, clock), asked);
    }

    /// Who was asked by this input has answered.
    pub(super) fn remove(&mut self, ue: UeId, clock: u64) -> Option<Asked> {
        let asked = self.by_input.remove(&(ue, clock))?;
        self.under_way.remove(&(asked.first.association, asked.first.digest));
        Some(asked)
    }

    /// A UE's inputs between these that ask and are not answered.
    pub(super) fn between(&self, ue: UeId, first: u64, last: u64) -> impl Iterator<Item = (u64, &Asked)> {
        self.by_input.range((ue, first)..=(ue, last)).map(|(&(_, clock), asked)| (clock, asked))
    }

    fn has(&self, first: &First) -> bool {
        self.under_way.contains(&(first.association, first.digest))
    }
}

/// Who is asked.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Whom {
    /// The UE that the 5G-S-TMSI names, or the 5G-GUTI that another AMF had given it.
    Named,
    /// A slot of its own. The UE that the message names was looked for: whether there was one.
    Stranger { asked: bool },
    /// The UE that the 5G-GUTI within names; the stranger's slot waits.
    NamedWithin { stranger: UeId },
    /// The stranger's slot once more: nobody else owned up to the message.
    Nobody,
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    pub(super) fn initial_ue_message(&mut self, now: Instant, peek: &Peek, first: First, out: &mut Outbox) {
        if !self.ran.admit_first_message(now, first.association) {
            return self.limited(now, Some(first.association), "first_messages_per_s", out);
        }
        // As after a takeover, when a gNB says again what it does not know to have arrived.
        if self.asked.has(&first) {
            return self.repeated(peek, &first, out);
        }
        if self.settle_name(now, first.association, peek.ran_ue_ngap_id, first.digest, out) {
            return self.repeated(peek, &first, out);
        }
        let amf_id = self.config.amf.amf_id;
        let ours = peek.five_g_s_tmsi.filter(|t| t.set == amf_id.set() && t.pointer == amf_id.pointer());
        let named = match ours {
            Some(t) => self.slots.by_tmsi(t.tmsi),
            None => self.arrived(&first.octets),
        };
        match named {
            Some(ue) => self.ask(now, ue, first, Whom::Named, out),
            None => self.stranger(now, first, false, out),
        }
    }

    /// A first message that came twice: what it began goes on.
    fn repeated(&self, peek: &Peek, first: &First, out: &mut Outbox) {
        let named = peek.ran_ue_ngap_id.and_then(|n| self.slots.by_ran_ue_ngap_id(first.association, n));
        let Some(ue) = named else { return };
        let subject = self.context(ue).map(|p| p.subject()).unwrap_or_default();
        let event = Event::Dropped { subject, why: Dropped::Duplicate };
        out.events.push(UeEvent { ue, on: Some(first.association), event });
    }

    /// Gives a first message a slot of its own.
    fn stranger(&mut self, now: Instant, first: First, asked: bool, out: &mut Outbox) {
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
            Err(limit) => {
                self.limited(now, Some(first.association), limit, out);
                if self.ran.may_complain(now, first.association) {
                    let answer = amf::overloaded(&first.octets, CauseMisc::ControlProcessingOverload);
                    send(first.association, first.stream, &answer, out);
                }
                return;
            }
        };
        self.look_at_ran(now, out);
        self.ask(now, ue, first, Whom::Stranger { asked }, out);
    }

    /// Where half of a limit is reached, a UE that was rejected and could still register again on its connection gives its slot to the next one. So
    /// a flood of requests that are rejected occupies nothing that others need, and is no overload.
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
        let Some(rejected) = self.slots.rejected_stranger(now, delay, of) else { return };
        let Some(names) = self.slots.names(rejected).next() else { return };
        let stream = self.stream(rejected, names.association);
        let release = amf::release_of(names.amf_ue_ngap_id, names.ran_ue_ngap_id);
        send(names.association, stream, &release, out);
        match &self.service {
            // Its machine ends the context.
            Service::Here(_) => {
                let lost = Payload::Command(Command::ConnectionLost(names.association));
                self.input(now, rejected, lost, out);
            }
            Service::Region(_) => self.vacate(now, rejected, out),
        }
    }

    /// Whoever was asked has begun a connection with the message: what it answers keeps to that one's stream. Gives the stream of the
    /// connection before.
    pub(super) fn begun(&mut self, ue: UeId, asked: &Asked) -> u16 {
        let former = self.slots.stream_begun(ue);
        self.slots.begin(ue, asked.first.digest, asked.first.stream);
        former
    }

    /// The connections that these inputs would have begun will not be.
    pub(super) fn let_go(&self, ue: UeId, (first, last): (u64, u64), out: &mut Outbox) {
        for (_, Asked { first, amf_ue_ngap_id, .. }) in self.asked.between(ue, first, last) {
            let release = amf::release_of_first(&first.octets, *amf_ue_ngap_id);
            send(first.association, first.stream, &release, out);
        }
    }

    fn ask(&mut self, now: Instant, ue: UeId, first: First, whom: Whom, out: &mut Outbox) {
        let Some(amf_ue_ngap_id) = self.slots.new_connection(ue) else { return };
        let payload = Payload::InitialUeMessage {
            association: first.association,
            amf_ue_ngap_id,
            octets: first.octets.clone(),
            addressed: !matches!(whom, Whom::Stranger { asked: false }),
        };
        let Some(envelope) = self.stamp(now, ue, payload) else { return };
        self.asked.insert(ue, envelope.clock, Asked { first, whom, amf_ue_ngap_id });
        self.submit(now, envelope, out);
    }

    /// Who was asked has answered.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        ue: UeId,
        asked: Asked,
        answer: Disposition,
        out: &mut Outbox,
    ) {
        let Asked { first, whom, .. } = asked;
        match (whom, answer) {
            (Whom::Named, Disposition::Stranger) => self.stranger(now, first, true, out),
            (Whom::Stranger { .. }, Disposition::Elsewhere(tmsi)) => {
                match self.slots.by_tmsi(tmsi).filter(|&p| p != ue) {
                    Some(named) => self.ask(now, named, first, Whom::NamedWithin { stranger: ue }, out),
                    None => self.ask(now, ue, first, Whom::Nobody, out),
                }
            }
            (Whom::NamedWithin { stranger }, Disposition::Stranger) => {
                self.ask(now, stranger, first, Whom::Nobody, out);
            }
            (Whom::NamedWithin { stranger }, _) => self.vacate(now, stranger, out),
            // Its slot was given up before it was asked: it gets another one.
            (Whom::Stranger { asked }, Disposition::Stranger) if !self.slots.holds(ue) => {
                self.stranger(now, first, asked, out);
            }
            (Whom::Nobody, Disposition::Stranger) if !self.slots.holds(ue) => {
                self.stranger(now, first, true, out);
            }
            _ => {}
        }
    }
}
