//! Reporting: Ô reports to the broker what a session has used (chapter 4.4.5, "reporting phase"), in whole
//! units, under the key of the token in whose session group the session is.
//!
//! The nonce is a hash of a secret that the operator alone has: by it the operator claims the session later,
//! and no other party can. Claims are proved in a field, so that the nonce is a digest of it.

use whimbrel_broker_common::crypto::Signature;
use whimbrel_broker_common::id::Domain;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use super::{MessageField, MessageType, causes, read_signature, signed_message, whole};
use crate::crypto::{Response, Signed, SigningKey};
use crate::token::TokenHash;

/// The unit in which usage is reported, in octets: an exact volume would let the broker recognise sessions
/// with the help of an observer of a link.
pub const USAGE_UNIT_OCTETS: u64 = 1_000_000;

/// Octets as units, a begun one counted whole.
pub fn usage_units(octets: u64) -> u32 {
    u32::try_from(octets.div_ceil(USAGE_UNIT_OCTETS)).unwrap_or(u32::MAX)
}

causes! {
    /// Why the broker takes no report.
    ReportError, "report error" {
        /// The octets are no report.
        Malformed = 1, "the usage report is malformed";
        /// It is for another broker.
        OtherBroker = 2, "the usage report is for another broker";
        /// No token has opened this session group.
        UnknownGroup = 3, "no token has opened the session group of the usage report";
        /// The signature is not under the token's key.
        TokenSignature = 4, "the usage report is not under the token's key";
        /// The broker has granted no such session in this group.
        UnknownSession = 5, "the broker has granted no such session in this group";
        /// The response is not the one that the broker expects: the user was not there.
        Response = 6, "the user's response is not the one that the broker expects";
        /// The session was reported before, otherwise.
        Reported = 7, "the session was reported before";
        /// The nonce stands in the report of another session.
        NonceUsed = 8, "the nonce stands in the report of another session";
        /// The nonce is no digest of the field in which claims are proved.
        Nonce = 9, "the nonce of the usage report is no digest of the field of claims";
    }
}

/// What Ô says of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageReport {
    /// Domain of the broker.
    pub broker: Domain,
    /// The session group.
    pub group: TokenHash,
    /// The session: H(the user's request).
    pub session: [u8; 32],
    /// The user's response, by which the operator shows that the user was there.
    pub presence: [u8; 32],
    /// Used, in units of [`USAGE_UNIT_OCTETS`], both directions together.
    pub units: u32,
    /// Of the operator's secret; a digest of the field of claims.
    pub nonce: [u8; 32],
    /// Under the token's key, over all before it.
    pub signature: Signature,
}

impl UsageReport {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 32 + 32 + 32 + 4 + 32 + 64;

    /// The report of a session, signed by the owner of the token. `nonce` is that of the operator's secret.
    pub fn signed(
        (broker, group): (Domain, TokenHash),
        (session, presence): ([u8; 32], &Response),
        units: u32,
        nonce: [u8; 32],
        key: &SigningKey,
    ) -> Self {
        let presence = *presence.octets();
        Self { broker, group, session, presence, units, nonce, signature: Signature::NONE }
            .with_signature(key)
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = MessageType::UsageReport.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.group.0);
        out.extend_from_slice(&self.session);
        out.extend_from_slice(&self.presence);
        out.extend_from_slice(&self.units.to_be_bytes());
        out.extend_from_slice(&self.nonce);
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "usage report";
        MessageType::UsageReport.read(r)?;
        let (broker, group) = (Domain::read(r)?, TokenHash(r.array(IE)?));
        let (session, presence, units) = (r.array(IE)?, r.array(IE)?, r.u32(IE)?);
        let nonce = r.array(IE)?;
        Ok(Self { broker, group, session, presence, units, nonce, signature: read_signature(r)? })
    }
}

signed_message!(UsageReport as Signed::UsageReport);

/// The answer of the broker. It is not signed: the operator keeps its report, and the channel is authentic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportAnswer {
    /// The report is taken, now or before.
    Taken,
    /// It is not.
    Refused(ReportError),
}

impl ReportAnswer {
    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::ReportAnswer.begin();
        match self {
            Self::Taken => out.extend_from_slice(&[1, 0]),
            Self::Refused(cause) => out.extend_from_slice(&[2, *cause as u8]),
        }
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::ReportAnswer.read(r)?;
            let unknown = r.error(DecodeErrorKind::Unknown, "report answer");
            match r.u8("report answer")? {
                1 if r.u8("report answer")? == 0 => Ok(Self::Taken),
                2 => Ok(Self::Refused(ReportError::read(r)?)),
                _ => Err(unknown),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begun_unit_counts_whole() {
        assert_eq!([0, 1, USAGE_UNIT_OCTETS, USAGE_UNIT_OCTETS + 1].map(usage_units), [0, 1, 1, 2]);
        assert_eq!(usage_units(u64::MAX), u32::MAX);
    }

    #[test]
    fn a_report_is_signed_under_the_token_and_read_back() {
        let key = SigningKey::new(&[7; 32]);
        let of = ("b.example".parse().unwrap(), TokenHash([1; 32]));
        let report = UsageReport::signed(of, ([2; 32], &Response::new([3; 32])), 9, [4; 32], &key);
        assert_eq!(UsageReport::parse(&report.to_octets()).as_ref(), Ok(&report));
        assert!(report.is_signed_by(&key.verifying_key()));
        let more = UsageReport { units: 10, ..report };
        assert!(!more.is_signed_by(&key.verifying_key()));
        for answer in [ReportAnswer::Taken, ReportAnswer::Refused(ReportError::Reported)] {
            assert_eq!(ReportAnswer::parse(&answer.to_octets()), Ok(answer));
        }
        assert!(ReportAnswer::parse(&[0x92, 1, 1, 1]).is_err());
    }
}
