//! Requests: the user's, which is all that the operator sees of the user (Û of chapter 4.4.2), and Ô's to the broker.

use whimbrel_ids::{DecodeError, Reader};
use whimbrel_open::crypto::{PrivateKey, Seed, Share, Signature};
use whimbrel_open::id::{Domain, UserId};
use whimbrel_open::msg::EpochKey;
use zeroize::Zeroizing;

use super::{MessageType, emit_domain, emit_part, read_domain, read_part, read_signature, whole};
use crate::crypto::{Exporter, Signed, SigningKey, TAG_OCTETS, VerifyingKey, hash, open, seal};
use crate::token::TokenHash;

/// The part of a request that the user seals to its broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserVector {
    /// The user (idU).
    pub user: UserId,
    /// H(token) that the user read from the broadcast.
    pub token: TokenHash,
    /// Counter of the user's SIM, never used twice.
    pub counter: u64,
    /// Random octets of this attach.
    pub nonce: [u8; 16],
    /// The user's ephemeral share.
    pub share: Share,
    /// The user's signature over the head of the request, which ends with the encapsulated key, and over the fields above.
    pub signature: Signature,
}

impl UserVector {
    /// All are of one length.
    pub const OCTETS: usize = 16 + 32 + 8 + 16 + 32 + 64;

    /// The fields, signed.
    pub fn signed(
        head: &[u8],
        (user, token, counter): (UserId, TokenHash, u64),
        nonce: [u8; 16],
        share: Share,
        key: &SigningKey,
    ) -> Self {
        let mut vector = Self { user, token, counter, nonce, share, signature: Signature([0; 64]) };
        vector.signature = key.sign(Signed::UserRequest, &vector.signed_octets(head));
        vector
    }

    /// Whether the owner of `key` signed it for the request of this head.
    pub fn is_signed_by(&self, key: &VerifyingKey, head: &[u8]) -> bool {
        key.verifies(Signed::UserRequest, &self.signed_octets(head), &self.signature)
    }

    fn signed_octets(&self, head: &[u8]) -> Vec<u8> {
        let mut out = head.to_vec();
        self.emit_fields(&mut out);
        out
    }

    fn emit_fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.user.0);
        out.extend_from_slice(&self.token.0);
        out.extend_from_slice(&self.counter.to_be_bytes());
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(&self.share.0);
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::OCTETS);
        self.emit_fields(&mut out);
        out.extend_from_slice(&self.signature.0);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "user vector";
        whole(octets, |r| {
            let (user, token) = (UserId(r.array(IE)?), TokenHash(r.array(IE)?));
            let (counter, nonce) = (r.u64(IE)?, r.array(IE)?);
            let share = Share(r.array(IE)?);
            Ok(Self { user, token, counter, nonce, share, signature: read_signature(r)? })
        })
    }
}

/// The user's request. The operator reads the broker's domain in it, and which of its own tokens the user heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRequest {
    broker: Domain,
    key_id: u8,
    tag: [u8; 4],
    enc: [u8; 32],
    sealed: Box<[u8; UserVector::OCTETS + TAG_OCTETS]>,
}

impl UserRequest {
    /// The longest: 220 octets of domain.
    pub const OCTETS_MAX: usize = 2 + 1 + 1 + Domain::OCTETS_MAX + 4 + 32 + UserVector::OCTETS + TAG_OCTETS;

    /// Seals what `vector` makes for the head of this request to the broker's key of an epoch. Gives the
    /// request and what the user and the broker then share; `None` if the key is of small order.
    pub fn seal(
        broker: Domain,
        key: &EpochKey,
        token: &TokenHash,
        seed: &Seed,
        vector: impl FnOnce(&[u8]) -> UserVector,
    ) -> Option<(Self, Exporter)> {
        let (info, tag) = (Self::info(&broker, key.id), token.tag());
        let (enc, sealed, exporter) = seal(&key.public, &info, seed, |enc| {
            let head = Self::head_of(&broker, key.id, tag, enc);
            (Zeroizing::new(vector(&head).to_octets()), head)
        })?;
        let sealed = <Vec<u8>>::from(sealed).try_into().expect("a vector is of one length");
        Some((Self { broker, key_id: key.id, tag, enc, sealed: Box::new(sealed) }, exporter))
    }

    /// Opens it with the broker's private key of the epoch. `None` if it was sealed to another key or altered.
    pub fn open(&self, key: &PrivateKey) -> Option<(Zeroizing<Vec<u8>>, Exporter)> {
        open(key, &self.enc, &Self::info(&self.broker, self.key_id), &self.sealed[..], &self.head())
    }

    /// The user's broker (idB).
    pub const fn broker(&self) -> &Domain {
        &self.broker
    }

    /// Which of the broker's keys it is sealed to.
    pub const fn key_id(&self) -> u8 {
        self.key_id
    }

    /// True if the user heard this token.
    pub fn is_for(&self, token: &TokenHash) -> bool {
        self.tag == token.tag()
    }

    /// Hash of the request.
    pub fn hash(&self) -> [u8; 32] {
        hash(&[&self.to_octets()])
    }

    /// What stands before the sealed part: signed by the user and authenticated by the seal.
    pub fn head(&self) -> Vec<u8> {
        Self::head_of(&self.broker, self.key_id, self.tag, &self.enc)
    }

    fn head_of(broker: &Domain, key_id: u8, tag: [u8; 4], enc: &[u8; 32]) -> Vec<u8> {
        let mut out = MessageType::UserRequest.begin();
        out.push(key_id);
        emit_domain(broker, &mut out);
        out.extend_from_slice(&tag);
        out.extend_from_slice(enc);
        out
    }

    fn info(broker: &Domain, key_id: u8) -> Vec<u8> {
        [b"VEIL-v1 user request ", &[key_id][..], broker.as_str().as_bytes()].concat()
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = self.head();
        out.extend_from_slice(&self.sealed[..]);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::UserRequest.read(r)?;
            let key_id = r.u8("broker key identifier")?;
            let broker = read_domain(r)?;
            Self::read_rest(broker, key_id, r)
        })
    }

    fn read_rest(broker: Domain, key_id: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (tag, enc) = (r.array("token tag")?, r.array("encapsulated key")?);
        Ok(Self { broker, key_id, tag, enc, sealed: Box::new(r.array("sealed vector")?) })
    }

    /// The scheme output of the SUCI that carries it: the SUCI itself names the broker's domain and the key.
    pub fn to_scheme_output(&self) -> Vec<u8> {
        let mut out = MessageType::UserRequest.begin();
        out.extend_from_slice(&self.tag);
        out.extend_from_slice(&self.enc);
        out.extend_from_slice(&self.sealed[..]);
        out
    }

    /// From a SUCI: its realm, its home network public key identifier, its scheme output. Errors: [`DecodeError`].
    pub fn from_scheme_output(broker: Domain, key_id: u8, output: &[u8]) -> Result<Self, DecodeError> {
        whole(output, |r| {
            MessageType::UserRequest.read(r)?;
            Self::read_rest(broker, key_id, r)
        })
    }
}

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
        let mut signed = Self { request, group, share, signature: Signature([0; 64]) };
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
