//! `whimbrel-lab demo --scenario sleepers`: many registered UEs that are idle, in memory that does not hold them as they are while they are
//! active; beside them UEs that register, set up sessions and move (docs/memory.md).

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use whimbrel_cli::{Done, print, table};
use whimbrel_node::observation::Metric;
use whimbrel_ran::UeId;
use whimbrel_ran::edge::{self, GnbPlace, RunnerConfig, Watch};
use whimbrel_ran::report::{ScenarioReport, Times};
use whimbrel_ran::scenario::{
    ArrivalPattern, Group, HandoverKind, HandoverStep, Scenario, SessionStep, SessionType, Step,
};
use whimbrel_ran::ue::{self, UeConfig};
use whimbrel_sctp_io::Mode;

use super::Options;
use crate::playground::{GATEWAY, Playground, SuciScheme, Wish};

/// Idle UEs, so that the demonstration takes about a minute.
const SLEEPERS: u32 = 1_000_000;
/// UEs that register over N2 before the others are added like them.
const MODELS: u32 = 32;
/// The baseline has one idle UE for so many, and not more than this: it shows what each takes.
const BASELINE_PART: u32 = 10;
const BASELINE_MAX: u32 = 200_000;
/// One idle UE in so many has registered over N2 and is woken at the end, but not more than this.
const WOKEN_PART: u32 = 100;
const WOKEN_MAX: u32 = 2000;
/// Time between two of them that are woken, in each way.
const WAKE_EVERY: Duration = Duration::from_millis(10);
/// Portions of those that send SERVICE REQUEST.
const WAKE_PORTIONS: u32 = 100;
/// Memory of the process without UEs, and of each UE: slot, deadline, entry in the directory, and a part of its record.
const LIMIT_BASE: u64 = 200 << 20;
const LIMIT_PER_UE: u64 = 280;
/// The core's own limit is below that of the demonstration by this part, since it measures itself twice a second.
const MARGIN_PART: u64 = 10;
/// Writable memory that the kernel allows beyond the limit, or half of the limit if that is more: stacks, and what the allocator reserves and does
/// not use.
const RESERVED: u64 = 384 << 20;
/// After so long without messages UEs rest.
const REST_AFTER: Duration = Duration::from_millis(500);
/// How long active UEs are idle between two procedures: longer than that.
const IDLE_S: f64 = 1.0;
/// Arrivals of active UEs: all of them in this time, but not more in a second than this.
const ARRIVALS_WITHIN_S: u32 = 4;
const ARRIVALS_PER_S_MAX: u32 = 500;
/// How long it may take until one more UE is added.
const PROGRESS_WITHIN: Duration = Duration::from_secs(60);
/// How long a core whose UEs stay in memory is filled.
const EXHAUSTED_WITHIN: Duration = Duration::from_secs(90);
/// After so long without less memory, no more records leave it.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);
/// The gauges of the core are half a second old at most.
const GAUGES: Duration = Duration::from_millis(600);

/// An observer that ignores all.
struct Unwatched;

impl Watch for Unwatched {}

/// UEs that register while the idle ones are added, so that their records are stored among those, and are woken at the end.
#[derive(Default)]
struct Woken {
    prepared: AtomicU64,
    failed: AtomicU64,
    go: AtomicBool,
    stop: AtomicBool,
    inner: Mutex<WokenUes>,
}

#[derive(Default)]
struct WokenUes {
    addresses: BTreeMap<u32, Ipv4Addr>,
    /// When a packet was sent to a UE that has not answered yet.
    called: BTreeMap<u32, Instant>,
    /// From the packet to SERVICE ACCEPT.
    answered: Times,
}

impl Woken {
    fn ues(&self) -> MutexGuard<'_, WokenUes> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for &Woken {
    fn progress(&mut self, completed: u64, failed: u64, _playing: u64) {
        if !self.go.load(Ordering::Relaxed) {
            self.prepared.store(completed, Ordering::Relaxed);
            self.failed.store(failed, Ordering::Relaxed);
        }
    }

    fn ue(&mut self, ue: UeId, event: &ue::Event) {
        match event {
            ue::Event::SessionUp { session, .. } => {
                session.ipv4.and_then(|address| self.ues().addresses.insert(ue.0, address));
            }
            ue::Event::ServiceAccepted { .. } => {
                let mut ues = self.ues();
                if let Some(sent) = ues.called.remove(&ue.0) {
                    ues.answered.add(sent.elapsed());
                }
            }
            _ => {}
        }
    }

