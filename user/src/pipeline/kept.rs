//! What the pipeline counts of sessions, as UPF-C keeps it for a successor: usage, meters, figures.
//!
//! Where a state is kept, each session that is charged for is looked at every so often, and reported to UPF-C if packets have passed since
//! ([`UserPlaneReport::Counted`]); so it is before its usage is reported to the SMF, so that a successor reports nothing twice. What passed after the
//! last look is lost with the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::QerId;

use super::UpfU;
use super::meter::Meter;
use super::session::{SessionCounters, SessionState, SessionU};
use super::shared::PipelineContext;
use super::usage::Usage;
use crate::exchange::{Effects, UserPlaneReport};
use crate::rules::{Qer, SessionRules};
use crate::session_id::SessionId;
use crate::state::{Stored, StoredReader, crc32c, stored};

/// Sessions looked at between two bursts: ten microseconds.
const LOOKS_AT_ONCE: usize = 32;
/// Time between two such looks of one round.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What is kept of a session.
struct KeptSession {
    counters: SessionCounters,
    last_packet: Instant,
    inactive: bool,
    /// By QER and rates: one of other rates begins full.
    meters: Vec<((QerId, u32), Meter)>,
    usage: Vec<Usage>,
}

stored!(KeptSession { counters, last_packet, inactive, meters, usage });

/// A QER and its rates.
fn rates_of(q: &Qer) -> (QerId, u32) {
    let mut rates = Vec::with_capacity(40);
    (q.mbr_ul_kbps, q.mbr_dl_kbps).store(&mut rates);
    (q.gbr_ul_kbps, q.gbr_dl_kbps).store(&mut rates);
    q.window_ms.store(&mut rates);
    (q.qer_id, crc32c(0, &rates))
}

/// What a session has counted, in octets.
fn octets_of(rules: &SessionRules, state: &SessionState) -> Box<[u8]> {
    let kept = KeptSession {
        counters: state.counters,
        last_packet: state.last_packet,
        inactive: state.inactive,
        meters: rules.qers.iter().map(rates_of).zip(state.meters.iter().copied()).collect(),
        usage: state.usage.to_vec(),
    };
    let mut octets = Vec::with_capacity(192);
    kept.store(&mut octets);
    octets.into()
}

/// Reports to UPF-C what a session has counted, before its usage is reported to the SMF; where a state is kept.
pub(super) fn report(shared: &mut PipelineContext, rules: &SessionRules, state: &SessionState) {
    if shared.keeps_counted && !rules.urrs.is_empty() {
        shared.report(UserPlaneReport::Counted { session: state.id(), counted: octets_of(rules, state) });
    }
}

/// When the sessions are looked at.
#[derive(Default)]
pub(super) struct Looks {
    /// Between two rounds; `None` where no state is kept.
    every: Option<Duration>,
    /// Sessions that are charged for, and packets of each at its last look.
    sessions: BTreeMap<u32, u64>,
    /// The first one that this round has not come to.
    from: u32,
    next: Instant,
}

impl Looks {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        (self.every.is_some() && !self.sessions.is_empty()).then_some(self.next)
    }

    /// A session has these rules, or none.
    pub(super) fn set(&mut self, index: u32, rules: Option<&SessionRules>) {
        if self.every.is_none() {
            return;
        }
        if rules.is_some_and(|r| !r.urrs.is_empty()) {
            self.sessions.entry(index).or_insert(0);
        } else {
            self.sessions.remove(&index);
        }
    }
}

impl UpfU {
    /// From now on what sessions have counted is reported to UPF-C for the state, each session at least so often.
    pub fn keep_counted(&mut self, every: Duration) {
        self.looks.every = Some(every);
        self.shared.keeps_counted = true;
    }

    /// Looks at all sessions at once; what has changed is reported.
    pub fn look_at_all(&mut self) {
        let all: Vec<u32> = self.looks.sessions.keys().copied().collect();
        all.into_iter().for_each(|index| self.look_at(index));
    }

    /// Looks at some sessions, if it is time.
    pub(super) fn look_at_some(&mut self, now: Instant) {
        let Some(every) = self.looks.every.filter(|_| self.looks.next <= now) else { return };
        let some: Vec<u32> =
            self.looks.sessions.range(self.looks.from..).map(|(i, _)| *i).take(LOOKS_AT_ONCE).collect();
        let more = some.len() == LOOKS_AT_ONCE;
        self.looks.from = some.last().filter(|_| more).map_or(0, |i| i + 1);
        self.looks.next = now + if more { LOOK_EVERY } else { every };
        some.into_iter().for_each(|index| self.look_at(index));
    }

    fn look_at(&mut self, index: u32) {
        let Some(generation) = self.sessions.generation(index) else { return };
        let id = SessionId { index, generation };
        let packets = self.sessions.counters(id).map_or(0, |c| c.ul_packets + c.dl_packets + c.dropped);
        let Some(seen) = self.looks.sessions.get_mut(&index).filter(|seen| **seen != packets) else { return };
        *seen = packets;
        if let Some(counted) = self.sessions.with_snapshot(index, |s| octets_of(&s.rules, &s.state)) {
            self.shared.report(UserPlaneReport::Counted { session: id, counted });
        }
    }

    /// A session that stood before this process did, with what it had counted.
    pub(super) fn restore(
        &mut self,
        now: Instant,
        id: SessionId,
        rules: Arc<SessionRules>,
        counted: Option<&[u8]>,
    ) {
        self.seat(now, id, Arc::clone(&rules), Effects::default(), true);
        let Some(kept) = counted.and_then(|c| KeptSession::restore(&mut StoredReader::new(c))) else {
            return;
        };
        let Some(SessionU { state, .. }) = self.sessions.get(id.index) else { return };
        state.counters = kept.counters;
        (state.last_packet, state.inactive) = (kept.last_packet.min(now), kept.inactive);
        for (qer, meter) in rules.qers.iter().zip(&mut state.meters) {
            let known = kept.meters.iter().find(|(of, _)| *of == rates_of(qer));
            *meter = known.map_or(*meter, |(_, known)| *known);
        }
        for (urr, usage) in rules.urrs.iter().zip(&mut state.usage) {
            if let Some(known) = kept.usage.iter().find(|u| u.urr_id == urr.urr_id) {
                *usage = known.clone().restored(urr, now);
            }
        }
        self.arm(id.index);
        self.sessions.fold(id.index);
    }
}
