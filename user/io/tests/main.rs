//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

#![allow(clippy::duplicate_mod, reason = "two tests have a UPF's other ends of `user/tests`")]

mod common;

mod capture_io;
mod fast_path;
mod harvest;
mod inherited;
#[path = "model/main.rs"]
mod model;
mod mtu;
mod n6;
mod n6_encapsulated;
mod namespace;
mod nat;
mod offload;
mod threads;
mod upkeep;
