//! `whimbrel-lab demo`: UEs use a core that is started for them.

mod commute;
mod open;
mod seams;
mod sites;
mod sleepers;
pub(crate) mod survive;
mod unit_chaos;
mod veil;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_api::{CoreStatus, ProcedureStatus};
use whimbrel_cli::{Done, print, table};
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, SessionStep, SessionType, Step};
use whimbrel_sctp_io::Mode;

use crate::playground::{self, GATEWAY, NAME, Playground, Servers, SuciScheme, Wish};
use whimbrel_node::config::HAS_DEMONSTRATION_KEYS;

#[derive(Args)]
pub(crate) struct Options {
    /// What the UEs do.
    #[arg(long, default_value = "first-light")]
    scenario: Which,
    /// Duration of the scenarios city, commute and unit-chaos, and of sites with --random, in seconds.
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Seed of the faults in the scenario unit-chaos, and in sites with --random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write what happens to UEs and gNBs in the scenario unit-chaos to this file, for tests/chaos/histories.awk.
    #[arg(long, value_name = "FILE")]
    histories: Option<PathBuf>,
    /// Number of UEs, which all start at once, 1 to 5000 (default: 100, in commute 24); the city has its own number. In survive up to 20000: those beyond 100
    /// are connected without traffic. In sleepers: of idle UEs, up to
    /// 16000000 (default: 1000000).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    ues: Option<u32>,
    /// Number of active UEs in sleepers.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    active: u32,
    /// Memory of the core in sleepers, in MiB; default: 200 MiB and 280 octets a UE.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    memory_mib: Option<u32>,
    /// Slow tier in sleepers: file, zram (its swap has to be on) or none.
    #[arg(long, default_value = "file", value_parser = ["file", "zram", "none"])]
    slow: String,
    /// Number of gNBs; the city has its own number.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=100))]
    gnbs: u8,
    /// Write the core's packets of N2, N3 and N4 to this pcap file.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Faults of the scenario sites, in this order; default: all of them.
    #[arg(long = "fault", value_name = "FAULT,…", value_delimiter = ',')]
    faults: Vec<sites::Fault>,
    /// In the scenario sites: faults at random, for --seconds.
    #[arg(long, conflicts_with = "faults")]
    random: bool,
    /// How long PostgreSQL is away in the scenario sites, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    away: u32,
    /// Homes and UPFs of each site in the scenario sites.
    #[arg(long, value_name = "HOMES,UPFS", default_value = "3,2", value_parser = sites::size)]
    size: (u8, u8),
    /// In the scenario sites, a wrong configuration, which the demonstration has to notice.
    #[arg(long)]
    plant: Option<sites::Plant>,
    /// Keep the logs of the scenario sites in this folder.
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// Program that replaces the functions in the scenario survive; default: the core's program itself.
    #[arg(long, value_name = "FILE")]
    upgrade_to: Option<PathBuf>,
    /// Folder for the plots of the scenario commute; default: .x/plots where .x exists.
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    /// Time that each message and packet takes between gNBs, core and the second UPF in the scenario commute, as 1ms.
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = whimbrel_cli::short_time)]
    hop_delay: Duration,
    /// Use null ciphering (NEA0), so that NAS is readable in the capture.
    #[arg(long)]
    null_cipher: bool,
    /// In the scenario veil: let operators reach the broker without relays. The ledger finds it.
    #[arg(long)]
    direct: bool,
}

impl Options {
    /// UEs of the scenarios in which all of them are active.
    fn ues(&self) -> u32 {
        self.ues.unwrap_or(UES)
    }
}

/// UEs by default, and the most that one host serves in a demonstration.
const UES: u32 = 100;
const UES_MAX: u32 = 5000;
/// The most in survive, where most of them have no traffic.
const SURVIVORS_MAX: u32 = 20_000;

