//! One hunt: the program, the canaries, the attackers, and the checks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_ran::fleet::{self, ProvisionedUe};

use crate::brokers::Brokers;
use crate::canary::{self, Health};
use crate::console::Console;
use crate::http::Clients;
use crate::managers::Managers;
use crate::op::{Done, Op, Part};
use crate::packets::Packets;
use crate::program::{self, Form, Program, Usage};
use crate::radio::{GNBS, Radio, UES};
use crate::rng::Rng;
use crate::smf::Smfs;

/// UEs of the canaries: with four a second, none is still at it when its turn comes again.
const CANARIES: u32 = 64;
/// Between two looks at the program.
const LOOK: Duration = Duration::from_millis(250);
/// After this long the memory counts as warm.
const WARM: Duration = Duration::from_secs(15);
/// Memory that the program may use above its warm level: sessions, UEs and unknown UEs of the fuzzer are bounded by the
/// time for which they are remembered, and stay far under this.
const GROWTH_KIB_MAX: u64 = 256 << 10;
const DESCRIPTORS_MAX: u64 = 400;
const THREADS_MAX: u64 = 32;
/// The manager of a unit has a thread for each connection.
const MANAGER_THREADS_MAX: u64 = 256;
/// Canaries take two seconds for a round; none for so long is a finding.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// The longest pause towards what has no timers of UEs: pauses are one thing in forty, and would take most of the time.
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// Done things that are remembered of each part: an hour's.
const DONE_MAX: usize = 2_000_000;

/// What to do.
pub(crate) struct Plan {
    pub(crate) program: PathBuf,
    pub(crate) seed: u64,
    /// Things to do again, in order; or parts to draw things for.
    pub(crate) work: Work,
}

/// What is done.
pub(crate) enum Work {
    /// For this time, or until each part has done so many things.
    Draw {
        parts: Vec<Part>,
        time: Duration,
        inputs: Option<u64>,
    },
    Again {
        ops: Vec<Done>,
        settle: Duration,
    },
}

impl Work {
    /// How the program runs for it: the manager's socket is there in a unit alone.
    fn form(&self) -> Form {
        let is_of_unit = match self {
            Self::Draw { parts, .. } => parts.contains(&Part::Unit),
            Self::Again { ops, .. } => ops.iter().any(|done| done.part == Part::Unit),
        };
        if is_of_unit { Form::Unit } else { Form::Process }
    }
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) finding: Option<String>,
    pub(crate) ops: Vec<Done>,
    pub(crate) figures: Value,
}

/// The attackers of one part.
enum Hand {
    N2(Box<Radio>, Box<Packets>),
    N3(Box<Radio>),
    N4(Box<Smfs>),
    Api(Clients),
    Console(Box<Console>),
    Unit(Box<Managers>),
    Broker(Box<Brokers>),
}

impl Hand {
    fn open(part: Part, crowd: &Crowd) -> Result<Self, String> {
        let half = crowd.bad.len() / 2;
        Ok(match part {
            Part::N2 => {
                let radio = Radio::open(0, crowd.bad.get(..half).unwrap_or_default(), &crowd.canaries)?;
                Self::N2(Box::new(radio), Box::new(Packets::open()?))
            }
            Part::N3 => Self::N3(Box::new(Radio::open(
                1,
                crowd.bad.get(half..).unwrap_or_default(),
                &crowd.canaries,
            )?)),
            Part::N4 => Self::N4(Box::new(Smfs::open()?)),
            Part::Api => Self::Api(Clients::default()),
            Part::Console => Self::Console(Box::new(Console::open()?)),
            Part::Unit => Self::Unit(Box::new(Managers::open()?)),
            Part::Broker => Self::Broker(Box::new(Brokers::open()?)),
        })
    }

