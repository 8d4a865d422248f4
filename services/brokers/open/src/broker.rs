//! The broker: authenticates operator and user, judges by its policy, and grants (chapter 3.4.1, Figure 3.3).
//!
//! Each check yields what the next one needs: a request of an [`AuthenticOperator`], then an opened vector of a known user, then
//! an unused counter, then the policy. Only an authenticated operator gets a signed refusal; only a request that passed all
//! checks up to the counter uses it up.

mod home;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_broker_common::check_all;
use whimbrel_ids::Instant;

use crate::CLOCK_SKEW_MAX_S;
use crate::admission::{Admission, Origin, Turn};
use crate::crypto::{Exporter, KAusf, PrivateKey, SAP, Seed, SharedSecret, SigningKey, VerifyingKey, hash};
use crate::id::{Domain, OperatorId, Pseudonym, UserId};
use crate::msg::{
    AnswerBody, AnswerKey, AnswerT, AnswerU, AuthReqT, Certificate, CertificateError, Confirmation, EpochKey,
    Filter, Grant, OperatorOrders, Price, Qos, RefusalCause, Rejection, SapMessageType, SignedGrant,
    SignedRefusal, Subject, Terms, Ticket, Trust, UserAnswer, UserVector, Validity, VectorRequest,
};
use crate::ticket::Tickets;

pub use home::{Home, HomeRecord, HomeUser};

/// How long the broker keeps an answer to give it again: well above the time in which the operator repeats a request after a failover.
pub const ANSWER_KEPT: Duration = Duration::from_secs(60);

/// The operators that the broker accepts, and its terms.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The operators allowed; `None` allows all.
    pub operators: Option<BTreeSet<OperatorId>>,
    /// The highest price.
    pub price_cap: Price,
    /// Operators whose reputation is below this are refused.
    pub reputation_floor: u16,
    /// What an operator's reputation is before anything is known of it.
    pub reputation_newcomer: u16,
    /// How long a grant is valid, in seconds.
    pub validity_s: u64,
    /// The amount that the broker pays for a session at most, in millionths of a unit of the price's currency.
    pub credit_micros: u64,
}

/// A user as the broker has it.
#[derive(Clone, Debug)]
pub struct User {
    /// Under which the user signs.
    pub key: VerifyingKey,
    /// Whether the key is revoked.
    pub revoked: bool,
    /// The QoS that the user is due.
    pub qos: Qos,
    /// Whether operators must intercept the user's sessions.
    pub intercept: bool,
    /// What operators must drop; at most [`OperatorOrders::FILTERS_MAX`].
    pub filters: Vec<Filter>,
    /// The highest counter that was used.
    pub counter: u64,
    /// The lowest number of a ticket that is not used up.
    pub ticket: u64,
}

/// The settings that stay the same while the broker runs.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Domain of the broker.
    pub domain: Domain,
    /// Certificate of the broker's key.
    pub certificate: Certificate,
    /// The key of the certificate.
    pub signing: SigningKey,
    /// Whose word on operators it believes.
    pub trust: Trust,
    /// Policy by which it grants.
    pub policy: Policy,
}

/// The broker's machine for attaches.
#[derive(Debug)]
pub struct Broker {
    /// What stays the same.
    pub config: BrokerConfig,
    epochs: BTreeMap<u8, PrivateKey>,
    current: EpochKey,
    users: BTreeMap<UserId, User>,
    reputation: BTreeMap<OperatorId, u16>,
    /// Users that confirm less than they use (chapter 3.4.3): they get no grant until that is cleared up.
    suspects: BTreeSet<UserId>,
    tickets: Tickets,
    admission: Admission,
    /// The last answer of each user.
    answers: BTreeMap<UserId, AnswerRecord>,
    /// When each answer was given, oldest first: as many as the broker answers in [`ANSWER_KEPT`].
    given: VecDeque<(Instant, UserId, AnswerKey)>,
    home: home::HomeState,
}

/// The message that the broker sends, and the outcome of the request.
#[derive(Debug)]
pub struct BrokerOutput {
    /// The answer for the operator.
    pub octets: Vec<u8>,
    /// For the log.
    pub event: BrokerEvent,
    /// To be made durable before the answer leaves: what [`Broker::restore`] takes.
    pub record: Option<Record>,
}

/// What must be durable before an answer leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// An answer to authReqT.
    Attach(AnswerRecord),
    /// An answer about an ordinary UE.
    Home(HomeRecord),
}

