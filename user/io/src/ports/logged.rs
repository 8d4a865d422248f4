//! Packets that come from a packet logger on another host, and go back to it (docs/design/packet-logger.md).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use whimbrel_user::logger::datagram::{self, DatagramHead, DatagramKind, HEAD_OCTETS, OUTCOMES_MAX};
use whimbrel_user::{BurstPacket, Destination, Packet, PacketVerdict};

use super::{BURST, Ports};
use crate::sys::datagrams::{BATCH, Datagrams};
use crate::thread::IoCounters;

/// A UPF's way to its packet logger.
pub struct LoggerEnd {
    socket: UdpSocket,
    logger: SocketAddr,
    token: u64,
}

impl LoggerEnd {
    /// A way to this logger for packets that name the token. Errors: those of socket(2) and bind(2).
    pub fn open(logger: SocketAddr, token: u64) -> io::Result<Self> {
        let any: IpAddr = if logger.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let socket = UdpSocket::bind((any, 0))?;
        Ok(Self { socket, logger, token })
    }

    /// Shows the logger where this way ends; it asks until it knows.
    pub fn show_address(&self) {
        let head = DatagramHead::of(DatagramKind::Address, self.token, 0);
        // It asks again.
        let _ = self.socket.send_to(&head.to_octets(), self.logger);
    }

    /// Another handle of the same way. Errors: those of dup(2).
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, ..*self })
    }
}

/// The packet thread's side.
pub(crate) struct LoggedPort {
    socket: Datagrams,
    logger: SocketAddr,
    token: u64,
    /// Addresses of N3, which the logger has.
    n3: [Option<IpAddr>; 2],
    /// Counters of the packets of this burst.
    received: Vec<u64>,
    outcomes: Vec<u8>,
    /// Datagrams that are being sent.
    batch: Vec<Vec<u8>>,
}

impl LoggedPort {
    pub(crate) fn new(end: LoggerEnd, n3: [Option<IpAddr>; 2]) -> io::Result<Self> {
        let LoggerEnd { socket, logger, token } = end;
        let local = socket.local_addr()?;
        let socket = Datagrams::of(socket, local, false)?;
        let batch = vec![Vec::new(); BATCH];
        Ok(Self { socket, logger, token, n3, received: Vec::new(), outcomes: Vec::new(), batch })
    }

    fn send_all(&mut self, count: usize, counters: &mut IoCounters) {
        let mut done = 0;
        while done < count {
            let rest = self.batch[done..count].iter().map(|octets| (self.logger, 0, &octets[..]));
            match self.socket.send(rest) {
                Ok(0) => {
                    counters.send_full += (count - done) as u64;
                    return;
                }
                Ok(n) => done += n,
                Err(_) => {
                    counters.send_errors += 1;
                    done += 1;
                }
            }
        }
    }

    fn send_one(&mut self, octets: &[u8]) {
        // What is lost is asked for again, or given up by the logger in time.
        let _ = self.socket.send(std::iter::once((self.logger, 0, octets)));
    }

    fn send_outcomes(&mut self) {
        let outcomes = std::mem::take(&mut self.outcomes);
        for some in outcomes.chunks(8 * OUTCOMES_MAX) {
            let head = DatagramHead::of(DatagramKind::Outcome, self.token, 0).to_octets();
            self.send_one(&[&head[..], some].concat());
        }
    }
}

impl Ports for LoggedPort {
    const LOGGED: bool = true;

    fn receive(&mut self, slots: &mut [BurstPacket], counters: &mut IoCounters) -> usize {
        self.received.clear();
        let mut from: [Option<(SocketAddr, usize)>; BATCH] = [None; BATCH];
        let most = slots.len().min(BATCH);
        let packets = slots[..most].iter_mut().map(|s| &mut s.packet);
        let n = match self.socket.receive(packets, |i, peer, octets| from[i] = Some((peer, octets))) {
            Ok(n) => n,
            Err(_) => {
                counters.receive_errors += 1;
                0
            }
        };
        let mut taken = 0;
        for (i, from) in from.into_iter().enumerate().take(n) {
            let Some((peer, octets)) = from else { continue };
            slots[i].packet.received(octets);
            let head = DatagramHead::read(slots[i].packet.octets())
                .filter(|h| peer == self.logger && h.token == self.token);
            let Some(head) = head else {
                counters.malformed += 1;
                continue;
            };
            let n3 = self.n3;
            let local = |peer: SocketAddr| n3.into_iter().flatten().find(|a| a.is_ipv4() == peer.is_ipv4());
            match (head.kind, head.origin(local)) {
                (DatagramKind::Packet, Some(origin)) => {
                    slots[i].packet.came_logged(head.counter, HEAD_OCTETS);
                    slots[i].origin = origin;
                    slots.swap(taken, i);
                    self.received.push(head.counter);
                    taken += 1;
                    match head.gnb {
                        Some(_) => counters.n3_received += 1,
                        None => counters.n6_received += 1,
                    }
                }
                (DatagramKind::Probe, _) => {
                    let answer = DatagramHead::of(DatagramKind::Answer, self.token, head.counter).to_octets();
                    self.send_one(&answer);
                }
                _ => counters.malformed += 1,
            }
        }
        taken
    }

    fn send(&mut self, packets: &mut dyn Iterator<Item = (Destination, &Packet)>, counters: &mut IoCounters) {
        let mut n = 0;
        for (to, packet) in packets {
            let head = DatagramHead::to(to, self.token, packet.counter());
            self.batch[n].clear();
            self.batch[n].extend_from_slice(&head.to_octets());
            self.batch[n].extend_from_slice(packet.octets());
            match to {
                Destination::N3 { .. } => counters.n3_sent += 1,
                Destination::N6 { .. } | Destination::Frames { .. } => counters.n6_sent += 1,
            }
            n += 1;
            if n == BURST {
                self.send_all(n, counters);
                n = 0;
            }
        }
        self.send_all(n, counters);
    }

    fn decided(&mut self, slots: &[BurstPacket], ended: Vec<u64>) {
        // Those that waited come before those that are held now.
        ended.into_iter().for_each(|counter| datagram::write_outcome(&mut self.outcomes, counter, false));
        for (slot, counter) in slots.iter().zip(std::mem::take(&mut self.received)) {
            match slot.verdict {
                PacketVerdict::Send(_) | PacketVerdict::Hand { .. } => {}
                PacketVerdict::Drop(_) => datagram::write_outcome(&mut self.outcomes, counter, false),
                // Of one that is held, the slot has another packet now.
                PacketVerdict::Taken | PacketVerdict::Pending => {
                    let holds = slot.packet.counter() != counter;
                    datagram::write_outcome(&mut self.outcomes, counter, holds);
                }
            }
        }
        self.send_outcomes();
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.as_fd()]
    }

    fn lost(&self) -> u64 {
        self.socket.lost()
    }
}
