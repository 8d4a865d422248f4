//! Recent history of each UE and gNB: registrations, deregistrations, sessions, refusals, associations. `whimbrel why` reads it.
//!
//! Bounded for each subject and overall. When a bound is reached, the subject whose last event is the oldest is deleted. UEs that have
//! never registered, and gNBs that have never set up, have bounds of their own, so that they cannot displace the others. Repetitions of
//! one event are one entry with a count.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_control::event::{DeregistrationReason, SetupRefusal};
use whimbrel_control::{Refusal, UeId};
use whimbrel_ids::{Dnn, Instant, PduSessionId, Pei, Supi};

use crate::clock;

/// Most entries of one subject: as many as an operator reads.
const PER_SUBJECT_MAX: usize = 16;
/// Most entries of each class. An entry takes some 100 octets, a refusal about 600; a registered UE has two or three, so that the first
/// class holds some ten thousand UEs.
const ENTRIES_MAX: [usize; 4] = [32_768, 8_192, 4_096, 1_024];

/// Which bound a subject's entries count against; the index into [`ENTRIES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubjectClass {
    /// A UE that has registered.
    Ue = 0,
    /// A UE that has not registered yet.
    UnprovenUe = 1,
    /// A gNB that has set up NG.
    Gnb = 2,
    /// A gNB that has not set up NG yet.
    UnprovenGnb = 3,
}

/// Subject of a history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A UE whose subscriber is known.
    Ue(Supi),
    /// A UE of which only the equipment is known.
    Equipment(Pei),
    /// A UE that is known only by the core's own name of it.
    Unidentified(UeId),
    /// A gNB: `gnb-999/70-1`, or `gnb-at-192.0.2.1:38412` before NG Setup.
    Gnb(Arc<str>),
}

/// A refusal as the history keeps it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Refusal")]
pub struct RefusalRecord {
    /// Number in order, from 1.
    pub seq: u64,
    /// Names of the subject: the best first (SUPI), then others (PEI, gNB, RAN-UE-NGAP-ID).
    pub subjects: Vec<String>,
    /// Procedure, in the standard's words.
    pub procedure: String,
    /// Kind, such as `unknown_subscriber`.
    pub kind: String,
    /// Reason, as a clause of a sentence.
    pub why: String,
    /// What the peer offered, if known.
    pub offered: String,
    /// What would have been accepted.
    pub expected: String,
    /// Remedy under the configuration of that time.
    pub fix: String,
    /// The message that was sent to the peer, with its cause: `REGISTRATION REJECT with 5GMM cause #3 (Illegal UE)`.
    pub answer: String,
    /// First time, RFC 3339.
    pub first: String,
    /// Last time, RFC 3339.
    pub last: String,
    /// How often in a row.
    pub count: u64,
    /// When the same procedure succeeded after it, RFC 3339; absent: not yet.
    pub closed: Option<String>,
}

impl RefusalRecord {
    /// All of it in one sentence.
    pub fn sentence(&self) -> String {
        let subject = self.subjects.first().map_or("an unknown peer", String::as_str);
        let mut s = format!("the {} of {subject} {} at {}", self.procedure, self.outcome(), self.last);
        if self.count > 1 {
            s += &format!(" ({} times since {})", self.count, self.first);
        }
        format!("{s} because {}; fix: {}.", self.reason(), self.fix)
    }

    /// Without an answer the procedure failed; it was not refused.
    pub fn outcome(&self) -> &'static str {
        if self.answer.is_empty() { "failed" } else { "was refused" }
    }

    /// Reason, offer, expectation, and the message that was sent.
    pub fn reason(&self) -> String {
        let mut s = self.why.clone();
        match (self.offered.is_empty(), self.expected.is_empty()) {
            (false, false) => s += &format!(": offered {}, expected {}", self.offered, self.expected),
            (false, true) => s += &format!(": offered {}", self.offered),
            (true, false) => s += &format!(", expected {}", self.expected),
            (true, true) => {}
        }
        if !self.answer.is_empty() {
            s += &format!(" ({})", self.answer);
        }
        s
    }
}

