//! Plays a scenario on the emulated RAN: starts UEs, runs their steps, measures times.
//!
//! The load is open: UEs arrive by the clock, whether earlier ones have ended or not, and the time of a step is
//! measured from when it was due, so that delays of a slow core are not hidden by late arrivals.

use core::cmp::Reverse;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use whimbrel_ids::{FiveQi, Instant, PduSessionId, Qfi};
use whimbrel_nas::ie::{
    FilterComponent, FilterDirection, FlowOperation, FlowParameter, PacketFilter, PduSessionType,
    QosFlowBinding, QosFlowDescription, QosRule, RuleOperation,
};
use whimbrel_ngap::{Cause, CauseRadioNetwork};

use crate::cells::{Cells, GnbId, Input, Output};
use crate::gnb;
use crate::outbox::Outbox;
use crate::radio::UeId;
use crate::report::{ScenarioReport, StepFailure};
use crate::scenario::{
    ArrivalPattern, HandoverKind, HandoverStep, ModifyStep, Scenario, ScenarioError, ScenarioPart,
    SessionStep, SessionType, Step, StreamStep, Url,
};
use crate::trace::TraceEvent;
use crate::ue::{self, MeasuredProcedure, QosRequest, SessionRequest, UeCommand};
use crate::user_plane::{StreamConfig, Task, TaskError, TaskOutcome};

/// How often a burst that is held is looked at.
const HELD_BURST: Duration = Duration::from_millis(1);

/// UEs that are in the preparation at once: they keep a core busy, and one that is slower than the preparation's rate still answers each of them
/// within its patience.
const PREPARING_MAX: u64 = 256;

/// What a UE waits for in its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlayerPhase {
    /// The step itself.
    Main,
    /// The name in the step is being resolved.
    Resolving,
    /// The session is set up; its IPv6 prefix is awaited.
    Router,
    /// The handover is done; its gap is measured in the following packets.
    Settling,
    /// The step failed; the UE goes on after a pause.
    Pausing,
}

/// Precedence of rules that UEs request (TS 24.501 §9.11.4.13: 70 to 99).
const ASKED_PRECEDENCE: u8 = 71;
/// How long after a handover its gap is measured: longer than packets may be queued at the target.
const SETTLING: Duration = Duration::from_millis(700);

/// How long a UE that goes on pauses after a step that failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The progress of a UE.
#[derive(Clone, Debug)]
struct Play {
    /// Its present step; `None` if it is not active.
    step: Option<(ScenarioPart, usize)>,
    /// When it started.
    begun: Instant,
    /// Number of its streams.
    streams: u32,
    phase: PlayerPhase,
    /// When the step was due.
    due: Instant,
    /// When its first message was sent, if the UE reported it.
    sent: Instant,
    /// Distinguishes deadlines of this step from those of others.
    serial: u32,
    /// When the handover of the current step was done.
    handed_over: Instant,
    /// SERVICE ACCEPT was received in the current step.
    accepted: bool,
    session: Option<PduSessionId>,
    resolved: Option<(String, IpAddr)>,
}

/// When UEs of a section arrive.
#[derive(Clone, Copy, Debug)]
enum SectionArrivals {
    AtOnce,
    /// At a rate per second.
    Rate(f64),
    /// In bursts: number, duration and interval, in seconds.
    Bursts {
        ues: u64,
        within: f64,
        every: f64,
    },
    /// From a trace.
    Trace,
}

/// The arrivals of one rate.
#[derive(Clone, Copy, Debug)]
struct Section {
    part: ScenarioPart,
    coming: SectionArrivals,
    count: u64,
}

impl Section {
    /// UEs a second, if they arrive at a rate.
    fn rate(&self) -> Option<f64> {
        match self.coming {
            SectionArrivals::Rate(rate) => Some(rate),
            _ => None,
        }
    }
}

/// Plays a scenario.
pub struct Player {
    scenario: Scenario,
    cells: Cells,
    plays: Vec<Play>,
    free: VecDeque<UeId>,
    deadlines: BinaryHeap<Reverse<(Instant, UeId, u32)>>,
    sections: VecDeque<Section>,
    section: Option<(Section, Instant)>,
    /// Events of a trace whose UEs are still busy, and when they were due.
    late: BTreeMap<UeId, VecDeque<(Instant, usize)>>,
    /// UEs of the section that have arrived.
    arrived: u64,
    /// Number of active UEs.
    playing: u64,
    reports: Vec<ScenarioReport>,
    inner: Outbox<Output>,
    spare: Outbox<Output>,
    started: bool,
    sections_begun: usize,
    /// UEs that are prepared do not arrive yet.
    held: bool,
    /// UEs whose connection the core ends attach again.
    attach_again: bool,
    /// UEs go on after a step that failed.
    persistent: bool,
    /// The UEs that do, and whether they are registered already.
    attaching: BTreeMap<UeId, bool>,
    /// Groups repeat nothing any more.
    repetitions_over: bool,
}

