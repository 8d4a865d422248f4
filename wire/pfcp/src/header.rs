//! The message header, and the datagram that carries one message or a bundle.

use whimbrel_ids::{DecodeError, Reader, Seid};

/// The protocol version of this release (TS 29.244 §7.2.2.2).
pub const VERSION: u8 = 1;

/// The largest sequence number: 24 bits (TS 29.244 §6.4).
pub const SEQUENCE_MAX: u32 = 0xff_ffff;

/// The code points of table 7.3-1.
#[allow(missing_docs, reason = "each name is the message's own")]
pub mod message_type {
    pub const HEARTBEAT_REQUEST: u8 = 1;
    pub const HEARTBEAT_RESPONSE: u8 = 2;
    pub const PFD_MANAGEMENT_REQUEST: u8 = 3;
    pub const PFD_MANAGEMENT_RESPONSE: u8 = 4;
    pub const ASSOCIATION_SETUP_REQUEST: u8 = 5;
    pub const ASSOCIATION_SETUP_RESPONSE: u8 = 6;
    pub const ASSOCIATION_UPDATE_REQUEST: u8 = 7;
    pub const ASSOCIATION_UPDATE_RESPONSE: u8 = 8;
    pub const ASSOCIATION_RELEASE_REQUEST: u8 = 9;
    pub const ASSOCIATION_RELEASE_RESPONSE: u8 = 10;
    pub const VERSION_NOT_SUPPORTED_RESPONSE: u8 = 11;
    pub const NODE_REPORT_REQUEST: u8 = 12;
    pub const NODE_REPORT_RESPONSE: u8 = 13;
    pub const SESSION_ESTABLISHMENT_REQUEST: u8 = 50;
    pub const SESSION_ESTABLISHMENT_RESPONSE: u8 = 51;
    pub const SESSION_MODIFICATION_REQUEST: u8 = 52;
    pub const SESSION_MODIFICATION_RESPONSE: u8 = 53;
    pub const SESSION_DELETION_REQUEST: u8 = 54;
    pub const SESSION_DELETION_RESPONSE: u8 = 55;
    pub const SESSION_REPORT_REQUEST: u8 = 56;
    pub const SESSION_REPORT_RESPONSE: u8 = 57;
}

/// The header of a message (TS 29.244 §7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which message follows ([`message_type`]).
    pub message_type: u8,
    /// The receiver's session; `None` for node related messages. Zero if the sender does not know it (TS 29.244
    /// §7.2.2.4.2).
    pub seid: Option<Seid>,
    /// Sequence number, 24 bits, chosen by the sender of the request and returned in the response.
    pub sequence: u32,
    /// Message priority, 0 (highest) to 15, where the sender gave one (TS 29.244 §7.2.2.1).
    pub priority: Option<u8>,
    /// Another message follows in the same datagram.
    pub follow_on: bool,
}

/// Why a datagram has no readable header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// A later version: answered with Version Not Supported Response (TS 29.244 §7.6.2).
    Version {
        /// Sequence number to answer with, where this release's place of it holds one.
        sequence: u32,
    },
    /// Not a PFCP message of the length that it claims: discarded (TS 29.244 §7.6.3).
    Malformed(DecodeError),
}

impl From<DecodeError> for HeaderError {
    fn from(e: DecodeError) -> Self {
        Self::Malformed(e)
    }
}

/// One message as received: its header, its body, and what follows it in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header before the elements.
    pub header: Header,
    /// The information elements.
    pub body: &'a [u8],
    /// The octets behind this message (the next message if `header.follow_on`, TS 29.244 §7.2.1A).
    pub rest: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Splits the first message off a datagram. Errors: [`HeaderError`].
    pub fn parse(octets: &'a [u8]) -> Result<Self, HeaderError> {
        let mut r = Reader::new(octets);
        let first = r.u8("PFCP header")?;
        let message_type = r.u8("message type")?;
        let length = r.u16("message length")?;
        if first >> 5 != VERSION {
            let sequence = octets.get(4..7).map_or(0, |s| u32::from_be_bytes([0, s[0], s[1], s[2]]));
            return Err(HeaderError::Version { sequence });
        }
        let mut m = r.sub(usize::from(length), "message")?;
        let seid = if first & 1 != 0 { Some(Seid(m.u64("SEID")?)) } else { None };
        let sequence = m.u24("sequence number")?;
        let last = m.u8("message priority")?;
        let header = Header {
            message_type,
            seid,
            sequence,
            priority: (first & 2 != 0).then_some(last >> 4),
            follow_on: first & 4 != 0,
        };
        Ok(Self { header, body: m.rest(), rest: r.rest() })
    }
}

impl Header {
    /// Begins a message in `out`; [`finish`] sets its length once the body is written. Returns its start.
    pub(crate) fn begin(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let flags = u8::from(self.seid.is_some())
            | u8::from(self.priority.is_some()) << 1
            | u8::from(self.follow_on) << 2;
        out.extend_from_slice(&[VERSION << 5 | flags, self.message_type, 0, 0]);
        if let Some(seid) = self.seid {
            out.extend_from_slice(&seid.0.to_be_bytes());
        }
        let [_, a, b, c] = self.sequence.to_be_bytes();
        out.extend_from_slice(&[a, b, c, self.priority.unwrap_or(0) << 4]);
        start
    }
}

/// Sets the length of the message that begins at `start` and ends where `out` does.
///
/// Panics: over 65,535 octets, which the bounds on a session's rules keep out of reach.
pub(crate) fn finish(start: usize, out: &mut [u8]) {
    let len = u16::try_from(out.len() - start - 4).expect("a message of ours fits its length field");
    out[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
}
