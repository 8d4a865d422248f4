//! What peers do wrong is told in the log once, and counted from then on: the log is not theirs to fill.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::warn;
use whimbrel_ids::Instant;

/// Who and what is told until all are forgotten: a screen or two of an operator.
pub(crate) const LINES_MAX: usize = 64;
/// After this they are told again: who mends something wants to see whether it helped.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// What was told lately.
#[derive(Debug)]
pub(crate) struct LogLimiter<K> {
    /// Of whom it is.
    whose: &'static str,
    told: BTreeSet<K>,
    since: Instant,
}

impl<K: Ord> LogLimiter<K> {
    /// Nothing yet.
    pub(crate) fn new(whose: &'static str) -> Self {
        Self { whose, told: BTreeSet::new(), since: Instant::ZERO }
    }

    /// Whether this is to be told.
    pub(crate) fn allows(&mut self, now: Instant, key: K) -> bool {
        if self.told.is_empty() || now >= self.since + FORGOTTEN_AFTER {
            self.told.clear();
            self.since = now;
        }
        if self.told.len() >= LINES_MAX || !self.told.insert(key) {
            return false;
        }
        if self.told.len() == LINES_MAX {
            warn!("too many different problems with {}: for an hour they are only counted", self.whose);
        }
        true
    }
}

/// Counts the lines of the log, but those of levels that are off, for tests.
#[cfg(test)]
pub(crate) struct Lines(pub(crate) std::sync::Arc<std::sync::atomic::AtomicUsize>);

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
        let told = *event.metadata().level() <= tracing::Level::INFO;
        self.0.fetch_add(usize::from(told), std::sync::atomic::Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
