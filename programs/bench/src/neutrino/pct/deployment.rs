//! A region of the control plane in virtual time: every message runs through the program, and the processor's time that it takes there is
//! charged to the core of the node that handled it. Cores work one message after the other; links take a fixed time. So the
//! number of cores is that of the deployment and not of this machine, and nothing else that this machine does shows.

mod packets;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use whimbrel_control::config::{Config, Limits};
use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, Batch, Effect, Envelope, Prf, UeContext, UeId, UpfId};
use whimbrel_ids::{AmfUeNgapId, GlobalGnbId, Instant, PlmnId, SNssai, Seid, Tac};
use whimbrel_ngap::ie::TriggeringMessage;
use whimbrel_ngap::{Peek, ProcedureCode, TransferSyntax};
use whimbrel_ran::ue::{self, Ue, UeCommand};
use whimbrel_ran::{DownlinkMessage, Outbox, UeId as RadioUe, UplinkMessage, gnb};
use whimbrel_resilience::cta_replica::{CtaReplica, PrimaryCta, ReplicaRecord};
use whimbrel_resilience::link::{CpfCommand, CpfReport, PeerMessage, ToCpf, ToCta, ToPeer};
use whimbrel_resilience::region::{Region, Regions, Rings};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{
    CpfOutbox, Cta, Input, Inspect, Outbox as CoreOutbox, ReplaySandbox, ReplicatedCpf, ToReplaySandbox,
    Trial, TrialOutcome,
};
use whimbrel_security::HomeNetworkKeys;
use whimbrel_sim::{SimSubscribers, default_config, ue_config, upf_config};
use whimbrel_user::Upf;

use super::clock::timed;
use super::codec::Cost;
use super::load::{Procedure, Progress};
use super::parts::Tap;
use super::scheme::{Change, Replication, Scheme};
use packets::{Carried, UserPlane};

/// A day in 2026.
const EPOCH: Instant = Instant(1_793_700_000_000_000);
/// CPFs of the region, each with a core of its own (Neutrino §5 has five, with two cores each).
pub(super) const CPFS: u16 = 5;
/// Threads of the CTA, each with gNBs of its own: as many as there are CPFs, so that these are what is loaded.
pub(super) const CTA_THREADS: usize = 5;
/// What the CTA wants to do within this time, it does, in nanoseconds.
const SOON: u64 = 20_000_000;
/// gNBs: several to each thread of the CTA.
const GNBS: usize = 20;
/// A host of the data network.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A message under way, or something that is about to happen.
enum Travelling {
    Ngap {
        gnb: usize,
        stream: u16,
        octets: Vec<u8>,
    },
    Pfcp(Vec<u8>),
    Up {
        from: CpfId,
        octets: Vec<u8>,
        of: u32,
    },
    Down(CpfId, Vec<u8>),
    Peer {
        from: CpfId,
        to: CpfId,
        octets: Vec<u8>,
    },
    /// A trial did no harm.
    TrialOutcome(CpfId, u64),
    /// A UE in the middle of a procedure, which only baselines copy.
    Copy(CpfId, Vec<u8>),
    ToGnb {
        gnb: usize,
        stream: u16,
        octets: Vec<u8>,
        of: Option<UeId>,
    },
    ToUpf {
        octets: Vec<u8>,
        of: Option<UeId>,
    },
    /// Of an application of a UE.
    Packet(Carried),
    Begin(u32, Procedure),
    Lose(CpfId),
    Tick,
}

struct Due {
    at: u64,
    sequence: u64,
    what: Travelling,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The earliest is the greatest: the heap gives that first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// A core of the deployment.
#[derive(Clone, Copy, Debug, Default)]
struct Core {
    busy_until: u64,
    worked: u64,
}

/// Whose outputs leave the CTA.
#[derive(Default)]
struct Whose(Option<UeId>);

impl Inspect for Whose {
    fn released(&mut self, ue: UeId, _: u64, _: &Batch) {
        self.0 = Some(ue);
    }
}

/// What the loss of a CPF did.
#[derive(Default)]
pub(super) struct Loss {
    /// Time of the loss.
    pub(super) at: u64,
    /// The UEs that it hit in the middle of something, and when the first that another one did for them left.
    pub(super) hit: BTreeMap<u32, Option<u64>>,
    /// The UEs that it served and that had begun something, done or not.
    pub(super) begun: usize,
    /// When the last UE was served by another CPF.
    pub(super) last_served: u64,
    /// How long the CTA looked for the UEs that were waiting, and asked for them elsewhere.
    pub(super) looked: u64,
    /// How long each wait for a trial was, links included.
    pub(super) trials: Vec<u64>,
}

/// The CTA, and the records that have not been sent to its CTA replica yet.
struct ActiveCta {
    active: PrimaryCta<SimSubscribers, (Prf, u64), Whose>,
    records: Vec<ReplicaRecord>,
}

impl ActiveCta {
    fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut CoreOutbox) {
        self.records.extend(self.active.handle(now, input, out));
    }

