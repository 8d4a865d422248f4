//! Packet classification: from a packet's fields to the rule of lowest precedence value that it matches (TS 29.244
//! §5.2.1, §8.2.11).
//!
//! | | look-up | for |
//! | --- | --- | --- |
//! | [`List`] | every rule in turn | the reference |
//! | [`TupleSpace`] | a hash table for each combination of masks | comparison |
//! | [`PartitionSort`] | sets of rules that can be sorted, binary search | comparison: it is L25GC's |
//! | [`Classifier`] | a few hash tables, then a scan with vector instructions | use |
//!
//! All are plain values behind one interface, [`Classify`]. `generate` makes rule sets and packets for tests and
//! measurements.
//!
//! `unsafe` is in `simd.rs` alone, which says why.

#![deny(unsafe_code)]

mod block;
mod choose;
mod classifier;
pub mod generate;
mod key;
mod list;
mod partition_sort;
mod rows;
mod rule;
mod scan;
mod simd;
mod table;
mod tuple_space;

pub use classifier::Classifier;
pub use key::{Fields, Key};
pub use list::List;
pub use partition_sort::PartitionSort;
pub use rule::{Pdi, Prefix, Rank, Rule};
pub use simd::Instructions;
pub use tuple_space::TupleSpace;

/// A set of rules in which packets are looked up.
pub trait Classify {
    /// Adds a rule; none of its rank may be there.
    fn insert(&mut self, rule: Rule);

    /// Takes a rule away. False if it was not there.
    fn remove(&mut self, rule: &Rule) -> bool;

    /// The rank of the first rule, by rank, that a packet matches.
    fn lookup(&self, key: &Key) -> Option<Rank>;

    /// How many rules there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
