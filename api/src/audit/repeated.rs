//! Requests that come again and again: the first of a minute is a line of the audit log, the others are one line with their number.
//!
//! Any sender that reaches the API can cause refusals without end. One line for each refusal would push the lines of real accesses out of
//! the log, or fill the disk.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::Instant;

/// How long requests are counted until their number is written.
pub const COUNTED_FOR: Duration = Duration::from_secs(60);
/// Kinds of requests of one source that have lines of their own in a minute; the rest has one together.
const KINDS_PER_SOURCE_MAX: usize = 8;
/// Kinds of requests in a minute, of all sources: some 30 KB of lines, and at most 3 GB in 90 days.
const KINDS_MAX: usize = 64;

/// The same request of the same source, with the same outcome.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKind {
    /// The prefix of its sender's address.
    pub source: String,
    pub user: Option<String>,
    pub request: String,
    pub outcome: String,
}

/// How an access is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingTime {
    /// As a line now; it is the first of its kind, and `begins` a time of counting if it is the first of any kind.
    Now { begins: bool },
    /// With the others of its kind, when the time of counting ends.
    Later,
}

/// The requests of the present minute.
#[derive(Default)]
pub struct RepeatedRequests {
    since: Option<Instant>,
    kinds: BTreeMap<RequestKind, u64>,
}

impl RepeatedRequests {
    /// Counts a request.
    pub fn count(&mut self, now: Instant, kind: RequestKind) -> RecordingTime {
        let begins = self.since.is_none();
        self.since.get_or_insert(now);
        if let Some(times) = self.kinds.get_mut(&kind) {
            *times += 1;
            return RecordingTime::Later;
        }
        let others = |source: String| RequestKind {
            source,
            user: None,
            request: "(other requests)".into(),
            outcome: "refused".into(),
        };
        let is_full = self.kinds.len() >= KINDS_MAX;
        if is_full || self.kinds.keys().filter(|k| k.source == kind.source).count() >= KINDS_PER_SOURCE_MAX {
            let source = if is_full { "(other sources)".into() } else { kind.source };
            *self.kinds.entry(others(source)).or_default() += 1;
            return RecordingTime::Later;
        }
        self.kinds.insert(kind, 0);
        RecordingTime::Now { begins }
    }

    /// True if [`COUNTED_FOR`] has passed since the counting began.
    pub fn is_over(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.since(since) >= COUNTED_FOR)
    }

    /// Ends the time of counting: what came more than once, and how often after its first line.
    pub fn end(&mut self) -> Vec<(RequestKind, u64)> {
        self.since = None;
        std::mem::take(&mut self.kinds).into_iter().filter(|(_, times)| *times > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(source: &str, request: &str) -> RequestKind {
        RequestKind { source: source.into(), user: None, request: request.into(), outcome: "401".into() }
    }

    #[test]
    fn the_first_request_is_a_line_and_the_others_are_counted() {
        let mut repeated = RepeatedRequests::default();
        let at = |s: u64| Instant(s * 1_000_000);
        assert_eq!(repeated.count(at(0), kind("192.0.2.0/24", "a")), RecordingTime::Now { begins: true });
        for s in 1..60 {
            assert_eq!(repeated.count(at(s), kind("192.0.2.0/24", "a")), RecordingTime::Later);
        }
        assert_eq!(repeated.count(at(59), kind("192.0.2.0/24", "b")), RecordingTime::Now { begins: false });
        assert!(!repeated.is_over(at(59)) && repeated.is_over(at(60)));
        assert_eq!(repeated.end(), [(kind("192.0.2.0/24", "a"), 59)]);
        assert_eq!(repeated.count(at(61), kind("192.0.2.0/24", "a")), RecordingTime::Now { begins: true });
    }

    #[test]
    fn a_source_with_many_kinds_of_requests_leaves_room_for_others() {
        let mut repeated = RepeatedRequests::default();
        for i in 0..1000 {
            repeated.count(Instant(0), kind("192.0.2.0/24", &i.to_string()));
        }
        assert_eq!(
            repeated.count(Instant(0), kind("198.51.100.0/24", "a")),
            RecordingTime::Now { begins: false }
        );
        assert_eq!(repeated.end().len(), 1);
    }

    #[test]
    fn lines_of_a_minute_are_bounded_whatever_comes() {
        let mut repeated = RepeatedRequests::default();
        let mut lines = 0;
        for i in 0..100_000 {
            let recorded = repeated.count(Instant(0), kind(&(i % 5000).to_string(), &(i % 7).to_string()));
            lines += usize::from(recorded != RecordingTime::Later);
        }
        lines += repeated.end().len();
        assert!(lines <= 2 * KINDS_MAX + 2, "{lines}");
    }
}
