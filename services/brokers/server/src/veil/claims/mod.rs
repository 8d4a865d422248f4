//! The thread that serves the tables of settlement periods and pays claims (LOCA, chapter 4.4.5). It has a connection of its own to the
//! database: a proof takes some 10 ms to verify, for which no attach should wait.

mod storage;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use tracing::{error, info, warn};
use whimbrel_broker_client::now;
use whimbrel_broker_client::veil::QuestionKind;
use whimbrel_broker_client::veil::record::{Recorder, claim_without_proof};
use whimbrel_claims::{Claim, ClaimError, verify};
use whimbrel_ids::Instant;
use whimbrel_open::id::OperatorId;
use whimbrel_privacy::broker::BrokerConfig;
use whimbrel_privacy::crypto::hash;
use whimbrel_privacy::ledger::How;
use whimbrel_privacy::msg::{ClaimAnswer, ClaimRefusal, ClaimRequest, Payment, PeriodHead, TableRequest};

pub use storage::{ClaimsStorage, Paid, PaidClaim};

use super::engine::VeilMetrics;
use crate::storage::StorageError;

/// Claims on their way to the thread: a megabyte each.
const QUEUE_MAX: usize = 16;

/// Claims that an operator may make of a period: a million rows are 1,024 claims of all slots, and no operator has all.
const CLAIMS_MAX: u64 = 256;

/// A request, and where its answer goes.
struct QueuedClaimRequest {
    kind: QuestionKind,
    peer: String,
    octets: Vec<u8>,
    answer: oneshot::Sender<Vec<u8>>,
}

enum Message {
    Asked(QueuedClaimRequest),
    Stop,
}

/// The running thread. It stops when this is dropped.
#[derive(Debug)]
pub(super) struct ClaimsEngine {
    entrance: ClaimsEntrance,
    thread: Option<JoinHandle<()>>,
}

/// Where its requests go; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ClaimsEntrance(SyncSender<Message>);

impl core::fmt::Debug for Message {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Asked(_) => "Asked(…)",
            Self::Stop => "Stop",
        })
    }
}

impl ClaimsEntrance {
    /// Hands a request over. `None` if there is no room.
    pub(super) fn ask(
        &self,
        kind: QuestionKind,
        peer: String,
        octets: Vec<u8>,
    ) -> Option<oneshot::Receiver<Vec<u8>>> {
        let (answer, receiver) = oneshot::channel();
        self.0
            .try_send(Message::Asked(QueuedClaimRequest { kind, peer, octets, answer }))
            .is_ok()
            .then_some(receiver)
    }
}

impl ClaimsEngine {
    /// Starts the thread. Errors: one sentence.
    pub(super) fn start(
        config: BrokerConfig,
        store: &Path,
        recorder: Recorder,
        metrics: Arc<VeilMetrics>,
    ) -> Result<Self, String> {
        let storage = ClaimsStorage::open(store).map_err(|e| e.to_string())?;
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let work = ClaimsWork { config, storage, recorder, metrics };
        let thread = std::thread::Builder::new()
            .name("veil-claims".into())
            .spawn(move || work.run(&receiver))
            .map_err(|e| format!("the thread of claims cannot start: {e}"))?;
        Ok(Self { entrance: ClaimsEntrance(sender), thread: Some(thread) })
    }

    pub(super) fn entrance(&self) -> ClaimsEntrance {
        self.entrance.clone()
    }

    /// Whether the thread runs; it ends by itself only in a panic.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }
}

