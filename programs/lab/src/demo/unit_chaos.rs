//! `whimbrel-lab demo --scenario unit-chaos`: processes of a unit are killed and frozen and lose their links at random while UEs send, move, come and go
//! (`./x chaos unit`).

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{socket_acceptconn, socket_peercred, socket_type};
use rustix::net::{AddressFamily, Shutdown, SocketType, getsockname, shutdown};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};
use serde_json::json;
use whimbrel_cli::{Done, print};
use whimbrel_node::unit::{self, FunctionStatus};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::user_plane::PacketArrivals;

use super::Options;
use super::survive::{IN_HAND_MAX, Noticed, SETTLE, await_complete, both, play, seen};
use crate::playground::{GATEWAY, Gaps, Playground, Servers, SuciScheme, Wish};

/// What the UEs do.
const SCENARIO: (&str, &str) = ("unit_chaos.yaml", include_str!("unit_chaos.yaml"));
/// The device of the playground's data network.
const DEVICE: &str = "whimbrel0";
/// How long a process is frozen: from less than what finds a UPF that hangs, beyond what finds a function that hangs.
const FROZEN_MS: (u64, u64) = (3, 1_500);
/// How long all are frozen together, as when a host is suspended.
const ALL_FROZEN_MS: (u64, u64) = (3, 1_000);
/// How long the device of the data network is down.
const DOWN_MS: (u64, u64) = (20, 300);
/// How long after a fault the unit is looked at: metrics are half a second old at most, and what a frozen process causes comes later than that.
const LOOKED_AT_AFTER: Duration = Duration::from_millis(650);
/// Time between two faults, once the unit is complete.
const PAUSE_MS: (u64, u64) = (100, 600);
/// Times in a row that a function may be lost soon after its start: with nine the manager gives it up, as documented.
const LOSSES_IN_A_ROW_MAX: u32 = 4;
/// A function that has run for so long is not counted as lost soon after its start.
const STARTED_WELL_S: u64 = 10;

/// What a gNB says of a handover whose End Marker has not come.
pub(super) const NO_END_MARKER: &str = "no end marker came over the old one";

/// Numbers that a seed gives (SplitMix64).
pub(super) struct Draws(pub(super) u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % (n.max(1) as u64)) as usize
    }

    fn is_one_of(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A time between these milliseconds; short ones are as likely as long ones.
    pub(super) fn time(&mut self, (least, most): (u64, u64)) -> Duration {
        let doublings = (most / least.max(1)).max(1).ilog2() as usize + 1;
        let from = least << self.below(doublings);
        Duration::from_micros((from * 1000 + self.next() % (from * 1000)).min(most * 1000))
    }
}

/// A process of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Primary,
    CtaReplica,
    Cpf,
    Upf,
    UpfReplica,
    Manager,
}

impl Victim {
    const ALL: [Self; 6] =
        [Self::Primary, Self::CtaReplica, Self::Cpf, Self::Upf, Self::UpfReplica, Self::Manager];

    /// Those of which one at a time may be lost: the other one has what it had.
    fn group(self) -> u8 {
        match self {
            Self::Primary | Self::CtaReplica => 0,
            Self::Cpf => 1,
            Self::Upf | Self::UpfReplica => 2,
            Self::Manager => 3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Primary => "the primary CTA",
            Self::CtaReplica => "the CTA replica",
            Self::Cpf => "a CPF",
            Self::Upf => "the UPF",
            Self::UpfReplica => "the UPF's replica",
            Self::Manager => "the manager",
        }
    }

    fn is(self, function: &FunctionStatus) -> bool {
        match self {
            Self::Primary => function.state == "primary",
            Self::CtaReplica => function.state == "replica",
            Self::Cpf => function.name.starts_with("cpf-"),
            Self::Upf => function.name == "upf",
            Self::UpfReplica => function.name == "upf-replica",
            Self::Manager => false,
        }
    }
}

