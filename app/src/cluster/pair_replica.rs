//! A CTA of a pair that does not serve: it follows the one that does, and takes its place.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, error, info, warn};
use whimbrel_control::config::Config as ControlConfig;
use whimbrel_ids::Instant;
use whimbrel_link::{Event, Events, LinkId, Links};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::link::{CpfTable, Hello, HelloError, Role, ToCta, ToCtaReplica, ToPrimaryCta};
use whimbrel_resilience::membership::{ClaimError, Home, MemberId};
use whimbrel_resilience::pair::{self, ReplicaAction};

use super::heartbeat::{HeartbeatMonitor, HeartbeatResponder};
use super::pool::{PendingLinks, ResumingCpf};
use super::rejected_peers::RejectedPeers;
use super::witness::{Witness, WitnessEvent};
use super::{PairPrimary, Pool};
use crate::config::{Cluster, PairOf};
use crate::console::{Condition, Console, Counter, Sample};
use crate::entropy::SystemEntropy;
use crate::log_limiter::LogLimiter;

/// Between two looks at who serves.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// One that cannot follow calls the one that serves after so long, twice that the next time, and so on: a copy costs that one time, and what is
/// wrong is mended by somebody. It begins with the shortest when it could follow for as long as the longest.
const AGAIN_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// How long a CPF waits here that has called, while another CTA serves.
const CALLER_MAX: Duration = Duration::from_millis(500);
/// How old what it tells of what it counts may be.
const SAMPLES_EVERY: Duration = Duration::from_secs(1);
/// Octets of records that may come before the snapshot is whole.
const EARLY_OCTETS_MAX: usize = 256 << 20;

/// What it hears of the one that serves.
#[derive(Debug)]
pub(crate) enum ReplicaEvent {
    /// The snapshot to follow from.
    Snapshot(Vec<u8>),
    /// A record.
    Record(Vec<u8>),
    /// What the store of the one that serves holds of some subscribers.
    Subscribers(Vec<u8>),
    /// The one that is followed is lost, and this one does not take its place: what was heard means nothing any more.
    Nothing,
    /// This one serves now, from nothing or from what it heard: see [`PairReplica::succeed`].
    Serve(Home, Option<FormerPrimary>),
}

/// What is known of the one whose place is taken.
#[derive(Debug)]
pub(crate) struct FormerPrimary {
    members: CpfTable,
    endpoints: Vec<IpAddr>,
}

/// How a CTA comes to serve.
pub(crate) struct Promotion {
    home: Home,
    links: Links,
    witness: Witness,
    answering: HeartbeatResponder,
    endpoints: Vec<IpAddr>,
    smf: IpAddr,
    former: Option<FormerPrimary>,
    callers: Vec<ResumingCpf>,
    rejected_peers: PendingLinks,
}

impl Promotion {
    /// The pool of CPFs and the pair of the one that serves now. Errors: one sentence.
    pub(crate) fn enter(
        self,
        now: Instant,
        cluster: &Cluster,
        told: Arc<ControlConfig>,
        entropy: &mut SystemEntropy,
        console: Arc<Console>,
    ) -> Result<(Pool, PairPrimary), String> {
        let mut pool = Pool::over(self.links, cluster, told, entropy, console)?;
        pool.waits_for(self.rejected_peers);
        let (members, gone) = self.former.map(|former| (former.members, former.endpoints)).unzip();
        pool.begins(now, members.map(|members| (members, self.callers)), self.witness.roll());
        let gone = gone.unwrap_or_default();
        Ok((
            pool,
            PairPrimary::new(self.witness, self.answering, self.home, (self.endpoints, self.smf), gone),
        ))
    }
}

/// What is known of the one that serves, beside what is decided.
enum Phase {
    /// Nothing: it is looked for again then.
    Looking(Instant),
    /// It is called there.
    Calling { link: LinkId, number: u16, at: SocketAddr },
    /// It is followed.
    ReplicaCta(Box<PrimaryLink>),
    /// It was, and etcd is asked for its place.
    Promoting(Option<FormerPrimary>),
}

struct PrimaryLink {
    link: LinkId,
    watch: HeartbeatMonitor,
    /// What has come of the snapshot, until it is whole.
    snapshot: Option<(Vec<u8>, u64)>,
    pieces: u64,
    /// Records that came before it was.
    early: Vec<Vec<u8>>,
    early_octets: usize,
    members: Option<CpfTable>,
    /// Where gNBs reach it.
    endpoints: Vec<IpAddr>,
    /// Up to which input it was told that all are held here.
    told: Option<u64>,
}

