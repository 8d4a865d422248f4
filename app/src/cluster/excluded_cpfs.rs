//! CPFs that were given up since they break the rules of their links, by where others reach them: a CPF is a member as
//! soon as it offers itself, so one that always breaks them would come and go some times a second, and the rings with it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use whimbrel_ids::Instant;

use crate::log_limiter::{LINES_MAX, LogLimiter};

/// How long such a one is not taken again: what is wrong with it is not mended by calling, and one that is started anew there need not wait long.
pub(super) const COMES_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Those of one CTA.
pub(super) struct ExcludedCpfs {
    /// Until when each is not taken.
    until: BTreeMap<SocketAddr, Instant>,
    told: LogLimiter<SocketAddr>,
    /// Of which it was told that they have come.
    told_come: LogLimiter<SocketAddr>,
    total: u64,
}

impl Default for ExcludedCpfs {
    fn default() -> Self {
        let told = LogLimiter::new("CPFs that are given up");
        let told_come = LogLimiter::new("CPFs that come again");
        Self { until: BTreeMap::new(), told, told_come, total: 0 }
    }
}

impl ExcludedCpfs {
    /// One was given up. Whether that is to be told.
    pub(super) fn allows(&mut self, now: Instant, at: SocketAddr) -> bool {
        self.total += 1;
        self.until.retain(|_, until| now < *until + COMES_AGAIN_AFTER);
        // Who says to be elsewhere each time is not held off anyway.
        if self.until.len() < LINES_MAX {
            self.until.insert(at, now + COMES_AGAIN_AFTER);
        }
        self.told.allows(now, at)
    }

    /// Whether who is reached there may come.
    pub(super) fn may_come(&self, now: Instant, at: SocketAddr) -> bool {
        self.until.get(&at).is_none_or(|until| now >= *until)
    }

    /// Whether it is to be told that who is reached there has come.
    pub(super) fn tells_of_coming(&mut self, now: Instant, at: SocketAddr) -> bool {
        !self.until.contains_key(&at) || self.told_come.allows(now, at)
    }

    /// How many were given up.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}