impl From<AnswerRecord> for Record {
    fn from(record: AnswerRecord) -> Self {
        Self::Attach(record)
    }
}

/// That a user's counter was used, and for which answer. It holds no secret in clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRecord {
    /// Identity of the user.
    pub user: UserId,
    /// Counter of the request.
    pub counter: u64,
    /// Key of the request.
    pub key: AnswerKey,
    /// When it was answered.
    pub given: Instant,
    /// The answer as it was sent.
    pub octets: Vec<u8>,
}

/// What came of a request.
#[derive(Debug)]
pub enum BrokerEvent {
    /// The sender is not authenticated.
    Rejected(Rejection),
    /// A request was refused.
    Refused {
        /// Cause of the refusal.
        cause: RefusalCause,
        /// Identity of the operator.
        operator: OperatorId,
        /// The user, where its signature was verified.
        user: Option<UserId>,
    },
    /// The same request as before got the same answer.
    Repeated {
        /// Identity of the user.
        user: UserId,
    },
    /// An ordinary UE is to be challenged.
    Challenged {
        /// Identity of the user.
        user: UserId,
    },
    /// A session was granted.
    Granted(Box<BrokerSession>),
}

/// The state of an attach at the broker.
#[derive(Debug)]
pub struct BrokerSession {
    /// Whose session it is.
    pub user: UserId,
    /// What was granted.
    pub grant: Grant,
    /// Between the user and the broker.
    pub k_ausf: KAusf,
}

/// A request that the operator which its certificate names has signed, at about this time, for this broker.
struct AuthenticOperator {
    request: AuthReqT,
    id: OperatorId,
}

/// A vector that the user in it has signed for this request and for the operator that passed it on.
struct AuthenticUser {
    vector: UserVector,
    exporter: Exporter,
    profile: User,
}

impl Broker {
    /// A broker whose users seal to `epoch`; `ticket_key` is its own. `None` if its certificate is of another domain or key.
    pub fn new(config: BrokerConfig, epoch: (u8, PrivateKey), ticket_key: [u8; 16]) -> Option<Self> {
        let named = config.certificate.subject == Subject::Broker(config.domain.clone());
        if !named || config.certificate.key != config.signing.verifying_key() {
            return None;
        }
        let current = EpochKey { id: epoch.0, public: epoch.1.share() };
        Some(Self {
            config,
            epochs: BTreeMap::from([epoch]),
            current,
            users: BTreeMap::new(),
            reputation: BTreeMap::new(),
            suspects: BTreeSet::new(),
            tickets: Tickets::new(ticket_key),
            admission: Admission::default(),
            answers: BTreeMap::new(),
            given: VecDeque::new(),
            home: home::HomeState::default(),
        })
    }

    /// Adds a user, or replaces what is known of one. A counter never goes back while the key stays.
    pub fn set_user(&mut self, id: UserId, mut user: User) {
        assert!(user.filters.len() <= OperatorOrders::FILTERS_MAX);
        if let Some(before) = self.users.get(&id).filter(|before| before.key == user.key) {
            user.counter = user.counter.max(before.counter);
            user.ticket = user.ticket.max(before.ticket);
        }
        self.users.insert(id, user);
    }

    /// The record that the broker has of a user.
    pub fn user(&self, id: UserId) -> Option<&User> {
        self.users.get(&id)
    }

    /// Revokes a user's key. From now on it gets no grant, not even one given before.
    pub fn revoke_user(&mut self, id: UserId) {
        if let Some(user) = self.users.get_mut(&id) {
            user.revoked = true;
        }
    }

    /// Sets an operator's reputation.
    pub fn set_reputation(&mut self, operator: OperatorId, reputation: u16) {
        self.reputation.insert(operator, reputation);
    }

    /// Puts a user on the list of suspects, or takes it off.
    pub fn set_suspect(&mut self, id: UserId, suspect: bool) {
        if suspect {
            self.suspects.insert(id);
        } else {
            self.suspects.remove(&id);
        }
    }

    /// Begins an epoch: users learn the key at their next attach. The former keys stay until [`Broker::end_epoch`].
    pub fn begin_epoch(&mut self, id: u8, key: PrivateKey) {
        self.current = EpochKey { id, public: key.share() };
        self.epochs.insert(id, key);
    }

