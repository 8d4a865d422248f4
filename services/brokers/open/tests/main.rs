//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

#[path = "sap/main.rs"]
mod sap;
#[path = "usage/main.rs"]
mod usage;
