//! `bench detection`: the time to detect a CPF that hangs, and the false alarms, over the interval of heartbeats and at
//! several loads; then the same of S-BFD. It runs the program itself: a CTA, two CPFs, and gNBs and UEs that make service requests.

mod peers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde_json::{Value, json};
use whimbrel_cli::{Done, print};
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, Step};

use super::attach::pools;
use super::{processors, runner, scenario, session, stay_on};
use crate::playground::{Playground, SuciScheme, Wish};

/// With 12 ms a failure is found within 50 ms.
const INTERVALS_MS: [u64; 7] = [1, 2, 5, 10, 12, HEARTBEAT_MS, 50];
/// Heartbeats without an answer after which a CPF is declared lost.
const MISSES: u8 = 3;
/// Probes of S-BFD likewise.
const SBFD_MULTIPLIER: u8 = 3;
/// Heartbeat interval of a configuration that does not say otherwise.
const HEARTBEAT_MS: u64 = 20;
/// How long the load runs before anything is counted.
const WARM_UP: Duration = Duration::from_millis(500);
/// Waiting time for the detection; with the longest interval it takes 0.2 s.
const DETECTED_WITHIN: Duration = Duration::from_secs(10);
/// A peer that is not up gets one S-BFD probe a second.
const PROBED_WITHIN: Duration = Duration::from_millis(1_200);
/// The region of the CPFs.
const REGION: &str = "load/home";

#[derive(Args)]
pub(crate) struct Options {
    /// Seconds for which false alarms are counted at each interval and load.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How often a CPF is made to hang.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    hangs: u32,
    /// Loads, in percent of the service requests that are carried.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 70, 100], value_parser = clap::value_parser!(u32).range(..=100))]
    loads: Vec<u32>,
    /// Heartbeat intervals in milliseconds.
    #[arg(long, value_delimiter = ',', default_values_t = INTERVALS_MS, value_parser = clap::value_parser!(u64).range(1..=1000))]
    intervals_ms: Vec<u64>,
    /// Service requests per second that are carried; default: measured first.
    #[arg(long)]
    carried: Option<u32>,
    /// Intervals of S-BFD probes in milliseconds.
    #[arg(long, value_delimiter = ',', default_values_t = SBFD_INTERVALS_MS, value_parser = clap::value_parser!(u64).range(1..=1000))]
    sbfd_intervals_ms: Vec<u64>,
    /// What detects a CPF that hangs.
    #[arg(long, value_delimiter = ',', default_values_t = Detector::ALL)]
    detectors: Vec<Detector>,
    /// Leave out the core: measure S-BFD with one peer alone.
    #[arg(long)]
    peers_only: bool,
    /// Number of UEs.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    ues: u32,
}

/// Intervals of S-BFD; 5 ms is the documented one.
const SBFD_INTERVALS_MS: [u64; 4] = [1, 2, 5, 10];

/// What detects a CPF that hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Detector {
    /// Heartbeats, without S-BFD.
    Heartbeats,
    /// S-BFD on a thread under SCHED_FIFO, beside heartbeats that are slower.
    Sbfd,
    /// S-BFD on an ordinary thread, likewise.
    SbfdOrdinary,
}

impl std::fmt::Display for Detector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl Detector {
    const ALL: [Self; 3] = [Self::Heartbeats, Self::Sbfd, Self::SbfdOrdinary];

    fn name(self) -> &'static str {
        match self {
            Self::Heartbeats => "heartbeats",
            Self::Sbfd => "sbfd",
            Self::SbfdOrdinary => "sbfd-ordinary",
        }
    }

    /// The line that the CTA logs when a CPF does not answer.
    fn logged(self) -> &'static str {
        match self {
            Self::Heartbeats => "heartbeats are not answered",
            Self::Sbfd | Self::SbfdOrdinary => "S-BFD probes are not answered",
        }
    }

    /// Configuration of the core for this detector.
    fn configuration(self, interval_ms: u64) -> String {
        let cluster = |heartbeat_ms| {
            format!(
                "cluster: {{ listen: \"127.0.0.1:7380\", region: {REGION}, heartbeat_interval: {heartbeat_ms}ms, heartbeat_misses: {MISSES}, \
                 heartbeat_experiment: true }}\n"
            )
        };
        let sbfd = |real_time| {
            format!(
                "sbfd: {{ interval: {interval_ms}ms, multiplier: {SBFD_MULTIPLIER}, real_time: {real_time} }}\n"
            )
        };
        // At the same interval either detector could be the first.
        let slower = HEARTBEAT_MS.max(3 * interval_ms);
        match self {
            Self::Heartbeats => cluster(interval_ms),
            Self::Sbfd => cluster(slower) + &sbfd(true),
            Self::SbfdOrdinary => cluster(slower) + &sbfd(false),
        }
    }

    fn intervals_ms(self, options: &Options) -> &[u64] {
        match self {
            Self::Heartbeats => &options.intervals_ms,
            Self::Sbfd | Self::SbfdOrdinary => &options.sbfd_intervals_ms,
        }
    }
}

