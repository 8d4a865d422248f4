//! The thread that owns the broker's machine and its database.
//!
//! Requests that came meanwhile are answered as one batch: their records are committed in one transaction, then all answers leave.
//! Nothing leaves that is not durable, so a broker that is killed and started again never gives a second answer to a counter.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use tracing::{error, info, warn};
use whimbrel_broker_client::now;
use whimbrel_ids::Instant;
use whimbrel_open::admission::{Origin, Peer};
use whimbrel_open::broker::{Broker, BrokerConfig, BrokerEvent, BrokerOutput, Home, Record};
use whimbrel_open::crypto::Seed;
use whimbrel_open::id::{OperatorId, UserId};
use whimbrel_open::usage::DeliveryAnswer;

use crate::accounting::Accounting;
use crate::metrics::Metrics;
use crate::storage::{
    Changes, Epoch, KnownOperator, NamedHomeUser, NamedUser, Storage, StorageError, UnstoredAnswer,
};

/// Requests on their way to the thread: what waits longer waits in HTTP/2's own flow control.
const QUEUE_MAX: usize = 8_192;
/// Answers of one transaction: at 2,000 a second some 30 ms of work, which the first of them waits.
const BATCH_MAX: usize = 64;
/// How often the database is looked at for what other processes changed.
const REFRESH_EVERY: Duration = Duration::from_millis(250);
/// How often old answers and grants are deleted.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// How often a commit that failed is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// A line on the same operator and cause is written once in so long; those between are counted.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Operators and causes that the log limiter distinguishes: some thousand operators of a few causes.
const LOG_KINDS_MAX: usize = 4_096;

/// How epoch keys change.
#[derive(Clone, Copy, Debug)]
pub struct EpochRule {
    /// A new epoch begins after this many seconds; 0: only by command.
    pub begin_after_s: u64,
    /// A former epoch's key is destroyed this many seconds after it began.
    pub end_after_s: u64,
}

/// The running thread. It stops when this is dropped.
#[derive(Debug)]
pub struct Engine {
    sender: SyncSender<Message>,
    metrics: Arc<Metrics>,
    thread: Option<JoinHandle<()>>,
}

/// What HTTP hands over.
enum Message {
    Request { peer: Peer, octets: Vec<u8>, answer: oneshot::Sender<Vec<u8>> },
    Usage { octets: Vec<u8>, answer: oneshot::Sender<Vec<u8>> },
    Stop,
}

/// Where requests go; cheap to clone.
#[derive(Clone, Debug)]
pub struct Entrance {
    sender: SyncSender<Message>,
    /// Counters of the endpoint /metrics.
    pub metrics: Arc<Metrics>,
}

impl Entrance {
    /// An entrance behind which `answer` answers in place of a broker: what brokers are compared with in measurements. Errors: one
    /// sentence.
    pub fn answered_by(mut answer: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static) -> Result<Self, String> {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let metrics = Arc::new(Metrics::default());
        let counted = metrics.clone();
        let serve = move || {
            while let Ok(
                Message::Request { octets, answer: to, .. } | Message::Usage { octets, answer: to },
            ) = receiver.recv()
            {
                let begin = std::time::Instant::now();
                let octets = answer(&octets);
                counted.worked(begin.elapsed().as_micros() as u64);
                let _ = to.send(octets);
            }
        };
        let thread = std::thread::Builder::new().name("answers".into()).spawn(serve);
        thread.map_err(|e| format!("a thread cannot start: {e}"))?;
        Ok(Self { sender, metrics })
    }

    /// Hands a request over. `None` if there is no room.
    pub fn ask(&self, peer: Peer, octets: Vec<u8>) -> Option<oneshot::Receiver<Vec<u8>>> {
        let (answer, receiver) = oneshot::channel();
        match self.sender.try_send(Message::Request { peer, octets, answer }) {
            Ok(()) => Some(receiver),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => None,
        }
    }

