//! `bench load`: one procedure, or a trace, as open load on a new core: at rising rates until a rate is not carried, in bursts, or by
//! the trace. The latency of a procedure counts from when it was due, so that neither a core nor a generator that falls behind can hide
//! it; the lateness of the generator is reported too.

mod kills;
mod table;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use whimbrel_cli::{Done, print};
use whimbrel_node::observation::Metric;
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, HandoverKind, HandoverStep, Scenario, Step};
use whimbrel_ran::trace;

use super::attach::{CARRIED_P99_US, pools};
use super::{cpu_time, processors, runner, scenario, session, stay_on};
use crate::playground::{Playground, SuciScheme, Wish};
use kills::Kills;
pub(super) use table::is_carried;

/// The procedure that UEs repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Procedure {
    /// A registration, then the UE is switched off.
    Attach,
    /// A service request with a session, then AN release.
    ServiceRequest,
    /// An Xn handover (path switch).
    HandoverXn,
    /// An N2 handover.
    HandoverN2,
}

impl Procedure {
    /// Steps before the first repetition.
    fn before(self) -> Vec<Step> {
        match self {
            Self::Attach => Vec::new(),
            Self::ServiceRequest => vec![Step::Register, session(), Step::Idle],
            Self::HandoverXn | Self::HandoverN2 => vec![Step::Register, session()],
        }
    }

    /// Steps of one repetition.
    fn steps(self) -> Vec<Step> {
        let handover = |via| Step::Handover(HandoverStep { via, to: None });
        match self {
            Self::Attach => vec![Step::Register, Step::SwitchOff],
            Self::ServiceRequest => vec![Step::Return, Step::Idle],
            Self::HandoverXn => vec![handover(HandoverKind::Xn)],
            Self::HandoverN2 => vec![handover(HandoverKind::N2)],
        }
    }
}

/// How the state of a UE gets to the CPF of the target region in a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The target has it already: each region holds replicas of the other region's UEs.
    Fast,
    /// It is sent with the handover: there are no replicas.
    Default,
}

/// The region of the CPFs, if there is only one.
const REGION: &str = "load/home";
/// The two regions; every second gNB is in the second.
const REGIONS: [&str; 2] = ["load/west", "load/east"];

impl Form {
    /// The configuration of a cluster of both regions.
    fn cluster(self, gnbs: u8) -> String {
        let east: Vec<String> = (2..=gnbs).step_by(2).map(|n| n.to_string()).collect();
        let replicas = u8::from(self == Self::Fast);
        format!(
            "cluster:\n  listen: \"127.0.0.1:7380\"\n  region: {}\n  other_regions: [{}]\n  areas: [{{ region: {}, gnbs: [{}] }}]\n  replicas: {replicas}\n",
            REGIONS[0],
            REGIONS[1],
            REGIONS[1],
            east.join(", ")
        )
    }
}

#[derive(Args)]
pub(crate) struct Options {
    /// Procedure to measure.
    #[arg(long, value_enum, default_value_t = Procedure::ServiceRequest)]
    procedure: Procedure,
    /// Rates per second, one after the other, as long as they are carried.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 2000, 4000, 6000, 8000, 10_000, 12_000, 16_000, 20_000, 24_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
    /// Seconds of each rate.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Number of UEs. Each runs one procedure at a time; arrivals that find no free UE are reported as `starved`.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    ues: u32,
    /// Number of gNBs.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=100))]
    gnbs: u8,
    /// Put the gNBs in two regions in turn, each with its own CPF, so that a handover to the next gNB moves the UE to the other CPF, which
    /// has the UE's state already (fast) or gets it then (default).
    #[arg(long, value_enum, value_name = "FORM")]
    regions: Option<Form>,
    /// Number of CPFs as processes of their own; with two or more, each UE has a replica. 0: the core is one process.
    #[arg(long, default_value_t = 0, conflicts_with = "regions", value_parser = clap::value_parser!(u8).range(0..=32))]
    cpfs: u8,
    /// Kill one of the CPFs every this many seconds, and start a new one in its place.
    #[arg(long, value_name = "SECONDS", requires = "cpfs", value_parser = clap::value_parser!(u32).range(1..=600))]
    kill_every: Option<u32>,
    /// Instead of rates: bursts of this many UEs.
    #[arg(long, conflicts_with = "trace", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    burst: Option<u32>,
    /// Duration of a burst in milliseconds.
    #[arg(long, default_value_t = 100.0, requires = "burst")]
    within_ms: f64,
    /// Seconds from one burst to the next.
    #[arg(long, default_value_t = 2.0, requires = "burst")]
    every_s: f64,
    /// Number of bursts.
    #[arg(long, default_value_t = 5, requires = "burst", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    times: u32,
    /// Instead of rates and procedure: a trace file with lines SECONDS,UE,PROCEDURE (docs/load.md).
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Register the UEs of the trace and establish a session for each before it begins.
    #[arg(long, requires = "trace")]
    registered: bool,
}

