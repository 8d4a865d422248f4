//! A CPF's side of the UEs of which it is a backup.

use std::collections::BTreeMap;

use whimbrel_control::UeId;

/// A UE's state at a point where no procedure ran.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checkpoint<S> {
    /// The UE of the checkpoint.
    pub ue: UeId,
    /// Term of the assignment under which it was made.
    pub term: u32,
    /// Clock of the last input that it contains.
    pub clock: u64,
    /// The state as of the checkpoint.
    pub state: S,
}

/// What a backup does with a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointAck {
    /// A checkpoint of this clock, this one or a newer one, is held: acknowledge it to the CTA.
    Holds(u64),
    /// Its sender is not the primary any more, or it is older than the CTA accepts.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeldCheckpoint<S> {
    term: u32,
    clock: u64,
    /// `None`: known to be outdated, and nothing newer came.
    state: Option<S>,
}

/// Checkpoints of UEs that have another primary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldCheckpoints<S>(BTreeMap<UeId, HeldCheckpoint<S>>);

impl<S> Default for HeldCheckpoints<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S> HeldCheckpoints<S> {
    /// Takes a checkpoint: the newest of the newest assignment stays.
    pub fn take(&mut self, checkpoint: Checkpoint<S>) -> CheckpointAck {
        let Checkpoint { ue, term, clock, state } = checkpoint;
        let held = self.0.entry(ue).or_insert(HeldCheckpoint { term, clock: 0, state: None });
        if term < held.term || clock < held.clock && held.state.is_none() {
            return CheckpointAck::Refused;
        }
        held.term = term;
        if clock > held.clock || held.state.is_none() {
            (held.clock, held.state) = (clock, Some(state));
        }
        CheckpointAck::Holds(held.clock)
    }

    /// Marks checkpoints older than this clock as outdated (Neutrino §4.2.4): they are never used again.
    pub fn outdated(&mut self, ue: UeId, clock: u64) {
        let held = self.0.entry(ue).or_insert(HeldCheckpoint { term: 0, clock: 0, state: None });
        if held.clock < clock {
            (held.clock, held.state) = (clock, None);
        }
    }

    /// The checkpoint of a UE, if it is no older than this clock: for a backup that lacks it.
    pub fn fetch(&self, ue: UeId, clock: u64) -> Option<Checkpoint<S>>
    where
        S: Clone,
    {
        let held = self.0.get(&ue).filter(|held| held.clock >= clock)?;
        Some(Checkpoint { ue, term: held.term, clock: held.clock, state: held.state.clone()? })
    }

    /// The UEs whose checkpoint is outdated without a newer one, and the clock that is needed.
    pub fn lacking(&self) -> impl Iterator<Item = (UeId, u64)> {
        self.0.iter().filter(|(_, held)| held.state.is_none()).map(|(ue, held)| (*ue, held.clock))
    }

    /// The state that is held of a UE, of any clock.
    pub fn state(&self, ue: UeId) -> Option<&S> {
        self.0.get(&ue)?.state.as_ref()
    }

    /// This CPF becomes the UE's primary. Returns clock and state of the checkpoint, if there is one.
    pub fn promote(&mut self, ue: UeId) -> Option<(u64, S)> {
        let held = self.0.remove(&ue)?;
        Some((held.clock, held.state?))
    }

    /// The UE is gone, or this CPF is no backup of it any more: drops what is held of an earlier term. A checkpoint of a newer term may
    /// have arrived before this order and stays.
    pub fn forget(&mut self, ue: UeId, term: u32) {
        if self.0.get(&ue).is_some_and(|held| held.term < term) {
            self.0.remove(&ue);
        }
    }

    /// The term of the checkpoint that is held of a UE.
    pub fn term(&self, ue: UeId) -> Option<u32> {
        self.0.get(&ue).map(|held| held.term)
    }

    /// The clock of the state that is held of a UE.
    pub fn clock(&self, ue: UeId) -> Option<u64> {
        self.0.get(&ue).filter(|h| h.state.is_some()).map(|h| h.clock)
    }

    /// UEs with a checkpoint here.
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

    const UE: UeId = UeId { slot: 7, generation: 1 };

    fn at(clock: u64) -> Checkpoint<&'static str> {
        Checkpoint { ue: UE, term: 1, clock, state: "state" }
    }

    #[test] // Neutrino §4.2.4
    fn an_outdated_checkpoint_is_neither_stored_nor_sent_nor_used() {
        let mut holdings = HeldCheckpoints::default();
        assert_eq!(holdings.take(at(4)), CheckpointAck::Holds(4));
        holdings.outdated(UE, 6);
        assert_eq!((holdings.len(), holdings.fetch(UE, 0)), (0, None));
        assert_eq!(holdings.take(at(5)), CheckpointAck::Refused, "it comes late");
        assert_eq!(holdings.clone().promote(UE), None);
        assert_eq!(holdings.take(at(6)), CheckpointAck::Holds(6));
        assert_eq!((holdings.fetch(UE, 6), holdings.fetch(UE, 7)), (Some(at(6)), None));
        holdings.outdated(UE, 6);
        assert_eq!(holdings.promote(UE), Some((6, "state")), "that one is not");
    }
}
