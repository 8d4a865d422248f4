//! Figure 10: handovers whose CPF is killed meanwhile.
//!
//! Of two CPFs one serves all UEs. Some UEs begin a handover, and at a random moment of it that CPF is killed (`kill -9`). Ours: the other CPF
//! replays what the CTA logged of the handover, which then goes on. Existing: the CTA releases the UEs, and they attach again, also those that were
//! connected and did nothing: the storm. The time of a UE ends with HANDOVER NOTIFY, or with its new session. When all UEs are served, another CPF takes
//! the place of the killed one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use whimbrel_cli::{Done, print};
use whimbrel_node::observation::Metric;
use whimbrel_ran::UeId;
use whimbrel_ran::cells::GnbId;
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::player::Player;
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, Step};
use whimbrel_ran::{gnb, ue};

use super::super::detection::{milliseconds_between, time_of_day};
use super::super::{runner, scenario, session};
use super::{GNBS, REGION, SCHEMES, Scheme, first_failure, handover, ratio, start};
use crate::playground::Playground;

/// The line that the CTA logs when it finds that a CPF is lost.
const LOST: &str = "a CPF is lost";
/// Between two bursts of handovers at least, in seconds; each waits until it is asked for.
const EVERY_S: f64 = 0.02;
/// Bursts without a kill, in which the inputs of a handover are counted, and which say how long a burst takes.
const UNDISTURBED: usize = 5;
/// Kills after which inputs are counted, at most: the count takes a second.
const COUNTED: usize = 8;
/// How long after a handover the replica has its checkpoint, so that no input of an earlier handover is replayed.
const SETTLED: Duration = Duration::from_millis(50);
/// A UE that is not served by then has failed.
const SERVED_WITHIN: Duration = Duration::from_secs(15);
/// The steps before the measurement, and each replacement of a CPF, may take this long.
const COMPLETE_WITHIN: Duration = Duration::from_secs(60);
/// How long after the first loss its UEs have begun to attach again.
const FIRST_LOSS: Duration = Duration::from_millis(300);
/// The number that the paper gives for the median, below 60,000 handovers a second.
const PAPER: f64 = 5.6;

#[derive(Args)]
pub(crate) struct Options {
    /// Few UEs and kills: shows that it runs, and no figure.
    #[arg(long)]
    quick: bool,
    /// Kills of each scheme with each number of connected UEs.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
    /// UEs that begin a handover at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    movers: u32,
    /// Connected UEs of the CPF that is killed; the fewest are those that move, so that no other attaches beside them.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 512], value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connected: Vec<u32>,
    /// Time of each message between gNB and core, in microseconds, each way: a gNB is not where the core is.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    hop_us: u32,
}

impl Options {
    fn kills(&self) -> usize {
        if self.quick { 3 } else { self.kills as usize }
    }

    fn connected(&self) -> Vec<u32> {
        let all = if self.quick { &[4][..] } else { &self.connected };
        all.iter().map(|n| (*n).max(self.movers())).collect()
    }

    fn movers(&self) -> u32 {
        if self.quick { 4 } else { self.movers }
    }
}

/// What UEs had of the kills.
#[derive(Default)]
struct Hits {
    /// From the kill to the end of the UE's procedure, with the number of the kill.
    times: Vec<(usize, Duration)>,
    /// When each CPF was killed.
    kills: Vec<SystemTime>,
    /// UEs that were not served in time.
    failed: usize,
    /// UEs that attached again after each kill.
    attached: Vec<usize>,
    /// From the kill until the core had released a UE of these, with the number of the kill.
    released: Vec<(usize, Duration)>,
}

impl Hits {
    /// UEs that were in a handover at the first kills.
    fn of_first(&self, kills: usize) -> usize {
        self.times.iter().filter(|(kill, _)| *kill < kills).count()
    }
}

/// What the observer of the UEs and the thread that replaces CPFs share.
#[derive(Default)]
struct Shared {
    /// All UEs are connected, with a session.
    prepared: AtomicBool,
    /// A burst of handovers is requested.
    requested: AtomicBool,
    /// The process to kill in that burst; 0: none.
    victim: AtomicU32,
    /// No UE is in the middle of anything.
    calm: AtomicBool,
    /// The measurement is over.
    over: AtomicBool,
}

