//! Membership on real etcd processes on loopback: one, and three of which some are stopped and killed. Passes without etcd
//! where the program is not installed; `./x test` says so.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use whimbrel_etcd::{Agent, EtcdAccess};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::detector::Incarnation;
use whimbrel_resilience::membership::{
    ClaimError, CtaHome, CtaInstance, Event, HomeClaim, Member, MemberId, MembershipChange,
    MembershipCommand, MembershipSettings, MembershipView,
};
use whimbrel_resilience::replication::CpfId;

const A: MemberId = MemberId::Cta(1);
const B: MemberId = MemberId::Cta(2);
const CPF: MemberId = MemberId::Cpf(CpfId(7));
const HOME: u16 = 1;
/// The shortest lease of a cluster.
const LEASE: Duration = Duration::from_secs(5);
/// On a busy host, an election can take long.
const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd process of the test.
struct Etcd {
    name: String,
    dir: PathBuf,
    client: u16,
    peer: u16,
    cluster: String,
    scheme: &'static str,
    options: Vec<String>,
    process: Option<Child>,
}

impl Etcd {
    fn start(&mut self) {
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (self.endpoint(), url(self.peer));
        let process = Program::new("etcd")
            .args(["--name", &self.name, "--data-dir", self.dir.join("data").to_str().unwrap()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.cluster, "--logger", "zap"])
            // Else each check of a password takes so much of a processor that on a busy host no answer comes in time.
            .args(["--bcrypt-cost", "4"])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
    }

    fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.client)
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

/// This many etcds as one cluster; `None` where the program is not installed.
fn etcds(n: usize) -> Option<Vec<Etcd>> {
    etcds_with(n, "http", &[])
}

