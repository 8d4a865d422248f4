//! The header (TS 29.281 §5.1, §5.2.1, §5.2.2.7): read as a view, written in front of a packet.

use core::fmt;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Qfi, Reader, Teid};

use crate::container::PduSessionInformation;
use crate::extension::{ExtensionType, Role};

/// The code points of TS 29.281 table 6.1-1.
#[allow(missing_docs, reason = "each name is the message's own")]
pub mod message_type {
    pub const ECHO_REQUEST: u8 = 1;
    pub const ECHO_RESPONSE: u8 = 2;
    pub const ERROR_INDICATION: u8 = 26;
    pub const SUPPORTED_EXTENSION_HEADERS_NOTIFICATION: u8 = 31;
    pub const END_MARKER: u8 = 254;
    pub const G_PDU: u8 = 255;
}

/// Version 1, protocol type GTP (TS 29.281 §5.1).
pub(crate) const FIRST_OCTET: u8 = 0x30;

/// Octets of the longest header that [`GpduHeader`] writes: 12, and a PDU session container with paging policy.
pub const HEADER_OCTETS_MAX: usize = 20;

/// Most extension headers read in one message: figure 5.2.1-3 has nine types of the user plane, and none need repeat.
const EXTENSIONS_MAX: usize = 9;

/// Where the type of the first extension header stands.
const FIRST_TYPE_AT: usize = 11;

/// Why a datagram on the GTP-U port is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GtpuError {
    /// Not GTP-U version 1, or malformed: discarded.
    Malformed(DecodeError),
    /// An extension header that must be understood is not known: discarded, and the sender gets Supported Extension
    /// Headers Notification (TS 29.281 §5.2.1).
    UnknownExtension(ExtensionType),
}

impl From<DecodeError> for GtpuError {
    fn from(e: DecodeError) -> Self {
        Self::Malformed(e)
    }
}

impl fmt::Display for GtpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(e) => e.fmt(f),
            Self::UnknownExtension(t) => {
                write!(f, "extension header {:#04x} must be understood and is not", t.0)
            }
        }
    }
}

/// A received message: its header, checked, and its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gtpu<'a> {
    /// The tunnel; zero for path messages.
    pub teid: Teid,
    /// Which message ([`message_type`]).
    pub message_type: u8,
    /// Sequence number, where given.
    pub sequence: Option<u16>,
    /// The PDU session container, where given.
    pub pdu_session: Option<PduSessionInformation>,
    /// UDP port of the extension header of that name (TS 29.281 §5.2.2.1).
    pub udp_port: Option<u16>,
    /// Where the payload begins in the datagram.
    pub payload_at: usize,
    /// The T-PDU, or the information elements.
    pub payload: &'a [u8],
}

impl<'a> Gtpu<'a> {
    /// Reads the payload of a UDP datagram, for the endpoint of a tunnel. Errors: [`GtpuError`].
    #[inline]
    pub fn parse(octets: &'a [u8]) -> Result<Self, GtpuError> {
        match Self::parse_usual(octets) {
            Some(usual) => Ok(usual),
            None => Self::parse_any(octets, Role::EndpointReceiver),
        }
    }

    /// Reads the payload of a UDP datagram, for a node that forwards it with its extension headers: fewer of them must be understood.
    /// Errors: [`GtpuError`].
    pub fn parse_in_transit(octets: &'a [u8]) -> Result<Self, GtpuError> {
        Self::parse_any(octets, Role::IntermediateNode)
    }