/// The results for one detector, interval and load.
struct Figure {
    detector: Detector,
    load: u32,
    interval_ms: u64,
    found_ms: Vec<f64>,
    false_alarms: usize,
}

impl Figure {
    /// Median and longest detection time; NaN if false alarms left no CPF to stop.
    fn found(&self) -> (f64, f64) {
        let mut sorted = self.found_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |n: usize| sorted.get(n).copied().unwrap_or(f64::NAN);
        (at(sorted.len() / 2), at(sorted.len().saturating_sub(1)))
    }

    /// A hanging CPF is found within this time: the last answer may have come as late as the next heartbeat was due.
    fn bound_ms(&self) -> u64 {
        let misses = match self.detector {
            Detector::Heartbeats => MISSES,
            Detector::Sbfd | Detector::SbfdOrdinary => SBFD_MULTIPLIER,
        };
        self.interval_ms * (u64::from(misses) + 1)
    }
}

pub(crate) fn run(options: &Options) -> Done {
    let (core_cpu, own_cpu) = processors();
    if options.peers_only {
        return print(&format!("{}\n", line(options, 0, &[], peers::run(options)?)));
    }
    // Before this process stays on one processor, with its threads.
    let peers = peers::run(options)?;
    stay_on(own_cpu);
    print(
        "\na CPF that hangs (SIGSTOP), found by heartbeats, or by S-BFD before them; a loaded CTA asks, loaded CPFs answer\n",
    )?;
    let carried = match options.carried {
        Some(carried) => carried,
        None => carried_by(options, core_cpu)?,
    };
    print(&format!(
        "100 % load: {carried} service requests a second; {MISSES} heartbeats without an answer are a verdict; false alarms in {} s each\n\n",
        options.seconds
    ))?;
    print("detector       load  interval   bound   found p50  found max  false alarms\n")?;
    let mut figures = Vec::new();
    for detector in &options.detectors {
        for load in &options.loads {
            for interval_ms in detector.intervals_ms(options) {
                let figure =
                    one(options, core_cpu, (*load, carried * load / 100), (*detector, *interval_ms))?;
                let (p50, longest) = figure.found();
                print(&format!(
                    "{detector:<13}  {load:>3}%  {interval_ms:>5} ms  {:>3} ms  {p50:>6.1} ms  {longest:>6.1} ms  {:>12}\n",
                    figure.bound_ms(),
                    figure.false_alarms
                ))?;
                figures.push(figure);
            }
        }
    }
    print(&verdict(&figures))?;
    print(&format!("{}\n", line(options, carried, &figures, peers)))
}

/// Requirement beyond the paper: no false alarm at 70 % load with heartbeats that find a failure within 50 ms.
fn verdict(figures: &[Figure]) -> String {
    let asked = figures.iter().filter(|f| f.detector == Detector::Heartbeats);
    let asked = asked.filter(|f| f.load == 70 && (40..=50).contains(&f.bound_ms()));
    asked
        .map(|f| {
            format!(
                "a {} ms detector at 70 % load: {} false alarms (aim: none)\n",
                f.bound_ms(),
                f.false_alarms
            )
        })
        .collect()
}

