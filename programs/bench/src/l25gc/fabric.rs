//! Shared memory between the processes of a host, as the functions of a unit use it: `fabric/link` with a pool of `fabric/shm`. Both ends
//! are threads here, each with a mapping of its own; the paths are those of two processes.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::json;
use whimbrel_ids::Instant;
use whimbrel_link::{ClusterKey, Event, LinkEvents, LinkId, LinkSettings, Links, Spin};
use whimbrel_shm::{Pool, Receiver, create};

use super::{finish, round};
use crate::measure::median;
use crate::neutrino::links_of_a_service_request;
use crate::plot::{Axis, Plot, Series};

/// What is to be reached, in microseconds: a round trip while both ends are busy; one in which each wakes the other, on one processor; what a
/// service request takes longer with CTA and CPF as two processes than as one.
pub(super) const GOALS: [f64; 3] = [1.0, 12.0, 15.0];
/// A frame as a UE's messages are.
const FRAME: [u8; 200] = [0x5a; 200];
/// How long a function looks for the next frame before it sleeps, as CTA and CPFs do.
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// How long the links may take to stand.
const LINKED_WITHIN: Duration = Duration::from_secs(60);

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Round trips of each kind.
    #[arg(long, default_value_t = 20_000)]
    trips: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        self.trips = 50;
    }
}

/// One end of a link.
pub(super) struct End {
    links: Links,
    link: LinkId,
    events: LinkEvents,
    begun: Clock,
    spin: Spin,
}

/// When an end that finds nothing sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// After a while, as the program does.
    Soon,
    /// The receiver polls at once.
    AtOnce,
    /// The end looks again and again.
    Never,
}

impl End {
    fn now(&self) -> Instant {
        Instant(1) + self.begun.elapsed()
    }

    /// Receives what is there. Returns whether `each` got a frame.
    fn receive(&mut self, now: Instant, mut each: impl FnMut(&mut Links, LinkId, &[u8])) -> io::Result<bool> {
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        let mut came = false;
        for event in events.iter() {
            match event {
                Event::Frame { link, octets } => {
                    came = true;
                    each(&mut self.links, link, octets);
                }
                Event::Down { reason, .. } => return Err(io::Error::other(reason.to_string())),
                Event::Up { link, .. } => self.link = link,
                Event::Rejected { .. } => {}
            }
        }
        self.events = events;
        self.links.flush();
        Ok(came)
    }

    fn sleep(&self) {
        let due = self.links.next_deadline().map(|due| due.since(self.now()));
        let wait = due.unwrap_or(Duration::from_millis(20)).min(Duration::from_millis(20));
        if !wait.is_zero() {
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.links.fd(), PollFlags::IN)], Some(&timeout));
        }
    }

    fn looks_again(&mut self, now: Instant, waits: Waits) -> bool {
        match waits {
            Waits::Soon => self.spin.looks_again(now),
            Waits::AtOnce => false,
            Waits::Never => true,
        }
    }

    /// Sends a frame and takes the answer.
    pub(super) fn exchange<R>(&mut self, frame: &[u8], read: impl FnMut(&[u8]) -> R) -> io::Result<R> {
        self.trip(frame, Waits::Soon, read)
    }

    pub(super) fn trip<R>(
        &mut self,
        frame: &[u8],
        waits: Waits,
        mut read: impl FnMut(&[u8]) -> R,
    ) -> io::Result<R> {
        self.links.send(self.link, frame);
        self.links.flush();
        let mut answer = None;
        self.spin.came(self.now());
        loop {
            let now = self.now();
            self.receive(now, |_, _, octets| answer = Some(read(octets)))?;
            if let Some(answer) = answer {
                self.spin.came(now);
                return Ok(answer);
            }
            if !self.looks_again(now, waits) {
                self.sleep();
            }
        }
    }

    /// Answers the frames that are there, or waits.
    pub(super) fn answer(
        &mut self,
        out: &mut Vec<u8>,
        waits: Waits,
        mut answer: impl FnMut(&[u8], &mut Vec<u8>),
    ) -> io::Result<()> {
        let now = self.now();
        let came = self.receive(now, |links, link, octets| {
            out.clear();
            answer(octets, out);
            links.send(link, out);
        })?;
        if came {
            self.spin.came(now);
        } else if self.looks_again(now, waits) {
            std::hint::spin_loop();
        } else {
            self.sleep();
        }
        Ok(())
    }
}

/// Two ends of a link.
pub(super) struct Ends {
    pub(super) near: End,
    pub(super) far: Option<End>,
}

