//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

mod dependencies;
mod documents;
mod modules;
mod names;
mod tree;
mod words;
