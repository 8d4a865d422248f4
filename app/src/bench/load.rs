//! `bench load`: one procedure, or what a trace says, as open load on a core of its own: at rising rates until it is not carried any more,
//! in bursts, or by the trace. What a procedure took counts from when it was due, so that neither a core nor a generator that falls behind
//! can hide it; how late the generator itself was is told beside.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::{Report, StepReport};
use whimbrel_ran::scenario::{Arrival, HandoverStep, Scenario, Step, Way};
use whimbrel_ran::trace;

use super::attach::{CARRIED_P99_US, pools};
use super::{cpu_time, processors, runner, scenario, session, stay_on};
use crate::command::{Done, print};
use crate::playground::{Playground, SuciScheme, Wish};

/// What phones do again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Procedure {
    /// A registration, and the phone is switched off.
    Attach,
    /// A service request with a session, and the gNB lets the phone go.
    ServiceRequest,
    /// A handover by Xn: a path switch.
    HandoverXn,
    /// A handover through the core.
    HandoverN2,
}

impl Procedure {
    /// What phones do before the first of it.
    fn before(self) -> Vec<Step> {
        match self {
            Self::Attach => Vec::new(),
            Self::ServiceRequest => vec![Step::Register, session(), Step::Idle],
            Self::HandoverXn | Self::HandoverN2 => vec![Step::Register, session()],
        }
    }

    /// It, and what makes it possible once more.
    fn steps(self) -> Vec<Step> {
        let handover = |via| Step::Handover(HandoverStep { via, to: None });
        match self {
            Self::Attach => vec![Step::Register, Step::SwitchOff],
            Self::ServiceRequest => vec![Step::Return, Step::Idle],
            Self::HandoverXn => vec![handover(Way::Xn)],
            Self::HandoverN2 => vec![handover(Way::N2)],
        }
    }
}

/// How a phone's state comes to the control function of the region into which it hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// It is there: each region backs the other one's phones.
    Fast,
    /// It travels with the handover: nobody backs anybody.
    Default,
}

/// The two regions; every second gNB is in the second.
const REGIONS: [&str; 2] = ["load/west", "load/east"];

impl Form {
    /// A cluster of both regions, as configuration.
    fn cluster(self, gnbs: u8) -> String {
        let east: Vec<String> = (2..=gnbs).step_by(2).map(|n| n.to_string()).collect();
        let backups = u8::from(self == Self::Fast);
        format!(
            "cluster:\n  listen: \"127.0.0.1:7380\"\n  region: {}\n  neighbours: [{}]\n  areas: [{{ region: {}, gnbs: [{}] }}]\n  backups: {backups}\n",
            REGIONS[0],
            REGIONS[1],
            REGIONS[1],
            east.join(", ")
        )
    }
}

#[derive(Args)]
pub(crate) struct Options {
    /// What phones do.
    #[arg(long, value_enum, default_value_t = Procedure::ServiceRequest)]
    procedure: Procedure,
    /// How often a second, one rate after the other, as long as they are carried.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 2000, 4000, 6000, 8000, 10_000, 12_000, 16_000, 20_000, 24_000])]
    rates: Vec<u32>,
    /// Seconds of each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Phones. Each is at one procedure at a time, so too few cannot keep up a rate: this is told as `starved`.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    phones: u32,
    /// gNBs.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=100))]
    gnbs: u8,
    /// The gNBs are in two regions in turn, each with a control function of its own: a handover to the next gNB leads to the other one's, which
    /// has the phone's state already, or gets it then.
    #[arg(long, value_enum, value_name = "FORM")]
    regions: Option<Form>,
    /// In place of rates: so many phones begin together.
    #[arg(long, conflicts_with = "trace")]
    burst: Option<u32>,
    /// Within so many milliseconds.
    #[arg(long, default_value_t = 100.0, requires = "burst")]
    within_ms: f64,
    /// Seconds from one burst to the next.
    #[arg(long, default_value_t = 2.0, requires = "burst")]
    every_s: f64,
    /// How many bursts.
    #[arg(long, default_value_t = 5, requires = "burst")]
    times: u32,
    /// In place of rates and procedure: a file of lines SECONDS,PHONE,PROCEDURE (docs/load.md).
    #[arg(long)]
    trace: Option<PathBuf>,
    /// The phones of the trace are registered and have a session when it begins.
    #[arg(long, requires = "trace")]
    registered: bool,
}

/// What one rate, the bursts or the trace gave.
struct Run {
    report: Report,
    /// What the core's process ran meanwhile.
    core: Duration,
    /// Real time.
    took: Duration,
}

/// Looks at the clocks when a section begins, and ends the run after one that was not carried.
struct Clocks {
    core: Vec<u32>,
    sections: Vec<(Instant, Duration)>,
    enough: bool,
}

