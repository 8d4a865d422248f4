//! The shard: runs the machines of its phones, one input at a time, to completion.
//!
//! A shard is one thread's. It owns its phones' contexts and the futures of the procedures that run on them, and
//! touches nothing else: an [`Envelope`] comes in, a [`Batch`] goes out. While an input runs, its phone lies in a
//! thread-local place ([`active`]) that the copyable [`Ue`] handles of its procedures reach into; between inputs
//! it lies in its slot. No waker is needed: what a procedure awaits is a logged input, and the shard knows which.

mod active;
mod lane;
mod shared;
mod ue;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::collision;
use crate::config::Config;
use crate::envelope::{Batch, Disposition, Envelope, Payload, PhoneId};
use crate::phone::Phone;

pub use lane::Procedure;
pub(crate) use lane::{Interrupt, Lane, Lanes};
use shared::Shared;
pub(crate) use ue::Ue;

/// How often lanes may be polled for one input. A procedure step polls once; an input that starts procedures on
/// all lanes and wakes each a few times stays far below. Beyond it, two lanes wake each other for ever.
const POLLS_MAX: usize = 256;

/// A procedure in flight. It is never serialised: replay from the last checkpoint rebuilds it.
type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A procedure that is to run once its lane is free.
struct Spawned {
    lane: Lane,
    procedure: Procedure,
    task: Task,
}

/// A phone at rest, and its procedures in flight.
struct Slot {
    phone: Box<Phone>,
    tasks: Vec<(Lane, Task)>,
    /// Procedures that wait for the one before them on their lane to wind up; at most one a lane.
    queued: Vec<Spawned>,
}

impl Slot {
    fn at_rest(phone: Box<Phone>) -> Self {
        Self { phone, tasks: Vec::new(), queued: Vec::new() }
    }
}

/// The phones of one thread.
pub struct Shard {
    config: Arc<Config>,
    shared: Shared,
    slots: Vec<Option<Slot>>,
    phones: usize,
}

impl Shard {
    /// A shard without phones.
    pub fn new(config: Arc<Config>) -> Self {
        Self { config, shared: Shared::new(), slots: Vec::new(), phones: 0 }
    }

    /// Puts a new version of the configuration in force for the inputs to come.
    pub fn configure(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// How many phones have a context.
    pub fn phones(&self) -> usize {
        self.phones
    }

    /// Runs one input of one phone to completion.
    ///
    /// A phone whose slot is empty, or holds an older generation, begins with a fresh context. An input for a
    /// generation that has passed is dropped (`no_effect`).
    ///
    /// # Panics
    /// If the slot of `envelope` exceeds [`PhoneId::SLOTS`]: the aggregator promises that it does not.
    pub fn handle(&mut self, envelope: &Envelope) -> Batch {
        let Some(mut slot) = self.take(envelope.phone) else {
            return Batch { no_effect: true, ..Batch::default() };
        };
        let terms = (envelope.cta_term, envelope.owner_term);
        if terms.0 < slot.phone.terms.0 || terms.1 < slot.phone.terms.1 {
            // An aggregator, or an assignment, that has been replaced (DESIGN: "terms and fencing").
            self.slots[envelope.phone.slot as usize] = Some(slot);
            return Batch { no_effect: true, ..Batch::default() };
        }
        assert!(envelope.clock > slot.phone.clock, "the aggregator's clock runs forwards");
        (slot.phone.clock, slot.phone.terms) = (envelope.clock, terms);

        active::enter(slot.phone, slot.queued, self.config.clone(), envelope);
        collision::admit(Ue::new(Lane::Mobility), &envelope.payload);
        run(&mut slot.tasks);
        if active::with(|a| a.batch.disposition == Disposition::Keep) {
            collision::settle(Ue::new(Lane::Mobility));
            run(&mut slot.tasks);
        }
        let (mut phone, queued, batch) = active::leave();
        self.shared.share_radio_capability(&mut phone);
        if let Payload::Udm { .. } = envelope.payload {
            self.shared.share_subscription(&mut phone);
        }

        if matches!(batch.disposition, Disposition::Ended | Disposition::Elsewhere(_)) {
            self.phones -= 1;
        } else {
            self.slots[envelope.phone.slot as usize] = Some(Slot { phone, tasks: slot.tasks, queued });
        }
        batch
    }

    /// Buries the phone on whose input [`Shard::handle`] panicked, and gives what is left of it: enough to tell its
    /// peers, nothing to go on with. The shard and its other phones are as before that input.
    pub fn bury(&mut self, id: PhoneId) -> Option<Box<Phone>> {
        if let Some(phone) = active::abandon() {
            self.phones -= 1;
            return Some(phone);
        }
        // It had not come to the phone yet, or had done with it.
        let slot = self.slots.get_mut(id.slot as usize)?.take_if(|s| s.phone.id == id)?;
        self.phones -= 1;
        Some(slot.phone)
    }

    /// Whether nothing is left over from an input on this thread.
    pub fn is_clean(&self) -> bool {
        !active::is_occupied()
    }

    /// A look at a phone's context.
    pub fn phone(&self, id: PhoneId) -> Option<&Phone> {
        let slot = self.slots.get(id.slot as usize)?.as_ref()?;
        (slot.phone.id == id).then_some(&*slot.phone)
    }

    /// All phones, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = &Phone> {
        self.slots.iter().flatten().map(|s| &*s.phone)
    }

