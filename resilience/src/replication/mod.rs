//! Replication: checkpoint, log and backups of each UE, so that the loss of its CPF is not noticed.
//!
//! The scheme is Neutrino's (§4.2): the CTA logs the inputs that it sends to a UE's primary; the primary sends a checkpoint to the backups
//! when a procedure has ended; a backup whose checkpoint reaches the beginning of the log can take the UE over by replay. The rules below
//! fill the paper's gaps. The parts, each without clocks and links:
//!
//! - [`UeLog`], the CTA's side of one UE: its primary, its log, and the clock that each backup has acknowledged. The CTA replica has the
//!   same ledger, a little older.
//! - [`Primary`], a CPF's side of the UEs of which it is the primary: which checkpoints may leave.
//! - [`HeldCheckpoints`], a CPF's side of the UEs of which it is a backup.
//! - [`Gate`], which holds items back until a peer has acknowledged earlier messages.
//!
//! Three rules carry the proof (`resilience/tests/replication_model` tries every schedule of a small network with these parts in place, in the
//! CTA, its CTA replica and the CPFs):
//!
//! 1. *A checkpoint leaves its primary only when the CTA has released all outputs of its inputs.* Otherwise a backup could be ahead of what
//!    UE and gNB have received, and outputs lost with the primary would never be sent. The paper sends both at once.
//! 2. *A backup may take a UE over if and only if its checkpoint reaches the beginning of the log.* A further procedure that the UE has
//!    begun changes nothing: the log has it. The paper marks such a backup outdated ([`Marking`]).
//! 3. *With a CTA replica, nothing leaves the CTA before the replica holds the input that caused it.* A CTA that was replaced without
//!    knowing it sends nothing any more, and neither a CPF nor a gNB is ahead of the replica ([`crate::cta_replica`]).

use serde::{Deserialize, Serialize};

mod gate;
mod held_checkpoints;
mod ledger;
mod primary;

pub use gate::Gate;
pub use held_checkpoints::{Checkpoint, CheckpointAck, HeldCheckpoints};
pub use ledger::{BESIDE_INPUT, BatchVerdict, LaggingBackup, Marking, TakeoverOutcome, UeLog, UeLogLimits};
pub use primary::{ExecutedInput, Primary};

/// A CPF of the region, in one incarnation: a CPF that was declared lost does not come back under this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CpfId(pub u16);
