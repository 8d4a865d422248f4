//! The second class: an ordinary 3GPP UE of the broker's, hidden from the operator. It sends a SUCI and hears
//! no token; the broker challenges it through Ô, and its RES* opens the K_AMF that the broker has sealed to
//! the operator.

use whimbrel_broker_common::crypto::{Share, Signature};
use whimbrel_broker_common::home::{Resynchronisation, SCHEME_OUTPUT_OCTETS_MAX};
use whimbrel_broker_common::id::Domain;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use super::{MessageField, MessageType, emit_part, read_part, read_signature, whole};
use crate::crypto::{SEALED_K_AMF_OCTETS, Signed, SigningKey, VerifyingKey, hash};
use crate::token::TokenHash;

/// A concealed SUCI of the broker's PLMN (TS 23.003 §2.2B). One of the null scheme is none: the operator could read it.
#[derive(Clone, PartialEq, Eq)]
pub struct Suci {
    scheme: u8,
    key_id: u8,
    output: Box<[u8]>,
}

impl core::fmt::Debug for Suci {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Suci(…)")
    }
}

impl Suci {
    const OCTETS_MAX: usize = 2 + 2 + SCHEME_OUTPUT_OCTETS_MAX;

    /// `None` for the null scheme, and for an output of no UE.
    pub fn new(scheme: u8, key_id: u8, output: Box<[u8]>) -> Option<Self> {
        let conceals = (1..16).contains(&scheme) && output.len() <= SCHEME_OUTPUT_OCTETS_MAX;
        conceals.then_some(Self { scheme, key_id, output })
    }

    /// Protection scheme, home network public key identifier, scheme output.
    pub fn parts(&self) -> (u8, u8, &[u8]) {
        (self.scheme, self.key_id, &self.output)
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.scheme, self.key_id]);
        emit_part(&self.output, out);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "SUCI";
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let (scheme, key_id) = (r.u8(IE)?, r.u8(IE)?);
        Self::new(scheme, key_id, read_part(r, SCHEME_OUTPUT_OCTETS_MAX, IE)?.into()).ok_or(invalid)
    }
}

/// The question that the operator asks for an ordinary UE, before it is signed in a session group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeQuestion {
    /// Domain of the broker.
    pub broker: Domain,
    /// SUCI of the UE.
    pub suci: Suci,
    /// Random: another question, another challenge.
    pub nonce: [u8; 16],
    /// The USIM has refused the challenge before this one (TS 33.102 §6.3.3).
    pub resynchronisation: Option<Resynchronisation>,
    /// The operator's ephemeral share.
    pub share: Share,
}

impl HomeQuestion {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + Suci::OCTETS_MAX + 16 + 1 + 30 + 32;

    /// Hash of the question.
    pub fn hash(&self) -> [u8; 32] {
        hash(&[&self.to_octets()])
    }

    /// The request in a session group, signed by the owner of the token.
    pub fn signed(&self, group: TokenHash, key: &SigningKey) -> HomeRequest {
        let mut signed = HomeRequest { question: self.clone(), group, signature: Signature::NONE };
        signed.signature = key.sign(Signed::HomeRequest, &signed.signed_octets());
        signed
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::HomeQuestion.begin();
        self.broker.emit(&mut out);
        self.suci.emit(&mut out);
        out.extend_from_slice(&self.nonce);
        self.resynchronisation.emit(&mut out);
        out.extend_from_slice(&self.share.0);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::HomeQuestion.read(r)?;
            let (broker, suci, nonce) = (Domain::read(r)?, Suci::read(r)?, r.array("nonce")?);
            let (resynchronisation, share) = (MessageField::read(r)?, Share::read(r)?);
            Ok(Self { broker, suci, nonce, resynchronisation, share })
        })
    }
}

/// [`HomeQuestion`] in a session group, from Ô to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeRequest {
    /// The question that is signed.
    pub question: HomeQuestion,
    /// The session group.
    pub group: TokenHash,
    /// Under the token's key.
    pub signature: Signature,
}

impl HomeRequest {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 2 + HomeQuestion::OCTETS_MAX + 32 + 64;

    /// Whether octets are of this message, rather than of a veiled UE's.
    pub fn is_of(octets: &[u8]) -> bool {
        MessageType::HomeRequest.begins(octets)
    }

    /// Whether the owner of the token's key signed it.
    pub fn is_signed_by(&self, key: &VerifyingKey) -> bool {
        key.verifies(Signed::HomeRequest, &self.signed_octets(), &self.signature)
    }

    fn signed_octets(&self) -> Vec<u8> {
        [&self.question.hash()[..], &self.group.0].concat()
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::HomeRequest.begin();
        emit_part(&self.question.to_octets(), &mut out);
        out.extend_from_slice(&self.group.0);
        out.extend_from_slice(&self.signature.0);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::HomeRequest.read(r)?;
            let question = HomeQuestion::parse(read_part(r, HomeQuestion::OCTETS_MAX, "home question")?)?;
            let group = TokenHash(r.array("group")?);
            Ok(Self { question, group, signature: read_signature(r)? })
        })
    }
}

/// The challenge of the UE (TS 33.501 §6.1.3.2 step 5), and K_AMF, which its RES* opens.
#[derive(Clone, PartialEq, Eq)]
pub struct HomeVector {
    /// RAND of the challenge.
    pub rand: [u8; 16],
    /// AUTN of the challenge.
    pub autn: [u8; 16],
    /// HXRES* (TS 33.501 Annex A.5).
    pub hxres_star: [u8; 16],
    /// K_AMF, sealed under a key of RES*, RAND, H(token) and the half that is sealed to the operator.
    pub k_amf: [u8; SEALED_K_AMF_OCTETS],
}

/// Redacted, as vectors are.
impl core::fmt::Debug for HomeVector {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HomeVector(…)")
    }
}

impl HomeVector {
    /// Octets of each.
    pub const OCTETS: usize = 3 * 16 + SEALED_K_AMF_OCTETS;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        [&self.rand[..], &self.autn, &self.hxres_star, &self.k_amf].concat()
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "vector";
        let (rand, autn, hxres_star) = (r.array(IE)?, r.array(IE)?, r.array(IE)?);
        Ok(Self { rand, autn, hxres_star, k_amf: r.array(IE)? })
    }

    /// What the grant names: the orders that the broker has sealed, and this vector.
    pub fn hash_with(&self, orders: &[u8]) -> [u8; 32] {
        hash(&[orders, &self.to_octets()])
    }
}
