//! Replication: what is kept of each UE, and where, so that the loss of its CPF (CPF) costs nothing.
//!
//! The scheme is Neutrino's (§4.2): the CTA (CTA) logs what it hands to a UE's primary; the primary replicates the
//! UE's state when a procedure has ended; a replica that is as far as the log begins can take the UE over by
//! replay. Where the paper leaves a hole, the rules of DESIGN §4 fill it. The parts, each without clocks and links:
//!
//! - [`Ledger`], the CTA's side of one UE: who serves it, its log, which replica has come how far. Two CTAs
//!   that CTA replica each other have the same ledger, the CTA replica's a little older.
//! - [`Primary`], the CPF's side of the UEs that it serves: which checkpoints may leave.
//! - [`HeldCheckpoints`], the CPF's side of the UEs that it backs.
//! - [`Gate`], what may leave only when a peer holds what went before.
//!
//! Three rules carry the proof (`resilience/tests/replication_model` tries every schedule of a small network with these parts in place, in the
//! CTA, its CTA replica and the CPFs):
//!
//! 1. *A checkpoint leaves its primary only when the CTA has released all that its inputs caused.* Otherwise a replica
//!    could be ahead of what UE and gNB were told, and what was lost with the primary would never be said. The paper
//!    sends both at once.
//! 2. *A replica may serve a UE if and only if its state reaches the beginning of the retained log.* That the UE has
//!    begun another procedure since changes nothing: the log has it. The paper marks such a replica outdated ([`Marking`]).
//! 3. *With a CTA replica, nothing leaves the CTA before the CTA replica holds the input that caused it.* A CTA that was replaced without
//!    knowing cannot speak any more, and neither a CPF nor a gNB is ahead of the CTA replica ([`crate::cta_replica`]).

use serde::{Deserialize, Serialize};

mod gate;
mod held_checkpoints;
mod ledger;
mod primary;

pub use gate::Gate;
pub use held_checkpoints::{Checkpoint, CheckpointAck, HeldCheckpoints};
pub use ledger::{BESIDE_INPUT, Lagging, Ledger, Marking, TakeoverOutcome, UeLogLimits, Verdict};
pub use primary::{Primary, Ran};

/// A CPF (CPF) of the region: one life of one. Who was given up does not come back under this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CpfId(pub u16);
