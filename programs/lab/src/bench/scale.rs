//! `bench scale`: one, two and four homes of an AMF set, real processes with one PostgreSQL database: what a registration and a service request cost in
//! processor time, how many messages pass between homes, and how much longer a UE waits that wakes at another home than its own.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_cli::{Done, print};
use whimbrel_ran::edge::{self, RunnerConfig, Silent};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Step};
use whimbrel_sctp_io::Mode;

use super::{cpu_time, processors, scenario, session, stay_on};
use crate::playground::sites::{HomeId, Sites, SitesWish};

#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of homes, one after the other; the ratios are to the first.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4], value_parser = clap::value_parser!(u8).range(1..=7))]
    homes: Vec<u8>,
    /// UEs that register in each run.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    ues: u32,
    /// UEs that come in a second, at all homes together.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Runs of which the medians are printed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    runs: u8,
    /// Homes send each other the states of their UEs ahead.
    #[arg(long)]
    replicas: bool,
}

/// Service requests of a UE in the longer of two runs: the difference of the runs is what they cost.
const SERVICE_REQUESTS: u32 = 4;
/// How long homes rest before their processor time without load is taken.
const AT_REST: Duration = Duration::from_secs(3);

/// The cost of a run at all homes.
struct RunCost {
    /// Without what they take at rest.
    processor: Duration,
    messages: f64,
    report: ScenarioReport,
}

