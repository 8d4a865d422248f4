//! What comes: most often packets that pass.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::super::common::*;
use super::super::model::{self, Action, FLOW_PORT, Fate, Inner, PORTS};
use super::{FOREIGN, Judged, Pair, SEATS, TARGET};
use whimbrel_gtpu::{GpduHeader, PduSessionInformation, message_type};
use whimbrel_ids::{Qfi, Teid};
use whimbrel_user::*;

/// The congestion mark of ECN (RFC 3168).
const CE: u8 = 3;

impl<U: Plane> Pair<U> {
    /// A packet, in fragments now and then, and what becomes of it.
    pub(super) fn judged(&mut self, [which, kind, n]: [usize; 3], all: &mut Vec<Judged>) {
        let now = self.net.now;
        let Some((_, seat)) = self.seats[which % SEATS].as_mut() else { return };
        let asks_for_ports = seat.flow.is_some() || seat.signalling.is_some();
        let in_fragments = n >> 14 & if asks_for_ports { 1 } else { 7 } == 0;
        // Packets for the link alone have their session unfolded.
        let kind = if self.scope.mostly_plain && n >> 27 & 3 != 0 { kind % 15 } else { kind % 16 };
        let payload = [0, 40, 1_372, 1_372][n % 4];
        let port = if n >> 12 & 3 == 0 { FLOW_PORT } else { PORTS[n >> 3 & 1] };
        let own = 7 + (n >> 9) as u16 % 8;
        let whole = |octets| Inner { octets, server: Some(port) };
        let ((server, server6), reports) = (model::server(), &mut self.reports);
        // Of a UE without IPv6, an address of a prefix without a UE.
        let unused = Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0xffff, 0, 0, 0, 0);
        let (six, prefix) = (self.both_families && n & 0x100 != 0, seat.ue6.unwrap_or(unused));
        let ue6 = |step: u128| Ipv6Addr::from_bits(prefix.to_bits() + (step << 64) + n as u128 % 7);
        let (ue, mark) = (seat.ue, if seat.sliced { CE } else { 0 });
        let up = |step: u8, payload| match six {
            false => udp4((ue.to_bits() + u32::from(step)).into(), server, (own, port), payload),
            true => udp6(ue6(step.into()), server6, (own, port), payload),
        };
        let down = |ue, payload| match six {
            false => udp4(server, ue, (port, own), payload),
            true => udp6(server6, ue6(0), (port, own), payload),
        };
        let unusual = if self.scope.wide { n >> 25 & 7 } else { 7 };
        let payload = if unusual == LARGE && matches!(kind, 0..=11) { 1_472 } else { payload };
        let length_at = if six { 21 } else { 19 };
        let network = Origin::N6 { dn: DnIndex(0) };
        let of_flow = port == FLOW_PORT && seat.flow.is_some();
        let qfi = if (n & 0x70 == 0) == of_flow { 1 } else { 2 };
        match kind {
            5 if in_fragments => {
                self.fragments += 1;
                let [first, later] = fragments(&up(0, 40), self.fragments).map(|p| marked(p, mark));
                let known = n & 3 != 0;
                if known {
                    let octets = g_pdu(seat.teid, qfi, &first);
                    all.push((from_gnb(), octets, seat.uplink(now, qfi, whole(first), reports)));
                }
                let octets = g_pdu(seat.teid, qfi, &later);
                let later = Inner { octets: later, server: Some(port).filter(|_| known) };
                all.push((from_gnb(), octets, seat.uplink(now, qfi, later, reports)));
            }
            11 if in_fragments && (!six || seat.ue6.is_some()) => {
                self.fragments += 1;
                let [first, later] = fragments(&down(ue, 40), self.fragments).map(|p| marked(p, mark));
                let known = n & 3 != 0;
                if known {
                    all.push((network, first.clone(), seat.downlink(now, whole(first), reports)));
                }
                // Of those that wait the word of the first need not stand any more when they go on.
                if !matches!(seat.action, Action::Buffer { .. }) {
                    let inner = Inner { octets: later.clone(), server: Some(port).filter(|_| known) };
                    all.push((network, later, seat.downlink(now, inner, reports)));
                }
            }
            0..=5 => {
                let inner = marked(made_unusual(up(0, payload), unusual), mark);
                let mut octets = g_pdu(seat.teid, qfi, &inner);
                if n & 0x80 == 0 {
                    octets.extend_from_slice(&[0xee; 5]); // behind the datagram's own length
                }
                let by = if self.scope.predicts && n >> 17 & 3 == 0 { TARGET } else { GNB };
                self.drained.extend(seat.comes_by(now, by, reports));
                let origin = Origin::N3 { peer: by, local: UPF.into() };
                all.push((origin, octets, seat.uplink(now, qfi, whole(inner), reports)));
            }
            6..=11 => {
                let inner = marked(made_unusual(down(ue, payload), unusual), mark);
                let mut octets = inner.clone();
                if n & 0x80 == 0 {
                    octets.push(0xee); // behind the packet's own length
                }
                let fate = match six && seat.ue6.is_none() {
                    true => Fate::Dropped(DropReason::UnknownUeAddress),
                    false => seat.downlink(now, whole(inner), reports),
                };
                all.push((network, octets, fate));
            }
            12 if n >> 20 & 1 == 0 => {
                let without_ue = "2001:db8:45:77::1".parse().unwrap();
                let denied = "2001:db8:66::1".parse().unwrap();
                let (inner, to) = match (six, n >> 21 & 3) {
                    (false, _) if unusual < 2 => {
                        let to = [model::HOST, model::PERMITTED][unusual];
                        (udp4(ue, to, (own, port), payload), port)
                    }
                    (true, _) if unusual < 2 => {
                        let translated = Ipv6Addr::from_bits((0x64_ff9b << 96) | u128::from(UPF.to_bits()));
                        (udp6(ue6(0), translated, (own, port), payload), port)
                    }
                    (false, 0) => (udp4(ue, UPF, (own, 2152), payload), 2152),
                    (false, 1) => (udp4(ue, Ipv4Addr::new(10, 45, 0, 6), (own, port), payload), port),
                    (false, 2) => (udp4(ue, Ipv4Addr::new(198, 51, 100, 7), (own, port), payload), port),
                    (false, _) => (udp4(ue, Ipv4Addr::new(127, 0, 0, 5), (own, port), payload), port),
                    (true, 0) => (udp6(ue6(0), without_ue, (own, port), payload), port),
                    (true, 1 | 2) => (udp6(ue6(0), denied, (own, port), payload), port),
                    (true, _) => (udp6(ue6(0), UPF.to_ipv6_mapped(), (own, port), payload), port),
                };
                let inner = Inner { octets: marked(inner, mark), server: Some(to) };
                let octets = g_pdu(seat.teid, qfi, &inner.octets);
                all.push((from_gnb(), octets, seat.uplink(now, qfi, inner, reports)));
            }
            12 if self.scope.predicts && n >> 21 & 3 == 0 => {
                let inner = up(0, payload);
                let (by, fate) = match n >> 23 & 1 {
                    0 => (SocketAddr::from(([10, 45, 0, 6], 2152)), Fate::Dropped(DropReason::GtpuFromUe)),
                    _ => (FOREIGN, seat.foreign(now)),
                };
                all.push((Origin::N3 { peer: by, local: UPF.into() }, g_pdu(seat.teid, qfi, &inner), fate));
            }
            12 => {
                let inner = up(1, payload);
                all.push((
                    from_gnb(),
                    g_pdu(seat.teid, 1, &inner),
                    seat.uplink(now, 1, whole(inner), reports),
                ));
            }
            13 => {
                let nothing = Teid(seat.teid.0 ^ 1 << 31);
                let (teid, to) = match (seat.relay, seat.was_relay) {
                    (Some((teid, to)), _) if n & 8 != 0 => (teid, Some(to)),
                    (_, Some(teid)) if n & 16 != 0 => (teid, None),
                    _ => (nothing, None),
                };
                let message = |teid| match n & 7 {
                    0 => end_marker(teid),
                    n => forwarded(teid, &[0xde; 40][..4 * n]),
                };
                let fate = match to {
                    Some(to) => Fate::Relayed(Destination::N3 { peer: to.gnb, tos: 0 }, message(to.teid)),
                    None => Fate::Dropped(DropReason::UnknownTunnel),
                };
                all.push((from_gnb(), message(teid), fate));
            }
            14 => {
                let octets = match six {
                    false => udp4(server, "10.45.0.7".parse().unwrap(), (port, own), payload),
                    true => udp6(server6, unused, (port, 7), payload),
                };
                all.push((network, octets, Fate::Dropped(DropReason::UnknownUeAddress)));
            }
            _ if self.both_families && n & 3 == 3 => {
                let inner = udp6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), server6, (7, port), payload);
                all.push((
                    from_gnb(),
                    g_pdu(seat.teid, 1, &inner),
                    seat.uplink(now, 1, whole(inner), reports),
                ));
            }
            _ if n & 7 == 6 => {
                let fate = Fate::Dropped(DropReason::EndMarkerIgnored); // its packets go into no tunnel
                all.push((from_gnb(), end_marker(seat.teid), fate));
            }
            _ if n & 1 == 0 => {
                let mut octets = g_pdu(seat.teid, 1, &up(0, payload));
                octets[length_at] = octets[length_at].wrapping_add(1); // the inner packet is longer than it is
                all.push((from_gnb(), octets, Fate::Dropped(DropReason::InnerMalformed)));
            }
            _ => {
                let mut octets = g_pdu(seat.teid, 1, &up(0, payload));
                octets.truncate(n % octets.len());
                all.push((from_gnb(), octets, Fate::Dropped(DropReason::GtpuMalformed)));
            }
        }
    }
}

