//! The UPF in the control thread's process: N4 is a function call, with the octets that another UPF would get.

mod configuration;
mod events;
mod n6_watch;
mod samples;
mod unit_ports;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};
use whimbrel_ids::{Instant, Seid};
use whimbrel_user::logger::LoggerFrame;
use whimbrel_user::{
    Config, DataNetwork, DropReason, Event, HostAddresses, Input, Outbox, SessionId, SessionMemory, UpfC,
    UserPlaneChange,
};
use whimbrel_user_io::{
    Beats, Handle, QueueFull, StartError, StateFile, TappedDatagram, UserPlane, announce_changes, boot_id,
    is_state_file_truncated,
};

pub use self::configuration::{plane_config, user_plane_config};
pub(super) use self::events::log_restored;
use self::events::sentence;
use self::n6_watch::{N6Watch, TRUNCATED};
pub(super) use self::unit_ports::inherited_ports;
use self::unit_ports::ports_of_unit;
use super::logger_link::{LoggerLink, begin_again};
use super::n4::{N4Counters, N4Socket, UNSPECIFIED};
use super::unit_n4::{UnitN4, UnitN4End};
use crate::clock;
use crate::cluster::UpfLinks;
use crate::config;
use crate::function::{UnitFunction, descriptors};
use crate::log_limiter::LogLimiter;
use crate::observation::{Condition, Level};

/// Between attempts to get an association of an SMF that has not granted one: longer than N1 times T1 of a request.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Messages within the unit taken in one turn, beside those of links.
const UNIT_PER_TURN_MAX: usize = 64;

/// The shortest time between two notes to the replica that the state has changed: it reads what has changed in that time at once, and what it lacks is little.
const ANNOUNCED_EVERY: Duration = Duration::from_secs(1);

/// The UPF: its PFCP endpoint here, its packets on threads of their own.
pub struct LocalUpf {
    endpoint: UpfC,
    plane: Handle,
    /// What the process that follows the state knows of its changes; `None`: no state is kept in a file.
    announced: Option<AnnouncedChanges>,
    /// Packet threads that are configured.
    threads: u8,
    out: Outbox,
    /// Both ends of N4 within the program.
    address: SocketAddr,
    /// N4 towards other SMFs.
    n4: Option<N4Socket>,
    /// The links of CTAs of this unit, by which N4 goes through shared memory.
    links: Option<UpfLinks>,
    /// N4 with the SMF of this unit while that has no link, and where that SMF is.
    unit: Option<(UnitN4, SocketAddr)>,
    /// Messages by links and within the unit.
    unit_counters: N4Counters,
    contested: LogLimiter<IpAddr>,
    unanswered: LogLimiter<IpAddr>,
    /// The packet logger in front, through which N4 goes too.
    logger: Option<LoggerLink>,
    /// External SMFs that are asked for an association while they have none, and when next.
    smfs: Vec<SocketAddr>,
    ask_at: Instant,
    /// Messages that were malformed or unexpected.
    bad_messages: u64,
    /// Datagrams of external SMFs since they were taken last, while a capture is written.
    tapped: Option<Vec<TappedDatagram>>,
    networks: Vec<DataNetwork>,
    n6: N6Watch,
}

/// What was announced to the replica of the changes of the state.
struct AnnouncedChanges {
    /// The state's file.
    file: Arc<File>,
    changes: u64,
    next: Instant,
}

impl AnnouncedChanges {
    /// Announces changes to the replica, unless some were announced just now.
    fn turn(&mut self, now: Instant, changes: u64) {
        if changes == self.changes || now < self.next {
            return;
        }
        (self.changes, self.next) = (changes, now + ANNOUNCED_EVERY);
        if let Err(e) = announce_changes(&self.file) {
            debug!(
                "changes cannot be announced to the replica of the UPF, which sees them when it takes over: {e}"
            );
        }
    }

    /// When that is due.
    fn due(&self, changes: u64) -> Option<Instant> {
        (changes != self.changes).then_some(self.next)
    }
}

/// Opens N4 with the SMF of this unit, if this process is in one, with what waits for the UPF before this one.
fn unit_n4(c: &config::Config) -> Option<(UnitN4, SocketAddr)> {
    let own = c.deployment.unit_function()?;
    let former = descriptors::take(descriptors::UPF_UNIT_N4);
    match UnitN4::open(&own.directory, UnitN4End::Upf, former) {
        Ok(unit) => {
            descriptors::keep(descriptors::UPF_UNIT_N4, unit.as_fd());
            Some((unit, SocketAddr::new(c.n4.node_id, Config::PFCP_PORT)))
        }
        Err(e) => {
            warn!("N4 goes through shared memory alone: no socket can be opened in `unit.directory`: {e}");
            None
        }
    }
}

