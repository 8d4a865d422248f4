//! The shard: runs the machines of its UEs, one input at a time, to completion.
//!
//! A shard belongs to one thread. It owns its UEs' contexts and the futures of their procedures, and nothing else: an
//! [`Envelope`] comes in, a [`Batch`] goes out. While an input runs, its UE is in a thread-local ([`active`]) that the
//! copyable [`Ue`] handles of its procedures use; between inputs it is in its slot. No waker is needed: what a
//! procedure awaits is a logged input, and the shard knows which.

mod shared;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::config::Config;
use crate::dispatch;
use crate::envelope::{Batch, Disposition, Envelope, Payload, UeId};
use crate::procedure::active::{self, Spawned, Task};
use crate::procedure::{Lane, Ue};
use crate::state::UeContext;

use shared::Shared;

/// Bound on polls for one input, which detects lanes that wake each other forever. An input that starts procedures on
/// all lanes and wakes each a few times stays far below.
const POLLS_MAX: usize = 256;

/// A UE between inputs, and its running procedures.
struct Slot {
    ue: Box<UeContext>,
    tasks: Vec<(Lane, Task)>,
    /// Procedures that wait for the end of the earlier one on their lane; at most one per lane.
    queued: Vec<Spawned>,
}

impl Slot {
    fn at_rest(ue: Box<UeContext>) -> Self {
        Self { ue, tasks: Vec::new(), queued: Vec::new() }
    }
}

/// The UEs of one thread.
pub struct Shard {
    config: Arc<Config>,
    shared: Shared,
    slots: Vec<Option<Slot>>,
    ues: usize,
}

impl Shard {
    /// A shard without UEs.
    pub fn new(config: Arc<Config>) -> Self {
        Self { config, shared: Shared::new(), slots: Vec::new(), ues: 0 }
    }

    /// Sets the configuration for later inputs.
    pub fn configure(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// How many UEs have a context.
    pub fn ues(&self) -> usize {
        self.ues
    }

    /// Runs one input of one UE to completion.
    ///
    /// A UE whose slot is empty, or has an older generation, starts with an empty context. An input for an older
    /// generation is dropped (`no_effect`).
    ///
    /// # Panics
    /// If the slot of `envelope` exceeds [`UeId::SLOTS`]: the CTA ensures that it does not.
    pub fn handle(&mut self, envelope: &Envelope) -> Batch {
        let Some(mut slot) = self.take(envelope.ue) else {
            return Batch { no_effect: true, ..Batch::default() };
        };
        let terms = (envelope.cta_term, envelope.owner_term);
        if terms.0 < slot.ue.terms.0 || terms.1 < slot.ue.terms.1 {
            // A CTA, or an assignment, that has been replaced (DESIGN: "terms and fencing").
            self.slots[envelope.ue.slot as usize] = Some(slot);
            return Batch { no_effect: true, ..Batch::default() };
        }
        assert!(envelope.clock > slot.ue.clock, "the CTA's clock runs forwards");
        (slot.ue.clock, slot.ue.terms) = (envelope.clock, terms);

        active::enter(slot.ue, slot.queued, self.config.clone(), envelope, dispatch::NETWORK_FUNCTIONS);
        dispatch::admit(Ue::new(Lane::Mobility), &envelope.payload);
        run(&mut slot.tasks);
        if active::with(|a| a.batch.disposition == Disposition::Keep) {
            dispatch::housekeeping(Ue::new(Lane::Mobility));
            run(&mut slot.tasks);
        }
        let (mut ue, queued, batch) = active::leave();
        self.shared.share_radio_capability(&mut ue);
        if let Payload::Udm { .. } = envelope.payload {
            self.shared.share_subscription(&mut ue);
        }

        if matches!(batch.disposition, Disposition::Ended | Disposition::Elsewhere(_)) {
            self.ues -= 1;
        } else {
            self.slots[envelope.ue.slot as usize] = Some(Slot { ue, tasks: slot.tasks, queued });
        }
        batch
    }

    /// Removes the UE on whose input [`Shard::handle`] panicked and returns what is left of its context, to release its
    /// resources at peers. The shard and its other UEs are as before that input.
    pub fn discard_after_panic(&mut self, id: UeId) -> Option<Box<UeContext>> {
        if let Some(ue) = active::abandon() {
            self.ues -= 1;
            return Some(ue);
        }
        // The panic was before the UE was taken out of its slot, or after it was put back.
        let slot = self.slots.get_mut(id.slot as usize)?.take_if(|s| s.ue.id == id)?;
        self.ues -= 1;
        Some(slot.ue)
    }

    /// Whether no UE is left in the thread-local.
    pub fn is_clean(&self) -> bool {
        !active::is_occupied()
    }

    /// A UE's context.
    pub fn context(&self, id: UeId) -> Option<&UeContext> {
        let slot = self.slots.get(id.slot as usize)?.as_ref()?;
        (slot.ue.id == id).then_some(&*slot.ue)
    }

    /// All UEs, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = &UeContext> {
        self.slots.iter().flatten().map(|s| &*s.ue)
    }

    /// A copy of an idle UE's context, from which a replay can start. `None` while a procedure runs.
    pub fn checkpoint(&self, id: UeId) -> Option<Box<UeContext>> {
        let slot = self.slots.get(id.slot as usize)?.as_ref()?;
        (slot.ue.id == id && slot.tasks.is_empty()).then(|| slot.ue.clone())
    }

    /// Replaces the content of the slot by a checkpoint. Values that are equal to other UEs' are shared again.
    pub fn restore(&mut self, mut ue: Box<UeContext>) {
        self.shared.share_radio_capability(&mut ue);
        self.shared.share_subscription(&mut ue);
        let index = ue.id.slot as usize;
        self.reserve(index);
        if self.slots[index].is_none() {
            self.ues += 1;
        }
        self.slots[index] = Some(Slot::at_rest(ue));
    }

    /// Removes a UE's context, even while procedures run.
    pub fn forget(&mut self, id: UeId) {
        let Some(slot) = self.slots.get_mut(id.slot as usize) else { return };
        if slot.as_ref().is_some_and(|s| s.ue.id == id) {
            *slot = None;
            self.ues -= 1;
        }
    }

    fn reserve(&mut self, index: usize) {
        assert!(index < UeId::SLOTS as usize, "a slot is 24 bits");
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
    }

    fn take(&mut self, id: UeId) -> Option<Slot> {
        self.reserve(id.slot as usize);
        match self.slots[id.slot as usize].take() {
            Some(slot) if slot.ue.id == id => Some(slot),
            Some(newer) if newer.ue.id.generation.wrapping_sub(id.generation) < 1 << 15 => {
                self.slots[id.slot as usize] = Some(newer);
                None
            }
            older => {
                if older.is_none() {
                    self.ues += 1;
                }
                Some(Slot::at_rest(Box::new(UeContext::new(id))))
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
                let Spawned { lane, procedure, task } = a.queued.remove(at);
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
