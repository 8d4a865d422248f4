//! The core's edge towards the broker of veiled UEs (LOCA, chapter 4.4): the wallet of tokens on disk, which token is broadcast, the
//! channel of each token, and usage reports.
//!
//! A thread of its own holds all of it. What the machines ask is signed here under the token that the UE heard; without its session group the
//! question does not leave, and a channel that fails is not replaced by another way.

mod kept_groups;
mod metering;
mod orders;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::mpsc as queue;
use tracing::{error, info, warn};
use whimbrel_broker_client::client::{AskError, Client};
use whimbrel_broker_client::files::write_durably;
use whimbrel_broker_client::veil::QuestionKind;
use whimbrel_broker_client::veil::channel::{AnonymousChannel, Circuit, Direct, RelayPair};
use whimbrel_broker_client::veil::record::Recorder;
use whimbrel_broker_client::veil::session_file::{ReportedSession, SessionFile};
use whimbrel_broker_client::{hex, random, tls};
use whimbrel_claims_digest::ClaimSecret;
use whimbrel_control::open::{BrokerAnswer, Unreachable, VeilHomeQuestion, VeilQuestion};
use whimbrel_control::{Command, Event, Locate, OutputId, UeEvent, UeId};
use whimbrel_ids::Instant;
use whimbrel_open::crypto::Seed;
use whimbrel_privacy::channel::Failure;
use whimbrel_privacy::crypto::Response;
use whimbrel_privacy::ledger::How;
use whimbrel_privacy::log::{LogProof, LogRequest, LogTrust};
use whimbrel_privacy::msg::{Finding, ReportAnswer, usage_units};
use whimbrel_privacy::relay::Resource;
use whimbrel_privacy::rotation::{Input, Output, Rotation};
use whimbrel_privacy::token::TokenHash;
use whimbrel_privacy::wallet::{Wallet, WalletError};

use self::kept_groups::{KeptGroup, KeptGroups};
use self::metering::{EndedSession, Metering};
use self::orders::{LiFunction, OrderAction, OrderBook, OrderedAction};
use crate::clock;
use crate::config::Config;
use crate::config::veil::{BrokerRoute, VeilOperatorConfig};
use crate::observation::{Condition, Console, Metric, MetricSample};

/// Questions under way: two seconds of the busiest core's attaches. Further ones are answered with [`Unreachable::Busy`].
const UNDER_WAY_MAX: usize = 4_096;
/// How often the wallet is looked at: whether it must be filled, whether tokens have rested.
const TICK: Duration = Duration::from_secs(1);
/// How long a request under the operator's name may take.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// After how long a batch that did not come is asked for again.
const FILL_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How often a report is tried.
const REPORT_TRIES: u32 = 5;
/// How long the key of a group is kept for the reports of its sessions: the longest grant.
const GROUP_KEPT: Duration = Duration::from_secs(86_400);
/// Octets of a batch of tokens, and of a log with its proofs.
const NAMED_OCTETS_MAX: usize = 16 << 10;
/// Octets of the longest copy that a UPF sends: more than any packet of N3.
const COPY_OCTETS_MAX: usize = 10_000;
/// Octets of sessions that wait while another process has their file: some 5,000 sessions. It has it for the time of a write.
const MAX_UNWRITTEN_OCTETS: usize = 1 << 20;
/// How often a file that another process has is tried when the core stops.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long what waits to be reported may take when the core stops.
const LAST_REPORTS_WITHIN: Duration = Duration::from_secs(2);

/// What came of a question.
pub type VeilAnswerForUe = (UeId, OutputId, BrokerAnswer);

/// What a UE's machine asks.
pub enum VeilUeQuestion {
    /// For a veiled UE, under the token that it heard.
    User(VeilQuestion),
    /// For an ordinary UE, under the token that is broadcast.
    Home(VeilHomeQuestion),
}

/// What the control thread passes on.
enum ToEdge {
    Asked(UeId, OutputId, VeilUeQuestion),
    Began(TokenHash),
    Ended(EndedSession),
    Failed(Vec<u8>),
    Found([u8; 32], Finding),
}

/// What came of what the edge has sent.
enum Came {
    Opened(TokenHash, Result<Vec<u8>, Failure>),
    Log(Result<Vec<u8>, AskError>),
    Tokens(Vec<u8>, Result<Vec<u8>, AskError>),
    Orders(TokenHash, Result<Vec<u8>, Failure>),
}

