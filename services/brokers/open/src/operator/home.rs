//! The operator's part for an ordinary 3GPP UE of a broker's (class 2): the broker challenges it through the
//! operator, and releases SUPI, K_SEAF and grant for the UE's response. The operator is the SEAF of TS 33.501
//! §6.1.3.2, the broker the AUSF.

use whimbrel_broker_common::check_all;
use whimbrel_ids::{Instant, Supi};

use super::{OperatorError, Question};
use crate::crypto::{KSeaf, PrivateKey, SAP, Seed, hash};
use crate::id::{Domain, OperatorId};
use crate::msg::{
    AnswerBody, AnswerT, Certificate, ConfirmationQuestion, Filter, Grant, Release, Resynchronisation,
    SignedChallenge, SignedGrant, SignedRefusal, Subscriber, Terms, Trust, VectorQuestion,
};

/// The operator has asked for a challenge. What it asks is a function of the UE, its terms and the seed, so a
/// replica that has these asks the same.
#[derive(Debug)]
pub struct HomeAttach {
    id: OperatorId,
    terms: Terms,
    broker: Domain,
    request: [u8; 32],
    private: PrivateKey,
}

/// What the operator sends to the UE, and what it compares the UE's response with (TS 33.501 §6.1.3.2 steps 6 and 9).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// RAND of the challenge.
    pub rand: [u8; 16],
    /// AUTN of the challenge.
    pub autn: [u8; 16],
    /// HXRES* that the response has to meet.
    pub hxres_star: [u8; 16],
}

/// Redacted, as vectors are.
impl core::fmt::Debug for Challenge {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Challenge(…)")
    }
}

/// What the operator has of an ordinary UE that its broker has authenticated.
#[derive(Debug)]
pub struct HomeSession {
    /// The evidence that the operator shows to a judge.
    pub grant: SignedGrant,
    /// SUPI of the subscriber.
    pub supi: Supi,
    /// Where the 5G key hierarchy starts.
    pub k_seaf: KSeaf,
    /// True if the operator must intercept.
    pub intercept: bool,
    /// Traffic that the operator must drop.
    pub filters: Vec<Filter>,
}

impl HomeAttach {
    /// The operator `id` asks `broker` for a challenge of its UE and offers `terms`. Gives what is to be signed and sent.
    pub fn ask(
        (id, terms): (OperatorId, Terms),
        broker: Domain,
        subscriber: Subscriber,
        resynchronisation: Option<Resynchronisation>,
        seed: &Seed,
    ) -> (Self, Question) {
        let nonce = *SAP.draw(seed, "nonce");
        let question = VectorQuestion { broker, subscriber, nonce, resynchronisation };
        let request = question.hash(id, &terms);
        let private = SAP.ephemeral_key(seed);
        let attach = Self { id, terms: terms.clone(), broker: question.broker.clone(), request, private };
        (attach, Question::Vector { question, terms })
    }

    /// Checks the broker's answer: its challenge of the UE.
    pub fn challenge(&self, octets: &[u8], trust: &Trust, now: Instant) -> Result<Challenge, OperatorError> {
        let (certificate, body) = self.answer(octets, trust, now)?;
        let AnswerBody::Challenged(challenge) = body else { return Err(OperatorError::OtherAnswer) };
        let SignedChallenge { operator, request, rand, autn, hxres_star, .. } = challenge;
        check_all([
            (challenge.is_signed_by(&certificate.key), OperatorError::BrokerSignature),
            (challenge.broker == self.broker, OperatorError::OtherBroker),
            (operator == self.id, OperatorError::OtherOperator),
            (request == self.request, OperatorError::OtherRequest),
        ])?;
        Ok(Challenge { rand, autn, hxres_star })
    }

    /// The UE has responded with this RES*. Gives what is to be signed and sent.
    pub fn confirm(&self, res_star: [u8; 16]) -> Question {
        Question::Confirmation { question: self.confirmation(res_star), terms: self.terms.clone() }
    }

    fn confirmation(&self, res_star: [u8; 16]) -> ConfirmationQuestion {
        let (broker, share) = (self.broker.clone(), self.private.share());
        ConfirmationQuestion { broker, request: self.request, res_star, share }
    }

    /// Checks the broker's answer to the confirmation with this RES*, with what the operator trusts now. An
    /// answer that fails a check changes nothing.
    pub fn release(
        &self,
        octets: &[u8],
        res_star: [u8; 16],
        trust: &Trust,
        now: Instant,
    ) -> Result<HomeSession, OperatorError> {
        let (certificate, body) = self.answer(octets, trust, now)?;
        let AnswerBody::Released { grant: signed, release } = body else {
            return Err(OperatorError::OtherAnswer);
        };
        let grant = &signed.grant;
        check_all([
            (signed.is_signed_by(&certificate.key), OperatorError::BrokerSignature),
            (grant.broker == self.broker, OperatorError::OtherBroker),
            (grant.operator == self.id, OperatorError::OtherOperator),
            (grant.request == self.request, OperatorError::OtherRequest),
            (grant.user_share == Grant::NO_SHARE, OperatorError::OtherShare),
            (grant.operator_share == self.private.share(), OperatorError::OtherShare),
            (grant.terms == self.terms, OperatorError::TermsNotOffered),
            (self.terms.qos.covers(&grant.qos), OperatorError::QosNotOffered),
            (grant.validity.contains_within_skew(now), OperatorError::NotValidNow),
            (grant.orders == hash(&release), OperatorError::OtherOrders),
        ])?;
        let confirmation = self.confirmation(res_star).hash(self.id, &self.terms);
        let opened = Release::open(&self.private, &confirmation, &release).ok_or(OperatorError::Orders)?;
        let Release { supi, k_seaf, intercept, filters } = opened;
        Ok(HomeSession { grant: signed, supi, k_seaf, intercept, filters })
    }

    /// The broker's word, or why it is none.
    fn answer(
        &self,
        octets: &[u8],
        trust: &Trust,
        now: Instant,
    ) -> Result<(Certificate, AnswerBody), OperatorError> {
        let AnswerT { certificate, body } = AnswerT::parse(octets)?;
        // A rejection carries no signature, so the certificate beside it proves nothing.
        if let AnswerBody::Rejected(cause) = body {
            return Err(OperatorError::Rejected(cause));
        }
        let broker = trust.broker(&certificate, now).map_err(OperatorError::BrokerCertificate)?;
        if *broker != self.broker {
            return Err(OperatorError::OtherBroker);
        }
        match body {
            AnswerBody::Refused(refusal) => Err(self.refused(refusal, &certificate)),
            body => Ok((certificate, body)),
        }
    }

    fn refused(&self, refusal: SignedRefusal, certificate: &Certificate) -> OperatorError {
        let of = (&self.broker, self.id, &self.request);
        super::refused(of, refusal, certificate)
    }
}
