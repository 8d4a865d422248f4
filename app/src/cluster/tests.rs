//! A CTA's pool and CPFs on loopback; and peers that are none.

mod at_etcd;
mod pair;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use whimbrel_control::{Batch, Checkpoint, Envelope, Payload, UeContext, UeId};
use whimbrel_etcd::Access;
use whimbrel_ids::Tmsi;
use whimbrel_link::{DownReason, Event, Events, LinkId, Links};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::detector::Timing;
use whimbrel_resilience::link::{
    CpfCommand, CpfEntry, CpfReport, CpfTable, HeartbeatKey, Hello, PeerMessage, Role, State, ToCpf, ToCta,
    ToPeer, UeQuery,
};
use whimbrel_resilience::membership::{Configuration, CpfRoster, MemberId};
use whimbrel_resilience::replication::CpfId;

use super::excluded_cpfs::COMES_AGAIN_AFTER;
use super::heartbeat::{HeartbeatResponder, Ignored};
use super::{AtEtcd, CpfProcess, Pool, PoolEvent, Settings, UeQueryReply};
use crate::api::{self, Shared};
use crate::clock;
use crate::config::{self, Cluster, PairOf};
use crate::console::{Condition, Console};
use crate::entropy::SystemEntropy;
use crate::log_limiter::Lines;

/// Heartbeats that a machine which does much else answers too: no test here is about them.
fn patient() -> Timing {
    Timing::new(Duration::from_secs(1), 16).unwrap()
}

/// A pool that awaits CPFs of its region and of one more.
fn pool() -> Pool {
    pool_with(Console::new(clock::now()).unwrap())
}

fn pool_with(console: Arc<Console>) -> Pool {
    pool_that(console, patient())
}

fn pool_that(console: Arc<Console>, heartbeat: Timing) -> Pool {
    let config = config::default();
    let neighbours = vec!["home/next".parse().unwrap()];
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let cluster = Cluster { listen, neighbours, heartbeat, ..config.cluster.clone() };
    let mut entropy = SystemEntropy::new().unwrap();
    Pool::open(&cluster, Arc::new(config.control()), &mut entropy, console).unwrap().unwrap()
}

fn cluster_of_pair(pair: PairOf) -> Cluster {
    let listen = Some("127.0.0.1:0".parse().unwrap());
    Cluster { listen, pair: Some(pair), heartbeat: patient(), ..config::default().cluster.clone() }
}

/// The same as one of a pair.
fn pool_of_pair() -> Pool {
    let config = config::default();
    let lease = Duration::from_secs(5);
    let pair = PairOf { etcd: Access::default(), name: "test".into(), number: 1, home: 1, lease };
    let cluster = cluster_of_pair(pair);
    let console = Console::new(clock::now()).unwrap();
    let mut entropy = SystemEntropy::new().unwrap();
    Pool::open(&cluster, Arc::new(config.control()), &mut entropy, console).unwrap().unwrap()
}

/// A CPF in a thread.
struct Running(Arc<AtomicBool>, Option<JoinHandle<()>>);

fn cpf(pool: &Pool, region: &str) -> Running {
    running(vec![pool.address().unwrap()], None, region)
}

fn running(ctas: Vec<SocketAddr>, at_etcd: Option<AtEtcd>, region: &str) -> Running {
    let (listen, region) = ("127.0.0.1:0".parse().unwrap(), region.parse().unwrap());
    let settings = Settings { ctas, at_etcd, listen, region, key_file: None, console: None };
    Running::new(settings)
}

