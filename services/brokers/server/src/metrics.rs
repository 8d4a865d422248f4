//! What the broker counts, for /metrics and for tests.

use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use whimbrel_open::broker::BrokerEvent;
use whimbrel_open::msg::{RefusalCause, Rejection};
use whimbrel_open::usage::Outcome;

use crate::accounting::DeliveryOutcome;

/// Counters since the start, and the state of the database.
#[derive(Debug, Default)]
pub struct Metrics {
    granted: AtomicU64,
    challenged: AtomicU64,
    repeated: AtomicU64,
    refused: [AtomicU64; RefusalCause::ALL.len()],
    rejected: [AtomicU64; Rejection::ALL.len()],
    /// Requests that HTTP refused: too long, another method, no room.
    http_refused: AtomicU64,
    /// TLS handshakes that failed.
    tls_failed: AtomicU64,
    /// Number of open connections.
    connections: AtomicU64,
    /// Connections that were closed for new ones.
    closed_for_others: AtomicU64,
    /// Time that the machine worked, in microseconds.
    work_us: AtomicU64,
    commits: AtomicU64,
    /// Time of commits, in microseconds.
    commit_us: AtomicU64,
    reports: [AtomicU64; Outcome::ALL.len()],
    receipts: AtomicU64,
    blames: AtomicU64,
    users: AtomicU64,
    waiting: AtomicU64,
    /// Why the database cannot be written, if it cannot.
    database: Mutex<Option<String>>,
}

fn outcome_label(outcome: Outcome) -> String {
    format!("{{outcome=\"{outcome:?}\"}}")
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Metrics {
    pub(crate) fn count(&self, event: &BrokerEvent) {
        let counter = match event {
            BrokerEvent::Granted(_) => Some(&self.granted),
            BrokerEvent::Challenged { .. } => Some(&self.challenged),
            BrokerEvent::Repeated { .. } => Some(&self.repeated),
            BrokerEvent::Refused { cause, .. } => self.refused.get(*cause as usize - 1),
            BrokerEvent::Rejected(cause) => self.rejected.get(*cause as usize - 1),
        };
        counter.into_iter().for_each(|c| add(c, 1));
    }

    pub(crate) fn delivered(&self, delivered: &DeliveryOutcome) {
        for outcome in &delivered.outcomes {
            self.reports.get(*outcome as usize).into_iter().for_each(|c| add(c, 1));
        }
        add(&self.receipts, delivered.batch.receipts.len() as u64);
        add(&self.blames, delivered.blames.len() as u64);
    }

    /// Usage reports with an outcome.
    pub fn reports(&self, outcome: Outcome) -> u64 {
        self.reports.get(outcome as usize).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    pub(crate) fn http_refused(&self) {
        add(&self.http_refused, 1);
    }

    pub(crate) fn tls_failed(&self) {
        add(&self.tls_failed, 1);
    }

    pub(crate) fn connected(&self) {
        add(&self.connections, 1);
    }

    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets the number of connections that were closed for new ones since the start.
    pub(crate) fn closed_for_others(&self, n: u64) {
        self.closed_for_others.store(n, Ordering::Relaxed);
    }

    pub(crate) fn worked(&self, us: u64) {
        add(&self.work_us, us);
    }

    pub(crate) fn committed(&self, us: u64) {
        add(&self.commit_us, us);
        add(&self.commits, 1);
    }

    pub(crate) fn gauges(&self, users: u64, waiting: u64) {
        self.users.store(users, Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(crate) fn database(&self, problem: Option<String>) {
        *self.database.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = problem;
    }

    /// Why the broker cannot answer, if it cannot.
    pub fn problem(&self) -> Option<String> {
        self.database.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Time spent on requests, commits included, in microseconds.
    pub fn work_us(&self) -> u64 {
        self.work_us.load(Ordering::Relaxed)
    }

    /// The part of it that commits took.
    pub fn commit_us(&self) -> u64 {
        self.commit_us.load(Ordering::Relaxed)
    }

    /// Attaches granted, the repeated answers not counted.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// Refusals of a cause.
    pub fn refused(&self, cause: RefusalCause) -> u64 {
        self.refused.get(cause as usize - 1).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// Rejections of a cause.
    pub fn rejected(&self, cause: Rejection) -> u64 {
        self.rejected.get(cause as usize - 1).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// All of it in the text form of Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut one = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let value = |c: &AtomicU64| c.load(Ordering::Relaxed) as f64;
        let plain = |c: &AtomicU64| vec![(String::new(), value(c))];
        let name = "whimbrel_broker_grants_total";
        one(name, "counter", "Grants given.", &plain(&self.granted));
        let name = "whimbrel_broker_challenges_total";
        one(name, "counter", "Challenges of ordinary UEs given.", &plain(&self.challenged));
        let name = "whimbrel_broker_repeated_answers_total";
        one(name, "counter", "Answers given again to the same request.", &plain(&self.repeated));
        let label = |cause: String| format!("{{cause=\"{cause}\"}}");
        let refused = RefusalCause::ALL.iter().zip(&self.refused);
        let refused: Vec<_> = refused.map(|(c, n)| (label(format!("{c:?}")), value(n))).collect();
        one("whimbrel_broker_refusals_total", "counter", "Signed refusals, by cause.", &refused);
        let rejected = Rejection::ALL.iter().zip(&self.rejected);
        let rejected: Vec<_> = rejected.map(|(c, n)| (label(format!("{c:?}")), value(n))).collect();
        one(
            "whimbrel_broker_rejections_total",
            "counter",
            "Requests without an authentic operator, by cause.",
            &rejected,
        );
        let reported = Outcome::ALL.iter().zip(&self.reports);
        let reported: Vec<_> = reported.map(|(o, n)| (outcome_label(*o), value(n))).collect();
        one(
            "whimbrel_broker_usage_reports_total",
            "counter",
            "Usage reports, by what came of them.",
            &reported,
        );
        let name = "whimbrel_broker_receipts_total";
        one(name, "counter", "Receipts given to operators.", &plain(&self.receipts));
        let name = "whimbrel_broker_blames_total";
        one(name, "counter", "Blames of operators and users.", &plain(&self.blames));
        let name = "whimbrel_broker_http_refusals_total";
        one(name, "counter", "HTTP requests refused before SAP looked at them.", &plain(&self.http_refused));
        let name = "whimbrel_broker_tls_failures_total";
        one(name, "counter", "TLS handshakes that failed.", &plain(&self.tls_failed));
        let work = vec![(String::new(), value(&self.work_us) / 1e6)];
        one(
            "whimbrel_broker_work_seconds_total",
            "counter",
            "Time spent on requests, commits included.",
            &work,
        );
        let time = vec![(String::new(), value(&self.commit_us) / 1e6)];
        one(
            "whimbrel_broker_commit_seconds_total",
            "counter",
            "Time spent on transactions of answers.",
            &time,
        );
        one("whimbrel_broker_commits_total", "counter", "Transactions of answers.", &plain(&self.commits));
        one(
            "whimbrel_broker_connections",
            "gauge",
            "Open connections of operators.",
            &plain(&self.connections),
        );
        one(
            "whimbrel_broker_connections_closed_total",
            "counter",
            "Connections that were closed for new ones: their sender had its share, or all were taken.",
            &plain(&self.closed_for_others),
        );
        one("whimbrel_broker_users", "gauge", "Users.", &plain(&self.users));
        one("whimbrel_broker_waiting", "gauge", "Requests that wait.", &plain(&self.waiting));
        text
    }
}
