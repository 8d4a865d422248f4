//! How many requests a relay takes from one network prefix: a sender of more than its quota must leave room for the others.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use whimbrel_broker_client::slots::PeerPrefix;

/// Seconds of the rate that may come at once: the UEs of an area that attach again after an outage.
const BURST_S: u64 = 5;
/// Requests of one prefix in progress at once, and of all. Each holds some kilooctets for as long as the next hop takes.
const IN_PROGRESS_MAX: u64 = 1_024;
const ALL_IN_PROGRESS_MAX: u64 = 4_096;
/// Prefixes that are remembered. The one that was idle for longest is forgotten first, and had its burst again by then.
const PREFIXES_MAX: usize = 4_096;

/// A prefix of which requests came lately.
struct PrefixQuota {
    /// Requests that it has left, in thousandths.
    millis: u64,
    at: Instant,
    in_progress: u64,
}

#[derive(Default)]
struct Senders {
    of: BTreeMap<PeerPrefix, PrefixQuota>,
    in_progress: u64,
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaExceeded {
    /// The sender has used its quota.
    OfSender,
    /// All senders together have as many requests in progress as are taken.
    OfAll,
}

/// The requests of each prefix.
pub(crate) struct Quotas {
    per_second: u64,
    senders: Mutex<Senders>,
}

/// A request in progress.
pub(crate) struct RequestTurn {
    quotas: Arc<Quotas>,
    prefix: PeerPrefix,
}

impl Quotas {
    /// Grants each prefix `per_second` requests a second on average.
    pub(crate) fn new(per_second: u64) -> Arc<Self> {
        Arc::new(Self { per_second, senders: Mutex::default() })
    }

    fn senders(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request of a prefix.
    pub(crate) fn begin(
        self: &Arc<Self>,
        prefix: PeerPrefix,
        now: Instant,
    ) -> Result<RequestTurn, QuotaExceeded> {
        let burst = self.per_second * BURST_S * 1_000;
        let mut senders = self.senders();
        if senders.in_progress >= ALL_IN_PROGRESS_MAX {
            return Err(QuotaExceeded::OfAll);
        }
        if senders.of.len() >= PREFIXES_MAX && !senders.of.contains_key(&prefix) {
            let idle = senders.of.iter().filter(|(_, s)| s.in_progress == 0).min_by_key(|(_, s)| s.at);
            match idle.map(|(prefix, _)| *prefix) {
                Some(idle) => drop(senders.of.remove(&idle)),
                None => return Err(QuotaExceeded::OfAll),
            }
        }
        let fresh = PrefixQuota { millis: burst, at: now, in_progress: 0 };
        let sender = senders.of.entry(prefix).or_insert(fresh);
        let waited = now.saturating_duration_since(sender.at).min(Duration::from_secs(BURST_S));
        let earned = waited.as_millis() as u64 * self.per_second;
        if earned > 0 {
            (sender.millis, sender.at) = ((sender.millis + earned).min(burst), now);
        }
        let left = sender.millis.checked_sub(1_000).filter(|_| sender.in_progress < IN_PROGRESS_MAX);
        sender.millis = left.ok_or(QuotaExceeded::OfSender)?;
        sender.in_progress += 1;
        senders.in_progress += 1;
        Ok(RequestTurn { quotas: self.clone(), prefix })
    }
}

impl Drop for RequestTurn {
    fn drop(&mut self) {
        let mut senders = self.quotas.senders();
        senders.in_progress -= 1;
        if let Some(sender) = senders.of.get_mut(&self.prefix) {
            sender.in_progress -= 1;
        }
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quotas({} a second)", self.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(n: u8) -> PeerPrefix {
        PeerPrefix::of([192, 0, 2, n].into())
    }

    #[test]
    fn a_sender_has_a_burst_and_a_rate_and_leaves_the_others_theirs() {
        let (quotas, now) = (Quotas::new(10), Instant::now());
        for _ in 0..10 * BURST_S {
            assert!(quotas.begin(prefix(1), now).is_ok());
        }
        assert_eq!(quotas.begin(prefix(1), now).err(), Some(QuotaExceeded::OfSender));
        assert!(quotas.begin(prefix(2), now).is_ok());
        assert!(quotas.begin(prefix(1), now + Duration::from_millis(100)).is_ok());
        assert!(quotas.begin(prefix(1), now + Duration::from_millis(150)).is_err(), "half of a request");
        let later = now + Duration::from_secs(3_600);
        let granted = (0..100).filter(|_| quotas.begin(prefix(1), later).is_ok()).count();
        assert_eq!(granted as u64, 10 * BURST_S, "time that is not used earns no more than a burst");
    }

    #[test]
    fn requests_in_progress_are_bounded_for_each_sender_and_for_all() {
        let (quotas, now) = (Quotas::new(10_000), Instant::now());
        let take = |n: u8, count: u64| -> Vec<RequestTurn> {
            (0..count).filter_map(|_| quotas.begin(prefix(n), now).ok()).collect()
        };
        let mut all: Vec<_> = (1..=3).flat_map(|n| take(n, 2 * IN_PROGRESS_MAX)).collect();
        assert_eq!(all.len() as u64, 3 * IN_PROGRESS_MAX);
        all.extend(take(4, 2 * IN_PROGRESS_MAX));
        assert_eq!(quotas.begin(prefix(5), now).err(), Some(QuotaExceeded::OfAll));
        all.clear();
        assert!(quotas.begin(prefix(1), now).is_ok());
    }

    #[test]
    fn senders_are_bounded() {
        let (quotas, now) = (Quotas::new(1), Instant::now());
        for n in 0..2 * PREFIXES_MAX as u32 {
            let prefix = PeerPrefix::of(core::net::Ipv4Addr::from_bits(n).into());
            assert!(quotas.begin(prefix, now + Duration::from_millis(n.into())).is_ok());
        }
        assert_eq!(quotas.senders().of.len(), PREFIXES_MAX);
    }
}
