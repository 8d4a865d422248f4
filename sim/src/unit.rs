//! What a unit has beside its CTAs and CPFs (docs/unit.md): a UPF whose replica goes on when it dies, and a manager that may be absent.
//!
//! The UPF writes its records into memory that outlives it, as into its state file, and the replica follows them. What arrives while no UPF runs waits, as it
//! does in the sockets and devices of a host. A successor must have the sessions and the waiting packets of the UPF that died. Packets of the data
//! network are numbered: no UE may get one twice, or after a later one of the same session.
//!
//! The manager witnesses ends and starts functions. While it is absent, no CTA takes over, and what has ended is not started again. The UPF's replica needs no
//! manager, unless the UPF hangs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use whimbrel_control::UpfId;
use whimbrel_ids::{Instant, PduSessionId, Seid};
use whimbrel_user::{
    BurstPacket, Config, FollowedState, Input, Origin, Outbox, Packet, PacketVerdict, SessionMemory, Shards,
    StateMemory, Upf, UpfC, UpfCReplica,
};

use crate::queue::InFlight;
use crate::traffic::udp;
use crate::{Sim, UeIndex, home};

/// The UPF that is a unit's.
const UNIT_UPF: UpfId = UpfId(0);
/// From a UPF's end until its replica takes packets: the lock of the state, and a last look at it.
const GOES_ON_AFTER: Duration = Duration::from_micros(500);
/// Until a UPF that hangs is killed.
const HANG_FOUND_AFTER: Duration = Duration::from_millis(20);
/// Until a process that the manager starts runs.
const STARTED_AFTER: Duration = Duration::from_millis(50);
/// From a takeover to the start of the next replica.
const NEXT_REPLICA_AFTER: Duration = Duration::from_millis(100);
/// Time between two looks of the replica.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// Time between two records of what sessions have counted: longer than in the program, since each is a step of the simulation.
const COUNTED_EVERY: Duration = Duration::from_secs(5);
/// The time since the host was started.
const BOOT: [u8; 16] = [7; 16];
/// Octets of a part of the memory.
const PAGE_OCTETS: u64 = 4096;

/// How the UPF of a unit dies, at the n-th input that it takes: a request of an SMF, or a burst of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpfLoss {
    /// It dies before it has read the input, which waits for its successor.
    BeforeInput,
    /// It has read the input, and nothing more: the input is lost.
    BeforeRecord,
    /// What it keeps for its successor is written. Nothing has left, and its pipelines do not have the changes of a request.
    BeforeOutput,
    /// The answers and packets have left.
    AfterOutput,
    /// It stops before it has read the input, and is killed later.
    Hangs,
}

impl UpfLoss {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::BeforeInput, Self::BeforeRecord, Self::BeforeOutput, Self::AfterOutput, Self::Hangs];
}

/// A fault of a unit that a test plants, and a run must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitFault {
    /// The UPF does not free the place of a packet that has waited when the packet leaves.
    KeepsSentPackets,
    /// The UPF's replica takes over with what it saw at its last look.
    TakesOverUnseen,
    /// What waits in the kernel is read after what arrives later.
    ReadsOutOfOrder,
    /// A new manager does not witness ends of the time in which there was none.
    ForgetsEnds,
}

/// What happens in a unit by itself.
#[derive(Debug)]
pub(crate) enum UnitEvent {
    /// The UPF of this number has ended, and another process goes on; whether the manager has to see to it.
    UpfGoesOn(u64, bool),
    /// The UPF of this number gets a replica.
    ReplicaStarts(u64),
}

/// An input of the UPF.
#[derive(Debug)]
pub(crate) enum UpfInput {
    /// A PFCP message of this SMF.
    Pfcp(SocketAddr, Vec<u8>),
    /// A burst of packets.
    Packets(Vec<(Origin, Vec<u8>)>),
}

/// The manager: it is absent until this time.
#[derive(Default)]
pub(crate) struct Manager {
    absent_until: Instant,
    forgets_ends: bool,
}

