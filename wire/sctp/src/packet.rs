//! The layout of packets, chunks and parameters (RFC 9260 §3), read in place and written to the end of a buffer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Octets of the common header (RFC 9260 §3.1).
pub(crate) const HEADER_LEN: usize = 12;
/// Octets of a DATA chunk before its user data (RFC 9260 §3.3.1).
pub(crate) const DATA_HEADER_LEN: usize = 16;
/// The smallest window that a peer may advertise in INIT (RFC 9260 §3.3.2).
pub(crate) const A_RWND_MIN: u32 = 1500;

/// Chunk types (RFC 9260 §3.2).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const INIT: u8 = 1;
    pub(crate) const INIT_ACK: u8 = 2;
    pub(crate) const SACK: u8 = 3;
    pub(crate) const HEARTBEAT: u8 = 4;
    pub(crate) const HEARTBEAT_ACK: u8 = 5;
    pub(crate) const ABORT: u8 = 6;
    pub(crate) const SHUTDOWN: u8 = 7;
    pub(crate) const SHUTDOWN_ACK: u8 = 8;
    pub(crate) const ERROR: u8 = 9;
    pub(crate) const COOKIE_ECHO: u8 = 10;
    pub(crate) const COOKIE_ACK: u8 = 11;
    pub(crate) const SHUTDOWN_COMPLETE: u8 = 14;
}

/// Flags of a DATA chunk (RFC 9260 §3.3.1).
pub(crate) mod data_flag {
    pub(crate) const END: u8 = 1;
    pub(crate) const BEGINNING: u8 = 2;
    pub(crate) const UNORDERED: u8 = 4;
    pub(crate) const IMMEDIATE: u8 = 8;
}

/// The T bit of ABORT and SHUTDOWN COMPLETE: the verification tag is the receiver's own, reflected (RFC 9260 §8.5.1).
pub(crate) const T_BIT: u8 = 1;

/// Parameter types (RFC 9260 §3.3.2.1).
pub(crate) mod parameter {
    pub(crate) const HEARTBEAT_INFO: u16 = 1;
    pub(crate) const IPV4_ADDRESS: u16 = 5;
    pub(crate) const IPV6_ADDRESS: u16 = 6;
    pub(crate) const STATE_COOKIE: u16 = 7;
    pub(crate) const UNRECOGNIZED: u16 = 8;
    pub(crate) const COOKIE_PRESERVATIVE: u16 = 9;
    pub(crate) const HOST_NAME_ADDRESS: u16 = 11;
    pub(crate) const SUPPORTED_ADDRESS_TYPES: u16 = 12;
    /// RFC 5061 §4.2.6.
    pub(crate) const ADAPTATION_LAYER_INDICATION: u16 = 0xc006;
}

/// Error causes (RFC 9260 §3.3.10).
pub(crate) mod cause {
    pub(crate) const INVALID_STREAM_IDENTIFIER: u16 = 1;
    pub(crate) const STALE_COOKIE: u16 = 3;
    pub(crate) const OUT_OF_RESOURCE: u16 = 4;
    pub(crate) const UNRESOLVABLE_ADDRESS: u16 = 5;
    pub(crate) const UNRECOGNIZED_CHUNK_TYPE: u16 = 6;
    pub(crate) const INVALID_MANDATORY_PARAMETER: u16 = 7;
    pub(crate) const UNRECOGNIZED_PARAMETERS: u16 = 8;
    pub(crate) const NO_USER_DATA: u16 = 9;
    pub(crate) const COOKIE_RECEIVED_WHILE_SHUTTING_DOWN: u16 = 10;
    pub(crate) const RESTART_WITH_NEW_ADDRESSES: u16 = 11;
    pub(crate) const USER_INITIATED_ABORT: u16 = 12;
    pub(crate) const PROTOCOL_VIOLATION: u16 = 13;
}

/// Why a packet was dropped unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadPacket {
    Malformed,
    Checksum,
}

/// A received packet whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) source: u16,
    pub(crate) destination: u16,
    pub(crate) tag: u32,
    pub(crate) chunks: Chunks<'a>,
}

