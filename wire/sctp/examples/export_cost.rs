//! What it costs that another process can go on with the associations: a request and its answer through two endpoints in memory, without and
//! with the server's state exported. `cargo run --release -p whimbrel-sctp --example export_cost`.

#![allow(clippy::disallowed_methods)] // it measures, so it reads a clock

use std::net::IpAddr;
use std::time::Instant as Clock;

use whimbrel_ids::Instant;
use whimbrel_sctp::{Config, Connect, Endpoint, Event, Input, Layout, Outbox, Path, Send, Store};

const EXCHANGES: u32 = 200_000;

/// A slot for one association.
struct Slot(Layout, Vec<u8>);

impl Store for Slot {
    fn layout(&self) -> Layout {
        self.0
    }

    fn slots(&self) -> u32 {
        1
    }

    fn write(&mut self, _: u32, at: usize, octets: &[u8]) {
        self.1[at..at + octets.len()].copy_from_slice(octets);
    }

    fn publish(&mut self, _: u32, word: u64) {
        self.1[..8].copy_from_slice(&word.to_ne_bytes());
    }
}

fn config(address: IpAddr, export: bool) -> Config {
    let mut config = Config::new(38412);
    config.local_addresses = vec![address];
    (config.export, config.hold_acknowledgements) = (export, export);
    config.associations_max = 16;
    config
}

/// Microseconds for an exchange: the request is taken, exported, answered, released, exported and sent.
fn exchange_us(octets: usize, export: bool) -> f64 {
    let (client_at, server_at) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let mut now = Instant(1_000_000);
    let mut client = Endpoint::new(config(client_at, false), [1; 32], now);
    let mut server = Endpoint::new(config(server_at, export), [2; 32], now);
    let layout = Layout::of(&config(server_at, true));
    let mut store = export.then(|| Slot(layout, vec![0; layout.slot_octets()]));
    let (mut to_client, mut to_server) = (Outbox::default(), Outbox::default());
    let to = Connect { addresses: &[server_at], port: 38412, udp_port: 0 };
    let id = client.connect(now, to, &mut to_server).unwrap();
    let message = vec![7; octets];
    let (mut handled, mut begun) = (0, None);
    for n in 0..EXCHANGES + 100 {
        if n == 100 {
            begun = Some(Clock::now());
        }
        now = Instant(now.0 + 50);
        let _ =
            client.send(Send { association: id, stream: 1, ppid: 60, unordered: false, octets: &message });
        client.flush(now, &mut to_server);
        let path = Path { local: server_at, remote: client_at, udp_port: 0 };
        for (_, octets) in to_server.packets.iter() {
            server.handle(now, Input::Packet { path, octets }, &mut to_client);
        }
        to_server.packets.clear();
        if let Some(store) = &mut store {
            server.export(store);
        }
        for e in to_client.events.iter() {
            if let Event::Data { association, octets, .. } = e {
                handled += 1;
                server.send(Send { association, stream: 1, ppid: 60, unordered: false, octets }).unwrap();
                server.set_mark(association, handled);
                server.release(association, handled);
            }
        }
        to_client.events.clear();
        server.flush(now, &mut to_client);
        if let Some(store) = &mut store {
            server.export(store);
        }
        let path = Path { local: client_at, remote: server_at, udp_port: 0 };
        for (_, octets) in to_client.packets.iter() {
            client.handle(now, Input::Packet { path, octets }, &mut to_server);
        }
        to_client.packets.clear();
        to_server.events.clear();
    }
    assert!(handled > u64::from(EXCHANGES) - 10);
    begun.map_or(0.0, |begun: Clock| begun.elapsed().as_secs_f64() * 1e6 / f64::from(EXCHANGES))
}

fn main() {
    for octets in [60, 400, 1_300, 8_000] {
        let (without, with) = (exchange_us(octets, false), exchange_us(octets, true));
        let cost = with - without;
        println!(
            "{octets:>5} octets each way: {without:.2} us, with a successor {with:.2} us: {cost:.2} us for two exports"
        );
    }
}