/// What is done to the unit.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// kill -9, all at once: one of a group at most.
    Kill(Vec<Victim>),
    /// A process makes no step for a while.
    Freeze(Victim, Duration),
    /// The whole unit makes no step for a while.
    FreezeAll(Duration),
    /// A connection of a process ends.
    Cut(Victim),
    /// The device of the data network is down for a while: packets of that time are lost.
    DeviceDown(Duration),
}

/// Kinds of faults, of which a seed chooses some.
const KINDS: usize = 5;

impl Fault {
    fn kind(&self) -> usize {
        match self {
            Self::Kill(_) => 0,
            Self::Freeze(..) => 1,
            Self::FreezeAll(_) => 2,
            Self::Cut(_) => 3,
            Self::DeviceDown(_) => 4,
        }
    }

    const NAMES: [&'static str; KINDS] =
        ["kills", "freezes", "freezes of all", "cut connections", "device down"];

    fn text(&self) -> String {
        match self {
            Self::Kill(victims) => {
                format!("kill -9 of {}", victims.iter().map(|v| v.name()).collect::<Vec<_>>().join(" and "))
            }
            Self::Freeze(victim, time) => format!("{} is frozen for {} ms", victim.name(), time.as_millis()),
            Self::FreezeAll(time) => format!("all are frozen for {} ms", time.as_millis()),
            Self::Cut(victim) => format!("a connection of {} is cut", victim.name()),
            Self::DeviceDown(time) => format!("the device of N6 is down for {} ms", time.as_millis()),
        }
    }

    /// Packets that may be lost (docs/design/upf-replica.md).
    fn may_lose(&self) -> u64 {
        match self {
            Self::Kill(victims) if victims.contains(&Victim::Upf) => IN_HAND_MAX,
            Self::Freeze(Victim::Upf, _) | Self::FreezeAll(_) => IN_HAND_MAX,
            Self::DeviceDown(_) => u64::MAX,
            Self::Kill(_) | Self::Freeze(..) | Self::Cut(_) => 0,
        }
    }

    /// The processes that it may end.
    fn victims(&self) -> Vec<Victim> {
        match self {
            Self::Kill(victims) => victims.clone(),
            Self::Freeze(victim, _) | Self::Cut(victim) => vec![*victim],
            Self::FreezeAll(_) | Self::DeviceDown(_) => Vec::new(),
        }
    }
}

/// The faults of a seed.
struct Faults {
    draws: Draws,
    /// The kinds that this seed has chosen.
    on: [bool; KINDS],
}

impl Faults {
    fn of(seed: u64) -> Self {
        let mut draws = Draws(seed);
        let mut on = [(); KINDS].map(|()| draws.is_one_of(2));
        let always = draws.below(KINDS);
        on.iter_mut().enumerate().filter(|(kind, _)| *kind == always).for_each(|(_, on)| *on = true);
        Self { draws, on }
    }

    fn victim(&mut self) -> Victim {
        let n = self.draws.below(Victim::ALL.len());
        Victim::ALL.get(n).copied().unwrap_or(Victim::Primary)
    }

