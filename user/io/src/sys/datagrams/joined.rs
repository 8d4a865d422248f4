//! What the kernel hands over joined (`UDP_GRO`), until it is cut again.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

use whimbrel_user::Packet;

/// Messages of several datagrams each that were received, and not taken yet.
#[derive(Default)]
pub(super) struct JoinedDatagrams {
    pub(super) octets: Vec<u8>,
    /// Where each message is, whose it is, and how many octets a datagram of it has; those before `octets[at]` are taken.
    messages: VecDeque<(SocketAddr, Range<usize>, usize)>,
}

impl JoinedDatagrams {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn put(&mut self, peer: SocketAddr, parts: [&[u8]; 2], segment: usize) {
        let start = self.octets.len();
        parts.into_iter().for_each(|part| self.octets.extend_from_slice(part));
        self.messages.push_back((peer, start..self.octets.len(), segment));
    }

    /// The next datagrams, as many as there are packets for.
    pub(super) fn take(
        &mut self,
        packets: &mut [Option<&mut Packet>],
        mut each: impl FnMut(usize, SocketAddr, usize),
    ) -> usize {
        let mut n = 0;
        for packet in packets.iter_mut().flatten() {
            let Some((peer, left, segment)) = self.messages.front_mut() else { break };
            let datagram = &self.octets[left.start..left.end.min(left.start + *segment)];
            packet.fill(datagram);
            each(n, *peer, datagram.len());
            n += 1;
            left.start += datagram.len();
            if left.start == left.end {
                self.messages.pop_front();
            }
        }
        if self.messages.is_empty() {
            self.octets.clear();
        }
        n
    }
}