/// What the observer does.
enum Phase {
    /// It waits for handovers to begin.
    Calm,
    /// Handovers have begun, and are not to be disturbed.
    Undisturbed { since: Instant },
    /// The CPF is to be killed then.
    Armed { since: Instant, at: Instant },
    /// It was killed then; these UEs were in a handover.
    Killed { at: Instant, hit: BTreeSet<UeId> },
}

struct Observer<'a> {
    shared: &'a Shared,
    connected: u32,
    phase: Phase,
    sections: usize,
    /// How long bursts of handovers take that are not disturbed.
    bursts: Vec<Duration>,
    /// A multiplicative generator, for the moments.
    random: u64,
    hits: Hits,
}

impl Observer<'_> {
    /// A moment of a burst, each as likely as the others.
    fn moment(&mut self) -> Duration {
        self.bursts.sort();
        let burst = self.bursts.get(self.bursts.len() / 2).copied().unwrap_or(Duration::from_millis(1));
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        burst.mul_f64((self.random >> 33) as f64 / f64::from(1u32 << 31))
    }

    /// The CPF that serves all UEs dies.
    fn kill(&mut self, hit: BTreeSet<UeId>) {
        let pid = self.shared.victim.swap(0, Ordering::AcqRel);
        let (at, time) = (Instant::now(), SystemTime::now());
        let killed = Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, Signal::KILL));
        if matches!(killed, Some(Ok(()))) {
            self.hits.kills.push(time);
            self.hits.attached.push(0);
            self.phase = Phase::Killed { at, hit };
        }
    }

    /// A UE's procedure has ended, by the handover or by a new session.
    fn served(&mut self, ue: UeId) {
        if let Phase::Killed { at, hit } = &mut self.phase
            && hit.remove(&ue)
        {
            self.hits.times.push((self.hits.kills.len() - 1, at.elapsed()));
        }
    }
}

impl Watch for Observer<'_> {
    fn attaches_again(&self) -> bool {
        true
    }

    fn section(&mut self, _: &[ScenarioReport]) {
        self.sections += 1;
    }

    fn holds(&mut self) -> bool {
        !self.shared.requested.load(Ordering::Acquire)
    }

    fn gnb(&mut self, _: GnbId, event: &gnb::Event) {
        if let gnb::Event::HandedOver { ue, .. } = event {
            self.served(*ue);
        }
    }

    fn ue(&mut self, ue: UeId, event: &ue::Event) {
        match (event, &self.phase) {
            (ue::Event::SessionUp { .. }, Phase::Killed { .. }) => {
                self.hits.attached.last_mut().into_iter().for_each(|attached| *attached += 1);
                self.served(ue);
            }
            (ue::Event::Idle, Phase::Killed { at, hit }) if hit.contains(&ue) => {
                self.hits.released.push((self.hits.kills.len() - 1, at.elapsed()));
            }
            _ => {}
        }
    }

    fn turn(&mut self, player: &Player) {
        let now = Instant::now();
        let (prepared, failed, playing) = player.progress();
        let calm = playing == 0 && player.attaching() == 0;
        if self.sections < 2 {
            self.shared.prepared.store(prepared >= u64::from(self.connected), Ordering::Release);
            if failed > 0 {
                self.shared.over.store(true, Ordering::Release);
            }
        }
        match &mut self.phase {
            Phase::Calm if playing == 0 || self.sections < 2 => {}
            Phase::Calm => {
                self.shared.requested.store(false, Ordering::Release);
                self.phase = match self.shared.victim.load(Ordering::Acquire) {
                    0 => Phase::Undisturbed { since: now },
                    _ => Phase::Armed { since: now, at: now + self.moment() },
                };
            }
            Phase::Undisturbed { since } | Phase::Armed { since, .. } if calm => {
                self.bursts.push(now - *since);
                self.phase = Phase::Calm;
            }
            Phase::Undisturbed { .. } => {}
            Phase::Armed { at, .. } => {
                if now >= *at {
                    self.kill(player.in_step(handover().name()).into_iter().collect());
                }
            }
            Phase::Killed { at, hit } => {
                if calm && hit.is_empty() || now - *at > SERVED_WITHIN {
                    self.hits.failed += hit.len();
                    self.phase = Phase::Calm;
                }
            }
        }
        let at_rest = matches!(self.phase, Phase::Calm) && !self.shared.requested.load(Ordering::Acquire);
        self.shared.calm.store(calm && at_rest, Ordering::Release);
    }

    fn stop(&mut self) -> bool {
        self.shared.over.load(Ordering::Acquire)
    }
}

