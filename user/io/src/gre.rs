//! GRE (RFC 2784, RFC 2890): packets of a data network within packets between this host and a router of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ports::checksum::{folded, sum};

/// The protocol's number.
const GRE: u8 = 47;
/// Hops that a tunnel's packet may take (RFC 1700 §"IP time to live", the kernel's default too).
const HOPS: u8 = 64;
/// The Don't Fragment flag of IPv4.
const WHOLE: u8 = 0x40;
/// Congestion was experienced (RFC 3168 §5), and the bits that say so.
const CE: u8 = 3;

/// A GRE tunnel to a router. A kernel's `ip link add … type gre` (`ip6gre … encaplimit none`) makes the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreTunnel {
    /// This host's end.
    pub local: IpAddr,
    /// The router's, of the same family.
    pub remote: IpAddr,
    /// Distinguishes tunnels between the same ends, both ways.
    pub key: Option<u32>,
}

impl GreTunnel {
    /// Octets of GRE's header.
    pub(crate) fn header_octets(&self) -> usize {
        if self.key.is_some() { 8 } else { 4 }
    }

    /// The first two octets of the header: a key or none, no checksum, no sequence numbers, version 0.
    pub(crate) fn flags(&self) -> [u8; 2] {
        if self.key.is_some() { [0x20, 0] } else { [0, 0] }
    }

    /// Octets that are put in front of a packet.
    pub(crate) fn overhead(&self) -> usize {
        self.header_octets() + if self.remote.is_ipv4() { 20 } else { 40 }
    }

    /// What a packet of the tunnel carries; `None` where it is none of it, or malformed.
    pub(crate) fn read<'p>(&self, packet: &'p [u8]) -> Option<CarriedPacket<'p>> {
        let (source, destination, class, content) = match packet.first()? {
            0x45 => ipv4(packet)?,
            first if first >> 4 == 6 => ipv6(packet)?,
            _ => return None,
        };
        let header: &[u8; 4] = content.first_chunk()?;
        let ours = source == self.remote && destination == self.local && header[..2] == self.flags();
        let key = content.get(4..8).map(|k| u32::from_be_bytes([k[0], k[1], k[2], k[3]]));
        let packet = content.get(self.header_octets()..)?;
        let version = match header[2..] {
            [0x08, 0x00] => 4,
            [0x86, 0xdd] => 6,
            _ => return None,
        };
        let right = ours
            && (self.key.is_none() || self.key == key)
            && packet.first().is_some_and(|f| f >> 4 == version);
        right.then_some(CarriedPacket { packet, congested: class & CE == CE })
    }

    /// Writes the headers that go in front of a packet, and the packet; their octets, or `None` where there is no room, or no IP packet.
    pub(crate) fn write(&self, room: &mut [u8], packet: &[u8]) -> Option<usize> {
        let (kind, class) = match packet.first()? >> 4 {
            4 => ([0x08, 0x00], *packet.get(1)?),
            6 => ([0x86, 0xdd], packet[0] << 4 | packet.get(1)? >> 4),
            _ => return None,
        };
        let class = class & !CE; // without ECN, so that no end has to bring it back: RFC 6040 §4.3
        let octets = self.overhead() + packet.len();
        let length = u16::try_from(octets).ok()?;
        let room = room.get_mut(..octets)?;
        let (headers, inner) = room.split_at_mut(self.overhead());
        match (self.local, self.remote) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let [l0, l1] = length.to_be_bytes();
                headers[..12].copy_from_slice(&[0x45, class, l0, l1, 0, 0, WHOLE, 0, HOPS, GRE, 0, 0]);
                headers[12..16].copy_from_slice(&from.octets());
                headers[16..20].copy_from_slice(&to.octets());
                let checksum = !folded(sum(&headers[..20], 0));
                headers[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let [l0, l1] = (length - 40).to_be_bytes();
                headers[..8].copy_from_slice(&[0x60 | class >> 4, class << 4, 0, 0, l0, l1, GRE, HOPS]);
                headers[8..24].copy_from_slice(&from.octets());
                headers[24..40].copy_from_slice(&to.octets());
            }
            _ => return None,
        }
        let at = headers.len() - self.header_octets();
        headers[at..at + 2].copy_from_slice(&self.flags());
        headers[at + 2..at + 4].copy_from_slice(&kind);
        if let Some(key) = self.key {
            headers[at + 4..].copy_from_slice(&key.to_be_bytes());
        }
        inner.copy_from_slice(packet);
        Some(octets)
    }
}

