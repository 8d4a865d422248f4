//! The simulated network: the shipped control plane, UPF, gNBs and UEs in virtual time, with seeds and faults.
//!
//! One seed decides everything: latencies, what the radio loses, repeats and reorders, the entropy of every input. The
//! same seed gives the same octets; a failing seed is a test case. [`Sim`] is the network, [`Faults`] what goes wrong in
//! it, [`Recorder`] keeps the core's inputs so that any UE can be replayed from any point where it was idle.

#![forbid(unsafe_code)]

mod agree;
mod builder;
mod chaos_run;
mod cta_replica;
mod faults;
mod home;
mod invariants;
mod meter;
mod n3;
mod network_run;
mod observer;
mod open;
mod peer_amf;
mod procedures;
mod record;
mod region;
mod rng;
mod schedules;
mod timer_queue;
mod trace;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::config::Config;
use whimbrel_control::event::Deregistered;
use whimbrel_control::{AssociationId, Command as CoreCommand, Event, Prf, RanEvent, UeEvent, UeId, UpfId};
use whimbrel_ids::{GlobalGnbId, Instant, STmsi};
use whimbrel_ngap::TransferSyntax;
use whimbrel_ran::ue::{self, Command, Ue};
use whimbrel_ran::{Down, Outbox, Up, gnb};
use whimbrel_resilience::cta_replica::{LocalAssociation, PrimaryCta};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{Cta, Input, Order, OrderOutcome, Outbox as CoreOutbox, ProtocolViolation};
use whimbrel_security::HomeNetworkKeys;
use whimbrel_user::{Destination, Origin, Packet, Slot, Upf, Verdict};

pub use builder::SimBuilder;
use builder::new_cta;
pub use chaos_run::{
    chaos_run, chaos_run_in_region, chaos_run_with_cta_replica, chaos_run_with_lossy_links,
    chaos_run_with_poison, gnb_config, heal_and_verify, registered,
};
pub use cta_replica::CtaLoss;
use cta_replica::{Pair, ReplicaLink};
pub use faults::Faults;
pub use home::{Home, default_config, tuak_of, ue_config, upf_config};
use meter::Meter;
pub use meter::{Wire, Work};
pub use n3::N3_LATENCY;
use n3::{Datagram, Received};
pub use network_run::{Cpfs, NetworkPlan, NetworkRun};
use observer::Observer;
pub use observer::Tally;
pub use open::{BrokerLoss, BrokerState, open_config};
pub use peer_amf::{N14Fault, two_amf_configs};
use peer_amf::{N14Message, PEER_AMF_HOST, PeerAmf};
pub use procedures::procedures_config;
use procedures::{Procedure, UeSnapshot};
pub use record::{Recorded, Recorder};
use region::{Cluster, Link};
pub use region::{CpfLoss, LostUes};
pub use rng::Rng;
pub use schedules::{LostNode, SCHEDULES_PER_NETWORK, ScheduleReport, Schedules};
use timer_queue::{TimerOwner, TimerQueue};

/// A gNB of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GnbIndex(pub usize);

/// A UE of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UeIndex(pub usize);

/// How the UPF fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpfState {
    /// It answers at once.
    Answering,
    /// Nothing reaches it.
    Silent,
    /// It does what it is asked, and its answers get lost.
    Mute,
    /// A test answers: what it is asked is kept for [`Sim::take_pfcp`].
    ByHand,
}

/// Something on its way.
#[derive(Debug)]
enum InFlight {
    ToCore {
        association: AssociationId,
        /// The host at the other end; see [`GnbNode::host`].
        host: u64,
        stream: u16,
        octets: Vec<u8>,
    },
    ToGnb {
        gnb: GnbIndex,
        association: AssociationId,
        host: u64,
        stream: u16,
        octets: Vec<u8>,
    },
    Up {
        ue: UeIndex,
        connection: u64,
        up: Up,
    },
    Down {
        ue: UeIndex,
        connection: u64,
        down: Down,
    },
    Xn {
        to: GnbIndex,
        from: GlobalGnbId,
        message: gnb::XnMessage,
    },
    Link(Link),
    CtaReplica(ReplicaLink),
    N14(N14Message),
    Sap(open::OverSap),
    N3(Datagram),
    /// Over a gNB's association with the CTA replica's host.
    FurtherToCore {
        over: LocalAssociation,
        stream: u16,
        octets: Vec<u8>,
    },
    FurtherToGnb {
        over: LocalAssociation,
        stream: u16,
        octets: Vec<u8>,
    },
}

/// A UPF, and how N4 to it fares.
struct UpfNode {
    upf: Upf,
    state: UpfState,
}

struct GnbNode {
    gnb: gnb::Gnb,
    /// It is the other core's.
    peer_amf: bool,
    /// Its association while it stands; a restart takes the next.
    association: Option<AssociationId>,
    /// The CTA's host at its other end, by how many takeovers were before.
    host: u64,
    /// The one with the CTA replica's host.
    further: Option<LocalAssociation>,
    /// It has no other association, whatever the core says.
    single: bool,
    /// Messages arrive in order: not before this.
    ordered: Instant,
    /// How long it works on a message of the core, one at a time.
    per_message: Duration,
    /// When it is done with those that have come.
    free_at: Instant,
    /// What the core has sent it since a test took it over.
    by_hand: Option<Vec<whimbrel_ngap::Message>>,
    /// Likewise those of other gNBs.
    ordered_xn: Instant,
    /// Streams of its association, both ways.
    streams: u16,
}