impl Ends {
    /// Through shared memory.
    pub(super) fn shared() -> io::Result<Self> {
        Self::new(true)
    }

    fn new(shared: bool) -> io::Result<Self> {
        let mut settings = LinkSettings::new(b"bench".to_vec());
        settings.keys = vec![ClusterKey::new([1; 32])];
        settings.listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut far = Links::open(settings.clone()).map_err(io::Error::other)?;
        settings.listen = None;
        let mut near = Links::open(settings).map_err(io::Error::other)?;
        if shared {
            let made = create()?;
            for (area, links) in [&mut near, &mut far].into_iter().enumerate() {
                links.share(made.open(area).map_err(io::Error::other)?)?;
            }
        }
        let at = far.local_addr().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let link = near.connect(Instant(1), at);
        let begun = Clock::now();
        let end = |links| End { links, link, events: LinkEvents::default(), begun, spin: Spin::new(SPIN) };
        let (mut near, mut far) = (end(near), end(far));
        let expected = usize::from(shared);
        let (mut ready, since) = (false, Clock::now());
        while !ready {
            if since.elapsed() > LINKED_WITHIN {
                return Err(io::Error::other("the link does not stand in time"));
            }
            near.receive(near.now(), |_, _, _| {})?;
            far.receive(far.now(), |_, _, _| {})?;
            let counters = (near.links.counters(), far.links.counters());
            ready = (counters.0.up, counters.1.up) == (1, 1)
                && (near.links.shared(), far.links.shared()) == (expected, expected);
        }
        Ok(Self { near, far: Some(far) })
    }

    /// The far end answers each frame on a thread of its own.
    pub(super) fn serve<'scope>(
        &mut self,
        threads: &'scope std::thread::Scope<'scope, '_>,
        stop: &'scope AtomicBool,
        answer: impl FnMut(&[u8], &mut Vec<u8>) + Send + 'scope,
    ) {
        self.serve_as(threads, stop, Waits::Soon, processors()[1], answer);
    }

    fn serve_as<'scope>(
        &mut self,
        threads: &'scope std::thread::Scope<'scope, '_>,
        stop: &'scope AtomicBool,
        waits: Waits,
        processor: usize,
        mut answer: impl FnMut(&[u8], &mut Vec<u8>) + Send + 'scope,
    ) {
        let Some(mut far) = self.far.take() else { return };
        threads.spawn(move || {
            pin(processor);
            let mut out = Vec::new();
            while !stop.load(Ordering::Acquire) {
                if far.answer(&mut out, waits, &mut answer).is_err() {
                    return;
                }
            }
        });
    }
}

/// Lets this thread run on one processor.
pub(super) fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // Where that is forbidden, the scheduler chooses.
    let _ = sched_setaffinity(None, &set);
}

/// The processors that the two ends run on: two of them where there are two.
pub(super) fn processors() -> [usize; 2] {
    // Asked once: a thread that runs on one processor sees no other.
    static LAST: OnceLock<usize> = OnceLock::new();
    let last = LAST.get_or_init(|| std::thread::available_parallelism().map_or(0, |n| usize::from(n) - 1));
    [0, (*last).min(1)]
}

fn with_p99(mut samples: Vec<f64>) -> [f64; 2] {
    samples.sort_by(f64::total_cmp);
    let p99 = samples.get(samples.len() * 99 / 100).copied().unwrap_or(f64::NAN);
    [median(samples), p99]
}

/// Takes one frame, if one is there.
fn take(pool: &mut Pool, from: &mut Receiver, into: &mut Vec<u8>) -> io::Result<bool> {
    into.clear();
    let came = pool.port.take(from, into).map_err(|_| io::ErrorKind::InvalidData)?;
    pool.port.confirm(from);
    Ok(came.is_some())
}

fn send(pool: &mut Pool, to: usize, octets: &[u8]) -> io::Result<()> {
    pool.port.push(to, octets, true).map_err(|_| io::ErrorKind::InvalidData)?;
    pool.port.publish(to);
    Ok(())
}

