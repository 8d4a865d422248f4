//! Issuing: the operator, under its name, has a batch of blinded tokens evaluated (chapter 4.4.1,
//! registration of the broker and the operator).

use whimbrel_broker_common::certificate::Certificate;
use whimbrel_broker_common::crypto::Signature;
use whimbrel_broker_common::id::Domain;
use whimbrel_ids::{DecodeError, Reader};

use super::{MessageField, MessageType, causes, emit_part, read_part, read_signature, signed_message, whole};
use crate::crypto::{Signed, SigningKey, hash};
use crate::token::BATCH;
use crate::voprf::{Element, Proof};

causes! {
    /// Why the broker issues no tokens.
    IssueError, "issue error" {
        /// The octets are no request.
        Malformed = 1, "the request for tokens is malformed";
        /// It is for another broker.
        OtherBroker = 2, "the request for tokens is for another broker";
        /// No authority that the broker trusts signed the certificate, or it is revoked or not valid now.
        Certificate = 3, "the operator's certificate is not trusted, revoked or not valid now";
        /// The signature is not the operator's.
        OperatorSignature = 4, "the operator's signature is wrong";
        /// The broker has no contract with the operator.
        OperatorNotAllowed = 5, "the broker has no contract with the operator";
        /// The broker has no such epoch.
        UnknownEpoch = 6, "the broker has no such epoch";
        /// The epoch has not begun or is over.
        EpochOver = 7, "the epoch has not begun or is over";
        /// The operator has as many batches of the epoch as it may.
        TooMany = 8, "the operator has as many tokens of the epoch as its contract allows";
    }
}

/// The operator asks for a batch. It carries no time and no count: what it holds depends on the batch alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// Domain of the broker whose tokens they are.
    pub broker: Domain,
    /// The operator's name and key.
    pub certificate: Certificate,
    /// Of which epoch.
    pub epoch: u32,
    /// The blinded tokens.
    pub blinded: Box<[Element; BATCH]>,
    /// The operator's signature.
    pub signature: Signature,
}

impl TokenRequest {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize =
        2 + 1 + Domain::OCTETS_MAX + 2 + Certificate::OCTETS_MAX + 4 + BATCH * 32 + 64;

    /// The request, signed by the owner of the certificate.
    pub fn signed(
        broker: Domain,
        certificate: Certificate,
        epoch: u32,
        blinded: Box<[Element; BATCH]>,
        key: &SigningKey,
    ) -> Self {
        Self { broker, certificate, epoch, blinded, signature: Signature::NONE }.with_signature(key)
    }

    /// Whether the certificate's owner signed it.
    pub fn is_signed(&self) -> bool {
        self.is_signed_by(&self.certificate.key)
    }

    /// Hash of the request.
    pub fn hash(&self) -> [u8; 32] {
        hash(&[&self.to_octets()])
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = MessageType::TokenRequest.begin();
        self.broker.emit(&mut out);
        emit_part(&self.certificate.to_octets(), &mut out);
        out.extend_from_slice(&self.epoch.to_be_bytes());
        self.blinded.iter().for_each(|element| out.extend_from_slice(element.octets()));
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        MessageType::TokenRequest.read(r)?;
        let broker = Domain::read(r)?;
        let certificate = Certificate::parse(read_part(r, Certificate::OCTETS_MAX, "certificate")?)?;
        let epoch = r.u32("epoch")?;
        let blinded = read_batch(r, "blinded token")?;
        Ok(Self { broker, certificate, epoch, blinded, signature: read_signature(r)? })
    }
}

signed_message!(TokenRequest as Signed::TokenRequest);

fn read_batch(r: &mut Reader<'_>, ie: &'static str) -> Result<Box<[Element; BATCH]>, DecodeError> {
    let mut batch = Vec::with_capacity(BATCH);
    for _ in 0..BATCH {
        batch.push(Element::read(r, ie)?);
    }
    Ok(batch.try_into().expect("as many as the loop read"))
}

/// The answer of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenAnswer {
    /// The batch, evaluated under the issuing key of the epoch.
    Issued {
        /// Hash of the request.
        request: [u8; 32],
        /// In the order of the request.
        evaluated: Box<[Element; BATCH]>,
        /// That the key is the one in the log.
        proof: Proof,
    },
    /// No tokens are issued.
    Refused(IssueError),
}

/// The octets of an answer, from octets that are known to be elements.
pub(crate) fn issued(request: &[u8; 32], evaluated: &[[u8; 32]], proof: &Proof) -> Vec<u8> {
    assert_eq!(evaluated.len(), BATCH);
    let mut out = MessageType::TokenAnswer.begin();
    out.push(1);
    out.extend_from_slice(request);
    evaluated.iter().for_each(|octets| out.extend_from_slice(octets));
    out.extend_from_slice(&proof.to_octets());
    out
}

impl TokenAnswer {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + 32 + BATCH * 32 + Proof::OCTETS;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        match self {
            Self::Issued { request, evaluated, proof } => {
                let octets: Vec<_> = evaluated.iter().map(|element| *element.octets()).collect();
                issued(request, &octets, proof)
            }
            Self::Refused(cause) => {
                let mut out = MessageType::TokenAnswer.begin();
                out.extend_from_slice(&[2, *cause as u8]);
                out
            }
        }
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::TokenAnswer.read(r)?;
            let unknown = r.error(whimbrel_ids::DecodeErrorKind::Unknown, "token answer");
            match r.u8("token answer")? {
                1 => {
                    let request = r.array("request")?;
                    let evaluated = read_batch(r, "evaluated token")?;
                    Ok(Self::Issued { request, evaluated, proof: Proof::read(r, "proof")? })
                }
                2 => Ok(Self::Refused(IssueError::read(r)?)),
                _ => Err(unknown),
            }
        })
    }
}
