//! The shard: runs the machines of its UEs, one input at a time, to completion.
//!
//! A shard belongs to one thread. It owns its UEs' contexts and the futures of their procedures, and nothing else: an
//! [`Envelope`] comes in, a [`Batch`] goes out. While an input runs, its UE is in a thread-local ([`active`]) that the
//! copyable [`Ue`] handles of its procedures use; between inputs it is in its slot. No waker is needed: what a
//! procedure awaits is a logged input, and the shard knows which.
//!
//! A UE that has no input for a while rests: its slot has the place of a record in a [`RestStore`] ([`Shard::set_rest_store`]). Outputs
//! do not depend on it.

mod rest;
mod shared;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use whimbrel_ids::{Instant, Supi};

use crate::compact::SlotTable;
use crate::config::Config;
use crate::dispatch;
use crate::envelope::{Batch, Disposition, Envelope, Payload, UeId};
use crate::procedure::active::{self, SpawnedProcedure, Task};
use crate::procedure::{Lane, Ue};
use crate::state::UeContext;

use rest::{AtRest, RestingUes, is_due};
pub use rest::{RestCounters, RestPlace, RestStore, RestVec};
use shared::SharedValues;

/// Bound on polls for one input, which detects lanes that wake each other forever. An input that starts procedures on
/// all lanes and wakes each a few times stays far below.
const POLLS_MAX: usize = 256;

/// Records that move after an input, where UEs rest after each.
const RELOCATED_MAX: usize = 16;

/// What is in a slot between two inputs of its UE.
#[derive(Default)]
enum UeSlot {
    /// The slot has no UE.
    #[default]
    Free,
    /// A UE whose context is decoded.
    Decoded(Box<DecodedUe>),
    /// A UE that is stored as a record.
    AtRest(AtRest),
    /// An input of the UE runs; the place of its former record.
    Running(Option<RestPlace>),
}

/// A UE between inputs, and its running procedures.
struct DecodedUe {
    ue: Box<UeContext>,
    tasks: Vec<(Lane, Task)>,
    /// Procedures that wait for the end of the earlier one on their lane; at most one per lane.
    queued: Vec<SpawnedProcedure>,
    /// Its former record, which is rewritten when it rests again.
    record: Option<RestPlace>,
    last_input: Instant,
    /// Its slot is in the list of those that may rest.
    listed: bool,
}

impl DecodedUe {
    fn new(ue: Box<UeContext>) -> Self {
        let (tasks, queued) = (Vec::new(), Vec::new());
        Self { ue, tasks, queued, record: None, last_input: Instant::ZERO, listed: false }
    }

    /// Whether it can be stored as a record. A UE that is not registered is gone soon.
    fn can_rest(&self) -> bool {
        self.tasks.is_empty()
            && self.queued.is_empty()
            && self.ue.amf.registered
            && self.ue.is_complete_at_rest()
    }
}

impl UeSlot {
    fn generation(&self) -> Option<u16> {
        match self {
            Self::Decoded(decoded) => Some(decoded.ue.id.generation),
            Self::AtRest(at) => Some(at.generation),
            Self::Free | Self::Running(_) => None,
        }
    }
}

/// The UEs of one thread.
pub struct Shard {
    config: Arc<Config>,
    shared: SharedValues,
    slots: SlotTable<UeSlot>,
    ues: usize,
    resting: Option<Box<RestingUes>>,
}

impl Shard {
    /// A shard without UEs.
    pub fn new(config: Arc<Config>) -> Self {
        Self { config, shared: SharedValues::new(), slots: SlotTable::default(), ues: 0, resting: None }
    }

