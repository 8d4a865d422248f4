//! The broker: issues tokens to operators that it knows, opens a session group for a token whose owner it does not know, and grants in it
//! (chapters 4.4.1 and 4.4.2).
//!
//! Each answer that spends something comes with a [`Record`], to be made durable before the answer leaves.
//! Where several nodes of the broker share a store, a token's record is inserted only if there is none: the
//! node that comes second restores the one that it finds and answers again.

mod home;
mod orders;

use std::collections::{BTreeMap, BTreeSet};

use home::HomeState;
pub use home::{HomeAnswered, HomeUser};
pub use orders::OrderError;
use orders::OrderState;
use whimbrel_broker_common::certificate::{Trust, Validity};
use whimbrel_broker_common::crypto::{PrivateKey, Seed};
use whimbrel_broker_common::id::{Domain, OperatorId, Pseudonym, UserId};
use whimbrel_broker_common::request::EpochKey;
use whimbrel_broker_common::session::{Filter, Qos};
use whimbrel_ids::{Instant, PlmnId};

use crate::crypto::{Exporter, Response, SigningKey, VEIL, VerifyingKey, attach_key, hash};
use crate::log::KeyEntry;
use crate::msg::{
    Answer, AnswerBody, AnswerKey, Challenge, Failure, FailureCause, Grant, GroupAnswer, GroupError,
    GroupRequest, HomeRequest, IssueError, OperatorOrders, OperatorRequest, RefusalCause, Rejection,
    ReportAnswer, ReportError, SignedGrant, SignedRefusal, TokenAnswer, TokenRequest, UsageReport,
    UserAnswer, UserVector, is_field_digest, issued,
};
use crate::token::TokenHash;
use crate::voprf::IssuerKey;

/// The most classes of users: so few that a class is no name.
pub const CLASSES_MAX: usize = 8;

/// How long the broker keeps an answer to give it again, in seconds: well above the time in which the
/// operator repeats a request after a failover.
pub const ANSWER_KEPT_S: u64 = 60;

/// How long after the end of a grant its session may be reported, in seconds: a day in which the operator could not reach the broker.
pub const REPORT_WITHIN_S: u64 = 86_400;

/// What users of one class are due. The operator sees it, so it must be that of many users.
#[derive(Clone, Debug)]
pub struct Class {
    /// QoS of the session.
    pub qos: Qos,
    /// What operators must drop; at most [`OperatorOrders::FILTERS_MAX`].
    pub filters: Vec<Filter>,
}

/// On what terms the broker deals.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The operators that have a contract.
    pub operators: BTreeSet<OperatorId>,
    /// The most batches of tokens that an operator gets in an epoch.
    pub batches_max: u32,
    /// How long UEs may attach in a session group, in seconds: the time for which the operator broadcasts a
    /// token, and the time that a UE takes.
    pub group_s: u64,
    /// How long a grant is valid, in seconds: UEs attach again long before.
    pub validity_s: u64,
    /// The slice of prepaid users, in octets.
    pub slice_octets: u64,
    /// How often the operator asks for later orders, in seconds.
    pub poll_s: u16,
    /// The classes; at most [`CLASSES_MAX`].
    pub classes: Vec<Class>,
}

/// A user as the broker has it.
#[derive(Clone, Debug)]
pub struct User {
    /// Under which the user signs.
    pub key: VerifyingKey,
    /// Whether the key is revoked.
    pub revoked: bool,
    /// Which class; one that the policy lacks is refused.
    pub class: u8,
    /// Whether the user has paid before, and gets slices.
    pub prepaid: bool,
    /// Whether operators must intercept the user's sessions.
    pub intercept: bool,
    /// Which counters were used.
    pub counters: Counters,
}

/// Which counters of a SIM were used: the highest, and the 64 up to it. Requests of two UE instances that change operators overtake
/// each other in their channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    highest: u64,
    /// Bit n: the highest less n was used.
    used: u64,
}

impl Counters {
    /// Whether a counter may still be used.
    pub const fn is_unused(&self, counter: u64) -> bool {
        if counter > self.highest {
            return true;
        }
        let back = self.highest - counter;
        counter != 0 && back < 64 && self.used >> back & 1 == 0
    }

    /// The highest, and as bit n whether the highest less n was used.
    pub const fn parts(self) -> (u64, u64) {
        (self.highest, self.used)
    }

