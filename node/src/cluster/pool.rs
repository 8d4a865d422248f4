//! The CTA's side of its cluster: the CPFs that have joined it, their links and their heartbeats. The other CTA is in [`replica_link`].

mod condition;
mod function_links;
mod joining;
mod membership;
mod n4_link;
mod replica_link;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_control::UeSummary;
use whimbrel_control::config::Config as ControlConfig;
use whimbrel_ids::{Instant, SNssai};
use whimbrel_link::{Event, LinkEvents, LinkId, Links};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::link::{
    CpfCommand, CpfReport, FunctionAnswer, FunctionOrder, HeartbeatKey, Hello, ToCpf, ToCta, ToPrimaryCta,
    UeQuery,
};
use whimbrel_resilience::membership::{CpfRoster, CtaInstance, MemberId};
use whimbrel_resilience::region::{Region, Regions, Rings};
use whimbrel_resilience::replication::CpfId;

use super::excluded_cpfs::ExcludedCpfs;
use super::heartbeat::HeartbeatMonitor;
use super::link_liveness::{LinkLiveness, LivenessCheck};
use super::recovery_times::RecoveryTimes;
use super::rejected_peers::RejectedPeers;
use super::ue_queries::{UeQueries, UeQueryReply};
use crate::config::Cluster;
use crate::entropy::SystemEntropy;
use crate::log_limiter::LogLimiter;
use crate::observation::{Console, Metric};
use crate::sbfd::SbfdFigures;
pub use condition::log_protocol_violation;
use function_links::FunctionLinks;
pub use function_links::FunctionQuery;
use n4_link::N4Link;
pub use n4_link::SentToUpf;
use replica_link::ReplicaSide;

/// How long the CPFs of the former primary CTA have to reconnect: they notice its end at once, or by heartbeats.
const RECONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long all of them are connected before no other link of theirs is expected: one may connect twice, as to each of the two CTAs.
const RECONNECTED_FOR: Duration = Duration::from_millis(100);
/// The control thread turns more often than this, unless it is held up.
const TURNS_WITHIN: Duration = Duration::from_secs(1);
/// Number of messages from a CPF after which the CTA confirms that they cannot be lost any more; the CPF keeps them until then.
const CONFIRMED_EVERY: u64 = 16;

/// What comes of a turn, in this order.
pub enum PoolEvent {
    /// A message of a CPF.
    Up(CpfId, CpfReport),
    /// The members of the rings have changed.
    Rings(Rings),
    /// A CPF is lost.
    Lost(CpfId),
    /// A CPF is lost that joins and is excluded again and again; the log has the reason already.
    LostRepeatedly(CpfId),
    /// The UEs of a query have been found.
    UesShown(UeQueryReply, Vec<UeSummary>),
    /// A CPF has received this many messages.
    Confirmed(CpfId, u64),
    /// A CPF of the former primary has reconnected, and has received this many messages of it.
    Resumes(CpfId, u64),
    /// Its link was lost again and it may reconnect: messages for it are kept until then.
    Disconnected(CpfId),
    /// A PFCP message of the UPF of this unit.
    FromUpf(Vec<u8>),
    /// The link to that UPF is lost, and it may not have taken these messages.
    ForUpfAgain(Vec<Vec<u8>>),
    /// A network function of this unit has answered, or has failed.
    FunctionAnswered(FunctionQuery, FunctionAnswer),
    /// A network function of this unit has an order, which is confirmed by its link and number.
    FunctionOrdered(LinkId, u64, FunctionOrder),
    /// A message of the CTA replica.
    FromReplica(ToPrimaryCta),
    /// The CTA replica is lost.
    CtaReplicaLost,
    /// A CTA that runs other code waits for this one to stop.
    SuccessorOffered(CtaInstance, Vec<IpAddr>, IpAddr),
    /// It no longer waits.
    SuccessorLost,
}

