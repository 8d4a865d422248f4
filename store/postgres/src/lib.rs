//! Subscribers in a PostgreSQL database that several homes share: it takes all changes, and each home's SQLite file is its replica.
//!
//! The replica is brought up to date from a log of changes, whose numbers are in the order of the commits (schema.rs). It takes a full copy where
//! the log was cut, and where the database is not the one that it was: another system or timeline, or without changes that the replica has.

#![forbid(unsafe_code)]

mod database;
mod documents;
mod failure;
mod follow;
mod histories;
mod homes;
mod registrations;
mod rotation;
mod schema;
mod settings;
mod tls;

pub use database::{DatabaseWaker, PostgresDatabase};
pub use follow::{CaughtUp, CopyReason};
pub use histories::{HomeEntry, HomeName, UsageRow};
pub use homes::{EnteredHome, HomePlace, ListedHome, SliceUse};
pub use registrations::Deregistration;
pub use settings::PostgresSettings;