    /// From what [`Counters::parts`] gave.
    pub const fn from_parts((highest, used): (u64, u64)) -> Self {
        Self { highest, used }
    }

    fn set(&mut self, counter: u64) {
        if counter > self.highest {
            self.used = self.used.checked_shl((counter - self.highest).min(64) as u32).unwrap_or(0) | 1;
            self.highest = counter;
        } else if self.highest - counter < 64 {
            self.used |= 1 << (self.highest - counter);
        }
    }
}

/// The settings that stay the same while the broker runs.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Domain of the broker.
    pub domain: Domain,
    /// PLMN of the broker.
    pub network: PlmnId,
    /// Under which it signs.
    pub signing: SigningKey,
    /// Whose word on operators it believes.
    pub trust: Trust,
    /// Policy by which it grants.
    pub policy: Policy,
}

/// An open session group.
#[derive(Clone, Debug)]
struct OpenGroup {
    key: VerifyingKey,
    nonce: [u8; 16],
    until: u64,
    /// After which the token's epoch is over and the token is refused for that.
    kept_until: u64,
    octets: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Issued {
    batches: u32,
    last: [u8; 32],
}

/// The broker's machine for veiled users.
#[derive(Debug)]
pub struct Broker {
    /// What stays the same.
    pub config: BrokerConfig,
    epochs: BTreeMap<u8, PrivateKey>,
    current: EpochKey,
    issuers: BTreeMap<u32, (KeyEntry, IssuerKey)>,
    users: BTreeMap<UserId, User>,
    issued: BTreeMap<(OperatorId, u32), Issued>,
    groups: BTreeMap<TokenHash, OpenGroup>,
    answers: BTreeMap<AnswerKey, Given>,
    sessions: BTreeMap<[u8; 32], GrantedSession>,
    nonces: BTreeSet<[u8; 32]>,
    home: HomeState,
    orders: OrderState,
}

/// An answer that is given again to the same request.
#[derive(Clone, Debug)]
struct Given {
    at_s: u64,
    octets: Vec<u8>,
}

/// A session that the broker has granted, until its report has come or is too late.
#[derive(Clone, Debug)]
struct GrantedSession {
    user: UserId,
    group: TokenHash,
    expected: [u8; 32],
    until: u64,
    /// Hash of the report, when it has come.
    reported: Option<[u8; 32]>,
}

/// The message that the broker sends, and the outcome of the request.
#[derive(Debug)]
pub struct BrokerOutput {
    /// The answer to send.
    pub octets: Vec<u8>,
    /// For the log.
    pub event: BrokerEvent,
    /// To be made durable before the answer leaves: what [`Broker::restore`] takes.
    pub record: Option<Record>,
}

/// What came of a request. None names an operator but those of issuing.
#[derive(Debug)]
pub enum BrokerEvent {
    /// A batch was issued.
    Issued(OperatorId),
    /// No tokens were issued.
    NotIssued(IssueError),
    /// A token opened its session group.
    Opened(TokenHash),
    /// It did not.
    NotOpened(GroupError),
    /// The same request as before got the same answer.
    Repeated,
    /// A session was granted.
    Granted(Box<BrokerSession>),
    /// An ordinary UE is challenged; the grant counts once it has responded.
    Challenged(Box<BrokerSession>),
    /// A request was refused.
    Refused(RefusalCause),
    /// The request is in no open session group.
    Rejected(Rejection),
    /// A session was reported: so many units.
    Reported(UserId, u32),
    /// A report was not taken.
    NotReported(ReportError),
    /// So many orders were passed on.
    Ordered(usize),
    /// An order was answered.
    OrderAnswered,
    /// An answer was not taken.
    OrderNotAnswered(ReportError),
}

/// The state of an attach at the broker.
#[derive(Clone, Debug)]
pub struct BrokerSession {
    /// Whose session it is.
    pub user: UserId,
    /// What was granted.
    pub grant: Grant,
}

/// What must outlive the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A batch was issued.
    Issued {
        /// Identity of the operator.
        operator: OperatorId,
        /// Of which epoch.
        epoch: u32,
        /// Hash of the request.
        request: [u8; 32],
    },
    /// A token was spent. Unique by `group`.
    Opened {
        /// Hash of the token.
        group: TokenHash,
        /// The token's key.
        key: VerifyingKey,
        /// The nonce of the request that spent it.
        nonce: [u8; 16],
        /// Until when UEs may attach.
        until: u64,
        /// Until when the token must be known as spent.
        kept_until: u64,
        /// The answer as it was sent.
        octets: Vec<u8>,
    },
    /// A counter was used.
    Answered(Answered),
    /// A session was reported. Unique by `session`, and by `nonce`.
    Reported {
        /// H(the user's request).
        session: [u8; 32],
        /// The user of the session.
        user: UserId,
        /// In units of [`USAGE_UNIT_OCTETS`](crate::msg::USAGE_UNIT_OCTETS).
        units: u32,
        /// By what the operator claims it.
        nonce: [u8; 32],
        /// Hash of the report.
        report: [u8; 32],
    },
    /// A vector of an ordinary UE was made.
    Home(HomeAnswered),
    /// An order was answered.
    OrderAnswered {
        /// Hash of the order.
        order: [u8; 32],
        /// The answer, which only the agency can read.
        octets: Vec<u8>,
    },
}