impl Player {
    /// A scenario for existing UEs.
    ///
    /// Errors: the scenario cannot be played.
    pub fn new(scenario: Scenario, cells: Cells) -> Result<Self, ScenarioError> {
        scenario.check()?;
        let ues = cells.ues() as u32;
        let all = u64::from(ues);
        let begin = |coming, count| Section { part: ScenarioPart::Begin, coming, count };
        let at_rate = |rate: f64, count: f64| begin(SectionArrivals::Rate(rate), count as u64);
        let mut sections = match &scenario.arrival {
            ArrivalPattern::AtOnce => vec![begin(SectionArrivals::AtOnce, all)],
            ArrivalPattern::Rate(rate) => vec![at_rate(*rate, f64::from(ues))],
            ArrivalPattern::Rates { rates, seconds } => {
                rates.iter().map(|r| at_rate(*r, (r * seconds).ceil())).collect()
            }
            ArrivalPattern::Bursts { ues, within_ms, every_s, times } => {
                let ues = u64::from(*ues);
                let bursts = SectionArrivals::Bursts { ues, within: within_ms / 1e3, every: *every_s };
                vec![begin(bursts, ues * u64::from(*times))]
            }
            ArrivalPattern::Trace(events) => {
                vec![Section {
                    part: ScenarioPart::Trace,
                    coming: SectionArrivals::Trace,
                    count: events.len() as u64,
                }]
            }
        };
        if !scenario.before.is_empty() {
            let coming = SectionArrivals::Rate(scenario.before_rate);
            sections.insert(0, Section { part: ScenarioPart::Before, coming, count: all });
        }
        let play = Play {
            step: None,
            begun: Instant::ZERO,
            streams: 0,
            phase: PlayerPhase::Main,
            due: Instant::ZERO,
            sent: Instant::ZERO,
            serial: 0,
            handed_over: Instant::ZERO,
            accepted: false,
            session: None,
            resolved: None,
        };
        Ok(Self {
            scenario,
            cells,
            plays: vec![play; ues as usize],
            free: (0..ues).map(UeId).collect(),
            deadlines: BinaryHeap::new(),
            sections: sections.into(),
            section: None,
            late: BTreeMap::new(),
            arrived: 0,
            playing: 0,
            reports: Vec::new(),
            inner: Outbox::new(),
            spare: Outbox::new(),
            started: false,
            sections_begun: 0,
            held: false,
            attach_again: false,
            persistent: false,
            repetitions_over: false,
            attaching: BTreeMap::new(),
        })
    }

    /// Has a UE whose connection the core ends without being asked register and set up a session again, as at a core that has lost its
    /// state (Neutrino §4.2.1). A step that it was in is done then.
    pub fn attach_again(&mut self, again: bool) {
        self.attach_again = again;
    }

    /// Has UEs go on after a step that failed, as a device does whose network is in trouble: with the next one, from the beginning if the UE has
    /// no session any more. Failures are reported, and end no UE.
    pub fn persist(&mut self, persistent: bool) {
        self.persistent = persistent;
    }

    /// Has groups end their repetitions: each UE finishes the round that it is in, and does what comes last.
    pub fn end_repetitions(&mut self) {
        self.repetitions_over = true;
    }

    /// How many UEs are attaching again.
    pub fn attaching(&self) -> usize {
        self.attaching.len()
    }

    /// The UEs that are in a step of this name.
    pub fn in_step(&self, name: &str) -> Vec<UeId> {
        let ues = (0..self.plays.len() as u32).map(UeId);
        ues.filter(|ue| self.step_of(*ue).is_some_and(|step| step.name() == name)).collect()
    }

    /// Has the first arrival wait after the preparation, and each burst, or wait no longer. The next [`Input::Tick`] follows it.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// The emulated RAN.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// The same, mutable.
    pub fn cells_mut(&mut self) -> &mut Cells {
        &mut self.cells
    }

    /// Starts the scenario.
    pub fn start(&mut self, now: Instant, out: &mut Outbox<Output>) {
        self.started = true;
        let early = self.reports.pop();
        self.next_section(now);
        for what in early.into_iter().flat_map(|r| r.violations) {
            self.report().violate(what);
        }
        self.work(now, out);
    }

    /// Whether it was started and every UE has ended.
    pub fn is_done(&self) -> bool {
        self.started && self.section.is_none() && self.sections.is_empty()
    }

    /// Numbers of UEs that have completed, failed, and are active.
    pub fn progress(&self) -> (u64, u64, u64) {
        let sum = |f: fn(&ScenarioReport) -> u64| self.reports.iter().map(f).sum();
        (sum(|r| r.completed), sum(|r| r.failed), self.playing)
    }

    /// Number of sections that have begun: preparation, each rate, and the end.
    pub fn sections_begun(&self) -> usize {
        self.sections_begun
    }

    /// The reports so far, one of each rate.
    pub fn reports(&self) -> &[ScenarioReport] {
        &self.reports
    }

