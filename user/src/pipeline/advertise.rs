//! Router advertisements: how a UE learns its IPv6 prefix (RFC 4861 §4.2, RFC 8106, TS 23.501 §5.8.2.2.3).

use std::net::Ipv6Addr;

use super::inner::{InnerPacket, protocol};
use super::packet::Packet;

/// ICMPv6 types (RFC 4861 §4).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;

/// The UPF's own address on the link. The UE is given another interface identifier by the SMF (TS 23.501
/// §5.8.2.2.2).
pub(crate) const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// All nodes on the link.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// How long the router serves, seconds: the most there is (RFC 8319 §4); the session ends it, not time.
const ROUTER_LIFETIME_S: u16 = 65_535;
/// Resolvers named at most: what fits a packet of 1,280 octets many times over.
const RESOLVERS_MAX: usize = 8;
/// Octets of the longest advertisement: headers 56, prefix 32, MTU 8, resolvers 8 + 8 x 16.
pub(crate) const ADVERTISEMENT_OCTETS_MAX: usize = 56 + 32 + 8 + 8 + RESOLVERS_MAX * 16;

/// Whether it is a well-formed router solicitation (RFC 4861 §6.1.1).
pub(crate) fn is_solicitation(inner: &InnerPacket, packet: &[u8]) -> bool {
    let hop_limit = packet.get(7) == Some(&255);
    inner.protocol == protocol::ICMPV6
        && hop_limit
        && inner.octets >= inner.payload_at + 8
        && packet.get(inner.payload_at..inner.payload_at + 2) == Some(&[ROUTER_SOLICITATION, 0])
}

/// Writes an advertisement of a prefix of 64 bits.
pub(crate) fn advertisement(prefix: Ipv6Addr, mtu: u16, resolvers: &[Ipv6Addr], packet: &mut Packet) {
    let resolvers = &resolvers[..resolvers.len().min(RESOLVERS_MAX)];
    let mut p = [0u8; ADVERTISEMENT_OCTETS_MAX];
    let mut at = 0;
    let mut put = |octets: &[u8]| {
        p[at..at + octets.len()].copy_from_slice(octets);
        at += octets.len();
    };
    put(&[0x60, 0, 0, 0, 0, 0, protocol::ICMPV6, 255]);
    put(&ROUTER.octets());
    put(&ALL_NODES.octets());
    put(&[ROUTER_ADVERTISEMENT, 0, 0, 0]);
    // Hop limit 64; neither managed nor other configuration: what DHCPv6 would tell stands here.
    put(&[64, 0]);
    put(&ROUTER_LIFETIME_S.to_be_bytes());
    put(&[0; 8]); // reachable and retransmission time: not specified
    // Prefix information: for addresses (A), not on the link (L is not set: the UE is alone on it).
    put(&[3, 4, 64, 0x40]);
    put(&[0xff; 8]);
    put(&[0; 4]);
    put(&Ipv6Addr::from_bits(prefix.to_bits() >> 64 << 64).octets());
    put(&[5, 1, 0, 0]);
    put(&u32::from(mtu).to_be_bytes());
    if !resolvers.is_empty() {
        put(&[25, 1 + 2 * resolvers.len() as u8, 0, 0]);
        put(&[0xff; 4]);
        resolvers.iter().for_each(|r| put(&r.octets()));
    }
    p[4..6].copy_from_slice(&((at - 40) as u16).to_be_bytes());
    let sum = checksum(&p[..at]);
    p[42..44].copy_from_slice(&sum.to_be_bytes());
    packet.fill(&p[..at]);
}

/// The ICMPv6 checksum of a packet without extension headers, whose checksum field is zero (RFC 8200 §8.1).
pub(crate) fn checksum(packet: &[u8]) -> u16 {
    let mut sum = (packet.len() - 40) as u32 + u32::from(protocol::ICMPV6);
    for pair in packet[8..].chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
