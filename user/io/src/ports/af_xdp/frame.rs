//! UDP datagrams in Ethernet frames, as the kernel reads and writes them elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::packet::{self, FrameAddresses};
use crate::ports::checksum::{folded, sum};

const UDP_OCTETS: usize = 8;
/// IPv6's fragment header (RFC 8200 §4.5).
const FRAGMENT_OCTETS: usize = 8;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
/// Hops that a datagram of ours may take (RFC 1700 §"IP time to live", the kernel's default too).
const HOPS: u8 = 64;
/// IPv4's flag that more fragments follow.
const MORE: u16 = 0x2000;

/// A datagram that was received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReceivedDatagram<'f> {
    pub(crate) from: SocketAddr,
    pub(crate) to: IpAddr,
    pub(crate) payload: &'f [u8],
}

/// The datagram in a frame; `None` where the IP or UDP header is none, or a checksum is wrong. Fragments and options are
/// not read: the program that steers frames leaves them to the kernel.
pub(crate) fn read(frame: &[u8]) -> Option<ReceivedDatagram<'_>> {
    let packet = packet::of(frame);
    let (source, to, datagram) = match packet.first()? {
        0x45 => ipv4(packet)?,
        first if first >> 4 == 6 => ipv6(packet)?,
        _ => return None,
    };
    let octets = usize::from(u16::from_be_bytes([*datagram.get(4)?, *datagram.get(5)?]));
    let datagram = datagram.get(..octets)?;
    let payload = datagram.get(UDP_OCTETS..)?;
    let port = u16::from_be_bytes([datagram[0], datagram[1]]);
    right(source, to, datagram).then_some(ReceivedDatagram {
        from: SocketAddr::new(source, port),
        to,
        payload,
    })
}

fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let octets = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let address =
        |at: usize| -> Option<IpAddr> { Some(Ipv4Addr::from(*header[at..].first_chunk::<4>()?).into()) };
    let whole = header[9] == UDP && folded(sum(header, 0)) == 0xffff;
    whole.then_some((address(12)?, address(16)?, packet.get(header.len()..octets)?))
}

fn ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let header: &[u8; 40] = packet.first_chunk()?;
    let octets = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let address =
        |at: usize| -> Option<IpAddr> { Some(Ipv6Addr::from(*header[at..].first_chunk::<16>()?).into()) };
    (header[6] == UDP).then_some((
        address(8)?,
        address(24)?,
        packet.get(header.len()..header.len() + octets)?,
    ))
}

/// Whether a datagram's checksum is right, or left out as IPv4 permits and IPv6 does for tunnels (RFC 6935).
///
/// A host on the other end of a virtual link leaves the sum of the pseudo-header there, for a device to go on with that
/// never comes: no octet of it was on a wire.
fn right(from: IpAddr, to: IpAddr, datagram: &[u8]) -> bool {
    let checksum = u16::from_be_bytes([datagram[6], datagram[7]]);
    let pseudo = pseudo_header(from, to, datagram.len());
    checksum == 0 || folded(sum(datagram, pseudo)) == 0xffff || checksum == folded(pseudo)
}

/// The sum of the pseudo-header (RFC 768, RFC 8200 §8.1).
fn pseudo_header(from: IpAddr, to: IpAddr, octets: usize) -> u64 {
    let of = |a: IpAddr, sum_so_far| match a {
        IpAddr::V4(a) => sum(&a.octets(), sum_so_far),
        IpAddr::V6(a) => sum(&a.octets(), sum_so_far),
    };
    of(to, of(from, octets as u64 + u64::from(UDP)))
}

/// Where datagrams go that are to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramRoute {
    pub(crate) link: FrameAddresses,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// Type of service or traffic class.
    pub(crate) tos: u8,
    /// Octets of an IP packet that the way carries.
    pub(crate) mtu: usize,
    /// Identifies the fragments of one datagram.
    pub(crate) identification: u32,
}

/// A datagram to be sent, in one frame or as fragments in several.
pub(crate) struct OutgoingDatagram<'p> {
    way: DatagramRoute,
    header: [u8; UDP_OCTETS],
    payload: &'p [u8],
}

impl<'p> OutgoingDatagram<'p> {
    /// `None` where one end is IPv4 and the other IPv6, or the datagram is longer than one can be.
    pub(crate) fn new(way: DatagramRoute, payload: &'p [u8]) -> Option<Self> {
        let octets = u16::try_from(UDP_OCTETS + payload.len()).ok()?;
        let header_octets = if way.to.is_ipv4() { 20 } else { 40 };
        if way.from.is_ipv4() != way.to.is_ipv4()
            || usize::from(octets) + header_octets > usize::from(u16::MAX)
        {
            return None;
        }
        let mut header = [0; UDP_OCTETS];
        header[0..2].copy_from_slice(&way.from.port().to_be_bytes());
        header[2..4].copy_from_slice(&way.to.port().to_be_bytes());
        header[4..6].copy_from_slice(&octets.to_be_bytes());
        let pseudo = pseudo_header(way.from.ip(), way.to.ip(), octets.into());
        let checksum = match !folded(sum(payload, sum(&header, pseudo))) {
            0 => 0xffff, // as 0 says that there is none
            c => c,
        };
        header[6..8].copy_from_slice(&checksum.to_be_bytes());
        Some(Self { way, header, payload })
    }

