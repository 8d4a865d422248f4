//! Figures 7, 8, 9 and 11: completion times, by open load. A UE begins when the clock says so, whether or not those before are done, and its time
//! counts from then.

use serde_json::{Value, json};
use whimbrel_cli::{Done, print};
use whimbrel_node::observation::Metric;
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, Step};

use super::super::load::is_carried;
use super::super::{runner, scenario, session};
use super::{GNBS, OVERLOAD, Options, REGION, SCHEMES, first_failure, handover, ratio, start, times};

/// Rates of service requests, a second: those that a core of CPFs, CTA and UPF on one processor may carry, and the first that it does not.
const SERVICE_REQUESTS: [f64; 6] = [500.0, 1000.0, 2000.0, 4000.0, 6000.0, 8000.0];
/// Rates of attaches, and of handovers.
const ATTACHES: [f64; 5] = [250.0, 500.0, 1000.0, 1500.0, 2000.0];
const HANDOVERS: [f64; 5] = [250.0, 500.0, 1000.0, 2000.0, 3000.0];
/// UEs that attach within a burst, and how long it takes, in milliseconds (Neutrino §6.3, at the size of this host).
const BURSTS: [u32; 4] = [50, 100, 250, 500];
const WITHIN_MS: f64 = 10.0;
/// Bursts of each size, and the seconds between them.
const TIMES: (u32, f64) = (5, 2.0);
/// The regions of figure 11: a handover leads from one to the other.
const REGIONS: [&str; 2] = ["load/west", "load/east"];

/// What UEs do, and of what the time is taken.
struct Procedure {
    before: Vec<Step>,
    steps: Vec<Step>,
    timed: &'static [&'static str],
}

fn service_request() -> Procedure {
    let before = vec![Step::Register, session(), Step::Idle];
    Procedure { before, steps: vec![Step::Return, Step::Idle], timed: &["return"] }
}

/// The registration and the session together are the attach; each has its time.
fn attach() -> Procedure {
    let steps = vec![Step::Register, session(), Step::SwitchOff];
    Procedure { before: Vec::new(), steps, timed: &["register", "session"] }
}

fn handing_over() -> Procedure {
    let before = vec![Step::Register, session()];
    Procedure { before, steps: vec![handover()], timed: &["handover-n2"] }
}

/// What is compared: its name, the configuration, and the regions of its CPFs.
struct Deployment {
    name: &'static str,
    cluster: String,
    cpfs: Vec<&'static str>,
}

fn schemes() -> [Deployment; 2] {
    SCHEMES.map(|s| Deployment { name: s.name(), cluster: s.cluster(), cpfs: vec![REGION; 2] })
}

/// Two regions under one CTA, every second gNB in the second: with a replica the state is at the other CPF before a handover leads there.
fn forms() -> [Deployment; 2] {
    let form = |name, replicas| {
        let cluster = format!(
            "cluster:\n  listen: \"127.0.0.1:7380\"\n  region: {}\n  other_regions: [{}]\n  areas: [{{ region: {}, gnbs: [2, 4] }}]\n  replicas: {replicas}\n  \
             heartbeat_interval: 500ms\n  heartbeat_misses: 4\n{OVERLOAD}",
            REGIONS[0], REGIONS[1], REGIONS[1]
        );
        Deployment { name, cluster, cpfs: REGIONS.to_vec() }
    };
    [form("fast", 1), form("default", 0)]
}

pub(super) fn fig7(options: &Options, core_cpu: Option<u32>) -> Done {
    let what = "figure 7 live: service requests; paper: 2.3 times as fast as an existing core, codec included, which is the same in both here: both run the \
                same inputs (bound by inputs: 1), and ours writes the log and sends checkpoints besides";
    at_rates(options, core_cpu, ("fig7", what), &service_request, &schemes(), &SERVICE_REQUESTS)
}

pub(super) fn fig8(options: &Options, core_cpu: Option<u32>) -> Done {
    let what = "figure 8 live: attaches; paper: 2.3 times as fast as an existing core, codec included, which is the same in both here: both run the same \
                inputs (bound by inputs: 1), and ours writes the log and sends checkpoints besides";
    at_rates(options, core_cpu, ("fig8", what), &attach, &schemes(), &ATTACHES)
}

pub(super) fn fig11(options: &Options, core_cpu: Option<u32>) -> Done {
    let what = "figure 11 live: N2 handovers to the CPF of another region; paper: fast up to 7 times as fast as an existing core, whose state travels \
                first, as in `default`, and whose codec is another; both run the same inputs here (bound by inputs: 1), but `default` sends the state first";
    at_rates(options, core_cpu, ("fig11", what), &handing_over, &forms(), &HANDOVERS)
}

