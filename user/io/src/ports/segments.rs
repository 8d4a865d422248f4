//! Packets that the kernel leaves to the device to be finished: long ones of TCP or UDP that are to be cut (TSO, USO), and those without
//! their checksum.
//!
//! What a TUN device gives with such an offload has struct virtio_net_hdr (linux/virtio_net.h) before it, which says how. Cutting is
//! done as the kernel would: each segment has the headers of the whole with its own length, number, checksums, and those flags that are for the
//! first or the last are there alone.

use std::collections::VecDeque;

use whimbrel_user::{BurstPacket, DnIndex, Origin};

use super::checksum::{folded, sum};

/// Octets of struct virtio_net_hdr.
pub(crate) const OFFLOAD_OCTETS: usize = 10;

const FLAG_NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP_IPV4: u8 = 1;
const GSO_TCP_IPV6: u8 = 4;
const GSO_UDP: u8 = 5;
/// TCP's congestion bits are as they are to be in each segment.
const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
/// TCP's flags (RFC 9293 §3.1, RFC 3168 §6.1).
const FIN_AND_PUSH: u8 = 0x01 | 0x08;
const REDUCED: u8 = 0x80;
const UDP_HEADER_OCTETS: usize = 8;

/// What is left to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offload {
    flags: u8,
    kind: u8,
    /// Octets of payload of a segment.
    segment: usize,
    /// Where what the checksum is over begins, and where in that it is.
    checksum_start: usize,
    checksum_at: usize,
}

impl Offload {
    /// From the octets in front of a packet. The numbers are in the host's order, the default of a TUN device.
    pub(crate) fn read(octets: [u8; OFFLOAD_OCTETS]) -> Self {
        let number = |at: usize| usize::from(u16::from_ne_bytes([octets[at], octets[at + 1]]));
        Self {
            flags: octets[0],
            kind: octets[1] & !GSO_ECN,
            segment: number(4),
            checksum_start: number(6),
            checksum_at: number(8),
        }
    }

    /// Whether it is to be cut.
    pub(crate) fn is_long(self) -> bool {
        self.kind != GSO_NONE
    }

    /// Writes the checksum of a packet that is not to be cut, if it is left to be written; false if there is no place for it.
    pub(crate) fn finish(self, packet: &mut [u8]) -> bool {
        if self.flags & FLAG_NEEDS_CHECKSUM == 0 {
            return true;
        }
        // The kernel has written the sum over the pseudo-header there.
        let Some(part) = packet.get_mut(self.checksum_start..) else { return false };
        let sum = !folded(sum(part, 0));
        let Some(at) = part.get_mut(self.checksum_at..self.checksum_at + 2) else { return false };
        // UDP says by zero that there is none (RFC 768); to TCP both are the same.
        at.copy_from_slice(&if sum == 0 { u16::MAX } else { sum }.to_be_bytes());
        true
    }
}

/// A packet that is cut segment by segment.
struct Long {
    dn: DnIndex,
    octets: Vec<u8>,
    /// Where the header of TCP or UDP begins, and where it ends.
    transport_at: usize,
    payload_at: usize,
    segment: usize,
    /// Octets of payload that were cut off.
    done: usize,
    number: u16,
}

impl Long {
    /// Errors: gives the octets back if they are not what the offload says.
    fn new(dn: DnIndex, offload: Offload, octets: Vec<u8>) -> Result<Self, Vec<u8>> {
        match Self::headers(offload, &octets) {
            Some((transport_at, payload_at)) => {
                let segment = offload.segment;
                Ok(Self { dn, octets, transport_at, payload_at, segment, done: 0, number: 0 })
            }
            None => Err(octets),
        }
    }