impl LocalUpf {
    /// Opens the sockets and devices and starts the packet threads. `n4`: the socket for external SMFs, if
    /// configured.
    ///
    /// Errors: why it cannot start.
    pub fn start(
        c: &config::Config,
        seed: u64,
        n4: Option<N4Socket>,
        inherited: InheritedUpfState,
    ) -> Result<Self, StartError> {
        let mut user = user_plane_config(c, seed);
        let InheritedUpfState { state, logger } = inherited;
        let alone = c.deployment.is_upf_alone();
        let held = state.as_ref().filter(|_| logger.is_none()).and_then(|file| file.try_clone_file().ok());
        let state = state.map(|file| SessionMemory::open(Box::new(file), &mut user, boot_id(), clock::now()));
        let mut plane_config = plane_config(c, &user, state.is_some(), alone);
        plane_config.held = held.map(Arc::new);
        let announced = plane_config.held.clone();
        let plane = match (&logger, c.deployment.unit_function()) {
            (Some((logger, host)), _) => {
                let end = logger.end().map_err(StartError::System)?;
                let plane = UserPlane::start_behind_logger(plane_config, end)?;
                plane.set_host_addresses(host.clone());
                plane
            }
            (None, Some(_)) => {
                let ports = ports_of_unit(&plane_config)?;
                UserPlane::start_on(plane_config, ports)?
            }
            (None, None) => UserPlane::start(plane_config)?,
        };
        user.shards = plane.threads();
        let mut out = Outbox::default();
        let endpoint = match state {
            None => UpfC::new(user, clock::now())?,
            Some(state) => {
                let (endpoint, restored) = UpfC::with_state(user, clock::now(), state, &mut out)?;
                log_restored(restored);
                endpoint
            }
        };
        let mut upf = Self::of(c, endpoint, plane, n4, out);
        upf.announced = announced.map(|file| AnnouncedChanges { file, changes: 0, next: Instant::ZERO });
        upf.logger = logger.map(|(logger, _)| *logger);
        upf.drain(clock::now(), &mut Vec::new());
        upf.plane.begin();
        if let Some(logger) = &mut upf.logger {
            logger.send(&LoggerFrame::Serves);
            logger.flush();
        }
        show_beats(&upf.plane);
        Ok(upf)
    }

    fn of(c: &config::Config, endpoint: UpfC, plane: Handle, n4: Option<N4Socket>, out: Outbox) -> Self {
        let own = if c.deployment.is_upf_alone() { UNSPECIFIED } else { c.n4.node_id };
        Self {
            networks: endpoint.config().data_networks.clone(),
            endpoint,
            plane,
            announced: None,
            threads: c.n3.threads,
            out,
            logger: None,
            address: SocketAddr::new(own, Config::PFCP_PORT),
            n4,
            links: None,
            unit: unit_n4(c),
            unit_counters: N4Counters::default(),
            contested: LogLimiter::new("requests for associations of other SMFs"),
            unanswered: LogLimiter::new("reports that SMFs do not answer"),
            smfs: c.n4.smfs.clone(),
            ask_at: clock::now(),
            bad_messages: 0,
            tapped: None,
            n6: N6Watch::default(),
        }
    }

    /// A replica that has taken over, and whose packet threads run: the rest of it, and of the host.
    pub(super) fn of_replica(
        c: &config::Config,
        endpoint: UpfC,
        mut plane: Handle,
        n4: Option<N4Socket>,
        out: Outbox,
        plane_config: &whimbrel_user_io::Config,
    ) -> Self {
        if let Err(e) = plane.set_up_host(plane_config) {
            warn!("N6: the host is left as the UPF before this one has set it up: {e}");
        }
        let mut upf = Self::of(c, endpoint, plane, n4, out);
        let file = plane_config.held.clone();
        upf.announced = file.map(|file| AnnouncedChanges { file, changes: 0, next: Instant::ZERO });
        upf.drain(clock::now(), &mut Vec::new());
        upf
    }

    /// Takes links of the CTAs of this unit: N4 with an SMF that has one goes over it.
    pub fn take_links(&mut self, own: &UnitFunction) {
        self.links = UpfLinks::open(own);
    }