/// What the core counted.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Inputs of a handover that was not disturbed.
    handover: f64,
    /// Kills after which inputs were counted.
    kills: usize,
    /// Inputs that the other CPF ran after these kills, of all UEs, and the time that it took for them.
    inputs: f64,
    inputs_us: f64,
    /// Inputs that were replayed after all kills: some of them ran in the replay sandbox before.
    replayed: f64,
    /// Median from the detection to the first answer of the UE's new CPF.
    answered_us: f64,
}

/// Kills of one scheme with one number of connected UEs.
struct Outcome {
    connected: u32,
    scheme: Scheme,
    hits: Hits,
    counts: Counts,
    /// From each kill until the CTA found the CPF lost.
    found: Vec<Option<Duration>>,
}

impl Outcome {
    /// A quantile of the times from the kill, in microseconds, and of those from when the CTA found it.
    fn quantiles(&self, part: f64) -> [f64; 2] {
        [
            quantile(self.hits.times.iter().map(|(_, time)| *time), part),
            quantile(self.after_detection(&self.hits.times), part),
        ]
    }

    /// The same times, from when the CTA found the kill.
    fn after_detection<'a>(&'a self, times: &'a [(usize, Duration)]) -> impl Iterator<Item = Duration> + 'a {
        let found = |kill: usize| self.found.get(kill).copied().flatten();
        times.iter().filter_map(move |(kill, time)| Some(time.saturating_sub(found(*kill)?)))
    }

    fn found_us(&self) -> f64 {
        quantile(self.found.iter().copied().flatten(), 0.5)
    }

    /// Median from the detection until the core does something for a UE: the first answer of its new CPF, or the release of its connection.
    fn begun_us(&self) -> f64 {
        match self.scheme {
            Scheme::Ours => self.counts.answered_us,
            Scheme::Existing => quantile(self.after_detection(&self.hits.released), 0.5),
        }
    }

    /// Inputs of one UE after the kill, and the time that the CPF took for them: those that were replayed and those of the rest of its handover,
    /// or those of an attach.
    fn inputs_a_ue(&self) -> [f64; 2] {
        let kills = self.counts.kills;
        let ues = match self.scheme {
            Scheme::Ours => self.hits.of_first(kills),
            Scheme::Existing => self.hits.attached.iter().take(kills).sum(),
        };
        [self.counts.inputs, self.counts.inputs_us].map(|sum| sum / ues.max(1) as f64)
    }

    fn replayed_a_ue(&self) -> f64 {
        self.counts.replayed / self.hits.times.len().max(1) as f64
    }

    fn row(&self) -> String {
        let [p50, p50_found] = self.quantiles(0.5);
        let [p99, _] = self.quantiles(0.99);
        let [inputs, inputs_us] = self.inputs_a_ue();
        format!(
            "{:>9} {:<9} {:>6} {:>5} {p50:>10.0} {p99:>10.0} {:>10.0} {p50_found:>12.0} {:>10.0} {:>10.0} {inputs:>8.1} {:>9.1} {inputs_us:>8.0}{}\n",
            self.connected,
            self.scheme.name(),
            self.hits.kills.len(),
            self.hits.times.len(),
            self.found_us(),
            self.begun_us(),
            p50_found - self.begun_us(),
            self.replayed_a_ue(),
            if self.hits.failed > 0 { format!("  {} not served", self.hits.failed) } else { String::new() },
        )
    }

