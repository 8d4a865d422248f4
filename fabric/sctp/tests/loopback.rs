//! Two transports on one host, over raw sockets and over UDP.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use whimbrel_ids::Instant;
use whimbrel_sctp_io::{
    AssociationId, Config, DownReason, Event, Events, Mode, Transport, TransportSettings,
};

fn now() -> Instant {
    Instant(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64)
}

fn settings(mode: Mode, local: &str, port: u16, udp_port: u16) -> TransportSettings {
    let mut config = Config::new(port);
    config.local_addresses = vec![local.parse().unwrap()];
    TransportSettings { mode, udp_port, ..TransportSettings::new(config) }
}

/// `None`, with a message, where the host does not permit raw sockets.
fn open(s: &TransportSettings) -> Option<Transport> {
    match Transport::open(s, [port_octet(s); 32], now()) {
        Ok(t) => Some(t),
        Err(e) if s.mode == Mode::Raw && e.obstacles.iter().all(|o| o.errno == Some(1)) => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn port_octet(s: &TransportSettings) -> u8 {
    s.endpoint.port as u8
}

/// Runs both until the predicate holds of what happened.
fn until(
    ts: &mut [&mut Transport; 2],
    seen: &mut Vec<String>,
    echo: bool,
    mut done: impl FnMut(&[String]) -> bool,
) {
    let start = std::time::Instant::now();
    let mut events = Events::default();
    while !done(seen) {
        assert!(start.elapsed() < Duration::from_secs(60), "too slow; seen {seen:?}");
        for (i, t) in ts.iter_mut().enumerate() {
            t.drain(now(), &mut events);
            for e in events.iter() {
                if let (Event::Data { association, stream, ppid, octets }, true) = (&e, echo && i == 1) {
                    t.send(*association, *stream, *ppid, octets).unwrap();
                }
                seen.push(match e {
                    Event::Up { .. } => format!("{i} up"),
                    Event::Data { stream, ppid, octets, .. } => {
                        format!("{i} data {stream} {ppid} {}", octets.len())
                    }
                    Event::Down { reason, .. } => format!("{i} down {reason:?}"),
                    other => format!("{i} {other:?}"),
                });
            }
            t.flush(now());
        }
    }
}

fn exercise(mode: Mode, server_at: &str, client_at: &str, port: u16) {
    let Some(mut server) = open(&settings(mode, server_at, port, port)) else { return };
    let Some(mut client) = open(&settings(mode, client_at, port + 1, port + 1)) else { return };
    assert_eq!(server.report().chosen, mode);
    let to: IpAddr = server_at.parse().unwrap();
    let id: AssociationId = client.connect(now(), &[to], port, port).unwrap();
    let mut seen = Vec::new();
    let mut both = [&mut client, &mut server];
    until(&mut both, &mut seen, true, |s| s.iter().filter(|s| s.ends_with("up")).count() == 2);
    for (stream, size) in [(0, 1), (1, 1400), (2, 60_000), (3, 200_000)] {
        both[0].send(id, stream, 60, &vec![7; size]).unwrap();
    }
    both[0].flush(now());
    until(&mut both, &mut seen, true, |s| s.iter().filter(|s| s.starts_with("0 data")).count() == 4);
    for expected in ["0 data 0 60 1", "0 data 1 60 1400", "0 data 2 60 60000", "0 data 3 60 200000"] {
        assert!(seen.iter().any(|s| s == expected), "{expected} in {seen:?}");
    }
    both[0].shutdown(now(), id);
    until(&mut both, &mut seen, true, |s| s.iter().filter(|s| s.contains("down")).count() == 2);
    let shut = format!("down {:?}", DownReason::Shutdown);
    assert!(seen.iter().filter(|s| s.contains("down")).all(|s| s.ends_with(&shut)), "{seen:?}");
    let (counters, io) = both[0].counters();
    assert_eq!((counters.bad_checksum, counters.malformed, io.send_errors), (0, 0, 0));
    assert_eq!(counters.foreign, 0, "the filter keeps the other side's packets away");
}

#[test]
fn raw_ipv4() {
    exercise(Mode::Raw, "127.0.0.1", "127.0.0.1", 20100);
}

#[test]
fn raw_ipv6() {
    exercise(Mode::Raw, "::1", "::1", 20110);
}

#[test]
fn raw_bound_to_all_addresses() {
    let mut s = settings(Mode::Raw, "127.0.0.1", 20120, 0);
    s.endpoint.local_addresses.clear();
    let Some(mut server) = open(&s) else { return };
    let Some(mut client) = open(&settings(Mode::Raw, "127.0.0.9", 20121, 0)) else { return };
    client.connect(now(), &["127.0.0.77".parse().unwrap()], 20120, 0).unwrap();
    let mut seen = Vec::new();
    until(&mut [&mut client, &mut server], &mut seen, false, |s| s.len() >= 2);
}

#[test]
fn a_transport_may_move_to_the_thread_that_serves_it() {
    fn moves<T: Send>() {}
    moves::<Transport>();
}

#[test]
fn clients_without_a_port_get_different_ones() {
    for (mode, port) in [(Mode::Raw, 20180), (Mode::Udp, 20190)] {
        let Some(mut server) = open(&settings(mode, "127.0.0.1", port, port)) else { continue };
        let clients = [0, 0].map(|_| {
            let mut t = open(&settings(mode, "127.0.0.1", 0, 0)).unwrap();
            t.connect(now(), &["127.0.0.1".parse().unwrap()], port, port).unwrap();
            t
        });
        for mut client in clients {
            let mut seen = Vec::new();
            until(&mut [&mut client, &mut server], &mut seen, false, |s| s.contains(&"0 up".into()));
            assert_eq!(client.associations().len(), 1);
        }
        assert_eq!(server.associations().len(), 2);
    }
}

#[test] // RFC 6951
fn udp_ipv4() {
    exercise(Mode::Udp, "127.0.0.1", "127.0.0.1", 20130);
}

#[test]
fn udp_ipv6() {
    exercise(Mode::Udp, "::1", "::1", 20140);
}

#[test]
fn a_port_that_is_taken_is_one_sentence() {
    for mode in [Mode::Raw, Mode::Udp] {
        let s = settings(mode, "127.0.0.1", 20150, 20150);
        let Some(_first) = open(&s) else { continue };
        let e = Transport::open(&s, [0; 32], now()).err().expect("the port is taken").to_string();
        assert!(e.contains("20150") && e.contains("choose another port"), "{e}");
    }
}

#[test]
fn an_address_that_the_host_lacks_is_one_sentence() {
    let e = Transport::open(&settings(Mode::Udp, "192.0.2.1", 20160, 20160), [0; 32], now());
    let e = e.err().expect("not our address").to_string();
    assert!(e.contains("192.0.2.1") && e.contains("configure an address"), "{e}");
}

#[test]
fn auto_says_why_it_took_another_way() {
    let mut s = settings(Mode::Auto, "127.0.0.1", 20170, 20170);
    s.endpoint.local_addresses.clear();
    let t = Transport::open(&s, [0; 32], now()).unwrap();
    let tried = t.report().obstacles.len();
    match t.report().chosen {
        Mode::Kernel => assert_eq!(tried, 0),
        Mode::Raw => assert_eq!(tried, 1),
        _ => assert_eq!(tried, 2),
    }
    for o in &t.report().obstacles {
        assert!(!o.cause.is_empty() && !o.fix.is_empty());
        eprintln!("{o}");
    }
    assert!(!t.fds().is_empty());
}

/// A server and a client that is connected to it, and what both saw until then.
fn connected(mode: Mode, port: u16) -> Option<(Transport, Transport, AssociationId)> {
    let mut server = open(&settings(mode, "127.0.0.1", port, port))?;
    let mut client = open(&settings(mode, "127.0.0.1", port + 1, port + 1))?;
    let id = client.connect(now(), &["127.0.0.1".parse().unwrap()], port, port).unwrap();
    let mut seen = Vec::new();
    let both_up = |s: &[String]| s.iter().filter(|s| s.ends_with("up")).count() == 2;
    until(&mut [&mut client, &mut server], &mut seen, false, both_up);
    Some((server, client, id))
}

/// Runs one side alone until it has no association left.
fn until_alone(t: &mut Transport) {
    let (start, mut events) = (std::time::Instant::now(), Events::default());
    while !t.associations().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "too slow");
        t.drain(now(), &mut events);
        t.flush(now());
    }
}