    fn cta(&self) -> &Cta<SimSubscribers, (Prf, u64), Whose> {
        self.active.cta()
    }
}

struct Terminal {
    ue: Ue,
    gnb: usize,
}

/// The region, its gNBs, UEs and UPF.
pub(super) struct Deployment {
    scheme: Scheme,
    config: Arc<Config>,
    /// One way between gNB and CTA, CTA and CPF, CTA and UPF, in nanoseconds.
    pub(super) hop_ns: u64,
    /// How much longer than that a state takes to a backup, which may be in another region.
    pub(super) to_backups_ns: u64,
    now: u64,
    /// Whether work and links take time: not while UEs get ready.
    charged: bool,
    cta: ActiveCta,
    /// What follows it, if it has one.
    cta_replica: Option<CtaReplica<SimSubscribers, (Prf, u64)>>,
    members: BTreeMap<CpfId, ReplicatedCpf>,
    /// What tries inputs for them, each on a core of its own.
    sandbox: ReplaySandbox,
    regions: Regions,
    region: Region,
    upf: Upf,
    upf_at: Ipv4Addr,
    /// What UEs do with their sessions.
    pub(super) user_plane: UserPlane,
    gnbs: Vec<gnb::Gnb>,
    ues: Vec<Terminal>,
    /// The UEs as the CTA names them, as far as known.
    by_id: BTreeMap<UeId, u32>,
    /// The other way round.
    ids: BTreeMap<u32, UeId>,
    /// When the CTA does next what it is not asked for.
    tick_at: Option<u64>,
    /// The number of the newest CPF.
    newest: u16,
    /// What the last loss did.
    pub(super) loss: Loss,
    queue: BinaryHeap<Due>,
    sequence: u64,
    cta_cores: Vec<Core>,
    /// The CTA replica has as many: each follows one of them.
    cta_replica_cores: Vec<Core>,
    cpf_cores: BTreeMap<CpfId, Core>,
    /// What the UEs are at.
    pub(super) progress: Progress,
    /// Whether that is looked at, after every message.
    pub(super) watches_log: bool,
    /// The most octets that were logged at once.
    pub(super) most_logged: usize,
    /// Octets between CPFs since the measurement began.
    pub(super) between_cpfs: u64,
    /// The carried messages, if they are recorded.
    pub(super) tap: Option<Tap>,
    /// What reading and writing NGAP took since [`Self::measure`] began, where the codec is not our own.
    pub(super) codecs: Cost,
}

