//! The operator: an open session group, and the attach of one UE in it (chapter 4.4.2, steps i, iii and v).
//!
//! ```text
//! OperatorAttach ── answer ──► Challenging ── respond ──► OperatorSession
//! ```
//! The machine that attaches knows no token, since tokens change many times in a minute: [`Question::sign`] is done where the group is, and
//! the broker's answer names it.

mod home;

pub use home::{HomeAttach, HomeChallenging, HomeSession};

use whimbrel_broker_common::check_all;
use whimbrel_broker_common::crypto::{KSeaf, PrivateKey, Seed, Share};
use whimbrel_broker_common::id::Domain;
use whimbrel_broker_common::session::Filter;
use whimbrel_ids::{DecodeError, Instant, PlmnId};

use zeroize::Zeroizing;

use crate::crypto::{Response, SigningKey, VEIL, VerifyingKey, attach_key, hash};
use crate::msg::{
    Answer, AnswerBody, AnswerKey, Challenge, Finding, HomeQuestion, OperatorOrders, OperatorRequest,
    OrderAnswer, OrdersRequest, Rejection, SignedGrant, SignedRefusal, UsageReport, UserRequest, emit_part,
    read_part, whole,
};
use crate::token::TokenHash;

/// Which broker the operator serves, and how the operator knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Domain of the broker.
    pub broker: Domain,
    /// Under which it signs.
    pub broker_key: VerifyingKey,
    /// Its PLMN, which the operator broadcasts.
    pub network: PlmnId,
}

/// An open session group: the token's key, and until when UEs attach.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) hash: TokenHash,
    pub(crate) signing: SigningKey,
    pub(crate) until: u64,
}

impl Group {
    /// H(token), for the broadcast.
    pub const fn hash(&self) -> TokenHash {
        self.hash
    }

    /// Until when UEs may attach in it, in seconds since the Unix epoch.
    pub const fn until(&self) -> u64 {
        self.until
    }

    /// Its octets, for a store: they hold the token's private key.
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([&self.hash.0[..], &self.signing.octets()[..], &self.until.to_be_bytes()].concat())
    }

    /// Parses them. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let (hash, secret) = (TokenHash(r.array("group")?), Zeroizing::new(r.array("token key")?));
            Ok(Self { hash, signing: SigningKey::new(&secret), until: r.u64("until")? })
        })
    }

    /// A question for an ordinary UE, signed in this group. Such a UE heard no token.
    pub fn sign_home(&self, question: &HomeQuestion) -> Vec<u8> {
        question.signed(self.hash, &self.signing).to_octets()
    }

    /// Asks for the orders of this group.
    pub fn orders(&self, broker: Domain, nonce: [u8; 16]) -> OrdersRequest {
        OrdersRequest::signed(broker, self.hash, nonce, &self.signing)
    }

    /// Answers an order, sealed to its agency. `None` if the agency's share is of small order.
    pub fn answer(
        &self,
        broker: Domain,
        (order, agency): ([u8; 32], &Share),
        finding: &Finding,
        seed: &Seed,
    ) -> Option<OrderAnswer> {
        OrderAnswer::seal((broker, self.hash), order, finding, agency, seed, &self.signing)
    }

    /// The report of a session of this group. `nonce` is that of the secret with which the operator claims it.
    pub fn report(
        &self,
        broker: Domain,
        session: ([u8; 32], &Response),
        units: u32,
        nonce: [u8; 32],
    ) -> UsageReport {
        UsageReport::signed((broker, self.hash), session, units, nonce, &self.signing)
    }
}

/// Why the operator does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorError {
    /// The octets are no answer.
    Malformed(DecodeError),
    /// The broker does not know the session group.
    Rejected(Rejection),
    /// The broker refuses; the user may have its word.
    Refused(Box<SignedRefusal>),
    /// The broker did not sign it.
    BrokerSignature,
    /// It is of another broker than the one asked.
    OtherBroker,
    /// The serving network is not the broker's.
    OtherNetwork,
    /// It is for another session group.
    OtherGroup,
    /// It is for another request.
    OtherRequest,
    /// The answer names another ephemeral share than the operator's.
    OtherShare,
    /// The grant is not valid now.
    NotValidNow,
    /// The sealed part is not the one that the grant names.
    OtherOrders,
    /// The sealed part does not open, or holds no orders.
    Orders,
    /// The user's response is not the one that the broker expects.
    Response,
    /// The user's share is of small order.
    WeakShare,
    /// It answers another kind of request.
    OtherAnswer,
    /// The K_AMF that the broker has sealed does not open.
    Key,
}