    /// A replica on this host of a UPF on another one, which has taken over behind the packet logger.
    pub(super) fn of_remote_replica(
        c: &config::Config,
        endpoint: UpfC,
        plane: Handle,
        out: Outbox,
        logger: LoggerLink,
    ) -> Self {
        let mut upf = Self::of(c, endpoint, plane, None, out);
        upf.logger = Some(logger);
        upf.drain(clock::now(), &mut Vec::new());
        upf
    }

    /// Takes what the packet logger has sent. Returns whether there was anything.
    fn take_from_logger(&mut self, now: Instant, answers: &mut Vec<Vec<u8>>) -> bool {
        let frames = self.logger.as_mut().map(|logger| logger.receive(now)).unwrap_or_default();
        let busy = !frames.is_empty();
        for frame in frames {
            match frame {
                LoggerFrame::FromSmf { counter, peer, octets } => {
                    self.endpoint.handle(now, Input::Pfcp { peer, octets: &octets }, &mut self.out);
                    self.drain(now, answers);
                    self.logger.iter_mut().for_each(|logger| logger.send(&LoggerFrame::Handled { counter }));
                }
                LoggerFrame::SendState => {
                    let state = self.endpoint.all_records();
                    self.logger.iter_mut().for_each(|logger| logger.send_state(state.clone()));
                }
                LoggerFrame::HostAddresses(_) => self.plane.set_host_addresses(frame.addresses()),
                // It is the same logger again, or one that has started again.
                LoggerFrame::Serve { .. } => {
                    self.logger.iter_mut().for_each(|logger| logger.send(&LoggerFrame::Serves));
                }
                LoggerFrame::Replaced => {
                    warn!("another UPF serves in the place of this one, which begins again as its replica");
                    begin_again();
                }
                LoggerFrame::Follow
                | LoggerFrame::SendAddress
                | LoggerFrame::State { .. }
                | LoggerFrame::Records { .. }
                | LoggerFrame::Acknowledge { .. }
                | LoggerFrame::Serves
                | LoggerFrame::ToSmf { .. }
                | LoggerFrame::Handled { .. } => {}
            }
        }
        self.logger.iter_mut().for_each(LoggerLink::flush);
        busy
    }

    /// Whether it leaves its sessions to a successor.
    pub(super) fn keeps_state(&self) -> bool {
        self.endpoint.keeps_state()
    }

    /// True if an SMF outside the program has an association and answers.
    pub(super) fn serves_others(&self) -> bool {
        self.endpoint.answering_associations().any(|(_, peer)| peer != self.address)
    }

    /// The reports that are kept for SMFs which are silent are lost with this UPF: the log says so.
    pub(super) fn give_up_kept_reports(&mut self, now: Instant) {
        self.endpoint.give_up_kept_reports(&mut self.out);
        self.drain(now, &mut Vec::new());
    }

    /// Asks external SMFs to move their sessions to other UPFs within `grace`.
    pub(super) fn retire(&mut self, now: Instant, grace: Duration) {
        self.ask_at = Instant::FAR_FUTURE;
        self.endpoint.retire(now, grace, &mut self.out);
        self.drain(now, &mut Vec::new());
    }

    /// How N3 is connected, and why not by AF_XDP where that was tried: a clause.
    pub fn n3_io(&self) -> String {
        let threads = match (self.plane.threads(), self.threads) {
            (1, 1) => String::new(),
            (n, asked) if n < asked => {
                let why = if self.plane.rings().is_some_and(|r| r.fast_path) {
                    "a fast path has one"
                } else {
                    "an interface has no more queues"
                };
                format!(", {n} of {asked} packet threads, for {why}")
            }
            (n, _) => format!(", {n} packet threads"),
        };
        if let Some(logger) = &self.logger {
            return format!("the packet logger {}", logger.logger());
        }
        match (self.plane.rings(), self.plane.obstacle()) {
            (Some(rings), _) => format!("{rings}{threads}"),
            (None, Some(obstacle)) => format!("UDP sockets{threads}, not AF_XDP: {obstacle}"),
            (None, None) => format!("UDP sockets{threads}"),
        }
    }

    /// What was set on the host.
    pub fn host_changes(&self) -> &[String] {
        self.plane.host_changes()
    }

    /// What was configured and is not available, a sentence each.
    pub fn notices(&self) -> Vec<String> {
        self.plane.notices().iter().map(ToString::to_string).collect()
    }

