//! NAS of the 5G system: TS 24.501 Release 17, the messages of 5GMM and 5GSM and the envelope that protects them.
//!
//! Both directions of every message, since the core and its emulated UEs share this crate. It holds no keys, keeps
//! no state and performs no procedure.
//!
//! | part | clause | here |
//! | --- | --- | --- |
//! | 5GMM messages | §8.2 | [`mm::Message`]; all but RELAY KEY … and RELAY AUTHENTICATION … |
//! | 5GSM messages | §8.3 | [`sm::Message`]; all but SERVICE-LEVEL AUTHENTICATION … and REMOTE UE REPORT … |
//! | security protected messages | §9.1.1, §9.3, §9.8 | [`security`] |
//! | information elements | §9.11 | [`ie`]; those of CIoT, CAG, MBS, ATSSS, disaster roaming are carried unread |
//! | handling of unknown and erroneous data | §7 | [`NasError`] has the cause of the answer |
//!
//! Optional elements that are unknown or malformed read as absent, the first of repeated ones counts, and any order is
//! taken (§7.6, §7.7.1); an unknown element that demands comprehension fails the message (§7.5.1).
#![forbid(unsafe_code)]

mod codec;
mod error;
pub mod ie;
pub mod mm;
mod msg;
pub mod security;
#[cfg(feature = "serde")]
mod serde_as;
pub mod sm;

pub use codec::{HalfIe, Ie};
pub use error::{NasError, NasErrorKind};

use security::SecurityProtected;

/// Extended protocol discriminator of 5GS mobility management (TS 24.007 §11.2.3.1.1A).
pub const EPD_5GMM: u8 = 0x7e;
/// Extended protocol discriminator of 5GS session management (TS 24.007 §11.2.3.1.1A).
pub const EPD_5GSM: u8 = 0x2e;
/// Security header type of a plain 5GMM message (TS 24.501 §9.3.1).
pub(crate) const SECURITY_HEADER_PLAIN: u8 = 0;

/// What octets on N1 are, before anything else is known of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope<'a> {
    /// A plain 5GMM message, for [`mm::Message::decode`].
    PlainMm(&'a [u8]),
    /// A plain 5GSM message, for [`sm::Message::decode`].
    PlainSm(&'a [u8]),
    /// A security protected 5GMM message.
    Protected(SecurityProtected<'a>),
}

impl<'a> Envelope<'a> {
    /// Looks at the discriminator and the security header type.
    ///
    /// Errors: too short, an unknown discriminator or a reserved security header type; each has the message ignored.
    pub fn parse(octets: &'a [u8]) -> Result<Self, NasError> {
        match *octets {
            [EPD_5GMM, header, ..] if header & 0x0f == SECURITY_HEADER_PLAIN => Ok(Self::PlainMm(octets)),
            [EPD_5GMM, ..] => SecurityProtected::parse(octets).map(Self::Protected),
            [EPD_5GSM, ..] => Ok(Self::PlainSm(octets)),
            [other, ..] => Err(NasError::new(NasErrorKind::ProtocolDiscriminator(other))),
            [] => Err(NasError::new(NasErrorKind::TooShort)),
        }
    }
}
