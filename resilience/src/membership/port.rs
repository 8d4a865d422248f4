//! Requests to etcd: the few operations of its version 3 that membership needs. `fabric/etcd` carries them, to etcd or to the manager of a
//! unit, which takes etcd's place on one host.

use serde::{Deserialize, Serialize};

/// A key, its value and what etcd says of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kv {
    /// Key of the record.
    pub key: String,
    /// Value of the record.
    pub value: Vec<u8>,
    /// The revision that wrote it.
    pub mod_revision: u64,
    /// The lease with which it goes; 0 if none.
    pub lease: i64,
}

/// Something for etcd to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EtcdRequest {
    /// A lease of so many seconds.
    Grant {
        /// Lifetime of the lease in seconds.
        ttl_s: u32,
    },
    /// Renews a lease.
    KeepAlive {
        /// Identity of the lease.
        lease: i64,
    },
    /// The lease ends, and what was written under it.
    Revoke {
        /// Identity of the lease.
        lease: i64,
    },
    /// Writes a value, if the key's last writing still is this one; else reads it.
    Swap {
        /// Key of the record.
        key: String,
        /// The revision of its last writing; 0: it is not there.
        expected: u64,
        /// The new value.
        value: Vec<u8>,
        /// The lease with which it is to go; 0 if none.
        lease: i64,
    },
    /// All keys that begin so, as they are now: answered only by an etcd that has its majority.
    List {
        /// The beginning of the keys.
        prefix: String,
    },
    /// Changes of keys that begin so, from a revision on: not answered, but reported until the watch ends. It replaces an earlier one.
    Watch {
        /// The beginning of the keys.
        prefix: String,
        /// The first revision.
        from: u64,
    },
}

/// An answer of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdReply {
    /// Which etcd: the number of its cluster.
    pub cluster: u64,
    /// Revision of the answer.
    pub revision: u64,
    /// The answer of etcd.
    pub answer: EtcdAnswer,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EtcdAnswer {
    /// To a grant.
    Granted {
        /// Identity of the lease.
        lease: i64,
        /// Lifetime of the lease in seconds.
        ttl_s: u32,
    },
    /// To a renewal.
    KeptAlive {
        /// Seconds; 0: there is no such lease.
        ttl_s: u32,
    },
    /// To a revocation.
    Revoked,
    /// To a swap that was done.
    Swapped,
    /// To a swap that was not, with what is there.
    Differs(Option<Kv>),
    /// To a list.
    Listed(Vec<Kv>),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EtcdFailure {
    /// No answer: it may have been done all the same.
    Unreachable(String),
    /// The lease is gone: it was not done.
    NoLease,
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchedChange {
    /// It was written.
    Put(Kv),
    /// It is gone, since this revision.
    Deleted {
        /// Key of the record.
        key: String,
        /// Revision of the deletion.
        revision: u64,
    },
}
