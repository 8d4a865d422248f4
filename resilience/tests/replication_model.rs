//! The replication protocol, tried in every order: a few phones, an aggregator with or without a mirror, a few control
//! functions, links that keep their order, checkpoints that are lost and overtake each other, nodes that die and such as only
//! seem to.
//!
//! The transitions are the product's own: [`Ledger`], [`Gate`], [`Primary`] and [`Holdings`] run here as they run in the program; only
//! what a phone's machine does is replaced. Its state is the list of the inputs that it ran, so that a batch shows what
//! state it was made from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use stateright::{Checker, Model, Property};
use whimbrel_control::PhoneId;
use whimbrel_ids::Instant;
use whimbrel_resilience::replication::{
    Bounds, Checkpoint, CpfId, Failover, Gate, Holdings, Lagging, Ledger, Primary, Ran, Taken, Verdict,
};

/// The small network, and what may befall it.
#[derive(Clone)]
struct Network {
    phones: u32,
    cpfs: u16,
    backups: u16,
    /// Inputs of each phone; after every second one it is idle.
    inputs: u64,
    /// Deaths and false alarms of control functions together.
    failures: u8,
    /// The same of the aggregator that has a mirror.
    cta_failures: u8,
    mirror: bool,
    /// Checkpoints that the network loses.
    losses: u8,
    /// Whether the aggregator ever loses patience with a replica.
    scans: bool,
    bounds: Bounds,
    /// As in the paper: a checkpoint leaves with the batch, not after its release.
    hasty: bool,
}

const NOW: Instant = Instant(1);
const NO_PATIENCE: Duration = Duration::ZERO;