#[test] // RFC 9260 §9.1: an endpoint that stops first waits for the peer's acknowledgements
fn a_stop_reaches_a_peer_that_left_data_unacknowledged() {
    for (mode, port) in [(Mode::Raw, 20200), (Mode::Udp, 20210)] {
        let Some((mut server, mut client, _)) = connected(mode, port) else { continue };
        let association = server.associations()[0];
        server.send(association, 0, 60, b"AMF STATUS INDICATION").unwrap();
        server.flush(now());
        server.stop(now(), now() + Duration::from_millis(50));
        until_alone(&mut server); // the client has not even received it
        drop(server);
        let mut events = Events::default();
        let mut seen = Vec::new();
        while !seen.iter().any(|s: &String| s.contains("down")) {
            client.drain(now(), &mut events);
            seen.extend(events.iter().map(|e| match e {
                Event::Down { reason, .. } => format!("down {reason:?}"),
                other => format!("{other:?}"),
            }));
        }
        let aborted = DownReason::AbortedByPeer { cause: Some(12) };
        assert_eq!(seen.last(), Some(&format!("down {aborted:?}")), "{mode}");
    }
}

#[test] // RFC 9260 §8.3: a HEARTBEAT upon request is answered by a peer that is there, and by none that is gone
fn a_probe_shows_whether_the_peer_is_there() {
    for (mode, port) in [(Mode::Raw, 20240), (Mode::Udp, 20250)] {
        let Some((mut server, client, _)) = connected(mode, port) else { continue };
        let association = server.associations()[0];
        let mut client = Some(client);
        let mut events = Events::default();
        let mut turns = |server: &mut Transport, client: &mut Option<Transport>, patience: Duration| {
            let start = std::time::Instant::now();
            let before = server.heard(association).expect("it is up");
            server.probe(now(), association);
            while start.elapsed() < patience && server.heard(association) == Some(before) {
                for transport in client.iter_mut().chain([&mut *server]) {
                    transport.drain(now(), &mut events);
                    transport.flush(now());
                }
            }
            server.heard(association).is_some_and(|heard| heard > before)
        };
        turns(&mut server, &mut client, Duration::from_millis(300)); // what was under way
        assert!(turns(&mut server, &mut client, Duration::from_secs(20)), "{mode}");
        drop(client.take()); // as a host that is gone
        assert!(!turns(&mut server, &mut client, Duration::from_millis(300)), "{mode}");
    }
}

