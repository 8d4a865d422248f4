//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

mod common;

mod allocations;
#[path = "applications/main.rs"]
mod applications;
mod associations;
mod buffering;
mod copies;
mod cp_function;
mod ethernet;
#[path = "firewall/main.rs"]
mod firewall;
mod fragments;
mod framed_routes;
mod guarantees;
mod handover;
mod isolation;
#[path = "kept/main.rs"]
mod kept;
mod leaks;
mod many_rules;
mod n3;
mod n4_inputs;
mod n4_recordings;
mod packets;
mod pfcp;
mod pools;
mod predicted;
mod qos;
mod random_inputs;
#[path = "reference/main.rs"]
mod reference;
#[path = "shards/main.rs"]
mod shards;
mod slices;
mod smf_f_teids;
mod smf_set;
mod state;
mod strays;
mod survey;
mod unstructured;
mod usage;