/// Memory that outlives a process.
#[derive(Clone)]
struct SurvivingMemory {
    pages: Arc<Mutex<BTreeMap<u64, Box<[u8]>>>>,
    octets: u64,
    /// From here on nothing is freed.
    never_freed_from: u64,
}

impl SurvivingMemory {
    fn for_upf(config: &Config, fault: Option<UnitFault>) -> Self {
        let keeps = fault == Some(UnitFault::KeepsSentPackets);
        Self {
            pages: Arc::default(),
            octets: SessionMemory::octets_for(config),
            never_freed_from: if keeps { SessionMemory::held_at(config) } else { u64::MAX },
        }
    }

    fn pages(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8]>>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parts of pages that make up these octets: page, place in it, and place and number of the octets.
fn parts(at: u64, octets: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (page, within) = ((at + done as u64) / PAGE_OCTETS, ((at + done as u64) % PAGE_OCTETS) as usize);
        let part = (PAGE_OCTETS as usize - within).min(octets - done);
        done += part;
        (part > 0).then_some((page, within, done - part, part))
    })
}

impl StateMemory for SurvivingMemory {
    fn octets(&self) -> u64 {
        self.octets
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        let pages = self.pages();
        for (page, within, from, octets) in parts(at, to.len()) {
            match pages.get(&page) {
                Some(page) => to[from..][..octets].copy_from_slice(&page[within..][..octets]),
                None => to[from..][..octets].fill(0),
            }
        }
    }

    fn write(&mut self, at: u64, octets: &[u8]) {
        let zero = octets.iter().all(|o| *o == 0);
        if zero && at >= self.never_freed_from {
            return;
        }
        let mut pages = self.pages();
        for (page, within, from, length) in parts(at, octets.len()) {
            if zero && !pages.contains_key(&page) {
                continue;
            }
            let page = pages.entry(page).or_insert_with(|| vec![0; PAGE_OCTETS as usize].into());
            page[within..][..length].copy_from_slice(&octets[from..][..length]);
        }
    }
}

/// What a UPF had when it died.
struct UpfRemains {
    sessions: BTreeSet<(Seid, Seid)>,
    /// Packets that waited, and how many of them at most were relayed in a handover: these die with the process.
    held: u64,
    relayed: u64,
}

/// The UPF of a unit, beside its present process.
pub(crate) struct UnitUpf {
    config: Config,
    memory: SurvivingMemory,
    replica: Option<(UpfCReplica, Shards)>,
    looked: Instant,
    /// What the replica saw at its last look, if it is to know no more.
    seen: Option<BTreeMap<u64, Box<[u8]>>>,
    /// How many processes there were before this one.
    life: u64,
    dead: Option<UpfRemains>,
    /// What arrives while there is no UPF.
    waiting: VecDeque<UpfInput>,
    taken: u64,
    loss: Option<(u64, UpfLoss)>,
    fault: Option<UnitFault>,
    /// Relayed packets that may be among those that wait.
    relayed: u64,
    /// What tests ask for.
    counts: UnitCounts,
}

/// What happened to the UPF of a unit, and to numbered packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitCounts {
    /// UPFs that died.
    pub deaths: u64,
    /// Those of which a replica went on; with the others another process began with the state.
    pub by_replica: u64,
    /// Packets that a UPF had read and not sent when it died.
    pub in_hand: u64,
    /// Relayed packets of handovers that waited in a UPF that died, at most.
    pub relayed: u64,
    /// Packets that waited for idle UEs in a UPF that died.
    pub held: u64,
}

/// The numbered packets of the data network.
#[derive(Default)]
pub(crate) struct NumberedPackets {
    /// The session that each was sent to, by its number.
    to: Vec<(UeIndex, PduSessionId)>,
    received: BTreeSet<u32>,
    newest: BTreeMap<(UeIndex, PduSessionId), u32>,
}