/// The process while it does not serve. What it decides is [`pair::ReplicaRole`]'s.
pub(crate) struct PairReplica {
    decides: pair::ReplicaRole,
    cluster: Cluster,
    endpoints: Vec<IpAddr>,
    smf: IpAddr,
    console: Arc<Console>,
    witness: Witness,
    answering: HeartbeatResponder,
    links: Links,
    events: Events,
    phase: Phase,
    /// After it could not follow: from when on the one that serves is called, and how long that was put off.
    call_at: Instant,
    put_off: Duration,
    told: LogLimiter<&'static str>,
    /// CPFs that have called and not yet said what for.
    rejected_peers: PendingLinks,
    turned_away: RejectedPeers,
    callers: Vec<(Instant, ResumingCpf)>,
    heard: Vec<ReplicaEvent>,
    frame: Vec<u8>,
    /// When it tells again what it counts.
    samples_at: Instant,
}

impl PairReplica {
    /// Opens where the others come to, and has this CTA listed. `before`: the pair of which it was the one that served.
    /// `endpoints`: where gNBs reach it; `smf`: where its SMF speaks from. Errors: one sentence.
    pub(crate) fn open(
        of: &PairOf,
        cluster: &Cluster,
        (endpoints, smf): (Vec<IpAddr>, IpAddr),
        before: Option<PairPrimary>,
        console: Arc<Console>,
    ) -> Result<Self, String> {
        let links = super::open_links(cluster)?.ok_or("cluster.etcd: a pair needs `cluster.listen`")?;
        let at = links.local_addr().ok_or("cluster.listen: the system does not say where it listens")?;
        let (witness, answering) = match before {
            Some(pair) => pair.into_parts(),
            None => {
                let answering = HeartbeatResponder::start(at)
                    .map_err(|e| format!("cluster.listen: heartbeats cannot be taken at {at}: {e}"))?;
                (Witness::start(of, cluster, at)?, answering)
            }
        };
        let standby = Self {
            decides: pair::ReplicaRole::default(),
            cluster: cluster.clone(),
            endpoints,
            smf,
            console,
            witness,
            answering,
            links,
            events: Events::default(),
            phase: Phase::Looking(Instant::ZERO),
            call_at: Instant::ZERO,
            put_off: Duration::ZERO,
            told: LogLimiter::new("what this CTA follows"),
            rejected_peers: PendingLinks::new(),
            turned_away: RejectedPeers::default(),
            callers: Vec::new(),
            heard: Vec::new(),
            frame: Vec::new(),
            samples_at: Instant::ZERO,
        };
        standby.show_condition("looks for the primary");
        Ok(standby)
    }

