//! What a link costs on this host, plain and sealed: a frame there and back, and frames one way in batches, of 600 octets as a checkpoint of a UE.
//!
//! `cargo run --release -p whimbrel-link --example ping_pong`

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as Clock;

use whimbrel_ids::Instant;
use whimbrel_link::{ClusterKey, Event, LinkEvents, LinkId, LinkSettings, Links};

const FRAME: [u8; 600] = [0x5a; 600];
const ROUNDS: usize = 20_000;
const FRAMES: usize = 400_000;
/// Times that each is measured, by turns; the best counts, as other work on the host only ever adds.
const TIMES: usize = 5;
/// Frames sent in one turn: what a loaded control thread has for one member.
const BATCH: usize = 32;

/// Sends back every frame of `ROUNDS`, then counts, and answers with one frame when all are there.
fn other_end(mut links: Links, stop: &AtomicBool) {
    let mut events = LinkEvents::default();
    let mut frames = 0;
    while !stop.load(Ordering::Relaxed) {
        links.drain(Instant(1), &mut events);
        for event in events.iter() {
            let Event::Frame { link, octets } = event else { continue };
            frames += 1;
            if frames <= ROUNDS || frames == ROUNDS + FRAMES {
                links.send(link, octets);
            }
        }
        links.flush();
    }
}

/// One turn, spinning; says how many frames came.
fn turn(links: &mut Links, events: &mut LinkEvents) -> usize {
    links.flush();
    links.drain(Instant(1), events);
    events.iter().filter(|e| matches!(e, Event::Frame { .. })).count()
}

fn measure(links: &mut Links, link: LinkId) -> (f64, f64, f64) {
    let mut events = LinkEvents::default();
    let mut trips = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let sent = Clock::now();
        links.send(link, &FRAME);
        while turn(links, &mut events) == 0 {}
        trips.push(sent.elapsed().as_nanos() as f64 / 1000.0);
    }
    trips.sort_by(f64::total_cmp);
    let begun = Clock::now();
    for _ in 0..FRAMES / BATCH {
        (0..BATCH).for_each(|_| links.send(link, &FRAME));
        links.flush();
    }
    while turn(links, &mut events) == 0 {}
    (trips[ROUNDS / 2], trips[ROUNDS * 99 / 100], begun.elapsed().as_nanos() as f64 / FRAMES as f64)
}

/// Both ends under these keys, on two threads: p50 and p99 of a round trip in us, ns a frame in batches.
fn both(keys: Vec<ClusterKey>) -> (f64, f64, f64) {
    let mut settings = LinkSettings::new(b"one end".to_vec());
    settings.keys = keys;
    settings.listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    settings.queue_octets_max = 2 * FRAMES * FRAME.len();
    let other = Links::open(settings.clone()).expect("a listener");
    let at = other.local_addr().expect("its address");
    let stop = AtomicBool::new(false);
    settings.listen = None;
    std::thread::scope(|threads| {
        threads.spawn(|| other_end(other, &stop));
        let mut links = Links::open(settings).expect("links");
        let link = links.connect(Instant(1), at);
        let measured = measure(&mut links, link);
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn main() {
    let mut best = [[f64::INFINITY; 3]; 2];
    for _ in 0..TIMES {
        for (best, keys) in best.iter_mut().zip([Vec::new(), vec![ClusterKey::new([1; 32])]]) {
            let (p50, p99, ns) = both(keys);
            *best = [best[0].min(p50), best[1].min(p99), best[2].min(ns)];
        }
    }
    let [plain, sealed] = best;
    for (name, [p50, p99, ns]) in [("plain", plain), ("sealed", sealed)] {
        println!(
            "{name:6} there and back p50 {p50:.1} us, p99 {p99:.1} us; one way in batches {ns:.0} ns a frame, {:.0} frames/s",
            1e9 / ns
        );
    }
    println!(
        "to seal and open: {:.2} us a round trip, {:.0} ns a frame in batches",
        sealed[0] - plain[0],
        sealed[2] - plain[2]
    );
    println!(
        "{{\"bench\": \"link ping_pong\", \"figures\": {{\"plain_p50_us\": {:.2}, \"plain_frame_ns\": {:.0}, \"sealed_p50_us\": {:.2}, \"sealed_frame_ns\": {:.0}}}}}",
        plain[0], plain[2], sealed[0], sealed[2]
    );
}