pub(super) fn fig9(options: &Options, core_cpu: Option<u32>) -> Done {
    print(
        "figure 9 live: attaches in bursts within 10 ms; paper: up to 2 times as fast as an existing core, codec included, which is the same in both \
         here (bound by inputs: 1)\n\n",
    )?;
    let sizes = match (options.quick, options.at.as_slice()) {
        (true, _) => &[20],
        (_, []) => &BURSTS[..],
        (_, sizes) => sizes,
    };
    let (times, every_s) = if options.quick { (2, 1.0) } else { TIMES };
    let mut rows = Vec::new();
    print(&head("UEs"))?;
    for &ues in sizes {
        let arrival = ArrivalPattern::Bursts { ues, within_ms: WITHIN_MS, every_s, times };
        let both = schemes();
        let mut reports = Vec::new();
        for deployment in &both {
            reports
                .push((deployment.name, play(deployment, &attach(), arrival.clone(), ues * 2, core_cpu)?.0));
        }
        let all: Vec<_> = reports.iter().filter_map(|(name, r)| Some((*name, r.first()?))).collect();
        rows.extend(compare(f64::from(ues), &all, attach().timed)?);
    }
    end("fig9", &rows)
}

/// One procedure at rising rates, with each deployment, until none carries it.
fn at_rates(
    options: &Options,
    core_cpu: Option<u32>,
    (figure, what): (&str, &str),
    procedure: &dyn Fn() -> Procedure,
    both: &[Deployment; 2],
    rates: &[f64],
) -> Done {
    print(&format!(
        "{what}\nopen load, {} s a rate; CTA and two CPFs on one processor, gNBs and UEs on the other; microseconds\n\n",
        options.seconds
    ))?;
    let own: Vec<f64> = options.at.iter().map(|rate| f64::from(*rate)).collect();
    let rates = if own.is_empty() { rates } else { own.as_slice() };
    let rates = if options.quick { &rates[..1] } else { rates };
    let seconds = if options.quick { 1.0 } else { options.seconds.into() };
    let ues = if options.quick { 200 } else { options.ues };
    let arrival = ArrivalPattern::Rates { rates: rates.to_vec(), seconds };
    let mut played = Vec::new();
    for deployment in both {
        played.push((deployment.name, play(deployment, &procedure(), arrival.clone(), ues, core_cpu)?));
    }
    print(&head("rate/s"))?;
    let mut rows = Vec::new();
    for (i, rate) in rates.iter().enumerate() {
        let all: Vec<_> =
            played.iter().filter_map(|(name, (reports, _))| Some((*name, reports.get(i)?))).collect();
        rows.extend(compare(*rate, &all, procedure().timed)?);
    }
    for (name, (_, [fast, default])) in
        played.iter().filter(|(_, (_, moved))| moved.iter().sum::<f64>() > 0.0)
    {
        print(&format!("{name}: {fast} UEs moved at once, {default} with their state\n"))?;
    }
    end(figure, &rows)
}

fn head(of: &str) -> String {
    format!("{of:>8} {:<12} {:<10} {:>8} {:>9} {:>9}\n", "step", "scheme", "done", "p50", "p99")
}

