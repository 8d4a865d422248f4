//! The tests of this crate, in one program: each program would be linked with all that the crate is made of.

mod sim;

mod allocation;
mod bounds;
mod chaos;
mod exchange;
mod hold;
mod hostile;
mod paths;
mod state_table;
mod successor;
mod unexpected;