    fn json(&self) -> Value {
        let ([p50, p50_found], [p99, _]) = (self.quantiles(0.5), self.quantiles(0.99));
        let [inputs, inputs_us] = self.inputs_a_ue();
        let tenths = |value: f64| (value * 10.0).round() / 10.0;
        json!({
            "scheme": self.scheme.name(), "connected": self.connected, "kills": self.hits.kills.len(), "hit": self.hits.times.len(),
            "not_served": self.hits.failed, "p50_us": p50.round(), "p99_us": p99.round(), "found_us": self.found_us().round(),
            "p50_from_found_us": p50_found.round(), "begun_from_found_us": self.begun_us().round(), "inputs_a_ue": tenths(inputs),
            "replayed_a_ue": tenths(self.replayed_a_ue()), "cpf_us_a_ue": inputs_us.round(), "inputs_of_a_handover": tenths(self.counts.handover),
        })
    }
}

/// A quantile, in microseconds; NaN of nothing.
fn quantile(times: impl Iterator<Item = Duration>, part: f64) -> f64 {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
    times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

pub(super) fn run(options: &Options, core_cpu: Option<u32>) -> Done {
    print(
        "figure 10 live: handovers whose CPF is killed (kill -9) at a random moment; a CTA and two CPFs, gNBs and UEs on sockets\n",
    )?;
    print(&format!(
        "paper: up to {PAPER} times as fast as an existing core, whose UEs attach again; detection excluded\n\
         {} UEs begin a handover at once; the other connected UEs of the CPF attach again too in `existing`; {} us each way to gNBs\n\n",
        options.movers(),
        options.hop_us
    ))?;
    print(
        "of a UE, in us: from the kill to the end (p50, p99); the kill until the CTA finds it (found); from there to the end (p50 then), of it to the \
         first answer of its new CPF, or to its release (begun), and the rest; inputs that the other CPF ran, those of them that were replayed, and \
         the time that it took for them\n\n",
    )?;
    print(
        "connected scheme     kills   hit        p50        p99      found     p50 then      begun       rest   inputs  replayed      CPF\n",
    )?;
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for connected in options.connected() {
        let mut pair = Vec::new();
        for scheme in SCHEMES {
            let outcome = measure(options, connected, scheme, core_cpu)?;
            print(&outcome.row())?;
            rows.push(outcome.json());
            pair.push(outcome);
        }
        let [ours, existing] = pair.as_slice() else { continue };
        figures.push(compare(options, ours, existing)?);
    }
    let failed = rows.iter().any(|row| row["scheme"] == "ours" && row["not_served"] != 0);
    print(&format!(
        "{}\n",
        json!({ "bench": "neutrino fig10", "figures": { "live": true, "hop_us": options.hop_us, "runs": rows, "ratios": figures } })
    ))?;
    if failed { Err("UEs were not served after their CPF was killed".into()) } else { Ok(()) }
}

/// The ratio with the detection and without, beside the one that counting inputs gives, and the one of the times that the CPF took for them.
fn compare(options: &Options, ours: &Outcome, existing: &Outcome) -> Result<Value, String> {
    let [with, without] = [0, 1].map(|at| ratio(ours.quantiles(0.5)[at], existing.quantiles(0.5)[at]));
    let [inputs, existing_inputs] = [ours, existing].map(Outcome::inputs_a_ue);
    let [by_inputs, by_cpf] = [0, 1].map(|at| ratio(inputs[at], existing_inputs[at]));
    let text = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}"));
    let storm = ours.connected > options.movers();
    let aim = match (storm, without, by_inputs) {
        (true, Some(ratio), _) => {
            format!("above {PAPER}: {}", if ratio > PAPER { "met" } else { "missed" })
        }
        (false, Some(ratio), Some(bound)) => {
            format!(
                "within 20 % of what inputs give: {}",
                if ratio >= 0.8 * bound { "met" } else { "missed" }
            )
        }
        _ => "not judged".into(),
    };
    print(&format!(
        "          ours is {} times as fast without the detection, {} with it; counting inputs gives {} ({:.1} against {:.1}), the time that the CPF \
         takes for them {}; aim, without the detection: {aim}\n",
        text(without),
        text(with),
        text(by_inputs),
        existing_inputs[0],
        inputs[0],
        text(by_cpf),
    ))?;
    Ok(json!({
        "connected": ours.connected, "storm": storm, "times_as_fast_without_detection": without, "times_as_fast_with_detection": with,
        "by_inputs": by_inputs, "by_cpf_time": by_cpf, "paper": PAPER,
    }))
}

