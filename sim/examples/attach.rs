//! What a registration and a session cost the core: `cargo run --release -p whimbrel-sim --example attach -- 2000`.
//!
//! UEs attach one after the other, without faults and without a network in between. Only the time within
//! `Cta::handle` counts: the CTA, the machines, the directory, NAS security and both codecs; UEs, gNB, UPF and
//! sockets do not. The median over all UEs is what one costs; a busy machine shows in p99.
//!
//! Then the same where the CPFs of a region serve the UEs (Neutrino §6.7.1 to §6.7.3): with the log alone, and
//! with one and two replicas. The CTA and all CPFs share this core, so what replication costs is all
//! in the sum; on the way of an answer is only what the CTA and the UE's own CPF do before it leaves.
//! The links are function calls. At last the same with a CTA replica of the CTA, which runs everything that the CTA does:
//! records are written and read, and there is no network between the two, whose round trip every input would wait for.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, Prf, UeContext, UpfId};
use whimbrel_ids::{GlobalGnbId, Instant, PlmnId, SNssai, Tac};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ran::ue::{self, SessionRequest, Ue, UeCommand};
use whimbrel_ran::{Outbox, UeId, gnb};
use whimbrel_resilience::cta_replica::{CtaReplica, PrimaryCta, ReplicaRecord};
use whimbrel_resilience::link::{CpfCommand, CpfReport, PeerMessage};
use whimbrel_resilience::region::{Region, Regions};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CpfOutbox, Cta, Input, Outbox as CoreOutbox, ReplicatedCpf};
use whimbrel_security::HomeNetworkKeys;
use whimbrel_sim::{SimSubscribers, default_config, ue_config, upf_config};
use whimbrel_user::Upf;

const ASSOCIATION: AssociationId = AssociationId(1);
/// A day in 2026.
const EPOCH: Instant = Instant(1_793_700_000_000_000);

enum Message {
    ToCore(u16, Vec<u8>),
    ToGnb(u16, Vec<u8>),
    N4(Vec<u8>),
    Up(u32, whimbrel_ran::UplinkMessage),
    Down(u32, whimbrel_ran::DownlinkMessage),
}

/// One gNB, its UEs and the core, joined by a queue.
struct Bench {
    now: Instant,
    cta: PrimaryCta<SimSubscribers, (Prf, u64)>,
    cta_replica: Option<CtaReplica<SimSubscribers, (Prf, u64)>>,
    /// What was written for it.
    records: (u64, usize),
    upf: Upf,
    gnb: gnb::Gnb,
    ues: Vec<Ue>,
    queue: VecDeque<Message>,
    /// The CPFs, where they are not a part of the CTA.
    members: BTreeMap<CpfId, ReplicatedCpf>,
    links: VecDeque<Link>,
    /// Spent within the core, and of that until the last answer left.
    core: Duration,
    answered: Duration,
    /// Spent within the CTA replica.
    replicating: Duration,
    inputs: u64,
    /// The most octets that were logged at once.
    logged: usize,
}

