//! The thread that owns the machine of veiled users and its database. Requests that came meanwhile are answered as one batch: their
//! records are committed in one transaction, then all answers leave.

use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use tracing::{error, info, warn};
use whimbrel_broker_client::now;
use whimbrel_broker_client::veil::QuestionKind;
use whimbrel_broker_client::veil::record::Recorder;
use whimbrel_ids::Instant;
use whimbrel_open::crypto::Seed;
use whimbrel_privacy::broker::{Broker, BrokerConfig, BrokerEvent, BrokerOutput, Record};
use whimbrel_privacy::crypto::VerifyingKey;
use whimbrel_privacy::ledger::How;
use whimbrel_privacy::log::{Cosignature, KeyLog, LogRequest};
use whimbrel_privacy::msg::Order;
use whimbrel_security::HomeNetworkKeys;

use super::claims::{ClaimsEngine, ClaimsEntrance};
use super::storage::{NamedHomeUser, NamedUser, VeilStorage};

/// Requests on their way to the thread.
const QUEUE_MAX: usize = 4_096;
/// Answers of one transaction.
const BATCH_MAX: usize = 64;
/// How often old answers and tokens are deleted.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// How often the database is looked at for what commands have changed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a commit that failed is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// The running thread. It stops when this is dropped.
#[derive(Debug)]
pub struct VeilEngine {
    entrance: VeilEntrance,
    claims: ClaimsEngine,
    thread: Option<JoinHandle<()>>,
}

/// A request, and where its answer goes.
struct VeilRequest {
    kind: QuestionKind,
    peer: String,
    octets: Vec<u8>,
    answer: oneshot::Sender<Vec<u8>>,
}

enum Message {
    Asked(VeilRequest),
    Stop,
}

/// What came of requests, for /metrics. None is of an operator or of a user.
#[derive(Debug, Default)]
pub struct VeilMetrics {
    issued: AtomicU64,
    opened: AtomicU64,
    granted: AtomicU64,
    challenged: AtomicU64,
    reported: AtomicU64,
    repeated: AtomicU64,
    refused: AtomicU64,
    double_spent: AtomicU64,
    failures: AtomicU64,
    claims_paid: AtomicU64,
    claimed_units: AtomicU64,
    claims_refused: AtomicU64,
    orders: AtomicU64,
}

impl VeilMetrics {
    fn count(&self, event: &BrokerEvent) {
        use whimbrel_privacy::msg::GroupError;
        let counter = match event {
            BrokerEvent::Issued(_) => &self.issued,
            BrokerEvent::Opened(_) => &self.opened,
            BrokerEvent::Granted(_) => &self.granted,
            BrokerEvent::Challenged(_) => &self.challenged,
            BrokerEvent::Reported(..) => &self.reported,
            BrokerEvent::Repeated => &self.repeated,
            BrokerEvent::OrderAnswered => &self.orders,
            BrokerEvent::Ordered(_) => return,
            BrokerEvent::NotOpened(GroupError::DoubleSpent) => &self.double_spent,
            BrokerEvent::NotIssued(_)
            | BrokerEvent::NotOpened(_)
            | BrokerEvent::Refused(_)
            | BrokerEvent::Rejected(_)
            | BrokerEvent::NotReported(_)
            | BrokerEvent::OrderNotAnswered(_) => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn claim_paid(&self, units: u64) {
        self.claims_paid.fetch_add(1, Ordering::Relaxed);
        self.claimed_units.fetch_add(units, Ordering::Relaxed);
    }

    pub(super) fn claim_refused(&self) {
        self.claims_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Names, meanings and values.
    pub fn values(&self) -> [(&'static str, &'static str, u64); 13] {
        let of = |c: &AtomicU64| c.load(Ordering::Relaxed);
        [
            ("whimbrel_broker_veil_batches_total", "Batches of tokens issued.", of(&self.issued)),
            (
                "whimbrel_broker_veil_groups_total",
                "Session groups opened, each by a token.",
                of(&self.opened),
            ),
            ("whimbrel_broker_veil_grants_total", "Grants given to veiled users.", of(&self.granted)),
            (
                "whimbrel_broker_veil_challenges_total",
                "Challenges of ordinary UEs that operators do not know, each with a grant.",
                of(&self.challenged),
            ),
            (
                "whimbrel_broker_veil_reports_total",
                "Usage reports of veiled sessions taken.",
                of(&self.reported),
            ),
            (
                "whimbrel_broker_veil_repeated_total",
                "Requests that got their answer again.",
                of(&self.repeated),
            ),
            ("whimbrel_broker_veil_refused_total", "Requests refused.", of(&self.refused)),
            (
                "whimbrel_broker_veil_double_spent_total",
                "Requests to open a group with a token that was spent before.",
                of(&self.double_spent),
            ),
            (
                "whimbrel_broker_veil_failures_total",
                "Challenges that users did not accept.",
                of(&self.failures),
            ),
            (
                "whimbrel_broker_veil_claims_paid_total",
                "Claims of operators that were proved and paid.",
                of(&self.claims_paid),
            ),
            (
                "whimbrel_broker_veil_claimed_units_total",
                "Units of 1,000,000 octets in claims that were paid.",
                of(&self.claimed_units),
            ),
            ("whimbrel_broker_veil_claims_refused_total", "Claims refused.", of(&self.claims_refused)),
            (
                "whimbrel_broker_veil_orders_total",
                "Orders of agencies that operators have answered.",
                of(&self.orders),
            ),
        ]
    }
}

/// Where requests go; cheap to clone.
#[derive(Clone, Debug)]
pub struct VeilEntrance {
    sender: SyncSender<Message>,
    claims: ClaimsEntrance,
    /// Counters of the endpoint /metrics.
    pub metrics: Arc<VeilMetrics>,
}

impl core::fmt::Debug for Message {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Asked(_) => "Asked(…)",
            Self::Stop => "Stop",
        })
    }
}