fn measure(
    options: &Options,
    connected: u32,
    scheme: Scheme,
    core_cpu: Option<u32>,
) -> Result<Outcome, String> {
    let mut playground = start(connected, &scheme.cluster(), Vec::new(), core_cpu)?;
    playground.show_cpf_metrics();
    (0..2).try_for_each(|_| playground.add_cpf(REGION))?;
    let bursts =
        ArrivalPattern::Bursts { ues: options.movers(), within_ms: 0.0, every_s: EVERY_S, times: 10_000 };
    let steps = scenario(connected, GNBS, bursts, vec![handover()]);
    let scenario =
        Scenario { before: vec![Step::Register, session()], before_rate: 1000.0, again: true, ..steps };
    let hop_delay = Duration::from_micros(options.hop_us.into());
    let config =
        RunnerConfig { spin: Duration::from_micros(200), hop_delay, ..runner(&playground, scenario) };
    let shared = Shared::default();
    let mut observer = Observer {
        shared: &shared,
        connected,
        phase: Phase::Calm,
        sections: 0,
        bursts: Vec::new(),
        random: u64::from(connected) + 1,
        hits: Hits::default(),
    };
    let (reports, counts) = std::thread::scope(|scope| {
        let (playground, shared) = (&mut playground, &shared);
        let replaced = scope.spawn(move || {
            let counts = replace(playground, shared, options);
            shared.over.store(true, Ordering::Release);
            counts
        });
        let reports = edge::run(&config, &mut observer);
        shared.over.store(true, Ordering::Release);
        (reports, replaced.join().unwrap_or_else(|_| Err("the thread that replaces CPFs has failed".into())))
    });
    let log = playground.log();
    let reports = reports.map_err(|e| format!("{e}\nlog of the core: {log}"))?;
    let counts = counts.map_err(|e| format!("{e}{}\nlog of the core: {log}", first_failure(&reports)))?;
    let hits = observer.hits;
    let found = hits.kills.iter().map(|at| found_after(&log, *at)).collect();
    Ok(Outcome { connected, scheme, hits, counts, found })
}

/// How long after a kill the CTA logged that a CPF is lost.
fn found_after(log: &str, kill: SystemTime) -> Option<Duration> {
    let lost = log.lines().filter(|line| line.contains(LOST)).filter_map(time_of_day);
    let after = lost.map(|at| milliseconds_between(kill, at)).min_by(f64::total_cmp)?;
    (after < 10_000.0).then(|| Duration::from_secs_f64(after / 1e3))
}

/// Has bursts of handovers begin, names the CPF that is to be killed in each, and replaces it afterwards. Returns what the core counted.
/// Errors: one sentence.
fn replace(playground: &mut Playground, shared: &Shared, options: &Options) -> Result<Counts, String> {
    until(shared, "the preparation of the UEs", || {
        shared.prepared.load(Ordering::Acquire) && is_calm(shared)
    })?;
    // From the first loss on, which is not measured, one CPF serves all UEs.
    playground.end_cpf(0)?;
    std::thread::sleep(FIRST_LOSS);
    until(shared, "the service of all UEs after the first loss", || is_calm(shared))?;
    playground.replace_cpf(0, REGION)?;
    let mut serves = 1;
    let ([before, _], replayed_before) = (playground.inputs_run(serves)?, replayed(playground)?);
    (0..UNDISTURBED).try_for_each(|_| burst(shared))?;
    let handovers = (UNDISTURBED * options.movers() as usize) as f64;
    let handover = (playground.inputs_run(serves)?[0] - before) / handovers;
    let mut counts = Counts { handover, kills: options.kills().min(COUNTED), ..Counts::default() };
    for kill in 0..options.kills() {
        let other = 1 - serves; // which has run nothing yet
        shared.victim.store(playground.pids().get(1 + serves).copied().unwrap_or(0), Ordering::Release);
        while shared.victim.load(Ordering::Acquire) != 0 {
            std::thread::sleep(SETTLED);
            burst(shared)?;
        }
        playground.end_cpf(serves)?;
        if kill < counts.kills {
            let [inputs, us] = playground.inputs_run(other)?;
            (counts.inputs, counts.inputs_us) = (counts.inputs + inputs, counts.inputs_us + us);
        }
        playground.replace_cpf(serves, REGION)?;
        serves = other;
    }
    counts.replayed = replayed(playground)? - replayed_before;
    counts.answered_us = playground.client().metric(Metric::RecoveryDuration, Some("0.5"))? * 1e6;
    Ok(counts)
}

