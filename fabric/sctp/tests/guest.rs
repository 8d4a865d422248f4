//! Against Linux kernel SCTP in a guest, both ways: what `guest/peer.py` checks from its side, and what we saw.

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use whimbrel_ids::Instant;
use whimbrel_sctp_io::{AssociationId, Config, Event, Events, Mode, Transport, TransportSettings};

/// Exit status of `run.sh` where user-mode-linux is not installed, or namespaces are not permitted; it prints which.
const NO_GUEST: i32 = 77;
/// Exit status of `run.sh` where the guest did not come up: nothing was tested, and it is booted once more.
const NOT_BOOTED: i32 = 75;
/// Boot, all checks, and a busy machine.
const GUEST_SECONDS: &str = "240";

#[test]
fn kernel_sctp_in_a_guest() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folder = tempfile::Builder::new().prefix("whimbrel-sctp-guest-").tempdir().unwrap();
    folder.disable_cleanup(true); // unless all is well: what is in it says why
    let out = folder.path().to_owned();
    let me = std::env::current_exe().unwrap();
    let job = out.join("job.sh");
    let peer = here.join("tests/guest/peer.py");
    // CHECKS="reboot garbage" runs only those; what the host must have seen is then not judged.
    let checks = std::env::var("CHECKS").unwrap_or_default();
    let script = format!("export TEST_BINARY={}\nexec python3 {} {checks}\n", me.display(), peer.display());
    std::fs::write(&job, script).unwrap();
    let run = || {
        Command::new(here.join("../../tests/guest/run.sh"))
            .args([&out, &job])
            .arg(GUEST_SECONDS)
            .arg(&me)
            .args(["--exact", "guest::role", "--nocapture"])
            .env("GUEST_ROLE", "host")
            .env("G_OUT", &out)
            .status()
            .unwrap()
    };
    let mut status = run();
    if status.code() == Some(NOT_BOOTED) {
        status = run();
    }
    if status.code() == Some(NO_GUEST) {
        eprintln!("skipped: no guest here, for the reason above");
        folder.disable_cleanup(false);
        return;
    }
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_default();
    let (job, host, kernel) = (read("job.log"), read("host.log"), read("kernel.log"));
    eprintln!("--- the guest\n{job}--- the host\n{host}--- kernel mode\n{kernel}");
    assert!(status.success(), "the guest ended with {status}; see {}", out.display());
    if !checks.is_empty() {
        return;
    }
    for line in [
        "raw down graceful shutdown",
        "raw down aborted by the peer",
        "raw down aborted by us",
        "raw restarted",
        "raw up 10.77.0.2 10.78.0.2",
        "raw path down 10.77.0.2",
        "udp up 10.77.0.2",
        "client echoed 4",
        "client again echoed 4",
        "client again down graceful shutdown",
        "to kernel mode echoed 4",
        "to kernel mode again echoed 4",
        "to kernel mode again down graceful shutdown",
        "adapted adaptation 7",
        "adapted echoed 4",
        "adapted again down aborted by the peer",
    ] {
        assert!(host.contains(line), "the host never printed {line:?}");
    }
    assert!(!host.contains("down the peer"), "no association was lost");
    for line in [
        "chose kernel",
        "kernel up 127.0.0.1",
        "kernel down graceful",
        "kernel down aborted by the peer",
        "kernel restarted",
        "kernel adaptation 7",
        "kernel probed and answered",
        "kernel probed without an answer",
    ] {
        assert!(kernel.contains(line), "kernel mode never printed {line:?}");
    }
    // Probes of a peer that does not answer leave its association to the timers: gNBs come back from short outages.
    let (before, _) = kernel.split_once("kernel probed without an answer").unwrap();
    assert!(!before.contains("path down 10.99.0.1"), "the probes have cost the association its path");
    // One whose peer restarted with an adaptation, and one that was stopped with DATA unacknowledged.
    assert_eq!(kernel.matches("kernel down aborted by us").count(), 2);
    folder.disable_cleanup(false);
}

