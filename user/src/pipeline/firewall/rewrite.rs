//! Rewrites addresses and ports of IPv4 packets with incremental checksums (RFC 1624).

use std::net::Ipv4Addr;

use crate::pipeline::inner::{InnerPacket, protocol};

/// Source or destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketEnd {
    Source,
    Destination,
}

/// The offset of a checksum, and whether zero means that there is none (RFC 768).
#[derive(Clone, Copy)]
struct Sum {
    at: usize,
    may_be_absent: bool,
}

/// A checksum after a word that it covers has changed from `old` to `new` (RFC 1624 §3, equation 3).
fn adjusted(sum: u16, old: u16, new: u16) -> u16 {
    let total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    let folded = (total & 0xffff) + (total >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn word(p: &[u8], at: usize) -> Option<u16> {
    p.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

fn put_word(p: &mut [u8], at: usize, new: u16) {
    if let Some(to) = p.get_mut(at..at + 2) {
        to.copy_from_slice(&new.to_be_bytes());
    }
}

/// Writes a word that begins at an even place of what the checksums cover.
fn put(p: &mut [u8], at: usize, new: u16, sums: &[Option<Sum>]) {
    let Some(old) = word(p, at) else { return };
    put_word(p, at, new);
    for sum in sums.iter().flatten() {
        let Some(was) = word(p, sum.at) else { continue };
        if sum.may_be_absent && was == 0 {
            continue;
        }
        let is = adjusted(was, old, new);
        put_word(p, sum.at, if sum.may_be_absent && is == 0 { 0xffff } else { is });
    }
}

/// Minimum octets of a transport header in the first fragment (RFC 1858 §3).
pub(super) const fn transport_octets_min(protocol: u8) -> usize {
    match protocol {
        protocol::TCP => 20,
        protocol::UDP | protocol::ICMP | protocol::ICMPV6 => 8,
        _ => 0,
    }
}

/// Writes an end's address and, if given, its port or identifier.
///
/// `begins_at`: where the IPv4 packet begins. It may be truncated, so that its checksum is missing.
pub(super) fn readdress(
    p: &mut [u8],
    begins_at: usize,
    inner: &InnerPacket,
    end: PacketEnd,
    address: Ipv4Addr,
    port: Option<u16>,
) {
    let transport = begins_at + inner.payload_at;
    // An ICMP checksum does not cover addresses.
    let (sum_at, covers_addresses) = match inner.protocol {
        protocol::TCP => (Some(16), true),
        protocol::UDP => (Some(6), true),
        protocol::ICMP => (Some(2), false),
        _ => (None, false),
    };
    let sum = sum_at
        .filter(|_| port.is_some())
        .map(|at| Sum { at: transport + at, may_be_absent: inner.protocol == protocol::UDP });
    let header = Sum { at: begins_at + 10, may_be_absent: false };
    let [a, b, c, d] = address.octets();
    let at = begins_at + if end == PacketEnd::Source { 12 } else { 16 };
    let sums = [Some(header), sum.filter(|_| covers_addresses)];
    put(p, at, u16::from_be_bytes([a, b]), &sums);
    put(p, at + 2, u16::from_be_bytes([c, d]), &sums);
    let Some(port) = port else { return };
    let at = match (inner.protocol, end) {
        (protocol::ICMP, _) => transport + 4,
        (_, PacketEnd::Source) => transport,
        (_, PacketEnd::Destination) => transport + 2,
    };
    put(p, at, port, &[sum]);
}

/// The Internet checksum of octets (RFC 1071): zero over octets that contain a correct one.
pub(super) fn checksum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|w| u64::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Recomputes the checksum of an ICMP message.
pub(super) fn sum_icmp(p: &mut [u8], at: usize) {
    put_word(p, at + 2, 0);
    let sum = checksum(p.get(at..).unwrap_or_default());
    put_word(p, at + 2, sum);
}
