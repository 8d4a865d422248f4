//! The charging function of this core, on a thread of its own.
//!
//! Its answers wait for the disk; the control thread and the other interfaces do not.

pub(crate) mod embedded;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_charging::{
    ChargingDataRequest, ChargingDataResponse, ChargingError, ChargingFunction, ChargingRefusal,
    EXPIRED_AT_ONCE_MAX, Notification,
};
use whimbrel_ids::Instant;

use super::UNDER_WAY_MAX;
use crate::config::Config;
use crate::log_limiter::LogLimiter;
use crate::observation::{Condition, Console, Metric, MetricSample};
use crate::{accounts, clock};

/// Requests that one transaction has at most, so that the first of them does not wait long for the last.
const BATCH_MAX: usize = 256;

/// How often orders to consumers are looked for, which the API and commands leave in the file, and sessions without reports.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// The name of the component in `/status`.
const COMPONENT: &str = "chf";

/// Why a request has no answer of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// As many requests wait as may.
    Busy,
    /// The file failed. The log and `/status` say how.
    Failed,
}

/// The answer to a request.
pub(super) type ChargingResult = Result<Result<ChargingDataResponse, ChargingRefusal>, Unanswered>;

/// Receives the answer to a request, on the thread of the function.
type Reply = Box<dyn FnOnce(ChargingResult) + Send>;

/// Input of the thread.
enum ChfInput {
    Request(Box<ChargingDataRequest>, Reply),
    Stop,
}

/// The way to the function.
#[derive(Clone)]
pub(crate) struct ChfHandle(SyncSender<ChfInput>);

impl ChfHandle {
    /// Has a request executed; does not wait for it.
    pub(super) fn ask(
        &self,
        request: ChargingDataRequest,
        reply: impl FnOnce(ChargingResult) + Send + 'static,
    ) {
        let input = ChfInput::Request(Box::new(request), Box::new(reply));
        if let Err(TrySendError::Full(input) | TrySendError::Disconnected(input)) = self.0.try_send(input)
            && let ChfInput::Request(_, reply) = input
        {
            reply(Err(Unanswered::Busy));
        }
    }
}

/// Figures of the function.
#[derive(Default)]
struct ChfFigures {
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    transactions: AtomicU64,
    expired: AtomicU64,
    sessions: AtomicU64,
    accounts: AtomicU64,
}

/// The thread; it ends when this is dropped.
pub(crate) struct ChfThread {
    handle: ChfHandle,
    figures: Arc<ChfFigures>,
    thread: Option<JoinHandle<()>>,
}

impl ChfThread {
    /// Opens the accounts and starts the thread. `notify` sends an order to the consumer of a session. Errors: one sentence.
    pub(crate) fn start(
        config: &Config,
        console: Arc<Console>,
        notify: impl Fn(&Notification) + Send + 'static,
    ) -> Result<Self, String> {
        let function = accounts::open(config)?;
        info!("this core's CHF has its accounts in {}", config.charging_file().display());
        console.components(|c| c.set(COMPONENT, Condition::Up, "the charging function of this core"));
        // A place for `Stop`, too.
        let (sender, inputs) = mpsc::sync_channel(UNDER_WAY_MAX + 1);
        let log = LogLimiter::new("the accounts of this core's CHF");
        let figures = Arc::new(ChfFigures::default());
        let state = ChfState {
            function,
            notify: Box::new(notify),
            console,
            figures: figures.clone(),
            log,
            is_failing: false,
        };
        let thread = std::thread::Builder::new()
            .name("charging".into())
            .spawn(move || state.run(&inputs))
            .map_err(|e| format!("the thread of the charging function cannot start: {e}"))?;
        Ok(Self { handle: ChfHandle(sender), figures, thread: Some(thread) })
    }

    /// Samples for the endpoint /metrics.
    pub(super) fn samples(&self) -> Vec<MetricSample> {
        let ChfFigures { answered, refused, failed, transactions, expired, sessions, accounts } =
            &*self.figures;
        let sample = |metric, label: Option<&str>, value: &AtomicU64| MetricSample {
            metric,
            label: label.map(Into::into),
            value: value.load(Ordering::Relaxed),
        };
        vec![
            sample(Metric::ChfRequests, Some("answered"), answered),
            sample(Metric::ChfRequests, Some("refused"), refused),
            sample(Metric::ChfRequests, Some("failed"), failed),
            sample(Metric::ChfTransactions, None, transactions),
            sample(Metric::ChfExpired, None, expired),
            sample(Metric::ChfSessions, None, sessions),
            sample(Metric::ChfAccounts, None, accounts),
        ]
    }