    fn next(&mut self) -> Fault {
        loop {
            let fault = match self.draws.below(KINDS) {
                0 => {
                    let mut victims = vec![self.victim()];
                    if self.draws.is_one_of(3) {
                        let second = self.victim();
                        victims
                            .extend(Some(second).filter(|v| victims.iter().all(|o| o.group() != v.group())));
                    }
                    Fault::Kill(victims)
                }
                1 => Fault::Freeze(self.victim(), self.draws.time(FROZEN_MS)),
                2 => Fault::FreezeAll(self.draws.time(ALL_FROZEN_MS)),
                3 => Fault::Cut(self.victim()),
                _ => Fault::DeviceDown(self.draws.time(DOWN_MS)),
            };
            if self.on.get(fault.kind()) == Some(&true) {
                return fault;
            }
        }
    }
}

/// A group of processes that the kernel freezes: cgroup freezer of version 2 or 1 (cgroups(7)).
struct Freezer {
    group: PathBuf,
    /// The file that freezes, and what is written there to freeze and to thaw.
    state: (PathBuf, &'static str, &'static str),
    /// The group that processes come from and go back to.
    parent: PathBuf,
}

impl Freezer {
    /// The host's freezer; `None`: it has none that this process may use.
    fn find() -> Option<Self> {
        let name = format!("whimbrel-chaos-{}", std::process::id());
        let v2 = |root: &str| (PathBuf::from(root), "cgroup.freeze", "1", "0");
        let roots = [
            v2("/sys/fs/cgroup"),
            v2("/sys/fs/cgroup/unified"),
            (PathBuf::from("/sys/fs/cgroup/freezer"), "freezer.state", "FROZEN", "THAWED"),
        ];
        roots.into_iter().find_map(|(parent, file, freeze, thaw)| {
            let group = parent.join(&name);
            fs::create_dir(&group).ok()?;
            let state = group.join(file);
            if !state.exists() || !parent.join("cgroup.procs").exists() {
                let _ = fs::remove_dir(&group);
                return None;
            }
            Some(Self { group, state: (state, freeze, thaw), parent })
        })
    }

    /// Freezes processes; those that have ended are left out. Errors: those of the system.
    fn freeze(&self, pids: &[Pid]) -> std::io::Result<()> {
        for pid in pids {
            let _ = fs::write(self.group.join("cgroup.procs"), pid.as_raw_nonzero().to_string());
        }
        fs::write(&self.state.0, self.state.1)
    }

