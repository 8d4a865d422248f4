//! A CPF as a process: it joins a CTA, runs the UEs that are assigned to it, and holds checkpoints of others as their replica.
//! When its CTA is lost, it resumes with the CTA replica, if there is one. Otherwise, and when the CTA has declared it lost, it drops
//! its UEs and joins again.

mod cta_messages;
mod peers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, info, warn};
use whimbrel_ids::{Instant, SNssai};
use whimbrel_link::{DownReason, Event, LinkEvents, LinkId, Links, Spin};
use whimbrel_resilience::cta_replica::LinkEnd;
use whimbrel_resilience::link::{Hello, LinkRole, ToCta};
use whimbrel_resilience::region::Region;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CpfOutbox, ReplicatedCpf};

use self::peers::{MemberPeers, PeerCpfs};
use super::discovery::{AtEtcd, CtaDiscovery};
use super::heartbeat::HeartbeatResponder;
use super::rejected_peers::RejectedPeers;
use super::replay_sandbox::Sandbox;
use super::status::{CpfStatus, StatusReporter};
use super::watchdog::InputWatchdog;
use crate::clock;
use crate::config::MemoryConfig;
use crate::log_limiter::LogLimiter;
use crate::observation::{Condition, Console};
use crate::ue_memory::UeMemory;

/// How long to look for the next message before blocking, as the control thread does.
const SPIN: Duration = Duration::from_micros(50);
/// The longest time between two attempts to connect to a CTA.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);
/// The shortest time, and the time for a member, whose UEs wait.
const RECONNECT_SOON: Duration = Duration::from_millis(10);
/// How long an attempt may take before the next CTA is tried, if there is one.
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);
/// How long a member waits for a CTA that takes over: that CTA may wait for etcd. A CTA that does not know this CPF says so at once.
const TAKEOVER_WITHIN: Duration = Duration::from_secs(3600);
/// Between attempts to connect to a CTA that violates the protocol: connecting again does not mend it.
const MENDED_AFTER: Duration = Duration::from_secs(5);
/// How long attempts fail before the log says so: a CTA may be starting at the same time.
const LOGGED_AFTER: Duration = Duration::from_secs(2);
/// How long other CPFs have to take the UEs of a CPF that leaves.
const LEAVES_WITHIN: Duration = Duration::from_secs(10);
/// The longest time until a signal to stop is noticed.
const STOP_CHECKED_EVERY: Duration = Duration::from_millis(200);

/// What the operator configures.
pub struct CpfSettings {
    /// The addresses of the CTAs, of which one is the primary.
    pub ctas: Vec<SocketAddr>,
    /// Where further CTAs are found.
    pub at_etcd: Option<AtEtcd>,
    /// Where other CPFs, and heartbeats, reach this CPF.
    pub listen: SocketAddr,
    pub region: Region,
    /// The slice whose UEs it serves, if it serves one alone.
    pub slice: Option<SNssai>,
    /// The cluster's key, where the cluster is not on one host.
    pub key_file: Option<PathBuf>,
    /// The memory of its UEs at rest.
    pub memory: MemoryConfig,
    /// Where its status is shown, with `--api`.
    pub console: Option<Arc<Console>>,
}

/// Its membership of a CTA's cluster.
struct Membership {
    since: Instant,
    /// The CTA's life, within which CPF numbers are unique.
    life: u64,
    id: CpfId,
    /// `None` until the configuration has come.
    member: Option<ReplicatedCpf>,
    /// `None`: its UEs do not rest.
    memory: Option<UeMemory>,
    /// Messages are kept for the CTA replica until they are confirmed.
    keep: bool,
    /// Where the CTA replica is reached.
    cta_replica: Option<SocketAddr>,
    /// This end of the link with the CTA, which outlives connections: the unconfirmed messages, and how many were received.
    end: LinkEnd<Vec<u8>>,
    /// How many received messages have been confirmed to the CTA.
    confirmed: u64,
    /// The number in etcd that the CTA knows.
    listed: Option<CpfId>,
    /// Since when there is no CTA.
    orphaned: Option<Instant>,
    peers: MemberPeers,
}

/// The connection to a CTA.
struct CtaConnection {
    link: Option<LinkId>,
    /// Which of the possible CTAs is connected or tried next.
    next: usize,
    /// Since when the present attempt is unanswered.
    attempted: Option<Instant>,
    attempt_at: Instant,
    /// Since when no CTA has accepted this CPF.
    failing: Option<Instant>,
    log_failing: RejectedPeers,
    /// Processes that are not usable CTAs, and why.
    log_unusable: LogLimiter<(SocketAddr, String)>,
}

