//! What the program sets on its host, and takes back.

pub(crate) mod addresses;
pub(crate) mod features;
mod forwarding;
mod link;
mod links;
mod nat;
pub(crate) mod route;
mod sysctl;
pub(crate) mod upkeep;

pub(crate) use link::{set_up, set_up_frames};
pub(crate) use nat::Nat;
pub(crate) use sysctl::Sysctls;
