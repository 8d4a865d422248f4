//! The messages of SAP, version 1, in octets. `MESSAGES.md` of the crate has a table for each.
//!
//! Every value has one encoding and every encoding one value: what is parsed is written again in the same octets, so that hashes
//! and signatures can be taken over either.

mod answer;
mod certificate;
mod grant;
mod home;
mod request;
mod terms;

pub use answer::{
    AnswerBody, AnswerT, AnswerU, EpochKey, Filter, OperatorOrders, RefusalCause, Rejection, SignedRefusal,
    UserAnswer,
};
pub use certificate::{Certificate, CertificateError, Subject, Trust, Validity};
pub use grant::{Grant, SignedGrant};
pub use home::{
    Asker, Confirmation, ConfirmationQuestion, Release, Resynchronisation, SCHEME_OUTPUT_OCTETS_MAX,
    SignedChallenge, Subscriber, VectorQuestion, VectorRequest,
};
pub use request::{AnswerKey, AuthReqT, AuthReqU, TICKET_OCTETS, Ticket, UserVector};
pub use terms::{FiveQis, Price, Qos, QosOffer, Terms};

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use crate::crypto::Signature;

/// The version of the protocol, the second octet of each message.
pub const VERSION: u8 = 1;

/// The first octet of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageType {
    AuthReqU = 1,
    AuthReqT = 2,
    AnswerT = 3,
    AnswerU = 4,
    Refusal = 5,
    Grant = 6,
    Certificate = 7,
    UsageReport = 8,
    SealedReport = 9,
    UsageDelivery = 10,
    UsageAnswer = 11,
    Receipt = 12,
    Statement = 13,
    VectorRequest = 14,
    Confirmation = 15,
    Challenge = 16,
}

impl MessageType {
    /// Whether octets are of this type, by the first of them.
    pub(crate) fn begins(self, octets: &[u8]) -> bool {
        octets.first() == Some(&(self as u8))
    }

    pub(crate) fn begin(self) -> Vec<u8> {
        vec![self as u8, VERSION]
    }

    pub(crate) fn read(self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        if r.peek() != Some(self as u8) {
            return Err(r.error(DecodeErrorKind::Unknown, "SAP message type"));
        }
        r.u8("SAP message type")?;
        let unknown = r.error(DecodeErrorKind::Unknown, "SAP version");
        if r.u8("SAP version")? == VERSION { Ok(()) } else { Err(unknown) }
    }
}

/// Parses a whole message: nothing may be left over.
pub(crate) fn whole<T>(
    octets: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut r = Reader::new(octets);
    let value = read(&mut r)?;
    if r.is_empty() { Ok(value) } else { Err(r.error(DecodeErrorKind::TrailingOctets, "SAP message")) }
}

/// A part that is a message of its own, behind its length in two octets.
pub(crate) fn emit_part(part: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(part.len()).expect("every message is far shorter than 65,536 octets");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(part);
}

pub(crate) fn read_part<'a>(
    r: &mut Reader<'a>,
    max: usize,
    ie: &'static str,
) -> Result<&'a [u8], DecodeError> {
    let too_long = r.error(DecodeErrorKind::InvalidLength, ie);
    let len = usize::from(r.u16(ie)?);
    if len > max { Err(too_long) } else { r.take(len, ie) }
}

/// A flag, 0 or 1, before something that may be absent.
pub(crate) fn read_flag(r: &mut Reader<'_>, ie: &'static str) -> Result<bool, DecodeError> {
    let invalid = r.error(DecodeErrorKind::InvalidValue, ie);
    match r.u8(ie)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(invalid),
    }
}

pub(crate) fn read_signature(r: &mut Reader<'_>) -> Result<Signature, DecodeError> {
    Ok(Signature(r.array("signature")?))
}
