//! PostgreSQL's own server judges: the tests of the store run against a replica, too, and those below are of what only a database can do.
//! Without the server they pass, and `./x test` says so.

mod common;

#[path = "../../tests/import.rs"]
mod import;
#[path = "../../tests/store.rs"]
mod store;

mod documents;
mod failures;
mod histories;
mod homes;
mod lost;
mod places;
mod registrations;
mod rotation;
mod tls;
