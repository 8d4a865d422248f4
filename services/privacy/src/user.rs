//! The user: the SIM, an attach, and the session that comes of it (chapter 4.4.2, steps ii and v).
//!
//! ```text
//! UserSim ── begin ──► UserAttach ── challenge ──► Responding ── commit ──► UserSession
//!                      ├──────── refusal ──► SignedRefusal: try another operator
//!                      └──────── fail ──► Failure, sealed to the broker
//! ```
//! A challenge or a refusal that fails a check changes nothing: the attach waits for the true one until its timer ends it.

use whimbrel_broker_common::check_all;
use whimbrel_broker_common::crypto::{KSeaf, PrivateKey, Seed};
use whimbrel_broker_common::id::{Domain, UserId};
use whimbrel_broker_common::request::EpochKey;
use whimbrel_ids::{DecodeError, Instant, PlmnId};

use crate::crypto::{Exporter, Response, SigningKey, VEIL, VerifyingKey, attach_key};
use crate::msg::{
    Challenge, Failure, FailureCause, Grant, SignedGrant, SignedRefusal, UserAnswer, UserRequest, UserVector,
};
use crate::token::{TokenHash, TokenTag};

/// What the SIM holds for one broker.
#[derive(Clone, Debug)]
pub struct UserSim {
    /// The user's identity in the broker's domain.
    pub user: UserId,
    /// Domain of the broker.
    pub broker: Domain,
    /// The broker's PLMN, which all its operators broadcast.
    pub network: PlmnId,
    /// Under which the broker signs.
    pub broker_key: VerifyingKey,
    /// To which requests are sealed.
    pub epoch: EpochKey,
    /// The user's own key.
    pub signing: SigningKey,
    /// The last counter used. It must be stored before a request leaves.
    pub counter: u64,
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
    /// The serving network is not the broker's.
    OtherNetwork,
    /// The answer is for another token than the one that the user heard.
    OtherToken,
    /// The answer is for another request of the user's.
    OtherRequest,
    /// The answer names another ephemeral share than the user's.
    OtherShare,
    /// The grant is not valid now.
    NotValidNow,
    /// The grant expects another response than the user's.
    OtherResponse,
    /// The operator's share is of small order.
    WeakShare,
}

impl UserError {
    /// The cause that the broker reads.
    pub const fn cause(&self) -> FailureCause {
        match self {
            Self::Malformed(_) | Self::Sealed => FailureCause::Sealed,
            Self::NotValidNow => FailureCause::NotValidNow,
            Self::BrokerSignature
            | Self::OtherBroker
            | Self::OtherNetwork
            | Self::OtherToken
            | Self::OtherRequest
            | Self::OtherShare
            | Self::OtherResponse
            | Self::WeakShare => FailureCause::Grant,
        }
    }
}

impl core::fmt::Display for UserError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Malformed(e) => return write!(f, "{e}"),
            Self::Sealed => "the challenge was not sealed by the broker for this request",
            Self::BrokerSignature => "the broker's signature is wrong",
            Self::OtherBroker => "the challenge is of another broker",
            Self::OtherNetwork => "the serving network is not the broker's",
            Self::OtherToken => "the challenge is for another token",
            Self::OtherRequest => "the challenge is for another request",
            Self::OtherShare => "the challenge names another ephemeral share",
            Self::NotValidNow => "the grant is not valid now",
            Self::OtherResponse => "the grant expects another response",
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
    network: PlmnId,
    epoch: EpochKey,
    token: TokenHash,
    request: [u8; 32],
    private: PrivateKey,
    exporter: Exporter,
}

