//! Why octets are no NAS message, and which cause answers them: TS 24.501 §7.2.1, TS 24.501 §7.3.2, TS 24.501 §7.4, TS 24.501
//! §7.5.1.
//!
//! What reads without error may still contradict the state, itself or another element: causes #95, #98, #100 and #101
//! (§7.4, §7.7.2, §7.8), and the procedure transaction identity (§7.3.1), are for the procedures to judge.

use core::fmt;

use whimbrel_ids::DecodeError;

use crate::ie::{MmCause, SmCause};

/// What is wrong with a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NasErrorKind {
    /// It ends before its message type (§7.2.1): ignored.
    TooShort,
    /// Its extended protocol discriminator is neither 5GMM nor 5GSM, or not the one asked for: ignored.
    ProtocolDiscriminator(u8),
    /// It is security protected, and is to be read through [`crate::security::SecurityProtected`] first.
    SecurityProtected(u8),
    /// Its PDU session identity is reserved (§7.3.2): ignored.
    PduSessionIdentity(u8),
    /// Its message type is not defined or not implemented (§7.4): cause #97.
    MessageType(u8),
    /// A mandatory element is missing or malformed (§7.5.1): cause #96.
    Mandatory(DecodeError),
    /// An unknown element that demands comprehension, by its identifier (§7.5.1): cause #96.
    ComprehensionRequired(u8),
}

impl From<DecodeError> for NasErrorKind {
    fn from(e: DecodeError) -> Self {
        Self::Mandatory(e)
    }
}

/// A message that could not be read: why, and what of its header could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NasError {
    /// What is wrong.
    pub kind: NasErrorKind,
    /// The message type octet, if it was reached: some 5GSM messages are answered by a message of their own.
    pub message_type: Option<u8>,
    /// PDU session identity and procedure transaction identity octets of a 5GSM message, for the answer.
    pub sm_header: Option<(u8, u8)>,
}

impl NasError {
    /// An error found before the header was complete.
    pub const fn new(kind: NasErrorKind) -> Self {
        Self { kind, message_type: None, sm_header: None }
    }

    /// The cause for 5GMM STATUS; `None` where the clause has the message ignored.
    pub const fn mm_cause(&self) -> Option<MmCause> {
        match self.kind {
            NasErrorKind::TooShort
            | NasErrorKind::ProtocolDiscriminator(_)
            | NasErrorKind::SecurityProtected(_)
            | NasErrorKind::PduSessionIdentity(_) => None,
            NasErrorKind::MessageType(_) => Some(MmCause::MessageTypeNonExistent),
            NasErrorKind::Mandatory(_) | NasErrorKind::ComprehensionRequired(_) => {
                Some(MmCause::InvalidMandatoryInformation)
            }
        }
    }

    /// The cause for 5GSM STATUS, or for the reject that answers the request (§7.5.1); `None` where the clause has
    /// the message ignored.
    pub const fn sm_cause(&self) -> Option<SmCause> {
        match self.kind {
            NasErrorKind::TooShort
            | NasErrorKind::ProtocolDiscriminator(_)
            | NasErrorKind::SecurityProtected(_)
            | NasErrorKind::PduSessionIdentity(_) => None,
            NasErrorKind::MessageType(_) => Some(SmCause::MessageTypeNonExistent),
            NasErrorKind::Mandatory(_) | NasErrorKind::ComprehensionRequired(_) => {
                Some(SmCause::InvalidMandatoryInformation)
            }
        }
    }
}

impl fmt::Display for NasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            NasErrorKind::TooShort => f.write_str("the NAS message ends before its message type"),
            NasErrorKind::ProtocolDiscriminator(o) => {
                write!(f, "the extended protocol discriminator {o:#04x} is not the expected one")
            }
            NasErrorKind::SecurityProtected(o) => {
                write!(f, "the message is security protected (security header type {o})")
            }
            NasErrorKind::PduSessionIdentity(o) => write!(f, "the PDU session identity {o} is reserved"),
            NasErrorKind::MessageType(o) => write!(f, "the message type {o:#04x} is not implemented"),
            NasErrorKind::Mandatory(e) => e.fmt(f),
            NasErrorKind::ComprehensionRequired(o) => {
                write!(f, "the unknown information element {o:#04x} demands comprehension")
            }
        }
    }
}

impl core::error::Error for NasError {}
