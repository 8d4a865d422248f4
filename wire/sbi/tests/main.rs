//! The tests of this crate, in one program.

mod properties;
mod recorded;
mod rules;
