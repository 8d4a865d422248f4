//! The broker's answers: to the operator, to the user, and refusals.

use core::net::IpAddr;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};
use zeroize::Zeroizing;

use super::certificate::Certificate;
use super::grant::SignedGrant;
use super::home::{Release, SignedChallenge};
use super::request::{AnswerKey, TICKET_OCTETS, Ticket};
use super::{SapMessageType, emit_part, read_flag, read_part, read_signature, whole};
use crate::causes;
use crate::crypto::{
    PrivateKey, Seed, Sender, Share, SharedSecret, Signature, Signed, SigningKey, TAG_OCTETS, VerifyingKey,
    open,
};
use crate::id::{Domain, OperatorId};

/// A broker's public key of an epoch: users seal their requests to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochKey {
    /// Its identifier: the home network public key identifier of the SUCI.
    pub id: u8,
    /// Public key of the epoch.
    pub public: Share,
}

fn emit_key(key: Option<&EpochKey>, out: &mut Vec<u8>) {
    match key {
        None => out.push(0),
        Some(key) => {
            out.extend_from_slice(&[1, key.id]);
            out.extend_from_slice(&key.public.0);
        }
    }
}

fn read_key(r: &mut Reader<'_>) -> Result<Option<EpochKey>, DecodeError> {
    const IE: &str = "broker key";
    Ok(match read_flag(r, IE)? {
        false => None,
        true => Some(EpochKey { id: r.u8(IE)?, public: Share(r.array(IE)?) }),
    })
}

/// Traffic that the operator drops on the broker's order: to or from these addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    address: IpAddr,
    prefix: u8,
}

impl Filter {
    /// `None` if the prefix is longer than the address or bits are set behind it.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let (bits, len) = match address {
            IpAddr::V4(a) => (u128::from(a.to_bits()) << 96, 32),
            IpAddr::V6(a) => (a.to_bits(), 128),
        };
        let tail = bits.checked_shl(u32::from(prefix)).unwrap_or(0);
        (prefix <= len && tail == 0).then_some(Self { address, prefix })
    }

    /// The first address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits count.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The longest list of them, with the intercept flag before it.
    pub(crate) const LIST_OCTETS_MAX: usize = 1 + 1 + OperatorOrders::FILTERS_MAX * 18;
}

/// The intercept flag and the filters. Panics on more filters than the bound.
pub(super) fn emit_filters(intercept: bool, filters: &[Filter], out: &mut Vec<u8>) {
    assert!(filters.len() <= OperatorOrders::FILTERS_MAX);
    out.extend_from_slice(&[u8::from(intercept), filters.len() as u8]);
    for filter in filters {
        match filter.address {
            IpAddr::V4(a) => {
                out.push(4);
                out.extend_from_slice(&a.octets());
            }
            IpAddr::V6(a) => {
                out.push(6);
                out.extend_from_slice(&a.octets());
            }
        }
        out.push(filter.prefix);
    }
}

pub(super) fn read_filters(r: &mut Reader<'_>) -> Result<(bool, Vec<Filter>), DecodeError> {
    const IE: &str = "orders";
    let intercept = read_flag(r, "intercept")?;
    let too_many = r.error(DecodeErrorKind::TooMany, "filters");
    let count = usize::from(r.u8(IE)?);
    if count > OperatorOrders::FILTERS_MAX {
        return Err(too_many);
    }
    let mut filters = Vec::with_capacity(count);
    for _ in 0..count {
        let invalid = r.error(DecodeErrorKind::InvalidValue, "filter");
        let address = match r.u8(IE)? {
            4 => IpAddr::from(r.array::<4>(IE)?),
            6 => IpAddr::from(r.array::<16>(IE)?),
            _ => return Err(invalid),
        };
        filters.push(Filter::new(address, r.u8(IE)?).ok_or(invalid)?);
    }
    Ok((intercept, filters))
}

/// `info` of the HPKE context from the broker to the operator.
const ORDERS_INFO: &[u8] = b"SAP-v1 orders";

