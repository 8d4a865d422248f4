//! Answers kept for repeated requests (TS 29.244 §6.4).

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use whimbrel_ids::Instant;

use crate::limits::REPLIES_MAX;

/// How long an answer is kept: N1 x T1 of the peer, with a margin; both are configurable there, 3 x 3 s is
/// usual.
const KEPT_FOR: Duration = Duration::from_secs(15);

/// One request of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplyKey {
    pub(super) peer: SocketAddr,
    pub(super) sequence: u32,
    pub(super) message_type: u8,
}

/// The answers, and in which order they may be forgotten. `None` stands for an answer under way.
#[derive(Default)]
pub(super) struct Replies {
    by_key: BTreeMap<ReplyKey, Option<Box<[u8]>>>,
    by_age: VecDeque<(Instant, ReplyKey)>,
}

impl Replies {
    pub(super) fn find(&self, key: &ReplyKey) -> Option<Option<&[u8]>> {
        self.by_key.get(key).map(Option::as_deref)
    }

    /// What was answered to one is what another hears that asks the same in its place.
    pub(super) fn redirect(&mut self, from: SocketAddr, to: SocketAddr) {
        for (_, key) in self.by_age.iter_mut().filter(|(_, key)| key.peer == from) {
            let answer = self.by_key.remove(key);
            key.peer = to;
            self.by_key.extend(answer.map(|answer| (*key, answer)));
        }
    }

    pub(super) fn keep(&mut self, now: Instant, key: ReplyKey, octets: Option<Box<[u8]>>) {
        if self.by_key.insert(key, octets).is_none() {
            self.by_age.push_back((now, key));
        }
        self.forget_old(now);
    }

    /// Forgets answers that no peer asks for again, also of one that has gone away.
    pub(super) fn forget_old(&mut self, now: Instant) {
        while let Some((at, key)) = self.by_age.front().copied() {
            if self.by_age.len() <= REPLIES_MAX && now.since(at) < KEPT_FOR {
                break;
            }
            self.by_age.pop_front();
            self.by_key.remove(&key);
        }
    }
}