/// What the test's own binary does beside the guest, and in it; nothing when the test suite runs.
#[test]
fn role() {
    let Ok(role) = std::env::var("GUEST_ROLE") else { return };
    let out = PathBuf::from(std::env::var("G_OUT").unwrap());
    if role == "kernel" {
        let mut config = Config::new(38414);
        // Longer than a peer is probed: what comes in that time answers probes.
        config.heartbeat_interval = Duration::from_secs(20);
        (config.path_max_retrans, config.association_max_retrans) = (4, 4); // as on N2
        config.adaptation = Some(7);
        let mut server = Server::open("kernel", Mode::Auto, config);
        println!("chose {}", server.transport.report().chosen);
        let fell_silent = out.join("fell-silent");
        loop {
            server.step();
            if fell_silent.exists() {
                server.probe();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    host(&out);
}

/// Two servers and, when the guest asks, clients.
fn host(out: &Path) {
    let config = |port, addresses: &[&str]| {
        let mut config = Config::new(port);
        config.local_addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        config.heartbeat_interval = Duration::from_secs(1);
        config.rto_initial = Duration::from_millis(500);
        config.path_max_retrans = 2;
        config
    };
    let adapted = || Config { adaptation: Some(7), ..config(5002, &["10.77.0.1"]) };
    let mut raw = Server::open("raw", Mode::Raw, config(38412, &["10.77.0.1", "10.78.0.1", "fd00:77::1"]));
    let mut udp = Server::open("udp", Mode::Udp, config(38413, &["10.77.0.1"]));
    let mut client: Option<Client> = None;
    let mut runs = 0;
    // The guest's files stay where they are: one that is removed while the guest still makes it fails the guest.
    let mut heeded: Vec<&str> = Vec::new();
    loop {
        raw.step();
        udp.step();
        let mut asked = |name: &'static str| {
            let first = out.join(name).exists() && !heeded.contains(&name);
            if first {
                heeded.push(name);
            }
            first
        };
        if client.is_none() && asked("connect") {
            client = Some(Client::open("client", config(5000, &["10.77.0.1"]), 7000));
        }
        if client.is_none() && asked("connect-kernel") {
            client = Some(Client::open("to kernel mode", config(5001, &["10.77.0.1"]), 38414));
        }
        if let Some(c) = &mut client
            && c.step()
        {
            let name = c.name;
            client = None;
            runs += 1;
            match name {
                // Dropped without a word, as a process that is killed; the next has the same port.
                "client" => client = Some(Client::open("client again", config(5000, &["10.77.0.1"]), 7000)),
                "to kernel mode" => {
                    client = Some(Client::open("to kernel mode again", config(5001, &["10.77.0.1"]), 38414));
                }
                "to kernel mode again" => client = Some(Client::open("adapted", adapted(), 38414)),
                // The kernel does not report the parameters of a restart: the association is made to come as a new one.
                "adapted" => client = Some(Client::open("adapted again", adapted(), 38414)),
                "adapted again" => drop(File::create(out.join("connect-kernel-done")).unwrap()),
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_micros(if runs == 0 { 200 } else { 500 }));
    }
}

fn now() -> Instant {
    Instant(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64)
}

/// Prints each event on a line.
fn tell(name: &str, e: &Event<'_>) {
    match e {
        Event::Up { peer, adaptation, .. } => {
            let peer: Vec<_> = peer.iter().map(IpAddr::to_string).collect();
            println!("{name} up {}", peer.join(" "));
            if let Some(code_point) = adaptation {
                println!("{name} adaptation {code_point}");
            }
        }
        Event::Data { .. } => {}
        Event::Down { reason, .. } => println!("{name} down {reason}"),
        Event::Restarted { .. } => println!("{name} restarted"),
        Event::PathDown { remote, .. } => println!("{name} path down {remote}"),
        Event::PathUp { remote, .. } => println!("{name} path up {remote}"),
        other => println!("{name} {other:?}"),
    }
}

/// How often and for how long a holder of a gNB's identity is probed.
const PROBED: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(3));

/// A peer that is probed as a holder of a gNB's identity is.
struct Probed {
    association: AssociationId,
    /// Since when it is probed: the guest's file says when the other peer has lost its address.
    from: Option<Instant>,
    next: Instant,
    heard_before: Option<u64>,
}

/// Echoes, and closes when asked to.
struct Server {
    name: &'static str,
    transport: Transport,
    events: Events,
    probed: Vec<Probed>,
}

impl Server {
    fn open(name: &'static str, mode: Mode, config: Config) -> Self {
        let settings = TransportSettings { mode, ..TransportSettings::new(config) };
        // A peer takes no new association from an endpoint that draws the same tags as the one before it.
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&now().0.to_be_bytes());
        let transport = Transport::open(&settings, secret, now()).unwrap_or_else(|e| panic!("{name}: {e}"));
        Self { name, transport, events: Events::default(), probed: Vec::new() }
    }

    fn step(&mut self) {
        let Self { name, transport, events, probed } = self;
        transport.drain(now(), events);
        for e in events.iter() {
            tell(name, &e);
            let Event::Data { association, stream, ppid, octets } = e else { continue };
            match octets {
                b"please shut down" => transport.shutdown(now(), association),
                b"please abort" => transport.abort(now(), association),
                b"please stop" => transport.stop(now(), now() + Duration::from_millis(300)),
                b"please probe" => {
                    probed.push(Probed { association, from: None, next: now(), heard_before: None });
                }
                _ => {
                    if let Err(e) = transport.send(association, stream, ppid, octets) {
                        println!("{name} refused: {e}");
                    }
                }
            }
        }
        transport.flush(now());
    }

    /// Probes peers that asked for it, and prints what each has answered in the end.
    fn probe(&mut self) {
        let Self { name, transport, probed, .. } = self;
        probed.retain_mut(|p| {
            let now = now();
            let from = *p.from.get_or_insert(now);
            if now < p.next {
                return true;
            }
            let Some(heard) = transport.heard(p.association) else {
                println!("{name} probed and lost");
                return false;
            };
            let before = *p.heard_before.get_or_insert(heard);
            if now < from + PROBED.1 {
                p.next = now + PROBED.0;
                transport.probe(now, p.association);
                return true;
            }
            println!("{name} probed {}", if heard > before { "and answered" } else { "without an answer" });
            false
        });
    }
}

/// Sends four messages, waits for their echo, and is then gone without a word; the run "again" shuts down.
struct Client {
    name: &'static str,
    server: Server,
    association: AssociationId,
    echoed: usize,
}

impl Client {
    fn open(name: &'static str, config: Config, port: u16) -> Self {
        let mut server = Server::open(name, Mode::Raw, config);
        let to = ["10.77.0.2".parse().unwrap()];
        let association = server.transport.connect(now(), &to, port, 0).unwrap();
        Self { name, server, association, echoed: 0 }
    }

    /// True once it is done.
    fn step(&mut self) -> bool {
        let Server { transport, events, .. } = &mut self.server;
        transport.drain(now(), events);
        let mut done = false;
        // The end arrives together with the beginning: no association is left to send on.
        let ended = events.iter().any(|e| matches!(e, Event::Down { .. }));
        for e in events.iter() {
            tell(self.name, &e);
            match e {
                Event::Up { .. } if !ended => {
                    for (stream, size) in [(0, 1), (1, 1452), (2, 30_000), (3, 90_000)] {
                        transport.send(self.association, stream, 60, &vec![stream as u8; size]).unwrap();
                    }
                }
                Event::Data { .. } => self.echoed += 1,
                Event::Down { .. } => done = true,
                _ => {}
            }
        }
        if self.echoed == 4 {
            println!("{} echoed 4", self.name);
            self.echoed = 0;
            done |= !self.name.ends_with("again");
            if !done {
                transport.shutdown(now(), self.association);
            }
        }
        transport.flush(now());
        done
    }
}
