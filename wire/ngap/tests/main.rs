//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

mod first_light;
mod hostile;
mod refusal;
mod vectors;