    /// Handles one input. The RAN's outputs go to `out`, with its events for the observer.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox<Output>) {
        let tick = matches!(input, Input::Tick);
        self.cells.handle(now, input, &mut self.inner);
        self.pump(now, out);
        if tick {
            self.work(now, out);
        }
    }

    /// When it needs an [`Input::Tick`]; it may be earlier than necessary.
    pub fn next_deadline(&self) -> Option<Instant> {
        let own = self.deadlines.peek().map(|Reverse((at, ..))| *at);
        own.into_iter().chain(self.next_arrival()).chain(self.cells.next_deadline()).min()
    }

    fn next_arrival(&self) -> Option<Instant> {
        let (section, start) = self.section.as_ref().filter(|(s, _)| self.arrived < s.count)?;
        if section.part == ScenarioPart::Before && self.playing >= PREPARING_MAX {
            return None; // the next one arrives when one of these is done
        }
        let after = match section.coming {
            SectionArrivals::AtOnce => 0.0,
            SectionArrivals::Rate(rate) => self.arrived as f64 / rate,
            SectionArrivals::Bursts { ues, within, every } => {
                let (burst, of) = (self.arrived / ues, self.arrived % ues);
                burst as f64 * every + within * of as f64 / ues as f64
            }
            SectionArrivals::Trace => return Some(*start + self.traced(self.arrived)?.at),
        };
        Some(*start + Duration::from_micros((after * 1e6) as u64))
    }

    fn traced(&self, event: u64) -> Option<&TraceEvent> {
        match &self.scenario.arrival {
            ArrivalPattern::Trace(events) => events.get(event as usize),
            _ => None,
        }
    }

    fn next_section(&mut self, now: Instant) {
        let before = self.section.is_some_and(|(s, _)| s.part == ScenarioPart::Before);
        if before && self.reports.last().is_some_and(ScenarioReport::is_clean) {
            self.reports.pop();
        }
        self.section = self.sections.pop_front().map(|s| (s, now));
        self.arrived = 0;
        self.sections_begun += 1;
        if let Some((section, _)) = &self.section {
            self.reports.push(ScenarioReport { rate: section.rate(), ..ScenarioReport::default() });
        }
    }

    /// Starts UEs that are due, and ends steps that have timed out.
    fn work(&mut self, now: Instant, out: &mut Outbox<Output>) {
        while let Some(due) = self.next_arrival().filter(|at| *at <= now) {
            if self.holds_burst(now, due) {
                break;
            }
            self.arrived += 1;
            self.report().arrived += 1;
            let of_trace = self.section.is_some_and(|(s, _)| s.part == ScenarioPart::Trace);
            if let Some(ue) = self.traced(self.arrived - 1).filter(|_| of_trace).map(|e| UeId(e.ue)) {
                let event = self.arrived as usize - 1;
                match self.plays.get(ue.index()).is_some_and(|p| p.step.is_some()) {
                    true => self.late.entry(ue).or_default().push_back((due, event)),
                    false => self.begin(now, ue, ScenarioPart::Trace, event, due),
                }
                continue;
            }
            let part = self.section.map_or(ScenarioPart::Begin, |(s, _)| s.part);
            let free = self.free.iter().position(|ue| !self.attaching.contains_key(ue));
            match free.and_then(|at| self.free.remove(at)) {
                Some(ue) => self.begin(now, ue, part, 0, due),
                None => {
                    let report = self.report();
                    report.arrived -= 1;
                    report.starved += 1;
                }
            }
        }
        while let Some(Reverse((at, ue, serial))) = self.deadlines.peek().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop();
            if self.plays.get(ue.index()).is_some_and(|p| p.serial == serial && p.step.is_some()) {
                self.time_is_up(now, ue);
            }
        }
        self.pump(now, out);
        self.end_section(now, out);
    }

    /// Whether a burst that is due waits, since UEs are held. Later ones keep their distance from it.
    fn holds_burst(&mut self, now: Instant, due: Instant) -> bool {
        let Some((section, start)) = &mut self.section else { return false };
        let begins =
            matches!(section.coming, SectionArrivals::Bursts { ues, .. } if self.arrived.is_multiple_of(ues));
        if self.held && begins {
            *start = *start + now.since(due) + HELD_BURST;
        }
        self.held && begins
    }

    /// A UE arrives.
    fn begin(&mut self, now: Instant, ue: UeId, part: ScenarioPart, index: usize, due: Instant) {
        self.playing += 1;
        self.report().lag.add(now.since(due));
        if let Some(play) = self.plays.get_mut(ue.index()) {
            play.begun = now;
        }
        self.begin_step(now, ue, part, index, due);
    }

    fn end_section(&mut self, now: Instant, out: &mut Outbox<Output>) {
        let Some((section, start)) = self.section else { return };
        if self.arrived < section.count
            || self.playing > 0
            || (self.held && section.part == ScenarioPart::Before)
        {
            return;
        }
        self.report().elapsed = now.since(start);
        self.next_section(now);
        if self.section.is_some() {
            self.work(now, out);
        }
    }

    /// Evaluates the RAN's outputs and passes them on, until none follows.
    fn pump(&mut self, now: Instant, out: &mut Outbox<Output>) {
        while !self.inner.is_empty() {
            // Two alternating buffers, to avoid allocations.
            let mut batch = core::mem::take(&mut self.spare);
            core::mem::swap(&mut batch, &mut self.inner);
            for output in batch.drain() {
                match &output {
                    Output::Ue(ue, event) => self.on_ue(now, *ue, event),
                    Output::Task(ue, outcome) => self.on_task(now, *ue, outcome),
                    Output::Gnb(_, gnb::Event::Violation { ue, violation }) => {
                        let subject = ue.map_or_else(|| "a gNB".to_owned(), |p| p.to_string());
                        self.report().violate(format!("{subject}: {violation}"));
                    }
                    Output::Gnb(_, event) => self.on_gnb(now, event),
                    Output::StreamFlows(ue) => self.on_stream(now, *ue, false),
                    Output::StreamEnded(ue) => self.on_stream(now, *ue, true),
                    Output::Ngap { .. }
                    | Output::FurtherNgap { .. }
                    | Output::AmfNgap { .. }
                    | Output::Associate(..)
                    | Output::Dissociate(..)
                    | Output::Gtpu { .. }
                    | Output::Packet(..) => {}
                }
                out.push(output);
            }
            self.spare = batch;
        }
        if self.playing == 0 && self.section.is_some_and(|(s, _)| self.arrived >= s.count) {
            self.end_section(now, out);
        }
    }

    fn report(&mut self) -> &mut ScenarioReport {
        if self.reports.is_empty() {
            // Before the first arrival: outputs of NG setup.
            self.reports.push(ScenarioReport::default());
        }
        let last = self.reports.len() - 1;
        &mut self.reports[last]
    }

    fn step_of(&self, ue: UeId) -> Option<Step> {
        match self.plays.get(ue.index())?.step? {
            (ScenarioPart::Trace, index) => self.traced(index as u64).map(|e| e.step.clone()),
            (part, index) => self.scenario.part(ue.0, part).get(index).cloned(),
        }
    }

    /// The step with this number; after the last one the repeated part while there is time, then the end.
    fn next_step(
        &self,
        now: Instant,
        ue: UeId,
        part: ScenarioPart,
        index: usize,
    ) -> Option<(ScenarioPart, usize, Step)> {
        if part == ScenarioPart::Trace {
            let fresh = self.plays.get(ue.index())?.step.is_none();
            return self.traced(index as u64).filter(|_| fresh).map(|e| (part, index, e.step.clone()));
        }
        let begun = self.plays.get(ue.index())?.begun;
        let time_left =
            !self.repetitions_over && now.since(begun) < Duration::from_secs_f64(self.scenario.seconds);
        let first = |part| self.scenario.part(ue.0, part).first().map(|s| (part, 0, s.clone()));
        if let Some(step) = self.scenario.part(ue.0, part).get(index) {
            return Some((part, index, step.clone()));
        }
        match part {
            ScenarioPart::Begin | ScenarioPart::Repeat if time_left => {
                first(ScenarioPart::Repeat).or_else(|| first(ScenarioPart::End))
            }
            ScenarioPart::Begin | ScenarioPart::Repeat => first(ScenarioPart::End),
            ScenarioPart::Before | ScenarioPart::Trace | ScenarioPart::End => None,
        }
    }

    fn begin_step(&mut self, now: Instant, ue: UeId, part: ScenarioPart, index: usize, due: Instant) {
        let lacks_session = || self.cells.ue(ue).is_none_or(|ue| ue.sessions().next().is_none());
        let (part, index) = match part {
            ScenarioPart::Repeat if self.persistent && lacks_session() => (ScenarioPart::Begin, 0),
            part => (part, index),
        };
        let Some((part, index, step)) = self.next_step(now, ue, part, index) else {
            return self.completed(now, ue);
        };
        let patience = match step {
            Step::Wait(seconds) => Duration::from_secs_f64(seconds),
            _ => self.scenario.patience(),
        };
        let Some(play) = self.plays.get_mut(ue.index()) else { return };
        play.step = Some((part, index));
        play.phase = PlayerPhase::Main;
        play.due = due;
        play.sent = now;
        play.serial = play.serial.wrapping_add(1);
        play.accepted = false;
        self.deadlines.push(Reverse((now + patience, ue, play.serial)));
        self.report().step(step.name()).begun += 1;
        self.act(now, ue, &step);
    }

    /// Starts the UE's step.
    fn act(&mut self, now: Instant, ue: UeId, step: &Step) {
        match step {
            Step::Register => self.command(now, ue, UeCommand::Register),
            Step::Session(s) => self.command(now, ue, UeCommand::EstablishSession(request(s))),
            Step::Modify(m) => self.modify(now, ue, &asked_flow(*m)),
            Step::EndFlow => {
                let info = self.cells.ue(ue).and_then(|p| p.sessions().last());
                let rule = info.and_then(|i| i.rules.iter().filter(|r| !r.default).map(|r| r.id).max());
                match rule {
                    Some(id) => {
                        let delete =
                            QosRule { id, operation: RuleOperation::Delete, default: false, binding: None };
                        self.modify(now, ue, &QosRequest { rules: vec![delete], flows: Vec::new() });
                    }
                    None => self.fail(now, ue, "there is no flow to give up".into()),
                }
            }
            Step::ReleaseSession => match self.plays.get(ue.index()).and_then(|p| p.session) {
                Some(id) => self.command(now, ue, UeCommand::ReleaseSession(id)),
                None => self.fail(now, ue, "there is no session to release".into()),
            },
            Step::Resolve(name) => self.resolve(now, ue, name, PlayerPhase::Main),
            Step::Fetch(url) => match Url::parse(url) {
                Ok(url) => self.reach(now, ue, &url.host),
                Err(e) => self.fail(now, ue, e.to_string()),
            },
            Step::Ping(to) => self.reach(now, ue, to),
            Step::Idle => {
                let cause = Cause::RadioNetwork(CauseRadioNetwork::UserInactivity);
                // No UE is inactive while it requests service, as those of a lost AMF do by themselves.
                let is_active = |p: &ue::Ue| self.persistent && p.state() != ue::MmState::Registered;
                match self.cells.ue(ue).is_some_and(|p| p.is_connected() && !is_active(p)) {
                    true => self.cells.handle(now, Input::Release(ue, cause), &mut self.inner),
                    false => self.done(now, ue),
                }
            }
            Step::Return => self.command(now, ue, UeCommand::ServiceRequest),
            Step::Deregister => self.command(now, ue, UeCommand::Deregister { switch_off: false }),
            Step::SwitchOff => self.command(now, ue, UeCommand::Deregister { switch_off: true }),
            Step::PeriodicRegistration => self.command(now, ue, UeCommand::PeriodicRegistration),
            Step::Handover(h) => self.hand_over(now, ue, *h),
            Step::Move => self.go_on(now, ue),
            Step::Stream(s) => self.stream(now, ue, s),
            Step::StopStream => match self.cells.stream(ue) {
                Some(_) => self.cells.handle(now, Input::StopStream(ue), &mut self.inner),
                None => self.fail(now, ue, "there is no stream to stop".into()),
            },
            Step::Ring(seconds) => {
                let after = Duration::from_secs_f64(*seconds);
                self.cells.handle(now, Input::Ring(ue, after), &mut self.inner);
                self.done(now, ue);
            }
            Step::Paged | Step::Wait(_) => {}
        }
    }

    fn modify(&mut self, now: Instant, ue: UeId, request: &QosRequest) {
        match self.plays.get(ue.index()).and_then(|p| p.session) {
            Some(id) => self.command(now, ue, UeCommand::ModifySession(id, Box::new(request.clone()))),
            None => self.fail(now, ue, "there is no session to modify".into()),
        }
    }

    /// The gNB after the UE's own.
    fn next_gnb(&self, ue: UeId) -> Option<GnbId> {
        let own = usize::from(self.cells.gnb_of(ue)?.0);
        Some(GnbId(((own + 1) % self.cells.gnbs().max(1)) as u16))
    }

    fn hand_over(&mut self, now: Instant, ue: UeId, step: HandoverStep) {
        let Some(to) = step.to.map(GnbId).or_else(|| self.next_gnb(ue)) else { return };
        if self.persistent && self.cells.ue(ue).is_none_or(|ue| !ue.is_connected()) {
            return self.done(now, ue);
        }
        if self.cells.gnb_of(ue) == Some(to) || self.cells.gnb(to).is_none() {
            return self.fail(now, ue, format!("there is no other gNB {} to go to", to.0));
        }
        if let Some(stream) = self.cells.stream_mut(ue) {
            stream.reset_gap();
            stream.handover_begins(now);
        }
        let via = match step.via {
            HandoverKind::Xn => gnb::Via::Xn,
            HandoverKind::N2 => gnb::Via::N2,
        };
        self.cells.handle(now, Input::HandOver(ue, to, via), &mut self.inner);
    }

    /// An idle UE camps on the next cell. The step ends at once, unless it registers there.
    fn go_on(&mut self, now: Instant, ue: UeId) {
        let Some(to) = self.next_gnb(ue) else { return };
        self.cells.handle(now, Input::Camp(ue, to), &mut self.inner);
        let registers = self.cells.ue(ue).is_some_and(|p| p.state() != ue::MmState::Registered);
        if !registers {
            self.done(now, ue);
        }
    }

    fn stream(&mut self, now: Instant, ue: UeId, step: &StreamStep) {
        let Some(play) = self.plays.get_mut(ue.index()) else { return };
        play.streams += 1;
        let config = StreamConfig {
            server: step.to,
            interval: Duration::from_millis(step.interval_ms.into()),
            octets: step.octets.into(),
        };
        let id = play.streams;
        self.cells.handle(now, Input::Stream(ue, config, id), &mut self.inner);
    }

    /// A stream has started or ended.
    fn on_stream(&mut self, now: Instant, ue: UeId, ended: bool) {
        match (self.step_of(ue), ended) {
            (Some(Step::Stream(_)), false) => self.done(now, ue),
            (Some(Step::StopStream), true) => {
                let report = self.cells.stream(ue).map(|s| s.report().clone());
                if let Some(report) = report {
                    self.report().count_stream(&report);
                }
                self.done(now, ue);
            }
            _ => {}
        }
    }

    fn on_gnb(&mut self, now: Instant, event: &gnb::Event) {
        match event {
            gnb::Event::HandedOver { ue, .. } => {
                let Some(Step::Handover(_)) = self.step_of(*ue) else { return };
                let Some(play) = self.plays.get_mut(ue.index()) else { return };
                if play.phase != PlayerPhase::Main {
                    return;
                }
                if self.cells.stream(*ue).is_none_or(|s| s.next_deadline().is_none()) {
                    return self.done(now, *ue);
                }
                play.phase = PlayerPhase::Settling;
                play.serial = play.serial.wrapping_add(1);
                play.handed_over = now;
                self.deadlines.push(Reverse((now + SETTLING, *ue, play.serial)));
            }
            gnb::Event::HandoverFailed { ue, cause, .. } => {
                if let Some(Step::Handover(_)) = self.step_of(*ue) {
                    self.fail(now, *ue, format!("handover: {}", gnb::cause_text(cause)));
                }
            }
            _ => {}
        }
    }

    fn command(&mut self, now: Instant, ue: UeId, command: UeCommand) {
        self.cells.handle(now, Input::Command(ue, command), &mut self.inner);
    }

    fn task(&mut self, now: Instant, ue: UeId, phase: PlayerPhase, task: Task) {
        if let Some(play) = self.plays.get_mut(ue.index()) {
            play.phase = phase;
        }
        self.cells.handle(now, Input::Task(ue, task), &mut self.inner);
    }

    /// Resolves a name at the session's DNS server.
    fn resolve(&mut self, now: Instant, ue: UeId, name: &str, phase: PlayerPhase) {
        let info = self.cells.ue(ue).and_then(|p| p.sessions().last());
        let v4 = info.and_then(|i| i.dns_ipv4.first().copied().filter(|_| i.ipv4.is_some()));
        let v6 = info.and_then(|i| i.dns_ipv6.first().copied());
        let ipv6 = info.is_some_and(|i| i.ipv4.is_none());
        match v4.map(IpAddr::from).or(v6.map(IpAddr::from)) {
            Some(server) => self.task(now, ue, phase, Task::Resolve { name: name.to_owned(), server, ipv6 }),
            None => self.fail(now, ue, "the session announced no DNS server".into()),
        }
    }

    /// Continues with a host, at once if it is an address or resolved already.
    fn reach(&mut self, now: Instant, ue: UeId, host: &str) {
        let known = self.plays.get(ue.index()).and_then(|p| p.resolved.as_ref());
        let known = known.filter(|(name, _)| name == host).map(|(_, address)| *address);
        match host.parse().ok().or(known) {
            Some(address) => self.reached(now, ue, address),
            None => self.resolve(now, ue, host, PlayerPhase::Resolving),
        }
    }

    fn reached(&mut self, now: Instant, ue: UeId, to: IpAddr) {
        match self.step_of(ue) {
            Some(Step::Ping(_)) => self.task(now, ue, PlayerPhase::Main, Task::Ping { to }),
            Some(Step::Fetch(url)) => {
                if let Ok(Url { host, port, path }) = Url::parse(&url) {
                    self.task(now, ue, PlayerPhase::Main, Task::Fetch { to, port, host, path });
                }
            }
            _ => {}
        }
    }

    fn on_task(&mut self, now: Instant, ue: UeId, outcome: &Result<TaskOutcome, TaskError>) {
        let Some(step) = self.step_of(ue) else { return };
        let Some(play) = self.plays.get_mut(ue.index()) else { return };
        match (outcome, play.phase, step) {
            (Err(e), ..) => self.fail(now, ue, e.to_string()),
            (Ok(TaskOutcome::Resolved(addresses)), phase, step) => {
                let Some(address) = addresses.first().copied() else { return };
                match (phase, step) {
                    (PlayerPhase::Main, Step::Resolve(name)) => {
                        play.resolved = Some((name, address));
                        self.done(now, ue);
                    }
                    (PlayerPhase::Resolving, _) => self.reached(now, ue, address),
                    _ => {}
                }
            }
            (Ok(TaskOutcome::Fetched { status, .. }), _, Step::Fetch(_)) if !(200..300).contains(status) => {
                self.fail(now, ue, format!("HTTP status {status}"));
            }
            (Ok(TaskOutcome::Pong), _, Step::Ping(_))
            | (Ok(TaskOutcome::Fetched { .. }), _, Step::Fetch(_))
            | (Ok(TaskOutcome::Router(_)), PlayerPhase::Router, Step::Session(_)) => self.done(now, ue),
            _ => {}
        }
    }

    fn on_ue(&mut self, now: Instant, ue: UeId, event: &ue::Event) {
        if let ue::Event::Violation(violation) = event {
            return self.report().violate(format!("{ue}: {violation}"));
        }
        if self.attach_again && self.attaches(now, ue, event) {
            return;
        }
        let Some(step) = self.step_of(ue) else { return };
        let Some(play) = self.plays.get_mut(ue.index()).filter(|play| play.phase != PlayerPhase::Pausing)
        else {
            return;
        };
        match (event, &step) {
            (
                ue::Event::Registered { since, .. },
                Step::Register | Step::PeriodicRegistration | Step::Move,
            )
            | (ue::Event::Deregistered { since: Some(since), .. }, Step::Deregister | Step::SwitchOff)
            | (ue::Event::SessionModified { since: Some(since), .. }, Step::Modify(_) | Step::EndFlow)
            | (ue::Event::SessionReleased { since: Some(since), .. }, Step::ReleaseSession) => {
                play.sent = *since;
                self.done(now, ue);
            }
            (ue::Event::SessionUp { since, session }, Step::Session(_)) => {
                play.sent = *since;
                play.session = Some(session.id);
                self.session_up(now, ue);
            }
            (ue::Event::ServiceAccepted { since }, Step::Return | Step::Paged) => {
                play.accepted = true;
                play.sent = *since;
                self.returned(now, ue);
            }
            (ue::Event::UserPlane { up: true, .. }, Step::Return | Step::Paged) => self.returned(now, ue),
            (ue::Event::UserPlane { up: true, .. }, Step::Session(_)) => self.session_up(now, ue),
            (ue::Event::Idle, Step::Idle) => self.done(now, ue),
            (ue::Event::Refused { procedure, reason, .. }, step) if ends(*procedure, step) => match reason {
                ue::Reason::Barred => {
                    self.report().barred += 1;
                    self.plays_no_more(now, ue);
                }
                reason => self.fail(now, ue, format!("{procedure}: {reason}")),
            },
            (ue::Event::Deregistered { cause, .. }, _) => {
                let cause = cause.map_or_else(String::new, |c| format!(", cause #{} {c}", c.value()));
                self.fail(now, ue, format!("deregistered by the network{cause}"));
            }
            _ => {}
        }
    }

    /// Whether an event is of a UE that attaches again since the core has ended its connection.
    fn attaches(&mut self, now: Instant, ue: UeId, event: &ue::Event) -> bool {
        match (event, self.attaching.get(&ue)) {
            (ue::Event::Idle, None) if !self.expects_idle(ue) => {
                self.attaching.insert(ue, false);
                self.command(now, ue, UeCommand::Register);
            }
            (ue::Event::Registered { .. }, Some(false)) => {
                self.attaching.insert(ue, true);
                self.command(now, ue, UeCommand::EstablishSession(request(&SessionStep::default())));
            }
            (ue::Event::SessionUp { session, .. }, Some(true)) => {
                self.attaching.remove(&ue);
                if let Some(play) = self.plays.get_mut(ue.index()) {
                    play.session = Some(session.id);
                }
                self.done(now, ue);
            }
            (ue::Event::Refused { .. }, Some(_)) => {
                self.attaching.remove(&ue);
                self.fail(
                    now,
                    ue,
                    "the core has ended the connection, and the UE cannot attach again".into(),
                );
            }
            (_, Some(_)) => {}
            (_, None) => return false,
        }
        true
    }

    /// Whether the end of its connection is part of what the UE does, or it is not registered.
    fn expects_idle(&self, ue: UeId) -> bool {
        let step = self.step_of(ue);
        let ends = matches!(step, Some(Step::Idle | Step::Paged | Step::Deregister | Step::SwitchOff));
        ends || self.cells.ue(ue).is_none_or(|ue| ue.state() != ue::MmState::Registered)
    }

    /// A session is up once NAS and radio bearers are set up, and its prefix is known if it has one.
    fn session_up(&mut self, now: Instant, id: UeId) {
        let Some(session) =
            self.plays.get(id.index()).filter(|p| p.phase == PlayerPhase::Main).and_then(|p| p.session)
        else {
            return;
        };
        let Some(ue) = self.cells.ue(id).filter(|p| p.has_user_plane(session)) else { return };
        let Some(info) = ue.sessions().find(|s| s.id == session) else { return };
        match info.interface_id.is_some() && !self.scenario.tun {
            true => self.task(now, id, PlayerPhase::Router, Task::SolicitRouter),
            false => self.done(now, id),
        }
    }

    fn returned(&mut self, now: Instant, id: UeId) {
        let accepted = self.plays.get(id.index()).is_some_and(|p| p.accepted);
        let paged = matches!(self.step_of(id), Some(Step::Paged));
        let Some(ue) = self.cells.ue(id).filter(|_| accepted) else { return };
        if paged || ue.sessions().all(|s| ue.has_user_plane(s.id)) {
            self.done(now, id);
        }
    }

    fn time_is_up(&mut self, now: Instant, ue: UeId) {
        let settling = self.plays.get(ue.index()).is_some_and(|p| p.phase == PlayerPhase::Settling);
        match self.step_of(ue) {
            Some(Step::Wait(_)) => self.done(now, ue),
            Some(step @ Step::Handover(_)) if settling => {
                let report = self.cells.stream(ue).map(|s| s.report().clone());
                if let Some(report) = report {
                    self.report().gap(step.name(), &report);
                }
                self.done(now, ue);
            }
            Some(step) if self.plays.get(ue.index()).is_some_and(|p| p.phase == PlayerPhase::Pausing) => {
                self.goes_on(now, ue, &step);
            }
            Some(_) => self.fail(now, ue, "no end within the patience of the scenario".into()),
            None => {}
        }
    }

    /// The step is done; the next one is due now.
    fn done(&mut self, now: Instant, ue: UeId) {
        let Some(step) = self.step_of(ue) else { return };
        let Some(play) = self.plays.get(ue.index()).cloned() else { return };
        let times = self.report().step(step.name());
        let end = if play.phase == PlayerPhase::Settling { play.handed_over } else { now };
        times.latency.add(end.since(play.due));
        times.wire.add(end.since(play.sent));
        let (part, index) = play.step.unwrap_or((ScenarioPart::Begin, 0));
        self.begin_step(now, ue, part, index + 1, now);
    }

    fn completed(&mut self, now: Instant, ue: UeId) {
        self.report().completed += 1;
        self.playing -= 1;
        if let Some(play) = self.plays.get_mut(ue.index()) {
            play.step = None;
            play.resolved = None;
        }
        self.is_free(now, ue);
        let before = self.section.is_some_and(|(s, _)| s.part == ScenarioPart::Before);
        if self.scenario.again || before {
            self.free.push_back(ue);
        }
    }

    /// The UE is free: starts late events of a trace.
    fn is_free(&mut self, now: Instant, ue: UeId) {
        let Some(late) = self.late.get_mut(&ue) else { return };
        let next = late.pop_front();
        if late.is_empty() {
            self.late.remove(&ue);
        }
        if let Some((due, event)) = next {
            self.begin(now, ue, ScenarioPart::Trace, event, due);
        }
    }

    /// The UE has failed.
    fn fail(&mut self, now: Instant, id: UeId, reason: String) {
        let Some(step) = self.step_of(id) else { return };
        if let Some(ue) = self.cells.ue(id) {
            let supi = ue.config().supi;
            self.report().fail(StepFailure { supi, step: step.name(), reason });
        }
        if self.persistent {
            return self.pauses(now, id);
        }
        self.plays_no_more(now, id);
    }

    fn pauses(&mut self, now: Instant, ue: UeId) {
        let Some(play) = self.plays.get_mut(ue.index()) else { return };
        play.phase = PlayerPhase::Pausing;
        play.serial = play.serial.wrapping_add(1);
        self.deadlines.push(Reverse((now + FAILURE_PAUSE, ue, play.serial)));
    }

    /// The pause after a step that failed is over.
    fn goes_on(&mut self, now: Instant, ue: UeId, step: &Step) {
        let Some((part, index)) = self.plays.get(ue.index()).and_then(|p| p.step) else { return };
        let again = matches!(step, Step::Register | Step::Session(_) | Step::Stream(_));
        let is_registered = self.cells.ue(ue).is_some_and(|ue| ue.state() == ue::MmState::Registered);
        match (is_registered, again) {
            (false, _) if part != ScenarioPart::End => self.begin_step(now, ue, ScenarioPart::Begin, 0, now),
            (_, true) => self.begin_step(now, ue, part, index, now),
            _ => self.begin_step(now, ue, part, index + 1, now),
        }
    }

    /// The UE is switched off.
    fn plays_no_more(&mut self, now: Instant, ue: UeId) {
        if let Some(play) = self.plays.get_mut(ue.index()) {
            play.step = None;
        }
        self.playing -= 1;
        self.command(now, ue, UeCommand::Deregister { switch_off: true });
        self.is_free(now, ue);
    }
}