/// A process of the UPF that begins with the memory. It has no sessions if nothing was written there.
fn begin(config: &Config, memory: &SurvivingMemory, now: Instant, out: &mut Outbox) -> Upf {
    let mut config = config.clone();
    let state = SessionMemory::open(Box::new(memory.clone()), &mut config, BOOT, now);
    let mut u = pipelines(&config);
    let (c, restored) = UpfC::with_state(config.clone(), now, state, out).expect("the configuration holds");
    assert_eq!(
        (restored.lost, restored.refusal),
        (0, None),
        "a UPF that begins with the state has all of it"
    );
    out.changes.drain(..).for_each(|change| u.apply(now, change));
    u.keep_held(now, &config, &|| Box::new(memory.clone()));
    Upf { c, u }
}

fn pipelines(config: &Config) -> Shards {
    let mut u = Shards::new(config).expect("the configuration holds");
    u.only().into_iter().for_each(|only| only.keep_counted(COUNTED_EVERY));
    u
}

/// A process that follows the memory.
fn follow(config: &Config, memory: &SurvivingMemory, now: Instant) -> (UpfCReplica, Shards) {
    let mut config = config.clone();
    let state = FollowedState::open(Box::new(memory.clone()), &mut config, BOOT);
    let state = state.expect("it is of this UPF").expect("the UPF has begun it");
    let u = pipelines(&config);
    (UpfCReplica::new(config, now, state).expect("the configuration holds"), u)
}

impl UnitUpf {
    /// The replica looks at what the UPF has written, if it is time.
    fn look(&mut self, now: Instant) {
        if now.since(self.looked) < LOOKS_EVERY {
            return;
        }
        let Some((c, u)) = &mut self.replica else { return };
        let mut out = Outbox::default();
        c.catch_up(now, &mut out);
        out.changes.drain(..).for_each(|change| u.apply(now, change));
        self.looked = now;
        if self.fault == Some(UnitFault::TakesOverUnseen) {
            self.seen = Some(self.memory.pages().clone());
        }
    }
}

impl Sim {
    /// The first UPF becomes that of a unit: it keeps a state, and has a replica. A test may plant a fault.
    pub(crate) fn add_upf_replica(&mut self, fault: Option<UnitFault>) {
        let config = home::nth_upf_config(UNIT_UPF.0, self.rng.draw());
        let memory = SurvivingMemory::for_upf(&config, fault);
        self.manager.forgets_ends = fault == Some(UnitFault::ForgetsEnds);
        let mut out = Outbox::default();
        *self.nth_upf(UNIT_UPF) = begin(&config, &memory, self.now, &mut out);
        let replica = Some(follow(&config, &memory, self.now));
        self.user_plane.unit = Some(Box::new(UnitUpf {
            config,
            memory,
            replica,
            looked: self.now,
            seen: None,
            life: 0,
            dead: None,
            waiting: VecDeque::new(),
            taken: 0,
            loss: None,
            fault,
            relayed: 0,
            counts: UnitCounts::default(),
        }));
        self.carry();
    }

    /// The unit's UPF ends with its replica and its state: all of them begin again.
    pub(crate) fn restart_unit_upf(&mut self) {
        let config = home::nth_upf_config(UNIT_UPF.0, self.rng.draw());
        let now = self.now;
        let Some(unit) = &mut self.user_plane.unit else { return };
        unit.memory = SurvivingMemory::for_upf(&config, unit.fault);
        let mut out = Outbox::default();
        let upf = begin(&config, &unit.memory, now, &mut out);
        (unit.config, unit.replica, unit.dead, unit.relayed) = (config, None, None, 0);
        (unit.waiting, unit.seen) = (VecDeque::new(), None);
        unit.life += 1;
        let life = unit.life;
        *self.nth_upf(UNIT_UPF) = upf;
        self.send(now + NEXT_REPLICA_AFTER, InFlight::Unit(UnitEvent::ReplicaStarts(life)));
    }

    /// Whether the UPF has a replica, or had one.
    pub(crate) fn has_upf_replica(&self) -> bool {
        self.user_plane.unit.is_some()
    }

    /// How many inputs the unit's UPF has taken.
    pub fn upf_inputs_taken(&self) -> u64 {
        self.user_plane.unit.as_ref().map_or(0, |unit| unit.taken)
    }

