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
//! Each end first says who it is: its *hello*, octets that mean nothing here. Then both send frames when they like. A frame comes
//! whole or not at all; when a link ends, how many of the last frames came is not known, and it does not come back: a new one is another link.
//!
//! # Protection
//!
//! Links carry UEs' keys. Without a [`Key`] both ends must be on one host, at loopback addresses; whatever else is asked for is refused. With one,
//! the ends prove to each other that they have it, and all that follows is sealed: `Noise_NNpsk0_25519_AESGCM_SHA256`, by the `snow` crate, over
//! the primitives that the product has anyway.
//!
//! - *Who*: whoever has the key is of the cluster, and may say in its hello that it is any member. A key pair for each member would need
//!   somebody who vouches for them, which nothing here could do better than the file that the operator puts on each machine. So the machines of a
//!   cluster trust each other, as the CPFs that hold the same UEs' keys must.
//! - *Later*: each link's keys come from an exchange of its own, so who gets the cluster's key later cannot read what was recorded before. Each
//!   direction's key is replaced after 65,536 records (at most 4 GiB), by one that does not lead back.
//! - *Again*: records open only in their order, on their link. The greeting of a caller could be a recording; it is up when its first
//!   record opens, and until then the caller is a stranger.
//! - *Not hidden*: that two addresses talk, when, and how much. Who can write on the way can end a link, and nothing else.
//! - *Left behind*: the keys in force are wiped when their link ends. `snow` leaves intermediate values of the handshake in freed memory, and
//!   frames pass through buffers that are used again: who can read this process's memory has what it holds.
//!
//! AES-GCM and not ChaCha20-Poly1305: all machines that this is built for have its instructions, and it took 351 ns instead of 1,766 ns for 600
//! octets on one of them.
//!
//! # What a peer can cost
//!
//! Whoever connects is a stranger until its hello came (and, with a key, was proven), for at most [`Settings::greeting_max`]. There are at most
//! [`Settings::strangers_max`]; one more displaces the one that has waited longest, so nobody keeps others out by saying nothing. A stranger holds
//! little more than [`HELLO_OCTETS_MAX`] octets here, and costs hashes; two exchanges of keys (a tenth of a millisecond) if it repeats a recorded
//! greeting. A peer holds no more than one frame, one record, and what waits to be sent to it; all are bounded.

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
mod seal;
mod socket;

use core::time::Duration;
use std::io;
use std::net::SocketAddr;

pub use event::{Counters, DownReason, Event, Events};
pub use frame::HELLO_OCTETS_MAX;
pub use key::{KEYS_MAX, Key, KeyError};
pub use links::Links;

/// Name of a link, never used again by one [`Links`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// How to open [`Links`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where peers may call; port zero for any that is free. Nobody can if none is given.
    pub listen: Option<SocketAddr>,
    /// The cluster's key, if links are protected: [`Key::read`]. The first is the one to call with; who calls may have any of them, so that
    /// keys can be changed without all processes ending at once.
    pub keys: Vec<Key>,
    /// What each peer is told first, of at most [`HELLO_OCTETS_MAX`] octets.
    pub hello: Vec<u8>,
    /// The longest frame, in both directions. Default 1 MiB: a UE's checkpoint has hundreds of octets, a configuration thousands.
    pub frame_octets_max: usize,
    /// What may wait to be sent on one link; beyond it the link ends. Default 64 MiB: what 100,000 messages of 600 octets need,
    /// a second of a loaded link whose peer takes nothing.
    pub queue_octets_max: usize,
    /// Links at a time, without strangers. Default 1,024.
    pub links_max: usize,
    /// Peers that connected and did not say yet who they are. Default 64.
    pub strangers_max: usize,
    /// How long a link may take from its call to the peer's hello. Default 5 s: time for a lost packet or two of TCP's handshake.
    pub greeting_max: Duration,
    /// How long a peer may take to acknowledge what was sent, or to answer on an idle link, before it is taken as vanished. Default 10 s:
    /// detectors of failure are far quicker, this is what ends links that none looks after.
    pub silence_max: Duration,
}

impl Settings {
    /// The defaults, without protection, and with nobody to call.
    pub fn new(hello: Vec<u8>) -> Self {
        Self {
            listen: None,
            keys: Vec::new(),
            hello,
            frame_octets_max: 1024 * 1024,
            queue_octets_max: 64 * 1024 * 1024,
            links_max: 1024,
            strangers_max: 64,
            greeting_max: Duration::from_secs(5),
            silence_max: Duration::from_secs(10),
        }
    }
}

/// Why [`Links`] could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// It would listen without a key where others than this host reach it.
    Unprotected(SocketAddr),
    /// The hello is longer than [`HELLO_OCTETS_MAX`].
    HelloTooLong(usize),
    /// The system does not let us listen there.
    Listen(SocketAddr, io::Error),
    /// The system gives no random octets, without which no key is safe.
    NoRandomness,
    /// The system gives no descriptor to wait on.
    System(io::Error),
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OpenError::Unprotected(at) => {
                write!(
                    f,
                    "links at {at} would carry UEs' keys in the clear: without protection only loopback addresses serve"
                )
            }
            OpenError::HelloTooLong(octets) => {
                write!(
                    f,
                    "a hello of {octets} octets is longer than the {HELLO_OCTETS_MAX} that a peer takes"
                )
            }
            OpenError::Listen(at, e) => write!(f, "links cannot be taken at {at}: {e}"),
            OpenError::NoRandomness => {
                f.write_str("the system gives no random octets, without which no key is safe")
            }
            OpenError::System(e) => write!(f, "links cannot be waited for: {e}"),
        }
    }
}

impl core::error::Error for OpenError {}