impl UserAttach {
    /// Asks to be served by the owner of the token that the user hears. Takes the next counter from the SIM. `None` if the broker's key on
    /// the SIM is of small order or the counter is at its end.
    pub fn begin(sim: &mut UserSim, token: TokenHash, seed: &Seed) -> Option<(Self, UserRequest)> {
        sim.counter = sim.counter.checked_add(1)?;
        let private = VEIL.ephemeral_key(seed);
        let fields = (sim.user, token, sim.counter);
        let (request, exporter) =
            UserRequest::seal(sim.broker.clone(), &sim.epoch, TokenTag::new(&token), seed, |head| {
                UserVector::signed(head, fields, *VEIL.draw(seed, "nonce"), private.share(), &sim.signing)
            })?;
        let attach = Self {
            broker: sim.broker.clone(),
            broker_key: sim.broker_key,
            network: sim.network,
            epoch: sim.epoch,
            token,
            request: request.hash(),
            private,
            exporter,
        };
        Some((attach, request))
    }

    /// Checks a challenge, and derives the response and the keys. The attach stays, since what carried the challenge is not verified
    /// yet.
    pub fn challenge(&self, octets: &[u8], now: Instant) -> Result<Responding, UserError> {
        let challenge = Challenge::parse(octets)?;
        let plain = self.exporter.open(&challenge.salt, &challenge.sealed).ok_or(UserError::Sealed)?;
        let UserAnswer { grant, half, challenge, next_key } = UserAnswer::parse(&plain)?;
        let response = self.exporter.response(&challenge, &self.request);
        self.check(&grant, &response, now)?;
        let (share, transcript) = (&grant.grant.operator_share, grant.grant.transcript());
        let k_seaf = attach_key(&half, &response, &self.private, share, &transcript);
        let session = UserSession { grant: grant.grant, k_seaf: k_seaf.ok_or(UserError::WeakShare)? };
        Ok(Responding { session, response, next_key })
    }

    fn check(&self, signed: &SignedGrant, response: &Response, now: Instant) -> Result<(), UserError> {
        let grant = &signed.grant;
        check_all([
            (signed.is_signed_by(&self.broker_key), UserError::BrokerSignature),
            (grant.broker == self.broker, UserError::OtherBroker),
            (grant.network == self.network, UserError::OtherNetwork),
            (grant.group == self.token, UserError::OtherToken),
            (grant.request == self.request, UserError::OtherRequest),
            (grant.user_share == self.private.share(), UserError::OtherShare),
            (grant.validity.contains_within_skew(now), UserError::NotValidNow),
            (grant.expected == response.expected(), UserError::OtherResponse),
        ])
    }

    /// The statement of the user about a challenge that it does not accept: the cause is sealed to the broker, so that
    /// a challenge that is played again to many UEs finds none of them out.
    pub fn fail(&self, error: &UserError, seed: &Seed) -> Option<Failure> {
        Failure::seal(&self.epoch, error.cause(), &self.request, seed)
    }

    /// Checks a refusal. It counts only if the broker signed it over this request and the token that the user heard.
    pub fn refusal(&self, octets: &[u8]) -> Result<SignedRefusal, UserError> {
        let refusal = SignedRefusal::parse(octets)?;
        check_all([
            (refusal.is_signed_by(&self.broker_key), UserError::BrokerSignature),
            (refusal.broker == self.broker, UserError::OtherBroker),
            (refusal.asker == self.token, UserError::OtherToken),
            (refusal.request == self.request, UserError::OtherRequest),
        ])?;
        Ok(refusal)
    }
}

/// The user has responded: the keys are tentative until the MAC of SECURITY MODE COMMAND proves that the operator has them too.
#[derive(Debug)]
pub struct Responding {
    session: UserSession,
    response: Response,
    next_key: Option<EpochKey>,
}

impl Responding {
    /// For the operator.
    pub const fn response(&self) -> &Response {
        &self.response
    }

    /// For the verification of the MAC.
    pub const fn k_seaf(&self) -> &KSeaf {
        &self.session.k_seaf
    }

    /// The grant, whose pseudonym K_AMF is bound to.
    pub const fn grant(&self) -> &Grant {
        &self.session.grant
    }

    /// The MAC was right. Ends the attach, which wipes its ephemeral keys, and leaves the next key on the SIM.
    pub fn commit(self, attach: UserAttach, sim: &mut UserSim) -> UserSession {
        drop(attach);
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
}