/// Whether a failure of this procedure ends the step.
fn ends(procedure: MeasuredProcedure, step: &Step) -> bool {
    match procedure {
        MeasuredProcedure::Registration => !matches!(step, Step::Deregister | Step::SwitchOff),
        MeasuredProcedure::ServiceRequest => {
            matches!(step, Step::Return | Step::Paged | Step::Session(_) | Step::ReleaseSession)
        }
        MeasuredProcedure::SessionEstablishment => matches!(step, Step::Session(_)),
        MeasuredProcedure::SessionModification => matches!(step, Step::Modify(_) | Step::EndFlow),
        MeasuredProcedure::SessionRelease => matches!(step, Step::ReleaseSession),
        MeasuredProcedure::Deregistration => matches!(step, Step::Deregister | Step::SwitchOff),
    }
}

/// A new flow with its rule; the network assigns both identifiers (TS 24.501 §6.4.2.2).
fn asked_flow(step: ModifyStep) -> QosRequest {
    let Some(qfi) = Qfi::new(0) else { return QosRequest::default() };
    let components =
        vec![FilterComponent::Protocol([17]), FilterComponent::RemotePort(step.port.to_be_bytes())];
    let filter = PacketFilter { id: 0, direction: FilterDirection::Bidirectional, components };
    let rule = QosRule {
        id: 0,
        operation: RuleOperation::Create(vec![filter]),
        default: false,
        binding: Some(QosFlowBinding { precedence: ASKED_PRECEDENCE, segregation: false, qfi }),
    };
    let flow = QosFlowDescription {
        qfi,
        operation: FlowOperation::Create,
        e_bit: true,
        parameters: vec![FlowParameter::FiveQi(FiveQi(step.five_qi))],
    };
    QosRequest { rules: vec![rule], flows: vec![flow] }
}

fn request(step: &SessionStep) -> SessionRequest {
    SessionRequest {
        dnn: step.dnn.as_ref().and_then(|d| d.parse().ok()),
        s_nssai: step.s_nssai.as_ref().and_then(|s| s.parse().ok()),
        pdu_session_type: match step.pdu_session_type {
            SessionType::Ipv4 => PduSessionType::Ipv4,
            SessionType::Ipv6 => PduSessionType::Ipv6,
            SessionType::Ipv4v6 => PduSessionType::Ipv4v6,
            SessionType::Ethernet => PduSessionType::Ethernet,
            SessionType::Unstructured => PduSessionType::Unstructured,
        },
    }
}