/// The results of one rate, of the bursts or of the trace.
struct Run {
    report: ScenarioReport,
    /// CPU time of the core's processes meanwhile.
    core: CpuTimes,
    /// Elapsed time of the run.
    took: Duration,
}

/// Processor time of the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CpuTimes {
    /// Of all its processes.
    all: Duration,
    /// Of its CPFs, if they are processes of their own.
    cpfs: Duration,
}

impl CpuTimes {
    /// Up to now. The first process is the CTA, or the only process.
    fn of(pids: &[u32]) -> Self {
        let time = |pids: &[u32]| pids.iter().map(|pid| cpu_time(*pid)).sum();
        Self { all: time(pids), cpfs: time(pids.get(1..).unwrap_or_default()) }
    }

    fn since(self, earlier: Self) -> Self {
        Self { all: self.all.saturating_sub(earlier.all), cpfs: self.cpfs.saturating_sub(earlier.cpfs) }
    }
}

/// Reads the CPU times when a section begins, and ends the run after a section that was not carried.
struct Clocks<'a> {
    core: Vec<u32>,
    sections: Vec<(Instant, CpuTimes)>,
    /// Number of sections before the load.
    before: usize,
    /// The load is on.
    on: &'a AtomicBool,
    enough: bool,
}

impl Clocks<'_> {
    fn look(&mut self) {
        self.sections.push((Instant::now(), CpuTimes::of(&self.core)));
    }
}

impl Watch for Clocks<'_> {
    fn section(&mut self, before: &[ScenarioReport]) {
        self.look();
        self.on.store(self.sections.len() > self.before, Ordering::Release);
        self.enough = before.last().is_some_and(|r| r.rate.is_some() && !is_carried(r));
    }

    fn stop(&mut self) -> bool {
        self.enough
    }
}

pub(crate) fn run(options: &Options) -> Done {
    let (core_cpu, own_cpu) = processors();
    stay_on(own_cpu);
    let scenario = load(options)?;
    let prepared = !scenario.before.is_empty();
    if options.regions.is_some() && options.gnbs % 2 == 1 {
        return Err("an even number of gNBs, please: those of two regions in turn".into());
    }
    if options.kill_every.is_some() && options.cpfs < 2 {
        return Err("--kill-every needs at least two CPFs (--cpfs), so that a replica can take over".into());
    }
    let (cluster, cpfs) = match (options.regions, options.cpfs) {
        (Some(form), _) => (form.cluster(options.gnbs), REGIONS.to_vec()),
        (None, 0) => Default::default(),
        (None, n) => (pool_of(n), vec![REGION; n.into()]),
    };
    let wish = Wish {
        ues: scenario.ues,
        gnbs: options.gnbs,
        configuration: pools() + &cluster,
        capture: None,
        core_cpu,
        suci: SuciScheme::Null,
        slices: vec![whimbrel_ids::SNssai::sst(1)],
        cpfs,
        unit: false,
        added_ues: 0,
        data_limit: None,
        keeps_ues: false,
    };
    let mut playground = Playground::start(&wish)?;
    print(&format!("{}, {} UEs, {} gNBs; microseconds\n", what(options), scenario.ues, options.gnbs))?;
    let config = RunnerConfig { spin: Duration::from_micros(50), ..runner(&playground, scenario) };
    let (on, over) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let before = usize::from(prepared);
    // The CPU time of a killed process cannot be read.
    let core = if options.kill_every.is_some() { Vec::new() } else { playground.pids() };
    let mut clocks = Clocks { core, sections: Vec::new(), before, on, enough: false };
    let (reports, killed) = std::thread::scope(|scope| {
        let playground = &mut playground;
        let every = options.kill_every.map(|s| Duration::from_secs(s.into()));
        let killer = every.map(|every| scope.spawn(move || kills::kill(playground, every, on, over)));
        let reports = edge::run(&config, &mut clocks);
        over.store(true, Ordering::Release);
        (
            reports,
            killer.map(|k| k.join().unwrap_or_else(|_| Err("the thread that kills CPFs has failed".into()))),
        )
    });
    clocks.look();
    let reports = reports.map_err(|e| format!("{e}\nlog of the core: {}", playground.log()))?;
    let kills = killed.transpose()?.map(|killed| Kills::read(killed, &playground)).transpose()?;
    let moved = Moved::read(options, &playground)?;
    drop(playground);
    let runs = runs(reports, &clocks)?;
    table::print_all(options, &runs, moved, kills)
}

/// The configuration of one region with this number of CPFs.
fn pool_of(cpfs: u8) -> String {
    format!("cluster: {{ listen: \"127.0.0.1:7380\", region: {REGION}, replicas: {} }}\n", u8::from(cpfs > 1))
}

/// UEs that moved to the other region's CPF, as the core counts them.
#[derive(Clone, Copy)]
struct Moved {
    fast: f64,
    default: f64,
    stayed: f64,
}

impl Moved {
    fn read(options: &Options, playground: &Playground) -> Result<Option<Self>, String> {
        if options.regions.is_none() {
            return Ok(None);
        }
        playground.await_metrics();
        let client = playground.client();
        Ok(Some(Self {
            fast: client.metric(Metric::UesMoved, Some("fast"))?,
            default: client.metric(Metric::UesMoved, Some("default"))?,
            stayed: client.metric(Metric::UeMovesAbandoned, None)?,
        }))
    }
}

