//! The broker as the home network of ordinary 3GPP UEs (class 2): UDM, ARPF and AUSF of 5G-AKA with home control (TS 33.501 §6.1.3.2).
//!
//! The operator asks for a challenge and then shows the UE's response; only for that does the broker release
//! SUPI and K_SEAF, and grant. So an operator gets no grant for a UE that is not at it, and learns no SUPI
//! from a SUCI that it has only seen. A vector is bound to the serving network name of the PLMN in the
//! operator's certificate: no other network can use it.
//!
//! Each vector has the SQN after the last, which is durable before the vector leaves ([`HomeRecord`]).

use std::collections::{BTreeMap, VecDeque};

use whimbrel_broker_common::home::{last_sqn, vector};
use whimbrel_ids::{Instant, PlmnId, Supi};
use whimbrel_security::{
    AkaFunctions, AuthenticationVector, HomeNetworkKeys, ProtectionScheme, ResStar, Sqn, SuciError,
};

use super::{ANSWER_KEPT, Broker, BrokerEvent, BrokerOutput, BrokerSession, Record};
use crate::crypto::{KAusf, KSeaf, SAP, Seed, Signature, hash};
use crate::id::{OperatorId, Pseudonym, UserId};
use crate::msg::{
    AnswerBody, Confirmation, Filter, Grant, OperatorOrders, Qos, RefusalCause, Rejection, Release,
    SignedChallenge, SignedGrant, Subject, Subscriber, VectorRequest,
};

/// The broker's home network.
#[derive(Clone, Debug)]
pub struct Home {
    /// The PLMN of its USIMs: the first digits of each IMSI.
    pub plmn: PlmnId,
    /// The private keys of its SUCIs.
    pub keys: HomeNetworkKeys,
    /// The amount that the broker pays for a session of an ordinary UE at most: it is paid on the operator's word alone.
    pub credit_micros: u64,
}

/// A user with a USIM.
#[derive(Clone, Debug)]
pub struct HomeUser {
    /// The user's identity, in grants and statements.
    pub user: UserId,
    /// The keyed functions of the USIM.
    pub functions: AkaFunctions,
    /// Whether the subscription has ended.
    pub revoked: bool,
    /// The QoS that the user is due.
    pub qos: Qos,
    /// Whether operators must intercept the user's sessions.
    pub intercept: bool,
    /// What operators must drop; at most [`OperatorOrders::FILTERS_MAX`].
    pub filters: Vec<Filter>,
    /// The last SQN that a vector had.
    pub sqn: Sqn,
}

/// An answer to a question about an ordinary UE: durable before it leaves. It holds no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeRecord {
    /// SUPI of the subscriber.
    pub supi: Supi,
    /// Identity of the user.
    pub user: UserId,
    /// Identity of the operator.
    pub operator: OperatorId,
    /// Hash of the vector request.
    pub request: [u8; 32],
    /// The vector's SQN.
    pub sqn: Sqn,
    /// The vector's challenge.
    pub rand: [u8; 16],
    /// Hash of the confirmation that this is the answer to; none: it is the challenge; that of the vector request: it is the refusal of
    /// that, and there was no challenge.
    pub confirmation: Option<[u8; 32]>,
    /// When it was answered.
    pub given: Instant,
    /// The answer as it was sent.
    pub octets: Vec<u8>,
}

/// The keys and challenges that the broker has as a home network.
#[derive(Debug, Default)]
pub(super) struct HomeState {
    home: Option<Home>,
    users: BTreeMap<Supi, HomeUser>,
    /// Challenges, and the answers that they led to, by operator and vector request: as many as the broker gives in [`ANSWER_KEPT`].
    records: BTreeMap<(OperatorId, [u8; 32]), HomeRecord>,
    /// When each was given, oldest first.
    given: VecDeque<(Instant, OperatorId, [u8; 32])>,
}

impl Broker {
    /// Serves ordinary UEs of this home network from now on.
    pub fn set_home(&mut self, home: Home) {
        self.home.home = Some(home);
    }

    /// Adds a user with a USIM, or replaces what is known of one. SQN never goes back.
    pub fn set_home_user(&mut self, supi: Supi, mut user: HomeUser) {
        assert!(user.filters.len() <= OperatorOrders::FILTERS_MAX);
        if let Some(before) = self.home.users.get(&supi) {
            user.sqn = user.sqn.max(before.sqn);
        }
        self.home.users.insert(supi, user);
    }

    /// The record that the broker has of a user with a USIM.
    pub fn home_user(&self, supi: Supi) -> Option<&HomeUser> {
        self.home.users.get(&supi)
    }