    /// Thaws them. Errors: those of the system.
    fn thaw(&self) -> std::io::Result<()> {
        fs::write(&self.state.0, self.state.2)?;
        for pid in fs::read_to_string(self.group.join("cgroup.procs"))?.lines() {
            let _ = fs::write(self.parent.join("cgroup.procs"), pid);
        }
        Ok(())
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = self.thaw();
        let _ = fs::remove_dir(&self.group);
    }
}

/// What the faults have done.
#[derive(Default)]
struct Tally {
    of_kind: [u64; KINDS],
    arrivals: [PacketArrivals; 2],
    /// Packets that were lost beyond what may be.
    beyond: u64,
    /// The UPF may have been killed.
    upf_lost: bool,
    longest: Duration,
    slowest: Duration,
}

pub(super) fn run(options: &Options) -> Done {
    let wish = Wish {
        ues: options.ues(),
        gnbs: options.gnbs.max(2),
        slices: ["1"].iter().filter_map(|s| s.parse().ok()).collect(),
        // A host that is held up again and again would rightly send OVERLOAD START.
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
        keeps_ues: false,
    };
    let mut faults = Faults::of(options.seed);
    let kinds: Vec<&str> =
        Fault::NAMES.iter().zip(faults.on).filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    print(&format!("seed {}: {}\n", options.seed, kinds.join(", ")))?;
    let mut playground = Playground::start(&wish)?;
    await_complete(&playground, None)?;
    let servers = Servers::start(GATEWAY)?;
    let freezer = Freezer::find();
    print(match &freezer {
        Some(_) => "processes are frozen by the cgroup freezer and by SIGSTOP in turn\n",
        None => "processes are frozen by SIGSTOP: there is no cgroup freezer here\n",
    })?;
    let time = Duration::from_secs(options.seconds.into());
    let mut before = [0; 3];
    let injects = |playground: &mut Playground, gaps: &Gaps, noticed: &Mutex<Noticed>| {
        let tally = inject(playground, &wish, (&mut faults, freezer.as_ref()), time, gaps);
        before = seen(noticed);
        tally
    };
    let played = play(&mut playground, &wish, &servers, SCENARIO, options.histories.as_deref(), injects);
    let log = playground.log();
    let with_log = |e: String| format!("{e} (seed {})\n{log}", options.seed);
    let (tally, report) = played.map_err(with_log)?;
    let stopped = playground.stop();
    show(options, &tally, before, &report)?;
    judge(&tally, before, &report).map_err(with_log)?;
    stopped
}

/// Injects faults for so long. Errors: the unit is not complete again after one of them.
fn inject(
    playground: &mut Playground,
    wish: &Wish,
    (faults, freezer): (&mut Faults, Option<&Freezer>),
    time: Duration,
    gaps: &Gaps,
) -> Result<Tally, String> {
    std::thread::sleep(SETTLE);
    let begun = Instant::now();
    let mut tally = Tally::default();
    let mut losses = BTreeMap::new();
    while begun.elapsed() < time {
        let fault = faults.next();
        let functions = unit::status(&playground.unit_directory())?.functions;
        if !has_victims(&fault, &functions) {
            // A busy host has just had a CTA replaced by itself.
            await_complete(playground, None)?;
            continue;
        }
        if would_give_up(&fault, &functions, &mut losses) {
            continue;
        }
        gaps.longest();
        let arrived = gaps.fast_arrivals();
        let at = Instant::now();
        let done = strike(&fault, playground, wish, &functions, (&mut faults.draws, freezer));
        let failed =
            |e: String| format!("after {:.1} s, {}: {e}", begun.elapsed().as_secs_f64(), fault.text());
        let killed = done.map_err(failed)?;
        std::thread::sleep(LOOKED_AT_AFTER.saturating_sub(at.elapsed()));
        for pid in killed.into_iter().map(Some).chain([None]) {
            await_complete(playground, pid).map_err(failed)?;
        }
        let complete = at.elapsed();
        std::thread::sleep(faults.draws.time(PAUSE_MS));
        let (longest, now) = (gaps.longest(), gaps.fast_arrivals());
        let arrivals = [0, 1].map(|n: usize| now[n].since(arrived[n]));
        let lost: u64 = arrivals.iter().map(|a| a.lost).sum();
        if fault.may_lose() != u64::MAX {
            tally.longest = tally.longest.max(longest.fast);
        }
        tally.of_kind.iter_mut().enumerate().filter(|(n, _)| *n == fault.kind()).for_each(|(_, of)| *of += 1);
        tally.upf_lost |= fault.may_lose() == IN_HAND_MAX;
        tally.beyond += lost.saturating_sub(fault.may_lose());
        tally.slowest = tally.slowest.max(complete);
        for (all, of) in tally.arrivals.iter_mut().zip(arrivals) {
            all.expected += of.expected;
            all.lost += of.lost;
            all.duplicated += of.duplicated;
            all.reordered += of.reordered;
        }
        print(&format!(
            "{:6.1} s  {}: complete after {} ms, longest gap {:.1} ms, lost {}\n",
            (at - begun).as_secs_f64(),
            fault.text(),
            complete.as_millis(),
            longest.fast.as_secs_f64() * 1000.0,
            both(&arrivals, |a| a.lost),
        ))?;
    }
    Ok(tally)
}

/// Whether the processes that a fault hits are there.
fn has_victims(fault: &Fault, functions: &[FunctionStatus]) -> bool {
    let is_there = |v: &Victim| *v == Victim::Manager || functions.iter().any(|f| v.is(f) && f.pid.is_some());
    fault.victims().iter().all(is_there)
}

/// Whether the manager would give up a function that is lost soon after its start again and again.
fn would_give_up(fault: &Fault, functions: &[FunctionStatus], losses: &mut BTreeMap<String, u32>) -> bool {
    let victims = fault.victims();
    let hit: Vec<&FunctionStatus> =
        functions.iter().filter(|f| victims.iter().any(|victim| victim.is(f))).collect();
    for function in &hit {
        let in_a_row = losses.entry(function.name.clone()).or_insert(0);
        *in_a_row = if function.up_s >= STARTED_WELL_S { 0 } else { *in_a_row };
        if *in_a_row >= LOSSES_IN_A_ROW_MAX {
            return true;
        }
    }
    for function in hit {
        losses.entry(function.name.clone()).and_modify(|n| *n += 1);
    }
    false
}

/// Does it. Returns the functions that were killed. Errors: one sentence.
fn strike(
    fault: &Fault,
    playground: &mut Playground,
    wish: &Wish,
    functions: &[FunctionStatus],
    (draws, freezer): (&mut Draws, Option<&Freezer>),
) -> Result<Vec<i32>, String> {
    let manager = Pid::from_raw(playground.core_pid() as i32).ok_or("the manager has no number")?;
    let mut pid_of = |victim: Victim| {
        if victim == Victim::Manager {
            return Ok(manager);
        }
        let those: Vec<&FunctionStatus> = functions.iter().filter(|f| victim.is(f)).collect();
        let one = those.get(draws.below(those.len())).and_then(|f| Pid::from_raw(f.pid?));
        one.ok_or_else(|| format!("the unit does not have {}", victim.name()))
    };
    match fault {
        Fault::Kill(victims) => {
            let mut killed = Vec::new();
            for victim in victims.iter().filter(|v| **v != Victim::Manager) {
                let pid = pid_of(*victim)?;
                signal(pid, Signal::KILL);
                killed.push(pid.as_raw_nonzero().get());
            }
            if victims.contains(&Victim::Manager) {
                playground.lose_core(wish)?;
            }
            return Ok(killed);
        }
        Fault::Freeze(victim, time) => {
            let pid = pid_of(*victim)?;
            let freezer = freezer.filter(|_| draws.is_one_of(2));
            freeze(&[pid], *time, freezer)?;
        }
        Fault::FreezeAll(time) => {
            let functions = functions.iter().filter_map(|f| Pid::from_raw(f.pid?));
            let all: Vec<Pid> = functions.chain([manager]).collect();
            freeze(&all, *time, freezer)?;
        }
        Fault::Cut(victim) => {
            let pid = pid_of(*victim)?;
            let connections = connections(pid).map_err(|e| format!("a connection cannot be cut: {e}"))?;
            if let Some(connection) = connections.get(draws.below(connections.len())) {
                shutdown(connection, Shutdown::Both)
                    .map_err(|e| format!("a connection cannot be cut: {e}"))?;
            }
        }
        Fault::DeviceDown(time) => {
            link_set("down")?;
            std::thread::sleep(*time);
            link_set("up")?;
        }
    }
    Ok(Vec::new())
}

/// One that has ended meanwhile needs no signal.
fn signal(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

fn freeze(pids: &[Pid], time: Duration, freezer: Option<&Freezer>) -> Done {
    let cannot = |e: std::io::Error| format!("the cgroup freezer fails: {e}");
    match freezer {
        Some(freezer) => {
            freezer.freeze(pids).map_err(cannot)?;
            std::thread::sleep(time);
            freezer.thaw().map_err(cannot)
        }
        None => {
            pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
            std::thread::sleep(time);
            pids.iter().for_each(|pid| signal(*pid, Signal::CONT));
            Ok(())
        }
    }
}

/// Duplicates of the connected stream sockets by which a process reaches others. Errors: those of the system.
fn connections(pid: Pid) -> std::io::Result<Vec<OwnedFd>> {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let own = pid.as_raw_nonzero().get();
    let mut connections = Vec::new();
    for entry in fs::read_dir(format!("/proc/{own}/fd"))? {
        let entry = entry?;
        let is_socket =
            fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let Some(number) = entry.file_name().to_str().and_then(|n| n.parse().ok()).filter(|_| is_socket)
        else {
            continue;
        };
        // One that was closed meanwhile.
        let Ok(socket) = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) else { continue };
        if reaches_another(&socket, own) {
            connections.push(socket);
        }
    }
    Ok(connections)
}

/// A connection to another process over TCP or a Unix socket: neither a listener nor a pair within the process.
fn reaches_another(socket: &OwnedFd, own: i32) -> bool {
    let is_stream = socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM);
    let listens = socket_acceptconn(socket).unwrap_or(true);
    let family = getsockname(socket).map(|at| at.address_family());
    let is_connection = match family {
        Ok(AddressFamily::UNIX) => {
            socket_peercred(socket).is_ok_and(|peer| peer.pid.as_raw_nonzero().get() != own)
        }
        Ok(AddressFamily::INET | AddressFamily::INET6) => true,
        _ => false,
    };
    is_stream && !listens && is_connection
}

