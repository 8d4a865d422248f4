//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

mod hostile;
mod independent;
mod layout;
mod round_trip;
