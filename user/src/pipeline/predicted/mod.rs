//! Predicted handovers (Synergy §III-C, figures 8 and 10): rules of a session that take effect when a packet shows that its UE has
//! arrived.
//!
//! A prediction concerns a UE that comes to this UPF, or to another gNB of it. Its rules, with the target's tunnel, are
//! the SMF's; packets only determine *when* they take effect:
//!
//! - if there is no session yet, with the first packet whose tunnel or UE address only the prediction has. A packet from a gNB has to come
//!   from one to which the rules forward, if they name one. The rules decide whether packets to the UE are forwarded or buffered;
//! - if the session exists, with the first packet from the UE by way of the gNB to which the rules forward. Packets from the
//!   network do not show that the UE has arrived.
//!
//! The new rules apply to this packet already, while [`UserPlaneReport::Arrived`] takes the slow path to UPF-C. A later command of UPF-C for
//! the session ends its prediction.
//!
//! Eight Bloom filters, one for each of the last periods of 625 ms, are checked before the table: packets without a prediction cost one
//! additional cache line. A prediction lives until its filter is reused, 4.4 to 5 s.
//!
//! [`UserPlaneReport::Arrived`]: crate::exchange::UserPlaneReport::Arrived

mod bloom;
mod table;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{Instant, Teid};

use super::UpfU;
use crate::exchange::{Effects, SessionKey, UserPlaneReport};
use crate::limits::PREDICTIONS_MAX;
use crate::rules::{SessionRules, upper};
use crate::session_id::{SessionId, mix};
use bloom::{Bloom, FILTERS};
use table::PredictionTable;

/// The period of one filter (Synergy §III-C.3).
const PERIOD: Duration = Duration::from_millis(625);
/// Keys of a prediction: its tunnel on N3 and its UE's address. An average.
const KEYS: usize = 2;
/// Bound on expired predictions removed at each addition: more than are added.
const REMOVED_AT_ONCE: usize = 8;

struct Prediction {
    period: u64,
    /// `None` once it has taken effect, or was cancelled.
    future: Option<Future>,
}

/// The predicted session.
pub(super) struct Future {
    pub(super) session: SessionId,
    pub(super) rules: Arc<SessionRules>,
    /// Further actions when it takes effect.
    pub(super) effects: Effects,
}

impl Future {
    fn keys(&self) -> impl Iterator<Item = SessionKey> {
        let dn = self.rules.data_network;
        let addresses = [self.rules.ue_ipv4.map(IpAddr::V4), self.rules.ue_ipv6.map(IpAddr::V6)];
        let ue = addresses.into_iter().flatten().map(move |a| SessionKey::Ue(dn, a));
        self.rules.tunnels().map(SessionKey::Tunnel).chain(ue)
    }

    fn is_of(&self, key: SessionKey) -> bool {
        self.rules.is_led_to(key)
    }

    /// Whether a packet from this gNB may show that the UE has arrived.
    fn is_by(&self, peer: IpAddr) -> bool {
        let mut peers = self.rules.remote_tunnels().map(|(_, peer)| peer).peekable();
        peers.peek().is_none() || peers.any(|p| p == peer)
    }
}

/// The filters and the table, from the first prediction on: a UPF that has none keeps no memory for them.
#[derive(Default)]
pub(super) struct Predictions {
    filters: Option<Bloom>,
    table: Option<PredictionTable>,
    /// In order of time. The first one's number is `first`.
    all: VecDeque<Prediction>,
    first: u64,
    by_session: BTreeMap<u32, u64>,
    period: u64,
    /// When the filters are empty again: no packet is looked up from then on, whatever has been removed from the table by then.
    until: Instant,
    seed: u64,
    /// For measurements: every lookup goes to the table.
    unfiltered: bool,
}

/// The result of a lookup.
enum LookupResult {
    /// The prediction that was found.
    Found(u64),
    /// A false positive of the filters.
    FalsePositive,
    /// Not in the filters.
    Nothing,
}

/// Whether what was predicted then may still come true.
pub(crate) fn prediction_stands(since: Instant, now: Instant) -> bool {
    period_of(now) < period_of(since) + u64::from(FILTERS)
}

fn period_of(now: Instant) -> u64 {
    now.0 / PERIOD.as_micros() as u64
}

