//! The broker's answers: to Ô, the challenge to the user, the user's response and failure, and refusals.

use whimbrel_broker_common::codec::{parse_salted, salted_message};
use whimbrel_broker_common::crypto::{PrivateKey, Seed, Share};
use whimbrel_broker_common::envelope::TAG_OCTETS;
use whimbrel_broker_common::refusal::BrokerRefusal;
use whimbrel_broker_common::request::EpochKey;
use whimbrel_broker_common::session::{Filter, emit_filters, read_filters};
use whimbrel_ids::{DecodeError, DecodeErrorKind};
use zeroize::Zeroizing;

use super::grant::SignedGrant;
use super::home::HomeVector;
use super::request::AnswerKey;
use super::{MessageField, MessageType, Veil, causes, emit_part, read_flag, read_part, whole};
use crate::crypto::{Response, VEIL};

/// `info` of the HPKE context from the broker to the operator.
const ORDERS_INFO: &[u8] = b"VEIL-v1 orders";
/// `info` of the HPKE context of a failure, from the user to the broker.
const FAILURE_INFO: &[u8] = b"VEIL-v1 failure";

/// The part of an answer that the broker seals to the operator.
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorOrders {
    /// Half of the shared secret; the user's response completes it.
    pub half: [u8; 32],
    /// True if the operator must intercept the session.
    pub intercept: bool,
    /// How often the operator asks the broker for orders that come later (the location of an emergency call,
    /// an intercept that begins), in seconds: the broker cannot reach the operator by itself.
    pub poll_s: u16,
    /// Traffic that the operator must drop; at most [`OperatorOrders::FILTERS_MAX`], and those of the user's class.
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
    /// All are of one length when sealed, so that an eavesdropper of the channel does not see which sessions have filters.
    const OCTETS: usize = 32 + 1 + 2 + Filter::LIST_OCTETS_MAX;
    /// Octets of the sealed orders.
    pub const SEALED_OCTETS: usize = 32 + Self::OCTETS + TAG_OCTETS;

    /// Seals them to the operator's share, for the request that `key` names. `None` if the share is of small order.
    pub fn seal(&self, share: &Share, key: &AnswerKey, seed: &Seed) -> Option<Box<[u8]>> {
        VEIL.seal_part(share, ORDERS_INFO, seed, (self.to_octets(), &key.0))
    }

    /// Opens them with the operator's ephemeral key. `None` if they were not sealed to it for the request that `key` names.
    pub fn open(private: &PrivateKey, key: &AnswerKey, sealed: &[u8]) -> Option<Self> {
        Self::parse(&VEIL.open_part(private, ORDERS_INFO, sealed, &key.0)?).ok()
    }

    /// Its octets. Panics on more filters than the bound.
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(Self::OCTETS));
        out.extend_from_slice(&self.half);
        out.push(u8::from(self.intercept));
        out.extend_from_slice(&self.poll_s.to_be_bytes());
        emit_filters(&self.filters, &mut out);
        out.resize(Self::OCTETS, 0);
        out
    }

    /// Parses them. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "orders";
        if octets.len() != Self::OCTETS {
            return Err(DecodeError::new(DecodeErrorKind::InvalidLength, IE, 0));
        }
        whole(octets, |r| {
            let half = r.array(IE)?;
            let (intercept, poll_s) = (read_flag(r, "intercept")?, r.u16("poll")?);
            let filters = read_filters(r)?;
            let padding = r.error(DecodeErrorKind::InvalidValue, "padding");
            if r.take_rest().iter().any(|octet| *octet != 0) {
                return Err(padding);
            }
            Ok(Self { half, intercept, poll_s, filters })
        })
    }
}

/// The part of an answer that the broker seals to the user.
#[derive(Clone, PartialEq, Eq)]
pub struct UserAnswer {
    /// The grant of the session.
    pub grant: SignedGrant,
    /// Half of the shared secret.
    pub half: [u8; 32],
    /// What the user's response is for.
    pub challenge: [u8; 32],
    /// The broker's current epoch key, if the user used a former one.
    pub next_key: Option<EpochKey>,
}

impl core::fmt::Debug for UserAnswer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("UserAnswer(…)")
    }
}

impl UserAnswer {
    const OCTETS_MAX: usize = SignedGrant::OCTETS_MAX + 32 + 32 + 34;

