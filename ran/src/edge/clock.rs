//! The monotonic clock, set once to wall-clock time.

use std::time::{SystemTime, UNIX_EPOCH};

use whimbrel_ids::Instant;

/// The time for the state machines.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    anchor: std::time::Instant,
    wall: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = Instant(u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
        Self { anchor: std::time::Instant::now(), wall }
    }
}

impl Clock {
    /// The time now, on the edge's clock.
    pub fn now(&self) -> Instant {
        self.wall + self.anchor.elapsed()
    }
}