fn line(options: &Options, carried: u32, figures: &[Figure], peers: Vec<Value>) -> String {
    let of = |detectors: &[Detector]| -> Vec<Value> {
        let of_these = figures.iter().filter(|f| detectors.contains(&f.detector));
        let figure = |f: &Figure| {
            let (p50, longest) = f.found();
            json!({
                "detector": f.detector.name(), "load_percent": f.load, "interval_ms": f.interval_ms, "bound_ms": f.bound_ms(),
                "found_p50_ms": p50, "found_max_ms": longest, "false_alarms": f.false_alarms, "seconds": options.seconds,
            })
        };
        of_these.map(figure).collect()
    };
    let (curve, sbfd) = (of(&[Detector::Heartbeats]), of(&[Detector::Sbfd, Detector::SbfdOrdinary]));
    let figures = json!({"carried_per_s": carried, "curve": curve, "sbfd": sbfd, "sbfd_peer": peers});
    json!({"bench": "detection", "figures": figures}).to_string()
}

fn playground(
    options: &Options,
    core_cpu: Option<u32>,
    (detector, interval_ms): (Detector, u64),
) -> Result<Playground, String> {
    Playground::start(&Wish {
        ues: options.ues,
        gnbs: 4,
        configuration: pools() + &detector.configuration(interval_ms),
        capture: None,
        core_cpu,
        suci: SuciScheme::Null,
        slices: vec![whimbrel_ids::SNssai::sst(1)],
        unit: false,
        added_ues: 0,
        data_limit: None,
        keeps_ues: false,
        cpfs: vec![REGION; 2],
    })
}

fn service_requests(
    options: &Options,
    playground: &Playground,
    rates: Vec<f64>,
    seconds: f64,
) -> RunnerConfig {
    let again =
        scenario(options.ues, 4, ArrivalPattern::Rates { rates, seconds }, vec![Step::Return, Step::Idle]);
    let before = vec![Step::Register, session(), Step::Idle];
    let scenario = Scenario { before, again: true, ..again };
    RunnerConfig { spin: Duration::from_micros(50), ..runner(playground, scenario) }
}

/// Ends the run on request, or after a rate that was not carried.
struct Until<'a> {
    on: &'a AtomicBool,
    over: &'a AtomicBool,
    sections: u32,
    carried: Option<f64>,
    enough: bool,
}

impl Watch for Until<'_> {
    fn section(&mut self, before: &[ScenarioReport]) {
        self.sections += 1;
        self.on.store(self.sections > 1, Ordering::Release);
        if let Some(report) = before.last().filter(|r| r.rate.is_some()) {
            match super::load::is_carried(report) {
                true => self.carried = report.rate,
                false => self.enough = true,
            }
        }
    }

    fn stop(&mut self) -> bool {
        self.enough || self.over.load(Ordering::Acquire)
    }
}

/// Service requests per second that such a cluster carries on this host.
fn carried_by(options: &Options, core_cpu: Option<u32>) -> Result<u32, String> {
    let playground = playground(options, core_cpu, (Detector::Heartbeats, HEARTBEAT_MS))?;
    let rates = (1..=40).map(|n| f64::from(n) * 500.0).collect();
    let (on, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut until = Until { on: &on, over: &over, sections: 0, carried: None, enough: false };
    let config = service_requests(options, &playground, rates, 1.0);
    edge::run(&config, &mut until).map_err(|e| format!("{e}\nlog of the core: {}", playground.log()))?;
    until
        .carried
        .map(|rate| rate as u32)
        .ok_or_else(|| "not even 500 service requests a second were carried".into())
}

fn one(
    options: &Options,
    core_cpu: Option<u32>,
    (load, rate): (u32, u32),
    (detector, interval_ms): (Detector, u64),
) -> Result<Figure, String> {
    let playground = playground(options, core_cpu, (detector, interval_ms))?;
    if rate == 0 {
        let (found_ms, false_alarms) = watch(options, &playground, detector)?;
        return Ok(Figure { detector, load, interval_ms, found_ms, false_alarms });
    }
    let config = service_requests(options, &playground, vec![rate.into()], 3600.0);
    let (on, over) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let mut until = Until { on, over, sections: 0, carried: None, enough: false };
    let (reports, watched) = std::thread::scope(|scope| {
        let playground = &playground;
        let watcher = scope.spawn(move || {
            while !on.load(Ordering::Acquire) && !over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(WARM_UP);
            let watched = watch(options, playground, detector);
            over.store(true, Ordering::Release);
            watched
        });
        let reports = edge::run(&config, &mut until);
        over.store(true, Ordering::Release);
        (reports, watcher.join().unwrap_or_else(|_| Err("the watching thread has failed".into())))
    });
    reports.map_err(|e| format!("{e}\nlog of the core: {}", playground.log()))?;
    let (found_ms, false_alarms) = watched?;
    Ok(Figure { detector, load, interval_ms, found_ms, false_alarms })
}

/// Counts false alarms, then stops CPFs with SIGSTOP. Returns the milliseconds until each was detected.
fn watch(
    options: &Options,
    playground: &Playground,
    detector: Detector,
) -> Result<(Vec<f64>, usize), String> {
    let before = unanswered_at(playground, detector).len();
    std::thread::sleep(Duration::from_secs(options.seconds.into()));
    let false_alarms = unanswered_at(playground, detector).len() - before;
    let mut found = Vec::new();
    for n in 0..options.hangs {
        if playground.await_members().is_err() {
            break; // false alarms keep the CPFs from staying connected
        }
        // S-BFD is up within a second after a CPF has joined.
        if detector != Detector::Heartbeats {
            std::thread::sleep(PROBED_WITHIN);
        }
        let known = unanswered_at(playground, detector).len();
        let (hung, at) = (playground.pids()[1 + n as usize % 2], SystemTime::now());
        signal(hung, "STOP")?;
        let logged = first_after(playground, detector, known);
        signal(hung, "CONT")?;
        found.push(milliseconds_between(at, logged?));
    }
    Ok((found, false_alarms))
}

fn signal(pid: u32, name: &str) -> Result<(), String> {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    match sent {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("SIG{name} cannot be sent to a CPF: {other:?}")),
    }
}

