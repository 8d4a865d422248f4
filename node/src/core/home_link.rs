//! The exchange between the control thread and the thread that follows PostgreSQL: registrations go one way, and orders to deregister UEs that
//! have registered at another home the other way. The control thread waits for nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_control::udm::RegistrationChange;
use whimbrel_ids::{Instant, SNssai, Supi};
use whimbrel_postgres::{DatabaseWaker, SliceUse};
use whimbrel_security::SqnSlot;
use whimbrel_store::OwnRegistration;

/// The state that both threads change.
#[derive(Default)]
struct LinkState {
    /// The control thread serves UEs: it is not that of a CTA replica.
    is_primary: bool,
    /// The subscribers that were registered when it began, until they are taken.
    registered: Option<BTreeSet<Supi>>,
    /// The last state of each subscriber that has changed since they were taken: no more than there are subscribers.
    changed: BTreeMap<Supi, Option<Instant>>,
    /// Subscribers that have registered at another home.
    orders: Vec<Supi>,
    /// Some orders are not carried out yet. Changes stay until then, so that a registration after an order is seen before it.
    is_ordered: bool,
    /// The UEs of each slice that has a limit.
    slices: BTreeMap<SNssai, SliceUse>,
    /// Shares of the limits, until the control thread has put them in force and has reported that.
    shares: Option<BTreeMap<SNssai, u32>>,
    are_shares_ordered: bool,
}

/// The two ends of the exchange.
pub struct HomeLink {
    waker: DatabaseWaker,
    state: Mutex<LinkState>,
    has_orders: AtomicBool,
    /// Number of the slot of this AMF's SQNs, or [`NO_SLOT`].
    sqn_slot: AtomicU8,
}

/// The number of no slot.
const NO_SLOT: u8 = u8::MAX;

/// The changes that the thread of PostgreSQL takes.
pub(super) struct TakenChanges {
    /// All that is registered, after a start of the core or a takeover.
    pub(super) registered: Option<BTreeSet<Supi>>,
    pub(super) changed: BTreeMap<Supi, Option<Instant>>,
}

impl TakenChanges {
    /// The changes, as the file keeps them.
    pub(super) fn rows(&self) -> Vec<OwnRegistration> {
        self.changed.iter().map(|(supi, at)| OwnRegistration::new(*supi, *at)).collect()
    }
}

impl HomeLink {
    pub(super) fn new(waker: DatabaseWaker) -> Arc<Self> {
        let (state, has_orders, sqn_slot) =
            (Mutex::default(), AtomicBool::new(false), AtomicU8::new(NO_SLOT));
        Arc::new(Self { waker, state, has_orders, sqn_slot })
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has changed. `None`: this process serves no UEs, or orders are not carried out yet.
    pub(super) fn take(&self) -> Option<TakenChanges> {
        let mut state = self.state();
        if !state.is_primary || state.is_ordered {
            return None;
        }
        let changed = std::mem::take(&mut state.changed);
        Some(TakenChanges { registered: state.registered.take(), changed })
    }

    /// Gives back what could not be kept. What has changed since is later.
    pub(super) fn put_back(&self, taken: TakenChanges) {
        let mut state = self.state();
        if state.is_primary {
            state.registered = state.registered.take().or(taken.registered);
            taken.changed.into_iter().for_each(|(supi, at)| {
                state.changed.entry(supi).or_insert(at);
            });
        }
    }

    /// The UEs of each slice that has a limit. `None`: this process serves no UEs, or the last shares are not in force yet.
    pub(super) fn slices(&self) -> Option<BTreeMap<SNssai, SliceUse>> {
        let state = self.state();
        (state.is_primary && !state.are_shares_ordered).then(|| state.slices.clone())
    }

    /// True if this process serves UEs.
    pub(super) fn is_primary(&self) -> bool {
        self.state().is_primary
    }

    /// Gives the control thread its shares. It has to be woken.
    pub(super) fn set_shares(&self, shares: BTreeMap<SNssai, u32>) {
        let mut state = self.state();
        (state.shares, state.are_shares_ordered) = (Some(shares), true);
    }

    /// Gives the control thread the slot of its SQNs.
    pub(super) fn set_sqn_slot(&self, slot: Option<SqnSlot>) {
        self.sqn_slot.store(slot.map_or(NO_SLOT, SqnSlot::number), Ordering::Relaxed);
    }

    /// Orders that UEs be deregistered, unless they have registered here again. The control thread has to be woken.
    pub(super) fn order(&self, supis: Vec<Supi>) {
        let mut state = self.state();
        state.is_ordered = true;
        state.orders = supis;
        self.has_orders.store(true, Ordering::Release);
    }
}

/// The control thread's end, while it serves UEs.
pub(super) struct HomeExchange {
    link: Arc<HomeLink>,
    has_begun: bool,
    sqn_slot: u8,
    /// The shares in force, and what was reported last.
    shares: BTreeMap<SNssai, u32>,
    reported: BTreeMap<SNssai, SliceUse>,
}

impl HomeExchange {
    /// `shares`: those of the file.
    pub(super) fn new(link: Arc<HomeLink>, shares: BTreeMap<SNssai, u32>) -> Self {
        Self { link, has_begun: false, sqn_slot: NO_SLOT, shares, reported: BTreeMap::new() }
    }