/// Cause of a refusal, from which the remedy is derived when `why` is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum RefusalReason {
    /// A UE or one of its sessions.
    Ue(Refusal),
    /// A gNB's setup was refused.
    Setup(SetupRefusal),
}

/// Which later success closes a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// A registration removes the cause.
    Registration,
    /// A session of this data network; `None`: of any.
    Session(Option<Dnn>),
    /// The same procedure; a registration too.
    Procedure(&'static str),
    /// NG SETUP removes the cause.
    Setup,
}

/// An event of a history.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryEvent {
    /// Something was refused.
    Refused(Box<RefusalRecord>, RefusalReason, ClosedBy),
    /// The UE registered.
    Registered,
    /// The UE deregistered.
    DeregisteredByUe,
    /// The network deregistered the UE.
    Deregistered(DeregistrationReason),
    /// A PDU session was established.
    SessionEstablished(PduSessionId, Dnn),
    /// A PDU session was released; by the UE or the network, if by a procedure of its own.
    SessionReleased(PduSessionId, Dnn, &'static str),
    /// The subscriber's record was added, edited or removed.
    SubscriberChanged,
    /// The gNB set up NG; its RAN node name and address.
    Up(String),
    /// The gNB's association ended; how.
    Down(String),
    /// Another event of a gNB, as a clause.
    Noted(String),
}

impl HistoryEvent {
    /// Whether it repeats another one. The gNB's names of the UE may differ between refusals.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Refused(a, ..), Self::Refused(b, ..)) => {
                (&a.procedure, &a.kind, &a.why, &a.offered) == (&b.procedure, &b.kind, &b.why, &b.offered)
            }
            _ => self == other,
        }
    }
}

/// An event, once or several times in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    /// Number in order among all, from 1.
    pub seq: u64,
    /// The event that happened.
    pub what: HistoryEvent,
    /// Time of the first of them.
    pub first: Instant,
    /// Time of the last of them.
    pub last: Instant,
    /// How often in a row.
    pub count: u64,
    /// The gNB that the UE used.
    pub gnb: Option<Arc<str>>,
    /// When a later success closed it.
    pub closed: Option<Instant>,
}

impl HistoryEntry {
    /// The refusal, if it is one, with its times.
    pub fn refusal(&self) -> Option<RefusalRecord> {
        let HistoryEvent::Refused(record, ..) = &self.what else { return None };
        let mut record = (**record).clone();
        record.seq = self.seq;
        (record.first, record.last) = (clock::rfc3339(self.first), clock::rfc3339(self.last));
        record.count = self.count;
        record.closed = self.closed.map(clock::rfc3339);
        Some(record)
    }
}

/// History of one subject.
#[derive(Clone, Debug)]
pub struct SubjectHistory {
    /// Events, oldest first.
    pub entries: VecDeque<HistoryEntry>,
    /// The gNB that a UE used last.
    pub gnb: Option<Arc<str>>,
    /// Other names of a gNB: its RAN node name, its address.
    pub also: Vec<String>,
    /// Slot of a UE that is registered.
    ue: Option<UeId>,
    class: SubjectClass,
    /// Its place in `by_age`.
    touched: u64,
}

impl SubjectHistory {
    /// The newest entry about the state of the UE or gNB: not about a session or the subscriber's record.
    pub fn state(&self) -> Option<&HistoryEntry> {
        self.entries.iter().rev().find(|e| {
            matches!(
                e.what,
                HistoryEvent::Registered
                    | HistoryEvent::DeregisteredByUe
                    | HistoryEvent::Deregistered(_)
                    | HistoryEvent::Up(_)
                    | HistoryEvent::Down(_)
            )
        })
    }

    /// The newest refusal that no later success has closed.
    pub fn open(&self) -> Option<&HistoryEntry> {
        self.refusals().find(|e| e.closed.is_none())
    }

    /// The refusals, newest first.
    pub fn refusals(&self) -> impl Iterator<Item = &HistoryEntry> {
        self.entries.iter().rev().filter(|e| matches!(e.what, HistoryEvent::Refused(..)))
    }
}

