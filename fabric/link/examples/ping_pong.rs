//! What a link costs on this host: a frame there and back, and frames one way in batches, of 600 octets as a checkpoint of a phone.
//!
//! `cargo run --release -p whimbrel-link --example ping_pong`

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as Clock;

use whimbrel_ids::Instant;
use whimbrel_link::{Event, Events, LinkId, Links, Settings};

const FRAME: [u8; 600] = [0x5a; 600];
const ROUNDS: usize = 100_000;
const FRAMES: usize = 2_000_000;
/// Frames sent in one turn: what a loaded control thread has for one member.
const BATCH: usize = 32;

/// Sends back every frame of `ROUNDS`, then counts, and answers with one frame when all are there.
fn other_end(mut links: Links, stop: &AtomicBool) {
    let mut events = Events::default();
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
fn turn(links: &mut Links, events: &mut Events) -> usize {
    links.flush();
    links.drain(Instant(1), events);
    events.iter().filter(|e| matches!(e, Event::Frame { .. })).count()
}

fn measure(links: &mut Links, link: LinkId) -> (f64, f64, f64) {
    let mut events = Events::default();
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
    (trips[ROUNDS / 2], trips[ROUNDS * 99 / 100], FRAMES as f64 / begun.elapsed().as_secs_f64())
}

fn main() {
    let mut settings = Settings::new(b"the other end".to_vec());
    settings.listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    settings.queue_octets_max = 2 * FRAMES * FRAME.len();
    let other = Links::open(settings.clone()).expect("a listener");
    let at = other.local_addr().expect("its address");
    let stop = AtomicBool::new(false);
    settings.listen = None;
    let (p50, p99, per_s) = std::thread::scope(|threads| {
        threads.spawn(|| other_end(other, &stop));
        let mut links = Links::open(settings).expect("links");
        let link = links.connect(Instant(1), at);
        let measured = measure(&mut links, link);
        stop.store(true, Ordering::Relaxed);
        measured
    });
    println!("there and back      p50 {p50:.1} us, p99 {p99:.1} us");
    println!("one way in batches  {per_s:.0} frames/s, {:.0} ns a frame", 1e9 / per_s);
    println!(
        "{{\"bench\": \"link ping_pong\", \"figures\": {{\"plain_p50_us\": {p50:.2}, \"plain_p99_us\": {p99:.2}, \"plain_frames_per_s\": {per_s:.0}}}}}"
    );
}
