//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

mod detector;
mod membership;
mod pair_model;
#[path = "replication_model/main.rs"]
mod replication_model;
mod sbfd;
