//! Secure attachment protocol (SAP) of CellBricks ("Democratizing cellular access with CellBricks", SIGCOMM 2021; clauses here are
//! those of its form as chapter 3 of a dissertation, §3.4.1): a user is served by an operator with which neither the user
//! nor its broker has a contract, after one round trip.
//!
//! | part | here |
//! | --- | --- |
//! | names of the parties | [`id`] |
//! | messages, in octets | [`msg`]; their octets are specified in `MESSAGES.md` |
//! | the machines of the user, the operator and the broker | [`user`], [`operator`], [`broker`] |
//! | floods: fair queues, tickets | [`admission`] |
//! | how 5GS carries the messages | [`carriage`] |
//! | usage reports, payment and reputation (§3.4.3) | [`usage`] |
//! | signatures, HPKE, keys | [`crypto`] |
//!
//! Certificates, the sealed request, the signed refusal and HPKE are those of the crate `common`, which the crate `privacy` uses too.
//! Time, octets and entropy come in; octets, keys and refusals go out. Not here: the post-quantum hybrid, changes of a session's
//! parameters.
#![forbid(unsafe_code)]

pub mod admission;
pub mod broker;
pub mod carriage;
pub mod crypto;
pub mod msg;
pub mod operator;
#[cfg(feature = "serde")]
mod serde_as;
mod ticket;
pub mod usage;
pub mod user;

pub use whimbrel_broker_common::{CLOCK_SKEW_MAX_S, id};