    pub(super) fn link(&self) -> Arc<HomeLink> {
        self.link.clone()
    }

    /// True until [`Self::begin`] was called.
    pub(super) fn is_to_begin(&self) -> bool {
        !self.has_begun
    }

    /// From now on this process is the one that serves the UEs of its AMF, and these are registered.
    pub(super) fn begin(&mut self, registered: BTreeSet<Supi>) {
        self.has_begun = true;
        let mut state = self.link.state();
        (state.is_primary, state.registered) = (true, Some(registered));
        drop(state);
        self.link.waker.wake();
    }

    /// The slot of SQNs, if it is another one than before.
    pub(super) fn new_sqn_slot(&mut self) -> Option<SqnSlot> {
        let former = std::mem::replace(&mut self.sqn_slot, self.link.sqn_slot.load(Ordering::Relaxed));
        SqnSlot::new(self.sqn_slot).filter(|_| self.sqn_slot != former)
    }

    /// The shares in force.
    pub(super) fn shares(&self) -> &BTreeMap<SNssai, u32> {
        &self.shares
    }

    /// Reports the UEs of each slice with a limit. Returns the shares that are to be put in force, if others are in force now: never fewer than the UEs
    /// that are there.
    pub(super) fn exchange_slices(
        &mut self,
        limits: &BTreeMap<SNssai, u32>,
        used: impl Iterator<Item = (SNssai, u32)>,
    ) -> Option<&BTreeMap<SNssai, u32>> {
        if limits.is_empty() && self.reported.is_empty() {
            return None;
        }
        let used: BTreeMap<SNssai, u32> = used.collect();
        let used = |slice: &SNssai| used.get(slice).copied().unwrap_or(0);
        let mut state = self.link.state();
        let shares = state.shares.take();
        let is_new = shares.is_some();
        if let Some(shares) = shares {
            self.shares = shares.into_iter().map(|(slice, share)| (slice, share.max(used(&slice)))).collect();
        }
        let share = |slice: &SNssai| self.shares.get(slice).copied().unwrap_or(0);
        let uses = limits
            .iter()
            .map(|(slice, &most)| (*slice, SliceUse { most, used: used(slice), share: share(slice) }));
        let uses: BTreeMap<_, _> = uses.collect();
        if is_new || uses != self.reported {
            (state.slices, state.are_shares_ordered) = (uses.clone(), state.are_shares_ordered && !is_new);
            self.reported = uses;
            drop(state);
            self.link.waker.wake();
        }
        is_new.then_some(&self.shares)
    }

    /// True if orders wait.
    pub(super) fn has_orders(&self) -> bool {
        self.link.has_orders.load(Ordering::Acquire)
    }