fn link_set(state: &str) -> Done {
    let output = Command::new("ip").args(["link", "set", DEVICE, state]).output();
    match output {
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => Err(format!(
            "the device {DEVICE} cannot be set {state}: {}",
            String::from_utf8_lossy(&o.stderr).trim()
        )),
        Err(e) => Err(format!("`ip` cannot be run ({e}): install the package iproute2")),
    }
}

fn show(options: &Options, tally: &Tally, [again, lost, ended]: [u64; 3], report: &ScenarioReport) -> Done {
    let faults: u64 = tally.of_kind.iter().sum();
    print(&format!(
        "{faults} faults in {} s; {} UEs; registrations again {again}, sessions lost {lost}, associations ended {ended}, steps failed {}; \
         of the packets that were sent each millisecond lost {}, doubled {}, reordered {}; longest gap {:.1} ms; complete again after {} ms at most\n",
        options.seconds,
        options.ues(),
        report.failed,
        both(&tally.arrivals, |a| a.lost),
        both(&tally.arrivals, |a| a.duplicated),
        both(&tally.arrivals, |a| a.reordered),
        tally.longest.as_secs_f64() * 1000.0,
        tally.slowest.as_millis(),
    ))?;
    for failure in report.failures.iter().take(10) {
        print(&format!("failed: {} at step {}: {}\n", failure.supi, failure.step, failure.reason))?;
    }
    for violation in report.violations.iter().take(10) {
        print(&format!("violation: {violation}\n"))?;
    }
    let kinds: serde_json::Map<String, serde_json::Value> =
        Fault::NAMES.iter().zip(tally.of_kind).map(|(name, n)| ((*name).to_owned(), n.into())).collect();
    let sum = |of: fn(&PacketArrivals) -> u64| tally.arrivals.iter().map(of).sum::<u64>();
    let figures = json!({"chaos": "unit", "seconds": options.seconds, "seed": options.seed, "ues": options.ues(), "faults": kinds,
        "registrations": again, "sessions_lost": lost, "associations_ended": ended, "failed": report.failed,
        "violations": report.violated, "packets": sum(|a| a.expected), "lost": sum(|a| a.lost), "lost_beyond": tally.beyond,
        "doubled": sum(|a| a.duplicated), "reordered": sum(|a| a.reordered),
        "longest_gap_at_1_ms_us": tally.longest.as_micros() as u64, "complete_ms": tally.slowest.as_millis() as u64});
    print(&format!("{figures}\n"))
}