    fn holds(&mut self) -> bool {
        !self.go.load(Ordering::Relaxed)
    }

    fn stop(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What waking cold UEs took.
struct Waking {
    report: ScenarioReport,
    /// Of those that were paged, from the downlink packet to SERVICE ACCEPT.
    paged: Times,
    fast_reads: u64,
    slow_reads: u64,
    /// Time that messages waited for records in slow memory.
    waited_us: u64,
}

/// What a core did with its UEs.
struct Outcome {
    report: ScenarioReport,
    waking: Waking,
    idle: u32,
    /// Octets in memory: before UEs were added, when they were, and the most of all.
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

    fn failed(&self) -> u64 {
        self.report.failed + self.waking.report.failed
    }

    fn violated(&self) -> u64 {
        self.report.violated + self.waking.report.violated
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
    // The kernel's limit of private writable memory (RLIMIT_DATA). What is in swap counts in it, so that with zram there is none.
    let data_limit = (options.slow != "zram").then_some(limit + RESERVED.max(limit / 2));
    let few = (idle / BASELINE_PART).clamp(MODELS, BASELINE_MAX);
    print(&format!(
        "baseline: a core whose UEs stay in memory as they are, with {few} idle UEs and {} active ones\n",
        options.active
    ))?;
    let baseline = serve(options, few, "", None)?;
    let needed = baseline.before + baseline.octets_per_ue() * u64::from(idle);
    print(&format!(
        "a core with {idle} idle UEs in {} MiB (as they are they would need {} MiB), and {} active ones; {}\n",
        limit >> 20,
        needed >> 20,
        options.active,
        match data_limit {
            Some(data) => format!(
                "the kernel gives it {} MiB of writable memory (RLIMIT_DATA), and what is resident is checked against the limit",
                data >> 20
            ),
            None => "what is resident, with zram's own memory, is checked against the limit".to_owned(),
        }
    ))?;
    let memory = format!(
        "memory: {{ limit: {} MiB, slow: {}, rest_after: {}ms }}\n",
        (limit - limit / MARGIN_PART) >> 20,
        options.slow,
        REST_AFTER.as_millis()
    );
    let resting = serve(options, idle, &memory, data_limit)?;
    summarise(&baseline, &resting, limit, needed)?;
    if let Some(data) = data_limit.filter(|data| needed > *data) {
        print(&exhaust(options, idle, data)?)?;
    }
    let failed = baseline.failed() + resting.failed();
    let violated = baseline.violated() + resting.violated();
    if failed + violated > 0 {
        let reports = [&baseline, &resting].map(|o| [&o.report, &o.waking.report]);
        for failure in reports.iter().flatten().flat_map(|r| &r.failures).take(10) {
            print(&format!("failed: {} at step {}: {}\n", failure.supi, failure.step, failure.reason))?;
        }
        return Err(format!("{failed} UEs failed, {violated} protocol violations"));
    }
    if resting.at_rest < u64::from(idle) {
        return Err(format!("{} of {idle} UEs rest", resting.at_rest));
    }
    if resting.most > limit {
        return Err(format!("the core took {} MiB, above its limit", resting.most >> 20));
    }
    Ok(())
}

fn woken_ues(idle: u32) -> u32 {
    (idle / WOKEN_PART).clamp(2, WOKEN_MAX)
}

fn wish(options: &Options, idle: u32, memory: &str, data_limit: Option<u64>) -> Wish {
    Wish {
        ues: MODELS + options.active + woken_ues(idle),
        // Half of them for the UEs that are woken.
        gnbs: 2 * options.gnbs.max(2),
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
        data_limit,
        keeps_ues: false,
    }
}

/// A core with so many idle UEs, and active ones beside them.
fn serve(options: &Options, idle: u32, memory: &str, data_limit: Option<u64>) -> Result<Outcome, String> {
    let playground = Playground::start(&wish(options, idle, memory, data_limit))?;
    let outcome = in_playground(options, idle, !memory.is_empty(), &playground);
    let outcome = outcome.map_err(|e| format!("{e}\nlog of the core: {}", playground.log()))?;
    playground.stop().map(|()| outcome)
}

/// Adds idle UEs to a core whose UEs stay in memory as they are, until it has no more memory. Returns a sentence.
fn exhaust(options: &Options, idle: u32, data_limit: u64) -> Result<String, String> {
    let playground = Playground::start(&wish(options, idle, "", Some(data_limit)))?;
    let models = playground.ues().into_iter().take(MODELS as usize).collect();
    register_models(&playground, playground.gnb_places(), models)?;
    let (begun, mut added, mut most) = (Instant::now(), 0.0, 0);
    while begun.elapsed() < EXHAUSTED_WITHIN {
        let Ok(now) = playground.client().metric(Metric::UesAdded, None) else {
            let log = playground.log();
            let last = log.lines().next_back().unwrap_or_default();
            return Ok(format!(
                "a core whose UEs stay in memory as they are, with the same limit of the kernel, ended after {added} of {idle} idle UEs: {last}\n"
            ));
        };
        (added, most) = (now, resident(&playground).max(most));
        if added >= f64::from(idle) {
            return Err(format!("{added} UEs fit in memory as they are: the limit shows nothing"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(format!(
        "a core whose UEs stay in memory as they are took {} MiB for {added} of {idle} idle UEs; its filling was ended there\n",
        most >> 20
    ))
}

fn register_models(playground: &Playground, gnbs: Vec<GnbPlace>, ues: Vec<UeConfig>) -> Done {
    let steps = vec![Step::Register, session(), Step::Idle];
    match play(playground, gnbs, ues, ArrivalPattern::AtOnce, steps)?.failed {
        0 => Ok(()),
        _ => Err("the first UEs cannot register".into()),
    }
}

fn in_playground(
    options: &Options,
    idle: u32,
    rests: bool,
    playground: &Playground,
) -> Result<Outcome, String> {
    let mut ues = playground.ues();
    let woken = ues.split_off((MODELS + options.active) as usize);
    let active = ues.split_off(MODELS as usize);
    let mut gnbs = playground.gnb_places();
    let gnbs_of_woken = gnbs.split_off(gnbs.len() / 2);
    let before = resident(playground);
    register_models(playground, gnbs.clone(), ues)?;
    let begun = Instant::now();
    let per_second = filling_rate(playground, idle)?;
    let (state, over, most) = (Woken::default(), AtomicBool::new(false), AtomicU64::new(0));
    // They register while the others are added.
    let rate = f64::from(woken_ues(idle)) * per_second / f64::from(idle) * 1.2;
    let config = config(playground, gnbs_of_woken, woken, waking(woken_ues(idle), rate));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(resident(playground) + zram_octets(options), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let to_wake = scope.spawn(|| edge::run(&config, &mut &state).map_err(|e| e.to_string()));
        let served = (|| -> Result<_, String> {
            await_added(playground, idle)?;
            let added_in = begun.elapsed();
            await_prepared(&state, woken_ues(idle))?;
            settle(playground, idle, rests)?;
            let loaded = resident(playground);
            let rate = (options.active / ARRIVALS_WITHIN_S).clamp(1, ARRIVALS_PER_S_MAX);
            let report = play(playground, gnbs, active, ArrivalPattern::Rate(rate.into()), steps())?;
            std::thread::sleep(GAUGES);
            Ok((added_in, loaded, report))
        })();
        let before_waking = reads(playground);
        let woken = match &served {
            Ok(_) => wake(&state, woken_ues(idle)),
            Err(_) => Ok(()),
        };
        if served.is_err() || woken.is_err() {
            state.stop.store(true, Ordering::Relaxed);
        }
        let reports = to_wake.join().map_err(|_| "the RAN of the woken UEs panicked".to_owned());
        over.store(true, Ordering::Relaxed);
        let (added_in, loaded, report) = served?;
        woken?;
        let reports = reports??;
        std::thread::sleep(GAUGES);
        let (first, last) = (before_waking?, reads(playground)?);
        let waking = Waking {
            report: reports.into_iter().next_back().ok_or("no UE was woken")?,
            paged: state.ues().answered.clone(),
            fast_reads: last.0 - first.0,
            slow_reads: last.1 - first.1,
            waited_us: last.2 - first.2,
        };
        let value = |metric, label: Option<&str>| playground.client().metric(metric, label).map(|v| v as u64);
        Ok(Outcome {
            report,
            waking,
            idle,
            before,
            loaded,
            most: most.load(Ordering::Relaxed),
            added_in,
            at_rest: value(Metric::UesAtRest, None)?,
            record_octets: value(Metric::UeRecords, None)?,
            fast: value(Metric::UeMemory, Some("fast"))?,
            slow: value(Metric::UeMemory, Some("slow"))?,
            fast_reads: first.0,
            slow_reads: first.1,
            moved: value(Metric::UeRecordsMoved, None)?,
            longest_stall_us: micros(playground, Metric::UeRecordStallLongest)?,
            longest_relocation_us: micros(playground, Metric::UeRelocationLongest)?,
        })
    })
}

/// UEs that are added in a second.
fn filling_rate(playground: &Playground, idle: u32) -> Result<f64, String> {
    await_added(playground, 1)?;
    let added = || playground.client().metric(Metric::UesAdded, None);
    let (first, begun) = (added()?, Instant::now());
    std::thread::sleep(2 * GAUGES);
    let rate = (added()? - first) / begun.elapsed().as_secs_f64();
    Ok(if rate > 0.0 { rate } else { f64::from(idle) })
}

/// What UEs do that are woken: half of them have something to send, the others are paged.
fn waking(ues: u32, before_rate: f64) -> Scenario {
    let returning = ues / 2;
    let portion = returning.div_ceil(WAKE_PORTIONS).max(1);
    let mut groups: Vec<Group> = (0..returning.div_ceil(portion))
        .map(|n| Group {
            name: format!("return-{n}"),
            ues: portion.min(returning - n * portion),
            begin: vec![Step::Wait((WAKE_EVERY * n * portion).as_secs_f64()), Step::Return, Step::Idle],
            ..Group::default()
        })
        .collect();
    let (name, begin) = ("paged".to_owned(), vec![Step::Paged, Step::Idle]);
    groups.push(Group { name, ues: ues - returning, begin, ..Group::default() });
    Scenario {
        before: vec![Step::Register, session(), Step::Idle],
        before_rate: before_rate.clamp(1.0, ARRIVALS_PER_S_MAX.into()),
        groups,
        ..scenario(ues, ArrivalPattern::AtOnce, Vec::new())
    }
}

fn await_prepared(state: &Woken, ues: u32) -> Done {
    let (mut before, mut since) = (0, Instant::now());
    while state.prepared.load(Ordering::Relaxed) < u64::from(ues) {
        if state.failed.load(Ordering::Relaxed) > 0 {
            return Err("UEs that are to be woken cannot register".into());
        }
        let prepared = state.prepared.load(Ordering::Relaxed);
        if prepared > before {
            (before, since) = (prepared, Instant::now());
        }
        if since.elapsed() > PROGRESS_WITHIN {
            return Err(format!("only {prepared} of {ues} UEs that are to be woken have registered"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Waits until the last UEs rest, and cold records have left memory.
fn settle(playground: &Playground, idle: u32, rests: bool) -> Done {
    let value = |metric| playground.client().metric(metric, None).map(|v| v as u64);
    let limit = value(Metric::MemoryLimit)?;
    let (mut least, mut since) = (u64::MAX, Instant::now());
    while rests && since.elapsed() < SETTLED_WITHIN {
        let (now, at_rest) = (resident(playground), value(Metric::UesAtRest)?);
        if now <= limit && at_rest >= u64::from(idle + woken_ues(idle)) {
            break;
        }
        if now < least - least / 100 {
            (least, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Lets UEs send SERVICE REQUEST, and has the others paged: a packet for each arrives from the data network.
fn wake(state: &Woken, ues: u32) -> Done {
    let cannot = |e| format!("no packet can be sent to UEs: {e}");
    let socket = UdpSocket::bind((GATEWAY, 0)).map_err(cannot)?;
    let paged: Vec<(u32, Ipv4Addr)> =
        state.ues().addresses.range(ues / 2..).map(|(ue, address)| (*ue, *address)).collect();
    state.go.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(500)); // their step begins
    for (ue, address) in paged {
        state.ues().called.insert(ue, Instant::now());
        socket.send_to(b"wake", (address, 9)).map_err(cannot)?;
        std::thread::sleep(WAKE_EVERY);
    }
    Ok(())
}

/// Records that were read for messages, from fast and from slow memory, and the microseconds that messages waited for the latter.
fn reads(playground: &Playground) -> Result<(u64, u64, u64), String> {
    let value = |tier| playground.client().metric(Metric::UeRecordReads, Some(tier)).map(|v| v as u64);
    Ok((value("fast")?, value("slow")?, micros(playground, Metric::UeRecordStall)?))
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
        handover(HandoverKind::Xn),
        Step::Idle,
        Step::Wait(IDLE_S),
        Step::Return,
        handover(HandoverKind::N2),
        Step::Idle,
        Step::Wait(IDLE_S),
        Step::PeriodicRegistration,
        Step::Deregister,
    ]
}

fn scenario(ues: u32, arrival: ArrivalPattern, steps: Vec<Step>) -> Scenario {
    Scenario {
        ues,
        gnbs: 2,
        before: Vec::new(),
        before_rate: 500.0,
        arrival,
        steps,
        groups: Vec::new(),
        seconds: 0.0,
        patience_s: 60.0,
        again: false,
        tun: false,
    }
}

fn config(
    playground: &Playground,
    gnbs: Vec<GnbPlace>,
    ues: Vec<UeConfig>,
    scenario: Scenario,
) -> RunnerConfig {
    RunnerConfig {
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
    }
}

fn play(
    playground: &Playground,
    gnbs: Vec<GnbPlace>,
    ues: Vec<UeConfig>,
    arrival: ArrivalPattern,
    steps: Vec<Step>,
) -> Result<ScenarioReport, String> {
    let scenario = scenario(ues.len() as u32, arrival, steps);
    let config = config(playground, gnbs, ues, scenario);
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

/// Octets that zram takes for what is swapped out, if it is the slow tier.
fn zram_octets(options: &Options) -> u64 {
    let used = |n: u32| {
        let text = fs::read_to_string(format!("/sys/block/zram{n}/mm_stat")).ok()?;
        text.split_whitespace().nth(2)?.parse::<u64>().ok()
    };
    if options.slow == "zram" { (0..16).filter_map(used).sum() } else { 0 }
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
    let steps = |o: &'_ Outcome| -> Vec<(&'static str, whimbrel_ran::report::StepReport)> {
        let woken = o.waking.report.steps.iter().filter(|(name, _)| ["return", "paged"].contains(*name));
        let woken = woken.map(|(name, step)| {
            (if *name == "return" { "woken: service request" } else { "woken: paged" }, step.clone())
        });
        o.report.steps.iter().map(|(name, step)| (*name, step.clone())).chain(woken).collect()
    };
    let of_baseline = steps(baseline);
    for (name, step) in &steps(resting) {
        let Some((_, of_baseline)) = of_baseline.iter().find(|(of, _)| of == name) else { continue };
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
    let (waking, reads) = (&resting.waking, resting.waking.fast_reads + resting.waking.slow_reads);
    let quantiles =
        |o: &Outcome| [0.5, 0.99, 1.0].map(|q| o.waking.paged.quantile_micros(q).to_string()).join(", ");
    print(&format!(
        "woken UEs: {} sent SERVICE REQUEST or were paged; records read for them: {reads}, of which {} in slow memory, {} us each on average; \
         from a downlink packet to SERVICE ACCEPT (p50, p99, longest): {} us; all in memory: {} us\n",
        waking.report.arrived,
        waking.slow_reads,
        waking.waited_us.checked_div(waking.slow_reads).unwrap_or(0),
        quantiles(resting),
        quantiles(baseline),
    ))?;
    let p99 = |o: &Outcome| {
        let steps = o.report.steps.iter().filter(|(_, s)| s.wire.count() > 0);
        steps
            .map(|(name, s)| ((*name).to_owned(), json!(s.wire.quantile_micros(0.99))))
            .collect::<serde_json::Map<_, _>>()
    };
    let line = json!({"bench": "sleepers", "figures": {
        "idle_ues": resting.idle, "at_rest": resting.at_rest, "active_ues": resting.report.arrived,
        "failed": resting.failed(), "violations": resting.violated(),
        "woken": waking.report.completed, "woken_slow_reads": waking.slow_reads, "woken_fast_reads": waking.fast_reads,
        "woken_wait_us": waking.waited_us.checked_div(waking.slow_reads).unwrap_or(0),
        "paged_us_p50": waking.paged.quantile_micros(0.5), "paged_us_p99": waking.paged.quantile_micros(0.99),
        "paged_us_p99_without": baseline.waking.paged.quantile_micros(0.99),
        "added_in_s": resting.added_in.as_secs_f64(),
        "limit_octets": limit, "needed_without": needed, "resident": resting.loaded, "most_resident": resting.most,
        "octets_per_ue": resting.octets_per_ue(), "octets_per_ue_without": baseline.octets_per_ue(),
        "octets_per_record": resting.record_octets.checked_div(resting.at_rest).unwrap_or(0),
        "fast_reads": resting.fast_reads, "slow_reads": resting.slow_reads, "moved": resting.moved,
        "longest_stall_us": resting.longest_stall_us, "longest_relocation_us": resting.longest_relocation_us,
        "wire_us_p99": p99(resting), "wire_us_p99_without": p99(baseline),
    }});
    print(&format!("{line}\n"))
}