/// The part of an answer that the broker seals to the operator.
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorOrders {
    /// The shared secret.
    pub ss: SharedSecret,
    /// True if the operator must intercept the session.
    pub intercept: bool,
    /// Traffic that the operator must drop; at most [`OperatorOrders::FILTERS_MAX`].
    pub filters: Vec<Filter>,
}

impl core::fmt::Debug for OperatorOrders {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OperatorOrders(…)")
    }
}

impl OperatorOrders {
    /// The most filters of a session.
    pub const FILTERS_MAX: usize = 8;
    const OCTETS_MAX: usize = 32 + Filter::LIST_OCTETS_MAX;

    /// Seals them to the operator's share, for the request that `key` names: an encapsulated key and a
    /// ciphertext. `None` if the share is of small order.
    pub fn seal(&self, share: &Share, key: &AnswerKey, seed: &Seed) -> Option<Box<[u8]>> {
        let mut sender = Sender::new(share, ORDERS_INFO, seed)?;
        let sealed = sender.seal(&self.to_octets(), &key.0);
        Some([&sender.enc()[..], &sealed].concat().into())
    }

    /// Opens them with the operator's ephemeral key. `None` if they were not sealed to it for the request that `key` names.
    pub fn open(private: &PrivateKey, key: &AnswerKey, sealed: &[u8]) -> Option<Self> {
        let (enc, sealed) = sealed.split_first_chunk::<32>()?;
        let (plain, _) = open(private, enc, ORDERS_INFO, sealed, &key.0)?;
        Self::parse(&plain).ok()
    }

    /// Its octets. Panics on more filters than the bound.
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(Self::OCTETS_MAX));
        out.extend_from_slice(self.ss.octets());
        emit_filters(self.intercept, &self.filters, &mut out);
        out
    }

    /// Parses them. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let ss = SharedSecret::new(r.array("ss")?);
            let (intercept, filters) = read_filters(r)?;
            Ok(Self { ss, intercept, filters })
        })
    }
}

/// The part of an answer that the broker seals to the user.
#[derive(Clone, PartialEq, Eq)]
pub struct UserAnswer {
    /// The grant of the session.
    pub grant: SignedGrant,
    /// The shared secret.
    pub ss: SharedSecret,
    /// For the user's next attach.
    pub ticket: Option<Ticket>,
    /// The key of the next epoch, once the broker has one.
    pub next_key: Option<EpochKey>,
}

impl core::fmt::Debug for UserAnswer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("UserAnswer(…)")
    }
}

impl UserAnswer {
    const OCTETS_MAX: usize = SignedGrant::OCTETS_MAX + 32 + 1 + TICKET_OCTETS + 1 + 33;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(Self::OCTETS_MAX));
        out.extend_from_slice(&self.grant.to_octets());
        out.extend_from_slice(self.ss.octets());
        match &self.ticket {
            None => out.push(0),
            Some(ticket) => {
                out.push(1);
                out.extend_from_slice(&ticket.0);
            }
        }
        emit_key(self.next_key.as_ref(), &mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let grant = SignedGrant::read(r)?;
            let ss = SharedSecret::new(r.array("ss")?);
            let ticket = match read_flag(r, "ticket")? {
                false => None,
                true => Some(Ticket(r.array("ticket")?)),
            };
            Ok(Self { grant, ss, ticket, next_key: read_key(r)? })
        })
    }
}

/// The answer as the user receives it: sealed under a key that only the user and the broker can derive, so
/// the operator and the air learn nothing from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerU {
    /// Random, for the key of this answer.
    pub salt: [u8; 16],
    /// A sealed [`UserAnswer`].
    pub sealed: Box<[u8]>,
}

impl AnswerU {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 16 + 2 + UserAnswer::OCTETS_MAX + TAG_OCTETS;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::AnswerU.begin();
        out.extend_from_slice(&self.salt);
        emit_part(&self.sealed, &mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            SapMessageType::AnswerU.read(r)?;
            let salt = r.array("salt")?;
            let sealed = read_part(r, UserAnswer::OCTETS_MAX + TAG_OCTETS, "sealed answer")?.into();
            Ok(Self { salt, sealed })
        })
    }
}