impl Clocks {
    fn look(&mut self) {
        let ran = self.core.iter().map(|pid| cpu_time(*pid)).sum();
        self.sections.push((Instant::now(), ran));
    }
}

impl Watch for Clocks {
    fn section(&mut self, before: &[Report]) {
        self.look();
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
    let cluster = options.regions.map(|form| form.cluster(options.gnbs)).unwrap_or_default();
    let wish = Wish {
        phones: scenario.phones,
        gnbs: options.gnbs,
        configuration: pools() + &cluster,
        capture: None,
        core_cpu,
        suci: SuciScheme::Null,
        slices: vec![whimbrel_ids::SNssai::sst(1)],
        cpfs: options.regions.map(|_| REGIONS.to_vec()).unwrap_or_default(),
    };
    let playground = Playground::start(&wish)?;
    print(&format!("{}, {} phones, {} gNBs; microseconds\n", what(options), scenario.phones, options.gnbs))?;
    let config = RunnerConfig { spin: Duration::from_micros(50), ..runner(&playground, scenario) };
    let mut clocks = Clocks { core: playground.pids(), sections: Vec::new(), enough: false };
    let reports =
        edge::run(&config, &mut clocks).map_err(|e| format!("{e}\nthe core says: {}", playground.said()))?;
    clocks.look();
    let moved = Moved::told(options, &playground)?;
    drop(playground);
    let runs = runs(reports, &clocks, prepared)?;
    table(options, &runs, moved)
}

/// Phones that moved to the other region's control function, as the core counts them.
#[derive(Clone, Copy)]
struct Moved {
    fast: f64,
    default: f64,
    stayed: f64,
}

impl Moved {
    fn told(options: &Options, playground: &Playground) -> Result<Option<Self>, String> {
        if options.regions.is_none() {
            return Ok(None);
        }
        let client = playground.client();
        Ok(Some(Self {
            fast: client.metric("whimbrel_phones_moved_total{form=\"fast\"}")?,
            default: client.metric("whimbrel_phones_moved_total{form=\"default\"}")?,
            stayed: client.metric("whimbrel_moves_given_up_total")?,
        }))
    }
}

/// The sections that came to their end, each with its report.
fn runs(reports: Vec<Report>, clocks: &Clocks, prepared: bool) -> Result<Vec<Run>, String> {
    let measured = clocks.sections.get(usize::from(prepared)..).unwrap_or_default();
    if reports.len() >= measured.len() {
        let why = reports.first().and_then(|r| r.failures.first()).map_or("", |f| f.reason.as_str());
        return Err(format!("phones could not be brought to where the load begins: {why}"));
    }
    let spans = measured.windows(2).map(|w| (w[1].0 - w[0].0, w[1].1.saturating_sub(w[0].1)));
    let runs = reports.into_iter().zip(spans).map(|(report, (took, core))| Run { report, core, took });
    Ok(runs.filter(|run| run.report.arrived > 0 && run.report.elapsed > Duration::ZERO).collect())
}

fn load(options: &Options) -> Result<Scenario, String> {
    if let Some(file) = &options.trace {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let events = trace::read(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        let phones = events.iter().map(|e| e.phone).max().unwrap_or(0).saturating_add(1);
        let before = if options.registered { vec![Step::Register, session()] } else { Vec::new() };
        let traced = scenario(phones, options.gnbs, Arrival::Trace(events), Vec::new());
        return Ok(Scenario { before, ..traced });
    }
    let arrival = match options.burst {
        Some(phones) => Arrival::Bursts {
            phones,
            within_ms: options.within_ms,
            every_s: options.every_s,
            times: options.times,
        },
        None => Arrival::Rates {
            rates: options.rates.iter().map(|r| f64::from(*r)).collect(),
            seconds: options.seconds.into(),
        },
    };
    let steps = options.procedure.steps();
    let again = scenario(options.phones, options.gnbs, arrival, steps);
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
    match (&options.trace, options.burst) {
        (Some(file), _) => format!("as {} says", file.display()),
        (None, Some(n)) => format!(
            "{procedure}: bursts of {n} within {} ms, one every {} s",
            options.within_ms, options.every_s
        ),
        (None, None) => format!("{procedure}: open load, {} s a rate", options.seconds),
    }
}

/// A load is carried if every phone got on, and a rate if the slowest hundredth did so within a tenth of a second.
fn is_carried(report: &Report) -> bool {
    let slow = |s: &StepReport| report.rate.is_some() && s.latency.quantile_micros(0.99) >= CARRIED_P99_US;
    report.is_clean() && !report.steps.values().any(slow)
}

fn table(options: &Options, runs: &[Run], moved: Option<Moved>) -> Done {
    print(&format!(
        "{:>8} {:<20} {:>8} {:>8} {:>8} {:>9} {:>9} {:>10} {:>9}\n",
        "rate/s", "procedure", "done", "p50", "p99", "p99.9", "core us", "core busy", "gen. p99"
    ))?;
    for run in runs {
        let report = &run.report;
        let rate = report.rate.map_or_else(|| "-".to_owned(), |r| format!("{r:.0}"));
        for (name, step) in &report.steps {
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| step.latency.quantile_micros(q));
            let busy = run.core.as_secs_f64() / run.took.as_secs_f64().max(1e-9) * 100.0;
            print(&format!(
                "{rate:>8} {name:<20} {:>8} {p50:>8} {p99:>8} {p999:>9} {:>9.1} {busy:>9.0}% {:>9}\n",
                step.latency.count(),
                core_us(run),
                report.lag.quantile_micros(0.99),
            ))?;
        }
        if !report.is_clean() {
            let why = report.failures.first().map_or("", |f| f.reason.as_str());
            print(&format!(
                "{rate:>8} not carried: {} failed, {} found no phone free, {} breaches; {why}\n",
                report.failed, report.starved, report.violated
            ))?;
        }
    }
    print(
        "core us: what the core's process ran, for each arrival with all that it did; gen. p99: how late the generator let phones begin\n",
    )?;
    if let Some(Moved { fast, default, stayed }) = moved {
        print(&format!(
            "phones that moved to the other region's control function: {fast} at once, {default} with their state; {stayed} stayed\n"
        ))?;
    }
    let carried: Vec<&Run> = runs.iter().filter(|r| is_carried(&r.report)).collect();
    print(&format!("{}\n", line(options, runs, &carried, moved)))?;
    match carried.is_empty() {
        true => Err("the load was not carried".into()),
        false => Ok(()),
    }
}

/// Time of the core's process for one arrival.
fn core_us(run: &Run) -> f64 {
    run.core.as_secs_f64() * 1e6 / run.report.arrived.max(1) as f64
}

fn line(options: &Options, runs: &[Run], carried: &[&Run], moved: Option<Moved>) -> String {
    let last = carried.last();
    let figures: Vec<Value> = runs
        .iter()
        .map(|run| {
            let mut figures = run.report.json();
            figures["core_us"] = json!(core_us(run));
            figures["core_busy"] = json!(run.core.as_secs_f64() / run.took.as_secs_f64().max(1e-9));
            figures["generator_late_us"] = json!(run.report.lag.quantile_micros(0.99));
            for part in ["failures", "violations", "streams", "handover_gaps_us"] {
                figures.as_object_mut().map(|f| f.remove(part));
            }
            figures
        })
        .collect();
    json!({"bench": "load", "figures": {
        "what": what(options),
        "carried_per_s": last.and_then(|r| r.report.rate),
        "per_core_second": last.map(|r| 1e6 / core_us(r)),
        "moved": moved.map(|m| json!({"fast": m.fast, "default": m.default, "stayed": m.stayed})),
        "runs": figures,
    }})
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rate: Option<f64>, arrived: u64) -> Report {
        Report { rate, arrived, completed: arrived, elapsed: Duration::from_secs(1), ..Report::default() }
    }