    /// Where the header of TCP or UDP begins, and where it ends.
    fn headers(offload: Offload, octets: &[u8]) -> Option<(usize, usize)> {
        let transport_at = offload.checksum_start;
        let (version, protocol) = (octets.first()? >> 4, |at: usize| octets.get(at).copied());
        let headers = match (version, offload.kind) {
            (4, GSO_TCP_IPV4) => protocol(9) == Some(TCP) && transport_at >= 20,
            (6, GSO_TCP_IPV6) => transport_at >= 40,
            (4, GSO_UDP) => protocol(9) != Some(TCP) && transport_at >= 20,
            (6, GSO_UDP) => transport_at >= 40,
            _ => false,
        };
        let transport = match offload.kind {
            GSO_UDP => UDP_HEADER_OCTETS,
            _ => usize::from(octets.get(transport_at + 12)? >> 4) * 4,
        };
        let minimum = if offload.kind == GSO_UDP { UDP_HEADER_OCTETS } else { 20 };
        let payload_at = transport_at + transport;
        let is_so = headers && transport >= minimum && payload_at < octets.len() && offload.segment > 0;
        is_so.then_some((transport_at, payload_at))
    }

    fn is_tcp(&self) -> bool {
        self.payload_at - self.transport_at > UDP_HEADER_OCTETS
    }

    /// Writes the next segment; its octets, or zero if there is no room for it.
    fn next(&mut self, room: &mut [u8]) -> usize {
        let Self { transport_at, payload_at, .. } = *self;
        let payload = self.octets.get(payload_at + self.done..).unwrap_or_default();
        let payload = &payload[..payload.len().min(self.segment)];
        let (first, last) = (self.done == 0, payload_at + self.done + payload.len() == self.octets.len());
        let octets = payload_at + payload.len();
        let Some(out) = room.get_mut(..octets) else {
            self.done = self.octets.len() - payload_at;
            return 0;
        };
        out[..payload_at].copy_from_slice(&self.octets[..payload_at]);
        out[payload_at..].copy_from_slice(payload);
        let mut put = |at: usize, value: u16| out[at..at + 2].copy_from_slice(&value.to_be_bytes());
        let of_transport = (octets - transport_at) as u16;
        let four = self.octets[0] >> 4 == 4;
        if four {
            put(2, octets as u16);
            let identification = u16::from_be_bytes([self.octets[4], self.octets[5]]);
            put(4, identification.wrapping_add(self.number));
            put(10, 0);
            let header = usize::from(out[0] & 0x0f) * 4;
            let header_sum = !folded(sum(&out[..header.min(transport_at)], 0));
            out[10..12].copy_from_slice(&header_sum.to_be_bytes());
        } else {
            put(4, (octets - 40) as u16);
        }
        let checksum_at = if self.is_tcp() {
            let at = transport_at + 4;
            let sequence = u32::from_be_bytes([out[at], out[at + 1], out[at + 2], out[at + 3]]);
            out[at..at + 4].copy_from_slice(&sequence.wrapping_add(self.done as u32).to_be_bytes());
            let flags = &mut out[transport_at + 13];
            *flags &= if last { u8::MAX } else { !FIN_AND_PUSH };
            *flags &= if first { u8::MAX } else { !REDUCED };
            transport_at + 16
        } else {
            out[transport_at + 4..transport_at + 6].copy_from_slice(&of_transport.to_be_bytes());
            transport_at + 6
        };
        out[checksum_at..checksum_at + 2].fill(0);
        let addresses = if four { 12..20 } else { 8..40 };
        let protocol = if self.is_tcp() { TCP } else { 17 };
        let pseudo = sum(&out[addresses], u64::from(protocol) + u64::from(of_transport));
        let checksum = !folded(sum(&out[transport_at..], pseudo));
        let checksum = if checksum == 0 { u16::MAX } else { checksum };
        out[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        self.done += payload.len();
        self.number = self.number.wrapping_add(1);
        octets
    }

    fn is_done(&self) -> bool {
        self.payload_at + self.done >= self.octets.len()
    }
}

/// Long packets that are being cut, in order, and buffers for more.
#[derive(Default)]
pub(crate) struct Segments {
    long: VecDeque<Long>,
    spare: Vec<Vec<u8>>,
}

impl Segments {
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.long.is_empty()
    }

    /// Takes a long packet, which is in two parts; false if it is not what its offload says.
    pub(crate) fn put(&mut self, dn: DnIndex, offload: Offload, parts: [&[u8]; 2]) -> bool {
        let mut octets = self.spare.pop().unwrap_or_default();
        octets.clear();
        parts.into_iter().for_each(|part| octets.extend_from_slice(part));
        match Long::new(dn, offload, octets) {
            Ok(long) => {
                self.long.push_back(long);
                true
            }
            Err(octets) => {
                self.spare.push(octets);
                false
            }
        }
    }

