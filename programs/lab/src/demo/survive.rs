//! `whimbrel-lab demo --scenario survive`: UEs send, receive and move while each process of a unit is killed in turn, and replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

pub(super) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::{Value, json};
use whimbrel_cli::{Done, print, table};
use whimbrel_nas::ie::RegistrationKind;
use whimbrel_node::observation::Metric;
use whimbrel_node::unit::{self, UnitStatus};
use whimbrel_ran::cells::{Cells, GnbId};
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Group, Scenario};
use whimbrel_ran::ue;
use whimbrel_ran::user_plane::PacketArrivals;
use whimbrel_ran::{UeId, gnb};
use whimbrel_sctp_io::Mode;

use super::Options;
use super::unit_chaos::NO_END_MARKER;
use crate::playground::{GATEWAY, Gaps, Longest, Playground, Servers, SuciScheme, Wish};
use crate::programs::Program;

/// What the UEs do: streams with a packet each 50 ms in both directions, and handovers both ways.
const MOVING: (&str, &str) = ("survive.yaml", include_str!("survive.yaml"));
/// The same without handovers, which no core could take while it is restarted.
const AT_REST: (&str, &str) = ("at_rest.yaml", include_str!("at_rest.yaml"));
/// UEs that send and receive while all control functions are killed at once, then restarted one after the other. At the end each is handed over and sets up
/// a second session.
const CONTROL: (&str, &str) = ("control.yaml", include_str!("control.yaml"));
/// UEs whose every packet counts, of the group that is called so; a fourth of the active UEs at most.
const COUNTERS: (&str, u32) = ("counters", 3);
/// The same while control functions are killed.
const COUNTERS_OF_CONTROL: u32 = 20;
/// UEs that are connected without traffic, of the group that is called so: those beyond this number.
const RESTING: &str = "resting";
const ACTIVE_MAX: u32 = 100;
/// UEs that come in a second, where there are more than [`ACTIVE_MAX`].
const ARRIVALS_PER_S: f64 = 250.0;
/// Packets that a thread of the UPF may have read and not yet sent when it is killed: a burst.
pub(super) const IN_HAND_MAX: u64 = 32;
/// The longest time without an arrival of a UE that sends each millisecond, on a busy host too; a quiet one measures a hundredth of it.
const GAP_MAX: Duration = Duration::from_secs(1);
/// The same in a restart of all.
const RESTART_GAP_MAX: Duration = Duration::from_secs(10);
/// How long the UEs have to register before the first process is killed.
pub(super) const SETTLE: Duration = Duration::from_secs(3);
/// How long UEs are watched after a kill at least; the unit is complete again before.
const WATCHED: Duration = Duration::from_secs(2);
/// How long UEs may take to be served after a restart.
const SERVED_WITHIN: Duration = Duration::from_secs(15);
/// How much longer each of these times is for each UE.
const MORE_FOR_A_UE: Duration = Duration::from_millis(30);
/// How long the last packets of UEs that have stopped may take to the server.
const ARRIVED_WITHIN: Duration = Duration::from_millis(200);
/// How long UEs rest before all control functions are killed: their states are written twice a second.
const STORED_WITHIN: Duration = Duration::from_secs(2);
/// How long the unit may take to be complete, at the start and after each kill.
const COMPLETE_WITHIN: Duration = Duration::from_secs(20);
/// How long the replacement of all functions may take.
const UPGRADE_WITHIN: Duration = Duration::from_secs(40);

/// What is done to the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Cpf,
    Replica,
    Primary,
    Hang,
    Manager,
    Upgrade,
    Upf,
    CpfHangs,
    UpfHangs,
    Control,
    ControlOtherCode,
    ControlRestart,
    Restart,
}

const BLOWS: [Blow; 9] = [
    Blow::Cpf,
    Blow::Replica,
    Blow::Primary,
    Blow::Hang,
    Blow::Manager,
    Blow::Upgrade,
    Blow::Upf,
    Blow::CpfHangs,
    Blow::UpfHangs,
];

const BLOWS_TO_CONTROL: [Blow; 2] = [Blow::Control, Blow::ControlRestart];
/// With another program (`--upgrade-to`) alone.
const BLOW_OF_OTHER_CODE: [Blow; 1] = [Blow::ControlOtherCode];