impl<'a> Packet<'a> {
    /// Checks length and CRC32c (RFC 9260 §6.8).
    pub(crate) fn parse(octets: &'a [u8]) -> Result<Self, BadPacket> {
        let Some((header, chunks)) = octets.split_first_chunk::<HEADER_LEN>() else {
            return Err(BadPacket::Malformed);
        };
        let [s0, s1, d0, d1, t0, t1, t2, t3, c0, c1, c2, c3] = *header;
        let source = u16::from_be_bytes([s0, s1]);
        let destination = u16::from_be_bytes([d0, d1]);
        if source == 0 || destination == 0 {
            return Err(BadPacket::Malformed);
        }
        let mut crc = crc32c::crc32c(&[s0, s1, d0, d1, t0, t1, t2, t3, 0, 0, 0, 0]);
        crc = crc32c::crc32c_append(crc, chunks);
        if crc.to_le_bytes() != [c0, c1, c2, c3] {
            return Err(BadPacket::Checksum);
        }
        Ok(Self { source, destination, tag: u32::from_be_bytes([t0, t1, t2, t3]), chunks: Chunks(chunks) })
    }
}

/// One chunk; `whole` is it with its header, without padding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) value: &'a [u8],
    pub(crate) whole: &'a [u8],
}

/// The chunks of a packet, up to the first whose length is impossible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks<'a>(&'a [u8]);

/// Splits a type-length-value item off, whose length counts its own four octets but no padding.
fn split_tlv(octets: &[u8]) -> Option<([u8; 2], &[u8], &[u8])> {
    let [t0, t1, l0, l1, ..] = *octets else { return None };
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    let whole = octets.get(..len).filter(|w| w.len() >= 4)?;
    let rest = octets.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    Some(([t0, t1], whole, rest))
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;
    fn next(&mut self) -> Option<Chunk<'a>> {
        let ([kind, flags], whole, rest) = split_tlv(self.0)?;
        self.0 = rest;
        Some(Chunk { kind, flags, value: whole.get(4..)?, whole })
    }
}

/// One parameter or error cause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter<'a> {
    pub(crate) kind: u16,
    pub(crate) value: &'a [u8],
    pub(crate) whole: &'a [u8],
}

/// Parameters, up to the first whose length is impossible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Parameters<'a> {
    type Item = Parameter<'a>;
    fn next(&mut self) -> Option<Parameter<'a>> {
        let (kind, whole, rest) = split_tlv(self.0)?;
        self.0 = rest;
        Some(Parameter { kind: u16::from_be_bytes(kind), value: whole.get(4..)?, whole })
    }
}

/// What the two high bits of an unknown chunk or parameter type ask for (RFC 9260 §3.2, §3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownTypeAction {
    pub(crate) stop: bool,
    pub(crate) report: bool,
}

impl UnknownTypeAction {
    pub(crate) fn of_chunk(kind: u8) -> Self {
        Self { stop: kind & 0x80 == 0, report: kind & 0x40 != 0 }
    }

    pub(crate) fn of_parameter(kind: u16) -> Self {
        Self { stop: kind & 0x8000 == 0, report: kind & 0x4000 != 0 }
    }
}

/// The fixed part of INIT and INIT ACK (RFC 9260 §3.3.2, §3.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) tag: u32,
    pub(crate) a_rwnd: u32,
    pub(crate) outbound_streams: u16,
    pub(crate) inbound_streams: u16,
    pub(crate) tsn: u32,
}

impl Init {
    /// The fixed part and the parameters behind it.
    pub(crate) fn parse(value: &[u8]) -> Option<(Self, Parameters<'_>)> {
        let (fixed, rest) = value.split_first_chunk::<16>()?;
        let init = Self {
            tag: be32(fixed, 0)?,
            a_rwnd: be32(fixed, 4)?,
            outbound_streams: be16(fixed, 8)?,
            inbound_streams: be16(fixed, 10)?,
            tsn: be32(fixed, 12)?,
        };
        Some((init, Parameters(rest)))
    }

    /// Whether the mandatory values are allowed (RFC 9260 §3.3.2).
    pub(crate) fn is_valid(&self) -> bool {
        self.tag != 0 && self.outbound_streams != 0 && self.inbound_streams != 0 && self.a_rwnd >= A_RWND_MIN
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tag.to_be_bytes());
        out.extend_from_slice(&self.a_rwnd.to_be_bytes());
        out.extend_from_slice(&self.outbound_streams.to_be_bytes());
        out.extend_from_slice(&self.inbound_streams.to_be_bytes());
        out.extend_from_slice(&self.tsn.to_be_bytes());
    }
}