/// The scenarios of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// Register, session, data, idle and back: all UEs alike.
    FirstLight,
    /// UEs of different habits that move: Xn and N2 handovers, paging, several slices.
    City,
    /// UEs send, receive and move while each process of a unit is killed in turn (docs/unit.md).
    Survive,
    /// UEs send, move, come and go while processes of a unit are killed and frozen and lose their links at random (`./x chaos unit`).
    UnitChaos,
    /// A million registered UEs that are idle, in memory that does not hold them as they are; active UEs beside them (docs/memory.md).
    Sleepers,
    /// Users of two brokers move among three operators without a contract (docs/open.md).
    Open,
    /// A core finds its UDM, PCF and CHF through an NRF; each is killed, the PCF changes a session, and prepaid credit ends (docs/sbi.md).
    Seams,
    /// UEs drive among sixteen gNBs, without prediction of handovers and with it (docs/foresight.md).
    Commute,
    /// Two sites, each with an AMF set of homes and UPFs, and PostgreSQL with a replica, which fail in turn while UEs send and move (docs/sites.md).
    Sites,
    /// Veiled users of one broker move between two operators; the output lists what each party has learnt (docs/veil.md).
    Veil,
}

/// Says that processes of this demonstration do what none in service does. Errors: this program has none that
/// do, in one sentence.
fn announce_demonstration_build(does: &str) -> Done {
    match HAS_DEMONSTRATION_KEYS {
        true => print(&format!("this demonstration runs {does}, which no package has\n")),
        false => Err(format!(
            "this demonstration runs {does}, which this program is not built for: run it in the source tree, as `./x demo`"
        )),
    }
}

/// The city, as the file in the tree has it.
const CITY: &str = include_str!("../../../ran/scenarios/city.yaml");
/// Slices of the city.
const CITY_SLICES: [&str; 2] = ["1", "1-0000aa"];

pub(crate) fn run(options: &Options) -> Done {
    let most = match options.scenario {
        Which::Sleepers => u32::MAX,
        Which::Survive => SURVIVORS_MAX,
        _ => UES_MAX,
    };
    if options.ues() > most {
        return Err(format!("{} UEs are too many for this scenario: {most} at most", options.ues()));
    }
    if let Some(status) = playground::isolate()? {
        return if status.success() { Ok(()) } else { Err(String::new()) };
    }
    match options.scenario {
        Which::Open => return open::run(options),
        Which::Veil => return veil::run(options),
        Which::Survive => return survive::run(options),
        Which::UnitChaos => return unit_chaos::run(options),
        Which::Commute => return commute::run(options),
        Which::Sleepers => return sleepers::run(options),
        Which::Seams => return seams::run(),
        Which::Sites => return sites::run(options),
        Which::FirstLight | Which::City => {}
    }
    // The flow is one that UEs of a city ask for.
    let mut configuration = format!(
        "data_networks: [{{ dnn: internet, dns: [{GATEWAY}], flows: [{{ name: game, five_qi: 7, setup: on-request }}] }}]\n"
    );
    if options.null_cipher {
        configuration += "security: { ciphering: [NEA0] }\n";
    }
    print("starting a core, a DNS server and a web server in a network namespace of their own\n")?;
    let scenario = scenario(options)?;
    let city = options.scenario == Which::City;
    let gnbs = u8::try_from(scenario.gnbs).unwrap_or(u8::MAX);
    let slices = if city { &CITY_SLICES[..] } else { &CITY_SLICES[..1] };
    let wish = Wish {
        ues: scenario.count(),
        gnbs,
        slices: slices.iter().filter_map(|s| s.parse().ok()).collect(),
        configuration,
        capture: options.capture.clone(),
        core_cpu: None,
        suci: SuciScheme::Null,
        unit: false,
        added_ues: 0,
        data_limit: None,
        keeps_ues: false,
        cpfs: Vec::new(),
    };
    let playground = Playground::start(&wish)?;
    let servers = Servers::start(GATEWAY)?;
    let config = RunnerConfig {
        amf: vec![playground.amf()],
        amf_port: 38412,
        sctp: Mode::Auto,
        sctp_udp_ports: (9900, 9899),
        gnbs: playground.gnb_places(),
        ues: playground.ues(),
        scenario: scenario.clone(),
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::from_micros(20),
        hop_delay: Duration::ZERO,
    };
    print(&format!("{} UEs on {gnbs} gNBs: {}\n", scenario.count(), what_they_do(&scenario)))?;
    let mut progress = Progress { of: scenario.count(), shown: false };
    let reports = edge::run(&config, &mut progress);
    progress.end();
    let reports = reports.map_err(|e| format!("{e}\nlog of the core: {}", playground.log()))?;
    let core = playground.client().get::<CoreStatus>("/api/v1/status").map_err(|e| e.to_string())?;
    let Some(report) = reports.first() else { return Err("no UE arrived".into()) };
    let left = playground.client().get::<Value>("/api/v1/ues")?["total"].as_u64().unwrap_or(0);
    let log = playground.log();
    let stopped = playground.stop();
    summarise(report, &servers, &core)?;
    for failure in report.failures.iter().take(10) {
        print(&format!("failed: {} at step {}: {}\n", failure.supi, failure.step, failure.reason))?;
    }
    for violation in report.violations.iter().take(10) {
        print(&format!("violation: {violation}\n"))?;
    }
    print(&format!("{}\n", line(options.scenario, report, &core)))?;
    let both = |(up, down): (u64, u64)| up + down;
    // A packet may be lost between two programs of a busy machine; no machine makes one overtake another.
    let disorder = both(report.streams.reordered) + both(report.streams.duplicated);
    if disorder > 0 {
        return Err(format!("{disorder} packets of streams were reordered or duplicated\n{log}"));
    }
    if !report.is_clean() || left != 0 {
        let left = if left == 0 { String::new() } else { format!("; {left} UEs are left in the core") };
        return Err(format!(
            "{} UEs failed, {} protocol violations{left}\n{log}",
            report.failed, report.violated
        ));
    }
    stopped
}

