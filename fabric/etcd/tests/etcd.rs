//! Membership on real etcd processes on loopback: one, and three of which some are stopped and killed. Passes without a word to etcd
//! where the program `etcd` is not installed; `./x test` says so.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use whimbrel_etcd::Agent;
use whimbrel_resilience::detector::Incarnation;
use whimbrel_resilience::membership::{
    Change, Claim, ClaimError, Command, Event, Home, Member, MemberId, Place, Settings, View,
};
use whimbrel_resilience::replication::CpfId;

const A: MemberId = MemberId::Cta(1);
const B: MemberId = MemberId::Cta(2);
const CPF: MemberId = MemberId::Cpf(CpfId(7));
const HOME: u16 = 1;
/// The shortest that a cluster would use.
const LEASE: Duration = Duration::from_secs(5);
/// On a host that does much else, an election can take long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One etcd.
struct Etcd {
    name: String,
    dir: PathBuf,
    client: u16,
    peer: u16,
    cluster: String,
    process: Option<Child>,
}

impl Etcd {
    fn start(&mut self) {
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(self.client), url(self.peer));
        let process = Program::new("etcd")
            .args(["--name", &self.name, "--data-dir", self.dir.join("data").to_str().unwrap()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.cluster, "--logger", "zap"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.process.as_ref().unwrap()), signal).unwrap();
    }

    fn forget(&self) {
        std::fs::remove_dir_all(self.dir.join("data")).unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// So many, as one cluster; `None` where there is no such program.
fn etcds(n: usize) -> Option<Vec<Etcd>> {
    if Program::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: etcd is not installed");
        return None;
    }
    static RUN: AtomicU32 = AtomicU32::new(0);
    let run = RUN.fetch_add(1, Ordering::Relaxed);
    // Held together until all are chosen, so that they differ.
    let free: Vec<TcpListener> = (0..2 * n).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = free.iter().map(|l| l.local_addr().unwrap().port()).collect();
    drop(free);
    let name = |i: usize| format!("etcd{i}");
    let cluster: Vec<String> =
        (0..n).map(|i| format!("{}=http://127.0.0.1:{}", name(i), ports[2 * i])).collect();
    let cluster = cluster.join(",");
    let one = |i: usize| {
        let dir = std::env::temp_dir().join(format!("whimbrel-etcd-{}-{run}-{i}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (peer, client) = (ports[2 * i], ports[2 * i + 1]);
        let mut etcd = Etcd { name: name(i), dir, client, peer, cluster: cluster.clone(), process: None };
        etcd.start();
        etcd
    };
    Some((0..n).map(one).collect())
}

fn endpoints(etcds: &[Etcd]) -> Vec<String> {
    etcds.iter().map(|e| format!("http://127.0.0.1:{}", e.client)).collect()
}

#[derive(Default)]
struct Heard {
    events: Vec<Event>,
    view: View,
    incarnation: Option<Incarnation>,
}

/// A process of the cluster.
struct Node {
    agent: Agent,
    heard: Arc<(Mutex<Heard>, Condvar)>,
}

impl Node {
    fn start(me: MemberId, endpoints: &[String]) -> Self {
        let heard = Arc::new((Mutex::new(Heard::default()), Condvar::new()));
        let told = heard.clone();
        let member = Member {
            region: "1220".into(),
            address: "192.0.2.1:7000".parse().unwrap(),
            draining: false,
            code_version: 1,
        };
        let settings = Settings { cluster: "test".into(), me, member, lease: LEASE };
        let agent = Agent::start(settings, endpoints, move |what| {
            let mut heard = told.0.lock().unwrap();
            (heard.view, heard.incarnation) = (what.view.clone(), what.incarnation);
            heard.events.push(what.event);
            told.1.notify_all();
        });
        Self { agent: agent.unwrap(), heard }
    }

    /// Waits until what was heard is so; what happened until then is forgotten.
    fn until(&self, what: &str, so: impl Fn(&Heard) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut heard = self.heard.0.lock().unwrap();
        while !so(&heard) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not {what}: {:?}, {:?}", heard.events, heard.view);
            heard = self.heard.1.wait_timeout(heard, left).unwrap().0;
        }
        heard.events.clear();
    }

    fn until_event(&self, event: Event) {
        self.until(&format!("{event:?}"), |heard| heard.events.contains(&event));
    }

    fn until_home(&self, home: Home) {
        self.until(&format!("{home:?}"), |heard| heard.view.home(HOME) == Some(&home));
    }

    fn claim(&self, claim: Claim) {
        assert!(self.agent.command(Command::Claim(HOME, claim)));
    }

    fn events(&self) -> Vec<Event> {
        self.heard.0.lock().unwrap().events.clone()
    }

    fn view(&self) -> View {
        self.heard.0.lock().unwrap().view.clone()
    }

    fn place(&self, cta: u16) -> Place {
        Place { cta, incarnation: self.heard.0.lock().unwrap().incarnation.unwrap() }
    }
}

/// Two aggregators and a control function, all listed; the first serves a home that the second mirrors.
fn pair(endpoints: &[String]) -> (Node, Node, Node, Home) {
    let [a, b, cpf] = [A, B, CPF].map(|id| Node::start(id, endpoints));
    for node in [&a, &b, &cpf] {
        node.until("three members", |heard| heard.view.members().count() == 3 && heard.incarnation.is_some());
    }
    a.claim(Claim::Found);
    a.until_event(Event::Claimed(HOME, Home { term: 1, active: a.place(1), mirror: None }));
    a.claim(Claim::Pair(b.place(2)));
    let home = Home { term: 2, active: a.place(1), mirror: Some(b.place(2)) };
    for node in [&a, &b, &cpf] {
        node.until_home(home);
    }
    (a, b, cpf, home)
}

#[test]
fn processes_come_drain_leave_and_die() {
    let Some(etcds) = etcds(1) else { return };
    let endpoints = endpoints(&etcds);
    let (a, b, cpf, _) = pair(&endpoints);
    assert!(cpf.agent.command(Command::Drain(true)));
    a.until("draining", |heard| heard.view.member(CPF).is_some_and(|l| l.member.draining));
    let life = cpf.heard.0.lock().unwrap().incarnation.unwrap();
    assert!(cpf.agent.command(Command::Leave));
    cpf.until_event(Event::Left);
    a.until_event(Event::Changed(Change::Gone(CPF, life)));

    let second = Node::start(B, &endpoints);
    let first = b.place(2);
    second.until_event(Event::Occupied(first.incarnation));
    drop(b); // killed: its lease ends, and the other of its name is listed, in a later life
    a.until_event(Event::Changed(Change::Gone(B, first.incarnation)));
    second.until("listed", |heard| heard.incarnation > Some(first.incarnation));

    // What was the mirror is a life that has not the log.
    second.claim(Claim::Promote);
    second.until_event(Event::Refused(HOME, ClaimError::NotYours));
    a.claim(Claim::Alone);
    second.until_home(Home { term: 3, active: a.place(1), mirror: None });
}

#[test] // the smallest cluster: two nodes, and an etcd on a third as witness
fn a_witness_is_needed_to_change_hands_and_for_nothing_else() {
    let Some(mut etcds) = etcds(1) else { return };
    let (a, b, cpf, home) = pair(&endpoints(&etcds));
    let before = b.view();
    etcds[0].kill();
    b.claim(Claim::Promote);
    b.until_event(Event::Refused(HOME, ClaimError::NoAnswer));
    for node in [&a, &b, &cpf] {
        assert_eq!(node.view(), before, "without the witness nothing changes, and nobody is promoted");
    }
    etcds[0].start();
    for node in [&a, &b, &cpf] {
        node.until("reached", |heard| heard.events.contains(&Event::Reached));
        assert_eq!(node.view().home(HOME), Some(&home));
    }
    // Both want to go on, as after a cut between them: one of them does.
    a.claim(Claim::Alone);
    b.claim(Claim::Promote);
    cpf.until("decided", |heard| heard.view.home(HOME).is_some_and(|h| h.term == 3 && h.mirror.is_none()));
    let decided = *cpf.view().home(HOME).unwrap();
    let (winner, loser) = if decided.active == a.place(1) { (&a, &b) } else { (&b, &a) };
    winner.until_event(Event::Claimed(HOME, decided));
    loser.until("refused", |h| {
        let refused = |why| h.events.contains(&Event::Refused(HOME, why));
        refused(ClaimError::Outrun) || refused(ClaimError::NotYours)
    });
}

#[test]
fn a_witness_that_has_forgotten_is_not_believed() {
    let Some(mut etcds) = etcds(1) else { return };
    let (a, _b, _cpf, home) = pair(&endpoints(&etcds));
    etcds[0].kill();
    etcds[0].forget();
    etcds[0].start();
    a.until_event(Event::Replaced);
    a.claim(Claim::Alone);
    a.until_event(Event::Refused(HOME, ClaimError::NoAnswer));
    assert_eq!(a.view().home(HOME), Some(&home));
}

#[test]
fn of_three_one_may_stop_or_die_and_without_two_nothing_changes_for_a_minute() {
    let Some(mut etcds) = etcds(3) else { return };
    let (a, b, cpf, home) = pair(&endpoints(&etcds));

    // The one that all ask does not answer: the next one is asked.
    etcds[0].signal(Signal::STOP);
    a.claim(Claim::Alone);
    let alone = Home { term: 3, mirror: None, ..home };
    for node in [&a, &b, &cpf] {
        node.until_home(alone);
    }
    etcds[0].signal(Signal::CONT);
    etcds[0].kill();
    a.claim(Claim::Pair(b.place(2)));
    let paired = Home { term: 4, mirror: home.mirror, ..home };
    for node in [&a, &b, &cpf] {
        node.until_home(paired);
    }

    let before = b.view();
    etcds[1].kill();
    b.claim(Claim::Promote);
    b.until_event(Event::Refused(HOME, ClaimError::NoAnswer));
    std::thread::sleep(Duration::from_secs(60));
    for node in [&a, &b, &cpf] {
        assert_eq!(node.view(), before);
        assert!(
            !node
                .events()
                .iter()
                .any(|e| matches!(e, Event::Changed(_) | Event::Expelled(_) | Event::Joined(_)))
        );
    }

    etcds[1].start();
    for node in [&a, &b, &cpf] {
        node.until("reached and renewed", |heard| {
            heard.events.contains(&Event::Reached)
                && heard.events.iter().any(|e| matches!(e, Event::Renewed(_)))
        });
        assert_eq!(node.view(), before, "an election lets leases begin anew");
    }
    b.claim(Claim::Promote);
    a.until_home(Home { term: 5, active: b.place(2), mirror: None });
}
