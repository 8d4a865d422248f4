//! `bench attach`: open load at rising rates. UEs arrive by the clock, whether or not earlier ones have finished, and
//! latency counts from the scheduled arrival, so that a core that falls behind cannot hide it.

use clap::Args;
use serde_json::{Value, json};
use whimbrel_api::CoreStatus;
use whimbrel_cli::{Done, print};
use whimbrel_ran::edge::{self, Silent};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Step};

use super::{cpu_time, processors, runner, scenario, session, stay_on};
use crate::playground::{Playground, SuciScheme, Wish};

#[derive(Args)]
pub(crate) struct Options {
    /// Registrations per second, one run after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [250, 500, 1000, 2000, 4000, 6000, 8000, 10_000, 12_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
    /// Seconds of each run.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Number of gNBs.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=100))]
    gnbs: u8,
    /// Protection scheme of the SUCIs, which are computed beforehand.
    #[arg(long, value_enum, default_value_t = SuciScheme::Null)]
    suci: SuciScheme,
    /// Registrations alone, without sessions.
    #[arg(long)]
    registrations: bool,
}

/// A rate is carried if all UEs registered and the 99th percentile of their latencies is at most this, in microseconds.
pub(super) const CARRIED_P99_US: u64 = 100_000;

/// The results of one rate.
struct Run {
    rate: u32,
    clean: bool,
    report: ScenarioReport,
    status: CoreStatus,
    cpu_us_per_ue: f64,
}

pub(crate) fn run(options: &Options) -> Done {
    let (core_cpu, own_cpu) = processors();
    stay_on(own_cpu);
    let what = if options.registrations { "registrations" } else { "registrations with a session each" };
    print(&format!(
        "{what}, {} SUCI, 5G-AKA, open load, {} s a rate; microseconds\n",
        options.suci, options.seconds
    ))?;
    print(&format!(
        "{:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10}  \n",
        "rate/s", "reg p50", "p99", "p99.9", "ses p50", "p99", "core reg", "core ses"
    ))?;
    let mut runs = Vec::new();
    for &rate in &options.rates {
        let run = one(options, rate, core_cpu)?;
        print(&row(&run))?;
        let carried = is_carried(&run);
        runs.push(run);
        if !carried {
            break; // higher rates show nothing new
        }
    }
    let knee = runs.iter().filter(|r| is_carried(r)).map(|r| r.rate).max().unwrap_or(0);
    print(&plot(&runs))?;
    print(&format!("{}\n", line(options, &runs, knee)))?;
    if knee == 0 { Err("not even the lowest rate was carried".into()) } else { Ok(()) }
}

fn one(options: &Options, rate: u32, core_cpu: Option<u32>) -> Result<Run, String> {
    let ues = rate * options.seconds;
    let wish = Wish {
        ues,
        gnbs: options.gnbs,
        configuration: pools(),
        capture: None,
        core_cpu,
        suci: options.suci,
        slices: vec![whimbrel_ids::SNssai::sst(1)],
        unit: false,
        added_ues: 0,
        data_limit: None,
        keeps_ues: false,
        cpfs: Vec::new(),
    };
    let playground = Playground::start(&wish)?;
    let mut steps = vec![Step::Register];
    if !options.registrations {
        steps.push(session());
    }
    let config = runner(&playground, scenario(ues, options.gnbs, ArrivalPattern::Rate(rate.into()), steps));
    let before = cpu_time(playground.core_pid());
    let reports =
        edge::run(&config, &mut Silent).map_err(|e| format!("{e}\nlog of the core: {}", playground.log()))?;
    let spent = cpu_time(playground.core_pid()).saturating_sub(before);
    let status: CoreStatus = playground.client().get("/api/v1/status")?;
    let report = reports.into_iter().next().ok_or("no UE arrived")?;
    drop(playground); // with tens of thousands of UEs, an orderly stop would take longer than the run
    Ok(Run {
        rate,
        clean: report.is_clean(),
        cpu_us_per_ue: spent.as_secs_f64() * 1e6 / f64::from(ues.max(1)),
        report,
        status,
    })
}

/// An address pool for all UEs of a run.
pub(super) fn pools() -> String {
    "data_networks: [{ dnn: internet, ipv4_pool: 10.32.0.0/12, dns: [10.32.0.1] }]\n".to_owned()
}

fn is_carried(run: &Run) -> bool {
    run.clean
        && run.report.steps.get("register").is_some_and(|s| s.latency.quantile_micros(0.99) < CARRIED_P99_US)
}

fn core_time(status: &CoreStatus, procedure: &str) -> u64 {
    status.procedures.iter().find(|p| p.name == procedure).map_or(0, |p| p.core_p50_us)
}

fn times(report: &ScenarioReport, step: &str) -> [u64; 3] {
    let of = report.steps.get(step);
    [0.5, 0.99, 0.999].map(|q| of.map_or(0, |s| s.latency.quantile_micros(q)))
}

fn row(run: &Run) -> String {
    let ([r50, r99, r999], [s50, s99, _]) = (times(&run.report, "register"), times(&run.report, "session"));
    let (core_r, core_s) =
        (core_time(&run.status, "registration"), core_time(&run.status, "pdu_session_establishment"));
    let verdict = if run.clean { String::new() } else { format!("{} failed", run.report.failed) };
    format!(
        "{:>8} {r50:>9} {r99:>9} {r999:>9} {s50:>9} {s99:>9} {core_r:>10} {core_s:>10}  {verdict}\n",
        run.rate
    )
}

/// Median and 99th percentile of registration against rate, on a logarithmic scale.
fn plot(runs: &[Run]) -> String {
    const WIDTH: u32 = 60;
    let column = |us: u64| (us.clamp(100, 1_000_000) as f64 / 100.0).log10() / 4.0 * f64::from(WIDTH);
    let mut text = format!("\nregistration latency: 100 us {:>54}\n", "1 s");
    for run in runs {
        let [p50, p99, _] = times(&run.report, "register");
        let (a, b) = (column(p50) as usize, column(p99) as usize);
        let bar: String = (0..=WIDTH as usize)
            .map(|x| {
                if x <= a {
                    '#'
                } else if x <= b {
                    '-'
                } else {
                    ' '
                }
            })
            .collect();
        text += &format!("{:>8}/s |{bar}|\n", run.rate);
    }
    text + "            # to the median, - to the 99th percentile\n"
}

fn line(options: &Options, runs: &[Run], knee: u32) -> String {
    let figures: Vec<Value> = runs
        .iter()
        .map(|run| {
            let ([r50, r99, r999], [s50, s99, s999]) =
                (times(&run.report, "register"), times(&run.report, "session"));
            json!({
                "rate": run.rate,
                "failed": run.report.failed,
                "violations": run.report.violated,
                "register_us": {"p50": r50, "p99": r99, "p999": r999},
                "session_us": {"p50": s50, "p99": s99, "p999": s999},
                "core_us": {
                    "registration_p50": core_time(&run.status, "registration"),
                    "session_p50": core_time(&run.status, "pdu_session_establishment"),
                },
                "core_cpu_us_per_ue": run.cpu_us_per_ue,
            })
        })
        .collect();
    json!({"bench": "attach", "figures": {
        "suci": options.suci.to_string(),
        "sessions": !options.registrations,
        "carried_per_s": knee,
        "rates": figures,
    }})
    .to_string()
}