/// All histories of UEs and gNBs.
#[derive(Default)]
pub struct Histories {
    all: BTreeMap<Name, SubjectHistory>,
    /// By class, the subjects in the order of their last event.
    by_age: [BTreeMap<u64, Name>; 4],
    /// By class, the number of entries.
    entries: [usize; 4],
    /// Refusals, in order.
    refusals: BTreeMap<u64, Name>,
    /// The subject of an event that has no SUPI.
    registered: BTreeMap<UeId, Name>,
    /// Entries since the start.
    pushed: u64,
    /// Events since the start, repetitions included.
    touched: u64,
    /// Whether a history was deleted.
    forgotten: bool,
    /// When many subscribers were changed at once.
    all_changed: Option<Instant>,
}

impl Histories {
    /// Adds an event. Returns whether it is new, that is, does not repeat the last one.
    pub fn push(&mut self, at: Instant, name: &Name, gnb: Option<&Arc<str>>, what: HistoryEvent) -> bool {
        let proven = matches!(what, HistoryEvent::Registered | HistoryEvent::Up(_));
        let touched = self.touch(name, proven);
        let Some(history) = self.all.get_mut(name) else { return false };
        history.touched = touched;
        if let Some(gnb) = gnb {
            history.gnb = Some(gnb.clone());
        }
        let again = history.entries.back_mut().filter(|e| e.what.is_same(&what) && e.closed.is_none());
        if let Some(again) = again {
            (again.what, again.last, again.gnb) = (what, at, gnb.cloned());
            again.count += 1;
            return false;
        }
        self.pushed += 1;
        let seq = self.pushed;
        if matches!(what, HistoryEvent::Refused(..)) {
            self.refusals.insert(seq, name.clone());
        }
        let class = history.class as usize;
        history.entries.push_back(HistoryEntry {
            seq,
            what,
            first: at,
            last: at,
            count: 1,
            gnb: gnb.cloned(),
            closed: None,
        });
        self.entries[class] += 1;
        if history.entries.len() > PER_SUBJECT_MAX
            && let Some(oldest) = history.entries.pop_front()
        {
            self.entries[class] -= 1;
            self.refusals.remove(&oldest.seq);
        }
        while self.entries[class] > ENTRIES_MAX[class] {
            let Some((_, oldest)) = self.by_age[class].pop_first() else { break };
            self.forget(&oldest);
        }
        true
    }

    /// Finds or creates the history of a subject, and makes it the newest of its class.
    fn touch(&mut self, name: &Name, proven: bool) -> u64 {
        self.touched += 1;
        let class = match (name, proven) {
            (Name::Gnb(_), true) => SubjectClass::Gnb,
            (Name::Gnb(_), false) => SubjectClass::UnprovenGnb,
            (_, true) => SubjectClass::Ue,
            (_, false) => SubjectClass::UnprovenUe,
        };
        let history = self.all.entry(name.clone()).or_insert_with(|| SubjectHistory {
            entries: VecDeque::new(),
            gnb: None,
            also: Vec::new(),
            ue: None,
            class,
            touched: 0,
        });
        let former = history.class as usize;
        self.by_age[former].remove(&history.touched);
        if proven && history.class != class {
            self.entries[former] -= history.entries.len();
            self.entries[class as usize] += history.entries.len();
            history.class = class;
        }
        self.by_age[history.class as usize].insert(self.touched, name.clone());
        self.touched
    }

    fn forget(&mut self, name: &Name) {
        let Some(history) = self.all.remove(name) else { return };
        self.forgotten = true;
        self.entries[history.class as usize] -= history.entries.len();
        for entry in &history.entries {
            self.refusals.remove(&entry.seq);
        }
        if let Some(ue) = history.ue {
            self.registered.remove(&ue);
        }
    }

    /// A UE registered: this closes its earlier refusals. A further registration of a registered UE is not recorded.
    pub fn registered(&mut self, at: Instant, name: &Name, ue: UeId, gnb: Option<&Arc<str>>) {
        self.close(at, name, |by| !matches!(by, ClosedBy::Session(_) | ClosedBy::Setup));
        let is_news = self.all.get(name).is_none_or(|h| {
            let states = |e: &&HistoryEntry| !matches!(e.what, HistoryEvent::SubscriberChanged);
            !matches!(h.state().map(|e| &e.what), Some(HistoryEvent::Registered))
                || matches!(
                    h.entries.iter().rev().find(states).map(|e| &e.what),
                    Some(HistoryEvent::Refused(..))
                )
        });
        if is_news {
            self.push(at, name, gnb, HistoryEvent::Registered);
        }
        self.seen_at(name, gnb);
        if let Some(history) = self.all.get_mut(name) {
            if let Some(former) = history.ue.replace(ue) {
                self.registered.remove(&former);
            }
            self.registered.insert(ue, name.clone());
        }
    }