impl Predictions {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed: mix(seed ^ 0x5052_4544), ..Self::default() }
    }

    /// Whether the filters are empty. That depends on when there was a prediction alone, so every form of the pipeline counts the same lookups.
    #[inline]
    pub(super) fn is_empty(&self, now: Instant) -> bool {
        self.until <= now
    }

    fn hash(&self, key: SessionKey) -> u64 {
        let (kind, number) = match key {
            SessionKey::Tunnel(teid) => (0, teid.0.into()),
            SessionKey::Ue(dn, IpAddr::V4(a)) => (1 | u64::from(dn.0) << 8, a.to_bits().into()),
            SessionKey::Ue(dn, IpAddr::V6(a)) => (2 | u64::from(dn.0) << 8, upper(a)),
        };
        mix(self.seed ^ number ^ kind << 48)
    }

    fn get(&self, number: u64) -> Option<&Prediction> {
        self.all.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Clears expired filters, and starts to remove their predictions from the table.
    fn advance(&mut self, now: Instant) {
        let period = period_of(now).max(self.period);
        if let Some(filters) = &mut self.filters {
            let turns = (period - self.period).min(FILTERS.into());
            (0..turns).for_each(|n| filters.clear(((period - n) % u64::from(FILTERS)) as u32));
        }
        self.period = period;
        for _ in 0..REMOVED_AT_ONCE {
            if !self.all.front().is_some_and(|p| p.future.is_none() || !is_alive(p, period)) {
                break;
            }
            self.forget(self.first);
            self.all.pop_front();
            self.first += 1;
        }
    }

    /// Removes a prediction and returns it.
    fn forget(&mut self, number: u64) -> Option<Future> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let future = self.all.get_mut(at)?.future.take()?;
        for key in future.keys() {
            let hash = self.hash(key);
            if let Some(table) = &mut self.table {
                table.remove(hash, number);
            }
        }
        let index = future.session.index;
        if self.by_session.get(&index) == Some(&number) {
            self.by_session.remove(&index);
        }
        Some(future)
    }

    /// Cancels the prediction of the session at this index.
    pub(super) fn forget_session(&mut self, index: u32) {
        if let Some(number) = self.by_session.get(&index).copied() {
            self.forget(number);
        }
    }

    /// Whether something is predicted of the session at this index: its UE may come by another gNB.
    pub(super) fn awaits(&self, index: u32) -> bool {
        self.by_session.contains_key(&index)
    }

    /// Adds a prediction, replacing an earlier one of that session; false if there are too many.
    fn put(&mut self, now: Instant, future: Future) -> bool {
        self.advance(now);
        self.forget_session(future.session.index);
        if self.all.len() >= PREDICTIONS_MAX {
            return false;
        }
        let number = self.first + self.all.len() as u64;
        for key in future.keys() {
            let hash = self.hash(key);
            let of_a_period = PREDICTIONS_MAX / FILTERS as usize * KEYS;
            let filters = self.filters.get_or_insert_with(|| Bloom::new(of_a_period));
            filters.put((self.period % u64::from(FILTERS)) as u32, hash);
            self.table.get_or_insert_with(PredictionTable::new).put(hash, number);
        }
        self.until = Instant((self.period + u64::from(FILTERS)) * PERIOD.as_micros() as u64);
        self.by_session.insert(future.session.index, number);
        self.all.push_back(Prediction { period: self.period, future: Some(future) });
        true
    }

    /// Prefetches what [`Self::look`] reads first.
    pub(super) fn prefetch(&self, key: SessionKey) {
        let hash = self.hash(key);
        match (&self.filters, &self.table) {
            (Some(filters), _) if !self.unfiltered => filters.prefetch(hash),
            (_, Some(table)) => table.prefetch(hash),
            _ => {}
        }
    }

    /// Looks up the prediction of a packet's key.
    fn look(&mut self, now: Instant, key: SessionKey) -> LookupResult {
        self.advance(now);
        let hash = self.hash(key);
        if !self.unfiltered && !self.filters.as_ref().is_some_and(|f| f.has(hash)) {
            return LookupResult::Nothing;
        }
        let is_it = |number| {
            let alive = self.get(number).filter(|p| is_alive(p, self.period));
            alive.and_then(|p| p.future.as_ref()).is_some_and(|f| f.is_of(key))
        };
        match self.table.as_ref().and_then(|t| t.find(hash, is_it)) {
            Some(number) => LookupResult::Found(number),
            None => LookupResult::FalsePositive,
        }
    }
}

/// Whether its filter is still in use.
fn is_alive(p: &Prediction, period: u64) -> bool {
    p.period + u64::from(FILTERS) > period
}

