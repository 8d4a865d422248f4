//! The operator's part for an ordinary 3GPP UE that it does not know: the broker challenges the UE through Ô,
//! and the UE's RES* opens the K_AMF that the broker has sealed. The operator is the SEAF of TS 33.501
//! §6.1.3.2 and never learns SUPI, K_AUSF or K_SEAF.

use whimbrel_broker_common::crypto::{PrivateKey, Seed};
use whimbrel_broker_common::home::Resynchronisation;
use whimbrel_broker_common::session::Filter;
use whimbrel_ids::Instant;
use whimbrel_security::KAmf;

use super::{Contract, OperatorError};
use crate::crypto::{HomeKeys, Response, VEIL};
use crate::msg::{
    Answer, AnswerBody, AnswerKey, HomeQuestion, HomeVector, OperatorOrders, SignedGrant, Suci,
};

/// The operator has asked for an ordinary UE and waits. What it has asked is a function of the SUCI and the seed.
#[derive(Debug)]
pub struct HomeAttach {
    contract: Contract,
    question: [u8; 32],
    private: PrivateKey,
}

impl HomeAttach {
    /// Asks for a challenge of the UE. Gives what is to be signed and sent.
    pub fn ask(
        contract: Contract,
        suci: Suci,
        resynchronisation: Option<Resynchronisation>,
        seed: &Seed,
    ) -> (Self, HomeQuestion) {
        let private = VEIL.ephemeral_key(seed);
        let (broker, share, nonce) = (contract.broker.clone(), private.share(), *VEIL.draw(seed, "nonce"));
        let question = HomeQuestion { broker, suci, nonce, resynchronisation, share };
        (Self { contract, question: question.hash(), private }, question)
    }

    /// Checks the broker's answer. An answer that fails a check changes nothing.
    pub fn answer(&self, octets: &[u8], now: Instant) -> Result<HomeChallenging, OperatorError> {
        let (grant, orders, vector) = match Answer::parse(octets)?.0 {
            AnswerBody::Challenged { grant, orders, vector } => (grant, orders, vector),
            AnswerBody::Granted { .. } => return Err(OperatorError::OtherAnswer),
            AnswerBody::Rejected(cause) => return Err(OperatorError::Rejected(cause)),
            AnswerBody::Refused(refusal) => return Err(self.contract.refused(refusal, &self.question)),
        };
        let share = self.private.share();
        self.contract.check(&grant, (&self.question, &share, &vector.hash_with(&orders)), now)?;
        let key = AnswerKey::new(&self.question, &grant.grant.group, &share);
        let orders = OperatorOrders::open(&self.private, &key, &orders).ok_or(OperatorError::Orders)?;
        Ok(HomeChallenging { grant, orders, vector })
    }
}

/// The broker has challenged, and the operator waits for the UE's RES*: without it the operator has no key.
#[derive(Debug)]
pub struct HomeChallenging {
    grant: SignedGrant,
    orders: OperatorOrders,
    vector: HomeVector,
}

impl HomeChallenging {
    /// What the operator sends to the UE, and what it compares the response with.
    pub const fn vector(&self) -> &HomeVector {
        &self.vector
    }

    /// The grant of the session.
    pub const fn grant(&self) -> &SignedGrant {
        &self.grant
    }

    /// The UE's RES* opens K_AMF. One that fails changes nothing.
    pub fn respond(&self, res_star: &[u8; 16]) -> Result<HomeSession, OperatorError> {
        let grant = &self.grant.grant;
        let (half, rand, group) = (&self.orders.half, &self.vector.rand, &grant.group.0);
        let keys = HomeKeys { half, res_star, rand, group };
        let presence = keys.presence();
        if presence.expected() != grant.expected {
            return Err(OperatorError::Response);
        }
        let k_amf = KAmf::new(*keys.open(&self.vector.k_amf).ok_or(OperatorError::Key)?);
        let OperatorOrders { intercept, poll_s, filters, .. } = self.orders.clone();
        Ok(HomeSession { grant: self.grant.clone(), presence, k_amf, intercept, poll_s, filters })
    }
}

/// What the operator has of the attach of an ordinary UE.
#[derive(Debug)]
pub struct HomeSession {
    /// The evidence that the operator shows to a judge.
    pub grant: SignedGrant,
    /// By which the operator shows the broker that the UE was there.
    pub presence: Response,
    /// Where the operator's part of the 5G key hierarchy starts.
    pub k_amf: KAmf,
    /// True if the operator must intercept.
    pub intercept: bool,
    /// How often the operator asks the broker for later orders, in seconds.
    pub poll_s: u16,
    /// Traffic that the operator must drop.
    pub filters: Vec<Filter>,
}
