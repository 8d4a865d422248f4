//! Where packets come from and go to: sockets and devices, AF_XDP in front of them, or memory.

pub(crate) mod af_xdp;
pub(crate) mod checksum;
pub(crate) mod descriptors;
pub(crate) mod logged;
#[cfg(feature = "measure")]
pub(crate) mod memory;
#[cfg(feature = "measure")]
pub(crate) mod pcap;
pub(crate) mod segments;
pub(crate) mod system;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_user::{BurstPacket, Destination, Packet};

use af_xdp::xdp_fast_path::FastPathMemory;

use crate::thread::IoCounters;

/// Packets of one burst: DESIGN §5 measured that bursts above 16 gain nothing from memory; system calls gain up to 32.
pub(crate) const BURST: usize = 32;

/// A kind of input and output.
pub(crate) trait Ports: Send + 'static {
    /// Packets come from a packet logger, which is to know what becomes of each.
    const LOGGED: bool = false;

    /// Receives into `slots`, from the first on; how many there are now. Does not wait.
    fn receive(&mut self, slots: &mut [BurstPacket], counters: &mut IoCounters) -> usize;

    /// Sends packets, in order for each destination. What cannot be sent is dropped and counted.
    fn send(&mut self, packets: &mut dyn Iterator<Item = (Destination, &Packet)>, counters: &mut IoCounters);

    /// The burst of these slots was decided on and sent, and packets of these counters have ended that came before: for a packet logger.
    fn decided(&mut self, _: &[BurstPacket], _: Vec<u64>) {}

    /// What to wait for when nothing is there.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// What is shared with a fast path, if there is one.
    fn fast_path(&self) -> Option<Arc<FastPathMemory>> {
        None
    }

    /// How long the thread looks after the last packet before it sleeps; zero: for some looks.
    fn busy_poll(&self) -> Duration {
        Duration::ZERO
    }

    /// Packets that went past the thread, uplink and downlink, and those that were lost on that way.
    fn in_driver(&self) -> [u64; 3] {
        [0; 3]
    }

    /// From now on all packets are to come to the thread, or no longer.
    fn all_up(&mut self, _: bool) {}

    /// Packets that the kernel has lost since the start because they were not taken in time.
    fn lost(&self) -> u64;
}
