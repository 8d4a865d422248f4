//! `whimbrel-lab demo --scenario sites`: UEs send and move within two sites and between them, while homes, PostgreSQL and the link between the sites fail
//! in turn, a home is added, and all homes are upgraded (docs/sites.md).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use whimbrel_cli::{Done, print};
use whimbrel_nas::ie::RegistrationKind;
use whimbrel_ran::cells::GnbId;
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::ArrivalPattern;
use whimbrel_ran::ue::{self, Reason};
use whimbrel_ran::{UeId, gnb};
use whimbrel_sctp_io::Mode;

use super::Options;
use super::survive::History;
use super::unit_chaos::Draws;
use crate::playground::sites::{HomeId, PAIR, SERVER, SITES, Sites, SitesWish};
use crate::playground::{Gaps, Servers};

/// The UEs' scenario: streams with a packet each second, handovers in a site and between sites, and idle times.
const UES: &str = include_str!("sites.yaml");
/// UEs that come in a second.
const ARRIVALS_PER_S: f64 = 20.0;
/// How long UEs may take to set up their sessions at the start.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(60);
/// UEs move for this long before the first fault, and after each.
const SETTLE: Duration = Duration::from_secs(5);
/// A UE of which nothing has come for this long is not served: five packets of its stream.
const SILENT: Duration = Duration::from_secs(6);
/// How long a fault lasts that is not ended by itself: longer than a peer AMF takes to be given up (1 s), and gNBs to give up the association (5 s).
const FAULT_LASTS: Duration = Duration::from_secs(15);
/// A UE that came to a home so shortly before its death has no replica of that yet: homes send each other the changed ones each 0.1 s.
const NOT_REPLICATED: Duration = Duration::from_millis(200);
/// Until what UEs did before a kill is known here.
const IN_FLIGHT: Duration = Duration::from_millis(50);
/// How long all UEs may take to be served after a fault. NAS timers of UEs whose message was lost are 10 s and 15 s long (T3511, T3517).
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// A fault of the sites, or an order of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Fault {
    /// A home is killed, and started again.
    Home,
    /// PostgreSQL is away.
    Postgres,
    /// PostgreSQL's primary is killed, and its replica server promoted.
    Promote,
    /// The leader of etcd is killed, and the primary CTA of the home that is a pair.
    Etcd,
    /// The sites are cut from each other.
    Cut,
    /// A site gets a further home.
    Add,
    /// All homes are upgraded in turn.
    Upgrade,
}

const FAULTS: [Fault; 7] =
    [Fault::Home, Fault::Postgres, Fault::Promote, Fault::Etcd, Fault::Cut, Fault::Add, Fault::Upgrade];

/// How long faults at random last, in milliseconds.
const RANDOM_MS: (u64, u64) = (2_000, 30_000);

/// A fault with its particulars.
struct PlannedFault {
    fault: Fault,
    /// The home that is killed, or those that are upgraded.
    homes: Vec<HomeId>,
    lasts: Duration,
}

impl PlannedFault {
    /// A fault as `--fault` names it.
    fn of(fault: Fault, sites: &Sites, away: Duration) -> Self {
        let homes = match fault {
            Fault::Upgrade => sites.running(),
            _ => vec![HomeId { site: 0, home: 0 }],
        };
        let lasts = if fault == Fault::Postgres { away } else { FAULT_LASTS };
        Self { fault, homes, lasts }
    }

    /// Any fault that can happen now, but of all homes one alone is upgraded.
    fn random(draws: &mut Draws, sites: &Sites, wish: SitesWish) -> Self {
        let running = sites.running();
        let can_happen = |fault: &Fault| match fault {
            Fault::Promote => !sites.is_promoted(),
            Fault::Add => running.len() == usize::from(SITES * wish.homes),
            _ => true,
        };
        let faults: Vec<Fault> = FAULTS.into_iter().filter(can_happen).collect();
        let fault = faults[draws.below(faults.len())];
        // The pair dies one CTA at a time: both of them keep UEs for each other, and neither on its disk.
        let may_fail = |home: &HomeId| fault != Fault::Home || *home != PAIR;
        let homes: Vec<HomeId> = running.into_iter().filter(may_fail).collect();
        let homes = vec![homes[draws.below(homes.len())]];
        Self { fault, homes, lasts: draws.time(RANDOM_MS) }
    }

