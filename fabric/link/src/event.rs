//! The events of links, and their counters.

use core::ops::Range;
use std::net::SocketAddr;

use crate::LinkId;

/// An event of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A link is up, and its peer has sent its hello.
    Up {
        /// The link that is up.
        link: LinkId,
        /// The peer's address.
        peer: SocketAddr,
        /// The peer's hello.
        hello: &'a [u8],
        /// Whether [`connect`](crate::Links::connect) made this link, not the peer.
        we_called: bool,
    },
    /// A frame of the peer.
    Frame {
        /// The link it came on.
        link: LinkId,
        /// The frame without its seal.
        octets: &'a [u8],
    },
    /// A link has ended. Reported once for each link that was up or that this end opened, unless this end closed it.
    Down {
        /// The link that has ended.
        link: LinkId,
        /// Reason of the end.
        reason: DownReason,
    },
    /// A pending link was rejected.
    Rejected {
        /// Address of the peer.
        peer: SocketAddr,
        /// Reason of the rejection.
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
    /// The peer closed it before it sent its hello, as a peer with another key or without room does.
    Left => "left", "the peer closed the link before it sent its hello: does it hold the same key, and does it have room?";
    /// TCP reports an error, a reset mostly: the peer's process is gone.
    Broken => "broken", "the connection was reset";
    /// The peer acknowledges nothing, or no longer answers.
    Vanished => "vanished", "the peer no longer answers";
    /// The outgoing connection was refused, or there is no route.
    Unreachable => "unreachable", "no process accepts links at this address";
    /// The peer did not send its greeting in time.
    NoGreeting => "no_greeting", "the peer did not send its greeting in time";
    /// The peer's first octets are of another protocol.
    Foreign => "foreign", "the peer uses another protocol";
    /// The peer uses another version of the link protocol.
    Version => "version", "the peer uses another version of the link protocol";
    /// One end protects its links, the other does not.
    Protection => "protection", "one end has a key for its links, the other has none";
    /// The peer's greeting does not open under our key: it has another one, or the greeting was changed on its way.
    WrongKey => "wrong_key", "the peer does not hold the cluster's key";
    /// A record does not open: it was changed, repeated, left out or reordered on its way, or recorded on another link.
    Forged => "forged", "a record was changed or repeated on its way";
    /// The peer's hello is longer than allowed.
    HelloTooLong => "hello_too_long", "the peer's hello is too long";
    /// A frame is longer than allowed: the peer's, or one that we were to send.
    FrameTooLong => "frame_too_long", "a frame is longer than allowed";
    /// A control frame that no process of this version sends, or at a time when none does.
    BadControl => "bad_control", "the peer sent a control frame that no process sends";
    /// A head, a tail or a descriptor in the shared memory that no process writes.
    BadRing => "bad_ring", "the peer wrote into the shared memory what no process writes; it is reached over its socket from now on";
    /// More waits to be sent than allowed: the peer does not take it.
    QueueFull => "queue_full", "the peer takes too little of what is sent";
    /// There are as many links as allowed.
    NoRoom => "no_room", "there are as many links as allowed";
    /// The link had been pending longest when there were too many.
    Displaced => "displaced", "a newer pending link took its place";
    /// The peer is not at a loopback address, and there is no key.
    Unprotected => "unprotected", "links without a key are allowed at loopback addresses only";
}

/// Counters of all links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Links that came up.
    pub up: u64,
    /// Frames that were received.
    pub frames_in: u64,
    /// Octets received, as TCP carried them.
    pub octets_in: u64,
    /// Frames accepted for sending.
    pub frames_out: u64,
    /// Frames received through shared memory, which `frames_in` counts too.
    pub ring_in: u64,
    /// Octets handed to TCP.
    pub octets_out: u64,
    /// Writes that carried them.
    pub writes: u64,
    down: [u64; DownReason::ALL.len()],
}

impl Counters {
    /// Links, pending ones too, that ended for this reason.
    pub fn down(&self, reason: DownReason) -> u64 {
        self.down[reason as usize]
    }

    pub(crate) fn ended(&mut self, reason: DownReason) {
        self.down[reason as usize] += 1;
    }
}

#[derive(Clone, Debug)]
enum StoredEvent {
    Up { link: LinkId, peer: SocketAddr, hello: Range<usize>, we_called: bool },
    Frame { link: LinkId, octets: Range<usize> },
    Down { link: LinkId, reason: DownReason },
    Rejected { peer: SocketAddr, reason: DownReason },
}

/// Events of one turn, in memory that is used again.
#[derive(Debug, Default)]
pub struct LinkEvents {
    records: Vec<StoredEvent>,
    octets: Vec<u8>,
}

impl LinkEvents {
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
            StoredEvent::Up { link, peer, hello, we_called } => Event::Up {
                link: *link,
                peer: *peer,
                hello: &self.octets[hello.clone()],
                we_called: *we_called,
            },
            StoredEvent::Frame { link, octets } => {
                Event::Frame { link: *link, octets: &self.octets[octets.clone()] }
            }
            StoredEvent::Down { link, reason } => Event::Down { link: *link, reason: *reason },
            StoredEvent::Rejected { peer, reason } => Event::Rejected { peer: *peer, reason: *reason },
        })
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.octets.clear();
    }

    pub(crate) fn up(&mut self, link: LinkId, peer: SocketAddr, hello: &[u8], we_called: bool) {
        let hello = self.keep(hello);
        self.records.push(StoredEvent::Up { link, peer, hello, we_called });
    }

    pub(crate) fn frame(&mut self, link: LinkId, octets: &[u8]) {
        let octets = self.keep(octets);
        self.records.push(StoredEvent::Frame { link, octets });
    }

    pub(crate) fn down(&mut self, link: LinkId, reason: DownReason) {
        self.records.push(StoredEvent::Down { link, reason });
    }

    pub(crate) fn rejected(&mut self, peer: SocketAddr, reason: DownReason) {
        self.records.push(StoredEvent::Rejected { peer, reason });
    }

    fn keep(&mut self, octets: &[u8]) -> Range<usize> {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        start..self.octets.len()
    }
}
