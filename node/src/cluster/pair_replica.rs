//! The CTA of a pair that is not the primary: it replicates the primary, and takes over when that one is lost.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, error, info, warn};
use whimbrel_control::config::Config as ControlConfig;
use whimbrel_ids::Instant;
use whimbrel_link::{Event, LinkEvents, LinkId, Links};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::link::{CpfTable, Hello, HelloError, LinkRole, ToCta, ToCtaReplica, ToPrimaryCta};
use whimbrel_resilience::membership::{ClaimError, CtaHome, MemberId};
use whimbrel_resilience::pair::{self, ReplicaAction};

use super::heartbeat::{HeartbeatMonitor, HeartbeatResponder};
use super::pool::{PendingLinks, ResumingCpf};
use super::rejected_peers::RejectedPeers;
use super::witness::{Witness, WitnessEvent};
use super::{CpfPool, PairPrimary};
use crate::config::{Cluster, PairOf};
use crate::entropy::SystemEntropy;
use crate::log_limiter::LogLimiter;
use crate::observation::{Condition, Console, Metric, MetricSample};
use crate::sbfd::SbfdFigures;

/// How often etcd's record of the primary is checked.
const CHECK_AGAIN: Duration = Duration::from_millis(200);
/// A CTA that cannot replicate the primary connects to it again after the shorter time, then after twice as long, up to the longer time: each
/// attempt costs the primary a snapshot, and an operator has to mend the fault. It begins with the shorter time again once it could
/// replicate for as long as the longer one.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// How long a CPF that resumes waits here while another CTA is the primary.
const RESUMING_MAX: Duration = Duration::from_millis(500);
/// How often its metrics are set.
const SAMPLES_EVERY: Duration = Duration::from_secs(1);
/// Octets of records that may come before the snapshot is whole.
const EARLY_OCTETS_MAX: usize = 256 << 20;

/// What comes from the primary, or of its loss.
#[derive(Debug)]
pub enum ReplicaEvent {
    /// The snapshot from which replication begins.
    Snapshot(Vec<u8>),
    /// A record of the primary.
    Record(Vec<u8>),
    /// An excerpt of the primary's subscriber store.
    Subscribers(Vec<u8>),
    /// The primary is lost and this CTA does not take over: what was replicated is void.
    Reset,
    /// This CTA is the primary now, from an empty state or from what it replicated: see [`PairReplica::promote`].
    Promoted(CtaHome, Option<FormerPrimary>),
}

/// What is known of the primary that this CTA replaces.
#[derive(Debug)]
pub struct FormerPrimary {
    members: CpfTable,
    endpoints: Vec<IpAddr>,
}

/// What a CTA has when it becomes the primary.
pub struct Promotion {
    home: CtaHome,
    links: Links,
    witness: Witness,
    responder: HeartbeatResponder,
    endpoints: Vec<IpAddr>,
    smf: IpAddr,
    former: Option<FormerPrimary>,
    resuming: Vec<ResumingCpf>,
    pending: PendingLinks,
}

impl Promotion {
    /// The primary's pool of CPFs, and its side of the pair. Errors: one sentence.
    pub fn enter(
        self,
        now: Instant,
        cluster: &Cluster,
        config: Arc<ControlConfig>,
        entropy: &mut SystemEntropy,
        console: Arc<Console>,
    ) -> Result<(CpfPool, PairPrimary), String> {
        let mut pool = CpfPool::over(self.links, cluster, config, entropy, console)?;
        pool.set_pending(self.pending);
        let (members, former) = self.former.map(|former| (former.members, former.endpoints)).unzip();
        pool.begin(now, members.map(|members| (members, self.resuming)), self.witness.roll());
        let (own, former) = ((self.endpoints, self.smf), former.unwrap_or_default());
        Ok((pool, PairPrimary::new(self.witness, self.responder, self.home, own, former)))
    }
}

/// How far this CTA is with the primary.
enum Phase {
    /// No primary is known: etcd is checked again then.
    Looking(Instant),
    /// The link to the primary is being set up.
    Connecting { link: LinkId, number: u16, at: SocketAddr },
    /// The primary is replicated.
    Replicating(Box<PrimaryLink>),
    /// The primary is lost, and this CTA claims its role at etcd.
    Promoting(Option<FormerPrimary>),
}

