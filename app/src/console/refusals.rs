//! "Why is this phone not on?": every refusal with what was offered, what was expected, and the fix.
//!
//! Bounded overall and for each subject, so that one phone that asks a thousand times does not push the others out;
//! the same refusal over again is one record with a count.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;

use crate::clock;

/// Refusals kept in all: about 2 MB at their usual length.
const ALL_MAX: usize = 4096;
/// Refusals kept for one subject: its history since the operator began to look.
const PER_SUBJECT_MAX: usize = 16;
/// Names under which one refusal can be found: SUPI, PEI, gNB, the gNB's name of the phone.
const SUBJECTS_MAX: usize = 4;

/// The kind of a refusal for which there are two gNBs of one Global RAN Node ID.
pub(crate) const GNB_IDENTITY: &str = "gnb_identity";

/// One refusal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RefusalRecord {
    /// Number in order, from 1.
    pub(crate) seq: u64,
    /// Whom: the best name first (SUPI), then others under which it is found (PEI, gNB, RAN-UE-NGAP-ID).
    pub(crate) subjects: Vec<String>,
    /// In which procedure, in the standard's words.
    pub(crate) procedure: String,
    /// Which kind, `unknown_subscriber`.
    pub(crate) kind: String,
    /// Why, in one clause.
    pub(crate) why: String,
    /// What the peer offered, where that is known apart.
    pub(crate) offered: String,
    /// What would have been accepted.
    pub(crate) expected: String,
    /// What to do.
    pub(crate) fix: String,
    /// What the peer was told, `5GMM cause #3 (illegal UE)`.
    pub(crate) told: String,
    /// When first, RFC 3339.
    pub(crate) first: String,
    /// When last, RFC 3339.
    pub(crate) last: String,
    /// How often in a row.
    pub(crate) count: u64,
}

impl RefusalRecord {
    /// All of it in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let subject = self.subjects.first().map_or("somebody unknown", String::as_str);
        let mut s = format!("{subject} was refused in {} at {}", self.procedure, self.last);
        if self.count > 1 {
            s += &format!(" ({} times since {})", self.count, self.first);
        }
        s += &format!(" because {}", self.why);
        match (self.offered.is_empty(), self.expected.is_empty()) {
            (false, false) => s += &format!(": offered {}, expected {}", self.offered, self.expected),
            (false, true) => s += &format!(": offered {}", self.offered),
            (true, false) => s += &format!(": expected {}", self.expected),
            (true, true) => {}
        }
        if !self.told.is_empty() {
            s += &format!(" (told {})", self.told);
        }
        s + &format!("; fix: {}.", self.fix)
    }
}

/// The refusals kept.
#[derive(Default)]
pub(crate) struct Refusals {
    by_seq: BTreeMap<u64, RefusalRecord>,
    by_subject: BTreeMap<String, VecDeque<u64>>,
    pushed: u64,
}

impl Refusals {
    /// Keeps a refusal, and says whether it is new: not the subject's last one over again. `seq`, `first`, `last` and
    /// `count` are filled in here.
    pub(crate) fn push(&mut self, at: Instant, mut record: RefusalRecord) -> bool {
        let at = clock::rfc3339(at);
        record.subjects.truncate(SUBJECTS_MAX);
        if let Some(same) = self.newest_like(&record) {
            same.last = at;
            same.count += 1;
            return false;
        }
        self.pushed += 1;
        record.seq = self.pushed;
        record.first.clone_from(&at);
        record.last = at;
        record.count = 1;
        for subject in record.subjects.clone() {
            let history = self.by_subject.entry(subject).or_default();
            history.push_back(record.seq);
            let over = (history.len() > PER_SUBJECT_MAX).then(|| history.pop_front()).flatten();
            if let Some(seq) = over {
                self.forget(seq);
            }
        }
        self.by_seq.insert(record.seq, record);
        while self.by_seq.len() > ALL_MAX {
            let Some(oldest) = self.by_seq.first_key_value().map(|(seq, _)| *seq) else { break };
            self.forget(oldest);
        }
        true
    }

