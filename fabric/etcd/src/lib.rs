//! Membership of a cluster over etcd: what the pure [`Membership`](whimbrel_resilience::membership::Membership) asks for is carried to etcd, and its
//! answers back.
//!
//! Etcd is spoken with by the HTTP/1.1 and JSON of its gateway (`/v3/kv/txn` and its kin), which every etcd since 3.4 offers on its client
//! port. One thread does it all; of several endpoints one is asked until it fails.
//!
//! Over TLS where it is wanted, with a certificate of its own and as a user of etcd's ([`Access`]); otherwise etcd must be reached over a network that
//! is protected, or on this host.

#![forbid(unsafe_code)]

mod access;
mod agent;
mod failure;
mod gateway;
mod json;

pub use access::Access;
pub use agent::{Agent, MembershipUpdate};
