//! The HTTP API: what the program knows, as JSON, and the subscribers to edit.
//!
//! hyper's HTTP/1.1 on a current-thread runtime, on a thread of its own, with a table of routes of ours: a dozen
//! routes need no framework, and every refusal is one problem document (RFC 9457). Bodies, headers, connections and
//! times are bounded. It serves without the core, so that it can show what is missing.

mod handlers;
mod problem;
mod routes;
mod server;
mod who;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::config::Config;
use crate::console::Console;

pub(crate) use handlers::{ProcedureStatus, Status, Throughput, WhyAnswer};
pub(crate) use server::{Server, start};
pub(crate) use who::owner_of_port;

/// What the handlers work on.
pub(crate) struct Shared {
    pub(crate) console: Arc<Console>,
    pub(crate) config: Arc<Config>,
}
