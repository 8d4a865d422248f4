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

use whimbrel_ids::{DecodeError, Reader};

use crate::codec::read_type;
pub(crate) use crate::codec::{emit_part, read_flag, read_part, read_signature, whole};

/// The version of the protocol, the second octet of each message.
pub const VERSION: u8 = 1;

/// The first octet of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SapMessageType {
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

impl SapMessageType {
    /// Whether octets are of this type, by the first of them.
    pub(crate) fn begins(self, octets: &[u8]) -> bool {
        octets.first() == Some(&(self as u8))
    }

    pub(crate) fn begin(self) -> Vec<u8> {
        vec![self as u8, VERSION]
    }

    pub(crate) fn read(self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        read_type(r, self as u8, VERSION)
    }
}