/// A CPF that has joined.
struct PoolMember {
    /// `None`: it joined the former primary, and has not reconnected yet.
    link: Option<LinkId>,
    address: SocketAddr,
    region: Region,
    code: CodeVersion,
    /// The slice whose UEs it serves, if it serves one alone.
    slice: Option<SNssai>,
    /// It has been on the rings, so it may have UEs.
    served: bool,
    /// It has asked to leave.
    draining: bool,
    /// Its number in etcd, as it says, and whether this CTA has seen that number there.
    listed: Option<CpfId>,
    seen: bool,
    /// How many of its messages have been confirmed to it.
    confirmed: u64,
}

/// A CPF that connected to this CTA before it became the primary.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResumingCpf {
    pub(super) link: LinkId,
    pub(super) life: u64,
    pub(super) id: CpfId,
    pub(super) has: u64,
}

/// Links whose first message has not come: the peer's address, and what it is.
pub(super) type PendingLinks = BTreeMap<LinkId, (SocketAddr, Hello)>;

/// Links that come in.
#[derive(Default)]
struct IncomingLinks {
    pending: PendingLinks,
    rejected: RejectedPeers,
    excluded: ExcludedCpfs,
    /// Links of program versions with incompatible messages.
    incompatible: u64,
}

/// Heartbeats to the members.
struct Heartbeats {
    key: HeartbeatKey,
    monitor: HeartbeatMonitor,
    /// Heartbeats that do not belong to this cluster.
    foreign: u64,
    log: LogLimiter<&'static str>,
}

/// The CPFs that have joined.
struct Members {
    /// Drawn when the first CTA of the pair became the primary; the CPFs' numbers below are unique within it.
    life: u64,
    newest: u16,
    by_id: BTreeMap<CpfId, PoolMember>,
    by_link: BTreeMap<LinkId, CpfId>,
}

/// The CPFs of the former primary, after a takeover.
struct Reconnection {
    /// CPFs that this CTA connects to, so that they learn of the takeover.
    calling: BTreeMap<LinkId, CpfId>,
    /// Until when they may reconnect.
    until: Option<Instant>,
    /// Since when all of them are connected.
    all_since: Option<Instant>,
    turned: Instant,
}

/// What etcd and the file say of the cluster, and the map of regions that follows from it.
struct ClusterState {
    regions: Regions,
    file: Cluster,
    /// The file with what etcd overrides.
    in_force: Cluster,
    /// What etcd says, and what of it is in force.
    etcd: CpfRoster,
    roll: CpfRoster,
    /// How often a configuration in etcd was invalid.
    rejected: u64,
}

/// Replicas that each UE lacks because there are too few CPFs.
#[derive(Default)]
struct MissingReplicas {
    now: usize,
    /// As the log has it, and since when that differs.
    logged: usize,
    changed: Option<Instant>,
}

/// The CPFs of one CTA.
pub struct CpfPool {
    links: Links,
    events: LinkEvents,
    frame: Vec<u8>,
    incoming: IncomingLinks,
    heartbeats: Heartbeats,
    liveness: LinkLiveness,
    cluster: ClusterState,
    members: Members,
    reconnection: Reconnection,
    replica: ReplicaSide,
    /// The link to the UPF; `None`: this CTA is in no unit.
    n4_link: Option<N4Link>,
    /// The links to network functions; `None`: no process of a unit is one.
    functions: Option<FunctionLinks>,
    queries: UeQueries,
    recovery_times: RecoveryTimes,
    missing: MissingReplicas,
    /// The configuration in force, which each CPF gets when it joins.
    config: Arc<ControlConfig>,
    pool_events: Vec<PoolEvent>,
    console: Arc<Console>,
}