/// How many inputs takeovers have replayed. Errors: one sentence.
fn replayed(playground: &Playground) -> Result<f64, String> {
    playground.client().metric(Metric::InputsReplayed, None)
}

/// A burst of handovers, until all UEs are served.
fn burst(shared: &Shared) -> Result<(), String> {
    shared.calm.store(false, Ordering::Release);
    shared.requested.store(true, Ordering::Release);
    until(shared, "a burst of handovers", || !shared.requested.load(Ordering::Acquire) && is_calm(shared))
}

fn is_calm(shared: &Shared) -> bool {
    shared.calm.load(Ordering::Acquire)
}

/// Waits until something is so. Errors: it takes too long, or the run has ended.
fn until(shared: &Shared, what: &str, is: impl Fn() -> bool) -> Result<(), String> {
    let begin = Instant::now();
    while !is() {
        if shared.over.load(Ordering::Acquire) {
            return Err(format!("the run has ended during {what}"));
        }
        if begin.elapsed() > COMPLETE_WITHIN {
            return Err(format!("{what} takes longer than {COMPLETE_WITHIN:?}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(scheme: Scheme, times: &[u64], found_ms: u64) -> Outcome {
        let times: Vec<_> = times.iter().map(|ms| (0, Duration::from_millis(*ms))).collect();
        let hits = Hits {
            attached: vec![times.len()],
            released: vec![(0, Duration::from_millis(found_ms + 1))],
            times,
            kills: vec![SystemTime::UNIX_EPOCH],
            failed: 0,
        };
        let counts = Counts {
            handover: 7.0,
            kills: 1,
            inputs: 28.0,
            inputs_us: 800.0,
            replayed: 6.0,
            answered_us: 500.0,
        };
        Outcome { connected: 4, scheme, hits, counts, found: vec![Some(Duration::from_millis(found_ms))] }
    }

    #[test]
    fn times_are_given_from_the_kill_and_from_its_detection() {
        let outcome = outcome(Scheme::Ours, &[5, 3, 9, 4], 2);
        assert_eq!(outcome.quantiles(0.5), [5000.0, 3000.0]);
        assert_eq!((outcome.found_us(), outcome.begun_us(), outcome.replayed_a_ue()), (2000.0, 500.0, 1.5));
        assert_eq!(outcome.inputs_a_ue(), [7.0, 200.0]);
    }

    #[test] // a UE of an existing core begins with its release
    fn the_part_after_the_detection_begins_with_the_release_where_no_replica_answers() {
        assert_eq!(outcome(Scheme::Existing, &[20, 30], 2).begun_us(), 1000.0);
    }

    #[test] // of kills after which nothing was counted, no UE counts
    fn inputs_are_divided_by_the_ues_of_the_kills_that_were_counted() {
        for scheme in SCHEMES {
            let mut outcome = outcome(scheme, &[5, 3, 9, 4], 2);
            outcome.hits.times.push((1, Duration::from_millis(6)));
            outcome.hits.attached.push(1);
            assert_eq!(outcome.inputs_a_ue(), [7.0, 200.0], "{scheme:?}");
        }
    }

    #[test] // the first line after the kill counts, and none that is far away
    fn the_detection_of_a_kill_is_found_in_the_log() {
        let log = "2026-11-23T09:37:01.000000Z  WARN a CPF is lost cpf=1\n2026-11-23T09:37:03.001500Z  WARN a CPF is lost cpf=2\n";
        let midnight = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * 20_000);
        let at = |seconds: u64| midnight + Duration::from_secs((9 * 60 + 37) * 60 + seconds);
        assert_eq!(found_after(log, at(3)), Some(Duration::from_micros(1500)));
        assert_eq!(found_after(log, at(4)), None);
    }
}
