//! The core's edge towards brokers: signs what the machines ask, sends it over warm HTTP/2 connections, and gives the answers back as
//! inputs of the CTA.
//!
//! A thread of its own holds the operator's key and the connections. An answer that does not come is an input too: it says why, and
//! one log line names the party at fault and the remedy.

mod address;
mod metering;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc as queue};
use tracing::{info, warn};
use whimbrel_broker_client::client::{AskError, Client};
use whimbrel_broker_client::ledger::LedgerFile;
use whimbrel_broker_client::{PORT, tls};
use whimbrel_control::open::{BrokerAnswer, Question, Unreachable};
use whimbrel_control::{OutputId, UeEvent, UeId};
use whimbrel_ids::Instant;
use whimbrel_open::id::Domain;
use whimbrel_open::usage::BrokerStanding;

pub use self::metering::of_session;
use self::metering::{Measured, Metering};
use self::reports::Reports;
use crate::clock;
use crate::config::Config;
use crate::config::open::Open;
use crate::observation::{Condition, Console, Metric, MetricSample};

/// Questions under way: two seconds of the busiest core's attaches. Further ones are answered with [`Unreachable::Busy`].
const UNDER_WAY_MAX: usize = 4_096;
/// How long the addresses of a domain are used before they are looked up again, and how long it is not looked up after a failure.
const LOOKED_UP_EVERY: Duration = Duration::from_secs(60);
const FAILED_FOR: Duration = Duration::from_secs(5);
/// How often the connections to brokers of the configuration are opened again where they were closed.
const WARMED_EVERY: Duration = Duration::from_secs(30);
/// Domains whose addresses are remembered; past this, all are looked up again.
const DOMAINS_MAX: usize = 1_024;
/// How long what waits for brokers may take to leave when the core stops.
const LAST_REPORTS_WITHIN: Duration = Duration::from_secs(2);
/// The same trouble with the same broker is logged once in so long.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// A question of a UE's machine.
struct UeQuestion {
    ue: UeId,
    to: OutputId,
    question: Question,
}

/// What came of one.
pub type BrokerAnswerForUe = (UeId, OutputId, BrokerAnswer);

/// The brokers, as the control thread sees them.
pub struct Brokers {
    sender: queue::UnboundedSender<UeQuestion>,
    answers: mpsc::Receiver<BrokerAnswerForUe>,
    /// Answered without a question to the broker.
    refused: Vec<BrokerAnswerForUe>,
    metering: Metering,
    measured: queue::UnboundedSender<Measured>,
    standings: Arc<Standings>,
    /// Brokers of a lower reputation are not asked.
    floor: u16,
    console: Arc<Console>,
    counts: Arc<Counts>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What this operator thinks of brokers.
type Standings = std::sync::Mutex<BTreeMap<Domain, BrokerStanding>>;

#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    answered: AtomicU64,
    under_way: AtomicUsize,
    unreachable: std::sync::Mutex<BTreeMap<&'static str, u64>>,
}