impl Deployment {
    /// A region of so many UEs, which are switched off still.
    pub(super) fn new(scheme: Scheme, ues: u32, hop_ns: u64) -> Self {
        let mut config = default_config();
        config.limits = Limits {
            first_messages_per_s: u32::MAX,
            unauthenticated_ues: u32::MAX,
            unauthenticated_ues_per_gnb: u32::MAX,
            ..config.limits
        };
        let config = Arc::new(config);
        let directory = Directory::new(config.amf.plmn, HomeNetworkKeys::new());
        let entropy = (Prf::new(&[9; 16]), 0);
        let region: Region = "coast/home".parse().expect("a region's name");
        let mut regions = Regions::new([region.clone()]).expect("one region");
        let ids = (1..=CPFS).map(CpfId).take(if scheme.one_process { 0 } else { usize::from(CPFS) });
        let members = ids.map(|id| {
            regions.join(id, &region).expect("each comes once");
            (id, member(scheme, &config))
        });
        let members: BTreeMap<_, _> = members.collect();
        let mut sandbox = ReplaySandbox::default();
        let configured = sandbox.handle(ToReplaySandbox::Configure(config.clone()), |_, _| {});
        configured.expect("no UE's state is in it");
        let home = SimSubscribers::default();
        let cta = if scheme.one_process {
            Cta::new(config.clone(), directory, home, entropy, Whose::default(), EPOCH)
        } else {
            let backups = if scheme.log { scheme.backups } else { 0 };
            let rings = regions.rings(&region, backups).expect("the region is known");
            let (config, whose) = (config.clone(), Whose::default());
            let mut cta = Cta::of_region(config, directory, home, entropy, whose, rings, EPOCH);
            cta.set_log_limits(scheme.logs());
            cta
        };
        let mut active =
            if scheme.replicated { PrimaryCta::new(cta) } else { PrimaryCta::without_cta_replica(cta) };
        let cta_replica = active.snapshot().map(|snapshot| {
            active.begin_holding();
            let (directory, entropy) =
                (Directory::new(config.amf.plmn, HomeNetworkKeys::new()), (Prf::new(&[8; 16]), 0));
            CtaReplica::new(snapshot.octets(), directory, SimSubscribers::default(), entropy, ())
                .expect("it follows")
        });
        let gnbs = (1..=GNBS as u8).map(|n| {
            let id = GlobalGnbId::new(PlmnId::TEST, n.into(), 28).expect("28 bits");
            let tac = Tac::new(1).expect("24 bits");
            gnb::Gnb::new(gnb::GnbConfig::new(id, tac, vec![SNssai::sst(1)], [127, 0, 1, n].into()))
        });
        let ues = (0..ues).map(|n| Terminal { ue: Ue::new(ue_config(n)), gnb: n as usize % GNBS });
        let upf = upf_config(7);
        let mut deployment = Self {
            scheme,
            config,
            hop_ns,
            to_backups_ns: 0,
            now: 0,
            charged: false,
            cta: ActiveCta { active, records: Vec::new() },
            cta_replica,
            cpf_cores: members.keys().map(|id| (*id, Core::default())).collect(),
            members,
            sandbox,
            regions,
            region,
            upf_at: upf.n3_ipv4.expect("it is reached by IPv4"),
            upf: Upf::new(upf, EPOCH).expect("the default configuration holds"),
            user_plane: UserPlane::default(),
            gnbs: gnbs.collect(),
            ues: ues.collect(),
            by_id: BTreeMap::new(),
            ids: BTreeMap::new(),
            tick_at: None,
            newest: CPFS,
            loss: Loss::default(),
            queue: BinaryHeap::new(),
            sequence: 0,
            cta_cores: vec![Core::default(); if scheme.one_process { 1 } else { CTA_THREADS }],
            cta_replica_cores: vec![Core::default(); CTA_THREADS],
            progress: Progress::default(),
            watches_log: false,
            most_logged: 0,
            between_cpfs: 0,
            tap: None,
            codecs: Cost::default(),
        };
        deployment.cta_takes(0, |cta, now, out| cta.handle(now, Input::Tick, out));
        deployment.run();
        for n in 0..GNBS {
            let association = association(scheme, n);
            let up = Input::AssociationUp { association, outbound_streams: 16, addresses: Vec::new() };
            deployment.cta_takes(0, |cta, now, out| cta.handle(now, up, out));
            deployment.gnb(n, gnb::Input::AssociationUp { streams: 16, syntax: association.syntax() });
        }
        deployment.run();
        for n in 0..deployment.ues.len() as u32 {
            let tai = deployment.gnbs[deployment.ues[n as usize].gnb].config().tai();
            deployment.ue(n, ue::Input::Cell(tai));
        }
        deployment
    }

    /// How many UEs there are.
    pub(super) fn ues(&self) -> u32 {
        self.ues.len() as u32
    }

    /// Lets these UEs do something of which no time is taken, until all are done.
    pub(super) fn prepare(&mut self, procedure: Procedure, ues: impl IntoIterator<Item = u32>) {
        self.charged = false;
        for n in ues {
            self.progress.begin(n, procedure, self.now);
            self.begin(n);
            self.run();
        }
        self.progress.clear();
    }

    /// Lets the connections of all UEs go.
    pub(super) fn release_all(&mut self) {
        self.charged = false;
        let cause = whimbrel_ngap::CauseRadioNetwork::UserInactivity;
        for n in 0..self.ues() {
            if self.ues[n as usize].ue.is_connected() {
                let at = self.ues[n as usize].gnb;
                self.gnb(at, gnb::Input::Release(RadioUe(n), cause.into()));
                self.run();
            }
        }
    }

    /// Lets UEs do something, each at its time in nanoseconds from now, and CPFs be lost likewise, until nothing is under way.
    /// Work and links take their time.
    pub(super) fn measure(&mut self, procedure: Procedure, begins: &[(u64, u32)], losses: &[(u64, CpfId)]) {
        let begins: Vec<_> = begins.iter().map(|&(after, n)| (after, n, procedure)).collect();
        self.measure_each(&begins, losses);
    }

    /// The same, where not all do the same: of what one UE does, in order, the last counts.
    pub(super) fn measure_each(&mut self, begins: &[(u64, u32, Procedure)], losses: &[(u64, CpfId)]) {
        self.charged = true;
        self.progress.clear();
        (self.most_logged, self.between_cpfs, self.codecs) = (0, 0, Cost::default());
        self.now += 1_000_000;
        let from = self.now;
        let cores = self.cta_cores.iter_mut().chain(&mut self.cta_replica_cores);
        for core in cores.chain(self.cpf_cores.values_mut()) {
            *core = Core { busy_until: from, worked: 0 };
        }
        for &(after, n, procedure) in begins {
            if self.progress.procedure(n).is_none() {
                self.progress.begin(n, procedure, from + after);
            }
            self.send(from + after, Travelling::Begin(n, procedure));
        }
        self.applications_begin(from);
        for &(after, cpf) in losses {
            self.send(from + after, Travelling::Lose(cpf));
        }
        self.run();
    }

