//! UEs at rest: a UE without input for a while is stored as a record, and decoded again for its next input.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use whimbrel_ids::{Instant, Supi};

use crate::envelope::UeId;
use crate::flat::at_rest::{AtRestRecord, Profiles};
use crate::state::UeContext;

/// Where a [`RestStore`] stores a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestPlace(pub NonZeroU32);

/// Stores the records of UEs at rest. A shard's slot has the only reference to a record: the store reports when a record moves.
pub trait RestStore {
    /// Stores a record of the UE in this slot; `None` if there is no room: the UE stays decoded.
    fn insert(&mut self, slot: u32, record: &[u8]) -> Option<RestPlace>;

    /// Rewrites a record; `None` if there is no room: the record is as it was.
    fn replace(&mut self, slot: u32, at: RestPlace, record: &[u8]) -> Option<RestPlace>;

    /// A record, read since its UE has an input: the access counts for where the record is placed.
    fn read(&mut self, slot: u32, at: RestPlace) -> Option<&[u8]>;

    /// A record, read for an operator or a replica. The access does not count.
    fn peek(&self, slot: u32, at: RestPlace) -> Option<Cow<'_, [u8]>>;

    /// Frees a record.
    fn remove(&mut self, slot: u32, at: RestPlace);

    /// Moves some records between fast and slow memory, at most about so many, and reports the new place of each.
    fn relocate(&mut self, records_max: usize, moved: &mut dyn FnMut(u32, RestPlace));
}

/// UEs at rest, and what was done for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestCounters {
    /// UEs that are stored as records.
    pub at_rest: u64,
    /// UEs whose contexts are decoded.
    pub decoded: u64,
    /// Octets of the records, as written.
    pub record_octets: u64,
    /// Kinds of UEs that records refer to.
    pub profiles: u64,
    /// Octets of these.
    pub profile_octets: u64,
    /// How often a UE was stored.
    pub stored: u64,
    /// How often a UE was decoded for an input.
    pub woken: u64,
    /// How often the store had no room, and the UE stayed decoded.
    pub no_room: u64,
    /// Records that could not be read: their UEs are unknown from then on.
    pub damaged: u64,
}

/// A UE that is stored as a record.
pub(super) struct AtRest {
    pub(super) place: RestPlace,
    pub(super) generation: u16,
    /// Its IMSI, so that a list of subscribers reads no record.
    imsi: Option<Imsi>,
    /// Its context, decoded for readers. Dropped before the next input of any UE.
    pub(super) view: OnceCell<Box<UeContext>>,
}

/// An IMSI in eight octets: its number above four bits with the number of its digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Imsi(NonZeroU64);

impl Imsi {
    /// Errors: `None` for a network specific identifier.
    fn of(supi: Supi) -> Option<Self> {
        let (len, value) = supi.digits().fold((0, 0), |(len, value), d| (len + 1, 10 * value + u64::from(d)));
        NonZeroU64::new(value << 4 | len).filter(|_| len > 0).map(Self)
    }

    fn supi(self) -> Option<Supi> {
        let (len, value) = ((self.0.get() & 15) as u32, self.0.get() >> 4);
        Supi::from_digits((0..len).rev().map(|i| (value / 10u64.pow(i) % 10) as u8))
    }
}

/// The store of a shard's records, and which UEs are to rest.
pub(super) struct RestingUes {
    pub(super) store: Box<dyn RestStore>,
    profiles: Profiles,
    /// A UE rests when it had no input for so long.
    pub(super) after: Duration,
    /// Slots of decoded UEs, each once, about in the order of their last inputs.
    pub(super) waiting: VecDeque<u32>,
    /// Slots with a view.
    viewed: RefCell<Vec<u32>>,
    counters: RestCounters,
}

impl RestingUes {
    pub(super) fn new(store: Box<dyn RestStore>, after: Duration) -> Self {
        Self {
            store,
            profiles: Profiles::default(),
            after,
            waiting: VecDeque::new(),
            viewed: RefCell::new(Vec::new()),
            counters: RestCounters::default(),
        }
    }

    /// Stores a UE, at the place of its former record if it has one. `None`: there is no room.
    pub(super) fn store(&mut self, ue: &mut UeContext, former: Option<RestPlace>) -> Option<AtRest> {
        let record: AtRestRecord = self.profiles.record(ue);
        let (slot, octets) = (ue.id.slot, record.octets());
        let place = match former {
            None => self.store.insert(slot, octets),
            Some(at) => self.store.replace(slot, at, octets),
        };
        let Some(place) = place else {
            self.profiles.forget(octets);
            self.counters.no_room += 1;
            return None;
        };
        self.counters.stored += 1;
        self.counters.at_rest += 1;
        self.counters.record_octets += octets.len() as u64;
        let imsi = ue.amf.supi.and_then(Imsi::of);
        Some(AtRest { place, generation: ue.id.generation, imsi, view: OnceCell::new() })
    }

    /// The UE of a record, for its next input. The record stays, so that what is known of its use is not lost, and is rewritten when
    /// the UE rests again. `None`: it is damaged.
    pub(super) fn wake(&mut self, slot: u32, at: &AtRest) -> Option<Box<UeContext>> {
        let Self { store, profiles, counters, .. } = self;
        counters.at_rest -= 1;
        counters.woken += 1;
        let record = store.read(slot, at.place);
        let ue = record.and_then(|record| {
            counters.record_octets -= record.len() as u64;
            profiles.forget(record);
            profiles.read(record).ok()
        });
        let ue = ue.filter(|ue| ue.id == UeId { slot, generation: at.generation });
        counters.damaged += u64::from(ue.is_none());
        ue
    }