    /// Takes over what a broker that failed had made durable, or what it has just answered.
    pub(super) fn restore_home(&mut self, record: HomeRecord) {
        if let Some(user) = self.home.users.get_mut(&record.supi) {
            user.sqn = user.sqn.max(record.sqn);
        }
        self.home.given.push_back((record.given, record.operator, record.request));
        self.home.records.insert((record.operator, record.request), record);
    }

    /// Drops the answers that are too old to be given again.
    pub(super) fn forget_home(&mut self, now: Instant) {
        while let Some((at, operator, request)) = self.home.given.front().copied()
            && now.since(at) > ANSWER_KEPT
        {
            self.home.given.pop_front();
            let key = (operator, request);
            // One that was answered later is kept for as long from then on.
            if self.home.records.get(&key).is_some_and(|r| r.given == at) {
                self.home.records.remove(&key);
            }
        }
    }

    /// Whether a confirmation is of a challenge that was given: it goes before new questions.
    pub(super) fn awaits(&self, confirmation: &Confirmation) -> bool {
        let Subject::Operator(id) = confirmation.asker.certificate.subject else { return false };
        self.home.records.contains_key(&(id, confirmation.question.request))
    }

    /// Answers a vector request.
    pub(super) fn challenge(&mut self, octets: &[u8], now: Instant, seed: &Seed) -> BrokerOutput {
        let Ok(asked) = VectorRequest::parse(octets) else { return self.reject(Rejection::Malformed) };
        let (question, asker) = (&asked.question, &asked.asker);
        let signed = |id| asked.is_signed_by(id);
        let operator = match self.operator(&question.broker, &asker.certificate, signed, asker.time, now) {
            Ok(id) => id,
            Err(cause) => return self.reject(cause),
        };
        let request = question.hash(operator, &asker.terms);
        if let Some(record) = self.home.records.get(&(operator, request)) {
            return match record.confirmation {
                None => repeated(record),
                Some(refused) if refused == request => repeated(record),
                Some(_) => self.refuse_by(operator, request, RefusalCause::CounterUsed, Some(record.user)),
            };
        }
        let (supi, user) = match self.subscriber(&question.subscriber) {
            Ok(found) => found,
            Err(cause) => return self.refuse_by(operator, request, cause, None),
        };
        let resynchronised = || {
            last_sqn(question.resynchronisation.as_ref(), &user.functions, user.sqn)
                .ok_or(RefusalCause::Resynchronisation)
        };
        let permitted = self
            .may_serve(operator, &user)
            .and_then(|()| self.accepts(operator, &asker.terms, &user.qos))
            .and_then(|()| resynchronised());
        let last = match permitted {
            Ok(last) => last,
            Err(cause) => {
                // The same request is not granted when the policy has changed.
                let BrokerOutput { octets, event, .. } =
                    self.refuse_by(operator, request, cause, Some(user.user));
                let (sqn, user, given) = (user.sqn, user.user, now);
                let (rand, confirmation) = ([0; 16], Some(request));
                let record =
                    HomeRecord { supi, user, operator, request, sqn, rand, confirmation, given, octets };
                return self.keep(record, event);
            }
        };
        let rand = *SAP.draw(seed, "RAND");
        let sqn = last.next();
        let vector = vector(&user.functions, rand, sqn, operator.plmn);
        let challenge = SignedChallenge {
            broker: self.config.domain.clone(),
            operator,
            request,
            rand,
            autn: vector.autn.0,
            hxres_star: *vector.hxres_star.octets(),
            signature: Signature::NONE,
        };
        let octets = self.octets(AnswerBody::Challenged(challenge.sign(&self.config.signing)));
        let event = BrokerEvent::Challenged { user: user.user };
        let user = user.user;
        let given = now;
        let record =
            HomeRecord { supi, user, operator, request, sqn, rand, confirmation: None, given, octets };
        self.keep(record, event)
    }

