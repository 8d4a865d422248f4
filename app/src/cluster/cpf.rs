//! A CPF as a process: it offers itself to a CTA, runs the UEs that it is given, and holds states for others.
//! When its CTA is gone, it goes on with that one's CTA replica, if there is one; else, and when it is given up, it forgets all of it and
//! comes anew.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, info, warn};
use whimbrel_control::UeId;
use whimbrel_ids::Instant;
use whimbrel_link::{DownReason, Event, Events, LinkId, Links};
use whimbrel_resilience::cta_replica::LinkEnd;
use whimbrel_resilience::link::{CpfCommand, CpfReport, Hello, LinkError, Role, ToCpf, ToCta, ToPeer};
use whimbrel_resilience::membership::MemberId;
use whimbrel_resilience::region::Region;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CpfOutbox, ReplicatedCpf};

use super::discovery::{AtEtcd, CtaDiscovery};
use super::heartbeat::HeartbeatResponder;
use super::rejected_peers::RejectedPeers;
use super::replay_sandbox::Sandbox;
use super::status::{State, StatusReporter};
use super::watchdog::InputWatchdog;
use crate::clock;
use crate::console::{Condition, Console};
use crate::log_limiter::LogLimiter;

/// How long to look for the next message before blocking, as the control thread does.
const SPIN: Duration = Duration::from_micros(50);
/// Between two calls to a CTA that is not there.
const CALL_AGAIN: Duration = Duration::from_millis(200);
/// The same for a member, whose UEs wait.
const CALL_SOON: Duration = Duration::from_millis(10);
/// How long a call may take before another CTA is called, if there is one.
const CALLED_WITHIN: Duration = Duration::from_millis(500);
/// How long a member waits for its CTA's CTA replica, which may wait for etcd. A new CTA says at once that it knows nothing of it.
const CTA_REPLICA_WITHIN: Duration = Duration::from_secs(3600);
/// It says how much it has when it has so many messages more.
const TAKEN_EVERY: u64 = 16;
/// What is wrong with a CTA is not mended by calling: time before the next call then.
const MENDED_AFTER: Duration = Duration::from_secs(5);
/// Between two calls to a CPF, when there is nothing to say to it but what may not have come.
const CALL_PEER_AGAIN: Duration = Duration::from_secs(1);
/// What may wait on a link while more is sent again: far below what ends it.
const WAITS: usize = 1 << 20;
/// How long it calls in vain before that is told: a CTA that starts at the same time is no news.
const TOLD_AFTER: Duration = Duration::from_secs(2);
/// How long others have to take the UEs of one that leaves.
const LEAVING: Duration = Duration::from_secs(10);
/// How long a signal to stop waits at most.
const LOOK: Duration = Duration::from_millis(200);

/// What an operator says of it.
pub(crate) struct Settings {
    /// Its CTA, and the others of which one may serve instead.
    pub(crate) ctas: Vec<SocketAddr>,
    /// Where further ones are found.
    pub(crate) at_etcd: Option<AtEtcd>,
    /// Where other CPFs, and heartbeats, reach it.
    pub(crate) listen: SocketAddr,
    /// Its region.
    pub(crate) region: Region,
    /// The cluster's key, where it is not on one host.
    pub(crate) key_file: Option<PathBuf>,
    /// Where it says how it is, if anybody asks.
    pub(crate) console: Option<Arc<Console>>,
}

/// What it is to its CTA.
struct Membership {
    since: Instant,
    life: u64,
    id: CpfId,
    /// `None` until its configuration has come.
    member: Option<ReplicatedCpf>,
    /// What it says is kept for a CTA replica of the CTA.
    keep: bool,
    /// The CTA's CTA replica.
    cta_replica: Option<SocketAddr>,
    /// Its end of the link with the CTA, which outlives connections: what is said, as octets, and how much was heard.
    end: LinkEnd<Vec<u8>>,
    /// How much of that the CTA was told.
    told: u64,
    /// The number at etcd that the CTA was told.
    listed: Option<CpfId>,
    /// Since when there is no CTA.
    alone: Option<Instant>,
    peers: BTreeMap<CpfId, SocketAddr>,
    /// The links that carry states to them.
    to_peers: BTreeMap<CpfId, LinkId>,
    /// Those to whom a link has ended, so that the last that was said may not have come.
    missed: BTreeMap<CpfId, Resync>,
}

