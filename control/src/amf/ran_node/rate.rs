//! A token bucket: a rate per second, with a burst of one second.

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;

/// A bucket; it starts full.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rate {
    /// When the bucket will be full again if nothing more is taken.
    full_at: Instant,
}

impl Rate {
    /// Takes one of `per_s` a second; `false` if there is none left.
    pub fn take(&mut self, now: Instant, per_s: u32) -> bool {
        let Some(cost_us) = 1_000_000u64.checked_div(u64::from(per_s)) else { return false };
        let full_at = self.full_at.0.max(now.0) + cost_us.max(1);
        // The bucket holds one second's worth.
        if full_at - now.0 > 1_000_000 {
            return false;
        }
        self.full_at = Instant(full_at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_a_burst_of_one_second_and_then_its_rate() {
        let mut rate = Rate::default();
        let at = |ms: u64| Instant(5_000_000 + ms * 1000);
        assert_eq!((0..500).filter(|_| rate.take(at(0), 100)).count(), 100);
        assert_eq!((0..500).filter(|_| rate.take(at(100), 100)).count(), 10);
        assert_eq!((0..500).filter(|_| rate.take(at(60_000), 100)).count(), 100);
        assert!(!Rate::default().take(at(0), 0), "nothing of nothing");
    }
}
