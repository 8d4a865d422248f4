//! IP packets of N6 in Ethernet frames: a hop is taken off each, as the kernel does where it forwards them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::gre::GreTunnel;
use crate::ports::checksum::{folded, sum};

/// What precedes what a frame carries, without a tag and with one.
const ETHERNET_OCTETS: usize = 14;
const TAGGED_OCTETS: usize = 18;
/// The kind of frames with a tag (IEEE 802.1Q).
const TAG: [u8; 2] = [0x81, 0];

/// The two ends of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameAddresses {
    pub(crate) to: [u8; 6],
    pub(crate) from: [u8; 6],
    pub(crate) vlan: Option<u16>,
}

impl FrameAddresses {
    /// The header of a frame with IPv4 or IPv6, and how many octets of it there are.
    pub(crate) fn header(&self, v4: bool) -> ([u8; TAGGED_OCTETS], usize) {
        let mut header = [0; TAGGED_OCTETS];
        header[..6].copy_from_slice(&self.to);
        header[6..12].copy_from_slice(&self.from);
        let octets = match self.vlan {
            None => ETHERNET_OCTETS,
            Some(id) => {
                header[12..14].copy_from_slice(&TAG);
                header[14..16].copy_from_slice(&(id & 0x0fff).to_be_bytes());
                TAGGED_OCTETS
            }
        };
        header[octets - 2..octets].copy_from_slice(if v4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
        (header, octets)
    }
}

/// The packet in a frame, with a tag or without.
pub(crate) fn of(frame: &[u8]) -> &[u8] {
    let tagged = frame.get(12..14) == Some(&TAG);
    frame.get(if tagged { TAGGED_OCTETS } else { ETHERNET_OCTETS }..).unwrap_or_default()
}

/// Where a packet goes, if it is one whose header is right and that may be forwarded.
pub(crate) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let header: &[u8; 20] = packet.first_chunk()?;
            // With options the sum goes over more; the kernel is to see to those.
            let right = header[0] == 0x45 && header[8] > 1 && folded(sum(header, 0)) == 0xffff;
            right.then(|| Ipv4Addr::new(header[16], header[17], header[18], header[19]).into())
        }
        6 => {
            let header: &[u8; 40] = packet.first_chunk()?;
            let to: [u8; 16] = *header.last_chunk()?;
            (header[7] > 1).then(|| Ipv6Addr::from(to).into())
        }
        _ => None,
    }
}

/// Takes a hop off a packet that has a [`destination`].
pub(crate) fn hop(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            packet[8] -= 1;
            // The sum of all words stays the same: RFC 1141, with the carry.
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            let (sum, carry) = checksum.overflowing_add(0x0100);
            packet[10..12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        }
        Some(6) => packet[7] -= 1,
        _ => {}
    }
}

