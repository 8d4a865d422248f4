//! The CTA's side: the CPFs that have come to it, their links and their heartbeats; who follows it is in [`replica_link`].

mod condition;
mod replica_link;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_control::UeSummary;
use whimbrel_control::config::Config as ControlConfig;
use whimbrel_ids::Instant;
use whimbrel_link::{Event, Events, LinkId, Links};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::link::{
    CpfCommand, CpfEntry, CpfReport, CpfTable, HeartbeatKey, Hello, HelloError, Role, ToCpf, ToCta,
    ToPrimaryCta, UeQuery,
};
use whimbrel_resilience::membership::{ConnectedCpf, CpfRoster, CtaInstance, MemberId};
use whimbrel_resilience::region::{Region, Regions, Rings};
use whimbrel_resilience::replication::CpfId;

use super::excluded_cpfs::ExcludedCpfs;
use super::heartbeat::HeartbeatMonitor;
use super::link_liveness::{LinkLiveness, LivenessCheck};
use super::recovery_times::RecoveryTimes;
use super::rejected_peers::RejectedPeers;
use super::ue_queries::{UeQueries, UeQueryReply};
use crate::config::Cluster;
use crate::console::Console;
use crate::entropy::SystemEntropy;
use crate::log_limiter::LogLimiter;
pub(crate) use condition::log_protocol_violation;
use replica_link::ReplicaLink;

/// How long those have to come who served under the former CTA: they notice its end at once, or by heartbeats.
const RESUMED_WITHIN: Duration = Duration::from_secs(2);
/// The control thread turns more often, unless it is held up.
const TURNS_WITHIN: Duration = Duration::from_secs(1);
/// So many messages a CPF keeps, before it hears that they are here to stay.
const TAKEN_EVERY: u64 = 16;

/// What comes of a turn, in its order.
pub(crate) enum PoolEvent {
    /// A CPF says this.
    Up(CpfId, CpfReport),
    /// The members have changed.
    Rings(Rings),
    /// One is lost.
    Lost(CpfId),
    /// One is lost that comes and is given up again and again: the log has it.
    LostRepeatedly(CpfId),
    /// The UEs that somebody wanted are there.
    UesShown(UeQueryReply, Vec<UeSummary>),
    /// A CPF has so many messages.
    Confirmed(CpfId, u64),
    /// One that served under the former CTA is there again, and has so many messages of it.
    Resumes(CpfId, u64),
    /// Its link has ended again, and it may call once more: until then what it is to hear is kept.
    Disconnected(CpfId),
    /// The other CTA says this.
    FromReplica(ToPrimaryCta),
    /// The CTA replica is lost.
    CtaReplicaLost,
    /// A CTA that runs other code waits for this one to stop.
    SuccessorOffered(CtaInstance, Vec<IpAddr>, IpAddr),
    /// It does not any more.
    SuccessorLost,
}

/// A CPF that has come.
struct PoolMember {
    /// `None`: it served under the former CTA, and has not come again yet.
    link: Option<LinkId>,
    address: SocketAddr,
    region: Region,
    code: CodeVersion,
    /// It has been on the rings, so it may have UEs.
    served: bool,
    /// It wants to leave.
    draining: bool,
    /// Its number at etcd, as it says, and whether it was seen listed there.
    listed: Option<CpfId>,
    seen: bool,
    /// How many of its messages it was told are here to stay.
    told: u64,
}

/// A CPF that called before this CTA served.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResumingCpf {
    pub(super) link: LinkId,
    pub(super) life: u64,
    pub(super) id: CpfId,
    pub(super) has: u64,
}

/// Those that have called and not yet said what for: where they are seen, and what they are.
pub(super) type PendingLinks = BTreeMap<LinkId, (SocketAddr, Hello)>;