    /// The processor's time since [`Self::measure`] began: the CTA's, and the CPFs'.
    pub(super) fn worked(&self) -> (u64, u64) {
        let cpfs = self.cpf_cores.values().map(|c| c.worked).sum();
        (self.cta_cores.iter().map(|c| c.worked).sum(), cpfs)
    }

    fn send(&mut self, at: u64, what: Travelling) {
        if let Some(tap) = &mut self.tap {
            match &what {
                Travelling::Ngap { octets, .. } => tap.up.push(octets.clone()),
                Travelling::ToGnb { octets, .. } => tap.down.push(octets.clone()),
                Travelling::Pfcp(octets) => tap.from_upf.push(octets.clone()),
                Travelling::ToUpf { octets, .. } => tap.to_upf.push(octets.clone()),
                Travelling::Up { octets, .. }
                | Travelling::Down(_, octets)
                | Travelling::Peer { octets, .. } => tap.frames.push(octets.clone()),
                _ => {}
            }
        }
        self.sequence += 1;
        self.queue.push(Due { at, sequence: self.sequence, what });
    }

    /// When what leaves at a time is there.
    fn there(&self, leaves: u64) -> u64 {
        if self.charged { leaves + self.hop_ns } else { leaves }
    }

    fn run(&mut self) {
        while let Some(due) = self.queue.pop() {
            self.now = self.now.max(due.at);
            self.arrive(due.what);
        }
    }

    fn arrive(&mut self, what: Travelling) {
        match what {
            Travelling::Ngap { gnb, stream, octets } => {
                let change = self.change_of_cpf(&octets);
                let input = Input::Ngap(association(self.scheme, gnb), stream, &octets);
                self.cta_takes(slot_in_ngap(&octets).map_or(gnb, |slot| slot as usize), |cta, now, out| {
                    if let Some((ue, to)) = change {
                        cta.handle(now, Input::Move(ue, to), out);
                    }
                    cta.handle(now, input, out);
                });
            }
            Travelling::Pfcp(octets) => {
                let thread = slot_in_pfcp(&octets).unwrap_or(0) as usize;
                self.cta_takes(thread, |cta, now, out| cta.handle(now, Input::Pfcp(UpfId(0), &octets), out));
            }
            Travelling::Up { from, octets, of } => self.cta_takes(of as usize, |cta, now, out| {
                let Ok(ToCta::Report(message)) = ToCta::read(&octets) else {
                    unreachable!("it was written so")
                };
                cta.handle(now, Input::Cpf(from, message), out);
            }),
            Travelling::Down(to, octets) => self.cpf_runs(to, &octets),
            Travelling::Peer { to, octets, .. } => {
                self.cpf_takes(to, |member, out| {
                    let ToPeer { from, message, .. } = ToPeer::read(&octets).expect("it was written so");
                    member.peer(from, message, out);
                });
            }
            Travelling::TrialOutcome(to, trial) => {
                self.cpf_takes(to, |member, out| member.tried(trial, TrialOutcome::Passed, out))
            }
            Travelling::Copy(to, octets) => {
                self.cpf_takes(to, |_, _| {
                    black_box(postcard::from_bytes::<UeContext>(&octets).expect("what a CPF wrote"));
                });
            }
            Travelling::ToGnb { gnb, stream, octets, of } => {
                let heard = self.gnb(gnb, gnb::Input::Ngap { stream, octets: &octets });
                if let (Some(id), Some(ue)) = (of, heard) {
                    self.by_id.insert(id, ue);
                    self.ids.insert(ue, id);
                }
                self.heard(of);
                if let Some(ue) = heard.or(of.and_then(|id| self.by_id.get(&id).copied())) {
                    self.path_may_stand(ue);
                }
            }
            Travelling::ToUpf { octets, of } => {
                self.heard(of);
                let mut out = whimbrel_user::Outbox::default();
                self.upf.pfcp(self.instant(), SMF, &octets, &mut out);
                let at = self.there(self.now);
                out.datagrams.into_iter().for_each(|(_, octets)| self.send(at, Travelling::Pfcp(octets)));
            }
            Travelling::Packet(carried) => self.packet(carried),
            Travelling::Begin(n, procedure) => {
                if self.progress.begins(n, procedure, self.now) {
                    self.begin(n);
                }
            }
            Travelling::Lose(cpf) => self.lose(cpf),
            Travelling::Tick if self.tick_at != Some(self.now) => {} // another one came before
            Travelling::Tick => {
                self.tick_at = None;
                self.cta_takes(0, |cta, now, out| cta.handle(now, Input::Tick, out));
                self.all_threads_wait();
            }
        }
    }

    /// A message of the core for a UE has arrived.
    fn heard(&mut self, of: Option<UeId>) {
        if let Some(ue) = of.and_then(|id| self.by_id.get(&id)) {
            self.progress.heard(*ue, self.now);
        }
    }

