//! The control function (CPF): runs the machines of its phones.

mod member;
mod trial;
#[cfg(any(debug_assertions, feature = "faults"))]
mod wanted;
mod watchdog;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use whimbrel_control::config::Config;
use whimbrel_control::event::Deregistered;
use whimbrel_control::udm::Request;
use whimbrel_control::{
    AssociationId, Batch, Checkpoint, Disposition, Effect, Envelope, Event, Glimpse, Output, Payload, Phone,
    PhoneId, Shard, amf, smf,
};
use whimbrel_ids::{AmfUeNgapId, RanUeNgapId, Supi};

use crate::link::Show;

pub use member::{Member, MemberOutbox};
pub use trial::{Taster, ToTaster, Trial, Tried};
pub use watchdog::{AtWork, Watchdog};

/// The phones of one control function, on one thread.
pub struct Cpf {
    shard: Shard,
}

impl Cpf {
    /// One that serves nobody yet.
    pub fn new(config: Arc<Config>) -> Self {
        Self { shard: Shard::new(config) }
    }

    /// Puts a new version of the configuration in force for the inputs to come.
    pub fn configure(&mut self, config: Arc<Config>) {
        self.shard.configure(config);
    }

    /// Its phones, in slot order.
    pub fn phones(&self) -> impl Iterator<Item = &Phone> {
        self.shard.iter()
    }

    /// One phone.
    pub fn phone(&self, id: PhoneId) -> Option<&Phone> {
        self.shard.phone(id)
    }

    /// The phones that an operator wants to see. A phone that registers anew has two contexts for a while: the registered one
    /// comes first, and stands alone in lists.
    pub fn show(&self, which: Show) -> Vec<Glimpse> {
        if let Show::After(_, 0) = which {
            return Vec::new(); // asked to hear whether there is an answer
        }
        let known = self.shard.iter().filter_map(|p| Some((p.amf.supi?, p)));
        let mut phones: Vec<(Supi, &Phone)> = match which {
            Show::Of(supi) => known.filter(|(s, _)| *s == supi).collect(),
            Show::After(after, _) => known.filter(|(s, _)| after.is_none_or(|a| *s > a)).collect(),
        };
        phones.sort_by_key(|(supi, p)| (*supi, !p.amf.registered));
        if let Show::After(_, limit) = which {
            phones.dedup_by_key(|(supi, _)| *supi);
            phones.truncate(limit as usize);
        }
        phones.into_iter().map(|(_, p)| Glimpse::of(p)).collect()
    }

    /// A phone's state, if no procedure of it runs.
    pub(crate) fn checkpoint(&self, phone: PhoneId) -> Option<Checkpoint> {
        Checkpoint::of(self.shard.phone(phone)?)
    }

    /// Serves a phone from this state on.
    pub(crate) fn restore(&mut self, state: Box<Phone>) {
        self.shard.restore(state);
    }

    /// A phone is nobody's here any more.
    pub(crate) fn forget(&mut self, phone: PhoneId) {
        self.shard.forget(phone);
    }

    /// Whether nothing is left over from an input.
    pub fn is_clean(&self) -> bool {
        self.shard.is_clean()
    }

    /// Runs one input of one phone to completion.
    ///
    /// If the phone's machine panics on it, the phone is given up, its peers are told what can be told, and the other phones go
    /// on (DESIGN: "poison"; TS 33.117 §4.4.4).
    pub fn run(&mut self, envelope: &Envelope) -> Batch {
        let before = self.shard.phone(envelope.phone).map(Phone::n2_names).unwrap_or_default();
        // The shard is fit for use after a panic: what it was at is buried.
        let shard = AssertUnwindSafe(&mut self.shard);
        let ran = catch_unwind(|| {
            let AssertUnwindSafe(shard) = { shard };
            #[cfg(any(debug_assertions, feature = "faults"))]
            wanted::commit(shard.phone(envelope.phone), envelope);
            shard.handle(envelope)
        });
        ran.unwrap_or_else(|_| {
            let remains = self.shard.bury(envelope.phone);
            let after = remains.as_ref().map(|p| p.n2_names()).unwrap_or_default();
            let held = before.into_iter().chain(after).flatten();
            let held = held.map(|n| ((n.association, n.amf_ue_ngap_id), n.ran_ue_ngap_id));
            farewell(envelope, held.collect(), remains.as_deref())
        })
    }
}

/// What is to be said of a phone whose machine is no more: its connections and its sessions end, and its registration.
fn farewell(
    envelope: &Envelope,
    mut connections: BTreeMap<(AssociationId, AmfUeNgapId), Option<RanUeNgapId>>,
    remains: Option<&Phone>,
) -> Batch {
    let subject = remains.map_or_else(Default::default, Phone::subject);
    let begun = match &envelope.payload {
        Payload::InitialUeMessage { association, amf_ue_ngap_id, octets, .. } => {
            connections.remove(&(*association, *amf_ue_ngap_id));
            Some((*association, amf::release_of_first(octets, *amf_ue_ngap_id)))
        }
        _ => None,
    };
    let releases =
        connections.into_iter().map(|((association, id), ran)| (association, amf::release_of(id, ran)));
    let releases = releases
        .chain(begun)
        .map(|(association, release)| Effect::N2 { association, octets: release.to_vec() });
    let sessions = remains.into_iter().flat_map(|p| p.sessions.values());
    let deletions =
        sessions.filter_map(|s| Some(Effect::N4 { upf: s.upf, octets: smf::deletion(s.up_seid?) }));
    let deregistration = subject.supi.map(|supi| Effect::Udm(Request::Deregister(supi)));
    let effects = releases.chain(deletions).chain(deregistration);
    Batch {
        terms: (envelope.cta_term, envelope.owner_term),
        outputs: effects.map(|effect| Output { effect, downlink_count: None }).collect(),
        fault: true,
        disposition: Disposition::Ended,
        events: vec![Event::Deregistered { subject, why: Deregistered::Fault }],
        ..Batch::default()
    }
}
