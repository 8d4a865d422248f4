//! The broker's signed refusal: for the operator that asked, which passes it to the user.

use whimbrel_ids::DecodeError;

use crate::AttachProtocol;
use crate::codec::{CauseCode, MessageField, read_signature, whole};
use crate::crypto::{Signature, SigningKey, VerifyingKey};
use crate::id::Domain;
use crate::request::EpochKey;

/// A broker's refusal of one request by one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRefusal<P: AttachProtocol> {
    /// Domain of the broker.
    pub broker: Domain,
    /// Cause of the refusal.
    pub cause: P::Cause,
    /// The operator that asked: its identity, authenticated, or its session group.
    pub asker: P::Asker,
    /// H(the user's request), which covers the user's nonce: the broker can give it also for a request that it could not open.
    pub request: [u8; 32],
    /// The key to seal the next request to, if this one was sealed to an unknown key.
    pub key: Option<EpochKey>,
    /// The broker's signature.
    pub signature: Signature,
}

impl<P: AttachProtocol> BrokerRefusal<P> {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2
        + Domain::FIELD_OCTETS_MAX
        + 1
        + P::Asker::FIELD_OCTETS_MAX
        + 32
        + <Option<EpochKey>>::FIELD_OCTETS_MAX
        + 64;

    /// Signs one as the broker.
    pub fn sign(
        broker: Domain,
        cause: P::Cause,
        asker: P::Asker,
        request: [u8; 32],
        next: Option<EpochKey>,
        key: &SigningKey,
    ) -> Self {
        let mut refusal = Self { broker, cause, asker, request, key: next, signature: Signature::NONE };
        refusal.signature = key.sign(P::SIGNED_REFUSAL, &refusal.signed_octets());
        refusal
    }

    /// Whether the owner of `key` signed it.
    pub fn is_signed_by(&self, key: &VerifyingKey) -> bool {
        key.verifies(P::SIGNED_REFUSAL, &self.signed_octets(), &self.signature)
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = P::REFUSAL.begin();
        self.broker.emit(&mut out);
        out.push(self.cause.code());
        self.asker.emit(&mut out);
        out.extend_from_slice(&self.request);
        self.key.emit(&mut out);
        out
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = self.signed_octets();
        out.extend_from_slice(&self.signature.0);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            P::REFUSAL.read(r)?;
            let (broker, cause) = (Domain::read(r)?, P::Cause::read(r)?);
            let (asker, request) = (P::Asker::read(r)?, r.array("request")?);
            let key = <Option<EpochKey>>::read(r)?;
            Ok(Self { broker, cause, asker, request, key, signature: read_signature(r)? })
        })
    }
}
