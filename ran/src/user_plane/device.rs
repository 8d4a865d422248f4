//! A network device with two queues.

use std::collections::VecDeque;

use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

/// Queue limit per direction: two full TCP windows of the stack.
const QUEUE_MAX: usize = 64;

/// IP packets in, IP packets out.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) received: VecDeque<Vec<u8>>,
    pub(super) to_send: VecDeque<Vec<u8>>,
    mtu: usize,
}

impl Queues {
    pub(super) fn new(mtu: usize) -> Self {
        Self { received: VecDeque::new(), to_send: VecDeque::new(), mtu }
    }

    /// Takes a packet from the network; drops it if too many wait.
    pub(super) fn receive(&mut self, packet: &[u8]) {
        if self.received.len() < QUEUE_MAX {
            self.received.push_back(packet.to_vec());
        }
    }
}

pub(super) struct Rx(Vec<u8>);
pub(super) struct Tx<'a>(&'a mut VecDeque<Vec<u8>>);

impl phy::RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        if self.0.len() < QUEUE_MAX {
            self.0.push_back(packet);
        }
        result
    }
}

impl phy::Device for Queues {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        Some((Rx(self.received.pop_front()?), Tx(&mut self.to_send)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.to_send))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}