    fn len(&self) -> usize {
        UDP_OCTETS + self.payload.len()
    }

    /// Octets of the datagram in each frame but the last.
    fn piece(&self) -> usize {
        let (v4, mtu) = (self.way.to.is_ipv4(), self.way.mtu);
        let header = if v4 { 20 } else { 40 };
        if header + self.len() <= mtu {
            return self.len();
        }
        let header = if v4 { header } else { header + FRAGMENT_OCTETS };
        (mtu.saturating_sub(header) & !7).max(8)
    }

    /// Frames that it takes.
    pub(crate) fn frames(&self) -> usize {
        self.len().div_ceil(self.piece())
    }

    /// Writes the `i`th frame; its octets, cut to the room.
    pub(crate) fn write(&self, i: usize, room: &mut [u8]) -> usize {
        let piece = self.piece();
        let start = i * piece;
        let octets = piece.min(self.len().saturating_sub(start));
        // `new` has made sure that the datagram's octets fit in 16 bits.
        let (offset, more, whole) = (start as u16, start + octets < self.len(), piece == self.len());
        let mut b = HeaderWriter { room, at: 0 };
        let (header, octets_of_link) = self.way.link.header(self.way.to.is_ipv4());
        b.put(&header[..octets_of_link]);
        match (self.way.from.ip(), self.way.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut h = [0; 20];
                h[0] = 0x45;
                h[1] = self.way.tos;
                h[2..4].copy_from_slice(&((20 + octets) as u16).to_be_bytes());
                h[4..6].copy_from_slice(&(self.way.identification as u16).to_be_bytes());
                // Routers may fragment: a UE's packet of full size must reach a gNB behind a link of 1,500.
                h[6..8].copy_from_slice(&((offset / 8) | if more { MORE } else { 0 }).to_be_bytes());
                h[8] = HOPS;
                h[9] = UDP;
                h[12..16].copy_from_slice(&from.octets());
                h[16..20].copy_from_slice(&to.octets());
                let checksum = !folded(sum(&h, 0));
                h[10..12].copy_from_slice(&checksum.to_be_bytes());
                b.put(&h);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                b.put(&[0x60 | self.way.tos >> 4, self.way.tos << 4, 0, 0]);
                let extra = if whole { 0 } else { FRAGMENT_OCTETS };
                b.put(&((extra + octets) as u16).to_be_bytes());
                b.put(&[if whole { UDP } else { FRAGMENT }, HOPS]);
                b.put(&from.octets());
                b.put(&to.octets());
                if !whole {
                    b.put(&[UDP, 0]);
                    b.put(&((offset & !7) | u16::from(more)).to_be_bytes());
                    b.put(&self.way.identification.to_be_bytes());
                }
            }
            _ => {} // `new` has refused it
        }
        let end = start + octets;
        b.put(self.header.get(start..end.min(UDP_OCTETS)).unwrap_or_default());
        b.put(
            self.payload
                .get(start.saturating_sub(UDP_OCTETS)..end.saturating_sub(UDP_OCTETS))
                .unwrap_or_default(),
        );
        b.at
    }
}

struct HeaderWriter<'r> {
    room: &'r mut [u8],
    at: usize,
}