/// Kinds of packets that a fast path leaves to the stages: with options or extension headers, with no hop left, larger than a link takes.
const OPTIONS: usize = 0;
const LAST_HOP: usize = 1;
const LARGE: usize = 2;

/// A packet of UDP of one of these kinds, or as it was.
fn made_unusual(mut packet: Vec<u8>, kind: usize) -> Vec<u8> {
    let six = packet[0] >> 4 == 6;
    match kind {
        OPTIONS if six => {
            // Hop-by-hop options, of which all is padding (RFC 8200 §4.3).
            let length = packet.len() as u16 - 40 + 8;
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            packet[6] = 0;
            packet.splice(40..40, [17, 0, 1, 4, 0, 0, 0, 0]);
        }
        OPTIONS => {
            packet[0] = 0x46;
            let length = packet.len() as u16 + 4;
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            packet.splice(20..20, [1, 1, 1, 0]);
        }
        LAST_HOP => packet[if six { 7 } else { 8 }] = 1,
        _ => {}
    }
    packet
}

/// A packet whose header says that there is congestion, or as it was.
fn marked(mut packet: Vec<u8>, mark: u8) -> Vec<u8> {
    match packet[0] >> 4 {
        4 => packet[1] |= mark,
        _ => packet[1] |= mark << 4,
    }
    packet
}

