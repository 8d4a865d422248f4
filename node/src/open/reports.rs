//! Sends usage reports to brokers and keeps their receipts: this operator's own reports, signed and sealed, and those of its users.
//!
//! Reports wait until their broker has taken them. They hold totals, so that what is lost with the process costs a cycle at most.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc as queue;
use tokio::time::Instant as Tick;
use tracing::{info, warn};
use whimbrel_broker_client::ledger::LedgerFile;
use whimbrel_open::crypto::Seed;
use whimbrel_open::id::Domain;
use whimbrel_open::msg::EpochKey;
use whimbrel_open::usage::{
    BrokerStanding, Delivery, DeliveryAnswer, Outcome, SealedReport, SignedReceipt, SignedReport,
};

use super::Edge;
use super::metering::Measured;
use crate::clock;

/// Reports that arrive within this time leave together.
const TOGETHER: Duration = Duration::from_millis(200);
/// A broker that did not take reports is asked again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a broker may take for a delivery.
const DELIVER_WITHIN: Duration = Duration::from_secs(5);
/// Reports that wait for one broker: an hour of a thousand sessions. Past this the oldest is dropped, and a later one has its totals.
const WAITING_MAX: usize = 65_536;
/// Brokers to which reports go.
const BROKERS_MAX: usize = 1_024;

/// A report that waits.
enum WaitingReport {
    Own(SignedReport),
    /// Only the broker can read it. It says whether it was sealed to a key that the broker no longer has.
    OfUser(SealedReport),
}

#[derive(Default)]
struct OfBroker {
    waiting: VecDeque<WaitingReport>,
    /// What the broker's next reports are sealed to, once the broker has sent it.
    key: Option<EpochKey>,
    /// Octets that were claimed of each session.
    claimed: BTreeMap<[u8; 16], u64>,
    not_before: Option<Tick>,
    failing: bool,
}

/// The reports of all brokers.
pub(super) struct Reports {
    edge: Arc<Edge>,
    ledger: LedgerFile,
    brokers: BTreeMap<Domain, OfBroker>,
}

impl Reports {
    pub(super) fn new(edge: Arc<Edge>, ledger: LedgerFile) -> Self {
        Self { edge, ledger, brokers: BTreeMap::new() }
    }

    /// Runs until the control thread stops, then sends what waits once.
    pub(super) async fn run(mut self, mut measured: queue::UnboundedReceiver<Measured>) {
        loop {
            let waits = self.brokers.values().any(|b| !b.waiting.is_empty());
            let next = match waits {
                true => tokio::time::timeout(TOGETHER, measured.recv()).await.ok(),
                false => Some(measured.recv().await),
            };
            match next {
                Some(Some(one)) => {
                    self.take(one);
                    while let Ok(one) = measured.try_recv() {
                        self.take(one);
                    }
                    tokio::time::sleep(TOGETHER).await;
                }
                Some(None) => {
                    self.brokers.values_mut().for_each(|b| b.not_before = None);
                    self.send().await;
                    return;
                }
                None => {}
            }
            while let Ok(one) = measured.try_recv() {
                self.take(one);
            }
            self.send().await;
        }
    }

    fn take(&mut self, one: Measured) {
        let (broker, waiting) = match one {
            Measured::Granted(grant) => return self.kept(|ledger| ledger.keep_grant(&grant)),
            Measured::Cycle(report) => {
                let signed = self.edge.open.operator.sign_report(*report);
                self.kept(|ledger| ledger.keep_reports(std::slice::from_ref(&signed)));
                (signed.report.broker.clone(), WaitingReport::Own(signed))
            }
            Measured::OfUser(broker, sealed) => (broker, WaitingReport::OfUser(*sealed)),
        };
        if self.brokers.len() >= BROKERS_MAX && !self.brokers.contains_key(&broker) {
            self.brokers.retain(|_, b| !b.waiting.is_empty());
        }
        let of = self.brokers.entry(broker.clone()).or_default();
        if let WaitingReport::Own(signed) = &waiting {
            let report = &signed.report;
            let octets = report.uplink.octets + report.downlink.octets;
            let before = of.claimed.insert(report.pseudonym.0, octets).unwrap_or(0);
            if report.closed {
                of.claimed.remove(&report.pseudonym.0);
            }
            self.edge.standing(&broker, |s| s.claim(octets.saturating_sub(before)));
        }
        of.waiting.push_back(waiting);
        if of.waiting.len() > WAITING_MAX {
            of.waiting.pop_front();
        }
    }

    fn kept(&mut self, keep: impl FnOnce(&mut LedgerFile) -> Result<(), String>) {
        if let Err(e) = keep(&mut self.ledger) {
            warn!("{e}; statements of brokers cannot be checked for this");
        }
    }

