//! What packets and background work get, in each way to share the core.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::ie::QerBitRate;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::samples::SampleSession;
use whimbrel_user::{
    Config as User, DnIndex, Input, Ipv4Net, Origin, Outbox, Packet, SessionId, UpfC, UpfU, UsageSurvey,
    UserPlaneChange,
};
use whimbrel_user_io::measure::{Pace, PacedOutcome, Priority, paced, run_at, run_on};
use whimbrel_user_io::{Config, Handle, Harvest};

#[path = "../../../tests/common/mod.rs"]
mod smf;

use smf::{GNB, SERVER, SMF, START, activation, association, from_gnb, g_pdu, smf_establishment, udp4};

/// Octets of a UE's packet.
const OCTETS: usize = 68;
/// The UE of the first session.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Packets that are drawn before: their sessions are four times a last cache.
const DRAWN: usize = 1 << 20;
/// Memory of a session, in both tables and the allocator.
const OCTETS_PER_SESSION: u64 = 640;
const SESSIONS_MAX: u32 = 12_000_000;
/// Sessions that the kernel's thread surveys: a table of its own, many times the last cache.
const BESIDE_MAX: u32 = 1_000_000;
/// Places of the table that it surveys at once.
const PLACES: u32 = 64;
/// A rate that no thread reaches.
const SATURATION: f64 = 1e9;
/// Before a measurement, if that is not shorter.
const SETTLES: Duration = Duration::from_millis(700);
/// Before one with work, in measurements: the budget finds its level, a few hundredths of a second for each step.
const FINDS_LEVEL: u32 = 3;
/// How often in a measurement the thread is asked what packets pay.
const ASKED: u32 = 20;
/// Between two measurements in real time: the kernel lets such threads run for 950 ms of each second.
const REAL_TIME_PAUSE: Duration = Duration::from_millis(700);
/// From the first packet to the interrupt, where the thread sleeps: what drivers do at such rates.
const COALESCED: Duration = Duration::from_micros(20);
/// Longest that the thread looks at an empty queue, where it polls.
const POLLS: Duration = Duration::from_secs(1);

/// What can be chosen.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) sessions: u32,
    pub(crate) rates: Vec<u32>,
    pub(crate) budgets: Vec<u16>,
    pub(crate) rounds: usize,
    pub(crate) measured: Duration,
    /// All threads run before those of other programs, for a machine that is in use: a window is then shorter than what the kernel permits in a row.
    pub(crate) real_time: bool,
}

impl Options {
    /// From arguments; `None` if they are not understood.
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self {
            sessions: sessions_by_memory(),
            rates: vec![1, 10, 30, 60, 90, 100],
            budgets: vec![10, 30, 50],
            rounds: 3,
            measured: Duration::from_secs(1),
            real_time: false,
        };
        while let Some(argument) = arguments.next() {
            if argument == "--real-time" {
                options.real_time = true;
                continue;
            }
            let value = arguments.next()?;
            match argument.as_str() {
                "--sessions" => {
                    options.sessions = value.parse().ok().filter(|n| (1..=SESSIONS_MAX).contains(n))?
                }
                "--rates" => options.rates = list(&value)?,
                "--budgets" => options.budgets = list(&value)?,
                "--rounds" => options.rounds = value.parse().ok().filter(|n| *n > 0)?,
                "--seconds" => {
                    options.measured = Duration::try_from_secs_f64(value.parse().ok()?).ok()?;
                }
                _ => return None,
            }
        }
        Some(options)
    }
}

fn list<T: std::str::FromStr>(value: &str) -> Option<Vec<T>> {
    value.split(',').map(|n| n.parse().ok()).collect()
}

/// As many as half of the memory that is available has room for.
fn sessions_by_memory() -> u32 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(1 << 20);
    u32::try_from(kib * 1024 / 2 / OCTETS_PER_SESSION).map_or(SESSIONS_MAX, |n| n.clamp(10_000, SESSIONS_MAX))
}

