//! N4 messages: those of SMFs that the UPF has not answered, and those of the UPF that wait until the replica has what they say.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Messages of SMFs that are kept at most: what a UPF handles in a second. PFCP repeats the others.
const REQUESTS_MAX: usize = 8_192;
/// Octets of these messages, at most: 4 KiB each, which a session's establishment with many rules needs. A datagram alone may have 64 KiB.
const REQUEST_OCTETS_MAX: usize = REQUESTS_MAX * 4096;
/// Messages of the UPF that wait for the replica at most: likewise.
const WAITING_MAX: usize = 16_384;

/// A message of an SMF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmfMessage {
    /// Counter of the request.
    pub counter: u64,
    /// The SMF's address.
    pub peer: SocketAddr,
    /// The datagram as it came.
    pub octets: Vec<u8>,
}

/// What the replica's acknowledgement releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleasedMessage {
    /// A datagram for an SMF.
    Datagram {
        /// The SMF's address.
        to: SocketAddr,
        /// The datagram as it leaves.
        octets: Vec<u8>,
    },
    /// A message of an SMF was handled, and is kept no longer.
    Handled(u64),
}

/// The control messages in both directions.
///
/// What the UPF answers leaves when the replica has the state that the answer is of: an SMF knows of nothing that a takeover would lose.
#[derive(Default)]
pub struct ControlLog {
    counter: u64,
    requests: BTreeMap<u64, (SocketAddr, Vec<u8>)>,
    /// Octets of all requests.
    request_octets: usize,
    /// Each with the batch of records that is to be acknowledged first.
    waiting: VecDeque<(u64, ReleasedMessage)>,
    /// Batches that were given to the replica, and those that it has acknowledged.
    given: u64,
    acknowledged: u64,
    /// Messages of SMFs that found no room.
    refused: u64,
}

impl ControlLog {
    /// Messages of SMFs that found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The counter of the oldest message of an SMF that is kept.
    pub fn first_request(&self) -> Option<u64> {
        self.requests.keys().next().copied()
    }

    /// Messages of SMFs that are kept.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Keeps a message of an SMF, for the UPF that serves. `None`: there is no room.
    pub fn accept(&mut self, peer: SocketAddr, octets: Vec<u8>) -> Option<SmfMessage> {
        let all_octets = self.request_octets + octets.len();
        if self.requests.len() >= REQUESTS_MAX || all_octets > REQUEST_OCTETS_MAX {
            self.refused += 1;
            return None;
        }
        self.request_octets = all_octets;
        self.counter += 1;
        self.requests.insert(self.counter, (peer, octets.clone()));
        Some(SmfMessage { counter: self.counter, peer, octets })
    }

