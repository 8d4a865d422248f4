//! The CTA (CTA): the one edge of the control plane.
//!
//! Everything that enters a UE's machine enters here, is stamped and put into its order; everything that a
//! machine causes leaves here. N2, N4 and the store are this side's alone: a machine has no other link. On a
//! single node the CTA calls its shard as a function and keeps no log; the rules of DESIGN that touch every
//! procedure (one edge, time as an input, atomic batches, owners of shared state) hold all the same.

#![forbid(unsafe_code)]

mod cpf;
mod cta;
pub mod cta_replica;
pub mod detector;
pub mod link;
pub mod membership;
pub mod pair;
pub mod region;
pub mod replication;
mod version;

pub use cpf::{
    Cpf, CpfOutbox, InputProgress, ReplaySandbox, ReplicatedCpf, ToReplaySandbox, Trial, TrialOutcome,
    Watchdog,
};
pub use cta::{
    Cta, Entropy, Input, Inspect, LogLimits, N14Error, Order, OrderOutcome, Outbox, ProtocolViolation,
    ReplicationCounters, TakeoverTime, UpfChange,
};
pub use version::CodeVersion;