/// How far what was said to a CPF is said again.
enum Resync {
    /// It is not reached yet; it is called now, if it is not called anyway.
    From(Instant),
    /// It is reached, and was told of the UEs up to this one.
    After(Option<UeId>),
}

impl Membership {
    /// The link to another CPF has ended.
    fn peer_gone(&mut self, now: Instant, link: LinkId, reason: DownReason, told: &mut LinkLogLimiter) {
        let Some(peer) = self.peer_at(link) else { return };
        self.to_peers.remove(&peer);
        let before = self.missed.insert(peer, Resync::From(now + CALL_PEER_AGAIN));
        if !matches!(before, Some(Resync::From(_))) && told.allows(now, (peer, "ended")) {
            info!(cpf = peer.0, %reason, "the link to another CPF was lost and is set up again; further losses are not logged for an hour");
        }
    }

    /// It is there again.
    fn peer_reached(&mut self, now: Instant, link: LinkId, told: &mut LinkLogLimiter) {
        let Some(peer) = self.peer_at(link) else { return };
        if let Some(again) = self.missed.get_mut(&peer) {
            if told.allows(now, (peer, "reached")) {
                info!(cpf = peer.0, "the link to another CPF is up again: checkpoints are sent again");
            }
            *again = Resync::After(None);
        }
    }

    fn peer_at(&self, link: LinkId) -> Option<CpfId> {
        self.to_peers.iter().find(|(_, of)| **of == link).map(|(peer, _)| *peer)
    }
}

