//! PFCP messages (TS 29.244, release 17): octets to typed messages and back.
//!
//! Start at [`Frame::parse`], which splits a datagram, and [`Message::parse`], which reads the body; a
//! message is built as a struct of [`msg`] and [`rule`] and written by [`Message::emit`].
//!
//! | supported | not supported |
//! | --- | --- |
//! | heartbeat, PFD management, association set-up, update, release, version not supported, node report | session set
//! deletion and modification |
//! | session establishment, modification, deletion, report | |
//! | load and overload control information | |
//! | PDR, FAR, QER, URR, BAR, traffic endpoint and what they hold for IP sessions; Ethernet filters decode
//! | MAR, SRR, TSC, ATSSS, MBS, L2TP |
//!
//! Elements that are not supported are skipped (TS 29.244 §7.6.9).

#![forbid(unsafe_code)]

mod codec;
mod error;
mod header;
pub mod ie;
pub mod msg;
pub mod rule;

pub use codec::REPEATED_IES_MAX;
pub use error::Error;
pub use header::{Frame, Header, HeaderError, SEQUENCE_MAX, VERSION, message_type};
pub use msg::{Message, control_information};
