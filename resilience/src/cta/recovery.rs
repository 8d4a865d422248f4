//! How long others take to go on, after the loss of a CPF has been noticed. It decides nothing, and no other CTA hears of it.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_control::UeId;
use whimbrel_ids::Instant;

/// What came of a loss, and how long after it was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverTime {
    /// A UE that was at something, or came before it was its turn (and is counted from then), got what it waited for from somebody else.
    Ue(Duration),
    /// All UEs of the lost one have somebody else.
    All(Duration),
}

#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Since when a UE waits.
    waiting: BTreeMap<UeId, Instant>,
    /// Since when there is a loss, and how many rounds over all UEs end before all have been looked at.
    lost: Option<(Instant, usize)>,
}

impl Recovery {
    /// A CPF is lost; so many rounds have to come to their end.
    pub(super) fn begins(&mut self, now: Instant, rounds: usize) {
        let since = self.lost.map_or(now, |(since, _)| since);
        self.lost = Some((since, rounds));
    }

    /// Somebody else is to go on with what a UE is at.
    pub(super) fn waits(&mut self, ue: UeId, since: Instant) {
        self.waiting.entry(ue).or_insert(since);
    }

    /// A UE is gone.
    pub(super) fn forget(&mut self, ue: UeId) {
        self.waiting.remove(&ue);
    }

    /// Something leaves for a UE that had not left before.
    pub(super) fn went_on(&mut self, ue: UeId, now: Instant) -> Option<TakeoverTime> {
        let since = self.waiting.remove(&ue)?;
        Some(TakeoverTime::Ue(now.since(since)))
    }

    /// A round has come to its end.
    pub(super) fn looked(&mut self) {
        if let Some((_, rounds)) = &mut self.lost {
            *rounds = rounds.saturating_sub(1);
        }
    }

    /// Once there is nobody left to be looked at.
    pub(super) fn over(&mut self, now: Instant) -> Option<TakeoverTime> {
        let (since, _) = self.lost.take_if(|(_, rounds)| *rounds == 0)?;
        Some(TakeoverTime::All(now.since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UE: UeId = UeId { slot: 1, generation: 1 };

    #[test]
    fn a_ue_counts_once_from_when_it_began_to_wait_and_a_loss_until_all_were_looked_at() {
        let mut recovery = Recovery::default();
        let at = |us| Instant(us);
        recovery.waits(UE, at(10));
        recovery.waits(UE, at(15));
        assert_eq!(recovery.went_on(UE, at(30)), Some(TakeoverTime::Ue(Duration::from_micros(20))));
        assert_eq!(recovery.went_on(UE, at(31)), None);
        recovery.waits(UE, at(40));
        recovery.forget(UE);
        assert_eq!(recovery.went_on(UE, at(41)), None);

        recovery.begins(at(50), 1);
        recovery.begins(at(60), 2); // another one is lost meanwhile
        recovery.looked();
        assert_eq!(recovery.over(at(70)), None);
        recovery.looked();
        assert_eq!(recovery.over(at(80)), Some(TakeoverTime::All(Duration::from_micros(30))));
        assert_eq!(recovery.over(at(90)), None);
    }
}
