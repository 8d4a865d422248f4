//! The control thread: N2, the CTA with its UEs, N4 and the console's commands, run to completion.
//!
//! One turn takes what arrived, runs everything that it causes and sends all of it; then it spins a little, for the
//! next message of a busy gNB is microseconds away, and then blocks until a descriptor or a deadline.

mod step_down;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, error, info, warn};
use whimbrel_control::amf::WarningError;
use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, UeId, UeSummary, UpfId};
use whimbrel_ids::Instant;
use whimbrel_ngap::to_per;
use whimbrel_resilience::cta_replica::{self, CtaReplica, LocalAssociation, MessageRoute, Record};
use whimbrel_resilience::link::{ToCtaReplica, UeQuery};
use whimbrel_resilience::membership::CtaInstance;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{Input, Order, OrderOutcome, Outbox};
use whimbrel_sctp_io::{
    AssociationId as SctpAssociation, Event, Events, Former, Mode, OpenError, Settings, Transport,
};
use whimbrel_store::{Changes, Store};

use super::core_time::CoreTime;
use super::n2::{self, Links};
use super::replica;
use super::smf_n4::SmfN4;
use super::subscriber_copy::SubscriberFeed;
use super::subscribers::StoredSubscribers;
use super::upf::LocalUpf;
use super::view;
use crate::aftermath;
use crate::capture::Capture;
use crate::clock;
use crate::cluster::{
    InputWatchdog, PairEvent, PairPrimary, PairReplica, PeerAmfs, Pool, PoolEvent, Promotion, UeQueryReply,
    log_protocol_violation,
};
use crate::config::{Config, SctpChoice};
use crate::console::{Command, Condition, Console, Counter, Gauge, Sample, Target};
use crate::entropy::SystemEntropy;
use crate::observe::Observer;
use crate::open::Brokers;

/// How long to look for the next message before blocking. Waking up costs 30 µs, ten times what a message costs.
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// How often the store is asked for edits, the gauges are set and the capture is brought to disk.
const HOUSEKEEPING: Duration = Duration::from_millis(500);
/// Time between two counts of the UEs, for each of them: counting takes a thousandth of it.
const CENSUS_PER_UE: Duration = Duration::from_micros(100);
/// Payload protocol identifier of NGAP (TS 38.412 §7).
pub(super) const NGAP_PPID: u32 = 60;
/// A gNB that takes nothing at all for so long is given up: it has stopped. A slow one takes what it has room for.
const N2_STALLED: Duration = Duration::from_secs(10);
/// PFCP datagrams of UPFs elsewhere that are taken in one turn, so that a flood does not keep UEs waiting.
const N4_PER_TURN_MAX: usize = 64;
/// How long SMFs elsewhere have to leave this UPF when it stops.
const LEAVING: Duration = Duration::from_secs(10);
/// Streams asked of and granted to a gNB: stream 0 and enough for UEs not to wait for each other.
const STREAMS: u16 = 32;

/// The CTA with what the program gives it; it as one that serves, and as one that follows.
pub(super) type Cta = whimbrel_resilience::Cta<StoredSubscribers, SystemEntropy, CoreTime>;
type PrimaryCta = cta_replica::PrimaryCta<StoredSubscribers, SystemEntropy, CoreTime>;
pub(super) type ReplicaCta = CtaReplica<StoredSubscribers, SystemEntropy, CoreTime>;

/// What was asked of the control thread: to end, and to end without waiting for anybody.
#[derive(Default)]
pub(super) struct StopRequest {
    asked: AtomicBool,
    at_once: AtomicBool,
}

impl StopRequest {
    /// Whether the thread is to end.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Whether it is to end without waiting for gNBs, UPFs, SMFs or the other CTA.
    pub(super) fn is_at_once(&self) -> bool {
        self.at_once.load(Ordering::Acquire)
    }
}

/// The running thread. Dropped, it ends in order: associations are shut down.
pub(crate) struct ControlThread {
    stop: Arc<StopRequest>,
    console: Arc<Console>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.ask_to_stop();
        if self.thread.take().is_some_and(|t| t.join().is_err()) {
            error!("the control thread ended in a panic");
        }
    }
}

impl ControlThread {
    /// UeQueries the thread to end in order; it is over when [`Self::is_alive`] says so.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.asked.store(true, Ordering::Release);
        self.console.commands.wake();
    }

    /// UeQueries the thread to end without waiting for anybody: gNBs get ABORT.
    pub(crate) fn ask_to_stop_at_once(&self) {
        self.stop.at_once.store(true, Ordering::Release);
        self.ask_to_stop();
    }

    /// Whether the thread still runs; it ends by itself only in a panic.
    pub(crate) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }
}

/// Opens N2. Errors: each way that was tried and what stood in it.
pub(crate) fn open_n2(config: &Config, entropy: &mut SystemEntropy) -> Result<Transport, OpenError> {
    let mut endpoint = whimbrel_sctp_io::Config::new(config.n2.port);
    // A wildcard stands for all addresses, as the empty list does there.
    endpoint.local_addresses = config.n2.addresses.iter().copied().filter(|a| !a.is_unspecified()).collect();
    endpoint.outbound_streams = STREAMS;
    endpoint.associations_max = config.limits.ran_nodes as usize + 16;
    endpoint.heartbeat_interval = config.n2.heartbeat_interval;
    endpoint.rto_max = config.n2.rto_max;
    endpoint.path_max_retrans = config.n2.path_max_retrans;
    endpoint.association_max_retrans = config.n2.path_max_retrans;
    endpoint.adaptation = config.n2.fastwire.then_some(whimbrel_ngap::fast::DIGEST);
    let mut settings = Settings::new(endpoint);
    settings.udp_port = config.n2.udp_port;
    settings.mode = match config.n2.sctp {
        SctpChoice::Auto => Mode::Auto,
        SctpChoice::Kernel => Mode::Kernel,
        SctpChoice::Raw => Mode::Raw,
        SctpChoice::Udp => Mode::Udp,
    };
    Transport::open(&settings, entropy.octets(), clock::now())
}