/// What associations are opened with unless a test says otherwise.
const STREAMS: u16 = 16;

struct UeNode {
    ue: Ue,
    gnb: GnbIndex,
    /// Counts radio connections: what was sent over an earlier one never arrives.
    connection: u64,
    /// The last one of which its gNB has heard: what the gNB says is said on this one.
    heard: u64,
    ordered: Instant,
    /// Out of reach: it hears no paging.
    away: bool,
    /// Under which it camps, to be found when it is paged.
    s_tmsi: Option<STmsi>,
    events: Vec<(Instant, ue::Event)>,
}

/// When a simulation begins: a Tuesday in 2026.
const EPOCH: Instant = Instant(1_793_700_000_000_000);

/// The network.
pub struct Sim {
    now: Instant,
    rng: Rng,
    config: Arc<Config>,
    faults: Faults,
    home_keys: HomeNetworkKeys,
    /// What the UPFs were asked since a test answers for them.
    pfcp_requests: Vec<Vec<u8>>,
    /// What the CTA has told of CPFs.
    pub cpf_violations: Vec<(CpfId, ProtocolViolation)>,
    /// Every N2 message of the core since it was asked for.
    tap: Option<Vec<whimbrel_ngap::Message>>,
    cta: PrimaryCta<Home, (Prf, u64), Recorder>,
    /// Its CTA replica.
    pair: Pair,
    /// The CPFs, where they are not a part of the CTA.
    cluster: Option<Cluster>,
    /// Another AMF of the network.
    peer_amf: Option<Box<PeerAmf>>,
    /// Brokers, and the operator as they know it.
    brokers: open::Brokers,
    upfs: Vec<UpfNode>,
    nodes: Vec<GnbNode>,
    by_association: BTreeMap<AssociationId, GnbIndex>,
    terminals: Vec<UeNode>,
    by_s_tmsi: BTreeSet<(STmsi, UeIndex)>,
    /// When UEs and gNBs want a tick.
    timers: TimerQueue,
    observer: Observer,
    meter: Option<Meter>,
    /// What happens is not kept: a long simulation would fill the memory.
    quiet: bool,
    in_flight: BTreeMap<(Instant, u64), InFlight>,
    /// What UEs got, where datagrams travel.
    received: Option<Received>,
    sequence: u64,
    associations: u32,
    /// What happened in the core to UEs.
    pub events: Vec<(Instant, UeEvent)>,
    /// What happened in the core to gNBs.
    pub ran_events: Vec<RanEvent>,
    has_faulty_cpfs: bool,
    /// What is told of a schedule that fails.
    trace: Option<Vec<(Instant, String)>>,
    /// What gNBs told.
    pub gnb_events: Vec<(GnbIndex, gnb::Event)>,
}