    /// The condition of N6: what was configured and is not available, and what other programs have changed on the host, which is logged too.
    pub(super) fn n6_condition(&mut self, now: Instant) -> (Condition, String) {
        self.n6.log(self.plane.host_report(), is_state_file_truncated());
        let counters = self.plane.counters();
        let without_port = counters.dropped[DropReason::NatNoPort as usize];
        self.n6.count_ports(now, &counters.firewalls, without_port);
        let mut wrong = self.notices();
        wrong.extend(self.n6.problems.iter().map(ToString::to_string));
        for (n, _) in &self.n6.short_of_ports {
            let network = counters.firewalls.get(*n).and_then(|f| self.networks.get(usize::from(f.dn.0)));
            let dnn = network.map(|network| network.dnn.to_string()).unwrap_or_default();
            wrong.push(format!(
                "UEs of `{dnn}` use all ports of an address of `nat_pool`, so that those with most ports lose some; fix: add addresses to \
                 `firewall.nat_pool`, or lower `nat_ports_per_ue`"
            ));
        }
        wrong.extend(self.n6.is_truncated.then(|| TRUNCATED.to_owned()));
        match wrong.is_empty() {
            true => (Condition::Up, self.host_changes().join("; ")),
            false => (Condition::Limited, wrong.join(". Also, ")),
        }
    }

    /// Handles a PFCP message of the SMF; `answers` gets what goes back.
    pub(super) fn pfcp(&mut self, now: Instant, octets: &[u8], answers: &mut Vec<Vec<u8>>) {
        self.endpoint.handle(now, Input::Pfcp { peer: self.address, octets }, &mut self.out);
        self.drain(now, answers);
    }

    /// Takes reports of the packet threads and messages of external SMFs, and runs the timers. Returns whether there were any.
    pub(super) fn turn(&mut self, now: Instant, answers: &mut Vec<Vec<u8>>) -> bool {
        let reports = self.plane.take_reports();
        let mut busy = !reports.is_empty();
        for report in reports {
            self.endpoint.handle(now, Input::Report(report), &mut self.out);
        }
        busy |= self.other_smfs(now);
        busy |= self.take_from_logger(now, answers);
        if self.ask_at <= now {
            self.ask_smfs(now);
        }
        if self.endpoint.next_deadline().is_some_and(|t| t <= now) {
            self.endpoint.handle(now, Input::Tick, &mut self.out);
        }
        self.drain(now, answers);
        let changes = self.endpoint.state_changes();
        self.announced.iter_mut().for_each(|announced| announced.turn(now, changes));
        busy
    }

    /// TS 29.244 §6.2.6.3.
    fn ask_smfs(&mut self, now: Instant) {
        self.ask_at = if self.smfs.is_empty() { Instant::FAR_FUTURE } else { now + ASK_AGAIN };
        let Self { endpoint, smfs, out, .. } = self;
        for smf in smfs.iter() {
            if endpoint.associations().all(|(_, peer)| peer.ip() != smf.ip()) {
                endpoint.associate(now, *smf, out);
            }
        }
    }

    /// Takes a bounded number of datagrams of external SMFs. Returns whether there were any.
    fn other_smfs(&mut self, now: Instant) -> bool {
        let to = self.n4_at();
        let Self { endpoint, out, n4, links, unit, tapped, .. } = self;
        let mut message = |peer, octets: &[u8]| {
            if let Some(tapped) = tapped {
                tapped.push(TappedDatagram { at: now, from: peer, to, octets: octets.to_vec() });
            }
            endpoint.handle(now, Input::Pfcp { peer, octets }, out);
        };
        let received = n4.as_mut().is_some_and(|n4| n4.receive(now, &mut message) > 0);
        let mut linked = 0;
        if let Some((unit, smf)) = unit {
            unit.flush();
            for _ in 0..UNIT_PER_TURN_MAX {
                let Some(octets) = unit.receive() else { break };
                linked += 1;
                message(*smf, octets);
            }
        }
        let came = links.as_mut().is_some_and(|links| {
            links.receive(now, |peer, octets| {
                linked += 1;
                message(peer, octets);
            })
        });
        self.unit_counters.received += linked;
        // Behind what is to be sent already, since it is repeated.
        out.datagrams.extend(links.iter_mut().flat_map(UpfLinks::take_unsettled));
        received | came | (linked > 0)
    }

