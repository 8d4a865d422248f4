//! The UPF in the control thread's process: N4 is a function call, with the octets that another UPF would get.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};
use whimbrel_ids::{Instant, Seid};
use whimbrel_pfcp::ie::NodeId;
use whimbrel_user::logger::LoggerFrame;
use whimbrel_user::{
    AssociationEnd, Change, Config, DataNetwork, DropReason, Event, FirewallCounters, HostAddresses, Input,
    Ipv4Net, Ipv6Net, Outbox, PointToPoint, ReservedPools, Restored, SessionId, State, TEID_INDEX_BITS, UpfC,
};
use whimbrel_user_io::{
    Beats, DataNetworkDevice, Descriptors, FramesDevice, Handle, HostProblem, HostReport, N3Io, QueueFull,
    StartError, StateFile, Tapped, UserPlane, announce_changes, boot, state_file_was_truncated,
};

use super::logger_link::{LoggerLink, begin_again};
use super::n4::{N4Counters, N4Socket, UNSPECIFIED};
use super::unit_n4::{UnitN4, UnitN4End};
use crate::clock;
use crate::cluster::UpfLinks;
use crate::config;
use crate::config::typed::sixes;
use crate::function::{UnitFunction, descriptors};
use crate::log_limiter::LogLimiter;
use crate::observation::{Condition, Level, Metric, Sample};

/// Between attempts to get an association of an SMF that has not granted one: longer than N1 times T1 of a request.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Messages within the unit taken in one turn, beside those of links.
const UNIT_PER_TURN_MAX: usize = 64;

/// The shortest time between two notes to the replica that the state has changed: it reads what has changed in that time at once, and what it lacks is little.
const ANNOUNCED_EVERY: Duration = Duration::from_secs(1);

/// How long SMFs may take to notice that a UPF has restarted, by a heartbeat, and to restore its sessions.
const RESTORED_WITHIN: Duration = Config::HEARTBEAT_INTERVAL;

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
    /// The packet logger in front, through which N4 goes too.
    logger: Option<LoggerLink>,
    /// External SMFs that are asked for an association while they have none, and when next.
    smfs: Vec<SocketAddr>,
    ask_at: Instant,
    /// Messages that were malformed or unexpected.
    bad_messages: u64,
    /// Datagrams of external SMFs since they were taken last, while a capture is written.
    tapped: Option<Vec<Tapped>>,
    networks: Vec<DataNetwork>,
    n6: N6Watch,
}

/// How long the alarm about outside ports stays after the last UE that got none, or lost one.
const PORTS_ALARM: Duration = Duration::from_secs(60);

/// State of N6 at the last check; the next check logs only what is new.
#[derive(Default)]
struct N6Watch {
    problems: Vec<HostProblem>,
    /// Ports of each data network that UEs gave up, and packets of all that were dropped because no port was
    /// free.
    ports_given_up: Vec<u64>,
    without_port: u64,
    /// Data networks whose outside addresses are too few, until when.
    short_of_ports: Vec<(usize, Instant)>,
    is_truncated: bool,
}

impl N6Watch {
    /// Logs what is new in what was found on the host.
    fn log(&mut self, report: HostReport, is_truncated: bool) {
        report.put_back.iter().for_each(|line| warn!("N6: {line}"));
        for problem in report.problems.iter().filter(|p| !self.problems.contains(p)) {
            warn!("N6: {problem}");
        }
        for problem in self.problems.iter().filter(|p| !report.problems.contains(p)) {
            info!("N6: solved: {problem}");
        }
        self.problems = report.problems;
        if is_truncated && !std::mem::replace(&mut self.is_truncated, true) {
            warn!("N6: {TRUNCATED}");
        }
    }