/// A message between the core's parts.
enum Link {
    Down(CpfId, CpfCommand),
    Up(CpfId, CpfReport),
    /// From owner, to owner.
    Peer(CpfId, CpfId, PeerMessage),
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock that the core must not")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

impl Bench {
    /// `replicas`: a region of three CPFs, with so many replicas a UE; none: no region, and no log.
    fn new(ues: u32, replicas: Option<usize>, replicated: bool) -> Self {
        let config = Arc::new(default_config());
        let directory = Directory::new(config.amf.plmn, HomeNetworkKeys::new());
        let id = GlobalGnbId::new(PlmnId::TEST, 1, 28).expect("28 bits");
        let tac = Tac::new(1).expect("24 bits");
        let gnb = gnb::GnbConfig::new(id, tac, vec![SNssai::sst(1)], [127, 0, 1, 1].into());
        let entropy = (Prf::new(&[9; 16]), 0);
        let region: Region = "coast/home".parse().expect("a region");
        let mut regions = Regions::new([region.clone()]).expect("one region");
        let ids = (1..=3).map(CpfId).take(if replicas.is_some() { 3 } else { 0 });
        let members = ids.map(|id| {
            regions.join(id, &region).expect("each comes once");
            (id, ReplicatedCpf::new(config.clone()))
        });
        let members: BTreeMap<_, _> = members.collect();
        let home = SimSubscribers::default();
        let mut bench = Self {
            now: EPOCH,
            cta: PrimaryCta::new(match replicas {
                None => Cta::new(config, directory, home, entropy, (), EPOCH),
                Some(replicas) => {
                    let rings = regions.rings(&region, replicas).expect("the region is known");
                    Cta::of_region(config, directory, home, entropy, (), rings, EPOCH)
                }
            }),
            cta_replica: None,
            records: (0, 0),
            members,
            links: VecDeque::new(),
            answered: Duration::ZERO,
            replicating: Duration::ZERO,
            logged: 0,
            upf: Upf::new(upf_config(7), EPOCH).expect("the default configuration holds"),
            gnb: gnb::Gnb::new(gnb),
            ues: (0..ues).map(|n| Ue::new(ue_config(n))).collect(),
            queue: VecDeque::new(),
            core: Duration::ZERO,
            inputs: 0,
        };
        if replicated {
            let snapshot = bench.cta.snapshot().expect("it has no CTA replica");
            bench.cta.begin_holding();
            let directory = Directory::new(default_config().amf.plmn, HomeNetworkKeys::new());
            let entropy = (Prf::new(&[8; 16]), 0);
            let cta_replica =
                CtaReplica::new(snapshot.octets(), directory, SimSubscribers::default(), entropy, ());
            bench.cta_replica = Some(cta_replica.expect("it follows"));
        }
        bench.core(Input::Tick);
        bench.core(Input::AssociationUp {
            association: ASSOCIATION,
            outbound_streams: 16,
            addresses: Vec::new(),
        });
        bench.gnb(gnb::Input::AssociationUp { streams: 16, syntax: ASSOCIATION.syntax() });
        bench.run();
        let tai = bench.gnb.config().tai();
        for n in 0..ues {
            bench.ue(n, ue::Input::Cell(tai));
        }
        bench
    }

    fn core(&mut self, input: Input<'_>) {
        self.inputs += 1;
        self.cta(input);
        while let Some(link) = self.links.pop_front() {
            let mut out = CpfOutbox::default();
            let (to, link) = match link {
                Link::Up(from, message) => {
                    self.cta(Input::Cpf(from, message));
                    continue;
                }
                Link::Down(to, message) => (to, Ok(message)),
                Link::Peer(from, to, message) => (to, Err((from, message))),
            };
            let Some(member) = self.members.get_mut(&to) else { continue };
            let began = clock();
            match link {
                Ok(message) => member.handle(message, &mut out),
                Err((from, message)) => member.peer(from, message, &mut out),
            }
            self.core += began.elapsed();
            self.links.extend(out.up.into_iter().map(|m| Link::Up(to, m)));
            self.links.extend(out.peers.into_iter().map(|(peer, m)| Link::Peer(to, peer, m)));
        }
    }

    fn cta(&mut self, input: Input<'_>) {
        let mut out = CoreOutbox::default();
        let began = clock();
        let record = self.cta.handle(self.now, input, &mut out);
        self.core += began.elapsed();
        if let Some(record) = record {
            self.send_to_cta_replica(&record, &mut out);
        }
        if !out.ngap.is_empty() || !out.pfcp.is_empty() {
            self.answered = self.core;
        }
        self.logged = self.logged.max(self.cta.cta().logged().0);
        self.links.extend(out.cpfs.into_iter().map(|(to, message)| Link::Down(to, message)));
        self.queue.extend(out.ngap.into_iter().map(|(_, stream, octets)| Message::ToGnb(stream, octets)));
        self.queue.extend(out.pfcp.into_iter().map(|(_, octets)| Message::N4(octets)));
    }

    /// The CTA replica runs the same input, and what that caused leaves.
    fn send_to_cta_replica(&mut self, record: &ReplicaRecord, out: &mut CoreOutbox) {
        let Some(cta_replica) = &mut self.cta_replica else { return };
        self.records = (self.records.0 + 1, self.records.1 + record.octets().len());
        let began = clock();
        let held = cta_replica.take(record.octets()).expect("it follows");
        self.replicating += began.elapsed();
        let began = clock();
        self.cta.acknowledged(held, out);
        self.cta.mark_outputs_sent();
        self.core += began.elapsed();
    }

    fn gnb(&mut self, input: gnb::Input<'_>) {
        let mut out = Outbox::new();
        self.gnb.handle(self.now, input, &mut out);
        for output in out.drain() {
            match output {
                gnb::Output::Ngap { stream, octets } => self.queue.push_back(Message::ToCore(stream, octets)),
                gnb::Output::Radio(ue, down) => self.queue.push_back(Message::Down(ue.0, down)),
                _ => {}
            }
        }
    }

