//! The core as processes: the configuration, and the sockets, clocks, threads and files around the pure machines.
//!
//! The crate has no command line and no HTTP server. `api` and the programs depend on it; it depends on
//! neither.

#![allow(missing_docs, reason = "items are public for the api and the programs of this workspace alone")]

pub mod accounts;
pub mod aftermath;
pub mod api_files;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod core;
pub mod entropy;
pub mod function;
pub mod local_socket;
pub mod local_time;
pub mod log_limiter;
pub mod logging;
pub mod memory_access;
pub mod network_function;
pub mod observation;
pub mod open;
pub mod packet_logger;
pub mod port_owner;
pub mod sbfd;
pub mod sbi;
pub mod signals;
pub mod subscribers;
pub mod ue_memory;
pub mod unit;
pub mod veil;