/// The CPFs of one CTA.
pub(crate) struct Pool {
    links: Links,
    events: Events,
    rejected_peers: RejectedPeers,
    /// CPFs that break the rules.
    excluded_cpfs: ExcludedCpfs,
    /// What else comes that is none of the cluster's.
    wrong: LogLimiter<&'static str>,
    /// Heartbeats that are not of this cluster.
    strange: u64,
    /// Calls of versions that speak another language.
    other_versions: u64,
    watch: HeartbeatMonitor,
    link_liveness: LinkLiveness,
    regions: Regions,
    /// What the file says, and what is in force: what etcd says goes before.
    file: Cluster,
    terms: Cluster,
    /// What etcd says, and what of it is in force.
    heard: CpfRoster,
    roll: CpfRoster,
    /// How often what it says of the cluster could not be.
    not_taken: u64,
    /// This life of the CTA: the numbers below are of it.
    life: u64,
    heartbeats: HeartbeatKey,
    newest: u16,
    members: BTreeMap<CpfId, PoolMember>,
    by_link: BTreeMap<LinkId, CpfId>,
    waiting: PendingLinks,
    /// There may be a CTA replica.
    pair: bool,
    follower: Option<ReplicaLink>,
    /// Where the CTA replica is reached that can take over at any moment.
    cta_replica: Option<SocketAddr>,
    /// Those of them that are called, to be told.
    calling: BTreeMap<LinkId, CpfId>,
    /// Until when those are awaited that served under the former CTA.
    awaited: Option<Instant>,
    turned: Instant,
    ue_queries: UeQueries,
    recovery_times: RecoveryTimes,
    /// Backups that a UE lacks, since there are too few CPFs.
    missing: usize,
    /// What of that the log says, and since when it is not so any more.
    missing_told: usize,
    missing_since: Option<Instant>,
    /// What is in force: a member is told when it comes.
    told: Arc<ControlConfig>,
    frame: Vec<u8>,
    said: Vec<PoolEvent>,
    console: Arc<Console>,
}

impl Pool {
    /// Opens where CPFs come to; `None` where UEs are served in this process. Errors: one sentence.
    pub(crate) fn open(
        cluster: &Cluster,
        told: Arc<ControlConfig>,
        entropy: &mut SystemEntropy,
        console: Arc<Console>,
    ) -> Result<Option<Self>, String> {
        let Some(links) = super::open_links(cluster)? else { return Ok(None) };
        Self::over(links, cluster, told, entropy, console).map(Some)
    }