    /// Clocks that were looked at so often, a second after each other; the core ran a tenth of it.
    fn looked(times: u32) -> Clocks {
        let begin = Instant::now();
        let at = |n: u32| (begin + Duration::from_secs(n.into()), Duration::from_millis(100) * n);
        Clocks { core: Vec::new(), sections: (0..times).map(at).collect(), enough: false }
    }

    #[test]
    fn each_rate_has_its_time_and_what_came_before_has_none() {
        let rates = vec![report(Some(10.0), 10), report(Some(20.0), 20)];
        let runs = runs(rates, &looked(4), true).unwrap();
        assert_eq!(runs.iter().map(core_us).collect::<Vec<_>>(), [10_000.0, 5000.0]);
    }

    #[test]
    fn a_rate_that_has_only_begun_does_not_count() {
        let begun = Report { elapsed: Duration::ZERO, ..report(Some(20.0), 1) };
        assert_eq!(runs(vec![report(Some(10.0), 10), begun], &looked(3), false).unwrap().len(), 1);
    }

    #[test]
    fn phones_that_do_not_come_to_where_the_load_begins_are_told() {
        let failed = Report { failed: 1, ..report(Some(10.0), 10) };
        assert!(runs(vec![failed, report(Some(10.0), 10)], &looked(3), true).is_err());
    }

    #[test]
    fn a_rate_is_judged_by_its_slowest_and_bursts_by_whether_all_got_on() {
        assert!(is_carried(&report(Some(10.0), 10)) && is_carried(&report(None, 10)));
        for rate in [Some(10.0), None] {
            assert!(!is_carried(&Report { failed: 1, ..report(rate, 10) }));
        }
    }
}
