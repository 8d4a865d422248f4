//! The aggregator's side: the control functions that have come to it, their links and their heartbeats.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use tracing::{info, warn};
use whimbrel_control::Glimpse;
use whimbrel_control::config::Config as Told;
use whimbrel_ids::Instant;
use whimbrel_link::{Event, Events, LinkId, Links};
use whimbrel_resilience::link::{Down, HeartbeatKey, Hello, Role, Show, ToCpf, ToCta, Up};
use whimbrel_resilience::region::{CpfState, Region, Regions, Rings};
use whimbrel_resilience::replication::CpfId;

use super::asks::{Asks, Wanted};
use super::heartbeat::Watch;
use crate::config::Cluster;
use crate::console::{Condition, Console, Sample};
use crate::entropy::SystemEntropy;

/// What comes of a turn, in its order.
pub(crate) enum Said {
    /// A control function says this.
    Up(CpfId, Up),
    /// The members have changed.
    Rings(Rings),
    /// One is lost.
    Lost(CpfId),
    /// The phones that somebody wanted are there.
    Shown(Wanted, Vec<Glimpse>),
}

/// A control function that has come.
struct Joined {
    link: LinkId,
    address: SocketAddr,
}

/// The control functions of one aggregator.
pub(crate) struct Pool {
    links: Links,
    events: Events,
    watch: Watch,
    regions: Regions,
    region: Region,
    backups: usize,
    /// This life of the aggregator: the numbers below are of it.
    life: u64,
    heartbeats: HeartbeatKey,
    newest: u16,
    members: BTreeMap<CpfId, Joined>,
    by_link: BTreeMap<LinkId, CpfId>,
    /// Control functions that have called and not yet offered themselves.
    waiting: BTreeMap<LinkId, SocketAddr>,
    asks: Asks,
    /// What is in force: a member is told when it comes.
    told: Arc<Told>,
    frame: Vec<u8>,
    said: Vec<Said>,
    console: Arc<Console>,
}

impl Pool {
    /// Opens where control functions come to; `None` where phones are served in this process. Errors: one sentence.
    pub(crate) fn open(
        cluster: &Cluster,
        told: Arc<Told>,
        entropy: &mut SystemEntropy,
        console: Arc<Console>,
    ) -> Result<Option<Self>, String> {
        let Some(at) = cluster.listen else { return Ok(None) };
        let links = Links::open(super::settings(at, Role::Aggregator, cluster.key_file.as_deref())?)
            .map_err(|e| format!("cluster.listen: {e}"))?;
        let heartbeats = HeartbeatKey(entropy.octets());
        let watch = Watch::open(SocketAddr::new(at.ip(), 0), &heartbeats.0, cluster.heartbeat)
            .map_err(|e| format!("cluster.listen: heartbeats cannot be sent from {}: {e}", at.ip()))?;
        let pool = Self {
            links,
            events: Events::default(),
            watch,
            regions: cluster.regions(),
            region: cluster.region.clone(),
            backups: cluster.backups.into(),
            heartbeats,
            life: u64::from_ne_bytes(entropy.octets()),
            newest: 0,
            members: BTreeMap::new(),
            by_link: BTreeMap::new(),
            waiting: BTreeMap::new(),
            asks: Asks::default(),
            told,
            frame: Vec::new(),
            said: Vec::new(),
            console,
        };
        pool.show_condition();
        Ok(Some(pool))
    }

