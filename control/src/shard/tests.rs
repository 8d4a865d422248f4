//! UEs at rest in a shard.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{Instant, Supi};

use super::{RestPlace, RestStore, RestVec, Shard, UeSlot};
use crate::envelope::{Command, Payload, UeId};
use crate::flat::Checkpoint;
use crate::state::UeContext;
use crate::ue_harness::{UeHarness, config, psi};

/// A registered UE with one session, in this slot.
fn ue(slot: u32) -> Box<UeContext> {
    let mut ue = Box::new(UeHarness::registered().context().unwrap().clone());
    ue.id.slot = slot;
    let digits = format!("99970{slot:010}");
    ue.amf.supi = Supi::from_digits(digits.bytes().map(|b| b - b'0'));
    ue
}

fn shard(store: impl RestStore + 'static, after: Duration) -> Shard {
    let mut shard = Shard::new(Arc::new(config()));
    shard.set_rest_store(Box::new(store), after);
    shard
}

/// A shard with these UEs, all of which rest.
fn at_rest(slots: std::ops::Range<u32>) -> Shard {
    let mut shard = shard(RestVec::default(), Duration::from_secs(1));
    slots.for_each(|slot| shard.restore(ue(slot)));
    shard.rest_idle(Instant(1 << 50), usize::MAX);
    shard
}

fn id(slot: u32) -> UeId {
    UeId { slot, ..ue(0).id }
}

fn checkpoint(ue: &UeContext) -> Checkpoint {
    Checkpoint::of(ue).unwrap()
}

#[test]
fn a_ue_rests_when_it_had_no_input_for_a_while() {
    let mut shard = shard(RestVec::default(), Duration::from_secs(1));
    let mut harness = UeHarness::registered();
    harness.input(Payload::Tick);
    let context = harness.context().unwrap().clone();
    shard.restore(context.into());
    let mut other = ue(9);
    other.amf.registered = false;
    shard.restore(other);
    shard.rest_idle(Instant(999_999), 10);
    assert_eq!(shard.rest_counters().unwrap().at_rest, 0);
    shard.rest_idle(Instant(1_000_000), 10);
    let counters = shard.rest_counters().unwrap();
    assert_eq!((counters.at_rest, counters.decoded), (1, 1), "a UE that is not registered is gone soon");
    assert!(matches!(shard.slots[4], UeSlot::AtRest(_)) && matches!(shard.slots[9], UeSlot::Decoded(_)));
}

#[test]
fn ues_that_a_shard_has_before_its_store_rest_too() {
    let mut shard = Shard::new(Arc::new(config()));
    shard.restore(ue(3));
    shard.set_rest_store(Box::new(RestVec::default()), Duration::from_secs(1));
    shard.rest_idle(Instant(1 << 50), 10);
    assert!(shard.is_at_rest(id(3)));
}

#[test]
fn a_ue_at_rest_is_as_it_was_for_all_readers() {
    let mut shard = at_rest(0..3);
    assert_eq!(shard.rest_counters().unwrap().at_rest, 3);
    for slot in 0..3 {
        let before = checkpoint(&ue(slot));
        assert_eq!(checkpoint(shard.context(id(slot)).unwrap()), before);
        assert_eq!(checkpoint(&shard.checkpoint(id(slot)).unwrap()), before);
    }
    assert_eq!(shard.iter().count(), 3);
    assert_eq!(shard.ids().collect::<Vec<_>>(), [0, 1, 2].map(id));
    assert!(shard.is_at_rest(id(2)) && !shard.is_at_rest(UeId { generation: 0, ..id(2) }));
    let stale = UeId { generation: 0, ..id(1) };
    assert!(shard.context(stale).is_none() && shard.checkpoint(stale).is_none());
    let listed: Vec<_> =
        shard.subscribers().map(|(supi, registered, id)| (Some(supi), registered, id)).collect();
    assert_eq!(listed, [0, 1, 2].map(|slot| (ue(slot).amf.supi, true, id(slot))));
    shard.wake(id(1));
    assert_eq!(checkpoint(shard.context(id(1)).unwrap()), checkpoint(&ue(1)));
    let counters = shard.rest_counters().unwrap();
    assert_eq!((counters.at_rest, counters.woken, counters.damaged), (2, 1, 0));
}

#[test]
fn a_ue_that_is_forgotten_replaced_or_lost_in_a_panic_leaves_no_record() {
    let mut shard = at_rest(0..4);
    shard.forget(id(0));
    shard.restore(ue(1));
    shard.wake(id(2));
    shard.forget(id(2));
    assert!(shard.discard_after_panic(id(3)).is_some_and(|ue| ue.id == id(3)));
    let counters = shard.rest_counters().unwrap();
    assert_eq!((counters.at_rest, counters.decoded, counters.record_octets), (0, 1, 0));
    assert_eq!(shard.ues(), 1);
    assert_eq!(records(&mut shard), 0);
    shard.rest_idle(Instant(1 << 50), 10);
    assert_eq!(records(&mut shard), 1);
}

