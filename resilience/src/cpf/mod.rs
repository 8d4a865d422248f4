//! The CPF: runs the procedures of its UEs.

#[cfg(any(debug_assertions, feature = "faults"))]
mod fault_injection;
mod replicated;
mod trial;
mod watchdog;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::config::Config;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::udm::UdmRequest;
use whimbrel_control::{
    AssociationId, Batch, Checkpoint, Disposition, Effect, Envelope, Event, Output, Payload, RestCounters,
    RestStore, Shard, UeContext, UeId, UeSummary, amf, smf,
};
use whimbrel_ids::{AmfUeNgapId, Instant, RanUeNgapId, Supi};

use crate::link::UeQuery;

pub use replicated::{CpfOutbox, ReplicatedCpf};
pub use trial::{ReplaySandbox, ToReplaySandbox, Trial, TrialOutcome};
pub use watchdog::{InputProgress, Watchdog};

/// The UEs of one CPF, on one thread.
pub struct Cpf {
    shard: Shard,
}

impl Cpf {
    /// One without UEs.
    pub fn new(config: Arc<Config>) -> Self {
        Self { shard: Shard::new(config) }
    }

    /// Applies a new version of the configuration to later inputs.
    pub fn configure(&mut self, config: Arc<Config>) {
        self.shard.configure(config);
    }

    /// Its UEs, in slot order.
    pub fn contexts(&self) -> impl Iterator<Item = &UeContext> {
        self.shard.iter()
    }

    /// The same, by their slots: no record of a UE at rest is read.
    pub(crate) fn ue_ids(&self) -> impl Iterator<Item = UeId> {
        self.shard.ids()
    }

    /// The context of a UE.
    pub fn context(&self, id: UeId) -> Option<&UeContext> {
        self.shard.context(id)
    }

    /// Answers an operator's query. A UE that registers again has two contexts for a while: the registered one comes first, and lists show
    /// it alone.
    pub fn show(&self, which: UeQuery) -> Vec<UeSummary> {
        if let UeQuery::Page(_, 0) = which {
            return Vec::new(); // a page without entries only checks that the CPF answers
        }
        let (after, limit) = match which {
            UeQuery::Page(after, limit) => (after, limit as usize),
            UeQuery::Subscriber(supi) => {
                let of_it = self.shard.subscribers().filter(|(s, ..)| *s == supi);
                let mut ues: Vec<(bool, UeId)> = of_it.map(|(_, registered, id)| (!registered, id)).collect();
                ues.sort();
                return self.summaries(ues.into_iter().map(|(_, id)| id));
            }
        };
        // The first subscribers of the page: UEs at rest are found without their records, and a page does not grow with their number.
        let mut page: BTreeMap<Supi, (bool, UeId)> = BTreeMap::new();
        for (supi, registered, id) in self.shard.subscribers().filter(|(s, ..)| after.is_none_or(|a| *s > a))
        {
            if page.len() == limit && page.last_key_value().is_some_and(|(last, _)| *last < supi) {
                continue;
            }
            let ue = (!registered, id);
            page.entry(supi).and_modify(|first| *first = ue.min(*first)).or_insert(ue);
            if page.len() > limit {
                page.pop_last();
            }
        }
        self.summaries(page.into_values().map(|(_, id)| id))
    }

    fn summaries(&self, ues: impl Iterator<Item = UeId>) -> Vec<UeSummary> {
        ues.filter_map(|id| self.shard.context(id)).map(UeSummary::of).collect()
    }

    /// Sets where UEs at rest are stored, and after how much time without input they rest ([`Shard::set_rest_store`]).
    pub fn set_rest_store(&mut self, store: Box<dyn RestStore>, after: Duration) {
        self.shard.set_rest_store(store, after);
    }

    /// Stores UEs that had no input for a while, looking at `ues_max`, and moves about `records_max` records between fast and slow
    /// memory. For the time between two inputs: no output depends on it.
    pub fn rest(&mut self, now: Instant, ues_max: usize, records_max: usize) {
        self.shard.rest_idle(now, ues_max);
        self.shard.relocate(records_max);
    }

    /// What is at rest; `None` if UEs do not rest.
    pub fn rest_counters(&self) -> Option<RestCounters> {
        self.shard.rest_counters()
    }