impl VeilEntrance {
    /// Hands a request over. `None` if there is no room.
    pub fn ask(
        &self,
        kind: QuestionKind,
        peer: String,
        octets: Vec<u8>,
    ) -> Option<oneshot::Receiver<Vec<u8>>> {
        if matches!(kind, QuestionKind::Table | QuestionKind::Claim) {
            return self.claims.ask(kind, peer, octets);
        }
        let (answer, receiver) = oneshot::channel();
        self.sender
            .try_send(Message::Asked(VeilRequest { kind, peer, octets, answer }))
            .is_ok()
            .then_some(receiver)
    }
}

/// What the engine is given.
#[derive(Debug)]
pub struct VeilConfig {
    /// What stays the same.
    pub machine: BrokerConfig,
    /// Path of the database.
    pub store: PathBuf,
    /// Where it records all that it receives, sends and stores.
    pub recorder: Recorder,
    /// The keys of the SUCIs of its ordinary UEs.
    pub home_keys: HomeNetworkKeys,
    /// The agencies whose orders are passed on.
    pub agencies: Vec<VerifyingKey>,
}

impl VeilEngine {
    /// Reads the database and starts the thread. Errors: one sentence.
    pub fn start(config: VeilConfig) -> Result<Self, String> {
        let VeilConfig { machine, store, recorder, home_keys, agencies } = config;
        let mut storage = VeilStorage::open(&store).map_err(|e| e.to_string())?;
        storage.has_changed().map_err(|e| e.to_string())?;
        let state = storage.load(now()).map_err(|e| e.to_string())?;
        let domain = machine.domain.clone();
        let Some((current, former)) = state.epochs.split_last() else {
            return Err(format!("{} has no key to which users seal", store.display()));
        };
        let mut broker = Broker::new(machine, (current.0, current.1.clone()));
        for (id, key) in former.iter().chain([current]) {
            broker.begin_epoch(*id, key.clone());
        }
        let mut log = KeyLog::new(domain.clone());
        for (entry, key) in state.issuers {
            log.append(entry.clone()).map_err(|e| e.to_string())?;
            let epoch = entry.epoch;
            broker
                .add_issuer(entry, key)
                .ok_or_else(|| format!("the issuing key of epoch {epoch} is of another broker"))?;
        }
        let users = state.users.len() + state.home_users.len();
        broker.set_home_keys(home_keys);
        broker.set_agencies(agencies);
        for named in state.users {
            record_user(&recorder, &named);
            broker.set_user(named.id, named.user);
        }
        for named in state.home_users {
            record_home_user(&recorder, &named);
            broker.set_home_user(named.supi, named.user);
        }
        state.records.into_iter().for_each(|record| broker.restore(record));
        take_orders(&mut broker, &recorder, state.orders);
        let metrics = Arc::new(VeilMetrics::default());
        let claims = ClaimsEngine::start(broker.config.clone(), &store, recorder.clone(), metrics.clone())?;
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let work = VeilEngineWork {
            broker,
            log,
            cosignatures: state.cosignatures,
            storage,
            recorder,
            metrics: metrics.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("veil".into())
            .spawn(move || work.run(&receiver))
            .map_err(|e| format!("the thread of veiled users cannot start: {e}"))?;
        info!(%domain, users, "veiled users are served");
        let entrance = VeilEntrance { sender, claims: claims.entrance(), metrics };
        Ok(Self { entrance, claims, thread: Some(thread) })
    }

    /// Where requests go.
    pub fn entrance(&self) -> VeilEntrance {
        self.entrance.clone()
    }

    /// Whether the thread runs; it ends by itself only in a panic.
    pub fn is_alive(&self) -> bool {
        self.claims.is_alive() && self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }
}

impl Drop for VeilEngine {
    fn drop(&mut self) {
        let _ = self.entrance.sender.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct VeilEngineWork {
    broker: Broker,
    log: KeyLog,
    cosignatures: Vec<Cosignature>,
    storage: VeilStorage,
    recorder: Recorder,
    metrics: Arc<VeilMetrics>,
}

impl VeilEngineWork {
    fn run(mut self, receiver: &Receiver<Message>) {
        let (mut tidy, mut look) = (now() + TIDY_EVERY, now() + LOOK_EVERY);
        loop {
            let first = match receiver.recv_timeout(LOOK_EVERY) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Message::Asked(asked)) => Some(asked),
                Err(RecvTimeoutError::Timeout) => None,
            };
            let mut batch: Vec<VeilRequest> = first.into_iter().collect();
            for message in receiver.try_iter().take(BATCH_MAX) {
                match message {
                    Message::Asked(asked) => batch.push(asked),
                    Message::Stop => return,
                }
            }
            self.serve(batch);
            let at = now();
            if at >= look {
                look = at + LOOK_EVERY;
                self.take_up(at);
            }
            if at >= tidy {
                tidy = at + TIDY_EVERY;
                self.broker.forget(at);
                if let Err(e) = self.storage.tidy(at) {
                    warn!("old answers and tokens cannot be deleted: {e}");
                }
            }
        }
    }