    /// A copy of an idle phone's context: all that a replay needs to begin. `None` while a procedure runs.
    pub fn checkpoint(&self, id: PhoneId) -> Option<Box<Phone>> {
        let slot = self.slots.get(id.slot as usize)?.as_ref()?;
        (slot.phone.id == id && slot.tasks.is_empty()).then(|| slot.phone.clone())
    }

    /// Puts a checkpoint in place of whatever the slot holds. What it has in common with other phones is shared again.
    pub fn restore(&mut self, mut phone: Box<Phone>) {
        self.shared.share_radio_capability(&mut phone);
        self.shared.share_subscription(&mut phone);
        let index = phone.id.slot as usize;
        self.reserve(index);
        if self.slots[index].is_none() {
            self.phones += 1;
        }
        self.slots[index] = Some(Slot::at_rest(phone));
    }

    /// A phone's context goes, whatever it is at.
    pub fn forget(&mut self, id: PhoneId) {
        let Some(slot) = self.slots.get_mut(id.slot as usize) else { return };
        if slot.as_ref().is_some_and(|s| s.phone.id == id) {
            *slot = None;
            self.phones -= 1;
        }
    }

    fn reserve(&mut self, index: usize) {
        assert!(index < PhoneId::SLOTS as usize, "a slot is 24 bits");
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
    }

    fn take(&mut self, id: PhoneId) -> Option<Slot> {
        self.reserve(id.slot as usize);
        match self.slots[id.slot as usize].take() {
            Some(slot) if slot.phone.id == id => Some(slot),
            Some(newer) if newer.phone.id.generation.wrapping_sub(id.generation) < 1 << 15 => {
                self.slots[id.slot as usize] = Some(newer);
                None
            }
            older => {
                if older.is_none() {
                    self.phones += 1;
                }
                Some(Slot::at_rest(Box::new(Phone::new(id))))
            }
        }
    }
}

/// Polls the lanes that have something to do, in fixed order, until none has.
fn run(tasks: &mut Vec<(Lane, Task)>) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        active::with(|a| {
            while let Some(at) = a.queued.iter().position(|s| a.phone.lanes.procedure(s.lane).is_none()) {
                let Spawned { lane, procedure, task } = a.queued.remove(at);
                a.phone.lanes.occupy(lane, procedure);
                tasks.push((lane, task));
            }
        });
        let Some(lane) = active::with(|a| a.phone.lanes.ready()) else { return };
        let at = tasks.iter().position(|(l, _)| *l == lane).expect("a ready lane has a task");
        if let Poll::Ready(()) = tasks[at].1.as_mut().poll(&mut context) {
            drop(tasks.swap_remove(at));
            active::with(|a| a.phone.lanes.finished(lane));
        }
    }
    panic!("the lanes of one phone woke each other {POLLS_MAX} times for one input");
}