    /// Whether a UE is stored as a record.
    pub(crate) fn is_at_rest(&self, ue: UeId) -> bool {
        self.shard.is_at_rest(ue)
    }

    /// A UE's state, if no procedure of it runs.
    pub(crate) fn checkpoint(&self, ue: UeId) -> Option<Checkpoint> {
        match self.shard.is_at_rest(ue) {
            true => Checkpoint::of(&*self.shard.checkpoint(ue)?),
            false => Checkpoint::of(self.shard.context(ue)?),
        }
    }

    /// A UE's state for a restart of the core, if no procedure of it runs but paging.
    pub(crate) fn state_for_restart(&self, ue: UeId) -> Option<Checkpoint> {
        match self.shard.is_at_rest(ue) {
            true => Checkpoint::of(&*self.shard.checkpoint(ue)?),
            false => Checkpoint::for_restart(self.shard.context(ue)?),
        }
    }

    /// Restores a UE's context.
    pub(crate) fn restore(&mut self, state: Box<UeContext>) {
        self.shard.restore(state);
    }

    /// Restores a UE's context that has no input soon: it rests at once.
    pub(crate) fn restore_at_rest(&mut self, state: Box<UeContext>) {
        let ue = state.id;
        self.shard.restore(state);
        self.shard.rest_now(ue);
    }

    /// Drops a UE's context.
    pub(crate) fn forget(&mut self, ue: UeId) {
        self.shard.forget(ue);
    }

    /// Whether nothing is left over from an input.
    pub fn is_clean(&self) -> bool {
        self.shard.is_clean()
    }

    /// Runs one input of one UE to completion.
    ///
    /// If the UE's procedures panic on it, the UE context is discarded, its resources at peers are released, and the other UEs continue (TS
    /// 33.117 §4.4.4).
    pub fn run(&mut self, envelope: &Envelope) -> Batch {
        self.shard.wake(envelope.ue);
        let before = self.shard.context(envelope.ue).map(UeContext::n2_names).unwrap_or_default();
        // The shard can be used after a panic: the UE's context is discarded.
        let shard = AssertUnwindSafe(&mut self.shard);
        let ran = catch_unwind(|| {
            let AssertUnwindSafe(shard) = { shard };
            #[cfg(any(debug_assertions, feature = "faults"))]
            fault_injection::inject(shard.context(envelope.ue), envelope);
            shard.handle(envelope)
        });
        ran.unwrap_or_else(|_| {
            let remains = self.shard.discard_after_panic(envelope.ue);
            let after = remains.as_ref().map(|p| p.n2_names()).unwrap_or_default();
            let held = before.into_iter().chain(after).flatten();
            let held = held.map(|n| ((n.association, n.amf_ue_ngap_id), n.ran_ue_ngap_id));
            cleanup_batch(envelope, held.collect(), remains.as_deref())
        })
    }
}

/// The batch that cleans up after a panic: it ends the UE's connections, sessions and registration.
fn cleanup_batch(
    envelope: &Envelope,
    mut connections: BTreeMap<(AssociationId, AmfUeNgapId), Option<RanUeNgapId>>,
    remains: Option<&UeContext>,
) -> Batch {
    let subject = remains.map_or_else(Default::default, UeContext::subject);
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
    let at_anchors = sessions.filter_map(|s| Some((s.upf, s.up_seid?)));
    let intermediate = remains.into_iter().flat_map(|p| &p.intermediate_upfs).map(|i| (i.upf, i.up_seid));
    let deletions =
        at_anchors.chain(intermediate).map(|(upf, seid)| Effect::N4 { upf, octets: smf::deletion(seid) });
    let deregistration = subject.supi.map(|supi| Effect::Udm(UdmRequest::Deregister(supi)));
    let effects = releases.chain(deletions).chain(deregistration);
    Batch {
        terms: (envelope.cta_term, envelope.owner_term),
        outputs: effects.map(|effect| Output { effect, downlink_count: None }).collect(),
        fault: true,
        disposition: Disposition::Ended,
        events: vec![Event::Deregistered { subject, why: DeregistrationReason::Fault }],
        ..Batch::default()
    }
}
