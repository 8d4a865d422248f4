//! The pair of CTAs: the decisions of the primary and of its replica, without links, clocks and etcd.
//!
//! [`PrimaryRole`] decides for the primary, [`ReplicaRole`] for the other CTA. Both take events and return actions. Which CTA is primary is
//! in the home's record at etcd ([`crate::membership::CtaHome`]), which changes only by their claims; a CTA that acted on anything else could
//! act beside the other one. `tests/pair_model.rs` tries them in every order, with links that end, claims whose answers are lost and that
//! take effect late, and processes that die.

mod primary;
mod replica;

pub use primary::{PrimaryAction, PrimaryRole};
pub use replica::{ReplicaAction, ReplicaRole};
