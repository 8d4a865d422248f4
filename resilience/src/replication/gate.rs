//! Items that may leave only when a peer has acknowledged earlier messages.

use std::collections::VecDeque;

/// Items that wait for a peer's cumulative acknowledgement of the messages sent to it.
///
/// Messages on an ordered link are counted by both ends; an item waits for the last message that was sent before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gate<T> {
    sent: u64,
    acknowledged: u64,
    waiting: VecDeque<(u64, T)>,
}

impl<T> Default for Gate<T> {
    fn default() -> Self {
        Self { sent: 0, acknowledged: 0, waiting: VecDeque::new() }
    }
}

impl<T> Gate<T> {
    /// A message goes to the peer.
    pub fn sent(&mut self) {
        self.sent += 1;
    }

    /// An item waits until the peer holds all that was sent.
    pub fn hold(&mut self, item: T) {
        self.waiting.push_back((self.sent, item));
    }

    /// The peer holds this many messages, counted from the beginning of the link; at most those that were sent.
    pub fn acknowledged(&mut self, messages: u64) {
        self.acknowledged = self.acknowledged.max(messages.min(self.sent));
    }

    /// Takes the next item that may leave.
    pub fn pass(&mut self) -> Option<T> {
        let (after, _) = self.waiting.front()?;
        if *after > self.acknowledged {
            return None;
        }
        self.waiting.pop_front().map(|(_, item)| item)
    }

    /// How many messages the peer holds.
    pub fn confirmed(&self) -> u64 {
        self.acknowledged
    }

    /// What waits still, oldest first.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.waiting.iter().map(|(_, item)| item)
    }

    /// The peer is gone and has no successor: everything may leave.
    pub fn open(&mut self) -> impl Iterator<Item = T> {
        self.acknowledged = self.sent;
        std::mem::take(&mut self.waiting).into_iter().map(|(_, item)| item)
    }
}