    /// Records of the UPF go to the replica. Returns the number of the batch, which its acknowledgement names.
    pub fn records_given(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    /// The UPF has sent a datagram, or has handled a message of an SMF. Returns what may leave at once; all of it where there is no `replica`.
    pub fn from_upf(&mut self, what: ReleasedMessage, replica: bool) -> Vec<ReleasedMessage> {
        self.waiting.push_back((self.given, what));
        if replica { self.release() } else { self.without_replica() }
    }

    /// The replica has all batches up to this one. Returns what may leave.
    pub fn acknowledge(&mut self, batch: u64) -> Vec<ReleasedMessage> {
        self.acknowledged = self.acknowledged.max(batch.min(self.given));
        self.release()
    }

    /// Whether the replica is so far behind that it is to be done without.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    /// There is no replica: nothing has to wait.
    pub fn without_replica(&mut self) -> Vec<ReleasedMessage> {
        self.acknowledged = self.given;
        self.release()
    }

    fn release(&mut self) -> Vec<ReleasedMessage> {
        let mut released = Vec::new();
        while self.waiting.front().is_some_and(|(batch, _)| *batch <= self.acknowledged) {
            released.extend(self.waiting.pop_front().map(|(_, what)| what));
        }
        for what in &released {
            if let ReleasedMessage::Handled(counter) = what
                && let Some((_, octets)) = self.requests.remove(counter)
            {
                self.request_octets -= octets.len();
            }
        }
        released
    }

    /// The replica serves from now on. What the former UPF has sent and the replica may not know has never left; all messages of SMFs that are kept, in
    /// order, are to be given to the replica, which knows those that it has the answers to.
    pub fn take_over(&mut self) -> Vec<SmfMessage> {
        self.waiting.clear();
        self.acknowledged = self.given;
        let all = self.requests.iter();
        all.map(|(counter, (peer, octets))| SmfMessage {
            counter: *counter,
            peer: *peer,
            octets: octets.clone(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn smf() -> SocketAddr {
        "192.0.2.1:8805".parse().unwrap()
    }

    fn answer(octet: u8) -> ReleasedMessage {
        ReleasedMessage::Datagram { to: smf(), octets: vec![octet] }
    }

    #[test]
    fn an_answer_leaves_when_the_replica_has_the_records_before_it() {
        let mut log = ControlLog::default();
        let request = log.accept(smf(), vec![1]).unwrap();
        assert_eq!(log.from_upf(answer(0), true), [answer(0)], "nothing is to be acknowledged");
        let batch = log.records_given();
        assert!(log.from_upf(answer(1), true).is_empty());
        assert!(log.from_upf(ReleasedMessage::Handled(request.counter), true).is_empty());
        let later = log.records_given();
        assert!(log.from_upf(answer(2), true).is_empty());
        assert_eq!(log.requests(), 1);
        assert_eq!(log.acknowledge(batch), [answer(1), ReleasedMessage::Handled(request.counter)]);
        assert_eq!(log.requests(), 0);
        assert_eq!(log.acknowledge(later), [answer(2)]);
        assert!(log.acknowledge(u64::MAX).is_empty(), "a batch that was never given acknowledges nothing");
        log.records_given();
        assert!(log.from_upf(answer(3), true).is_empty());
    }

    #[test]
    fn without_a_replica_nothing_waits() {
        let mut log = ControlLog::default();
        log.records_given();
        assert!(log.from_upf(answer(1), true).is_empty());
        assert_eq!(log.without_replica(), [answer(1)]);
        log.records_given();
        assert_eq!(log.from_upf(answer(2), false), [answer(2)]);
    }

    #[test]
    fn after_a_takeover_the_replica_gets_each_request_whose_answer_has_not_left() {
        let mut log = ControlLog::default();
        let [one, two, three] = [1, 2, 3].map(|n| log.accept(smf(), vec![n]).unwrap());
        let batch = log.records_given();
        log.from_upf(ReleasedMessage::Handled(one.counter), true);
        log.acknowledge(batch);
        log.records_given();
        log.from_upf(answer(2), true);
        log.from_upf(ReleasedMessage::Handled(two.counter), true);
        assert_eq!(log.take_over(), [two.clone(), three]);
        // The answer of the former UPF never leaves; that of the new one does.
        assert_eq!(log.from_upf(answer(2), false), [answer(2)]);
        assert_eq!(
            log.from_upf(ReleasedMessage::Handled(two.counter), false),
            [ReleasedMessage::Handled(two.counter)]
        );
        assert_eq!(log.requests(), 1);
    }

    #[test]
    fn requests_beyond_the_bound_are_refused_and_counted() {
        let mut log = ControlLog::default();
        (0..REQUESTS_MAX).for_each(|_| assert!(log.accept(smf(), vec![]).is_some()));
        assert_eq!(log.accept(smf(), vec![]), None);
        assert_eq!(log.refused(), 1);
    }

    #[test]
    fn long_requests_are_bounded_by_their_octets_and_leave_room_when_they_are_handled() {
        let mut log = ControlLog::default();
        let long = || vec![0; 65_507];
        let taken: Vec<u64> =
            std::iter::from_fn(|| log.accept(smf(), long()).map(|r| r.counter)).take(REQUESTS_MAX).collect();
        assert_eq!(taken.len(), REQUEST_OCTETS_MAX / 65_507);
        assert_eq!(log.refused(), 1);
        log.from_upf(ReleasedMessage::Handled(taken[0]), false);
        log.from_upf(ReleasedMessage::Handled(taken[0]), false);
        assert!(log.accept(smf(), long()).is_some());
        assert!(log.accept(smf(), long()).is_none());
    }
}