    fn name(&self) -> String {
        let home =
            self.homes.first().filter(|_| self.homes.len() == 1).map_or_else(String::new, |home| home.name());
        let seconds = self.lasts.as_secs_f64();
        match self.fault {
            Fault::Home => format!("{home} killed, and started again after {seconds:.0} s"),
            Fault::Postgres => format!("PostgreSQL away for {seconds:.0} s"),
            Fault::Promote => "primary of PostgreSQL killed, replica promoted".into(),
            Fault::Etcd => format!("leader of etcd killed for {seconds:.0} s, and a primary CTA"),
            Fault::Cut => format!("link between the sites cut for {seconds:.0} s"),
            Fault::Add => "a further home".into(),
            Fault::Upgrade if home.is_empty() => "all homes upgraded in turn".into(),
            Fault::Upgrade => format!("{home} upgraded"),
        }
    }
}

/// A wrong configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Plant {
    /// Homes send each other no states of their UEs.
    NoReplicas,
    /// UPFs have the same address pool.
    OverlappingPools,
}

pub(super) fn size(text: &str) -> Result<(u8, u8), String> {
    let read = text.split_once(',').and_then(|(homes, upfs)| Some((homes.parse().ok()?, upfs.parse().ok()?)));
    read.filter(|(homes, upfs)| (2..=7).contains(homes) && (1..=4).contains(upfs))
        .ok_or_else(|| "write 2 to 7 homes and 1 to 4 UPFs, as 3,2".into())
}

/// Events of UEs so far that bear on the promises.
#[derive(Clone, Debug, Default)]
struct Noticed {
    /// UEs that have registered, and those whose registration was an initial one again.
    registered: BTreeSet<UeId>,
    again: u64,
    /// Sessions that ended although no UE asked for it.
    sessions_lost: u64,
    /// Authentications that one side refused.
    refused: u64,
    /// Addresses that a UE got while another one had them.
    twice: u64,
    established: BTreeSet<UeId>,
    served: u64,
    /// The address of each UE's session.
    addresses: BTreeMap<UeId, Ipv4Addr>,
    /// When each UE came to another cell or AMF, or got another 5G-GUTI, last.
    moved: BTreeMap<UeId, Instant>,
    /// UEs that came to a home just before it was killed, and those of them that registered again or lost their session.
    not_replicated: BTreeSet<UeId>,
    without_replica: BTreeSet<UeId>,
    /// The first breaches, in words.
    breaches: Vec<String>,
}

impl Noticed {
    fn breach(&mut self, ue: UeId, what: &str) {
        if self.breaches.len() < 200 {
            self.breaches.push(format!("{ue} {what}"));
        }
    }

    /// A home was killed at this moment.
    fn home_killed(&mut self, at: Instant) {
        let shortly = |moved: &Instant| *moved + NOT_REPLICATED >= at;
        self.not_replicated =
            self.moved.iter().filter(|(_, moved)| shortly(moved)).map(|(ue, _)| *ue).collect();
    }

    /// A UE registers again or loses its session. Returns whether that breaks a promise.
    fn is_broken(&mut self, ue: UeId) -> bool {
        let excused = self.not_replicated.contains(&ue);
        if excused {
            self.without_replica.insert(ue);
        }
        !excused
    }