    /// The subject of an event that has no SUPI.
    pub fn name_of(&self, ue: UeId) -> Option<Name> {
        self.registered.get(&ue).cloned()
    }

    /// Whether a UE has registered in another slot later, so that events of this slot do not change its state.
    pub fn is_former(&self, name: &Name, ue: UeId) -> bool {
        self.all.get(name).is_some_and(|h| h.ue.is_some_and(|p| p != ue))
    }

    /// A UE used a gNB.
    pub fn seen_at(&mut self, name: &Name, gnb: Option<&Arc<str>>) {
        if let (Some(history), Some(gnb)) = (self.all.get_mut(name), gnb)
            && history.gnb.as_ref() != Some(gnb)
        {
            history.gnb = Some(gnb.clone());
        }
    }

    /// A success closes the open refusals that it concerns.
    pub fn close(&mut self, at: Instant, name: &Name, concerns: impl Fn(&ClosedBy) -> bool) {
        let Some(history) = self.all.get_mut(name) else { return };
        for entry in history.entries.iter_mut().filter(|e| e.closed.is_none()) {
            if matches!(&entry.what, HistoryEvent::Refused(_, _, by) if concerns(by)) {
                entry.closed = Some(at);
            }
        }
    }

    /// Sets which side released the session that was released last.
    pub fn session_released_by(&mut self, name: &Name, by: &'static str) {
        let last = self.all.get_mut(name).and_then(|h| h.entries.back_mut());
        if let Some(HistoryEntry { what: HistoryEvent::SessionReleased(_, _, side), .. }) = last {
            *side = by;
        }
    }

    /// A subscriber's record was changed; recorded if the subscriber has a history.
    pub fn subscriber_changed(&mut self, at: Instant, supi: Supi) {
        let name = Name::Ue(supi);
        if self.all.contains_key(&name) {
            self.push(at, &name, None, HistoryEvent::SubscriberChanged);
        }
    }

    /// Many subscribers' records were changed.
    pub fn subscribers_changed(&mut self, at: Instant) {
        self.all_changed = Some(at);
    }

    /// Sets the names that a gNB has beside its identity.
    pub fn also_called(&mut self, name: &Name, also: Vec<String>) {
        if let Some(history) = self.all.get_mut(name) {
            history.also = also;
        }
    }

    /// A subject's history.
    pub fn of(&self, name: &Name) -> Option<&SubjectHistory> {
        self.all.get(name)
    }

    /// When a subscriber's record was last changed, if after `at`.
    pub fn changed_after(&self, name: &Name, at: Instant) -> Option<Instant> {
        let of = |e: &&HistoryEntry| matches!(e.what, HistoryEvent::SubscriberChanged);
        let own = self.all.get(name).and_then(|h| h.entries.iter().rev().find(of)).map(|e| e.last);
        own.max(self.all_changed).filter(|changed| *changed > at)
    }

    /// The subject that has another name: a PEI, a gNB's name of a UE, a gNB's RAN node name or address.
    pub fn find(&self, text: &str) -> Option<Name> {
        let is = |name: &String| {
            let bare = name.strip_prefix("gnb-at-").unwrap_or(name);
            name == text || bare == text || bare.rsplit_once(':').is_some_and(|(address, _)| address == text)
        };
        let has = |h: &SubjectHistory| {
            h.also.iter().any(is)
                || h.entries.iter().any(|e| match &e.what {
                    HistoryEvent::Refused(record, ..) => record.subjects.iter().any(is),
                    _ => false,
                })
        };
        let newest = self.all.iter().filter(|(_, h)| has(h)).max_by_key(|(_, h)| h.touched);
        newest.map(|(name, _)| name.clone())
    }

