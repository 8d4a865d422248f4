//! Frames of links through shared memory.

use std::collections::BTreeMap;

use rustix::event::epoll;
use whimbrel_shm::{Area, Memory, Pool, Port, PortFault, Receiver};

use crate::event::DownReason;
use crate::frame::{FRAME_HEADER, ShmAddress};
use crate::protocol::LinkTurn;

/// How long rings are polled before sockets are polled again: far shorter than any round trip over a socket.
pub(crate) const SOCKET_POLL_INTERVAL: core::time::Duration = core::time::Duration::from_micros(10);

/// The rings of this process in one shared-memory pool.
pub(crate) struct PoolRings {
    pub(crate) pool: Pool,
    /// Areas of restarted functions whose previous incarnation still has a link.
    waiting_areas: BTreeMap<usize, Area>,
    /// Peers that wrote invalid data, by incarnation: their frames go through the socket only.
    pub(crate) distrusted_peers: BTreeMap<u8, u32>,
}

impl PoolRings {
    pub(crate) fn of(pool: Pool) -> Self {
        Self { pool, waiting_areas: BTreeMap::new(), distrusted_peers: BTreeMap::new() }
    }

    /// Maps areas that have come, except in the place of one that a link uses: its last frames are read first.
    pub(crate) fn add_arrived(&mut self, is_used: impl Fn(usize) -> bool) {
        let arrived = self.pool.take_arrived();
        self.waiting_areas.extend(arrived.into_iter().filter(|(of, area)| !self.pool.has(*of, area)));
        if self.waiting_areas.is_empty() {
            return;
        }
        let due: Vec<usize> = self.waiting_areas.keys().copied().filter(|of| !is_used(*of)).collect();
        for of in due {
            // Where it cannot be mapped, the function is reached over its socket.
            let _ = self.waiting_areas.remove(&of).map(|area| self.pool.add(of, area));
        }
    }

    /// True if the area that the peer announced is mapped at this end.
    pub(crate) fn has_mapped(&self, peer: ShmAddress) -> bool {
        self.pool.maps(peer.function.into(), peer.incarnation)
    }

    /// Registers the pool's eventfd with epoll, edge-triggered; it is never read.
    pub(crate) fn register_bell(
        &self,
        epoll: impl std::os::fd::AsFd,
        data: epoll::EventData,
    ) -> rustix::io::Result<()> {
        let Some(bell) = self.pool.bell() else { return Ok(()) };
        epoll::add(epoll, bell, data, epoll::EventFlags::IN | epoll::EventFlags::ET)
    }

    /// Begins to send to a peer through its ring. Returns the generation.
    pub(crate) fn begin_sending(&mut self, peer: ShmAddress) -> Option<u32> {
        if self.distrusted_peers.get(&peer.function) == Some(&peer.incarnation) {
            return None;
        }
        self.pool.port.begin(peer.function.into())
    }

    /// Stops the use of rings to a peer that wrote invalid data.
    pub(crate) fn distrust(&mut self, peer: ShmAddress) {
        self.distrusted_peers.insert(peer.function, peer.incarnation);
    }
}

/// Frames that leave through a ring, and those that wait for room in it.
pub(crate) struct FrameRingSender {
    /// Index of the pool in `Links::rings`.
    pub(crate) pool: usize,
    peer: usize,
    /// Queued frames, each after its length; the first one may be a remainder.
    queue: Vec<u8>,
    taken: usize,
}

impl FrameRingSender {
    pub(crate) fn to(pool: usize, peer: ShmAddress) -> Self {
        Self { pool, peer: peer.function.into(), queue: Vec::new(), taken: 0 }
    }

    pub(crate) fn peer(&self) -> usize {
        self.peer
    }

    /// Octets that wait for room.
    pub(crate) fn queued_octets(&self) -> usize {
        self.queue.len() - self.taken
    }

    /// Writes a frame, or has it wait.
    pub(crate) fn send<M: Memory>(&mut self, port: &mut Port<M>, frame: &[u8]) -> Result<(), PortFault> {
        if self.queued_octets() == 0 {
            let Some(rest) = push(port, self.peer, frame)? else { return Ok(()) };
            self.enqueue(rest);
        } else {
            self.enqueue(frame);
        }
        Ok(())
    }

    fn enqueue(&mut self, frame: &[u8]) {
        self.queue.extend_from_slice(&(frame.len() as u32).to_ne_bytes());
        self.queue.extend_from_slice(frame);
    }