fn etcds_with(n: usize, scheme: &'static str, options: &[String]) -> Option<Vec<Etcd>> {
    if Program::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: etcd is not installed");
        return None;
    }
    static RUN: AtomicU32 = AtomicU32::new(0);
    let run = RUN.fetch_add(1, Ordering::Relaxed);
    let ports: Vec<u16> = (0..2 * n).map(|_| free_port()).collect();
    let name = |i: usize| format!("etcd{i}");
    let cluster: Vec<String> =
        (0..n).map(|i| format!("{}=http://127.0.0.1:{}", name(i), ports[2 * i])).collect();
    let cluster = cluster.join(",");
    let one = |i: usize| {
        let dir = std::env::temp_dir().join(format!("whimbrel-etcd-{}-{run}-{i}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (peer, client) = (ports[2 * i], ports[2 * i + 1]);
        let (cluster, options) = (cluster.clone(), options.to_vec());
        let mut etcd = Etcd { name: name(i), dir, client, peer, cluster, scheme, options, process: None };
        etcd.start();
        etcd
    };
    Some((0..n).map(one).collect())
}

fn endpoints(etcds: &[Etcd]) -> Vec<String> {
    etcds.iter().map(Etcd::endpoint).collect()
}

#[derive(Default)]
struct Heard {
    events: Vec<Event>,
    view: MembershipView,
    incarnation: Option<Incarnation>,
}

/// A process of the cluster.
struct Node {
    agent: Agent,
    heard: Arc<(Mutex<Heard>, Condvar)>,
}

impl Node {
    fn start(me: MemberId, endpoints: &[String]) -> Self {
        Self::start_at(me, &EtcdAccess { endpoints: endpoints.to_vec(), ..EtcdAccess::default() })
    }

    fn start_at(me: MemberId, access: &EtcdAccess) -> Self {
        let heard = Arc::new((Mutex::new(Heard::default()), Condvar::new()));
        let reported = heard.clone();
        let member = Member {
            region: "1220".into(),
            address: "192.0.2.1:7000".parse().unwrap(),
            draining: false,
            code_version: CodeVersion(1),
        };
        let settings = MembershipSettings { cluster: "test".into(), me, member, lease: LEASE };
        let agent = Agent::start(settings, access, move |what| {
            let mut heard = reported.0.lock().unwrap();
            (heard.view, heard.incarnation) = (what.view.clone(), what.incarnation);
            heard.events.push(what.event);
            reported.1.notify_all();
        });
        Self { agent: agent.unwrap(), heard }
    }

    /// Waits until a condition holds; events before that are dropped.
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

    fn until_home(&self, home: CtaHome) {
        self.until(&format!("{home:?}"), |heard| heard.view.home(HOME) == Some(&home));
    }

    fn claim(&self, claim: HomeClaim) {
        assert!(self.agent.command(MembershipCommand::Claim(HOME, claim)));
    }

    fn events(&self) -> Vec<Event> {
        self.heard.0.lock().unwrap().events.clone()
    }

    fn view(&self) -> MembershipView {
        self.heard.0.lock().unwrap().view.clone()
    }

    fn place(&self, cta: u16) -> CtaInstance {
        CtaInstance { cta, incarnation: self.heard.0.lock().unwrap().incarnation.unwrap() }
    }
}

/// Two CTAs and a CPF, all listed; the first CTA is the primary of a home, and the second its replica.
fn pair(endpoints: &[String]) -> (Node, Node, Node, CtaHome) {
    let [a, b, cpf] = [A, B, CPF].map(|id| Node::start(id, endpoints));
    for node in [&a, &b, &cpf] {
        node.until("three members", |heard| heard.view.members().count() == 3 && heard.incarnation.is_some());
    }
    a.claim(HomeClaim::Found);
    a.until_event(Event::Claimed(HOME, CtaHome { term: 1, primary: a.place(1), cta_replica: None }));
    a.claim(HomeClaim::Pair(b.place(2)));
    let home = CtaHome { term: 2, primary: a.place(1), cta_replica: Some(b.place(2)) };
    for node in [&a, &b, &cpf] {
        node.until_home(home);
    }
    (a, b, cpf, home)
}

#[test]
fn processes_join_drain_leave_and_die() {
    let Some(etcds) = etcds(1) else { return };
    let endpoints = endpoints(&etcds);
    let (a, b, cpf, _) = pair(&endpoints);
    assert!(cpf.agent.command(MembershipCommand::Drain(true)));
    a.until("draining", |heard| heard.view.member(CPF).is_some_and(|l| l.member.draining));
    let life = cpf.heard.0.lock().unwrap().incarnation.unwrap();
    assert!(cpf.agent.command(MembershipCommand::Leave));
    cpf.until_event(Event::Left);
    a.until_event(Event::Changed(MembershipChange::Gone(CPF, life)));

    let second = Node::start(B, &endpoints);
    let first = b.place(2);
    second.until_event(Event::Occupied(first.incarnation));
    drop(b); // killed: its lease expires, and the other process of its number is listed, in a later incarnation
    a.until_event(Event::Changed(MembershipChange::Gone(B, first.incarnation)));
    second.until("listed", |heard| heard.incarnation > Some(first.incarnation));

    // The record of the replica names an incarnation that does not have the log.
    second.claim(HomeClaim::Promote);
    second.until_event(Event::Refused(HOME, ClaimError::NotYours));
    a.claim(HomeClaim::Alone);
    second.until_home(CtaHome { term: 3, primary: a.place(1), cta_replica: None });
}

#[test] // the smallest cluster: two nodes, and an etcd on a third as witness
fn the_witness_is_needed_for_a_takeover_only() {
    let Some(mut etcds) = etcds(1) else { return };
    let (a, b, cpf, home) = pair(&endpoints(&etcds));
    let before = b.view();
    etcds[0].kill();
    b.claim(HomeClaim::Promote);
    b.until_event(Event::Refused(HOME, ClaimError::NoAnswer));
    for node in [&a, &b, &cpf] {
        assert_eq!(node.view(), before, "without the witness nothing changes, and no CTA is promoted");
    }
    etcds[0].start();
    for node in [&a, &b, &cpf] {
        node.until("reached", |heard| heard.events.contains(&Event::Reached));
        assert_eq!(node.view().home(HOME), Some(&home));
    }
    // Both claim the home, as after a cut between them: one of them gets it.
    a.claim(HomeClaim::Alone);
    b.claim(HomeClaim::Promote);
    cpf.until("decided", |heard| {
        heard.view.home(HOME).is_some_and(|h| h.term == 3 && h.cta_replica.is_none())
    });
    let decided = *cpf.view().home(HOME).unwrap();
    let (winner, loser) = if decided.primary == a.place(1) { (&a, &b) } else { (&b, &a) };
    winner.until_event(Event::Claimed(HOME, decided));
    loser.until("refused", |h| {
        let refused = |why| h.events.contains(&Event::Refused(HOME, why));
        refused(ClaimError::Outrun) || refused(ClaimError::NotYours)
    });
}

#[test]
fn a_witness_that_lost_its_data_is_not_trusted() {
    let Some(mut etcds) = etcds(1) else { return };
    let (a, _b, _cpf, home) = pair(&endpoints(&etcds));
    etcds[0].kill();
    etcds[0].forget();
    etcds[0].start();
    a.until_event(Event::Replaced);
    a.claim(HomeClaim::Alone);
    a.until_event(Event::Refused(HOME, ClaimError::NoAnswer));
    assert_eq!(a.view().home(HOME), Some(&home));
}

#[test]
fn of_three_one_may_stop_or_die_and_without_two_nothing_changes_for_a_minute() {
    let Some(mut etcds) = etcds(3) else { return };
    let (a, b, cpf, home) = pair(&endpoints(&etcds));

    // The endpoint in use does not answer: the next one is used.
    etcds[0].signal(Signal::STOP);
    a.claim(HomeClaim::Alone);
    let alone = CtaHome { term: 3, cta_replica: None, ..home };
    for node in [&a, &b, &cpf] {
        node.until_home(alone);
    }
    etcds[0].signal(Signal::CONT);
    etcds[0].kill();
    a.claim(HomeClaim::Pair(b.place(2)));
    let paired = CtaHome { term: 4, cta_replica: home.cta_replica, ..home };
    for node in [&a, &b, &cpf] {
        node.until_home(paired);
    }

    let before = b.view();
    etcds[1].kill();
    b.claim(HomeClaim::Promote);
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
        assert_eq!(node.view(), before, "an election restarts the leases");
    }
    b.claim(HomeClaim::Promote);
    a.until_home(CtaHome { term: 5, primary: b.place(2), cta_replica: None });
}