    /// The unit's UPF dies at the n-th input that it takes from the beginning on.
    pub fn lose_upf_at(&mut self, input: u64, how: UpfLoss) {
        self.user_plane.unit.iter_mut().for_each(|unit| unit.loss = Some((input, how)));
    }

    /// The unit's UPF does not die any more.
    pub(crate) fn stop_upf_losses(&mut self) {
        self.user_plane.unit.iter_mut().for_each(|unit| unit.loss = None);
    }

    /// What happened to the unit's UPF.
    pub fn unit_counts(&self) -> UnitCounts {
        self.user_plane.unit.as_ref().map(|unit| unit.counts).unwrap_or_default()
    }

    /// Whether this UPF has died and no other process goes on yet.
    pub(crate) fn is_dead(&self, id: UpfId) -> bool {
        id == UNIT_UPF && self.user_plane.unit.as_ref().is_some_and(|unit| unit.dead.is_some())
    }

    /// An input of a UPF arrives. `None`: it waits, or has died with the process; else how the UPF dies when it has taken it.
    pub(crate) fn upf_takes(&mut self, id: UpfId, input: UpfInput) -> Option<(UpfInput, Option<UpfLoss>)> {
        let now = self.now;
        let Some(unit) = self.user_plane.unit.as_mut().filter(|_| id == UNIT_UPF) else {
            return Some((input, None));
        };
        if unit.dead.is_some() {
            unit.waiting.push_back(input);
            return None;
        }
        unit.look(now);
        unit.taken += 1;
        let taken = unit.taken;
        let loss = unit.loss.take_if(|(at, _)| *at <= taken).map(|(_, how)| how);
        match loss {
            Some(how @ (UpfLoss::BeforeInput | UpfLoss::Hangs)) => {
                unit.waiting.push_back(input);
                self.upf_dies(how);
                None
            }
            Some(how @ UpfLoss::BeforeRecord) => {
                if let UpfInput::Packets(packets) = &input {
                    unit.counts.in_hand += packets.len() as u64;
                }
                self.upf_dies(how);
                None
            }
            _ => Some((input, loss)),
        }
    }

    /// A PFCP message that the UPF has read. Its answers, unless it dies of it.
    pub(crate) fn upf_handles_pfcp(
        &mut self,
        id: UpfId,
        (peer, octets): (SocketAddr, &[u8]),
        loss: Option<UpfLoss>,
    ) -> Outbox {
        let (now, mut answers) = (self.now, Outbox::default());
        let upf = self.nth_upf(id);
        if loss == Some(UpfLoss::BeforeOutput) {
            upf.c.handle(now, Input::Pfcp { peer, octets }, &mut answers);
            self.upf_dies(UpfLoss::BeforeOutput);
            return Outbox::default();
        }
        upf.pfcp(now, peer, octets, &mut answers);
        if self.user_plane.unit.is_some() {
            self.upfs_send(); // its packet threads send at once
        }
        loss.into_iter().for_each(|how| self.upf_dies(how));
        answers
    }

    /// A burst of packets that the UPF has read. What it answers to SMFs, unless it dies of it.
    pub(crate) fn upf_handles_packets(
        &mut self,
        id: UpfId,
        packets: &[(Origin, Vec<u8>)],
        loss: Option<UpfLoss>,
    ) -> Outbox {
        let slot = |(origin, octets): &(Origin, Vec<u8>)| BurstPacket {
            origin: *origin,
            packet: Packet::of(octets),
            verdict: PacketVerdict::Pending,
        };
        let mut slots: Vec<BurstPacket> = packets.iter().map(slot).collect();
        let (now, mut out) = (self.now, Outbox::default());
        let upf = self.nth_upf(id);
        upf.u.burst(now, &mut slots);
        let held = upf.u.counters().held;
        let relayed = slots
            .iter()
            .filter(|s| matches!(s.origin, Origin::N3 { .. }) && s.verdict == PacketVerdict::Taken);
        let relayed = relayed.count() as u64;
        if let Some(unit) = self.user_plane.unit.as_mut().filter(|_| id == UNIT_UPF) {
            unit.relayed = if held == 0 { 0 } else { unit.relayed + relayed };
            if loss == Some(UpfLoss::BeforeOutput) {
                let in_hand = slots.iter().filter(|s| matches!(s.verdict, PacketVerdict::Send(_)));
                unit.counts.in_hand += in_hand.count() as u64;
                self.upf_dies(UpfLoss::BeforeOutput);
                return out;
            }
        }
        self.nth_upf(id).settle(now, &mut out);
        self.upfs_send(); // what it held goes first
        for slot in slots {
            if let PacketVerdict::Send(to) = slot.verdict {
                self.leaves_upf(id, to, slot.packet.octets());
            }
        }
        loss.into_iter().for_each(|how| self.upf_dies(how));
        out
    }