    /// Hands usage reports over. `None` if there is no room.
    pub fn deliver(&self, octets: Vec<u8>) -> Option<oneshot::Receiver<Vec<u8>>> {
        let (answer, receiver) = oneshot::channel();
        self.sender.try_send(Message::Usage { octets, answer }).is_ok().then_some(receiver)
    }
}

impl Engine {
    /// Reads the database and starts the thread. Errors: one sentence.
    pub fn start(
        config: BrokerConfig,
        listed_only: bool,
        epochs: EpochRule,
        storage: Box<dyn Storage>,
    ) -> Result<Self, String> {
        Self::start_with_home(config, None, listed_only, epochs, storage)
    }

    /// The same of a broker that is the home network of ordinary UEs too.
    pub fn start_with_home(
        config: BrokerConfig,
        home: Option<Home>,
        listed_only: bool,
        epochs: EpochRule,
        mut storage: Box<dyn Storage>,
    ) -> Result<Self, String> {
        let state = storage.load(now()).map_err(|e| e.to_string())?;
        let Some((current, former)) = state.epochs.split_last() else {
            return Err("the database has no epoch key".into());
        };
        let domain = config.domain.clone();
        let mut machine =
            Broker::new(config, (current.id, current.key.clone()), state.ticket_key).ok_or_else(|| {
                format!("the certificate is not of {domain}, or not of the broker's key; have the authority sign the right one")
            })?;
        former.iter().for_each(|e| machine.keep_epoch(e.id, e.key.clone()));
        if let Some(home) = home {
            machine.set_home(home);
        }
        let mut known = KnownState { listed_only, ..KnownState::default() };
        let count = state.users.len() + state.home_users.len();
        known.take_users(&mut machine, state.users);
        known.take_home_users(&mut machine, state.home_users);
        known.take_operators(&mut machine, &state.operators);
        known.epochs = state.epochs;
        state.answers.into_iter().for_each(|record| machine.restore(record));
        let usage = storage.load_usage(now()).map_err(|e| e.to_string())?;
        let accounting = Accounting::new(&machine.config, usage);
        accounting.apply_reputations(now(), &mut machine, &known.operators);
        let metrics = Arc::new(Metrics::default());
        metrics.gauges(count as u64, 0);
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let work = EngineWork {
            machine,
            accounting,
            known,
            storage,
            epochs,
            metrics: metrics.clone(),
            waiting: BTreeMap::new(),
            requests: 0,
            log: LogLimiter::default(),
        };
        let thread = std::thread::Builder::new()
            .name("broker".into())
            .spawn(move || work.run(&receiver))
            .map_err(|e| format!("the broker's thread cannot start: {e}"))?;
        info!(%domain, users = count, "the broker serves");
        Ok(Self { sender, metrics, thread: Some(thread) })
    }