/// The medians of some homes, for one UE.
struct Figures {
    homes: u8,
    registration_us: f64,
    service_request_us: f64,
    registration_messages: f64,
    service_request_messages: f64,
    /// 50th percentile of a service request at the UE's own home, and at another one; there is no other of one home.
    own_us: u64,
    other_us: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Done {
    let (core_cpu, own_cpu) = processors();
    stay_on(own_cpu);
    print(&format!(
        "registrations with a session and service requests at {} UEs a second, medians of {} runs; for each UE\n{:>6} {:>24} {:>24} {:>20} {:>26}\n",
        options.rate,
        options.runs,
        "homes",
        "registration, processor",
        "service req., processor",
        "messages of homes",
        "service request, own/other"
    ))?;
    let mut all: Vec<Figures> = Vec::new();
    for &homes in &options.homes {
        let figures = measure(options, homes, core_cpu)?;
        print(&row(&figures, all.first().unwrap_or(&figures)))?;
        all.push(figures);
    }
    let of = |f: &Figures| {
        json!({"homes": f.homes, "registration_cpu_us": f.registration_us, "service_request_cpu_us": f.service_request_us,
            "registration_messages": f.registration_messages, "service_request_messages": f.service_request_messages,
            "service_request_own_us": f.own_us, "service_request_other_us": f.other_us})
    };
    let figures: Vec<Value> = all.iter().map(of).collect();
    print(&format!(
        "{}\n",
        json!({"bench": "scale", "figures": {"replicas": options.replicas, "homes": figures}})
    ))
}

fn measure(options: &Options, homes: u8, core_cpu: Option<u32>) -> Result<Figures, String> {
    let wish =
        SitesWish { ues: options.ues, homes, upfs: 1, replicas: options.replicas, overlapping_pools: false };
    let sites = Sites::start(wish)?;
    let all: Vec<HomeId> = sites.running().into_iter().filter(|home| home.site == 0).collect();
    if let Some(cpu) = core_cpu {
        sites.keep_on(cpu)?;
    }
    let rest = {
        let before = spent(&sites, &all);
        std::thread::sleep(AT_REST);
        (spent(&sites, &all) - before).div_f64(AT_REST.as_secs_f64())
    };
    let once = [Step::Register, session(), Step::Idle];
    let wakes = [Step::Wait(0.1), Step::Return, Step::Idle];
    let steps = |times: u32| {
        let again = (0..times).flat_map(|_| wakes.iter().cloned());
        once.iter().cloned().chain(again).chain([Step::Return, Step::Deregister]).collect::<Vec<_>>()
    };
    let moved = |moves: bool| {
        let moves = moves.then_some(Step::Move);
        once.iter().cloned().chain(moves).chain([Step::Wait(0.1), Step::Return, Step::Deregister]).collect()
    };
    let of_all = |steps: Vec<Step>| cost(options, &sites, &all, rest, false, steps);
    let of_one = |steps: Vec<Step>| cost(options, &sites, &all, rest, true, steps);
    let (mut first, mut second, mut own, mut other) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.runs {
        first.push(of_all(steps(0))?);
        second.push(of_all(steps(SERVICE_REQUESTS))?);
        own.push(of_one(moved(false))?);
        if homes > 1 {
            other.push(of_one(moved(true))?);
        }
    }
    let ues = f64::from(options.ues);
    let processor = |of: &[RunCost]| median(of.iter().map(|c| c.processor.as_secs_f64() * 1e6 / ues));
    let messages = |of: &[RunCost]| median(of.iter().map(|c| c.messages / ues));
    let wait = |of: &[RunCost]| median(of.iter().map(|c| latency(&c.report) as f64)) as u64;
    let each = f64::from(SERVICE_REQUESTS);
    Ok(Figures {
        homes,
        registration_us: processor(&first),
        service_request_us: (processor(&second) - processor(&first)) / each,
        registration_messages: messages(&first),
        service_request_messages: (messages(&second) - messages(&first)) / each,
        own_us: wait(&own),
        other_us: (!other.is_empty()).then(|| wait(&other)),
    })
}

/// UEs come and do these steps. `apart`: a gNB has one of the homes, else all of them.
fn cost(
    options: &Options,
    sites: &Sites,
    homes: &[HomeId],
    rest: Duration,
    apart: bool,
    steps: Vec<Step>,
) -> Result<RunCost, String> {
    let mut gnbs = if apart { sites.gnbs_of_homes(homes) } else { sites.gnb_places() };
    gnbs.truncate(if apart { homes.len() } else { 1 });
    let config = RunnerConfig {
        amf: Vec::new(),
        amf_port: 38412,
        sctp: Mode::Auto,
        sctp_udp_ports: (9900, 9899),
        scenario: scenario(options.ues, gnbs.len() as u8, ArrivalPattern::Rate(options.rate.into()), steps),
        gnbs,
        ues: sites.ues(),
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::from_millis(1),
        hop_delay: Duration::ZERO,
    };
    let sent =
        || homes.iter().map(|home| sites.metric(*home, "whimbrel_peer_amf_messages_out_total")).sum::<f64>();
    let (before, sent_before, begun) = (spent(sites, homes), sent(), std::time::Instant::now());
    let reports = edge::run(&config, &mut Silent).map_err(|e| format!("{e}\n{}", sites.logged()))?;
    let (after, took) = (spent(sites, homes), begun.elapsed());
    let report = reports.into_iter().next().ok_or("no UE arrived")?;
    if !report.is_clean() {
        return Err(format!(
            "{} UEs failed: {:?}\n{}",
            report.failed,
            report.failures.first(),
            sites.logged()
        ));
    }
    let processor = (after - before).saturating_sub(rest.mul_f64(took.as_secs_f64()));
    Ok(RunCost { processor, messages: sent() - sent_before, report })
}

fn spent(sites: &Sites, homes: &[HomeId]) -> Duration {
    homes.iter().filter_map(|home| sites.pid(*home)).map(cpu_time).sum()
}

fn latency(report: &ScenarioReport) -> u64 {
    report.steps.get("return").map_or(0, |step| step.latency.quantile_micros(0.5))
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn row(f: &Figures, first: &Figures) -> String {
    let of = |value: f64, base: f64| format!("{value:.0} us ({:.2})", value / base.max(f64::MIN_POSITIVE));
    let messages = format!("{:.2} and {:.2}", f.registration_messages, f.service_request_messages);
    let other = f.other_us.map_or_else(|| "-".to_owned(), |us| format!("{us}"));
    format!(
        "{:>6} {:>24} {:>24} {messages:>20} {:>26}\n",
        f.homes,
        of(f.registration_us, first.registration_us),
        of(f.service_request_us, first.service_request_us),
        format!("{}/{other} us", f.own_us)
    )
}
