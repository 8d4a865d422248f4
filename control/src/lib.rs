//! The control plane's procedures (TS 23.502) as deterministic machines, one per UE.
//!
//! | where | what |
//! | --- | --- |
//! | [`envelope`] | input and output of a UE's state machine |
//! | `state` | the plain data of a UE, which checkpoints hold |
//! | [`Shard`] | runs the machines of one thread's UEs |
//! | [`RestStore`] | where the records of UEs at rest are stored |
//! | [`flat`] | the encoding of UEs, inputs and outputs between processes |
//! | `dispatch`, `collision` | which procedure an input belongs to, and how it affects running ones |
//! | [`amf`], [`smf`], [`udm`] | the procedures, one file each, each laid beside its clause |
//! | `services` | the service operations by which AMF, SMF and UDM call each other |
//! | [`refusal`], [`event`] | why a request was refused, and events |
//!
//! Nothing here reads a clock, opens a socket or draws a number: time, octets and entropy come in envelopes.

#![forbid(unsafe_code)]

pub mod amf;
pub mod charging;
mod collision;
mod compact;
pub mod config;
mod digest;
mod dispatch;
pub mod envelope;
pub mod event;
mod filter;
pub mod flat;
mod input;
mod n14;
pub mod open;
pub mod policy;
mod prf;
mod procedure;
pub mod refusal;
pub mod remedy;
pub mod remote_amf;
mod restart;
mod services;
mod shard;
pub mod sm_contexts;
pub mod sm_policy;
pub mod smf;
mod state;
#[cfg(test)]
mod state_tables;
mod summary;
#[cfg(test)]
mod tests;
pub mod udm;
#[cfg(test)]
mod ue_harness;
mod upf;

pub use compact::{CompactMap, SlotTable};
pub use digest::digest;
pub use envelope::{
    AssociationId, Batch, Command, Disposition, Effect, Envelope, HandoverTarget, Locate, N2Names, Output,
    OutputId, Payload, UeId, UeIdentities,
};
pub use event::{Event, FailedFlow, RanEvent, SessionOutcome, UeEvent};
pub use flat::{Checkpoint, Delta, FORMS, Flat, FlatError, LogOf, PackedInput};
pub use prf::Prf;
pub use procedure::Procedure;
pub use refusal::Refusal;
pub use remedy::{Present, Remedy, Subscriber};
pub use restart::RESTORED_CLOCK;
pub use services::{NfType, ServiceFault};
pub use shard::{RestCounters, RestPlace, RestStore, RestVec, Shard};
pub use smf::DrainStep;
pub use state::{
    AmfContext, Connection, HandoverSource, IntermediateUpf, IntermediateUpfStage, LastSeenCell, Mobility,
    RELEASE_GRACE, RemoteAmfContext, SessionGrant, SessionQos, SessionUsage, UeAddress, UeContext,
    UeLocation, UeRadio, UeSecurity, UeSlices, VeilSession,
};
pub use summary::{FlowSummary, RunningTimer, SessionSummary, UeSummary};
pub use upf::{UPFS_MAX, UpfId, UpfSet, UpfState, UpfStates};