    /// Reads the common case: a G-PDU with an uplink PDU session container as its only extension header.
    #[inline]
    fn parse_usual(octets: &'a [u8]) -> Option<Self> {
        let (header, rest) = octets.split_first_chunk::<16>()?;
        let [first, message_type, l0, l1, t0, t1, t2, t3, _, _, _, next, units, kind, flow, last] = *header;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let usual = first == FIRST_OCTET | 4
            && message_type == message_type::G_PDU
            && (next, units, last) == (ExtensionType::PDU_SESSION_CONTAINER.0, 1, ExtensionType::NONE.0)
            && kind >> 4 == 1;
        Some(Self {
            teid: Teid(u32::from_be_bytes([t0, t1, t2, t3])),
            message_type,
            sequence: None,
            pdu_session: Some(PduSessionInformation::Ul { qfi: Qfi::new(flow & 0x3f)? }),
            udp_port: None,
            payload_at: header.len(),
            payload: rest.get(..length.checked_sub(header.len() - 8)?)?,
        })
        .filter(|_| usual)
    }

    fn parse_any(octets: &'a [u8], role: Role) -> Result<Self, GtpuError> {
        let mut r = Reader::new(octets);
        let first = r.u8("GTP-U header")?;
        if first >> 5 != 1 || first & 0x10 == 0 {
            return Err(DecodeError::new(DecodeErrorKind::InvalidValue, "GTP-U version", 0).into());
        }
        let message_type = r.u8("message type")?;
        let length = r.u16("GTP-U length")?;
        let teid = Teid(r.u32("TEID")?);
        let mut r = r.sub(usize::from(length), "GTP-U length")?;
        let mut m = Self {
            teid,
            message_type,
            sequence: None,
            pdu_session: None,
            udp_port: None,
            payload_at: 8,
            payload: &[],
        };
        if first & 7 != 0 {
            let sequence = r.u16("sequence number")?;
            r.u8("N-PDU number")?;
            let next = ExtensionType(r.u8("next extension header type")?);
            m.sequence = (first & 2 != 0).then_some(sequence);
            if first & 4 != 0 {
                m.read_extensions(next, role, &mut r)?;
            }
        }
        m.payload_at = r.offset();
        m.payload = r.rest();
        Ok(m)
    }

    fn read_extensions(
        &mut self,
        mut next: ExtensionType,
        role: Role,
        r: &mut Reader<'a>,
    ) -> Result<(), GtpuError> {
        for _ in 0..EXTENSIONS_MAX {
            if next == ExtensionType::NONE {
                return Ok(());
            }
            let at = r.offset();
            let units = usize::from(r.u8("extension header length")?);
            if units == 0 {
                return Err(
                    DecodeError::new(DecodeErrorKind::InvalidLength, "extension header length", at).into()
                );
            }
            let content = r.take(units * 4 - 2, "extension header")?;
            match next {
                ExtensionType::PDU_SESSION_CONTAINER => {
                    self.pdu_session = Some(PduSessionInformation::parse(content, at + 1)?);
                }
                ExtensionType::UDP_PORT => {
                    self.udp_port = content.first_chunk().map(|p| u16::from_be_bytes(*p));
                }
                _ if next.must_be_understood_by(role) && !next.is_supported() => {
                    return Err(GtpuError::UnknownExtension(next));
                }
                _ => {}
            }
            next = ExtensionType(r.u8("next extension header type")?);
        }
        if next == ExtensionType::NONE {
            Ok(())
        } else {
            Err(r.error(DecodeErrorKind::TooMany, "extension header").into())
        }
    }
}

/// Removes the extension headers that an intermediate node does not forward from a message that [`Gtpu::parse_in_transit`] has read.
/// Returns how many octets at the front are no longer part of it.
///
/// Spec: TS 29.281 §5.2.1, figure 5.2.1-2.
pub fn remove_extensions_in_transit(octets: &mut [u8]) -> usize {
    let (mut removed, mut type_at, mut at) = (0, FIRST_TYPE_AT, FIRST_TYPE_AT + 1);
    if octets.first().is_none_or(|first| first & 4 == 0) {
        return 0;
    }
    for _ in 0..EXTENSIONS_MAX {
        let m = &mut octets[removed..];
        let (Some(&kind), Some(&units)) = (m.get(type_at), m.get(at)) else { break };
        let n = usize::from(units) * 4;
        if ExtensionType(kind) == ExtensionType::NONE || n == 0 || at + n > m.len() {
            break;
        }
        if ExtensionType(kind).is_removed_in_transit() {
            // What is before it moves to where it ends, and its own next type takes its place.
            m[type_at] = m[at + n - 1];
            m.copy_within(..at, n);
            removed += n;
        } else {
            (type_at, at) = (at + n - 1, at + n);
        }
    }
    if let Some(length) = octets.get_mut(removed + 2..removed + 4).filter(|_| removed > 0) {
        let n = u16::from_be_bytes([length[0], length[1]]).saturating_sub(removed as u16);
        length.copy_from_slice(&n.to_be_bytes());
    }
    removed
}