impl Drop for ClaimsEngine {
    fn drop(&mut self) {
        let _ = self.entrance.0.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Why a claim is not answered, or refused.
enum NotPaid {
    Refused(ClaimRefusal),
    /// The database failed: the operator asks again.
    Failed(StorageError),
}

impl From<ClaimRefusal> for NotPaid {
    fn from(cause: ClaimRefusal) -> Self {
        Self::Refused(cause)
    }
}

impl From<StorageError> for NotPaid {
    fn from(e: StorageError) -> Self {
        Self::Failed(e)
    }
}

struct ClaimsWork {
    config: BrokerConfig,
    storage: ClaimsStorage,
    recorder: Recorder,
    metrics: Arc<VeilMetrics>,
}

impl ClaimsWork {
    fn run(mut self, receiver: &Receiver<Message>) {
        while let Ok(Message::Asked(QueuedClaimRequest { kind, peer, octets, answer })) = receiver.recv() {
            let (request_name, answer_name) = kind.names();
            let octets_of_answer = if kind == QuestionKind::Table {
                self.recorder.add(How::Received, request_name, &peer, &octets);
                self.table(&octets)
            } else {
                self.recorder.add(How::Received, request_name, &peer, &claim_without_proof(&octets));
                self.claim(&octets, now())
            };
            // Without an answer the connection says so, and the operator asks again.
            let Some(octets) = octets_of_answer else { continue };
            self.recorder.add(How::Sent, answer_name, &peer, &octets);
            let _ = answer.send(octets);
        }
    }

    /// Part of a table; empty if there is no such period.
    fn table(&self, octets: &[u8]) -> Option<Vec<u8>> {
        let Ok(request) = TableRequest::parse(octets) else { return Some(Vec::new()) };
        if request.broker != self.config.domain {
            return Some(Vec::new());
        }
        match self.storage.table_part(request.period, request.from) {
            Ok(part) => Some(part.map_or(Vec::new(), |part| part.to_octets())),
            Err(e) => {
                error!("the table of period {} cannot be read: {e}", request.period);
                None
            }
        }
    }

    fn claim(&mut self, octets: &[u8], at: Instant) -> Option<Vec<u8>> {
        let answer = match self.judge(octets, at) {
            Ok(answer) => answer,
            Err(NotPaid::Refused(cause)) => {
                self.metrics.claim_refused();
                warn!("a claim is not paid: {cause}");
                ClaimAnswer::Refused(cause).to_octets()
            }
            Err(NotPaid::Failed(e)) => {
                error!("a claim cannot be paid until the database can be written: {e}");
                return None;
            }
        };
        Some(answer)
    }

    /// Judges a claim and pays it, once. The same claim gets the same answer.
    fn judge(&mut self, octets: &[u8], at: Instant) -> Result<Vec<u8>, NotPaid> {
        let request = ClaimRequest::parse(octets).map_err(|_| ClaimRefusal::Malformed)?;
        let operator = self.authenticate(&request, at)?;
        let head = self.storage.head(request.period)?.ok_or(ClaimRefusal::UnknownPeriod)?;
        let claim = hash(&[octets]);
        if let Some(answer) = self.storage.answer(&claim)? {
            return Ok(answer);
        }
        if request.nullifiers.len() != usize::from(head.slots) {
            return Err(ClaimRefusal::Slots.into());
        }
        if self.storage.claims_of(&operator, request.period)? >= CLAIMS_MAX {
            return Err(ClaimRefusal::TooMany.into());
        }
        if self.storage.is_claimed(&request.nullifiers)? {
            return Err(ClaimRefusal::Claimed.into());
        }
        check_proof(&request, &head, &operator)?;
        let payment = Payment::signed(claim, request.period, request.units, &self.config.signing);
        let answer = ClaimAnswer::Paid(payment).to_octets();
        let paid = PaidClaim { claim, operator, period: request.period, units: request.units };
        // Another node may have paid one of the sessions meanwhile: the insertion decides.
        if !self.storage.pay(&paid, &request.nullifiers, &answer)? {
            return Err(ClaimRefusal::Claimed.into());
        }
        self.recorder.add(How::Stored, "payment", "", &answer);
        self.metrics.claim_paid(request.units);
        // The operator is in `broker period list`. A log that names it would be one more place that knows it.
        info!(period = request.period, "a claim of {} units is proved and paid", request.units);
        Ok(answer)
    }

    fn authenticate(&self, request: &ClaimRequest, at: Instant) -> Result<OperatorId, ClaimRefusal> {
        if request.broker != self.config.domain {
            return Err(ClaimRefusal::OtherBroker);
        }
        let trusted = self.config.trust.operator(&request.certificate, at);
        let operator = trusted.map_err(|_| ClaimRefusal::Certificate)?;
        if !request.is_signed() {
            return Err(ClaimRefusal::OperatorSignature);
        }
        let allowed = self.config.policy.operators.contains(&operator);
        if allowed { Ok(operator) } else { Err(ClaimRefusal::OperatorNotAllowed) }
    }
}

fn check_proof(request: &ClaimRequest, head: &PeriodHead, operator: &OperatorId) -> Result<(), ClaimRefusal> {
    let claim = Claim {
        table: (head.root, whimbrel_claims::table::depth(head.rows as usize)),
        nullifiers: request.nullifiers.clone(),
        units: request.units,
        context: head.claim_context(operator),
    };
    verify(&claim, &request.proof).map_err(|e| match e {
        ClaimError::Slots => ClaimRefusal::Slots,
        ClaimError::Malformed => ClaimRefusal::Malformed,
        ClaimError::Repeated => ClaimRefusal::Repeated,
        ClaimError::Overflow => ClaimRefusal::Overflow,
        ClaimError::Proof => ClaimRefusal::Proof,
        ClaimError::NotProven => ClaimRefusal::NotProven,
    })
}
