//! The messages, version 1, in octets. `MESSAGES.md` of the crate has a table for each.
//!
//! Every value has one encoding and every encoding one value: what is parsed is written again in the same octets, so that hashes
//! and signatures can be taken over either.

mod answer;
mod grant;
mod group;
mod home;
mod issue;
mod order;
mod report;
mod request;
mod settlement;

pub use answer::{
    Answer, AnswerBody, Challenge, Failure, FailureCause, OperatorOrders, RefusalCause, Rejection,
    SignedRefusal, UserAnswer,
};
pub use grant::{Grant, SignedGrant};
pub use group::{GroupAnswer, GroupError, GroupRequest};
pub use home::{HomeQuestion, HomeRequest, HomeVector, Suci};
pub(crate) use issue::issued;
pub use issue::{IssueError, TokenAnswer, TokenRequest};
pub use order::{Finding, Order, OrderAnswer, OrderKind, Orders, OrdersRequest, SealedCopy};
pub use report::{ReportAnswer, ReportError, USAGE_UNIT_OCTETS, UsageReport, usage_units};
pub use request::{AnswerKey, OperatorRequest, UserRequest, UserVector};
pub use settlement::{
    ClaimAnswer, ClaimRefusal, ClaimRequest, Payment, PeriodHead, PeriodWitness, TablePart, TableRequest,
    TableRow, is_field_digest,
};

use whimbrel_broker_common::codec::MessageHead;
pub(crate) use whimbrel_broker_common::codec::{
    MessageField, emit_part, read_flag, read_part, read_signature, whole,
};
use whimbrel_broker_common::envelope::Protocol;
use whimbrel_broker_common::{AttachProtocol, message_types};
pub(crate) use whimbrel_broker_common::{causes, signed_message};

use crate::crypto::{Exporter, Signed, VEIL};
use crate::token::{TokenHash, TokenTag};

/// The version of the protocol, the second octet of each message.
pub const VERSION: u8 = 1;

message_types! {
    /// The first octet of each message: above those of SAP, which travels in the same places.
    MessageType, VERSION;
    KeyEntry = 0x81,
    TreeHead = 0x82,
    LogProof = 0x83,
    TokenRequest = 0x84,
    TokenAnswer = 0x85,
    GroupRequest = 0x86,
    GroupAnswer = 0x87,
    UserRequest = 0x88,
    OperatorRequest = 0x89,
    Answer = 0x8a,
    Grant = 0x8b,
    Challenge = 0x8c,
    Response = 0x8d,
    Failure = 0x8e,
    Refusal = 0x8f,
    Wallet = 0x90,
    UsageReport = 0x91,
    ReportAnswer = 0x92,
    Relayed = 0x93,
    RelayedAnswer = 0x94,
    LogRequest = 0x95,
    PeriodHead = 0x98,
    TableRequest = 0x99,
    TablePart = 0x9a,
    ClaimRequest = 0x9b,
    ClaimAnswer = 0x9c,
    HomeQuestion = 0xa0,
    HomeRequest = 0xa1,
    Order = 0xa2,
    OrdersRequest = 0xa3,
    Orders = 0xa4,
    OrderAnswer = 0xa5,
    Copy = 0xa6,
}

/// The veiled attach, among the protocols that the crate `common` serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Veil {}

impl AttachProtocol for Veil {
    const LABELS: Protocol = VEIL;
    const REQUEST: MessageHead = MessageType::UserRequest.head();
    const REQUEST_INFO: &'static [u8] = b"VEIL-v1 user request ";
    const SEALED_HAS_LENGTH: bool = false;
    const REFUSAL: MessageHead = MessageType::Refusal.head();
    type Signed = Signed;
    const SIGNED_REQUEST: Signed = Signed::UserRequest;
    const SIGNED_REFUSAL: Signed = Signed::Refusal;
    type Asker = TokenHash;
    type ClearPart = TokenTag;
    type Cause = RefusalCause;
    type Exporter = Exporter;
}
