//! Figures 15, 16 and 17: what a UE's TCP connections see while a part of the core is killed, alone or in the middle of an N2 handover, and of many
//! handovers.
//!
//! Everything but the radio is real: the core's processes, its sockets and devices, `kill -9`, the kernel's TCP at both ends. The emulated gNBs delay
//! each message and packet. Nothing of the core's times is injected, but where a case of figure 17 names a published handover time.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use whimbrel_cli::{Done, print, table};
use whimbrel_ran::cells::GnbId;
use whimbrel_ran::edge::{self, Namespace, RunnerConfig, Watch};
use whimbrel_ran::player::Player;
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, HandoverKind, HandoverStep, Scenario, Step};
use whimbrel_ran::{UeId, gnb, ue};

use super::super::{runner, scenario, session};
use super::flows::{Fate, Flows, Span, Traffic};
use super::world::{Failure, GNBS, World};
use crate::playground::GATEWAY;

/// Connections of figure 17 (appendix C).
const CONNECTIONS: usize = 10;
/// Time between two handovers of figure 17: "every few seconds".
const EVERY: Duration = Duration::from_secs(2);
/// Handover times of appendix C: L25GC's and free5GC's.
const PUBLISHED: [Duration; 2] = [Duration::from_millis(130), Duration::from_millis(328)];
/// N2 messages between the source's decision and the UE's arrival at the target, which each take the way between gNB and core once.
const HOPS_OF_HANDOVER: u32 = 4;
/// The TUN device of the first UE.
const UE_DEVICE: &str = "wbue0";
/// What a UPF buffers for a UE in handover (§5.4.2: 3,000 packets).
const BUFFERING: &str = "buffering: { packets_per_session: 3000, octets_per_session: 6000000 }\n";
/// Before the first measurement: TCP has reached the rate of the bottleneck.
const SETTLE: Duration = Duration::from_millis(1500);
/// How long after a handover the packets that were kept have arrived.
const SETTLED_AFTER: Duration = Duration::from_millis(500);
/// How long the UE may take to be served, at the start and after a failure.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// The first arrival of handovers that each wait until they are asked for.
const EVERY_S: f64 = 0.02;
const HANDOVERS_MAX: u32 = 10_000;
/// The goals: from the failure to the first packet, and what a failover adds to a handover.
const GAP_GOAL_MS: f64 = 5.0;
const ADDED_GOAL_MS: f64 = 2.0;

#[derive(Args)]
pub(crate) struct Options {
    /// Two cases of figure 15, for a second each: shows that it runs, and no figure.
    #[arg(long)]
    quick: bool,
    /// Figures to repeat.
    #[arg(long, value_delimiter = ',', default_values_t = [15, 16, 17], value_parser = clap::value_parser!(u8).range(15..=17))]
    figures: Vec<u8>,
    /// Only failures whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds of traffic before and after each failure of figure 15.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Time of each message and packet between gNB and core, in milliseconds, each way: half of the paper's round trip.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100))]
    hop_ms: u32,
    /// Failures in the middle of a handover, each at another moment of it, and handovers without one.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    kills: u32,
    /// Handovers of each case of figure 17.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    handovers: u32,
}

impl Options {
    fn hop(&self) -> Duration {
        Duration::from_millis(self.hop_ms.into())
    }

    fn traffic(&self) -> Duration {
        if self.quick { Duration::from_secs(1) } else { Duration::from_secs(self.seconds.into()) }
    }

    fn failures(&self) -> impl Iterator<Item = Failure> {
        let quick = |f: &Failure| !self.quick || matches!(f, Failure::Cpf | Failure::CpfAlone);
        Failure::ALL.into_iter().filter(move |f| quick(f) && f.name().contains(&self.only))
    }
}

/// What the UE and its gNBs do.
#[derive(Default)]
struct Noticed {
    address: Option<Ipv4Addr>,
    /// Its TUN device is usable.
    attached: bool,
    /// How often it has set up a session.
    sessions: u32,
    /// The handover under way, or the last one.
    begun: Option<Instant>,
    ended: Option<Instant>,
}

/// What the observer and the thread of the experiment share.
#[derive(Default)]
struct Shared {
    noticed: Mutex<Noticed>,
    /// A handover is to begin.
    requested: AtomicBool,
    over: AtomicBool,
}