    /// The UE of a record, for readers.
    pub(super) fn view<'a>(&self, slot: u32, at: &'a AtRest) -> Option<&'a UeContext> {
        if at.view.get().is_none() {
            let ue = self.decode(slot, at)?;
            at.view.get_or_init(|| ue);
            self.viewed.borrow_mut().push(slot);
        }
        at.view.get().map(|ue| &**ue)
    }

    pub(super) fn decode(&self, slot: u32, at: &AtRest) -> Option<Box<UeContext>> {
        self.profiles.read(&self.store.peek(slot, at.place)?).ok()
    }

    /// Slots whose views are to be dropped.
    pub(super) fn take_viewed(&mut self) -> Vec<u32> {
        std::mem::take(self.viewed.get_mut())
    }

    /// Frees the record of a UE that is gone without having been woken.
    pub(super) fn discard(&mut self, slot: u32, at: &AtRest) {
        if let Some(record) = self.store.peek(slot, at.place) {
            self.counters.record_octets -= record.len() as u64;
            self.profiles.forget(&record);
        }
        self.counters.at_rest -= 1;
        self.store.remove(slot, at.place);
    }

    pub(super) fn counters(&self, ues: usize) -> RestCounters {
        let (profiles, octets) = self.profiles.size();
        RestCounters {
            decoded: (ues as u64).saturating_sub(self.counters.at_rest),
            profiles: profiles as u64,
            profile_octets: octets as u64,
            ..self.counters
        }
    }
}

impl AtRest {
    /// Its subscriber, without reading the record; `None` if that has no IMSI.
    pub(super) fn imsi(&self) -> Option<Supi> {
        self.imsi.and_then(Imsi::supi)
    }
}

/// A store in ordinary memory. Each slice of a relocation moves every record that it may: for tests and simulations.
#[derive(Default)]
pub struct RestVec {
    records: Vec<Option<(u32, Box<[u8]>)>>,
    /// Places that are free, oldest first: a place is reused late, so that a stale reference shows.
    free: VecDeque<u32>,
    /// Where the next relocation begins.
    next: usize,
    /// How many records it stores at most, if there is a bound.
    records_max: Option<usize>,
}

impl RestVec {
    /// A store with room for so many records.
    pub fn with_room(records_max: usize) -> Self {
        Self { records_max: Some(records_max), ..Self::default() }
    }

    fn used(&self) -> usize {
        self.records.len() - self.free.len()
    }

    fn get(&self, slot: u32, at: RestPlace) -> Option<&[u8]> {
        let (owner, record) = self.records.get(index(at))?.as_ref()?;
        (*owner == slot).then_some(record)
    }

    fn put(&mut self, slot: u32, record: Box<[u8]>) -> RestPlace {
        let at = self.free.pop_front().unwrap_or_else(|| {
            self.records.push(None);
            self.records.len() as u32 - 1
        });
        self.records[at as usize] = Some((slot, record));
        place(at)
    }

    fn take(&mut self, slot: u32, at: RestPlace) -> Option<Box<[u8]>> {
        let (_, record) = self.records.get_mut(index(at))?.take_if(|(owner, _)| *owner == slot)?;
        self.free.push_back(index(at) as u32);
        Some(record)
    }
}

fn place(index: u32) -> RestPlace {
    RestPlace(NonZeroU32::MIN.saturating_add(index))
}

fn index(at: RestPlace) -> usize {
    at.0.get() as usize - 1
}

impl RestStore for RestVec {
    fn insert(&mut self, slot: u32, record: &[u8]) -> Option<RestPlace> {
        self.records_max.is_none_or(|max| self.used() < max).then(|| self.put(slot, record.into()))
    }

    fn replace(&mut self, slot: u32, at: RestPlace, record: &[u8]) -> Option<RestPlace> {
        let former = self.records.get_mut(index(at))?.as_mut().filter(|(owner, _)| *owner == slot)?;
        former.1 = record.into();
        Some(at)
    }

    fn read(&mut self, slot: u32, at: RestPlace) -> Option<&[u8]> {
        self.get(slot, at)
    }

    fn peek(&self, slot: u32, at: RestPlace) -> Option<Cow<'_, [u8]>> {
        self.get(slot, at).map(Cow::from)
    }

    fn remove(&mut self, slot: u32, at: RestPlace) {
        self.take(slot, at);
    }

    fn relocate(&mut self, records_max: usize, moved: &mut dyn FnMut(u32, RestPlace)) {
        for _ in 0..records_max.min(self.records.len()) {
            self.next = (self.next + 1) % self.records.len();
            let Some((slot, record)) = self.records[self.next].take() else { continue };
            moved(slot, self.put(slot, record));
            self.free.push_back(self.next as u32);
        }
    }
}

/// When a decoded UE is to rest.
pub(super) fn is_due(last_input: Instant, after: Duration, now: Instant) -> bool {
    last_input + after <= now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_imsi_is_restored_from_eight_octets() {
        for digits in ["001010", "999700000000001", "999999999999999", "000000"] {
            let supi = Supi::from_digits(digits.bytes().map(|b| b - b'0')).unwrap();
            assert_eq!(Imsi::of(supi).and_then(Imsi::supi), Some(supi), "{digits}");
        }
        assert_eq!(size_of::<Option<Imsi>>(), 8);
        assert_eq!(size_of::<AtRest>(), 24);
    }
}
