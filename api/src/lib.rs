//! The HTTP API: the state of the program as JSON, orders, and the subscribers.
//!
//! axum finds the route of a request, over hyper's HTTP/1.1 on a current-thread runtime, on a thread of its own. The table of routes
//! (routes.rs) says what each route needs; every refusal is one problem document (RFC 9457). Bodies, headers, connections and times are
//! bounded. It serves without the core, so that it can show what is missing.
//!
//! The OpenAPI document is made of the table of routes and of the handlers' types: the type that reads an input (input.rs) also describes it,
//! and the type of an answer is in the handler's signature (openapi.rs).

#![allow(missing_docs, reason = "items are public for the programs of this workspace alone")]

mod alarms;
mod assets;
pub mod audit;
mod audit_entries;
mod auth;
mod capture;
mod charging;
mod handlers;
mod input;
mod live;
mod log_level;
mod network;
mod openapi;
mod operations;
mod patience;
pub mod pcapng;
mod problem;
mod ran;
mod reference;
mod routes;
mod server;
mod settings;
mod signalling;
mod subscribers;
mod tls;
mod uri;
mod why;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use whimbrel_charging::ChargingFunction;
use whimbrel_store::Store;

use self::auth::Auth;

use crate::audit::repeated::RepeatedRequests;
use crate::audit::{self as audit_log, AuditedAccess};
use whimbrel_node::clock;
use whimbrel_node::config::{self, Config};
use whimbrel_node::observation::Console;

pub use handlers::Throughput;
pub use handlers::{CoreStatus, ProcedureStatus};
pub use reference::page as reference;
pub use server::{Server, start, start_on};
pub use why::WhyAnswer;

/// What the handlers work on.
pub struct HandlerContext {
    pub console: Arc<Console>,
    pub config: Arc<Config>,
    /// Whether this process has UEs, gNBs and subscribers to show; a CPF shows its own state only.
    is_core: bool,
    /// The file that the configuration came from; none: the defaults.
    pub file: Option<PathBuf>,
    /// The subscribers, opened at first use.
    store: Mutex<Option<Store>>,
    /// The same file, for the pseudonyms in the audit log: a long import must not delay them.
    names: Mutex<Option<Store>>,
    /// The accounts of this core's charging function, opened at first use.
    accounts: Mutex<Option<ChargingFunction>>,
    /// One import at a time: its body is large.
    imports: Semaphore,
    /// Event streams at once.
    streams: Arc<Semaphore>,
    /// Event streams of each caller.
    streams_of: Mutex<BTreeMap<String, usize>>,
    /// Users, tokens and sessions.
    auth: Auth,
    /// One change of the configuration file at a time.
    settings: Mutex<()>,
    /// Refusals of this minute that anybody can cause.
    refusals: Mutex<RepeatedRequests>,
    /// Checks of a configuration in this minute.
    checks: Mutex<RepeatedRequests>,
    /// Whether it speaks TLS.
    tls: bool,
}

impl Drop for HandlerContext {
    fn drop(&mut self) {
        self.record_repeated(true);
    }
}

impl HandlerContext {
    /// Over a console, for a configuration.
    pub fn new(console: Arc<Console>, config: Arc<Config>, file: Option<PathBuf>) -> Arc<Self> {
        let tls = !config.api.address.ip().is_loopback();
        Arc::new(Self::over(console, config, file, tls, true))
    }

    /// Over the console of a CPF, which has no configuration, no users, and nothing of a UE to show.
    pub fn of_cpf(console: Arc<Console>, address: SocketAddr) -> Arc<Self> {
        let mut config = config::default();
        config.api.address = address;
        Arc::new(Self::over(console, Arc::new(config), None, false, false))
    }

    fn over(
        console: Arc<Console>,
        config: Arc<Config>,
        file: Option<PathBuf>,
        tls: bool,
        is_core: bool,
    ) -> Self {
        Self {
            console,
            is_core,
            file,
            store: Mutex::default(),
            names: Mutex::default(),
            accounts: Mutex::default(),
            imports: Semaphore::new(1),
            streams: Arc::new(Semaphore::new(live::STREAMS_MAX)),
            streams_of: Mutex::default(),
            auth: Auth::new(&config.store, &config.api, tls),
            settings: Mutex::default(),
            refusals: Mutex::default(),
            checks: Mutex::default(),
            tls,
            config,
        }
    }

    /// Writes into the audit log how often requests came again: those whose minute is over, or all.
    fn record_repeated(&self, all: bool) {
        for repeated in [&self.refusals, &self.checks] {
            let ended = {
                let mut repeated = repeated.lock().unwrap_or_else(PoisonError::into_inner);
                if all || repeated.is_over(clock::now()) { repeated.end() } else { Vec::new() }
            };
            for (kind, times) in ended {
                let access = AuditedAccess {
                    caller: &kind.source,
                    user: kind.user.as_deref(),
                    request: &kind.request,
                    subscriber: None,
                    outcome: &kind.outcome,
                };
                audit_log::record_again(&self.config.store.path, &self.config.audit, &access, times);
            }
        }
    }

    /// Whether the API speaks TLS: it does where it listens beyond loopback.
    fn is_tls(&self) -> bool {
        self.tls
    }
}
