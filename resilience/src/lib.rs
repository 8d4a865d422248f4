//! The CTA: the one edge of the control plane.
//!
//! Every input of a UE enters here, is stamped and ordered, and every output leaves here. N2, N4 and the subscriber store end at the CTA:
//! UE procedures have no other link. On a single node the CTA calls its CPF as a function and keeps no log; the same rules hold there (one
//! edge, time as an input, atomic batches, owners of shared state).

#![forbid(unsafe_code)]

mod cpf;
mod cta;
pub mod cta_replica;
pub mod detector;
pub mod link;
pub mod membership;
pub mod pair;
mod peer_replicas;
pub mod region;
pub mod replication;
pub mod sbfd;
mod version;

pub use cpf::{
    Cpf, CpfOutbox, InputProgress, ReplaySandbox, ReplicatedCpf, ToReplaySandbox, Trial, TrialOutcome,
    Watchdog,
};
pub use cta::{
    AmfQuery, AnswerTimes, ChargingQuery, Cta, CtaOrder, Entropy, Input, Inspect, LogLimits, N14Error,
    OrderOutcome, Outbox, PolicyQuery, ProtocolViolation, RemovalProgress, ReplicationCounters,
    RestorationOutcome, RestoreError, SmfQuery, StoredAmf, StoredUe, StoredUes, SurvivingState, TakeoverTime,
    ToStore, UdmQuery, UpfChange, UpfDrainProgress, VersionFigures, handover_not_reached,
};
pub use peer_replicas::{PEER_LOST_AFTER, PeerMessageOutcome, PeerReplicaCounters, PeerReplicas};
pub use version::CodeVersion;
