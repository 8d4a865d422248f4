//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

mod common;

mod backup;
mod database;
mod failures;
mod forms;
mod import;
mod killed;
mod rotation;
mod store;