/// When the CTA logged that a CPF does not answer, in microseconds since midnight.
fn unanswered_at(playground: &Playground, detector: Detector) -> Vec<u64> {
    playground.log().lines().filter(|line| line.contains(detector.logged())).filter_map(time_of_day).collect()
}

fn first_after(playground: &Playground, detector: Detector, known: usize) -> Result<u64, String> {
    let begin = Instant::now();
    while begin.elapsed() < DETECTED_WITHIN {
        if let Some(at) = unanswered_at(playground, detector).get(known) {
            return Ok(*at);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("a CPF that hangs is not found: {}", playground.log()))
}

/// The time in a log line `2026-11-23T09:37:01.123456Z …`, in microseconds since midnight.
pub(super) fn time_of_day(line: &str) -> Option<u64> {
    let (_, time) = line.split_once('T')?;
    let (hours, rest) = (time.get(..2)?, time.get(3..)?);
    let (minutes, seconds) = (rest.get(..2)?, rest.get(3..)?.split_once('Z')?.0);
    let seconds: f64 = seconds.parse().ok()?;
    let whole = hours.parse::<u64>().ok()? * 3600 + minutes.parse::<u64>().ok()? * 60;
    Some(whole * 1_000_000 + (seconds * 1e6) as u64)
}

pub(super) fn milliseconds_between(at: SystemTime, logged: u64) -> f64 {
    const DAY_US: u64 = 86_400_000_000;
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = (since.as_micros() % u128::from(DAY_US)) as u64;
    ((logged + DAY_US - at) % DAY_US) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_the_log_also_over_midnight() {
        let line = "2026-11-23T09:37:01.123456Z  WARN heartbeats are not answered peer=cpf-1";
        let us = time_of_day(line).unwrap();
        assert_eq!(us, ((9 * 60 + 37) * 60 + 1) * 1_000_000 + 123_456);
        assert_eq!(time_of_day("heartbeats are not answered"), None);
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(us - 1500);
        assert!((milliseconds_between(at, us) - 1.5).abs() < 1e-9);
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(86_399);
        assert!((milliseconds_between(late, 0) - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn the_verdict_is_for_the_required_interval_and_load() {
        let figure = |load, interval_ms, false_alarms| Figure {
            detector: Detector::Heartbeats,
            load,
            interval_ms,
            found_ms: vec![1.0, 3.0, 2.0],
            false_alarms,
        };
        let text = verdict(&[figure(70, 12, 0), figure(100, 12, 9), figure(70, 20, 9)]);
        assert_eq!(text, "a 48 ms detector at 70 % load: 0 false alarms (aim: none)\n");
        assert_eq!(figure(70, 12, 0).found(), (2.0, 3.0));
    }
}