    /// Keeps the key of a former epoch, after a start.
    pub fn keep_epoch(&mut self, id: u8, key: PrivateKey) {
        if id != self.current.id {
            self.epochs.insert(id, key);
        }
    }

    /// Ends an epoch: what was sealed to its key opens no more. Not that of the current one.
    pub fn end_epoch(&mut self, id: u8) {
        if id != self.current.id {
            self.epochs.remove(&id);
        }
    }

    /// The current key, for the SIMs that the broker issues.
    pub const fn epoch(&self) -> EpochKey {
        self.current
    }

    /// Takes a new key for tickets: before the former has made 2^32 of them.
    pub fn renew_ticket_key(&mut self, key: [u8; 16]) {
        self.tickets.renew(key);
    }

    /// Lets a request wait for its turn. Gives what is to be answered at once: that it is no request, or that
    /// the broker has no room for one, which may be another peer's.
    pub fn offer(&mut self, origin: Origin, octets: Vec<u8>, now: Instant) -> Option<(Origin, BrokerOutput)> {
        let Some(ticketed) = self.precedence(&octets) else {
            return Some((origin, self.reject(Rejection::Malformed)));
        };
        let given_up = self.admission.push(origin, ticketed, octets, now)?;
        Some((given_up, self.reject(Rejection::Busy)))
    }

    /// Whether a request goes before those of unknown origin: it has a ticket, or the broker has asked for it. `None` if it is no request.
    fn precedence(&mut self, octets: &[u8]) -> Option<bool> {
        if SapMessageType::VectorRequest.begins(octets) {
            return VectorRequest::parse(octets).ok().map(|_| false);
        }
        if SapMessageType::Confirmation.begins(octets) {
            return Confirmation::parse(octets).ok().map(|c| self.awaits(&c));
        }
        let request = AuthReqT::parse(octets).ok()?;
        Some(request.request.clear_part().as_ref().is_some_and(|ticket| self.redeem(ticket)))
    }

    /// Answers the request whose turn it is.
    pub fn serve(&mut self, now: Instant, seed: &Seed) -> Option<(Origin, BrokerOutput)> {
        Some(match self.admission.pop(now)? {
            Turn::Serve(origin, octets) => (origin, self.answer(&octets, now, seed)),
            Turn::TooLate(origin) => (origin, self.reject(Rejection::Busy)),
        })
    }

    /// Uses a ticket up; whether it was good.
    fn redeem(&mut self, ticket: &Ticket) -> bool {
        let Some((id, number)) = self.tickets.open(ticket) else { return false };
        match self.users.get_mut(&id) {
            Some(user) if !user.revoked && number >= user.ticket => {
                user.ticket = number.saturating_add(1);
                true
            }
            _ => false,
        }
    }

    /// The requests that wait.
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Answers a request of the operator's. The same octets, and the same request signed again, get the same answer for [`ANSWER_KEPT`].
    pub fn answer(&mut self, octets: &[u8], now: Instant, seed: &Seed) -> BrokerOutput {
        self.forget(now);
        if SapMessageType::VectorRequest.begins(octets) {
            return self.challenge(octets, now, seed);
        }
        if SapMessageType::Confirmation.begins(octets) {
            return self.release(octets, now, seed);
        }
        self.attach(octets, now, seed)
    }

    fn attach(&mut self, octets: &[u8], now: Instant, seed: &Seed) -> BrokerOutput {
        let authentic = match self.authenticate(octets, now) {
            Ok(authentic) => authentic,
            Err(cause) => return self.reject(cause),
        };
        let user = match self.open(&authentic) {
            Ok(user) => user,
            Err(cause) => return self.refuse(&authentic, cause, None),
        };
        let (id, request) = (user.vector.user, &authentic.request);
        let barred = user.profile.revoked || self.suspects.contains(&id);
        let key = AnswerKey::new(&request.request.hash(), authentic.id, &request.terms, &request.share);
        // A grant that was given is not given again to a user that is barred since.
        let is_fresh = user.vector.counter > user.profile.counter;
        if barred && !is_fresh {
            return self.refuse(&authentic, RefusalCause::UserRevoked, Some(id));
        }
        if let Some(given) = self.answers.get(&id).filter(|given| given.key == key) {
            let event = BrokerEvent::Repeated { user: id };
            return BrokerOutput { octets: given.octets.clone(), event, record: None };
        }
        if !is_fresh {
            return self.refuse(&authentic, RefusalCause::CounterUsed, Some(id));
        }
        // A refusal uses the counter up, too: the same request is not granted when the bar or the policy has changed.
        let permitted = if barred { Err(RefusalCause::UserRevoked) } else { self.judge(&authentic, &user) };
        let granted = permitted.and_then(|()| self.grant(&authentic, &user, key, now, seed));
        let mut output = granted.unwrap_or_else(|cause| self.refuse(&authentic, cause, Some(id)));
        let record = AnswerRecord {
            user: id,
            counter: user.vector.counter,
            key,
            given: now,
            octets: output.octets.clone(),
        };
        self.restore(record.clone());
        output.record = Some(Record::Attach(record));
        output
    }

