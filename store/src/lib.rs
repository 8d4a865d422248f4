//! Subscribers in one SQLite file, their keys sealed under a key file.
//!
//! ```no_run
//! use std::path::Path;
//! use whimbrel_security::{K, Opc};
//! use whimbrel_store::{OperatorCode, Store, SubscriberRecord};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut store = Store::open(Path::new("subscribers.db"), Path::new("subscribers.key"))?;
//! let supi = "imsi-999700000000001".parse()?;
//! store.add(&SubscriberRecord::new(supi, K::new([1; 16]), OperatorCode::Opc(Opc::new([2; 16]))))?;
//! assert!(store.cached(supi)?.is_some());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod backup;
mod bit_rate;
mod cache;
mod columns;
mod copy;
mod csv;
mod documents;
mod error;
mod export;
mod foreign;
mod forms;
mod home;
mod import;
mod record;
mod replica;
mod rotation;
mod schema;
mod seal;
mod sealed_log;
mod shared;
mod store;
mod subscription;
mod text;

pub use backup::{LAYOUT, downgrade, release};
pub use bit_rate::{Ambr, BitRate};
pub use cache::Changes;
pub use copy::{EXCERPT_MAX, Excerpt, ExcerptChanges};
pub use documents::{DocumentChange, OpenedDocuments, SealedDocument, is_document};
pub use error::StoreError;
pub use export::Secrets;
pub use foreign::{Core, FlowCheck, ImportNote};
pub use forms::{Count, TacNumber, Text, TextForm, Whole};
pub use home::{HomeRecord, OwnRegistration};
pub use import::{BAD_LINES_MAX, BadLine, Format, ImportCounts, ImportProblem, OnExisting, Run, read_csv};
pub use record::{
    Algorithm, AuthMethod, InvalidRecord, Msisdn, OperatorCode, SubscriberRecord, SubscriberStatus,
    WithSecrets,
};
pub use replica::{CopyDifferences, CopyKind, later_offset};
pub use sealed_log::{SealedLog, SealedLogError, SealedRecords};
pub use shared::{
    DatabaseChanges, DatabaseFailure, ReplicaPosition, SealedSubscriber, SharedStore, SubscriberChange,
};
pub use store::{PAGE_MAX, Store};
pub use subscription::{
    AREAS_MAX, Arp, DNNS_MAX, DnnConfiguration, FILTERS_MAX, FLOWS_MAX, FRAMED_ROUTES_MAX, FlowGate,
    FlowSetup, FramedRoute, InvalidSubscription, Ipv6Prefix, RatType, SLICES_MAX, ServiceArea, SessionType,
    SscMode, SubscribedFlow, SubscribedSlice, Subscription, UpProtection, UpSecurity,
};