/// The header of the G-PDUs of one tunnel and QoS flow, or of its end marker: built once, written before
/// each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpduHeader {
    octets: [u8; HEADER_OCTETS_MAX],
    len: u8,
}

impl GpduHeader {
    /// For G-PDUs into `teid`, with a PDU session container where given.
    #[inline]
    pub const fn new(teid: Teid, container: Option<PduSessionInformation>) -> Self {
        let mut octets = [0; HEADER_OCTETS_MAX];
        octets[0] = FIRST_OCTET;
        octets[1] = message_type::G_PDU;
        let t = teid.0.to_be_bytes();
        (octets[4], octets[5], octets[6], octets[7]) = (t[0], t[1], t[2], t[3]);
        let Some(container) = container else {
            return Self { octets, len: 8 };
        };
        octets[0] |= 4;
        octets[11] = ExtensionType::PDU_SESSION_CONTAINER.0;
        let (extension, n) = container.extension_header();
        let mut i = 0;
        while i < n {
            octets[12 + i] = extension[i];
            i += 1;
        }
        Self { octets, len: 12 + n as u8 }
    }

    /// The same tunnel's end marker (TS 29.281 §7.3.2): of [`Self::octets_len`] octets.
    pub const fn end_marker(&self) -> [u8; HEADER_OCTETS_MAX] {
        let mut octets = self.octets;
        octets[1] = message_type::END_MARKER;
        octets[3] = self.len - 8;
        octets
    }

    /// Octets of the header.
    pub const fn octets_len(&self) -> usize {
        self.len as usize
    }

    /// Writes the header so that it ends where `headroom` does, in front of a T-PDU of `payload_len` octets.
    ///
    /// Returns how many octets it took; `None`, with nothing written, if they do not fit or the T-PDU exceeds the
    /// length field.
    #[inline]
    pub fn write_before(&self, payload_len: usize, headroom: &mut [u8]) -> Option<usize> {
        let n = usize::from(self.len);
        let length = u16::try_from(payload_len + n - 8).ok()?;
        let start = headroom.len().checked_sub(n)?;
        let to = &mut headroom[start..];
        to.copy_from_slice(&self.octets[..n]);
        to[2..4].copy_from_slice(&length.to_be_bytes());
        Some(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_header_is_read_as_any_other() {
        let container = PduSessionInformation::Ul { qfi: Qfi::new(9).unwrap() };
        let header = GpduHeader::new(Teid(0x0102_0304), Some(container));
        let mut usual = vec![0; header.octets_len()];
        header.write_before(3, &mut usual).unwrap();
        usual.extend_from_slice(&[7, 8, 9, 10]);
        assert!(Gtpu::parse_usual(&usual).is_some());
        let (mut quick, mut other) = (0, 0);
        for at in 0..usual.len() {
            for value in 0..=u8::MAX {
                for cut in [0, 1, 2, 9] {
                    let mut octets = usual.clone();
                    octets[at] = value;
                    octets.truncate(usual.len() - cut);
                    match Gtpu::parse_usual(&octets) {
                        Some(m) => {
                            assert_eq!(Gtpu::parse_any(&octets, Role::EndpointReceiver), Ok(m));
                            quick += 1;
                        }
                        None => other += 1,
                    }
                }
            }
        }
        assert!(quick > 1000 && other > 1000, "{quick} {other}");
    }
}
