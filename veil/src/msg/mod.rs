//! The messages, version 1, in octets. `MESSAGES.md` of the crate has a table for each.
//!
//! Every value has one encoding and every encoding one value: what is parsed is written again in the same octets, so that hashes
//! and signatures can be taken over either.

mod answer;
mod grant;
mod group;
mod issue;
mod report;
mod request;
mod settlement;

pub use answer::{
    Answer, AnswerBody, Challenge, Failure, FailureCause, OperatorOrders, RefusalCause, Rejection,
    SignedRefusal, UserAnswer,
};
pub use grant::{Grant, SignedGrant};
pub use group::{GroupAnswer, GroupError, GroupRequest};
pub(crate) use issue::issued;
pub use issue::{IssueError, TokenAnswer, TokenRequest};
pub use report::{ReportAnswer, ReportError, USAGE_UNIT_OCTETS, UsageReport, usage_units};
pub use request::{AnswerKey, OperatorRequest, UserRequest, UserVector};
pub use settlement::{
    ClaimAnswer, ClaimRefusal, ClaimRequest, Payment, PeriodHead, PeriodWitness, TablePart, TableRequest,
    TableRow, is_field_digest,
};

use whimbrel_ids::{DecodeError, DecodeErrorKind, PlmnId, Reader};
use whimbrel_open::crypto::{Share, Signature};
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
}

impl MessageType {
    pub(crate) fn begin(self) -> Vec<u8> {
        vec![self as u8, VERSION]
    }

    pub(crate) fn read(self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        if r.peek() != Some(self as u8) {
            return Err(r.error(DecodeErrorKind::Unknown, "message type"));
        }
        r.u8("message type")?;
        let unknown = r.error(DecodeErrorKind::Unknown, "version");
        if r.u8("version")? == VERSION { Ok(()) } else { Err(unknown) }
    }
}

/// Parses a whole message: nothing may be left over.
pub(crate) fn whole<T>(
    octets: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut r = Reader::new(octets);
    let value = read(&mut r)?;
    if r.is_empty() { Ok(value) } else { Err(r.error(DecodeErrorKind::TrailingOctets, "message")) }
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

/// Declares an enumeration of one octet, and what operators read of each.
macro_rules! causes {
    ($(#[$doc:meta])* $name:ident, $ie:literal { $($(#[$d:meta])* $variant:ident = $v:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$d])* $variant = $v,)+ }

        impl $name {
            /// All, in the order of their code points.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub(crate) fn read(r: &mut whimbrel_ids::Reader<'_>) -> Result<Self, whimbrel_ids::DecodeError> {
                let unknown = r.error(whimbrel_ids::DecodeErrorKind::Unknown, $ie);
                match r.u8($ie)? {
                    $($v => Ok(Self::$variant),)+
                    _ => Err(unknown),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
}
pub(crate) use causes;