impl Sim {
    fn new(
        mut rng: Rng,
        config: Arc<Config>,
        faults: Faults,
        home_keys: HomeNetworkKeys,
        cluster: Option<Cluster>,
    ) -> Self {
        let entropy = (Prf::new(&rng.octets()), 0);
        let (home, recorder) = (Home::default(), Recorder::default());
        let cta = new_cta(EPOCH, &config, &home_keys, home, entropy, recorder, cluster.as_ref());
        let upfs = (0u8..).zip(&config.smf.upfs).map(|(n, _)| {
            let config = home::nth_upf_config(n, rng.draw());
            let upf = Upf::new(config, EPOCH).expect("the default UPF configuration holds");
            UpfNode { upf, state: UpfState::Answering }
        });
        let upfs = upfs.collect();
        Self {
            now: EPOCH,
            cta: PrimaryCta::new(cta),
            pair: Pair::default(),
            cluster,
            peer_amf: None,
            brokers: open::Brokers::default(),
            rng,
            config,
            faults,
            home_keys,
            pfcp_requests: Vec::new(),
            cpf_violations: Vec::new(),
            tap: None,
            upfs,
            nodes: Vec::new(),
            by_association: BTreeMap::new(),
            terminals: Vec::new(),
            by_s_tmsi: BTreeSet::new(),
            timers: TimerQueue::default(),
            observer: Observer::default(),
            meter: None,
            quiet: false,
            in_flight: BTreeMap::new(),
            received: None,
            sequence: 0,
            associations: 0,
            events: Vec::new(),
            ran_events: Vec::new(),
            has_faulty_cpfs: false,
            trace: None,
            gnb_events: Vec::new(),
        }
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The core.
    pub fn cta(&self) -> &Cta<Home, (Prf, u64), Recorder> {
        self.cta.cta()
    }

    /// The recorded inputs.
    pub fn recorder(&mut self) -> &mut Recorder {
        self.cta.inspect()
    }

    /// The subscribers.
    pub fn home(&mut self) -> &mut Home {
        self.cta.subscribers()
    }

    /// The first UPF.
    pub fn upf(&mut self) -> &mut Upf {
        self.nth_upf(UpfId(0))
    }

    /// A UPF.
    pub fn nth_upf(&mut self, upf: UpfId) -> &mut Upf {
        &mut self.upfs[usize::from(upf.0)].upf
    }

    /// How many sessions the UPFs have.
    pub fn upf_sessions(&self) -> usize {
        self.upfs.iter().map(|u| u.upf.c.session_count()).sum()
    }

    /// What goes wrong from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// A gNB that sets up at once.
    pub fn add_gnb(&mut self, config: gnb::GnbConfig) -> GnbIndex {
        self.add_gnb_of(config, false)
    }

    fn add_gnb_of(&mut self, config: gnb::GnbConfig, peer_amf: bool) -> GnbIndex {
        let index = GnbIndex(self.nodes.len());
        let gnb = gnb::Gnb::new(config);
        self.nodes.push(GnbNode {
            gnb,
            peer_amf,
            association: None,
            host: 0,
            further: None,
            single: false,
            ordered: self.now,
            ordered_xn: self.now,
            per_message: Duration::ZERO,
            free_at: self.now,
            by_hand: None,
            streams: STREAMS,
        });
        self.connect(index);
        index
    }

    /// A gNB is driven by hand from now on: it answers nothing by itself, and what the core sends it is kept for [`Sim::take_ngap`].
    pub fn take_over(&mut self, index: GnbIndex) {
        self.nodes[index.0].by_hand = Some(Vec::new());
    }

    /// A gNB is loaded from now on: it works on one message of the core at a time, for so long on each.
    pub fn slow_down(&mut self, index: GnbIndex, per_message: Duration) {
        self.nodes[index.0].per_message = per_message;
    }

    /// Takes what the core has sent to a gNB that is driven by hand.
    pub fn take_ngap(&mut self, index: GnbIndex) -> Vec<whimbrel_ngap::Message> {
        self.nodes[index.0].by_hand.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A gNB's association ends and none follows.
    pub fn disconnect(&mut self, index: GnbIndex) {
        if let Some(association) = self.nodes[index.0].association.take() {
            self.by_association.remove(&association);
            self.core_at(index, Input::AssociationDown(association));
        }
    }

    /// An input of the core that a gNB belongs to.
    fn core_at(&mut self, gnb: GnbIndex, input: Input<'_>) {
        if self.nodes[gnb.0].peer_amf { self.peer_amf_input(input) } else { self.core(input) }
    }

    /// A UE that camps at a gNB, with a subscription.
    pub fn add_ue(&mut self, gnb: GnbIndex, config: ue::UeConfig) -> UeIndex {
        let index = UeIndex(self.terminals.len());
        let terminal = UeNode {
            ue: Ue::new(config),
            gnb,
            connection: 0,
            heard: 0,
            ordered: self.now,
            away: false,
            s_tmsi: None,
            events: Vec::new(),
        };
        self.terminals.push(terminal);
        let tai = self.nodes[gnb.0].gnb.config().tai();
        self.ue(index, ue::Input::Cell(tai));
        index
    }

    /// The gNB's association ends, and a new one begins: it was restarted, with or without its UEs.
    pub fn restart_gnb(&mut self, index: GnbIndex) {
        if let Some(association) = self.nodes[index.0].association.take() {
            self.by_association.remove(&association);
            self.core_at(index, Input::AssociationDown(association));
        }
        self.cut(index);
        self.connect(index);
    }

    fn connect(&mut self, index: GnbIndex) {
        let fastwire = self.nodes[index.0].gnb.config().fastwire;
        let syntax = if fastwire { TransferSyntax::Fastwire } else { TransferSyntax::Per };
        let association = AssociationId::new(self.associations, syntax);
        self.associations += 1;
        let host = if self.nodes[index.0].peer_amf { PEER_AMF_HOST } else { self.pair.host() };
        (self.nodes[index.0].association, self.nodes[index.0].host) = (Some(association), host);
        self.by_association.insert(association, index);
        let streams = self.nodes[index.0].streams;
        self.core_at(index, Input::AssociationUp { association, outbound_streams: streams });
        self.gnb(index, gnb::Input::AssociationUp { streams, syntax });
    }

    /// A gNB keeps to one association with the AMF from now on.
    pub fn keep_to_one_association(&mut self, index: GnbIndex) {
        self.nodes[index.0].single = true;
    }

    /// All associations of a gNB end.
    fn cut(&mut self, index: GnbIndex) {
        self.end_further(index);
        self.gnb(index, gnb::Input::AssociationDown);
    }

    /// A gNB is restarted with so many streams, both ways.
    pub fn restart_with_streams(&mut self, index: GnbIndex, streams: u16) {
        self.nodes[index.0].streams = streams;
        self.restart_gnb(index);
    }

    /// Has a UE do something.
    pub fn command(&mut self, index: UeIndex, command: Command) {
        self.ue(index, ue::Input::Command(command));
    }

    /// A UE goes where it hears no paging.
    pub fn leave_coverage(&mut self, index: UeIndex) {
        self.terminals[index.0].away = true;
    }

    /// A UE loses its power: it says nothing any more, and forgets all but its USIM.
    pub fn lose_power(&mut self, index: UeIndex) {
        let terminal = &mut self.terminals[index.0];
        terminal.ue = Ue::new(terminal.ue.config().clone());
        terminal.connection += 1;
        terminal.away = true;
        if let Some(s_tmsi) = terminal.s_tmsi.take() {
            self.by_s_tmsi.remove(&(s_tmsi, index));
        }
        self.timers.set(TimerOwner::Ue(index), None);
    }

    /// Whether it hears no paging, since it was unplugged or has no power.
    pub fn is_away(&self, index: UeIndex) -> bool {
        self.terminals[index.0].away
    }

    /// A UE that was away is back in the cell that it left.
    pub fn switch_on(&mut self, index: UeIndex) {
        self.terminals[index.0].away = false;
        let tai = self.nodes[self.terminals[index.0].gnb.0].gnb.config().tai();
        self.ue(index, ue::Input::Cell(tai));
    }

    /// Has a gNB ask for the release of a UE.
    pub fn release(&mut self, index: UeIndex, cause: whimbrel_ngap::ie::Cause) {
        let ue = whimbrel_ran::UeId(index.0 as u32);
        self.gnb(self.terminals[index.0].gnb, gnb::Input::Release(ue, cause));
    }

    /// A UE goes to another cell, without handover: a connection that it has is lost, and its gNB finds out.
    pub fn move_ue(&mut self, index: UeIndex, to: GnbIndex) {
        if self.terminals[index.0].gnb == to {
            return;
        }
        let connected = self.terminals[index.0].ue.is_connected();
        let from = std::mem::replace(&mut self.terminals[index.0].gnb, to);
        self.terminals[index.0].connection += 1;
        if connected {
            let ue = whimbrel_ran::UeId(index.0 as u32);
            let cause = whimbrel_ngap::ie::CauseRadioNetwork::RadioConnectionWithUeLost;
            self.gnb(from, gnb::Input::Release(ue, cause.into()));
            self.ue(index, ue::Input::Radio(Down::Released));
        }
        let tai = self.nodes[to.0].gnb.config().tai();
        self.ue(index, ue::Input::Cell(tai));
    }

    /// A UE loses its radio, and its gNB does not notice: it comes back on another connection while that one stands.
    pub fn lose_radio(&mut self, index: UeIndex) {
        self.terminals[index.0].connection += 1;
        self.ue(index, ue::Input::Radio(Down::Released));
    }

    /// Measures the core's work from now on, by a clock that counts nanoseconds.
    pub fn measure(&mut self, clock: fn() -> u64) {
        self.meter = Some(Meter::new(clock));
    }

    /// What the core worked since the last call, or since [`Sim::measure`].
    pub fn work(&mut self) -> Work {
        self.meter.as_mut().map(|m| std::mem::take(&mut m.work)).unwrap_or_default()
    }

    /// How many inputs the core's UEs had.
    pub fn inputs(&mut self) -> u64 {
        self.cta.inspect().inputs()
    }

    /// What was counted since the beginning.
    pub fn tally(&self) -> &Tally {
        &self.observer.tally
    }

    /// Has a UE's gNB hand it over to another one.
    pub fn hand_over(&mut self, index: UeIndex, to: GnbIndex, via: gnb::Via) {
        let ue = whimbrel_ran::UeId(index.0 as u32);
        let to = self.nodes[to.0].gnb.as_neighbour();
        self.gnb(self.terminals[index.0].gnb, gnb::Input::HandOver { ue, to, via });
    }

    /// The gNB on whose cell a UE is.
    pub fn gnb_of(&self, index: UeIndex) -> GnbIndex {
        self.terminals[index.0].gnb
    }

    /// A gNB's machine, to be made to misbehave.
    pub fn gnb_mut(&mut self, index: GnbIndex) -> &mut gnb::Gnb {
        &mut self.nodes[index.0].gnb
    }

    /// The store says that this subscriber has changed.
    pub fn subscriber_changed(&mut self, supi: whimbrel_ids::Supi) {
        self.core(Input::SubscribersChanged(Some(&[supi])));
    }

    /// Has the core do something with a UE.
    pub fn order(&mut self, ue: UeId, command: CoreCommand) {
        self.core(Input::Command(ue, command));
    }

    /// The operator resets a gNB's connections.
    pub fn reset_gnb(&mut self, gnb: GlobalGnbId) -> bool {
        self.operator_order(Order::ResetGnb(gnb)) == OrderOutcome::Reset(true)
    }

    /// Has the first UPF fare so from now on.
    pub fn set_upf(&mut self, state: UpfState) {
        self.set_nth_upf(UpfId(0), state);
    }

    /// Has a UPF fare so from now on.
    pub fn set_nth_upf(&mut self, upf: UpfId, state: UpfState) {
        self.upfs[usize::from(upf.0)].state = state;
    }

    /// A UPF asks to be left within this time (TS 29.244 §6.2.8.3).
    pub fn retire_upf(&mut self, upf: UpfId, grace: Duration) {
        let mut out = whimbrel_user::Outbox::default();
        let now = self.now;
        self.nth_upf(upf).c.retire(now, grace, &mut out);
        self.n4(upf, out);
    }

    /// A UPF asks for its association (TS 29.244 §6.2.6.3).
    pub fn associate_upf(&mut self, upf: UpfId) {
        let mut out = whimbrel_user::Outbox::default();
        let now = self.now;
        let smf = smf(self.pair.host());
        self.nth_upf(upf).c.associate(now, smf, &mut out);
        self.n4(upf, out);
    }

    /// A UPF starts anew with another configuration.
    pub fn replace_upf(&mut self, upf: UpfId, change: impl FnOnce(&mut whimbrel_user::Config)) {
        let mut config = home::nth_upf_config(upf.0, self.rng.draw());
        change(&mut config);
        self.advance(Duration::from_secs(2)); // recovery time stamps count seconds
        *self.nth_upf(upf) = Upf::new(config, self.now).expect("a configuration that holds");
    }

    /// How many UPFs there are.
    pub fn upfs(&self) -> u8 {
        self.upfs.len() as u8
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.clone()
    }

    /// Ends the association with a UPF.
    pub fn release_upf(&mut self, upf: UpfId) {
        self.operator_order(Order::ReleaseUpf(upf));
    }

    /// The first UPF starts anew: its sessions are gone.
    pub fn restart_upf(&mut self) {
        self.restart_nth_upf(UpfId(0));
    }

    /// A UPF starts anew: its sessions are gone.
    pub fn restart_nth_upf(&mut self, upf: UpfId) {
        let config = home::nth_upf_config(upf.0, self.rng.draw());
        *self.nth_upf(upf) = Upf::new(config, self.now).expect("the default UPF configuration holds");
    }

    /// The core starts anew: it knows its subscribers, and nothing of its UEs and gNBs. So do its CPFs.
    pub fn restart_core(&mut self) {
        let config = self.config.clone();
        let home = std::mem::take(self.cta.subscribers());
        let recorder = self.cta.inspect().anew();
        let entropy = (Prf::new(&self.rng.octets()), 0);
        self.in_flight.retain(|_, t| !matches!(t, InFlight::Link(_)));
        self.cluster = self.cluster.take().map(|c| c.anew(&config));
        let cluster = self.cluster.as_ref();
        let cta = new_cta(self.now, &config, &self.home_keys, home, entropy, recorder, cluster);
        self.cta = PrimaryCta::new(cta);
        self.observer.anew();
        self.by_association.retain(|_, gnb| self.nodes[gnb.0].peer_amf);
        let gnbs = (0..self.nodes.len()).filter(|&i| !self.nodes[i].peer_amf).map(GnbIndex);
        let gnbs: Vec<GnbIndex> = gnbs.collect();
        for &gnb in &gnbs {
            self.nodes[gnb.0].association = None;
            self.cut(gnb);
        }
        self.core(Input::Tick);
        gnbs.into_iter().for_each(|gnb| self.connect(gnb));
    }

    /// Free IPv4 addresses and IPv6 prefixes of a data network of the first UPF.
    pub fn free_addresses(&self, dn: u8) -> Option<(u64, u64)> {
        self.upfs[0].upf.c.free_addresses(whimbrel_user::DnIndex(dn))
    }

    /// Takes what the UPFs were asked since a test answers for them.
    pub fn take_pfcp(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.pfcp_requests)
    }

    /// A PFCP message of the first UPF, made by hand.
    pub fn inject_pfcp(&mut self, octets: &[u8]) {
        self.inject_pfcp_of(UpfId(0), octets);
    }

    /// A PFCP message of a UPF, made by hand.
    pub fn inject_pfcp_of(&mut self, upf: UpfId, octets: &[u8]) {
        self.core(Input::Pfcp(upf, octets));
    }

    /// A packet reaches the UPF: all that it sends because of it, in order, its own packets of before first.
    pub fn packet(&mut self, origin: Origin, octets: &[u8]) -> Vec<(Destination, Vec<u8>)> {
        let mut sent = self.upf_sent();
        let mut slots = [Slot { origin, packet: Packet::of(octets), verdict: Verdict::Pending }];
        let now = self.now;
        self.upf().u.burst(now, &mut slots);
        sent.extend(self.upf_sent());
        let [slot] = slots;
        if let Verdict::Send(to) = slot.verdict {
            sent.push((to, slot.packet.octets().to_vec()));
        }
        let mut out = whimbrel_user::Outbox::default();
        self.upf().settle(now, &mut out);
        self.n4(UpfId(0), out);
        sent
    }

    /// What the UPF has sent of its own: buffered packets, end markers.
    pub fn upf_sent(&mut self) -> Vec<(Destination, Vec<u8>)> {
        let upf = &mut self.upfs[0].upf;
        std::iter::from_fn(|| upf.u.next_output()).map(|(to, p)| (to, p.octets().to_vec())).collect()
    }

    /// Keeps what the core sends on N2 from now on.
    pub fn tap(&mut self) {
        self.tap = Some(Vec::new());
    }

    /// Takes what the core has sent on N2 since [`Sim::tap`] or the last call.
    pub fn tapped(&mut self) -> Vec<whimbrel_ngap::Message> {
        self.tap.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Something happens to a gNB.
    pub fn gnb_input(&mut self, index: GnbIndex, input: gnb::Input<'_>) {
        self.gnb(index, input);
    }

    /// The core takes a new version of its configuration.
    pub fn configure(&mut self, config: Config) {
        self.config = Arc::new(config);
        self.operator_order(Order::Configure(self.config.clone()));
    }

    /// Octets from a gNB's association, as they are.
    pub fn inject(&mut self, index: GnbIndex, octets: &[u8]) {
        if let Some(association) = self.nodes[index.0].association {
            self.core_at(index, Input::Ngap(association, 0, octets));
        }
    }

    /// A UE's machine.
    pub fn ue_ref(&self, index: UeIndex) -> &Ue {
        &self.terminals[index.0].ue
    }

    /// A UE's machine, to be made to misbehave.
    pub fn ue_mut(&mut self, index: UeIndex) -> &mut Ue {
        &mut self.terminals[index.0].ue
    }

    /// A gNB's machine.
    pub fn gnb_ref(&self, index: GnbIndex) -> &gnb::Gnb {
        &self.nodes[index.0].gnb
    }

    /// What happened to a UE, oldest first.
    pub fn ue_events(&self, index: UeIndex) -> &[(Instant, ue::Event)] {
        &self.terminals[index.0].events
    }

    /// How many gNBs there are.
    pub fn gnbs(&self) -> usize {
        self.nodes.len()
    }

    /// How many UEs there are.
    pub fn ues(&self) -> usize {
        self.terminals.len()
    }

    /// Runs until nothing is on its way and no timer is due within `patience`, or until the time is over.
    pub fn settle(&mut self, patience: Duration) {
        let until = self.now + patience;
        while let Some(at) = self.next_event()
            && at <= until
        {
            self.step(at);
        }
    }

    /// Runs for so long.
    pub fn advance(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle(time);
        self.now = until;
    }

    /// Whether nothing is on its way but what only time brings.
    pub(crate) fn is_quiet(&self) -> bool {
        let waits = |t: &InFlight| matches!(t, InFlight::CtaReplica(ReplicaLink::Grace));
        self.in_flight.values().all(waits) && self.region_rests() && self.pair_rests()
    }

    /// How often UEs and gNBs found the core at fault, and with what last.
    pub fn violations(&self) -> (u64, &str) {
        (self.observer.violations, &self.observer.violation)
    }

    fn next_event(&self) -> Option<Instant> {
        let in_flight = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let core = Some(self.cta().next_deadline());
        let core = core.filter(|&t| t != Instant::FAR_FUTURE && !self.has_no_cta());
        let peer_amf = self.peer_amf.as_ref().map(|a| a.cta.next_deadline());
        let core = core.into_iter().chain(peer_amf.filter(|&t| t != Instant::FAR_FUTURE));
        let all = self.timers.next().into_iter().chain(in_flight).chain(core);
        let all = all.chain(self.upfs.iter().filter_map(|u| u.upf.next_deadline()));
        all.min().map(|at| at.max(self.now))
    }

    fn step(&mut self, at: Instant) {
        self.now = at;
        while let Some(((due, _), _)) = self.in_flight.first_key_value()
            && *due <= at
        {
            let Some((_, message)) = self.in_flight.pop_first() else { break };
            self.arrive(message);
        }
        for owner in self.timers.due(at) {
            match owner {
                TimerOwner::Ue(i) => self.ue(i, ue::Input::Tick),
                TimerOwner::Gnb(i) => self.gnb(i, gnb::Input::Tick),
            }
        }
        if self.cta().next_deadline() <= at && !self.has_no_cta() {
            self.core(Input::Tick);
        }
        if self.peer_amf.as_ref().is_some_and(|a| a.cta.next_deadline() <= at) {
            self.peer_amf_input(Input::Tick);
        }
        for id in (0u8..).map(UpfId).take(self.upfs.len()) {
            let upf = self.nth_upf(id);
            if upf.next_deadline().is_some_and(|t| t <= at) {
                let mut out = whimbrel_user::Outbox::default();
                upf.tick(at, &mut out);
                self.n4(id, out);
            }
        }
        self.upfs_send();
        self.check();
    }

    fn arrive(&mut self, message: InFlight) {
        match message {
            InFlight::ToCore { association, stream, octets, .. }
                if self.by_association.get(&association).is_some_and(|gnb| self.nodes[gnb.0].peer_amf) =>
            {
                self.peer_amf_input(Input::Ngap(association, stream, &octets));
            }
            InFlight::N14(message) => self.n14_arrives(message),
            InFlight::Sap(message) => self.sap_arrives(message),
            InFlight::N3(datagram) => self.datagram_arrives(datagram),
            InFlight::ToCore { association, host, stream, octets } => {
                self.ngap_from_gnb(association, host, stream, octets);
            }
            InFlight::ToGnb { gnb, association, host, stream, octets } => {
                let node = &self.nodes[gnb.0];
                if node.association != Some(association) || host < node.host {
                    return;
                }
                let octets = octets.as_slice();
                self.gnb(
                    gnb,
                    match host > node.host && node.further.is_some() {
                        true => gnb::Input::FurtherNgap { stream, octets },
                        false => gnb::Input::Ngap { stream, octets },
                    },
                );
            }
            InFlight::Up { ue, connection, up } => {
                if self.terminals[ue.0].connection == connection {
                    self.terminals[ue.0].heard = connection;
                    let context = whimbrel_ran::UeId(ue.0 as u32);
                    self.gnb(self.terminals[ue.0].gnb, gnb::Input::Radio(context, up));
                }
            }
            InFlight::Link(link) => self.link_arrives(link),
            InFlight::CtaReplica(message) => self.cta_replica_arrives(message),
            InFlight::FurtherToCore { over, stream, octets } => self.further_to_core(over, stream, &octets),
            InFlight::FurtherToGnb { over, stream, octets } => self.further_to_gnb(over, stream, &octets),
            InFlight::Xn { to, from, message } => self.gnb(to, gnb::Input::Xn { from, message }),
            InFlight::Down { ue, connection, down } => {
                if self.terminals[ue.0].connection == connection {
                    self.ue(ue, ue::Input::Radio(down));
                }
            }
        }
    }

    fn send(&mut self, at: Instant, message: InFlight) {
        self.sequence += 1;
        self.in_flight.insert((at, self.sequence), message);
    }

    fn core_out(&mut self, out: CoreOutbox) {
        self.core_out_of(self.pair.host(), out);
    }

    /// What leaves a CTA's host.
    fn core_out_of(&mut self, host: u64, mut out: CoreOutbox) {
        self.send_n14(false, &mut out);
        let now = self.now;
        self.observer.tally(&out.events);
        let is_lost =
            |e: &UeEvent| matches!(e.event, Event::Deregistered { why: Deregistered::StateLost, .. });
        out.events.iter().filter(|e| is_lost(e)).for_each(|_| self.ue_is_lost());
        if !self.quiet {
            self.events.extend(out.events.into_iter().map(|e| (now, e)));
            self.ran_events.extend(out.ran_events);
            if !out.upfs.is_empty() {
                self.trace(|| format!("UPFs: {:?}", out.upfs));
            }
        }
        self.ngap_leaves(host, out.ngap);
        for (to, message) in out.cpfs {
            let taken = self.cta.taken(to);
            self.link(Link::Down { to, taken, message });
        }
        self.cpf_violations.extend(out.cpf_violations);
        for cpf in out.drained {
            self.cpf_leaves(cpf);
        }
        for association in out.abort {
            if let Some(gnb) = self.by_association.remove(&association) {
                self.nodes[gnb.0].association = None;
                self.cut(gnb);
            }
        }
        self.pfcp_leaves(host, out.pfcp);
        self.sap_leaves(host, out.brokers);
    }

    fn ngap_leaves(&mut self, host: u64, ngap: Vec<(AssociationId, u16, Vec<u8>)>) {
        for (association, stream, octets) in ngap {
            self.trace(|| format!("core to {association:?}: {:?}", whimbrel_ngap::Message::decode(&octets)));
            if let Some(tap) = &mut self.tap {
                tap.push(whimbrel_ngap::Message::decode(&octets).expect("the core writes what can be read"));
            }
            let agreed = TransferSyntax::of(&octets) == association.syntax();
            assert!(agreed || self.has_faulty_cpfs, "each gNB hears what it agreed on");
            let Some(&gnb) = self.by_association.get(&association) else { continue };
            let node = &mut self.nodes[gnb.0];
            assert!(stream < node.streams.max(1), "stream {stream} of {}", node.streams);
            node.ordered = node.ordered.max(self.now + self.faults.n2_latency(&mut self.rng));
            node.free_at = node.free_at.max(node.ordered) + node.per_message;
            let at = node.free_at;
            self.send(at, InFlight::ToGnb { gnb, association, host, stream, octets });
        }
    }

    fn pfcp_leaves(&mut self, host: u64, pfcp: Vec<(UpfId, Vec<u8>)>) {
        for (id, octets) in pfcp {
            self.trace(|| format!("core to {id:?}: {}", pfcp_words(&octets)));
            let upf = &mut self.upfs[usize::from(id.0)];
            match upf.state {
                UpfState::Silent => continue,
                UpfState::ByHand => {
                    self.pfcp_requests.push(octets);
                    continue;
                }
                UpfState::Answering | UpfState::Mute => {}
            }
            let mut answers = whimbrel_user::Outbox::default();
            upf.upf.pfcp(self.now, smf(host), &octets, &mut answers);
            self.n4(id, answers);
        }
    }

    fn n4(&mut self, upf: UpfId, out: whimbrel_user::Outbox) {
        if self.upfs[usize::from(upf.0)].state != UpfState::Answering {
            return;
        }
        for (to, octets) in out.datagrams {
            // Nobody hears what goes to a host that was replaced.
            if to == smf(self.pair.host()) {
                self.core(Input::Pfcp(upf, &octets));
            } else if to == smf(PEER_AMF_HOST) {
                self.peer_amf_input(Input::Pfcp(upf, &octets));
            }
        }
    }

    fn gnb(&mut self, index: GnbIndex, input: gnb::Input<'_>) {
        if let Some(heard) = &mut self.nodes[index.0].by_hand {
            if let gnb::Input::Ngap { octets, .. } = input {
                heard.push(whimbrel_ngap::Message::decode(octets).expect("the core writes what can be read"));
            }
            return;
        }
        let mut out = Outbox::new();
        let node = &mut self.nodes[index.0];
        node.gnb.handle(self.now, input, &mut out);
        self.timers.set(TimerOwner::Gnb(index), node.gnb.next_deadline());
        for output in out.drain() {
            match output {
                gnb::Output::Ngap { stream, octets } => {
                    let node = &mut self.nodes[index.0];
                    let Some(association) = node.association else { continue };
                    assert_eq!(TransferSyntax::of(&octets), association.syntax(), "and says it");
                    node.ordered = node.ordered.max(self.now + self.faults.n2_latency(&mut self.rng));
                    let (at, host) = (node.ordered, node.host);
                    let first =
                        whimbrel_ngap::peek(&octets).is_some_and(|p| p.procedure_code == INITIAL_UE_MESSAGE);
                    if first && self.rng.chance(self.faults.first_repeated_per_mille) {
                        let octets = octets.clone();
                        self.send(at, InFlight::ToCore { association, host, stream, octets });
                    }
                    self.send(at, InFlight::ToCore { association, host, stream, octets });
                }
                // One that has moved on hears its former gNB no more.
                gnb::Output::Radio(ue, down) if self.terminals[ue.0 as usize].gnb == index => {
                    self.down(UeIndex(ue.0 as usize), down);
                }
                gnb::Output::Radio(..) => {}
                gnb::Output::Page(s_tmsi) => self.page(index, s_tmsi),
                gnb::Output::Event(event) => {
                    if let gnb::Event::Violation { .. } = event {
                        self.observer.violated(&event);
                    }
                    self.trace(|| format!("gNB {}: {event:?}", index.0));
                    if !self.quiet {
                        self.gnb_events.push((index, event));
                    }
                }
                gnb::Output::Xn { to, message } => {
                    let from = self.nodes[index.0].gnb.config().id;
                    if let Some(to) = self.gnb_by_id(to) {
                        // Xn has an association of its own, in order like N2.
                        let node = &mut self.nodes[to.0];
                        node.ordered_xn =
                            node.ordered_xn.max(self.now + self.faults.n2_latency(&mut self.rng));
                        let at = node.ordered_xn;
                        self.send(at, InFlight::Xn { to, from, message });
                    }
                }
                gnb::Output::Associate(_) => self.associate(index),
                gnb::Output::Dissociate(_) => self.dissociate(index),
                gnb::Output::FurtherNgap { stream, octets } => {
                    let node = &mut self.nodes[index.0];
                    let Some(over) = node.further else { continue };
                    node.ordered = node.ordered.max(self.now + self.faults.n2_latency(&mut self.rng));
                    let at = node.ordered;
                    self.send(at, InFlight::FurtherToCore { over, stream, octets });
                }
                gnb::Output::Gtpu { to, datagram } => {
                    let from = self.nodes[index.0].gnb.config().gtp_address;
                    self.gnb_sends(from, to.0, datagram);
                }
                gnb::Output::Packet { ue, packet, .. } => {
                    let there = self.terminals[ue.0 as usize].gnb == index;
                    self.gnb_delivers(ue, there, &packet);
                }
            }
        }
    }

    fn page(&mut self, gnb: GnbIndex, s_tmsi: STmsi) {
        let named = self.by_s_tmsi.range((s_tmsi, UeIndex(0))..=(s_tmsi, UeIndex(usize::MAX)));
        for ue in named.map(|&(_, ue)| ue).collect::<Vec<_>>() {
            let terminal = &self.terminals[ue.0];
            if terminal.gnb == gnb && !terminal.away {
                self.ue(ue, ue::Input::Paged);
            }
        }
    }

    fn gnb_by_id(&self, id: GlobalGnbId) -> Option<GnbIndex> {
        self.nodes.iter().position(|n| n.gnb.config().id == id).map(GnbIndex)
    }

    fn down(&mut self, ue: UeIndex, down: Down) {
        let copies = if matches!(down, Down::Nas(_)) { self.faults.copies(&mut self.rng) } else { 1 };
        for _ in 0..copies {
            let at = self.radio_time(ue, matches!(down, Down::Nas(_)));
            let connection = self.terminals[ue.0].heard;
            self.send(at, InFlight::Down { ue, connection, down: down.clone() });
        }
    }

    fn ue(&mut self, index: UeIndex, input: ue::Input) {
        let mut out = Outbox::new();
        let terminal = &mut self.terminals[index.0];
        terminal.ue.handle(self.now, input, &mut out);
        self.timers.set(TimerOwner::Ue(index), terminal.ue.next_deadline());
        let s_tmsi = terminal.ue.s_tmsi();
        if s_tmsi != terminal.s_tmsi {
            let before = std::mem::replace(&mut terminal.s_tmsi, s_tmsi);
            before.map(|t| self.by_s_tmsi.remove(&(t, index)));
            s_tmsi.map(|t| self.by_s_tmsi.insert((t, index)));
        }
        for output in out.drain() {
            match output {
                ue::Output::Radio(up) => self.up(index, up),
                ue::Output::Event(event) => {
                    if let ue::Event::Violation(_) = event {
                        self.observer.violated(&event);
                    }
                    if !self.quiet {
                        self.terminals[index.0].events.push((self.now, event));
                    }
                }
            }
        }
    }

    fn up(&mut self, ue: UeIndex, up: Up) {
        if let Up::HandoverComplete { to, .. } = &up
            && let Some(gnb) = self.gnb_by_id(*to)
        {
            self.terminals[ue.0].gnb = gnb;
        }
        if matches!(up, Up::Connect(_) | Up::HandoverComplete { .. }) {
            self.terminals[ue.0].connection += 1;
            self.terminals[ue.0].ordered = self.now;
        }
        let copies = if matches!(up, Up::Nas(_)) { self.faults.copies(&mut self.rng) } else { 1 };
        for _ in 0..copies {
            let at = self.radio_time(ue, matches!(up, Up::Nas(_)));
            let connection = self.terminals[ue.0].connection;
            self.send(at, InFlight::Up { ue, connection, up: up.clone() });
        }
    }

    /// When what is sent over the radio now arrives: in order, unless the radio reorders.
    fn radio_time(&mut self, ue: UeIndex, may_reorder: bool) -> Instant {
        let latency = self.faults.radio_latency(&mut self.rng);
        let at = self.now + latency;
        if may_reorder && self.faults.reorders(&mut self.rng) {
            return at;
        }
        let terminal = &mut self.terminals[ue.0];
        terminal.ordered = terminal.ordered.max(at);
        terminal.ordered
    }
}

/// Procedure code of INITIAL UE MESSAGE (TS 38.413 §9.4.7).
const INITIAL_UE_MESSAGE: u8 = 15;

/// A PFCP message in words.
pub(crate) fn pfcp_words(octets: &[u8]) -> String {
    let read = whimbrel_pfcp::Frame::parse(octets).ok().and_then(|f| whimbrel_pfcp::Message::parse(&f).ok());
    format!("{read:?}")
}

/// Where the SMF's PFCP comes from: each of the two hosts has its address.
fn smf(host: u64) -> SocketAddr {
    let last = if host == PEER_AMF_HOST { 3 } else { 1 + (host % 2) as u8 };
    SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), 8805)
}