/// What came by a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CarriedPacket<'p> {
    pub(crate) packet: &'p [u8],
    /// A router on the tunnel's way says that it is full.
    pub(crate) congested: bool,
}

/// Says in a packet that the tunnel's way was congested; false where it must be dropped, for its sender would not understand: RFC 6040
/// §4.2. IPv4 without options alone.
pub(crate) fn congested(packet: &mut [u8]) -> bool {
    match packet {
        [0x45, class, rest @ ..] if *class & CE != 0 && rest.len() >= 18 => {
            *class |= CE;
            packet[10..12].fill(0);
            let checksum = !folded(sum(&packet[..20], 0));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            true
        }
        [first, second, ..] if *first >> 4 == 6 && *second & CE << 4 != 0 => {
            *second |= CE << 4;
            true
        }
        _ => false,
    }
}

/// Source, destination, traffic class and content.
type OuterHeader<'p> = (IpAddr, IpAddr, u8, &'p [u8]);

fn ipv4(packet: &[u8]) -> Option<OuterHeader<'_>> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let octets = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let whole = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
    let right = whole && header[9] == GRE && folded(sum(header, 0)) == 0xffff;
    let address = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?).into());
    right.then_some((address(12)?, address(16)?, header[1], packet.get(20..octets)?))
}

