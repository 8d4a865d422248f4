//! A CTA's pool and CPFs on loopback, and peers that are neither.

mod at_etcd;
mod pair;

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use whimbrel_control::{Batch, Checkpoint, Envelope, Payload, UeContext, UeId};
use whimbrel_etcd::EtcdAccess;
use whimbrel_ids::Tmsi;
use whimbrel_link::{DownReason, Event, LinkEvents, LinkId, Links};
use whimbrel_resilience::detector::Timing;
use whimbrel_resilience::link::{
    CpfCommand, CpfEntry, CpfReport, CpfTable, HeartbeatKey, Hello, LinkRole, PeerMessage, ToCpf, ToCta,
    ToPeer, UeCheckpoint, UeQuery,
};
use whimbrel_resilience::membership::{Configuration, CpfRoster, MemberId};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CodeVersion, CpfOutbox, ReplicatedCpf, TrialOutcome};

use super::excluded_cpfs::EXCLUDED_FOR;
use super::heartbeat::{HeartbeatResponder, IgnoredHeartbeats};
use super::status::StatusReporter;
use super::{AtEtcd, CpfPool, CpfProcess, CpfSettings, PoolEvent, UeQueryReply};
use crate::clock;
use crate::config::{self, Cluster, PairOf};
use crate::entropy::SystemEntropy;
use crate::log_limiter::Lines;
use crate::observation::{Condition, Console, Metric};

/// CPFs whose UEs do not rest.
const NO_REST: config::MemoryConfig = config::MemoryConfig {
    limit: None,
    slow: config::SlowTier::None,
    file: None,
    rest_after: Duration::from_secs(2),
};

/// A timing that a busy machine keeps, too: no test with it is about heartbeats.
fn patient() -> Timing {
    Timing::new(Duration::from_secs(1), 16).unwrap()
}

/// A pool for CPFs of its region and of one more.
fn pool() -> CpfPool {
    pool_with(Console::new(clock::now()).unwrap())
}

fn pool_with(console: Arc<Console>) -> CpfPool {
    pool_that(console, patient())
}

fn pool_that(console: Arc<Console>, heartbeat: Timing) -> CpfPool {
    let config = config::default();
    let other_regions = vec!["home/next".parse().unwrap()];
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let cluster = Cluster { listen, other_regions, heartbeat, ..config.cluster.clone() };
    let mut entropy = SystemEntropy::new().unwrap();
    CpfPool::open(&cluster, Arc::new(config.control()), &mut entropy, console).unwrap()
}

fn cluster_of_pair(pair: PairOf) -> Cluster {
    let listen = Some("127.0.0.1:0".parse().unwrap());
    Cluster { listen, pair: Some(pair), heartbeat: patient(), ..config::default().cluster.clone() }
}

/// The same, of a CTA in a pair.
pub(super) fn pool_of_pair() -> CpfPool {
    let config = config::default();
    let lease = Duration::from_secs(5);
    let pair =
        PairOf { etcd: EtcdAccess::default(), name: "test".into(), number: 1, home: 1, lease, host: None };
    let cluster = cluster_of_pair(pair);
    let console = Console::new(clock::now()).unwrap();
    let mut entropy = SystemEntropy::new().unwrap();
    CpfPool::open(&cluster, Arc::new(config.control()), &mut entropy, console).unwrap()
}

/// A CPF in a thread.
struct RunningCpf(Arc<AtomicBool>, Option<JoinHandle<()>>);

fn cpf(pool: &CpfPool, region: &str) -> RunningCpf {
    running(vec![pool.address().unwrap()], None, region)
}

fn running(ctas: Vec<SocketAddr>, at_etcd: Option<AtEtcd>, region: &str) -> RunningCpf {
    let (listen, region) = ("127.0.0.1:0".parse().unwrap(), region.parse().unwrap());
    let settings = CpfSettings {
        ctas,
        at_etcd,
        listen,
        region,
        slice: None,
        key_file: None,
        memory: NO_REST,
        console: None,
    };
    RunningCpf::new(settings)
}

impl RunningCpf {
    fn new(settings: CpfSettings) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let work = move || CpfProcess::open(settings).unwrap().run(&stopping);
        RunningCpf(stop, Some(std::thread::spawn(work)))
    }
}

impl Drop for RunningCpf {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.take().map(JoinHandle::join);
    }
}

/// Lets the pool work until an event is the expected one.
pub(super) fn until<T>(pool: &mut CpfPool, mut expected: impl FnMut(PoolEvent) -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        for event in pool.turn(clock::now()) {
            if let Some(found) = expected(event) {
                return found;
            }
        }
        pool.flush();
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("the event does not come");
}

fn members(event: PoolEvent) -> Option<usize> {
    match event {
        PoolEvent::Rings(rings) => Some(rings.members().count()),
        _ => None,
    }
}

fn lost(event: PoolEvent) -> Option<CpfId> {
    match event {
        PoolEvent::Lost(cpf) | PoolEvent::LostRepeatedly(cpf) => Some(cpf),
        _ => None,
    }
}

/// The first input of a UE.
fn tick(ue: UeId) -> Envelope {
    Envelope {
        code_version: CodeVersion::own().0,
        ue,
        cta_term: 1,
        owner_term: 1,
        clock: 1,
        time: whimbrel_ids::Instant(1),
        seed: [1; 16],
        tmsi: Tmsi(5),
        config_version: 1,
        upfs: Default::default(),
        payload: Payload::Tick,
    }
}