    /// The newest refusals of UEs at a gNB, newest first.
    pub fn through(&self, gnb: &str, limit: usize) -> Vec<RefusalRecord> {
        let entries = self.refusals.iter().rev().filter_map(|(seq, name)| match name {
            Name::Gnb(_) => None,
            _ => self.all.get(name)?.entries.iter().find(|e| e.seq == *seq),
        });
        let here = entries.filter(|e| e.gnb.as_deref() == Some(gnb));
        here.filter_map(HistoryEntry::refusal).take(limit).collect()
    }

    /// The newest refusals of all, newest first.
    pub fn newest(&self, limit: usize) -> Vec<RefusalRecord> {
        let entries =
            self.refusals.iter().rev().filter_map(|(seq, name)| {
                self.all.get(name)?.entries.iter().find(|e| e.seq == *seq)?.refusal()
            });
        entries.take(limit).collect()
    }

    /// Number of the newest event, repetitions included.
    pub fn last(&self) -> u64 {
        self.touched
    }

    /// The subjects of the events numbered above `seq`, at most `limit`, oldest first, each with the number of its last event.
    pub fn changed_since(&self, seq: u64, limit: usize) -> Vec<(u64, Name)> {
        let of_class = |by_age: &BTreeMap<u64, Name>| {
            let newer = by_age.range(seq.saturating_add(1)..).take(limit);
            newer.map(|(seq, name)| (*seq, name.clone())).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.by_age.iter().flat_map(of_class).collect();
        all.sort_unstable_by_key(|(seq, _)| *seq);
        all.truncate(limit);
        all
    }

    /// What is wrong now, newest first, each with its time: gNBs that are down or refused, and UEs with a refusal that no success has
    /// closed. At most `limit` of gNBs and of UEs.
    pub fn troubled(&self, limit: usize) -> Vec<(Name, Instant)> {
        let gnbs = [SubjectClass::Gnb, SubjectClass::UnprovenGnb]
            .into_iter()
            .flat_map(|c| self.by_age[c as usize].values().rev());
        let down = gnbs.filter_map(|name| {
            let history = self.all.get(name)?;
            let state = history.state().filter(|e| matches!(e.what, HistoryEvent::Down(_)));
            Some((name.clone(), state.or_else(|| history.open())?.last))
        });
        let mut found: Vec<_> = down.take(limit).collect();
        let mut ues: Vec<(Name, Instant)> = Vec::new();
        for (seq, name) in self.refusals.iter().rev() {
            let open = self.all.get(name).and_then(SubjectHistory::open).filter(|e| e.seq == *seq);
            if let Some(entry) = open.filter(|_| !matches!(name, Name::Gnb(_))) {
                ues.push((name.clone(), entry.last));
                if ues.len() == limit {
                    break;
                }
            }
        }
        found.append(&mut ues);
        found
    }

    /// Whether histories were deleted to make room.
    pub fn is_incomplete(&self) -> bool {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ue(n: u64) -> Name {
        Name::Ue(format!("imsi-{:015}", 999_700_000_000_000 + n).parse().unwrap())
    }

    fn gnb() -> Arc<str> {
        "gnb-999/70-1".into()
    }

    fn refused(subject: &Name, why: &str, by: ClosedBy) -> HistoryEvent {
        let record = RefusalRecord {
            subjects: vec![format!("{subject:?}"), "gnb-999/70-1-ran-ue-7".into()],
            procedure: "registration".into(),
            why: why.into(),
            fix: "add it".into(),
            answer: "REGISTRATION REJECT with 5GMM cause #3 (Illegal UE)".into(),
            ..RefusalRecord::default()
        };
        HistoryEvent::Refused(Box::new(record), RefusalReason::Ue(Refusal::UnknownSubscriber), by)
    }

    fn refusals(histories: &Histories, name: &Name) -> Vec<(String, u64)> {
        let history = histories.of(name).unwrap();
        history.refusals().filter_map(HistoryEntry::refusal).map(|r| (r.why, r.count)).collect()
    }

    #[test]
    fn a_repeated_refusal_is_counted() {
        let mut histories = Histories::default();
        for i in 0..1000 {
            histories.push(Instant(i), &ue(1), None, refused(&ue(1), "a", ClosedBy::Registration));
        }
        histories.push(Instant(1000), &ue(1), None, refused(&ue(1), "b", ClosedBy::Registration));
        assert_eq!(refusals(&histories, &ue(1)), [("b".into(), 1), ("a".into(), 1000)]);
        assert_eq!(histories.newest(1)[0].why, "b");
    }

    #[test]
    fn ues_of_one_gnb_do_not_displace_each_others_refusals() {
        let mut histories = Histories::default();
        for i in 0..100 {
            histories.push(Instant(i), &ue(i), Some(&gnb()), refused(&ue(i), "a", ClosedBy::Registration));
        }
        for i in 0..100 {
            assert_eq!(refusals(&histories, &ue(i)).len(), 1, "UE {i}");
        }
        let through = histories.through("gnb-999/70-1", 8);
        assert_eq!(through.iter().map(|r| r.seq).collect::<Vec<_>>(), (93..=100).rev().collect::<Vec<_>>());
    }

    #[test]
    fn entries_of_one_ue_are_bounded() {
        let mut histories = Histories::default();
        histories.push(Instant(0), &ue(2), None, refused(&ue(2), "a", ClosedBy::Registration));
        for i in 0..100_000 {
            let why = i.to_string();
            histories.push(Instant(i), &ue(1), None, refused(&ue(1), &why, ClosedBy::Registration));
        }
        assert_eq!(refusals(&histories, &ue(1)).len(), PER_SUBJECT_MAX);
        assert_eq!(refusals(&histories, &ue(2)).len(), 1);
        assert!(!histories.is_incomplete());
    }

    #[test]
    fn unknown_ues_do_not_displace_registered_ones_and_memory_is_bounded() {
        let mut histories = Histories::default();
        let known = UeId { slot: 1, generation: 0 };
        histories.registered(Instant(0), &ue(0), known, Some(&gnb()));
        for i in 1..=3 * ENTRIES_MAX[1] as u64 {
            histories.push(Instant(i), &ue(i), None, refused(&ue(i), "a", ClosedBy::Registration));
        }
        assert!(histories.is_incomplete());
        assert_eq!(histories.all.len(), ENTRIES_MAX[1] + 1);
        assert_eq!(histories.refusals.len(), ENTRIES_MAX[1]);
        assert_eq!(histories.entries, [1, ENTRIES_MAX[1], 0, 0]);
        assert_eq!(histories.by_age[1].len(), ENTRIES_MAX[1]);
        assert!(matches!(histories.of(&ue(0)).unwrap().state().unwrap().what, HistoryEvent::Registered));
        assert_eq!(histories.name_of(known), Some(ue(0)));
        for i in 0..2 * ENTRIES_MAX[0] as u64 {
            let id = UeId { slot: i as u32, generation: 1 };
            histories.registered(Instant(i), &ue(i), id, None);
        }
        assert!(histories.entries[0] <= ENTRIES_MAX[0] && histories.registered.len() <= ENTRIES_MAX[0]);
        let counted: usize = histories.all.values().map(|h| h.entries.len()).sum();
        assert_eq!(histories.entries.iter().sum::<usize>(), counted);
    }

    #[test]
    fn a_registration_closes_what_was_refused_before_it() {
        let mut histories = Histories::default();
        let id = UeId { slot: 1, generation: 0 };
        histories.push(Instant(1), &ue(1), None, refused(&ue(1), "a", ClosedBy::Registration));
        let ims: Dnn = "ims".parse().unwrap();
        let session = ClosedBy::Session(Some(ims.clone()));
        histories.push(Instant(2), &ue(1), None, refused(&ue(1), "b", session));
        histories.registered(Instant(3), &ue(1), id, Some(&gnb()));
        let open =
            |h: &Histories| h.of(&ue(1)).unwrap().open().and_then(HistoryEntry::refusal).map(|r| r.why);
        assert_eq!(open(&histories).as_deref(), Some("b"), "a session is still refused");
        let serves = |dnn: Dnn| move |by: &ClosedBy| matches!(by, ClosedBy::Session(d) if d.as_ref().is_none_or(|d| *d == dnn));
        histories.close(Instant(4), &ue(1), serves("internet".parse().unwrap()));
        assert_eq!(open(&histories).as_deref(), Some("b"), "it is about another data network");
        histories.close(Instant(5), &ue(1), serves(ims));
        assert_eq!(open(&histories), None);
        histories.registered(Instant(6), &ue(1), id, Some(&gnb()));
        let state = histories.of(&ue(1)).unwrap().state().unwrap().clone();
        assert_eq!((state.first, state.count), (Instant(3), 1), "a periodic registration is not recorded");
    }

    #[test]
    fn what_is_wrong_now_is_listed_until_it_is_closed() {
        let mut histories = Histories::default();
        let gnb_name = Name::Gnb(gnb());
        histories.push(Instant(1), &ue(1), None, refused(&ue(1), "a", ClosedBy::Registration));
        histories.push(Instant(2), &ue(1), None, refused(&ue(1), "b", ClosedBy::Registration));
        histories.push(Instant(3), &gnb_name, None, HistoryEvent::Up("hall".into()));
        assert_eq!(histories.troubled(9), [(ue(1), Instant(2))], "once for each UE");
        assert_eq!(histories.changed_since(1, 9), [(2, ue(1)), (3, gnb_name.clone())]);
        assert_eq!(histories.changed_since(0, 1), [(2, ue(1))]);
        assert!(histories.changed_since(histories.last(), 9).is_empty());
        histories.push(Instant(4), &gnb_name, None, HistoryEvent::Down("it left".into()));
        assert_eq!(histories.troubled(9), [(gnb_name.clone(), Instant(4)), (ue(1), Instant(2))]);
        histories.registered(Instant(5), &ue(1), UeId { slot: 1, generation: 0 }, None);
        histories.push(Instant(6), &gnb_name, None, HistoryEvent::Up("hall".into()));
        assert!(histories.troubled(9).is_empty());
    }

    #[test]
    fn a_subject_is_found_by_its_other_names() {
        let mut histories = Histories::default();
        histories.push(Instant(1), &ue(1), Some(&gnb()), refused(&ue(1), "a", ClosedBy::Registration));
        assert_eq!(histories.find("gnb-999/70-1-ran-ue-7"), Some(ue(1)));
        let name = Name::Gnb(gnb());
        histories.push(Instant(1), &name, None, HistoryEvent::Up("hall".into()));
        histories.also_called(&name, vec!["hall".into(), "192.0.2.1:38412".into()]);
        assert_eq!(histories.find("hall"), Some(name.clone()));
        assert_eq!(histories.find("192.0.2.1"), Some(name));
        assert_eq!(histories.find("192.0.2.2"), None);
    }

    #[test]
    fn a_change_of_the_subscriber_is_found_after_its_time() {
        let mut histories = Histories::default();
        histories.push(Instant(5), &ue(1), None, refused(&ue(1), "a", ClosedBy::Registration));
        let Name::Ue(supi) = ue(1) else { unreachable!() };
        assert_eq!(histories.changed_after(&ue(1), Instant(5)), None);
        // Made before the refusal, and noticed after it.
        histories.subscriber_changed(Instant(4), supi);
        assert_eq!(histories.changed_after(&ue(1), Instant(5)), None);
        histories.subscriber_changed(Instant(7), supi);
        assert_eq!(histories.changed_after(&ue(1), Instant(5)), Some(Instant(7)));
        assert_eq!(histories.changed_after(&ue(1), Instant(7)), None);
        histories.subscribers_changed(Instant(9));
        assert_eq!(histories.changed_after(&ue(2), Instant(8)), Some(Instant(9)));
    }

    #[test]
    fn one_sentence_has_subject_reason_message_and_fix() {
        let mut histories = Histories::default();
        histories.push(Instant(0), &ue(1), None, refused(&ue(1), "it is unknown", ClosedBy::Registration));
        let mut record = histories.newest(1).remove(0);
        record.subjects = vec!["imsi-999700000000001".into()];
        assert_eq!(
            record.sentence(),
            "the registration of imsi-999700000000001 was refused at 1970-01-01T00:00:00.000Z because it is unknown \
             (REGISTRATION REJECT with 5GMM cause #3 (Illegal UE)); fix: add it."
        );
    }
}