impl CpfPool {
    /// Opens the address to which CPFs connect. Errors: one sentence.
    pub fn open(
        cluster: &Cluster,
        config: Arc<ControlConfig>,
        entropy: &mut SystemEntropy,
        console: Arc<Console>,
    ) -> Result<Self, String> {
        let links = super::open_links(cluster)?.ok_or("`cluster.listen` is not configured")?;
        Self::over(links, cluster, config, entropy, console)
    }

    /// The same over links that are open. Errors: one sentence.
    pub(super) fn over(
        links: Links,
        cluster: &Cluster,
        config: Arc<ControlConfig>,
        entropy: &mut SystemEntropy,
        console: Arc<Console>,
    ) -> Result<Self, String> {
        let ip = links.local_addr().map_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), |at| at.ip());
        let key = HeartbeatKey(entropy.octets());
        let mut monitor = HeartbeatMonitor::open(SocketAddr::new(ip, 0), &key.0, cluster.heartbeat)
            .map_err(|e| format!("cluster.listen: heartbeats cannot be sent from {ip}: {e}"))?
            .probing(cluster.sbfd)
            .map_err(|e| format!("sbfd: {e}"))?;
        if cluster.host().is_some() {
            monitor.set_one_host();
        }
        let mut pool = Self {
            links,
            events: LinkEvents::default(),
            frame: Vec::new(),
            incoming: IncomingLinks::default(),
            heartbeats: Heartbeats { key, monitor, foreign: 0, log: LogLimiter::new("heartbeats") },
            liveness: LinkLiveness::default(),
            cluster: ClusterState {
                regions: Regions::default(),
                file: cluster.clone(),
                in_force: cluster.clone(),
                etcd: CpfRoster::default(),
                roll: CpfRoster::default(),
                rejected: 0,
            },
            members: Members {
                life: u64::from_ne_bytes(entropy.octets()),
                newest: 0,
                by_id: BTreeMap::new(),
                by_link: BTreeMap::new(),
            },
            reconnection: Reconnection {
                calling: BTreeMap::new(),
                until: None,
                all_since: None,
                turned: Instant::ZERO,
            },
            replica: ReplicaSide::new(cluster.pair.is_some()),
            n4_link: None,
            functions: None,
            queries: UeQueries::default(),
            recovery_times: RecoveryTimes::default(),
            missing: MissingReplicas::default(),
            config,
            pool_events: Vec::new(),
            console,
        };
        pool.rebuild_map();
        pool.show_condition();
        Ok(pool)
    }

    /// Where CPFs connect to.
    pub fn address(&self) -> Option<SocketAddr> {
        self.links.local_addr()
    }

    /// Whether a CPF is a member, or may still reconnect.
    pub fn knows(&self, cpf: CpfId) -> bool {
        self.members.by_id.contains_key(&cpf)
    }

    /// Takes what arrived.
    pub fn turn(&mut self, now: Instant) -> Vec<PoolEvent> {
        self.check_heartbeats(now);
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            self.link_event(now, event);
        }
        self.events = events;
        self.call_upf(now);
        self.turn_functions(now);
        self.end_reconnection(now);
        self.check_links(now);
        self.log_missing_replicas(now);
        while let Some((reply, ues)) = self.queries.done() {
            self.pool_events.push(PoolEvent::UesShown(reply, ues));
        }
        std::mem::take(&mut self.pool_events)
    }

    fn check_heartbeats(&mut self, now: Instant) {
        for (member, unanswered) in self.heartbeats.monitor.turn(now) {
            warn!(%member, "{unanswered}");
            match member {
                MemberId::Cpf(cpf) => self.lost(cpf),
                MemberId::Cta(_) => self.cta_replica_lost(),
            }
        }
        let Heartbeats { monitor, foreign, log, .. } = &mut self.heartbeats;
        let counters = monitor.counters();
        let total = counters.malformed + counters.forged;
        if std::mem::replace(foreign, total) < total && log.allows(now, "heartbeats") {
            warn!(
                "heartbeats that do not belong to this cluster are ignored; further ones are only counted ({})",
                Metric::HeartbeatsIgnored.name()
            );
        }
    }

    fn link_event(&mut self, now: Instant, event: Event<'_>) {
        if self.n4_event(now, &event) || self.function_event(now, &event) {
            return;
        }
        match event {
            Event::Up { link, .. } if self.reconnection.calling.remove(&link).is_some() => {} // it knows of the takeover now
            Event::Up { link, peer, hello, .. } => self.link_up(now, link, peer, hello),
            Event::Frame { link, octets } => self.frame(now, link, octets),
            Event::Down { link, reason } => {
                self.incoming.pending.remove(&link);
                if let Some(cpf) = self.reconnection.calling.remove(&link)
                    && self.members.by_id.get(&cpf).is_some_and(|m| m.link.is_none())
                {
                    warn!(cpf = cpf.0, %reason, "a CPF of the former primary CTA cannot be reached");
                    self.lost(cpf);
                }
                if self.replica.is_on(link) {
                    warn!(%reason, "the link to the CTA replica was lost");
                    self.cta_replica_lost();
                }
                match self.members.by_link.get(&link).copied() {
                    None => {}
                    Some(cpf) if self.reconnection.until.is_some() => {
                        info!(cpf = cpf.0, %reason, "the link to a CPF was lost: the CPF may reconnect");
                        self.disconnect(cpf);
                    }
                    Some(cpf) => {
                        warn!(cpf = cpf.0, %reason, "a CPF is lost");
                        self.lost(cpf);
                    }
                }
            }
            Event::Rejected { peer, reason } => {
                if self.incoming.rejected.allows(now, peer, reason.label()) {
                    warn!(%peer, %reason, "an incoming link was rejected; further ones from this address are only counted");
                }
            }
        }
    }

    /// A frame: of the CTA replica, the first one of a pending link, or of a member.
    fn frame(&mut self, now: Instant, link: LinkId, octets: &[u8]) {
        if self.replica.is_on(link) {
            return match ToPrimaryCta::read(octets) {
                Ok(message @ (ToPrimaryCta::Pieces(_) | ToPrimaryCta::Held(_))) => {
                    self.pool_events.push(PoolEvent::FromReplica(message));
                }
                _ => {
                    warn!("the link to the CTA replica is closed: it sent an unexpected message");
                    self.cta_replica_lost();
                }
            };
        }
        if let Some((peer, hello)) = self.incoming.pending.remove(&link) {
            return self.first_frame(now, link, (peer, hello), octets);
        }
        let Some(cpf) = self.members.by_link.get(&link).copied() else { return };
        self.liveness.heard(now, cpf);
        match ToCta::read(octets) {
            Ok(ToCta::Report(up)) => self.pool_events.push(PoolEvent::Up(cpf, up)),
            Ok(ToCta::Leave) => self.leaves(cpf),
            Ok(ToCta::Listed(number)) => self.listed(cpf, number),
            Ok(ToCta::Taken(messages)) => self.pool_events.push(PoolEvent::Confirmed(cpf, messages)),
            Ok(ToCta::UeList { ask, ues }) => self.queries.answered(ask, cpf, ues),
            Ok(ToCta::Join { .. } | ToCta::Resume { .. }) => {
                self.exclude(now, cpf, "it joins or resumes a second time");
            }
            Err(e) => self.exclude(now, cpf, &e.to_string()),
        }
    }

    /// CPFs that answer nothing on their links are lost, even if they answer heartbeats.
    fn check_links(&mut self, now: Instant) {
        let LivenessCheck { probe, unresponsive } = self.liveness.check(now, self.cluster.in_force.heartbeat);
        let links = probe.into_iter().filter_map(|cpf| self.members.by_id.get(&cpf)?.link);
        for link in links.collect::<Vec<_>>() {
            let ask = self.queries.next_unanswered();
            self.send_on(link, &ToCpf::ListUes { ask, which: UeQuery::Page(None, 0) });
        }
        for cpf in unresponsive {
            warn!(
                cpf = cpf.0,
                "a CPF answers heartbeats but nothing on its link: check that TCP passes in both directions (firewall, MTU)"
            );
            self.heartbeats.monitor.replaced(now, MemberId::Cpf(cpf));
            self.lost(cpf);
        }
    }

    fn peers(&self) -> Vec<(CpfId, SocketAddr)> {
        self.members.by_id.iter().map(|(id, m)| (*id, m.address)).collect()
    }

    fn send_to_all(&mut self, message: &ToCpf) {
        let links: Vec<LinkId> = self.members.by_id.values().filter_map(|m| m.link).collect();
        for link in links {
            self.send_on(link, message);
        }
    }

    /// The key of the heartbeats.
    pub(super) fn heartbeat_key(&self) -> &[u8; 32] {
        &self.heartbeats.key.0
    }

    /// Confirms messages to CPFs now and then: they cannot be lost any more. `taken`: how many of a CPF's.
    pub fn confirm_messages(&mut self, taken: impl Fn(CpfId) -> u64) {
        if !self.replica.is_possible() {
            return;
        }
        let mut due = Vec::new();
        for (id, member) in &mut self.members.by_id {
            let taken = taken(*id);
            if taken >= member.confirmed + CONFIRMED_EVERY {
                member.confirmed = taken;
                due.extend(member.link.map(|link| (link, taken)));
            }
        }
        for (link, taken) in due {
            self.send_on(link, &ToCpf::Taken(taken));
        }
    }

    /// Sets the configuration for CPFs that join from now on; the members get it by the CTA, in the order of their inputs.
    pub fn configure(&mut self, config: Arc<ControlConfig>) {
        self.config = config;
    }

    /// Sends to a CPF; to one that is lost, nothing.
    pub fn send(&mut self, cpf: CpfId, message: CpfCommand) {
        if let Some(link) = self.members.by_id.get(&cpf).and_then(|m| m.link) {
            self.send_on(link, &ToCpf::Command(message));
        }
    }

    fn send_on(&mut self, link: LinkId, message: &ToCpf) {
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(link, &self.frame);
    }

    /// Asks all CPFs for UEs.
    pub fn query_ues(&mut self, which: UeQuery, reply: UeQueryReply) {
        let there = self.members.by_id.iter().filter(|(_, m)| m.link.is_some()).map(|(id, _)| *id);
        let ask = self.queries.begin(which, reply, there.collect());
        self.send_to_all(&ToCpf::ListUes { ask, which });
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        self.links.flush();
    }

    /// What to wait on.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.links.fd()).chain(self.heartbeats.monitor.fds())
    }

    /// Logs S-BFD packets that were dropped.
    pub fn log_drops(&mut self, now: Instant) {
        self.heartbeats.monitor.log_drops(now);
    }

    /// What S-BFD counted with its members.
    pub fn sbfd_figures(&self) -> SbfdFigures {
        self.heartbeats.monitor.sbfd_figures()
    }

    /// When [`Self::turn`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let due = [
            self.links.next_deadline(),
            self.heartbeats.monitor.next_deadline(),
            self.liveness.next_deadline(),
            self.reconnection.until,
            self.reconnection.all_since.map(|since| since + RECONNECTED_FOR),
            self.missing_replicas_logged_at(),
            self.n4_link_deadline(),
            self.functions_deadline(),
        ];
        due.into_iter().flatten().min()
    }
}

/// Whether an announced address is a loopback address although its owner is on another host.
pub(super) fn is_out_of_reach(announced: IpAddr, peer: IpAddr) -> bool {
    announced.is_loopback() && !peer.is_loopback()
}

/// An unspecified address stands for the one that its owner's link comes from.
fn or_address_of(announced: IpAddr, peer: IpAddr) -> IpAddr {
    if announced.is_unspecified() { peer } else { announced }
}
