//! Packets, requests and passing time, in any order, at an endpoint that has one association.
//!
//! The input is a list of steps: an operation, a length, that many octets. Checksums are mended, and most packets
//! carry the association's port and tag, so that the fuzzer reaches the chunks.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use whimbrel_ids::Instant;
use whimbrel_sctp::{Config, Connect, Endpoint, Event, Input, Outbox, Path, Send};

const PORT: u16 = 38412;
const PEER_PORT: u16 = 5000;

fn at(n: u8) -> IpAddr {
    [10, 0, 0, n].into()
}

fn packet(tag: u32, port: u16, chunks: &[u8]) -> Vec<u8> {
    let mut o = port.to_be_bytes().to_vec();
    o.extend_from_slice(&PORT.to_be_bytes());
    o.extend_from_slice(&tag.to_be_bytes());
    o.extend_from_slice(&[0; 4]);
    o.extend_from_slice(chunks);
    let crc = crc32c::crc32c(&o).to_le_bytes();
    o[8..12].copy_from_slice(&crc);
    o
}

struct World {
    endpoint: Endpoint,
    now: Instant,
    out: Outbox,
    tag: u32,
}

impl World {
    fn give(&mut self, from: u8, octets: &[u8]) {
        let path = Path { local: at(1), remote: at(from), udp_port: 0 };
        self.endpoint.handle(self.now, Input::Packet { path, octets }, &mut self.out);
    }

    /// The first packet that left since the last look.
    fn answer(&mut self) -> Option<Vec<u8>> {
        self.endpoint.flush(self.now, &mut self.out);
        let first = self.out.packets.iter().next().map(|p| p.1.to_vec());
        self.out.packets.clear();
        first
    }

    fn open() -> Option<World> {
        let config = Config { associations_max: 8, ..Config::new(PORT) };
        let now = Instant(1_000_000_000);
        let endpoint = Endpoint::new(config, [7; 32], now);
        let mut world = World { endpoint, now, out: Outbox::default(), tag: 0 };
        let init = [1, 0, 0, 20, 0, 0, 0, 9, 0, 1, 0, 0, 0, 8, 0, 8, 0, 0, 0, 1];
        world.give(2, &packet(0, PEER_PORT, &init));
        let ack = world.answer()?;
        world.tag = u32::from_be_bytes(*ack.get(16..)?.first_chunk()?);
        let len = usize::from(u16::from_be_bytes(*ack.get(34..)?.first_chunk()?));
        let mut echo = vec![10, 0];
        echo.extend_from_slice(&(len as u16).to_be_bytes());
        echo.extend_from_slice(ack.get(36..32 + len)?);
        echo.resize(echo.len().next_multiple_of(4), 0);
        let tag = world.tag;
        world.give(2, &packet(tag, PEER_PORT, &echo));
        world.answer()?;
        Some(world)
    }
}

fuzz_target!(|input: &[u8]| {
    let Some(mut w) = World::open() else { panic!("the handshake must work") };
    let id = w.endpoint.associations().next().expect("and leave an association");
    let mut rest = input;
    while let [op, len, more @ ..] = rest {
        let len = (usize::from(*len) * if op & 0x80 == 0 { 1 } else { 8 }).min(more.len());
        let (octets, next) = more.split_at(len);
        rest = next;
        let tag = w.tag;
        match op & 0xf {
            0..=6 => w.give(2, &packet(tag, PEER_PORT, octets)),
            7 => w.give(2, &packet(0, PEER_PORT, octets)),
            8 => w.give(3, &packet(0, PEER_PORT, octets)),
            9 => w.give(2, octets),
            10 | 11 => {
                let send = Send { association: id, stream: u16::from(op >> 4), ppid: 60, unordered: *op & 0x40 != 0, octets };
                w.endpoint.handle(w.now, Input::Send(send), &mut w.out);
            }
            12 => {
                let to = [at(op >> 4)];
                let connect = Connect { addresses: &to, port: PEER_PORT, udp_port: 0 };
                w.endpoint.handle(w.now, Input::Connect(connect), &mut w.out);
            }
            13 => w.endpoint.handle(w.now, Input::Shutdown { association: id }, &mut w.out),
            _ => {
                w.now = Instant(w.now.0 + 1000 * len as u64 * u64::from(op >> 4));
                w.endpoint.handle(w.now, Input::Tick, &mut w.out);
            }
        }
        w.endpoint.flush(w.now, &mut w.out);
        assert!(w.endpoint.associations().count() <= 8);
        if let Some(s) = w.endpoint.status(id) {
            assert!(s.queued_octets <= 1024 * 1024);
        }
        for e in w.out.events.iter() {
            if let Event::Data { octets, .. } = e {
                assert!(!octets.is_empty());
            }
        }
        w.out.packets.clear();
        w.out.events.clear();
    }
});
