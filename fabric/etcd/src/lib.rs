//! Membership of a cluster over etcd: the requests of the pure [`Membership`](whimbrel_resilience::membership::Membership) go to etcd, and the answers
//! back.
//!
//! Requests use the HTTP/1.1 and JSON of etcd's gateway (`/v3/kv/txn` and others), which every etcd since 3.4 offers on its client
//! port. One thread does all of it; of several endpoints one is used until it fails.
//!
//! On one host the manager of a unit can take etcd's place, over a Unix socket ([`LocalAccess`]).
//!
//! TLS is optional, with a certificate of this process and a user in etcd ([`EtcdAccess`]); without TLS, etcd must be on this host or on a protected
//! network.

#![forbid(unsafe_code)]

mod access;
mod agent;
mod failure;
mod gateway;
mod json;
mod local;

pub use access::EtcdAccess;
pub use agent::{Agent, MembershipUpdate};
pub use local::{LocalAccess, LocalAnswer, LocalRequest};