    /// The CPF that HANDOVER REQUIRED leads to, where handovers change it.
    fn change_of_cpf(&self, octets: &[u8]) -> Option<(UeId, CpfId)> {
        let required = whimbrel_ngap::peek(octets).filter(is_handover_required)?;
        let id = slot_of(required.amf_ue_ngap_id?);
        let of_slot = UeId { slot: id, generation: 0 }..=UeId { slot: id, generation: u16::MAX };
        let ue = *self.by_id.range(of_slot).next_back()?.0;
        let (serves, backs) = (self.cta.cta().served_by(ue)?, self.cta.cta().backed_by(ue));
        let to = match self.scheme.change {
            Change::None => None,
            Change::ToReplica => backs.first().copied(),
            Change::ToOther => {
                let others = self.members.keys().filter(|id| **id != serves && !backs.contains(id));
                let others: Vec<CpfId> = others.copied().collect();
                others.get(ue.slot as usize / GNBS % others.len().max(1)).copied()
            }
        };
        to.map(|to| (ue, to))
    }

    fn instant(&self) -> Instant {
        Instant(EPOCH.0 + self.now / 1000)
    }

    fn cta_takes(&mut self, thread: usize, work: impl FnOnce(&mut ActiveCta, Instant, &mut CoreOutbox)) {
        let now = self.instant();
        let cta = &mut self.cta;
        cta.active.inspect().0 = None;
        let mut out = CoreOutbox::default();
        let ((), mut cost) = timed(|| work(cta, now, &mut out));
        let mut cta_replicas = 0;
        for record in cta.records.drain(..) {
            let Some(cta_replica) = &mut self.cta_replica else { continue };
            let (held, took) = timed(|| cta_replica.take(record.octets()).expect("it follows"));
            cta_replicas += took;
            cost += timed(|| cta.active.acknowledged(held, &mut out)).1;
        }
        let (to_cpfs, packed): (Vec<_>, _) =
            timed(|| out.cpfs.drain(..).map(|(to, down)| (to, octets_down(down))).collect());
        let thread = thread % self.cta_cores.len();
        let done = charge(self.charged, self.now, &mut self.cta_cores[thread], cost + packed);
        let leaves = self.replicated(thread, done, cta_replicas);
        let of = self.cta.active.inspect().0;
        self.tick_soon(leaves);
        if !out.ngap.is_empty() || !out.pfcp.is_empty() {
            let recovered = of.and_then(|id| self.by_id.get(&id)).and_then(|n| self.loss.hit.get_mut(n));
            recovered.map(|at| at.get_or_insert(leaves));
        }
        if self.watches_log {
            self.most_logged = self.most_logged.max(self.cta.cta().logged().0);
        }
        let at = self.there(leaves);
        for (association, stream, octets) in out.ngap {
            let gnb = gnb_of(association);
            let at = if self.scheme.device_state && asks_for_context(&octets) { leaves } else { at };
            self.send(at, Travelling::ToGnb { gnb, stream, octets, of });
        }
        out.pfcp.into_iter().for_each(|(_, octets)| self.send(at, Travelling::ToUpf { octets, of }));
        to_cpfs.into_iter().for_each(|(to, octets)| self.send(at, Travelling::Down(to, octets)));
    }

    /// When what a thread of the CTA has done may leave: when its CTA replica has acknowledged the inputs.
    fn replicated(&mut self, thread: usize, done: u64, work: u64) -> u64 {
        if self.cta_replica.is_none() || work == 0 {
            return done;
        }
        let there = self.there(done);
        let held = charge(self.charged, there, &mut self.cta_replica_cores[thread], work);
        self.there(held)
    }

    /// The CTA is called again for what it wants to do within the next milliseconds; what is due later is no part of an experiment.
    fn tick_soon(&mut self, not_before: u64) {
        let due = self.cta.cta().next_deadline().since(EPOCH).as_nanos() as u64;
        let at = due.max(not_before);
        if due < self.now + SOON && self.tick_at.is_none_or(|before| at < before) {
            self.tick_at = Some(at);
            self.send(at, Travelling::Tick);
        }
    }