/// That a user's counter was used, and for which answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Identity of the user.
    pub user: UserId,
    /// Counter of the request.
    pub counter: u64,
    /// Key of the request.
    pub key: AnswerKey,
    /// When it was answered, in seconds since the Unix epoch.
    pub given_s: u64,
    /// The answer as it was sent.
    pub octets: Vec<u8>,
}

impl Record {
    /// Its octets, as the broker stores them: what the ledger looks at.
    pub fn to_octets(&self) -> Vec<u8> {
        match self {
            Self::Issued { operator, epoch, request } => {
                [operator.to_string().as_bytes(), &epoch.to_be_bytes(), request].concat()
            }
            Self::Opened { group, key, nonce, until, kept_until, octets } => {
                let (until, kept) = (until.to_be_bytes(), kept_until.to_be_bytes());
                [&group.0[..], &key.octets(), nonce, &until, &kept, octets].concat()
            }
            Self::Answered(Answered { user, counter, key, given_s, octets }) => {
                let (counter, given) = (counter.to_be_bytes(), given_s.to_be_bytes());
                [&user.0[..], &counter, &key.0, &given, octets].concat()
            }
            Self::Reported { session, user, units, nonce, report } => {
                [&session[..], &user.0, &units.to_be_bytes(), nonce, report].concat()
            }
            Self::Home(answered) => answered.to_octets(),
            Self::OrderAnswered { order, octets } => [&order[..], octets].concat(),
        }
    }
}

/// A request under the key of an open session group.
struct InGroup {
    request: OperatorRequest,
}

/// A vector that the user in it has signed, for this request and this group.
struct AuthenticUser {
    vector: UserVector,
    exporter: Exporter,
    profile: User,
}

impl Broker {
    /// A broker whose users seal to `epoch`. Panics on more classes or filters than the bounds.
    pub fn new(config: BrokerConfig, epoch: (u8, PrivateKey)) -> Self {
        assert!(config.policy.classes.len() <= CLASSES_MAX);
        let few = |class: &Class| class.filters.len() <= OperatorOrders::FILTERS_MAX;
        assert!(config.policy.classes.iter().all(few));
        let current = EpochKey { id: epoch.0, public: epoch.1.share() };
        let (issuers, users, issued, groups, answers) = Default::default();
        let (sessions, nonces, home, orders) = Default::default();
        let epochs = BTreeMap::from([epoch]);
        Self {
            config,
            epochs,
            current,
            issuers,
            users,
            issued,
            groups,
            answers,
            sessions,
            nonces,
            home,
            orders,
        }
    }

    /// Adds a user, or replaces what is known of one. A used counter stays used while the key stays.
    pub fn set_user(&mut self, id: UserId, mut user: User) {
        if let Some(before) = self.users.get(&id).filter(|before| before.key == user.key) {
            user.counters = before.counters;
        }
        self.users.insert(id, user);
    }

    /// What is known of a user.
    pub fn user(&self, id: UserId) -> Option<&User> {
        self.users.get(&id)
    }

    /// Revokes a user's key.
    pub fn revoke_user(&mut self, id: UserId) {
        if let Some(user) = self.users.get_mut(&id) {
            user.revoked = true;
        }
    }

    /// Begins an epoch of the key to which users seal: they learn it at their next attach.
    pub fn begin_epoch(&mut self, id: u8, key: PrivateKey) {
        self.current = EpochKey { id, public: key.share() };
        self.epochs.insert(id, key);
    }

