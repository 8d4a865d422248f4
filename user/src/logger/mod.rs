//! The packet logger (L25GC §3.5.1): it stands in front of a UPF and its replica on another host, and keeps each packet until the UPF that serves has done
//! with it.
//!
//! Packets of both directions get one counter. A packet that the UPF sends on comes back by the logger under its counter, so the logger knows what has left:
//! after a takeover it gives the replica all that has not, in the order of the counter, and sends nothing twice. [`DataLog`] is the data of both
//! directions, [`ControlLog`] is N4. Each has bounds of its own, so that a flood of data costs no control message.
//!
//! [`datagram`] is the form of packets between the logger and a UPF, [`LoggerFrame`] that of all else.

mod control;
mod data;
pub mod datagram;
mod frame;

pub use control::{ControlLog, ReleasedMessage, SmfMessage};
pub use data::{DataLog, DataLogBounds, DataLogCounters, PacketDirection};
pub use frame::{LoggerFrame, LoggerHello, StateRecord};
