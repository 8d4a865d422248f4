//! CPFs and CTAs with a real etcd. The tests pass without it where the program is not installed.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use whimbrel_etcd::{Agent, EtcdAccess};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::membership::{
    CpfRoster, CtaInstance, Event, HomeClaim, ListedMember, Member, MemberId, MembershipCommand,
    MembershipSettings, MembershipView,
};
use whimbrel_resilience::replication::CpfId;

use super::{AtEtcd, members, pool, running, until};
use crate::clock;
use crate::cluster::witness::Witness;
use crate::cluster::{CpfPool, PoolEvent};
use crate::config::{self, PairOf};

/// The shortest lease of a cluster, and an outage that is longer than a CPF's lease.
const LEASE: Duration = Duration::from_secs(5);
const OUTAGE: Duration = Duration::from_secs(12);

/// A port for a program that a test starts: below those that the kernel gives to sockets without one, which may take
/// a port between its choice here and the program's start.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(64).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(super) struct Etcd {
    dir: PathBuf,
    pub(super) client: String,
    peer: String,
    process: Option<Child>,
}

impl Etcd {
    /// `None` where there is no such program.
    pub(super) fn new(name: &str) -> Option<Self> {
        let version = Program::new("etcd").arg("--version").stdout(Stdio::null()).status();
        if version.is_err() {
            eprintln!("skipped: etcd is not installed");
            return None;
        }
        let [client, peer] = [(); 2].map(|()| format!("http://127.0.0.1:{}", free_port()));
        let dir = std::env::temp_dir().join(format!("whimbrel-cluster-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut etcd = Self { dir, client, peer, process: None };
        etcd.start();
        Some(etcd)
    }

    fn start(&mut self) {
        let process = Program::new("etcd")
            .args(["--name", "one", "--data-dir", self.dir.join("data").to_str().unwrap()])
            .args(["--listen-client-urls", &self.client, "--advertise-client-urls", &self.client])
            .args(["--listen-peer-urls", &self.peer, "--initial-advertise-peer-urls", &self.peer])
            .args(["--initial-cluster", &format!("one={}", self.peer)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(process.unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn there(&self) -> Option<AtEtcd> {
        Some(AtEtcd { etcd: self.access(), name: "west".into(), home: 1 })
    }

    fn access(&self) -> EtcdAccess {
        EtcdAccess { endpoints: vec![self.client.clone()], ..EtcdAccess::default() }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A CTA's registration in etcd.
pub(super) struct ListedCta {
    agent: Agent,
    state: Arc<Mutex<(MembershipView, bool)>>,
}

impl ListedCta {
    pub(super) fn new(etcd: &Etcd, number: u16, address: SocketAddr) -> Self {
        let member =
            Member { region: "home/site".into(), address, draining: false, code_version: CodeVersion::own() };
        let settings =
            MembershipSettings { cluster: "west".into(), me: MemberId::Cta(number), member, lease: LEASE };
        let state = Arc::new(Mutex::new((MembershipView::default(), false)));
        let shared = state.clone();
        let agent = Agent::start(settings, &etcd.access(), move |update| {
            let mut state = shared.lock().unwrap();
            state.1 |= matches!(update.event, Event::Joined(_));
            state.0 = update.view.clone();
        });
        let listed = Self { agent: agent.unwrap(), state };
        listed.until(|(_, joined)| *joined);
        listed
    }

    fn until(&self, holds: impl Fn(&(MembershipView, bool)) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds(&self.state.lock().unwrap()) {
            assert!(
                Instant::now() < end,
                "the condition does not hold in time: {:?}",
                self.state.lock().unwrap().0
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its number and incarnation.
    pub(super) fn place(&self, cta: u16) -> CtaInstance {
        let state = self.state.lock().unwrap();
        let incarnation = state.0.member(MemberId::Cta(cta)).unwrap().incarnation;
        CtaInstance { cta, incarnation }
    }

    /// Deletes its registration.
    pub(super) fn leaves(&self, cta: u16) {
        self.agent.command(MembershipCommand::Leave);
        self.until(|(view, _)| view.member(MemberId::Cta(cta)).is_none());
    }

    pub(super) fn serves(&self) {
        self.agent.command(MembershipCommand::Claim(1, HomeClaim::Found));
        self.until(|(view, _)| view.home(1).is_some());
    }

    /// The registered CPFs.
    fn cpfs(view: &MembershipView) -> Vec<Member> {
        let of = |(id, listed): (MemberId, &ListedMember)| {
            matches!(id, MemberId::Cpf(_)).then(|| listed.member.clone())
        };
        view.members().filter_map(of).collect()
    }
}

/// What an operator writes with etcdctl.
fn put(etcd: &Etcd, key: &str, value: &str) {
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let body = format!(r#"{{"key":"{}","value":"{}"}}"#, base64(key), base64(value));
    let at = etcd.client.strip_prefix("http://").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let mut stream = loop {
        match TcpStream::connect(at) {
            Ok(stream) => break stream,
            Err(e) => assert!(Instant::now() < end, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let length = body.len();
    write!(stream, "POST /v3/kv/put HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Applies etcd's records to the pool until its rings are these.
fn rings_are(pool: &mut CpfPool, listed: &ListedCta, expected: &[u16]) {
    let end = Instant::now() + Duration::from_secs(60);
    let on = |pool: &CpfPool| pool.rings().members().map(|cpf| cpf.0).collect::<Vec<_>>();
    while on(pool) != expected {
        assert!(Instant::now() < end, "{:?} instead of {expected:?}", on(pool));
        pool.apply_etcd(CpfRoster::of(&listed.state.lock().unwrap().0));
        assert_eq!(losses(pool), 0);
        pool.flush();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn losses(pool: &mut CpfPool) -> usize {
    pool.turn(clock::now()).iter().filter(|event| matches!(event, PoolEvent::Lost(_))).count()
}

#[test]
fn a_cpf_finds_the_primary_cta_and_is_registered_until_it_leaves() {
    let Some(mut etcd) = Etcd::new("find") else { return };
    // It starts before there is a CTA.
    let first = running(vec![], etcd.there(), "home/next");
    let mut pool = pool();
    let listed = ListedCta::new(&etcd, 1, pool.address().unwrap());
    listed.serves();
    assert_eq!(until(&mut pool, members), 1);
    let second = running(vec![], etcd.there(), "home/site");
    assert_eq!(until(&mut pool, members), 2);
    listed.until(|(view, _)| ListedCta::cpfs(view).len() == 2);
    let regions: BTreeSet<String> =
        ListedCta::cpfs(&listed.state.lock().unwrap().0).into_iter().map(|m| m.region).collect();
    assert_eq!(regions, ["home/next", "home/site"].map(String::from).into());

    // Without etcd, for longer than a lease, everything continues.
    etcd.kill();
    let end = Instant::now() + OUTAGE;
    while Instant::now() < end {
        assert_eq!(losses(&mut pool), 0, "no CPF is lost because etcd is away");
        pool.flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(pool.rings().members().count(), 2);
    etcd.start();
    listed.until(|(view, _)| ListedCta::cpfs(view).len() == 2);

    // A CPF that leaves is on no ring, and its registration is deleted when it has left.
    let gone = std::thread::spawn(move || drop(second));
    assert_eq!(until(&mut pool, members), 1);
    let leaves = [CpfId(1), CpfId(2)].into_iter().find(|id| !pool.rings().serves(*id));
    pool.drained(leaves.unwrap());
    pool.flush();
    gone.join().unwrap();
    listed.until(|(view, _)| ListedCta::cpfs(view).len() == 1);
    drop(pool);
    drop(first);
    listed.until(|(view, _)| ListedCta::cpfs(view).is_empty());
}

#[test]
fn rings_and_configuration_follow_etcd_without_a_restart() {
    let Some(mut etcd) = Etcd::new("rings") else { return };
    let mut pool = pool();
    let listed = ListedCta::new(&etcd, 1, pool.address().unwrap());
    listed.serves();
    let _first = running(vec![], etcd.there(), "home/site");
    assert_eq!(until(&mut pool, members), 1);
    listed.until(|(view, _)| ListedCta::cpfs(view).len() == 1);
    let number = |view: &MembershipView| {
        view.members().find_map(|(id, _)| Some(id).filter(|id| matches!(id, MemberId::Cpf(_))))
    };
    let first = number(&listed.state.lock().unwrap().0).unwrap();
    let _second = running(vec![], etcd.there(), "home/site");
    rings_are(&mut pool, &listed, &[1, 2]);
    listed.until(|(view, _)| ListedCta::cpfs(view).len() == 2);

    // The operator drains a CPF; an invalid configuration changes nothing; and without etcd all stays as it is.
    let key = "whimbrel/west/configuration";
    put(&etcd, key, &format!(r#"{{"replicas":0,"draining":["{first}"]}}"#));
    rings_are(&mut pool, &listed, &[2]);
    put(&etcd, key, r#"{"replicas":9}"#);
    put(&etcd, key, r#"{"areas":[{"region":"far/away","tacs":[7]}]}"#);
    listed.until(|(view, _)| view.configuration().is_some_and(|(_, c)| c.areas.is_some()));
    pool.apply_etcd(CpfRoster::of(&listed.state.lock().unwrap().0));
    rings_are(&mut pool, &listed, &[2]);
    assert!(pool.rings().areas().is_empty(), "there is no such region");
    assert_eq!(pool.rejected_configurations(), 1);
    etcd.kill();
    let end = Instant::now() + OUTAGE;
    while Instant::now() < end {
        pool.apply_etcd(CpfRoster::of(&listed.state.lock().unwrap().0));
        assert_eq!(losses(&mut pool), 0, "no CPF is lost because etcd is away");
        pool.flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    rings_are(&mut pool, &listed, &[2]);

    // A new region needs no restart.
    etcd.start();
    put(&etcd, key, r#"{"regions":["home/site","home/next","home/new"]}"#);
    rings_are(&mut pool, &listed, &[1, 2]);
    let _third = running(vec![], etcd.there(), "home/new");
    rings_are(&mut pool, &listed, &[1, 2, 3]);
}

#[test] // two regions of one name, and the same again
fn an_invalid_record_is_counted() {
    let Some(etcd) = Etcd::new("ignored") else { return };
    let pair =
        PairOf { etcd: etcd.access(), name: "west".into(), number: 1, home: 1, lease: LEASE, host: None };
    let mut witness =
        Witness::start(&pair, &config::default().cluster, "127.0.0.1:9".parse().unwrap()).unwrap();
    let twice = r#"{"regions":["north/harbour","south/harbour"]}"#;
    for times in 1..=2 {
        put(&etcd, "whimbrel/west/configuration", twice);
        let end = Instant::now() + Duration::from_secs(60);
        while witness.ignored() < times {
            assert!(Instant::now() < end, "{}", witness.ignored());
            witness.turn();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(witness.ignored(), 2);
}
