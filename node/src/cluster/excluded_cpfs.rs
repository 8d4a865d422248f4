//! CPFs that may not join for some seconds after a protocol violation, by the address at which other CPFs reach them. A CPF is a member as soon
//! as it joins, so one that always violates the protocol would come and go several times a second, and change the rings each time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use whimbrel_ids::Instant;

use crate::log_limiter::{LINES_MAX, LogLimiter};

/// How long a CPF is excluded: connecting again does not mend it, and a CPF that is restarted at the same address need not wait long.
pub(super) const EXCLUDED_FOR: Duration = Duration::from_secs(5);

/// The excluded CPFs of one CTA.
pub(super) struct ExcludedCpfs {
    until: BTreeMap<SocketAddr, Instant>,
    log: LogLimiter<SocketAddr>,
    /// Limits the lines about excluded CPFs that join again.
    log_joins: LogLimiter<SocketAddr>,
    total: u64,
}

impl Default for ExcludedCpfs {
    fn default() -> Self {
        let log = LogLimiter::new("CPFs that are excluded");
        let log_joins = LogLimiter::new("excluded CPFs that join again");
        Self { until: BTreeMap::new(), log, log_joins, total: 0 }
    }
}

impl ExcludedCpfs {
    /// Excludes a CPF. Returns whether that is to be logged.
    pub(super) fn exclude(&mut self, now: Instant, at: SocketAddr) -> bool {
        self.total += 1;
        self.until.retain(|_, until| now < *until + EXCLUDED_FOR);
        // A CPF that announces another address each time cannot be excluded anyway.
        if self.until.len() < LINES_MAX {
            self.until.insert(at, now + EXCLUDED_FOR);
        }
        self.log.allows(now, at)
    }

    /// Whether the CPF at this address may join.
    pub(super) fn may_join(&self, now: Instant, at: SocketAddr) -> bool {
        self.until.get(&at).is_none_or(|until| now >= *until)
    }

    /// Whether it is to be logged that the CPF at this address joins.
    pub(super) fn may_log_join(&mut self, now: Instant, at: SocketAddr) -> bool {
        !self.until.contains_key(&at) || self.log_joins.allows(now, at)
    }

    /// How many CPFs were excluded.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}
