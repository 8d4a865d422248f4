//! The broker as the home network of ordinary 3GPP UEs that are hidden from the operator: UDM, ARPF and AUSF
//! of 5G-AKA (TS 33.501 §6.1.3.2), without a confirmation.
//!
//! The broker sends K_AMF at once, sealed under a key of the RES* that it expects: an operator that has no UE
//! there opens nothing, and cannot bill. The broker computes K_AMF itself, for its derivation needs the SUPI
//! (TS 33.501 §A.7). The serving network is the broker's own PLMN, whichever operator serves.
//!
//! Each vector has the SQN after the last, which is durable before the vector leaves ([`HomeAnswered`]).

use std::collections::BTreeMap;

use whimbrel_broker_common::certificate::Validity;
use whimbrel_broker_common::crypto::{Seed, Share};
use whimbrel_broker_common::home::{last_sqn, vector};
use whimbrel_broker_common::id::{Pseudonym, UserId};
use whimbrel_ids::{Instant, Supi};
use whimbrel_security::{Abba, AkaFunctions, HomeNetworkKeys, ProtectionScheme, Sqn, SuciError};

use super::{Broker, BrokerEvent, BrokerOutput, BrokerSession, Record};
use crate::crypto::{HomeKeys, VEIL};
use crate::msg::{
    Answer, AnswerBody, AnswerKey, Grant, HomeRequest, HomeVector, OperatorOrders, RefusalCause, Rejection,
    SignedGrant,
};

/// A user with a USIM in place of a key pair.
#[derive(Clone, Debug)]
pub struct HomeUser {
    /// The identity in reports and bills.
    pub user: UserId,
    /// The keyed functions of the USIM.
    pub functions: AkaFunctions,
    /// Whether the subscription has ended.
    pub revoked: bool,
    /// Which class; one that the policy lacks is refused.
    pub class: u8,
    /// Whether the user has paid before, and gets slices.
    pub prepaid: bool,
    /// Whether operators must intercept the user's sessions.
    pub intercept: bool,
    /// The last SQN that a vector had.
    pub sqn: Sqn,
}

/// That a vector was made of an SQN, and for which answer. It holds no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeAnswered {
    /// SUPI of the subscriber.
    pub supi: Supi,
    /// Identity of the user.
    pub user: UserId,
    /// The vector's SQN.
    pub sqn: Sqn,
    /// Key of the request.
    pub key: AnswerKey,
    /// When it was answered, in seconds since the Unix epoch.
    pub given_s: u64,
    /// The answer as it was sent.
    pub octets: Vec<u8>,
}

impl HomeAnswered {
    pub(super) fn to_octets(&self) -> Vec<u8> {
        let supi: Vec<u8> = self.supi.digits().map(|digit| b'0' + digit).collect();
        let given = self.given_s.to_be_bytes();
        [&supi[..], &self.user.0, &self.sqn.octets(), &self.key.0, &given, &self.octets].concat()
    }
}

/// The keys and challenges that the broker has as a home network.
#[derive(Debug, Default)]
pub(super) struct HomeState {
    keys: HomeNetworkKeys,
    users: BTreeMap<Supi, HomeUser>,
}

impl HomeState {
    pub(super) fn used(&mut self, answered: &HomeAnswered) {
        if let Some(user) = self.users.get_mut(&answered.supi) {
            user.sqn = user.sqn.max(answered.sqn);
        }
    }
}

impl Broker {
    /// Deconceals the SUCIs of its UEs with these keys.
    pub fn set_home_keys(&mut self, keys: HomeNetworkKeys) {
        self.home.keys = keys;
    }

    /// Adds a user with a USIM, or replaces what is known of one. SQN never goes back.
    pub fn set_home_user(&mut self, supi: Supi, mut user: HomeUser) {
        if let Some(before) = self.home.users.get(&supi) {
            user.sqn = user.sqn.max(before.sqn);
        }
        self.home.users.insert(supi, user);
    }

    /// What is known of a user with a USIM.
    pub fn home_user(&self, supi: Supi) -> Option<&HomeUser> {
        self.home.users.get(&supi)
    }