impl Blow {
    fn name(self) -> &'static str {
        match self {
            Self::Cpf => "CPF",
            Self::Replica => "CTA replica",
            Self::Primary => "primary CTA",
            Self::Hang => "primary CTA hangs",
            Self::Manager => "manager",
            Self::Upgrade => "upgrade",
            Self::Upf => "UPF",
            Self::CpfHangs => "CPF hangs",
            Self::UpfHangs => "UPF hangs",
            Self::Control => "all of control",
            Self::ControlOtherCode => "control, then other code",
            Self::ControlRestart => "restart of control",
            Self::Restart => "restart of all",
        }
    }
}

/// What came of it.
struct Outcome {
    blow: Blow,
    /// The longest times without a packet of a UE at the server.
    longest: Longest,
    /// What has become of the packets of UEs that send one each millisecond: uplink and downlink.
    arrivals: [PacketArrivals; 2],
    /// The time in which these arrived.
    watched: Duration,
    /// Until the unit was complete again.
    complete: Duration,
    registrations: u64,
    sessions: u64,
    associations: u64,
    /// The steps of a restart of all, with the times from its begin.
    legs: Vec<(&'static str, Duration)>,
}

impl Outcome {
    /// For how long at most a UE that sends each millisecond goes without an arrival: what docs/unit.md promises on a busy host, many times what
    /// it measures on a quiet one.
    fn gap_max(&self) -> Duration {
        match self.blow {
            Blow::Restart | Blow::ControlOtherCode => RESTART_GAP_MAX,
            _ => GAP_MAX,
        }
    }

    /// Packets that may be lost: what a UPF has in hand when it ends, and in a restart of all those of its gap, since no gNB takes packets without N2.
    fn may_lose(&self) -> u64 {
        match self.blow {
            Blow::Upf | Blow::UpfHangs => IN_HAND_MAX,
            Blow::Restart | Blow::ControlOtherCode => {
                let expected: u64 = self.arrivals.iter().map(|a| a.expected).sum();
                let share = self.longest.fast.as_secs_f64() / self.watched.as_secs_f64().max(1e-3);
                IN_HAND_MAX + (expected as f64 * share.min(1.0)) as u64
            }
            _ => 0,
        }
    }
}

/// What the UEs and gNBs report.
#[derive(Default)]
pub(super) struct Noticed {
    /// Initial registrations of UEs that had registered before and have not deregistered since.
    registrations: u64,
    /// Sessions that ended although no UE asked for it.
    sessions: u64,
    /// UEs that have set up a session.
    established: BTreeSet<UeId>,
    /// NG Setups of gNBs that had been set up before: their association had ended.
    associations: u64,
    registered: BTreeMap<UeId, u32>,
    /// Of these sessions, those of UEs that may be about to deregister.
    released_of: BTreeMap<UeId, u64>,
    set_up: BTreeMap<GnbId, u32>,
    /// When a gNB released its UEs first since this was cleared, the last gNB was set up, and the first and the last UE were served.
    released: Option<Instant>,
    up: Option<Instant>,
    served: Option<(Instant, Instant)>,
    served_ues: BTreeSet<UeId>,
}

impl Noticed {
    /// Forgets the steps of an earlier restart.
    fn begin_legs(&mut self) {
        (self.released, self.up, self.served) = (None, None, None);
        self.served_ues.clear();
    }

    /// The steps of a restart that began at this time and in which the core had stopped at that time; those that have been seen.
    fn legs(&self, begun: Instant, stopped: Instant) -> Vec<(&'static str, Duration)> {
        let all = [
            ("gNBs lose their associations", self.released),
            ("the unit has stopped", Some(stopped)),
            ("all gNBs are set up again", self.up),
            ("the first UE is served", self.served.map(|(first, _)| first)),
            ("the last UE is served", self.served.map(|(_, last)| last)),
        ];
        all.into_iter().filter_map(|(what, at)| Some((what, at?.saturating_duration_since(begun)))).collect()
    }
}

struct Observer<'a> {
    noticed: &'a Mutex<Noticed>,
    over: &'a Mutex<bool>,
    /// UEs do what their scenario has for the end.
    ends: bool,
    history: Option<History>,
}

/// The file of what happened to gNBs and UEs and what they hold after it, in the lines of `whimbrel-lab ran -v`.
pub(super) struct History {
    file: BufWriter<File>,
    /// The names of UEs, by their numbers.
    names: Vec<String>,
    /// Why not everything was written.
    failed: Option<std::io::Error>,
}

