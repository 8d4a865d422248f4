//! `whimbrel demo --scenario sleepers`: many registered UEs that are idle, in memory that does not hold them as they are while they are
//! active; beside them UEs that register, set up sessions and move (docs/memory.md).

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::Report;
use whimbrel_ran::scenario::{ArrivalPattern, HandoverStep, Scenario, SessionStep, SessionType, Step, Way};
use whimbrel_ran::ue::UeConfig;
use whimbrel_sctp_io::Mode;

use super::{Done, Options, print, table};
use crate::console::Metric;
use crate::playground::{GATEWAY, Playground, SuciScheme, Wish};

/// Idle UEs, so that the demonstration takes about a minute.
const SLEEPERS: u32 = 1_000_000;
/// UEs that register over N2 before the others are added like them.
const MODELS: u32 = 32;
/// The baseline has one idle UE for so many: it shows what each takes.
const BASELINE_PART: u32 = 10;
/// Memory of the process without UEs, and of each UE beside its record: slot, deadline, entry in the directory.
const LIMIT_BASE: u64 = 160 << 20;
const LIMIT_PER_UE: u64 = 480;
/// After so long without messages UEs rest.
const REST_AFTER: Duration = Duration::from_millis(500);
/// How long active UEs are idle between two procedures: longer than that.
const IDLE_S: f64 = 1.0;
/// Arrivals of active UEs: all of them in this time, but not more in a second than this.
const ARRIVALS_WITHIN_S: u32 = 4;
const ARRIVALS_PER_S_MAX: u32 = 500;
/// How long it may take until one more UE is added.
const PROGRESS_WITHIN: Duration = Duration::from_secs(60);
/// After so long without less memory, no more records leave it.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// An observer that ignores all.
struct Unwatched;

impl Watch for Unwatched {}

/// What a core did with its UEs.
struct Outcome {
    report: Report,
    idle: u32,
    /// Octets in memory: before UEs were added, when they were, and the most while UEs were active.
    before: u64,
    loaded: u64,
    most: u64,
    added_in: Duration,
    at_rest: u64,
    record_octets: u64,
    fast: u64,
    slow: u64,
    fast_reads: u64,
    slow_reads: u64,
    moved: u64,
    longest_stall_us: u64,
    longest_relocation_us: u64,
}

impl Outcome {
    fn octets_per_ue(&self) -> u64 {
        self.loaded.saturating_sub(self.before) / u64::from(self.idle.max(1))
    }
}

pub(super) fn run(options: &Options) -> Done {
    if options.capture.is_some() {
        return Err("a capture of a million UEs is of no use: leave --capture out".into());
    }
    let idle = options.ues.unwrap_or(SLEEPERS).max(MODELS);
    let limit = match options.memory_mib {
        Some(mib) => u64::from(mib) << 20,
        None => LIMIT_BASE + LIMIT_PER_UE * u64::from(idle),
    };
    let few = (idle / BASELINE_PART).max(MODELS);
    print(&format!(
        "baseline: a core whose UEs stay in memory as they are, with {few} idle UEs and {} active ones\n",
        options.active
    ))?;
    let baseline = serve(options, few, "")?;
    let needed = baseline.before + baseline.octets_per_ue() * u64::from(idle);
    print(&format!(
        "a core with {idle} idle UEs in {} MiB (as they are they would need {} MiB), and {} active ones\n",
        limit >> 20,
        needed >> 20,
        options.active
    ))?;
    let memory = format!(
        "memory: {{ limit: {} MiB, slow: {}, rest_after: {}ms }}\n",
        limit >> 20,
        options.slow,
        REST_AFTER.as_millis()
    );
    let resting = serve(options, idle, &memory)?;
    summarise(&baseline, &resting, limit, needed)?;
    let failed = baseline.report.failed + resting.report.failed;
    let violated = baseline.report.violated + resting.report.violated;
    if failed + violated > 0 {
        let failures = baseline.report.failures.iter().chain(&resting.report.failures);
        for failure in failures.take(10) {
            print(&format!("failed: {} at step {}: {}\n", failure.supi, failure.step, failure.reason))?;
        }
        return Err(format!("{failed} UEs failed, {violated} protocol violations"));
    }
    if resting.at_rest < u64::from(idle) {
        return Err(format!("{} of {idle} UEs rest", resting.at_rest));
    }
    Ok(())
}