    /// Takes up what commands have changed in the database.
    fn take_up(&mut self, at: Instant) {
        let changed = self.storage.has_changed().and_then(|changed| match changed {
            true => self.storage.load(at).map(Some),
            false => Ok(None),
        });
        let state = match changed {
            Ok(Some(state)) => state,
            Ok(None) => return,
            Err(e) => return warn!("changes of the database cannot be read: {e}"),
        };
        for named in state.users {
            if self.broker.user(named.id).is_none() {
                record_user(&self.recorder, &named);
            }
            self.broker.set_user(named.id, named.user);
        }
        for named in state.home_users {
            if self.broker.home_user(named.supi).is_none() {
                record_home_user(&self.recorder, &named);
            }
            self.broker.set_home_user(named.supi, named.user);
        }
        // An epoch that has ended is among these no more.
        let known: Vec<u8> = state.epochs.iter().map(|(id, _)| *id).collect();
        state.epochs.into_iter().for_each(|(id, key)| self.broker.begin_epoch(id, key));
        (0..=u8::MAX).filter(|id| !known.contains(id)).for_each(|id| self.broker.end_epoch(id));
        for (entry, key) in state.issuers.into_iter().skip(self.log.entries().len()) {
            if let Err(e) = self.log.append(entry.clone()) {
                return error!("the log of issuing keys in the database does not extend the one in use: {e}");
            }
            let _ = self.broker.add_issuer(entry, key);
        }
        self.cosignatures = state.cosignatures;
        take_orders(&mut self.broker, &self.recorder, state.orders);
    }

    /// Answers a batch when its records are durable.
    fn serve(&mut self, batch: Vec<VeilRequest>) {
        let mut answers = Vec::with_capacity(batch.len());
        let (mut records, mut spent) = (Vec::new(), Vec::new());
        for asked in batch {
            let (_, answer_name) = asked.kind.names();
            self.recorder.add(How::Received, asked.kind.names().0, &asked.peer, &asked.octets);
            let Some((octets, record)) = self.answer(asked.kind, &asked.octets) else { continue };
            if let Some(Record::Opened { group, .. }) = &record {
                spent.push((*group, answers.len()));
            }
            records.extend(record);
            answers.push((asked, answer_name, octets));
        }
        if !records.is_empty() {
            for before in self.durable(&records) {
                let Record::Opened { group, .. } = &before else { continue };
                let of = spent.iter().find(|(token, _)| token == group).map(|(_, n)| *n);
                self.broker.yield_to(before.clone());
                // What another node has answered stands; this request is judged against it.
                if let Some((asked, _, octets)) = of.and_then(|n| answers.get_mut(n)) {
                    let BrokerOutput { octets: again, event, .. } =
                        self.broker.open_group(&asked.octets, now());
                    self.metrics.count(&event);
                    *octets = again;
                }
            }
            for record in &records {
                self.recorder.add(How::Stored, stored_name(record), "", &record.to_octets());
            }
        }
        for (asked, name, octets) in answers {
            self.recorder.add(How::Sent, name, &asked.peer, &octets);
            // An operator whose connection has ended asks again.
            let _ = asked.answer.send(octets);
        }
    }

