//! Emulated phones and gNBs, and the load generator.

pub mod gnb;
mod outbox;
mod radio;
pub mod ue;

pub use outbox::Outbox;
pub use radio::{Connect, Down, PhoneId, Up};