/// A way to share the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The packet thread polls without end, and nothing else runs.
    Polls,
    /// It sleeps when there is nothing to do, and nothing else runs.
    Sleeps,
    /// It polls, and surveys within a budget.
    Harvests(u16),
    /// It polls, and a thread of the lowest priority waits for the core.
    PollsBesideThread,
    /// It sleeps, and a thread of the lowest priority has the core meanwhile.
    SleepsBesideThread,
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Polls => "polls, no work".into(),
            Self::Sleeps => "sleeps, no work".into(),
            Self::Harvests(percent) => format!("harvest p95 +{percent} %"),
            Self::PollsBesideThread => "polls, idle thread".into(),
            Self::SleepsBesideThread => "sleeps, idle thread".into(),
        }
    }

    fn busy_poll(self) -> Duration {
        match self {
            Self::Sleeps | Self::SleepsBesideThread => Duration::ZERO,
            Self::Polls | Self::Harvests(_) | Self::PollsBesideThread => POLLS,
        }
    }
}

/// A measurement of one round.
#[derive(Clone, Debug, Default)]
struct Seen {
    paced: PacedOutcome,
    seconds: f64,
    /// Sessions that were surveyed, and those of them while packets' memory was loaded.
    surveyed: u64,
    in_stalls: u64,
    /// By how many per cent the 95th percentile of packets' stay in the thread was greater with work, as the thread measured it.
    cost: f64,
}

/// A rate and a way, with the medians of its measurements.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Per cent of saturation.
    pub(crate) rate: u32,
    pub(crate) way: String,
    /// What may be paid and what was, in per cent of the 95th percentile in the thread; `None` without a budget.
    pub(crate) budget: Option<u16>,
    pub(crate) cost: f64,
    /// Packets sent in millions a second, and the part of those that arrived which was lost.
    pub(crate) mpps: f64,
    pub(crate) lost: f64,
    /// Delay in microseconds.
    pub(crate) p50_us: f64,
    pub(crate) p95_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// Packets of a burst in the mean.
    pub(crate) burst: f64,
    /// Millions of sessions surveyed a second, and what part of a core that takes when it does nothing else.
    pub(crate) surveyed: f64,
    pub(crate) core: f64,
    /// The part of them that was read in stalls.
    pub(crate) in_stalls: f64,
}

/// The user plane, and the thread that the kernel runs beside it.
struct Bench {
    handle: Handle,
    pace: Pace,
    beside: Arc<Beside>,
}

#[derive(Default)]
struct Beside {
    on: AtomicBool,
    stop: AtomicBool,
    surveyed: AtomicU64,
}

/// Measures and prints. Errors: those of a start, of the kernel, and where no packet passes.
pub(crate) fn run(options: &Options) -> io::Result<Vec<Row>> {
    let last = available_parallelism()?.get() - 1;
    println!(
        "{} sessions, packets of {OCTETS} octets both ways, processor {last} for the packet thread; medians of {} rounds of {:?}",
        options.sessions, options.rounds, options.measured
    );
    // The packet thread is started from here: it stays where this thread is now, at its priority.
    run_on(last)?;
    if options.real_time {
        run_at(Priority::RealTime(2))?;
    }
    let user = user(options.sessions);
    let sample = SampleSession::of(&asked_for(&user), user.sessions_max, user.seed)
        .ok_or_else(|| io::Error::other("the rules are of another shape"))?;
    let (handle, pace) = paced(Config::new(user, "none"), draw(&sample, options.sessions))
        .map_err(|e| io::Error::other(e.to_string()))?;
    run_at(Priority::Usual)?;
    let table = table(options.sessions.min(BESIDE_MAX))?;
    if options.real_time {
        run_at(Priority::RealTime(2))?;
    }
    let alone = survey_ns(&table);
    run_at(Priority::Usual)?;
    let beside = Arc::new(Beside::default());
    let thread = {
        let beside = Arc::clone(&beside);
        let priority = if options.real_time { Priority::RealTime(1) } else { Priority::Idle };
        thread::spawn(move || run_beside(&table, &beside, last, priority))
    };
    run_on(0)?;
    let bench = Bench { handle, pace, beside };
    let rows = bench.fill(&sample, options.sessions).and_then(|()| bench.rows(options, alone));
    bench.beside.stop.store(true, Ordering::Release);
    let ran = thread.join().map_err(|_| io::Error::other("the thread beside panicked"))?;
    ran.and(rows)
}

impl Bench {
    fn fill(&self, sample: &SampleSession, sessions: u32) -> io::Result<()> {
        for n in 0..sessions {
            let mut change = session(sample, n).1;
            while let Err(full) = self.handle.apply(change) {
                change = full.0;
                thread::yield_now();
            }
        }
        let (begun, mut before) = (Instant::now(), 0);
        while before < u64::from(sessions) {
            thread::sleep(Duration::from_millis(20));
            before = self.handle.counters().sessions;
            if begun.elapsed() > Duration::from_secs(300) {
                return Err(io::Error::other(format!("only {before} sessions stand")));
            }
        }
        Ok(())
    }