    /// Writes until it succeeds: nothing leaves that is not durable.
    fn durable(&mut self, records: &[Record]) -> Vec<Record> {
        let counters: Vec<_> = records
            .iter()
            .filter_map(|record| match record {
                Record::Answered(answered) => {
                    Some((answered.user, self.broker.user(answered.user)?.counters))
                }
                _ => None,
            })
            .collect();
        let mut failed = false;
        loop {
            match self.storage.commit(records, &counters) {
                Ok(before) => return before,
                Err(e) if !failed => {
                    error!("no veiled user is answered until the database can be written: {e}")
                }
                Err(_) => {}
            }
            failed = true;
            std::thread::sleep(RETRY_EVERY);
        }
    }

    fn answer(&mut self, kind: QuestionKind, octets: &[u8]) -> Option<(Vec<u8>, Option<Record>)> {
        let at = now();
        let output = match kind {
            // The engine of claims has these.
            QuestionKind::Table | QuestionKind::Claim => return None,
            QuestionKind::Log => return Some((self.prove(octets, at).unwrap_or_default(), None)),
            QuestionKind::Failure => {
                if let Some((cause, _)) = self.broker.failure(octets) {
                    self.metrics.failures.fetch_add(1, Ordering::Relaxed);
                    warn!("a user did not accept a challenge: {cause}");
                }
                return Some((Vec::new(), None));
            }
            QuestionKind::Tokens => self.broker.issue(octets, at),
            QuestionKind::Group => self.broker.open_group(octets, at),
            QuestionKind::Attach => match whimbrel_broker_client::random() {
                Ok(seed) => self.broker.attach(octets, at, &Seed::new(seed)),
                Err(e) => {
                    error!("no request can be answered: {e}");
                    return None;
                }
            },
            QuestionKind::Report => self.broker.report(octets),
            QuestionKind::Orders => self.broker.orders(octets, at),
            QuestionKind::OrderAnswer => self.broker.order_answer(octets),
        };
        self.metrics.count(&output.event);
        match &output.event {
            BrokerEvent::NotIssued(cause) => warn!("no tokens were issued: {cause}"),
            BrokerEvent::NotOpened(cause) => warn!("no session group was opened: {cause}"),
            BrokerEvent::Refused(cause) => warn!("an attach was refused: {cause}"),
            BrokerEvent::Rejected(cause) => warn!("a request in no session group was rejected: {cause}"),
            BrokerEvent::NotReported(cause) => warn!("a usage report was not taken: {cause}"),
            BrokerEvent::OrderNotAnswered(cause) => warn!("the answer to an order was not taken: {cause}"),
            BrokerEvent::OrderAnswered => info!("an agency's order was answered"),
            BrokerEvent::Issued(_)
            | BrokerEvent::Opened(_)
            | BrokerEvent::Repeated
            | BrokerEvent::Granted(_)
            | BrokerEvent::Challenged(_)
            | BrokerEvent::Ordered(_)
            | BrokerEvent::Reported(..) => {}
        }
        Some((output.octets, output.record))
    }

    /// The newest issuing key that is good now, with what an operator needs that has seen so much of the log.
    fn prove(&self, octets: &[u8], at: Instant) -> Option<Vec<u8>> {
        let request = LogRequest::parse(octets).ok()?;
        let entry = self.log.entries().iter().rev().find(|entry| entry.is_valid(at))?;
        let own = request.broker == self.broker.config.domain;
        let signing = &self.broker.config.signing;
        let proof =
            own.then(|| self.log.prove(entry.epoch, request.seen, self.cosignatures.clone(), signing));
        proof.flatten().map(|proof| proof.to_octets())
    }
}

fn record_user(recorder: &Recorder, NamedUser { name, id, user }: &NamedUser) {
    recorder.add(How::Stored, "user", "", &[&id.0[..], &user.key.octets(), name.as_bytes()].concat());
}

fn record_home_user(recorder: &Recorder, NamedHomeUser { name, supi, keys, user }: &NamedHomeUser) {
    let digits = supi.value();
    let stored = [&user.user.0[..], digits.as_bytes(), &keys.k, &keys.opc, name.as_bytes()];
    recorder.add(How::Stored, "user", "", &stored.concat());
}

fn take_orders(broker: &mut Broker, recorder: &Recorder, orders: Vec<Order>) {
    for order in orders {
        recorder.add(How::Stored, "order", "", &order.to_octets());
        if let Err(why) = broker.order(order, now()) {
            warn!("an agency's order is not passed on: {why}");
        }
    }
}

const fn stored_name(record: &Record) -> &'static str {
    match record {
        Record::Issued { .. } => "batch",
        Record::Opened { .. } => "spent token",
        Record::Answered(_) | Record::Home(_) => "session",
        Record::Reported { .. } => "usage",
        Record::OrderAnswered { .. } => "order answer",
    }
}