    /// Ends a former epoch.
    pub fn end_epoch(&mut self, id: u8) {
        if id != self.current.id {
            self.epochs.remove(&id);
        }
    }

    /// The current key, for the SIMs that the broker issues.
    pub const fn epoch(&self) -> EpochKey {
        self.current
    }

    /// Takes an issuing key, whose entry stands in the log. `None` if the entry is of another broker or key.
    pub fn add_issuer(&mut self, entry: KeyEntry, key: IssuerKey) -> Option<()> {
        let own = entry.broker == self.config.domain && entry.key == *key.public();
        own.then(|| self.issuers.insert(entry.epoch, (entry, key))).map(|_| ())
    }

    /// Issues a batch of tokens. The same request gets the same answer and counts once.
    pub fn issue(&mut self, octets: &[u8], now: Instant) -> BrokerOutput {
        let judged = self.judge_issue(octets, now);
        let (operator, request) = match judged {
            Ok(judged) => judged,
            Err(cause) => {
                let octets = TokenAnswer::Refused(cause).to_octets();
                return BrokerOutput { octets, event: BrokerEvent::NotIssued(cause), record: None };
            }
        };
        let (hash, epoch) = (request.hash(), request.epoch);
        let repeated = self.issued.get(&(operator, epoch)).is_some_and(|issued| issued.last == hash);
        let record = (!repeated).then(|| {
            let record = Record::Issued { operator, epoch, request: hash };
            self.restore(record.clone());
            record
        });
        let (_, key) = &self.issuers[&epoch];
        let (evaluated, proof) = key.evaluate_blinded(&request.blinded[..]);
        BrokerOutput {
            octets: issued(&hash, &evaluated, &proof),
            event: BrokerEvent::Issued(operator),
            record,
        }
    }

    fn judge_issue(&self, octets: &[u8], now: Instant) -> Result<(OperatorId, TokenRequest), IssueError> {
        let request = TokenRequest::parse(octets).map_err(|_| IssueError::Malformed)?;
        if request.broker != self.config.domain {
            return Err(IssueError::OtherBroker);
        }
        let trusted = self.config.trust.operator(&request.certificate, now);
        let operator = trusted.map_err(|_| IssueError::Certificate)?;
        if !request.is_signed() {
            return Err(IssueError::OperatorSignature);
        }
        let policy = &self.config.policy;
        if !policy.operators.contains(&operator) {
            return Err(IssueError::OperatorNotAllowed);
        }
        let (entry, _) = self.issuers.get(&request.epoch).ok_or(IssueError::UnknownEpoch)?;
        if !entry.is_valid(now) {
            return Err(IssueError::EpochOver);
        }
        let before = self.issued.get(&(operator, request.epoch));
        let full = before.is_some_and(|i| i.batches >= policy.batches_max && i.last != request.hash());
        if full { Err(IssueError::TooMany) } else { Ok((operator, request)) }
    }

    /// Opens the session group of a token. The same request gets the same answer; any other of the same token is refused.
    pub fn open_group(&mut self, octets: &[u8], now: Instant) -> BrokerOutput {
        match self.judge_group(octets, now) {
            Ok((record, octets)) => {
                let event = match &record {
                    Some(Record::Opened { group, .. }) => BrokerEvent::Opened(*group),
                    _ => BrokerEvent::Repeated,
                };
                if let Some(record) = &record {
                    self.restore(record.clone());
                }
                BrokerOutput { octets, event, record }
            }
            Err(cause) => {
                let octets = GroupAnswer::Refused(cause).to_octets();
                BrokerOutput { octets, event: BrokerEvent::NotOpened(cause), record: None }
            }
        }
    }

    fn judge_group(&self, octets: &[u8], now: Instant) -> Result<(Option<Record>, Vec<u8>), GroupError> {
        let request = GroupRequest::parse(octets).map_err(|_| GroupError::Malformed)?;
        if request.broker != self.config.domain {
            return Err(GroupError::OtherBroker);
        }
        let (entry, key) = self.issuers.get(&request.token.epoch).ok_or(GroupError::UnknownEpoch)?;
        if !entry.is_valid(now) {
            return Err(GroupError::EpochOver);
        }
        let output = key.evaluate(&request.token.input(&entry.key)).ok_or(GroupError::NotIssued)?;
        if !request.is_of(&output) {
            return Err(GroupError::NotIssued);
        }
        let group = request.token.hash(&entry.key);
        if let Some(open) = self.groups.get(&group) {
            let same = open.nonce == request.nonce;
            return if same { Ok((None, open.octets.clone())) } else { Err(GroupError::DoubleSpent) };
        }
        let until = now.as_secs().saturating_add(self.config.policy.group_s);
        let octets = GroupAnswer::opened(group, until, &request.nonce, &output).to_octets();
        let record = Record::Opened {
            group,
            key: request.token.key,
            nonce: request.nonce,
            until,
            kept_until: until.max(entry.validity.until),
            octets: octets.clone(),
        };
        Ok((Some(record), octets))
    }