    fn perform(&mut self, op: &Op) -> Result<(), String> {
        match (self, op) {
            (
                Self::N4(_) | Self::Api(_) | Self::Console(_) | Self::Unit(_) | Self::Broker(_),
                Op::Pause { ms },
            ) => {
                std::thread::sleep(Duration::from_millis(u64::from(*ms)).min(PAUSE_MAX));
            }
            (Self::N2(_, packets), Op::Sctp { seed }) => packets.perform(*seed),
            (Self::N2(radio, _) | Self::N3(radio), op) => radio.perform(op),
            (Self::N4(smfs), Op::Pfcp { seed }) => {
                smfs.perform(*seed);
                return smfs.canary();
            }
            (Self::Api(clients), Op::Http { seed }) => return clients.perform(*seed),
            (Self::Console(users), Op::Console { seed }) => {
                users.perform(*seed)?;
                return users.canary();
            }
            (Self::Unit(managers), Op::Unit { seed }) => {
                managers.perform(*seed)?;
                return managers.canary();
            }
            (Self::Broker(brokers), Op::Broker { seed }) => {
                brokers.perform(*seed)?;
                return brokers.canary();
            }
            _ => {}
        }
        Ok(())
    }

    fn leave(&mut self) {
        match self {
            Self::N2(radio, _) | Self::N3(radio) => radio.leave(),
            Self::N4(smfs) => smfs.leave(),
            Self::Api(clients) => clients.leave(),
            Self::Console(users) => users.leave(),
            Self::Unit(managers) => managers.leave(),
            Self::Broker(brokers) => brokers.leave(),
        }
    }

    fn figures(&self) -> Value {
        match self {
            Self::N2(radio, packets) => {
                json!({"messages": radio.messages, "packets": packets.packets, "pairs": radio.pairs.len()})
            }
            Self::N3(radio) => json!({"messages": radio.messages}),
            Self::N4(smfs) => json!({"messages": smfs.messages}),
            Self::Api(clients) => json!({"requests": clients.requests}),
            Self::Console(users) => json!({"requests": users.requests}),
            Self::Unit(managers) => json!({"lines": managers.lines}),
            Self::Broker(brokers) => json!({"requests": brokers.requests}),
        }
    }
}

/// Subscribers of the run.
pub(crate) struct Crowd {
    pub(crate) canaries: Vec<ProvisionedUe>,
    pub(crate) bad: Vec<ProvisionedUe>,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Self::from("999700000000001", "999701000000001")
    }

    /// Canaries and others from these IMSIs on.
    pub(crate) fn from(canary: &str, bad: &str) -> Self {
        let first = |imsi: &str| imsi.parse().expect("fifteen digits are a SUPI");
        Self {
            canaries: fleet::subscriptions(&[1; 32], first(canary), CANARIES),
            bad: fleet::subscriptions(&[2; 32], first(bad), u32::from(UES) * 2),
        }
    }
}

/// What went wrong first.
#[derive(Default)]
struct Findings(Mutex<Option<String>>);

impl Findings {
    fn add(&self, what: String) {
        if let Ok(mut first) = self.0.lock() {
            first.get_or_insert(what);
        }
    }

    fn first(&self) -> Option<String> {
        self.0.lock().ok()?.clone()
    }
}