    /// Writes what waits, as far as there is room, and lets the peer see it.
    pub(crate) fn flush<M: Memory>(&mut self, port: &mut Port<M>) -> Result<(), PortFault> {
        while let Some((header, rest)) = self.queue[self.taken..].split_first_chunk::<FRAME_HEADER>() {
            let length = u32::from_ne_bytes(*header) as usize;
            let frame = rest.get(..length).unwrap_or_default();
            let Some(left) = push(port, self.peer, frame)?.map(<[u8]>::len) else {
                self.taken += FRAME_HEADER + length;
                continue;
            };
            // What has left makes room for the new length.
            self.taken += length - left;
            self.queue[self.taken..self.taken + FRAME_HEADER].copy_from_slice(&(left as u32).to_ne_bytes());
            break;
        }
        if 2 * self.taken >= self.queue.len() {
            self.queue.drain(..self.taken);
            self.taken = 0;
        }
        port.publish(self.peer);
        Ok(())
    }
}

/// Writes the pieces of a frame. Returns the rest that found no room.
fn push<'a, M: Memory>(
    port: &mut Port<M>,
    peer: usize,
    mut frame: &'a [u8],
) -> Result<Option<&'a [u8]>, PortFault> {
    loop {
        let (piece, rest) = frame.split_at(frame.len().min(port.piece_octets_max()));
        if !port.push(peer, piece, rest.is_empty())? {
            return Ok(Some(frame));
        }
        if rest.is_empty() {
            return Ok(None);
        }
        frame = rest;
    }
}

/// Frames that come through a ring.
pub(crate) struct FrameRingReceiver {
    /// Index of the pool in `Links::rings`.
    pub(crate) pool: usize,
    receiver: Receiver,
    /// An incomplete frame.
    incomplete: Vec<u8>,
}

/// Why a ring is no longer read.
pub(crate) enum RingEnd {
    /// The link ends for this reason.
    Link(DownReason),
    /// The peer closed the link or wrote invalid data: its socket shows which.
    ClosedByPeer,
}

impl FrameRingReceiver {
    pub(crate) fn from<M: Memory>(pool: usize, port: &Port<M>, peer: ShmAddress, generation: u32) -> Self {
        let receiver = port.receiver(peer.function.into(), generation);
        Self { pool, receiver, incomplete: Vec::new() }
    }

    pub(crate) fn peer(&self) -> usize {
        self.receiver.peer()
    }

    pub(crate) fn has_data<M: Memory>(&self, port: &Port<M>) -> bool {
        port.has_arrived(&self.receiver)
    }

    /// The link has ended: confirms what was taken, so that the peer may use the ring for another link.
    pub(crate) fn release<M: Memory>(&mut self, port: &mut Port<M>) {
        port.confirm_all(&mut self.receiver);
    }

    /// The reason of a close by the peer: `Truncated` in the middle of a frame.
    pub(crate) fn map_close_reason(&self, reason: DownReason) -> DownReason {
        if self.incomplete.is_empty() { reason } else { DownReason::Truncated }
    }

    /// Takes frames until `octets_max` octets have come. Returns whether any piece was there.
    pub(crate) fn take<M: Memory>(
        &mut self,
        port: &mut Port<M>,
        octets_max: usize,
        turn: &mut LinkTurn<'_>,
    ) -> Result<bool, RingEnd> {
        let mut octets = 0;
        while octets < octets_max {
            let before = self.incomplete.len();
            let last = match port.take(&mut self.receiver, &mut self.incomplete) {
                Ok(None) => break,
                Ok(Some(last)) => last,
                Err(PortFault::Superseded) => return Err(RingEnd::ClosedByPeer),
                Err(PortFault::Rubbish) => return Err(RingEnd::Link(DownReason::BadRing)),
            };
            // A piece without octets counts too: a turn ends.
            octets += self.incomplete.len() - before + FRAME_HEADER;
            if self.incomplete.len() > turn.settings.frame_octets_max {
                return Err(RingEnd::Link(DownReason::FrameTooLong));
            }
            if last {
                turn.events.frame(turn.link, &self.incomplete);
                turn.counters.frames_in += 1;
                turn.counters.ring_in += 1;
                self.incomplete.clear();
            }
        }
        port.confirm(&mut self.receiver);
        Ok(octets > 0)
    }
}
