//! A CPF's side of the UEs of which it is the primary.

use std::collections::BTreeMap;

use whimbrel_control::UeId;

use super::Gate;

/// An input that was run, and that its CTA has not released yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ran<S> {
    /// The UE.
    pub ue: UeId,
    /// Its clock.
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
    unreleased: Gate<Ran<S>>,
    /// Checkpoints of each UE that wait: only the newest is sent.
    idle: BTreeMap<UeId, u32>,
}

impl<S> Default for Primary<S> {
    fn default() -> Self {
        Self { unreleased: Gate::default(), idle: BTreeMap::new() }
    }
}

impl<S> Primary<S> {
    /// An input was run; its batch goes up the link.
    pub fn ran(&mut self, ran: Ran<S>) {
        if ran.idle.is_some() {
            *self.idle.entry(ran.ue).or_default() += 1;
        }
        self.unreleased.sent();
        self.unreleased.hold(ran);
    }

    /// A UE's checkpoint is to be sent again: it leaves when all earlier batches are released.
    pub fn again(&mut self, ue: UeId, clock: u64, state: S) {
        *self.idle.entry(ue).or_default() += 1;
        self.unreleased.hold(Ran { ue, clock, idle: Some(state) });
    }

    /// The CTA has released this many batches of the link, counted from its beginning.
    pub fn released(&mut self, batches: u64) {
        self.unreleased.acknowledged(batches);
    }

    /// Takes a checkpoint that may leave: UE, clock of the last input, state.
    pub fn due(&mut self) -> Option<(UeId, u64, S)> {
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