impl Running {
    fn new(settings: Settings) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let work = move || CpfProcess::open(settings).unwrap().run(&stopping);
        Running(stop, Some(std::thread::spawn(work)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.take().map(JoinHandle::join);
    }
}

/// Lets the pool work until it says something that is wanted.
fn until<T>(pool: &mut Pool, mut wanted: impl FnMut(PoolEvent) -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        for said in pool.turn(clock::now()) {
            if let Some(found) = wanted(said) {
                return found;
            }
        }
        pool.flush();
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("it does not happen");
}

fn members(said: PoolEvent) -> Option<usize> {
    match said {
        PoolEvent::Rings(rings) => Some(rings.members().count()),
        _ => None,
    }
}

fn lost(said: PoolEvent) -> Option<CpfId> {
    match said {
        PoolEvent::Lost(cpf) | PoolEvent::LostRepeatedly(cpf) => Some(cpf),
        _ => None,
    }
}

#[test]
fn cpfs_come_are_lost_and_come_anew_under_another_number() {
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
    assert_eq!(numbers, [CpfId(2), CpfId(3)], "a number is one life");
}

#[test] // one that is started again and again because it dies at once uses them up within hours
fn numbers_begin_again_when_all_have_been() {
    let mut pool = pool();
    let all_but_one = CpfTable { life: 7, newest: u16::MAX - 1, members: Vec::new() };
    pool.succeed(clock::now(), all_but_one, Vec::new());
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

/// What a pool shows of itself.
fn shows(pool: &Pool, console: &Console) -> (Condition, String, u64) {
    let shown = console.components(|c| c.all().find(|c| c.name == "CPFs").cloned());
    let shown = shown.expect("its condition");
    (shown.condition, shown.detail, counted(pool, "whimbrel_backups_missing"))
}

fn counted(pool: &Pool, name: &str) -> u64 {
    let all: Vec<u64> =
        pool.samples(Ignored::default()).iter().filter(|s| s.name == name).map(|s| s.value).collect();
    assert!(!all.is_empty(), "there is no {name}");
    all.iter().sum()
}

#[test] // docs/cluster.md, "Who serves a UE": what is missing is told
fn a_ring_of_one_serves_and_tells_that_nobody_backs_it() {
    let console = Console::new(clock::now()).unwrap();
    let mut pool = pool_with(console.clone());
    let shows = |pool: &Pool| shows(pool, &console);
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
}

#[test]
fn a_cpf_of_a_region_that_nobody_configured_is_refused() {
    let mut pool = pool();
    let _stray = cpf(&pool, "elsewhere/site");
    let _good = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 1, "the good one alone");
    std::thread::sleep(Duration::from_millis(300));
    pool.turn(clock::now());
    assert_eq!(pool.rings().members().count(), 1);
}

#[test]
fn regions_that_are_decided_come_with_the_gnbs_that_are_in_them_and_go_with_them() {
    let mut pool = pool();
    let _cpf = cpf(&pool, "home/next");
    assert_eq!(until(&mut pool, members), 1);
    let mut decide = |json: &str| {
        let decided = Configuration::read(json.as_bytes()).unwrap();
        pool.enrol(CpfRoster::default().under(Some(decided)));
        (pool.rings().members().count(), pool.rings().areas().regions().count())
    };
    let areas = r#""areas":[{"region":"home/new","tacs":[7]}]"#;
    assert_eq!(decide(&format!(r#"{{"regions":["home/next","home/new"],{areas}}}"#)), (1, 1));
    assert_eq!(decide(r#"{"regions":["home/next"]}"#), (1, 0));
    assert_eq!(
        decide(&format!(r#"{{"regions":["home/new"],{areas}}}"#)),
        (0, 1),
        "its region is none any more"
    );
    assert_eq!(decide("{}"), (1, 0), "the file's again");
}

#[test]
fn what_is_decided_is_in_force_after_a_takeover_and_those_who_served_before_are_on_the_rings() {
    let mut active = pool_of_pair();
    let _cpf = cpf(&active, "home/site");
    assert_eq!(until(&mut active, members), 1);
    let mut cta_replica = pool_of_pair();
    let decided = br#"{"regions":["home/new"],"areas":[{"region":"home/new","tacs":[7]}]}"#;
    let heard = CpfRoster::default().under(Some(Configuration::read(decided).unwrap()));
    cta_replica.begins(clock::now(), Some((active.as_members(), vec![])), heard);
    assert_eq!(cta_replica.rings().areas().regions().count(), 1);
    let told: Vec<usize> = cta_replica.turn(clock::now()).into_iter().filter_map(members).collect();
    assert_eq!(told, [1], "nobody is told rings without anybody");
}

#[test] // the CTA is lost, and its CTA replica knows its CPFs
fn a_cpf_goes_on_with_its_ctas_cta_replica() {
    taken_over(true, Duration::ZERO);
}

#[test] // docs/cluster.md: which waits until etcd agrees
fn a_cpf_waits_for_a_cta_replica_that_waits_itself() {
    taken_over(true, Duration::from_secs(6));
}

#[test]
fn a_cpf_whose_cta_hangs_is_called_by_the_cta_replica() {
    taken_over(false, Duration::ZERO);
}

fn taken_over(ends: bool, after: Duration) {
    let mut active = pool_of_pair();
    let mut cta_replica = pool_of_pair();
    let _cpf = cpf(&active, "home/site");
    assert_eq!(until(&mut active, members), 1);
    active.replicated_at(cta_replica.address());
    let former = active.as_members();
    active.flush();
    if ends {
        drop(active);
        std::thread::sleep(after);
        cta_replica.succeed(clock::now(), former, vec![]);
        return goes_on(cta_replica);
    }
    cta_replica.succeed(clock::now(), former, vec![]);
    goes_on(cta_replica); // the former one is there still, and does nothing
}

#[test] // SIGSTOP and SIGCONT of the one that has just taken over, or many UEs: the call waits in its socket
fn a_cpf_that_has_called_is_not_missed_by_a_cta_that_was_held_up() {
    let mut active = pool_of_pair();
    let mut cta_replica = pool_of_pair();
    let _cpf = cpf(&active, "home/site");
    assert_eq!(until(&mut active, members), 1);
    active.replicated_at(cta_replica.address());
    let former = active.as_members();
    active.flush();
    drop(active);
    let three_seconds_ago = whimbrel_ids::Instant(clock::now().0 - 3_000_000);
    cta_replica.succeed(three_seconds_ago, former, vec![]);
    goes_on(cta_replica);
}

fn goes_on(mut cta_replica: Pool) {
    let resumes = |said| match said {
        PoolEvent::Resumes(cpf, has) => Some((cpf, has)),
        PoolEvent::Lost(cpf) => panic!("{cpf:?} is lost"),
        _ => None,
    };
    assert_eq!(until(&mut cta_replica, resumes), (CpfId(1), 0));
    cta_replica.resumed(CpfId(1), 0);
    cta_replica.ask(UeQuery::Page(None, 10), UeQueryReply::Ue(tokio::sync::oneshot::channel().0));
    let shown = |said| matches!(said, PoolEvent::UesShown(..)).then_some(());
    until(&mut cta_replica, shown);
}

#[test]
fn a_cpf_of_another_life_is_told_to_begin_anew() {
    let mut cta_replica = pool_of_pair();
    let mut peer = Caller::new(&cta_replica, Hello::own(Role::Cpf).to_octets());
    peer.tell(&ToCta::Resume { life: 7, id: CpfId(1), has: 0 });
    let heard = peer.heard(&mut cta_replica);
    assert!(matches!(heard[..], [ToCpf::Forgotten]), "{heard:?}");
}

#[test] // etcd was slow: they call elsewhere just as the CTA replica takes over, and the end of their call is seen after that
fn cpfs_whose_call_ends_as_the_cta_replica_takes_over_are_not_lost() {
    let nobody_answers = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, region) = (nobody_answers.local_addr().unwrap(), "home/site".into());
    let (id, code) = (CpfId(1), CodeVersion::own());
    let one = CpfEntry { id, address, region, code, draining: false, listed: None };
    let mut cta_replica = pool_of_pair();
    cta_replica.succeed(clock::now(), CpfTable { life: 7, newest: 1, members: vec![one] }, vec![]);
    let calls = |cta_replica: &mut Pool| {
        let mut peer = Caller::new(cta_replica, Hello::own(Role::Cpf).to_octets());
        peer.tell(&ToCta::Resume { life: 7, id, has: 0 });
        let mut said = Vec::new();
        let end = Instant::now() + Duration::from_secs(20);
        while !said.contains(&"resumes") {
            assert!(Instant::now() < end, "it does not resume");
            said.extend(cta_replica.turn(clock::now()).into_iter().filter_map(|said| match said {
                PoolEvent::Resumes(..) => Some("resumes"),
                PoolEvent::Disconnected(_) => Some("parted"),
                PoolEvent::Lost(cpf) => panic!("{cpf:?} is lost"),
                _ => None,
            }));
            cta_replica.flush();
            peer.links.drain(clock::now(), &mut peer.events);
            peer.links.flush();
        }
        cta_replica.resumed(id, 0);
        (peer, said)
    };
    let (first, said) = calls(&mut cta_replica);
    assert_eq!(said, ["resumes"]);
    drop(first);
    let (_second, said) = calls(&mut cta_replica);
    assert_eq!(said, ["parted", "resumes"], "what it is told now is told again when it calls");
    let (_third, said) = calls(&mut cta_replica);
    assert_eq!(said, ["parted", "resumes"], "it calls again before its former call is seen to end");
    assert!(cta_replica.knows(id));
}

/// A peer that says what it likes.
struct Caller {
    links: Links,
    link: LinkId,
    events: Events,
}

impl Caller {
    fn new(pool: &Pool, hello: Vec<u8>) -> Self {
        let mut links = Links::open(whimbrel_link::Settings::new(hello)).unwrap();
        let link = links.connect(clock::now(), pool.address().unwrap());
        Self { links, link, events: Events::default() }
    }

    fn say(&mut self, octets: &[u8]) {
        self.links.send(self.link, octets);
        self.links.flush();
    }

    fn tell(&mut self, message: &ToCta) {
        let mut octets = Vec::new();
        message.write(&mut octets);
        self.say(&octets);
    }

    /// Lets both work until the link has ended; gives what came before.
    fn heard(&mut self, pool: &mut Pool) -> Vec<ToCpf> {
        let mut heard = Vec::new();
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            pool.turn(clock::now());
            pool.flush();
            self.links.drain(clock::now(), &mut self.events);
            for event in self.events.iter() {
                match event {
                    Event::Frame { octets, .. } => heard.push(ToCpf::read(octets).unwrap()),
                    Event::Down { .. } => return heard,
                    _ => {}
                }
            }
            self.links.flush();
            std::thread::sleep(Duration::from_micros(200));
        }
        panic!("the link is kept");
    }
}

fn join() -> ToCta {
    join_at(([127, 0, 0, 1], 9).into())
}

fn join_at(address: SocketAddr) -> ToCta {
    ToCta::Join { region: "home/site".parse().unwrap(), address }
}

/// Somebody to whom CPFs come, and who says what they are to believe.
struct Host {
    links: Links,
    events: Events,
    untold: VecDeque<LinkReport>,
}

#[derive(Debug)]
enum LinkReport {
    Up(LinkId),
    Frame(LinkId, Vec<u8>),
    Down(LinkId, DownReason),
}

impl Host {
    fn new(role: Role) -> Self {
        let mut settings = whimbrel_link::Settings::new(Hello::own(role).to_octets());
        settings.listen = Some("127.0.0.1:0".parse().unwrap());
        Self { links: Links::open(settings).unwrap(), events: Events::default(), untold: VecDeque::new() }
    }

    /// What happens next.
    fn next(&mut self) -> LinkReport {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if let Some(told) = self.untold.pop_front() {
                return told;
            }
            self.look();
            std::thread::sleep(Duration::from_micros(200));
        }
        panic!("nothing happens");
    }

    fn look(&mut self) {
        self.links.drain(clock::now(), &mut self.events);
        self.untold.extend(self.events.iter().filter_map(|event| match event {
            Event::Up { link, .. } => Some(LinkReport::Up(link)),
            Event::Frame { link, octets } => Some(LinkReport::Frame(link, octets.to_vec())),
            Event::Down { link, reason } => Some(LinkReport::Down(link, reason)),
            Event::TurnedAway { .. } => None,
        }));
        self.links.flush();
    }

    /// Where the CPF that comes wants to be reached.
    fn caller(&mut self) -> (LinkId, SocketAddr) {
        let LinkReport::Up(link) = self.next() else { panic!("nobody calls") };
        let LinkReport::Frame(_, join) = self.next() else { panic!("it says nothing") };
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

    fn tell(&mut self, link: LinkId, messages: impl IntoIterator<Item = ToCpf>) {
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

#[test] // etcd was slow, so it has called the CTA replica in vain, and tries hosts now that are down
fn a_cta_replica_that_serves_is_called_at_once_by_a_cpf_that_calls_others() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut former, mut cta_replica) = (Host::new(Role::Cta), Host::new(Role::Cta));
    let mut ctas = vec![silent.local_addr().unwrap(); 40]; // each for half a second
    ctas.insert(0, former.links.local_addr().unwrap());
    let _cpf = running(ctas, None, "home/site");
    let (link, itself) = former.caller();
    let [_, configure] = member(5);
    let welcome = ToCpf::Welcome { life: 5, id: CpfId(1), heartbeats: HeartbeatKey([7; 32]), keep: true };
    former.tell(link, [welcome, configure, ToCpf::CtaReplica(cta_replica.links.local_addr())]);
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
    std::thread::sleep(Duration::from_millis(100)); // so that it calls the next ones
    let serves = Instant::now();
    cta_replica.links.connect(clock::now(), itself);
    resumes(&mut cta_replica);
    assert!(serves.elapsed() < Duration::from_secs(5), "a CTA misses it after two");
}

#[test]
fn what_a_link_between_cpfs_may_have_lost_is_said_on_the_next() {
    let (mut cta, mut other) = (Host::new(Role::Cta), Host::new(Role::Cpf));
    let _cpf = running(vec![cta.links.local_addr().unwrap()], None, "home/site");
    let (link, itself) = cta.caller();
    let ue = UeId { slot: 3, generation: 1 };
    let peers = vec![(CpfId(1), itself), (CpfId(2), other.links.local_addr().unwrap())];
    let outdated = CpfCommand::Outdated { ue, clock: 7, up_to_date: vec![CpfId(2)] };
    cta.tell(link, member(5).into_iter().chain([ToCpf::Peers(peers), ToCpf::Command(outdated)]));
    for _ in 0..3 {
        let link = other.asked_for(ue);
        other.links.close(link); // whoever asked cannot know whether the question came
    }
    other.asked_for(ue);
}

/// Lets a CPF call somebody who is not its CTA: how often it was called, and what the log says of that.
fn calls_and_lines(hello: Vec<u8>, calls: u32) -> (u32, usize) {
    let listening = "127.0.0.1:0".parse().unwrap();
    let mut settings = whimbrel_link::Settings::new(hello);
    settings.listen = Some(listening);
    let mut called = Links::open(settings).unwrap();
    let ctas = vec![called.local_addr().unwrap()];
    let region = "home/site".parse().unwrap();
    let settings = Settings { ctas, at_etcd: None, listen: listening, region, key_file: None, console: None };
    let mut cpf = CpfProcess::open(settings).unwrap();
    let lines = Arc::new(AtomicUsize::new(0));
    let (mut events, mut up) = (Events::default(), 0);
    tracing::subscriber::with_default(Lines(lines.clone()), || {
        let end = Instant::now() + Duration::from_secs(20);
        while up < calls {
            assert!(Instant::now() < end, "called {up} times");
            // As if it were ten minutes, of which it calls each five seconds.
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

#[test] // and so is a CPF at the address of one
fn a_cta_of_another_version_is_told_once_however_often_it_is_called() {
    let mut other_version = Hello::own(Role::Cta).to_octets();
    other_version[9] ^= 0x7f;
    for hello in [other_version, Hello::own(Role::Cpf).to_octets()] {
        assert_eq!(calls_and_lines(hello, 100), (100, 1));
    }
}

#[test]
fn who_calls_what_is_no_cta_calls_the_next_one_then() {
    let (mut wrong, mut right) = (Host::new(Role::Cpf), Host::new(Role::Cta));
    let at = [&wrong, &right].map(|host| host.links.local_addr().unwrap());
    let _cpf = running(at.to_vec(), None, "home/site");
    let end = Instant::now() + Duration::from_secs(20);
    while right.untold.is_empty() {
        assert!(Instant::now() < end, "it stays with who answers and is none");
        wrong.look();
        right.look();
        std::thread::sleep(Duration::from_micros(200));
    }
    assert!(!wrong.untold.is_empty(), "that one was called first");
}

/// What an HTTP server says: its status line, its head and its body.
fn get(at: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_cpf_says_over_http_how_it_is_and_nothing_of_ues() {
    let mut cta = Host::new(Role::Cta);
    let at = "127.0.0.1:0".parse().unwrap();
    let console = Console::new(clock::now()).unwrap();
    let api = api::start(at, Shared::of_cpf(console.clone(), at)).unwrap();
    let ctas = vec![cta.links.local_addr().unwrap()];
    let region = "home/site".parse().unwrap();
    let settings =
        Settings { ctas, at_etcd: None, listen: at, region, key_file: None, console: Some(console) };
    let _cpf = Running::new(settings);
    let until = |path: &str, says: &str| {
        let end = Instant::now() + Duration::from_secs(20);
        while !get(api.address, path).contains(says) {
            assert!(Instant::now() < end, "{says}: {}", get(api.address, path));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("/api/v1/status", "no CTA takes this CPF");
    until("/metrics", "\nwhimbrel_cpf_member 0\n");
    let (link, itself) = cta.caller();
    let ue = UeId { slot: 3, generation: 1 };
    let serve = CpfCommand::Serve { ue, term: 1, backups: Vec::new() };
    let input = CpfCommand::Run(Envelope {
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
    });
    cta.tell(link, member(5).into_iter().chain([serve, input].map(ToCpf::Command)));
    for says in [
        "whimbrel_cpf_member 1",
        "whimbrel_cpf_ues 1",
        "whimbrel_cpf_inputs_total 1",
        "whimbrel_cpf_states_held 0",
        "whimbrel_cpf_states_unreadable_total 0",
        "whimbrel_cpf_listed 0",
    ] {
        until("/metrics", &format!("\n{says}\n"));
    }
    assert!(!get(api.address, "/metrics").contains("whimbrel_gnbs"), "it has none");
    until("/api/v1/status", "\"condition\":\"up\"");
    for path in ["/api/v1/subscribers", "/api/v1/ues", "/api/v1/events"] {
        let answer = get(api.address, path);
        assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("ask the CTA"), "{answer}");
    }
    UdpSocket::bind(at).unwrap().send_to(b"no heartbeat", itself).unwrap();
    until("/metrics", "\nwhimbrel_heartbeats_ignored_total{why=\"malformed\"} 1\n");
    cta.links.close(link);
    cta.links.flush();
    until("/metrics", "\nwhimbrel_cpf_begun_anew_total 1\n");
}

#[test] // who sent it says it again, when the CTA's word is here too
fn a_message_of_a_life_that_is_not_known_ends_its_link() {
    let (mut cta, mut other) = (Host::new(Role::Cta), Host::new(Role::Cpf));
    let _cpf = running(vec![cta.links.local_addr().unwrap()], None, "home/site");
    let (link, itself) = cta.caller();
    let mut octets = Vec::new();
    let message = PeerMessage::Fetch { ue: UeId { slot: 3, generation: 1 }, clock: 7 };
    ToPeer { life: 5, from: CpfId(2), message }.write(&mut octets);
    let mut say = || {
        let link = other.links.connect(clock::now(), itself);
        other.links.send(link, &octets);
        other.links.flush();
        other.ended(link)
    };
    assert_eq!(say(), DownReason::Closed, "it is no member yet");
    cta.tell(link, member(6));
    assert_eq!(say(), DownReason::Closed, "it is one of another life");
}

/// A CPF whose lines in the log are counted.
fn counting(cta: &Host, console: Option<Arc<Console>>, lines: &Arc<AtomicUsize>) -> Running {
    let settings = Settings {
        ctas: vec![cta.links.local_addr().unwrap()],
        at_etcd: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        region: "home/site".parse().unwrap(),
        key_file: None,
        console,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let (stopping, lines) = (stop.clone(), Lines(lines.clone()));
    let work = move || {
        tracing::subscriber::with_default(lines, || CpfProcess::open(settings).unwrap().run(&stopping));
    };
    Running(stop, Some(std::thread::spawn(work)))
}

/// The message by which another CPF sends a UE's first state, in this life of the CTA.
fn state(life: u64, ue: UeId) -> Vec<u8> {
    let state = Checkpoint::of(&UeContext::new(ue)).unwrap();
    let message = PeerMessage::State(State { ue, term: 1, clock: 0, state });
    let mut octets = Vec::new();
    ToPeer { life, from: CpfId(2), message }.write(&mut octets);
    octets
}

#[test] // its sender said all of it again each second, and what came after it was never here
fn a_message_that_cannot_be_read_is_skipped_told_once_and_counted() {
    let (mut cta, mut other) = (Host::new(Role::Cta), Host::new(Role::Cpf));
    let console = Console::new(clock::now()).unwrap();
    let lines = Arc::new(AtomicUsize::new(0));
    let _cpf = counting(&cta, Some(console.clone()), &lines);
    let (link, itself) = cta.caller();
    let peers = vec![(CpfId(1), itself), (CpfId(2), other.links.local_addr().unwrap())];
    cta.tell(link, member(5).into_iter().chain([ToCpf::Peers(peers)]));
    let to_it = other.links.connect(clock::now(), itself);
    let (before, after) = (UeId { slot: 3, generation: 1 }, UeId { slot: 4, generation: 1 });
    let mut held = |other: &mut Host, ue: UeId| {
        other.links.send(to_it, &state(5, ue));
        other.links.flush();
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < end, "the state does not come");
            other.look(); // it writes what waits, once the link stands
            cta.look();
            for told in cta.untold.drain(..) {
                let LinkReport::Frame(_, octets) = told else { panic!("{told:?}") };
                if let ToCta::Report(CpfReport::CheckpointHeld { ue: held, .. }) =
                    ToCta::read(&octets).unwrap()
                {
                    return assert_eq!(held, ue);
                }
            }
        }
    };
    held(&mut other, before);
    let told = lines.load(Ordering::Relaxed);
    let mut damaged = state(5, before);
    *damaged.last_mut().unwrap() ^= 1;
    for nonsense in [&damaged[..], &[0xff; 40], &[]].into_iter().cycle().take(300) {
        other.links.send(to_it, nonsense);
    }
    held(&mut other, after);
    assert!(!other.untold.iter().any(|told| matches!(told, LinkReport::Down(..))), "on the same link");
    assert_eq!(lines.load(Ordering::Relaxed), told + 1);
    let end = Instant::now() + Duration::from_secs(20);
    while console.metrics.sample("whimbrel_cpf_messages_unreadable_total") < 300 {
        assert!(Instant::now() < end, "it does not count");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test] // of another life for good, as one whose CTA hangs while its CTA replica serves
fn who_ends_each_link_that_leads_to_it_is_told_once() {
    let (mut cta, mut other) = (Host::new(Role::Cta), Host::new(Role::Cpf));
    let lines = Arc::new(AtomicUsize::new(0));
    let _cpf = counting(&cta, None, &lines);
    let (link, itself) = cta.caller();
    let ue = UeId { slot: 3, generation: 1 };
    let peers = vec![(CpfId(1), itself), (CpfId(2), other.links.local_addr().unwrap())];
    let outdated = CpfCommand::Outdated { ue, clock: 7, up_to_date: vec![CpfId(2)] };
    cta.tell(link, member(5).into_iter().chain([ToCpf::Peers(peers), ToCpf::Command(outdated)]));
    let first = other.asked_for(ue);
    let told = lines.load(Ordering::Relaxed);
    other.links.close(first);
    for _ in 0..3 {
        let link = other.asked_for(ue);
        other.links.close(link);
    }
    assert_eq!(lines.load(Ordering::Relaxed), told + 2, "that it ended, and that it stands again");
}

#[test] // docs/cluster.md, "Upgrading"
fn cpfs_that_run_other_code_wait_until_they_are_most() {
    let mut pool = pool();
    let _own = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 1);
    let other = Hello { role: Role::Cpf, code: CodeVersion(CodeVersion::own().0 ^ 1) };
    let mut others: Vec<Caller> = (0..2).map(|_| Caller::new(&pool, other.to_octets())).collect();
    others.iter_mut().for_each(|peer| peer.tell(&join()));
    let end = Instant::now() + Duration::from_secs(20);
    let mut rings = Vec::new();
    while rings != [CpfId(2), CpfId(3)] {
        assert!(Instant::now() < end, "{rings:?}");
        for said in pool.turn(clock::now()) {
            if let PoolEvent::Rings(now) = said {
                assert!(rings.is_empty(), "one alone changes nothing");
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
    assert!(pool.knows(CpfId(1)), "it has UEs still, perhaps");
}

#[test]
fn who_is_no_cpf_gets_nothing() {
    let mut pool = pool();
    let cta = Hello::own(Role::Cta).to_octets();
    let mut other_version = Hello::own(Role::Cpf).to_octets();
    other_version[9] ^= 0x7f;
    for hello in [cta, other_version, b"something else".to_vec(), Vec::new()] {
        let mut peer = Caller::new(&pool, hello);
        peer.tell(&join());
        assert_eq!(peer.heard(&mut pool).len(), 0);
    }
    assert_eq!(counted(&pool, "whimbrel_versions_refused_total"), 1);
    // One that does not begin with its offer, and one whose first message is nothing at all.
    assert_eq!(counted(&pool, "whimbrel_link_rejected_total"), 4);
    for first in [&[1, 2, 3][..], &[0xff; 40]] {
        let mut peer = Caller::new(&pool, Hello::own(Role::Cpf).to_octets());
        peer.say(first);
        assert_eq!(peer.heard(&mut pool).len(), 0);
    }
    assert_eq!(counted(&pool, "whimbrel_link_rejected_total"), 6);
    assert_eq!(pool.rings().members().count(), 0);
}

#[test] // octets that are none, one that was changed on its way, and the CTA's own sent back
fn heartbeats_that_are_none_are_counted() {
    let mut pool = pool();
    let heart = UdpSocket::bind("127.0.0.1:0").unwrap();
    heart.set_nonblocking(true).unwrap();
    let mut peer = Caller::new(&pool, Hello::own(Role::Cpf).to_octets());
    let ToCta::Join { region, .. } = join() else { unreachable!() };
    peer.tell(&ToCta::Join { region, address: heart.local_addr().unwrap() });
    let end = Instant::now() + Duration::from_secs(20);
    let mut octets = [0; 256];
    while counted(&pool, "whimbrel_heartbeats_ignored_total") < 3 {
        assert!(Instant::now() < end, "{:?}", pool.samples(Ignored::default()));
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
        .samples(Ignored::default())
        .into_iter()
        .filter(|s| s.name == "whimbrel_heartbeats_ignored_total");
    let ignored: Vec<_> = ignored.map(|s| (s.label.unwrap().1, s.value)).collect();
    let all = [("malformed", 1), ("forged", 1), ("foreign", 1), ("stale", 0)];
    assert_eq!(ignored, all.map(|(why, n)| (why.to_owned(), n)));
    assert_eq!(pool.rings().members().count(), 1);
}

#[test] // a rule of a firewall, or an MTU: UDP passes, TCP does not
fn a_cpf_that_answers_heartbeats_alone_is_lost_and_told_so() {
    let heartbeat = Timing::new(Duration::from_millis(50), 16).unwrap();
    let mut pool = pool_that(Console::new(clock::now()).unwrap(), heartbeat);
    let _heard = cpf(&pool, "home/site");
    assert_eq!(until(&mut pool, members), 1);
    let heart = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let answering = HeartbeatResponder::start(heart).unwrap();
    let mut peer = Caller::new(&pool, Hello::own(Role::Cpf).to_octets());
    let ToCta::Join { region, .. } = join() else { unreachable!() };
    peer.tell(&ToCta::Join { region, address: heart });
    let end = Instant::now() + Duration::from_secs(20);
    let (mut welcome, mut lost_at) = (None, None);
    while !answering.is_replaced() {
        assert!(Instant::now() < end, "lost: {lost_at:?}");
        if let Some(lost) = pool.turn(clock::now()).into_iter().find_map(lost) {
            assert_eq!(lost, CpfId(2));
            lost_at = Some(Instant::now());
        }
        pool.flush();
        // It reads what it is to answer with until it is welcome, and nothing on its link from then on.
        if welcome.is_none() {
            peer.links.drain(clock::now(), &mut peer.events);
            peer.links.flush();
            let told = peer.events.iter().find_map(|event| match event {
                Event::Frame { octets, .. } => Some(ToCpf::read(octets).unwrap()),
                _ => None,
            });
            if let Some(ToCpf::Welcome { id, heartbeats, .. }) = told {
                answering.be(Some((MemberId::Cpf(id), &heartbeats.0)));
                welcome = Some(Instant::now());
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let waited = lost_at.expect("it is lost").duration_since(welcome.expect("it was welcome"));
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    assert_eq!(counted(&pool, "whimbrel_cpf_unresponsive_total"), 1);
    assert_eq!(pool.rings().members().collect::<Vec<_>>(), [CpfId(1)]);
}

#[test]
fn a_cpf_that_breaks_the_rules_is_given_up() {
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
        let mut peer = Caller::new(&pool, Hello::own(Role::Cpf).to_octets());
        peer.tell(&join_at(([127, 0, 0, 1], port).into()));
        peer.say(&wrong);
        let heard = peer.heard(&mut pool);
        assert!(matches!(heard.first(), Some(ToCpf::Welcome { .. })), "{heard:?}");
        assert_eq!(pool.rings().members().count(), 0);
    }
    assert_eq!(counted(&pool, "whimbrel_cpf_excluded_total"), 4);
}

/// Whether a CPF that is reached there is taken, so much later. It then breaks the rules, or its process ends.
fn comes(pool: &mut Pool, address: SocketAddr, later: Duration, breaks_rules: bool) -> bool {
    let mut peer = Caller::new(pool, Hello::own(Role::Cpf).to_octets());
    peer.tell(&join_at(address));
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
            match breaks_rules {
                true => caller.say(&[0xff; 8]),
                false => peer = None,
            }
        }
    }
    panic!("nothing comes of it");
}

#[test] // it came back after 200 ms, each time with some lines and other rings
fn who_breaks_the_rules_again_and_again_comes_back_after_a_pause_and_is_told_once() {
    let mut pool = pool();
    let _good = cpf(&pool, "home/site");
    until(&mut pool, members);
    let (bad, other) = (([127, 0, 0, 1], 9).into(), ([127, 0, 0, 1], 10).into());
    let lines = Arc::new(AtomicUsize::new(0));
    let mut later = Duration::from_secs(3);
    (0..10).for_each(|_| drop(pool.turn(clock::now() + later)));
    tracing::subscriber::with_default(Lines(lines.clone()), || {
        for _ in 0..10 {
            assert!(comes(&mut pool, bad, later, true), "it may have been started anew");
            for _ in 0..3 {
                assert!(!comes(&mut pool, bad, later, true), "it has just been given up");
            }
            later += COMES_AGAIN_AFTER;
        }
    });
    assert_eq!(lines.load(Ordering::Relaxed), 4, "it comes, is given up, is refused, and comes again");
    assert_eq!(counted(&pool, "whimbrel_cpf_excluded_total"), 10);
    assert_eq!(counted(&pool, "whimbrel_link_rejected_total"), 30);
    assert!(comes(&mut pool, bad, later, true) && comes(&mut pool, other, later, true));
    assert_eq!(pool.rings().members().count(), 1, "the good one");
}

#[test]
fn a_cpf_that_merely_dies_may_come_again_at_once() {
    let mut pool = pool();
    for n in 1..=5 {
        assert!(comes(&mut pool, ([127, 0, 0, 1], 9).into(), Duration::ZERO, false), "time {n}");
    }
    assert_eq!(counted(&pool, "whimbrel_cpf_excluded_total"), 0);
}

#[test]
fn a_loopback_address_is_no_address_for_other_hosts() {
    let of =
        |told: &str, peer: &str| super::pool::is_out_of_reach(told.parse().unwrap(), peer.parse().unwrap());
    assert!(of("127.0.0.1", "192.0.2.8") && of("::1", "2001:db8::8"));
    assert!(!of("127.0.0.1", "127.0.0.1") && !of("192.0.2.8", "192.0.2.8"));
}
