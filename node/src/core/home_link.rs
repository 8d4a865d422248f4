//! The exchange between the control thread and the thread that follows PostgreSQL: registrations go one way, and orders to deregister UEs that
//! have registered at another home the other way. The control thread waits for nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_control::udm::RegistrationChange;
use whimbrel_ids::{Instant, Supi};
use whimbrel_postgres::DatabaseWaker;
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
}

/// The two ends of the exchange.
pub struct HomeLink {
    waker: DatabaseWaker,
    state: Mutex<LinkState>,
    has_orders: AtomicBool,
}

/// The changes that the thread of PostgreSQL takes.
pub(super) struct TakenChanges {
    /// All that is registered, after a start of the core or a takeover.
    pub(super) registered: Option<BTreeSet<Supi>>,
    pub(super) changed: Vec<OwnRegistration>,
}

impl HomeLink {
    pub(super) fn new(waker: DatabaseWaker) -> Arc<Self> {
        Arc::new(Self { waker, state: Mutex::default(), has_orders: AtomicBool::new(false) })
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
        let changed = changed.into_iter().map(|(supi, at)| OwnRegistration::new(supi, at)).collect();
        Some(TakenChanges { registered: state.registered.take(), changed })
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
pub(super) struct HomeSession {
    link: Arc<HomeLink>,
    has_begun: bool,
}

impl HomeSession {
    pub(super) fn new(link: Arc<HomeLink>) -> Self {
        Self { link, has_begun: false }
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

impl Drop for HomeSession {
    fn drop(&mut self) {
        *self.link.state() = LinkState::default();
        self.link.has_orders.store(false, Ordering::Release);
    }
}
