//! The output of `bench load`: a line for each rate and step, the figures of the killed CPFs, and one line of JSON.

use serde_json::{Value, json};
use whimbrel_cli::{Done, print};
use whimbrel_ran::report::{ScenarioReport, StepReport};

use super::{CARRIED_P99_US, Kills, Moved, Options, Run, what};

/// A load is carried if no UE failed, and a rate if also the 99th percentile is at most 0.1 s.
pub(in crate::bench) fn is_carried(report: &ScenarioReport) -> bool {
    let slow = |s: &StepReport| report.rate.is_some() && s.latency.quantile_micros(0.99) >= CARRIED_P99_US;
    report.is_clean() && !report.steps.values().any(slow)
}

pub(super) fn print_all(options: &Options, runs: &[Run], moved: Option<Moved>, kills: Option<Kills>) -> Done {
    print(&format!(
        "{:>8} {:<20} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>8} {:>10} {:>9}\n",
        "rate/s",
        "procedure",
        "done",
        "p50",
        "p99",
        "p99.9",
        "slowest",
        "core us",
        "cpf us",
        "core busy",
        "gen. p99"
    ))?;
    for run in runs {
        print(&rows(run))?;
    }
    print(
        "core us: what the core's processes ran, for each arrival with all that it did; cpf us: of that, its CPFs;\n\
         gen. p99: how late the generator let UEs begin\n",
    )?;
    if let Some(Moved { fast, default, stayed }) = moved {
        print(&format!(
            "UEs that moved to the other region's CPF: {fast} at once, {default} with their state; {stayed} stayed\n"
        ))?;
    }
    if let Some(kills) = &kills {
        print(&kills.text())?;
    }
    let carried: Vec<&Run> = runs.iter().filter(|r| is_carried(&r.report)).collect();
    if let Some((last, per_s)) = carried.last().and_then(|run| Some((run, per_core_second(run)?))) {
        let cpfs = per_cpf_core_second(last).map(|n| format!("; {n:.0} by one that runs CPFs alone"));
        print(&format!(
            "carried: {:.0} a second; one core would carry {per_s:.0}{}\n",
            last.report.rate.unwrap_or_default(),
            cpfs.unwrap_or_default()
        ))?;
    }
    print(&format!("{}\n", line(options, runs, &carried, moved, kills.as_ref())))?;
    if let Some(kills) = kills {
        let noticed = runs.iter().any(|run| run.report.failed + run.report.violated > 0);
        return match kills.lost > 0.0 || noticed {
            true => Err("UEs noticed".into()),
            false => Ok(()),
        };
    }
    match carried.is_empty() {
        true => Err("the load was not carried".into()),
        false => Ok(()),
    }
}

fn rows(run: &Run) -> String {
    let report = &run.report;
    let rate = report.rate.map_or_else(|| "-".to_owned(), |r| format!("{r:.0}"));
    let or_none = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"));
    let busy = core_busy(run).map_or_else(|| "-".to_owned(), |part| format!("{:.0}%", part * 100.0));
    let mut text = String::new();
    for (name, step) in &report.steps {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| step.latency.quantile_micros(q));
        text += &format!(
            "{rate:>8} {name:<20} {:>8} {p50:>8} {p99:>8} {p999:>9} {:>9} {:>9} {:>8} {busy:>10} {:>9}\n",
            step.latency.count(),
            step.latency.max_micros(),
            or_none(core_us(run)),
            or_none(cpf_us(run)),
            report.lag.quantile_micros(0.99),
        );
    }
    if !report.is_clean() {
        let why = report.failures.first().map_or("", |f| f.reason.as_str());
        text += &format!(
            "{rate:>8} not carried: {} failed, {} kept away by OVERLOAD START, {} found no UE free, {} breaches; {why}\n",
            report.failed, report.barred, report.starved, report.violated
        );
    }
    text
}

/// CPU time of the core's processes for one arrival; `None` if it is not known.
pub(super) fn core_us(run: &Run) -> Option<f64> {
    let us = run.core.all.as_secs_f64() * 1e6 / run.report.arrived.max(1) as f64;
    (us > 0.0).then_some(us)
}

/// The same for its CPFs, if they are processes of their own.
fn cpf_us(run: &Run) -> Option<f64> {
    let us = run.core.cpfs.as_secs_f64() * 1e6 / run.report.arrived.max(1) as f64;
    (us > 0.0).then_some(us)
}

fn core_busy(run: &Run) -> Option<f64> {
    core_us(run).map(|_| run.core.all.as_secs_f64() / run.took.as_secs_f64().max(1e-9))
}

fn per_core_second(run: &Run) -> Option<f64> {
    core_us(run).map(|us| 1e6 / us)
}

fn per_cpf_core_second(run: &Run) -> Option<f64> {
    cpf_us(run).map(|us| 1e6 / us)
}

fn line(
    options: &Options,
    runs: &[Run],
    carried: &[&Run],
    moved: Option<Moved>,
    kills: Option<&Kills>,
) -> String {
    let last = carried.last();
    let figures: Vec<Value> = runs
        .iter()
        .map(|run| {
            let mut figures = run.report.json();
            figures["core_us"] = json!(core_us(run));
            figures["cpf_us"] = json!(cpf_us(run));
            figures["core_busy"] = json!(core_busy(run));
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
        "per_core_second": last.and_then(|r| per_core_second(r)),
        "per_cpf_core_second": last.and_then(|r| per_cpf_core_second(r)),
        "moved": moved.map(|m| json!({"fast": m.fast, "default": m.default, "stayed": m.stayed})),
        "kills": kills.map(Kills::json),
        "runs": figures,
    }})
    .to_string()
}
