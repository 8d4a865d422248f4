//! What the control thread and everybody else share.
//!
//! The control thread pushes what happens ([`Events`], [`Refusals`], [`Metrics`], [`Components`]); the API reads it.
//! What only the control thread knows (the phones, the gNBs) is asked of it by [`Command`]s: a bounded queue, with
//! an eventfd in the control thread's poll set that wakes it. Nobody waits for anybody else's lock longer than a copy
//! of what is shown takes.

mod commands;
mod components;
mod events;
mod metrics;
mod operations;
mod refusals;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_ids::Instant;

pub(crate) use commands::{AskError, Command, Commands, UesRequest};
pub(crate) use components::{Component, Components, Condition};
pub(crate) use events::{EventRecord, Events, Level};
pub(crate) use metrics::{Counter, Gauge, Metrics, ProcedureName, Sample};
#[cfg(test)]
pub(crate) use operations::Finding;
pub(crate) use operations::{OperationState, OperationView, Operations, Target};
pub(crate) use refusals::{GNB_IDENTITY, RefusalRecord, Refusals};
pub(crate) use view::{
    FlowView, GnbView, OverloadView, RatesView, SessionView, TimerView, TunnelView, UePage, UeView,
    WarningAtGnb, WarningView,
};

/// The meeting place of the control thread, the API and the commands.
///
/// What is behind a lock is reached in a closure, so that no statement holds one lock twice.
pub(crate) struct Console {
    /// When the program started.
    pub(crate) started: Instant,
    /// Questions to the control thread.
    pub(crate) commands: Commands,
    /// Counters and latencies.
    pub(crate) metrics: Metrics,
    /// What the operator ordered, until its outcome is known.
    pub(crate) operations: Operations,
    components: Mutex<Components>,
    events: Mutex<Events>,
    refusals: Mutex<Refusals>,
}

impl Console {
    /// An empty console. Errors: the host gives no eventfd.
    pub(crate) fn new(now: Instant) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            started: now,
            commands: Commands::new()?,
            metrics: Metrics::new(now),
            operations: Operations::default(),
            components: Mutex::default(),
            events: Mutex::default(),
            refusals: Mutex::default(),
        }))
    }

    /// The condition of each part of the program.
    pub(crate) fn components<R>(&self, with: impl FnOnce(&mut Components) -> R) -> R {
        with(&mut locked(&self.components))
    }

    /// What happened lately.
    pub(crate) fn events<R>(&self, with: impl FnOnce(&mut Events) -> R) -> R {
        with(&mut locked(&self.events))
    }

    /// Who was refused lately, and why.
    pub(crate) fn refusals<R>(&self, with: impl FnOnce(&mut Refusals) -> R) -> R {
        with(&mut locked(&self.refusals))
    }
}

/// What these locks guard is whole after every single step, so a panic elsewhere does not spoil it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