/// Hunts. Errors: it could not begin.
pub(crate) fn hunt(plan: &Plan) -> Result<Outcome, String> {
    let crowd = Crowd::new();
    let all: Vec<ProvisionedUe> = crowd.canaries.iter().chain(&crowd.bad).cloned().collect();
    let form = plan.work.form();
    let mut program = Program::start(&plan.program, &all, form)?;
    let (stop, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let health = Arc::new(Health::default());
    let keeper = {
        let (ues, health, over) = (crowd.canaries.clone(), health.clone(), over.clone());
        let seconds = match &plan.work {
            Work::Draw { time, .. } => time.as_secs_f64() + 600.0,
            Work::Again { .. } => 3600.0,
        };
        std::thread::spawn(move || canary::keep(&ues, seconds, health, over))
    };
    let findings = Findings::default();
    let count = AtomicU64::new(0);
    let mut watch = Watch::new(form);
    let begin = Instant::now();
    let mut ops: Vec<(u64, Done)> = Vec::new();
    let mut figures = BTreeMap::new();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        match &plan.work {
            Work::Draw { parts, inputs, .. } => {
                for part in parts.iter().copied() {
                    let (crowd, stop, findings, count) = (&crowd, &stop, &findings, &count);
                    threads.push(
                        scope.spawn(move || draw((part, plan.seed, *inputs), crowd, stop, findings, count)),
                    );
                }
            }
            Work::Again { ops, .. } => {
                let (crowd, stop, findings) = (&crowd, &stop, &findings);
                threads.push(scope.spawn(move || again(ops, crowd, stop, findings)));
            }
        }
        let (mut ended, settle) = match &plan.work {
            Work::Draw { time, .. } => (Some(begin + *time), Duration::from_secs(2)),
            Work::Again { settle, .. } => (None, *settle),
        };
        while findings.first().is_none() {
            std::thread::sleep(LOOK);
            watch.look(&mut program, &health, &findings);
            let now = Instant::now();
            if ended.is_none_or(|at| at > now + settle) && threads.iter().all(|t| t.is_finished()) {
                ended = Some(now + settle);
            }
            if ended.is_some_and(|at| Instant::now() >= at) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            if let Ok((part, done, of_part)) = thread.join() {
                ops.extend(done);
                figures.insert(part, of_part);
            }
        }
    });
    over.store(true, Ordering::Relaxed);
    let _ = keeper.join();
    watch.look(&mut program, &health, &findings);
    let drawn = matches!(plan.work, Work::Draw { .. });
    if drawn && findings.first().is_none() {
        watch.afterwards(&mut program, &findings);
    }
    let finding = findings.first();
    if drawn
        && finding.is_some()
        && program.keep_log(&PathBuf::from(format!("live-{}.log", plan.seed))).is_none()
    {
        eprintln!("its log could not be kept");
    }
    let mut report = watch.figures();
    report["canaries"] = json!(health.completed.load(Ordering::Relaxed));
    report["seconds"] = json!(begin.elapsed().as_secs());
    report["parts"] = json!(figures);
    if let (None, Err(e)) = (&finding, program.stop()) {
        findings.add(e);
    }
    ops.sort_by_key(|(at, _)| *at);
    Ok(Outcome {
        finding: findings.first(),
        ops: ops.into_iter().map(|(_, done)| done).collect(),
        figures: report,
    })
}

type DrawReport = (String, Vec<(u64, Done)>, Value);

/// Draws operations for one part and performs them until `stop` is set, or so many are done.
fn draw(
    (part, seed, inputs): (Part, u64, Option<u64>),
    crowd: &Crowd,
    stop: &AtomicBool,
    findings: &Findings,
    count: &AtomicU64,
) -> DrawReport {
    let mut rng = Rng::new(seed ^ (part as u64 + 1) << 56);
    let mut done = Vec::new();
    let mut hand = match Hand::open(part, crowd) {
        Ok(hand) => hand,
        Err(e) => {
            findings.add(format!("the fuzzer could not begin: {e}"));
            return (part.name().into(), done, Value::Null);
        }
    };
    let mut performed = 0;
    while !stop.load(Ordering::Relaxed) && inputs.is_none_or(|max| performed < max) {
        performed += 1;
        let op = part.draw(&mut rng, UES, GNBS);
        if done.len() < DONE_MAX {
            done.push((count.fetch_add(1, Ordering::Relaxed), Done { part, op: op.clone() }));
        }
        if let Err(e) = hand.perform(&op) {
            findings.add(e);
            break;
        }
    }
    hand.leave();
    let mut figures = hand.figures();
    figures["ops"] = json!(performed);
    (part.name().into(), done, figures)
}

/// Does things again, in order.
fn again(ops: &[Done], crowd: &Crowd, stop: &AtomicBool, findings: &Findings) -> DrawReport {
    let mut hands: BTreeMap<Part, Hand> = BTreeMap::new();
    for Done { part, op } in ops {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let hand = match hands.remove(part) {
            Some(hand) => Ok(hand),
            None => Hand::open(*part, crowd),
        };
        match hand {
            Ok(mut hand) => {
                if let Err(e) = hand.perform(op) {
                    findings.add(e);
                }
                hands.insert(*part, hand);
            }
            Err(e) => findings.add(format!("the fuzzer could not begin: {e}")),
        }
    }
    ("again".into(), Vec::new(), json!({ "ops": ops.len() }))
}

/// The watch over the program.
struct Watch {
    threads_max: u64,
    begin: Instant,
    warm: Option<Usage>,
    most: Usage,
    last: Usage,
    canaries: (u64, Instant),
    answered: Instant,
    left: Value,
    refused: Value,
}