/// How many records the store has. All of them move.
fn records(shard: &mut Shard) -> usize {
    let mut places = BTreeMap::new();
    let resting = shard.resting.as_mut().unwrap();
    resting.store.relocate(usize::MAX, &mut |slot, at| {
        places.insert(slot, at);
    });
    for (slot, place) in &places {
        match &mut shard.slots[*slot as usize] {
            UeSlot::AtRest(at) => at.place = *place,
            UeSlot::Decoded(decoded) => decoded.record = Some(*place),
            UeSlot::Free | UeSlot::Running(_) => panic!("a record of slot {slot}, which is free"),
        }
    }
    places.len()
}

#[test]
fn records_that_move_are_found_again() {
    let mut shard = at_rest(0..50);
    shard.wake(id(7));
    for _ in 0..5 {
        shard.relocate(33);
    }
    assert_eq!(records(&mut shard), 50, "a UE that is awake keeps the place of its record");
    for slot in 0..50 {
        assert_eq!(checkpoint(shard.context(id(slot)).unwrap()), checkpoint(&ue(slot)));
    }
    shard.rest_now(id(7));
    assert_eq!((records(&mut shard), shard.rest_counters().unwrap().at_rest), (50, 50));
}

#[test]
fn a_ue_for_which_the_store_has_no_room_stays_decoded() {
    let mut shard = shard(RestVec::with_room(2), Duration::from_secs(1));
    (0..5).for_each(|slot| shard.restore(ue(slot)));
    shard.rest_idle(Instant(1 << 50), 10);
    let counters = shard.rest_counters().unwrap();
    assert_eq!((counters.at_rest, counters.decoded, counters.no_room), (2, 3, 3));
    for slot in 0..5 {
        assert_eq!(checkpoint(shard.context(id(slot)).unwrap()), checkpoint(&ue(slot)));
    }
}

/// A store whose records can be lost.
#[derive(Default)]
struct Failing {
    store: RestVec,
    fails: Rc<Cell<bool>>,
}

impl RestStore for Failing {
    fn insert(&mut self, slot: u32, record: &[u8]) -> Option<RestPlace> {
        self.store.insert(slot, record)
    }

    fn replace(&mut self, slot: u32, at: RestPlace, record: &[u8]) -> Option<RestPlace> {
        self.store.replace(slot, at, record)
    }

    fn read(&mut self, slot: u32, at: RestPlace) -> Option<&[u8]> {
        let record = self.store.read(slot, at)?;
        Some(if self.fails.get() { &record[1..] } else { record })
    }

    fn peek(&self, slot: u32, at: RestPlace) -> Option<Cow<'_, [u8]>> {
        let record = self.store.peek(slot, at)?;
        Some(if self.fails.get() { record[1..].to_vec().into() } else { record })
    }

    fn remove(&mut self, slot: u32, at: RestPlace) {
        self.store.remove(slot, at);
    }

    fn relocate(&mut self, records_max: usize, moved: &mut dyn FnMut(u32, RestPlace)) {
        self.store.relocate(records_max, moved);
    }
}

#[test]
fn a_ue_whose_record_is_damaged_is_unknown_and_no_other_is_affected() {
    let fails = Rc::new(Cell::new(false));
    let store = Failing { fails: fails.clone(), ..Failing::default() };
    let mut shard = shard(store, Duration::from_secs(1));
    (0..2).for_each(|slot| shard.restore(ue(slot)));
    shard.rest_idle(Instant(1 << 50), 10);
    fails.set(true);
    assert!(shard.context(id(0)).is_none());
    shard.wake(id(0));
    fails.set(false);
    assert!(shard.context(id(0)).is_none() && shard.ues() == 1);
    assert_eq!(shard.rest_counters().unwrap().damaged, 1);
    assert_eq!(checkpoint(shard.context(id(1)).unwrap()), checkpoint(&ue(1)));
    shard.restore(ue(0));
    assert_eq!(shard.ues(), 2);
}

#[test]
fn a_ue_with_a_running_procedure_does_not_rest() {
    let mut harness = UeHarness::registered();
    let before = harness.shard.rest_counters().unwrap();
    assert_eq!(before.at_rest, 1);
    harness.input(Payload::Command(Command::Deregister));
    assert_eq!(harness.shard.rest_counters().unwrap().at_rest, 0);
    assert!(harness.context().unwrap().sessions.contains_key(&psi(1)));
}