    fn rows(&self, options: &Options, alone_ns: f64) -> io::Result<Vec<Row>> {
        if options.real_time {
            run_at(Priority::RealTime(3))?;
        }
        let saturation = self.measure(Way::Polls, SATURATION, options)?;
        let saturation = saturation.paced.sent as f64 / saturation.seconds;
        if saturation == 0.0 {
            return Err(io::Error::other(format!("no packet passes: {:?}", self.handle.counters())));
        }
        println!(
            "saturation: {:.2} million packets a second; one session is surveyed in {alone_ns:.1} ns by a core that does nothing else\n",
            saturation / 1e6
        );
        println!(
            "{:>6} {:<20} {:>7} {:>8} {:>9} {:>9} {:>9} {:>9} {:>7} {:>14} {:>10} {:>10} {:>10}",
            "rate",
            "way",
            "Mpps",
            "lost",
            "p50 us",
            "p95",
            "p99",
            "p99.9",
            "burst",
            "M sessions/s",
            "of a core",
            "in stalls",
            "p95 paid"
        );
        let mut rows = Vec::new();
        for &rate in &options.rates {
            let packets = if rate >= 100 { SATURATION } else { saturation * f64::from(rate) / 100.0 };
            let mut ways = vec![Way::Polls, Way::Sleeps, Way::PollsBesideThread, Way::SleepsBesideThread];
            ways.extend(options.budgets.iter().map(|percent| Way::Harvests(*percent)));
            let mut seen = vec![Vec::new(); ways.len()];
            for _ in 0..options.rounds {
                for (way, seen) in ways.iter().zip(&mut seen) {
                    seen.push(self.measure(*way, packets, options)?);
                }
            }
            for (way, seen) in ways.iter().zip(&seen) {
                let row = row(rate, *way, seen, alone_ns);
                print(&row);
                rows.push(row);
            }
        }
        summarise(options, &rows);
        Ok(rows)
    }

    fn measure(&self, way: Way, packets_per_s: f64, options: &Options) -> io::Result<Seen> {
        self.handle.set_harvest(match way {
            Way::Harvests(percent) => Harvest::P95 { percent, every: Duration::ZERO },
            _ => Harvest::Off,
        });
        self.pace.set(packets_per_s, way.busy_poll(), COALESCED);
        self.beside
            .on
            .store(matches!(way, Way::PollsBesideThread | Way::SleepsBesideThread), Ordering::Release);
        let finds_level = if matches!(way, Way::Harvests(_)) { FINDS_LEVEL } else { 1 };
        (0..finds_level).for_each(|_| thread::sleep(SETTLES.min(options.measured)));
        self.pace.take();
        let (begun, before) = (Instant::now(), self.surveyed());
        let mut costs = Vec::new();
        for _ in 0..ASKED {
            thread::sleep(options.measured / ASKED);
            let c = self.handle.harvest_counters();
            costs.extend((c.p95_without_ns > 0).then(|| c.p95_with_ns as f64 / c.p95_without_ns as f64));
        }
        costs.sort_by(f64::total_cmp);
        let cost = costs.get(costs.len() / 2).map_or(0.0, |cost| (cost - 1.0) * 100.0);
        let (paced, seconds, after) = (self.pace.take(), begun.elapsed().as_secs_f64(), self.surveyed());
        self.beside.on.store(false, Ordering::Release);
        self.pace.set(0.0, Duration::ZERO, COALESCED);
        self.handle.set_harvest(Harvest::Off);
        if options.real_time {
            thread::sleep(REAL_TIME_PAUSE);
        }
        if !self.handle.is_running() {
            return Err(io::Error::other("the packet thread has ended"));
        }
        let [surveyed, in_stalls] = [0, 1].map(|i| after[i] - before[i]);
        Ok(Seen { paced, seconds, surveyed, in_stalls, cost })
    }

    /// Sessions that were surveyed until now, by either thread, and those of them in stalls.
    fn surveyed(&self) -> [u64; 2] {
        let counters = self.handle.harvest_counters();
        let beside = self.beside.surveyed.load(Ordering::Relaxed);
        [counters.places_idle + counters.places_in_stalls + beside, counters.places_in_stalls]
    }
}

