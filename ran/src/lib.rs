//! Emulated phones and gNBs, and the load generator.

pub mod cells;
pub mod edge;
pub mod fleet;
pub mod gnb;
mod outbox;
pub mod player;
mod radio;
pub mod report;
pub mod scenario;
pub mod ue;
pub mod user_plane;

pub use outbox::Outbox;
pub use radio::{Connect, Down, PhoneId, Up};