    /// Where control functions come to.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.links.local_addr()
    }

    /// Those that are there.
    pub(crate) fn rings(&self) -> Rings {
        self.regions.rings(&self.region, self.backups).expect("the aggregator's own region is configured")
    }

    /// Takes what arrived.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<Said> {
        for cpf in self.watch.turn(now) {
            warn!(cpf = cpf.0, "a control function does not answer heartbeats");
            self.lost(cpf);
        }
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            match event {
                Event::Up { link, peer, hello, .. } => self.called(link, peer, hello),
                Event::Frame { link, octets } => self.frame(now, link, octets),
                Event::Down { link, reason } => {
                    self.waiting.remove(&link);
                    if let Some(cpf) = self.by_link.get(&link).copied() {
                        warn!(cpf = cpf.0, %reason, "a control function is lost");
                        self.lost(cpf);
                    }
                }
                Event::TurnedAway { peer, reason } => warn!(%peer, %reason, "a link was turned away"),
            }
        }
        self.events = events;
        while let Some((wanted, phones)) = self.asks.done() {
            self.said.push(Said::Shown(wanted, phones));
        }
        std::mem::take(&mut self.said)
    }

    fn called(&mut self, link: LinkId, peer: SocketAddr, hello: &[u8]) {
        match Hello::from_octets(hello) {
            Ok(Hello(Role::Cpf)) => drop(self.waiting.insert(link, peer)),
            Ok(Hello(Role::Aggregator)) => {
                warn!(%peer, "an aggregator calls: only control functions come here");
                self.links.close(link);
            }
            Err(e) => {
                warn!(%peer, "a link is refused: {e}");
                self.links.close(link);
            }
        }
    }

    /// A control function offers itself.
    fn joins(&mut self, now: Instant, link: LinkId, peer: SocketAddr, region: &Region, address: SocketAddr) {
        let Some(number) = self.newest.checked_add(1) else {
            warn!(%peer, "65535 control functions have come: no more until this aggregator is started anew");
            return self.links.close(link);
        };
        let id = CpfId(number);
        if let Err(e) = self.regions.join(id, region) {
            warn!(%peer, "a control function is refused: {e}; name it in `cluster.neighbours`");
            return self.links.close(link);
        }
        self.newest = number;
        let address = SocketAddr::new(seen_from(address.ip(), peer.ip()), address.port());
        self.members.insert(id, Joined { link, address });
        self.by_link.insert(link, id);
        self.watch.begin(now, id, address);
        info!(cpf = id.0, %address, %region, "a control function has come");
        self.tell(link, &ToCpf::Welcome { life: self.life, id, heartbeats: self.heartbeats });
        self.tell(link, &ToCpf::Down(Down::Configure(self.told.clone())));
        self.members_changed();
    }

    fn frame(&mut self, now: Instant, link: LinkId, octets: &[u8]) {
        let message = ToCta::read(octets);
        if let Some(peer) = self.waiting.remove(&link) {
            return match message {
                Ok(ToCta::Join { region, address }) => self.joins(now, link, peer, &region, address),
                _ => {
                    warn!(%peer, "a link is refused: it begins with something else than an offer");
                    self.links.close(link);
                }
            };
        }
        let Some(cpf) = self.by_link.get(&link).copied() else { return };
        match message {
            Ok(ToCta::Up(up)) => self.said.push(Said::Up(cpf, up)),
            Ok(ToCta::Leave) => {
                info!(cpf = cpf.0, "a control function wants to leave: others take its phones");
                self.regions.set_state(cpf, CpfState::Draining);
                self.said.push(Said::Rings(self.rings()));
            }
            Ok(ToCta::Shown { ask, phones }) => self.asks.answered(ask, cpf, phones),
            Ok(ToCta::Join { .. }) => {
                warn!(cpf = cpf.0, "a control function is given up: it offers itself twice");
                self.lost(cpf);
            }
            Err(e) => {
                warn!(cpf = cpf.0, "a control function is given up: {e}");
                self.lost(cpf);
            }
        }
    }

    /// A control function that wanted to leave has nothing left: it may go.
    pub(crate) fn left(&mut self, cpf: CpfId) {
        info!(cpf = cpf.0, "a control function has left");
        self.lost(cpf);
    }

    /// Who is lost is not spoken with any more: if it lives, it hears so and comes anew.
    fn lost(&mut self, cpf: CpfId) {
        let Some(member) = self.members.remove(&cpf) else { return };
        self.by_link.remove(&member.link);
        self.links.close(member.link);
        self.regions.leave(cpf);
        self.watch.end(cpf);
        self.asks.gone(cpf);
        self.members_changed();
        self.said.push(Said::Lost(cpf));
    }

    fn members_changed(&mut self) {
        let peers: Vec<_> = self.members.iter().map(|(id, m)| (*id, m.address)).collect();
        let links: Vec<LinkId> = self.members.values().map(|m| m.link).collect();
        for link in links {
            self.tell(link, &ToCpf::Peers(peers.clone()));
        }
        self.said.push(Said::Rings(self.rings()));
        self.show_condition();
    }

    fn show_condition(&self) {
        let (condition, detail) = match self.members.len() {
            0 => (Condition::Down, "none has come: `whimbrel cpf` starts one; phones are refused".into()),
            1 if self.backups > 0 => (Condition::Limited, "one, and nobody to take its phones over".into()),
            n => (Condition::Up, format!("{n} of them")),
        };
        self.console.components(|c| c.set("control functions", condition, detail));
    }

    /// Puts a new version of the configuration in force for those that come; those that are there hear of it in their order.
    pub(crate) fn configure(&mut self, told: Arc<Told>) {
        self.told = told;
    }

    /// To a control function; to one that is lost, nothing.
    pub(crate) fn send(&mut self, cpf: CpfId, message: Down) {
        if let Some(link) = self.members.get(&cpf).map(|m| m.link) {
            self.tell(link, &ToCpf::Down(message));
        }
    }

    fn tell(&mut self, link: LinkId, message: &ToCpf) {
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(link, &self.frame);
    }

    /// Asks all control functions for phones.
    pub(crate) fn ask(&mut self, which: Show, wanted: Wanted) {
        let ask = self.asks.ask(which, wanted, self.members.keys().copied().collect());
        let links: Vec<LinkId> = self.members.values().map(|m| m.link).collect();
        for link in links {
            self.tell(link, &ToCpf::Show { ask, which });
        }
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
        [self.links.next_deadline(), self.watch.next_deadline()].into_iter().flatten().min()
    }

    /// For the metrics.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let one = |name, help, value| Sample { name, help, label: None, value };
        let heartbeats = self.watch.counters();
        let links = self.links.counters();
        vec![
            one("whimbrel_cpf_heartbeats_total", "Heartbeats sent to control functions", heartbeats.probes),
            one(
                "whimbrel_cpf_silent_total",
                "Control functions that did not answer heartbeats",
                heartbeats.downs,
            ),
            one(
                "whimbrel_cpf_false_alarms_total",
                "Control functions that were taken for dead and lived",
                heartbeats.false_alarms,
            ),
            one("whimbrel_link_frames_in_total", "Messages from control functions", links.frames_in),
            one("whimbrel_link_frames_out_total", "Messages to control functions", links.frames_out),
        ]
    }
}

/// An unspecified address stands for the one that its owner is seen from.
fn seen_from(told: IpAddr, peer: IpAddr) -> IpAddr {
    if told.is_unspecified() { peer } else { told }
}
