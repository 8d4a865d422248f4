//! The requests: authReqU, which the user seals to its broker, and authReqT, in which the operator passes it on with its terms.

use whimbrel_broker_common::envelope::TAG_OCTETS;
use whimbrel_broker_common::request::{SealedRequest, SealedVector};
use whimbrel_ids::{DecodeError, DecodeErrorKind, Instant, Reader};

use super::terms::Terms;
use super::{Certificate, MessageField, Sap, SapMessageType, emit_part, read_part, read_signature, whole};
use crate::crypto::{Share, Signature, Signed, SigningKey, hash};
use crate::id::OperatorId;

/// Octets of a ticket: a nonce, then a user and a number under the broker's own AEAD key, and the tag.
pub const TICKET_OCTETS: usize = 12 + 16 + 8 + TAG_OCTETS;

/// A single-use ticket that the broker gives to the user at an attach and takes back at the next: a request
/// that carries one is answered before those that carry none. Only the broker can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub [u8; TICKET_OCTETS]);

impl MessageField for Ticket {
    const NAME: &'static str = "ticket";
    const FIELD_OCTETS_MAX: usize = TICKET_OCTETS;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(r.array(Self::NAME)?))
    }
}

/// The part of a request that the user seals to its broker. It names the operator that the user read from the broadcast (idT).
pub type UserVector = SealedVector<Sap>;

/// authReqU: the user's request. The operator reads the broker's domain in it and nothing else of use.
pub type AuthReqU = SealedRequest<Sap>;

/// By what the broker knows a request that it answered before: H(authReqU, the operator, terms, share).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerKey(pub [u8; 32]);

impl AnswerKey {
    /// Of these four.
    pub fn new(request: &[u8; 32], operator: OperatorId, terms: &Terms, share: &Share) -> Self {
        let mut octets = request.to_vec();
        operator.emit(&mut octets);
        terms.emit(&mut octets);
        octets.extend_from_slice(&share.0);
        Self(hash(&octets))
    }
}

/// authReqT: the operator passes on the user's request with its terms and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthReqT {
    /// The user's request.
    pub request: AuthReqU,
    /// Certificate of the operator.
    pub certificate: Certificate,
    /// The terms that the operator offers.
    pub terms: Terms,
    /// The operator's ephemeral share.
    pub share: Share,
    /// The operator's time, in seconds since the Unix epoch.
    pub time: u64,
    /// The operator's signature over H(authReqU), its identity, terms, share and time.
    pub signature: Signature,
}

impl AuthReqT {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize =
        2 + 2 + AuthReqU::OCTETS_MAX + 2 + Certificate::OCTETS_MAX + Terms::OCTETS_MAX + 32 + 8 + 64;

    /// The request, signed by the owner of the certificate.
    pub fn signed(
        request: AuthReqU,
        certificate: Certificate,
        operator: OperatorId,
        (terms, share): (Terms, Share),
        now: Instant,
        key: &SigningKey,
    ) -> Self {
        let signature = Signature::NONE;
        let mut signed = Self { request, certificate, terms, share, time: now.as_secs(), signature };
        signed.signature = key.sign(Signed::OperatorRequest, &signed.signed_octets(operator));
        signed
    }

    /// Whether the certificate's owner, `operator`, signed it.
    pub fn is_signed_by(&self, operator: OperatorId) -> bool {
        self.certificate.key.verifies(Signed::OperatorRequest, &self.signed_octets(operator), &self.signature)
    }

    fn signed_octets(&self, operator: OperatorId) -> Vec<u8> {
        let mut out = self.request.hash().to_vec();
        operator.emit(&mut out);
        self.terms.emit(&mut out);
        out.extend_from_slice(&self.share.0);
        out.extend_from_slice(&self.time.to_be_bytes());
        out
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::AuthReqT.begin();
        emit_part(&self.request.to_octets(), &mut out);
        emit_part(&self.certificate.to_octets(), &mut out);
        self.terms.emit(&mut out);
        out.extend_from_slice(&self.share.0);
        out.extend_from_slice(&self.time.to_be_bytes());
        out.extend_from_slice(&self.signature.0);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        if octets.len() > Self::OCTETS_MAX {
            return Err(DecodeError::new(DecodeErrorKind::InvalidLength, "authReqT", 0));
        }
        whole(octets, |r| {
            SapMessageType::AuthReqT.read(r)?;
            let request = AuthReqU::parse(read_part(r, AuthReqU::OCTETS_MAX, "authReqU")?)?;
            let certificate = Certificate::parse(read_part(r, Certificate::OCTETS_MAX, "certificate")?)?;
            let terms = Terms::read(r)?;
            let (share, time) = (Share(r.array("share")?), r.u64("time")?);
            Ok(Self { request, certificate, terms, share, time, signature: read_signature(r)? })
        })
    }
}
