//! Links between the processes of a cluster: reliable, in order, of frames of octets, over TCP.
//!
//! A [`Links`] belongs to one thread and never blocks it. Its loop waits on [`Links::fd`] (or spins) until [`Links::next_deadline`], then
//!
//! ```text
//! drain(now, &mut events)   what arrived: Up, Frame, Down
//! … handle events, send() frames …
//! flush()                   all frames of the turn to a link leave in one write
//! ```
//!
//! Each end first sends its *hello*, octets that mean nothing to this crate. Then both send frames when they like. A frame arrives whole or not at
//! all. When a link ends, it is not known how many of the last frames arrived, and the link does not come back: a new one is another link.
//!
//! # Protection
//!
//! Links carry UEs' keys. Without a [`ClusterKey`] both ends must be on one host, at loopback addresses; anything else is refused. With a key, the ends
//! prove to each other that they have it, and everything after that is sealed: `Noise_NNpsk0_25519_AESGCM_SHA256`, by the `snow` crate, over
//! the primitives that the product uses anyway.
//!
//! - *Identity*: each process that has the key is of the cluster, and may claim in its hello to be any member. A key pair for each member would need
//!   an authority that vouches for them, and nothing here could do that better than the file that the operator puts on each machine. So the machines
//!   of a cluster trust each other, as the CPFs that hold the same UEs' keys must.
//! - *Forward secrecy*: each link's keys come from an exchange of its own, so an attacker that gets the cluster's key later cannot read recorded
//!   links. Each direction's key is replaced after 65,536 records (at most 4 GiB), by one that does not lead back.
//! - *Replay*: records open only in their order, on their link. The greeting of a caller could be a recording; the link is up when the caller's first
//!   record opens, and is pending until then.
//! - *Not hidden*: that two addresses communicate, when, and how much. An attacker on the path can end a link, and nothing else.
//! - *Memory*: the keys in force are wiped when their link ends. `snow` leaves intermediate values of the handshake in freed memory, and
//!   frames pass through buffers that are used again: an attacker that can read this process's memory has what it holds.
//!
//! AES-GCM and not ChaCha20-Poly1305: all machines that this is built for have its instructions, and it took 351 ns instead of 1,766 ns for 600
//! octets on one of them.
//!
//! # Shared memory
//!
//! Processes of one host that have a pool of `fabric/shm` in common ([`Links::share`]) connect, greet and authenticate each other as all do. Then
//! each says in a sealed control frame where it is in the pool, and its frames leave the socket for its ring to the peer: without a system call while
//! both are busy, and without sealing, for the pool is the host's. The socket stays: its end is the end of the link. Where there is no pool, where a
//! ring is still used by a former link, and with a peer that wrote rubbish into the pool, frames stay on the socket. A process with such links that is
//! about to wait on [`Links::fd`] asks [`Links::next_deadline`] first, from where on others wake this process.
//!
//! # What a peer can cost
//!
//! An incoming link is pending until its peer's hello has come (and, with a key, has been proven), for at most [`LinkSettings::greeting_max`]. There are
//! at most [`LinkSettings::pending_max`] of them; one more displaces the one that has waited longest, so that silent peers cannot keep others out. A
//! pending link holds little more than [`HELLO_OCTETS_MAX`] octets here, and costs hashes; two exchanges of keys (a tenth of a millisecond) if it
//! repeats a recorded greeting. A link that is up holds no more than one frame, one record, and what waits to be sent; all are bounded.

#![forbid(unsafe_code)]

mod connection;
mod event;
mod frame;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod key;
mod links;
mod primitives;
mod protocol;
mod rings;
mod seal;
mod socket;
mod spin;

use core::time::Duration;
use std::io;
use std::net::SocketAddr;

pub use event::{Counters, DownReason, Event, LinkEvents};
use frame::ShmAddress;

pub use frame::HELLO_OCTETS_MAX;
pub use key::{ClusterKey, KEYS_MAX, KeyError};
pub use links::Links;
pub use spin::Spin;

/// Name of a link, never used again by one [`Links`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// How to open [`Links`].
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// Where peers connect to; port zero for any that is free. `None`: no peer can connect.
    pub listen: Option<SocketAddr>,
    /// The cluster's keys, if links are protected: [`ClusterKey::read`]. The first is used for outgoing links; incoming links may use any of them, so
    /// that keys can be changed without stopping all processes at once.
    pub keys: Vec<ClusterKey>,
    /// What each peer gets first, at most [`HELLO_OCTETS_MAX`] octets.
    pub hello: Vec<u8>,
    /// The longest frame, in both directions. Default 1 MiB: a UE's checkpoint has hundreds of octets, a configuration thousands.
    pub frame_octets_max: usize,
    /// What may wait to be sent on one link; beyond it the link ends. Default 64 MiB: what 100,000 messages of 600 octets need,
    /// a second of a loaded link whose peer takes nothing.
    pub queue_octets_max: usize,
    /// Links at a time, without pending ones. Default 1,024.
    pub links_max: usize,
    /// Incoming links at a time whose peers have not sent, or not proven, their hello. Default 64.
    pub pending_max: usize,
    /// How long a link may take from the connection to the peer's hello. Default 5 s: time for a lost packet or two of TCP's handshake.
    pub greeting_max: Duration,
    /// How long a peer may take to acknowledge what was sent, or to answer on an idle link, before its link ends. Default 10 s: failure
    /// detectors are far quicker; this ends links that none of them watches.
    pub silence_max: Duration,
    /// Where this process is in its host's shared memory: [`Links::share`].
    pub(crate) places: Vec<ShmAddress>,
}

impl LinkSettings {
    /// The defaults: no protection, and no listener.
    pub fn new(hello: Vec<u8>) -> Self {
        Self {
            listen: None,
            keys: Vec::new(),
            hello,
            frame_octets_max: 1024 * 1024,
            queue_octets_max: 64 * 1024 * 1024,
            links_max: 1024,
            pending_max: 64,
            greeting_max: Duration::from_secs(5),
            silence_max: Duration::from_secs(10),
            places: Vec::new(),
        }
    }
}

/// Why [`Links`] could not be opened.
#[derive(Debug)]
pub enum LinkOpenError {
    /// It would listen without a key at an address that other hosts reach.
    Unprotected(SocketAddr),
    /// The hello is longer than [`HELLO_OCTETS_MAX`].
    HelloTooLong(usize),
    /// The system does not allow to listen there.
    Listen(SocketAddr, io::Error),
    /// The system gives no random octets, so no key would be safe.
    NoRandomness,
    /// The system gives no descriptor to wait on.
    System(io::Error),
}

impl core::fmt::Display for LinkOpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            LinkOpenError::Unprotected(at) => {
                write!(
                    f,
                    "links at {at} would carry UEs' keys unprotected: without a key only loopback addresses are allowed"
                )
            }
            LinkOpenError::HelloTooLong(octets) => {
                write!(
                    f,
                    "a hello of {octets} octets is longer than the {HELLO_OCTETS_MAX} that a peer accepts"
                )
            }
            LinkOpenError::Listen(at, e) => write!(f, "links cannot be accepted at {at}: {e}"),
            LinkOpenError::NoRandomness => {
                f.write_str("the system gives no random octets, without which no key is safe")
            }
            LinkOpenError::System(e) => write!(f, "links cannot be waited for: {e}"),
        }
    }
}

impl core::error::Error for LinkOpenError {}
