//! Which request B works on next: those with a ticket first, and fair among operators, so that neither a flood of garbage nor one
//! busy operator keeps others waiting.
//!
//! The edge says who sent a request (one number for each connection that T has opened); T's own word on who it is costs two
//! signatures to check, which is what a flood must not make B do.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_ids::Instant;

/// Who sent a request, as the edge knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u64);

/// The most requests that wait in a class: at 2,000 a second, two seconds of work. What waits longer is of no use ([`WAIT_MAX`]).
pub const WAITING_MAX: usize = 4_096;

/// How long a request may wait: less than a UE waits for an answer before it turns to another operator.
pub const WAIT_MAX: Duration = Duration::from_secs(2);

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    octets: Vec<u8>,
}

/// One class: a queue for each peer, served in turn.
#[derive(Debug, Default)]
struct Class {
    queues: BTreeMap<Peer, VecDeque<Waiting>>,
    /// The peers that have something waiting, next first.
    turns: VecDeque<Peer>,
    waiting: usize,
}

impl Class {
    /// Adds a request. A full class gives up the newest of the longest queue: that of the peer to blame.
    fn push(&mut self, peer: Peer, request: Waiting) -> Option<Peer> {
        let queue = self.queues.entry(peer).or_default();
        if queue.is_empty() {
            self.turns.push_back(peer);
        }
        queue.push_back(request);
        self.waiting += 1;
        if self.waiting <= WAITING_MAX {
            return None;
        }
        let (&longest, queue) = self.queues.iter_mut().max_by_key(|(_, queue)| queue.len())?;
        queue.pop_back();
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&longest);
            self.turns.retain(|peer| *peer != longest);
        }
        Some(longest)
    }

    fn pop(&mut self) -> Option<(Peer, Waiting)> {
        let peer = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&peer)?;
        let request = queue.pop_front()?;
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&peer);
        } else {
            self.turns.push_back(peer);
        }
        Some((peer, request))
    }
}

/// The requests that wait for B.
#[derive(Debug, Default)]
pub struct Admission {
    ticketed: Class,
    others: Class,
    /// Requests given up because they waited too long.
    expired: u64,
}

impl Admission {
    /// Lets a request wait. Gives the peer of which a request was given up for it, which may be this one.
    pub fn push(&mut self, peer: Peer, ticketed: bool, octets: Vec<u8>, now: Instant) -> Option<Peer> {
        let class = if ticketed { &mut self.ticketed } else { &mut self.others };
        class.push(peer, Waiting { since: now, octets })
    }

    /// The next request to work on. Those that waited too long are given up and counted.
    pub fn pop(&mut self, now: Instant) -> Option<(Peer, Vec<u8>)> {
        while let Some((peer, request)) = self.ticketed.pop().or_else(|| self.others.pop()) {
            if now.since(request.since) <= WAIT_MAX {
                return Some((peer, request.octets));
            }
            self.expired += 1;
        }
        None
    }

    /// How many requests wait: with a ticket, without.
    pub const fn waiting(&self) -> (usize, usize) {
        (self.ticketed.waiting, self.others.waiting)
    }

    /// How many requests were given up because they waited too long.
    pub const fn expired(&self) -> u64 {
        self.expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000_000);

    fn peers(admission: &mut Admission, n: usize) -> Vec<u64> {
        (0..n).filter_map(|_| admission.pop(NOW)).map(|(peer, _)| peer.0).collect()
    }

    #[test]
    fn requests_with_a_ticket_go_first_and_peers_take_turns() {
        let mut admission = Admission::default();
        for _ in 0..3 {
            assert_eq!(admission.push(Peer(1), false, vec![], NOW), None);
        }
        admission.push(Peer(2), false, vec![], NOW);
        for peer in [1, 1, 3] {
            admission.push(Peer(peer), true, vec![], NOW);
        }
        assert_eq!(peers(&mut admission, 9), [1, 3, 1, 1, 2, 1, 1]);
        assert_eq!(admission.waiting(), (0, 0));
    }

    #[test]
    fn a_flood_costs_the_peer_that_floods() {
        let mut admission = Admission::default();
        admission.push(Peer(1), false, vec![], NOW);
        let given_up = (0..10 * WAITING_MAX).filter_map(|_| admission.push(Peer(2), false, vec![], NOW));
        assert!(given_up.fold(0, |n, peer| if peer == Peer(2) { n + 1 } else { panic!() }) > 9 * WAITING_MAX);
        assert_eq!(admission.waiting(), (0, WAITING_MAX));
        admission.push(Peer(3), false, vec![], NOW);
        assert_eq!(peers(&mut admission, 4), [1, 2, 3, 2]);
    }

    #[test]
    fn a_class_full_of_single_requests_gives_up_one_and_keeps_its_turns() {
        let mut admission = Admission::default();
        let given_up = (0..=WAITING_MAX as u64).filter_map(|n| admission.push(Peer(n), false, vec![], NOW));
        assert_eq!(given_up.count(), 1);
        assert_eq!(peers(&mut admission, 2 * WAITING_MAX).len(), WAITING_MAX);
    }

    #[test]
    fn what_waited_too_long_is_given_up_and_counted() {
        let mut admission = Admission::default();
        admission.push(Peer(1), false, vec![1], NOW);
        admission.push(Peer(1), false, vec![2], NOW + WAIT_MAX);
        let late = NOW + WAIT_MAX + Duration::from_micros(1);
        assert_eq!(admission.pop(late), Some((Peer(1), vec![2])));
        assert_eq!((admission.expired(), admission.pop(late)), (1, None));
    }
}
