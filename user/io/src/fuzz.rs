//! What frames from outside are read by, for the fuzz target.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::gre::{GreTunnel, congested};
use crate::ports::af_xdp::{frame, packet};

/// Which of four tunnels there is, of either family, with a key and without, and a frame: it is read as one from a gNB and as one from a
/// router, and what is in it goes on, with a hop less, through the tunnel.
///
/// # Panics
///
/// If the packet that was read is not within the frame, or leaves the tunnel changed.
pub fn frame(input: &[u8]) {
    let Some((kind, octets)) = input.split_first() else { return };
    let ends: [IpAddr; 2] = if kind & 1 == 0 {
        [1, 2].map(|n| Ipv4Addr::new(192, 0, 2, n).into())
    } else {
        [1, 2].map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n).into())
    };
    let tunnel = GreTunnel { local: ends[0], remote: ends[1], key: (kind & 2 == 2).then_some(7) };
    let within = |part: &[u8]| assert!(octets.as_ptr_range().contains(&part.as_ptr()) || part.is_empty());
    if let Some(datagram) = frame::read(octets) {
        within(datagram.payload);
    }
    let outer = packet::of(octets);
    within(outer);
    let carried = tunnel.read(outer);
    let inner = carried.map_or(outer, |c| c.packet);
    within(inner);
    let mut kept = inner.to_vec();
    if carried.is_some_and(|c| c.congested) && !congested(&mut kept) {
        return;
    }
    if packet::destination(&kept).is_none() {
        return;
    }
    let link = packet::FrameAddresses { to: [2; 6], from: [3; 6], vlan: None };
    let mut room = vec![0; kept.len() + 100];
    let written = packet::write(&mut room, link, Some(&tunnel), &kept);
    let back = GreTunnel { local: tunnel.remote, remote: tunnel.local, key: tunnel.key };
    let arrived = back.read(packet::of(&room[..written])).map(|c| c.packet);
    packet::hop(&mut kept);
    assert_eq!(arrived, (written > 0).then_some(kept.as_slice()));
}

#[cfg(test)]
mod tests {
    #[test]
    fn frames_that_were_kept_are_read() {
        let kept = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/frames")).unwrap();
        let read: Vec<_> = kept.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        assert!(read.len() >= 10);
        read.iter().for_each(|input| super::frame(input));
    }
}