impl core::fmt::Display for OperatorError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Malformed(e) => return write!(f, "{e}"),
            Self::Rejected(cause) => return write!(f, "the broker rejects the request: {cause}"),
            Self::Refused(refusal) => return write!(f, "{} refuses: {}", refusal.broker, refusal.cause),
            Self::BrokerSignature => "the broker's signature is wrong",
            Self::OtherBroker => "the answer is of another broker than the one asked",
            Self::OtherNetwork => "the serving network of the grant is not the broker's",
            Self::OtherGroup => "the answer is for another session group",
            Self::OtherRequest => "the answer is for another request",
            Self::OtherShare => "the answer names another ephemeral share",
            Self::NotValidNow => "the grant is not valid now",
            Self::OtherOrders => "the broker's orders are not those that its grant names",
            Self::Orders => "the broker's orders do not open",
            Self::Response => "the user's response is not the one that the broker expects",
            Self::WeakShare => "the user's ephemeral share is of small order",
            Self::OtherAnswer => "the answer is for another kind of request",
            Self::Key => "the response does not open the key that the broker has sealed",
        })
    }
}

impl core::error::Error for OperatorError {}

impl From<DecodeError> for OperatorError {
    fn from(e: DecodeError) -> Self {
        Self::Malformed(e)
    }
}

/// The question that the operator asks a broker, before it is signed under the key of the token that the user heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The user's request.
    pub request: UserRequest,
    /// The operator's ephemeral share.
    pub share: Share,
}

impl Question {
    /// The octets for the broker, in a session group. `None` if the user heard another token.
    pub fn sign(&self, group: &Group) -> Option<Vec<u8>> {
        let request =
            || OperatorRequest::signed(self.request.clone(), group.hash, self.share, &group.signing);
        self.request.clear_part().is_of(&group.hash).then(|| request().to_octets())
    }

    /// Its octets, for processes of the operator's.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::new();
        emit_part(&self.request.to_octets(), &mut out);
        out.extend_from_slice(&self.share.0);
        out
    }

    /// Parses them. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let request = UserRequest::parse(read_part(r, UserRequest::OCTETS_MAX, "user request")?)?;
            Ok(Self { request, share: Share(r.array("share")?) })
        })
    }
}

/// The operator has asked and waits. What it has asked is a function of the request and the seed, so a
/// replica that has these asks the same.
#[derive(Debug)]
pub struct OperatorAttach {
    contract: Contract,
    request: UserRequest,
    private: PrivateKey,
}

impl OperatorAttach {
    /// Passes on the user's request. Gives what is to be signed and sent. Errors: the request is for another broker.
    pub fn ask(
        contract: Contract,
        request: UserRequest,
        seed: &Seed,
    ) -> Result<(Self, Question), OperatorError> {
        if *request.broker() != contract.broker {
            return Err(OperatorError::OtherBroker);
        }
        let private = VEIL.ephemeral_key(seed);
        let share = private.share();
        let attach = Self { contract, request: request.clone(), private };
        Ok((attach, Question { request, share }))
    }

    /// Checks the broker's answer. An answer that fails a check changes nothing.
    pub fn answer(&self, octets: &[u8], now: Instant) -> Result<Challenging, OperatorError> {
        match Answer::parse(octets)?.0 {
            AnswerBody::Rejected(cause) => Err(OperatorError::Rejected(cause)),
            AnswerBody::Refused(refusal) => Err(self.refused(refusal)),
            AnswerBody::Challenged { .. } => Err(OperatorError::OtherAnswer),
            AnswerBody::Granted { grant, orders, challenge } => {
                self.check(&grant, &orders, now)?;
                let key = AnswerKey::new(&grant.grant.request, &grant.grant.group, &self.private.share());
                let orders =
                    OperatorOrders::open(&self.private, &key, &orders).ok_or(OperatorError::Orders)?;
                Ok(Challenging { private: self.private.clone(), grant, orders, challenge })
            }
        }
    }