    /// Answers a request of a session group, for a veiled UE or an ordinary one. The same request gets the same answer for
    /// [`ANSWER_KEPT_S`].
    pub fn attach(&mut self, octets: &[u8], now: Instant, seed: &Seed) -> BrokerOutput {
        if HomeRequest::is_of(octets) {
            return self.attach_home(octets, now, seed);
        }
        let asked = match self.in_group(octets, now) {
            Ok(asked) => asked,
            Err(cause) => return rejected(cause),
        };
        let request = &asked.request;
        let key = AnswerKey::new(&request.request.hash(), &request.group, &request.share);
        if let Some(octets) = self.given(&key) {
            return BrokerOutput { octets, event: BrokerEvent::Repeated, record: None };
        }
        let user = match self.open(&asked) {
            Ok(user) => user,
            Err(cause) => return self.refuse(&asked, cause),
        };
        match self.grant(&asked, &user, key, now, seed) {
            Ok(mut output) => {
                let (user, counter) = (user.vector.user, user.vector.counter);
                let octets = output.octets.clone();
                let record =
                    Record::Answered(Answered { user, counter, key, given_s: now.as_secs(), octets });
                self.restore(record.clone());
                output.record = Some(record);
                output
            }
            Err(cause) => self.refuse(&asked, cause),
        }
    }

    /// Takes the report of a session. The same report is taken again; any other of the same session is refused.
    pub fn report(&mut self, octets: &[u8]) -> BrokerOutput {
        let (answer, event, record) = match self.judge_report(octets) {
            Ok(None) => (ReportAnswer::Taken, BrokerEvent::Repeated, None),
            Ok(Some((user, report))) => {
                let (session, nonce) = (report.session, report.nonce);
                let (units, report) = (report.units, hash(&[octets]));
                let record = Record::Reported { session, user, units, nonce, report };
                self.restore(record.clone());
                (ReportAnswer::Taken, BrokerEvent::Reported(user, units), Some(record))
            }
            Err(cause) => (ReportAnswer::Refused(cause), BrokerEvent::NotReported(cause), None),
        };
        BrokerOutput { octets: answer.to_octets(), event, record }
    }

    /// The report and whose session it is of; `None` if it was taken before.
    fn judge_report(&self, octets: &[u8]) -> Result<Option<(UserId, UsageReport)>, ReportError> {
        let report = UsageReport::parse(octets).map_err(|_| ReportError::Malformed)?;
        if report.broker != self.config.domain {
            return Err(ReportError::OtherBroker);
        }
        let group = self.groups.get(&report.group).ok_or(ReportError::UnknownGroup)?;
        if !report.is_signed_by(&group.key) {
            return Err(ReportError::TokenSignature);
        }
        let session = self.sessions.get(&report.session).filter(|s| s.group == report.group);
        let session = session.ok_or(ReportError::UnknownSession)?;
        if Response::new(report.presence).expected() != session.expected {
            return Err(ReportError::Response);
        }
        match session.reported {
            Some(before) if before == hash(&[octets]) => Ok(None),
            Some(_) => Err(ReportError::Reported),
            None if !is_field_digest(&report.nonce) => Err(ReportError::Nonce),
            None if self.nonces.contains(&report.nonce) => Err(ReportError::NonceUsed),
            None => Ok(Some((session.user, report))),
        }
    }