/// The link to the primary.
struct PrimaryLink {
    link: LinkId,
    heartbeats: HeartbeatMonitor,
    /// The snapshot and its full size, until it is complete.
    snapshot: Option<(Vec<u8>, u64)>,
    pieces: u64,
    /// Records that came before the snapshot was complete.
    early: Vec<Vec<u8>>,
    early_octets: usize,
    members: Option<CpfTable>,
    /// Where gNBs reach the primary.
    endpoints: Vec<IpAddr>,
    /// The last input that was confirmed to it.
    confirmed: Option<u64>,
}

/// When a CTA that could not replicate the primary connects to it again.
struct Retry {
    at: Instant,
    /// The pause before that.
    pause: Duration,
    log: LogLimiter<&'static str>,
}

/// Links that CPFs have set up here.
#[derive(Default)]
struct IncomingCpfLinks {
    pending: PendingLinks,
    rejected: RejectedPeers,
    /// CPFs that resume, and since when they wait.
    resuming: Vec<(Instant, ResumingCpf)>,
}

/// A CTA of a pair while it is not the primary. [`pair::ReplicaRole`] makes its decisions.
pub struct PairReplica {
    decisions: pair::ReplicaRole,
    cluster: Cluster,
    /// Where gNBs reach it, and the address of its SMF.
    endpoints: Vec<IpAddr>,
    smf: IpAddr,
    console: Arc<Console>,
    witness: Witness,
    responder: HeartbeatResponder,
    links: Links,
    events: LinkEvents,
    frame: Vec<u8>,
    phase: Phase,
    retry: Retry,
    incoming: IncomingCpfLinks,
    replica_events: Vec<ReplicaEvent>,
    /// When the metrics are set again.
    samples_at: Instant,
}

impl PairReplica {
    /// Opens the address to which CPFs and the other CTA connect, and registers this CTA in etcd. `before`: what it was as the primary.
    /// `endpoints`: where gNBs reach it; `smf`: the address of its SMF. Errors: one sentence.
    pub fn open(
        of: &PairOf,
        cluster: &Cluster,
        (endpoints, smf): (Vec<IpAddr>, IpAddr),
        before: Option<PairPrimary>,
        console: Arc<Console>,
    ) -> Result<Self, String> {
        let links = super::open_links(cluster)?.ok_or("cluster.etcd: a pair needs `cluster.listen`")?;
        let at = links.local_addr().ok_or("cluster.listen: the system does not say where it listens")?;
        let (witness, responder) = match before {
            Some(primary) => primary.into_parts(),
            None => {
                let responder = HeartbeatResponder::start(at)
                    .map_err(|e| format!("cluster.listen: heartbeats cannot be received at {at}: {e}"))?;
                (Witness::start(of, cluster, at)?, responder)
            }
        };
        let log = LogLimiter::new("the replication of the primary CTA");
        let replica = Self {
            decisions: pair::ReplicaRole::default(),
            cluster: cluster.clone(),
            endpoints,
            smf,
            console,
            witness,
            responder,
            links,
            events: LinkEvents::default(),
            frame: Vec::new(),
            phase: Phase::Looking(Instant::ZERO),
            retry: Retry { at: Instant::ZERO, pause: Duration::ZERO, log },
            incoming: IncomingCpfLinks::default(),
            replica_events: Vec::new(),
            samples_at: Instant::ZERO,
        };
        replica.show_condition("looks for the primary");
        Ok(replica)
    }

    /// Where CPFs and the other CTA connect to.
    pub fn address(&self) -> Option<SocketAddr> {
        self.links.local_addr()
    }

    /// Whether there is a link whose first message has not come.
    #[cfg(test)]
    pub(super) fn has_pending_links(&self) -> bool {
        !self.incoming.pending.is_empty()
    }

    fn show_condition(&self, what: &str) {
        let detail = format!("this CTA is not the primary: it {what}");
        self.console.components(|c| c.set("cta", Condition::Limited, detail));
    }

