//! Requests: the user's, which is all that the operator sees of the user (Û of chapter 4.4.2), and Ô's to the broker.

use whimbrel_broker_common::crypto::{Share, Signature};
use whimbrel_broker_common::request::{SealedRequest, SealedVector};
use whimbrel_ids::DecodeError;

use super::{MessageType, Veil, emit_part, read_part, read_signature, whole};
use crate::crypto::{Signed, SigningKey, VerifyingKey, hash};
use crate::token::TokenHash;

/// The part of a request that the user seals to its broker. It names H(token) that the user read from the broadcast.
pub type UserVector = SealedVector<Veil>;

/// The user's request. The operator reads the broker's domain in it, and which of its own tokens the user heard.
pub type UserRequest = SealedRequest<Veil>;

/// By what the broker knows a request that it answered before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerKey(pub [u8; 32]);

impl AnswerKey {
    /// Of H(the user's request), the session group and Ô's share.
    pub fn new(request: &[u8; 32], group: &TokenHash, share: &Share) -> Self {
        Self(hash(&[b"VEIL-v1 answer key\0", request, &group.0, &share.0]))
    }
}

/// Ô passes the user's request on, in its session group. It has neither terms nor time of the operator's,
/// which would tell operators apart: the terms are those of the broker's contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorRequest {
    /// The user's request.
    pub request: UserRequest,
    /// The session group.
    pub group: TokenHash,
    /// The operator's ephemeral share for this attach.
    pub share: Share,
    /// Under the token's key.
    pub signature: Signature,
}

impl OperatorRequest {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 2 + UserRequest::OCTETS_MAX + 32 + 32 + 64;

    /// The request, signed by the owner of the token.
    pub fn signed(request: UserRequest, group: TokenHash, share: Share, key: &SigningKey) -> Self {
        let mut signed = Self { request, group, share, signature: Signature::NONE };
        signed.signature = key.sign(Signed::OperatorRequest, &signed.signed_octets());
        signed
    }

    /// Whether the owner of the token's key signed it.
    pub fn is_signed_by(&self, key: &VerifyingKey) -> bool {
        key.verifies(Signed::OperatorRequest, &self.signed_octets(), &self.signature)
    }

    fn signed_octets(&self) -> Vec<u8> {
        [&self.request.hash()[..], &self.group.0, &self.share.0].concat()
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::OperatorRequest.begin();
        emit_part(&self.request.to_octets(), &mut out);
        out.extend_from_slice(&self.group.0);
        out.extend_from_slice(&self.share.0);
        out.extend_from_slice(&self.signature.0);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::OperatorRequest.read(r)?;
            let request = UserRequest::parse(read_part(r, UserRequest::OCTETS_MAX, "user request")?)?;
            let (group, share) = (TokenHash(r.array("group")?), Share(r.array("share")?));
            Ok(Self { request, group, share, signature: read_signature(r)? })
        })
    }
}