causes! {
    /// Why the broker refuses a request of an operator that it has authenticated. The broker signs it.
    RefusalCause, "refusal cause" {
        /// The request is sealed to a key that the broker no longer has, or never had.
        UnknownKey = 1, "the request is sealed to a key that the broker does not have";
        /// The sealed part does not open, or holds no vector.
        Envelope = 2, "the sealed part of the request does not open";
        /// The broker has no such user.
        UnknownUser = 3, "the broker has no such user";
        /// The user's signature is wrong.
        UserSignature = 4, "the user's signature is wrong";
        /// The user asked for another operator than the one that passed the request on.
        OtherOperator = 5, "the user asked for another operator";
        /// The user's key is revoked: stolen, or the contract is over.
        UserRevoked = 6, "the broker has revoked the user's key";
        /// The counter of the SIM was used before, for another request.
        CounterUsed = 7, "the counter of the SIM was used for another request";
        /// The broker's policy does not allow this operator.
        OperatorNotAllowed = 8, "the broker does not allow this operator";
        /// The operator's reputation is below the broker's floor.
        OperatorReputation = 9, "the operator's reputation is below the broker's floor";
        /// The price is above the broker's cap, or in another currency.
        PriceTooHigh = 10, "the operator's price is above the broker's cap or in another currency";
        /// The operator cannot give the QoS that the user is due.
        QosTooLow = 11, "the operator cannot give the QoS that the user is due";
        /// The ephemeral share of the user or the operator is of small order.
        WeakShare = 12, "an ephemeral share is of small order";
        /// AUTS does not come from the user's USIM, or not for this challenge.
        Resynchronisation = 13, "the resynchronisation token is not of the user's USIM";
        /// RES* is not the response of the user's USIM.
        Response = 14, "the UE's response is wrong";
        /// The broker has not given this operator that challenge, or only long ago.
        NoChallenge = 15, "the broker has no such challenge open";
    }
}

causes! {
    /// Why the broker rejects a message whose sender is not authenticated as an operator. Not signed: a signature would let
    /// anybody make the user believe that the broker refused the operator's request.
    Rejection, "rejection cause" {
        /// The octets are no request.
        Malformed = 1, "the request is malformed";
        /// The certificate is of no authority that the broker trusts, or no operator's.
        CertificateUntrusted = 2, "no authority that the broker trusts signed the operator's certificate";
        /// The certificate's validity has not begun.
        CertificateNotYetValid = 3, "the operator's certificate is not valid yet";
        /// The certificate has expired.
        CertificateExpired = 4, "the operator's certificate has expired";
        /// The certificate is revoked.
        CertificateRevoked = 5, "the operator's certificate is revoked";
        /// The operator's signature is wrong.
        OperatorSignature = 6, "the operator's signature is wrong";
        /// The operator's clock and the broker's are too far apart.
        ClockSkew = 7, "the operator's clock and the broker's are too far apart";
        /// The request is for another broker.
        OtherBroker = 8, "the request is for another broker";
        /// The broker has no room now.
        Busy = 9, "the broker has no room for the request now";
    }
}

/// The broker's signed refusal of one request by one operator. The operator passes it to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedRefusal {
    /// Domain of the broker.
    pub broker: Domain,
    /// Cause of the refusal.
    pub cause: RefusalCause,
    /// The operator that asked, authenticated (idT).
    pub operator: OperatorId,
    /// H(authReqU), which covers the user's nonce: the broker can give it also for a request that it could not open.
    pub request: [u8; 32],
    /// The key to seal the next request to, if this one was sealed to an unknown key.
    pub key: Option<EpochKey>,
    /// The broker's signature.
    pub signature: Signature,
}

impl SignedRefusal {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 221 + 1 + 10 + 32 + 34 + 64;

    /// Signs one as the broker.
    pub fn sign(
        broker: Domain,
        cause: RefusalCause,
        operator: OperatorId,
        request: [u8; 32],
        next: Option<EpochKey>,
        key: &SigningKey,
    ) -> Self {
        let mut refusal = Self { broker, cause, operator, request, key: next, signature: Signature([0; 64]) };
        refusal.signature = key.sign(Signed::Refusal, &refusal.signed_octets());
        refusal
    }

