//! What happens to links, and how often.

use core::ops::Range;
use std::net::SocketAddr;

use crate::LinkId;

/// What happened to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A peer is there and has said who it is.
    Up {
        /// The link, from now on.
        link: LinkId,
        /// The peer's address.
        peer: SocketAddr,
        /// What it said first.
        hello: &'a [u8],
        /// Whether [`connect`](crate::Links::connect) made this link, not the peer.
        we_called: bool,
    },
    /// A frame of the peer.
    Frame {
        /// The link it came on.
        link: LinkId,
        /// What was sent.
        octets: &'a [u8],
    },
    /// The link is no more. Told once of each link that was up or that we called, unless we closed it.
    Down {
        /// The link that was.
        link: LinkId,
        /// Why.
        reason: DownReason,
    },
    /// A stranger that called did not become a peer.
    TurnedAway {
        /// Its address.
        peer: SocketAddr,
        /// Why.
        reason: DownReason,
    },
}

macro_rules! down_reasons {
    ($($(#[doc = $doc:literal])* $name:ident => $label:literal, $sentence:literal;)*) => {
        /// Why a link ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DownReason {
            $($(#[doc = $doc])* $name,)*
        }

        impl DownReason {
            /// Every reason, in order.
            pub const ALL: &[DownReason] = &[$(DownReason::$name,)*];

            /// Its name in metrics.
            pub const fn label(self) -> &'static str {
                match self { $(DownReason::$name => $label,)* }
            }
        }

        impl core::fmt::Display for DownReason {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(DownReason::$name => $sentence,)* })
            }
        }
    };
}

down_reasons! {
    /// The peer closed it, after a whole frame.
    Closed => "closed", "the peer closed the link";
    /// The peer closed it within a frame.
    Truncated => "truncated", "the link ended in the middle of a frame";
    /// The peer closed it before it said who it is; as who holds another key, or has no room, does.
    Left => "left", "the peer left before it said who it is: does it hold the same key, and has it room?";
    /// TCP reports an error, a reset mostly: the peer's process is gone.
    Broken => "broken", "the connection was reset";
    /// The peer acknowledges nothing, or does not answer any more.
    Vanished => "vanished", "the peer does not answer any more";
    /// The connection that we called for was refused or found no way.
    Unreachable => "unreachable", "nobody takes links there";
    /// The peer did not say who it is in time.
    NoGreeting => "no_greeting", "the peer did not say in time who it is";
    /// What the peer said first is of another protocol.
    Foreign => "foreign", "the peer speaks another protocol";
    /// The peer speaks another version of links.
    Version => "version", "the peer speaks another version of links";
    /// One end protects its links, the other does not.
    Protection => "protection", "one end has a key for its links, the other has none";
    /// The peer's greeting does not open under our key: it has another one, or somebody changed what it said.
    WrongKey => "wrong_key", "the peer does not hold the cluster's key";
    /// A record does not open: it was changed, repeated, left out or put elsewhere on its way, or recorded in another link.
    Forged => "forged", "somebody else wrote on the link";
    /// The peer's hello is longer than allowed.
    HelloTooLong => "hello_too_long", "the peer's hello is too long";
    /// A frame is longer than allowed: the peer's, or one that we were to send.
    FrameTooLong => "frame_too_long", "a frame is longer than allowed";
    /// More waits to be sent than allowed: the peer does not take it.
    QueueFull => "queue_full", "the peer takes too little of what is sent";
    /// There are as many links as allowed.
    NoRoom => "no_room", "there are as many links as allowed";
    /// A stranger waited longest when there were too many.
    Displaced => "displaced", "a newer stranger took the place";
    /// The peer is not at a loopback address, and there is no key.
    Unprotected => "unprotected", "links without a key stay on one host, at loopback addresses";
}

/// What links did, in numbers that only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Links that came up.
    pub up: u64,
    /// Frames that came.
    pub frames_in: u64,
    /// Octets that came, as TCP carried them.
    pub octets_in: u64,
    /// Frames taken for sending.
    pub frames_out: u64,
    /// Octets handed to TCP.
    pub octets_out: u64,
    /// Writes that carried them.
    pub writes: u64,
    down: [u64; DownReason::ALL.len()],
}

impl Counters {
    /// Links and strangers that ended for this reason.
    pub fn down(&self, reason: DownReason) -> u64 {
        self.down[reason as usize]
    }

    pub(crate) fn ended(&mut self, reason: DownReason) {
        self.down[reason as usize] += 1;
    }
}

#[derive(Clone, Debug)]
enum Record {
    Up { link: LinkId, peer: SocketAddr, hello: Range<usize>, we_called: bool },
    Frame { link: LinkId, octets: Range<usize> },
    Down { link: LinkId, reason: DownReason },
    TurnedAway { peer: SocketAddr, reason: DownReason },
}

/// Events of one turn, in memory that is used again.
#[derive(Debug, Default)]
pub struct Events {
    records: Vec<Record>,
    octets: Vec<u8>,
}

impl Events {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The events, oldest first for each link.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        self.records.iter().map(|record| match record {
            Record::Up { link, peer, hello, we_called } => Event::Up {
                link: *link,
                peer: *peer,
                hello: &self.octets[hello.clone()],
                we_called: *we_called,
            },
            Record::Frame { link, octets } => {
                Event::Frame { link: *link, octets: &self.octets[octets.clone()] }
            }
            Record::Down { link, reason } => Event::Down { link: *link, reason: *reason },
            Record::TurnedAway { peer, reason } => Event::TurnedAway { peer: *peer, reason: *reason },
        })
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.octets.clear();
    }

    pub(crate) fn up(&mut self, link: LinkId, peer: SocketAddr, hello: &[u8], we_called: bool) {
        let hello = self.keep(hello);
        self.records.push(Record::Up { link, peer, hello, we_called });
    }

    pub(crate) fn frame(&mut self, link: LinkId, octets: &[u8]) {
        let octets = self.keep(octets);
        self.records.push(Record::Frame { link, octets });
    }

    pub(crate) fn down(&mut self, link: LinkId, reason: DownReason) {
        self.records.push(Record::Down { link, reason });
    }

    pub(crate) fn turned_away(&mut self, peer: SocketAddr, reason: DownReason) {
        self.records.push(Record::TurnedAway { peer, reason });
    }

    fn keep(&mut self, octets: &[u8]) -> Range<usize> {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        start..self.octets.len()
    }
}
