//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

mod common;

mod allocation;
mod erroneous;
mod judge;
mod properties;
mod vectors;