#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    answered: AtomicU64,
    groups: AtomicU64,
    reported: AtomicU64,
    tokens: AtomicU64,
    orders: AtomicU64,
    copies: AtomicU64,
    under_way: AtomicUsize,
}

/// Veiled UEs, as the control thread sees them.
pub struct VeiledUes {
    sender: queue::UnboundedSender<ToEdge>,
    answers: mpsc::Receiver<VeilAnswerForUe>,
    refused: Vec<VeilAnswerForUe>,
    metering: Metering,
    ordered: mpsc::Receiver<OrderedAction>,
    /// Orders whose UE's location is awaited.
    locating: BTreeMap<UeId, Vec<[u8; 32]>>,
    console: Arc<Console>,
    counts: Arc<Counts>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl VeiledUes {
    /// Reads the wallet and starts the thread. Errors: one sentence.
    pub fn start(config: &Config, veil: &VeilOperatorConfig, console: Arc<Console>) -> Result<Self, String> {
        let tls = tls::client(&veil.tls_roots).map_err(|e| format!("`veil.tls_roots`: {e}"))?;
        let channel: Arc<dyn AnonymousChannel> = match &veil.way {
            BrokerRoute::Direct(permitted) => {
                let direct = Direct::new(*permitted, veil.broker.clone(), tls.clone(), veil.source);
                Arc::new(direct.ok_or("`veil.channel`: another channel was permitted")?)
            }
            BrokerRoute::Relay(permitted, relay, gateway) => {
                let pair = RelayPair::new(*permitted, (relay.clone(), *gateway), tls.clone(), veil.source);
                Arc::new(pair.ok_or("`veil.channel`: another channel was permitted")?)
            }
        };
        let file = config.veil_wallet();
        let wallet = match whimbrel_files::read(&file, whimbrel_files::LIST_OCTETS_MAX) {
            Ok(octets) => Wallet::parse(&octets).map_err(|e| {
                format!(
                    "{} holds no wallet of tokens: {e}; move it away to begin with an empty one",
                    file.display()
                )
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Wallet::new(veil.broker.domain.clone(), veil.wallet)
            }
            Err(e) => return Err(format!("{} cannot be read: {e}", file.display())),
        };
        let trust = LogTrust::new(veil.broker.domain.clone(), veil.broker_key, veil.witnesses.clone());
        let trust = trust.ok_or("`veil.witnesses`: these are too many witnesses")?;
        let recorder = match &veil.record {
            Some(path) => Recorder::open(path)?,
            None => Recorder::default(),
        };
        let li = veil.li_function.map(LiFunction::bind).transpose()?;
        let (order, ordered) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("the connections to the broker of veiled UEs cannot be served: {e}"))?;
        let (sender, asked) = queue::unbounded_channel();
        let (answer, answers) = mpsc::channel();
        let (came, comes) = queue::unbounded_channel();
        let counts = Arc::new(Counts::default());
        let kind = channel.kind();
        let now = clock::now();
        let (kept_groups, groups) =
            KeptGroups::open(&config.veil_groups(), &config.store.key_in_force(), now);
        let mut edge = Edge {
            config: veil.clone(),
            trust,
            channel,
            named: Arc::new(Client::new(tls).from_address(veil.source)),
            rotation: Rotation::new(veil.rotation, wallet),
            wallet_file: file,
            session_file: SessionFile::new(config.veil_claims()),
            unwritten_sessions: String::new(),
            circuits: BTreeMap::new(),
            held: BTreeMap::new(),
            kept_groups,
            recorder,
            filling: None,
            orders: OrderBook::default(),
            ordered: order,
            li: None,
            answer,
            came,
            console: console.clone(),
            counts: counts.clone(),
        };
        edge.resume(groups, now);
        let thread = std::thread::Builder::new()
            .name("veil".into())
            .spawn(move || {
                runtime.block_on(edge.run(asked, comes, li));
                runtime.shutdown_background();
            })
            .map_err(|e| format!("the thread of veiled UEs cannot start: {e}"))?;
        info!(broker = %veil.broker.domain, channel = %kind, "veiled UEs are served");
        console.components(|c| c.set("veil", Condition::Limited, "no token is broadcast yet"));
        Ok(Self {
            sender,
            answers,
            refused: Vec::new(),
            metering: Metering::default(),
            ordered,
            locating: BTreeMap::new(),
            console,
            counts,
            thread: Some(thread),
        })
    }

    /// Something happened to a UE.
    pub fn event(&mut self, event: &UeEvent) {
        match &event.event {
            Event::VeilFailed { sealed } => {
                let _ = self.sender.send(ToEdge::Failed(sealed.clone()));
            }
            Event::Located { tai, cell, .. } => {
                let place = orders::place(*tai, cell.as_ref()).unwrap_or(Finding::NotHere);
                self.located(event.ue, &place);
            }
            Event::NotLocated { .. } => self.located(event.ue, &Finding::NotHere),
            _ => {}
        }
        self.metering.event(event);
        self.pass_on();
    }

    /// A UPF says something.
    pub fn pfcp(&mut self, octets: &[u8]) {
        self.metering.pfcp(octets);
        self.pass_on();
    }

    fn located(&mut self, ue: UeId, place: &Finding) {
        for order in self.locating.remove(&ue).into_iter().flatten() {
            let _ = self.sender.send(ToEdge::Found(order, place.clone()));
        }
    }

    /// What UEs' machines are to do for agencies' orders.
    pub fn commands(&mut self) -> Vec<(UeId, Command)> {
        let mut commands = Vec::new();
        for OrderedAction { order, session, what } in self.ordered.try_iter() {
            let Some(ue) = self.metering.ue_of(&session) else {
                let _ = self.sender.send(ToEdge::Found(order, Finding::NotHere));
                continue;
            };
            match what {
                OrderAction::Locate => {
                    self.locating.entry(ue).or_default().push(order);
                    commands.push((ue, Command::Locate(Locate::Now)));
                }
                OrderAction::Intercept(to) => {
                    commands.push((ue, Command::Intercept(to)));
                    if to.is_some() {
                        let _ = self.sender.send(ToEdge::Found(order, Finding::Intercepted));
                    }
                }
            }
        }
        commands
    }

    fn pass_on(&mut self) {
        for group in self.metering.began.drain(..) {
            let _ = self.sender.send(ToEdge::Began(group));
        }
        for measured in self.metering.ended.drain(..) {
            // The thread ends after this.
            let _ = self.sender.send(ToEdge::Ended(measured));
        }
    }

    /// Passes a question on.
    pub fn ask(&mut self, ue: UeId, to: OutputId, question: VeilUeQuestion) {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        if self.counts.under_way.load(Ordering::Relaxed) < UNDER_WAY_MAX {
            self.counts.under_way.fetch_add(1, Ordering::Relaxed);
            if self.sender.send(ToEdge::Asked(ue, to, question)).is_ok() {
                return;
            }
        }
        self.refused.push((ue, to, BrokerAnswer::Unreachable(Unreachable::Busy)));
        // The answer is taken in the next turn, which begins at once.
        self.console.commands.wake();
    }

    /// The answers since the last turn.
    pub fn turn(&mut self) -> Vec<VeilAnswerForUe> {
        let mut answered = std::mem::take(&mut self.refused);
        answered.extend(self.answers.try_iter());
        answered
    }

    /// Samples for the endpoint /metrics.
    pub fn samples(&self) -> Vec<MetricSample> {
        let one = |metric, count: &AtomicU64| MetricSample {
            metric,
            label: None,
            value: count.load(Ordering::Relaxed),
        };
        vec![
            one(Metric::VeilQuestions, &self.counts.asked),
            one(Metric::VeilAnswers, &self.counts.answered),
            one(Metric::VeilGroups, &self.counts.groups),
            one(Metric::VeilReports, &self.counts.reported),
            one(Metric::VeilTokens, &self.counts.tokens),
            one(Metric::VeilOrders, &self.counts.orders),
            one(Metric::VeilCopies, &self.counts.copies),
        ]
    }
}

impl Drop for VeiledUes {
    fn drop(&mut self) {
        // The thread ends when no sender is left.
        let (unused, _) = queue::unbounded_channel();
        self.sender = unused;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Edge {
    config: VeilOperatorConfig,
    trust: LogTrust,
    channel: Arc<dyn AnonymousChannel>,
    /// Under the operator's name: tokens, and the broker's log.
    named: Arc<Client>,
    rotation: Rotation,
    wallet_file: PathBuf,
    session_file: SessionFile,
    /// Lines that wait while `whimbrel-broker settle` replaces the file.
    unwritten_sessions: String,
    circuits: BTreeMap<TokenHash, Arc<dyn Circuit>>,
    /// Groups in which UEs attached, until when: their keys sign the reports.
    held: BTreeMap<TokenHash, KeptGroup>,
    kept_groups: KeptGroups,
    recorder: Recorder,
    /// When the batch that is being filled was asked for.
    filling: Option<Instant>,
    orders: OrderBook,
    ordered: mpsc::Sender<OrderedAction>,
    /// Where UPFs send copies.
    li: Option<LiFunction>,
    answer: mpsc::Sender<VeilAnswerForUe>,
    came: queue::UnboundedSender<Came>,
    console: Arc<Console>,
    counts: Arc<Counts>,
}

impl Edge {
    async fn run(
        mut self,
        mut asked: queue::UnboundedReceiver<ToEdge>,
        mut comes: queue::UnboundedReceiver<Came>,
        li: Option<(std::net::UdpSocket, std::net::UdpSocket)>,
    ) {
        let mut reports = tokio::task::JoinSet::new();
        match li.map(LiFunction::new).transpose() {
            Ok(li) => self.li = li,
            Err(e) => error!("copies of intercepted sessions cannot be received: {e}"),
        }
        let mut copy = vec![0; COPY_OCTETS_MAX];
        self.broadcast(None);
        self.tick();
        loop {
            let now = clock::now();
            let deadline = self.rotation.next_deadline().unwrap_or(now + TICK).min(now + TICK);
            let poll = self.orders.next_poll.unwrap_or(deadline).min(deadline);
            let received = LiFunction::receive(self.li.as_ref(), &mut copy);
            tokio::select! {
                to_edge = asked.recv() => match to_edge {
                    None => break,
                    Some(ToEdge::Asked(ue, to, question)) => self.asked(ue, to, &question),
                    Some(ToEdge::Began(group)) => self.session_began(group),
                    Some(ToEdge::Ended(measured)) => {
                        self.ended(&measured, &mut reports);
                        self.session_ended(measured.group, &measured.session);
                    }
                    Some(ToEdge::Failed(sealed)) => self.failed(sealed),
                    Some(ToEdge::Found(order, finding)) => self.found(order, &finding),
                },
                Some(came) = comes.recv() => self.comes(came),
                octets = received => self.copy(copy.get(..octets).unwrap_or_default()).await,
                () = tokio::time::sleep(poll.since(now)) => {
                    if clock::now() >= deadline {
                        self.tick();
                    }
                    self.poll_orders(clock::now());
                }
            }
            while reports.try_join_next().is_some() {}
        }
        let _ =
            tokio::time::timeout(LAST_REPORTS_WITHIN, async { while reports.join_next().await.is_some() {} })
                .await;
        self.write_last_sessions().await;
    }

    /// Goes on with the groups of a former process.
    fn resume(&mut self, groups: Vec<KeptGroup>, now: Instant) {
        for (group, until) in groups {
            let token = group.hash();
            if now.as_secs() <= group.until() {
                self.circuits.insert(token, self.channel.open());
                self.rotation.resume(group.clone());
            }
            self.held.insert(token, (group, until));
        }
    }

    /// Keeps the keys of all groups that are open, or have sessions to report.
    fn keep_groups(&mut self) {
        let until = clock::now() + GROUP_KEPT;
        let open = self.rotation.groups().filter(|group| !self.held.contains_key(&group.hash()));
        let open = open.map(|group| (group.clone(), until));
        let groups: Vec<KeptGroup> = self.held.values().cloned().chain(open).collect();
        self.kept_groups.keep(&groups);
    }

    fn tick(&mut self) {
        let now = clock::now();
        self.held.retain(|_, (_, until)| now <= *until);
        self.write_sessions();
        self.handle(Input::Tick);
        self.fill(now);
    }

    fn handle(&mut self, input: Input<'_>) {
        let Ok(seed) = random() else {
            return error!("the system gives no random octets: no token is spent");
        };
        let mut out = Vec::new();
        self.rotation.handle(clock::now(), input, &Seed::new(seed), &mut out);
        self.counts.tokens.store(self.rotation.wallet.token_counts().0 as u64, Ordering::Relaxed);
        for output in out {
            match output {
                Output::Store => {
                    if let Err(e) = self.store() {
                        // What follows would spend a token that a crash forgets.
                        error!(
                            "{} cannot be written: {e}; no token is spent until it can",
                            self.wallet_file.display()
                        );
                        return;
                    }
                }
                Output::Open(token) => {
                    self.circuits.insert(token, self.channel.open());
                }
                Output::Close(token) => {
                    self.circuits.remove(&token);
                }
                Output::Ask(token, octets) => self.open_group(token, octets),
                Output::Broadcast(token) => {
                    self.keep_groups();
                    self.broadcast(token);
                }
                Output::NotOpened(cause) => warn!("the broker opens no session group for a token: {cause}"),
                Output::BadAnswer(why) => warn!("the broker's answer for a token is not taken: {why}"),
                Output::NoToken => {
                    let sentence = "no token has rested: no veiled UE can attach until one has";
                    warn!("{sentence}");
                    self.console.components(|c| c.set("veil", Condition::Limited, sentence));
                }
            }
        }
    }

    /// Brings the wallet to disk before anything that follows leaves.
    fn store(&self) -> std::io::Result<()> {
        let octets = self.rotation.wallet.to_octets();
        self.recorder.add(How::Stored, "wallet", "", &octets);
        write_durably(&self.wallet_file, &octets)
    }

    fn open_group(&mut self, token: TokenHash, octets: Vec<u8>) {
        let Some(circuit) = self.circuits.get(&token).cloned() else {
            let _ = self.came.send(Came::Opened(token, Err(Failure::NotOpen)));
            return;
        };
        let (came, recorder, within) = (self.came.clone(), self.recorder.clone(), self.config.answer_within);
        tokio::spawn(async move {
            recorder.add(How::Sent, QuestionKind::Group.names().0, "", &octets);
            let answer = circuit.ask(Resource::Group, &octets, within).await;
            if let Ok(octets) = &answer {
                recorder.add(How::Received, QuestionKind::Group.names().1, "", octets);
            }
            let _ = came.send(Came::Opened(token, answer));
        });
    }

    fn broadcast(&mut self, token: Option<TokenHash>) {
        let text = token.map_or(String::new(), |token| hex(&token.0));
        self.recorder.add(How::Sent, "broadcast", "", &token.map_or(Vec::new(), |t| t.0.to_vec()));
        if let Some(file) = &self.config.broadcast_file
            && let Err(e) = write_durably(file, text.as_bytes())
        {
            warn!("{} cannot be written, so that gNBs broadcast no other token: {e}", file.display());
        }
        match token {
            Some(_) => {
                self.counts.groups.fetch_add(1, Ordering::Relaxed);
                self.console.components(|c| c.set("veil", Condition::Up, "a token is broadcast"));
            }
            None => self.console.components(|c| c.set("veil", Condition::Limited, "no token is broadcast")),
        }
    }

    fn comes(&mut self, came: Came) {
        match came {
            Came::Opened(token, Ok(octets)) => self.handle(Input::Answered(token, &octets)),
            Came::Opened(token, Err(why)) => {
                warn!("no session group was opened: {why}");
                self.handle(Input::Failed(token, why));
            }
            Came::Log(Ok(octets)) => self.learn(&octets),
            Came::Log(Err(e)) => warn!("the broker's log of issuing keys was not read: {e}"),
            Came::Tokens(request, Ok(octets)) => self.filled(&request, &octets),
            Came::Tokens(_, Err(e)) => warn!("no tokens came: {e}"),
            Came::Orders(token, answer) => self.orders_came(token, answer),
        }
    }

    /// Takes tokens, if there are few: first the newest issuing key, then a batch under it.
    fn fill(&mut self, now: Instant) {
        let begun = self.rotation.wallet.filling_request(&self.config.certificate, &self.config.signing);
        if begun.is_none() && !self.rotation.wallet.should_fill() {
            return;
        }
        if self.filling.is_some_and(|at| now.since(at) < FILL_AGAIN_AFTER) {
            return;
        }
        self.filling = Some(now);
        match begun {
            Some(request) => self.ask_for_tokens(request),
            None => {
                let request = LogRequest {
                    broker: self.config.broker.domain.clone(),
                    seen: self.rotation.wallet.seen().size,
                };
                let (named, to, came) = (self.named.clone(), self.config.broker.clone(), self.came.clone());
                let octets = request.to_octets();
                tokio::spawn(async move {
                    let path = (QuestionKind::Log.path(), NAMED_OCTETS_MAX);
                    let _ = came.send(Came::Log(named.post(path, &to, &octets, NAMED_WITHIN).await));
                });
            }
        }
    }

    fn learn(&mut self, octets: &[u8]) {
        let proof = match LogProof::parse(octets) {
            Ok(proof) => proof,
            Err(_) => return warn!("the broker has no issuing key that is good now"),
        };
        if let Err(e) = self.rotation.wallet.add_issuing_key(&proof, &self.trust) {
            return warn!("the broker's issuing key is not believed: {e}");
        }
        let Ok(seed) = random() else {
            return error!("the system gives no random octets: no tokens are taken");
        };
        if !self.rotation.wallet.begin_filling(clock::now(), Seed::new(seed)) {
            return;
        }
        if let Err(e) = self.store() {
            return error!("{} cannot be written: {e}; no tokens are taken", self.wallet_file.display());
        }
        let request = self.rotation.wallet.filling_request(&self.config.certificate, &self.config.signing);
        request.into_iter().for_each(|request| self.ask_for_tokens(request));
    }

    fn ask_for_tokens(&mut self, request: Vec<u8>) {
        let (named, to, came) = (self.named.clone(), self.config.broker.clone(), self.came.clone());
        let recorder = self.recorder.clone();
        tokio::spawn(async move {
            recorder.add(How::Sent, QuestionKind::Tokens.names().0, "", &request);
            let answer = named
                .post((QuestionKind::Tokens.path(), NAMED_OCTETS_MAX), &to, &request, NAMED_WITHIN)
                .await;
            if let Ok(octets) = &answer {
                recorder.add(How::Received, QuestionKind::Tokens.names().1, "", octets);
            }
            let _ = came.send(Came::Tokens(request, answer));
        });
    }

    fn filled(&mut self, request: &[u8], octets: &[u8]) {
        let filled = self.rotation.wallet.finish_filling(request, octets, clock::now());
        if let Err(e) = self.store() {
            error!("{} cannot be written: {e}", self.wallet_file.display());
        }
        match filled {
            Ok(()) => {
                info!(tokens = self.rotation.wallet.token_counts().0, "a batch of tokens came");
                self.filling = None;
                self.tick();
            }
            // An answer to a request that came twice.
            Err(WalletError::NoPendingRequest) => {}
            Err(e) => warn!("the broker's tokens are not taken: {e}"),
        }
    }

    fn asked(&mut self, ue: UeId, to: OutputId, question: &VeilUeQuestion) {
        let now = clock::now();
        let signed = match question {
            VeilUeQuestion::User(question) => self.rotation.sign(question, now),
            VeilUeQuestion::Home(question) => self.rotation.sign_home(question, now),
        };
        let circuit = signed.and_then(|(token, octets)| {
            let circuit = self.circuits.get(&token)?.clone();
            if let Some(group) = self.rotation.group(token) {
                self.held.entry(token).or_insert_with(|| (group.clone(), now + GROUP_KEPT));
            }
            Some((circuit, octets))
        });
        let (answer, console, counts) = (self.answer.clone(), self.console.clone(), self.counts.clone());
        let reply = move |came: BrokerAnswer| {
            counts.under_way.fetch_sub(1, Ordering::Relaxed);
            if matches!(came, BrokerAnswer::Octets(_)) {
                counts.answered.fetch_add(1, Ordering::Relaxed);
            }
            if answer.send((ue, to, came)).is_ok() {
                console.commands.wake();
            }
        };
        let Some((circuit, octets)) = circuit else {
            return reply(BrokerAnswer::Unreachable(Unreachable::NoToken));
        };
        let (recorder, within) = (self.recorder.clone(), self.config.answer_within);
        tokio::spawn(async move {
            recorder.add(How::Sent, QuestionKind::Attach.names().0, "", &octets);
            let came = match circuit.ask(Resource::Attach, &octets, within).await {
                Ok(octets) => {
                    recorder.add(How::Received, QuestionKind::Attach.names().1, "", &octets);
                    BrokerAnswer::Octets(octets)
                }
                Err(why) => {
                    warn!("a veiled UE's broker was not asked: {why}");
                    BrokerAnswer::Unreachable(reason_of(why))
                }
            };
            reply(came);
        });
    }

    /// A session has ended: it is reported under its token, over a circuit of its own, after a random time.
    fn ended(&mut self, measured: &EndedSession, reports: &mut tokio::task::JoinSet<()>) {
        let Some((group, _)) = self.held.get(&measured.group) else {
            return warn!("the key of a session's token is gone: the session is not reported");
        };
        let (Ok(secret), Ok(drawn)) = (random::<32>(), random::<8>()) else {
            return error!("the system gives no random octets: a session is not reported");
        };
        let (broker, presence) = (self.config.broker.domain.clone(), Response::new(measured.presence));
        let units = usage_units(measured.octets);
        let nonce = whimbrel_claims_digest::nonce(&ClaimSecret::new(&secret));
        let report = group.report(broker, (measured.session, &presence), units, nonce).to_octets();
        let kept = ReportedSession { group: measured.group.0, session: measured.session, units, secret };
        self.keep_session(&kept);
        let most = self.config.report_delay.as_micros() as u64;
        let mut delay = Duration::from_micros(u64::from_be_bytes(drawn) % most.saturating_add(1));
        if !self.unwritten_sessions.is_empty() {
            // The file has the session before the broker: a period in which it is reported is settled once.
            delay += 2 * TICK;
        }
        let (circuit, recorder) = (self.channel.open(), self.recorder.clone());
        let (counts, within) = (self.counts.clone(), self.config.answer_within);
        reports.spawn(async move {
            tokio::time::sleep(delay).await;
            for _ in 0..REPORT_TRIES {
                recorder.add(How::Sent, QuestionKind::Report.names().0, "", &report);
                if let Ok(octets) = circuit.ask(Resource::Report, &report, within).await {
                    recorder.add(How::Received, QuestionKind::Report.names().1, "", &octets);
                    match ReportAnswer::parse(&octets) {
                        Ok(ReportAnswer::Taken) => {
                            counts.reported.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(ReportAnswer::Refused(cause)) => warn!("the broker takes no report: {cause}"),
                        Err(e) => warn!("the broker's answer to a report is none: {e}"),
                    }
                    return;
                }
                tokio::time::sleep(FILL_AGAIN_AFTER).await;
            }
            warn!("a session was not reported: the broker was not reached");
        });
    }

    /// Keeps what a session is claimed with, for `whimbrel-broker settle`.
    fn keep_session(&mut self, session: &ReportedSession) {
        let line = session.line();
        self.recorder.add(How::Stored, "claim", "", line.as_bytes());
        if self.unwritten_sessions.len() + line.len() > MAX_UNWRITTEN_OCTETS {
            let path = self.session_file.path().display();
            return error!("{path} has been locked for long by another process: a session cannot be claimed");
        }
        self.unwritten_sessions += &line;
        self.write_sessions();
    }

    /// Writes the sessions that wait. Those that find the file locked wait for the next turn; those that cannot be written are lost.
    fn write_sessions(&mut self) {
        if self.unwritten_sessions.is_empty() {
            return;
        }
        match self.session_file.add(&self.unwritten_sessions) {
            Ok(true) => self.unwritten_sessions.clear(),
            Ok(false) => {}
            Err(e) => {
                let sessions = self.unwritten_sessions.lines().count();
                let path = self.session_file.path().display();
                warn!("{path} cannot be written: {e}; {sessions} sessions cannot be claimed");
                self.unwritten_sessions.clear();
            }
        }
    }

    /// Writes the sessions that wait when the core stops.
    async fn write_last_sessions(&mut self) {
        let last = clock::now() + LAST_REPORTS_WITHIN;
        self.write_sessions();
        while !self.unwritten_sessions.is_empty() && clock::now() < last {
            tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
            self.write_sessions();
        }
        if !self.unwritten_sessions.is_empty() {
            let sessions = self.unwritten_sessions.lines().count();
            let path = self.session_file.path().display();
            error!("{path} is locked by another process: {sessions} sessions cannot be claimed");
        }
    }

    /// A UE did not accept its challenge: the broker gets what it says, over a circuit of its own.
    fn failed(&self, sealed: Vec<u8>) {
        let (circuit, within) = (self.channel.open(), self.config.answer_within);
        tokio::spawn(async move {
            if let Err(why) = circuit.ask(Resource::Failure, &sealed, within).await {
                warn!("the broker did not get what a UE says of its challenge: {why}");
            }
        });
    }
}

const fn reason_of(why: Failure) -> Unreachable {
    match why {
        Failure::NotOpen => Unreachable::NoToken,
        Failure::Closed => Unreachable::NotConnected,
        Failure::TimedOut => Unreachable::TimedOut,
    }
}