    /// Its octets. Absent parts are filled up: the operator must not see whether the user used a former key,
    /// by which it would know some UEs again.
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(Self::OCTETS_MAX));
        out.extend_from_slice(&self.grant.to_octets());
        out.extend_from_slice(&self.half);
        out.extend_from_slice(&self.challenge);
        self.next_key.emit(&mut out);
        if self.next_key.is_none() {
            out.extend_from_slice(&[0; 33]);
        }
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let grant = SignedGrant::read(r)?;
            let (half, challenge) = (r.array("half")?, r.array("challenge")?);
            let next_key = <Option<EpochKey>>::read(r)?;
            let padding = r.error(DecodeErrorKind::InvalidValue, "padding");
            if next_key.is_none() && r.array::<33>("padding")? != [0; 33] {
                return Err(padding);
            }
            Ok(Self { grant, half, challenge, next_key })
        })
    }
}

/// The challenge as the user receives it: sealed under a key that only the user and the broker can derive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Random, for the key of this challenge.
    pub salt: [u8; 16],
    /// A sealed [`UserAnswer`].
    pub sealed: Box<[u8]>,
}

impl Challenge {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 16 + 2 + UserAnswer::OCTETS_MAX + TAG_OCTETS;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        salted_message(MessageType::Challenge.head(), &self.salt, &self.sealed)
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        let (head, max) = (MessageType::Challenge.head(), UserAnswer::OCTETS_MAX + TAG_OCTETS);
        parse_salted(octets, head, max, "sealed challenge").map(|(salt, sealed)| Self { salt, sealed })
    }
}

impl Response {
    /// Octets of the message.
    pub const MESSAGE_OCTETS: usize = 2 + 32;

    /// The message from the user to the operator.
    pub fn to_message(&self) -> Vec<u8> {
        let mut out = MessageType::Response.begin();
        out.extend_from_slice(self.octets());
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::Response.read(r)?;
            Ok(Self::new(r.array("response")?))
        })
    }
}

causes! {
    /// Why the user does not accept a challenge. Only the broker learns it: to the operator all failures are alike.
    FailureCause, "failure cause" {
        /// It was not sealed for this request: a challenge of another attach, perhaps of another UE.
        Sealed = 1, "the challenge was not sealed for this request";
        /// The grant in it is not what the user asked for.
        Grant = 2, "the grant is not the one that the user asked for";
        /// The grant is not valid now.
        NotValidNow = 3, "the grant is not valid now";
    }
}

/// The user's failure, sealed to the broker. All are of one length and look random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    key_id: u8,
    enc: [u8; 32],
    sealed: Box<[u8; 1 + 32 + TAG_OCTETS]>,
}

impl Failure {
    /// Octets of every failure.
    pub const OCTETS: usize = 2 + 1 + 32 + 33 + TAG_OCTETS;

    /// Seals one; `None` if the broker's key is of small order.
    pub fn seal(key: &EpochKey, cause: FailureCause, request: &[u8; 32], seed: &Seed) -> Option<Self> {
        let (enc, sealed, _) = VEIL.seal(&key.public, FAILURE_INFO, seed, |_| {
            let mut plain = Zeroizing::new(vec![cause as u8]);
            plain.extend_from_slice(request);
            (plain, Vec::new())
        })?;
        let sealed = <Vec<u8>>::from(sealed).try_into().expect("a failure is of one length");
        Some(Self { key_id: key.id, enc, sealed: Box::new(sealed) })
    }

    /// Which of the broker's keys it is sealed to.
    pub const fn key_id(&self) -> u8 {
        self.key_id
    }

    /// The cause and H(the user's request). `None` if it was sealed to another key or altered.
    pub fn open(&self, key: &PrivateKey) -> Option<(FailureCause, [u8; 32])> {
        let (plain, _) = VEIL.open(key, &self.enc, FAILURE_INFO, &self.sealed[..], &[])?;
        whole(&plain, |r| Ok((FailureCause::read(r)?, r.array("request")?))).ok()
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::Failure.begin();
        out.push(self.key_id);
        out.extend_from_slice(&self.enc);
        out.extend_from_slice(&self.sealed[..]);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "failure";
        whole(octets, |r| {
            MessageType::Failure.read(r)?;
            Ok(Self { key_id: r.u8(IE)?, enc: r.array(IE)?, sealed: Box::new(r.array(IE)?) })
        })
    }
}

