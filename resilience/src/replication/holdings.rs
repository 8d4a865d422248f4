//! A control function's side of the phones that it backs.

use std::collections::BTreeMap;

use whimbrel_control::PhoneId;

/// A phone's state at a point where it was idle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checkpoint<S> {
    /// Whose.
    pub phone: PhoneId,
    /// Term of the assignment under which it was cut.
    pub term: u32,
    /// Clock of the last input that it contains.
    pub clock: u64,
    /// The state.
    pub state: S,
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A state of this clock, this one or a newer one, is held: to be told to the aggregator.
    Holds(u64),
    /// Its sender has been replaced, or it is older than what the aggregator said to be outdated.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held<S> {
    term: u32,
    clock: u64,
    /// `None`: known to be outdated, and nothing newer came.
    state: Option<S>,
}

/// The states of phones that others serve.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holdings<S>(BTreeMap<PhoneId, Held<S>>);

impl<S> Default for Holdings<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S> Holdings<S> {
    /// Takes a checkpoint: the newest of the newest assignment stays.
    pub fn take(&mut self, checkpoint: Checkpoint<S>) -> Taken {
        let Checkpoint { phone, term, clock, state } = checkpoint;
        let held = self.0.entry(phone).or_insert(Held { term, clock: 0, state: None });
        if term < held.term || clock < held.clock && held.state.is_none() {
            return Taken::Refused;
        }
        held.term = term;
        if clock > held.clock || held.state.is_none() {
            (held.clock, held.state) = (clock, Some(state));
        }
        Taken::Holds(held.clock)
    }

    /// The aggregator says that whatever is older than this is outdated (Neutrino §4.2.4): it is never served from again.
    pub fn outdated(&mut self, phone: PhoneId, clock: u64) {
        let held = self.0.entry(phone).or_insert(Held { term: 0, clock: 0, state: None });
        if held.clock < clock {
            (held.clock, held.state) = (clock, None);
        }
    }

    /// What is held of a phone, if it is no older than this: for a replica that lacks it.
    pub fn fetch(&self, phone: PhoneId, clock: u64) -> Option<Checkpoint<S>>
    where
        S: Clone,
    {
        let held = self.0.get(&phone).filter(|held| held.clock >= clock)?;
        Some(Checkpoint { phone, term: held.term, clock: held.clock, state: held.state.clone()? })
    }

    /// The phones whose state is outdated, and nothing newer came; and the clock of what is lacked.
    pub fn lacking(&self) -> impl Iterator<Item = (PhoneId, u64)> {
        self.0.iter().filter(|(_, held)| held.state.is_none()).map(|(phone, held)| (*phone, held.clock))
    }

    /// The state that is held of a phone, of whatever clock.
    pub fn state(&self, phone: PhoneId) -> Option<&S> {
        self.0.get(&phone)?.state.as_ref()
    }

    /// The phone is served here from now on, from the state that was held: its clock and itself, if there is one.
    pub fn promote(&mut self, phone: PhoneId) -> Option<(u64, S)> {
        let held = self.0.remove(&phone)?;
        Some((held.clock, held.state?))
    }

    /// The phone is gone, or others back it: what is held of a term before this one goes. A newer state has overtaken the word.
    pub fn forget(&mut self, phone: PhoneId, term: u32) {
        if self.0.get(&phone).is_some_and(|held| held.term < term) {
            self.0.remove(&phone);
        }
    }

    /// The term under which the state that is held of a phone was cut.
    pub fn term(&self, phone: PhoneId) -> Option<u32> {
        self.0.get(&phone).map(|held| held.term)
    }

    /// The clock of the state that is held of a phone.
    pub fn clock(&self, phone: PhoneId) -> Option<u64> {
        self.0.get(&phone).filter(|h| h.state.is_some()).map(|h| h.clock)
    }

    /// Phones of which a state is held.
    pub fn len(&self) -> usize {
        self.0.values().filter(|h| h.state.is_some()).count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHONE: PhoneId = PhoneId { slot: 7, generation: 1 };

    fn at(clock: u64) -> Checkpoint<&'static str> {
        Checkpoint { phone: PHONE, term: 1, clock, state: "state" }
    }

    #[test] // Neutrino §4.2.4
    fn what_is_outdated_is_neither_taken_nor_given_nor_served_from() {
        let mut holdings = Holdings::default();
        assert_eq!(holdings.take(at(4)), Taken::Holds(4));
        holdings.outdated(PHONE, 6);
        assert_eq!((holdings.len(), holdings.fetch(PHONE, 0)), (0, None));
        assert_eq!(holdings.take(at(5)), Taken::Refused, "it comes late");
        assert_eq!(holdings.clone().promote(PHONE), None);
        assert_eq!(holdings.take(at(6)), Taken::Holds(6));
        assert_eq!((holdings.fetch(PHONE, 6), holdings.fetch(PHONE, 7)), (Some(at(6)), None));
        holdings.outdated(PHONE, 6);
        assert_eq!(holdings.promote(PHONE), Some((6, "state")), "that one is not");
    }
}
