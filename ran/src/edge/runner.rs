//! Runs a scenario over real sockets.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use whimbrel_ids::{Instant, PduSessionId};
use whimbrel_privacy::token::TokenHash;
use whimbrel_sctp_io::{Event, Events, Mode, OpenError};

use super::clock::Clock;
use super::namespace::Namespace;
use super::session::SessionDevice;
use super::site::{AssociationRole, Site};
use super::tun::TunError;
use crate::cells::{Cells, GnbId, Input, Output, UserPlane};
use crate::gnb::{self, AmfInput, Gnb, GnbConfig, cause_text};
use crate::outbox::Outbox;
use crate::player::Player;
use crate::radio::UeId;
use crate::report::ScenarioReport;
use crate::scenario::{Scenario, ScenarioError};
use crate::ue::{self, MmState, UeCommand, UeConfig};

/// The largest datagram of UDP.
const DATAGRAM_OCTETS_MAX: usize = 65_536;
/// Datagrams of one socket in one turn of the loop, so that signalling is not held up.
const DATAGRAMS_A_TURN: usize = 64;
/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_millis(200);

/// A gNB and where it is.
#[derive(Clone, Debug)]
pub struct GnbPlace {
    /// Its configuration; its GTP address is bound too.
    pub config: GnbConfig,
    /// Its address on N2.
    pub address: IpAddr,
    /// The gNB's AMFs, if it has others than the rest; it selects among several.
    pub amfs: Vec<IpAddr>,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct RunnerConfig {
    /// The AMF's addresses.
    pub amf: Vec<IpAddr>,
    /// The AMF's SCTP port.
    pub amf_port: u16,
    /// The SCTP transport mode.
    pub sctp: Mode,
    /// UDP ports of SCTP encapsulation, ours and the AMF's, for [`Mode::Udp`].
    pub sctp_udp_ports: (u16, u16),
    /// The gNBs with their addresses.
    pub gnbs: Vec<GnbPlace>,
    /// The UEs; they are assigned to the gNBs in turn.
    pub ues: Vec<UeConfig>,
    /// What they do.
    pub scenario: Scenario,
    /// Seed of ports and sequence numbers of the UEs' stacks.
    pub seed: u64,
    /// Network namespace of the TUN devices; without one they are in that of the process, without default routes.
    pub namespace: Option<Arc<Namespace>>,
    /// Go on after the scenario while a TUN device exists, until stopped; then switch the UEs off.
    pub hold: bool,
    /// How long the loop spins before it sleeps: for latencies without wake-ups, at the price of a busy core.
    pub spin: Duration,
    /// Time that each message and each packet takes between a gNB and the core, in each direction.
    pub hop_delay: Duration,
}

/// An observer of a run. All methods have defaults.
pub trait Watch {
    /// Numbers of UEs that have completed, failed, and are active; several times a second.
    fn progress(&mut self, completed: u64, failed: u64, playing: u64) {
        let _ = (completed, failed, playing);
    }
    /// The preparation or an arrival rate begins; with the reports of those that have ended.
    fn section(&mut self, before: &[ScenarioReport]) {
        let _ = before;
    }
    /// Something happened at a gNB.
    fn gnb(&mut self, gnb: GnbId, event: &gnb::Event) {
        let _ = (gnb, event);
    }
    /// Something happened to a UE.
    fn ue(&mut self, ue: UeId, event: &ue::Event) {
        let _ = (ue, event);
    }
    /// The state of UEs and gNBs after an event.
    fn stands(&mut self, ue: UeId, cells: &Cells) {
        let _ = (ue, cells);
    }
    /// A session of a UE has its TUN device, with addresses and user plane; the DNS servers are those that the network announced.
    fn attached(&mut self, ue: UeId, device: &str, dns: &[IpAddr]) {
        let _ = (ue, device, dns);
    }
    /// The token that the gNBs broadcast from now on, if it is another one: what their O&M gets from the core.
    fn token(&mut self) -> Option<Option<TokenHash>> {
        None
    }
    /// One turn of the loop is over: what came has been handled, and what follows from it was sent.
    fn turn(&mut self, player: &Player) {
        let _ = player;
    }
    /// Whether UEs whose connection the core ends attach again: [`Player::attach_again`]. Asked once, at the start.
    fn attaches_again(&self) -> bool {
        false
    }
    /// True if UEs go on after a step that failed: [`Player::persist`]. Asked once, at the start.
    fn persists(&self) -> bool {
        false
    }
    /// Whether UEs that are prepared wait before the first of them arrives, and bursts before they begin.
    fn holds(&mut self) -> bool {
        false
    }
    /// Whether groups end their repetitions now, and UEs do what comes last.
    fn ends_repetitions(&mut self) -> bool {
        false
    }
    /// Whether to stop the run now.
    fn stop(&mut self) -> bool {
        false
    }
}

/// An observer that ignores all.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Watch for Silent {}

/// Why a scenario could not be started.
#[derive(Debug)]
pub enum RunError {
    /// The scenario cannot be played.
    Scenario(ScenarioError),
    /// SCTP has no access to the network.
    Sctp(OpenError),
    /// No randomness for SCTP's secrets.
    Random(io::Error),
    /// The GTP-U socket of a gNB could not be opened.
    Gtp(SocketAddr, io::Error),
    /// No association with the AMF could be set up.
    NoAssociation(GnbId, String),
    /// The AMF refused a gNB, with this cause.
    Refused(GnbId, &'static str),
    /// The AMF did not answer NG SETUP REQUEST.
    NoAnswer(GnbId),
    /// A TUN device could not be created.
    Tun(TunError),
    /// Waiting for sockets failed.
    Poll(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(e) => e.fmt(f),
            Self::Sctp(e) => write!(f, "SCTP: {e}"),
            Self::Random(e) => write!(f, "random octets: {e}"),
            Self::Gtp(address, e) => write!(f, "GTP-U socket at {address}: {e}"),
            Self::NoAssociation(gnb, why) => {
                write!(f, "gNB {} has no association with the AMF: {why}", gnb.0)
            }
            Self::Refused(gnb, cause) => write!(f, "the AMF refused gNB {}: {cause}", gnb.0),
            Self::NoAnswer(gnb) => write!(f, "the AMF did not answer gNB {}'s NG SETUP REQUEST", gnb.0),
            Self::Tun(e) => e.fmt(f),
            Self::Poll(e) => write!(f, "waiting for sockets: {e}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs a scenario to its end. Reports: one of each rate, in order.
///
/// Errors: [`RunError`], before the first UE arrives; later losses end UEs, not the run.
pub fn run(config: &RunnerConfig, watch: &mut dyn Watch) -> Result<Vec<ScenarioReport>, RunError> {
    let mut runner = Runner::open(config)?;
    let ended = runner.run(watch);
    if config.hold {
        runner.switch_off(watch)?;
    }
    ended?;
    runner.close();
    Ok(runner.player.reports().to_vec())
}

/// What is on its way between a gNB and the core.
enum OnTheWay {
    Ngap(GnbId, AssociationRole, u16, Vec<u8>),
    Gtpu(GnbId, (IpAddr, u16), Vec<u8>),
    NgapToCore(GnbId, AssociationRole, u16, Vec<u8>),
    GtpuToCore(GnbId, (IpAddr, u16), Vec<u8>),
}

struct Runner<'a> {
    config: &'a RunnerConfig,
    clock: Clock,
    sites: Vec<Site>,
    player: Player,
    devices: BTreeMap<(UeId, PduSessionId), SessionDevice>,
    started: bool,
    held: bool,
    out: Outbox<Output>,
    events: Events,
    datagram: Vec<u8>,
    /// The delay of all is the same, so that they arrive in their order.
    on_the_way: VecDeque<(Instant, OnTheWay)>,
}

impl<'a> Runner<'a> {
    fn open(config: &'a RunnerConfig) -> Result<Self, RunError> {
        let clock = Clock::default();
        let user_plane = if config.scenario.tun { UserPlane::Program } else { UserPlane::Stack };
        let mut cells = Cells::new(user_plane, config.seed);
        let gnbs: Vec<GnbId> = config.gnbs.iter().map(|g| cells.add_gnb(g.config.clone())).collect();
        for (gnb, place) in gnbs.iter().zip(&config.gnbs).filter(|(_, place)| place.amfs.len() > 1) {
            cells.select_among(*gnb, u8::try_from(place.amfs.len()).unwrap_or(u8::MAX));
        }
        for (ue, gnb) in config.ues.iter().zip(gnbs.iter().cycle()) {
            cells.add_ue(*gnb, ue.clone());
        }
        let player = Player::new(config.scenario.clone(), cells).map_err(RunError::Scenario)?;
        let mut sites = Vec::new();
        for (i, place) in config.gnbs.iter().enumerate() {
            sites.push(Site::open(config, place, i as u16, clock.now())?);
        }
        Ok(Self {
            config,
            clock,
            sites,
            player,
            devices: BTreeMap::new(),
            started: false,
            held: false,
            out: Outbox::new(),
            events: Events::default(),
            datagram: vec![0; DATAGRAM_OCTETS_MAX],
            on_the_way: VecDeque::new(),
        })
    }

    fn run(&mut self, watch: &mut dyn Watch) -> Result<(), RunError> {
        let mut idle_since = self.clock.now();
        let mut reported = Instant::ZERO;
        let mut sections = 0;
        self.player.attach_again(watch.attaches_again());
        self.player.persist(watch.persists());
        loop {
            let now = self.clock.now();
            let worked = self.turn(now, watch)?;
            watch.turn(&self.player);
            let held = self.config.hold && !self.devices.is_empty();
            if self.player.is_done() && !held {
                return Ok(());
            }
            if self.player.sections_begun() != sections {
                sections = self.player.sections_begun();
                let reports = self.player.reports();
                watch.section(&reports[..reports.len().saturating_sub(1)]);
            }
            if watch.stop() {
                return Ok(());
            }
            if watch.ends_repetitions() {
                self.player.end_repetitions();
            }
            if now.since(reported) >= PROGRESS {
                reported = now;
                let (completed, failed, playing) = self.player.progress();
                watch.progress(completed, failed, playing);
            }
            if worked {
                idle_since = now;
            } else if now.since(idle_since) >= self.config.spin {
                self.sleep(reported + PROGRESS)?;
                idle_since = self.clock.now();
            }
        }
    }

    /// Handles inputs and expired timers, and sends the outputs; returns whether there were any.
    fn turn(&mut self, now: Instant, watch: &mut dyn Watch) -> Result<bool, RunError> {
        let mut worked = self.arrive(now);
        if let Some(token) = watch.token() {
            for i in 0..self.sites.len() {
                self.player.handle(now, Input::Broadcast(GnbId(i as u16), token), &mut self.out);
            }
        }
        for i in 0..self.sites.len() {
            worked |= self.take_sctp(now, i)?;
            worked |= self.take_gtp(now, i);
            self.connect(now, i)?;
        }
        worked |= self.take_devices(now, watch)?;
        let was_held = std::mem::replace(&mut self.held, watch.holds());
        self.player.hold(self.held);
        let released = was_held && !self.held;
        if released || self.player.next_deadline().is_some_and(|at| at <= now) {
            worked = true;
            self.player.handle(now, Input::Tick, &mut self.out);
        }
        if !self.started && self.player.cells().all_up() {
            self.started = true;
            self.player.start(now, &mut self.out);
        }
        worked |= !self.out.is_empty();
        self.send(now, watch)?;
        for site in &mut self.sites {
            site.unflushed = false;
            site.transport.flush(now);
        }
        Ok(worked)
    }

    /// Delivers what has been on its way for long enough. Returns whether there was anything.
    fn arrive(&mut self, now: Instant) -> bool {
        let mut arrived = false;
        while self.on_the_way.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, what)) = self.on_the_way.pop_front()
        {
            arrived = true;
            match what {
                OnTheWay::Ngap(gnb, role, stream, octets) => {
                    let octets = octets.as_slice();
                    self.player.handle(now, role.received(gnb, stream, octets), &mut self.out);
                }
                OnTheWay::Gtpu(gnb, source, datagram) => {
                    let input = Input::Gtpu { gnb, source, datagram: &datagram };
                    self.player.handle(now, input, &mut self.out);
                }
                OnTheWay::NgapToCore(gnb, role, stream, octets) => {
                    self.ngap_leaves(now, gnb, role, stream, &octets);
                }
                OnTheWay::GtpuToCore(gnb, to, datagram) => self.gtpu_leaves(now, gnb, to, &datagram),
            }
        }
        arrived
    }

    fn ngap_leaves(&mut self, now: Instant, gnb: GnbId, role: AssociationRole, stream: u16, octets: &[u8]) {
        if let Some(site) = self.sites.get_mut(usize::from(gnb.0)) {
            site.send(now, role, stream, octets);
        }
    }

    fn gtpu_leaves(&mut self, now: Instant, gnb: GnbId, to: (IpAddr, u16), datagram: &[u8]) {
        if let Some(site) = self.sites.get_mut(usize::from(gnb.0)) {
            // Signalling that announces a tunnel is sent before packets in it.
            if std::mem::take(&mut site.unflushed) {
                site.transport.flush(now);
            }
            // A datagram that the kernel refuses is lost.
            let _lost = site.gtp.send_to(datagram, to);
        }
    }

    /// Whether what is sent takes a while: stored until it arrives.
    fn takes_time(&mut self, now: Instant, what: impl FnOnce() -> OnTheWay) -> bool {
        let delay = self.config.hop_delay;
        if !delay.is_zero() {
            self.on_the_way.push_back((now + delay, what()));
        }
        !delay.is_zero()
    }

    fn take_sctp(&mut self, now: Instant, i: usize) -> Result<bool, RunError> {
        let delay = self.config.hop_delay;
        let Self { sites, player, events, out, started, on_the_way, .. } = self;
        let Some(site) = sites.get_mut(i) else { return Ok(false) };
        let gnb = GnbId(i as u16);
        site.transport.drain(now, events);
        for event in events.iter() {
            match event {
                Event::Up { association, outbound_streams, adaptation, .. }
                | Event::Restarted { association, outbound_streams, adaptation, .. } => {
                    let Some(role) = site.role(association) else { continue };
                    let syntax = site.up(role, adaptation);
                    let input = match role {
                        AssociationRole::Serving => Input::AssociationUp(gnb, outbound_streams, syntax),
                        AssociationRole::Further => Input::FurtherAssociationUp(gnb),
                        AssociationRole::Amf(amf) => Input::Amf(gnb, amf, AmfInput::Up(outbound_streams)),
                    };
                    player.handle(now, input, out);
                }
                Event::Data { association, stream, octets, .. } => {
                    let Some(role) = site.role(association) else { continue };
                    if !delay.is_zero() {
                        let message = OnTheWay::Ngap(gnb, role, stream, octets.to_vec());
                        on_the_way.push_back((now + delay, message));
                        continue;
                    }
                    player.handle(now, role.received(gnb, stream, octets), out);
                }
                Event::Unacknowledged { association, stream, octets, .. } => {
                    if site.role(association) == Some(AssociationRole::Serving) {
                        site.keep(stream, octets);
                    }
                }
                Event::Down { association, reason } => match site.role(association) {
                    Some(AssociationRole::Serving) => {
                        if !*started {
                            return Err(RunError::NoAssociation(gnb, reason.to_string()));
                        }
                        player.handle(now, Input::AssociationDown(gnb), out);
                        site.serving_down(now, player.cells().gnb(gnb).is_some_and(Gnb::is_up));
                    }
                    Some(AssociationRole::Further) => {
                        player.handle(now, Input::FurtherAssociationDown(gnb), out);
                        site.further_down(now);
                    }
                    Some(AssociationRole::Amf(amf)) => {
                        site.amf_down(now, amf);
                        player.handle(now, Input::Amf(gnb, amf, AmfInput::Down), out);
                        if !*started
                            && player.cells().selection(gnb).is_some_and(|s| s.has_tried_all() && s.up() == 0)
                        {
                            return Err(RunError::NoAssociation(gnb, reason.to_string()));
                        }
                    }
                    None => {}
                },
                Event::PathDown { .. } | Event::PathUp { .. } | Event::Refused { .. } => {}
            }
        }
        Ok(!events.is_empty())
    }

    fn take_gtp(&mut self, now: Instant, i: usize) -> bool {
        let (delay, gnb) = (self.config.hop_delay, GnbId(i as u16));
        let Some(site) = self.sites.get(i) else { return false };
        let mut taken = 0;
        while taken < DATAGRAMS_A_TURN {
            let Ok((n, from)) = site.gtp.recv_from(&mut self.datagram) else { break };
            taken += 1;
            let datagram = self.datagram.get(..n).unwrap_or_default();
            let source = (from.ip(), from.port());
            if !delay.is_zero() {
                let packet = OnTheWay::Gtpu(gnb, source, datagram.to_vec());
                self.on_the_way.push_back((now + delay, packet));
                continue;
            }
            self.player.handle(now, Input::Gtpu { gnb, source, datagram }, &mut self.out);
        }
        taken > 0
    }

    /// Reads packets of programs, and configures devices whose sessions are ready.
    fn take_devices(&mut self, now: Instant, watch: &mut dyn Watch) -> Result<bool, RunError> {
        let mut taken = false;
        for ((ue, session), device) in &mut self.devices {
            let usable = self.player.cells().ue(*ue).is_some_and(|p| p.has_user_plane(*session));
            if let Some(solicitation) = device.due(now, usable) {
                taken = true;
                let input = Input::Packet(*ue, *session, &solicitation);
                self.player.handle(now, input, &mut self.out);
            }
            if device.becomes_ready(usable) {
                watch.attached(*ue, device.name(), device.dns());
            }
            for _ in 0..DATAGRAMS_A_TURN {
                let Some(n) = device.read(&mut self.datagram) else { break };
                taken = true;
                let packet = self.datagram.get(..n).unwrap_or_default();
                self.player.handle(now, Input::Packet(*ue, *session, packet), &mut self.out);
            }
        }
        Ok(taken)
    }

    /// Connects a gNB that has no association, or needs a further one, when that is due.
    fn connect(&mut self, now: Instant, i: usize) -> Result<(), RunError> {
        let Some(site) = self.sites.get_mut(i) else { return Ok(()) };
        match site.connect(now) {
            Err(e) if !self.started => Err(RunError::NoAssociation(GnbId(i as u16), e.to_string())),
            _ => Ok(()),
        }
    }

    /// Sends the state machines' outputs, and creates and removes devices for their events.
    fn send(&mut self, now: Instant, watch: &mut dyn Watch) -> Result<(), RunError> {
        let mut out = std::mem::take(&mut self.out);
        for output in out.drain() {
            match output {
                Output::Ngap { gnb, stream, octets } => {
                    if !self.takes_time(now, || {
                        OnTheWay::NgapToCore(gnb, AssociationRole::Serving, stream, octets.clone())
                    }) {
                        self.ngap_leaves(now, gnb, AssociationRole::Serving, stream, &octets);
                    }
                }
                Output::FurtherNgap { gnb, stream, octets } => {
                    if !self.takes_time(now, || {
                        OnTheWay::NgapToCore(gnb, AssociationRole::Further, stream, octets.clone())
                    }) {
                        self.ngap_leaves(now, gnb, AssociationRole::Further, stream, &octets);
                    }
                }
                Output::AmfNgap { gnb, amf, stream, octets } => {
                    let role = AssociationRole::Amf(amf);
                    if !self.takes_time(now, || OnTheWay::NgapToCore(gnb, role, stream, octets.clone())) {
                        self.ngap_leaves(now, gnb, role, stream, &octets);
                    }
                }
                Output::Associate(gnb, address) => {
                    if let Some(site) = self.sites.get_mut(usize::from(gnb.0)) {
                        site.associate(now, address);
                    }
                }
                Output::Dissociate(gnb, address) => {
                    if let Some(site) = self.sites.get_mut(usize::from(gnb.0)) {
                        site.dissociate(now, address);
                    }
                }
                Output::Gtpu { gnb, to, datagram } => {
                    if !self.takes_time(now, || OnTheWay::GtpuToCore(gnb, to, datagram.clone())) {
                        self.gtpu_leaves(now, gnb, to, &datagram);
                    }
                }
                Output::Packet(ue, session, packet) => {
                    if let Some(device) = self.devices.get_mut(&(ue, session)) {
                        device.write(&packet).map_err(RunError::Tun)?;
                    }
                }
                Output::Gnb(gnb, event) => {
                    watch.gnb(gnb, &event);
                    if let gnb::Event::SetupFailed(_) = event
                        && let Some(site) = self.sites.get_mut(usize::from(gnb.0))
                    {
                        site.refused(now);
                    }
                    self.judge_setup(gnb, event)?;
                }
                Output::Ue(ue, event) => {
                    watch.ue(ue, &event);
                    watch.stands(ue, self.player.cells());
                    self.follow_session(ue, &event)?;
                }
                Output::Task(..) | Output::StreamFlows(_) | Output::StreamEnded(_) => {}
            }
        }
        self.out = out;
        Ok(())
    }

    /// A gNB that is refused at the start ends the run, unless it may try again.
    fn judge_setup(&self, gnb: GnbId, event: gnb::Event) -> Result<(), RunError> {
        match event {
            gnb::Event::SetupFailed(m) if !self.started && m.time_to_wait.is_none() => {
                Err(RunError::Refused(gnb, cause_text(&m.cause)))
            }
            gnb::Event::SetupTimedOut if !self.started => Err(RunError::NoAnswer(gnb)),
            _ => Ok(()),
        }
    }

    /// Creates and removes TUN devices with their sessions.
    fn follow_session(&mut self, ue: UeId, event: &ue::Event) -> Result<(), RunError> {
        if !self.config.scenario.tun {
            return Ok(());
        }
        match event {
            ue::Event::SessionUp { session, .. } => {
                let first = self.devices.keys().all(|(p, _)| *p != ue);
                let name = match first {
                    true => format!("wbue{}", ue.0),
                    false => format!("wbue{}_{}", ue.0, session.id),
                };
                let before = self.devices.len() as u32;
                let device = SessionDevice::open(name, session, before, self.config.namespace.clone());
                self.devices.insert((ue, session.id), device.map_err(RunError::Tun)?);
            }
            ue::Event::SessionReleased { session, .. } => {
                self.devices.remove(&(ue, *session));
            }
            ue::Event::Deregistered { .. } => self.devices.retain(|(of, _), _| *of != ue),
            _ => {}
        }
        Ok(())
    }

    /// Switches registered UEs off, and waits briefly until the core has released them.
    fn switch_off(&mut self, watch: &mut dyn Watch) -> Result<(), RunError> {
        const PATIENCE: Duration = Duration::from_millis(500);
        let until = self.clock.now() + PATIENCE;
        for ue in (0..self.config.ues.len() as u32).map(UeId) {
            let registered = |ue: &ue::Ue| ue.state() != MmState::Deregistered;
            if self.player.cells().ue(ue).is_some_and(registered) {
                let input = Input::Command(ue, UeCommand::Deregister { switch_off: true });
                self.player.cells_mut().handle(self.clock.now(), input, &mut self.out);
            }
        }
        loop {
            let now = self.clock.now();
            self.turn(now, watch)?;
            let cells = self.player.cells();
            let busy = |ue: u32| cells.ue(UeId(ue)).is_some_and(ue::Ue::is_connected);
            if now >= until || !(0..self.config.ues.len() as u32).any(busy) {
                return Ok(());
            }
            self.sleep(until)?;
        }
    }

    /// Sleeps until an input, a deadline, or `until`.
    fn sleep(&self, until: Instant) -> Result<(), RunError> {
        let devices = self.devices.values().filter_map(SessionDevice::next_deadline);
        let due = self
            .sites
            .iter()
            .filter_map(Site::next_deadline)
            .chain(self.player.next_deadline())
            .chain(devices)
            .chain(self.on_the_way.front().map(|(at, _)| *at));
        let next = due.fold(until, Instant::min);
        let wait = next.since(self.clock.now());
        if wait.is_zero() {
            return Ok(());
        }
        let mut fds = Vec::new();
        for site in &self.sites {
            fds.extend(
                site.transport.fds().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            fds.push(PollFd::from_borrowed_fd(site.gtp.as_fd(), PollFlags::IN));
        }
        fds.extend(self.devices.values().map(|t| PollFd::from_borrowed_fd(t.fd(), PollFlags::IN)));
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(RunError::Poll(e.into())),
        }
    }

    /// Shuts the associations down, and waits briefly for the AMF.
    fn close(&mut self) {
        const PATIENCE: Duration = Duration::from_millis(500);
        let until = self.clock.now() + PATIENCE;
        for site in &mut self.sites {
            site.close(self.clock.now());
        }
        let stands = |s: &Site| !s.transport.associations().is_empty();
        while self.sites.iter().any(stands) && self.clock.now() < until {
            let now = self.clock.now();
            for site in &mut self.sites {
                site.transport.drain(now, &mut self.events);
                site.transport.flush(now);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