/// Median microseconds of a round trip of the rings alone, without links, and p99; both ends are busy.
fn bare_trips(options: &Options) -> io::Result<[f64; 2]> {
    let made = create()?;
    let open = |area| made.open(area).map_err(io::Error::other);
    let (mut near, mut far) = (open(0)?, open(1)?);
    let [there, back] = [near.port.begin(1), far.port.begin(0)].map(Option::unwrap_or_default);
    let (mut from_far, mut from_near) = (near.port.receiver(1, back), far.port.receiver(0, there));
    let stop = AtomicBool::new(false);
    let samples = std::thread::scope(|threads| {
        let stop = &stop;
        threads.spawn(move || -> io::Result<()> {
            pin(processors()[1]);
            let mut octets = Vec::new();
            while !stop.load(Ordering::Acquire) {
                if take(&mut far, &mut from_near, &mut octets)? {
                    send(&mut far, 0, &octets)?;
                }
            }
            Ok(())
        });
        let (mut samples, mut octets) = (Vec::with_capacity(options.trips), Vec::new());
        let outcome = (0..options.trips).try_for_each(|_| -> io::Result<()> {
            let begun = Clock::now();
            send(&mut near, 1, &FRAME)?;
            while !take(&mut near, &mut from_far, &mut octets)? {
                std::hint::spin_loop();
            }
            samples.push(begun.elapsed().as_nanos() as f64 / 1000.0);
            Ok(())
        });
        stop.store(true, Ordering::Release);
        outcome.map(|()| samples)
    });
    Ok(with_p99(samples?))
}

/// The same through links. `on`: the processors of both ends.
fn trips(options: &Options, shared: bool, waits: Waits, on: [usize; 2]) -> io::Result<[f64; 2]> {
    let stop = AtomicBool::new(false);
    let mut ends = Ends::new(shared)?;
    pin(on[0]);
    let samples = std::thread::scope(|threads| {
        ends.serve_as(threads, &stop, waits, on[1], |octets, out| out.extend_from_slice(octets));
        let mut samples = Vec::with_capacity(options.trips);
        let outcome = (0..options.trips).try_for_each(|_| {
            let begun = Clock::now();
            ends.near.trip(&FRAME, waits, |octets| octets.len())?;
            samples.push(begun.elapsed().as_nanos() as f64 / 1000.0);
            io::Result::Ok(())
        });
        stop.store(true, Ordering::Release);
        outcome.map(|()| samples)
    });
    Ok(with_p99(samples?))
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    pin(processors()[0]);
    let bare = bare_trips(options)?;
    let two = processors();
    let spinning = [trips(options, false, Waits::Soon, two)?, trips(options, true, Waits::Soon, two)?];
    let waking =
        [trips(options, false, Waits::AtOnce, [0, 0])?, trips(options, true, Waits::AtOnce, [0, 0])?];
    let one = [trips(options, false, Waits::Soon, [0, 0])?, trips(options, true, Waits::Soon, [0, 0])?];
    let [sealed, shared] = links_of_a_service_request();
    println!("microseconds of a round trip of 200 octets, median and p99:");
    println!("{:44}{:>20}{:>20}", "", "sealed socket", "shared memory");
    let rows = [
        ("both ends busy", &spinning, GOALS[0]),
        ("each wakes the other, on one processor", &waking, GOALS[1]),
        ("as the program waits, on one processor", &one, GOALS[1]),
    ];
    for (name, [socket, memory], goal) in rows {
        let cell = |[p50, p99]: &[f64; 2]| format!("{p50:>11.2} {p99:>8.1}");
        println!("{name:44}{}{}   (aim: {goal})", cell(socket), cell(memory));
    }
    println!("the rings alone, both ends busy: {:.2}, p99 {:.1}   (aim: {})", bare[0], bare[1], GOALS[0]);
    println!(
        "a service request's messages between CTA and CPF, one at a time, processor time of both ends: {sealed:.1} us over sealed sockets, {shared:.1} \
         through shared memory (`procedures` has the whole service request)"
    );
    let bars = |of: [f64; 3]| of.into_iter().enumerate().map(|(x, us)| (x as f64, us)).collect();
    Plot {
        title: "Between processes of one host",
        x: "",
        y: "microseconds",
        log_y: true,
        axis: Axis::Names(["busy", "waking", "service request"].map(String::from).to_vec()),
        series: vec![
            Series { name: "sealed socket".into(), points: bars([spinning[0][0], waking[0][0], sealed]) },
            Series { name: "shared memory".into(), points: bars([spinning[1][0], waking[1][0], shared]) },
            Series { name: "aim".into(), points: bars(GOALS) },
        ],
    }
    .write(plots, "l25gc-fabric")?;
    let of = |[socket, memory]: [[f64; 2]; 2]| json!({ "socket_p50_us": round(socket[0]), "shared_p50_us": round(memory[0]), "shared_p99_us": round(memory[1]) });
    finish(
        "fabric",
        &json!({
            "rings_p50_us": round(bare[0]), "busy": of(spinning), "waking": of(waking), "one_processor": of(one), "aims_us": GOALS,
            "service_request": { "socket_us": round(sealed), "shared_us": round(shared) },
        }),
    );
    Ok(())
}
