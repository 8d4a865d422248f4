//! Messages that gNBs send to a CTA just before it takes over: they may have noticed the end of the former primary first. Any peer with an
//! association can send here, so the number is bounded, and no peer can use all of it.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use tracing::warn;
use whimbrel_ids::Instant;
use whimbrel_resilience::cta_replica::LocalAssociation;

use crate::log_limiter::LogLimiter;
use crate::observation::{Metric, Metrics};

/// Bound in messages: as many as one gNB's first messages in a second (`limits.first_messages_per_s`).
const MESSAGES_MAX: usize = 10_000;
/// Bound in octets: 1,600 a message, while one with NAS has some hundred, and few have handover containers.
const OCTETS_MAX: usize = 16 << 20;
/// How long messages are kept: by then this CTA has taken over, or the primary has answered.
const KEPT_FOR: Duration = Duration::from_secs(2);

/// A gNB's message before the takeover: its association, its stream, and the octets.
pub(super) type EarlyMessage = (LocalAssociation, u16, Vec<u8>);

/// What is kept of one association.
#[derive(Clone, Copy, Default)]
struct Share {
    messages: usize,
    octets: usize,
}

/// The kept messages, in the order of their arrival.
pub(super) struct EarlyMessages {
    messages: VecDeque<(Instant, EarlyMessage)>,
    total: Share,
    shares: BTreeMap<LocalAssociation, Share>,
    log: LogLimiter<IpAddr>,
}

impl Default for EarlyMessages {
    fn default() -> Self {
        let log = LogLimiter::new("messages of gNBs to a CTA that is not the primary");
        Self { messages: VecDeque::new(), total: Share::default(), shares: BTreeMap::new(), log }
    }
}

impl EarlyMessages {
    /// Keeps a message, if there is room. An association may have as much as it leaves free, so another one always finds room: one alone may have a
    /// half, two a third each.
    pub(super) fn keep(
        &mut self,
        now: Instant,
        (from, peer): (LocalAssociation, IpAddr),
        stream: u16,
        octets: &[u8],
        metrics: &Metrics,
    ) {
        let share = self.shares.get(&from).copied().unwrap_or_default();
        let messages = share.messages + 1;
        let its_octets = share.octets + octets.len();
        if messages > MESSAGES_MAX - self.total.messages || its_octets > OCTETS_MAX - self.total.octets {
            metrics.add(Metric::N2EarlyDropped, 1);
            if self.log.allows(now, peer) {
                warn!(
                    %peer,
                    "a gNB sends more than this CTA keeps while another CTA is the primary: dropped; further ones are only counted ({})", Metric::N2EarlyDropped.name()
                );
            }
            return;
        }
        self.shares.insert(from, Share { messages, octets: its_octets });
        self.total.messages += 1;
        self.total.octets += octets.len();
        self.messages.push_back((now, (from, stream, octets.to_vec())));
    }

    /// Drops messages that are too old.
    pub(super) fn turn(&mut self, now: Instant) {
        while self.messages.front().is_some_and(|(at, _)| now >= *at + KEPT_FOR) {
            let Some((_, (from, _, octets))) = self.messages.pop_front() else { return };
            self.dropped(from, octets.len());
        }
    }

    /// An association has ended: its messages are dropped, so that a peer that opens one association after the other gets no further share.
    pub(super) fn down(&mut self, which: LocalAssociation) {
        let Some(share) = self.shares.remove(&which) else { return };
        self.messages.retain(|(_, (from, ..))| *from != which);
        self.total.messages -= share.messages;
        self.total.octets -= share.octets;
    }

    /// This CTA is the primary now: the messages that it handles.
    pub(super) fn into_messages(self) -> Vec<EarlyMessage> {
        self.messages.into_iter().map(|(_, message)| message).collect()
    }

    fn dropped(&mut self, from: LocalAssociation, octets: usize) {
        self.total.messages -= 1;
        self.total.octets -= octets;
        if let Some(share) = self.shares.get_mut(&from) {
            share.messages -= 1;
            share.octets -= octets;
            if share.messages == 0 {
                self.shares.remove(&from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::log_limiter::Lines;
    use crate::observation::{Console, Metric};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn peer(n: u32) -> (LocalAssociation, IpAddr) {
        (LocalAssociation(n), IpAddr::from([192, 0, 2, n as u8]))
    }

    /// How many of this many messages of an association are kept.
    fn kept(
        early: &mut EarlyMessages,
        ms: u64,
        of: u32,
        messages: usize,
        octets: usize,
        m: &Metrics,
    ) -> usize {
        (0..messages).for_each(|_| early.keep(at(ms), peer(of), 1, &vec![7; octets], m));
        early.messages.iter().filter(|(_, (from, ..))| *from == LocalAssociation(of)).count()
    }

    #[test]
    fn a_gnb_that_floods_a_cta_replica_leaves_room_for_others_and_is_logged_once() {
        let console = Console::new(at(0)).unwrap();
        let metrics = &console.metrics;
        let lines = Arc::new(AtomicUsize::new(0));
        let mut early = EarlyMessages::default();
        crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
            assert_eq!(kept(&mut early, 0, 1, 100_000, 10, metrics), MESSAGES_MAX / 2);
            assert_eq!(kept(&mut early, 1, 2, 1_000, 10, metrics), 1_000, "another one sends little");
            assert_eq!(kept(&mut early, 2, 3, 100_000, 10, metrics), (MESSAGES_MAX - 6_000) / 2);
        });
        assert_eq!(metrics.value(Metric::N2EarlyDropped), 100_000 - 5_000 + 100_000 - 2_000);
        assert_eq!(lines.load(Ordering::Relaxed), 2, "one line for each of the two that flood");
        early.turn(at(2_000));
        assert_eq!(kept(&mut early, 2_000, 1, 0, 0, metrics), 0, "messages are dropped after two seconds");
        assert_eq!(early.total.messages, early.messages.len());
        let messages = early.into_messages();
        assert_eq!(
            (messages.len(), messages[0].0),
            (3_000, LocalAssociation(2)),
            "in the order in which it came"
        );
    }

    #[test]
    fn kept_messages_are_bounded_in_octets() {
        let console = Console::new(at(0)).unwrap();
        let metrics = &console.metrics;
        let mut early = EarlyMessages::default();
        let of = |octets: usize| OCTETS_MAX / octets;
        assert_eq!(kept(&mut early, 0, 1, 1_000, 64 << 10, metrics), of(64 << 10) / 2);
        for n in 2..100 {
            assert!(kept(&mut early, 0, n, 1, 1_000, metrics) == 1, "gNB {n} finds room");
        }
        assert!(early.total.octets <= OCTETS_MAX);
        assert_eq!(kept(&mut early, 0, 100, 1, OCTETS_MAX, metrics), 0);
    }

    #[test]
    fn a_peer_that_opens_one_association_after_the_other_gets_no_further_share() {
        let console = Console::new(at(0)).unwrap();
        let mut early = EarlyMessages::default();
        for n in 1..100 {
            assert_eq!(kept(&mut early, 0, n, 6_000, 1, &console.metrics), MESSAGES_MAX / 2);
            early.down(LocalAssociation(n));
        }
        assert_eq!((early.messages.len(), early.total.messages, early.total.octets), (0, 0, 0));
    }
}
