//! Packets between the logger and a UPF: UDP datagrams with a head, in network byte order.
//!
//! ```text
//! 0      kind                1 packet, 2 probe, 3 probe's answer, 4 address, 5 outcome
//! 1      network             data network of N6, 255 of N3
//! 2      tos                 of a packet to a gNB
//! 3      zero
//! 4      port                of a gNB
//! 6      zero
//! 8      token               of the UPF that sends or receives the packet
//! 16     counter             of a packet; zero where the UPF made it
//! 24     address             of a gNB, IPv4-mapped
//! 40     the packet; of an outcome: entries of eight octets, of which the highest bit says that the UPF holds the packet of that counter
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::config::DnIndex;
use crate::pipeline::{Destination, Origin};

/// Octets of the head.
pub const HEAD_OCTETS: usize = 40;
/// Outcomes of one datagram at most: it is not to be fragmented.
pub const OUTCOMES_MAX: usize = 128;

const HOLDS: u64 = 1 << 63;
const NO_NETWORK: u8 = 255;

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DatagramKind {
    /// A packet that the logger passes on.
    Packet = 1,
    /// Asks the packet thread for a sign of life.
    Probe = 2,
    /// The answer to a probe.
    Answer = 3,
    /// The UPF's address for packets is where this comes from.
    Address = 4,
    /// What became of packets that do not come back.
    Outcome = 5,
}

/// The head of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHead {
    /// What it is.
    pub kind: DatagramKind,
    /// Which UPF it is from or for.
    pub token: u64,
    /// The packet's counter, or the probe's number.
    pub counter: u64,
    /// The gNB that the packet is from or for, with the type of service; else it is of a data network.
    pub gnb: Option<(SocketAddr, u8)>,
    /// The data network.
    pub network: DnIndex,
}

impl DatagramHead {
    /// Of a datagram without a packet.
    pub fn of(kind: DatagramKind, token: u64, counter: u64) -> Self {
        Self { kind, token, counter, gnb: None, network: DnIndex(0) }
    }

    /// Of a packet for the UPF.
    pub fn from(origin: Origin, token: u64, counter: u64) -> Self {
        let head = Self::of(DatagramKind::Packet, token, counter);
        match origin {
            Origin::N3 { peer, .. } => Self { gnb: Some((peer, 0)), ..head },
            Origin::N6 { dn } | Origin::Frames { dn } => Self { network: dn, ..head },
        }
    }

    /// Of a packet of the UPF.
    pub fn to(destination: Destination, token: u64, counter: u64) -> Self {
        let head = Self::of(DatagramKind::Packet, token, counter);
        match destination {
            Destination::N3 { peer, tos } => Self { gnb: Some((peer, tos)), ..head },
            Destination::N6 { dn } | Destination::Frames { dn } => Self { network: dn, ..head },
        }
    }

    /// Where the packet came from, at this address of N3 if from a gNB.
    pub fn origin(&self, local: impl FnOnce(SocketAddr) -> Option<IpAddr>) -> Option<Origin> {
        match self.gnb {
            Some((peer, _)) => Some(Origin::N3 { peer, local: local(peer)? }),
            None => Some(Origin::N6 { dn: self.network }),
        }
    }

    /// Where the packet goes.
    pub fn destination(&self) -> Destination {
        match self.gnb {
            Some((peer, tos)) => Destination::N3 { peer, tos },
            None => Destination::N6 { dn: self.network },
        }
    }

    /// The encoded form, as it is sent.
    pub fn to_octets(self) -> [u8; HEAD_OCTETS] {
        let mut octets = [0; HEAD_OCTETS];
        octets[0] = self.kind as u8;
        octets[1] = self.network.0;
        octets[8..16].copy_from_slice(&self.token.to_be_bytes());
        octets[16..24].copy_from_slice(&self.counter.to_be_bytes());
        if let Some((peer, tos)) = self.gnb {
            let address = match peer.ip() {
                IpAddr::V4(a) => a.to_ipv6_mapped(),
                IpAddr::V6(a) => a,
            };
            (octets[1], octets[2]) = (NO_NETWORK, tos);
            octets[4..6].copy_from_slice(&peer.port().to_be_bytes());
            octets[24..40].copy_from_slice(&address.octets());
        }
        octets
    }

    /// Reads it. `None`: it is none.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let (head, _) = octets.split_first_chunk::<HEAD_OCTETS>()?;
        let number = |at: usize| {
            let mut octets = [0; 8];
            octets.copy_from_slice(&head[at..at + 8]);
            u64::from_be_bytes(octets)
        };
        let kinds = [
            DatagramKind::Packet,
            DatagramKind::Probe,
            DatagramKind::Answer,
            DatagramKind::Address,
            DatagramKind::Outcome,
        ];
        let kind = kinds.into_iter().find(|k| *k as u8 == head[0])?;
        let mut address = [0; 16];
        address.copy_from_slice(&head[24..40]);
        let peer =
            SocketAddr::new(Ipv6Addr::from(address).to_canonical(), u16::from_be_bytes([head[4], head[5]]));
        let is_of_n3 = head[1] == NO_NETWORK;
        let network = DnIndex(if is_of_n3 { 0 } else { head[1] });
        Some(Self {
            kind,
            token: number(8),
            counter: number(16),
            gnb: is_of_n3.then_some((peer, head[2])),
            network,
        })
    }
}

/// Writes an outcome behind the head: the UPF holds the packet, or has done with it.
pub fn write_outcome(to: &mut Vec<u8>, counter: u64, holds: bool) {
    let word = counter | if holds { HOLDS } else { 0 };
    to.extend_from_slice(&word.to_be_bytes());
}

/// The outcomes behind a head: counters, and whether the UPF holds the packet.
pub fn outcomes(behind: &[u8]) -> impl Iterator<Item = (u64, bool)> {
    behind.chunks_exact(8).filter_map(|word| {
        let word = u64::from_be_bytes(word.try_into().ok()?);
        Some((word & !HOLDS, word & HOLDS != 0))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        let n3 = |text: &str| Destination::N3 { peer: text.parse().unwrap(), tos: 46 };
        for to in [n3("192.0.2.9:2152"), n3("[2001:db8::9]:2153"), Destination::N6 { dn: DnIndex(3) }] {
            let head = DatagramHead::to(to, 7, 1 << 40);
            assert_eq!(DatagramHead::read(&head.to_octets()), Some(head));
            assert_eq!(head.destination(), to);
        }
        let (peer, local) = ("192.0.2.9:2152".parse().unwrap(), IpAddr::from([192, 0, 2, 1]));
        let origin = Origin::N3 { peer, local };
        assert_eq!(DatagramHead::from(origin, 7, 8).origin(|_| Some(local)), Some(origin));
        assert_eq!(DatagramHead::from(origin, 7, 8).origin(|_| None), None, "there is no such address of N3");
    }

    #[test]
    fn outcomes_say_whether_the_upf_holds_a_packet() {
        let mut octets = Vec::new();
        write_outcome(&mut octets, 5, true);
        write_outcome(&mut octets, 6, false);
        octets.push(1);
        assert_eq!(outcomes(&octets).collect::<Vec<_>>(), [(5, true), (6, false)]);
    }

    proptest! {
        #[test]
        fn any_octets_are_a_head_or_none(octets in proptest::collection::vec(any::<u8>(), 0..60), kind in 0u8..7) {
            let octets = [&[kind][..], &octets].concat();
            if let Some(head) = DatagramHead::read(&octets) {
                prop_assert_eq!(DatagramHead::read(&head.to_octets()), Some(head));
            }
        }
    }
}