    /// The same over links that are open. Errors: one sentence.
    pub(super) fn over(
        links: Links,
        cluster: &Cluster,
        told: Arc<ControlConfig>,
        entropy: &mut SystemEntropy,
        console: Arc<Console>,
    ) -> Result<Self, String> {
        let ip = links.local_addr().map_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), |at| at.ip());
        let heartbeats = HeartbeatKey(entropy.octets());
        let watch = HeartbeatMonitor::open(SocketAddr::new(ip, 0), &heartbeats.0, cluster.heartbeat)
            .map_err(|e| format!("cluster.listen: heartbeats cannot be sent from {ip}: {e}"))?;
        let mut pool = Self {
            links,
            events: Events::default(),
            rejected_peers: RejectedPeers::default(),
            excluded_cpfs: ExcludedCpfs::default(),
            wrong: LogLimiter::new("heartbeats"),
            strange: 0,
            other_versions: 0,
            watch,
            link_liveness: LinkLiveness::default(),
            regions: Regions::default(),
            file: cluster.clone(),
            terms: cluster.clone(),
            heard: CpfRoster::default(),
            roll: CpfRoster::default(),
            not_taken: 0,
            heartbeats,
            life: u64::from_ne_bytes(entropy.octets()),
            newest: 0,
            members: BTreeMap::new(),
            by_link: BTreeMap::new(),
            waiting: BTreeMap::new(),
            pair: cluster.pair.is_some(),
            follower: None,
            cta_replica: None,
            calling: BTreeMap::new(),
            awaited: None,
            turned: Instant::ZERO,
            ue_queries: UeQueries::default(),
            recovery_times: RecoveryTimes::default(),
            missing: 0,
            missing_told: 0,
            missing_since: None,
            told,
            frame: Vec::new(),
            said: Vec::new(),
            console,
        };
        pool.chart();
        pool.show_condition();
        Ok(pool)
    }

    /// These have called before it served.
    pub(super) fn waits_for(&mut self, called: PendingLinks) {
        self.waiting = called;
    }

    /// It serves from now on, maybe in the place of a former CTA. What etcd says is of that one's CPFs, so these come first:
    /// rings without them would be told.
    pub(super) fn begins(
        &mut self,
        now: Instant,
        former: Option<(CpfTable, Vec<ResumingCpf>)>,
        heard: CpfRoster,
    ) {
        if let Some((members, callers)) = former {
            self.succeed(now, members, callers);
        }
        self.enrol(heard);
    }

    /// The CPFs of the former CTA are those of this one, as soon as they come; those that have called already are there.
    pub(super) fn succeed(&mut self, now: Instant, former: CpfTable, callers: Vec<ResumingCpf>) {
        (self.life, self.newest) = (former.life, former.newest);
        (self.awaited, self.turned) = (Some(now + RESUMED_WITHIN), now);
        for CpfEntry { id, address, region, code, draining, listed } in former.members {
            let Ok(region) = region.parse::<Region>() else { continue }; // it counts as lost
            let seen = listed.is_some();
            let served = true;
            let joined =
                PoolMember { link: None, address, region, code, served, draining, listed, seen, told: 0 };
            self.members.insert(id, joined);
        }
        self.chart();
        for ResumingCpf { link, life, id, has } in callers {
            self.resumes(now, link, life, id, has);
        }
        // Those that have not called may hang on the former CTA, which hangs itself: a call tells them.
        let unaware = self.members.iter().filter(|(_, m)| m.link.is_none());
        for (id, at) in unaware.map(|(id, m)| (*id, m.address)).collect::<Vec<_>>() {
            self.calling.insert(self.links.connect(now, at), id);
        }
        self.show_condition();
    }

    /// Where CPFs come to.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.links.local_addr()
    }

    /// Those that are there.
    pub(crate) fn rings(&self) -> Rings {
        let Cluster { region, areas, backups, .. } = &self.terms;
        let rings = self.regions.rings_with(region, areas.clone(), (*backups).into());
        rings.expect("the configuration names no region that is none of its own")
    }

    /// Whether a CPF is there, or is awaited.
    pub(crate) fn knows(&self, cpf: CpfId) -> bool {
        self.members.contains_key(&cpf)
    }

    /// Takes what arrived.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<PoolEvent> {
        for who in self.watch.turn(now) {
            warn!(member = %who, "heartbeats are not answered");
            match who {
                MemberId::Cpf(cpf) => self.lost(cpf),
                MemberId::Cta(_) => self.cta_replica_lost(),
            }
        }
        let heartbeats = self.watch.counters();
        let strange = heartbeats.malformed + heartbeats.forged;
        if std::mem::replace(&mut self.strange, strange) < strange && self.wrong.allows(now, "heartbeats") {
            warn!(
                "heartbeats that do not belong to this cluster are ignored; further ones are only counted (whimbrel_heartbeats_ignored_total)"
            );
        }
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            match event {
                Event::Up { link, .. } if self.calling.remove(&link).is_some() => {} // it knows now
                Event::Up { link, peer, hello, .. } => self.called(now, link, peer, hello),
                Event::Frame { link, octets } => self.frame(now, link, octets),
                Event::Down { link, reason } => {
                    self.waiting.remove(&link);
                    if let Some(cpf) = self.calling.remove(&link)
                        && self.members.get(&cpf).is_some_and(|m| m.link.is_none())
                    {
                        warn!(cpf = cpf.0, %reason, "a CPF of the former primary CTA cannot be reached");
                        self.lost(cpf);
                    }
                    if self.follower.as_ref().is_some_and(|f| f.is_at(link)) {
                        warn!(%reason, "the link to the CTA replica was lost");
                        self.cta_replica_lost();
                    }
                    match self.by_link.get(&link).copied() {
                        None => {}
                        Some(cpf) if self.awaited.is_some() => {
                            info!(cpf = cpf.0, %reason, "the link to a CPF was lost: the CPF may reconnect");
                            self.parts(cpf);
                        }
                        Some(cpf) => {
                            warn!(cpf = cpf.0, %reason, "a CPF is lost");
                            self.lost(cpf);
                        }
                    }
                }
                Event::TurnedAway { peer, reason } => {
                    if self.rejected_peers.allows(now, peer, reason.label()) {
                        warn!(%peer, %reason, "an incoming link was rejected; further ones from this address are only counted");
                    }
                }
            }
        }
        self.events = events;
        self.miss(now);
        self.listen(now);
        self.tell_missing(now);
        while let Some((wanted, ues)) = self.ue_queries.done() {
            self.said.push(PoolEvent::UesShown(wanted, ues));
        }
        std::mem::take(&mut self.said)
    }

    /// Those that were awaited and have not come are lost. While this process was held up, nobody could come.
    fn miss(&mut self, now: Instant) {
        let late = now.since(std::mem::replace(&mut self.turned, now));
        if let Some(until) = self.awaited.as_mut().filter(|_| late > TURNS_WITHIN) {
            *until = *until + late;
        }
        if self.awaited.take_if(|until| *until <= now).is_none() {
            return;
        }
        let missing: Vec<CpfId> =
            self.members.iter().filter(|(_, m)| m.link.is_none()).map(|(id, _)| *id).collect();
        for cpf in missing {
            warn!(cpf = cpf.0, "a CPF of the former primary CTA did not reconnect in time");
            self.lost(cpf);
        }
    }

    /// Those that answer nothing on their links are lost, heartbeats or not.
    fn listen(&mut self, now: Instant) {
        let LivenessCheck { ask, mute } = self.link_liveness.look(now, self.terms.heartbeat);
        for link in ask.into_iter().filter_map(|cpf| self.members.get(&cpf)?.link).collect::<Vec<_>>() {
            let ask = self.ue_queries.idle();
            self.tell(link, &ToCpf::ListUes { ask, which: UeQuery::Page(None, 0) });
        }
        for cpf in mute {
            warn!(
                cpf = cpf.0,
                "a CPF answers heartbeats but nothing on its link: check that TCP passes in both directions (firewall, MTU)"
            );
            self.watch.replaced(now, MemberId::Cpf(cpf));
            self.lost(cpf);
        }
    }

    fn called(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &[u8]) {
        match Hello::from_octets(hello) {
            Ok(Hello { role: Role::Cta, .. }) if !self.pair => {
                if self.rejected_peers.allows(now, peer, "cta") {
                    warn!(%peer, "another CTA connects, but `cluster.etcd` is not configured here, so nothing decides which of the two is the primary");
                }
                self.links.close(link);
            }
            Ok(hello) => drop(self.waiting.insert(link, (peer, hello))),
            Err(e) => {
                self.other_versions += u64::from(matches!(e, HelloError::LinkVersions { .. }));
                if self.rejected_peers.allows(now, peer, e.label()) {
                    warn!(%peer, "a link is refused: {e}");
                }
                self.links.close(link);
            }
        }
    }

    /// A CPF offers itself.
    fn joins(
        &mut self,
        now: Instant,
        link: LinkId,
        (peer, code): (SocketAddr, CodeVersion),
        region: &Region,
        address: SocketAddr,
    ) {
        let id = self.next_number();
        if let Err(e) = self.regions.clone().join(id, region) {
            if self.rejected_peers.allows(now, peer, "region") {
                warn!(%peer, "a CPF is refused: {e}; add its region to `cluster.neighbours`");
            }
            return self.links.close(link);
        }
        let address = SocketAddr::new(seen_from(address.ip(), peer.ip()), address.port());
        if is_out_of_reach(address.ip(), peer.ip()) {
            if self.rejected_peers.allows(now, peer, "loopback") {
                warn!(%peer, "a CPF is refused: it announces the loopback address {address}, which other hosts cannot reach; start it with `--listen` and an address of its host");
            }
            return self.links.close(link);
        }
        if !self.excluded_cpfs.may_come(now, address) {
            if self.rejected_peers.allows(now, peer, "excluded") {
                warn!(%peer, %address, "a CPF is refused: it was excluded a moment ago after a protocol violation, for 5 s");
            }
            return self.links.close(link);
        }
        self.newest = id.0;
        let joined = PoolMember {
            link: Some(link),
            address,
            region: region.clone(),
            code,
            served: false,
            draining: false,
            listed: None,
            seen: false,
            told: 0,
        };
        self.members.insert(id, joined);
        self.by_link.insert(link, id);
        self.watch.begin(now, MemberId::Cpf(id), address);
        self.link_liveness.heard(now, id);
        let tells = self.excluded_cpfs.tells_of_coming(now, address);
        if tells {
            info!(cpf = id.0, %address, %region, %code, "a CPF joined");
        }
        let (life, heartbeats, keep) = (self.life, self.heartbeats, self.pair);
        self.tell(link, &ToCpf::Welcome { life, id, heartbeats, keep });
        self.tell(link, &ToCpf::CtaReplica(self.cta_replica));
        self.tell(link, &ToCpf::Command(CpfCommand::Configure(self.told.clone())));
        self.members_changed();
        if tells && !self.rings().serves(id) {
            info!(cpf = id.0, "the CPF waits: it runs other code than the CPFs on the rings of its region");
        }
    }

    /// Numbers begin again behind the last one: by then nobody speaks any more of who had them.
    fn next_number(&self) -> CpfId {
        let behind = (self.newest.saturating_add(1)..=u16::MAX).chain(1..=self.newest).map(CpfId);
        let mut free = behind.filter(|id| !self.members.contains_key(id));
        free.next().expect("there are far fewer links than numbers")
    }

    /// A CPF of the former CTA is there.
    fn resumes(&mut self, now: Instant, link: LinkId, life: u64, id: CpfId, has: u64) {
        if life == self.life && self.awaited.is_some() {
            self.parts(id); // the end of its former call is not seen yet
        }
        match self.members.get_mut(&id).filter(|m| life == self.life && m.link.is_none()) {
            Some(member) => {
                member.link = Some(link);
                self.watch.begin(now, MemberId::Cpf(id), member.address);
                self.link_liveness.heard(now, id);
                self.by_link.insert(link, id);
                self.said.push(PoolEvent::Resumes(id, has));
            }
            None => {
                self.tell(link, &ToCpf::Forgotten);
                self.links.close(link);
            }
        }
    }

    /// One that is awaited calls here and elsewhere in turn, so its call may end just as this CTA takes over: it calls again.
    fn parts(&mut self, cpf: CpfId) {
        let Some(link) = self.members.get_mut(&cpf).and_then(|m| m.link.take()) else { return };
        self.by_link.remove(&link);
        self.links.close(link);
        self.link_liveness.end(cpf);
        self.ue_queries.gone(cpf);
        let resumes = |said: &mut PoolEvent| matches!(said, PoolEvent::Resumes(of, _) if *of == cpf);
        if self.said.extract_if(.., resumes).count() == 0 {
            self.said.push(PoolEvent::Disconnected(cpf));
        }
    }

    /// It may go on: so many of its messages are here.
    pub(crate) fn resumed(&mut self, cpf: CpfId, taken: u64) {
        let Some(link) = self.members.get(&cpf).and_then(|m| m.link) else { return };
        info!(cpf = cpf.0, "a CPF of the former primary CTA resumed");
        self.tell(link, &ToCpf::Resumed { taken, heartbeats: self.heartbeats });
        self.tell(link, &ToCpf::CtaReplica(self.cta_replica));
        let peers = ToCpf::Peers(self.peers());
        self.tell(link, &peers);
    }

    /// It cannot go on.
    pub(crate) fn forget(&mut self, cpf: CpfId) {
        warn!(
            cpf = cpf.0,
            "a CPF of the former primary CTA cannot resume because messages are missing: it has to join again"
        );
        self.lost(cpf);
    }

    fn frame(&mut self, now: Instant, link: LinkId, octets: &[u8]) {
        if self.follower.as_ref().is_some_and(|f| f.is_at(link)) {
            return match ToPrimaryCta::read(octets) {
                Ok(message @ (ToPrimaryCta::Pieces(_) | ToPrimaryCta::Held(_))) => {
                    self.said.push(PoolEvent::FromReplica(message))
                }
                _ => {
                    warn!("the link to the CTA replica is closed: it sent an unexpected message");
                    self.cta_replica_lost();
                }
            };
        }
        let waiting = self.waiting.remove(&link);
        if let Some((peer, Hello { role: Role::Cta, code })) = waiting {
            return match ToPrimaryCta::read(octets) {
                Ok(message @ ToPrimaryCta::Follow { .. }) => self.follows(now, link, (peer, code), message),
                _ => {
                    if self.rejected_peers.allows(now, peer, "offer") {
                        warn!(%peer, "a link is refused: its first message is not an offer to become the CTA replica");
                    }
                    self.links.close(link);
                }
            };
        }
        let message = ToCta::read(octets);
        if let Some((peer, Hello { role: Role::Cpf, code })) = waiting {
            return match message {
                Ok(ToCta::Join { region, address }) => self.joins(now, link, (peer, code), &region, address),
                Ok(ToCta::Resume { life, id, has }) => self.resumes(now, link, life, id, has),
                _ => {
                    if self.rejected_peers.allows(now, peer, "offer") {
                        warn!(%peer, "a link is refused: its first message neither joins nor resumes");
                    }
                    self.links.close(link);
                }
            };
        }
        let Some(cpf) = self.by_link.get(&link).copied() else { return };
        self.link_liveness.heard(now, cpf);
        match message {
            Ok(ToCta::Report(up)) => self.said.push(PoolEvent::Up(cpf, up)),
            Ok(ToCta::Leave) => {
                info!(cpf = cpf.0, "a CPF leaves: its UEs move to other CPFs");
                if self.members.get(&cpf).is_some_and(|m| !m.served) {
                    return self.lost(cpf);
                }
                if let Some(member) = self.members.get_mut(&cpf) {
                    member.draining = true;
                }
                self.tell_members();
                if !self.charted() {
                    self.said.push(PoolEvent::Rings(self.rings())); // one that was on none leaves all the same
                }
            }
            Ok(ToCta::Listed(number)) => {
                info!(cpf = cpf.0, listed = %MemberId::Cpf(number), "a CPF is registered in etcd");
                let seen = self.roll.lists(number);
                if let Some(member) = self.members.get_mut(&cpf) {
                    (member.listed, member.seen) = (Some(number), seen);
                }
                self.tell_members();
                self.charted();
            }
            Ok(ToCta::Taken(messages)) => self.said.push(PoolEvent::Confirmed(cpf, messages)),
            Ok(ToCta::UeList { ask, ues }) => self.ue_queries.answered(ask, cpf, ues),
            Ok(ToCta::Join { .. } | ToCta::Resume { .. }) => {
                self.give_up(now, cpf, "it joins or resumes a second time");
            }
            Err(e) => self.give_up(now, cpf, &e.to_string()),
        }
    }

    /// A CPF breaks the rules: it is lost, and is not taken again for a while.
    fn give_up(&mut self, now: Instant, cpf: CpfId, why: &str) {
        let Some(address) = self.members.get(&cpf).map(|m| m.address) else { return };
        if self.excluded_cpfs.allows(now, address) {
            warn!(cpf = cpf.0, %address, "a CPF is excluded for 5 s after a protocol violation: {why}; further times are only counted (whimbrel_cpf_excluded_total)");
            return self.lost(cpf);
        }
        self.part_with(cpf);
        self.said.push(PoolEvent::LostRepeatedly(cpf));
    }

    /// A CPF that is on no ring has nothing left. One that wanted to leave may go, one that was to drain stays.
    pub(crate) fn left(&mut self, cpf: CpfId) {
        if self.members.get(&cpf).is_some_and(|m| !m.draining) {
            return info!(cpf = cpf.0, "the UEs of a CPF have moved to other CPFs");
        }
        info!(cpf = cpf.0, "a CPF left");
        self.lost(cpf);
    }

    /// Who is lost is not spoken with any more: if it lives, it hears so and comes anew.
    fn lost(&mut self, cpf: CpfId) {
        if self.part_with(cpf) {
            self.said.push(PoolEvent::Lost(cpf));
        }
    }

    /// The same. Whether it was there.
    fn part_with(&mut self, cpf: CpfId) -> bool {
        let Some(member) = self.members.remove(&cpf) else { return false };
        if let Some(link) = member.link {
            self.by_link.remove(&link);
            self.links.close(link);
        }
        self.watch.end(MemberId::Cpf(cpf));
        self.link_liveness.end(cpf);
        self.ue_queries.gone(cpf);
        self.members_changed();
        true
    }

    fn members_changed(&mut self) {
        self.tell_all(&ToCpf::Peers(self.peers()));
        self.tell_members();
        self.charted();
    }

    /// Etcd says this of CPFs, and of the cluster.
    pub(super) fn enrol(&mut self, heard: CpfRoster) {
        if heard == self.heard {
            return;
        }
        let before = (self.regions.clone(), self.rings());
        let former = std::mem::replace(&mut self.heard, heard);
        let mut decided = self.roll.configuration().cloned();
        if let Some(new) = self.heard.configuration().filter(|c| former.configuration() != Some(c)) {
            match self.file.under(new) {
                Ok(terms) => {
                    info!("the cluster configuration from etcd is in force");
                    self.watch.set_timing(terms.heartbeat);
                    (self.terms, decided) = (terms, Some(new.clone()));
                }
                Err(why) => {
                    self.not_taken += 1;
                    warn!(
                        "the cluster configuration from etcd is rejected, and the previous one stays in force: {why}"
                    );
                }
            }
        }
        self.roll = self.heard.clone().under(decided);
        for member in self.members.values_mut() {
            member.seen |= member.listed.is_some_and(|number| self.roll.lists(number));
        }
        self.tell_members();
        self.charted_since(before);
    }

    /// The map of who is there.
    fn chart(&mut self) {
        let present: Vec<ConnectedCpf<'_>> = (self.members.iter())
            .map(|(id, m)| ConnectedCpf {
                id: *id,
                region: &m.region,
                code: m.code,
                leaves: m.draining,
                listed: m.listed.filter(|_| m.seen),
            })
            .collect();
        let map = self.roll.map(self.terms.regions(), &present);
        self.regions = map.expect("regions are taken when they make a map");
    }

    /// The same. Whether the rings are others.
    fn charted(&mut self) -> bool {
        self.charted_since((self.regions.clone(), self.rings()))
    }

    /// The same, where what is in force has changed too: regions and rings as they were under what was in force before.
    fn charted_since(&mut self, (known, before): (Regions, Rings)) -> bool {
        self.chart();
        let rings = self.rings();
        for (id, member) in &mut self.members {
            member.served |= rings.serves(*id);
        }
        self.show_condition();
        if rings == before {
            return false;
        }
        let other =
            |cpf: &&CpfId| known.region_of(**cpf).is_some() && rings.serves(**cpf) != before.serves(**cpf);
        for cpf in self.members.keys().filter(other) {
            match rings.serves(*cpf) {
                true => info!(cpf = cpf.0, "a CPF is on the rings"),
                false => {
                    warn!(cpf = cpf.0, "a CPF is no longer on the rings: its UEs move to other CPFs")
                }
            }
        }
        self.said.push(PoolEvent::Rings(rings));
        true
    }

    fn peers(&self) -> Vec<(CpfId, SocketAddr)> {
        self.members.iter().map(|(id, m)| (*id, m.address)).collect()
    }

    fn tell_all(&mut self, message: &ToCpf) {
        let links: Vec<LinkId> = self.members.values().filter_map(|m| m.link).collect();
        for link in links {
            self.tell(link, message);
        }
    }

    /// Under this key heartbeats are answered.
    pub(super) fn heartbeats(&self) -> &[u8; 32] {
        &self.heartbeats.0
    }

    /// So many messages of a CPF are here to stay: it hears so now and then.
    pub(crate) fn taken(&mut self, taken: impl Fn(CpfId) -> u64) {
        let mut due = Vec::new();
        for (id, member) in self.members.iter_mut().filter(|_| self.pair) {
            let taken = taken(*id);
            if taken >= member.told + TAKEN_EVERY {
                member.told = taken;
                due.extend(member.link.map(|link| (link, taken)));
            }
        }
        for (link, taken) in due {
            self.tell(link, &ToCpf::Taken(taken));
        }
    }

    /// Puts a new version of the configuration in force for those that come; those that are there hear of it in their order.
    pub(crate) fn configure(&mut self, told: Arc<ControlConfig>) {
        self.told = told;
    }

    /// To a CPF; to one that is lost, nothing.
    pub(crate) fn send(&mut self, cpf: CpfId, message: CpfCommand) {
        if let Some(link) = self.members.get(&cpf).and_then(|m| m.link) {
            self.tell(link, &ToCpf::Command(message));
        }
    }

    fn tell(&mut self, link: LinkId, message: &ToCpf) {
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(link, &self.frame);
    }

    /// UeQueries all CPFs for UEs.
    pub(crate) fn ask(&mut self, which: UeQuery, wanted: UeQueryReply) {
        let there = self.members.iter().filter(|(_, m)| m.link.is_some()).map(|(id, _)| *id);
        let ask = self.ue_queries.ask(which, wanted, there.collect());
        self.tell_all(&ToCpf::ListUes { ask, which });
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) {
        self.links.flush();
    }

    /// What to wait on.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.links.fd(), self.watch.as_fd()]
    }

    /// When [`Self::turn`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let listens = self.link_liveness.next_deadline();
        let told = self.missing_told_at();
        let due = [self.links.next_deadline(), self.watch.next_deadline(), listens, self.awaited, told];
        due.into_iter().flatten().min()
    }
}

/// Whether an address leads whoever is told of it to itself, and not to its owner, which is seen from elsewhere.
pub(super) fn is_out_of_reach(told: IpAddr, peer: IpAddr) -> bool {
    told.is_loopback() && !peer.is_loopback()
}

/// An unspecified address stands for the one that its owner is seen from.
fn seen_from(told: IpAddr, peer: IpAddr) -> IpAddr {
    if told.is_unspecified() { peer } else { told }
}
