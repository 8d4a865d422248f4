//! Why a message was not understood, with the cause for its sender.

use core::fmt;

use whimbrel_ids::{DecodeError, DecodeErrorKind};

use crate::ie::Cause;

/// Bad octets in a message body: the error, and the information element to name in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What was wrong and where.
    pub decode: DecodeError,
    /// Type of the innermost information element concerned (the Offending IE of the answer); 0 before any
    /// was met.
    pub offending_ie: u16,
}

impl Error {
    pub(crate) const fn new(kind: DecodeErrorKind, ie: &'static str, offset: usize) -> Self {
        Self { decode: DecodeError::new(kind, ie, offset), offending_ie: 0 }
    }

    pub(crate) const fn missing(ie: &'static str, ie_type: u16, offset: usize) -> Self {
        let decode = DecodeError::new(DecodeErrorKind::MissingMandatory, ie, offset);
        Self { decode, offending_ie: ie_type }
    }

    /// Names the element, unless a more deeply nested one is named already.
    pub(crate) const fn within(mut self, ie_type: u16) -> Self {
        if self.offending_ie == 0 {
            self.offending_ie = ie_type;
        }
        self
    }

    /// The cause that a response carries for it.
    ///
    /// Spec: TS 29.244 §7.6.6 (missing), §7.6.7 (length), §7.6.8 (value), table 8.2.1-1.
    pub const fn cause(&self) -> Cause {
        match self.decode.kind {
            DecodeErrorKind::MissingMandatory => Cause::MandatoryIeMissing,
            DecodeErrorKind::Truncated | DecodeErrorKind::InvalidLength | DecodeErrorKind::TrailingOctets => {
                Cause::InvalidLength
            }
            DecodeErrorKind::InvalidValue | DecodeErrorKind::Unknown => Cause::MandatoryIeIncorrect,
            DecodeErrorKind::TooMany => Cause::NoResourcesAvailable,
        }
    }
}

impl From<DecodeError> for Error {
    fn from(decode: DecodeError) -> Self {
        Self { decode, offending_ie: 0 }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (IE {})", self.decode, self.offending_ie)
    }
}

impl core::error::Error for Error {}