    /// Sets the configuration for later inputs.
    pub fn configure(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// Sets the store for UEs at rest, before any UE rests. UEs rest after `after` without input, in [`Shard::rest_idle`]; if that is
    /// zero, they rest after each input, and records move after each input as well.
    ///
    /// # Panics
    /// If there is a store already.
    pub fn set_rest_store(&mut self, store: Box<dyn RestStore>, after: Duration) {
        assert!(self.resting.is_none(), "the store of a shard is set once");
        let mut resting = RestingUes::new(store, after);
        for (index, slot) in (0..).zip(self.slots.iter_mut()) {
            if let UeSlot::Decoded(decoded) = slot {
                decoded.listed = true;
                resting.waiting.push_back(index);
            }
        }
        self.resting = Some(resting.into());
    }

    /// How many UEs have a context.
    pub fn ues(&self) -> usize {
        self.ues
    }

    /// What is at rest; `None` without a store.
    pub fn rest_counters(&self) -> Option<RestCounters> {
        self.resting.as_ref().map(|resting| resting.counters(self.ues))
    }

    /// Runs one input of one UE to completion.
    ///
    /// A UE whose slot is empty, or has an older generation, starts with an empty context. An input for an older
    /// generation is dropped (`no_effect`).
    ///
    /// # Panics
    /// If the slot of `envelope` exceeds [`UeId::SLOTS`]: the CTA ensures that it does not.
    pub fn handle(&mut self, envelope: &Envelope) -> Batch {
        let index = envelope.ue.slot as usize;
        let Some(mut slot) = self.take(envelope.ue) else {
            return Batch { no_effect: true, ..Batch::default() };
        };
        let terms = (envelope.cta_term, envelope.owner_term);
        if terms.0 < slot.ue.terms.0 || terms.1 < slot.ue.terms.1 {
            // A CTA, or an assignment, that has been replaced (DESIGN: "terms and fencing").
            self.put(index, slot);
            return Batch { no_effect: true, ..Batch::default() };
        }
        assert!(envelope.clock > slot.ue.clock, "the CTA's clock runs forwards");
        (slot.ue.clock, slot.ue.terms) = (envelope.clock, terms);

        let DecodedUe { ue, mut tasks, queued, record, listed, .. } = *slot;
        let functions = dispatch::network_functions(&self.config, &ue, &envelope.payload);
        active::enter(ue, queued, self.config.clone(), envelope, functions);
        dispatch::admit(Ue::new(Lane::Mobility), &envelope.payload);
        run(&mut tasks);
        if active::with(|a| a.batch.disposition == Disposition::Keep) {
            dispatch::housekeeping(Ue::new(Lane::Mobility));
            run(&mut tasks);
        }
        let (mut ue, queued, batch) = active::leave();
        self.shared.share_radio_capability(&mut ue);
        if let Payload::Udm { .. } = envelope.payload {
            self.shared.share_subscription(&mut ue);
        }

        if matches!(batch.disposition, Disposition::Ended | Disposition::Elsewhere(_)) {
            self.ues -= 1;
            self.empty(index);
        } else {
            let decoded = DecodedUe { ue, tasks, queued, record, last_input: envelope.time, listed };
            self.put(index, decoded.into());
        }
        batch
    }

    /// Removes the UE on whose input [`Shard::handle`] panicked and returns what is left of its context, to release its
    /// resources at peers. The shard and its other UEs are as before that input.
    pub fn discard_after_panic(&mut self, id: UeId) -> Option<Box<UeContext>> {
        let index = id.slot as usize;
        if let Some(ue) = active::abandon() {
            self.ues -= 1;
            self.empty(index);
            return Some(ue);
        }
        // The panic was before the procedures ran, or after they did.
        self.wake(id);
        let slot = self.slots.get_mut(index)?;
        let (ue, record) = match std::mem::take(slot) {
            UeSlot::Decoded(decoded) if decoded.ue.id == id => (Some(decoded.ue), decoded.record),
            UeSlot::Running(record) => (None, record),
            other => {
                *slot = other;
                return None;
            }
        };
        *slot = UeSlot::Running(record);
        self.ues -= 1;
        self.empty(index);
        ue
    }

    /// Whether no UE is left in the thread-local.
    pub fn is_clean(&self) -> bool {
        !active::is_occupied()
    }

    /// A UE's context. That of a UE at rest is decoded, and dropped before the next input.
    pub fn context(&self, id: UeId) -> Option<&UeContext> {
        let slot = self.slots.get(id.slot as usize)?;
        if slot.generation() != Some(id.generation) {
            return None;
        }
        self.read(id.slot, slot)
    }

    /// All UEs, in slot order. This reads every record: for tests, and where UEs do not rest.
    pub fn iter(&self) -> impl Iterator<Item = &UeContext> {
        (0..).zip(self.slots.iter()).filter_map(|(index, slot)| self.read(index, slot))
    }

    fn read<'a>(&self, index: u32, slot: &'a UeSlot) -> Option<&'a UeContext> {
        match slot {
            UeSlot::Decoded(decoded) => Some(&decoded.ue),
            UeSlot::AtRest(at) => self.resting.as_ref()?.view(index, at),
            UeSlot::Free | UeSlot::Running(_) => None,
        }
    }

    /// All UEs by their slots, in slot order. No record is read.
    pub fn ids(&self) -> impl Iterator<Item = UeId> {
        let used = (0..).zip(self.slots.iter());
        used.filter_map(|(slot, content)| Some(UeId { slot, generation: content.generation()? }))
    }

    /// Whether a UE is stored as a record.
    pub fn is_at_rest(&self, id: UeId) -> bool {
        let slot = self.slots.get(id.slot as usize);
        matches!(slot, Some(UeSlot::AtRest(at)) if at.generation == id.generation)
    }

    /// The subscriber of each UE that has one, and whether it is registered, in slot order. No record is read, except of a UE
    /// without an IMSI.
    pub fn subscribers(&self) -> impl Iterator<Item = (Supi, bool, UeId)> {
        (0..).zip(self.slots.iter()).filter_map(|(index, slot)| {
            if let UeSlot::AtRest(at) = slot
                && let Some(supi) = at.imsi()
            {
                return Some((supi, true, UeId { slot: index, generation: at.generation }));
            }
            self.read(index, slot).and_then(|ue| Some((ue.amf.supi?, ue.amf.registered, ue.id)))
        })
    }

    /// A copy of an idle UE's context, from which a replay can start. `None` while a procedure runs.
    pub fn checkpoint(&self, id: UeId) -> Option<Box<UeContext>> {
        match self.slots.get(id.slot as usize)? {
            UeSlot::Decoded(slot) => (slot.ue.id == id && slot.tasks.is_empty()).then(|| slot.ue.clone()),
            UeSlot::AtRest(at) if at.generation == id.generation => {
                self.resting.as_ref()?.decode(id.slot, at)
            }
            _ => None,
        }
    }

    /// Replaces the content of the slot by a checkpoint. Values that are equal to other UEs' are shared again.
    pub fn restore(&mut self, mut ue: Box<UeContext>) {
        self.shared.share_radio_capability(&mut ue);
        self.shared.share_subscription(&mut ue);
        let index = ue.id.slot as usize;
        self.reserve(index);
        if let UeSlot::Free = self.slots[index] {
            self.ues += 1;
        }
        self.empty(index);
        self.put(index, DecodedUe::new(ue).into());
    }

    /// Removes a UE's context, even while procedures run.
    pub fn forget(&mut self, id: UeId) {
        let slot = self.slots.get(id.slot as usize);
        if slot.is_some_and(|s| s.generation() == Some(id.generation)) {
            self.empty(id.slot as usize);
            self.ues -= 1;
        }
    }

    /// Decodes a UE at rest, as its next input does.
    pub fn wake(&mut self, id: UeId) {
        let index = id.slot as usize;
        let Some(slot) = self.slots.get_mut(index) else { return };
        let Some(resting) = &mut self.resting else { return };
        let UeSlot::AtRest(at) = slot else { return };
        if at.generation != id.generation {
            return;
        }
        let (place, woken) = (at.place, resting.wake(id.slot, at));
        match woken {
            Some(ue) => {
                let mut decoded = DecodedUe::new(ue);
                decoded.record = Some(place);
                *slot = UeSlot::Decoded(decoded.into());
            }
            None => {
                *slot = UeSlot::Running(Some(place));
                self.empty(index);
                self.ues -= 1;
            }
        }
    }

    /// Stores UEs that had no input for a while; looks at so many at most.
    pub fn rest_idle(&mut self, now: Instant, ues_max: usize) {
        let waiting = self.resting.as_ref().map_or(0, |resting| resting.waiting.len());
        for _ in 0..waiting.min(ues_max) {
            let Some(resting) = &mut self.resting else { return };
            let Some(index) = resting.waiting.pop_front() else { return };
            let UeSlot::Decoded(decoded) = &mut self.slots[index as usize] else { continue };
            if !is_due(decoded.last_input, resting.after, now) {
                resting.waiting.push_back(index); // it had an input since it was listed
            } else if !self.rest(index as usize)
                && let UeSlot::Decoded(decoded) = &mut self.slots[index as usize]
            {
                decoded.listed = false; // until its next input
            }
        }
    }

    /// Stores a UE now, if it can rest.
    pub fn rest_now(&mut self, id: UeId) {
        let slot = self.slots.get(id.slot as usize);
        if slot.is_some_and(|slot| slot.generation() == Some(id.generation)) {
            self.rest(id.slot as usize);
        }
    }

    /// Moves records between fast and slow memory, about so many; the slots get their new places.
    pub fn relocate(&mut self, records_max: usize) {
        let Some(resting) = &mut self.resting else { return };
        let slots = &mut self.slots;
        resting.store.relocate(records_max, &mut |index, place| match slots.get_mut(index as usize) {
            Some(UeSlot::AtRest(at)) => at.place = place,
            Some(UeSlot::Decoded(decoded)) => decoded.record = Some(place),
            Some(UeSlot::Running(record)) => *record = Some(place),
            Some(UeSlot::Free) | None => {}
        });
    }

    /// Returns whether the UE in a slot rests now.
    fn rest(&mut self, index: usize) -> bool {
        let Some(resting) = &mut self.resting else { return false };
        let UeSlot::Decoded(decoded) = &mut self.slots[index] else { return false };
        if !decoded.can_rest() {
            return false;
        }
        let Some(at) = resting.store(&mut decoded.ue, decoded.record) else { return false };
        #[cfg(debug_assertions)]
        {
            let read = resting.decode(index as u32, &at).expect("a record is read as it was written");
            assert_eq!(
                crate::flat::digest(&read),
                crate::flat::digest(&decoded.ue),
                "a UE at rest is as it was"
            );
        }
        self.slots[index] = UeSlot::AtRest(at);
        true
    }

    fn reserve(&mut self, index: usize) {
        assert!(index < UeId::SLOTS as usize, "a slot is 24 bits");
        while self.slots.len() <= index {
            self.slots.push(UeSlot::default());
        }
    }

    /// Puts a UE back into its slot.
    fn put(&mut self, index: usize, mut decoded: Box<DecodedUe>) {
        let Some(resting) = &mut self.resting else {
            self.slots[index] = UeSlot::Decoded(decoded);
            return;
        };
        let at_once = resting.after.is_zero();
        if !at_once && !decoded.listed {
            decoded.listed = true;
            resting.waiting.push_back(index as u32);
        }
        self.slots[index] = UeSlot::Decoded(decoded);
        if at_once {
            self.rest(index);
            self.relocate(RELOCATED_MAX);
        }
    }

    /// Frees a slot, with the record of its UE.
    fn empty(&mut self, index: usize) {
        let slot = std::mem::take(&mut self.slots[index]);
        let Some(resting) = &mut self.resting else { return };
        match slot {
            UeSlot::AtRest(at) => resting.discard(index as u32, &at),
            UeSlot::Decoded(decoded) => {
                decoded.record.into_iter().for_each(|at| resting.store.remove(index as u32, at));
            }
            UeSlot::Running(record) => {
                record.into_iter().for_each(|at| resting.store.remove(index as u32, at));
            }
            UeSlot::Free => {}
        }
    }

    /// Takes a UE out of its slot, for an input. `None` if a newer UE has the slot.
    fn take(&mut self, id: UeId) -> Option<Box<DecodedUe>> {
        let index = id.slot as usize;
        self.reserve(index);
        self.drop_views();
        self.wake(id);
        match self.slots[index].generation() {
            Some(generation) if generation == id.generation => {}
            Some(newer) if newer.wrapping_sub(id.generation) < 1 << 15 => return None,
            older => {
                if older.is_none() {
                    self.ues += 1;
                }
                self.empty(index);
                self.slots[index] = UeSlot::Running(None);
                return Some(DecodedUe::new(Box::new(UeContext::new(id))).into());
            }
        }
        match std::mem::take(&mut self.slots[index]) {
            UeSlot::Decoded(decoded) => {
                self.slots[index] = UeSlot::Running(decoded.record);
                Some(decoded)
            }
            _ => None, // `wake` has decoded it
        }
    }

    fn drop_views(&mut self) {
        let Some(resting) = &mut self.resting else { return };
        for index in resting.take_viewed() {
            if let Some(UeSlot::AtRest(at)) = self.slots.get_mut(index as usize) {
                at.view.take();
            }
        }
    }
}

/// Polls the ready lanes, in fixed order, until none is ready.
fn run(tasks: &mut Vec<(Lane, Task)>) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        active::with(|a| {
            while let Some(at) = a.queued.iter().position(|s| a.ue.lanes.procedure(s.lane).is_none()) {
                let SpawnedProcedure { lane, procedure, task } = a.queued.remove(at);
                a.ue.lanes.occupy(lane, procedure);
                tasks.push((lane, task));
            }
        });
        let Some(lane) = active::with(|a| a.ue.lanes.ready()) else { return };
        let at = tasks.iter().position(|(l, _)| *l == lane).expect("a ready lane has a task");
        if let Poll::Ready(()) = tasks[at].1.as_mut().poll(&mut context) {
            drop(tasks.swap_remove(at));
            active::with(|a| a.ue.lanes.finished(lane));
        }
    }
    panic!("the lanes of one UE woke each other {POLLS_MAX} times for one input");
}

#[cfg(test)]
mod tests;
