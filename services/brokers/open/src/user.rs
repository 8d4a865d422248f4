//! The user: the SIM, an attach, and the session that comes of it (chapter 3.4.1, Figure 3.2).
//!
//! ```text
//! UserSim ── begin ──► UserAttach ── answer ──► TentativeSession ── commit ──► UserSession
//!                      └──────── refusal ──► SignedRefusal: try another operator, or another broker
//! ```
//! An answer or a refusal that fails a check changes nothing: the attach waits for the true one until its timer ends it.

use whimbrel_broker_common::check_all;
use whimbrel_broker_common::crypto::k_seaf;
use whimbrel_ids::{DecodeError, Instant};

use crate::crypto::{Exporter, K_SEAF, KAusf, KSeaf, PrivateKey, SAP, Seed, SigningKey, VerifyingKey};
use crate::id::{Domain, OperatorId, UserId};
use crate::msg::{
    AnswerU, AuthReqU, EpochKey, Grant, SignedGrant, SignedRefusal, Ticket, UserAnswer, UserVector,
};

/// What the SIM holds for one broker.
#[derive(Clone, Debug)]
pub struct UserSim {
    /// The user in the broker's domain.
    pub user: UserId,
    /// Domain of the broker.
    pub broker: Domain,
    /// Under which the broker signs.
    pub broker_key: VerifyingKey,
    /// To which requests are sealed.
    pub epoch: EpochKey,
    /// The user's own key.
    pub signing: SigningKey,
    /// The last counter used. It must be stored before a request leaves.
    pub counter: u64,
    /// For the next attach.
    pub ticket: Option<Ticket>,
}

/// Why the user does not accept what it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserError {
    /// The octets are no such message.
    Malformed(DecodeError),
    /// It was not sealed for this request, or not by the broker.
    Sealed,
    /// The broker did not sign it.
    BrokerSignature,
    /// It is of another broker.
    OtherBroker,
    /// The answer is for another operator than the one that the user attaches to.
    OtherOperator,
    /// The answer is for another request of the user's.
    OtherRequest,
    /// The answer names another ephemeral share than the user's.
    OtherShare,
    /// The grant is not valid now.
    NotValidNow,
    /// The operator's share is of small order.
    WeakShare,
}

impl core::fmt::Display for UserError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Malformed(e) => return write!(f, "{e}"),
            Self::Sealed => "the answer was not sealed by the broker for this request",
            Self::BrokerSignature => "the broker's signature is wrong",
            Self::OtherBroker => "the answer is of another broker",
            Self::OtherOperator => "the answer is for another operator",
            Self::OtherRequest => "the answer is for another request",
            Self::OtherShare => "the answer names another ephemeral share",
            Self::NotValidNow => "the grant is not valid now",
            Self::WeakShare => "the operator's ephemeral share is of small order",
        })
    }
}

impl core::error::Error for UserError {}

impl From<DecodeError> for UserError {
    fn from(e: DecodeError) -> Self {
        Self::Malformed(e)
    }
}

/// The user has asked and waits.
#[derive(Debug)]
pub struct UserAttach {
    broker: Domain,
    broker_key: VerifyingKey,
    operator: OperatorId,
    request: [u8; 32],
    private: PrivateKey,
    exporter: Exporter,
}

impl UserAttach {
    /// Asks to be served by `operator`. Takes the next counter and the ticket from the SIM. `None` if the broker's key on the SIM
    /// is of small order or the counter is at its end.
    pub fn begin(sim: &mut UserSim, operator: OperatorId, seed: &Seed) -> Option<(Self, AuthReqU)> {
        sim.counter = sim.counter.checked_add(1)?;
        let private = SAP.ephemeral_key(seed);
        let identity = (sim.user, operator, sim.counter);
        let ticket = sim.ticket.take();
        let (request, exporter) = AuthReqU::seal(sim.broker.clone(), &sim.epoch, ticket, seed, |head| {
            UserVector::signed(head, identity, *SAP.draw(seed, "nonce"), private.share(), &sim.signing)
        })?;
        let attach = Self {
            broker: sim.broker.clone(),
            broker_key: sim.broker_key,
            operator,
            request: request.hash(),
            private,
            exporter,
        };
        Some((attach, request))
    }