impl UpfU {
    /// Handles a prediction from UPF-C.
    pub(super) fn predict(&mut self, now: Instant, future: Future) {
        if !self.predictions.put(now, future) {
            self.shared.counters.predictions_refused += 1;
        }
    }

    /// A packet without a session: if a prediction matches, its session is installed. `peer`: the gNB that sent it.
    #[cold]
    pub(super) fn comes_true(&mut self, now: Instant, key: SessionKey, peer: Option<IpAddr>) -> bool {
        let number = match self.predictions.look(now, key) {
            LookupResult::Found(number) => number,
            LookupResult::FalsePositive => {
                self.shared.counters.predictions_false += 1;
                return false;
            }
            LookupResult::Nothing => {
                self.shared.counters.predictions_filtered += 1;
                return false;
            }
        };
        let future = self.predictions.get(number).and_then(|p| p.future.as_ref());
        let shown = future.is_some_and(|f| {
            let elsewhere =
                self.sessions.generation(f.session.index).is_some_and(|g| g != f.session.generation);
            !elsewhere && peer.is_none_or(|p| f.is_by(p))
        });
        if shown && let Some(future) = self.predictions.forget(number) {
            self.begin(now, future);
        }
        shown
    }

    /// A packet from the UE of a session with a prediction, by way of `peer`: the predicted rules take effect if `peer` is
    /// the target. A plain session stays so unless they do: all its packets but those of another gNB go on as before, in the driver too.
    #[cold]
    pub(super) fn may_have_moved(&mut self, now: Instant, index: u32, teid: Teid, peer: IpAddr) {
        let LookupResult::Found(number) = self.predictions.look(now, SessionKey::Tunnel(teid)) else {
            return;
        };
        let is_there = |rules: &SessionRules| rules.remote_tunnels().any(|(_, p)| p == peer);
        let future = self.predictions.get(number).and_then(|p| p.future.as_ref());
        let Some(future) = future.filter(|f| f.session.index == index && is_there(&f.rules)) else { return };
        let session = self.sessions.get(index);
        let moved =
            session.is_some_and(|session| future.session == session.state.id() && !is_there(&session.rules));
        if moved && let Some(future) = self.predictions.forget(number) {
            self.begin(now, future);
        }
    }

    /// Applies a prediction.
    fn begin(&mut self, now: Instant, Future { session, rules, effects }: Future) {
        self.shared.counters.predictions_true += 1;
        self.put(now, session, rules, effects);
        self.shared.report(UserPlaneReport::Arrived { session });
    }

    /// For measurements: disables or enables the filters.
    #[cfg(any(test, feature = "samples"))]
    pub fn lookup_unfiltered(&mut self, unfiltered: bool) {
        self.predictions.unfiltered = unfiltered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DnIndex;

    /// A prediction of a session with its own tunnel.
    fn future(index: u32) -> Future {
        let mut rules = SessionRules::empty(DnIndex(0));
        rules.tunnels[0] = Teid(index + 1);
        let session = SessionId { index, generation: 1 };
        Future { session, rules: Arc::new(rules), effects: Effects::default() }
    }

    #[test]
    fn predictions_beyond_the_bound_are_refused_until_the_first_are_past() {
        let mut all = Predictions::new(1);
        let now = Instant(1_800_000_000_000_000);
        let most = PREDICTIONS_MAX as u32;
        for n in 0..most {
            assert!(all.put(now, future(n)));
        }
        assert!(!all.put(now, future(most)));
        assert!(matches!(all.look(now, SessionKey::Tunnel(Teid(1))), LookupResult::Found(0)));
        let later = now + PERIOD * FILTERS;
        assert!(all.put(later, future(most)));
        assert!(!matches!(all.look(later, SessionKey::Tunnel(Teid(1))), LookupResult::Found(_)));
        assert!(matches!(all.look(later, SessionKey::Tunnel(Teid(most + 1))), LookupResult::Found(_)));
    }

    #[test]
    fn what_is_past_is_taken_out_while_others_come() {
        let mut all = Predictions::new(1);
        let mut now = Instant(1_800_000_000_000_000);
        for n in 0..20_000 {
            now = now + PERIOD / 100;
            assert!(all.put(now, future(n)));
            assert!(all.all.len() <= 802, "{}", all.all.len());
            assert_eq!(all.by_session.len(), all.all.len());
        }
    }
}
