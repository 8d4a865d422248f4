//! Packets in memory, for tests and benchmarks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use whimbrel_user::{BurstPacket, Destination, Origin, Packet};

use super::Ports;
use crate::queue::Queue;
use crate::thread::IoCounters;

/// Packets that wait in each direction at most.
const PACKETS_MAX: usize = 65_536;

#[derive(Debug)]
struct Both {
    inward: Queue<(Origin, Vec<u8>)>,
    outward: Queue<(Destination, Vec<u8>)>,
}

/// The outer end: what is received is put in here, what is sent comes out. It has a place for each packet thread.
#[derive(Clone, Debug)]
pub struct MemoryOuterEnd(Arc<[Both]>);

impl MemoryOuterEnd {
    /// The user plane receives a packet, on its first thread. False if too many wait.
    pub fn put(&self, origin: Origin, octets: &[u8]) -> bool {
        self.put_at(0, origin, octets)
    }

    /// The user plane receives a packet on one of its threads. False if too many wait, or there is no such thread.
    pub fn put_at(&self, thread: usize, origin: Origin, octets: &[u8]) -> bool {
        self.0.get(thread).is_some_and(|both| both.inward.push((origin, octets.to_vec())).is_ok())
    }

    /// What the user plane has sent since the last call, that of one thread after that of the other.
    pub fn take(&self) -> Vec<(Destination, Vec<u8>)> {
        self.0.iter().flat_map(|both| both.outward.take()).collect()
    }

    /// Becomes readable when the first thread has sent something.
    pub fn sent(&self) -> BorrowedFd<'_> {
        self.0[0].outward.as_fd()
    }
}

pub(crate) struct MemoryPorts {
    all: Arc<[Both]>,
    number: usize,
    waiting: std::collections::VecDeque<(Origin, Vec<u8>)>,
}

/// Both ends, the inner one of each of so many threads.
pub(crate) fn ports(threads: usize) -> io::Result<(Vec<MemoryPorts>, MemoryOuterEnd)> {
    let both = |_| Ok(Both { inward: Queue::new(PACKETS_MAX)?, outward: Queue::new(PACKETS_MAX)? });
    let all: Arc<[Both]> = (0..threads).map(both).collect::<io::Result<_>>()?;
    let ports = |number| MemoryPorts { all: Arc::clone(&all), number, waiting: Default::default() };
    Ok(((0..threads).map(ports).collect(), MemoryOuterEnd(all)))
}

impl MemoryPorts {
    fn both(&self) -> &Both {
        &self.all[self.number]
    }
}

impl Ports for MemoryPorts {
    fn receive(&mut self, slots: &mut [BurstPacket], counters: &mut IoCounters) -> usize {
        if self.waiting.is_empty() {
            self.waiting = self.both().inward.take();
        }
        let mut n = 0;
        for slot in slots {
            let Some((origin, octets)) = self.waiting.pop_front() else { break };
            slot.packet.fill(&octets);
            slot.origin = origin;
            match origin {
                Origin::N3 { .. } => counters.n3_received += 1,
                Origin::N6 { .. } | Origin::Frames { .. } => counters.n6_received += 1,
            }
            n += 1;
        }
        n
    }

    fn send(&mut self, packets: &mut dyn Iterator<Item = (Destination, &Packet)>, counters: &mut IoCounters) {
        for (to, packet) in packets {
            if self.both().outward.push((to, packet.octets().to_vec())).is_err() {
                counters.send_full += 1;
                continue;
            }
            match to {
                Destination::N3 { .. } => counters.n3_sent += 1,
                Destination::N6 { .. } | Destination::Frames { .. } => counters.n6_sent += 1,
            }
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.both().inward.as_fd()]
    }

    fn lost(&self) -> u64 {
        0 // `MemoryOuterEnd::put` says so
    }
}
