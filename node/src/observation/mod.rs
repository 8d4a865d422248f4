//! State that the control thread shares with the API.
//!
//! The control thread writes [`EventRing`], [`Histories`], [`Metrics`] and [`Components`]; the API reads them. What only the control
//! thread has (UEs, gNBs) is queried by [`ConsoleCommand`]s: a bounded queue, with an eventfd that wakes the control thread. Locks are
//! held only for the copy of what is shown.

pub mod capture;
mod cluster;
mod commands;
mod components;
mod events;
mod history;
mod metrics;
pub mod observer;
mod operations;
pub mod otlp;
mod signalling;
mod taps;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use whimbrel_control::config::Config;
use whimbrel_ids::Instant;

pub use cluster::Moment;
pub use cluster::{ClusterView, CpfView, CtaView, LogView, ReplicasView, Timeline, UpfView, VersionView};
pub use commands::{AskError, Commands, ConsoleCommand, RemovalOrder, UesRequest, UpfDrainOrder};
pub use components::{Component, Components, Condition};
pub use events::{EventRecord, EventRing, Level};
pub use history::{
    ClosedBy, Histories, HistoryEntry, HistoryEvent, Name, RefusalReason, RefusalRecord, SubjectHistory,
};
pub use metrics::{Metric, MetricSample, Metrics, NasDropReason, ProcedureName};
pub use metrics::{page as metrics_page, page_of_read_metrics as read_metrics_page};
pub use operations::Finding;
pub use operations::{OperationState, OperationView, Operations, Target};
pub use signalling::{Interface, Message, Names, Signalling};
pub use taps::{Taps, TunnelEnd};
pub use view::{
    DisconnectedView, FlowView, ForesightView, GnbView, OverloadView, RatesView, RemovalView, SessionView,
    TimerView, TunnelView, UePage, UeView, UpfDrainView, WarningAtGnb, WarningView,
};

use crate::observation::otlp::Traces;

/// Octets of signalling that are kept where the configuration says nothing else: some 80,000 messages, or 4,000 registrations.
const SIGNALLING_OCTETS: usize = 16 << 20;

/// State that the control thread, the API and the commands share.
///
/// Locked state is accessed in a closure, so that no statement takes a lock twice.
pub struct Console {
    /// When the program started.
    pub started: Instant,
    /// Queries and orders to the control thread.
    pub commands: Commands,
    /// Counters and latencies.
    pub metrics: Metrics,
    /// Captures of single UEs.
    pub taps: Taps,
    /// Orders of the operator, until their outcome is known.
    pub operations: Operations,
    components: Mutex<Components>,
    events: Mutex<EventRing>,
    histories: Mutex<Histories>,
    control: Mutex<Option<Arc<Config>>>,
    signalling: Mutex<Signalling>,
    timeline: Mutex<Timeline>,
    /// Where spans of procedures go, if they are exported.
    pub traces: OnceLock<Traces>,
}

impl Console {
    /// An empty console. Errors: the host gives no eventfd.
    pub fn new(now: Instant) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            started: now,
            commands: Commands::new()?,
            metrics: Metrics::new(now),
            taps: Taps::default(),
            operations: Operations::default(),
            components: Mutex::default(),
            events: Mutex::default(),
            histories: Mutex::default(),
            control: Mutex::default(),
            signalling: Mutex::new(Signalling::new(SIGNALLING_OCTETS)),
            timeline: Mutex::default(),
            traces: OnceLock::new(),
        }))
    }

    /// The condition of each part of the program.
    pub fn components<R>(&self, with: impl FnOnce(&mut Components) -> R) -> R {
        with(&mut locked(&self.components))
    }

    /// The recent events, under their lock.
    pub fn events<R>(&self, with: impl FnOnce(&mut EventRing) -> R) -> R {
        with(&mut locked(&self.events))
    }

    /// Recent history of UEs and gNBs.
    pub fn histories<R>(&self, with: impl FnOnce(&mut Histories) -> R) -> R {
        with(&mut locked(&self.histories))
    }

    /// Recent signalling of UEs.
    pub fn signalling<R>(&self, with: impl FnOnce(&mut Signalling) -> R) -> R {
        with(&mut locked(&self.signalling))
    }

    /// What happened to the processes that serve UEs.
    pub fn timeline<R>(&self, with: impl FnOnce(&mut Timeline) -> R) -> R {
        with(&mut locked(&self.timeline))
    }

    /// Something happened to a process that serves UEs: for the timeline, and for the events.
    pub fn moment(
        &self,
        now: Instant,
        (level, kind): (Level, &'static str),
        subject: &str,
        text: &str,
        took: Option<Duration>,
    ) {
        let took_us = took.map(|took| took.as_micros() as u64);
        self.timeline(|t| t.push(now, kind, subject, text, took_us));
        self.events(|e| e.push(now, level, "cluster", subject, text));
    }

    /// The control plane's configuration that is in force; none: this process has no control plane.
    pub fn control(&self) -> Option<Arc<Config>> {
        locked(&self.control).clone()
    }

    /// A configuration is in force.
    pub fn configured(&self, config: Arc<Config>) {
        *locked(&self.control) = Some(config);
    }
}

/// The guarded state is consistent after every statement, so a panic of another thread does not spoil it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
