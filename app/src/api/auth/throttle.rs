//! Login throttling: after some failures, a user and an address have to wait, each time twice as long.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::Instant;

/// Failures in a row that cost nothing: people mistype.
const FREE: u32 = 5;
/// The longest wait: a forgotten password must not lock an operator out for hours.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Without a failure for this long, an entry is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Maximum number of entries. The oldest is dropped first: an attacker needs a thousand failed logins to fill the table.
const ENTRIES_MAX: usize = 1024;

struct Failures {
    in_a_row: u32,
    last: Instant,
}

/// Failed logins, by user and by address.
#[derive(Default)]
pub(super) struct Throttle(BTreeMap<String, Failures>);

impl Throttle {
    /// Until when a login has to wait, if it has to.
    pub(super) fn wait(&self, now: Instant, keys: &[String]) -> Option<Instant> {
        let until = keys.iter().filter_map(|key| {
            let failures = self.0.get(key)?;
            let doublings = failures.in_a_row.checked_sub(FREE)?;
            let wait = Duration::from_secs(1) * 2u32.saturating_pow(doublings.min(16));
            Some(failures.last + wait.min(WAIT_MAX))
        });
        until.max().filter(|until| *until > now)
    }

    pub(super) fn failed(&mut self, now: Instant, keys: &[String]) {
        self.0.retain(|_, f| now.since(f.last) < FORGOTTEN_AFTER);
        for key in keys {
            if self.0.len() >= ENTRIES_MAX
                && !self.0.contains_key(key)
                && let Some(oldest) = self.0.iter().min_by_key(|(_, f)| f.last).map(|(k, _)| k.clone())
            {
                self.0.remove(&oldest);
            }
            let failures = self.0.entry(key.clone()).or_insert(Failures { in_a_row: 0, last: now });
            (failures.in_a_row, failures.last) = (failures.in_a_row + 1, now);
        }
    }

    pub(super) fn succeeded(&mut self, keys: &[String]) {
        for key in keys {
            self.0.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_end_with_a_success() {
        let mut throttle = Throttle::default();
        let keys = ["user anna".to_string(), "address 192.0.2.1".to_string()];
        let at = |s: u64| Instant(s * 1_000_000);
        for i in 0..u64::from(FREE) - 1 {
            throttle.failed(at(i), &keys);
            assert_eq!(throttle.wait(at(i), &keys), None, "{i}");
        }
        throttle.failed(at(10), &keys);
        assert_eq!(throttle.wait(at(10), &keys), Some(at(11)));
        throttle.failed(at(11), &keys);
        assert_eq!(throttle.wait(at(11), &keys), Some(at(13)));
        assert_eq!(throttle.wait(at(11), &keys[1..]), Some(at(13)), "the address waits with any user");
        for _ in 0..40 {
            throttle.failed(at(20), &keys);
        }
        assert_eq!(throttle.wait(at(20), &keys), Some(at(320)));
        throttle.succeeded(&keys);
        assert_eq!(throttle.wait(at(20), &keys), None);
    }

    #[test]
    fn entries_are_bounded() {
        let mut throttle = Throttle::default();
        for i in 0..2 * ENTRIES_MAX as u64 {
            throttle.failed(Instant(i), &[i.to_string()]);
        }
        assert_eq!(throttle.0.len(), ENTRIES_MAX);
    }
}