    fn cpf_runs(&mut self, to: CpfId, octets: &[u8]) {
        let codec = self.scheme.codec;
        let copies = self.scheme.replication == Replication::EveryMessage;
        let (mut copy, mut serves, mut spent) = (None, false, Cost::default());
        let run = |member: &mut ReplicatedCpf, out: &mut CpfOutbox| member.handle(read_down(octets), out);
        let more = |member: &ReplicatedCpf, out: &CpfOutbox| {
            let message = read_down(octets);
            serves = matches!(message, CpfCommand::Serve { .. });
            let CpfCommand::Run(envelope) = message else { return 0 };
            if let Some(octets) = ngap_of(&envelope) {
                spent += codec.read(octets);
            }
            for octets in out.up.iter().flat_map(ngap_caused) {
                spent += codec.write(octets);
            }
            let mut more = spent.more();
            if copies && let Some(ue) = member.cpf().context(envelope.ue) {
                let (octets, cost) = timed(|| postcard::to_allocvec(ue).expect("memory grows"));
                copy = Some(octets);
                more += cost as i64;
            }
            more
        };
        let leaves = self.cpf_takes_and(to, run, more);
        self.codecs += spent;
        if let Some(leaves) = leaves.filter(|_| serves) {
            self.loss.last_served = self.loss.last_served.max(leaves);
        }
        let (Some(leaves), Some(octets)) = (leaves, copy) else { return };
        let at = self.there(leaves);
        for n in 1..=self.scheme.backups as u16 {
            let other = CpfId((to.0 - 1 + n) % CPFS + 1);
            self.between_cpfs += octets.len() as u64;
            self.send(at, Travelling::Copy(other, octets.clone()));
        }
    }

    fn cpf_takes(&mut self, to: CpfId, work: impl FnOnce(&mut ReplicatedCpf, &mut CpfOutbox)) {
        self.cpf_takes_and(to, work, |_, _| 0);
    }

    /// Runs work on a CPF; `more` returns further cost, in nanoseconds. Returns when its outputs leave.
    fn cpf_takes_and(
        &mut self,
        to: CpfId,
        work: impl FnOnce(&mut ReplicatedCpf, &mut CpfOutbox),
        more: impl FnOnce(&ReplicatedCpf, &CpfOutbox) -> i64,
    ) -> Option<u64> {
        let member = self.members.get_mut(&to)?;
        let mut out = CpfOutbox::default();
        let ((), worked) = timed(|| work(member, &mut out));
        let more = more(member, &out);
        let ((ups, peers, trials), packed) = timed(|| {
            let ups: Vec<_> = out.up.into_iter().map(octets_up).collect();
            let to_peer = |(peer, message)| (peer, octets_to_peer(to, message));
            let peers: Vec<_> = out.peers.into_iter().map(to_peer).collect();
            let trials: Vec<_> = out.trials.into_iter().map(|t| (t.id, octets_of_trial(t))).collect();
            (ups, peers, trials)
        });
        let core = self.cpf_cores.get_mut(&to)?;
        let leaves = charge(self.charged, self.now, core, (worked + packed).saturating_add_signed(more));
        let at = self.there(leaves);
        ups.into_iter().for_each(|(of, octets)| self.send(at, Travelling::Up { from: to, octets, of }));
        for (peer, octets) in peers {
            self.between_cpfs += octets.len() as u64;
            self.send(at + self.to_backups_ns, Travelling::Peer { from: to, to: peer, octets });
        }
        let mut sandboxed = at;
        for (trial, octets) in trials {
            let (outcome, cost) = timed(|| self.sandbox.handle(read_trial(&octets), |_, _| {}));
            assert_eq!(outcome, Ok(Some(trial)), "no input does harm here");
            sandboxed += if self.charged { cost } else { 0 };
            let arrives = self.there(sandboxed);
            self.loss.trials.push(arrives - leaves);
            self.send(arrives, Travelling::TrialOutcome(to, trial));
        }
        Some(leaves)
    }

    /// A CPF is gone with all that has reached it, and the CTA knows at once.
    fn lose(&mut self, cpf: CpfId) {
        if self.members.remove(&cpf).is_none() {
            return;
        }
        let (now, up) = (self.now, self.hop_ns);
        let to_backups = up + self.to_backups_ns;
        // What was still with it is lost; what is on a link arrives.
        self.queue.retain(|due| match due.what {
            Travelling::Up { from, .. } => from != cpf || due.at <= now + up,
            Travelling::Peer { from, .. } => from != cpf || due.at <= now + to_backups,
            _ => true,
        });
        let served = |n: &u32| self.ids.get(n).and_then(|id| self.cta.cta().served_by(*id)) == Some(cpf);
        let hit = self.progress.under_way(now).filter(served).map(|n| (n, None)).collect();
        let begun = self.progress.begun(now).filter(served).count();
        self.loss = Loss { at: now, hit, begun, last_served: now, ..Loss::default() };
        self.regions.leave(cpf);
        let rings = self.rings();
        self.cta_takes(0, |cta, now, out| {
            cta.handle(now, Input::Rings(rings), out);
            cta.handle(now, Input::CpfLost(cpf), out);
        });
        self.all_threads_wait();
        self.loss.looked = self.cta_cores[0].busy_until.saturating_sub(now);
    }

    /// What concerns UEs of all threads of the CTA is done by one, and the others wait for it: a UE's inputs keep their order.
    fn all_threads_wait(&mut self) {
        let until = self.cta_cores.iter().map(|c| c.busy_until).max().unwrap_or(0);
        self.cta_cores.iter_mut().for_each(|c| c.busy_until = until);
    }