/// A core with so many idle UEs, and active ones beside them.
fn serve(options: &Options, idle: u32, memory: &str) -> Result<Outcome, String> {
    let wish = Wish {
        ues: MODELS + options.active,
        gnbs: options.gnbs.max(2),
        slices: ["1"].iter().filter_map(|s| s.parse().ok()).collect(),
        configuration: format!(
            "data_networks: [{{ dnn: internet, dns: [{GATEWAY}] }}]\nlimits: {{ ues: 16777216 }}\n{memory}"
        ),
        capture: None,
        core_cpu: None,
        suci: SuciScheme::Null,
        cpfs: Vec::new(),
        unit: false,
        added_ues: idle,
    };
    let playground = Playground::start(&wish)?;
    let outcome = in_playground(options, idle, !memory.is_empty(), &playground);
    let outcome = outcome.map_err(|e| format!("{e}\nlog of the core: {}", playground.log()))?;
    playground.stop().map(|()| outcome)
}

fn in_playground(
    options: &Options,
    idle: u32,
    rests: bool,
    playground: &Playground,
) -> Result<Outcome, String> {
    let mut ues = playground.ues();
    let active = ues.split_off(MODELS as usize);
    let before = resident(playground);
    let models = play(playground, ues, ArrivalPattern::AtOnce, vec![Step::Register, session(), Step::Idle])?;
    if models.failed > 0 {
        return Err("the first UEs cannot register".into());
    }
    let begun = Instant::now();
    await_added(playground, idle)?;
    let added_in = begun.elapsed();
    let value = |metric, label: Option<&str>| playground.client().metric(metric, label).map(|v| v as u64);
    let limit = value(Metric::MemoryLimit, None)?;
    // The last UEs rest, and cold records leave memory.
    let (mut least, mut since) = (u64::MAX, Instant::now());
    while rests && since.elapsed() < SETTLED_WITHIN {
        let (now, at_rest) = (resident(playground), value(Metric::UesAtRest, None)?);
        if now <= limit && at_rest >= u64::from(idle) {
            break;
        }
        if now < least - least / 100 {
            (least, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let loaded = resident(playground);
    let rate = (options.active / ARRIVALS_WITHIN_S).clamp(1, ARRIVALS_PER_S_MAX);
    let over = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(resident(playground));
                std::thread::sleep(Duration::from_millis(100));
            }
            most
        });
        let report = play(playground, active, ArrivalPattern::Rate(rate.into()), steps());
        over.store(true, Ordering::Relaxed);
        report.map(|report| (report, watch.join().unwrap_or(0)))
    });
    let (report, most) = report?;
    // The gauges are half a second old at most.
    std::thread::sleep(Duration::from_millis(600));
    Ok(Outcome {
        report,
        idle,
        before,
        loaded,
        most,
        added_in,
        at_rest: value(Metric::UesAtRest, None)?,
        record_octets: value(Metric::UeRecords, None)?,
        fast: value(Metric::UeMemory, Some("fast"))?,
        slow: value(Metric::UeMemory, Some("slow"))?,
        fast_reads: value(Metric::UeRecordReads, Some("fast"))?,
        slow_reads: value(Metric::UeRecordReads, Some("slow"))?,
        moved: value(Metric::UeRecordsMoved, None)?,
        longest_stall_us: micros(playground, Metric::UeRecordStallLongest)?,
        longest_relocation_us: micros(playground, Metric::UeRelocationLongest)?,
    })
}

fn micros(playground: &Playground, metric: Metric) -> Result<u64, String> {
    playground.client().metric(metric, None).map(|seconds| (seconds * 1e6) as u64)
}

fn session() -> Step {
    let pdu_session_type = SessionType::Ipv4;
    Step::Session(SessionStep { dnn: Some("internet".into()), s_nssai: None, pdu_session_type })
}

/// What each active UE does: it rests twice in between.
fn steps() -> Vec<Step> {
    let handover = |via| Step::Handover(HandoverStep { via, to: None });
    vec![
        Step::Register,
        session(),
        handover(Way::Xn),
        Step::Idle,
        Step::Wait(IDLE_S),
        Step::Return,
        handover(Way::N2),
        Step::Idle,
        Step::Wait(IDLE_S),
        Step::PeriodicRegistration,
        Step::Deregister,
    ]
}