    /// Checks an answer and derives the keys. The attach stays, since what carried the answer is not verified yet.
    pub fn answer(&self, octets: &[u8], now: Instant) -> Result<TentativeSession, UserError> {
        let answer = AnswerU::parse(octets)?;
        let plain = self.exporter.open(&answer.salt, &answer.sealed).ok_or(UserError::Sealed)?;
        let UserAnswer { grant, ss, ticket, next_key } = UserAnswer::parse(&plain)?;
        self.check(&grant, now)?;
        let (share, transcript) = (&grant.grant.operator_share, grant.grant.transcript());
        let k_seaf = k_seaf(K_SEAF, &ss, &self.private, share, &transcript).ok_or(UserError::WeakShare)?;
        let session = UserSession { grant: grant.grant, k_seaf, k_ausf: self.exporter.k_ausf() };
        Ok(TentativeSession { session, ticket, next_key })
    }

    fn check(&self, signed: &SignedGrant, now: Instant) -> Result<(), UserError> {
        let grant = &signed.grant;
        check_all([
            (signed.is_signed_by(&self.broker_key), UserError::BrokerSignature),
            (grant.broker == self.broker, UserError::OtherBroker),
            (grant.operator == self.operator, UserError::OtherOperator),
            (grant.request == self.request, UserError::OtherRequest),
            (grant.user_share == self.private.share(), UserError::OtherShare),
            (grant.validity.contains_within_skew(now), UserError::NotValidNow),
        ])
    }

    /// Checks a refusal. It counts only if the broker signed it over this request and the operator that the user attaches to; whatever
    /// else says no says nothing about the broker, and the user may try another operator.
    pub fn refusal(&self, octets: &[u8]) -> Result<SignedRefusal, UserError> {
        let refusal = SignedRefusal::parse(octets)?;
        check_all([
            (refusal.is_signed_by(&self.broker_key), UserError::BrokerSignature),
            (refusal.broker == self.broker, UserError::OtherBroker),
            (refusal.asker == self.operator, UserError::OtherOperator),
            (refusal.request == self.request, UserError::OtherRequest),
        ])?;
        Ok(refusal)
    }
}

/// The keys of an answer whose carrier is not verified yet: the user derives the NAS keys from K_SEAF, verifies the MAC of the SECURITY
/// MODE COMMAND that brought the answer, and commits only then.
#[derive(Debug)]
pub struct TentativeSession {
    session: UserSession,
    ticket: Option<Ticket>,
    next_key: Option<EpochKey>,
}

impl TentativeSession {
    /// For the verification of the MAC.
    pub const fn k_seaf(&self) -> &KSeaf {
        &self.session.k_seaf
    }

    /// The grant, whose pseudonym K_AMF is bound to.
    pub const fn grant(&self) -> &Grant {
        &self.session.grant
    }

    /// The MAC was right. Ends the attach, which wipes its ephemeral keys, and leaves the ticket and the next key on the SIM.
    pub fn commit(self, attach: UserAttach, sim: &mut UserSim) -> UserSession {
        drop(attach);
        sim.ticket = self.ticket.or(sim.ticket.take());
        sim.epoch = self.next_key.unwrap_or(sim.epoch);
        self.session
    }
}

/// The state of an attach at the user.
#[derive(Debug)]
pub struct UserSession {
    /// The grant of the session.
    pub grant: Grant,
    /// Where the 5G key hierarchy starts.
    pub k_seaf: KSeaf,
    /// Between the user and the broker.
    pub k_ausf: KAusf,
}