    /// The refusals of a subject, newest first. A name may be given as it is shown, or with its prefix left off
    /// (`999700000000001` for `imsi-999700000000001`).
    pub(crate) fn of(&self, subject: &str) -> Vec<RefusalRecord> {
        let subject = subject.trim();
        let exact = self.by_subject.get(subject);
        let named = || {
            let ends = |name: &&String| name.split_once('-').is_some_and(|(_, rest)| rest == subject);
            self.by_subject.keys().find(ends).and_then(|name| self.by_subject.get(name))
        };
        let history = exact.or_else(named).into_iter().flatten();
        history.rev().filter_map(|seq| self.by_seq.get(seq)).cloned().collect()
    }

    /// The newest refusals of all, newest first.
    pub(crate) fn newest(&self, limit: usize) -> Vec<RefusalRecord> {
        self.by_seq.values().rev().take(limit).cloned().collect()
    }

    fn newest_like(&mut self, record: &RefusalRecord) -> Option<&mut RefusalRecord> {
        let history = self.by_subject.get(record.subjects.first()?)?;
        let newest = self.by_seq.get_mut(history.back()?)?;
        let same = newest.procedure == record.procedure
            && newest.kind == record.kind
            && newest.why == record.why
            && newest.offered == record.offered
            && newest.subjects.first() == record.subjects.first();
        same.then_some(newest)
    }

    fn forget(&mut self, seq: u64) {
        let Some(record) = self.by_seq.remove(&seq) else { return };
        for subject in &record.subjects {
            if let Some(history) = self.by_subject.get_mut(subject) {
                history.retain(|s| *s != seq);
                if history.is_empty() {
                    self.by_subject.remove(subject);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(subject: &str, why: &str) -> RefusalRecord {
        RefusalRecord {
            subjects: vec![subject.into(), "gnb-999/70-1".into()],
            procedure: "initial registration".into(),
            kind: "unknown_subscriber".into(),
            why: why.into(),
            fix: "add it".into(),
            told: "5GMM cause #3".into(),
            ..RefusalRecord::default()
        }
    }

    #[test]
    fn one_sentence_says_it_all() {
        let mut refusals = Refusals::default();
        refusals.push(Instant(0), refusal("imsi-999700000000001", "the subscriber is not in the store"));
        let history = refusals.of("999700000000001");
        assert_eq!(
            history[0].sentence(),
            "imsi-999700000000001 was refused in initial registration at 1970-01-01T00:00:00.000Z because the \
             subscriber is not in the store (told 5GMM cause #3); fix: add it."
        );
        assert_eq!(refusals.of("gnb-999/70-1").len(), 1);
        assert_eq!(refusals.of("999/70-1").len(), 1);
        assert!(refusals.of("imsi-999700000000002").is_empty());
    }

    #[test]
    fn the_same_over_again_is_counted() {
        let mut refusals = Refusals::default();
        for i in 0..1000 {
            refusals.push(Instant(i * 1_000_000), refusal("imsi-1", "a"));
        }
        refusals.push(Instant(0), refusal("imsi-1", "b"));
        let history = refusals.of("imsi-1");
        assert_eq!(
            history.iter().map(|r| (r.why.as_str(), r.count)).collect::<Vec<_>>(),
            [("b", 1), ("a", 1000)]
        );
        assert!(history[1].sentence().contains("(1000 times since 1970-01-01T00:00:00.000Z)"));
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut refusals = Refusals::default();
        for i in 0..3 * ALL_MAX as u64 {
            let mut r = refusal(&format!("imsi-{i}"), "a");
            r.subjects.truncate(1);
            refusals.push(Instant(i), r);
            refusals.push(Instant(i), refusal("imsi-0", &format!("{i}")));
        }
        assert!(refusals.by_seq.len() <= ALL_MAX);
        assert!(refusals.by_subject.len() <= ALL_MAX * SUBJECTS_MAX);
        assert_eq!(refusals.of("imsi-0").len(), PER_SUBJECT_MAX);
        assert!(refusals.by_subject.values().all(|h| h.len() <= PER_SUBJECT_MAX && !h.is_empty()));
        for (subject, history) in &refusals.by_subject {
            for seq in history {
                assert!(refusals.by_seq.get(seq).is_some_and(|r| r.subjects.contains(subject)));
            }
        }
    }
}
