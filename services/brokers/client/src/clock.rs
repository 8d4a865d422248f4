//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use whimbrel_ids::Instant;

/// The time, in microseconds since the Unix epoch.
pub fn now() -> Instant {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Instant(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX))
}
