//! A UE's packets through handovers that the UPF itself has packets wait for, by each kind of I/O: 10,000 a second from a host beyond
//! the data network's router to the gNB's socket, between virtual interfaces. There is no radio: source and target are tunnels to one socket.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde_json::{Value, json};
use whimbrel_gtpu::Gtpu;
use whimbrel_user_io::N3Io;

use super::super::kinds::{KINDS, Kind, TIMED, deliver, scene};
use super::super::xdp::{GNB, Namespace, begun, between, fast, pin};
use super::smf_side::Smf;
use super::{HANDOVER_MS, INTERVAL_US, Keeper, LOST, SOURCE, TARGET};

/// Packets that the UPF may keep: more than come in a handover, even where it begins late.
const BUFFER: u16 = 3_000;
/// Before the first handover, between two, and behind the last.
const PAUSE: Duration = Duration::from_millis(300);
/// Until packets go the way that they are to go.
const WARM_WITHIN: Duration = Duration::from_secs(20);
/// Before a packet's number and time, in what the gNB's socket has behind GTP-U: headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// Octets of a UE's packet.
const OCTETS: usize = 128;
/// The number of packets that are sent until all is warm.
const UNCOUNTED: u64 = u64::MAX;

/// What became of packets by one kind.
#[derive(Default)]
struct Outcome {
    sent: u64,
    arrived: Vec<u32>,
    latest: Option<u64>,
    reordered: u64,
    longest_ms: f64,
}

impl Outcome {
    fn receive(&mut self, origin: Instant, octets: &[u8]) {
        let Some(payload) = Gtpu::parse(octets).ok().and_then(|m| m.payload.get(HEADERS..)) else { return };
        let word = |at: usize| payload.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let (Some(number), Some(sent_us)) = (word(0).filter(|n| *n != UNCOUNTED), word(8)) else { return };
        if self.arrived.len() <= number as usize {
            self.arrived.resize(number as usize + 1, 0);
        }
        self.arrived[number as usize] += 1;
        self.reordered += u64::from(self.latest.is_some_and(|latest| number < latest));
        self.latest = self.latest.max(Some(number));
        let us = (origin.elapsed().as_micros() as u64).saturating_sub(sent_us);
        self.longest_ms = self.longest_ms.max(us as f64 / 1e3);
    }

    fn lost(&self) -> u64 {
        self.sent - self.arrived.iter().filter(|n| **n > 0).count() as u64
    }

    fn duplicated(&self) -> u64 {
        self.arrived.iter().map(|n| u64::from(n.saturating_sub(1))).sum()
    }
}

/// In the namespace: measures so many handovers by each kind, prints a table; the figures.
pub(super) fn inside(handovers: u32) -> io::Result<Value> {
    println!(
        "\nlive, {handovers} handovers of {HANDOVER_MS} ms by each kind of I/O, packets of {OCTETS} octets kept by the UPF"
    );
    println!(
        "{:>24} {:>8} {:>6} {:>10} {:>11} {:>11} {:>12}",
        "", "sent", "lost", "reordered", "duplicated", "longest ms", "lost by UPF"
    );
    let (ran, network) = scene()?;
    deliver(&ran, &network)?;
    // A program on them has the interfaces take what is redirected.
    let _programs = fast::pass(&ran, &network)?;
    let mut rows = Vec::new();
    for kind in KINDS.iter().filter(|k| k.busy_poll.is_zero()) {
        let (o, by_upf) = outcome(kind, handovers, &ran, &network)?;
        println!(
            "{:>24} {:>8} {:>6} {:>10} {:>11} {:>11.1} {by_upf:>12}",
            kind.name,
            o.sent,
            o.lost(),
            o.reordered,
            o.duplicated(),
            o.longest_ms
        );
        rows.push(json!({
            "io": kind.key, "handovers": handovers, "sent": o.sent, "lost": o.lost(), "reordered": o.reordered,
            "duplicated": o.duplicated(), "longest_ms": o.longest_ms, "lost_by_upf": by_upf,
        }));
    }
    Ok(Value::Array(rows))
}