    /// Answers a confirmation.
    pub(super) fn release(&mut self, octets: &[u8], now: Instant, seed: &Seed) -> BrokerOutput {
        let Ok(asked) = Confirmation::parse(octets) else { return self.reject(Rejection::Malformed) };
        let (question, asker) = (&asked.question, &asked.asker);
        let signed = |id| asked.is_signed_by(id);
        let operator = match self.operator(&question.broker, &asker.certificate, signed, asker.time, now) {
            Ok(id) => id,
            Err(cause) => return self.reject(cause),
        };
        let (request, confirmation) = (question.request, question.hash(operator, &asker.terms));
        let Some(record) = self.home.records.get(&(operator, request)).cloned() else {
            return self.refuse_by(operator, request, RefusalCause::NoChallenge, None);
        };
        match record.confirmation {
            Some(before) if before == confirmation => return repeated(&record),
            Some(_) => {
                return self.refuse_by(operator, request, RefusalCause::CounterUsed, Some(record.user));
            }
            None => {}
        }
        let Some(user) = self.home.users.get(&record.supi).cloned() else {
            return self.refuse_by(operator, request, RefusalCause::UnknownUser, None);
        };
        let vector = vector(&user.functions, record.rand, record.sqn, operator.plmn);
        let right = vector.res_star_matches(&ResStar::new(question.res_star));
        let granted = if right { Ok(()) } else { Err(RefusalCause::Response) };
        let granted = granted
            .and_then(|()| self.may_serve(operator, &user))
            .and_then(|()| self.accepts(operator, &asker.terms, &user.qos))
            .and_then(|()| {
                self.grant_home(&asked, (operator, &confirmation), (record.supi, &user), &vector, now, seed)
            });
        let BrokerOutput { octets, event, .. } =
            granted.unwrap_or_else(|cause| self.refuse_by(operator, request, cause, Some(user.user)));
        // A challenge is good for one response: the operator cannot try out others.
        let record = HomeRecord { confirmation: Some(confirmation), given: now, octets, ..record };
        self.keep(record, event)
    }

    fn grant_home(
        &self,
        asked: &Confirmation,
        (operator, confirmation): (OperatorId, &[u8; 32]),
        (supi, user): (Supi, &HomeUser),
        vector: &AuthenticationVector,
        now: Instant,
        seed: &Seed,
    ) -> Result<BrokerOutput, RefusalCause> {
        let share = asked.question.share;
        let k_seaf = KSeaf::new(*vector.k_seaf.octets());
        let release = Release { supi, k_seaf, intercept: user.intercept, filters: user.filters.clone() };
        let release = release.seal(&share, confirmation, seed).ok_or(RefusalCause::WeakShare)?;
        let policy = &self.config.policy;
        let credit = self.home.home.as_ref().map_or(0, |h| h.credit_micros.min(policy.credit_micros));
        let grant = Grant {
            broker: self.config.domain.clone(),
            pseudonym: Pseudonym(*SAP.draw(seed, "pseudonym")),
            operator,
            terms: asked.asker.terms.clone(),
            qos: user.qos,
            validity: self.validity(now),
            credit_micros: credit,
            request: asked.question.request,
            user_share: Grant::NO_SHARE,
            operator_share: share,
            orders: hash(&release),
        };
        let signed = SignedGrant::sign(grant.clone(), &self.config.signing);
        let octets = self.octets(AnswerBody::Released { grant: signed, release });
        let session = BrokerSession { user: user.user, grant, k_ausf: KAusf::new(*vector.k_ausf.octets()) };
        Ok(BrokerOutput { octets, event: BrokerEvent::Granted(Box::new(session)), record: None })
    }

    fn keep(&mut self, record: HomeRecord, event: BrokerEvent) -> BrokerOutput {
        let octets = record.octets.clone();
        self.restore_home(record.clone());
        BrokerOutput { octets, event, record: Some(Record::Home(record)) }
    }

    /// The SIDF (TS 33.501 §6.12.5) and the subscriber.
    fn subscriber(&self, subscriber: &Subscriber) -> Result<(Supi, HomeUser), RefusalCause> {
        let home = self.home.home.as_ref().ok_or(RefusalCause::UnknownUser)?;
        let supi = match subscriber {
            Subscriber::Supi(supi) => *supi,
            Subscriber::Suci { plmn, .. } if *plmn != home.plmn => return Err(RefusalCause::UnknownUser),
            Subscriber::Suci { plmn, scheme, key_id, output } => {
                let scheme = ProtectionScheme::from_identifier(*scheme).ok_or(RefusalCause::Envelope)?;
                home.keys.deconceal(*plmn, scheme, *key_id, output).map_err(|e| match e {
                    SuciError::UnknownKey { .. } => RefusalCause::UnknownKey,
                    _ => RefusalCause::Envelope,
                })?
            }
        };
        let user = self.home.users.get(&supi).filter(|_| supi.is_of(home.plmn));
        Ok((supi, user.ok_or(RefusalCause::UnknownUser)?.clone()))
    }

    /// A serving network name has no NID here, so a non-public network serves SAP UEs alone (TS 33.501 §6.1.1.4).
    fn may_serve(&self, operator: OperatorId, user: &HomeUser) -> Result<(), RefusalCause> {
        match (user.revoked, operator.nid) {
            (true, _) => Err(RefusalCause::UserRevoked),
            (false, Some(_)) => Err(RefusalCause::OperatorNotAllowed),
            (false, None) => Ok(()),
        }
    }
}

fn repeated(record: &HomeRecord) -> BrokerOutput {
    let event = BrokerEvent::Repeated { user: record.user };
    BrokerOutput { octets: record.octets.clone(), event, record: None }
}
