//! A process that serves an association is killed while messages flow, or frozen, and the next one goes on with it: the peer keeps its
//! association and gets each answer once.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_sctp_io::{
    Config, DownReason, Event, Events, Inheritance, Mode, Sockets, Successor, Transport, TransportSettings,
    create_store,
};

const STREAMS: u16 = 4;

fn now() -> Instant {
    Instant(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as u64)
}

fn settings(mode: Mode, port: u16) -> TransportSettings {
    let mut config = Config::new(port);
    config.local_addresses = vec![IpAddr::from([127, 0, 0, 1])];
    config.associations_max = 8;
    config.hold_acknowledgements = true;
    TransportSettings { mode, udp_port: port, ..TransportSettings::new(config) }
}

/// What the parent keeps, as a manager does.
struct Kept {
    sockets: Sockets,
    store: OwnedFd,
    settings: TransportSettings,
}

impl Kept {
    /// `None`, with a message, where the host does not permit raw sockets.
    fn open(mode: Mode, port: u16) -> Option<Self> {
        let settings = settings(mode, port);
        let sockets = match Sockets::open(&settings) {
            Ok(sockets) => sockets,
            Err(e) if mode == Mode::Raw && e.obstacles.iter().all(|o| o.errno == Some(1)) => {
                eprintln!("skipped: {e}");
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        Some(Self { sockets, store: create_store(&settings.endpoint, [9; 32]).unwrap(), settings })
    }

    /// Starts a process that serves the sockets.
    fn serve(&self) -> Child {
        let (_, socket) = self.sockets.fds().next().unwrap();
        let store = format!("/proc/{}/fd/{}", std::process::id(), self.store.as_raw_fd());
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "successor::role", "--nocapture"])
            .env("SERVES", self.settings.endpoint.port.to_string())
            .env("SERVES_MODE", self.sockets.report().chosen.to_string())
            .env("SERVES_STORE", store)
            .stdin(Stdio::from(socket.try_clone_to_owned().unwrap()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn inherit(&self) -> Successor {
        let fds = self.sockets.fds();
        let sockets = fds.map(|(local, fd)| (local, fd.try_clone_to_owned().unwrap())).collect();
        let store = self.store.try_clone().unwrap();
        let mode = self.sockets.report().chosen;
        Transport::inherit(&self.settings, Inheritance { mode, sockets, store }, now()).unwrap()
    }
}

/// The process that serves: it answers each message. What it has handled and what it has answered is one number, which is kept with the
/// association: a successor knows as much as a replica would.
#[test]
fn role() {
    let Ok(port) = std::env::var("SERVES") else { return };
    let mode = std::env::var("SERVES_MODE").unwrap().parse().unwrap();
    let store = std::fs::File::options().read(true).write(true).open(std::env::var("SERVES_STORE").unwrap());
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let sockets = vec![(IpAddr::from([127, 0, 0, 1]), socket)];
    let from = Inheritance { mode, sockets, store: store.unwrap().into() };
    let settings = settings(mode, port.parse().unwrap());
    let Successor { mut transport, refused } = Transport::inherit(&settings, from, now()).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    for a in transport.take_adopted().unwrap() {
        transport.resume(now(), a.association, a.notes.mark);
    }
    transport.settle();
    let mut events = Events::default();
    let mut pause = true;
    while !transport.is_fenced() {
        transport.drain(now(), &mut events);
        for e in events.iter() {
            if let Event::Data { association, stream, ppid, octets } = e {
                let handled = transport.notes(association).unwrap().mark + 1;
                transport.send(association, stream, ppid, octets).unwrap();
                transport.set_mark(association, handled);
                transport.release(association, handled);
            }
        }
        transport.flush(now());
        pause = !pause;
        if pause {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// A client that sends numbered messages and checks that each comes back once and in order.
struct Client {
    transport: Transport,
    association: whimbrel_sctp_io::AssociationId,
    sent: [u32; STREAMS as usize],
    back: [u32; STREAMS as usize],
    up: bool,
    down: Option<DownReason>,
    events: Events,
}

impl Client {
    fn connect(mode: Mode, port: u16) -> Self {
        let mut s = settings(mode, port + 1);
        s.endpoint.hold_acknowledgements = false;
        let mut transport = Transport::open(&s, [3; 32], now()).unwrap();
        let association = transport.connect(now(), &[IpAddr::from([127, 0, 0, 1])], port, port).unwrap();
        let (sent, back) = ([0; STREAMS as usize], [0; STREAMS as usize]);
        Self { transport, association, sent, back, up: false, down: None, events: Events::default() }
    }

    fn send(&mut self) {
        let total: u32 = self.sent.iter().sum();
        let stream = (total % u32::from(STREAMS)) as u16;
        let number = &mut self.sent[usize::from(stream)];
        let mut octets = vec![stream as u8; if total.is_multiple_of(9) { 5_000 } else { 80 }];
        octets[..4].copy_from_slice(&number.to_be_bytes());
        self.transport.send(self.association, stream, 60, &octets).unwrap();
        *number += 1;
    }

    fn turn(&mut self) {
        self.transport.drain(now(), &mut self.events);
        for e in self.events.iter() {
            match e {
                Event::Up { .. } => self.up = true,
                Event::Data { stream, octets, .. } => {
                    let number = u32::from_be_bytes(*octets.first_chunk().unwrap());
                    let expected = &mut self.back[usize::from(stream)];
                    assert_eq!(number, *expected, "stream {stream}: each comes once and in order");
                    *expected += 1;
                }
                Event::Down { reason, .. } => self.down = Some(reason),
                _ => {}
            }
        }
        self.transport.flush(now());
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = std::time::Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {:?} of {:?}", self.back, self.sent);
            assert_eq!(self.down, None, "{what}");
            self.turn();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn total_back(&self) -> u32 {
        self.back.iter().sum()
    }
}

fn killed_while_messages_flow(mode: Mode, port: u16) {
    let Some(kept) = Kept::open(mode, port) else { return };
    let mut child = kept.serve();
    let mut client = Client::connect(mode, port);
    client.until("set-up", |c| c.up);
    for round in 1..=6 {
        client.until("messages flow", |c| {
            if c.sent.iter().sum::<u32>() < c.total_back() + 20 {
                c.send();
            }
            c.total_back() >= round * 60
        });
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        (0..10).for_each(|_| client.send());
        client.turn();
        child = kept.serve();
    }
    client.until("all come back", |c| c.back == c.sent);
    assert_eq!(client.transport.status(client.association).unwrap().queued_octets, 0);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_association_over_udp_goes_on_when_its_process_is_killed() {
    killed_while_messages_flow(Mode::Udp, 21_410);
}

#[test]
fn an_association_over_raw_ip_goes_on_when_its_process_is_killed() {
    killed_while_messages_flow(Mode::Raw, 21_420);
}

#[test]
fn a_process_that_was_frozen_is_fenced_when_it_goes_on() {
    let kept = Kept::open(Mode::Udp, 21_430).unwrap();
    let signal = |child: &Child, name: &str| {
        let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    let mut frozen = kept.serve();
    let mut client = Client::connect(Mode::Udp, 21_430);
    client.until("set-up", |c| c.up);
    (0..10).for_each(|_| client.send());
    client.until("the first come back", |c| c.total_back() >= 5);
    signal(&frozen, "-STOP");
    (0..10).for_each(|_| client.send());
    client.turn();
    let mut child = kept.serve();
    client.until("the next process answers", |c| c.back == c.sent);
    signal(&frozen, "-CONT");
    (0..200).for_each(|_| client.send());
    client.until("only one process answers", |c| c.back == c.sent);
    assert!(frozen.wait().unwrap().success(), "it has noticed that it is replaced");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_damaged_association_is_refused_and_its_peer_sets_up_another_one() {
    let kept = Kept::open(Mode::Udp, 21_440).unwrap();
    let mut first = kept.inherit().transport;
    first.settle();
    let mut client = Client::connect(Mode::Udp, 21_440);
    let mut events = Events::default();
    let mut both = |client: &mut Client, server: &mut Transport| {
        server.drain(now(), &mut events);
        server.flush(now());
        client.turn();
    };
    while !client.up {
        both(&mut client, &mut first);
    }
    // The slots begin at the second page; the word of a slot is followed by its two heads.
    let file = std::fs::File::from(kept.store.try_clone().unwrap());
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xab; 20_000], 4096 + 8).unwrap();
    let Successor { mut transport, refused } = kept.inherit();
    assert_eq!(transport.take_adopted(), Some(Vec::new()));
    transport.settle();
    assert_eq!(refused.len(), 1, "{refused:?}");
    client.send();
    while client.down.is_none() {
        both(&mut client, &mut transport);
    }
    assert_eq!(client.down, Some(DownReason::AbortedByPeer { cause: None }));
    let to = [IpAddr::from([127, 0, 0, 1])];
    (client.up, client.association) = (false, client.transport.connect(now(), &to, 21_440, 21_440).unwrap());
    while !client.up {
        both(&mut client, &mut transport);
    }
}

#[test]
fn the_kernels_sctp_has_no_successor() {
    let e = Sockets::open(&settings(Mode::Kernel, 21_450)).unwrap_err();
    assert!(e.to_string().contains("acknowledges messages before they are handled"), "{e}");
}
