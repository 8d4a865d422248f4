//! How many questions to brokers the UEs of one gNB may cause: a flood of SUCIs behind one gNB must not make this operator flood brokers.

use std::collections::BTreeMap;

use whimbrel_control::AssociationId;
use whimbrel_ids::Instant;

/// Questions of the current second, by gNB.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: u32,
    second: u64,
    used: BTreeMap<Option<AssociationId>, u32>,
}

impl Budget {
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second, second: 0, used: BTreeMap::new() }
    }

    /// Whether one more question is within the budget of the gNB. UEs whose gNB is not known here share a budget.
    pub(super) fn take(&mut self, now: Instant, gnb: Option<AssociationId>) -> bool {
        if now.as_secs() != self.second {
            self.second = now.as_secs();
            self.used.clear();
        }
        let used = self.used.entry(gnb).or_default();
        *used = used.saturating_add(1);
        *used <= self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gnb_that_exceeds_its_budget_takes_nothing_from_another() {
        let mut budget = Budget::new(2);
        let (a, b) = (Some(AssociationId(1)), Some(AssociationId(2)));
        let now = Instant(1_000_000);
        assert_eq!([a, a, a, b].map(|gnb| budget.take(now, gnb)), [true, true, false, true]);
        assert!(budget.take(Instant(2_000_000), a));
    }
}
