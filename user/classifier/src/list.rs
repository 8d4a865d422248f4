//! The linear list: every rule in turn, in order of rank. What all other classifiers are judged by.

use crate::{Classify, Key, Rank, Rule};

/// Rules in order of rank.
#[derive(Clone, Debug, Default)]
pub struct List {
    rules: Vec<Rule>,
}

impl Classify for List {
    fn insert(&mut self, rule: Rule) {
        let at = self.rules.partition_point(|r| r.rank < rule.rank);
        self.rules.insert(at, rule);
    }

    fn remove(&mut self, rule: &Rule) -> bool {
        let at = self.rules.partition_point(|r| r.rank < rule.rank);
        let there = self.rules.get(at).is_some_and(|r| r.rank == rule.rank);
        if there {
            self.rules.remove(at);
        }
        there
    }

    #[inline]
    fn lookup(&self, key: &Key) -> Option<Rank> {
        self.rules.iter().find(|r| r.matches(key)).map(|r| r.rank)
    }

    fn len(&self) -> usize {
        self.rules.len()
    }
}
