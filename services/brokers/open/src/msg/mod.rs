//! The messages of SAP, version 1, in octets. `MESSAGES.md` of the crate has a table for each.
//!
//! Every value has one encoding and every encoding one value: what is parsed is written again in the same octets, so that hashes
//! and signatures can be taken over either.

mod answer;
mod grant;
mod home;
mod request;
mod terms;

pub use answer::{
    AnswerBody, AnswerT, AnswerU, OperatorOrders, RefusalCause, Rejection, SignedRefusal, UserAnswer,
};
pub use grant::{Grant, SignedGrant};
pub use home::{
    Asker, Confirmation, ConfirmationQuestion, Release, SignedChallenge, Subscriber, VectorQuestion,
    VectorRequest,
};
pub use request::{AnswerKey, AuthReqT, AuthReqU, TICKET_OCTETS, Ticket, UserVector};
pub use terms::{FiveQis, Price, QosOffer, Terms};

use whimbrel_broker_common::AttachProtocol;
pub use whimbrel_broker_common::certificate::{Certificate, CertificateError, Subject, Trust, Validity};
use whimbrel_broker_common::codec::MessageHead;
pub(crate) use whimbrel_broker_common::codec::{
    MessageField, emit_part, read_flag, read_part, read_signature, whole,
};
use whimbrel_broker_common::envelope::Protocol;
pub use whimbrel_broker_common::home::{Resynchronisation, SCHEME_OUTPUT_OCTETS_MAX};
use whimbrel_broker_common::message_types;
pub use whimbrel_broker_common::request::EpochKey;
pub use whimbrel_broker_common::session::{Filter, Qos};

use crate::crypto::{Exporter, SAP, Signed};
use crate::id::OperatorId;

/// The version of the protocol, the second octet of each message.
pub const VERSION: u8 = 1;

message_types! {
    /// The first octet of each message. 7 is a certificate's, of the crate `common`.
    SapMessageType, VERSION;
    AuthReqU = 1,
    AuthReqT = 2,
    AnswerT = 3,
    AnswerU = 4,
    Refusal = 5,
    Grant = 6,
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

/// The secure attachment protocol, among those that the crate `common` serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sap {}

impl AttachProtocol for Sap {
    const LABELS: Protocol = SAP;
    const REQUEST: MessageHead = SapMessageType::AuthReqU.head();
    const REQUEST_INFO: &'static [u8] = b"SAP-v1 authReqU ";
    const SEALED_HAS_LENGTH: bool = true;
    const REFUSAL: MessageHead = SapMessageType::Refusal.head();
    type Signed = Signed;
    const SIGNED_REQUEST: Signed = Signed::UserRequest;
    const SIGNED_REFUSAL: Signed = Signed::Refusal;
    type Asker = OperatorId;
    type ClearPart = Option<Ticket>;
    type Cause = RefusalCause;
    type Exporter = Exporter;
}