    /// Answers a request for an ordinary UE. The same request gets the same answer for [`ANSWER_KEPT_S`](super::ANSWER_KEPT_S).
    pub(super) fn attach_home(&mut self, octets: &[u8], now: Instant, seed: &Seed) -> BrokerOutput {
        let asked = match self.home_in_group(octets, now) {
            Ok(asked) => asked,
            Err(cause) => return super::rejected(cause),
        };
        let request = asked.question.hash();
        let key = AnswerKey::new(&request, &asked.group, &asked.question.share);
        if let Some(octets) = self.given(&key) {
            return BrokerOutput { octets, event: BrokerEvent::Repeated, record: None };
        }
        let (supi, user) = match self.subscriber(&asked) {
            Ok(found) => found,
            Err(cause) => return self.refuse_request(asked.group, request, cause),
        };
        let last = last_sqn(asked.question.resynchronisation.as_ref(), &user.functions, user.sqn)
            .ok_or(RefusalCause::Resynchronisation);
        let challenged =
            last.and_then(|last| self.challenge(&asked, (supi, &user), last.next(), (key, now), seed));
        match challenged {
            Ok((octets, grant)) => {
                let (sqn, user, given_s) = (last.map_or(user.sqn, Sqn::next), user.user, now.as_secs());
                let answered = HomeAnswered { supi, user, sqn, key, given_s, octets: octets.clone() };
                let record = Record::Home(answered);
                self.restore(record.clone());
                let event = BrokerEvent::Challenged(Box::new(BrokerSession { user, grant }));
                BrokerOutput { octets, event, record: Some(record) }
            }
            Err(cause) => self.refuse_request(asked.group, request, cause),
        }
    }

    fn home_in_group(&self, octets: &[u8], now: Instant) -> Result<HomeRequest, Rejection> {
        let asked = HomeRequest::parse(octets).map_err(|_| Rejection::Malformed)?;
        let key = self.open_group_key(&asked.question.broker, asked.group, now)?;
        if asked.is_signed_by(&key) { Ok(asked) } else { Err(Rejection::TokenSignature) }
    }

    /// The SIDF (TS 33.501 §6.12.5) and the subscriber.
    fn subscriber(&self, asked: &HomeRequest) -> Result<(Supi, HomeUser), RefusalCause> {
        let (scheme, key_id, output) = asked.question.suci.parts();
        let network = self.config.network;
        let scheme = ProtectionScheme::from_identifier(scheme).ok_or(RefusalCause::Envelope)?;
        let supi = self.home.keys.deconceal(network, scheme, key_id, output).map_err(|e| match e {
            SuciError::UnknownKey { .. } => RefusalCause::UnknownKey,
            _ => RefusalCause::Envelope,
        })?;
        let user = self.home.users.get(&supi).filter(|user| !user.revoked);
        Ok((supi, user.ok_or(RefusalCause::User)?.clone()))
    }

    fn challenge(
        &self,
        asked: &HomeRequest,
        (supi, user): (Supi, &HomeUser),
        sqn: Sqn,
        (key, now): (AnswerKey, Instant),
        seed: &Seed,
    ) -> Result<(Vec<u8>, Grant), RefusalCause> {
        let policy = &self.config.policy;
        let class = policy.classes.get(usize::from(user.class)).ok_or(RefusalCause::User)?;
        let (half, rand) = (*VEIL.draw(seed, "half"), *VEIL.draw::<16>(seed, "RAND"));
        let vector = vector(&user.functions, rand, sqn, self.config.network);
        let res_star = vector.xres_star.octets();
        let keys = HomeKeys { half: &half, res_star, rand: &rand, group: &asked.group.0 };
        let k_amf = vector.k_seaf.k_amf(supi, Abba::RELEASE_15);
        let home = HomeVector {
            rand,
            autn: vector.autn.0,
            hxres_star: *vector.hxres_star.octets(),
            k_amf: keys.seal(k_amf.octets()),
        };
        let orders = OperatorOrders {
            half,
            intercept: user.intercept,
            poll_s: policy.poll_s,
            filters: class.filters.clone(),
        };
        let orders = orders.seal(&asked.question.share, &key, seed).ok_or(RefusalCause::WeakShare)?;
        let from = now.as_secs();
        let grant = Grant {
            broker: self.config.domain.clone(),
            network: self.config.network,
            pseudonym: Pseudonym(*VEIL.draw(seed, "pseudonym")),
            group: asked.group,
            qos: class.qos,
            validity: Validity { from, until: from.saturating_add(policy.validity_s) },
            slice_octets: user.prepaid.then_some(policy.slice_octets),
            request: asked.question.hash(),
            user_share: Share::NONE,
            operator_share: asked.question.share,
            orders: home.hash_with(&orders),
            expected: keys.presence().expected(),
        };
        let signed = SignedGrant::sign(grant.clone(), &self.config.signing);
        let answer = Answer(AnswerBody::Challenged { grant: signed, orders, vector: home });
        Ok((answer.to_octets(), grant))
    }
}