/// Inputs are numbers, each given once: what an aggregator that dies takes with it is missed by nobody but its sender.
type Input = u64;
type History = Vec<Input>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Down {
    Run { phone: PhoneId, term: u32, clock: u64, input: Input },
    Serve { phone: PhoneId, term: u32, backups: Vec<CpfId> },
    Outdated { phone: PhoneId, clock: u64 },
    Released(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Up {
    /// To an aggregator that takes over: an input that was run and not released.
    Tail {
        phone: PhoneId,
        clock: u64,
        input: Input,
    },
    TailEnds,
    Batch {
        phone: PhoneId,
        term: u32,
        clock: u64,
        ran: History,
    },
    Holds {
        phone: PhoneId,
        clock: u64,
    },
}

/// What an aggregator tells its mirror: the mirror's ledgers take the same steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Append { phone: PhoneId, input: Input },
    Batch { phone: PhoneId, from: CpfId, term: u32, clock: u64, ran: History },
    Holds { phone: PhoneId, replica: CpfId, clock: u64 },
    GivenUp(CpfId),
}

/// What leaves an aggregator when its mirror holds the steps before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Leaving {
    Outputs { phone: PhoneId, clock: u64, ran: History },
    ToCpf(CpfId, Down),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Machine {
    term: u32,
    backups: Vec<CpfId>,
    ran: History,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Cpf {
    serves: BTreeMap<PhoneId, Machine>,
    primary: Primary<Input, History, History>,
    holdings: Holdings<History>,
    /// Its links to the aggregator that it obeys.
    down: VecDeque<Down>,
    up: VecDeque<Up>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cta {
    ledgers: BTreeMap<PhoneId, Ledger<Input>>,
    trusted: BTreeSet<CpfId>,
    /// How many batches of each link were taken.
    counts: BTreeMap<CpfId, u64>,
    /// Control functions that have not told yet what they ran for the one before.
    unsettled: BTreeSet<CpfId>,
    lost: BTreeSet<PhoneId>,
    gate: Gate<Leaving>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The one that serves.
    cta: Cta,
    mirror: Option<Cta>,
    steps: VecDeque<Step>,
    held: VecDeque<u64>,
    /// One that was replaced and does not know it: what it may still say is what its mirror has confirmed already.
    replaced: Option<(Cta, VecDeque<u64>)>,
    cpfs: BTreeMap<CpfId, Cpf>,
    between: BTreeSet<(CpfId, Checkpoint<History>)>,
    /// The next input of each phone.
    next: BTreeMap<PhoneId, Input>,
    /// What each phone was told: the clocks.
    told: BTreeMap<PhoneId, BTreeSet<u64>>,
    failures: u8,
    cta_failures: u8,
    losses: u8,
    /// What must never be.
    wrong: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Input(PhoneId),
    ToCpf(CpfId),
    ToCta(CpfId),
    ToMirror,
    FromMirror,
    ToReplaced,
    Arrives(CpfId, Checkpoint<History>),
    IsLost(CpfId, Checkpoint<History>),
    Dies(CpfId),
    SeemsDead(CpfId),
    CtaDies,
    CtaSeemsDead,
    Scan(PhoneId),
}

fn phone(n: u32) -> PhoneId {
    PhoneId { slot: n, generation: 1 }
}

fn digest(ran: &History) -> u64 {
    let mut h = DefaultHasher::new();
    ran.hash(&mut h);
    h.finish()
}

fn is_idle(clock: u64) -> bool {
    clock.is_multiple_of(2)
}

impl Cta {
    /// A step of the ledgers, here and at the mirror, and what is to leave for it.
    fn step(&mut self, step: &Step) -> Vec<Leaving> {
        match *step {
            Step::Append { phone, input } => {
                let Some(ledger) = self.ledgers.get_mut(&phone) else { return Vec::new() };
                let (by, term) = ledger.assignment();
                let (clock, lagging) = ledger.append(|_| (1, input));
                let run = Leaving::ToCpf(by, Down::Run { phone, term, clock, input });
                std::iter::once(run).chain(outdated(phone, lagging.unwrap_or_default())).collect()
            }
            Step::Batch { phone, from, term, clock, ref ran } => {
                let Some(ledger) = self.ledgers.get_mut(&phone) else { return Vec::new() };
                let verdict = ledger.batch(NOW, from, term, clock, digest(ran), is_idle(clock));
                assert_ne!(verdict, Verdict::Diverged, "the same inputs give the same batch");
                let said = (verdict == Verdict::Release).then(|| Leaving::Outputs {
                    phone,
                    clock,
                    ran: ran.clone(),
                });
                let count = self.counts.entry(from).or_default();
                *count += 1;
                said.into_iter().chain([Leaving::ToCpf(from, Down::Released(*count))]).collect()
            }
            Step::Holds { phone, replica, clock } => {
                if let Some(ledger) = self.ledgers.get_mut(&phone).filter(|_| self.trusted.contains(&replica))
                {
                    ledger.acknowledged(NOW, replica, clock);
                }
                Vec::new()
            }
            Step::GivenUp(dead) => self.given_up(dead),
        }
    }

    fn given_up(&mut self, dead: CpfId) -> Vec<Leaving> {
        self.trusted.remove(&dead);
        self.unsettled.remove(&dead);
        let mut leaving = Vec::new();
        for (&phone, ledger) in &mut self.ledgers {
            let had = ledger.backups().any(|b| b == dead) || ledger.assignment().0 == dead;
            if !had || self.lost.contains(&phone) {
                continue;
            }
            let failover = ledger.failed(dead);
            if let Failover::Lost = failover {
                self.lost.insert(phone);
                continue;
            }
            let is_spare = |c: &&CpfId| **c != ledger.assignment().0 && ledger.backups().all(|b| b != **c);
            if let Some(&spare) = self.trusted.iter().find(is_spare) {
                ledger.add_backup(spare);
            }
            let (by, term) = ledger.assignment();
            let backups = ledger.backups().collect();
            leaving.push(Leaving::ToCpf(by, Down::Serve { phone, term, backups }));
            if let Failover::Serve { replay, .. } = failover {
                let run = |(clock, input)| Leaving::ToCpf(by, Down::Run { phone, term, clock, input });
                leaving.extend(replay.into_iter().map(run));
            }
        }
        leaving
    }
}

fn outdated(phone: PhoneId, lagging: Vec<Lagging>) -> impl Iterator<Item = Leaving> {
    lagging.into_iter().map(move |l| Leaving::ToCpf(l.replica, Down::Outdated { phone, clock: l.clock }))
}

impl State {
    /// The aggregator takes a step, and its mirror will.
    fn step(&mut self, step: Step) {
        let leaving = self.cta.step(&step);
        // An input goes to its primary at once, unless something for that waits; what comes of it waits for the mirror.
        let first = self.cta.gate.waiting().next().is_none() && matches!(step, Step::Append { .. });
        if self.mirror.is_none() || first {
            leaving.into_iter().for_each(|l| self.leave(l));
            if self.mirror.is_some() {
                self.cta.gate.sent();
                self.steps.push_back(step);
            }
            return;
        }
        self.cta.gate.sent();
        self.steps.push_back(step);
        leaving.into_iter().for_each(|l| self.cta.gate.hold(l));
    }

    fn leave(&mut self, leaving: Leaving) {
        match leaving {
            Leaving::Outputs { phone, clock, ran } => self.say(phone, clock, &ran),
            Leaving::ToCpf(id, message) if self.cta.trusted.contains(&id) => {
                if let Some(cpf) = self.cpfs.get_mut(&id) {
                    cpf.down.push_back(message);
                }
            }
            Leaving::ToCpf(..) => {}
        }
    }

    /// Outputs reach the phone.
    fn say(&mut self, phone: PhoneId, clock: u64, ran: &History) {
        let told = self.told.entry(phone).or_default();
        if !told.insert(clock) {
            self.wrong = Some("said twice");
        }
        if told.last() != Some(&clock) {
            self.wrong = Some("said out of order");
        }
        if ran.len() as u64 != clock {
            self.wrong = Some("an answer made from a state that lacks an input");
        }
        // What the phone was told before was made from the beginning of the same history.
        if ran.windows(2).any(|w| w[0] >= w[1]) {
            self.wrong = Some("inputs ran out of order or twice");
        }
    }

    /// The mirror takes over. What it had not confirmed, the former cannot say any more.
    fn take_over(&mut self) -> Option<Cta> {
        let mut mirror = self.mirror.take()?;
        mirror.gate = Gate::default();
        mirror.unsettled = mirror.trusted.clone();
        mirror.counts.clear();
        self.steps.clear();
        let former = std::mem::replace(&mut self.cta, mirror);
        let given_up: Vec<CpfId> =
            self.cpfs.keys().copied().filter(|c| !self.cta.trusted.contains(c)).collect();
        for id in given_up {
            self.cpfs.remove(&id); // those obey nobody any more
        }
        for cpf in self.cpfs.values_mut() {
            cpf.down.clear();
            cpf.up.clear();
            for ran in cpf.primary.restart() {
                let Ran { phone, clock, input, ref batch, .. } = ran;
                let term = cpf.serves.get(&phone).map_or(0, |m| m.term);
                cpf.up.push_back(Up::Tail { phone, clock, input });
                cpf.up.push_back(Up::Batch { phone, term, clock, ran: batch.clone() });
                cpf.primary.ran(ran);
            }
            cpf.up.push_back(Up::TailEnds);
        }
        // Those that died and of which the former had no time to tell: it finds out by itself.
        let dead: Vec<CpfId> =
            self.cta.trusted.iter().copied().filter(|c| !self.cpfs.contains_key(c)).collect();
        dead.into_iter().for_each(|c| self.step(Step::GivenUp(c)));
        Some(former)
    }
}

impl Network {
    fn first_cpfs(&self, n: u32) -> (CpfId, Vec<CpfId>) {
        let at = |k: u16| CpfId((n as u16 + k) % self.cpfs);
        (at(0), (1..=self.backups).map(at).collect())
    }

    /// A control function takes what its aggregator sends.
    fn cpf_takes(&self, state: &mut State, id: CpfId, message: Down) {
        let State { cpfs, between, wrong, .. } = state;
        let Some(cpf) = cpfs.get_mut(&id) else { return };
        match message {
            Down::Serve { phone, term, backups } => {
                let holdings = &mut cpf.holdings;
                let machine = cpf.serves.entry(phone).or_insert_with(|| {
                    let (_, ran) = holdings.promote(phone).unwrap_or_default();
                    Machine { term, backups: Vec::new(), ran }
                });
                (machine.term, machine.backups) = (term, backups.clone());
                // What it took over was released, or it would not have been held: its backups may have it.
                let clock = machine.ran.len() as u64;
                if clock > 0 && is_idle(clock) && term > 1 {
                    let whole = Checkpoint { phone, term, clock, state: machine.ran.clone() };
                    between.extend(backups.into_iter().map(|b| (b, whole.clone())));
                }
            }
            Down::Run { phone, term, clock, input } => {
                let Some(machine) = cpf.serves.get_mut(&phone) else { return };
                let ran = machine.ran.len() as u64;
                if clock <= ran {
                    return;
                }
                if clock > ran + 1 {
                    *wrong = Some("an input is missing before the next");
                    return;
                }
                machine.term = term;
                machine.ran.push(input);
                let batch = machine.ran.clone();
                let idle = is_idle(clock).then(|| batch.clone());
                cpf.up.push_back(Up::Batch { phone, term, clock, ran: batch.clone() });
                cpf.primary.ran(Ran { phone, clock, input, batch, idle });
                if self.hasty {
                    cpf.primary.released(u64::MAX);
                }
            }
            Down::Outdated { phone, clock } => cpf.holdings.outdated(phone, clock),
            Down::Released(batches) => cpf.primary.released(batches),
        }
        while let Some((phone, clock, ran)) = cpf.primary.due() {
            let Some(machine) = cpf.serves.get(&phone) else { continue };
            let checkpoint = Checkpoint { phone, term: machine.term, clock, state: ran };
            between.extend(machine.backups.iter().map(|b| (*b, checkpoint.clone())));
        }
    }

    /// The aggregator takes what a control function sends.
    fn cta_takes(&self, state: &mut State, from: CpfId, message: Up) {
        match message {
            Up::Tail { phone, clock, input } => {
                let ledger = state.cta.ledgers.get(&phone);
                let primary = ledger.is_some_and(|l| l.assignment().0 == from && l.clock() + 1 == clock);
                if primary && state.cta.trusted.contains(&from) {
                    state.step(Step::Append { phone, input });
                }
            }
            Up::TailEnds => {
                state.cta.unsettled.remove(&from);
                let phones: Vec<PhoneId> = state.cta.ledgers.keys().copied().collect();
                for phone in phones {
                    let ledger = &state.cta.ledgers[&phone];
                    let (by, term) = ledger.assignment();
                    if by != from {
                        continue;
                    }
                    // What the former assigned, or logged here, and may never have handed over; to say it again does no harm.
                    let backups = ledger.backups().collect();
                    let log = ledger.retained();
                    state.leave(Leaving::ToCpf(from, Down::Serve { phone, term, backups }));
                    for (clock, input) in log {
                        state.leave(Leaving::ToCpf(from, Down::Run { phone, term, clock, input }));
                    }
                }
            }
            Up::Batch { phone, term, clock, ran } => {
                state.step(Step::Batch { phone, from, term, clock, ran })
            }
            Up::Holds { phone, clock } => state.step(Step::Holds { phone, replica: from, clock }),
        }
    }
}

impl Model for Network {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let ledger = |n| {
            let (primary, backups) = self.first_cpfs(n);
            (phone(n), Ledger::new(primary, backups, self.bounds))
        };
        let cta = Cta {
            ledgers: (0..self.phones).map(ledger).collect(),
            trusted: (0..self.cpfs).map(CpfId).collect(),
            counts: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            lost: BTreeSet::new(),
            gate: Gate::default(),
        };
        let mut state = State {
            mirror: self.mirror.then(|| cta.clone()),
            cta,
            steps: VecDeque::new(),
            held: VecDeque::new(),
            replaced: None,
            cpfs: (0..self.cpfs).map(|c| (CpfId(c), Cpf::default())).collect(),
            between: BTreeSet::new(),
            next: (0..self.phones).map(|n| (phone(n), 1)).collect(),
            told: BTreeMap::new(),
            failures: 0,
            cta_failures: 0,
            losses: 0,
            wrong: None,
        };
        for n in 0..self.phones {
            let (primary, backups) = self.first_cpfs(n);
            self.cpf_takes(&mut state, primary, Down::Serve { phone: phone(n), term: 1, backups });
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (&phone, ledger) in &state.cta.ledgers {
            let settled = !state.cta.unsettled.contains(&ledger.assignment().0);
            if state.next[&phone] <= self.inputs && settled && !state.cta.lost.contains(&phone) {
                actions.push(Action::Input(phone));
            }
            if self.scans {
                actions.push(Action::Scan(phone));
            }
        }
        for (&id, cpf) in &state.cpfs {
            actions.extend((!cpf.down.is_empty()).then_some(Action::ToCpf(id)));
            actions.extend((!cpf.up.is_empty()).then_some(Action::ToCta(id)));
            if state.failures < self.failures && state.cta.trusted.contains(&id) {
                actions.extend([Action::Dies(id), Action::SeemsDead(id)]);
            }
        }
        actions.extend((!state.steps.is_empty()).then_some(Action::ToMirror));
        actions.extend((!state.held.is_empty()).then_some(Action::FromMirror));
        actions
            .extend(state.replaced.as_ref().and_then(|(_, h)| (!h.is_empty()).then_some(Action::ToReplaced)));
        if state.mirror.is_some() && state.cta_failures < self.cta_failures {
            actions.extend([Action::CtaDies, Action::CtaSeemsDead]);
        }
        for (to, checkpoint) in &state.between {
            actions.push(Action::Arrives(*to, checkpoint.clone()));
            if state.losses < self.losses {
                actions.push(Action::IsLost(*to, checkpoint.clone()));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Input(phone) => {
                let input = state.next.get_mut(&phone)?;
                *input += 1;
                let input = *input - 1;
                state.step(Step::Append { phone, input });
            }
            Action::ToCpf(id) => {
                let message = state.cpfs.get_mut(&id)?.down.pop_front()?;
                self.cpf_takes(&mut state, id, message);
            }
            Action::ToCta(id) => {
                let message = state.cpfs.get_mut(&id)?.up.pop_front()?;
                self.cta_takes(&mut state, id, message);
            }
            Action::ToMirror => {
                let step = state.steps.pop_front()?;
                state.mirror.as_mut()?.step(&step); // what leaves for it, the other one sends
                let taken = state.held.back().copied().unwrap_or_else(|| state.cta.gate.confirmed()) + 1;
                state.held.push_back(taken);
            }
            Action::FromMirror => {
                let held = state.held.pop_front()?;
                state.cta.gate.acknowledged(held);
                while let Some(l) = state.cta.gate.pass() {
                    state.leave(l);
                }
            }
            Action::ToReplaced => {
                let (mut cta, mut held) = state.replaced.take()?;
                cta.gate.acknowledged(held.pop_front()?);
                while let Some(l) = cta.gate.pass() {
                    if let Leaving::Outputs { phone, clock, ran } = l {
                        state.say_late(phone, clock, &ran);
                    }
                }
                state.replaced = Some((cta, held));
            }
            Action::Arrives(to, checkpoint) => {
                state.between.remove(&(to, checkpoint.clone()));
                let phone = checkpoint.phone;
                let cpf = state.cpfs.get_mut(&to)?;
                if !cpf.serves.contains_key(&phone)
                    && let Taken::Holds(clock) = cpf.holdings.take(checkpoint)
                {
                    cpf.up.push_back(Up::Holds { phone, clock });
                }
            }
            Action::IsLost(to, checkpoint) => {
                state.losses += 1;
                state.between.remove(&(to, checkpoint));
            }
            Action::Dies(id) => {
                state.failures += 1;
                state.cpfs.remove(&id);
                state.step(Step::GivenUp(id));
            }
            Action::SeemsDead(id) => {
                state.failures += 1;
                // What was on its way to it is lost with the link; what it sent may still come.
                state.cpfs.get_mut(&id)?.down.clear();
                state.step(Step::GivenUp(id));
            }
            Action::CtaDies => {
                state.cta_failures += 1;
                state.take_over();
                state.held.clear();
            }
            Action::CtaSeemsDead => {
                state.cta_failures += 1;
                let held = std::mem::take(&mut state.held);
                state.replaced = state.take_over().map(|former| (former, held));
            }
            Action::Scan(phone) => {
                let lagging = state.cta.ledgers.get_mut(&phone)?.scan(NOW, NO_PATIENCE);
                outdated(phone, lagging).for_each(|l| state.leave(l));
            }
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(READ_YOUR_WRITES, |_, s: &State| s.wrong.is_none()),
            Property::always(ANSWERED, |_, s: &State| {
                let quiet = |(id, c): (&CpfId, &Cpf)| {
                    !s.cta.trusted.contains(id) || c.down.is_empty() && c.up.is_empty()
                };
                !s.cpfs.iter().all(quiet)
                    || !s.steps.is_empty()
                    || !s.held.is_empty()
                    || s.cta.ledgers.iter().all(|(p, l)| s.cta.lost.contains(p) || l.released() == l.clock())
            }),
            Property::always(NOT_LOST, |_, s: &State| s.failures > 1 || s.cta.lost.is_empty()),
            Property::sometimes("a phone is served by its backup", |n: &Network, s: &State| {
                let served = s.cta.ledgers.values().any(|l| l.assignment().1 > 1 && l.released() > 1);
                n.failures == 0 || served
            }),
            Property::sometimes("a mirror serves", |n: &Network, s: &State| {
                let served = s.cta_failures > 0 && s.told.values().any(|t| t.last() == Some(&n.inputs));
                n.cta_failures == 0 || served
            }),
        ]
    }
}

impl State {
    /// What a replaced aggregator says late: nothing that the new one says too.
    fn say_late(&mut self, phone: PhoneId, clock: u64, ran: &History) {
        if !self.told.entry(phone).or_default().insert(clock) {
            self.wrong = Some("said twice");
        }
        if ran.len() as u64 != clock {
            self.wrong = Some("an answer made from a state that lacks an input");
        }
    }
}

const READ_YOUR_WRITES: &str = "read your writes, and say it once";
const ANSWERED: &str = "where all is quiet, everything was answered";
const NOT_LOST: &str = "one failure costs no phone";

const SMALL: Network = Network {
    phones: 1,
    cpfs: 3,
    backups: 1,
    inputs: 4,
    failures: 1,
    cta_failures: 0,
    mirror: false,
    losses: 1,
    scans: false,
    bounds: Bounds { inputs: 64, octets: 64 },
    hasty: false,
};

fn every_schedule(network: Network) {
    let checker = network.checker().threads(2).spawn_bfs().join();
    println!("{} states, {} deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

#[test]
fn one_failure_of_three_functions_costs_a_phone_nothing() {
    every_schedule(SMALL);
}

#[test]
fn two_failures_never_give_a_stale_answer() {
    every_schedule(Network { failures: 2, losses: 0, inputs: 3, ..SMALL });
}

#[test]
fn a_replica_that_lags_is_given_up_and_may_come_back() {
    every_schedule(Network { backups: 2, scans: true, inputs: 3, ..SMALL });
}

#[test]
fn two_phones_do_not_disturb_each_other() {
    every_schedule(Network { phones: 2, inputs: 2, losses: 0, ..SMALL });
}

#[test]
fn the_loss_of_an_aggregator_that_has_a_mirror_costs_no_phone() {
    every_schedule(Network { mirror: true, cta_failures: 1, failures: 0, losses: 0, ..SMALL });
}

#[test]
fn the_loss_of_an_aggregator_and_of_a_function_gives_no_stale_answer() {
    every_schedule(Network { mirror: true, cta_failures: 1, inputs: 2, losses: 0, ..SMALL });
}

#[test]
fn at_the_bound_of_the_log_a_phone_loses_its_replay_and_never_sees_a_stale_answer() {
    // Then a failure may cost the phone, for its log is gone: all but that property hold.
    let bounds = Bounds { inputs: 2, octets: 64 };
    let checker = Network { bounds, losses: 0, ..SMALL }.checker().threads(2).spawn_bfs().join();
    checker.assert_no_discovery(READ_YOUR_WRITES);
    checker.assert_no_discovery(ANSWERED);
    checker.assert_any_discovery(NOT_LOST);
}

#[test]
fn a_checkpoint_that_leaves_before_its_outputs_loses_them() {
    // Why rule 1 stands: the paper's order has a schedule in which a phone waits for ever.
    let checker = Network { hasty: true, ..SMALL }.checker().threads(2).spawn_bfs().join();
    checker.assert_any_discovery(ANSWERED);
}