impl HeaderWriter<'_> {
    fn put(&mut self, octets: &[u8]) {
        let n = octets.len().min(self.room.len() - self.at);
        self.room[self.at..self.at + n].copy_from_slice(&octets[..n]);
        self.at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(v4: bool, mtu: usize) -> DatagramRoute {
        let ip = |a: &str, b: &str| if v4 { a.parse().unwrap() } else { b.parse().unwrap() };
        DatagramRoute {
            link: FrameAddresses { to: [2, 0, 0, 0, 0, 9], from: [2, 0, 0, 0, 0, 1], vlan: None },
            from: SocketAddr::new(ip("192.0.2.1", "2001:db8::1"), 2152),
            to: SocketAddr::new(ip("192.0.2.9", "2001:db8::9"), 2152),
            tos: 0xb8,
            mtu,
            identification: 0x0102_0304,
        }
    }

    fn frames(way: DatagramRoute, payload: &[u8]) -> Vec<Vec<u8>> {
        let outgoing = OutgoingDatagram::new(way, payload).unwrap();
        let write = |i| {
            let mut room = [0; 4096];
            let n = outgoing.write(i, &mut room);
            room[..n].to_vec()
        };
        (0..outgoing.frames()).map(write).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (v4, octets) in [(true, 0), (true, 1), (true, 1300), (false, 7), (false, 1301)] {
            let payload: Vec<u8> = (0..octets).map(|i| i as u8).collect();
            let way = way(v4, 1500);
            let all = frames(way, &payload);
            assert_eq!(all.len(), 1);
            assert_eq!(all[0][..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1]);
            let expected = Some(ReceivedDatagram { from: way.from, to: way.to.ip(), payload: &payload });
            assert_eq!(read(&all[0]), expected);
            let tagged = &frames(
                DatagramRoute { link: FrameAddresses { vlan: Some(7), ..way.link }, ..way },
                &payload,
            )[0];
            assert_eq!((tagged.len(), &tagged[12..16]), (all[0].len() + 4, &[0x81, 0, 0, 7][..]));
            assert_eq!(read(tagged), expected, "with a tag");
        }
    }

    #[test] // RFC 791's words in order; the checksum worked out by hand
    fn ipv4_header_octet_for_octet() {
        let frame = &frames(way(true, 1500), &[1, 2, 3])[0];
        assert_eq!(
            frame[12..34],
            [8, 0, 0x45, 0xb8, 0, 31, 3, 4, 0, 0, 64, 17, 0xf3, 0x07, 192, 0, 2, 1, 192, 0, 2, 9]
        );
        // Ports, length; sum of pseudo-header, header and payload.
        assert_eq!(frame[34..], [8, 0x68, 8, 0x68, 0, 11, 0x66, 0xfb, 1, 2, 3]);
    }

    #[test] // RFC 8200 §4.5, RFC 791 §3.2: offsets in units of eight octets
    fn a_datagram_beyond_the_mtu_goes_in_fragments_that_join_again() {
        let payload: Vec<u8> = (0..3000).map(|i| (i * 7) as u8).collect();
        for v4 in [true, false] {
            let whole = frames(way(v4, 9000), &payload)[..].concat();
            let header = if v4 { 34 } else { 54 };
            let (mut joined, mut expected_offset) = (Vec::new(), 0);
            let all = frames(way(v4, 1400), &payload);
            assert_eq!(all.len(), 3);
            for (i, frame) in all.iter().enumerate() {
                assert!(frame.len() <= 1414, "fits the MTU");
                let (field, start) = if v4 { (20, 34) } else { (56, 62) };
                let field = u16::from_be_bytes([frame[field], frame[field + 1]]);
                let (offset, more) =
                    if v4 { ((field & 0x1fff) * 8, field & MORE != 0) } else { (field & !7, field & 1 != 0) };
                assert_eq!((usize::from(offset), more), (expected_offset, i < 2));
                if v4 {
                    assert_eq!(folded(sum(&frame[14..34], 0)), 0xffff, "header checksum");
                } else {
                    assert_eq!((frame[20], frame[54], &frame[58..62]), (FRAGMENT, UDP, &[1, 2, 3, 4][..]));
                }
                expected_offset += frame.len() - start;
                joined.extend_from_slice(&frame[start..]);
            }
            assert!(joined == whole[header..], "the datagram with its one checksum");
        }
    }

    #[test]
    fn a_wrong_octet_is_noticed_and_a_missing_checksum_is_not() {
        for v4 in [true, false] {
            let good = frames(way(v4, 1500), &[9; 33]).concat();
            let udp = if v4 { 34 } else { 54 };
            for at in 14..good.len() {
                // What no checksum covers: in IPv6's header traffic class, flow label and hop limit.
                if !v4 && matches!(at, 15..=17 | 21) {
                    continue;
                }
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                assert_eq!(read(&bad), None, "octet {at}");
            }
            let mut none = good.clone();
            none[udp + 6..udp + 8].fill(0);
            assert!(read(&none).is_some());
            for octets in 0..good.len() {
                assert_eq!(read(&good[..octets]), None, "cut to {octets}");
            }
            // The sum of the pseudo-header alone, as virtual links have it.
            let w = way(v4, 1500);
            let pseudo = folded(pseudo_header(w.from.ip(), w.to.ip(), 41));
            none[udp + 6..udp + 8].copy_from_slice(&pseudo.to_be_bytes());
            assert!(read(&none).is_some());
        }
    }

    #[test]
    fn what_follows_the_datagram_in_a_short_frame_is_not_of_it() {
        let mut frame = frames(way(true, 1500), &[5]).concat();
        frame.resize(60, 0xee);
        assert_eq!(read(&frame).unwrap().payload, [5]);
    }

    #[test]
    fn a_datagram_that_cannot_be_is_not_written() {
        assert!(OutgoingDatagram::new(way(true, 1500), &vec![0; 65_508]).is_none());
        let mixed = DatagramRoute { to: way(false, 1500).to, ..way(true, 1500) };
        assert!(OutgoingDatagram::new(mixed, &[1]).is_none());
    }
}