fn what_they_do(scenario: &Scenario) -> String {
    let names: Vec<&str> = match scenario.groups.is_empty() {
        true => scenario.steps.iter().map(Step::name).collect(),
        false => scenario.groups.iter().map(|g| g.name.as_str()).collect(),
    };
    names.join(", ")
}

/// Errors: one sentence.
fn scenario(options: &Options) -> Result<Scenario, String> {
    if options.scenario == Which::City {
        let read = crate::ran::scenario::parse(CITY);
        let mut city = read.map_err(|(at, what)| format!("city.yaml:{at}: {what}"))?;
        city.seconds = f64::from(options.seconds);
        return Ok(city);
    }
    let fetch = || Step::Fetch(format!("http://{NAME}/"));
    let session =
        SessionStep { dnn: Some("internet".into()), s_nssai: None, pdu_session_type: SessionType::Ipv4 };
    Ok(Scenario {
        ues: options.ues(),
        gnbs: u16::from(options.gnbs),
        before: Vec::new(),
        before_rate: 500.0,
        arrival: ArrivalPattern::AtOnce,
        steps: vec![
            Step::Register,
            Step::Session(session),
            Step::Resolve(NAME.into()),
            fetch(),
            Step::Idle,
            Step::Return,
            fetch(),
            Step::Deregister,
        ],
        groups: Vec::new(),
        seconds: 0.0,
        patience_s: 30.0,
        again: false,
        tun: false,
    })
}

/// Shows how far the UEs are, on a terminal.
struct Progress {
    of: u32,
    shown: bool,
}

impl Watch for Progress {
    fn progress(&mut self, completed: u64, failed: u64, playing: u64) {
        use std::io::IsTerminal;
        let mut err = std::io::stderr();
        if err.is_terminal() {
            self.shown = true;
            let _ = write!(err, "\r{completed} of {} done, {failed} failed, {playing} running ", self.of);
        }
    }
}

impl Progress {
    fn end(&self) {
        if self.shown {
            eprintln!();
        }
    }
}

/// Counts and percentiles of each step, the core's time beside the time on the wire.
fn summarise(report: &ScenarioReport, servers: &Servers, core: &CoreStatus) -> Done {
    let mut rows = Vec::new();
    for (name, step) in &report.steps {
        let wire = if step.wire.count() > 0 { &step.wire } else { &step.latency };
        let of = core.procedures.iter().find(|p| p.name == procedure_of(name) && p.completed > 0);
        let core_time =
            |value: fn(&ProcedureStatus) -> u64| of.map_or("-".to_owned(), |p| value(p).to_string());
        rows.push(vec![
            (*name).to_owned(),
            step.begun.to_string(),
            step.failed.to_string(),
            wire.quantile_micros(0.5).to_string(),
            wire.quantile_micros(0.99).to_string(),
            wire.quantile_micros(0.999).to_string(),
            core_time(|p| p.core_p50_us),
            core_time(|p| p.core_p99_us),
            core_time(|p| p.core_p999_us),
        ]);
    }
    let heads = ["step", "begun", "failed", "wire p50 us", "p99", "p99.9", "core p50 us", "p99", "p99.9"];
    let (names, pages) = servers.served();
    print(&table(&heads, &rows))?;
    if report.streams.counted > 0 {
        print(&streams(report))?;
    }
    print(&format!("the servers resolved {names} names and served {pages} pages through the tunnels\n"))
}

