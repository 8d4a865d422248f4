//! Two CTAs, of which one serves: what each of them decides, without its links, its clock and etcd.
//!
//! [`PrimaryRole`] is the one that serves, [`ReplicaRole`] the other. Both take what happens and give what is to be done. Who they are is a matter of
//! the home's record at etcd ([`crate::membership::Home`]), which changes only by their claims; whoever acts on what it does not say
//! could act beside the other one. `tests/pair_model.rs` tries them in every order, with links that end, claims whose answers are lost
//! and that come into effect late, and processes that die.

mod primary;
mod replica;

pub use primary::{PrimaryAction, PrimaryRole};
pub use replica::{ReplicaAction, ReplicaRole};