/// What the control thread is started with.
pub(crate) struct Parts {
    pub(crate) config: Arc<Config>,
    pub(crate) console: Arc<Console>,
    pub(crate) store: Store,
    pub(crate) entropy: SystemEntropy,
    /// N2, or nothing where the host has no way for it: N4 and the console are served all the same.
    pub(crate) n2: Option<Transport>,
    /// The file that keeps the SCTP associations for the next start, should this program be killed.
    pub(crate) remembered_in: Option<PathBuf>,
    /// The UPF, or nothing where the host has no way for packets: no session can be had then.
    pub(crate) upf: Option<LocalUpf>,
    /// N4 towards UPFs elsewhere, if there are such.
    pub(crate) smf_n4: Option<SmfN4>,
    /// The CPFs, where they are processes of their own and there is no pair.
    pub(crate) pool: Option<Pool>,
    /// One of a pair begins so.
    pub(crate) standby: Option<PairReplica>,
    /// There is no SMF in this program, only a UPF for those elsewhere.
    pub(crate) upf_alone: bool,
    pub(crate) capture: Option<PathBuf>,
}

/// Starts the control thread. Errors: one sentence.
pub(crate) fn start(parts: Parts) -> Result<ControlThread, String> {
    let console = parts.console.clone();
    let stop = Arc::new(StopRequest::default());
    let stopping = stop.clone();
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    // The machines are made where they run: their futures never leave the thread.
    let serve = move || {
        if parts.standby.is_some() {
            let _ = ready.send(Ok(()));
            return serve_in_turns(parts, &stopping);
        }
        match Control::new(parts, None) {
            Ok(control) => {
                let _ = ready.send(Ok(()));
                // Without a pair nobody replaces it: it ends because it is told to.
                let _ = control.run(&stopping);
            }
            Err(sentence) => {
                let _ = ready.send(Err(sentence));
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("control".into())
        .spawn(serve)
        .map_err(|e| format!("the control thread cannot be started: {e}"))?;
    let control = ControlThread { stop, console, thread: Some(thread) };
    match started.recv() {
        Ok(outcome) => outcome.map(|()| control),
        Err(_) => Err("the control thread ended in a panic at its start".into()),
    }
}

/// One of a pair stands by until it serves, and again when another one serves in its place.
fn serve_in_turns(mut parts: Parts, stop: &StopRequest) {
    while let Some((ready, accession)) = replica::run_as_replica(parts, stop) {
        parts = match Control::new(ready, Some(accession)).and_then(|control| control.run(stop)) {
            Ok(Some(parts)) => parts,
            Ok(None) => return,
            Err(sentence) => return error!("this CTA stops: {sentence}"),
        };
    }
}

/// What a gNB said before this host served: over which association, on which stream.
pub(super) type Early = (LocalAssociation, u16, Vec<u8>);

/// How one of a pair comes to serve.
pub(super) struct TakeoverState {
    pub(super) succession: Promotion,
    /// The one that it follows until then, if it followed one.
    pub(super) cta_replica: Option<ReplicaCta>,
    /// gNBs that have come to this host, and what they said that may have been for the one that serves.
    pub(super) links: Links,
    pub(super) early: Vec<Early>,
}

struct Control {
    config: Arc<Config>,
    console: Arc<Console>,
    observer: Observer,
    active: PrimaryCta,
    pair: Option<PairPrimary>,
    /// The one that follows, and the subscribers on their way to it.
    followed_by: Option<CtaInstance>,
    carrying: Option<SubscriberFeed>,
    /// Another CTA serves now.
    replaced: bool,
    /// One of a pair ends if it is at one input for ever: its heartbeats are answered beside, and its CTA replica would not notice.
    watched: Option<InputWatchdog>,
    upf: Option<LocalUpf>,
    /// Which of the UPFs the one of this program is.
    here: Option<UpfId>,
    smf_n4: Option<SmfN4>,
    pool: Option<Pool>,
    /// Other AMFs of this network.
    neighbours: Option<PeerAmfs>,
    /// Brokers whose users are served.
    brokers: Option<Brokers>,
    n2: Option<Transport>,
    /// The associations as the file has them that keeps them for the next start.
    remembered: Vec<Former>,
    remembered_in: Option<PathBuf>,
    links: Links,
    /// Whether acknowledgements wait for the CTA replica; and those that do: for which input, over which association, of how many messages.
    holds: bool,
    unacknowledged: VecDeque<(u64, SctpAssociation, u64)>,
    capture: Option<Capture>,
    // Reused from turn to turn.
    events: Events,
    out: Outbox,
    answers: Vec<Vec<u8>>,
    housekeeping: Instant,
    census: Instant,
    /// Version of the configuration in force: envelopes name it.
    version: u32,
    /// When the last turn ended.
    turned: Instant,
    /// The longest turn since the last housekeeping: what arrives at its beginning waits for its end.
    longest_turn: Duration,
}

impl Control {
    fn new(parts: Parts, accession: Option<TakeoverState>) -> Result<Self, String> {
        let now = clock::now();
        let capture = parts.capture.as_deref().map(|path| {
            Capture::create(path)
                .map_err(|e| format!("the capture {} cannot be written: {e}", path.display()))
        });
        let mut told = parts.config.control();
        let here = parts.config.upfs().iter().position(|u| u.address.is_none());
        let here = here.and_then(|i| u8::try_from(i).ok()).map(UpfId);
        if parts.upf_alone {
            told.smf.upfs.clear();
        }
        let mut told = Arc::new(told);
        let directory = Directory::new(told.amf.plmn, parts.config.home_network_keys());
        let subscribers = StoredSubscribers::new(parts.store);
        let mut entropy = parts.entropy;
        let (mut pool, mut pair, mut links, mut taken_over) = (parts.pool, None, Links::default(), None);
        let active = match accession {
            None => {
                let core_time = CoreTime::default();
                PrimaryCta::without_cta_replica(match &pool {
                    None => Cta::new(told.clone(), directory, subscribers, entropy, core_time, now),
                    Some(pool) => {
                        let rings = pool.rings();
                        let mut cta = Cta::of_region(
                            told.clone(),
                            directory,
                            subscribers,
                            entropy,
                            core_time,
                            rings,
                            now,
                        );
                        cta.set_log_limits(parts.config.cluster.logs());
                        cta
                    }
                })
            }
            Some(TakeoverState { succession, cta_replica, links: known, early }) => {
                // What was in force goes on.
                if let Some(cta_replica) = &cta_replica {
                    told = cta_replica.cta().config().clone();
                }
                let (cluster, console) = (&parts.config.cluster, parts.console.clone());
                let (members, one) = succession.enter(now, cluster, told.clone(), &mut entropy, console)?;
                let rings = members.rings();
                (pool, pair, links) = (Some(members), Some(one), known);
                match cta_replica {
                    None => {
                        let core_time = CoreTime::default();
                        let mut cta = Cta::of_region(
                            told.clone(),
                            directory,
                            subscribers,
                            entropy,
                            core_time,
                            rings,
                            now,
                        );
                        cta.set_log_limits(cluster.logs());
                        PrimaryCta::new(cta)
                    }
                    Some(cta_replica) => {
                        let (active, first) = cta_replica.take_over();
                        taken_over = Some((first, early));
                        active
                    }
                }
            }
        };
        let version = told.version;
        let neighbours = PeerAmfs::open(&parts.config.neighbours, told.amf.amf_id, now)?;
        let open = parts.config.open.as_ref().filter(|_| !parts.upf_alone);
        let brokers =
            open.map(|open| Brokers::start(&parts.config, open, parts.console.clone())).transpose()?;
        let watched = pair.is_some().then(|| InputWatchdog::start("cta")).transpose()?;
        let observer = Observer::new(parts.console.clone(), told, parts.config.log.supi);
        let mut upf = parts.upf;
        if let (Some(upf), Some(Ok(_))) = (&mut upf, &capture) {
            upf.tap(true);
        }
        let mut control = Self {
            active,
            pair,
            followed_by: None,
            carrying: None,
            replaced: false,
            watched,
            config: parts.config,
            console: parts.console,
            observer,
            upf,
            here,
            smf_n4: parts.smf_n4,
            pool,
            neighbours,
            brokers,
            n2: parts.n2,
            remembered: Vec::new(),
            remembered_in: parts.remembered_in,
            links,
            holds: false,
            unacknowledged: VecDeque::new(),
            capture: capture.transpose()?,
            events: Events::default(),
            out: Outbox::default(),
            answers: Vec::new(),
            housekeeping: now,
            census: now,
            version,
            turned: now,
            longest_turn: Duration::ZERO,
        };
        control.begin(now, taken_over);
        Ok(control)
    }

    /// One of a pair begins to serve: gNBs and CPFs go on with it, if they were with the other one.
    fn begin(&mut self, now: Instant, taken_over: Option<(Outbox, Vec<Early>)>) {
        let (Some(pair), Some(pool)) = (&self.pair, &self.pool) else { return };
        let (term, rings) = (pair.term(), pool.rings());
        let lost: Vec<CpfId> = self.active.unsettled().filter(|cpf| !pool.knows(*cpf)).collect();
        let nodes = self.active.cta().ran_nodes().iter();
        let gnbs: Vec<_> = nodes.map(|(name, node)| (name, node.gnb)).collect();
        for (name, gnb) in &gnbs {
            gnb.iter().for_each(|gnb| self.observer.inherits(*name, *gnb));
        }
        let down = self.links.take_over(now, term, gnbs);
        let Some((first, early)) = taken_over else { return };
        self.tell_gnbs_of_takeover(now);
        self.out.append(first);
        self.settle(now);
        self.give(now, Input::Rings(rings));
        lost.into_iter().for_each(|cpf| self.lost(now, cpf));
        down.into_iter().for_each(|name| self.give(now, Input::AssociationDown(name)));
        for (physical, stream, octets) in early {
            self.n2_data(now, physical, stream, &octets);
        }
        self.settle(now);
    }

    /// gNBs hear that they need not wait for the host whose place this one has taken (TS 38.413 §8.7.3.2).
    fn tell_gnbs_of_takeover(&mut self, now: Instant) {
        let former = self.pair.as_ref().map_or(&[][..], PairPrimary::former);
        if !former.is_empty() {
            self.carry_out(now, Order::TakenOver(former.to_vec()));
        }
    }

    /// The CTA takes an input, and its CTA replica is told.
    fn give(&mut self, now: Instant, input: Input<'_>) {
        let (active, out) = (&mut self.active, &mut self.out);
        let record = match &self.watched {
            Some(watched) => watched.during(|| active.handle(now, input, out)),
            None => active.handle(now, input, out),
        };
        if let Some(record) = record {
            self.replicated(now, &record);
        }
    }

    /// The CTA carries an order out, and its CTA replica is told.
    fn carry_out(&mut self, now: Instant, order: Order) -> OrderOutcome {
        let (ordered, record) = self.active.order(now, order, &mut self.out);
        if let Some(record) = record {
            self.replicated(now, &record);
        }
        ordered
    }

    fn replicated(&mut self, now: Instant, record: &Record) {
        if let (Some(pair), Some(pool)) = (&mut self.pair, &mut self.pool) {
            pair.record(now, pool, record);
        }
    }

    /// Serves until told to stop. Gives what is left if another CTA serves in this one's place. Errors: what keeps it from standing
    /// by then, in one sentence.
    fn run(mut self, stop: &StopRequest) -> Result<Option<Parts>, String> {
        let mut spin_until = Instant::ZERO;
        while !stop.is_asked() && !self.replaced {
            let now = clock::now();
            if self.turn(now) {
                spin_until = clock::now() + SPIN;
            } else if clock::now() < spin_until {
                std::hint::spin_loop();
            } else {
                self.block(clock::now());
            }
        }
        if self.replaced {
            return self.stand_down().map(Some);
        }
        self.hand_over(stop);
        if !self.replaced {
            self.close(stop);
        }
        if let Some(pair) = self.pair {
            pair.leave();
        }
        Ok(None)
    }

    /// One turn; says whether anything arrived.
    fn turn(&mut self, now: Instant) -> bool {
        self.active.inspect().begin();
        if let Some(pair) = &mut self.pair
            && pair.was_away(now.since(self.turned), self.active.last(), self.active.waiting())
        {
            self.housekeeping = now; // tells the CTA replica something
        }
        let mut busy = self.receive(now);
        while let Some(command) = self.console.commands.take() {
            self.command(now, command);
            busy = true;
        }
        busy |= self.cpfs(now);
        busy |= self.other_amfs(now);
        busy |= self.answers_of_brokers(now);
        self.other_cta(now);
        self.carry_subscribers(now);
        if self.active.next_deadline() <= now {
            self.give(now, Input::Tick);
        }
        if let Some(upf) = &mut self.upf {
            busy |= upf.turn(now, &mut self.answers);
        }
        busy |= self.upfs_elsewhere(now);
        self.captured_datagrams();
        self.settle(now);
        if now >= self.housekeeping {
            self.keep_house(now);
            self.housekeeping = now + HOUSEKEEPING;
        }
        if let Some(n2) = &mut self.n2 {
            n2.flush(now);
        }
        if let Some(pool) = &mut self.pool {
            pool.flush();
        }
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.flush();
        }
        if busy {
            self.longest_turn = self.longest_turn.max(clock::now().since(now));
        }
        let observer = &self.observer;
        self.active.inspect().end(|procedure, spent| observer.worked(procedure, spent));
        if self.pair.is_some() {
            self.turned = clock::now();
        }
        busy
    }

    /// The one that follows has the same subscribers.
    fn carry_subscribers(&mut self, now: Instant) {
        let (Some(pair), Some(pool)) = (&self.pair, &mut self.pool) else { return };
        let saved = self.active.subscribers().saved();
        let follower = pair.follower().or(pool.awaited());
        if self.followed_by != follower {
            self.followed_by = follower;
            self.carrying =
                follower.and_then(|_| SubscriberFeed::begin(now, self.active.subscribers().store()));
        }
        let Some(carrying) = &mut self.carrying else { return };
        if !saved.is_empty() {
            carrying.changed(&Changes::Some(saved));
        }
        match carrying.next(now, self.active.subscribers().store()) {
            Ok(Some(excerpt)) => pool.tell_cta_replica(&ToCtaReplica::Subscribers(excerpt.octets())),
            Ok(None) => {}
            Err(e) => self.observer.store(now, Err(e.to_string())),
        }
    }

    fn receive(&mut self, now: Instant) -> bool {
        let Some(n2) = &mut self.n2 else { return false };
        let mut events = std::mem::take(&mut self.events);
        n2.drain(now, &mut events);
        let busy = !events.is_empty();
        for event in events.iter() {
            self.n2_event(now, event);
        }
        self.events = events;
        busy
    }

    /// Takes what UPFs outside the program sent, a bounded number of datagrams; says whether there were any.
    fn upfs_elsewhere(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for _ in 0..N4_PER_TURN_MAX {
            let Some((upf, from, octets)) = self.smf_n4.as_mut().and_then(SmfN4::receive) else { break };
            if let (Some(capture), Some(n4)) = (&mut self.capture, &self.smf_n4) {
                capture.udp(now, from, n4.at(), &octets);
            }
            self.give(now, Input::Pfcp(upf, &octets));
            busy = true;
        }
        busy
    }

    /// Takes what CPFs elsewhere said; says whether there was anything.
    fn cpfs(&mut self, now: Instant) -> bool {
        let Some(pool) = &mut self.pool else { return false };
        let said = pool.turn(now);
        let busy = !said.is_empty();
        for said in said {
            match said {
                PoolEvent::Up(cpf, up) => self.give(now, Input::Cpf(cpf, up)),
                PoolEvent::Rings(rings) => self.give(now, Input::Rings(rings)),
                PoolEvent::Lost(cpf) => self.lost(now, cpf),
                PoolEvent::LostRepeatedly(cpf) => self.give(now, Input::CpfLost(cpf)),
                PoolEvent::UesShown(wanted, ues) => self.shown(now, wanted, ues),
                PoolEvent::Confirmed(cpf, messages) => self.active.confirmed(cpf, messages),
                PoolEvent::Resumes(cpf, has) => self.resume(now, cpf, has),
                PoolEvent::Disconnected(cpf) => {
                    self.out.cpfs.retain(|(to, _)| *to != cpf); // its link has them
                    self.active.parts(cpf);
                }
                PoolEvent::FromReplica(message) => {
                    if let (Some(pair), Some(pool)) = (&mut self.pair, &mut self.pool) {
                        pair.said(now, message, &mut self.active, pool, &mut self.out);
                    }
                }
                PoolEvent::SuccessorOffered(place, endpoints, smf) => {
                    self.awaited(now, Some((place, endpoints, smf)))
                }
                PoolEvent::SuccessorLost => self.awaited(now, None),
                PoolEvent::CtaReplicaLost => {
                    if let (Some(pair), Some(pool)) = (&mut self.pair, &mut self.pool) {
                        pair.cta_replica_lost(&mut self.active, pool, &mut self.out);
                    }
                }
            }
        }
        busy
    }

    /// Takes what other AMFs said; says whether there was anything.
    fn other_amfs(&mut self, now: Instant) -> bool {
        let Some(neighbours) = &mut self.neighbours else { return false };
        let said = neighbours.turn(now);
        for (from, octets) in &said {
            self.give(now, Input::PeerAmf(*from, octets));
        }
        !said.is_empty()
    }

    /// Takes what brokers answered; says whether there was anything.
    fn answers_of_brokers(&mut self, now: Instant) -> bool {
        let Some(brokers) = &mut self.brokers else { return false };
        let answers = brokers.turn();
        let busy = !answers.is_empty();
        for (ue, to, answer) in answers {
            self.give(now, Input::Broker(ue, to, answer));
        }
        busy
    }

    /// A CPF that served under the former CTA is there: both repeat what the other lacks.
    fn resume(&mut self, now: Instant, cpf: CpfId, has: u64) {
        let again = self.active.resume(cpf, has);
        let Some(pool) = &mut self.pool else { return };
        match again {
            Some(again) => {
                pool.resumed(cpf, self.active.taken(cpf));
                again.into_iter().for_each(|message| pool.send(cpf, message));
            }
            None => {
                pool.forget(cpf);
                self.cpfs(now);
            }
        }
    }

    /// What etcd says of this CTA and the other one.
    fn other_cta(&mut self, now: Instant) {
        let (Some(pair), Some(pool)) = (&mut self.pair, &mut self.pool) else { return };
        for turned in pair.turn(now, &mut self.active, pool, &mut self.out) {
            match turned {
                PairEvent::Order(order) => drop(self.carry_out(now, order)),
                PairEvent::Replaced => self.replaced = true,
            }
        }
        for name in self.links.tick(now) {
            warn!(association = name.0, "a gNB of the former primary CTA did not connect here in time");
            self.give(now, Input::AssociationDown(name));
        }
        if let Some(pool) = &mut self.pool {
            pool.taken(|cpf| self.active.taken(cpf));
        }
        self.acknowledge();
    }

    /// What a gNB said is acknowledged when it cannot be lost any more with this host: then it need not say it again to another.
    fn acknowledge(&mut self) {
        let (safe, Some(n2)) = (self.active.safe(), &mut self.n2) else { return };
        while let Some(&(input, association, messages)) = self.unacknowledged.front()
            && input <= safe
        {
            n2.release(association, messages);
            self.unacknowledged.pop_front();
        }
        let holds = safe != u64::MAX;
        if holds != self.holds {
            // The kernel's SCTP acknowledges by itself.
            self.holds = n2.hold_acknowledgements(holds) && holds;
        }
    }

    /// Others take over the UEs of a CPF that is lost.
    fn lost(&mut self, now: Instant, cpf: CpfId) {
        let before = self.active.cta().replication_counters();
        self.give(now, Input::CpfLost(cpf));
        let after = self.active.cta().replication_counters();
        info!(
            cpf = cpf.0,
            taken_over = after.taken_over - before.taken_over,
            replayed = after.replayed - before.replayed,
            lost = after.lost - before.lost,
            "the UEs of a lost CPF are served by other CPFs"
        );
    }

    fn n2_event(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Up { association, peer, peer_port, outbound_streams, adaptation, .. } => {
                let peer = n2::peer(peer, peer_port);
                let syntax = n2::syntax(self.config.n2.fastwire, peer, adaptation);
                let physical = self.links.up(now, association, peer, outbound_streams, syntax);
                if !self.links.awaits() {
                    self.named(now, physical);
                }
            }
            Event::Data { association, stream, ppid, octets } => {
                let Some(physical) = self.links.received(association) else { return };
                if ppid != NGAP_PPID {
                    self.console.metrics.add(Counter::N2Foreign, 1);
                    return;
                }
                self.n2_data(now, physical, stream, octets);
                if let (true, Some(link)) = (self.holds, self.links.link(physical)) {
                    self.unacknowledged.push_back((self.active.last(), association, link.received));
                }
            }
            Event::Down { association, reason } => {
                debug!(?reason, "an SCTP association ended");
                if let Some(name) = self.links.down(association) {
                    self.observer.association_down(name, &reason);
                    self.give(now, Input::AssociationDown(name));
                }
            }
            Event::Restarted { association, outbound_streams, adaptation, .. } => {
                let Some(link) = self.links.physical(association).and_then(|p| self.links.link(p)) else {
                    return;
                };
                info!(peer = %link.peer, "a gNB restarted its SCTP association");
                if let Some(name) = self.links.down(association) {
                    self.give(now, Input::AssociationDown(name));
                    self.settle(now); // the former association ends before the new one is told of
                }
                let syntax = n2::syntax(self.config.n2.fastwire, link.peer, adaptation);
                let physical = self.links.up(now, association, link.peer, outbound_streams, syntax);
                self.named(now, physical);
            }
            Event::PathDown { remote, .. } => warn!(%remote, "a path of an SCTP association does not answer"),
            Event::PathUp { remote, .. } => debug!(%remote, "a path of an SCTP association answers"),
            Event::Refused { .. } => debug!(?event, "SCTP refused a request"),
            Event::Unacknowledged { .. } => {} // what UEs miss of it, their procedures repeat
        }
        self.settle(now);
    }

    /// An association is a new one to the CTA.
    fn named(&mut self, now: Instant, physical: LocalAssociation) -> AssociationId {
        let name = self.links.name_it(physical);
        if let Some(link) = self.links.link(physical) {
            self.observer.association_up(name, &link.peer.to_string());
            let up = Input::AssociationUp { association: name, outbound_streams: link.outbound_streams };
            self.give(now, up);
        }
        name
    }

    fn n2_data(&mut self, now: Instant, physical: LocalAssociation, stream: u16, octets: &[u8]) {
        self.console.metrics.add(Counter::N2In, 1);
        self.console.metrics.add(Counter::N2OctetsIn, octets.len() as u64);
        let Some(link) = self.links.link(physical) else { return };
        let came = octets;
        let octets = link.readable(came);
        let name = match self.links.take(physical, octets) {
            MessageRoute::ToAssociation(name) => name,
            MessageRoute::NewAssociation => self.named(now, physical),
            MessageRoute::Answered(answer) => {
                if let Some(n2) = &mut self.n2 {
                    // One that does not get it asks again.
                    let _ = n2.send(link.sctp, 0, NGAP_PPID, &answer);
                }
                // One that was awaited has come.
                return self.tell_gnbs_of_takeover(now);
            }
            MessageRoute::Dropped => return,
        };
        self.captured_ngap(now, name, stream, came, true);
        self.give(now, Input::Ngap(name, stream, octets));
    }

    /// Carries what left the CTA to its destinations, and what the UPF answers back, until nothing is left.
    fn settle(&mut self, now: Instant) {
        loop {
            for (upf, octets) in std::mem::take(&mut self.out.pfcp) {
                if self.here != Some(upf) {
                    self.send_pfcp(now, upf, &octets);
                    continue;
                }
                self.captured_pfcp(now, &octets, false);
                if let Some(upf) = &mut self.upf {
                    upf.pfcp(now, &octets, &mut self.answers);
                }
            }
            if self.answers.is_empty() {
                break;
            }
            for octets in std::mem::take(&mut self.answers) {
                self.captured_pfcp(now, &octets, true);
                if let Some(here) = self.here {
                    self.give(now, Input::Pfcp(here, &octets));
                }
            }
        }
        for (association, stream, octets) in std::mem::take(&mut self.out.ngap) {
            self.send(now, association, stream, &octets);
        }
        for association in std::mem::take(&mut self.out.abort) {
            self.abort(now, association);
        }
        if let Some(pool) = &mut self.pool {
            self.out.cpfs.drain(..).for_each(|(cpf, message)| pool.send(cpf, message));
            self.out.drained.drain(..).for_each(|cpf| pool.left(cpf));
            self.out
                .cpf_violations
                .drain(..)
                .for_each(|(cpf, complaint)| log_protocol_violation(cpf, complaint));
            self.out.takeover_times.drain(..).for_each(|recovered| pool.recovered(recovered));
        }
        if let Some(neighbours) = &mut self.neighbours {
            self.out.n14.drain(..).for_each(|(to, said)| neighbours.send(to, said.octets()));
            self.out.n14_errors.drain(..).for_each(|(from, why)| neighbours.not_taken(from, why));
        }
        if let Some(brokers) = &mut self.brokers {
            for (ue, to, request) in self.out.brokers.drain(..) {
                let connection = self.active.cta().context(ue).and_then(|ue| ue.amf.connection.as_ref());
                brokers.ask(now, (ue, to, request), connection.map(|c| c.association));
            }
        }
        if !self.out.ran_events.is_empty() || !self.out.events.is_empty() {
            self.observer.turned(clock::now().since(now));
        }
        // gNBs before UEs: a UE's refusal names its gNB.
        for event in self.out.ran_events.drain(..) {
            self.observer.ran(now, &event);
        }
        for event in self.out.events.drain(..) {
            self.observer.ue(now, &event);
        }
        for (upf, change) in self.out.upfs.drain(..) {
            self.observer.upf(now, upf, change);
        }
    }

    /// PFCP to a UPF outside the program.
    fn send_pfcp(&mut self, now: Instant, upf: UpfId, octets: &[u8]) {
        let Some(n4) = &mut self.smf_n4 else { return };
        let Some(to) = n4.address(upf) else { return };
        n4.send(to, octets);
        if let Some(capture) = &mut self.capture {
            capture.udp(now, n4.at(), to, octets);
        }
    }

    fn send(&mut self, now: Instant, association: AssociationId, stream: u16, octets: &[u8]) {
        let (Some(link), Some(n2)) = (self.links.get(association), &mut self.n2) else { return };
        let octets = &*link.agreed(octets);
        match n2.send(link.sctp, link.stream(stream), NGAP_PPID, octets) {
            Ok(()) => {
                self.links.took(now, association, true);
                self.console.metrics.add(Counter::N2Out, 1);
                self.console.metrics.add(Counter::N2OctetsOut, octets.len() as u64);
                self.captured_ngap(now, association, stream, octets, false);
            }
            Err(refusal) => {
                // A gNB that takes nothing: the timers of its UEs' procedures end what waits for it.
                self.console.metrics.add(Counter::N2Unsent, 1);
                debug!(?refusal, association = association.0, "an NGAP message was not sent");
                if self.links.took(now, association, false) >= N2_STALLED {
                    self.console.metrics.add(Counter::N2Stalled, 1);
                    warn!(
                        association = association.0,
                        "a gNB has taken no data for 10 s: its association is aborted"
                    );
                    self.abort(now, association);
                    self.give(now, Input::AssociationDown(association));
                }
            }
        }
    }

    /// Gives an SCTP association up. The CTA has forgotten it, or is told by the caller.
    fn abort(&mut self, now: Instant, association: AssociationId) {
        if let (Some(link), Some(n2)) = (self.links.forget(association), &mut self.n2) {
            n2.abort(now, link.sctp);
        }
    }

    /// What can be changed while UEs are on: what gNBs and UEs are told, timers, refusals, limits, data networks.
    fn reconfigure(&mut self, now: Instant, config: &Config) {
        let mut told = config.control();
        self.version += 1;
        told.version = self.version;
        // Their links are those of the start.
        told.amf.peer_amfs.clone_from(&self.active.cta().config().amf.peer_amfs);
        let told = Arc::new(told);
        self.observer.configure(told.clone());
        if let Some(pool) = &mut self.pool {
            pool.configure(told.clone());
        }
        self.carry_out(now, Order::Configure(told));
        info!("a new version of the configuration is in force");
    }

    /// Has the core do something with a subscriber's UE, if that is known. Gives the operation.
    fn order(
        &mut self,
        now: Instant,
        supi: whimbrel_ids::Supi,
        order: whimbrel_control::Command,
        target: fn(UeId) -> Target,
    ) -> Option<u64> {
        let ue: UeId = self.active.cta().find(supi)?;
        let operation = self.console.operations.begin(now, supi.to_string(), target(ue));
        self.give(now, Input::Command(ue, order));
        Some(operation)
    }

    /// Somebody wants to see UEs, wherever they are served.
    fn want(&mut self, now: Instant, which: UeQuery, wanted: UeQueryReply) {
        match (&mut self.pool, self.active.cta().cpf()) {
            (Some(pool), _) => pool.ask(which, wanted),
            (None, cpf) => {
                let ues = cpf.map(|c| c.show(which)).unwrap_or_default();
                self.shown(now, wanted, ues);
            }
        }
    }

    /// The UEs that somebody wants to see are there. Whoever asked may have gone; then nobody misses the answer.
    fn shown(&mut self, now: Instant, wanted: UeQueryReply, ues: Vec<UeSummary>) {
        let _ = match wanted {
            UeQueryReply::Page(request, reply) => {
                reply.send(view::ues(self.active.cta(), self.active.time(now), &request, ues)).is_ok()
            }
            UeQueryReply::Ue(reply) => {
                let here = self.upf.as_ref().filter(|_| self.here.is_some());
                let octets =
                    |upf, seid| here.filter(|_| self.here == Some(upf)).and_then(|upf| upf.octets(seid));
                reply.send(view::ue(self.active.cta(), self.active.time(now), &ues, octets)).is_ok()
            }
            UeQueryReply::Modified(psi, modification, reply) => {
                let has = |p: &&UeSummary| p.registered && p.sessions.iter().any(|s| s.psi == psi);
                let operation = ues.iter().find(has).map(|p| {
                    let supi = p.supi.map(|s| s.to_string()).unwrap_or_default();
                    let target = Target::Session(p.id, psi, modification);
                    let operation = self.console.operations.begin(now, supi, target);
                    let order = whimbrel_control::Command::ModifySession(psi, modification);
                    self.give(now, Input::Command(p.id, order));
                    operation
                });
                reply.send(operation).is_ok()
            }
        };
    }

    /// Sends a warning message, or cancels it. Gives the operation: the gNBs' answers come in a later turn.
    fn warn(&mut self, now: Instant, of: (u16, u16), order: Order) -> Result<u64, WarningError> {
        let cancelled = matches!(order, Order::CancelWarning { .. });
        let OrderOutcome::Warned(outcome) = self.carry_out(now, order) else {
            return Err(WarningError::Unknown);
        };
        let target = Target::Warning { of, awaited: outcome?, cancelled };
        let subject = format!("warning {} {}", of.0, of.1);
        Ok(self.console.operations.begin(now, subject, target))
    }

    fn command(&mut self, now: Instant, command: Command) {
        // Whoever asked may have gone; then nobody misses the answer.
        let _ = match command {
            Command::ListUes(request, reply) => {
                self.want(now, view::page_of(&request), UeQueryReply::Page(request, reply));
                true
            }
            Command::ShowUe(supi, reply) => {
                self.want(now, UeQuery::Subscriber(supi), UeQueryReply::Ue(reply));
                true
            }
            Command::ListGnbs(reply) => {
                reply.send(view::gnbs(self.active.cta(), |association| self.links.get(association))).is_ok()
            }
            Command::Deregister(supi, reply) => {
                let order = whimbrel_control::Command::Deregister;
                reply.send(self.order(now, supi, order, Target::Deregistration)).is_ok()
            }
            Command::NotifyReachable(supi, reply) => {
                let order = whimbrel_control::Command::NotifyReachable;
                reply.send(self.order(now, supi, order, Target::Reachability)).is_ok()
            }
            Command::Locate(supi, wish, reply) => {
                let ue: Option<UeId> = self.active.cta().find(supi);
                if let Some(ue) = ue {
                    let order = whimbrel_control::Command::Locate(wish);
                    self.give(now, Input::Command(ue, order));
                }
                reply.send(ue.is_some()).is_ok()
            }
            Command::Warn(warning, reply) => {
                let of = (warning.message_identifier, warning.serial_number);
                reply.send(self.warn(now, of, Order::Warn(warning))).is_ok()
            }
            Command::CancelWarning(message_identifier, serial_number, reply) => {
                let order = Order::CancelWarning { message_identifier, serial_number };
                reply.send(self.warn(now, (message_identifier, serial_number), order)).is_ok()
            }
            Command::ListWarnings(reply) => reply.send(view::warnings(self.active.cta())).is_ok(),
            Command::Overload(order, reply) => {
                if let Some(order) = order {
                    self.carry_out(now, Order::Overload(order));
                }
                reply.send(view::overload(self.active.cta())).is_ok()
            }
            Command::ResetGnb(gnb, reply) => {
                let is_up = self.carry_out(now, Order::ResetGnb(gnb)) == OrderOutcome::Reset(true);
                let begin = || self.console.operations.begin(now, format!("gnb-{gnb}"), Target::Reset(gnb));
                reply.send(is_up.then(begin)).is_ok()
            }
            Command::Reconfigure(config) => {
                self.reconfigure(now, &config);
                true
            }
            Command::ModifySession(supi, psi, modification, reply) => {
                self.want(now, UeQuery::Subscriber(supi), UeQueryReply::Modified(psi, modification, reply));
                true
            }
        };
    }

    fn keep_house(&mut self, now: Instant) {
        let metrics = &self.console.metrics;
        if let Some(upf) = &self.upf {
            metrics.set(Gauge::Sessions, upf.sessions() as u64);
        }
        metrics.set_samples(self.samples());
        if let Some(pair) = &self.pair {
            let awaited = self.pool.as_ref().and_then(Pool::awaited);
            let (replicated, detail) = pair.condition(awaited);
            let condition = if replicated { Condition::Up } else { Condition::Limited };
            self.console.components(|c| {
                c.set("cta", Condition::Up, "this CTA is the primary");
                c.set("cta_replica", condition, detail);
            });
        }
        self.remember_associations();
        let waited = std::mem::take(&mut self.longest_turn);
        self.give(now, Input::Waited(waited));
        let metrics = &self.console.metrics;
        if now >= self.census {
            let census = view::census(self.active.cta());
            metrics.set(Gauge::Gnbs, census.gnbs);
            metrics.set(Gauge::UesKnown, census.ues);
            metrics.set(Gauge::UesRegistered, census.registered);
            metrics.set(Gauge::UesConnected, census.connected);
            self.census = now + CENSUS_PER_UE * u32::try_from(census.ues).unwrap_or(u32::MAX);
        }
        let asked = self.active.subscribers().refresh();
        if let Ok(changes) = &asked {
            self.observer.subscribers_changed(now, changes);
        }
        if let (Some(carrying), Ok(changes)) = (&mut self.carrying, &asked) {
            carrying.changed(changes);
        }
        match &asked {
            Ok(Changes::Some(supis)) => {
                self.give(now, Input::SubscribersChanged(Some(supis)));
            }
            Ok(Changes::All) => self.give(now, Input::SubscribersChanged(None)),
            Ok(Changes::None) | Err(_) => {}
        }
        self.observer.store(now, asked.map(drop));
        if let Some(Err(sentence)) = self.capture.as_mut().map(Capture::flush) {
            warn!("{sentence}");
            self.capture = None;
            if let Some(upf) = &mut self.upf {
                upf.tap(false);
            }
        }
    }

    /// Keeps the associations that are up for the next start, should this program be killed.
    fn remember_associations(&mut self) {
        let (Some(file), Some(n2)) = (&self.remembered_in, &self.n2) else { return };
        let associations = n2.formers();
        if associations != self.remembered {
            aftermath::remember(file, &associations);
            self.remembered = associations;
        }
    }

    /// What the parts of the core counted.
    fn samples(&self) -> Vec<Sample> {
        let bounds = self.active.cta().bounds().map(|(limit, value)| Sample {
            name: "whimbrel_limit_reached_total",
            help: "Times that a limit was reached: what exceeded it was dropped or refused; in the case of logs it was served but not logged",
            label: Some(("limit", limit.into())),
            value,
        });
        let upf = self.upf.iter().flat_map(LocalUpf::samples);
        let smf_n4 = self.smf_n4.iter().flat_map(SmfN4::samples);
        let answering = self.pair.as_ref().map(PairPrimary::heartbeats_ignored).unwrap_or_default();
        let pool = self
            .pool
            .iter()
            .flat_map(|pool| view::replication(self.active.cta()).into_iter().chain(pool.samples(answering)));
        let pair = self.pair.iter().flat_map(|pair| {
            let one = |name, help, value| Sample { name, help, label: None, value };
            let (records, octets) = pair.sent();
            [
                one("whimbrel_cta_replica_records_total", "Inputs sent to the CTA replica", records),
                one(
                    "whimbrel_cta_replica_bytes_total",
                    "Octets of the inputs sent to the CTA replica",
                    octets,
                ),
                one(
                    "whimbrel_cta_replica_waiting",
                    "Inputs whose outputs wait for the CTA replica",
                    self.active.waiting() as u64,
                ),
                one(
                    "whimbrel_etcd_records_ignored_total",
                    "Invalid records in etcd: the previous value stays in force",
                    pair.ignored() + self.pool.as_ref().map_or(0, Pool::not_taken),
                ),
            ]
        });
        let neighbours = self.neighbours.iter().flat_map(PeerAmfs::samples);
        let brokers = self.brokers.iter().flat_map(Brokers::samples);
        upf.chain(smf_n4).chain(pool).chain(neighbours).chain(brokers).chain(pair).chain(bounds).collect()
    }

    fn captured_ngap(
        &mut self,
        now: Instant,
        name: AssociationId,
        stream: u16,
        octets: &[u8],
        inbound: bool,
    ) {
        let (Some(capture), Some(link)) = (&mut self.capture, self.links.get(name)) else { return };
        let own = self.config.n2.addresses.iter().find(|a| a.is_ipv4() == link.peer.is_ipv4());
        let Some(own) = own.or(self.config.n2.addresses.first()) else { return };
        let own = std::net::SocketAddr::new(*own, self.config.n2.port);
        let (from, to) = if inbound { (link.peer, own) } else { (own, link.peer) };
        // For whoever reads it: no dissector knows fastwire.
        let per = to_per(octets);
        capture.ngap(now, from, to, stream, per.as_deref().unwrap_or(octets));
    }

    fn captured_pfcp(&mut self, now: Instant, octets: &[u8], answer: bool) {
        let (Some(capture), Some(upf)) = (&mut self.capture, &self.upf) else { return };
        let (smf, upf) = upf.ends();
        let (from, to) = if answer { (upf, smf) } else { (smf, upf) };
        capture.udp(now, from, to, octets);
    }

    /// N3, and N4 towards other SMFs.
    fn captured_datagrams(&mut self) {
        let (Some(capture), Some(upf)) = (&mut self.capture, &mut self.upf) else { return };
        for datagram in upf.take_tapped() {
            capture.udp(datagram.at, datagram.from, datagram.to, &datagram.octets);
        }
    }

    /// Waits until something arrives or is due.
    fn block(&self, now: Instant) {
        let deadlines = [
            Some(self.active.next_deadline()),
            self.upf.as_ref().and_then(LocalUpf::next_deadline),
            self.n2.as_ref().and_then(Transport::next_deadline),
            self.pool.as_ref().and_then(Pool::next_deadline),
            self.neighbours.as_ref().and_then(PeerAmfs::next_deadline),
            self.links.next_deadline(),
            self.carrying.as_ref().and_then(SubscriberFeed::due),
            self.pair.as_ref().filter(|_| self.active.waiting() > 0).map(|_| now + PairPrimary::LOOKS_WITHIN),
            Some(self.housekeeping),
        ];
        let until = deadlines.into_iter().flatten().min().unwrap_or(now);
        let wait = until.since(now);
        if wait.is_zero() {
            return;
        }
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let wake = self.console.commands.wake_fd();
        let n2 = self.n2.as_ref().map(Transport::fds).unwrap_or_default();
        let smf_n4 = self.smf_n4.as_ref().map(AsFd::as_fd);
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::from_borrowed_fd(wake, PollFlags::IN)];
        let upf = self.upf.iter().flat_map(LocalUpf::fds);
        fds.extend(upf.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(smf_n4.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let pool = self.pool.iter().flat_map(Pool::fds);
        fds.extend(pool.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let neighbours = self.neighbours.iter().map(PeerAmfs::fd);
        fds.extend(neighbours.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let witness = self.pair.as_ref().map(|pair| pair.witness().as_fd());
        fds.extend(witness.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(n2.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// SMFs elsewhere are asked to lead their UEs to other UPFs, and are waited for (TS 29.244 §6.2.8.3).
    fn leave_smfs(&mut self, stop: &StopRequest) {
        let until = clock::now() + LEAVING;
        let Some(upf) = self.upf.as_mut().filter(|u| u.serves_others()) else { return };
        info!("SMFs are asked to move their sessions to other UPFs");
        upf.retire(clock::now(), LEAVING);
        let serves = |upf: &Option<LocalUpf>| upf.as_ref().is_some_and(LocalUpf::serves_others);
        while clock::now() < until && serves(&self.upf) && !stop.is_at_once() {
            let now = clock::now();
            if let Some(upf) = &mut self.upf {
                upf.turn(now, &mut self.answers);
            }
            self.answers.clear();
            self.housekeeping = now + Duration::from_millis(50);
            self.block(now);
        }
    }

    /// Ends in order: gNBs get AMF STATUS INDICATION and their associations end, then SMFs elsewhere leave this UPF.
    fn close(&mut self, stop: &StopRequest) {
        let now = clock::now();
        // TS 29.244 §6.2.8.2: the sessions of this life end at UPFs elsewhere; the next knows nothing of them.
        let elsewhere: Vec<UpfId> = self.smf_n4.iter().flat_map(SmfN4::outside).collect();
        for upf in elsewhere {
            self.carry_out(now, Order::ReleaseUpf(upf));
        }
        self.out.upfs.clear(); // no condition of a core that stops
        self.carry_out(now, Order::Retire);
        self.settle(now);
        if let Some(n2) = &mut self.n2 {
            n2.hold_acknowledgements(false);
            n2::end_associations(n2, stop);
        }
        self.leave_smfs(stop);
        self.captured_datagrams();
        if let Some(Err(sentence)) = self.capture.as_mut().map(Capture::flush) {
            warn!("{sentence}");
        }
    }
}
