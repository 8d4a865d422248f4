//! Packets in memory, for tests and benchmarks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use whimbrel_user::{Destination, Origin, Packet, Slot};

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

/// The outer end: what is received is put in here, what is sent comes out.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Both>);

impl Memory {
    /// The user plane receives a packet. False if too many wait.
    pub fn put(&self, origin: Origin, octets: &[u8]) -> bool {
        self.0.inward.push((origin, octets.to_vec())).is_ok()
    }

    /// What the user plane has sent since the last call.
    pub fn take(&self) -> Vec<(Destination, Vec<u8>)> {
        self.0.outward.take().into()
    }

    /// Becomes readable when the user plane has sent something.
    pub fn sent(&self) -> BorrowedFd<'_> {
        self.0.outward.as_fd()
    }
}

pub(crate) struct MemoryPorts {
    both: Arc<Both>,
    waiting: std::collections::VecDeque<(Origin, Vec<u8>)>,
}

/// Both ends.
pub(crate) fn ports() -> io::Result<(MemoryPorts, Memory)> {
    let both = Arc::new(Both { inward: Queue::new(PACKETS_MAX)?, outward: Queue::new(PACKETS_MAX)? });
    Ok((MemoryPorts { both: Arc::clone(&both), waiting: Default::default() }, Memory(both)))
}

impl Ports for MemoryPorts {
    fn receive(&mut self, slots: &mut [Slot], counters: &mut IoCounters) -> usize {
        if self.waiting.is_empty() {
            self.waiting = self.both.inward.take();
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
            if self.both.outward.push((to, packet.octets().to_vec())).is_err() {
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
        vec![self.both.inward.as_fd()]
    }

    fn lost(&self) -> u64 {
        0 // `Memory::put` says so
    }
}
