//! A CPF's side of the UEs of which it is the primary.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_control::UeId;

use super::Gate;

/// An input that was run, and that its CTA has not released yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExecutedInput<S> {
    /// The UE whose inputs ran.
    pub ue: UeId,
    /// Clock of the last input.
    pub clock: u64,
    /// The UE's state after it, where no procedure runs.
    pub idle: Option<S>,
}

/// Inputs that a CPF ran and whose checkpoints may not leave yet.
///
/// Batches go to the CTA in order and are counted; the CTA reports how many it has released. A checkpoint leaves when all batches up to its
/// own are released: rule 1 of this module's parent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Primary<S> {
    unreleased: Gate<ExecutedInput<S>>,
    /// Checkpoints whose inputs are all released: they leave at once.
    released: VecDeque<(UeId, u64, S)>,
    /// Checkpoints of each UE that wait: only the newest is sent.
    idle: BTreeMap<UeId, u32>,
}

impl<S> Default for Primary<S> {
    fn default() -> Self {
        Self { unreleased: Gate::default(), released: VecDeque::new(), idle: BTreeMap::new() }
    }
}

impl<S> Primary<S> {
    /// An input was run; its batch goes up the link.
    pub fn ran(&mut self, ran: ExecutedInput<S>) {
        if ran.idle.is_some() {
            *self.idle.entry(ran.ue).or_default() += 1;
        }
        self.unreleased.sent();
        self.unreleased.hold(ran);
    }

    /// The checkpoint of a UE that is idle is to be sent again: at once if all batches of the UE are released, else when all earlier batches
    /// are. Other UEs may be in the middle of a procedure, so that the release of their batches is not reported for a while.
    pub fn again(&mut self, ue: UeId, clock: u64, state: S) {
        if self.unreleased.waiting().any(|ran| ran.ue == ue) {
            *self.idle.entry(ue).or_default() += 1;
            self.unreleased.hold(ExecutedInput { ue, clock, idle: Some(state) });
        } else {
            self.released.push_back((ue, clock, state));
        }
    }

    /// The CTA has released this many batches of the link, counted from its beginning.
    pub fn released(&mut self, batches: u64) {
        self.unreleased.acknowledged(batches);
    }

    /// Takes a checkpoint that may leave: UE, clock of the last input, state.
    pub fn due(&mut self) -> Option<(UeId, u64, S)> {
        if let Some(released) = self.released.pop_front() {
            return Some(released);
        }
        while let Some(ran) = self.unreleased.pass() {
            let Some(state) = ran.idle else { continue };
            let newer = self.idle.get_mut(&ran.ue).map_or(0, |n| {
                *n -= 1;
                *n
            });
            if newer == 0 {
                self.idle.remove(&ran.ue);
                return Some((ran.ue, ran.clock, state));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UE: UeId = UeId { slot: 1, generation: 1 };
    const OTHER: UeId = UeId { slot: 2, generation: 1 };

    fn ran(ue: UeId, clock: u64, idle: Option<&'static str>) -> ExecutedInput<&'static str> {
        ExecutedInput { ue, clock, idle }
    }

    #[test] // the other UE may wait for its broker for seconds, and the backup be the only one that can take this UE over
    fn a_checkpoint_for_a_new_backup_does_not_wait_for_batches_of_other_ues() {
        let mut primary = Primary::default();
        primary.ran(ran(OTHER, 1, None));
        primary.again(UE, 4, "state");
        assert_eq!((primary.due(), primary.due()), (Some((UE, 4, "state")), None));
    }

    #[test] // rule 1
    fn a_checkpoint_for_a_new_backup_waits_for_the_ues_own_batches() {
        let mut primary = Primary::default();
        primary.ran(ran(UE, 4, None));
        primary.again(UE, 4, "state");
        assert_eq!(primary.due(), None);
        primary.released(1);
        assert_eq!((primary.due(), primary.due()), (Some((UE, 4, "state")), None));
    }

    #[test]
    fn a_checkpoint_that_waits_anyway_is_sent_once() {
        let mut primary = Primary::default();
        primary.ran(ran(UE, 4, Some("state")));
        primary.again(UE, 4, "state");
        primary.released(1);
        assert_eq!((primary.due(), primary.due()), (Some((UE, 4, "state")), None));
    }
}
