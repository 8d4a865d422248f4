//! Identifiers of TS 23.003 and the plain units that every part shares.
//!
//! No message is defined here. Each type has one meaning, prints as the standard writes it, and cannot hold a value
//! that its clause forbids. What names a subscriber ([`Supi`], [`Pei`]) redacts itself in `Debug`, so that a log line
//! or a panic does not give a UE away; `Display` prints it whole, where a person asked for it.

#![forbid(unsafe_code)]

mod error;
mod network;
#[cfg(feature = "serde")]
pub mod serde_as;
mod session;
mod subscriber;
mod time;

pub use error::{DecodeError, DecodeErrorKind, Reader};
pub use network::{
    AmfId, AmfUeNgapId, GlobalGnbId, Guami, Guti, NrCellId, ParseIdError, PlmnId, RanUeNgapId, SNssai, STmsi,
    Tac, Tai, Tmsi,
};
pub use session::{Dnn, FiveQi, PduSessionId, Qfi, Seid, Teid};
pub use subscriber::{Pei, Supi};
pub use time::Instant;
