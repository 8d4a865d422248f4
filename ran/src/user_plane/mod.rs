//! The UE's end of a PDU session: an IP stack in the process, for scenarios that need no program beside them.

mod device;
mod dns;
mod http;
pub(crate) mod router;
mod stack;
mod stream;
#[cfg(test)]
mod tests;

pub use router::RouterAdvertisement;
pub use stack::{Addresses, Stack, Task, TaskError, TaskOutcome};
pub use stream::{PacketArrivals, Stream, StreamConfig, StreamReport, StreamServer, Tracker};
