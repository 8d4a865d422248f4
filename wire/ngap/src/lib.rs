//! NGAP messages (TS 38.413 Release 17), in aligned PER (X.691).
//!
//! [`Message::decode`] turns octets into a [`Message`], or into a [`Refusal`] with the standard's answer (TS 38.413 §10).
//! [`Message::encode`] appends octets. [`peek`] finds the UE of a message without decoding it. Decoders accept the form of
//! `whimbrel-fastwire` too, for associations on which both sides agreed on it: the first octet distinguishes the forms
//! ([`TransferSyntax::of`]), so that other code need not know. [`Message::encode_in`] writes either. The types of [`msg`], [`ie`] and
//! [`transfer`] have the standard's names in Rust case; an optional list is a `Vec` that is empty when the list is absent, any other
//! optional value an `Option`; `T::new` takes the mandatory fields.
//!
//! Everything is bounded: lists by the maxnoof constants of TS 38.413 §9.4.7, which are in the declarations,
//! allocations by the octets received, nesting by the types, of which none contains itself.

#![forbid(unsafe_code)]

/// SCTP payload protocol identifier of NGAP (TS 38.412 §7).
pub const PPID: u32 = 60;

#[macro_use]
pub mod fast;
#[macro_use]
mod schema;
#[cfg(any(test, feature = "samples"))]
pub use aper::sample::Source;
mod aper;
mod container;
mod early_handover;
pub mod ie;
mod message;
pub mod msg;
mod peek;
mod refusal;
#[cfg(feature = "serde")]
mod serde_as;
mod syntax;
#[cfg(feature = "samples")]
pub mod synthetic;
pub mod transfer;

pub use container::OtherChoice;
pub use early_handover::EarlyHandover;
pub use ie::*;
pub use message::{Message, ProcedureCode};
pub use msg::*;
pub use peek::{Peek, peek};
pub use refusal::{Refusal, RefusalKind};
pub use syntax::{TransferSyntax, to_per};
pub use transfer::*;

#[cfg(test)]
mod tests;