    /// Whether the thread runs; it ends by itself only in a panic.
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }

    /// Where requests go.
    pub fn entrance(&self) -> Entrance {
        Entrance { sender: self.sender.clone(), metrics: self.metrics.clone() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state that the machine has from the database, and the names for the log.
#[derive(Default)]
struct KnownState {
    listed_only: bool,
    names: BTreeMap<UserId, String>,
    operators: Vec<KnownOperator>,
    epochs: Vec<Epoch>,
}

impl KnownState {
    fn take_users(&mut self, machine: &mut Broker, users: Vec<NamedUser>) {
        for NamedUser { name, id, user } in users {
            machine.set_user(id, user);
            self.names.insert(id, name);
        }
    }

    fn take_home_users(&mut self, machine: &mut Broker, users: Vec<NamedHomeUser>) {
        for NamedHomeUser { name, supi, user, .. } in users {
            self.names.insert(user.user, name);
            machine.set_home_user(supi, user);
        }
    }

    fn take_operators(&mut self, machine: &mut Broker, operators: &[KnownOperator]) {
        let allowed = operators.iter().filter(|o| o.allowed).map(|o| o.id).collect();
        machine.config.policy.operators = self.listed_only.then_some(allowed);
        let newcomer = machine.config.policy.reputation_newcomer;
        for former in &self.operators {
            machine.set_reputation(former.id, newcomer);
        }
        for operator in operators {
            machine.set_reputation(operator.id, operator.reputation.unwrap_or(newcomer));
        }
        self.operators = operators.to_vec();
    }

    fn take_epochs(&mut self, machine: &mut Broker, epochs: Vec<Epoch>) {
        let Some((current, former)) = epochs.split_last() else { return };
        let begun = |id: u8, of: &[Epoch]| of.iter().find(|e| e.id == id).map(|e| e.begun_s);
        for gone in self.epochs.iter().filter(|e| begun(e.id, &epochs) != Some(e.begun_s)) {
            info!(key = gone.id, "an epoch ended: requests sealed to its key open no more");
        }
        if machine.epoch().id != current.id {
            info!(key = current.id, "an epoch began: users learn its key at their next attach");
        }
        machine.begin_epoch(current.id, current.key.clone());
        for gone in self.epochs.iter().filter(|e| begun(e.id, &epochs).is_none()) {
            machine.end_epoch(gone.id);
        }
        former.iter().for_each(|e| machine.keep_epoch(e.id, e.key.clone()));
        self.epochs = epochs;
    }
}

struct EngineWork {
    machine: Broker,
    accounting: Accounting,
    known: KnownState,
    storage: Box<dyn Storage>,
    epochs: EpochRule,
    metrics: Arc<Metrics>,
    waiting: BTreeMap<u64, oneshot::Sender<Vec<u8>>>,
    requests: u64,
    log: LogLimiter,
}

impl EngineWork {
    fn run(mut self, receiver: &Receiver<Message>) {
        let (mut refresh, mut tidy) = (now() + REFRESH_EVERY, now() + TIDY_EVERY);
        loop {
            let busy = self.machine.admission().waiting() != (0, 0);
            let wait = if busy { Duration::ZERO } else { refresh.since(now()).max(Duration::from_millis(1)) };
            match receiver.recv_timeout(wait) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
                Ok(message) => {
                    if self.take(message, receiver) {
                        return;
                    }
                    for message in receiver.try_iter().take(4 * BATCH_MAX) {
                        if self.take(message, receiver) {
                            return;
                        }
                    }
                }
            }
            let begin = std::time::Instant::now();
            let served = self.serve(receiver);
            if served > 0 {
                self.metrics.worked(begin.elapsed().as_micros() as u64);
            }
            let at = now();
            if at >= refresh {
                refresh = at + REFRESH_EVERY;
                self.refresh(at);
            }
            if at >= tidy {
                tidy = at + TIDY_EVERY;
                if let Err(e) = self.storage.tidy(at).and_then(|()| self.storage.tidy_usage(at)) {
                    warn!("old answers, grants and reports cannot be deleted: {e}");
                }
                self.accounting.forget_settled(at);
                // Blames are forgotten with time.
                self.accounting.apply_reputations(at, &mut self.machine, &self.known.operators);
                self.log.report();
            }
        }
    }

    /// Takes a request in. Whether the thread must stop.
    fn take(&mut self, message: Message, receiver: &Receiver<Message>) -> bool {
        let (peer, octets, answer) = match message {
            Message::Stop => return true,
            Message::Usage { octets, answer } => return !self.take_usage(&octets, answer, receiver),
            Message::Request { peer, octets, answer } => (peer, octets, answer),
        };
        self.requests += 1;
        let origin = Origin { peer, request: self.requests };
        self.waiting.insert(self.requests, answer);
        if let Some((origin, output)) = self.machine.offer(origin, octets, now()) {
            self.metrics.count(&output.event);
            self.answer(origin, output.octets);
        }
        false
    }

    /// Takes usage reports in and answers with receipts. Whether the thread goes on.
    fn take_usage(
        &mut self,
        octets: &[u8],
        answer: oneshot::Sender<Vec<u8>>,
        receiver: &Receiver<Message>,
    ) -> bool {
        let (at, names) = (now(), &self.known.names);
        let delivered =
            self.accounting.process_delivery(octets, at, &self.machine, &self.known.epochs, names);
        self.metrics.delivered(&delivered);
        delivered.log();
        self.accounting.log(at, &delivered.blames, names);
        let batch = &delivered.batch;
        if !batch.reports.is_empty() && !self.durable(receiver, |storage| storage.commit_usage(batch)) {
            return false;
        }
        self.accounting.apply_reputations(at, &mut self.machine, &self.known.operators);
        let found = delivered.sender.map_or(Ok(Vec::new()), |(operator, received)| {
            self.storage.receipts(operator, received, DeliveryAnswer::RECEIPTS_MAX)
        });
        match found {
            Ok(receipts) => drop(answer.send(delivered.answer(octets, &self.machine, receipts))),
            // Without an answer the operator sends the same again.
            Err(e) => warn!("receipts cannot be read: {e}"),
        }
        true
    }

    /// Answers a batch of those that wait. Gives their number.
    fn serve(&mut self, receiver: &Receiver<Message>) -> usize {
        let mut answers = Vec::new();
        let mut batch = Vec::new();
        while answers.len() < BATCH_MAX {
            let seed = match whimbrel_broker_client::random() {
                Ok(octets) => Seed::new(octets),
                Err(e) => {
                    error!("no request can be answered: {e}");
                    break;
                }
            };
            let Some((origin, output)) = self.machine.serve(now(), &seed) else { break };
            self.report(&output.event);
            let BrokerOutput { octets, event, record } = output;
            if let Some(record) = record {
                let ticket = match &record {
                    Record::Attach(r) => self.machine.user(r.user).map_or(0, |user| user.ticket),
                    Record::Home(_) => 0,
                };
                let grant = match event {
                    BrokerEvent::Granted(session) => {
                        self.accounting.open_session(&session.grant, session.user);
                        Some(session.grant)
                    }
                    _ => None,
                };
                batch.push(UnstoredAnswer { record, ticket, grant });
            }
            answers.push((origin, octets));
        }
        if !batch.is_empty() && !self.commit(&batch, receiver) {
            return 0;
        }
        let served = answers.len();
        answers.into_iter().for_each(|(origin, octets)| self.answer(origin, octets));
        served
    }

    /// Makes a batch durable, however long that takes. Whether it is; if not, the thread is to stop.
    fn commit(&mut self, batch: &[UnstoredAnswer], receiver: &Receiver<Message>) -> bool {
        let begin = std::time::Instant::now();
        let durable = self.durable(receiver, |storage| storage.commit(batch));
        self.metrics.committed(begin.elapsed().as_micros() as u64);
        durable
    }

    /// Writes until it succeeds. Whether it did; if not, the thread is to stop.
    fn durable(
        &mut self,
        receiver: &Receiver<Message>,
        mut write: impl FnMut(&mut dyn Storage) -> Result<(), StorageError>,
    ) -> bool {
        let mut failed = false;
        while let Err(e) = write(&mut *self.storage) {
            if !failed {
                error!("no attach is answered until the database can be written: {e}");
                self.metrics.database(Some(e.to_string()));
            }
            failed = true;
            match receiver.recv_timeout(RETRY_EVERY) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                // A request now finds no room: the sender is dropped, and HTTP reports it.
                Ok(Message::Request { .. } | Message::Usage { .. }) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        if failed {
            info!("the database can be written again: attaches are answered");
            self.metrics.database(None);
        }
        true
    }

    fn answer(&mut self, origin: Origin, octets: Vec<u8>) {
        if let Some(answer) = self.waiting.remove(&origin.request) {
            // An operator whose connection has ended asks again.
            let _ = answer.send(octets);
        }
    }

    fn report(&mut self, event: &BrokerEvent) {
        self.metrics.count(event);
        match event {
            BrokerEvent::Granted(_) | BrokerEvent::Challenged { .. } | BrokerEvent::Repeated { .. } => {}
            BrokerEvent::Refused { cause, operator, user } => {
                let kind = (Some(*operator), format!("{cause:?}"));
                let name = user.and_then(|id| self.known.names.get(&id)).map_or("unknown", String::as_str);
                if self.log.is_first(kind) {
                    warn!(user = name, %operator, "attach refused: {cause}");
                }
            }
            BrokerEvent::Rejected(cause) => {
                if self.log.is_first((None, format!("{cause:?}"))) {
                    warn!("a request of an operator that is not authenticated was rejected: {cause}");
                }
            }
        }
    }

    fn refresh(&mut self, at: Instant) {
        match self.storage.changes() {
            Ok(None) => {}
            Ok(Some(Changes { users, home_users, operators, epochs })) => {
                self.known.take_users(&mut self.machine, users);
                self.known.take_home_users(&mut self.machine, home_users);
                self.known.take_operators(&mut self.machine, &operators);
                self.known.take_epochs(&mut self.machine, epochs);
                self.accounting.apply_reputations(at, &mut self.machine, &self.known.operators);
            }
            Err(e) => warn!("changes of the database cannot be read: {e}"),
        }
        if let Err(e) = self.turn_epochs(at) {
            warn!("the epoch key cannot be changed: {e}");
        }
        let (ticketed, others) = self.machine.admission().waiting();
        self.metrics.gauges(self.known.names.len() as u64, (ticketed + others) as u64);
    }

    /// Begins and ends epochs as the configuration says.
    fn turn_epochs(&mut self, at: Instant) -> Result<(), StorageError> {
        let rule = self.epochs;
        let Some((current, former)) = self.known.epochs.split_last() else { return Ok(()) };
        let age = |e: &Epoch| at.as_secs().saturating_sub(e.begun_s);
        let old: Vec<u8> = former.iter().filter(|e| age(e) >= rule.end_after_s).map(|e| e.id).collect();
        let begins = rule.begin_after_s > 0 && age(current) >= rule.begin_after_s;
        if begins {
            let key = whimbrel_broker_client::random().map_err(StorageError::NoRandomness)?;
            self.storage.begin_epoch(whimbrel_open::crypto::PrivateKey::new(key), at)?;
        }
        for id in &old {
            self.storage.end_epoch(*id)?;
        }
        if begins || !old.is_empty() {
            let epochs = self.storage.epochs()?;
            self.known.take_epochs(&mut self.machine, epochs);
        }
        Ok(())
    }
}

/// Writes the first line of a kind and counts the rest.
#[derive(Default)]
struct LogLimiter {
    kinds: BTreeMap<(Option<OperatorId>, String), (Instant, u64)>,
}

impl LogLimiter {
    fn is_first(&mut self, kind: (Option<OperatorId>, String)) -> bool {
        let at = now();
        if self.kinds.len() >= LOG_KINDS_MAX && !self.kinds.contains_key(&kind) {
            return false;
        }
        let (last, more) = self.kinds.entry(kind).or_insert((Instant(0), 0));
        if at.since(*last) < LOG_EVERY {
            *more += 1;
            return false;
        }
        *last = at;
        true
    }

    /// Writes how many lines were left out.
    fn report(&mut self) {
        for ((operator, cause), (_, more)) in self.kinds.iter().filter(|(_, (_, more))| *more > 0) {
            let operator = operator.map_or("without an authentic operator".into(), |o| format!("of {o}"));
            warn!("{more} more requests {operator} were refused: {cause}");
        }
        let at = now();
        self.kinds.retain(|_, (last, _)| at.since(*last) < LOG_EVERY);
        self.kinds.values_mut().for_each(|(_, more)| *more = 0);
    }
}