/// The process, on one thread.
pub struct CpfProcess {
    settings: CpfSettings,
    discovery: Option<CtaDiscovery>,
    links: Links,
    events: LinkEvents,
    frame: Vec<u8>,
    cta: CtaConnection,
    peers: PeerCpfs,
    responder: HeartbeatResponder,
    sandbox: Sandbox,
    watchdog: InputWatchdog,
    /// Counts memberships: the outcome of a trial for an earlier one is dropped.
    run: u64,
    /// How often a membership was lost.
    rejoins: u64,
    membership: Option<Membership>,
    /// It has asked its CTA to leave.
    leaving: bool,
    /// `None`: the status is not shown.
    status: Option<StatusReporter>,
    out: CpfOutbox,
}

impl CpfProcess {
    /// Opens its sockets. Errors: one sentence.
    pub fn open(mut settings: CpfSettings) -> Result<Self, String> {
        let mut links =
            Links::open(super::settings(settings.listen, LinkRole::Cpf, settings.key_file.as_deref())?)
                .map_err(|e| format!("--listen: {e}"))?;
        super::share_memory(&mut links);
        settings.listen = links.local_addr().unwrap_or(settings.listen);
        let at_etcd = settings.at_etcd.take();
        let discovery = at_etcd
            .map(|at| CtaDiscovery::start(at, settings.region.clone(), settings.listen))
            .transpose()?;
        let status = settings.console.take().map(StatusReporter::new);
        let responder = HeartbeatResponder::start(settings.listen)
            .map_err(|e| format!("--listen: heartbeats cannot be received at {}: {e}", settings.listen))?;
        Ok(Self {
            settings,
            discovery,
            links,
            events: LinkEvents::default(),
            frame: Vec::new(),
            cta: CtaConnection {
                link: None,
                next: 0,
                attempted: None,
                attempt_at: Instant::ZERO,
                failing: None,
                log_failing: RejectedPeers::default(),
                log_unusable: LogLimiter::new("the CTAs that this CPF connects to"),
            },
            peers: PeerCpfs::default(),
            responder,
            sandbox: Sandbox::start()?,
            watchdog: InputWatchdog::start("CPF")?,
            run: 0,
            rejoins: 0,
            membership: None,
            leaving: false,
            status,
            out: CpfOutbox::default(),
        })
    }

    /// Where other CPFs reach it.
    pub fn address(&self) -> SocketAddr {
        self.settings.listen
    }

