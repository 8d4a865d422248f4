//! How long a message and its echo take over this host's loopback, both ends in one spinning thread:
//! `cargo run --release -p whimbrel-sctp-io --example round_trip -- raw|udp|kernel [messages at once]`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use whimbrel_ids::Instant;
use whimbrel_sctp_io::{Config, Event, Events, Mode, Transport, TransportSettings};

const MESSAGES: u32 = 50_000;

fn now() -> Instant {
    Instant(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64)
}

fn open(mode: Mode, port: u16) -> Transport {
    let mut config = Config::new(port);
    config.local_addresses = vec![Ipv4Addr::LOCALHOST.into()];
    let settings = TransportSettings { mode, udp_port: port, ..TransportSettings::new(config) };
    Transport::open(&settings, [port as u8; 32], now()).unwrap_or_else(|e| {
        eprintln!("{e}");
        std::process::exit(1);
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(Mode::Raw);
    let at_once: u32 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1);
    let (mut server, mut client) = (open(mode, 21_000), open(mode, 21_001));
    let to = IpAddr::from(Ipv4Addr::LOCALHOST);
    let id = client.connect(now(), &[to], 21_000, 21_000).expect("connect");
    let mut events = Events::default();
    let (mut back, mut sent) = (0, 0);
    let mut start = None;
    while back < MESSAGES {
        server.drain(now(), &mut events);
        for e in events.iter() {
            if let Event::Data { association, stream, ppid, octets } = e {
                server.send(association, stream, ppid, octets).expect("echo");
            }
        }
        server.flush(now());
        client.drain(now(), &mut events);
        for e in events.iter() {
            match e {
                Event::Up { .. } => start = Some(std::time::Instant::now()),
                Event::Data { .. } => back += 1,
                Event::Down { reason, .. } => panic!("{reason}"),
                _ => {}
            }
        }
        while start.is_some() && sent < MESSAGES && sent - back < at_once {
            client.send(id, (sent % 8) as u16, 60, &[7; 200]).expect("send");
            sent += 1;
        }
        client.flush(now());
    }
    let each = start.map_or(Duration::ZERO, |s| s.elapsed()) / MESSAGES;
    println!("{mode}, {at_once} at once: {} ns for a message of 200 octets and its echo", each.as_nanos());
}
