//! A point in time as a plain number, so that pure machines never meet a clock.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Microseconds since the Unix epoch, from the edge's monotonic clock.
///
/// The edge anchors a monotonic clock to the wall once, at its start: time never steps back while a program runs,
/// and still serves where a date is asked for (SQN, network time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Instant(pub u64);

impl Instant {
    /// The beginning of time, before any input.
    pub const ZERO: Instant = Instant(0);
    /// Later than any real point in time.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// Whole seconds since the Unix epoch.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The time that has passed since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, d: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}