    /// Where N4 ends in this UPF, for captures.
    fn n4_at(&self) -> SocketAddr {
        let c = self.endpoint.config();
        self.n4.as_ref().map_or(SocketAddr::new(c.n4, c.cp_port), N4Socket::at)
    }

    /// Sends a message to an SMF that is another process.
    fn send_pfcp(&mut self, now: Instant, to: SocketAddr, octets: Vec<u8>) {
        let counters = &mut self.unit_counters;
        let unit = self.unit.as_mut().filter(|(_, smf)| smf.ip() == to.ip());
        if self.links.as_mut().is_some_and(|links| links.send(now, to, &octets)) {
            counters.sent += 1;
        } else if let Some((unit, _)) = unit {
            match unit.send(&octets) {
                true => counters.sent += 1,
                false => counters.unsent += 1,
            }
        } else if let Some(n4) = &mut self.n4 {
            n4.send(to, &octets);
        }
        let from = self.n4_at();
        self.tapped.iter_mut().for_each(|tapped| {
            tapped.push(TappedDatagram { at: now, from, to, octets: octets.clone() });
        });
    }

    /// Starts or ends subscriber_copy what crosses N3, and N4 towards other SMFs.
    pub(super) fn tap(&mut self, on: bool) {
        self.plane.tap(on);
        self.tapped = on.then(Vec::new);
        if !on {
            self.plane.take_tapped();
        }
    }

    /// Whether it copies what crosses N3.
    pub(super) fn is_tapped(&self) -> bool {
        self.tapped.is_some()
    }

    /// The copies since the last call.
    pub(super) fn take_tapped(&mut self) -> impl Iterator<Item = TappedDatagram> {
        let n4 = self.tapped.as_mut().map(std::mem::take).unwrap_or_default();
        n4.into_iter().chain(self.plane.take_tapped())
    }

    /// When [`Self::turn`] is due.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let ue_queries = Some(self.ask_at).filter(|at| *at != Instant::FAR_FUTURE);
        let links = self.links.as_ref().and_then(UpfLinks::next_deadline);
        let logger = self.logger.as_ref().and_then(LoggerLink::next_deadline);
        let announced =
            self.announced.as_ref().and_then(|announced| announced.due(self.endpoint.state_changes()));
        self.endpoint
            .next_deadline()
            .into_iter()
            .chain(ue_queries)
            .chain(links)
            .chain(logger)
            .chain(announced)
            .chain(self.unit.as_ref().and_then(|(unit, _)| unit.next_deadline(now)))
            .min()
    }

    /// Readable when [`Self::turn`] or [`Self::take_tapped`] has something to take.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // Not after the end of a capture: a burst under way may still have left copies, which are not taken.
        let tapped = self.tapped.as_ref().map(|_| self.plane.tapped());
        let n4 = self.n4.as_ref().map(AsFd::as_fd);
        let unit = self.unit.as_ref().map(|(unit, _)| unit.as_fd());
        let links = self.links.as_ref().map(UpfLinks::fd);
        let logger = self.logger.as_ref().map(LoggerLink::fd);
        [Some(self.plane.reports()), tapped, n4, unit, links, logger].into_iter().flatten()
    }

    /// Where N4's ends are, for captures: SMF and UPF.
    pub(super) fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.address, self.address)
    }

    /// Octets that a session has carried, uplink and downlink: the packet thread is asked.
    pub(super) fn octets(&self, seid: Seid) -> Option<(u64, u64)> {
        let counted = self.plane.session_counters(SessionId::from_seid(seid)?)?;
        Some((counted.ul_octets, counted.dl_octets))
    }

    /// PDU sessions that stand.
    pub(super) fn sessions(&self) -> usize {
        self.endpoint.session_count()
    }

    fn drain(&mut self, now: Instant, answers: &mut Vec<Vec<u8>>) {
        if let Some(logger) = &mut self.logger {
            // The replica has the state before an SMF has the answer.
            logger.send_records(self.endpoint.take_records());
            for (to, octets) in self.out.datagrams.drain(..) {
                logger.send(&LoggerFrame::ToSmf { to, octets });
            }
            logger.flush();
        }
        let mut datagrams = std::mem::take(&mut self.out.datagrams);
        for (to, octets) in datagrams.drain(..) {
            match to == self.address {
                true => answers.push(octets),
                false => self.send_pfcp(now, to, octets),
            }
        }
        self.out.datagrams = datagrams; // its memory serves again
        self.links.iter_mut().for_each(UpfLinks::flush);
        apply(&self.plane, self.out.changes.drain(..));
        for event in self.out.events.drain(..) {
            self.bad_messages += u64::from(matches!(event, Event::BadMessage { .. }));
            let is_logged = match &event {
                Event::AssociationContested { peer, .. } => self.contested.allows(now, peer.ip()),
                Event::ReportUnanswered { peer } => self.unanswered.allows(now, peer.ip()),
                _ => true,
            };
            if !is_logged {
                continue;
            }
            let (level, sentence) = sentence(&event);
            match level {
                Level::Warn => warn!("{sentence}"),
                Level::Info => info!("{sentence}"),
                _ => debug!("{sentence}"),
            }
        }
    }
}