    /// The next segments, as many as there are slots for; how many.
    pub(crate) fn take(&mut self, slots: &mut [BurstPacket]) -> usize {
        let mut n = 0;
        while let (Some(long), Some(slot)) = (self.long.front_mut(), slots.get_mut(n)) {
            let octets = long.next(slot.packet.room());
            slot.packet.received(octets);
            slot.origin = Origin::N6 { dn: long.dn };
            n += 1;
            if long.is_done() {
                self.spare.extend(self.long.pop_front().map(|long| long.octets));
            }
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_user::{Packet, PacketVerdict};

    use super::*;

    const DN: DnIndex = DnIndex(3);

    /// A packet of TCP or UDP, IPv4 or IPv6, as the kernel leaves it: with the checksum over the pseudo-header alone.
    fn long(six: bool, tcp: bool, payload: usize) -> (Offload, Vec<u8>) {
        let transport = if tcp { 32 } else { 8 };
        let ip = if six { 40 } else { 24 };
        let total = ip + transport + payload;
        let mut p = vec![0; total];
        if six {
            p[0] = 0x60;
            p[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
            (p[6], p[7]) = (if tcp { 6 } else { 17 }, 64);
            (8..40).for_each(|i| p[i] = i as u8);
        } else {
            p[0] = 0x46; // with an option
            p[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            p[4..6].copy_from_slice(&0xfffeu16.to_be_bytes());
            (p[8], p[9]) = (64, if tcp { 6 } else { 17 });
            (12..20).for_each(|i| p[i] = i as u8);
            p[20] = 1;
        }
        if tcp {
            p[ip + 4..ip + 8].copy_from_slice(&0xffff_ff00u32.to_be_bytes());
            (p[ip + 12], p[ip + 13]) = (0x80, 0x99); // options; CWR, ACK, PSH, FIN
        }
        p[ip + transport..].iter_mut().zip(0u32..).for_each(|(o, i)| *o = (i / 3) as u8);
        let kind = match (tcp, six) {
            (true, false) => GSO_TCP_IPV4,
            (true, true) => GSO_TCP_IPV6,
            (false, _) => GSO_UDP,
        };
        let offload = Offload {
            flags: FLAG_NEEDS_CHECKSUM,
            kind,
            segment: 1_000,
            checksum_start: ip,
            checksum_at: if tcp { 16 } else { 6 },
        };
        (offload, p)
    }

    fn slots(n: usize) -> Vec<BurstPacket> {
        let slot = |_| BurstPacket {
            origin: Origin::Frames { dn: DN },
            packet: Packet::with_room(2048),
            verdict: PacketVerdict::Pending,
        };
        (0..n).map(slot).collect()
    }

    /// The sum over everything that a checksum is over, itself included: all ones where it is right.
    fn verified(p: &[u8], ip: usize) -> u16 {
        let six = p[0] >> 4 == 6;
        let addresses = if six { 8..40 } else { 12..20 };
        let protocol = if six { p[6] } else { p[9] };
        folded(sum(&p[ip..], sum(&p[addresses], u64::from(protocol) + (p.len() - ip) as u64)))
    }

    #[test]
    fn a_long_packet_is_cut_into_whole_ones_that_carry_the_same() {
        for (six, tcp, payload) in [
            (false, true, 3_500),
            (true, true, 3_000),
            (false, false, 2_999),
            (true, false, 3_001),
            (false, true, 40),
        ] {
            let (offload, whole) = long(six, tcp, payload);
            let (ip, transport) = (if six { 40 } else { 24 }, if tcp { 32 } else { 8 });
            let mut segments = Segments::default();
            let (here, beyond) = whole.split_at(50);
            assert!(segments.put(DN, offload, [here, beyond]));
            // Two at a time: what finds no slot waits.
            let (mut carried, mut n) = (Vec::new(), 0u16);
            let count = payload.div_ceil(1_000) as u16;
            while !segments.is_empty() {
                let mut slots = slots(2);
                let taken = segments.take(&mut slots);
                for slot in &slots[..taken] {
                    let p = slot.packet.octets();
                    assert_eq!(slot.origin, Origin::N6 { dn: DN });
                    assert_eq!(verified(p, ip), 0xffff, "checksum of segment {n}");
                    let number = |at: usize| u16::from_be_bytes([p[at], p[at + 1]]);
                    if six {
                        assert_eq!(usize::from(number(4)), p.len() - 40);
                    } else {
                        assert_eq!((usize::from(number(2)), number(4)), (p.len(), 0xfffeu16.wrapping_add(n)));
                        assert_eq!(folded(sum(&p[..ip], 0)), 0xffff, "header of segment {n}");
                    }
                    if tcp {
                        let sequence = u32::from_be_bytes(p[ip + 4..ip + 8].try_into().unwrap());
                        assert_eq!(sequence, 0xffff_ff00u32.wrapping_add(carried.len() as u32));
                        let expected =
                            if n == 0 { 0x90 } else { 0x10 } | if n + 1 == count { 0x09 } else { 0 };
                        assert_eq!(p[ip + 13], expected);
                    } else {
                        assert_eq!(usize::from(number(ip + 4)), p.len() - ip);
                    }
                    carried.extend_from_slice(&p[ip + transport..]);
                    n += 1;
                }
            }
            assert_eq!((carried.as_slice(), n), (&whole[ip + transport..], count));
        }
    }

    #[test]
    fn a_checksum_that_is_left_to_the_device_is_written() {
        for (six, tcp) in [(false, true), (true, true), (false, false), (true, false)] {
            let (offload, mut p) = long(six, tcp, 333);
            let ip = offload.checksum_start;
            if !tcp {
                let octets = (p.len() - ip) as u16;
                p[ip + 4..ip + 6].copy_from_slice(&octets.to_be_bytes());
            }
            let addresses = if six { 8..40 } else { 12..20 };
            let protocol = if tcp { 6 } else { 17 };
            let pseudo = folded(sum(&p[addresses], protocol + (p.len() - ip) as u64));
            let at = ip + offload.checksum_at;
            p[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            let offload = Offload { kind: GSO_NONE, ..offload };
            assert!(!offload.is_long() && offload.finish(&mut p));
            assert_eq!(verified(&p, ip), 0xffff);
        }
    }

    #[test]
    fn packets_that_contradict_their_offload_header_are_refused_or_left() {
        let (offload, whole) = long(false, true, 2_000);
        let mut segments = Segments::default();
        let refused = [
            (Offload { segment: 0, ..offload }, &whole[..]),
            (Offload { checksum_start: 12, ..offload }, &whole[..]),
            (Offload { kind: GSO_TCP_IPV6, ..offload }, &whole[..]),
            (Offload { kind: GSO_UDP, ..offload }, &whole[..]),
            (Offload { kind: 3, ..offload }, &whole[..]),
            (offload, &whole[..56]),
            (offload, &whole[..30]),
            (offload, &[]),
        ];
        for (offload, octets) in refused {
            assert!(!segments.put(DN, offload, [octets, &[]]), "{offload:?}");
        }
        assert!(!Offload { checksum_at: 9_000, ..offload }.finish(&mut whole.clone()));
        assert!(!Offload { checksum_start: 9_000, ..offload }.finish(&mut whole.clone()));
        // Segments that no packet has room for become empty ones, which the pipeline counts as malformed, and it ends.
        let longer = long(false, true, 9_000).1;
        assert!(segments.put(DN, Offload { segment: 5_000, ..offload }, [&longer, &[]]));
        let mut slots = slots(4);
        assert_eq!((segments.take(&mut slots), slots[0].packet.len(), segments.is_empty()), (1, 0, true));
    }

    #[test]
    fn numbers_in_front_of_a_packet_are_the_hosts() {
        let numbers = [[54u16, 1_448].map(u16::to_ne_bytes), [20, 16].map(u16::to_ne_bytes)];
        let mut octets = [1, GSO_TCP_IPV4 | GSO_ECN, 0, 0, 0, 0, 0, 0, 0, 0];
        octets[2..].copy_from_slice(numbers.as_flattened().as_flattened());
        let offload =
            Offload { flags: 1, kind: GSO_TCP_IPV4, segment: 1_448, checksum_start: 20, checksum_at: 16 };
        assert_eq!(Offload::read(octets), offload);
    }
}