    /// Takes over what a broker that failed had made durable, or what it has just answered: its counter counts as used, and the
    /// same request gets the same answer. In the order in which they were given.
    pub fn restore(&mut self, record: impl Into<Record>) {
        let record = match record.into() {
            Record::Attach(record) => record,
            Record::Home(record) => return self.restore_home(record),
        };
        if let Some(user) = self.users.get_mut(&record.user) {
            user.counter = user.counter.max(record.counter);
        }
        self.given.push_back((record.given, record.user, record.key));
        self.answers.insert(record.user, record);
    }

    /// Drops the answers that are too old to be given again.
    fn forget(&mut self, now: Instant) {
        while let Some((at, user, key)) = self.given.front().copied()
            && now.since(at) > ANSWER_KEPT
        {
            self.given.pop_front();
            if self.answers.get(&user).is_some_and(|given| given.key == key) {
                self.answers.remove(&user);
            }
        }
        self.forget_home(now);
    }

    fn authenticate(&self, octets: &[u8], now: Instant) -> Result<AuthenticOperator, Rejection> {
        let request = AuthReqT::parse(octets).map_err(|_| Rejection::Malformed)?;
        let signed = |id| request.is_signed_by(id);
        let id = self.operator(request.request.broker(), &request.certificate, signed, request.time, now)?;
        Ok(AuthenticOperator { request, id })
    }

    /// The operator that a certificate names, if it has signed a question to this broker at about this time.
    fn operator(
        &self,
        broker: &Domain,
        certificate: &Certificate,
        signed: impl FnOnce(OperatorId) -> bool,
        time: u64,
        now: Instant,
    ) -> Result<OperatorId, Rejection> {
        if *broker != self.config.domain {
            return Err(Rejection::OtherBroker);
        }
        let id = self.config.trust.operator(certificate, now).map_err(|e| match e {
            CertificateError::Untrusted | CertificateError::OtherKind => Rejection::CertificateUntrusted,
            CertificateError::NotYetValid => Rejection::CertificateNotYetValid,
            CertificateError::Expired => Rejection::CertificateExpired,
            CertificateError::Revoked => Rejection::CertificateRevoked,
        })?;
        if !signed(id) {
            return Err(Rejection::OperatorSignature);
        }
        if time.abs_diff(now.as_secs()) > CLOCK_SKEW_MAX_S {
            return Err(Rejection::ClockSkew);
        }
        Ok(id)
    }

    fn open(&self, authentic: &AuthenticOperator) -> Result<AuthenticUser, RefusalCause> {
        let request = &authentic.request.request;
        let key = self.epochs.get(&request.key_id()).ok_or(RefusalCause::UnknownKey)?;
        let (plain, exporter) = request.open(key).ok_or(RefusalCause::Envelope)?;
        let vector = UserVector::parse(&plain).map_err(|_| RefusalCause::Envelope)?;
        let profile = self.users.get(&vector.user).ok_or(RefusalCause::UnknownUser)?.clone();
        if !vector.is_signed_by(&profile.key, &request.head()) {
            return Err(RefusalCause::UserSignature);
        }
        if vector.asker != authentic.id {
            return Err(RefusalCause::OtherOperator);
        }
        Ok(AuthenticUser { vector, exporter, profile })
    }

    fn judge(&self, authentic: &AuthenticOperator, user: &AuthenticUser) -> Result<(), RefusalCause> {
        self.accepts(authentic.id, &authentic.request.terms, &user.profile.qos)
    }

