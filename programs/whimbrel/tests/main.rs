//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

mod moved;
mod replay_sandbox;