fn ipv6(packet: &[u8]) -> Option<OuterHeader<'_>> {
    let header: &[u8; 40] = packet.first_chunk()?;
    let octets = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let address = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?).into());
    let class = header[0] << 4 | header[1] >> 4;
    (header[6] == GRE).then_some((address(8)?, address(24)?, class, packet.get(40..40 + octets)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(v4: bool, key: Option<u32>) -> GreTunnel {
        let ip = |a: &str, b: &str| if v4 { a.parse().unwrap() } else { b.parse().unwrap() };
        GreTunnel { local: ip("203.0.113.1", "2001:db8::1"), remote: ip("203.0.113.2", "2001:db8::2"), key }
    }

    fn back(t: GreTunnel) -> GreTunnel {
        GreTunnel { local: t.remote, remote: t.local, ..t }
    }

    fn inner(v4: bool, class: u8) -> Vec<u8> {
        let mut p = if v4 {
            vec![0x45, class, 0, 24, 0, 1, 0, 0, 64, 17, 0, 0, 10, 45, 0, 2, 203, 0, 113, 9]
        } else {
            let mut p = vec![0x60 | class >> 4, class << 4, 0, 0, 0, 4, 17, 64];
            p.resize(40, 7);
            p
        };
        p.extend_from_slice(&[1, 2, 3, 4]);
        if v4 {
            let checksum = !folded(sum(&p[..20], 0));
            p[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        p
    }

    fn written(t: GreTunnel, packet: &[u8]) -> Vec<u8> {
        let mut room = [0xee; 200];
        let n = t.write(&mut room, packet).unwrap();
        room[..n].to_vec()
    }

    #[test] // RFC 2784 §2, RFC 2890 §2; RFC 2784 §3: protocols by their Ethernet kinds
    fn headers_octet_for_octet() {
        let p = inner(true, 0xba);
        let w = written(tunnel(true, Some(0x0102_0304)), &p);
        assert_eq!(w[..12], [0x45, 0xb8, 0, 52, 0, 0, 0x40, 0, 64, 47, w[10], w[11]]);
        assert_eq!(folded(sum(&w[..20], 0)), 0xffff);
        assert_eq!(w[12..28], [203, 0, 113, 1, 203, 0, 113, 2, 0x20, 0, 8, 0, 1, 2, 3, 4]);
        assert_eq!(w[28..], p);
        let p = inner(false, 0xba);
        let w = written(tunnel(false, None), &p);
        assert_eq!(w[..8], [0x6b, 0x80, 0, 0, 0, 48, 47, 64]);
        assert_eq!((w[40..44].to_vec(), &w[44..]), (vec![0, 0, 0x86, 0xdd], &p[..]));
    }

    #[test]
    fn what_one_end_writes_the_other_reads_and_no_other_tunnel() {
        let all = [(true, None), (true, Some(7)), (true, Some(8)), (false, None), (false, Some(7))];
        for (v4, key) in all {
            for packet in [inner(true, 0), inner(false, 0)] {
                let w = written(tunnel(v4, key), &packet);
                for (v4_there, key_there) in all {
                    let read = back(tunnel(v4_there, key_there)).read(&w);
                    let same = (v4, key) == (v4_there, key_there);
                    assert_eq!(read, same.then_some(CarriedPacket { packet: &packet, congested: false }));
                }
                assert_eq!(tunnel(v4, key).read(&w), None, "the wrong way round");
                for octets in 0..w.len() {
                    assert_eq!(back(tunnel(v4, key)).read(&w[..octets]), None, "cut to {octets}");
                }
                let short = &mut vec![0; w.len() - 1];
                assert_eq!(tunnel(v4, key).write(short, &packet), None, "no room");
            }
        }
        assert_eq!(tunnel(true, None).write(&mut [0; 99], &[0x10, 0]), None, "no IP");
        let mixed = GreTunnel { remote: tunnel(false, None).remote, ..tunnel(true, None) };
        assert_eq!(mixed.write(&mut [0; 99], &inner(true, 0)), None);
    }

    #[test]
    fn other_forms_of_the_header_are_refused() {
        let t = back(tunnel(true, None));
        let w = written(tunnel(true, None), &inner(true, 0));
        for (at, octet) in
            [(20, 0x80), (20, 0x10), (20, 0x40), (21, 1), (22, 0x65), (23, 6), (24, 0x60), (6, 0x20)]
        {
            let mut bad = w.clone();
            bad[at] = octet;
            bad[10..12].fill(0);
            let checksum = !folded(sum(&bad[..20], 0));
            bad[10..12].copy_from_slice(&checksum.to_be_bytes());
            assert_eq!(t.read(&bad), None, "octet {at}: {octet:#x}");
        }
        let mut bad = w.clone();
        bad[10] ^= 1;
        assert_eq!(t.read(&bad), None, "checksum");
    }

    #[test] // RFC 6040 §4.2, figure 4: the outer header says CE
    fn congestion_mark_of_the_tunnel_is_copied_or_the_packet_dropped() {
        for v4 in [true, false] {
            let mut w = written(tunnel(v4, None), &inner(true, 0));
            if v4 {
                w[1] |= 3;
                w[10..12].fill(0);
                let checksum = !folded(sum(&w[..20], 0));
                w[10..12].copy_from_slice(&checksum.to_be_bytes());
            } else {
                w[1] |= 3 << 4;
            }
            assert!(back(tunnel(v4, None)).read(&w).unwrap().congested);
            for (ecn, kept) in [(0, false), (1, true), (2, true), (3, true)] {
                let mut p = inner(v4, 0xb8 | ecn);
                assert_eq!(congested(&mut p), kept);
                assert!(!kept || p == inner(v4, 0xbb));
            }
        }
        assert!(!congested(&mut []) && !congested(&mut [0x45, 1, 0]));
    }
}
