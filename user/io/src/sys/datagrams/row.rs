//! Which packets are sent as one message that is cut into datagrams (`UDP_SEGMENT`).

use std::net::SocketAddr;

/// Octets of one message that is cut into datagrams: what UDP over IPv4 can say (RFC 768), which is less than over IPv6.
const MESSAGE_OCTETS_MAX: usize = 65_507;

/// Packets in a row for one message.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) peer: SocketAddr,
    pub(super) tos: u8,
    /// The first of their parts.
    pub(super) first: usize,
    /// Octets of each, but for the last.
    pub(super) octets: usize,
    pub(super) packets: usize,
    pub(super) total: usize,
    /// The last was shorter.
    pub(super) ended: bool,
}

impl Row {
    pub(super) fn new(first: usize, peer: SocketAddr, tos: u8, octets: usize) -> Self {
        Self { peer, tos, first, octets, packets: 1, total: octets, ended: false }
    }

    /// Takes one more, if it can be of the same message. Of `segments` octets at most are those that can.
    pub(super) fn takes(&mut self, peer: SocketAddr, tos: u8, octets: usize, segments: usize) -> bool {
        let fits = !self.ended
            && (peer, tos) == (self.peer, self.tos)
            && (1..=self.octets).contains(&octets)
            && self.octets <= segments
            && self.total + octets <= MESSAGE_OCTETS_MAX;
        if fits {
            self.packets += 1;
            self.total += octets;
            self.ended = octets < self.octets;
        }
        fits
    }
}