fn play(
    playground: &Playground,
    ues: Vec<UeConfig>,
    arrival: ArrivalPattern,
    steps: Vec<Step>,
) -> Result<Report, String> {
    let gnbs = playground.gnb_places();
    let scenario = Scenario {
        ues: ues.len() as u32,
        gnbs: gnbs.len() as u16,
        before: Vec::new(),
        before_rate: 500.0,
        arrival,
        steps,
        groups: Vec::new(),
        seconds: 0.0,
        patience_s: 30.0,
        again: false,
        tun: false,
    };
    let config = RunnerConfig {
        amf: vec![playground.amf()],
        amf_port: 38412,
        sctp: Mode::Auto,
        sctp_udp_ports: (9900, 9899),
        gnbs,
        ues,
        scenario,
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::from_micros(20),
        hop_delay: Duration::ZERO,
    };
    let reports = edge::run(&config, &mut Unwatched).map_err(|e| e.to_string())?;
    reports.into_iter().next().ok_or_else(|| "no UE arrived".into())
}

/// Waits until the idle UEs are there.
fn await_added(playground: &Playground, idle: u32) -> Done {
    let (mut before, mut since) = (0.0, Instant::now());
    loop {
        let added = playground.client().metric(Metric::UesAdded, None)?;
        if added >= f64::from(idle) {
            return Ok(());
        }
        if added > before {
            (before, since) = (added, Instant::now());
        }
        if since.elapsed() > PROGRESS_WITHIN {
            return Err(format!("only {added} idle UEs were added"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Octets of the core's process in memory.
fn resident(playground: &Playground) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", playground.core_pid())).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn summarise(baseline: &Outcome, resting: &Outcome, limit: u64, needed: u64) -> Done {
    let both = [("all in memory", baseline), ("UEs rest", resting)];
    let mib = |octets: u64| (octets >> 20).to_string();
    let rows = both.map(|(name, o)| {
        vec![
            name.to_owned(),
            o.idle.to_string(),
            o.at_rest.to_string(),
            mib(o.loaded),
            mib(o.most),
            o.octets_per_ue().to_string(),
            o.record_octets.checked_div(o.at_rest).unwrap_or(0).to_string(),
            mib(o.fast),
            mib(o.slow),
            format!("{:.1}", o.added_in.as_secs_f64()),
        ]
    });
    let heads = [
        "core",
        "idle UEs",
        "at rest",
        "resident MiB",
        "most MiB",
        "octets a UE",
        "octets a record",
        "records fast MiB",
        "slow MiB",
        "added in s",
    ];
    print(&table(&heads, &rows))?;
    let mut rows = Vec::new();
    for (name, step) in &resting.report.steps {
        let Some(of_baseline) = baseline.report.steps.get(name) else { continue };
        let wire = |s: &whimbrel_ran::report::StepReport| {
            let times = if s.wire.count() > 0 { &s.wire } else { &s.latency };
            [0.5, 0.99, 0.999].map(|q| times.quantile_micros(q).to_string())
        };
        let mut row = vec![(*name).to_owned(), step.begun.to_string(), step.failed.to_string()];
        row.extend(wire(of_baseline).into_iter().chain(wire(step)));
        rows.push(row);
    }
    let heads = [
        "step",
        "begun",
        "failed",
        "all in memory: p50 us",
        "p99",
        "p99.9",
        "UEs rest: p50 us",
        "p99",
        "p99.9",
    ];
    print(&table(&heads, &rows))?;
    let reads = resting.fast_reads + resting.slow_reads;
    print(&format!(
        "records read for messages: {reads}, of which {} in slow memory; moved: {}; longest wait for a record {} us, for a relocation {} us\n",
        resting.slow_reads, resting.moved, resting.longest_stall_us, resting.longest_relocation_us
    ))?;
    let p99 = |o: &Outcome| {
        let steps = o.report.steps.iter().filter(|(_, s)| s.wire.count() > 0);
        steps
            .map(|(name, s)| ((*name).to_owned(), json!(s.wire.quantile_micros(0.99))))
            .collect::<serde_json::Map<_, _>>()
    };
    let line = json!({"bench": "sleepers", "figures": {
        "idle_ues": resting.idle, "at_rest": resting.at_rest, "active_ues": resting.report.arrived,
        "failed": resting.report.failed, "violations": resting.report.violated,
        "limit_octets": limit, "needed_without": needed, "resident": resting.loaded, "most_resident": resting.most,
        "octets_per_ue": resting.octets_per_ue(), "octets_per_ue_without": baseline.octets_per_ue(),
        "octets_per_record": resting.record_octets.checked_div(resting.at_rest).unwrap_or(0),
        "fast_reads": resting.fast_reads, "slow_reads": resting.slow_reads, "moved": resting.moved,
        "longest_stall_us": resting.longest_stall_us, "longest_relocation_us": resting.longest_relocation_us,
        "wire_us_p99": p99(resting), "wire_us_p99_without": p99(baseline),
    }});
    print(&format!("{line}\n"))
}
