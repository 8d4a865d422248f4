//! The outputs of an endpoint: packets for the network, events for its user.
//!
//! Both keep their octets in one growing buffer that is reused, so a steady state allocates nothing.

use core::fmt;
use core::ops::Range;
use std::net::IpAddr;

/// Source and destination of a packet: our address, the peer's, and the peer's UDP port where SCTP is encapsulated (RFC 6951).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Our address; unspecified leaves the choice to routing.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// The peer's UDP port, or zero for SCTP directly over IP.
    pub udp_port: u16,
}

/// Identifier of an association: its slot, and how often that slot was used before. A stale one is recognized and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationId {
    /// Position in the endpoint's table.
    pub slot: u32,
    /// Uses of that position.
    pub generation: u32,
}

impl fmt::Display for AssociationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// Why an association ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// Graceful shutdown by either side (RFC 9260 §9.2).
    Shutdown,
    /// Aborted by the user.
    Aborted,
    /// The peer aborted; the first error cause that it gave, if any (RFC 9260 §3.3.10).
    AbortedByPeer {
        /// Cause code of RFC 9260 §3.3.10.
        cause: Option<u16>,
    },
    /// The peer stopped answering (RFC 9260 §8.1).
    Lost,
    /// The peer never answered our INIT or COOKIE ECHO (RFC 9260 §4, §5.1.6).
    NoAnswer,
    /// The peer violated the protocol in a way that ends the association.
    ProtocolViolation,
    /// The peer filled all memory that an association may have.
    OutOfResource,
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DownReason::Shutdown => f.write_str("graceful shutdown"),
            DownReason::Aborted => f.write_str("aborted by us"),
            DownReason::AbortedByPeer { cause: Some(c) } => write!(f, "aborted by the peer, error cause {c}"),
            DownReason::AbortedByPeer { cause: None } => f.write_str("aborted by the peer, no cause given"),
            DownReason::Lost => f.write_str("the peer stopped answering"),
            DownReason::NoAnswer => f.write_str("the peer never answered"),
            DownReason::ProtocolViolation => f.write_str("the peer broke the protocol"),
            DownReason::OutOfResource => f.write_str("the peer exceeded the memory of an association"),
        }
    }
}

/// Why a request of the user was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// There is no such association, or it has ended.
    UnknownAssociation,
    /// The association is not established: not yet, or it is closing.
    NotEstablished,
    /// The stream is not among the outbound ones that were agreed.
    InvalidStream,
    /// An empty message (RFC 9260 §3.3.1 has none).
    EmptyMessage,
    /// The send buffer is full: the peer reads too slowly.
    SendBufferFull,
    /// The association table is full, or the peer already has an association.
    NoRoom,
    /// No usable address to connect to, or a port of zero.
    InvalidAddress,
}

impl fmt::Display for RequestRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestRefusal::UnknownAssociation => "no such association",
            RequestRefusal::NotEstablished => "the association is not established",
            RequestRefusal::InvalidStream => "the stream was not agreed",
            RequestRefusal::EmptyMessage => "the message is empty",
            RequestRefusal::SendBufferFull => "the send buffer is full",
            RequestRefusal::NoRoom => "no room for another association, or one with this peer exists",
            RequestRefusal::InvalidAddress => "no usable peer address or port",
        })
    }
}

impl core::error::Error for RequestRefusal {}

/// An event for the endpoint's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An association is established.
    Up {
        /// The association that is up.
        association: AssociationId,
        /// The peer's addresses; the first is the primary path.
        peer: &'a [IpAddr],
        /// The peer's SCTP port.
        peer_port: u16,
        /// How many streams the peer may send on.
        inbound_streams: u16,
        /// How many streams we may send on.
        outbound_streams: u16,
        /// The peer's adaptation code point, if it sent one (RFC 5061 §4.2.6): agreed on if it equals ours.
        adaptation: Option<u32>,
    },
    /// A whole message has arrived, in its stream's order unless it was sent unordered.
    Data {
        /// The association of the message.
        association: AssociationId,
        /// Identifier of the stream.
        stream: u16,
        /// Payload protocol identifier.
        ppid: u32,
        /// The message, complete.
        octets: &'a [u8],
    },
    /// A message that the peer has not acknowledged, or that was not sent. These events precede [`Event::Down`], one per message, in sending order
    /// (RFC 9260 §11.1.1 L and M). The peer may have received it nevertheless.
    Unacknowledged {
        /// The association of the message.
        association: AssociationId,
        /// Identifier of the stream.
        stream: u16,
        /// Payload protocol identifier.
        ppid: u32,
        /// The message, complete.
        octets: &'a [u8],
    },
    /// The association has ended; its identifier is stale from now on.
    Down {
        /// The association that is down.
        association: AssociationId,
        /// Reason of the end.
        reason: DownReason,
    },
    /// The peer has restarted: it lost its state and set the association up again, under the same identifier. What was queued for it is discarded
    /// (RFC 9260 §5.2.4.1 action A).
    Restarted {
        /// The association that the peer restarted.
        association: AssociationId,
        /// How many streams the peer may send on now.
        inbound_streams: u16,
        /// How many streams we may send on now.
        outbound_streams: u16,
        /// The peer's adaptation code point now.
        adaptation: Option<u32>,
    },
    /// A path does not answer any more (RFC 9260 §8.2).
    PathDown {
        /// The association of the path.
        association: AssociationId,
        /// The peer's address on that path.
        remote: IpAddr,
    },
    /// A path that was down, or was not yet confirmed, answers.
    PathUp {
        /// The association of the path.
        association: AssociationId,
        /// The peer's address on that path.
        remote: IpAddr,
    },
    /// An [`Input`](crate::Input) was refused.
    Refused {
        /// The association, if one was named.
        association: Option<AssociationId>,
        /// Reason of the refusal.
        refusal: RequestRefusal,
    },
}

