//! The procedures of the emulated UE and gNB against a scripted core, without sockets.

// A test target is its own crate: what its modules share is public among them alone.
#![allow(unreachable_pub)]

mod endpoints;
mod fake_core;
mod fake_mobility;
mod handover;
mod network;
mod notices;
mod registration;
mod robustness;
mod scenario;
mod session;
mod veil;