impl Brokers {
    /// Starts the thread. Errors: one sentence.
    pub fn start(config: &Config, open: &Open, console: Arc<Console>) -> Result<Self, String> {
        let tls = tls::client(&open.tls_roots).map_err(|e| {
            format!("`open.tls_roots`: {e}; name the file with the TLS authorities of brokers (Debian: package ca-certificates)")
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("the connections to brokers cannot be served: {e}"))?;
        let (sender, questions) = queue::unbounded_channel();
        let (answer, answers) = mpsc::channel();
        let counts = Arc::new(Counts::default());
        let ledger = LedgerFile::open(&config.open_ledger())?;
        let (sender_of_measured, measured) = queue::unbounded_channel();
        let standings = Arc::new(Standings::default());
        let edge = Arc::new(Edge {
            open: open.clone(),
            own: own_addresses(config),
            client: Client::new(tls),
            addresses: Mutex::default(),
            troubles: std::sync::Mutex::default(),
            standings: standings.clone(),
            answer,
            console: console.clone(),
            counts: counts.clone(),
        });
        let thread = std::thread::Builder::new()
            .name("brokers".into())
            .spawn(move || {
                runtime.block_on(async {
                    let reports = tokio::spawn(Reports::new(edge.clone(), ledger).run(measured));
                    edge.run(questions).await;
                    let _ = tokio::time::timeout(LAST_REPORTS_WITHIN, reports).await;
                });
                // A look-up that hangs must not keep the core from stopping.
                runtime.shutdown_background();
            })
            .map_err(|e| format!("the thread for brokers cannot start: {e}"))?;
        info!(operator = %open.operator.id(), "UEs of brokers are served");
        console.components(|c| c.set("brokers", Condition::Up, "no question to a broker has failed"));
        Ok(Self {
            sender,
            answers,
            refused: Vec::new(),
            metering: Metering::new(open.overstate),
            measured: sender_of_measured,
            standings,
            floor: open.reputation_floor,
            console,
            counts,
            thread: Some(thread),
        })
    }

    /// Something happened to a UE.
    pub fn event(&mut self, now: Instant, event: &UeEvent) {
        self.metering.event(now, event);
        self.pass_on();
    }

    /// A UPF says something.
    pub fn pfcp(&mut self, now: Instant, octets: &[u8]) {
        self.metering.pfcp(now, octets);
        self.pass_on();
    }

    fn pass_on(&mut self) {
        for measured in self.metering.measured.drain(..) {
            // The thread ends after this.
            let _ = self.measured.send(measured);
        }
    }

    /// Whether a broker has paid for so little that its users are not served any more.
    fn is_shunned(&self, broker: &Domain) -> bool {
        let standings = self.standings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        standings.get(broker).is_some_and(|s| s.reputation() < self.floor)
    }

    /// Passes a question on.
    pub fn ask(&mut self, (ue, to, question): (UeId, OutputId, Question)) {
        if self.is_shunned(question.broker()) {
            self.refused.push((ue, to, BrokerAnswer::Unreachable(Unreachable::DoesNotPay)));
            return self.console.commands.wake();
        }
        let room = self.counts.under_way.load(Ordering::Relaxed) < UNDER_WAY_MAX;
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        if room {
            self.counts.under_way.fetch_add(1, Ordering::Relaxed);
            if self.sender.send(UeQuestion { ue, to, question }).is_ok() {
                return;
            }
        }
        self.refused.push((ue, to, BrokerAnswer::Unreachable(Unreachable::Busy)));
        // The answer is taken in the next turn, which begins at once.
        self.console.commands.wake();
    }

    /// The answers since the last turn.
    pub fn turn(&mut self) -> Vec<BrokerAnswerForUe> {
        let mut answered = std::mem::take(&mut self.refused);
        answered.extend(self.answers.try_iter());
        answered
    }

    /// Samples for the endpoint /metrics.
    pub fn samples(&self) -> Vec<MetricSample> {
        let one = |metric, value| MetricSample { metric, label: None, value };
        let load = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let mut samples = vec![
            one(Metric::BrokerQuestions, load(&self.counts.asked)),
            one(Metric::BrokerAnswers, load(&self.counts.answered)),
        ];
        let unreachable = self.counts.unreachable.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        samples.extend(unreachable.iter().map(|(reason, count)| MetricSample {
            metric: Metric::BrokerUnreachable,
            label: Some((*reason).into()),
            value: *count,
        }));
        samples
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        // The thread ends when no sender is left.
        let (unused, _) = queue::unbounded_channel();
        self.sender = unused;
        let (unused, _) = queue::unbounded_channel();
        self.measured = unused;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Addresses that no broker has: a domain that leads there would turn the core against itself.
fn own_addresses(config: &Config) -> BTreeSet<IpAddr> {
    let mut own: BTreeSet<IpAddr> = config.n2.addresses.iter().copied().collect();
    own.insert(config.api.address.ip());
    own.insert(config.n3.address);
    own
}

/// When a domain was looked up, and what came of it.
type LookedUp = (Instant, Result<SocketAddr, Unreachable>);

/// What the thread has.
struct Edge {
    open: Open,
    own: BTreeSet<IpAddr>,
    client: Client,
    addresses: Mutex<BTreeMap<Domain, LookedUp>>,
    /// When trouble with a broker was last logged.
    troubles: std::sync::Mutex<BTreeMap<Domain, (&'static str, Instant)>>,
    standings: Arc<Standings>,
    answer: mpsc::Sender<BrokerAnswerForUe>,
    console: Arc<Console>,
    counts: Arc<Counts>,
}

impl Edge {
    async fn run(self: Arc<Self>, mut questions: queue::UnboundedReceiver<UeQuestion>) {
        for (domain, at) in self.open.addresses.clone() {
            let edge = self.clone();
            tokio::spawn(async move {
                loop {
                    // An attach of a broker's UE need not wait for TLS, also after the broker has closed an idle connection. Trouble shows when
                    // it is asked.
                    let _ = edge.client.warm(&domain, at).await;
                    tokio::time::sleep(WARMED_EVERY).await;
                }
            });
        }
        while let Some(asked) = questions.recv().await {
            let edge = self.clone();
            tokio::spawn(async move { edge.answer(asked).await });
        }
    }

    async fn answer(&self, UeQuestion { ue, to, question }: UeQuestion) {
        let domain = question.broker().clone();
        let answer = match self.exchange(&domain, &question).await {
            Ok(octets) => {
                self.counts.answered.fetch_add(1, Ordering::Relaxed);
                self.recovered(&domain);
                BrokerAnswer::Octets(octets)
            }
            Err((reason, detail)) => {
                self.trouble(&domain, reason, &detail);
                BrokerAnswer::Unreachable(reason)
            }
        };
        self.counts.under_way.fetch_sub(1, Ordering::Relaxed);
        if self.answer.send((ue, to, answer)).is_ok() {
            self.console.commands.wake();
        }
    }

    async fn exchange(&self, domain: &Domain, question: &Question) -> Result<Vec<u8>, (Unreachable, String)> {
        let at = self.address(domain).await.map_err(|reason| (reason, reason.to_string()))?;
        let octets = question.sign(&self.open.operator, clock::now());
        let answer = self.client.ask(domain, at, &octets, self.open.answer_within).await;
        answer.map_err(|e| (reason_of(&e), e.to_string()))
    }

    /// Where a broker is: as configured, or a public address of its domain.
    async fn address(&self, domain: &Domain) -> Result<SocketAddr, Unreachable> {
        if let Some(at) = self.open.addresses.get(domain) {
            return Ok(*at);
        }
        let mut known = self.addresses.lock().await;
        let now = clock::now();
        if let Some((at, found)) = known.get(domain)
            && now.since(*at) < if found.is_ok() { LOOKED_UP_EVERY } else { FAILED_FOR }
        {
            return *found;
        }
        drop(known);
        let name = domain.as_str().to_owned();
        let looked_up = tokio::task::spawn_blocking(move || (name.as_str(), PORT).to_socket_addrs()).await;
        let found = match looked_up {
            Ok(Ok(addresses)) => choose(addresses, &self.own),
            Ok(Err(_)) | Err(_) => Err(Unreachable::NoAddress),
        };
        known = self.addresses.lock().await;
        if known.len() >= DOMAINS_MAX {
            known.clear();
        }
        known.insert(domain.clone(), (now, found));
        found
    }

    /// Logs trouble with a broker once, and shows it in the status.
    fn trouble(&self, domain: &Domain, reason: Unreachable, detail: &str) {
        let word = word_of(reason);
        *self
            .counts
            .unreachable
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .entry(word)
            .or_default() += 1;
        let now = clock::now();
        let mut troubles = self.troubles.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let logged = troubles.get(domain).is_some_and(|(w, at)| *w == word && now.since(*at) < LOGGED_EVERY);
        if logged || (troubles.len() >= DOMAINS_MAX && !troubles.contains_key(domain)) {
            return;
        }
        troubles.insert(domain.clone(), (word, now));
        let sentence = explain(domain, reason, detail);
        warn!("{sentence}");
        self.console.components(|c| c.set("brokers", Condition::Limited, sentence));
    }

    fn recovered(&self, domain: &Domain) {
        let mut troubles = self.troubles.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if troubles.remove(domain).is_some() {
            info!("broker {domain} answers again");
            if troubles.is_empty() {
                self.console
                    .components(|c| c.set("brokers", Condition::Up, "all brokers that were asked answer"));
            }
        }
    }
}

/// The first address of a domain that a broker may have.
fn choose(
    addresses: impl Iterator<Item = SocketAddr>,
    own: &BTreeSet<IpAddr>,
) -> Result<SocketAddr, Unreachable> {
    let mut found = Err(Unreachable::NoAddress);
    for at in addresses {
        if address::is_public(at.ip()) && !own.contains(&at.ip()) {
            return Ok(at);
        }
        found = Err(Unreachable::ForbiddenAddress);
    }
    found
}

fn reason_of(e: &AskError) -> Unreachable {
    match e {
        AskError::Unreachable(..) | AskError::Broken(..) => Unreachable::NotConnected,
        AskError::TlsName(_) | AskError::TlsTime(_) | AskError::TlsUntrusted(_) | AskError::Tls(..) => {
            Unreachable::Tls
        }
        AskError::Http(_, status) => Unreachable::Status(*status),
        AskError::TooLong(_) => Unreachable::TooLong,
        AskError::Late(..) => Unreachable::TimedOut,
    }
}

/// The reason in metrics.
const fn word_of(reason: Unreachable) -> &'static str {
    match reason {
        Unreachable::NoAddress => "no_address",
        Unreachable::ForbiddenAddress => "forbidden_address",
        Unreachable::NotConnected => "not_connected",
        Unreachable::Tls => "tls",
        Unreachable::TimedOut => "timed_out",
        Unreachable::Status(_) => "http_status",
        Unreachable::TooLong => "too_long",
        Unreachable::Busy => "busy",
        Unreachable::DoesNotPay => "does_not_pay",
        Unreachable::NoToken => "no_token",
    }
}

/// One sentence: the fact, the party at fault, and the remedy.
fn explain(domain: &Domain, reason: Unreachable, detail: &str) -> String {
    let (fault, fix) = match reason {
        Unreachable::NoAddress => (
            "the broker or DNS",
            "the broker must publish an address of its domain, or write it into `open.addresses`",
        ),
        Unreachable::ForbiddenAddress => (
            "the broker",
            "its domain must lead to a public address; a broker of your own network belongs into `open.addresses`",
        ),
        Unreachable::NotConnected => (
            "the broker or the network between",
            "check that the broker runs and that no firewall is between it and this core",
        ),
        Unreachable::Tls => (
            "the broker",
            "it must show a valid TLS certificate of its domain; if its authority is a private one, add that to `open.tls_roots`",
        ),
        Unreachable::TimedOut => ("the broker", "it is slow or overloaded: ask its operator"),
        Unreachable::Status(_) | Unreachable::TooLong => {
            ("the broker", "what answers there is no broker, or it is overloaded: ask its operator")
        }
        Unreachable::DoesNotPay => {
            ("the broker", "it pays for too little of what its users are served: see `open.reputation_floor`")
        }
        Unreachable::NoToken => ("this core", "no token of the broker's is open: see `veil`"),
        Unreachable::Busy => {
            ("this core", "too many questions are under way; it is overloaded, or a broker answers slowly")
        }
    };
    format!("attaches of users of broker {domain} fail: {detail}; at fault: {fault}; {fix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), PORT)
    }

    #[test] // A broker's domain that resolves to the operator's own core
    fn a_domain_that_leads_into_the_operators_network_is_not_connected_to() {
        let own = BTreeSet::from(["193.0.6.139".parse().unwrap()]);
        let chosen = |addresses: &[&str]| choose(addresses.iter().map(|a| at(a)), &own);
        assert_eq!(chosen(&["193.0.6.139"]), Err(Unreachable::ForbiddenAddress));
        assert_eq!(chosen(&["127.0.0.5", "10.45.0.1"]), Err(Unreachable::ForbiddenAddress));
        assert_eq!(chosen(&["127.0.0.5", "8.8.8.8"]), Ok(at("8.8.8.8")));
        assert_eq!(chosen(&[]), Err(Unreachable::NoAddress));
    }

    #[test]
    fn each_reason_names_the_party_at_fault_and_the_fix() {
        let domain: Domain = "b.example".parse().unwrap();
        for reason in [
            Unreachable::NoAddress,
            Unreachable::ForbiddenAddress,
            Unreachable::NotConnected,
            Unreachable::Tls,
            Unreachable::TimedOut,
            Unreachable::Status(503),
            Unreachable::TooLong,
            Unreachable::Busy,
            Unreachable::DoesNotPay,
            Unreachable::NoToken,
        ] {
            let sentence = explain(&domain, reason, &reason.to_string());
            assert!(sentence.contains("b.example") && sentence.contains("; at fault: "), "{sentence}");
        }
    }
}