    fn take(&mut self, ue: UeId, event: &ue::Event) {
        if matches!(
            event,
            ue::Event::Registered { .. }
                | ue::Event::HandedOver { .. }
                | ue::Event::ConfigurationUpdated { .. }
        ) {
            self.moved.insert(ue, Instant::now());
        }
        match event {
            ue::Event::Registered { kind: RegistrationKind::Initial, .. } => {
                let again = !self.registered.insert(ue);
                if again && self.is_broken(ue) {
                    self.again += 1;
                    self.breach(ue, "registered again");
                }
            }
            ue::Event::SessionUp { session, .. } => {
                self.established.insert(ue);
                let Some(address) = session.ipv4 else { return };
                let other = self.addresses.iter().find(|(of, held)| **of != ue && **held == address);
                if let Some((other, _)) = other {
                    let what = format!("got {address}, which {other} has");
                    self.twice += 1;
                    self.breach(ue, &what);
                }
                self.addresses.insert(ue, address);
            }
            ue::Event::SessionReleased { since, .. } => {
                self.addresses.remove(&ue);
                if since.is_none() && self.is_broken(ue) {
                    self.sessions_lost += 1;
                    self.breach(ue, "lost its session");
                }
            }
            ue::Event::Deregistered { since: None, cause, .. } => {
                let cause = cause.map_or(0, |cause| cause.value());
                self.breach(ue, &format!("was deregistered by the network, cause #{cause}"));
            }
            ue::Event::ServiceAccepted { .. } => self.served += 1,
            ue::Event::Refused { procedure, reason, .. } => {
                if matches!(reason, Reason::AuthenticationRejected | Reason::ChallengeRefused(_)) {
                    self.refused += 1;
                }
                if !matches!(reason, Reason::NotPossible | Reason::ConnectionLost | Reason::TimedOut) {
                    self.breach(ue, &format!("{procedure}: {reason}"));
                }
            }
            _ => {}
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

struct SitesWatch<'a> {
    noticed: &'a Mutex<Noticed>,
    over: &'a Mutex<bool>,
    history: Option<History>,
}

impl Watch for SitesWatch<'_> {
    fn gnb(&mut self, gnb: GnbId, event: &gnb::Event) {
        if let Some(history) = &mut self.history {
            history.line(format_args!("gNB {}", gnb.0), format_args!("{event:?}"));
        }
    }

    fn ue(&mut self, ue: UeId, event: &ue::Event) {
        if let Some(history) = &mut self.history {
            history.ue(ue, format_args!("{event:?}"));
        }
        lock(self.noticed).take(ue, event);
    }

    fn persists(&self) -> bool {
        true
    }

    fn stop(&mut self) -> bool {
        *lock(self.over)
    }
}

/// The result of a fault, or of the start.
struct FaultOutcome {
    name: String,
    /// UEs that registered again, lost sessions, refused authentications, and addresses given twice.
    broken: [u64; 4],
    /// UEs that were not served in time.
    unserved: usize,
    /// UEs that were served from a replica of their dead home, and service requests accepted.
    promoted: u64,
    served: u64,
    /// UEs that had come to a home just before it was killed, and registered again or lost their session.
    without_replica: usize,
    /// Until all UEs were served.
    took: Duration,
    breaches: Vec<String>,
}

impl FaultOutcome {
    fn is_kept(&self) -> bool {
        self.broken == [0; 4] && self.unserved == 0
    }

