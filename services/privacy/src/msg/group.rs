//! Redeeming: Ô, over the anonymous channel, opens a session group with a token (chapter 4.4.5, "session group").
//!
//! Both messages are authenticated under the token's output, which the operator and the broker know and which
//! does not travel. They name no time of the operator's, whose clock would be known again.

use whimbrel_broker_common::crypto::derive;
use whimbrel_broker_common::id::Domain;
use whimbrel_ids::{DecodeError, DecodeErrorKind};

use super::{MessageField, MessageType, causes, whole};
use crate::crypto::equal;
use crate::token::{Token, TokenHash};
use crate::voprf::Output;

causes! {
    /// Why the broker opens no session group.
    GroupError, "group error" {
        /// The octets are no request.
        Malformed = 1, "the request to open a session group is malformed";
        /// It is for another broker.
        OtherBroker = 2, "the request to open a session group is for another broker";
        /// The broker has no such epoch.
        UnknownEpoch = 3, "the broker has no issuing key of the token's epoch";
        /// The epoch has not begun or is over: the token has expired.
        EpochOver = 4, "the token's epoch has not begun or is over";
        /// The broker did not issue the token, or not in this epoch, or the octets were altered.
        NotIssued = 5, "the broker did not issue the token in this epoch";
        /// The token has opened a session group before, by another request.
        DoubleSpent = 6, "the token was spent before";
    }
}

/// Ô asks to open the session group of its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRequest {
    /// Domain of the broker whose token it is.
    pub broker: Domain,
    /// The token that is spent.
    pub token: Token,
    /// Random: the same request has the same, another request of the same token is a second spending.
    pub nonce: [u8; 16],
    /// Under the token's output, over all before it.
    pub mac: [u8; 32],
}

impl GroupRequest {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + Token::OCTETS + 16 + 32;

    /// A request for a session group.
    pub fn new(broker: Domain, token: Token, nonce: [u8; 16], output: &Output) -> Self {
        let mut request = Self { broker, token, nonce, mac: [0; 32] };
        request.mac = request.mac_under(output);
        request
    }

    fn mac_under(&self, output: &Output) -> [u8; 32] {
        *derive(output.octets(), &[b"VEIL-v1 open group\0", &self.body()])
    }

    /// Whether its sender knows the token's output.
    pub fn is_of(&self, output: &Output) -> bool {
        equal(&self.mac, &self.mac_under(output))
    }

    fn body(&self) -> Vec<u8> {
        let mut out = MessageType::GroupRequest.begin();
        self.broker.emit(&mut out);
        self.token.emit(&mut out);
        out.extend_from_slice(&self.nonce);
        out
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = self.body();
        out.extend_from_slice(&self.mac);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::GroupRequest.read(r)?;
            let (broker, token) = (Domain::read(r)?, Token::read(r)?);
            Ok(Self { broker, token, nonce: r.array("nonce")?, mac: r.array("MAC")? })
        })
    }
}

/// The answer of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupAnswer {
    /// The group is open.
    Opened {
        /// The session group, by its token's hash.
        group: TokenHash,
        /// Until when UEs may attach in it, in seconds since the Unix epoch.
        until: u64,
        /// Under the token's output, over the two and the request's nonce.
        mac: [u8; 32],
    },
    /// It is not.
    Refused(GroupError),
}

impl GroupAnswer {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + 32 + 8 + 32;

    fn mac(group: &TokenHash, until: u64, nonce: &[u8; 16], output: &Output) -> [u8; 32] {
        *derive(output.octets(), &[b"VEIL-v1 group opened\0", &group.0, &until.to_be_bytes(), nonce])
    }

    /// That the group is open.
    pub fn opened(group: TokenHash, until: u64, nonce: &[u8; 16], output: &Output) -> Self {
        Self::Opened { group, until, mac: Self::mac(&group, until, nonce, output) }
    }

    /// Until when the group of this token is open; `None` if it is another's, or the broker did not say so to this request.
    pub fn is_open(&self, group: &TokenHash, nonce: &[u8; 16], output: &Output) -> Option<u64> {
        let Self::Opened { group: opened, until, mac } = self else { return None };
        (opened == group && equal(mac, &Self::mac(group, *until, nonce, output))).then_some(*until)
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::GroupAnswer.begin();
        match self {
            Self::Opened { group, until, mac } => {
                out.push(1);
                out.extend_from_slice(&group.0);
                out.extend_from_slice(&until.to_be_bytes());
                out.extend_from_slice(mac);
            }
            Self::Refused(cause) => out.extend_from_slice(&[2, *cause as u8]),
        }
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::GroupAnswer.read(r)?;
            let unknown = r.error(DecodeErrorKind::Unknown, "group answer");
            match r.u8("group answer")? {
                1 => {
                    let group = TokenHash(r.array("group")?);
                    Ok(Self::Opened { group, until: r.u64("until")?, mac: r.array("MAC")? })
                }
                2 => Ok(Self::Refused(GroupError::read(r)?)),
                _ => Err(unknown),
            }
        })
    }
}