/// What came of the numbered packets, and the longest gaps that handovers made in them.
fn streams(report: &ScenarioReport) -> String {
    let (s, mut rows) = (&report.streams, Vec::new());
    let counts = |name: &str, of: fn((u64, u64)) -> u64| {
        let columns = [s.sent, s.lost, s.reordered, s.duplicated].map(|both| of(both).to_string());
        std::iter::once(name.to_owned()).chain(columns).collect::<Vec<_>>()
    };
    rows.push(counts("uplink", |(up, _)| up));
    rows.push(counts("downlink", |(_, down)| down));
    let mut text = format!("{} streams of numbered packets, counted at both ends:\n", s.counted);
    text += &table(&["", "sent", "lost", "reordered", "duplicated"], &rows);
    let gap = |times: &whimbrel_ran::report::Times| {
        [0.5, 0.99, 1.0].map(|q| format!("{:.1}", times.quantile_micros(q) as f64 / 1000.0))
    };
    let rows: Vec<Vec<String>> = report
        .gaps
        .iter()
        .flat_map(|(kind, gaps)| [(kind, "uplink", &gaps.uplink), (kind, "downlink", &gaps.downlink)])
        .map(|(kind, direction, times)| {
            let head = [(*kind).to_owned(), direction.to_owned(), times.count().to_string()];
            head.into_iter().chain(gap(times)).collect()
        })
        .collect();
    if !rows.is_empty() {
        text += "the longest time without a packet around each handover; packets leave every 20 ms:\n";
        text += &table(&["handover", "", "times", "p50 ms", "p99", "longest"], &rows);
    }
    text
}

/// The core's name of the procedure that a step is.
fn procedure_of(step: &str) -> &str {
    match step {
        "register" => "registration",
        "session" => "pdu_session_establishment",
        "idle" => "an_release",
        "return" => "service_request",
        "deregister" => "deregistration_by_ue",
        "modify" | "end-flow" => "pdu_session_modification",
        "handover-xn" => "path_switch",
        "handover-n2" => "handover",
        "paged" => "service_request",
        other => other,
    }
}

/// The core's own work by procedure.
fn core_time(core: &CoreStatus) -> Value {
    let ran = core.procedures.iter().filter(|p| p.completed > 0);
    let figures = ran.map(|p| {
        let of = json!({"p50": p.core_p50_us, "p99": p.core_p99_us, "p999": p.core_p999_us});
        (p.name.clone(), of)
    });
    Value::Object(figures.collect())
}

/// The one line of JSON that machines read.
fn line(which: Which, report: &ScenarioReport, core: &CoreStatus) -> String {
    let steps: serde_json::Map<String, Value> = report
        .steps
        .iter()
        .map(|(name, step)| {
            let wire = if step.wire.count() > 0 { &step.wire } else { &step.latency };
            let figures = json!({
                "begun": step.begun,
                "failed": step.failed,
                "wire_us_p50": wire.quantile_micros(0.5),
                "wire_us_p99": wire.quantile_micros(0.99),
                "wire_us_p999": wire.quantile_micros(0.999),
            });
            ((*name).to_owned(), figures)
        })
        .collect();
    let all = report.json();
    json!({"bench": if which == Which::City { "city" } else { "demo" }, "figures": {
        "ues": report.arrived,
        "completed": report.completed,
        "failed": report.failed,
        "violations": report.violated,
        "seconds": report.elapsed.as_secs_f64(),
        "steps": steps,
        "streams": all["streams"],
        "handover_gaps_us": all["handover_gaps_us"],
        "core_time_us": core_time(core),
    }})
    .to_string()
}