impl Shared {
    fn noticed(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is so. Errors: it takes too long, or the run has ended.
    fn until<T>(&self, what: &str, is: impl Fn(&Noticed) -> Option<T>) -> Result<T, String> {
        let begin = Instant::now();
        loop {
            if let Some(it) = is(&self.noticed()) {
                return Ok(it);
            }
            if self.over.load(Ordering::Acquire) {
                return Err(format!("the run has ended before {what}"));
            }
            if begin.elapsed() > SERVED_WITHIN {
                return Err(format!("{what} is not there in {SERVED_WITHIN:?}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Has the UE handed over. Returns when that began.
    fn begin_handover(&self) -> Result<Instant, String> {
        {
            let mut noticed = self.noticed();
            (noticed.begun, noticed.ended) = (None, None);
        }
        self.requested.store(true, Ordering::Release);
        self.until("the begin of a handover", |n| n.begun)
    }

    /// Waits until the UE is at the target, or has a session again. Returns when.
    fn end_handover(&self) -> Result<Instant, String> {
        self.until("the end of a handover", |n| n.ended)
    }
}

struct Observer<'a> {
    shared: &'a Shared,
    sections: usize,
}

impl Watch for Observer<'_> {
    fn attaches_again(&self) -> bool {
        true
    }

    fn holds(&mut self) -> bool {
        !self.shared.requested.load(Ordering::Acquire)
    }

    fn section(&mut self, _: &[ScenarioReport]) {
        self.sections += 1;
    }

    fn attached(&mut self, _: UeId, _: &str, _: &[std::net::IpAddr]) {
        self.shared.noticed().attached = true;
    }

    fn gnb(&mut self, _: GnbId, event: &gnb::Event) {
        if let gnb::Event::HandedOver { .. } = event {
            self.shared.noticed().ended.get_or_insert_with(Instant::now);
        }
    }

    fn ue(&mut self, _: UeId, event: &ue::Event) {
        if let ue::Event::SessionUp { session, .. } = event {
            let mut noticed = self.shared.noticed();
            noticed.sessions += 1;
            noticed.address = session.ipv4;
            noticed.ended.get_or_insert_with(Instant::now);
        }
    }

    fn turn(&mut self, player: &Player) {
        let (.., playing) = player.progress();
        if playing > 0 && self.sections >= 2 && self.shared.requested.swap(false, Ordering::AcqRel) {
            self.shared.noticed().begun = Some(Instant::now());
        }
    }

    fn stop(&mut self) -> bool {
        self.shared.over.load(Ordering::Acquire)
    }
}

/// Starts a core with this protection and a UE that has a session, and does something while the UE downloads. `more`: the core's further
/// configuration; `interruption`: how long the UE is between two cells. Errors: one sentence, with logs.
fn with_world<T: Send>(
    options: &Options,
    failure: Failure,
    (more, interruption, downloads): (&str, Duration, usize),
    does: impl FnOnce(&mut World, &Shared, &Flows) -> Result<T, String> + Send,
) -> Result<(T, Traffic), String> {
    let namespace = Arc::new(Namespace::private().map_err(|e| e.to_string())?);
    let mut world = World::start(failure, more)?;
    let bursts = ArrivalPattern::Bursts { ues: 1, within_ms: 0.0, every_s: EVERY_S, times: HANDOVERS_MAX };
    let steps =
        scenario(1, GNBS, bursts, vec![Step::Handover(HandoverStep { via: HandoverKind::N2, to: None })]);
    let scenario = Scenario { before: vec![Step::Register, session()], again: true, tun: true, ..steps };
    let mut config = RunnerConfig {
        spin: Duration::from_micros(100),
        hop_delay: options.hop(),
        namespace: Some(namespace.clone()),
        ..runner(&world.playground, scenario)
    };
    for gnb in &mut config.gnbs {
        gnb.config.handover_interruption = interruption;
        // The source's packets go to the target through the UPF, if they are forwarded.
        gnb.config.direct_forwarding = false;
    }
    let shared = Shared::default();
    let (done, ran) = std::thread::scope(|scope| {
        let (world, shared, namespace) = (&mut world, &shared, &namespace);
        let experiment = scope.spawn(move || {
            let done = (|| -> Result<_, String> {
                let address = shared.until("the UE's session", |n| n.address.filter(|_| n.attached))?;
                world.complete()?;
                lengthen_queue(namespace)?;
                let flows = Flows::start(namespace, address, downloads)?;
                std::thread::sleep(SETTLE);
                let done = does(world, shared, &flows)?;
                Ok((done, flows.finish()))
            })();
            shared.over.store(true, Ordering::Release);
            done
        });
        let ran = edge::run(&config, &mut Observer { shared, sections: 0 });
        shared.over.store(true, Ordering::Release);
        let done = experiment.join().unwrap_or_else(|_| Err("the experiment ended in a panic".into()));
        (done, ran)
    });
    let with_log = |e: String| format!("{}: {e}\n{}", failure.name(), world.log());
    let reports = ran.map_err(|e| with_log(e.to_string()))?;
    let done = done.map_err(|e| {
        let failures =
            reports.iter().flat_map(|r| &r.failures).map(|f| format!("; {}: {}", f.step, f.reason));
        with_log(e + &failures.collect::<String>())
    })?;
    Ok(done)
}

/// Gives the UE's device a queue that holds what it answers at once to all packets that a UPF has buffered. Errors: one sentence.
fn lengthen_queue(namespace: &Namespace) -> Done {
    let failed = |e: String| format!("the queue of the UE's device cannot be made longer: {e}");
    let mut command = std::process::Command::new("ip");
    let child = namespace.spawn(command.args(["link", "set", UE_DEVICE, "txqueuelen", "5000"]));
    let ended = child.and_then(|mut child| child.wait()).map_err(|e| failed(e.to_string()))?;
    if ended.success() { Ok(()) } else { Err(failed(format!("`ip` ends with {ended}"))) }
}

pub(super) fn run(options: &Options) -> Done {
    // The server's address, which outlives the devices of UPFs; and nothing that TCP has learnt of a path goes from case to case.
    let set_up = format!("ip address add {GATEWAY}/32 dev lo");
    let status = std::process::Command::new("sh").args(["-c", &set_up]).status();
    if !status.is_ok_and(|s| s.success()) {
        return Err("the server's address cannot be set".into());
    }
    let _not_there = fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
    let asked = |figure: u8| options.figures.contains(&figure) && (!options.quick || figure == 15);
    let mut figures = serde_json::Map::new();
    let mut tally = Tally::default();
    if asked(15) {
        figures.insert("fig15".into(), figure_15(options, &mut tally)?);
    }
    if asked(16) {
        figures.insert("fig16".into(), figure_16(options, &mut tally)?);
    }
    if asked(17) {
        figures.insert("fig17".into(), figure_17(options, &mut tally)?);
    }
    figures.insert("hop_ms".into(), options.hop_ms.into());
    figures.insert("lost_with_replicas".into(), tally.lost.into());
    figures.insert("cases_failed".into(), tally.failed.into());
    print(&format!("{}\n", json!({ "bench": "l25gc failover", "figures": figures })))?;
    match (tally.failed, tally.lost) {
        (0, 0) => Ok(()),
        (0, lost) => Err(format!("{lost} packets were lost although what was killed has a replica")),
        (failed, lost) => Err(format!(
            "{failed} cases failed; {lost} packets were lost although what was killed has a replica"
        )),
    }
}

/// What the exit status says.
#[derive(Default)]
struct Tally {
    /// Packets that cases with a replica have lost.
    lost: u64,
    /// Cases that could not be measured.
    failed: u64,
}

impl Tally {
    /// What was measured; an error is reported, and the other cases go on.
    fn keep<T>(&mut self, measured: Result<T, String>) -> Option<T> {
        let error = match measured {
            Ok(measured) => return Some(measured),
            Err(error) => error,
        };
        eprintln!("{error}");
        self.failed += 1;
        None
    }

    fn count(&mut self, failure: Failure, lost: u64) {
        self.lost += if failure.is_protected() { lost } else { 0 };
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

fn one_digit(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Pairs of a series, with few digits.
fn series(points: Vec<(f64, f64)>) -> Value {
    let round = |v: f64| (v * 1e3).round() / 1e3;
    points.into_iter().map(|(x, y)| json!([round(x), round(y)])).collect()
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |v| v.to_string())
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// Figure 15: a part of the core is killed while the UE downloads. Errors: the output cannot be written.
fn figure_15(options: &Options, tally: &mut Tally) -> Result<Value, String> {
    print(&format!(
        "\nfigure 15: a part of the core is killed (kill -9) while a UE downloads by the kernel's TCP (cubic); 30 Mbit/s, {} ms there and back in the \
         modelled gNB; a numbered datagram each millisecond beside it\n\
         paper (§5.5): 0 packets lost with L25GC, some 121 with 3GPP's reattach, whose TCP loses goodput and round trips grow; goal: under {GAP_GOAL_MS} ms \
         from the failure to the first packet, 0 lost\n",
        2 * options.hop_ms
    ))?;
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for failure in options.failures() {
        let measured = with_world(options, failure, ("", Duration::ZERO, 1), |world, shared, flows| {
            std::thread::sleep(options.traffic());
            let victim = world.victim()?;
            let at = flows.at(world.strike(victim)?);
            let until = Instant::now() + SERVED_WITHIN;
            while !flows.answered_since(at + Duration::from_millis(1)) {
                if Instant::now() > until || shared.over.load(Ordering::Acquire) {
                    return Err("the UE is not served after the failure".into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let after = options.traffic().saturating_sub(flows.now() - at);
            std::thread::sleep(after.max(Duration::from_secs(1)));
            Ok(at)
        });
        let Some((at, traffic)) = tally.keep(measured) else { continue };
        let seen = Failed::of(&traffic, at, options.traffic());
        tally.count(failure, seen.lost());
        rows.push(seen.row(failure.name()));
        figures.push(seen.json(failure.name(), at, &traffic));
        if failure.is_protected() {
            rows.last_mut().into_iter().for_each(|row| {
                row.push(verdict(seen.gap() < GAP_GOAL_MS && seen.lost() == 0).to_owned());
            });
        }
    }
    print(&table(&FAILED_HEADS, &rows))?;
    Ok(Value::Array(figures))
}

const FAILED_HEADS: [&str; 14] = [
    "killed",
    "gap ms down",
    "up",
    "before",
    "TCP stall ms",
    "goodput before Mbit/s",
    "lost Mbit",
    "datagrams lost",
    "segments lost",
    "doubled, reordered",
    "retransmitted",
    "longest round trip ms",
    "TCP's srtt ms",
    "goal",
];

/// What a failure has cost.
struct Failed {
    /// The longest times without a datagram after the failure, downlink and uplink, and downlink before it.
    gaps: [Duration; 3],
    stall: Duration,
    goodput: f64,
    lost_mbit: f64,
    fate: Fate,
    segments_lost: Option<u64>,
    retransmitted: Option<(u32, u32)>,
    round_trip_ms: f64,
    smoothed_ms: f64,
}

impl Failed {
    /// Of a failure at this time; so long before it, all was well.
    fn of(traffic: &Traffic, at: Duration, before: Duration) -> Self {
        // A datagram that is on its way when something fails belongs to what was before.
        let (well, failed): (Span, Span) = ((at.saturating_sub(before), at), (at, traffic.end()));
        let seconds = before.as_secs_f64();
        let goodput = traffic.octets(well) as f64 * 8e-6 / seconds;
        let expected = goodput * (failed.1.saturating_sub(at)).as_secs_f64();
        Self {
            gaps: [traffic.gap_downlink(failed), traffic.gap_uplink(failed), traffic.gap_downlink(well)],
            stall: traffic.stall(failed),
            goodput,
            lost_mbit: (expected - traffic.octets(failed) as f64 * 8e-6).max(0.0),
            fate: traffic.fate((Duration::ZERO, Duration::MAX)),
            segments_lost: traffic.segments_lost(),
            retransmitted: traffic.retransmitted(),
            round_trip_ms: traffic.longest_round_trip(failed),
            smoothed_ms: traffic.longest_smoothed(failed),
        }
    }

    fn gap(&self) -> f64 {
        ms(self.gaps[0].max(self.gaps[1]))
    }

    /// Packets that were lost: datagrams, and segments of TCP.
    fn lost(&self) -> u64 {
        self.fate.lost() + self.segments_lost.unwrap_or(0)
    }

    fn row(&self, name: &str) -> Vec<String> {
        let [down, up, before] = self.gaps.map(|gap| ms(gap).to_string());
        vec![
            name.to_owned(),
            down,
            up,
            before,
            ms(self.stall).to_string(),
            one_digit(self.goodput).to_string(),
            one_digit(self.lost_mbit).to_string(),
            format!("{} of {}", self.fate.lost(), self.fate.sent),
            text(self.segments_lost),
            format!("{}, {}", self.fate.doubled, self.fate.reordered),
            text(self.retransmitted.map(|(all, _)| all)),
            one_digit(self.round_trip_ms).to_string(),
            one_digit(self.smoothed_ms).to_string(),
        ]
    }

    fn json(&self, name: &str, at: Duration, traffic: &Traffic) -> Value {
        let [down, up, before] = self.gaps.map(ms);
        json!({
            "case": name, "failed_at_s": at.as_secs_f64(), "gap_down_ms": down, "gap_up_ms": up, "gap_before_ms": before,
            "stall_ms": ms(self.stall), "goodput_mbps": one_digit(self.goodput), "goodput_lost_mbit": one_digit(self.lost_mbit),
            "datagrams": self.fate.sent, "lost_down": self.fate.lost_downlink, "lost_up": self.fate.lost_uplink,
            "doubled": self.fate.doubled, "reordered": self.fate.reordered, "segments_lost": self.segments_lost,
            "retransmitted": self.retransmitted.map(|(all, _)| all), "rtt_longest_ms": one_digit(self.round_trip_ms),
            "srtt_longest_ms": one_digit(self.smoothed_ms), "goodput": series(traffic.goodput()),
            "rtt": series(traffic.round_trips_over_time()),
        })
    }
}

/// A handover of figure 16: from its begin to the UE's arrival, and when the process was killed.
struct Handover {
    begun: Duration,
    ended: Duration,
    killed: Option<Duration>,
}

impl Handover {
    fn span(&self) -> Span {
        (self.begun, self.ended + SETTLED_AFTER)
    }
}

/// Figure 16: the same in the middle of an N2 handover.
fn figure_16(options: &Options, tally: &mut Tally) -> Result<Value, String> {
    print(&format!(
        "\nfigure 16: the same in the middle of an N2 handover, at {} moments of it; beside it as many handovers that are not disturbed\n\
         paper (§5.5.1): 134 ms with L25GC, of 130 without a failure, 401 with 3GPP's reattach; 0 and 121 packets lost; goal: a failover adds less than \
         {ADDED_GOAL_MS} ms\n",
        options.kills
    ))?;
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for failure in options.failures() {
        let measured =
            with_world(options, failure, (BUFFERING, Duration::ZERO, 1), |world, shared, flows| {
                handovers_with_failures(options, world, shared, flows)
            });
        let Some((handovers, traffic)) = tally.keep(measured) else { continue };
        let (disturbed, alone): (Vec<Handover>, Vec<Handover>) =
            handovers.into_iter().partition(|h| h.killed.is_some());
        let took = |all: &[Handover], worst: bool| {
            let mut times: Vec<f64> = all.iter().map(|h| ms(h.ended - h.begun)).collect();
            times.sort_by(f64::total_cmp);
            let longest = times.last().copied().filter(|_| worst);
            longest.or_else(|| times.get(times.len() / 2).copied()).unwrap_or_default()
        };
        let gap =
            |all: &[Handover]| all.iter().map(|h| ms(traffic.gap_downlink(h.span()))).fold(0.0, f64::max);
        let trip =
            |all: &[Handover]| all.iter().map(|h| traffic.longest_round_trip(h.span())).fold(0.0, f64::max);
        let fate = traffic.fate((Duration::ZERO, Duration::MAX));
        let all_lost = fate.lost() + traffic.segments_lost().unwrap_or(0);
        let added = took(&disturbed, false) - took(&alone, false);
        tally.count(failure, all_lost);
        rows.push(vec![
            failure.name().to_owned(),
            took(&alone, false).to_string(),
            took(&alone, true).to_string(),
            took(&disturbed, false).to_string(),
            took(&disturbed, true).to_string(),
            one_digit(added).to_string(),
            gap(&alone).to_string(),
            gap(&disturbed).to_string(),
            format!("{} of {}", fate.lost(), fate.sent),
            text(traffic.segments_lost()),
            text(traffic.retransmitted().map(|(all, _)| all)),
            one_digit(trip(&alone)).to_string(),
            one_digit(trip(&disturbed)).to_string(),
            match failure.is_protected() {
                true => verdict(added < ADDED_GOAL_MS && all_lost == 0).to_owned(),
                false => String::new(),
            },
        ]);
        figures.push(json!({
            "case": failure.name(), "alone_ms": took(&alone, false), "alone_longest_ms": took(&alone, true),
            "failed_ms": took(&disturbed, false), "failed_longest_ms": took(&disturbed, true), "added_ms": one_digit(added),
            "gap_alone_ms": gap(&alone), "gap_failed_ms": gap(&disturbed), "datagrams": fate.sent, "lost_down": fate.lost_downlink,
            "lost_up": fate.lost_uplink, "doubled": fate.doubled, "reordered": fate.reordered,
            "segments_lost": traffic.segments_lost(), "retransmitted": traffic.retransmitted().map(|(all, _)| all),
            "rtt_alone_ms": one_digit(trip(&alone)), "rtt_failed_ms": one_digit(trip(&disturbed)),
            "failed_at_s": disturbed.iter().filter_map(|h| h.killed).map(|at| at.as_secs_f64()).collect::<Vec<_>>(),
            "goodput": series(traffic.goodput()), "rtt": series(traffic.round_trips_over_time()),
        }));
    }
    let heads = [
        "killed",
        "handover alone ms",
        "longest",
        "with failure ms",
        "longest",
        "added",
        "gap ms alone",
        "with failure",
        "datagrams lost",
        "segments lost",
        "retransmitted",
        "round trip ms alone",
        "with failure",
        "goal",
    ];
    print(&table(&heads, &rows))?;
    Ok(Value::Array(figures))
}

/// Handovers of which every other one loses a process, each time at another moment.
fn handovers_with_failures(
    options: &Options,
    world: &mut World,
    shared: &Shared,
    flows: &Flows,
) -> Result<Vec<Handover>, String> {
    let mut all = Vec::new();
    for nth in 0..options.kills {
        let begun = shared.begin_handover()?;
        let ended = shared.end_handover()?;
        let alone = ended.saturating_duration_since(begun);
        all.push(Handover { begun: flows.at(begun), ended: flows.at(ended), killed: None });
        std::thread::sleep(2 * SETTLED_AFTER);
        let victim = world.victim()?;
        let begun = shared.begin_handover()?;
        let moment = alone.mul_f64((f64::from(nth) + 0.5) / f64::from(options.kills));
        std::thread::sleep((begun + moment).saturating_duration_since(Instant::now()));
        let killed = Some(flows.at(world.strike(victim)?));
        let ended = flows.at(shared.end_handover()?);
        all.push(Handover { begun: flows.at(begun), ended, killed });
        let at = flows.now();
        let until = Instant::now() + SERVED_WITHIN;
        while !flows.answered_since(at) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        world.repair(victim)?;
        std::thread::sleep(2 * SETTLED_AFTER);
    }
    Ok(all)
}

/// A case of figure 17.
struct Repeated {
    name: &'static str,
    /// Downlink packets are forwarded by the source gNB, in place of being buffered by the UPF.
    forwards: bool,
    /// The handover time of the paper that the UE's way between the cells makes up; `None`: it takes no time.
    published: Option<Duration>,
}

const REPEATED: [Repeated; 4] = [
    Repeated { name: "buffer in the UPF", forwards: false, published: None },
    Repeated { name: "3GPP: forwarded by the source gNB", forwards: true, published: None },
    Repeated {
        name: "buffer in the UPF, L25GC's 130 ms injected",
        forwards: false,
        published: Some(PUBLISHED[0]),
    },
    Repeated {
        name: "3GPP: forwarded, free5GC's 328 ms injected",
        forwards: true,
        published: Some(PUBLISHED[1]),
    },
];

/// Figure 17: no failure, many handovers, ten connections.
fn figure_17(options: &Options, tally: &mut Tally) -> Result<Value, String> {
    print(&format!(
        "\nfigure 17: {} N2 handovers, one every {} s, {CONNECTIONS} downloads by the kernel's TCP (cubic), 30 Mbit/s, {} ms there and back in the modelled gNB\n\
         paper (appendix C; 100 Mbit/s, 50 ms): round trips up to 130 ms with L25GC and 328 with free5GC; 0 and 60 spurious retransmissions a handover; 442 and 416 MB\n",
        options.handovers,
        EVERY.as_secs(),
        2 * options.hop_ms
    ))?;
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for case in &REPEATED {
        let way = if case.forwards { "forward" } else { "buffer" };
        let more = format!("{BUFFERING}handover: {{ downlink: {way} }}\n");
        let interruption = case
            .published
            .map_or(Duration::ZERO, |whole| whole.saturating_sub(options.hop() * HOPS_OF_HANDOVER));
        let measured =
            with_world(options, Failure::Nothing, (&more, interruption, CONNECTIONS), |_, shared, _| {
                let (mut took, before) = (Vec::new(), Timeouts::now()?);
                for _ in 0..options.handovers {
                    let next = Instant::now() + EVERY;
                    let begun = shared.begin_handover()?;
                    took.push(ms(shared.end_handover()?.saturating_duration_since(begun)));
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                Ok((took, Timeouts::now()?.since(before)))
            });
        let Some(((mut took, timeouts), traffic)) = tally.keep(measured) else { continue };
        took.sort_by(f64::total_cmp);
        let median = took.get(took.len() / 2).copied().unwrap_or_default();
        let span = (SETTLE, traffic.end());
        let fate = traffic.fate((Duration::ZERO, Duration::MAX));
        let (megabytes, trip) = (traffic.octets(span) as f64 / 1e6, traffic.longest_round_trip(span));
        let (retransmitted, repeated) = traffic.retransmitted().unzip();
        rows.push(vec![
            case.name.to_owned(),
            median.to_string(),
            one_digit(traffic.median_round_trip(span)).to_string(),
            one_digit(trip).to_string(),
            one_digit(traffic.longest_smoothed(span)).to_string(),
            text(retransmitted),
            text(repeated),
            timeouts.expired.to_string(),
            timeouts.spurious.to_string(),
            format!("{} of {}", fate.lost(), fate.sent),
            text(traffic.segments_lost()),
            one_digit(megabytes).to_string(),
        ]);
        figures.push(json!({
            "case": case.name, "handover_ms": median, "rtt_median_ms": one_digit(traffic.median_round_trip(span)),
            "rtt_longest_ms": one_digit(trip), "srtt_longest_ms": one_digit(traffic.longest_smoothed(span)),
            "retransmitted": retransmitted, "received_twice": repeated, "timeouts": timeouts.expired,
            "spurious_timeouts": timeouts.spurious, "datagrams": fate.sent, "lost_down": fate.lost_downlink,
            "lost_up": fate.lost_uplink, "reordered": fate.reordered, "doubled": fate.doubled,
            "segments_lost": traffic.segments_lost(), "megabytes": one_digit(megabytes),
            "seconds": one_digit((span.1 - span.0).as_secs_f64()), "goodput": series(traffic.goodput()),
            "rtt": series(traffic.round_trips_over_time()), "window": series(traffic.window()),
        }));
    }
    let heads = [
        "downlink packets",
        "handover ms",
        "round trip ms",
        "longest",
        "TCP's srtt ms",
        "retransmitted",
        "received twice",
        "timeouts",
        "spurious",
        "datagrams lost",
        "segments lost",
        "MB",
    ];
    print(&table(&heads, &rows))?;
    Ok(Value::Array(figures))
}

/// What the server's kernel counts of expired retransmission timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timeouts {
    expired: u64,
    /// Those that TCP found to be needless.
    spurious: u64,
}

impl Timeouts {
    fn now() -> Result<Self, String> {
        let text = fs::read_to_string("/proc/self/net/netstat");
        Ok(Self::parse(&text.map_err(|e| format!("TCP's counters cannot be read: {e}"))?))
    }

    /// Of each group the text has a line of names, then one of values.
    fn parse(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let of = |name: &str| {
            let groups = lines.chunks(2).filter_map(|c| Some((c.first()?, c.get(1)?)));
            let mut pairs = groups.flat_map(|(n, v)| n.split_whitespace().zip(v.split_whitespace()));
            pairs.find(|(n, _)| *n == name).and_then(|(_, v)| v.parse().ok()).unwrap_or(0)
        };
        Self { expired: of("TCPTimeouts"), spurious: of("TCPSpuriousRTOs") }
    }

    fn since(self, before: Self) -> Self {
        Self { expired: self.expired - before.expired, spurious: self.spurious - before.spurious }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_by_their_names() {
        let text = "TcpExt: SyncookiesSent TCPTimeouts TCPSpuriousRTOs\nTcpExt: 1 12 5\nIpExt: InNoRoutes\nIpExt: 7\n";
        let now = Timeouts::parse(text);
        assert_eq!(now, Timeouts { expired: 12, spurious: 5 });
        assert_eq!(now.since(Timeouts { expired: 2, spurious: 5 }), Timeouts { expired: 10, spurious: 0 });
    }
}
