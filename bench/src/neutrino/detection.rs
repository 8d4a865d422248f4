//! How fast a killed process is found, against how often a living one is accused: the curve over the interval of
//! heartbeats, at loads of all processors. Detector and watched process are processes of their own on this machine.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use whimbrel_ids::Instant;
use whimbrel_resilience::detector::{
    Change, Detector, Discriminator, Incarnation, Input, Outbox, PeerState, Reflector, Timing,
};

use super::finish;
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};

const KEY: [u8; 32] = [1; 32];
const WATCHER: Discriminator = Discriminator(1);
const WATCHED: Discriminator = Discriminator(2);
/// 12 ms find a death within 50 ms; 20 ms are the default.
const INTERVALS_MS: [u64; 7] = [1, 2, 5, 10, 12, 20, 50];
const MULTIPLIER: u8 = 3;
/// A busy thread works and sleeps within this: a turn of a control thread at load.
const TURN: Duration = Duration::from_millis(1);
/// A process starts, and is found, within this.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct Options {
    /// How long each interval is watched for false alarms, at each load.
    #[arg(long, default_value_t = Options::default().seconds)]
    seconds: u64,
    /// How often the process is killed then.
    #[arg(long, default_value_t = Options::default().kills)]
    kills: u32,
    /// Per cent of each processor's time that the watched process is busy.
    #[arg(long, value_delimiter = ',', default_values_t = Options::default().loads, value_parser = clap::value_parser!(u32).range(..=100))]
    loads: Vec<u32>,
    /// Be the watched process, in this life.
    #[arg(long, hide = true)]
    watched: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seconds: 10, kills: 10, loads: vec![0, 70, 100], watched: None }
    }
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    if let Some(incarnation) = options.watched {
        return watched(options.loads.first().copied().unwrap_or(0), incarnation);
    }
    println!(
        "detection: a process killed with SIGKILL, found by heartbeats alone, {MULTIPLIER} unanswered ones being a verdict"
    );
    println!(
        "paper: recovery is reported without the time of detection (§6.4); a closed connection, which tells at once, is not used\n"
    );
    println!("load  interval  bound   found p50  found max  false alarms  late");
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for load in &options.loads {
        let mut points = Vec::new();
        for interval in INTERVALS_MS {
            let timing =
                Timing::experiment(Duration::from_millis(interval), MULTIPLIER).map_err(io::Error::other)?;
            let mut run = Run::new(*load, timing)?;
            let Figure { found_ms, false_alarms, late } = run.measure(options)?;
            let longest = found_ms.iter().copied().fold(f64::NAN, f64::max);
            let p50 = median(found_ms);
            println!(
                "{load:>3}%  {interval:>5} ms  {:>3} ms  {p50:>6.1} ms  {longest:>6.1} ms  {false_alarms:>12}  {late:>4}",
                timing.detection_max().as_millis(),
            );
            points.push((p50, false_alarms as f64 / options.seconds.max(1) as f64 * 3600.0));
            rows.push(json!({
                "load_percent": load, "interval_ms": interval, "found_p50_ms": p50, "found_max_ms": longest,
                "false_alarms": false_alarms, "late": late, "seconds": options.seconds,
            }));
        }
        series.push(Series { name: format!("{load} % load"), points });
    }
    println!(
        "\nfalse alarms: in {} s each; late: times that the detector itself came an interval late",
        options.seconds
    );
    Plot {
        title: "False alarms against the time of detection",
        x: "ms until a killed process is found (median)",
        y: "false alarms an hour",
        log_y: false,
        axis: Axis::Numbers,
        series,
    }
    .write(plots, "neutrino-detection")?;
    finish("detection", &json!({ "curve": rows }));
    Ok(())
}

/// What came of one load and interval.
struct Figure {
    found_ms: Vec<f64>,
    false_alarms: u64,
    late: u64,
}

/// The watching side.
struct Run {
    load: u32,
    interval: Duration,
    detector: Detector,
    socket: UdpSocket,
    begun: std::time::Instant,
    peer: Option<(Child, SocketAddr)>,
    lives: u64,
}

impl Run {
    fn new(load: u32, timing: Timing) -> io::Result<Self> {
        Ok(Self {
            load,
            interval: timing.interval(),
            detector: Detector::new(WATCHER, Incarnation(1), &KEY, timing),
            socket: UdpSocket::bind("127.0.0.1:0")?,
            begun: std::time::Instant::now(),
            peer: None,
            lives: 0,
        })
    }

    fn measure(&mut self, options: &Options) -> io::Result<Figure> {
        self.detector.watch(self.now(), WATCHED);
        self.start()?;
        self.pass(Duration::from_millis(200), |_| false)?; // its threads start
        let before = self.detector.counters();
        self.pass(Duration::from_secs(options.seconds), |_| false)?;
        let after = self.detector.counters();
        let (false_alarms, late) = (after.downs - before.downs, after.late - before.late);

        let mut found_ms = Vec::new();
        for n in 0..options.kills {
            while self.detector.peer(WATCHED).is_none_or(|p| p.state != PeerState::Up) {
                if !self.pass(PATIENCE, |change| matches!(change, Change::Up(_)))? {
                    return Err(io::Error::other("the watched process does not answer"));
                }
            }
            // At another point between two probes each time.
            self.pass(self.interval + self.interval * n / options.kills, |_| false)?;
            let Some((mut child, _)) = self.peer.take() else { break };
            child.kill()?;
            let killed = self.now();
            if self.pass(PATIENCE, |change| matches!(change, Change::Down(..)))? {
                found_ms.push(self.now().since(killed).as_secs_f64() * 1e3);
            }
            child.wait()?;
            self.start()?;
        }
        Ok(Figure { found_ms, false_alarms, late })
    }

    /// Starts another life of the watched process.
    fn start(&mut self) -> io::Result<()> {
        self.lives += 1;
        let incarnation = self.lives * 1_000_000; // it rises by one with each false alarm
        let mut child = Command::new(std::env::current_exe()?)
            .args(["neutrino", "detection", "--loads", &self.load.to_string()])
            .args(["--watched", &incarnation.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut address)?;
        }
        let address = address.trim().parse().map_err(io::Error::other)?;
        self.peer = Some((child, address));
        Ok(())
    }

    /// Lets the detector run for a time, or until something changes as asked: whether it did.
    fn pass(&mut self, time: Duration, until: impl Fn(&Change) -> bool) -> io::Result<bool> {
        let end = self.now() + time;
        let mut octets = [0; 256];
        while self.now() < end {
            let mut out = Outbox::default();
            let due = self.detector.next_deadline().unwrap_or(end).min(end);
            if self.arrives_within(due.since(self.now()))? {
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
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether something lies in the socket, after this time at the latest. (A socket's own time limit counts in ticks of 4 ms.)
    fn arrives_within(&self, wait: Duration) -> io::Result<bool> {
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
fn watched(load: u32, incarnation: u64) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    println!("{}", socket.local_addr()?);
    io::stdout().flush()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..if load == 0 { 0 } else { threads } {
        std::thread::spawn(move || busy(TURN * load / 100));
    }
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new()); // its parent is gone
        std::process::exit(0);
    });
    let mut incarnation = Incarnation(incarnation);
    let mut reflector = Reflector::new(WATCHED, incarnation, &KEY);
    let mut octets = [0; 256];
    loop {
        let (n, from) = socket.recv_from(&mut octets)?;
        let Some(reflected) = reflector.handle(&octets[..n]) else { continue };
        socket.send_to(&reflected.answer, from)?;
        if reflected.replaced_by.is_some() {
            incarnation.0 += 1;
            reflector.rejoin(incarnation);
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