    fn rings(&self) -> Rings {
        // What goes to the others at every message goes to them from here, beside the program.
        let backups = if self.scheme.log { self.scheme.backups } else { 0 };
        self.regions.rings(&self.region, backups).expect("the region is known")
    }

    /// A CPF of the region.
    pub(super) fn any_cpf(&self) -> CpfId {
        *self.members.keys().next().expect("there are some")
    }

    /// Another CPF takes the place of one that was lost, and UEs that lost their state attach; this takes no time.
    pub(super) fn mend(&mut self) {
        self.charged = false;
        self.newest += 1;
        let id = CpfId(self.newest);
        self.regions.join(id, &self.region).expect("it is new");
        self.members.insert(id, member(self.scheme, &self.config));
        self.cpf_cores.insert(id, Core::default());
        let rings = self.rings();
        self.cta_takes(0, |cta, now, out| cta.handle(now, Input::Rings(rings), out));
        self.run();
        self.rest();
        let off = (0..self.ues()).filter(|n| !self.ues[*n as usize].ue.is_connected());
        self.prepare(Procedure::Attach, off.collect::<Vec<_>>());
    }

    /// What handovers end with waits for a timer: this takes no time.
    pub(super) fn rest(&mut self) {
        self.charged = false;
        for _ in 0..30 {
            self.now += 100_000_000;
            self.cta_takes(0, |cta, now, out| cta.handle(now, Input::Tick, out));
            self.run();
        }
    }

    /// UEs whose state was lost: they registered again.
    pub(super) fn registered_again(&self) -> u64 {
        self.cta.cta().replication_counters().lost
    }

    fn begin(&mut self, n: u32) {
        match self.progress.procedure(n) {
            Some(Procedure::Attach) => self.ue(n, ue::Input::Command(UeCommand::Register)),
            Some(Procedure::ServiceRequest) => self.ue(n, ue::Input::Command(UeCommand::ServiceRequest)),
            Some(Procedure::Handover) => {
                let at = self.ues[n as usize].gnb;
                let to = self.gnbs[(at + 1) % GNBS].as_neighbour();
                self.gnb(at, gnb::Input::HandOver { ue: RadioUe(n), to, via: gnb::Via::N2 });
            }
            None => {}
        }
    }

    /// Gives the UE to which the gNB says something because of it.
    fn gnb(&mut self, index: usize, input: gnb::Input<'_>) -> Option<u32> {
        let mut out = Outbox::new();
        let now = self.instant();
        self.gnbs[index].handle(now, input, &mut out);
        let mut heard = None;
        let at = self.there(self.now);
        for output in out.drain() {
            match output {
                gnb::Output::Ngap { stream, octets } => {
                    let at = if self.scheme.device_state && is_answer(&octets) { self.now } else { at };
                    self.send(at, Travelling::Ngap { gnb: index, stream, octets });
                }
                gnb::Output::Radio(RadioUe(n), down) => {
                    heard = Some(n);
                    if self.ues[n as usize].gnb == index {
                        self.ue(n, ue::Input::Radio(down));
                    }
                }
                gnb::Output::Packet { ue, packet, .. } => self.over_radio(ue.0, &packet),
                gnb::Output::Event(gnb::Event::HandedOver { ue, .. }) => self.progress.done(ue.0),
                _ => {}
            }
        }
        heard
    }

    fn ue(&mut self, n: u32, input: ue::Input) {
        let released = matches!(input, ue::Input::Radio(DownlinkMessage::Released));
        let mut out = Outbox::new();
        let now = self.instant();
        self.ues[n as usize].ue.handle(now, input, &mut out);
        let outputs: Vec<_> = out.drain().collect();
        for output in outputs {
            match output {
                ue::Output::Radio(up) => {
                    if let UplinkMessage::HandoverComplete { to, .. } = &up
                        && let Some(to) = self.gnbs.iter().position(|g| g.config().id == *to)
                    {
                        self.ues[n as usize].gnb = to;
                    }
                    self.gnb(self.ues[n as usize].gnb, gnb::Input::Radio(RadioUe(n), up));
                }
                ue::Output::Event(event) => self.ue_says(n, &event),
            }
        }
        if released && self.progress.is_under_way(n) {
            self.progress.attaches_again(n);
            self.ue(n, ue::Input::Command(UeCommand::Register));
        }
    }

    fn ue_says(&mut self, n: u32, event: &ue::Event) {
        match event {
            ue::Event::Registered { .. } if self.progress.procedure(n) == Some(Procedure::Attach) => {
                let request = ue::SessionRequest {
                    dnn: None,
                    s_nssai: None,
                    pdu_session_type: whimbrel_nas::ie::PduSessionType::Ipv4,
                };
                self.ue(n, ue::Input::Command(UeCommand::EstablishSession(request)));
            }
            ue::Event::SessionUp { .. } | ue::Event::ServiceAccepted { .. } => self.progress.done(n),
            _ => {}
        }
    }
}

