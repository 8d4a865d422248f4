//! Recent events in order, for `/api/v1/events`.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;

use crate::clock;

/// Events kept: at a thousand a second, the last four seconds; on a quiet network, days.
const EVENTS_MAX: usize = 4096;

/// Level of an event; the same as in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// An event as the API gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct EventRecord {
    /// Number in order, from 1.
    pub seq: u64,
    /// When, RFC 3339.
    pub at: String,
    /// Level of the event.
    pub level: Level,
    /// Kind, such as `gnb.up`.
    pub kind: String,
    /// Subject: a SUPI, a gNB, or empty.
    pub subject: String,
    /// The event in a sentence.
    pub text: String,
}

struct Event {
    at: Instant,
    level: Level,
    kind: &'static str,
    subject: String,
    text: String,
}

/// A bounded ring of events; the oldest are dropped first.
#[derive(Default)]
pub struct EventRing {
    ring: VecDeque<Event>,
    pushed: u64,
}

impl EventRing {
    /// Adds an event.
    pub fn push(
        &mut self,
        at: Instant,
        level: Level,
        kind: &'static str,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) {
        if self.ring.len() == EVENTS_MAX {
            self.ring.pop_front();
        }
        self.ring.push_back(Event { at, level, kind, subject: subject.into(), text: text.into() });
        self.pushed += 1;
    }

    /// Number of the newest event.
    pub fn last(&self) -> u64 {
        self.pushed
    }

    /// The events numbered above `seq`, oldest first, at most `limit`.
    pub fn since(&self, seq: u64, limit: usize) -> Vec<EventRecord> {
        let first = self.pushed - self.ring.len() as u64;
        let skip = usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX);
        let numbered = self.ring.iter().zip(first + 1..).skip(skip).take(limit);
        numbered
            .map(|(e, seq)| EventRecord {
                seq,
                at: clock::rfc3339(e.at),
                level: e.level,
                kind: e.kind.into(),
                subject: e.subject.clone(),
                text: e.text.clone(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_events_are_dropped_and_numbers_stay() {
        let mut events = EventRing::default();
        for i in 0..EVENTS_MAX + 10 {
            events.push(Instant::ZERO, Level::Info, "test", "", i.to_string());
        }
        let all = events.since(0, usize::MAX);
        assert_eq!((all.len(), all[0].seq, all[0].text.as_str()), (EVENTS_MAX, 11, "10"));
        let last = events.since(events.last() - 1, 10);
        assert_eq!((last.len(), last[0].seq), (1, events.last()));
        assert!(events.since(u64::MAX, 10).is_empty());
        assert_eq!(events.since(12, 3).iter().map(|e| e.seq).collect::<Vec<_>>(), [13, 14, 15]);
    }
}