    pub(crate) fn handle(&self) -> &ChfHandle {
        &self.handle
    }
}

impl Drop for ChfThread {
    fn drop(&mut self) {
        // It waits if the queue is full, and is not needed if the thread has ended.
        let _ = self.handle.0.send(ChfInput::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct ChfState {
    function: ChargingFunction,
    notify: Box<dyn Fn(&Notification) + Send>,
    console: Arc<Console>,
    figures: Arc<ChfFigures>,
    log: LogLimiter<String>,
    is_failing: bool,
}

impl ChfState {
    /// Executes requests until the function stops, all that wait in one transaction.
    fn run(mut self, inputs: &mpsc::Receiver<ChfInput>) {
        let mut next = clock::now();
        loop {
            let first = match inputs.recv_timeout(next.since(clock::now())) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut stops = false;
            let (mut requests, mut replies) = (Vec::new(), Vec::new());
            for input in first.into_iter().chain(inputs.try_iter()).take(BATCH_MAX) {
                match input {
                    ChfInput::Request(request, reply) => {
                        requests.push(*request);
                        replies.push(reply);
                    }
                    ChfInput::Stop => {
                        stops = true;
                        break;
                    }
                }
            }
            if !requests.is_empty() {
                let answers = self.execute(&requests);
                replies.into_iter().zip(answers).for_each(|(reply, answer)| reply(answer));
            }
            if stops {
                return;
            }
            let now = clock::now();
            if now >= next {
                let is_done = self.housekeeping(now);
                next = if is_done { now + HOUSEKEEPING } else { now };
            }
        }
    }

    fn execute(&mut self, requests: &[ChargingDataRequest]) -> Vec<ChargingResult> {
        let add = |counter: &AtomicU64, more: usize| counter.fetch_add(more as u64, Ordering::Relaxed);
        add(&self.figures.transactions, 1);
        match self.function.handle(clock::now(), requests) {
            Ok(answers) => {
                let refused = answers.iter().filter(|answer| answer.is_err()).count();
                add(&self.figures.refused, refused);
                add(&self.figures.answered, answers.len() - refused);
                self.works();
                answers.into_iter().map(Ok).collect()
            }
            // One row that cannot be read is not to fail the others.
            Err(_) if requests.len() > 1 => {
                requests.iter().flat_map(|request| self.execute(std::slice::from_ref(request))).collect()
            }
            Err(e) => {
                add(&self.figures.failed, 1);
                self.failed(&e);
                vec![Err(Unanswered::Failed)]
            }
        }
    }

    /// Sends orders and closes sessions without reports. Returns false if there is more to do.
    fn housekeeping(&mut self, now: Instant) -> bool {
        let worked = self.send_orders().and_then(|()| {
            let closed = self.function.expire(now)?;
            Ok((closed, self.function.totals()?))
        });
        match worked {
            Ok((closed, (sessions, accounts))) => {
                self.figures.expired.fetch_add(closed as u64, Ordering::Relaxed);
                self.figures.sessions.store(sessions, Ordering::Relaxed);
                self.figures.accounts.store(accounts, Ordering::Relaxed);
                self.works();
                closed < EXPIRED_AT_ONCE_MAX
            }
            Err(e) => {
                self.failed(&e);
                true
            }
        }
    }

    /// An order whose sending was interrupted is sent again: the file forgets it afterwards.
    fn send_orders(&mut self) -> Result<(), ChargingError> {
        let orders = self.function.notifications()?;
        orders.iter().for_each(|order| (self.notify)(order));
        if orders.is_empty() { Ok(()) } else { self.function.notified(&orders) }
    }

    fn works(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            info!("this core's CHF works again");
            self.console
                .components(|c| c.set(COMPONENT, Condition::Up, "the charging function of this core"));
        }
    }

    fn failed(&mut self, e: &ChargingError) {
        self.is_failing = true;
        let sentence = format!("this core's CHF answers nothing: {e}");
        self.console.components(|c| c.set(COMPONENT, Condition::Limited, sentence.clone()));
        if self.log.allows(clock::now(), sentence.clone()) {
            warn!("{sentence}");
        }
    }
}