    /// Passes changes of registrations on.
    pub(super) fn changed(&self, now: Instant, changed: BTreeMap<Supi, RegistrationChange>) {
        let at = |change| (change == RegistrationChange::Registered).then_some(now);
        self.link.state().changed.extend(changed.into_iter().map(|(supi, change)| (supi, at(change))));
        self.link.waker.wake();
    }

    /// The orders that wait, without those for subscribers that have registered here since.
    pub(super) fn orders(&self) -> Vec<Supi> {
        let mut state = self.link.state();
        self.link.has_orders.store(false, Ordering::Release);
        let orders = std::mem::take(&mut state.orders);
        orders.into_iter().filter(|supi| !matches!(state.changed.get(supi), Some(Some(_)))).collect()
    }

    /// The orders are carried out. `unknown`: subscribers of orders that were not registered here.
    pub(super) fn carried_out(&self, unknown: Vec<Supi>) {
        let mut state = self.link.state();
        state.changed.extend(unknown.into_iter().map(|supi| (supi, None)));
        state.is_ordered = false;
        drop(state);
        self.link.waker.wake();
    }
}

impl Drop for HomeExchange {
    fn drop(&mut self) {
        *self.link.state() = LinkState::default();
        self.link.has_orders.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_postgres::{PostgresDatabase, PostgresSettings};

    use super::*;

    fn link() -> Arc<HomeLink> {
        let url = "postgresql://whimbrel@127.0.0.1/whimbrel".into();
        let settings = PostgresSettings { url, password_file: None, ca_file: None };
        HomeLink::new(PostgresDatabase::new(settings).unwrap().waker())
    }

    fn supi(n: u64) -> Supi {
        format!("imsi-99970{n:010}").parse().unwrap()
    }

    #[test]
    fn a_registration_after_an_order_is_in_force_and_written_after_it() {
        let link = link();
        assert!(link.take().is_none(), "a CTA replica writes nothing");
        let mut control = HomeExchange::new(link.clone(), BTreeMap::new());
        control.begin(BTreeSet::from([supi(1), supi(2)]));
        assert_eq!(link.take().unwrap().registered.unwrap().len(), 2);
        link.order(vec![supi(1), supi(2)]);
        control.changed(Instant(7), BTreeMap::from([(supi(1), RegistrationChange::Registered)]));
        assert!(link.take().is_none(), "the order is not carried out yet");
        assert!(control.has_orders());
        assert_eq!(control.orders(), [supi(2)]);
        control.carried_out(vec![supi(2)]);
        assert!(!control.has_orders());
        let taken = link.take().unwrap();
        assert!(taken.registered.is_none());
        let expected = [(1, Some(Instant(7))), (2, None)].map(|(n, at)| OwnRegistration::new(supi(n), at));
        assert_eq!(taken.rows(), expected);
        control.changed(Instant(9), BTreeMap::from([(supi(2), RegistrationChange::Registered)]));
        link.put_back(taken);
        let expected =
            [(1, Instant(7)), (2, Instant(9))].map(|(n, at)| OwnRegistration::new(supi(n), Some(at)));
        assert_eq!(link.take().unwrap().rows(), expected);
        drop(control);
        assert!(link.take().is_none());
    }

    #[test]
    fn a_share_that_shrinks_is_in_force_before_it_is_given_back_and_no_ue_leaves() {
        let link = link();
        let slice = SNssai::sst(1);
        let limits = BTreeMap::from([(slice, 10)]);
        let mut control = HomeExchange::new(link.clone(), BTreeMap::from([(slice, 6)]));
        control.begin(BTreeSet::new());
        assert!(control.exchange_slices(&limits, [(slice, 4)].into_iter()).is_none());
        let of = |used, share| BTreeMap::from([(slice, SliceUse { most: 10, used, share })]);
        assert_eq!(link.slices(), Some(of(4, 6)));
        link.set_shares(BTreeMap::from([(slice, 4)]));
        assert_eq!(link.slices(), None, "it is not in force yet");
        let in_force = control.exchange_slices(&limits, [(slice, 5)].into_iter()).cloned();
        assert_eq!(in_force, Some(BTreeMap::from([(slice, 5)])));
        assert_eq!(link.slices(), Some(of(5, 5)));
    }
}