/// Where the SMF's PFCP comes from.
const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8805);

fn gnb_of(association: AssociationId) -> usize {
    AssociationId::new(association.0, TransferSyntax::Per).0 as usize
}

fn association(scheme: Scheme, gnb: usize) -> AssociationId {
    AssociationId::new(gnb as u32, scheme.codec.syntax())
}

/// When a core is done with something that comes now.
fn charge(charged: bool, now: u64, core: &mut Core, cost: u64) -> u64 {
    if !charged {
        return now;
    }
    core.busy_until = core.busy_until.max(now) + cost;
    core.worked += cost;
    core.busy_until
}

/// The slot in the name that the CTA gave a UE.
fn slot_of(id: AmfUeNgapId) -> u32 {
    id.value() as u32 & (UeId::SLOTS - 1)
}

fn slot_in_ngap(octets: &[u8]) -> Option<u32> {
    whimbrel_ngap::peek(octets)?.amf_ue_ngap_id.map(slot_of)
}

/// The slot in the SEID of a PFCP message's header.
fn slot_in_pfcp(octets: &[u8]) -> Option<u32> {
    let seid = Seid(u64::from_be_bytes(octets.get(4..12)?.try_into().ok()?));
    UeId::from_seid(seid).map(|(ue, _)| ue.slot)
}

/// The NGAP message in an input.
fn ngap_of(envelope: &Envelope) -> Option<&[u8]> {
    use whimbrel_control::Payload;
    match &envelope.payload {
        Payload::InitialUeMessage { octets, .. }
        | Payload::Ngap { octets, .. }
        | Payload::HandoverRequired { octets, .. } => Some(octets),
        _ => None,
    }
}

/// The NGAP messages that an input caused.
fn ngap_caused(up: &CpfReport) -> impl Iterator<Item = &[u8]> {
    let outputs = match up {
        CpfReport::Ran { batch, .. } => batch.outputs.as_slice(),
        CpfReport::CheckpointHeld { .. }
        | CpfReport::Poisoned { .. }
        | CpfReport::Stored { .. }
        | CpfReport::AllStored
        | CpfReport::CheckpointUnusable { .. } => &[],
    };
    outputs.iter().filter_map(|output| match &output.effect {
        Effect::N2 { octets, .. } => Some(octets.as_slice()),
        _ => None,
    })
}

/// Whether a gNB that has the UE's context from the UE has answered this before it comes: HANDOVER REQUEST, INITIAL CONTEXT SETUP REQUEST,
/// PDU SESSION RESOURCE SETUP REQUEST.
fn asks_for_context(octets: &[u8]) -> bool {
    matches!(octets, [0x00, 1 | 14 | 29, ..])
}

fn is_handover_required(peek: &Peek) -> bool {
    peek.procedure_code == ProcedureCode::HANDOVER_PREPARATION
        && peek.kind == TriggeringMessage::InitiatingMessage
}

/// A successful outcome.
fn is_answer(octets: &[u8]) -> bool {
    octets.first() == Some(&0x20)
}

fn octets_down(down: CpfCommand) -> Vec<u8> {
    let mut octets = Vec::with_capacity(256);
    ToCpf::Command(down).write(&mut octets);
    octets
}

fn read_down(octets: &[u8]) -> CpfCommand {
    let Ok(ToCpf::Command(down)) = ToCpf::read(octets) else { unreachable!("it was written so") };
    down
}

/// With the slot of the UE.
fn octets_up(up: CpfReport) -> (u32, Vec<u8>) {
    let (CpfReport::Ran { ue, .. }
    | CpfReport::CheckpointHeld { ue, .. }
    | CpfReport::Poisoned { ue, .. }
    | CpfReport::CheckpointUnusable { ue, .. }) = up
    else {
        unreachable!("no UE is stored here")
    };
    let mut octets = Vec::with_capacity(512);
    ToCta::Report(up).write(&mut octets);
    (ue.slot, octets)
}

fn octets_of_trial(trial: Trial) -> Vec<u8> {
    let mut octets = Vec::with_capacity(1024);
    ToReplaySandbox::Try(trial).write(&mut octets);
    octets
}

fn read_trial(octets: &[u8]) -> ToReplaySandbox {
    ToReplaySandbox::read(octets).expect("it was written so")
}

fn member(scheme: Scheme, config: &Arc<Config>) -> ReplicatedCpf {
    let mut member = ReplicatedCpf::new(config.clone());
    if scheme.whole_states {
        member.only_whole_states();
    }
    member
}

fn octets_to_peer(from: CpfId, message: PeerMessage) -> Vec<u8> {
    let mut octets = Vec::with_capacity(1024);
    ToPeer { life: 0, from, message }.write(&mut octets);
    octets
}