    fn ue(&mut self, n: u32, input: ue::Input) {
        let mut out = Outbox::new();
        self.ues[n as usize].handle(self.now, input, &mut out);
        for output in out.drain() {
            if let ue::Output::Radio(up) = output {
                self.queue.push_back(Message::Up(n, up));
            }
        }
    }

    /// Until nothing is under way.
    fn run(&mut self) {
        while let Some(message) = self.queue.pop_front() {
            self.now = self.now + Duration::from_micros(10);
            match message {
                Message::ToCore(stream, octets) => self.core(Input::Ngap(ASSOCIATION, stream, &octets)),
                Message::ToGnb(stream, octets) => self.gnb(gnb::Input::Ngap { stream, octets: &octets }),
                Message::N4(octets) => {
                    let mut out = whimbrel_user::Outbox::default();
                    self.upf.pfcp(self.now, SocketAddr::from(([127, 0, 0, 1], 8805)), &octets, &mut out);
                    for (_, octets) in out.datagrams {
                        self.core(Input::Pfcp(UpfId(0), &octets));
                    }
                }
                Message::Up(n, up) => self.gnb(gnb::Input::Radio(UeId(n), up)),
                Message::Down(n, down) => self.ue(n, ue::Input::Radio(down)),
            }
        }
    }

    /// Core time and inputs of one command of one UE.
    fn cost(&mut self, n: u32, command: UeCommand) -> (Duration, u64) {
        (self.core, self.inputs) = (Duration::ZERO, 0);
        self.ue(n, ue::Input::Command(command));
        self.run();
        (self.core, self.inputs)
    }

    /// Medians of an attach, registration and session, in microseconds: core time until the last answer, in all, and the CTA replica's.
    fn attach(&mut self) -> [f64; 3] {
        let (mut until_answered, mut in_all, mut replicating) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..self.ues.len() as u32 {
            let before = self.replicating;
            let (registration, _) = self.cost(n, UeCommand::Register);
            let answered = self.answered;
            let (establishment, _) = self.cost(n, UeCommand::EstablishSession(session()));
            until_answered.push(answered + self.answered);
            in_all.push(registration + establishment);
            replicating.push(self.replicating - before);
        }
        let median = |mut all: Vec<Duration>| {
            all.sort();
            all[all.len() / 2].as_nanos() as f64 / 1000.0
        };
        [until_answered, in_all, replicating].map(median)
    }
}

fn session() -> SessionRequest {
    SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 }
}

/// What the log and the replicas cost an attach, scheme beside scheme. Rounds are interleaved, and the least counts: what else
/// the machine does only adds.
fn replication(ues: u32) -> String {
    const ROUNDS: usize = 5;
    let schemes = [
        ("no_log", None, false),
        ("log", Some(0), false),
        ("one_backup", Some(1), false),
        ("two_backups", Some(2), false),
        ("replicated", Some(1), true),
    ];
    let mut least = [[f64::MAX; 3]; 5];
    let (mut logged, mut records) = (0, (0, 0));
    for _ in 0..ROUNDS {
        for ((_, replicas, replicated), least) in schemes.iter().zip(&mut least) {
            let mut bench = Bench::new(ues, *replicas, *replicated);
            let medians = bench.attach();
            least.iter_mut().zip(medians).for_each(|(least, m)| *least = least.min(m));
            logged = logged.max(bench.logged);
            records = records.max(bench.records);
        }
    }
    let [base, ..] = least[0];
    let mut figures = Vec::new();
    for ((name, ..), [answered, all, _]) in schemes.iter().zip(least) {
        let more = (answered / base - 1.0) * 100.0;
        eprintln!("attach, {name}: {answered:.1} µs until answered ({more:+.1} %), {all:.1} µs in all");
        figures.push(format!("\"{name}_us\": {answered:.1}, \"{name}_in_all_us\": {all:.1}"));
    }
    eprintln!("the most that was logged of a UE that attaches: {logged} octets (paper, Fig. 17: some 2,000)");
    figures.push(format!("\"logged_octets\": {logged}"));
    let ([answered, ..], [with, _, cta_replica]) = (least[2], least[4]);
    let ues = f64::from(ues);
    let (inputs, octets) = (records.0 as f64 / ues, records.1 as f64 / ues);
    eprintln!(
        "a CTA replica: {:+.1} µs an attach for the CTA, {cta_replica:.1} µs for the CTA replica's host, {inputs:.0} records of {octets:.0} octets",
        with - answered
    );
    figures.push(format!(
        "\"cta_replica_us\": {cta_replica:.1}, \"cta_replica_records\": {inputs:.1}, \"cta_replica_octets\": {octets:.0}"
    ));
    figures.join(", ")
}