#[test] // RFC 9260 §8.4: the process that comes back answers the first packet of an association that it lost with ABORT
fn a_restart_is_noticed_with_the_first_packet() {
    for (mode, port) in [(Mode::Raw, 20220), (Mode::Udp, 20230)] {
        let Some((server, mut client, id)) = connected(mode, port) else { continue };
        drop(server); // as a process that is killed: without a word
        let mut server = open(&settings(mode, "127.0.0.1", port, port)).unwrap();
        client.send(id, 0, 60, b"INITIAL UE MESSAGE").unwrap();
        client.flush(now());
        let mut seen = Vec::new();
        let down = |s: &[String]| s.iter().any(|s| s.contains("down"));
        until(&mut [&mut client, &mut server], &mut seen, false, down);
        let aborted = format!("0 down {:?}", DownReason::AbortedByPeer { cause: None });
        assert_eq!(seen, [aborted], "{mode}");
    }
}

#[test] // RFC 9260 §8.5.1: or before that, if the process that was killed left the tags of its associations
fn a_restart_is_noticed_at_once_by_peers_that_are_remembered() {
    for (mode, port) in [(Mode::Raw, 20240), (Mode::Udp, 20250)] {
        let Some((server, mut client, _)) = connected(mode, port) else { continue };
        let formers = server.formers();
        drop(server);
        let mut server = open(&settings(mode, "127.0.0.1", port, port)).unwrap();
        formers.iter().for_each(|former| server.abort_former(former));
        let mut seen = Vec::new();
        let down = |s: &[String]| s.iter().any(|s| s.contains("down"));
        until(&mut [&mut client, &mut server], &mut seen, false, down);
        let aborted = format!("0 down {:?}", DownReason::AbortedByPeer { cause: None });
        assert_eq!(seen, [aborted], "{mode}");
    }
}