    /// Works until `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool) {
        let mut spin = Spin::new(SPIN);
        while !stop.load(Ordering::Acquire) {
            let now = clock::now();
            if self.turn(now) {
                spin.came(clock::now());
            } else if spin.looks_again(clock::now()) {
                if self.sandbox.is_busy() {
                    std::thread::yield_now(); // the sandbox may have no other processor
                } else {
                    std::hint::spin_loop();
                }
            } else {
                self.block(clock::now());
            }
        }
        self.leave_cluster();
    }

    /// Leaves in order: other CPFs have its UEs before it exits, unless that takes too long or there are none.
    fn leave_cluster(&mut self) {
        let until = clock::now() + LEAVES_WITHIN;
        self.discovery.iter().for_each(CtaDiscovery::drain);
        if self.membership.is_some() {
            info!("this CPF leaves: its UEs move to other CPFs");
            self.leaving = true;
            self.send_to_cta(&ToCta::Leave);
        }
        while self.membership.is_some() && clock::now() < until {
            let now = clock::now();
            if !self.turn(now) {
                self.block(now);
            }
        }
        if let Some(link) = self.cta.link {
            self.links.close(link);
        }
        if let Some(discovery) = self.discovery.take() {
            discovery.leave();
        }
    }

    /// One turn. Returns whether anything happened.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        if self.responder.is_replaced() {
            self.leave_cta(now, "it has declared this CPF lost");
            self.cta.attempt_at = now;
        }
        if let Some(discovery) = &mut self.discovery {
            discovery.turn();
        }
        self.connect(now);
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            self.link_event(now, event);
        }
        let mut busy = !events.is_empty();
        self.events = events;
        busy |= self.take_trial_outcomes();
        busy |= self.resend_to_peers(now);
        self.deliver(now);
        self.links.flush();
        if let Some(Membership { member: Some(member), memory: Some(memory), .. }) = &mut self.membership {
            busy |= memory.turn(now, busy, Some(member.cpf_mut()));
        }
        if let Some(mut status) = self.status.take() {
            if status.is_due(now) {
                status.report(now, self.to_status());
            }
            self.status = Some(status);
        }
        busy
    }

    fn link_event(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Up { link, peer, hello, we_called } => self.link_up(now, link, (peer, we_called), hello),
            Event::Frame { link, octets } if self.cta.link == Some(link) => self.cta_message(now, octets),
            Event::Frame { link, octets } => self.peer_message(now, link, octets),
            Event::Down { link, reason } if self.cta.link == Some(link) => self.cta_lost(now, reason),
            Event::Down { link, reason } => self.peer_link_lost(now, link, reason),
            Event::Rejected { peer, reason } => {
                if self.peers.rejected.allows(now, peer, reason.label()) {
                    warn!(%peer, %reason, "an incoming link was rejected; further ones from this address are only counted");
                }
            }
        }
    }

    /// Its condition and what it counts.
    fn to_status(&self) -> CpfStatus {
        let listed = self.discovery.as_ref().map(CtaDiscovery::is_listed);
        let status = CpfStatus {
            condition: (Condition::Down, "no CTA accepts this CPF: the log says why".into()),
            member_since: None,
            is_listed: listed == Some(true),
            ues: 0,
            checkpoints: 0,
            unusable_checkpoints: 0,
            unreadable: self.peers.unreadable,
            peers: (0, 0),
            rejoins: self.rejoins,
            rejected: self.peers.rejected.total(),
            ignored: self.responder.ignored(),
            sbfd: self.responder.sbfd_figures(),
            memory: Vec::new(),
        };
        let Some(m) = &self.membership else { return status };
        let condition = if m.orphaned.is_some() {
            (Condition::Limited, "its CTA is lost: it waits for the CTA that takes over".into())
        } else if self.leaving {
            (Condition::Limited, "it leaves when other CPFs have its UEs".into())
        } else if listed == Some(false) {
            let why = "it is not registered in etcd: CTAs that reach etcd move its UEs to other CPFs";
            (Condition::Limited, why.into())
        } else {
            let CpfSettings { region, listen, .. } = &self.settings;
            (Condition::Up, format!("CPF {} of its CTA, in region {region}, at {listen}", m.id.0))
        };
        CpfStatus {
            condition,
            member_since: m.orphaned.is_none().then_some(m.since),
            ues: m.member.as_ref().map_or(0, ReplicatedCpf::serves),
            checkpoints: m.member.as_ref().map_or(0, ReplicatedCpf::backed),
            unusable_checkpoints: m.member.as_ref().map_or(0, ReplicatedCpf::refused),
            peers: m.peers.counts(),
            memory: m
                .memory
                .iter()
                .flat_map(|memory| memory.samples(m.member.as_ref().map(ReplicatedCpf::cpf)))
                .collect(),
            ..status
        }
    }

    /// Connects to a CTA if there is none, and to the next one if the present one does not answer.
    fn connect(&mut self, now: Instant) {
        let unanswered = self.cta.attempted.is_some_and(|at| now >= at + CONNECTED_WITHIN);
        if unanswered
            && self.possible_ctas().len() > 1
            && let Some(link) = self.cta.link.take()
        {
            self.links.close(link);
            self.log_failing(now, DownReason::Vanished);
            (self.cta.attempted, self.cta.next) = (None, self.cta.next + 1);
        }
        if let Some(Membership { orphaned: Some(since), .. }) = &self.membership
            && now >= *since + TAKEOVER_WITHIN
        {
            warn!("no CTA has taken over for an hour: this CPF drops its UEs and joins again");
            self.end_membership(now);
        }
        if self.cta.link.is_some() || now < self.cta.attempt_at {
            return;
        }
        let ctas = self.possible_ctas();
        let since = *self.cta.failing.get_or_insert(now);
        if ctas.is_empty() {
            return self.no_cta_known(now, since);
        }
        let at = ctas[self.cta.next % ctas.len()];
        self.cta.link = Some(self.links.connect(now, at));
        self.cta.attempted = Some(now);
    }

    /// The time until the next attempt: short at first, because a CTA that starts at the same time is there in a moment.
    fn pause(&self, now: Instant) -> Duration {
        pause_after(self.cta.failing.map_or(Duration::ZERO, |since| now.since(since)))
    }

    /// Etcd names no primary yet.
    fn no_cta_known(&mut self, now: Instant, since: Instant) {
        self.cta.attempt_at = now + self.pause(now);
        // If etcd does not answer at all, another line says so.
        let answers = self.discovery.as_ref().is_some_and(|d| d.listed.is_some());
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        if answers
            && now >= since + LOGGED_AFTER
            && self.cta.log_failing.allows(now, unspecified, "no_cta_known")
        {
            warn!(
                "no CTA is known: etcd names no primary; `--name` and `--home` must equal the CTA's `cluster.name` and `cluster.home`"
            );
        }
    }

    /// Logs, once attempts have failed for a while, that a CTA does not accept this CPF.
    fn log_failing(&mut self, now: Instant, reason: DownReason) {
        let (None, Some(since)) = (&self.membership, self.cta.failing) else { return };
        let ctas = self.possible_ctas();
        let Some(at) = ctas.get(self.cta.next % ctas.len().max(1)) else { return };
        if now >= since + LOGGED_AFTER && self.cta.log_failing.allows(now, *at, reason.label()) {
            let look = advice(reason);
            warn!(cta = %at, "no CTA accepts this CPF, which keeps connecting: {reason}; {look}");
        }
    }

    /// The CTAs that may be the primary; the known CTA replica first.
    fn possible_ctas(&self) -> Vec<SocketAddr> {
        let cta_replica = self.membership.as_ref().and_then(|m| m.cta_replica);
        let found = self.discovery.as_ref().map(CtaDiscovery::ctas).unwrap_or_default();
        let others = self.settings.ctas.iter().copied().chain(found).filter(|at| Some(*at) != cta_replica);
        cta_replica.into_iter().chain(others).collect()
    }

    /// Another CTA says that it has taken over. The link to the former one may still be up, if that one hangs or is cut off. Or this CPF tries a
    /// CTA that does not answer, while the new primary waits for it only for a while.
    fn cta_replaced(&mut self, now: Instant, by: SocketAddr) {
        let tries_replica = self.cta.next.is_multiple_of(self.possible_ctas().len().max(1));
        let Some(m) = self.membership.as_mut().filter(|m| m.cta_replica.is_some()) else { return };
        if m.orphaned.is_some() && tries_replica {
            return;
        }
        if m.orphaned.replace(m.orphaned.unwrap_or(now)).is_none() {
            warn!(%by, "another CTA took over from this CPF's CTA");
        }
        (self.cta.next, self.cta.attempted, self.cta.attempt_at) = (0, None, now);
        if let Some(link) = self.cta.link.take() {
            self.links.close(link);
        }
    }

    /// The link to the CTA was lost, or could not be set up.
    fn cta_lost(&mut self, now: Instant, reason: DownReason) {
        (self.cta.link, self.cta.attempted) = (None, None);
        match &mut self.membership {
            Some(_) if self.leaving => {
                info!("other CPFs have the UEs of this CPF");
                self.end_membership(now);
            }
            Some(m) if m.keep => {
                if m.orphaned.is_none() {
                    warn!(%reason, "the link to the CTA was lost: this CPF connects to the CTA replica");
                    (m.orphaned, self.cta.next) = (Some(now), 0);
                    self.cta.attempt_at = now;
                } else {
                    self.cta.next += 1;
                    self.cta.attempt_at = now + RECONNECT_SOON;
                }
            }
            Some(_) => {
                warn!(%reason, "the link to the CTA was lost: this CPF drops its UEs and joins again");
                self.end_membership(now);
            }
            None => {
                debug!(%reason, "the CTA cannot be reached");
                self.log_failing(now, reason);
                self.cta.next += 1;
                self.end_membership(now);
            }
        }
    }

    /// Takes outcomes of trials in the sandbox. Returns whether there were any.
    fn take_trial_outcomes(&mut self) -> bool {
        let mut busy = false;
        while let Some((run, trial, outcome)) = self.sandbox.outcome() {
            busy = true;
            if let Some(Membership { member: Some(member), .. }) = &mut self.membership
                && run == self.run
            {
                let mut run =
                    |out: &mut CpfOutbox| self.watchdog.during(|| member.tried(trial, outcome, out));
                match &mut self.status {
                    Some(status) => status.count_inputs(&mut self.out, run),
                    None => run(&mut self.out),
                }
            }
        }
        busy
    }

    /// A link is up, and its peer has sent its hello.
    fn link_up(&mut self, now: Instant, link: LinkId, (peer, we_called): (SocketAddr, bool), hello: &[u8]) {
        let hello = Hello::from_octets(hello);
        if self.cta.link == Some(link) {
            return match hello {
                Ok(Hello { role: LinkRole::Cta, .. }) => {
                    debug!(cta = %peer, "the link to a CTA is up");
                    let CpfSettings { region, listen, slice, .. } = &self.settings;
                    self.send_to_cta(&match &self.membership {
                        Some(m) => ToCta::Resume { life: m.life, id: m.id, has: m.end.taken() },
                        None => ToCta::Join { region: region.clone(), address: *listen, slice: *slice },
                    });
                }
                Ok(Hello { role: LinkRole::Cpf, .. }) => self.unusable_cta(now, peer, "it is a CPF"),
                Ok(Hello { role: LinkRole::Upf, .. }) => self.unusable_cta(now, peer, "it is a UPF"),
                Ok(Hello { role: LinkRole::Function, .. }) => {
                    self.unusable_cta(now, peer, "it is a network function");
                }
                Err(e) => self.unusable_cta(now, peer, &e.to_string()),
            };
        }
        match hello {
            Ok(Hello { role: LinkRole::Cpf, .. }) => self.peer_link_up(now, link, (peer, we_called)),
            Ok(Hello { role: LinkRole::Cta, .. }) => {
                // A CTA that has taken over says so by connecting; it expects this CPF to connect to it.
                self.links.close(link);
                self.cta_replaced(now, peer);
            }
            Ok(Hello { role: LinkRole::Upf | LinkRole::Function, .. }) => self.links.close(link),
            Err(why) => {
                if self.peers.rejected.allows(now, peer, why.label()) {
                    warn!(%peer, "a link is refused: {why}");
                }
                self.links.close(link);
            }
        }
    }

    /// This process cannot be used as a CTA: the next one is tried, if there is one.
    fn unusable_cta(&mut self, now: Instant, peer: SocketAddr, why: &str) {
        if self.cta.log_unusable.allows(now, (peer, why.to_owned())) {
            warn!(cta = %peer, "this process is not a usable CTA: {why}; connecting is repeated, and this is not logged again for an hour");
        }
        self.cta.next += 1;
        self.disconnect(now);
    }

    /// The CTA violated the protocol, or has declared this CPF lost.
    fn leave_cta(&mut self, now: Instant, why: &str) {
        warn!("this CPF leaves its CTA: {why}");
        self.disconnect(now);
    }

    fn disconnect(&mut self, now: Instant) {
        if let Some(link) = self.cta.link {
            self.links.close(link);
        }
        self.end_membership(now);
        self.cta.attempt_at = now + MENDED_AFTER;
    }

    /// Ends the membership, with all UEs.
    fn end_membership(&mut self, now: Instant) {
        self.responder.set_identity(None);
        self.rejoins += u64::from(self.membership.is_some());
        for link in self.membership.take().into_iter().flat_map(|m| m.peers.into_links()) {
            self.links.close(link);
        }
        if let Some(link) = self.cta.link.take() {
            self.links.close(link);
        }
        self.cta.attempted = None;
        self.cta.attempt_at = now + self.pause(now);
        self.run += 1;
        self.out = CpfOutbox::default();
    }

    fn block(&self, now: Instant) {
        let attempt = self.cta.link.is_none().then_some(self.cta.attempt_at);
        let unanswered = self.cta.attempted.map(|at| at + CONNECTED_WITHIN);
        let deadlines = [self.links.next_deadline(), attempt, unanswered, Some(now + STOP_CHECKED_EVERY)];
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

/// The pause before the next attempt to connect to a CTA, after attempts have failed for so long.
fn pause_after(failing: Duration) -> Duration {
    (failing / 4).clamp(RECONNECT_SOON, RECONNECT_AFTER)
}

/// What an operator checks when a CTA cannot be reached or does not accept this CPF.
fn advice(reason: DownReason) -> &'static str {
    match reason {
        DownReason::Closed => "the CTA's log says why it closes the link, unless another CTA is the primary",
        DownReason::Left | DownReason::WrongKey | DownReason::Protection | DownReason::Unprotected => {
            "`--key-file` must hold the key of the CTA's `cluster.key_file`"
        }
        _ => "`--cta` must be the `cluster.listen` address of a running CTA",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpf_tries_a_cta_that_starts_soon_and_one_that_stays_away_seldom() {
        assert_eq!(pause_after(Duration::ZERO), Duration::from_millis(10));
        let (mut failing, mut attempts) = (Duration::ZERO, 0);
        while failing < Duration::from_millis(100) {
            (failing, attempts) = (failing + pause_after(failing), attempts + 1);
        }
        assert!(attempts >= 7, "{attempts} attempts in the first tenth of a second");
        assert_eq!(pause_after(Duration::from_secs(60)), Duration::from_millis(200));
    }
}