/// What a CTA replica that joins while these UEs are served costs: for so long the CTA, and the CTA replica, do nothing else.
fn joining(ues: u32) -> String {
    let mut bench = Bench::new(ues, Some(1), false);
    bench.attach();
    let began = clock();
    let snapshot = bench.cta.snapshot().expect("it has no CTA replica");
    let taken = began.elapsed();
    let directory = Directory::new(default_config().amf.plmn, HomeNetworkKeys::new());
    let began = clock();
    let cta_replica = CtaReplica::<_, _>::new(
        snapshot.octets(),
        directory,
        SimSubscribers::default(),
        (Prf::new(&[8; 16]), 0),
        (),
    );
    let read = began.elapsed();
    assert!(cta_replica.is_ok(), "it follows");
    let [taken, read] = [taken, read].map(|t| t.as_nanos() as f64 / f64::from(ues));
    let octets = snapshot.octets().len() as f64 / f64::from(ues);
    eprintln!(
        "a CTA replica that joins {ues} ues: {octets:.0} octets, {taken:.0} ns for the CTA, {read:.0} ns for the CTA replica, a UE"
    );
    format!("\"joining_octets\": {octets:.0}, \"joining_ns\": {taken:.0}, \"joining_read_ns\": {read:.0}")
}

fn report(what: &str, mut costs: Vec<(Duration, u64)>) -> f64 {
    let inputs = costs.first().map_or(0, |c| c.1);
    costs.sort();
    let micros = |per_cent: usize| costs[(costs.len() - 1) * per_cent / 100].0.as_nanos() as f64 / 1000.0;
    eprintln!(
        "{what}: p10 {:.1} p50 {:.1} p99 {:.1} µs of core time in {inputs} inputs",
        micros(10),
        micros(50),
        micros(99)
    );
    micros(50)
}

/// Resident octets of one UE, measured on copies of one at rest.
fn resident_per_ue(ue: &UeContext) -> f64 {
    const COPIES: usize = 50_000;
    let resident = || -> f64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        statm.split(' ').nth(1).and_then(|p| p.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
    };
    let before = resident();
    let copies: Vec<Box<UeContext>> = (0..COPIES).map(|_| Box::new(ue.clone())).collect();
    let taken = resident() - before;
    std::mem::forget(copies); // what is freed would be taken again by the next measurement
    taken / COPIES as f64
}

fn main() {
    let ues: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2000);
    let mut bench = Bench::new(ues, None, false);
    let register = (0..ues).map(|n| bench.cost(n, UeCommand::Register)).collect();
    let establish = (0..ues).map(|n| bench.cost(n, UeCommand::EstablishSession(session()))).collect();
    assert_eq!(
        bench.cta.cta().contexts().filter(|p| p.amf.registered && p.sessions.len() == 1).count(),
        ues as usize
    );
    let (registration, session) = (report("registration", register), report("session", establish));
    let again = (0..ues).map(|n| bench.cost(n, UeCommand::PeriodicRegistration)).collect();
    let periodic = report("periodic registration, connected", again);
    let ue = bench.cta.cta().contexts().next().expect("there are UEs").clone();
    let connected = resident_per_ue(&ue);
    let mut idle = ue;
    (idle.amf.connection, idle.amf.inactivity_deadline) = (None, None);
    if let Some(security) = &mut idle.amf.security.current {
        security.release_schedules(); // as when its connection is released
    }
    let idle = resident_per_ue(&idle);
    assert!(idle < 1536.0, "an idle UE with a session takes {idle} octets");
    let (replication, joining) = (replication(ues), joining(ues));
    println!(
        "{{\"bench\": \"attach-core\", \"figures\": {{\"ues\": {ues}, \"registration_us\": {registration:.1}, \
         \"session_us\": {session:.1}, \"periodic_us\": {periodic:.1}, \"registrations_per_s_and_core\": {:.0}, \
         \"octets_per_connected_ue\": {connected:.0}, \"octets_per_idle_ue\": {idle:.0}, \
         {replication}, {joining}}}}}",
        1e6 / registration
    );
}