    /// Takes what arrived, and does what is due.
    pub fn turn(&mut self, now: Instant) -> Vec<ReplicaEvent> {
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            self.link_event(now, event);
        }
        self.events = events;
        if let Phase::Replicating(primary) = &mut self.phase
            && let Some((member, unanswered)) = primary.heartbeats.turn(now).pop()
        {
            warn!(%member, "{unanswered}: the primary CTA is lost");
            self.lost(now);
        }
        if !self.decisions.is_promoting() {
            let late = |(since, _): &mut (Instant, ResumingCpf)| now >= *since + RESUMING_MAX;
            for (_, cpf) in self.incoming.resuming.extract_if(.., late) {
                self.links.close(cpf.link);
            }
        }
        for event in self.witness.turn() {
            self.witness_event(now, event);
        }
        self.check_etcd(now);
        if now >= self.samples_at {
            self.samples_at = now + SAMPLES_EVERY;
            if let Phase::Replicating(primary) = &mut self.phase {
                primary.heartbeats.log_drops(now);
            }
            self.console.metrics.set_samples(self.samples());
        }
        std::mem::take(&mut self.replica_events)
    }

    fn link_event(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Up { link, peer, hello, .. } => self.link_up(now, link, peer, hello),
            Event::Frame { link, octets } => self.frame(now, link, octets),
            Event::Down { link, reason } => {
                self.incoming.pending.remove(&link);
                self.incoming.resuming.retain(|(_, cpf)| cpf.link != link);
                match &self.phase {
                    Phase::Connecting { link: to_primary, .. } if *to_primary == link => {
                        debug!(%reason, "the primary CTA cannot be reached");
                        self.lost(now);
                    }
                    Phase::Replicating(primary) if primary.link == link => {
                        warn!(%reason, "the link to the primary CTA was lost");
                        self.lost(now);
                    }
                    _ => {}
                }
            }
            Event::Rejected { peer, reason } => {
                if self.incoming.rejected.allows(now, peer, reason.label()) {
                    warn!(%peer, %reason, "an incoming link was rejected; further ones from this address are only counted");
                }
            }
        }
    }

    /// What it counts while it is not the primary.
    fn samples(&self) -> Vec<MetricSample> {
        let one = |metric, value| MetricSample { metric, label: None, value };
        let mut samples = vec![
            one(Metric::LinkRejected, self.incoming.rejected.total()),
            one(Metric::EtcdRecordsIgnored, self.witness.ignored()),
        ];
        samples.extend(self.responder.ignored().samples());
        let probing = match &self.phase {
            Phase::Replicating(primary) => primary.heartbeats.sbfd_figures(),
            _ => SbfdFigures::default(),
        };
        samples.extend((probing + self.responder.sbfd_figures()).samples());
        samples
    }

    fn link_up(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &[u8]) {
        let hello = Hello::from_octets(hello);
        match (&self.phase, hello) {
            (Phase::Connecting { link: to_primary, number, .. }, Ok(Hello { role: LinkRole::Cta, code }))
                if *to_primary == link =>
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
                self.send(link, &ToPrimaryCta::Follow { place, address, endpoints, smf: self.smf });
            }
            (Phase::Connecting { link: to_primary, .. }, hello) if *to_primary == link => {
                let label = hello.as_ref().err().map_or("role", HelloError::label);
                let why = hello.err().map_or_else(|| "it is not a CTA".into(), |e| e.to_string());
                let sentence = format!(
                    "the process at {peer}, which etcd lists as the primary CTA, cannot be replicated: {why}"
                );
                self.give_up(now, label, sentence);
            }
            (_, Ok(hello @ Hello { role: LinkRole::Cpf, .. })) => {
                self.incoming.pending.insert(link, (peer, hello));
            }
            _ => self.links.close(link),
        }
    }

    fn frame(&mut self, now: Instant, link: LinkId, octets: &[u8]) {
        if self.incoming.pending.remove(&link).is_some() {
            return match ToCta::read(octets) {
                Ok(ToCta::Resume { life, id, has }) => {
                    self.incoming.resuming.push((now, ResumingCpf { link, life, id, has }));
                }
                _ => self.links.close(link), // the CPF connects to the primary
            };
        }
        let is_primary = match &self.phase {
            Phase::Connecting { link: to_primary, .. } => *to_primary == link,
            Phase::Replicating(primary) => primary.link == link,
            _ => false,
        };
        if !is_primary {
            return;
        }
        match ToCtaReplica::read(octets) {
            Ok(message) => self.primary_message(now, link, message),
            Err(e) => self.give_up(now, "message", format!("a message of the primary cannot be read: {e}")),
        }
    }

    fn primary_message(&mut self, now: Instant, link: LinkId, message: ToCtaReplica<'_>) {
        match (message, &mut self.phase) {
            (ToCtaReplica::Begin { octets, heartbeats, endpoints }, Phase::Connecting { number, at, .. }) => {
                let (number, at) = (*number, *at);
                let ip = self.links.local_addr().map_or(IpAddr::from([127, 0, 0, 1]), |at| at.ip());
                let timing = self.witness.heartbeat(self.cluster.heartbeat);
                let monitor = HeartbeatMonitor::open(SocketAddr::new(ip, 0), &heartbeats.0, timing);
                let monitor = monitor.ok().and_then(|monitor| monitor.probing(self.cluster.sbfd).ok());
                let (Some(mut monitor), Some(me)) = (monitor, self.witness.me()) else {
                    let why = "heartbeats cannot be sent, or etcd does not list this CTA";
                    return self.give_up(now, "heartbeats", why);
                };
                self.responder.set_identity(Some((MemberId::Cta(me.cta), &heartbeats.0)));
                // The address of the link: etcd may no longer list the primary.
                monitor.begin(now, MemberId::Cta(number), at);
                info!(cta = number, octets, "this CTA replicates the primary");
                self.show_condition(&format!("replicates CTA {number}"));
                self.decisions.begun();
                self.phase = Phase::Replicating(Box::new(PrimaryLink {
                    link,
                    heartbeats: monitor,
                    snapshot: Some((Vec::new(), octets)),
                    pieces: 0,
                    early: Vec::new(),
                    early_octets: 0,
                    members: None,
                    endpoints,
                    confirmed: None,
                }));
            }
            (ToCtaReplica::Piece(octets), Phase::Replicating(primary)) => {
                let Some((snapshot, size)) = &mut primary.snapshot else { return };
                snapshot.extend_from_slice(octets);
                let complete = snapshot.len() as u64 >= *size;
                primary.pieces += 1;
                let pieces = primary.pieces;
                if complete && let Some((snapshot, _)) = primary.snapshot.take() {
                    self.decisions.whole();
                    self.replica_events.push(ReplicaEvent::Snapshot(snapshot));
                    self.replica_events.extend(primary.early.drain(..).map(ReplicaEvent::Record));
                } else {
                    self.send(link, &ToPrimaryCta::Pieces(pieces));
                }
            }
            (ToCtaReplica::Record(octets), Phase::Replicating(primary)) => {
                if primary.snapshot.is_none() {
                    self.replica_events.push(ReplicaEvent::Record(octets.to_vec()));
                } else if primary.early_octets + octets.len() > EARLY_OCTETS_MAX {
                    self.give_up(
                        now,
                        "early",
                        "more records came than fit while the snapshot was transferred",
                    );
                } else {
                    primary.early_octets += octets.len();
                    primary.early.push(octets.to_vec());
                }
            }
            (ToCtaReplica::Cpfs(members), Phase::Replicating(primary)) => primary.members = Some(members),
            (ToCtaReplica::Subscribers(octets), Phase::Replicating(_) | Phase::Connecting { .. }) => {
                self.replica_events.push(ReplicaEvent::Subscribers(octets.to_vec()));
            }
            _ => self.give_up(now, "order", "it sent an unexpected message"),
        }
    }

    /// Confirms to the primary that the inputs up to this one are here; once for each number.
    pub fn confirm(&mut self, number: u64) {
        if let Phase::Replicating(primary) = &mut self.phase
            && primary.confirmed.replace(number) != Some(number)
        {
            let link = primary.link;
            self.send(link, &ToPrimaryCta::Held(number));
        }
    }

    fn send(&mut self, link: LinkId, message: &ToPrimaryCta) {
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(link, &self.frame);
    }

    /// What was replicated is unusable: this CTA starts again after a while. Logged once an hour for each kind, and counted.
    pub fn give_up(&mut self, now: Instant, kind: &'static str, why: impl Display) {
        self.console.metrics.add(Metric::CtaReplicaRestarts, 1);
        if self.retry.log.allows(now, kind) {
            error!(
                "this CTA cannot replicate the primary and starts again: {why}; further times are only counted ({})",
                Metric::CtaReplicaRestarts.name()
            );
        }
        let (shortest, longest) = RETRY_AFTER;
        let recent = now < self.retry.at + longest;
        let pause = if recent { (self.retry.pause * 2).clamp(shortest, longest) } else { shortest };
        (self.retry.pause, self.retry.at) = (pause, now + pause);
        let step = self.decisions.give_up();
        self.step(now, step);
    }

    /// The pause before it connects to the primary again.
    #[cfg(test)]
    pub(super) fn retry_pause(&self) -> Duration {
        self.retry.pause
    }

    /// The primary is lost, or seems so.
    fn lost(&mut self, now: Instant) {
        let step = self.decisions.lost();
        self.step(now, step);
    }

    fn witness_event(&mut self, now: Instant, event: WitnessEvent) {
        match event {
            WitnessEvent::Changed => {
                if let Phase::Looking(at) = &mut self.phase {
                    *at = now;
                }
            }
            WitnessEvent::Claimed(claim, outcome) => {
                match &outcome {
                    Err(why) if !self.decisions.is_promoting() => debug!("etcd refused a claim: {why}"),
                    Err(ClaimError::NoAnswer) => {
                        warn!(
                            "the primary CTA is lost and etcd does not answer, so no CTA can take over: the claim is repeated"
                        )
                    }
                    Err(why) => warn!("this CTA does not take over: {why}"),
                    Ok(_) => {}
                }
                let step = self.decisions.claimed(claim, outcome);
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
                    self.phase = Phase::Connecting { link, number: serves.cta, at };
                }
                None => self.lost(now),
            },
            ReplicaAction::Claim(claim) => {
                if self.decisions.is_promoting() {
                    self.keep_former_primary();
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
                    Phase::Connecting { link, .. } => self.links.close(*link),
                    Phase::Replicating(primary) => self.links.close(primary.link),
                    Phase::Looking(_) | Phase::Promoting(_) => {}
                }
                self.responder.set_identity(None);
                self.replica_events.push(ReplicaEvent::Reset);
                self.phase = Phase::Looking(now + CHECK_AGAIN);
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
                self.replica_events.push(ReplicaEvent::Promoted(home, former));
            }
        }
    }

    /// Closes the link to the lost primary, and keeps what is known of it.
    fn keep_former_primary(&mut self) {
        if let Phase::Replicating(primary) = &mut self.phase {
            self.links.close(primary.link);
            let endpoints = std::mem::take(&mut primary.endpoints);
            let former = primary.members.take().map(|members| FormerPrimary { members, endpoints });
            self.phase = Phase::Promoting(former);
        }
    }

    /// What this CTA has as the primary.
    pub fn promote(self, home: CtaHome, former: Option<FormerPrimary>) -> Promotion {
        let Self { links, witness, responder, incoming, endpoints, smf, .. } = self;
        responder.set_identity(None);
        let resuming = incoming.resuming.into_iter().map(|(_, cpf)| cpf).collect();
        let pending = incoming.pending;
        Promotion { home, links, witness, responder, endpoints, smf, former, resuming, pending }
    }

    /// The process ends in order.
    pub fn leave(self) {
        self.witness.leave();
    }

    /// Checks etcd for the primary, when that is due.
    fn check_etcd(&mut self, now: Instant) {
        let Phase::Looking(at) = self.phase else { return };
        let Some(me) = self.witness.me().filter(|_| now >= at) else { return };
        self.phase = Phase::Looking(now + CHECK_AGAIN);
        let home = self.witness.home();
        // A pause holds back connections only: a vacant role is claimed, and etcd's record of this CTA corrected, all the same.
        let connects = |home: &CtaHome| home.cta_replica != Some(me) && home.primary.cta != me.cta;
        if now < self.retry.at && home.as_ref().is_some_and(connects) {
            return;
        }
        let step = self.decisions.look(me, home.as_ref());
        self.step(now, step);
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        self.links.flush();
    }

    /// What to wait on.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let heartbeats = match &self.phase {
            Phase::Replicating(primary) => Some(primary.heartbeats.fds()),
            _ => None,
        };
        [self.links.fd(), self.witness.as_fd()].into_iter().chain(heartbeats.into_iter().flatten())
    }

    /// When [`Self::turn`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Looking(at) => Some(*at),
            Phase::Replicating(primary) => primary.heartbeats.next_deadline(),
            _ => None,
        };
        let resuming = self.incoming.resuming.iter().map(|(since, _)| *since + RESUMING_MAX).min();
        [self.links.next_deadline(), phase, resuming].into_iter().flatten().min()
    }
}
