//! How many requests one caller may send: a program that sends as many as it can must leave the API to the others.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::Instant;

/// Requests per second, on average. The console sends some ten when a page is opened; answering one takes under a millisecond.
const PER_SECOND: u64 = 200;
/// Requests at once: a script that adds subscribers one by one is not slowed down before this many.
const BURST: u64 = 1000;
/// Callers that are remembered; the one that was idle for longest is dropped first, and had its burst again by then.
const CALLERS_MAX: usize = 1024;

/// Requests that a caller has left.
struct RemainingRequests {
    /// Requests in thousandths.
    millis: u64,
    at: Instant,
}

/// The requests of each caller.
pub(super) struct Rates {
    per_second: u64,
    burst: u64,
    callers: BTreeMap<String, RemainingRequests>,
}

impl Default for Rates {
    fn default() -> Self {
        Self { per_second: PER_SECOND, burst: BURST, callers: BTreeMap::new() }
    }
}

impl Rates {
    /// Counts a request. Errors: how long the caller has to wait.
    pub(super) fn count(&mut self, now: Instant, caller: &str) -> Result<(), Duration> {
        let (burst, per_second) = (self.burst * 1000, self.per_second);
        if self.callers.len() >= CALLERS_MAX
            && !self.callers.contains_key(caller)
            && let Some(idle) =
                self.callers.iter().min_by_key(|(_, left)| left.at).map(|(name, _)| name.clone())
        {
            self.callers.remove(&idle);
        }
        let left = self.callers.entry(caller.into()).or_insert(RemainingRequests { millis: burst, at: now });
        let earned = now.since(left.at).as_millis() as u64 * per_second;
        if earned > 0 {
            (left.millis, left.at) = ((left.millis + earned).min(burst), now);
        }
        match left.millis.checked_sub(1000) {
            Some(rest) => {
                left.millis = rest;
                Ok(())
            }
            None => Err(Duration::from_millis((1000 - left.millis).div_ceil(per_second.max(1)))),
        }
    }

    /// Sets the bounds.
    #[cfg(test)]
    pub(super) fn set(&mut self, per_second: u64, burst: u64) {
        (self.per_second, self.burst) = (per_second, burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_burst_and_a_rate_and_leaves_the_others_theirs() {
        let mut rates = Rates::default();
        rates.set(10, 3);
        let at = |ms: u64| Instant(ms * 1000);
        for _ in 0..3 {
            assert_eq!(rates.count(at(5), "token:a"), Ok(()));
        }
        assert_eq!(rates.count(at(5), "token:a"), Err(Duration::from_millis(100)));
        assert_eq!(rates.count(at(5), "token:b"), Ok(()));
        assert_eq!(rates.count(at(105), "token:a"), Ok(()));
        assert!(rates.count(at(150), "token:a").is_err(), "half of a request");
        assert_eq!(rates.count(at(205), "token:a"), Ok(()));
        // Time that a caller does not use earns it no more than its burst.
        let granted = (0..10).filter(|_| rates.count(at(1_000_000), "token:a").is_ok()).count();
        assert_eq!(granted, 3);
    }

    #[test]
    fn callers_are_bounded() {
        let mut rates = Rates::default();
        for i in 0..2 * CALLERS_MAX as u64 {
            let _ = rates.count(Instant(i), &i.to_string());
        }
        assert_eq!(rates.callers.len(), CALLERS_MAX);
    }
}