/// The lines of one rate, or size of bursts, and the ratio of the medians.
fn compare(at: f64, reports: &[(&str, &ScenarioReport)], steps: &[&str]) -> Result<Vec<Value>, String> {
    let mut rows = Vec::new();
    for step in steps {
        let mut medians = Vec::new();
        let mut row = json!({ "at": at, "step": step });
        for (name, report) in reports {
            let Some([p50, p99]) = times(report, step) else { continue };
            let done = report.steps.get(step).map_or(0, |s| s.latency.count());
            let verdict = if is_carried(report) { String::new() } else { not_carried(report) };
            print(&format!("{at:>8} {step:<12} {name:<10} {done:>8} {p50:>9} {p99:>9}{verdict}\n"))?;
            row[*name] = json!({ "p50_us": p50, "p99_us": p99, "done": done, "carried": is_carried(report) });
            medians.push(p50 as f64);
        }
        if let [ours, other] = medians.as_slice() {
            row["times_as_fast"] = json!(ratio(*ours, *other));
            print(&format!(
                "{:>8} {step:<12} {:.2} times as fast\n",
                "",
                ratio(*ours, *other).unwrap_or(f64::NAN)
            ))?;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Why a load was not carried.
fn not_carried(report: &ScenarioReport) -> String {
    let ScenarioReport { failed, starved, barred, .. } = report;
    match failed + starved + barred {
        0 => "  not carried: p99 of a step is above 0.1 s".into(),
        _ => format!(
            "  not carried: {failed} UEs failed{}, {starved} arrivals found no free UE, {barred} were barred",
            first_failure(std::slice::from_ref(report))
        ),
    }
}

fn end(figure: &str, rows: &[Value]) -> Done {
    let figures = json!({ "live": true, "rates": rows });
    print(&format!("{}\n", json!({ "bench": format!("neutrino {figure}"), "figures": figures })))?;
    if rows.is_empty() { Err("nothing was measured".into()) } else { Ok(()) }
}

/// Ends a run after a rate that was not carried, or after a preparation in which a UE failed.
#[derive(Default)]
struct UntilNotCarried {
    /// UEs are prepared first.
    prepares: bool,
    sections: usize,
    /// The preparation is among the reports: only one in which a UE failed is.
    unprepared: bool,
    ends: bool,
}

impl Watch for UntilNotCarried {
    fn section(&mut self, before: &[ScenarioReport]) {
        self.sections += 1;
        self.unprepared |= self.prepares && self.sections == 2 && !before.is_empty();
        self.ends = self.unprepared || before.last().is_some_and(|r| r.rate.is_some() && !is_carried(r));
    }

    fn stop(&mut self) -> bool {
        self.ends
    }
}

/// Plays it on a new core. Returns the reports of the rates that were begun and ended, and how many UEs moved at once and with their state.
fn play(
    deployment: &Deployment,
    procedure: &Procedure,
    arrival: ArrivalPattern,
    ues: u32,
    core_cpu: Option<u32>,
) -> Result<(Vec<ScenarioReport>, [f64; 2]), String> {
    let playground = start(ues, &deployment.cluster, deployment.cpfs.clone(), core_cpu)?;
    let steps = scenario(ues, GNBS, arrival, procedure.steps.clone());
    let scenario = Scenario { before: procedure.before.clone(), before_rate: 1000.0, again: true, ..steps };
    let config = RunnerConfig { spin: std::time::Duration::from_micros(50), ..runner(&playground, scenario) };
    let mut watch = UntilNotCarried { prepares: !procedure.before.is_empty(), ..UntilNotCarried::default() };
    let reports = edge::run(&config, &mut watch);
    let reports = reports.map_err(|e| format!("{e}\nlog of the core: {}", playground.log()))?;
    if watch.unprepared {
        let why = first_failure(&reports);
        return Err(format!("UEs could not be prepared{why}\nlog of the core: {}", playground.log()));
    }
    playground.await_metrics();
    let client = playground.client();
    let moved =
        [client.metric(Metric::UesMoved, Some("fast"))?, client.metric(Metric::UesMoved, Some("default"))?];
    let ended = reports.into_iter().filter(|r| r.arrived > 0 && r.elapsed > std::time::Duration::ZERO);
    Ok((ended.collect(), moved))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test] // a scheme that a rate was too much for has no ratio there
    fn a_ratio_needs_both_schemes() {
        let report = |ms: u64| {
            let mut report = ScenarioReport { arrived: 1, completed: 1, ..ScenarioReport::default() };
            report.steps.entry("return").or_default().latency.add(Duration::from_millis(ms));
            report
        };
        let (fast, slow) = (report(1), report(3));
        let rows = compare(500.0, &[("ours", &fast), ("existing", &slow)], &["return"]).unwrap();
        assert_eq!(rows[0]["times_as_fast"], 3.0);
        let rows = compare(500.0, &[("ours", &fast)], &["return"]).unwrap();
        assert!(rows[0]["times_as_fast"].is_null() && rows[0]["ours"]["carried"] == true);
    }

    #[test]
    fn a_load_that_was_not_carried_has_a_reason() {
        let late =
            ScenarioReport { rate: Some(500.0), arrived: 1, completed: 1, ..ScenarioReport::default() };
        assert!(not_carried(&late).contains("p99"));
        let starved = ScenarioReport { starved: 3, ..late };
        assert!(not_carried(&starved).contains("3 arrivals found no free UE"));
    }

    #[test] // else its report would be taken for that of the first rate
    fn a_preparation_in_which_a_ue_fails_ends_the_run() {
        let failed =
            ScenarioReport { rate: Some(1000.0), arrived: 1, failed: 1, ..ScenarioReport::default() };
        for (prepares, before, ends) in
            [(true, vec![failed], true), (true, Vec::new(), false), (false, Vec::new(), false)]
        {
            let mut watch = UntilNotCarried { prepares, ..UntilNotCarried::default() };
            watch.section(&[]);
            watch.section(&before);
            assert_eq!((watch.unprepared, watch.stop()), (ends, ends));
        }
    }
}
