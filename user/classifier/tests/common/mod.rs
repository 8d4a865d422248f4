//! Rule sets, packets, and a linear search as the reference for the classifier.
//! `programs/bench/src/upf/classifier.rs` uses the same.

#![allow(dead_code, reason = "each test, and the bench, uses some of it")]

pub(crate) mod agreement;
pub(crate) mod linear;
pub(crate) mod rule_sets;

use whimbrel_classifier::{Classifier, PacketKey, Rank, Rule};

/// A set of rules in which packets are looked up.
pub(crate) trait Classify {
    /// Adds a rule; none of its rank may be there.
    fn insert(&mut self, rule: Rule);

    /// Removes a rule. False if it was not there.
    fn remove(&mut self, rule: &Rule) -> bool;

    /// The lowest rank of the rules that a packet matches.
    fn lookup(&self, key: &PacketKey) -> Option<Rank>;

    /// How many rules there are.
    fn len(&self) -> usize;
}

impl Classify for Classifier {
    fn insert(&mut self, rule: Rule) {
        Self::insert(self, rule);
    }

    fn remove(&mut self, rule: &Rule) -> bool {
        Self::remove(self, rule)
    }

    #[inline]
    fn lookup(&self, key: &PacketKey) -> Option<Rank> {
        Self::lookup(self, key)
    }

    fn len(&self) -> usize {
        Self::len(self)
    }
}
