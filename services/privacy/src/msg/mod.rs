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

use whimbrel_ids::{DecodeError, DecodeErrorKind, PlmnId, Reader};
pub(crate) use whimbrel_open::causes;
use whimbrel_open::codec::read_type;
pub(crate) use whimbrel_open::codec::{emit_part, read_flag, read_part, read_signature, whole};
use whimbrel_open::crypto::Share;
use whimbrel_open::id::Domain;
use whimbrel_open::msg::{EpochKey, Validity};

/// The version of the protocol, the second octet of each message.
pub const VERSION: u8 = 1;

/// The first octet of each message: above those of SAP, which travels in the same places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageType {
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

impl MessageType {
    pub(crate) fn begin(self) -> Vec<u8> {
        vec![self as u8, VERSION]
    }

    pub(crate) fn read(self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        read_type(r, self as u8, VERSION)
    }
}

pub(crate) fn emit_domain(domain: &Domain, out: &mut Vec<u8>) {
    let text = domain.as_str();
    out.push(u8::try_from(text.len()).expect("a domain has at most 220 octets"));
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn read_domain(r: &mut Reader<'_>) -> Result<Domain, DecodeError> {
    const IE: &str = "broker domain";
    let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
    let len = usize::from(r.u8(IE)?);
    let text = core::str::from_utf8(r.take(len, IE)?).map_err(|_| invalid)?;
    text.parse().map_err(|_| invalid)
}

pub(crate) fn read_validity(r: &mut Reader<'_>) -> Result<Validity, DecodeError> {
    Ok(Validity { from: r.u64("validity")?, until: r.u64("validity")? })
}

pub(crate) fn read_plmn(r: &mut Reader<'_>) -> Result<PlmnId, DecodeError> {
    let invalid = r.error(DecodeErrorKind::InvalidValue, "PLMN");
    PlmnId::from_nas_octets(r.array("PLMN")?).ok_or(invalid)
}

pub(crate) fn emit_key(key: Option<&EpochKey>, out: &mut Vec<u8>) {
    match key {
        None => out.push(0),
        Some(key) => {
            out.extend_from_slice(&[1, key.id]);
            out.extend_from_slice(&key.public.0);
        }
    }
}

pub(crate) fn read_key(r: &mut Reader<'_>) -> Result<Option<EpochKey>, DecodeError> {
    const IE: &str = "broker key";
    Ok(match read_flag(r, IE)? {
        false => None,
        true => Some(EpochKey { id: r.u8(IE)?, public: Share(r.array(IE)?) }),
    })
}