#[test]
fn a_cpf_that_joins_again_gets_another_number() {
    let mut pool = pool();
    assert_eq!(pool.rings().members().count(), 0);
    let first = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 1);
    let _second = cpf(&pool, "home/next");
    assert_eq!(until(&mut pool, members), 2);
    drop(first);
    assert_eq!(until(&mut pool, lost), CpfId(1));
    let _third = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 2);
    let numbers: Vec<CpfId> = pool.rings().members().collect();
    assert_eq!(numbers, [CpfId(2), CpfId(3)], "a number belongs to one membership");
}

#[test] // a CPF that dies at each start uses the numbers up within hours
fn numbers_begin_again_after_the_last_one() {
    let mut pool = pool();
    let all_but_one = CpfTable { life: 7, newest: u16::MAX - 1, members: Vec::new() };
    pool.take_over(clock::now(), all_but_one, Vec::new());
    let _first = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 1);
    let second = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 2);
    drop(second);
    assert_eq!(until(&mut pool, lost), CpfId(1));
    let _third = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 2);
    assert!(pool.knows(CpfId(u16::MAX)) && pool.knows(CpfId(2)));
}

/// The condition that a pool shows.
fn shows(pool: &CpfPool, console: &Console) -> (Condition, String, u64) {
    let shown = console.components(|c| c.all().find(|c| c.name == "cpfs").cloned());
    let shown = shown.expect("its condition");
    (shown.condition, shown.detail, counted(pool, Metric::ReplicasMissing))
}

fn counted(pool: &CpfPool, metric: Metric) -> u64 {
    let all: Vec<u64> = pool
        .samples(IgnoredHeartbeats::default())
        .iter()
        .filter(|s| s.metric == metric)
        .map(|s| s.value)
        .collect();
    assert!(!all.is_empty(), "there is no {metric:?}");
    all.iter().sum()
}

#[test] // docs/cluster.md, "Which CPF serves a UE"
fn a_ring_of_one_serves_and_shows_that_replicas_are_missing() {
    let console = Console::new(clock::now()).unwrap();
    let mut pool = pool_with(console.clone());
    let shows = |pool: &CpfPool| shows(pool, &console);
    assert_eq!((shows(&pool).0, shows(&pool).2), (Condition::Down, 0));
    let _first = cpf(&pool, "home/site");
    until(&mut pool, members);
    let alone = (Condition::Limited, "1 CPF, and no other one to take its UEs over".into(), 1);
    assert_eq!(shows(&pool), alone);
    let second = cpf(&pool, "home/next");
    until(&mut pool, members);
    assert_eq!(shows(&pool), (Condition::Up, "2 CPFs".into(), 0));
    drop(second);
    until(&mut pool, lost);
    assert_eq!(shows(&pool), alone);
    assert_eq!(counted(&pool, Metric::LinksEnded), 1, "with its reason");
}

#[test]
fn a_cpf_of_a_region_that_is_not_configured_is_refused() {
    let mut pool = pool();
    let _stray = cpf(&pool, "elsewhere/site");
    let _good = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 1, "the correct one alone");
    std::thread::sleep(Duration::from_millis(300));
    pool.turn(clock::now());
    assert_eq!(pool.rings().members().count(), 1);
}