/// Of which links to other CPFs it was told lately that they ended, or stand again: one that takes what is said for another life's
/// ends its link each second.
type LinkLogLimiter = LogLimiter<(CpfId, &'static str)>;

/// The process, on one thread.
pub(crate) struct CpfProcess {
    settings: Settings,
    discovery: Option<CtaDiscovery>,
    links: Links,
    /// That to the CTA.
    cta: Option<LinkId>,
    /// Which of those that may serve it is or is called next, and since when it is called in vain.
    nth: usize,
    called: Option<Instant>,
    call_at: Instant,
    /// Since when no CTA takes it, and what was told of that.
    in_vain: Option<Instant>,
    told_in_vain: RejectedPeers,
    /// Those that are called and that it cannot speak with, and why.
    told_unfit: LogLimiter<(SocketAddr, String)>,
    answering: HeartbeatResponder,
    sandbox: Sandbox,
    watched: InputWatchdog,
    /// How often it began anew: trials of a life before do not matter any more.
    lives: u64,
    /// How often of that as a member.
    begun_anew: u64,
    membership: Option<Membership>,
    /// It is on its way out.
    leaves: bool,
    events: Events,
    rejected_peers: RejectedPeers,
    /// Where other CPFs that have called are seen.
    callers: BTreeMap<LinkId, SocketAddr>,
    told_of_links: LinkLogLimiter,
    /// What is wrong with what other CPFs say.
    wrong: LogLimiter<&'static str>,
    /// Messages of them that could not be read, and of whom that was told.
    unread: u64,
    told_unread: LogLimiter<IpAddr>,
    /// `None`: nobody asks.
    vitals: Option<StatusReporter>,
    out: CpfOutbox,
    frame: Vec<u8>,
}

impl CpfProcess {
    /// Opens its sockets. Errors: one sentence.
    pub(crate) fn open(mut settings: Settings) -> Result<Self, String> {
        let links = Links::open(super::settings(settings.listen, Role::Cpf, settings.key_file.as_deref())?)
            .map_err(|e| format!("--listen: {e}"))?;
        settings.listen = links.local_addr().unwrap_or(settings.listen);
        let at_etcd = settings.at_etcd.take();
        let discovery = at_etcd
            .map(|at| CtaDiscovery::start(at, settings.region.clone(), settings.listen))
            .transpose()?;
        let vitals = settings.console.take().map(StatusReporter::new);
        let answering = HeartbeatResponder::start(settings.listen)
            .map_err(|e| format!("--listen: heartbeats cannot be taken at {}: {e}", settings.listen))?;
        Ok(Self {
            settings,
            discovery,
            links,
            cta: None,
            nth: 0,
            called: None,
            call_at: Instant::ZERO,
            in_vain: None,
            told_in_vain: RejectedPeers::default(),
            told_unfit: LogLimiter::new("CTAs that are called"),
            answering,
            sandbox: Sandbox::start()?,
            watched: InputWatchdog::start("CPF")?,
            lives: 0,
            begun_anew: 0,
            membership: None,
            leaves: false,
            events: Events::default(),
            rejected_peers: RejectedPeers::default(),
            callers: BTreeMap::new(),
            told_of_links: LogLimiter::new("links to other CPFs"),
            wrong: LogLimiter::new("what other CPFs say"),
            unread: 0,
            told_unread: LogLimiter::new("messages of other CPFs"),
            vitals,
            out: CpfOutbox::default(),
            frame: Vec::new(),
        })
    }

    /// Where other CPFs reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.settings.listen
    }

    /// Works until told to stop.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        let mut spin_until = Instant::ZERO;
        while !stop.load(Ordering::Acquire) {
            let now = clock::now();
            if self.turn(now) {
                spin_until = clock::now() + SPIN;
            } else if clock::now() < spin_until {
                std::hint::spin_loop();
            } else {
                self.block(clock::now());
            }
        }
        self.depart();
    }

    /// Leaves in order: others have its UEs before it goes. Not if that takes too long, or nobody is there to take them.
    fn depart(&mut self) {
        let until = clock::now() + LEAVING;
        self.discovery.iter().for_each(CtaDiscovery::drains);
        if self.membership.is_some() {
            info!("this CPF leaves: its UEs move to other CPFs");
            self.leaves = true;
            self.answer(&ToCta::Leave);
        }
        while self.membership.is_some() && clock::now() < until {
            let now = clock::now();
            if !self.turn(now) {
                self.block(now);
            }
        }
        if let Some(link) = self.cta {
            self.links.close(link);
        }
        if let Some(discovery) = self.discovery.take() {
            discovery.leave();
        }
    }

    pub(super) fn turn(&mut self, now: Instant) -> bool {
        if self.answering.is_replaced() {
            self.leave(now, "it has declared this CPF lost");
            self.call_at = now;
        }
        if let Some(discovery) = &mut self.discovery {
            discovery.turn();
        }
        self.call(now);
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            match event {
                Event::Up { link, peer, hello, we_called } => self.up(now, link, (peer, we_called), hello),
                Event::Frame { link, octets } if self.cta == Some(link) => self.told(now, octets),
                Event::Frame { link, octets } => self.peer(now, link, octets),
                Event::Down { link, reason } if self.cta == Some(link) => self.cta_gone(now, reason),
                Event::Down { link, reason } => {
                    self.callers.remove(&link);
                    let (of, told) = (self.membership.iter_mut(), &mut self.told_of_links);
                    of.for_each(|m| m.peer_gone(now, link, reason, told));
                }
                Event::TurnedAway { peer, reason } => {
                    if self.rejected_peers.allows(now, peer, reason.label()) {
                        warn!(%peer, %reason, "an incoming link was rejected; further ones from this address are not logged");
                    }
                }
            }
        }
        let mut busy = !events.is_empty();
        self.events = events;
        busy |= self.tried();
        busy |= self.say_again(now);
        self.send(now);
        self.links.flush();
        if let Some(vitals) = self.vitals.take_if(|v| v.is_due(now)) {
            vitals.tell(now, self.state());
            self.vitals = Some(vitals);
        }
        busy
    }

    /// How it is.
    fn state(&self) -> State {
        let listed = self.discovery.as_ref().map(CtaDiscovery::is_listed);
        let (begun_anew, turned_away) = (self.begun_anew, self.rejected_peers.total());
        let nobody = "no CTA accepts this CPF: the log says why";
        let state = State {
            condition: (Condition::Down, nobody.into()),
            member_since: None,
            is_listed: listed == Some(true),
            ues: 0,
            states: 0,
            unreadable: 0,
            unread: self.unread,
            others: (0, 0),
            begun_anew,
            turned_away,
            ignored: self.answering.ignored(),
        };
        let Some(m) = &self.membership else { return state };
        let condition = if m.alone.is_some() {
            (Condition::Limited, "its CTA is lost: it waits for the CTA that takes over".into())
        } else if self.leaves {
            (Condition::Limited, "it leaves when other CPFs have its UEs".into())
        } else if listed == Some(false) {
            let why = "it is not registered in etcd: CTAs that reach etcd move its UEs to other CPFs";
            (Condition::Limited, why.into())
        } else {
            let Settings { region, listen, .. } = &self.settings;
            (Condition::Up, format!("CPF {} of its CTA, in region {region}, at {listen}", m.id.0))
        };
        State {
            condition,
            member_since: m.alone.is_none().then_some(m.since),
            ues: m.member.as_ref().map_or(0, ReplicatedCpf::serves),
            states: m.member.as_ref().map_or(0, ReplicatedCpf::backed),
            unreadable: m.member.as_ref().map_or(0, ReplicatedCpf::refused),
            others: (m.peers.len(), m.missed.len()),
            ..state
        }
    }

    /// Calls a CTA, if there is none; another one, if this one does not answer.
    fn call(&mut self, now: Instant) {
        let patience = self.called.is_some_and(|at| now >= at + CALLED_WITHIN) && self.to_call().len() > 1;
        if patience && let Some(link) = self.cta.take() {
            self.links.close(link);
            self.is_called_in_vain(now, DownReason::Vanished);
            (self.called, self.nth) = (None, self.nth + 1);
        }
        if let Some(Membership { alone: Some(since), .. }) = &self.membership
            && now >= *since + CTA_REPLICA_WITHIN
        {
            warn!("no CTA has taken over for an hour: this CPF drops its UEs and joins again");
            self.begin_anew(now);
        }
        if self.cta.is_none() && now >= self.call_at {
            let to_call = self.to_call();
            let since = *self.in_vain.get_or_insert(now);
            if to_call.is_empty() {
                self.call_at = now + CALL_AGAIN; // etcd names nobody yet
                let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
                // Of an etcd that does not answer that is told, and why.
                let answers = self.discovery.as_ref().is_some_and(|f| f.listed.is_some());
                if answers && now >= since + TOLD_AFTER && self.told_in_vain.allows(now, nobody, "nobody") {
                    warn!(
                        "no CTA is known: etcd names no primary; `--name` and `--home` must equal the CTA's `cluster.name` and `cluster.home`"
                    );
                }
                return;
            }
            let at = to_call[self.nth % to_call.len()];
            self.cta = Some(self.links.connect(now, at));
            self.called = Some(now);
        }
    }

    /// A CTA is called that does not take this CPF. Told when that has lasted.
    fn is_called_in_vain(&mut self, now: Instant, reason: DownReason) {
        let (None, Some(since)) = (&self.membership, self.in_vain) else { return };
        let to_call = self.to_call();
        let Some(at) = to_call.get(self.nth % to_call.len().max(1)) else { return };
        if now >= since + TOLD_AFTER && self.told_in_vain.allows(now, *at, reason.label()) {
            let look = look_at(reason);
            warn!(cta = %at, "no CTA accepts this CPF, which keeps connecting: {reason}; {look}");
        }
    }

    /// Those that may serve, the CTA replica first.
    fn to_call(&self) -> Vec<SocketAddr> {
        let cta_replica = self.membership.as_ref().and_then(|m| m.cta_replica);
        let found = self.discovery.as_ref().map(CtaDiscovery::ctas).unwrap_or_default();
        let others = self.settings.ctas.iter().copied().chain(found).filter(|at| Some(*at) != cta_replica);
        cta_replica.into_iter().chain(others).collect()
    }

    /// The CTA's CTA replica serves now, says somebody: the CTA may hang, or be cut off, and its link stand; or one is called that
    /// does not answer, while the CTA replica awaits this CPF for a while only.
    fn taken_over(&mut self, now: Instant, by: SocketAddr) {
        let calls_cta_replica = self.nth.is_multiple_of(self.to_call().len().max(1));
        let Some(m) = self.membership.as_mut().filter(|m| m.cta_replica.is_some()) else { return };
        if m.alone.is_some() && calls_cta_replica {
            return;
        }
        if m.alone.replace(m.alone.unwrap_or(now)).is_none() {
            warn!(%by, "another CTA took over from this CPF's CTA");
        }
        (self.nth, self.called, self.call_at) = (0, None, now);
        if let Some(link) = self.cta.take() {
            self.links.close(link);
        }
    }

    /// The link to the CTA has ended.
    fn cta_gone(&mut self, now: Instant, reason: DownReason) {
        (self.cta, self.called) = (None, None);
        match &mut self.membership {
            Some(_) if self.leaves => {
                info!("other CPFs have the UEs of this CPF");
                self.begin_anew(now);
            }
            Some(m) if m.keep => {
                if m.alone.is_none() {
                    warn!(%reason, "the link to the CTA was lost: this CPF connects to the CTA replica");
                    (m.alone, self.nth) = (Some(now), 0);
                    self.call_at = now;
                } else {
                    self.nth += 1;
                    self.call_at = now + CALL_SOON;
                }
            }
            Some(_) => {
                warn!(%reason, "the link to the CTA was lost: this CPF drops its UEs and joins again");
                self.begin_anew(now);
            }
            None => {
                debug!(%reason, "the CTA cannot be reached");
                self.is_called_in_vain(now, reason);
                self.nth += 1;
                self.begin_anew(now);
            }
        }
    }

    /// Takes what became of trials; says whether there was anything.
    fn tried(&mut self) -> bool {
        let mut busy = false;
        while let Some((life, trial, became)) = self.sandbox.outcome() {
            busy = true;
            if let Some(Membership { member: Some(member), .. }) = &mut self.membership
                && life == self.lives
            {
                self.watched.during(|| member.tried(trial, became, &mut self.out));
            }
        }
        busy
    }

    /// A link is there, and its other end has said what it is.
    fn up(&mut self, now: Instant, link: LinkId, (peer, we_called): (SocketAddr, bool), hello: &[u8]) {
        let hello = Hello::from_octets(hello);
        if self.cta == Some(link) {
            match hello {
                Ok(Hello { role: Role::Cta, .. }) => {
                    debug!(cta = %peer, "a CTA is reached");
                    let Settings { region, listen, .. } = &self.settings;
                    self.answer(&match &self.membership {
                        Some(m) => ToCta::Resume { life: m.life, id: m.id, has: m.end.taken() },
                        None => ToCta::Join { region: region.clone(), address: *listen },
                    });
                }
                Ok(Hello { role: Role::Cpf, .. }) => self.is_none_for_it(now, peer, "it is a CPF"),
                Err(e) => self.is_none_for_it(now, peer, &e.to_string()),
            }
            return;
        }
        let why = match hello {
            Ok(Hello { role: Role::Cpf, .. }) => {
                self.callers.extend((!we_called).then_some((link, peer)));
                let (of, told) = (self.membership.iter_mut(), &mut self.told_of_links);
                return of.for_each(|m| m.peer_reached(now, link, told));
            }
            Ok(Hello { role: Role::Cta, .. }) => {
                // It needs no answer but a call: this is how it says that it serves.
                self.links.close(link);
                return self.taken_over(now, peer);
            }
            Err(why) => why,
        };
        if self.rejected_peers.allows(now, peer, why.label()) {
            warn!(%peer, "a link is refused: {why}");
        }
        self.links.close(link);
    }

    /// What is called is not to be spoken with, now and later: another one is called, if there is one.
    fn is_none_for_it(&mut self, now: Instant, peer: SocketAddr, why: &str) {
        if self.told_unfit.allows(now, (peer, why.to_owned())) {
            warn!(cta = %peer, "this process is not a usable CTA: {why}; connecting is repeated, and this is not logged again for an hour");
        }
        self.nth += 1;
        self.part(now);
    }

    /// The CTA has done what it must not.
    fn leave(&mut self, now: Instant, why: &str) {
        warn!("this CPF leaves its CTA: {why}");
        self.part(now);
    }

    fn part(&mut self, now: Instant) {
        if let Some(link) = self.cta {
            self.links.close(link);
        }
        self.begin_anew(now);
        self.call_at = now + MENDED_AFTER;
    }

    /// What it was to the CTA is over.
    fn begin_anew(&mut self, now: Instant) {
        self.answering.be(None);
        self.begun_anew += u64::from(self.membership.is_some());
        for link in self.membership.take().into_iter().flat_map(|m| m.to_peers.into_values()) {
            self.links.close(link);
        }
        if let Some(link) = self.cta.take() {
            self.links.close(link);
        }
        self.called = None;
        self.call_at = now + CALL_AGAIN;
        self.lives += 1;
        self.out = CpfOutbox::default();
    }

    fn told(&mut self, now: Instant, octets: &[u8]) {
        let message = match ToCpf::read(octets) {
            Ok(message) => message,
            Err(e) => return self.leave(now, &e.to_string()),
        };
        match (message, &mut self.membership) {
            (ToCpf::Welcome { life, id, heartbeats, keep }, None) => {
                let (peers, to_peers, missed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
                self.membership = Some(Membership {
                    since: now,
                    life,
                    id,
                    member: None,
                    keep,
                    cta_replica: None,
                    end: LinkEnd::default(),
                    told: 0,
                    listed: None,
                    alone: None,
                    peers,
                    to_peers,
                    missed,
                });
                (self.called, self.in_vain) = (None, None);
                self.answering.be(Some((MemberId::Cpf(id), &heartbeats.0)));
                info!(cpf = id.0, "this CPF has joined a CTA");
            }
            (ToCpf::Resumed { taken, heartbeats }, Some(m)) if m.alone.is_some() => {
                let again = m.end.resume(taken).map(|frames| {
                    frames.for_each(|frame| self.cta.iter().for_each(|l| self.links.send(*l, frame)));
                });
                if again.is_none() {
                    return self.leave(now, "it lacks messages that the former one received");
                }
                (m.alone, m.listed, self.called, self.in_vain) = (None, None, None, None);
                self.answering.be(Some((MemberId::Cpf(m.id), &heartbeats.0)));
                info!(cpf = m.id.0, "this CPF resumed with another CTA");
            }
            (ToCpf::Forgotten, _) => {
                info!("the CTA does not know this CPF: it joins again");
                self.begin_anew(now);
                self.call_at = now;
            }
            (ToCpf::Command(_) | ToCpf::ListUes { .. }, Some(m)) if m.alone.is_some() => {
                self.leave(now, "it sent an unexpected message");
            }
            (ToCpf::CtaReplica(at), Some(m)) => m.cta_replica = at,
            (ToCpf::Taken(messages), Some(m)) => m.end.confirmed(messages),
            (ToCpf::Peers(peers), Some(m)) => {
                m.peers = peers.into_iter().filter(|(id, _)| *id != m.id).collect();
                m.to_peers.retain(|id, link| {
                    let stays = m.peers.contains_key(id);
                    if !stays {
                        self.links.close(*link);
                    }
                    stays
                });
                m.missed.retain(|id, _| m.peers.contains_key(id));
            }
            // This one is no part of what its link counts: it goes before.
            (ToCpf::Command(CpfCommand::Configure(config)), Some(m)) if m.member.is_none() => {
                self.sandbox.configure(&config);
                m.member = Some(ReplicatedCpf::new(config));
            }
            (ToCpf::Command(message), Some(Membership { member: Some(member), end, .. })) => {
                end.took();
                if let CpfCommand::Configure(config) = &message {
                    self.sandbox.configure(config);
                }
                let timed = self.vitals.as_mut().filter(|_| matches!(message, CpfCommand::Run(_)));
                let began = timed.is_some().then(clock::now);
                self.watched.during(|| member.handle(message, &mut self.out));
                if let (Some(vitals), Some(began)) = (timed, began) {
                    vitals.ran(clock::now().since(began));
                }
            }
            (ToCpf::ListUes { ask, which }, Some(Membership { member: Some(member), .. })) => {
                let ues = member.show(which);
                self.answer(&ToCta::UeList { ask, ues });
            }
            _ => self.leave(now, "it sent an unexpected message"),
        }
    }

    /// Another CPF says something, such as a UE's state.
    fn peer(&mut self, now: Instant, link: LinkId, octets: &[u8]) {
        match (ToPeer::read(octets), &mut self.membership) {
            (
                Ok(ToPeer { life, from, message }),
                Some(Membership { life: present, member: Some(member), .. }),
            ) if life == *present => {
                let refused = member.refused();
                member.peer(from, message, &mut self.out);
                if member.refused() > refused && self.wrong.allows(now, "state") {
                    warn!(
                        cpf = from.0,
                        "a CPF sent a checkpoint of another UE, or of another point of its log, than announced: it is not stored; the CTA counts further ones"
                    );
                }
            }
            // Or this one has not heard yet what the sender was told: who sent it says it again.
            (Ok(_), _) => {
                debug!("a message of a CPF belongs to another run of its CTA");
                self.callers.remove(&link);
                self.links.close(link);
            }
            // The next messages are whole all the same. If the link ended here, its sender would say all of it again on the next one, each
            // second, and the states that come after this one would never be here.
            (Err(why), _) => self.unreadable(now, link, why),
        }
    }

    fn unreadable(&mut self, now: Instant, link: LinkId, why: LinkError) {
        self.unread += 1;
        let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let peer = self.callers.get(&link).copied().unwrap_or(nobody);
        if self.told_unread.allows(now, peer.ip()) {
            let peers = self.membership.iter().flat_map(|m| &m.peers);
            let numbers = peers.filter(|(_, at)| at.ip() == peer.ip()).map(|(id, _)| id.0);
            let cpfs = numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
            warn!(
                %peer, cpfs,
                "a message of a CPF at this address cannot be read: {why}; its other messages are handled, and further ones are only counted (whimbrel_cpf_messages_unreadable_total)"
            );
        }
    }

    /// Calls those to whom a link has ended, and sends them again what may not have come. Says whether there is more to send at once.
    fn say_again(&mut self, now: Instant) -> bool {
        let Some(Membership { member: Some(member), peers, to_peers, missed, .. }) = &mut self.membership
        else {
            return false;
        };
        let mut busy = false;
        missed.retain(|peer, again| {
            match again {
                Resync::From(at) => {
                    if now >= *at
                        && let Some(at) = peers.get(peer)
                    {
                        to_peers.entry(*peer).or_insert_with(|| self.links.connect(now, *at));
                    }
                }
                Resync::After(ue) => {
                    if to_peers.get(peer).is_none_or(|link| self.links.waiting(*link) > WAITS) {
                        return true;
                    }
                    *ue = self.watched.during(|| member.peer_reconnected(*peer, *ue, &mut self.out));
                    busy |= ue.is_some();
                    return ue.is_some();
                }
            }
            true
        });
        busy
    }

    /// What the member said leaves.
    fn send(&mut self, now: Instant) {
        for up in std::mem::take(&mut self.out.up) {
            if let CpfReport::CheckpointUnusable { ue, .. } = &up
                && self.wrong.allows(now, "unreadable")
            {
                warn!(
                    slot = ue.slot,
                    "a UE cannot be served from its checkpoint here, which is missing or not the announced one; the CTA counts further ones"
                );
            }
            self.say(up);
        }
        self.say_taken();
        self.say_listed();
        for trial in self.out.trials.drain(..) {
            self.sandbox.have_tried(self.lives, trial);
        }
        let Some(m) = &mut self.membership else { return };
        for (to, message) in self.out.peers.drain(..) {
            // Who is not known is gone: the CTA says who is to have a UE's state instead.
            let Some(at) = m.peers.get(&to) else { continue };
            let link = *m.to_peers.entry(to).or_insert_with(|| self.links.connect(now, *at));
            self.frame.clear();
            ToPeer { life: m.life, from: m.id, message }.write(&mut self.frame);
            self.links.send(link, &self.frame);
        }
    }

    /// What the protocol says to the CTA, or to its CTA replica when that one serves.
    fn say(&mut self, up: CpfReport) {
        self.frame.clear();
        ToCta::Report(up).write(&mut self.frame);
        let Some(m) = &mut self.membership else { return };
        if m.keep {
            m.end.sent(self.frame.clone());
        }
        if let (Some(link), None) = (self.cta, m.alone) {
            self.links.send(link, &self.frame);
        }
    }

    /// The CTA hears now and then how much it need not keep.
    fn say_taken(&mut self) {
        let Some(m) = self.membership.as_mut().filter(|m| m.keep && m.alone.is_none()) else { return };
        let taken = m.end.taken();
        if taken >= m.told + TAKEN_EVERY {
            m.told = taken;
            self.answer(&ToCta::Taken(taken));
        }
    }

    /// The CTA hears under which number etcd lists this one: the rings follow that list.
    fn say_listed(&mut self) {
        let Some(number) = self.discovery.as_ref().and_then(|f| f.listed) else { return };
        let Some(m) = self.membership.as_mut().filter(|m| m.alone.is_none()) else { return };
        if m.listed.replace(number) != Some(number) {
            self.answer(&ToCta::Listed(number));
        }
    }

    fn answer(&mut self, message: &ToCta) {
        let Some(link) = self.cta else { return };
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(link, &self.frame);
    }

    fn block(&self, now: Instant) {
        let calls = self.cta.is_none().then_some(self.call_at);
        let patience = self.called.map(|at| at + CALLED_WITHIN);
        let deadlines = [self.links.next_deadline(), calls, patience, Some(now + LOOK)];
        let wait = deadlines.into_iter().flatten().min().unwrap_or(now).since(now);
        if wait.is_zero() {
            return;
        }
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let mut fds =
            [self.links.fd(), self.sandbox.fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
    }
}

/// What an operator looks at when a CTA is not reached, or does not take a CPF.
fn look_at(reason: DownReason) -> &'static str {
    match reason {
        DownReason::Closed => "the CTA's log says why it closes the link, unless another CTA is the primary",
        DownReason::Left | DownReason::WrongKey | DownReason::Protection | DownReason::Unprotected => {
            "`--key-file` must hold the key of the CTA's `cluster.key_file`"
        }
        _ => "`--cta` must be the `cluster.listen` address of a running CTA",
    }
}
