//! How fast a killed process is found, against how often a living one is accused: the curve over the interval of
//! heartbeats, at given loads of all processors. Detector and watched process are processes of their own on this machine.
//!
//! ```text
//! cargo run --release --package whimbrel-resilience --example detection -- [SECONDS [KILLS [LOAD,LOAD...]]]
//! ```
//!
//! SECONDS each pair of load and interval is watched (10), KILLS how often the process is killed then (10), LOAD in per cent (0,70,100).

#![allow(clippy::disallowed_methods)] // an experiment: it has clocks, sockets and threads

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use whimbrel_ids::Instant;
use whimbrel_resilience::detector::{
    Change, Detector, Discriminator, Incarnation, Input, Outbox, PeerState, Reflector, Timing,
};

const KEY: [u8; 32] = [1; 32];
const WATCHER: Discriminator = Discriminator(1);
const WATCHED: Discriminator = Discriminator(2);
const INTERVALS_MS: [u64; 6] = [1, 2, 5, 10, 20, 50];
const MULTIPLIER: u8 = 3;
/// A busy thread works and sleeps within this: a turn of a control thread at load.
const TURN: Duration = Duration::from_millis(1);

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |a| a.parse::<u64>());
    let wrong = |_| "usage: detection [SECONDS [KILLS [LOAD,LOAD...]]]".to_string();
    if arguments.first().is_some_and(|a| a == "watched") {
        return watched(number(1, 0).map_err(wrong)?, number(2, 1).map_err(wrong)?)
            .map_err(|e| e.to_string());
    }
    let (seconds, kills) = (number(0, 10).map_err(wrong)?, number(1, 10).map_err(wrong)?);
    let loads = arguments.get(2).map_or("0,70,100", String::as_str).split(',').map(str::parse::<u64>);
    let loads: Vec<u64> = loads.collect::<Result<_, _>>().map_err(wrong)?;

    println!(
        "a process killed with SIGKILL, found by heartbeats alone; {MULTIPLIER} unanswered probes are a verdict"
    );
    println!(
        "(a closed connection tells at once; Neutrino reports recovery without the time of detection, §6.4)\n"
    );
    println!("load  interval  bound  found p50  found max  false alarms  in");
    let mut figures = Vec::new();
    for load in loads {
        for interval in INTERVALS_MS {
            let timing =
                Timing::experiment(Duration::from_millis(interval), MULTIPLIER).map_err(|e| e.to_string())?;
            let mut run = Run::new(load, timing).map_err(|e| e.to_string())?;
            let figure = run.measure(timing.interval(), seconds, kills).map_err(|e| e.to_string())?;
            let bound = timing.detection_max().as_millis();
            let (p50, max) = (ms(figure.median()), ms(figure.longest()));
            println!(
                "{load:>3}%  {interval:>5} ms  {bound:>3} ms  {p50:>6.1} ms  {max:>6.1} ms  {:>12}  {seconds} s",
                figure.false_alarms
            );
            figures.push(format!(
                r#""load_{load}_interval_{interval}_ms":{{"found_p50_ms":{p50:.1},"found_max_ms":{max:.1},"false_alarms":{},"seconds":{seconds}}}"#,
                figure.false_alarms
            ));
        }
    }
    println!(r#"{{"bench":"detection","figures":{{{}}}}}"#, figures.join(","));
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What came of one load and interval.
struct Figure {
    found: Vec<Duration>,
    false_alarms: u64,
}

impl Figure {
    fn median(&self) -> Duration {
        self.found.get(self.found.len() / 2).copied().unwrap_or_default()
    }

    fn longest(&self) -> Duration {
        self.found.last().copied().unwrap_or_default()
    }
}

/// The watching side.
struct Run {
    load: u64,
    detector: Detector,
    socket: UdpSocket,
    begun: std::time::Instant,
    peer: Option<(Child, SocketAddr)>,
    lives: u64,
}

impl Run {
    fn new(load: u64, timing: Timing) -> std::io::Result<Self> {
        Ok(Self {
            load,
            detector: Detector::new(WATCHER, Incarnation(1), &KEY, timing),
            socket: UdpSocket::bind("127.0.0.1:0")?,
            begun: std::time::Instant::now(),
            peer: None,
            lives: 0,
        })
    }

    fn measure(&mut self, interval: Duration, seconds: u64, kills: u64) -> std::io::Result<Figure> {
        self.detector.watch(self.now(), WATCHED);
        self.start()?;
        self.pass(Duration::from_millis(200), |_| false)?; // it starts
        let before = self.detector.counters().downs;
        self.pass(Duration::from_secs(seconds), |_| false)?;
        let false_alarms = self.detector.counters().downs - before;
        let mut found = Vec::new();
        for n in 0..kills {
            let up = |change: &Change| matches!(change, Change::Up(_));
            if self.detector.peer(WATCHED).is_none_or(|p| p.state != PeerState::Up) {
                self.pass(Duration::from_secs(5), up)?;
            }
            // At another point between two probes each time.
            self.pass(interval + interval * n as u32 / kills as u32, |_| false)?;
            let (mut child, _) = self.peer.take().expect("one was started");
            child.kill()?;
            let killed = self.now();
            self.pass(Duration::from_secs(5), |change| matches!(change, Change::Down(..)))?;
            found.push(self.now().since(killed));
            child.wait()?;
            self.start()?;
            self.pass(Duration::from_secs(5), up)?;
        }
        found.sort_unstable();
        Ok(Figure { found, false_alarms })
    }

    /// Starts another life of the watched process.
    fn start(&mut self) -> std::io::Result<()> {
        self.lives += 1;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["watched", &self.load.to_string(), &(self.lives * 1_000_000).to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut port = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut port)?;
        let address = port.trim().parse().map_err(std::io::Error::other)?;
        self.peer = Some((child, address));
        Ok(())
    }

    /// Lets the detector run for a time, or until something changes as asked.
    fn pass(&mut self, time: Duration, until: impl Fn(&Change) -> bool) -> std::io::Result<()> {
        let end = self.now() + time;
        let mut octets = [0; 256];
        while self.now() < end {
            let mut out = Outbox::default();
            let due = self.detector.next_deadline().unwrap_or(end).min(end);
            let wait = due.since(self.now());
            if self.arrives_within(wait)? {
                // While nobody listens this is an error: what a dead peer looks like on one host. It is not used here.
                if let Ok(n) = self.socket.recv(&mut octets) {
                    self.detector.handle(self.now(), Input::Datagram(&octets[..n]), &mut out);
                }
            } else {
                self.detector.handle(self.now(), Input::Tick, &mut out);
            }
            if let Some((_, address)) = &self.peer {
                for (_, probe) in &out.probes {
                    let _ = self.socket.send_to(probe, address);
                }
            }
            if out.changes.iter().any(|(_, change)| until(change)) {
                break;
            }
        }
        Ok(())
    }

    /// Whether something lies in the socket, after this time at the latest. (A socket's own time limit counts in ticks of 4 ms.)
    fn arrives_within(&self, wait: Duration) -> std::io::Result<bool> {
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        Ok(poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&wait))? > 0)
    }

    fn now(&self) -> Instant {
        Instant(self.begun.elapsed().as_micros() as u64)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.peer.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The watched process: busy threads, one a processor, and one that answers heartbeats beside them.
fn watched(load: u64, incarnation: u64) -> std::io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    println!("{}", socket.local_addr()?);
    std::io::stdout().flush()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..if load == 0 { 0 } else { threads } {
        std::thread::spawn(move || busy(TURN * load as u32 / 100));
    }
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new()); // its parent is gone
        std::process::exit(0);
    });
    let mut reflector = Reflector::new(WATCHED, Incarnation(incarnation), &KEY);
    let mut lives = incarnation;
    let mut octets = [0; 256];
    loop {
        let (n, from) = socket.recv_from(&mut octets)?;
        let Some(reflected) = reflector.handle(&octets[..n]) else { continue };
        socket.send_to(&reflected.answer, from)?;
        if reflected.replaced_by.is_some() {
            lives += 1;
            reflector.rejoin(Incarnation(lives));
        }
    }
}

fn busy(work: Duration) {
    loop {
        let turn = std::time::Instant::now();
        while turn.elapsed() < work {
            std::hint::spin_loop();
        }
        std::thread::sleep(TURN.saturating_sub(turn.elapsed()));
    }
}