/// Errors: what no fault may cause.
fn judge(tally: &Tally, [again, lost, ended]: [u64; 3], report: &ScenarioReport) -> Done {
    let sum = |of: fn(&PacketArrivals) -> u64| tally.arrivals.iter().map(of).sum::<u64>();
    // One that a UPF had to send when it was killed is lost (docs/design/upf-replica.md).
    let no_end_marker = report.violations.iter().filter(|v| v.contains(NO_END_MARKER)).count() as u64;
    let violated = report.violated.saturating_sub(if tally.upf_lost { no_end_marker } else { 0 });
    let wrong = [
        (again, "UEs registered again"),
        (lost, "sessions were lost"),
        (ended, "associations ended"),
        (report.failed, "UEs failed at a step"),
        (violated, "violations of the protocol"),
        (tally.beyond, "packets were lost beyond what may be"),
        (sum(|a| a.duplicated), "packets were doubled"),
        (sum(|a| a.reordered), "packets were reordered"),
    ];
    let wrong: Vec<String> =
        wrong.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if tally.of_kind.iter().sum::<u64>() == 0 {
        return Err("nothing happened: the run shows nothing".into());
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_and_seeds_differ_in_their_kinds() {
        let of = |seed| {
            let mut faults = Faults::of(seed);
            (0..50).map(|_| faults.next()).collect::<Vec<_>>()
        };
        assert_eq!(of(7), of(7));
        let kinds: BTreeSet<Vec<usize>> = (0..32)
            .map(|seed| of(seed).iter().map(Fault::kind).collect::<BTreeSet<_>>().into_iter().collect())
            .collect();
        assert!(kinds.len() > 8, "{kinds:?}");
        assert!((0..KINDS).all(|kind| kinds.iter().any(|of| !of.contains(&kind))), "{kinds:?}");
        assert!((0..KINDS).all(|kind| kinds.iter().any(|of| of.contains(&kind))), "{kinds:?}");
    }

    #[test]
    fn of_processes_that_replace_each_other_one_at_a_time_is_killed() {
        let mut pairs = 0;
        for seed in 0..64 {
            let mut faults = Faults::of(seed);
            for fault in (0..50).map(|_| faults.next()) {
                let groups: BTreeSet<u8> = fault.victims().iter().map(|v| v.group()).collect();
                assert_eq!(groups.len(), fault.victims().len(), "{fault:?}");
                pairs += usize::from(groups.len() > 1);
            }
        }
        assert!(pairs > 100, "{pairs}");
    }

    #[test]
    fn a_function_that_is_lost_soon_after_each_start_is_left_alone_before_the_manager_gives_it_up() {
        let upf = |up_s| {
            [FunctionStatus {
                name: "upf".into(),
                pid: Some(1),
                state: "running".into(),
                code: String::new(),
                ended: 0,
                up_s,
            }]
        };
        let mut losses = BTreeMap::new();
        let fault = Fault::Kill(vec![Victim::Upf]);
        for _ in 0..LOSSES_IN_A_ROW_MAX {
            assert!(!would_give_up(&fault, &upf(1), &mut losses));
        }
        assert!(would_give_up(&fault, &upf(1), &mut losses));
        assert!(has_victims(&fault, &upf(1)));
        assert!(!has_victims(&Fault::Kill(vec![Victim::CtaReplica]), &upf(1)));
        assert!(!would_give_up(&Fault::Kill(vec![Victim::Cpf]), &upf(1), &mut losses));
        assert!(!would_give_up(&fault, &upf(STARTED_WELL_S), &mut losses));
    }

    #[test]
    fn connections_of_a_process_are_those_to_others() {
        use std::net::{TcpListener, TcpStream};
        use std::os::unix::net::UnixStream;
        let own = std::process::id() as i32;
        let (near, _far) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let is = |socket: OwnedFd| reaches_another(&socket, own);
        assert!(is(connection.into()));
        assert!(!is(listener.into()) && !is(datagrams.into()));
        assert!(!is(near.into()), "a pair within the process");
    }

    #[test]
    fn drawn_times_are_between_their_bounds_and_are_often_short() {
        let mut draws = Draws(3);
        let times: Vec<Duration> = (0..1000).map(|_| draws.time(FROZEN_MS)).collect();
        let (least, most) = (Duration::from_millis(FROZEN_MS.0), Duration::from_millis(FROZEN_MS.1));
        assert!(times.iter().all(|t| (least..=most).contains(t)));
        assert!(times.iter().filter(|t| t.as_millis() < 20).count() > 200);
        assert!(times.iter().filter(|t| t.as_millis() > 1000).count() > 20);
    }
}
