//! Replication: what is kept of each phone, and where, so that the loss of its control function (CPF) costs nothing.
//!
//! The scheme is Neutrino's (§4.2): the aggregator (CTA) logs what it hands to a phone's primary; the primary replicates the
//! phone's state when a procedure has ended; a replica that is as far as the log begins can take the phone over by
//! replay. Where the paper leaves a hole, the rules of DESIGN §4 fill it. The parts, each without clocks and links:
//!
//! - [`Ledger`], the aggregator's side of one phone: who serves it, its log, which replica has come how far. Two aggregators
//!   that mirror each other have the same ledger, the mirror's a little older.
//! - [`Primary`], the control function's side of the phones that it serves: which checkpoints may leave.
//! - [`Holdings`], the control function's side of the phones that it backs.
//! - [`Gate`], what may leave only when a peer holds what went before.
//!
//! Three rules carry the proof (`resilience/tests/replication_model` tries every schedule of a small network with these parts in place, in the
//! aggregator, its mirror and the control functions):
//!
//! 1. *A checkpoint leaves its primary only when the aggregator has released all that its inputs caused.* Otherwise a replica
//!    could be ahead of what phone and gNB were told, and what was lost with the primary would never be said. The paper
//!    sends both at once.
//! 2. *A replica may serve a phone if and only if its state reaches the beginning of the retained log.* That the phone has
//!    begun another procedure since changes nothing: the log has it. The paper marks such a replica outdated ([`Marking`]).
//! 3. *With a mirror, nothing leaves the aggregator before the mirror holds the input that caused it.* An aggregator that was replaced without
//!    knowing cannot speak any more, and neither a control function nor a gNB is ahead of the mirror ([`crate::mirror`]).

use serde::{Deserialize, Serialize};

mod gate;
mod holdings;
mod ledger;
mod primary;

pub use gate::Gate;
pub use holdings::{Checkpoint, Holdings, Taken};
pub use ledger::{BESIDE_INPUT, Bounds, Failover, Lagging, Ledger, Marking, Verdict};
pub use primary::{Primary, Ran};

/// A control function (CPF) of the region: one life of one. Who was given up does not come back under this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CpfId(pub u16);