impl Watch {
    fn new(form: Form) -> Self {
        let now = Instant::now();
        Self {
            threads_max: THREADS_MAX + if form == Form::Unit { MANAGER_THREADS_MAX } else { 0 },
            begin: now,
            warm: None,
            most: Usage::default(),
            last: Usage::default(),
            canaries: (0, now),
            answered: now,
            left: Value::Null,
            refused: Value::Null,
        }
    }

    fn look(&mut self, program: &mut Program, health: &Health, findings: &Findings) {
        // What the program itself says of a fault comes before what canaries suffer of it.
        if let Some(line) = program.logged_fault() {
            findings.add(format!("the log says: {line}"));
        }
        if let Some(status) = program.ended() {
            return findings.add(format!("the core ended ({status}): {}", program.log_tail()));
        }
        if let Some(failure) = health.failure() {
            findings.add(failure);
        }
        let now = Instant::now();
        let completed = health.completed.load(Ordering::Relaxed);
        if completed != self.canaries.0 {
            self.canaries = (completed, now);
        } else if now - self.canaries.1 > SILENCE_MAX {
            findings.add(format!("no canary has ended its round for {SILENCE_MAX:?}"));
        }
        self.take(program.usage());
        let warm = self.warm.map_or(u64::MAX, |w| w.resident_kib + GROWTH_KIB_MAX);
        if self.last.resident_kib > warm {
            findings.add(format!("the program takes {} KiB, {warm} was the bound", self.last.resident_kib));
        }
        if self.last.descriptors > DESCRIPTORS_MAX || self.last.threads > self.threads_max {
            findings.add(format!("descriptors {}, threads {}", self.last.descriptors, self.last.threads));
        }
        if now - self.answered > Duration::from_secs(2) {
            self.answered = now;
            match program::metrics() {
                Some(all) => self.refused = counted(&all),
                None => findings.add("the API does not give its metrics within 8 s".into()),
            }
        }
    }

    fn take(&mut self, usage: Usage) {
        self.last = usage;
        if self.begin.elapsed() > WARM && self.warm.is_none() {
            self.warm = Some(usage);
        }
        self.most.resident_kib = self.most.resident_kib.max(usage.resident_kib);
        self.most.descriptors = self.most.descriptors.max(usage.descriptors);
        self.most.threads = self.most.threads.max(usage.threads);
    }

    /// When everybody has left, nothing may stay: UEs are forgotten after T3512 and the time after it, here 70 s.
    fn afterwards(&mut self, program: &mut Program, findings: &Findings) {
        const FORGOTTEN_WITHIN: Duration = Duration::from_secs(100);
        let begin = Instant::now();
        loop {
            let all = program::metrics().unwrap_or_default();
            let left = |name: &str| all.get(name).copied().unwrap_or(u64::MAX);
            let (ues, sessions, gnbs) =
                (left("whimbrel_ues"), left("whimbrel_pdu_sessions"), left("whimbrel_gnbs"));
            self.left = json!({"ues": ues, "sessions": sessions, "gnbs": gnbs});
            if ues + sessions + gnbs == 0 {
                break;
            }
            if begin.elapsed() > FORGOTTEN_WITHIN {
                findings.add(format!("left over when everybody has gone: {}", self.left));
                break;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        self.take(program.usage());
        if let Some(line) = program.logged_fault() {
            findings.add(format!("the log says: {line}"));
        }
    }

    fn figures(&self) -> Value {
        let warm = self.warm.unwrap_or_default();
        json!({
            "resident_kib": {"warm": warm.resident_kib, "most": self.most.resident_kib, "end": self.last.resident_kib},
            "descriptors": {"warm": warm.descriptors, "most": self.most.descriptors, "end": self.last.descriptors},
            "threads": self.most.threads,
            "left": self.left,
            "counted": self.refused,
        })
    }
}

/// Counters of refused and dropped messages.
fn counted(all: &BTreeMap<String, u64>) -> Value {
    let relevant = |name: &&String| {
        ["dropped", "refused", "n2_messages_received", "n4"].iter().any(|w| name.contains(w))
    };
    all.iter()
        .filter(|(name, n)| relevant(name) && **n > 0)
        .map(|(name, n)| (name.clone(), json!(n)))
        .collect()
}