/// Hands changes to the packet threads.
pub(super) fn apply(plane: &Handle, changes: impl IntoIterator<Item = UserPlaneChange>) {
    for change in changes {
        // Full for a burst's time at most: the packet thread empties the queue before each burst.
        let mut waiting = plane.apply(change);
        while let Err(QueueFull(change)) = waiting {
            if !plane.is_running() {
                break;
            }
            std::thread::yield_now();
            waiting = plane.apply(change);
        }
    }
}

/// Has the packet threads show that they live, where the manager of a unit watches them.
pub(super) fn show_beats(plane: &Handle) {
    match descriptors::take(descriptors::UPF_BEATS).map(Beats::of) {
        Some(Ok(beats)) => plane.show_beats(beats),
        Some(Err(e)) => warn!("a packet thread that hangs is detected late: {e}"),
        None => {}
    }
}

/// What a UPF goes on with that has stood before.
#[derive(Default)]
pub struct InheritedUpfState {
    /// Where its sessions are kept.
    pub state: Option<StateFile>,
    /// The packet logger in front, which has its sockets and devices, and the addresses of the logger's host.
    pub logger: Option<(Box<LoggerLink>, HostAddresses)>,
}

/// Opens the file in which the UPF's sessions are kept. Errors: a sentence for the operator.
pub fn open_state(c: &config::Config, path: &Path) -> Result<StateFile, String> {
    StateFile::open(path, &user_plane_config(c, 0)).map_err(|e| match e.kind() {
        ErrorKind::WouldBlock => format!("another UPF runs with the state file {}", path.display()),
        _ => format!("the state file {} cannot be opened: {e}", path.display()),
    })
}

/// The key of a UPF's TEIDs, which it keeps beside its store for as long as it exists, so that sessions can be restored with the F-TEIDs that
/// they had. Where it cannot be kept, `fresh` serves this once.
pub fn kept_seed(c: &config::Config, fresh: u64) -> u64 {
    let path = c.store.path.with_extension("teids");
    let kept = std::fs::read(&path).ok().and_then(|octets| Some(u64::from_le_bytes(octets.try_into().ok()?)));
    if let Some(seed) = kept {
        return seed;
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
    if let Err(e) = file.and_then(|mut file| file.write_all(&fresh.to_le_bytes())) {
        warn!(
            "the key of F-TEIDs cannot be kept in {}: {e}; sessions will not be restored after a restart",
            path.display()
        );
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_announced_to_the_replica_at_most_once_a_second_and_the_last_one_in_any_case() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let watch = whimbrel_user_io::StateChangeWatch::of(file.path()).unwrap();
        let is_announced = || {
            let descriptor = watch.as_fd().try_clone_to_owned().unwrap();
            let announced = whimbrel_user_io::readable(&[descriptor]).unwrap()[0];
            watch.clear();
            announced
        };
        let mut announced =
            AnnouncedChanges { file: Arc::new(file.reopen().unwrap()), changes: 0, next: Instant::ZERO };
        let at = |ms: u64| Instant(1_793_700_000_000_000 + 1_000 * ms);
        let mut turn = |now, changes| {
            announced.turn(now, changes);
            (is_announced(), announced.due(changes))
        };
        assert_eq!(turn(at(0), 0), (false, None), "nothing has changed");
        assert_eq!(turn(at(1), 7), (true, None));
        assert_eq!(turn(at(2), 7), (false, None));
        assert_eq!(turn(at(3), 8), (false, Some(at(1_001))), "so soon again");
        assert_eq!(turn(at(900), 9), (false, Some(at(1_001))));
        assert_eq!(turn(at(1_001), 9), (true, None));
        assert_eq!(turn(at(9_000), 10), (true, None), "at once after a pause");
    }
}
