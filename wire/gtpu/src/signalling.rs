//! Path and tunnel management messages (TS 29.281 §7.2, §7.3).

use std::net::IpAddr;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader, Teid};

use crate::extension::ExtensionType;
use crate::header::{FIRST_OCTET, message_type};

/// Information element types (TS 29.281 table 8.1-1).
mod ie {
    pub(super) const RECOVERY: u8 = 14;
    pub(super) const TEID_DATA_I: u8 = 16;
    pub(super) const GTPU_PEER_ADDRESS: u8 = 133;
    pub(super) const EXTENSION_HEADER_TYPE_LIST: u8 = 141;
}

/// Octets of the longest message built here: error indication with a UDP port and an IPv6 peer.
pub const SIGNALLING_OCTETS_MAX: usize = 40;

/// A message built here, whole.
#[derive(Clone, Copy, Debug)]
pub struct SignallingOctets {
    octets: [u8; SIGNALLING_OCTETS_MAX],
    len: usize,
}

impl AsRef<[u8]> for SignallingOctets {
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

impl SignallingOctets {
    /// A path message: TEID zero, sequence number present.
    fn path(message_type: u8, sequence: u16) -> Self {
        let mut m = Self { octets: [0; SIGNALLING_OCTETS_MAX], len: 0 };
        m.push(&[FIRST_OCTET | 2, message_type, 0, 0, 0, 0, 0, 0]);
        m.push(&sequence.to_be_bytes());
        m.push(&[0, 0]);
        m
    }

    fn push(&mut self, octets: &[u8]) {
        self.octets[self.len..self.len + octets.len()].copy_from_slice(octets);
        self.len += octets.len();
    }

    fn end(mut self) -> Self {
        let length = (self.len - 8) as u16;
        self.octets[2..4].copy_from_slice(&length.to_be_bytes());
        self
    }
}

/// Echo Request (TS 29.281 §7.2.1).
pub fn echo_request(sequence: u16) -> SignallingOctets {
    SignallingOctets::path(message_type::ECHO_REQUEST, sequence).end()
}

/// Echo Response (TS 29.281 §7.2.2). Its Recovery element is zero, and receivers ignore it.
pub fn echo_response(sequence: u16) -> SignallingOctets {
    let mut m = SignallingOctets::path(message_type::ECHO_RESPONSE, sequence);
    m.push(&[ie::RECOVERY, 0]);
    m.end()
}

/// The sequence number of an Echo Response (TS 29.281 §7.2.2) whose length field promises more octets than came.
///
/// Deviation: TS 29.281 §5.1 has the length count what follows the first eight octets, and §7.2.2 has a Recovery element there. The gNB of
/// srsRAN 4G sends length 8 with 4 octets, which hold the sequence number; it is accepted.
pub fn echo_response_sequence(octets: &[u8]) -> Option<u16> {
    let (header, _) = octets.split_first_chunk::<12>()?;
    let [first, message_type, _, _, _, _, _, _, s0, s1, _, _] = *header;
    let is_response = first & 0xf2 == FIRST_OCTET | 2 && message_type == message_type::ECHO_RESPONSE;
    is_response.then_some(u16::from_be_bytes([s0, s1]))
}

/// Supported Extension Headers Notification (TS 29.281 §7.2.3).
pub fn supported_extension_headers_notification(sequence: u16) -> SignallingOctets {
    let mut m = SignallingOctets::path(message_type::SUPPORTED_EXTENSION_HEADERS_NOTIFICATION, sequence);
    m.push(&[ie::EXTENSION_HEADER_TYPE_LIST, ExtensionType::SUPPORTED.len() as u8]);
    m.push(&ExtensionType::SUPPORTED.map(|t| t.0));
    m.end()
}

/// Error Indication (TS 29.281 §7.3.1): the tunnel that a received G-PDU named, and the address at which it
/// arrived. `udp_port` is the source port of that G-PDU.
pub fn error_indication(teid: Teid, arrived_at: IpAddr, udp_port: u16) -> SignallingOctets {
    let mut m = SignallingOctets::path(message_type::ERROR_INDICATION, 0);
    m.octets[0] |= 4;
    m.octets[11] = ExtensionType::UDP_PORT.0;
    let [a, b] = udp_port.to_be_bytes();
    m.push(&[1, a, b, ExtensionType::NONE.0, ie::TEID_DATA_I]);
    m.push(&teid.0.to_be_bytes());
    m.push(&[ie::GTPU_PEER_ADDRESS, 0, if arrived_at.is_ipv4() { 4 } else { 16 }]);
    match arrived_at {
        IpAddr::V4(a) => m.push(&a.octets()),
        IpAddr::V6(a) => m.push(&a.octets()),
    }
    m.end()
}

/// The content of an error indication: the peer has no such tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorIndication {
    /// The tunnel, as the peer names it.
    pub teid: Teid,
    /// The peer's address of that tunnel.
    pub peer: IpAddr,
}

impl ErrorIndication {
    /// Reads the information elements of the message. Errors: [`DecodeError`] where one of the two is
    /// missing or short.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(payload);
        let (mut teid, mut peer) = (None, None);
        while !r.is_empty() {
            match r.u8("IE type")? {
                ie::TEID_DATA_I => teid = Some(Teid(r.u32("TEID Data I")?)),
                ie::RECOVERY => {
                    r.u8("Recovery")?;
                }
                ie::GTPU_PEER_ADDRESS => {
                    let len = r.u16("GTP-U Peer Address")?;
                    let mut v = r.sub(len.into(), "GTP-U Peer Address")?;
                    peer = Some(match len {
                        4 => IpAddr::from(v.array::<4>("GTP-U Peer Address")?),
                        16 => IpAddr::from(v.array::<16>("GTP-U Peer Address")?),
                        _ => return Err(v.error(DecodeErrorKind::InvalidLength, "GTP-U Peer Address")),
                    });
                }
                // Elements of type, length and value can be passed over; others end what can be read.
                t if t >= 128 => {
                    let len = r.u16("IE length")?;
                    r.take(len.into(), "IE value")?;
                }
                _ => break,
            }
        }
        let missing = |ie| r.error(DecodeErrorKind::MissingMandatory, ie);
        Ok(Self {
            teid: teid.ok_or_else(|| missing("TEID Data I"))?,
            peer: peer.ok_or_else(|| missing("GTP-U Peer Address"))?,
        })
    }
}