    fn upf_dies(&mut self, how: UpfLoss) {
        self.trace(|| format!("the UPF dies: {how:?}"));
        let upf = &self.user_plane.upfs[usize::from(UNIT_UPF.0)].upf;
        let (sessions, held) = (upf.c.sessions().collect(), upf.u.counters().held);
        let Some(unit) = &mut self.user_plane.unit else { return };
        let left = UpfRemains { sessions, held, relayed: unit.relayed.min(held) };
        unit.counts.deaths += 1;
        unit.counts.relayed += left.relayed;
        unit.counts.held += held - left.relayed;
        unit.dead = Some(left);
        let (alone, hangs) = (unit.replica.is_none(), how == UpfLoss::Hangs);
        let after = match (alone, hangs) {
            (true, _) => STARTED_AFTER,
            (false, true) => HANG_FOUND_AFTER,
            (false, false) => GOES_ON_AFTER,
        };
        let event = UnitEvent::UpfGoesOn(unit.life, alone || hangs);
        self.send(self.now + after, InFlight::Unit(event));
    }

    pub(crate) fn unit_event(&mut self, event: UnitEvent) {
        let of = match event {
            UnitEvent::UpfGoesOn(life, _) | UnitEvent::ReplicaStarts(life) => life,
        };
        if self.user_plane.unit.as_ref().is_none_or(|unit| unit.life != of) {
            return; // the UPF was restarted meanwhile
        }
        match event {
            UnitEvent::UpfGoesOn(_, false) => self.upf_goes_on(),
            UnitEvent::UpfGoesOn(..) => {
                if self.is_witnessed(|| InFlight::Unit(event), STARTED_AFTER) {
                    self.upf_goes_on();
                }
            }
            UnitEvent::ReplicaStarts(_) => {
                if self.is_witnessed(|| InFlight::Unit(event), NEXT_REPLICA_AFTER) {
                    let now = self.now;
                    let Some(unit) = self.user_plane.unit.as_mut().filter(|u| u.dead.is_none()) else {
                        return;
                    };
                    unit.replica = Some(follow(&unit.config, &unit.memory, now));
                    unit.looked = Instant::ZERO;
                    unit.look(now);
                }
            }
        }
    }