/// The completed sections, each with its report.
fn runs(reports: Vec<ScenarioReport>, clocks: &Clocks<'_>) -> Result<Vec<Run>, String> {
    let measured = clocks.sections.get(clocks.before..).unwrap_or_default();
    if reports.len() >= measured.len() {
        let why = reports.first().and_then(|r| r.failures.first()).map_or("", |f| f.reason.as_str());
        return Err(format!("UEs could not be brought to where the load begins: {why}"));
    }
    let spans = measured.windows(2).map(|w| (w[1].0 - w[0].0, w[1].1.since(w[0].1)));
    let runs = reports.into_iter().zip(spans).map(|(report, (took, core))| Run { report, core, took });
    Ok(runs.filter(|run| run.report.arrived > 0 && run.report.elapsed > Duration::ZERO).collect())
}

fn load(options: &Options) -> Result<Scenario, String> {
    if let Some(file) = &options.trace {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let events = trace::read(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        let ues = events.iter().map(|e| e.ue).max().unwrap_or(0).saturating_add(1);
        let before = if options.registered { vec![Step::Register, session()] } else { Vec::new() };
        let traced = scenario(ues, options.gnbs, ArrivalPattern::Trace(events), Vec::new());
        return Ok(Scenario { before, ..traced });
    }
    let arrival = match options.burst {
        Some(ues) => ArrivalPattern::Bursts {
            ues,
            within_ms: options.within_ms,
            every_s: options.every_s,
            times: options.times,
        },
        None => ArrivalPattern::Rates {
            rates: options.rates.iter().map(|r| f64::from(*r)).collect(),
            seconds: options.seconds.into(),
        },
    };
    let steps = options.procedure.steps();
    let again = scenario(options.ues, options.gnbs, arrival, steps);
    Ok(Scenario { before: options.procedure.before(), again: true, ..again })
}

fn what(options: &Options) -> String {
    let procedure =
        options.procedure.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
    let procedure = match options.regions {
        None => procedure,
        Some(Form::Fast) => format!("{procedure}, two regions, fast form"),
        Some(Form::Default) => format!("{procedure}, two regions, default form"),
    };
    let procedure = match options.cpfs {
        0 => procedure,
        n => format!("{procedure}, {n} CPFs"),
    };
    match (&options.trace, options.burst) {
        (Some(file), _) => format!("as {} says", file.display()),
        (None, Some(n)) => format!(
            "{procedure}: bursts of {n} within {} ms, one every {} s",
            options.within_ms, options.every_s
        ),
        (None, None) => format!("{procedure}: open load, {} s a rate", options.seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rate: Option<f64>, arrived: u64) -> ScenarioReport {
        ScenarioReport {
            rate,
            arrived,
            completed: arrived,
            elapsed: Duration::from_secs(1),
            ..ScenarioReport::default()
        }
    }

    /// CPU times that were read this many times, one second apart; the core ran for a tenth of the time.
    fn clocks_read(times: u32, before: usize) -> Clocks<'static> {
        static ON: AtomicBool = AtomicBool::new(false);
        let begin = Instant::now();
        let ran = |n: u32| CpuTimes { all: Duration::from_millis(100) * n, cpfs: Duration::ZERO };
        let sections = (0..times).map(|n| (begin + Duration::from_secs(n.into()), ran(n))).collect();
        Clocks { core: vec![0], sections, before, on: &ON, enough: false }
    }

    #[test]
    fn each_rate_has_a_cpu_time_and_the_preparation_has_none() {
        let rates = vec![report(Some(10.0), 10), report(Some(20.0), 20)];
        let runs = runs(rates, &clocks_read(4, 1)).unwrap();
        assert_eq!(runs.iter().map(table::core_us).collect::<Vec<_>>(), [Some(10_000.0), Some(5000.0)]);
    }

    #[test]
    fn an_unfinished_rate_is_not_reported() {
        let begun = ScenarioReport { elapsed: Duration::ZERO, ..report(Some(20.0), 1) };
        assert_eq!(runs(vec![report(Some(10.0), 10), begun], &clocks_read(3, 0)).unwrap().len(), 1);
    }

    #[test]
    fn ues_that_fail_before_the_load_begins_are_reported() {
        let failed = ScenarioReport { failed: 1, ..report(Some(10.0), 10) };
        assert!(runs(vec![failed, report(Some(10.0), 10)], &clocks_read(3, 1)).is_err());
    }

    #[test]
    fn a_rate_is_carried_by_its_99th_percentile_and_bursts_by_completion() {
        assert!(is_carried(&report(Some(10.0), 10)) && is_carried(&report(None, 10)));
        for rate in [Some(10.0), None] {
            assert!(!is_carried(&ScenarioReport { failed: 1, ..report(rate, 10) }));
            assert!(!is_carried(&ScenarioReport { completed: 9, barred: 1, ..report(rate, 10) }));
        }
    }
}
