//! IP packets of N6 in Ethernet frames: a hop is taken off each, as the kernel does where it forwards them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ports::checksum::{folded, sum};

pub(crate) const ETHERNET_OCTETS: usize = 14;

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

/// Writes a packet as a frame into `room`, with a hop less; its octets, 0 where it does not fit.
pub(crate) fn write(room: &mut [u8], to: [u8; 6], from: [u8; 6], packet: &[u8]) -> usize {
    let octets = ETHERNET_OCTETS + packet.len();
    let Some(frame) = room.get_mut(..octets) else { return 0 };
    let kind: [u8; 2] = if packet.first().is_some_and(|f| f >> 4 == 6) { [0x86, 0xdd] } else { [0x08, 0] };
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&kind);
    frame[ETHERNET_OCTETS..].copy_from_slice(packet);
    hop(&mut frame[ETHERNET_OCTETS..]);
    octets
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
        assert_eq!(write(&mut room, [1; 6], [2; 6], &p), 54);
        assert_eq!(room[..22], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 1]);
        assert_eq!(write(&mut room[..53], [1; 6], [2; 6], &p), 0, "no room");
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
}
