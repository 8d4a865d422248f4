//! PFCP messages that have just left over a link. If the link ends, its peer may not have taken them, and its successor gets them at once: a datagram would
//! have waited in the successor's socket, and PFCP itself repeats a request after a second only.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::Frame;

/// PFCP has repeated an older request itself (T1, TS 29.244 §6.4).
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Messages that are kept: as many as a ring holds. What a peer leaves beyond them is repeated by PFCP.
const KEPT_MAX: usize = whimbrel_shm::RING;

/// Messages, each with the one that it was for.
#[derive(Debug)]
pub(super) struct Recent<To> {
    sent: VecDeque<(Instant, To, Vec<u8>)>,
}

impl<To> Default for Recent<To> {
    fn default() -> Self {
        Self { sent: VecDeque::new() }
    }
}

impl<To: PartialEq + Copy> Recent<To> {
    /// A message has left.
    pub(super) fn sent(&mut self, now: Instant, to: To, octets: &[u8]) {
        let is_old = |(at, ..): &(Instant, To, Vec<u8>)| now >= *at + KEPT_FOR;
        while self.sent.len() >= KEPT_MAX || self.sent.front().is_some_and(is_old) {
            self.sent.pop_front();
        }
        self.sent.push_back((now, to, octets.to_vec()));
    }

    /// A message has come: what has its sequence number was answered.
    pub(super) fn came(&mut self, from: To, octets: &[u8]) {
        let Ok(frame) = Frame::parse(octets) else { return };
        let number = |octets: &[u8]| Frame::parse(octets).ok().map(|frame| frame.header.sequence);
        let answers = |(_, to, octets): &(Instant, To, Vec<u8>)| {
            *to == from && number(octets) == Some(frame.header.sequence)
        };
        if let Some(at) = self.sent.iter().position(answers) {
            self.sent.remove(at);
        }
    }

    /// The link to this peer has ended: the messages that it may not have taken, oldest first.
    pub(super) fn take(&mut self, now: Instant, of: To) -> Vec<Vec<u8>> {
        let (its, others) = std::mem::take(&mut self.sent).into_iter().partition(|(_, to, _)| *to == of);
        let its: VecDeque<(Instant, To, Vec<u8>)> = its;
        self.sent = others;
        its.into_iter().filter(|(at, ..)| now < *at + KEPT_FOR).map(|(.., octets)| octets).collect()
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ids::Seid;
    use whimbrel_pfcp::Message;
    use whimbrel_pfcp::msg::SessionDeletionRequest;

    use super::*;

    fn message(sequence: u32) -> Vec<u8> {
        Message::from(SessionDeletionRequest::default()).to_octets(Some(Seid(1)), sequence)
    }

    #[test]
    fn what_was_answered_or_is_old_does_not_go_again_and_the_number_of_messages_is_bounded() {
        let (mut recent, start) = (Recent::default(), Instant(1_000_000_000));
        recent.sent(start, 1, &message(7));
        recent.sent(start + KEPT_FOR, 1, &message(8));
        recent.sent(start + KEPT_FOR, 2, &message(9));
        recent.sent(start + KEPT_FOR, 1, &message(10));
        recent.came(1, &message(8));
        recent.came(1, &message(9)); // another peer's
        recent.came(1, b"rubbish");
        assert_eq!(recent.take(start + KEPT_FOR, 1), [message(10)]);
        assert_eq!(recent.take(start + KEPT_FOR, 2), [message(9)]);
        recent.sent(start, 1, &message(1));
        assert!(recent.take(start + KEPT_FOR, 1).is_empty());
        (0..1000).for_each(|n| recent.sent(start, 1, &message(n)));
        let left = recent.take(start, 1);
        assert_eq!((left.len(), &left[0]), (KEPT_MAX, &message(1000 - KEPT_MAX as u32)));
    }
}