    /// Where the others come to.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.links.local_addr()
    }

    /// Whether somebody has called and not yet said what for.
    #[cfg(test)]
    pub(super) fn has_callers(&self) -> bool {
        !self.rejected_peers.is_empty()
    }

    fn show_condition(&self, what: &str) {
        let detail = format!("this CTA is not the primary: it {what}");
        self.console.components(|c| c.set("cta", Condition::Limited, detail));
    }

    /// Takes what arrived, and does what is due.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<ReplicaEvent> {
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            match event {
                Event::Up { link, peer, hello, .. } => self.up(now, link, peer, hello),
                Event::Frame { link, octets } => self.frame(now, link, octets),
                Event::Down { link, reason } => {
                    self.rejected_peers.remove(&link);
                    self.callers.retain(|(_, c)| c.link != link);
                    match &self.phase {
                        Phase::Calling { link: called, .. } if *called == link => {
                            debug!(%reason, "the primary CTA cannot be reached");
                            self.lost(now);
                        }
                        Phase::ReplicaCta(followed) if followed.link == link => {
                            warn!(%reason, "the link to the primary CTA was lost");
                            self.lost(now);
                        }
                        _ => {}
                    }
                }
                Event::TurnedAway { peer, reason } => {
                    if self.turned_away.allows(now, peer, reason.label()) {
                        warn!(%peer, %reason, "an incoming link was rejected; further ones from this address are not logged");
                    }
                }
            }
        }
        self.events = events;
        if let Phase::ReplicaCta(followed) = &mut self.phase
            && !followed.watch.turn(now).is_empty()
        {
            warn!("the primary CTA does not answer heartbeats");
            self.lost(now);
        }
        let late = |(at, _): &(Instant, ResumingCpf)| now >= *at + CALLER_MAX;
        if !self.decides.is_promoting() {
            for (_, caller) in self.callers.extract_if(.., |c| late(c)) {
                self.links.close(caller.link);
            }
        }
        for news in self.witness.turn() {
            self.news(now, news);
        }
        self.look(now);
        if now >= self.samples_at {
            self.samples_at = now + SAMPLES_EVERY;
            self.console.metrics.set_samples(self.samples());
        }
        std::mem::take(&mut self.heard)
    }

    /// What it counts while it does not serve.
    fn samples(&self) -> Vec<Sample> {
        let one = |name, help, value| Sample { name, help, label: None, value };
        let mut samples = vec![
            one(
                "whimbrel_link_rejected_total",
                "Incoming links that were rejected",
                self.turned_away.total(),
            ),
            one(
                "whimbrel_etcd_records_ignored_total",
                "Invalid records in etcd: the previous value stays in force",
                self.witness.ignored(),
            ),
        ];
        samples.extend(self.answering.ignored().samples());
        samples
    }

    fn up(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &[u8]) {
        let hello = Hello::from_octets(hello);
        match (&self.phase, hello) {
            (Phase::Calling { link: called, number, .. }, Ok(Hello { role: Role::Cta, code }))
                if *called == link =>
            {
                if code != CodeVersion::own() {
                    info!(cta = number, %code, own = %CodeVersion::own(), "the primary CTA runs other code: this CTA takes over when that one is stopped (SIGTERM)");
                    self.show_condition(&format!(
                        "waits until CTA {number}, which runs other code, is stopped"
                    ));
                }
                let Some(place) = self.witness.me() else { return };
                let address = self.links.local_addr().unwrap_or(([0, 0, 0, 0], 0).into());
                let endpoints = self.endpoints.clone();
                self.tell(link, &ToPrimaryCta::Follow { place, address, endpoints, smf: self.smf });
            }
            (Phase::Calling { link: called, .. }, hello) if *called == link => {
                let label = hello.as_ref().err().map_or("role", HelloError::label);
                let why = hello.err().map_or_else(|| "it is not a CTA".into(), |e| e.to_string());
                self.give_up(now, label, format!("the process at {peer}, which etcd lists as the primary CTA, cannot be replicated: {why}"));
            }
            (_, Ok(hello @ Hello { role: Role::Cpf, .. })) => {
                self.rejected_peers.insert(link, (peer, hello));
            }
            _ => self.links.close(link),
        }
    }

    fn frame(&mut self, now: Instant, link: LinkId, octets: &[u8]) {
        if self.rejected_peers.remove(&link).is_some() {
            return match ToCta::read(octets) {
                Ok(ToCta::Resume { life, id, has }) => {
                    self.callers.push((now, ResumingCpf { link, life, id, has }));
                }
                _ => self.links.close(link), // it finds the one that serves
            };
        }
        let ours = match &self.phase {
            Phase::Calling { link: called, .. } => *called == link,
            Phase::ReplicaCta(followed) => followed.link == link,
            _ => false,
        };
        if !ours {
            return;
        }
        match ToCtaReplica::read(octets) {
            Ok(message) => self.told(now, link, message),
            Err(e) => self.give_up(now, "message", format!("a message of the primary cannot be read: {e}")),
        }
    }

    fn told(&mut self, now: Instant, link: LinkId, message: ToCtaReplica<'_>) {
        match (message, &mut self.phase) {
            (ToCtaReplica::Begin { octets, heartbeats, endpoints }, Phase::Calling { number, at, .. }) => {
                let (number, at) = (*number, *at);
                let ip = self.links.local_addr().map_or(IpAddr::from([127, 0, 0, 1]), |at| at.ip());
                let timing = self.witness.heartbeat(self.cluster.heartbeat);
                let watch = HeartbeatMonitor::open(SocketAddr::new(ip, 0), &heartbeats.0, timing);
                let (Ok(mut watch), Some(me)) = (watch, self.witness.me()) else {
                    return self.give_up(
                        now,
                        "heartbeats",
                        "heartbeats cannot be sent, or etcd does not list this CTA",
                    );
                };
                self.answering.be(Some((MemberId::Cta(me.cta), &heartbeats.0)));
                // Where it was called: etcd may list it no more, and there it is all the same.
                watch.begin(now, MemberId::Cta(number), at);
                info!(cta = number, octets, "this CTA replicates the primary");
                self.show_condition(&format!("replicates CTA {number}"));
                self.decides.begun();
                let snapshot = Some((Vec::new(), octets));
                self.phase = Phase::ReplicaCta(Box::new(PrimaryLink {
                    link,
                    watch,
                    snapshot,
                    pieces: 0,
                    early: Vec::new(),
                    early_octets: 0,
                    members: None,
                    endpoints,
                    told: None,
                }));
            }
            (ToCtaReplica::Piece(octets), Phase::ReplicaCta(followed)) => {
                let Some((snapshot, all)) = &mut followed.snapshot else { return };
                snapshot.extend_from_slice(octets);
                let whole = snapshot.len() as u64 >= *all;
                followed.pieces += 1;
                let pieces = followed.pieces;
                if whole && let Some((snapshot, _)) = followed.snapshot.take() {
                    self.decides.whole();
                    self.heard.push(ReplicaEvent::Snapshot(snapshot));
                    self.heard.extend(followed.early.drain(..).map(ReplicaEvent::Record));
                } else {
                    self.tell(link, &ToPrimaryCta::Pieces(pieces));
                }
            }
            (ToCtaReplica::Record(octets), Phase::ReplicaCta(followed)) => {
                if followed.snapshot.is_none() {
                    self.heard.push(ReplicaEvent::Record(octets.to_vec()));
                } else if followed.early_octets + octets.len() > EARLY_OCTETS_MAX {
                    self.give_up(
                        now,
                        "early",
                        "more records came than fit while the snapshot was transferred",
                    );
                } else {
                    followed.early_octets += octets.len();
                    followed.early.push(octets.to_vec());
                }
            }
            (ToCtaReplica::Cpfs(members), Phase::ReplicaCta(followed)) => followed.members = Some(members),
            (ToCtaReplica::Subscribers(octets), Phase::ReplicaCta(_) | Phase::Calling { .. }) => {
                self.heard.push(ReplicaEvent::Subscribers(octets.to_vec()));
            }
            _ => self.give_up(now, "order", "it sent an unexpected message"),
        }
    }

    /// The inputs up to this one are held here: the one that serves is told once.
    pub(crate) fn held(&mut self, number: u64) {
        if let Phase::ReplicaCta(followed) = &mut self.phase
            && followed.told.replace(number) != Some(number)
        {
            let link = followed.link;
            self.tell(link, &ToPrimaryCta::Held(number));
        }
    }

    fn tell(&mut self, link: LinkId, message: &ToPrimaryCta) {
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(link, &self.frame);
    }

    /// What was heard is of no use: it is begun again, after a while. Logged once an hour for each kind, and counted.
    pub(crate) fn give_up(&mut self, now: Instant, kind: &'static str, why: impl Display) {
        self.console.metrics.add(Counter::CtaReplicaRestarts, 1);
        if self.told.allows(now, kind) {
            error!(
                "this CTA cannot replicate the primary and starts again: {why}; further times are only counted (whimbrel_cta_replica_restarts_total)"
            );
        }
        let (shortest, longest) = AGAIN_AFTER;
        let lately = now < self.call_at + longest;
        self.put_off = if lately { (self.put_off * 2).clamp(shortest, longest) } else { shortest };
        self.call_at = now + self.put_off;
        let step = self.decides.give_up();
        self.step(now, step);
    }

    /// How long it does not call, since it could not follow.
    #[cfg(test)]
    pub(super) fn put_off(&self) -> Duration {
        self.put_off
    }

    /// The one that serves is lost, or seems so.
    fn lost(&mut self, now: Instant) {
        let step = self.decides.lost();
        self.step(now, step);
    }

    fn news(&mut self, now: Instant, news: WitnessEvent) {
        match news {
            WitnessEvent::Changed => {
                if let Phase::Looking(at) = &mut self.phase {
                    *at = now;
                }
            }
            WitnessEvent::Claimed(claim, outcome) => {
                match &outcome {
                    Err(why) if !self.decides.is_promoting() => debug!("etcd refused a claim: {why}"),
                    Err(ClaimError::NoAnswer) => {
                        warn!(
                            "the primary CTA is lost and etcd does not answer, so no CTA can take over: the claim is repeated"
                        )
                    }
                    Err(why) => warn!("this CTA does not take over: {why}"),
                    Ok(_) => {}
                }
                let step = self.decides.claimed(claim, outcome);
                self.step(now, step);
            }
        }
    }

    fn step(&mut self, now: Instant, step: Option<ReplicaAction>) {
        let Some(step) = step else { return };
        match step {
            ReplicaAction::Connect(serves) => match self.witness.address(serves.cta) {
                Some(at) => {
                    let link = self.links.connect(now, at);
                    self.phase = Phase::Calling { link, number: serves.cta, at };
                }
                None => self.lost(now),
            },
            ReplicaAction::Claim(claim) => {
                if self.decides.is_promoting() {
                    self.await_its_place();
                }
                self.witness.claim(claim);
            }
            ReplicaAction::Rejoin => {
                warn!(
                    "etcd names this CTA as the replica, but it holds no state: it registers in etcd again"
                );
                self.witness.rejoin();
            }
            ReplicaAction::Discard => {
                match &self.phase {
                    Phase::Calling { link, .. } => self.links.close(*link),
                    Phase::ReplicaCta(followed) => self.links.close(followed.link),
                    Phase::Looking(_) | Phase::Promoting(_) => {}
                }
                self.answering.be(None);
                self.heard.push(ReplicaEvent::Nothing);
                self.phase = Phase::Looking(now + LOOK_AGAIN);
                self.show_condition("looks for the primary");
            }
            ReplicaAction::Serve(home) => {
                let before = std::mem::replace(&mut self.phase, Phase::Looking(Instant::FAR_FUTURE));
                let promoted = matches!(before, Phase::Promoting(_));
                let former = if let Phase::Promoting(former) = before { former } else { None };
                match promoted {
                    true => info!(term = home.term, "this CTA is the primary after a takeover"),
                    false => info!(term = home.term, "this CTA is the primary"),
                }
                self.heard.push(ReplicaEvent::Serve(home, former));
            }
        }
    }

    /// The link is of no use any more; what it told of the one that served still is.
    fn await_its_place(&mut self) {
        if let Phase::ReplicaCta(followed) = &mut self.phase {
            self.links.close(followed.link);
            let endpoints = std::mem::take(&mut followed.endpoints);
            let former = followed.members.take().map(|members| FormerPrimary { members, endpoints });
            self.phase = Phase::Promoting(former);
        }
    }

    /// What it serves with.
    pub(crate) fn succeed(self, home: Home, former: Option<FormerPrimary>) -> Promotion {
        let Self { links, witness, answering, callers, rejected_peers, endpoints, smf, .. } = self;
        answering.be(None);
        let callers = callers.into_iter().map(|(_, caller)| caller).collect();
        Promotion { home, links, witness, answering, endpoints, smf, former, callers, rejected_peers }
    }

    /// The process ends in order.
    pub(crate) fn leave(self) {
        self.witness.leave();
    }

    /// Looks who serves, when that is due.
    fn look(&mut self, now: Instant) {
        let Phase::Looking(at) = self.phase else { return };
        let Some(me) = self.witness.me().filter(|_| now >= at) else { return };
        self.phase = Phase::Looking(now + LOOK_AGAIN);
        let home = self.witness.home();
        // Its place is taken all the same, if it is free, and what etcd says of this one put right.
        let calls = |home: &Home| home.cta_replica != Some(me) && home.primary.cta != me.cta;
        if now < self.call_at && home.as_ref().is_some_and(calls) {
            return;
        }
        let step = self.decides.look(me, home.as_ref());
        self.step(now, step);
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) {
        self.links.flush();
    }

    /// What to wait on.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let watch = match &self.phase {
            Phase::ReplicaCta(followed) => Some(followed.watch.as_fd()),
            _ => None,
        };
        [self.links.fd(), self.witness.as_fd()].into_iter().chain(watch)
    }

    /// When [`Self::turn`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Looking(at) => Some(*at),
            Phase::ReplicaCta(followed) => followed.watch.next_deadline(),
            _ => None,
        };
        let callers = self.callers.iter().map(|(at, _)| *at + CALLER_MAX).min();
        [self.links.next_deadline(), phase, callers].into_iter().flatten().min()
    }
}
