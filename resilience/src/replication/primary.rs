//! A CPF's side of the UEs that it serves.

use std::collections::BTreeMap;

use whimbrel_control::UeId;

use super::Gate;

/// An input that was run, and that its CTA has not released yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ran<S> {
    /// Whose.
    pub ue: UeId,
    /// Its clock.
    pub clock: u64,
    /// The UE's state after it, where no procedure runs.
    pub idle: Option<S>,
}

/// What a CPF ran and may not tell its replicas yet.
///
/// Batches go up the link in order and are counted; the CTA says how many it has released, with whatever goes
/// down next. A checkpoint leaves when all batches up to its own were released: rule 1 of this module's parent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Primary<S> {
    unreleased: Gate<Ran<S>>,
    /// How many checkpoints of a UE wait: only its newest is worth sending.
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

    /// A UE's state is wanted once more: it leaves when all was released that was run before.
    pub fn again(&mut self, ue: UeId, clock: u64, state: S) {
        *self.idle.entry(ue).or_default() += 1;
        self.unreleased.hold(Ran { ue, clock, idle: Some(state) });
    }

    /// The CTA has released this many batches of the link, counted from its beginning.
    pub fn released(&mut self, batches: u64) {
        self.unreleased.acknowledged(batches);
    }

    /// Takes a checkpoint that may leave: the UE, the clock of its last input, its state.
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