    /// Whether the policy lets an operator serve on these terms, and they have this QoS.
    fn accepts(&self, operator: OperatorId, terms: &Terms, qos: &Qos) -> Result<(), RefusalCause> {
        let policy = &self.config.policy;
        let reputation = self.reputation.get(&operator).copied().unwrap_or(policy.reputation_newcomer);
        let allowed = policy.operators.as_ref().is_none_or(|o| o.contains(&operator));
        check_all([
            (allowed, RefusalCause::OperatorNotAllowed),
            (reputation >= policy.reputation_floor, RefusalCause::OperatorReputation),
            (terms.price.is_within(&policy.price_cap), RefusalCause::PriceTooHigh),
            (terms.qos.covers(qos), RefusalCause::QosTooLow),
        ])
    }

    fn grant(
        &self,
        authentic: &AuthenticOperator,
        AuthenticUser { vector, exporter, profile }: &AuthenticUser,
        key: AnswerKey,
        now: Instant,
        seed: &Seed,
    ) -> Result<BrokerOutput, RefusalCause> {
        let request = &authentic.request;
        let ss = SharedSecret::new(*SAP.draw(seed, "ss"));
        let (intercept, filters) = (profile.intercept, profile.filters.clone());
        let orders = OperatorOrders { ss: ss.clone(), intercept, filters };
        // A share of small order would make DH(user, operator) public.
        let probe = PrivateKey::new(*SAP.draw(seed, "probe"));
        probe.agree(&vector.share).ok_or(RefusalCause::WeakShare)?;
        let orders = orders.seal(&request.share, &key, seed).ok_or(RefusalCause::WeakShare)?;
        let grant = Grant {
            broker: self.config.domain.clone(),
            pseudonym: Pseudonym(*SAP.draw(seed, "pseudonym")),
            operator: authentic.id,
            terms: request.terms.clone(),
            qos: profile.qos,
            validity: self.validity(now),
            credit_micros: self.config.policy.credit_micros,
            request: request.request.hash(),
            user_share: vector.share,
            operator_share: request.share,
            orders: hash(&orders),
        };
        let signed = SignedGrant::sign(grant.clone(), &self.config.signing);
        let answer = UserAnswer {
            grant: signed.clone(),
            ss,
            ticket: Some(self.tickets.issue(vector.user, profile.ticket, seed)),
            next_key: (request.request.key_id() != self.current.id).then_some(self.current),
        };
        let salt = *SAP.draw(seed, "salt");
        let answer_u = AnswerU { salt, sealed: exporter.seal(&salt, &answer.to_octets()).into() };
        let octets = self.octets(AnswerBody::Granted { grant: signed, orders, answer_u });
        let session = BrokerSession { user: vector.user, grant, k_ausf: exporter.k_ausf() };
        let event = BrokerEvent::Granted(Box::new(session));
        Ok(BrokerOutput { octets, event, record: None })
    }

    fn validity(&self, now: Instant) -> Validity {
        let from = now.as_secs();
        Validity { from, until: from.saturating_add(self.config.policy.validity_s) }
    }

    fn reject(&self, cause: Rejection) -> BrokerOutput {
        let octets = self.octets(AnswerBody::Rejected(cause));
        BrokerOutput { octets, event: BrokerEvent::Rejected(cause), record: None }
    }

    fn refuse(
        &self,
        authentic: &AuthenticOperator,
        cause: RefusalCause,
        user: Option<UserId>,
    ) -> BrokerOutput {
        let next = (cause == RefusalCause::UnknownKey).then_some(self.current);
        self.refuse_with((authentic.id, authentic.request.request.hash()), cause, user, next)
    }

    /// Of a question about an ordinary UE: its USIM has nothing to learn.
    fn refuse_by(
        &self,
        operator: OperatorId,
        request: [u8; 32],
        cause: RefusalCause,
        user: Option<UserId>,
    ) -> BrokerOutput {
        self.refuse_with((operator, request), cause, user, None)
    }

    fn refuse_with(
        &self,
        (operator, request): (OperatorId, [u8; 32]),
        cause: RefusalCause,
        user: Option<UserId>,
        next: Option<EpochKey>,
    ) -> BrokerOutput {
        let domain = self.config.domain.clone();
        let refusal = SignedRefusal::sign(domain, cause, operator, request, next, &self.config.signing);
        let octets = self.octets(AnswerBody::Refused(refusal));
        BrokerOutput { octets, event: BrokerEvent::Refused { cause, operator, user }, record: None }
    }

    fn octets(&self, body: AnswerBody) -> Vec<u8> {
        AnswerT { certificate: self.config.certificate.clone(), body }.to_octets()
    }
}
