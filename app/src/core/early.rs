//! What gNBs say to a CTA just before it serves: they may have noticed the other one's end first. Anybody who has an association may
//! say something here, so it is bounded, and nobody takes all of it.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use tracing::warn;
use whimbrel_ids::Instant;
use whimbrel_resilience::cta_replica::LocalAssociation;

use super::control_thread::Early;
use crate::console::{Counter, Metrics};
use crate::log_limiter::LogLimiter;

/// What is kept, in messages: as many as one gNB's first messages in a second (`limits.first_messages_per_s`).
const MESSAGES_MAX: usize = 10_000;
/// And in octets: 1,600 a message, while one of NAS has some hundred, and few have containers of handovers.
const OCTETS_MAX: usize = 16 << 20;
/// For how long: by then this CTA serves, or the other one has answered.
const KEPT_FOR: Duration = Duration::from_secs(2);

/// What one association has said of it.
#[derive(Clone, Copy, Default)]
struct Share {
    messages: usize,
    octets: usize,
}

/// What is kept of all of them, in the order in which it came.
pub(super) struct EarlyMessages {
    said: VecDeque<(Instant, Early)>,
    all: Share,
    shares: BTreeMap<LocalAssociation, Share>,
    told: LogLimiter<IpAddr>,
}

impl Default for EarlyMessages {
    fn default() -> Self {
        let told = LogLimiter::new("what gNBs say to a CTA that does not serve");
        Self { said: VecDeque::new(), all: Share::default(), shares: BTreeMap::new(), told }
    }
}

impl EarlyMessages {
    /// Keeps a message, if there is room. An association may have as much as it leaves free, so whoever comes later always finds room: one alone
    /// may have a half, two a third each.
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
        if messages > MESSAGES_MAX - self.all.messages || its_octets > OCTETS_MAX - self.all.octets {
            metrics.add(Counter::N2Early, 1);
            if self.told.allows(now, peer) {
                warn!(
                    %peer,
                    "a gNB sends more than this CTA keeps while another CTA is the primary: dropped; further ones are only counted (whimbrel_n2_early_dropped_total)"
                );
            }
            return;
        }
        self.shares.insert(from, Share { messages, octets: its_octets });
        self.all.messages += 1;
        self.all.octets += octets.len();
        self.said.push_back((now, (from, stream, octets.to_vec())));
    }

    /// Lets go of what is too old.
    pub(super) fn turn(&mut self, now: Instant) {
        while self.said.front().is_some_and(|(at, _)| now >= *at + KEPT_FOR) {
            let Some((_, (from, _, octets))) = self.said.pop_front() else { return };
            self.gone(from, octets.len());
        }
    }

    /// An association has ended, and nothing that it said means anything on another: who opens one after the other gets no further share.
    pub(super) fn down(&mut self, which: LocalAssociation) {
        let Some(share) = self.shares.remove(&which) else { return };
        self.said.retain(|(_, (from, ..))| *from != which);
        self.all.messages -= share.messages;
        self.all.octets -= share.octets;
    }

    /// This CTA serves now: what was said.
    pub(super) fn into_messages(self) -> Vec<Early> {
        self.said.into_iter().map(|(_, said)| said).collect()
    }

    fn gone(&mut self, from: LocalAssociation, octets: usize) {
        self.all.messages -= 1;
        self.all.octets -= octets;
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
    use crate::console::Console;
    use crate::log_limiter::Lines;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn peer(n: u32) -> (LocalAssociation, IpAddr) {
        (LocalAssociation(n), IpAddr::from([192, 0, 2, n as u8]))
    }

    /// How many messages of an association are kept of so many.
    fn said(
        early: &mut EarlyMessages,
        ms: u64,
        of: u32,
        messages: usize,
        octets: usize,
        m: &Metrics,
    ) -> usize {
        (0..messages).for_each(|_| early.keep(at(ms), peer(of), 1, &vec![7; octets], m));
        early.said.iter().filter(|(_, (from, ..))| *from == LocalAssociation(of)).count()
    }

    #[test]
    fn one_gnb_that_floods_a_cta_replica_leaves_room_for_the_others_and_is_told_once() {
        let console = Console::new(at(0)).unwrap();
        let metrics = &console.metrics;
        let lines = Arc::new(AtomicUsize::new(0));
        let mut early = EarlyMessages::default();
        tracing::subscriber::with_default(Lines(lines.clone()), || {
            assert_eq!(said(&mut early, 0, 1, 100_000, 10, metrics), MESSAGES_MAX / 2);
            assert_eq!(said(&mut early, 1, 2, 1_000, 10, metrics), 1_000, "another one says little");
            assert_eq!(said(&mut early, 2, 3, 100_000, 10, metrics), (MESSAGES_MAX - 6_000) / 2);
        });
        assert_eq!(metrics.counter(Counter::N2Early), 100_000 - 5_000 + 100_000 - 2_000);
        assert_eq!(lines.load(Ordering::Relaxed), 2, "each of the two that flood is told once");
        early.turn(at(2_000));
        assert_eq!(said(&mut early, 2_000, 1, 0, 0, metrics), 0, "what is two seconds old means nothing");
        assert_eq!(early.all.messages, early.said.len());
        let kept = early.into_messages();
        assert_eq!((kept.len(), kept[0].0), (3_000, LocalAssociation(2)), "in the order in which it came");
    }

    #[test]
    fn what_a_cta_replica_keeps_of_gnbs_is_bounded_in_octets() {
        let console = Console::new(at(0)).unwrap();
        let metrics = &console.metrics;
        let mut early = EarlyMessages::default();
        let of = |octets: usize| OCTETS_MAX / octets;
        assert_eq!(said(&mut early, 0, 1, 1_000, 64 << 10, metrics), of(64 << 10) / 2);
        for n in 2..100 {
            assert!(said(&mut early, 0, n, 1, 1_000, metrics) == 1, "gNB {n} finds room");
        }
        assert!(early.all.octets <= OCTETS_MAX);
        assert_eq!(said(&mut early, 0, 100, 1, OCTETS_MAX, metrics), 0);
    }

    #[test]
    fn who_opens_one_association_after_the_other_gets_no_further_share() {
        let console = Console::new(at(0)).unwrap();
        let mut early = EarlyMessages::default();
        for n in 1..100 {
            assert_eq!(said(&mut early, 0, n, 6_000, 1, &console.metrics), MESSAGES_MAX / 2);
            early.down(LocalAssociation(n));
        }
        assert_eq!((early.said.len(), early.all.messages, early.all.octets), (0, 0, 0));
    }
}