/// Writes a packet as a frame into `room`, with a hop less, by a tunnel if one is given; its octets, 0 where it does not fit.
pub(crate) fn write(
    room: &mut [u8],
    link: FrameAddresses,
    tunnel: Option<&GreTunnel>,
    packet: &[u8],
) -> usize {
    let v4 = tunnel.map_or_else(|| packet.first().is_none_or(|f| f >> 4 == 4), |t| t.remote.is_ipv4());
    let (header, octets) = link.header(v4);
    let Some((frame, rest)) = room.split_at_mut_checked(octets) else { return 0 };
    frame.copy_from_slice(&header[..octets]);
    let written = match tunnel {
        Some(tunnel) => tunnel.write(rest, packet),
        None => rest.get_mut(..packet.len()).map(|to| to.copy_from_slice(packet)).map(|()| packet.len()),
    };
    let Some(written) = written else { return 0 };
    hop(&mut rest[written - packet.len()..written]);
    octets + written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(ttl: u8) -> Vec<u8> {
        let mut p = vec![0x45, 0, 0, 24, 0, 1, 0, 0, ttl, 17, 0, 0, 203, 0, 113, 2, 10, 45, 0, 2, 1, 2, 3, 4];
        let checksum = !folded(sum(&p[..20], 0));
        p[10..12].copy_from_slice(&checksum.to_be_bytes());
        p
    }

    #[test]
    fn a_hop_is_taken_off_and_the_checksum_stays_right() {
        for ttl in 2..=255 {
            let mut p = ipv4(ttl);
            let to = destination(&p);
            assert_eq!(to, Some([10, 45, 0, 2].into()));
            hop(&mut p);
            assert_eq!((p[8], folded(sum(&p[..20], 0))), (ttl - 1, 0xffff));
        }
        let mut p = vec![0x60, 0, 0, 0, 0, 0, 59, 2];
        p.resize(40, 7);
        assert!(destination(&p).is_some());
        let mut room = [0; 100];
        let link = FrameAddresses { to: [1; 6], from: [2; 6], vlan: None };
        assert_eq!(write(&mut room, link, None, &p), 54);
        assert_eq!(room[..22], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 1]);
        assert_eq!(write(&mut room[..53], link, None, &p), 0, "no room");
        let link = FrameAddresses { vlan: Some(0x123), ..link };
        assert_eq!(write(&mut room, link, None, &p), 58);
        assert_eq!(room[12..20], [0x81, 0, 1, 0x23, 0x86, 0xdd, 0x60, 0]);
        assert_eq!((of(&room[..58]).len(), of(&room[..17])), (40, &[][..]));
        assert_eq!(write(&mut room[..57], link, None, &p), 0, "no room");
    }

    #[test]
    fn what_the_kernel_must_answer_has_no_destination_here() {
        assert_eq!(destination(&ipv4(1)), None, "no hops left");
        let mut options = ipv4(9);
        options[0] = 0x46;
        assert_eq!(destination(&options), None);
        let mut wrong = ipv4(9);
        wrong[17] ^= 1;
        assert_eq!(destination(&wrong), None, "a wrong checksum");
        assert_eq!(
            (destination(&[]), destination(&[0x45; 19]), destination(&[0x60; 39])),
            (None, None, None)
        );
    }

    #[test]
    fn tshark_reads_tags_and_tunnels_as_they_were_meant() {
        use std::io::Write;
        use std::process::{Command, Stdio};

        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, 59, 2];
        v6.resize(40, 7);
        let [a4, b4]: [IpAddr; 2] = [[203, 0, 113, 1].into(), [203, 0, 113, 2].into()];
        let [a6, b6] = ["2001:db8::1", "2001:db8::2"].map(|a| a.parse::<IpAddr>().unwrap());
        let mut pcap = [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 1].map(u32::to_be_bytes).concat();
        for (local, remote, key, vlan) in [(a4, b4, Some(0x0102_0304), Some(0x123)), (a6, b6, None, None)] {
            let tunnel = GreTunnel { local, remote, key };
            for packet in [&ipv4(9), &v6] {
                let mut room = [0; 200];
                let n = write(
                    &mut room,
                    FrameAddresses { to: [4; 6], from: [2; 6], vlan },
                    Some(&tunnel),
                    packet,
                );
                pcap.extend_from_slice(&[0, 0, n as u32, n as u32].map(u32::to_be_bytes).concat());
                pcap.extend_from_slice(&room[..n]);
            }
        }
        // What packets of the tests carry is no UDP.
        let mut child = match Command::new("tshark")
            .args(["-r", "-", "-V", "-o", "ip.check_checksum:TRUE", "--disable-protocol", "udp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
        {
            Ok(child) => child,
            Err(_) => return eprintln!("skipped: tshark is not installed"),
        };
        child.stdin.take().unwrap().write_all(&pcap).unwrap();
        let text = String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned();
        let count = |what: &str| text.matches(what).count();
        assert_eq!(
            (count("802.1Q Virtual LAN, PRI: 0, DEI: 0, ID: 291"), count("Key: 0x01020304")),
            (2, 2),
            "{text}"
        );
        assert_eq!(count("Generic Routing Encapsulation (IP)"), 2, "{text}");
        assert_eq!(count("Generic Routing Encapsulation (IPv6)"), 2, "{text}");
        assert_eq!((count("Time to Live: 8"), count("Hop Limit: 1\n")), (2, 2), "a hop less: {text}");
        assert_eq!(count("Header checksum status: Good"), 4, "{text}");
        for bad in ["Malformed", "Expert Info (Error", "Unknown"] {
            assert_eq!(count(bad), 0, "{bad}: {text}");
        }
    }
}
