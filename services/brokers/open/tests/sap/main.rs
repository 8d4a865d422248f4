//! The protocol as a whole: attaches, bad input, messages, and the attacker model that is tied to the machines.

mod attach;
mod home;
mod kept;
mod messages;
mod model;
mod real;
mod schedule;
mod vectors;
mod world;