#[test]
fn regions_in_etcd_come_and_go_with_their_areas() {
    let mut pool = pool();
    let _cpf = cpf(&pool, "home/next");
    assert_eq!(until(&mut pool, members), 1);
    let mut set = |json: &str| {
        let configuration = Configuration::read(json.as_bytes()).unwrap();
        pool.apply_etcd(CpfRoster::default().under(Some(configuration)));
        (pool.rings().members().count(), pool.rings().areas().regions().count())
    };
    let areas = r#""areas":[{"region":"home/new","tacs":[7]}]"#;
    assert_eq!(set(&format!(r#"{{"regions":["home/next","home/new"],{areas}}}"#)), (1, 1));
    assert_eq!(set(r#"{"regions":["home/next"]}"#), (1, 0));
    assert_eq!(set(&format!(r#"{{"regions":["home/new"],{areas}}}"#)), (0, 1), "its region is gone");
    assert_eq!(set("{}"), (1, 0), "the file's configuration again");
}

#[test]
fn after_a_takeover_etcds_configuration_is_in_force_and_former_cpfs_are_on_the_rings() {
    let mut active = pool_of_pair();
    let _cpf = cpf(&active, "home/site");
    assert_eq!(until(&mut active, members), 1);
    let mut cta_replica = pool_of_pair();
    let configuration = br#"{"regions":["home/new"],"areas":[{"region":"home/new","tacs":[7]}]}"#;
    let etcd = CpfRoster::default().under(Some(Configuration::read(configuration).unwrap()));
    cta_replica.begin(clock::now(), Some((active.to_members(), vec![])), etcd);
    assert_eq!(cta_replica.rings().areas().regions().count(), 1);
    let rings: Vec<usize> = cta_replica.turn(clock::now()).into_iter().filter_map(members).collect();
    assert_eq!(rings, [1], "empty rings are not announced");
}

#[test] // the CTA is lost, and its CTA replica knows its CPFs
fn a_cpf_resumes_with_the_cta_replica() {
    taken_over(true, Duration::ZERO);
}

#[test] // docs/cluster.md: the CTA replica waits until etcd agrees
fn a_cpf_waits_for_a_cta_replica_that_takes_over_late() {
    taken_over(true, Duration::from_secs(6));
}

#[test]
fn a_cta_that_takes_over_connects_to_cpfs_of_a_hanging_primary() {
    taken_over(false, Duration::ZERO);
}

fn taken_over(ends: bool, after: Duration) {
    let mut active = pool_of_pair();
    let mut cta_replica = pool_of_pair();
    let _cpf = cpf(&active, "home/site");
    assert_eq!(until(&mut active, members), 1);
    active.announce_replica(cta_replica.address());
    let former = active.to_members();
    active.flush();
    if ends {
        drop(active);
        std::thread::sleep(after);
        cta_replica.take_over(clock::now(), former, vec![]);
        return resumes_with(cta_replica);
    }
    cta_replica.take_over(clock::now(), former, vec![]);
    resumes_with(cta_replica); // the former primary still runs, and does nothing
}

#[test] // SIGSTOP and SIGCONT of the CTA that has just taken over, or many UEs: the connection waits in its socket
fn a_cpf_that_has_reconnected_is_not_lost_because_the_cta_was_held_up() {
    let mut active = pool_of_pair();
    let mut cta_replica = pool_of_pair();
    let _cpf = cpf(&active, "home/site");
    assert_eq!(until(&mut active, members), 1);
    active.announce_replica(cta_replica.address());
    let former = active.to_members();
    active.flush();
    drop(active);
    let three_seconds_ago = whimbrel_ids::Instant(clock::now().0 - 3_000_000);
    cta_replica.take_over(three_seconds_ago, former, vec![]);
    resumes_with(cta_replica);
}

fn resumes_with(mut cta_replica: CpfPool) {
    let resumes = |event| match event {
        PoolEvent::Resumes(cpf, has) => Some((cpf, has)),
        PoolEvent::Lost(cpf) => panic!("{cpf:?} is lost"),
        _ => None,
    };
    assert_eq!(until(&mut cta_replica, resumes), (CpfId(1), 0));
    cta_replica.resumed(CpfId(1), 0);
    cta_replica.query_ues(UeQuery::Page(None, 10), UeQueryReply::Ue(tokio::sync::oneshot::channel().0));
    let shown = |event| matches!(event, PoolEvent::UesShown(..)).then_some(());
    until(&mut cta_replica, shown);
}

#[test]
fn a_cpf_of_another_life_has_to_join_again() {
    let mut cta_replica = pool_of_pair();
    let mut peer = Caller::new(&cta_replica, Hello::own(LinkRole::Cpf).to_octets());
    peer.send(&ToCta::Resume { life: 7, id: CpfId(1), has: 0 });
    let received = peer.received(&mut cta_replica);
    assert!(matches!(received[..], [ToCpf::Forgotten]), "{received:?}");
}

#[test] // etcd was slow: CPFs connect elsewhere just as the CTA replica takes over, which notices the end of their links after that
fn cpfs_whose_link_ends_during_the_takeover_are_not_lost() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, region) = (silent.local_addr().unwrap(), "home/site".into());
    let (id, code) = (CpfId(1), CodeVersion::own());
    let one = CpfEntry { id, address, region, code, draining: false, listed: None, slice: None };
    let mut cta_replica = pool_of_pair();
    cta_replica.take_over(clock::now(), CpfTable { life: 7, newest: 1, members: vec![one] }, vec![]);
    let reconnect = |cta_replica: &mut CpfPool| {
        let mut peer = Caller::new(cta_replica, Hello::own(LinkRole::Cpf).to_octets());
        peer.send(&ToCta::Resume { life: 7, id, has: 0 });
        let mut events = Vec::new();
        let end = Instant::now() + Duration::from_secs(20);
        while !events.contains(&"resumes") {
            assert!(Instant::now() < end, "it does not resume");
            events.extend(cta_replica.turn(clock::now()).into_iter().filter_map(|event| match event {
                PoolEvent::Resumes(..) => Some("resumes"),
                PoolEvent::Disconnected(_) => Some("disconnected"),
                PoolEvent::Lost(cpf) => panic!("{cpf:?} is lost"),
                _ => None,
            }));
            cta_replica.flush();
            peer.links.drain(clock::now(), &mut peer.events);
            peer.links.flush();
        }
        cta_replica.resumed(id, 0);
        (peer, events)
    };
    let (first, events) = reconnect(&mut cta_replica);
    assert_eq!(events, ["resumes"]);
    drop(first);
    let (_second, events) = reconnect(&mut cta_replica);
    assert_eq!(events, ["disconnected", "resumes"], "messages sent meanwhile are sent again");
    let (_third, events) = reconnect(&mut cta_replica);
    assert_eq!(
        events,
        ["disconnected", "resumes"],
        "it reconnects before the end of its former link is noticed"
    );
    assert!(cta_replica.knows(id));
}

/// A peer that sends arbitrary messages.
struct Caller {
    links: Links,
    link: LinkId,
    events: LinkEvents,
}

impl Caller {
    fn new(pool: &CpfPool, hello: Vec<u8>) -> Self {
        let mut links = Links::open(whimbrel_link::LinkSettings::new(hello)).unwrap();
        let link = links.connect(clock::now(), pool.address().unwrap());
        Self { links, link, events: LinkEvents::default() }
    }

    fn send_octets(&mut self, octets: &[u8]) {
        self.links.send(self.link, octets);
        self.links.flush();
    }

    fn send(&mut self, message: &ToCta) {
        let mut octets = Vec::new();
        message.write(&mut octets);
        self.send_octets(&octets);
    }

    /// Lets both work until the link has ended. Returns the messages before that.
    fn received(&mut self, pool: &mut CpfPool) -> Vec<ToCpf> {
        let mut received = Vec::new();
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            pool.turn(clock::now());
            pool.flush();
            self.links.drain(clock::now(), &mut self.events);
            for event in self.events.iter() {
                match event {
                    Event::Frame { octets, .. } => received.push(ToCpf::read(octets).unwrap()),
                    Event::Down { .. } => return received,
                    _ => {}
                }
            }
            self.links.flush();
            std::thread::sleep(Duration::from_micros(200));
        }
        panic!("the link does not end");
    }
}

fn join() -> ToCta {
    join_at(([127, 0, 0, 1], 9).into())
}

fn join_at(address: SocketAddr) -> ToCta {
    ToCta::Join { region: "home/site".parse().unwrap(), address, slice: None }
}

/// A CTA or CPF that is played by the test.
struct Host {
    links: Links,
    events: LinkEvents,
    reports: VecDeque<LinkReport>,
}

#[derive(Debug)]
enum LinkReport {
    Up(LinkId),
    Frame(LinkId, Vec<u8>),
    Down(LinkId, DownReason),
}

impl Host {
    fn new(role: LinkRole) -> Self {
        let mut settings = whimbrel_link::LinkSettings::new(Hello::own(role).to_octets());
        settings.listen = Some("127.0.0.1:0".parse().unwrap());
        Self {
            links: Links::open(settings).unwrap(),
            events: LinkEvents::default(),
            reports: VecDeque::new(),
        }
    }

    /// What happens next.
    fn next(&mut self) -> LinkReport {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if let Some(report) = self.reports.pop_front() {
                return report;
            }
            self.look();
            std::thread::sleep(Duration::from_micros(200));
        }
        panic!("no report comes");
    }

    fn look(&mut self) {
        self.links.drain(clock::now(), &mut self.events);
        self.reports.extend(self.events.iter().filter_map(|event| match event {
            Event::Up { link, .. } => Some(LinkReport::Up(link)),
            Event::Frame { link, octets } => Some(LinkReport::Frame(link, octets.to_vec())),
            Event::Down { link, reason } => Some(LinkReport::Down(link, reason)),
            Event::Rejected { .. } => None,
        }));
        self.links.flush();
    }

    /// The address that a joining CPF announces.
    fn caller(&mut self) -> (LinkId, SocketAddr) {
        let LinkReport::Up(link) = self.next() else { panic!("no link comes") };
        let LinkReport::Frame(_, join) = self.next() else { panic!("no message comes") };
        let ToCta::Join { address, .. } = ToCta::read(&join).unwrap() else { panic!("it does not join") };
        (link, address)
    }

    fn asked_for(&mut self, of: UeId) -> LinkId {
        loop {
            if let LinkReport::Frame(link, octets) = self.next() {
                match ToPeer::read(&octets).unwrap().message {
                    PeerMessage::Fetch { ue, clock: 7 } if ue == of => return link,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn ended(&mut self, link: LinkId) -> DownReason {
        loop {
            match self.next() {
                LinkReport::Down(ended, reason) if ended == link => return reason,
                _ => {}
            }
        }
    }

    fn send(&mut self, link: LinkId, messages: impl IntoIterator<Item = ToCpf>) {
        for message in messages {
            let mut octets = Vec::new();
            message.write(&mut octets);
            self.links.send(link, &octets);
        }
        self.links.flush();
    }
}

fn member(life: u64) -> [ToCpf; 2] {
    let heartbeats = HeartbeatKey([7; 32]);
    let config = Arc::new(config::default().control());
    [
        ToCpf::Welcome { life, id: CpfId(1), heartbeats, keep: false },
        ToCpf::Command(CpfCommand::Configure(config)),
    ]
}

#[test] // etcd was slow, so the CPF has tried the CTA replica in vain, and tries hosts that are down
fn a_cpf_that_tries_other_ctas_resumes_at_once_with_the_new_primary() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut former, mut cta_replica) = (Host::new(LinkRole::Cta), Host::new(LinkRole::Cta));
    let mut ctas = vec![silent.local_addr().unwrap(); 40]; // each for half a second
    ctas.insert(0, former.links.local_addr().unwrap());
    let _cpf = running(ctas, None, "home/site");
    let (link, itself) = former.caller();
    let [_, configure] = member(5);
    let welcome = ToCpf::Welcome { life: 5, id: CpfId(1), heartbeats: HeartbeatKey([7; 32]), keep: true };
    former.send(link, [welcome, configure, ToCpf::CtaReplica(cta_replica.links.local_addr())]);
    let resumes = |cta_replica: &mut Host| loop {
        if let LinkReport::Frame(link, octets) = cta_replica.next() {
            assert!(matches!(ToCta::read(&octets), Ok(ToCta::Resume { life: 5, .. })));
            return link;
        }
    };
    std::thread::sleep(Duration::from_millis(100)); // so that it knows the CTA replica
    drop(former);
    let link = resumes(&mut cta_replica);
    cta_replica.links.close(link);
    std::thread::sleep(Duration::from_millis(100)); // so that it tries the next ones
    let serves = Instant::now();
    cta_replica.links.connect(clock::now(), itself);
    resumes(&mut cta_replica);
    assert!(serves.elapsed() < Duration::from_secs(5), "a CTA declares it lost after two");
}

#[test]
fn messages_that_a_link_between_cpfs_may_have_lost_are_sent_on_the_next() {
    let (mut cta, mut other) = (Host::new(LinkRole::Cta), Host::new(LinkRole::Cpf));
    let _cpf = running(vec![cta.links.local_addr().unwrap()], None, "home/site");
    let (link, itself) = cta.caller();
    let ue = UeId { slot: 3, generation: 1 };
    let peers = vec![(CpfId(1), itself), (CpfId(2), other.links.local_addr().unwrap())];
    let outdated = CpfCommand::Outdated { ue, clock: 7, up_to_date: vec![CpfId(2)] };
    cta.send(link, member(5).into_iter().chain([ToCpf::Peers(peers), ToCpf::Command(outdated)]));
    for _ in 0..3 {
        let link = other.asked_for(ue);
        other.links.close(link); // the sender cannot know whether its message arrived
    }
    other.asked_for(ue);
}

/// Lets a CPF connect to a process that is not a usable CTA. Returns the number of connections, and of log lines.
fn connections_and_lines(hello: Vec<u8>, connections: u32) -> (u32, usize) {
    let listening = "127.0.0.1:0".parse().unwrap();
    let mut settings = whimbrel_link::LinkSettings::new(hello);
    settings.listen = Some(listening);
    let mut called = Links::open(settings).unwrap();
    let ctas = vec![called.local_addr().unwrap()];
    let region = "home/site".parse().unwrap();
    let settings = CpfSettings {
        slice: None,
        ctas,
        at_etcd: None,
        listen: listening,
        region,
        key_file: None,
        memory: NO_REST,
        console: None,
    };
    let mut cpf = CpfProcess::open(settings).unwrap();
    let lines = Arc::new(AtomicUsize::new(0));
    let (mut events, mut up) = (LinkEvents::default(), 0);
    crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
        let end = Instant::now() + Duration::from_secs(20);
        while up < connections {
            assert!(Instant::now() < end, "{up} connections");
            // Ten minutes pass for the CPF, which connects each five seconds.
            let now = clock::now() + Duration::from_secs(6) * up;
            cpf.turn(now);
            called.drain(clock::now(), &mut events);
            up += events.iter().filter(|e| matches!(e, Event::Up { .. })).count() as u32;
            called.flush();
        }
        let late = clock::now() + Duration::from_secs(6) * up;
        (0..100).for_each(|_| {
            cpf.turn(late);
        });
    });
    (up, lines.load(Ordering::Relaxed))
}

#[test] // and so is a CPF at a CTA's address
fn a_cta_of_another_version_is_logged_once() {
    let mut other_version = Hello::own(LinkRole::Cta).to_octets();
    other_version[9] ^= 0x7f;
    for hello in [other_version, Hello::own(LinkRole::Cpf).to_octets()] {
        assert_eq!(connections_and_lines(hello, 100), (100, 1));
    }
}

#[test]
fn after_a_process_that_is_not_a_cta_the_next_one_is_tried() {
    let (mut wrong, mut right) = (Host::new(LinkRole::Cpf), Host::new(LinkRole::Cta));
    let at = [&wrong, &right].map(|host| host.links.local_addr().unwrap());
    let _cpf = running(at.to_vec(), None, "home/site");
    let end = Instant::now() + Duration::from_secs(20);
    while right.reports.is_empty() {
        assert!(Instant::now() < end, "it stays with the process that is not a CTA");
        wrong.look();
        right.look();
        std::thread::sleep(Duration::from_micros(200));
    }
    assert!(!wrong.reports.is_empty(), "that one was tried first");
}

#[test]
fn a_cpf_shows_its_status_and_metrics() {
    let mut cta = Host::new(LinkRole::Cta);
    let at = "127.0.0.1:0".parse().unwrap();
    let console = Console::new(clock::now()).unwrap();
    let ctas = vec![cta.links.local_addr().unwrap()];
    let region = "home/site".parse().unwrap();
    let settings = CpfSettings {
        slice: None,
        ctas,
        at_etcd: None,
        listen: at,
        region,
        key_file: None,
        memory: NO_REST,
        console: Some(console.clone()),
    };
    let _cpf = RunningCpf::new(settings);
    let metrics = || console.metrics.prometheus_of_parts(Duration::from_secs(1));
    let until = |shows: &dyn Fn() -> String, text: &str| {
        let end = Instant::now() + Duration::from_secs(20);
        while !shows().contains(text) {
            assert!(Instant::now() < end, "{text}: {}", shows());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let status = || console.components(|c| c.all().map(|part| format!("{part:?}\n")).collect::<String>());
    until(&status, "no CTA accepts this CPF");
    until(&metrics, &format!("\n{} 0\n", Metric::CpfInService.name()));
    let (link, itself) = cta.caller();
    let ue = UeId { slot: 3, generation: 1 };
    let serve = CpfCommand::Serve { ue, term: 1, backups: Vec::new() };
    let input = CpfCommand::Run(tick(ue));
    cta.send(link, member(5).into_iter().chain([serve, input].map(ToCpf::Command)));
    for (metric, value) in [
        (Metric::CpfInService, 1),
        (Metric::CpfUes, 1),
        (Metric::CpfInputs, 1),
        (Metric::CpfReplicasHeld, 0),
        (Metric::CpfCheckpointsUnusable, 0),
        (Metric::CpfListed, 0),
    ] {
        until(&metrics, &format!("\n{} {value}\n", metric.name()));
    }
    assert!(!metrics().contains(Metric::Gnbs.name()), "it has none");
    until(&|| format!("{:?}", console.components(|c| c.overall())), "Up");
    UdpSocket::bind(at).unwrap().send_to(b"no heartbeat", itself).unwrap();
    until(&metrics, &format!("\n{} 1\n", Metric::HeartbeatsIgnored.series(Some("malformed"))));
    cta.links.close(link);
    cta.links.flush();
    until(&metrics, &format!("\n{} 1\n", Metric::CpfRejoins.name()));
}

#[test] // else whimbrel_cpf_inputs_total would leave out what takeovers run
fn an_input_counts_when_it_runs_and_not_while_it_waits_for_a_trial() {
    let mut status = StatusReporter::new(Console::new(clock::now()).unwrap());
    let mut member = ReplicatedCpf::new(Arc::new(config::default().control()));
    let (mut out, ue) = (CpfOutbox::default(), UeId { slot: 3, generation: 1 });
    let next = Envelope { clock: 2, ..tick(ue) };
    for message in [
        CpfCommand::Serve { ue, term: 1, backups: Vec::new() },
        CpfCommand::RunAfterTrial { ue, inputs: vec![tick(ue)] },
        CpfCommand::Run(next),
    ] {
        status.count_inputs(&mut out, |out| member.handle(message, out));
    }
    assert_eq!(status.inputs(), 0);
    let trial = out.trials[0].id;
    status.count_inputs(&mut out, |out| member.tried(trial, TrialOutcome::Passed, out));
    assert_eq!(status.inputs(), 2);
}

#[test] // its sender sends it again, when the CTA's message has arrived, too
fn a_message_of_an_unknown_life_ends_its_link() {
    let (mut cta, mut other) = (Host::new(LinkRole::Cta), Host::new(LinkRole::Cpf));
    let _cpf = running(vec![cta.links.local_addr().unwrap()], None, "home/site");
    let (link, itself) = cta.caller();
    let mut octets = Vec::new();
    let message = PeerMessage::Fetch { ue: UeId { slot: 3, generation: 1 }, clock: 7 };
    ToPeer { life: 5, from: CpfId(2), message }.write(&mut octets);
    let mut send = || {
        let link = other.links.connect(clock::now(), itself);
        other.links.send(link, &octets);
        other.links.flush();
        other.ended(link)
    };
    assert_eq!(send(), DownReason::Closed, "it is not a member yet");
    cta.send(link, member(6));
    assert_eq!(send(), DownReason::Closed, "it is a member in another life");
}

/// A CPF whose log lines are counted.
fn counting(cta: &Host, console: Option<Arc<Console>>, lines: &Arc<AtomicUsize>) -> RunningCpf {
    let settings = CpfSettings {
        slice: None,
        ctas: vec![cta.links.local_addr().unwrap()],
        at_etcd: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        region: "home/site".parse().unwrap(),
        key_file: None,
        memory: NO_REST,
        console,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let (stopping, lines) = (stop.clone(), Lines(lines.clone()));
    let work = move || {
        crate::log_limiter::with_subscriber(lines, || CpfProcess::open(settings).unwrap().run(&stopping));
    };
    RunningCpf(stop, Some(std::thread::spawn(work)))
}

/// The message with a UE's first checkpoint, in this life of the CTA.
fn state(life: u64, ue: UeId) -> Vec<u8> {
    let state = Checkpoint::of(&UeContext::new(ue)).unwrap();
    let message = PeerMessage::State(UeCheckpoint { ue, term: 1, clock: 0, state });
    let mut octets = Vec::new();
    ToPeer { life, from: CpfId(2), message }.write(&mut octets);
    octets
}

#[test] // the sender repeated all of it each second, and later messages never arrived
fn a_message_that_cannot_be_read_is_skipped_logged_once_and_counted() {
    let (mut cta, mut other) = (Host::new(LinkRole::Cta), Host::new(LinkRole::Cpf));
    let console = Console::new(clock::now()).unwrap();
    let lines = Arc::new(AtomicUsize::new(0));
    let _cpf = counting(&cta, Some(console.clone()), &lines);
    let (link, itself) = cta.caller();
    let peers = vec![(CpfId(1), itself), (CpfId(2), other.links.local_addr().unwrap())];
    cta.send(link, member(5).into_iter().chain([ToCpf::Peers(peers)]));
    let to_it = other.links.connect(clock::now(), itself);
    let (before, after) = (UeId { slot: 3, generation: 1 }, UeId { slot: 4, generation: 1 });
    let mut held = |other: &mut Host, ue: UeId| {
        other.links.send(to_it, &state(5, ue));
        other.links.flush();
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < end, "the checkpoint does not come");
            other.look(); // it writes what waits, once the link is up
            cta.look();
            for report in cta.reports.drain(..) {
                let LinkReport::Frame(_, octets) = report else { panic!("{report:?}") };
                if let ToCta::Report(CpfReport::CheckpointHeld { ue: held, .. }) =
                    ToCta::read(&octets).unwrap()
                {
                    return assert_eq!(held, ue);
                }
            }
        }
    };
    held(&mut other, before);
    let before_lines = lines.load(Ordering::Relaxed);
    let mut damaged = state(5, before);
    *damaged.last_mut().unwrap() ^= 1;
    for nonsense in [&damaged[..], &[0xff; 40], &[]].into_iter().cycle().take(300) {
        other.links.send(to_it, nonsense);
    }
    held(&mut other, after);
    assert!(!other.reports.iter().any(|report| matches!(report, LinkReport::Down(..))), "on the same link");
    assert_eq!(lines.load(Ordering::Relaxed), before_lines + 1);
    let end = Instant::now() + Duration::from_secs(20);
    while console.metrics.sample(Metric::CpfMessagesUnreadable) < 300 {
        assert!(Instant::now() < end, "it is not counted");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test] // a CPF of another life, as one whose CTA hangs after a takeover
fn a_cpf_that_closes_each_link_is_logged_once() {
    let (mut cta, mut other) = (Host::new(LinkRole::Cta), Host::new(LinkRole::Cpf));
    let lines = Arc::new(AtomicUsize::new(0));
    let _cpf = counting(&cta, None, &lines);
    let (link, itself) = cta.caller();
    let ue = UeId { slot: 3, generation: 1 };
    let peers = vec![(CpfId(1), itself), (CpfId(2), other.links.local_addr().unwrap())];
    let outdated = CpfCommand::Outdated { ue, clock: 7, up_to_date: vec![CpfId(2)] };
    cta.send(link, member(5).into_iter().chain([ToCpf::Peers(peers), ToCpf::Command(outdated)]));
    let first = other.asked_for(ue);
    let lines_before = lines.load(Ordering::Relaxed);
    other.links.close(first);
    for _ in 0..3 {
        let link = other.asked_for(ue);
        other.links.close(link);
    }
    assert_eq!(lines.load(Ordering::Relaxed), lines_before + 2, "it was lost, and is up again");
}

#[test] // docs/cluster.md, "Upgrading"
fn cpfs_that_run_other_code_wait_until_they_are_the_majority() {
    let mut pool = pool();
    let _own = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 1);
    let other = Hello { role: LinkRole::Cpf, code: CodeVersion(CodeVersion::own().0 ^ 1) };
    let mut others: Vec<Caller> = (0..2).map(|_| Caller::new(&pool, other.to_octets())).collect();
    others.iter_mut().for_each(|peer| peer.send(&join()));
    let end = Instant::now() + Duration::from_secs(20);
    let mut rings = Vec::new();
    while rings != [CpfId(2), CpfId(3)] {
        assert!(Instant::now() < end, "{rings:?}");
        for event in pool.turn(clock::now()) {
            if let PoolEvent::Rings(now) = event {
                assert!(rings.is_empty(), "one CPF alone changes nothing");
                rings = now.members().collect();
            }
        }
        pool.flush();
        for peer in &mut others {
            peer.links.drain(clock::now(), &mut peer.events);
            peer.links.flush();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    assert!(pool.knows(CpfId(1)), "it may still have UEs");
}

#[test]
fn a_peer_that_is_not_a_cpf_gets_no_message() {
    let mut pool = pool();
    let cta = Hello::own(LinkRole::Cta).to_octets();
    let mut other_version = Hello::own(LinkRole::Cpf).to_octets();
    other_version[9] ^= 0x7f;
    for hello in [cta, other_version, b"something else".to_vec(), Vec::new()] {
        let mut peer = Caller::new(&pool, hello);
        peer.send(&join());
        assert_eq!(peer.received(&mut pool).len(), 0);
    }
    assert_eq!(counted(&pool, Metric::LinkVersionsRefused), 1);
    // A CPF whose first message does not join, and one whose first message is unreadable.
    assert_eq!(counted(&pool, Metric::LinkRejected), 4);
    for first in [&[1, 2, 3][..], &[0xff; 40]] {
        let mut peer = Caller::new(&pool, Hello::own(LinkRole::Cpf).to_octets());
        peer.send_octets(first);
        assert_eq!(peer.received(&mut pool).len(), 0);
    }
    assert_eq!(counted(&pool, Metric::LinkRejected), 6);
    assert_eq!(pool.rings().members().count(), 0);
}

#[test] // malformed octets, a heartbeat that was changed on its way, and the CTA's own sent back
fn invalid_heartbeats_are_counted_by_reason() {
    let mut pool = pool();
    let heart = UdpSocket::bind("127.0.0.1:0").unwrap();
    heart.set_nonblocking(true).unwrap();
    let mut peer = Caller::new(&pool, Hello::own(LinkRole::Cpf).to_octets());
    let ToCta::Join { region, .. } = join() else { unreachable!() };
    peer.send(&ToCta::Join { region, address: heart.local_addr().unwrap(), slice: None });
    let end = Instant::now() + Duration::from_secs(20);
    let mut octets = [0; 256];
    while counted(&pool, Metric::HeartbeatsIgnored) < 3 {
        assert!(Instant::now() < end, "{:?}", pool.samples(IgnoredHeartbeats::default()));
        pool.turn(clock::now());
        pool.flush();
        peer.links.drain(clock::now(), &mut peer.events);
        peer.links.flush();
        if let Ok((length, from)) = heart.recv_from(&mut octets) {
            let probe = &mut octets[..length];
            heart.send_to(&[1, 2, 3], from).unwrap();
            heart.send_to(probe, from).unwrap();
            probe[length - 1] ^= 1;
            heart.send_to(probe, from).unwrap();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let ignored = pool
        .samples(IgnoredHeartbeats::default())
        .into_iter()
        .filter(|s| s.metric == Metric::HeartbeatsIgnored);
    let ignored: Vec<_> = ignored.map(|s| (s.label.unwrap(), s.value)).collect();
    let all = [("malformed", 1), ("forged", 1), ("foreign", 1), ("stale", 0)];
    assert_eq!(ignored, all.map(|(why, n)| (why.to_owned(), n)));
    assert_eq!(pool.rings().members().count(), 1);
}

#[test] // a rule of a firewall, or an MTU: UDP passes, TCP does not
fn a_cpf_that_answers_heartbeats_alone_is_lost_and_learns_so() {
    let heartbeat = Timing::new(Duration::from_millis(50), 16).unwrap();
    let mut pool = pool_that(Console::new(clock::now()).unwrap(), heartbeat);
    let _heard = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 1);
    let heart = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let responder = HeartbeatResponder::start(heart).unwrap();
    let mut peer = Caller::new(&pool, Hello::own(LinkRole::Cpf).to_octets());
    let ToCta::Join { region, .. } = join() else { unreachable!() };
    peer.send(&ToCta::Join { region, address: heart, slice: None });
    let end = Instant::now() + Duration::from_secs(20);
    let (mut welcome, mut lost_at) = (None, None);
    while !responder.is_replaced() {
        assert!(Instant::now() < end, "lost: {lost_at:?}");
        if let Some(lost) = pool.turn(clock::now()).into_iter().find_map(lost) {
            assert_eq!(lost, CpfId(2));
            lost_at = Some(Instant::now());
        }
        pool.flush();
        // It reads its link until it is welcome, and nothing from then on.
        if welcome.is_none() {
            peer.links.drain(clock::now(), &mut peer.events);
            peer.links.flush();
            let message = peer.events.iter().find_map(|event| match event {
                Event::Frame { octets, .. } => Some(ToCpf::read(octets).unwrap()),
                _ => None,
            });
            if let Some(ToCpf::Welcome { id, heartbeats, .. }) = message {
                responder.set_identity(Some((MemberId::Cpf(id), &heartbeats.0)));
                welcome = Some(Instant::now());
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let waited = lost_at.expect("it is lost").duration_since(welcome.expect("it was welcome"));
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    assert_eq!(counted(&pool, Metric::CpfUnresponsive), 1);
    assert_eq!(pool.rings().members().collect::<Vec<_>>(), [CpfId(1)]);
}

#[test]
fn a_cpf_that_violates_the_protocol_is_excluded() {
    let mut pool = pool();
    let ue = UeId { slot: 5, generation: 1 };
    let ran = CpfReport::Ran { ue, term: 1, clock: 1, from: None, batch: Box::<Batch>::default() };
    let mut damaged = Vec::new();
    ToCta::Report(ran).write(&mut damaged);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let mut twice = Vec::new();
    join().write(&mut twice);
    for (port, wrong) in (9..).zip([damaged, twice, vec![0xff; 8], Vec::new()]) {
        let mut peer = Caller::new(&pool, Hello::own(LinkRole::Cpf).to_octets());
        peer.send(&join_at(([127, 0, 0, 1], port).into()));
        peer.send_octets(&wrong);
        let received = peer.received(&mut pool);
        assert!(matches!(received.first(), Some(ToCpf::Welcome { .. })), "{received:?}");
        assert_eq!(pool.rings().members().count(), 0);
    }
    assert_eq!(counted(&pool, Metric::CpfExcluded), 4);
}

/// Whether a CPF with this address may join, this much later. It then violates the protocol, or its process ends.
fn joins(pool: &mut CpfPool, address: SocketAddr, later: Duration, violates: bool) -> bool {
    let mut peer = Caller::new(pool, Hello::own(LinkRole::Cpf).to_octets());
    peer.send(&join_at(address));
    let (mut peer, mut welcome) = (Some(peer), false);
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        let lost = pool.turn(clock::now() + later).into_iter().find_map(lost);
        pool.flush();
        if lost.is_some() {
            return true;
        }
        let Some(caller) = &mut peer else { continue };
        caller.links.drain(clock::now(), &mut caller.events);
        caller.links.flush();
        let events = &caller.events;
        if !welcome && events.iter().any(|event| matches!(event, Event::Down { .. })) {
            return false;
        }
        if !welcome && events.iter().any(|event| matches!(event, Event::Frame { .. })) {
            welcome = true;
            match violates {
                true => caller.send_octets(&[0xff; 8]),
                false => peer = None,
            }
        }
    }
    panic!("it neither joins nor is refused");
}

#[test] // it came back after 200 ms, each time with log lines and new rings
fn a_cpf_that_violates_the_protocol_repeatedly_is_excluded_and_logged_once() {
    let mut pool = pool();
    let _good = cpf(&pool, "home/site");
    until(&mut pool, members);
    let (bad, other) = (([127, 0, 0, 1], 9).into(), ([127, 0, 0, 1], 10).into());
    let lines = Arc::new(AtomicUsize::new(0));
    let mut later = Duration::from_secs(3);
    (0..10).for_each(|_| drop(pool.turn(clock::now() + later)));
    crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
        for _ in 0..10 {
            assert!(joins(&mut pool, bad, later, true), "it may have been restarted");
            for _ in 0..3 {
                assert!(!joins(&mut pool, bad, later, true), "it is excluded");
            }
            later += EXCLUDED_FOR;
        }
    });
    assert_eq!(lines.load(Ordering::Relaxed), 4, "it joins, is excluded, is refused, and joins again");
    assert_eq!(counted(&pool, Metric::CpfExcluded), 10);
    assert_eq!(counted(&pool, Metric::LinkRejected), 30);
    assert!(joins(&mut pool, bad, later, true) && joins(&mut pool, other, later, true));
    assert_eq!(pool.rings().members().count(), 1, "the correct one");
}

#[test]
fn a_cpf_that_merely_dies_may_join_again_at_once() {
    let mut pool = pool();
    for n in 1..=5 {
        assert!(joins(&mut pool, ([127, 0, 0, 1], 9).into(), Duration::ZERO, false), "time {n}");
    }
    assert_eq!(counted(&pool, Metric::CpfExcluded), 0);
}

#[test]
fn a_loopback_address_is_out_of_reach_for_other_hosts() {
    let of = |at: &str, peer: &str| super::pool::is_out_of_reach(at.parse().unwrap(), peer.parse().unwrap());
    assert!(of("127.0.0.1", "192.0.2.8") && of("::1", "2001:db8::8"));
    assert!(!of("127.0.0.1", "127.0.0.1") && !of("192.0.2.8", "192.0.2.8"));
}
