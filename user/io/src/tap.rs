//! A copy of the datagrams that cross N3, for captures.
//!
//! Off, it costs the packet thread one relaxed look at a flag a burst. On, each datagram is copied into a bounded queue;
//! what finds no room there is lost to the capture and counted, never to the UE.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use whimbrel_ids::Instant;

use crate::queue::Queue;

/// Datagrams that may wait for the writer of a capture: 16 MiB of full size, and 80 ms of 100,000 packets a second, in
/// which a writer that is woken at once has long come.
pub(crate) const TAPPED_MAX: usize = 8192;

/// A datagram that N3 received or sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TappedDatagram {
    /// When, by the user plane's clock.
    pub at: Instant,
    /// Address and port that sent it.
    pub from: SocketAddr,
    /// Address and port that get it.
    pub to: SocketAddr,
    /// Its payload: GTP-U.
    pub octets: Vec<u8>,
}

/// The packet thread's end and the reader's.
#[derive(Debug)]
pub(crate) struct Tap {
    on: AtomicBool,
    lost: AtomicU64,
    queue: Queue<TappedDatagram>,
}

impl Tap {
    pub(crate) fn new() -> io::Result<Self> {
        let queue = Queue::new(TAPPED_MAX)?;
        Ok(Self { on: AtomicBool::new(false), lost: AtomicU64::new(0), queue })
    }

    /// Whether copies are taken. Relaxed: a burst more or less does not matter.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Sets whether copies are taken; those that wait stay.
    pub(crate) fn set(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Hands copies out, as many as find room; the others are counted. Leaves `copies` empty.
    pub(crate) fn hand_out(&self, copies: &mut Vec<TappedDatagram>) {
        self.queue.extend(copies);
        if !copies.is_empty() {
            self.lost.fetch_add(copies.len() as u64, Ordering::Relaxed);
            copies.clear();
        }
    }

    /// Takes the messages that wait.
    pub(crate) fn take(&self) -> Vec<TappedDatagram> {
        self.queue.take().into()
    }

    /// How many found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_and_the_rest_comes_in_order() {
        let tap = Tap::new().unwrap();
        assert!(!tap.is_on(), "off unless asked for");
        let address = SocketAddr::from(([127, 0, 0, 1], 2152));
        let copy = |n: usize| TappedDatagram {
            at: Instant(n as u64),
            from: address,
            to: address,
            octets: vec![0; 8],
        };
        let mut copies: Vec<_> = (0..TAPPED_MAX + 3).map(copy).collect();
        tap.hand_out(&mut copies);
        assert!(copies.is_empty());
        assert_eq!(tap.lost(), 3);
        let out = tap.take();
        assert_eq!(out.len(), TAPPED_MAX);
        assert!(out.iter().enumerate().all(|(i, t)| t.at == Instant(i as u64)));
        copies.push(copy(1));
        tap.hand_out(&mut copies);
        assert_eq!((tap.take().len(), tap.lost()), (1, 3), "room again after a read");
    }
}