    /// The replica takes over, or a process that the manager has started begins with the state. Then it reads what waits.
    fn upf_goes_on(&mut self) {
        self.trace(|| "another UPF goes on".into());
        let now = self.now;
        let Some(unit) = &mut self.user_plane.unit else { return };
        let Some(left) = unit.dead.take() else { return };
        if let Some(seen) = unit.seen.take() {
            let held_at = SessionMemory::held_at(&unit.config) / PAGE_OCTETS;
            let mut pages = unit.memory.pages();
            pages.retain(|page, _| *page >= held_at);
            pages.extend(seen.into_iter().filter(|(page, _)| *page < held_at));
        }
        let mut out = Outbox::default();
        let by_replica = unit.replica.take();
        unit.counts.by_replica += u64::from(by_replica.is_some());
        let mut upf = match by_replica {
            Some((c, mut u)) => {
                let (c, restored) = c.take_over(now, &mut out).expect("the state is that of this UPF");
                assert_eq!((restored.lost, restored.refusal), (0, None), "a replica has all of the state");
                out.changes.drain(..).for_each(|change| u.apply(now, change));
                u.keep_held(now, &unit.config, &|| Box::new(unit.memory.clone()));
                Upf { c, u }
            }
            None => begin(&unit.config, &unit.memory, now, &mut out),
        };
        upf.settle(now, &mut out);
        (unit.relayed, unit.life) = (0, unit.life + 1);
        let (life, waiting) = (unit.life, std::mem::take(&mut unit.waiting));
        let out_of_order = unit.fault == Some(UnitFault::ReadsOutOfOrder);
        let sessions: BTreeSet<(Seid, Seid)> = upf.c.sessions().collect();
        assert_eq!(sessions, left.sessions, "the UPF that goes on has other sessions");
        *self.nth_upf(UNIT_UPF) = upf;
        self.send(now + NEXT_REPLICA_AFTER, InFlight::Unit(UnitEvent::ReplicaStarts(life)));
        let sent = self.upfs_send();
        let counters = self.nth_upf(UNIT_UPF).u.counters();
        let kept = counters.held + sent + counters.dropped.iter().sum::<u64>();
        assert!(
            (left.held - left.relayed..=left.held).contains(&kept),
            "of {} packets that waited in the UPF that died, {} of them relayed, {kept} are in the one that goes on",
            left.held,
            left.relayed
        );
        self.n4(UNIT_UPF, out);
        let waiting: Vec<UpfInput> =
            if out_of_order { waiting.into_iter().rev().collect() } else { waiting.into() };
        for input in waiting {
            match input {
                UpfInput::Pfcp(peer, octets) => self.pfcp_arrives(UNIT_UPF, peer, octets),
                UpfInput::Packets(packets) => self.reaches_upf(UNIT_UPF, packets),
            }
        }
        self.upfs_send();
    }

    /// The manager dies, and another one adopts the functions after this time.
    pub fn lose_manager(&mut self, absent: Duration) {
        self.manager.absent_until = self.now + absent;
    }

    /// Whether there is a manager.
    pub fn has_manager(&self) -> bool {
        self.manager.absent_until <= self.now
    }

    /// Whether there is a manager for what one has to see to; if not, it happens so long after the next one is there.
    pub(crate) fn is_witnessed(&mut self, event: impl FnOnce() -> InFlight, after: Duration) -> bool {
        if !self.has_manager() && !self.manager.forgets_ends {
            self.send(self.manager.absent_until + after, event());
        }
        self.has_manager()
    }

    /// The data network sends a burst of numbered packets to a UE's session.
    pub fn send_numbered(&mut self, ue: UeIndex, session: PduSessionId, packets: usize) {
        let info = self.ue_ref(ue).sessions().find(|s| s.id == session);
        let Some(to) = info.and_then(|s| s.ipv4) else { return };
        let (dn, upf) = (self.network_of(ue, session), self.upf_of(to));
        let first = self.user_plane.numbered.to.len() as u32;
        self.user_plane.numbered.to.extend(std::iter::repeat_n((ue, session), packets));
        let packet = |number: u32| (Origin::N6 { dn }, udp(to, &number.to_be_bytes()));
        self.reaches_upf(upf, (first..).take(packets).map(packet).collect());
        self.upfs_send();
    }

    /// Judges the numbered packets that UEs have received since the last call. How many were sent and received, from the beginning on.
    ///
    /// # Panics
    /// If one came twice, after a later one of its session, or to another UE.
    pub fn judge_numbered(&mut self) -> (u64, u64) {
        let arrived = self.all_received();
        let NumberedPackets { to, received, newest } = &mut self.user_plane.numbered;
        for (ue, number) in arrived {
            let Some(sent_to) = to.get(number as usize) else { continue };
            assert_eq!(sent_to.0, ue, "packet {number} reached another UE");
            assert!(received.insert(number), "packet {number} came twice");
            let before = newest.insert(*sent_to, number);
            assert!(before.is_none_or(|b| b < number), "packet {number} came after packet {before:?}");
        }
        (to.len() as u64, received.len() as u64)
    }
}