causes! {
    /// Why the broker refuses a request of the owner of an open session group. The broker signs it.
    RefusalCause, "refusal cause" {
        /// The request is sealed to a key that the broker no longer has, or never had.
        UnknownKey = 1, "the request is sealed to a key that the broker does not have";
        /// The sealed part does not open, or holds no vector.
        Envelope = 2, "the sealed part of the request does not open";
        /// Unknown, revoked, or not the user's signature: the operator must not learn which.
        User = 3, "the broker does not take the request for one of its users'";
        /// The user heard another token than the one of this session group.
        OtherToken = 4, "the user heard another token";
        /// The counter of the SIM was used for another request.
        CounterUsed = 5, "the counter of the SIM was used for another request";
        /// The ephemeral share of the user or the operator is of small order.
        WeakShare = 6, "an ephemeral share is of small order";
        /// AUTS of an ordinary UE is not its USIM's.
        Resynchronisation = 7, "the resynchronisation token is not of the user's USIM";
    }
}

causes! {
    /// Why the broker rejects what has no open session group. Not signed.
    Rejection, "rejection cause" {
        /// The octets are no request.
        Malformed = 1, "the request is malformed";
        /// The request is for another broker.
        OtherBroker = 2, "the request is for another broker";
        /// No token has opened this session group.
        UnknownGroup = 3, "no token has opened this session group";
        /// The session group takes no more UEs.
        GroupOver = 4, "the session group is over";
        /// The signature is not under the token's key.
        TokenSignature = 5, "the signature is not under the token's key";
    }
}

/// The broker's signed refusal of a request in a session group, for the user too.
pub type SignedRefusal = BrokerRefusal<Veil>;

/// The broker's answer to Ô.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer(pub AnswerBody);

/// The answer of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// The operator may serve, once the user has responded.
    Granted {
        /// The grant of the session.
        grant: SignedGrant,
        /// The sealed [`OperatorOrders`] of the session.
        orders: Box<[u8]>,
        /// For the user.
        challenge: Challenge,
    },
    /// The broker refuses.
    Refused(SignedRefusal),
    /// The broker rejects.
    Rejected(Rejection),
    /// The same as granted, for an ordinary UE.
    Challenged {
        /// The grant. It counts once the UE has responded.
        grant: SignedGrant,
        /// The sealed [`OperatorOrders`] of the session.
        orders: Box<[u8]>,
        /// The challenge, and the key that its response opens.
        vector: HomeVector,
    },
}

impl Answer {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize =
        2 + 1 + 2 + SignedGrant::OCTETS_MAX + 2 + OperatorOrders::SEALED_OCTETS + 2 + Challenge::OCTETS_MAX;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::Answer.begin();
        match &self.0 {
            AnswerBody::Granted { grant, orders, challenge } => {
                out.push(1);
                emit_part(&grant.to_octets(), &mut out);
                emit_part(orders, &mut out);
                emit_part(&challenge.to_octets(), &mut out);
            }
            AnswerBody::Refused(refusal) => {
                out.push(2);
                emit_part(&refusal.to_octets(), &mut out);
            }
            AnswerBody::Rejected(cause) => out.extend_from_slice(&[3, *cause as u8]),
            AnswerBody::Challenged { grant, orders, vector } => {
                out.push(4);
                emit_part(&grant.to_octets(), &mut out);
                emit_part(orders, &mut out);
                out.extend_from_slice(&vector.to_octets());
            }
        }
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::Answer.read(r)?;
            let unknown = r.error(DecodeErrorKind::Unknown, "answer");
            Ok(Self(match r.u8("answer")? {
                1 => AnswerBody::Granted {
                    grant: SignedGrant::parse(read_part(r, SignedGrant::OCTETS_MAX, "grant")?)?,
                    orders: read_part(r, OperatorOrders::SEALED_OCTETS, "orders")?.into(),
                    challenge: Challenge::parse(read_part(r, Challenge::OCTETS_MAX, "challenge")?)?,
                },
                2 => AnswerBody::Refused(SignedRefusal::parse(read_part(
                    r,
                    SignedRefusal::OCTETS_MAX,
                    "refusal",
                )?)?),
                3 => AnswerBody::Rejected(Rejection::read(r)?),
                4 => AnswerBody::Challenged {
                    grant: SignedGrant::parse(read_part(r, SignedGrant::OCTETS_MAX, "grant")?)?,
                    orders: read_part(r, OperatorOrders::SEALED_OCTETS, "orders")?.into(),
                    vector: HomeVector::read(r)?,
                },
                _ => return Err(unknown),
            }))
        })
    }
}