impl History {
    pub(super) fn of(path: &Path, names: Vec<String>) -> Result<Self, String> {
        let file = File::create(path).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        Ok(Self { file: BufWriter::new(file), names, failed: None })
    }

    pub(super) fn line(&mut self, of: std::fmt::Arguments<'_>, what: std::fmt::Arguments<'_>) {
        if self.failed.is_none() {
            self.failed = writeln!(self.file, "{of}: {what}").err();
        }
    }

    pub(super) fn ue(&mut self, ue: UeId, what: std::fmt::Arguments<'_>) {
        let name = self.names.get(ue.0 as usize).cloned().unwrap_or_default();
        self.line(format_args!("{name}"), what);
    }

    /// Errors: not everything was written.
    pub(super) fn end(mut self) -> Result<(), String> {
        let written = self.failed.take().map_or_else(|| self.file.flush(), Err);
        written.map_err(|e| format!("the histories of UEs cannot be written: {e}"))
    }
}

impl Watch for Observer<'_> {
    fn gnb(&mut self, gnb: GnbId, event: &gnb::Event) {
        if let Some(history) = &mut self.history {
            history.line(format_args!("gNB {}", gnb.0), format_args!("{event:?}"));
        }
        if let gnb::Event::SetUp { .. } = event {
            let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
            let times = noticed.set_up.entry(gnb).or_default();
            *times += 1;
            noticed.associations += u64::from(*times > 1);
            noticed.up = Some(Instant::now());
        }
        if let gnb::Event::ContextReleased(..) = event {
            let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
            noticed.released.get_or_insert_with(Instant::now);
        }
    }

    fn ue(&mut self, ue: UeId, event: &ue::Event) {
        if let Some(history) = &mut self.history {
            history.ue(ue, format_args!("{event:?}"));
        }
        let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            ue::Event::Registered { kind: RegistrationKind::Initial, .. } => {
                let times = noticed.registered.entry(ue).or_default();
                *times += 1;
                if *times > 1 {
                    noticed.registrations += 1;
                }
            }
            ue::Event::SessionUp { .. } => drop(noticed.established.insert(ue)),
            // Its sessions end with it.
            ue::Event::Deregistered { since: Some(_), .. } => {
                noticed.registered.remove(&ue);
                noticed.sessions -= noticed.released_of.remove(&ue).unwrap_or(0);
                return;
            }
            ue::Event::SessionReleased { since: None, .. } => {
                *noticed.released_of.entry(ue).or_default() += 1;
                noticed.sessions += 1;
                return;
            }
            ue::Event::ServiceAccepted { .. } => {
                let now = Instant::now();
                noticed.served_ues.insert(ue);
                noticed.served = Some((noticed.served.map_or(now, |(first, _)| first), now));
            }
            _ => {}
        }
        noticed.released_of.remove(&ue);
    }

    fn stands(&mut self, ue: UeId, cells: &Cells) {
        if let Some(history) = &mut self.history
            && let Some(holds) = cells.holds(ue)
        {
            history.ue(ue, format_args!("{holds}"));
        }
    }

    fn ends_repetitions(&mut self) -> bool {
        self.ends && *self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&mut self) -> bool {
        !self.ends && *self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn run(options: &Options) -> Done {
    let wish = Wish {
        ues: options.ues(),
        gnbs: options.gnbs.max(2),
        slices: ["1"].iter().filter_map(|s| s.parse().ok()).collect(),
        // With thousands of UEs at once a slow host would rightly send OVERLOAD START.
        configuration: format!(
            "data_networks: [{{ dnn: internet, dns: [{GATEWAY}] }}]\noverload: {{ start_delay_ms: 10000 }}\n"
        ),
        capture: None,
        core_cpu: None,
        suci: SuciScheme::Null,
        cpfs: Vec::new(),
        unit: true,
        added_ues: 0,
        data_limit: None,
        keeps_ues: true,
    };
    if options.capture.is_some() {
        return Err("a unit writes no capture: leave --capture out".into());
    }
    print("starting a unit and its servers in a network namespace of their own\n")?;
    let mut playground = Playground::start(&wish)?;
    let directory = playground.unit_directory();
    await_complete(&playground, None)?;
    let servers = Servers::start(GATEWAY)?;
    print(&playground.unit_text()?)?;
    print(&format!(
        "{} UEs on {} gNBs; each process of the unit is killed (kill -9) in turn, then all are restarted\n",
        wish.ues, wish.gnbs
    ))?;
    let upgrade_to = options.upgrade_to.clone().map_or_else(|| Program::Core.file(), Ok)?;
    let mut play = |scenario, blows: &[Blow]| {
        let deals = |playground: &mut Playground, gaps: &Gaps, noticed: &Mutex<Noticed>| {
            deal(blows, playground, &wish, (&directory, &upgrade_to), gaps, noticed)
        };
        play(&mut playground, &wish, &servers, scenario, None, deals)
    };
    let other_code: &[Blow] = if options.upgrade_to.is_some() { &BLOW_OF_OTHER_CODE } else { &[] };
    let plays: [((&str, &str), &[Blow]); 4] =
        [(MOVING, &BLOWS), (CONTROL, &BLOWS_TO_CONTROL), (CONTROL, other_code), (AT_REST, &[Blow::Restart])];
    let played: Result<Vec<_>, String> = plays
        .into_iter()
        .filter(|(_, blows)| !blows.is_empty())
        .map(|(scenario, blows)| play(scenario, blows))
        .collect();
    let log = playground.log();
    let (outcomes, reports): (Vec<Vec<Outcome>>, Vec<ScenarioReport>) =
        played.map_err(|e| format!("{e}\n{log}"))?.into_iter().unzip();
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    let stopped = playground.stop();
    show(&outcomes, &reports)?;
    judge(&outcomes, &reports).map_err(|e| format!("{e}\n{log}"))?;
    stopped
}

/// UEs do what a scenario says, while this is done to the unit. `history`: the file of what they notice.
pub(super) fn play<T: Send>(
    playground: &mut Playground,
    wish: &Wish,
    servers: &Servers,
    scenario: (&str, &str),
    history: Option<&Path>,
    does: impl FnOnce(&mut Playground, &Gaps, &Mutex<Noticed>) -> Result<T, String> + Send,
) -> Result<(T, ScenarioReport), String> {
    let (name, text) = scenario;
    let read = crate::ran::scenario::parse(text);
    let mut scenario = read.map_err(|(at, what)| format!("{name}:{at}: {what}"))?;
    let (counters, few) = COUNTERS;
    let most = if name == CONTROL.0 { COUNTERS_OF_CONTROL } else { few };
    let has = |scenario: &Scenario, name: &str| scenario.groups.iter().any(|group| group.name == name);
    let active = if has(&scenario, RESTING) { wish.ues.min(ACTIVE_MAX) } else { wish.ues };
    let counted = if has(&scenario, counters) { most.min(active / 4) } else { 0 };
    let is_other = |group: &Group| group.name != counters && group.name != RESTING;
    let groups = scenario.groups.iter().filter(|group| is_other(group)).count().max(1) as u32;
    let others = active - counted;
    for (i, group) in scenario.groups.iter_mut().enumerate() {
        let share = others / groups + u32::from((i as u32) < others % groups);
        group.ues = match group.name.as_str() {
            RESTING => wish.ues - active,
            name if name == counters => counted,
            _ => share,
        };
    }
    scenario.groups.retain(|group| group.ues > 0);
    if wish.ues > active {
        scenario.arrival = ArrivalPattern::Rate(ARRIVALS_PER_S);
    }
    scenario.gnbs = wish.gnbs.into();
    let config = RunnerConfig {
        amf: vec![playground.amf()],
        amf_port: 38412,
        sctp: Mode::Auto,
        sctp_udp_ports: (9900, 9899),
        gnbs: playground.gnb_places(),
        ues: playground.ues(),
        scenario,
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::from_micros(20),
        hop_delay: Duration::ZERO,
    };
    let (noticed, over) = (Mutex::new(Noticed::default()), Mutex::new(false));
    // UEs of an earlier scenario have stopped, and their last packets have come.
    std::thread::sleep(ARRIVED_WITHIN);
    servers.forget_streams();
    let gaps = servers.gaps();
    let names = || config.ues.iter().map(|ue| ue.supi.to_string()).collect();
    let history = history.map(|path| History::of(path, names())).transpose()?;
    let (done, reports) = std::thread::scope(|scope| {
        let doing = scope.spawn(|| {
            let done = does(playground, &gaps, &noticed);
            *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
            done
        });
        let ends = name == CONTROL.0;
        let mut observer = Observer { noticed: &noticed, over: &over, ends, history };
        let reports = edge::run(&config, &mut observer);
        let written = observer.history.take().map_or(Ok(()), History::end);
        let done = doing.join().unwrap_or_else(|_| Err("the demonstration ended in a panic".into()));
        (done, written.and(reports.map_err(|e| e.to_string())))
    });
    let (done, reports) = (done?, reports?);
    let report = reports.into_iter().next().ok_or("no UE arrived")?;
    Ok((done, report))
}

/// The promises of docs/unit.md. Errors: all that were broken, in one sentence.
fn judge(outcomes: &[Outcome], reports: &[ScenarioReport]) -> Result<(), String> {
    let mut broken = Vec::new();
    let mut count = |n: u64, what: &str| {
        if n > 0 {
            broken.push(format!("{n} {what}"));
        }
    };
    count(outcomes.iter().map(|o| o.registrations).sum(), "UEs registered again");
    count(outcomes.iter().map(|o| o.sessions).sum(), "sessions were lost");
    // A restart of all ends the associations, and so does code that did not write what the CTA left of them.
    let may_end = |o: &&Outcome| matches!(o.blow, Blow::Restart | Blow::ControlOtherCode);
    let associations = outcomes.iter().filter(|o| !may_end(o)).map(|o| o.associations);
    count(associations.sum(), "associations ended");
    count(reports.iter().map(|r| r.failed).sum(), "UEs failed at a step");
    // An End Marker that the UPF had in hand when it ended is lost with it.
    let is_excused = |v: &&String| outcomes.iter().any(|o| o.may_lose() > 0) && v.contains(NO_END_MARKER);
    let excused = reports.iter().flat_map(|r| &r.violations).filter(is_excused).count() as u64;
    let violated: u64 = reports.iter().map(|r| r.violated).sum();
    count(violated.saturating_sub(excused), "violations of the protocol");
    for outcome in outcomes {
        let all = |of: fn(&PacketArrivals) -> u64| outcome.arrivals.iter().map(of).sum::<u64>();
        let name = outcome.blow.name();
        let lost = all(|a| a.lost).saturating_sub(outcome.may_lose());
        count(lost, &format!("packets were lost beyond what may be in hand ({name})"));
        count(all(|a| a.duplicated), &format!("packets were doubled ({name})"));
        count(all(|a| a.reordered), &format!("packets were reordered ({name})"));
        let (gap, bound) = (outcome.longest.fast, outcome.gap_max());
        if gap > bound {
            let (gap, bound) = (gap.as_millis(), bound.as_millis());
            count(1, &format!("gap of {gap} ms, where {bound} ms are promised ({name})"));
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join(", ")) }
}

fn show(outcomes: &[Outcome], reports: &[ScenarioReport]) -> Done {
    let rows: Vec<Vec<String>> = outcomes
        .iter()
        .map(|o| {
            vec![
                o.blow.name().to_owned(),
                o.longest.ues.to_string(),
                o.longest.all.as_millis().to_string(),
                format!("{:.1}", o.longest.fast.as_secs_f64() * 1000.0),
                both(&o.arrivals, |a| a.lost),
                both(&o.arrivals, |a| a.duplicated),
                both(&o.arrivals, |a| a.reordered),
                o.complete.as_millis().to_string(),
                o.registrations.to_string(),
                o.sessions.to_string(),
                o.associations.to_string(),
            ]
        })
        .collect();
    let heads = [
        "killed",
        "UEs",
        "longest gap ms",
        "at 1 ms",
        "lost",
        "doubled",
        "reordered",
        "complete again ms",
        "registrations again",
        "sessions lost",
        "associations ended",
    ];
    print(&table(&heads, &rows))?;
    for outcome in outcomes.iter().filter(|o| !o.legs.is_empty()) {
        let legs: Vec<String> =
            outcome.legs.iter().map(|(what, at)| format!("{what} after {} ms", at.as_millis())).collect();
        print(&format!("{}: {}\n", outcome.blow.name(), legs.join(", ")))?;
    }
    for failure in reports.iter().flat_map(|r| &r.failures).take(10) {
        print(&format!("failed: {} at step {}: {}\n", failure.supi, failure.step, failure.reason))?;
    }
    for violation in reports.iter().flat_map(|r| &r.violations).take(10) {
        print(&format!("violation: {violation}\n"))?;
    }
    let kinds: serde_json::Map<String, serde_json::Value> = outcomes
        .iter()
        .map(|o| {
            let [up, down] = o.arrivals;
            let of = json!({"longest_gap_ms": o.longest.all.as_millis() as u64,
                "longest_gap_at_1_ms_us": o.longest.fast.as_micros() as u64, "packets": up.expected + down.expected,
                "lost": up.lost + down.lost, "doubled": up.duplicated + down.duplicated,
                "reordered": up.reordered + down.reordered, "complete_ms": o.complete.as_millis() as u64,
                "registrations": o.registrations, "sessions_lost": o.sessions, "associations_ended": o.associations});
            (o.blow.name().to_owned(), of)
        })
        .collect();
    print(&format!(
        "{}\n",
        json!({"bench": "survive", "figures": {"ues": reports.iter().map(|r| r.arrived).max(),
            "failed": reports.iter().map(|r| r.failed).sum::<u64>(),
            "violations": reports.iter().map(|r| r.violated).sum::<u64>(), "kinds": kinds}})
    ))
}

/// A figure of uplink and downlink.
pub(super) fn both(arrivals: &[PacketArrivals; 2], of: impl Fn(&PacketArrivals) -> u64) -> String {
    let [up, down] = arrivals;
    format!("{} / {}", of(up), of(down))
}

/// Does all of these to the unit, one after the other.
fn deal(
    blows: &[Blow],
    playground: &mut Playground,
    wish: &Wish,
    (directory, upgrade_to): (&Path, &Path),
    gaps: &Gaps,
    noticed: &Mutex<Noticed>,
) -> Result<Vec<Outcome>, String> {
    await_sessions(noticed, wish.ues as usize)?;
    std::thread::sleep(SETTLE);
    let mut outcomes = Vec::new();
    for &blow in blows {
        if matches!(blow, Blow::Control | Blow::ControlOtherCode) {
            std::thread::sleep(STORED_WITHIN);
        }
        let before = seen(noticed);
        gaps.longest();
        let arrived = gaps.fast_arrivals();
        noticed.lock().unwrap_or_else(PoisonError::into_inner).begin_legs();
        let begun = Instant::now();
        let (mut killed, mut stopped) = (None, None);
        match blow {
            Blow::Cpf => killed = signal(directory, Signal::KILL, |f| f.name.starts_with("cpf-"))?,
            Blow::CpfHangs => killed = signal(directory, Signal::STOP, |f| f.name.starts_with("cpf-"))?,
            Blow::UpfHangs => killed = signal(directory, Signal::STOP, |f| f.name == "upf")?,
            Blow::Restart => stopped = Some(playground.restart_core(wish)?),
            Blow::Upf => killed = signal(directory, Signal::KILL, |f| f.name == "upf")?,
            Blow::Primary => killed = signal(directory, Signal::KILL, |f| f.state == "primary")?,
            Blow::Hang => killed = signal(directory, Signal::STOP, |f| f.state == "primary")?,
            Blow::Replica => killed = signal(directory, Signal::KILL, |f| f.state == "replica")?,
            Blow::Manager => playground.lose_core(wish)?,
            Blow::Control | Blow::ControlOtherCode => {
                if blow == Blow::ControlOtherCode {
                    playground.changes_program(upgrade_to.to_owned());
                }
                let functions = unit::status(directory)?.functions;
                let control = functions.iter().filter(|f| !f.name.starts_with("upf"));
                let control: Vec<Pid> = control.filter_map(|f| Pid::from_raw(f.pid?)).collect();
                playground.lose_functions(wish, &control)?;
            }
            Blow::ControlRestart => {
                unit::restart_control(directory, |_| match begun.elapsed() < UPGRADE_WITHIN {
                    true => Ok(()),
                    false => Err("the control functions have not started again in time".into()),
                })?;
            }
            Blow::Upgrade => {
                let upgraded = || {
                    unit::upgrade(directory, Some(upgrade_to), |_| match begun.elapsed() < UPGRADE_WITHIN {
                        true => Ok(()),
                        false => Err("the functions are not replaced in time".into()),
                    })
                };
                // It needs a complete unit, and a busy host may just have had a CTA replaced.
                if upgraded().is_err() {
                    await_complete(playground, None)?;
                    upgraded()?;
                }
                playground.is_upgraded_to(upgrade_to);
            }
        }
        let more = MORE_FOR_A_UE * wish.ues;
        await_complete_within(playground, killed, COMPLETE_WITHIN + more)?;
        let complete = begun.elapsed();
        if blow == Blow::Restart {
            await_served(noticed, wish.ues.min(ACTIVE_MAX) as usize, SERVED_WITHIN + more)?;
            await_kept(playground, wish.ues, SERVED_WITHIN + more)?;
        }
        std::thread::sleep(WATCHED.saturating_sub(begun.elapsed()).max(Duration::from_millis(500)));
        let longest = gaps.longest();
        let now = gaps.fast_arrivals();
        let arrivals = [0, 1].map(|n: usize| now[n].since(arrived[n]));
        let watched = begun.elapsed();
        let after = seen(noticed);
        let [registrations, sessions, associations] =
            [0, 1, 2].map(|n: usize| after[n].saturating_sub(before[n]));
        let legs = stopped
            .map(|stopped| noticed.lock().unwrap_or_else(PoisonError::into_inner).legs(begun, stopped));
        let legs = legs.unwrap_or_default();
        outcomes.push(Outcome {
            blow,
            longest,
            arrivals,
            watched,
            complete,
            registrations,
            sessions,
            associations,
            legs,
        });
    }
    Ok(outcomes)
}

/// Waits until all UEs have set up a session. Errors: some have not in time.
fn await_sessions(noticed: &Mutex<Noticed>, ues: usize) -> Done {
    let established = || noticed.lock().unwrap_or_else(PoisonError::into_inner).established.len();
    let within = SERVED_WITHIN + MORE_FOR_A_UE * u32::try_from(ues).unwrap_or(u32::MAX);
    until(within, || established() >= ues, || format!("{} of {ues} UEs have a session", established()))
}

/// Waits until so many UEs have been served since a restart began: each of them sends. Errors: some are not in time.
fn await_served(noticed: &Mutex<Noticed>, ues: usize, within: Duration) -> Done {
    let served = || noticed.lock().unwrap_or_else(PoisonError::into_inner).served_ues.len();
    until(within, || served() >= ues, || format!("{} of {ues} UEs are served after the restart", served()))
}

/// Waits until the UPF has the sessions of all UEs again. Errors: some are missing.
fn await_kept(playground: &Playground, ues: u32, within: Duration) -> Done {
    let sessions = || playground.client().metric(Metric::PduSessions, None).unwrap_or(0.0);
    let missing = || format!("{} of {ues} sessions are at the UPF after the restart", sessions());
    until(within, || sessions() >= f64::from(ues), missing)
}

/// Waits until something is the case. Errors: what is missing, if it takes longer.
fn until(within: Duration, is: impl Fn() -> bool, missing: impl Fn() -> String) -> Done {
    let until = Instant::now() + within;
    while !is() {
        if Instant::now() >= until {
            return Err(missing());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Registrations and sessions of UEs, and associations of gNBs, that are none of the scenario's.
pub(super) fn seen(noticed: &Mutex<Noticed>) -> [u64; 3] {
    let noticed = noticed.lock().unwrap_or_else(PoisonError::into_inner);
    [noticed.registrations, noticed.sessions, noticed.associations]
}

/// Sends a signal to the first function of the unit that this is true of. Returns the number of its process. Errors: there is none.
pub(super) fn signal(
    directory: &Path,
    signal: Signal,
    is: impl Fn(&unit::FunctionStatus) -> bool,
) -> Result<Option<i32>, String> {
    let status = unit::status(directory)?;
    let function = status.functions.iter().find(|f| is(f)).and_then(|f| Pid::from_raw(f.pid?));
    let pid = function.ok_or("the unit has no such function")?;
    kill_process(pid, signal).map_err(|e| format!("a function cannot be killed: {e}"))?;
    Ok(Some(pid.as_raw_nonzero().get()))
}

/// Waits until each function runs, in another process than the one that was killed, all CPFs have joined the primary CTA, it has a replica,
/// and so has each UE. Errors: it takes too long.
pub(crate) fn await_complete(playground: &Playground, killed: Option<i32>) -> Done {
    await_complete_within(playground, killed, COMPLETE_WITHIN)
}

fn await_complete_within(playground: &Playground, killed: Option<i32>, within: Duration) -> Done {
    let is_complete = |status: &UnitStatus| {
        let all = status
            .functions
            .iter()
            .all(|f| matches!(f.state.as_str(), "running" | "primary" | "replica" | "frozen"));
        let has = |state: &str| status.functions.iter().any(|f| f.state == state);
        let gone = killed.is_none() || status.functions.iter().all(|f| f.pid != killed);
        gone && all && has("primary") && has("replica")
    };
    let directory = playground.unit_directory();
    let without_replica = || playground.client().metric(Metric::UesWithoutBackup, None);
    // A CPF runs some time before the CTA uses it.
    let cpfs_joined = || {
        let status = playground.client().get::<Value>("/api/v1/status");
        status.is_ok_and(|s| {
            let mut parts = s["components"].as_array().into_iter().flatten();
            parts.any(|c| c["name"] == "cpfs" && c["condition"] == "up")
        })
    };
    let until = Instant::now() + within;
    while Instant::now() < until {
        let complete = unit::status(&directory).is_ok_and(|status| is_complete(&status));
        if complete && cpfs_joined() && without_replica().is_ok_and(|ues| ues == 0.0) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err("the unit is not complete in time".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(blow: Blow) -> Outcome {
        let arrivals = PacketArrivals { expected: 3_000, ..PacketArrivals::default() };
        Outcome {
            blow,
            longest: Longest { all: GAP_MAX, fast: Duration::from_millis(20), ues: 9 },
            arrivals: [arrivals; 2],
            watched: Duration::from_secs(3),
            complete: Duration::from_secs(1),
            registrations: 0,
            sessions: 0,
            associations: 0,
            legs: Vec::new(),
        }
    }

    fn judged(blow: Blow, fault: impl Fn(&mut Outcome)) -> Option<String> {
        let mut outcome = good(blow);
        fault(&mut outcome);
        judge(&[good(Blow::Manager), outcome], &[ScenarioReport::default()]).err()
    }

    #[test]
    fn each_broken_promise_fails_the_demonstration() {
        assert_eq!(judged(Blow::Cpf, |_| {}), None);
        type Fault = fn(&mut Outcome);
        let cases: [(Fault, &str); 7] = [
            (|o| o.registrations = 1, "1 UEs registered again"),
            (|o| o.sessions = 2, "2 sessions were lost"),
            (|o| o.associations = 1, "1 associations ended"),
            (|o| o.arrivals[0].lost = 1, "1 packets were lost beyond what may be in hand (CPF)"),
            (|o| o.arrivals[1].duplicated = 1, "1 packets were doubled (CPF)"),
            (|o| o.arrivals[1].reordered = 3, "3 packets were reordered (CPF)"),
            (
                |o| o.longest.fast = GAP_MAX + Duration::from_millis(1),
                "1 gap of 1001 ms, where 1000 ms are promised (CPF)",
            ),
        ];
        for (fault, sentence) in cases {
            assert_eq!(judged(Blow::Cpf, fault).as_deref(), Some(sentence));
        }
        for (report, sentence) in [
            (
                ScenarioReport {
                    violated: 1,
                    violations: vec!["another K_gNB".into()],
                    ..ScenarioReport::default()
                },
                "1 violations of the protocol",
            ),
            (ScenarioReport { failed: 4, ..ScenarioReport::default() }, "4 UEs failed at a step"),
        ] {
            assert_eq!(judge(&[good(Blow::Upf)], &[report]), Err(sentence.into()));
        }
    }

    #[test]
    fn a_upf_may_lose_a_burst_and_a_restart_what_was_sent_in_its_gap() {
        assert_eq!(judged(Blow::Upf, |o| o.arrivals[0].lost = IN_HAND_MAX), None);
        assert!(judged(Blow::Upf, |o| o.arrivals[0].lost = IN_HAND_MAX + 1).is_some());
        // Of 6,000 packets in 3 s a gap of 1 s takes 2,000.
        let restart = |lost| {
            judged(Blow::Restart, |o| {
                (o.longest.fast, o.associations, o.arrivals[0].lost) = (Duration::from_secs(1), 2, lost);
            })
        };
        assert_eq!(restart(2_000), None);
        assert!(restart(2_100).is_some());
        let upf_and_marker = ScenarioReport {
            violated: 1,
            violations: vec![format!("{NO_END_MARKER} …")],
            ..ScenarioReport::default()
        };
        assert_eq!(judge(&[good(Blow::Upf)], std::slice::from_ref(&upf_and_marker)), Ok(()));
        assert!(judge(&[good(Blow::Cpf)], &[upf_and_marker]).is_err());
    }
}
