//! PDU sessions of type Unstructured: what the UE sends goes to one application server, by a tunnel on N6.
//!
//! Spec: TS 23.501 §5.6.10.3, point-to-point tunnelling by UDP over IPv6: the UPF takes a prefix for the session, which the
//! UE does not know; its own end of the tunnel is an address of that prefix, the other end is configured. In the data
//! network the packets are UDP over IPv6 like others, so that routing and filters there need nothing new.

use std::net::{IpAddr, Ipv6Addr};

use whimbrel_ids::Instant;

use super::inner::{InnerPacket, protocol};
use super::packet::Packet;
use super::session::SessionState;
use super::shared::PipelineContext;
use super::stages::{self, Ingress, Pdu};
use super::{Destination, DropReason, PacketVerdict, UpfU};
use crate::rules::{Names, Pdr, SessionRules};

/// Octets of the headers of IPv6 and UDP.
const HEADERS_OCTETS: usize = 48;

/// What is not looked at.
pub(super) struct Unstructured;

impl Pdu for Unstructured {
    fn matches(&self, pdr: &Pdr, _: Names) -> bool {
        pdr.filters.is_empty()
    }

    fn dscp(&self) -> u8 {
        0
    }
}

/// The UPF's end of a session's tunnel: the first address of its prefix.
fn own_end(prefix: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(prefix.to_bits() >> 64 << 64 | 1)
}

impl UpfU {
    /// Octets that a UE sends.
    pub(super) fn octets_from_ue(
        &mut self,
        now: Instant,
        index: u32,
        ingress: Ingress,
        packet: &mut Packet,
    ) -> PacketVerdict {
        if packet.is_empty() {
            return PacketVerdict::Drop(DropReason::InnerMalformed);
        }
        self.in_session(now, index, ingress, &Unstructured, packet)
    }

    /// A packet of the tunnel's other end, without its headers from here on.
    pub(super) fn octets_to_ue(
        &mut self,
        now: Instant,
        index: u32,
        inner: &InnerPacket,
        packet: &mut Packet,
    ) -> PacketVerdict {
        let session = self.sessions.get(index);
        let Some(rules) = session.map(|s| &s.rules) else {
            return PacketVerdict::Drop(DropReason::UnknownUeAddress);
        };
        match of_tunnel(rules, inner, packet.octets()) {
            Ok(()) => {
                packet.pull(inner.payload_at + 8);
                self.in_session(now, index, Ingress::NETWORK, &Unstructured, packet)
            }
            Err(reason) => PacketVerdict::Drop(reason),
        }
    }
}

/// Whether a packet is of the session's tunnel, whole.
fn of_tunnel(rules: &SessionRules, inner: &InnerPacket, p: &[u8]) -> Result<(), DropReason> {
    let (Some(tunnel), Some(prefix)) = (rules.point_to_point.as_deref(), rules.ue_ipv6) else {
        return Err(DropReason::UnknownUeAddress);
    };
    let ends =
        inner.source == IpAddr::V6(*tunnel.peer.ip()) && inner.destination == IpAddr::V6(own_end(prefix));
    let ports = inner.ports() == Some((tunnel.peer.port(), tunnel.port));
    if !(ends && ports && inner.protocol == protocol::UDP) {
        return Err(DropReason::NoMatchingPdr);
    }
    let udp = p.get(inner.payload_at..).unwrap_or_default();
    let length = udp.get(4..6).and_then(|l| l.try_into().ok()).map(u16::from_be_bytes);
    let whole = length.map(usize::from) == Some(udp.len()) && udp.len() > 8;
    // Zero is what a sender of tunnelled packets may leave (RFC 6935); anything else must be right.
    let unsummed = udp.get(6..8) == Some(&[0, 0]);
    if whole && (unsummed || checksum(tunnel.peer.ip(), &own_end(prefix), udp) == 0) {
        Ok(())
    } else {
        Err(DropReason::InnerMalformed)
    }
}

/// Puts a UE's octets into the tunnel.
pub(super) fn encapsulate(rules: &SessionRules, packet: &mut Packet) -> PacketVerdict {
    let (Some(tunnel), Some(prefix)) = (rules.point_to_point.as_deref(), rules.ue_ipv6) else {
        return PacketVerdict::Drop(DropReason::NoTunnel);
    };
    let Ok(length) = u16::try_from(packet.len() + 8) else { return PacketVerdict::Drop(DropReason::TooLong) };
    let (own, peer) = (own_end(prefix), tunnel.peer.ip());
    let mut headers = [0; HEADERS_OCTETS];
    headers[..8].copy_from_slice(&[0x60, 0, 0, 0, (length >> 8) as u8, length as u8, protocol::UDP, 64]);
    headers[8..24].copy_from_slice(&own.octets());
    headers[24..40].copy_from_slice(&peer.octets());
    headers[40..42].copy_from_slice(&tunnel.port.to_be_bytes());
    headers[42..44].copy_from_slice(&tunnel.peer.port().to_be_bytes());
    headers[44..46].copy_from_slice(&length.to_be_bytes());
    if !packet.push(&headers) {
        return PacketVerdict::Drop(DropReason::TooLong);
    }
    let sum = checksum(&own, peer, packet.octets().get(40..).unwrap_or_default());
    // A sum of zero is written as its complement (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    if let Some(at) = packet.octets_mut().get_mut(46..48) {
        at.copy_from_slice(&sum.to_be_bytes());
    }
    PacketVerdict::Send(Destination::N6 { dn: rules.data_network })
}

/// The checksum over the pseudo-header and a UDP datagram (RFC 8200 §8.1); zero over one that is right.
fn checksum(source: &Ipv6Addr, destination: &Ipv6Addr, udp: &[u8]) -> u16 {
    let words = |octets: &[u8]| -> u64 {
        let pair = |p: &[u8]| u64::from(u16::from_be_bytes([p[0], *p.get(1).unwrap_or(&0)]));
        octets.chunks(2).map(pair).sum()
    };
    let mut sum = words(&source.octets()) + words(&destination.octets()) + words(udp);
    sum += udp.len() as u64 + u64::from(protocol::UDP);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What was held of an unstructured session meets its rules again.
pub(super) fn again(
    rules: &SessionRules,
    state: &mut SessionState,
    shared: &mut PipelineContext,
    now: Instant,
    ingress: Ingress,
    packet: &mut Packet,
) -> PacketVerdict {
    stages::run(rules, state, shared, now, ingress, &Unstructured, packet)
}