    fn line(&self) -> String {
        let [again, lost, refused, twice] = self.broken;
        let verdict = if self.is_kept() { "kept" } else { "BROKEN" };
        format!(
            "{verdict}: {}: {again} registrations again, {lost} sessions lost, {twice} addresses given twice, {refused} authentications refused, {} UEs not \
             served; {} service requests, {} UEs served from replicas, {} without one, all served after {:.1} s\n",
            self.name,
            self.unserved,
            self.served,
            self.promoted,
            self.without_replica,
            self.took.as_secs_f64()
        )
    }
}

pub(super) fn run(options: &Options) -> Done {
    let (homes, upfs) = options.size;
    let wish = SitesWish {
        ues: options.ues.unwrap_or(1_000),
        homes,
        upfs,
        replicas: options.plant != Some(Plant::NoReplicas),
        overlapping_pools: options.plant == Some(Plant::OverlappingPools),
    };
    print(&format!(
        "starting {SITES} sites of {homes} homes and {upfs} UPFs each, and PostgreSQL with a synchronous replica, in a network namespace of their own\n"
    ))?;
    let mut sites = Sites::start(wish)?;
    let servers = Servers::start(SERVER)?;
    let played = play(&mut sites, wish, &servers, options);
    if let Some(folder) = &options.logs {
        sites.keep_logs(folder);
    }
    let (outcomes, report) = played.map_err(|e| format!("{e}\n{}", sites.logged()))?;
    show(&outcomes, &report, wish)?;
    let broken = outcomes.iter().filter(|outcome| !outcome.is_kept()).count();
    match (broken, report.violated) {
        (0, 0) => print("no promise was broken\n"),
        (broken, violated) => Err(format!(
            "promises were broken in {broken} of {} parts, with {violated} violations of the protocol\n{}",
            outcomes.len(),
            sites.logged()
        )),
    }
}

/// UEs do what [`UES`] says, while the faults are done to the sites.
fn play(
    sites: &mut Sites,
    wish: SitesWish,
    servers: &Servers,
    options: &Options,
) -> Result<(Vec<FaultOutcome>, ScenarioReport), String> {
    let read = crate::ran::scenario::parse(UES);
    let mut scenario = read.map_err(|(at, what)| format!("sites.yaml:{at}: {what}"))?;
    let groups = scenario.groups.len().max(1) as u32;
    for (i, group) in scenario.groups.iter_mut().enumerate() {
        group.ues = wish.ues / groups + u32::from((i as u32) < wish.ues % groups);
    }
    scenario.arrival = ArrivalPattern::Rate(ARRIVALS_PER_S);
    let gnbs = sites.gnb_places();
    scenario.gnbs = gnbs.len() as u16;
    let config = RunnerConfig {
        amf: Vec::new(),
        amf_port: 38412,
        sctp: Mode::Auto,
        sctp_udp_ports: (9900, 9899),
        gnbs,
        ues: sites.ues(),
        scenario,
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::from_micros(20),
        hop_delay: Duration::ZERO,
    };
    let (noticed, over) = (Mutex::new(Noticed::default()), Mutex::new(false));
    let gaps = servers.gaps();
    let names = || config.ues.iter().map(|ue| ue.supi.to_string()).collect();
    let history = options.histories.as_deref().map(|path| History::of(path, names())).transpose()?;
    let (done, reports) = std::thread::scope(|scope| {
        let doing = scope.spawn(|| {
            let done = all_faults(sites, wish, &gaps, &noticed, options);
            *lock(&over) = true;
            done
        });
        let mut observer = SitesWatch { noticed: &noticed, over: &over, history };
        let reports = edge::run(&config, &mut observer);
        let written = observer.history.take().map_or(Ok(()), History::end);
        let done = doing.join().unwrap_or_else(|_| Err("the demonstration ended in a panic".into()));
        (written.and(done), reports.map_err(|e| e.to_string()))
    });
    let (reports, done) = (reports?, done?);
    let report = reports.into_iter().next().ok_or("no UE arrived")?;
    Ok((done, report))
}

fn all_faults(
    sites: &mut Sites,
    wish: SitesWish,
    gaps: &Gaps,
    noticed: &Mutex<Noticed>,
    options: &Options,
) -> Result<Vec<FaultOutcome>, String> {
    let mut faults =
        if options.faults.is_empty() { FAULTS.to_vec() } else { options.faults.clone() }.into_iter();
    let away = Duration::from_secs(options.away.into());
    let mut draws = Draws(options.seed);
    let begun = Instant::now();
    let more = Duration::from_secs_f64(f64::from(wish.ues) / ARRIVALS_PER_S);
    while lock(noticed).established.len() < wish.ues as usize {
        if begun.elapsed() > ESTABLISHED_WITHIN + more {
            let established = lock(noticed).established.len();
            let breaches = lock(noticed).breaches.join("; ");
            return Err(format!("only {established} of {} UEs have a session: {breaches}", wish.ues));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    print(&format!("all {} UEs have a session after {:.1} s\n", wish.ues, begun.elapsed().as_secs_f64()))?;
    let mut outcomes = Vec::new();
    // What was broken before the first fault is the start's.
    let mut before = Noticed::default();
    let all_begun = Instant::now();
    let mut fault: Option<PlannedFault> = None;
    loop {
        let promoted = promoted(sites);
        let begun = Instant::now();
        if let Some(fault) = &fault {
            cause(sites, fault, noticed)?;
        }
        std::thread::sleep(SETTLE);
        let lasts = fault.as_ref().map_or(Duration::ZERO, |fault| fault.lasts);
        while unserved(gaps, noticed, wish) > 0 && begun.elapsed() < SERVED_WITHIN + lasts {
            std::thread::sleep(Duration::from_millis(200));
        }
        let after = {
            let mut noticed = lock(noticed);
            noticed.not_replicated.clear();
            noticed.clone()
        };
        let diff = |of: fn(&Noticed) -> u64| of(&after) - of(&before);
        let outcome = FaultOutcome {
            name: fault.as_ref().map_or_else(|| "the start".into(), PlannedFault::name),
            broken: [diff(|n| n.again), diff(|n| n.sessions_lost), diff(|n| n.refused), diff(|n| n.twice)],
            unserved: unserved(gaps, noticed, wish),
            promoted: self::promoted(sites).saturating_sub(promoted),
            served: diff(|n| n.served),
            without_replica: after.without_replica.len() - before.without_replica.len(),
            took: begun.elapsed(),
            breaches: after.breaches[before.breaches.len()..].to_vec(),
        };
        print(&outcome.line())?;
        for breach in outcome.breaches.iter().take(10) {
            print(&format!("  {breach}\n"))?;
        }
        outcomes.push(outcome);
        before = after;
        fault = match options.random {
            true if all_begun.elapsed().as_secs() >= options.seconds.into() => None,
            true => Some(PlannedFault::random(&mut draws, sites, wish)),
            false => faults.next().map(|fault| PlannedFault::of(fault, sites, away)),
        };
        if fault.is_none() {
            return Ok(outcomes);
        }
    }
}

/// UEs without a session, or of whose session nothing has come for a while.
fn unserved(gaps: &Gaps, noticed: &Mutex<Noticed>, wish: SitesWish) -> usize {
    let (now, arrivals) = (Instant::now(), gaps.last_arrivals());
    let is_served = |address: &&Ipv4Addr| {
        arrivals.get(&(**address).into()).is_some_and(|last| now.saturating_duration_since(*last) <= SILENT)
    };
    wish.ues as usize - lock(noticed).addresses.values().filter(is_served).count()
}

/// UEs that homes have served from the replicas of dead ones.
fn promoted(sites: &Sites) -> u64 {
    let of = |home: &HomeId| sites.metric(*home, "whimbrel_peer_replicas_promoted_total");
    sites.running().iter().map(of).sum::<f64>() as u64
}

fn cause(sites: &mut Sites, planned: &PlannedFault, noticed: &Mutex<Noticed>) -> Result<(), String> {
    match planned.fault {
        Fault::Home => {
            let at = Instant::now();
            planned.homes.iter().for_each(|home| sites.kill_home(*home));
            std::thread::sleep(IN_FLIGHT);
            lock(noticed).home_killed(at);
            std::thread::sleep(planned.lasts);
            planned.homes.iter().try_for_each(|home| sites.start_home(*home))?;
            sites.await_peers()
        }
        Fault::Postgres => sites.postgres_away(planned.lasts),
        Fault::Promote => {
            sites.promote()?;
            std::thread::sleep(planned.lasts);
            Ok(())
        }
        Fault::Etcd => {
            sites.etcd_leader_lost(planned.lasts)?;
            sites.await_peers()
        }
        Fault::Cut => {
            sites.cut(true)?;
            std::thread::sleep(planned.lasts);
            sites.cut(false)?;
            sites.await_peers()
        }
        Fault::Add => {
            let further = sites.running().iter().filter(|home| home.site == 0).count() as u8;
            sites.start_home(HomeId { site: 0, home: further })?;
            sites.await_peers()
        }
        Fault::Upgrade => {
            for home in &planned.homes {
                sites.upgrade_home(*home)?;
                sites.await_peers()?;
            }
            Ok(())
        }
    }
}

fn show(outcomes: &[FaultOutcome], report: &ScenarioReport, wish: SitesWish) -> Done {
    print("\n")?;
    outcomes.iter().try_for_each(|outcome| print(&outcome.line()))?;
    for (name, step) in &report.steps {
        print(&format!("{name}: {} begun, {} failed\n", step.begun, step.failed))?;
    }
    let mut reasons: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for failure in &report.failures {
        *reasons.entry((failure.step, &failure.reason)).or_default() += 1;
    }
    for ((step, reason), times) in reasons {
        print(&format!("step {step} failed {times} times: {reason}\n"))?;
    }
    for violation in report.violations.iter().take(10) {
        print(&format!("violation: {violation}\n"))?;
    }
    let kinds: serde_json::Map<String, serde_json::Value> = outcomes
        .iter()
        .map(|o| {
            let [again, lost, refused, twice] = o.broken;
            let of = json!({"registrations": again, "sessions_lost": lost, "authentications_refused": refused,
                "addresses_twice": twice, "unserved": o.unserved, "service_requests": o.served, "from_replicas": o.promoted,
                "without_replica": o.without_replica});
            (o.name.clone(), of)
        })
        .collect();
    print(&format!(
        "{}\n",
        json!({"bench": "sites", "figures": {"ues": wish.ues, "homes": wish.homes, "upfs": wish.upfs,
            "violations": report.violated, "kinds": kinds}})
    ))
}
