//! One end of a link that outlives the connections that carry it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Messages of both directions are counted from the link's beginning. Unacknowledged ones are kept, so that after a new connection, or a
/// takeover at the other end, both sides report how many they have and get the rest: each message arrives once and in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnd<M> {
    sent: u64,
    kept: VecDeque<M>,
    taken: u64,
}

impl<M> Default for LinkEnd<M> {
    fn default() -> Self {
        Self { sent: 0, kept: VecDeque::new(), taken: 0 }
    }
}

impl<M> LinkEnd<M> {
    /// Keeps a message that is sent.
    pub fn sent(&mut self, message: M) {
        self.sent += 1;
        self.kept.push_back(message);
    }

    /// A message has come. Gives how many have.
    pub fn took(&mut self) -> u64 {
        self.taken += 1;
        self.taken
    }

    /// How many messages have come.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The other end has this many of our messages; at most those that were sent.
    pub fn confirmed(&mut self, messages: u64) {
        let beyond = self.sent.saturating_sub(messages);
        while self.kept.len() as u64 > beyond {
            self.kept.pop_front();
        }
    }

    /// How many of ours the other end has confirmed.
    pub fn known(&self) -> u64 {
        self.sent - self.kept.len() as u64
    }

    /// The link continues with a peer that has this many of our messages: returns what to send again. `None`: the peer lacks a message that
    /// is not kept any more, or claims one that was never sent.
    pub fn resume(&mut self, has: u64) -> Option<impl Iterator<Item = &M>> {
        if !(self.known()..=self.sent).contains(&has) {
            return None;
        }
        self.confirmed(has);
        Some(self.kept.iter())
    }

    /// How many messages are kept.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_end_lacks_is_sent_again() {
        let mut end = LinkEnd::default();
        (1..=5).for_each(|n| end.sent(n));
        end.confirmed(2);
        assert_eq!((end.known(), end.kept()), (2, 3));
        end.confirmed(1);
        assert_eq!(end.known(), 2, "a late confirmation takes nothing back");
        assert_eq!(end.resume(4).map(|rest| rest.copied().collect()), Some(vec![5]));
        assert!(end.resume(3).is_none(), "it was confirmed, and is kept no more");
        assert!(end.resume(6).is_none(), "it was never sent");
        assert_eq!(end.resume(5).map(|rest| rest.count()), Some(0));
    }

    #[test]
    fn an_acknowledgement_beyond_what_was_sent_is_capped() {
        let mut end = LinkEnd::default();
        end.sent("run");
        end.confirmed(u64::MAX);
        end.sent("run");
        assert_eq!((end.known(), end.kept()), (1, 1));
    }
}
