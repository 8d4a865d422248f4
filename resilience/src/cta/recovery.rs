//! How long takeovers take after the loss of a CPF was noticed. For metrics only, and not replicated.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_control::UeId;
use whimbrel_ids::Instant;

/// A completed takeover, and how long after the loss was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverTime {
    /// A UE that waited for an answer, or sent a message before its takeover (counted from then), got it from its new primary.
    Ue(Duration),
    /// All UEs of the lost CPF have another primary.
    All(Duration),
}

#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// When each UE began to wait.
    waiting: BTreeMap<UeId, Instant>,
    /// When the oldest loss was noticed, and how many rounds over all UEs remain.
    lost: Option<(Instant, usize)>,
}

impl Recovery {
    /// A CPF is lost; `rounds` remain.
    pub(super) fn begins(&mut self, now: Instant, rounds: usize) {
        let since = self.lost.map_or(now, |(since, _)| since);
        self.lost = Some((since, rounds));
    }

    /// A UE waits for its new primary.
    pub(super) fn ue_waits(&mut self, ue: UeId, since: Instant) {
        self.waiting.entry(ue).or_insert(since);
    }

    /// A UE is gone.
    pub(super) fn forget(&mut self, ue: UeId) {
        self.waiting.remove(&ue);
    }

    /// A new output leaves for a UE.
    pub(super) fn ue_answered(&mut self, ue: UeId, now: Instant) -> Option<TakeoverTime> {
        let since = self.waiting.remove(&ue)?;
        Some(TakeoverTime::Ue(now.since(since)))
    }

    /// A round has ended.
    pub(super) fn round_ended(&mut self) {
        if let Some((_, rounds)) = &mut self.lost {
            *rounds = rounds.saturating_sub(1);
        }
    }

    /// Returns the time of the whole takeover once no UE remains.
    pub(super) fn completed(&mut self, now: Instant) -> Option<TakeoverTime> {
        let (since, _) = self.lost.take_if(|(_, rounds)| *rounds == 0)?;
        Some(TakeoverTime::All(now.since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UE: UeId = UeId { slot: 1, generation: 1 };

    #[test]
    fn a_ue_counts_once_from_when_it_began_to_wait_and_a_loss_until_the_last_round_ends() {
        let mut recovery = Recovery::default();
        let at = |us| Instant(us);
        recovery.ue_waits(UE, at(10));
        recovery.ue_waits(UE, at(15));
        assert_eq!(recovery.ue_answered(UE, at(30)), Some(TakeoverTime::Ue(Duration::from_micros(20))));
        assert_eq!(recovery.ue_answered(UE, at(31)), None);
        recovery.ue_waits(UE, at(40));
        recovery.forget(UE);
        assert_eq!(recovery.ue_answered(UE, at(41)), None);

        recovery.begins(at(50), 1);
        recovery.begins(at(60), 2); // another one is lost meanwhile
        recovery.round_ended();
        assert_eq!(recovery.completed(at(70)), None);
        recovery.round_ended();
        assert_eq!(recovery.completed(at(80)), Some(TakeoverTime::All(Duration::from_micros(30))));
        assert_eq!(recovery.completed(at(90)), None);
    }
}