/// Certificates of a test, made by openssl, and removed with it.
struct Certificates(PathBuf);

impl Certificates {
    /// Two CAs; the first signs a certificate of etcd and one of a process, the second one of an unknown process. `None` without openssl.
    fn new() -> Option<Self> {
        if Program::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: openssl is not installed");
            return None;
        }
        let made = Self(std::env::temp_dir().join(format!("whimbrel-etcd-tls-{}", std::process::id())));
        std::fs::create_dir_all(&made.0).unwrap();
        // Etcd's gateway calls its own etcd as a client, with the certificate of the server.
        std::fs::write(
            made.file("ext"),
            "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n",
        )
        .unwrap();
        for ca in ["ca", "other-ca"] {
            made.openssl(&format!("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {ca}.key -out {ca}.pem -days 2 -subj /CN={ca}"));
        }
        for (name, ca) in [("etcd", "ca"), ("process", "ca"), ("unknown", "other-ca")] {
            made.openssl(&format!("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"));
            made.openssl(&format!("x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -out {name}.pem -days 2 -extfile ext"));
        }
        Some(made)
    }

    fn openssl(&self, arguments: &str) {
        let done = Program::new("openssl").args(arguments.split(' ')).current_dir(&self.0).output().unwrap();
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().into()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Etcd cannot be reached, and the reason contains this.
fn is_unreachable(node: &Node, why: &str) {
    node.until(why, |heard| {
        heard.events.iter().any(|e| matches!(e, Event::Unreachable(reported) if reported.contains(why)))
    });
}

#[test]
fn over_tls_both_ends_check_certificates() {
    let Some(made) = Certificates::new() else { return };
    let options = [
        ("--cert-file", "etcd.pem"),
        ("--key-file", "etcd.key"),
        ("--trusted-ca-file", "ca.pem"),
        ("--client-cert-auth", "true"),
    ];
    let options: Vec<String> = options
        .iter()
        .map(|(option, of)| match *of {
            "true" => (*option).into(),
            file => format!("{option}={}", made.text(file)),
        })
        .collect();
    let Some(etcds) = etcds_with(1, "https", &options) else { return };
    let access = EtcdAccess {
        local: None,
        endpoints: endpoints(&etcds),
        ca_file: Some(made.file("ca.pem")),
        certificate: Some((made.file("process.pem"), made.file("process.key"))),
        user: None,
    };
    let a = Node::start_at(A, &access);
    a.until("listed", |heard| heard.incarnation.is_some());
    let cpf = Node::start_at(CPF, &access);
    a.until("watched", |heard| heard.events.contains(&Event::Changed(MembershipChange::Member(CPF))));

    let none = EtcdAccess { certificate: None, ..access.clone() };
    is_unreachable(&Node::start_at(B, &none), "requires a certificate of this process");
    let not_taken = EtcdAccess {
        certificate: Some((made.file("unknown.pem"), made.file("unknown.key"))),
        ..access.clone()
    };
    is_unreachable(&Node::start_at(B, &not_taken), "unknown.pem: it has expired, or no CA");
    let other = EtcdAccess { ca_file: Some(made.file("other-ca.pem")), ..access.clone() };
    is_unreachable(&Node::start_at(B, &other), "not signed by a CA in");
    let plain =
        EtcdAccess { endpoints: vec![access.endpoints[0].replace("https", "http")], ..access.clone() };
    is_unreachable(&Node::start_at(B, &plain), "write https://");
    assert!(a.view().member(B).is_none());

    // A changed file is used: here, one with another CA.
    std::fs::copy(made.file("other-ca.pem"), made.file("ca.pem")).unwrap();
    is_unreachable(&cpf, "not signed by a CA in");

    let Some(unsealed) = etcds_with(1, "http", &[]) else { return };
    let there = Node::start(A, &endpoints(&unsealed));
    there.until("listed", |heard| heard.incarnation.is_some());
    let sealed = EtcdAccess { endpoints: vec![endpoints(&unsealed)[0].replace("http", "https")], ..access };
    is_unreachable(&Node::start_at(B, &sealed), "write http://");
}

/// What an operator does with etcdctl.
fn ask(etcd: &Etcd, path: &str, body: &str) {
    let end = Instant::now() + PATIENCE;
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", etcd.client)) {
            Ok(stream) => break stream,
            Err(e) => assert!(Instant::now() < end, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
}

#[test]
fn a_user_logs_in_by_password_again_after_its_token_is_lost() {
    let Some(mut etcds) = etcds(1) else { return };
    // `whimbrel/` and what follows, in base64.
    let of_ours = r#"{"permType":"READWRITE","key":"d2hpbWJyZWwv","range_end":"d2hpbWJyZWww"}"#;
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"a"}"#.to_owned()),
        ("role/add", r#"{"name":"root"}"#.into()),
        ("user/grant", r#"{"user":"root","role":"root"}"#.into()),
        ("user/add", r#"{"name":"whimbrel","password":"secret"}"#.into()),
        ("role/add", r#"{"name":"member"}"#.into()),
        ("role/grant", format!(r#"{{"name":"member","perm":{of_ours}}}"#)),
        ("user/grant", r#"{"user":"whimbrel","role":"member"}"#.into()),
        ("enable", "{}".into()),
    ] {
        ask(&etcds[0], &format!("/v3/auth/{path}"), &body);
    }
    let password = etcds[0].dir.join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let no_user = EtcdAccess { endpoints: endpoints(&etcds), ..EtcdAccess::default() };
    let user = EtcdAccess { user: Some(("whimbrel".into(), password)), ..no_user.clone() };
    let a = Node::start_at(A, &user);
    a.until("listed", |heard| heard.incarnation.is_some());
    let b = Node::start_at(B, &user);
    a.until("watched", |heard| heard.events.contains(&Event::Changed(MembershipChange::Member(B))));

    is_unreachable(&Node::start_at(CPF, &no_user), "user name is empty");
    let wrong = etcds[0].dir.join("wrong");
    std::fs::write(&wrong, "guess").unwrap();
    let wrong = EtcdAccess { user: Some(("whimbrel".into(), wrong)), ..no_user };
    is_unreachable(&Node::start_at(CPF, &wrong), "does not accept the user whimbrel");

    etcds[0].kill();
    is_unreachable(&a, "etcd");
    is_unreachable(&b, "etcd");
    etcds[0].start();
    for node in [&a, &b] {
        node.until("reached", |heard| heard.events.contains(&Event::Reached));
    }
    a.claim(HomeClaim::Found);
    b.until("reported", |heard| heard.view.home(HOME).is_some());
}