    /// Takes over what a broker that failed, or another node, had made durable. For a token that was spent here before, what was
    /// first stays.
    pub fn restore(&mut self, record: Record) {
        match record {
            Record::Issued { operator, epoch, request } => {
                let before =
                    self.issued.entry((operator, epoch)).or_insert(Issued { batches: 0, last: request });
                (before.batches, before.last) = (before.batches.saturating_add(1), request);
            }
            Record::Opened { group, key, nonce, until, kept_until, octets } => {
                self.groups.entry(group).or_insert(OpenGroup { key, nonce, until, kept_until, octets });
            }
            Record::Answered(answered) => {
                if let Some(user) = self.users.get_mut(&answered.user) {
                    user.counters.set(answered.counter);
                }
                let Answered { user, key, given_s, octets, .. } = answered;
                self.answered(user, key, given_s, octets);
            }
            Record::Home(answered) => {
                self.home.used(&answered);
                let HomeAnswered { user, key, given_s, octets, .. } = answered;
                self.answered(user, key, given_s, octets);
            }
            Record::OrderAnswered { order, .. } => self.orders.answered(&order),
            Record::Reported { session, nonce, report, .. } => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.reported = Some(report);
                }
                self.nonces.insert(nonce);
            }
        }
    }

    /// An answer was given: its session may be reported, and the same request gets it again.
    fn answered(&mut self, user: UserId, key: AnswerKey, at_s: u64, octets: Vec<u8>) {
        let grant = match Answer::parse(&octets) {
            Ok(Answer(AnswerBody::Granted { grant, .. } | AnswerBody::Challenged { grant, .. })) => {
                Some(grant)
            }
            _ => None,
        };
        if let Some(SignedGrant { grant: Grant { request, group, expected, validity, .. }, .. }) = grant {
            let session = GrantedSession { user, group, expected, until: validity.until, reported: None };
            self.sessions.insert(request, session);
        }
        self.answers.insert(key, Given { at_s, octets });
    }

    /// What the same request was answered before.
    fn given(&self, key: &AnswerKey) -> Option<Vec<u8>> {
        self.answers.get(key).map(|given| given.octets.clone())
    }

    /// What another node found in the shared store under the name of a token that this node has just spent: it stays, and this
    /// node's own record goes.
    pub fn yield_to(&mut self, record: Record) {
        if let Record::Opened { group, .. } = &record {
            self.groups.remove(group);
        }
        self.restore(record);
    }

    /// Drops what is too old to matter: answers, tokens of epochs that are over. Call it every minute or so.
    pub fn forget(&mut self, now: Instant) {
        let now = now.as_secs();
        self.answers.retain(|_, given| now <= given.at_s.saturating_add(ANSWER_KEPT_S));
        self.groups.retain(|_, group| now <= group.kept_until);
        self.sessions.retain(|_, session| now <= session.until.saturating_add(REPORT_WITHIN_S));
        self.orders.forget(now);
    }

    /// How many tokens are known as spent, and how many answers are kept.
    pub fn kept(&self) -> (usize, usize) {
        (self.groups.len(), self.answers.len())
    }

    /// The statement of the user about a challenge that it did not accept, and of which request.
    pub fn failure(&self, octets: &[u8]) -> Option<(FailureCause, [u8; 32])> {
        let failure = Failure::parse(octets).ok()?;
        failure.open(self.epochs.get(&failure.key_id())?)
    }

    fn in_group(&self, octets: &[u8], now: Instant) -> Result<InGroup, Rejection> {
        let request = OperatorRequest::parse(octets).map_err(|_| Rejection::Malformed)?;
        let key = self.open_group_key(request.request.broker(), request.group, now)?;
        if request.is_signed_by(&key) { Ok(InGroup { request }) } else { Err(Rejection::TokenSignature) }
    }

    /// The token's key of a session group in which UEs may attach now.
    fn open_group_key(
        &self,
        broker: &Domain,
        group: TokenHash,
        now: Instant,
    ) -> Result<VerifyingKey, Rejection> {
        if *broker != self.config.domain {
            return Err(Rejection::OtherBroker);
        }
        let group = self.groups.get(&group).ok_or(Rejection::UnknownGroup)?;
        if now.as_secs() > group.until { Err(Rejection::GroupOver) } else { Ok(group.key) }
    }

    fn open(&self, asked: &InGroup) -> Result<AuthenticUser, RefusalCause> {
        let request = &asked.request.request;
        let key = self.epochs.get(&request.key_id()).ok_or(RefusalCause::UnknownKey)?;
        let (plain, exporter) = request.open(key).ok_or(RefusalCause::Envelope)?;
        let vector = UserVector::parse(&plain).map_err(|_| RefusalCause::Envelope)?;
        let profile = self.users.get(&vector.user).ok_or(RefusalCause::User)?.clone();
        if profile.revoked || !vector.is_signed_by(&profile.key, &request.head()) {
            return Err(RefusalCause::User);
        }
        if vector.asker != asked.request.group {
            return Err(RefusalCause::OtherToken);
        }
        if !profile.counters.is_unused(vector.counter) {
            return Err(RefusalCause::CounterUsed);
        }
        Ok(AuthenticUser { vector, exporter, profile })
    }

    fn grant(
        &self,
        asked: &InGroup,
        AuthenticUser { vector, exporter, profile }: &AuthenticUser,
        key: AnswerKey,
        now: Instant,
        seed: &Seed,
    ) -> Result<BrokerOutput, RefusalCause> {
        let (request, policy) = (&asked.request, &self.config.policy);
        let class = policy.classes.get(usize::from(profile.class)).ok_or(RefusalCause::User)?;
        let (half, challenge) = (*VEIL.draw(seed, "half"), *VEIL.draw(seed, "challenge"));
        let hash_of_request = request.request.hash();
        let response = exporter.response(&challenge, &hash_of_request);
        // A share of small order would make DH(user, operator) public.
        let probe = PrivateKey::new(*VEIL.draw(seed, "probe"));
        attach_key(&half, &response, &probe, &vector.share, &[0; 32]).ok_or(RefusalCause::WeakShare)?;
        let (intercept, poll_s, filters) = (profile.intercept, policy.poll_s, class.filters.clone());
        let orders = OperatorOrders { half, intercept, poll_s, filters };
        let orders = orders.seal(&request.share, &key, seed).ok_or(RefusalCause::WeakShare)?;
        let from = now.as_secs();
        let grant = Grant {
            broker: self.config.domain.clone(),
            network: self.config.network,
            pseudonym: Pseudonym(*VEIL.draw(seed, "pseudonym")),
            group: request.group,
            qos: class.qos,
            validity: Validity { from, until: from.saturating_add(policy.validity_s) },
            slice_octets: profile.prepaid.then_some(policy.slice_octets),
            request: hash_of_request,
            user_share: vector.share,
            operator_share: request.share,
            orders: hash(&[&orders]),
            expected: response.expected(),
        };
        let signed = SignedGrant::sign(grant.clone(), &self.config.signing);
        let next_key = (request.request.key_id() != self.current.id).then_some(self.current);
        let answer = UserAnswer { grant: signed.clone(), half, challenge, next_key };
        let salt = *VEIL.draw(seed, "salt");
        let challenge = Challenge { salt, sealed: exporter.seal(&salt, &answer.to_octets()) };
        let octets = Answer(AnswerBody::Granted { grant: signed, orders, challenge }).to_octets();
        let event = BrokerEvent::Granted(Box::new(BrokerSession { user: vector.user, grant }));
        Ok(BrokerOutput { octets, event, record: None })
    }

    fn refuse(&self, asked: &InGroup, cause: RefusalCause) -> BrokerOutput {
        self.refuse_request(asked.request.group, asked.request.request.hash(), cause)
    }

    /// Refuses the request with this hash.
    fn refuse_request(&self, group: TokenHash, request: [u8; 32], cause: RefusalCause) -> BrokerOutput {
        let next = (cause == RefusalCause::UnknownKey).then_some(self.current);
        let (domain, signing) = (self.config.domain.clone(), &self.config.signing);
        let refusal = SignedRefusal::sign(domain, cause, group, request, next, signing);
        let octets = Answer(AnswerBody::Refused(refusal)).to_octets();
        BrokerOutput { octets, event: BrokerEvent::Refused(cause), record: None }
    }
}

fn rejected(cause: Rejection) -> BrokerOutput {
    let octets = Answer(AnswerBody::Rejected(cause)).to_octets();
    BrokerOutput { octets, event: BrokerEvent::Rejected(cause), record: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_used_once_and_two_may_overtake_each_other() {
        let mut counters = Counters::default();
        assert!(!counters.is_unused(0));
        for counter in [5, 3, 4, 6, 200, 150] {
            assert!(counters.is_unused(counter), "{counter}");
            counters.set(counter);
            assert!(!counters.is_unused(counter), "{counter}");
        }
        // Below the window nothing is known, and nothing is allowed.
        assert!(!counters.is_unused(136) && counters.is_unused(137) && counters.is_unused(201));
    }
}
