//! In a steady exchange nothing is allocated: buffers grow once and are reused.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_sctp::{AssociationId, Config, Connect, Endpoint, Event, Input, Outbox, Path, Send};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; the counter itself does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|a| a.set(a.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Delivers what one side sent to the other, echoing data if it is the server; true if anything was sent.
fn carry(
    now: Instant,
    out: &mut Outbox,
    to: &mut Endpoint,
    reply: &mut Outbox,
    path: Path,
    echo: bool,
) -> bool {
    let any = !out.packets.is_empty();
    for (_, octets) in out.packets.iter() {
        to.handle(now, Input::Packet { path, octets }, reply);
    }
    out.packets.clear();
    if echo {
        for e in reply.events.iter() {
            if let Event::Data { association, stream, ppid, octets } = e {
                to.send(Send { association, stream, ppid, unordered: false, octets }).unwrap();
            }
        }
    }
    reply.events.clear();
    to.flush(now, reply);
    any
}

struct Pair {
    now: Instant,
    ends: [Endpoint; 2],
    out: [Outbox; 2],
}

impl Pair {
    fn run(&mut self) {
        let at = |n: u8| IpAddr::from([10, 0, 0, n]);
        let path = |from, to| Path { local: at(to), remote: at(from), udp_port: 0 };
        let ([a, b], [from_a, from_b]) = (&mut self.ends, &mut self.out);
        loop {
            let moved = carry(self.now, from_a, b, from_b, path(1, 2), true);
            if !carry(self.now, from_b, a, from_a, path(2, 1), false) && !moved {
                return;
            }
        }
    }

    fn exchange(&mut self, association: AssociationId, messages: u32) {
        for i in 0..messages {
            let octets = [i as u8; 200];
            let stream = (i % 8) as u16;
            self.ends[0]
                .send(Send { association, stream, ppid: 60, unordered: false, octets: &octets })
                .unwrap();
            self.ends[0].flush(self.now, &mut self.out[0]);
            self.run();
            self.now = self.now + Duration::from_micros(50);
        }
    }
}

#[test]
fn a_steady_exchange_allocates_nothing() {
    let now = Instant(1);
    let ends = [1, 2].map(|n| Endpoint::new(Config::new(38412), [n; 32], now));
    let mut pair = Pair { now, ends, out: Default::default() };
    let to = Connect { addresses: &["10.0.0.2".parse().unwrap()], port: 38412, udp_port: 0 };
    let id = pair.ends[0].connect(now, to, &mut pair.out[0]).unwrap();
    pair.ends[0].flush(now, &mut pair.out[0]);
    pair.run();
    pair.exchange(id, 100);
    let before = ALLOCATIONS.with(Cell::get);
    #[allow(clippy::disallowed_methods)] // a measurement, printed and not judged
    let start = std::time::Instant::now();
    const MESSAGES: u32 = 20_000;
    pair.exchange(id, MESSAGES);
    let spent = start.elapsed();
    let allocations = ALLOCATIONS.with(Cell::get) - before;
    eprintln!(
        "{} ns for a message, its echo and both acknowledgements",
        spent.as_nanos() / u128::from(MESSAGES)
    );
    assert_eq!(allocations, 0);
}