    /// Looks for UEs that have got no outside port, or lost one.
    fn count_ports(&mut self, now: Instant, firewalls: &[FirewallCounters], without_port: u64) {
        self.ports_given_up.resize(firewalls.len(), 0);
        let some_without = without_port > std::mem::replace(&mut self.without_port, without_port);
        for (n, (firewall, before)) in firewalls.iter().zip(&mut self.ports_given_up).enumerate() {
            let given_up = firewall.ports_given_up;
            let more = given_up > std::mem::replace(before, given_up);
            if more || some_without && firewall.ports > 0 {
                if self.short_of_ports.iter().all(|(of, _)| *of != n) {
                    warn!("N6: outside addresses of a data network have no free port");
                }
                self.short_of_ports.retain(|(of, _)| *of != n);
                self.short_of_ports.push((n, now + PORTS_ALARM));
            }
        }
        self.short_of_ports.retain(|(_, until)| now < *until);
    }
}

/// The alarm about a state file that became shorter.
const TRUNCATED: &str = "another process has truncated the file in which the sessions of the UPF are kept, so those that begin now are lost when it ends; \
                         fix: restart the UPF, and keep others from its folder";

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

/// The configuration of the UPF.
pub fn config(c: &config::Config, seed: u64) -> Config {
    // For external SMFs, the address at which they reach it.
    let listens = c.n4.listen.map(|l| l.ip()).filter(|a| !a.is_unspecified());
    let own = if c.deployment.unit_function().is_some() { c.unit_upf().ip() } else { c.n4.node_id };
    let node = listens.unwrap_or(own);
    Config {
        node_id: match node {
            IpAddr::V4(a) => NodeId::Ipv4(a),
            IpAddr::V6(a) => NodeId::Ipv6(a),
        },
        n4: node,
        n3_ipv4: if let IpAddr::V4(a) = c.n3.address { Some(a) } else { None },
        n3_ipv6: if let IpAddr::V6(a) = c.n3.address { Some(a) } else { None },
        data_networks: c.data_networks.iter().map(data_network).collect(),
        // At most as many as leave the TEIDs' tags at full length.
        sessions_max: ((1 << TEID_INDEX_BITS) - 1).min(c.limits.ues.saturating_mul(2)),
        // If both ends are in one process, heartbeats would show nothing.
        heartbeat_interval: (c.n4.listen.is_some() || c.deployment.unit_function().is_some())
            .then_some(Config::HEARTBEAT_INTERVAL),
        path_failure: c.n4.path_failure,
        echo_interval: Some(Config::ECHO_INTERVAL),
        guaranteed: c.guaranteed_rates,
        slices: c.slice_rates.clone(),
        shards: c.n3.threads,
        applications: c.detection.clone(),
        buffering: c.buffering,
        flows_first: Config::FLOWS_FIRST,
        isolation: config::isolation::of(c),
        flows_second: c.limits.remembered_flows,
        cp_port: Config::PFCP_PORT,
        seed,
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

fn reserved(p: &config::ReservedPool) -> ReservedPools {
    ReservedPools {
        name: None,
        slices: vec![p.slice],
        ipv4_pools: p.ipv4_pool.iter().map(|p| Ipv4Net { address: p.address, prefix: p.length }).collect(),
        ipv6_pools: p.ipv6_pool.iter().map(|p| Ipv6Net { address: p.address, prefix: p.length }).collect(),
    }
}

fn data_network(n: &config::DataNetwork) -> DataNetwork {
    DataNetwork {
        dnn: n.dnn.clone(),
        ipv4_pools: n.ipv4_pool.iter().map(|p| Ipv4Net { address: p.address, prefix: p.length }).collect(),
        ipv6_pools: n.ipv6_pool.iter().map(|p| Ipv6Net { address: p.address, prefix: p.length }).collect(),
        dns_ipv6: sixes(&n.dns),
        mtu: n.mtu,
        ethernet: n.ethernet,
        unstructured: n.unstructured_server.filter(|_| n.unstructured).and_then(|server| match server {
            SocketAddr::V6(peer) => Some(PointToPoint { peer, port: peer.port() }),
            SocketAddr::V4(_) => None,
        }),
        reserved: n.reserved_pools.iter().map(reserved).collect(),
        firewall: n.firewall.clone(),
    }
}

impl LocalUpf {
    /// Opens the sockets and devices and starts the packet threads. `n4`: the socket for external SMFs, if configured.
    ///
    /// Errors: why it cannot start.
    pub fn start(
        c: &config::Config,
        seed: u64,
        n4: Option<N4Socket>,
        inherited: Inherited,
    ) -> Result<Self, StartError> {
        let mut user = config(c, seed);
        let Inherited { state, logger } = inherited;
        let alone = c.deployment.is_upf_alone();
        let held = state.as_ref().filter(|_| logger.is_none()).and_then(|file| file.file().ok());
        let state = state.map(|file| State::open(Box::new(file), &mut user, boot(), clock::now()));
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

    /// Whether an SMF outside the program has an association.
    pub(super) fn serves_others(&self) -> bool {
        self.endpoint.associations().any(|(_, peer)| peer != self.address)
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
        self.n6.log(self.plane.host_report(), state_file_was_truncated());
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
                tapped.push(Tapped { at: now, from: peer, to, octets: octets.to_vec() });
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
            tapped.push(Tapped { at: now, from, to, octets: octets.clone() });
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
    pub(super) fn take_tapped(&mut self) -> impl Iterator<Item = Tapped> {
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

    /// Its counters, for the metrics.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let c = self.plane.counters();
        let io = self.plane.io_counters();
        let one = |metric, value| Sample { metric, label: None, value };
        let mut samples = vec![
            one(Metric::N3UlPackets, c.ul_packets),
            one(Metric::N3UlBytes, c.ul_octets),
            one(Metric::N3DlPackets, c.dl_packets),
            one(Metric::N3DlBytes, c.dl_octets),
            one(Metric::UpfBufferedTotal, c.buffered),
            one(Metric::UpfBuffered, c.held),
            one(Metric::UpfBufferedBytes, c.held_octets),
            one(Metric::GtpuEchoRequests, c.echo_requests),
            one(Metric::GtpuEchoRequestsSent, c.echo_requests_sent),
            one(Metric::GtpuPaths, c.paths),
            one(Metric::GtpuPathsFailed, c.paths_failed),
            one(Metric::GtpuPathsUnsupervised, c.paths_unsupervised),
            one(Metric::GtpuPeersSuspended, c.peers_suspended),
            one(Metric::GtpuErrorIndicationsSent, c.error_indications_sent),
            one(Metric::GtpuErrorIndicationsReceived, c.error_indications_received),
            one(Metric::GtpuEndMarkersSent, c.end_markers_sent),
            one(Metric::UpfCopiesSent, c.copies_sent),
            one(Metric::GtpuEndMarkersReceived, c.end_markers_received),
            one(Metric::GtpuEndMarkersRelayed, c.end_markers_relayed),
            one(Metric::N3Relayed, c.relayed),
            one(Metric::RouterAdvertisements, c.router_advertisements),
            one(Metric::UpfStrays, c.strays),
            one(Metric::UpfEcnMarked, c.ecn_marked),
            one(Metric::UpfFlowCacheL1Hits, c.flows_first),
            one(Metric::UpfFlowCacheL2Hits, c.flows_second),
            one(Metric::UpfFlowCacheMisses, c.flows_asked),
            one(Metric::UpfNamesKnown, c.names_known),
            one(Metric::UpfPredictionsTrue, c.predictions_true),
            one(Metric::UpfPredictionsFalse, c.predictions_false),
            one(Metric::UpfPredictionsFiltered, c.predictions_filtered),
            one(Metric::UpfPredictionsRefused, c.predictions_refused),
            one(Metric::UpfReportsLost, c.reports_lost),
            one(Metric::UpfSessions, c.sessions),
            one(Metric::N4BadMessages, self.bad_messages),
            one(Metric::CaptureLost, self.plane.tapped_lost()),
        ];
        samples.extend([
            one(Metric::N3Received, io.n3_received),
            one(Metric::N3Sent, io.n3_sent),
            one(Metric::N3SentBySocket, io.n3_sent_by_socket),
            one(Metric::N6Received, io.n6_received),
            one(Metric::N6Segmented, io.n6_long),
            one(Metric::N6Sent, io.n6_sent),
            one(Metric::N6SentByDevice, io.n6_sent_by_device),
        ]);
        samples.push(one(Metric::UpfThreadTransfers, io.handed_over));
        let fast = [("uplink", io.fast_uplink), ("downlink", io.fast_downlink)];
        samples.extend(fast.map(|(direction, value)| Sample {
            metric: Metric::UpfFastPathPackets,
            label: Some(direction.into()),
            value,
        }));
        samples.push(one(Metric::UpfFastPathSessions, io.fast_sessions));
        let lost = [
            ("fast_no_room", io.fast_no_room),
            ("hand_over_full", io.hand_over_full),
            ("send_full", io.send_full),
            ("send_error", io.send_errors),
            ("receive_full", io.receive_full),
            ("malformed", io.malformed),
        ];
        samples.extend(lost.map(|(reason, value)| Sample {
            metric: Metric::UpfIoDropped,
            label: Some(reason.into()),
            value,
        }));
        samples.push(one(Metric::UpfIoReceiveErrors, io.receive_errors));
        samples.extend(self.harvested());
        if self.n4.is_some() || self.unit.is_some() {
            let (c, unit) = (self.n4.as_ref().map(|n4| n4.counters).unwrap_or_default(), self.unit_counters);
            let unsent = self.links.as_ref().map_or(0, UpfLinks::unsent) + unit.unsent;
            samples.extend([
                one(Metric::N4Received, c.received + unit.received),
                one(Metric::N4Sent, c.sent + unit.sent),
                one(Metric::N4Unsent, c.unsent + unsent),
                one(Metric::N4Spoofed, c.impostors),
                one(Metric::N4UnknownPeer, c.unknown_peers),
            ]);
        }
        let mut firewalls: Vec<_> = c.firewalls.iter().flat_map(|b| self.firewall(b)).collect();
        firewalls.sort_by_key(|s| s.metric);
        samples.extend(firewalls);
        samples.extend(DropReason::ALL.iter().map(|&reason| Sample {
            metric: Metric::UpfDropped,
            label: Some(reason.name().into()),
            value: c.dropped(reason),
        }));
        samples
    }

    /// What the packet threads' background work has done, and what it found; nothing where it is off.
    fn harvested(&self) -> Vec<Sample> {
        let h = self.plane.harvest_counters();
        let one = |metric, value| Sample { metric, label: None, value };
        let of = |metric, label: &str, value| Sample { metric, label: Some(label.into()), value };
        let mut samples = vec![
            one(Metric::HarvestSurveys, h.surveys),
            one(Metric::HarvestWork, h.work_ns() / 1_000),
            of(Metric::HarvestSessions, "idle", h.places_idle),
            of(Metric::HarvestSessions, "stall", h.places_in_stalls),
            one(Metric::HarvestCost, h.cost_percent()),
        ];
        for (network, usage) in self.networks.iter().zip(&h.usage) {
            let dnn = network.dnn.to_string();
            samples.push(of(Metric::SurveySessions, &dnn, usage.sessions));
            samples.push(of(Metric::SurveyActive, &dnn, usage.active));
            samples.push(of(Metric::SurveyUplink, &dnn, usage.ul_octets));
            samples.push(of(Metric::SurveyDownlink, &dnn, usage.dl_octets));
        }
        samples
    }

    /// The counters of a data network's firewall. A rule is named by its number and its text.
    fn firewall(&self, b: &FirewallCounters) -> Vec<Sample> {
        let network = self.networks.get(usize::from(b.dn.0));
        let Some((dnn, firewall)) = network.and_then(|n| Some((&n.dnn, n.firewall.as_ref()?))) else {
            return Vec::new();
        };
        let of = |metric, value| Sample { metric, label: Some(dnn.to_string()), value };
        let mut samples = vec![
            of(Metric::FirewallFlows, b.flows),
            of(Metric::FirewallFlowsBegun, b.flows_begun),
            of(Metric::FirewallFlowsEvicted, b.flows_evicted),
            of(Metric::NatPorts, b.ports),
            of(Metric::NatPortsGivenUp, b.ports_given_up),
            of(Metric::NatPackets, b.translated),
        ];
        let rules = firewall.rules.iter().zip(&b.rules).enumerate();
        samples.extend(rules.map(|(i, (rule, value))| Sample {
            metric: Metric::FirewallRulePackets,
            label: Some(format!("{dnn} {}: {rule}", i + 1)),
            value: *value,
        }));
        samples
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
            if let Event::AssociationContested { peer, .. } = &event
                && !self.contested.allows(now, peer.ip())
            {
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
pub(super) fn apply(plane: &Handle, changes: impl IntoIterator<Item = Change>) {
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

/// The configuration of the packet threads. `alone`: there is no SMF in this program.
pub fn plane_config(
    c: &config::Config,
    user: &Config,
    keeps_state: bool,
    alone: bool,
) -> whimbrel_user_io::Config {
    let frames = |i: usize, n: &config::DataNetwork| FramesDevice {
        device: c.n6.frames_device_of(i),
        bridge: n.ethernet_bridge.clone(),
    };
    let device = |(i, n): (usize, &config::DataNetwork)| DataNetworkDevice {
        device: c.n6.device_of(i),
        nat: c.n6.nat && n.n6_link.is_none(),
        link: n.n6_link.clone(),
        frames: n.ethernet.then(|| frames(i, n)),
    };
    whimbrel_user_io::Config {
        devices: c.data_networks.iter().enumerate().map(device).collect(),
        port: c.n3.port,
        n3_io: match c.n3.io {
            config::IoChoice::Auto => N3Io::Auto,
            config::IoChoice::Udp => N3Io::Udp,
            config::IoChoice::AfXdp => N3Io::AfXdp,
            config::IoChoice::Xdp => N3Io::Xdp,
        },
        spread_by: c.n3.spread_by,
        busy_poll: Duration::from_micros(c.n3.busy_poll_us.into()),
        forwarding: c.n6.forwarding,
        journal: Some(c.store.path.with_extension("host")),
        keeps_state,
        held: None,
        harvest: c.n3.harvest,
        restored_within: if alone { RESTORED_WITHIN } else { Duration::ZERO },
        clock: Arc::new(clock::now),
        user: user.clone(),
    }
}

/// What a UPF goes on with that has stood before.
#[derive(Default)]
pub struct Inherited {
    /// Where its sessions are kept.
    pub state: Option<StateFile>,
    /// The packet logger in front, which has its sockets and devices, and the addresses of the logger's host.
    pub logger: Option<(Box<LoggerLink>, HostAddresses)>,
}

/// The sockets and devices of the UPF that this one replaces, or new ones, which the manager holds from then on: with the last of the two
/// they end. Errors: those of opening them.
fn ports_of_unit(c: &whimbrel_user_io::Config) -> Result<Descriptors, StartError> {
    let former = former_ports();
    if !former.is_empty() {
        let other = || {
            std::io::Error::other(
                "the number of packet threads or devices has changed: restart the whole unit",
            )
        };
        return Descriptors::from_list(former, c).ok_or_else(|| StartError::System(other()));
    }
    let mut fleeting = c.clone();
    fleeting.keeps_state = false;
    let opened = Descriptors::open(&fleeting)?;
    let held = opened.try_clone().map_err(StartError::System)?;
    for (i, descriptor) in held.into_list().iter().enumerate() {
        descriptors::keep(&port_name(i), descriptor.as_fd());
    }
    Ok(opened)
}

/// The sockets and devices of the UPF that runs, for its replica; `None` if they are not there, or not as many as are configured.
pub(super) fn inherited_ports(c: &whimbrel_user_io::Config) -> Option<Descriptors> {
    Descriptors::from_list(former_ports(), c)
}

fn former_ports() -> Vec<OwnedFd> {
    (0..).map_while(|i| descriptors::take(&port_name(i))).collect()
}

fn port_name(i: usize) -> String {
    format!("{}{i}", descriptors::UPF_PORTS)
}

/// Opens the file in which the UPF's sessions are kept. Errors: a sentence for the operator.
pub fn open_state(c: &config::Config, path: &Path) -> Result<StateFile, String> {
    StateFile::open(path, &config(c, 0)).map_err(|e| match e.kind() {
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

pub(super) fn log_restored(restored: Restored) {
    let Restored { sessions, lost, associations, refusal } = restored;
    if let Some(refusal) = refusal {
        return warn!("the state file is not taken over: {refusal}; the UPF starts without sessions");
    }
    if lost > 0 {
        warn!(
            "{lost} sessions of the state file could not be restored: their records are damaged, or do not fit the configuration"
        );
    }
    if associations > 0 {
        info!("N4: the UPF goes on with {sessions} sessions of {associations} SMFs from its state file");
    }
}

/// What happened on N3 or N4, in one sentence, and how much it matters.
fn sentence(event: &Event) -> (Level, String) {
    let deleted = |sessions: usize| match sessions {
        0 => String::new(),
        1 => "; one session was deleted".to_string(),
        n => format!("; {n} sessions were deleted"),
    };
    match event {
        Event::AssociationSetUp { node, peer, sessions_deleted } => (
            Level::Info,
            format!(
                "N4: the SMF {} at {peer} set up its association{}",
                named(node),
                deleted(*sessions_deleted)
            ),
        ),
        Event::AssociationEnded { node, sessions_deleted, why } => {
            let why = match why {
                AssociationEnd::Released => "it released it",
                AssociationEnd::Restarted => "it restarted",
                AssociationEnd::Silent => "it did not answer for `n4.path_failure`",
            };
            let deleted = deleted(*sessions_deleted);
            (Level::Info, format!("N4: the association of the SMF {} ended: {why}{deleted}", named(node)))
        }
        Event::AssociationSilent { node } => (
            Level::Info,
            format!("N4: the SMF {} does not answer heartbeat requests; its sessions are kept", named(node)),
        ),
        Event::AssociationContested { node, peer } => (
            Level::Warn,
            format!(
                "N4: a request from {peer} for the association of the SMF {} is refused, for that one lives: two SMFs have one node \
                 identity, or the request is forged (`n4.peers` lists who may send). Further ones from this address are not logged",
                named(node)
            ),
        ),
        Event::AssociationMoved { node, peer } => (
            Level::Info,
            format!(
                "N4: the SMF {} goes on at {peer}, another one of its set; its sessions stay",
                named(node)
            ),
        ),
        Event::PfdsProvisioned { peer, applications } => (
            Level::Info,
            format!("N4: the SMF at {peer} provided or removed the PFDs of {applications} applications"),
        ),
        Event::SessionRefused { peer, refusal, cause } => {
            let cause = *cause as u8;
            (
                Level::Warn,
                format!(
                    "N4: a session request of the SMF at {peer} was refused with PFCP cause {cause}: {refusal}"
                ),
            )
        }
        Event::StateFull { session } => {
            let what = session.map_or("the associations and applications".to_string(), |s| {
                format!("the session with SEID {:#018x}", s.seid().0)
            });
            (
                Level::Warn,
                format!("N4: the state file has no room for {what}: a restart would lose the last change"),
            )
        }
        Event::ReportUnanswered { peer } => {
            (Level::Warn, format!("N4: the SMF at {peer} did not answer a report; the report is lost"))
        }
        // Debug only: every host that reaches the socket could fill the log.
        Event::BadMessage { peer, message_type, cause } => {
            let answer = cause.map_or("no answer".into(), |c| format!("PFCP cause {}", c as u8));
            (
                Level::Debug,
                format!(
                    "N4: a message of type {message_type} from {peer} was malformed or unexpected: {answer}"
                ),
            )
        }
        Event::Path { peer, failed: true } => (
            Level::Warn,
            format!(
                "N3: the path to {peer} is down: no answer to three echo requests, and no G-PDU from there; packets are still sent"
            ),
        ),
        Event::Path { peer, failed: false } => (Level::Info, format!("N3: the path to {peer} is up again")),
        Event::SessionEstablished { .. } | Event::SessionDeleted { .. } => {
            (Level::Debug, format!("N4: {event:?}"))
        }
    }
}

/// A node identity (TS 29.244 §8.2.38) as an operator writes it.
fn named(node: &NodeId) -> String {
    match node {
        NodeId::Ipv4(a) => a.to_string(),
        NodeId::Ipv6(a) => a.to_string(),
        NodeId::Fqdn(name) => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Function, UnitDirectory};

    #[test]
    fn changes_are_announced_to_the_replica_at_most_once_a_second_and_the_last_one_in_any_case() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let watch = whimbrel_user_io::StateChanges::of(file.path()).unwrap();
        let is_announced = || {
            let descriptor = watch.as_fd().try_clone_to_owned().unwrap();
            let announced = whimbrel_user_io::readable(&[descriptor]).unwrap()[0];
            watch.take();
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

    #[test]
    fn the_upf_of_a_unit_has_a_node_identity_of_its_own_and_sends_heartbeats() {
        let of_unit = UnitFunction::new(Function::Upf, UnitDirectory::of(Path::new("/run/u")), "t".into());
        let upf = config(&config::default().deployed_as(config::Deployment::UnitUpf(of_unit)), 7);
        assert_eq!(upf.n4, IpAddr::from([127, 0, 0, 88]), "its node identity, by which no datagram is sent");
        assert!(upf.heartbeat_interval.is_some(), "it is another process than the SMF");
    }

    #[test]
    fn what_spreads_packets_among_the_packet_threads_reaches_the_user_plane() {
        use whimbrel_user_io::SpreadBy;
        let of = |text: &str| {
            let c = config::parse(text, Path::new("w.yaml")).unwrap();
            plane_config(&c, &config(&c, 1), false, true).spread_by
        };
        assert_eq!(of(""), SpreadBy::Teid);
        for (word, by) in [
            ("teid", SpreadBy::Teid),
            ("ue_address", SpreadBy::UeAddress),
            ("gnb_address", SpreadBy::GnbAddress),
            ("gnb_flow", SpreadBy::GnbFlow),
        ] {
            assert_eq!(of(&format!("n3:\n  spread_by: {word}\n")), by);
        }
    }

    #[test]
    fn log_lines_of_n3_and_n4_are_sentences_without_debug_structures() {
        let (node, peer) =
            (NodeId::from(IpAddr::from([192, 0, 2, 7])), SocketAddr::from(([192, 0, 2, 7], 8805)));
        let set_up = Event::AssociationSetUp { node: node.clone(), peer, sessions_deleted: 2 };
        let contested = Event::AssociationContested { node: node.clone(), peer };
        let ended = Event::AssociationEnded {
            node: node.clone(),
            sessions_deleted: 1,
            why: AssociationEnd::Restarted,
        };
        let down = Event::Path { peer: peer.ip(), failed: true };
        assert_eq!(
            sentence(&set_up),
            (
                Level::Info,
                "N4: the SMF 192.0.2.7 at 192.0.2.7:8805 set up its association; 2 sessions were deleted"
                    .into()
            )
        );
        assert_eq!(
            sentence(&ended).1,
            "N4: the association of the SMF 192.0.2.7 ended: it restarted; one session was deleted"
        );
        assert_eq!(
            sentence(&down),
            (
                Level::Warn,
                "N3: the path to 192.0.2.7 is down: no answer to three echo requests, and no G-PDU from there; packets are still sent"
                    .into()
            )
        );
        let moved = Event::AssociationMoved { node: node.clone(), peer };
        let silent = Event::AssociationSilent { node };
        let up = Event::Path { peer: peer.ip(), failed: false };
        for event in [set_up, contested, ended, down, moved, silent, up, Event::ReportUnanswered { peer }] {
            let (level, text) = sentence(&event);
            assert_ne!(level, Level::Debug);
            assert!(!text.contains(['{', '}', '"']) && !text.contains("event="), "{text}");
        }
    }
}