    async fn send(&mut self) {
        let domains: Vec<Domain> = self.brokers.keys().cloned().collect();
        for domain in domains {
            while self.is_due(&domain) {
                if let Err(why) = self.deliver(&domain).await {
                    self.failed(&domain, &why);
                    break;
                }
            }
        }
    }

    fn is_due(&self, domain: &Domain) -> bool {
        let now = Tick::now();
        self.brokers
            .get(domain)
            .is_some_and(|b| !b.waiting.is_empty() && b.not_before.is_none_or(|at| at <= now))
    }

    /// Sends one delivery. Without the broker's key it has no report in it, and the answer has the key.
    async fn deliver(&mut self, domain: &Domain) -> Result<(), String> {
        let received = self.ledger.last_receipt(domain)?;
        let Some(of) = self.brokers.get(domain) else { return Ok(()) };
        let mut reports = Vec::new();
        if let Some(key) = of.key {
            for waiting in of.waiting.iter().take(Delivery::REPORTS_MAX) {
                let seed = Seed::new(whimbrel_broker_client::random()?);
                let sealed = match waiting {
                    WaitingReport::Own(signed) => {
                        signed.seal(&key, &seed).ok_or("the broker's key has small order")?
                    }
                    WaitingReport::OfUser(sealed) => sealed.clone(),
                };
                reports.push(sealed);
            }
        }
        let operator = &self.edge.open.operator;
        let delivery = operator.deliver(domain.clone(), clock::now(), received, reports);
        let at = self.edge.address(domain).await.map_err(|reason| reason.to_string())?;
        let octets = delivery.to_octets();
        let answer = self.edge.client.deliver(domain, at, &octets, DELIVER_WITHIN).await;
        let answer = answer.map_err(|e| e.to_string())?;
        let verified =
            DeliveryAnswer::verify(&answer, &delivery, operator.id(), &operator.trust, clock::now());
        let (key, outcomes, receipts) = verified.map_err(|e| e.to_string())?;
        self.answered(domain, key, &outcomes, &receipts)
    }

    fn answered(
        &mut self,
        domain: &Domain,
        key: EpochKey,
        outcomes: &[u8],
        receipts: &[SignedReceipt],
    ) -> Result<(), String> {
        self.ledger.keep_receipts(receipts)?;
        let paid = receipts.iter().map(|r| r.receipt.totals.paid.0 + r.receipt.totals.paid.1).sum();
        self.edge.standing(domain, |s| s.pay(paid));
        let Some(of) = self.brokers.get_mut(domain) else { return Ok(()) };
        let renewed = of.key.is_some_and(|k| k != key);
        of.key = Some(key);
        let taken: Vec<WaitingReport> = of.waiting.drain(..outcomes.len().min(of.waiting.len())).collect();
        for (report, outcome) in taken.into_iter().zip(outcomes) {
            let outcome = Outcome::ALL.into_iter().find(|o| *o as u8 == *outcome);
            match (report, outcome) {
                (_, Some(Outcome::Accepted | Outcome::Doubled)) => {}
                // The broker has begun another epoch: its key came with this answer.
                (WaitingReport::Own(signed), Some(Outcome::Sealed)) if renewed => {
                    of.waiting.push_back(WaitingReport::Own(signed));
                }
                (WaitingReport::Own(_), Some(outcome)) => {
                    warn!(broker = %domain, "the broker does not take a usage report of this operator: {outcome}");
                }
                (WaitingReport::OfUser(_), Some(outcome)) => {
                    info!(broker = %domain, "the broker does not take a usage report of a user: {outcome}");
                }
                (_, None) => info!(broker = %domain, "the broker says something unknown of a usage report"),
            }
        }
        of.not_before = None;
        if core::mem::take(&mut of.failing) {
            info!(broker = %domain, "the broker takes usage reports again");
        }
        Ok(())
    }

    fn failed(&mut self, domain: &Domain, why: &str) {
        let Some(of) = self.brokers.get_mut(domain) else { return };
        of.not_before = Some(Tick::now() + AGAIN);
        if !core::mem::replace(&mut of.failing, true) {
            let count = of.waiting.len();
            warn!(broker = %domain, "{count} usage reports wait, since the broker does not take them: {why}");
        }
    }
}

impl Edge {
    /// Changes what is thought of a broker.
    pub(super) fn standing(&self, domain: &Domain, change: impl FnOnce(&mut BrokerStanding)) {
        let mut standings = self.standings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if standings.len() < BROKERS_MAX || standings.contains_key(domain) {
            change(standings.entry(domain.clone()).or_default());
        }
    }
}