    /// Whether the owner of `key` signed it.
    pub fn is_signed_by(&self, key: &VerifyingKey) -> bool {
        key.verifies(Signed::Refusal, &self.signed_octets(), &self.signature)
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::Refusal.begin();
        self.broker.emit(&mut out);
        out.push(self.cause as u8);
        self.operator.emit(&mut out);
        out.extend_from_slice(&self.request);
        emit_key(self.key.as_ref(), &mut out);
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
            SapMessageType::Refusal.read(r)?;
            let broker = Domain::read(r)?;
            let cause = RefusalCause::read(r)?;
            let operator = OperatorId::read(r)?;
            let (request, key) = (r.array("request")?, read_key(r)?);
            Ok(Self { broker, cause, operator, request, key, signature: read_signature(r)? })
        })
    }
}

/// The statement of the broker to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// The operator may serve.
    Granted {
        /// On these terms.
        grant: SignedGrant,
        /// Sealed [`OperatorOrders`], under an encapsulated key.
        orders: Box<[u8]>,
        /// For the user.
        answer_u: AnswerU,
    },
    /// The broker refuses.
    Refused(SignedRefusal),
    /// The operator is not authenticated.
    Rejected(Rejection),
    /// The operator is to challenge the ordinary UE.
    Challenged(SignedChallenge),
    /// The ordinary UE's response is right: the operator may serve.
    Released {
        /// On these terms.
        grant: SignedGrant,
        /// A sealed [`Release`], under an encapsulated key.
        release: Box<[u8]>,
    },
}

/// The broker's answer to the operator, with the certificate by which the operator knows the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerT {
    /// The broker's certificate.
    pub certificate: Certificate,
    /// The answer to the request.
    pub body: AnswerBody,
}

impl AnswerT {
    const SEALED_ORDERS_MAX: usize = 32 + OperatorOrders::OCTETS_MAX + TAG_OCTETS;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::AnswerT.begin();
        emit_part(&self.certificate.to_octets(), &mut out);
        match &self.body {
            AnswerBody::Granted { grant, orders, answer_u } => {
                out.push(1);
                emit_part(&grant.to_octets(), &mut out);
                emit_part(orders, &mut out);
                emit_part(&answer_u.to_octets(), &mut out);
            }
            AnswerBody::Refused(refusal) => {
                out.push(2);
                emit_part(&refusal.to_octets(), &mut out);
            }
            AnswerBody::Rejected(cause) => out.extend_from_slice(&[3, *cause as u8]),
            AnswerBody::Challenged(challenge) => {
                out.push(4);
                emit_part(&challenge.to_octets(), &mut out);
            }
            AnswerBody::Released { grant, release } => {
                out.push(5);
                emit_part(&grant.to_octets(), &mut out);
                emit_part(release, &mut out);
            }
        }
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "answer";
        whole(octets, |r| {
            SapMessageType::AnswerT.read(r)?;
            let certificate = Certificate::parse(read_part(r, Certificate::OCTETS_MAX, "certificate")?)?;
            let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
            let body = match r.u8(IE)? {
                1 => AnswerBody::Granted {
                    grant: SignedGrant::parse(read_part(r, SignedGrant::OCTETS_MAX, "grant")?)?,
                    orders: read_part(r, Self::SEALED_ORDERS_MAX, "orders")?.into(),
                    answer_u: AnswerU::parse(read_part(r, AnswerU::OCTETS_MAX, "answer to U")?)?,
                },
                2 => AnswerBody::Refused(SignedRefusal::parse(read_part(
                    r,
                    SignedRefusal::OCTETS_MAX,
                    "refusal",
                )?)?),
                3 => AnswerBody::Rejected(Rejection::read(r)?),
                4 => {
                    let octets = read_part(r, SignedChallenge::OCTETS_MAX, "challenge")?;
                    AnswerBody::Challenged(SignedChallenge::parse(octets)?)
                }
                5 => AnswerBody::Released {
                    grant: SignedGrant::parse(read_part(r, SignedGrant::OCTETS_MAX, "grant")?)?,
                    release: read_part(r, Release::SEALED_OCTETS_MAX, "release")?.into(),
                },
                _ => return Err(invalid),
            };
            Ok(Self { certificate, body })
        })
    }
}