fn outcome(kind: &Kind, handovers: u32, ran: &Namespace, network: &Namespace) -> io::Result<(Outcome, u64)> {
    let mut config = between(kind.n3_io, 1, kind.rings_on_both);
    config.user.buffering.packets_per_session = BUFFER;
    let (user, clock) = (config.user.clone(), config.clock.clone());
    let (handle, _) = begun(config)?;
    let mut smf = Smf::new(handle, user, clock, GNB.into())?;
    let gnb = ran.socket(SocketAddr::new(GNB.into(), 2152))?;
    gnb.set_nonblocking(false)?;
    gnb.set_read_timeout(Some(Duration::from_millis(20)))?;
    // All that the UPF has kept comes at once.
    set_socket_recv_buffer_size_force(&gnb, 16 << 20)?;
    let server = network.socket(SocketAddr::new(TIMED.into(), 9))?;
    let ue = SocketAddr::new(smf.address.into(), 9);
    let (origin, warm, stop, ended) =
        (Instant::now(), AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let (warm, stop, ended) = (&warm, &stop, &ended);
    let outcome = thread::scope(|s| {
        let generator = s.spawn(move || {
            pin(0, 0)?;
            let (mut number, mut payload) = (0u64, vec![7; OCTETS - HEADERS]);
            let mut next = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                // What this thread has slept through comes at once, with its own times: it was not the UPF's delay.
                thread::sleep(next.saturating_duration_since(Instant::now()));
                next += Duration::from_micros(INTERVAL_US);
                let of = if warm.load(Ordering::Relaxed) { number } else { UNCOUNTED };
                payload[..8].copy_from_slice(&of.to_be_bytes());
                payload[8..16].copy_from_slice(&(origin.elapsed().as_micros() as u64).to_be_bytes());
                server.send_to(&payload, ue)?;
                number += u64::from(of != UNCOUNTED);
            }
            io::Result::Ok(number)
        });
        let receiver = s.spawn(move || {
            pin(0, 0)?;
            let (mut outcome, mut room) = (Outcome::default(), [0; 2048]);
            while !ended.load(Ordering::Relaxed) {
                if let Ok(octets) = gnb.recv(&mut room) {
                    outcome.receive(origin, &room[..octets]);
                }
            }
            io::Result::Ok(outcome)
        });
        let done = (|| {
            warm_up(kind, &smf)?;
            warm.store(true, Ordering::Relaxed);
            let (mut here, mut there) = (SOURCE, TARGET);
            for _ in 0..handovers {
                thread::sleep(PAUSE);
                smf.change(Keeper::Upf.leaving(TARGET))?;
                thread::sleep(Duration::from_millis(HANDOVER_MS));
                smf.change(Keeper::Upf.arrived(there))?;
                (here, there) = (there, here);
            }
            thread::sleep(PAUSE);
            io::Result::Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        let sent = generator.join().map_err(|_| io::Error::other("the generator ended"));
        thread::sleep(PAUSE);
        ended.store(true, Ordering::Relaxed);
        let outcome = receiver.join().map_err(|_| io::Error::other("the gNB ended"));
        done?;
        let mut outcome = outcome??;
        outcome.sent = sent??;
        io::Result::Ok(outcome)
    })?;
    let (counters, io) = (smf.handle.counters(), smf.handle.io_counters());
    let kept_not: u64 = LOST.into_iter().map(|reason| counters.dropped(reason)).sum();
    Ok((outcome, kept_not + io.receive_full + io.send_full + io.send_errors))
}

/// Until a hundred packets have gone by rings, or by the driver, where they are to.
fn warm_up(kind: &Kind, smf: &Smf) -> io::Result<()> {
    let end = Instant::now() + WARM_WITHIN;
    loop {
        let io = smf.handle.io_counters();
        let gone = match kind.n3_io {
            N3Io::Xdp => io.fast_downlink,
            _ => io.n3_sent.saturating_sub(io.n3_sent_by_socket),
        };
        if gone >= 100 {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(io::Error::other(format!("nothing comes by {}: {io:?}", kind.name)));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
