//! The linear list: every rule in turn, in order of rank. All classifiers are compared with it.

use whimbrel_classifier::{PacketKey, Rank, Rule};

use super::Classify;

/// Rules in order of rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinearList {
    rules: Vec<Rule>,
}

impl Classify for LinearList {
    fn insert(&mut self, rule: Rule) {
        let at = self.rules.partition_point(|r| r.rank() < rule.rank());
        self.rules.insert(at, rule);
    }

    fn remove(&mut self, rule: &Rule) -> bool {
        let at = self.rules.partition_point(|r| r.rank() < rule.rank());
        let found = self.rules.get(at).is_some_and(|r| r.rank() == rule.rank());
        if found {
            self.rules.remove(at);
        }
        found
    }

    #[inline]
    fn lookup(&self, key: &PacketKey) -> Option<Rank> {
        self.rules.iter().find(|r| r.matches(key)).map(Rule::rank)
    }

    fn len(&self) -> usize {
        self.rules.len()
    }
}