fn row(rate: u32, way: Way, seen: &[Seen], alone_ns: f64) -> Row {
    let median = |of: &dyn Fn(&Seen) -> f64| {
        let mut all: Vec<f64> = seen.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let part = |of: u64, all: u64| if all == 0 { 0.0 } else { of as f64 / all as f64 };
    let delay = |quantile| median(&|s| s.paced.delay_ns(quantile) as f64 / 1_000.0);
    let surveyed = median(&|s| s.surveyed as f64 / s.seconds);
    Row {
        rate,
        way: way.name(),
        budget: if let Way::Harvests(percent) = way { Some(percent) } else { None },
        cost: median(&|s| s.cost),
        mpps: median(&|s| s.paced.sent as f64 / s.seconds / 1e6),
        lost: median(&|s| part(s.paced.lost, s.paced.arrived)),
        p50_us: delay(0.5),
        p95_us: delay(0.95),
        p99_us: delay(0.99),
        p999_us: delay(0.999),
        burst: median(&|s| part(s.paced.sent, s.paced.bursts)),
        surveyed: surveyed / 1e6,
        core: surveyed * alone_ns / 1e9,
        in_stalls: median(&|s| part(s.in_stalls, s.surveyed)),
    }
}

fn print(r: &Row) {
    let paid = r.budget.map_or(String::new(), |_| format!("{:>+8.1} %", r.cost));
    println!(
        "{:>4} % {:<20} {:>7.3} {:>6.2} % {:>9.2} {:>9.2} {:>9.1} {:>9.1} {:>7.1} {:>14.1} {:>8.1} % {:>8.1} % {paid}",
        r.rate,
        r.way,
        r.mpps,
        r.lost * 100.0,
        r.p50_us,
        r.p95_us,
        r.p99_us,
        r.p999_us,
        r.burst,
        r.surveyed,
        r.core * 100.0,
        r.in_stalls * 100.0
    );
}

/// Which budgets held, whether a quarter of a core for 3 % of the packets a second was reached, and the line that machines read.
fn summarise(options: &Options, rows: &[Row]) {
    for row in rows {
        let (Some(budget), Some(alone)) = (row.budget, rows.iter().find(|r| r.rate == row.rate)) else {
            continue;
        };
        let held = if row.cost <= f64::from(budget) { "held" } else { "did not hold" };
        let fewer = (1.0 - row.mpps / alone.mpps) * 100.0;
        let reached = if row.core >= 0.25 && fewer <= 3.0 { "reached" } else { "not reached" };
        println!(
            "at {} %, budget p95 +{budget} %: {held} ({:+.1} % in the thread; from arrival to sending {:.2} us against {:.2}); {:.0} % of a core for {fewer:.1} % fewer packets a second: a quarter for 3 % is {reached}",
            row.rate,
            row.cost,
            row.p95_us,
            alone.p95_us,
            row.core * 100.0,
        );
    }
    let line = |r: &Row| {
        format!(
            "[{}, \"{}\", {:.3}, {:.4}, {:.2}, {:.2}, {:.1}, {:.1}, {:.1}, {:.2}, {:.3}, {:.3}, {:.1}]",
            r.rate,
            r.way,
            r.mpps,
            r.lost,
            r.p50_us,
            r.p95_us,
            r.p99_us,
            r.p999_us,
            r.burst,
            r.surveyed,
            r.core,
            r.in_stalls,
            r.cost
        )
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    println!(
        "{{\"bench\": \"harvest\", \"figures\": {{\"sessions\": {}, \"rows\": [{}]}}}}",
        options.sessions,
        lines.join(", ")
    );
}

/// Surveys its table when it is on and the kernel lets it run.
fn run_beside(table: &UpfU, beside: &Beside, processor: usize, priority: Priority) -> io::Result<()> {
    run_on(processor)?;
    run_at(priority)?;
    let mut survey = UsageSurvey::default();
    while !beside.stop.load(Ordering::Acquire) {
        if !beside.on.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let read = table.session_table().survey(START, &mut survey, PLACES);
        beside.surveyed.fetch_add(read.into(), Ordering::Relaxed);
        if read < PLACES {
            survey = UsageSurvey::default();
        }
    }
    Ok(())
}

/// Nanoseconds of one session, when the core does nothing else.
fn survey_ns(table: &UpfU) -> f64 {
    let round = || {
        let (mut survey, mut all, begun) = (UsageSurvey::default(), 0u64, Instant::now());
        loop {
            let read = table.session_table().survey(START, &mut survey, PLACES);
            all += u64::from(read);
            if read < PLACES {
                return begun.elapsed().as_nanos() as f64 / all.max(1) as f64;
            }
        }
    };
    (0..3).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn user(sessions: u32) -> User {
    let mut user = smf::config();
    (user.sessions_max, user.echo_interval) = (sessions + 1, None);
    user.data_networks.truncate(1);
    user.data_networks[0].ipv4_pools = vec![Ipv4Net { address: Ipv4Addr::new(10, 0, 0, 0), prefix: 8 }];
    user
}

/// A pipeline of its own, with so many sessions.
fn table(sessions: u32) -> io::Result<UpfU> {
    let user = user(sessions);
    let sample = SampleSession::of(&asked_for(&user), user.sessions_max, user.seed)
        .ok_or_else(|| io::Error::other("the rules are of another shape"))?;
    let mut upf = UpfU::new(&user).map_err(|e| io::Error::other(e.to_string()))?;
    (0..sessions).for_each(|n| upf.apply(START, session(&sample, n).1));
    Ok(upf)
}

fn session(sample: &SampleSession, n: u32) -> (Teid, UserPlaneChange) {
    let id = SessionId { index: n, generation: n.wrapping_mul(0x9e37_79b9) };
    sample.session(id, Ipv4Addr::from_bits(FIRST.to_bits() + n), Teid(0x8000_0000 | n))
}

/// What UPF-C makes of an SMF's requests for one session, with rates that stop nothing.
fn asked_for(user: &User) -> UserPlaneChange {
    let mut c = UpfC::new(user.clone(), START).expect("a configuration");
    let mut out = Outbox::default();
    let mut ask = |seid: Option<Seid>, message: Message, sequence: u32| {
        let octets = message.to_octets(seid, sequence);
        c.handle(START, Input::Pfcp { peer: SMF, octets: &octets }, &mut out);
        let (_, answer) = out.datagrams.pop().expect("an answer");
        (Message::parse(&Frame::parse(&answer).expect("a frame")).expect("a message"), out.changes.pop())
    };
    ask(None, association(1).into(), 1);
    let mut session = smf_establishment(1, true, false);
    for qer in session.create_qers.iter_mut().filter(|qer| qer.mbr.is_some()) {
        qer.mbr = Some(QerBitRate { ul_kbps: 1_000_000_000, dl_kbps: 1_000_000_000 });
    }
    let (Message::SessionEstablishmentResponse(answer), _) = ask(Some(Seid(0)), session.into(), 2) else {
        panic!("another answer")
    };
    let seid = answer.up_f_seid.map(|f| f.seid);
    let (_, change) = ask(seid, activation(Teid(1), GNB.ip()).into(), 3);
    change.expect("rules")
}

/// Packets of UEs by chance, both ways.
fn draw(sample: &SampleSession, sessions: u32) -> Box<dyn FnMut(&mut Packet) -> Origin + Send> {
    const GTPU: usize = 16;
    let inner = udp4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, (1, 2), OCTETS - 28);
    let up = g_pdu(Teid(0), 1, &inner);
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let count = DRAWN.min(4 * sessions as usize);
    let drawn = (0..count).map(|_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let n = (random >> 16) as u32 % sessions;
        (session(sample, n).0, Ipv4Addr::from_bits(FIRST.to_bits() + n), random & 1 == 0)
    });
    let drawn: Vec<_> = drawn.collect();
    let mut next = 0;
    Box::new(move |packet| {
        let (teid, ue, uplink) = drawn[next];
        next = (next + 1) % drawn.len();
        packet.fill(if uplink { &up } else { &inner });
        let room = packet.room();
        if uplink {
            room[4..8].copy_from_slice(&teid.0.to_be_bytes());
            room[GTPU + 12..GTPU + 16].copy_from_slice(&ue.octets());
            room[GTPU + 16..GTPU + 20].copy_from_slice(&SERVER.octets());
            from_gnb()
        } else {
            room[12..16].copy_from_slice(&SERVER.octets());
            room[16..20].copy_from_slice(&ue.octets());
            Origin::N6 { dn: DnIndex(0) }
        }
    })
}
