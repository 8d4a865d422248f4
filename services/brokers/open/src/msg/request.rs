//! The requests: authReqU, which the user seals to its broker, and authReqT, in which the operator passes it on with its terms.

use whimbrel_ids::{DecodeError, DecodeErrorKind, Instant, Reader};

use super::answer::EpochKey;
use super::certificate::Certificate;
use super::terms::Terms;
use super::{SapMessageType, emit_part, read_flag, read_part, read_signature, whole};
use crate::crypto::{
    Exporter, PrivateKey, Seed, Sender, Share, Signature, Signed, SigningKey, TAG_OCTETS, VerifyingKey, hash,
    open,
};
use crate::id::{Domain, OperatorId, UserId};
use zeroize::Zeroizing;

/// Octets of a ticket: a nonce, then a user and a number under the broker's own AEAD key, and the tag.
pub const TICKET_OCTETS: usize = 12 + 16 + 8 + TAG_OCTETS;

/// A single-use ticket that the broker gives to the user at an attach and takes back at the next: a request
/// that carries one is answered before those that carry none. Only the broker can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub [u8; TICKET_OCTETS]);

/// The part of a request that the user seals to its broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserVector {
    /// The user (idU).
    pub user: UserId,
    /// The operator that the user read from the broadcast (idT).
    pub operator: OperatorId,
    /// Counter of the user's SIM: above every one before.
    pub counter: u64,
    /// Random octets of this attach.
    pub nonce: [u8; 16],
    /// The user's ephemeral share.
    pub share: Share,
    /// The user's signature over the head of authReqU, which ends with the encapsulated key, and over the fields above.
    pub signature: Signature,
}

impl UserVector {
    /// The longest encoding: with a NID.
    const OCTETS_MAX: usize = 16 + 10 + 8 + 16 + 32 + 64;

    /// The fields, signed.
    pub fn signed(
        head: &[u8],
        (user, operator, counter): (UserId, OperatorId, u64),
        nonce: [u8; 16],
        share: Share,
        key: &SigningKey,
    ) -> Self {
        let mut vector = Self { user, operator, counter, nonce, share, signature: Signature([0; 64]) };
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
        self.operator.emit(out);
        out.extend_from_slice(&self.counter.to_be_bytes());
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(&self.share.0);
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::OCTETS_MAX);
        self.emit_fields(&mut out);
        out.extend_from_slice(&self.signature.0);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "user vector";
        whole(octets, |r| {
            let user = UserId(r.array(IE)?);
            let operator = OperatorId::read(r)?;
            let (counter, nonce) = (r.u64(IE)?, r.array(IE)?);
            Ok(Self {
                user,
                operator,
                counter,
                nonce,
                share: Share(r.array(IE)?),
                signature: read_signature(r)?,
            })
        })
    }
}

/// authReqU: the user's request. The operator reads the broker's domain in it and nothing else of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthReqU {
    broker: Domain,
    key_id: u8,
    ticket: Option<Ticket>,
    enc: [u8; 32],
    sealed: Box<[u8]>,
}

impl AuthReqU {
    /// The longest: 220 octets of domain, a ticket, a NID.
    pub const OCTETS_MAX: usize =
        2 + 1 + Domain::OCTETS_MAX + 1 + 1 + TICKET_OCTETS + 32 + 2 + UserVector::OCTETS_MAX + TAG_OCTETS;

    /// Seals what `vector` makes for the head of this request to the broker's key of an epoch. Gives the
    /// request and what the user and the broker then share; `None` if the key is of small order.
    pub fn seal(
        broker: Domain,
        key: &EpochKey,
        ticket: Option<Ticket>,
        seed: &Seed,
        vector: impl FnOnce(&[u8]) -> UserVector,
    ) -> Option<(Self, Exporter)> {
        let mut sender = Sender::new(&key.public, &Self::info(&broker, key.id), seed)?;
        let mut request = Self { broker, key_id: key.id, ticket, enc: sender.enc(), sealed: Box::new([]) };
        let head = request.head();
        let plain = Zeroizing::new(vector(&head).to_octets());
        request.sealed = sender.seal(&plain, &head).into();
        Some((request, sender.exporter()))
    }

    /// Opens it with the broker's private key of the epoch. `None` if it was sealed to another key or altered.
    pub fn open(&self, key: &PrivateKey) -> Option<(Zeroizing<Vec<u8>>, Exporter)> {
        open(key, &self.enc, &Self::info(&self.broker, self.key_id), &self.sealed, &self.head())
    }

    /// The user's broker (idB).
    pub const fn broker(&self) -> &Domain {
        &self.broker
    }

    /// Which of the broker's keys it is sealed to.
    pub const fn key_id(&self) -> u8 {
        self.key_id
    }

    /// The ticket that the user shows.
    pub const fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Hash of the request.
    pub fn hash(&self) -> [u8; 32] {
        hash(&self.to_octets())
    }

    /// What stands before the sealed part, encapsulated key included: signed by the user and authenticated by the seal.
    pub fn head(&self) -> Vec<u8> {
        let mut out = SapMessageType::AuthReqU.begin();
        out.push(self.key_id);
        self.broker.emit(&mut out);
        self.emit_ticket(&mut out);
        out.extend_from_slice(&self.enc);
        out
    }

    fn emit_ticket(&self, out: &mut Vec<u8>) {
        match &self.ticket {
            None => out.push(0),
            Some(ticket) => {
                out.push(1);
                out.extend_from_slice(&ticket.0);
            }
        }
    }

    fn info(broker: &Domain, key_id: u8) -> Vec<u8> {
        [b"SAP-v1 authReqU ", &[key_id][..], broker.as_str().as_bytes()].concat()
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = self.head();
        emit_part(&self.sealed, &mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            SapMessageType::AuthReqU.read(r)?;
            let key_id = r.u8("broker key identifier")?;
            let broker = Domain::read(r)?;
            Self::read_rest(broker, key_id, r)
        })
    }

    fn read_rest(broker: Domain, key_id: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ticket = match read_flag(r, "ticket")? {
            false => None,
            true => Some(Ticket(r.array("ticket")?)),
        };
        let enc = r.array("encapsulated key")?;
        let sealed = read_part(r, UserVector::OCTETS_MAX + TAG_OCTETS, "sealed vector")?.into();
        Ok(Self { broker, key_id, ticket, enc, sealed })
    }

    /// The scheme output of the SUCI that carries it: the SUCI itself names the broker's domain and the key.
    pub fn to_scheme_output(&self) -> Vec<u8> {
        let mut out = SapMessageType::AuthReqU.begin();
        self.emit_ticket(&mut out);
        out.extend_from_slice(&self.enc);
        emit_part(&self.sealed, &mut out);
        out
    }

    /// From a SUCI: its realm, its home network public key identifier, its scheme output. Errors: [`DecodeError`].
    pub fn from_scheme_output(broker: Domain, key_id: u8, output: &[u8]) -> Result<Self, DecodeError> {
        whole(output, |r| {
            SapMessageType::AuthReqU.read(r)?;
            Self::read_rest(broker, key_id, r)
        })
    }
}

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
        let signature = Signature([0; 64]);
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
