//! Which request the broker works on next: those with a ticket first, and fair among operators, so that neither a flood of garbage nor one
//! busy operator keeps others waiting.
//!
//! The edge names the sender of a request (one number for each network prefix from which requests come); the
//! operator's own claim of its identity costs two signatures to check, which is what a flood must not make
//! the broker do.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_ids::Instant;

/// The sender of a request, as the edge knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u64);

/// A request as the edge knows it: the answer goes to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The peer that sent it.
    pub peer: Peer,
    /// Which of the peer's requests it is.
    pub request: u64,
}

/// The most requests that wait in a class: at 2,000 a second, two seconds of work. What waits longer is of no use ([`WAIT_MAX`]).
pub const WAITING_MAX: usize = 4_096;

/// How long a request may wait: less than a UE waits for an answer before it turns to another operator.
pub const WAIT_MAX: Duration = Duration::from_secs(2);

/// A request that waits.
#[derive(Debug)]
struct WaitingRequest {
    origin: Origin,
    since: Instant,
    octets: Vec<u8>,
}

/// One class: a queue for each peer, served in turn.
#[derive(Debug, Default)]
struct AdmissionClass {
    queues: BTreeMap<Peer, VecDeque<WaitingRequest>>,
    /// The peers that have something waiting, next first.
    turns: VecDeque<Peer>,
    waiting: usize,
}

impl AdmissionClass {
    /// Adds a request. A full class gives up the newest of the longest queue: that of the peer to blame.
    fn push(&mut self, request: WaitingRequest) -> Option<Origin> {
        let peer = request.origin.peer;
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
        let given_up = queue.pop_back()?;
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&longest);
            self.turns.retain(|peer| *peer != longest);
        }
        Some(given_up.origin)
    }

    fn pop(&mut self) -> Option<WaitingRequest> {
        let peer = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&peer)?;
        let request = queue.pop_front()?;
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&peer);
        } else {
            self.turns.push_back(peer);
        }
        Some(request)
    }
}

/// The request whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// To be worked on.
    Serve(Origin, Vec<u8>),
    /// It waited longer than [`WAIT_MAX`].
    TooLate(Origin),
}

/// The requests that wait for the broker.
#[derive(Debug, Default)]
pub struct Admission {
    ticketed: AdmissionClass,
    others: AdmissionClass,
}

impl Admission {
    /// Lets a request wait. Gives the one that was given up for it, which may be itself.
    pub fn push(&mut self, origin: Origin, ticketed: bool, octets: Vec<u8>, now: Instant) -> Option<Origin> {
        let class = if ticketed { &mut self.ticketed } else { &mut self.others };
        class.push(WaitingRequest { origin, since: now, octets })
    }

    /// The next request.
    pub fn pop(&mut self, now: Instant) -> Option<Turn> {
        let WaitingRequest { origin, since, octets } = self.ticketed.pop().or_else(|| self.others.pop())?;
        let in_time = now.since(since) <= WAIT_MAX;
        Some(if in_time { Turn::Serve(origin, octets) } else { Turn::TooLate(origin) })
    }

    /// How many requests wait: with a ticket, without.
    pub const fn waiting(&self) -> (usize, usize) {
        (self.ticketed.waiting, self.others.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000_000);

    fn of(peer: u64) -> Origin {
        Origin { peer: Peer(peer), request: 0 }
    }

    fn peers(admission: &mut Admission, n: usize) -> Vec<u64> {
        let turns = (0..n).filter_map(|_| admission.pop(NOW));
        turns.map(|turn| if let Turn::Serve(origin, _) = turn { origin.peer.0 } else { panic!() }).collect()
    }

    #[test]
    fn requests_with_a_ticket_go_first_and_peers_take_turns() {
        let mut admission = Admission::default();
        for _ in 0..3 {
            assert_eq!(admission.push(of(1), false, vec![], NOW), None);
        }
        admission.push(of(2), false, vec![], NOW);
        for peer in [1, 1, 3] {
            admission.push(of(peer), true, vec![], NOW);
        }
        assert_eq!(peers(&mut admission, 9), [1, 3, 1, 1, 2, 1, 1]);
        assert_eq!(admission.waiting(), (0, 0));
    }

    #[test]
    fn a_flood_costs_the_peer_that_floods() {
        let mut admission = Admission::default();
        admission.push(of(1), false, vec![], NOW);
        let given_up: Vec<_> =
            (0..10 * WAITING_MAX).filter_map(|_| admission.push(of(2), false, vec![], NOW)).collect();
        assert!(given_up.len() > 9 * WAITING_MAX && given_up.iter().all(|origin| *origin == of(2)));
        assert_eq!(admission.waiting(), (0, WAITING_MAX));
        admission.push(of(3), false, vec![], NOW);
        assert_eq!(peers(&mut admission, 4), [1, 2, 3, 2]);
    }

    #[test]
    fn a_class_full_of_single_requests_gives_up_one_and_keeps_its_turns() {
        let mut admission = Admission::default();
        let given_up = (0..=WAITING_MAX as u64).filter_map(|n| admission.push(of(n), false, vec![], NOW));
        assert_eq!(given_up.count(), 1);
        assert_eq!(peers(&mut admission, 2 * WAITING_MAX).len(), WAITING_MAX);
    }

    #[test]
    fn what_waited_too_long_is_not_worked_on() {
        let mut admission = Admission::default();
        admission.push(of(1), false, vec![1], NOW);
        admission.push(of(1), false, vec![2], NOW + WAIT_MAX);
        let late = NOW + WAIT_MAX + Duration::from_micros(1);
        assert_eq!(admission.pop(late), Some(Turn::TooLate(of(1))));
        assert_eq!(admission.pop(late), Some(Turn::Serve(of(1), vec![2])));
        assert_eq!(admission.pop(late), None);
    }
}
