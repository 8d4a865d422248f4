//! The broker's answers: to the operator, to the user, and refusals.

use whimbrel_broker_common::causes;
use whimbrel_broker_common::codec::{parse_salted, salted_message};
use whimbrel_broker_common::envelope::TAG_OCTETS;
use whimbrel_broker_common::refusal::BrokerRefusal;
use whimbrel_broker_common::session::{emit_filters, read_filters};
use whimbrel_ids::{DecodeError, DecodeErrorKind};
use zeroize::Zeroizing;

use super::grant::SignedGrant;
use super::home::{Release, SignedChallenge};
use super::request::{AnswerKey, TICKET_OCTETS, Ticket};
use super::{
    Certificate, EpochKey, Filter, MessageField, Sap, SapMessageType, emit_part, read_flag, read_part, whole,
};
use crate::crypto::{PrivateKey, SAP, Seed, Share, SharedSecret};

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
    pub const FILTERS_MAX: usize = Filter::MAX;
    const OCTETS_MAX: usize = 32 + 1 + Filter::LIST_OCTETS_MAX;

    /// Seals them to the operator's share, for the request that `key` names: an encapsulated key and a
    /// ciphertext. `None` if the share is of small order.
    pub fn seal(&self, share: &Share, key: &AnswerKey, seed: &Seed) -> Option<Box<[u8]>> {
        SAP.seal_part(share, ORDERS_INFO, seed, (self.to_octets(), &key.0))
    }

    /// Opens them with the operator's ephemeral key. `None` if they were not sealed to it for the request that `key` names.
    pub fn open(private: &PrivateKey, key: &AnswerKey, sealed: &[u8]) -> Option<Self> {
        Self::parse(&SAP.open_part(private, ORDERS_INFO, sealed, &key.0)?).ok()
    }

    /// Its octets. Panics on more filters than the bound.
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(Self::OCTETS_MAX));
        out.extend_from_slice(self.ss.octets());
        out.push(u8::from(self.intercept));
        emit_filters(&self.filters, &mut out);
        out
    }

    /// Parses them. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let ss = SharedSecret::new(r.array("ss")?);
            Ok(Self { ss, intercept: read_flag(r, "intercept")?, filters: read_filters(r)? })
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
        self.ticket.emit(&mut out);
        self.next_key.emit(&mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let grant = SignedGrant::read(r)?;
            let ss = SharedSecret::new(r.array("ss")?);
            Ok(Self { grant, ss, ticket: MessageField::read(r)?, next_key: MessageField::read(r)? })
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
        salted_message(SapMessageType::AnswerU.head(), &self.salt, &self.sealed)
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        let (head, max) = (SapMessageType::AnswerU.head(), UserAnswer::OCTETS_MAX + TAG_OCTETS);
        parse_salted(octets, head, max, "sealed answer").map(|(salt, sealed)| Self { salt, sealed })
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

/// The broker's signed refusal of one request by one operator, authenticated (idT). The operator passes it to the user.
pub type SignedRefusal = BrokerRefusal<Sap>;

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