/// Two octets at `at`, big-endian.
pub(crate) fn be16(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk::<2>().map(|o| u16::from_be_bytes(*o))
}

/// Four octets at `at`, big-endian.
pub(crate) fn be32(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk::<4>().map(|o| u32::from_be_bytes(*o))
}

/// Eight octets at `at`, big-endian.
pub(crate) fn be64(octets: &[u8], at: usize) -> Option<u64> {
    octets.get(at..)?.first_chunk::<8>().map(|o| u64::from_be_bytes(*o))
}

/// Writes a chunk whose value `body` appends; length and padding follow from it.
pub(crate) fn write_chunk(out: &mut Vec<u8>, kind: u8, flags: u8, body: impl FnOnce(&mut Vec<u8>)) {
    write_tlv(out, [kind, flags], body);
}

/// Writes a parameter or error cause whose value `body` appends.
pub(crate) fn write_parameter(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    write_tlv(out, kind.to_be_bytes(), body);
}

fn write_tlv(out: &mut Vec<u8>, kind: [u8; 2], body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[kind[0], kind[1], 0, 0]);
    body(out);
    // What we write is bounded by the MTU or by what a 16-bit length brought in.
    let len = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
    out[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
    pad(out, start);
}

/// Pads what began at `start` to a multiple of four octets.
pub(crate) fn pad(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    out.resize(start + len.next_multiple_of(4), 0);
}

/// Writes an address parameter (RFC 9260 §3.3.2.1.1, §3.3.2.1.2).
pub(crate) fn write_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => write_parameter(out, parameter::IPV4_ADDRESS, |o| o.extend_from_slice(&a.octets())),
        IpAddr::V6(a) => write_parameter(out, parameter::IPV6_ADDRESS, |o| o.extend_from_slice(&a.octets())),
    }
}

/// Reads an address parameter; `None` if it is another parameter or has a wrong length.
pub(crate) fn read_address(p: &Parameter<'_>) -> Option<IpAddr> {
    match p.kind {
        parameter::IPV4_ADDRESS => Some(Ipv4Addr::from(<[u8; 4]>::try_from(p.value).ok()?).into()),
        parameter::IPV6_ADDRESS => Some(Ipv6Addr::from(<[u8; 16]>::try_from(p.value).ok()?).into()),
        _ => None,
    }
}

/// Whether a TSN or SSN is later in serial arithmetic (RFC 9260 §1.6).
pub(crate) fn tsn_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // RFC 9260 §3.2: the length excludes padding; an impossible one ends the walk
    fn chunks_end_at_an_impossible_length() {
        let octets = [0, 3, 0, 5, 9, 0, 0, 0, 11, 0, 0, 4, 5, 0, 0, 3];
        let kinds: Vec<_> = Chunks(&octets).map(|c| (c.kind, c.value.len())).collect();
        assert_eq!(kinds, [(0, 1), (11, 0)]);
        assert!(Chunks(&[1, 0, 0, 9, 0]).next().is_none());
        assert_eq!(Chunks(&[1, 0, 0, 5, 7]).map(|c| c.value.len()).collect::<Vec<_>>(), [1], "unpadded last");
    }

    #[test] // RFC 3720 appendix B.4 gives this check value of CRC32c; RFC 9260 §6.8 sends it low octet first
    fn checksum_is_crc32c() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test] // RFC 9260 §3.2
    fn unknown_types_tell_what_to_do() {
        assert_eq!(UnknownTypeAction::of_chunk(0x3f), UnknownTypeAction { stop: true, report: false });
        assert_eq!(UnknownTypeAction::of_chunk(0x7f), UnknownTypeAction { stop: true, report: true });
        assert_eq!(UnknownTypeAction::of_chunk(0xbf), UnknownTypeAction { stop: false, report: false });
        assert_eq!(UnknownTypeAction::of_parameter(0xc000), UnknownTypeAction { stop: false, report: true });
    }

    #[test] // RFC 9260 §1.6
    fn serial_numbers_wrap() {
        assert!(tsn_after(0, u32::MAX));
        assert!(!tsn_after(u32::MAX, 0));
        assert!(!tsn_after(7, 7));
    }
}
