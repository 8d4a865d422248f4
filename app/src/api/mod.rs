//! The HTTP API: the state of the program as JSON, orders, and the subscribers.
//!
//! hyper's HTTP/1.1 on a current-thread runtime, on a thread of its own, with a table of routes of ours: a dozen
//! routes need no framework, and every refusal is one problem document (RFC 9457). Bodies, headers, connections and
//! times are bounded. It serves without the core, so that it can show what is missing.

mod handlers;
mod operations;
mod port_owner;
mod problem;
mod ran;
mod routes;
mod server;
mod subscribers;
mod uri;
mod why;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use whimbrel_store::Store;

use crate::config::{self, Config};
use crate::console::Console;

#[cfg(test)]
pub(crate) use handlers::Throughput;
pub(crate) use handlers::{ProcedureStatus, Status};
pub(crate) use port_owner::cannot_listen;
#[cfg(test)]
use server::Server;
pub(crate) use server::{start, start_on};
pub(crate) use why::WhyAnswer;

/// What the handlers work on.
pub(crate) struct Shared {
    pub(crate) console: Arc<Console>,
    pub(crate) config: Arc<Config>,
    /// Whether this process has UEs, gNBs and subscribers to show; a CPF shows its own state only.
    is_core: bool,
    /// The file that the configuration came from; none: the defaults.
    pub(crate) file: Option<PathBuf>,
    /// The subscribers, opened at first use.
    store: Mutex<Option<Store>>,
    /// The same file, for the pseudonyms in the audit log: a long import must not delay them.
    names: Mutex<Option<Store>>,
    /// One import at a time: its body is large.
    imports: Semaphore,
}

impl Shared {
    /// Over a console, for a configuration.
    pub(crate) fn new(console: Arc<Console>, config: Arc<Config>, file: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            console,
            config,
            is_core: true,
            file,
            store: Mutex::default(),
            names: Mutex::default(),
            imports: Semaphore::new(1),
        })
    }

    /// Over the console of a CPF, which has no configuration.
    pub(crate) fn of_cpf(console: Arc<Console>, address: SocketAddr) -> Arc<Self> {
        let mut config = config::default();
        config.api.address = address;
        Arc::new(Self {
            console,
            config: Arc::new(config),
            is_core: false,
            file: None,
            store: Mutex::default(),
            names: Mutex::default(),
            imports: Semaphore::new(1),
        })
    }
}
