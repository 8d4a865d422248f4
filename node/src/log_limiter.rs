//! Limits log lines about peers: each problem is logged once an hour and only counted from then on, so that peers cannot fill the log.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::warn;
use whimbrel_ids::Instant;

/// Different problems that are logged in an hour: a screen or two of lines.
pub const LINES_MAX: usize = 64;
/// After this time a problem is logged again: the operator may have mended something and needs to see whether it helped.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// What was logged within the last hour.
#[derive(Debug)]
pub struct LogLimiter<K> {
    /// What the problems are about.
    subject: &'static str,
    logged: BTreeSet<K>,
    since: Instant,
}

impl<K: Ord> LogLimiter<K> {
    /// Nothing has been logged yet.
    pub fn new(subject: &'static str) -> Self {
        Self { subject, logged: BTreeSet::new(), since: Instant::ZERO }
    }

    /// Whether this is to be logged.
    pub fn allows(&mut self, now: Instant, key: K) -> bool {
        if self.logged.is_empty() || now >= self.since + FORGOTTEN_AFTER {
            self.logged.clear();
            self.since = now;
        }
        if self.logged.len() >= LINES_MAX || !self.logged.insert(key) {
            return false;
        }
        if self.logged.len() == LINES_MAX {
            warn!("too many different problems with {}: for an hour they are only counted", self.subject);
        }
        true
    }
}

/// Runs a test with a subscriber of its own. While tracing knows just one subscriber, it asks the thread that reaches a log line first
/// whether the line is enabled, and keeps the answer: that of another test, which has no subscriber, would be no. So a second one, which takes
/// all lines, lives as long as the tests.
#[cfg(test)]
pub fn with_subscriber<T>(
    subscriber: impl tracing::Subscriber + Send + Sync + 'static,
    act: impl FnOnce() -> T,
) -> T {
    static TAKES_ALL: std::sync::OnceLock<tracing::Dispatch> = std::sync::OnceLock::new();
    TAKES_ALL.get_or_init(|| tracing::Dispatch::new(Lines(std::sync::Arc::default())));
    tracing::subscriber::with_default(subscriber, act)
}

/// Counts log lines of level info and above, for tests.
#[cfg(test)]
pub struct Lines(pub std::sync::Arc<std::sync::atomic::AtomicUsize>);

#[cfg(test)]
impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let counts = *event.metadata().level() <= tracing::Level::INFO;
        self.0.fetch_add(usize::from(counts), std::sync::atomic::Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