/// The parts of a packet of UDP: its first octets with the ports, and the rest.
fn fragments(whole: &[u8], identification: u16) -> [Vec<u8>; 2] {
    const FIRST: usize = 16;
    let [high, low] = identification.to_be_bytes();
    match whole[0] >> 4 {
        4 => [(0x20, 0, 20..20 + FIRST), (0, FIRST / 8, 20 + FIRST..whole.len())].map(
            |(flags, offset, part)| {
                let mut p = [&whole[..20], &whole[part]].concat();
                let len = p.len() as u16;
                p[2..4].copy_from_slice(&len.to_be_bytes());
                p[4..8].copy_from_slice(&[high, low, flags, offset as u8]);
                p
            },
        ),
        _ => [(1, 40..40 + FIRST), (FIRST, 40 + FIRST..whole.len())].map(|(offset, part)| {
            let header = [17, 0, 0, offset as u8, 0, 0, high, low];
            let mut p = [&whole[..40], &header, &whole[part]].concat();
            let len = p.len() as u16 - 40;
            p[4..6].copy_from_slice(&len.to_be_bytes());
            p[6] = 44;
            p
        }),
    }
}

/// What a gNB forwards to another one's, with the container that it had, unread.
fn forwarded(teid: Teid, content: &[u8]) -> Vec<u8> {
    let container = Qfi::new(9).map(|qfi| PduSessionInformation::Dl { qfi, rqi: true, ppi: Some(3) });
    let header = GpduHeader::new(teid, container);
    let mut m = vec![0; header.octets_len()];
    header.write_before(content.len(), &mut m).unwrap();
    m.extend_from_slice(content);
    m
}

fn end_marker(teid: Teid) -> Vec<u8> {
    let [a, b, c, d] = teid.0.to_be_bytes();
    vec![0x30, message_type::END_MARKER, 0, 0, a, b, c, d]
}

/// A packet of UDP over IPv6.
fn udp6(source: Ipv6Addr, destination: Ipv6Addr, ports: (u16, u16), payload: usize) -> Vec<u8> {
    let mut udp: Vec<_> =
        [ports.0, ports.1, 8 + payload as u16, 0].into_iter().flat_map(u16::to_be_bytes).collect();
    udp.resize(8 + payload, 0xab);
    ipv6(source, destination, 17, &udp)
}