    fn refused(&self, refusal: SignedRefusal) -> OperatorError {
        if !self.request.clear_part().is_of(&refusal.asker) {
            return OperatorError::OtherGroup;
        }
        self.contract.refused(refusal, &self.request.hash())
    }

    fn check(&self, signed: &SignedGrant, orders: &[u8], now: Instant) -> Result<(), OperatorError> {
        if !self.request.clear_part().is_of(&signed.grant.group) {
            return Err(OperatorError::OtherGroup);
        }
        let of = (&self.request.hash(), &self.private.share(), &hash(&[orders]));
        self.contract.check(signed, of, now)
    }
}

impl Contract {
    /// What a refusal of the request with this hash says.
    fn refused(&self, refusal: SignedRefusal, request: &[u8; 32]) -> OperatorError {
        if !refusal.is_signed_by(&self.broker_key) {
            OperatorError::BrokerSignature
        } else if refusal.broker != self.broker {
            OperatorError::OtherBroker
        } else if refusal.request != *request {
            OperatorError::OtherRequest
        } else {
            OperatorError::Refused(Box::new(refusal))
        }
    }

    /// Checks a grant for the request with this hash, the operator's share, and the sealed parts of this hash.
    fn check(
        &self,
        signed: &SignedGrant,
        (request, share, orders): (&[u8; 32], &Share, &[u8; 32]),
        now: Instant,
    ) -> Result<(), OperatorError> {
        let grant = &signed.grant;
        check_all([
            (signed.is_signed_by(&self.broker_key), OperatorError::BrokerSignature),
            (grant.broker == self.broker, OperatorError::OtherBroker),
            (grant.network == self.network, OperatorError::OtherNetwork),
            (grant.request == *request, OperatorError::OtherRequest),
            (grant.operator_share == *share, OperatorError::OtherShare),
            (grant.validity.contains_within_skew(now), OperatorError::NotValidNow),
            (grant.orders == *orders, OperatorError::OtherOrders),
        ])
    }
}

/// The broker has granted, and the operator waits for the user's response: without it the operator has no key.
#[derive(Debug)]
pub struct Challenging {
    private: PrivateKey,
    grant: SignedGrant,
    orders: OperatorOrders,
    challenge: Challenge,
}

impl Challenging {
    /// For the user.
    pub const fn challenge(&self) -> &Challenge {
        &self.challenge
    }

    /// The grant of the session.
    pub const fn grant(&self) -> &SignedGrant {
        &self.grant
    }

    /// Checks the user's response and derives K_SEAF. A response that fails changes nothing.
    pub fn respond(&self, response: &Response) -> Result<OperatorSession, OperatorError> {
        let grant = &self.grant.grant;
        if response.expected() != grant.expected {
            return Err(OperatorError::Response);
        }
        let transcript = grant.transcript();
        let k_seaf = attach_key(&self.orders.half, response, &self.private, &grant.user_share, &transcript)
            .ok_or(OperatorError::WeakShare)?;
        let OperatorOrders { intercept, poll_s, filters, .. } = self.orders.clone();
        let (grant, presence) = (self.grant.clone(), response.clone());
        Ok(OperatorSession { grant, presence, k_seaf, intercept, poll_s, filters })
    }
}

/// The state of an attach at the operator.
#[derive(Debug)]
pub struct OperatorSession {
    /// The evidence that the operator shows to a judge.
    pub grant: SignedGrant,
    /// The user's response, by which the operator shows the broker that the user was there.
    pub presence: Response,
    /// Where the 5G key hierarchy starts.
    pub k_seaf: KSeaf,
    /// True if the operator must intercept.
    pub intercept: bool,
    /// How often the operator asks the broker for later orders, in seconds.
    pub poll_s: u16,
    /// Traffic that the operator must drop.
    pub filters: Vec<Filter>,
}

impl OperatorSession {
    /// What the operator stores of the session in the course of it, in octets: what the ledger looks at.
    pub fn record(&self) -> Vec<u8> {
        let mut out = self.grant.to_octets();
        out.extend_from_slice(self.presence.octets());
        out.extend_from_slice(self.k_seaf.octets());
        out.extend_from_slice(&[u8::from(self.intercept)]);
        out.extend_from_slice(&self.poll_s.to_be_bytes());
        out
    }
}