/// A stored event: its octets and addresses are in the buffers beside it.
#[derive(Clone, Debug)]
enum StoredEvent {
    Up {
        association: AssociationId,
        peer: Range<usize>,
        peer_port: u16,
        inbound: u16,
        outbound: u16,
        adaptation: Option<u32>,
    },
    Data {
        association: AssociationId,
        stream: u16,
        ppid: u32,
        octets: Range<usize>,
    },
    Unacknowledged {
        association: AssociationId,
        stream: u16,
        ppid: u32,
        octets: Range<usize>,
    },
    Plain(Event<'static>),
}

/// Events in the order in which they happened, with their octets.
#[derive(Clone, Debug, Default)]
pub struct Events {
    records: Vec<StoredEvent>,
    octets: Vec<u8>,
    addresses: Vec<IpAddr>,
}

impl Events {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Empties it, and keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.octets.clear();
        self.addresses.clear();
    }

    /// The events, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        self.records.iter().map(|r| match r {
            StoredEvent::Up { association, peer, peer_port, inbound, outbound, adaptation } => Event::Up {
                association: *association,
                peer: &self.addresses[peer.clone()],
                peer_port: *peer_port,
                inbound_streams: *inbound,
                outbound_streams: *outbound,
                adaptation: *adaptation,
            },
            StoredEvent::Data { association, stream, ppid, octets } => Event::Data {
                association: *association,
                stream: *stream,
                ppid: *ppid,
                octets: &self.octets[octets.clone()],
            },
            StoredEvent::Unacknowledged { association, stream, ppid, octets } => Event::Unacknowledged {
                association: *association,
                stream: *stream,
                ppid: *ppid,
                octets: &self.octets[octets.clone()],
            },
            StoredEvent::Plain(e) => e.clone(),
        })
    }

    /// Adds an event and copies what it borrows.
    pub fn push(&mut self, event: Event<'_>) {
        let record = match event {
            Event::Up { association, peer, peer_port, inbound_streams, outbound_streams, adaptation } => {
                let start = self.addresses.len();
                self.addresses.extend_from_slice(peer);
                let peer = start..self.addresses.len();
                StoredEvent::Up {
                    association,
                    peer,
                    peer_port,
                    inbound: inbound_streams,
                    outbound: outbound_streams,
                    adaptation,
                }
            }
            Event::Data { association, stream, ppid, octets } => {
                return self.push_data(association, stream, ppid, core::iter::once(octets));
            }
            Event::Unacknowledged { association, stream, ppid, octets } => {
                let start = self.octets.len();
                self.octets.extend_from_slice(octets);
                StoredEvent::Unacknowledged { association, stream, ppid, octets: start..self.octets.len() }
            }
            Event::Down { association, reason } => StoredEvent::Plain(Event::Down { association, reason }),
            Event::Restarted { association, inbound_streams, outbound_streams, adaptation } => {
                StoredEvent::Plain(Event::Restarted {
                    association,
                    inbound_streams,
                    outbound_streams,
                    adaptation,
                })
            }
            Event::PathDown { association, remote } => {
                StoredEvent::Plain(Event::PathDown { association, remote })
            }
            Event::PathUp { association, remote } => {
                StoredEvent::Plain(Event::PathUp { association, remote })
            }
            Event::Refused { association, refusal } => {
                StoredEvent::Plain(Event::Refused { association, refusal })
            }
        };
        self.records.push(record);
    }

    /// Adds a message that is given in parts.
    pub(crate) fn push_data<'a>(
        &mut self,
        association: AssociationId,
        stream: u16,
        ppid: u32,
        parts: impl Iterator<Item = &'a [u8]>,
    ) {
        let start = self.octets.len();
        for part in parts {
            self.octets.extend_from_slice(part);
        }
        let octets = start..self.octets.len();
        self.records.push(StoredEvent::Data { association, stream, ppid, octets });
    }
}

/// Packets to send, each from its SCTP common header on, checksum included.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    list: Vec<(Path, Range<usize>)>,
    octets: Vec<u8>,
    /// Where the packet that is being written began.
    start: usize,
}

impl Packets {
    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Empties it, and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.octets.clear();
        self.start = 0;
    }

    /// The packets in the order in which they should leave.
    pub fn iter(&self) -> impl Iterator<Item = (Path, &[u8])> {
        self.list.iter().map(|(path, octets)| (*path, &self.octets[octets.clone()]))
    }

    /// Begins a packet; chunks follow, then [`Packets::close`].
    pub(crate) fn open(&mut self, source: u16, destination: u16, tag: u32) {
        self.start = self.octets.len();
        self.octets.extend_from_slice(&source.to_be_bytes());
        self.octets.extend_from_slice(&destination.to_be_bytes());
        self.octets.extend_from_slice(&tag.to_be_bytes());
        self.octets.extend_from_slice(&[0; 4]);
    }

    /// Octets of the packet being written, common header included.
    pub(crate) fn open_len(&self) -> usize {
        self.octets.len() - self.start
    }

    /// The buffer, to append whole, padded chunks to.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.octets
    }

    /// Sets the checksum of the packet being written (RFC 9260 §6.8) and completes it.
    pub(crate) fn close(&mut self, path: Path) {
        let packet = &mut self.octets[self.start..];
        let checksum = crc32c::crc32c(packet).to_le_bytes();
        packet[8..12].copy_from_slice(&checksum);
        self.list.push((path, self.start..self.octets.len()));
        self.start = self.octets.len();
    }
}

/// The outputs of an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// For the user.
    pub events: Events,
    /// For the network.
    pub packets: Packets,
}
