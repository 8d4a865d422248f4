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
//! Links carry phones' keys, and are not protected yet: both ends must be on one host, at loopback addresses. Whatever else is asked for is
//! refused.
//!
//! # What a peer can cost
//!
//! Whoever connects is a stranger until its hello came, for at most [`Settings::greeting_max`]. There are at most
//! [`Settings::strangers_max`]; one more displaces the one that has waited longest, so nobody keeps others out by saying nothing. A stranger holds no
//! more than [`HELLO_OCTETS_MAX`] octets here, a peer no more than one frame and what waits to be sent to it; both are bounded.

#![forbid(unsafe_code)]

mod connection;
mod event;
mod frame;
mod links;
mod socket;

use core::time::Duration;
use std::io;
use std::net::SocketAddr;

pub use event::{Counters, DownReason, Event, Events};
pub use frame::HELLO_OCTETS_MAX;
pub use links::Links;

/// Name of a link, never used again by one [`Links`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// How to open [`Links`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where peers may call; port zero for any that is free. Nobody can if none is given.
    pub listen: Option<SocketAddr>,
    /// What each peer is told first, of at most [`HELLO_OCTETS_MAX`] octets.
    pub hello: Vec<u8>,
    /// The longest frame, in both directions. Default 1 MiB: a phone's checkpoint has hundreds of octets, a configuration thousands.
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
    /// The defaults, with nobody to call.
    pub fn new(hello: Vec<u8>) -> Self {
        Self {
            listen: None,
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
    /// It would listen where others than this host reach it.
    Unprotected(SocketAddr),
    /// The hello is longer than [`HELLO_OCTETS_MAX`].
    HelloTooLong(usize),
    /// The system does not let us listen there.
    Listen(SocketAddr, io::Error),
    /// The system gives no descriptor to wait on.
    System(io::Error),
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OpenError::Unprotected(at) => {
                write!(
                    f,
                    "links at {at} would carry phones' keys in the clear: without protection only loopback addresses serve"
                )
            }
            OpenError::HelloTooLong(octets) => {
                write!(
                    f,
                    "a hello of {octets} octets is longer than the {HELLO_OCTETS_MAX} that a peer takes"
                )
            }
            OpenError::Listen(at, e) => write!(f, "links cannot be taken at {at}: {e}"),
            OpenError::System(e) => write!(f, "links cannot be waited for: {e}"),
        }
    }
}

impl core::error::Error for OpenError {}
