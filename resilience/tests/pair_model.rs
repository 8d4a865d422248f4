//! Two CTAs and etcd, tried in every order: links that end and that only one end has noticed, claims whose answers are lost
//! and that come into effect late or never, leases that run out, processes that die and come again.
//!
//! What they decide is the product's own: [`PrimaryRole`], [`ReplicaRole`] and [`Home::course`] run here as they run in the program. Their logs are
//! lists of inputs, and what has left is a set of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::{Checker, Model, Property};
use whimbrel_resilience::detector::Incarnation;
use whimbrel_resilience::membership::{Claim, ClaimAction, ClaimError, CtaInstance, Home};
use whimbrel_resilience::pair::{PrimaryAction, PrimaryRole, ReplicaAction, ReplicaRole};

/// What may befall the two.
#[derive(Clone, Copy)]
struct Pair {
    inputs: u8,
    deaths: u8,
    cuts: u8,
    /// Claims that get no answer.
    silences: u8,
    /// Leases of the living that run out.
    expiries: u8,
    /// Times that what was heard turns out to be of no use.
    faults: u8,
}

type Input = u8;

/// The inputs since UEs' states began from nothing for the `epoch`th time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Log {
    epoch: u8,
    inputs: Vec<Input>,
}

impl Log {
    fn len(&self) -> u64 {
        self.inputs.len() as u64
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ToStandby {
    Begin,
    Snapshot(Log),
    Record(Input),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ToServing {
    Follow(CtaInstance),
    Held(u64),
}

/// The link from the one that called, `standby`, to the other. `up`: which of the ends has not noticed its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Link {
    standby: usize,
    up: [bool; 2],
    whole: bool,
    to_standby: VecDeque<ToStandby>,
    to_serving: VecDeque<ToServing>,
}

/// The home's record, its revision, and which lives are listed; at etcd, and as a process knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Record {
    revision: u8,
    home: Option<Home>,
    listed: [Option<u64>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    claim: Claim,
    proposed: Option<Home>,
    /// It is under way to etcd, with the revision that it expects.
    swap: Option<u8>,
}

impl Asked {
    fn under_way(&self) -> Option<(u8, Home)> {
        Some((self.swap?, self.proposed?))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    Stands { standby: ReplicaRole, log: Option<Log> },
    Serves { serving: PrimaryRole, log: Log, left: u64, cta_replica: Option<CtaReplica> },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CtaReplica {
    waits: bool,
    held: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    life: u64,
    view: Record,
    asked: VecDeque<Asked>,
    role: Role,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    etcd: Record,
    processes: [Option<Process>; 2],
    link: Option<Link>,
    /// Claims without an answer that may still come into effect.
    late: Vec<(u8, Home)>,
    lives: u64,
    epoch: u8,
    inputs: u8,
    /// Of this epoch.
    left: BTreeSet<Input>,
    /// Somebody let something leave whose time was over.
    stale: bool,
    deaths: u8,
    cuts: u8,
    silences: u8,
    expiries: u8,
    faults: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Act {
    Input(usize),
    HearStandby,
    HearServing,
    Notice(usize),
    Look(usize),
    /// Etcd answers the first claim of that one, or takes note of it.
    Ask(usize),
    Swap(usize),
    Watch(usize),
    List(usize),
    Begin(usize),
    Late(usize),
    Lapse(usize),
    // What goes wrong:
    Cut,
    Silence(usize),
    Expire(usize),
    Fault(usize),
    Die(usize),
}

impl Act {
    fn is_fault(&self) -> bool {
        matches!(self, Self::Cut | Self::Silence(_) | Self::Expire(_) | Self::Fault(_) | Self::Die(_))
    }
}

fn place(who: usize, life: u64) -> CtaInstance {
    CtaInstance { cta: who as u16, incarnation: Incarnation(life) }
}

impl World {
    fn process(&mut self, who: usize) -> &mut Process {
        self.processes[who].as_mut().expect("it lives")
    }

    /// Ends that end of the link.
    fn hang_up(&mut self, who: usize) {
        if let Some(link) = &mut self.link {
            link.up[who] = false;
            link.whole = false;
            if link.up == [false; 2] {
                self.link = None;
            }
        }
    }

    fn send_standby(&mut self, message: ToStandby) {
        if let Some(link) = self.link.as_mut().filter(|l| l.whole) {
            link.to_standby.push_back(message);
        }
    }

    fn send_serving(&mut self, message: ToServing) {
        if let Some(link) = self.link.as_mut().filter(|l| l.whole) {
            link.to_serving.push_back(message);
        }
    }

    /// What the inputs up to this one caused leaves.
    fn leave(&mut self, who: usize, until: u64) {
        let epoch = self.epoch;
        let Role::Serves { log, left, cta_replica, .. } = &mut self.process(who).role else {
            unreachable!("only who serves lets anything leave")
        };
        let leaves = log.inputs[*left as usize..until.max(*left) as usize].to_vec();
        *left = until.max(*left);
        if log.epoch == epoch {
            self.left.extend(leaves);
        } else {
            // What the CTA replica held may have left that one too, before it died: it is late, like what the network delays.
            self.stale |= !leaves.is_empty() && cta_replica.is_none();
        }
    }

    fn duties(&mut self, who: usize, duties: Vec<PrimaryAction>) {
        for duty in duties {
            match duty {
                PrimaryAction::HoldOutputs => {
                    if let Role::Serves { cta_replica: Some(cta_replica), .. } = &mut self.process(who).role {
                        cta_replica.waits = true;
                    }
                }
                PrimaryAction::ReleaseOutputs => {
                    let Role::Serves { log, cta_replica, .. } = &mut self.process(who).role else { continue };
                    *cta_replica = None;
                    let all = log.len();
                    self.leave(who, all);
                }
                PrimaryAction::CloseLink => self.hang_up(who),
                PrimaryAction::Claim(claim) => self.ask(who, claim),
                PrimaryAction::ReplicaReady(_) | PrimaryAction::NoReplica => {}
                PrimaryAction::Stop => {
                    self.hang_up(who);
                    self.process(who).role = Role::Stands { standby: ReplicaRole::default(), log: None };
                    break;
                }
            }
        }
    }

    fn ask(&mut self, who: usize, claim: Claim) {
        self.process(who).asked.push_back(Asked { claim, proposed: None, swap: None });
    }

    fn step(&mut self, who: usize, step: Option<ReplicaAction>) {
        let Some(step) = step else { return };
        match step {
            ReplicaAction::Connect(to) => {
                let other = 1 - who;
                let there = self.processes[other]
                    .as_ref()
                    .is_some_and(|p| matches!(p.role, Role::Serves { .. }) && place(other, p.life) == to);
                if there && self.link.is_none() {
                    let follow = ToServing::Follow(place(who, self.process(who).life));
                    self.link = Some(Link {
                        standby: who,
                        up: [true; 2],
                        whole: true,
                        to_standby: VecDeque::new(),
                        to_serving: [follow].into(),
                    });
                } else {
                    self.standby_lost(who);
                }
            }
            ReplicaAction::Claim(claim) => self.ask(who, claim),
            ReplicaAction::Rejoin => {
                self.lives += 1;
                let life = self.lives;
                self.etcd.listed[who] = Some(life);
                let process = self.process(who);
                process.life = life;
                process.view.listed[who] = Some(life);
            }
            ReplicaAction::Discard => {
                if let Role::Stands { log, .. } = &mut self.process(who).role {
                    *log = None;
                }
                if self.link.as_ref().is_some_and(|l| l.standby == who) {
                    self.hang_up(who);
                }
            }
            ReplicaAction::Serve(home) => self.serve(who, &home),
        }
    }

    fn serve(&mut self, who: usize, home: &Home) {
        let fresh = self.epoch + 1;
        let Role::Stands { log, .. } = &mut self.process(who).role else { unreachable!("it stands by") };
        let log = log.take().unwrap_or(Log { epoch: fresh, inputs: Vec::new() });
        if log.epoch == fresh {
            self.epoch = fresh;
            self.left.clear();
        }
        // What is not known to have left is said again.
        let serving = PrimaryRole::new(home);
        let all = log.len();
        self.process(who).role = Role::Serves { serving, log, left: 0, cta_replica: None };
        self.leave(who, all);
    }

    fn standby_lost(&mut self, who: usize) {
        if let Role::Stands { standby, .. } = &mut self.process(who).role {
            let step = standby.lost();
            let asks = matches!(step, Some(ReplicaAction::Claim(_)));
            self.step(who, step);
            if asks && self.link.as_ref().is_some_and(|l| l.standby == who) {
                self.hang_up(who);
            }
        }
    }

    /// The link has ended, as seen by that one.
    fn lost(&mut self, who: usize) {
        if self.link.as_ref().is_some_and(|l| l.standby == who) {
            self.hang_up(who);
            return self.standby_lost(who);
        }
        self.hang_up(who);
        if let Role::Serves { serving, .. } = &mut self.process(who).role {
            let duties = serving.lost();
            self.duties(who, duties);
        }
    }

    fn input(&mut self, who: usize) {
        self.inputs += 1;
        let input = self.inputs;
        let Role::Serves { log, cta_replica, .. } = &mut self.process(who).role else { return };
        log.inputs.push(input);
        let (replicated, waits) = (cta_replica.is_some(), cta_replica.as_ref().is_some_and(|m| m.waits));
        let all = log.len();
        if replicated {
            self.send_standby(ToStandby::Record(input));
        }
        if !waits {
            self.leave(who, all);
        }
    }

    fn hear_standby(&mut self) {
        let Some(link) = &mut self.link else { return };
        let who = link.standby;
        let Some(message) = link.to_standby.pop_front() else { return };
        let Role::Stands { standby, log } = &mut self.process(who).role else { return };
        match message {
            ToStandby::Begin => {
                standby.begun();
            }
            ToStandby::Snapshot(snapshot) => {
                standby.whole();
                let held = snapshot.len();
                *log = Some(snapshot);
                self.send_serving(ToServing::Held(held));
            }
            ToStandby::Record(input) => {
                let Some(log) = log else { return };
                log.inputs.push(input);
                let held = log.len();
                self.send_serving(ToServing::Held(held));
            }
        }
    }

    fn hear_serving(&mut self) {
        let Some(link) = &mut self.link else { return };
        let who = 1 - link.standby;
        let Some(message) = link.to_serving.pop_front() else { return };
        let process = self.process(who);
        let Role::Serves { serving, log, cta_replica, .. } = &mut process.role else { return };
        match message {
            ToServing::Follow(other) => {
                let listed = process.view.listed[usize::from(other.cta)] == Some(other.incarnation.0);
                if serving.follows(other, listed) {
                    *cta_replica = Some(CtaReplica { waits: false, held: log.len() });
                    let snapshot = ToStandby::Snapshot(log.clone());
                    self.send_standby(ToStandby::Begin);
                    self.send_standby(snapshot);
                } else {
                    let duties = serving.lost();
                    self.hang_up(who);
                    self.duties(who, duties);
                }
            }
            ToServing::Held(number) => {
                let last = log.len();
                let Some(cta_replica) = cta_replica else { return };
                cta_replica.held = number;
                let waits = cta_replica.waits;
                let duties = serving.held(number, last);
                if waits {
                    self.leave(who, number);
                }
                self.duties(who, duties);
            }
        }
    }

    fn claimed(&mut self, who: usize, outcome: Result<Home, ClaimError>) {
        let Some(Asked { claim, .. }) = self.process(who).asked.pop_front() else { return };
        match &mut self.process(who).role {
            Role::Stands { standby, .. } => {
                let step = standby.claimed(claim, outcome);
                self.step(who, step);
            }
            Role::Serves { serving, .. } => {
                let duties = serving.claimed(claim, outcome);
                self.duties(who, duties);
            }
        }
    }

    /// Etcd shows all that it has; then the first claim goes on, if there is one.
    fn shown(&mut self, who: usize, asks: bool) {
        let etcd = self.etcd.clone();
        let process = self.process(who);
        process.view = etcd;
        if asks && let Some(asked) = process.asked.front_mut() {
            let listed = |place: &CtaInstance| {
                process.view.listed[usize::from(place.cta)] == Some(place.incarnation.0)
            };
            let me = place(who, process.life);
            let (before, proposed) = (process.view.home.as_ref(), asked.proposed.as_ref());
            match Home::course(before, me, asked.claim, proposed, listed) {
                Ok(ClaimAction::Granted(home)) => self.claimed(who, Ok(home)),
                Ok(ClaimAction::Write(home)) => {
                    asked.proposed = Some(home);
                    asked.swap = Some(process.view.revision);
                }
                Err(why) => self.claimed(who, Err(why)),
            }
        }
        let Some(process) = &mut self.processes[who] else { return };
        if let Role::Serves { serving, .. } = &mut process.role {
            let duties = serving.home(process.view.home.as_ref());
            self.duties(who, duties);
        }
    }

    fn write(&mut self, expected: u8, home: Home) {
        if expected == self.etcd.revision {
            self.etcd.revision += 1;
            self.etcd.home = Some(home);
        }
    }

    /// Whom the record names, if it serves, or is just about to with what it holds.
    fn current(&self) -> Option<&Log> {
        let home = self.etcd.home?;
        let who = usize::from(home.primary.cta);
        let process = self.processes[who].as_ref().filter(|p| place(who, p.life) == home.primary)?;
        match &process.role {
            Role::Serves { log, .. } => Some(log),
            Role::Stands { standby, log } => log.as_ref().filter(|_| standby.is_promoting()),
        }
    }

    /// One serves, the other one holds all that it has, and nothing waits.
    fn is_whole(&self) -> bool {
        let Some(home) = self.etcd.home else { return false };
        let who = usize::from(home.primary.cta);
        let [Some(active), Some(other)] = [&self.processes[who], &self.processes[1 - who]] else {
            return false;
        };
        let (Role::Serves { serving, log, left, .. }, Role::Stands { log: Some(held), .. }) =
            (&active.role, &other.role)
        else {
            return false;
        };
        let pair =
            (home.primary, home.cta_replica) == (place(who, active.life), Some(place(1 - who, other.life)));
        pair && serving.has_cta_replica() && *left == log.len() && log == held
    }
}

impl Model for Pair {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let listed = [Some(1), Some(2)];
        let process = |life| {
            let view = Record { listed, ..Record::default() };
            let role = Role::Stands { standby: ReplicaRole::default(), log: None };
            Some(Process { life, view, asked: VecDeque::new(), role })
        };
        vec![World {
            etcd: Record { listed, ..Record::default() },
            processes: [process(1), process(2)],
            link: None,
            late: Vec::new(),
            lives: 2,
            epoch: 0,
            inputs: 0,
            left: BTreeSet::new(),
            stale: false,
            deaths: 0,
            cuts: 0,
            silences: 0,
            expiries: 0,
            faults: 0,
        }]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        if let Some(link) = &world.link {
            let up = |who: usize| link.up[who];
            if up(link.standby) && !link.to_standby.is_empty() {
                acts.push(Act::HearStandby);
            }
            if up(1 - link.standby) && !link.to_serving.is_empty() {
                acts.push(Act::HearServing);
            }
            acts.extend((0..2).filter(|&who| up(who) && !link.whole).map(Act::Notice));
            if link.whole && world.cuts < self.cuts {
                acts.push(Act::Cut);
            }
        }
        for who in 0..2 {
            let Some(process) = &world.processes[who] else {
                acts.push(if world.etcd.listed[who].is_some() { Act::Lapse(who) } else { Act::Begin(who) });
                continue;
            };
            match &process.role {
                Role::Serves { .. } if world.inputs < self.inputs => acts.push(Act::Input(who)),
                Role::Stands { standby, .. } => {
                    if standby.is_looking() {
                        acts.push(Act::Look(who));
                    }
                    if (standby.is_promoting() || world.link.as_ref().is_some_and(|l| l.standby == who))
                        && world.faults < self.faults
                    {
                        acts.push(Act::Fault(who));
                    }
                }
                Role::Serves { .. } => {}
            }
            if let Some(asked) = process.asked.front() {
                acts.push(if asked.swap.is_some() { Act::Swap(who) } else { Act::Ask(who) });
                if world.silences < self.silences {
                    acts.push(Act::Silence(who));
                }
            }
            if process.view != world.etcd {
                acts.push(Act::Watch(who));
            }
            match world.etcd.listed[who] {
                Some(_) if world.expiries < self.expiries => acts.push(Act::Expire(who)),
                None => acts.push(Act::List(who)),
                Some(_) => {}
            }
            if world.deaths < self.deaths {
                acts.push(Act::Die(who));
            }
        }
        acts.extend((0..world.late.len()).map(Act::Late));
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut w = world.clone();
        match act {
            Act::Input(who) => w.input(who),
            Act::HearStandby => w.hear_standby(),
            Act::HearServing => w.hear_serving(),
            Act::Notice(who) => w.lost(who),
            Act::Look(who) => {
                let process = w.process(who);
                let (me, home) = (place(who, process.life), process.view.home);
                let Role::Stands { standby, .. } = &mut process.role else { return None };
                let step = standby.look(me, home.as_ref());
                w.step(who, step);
            }
            Act::Ask(who) => w.shown(who, true),
            Act::Swap(who) => {
                let asked = w.process(who).asked.front_mut()?;
                let (expected, home) = (asked.swap.take()?, asked.proposed?);
                w.write(expected, home);
                w.shown(who, true);
            }
            Act::Watch(who) => w.shown(who, false),
            Act::List(who) => w.etcd.listed[who] = Some(w.process(who).life),
            Act::Lapse(who) => w.etcd.listed[who] = None,
            Act::Begin(who) => {
                w.lives += 1;
                let life = w.lives;
                w.etcd.listed[who] = Some(life);
                let role = Role::Stands { standby: ReplicaRole::default(), log: None };
                let view = w.etcd.clone();
                w.processes[who] = Some(Process { life, view, asked: VecDeque::new(), role });
            }
            Act::Late(which) => {
                let (expected, home) = w.late.remove(which);
                w.write(expected, home);
            }
            Act::Cut => {
                w.cuts += 1;
                w.link.as_mut()?.whole = false;
            }
            Act::Silence(who) => {
                w.silences += 1;
                let asked = w.process(who).asked.front()?.clone();
                w.late.extend(asked.under_way());
                w.claimed(who, Err(ClaimError::NoAnswer));
            }
            Act::Expire(who) => {
                w.expiries += 1;
                w.etcd.listed[who] = None;
            }
            Act::Fault(who) => {
                w.faults += 1;
                let Role::Stands { standby, .. } = &mut w.process(who).role else { return None };
                let step = standby.give_up();
                w.step(who, step);
            }
            Act::Die(who) => {
                w.deaths += 1;
                // What it asked for may still be heard.
                let asked = std::mem::take(&mut w.process(who).asked);
                w.late.extend(asked.iter().filter_map(Asked::under_way));
                w.hang_up(who);
                w.processes[who] = None;
            }
        }
        // What expects a former record comes to nothing.
        let revision = w.etcd.revision;
        w.late.retain(|(expected, ..)| *expected == revision);
        (w != *world).then_some(w)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("who serves knows all that has left", |_, world: &World| {
                let known =
                    |log: &Log| log.epoch != world.epoch || world.left.iter().all(|i| log.inputs.contains(i));
                world.current().is_none_or(known)
            }),
            Property::always("nobody goes on alone with what is forgotten", |_, world: &World| !world.stale),
            Property::always("UEs begin anew only after a death or a fault", |_, world: &World| {
                u32::from(world.epoch)
                    <= 1 + u32::from(world.deaths) + u32::from(world.faults) + u32::from(world.expiries)
            }),
            Property::sometimes("a CTA replica serves in the other one's place", |_, world: &World| {
                world.etcd.home.is_some_and(|h| h.primary.cta == 1)
                    && world.current().is_some_and(|log| !log.inputs.is_empty())
            }),
            Property::sometimes("one that lost its CTA replica has it again", |_, world: &World| {
                world.is_whole() && world.etcd.home.is_some_and(|h| h.term >= 4)
            }),
        ]
    }
}

/// Whether from every state, whatever went wrong on the way to it, the pair can become whole when nothing goes wrong any more. Gives how
/// many states there are.
fn becomes_whole(pair: &Pair) -> usize {
    let mut graph = Graph::default();
    for world in pair.init_states() {
        graph.add(world, None);
    }
    let (mut next, mut acts) = (0, Vec::new());
    while let Some(world) = graph.states.get(next).cloned() {
        pair.actions(&world, &mut acts);
        for act in acts.drain(..) {
            let fault = act.is_fault();
            if let Some(then) = pair.next_state(&world, act.clone()) {
                let then = graph.add(then, Some((next, act)));
                if !fault {
                    graph.before[then].push(next as u32);
                }
            }
        }
        next += 1;
    }
    let mut can: Vec<bool> = graph.states.iter().map(World::is_whole).collect();
    let mut open: Vec<usize> = (0..can.len()).filter(|&at| can[at]).collect();
    while let Some(at) = open.pop() {
        for &before in &graph.before[at] {
            if !std::mem::replace(&mut can[before as usize], true) {
                open.push(before as usize);
            }
        }
    }
    if let Some(stuck) = can.iter().position(|can| !can) {
        panic!("after {:#?} this stays so: {:#?}", graph.path(stuck), graph.states[stuck]);
    }
    can.len()
}

/// Every state, how it was come to first, and from which others without a fault.
#[derive(Default)]
struct Graph {
    known: BTreeMap<u64, usize>,
    states: Vec<World>,
    came: Vec<Option<(usize, Act)>>,
    before: Vec<Vec<u32>>,
}

impl Graph {
    fn add(&mut self, world: World, came: Option<(usize, Act)>) -> usize {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        let at = *self.known.entry(hasher.finish()).or_insert(self.states.len());
        if at == self.states.len() {
            self.states.push(world);
            self.came.push(came);
            self.before.push(Vec::new());
        }
        at
    }

    fn path(&self, mut to: usize) -> Vec<&Act> {
        let mut path = Vec::new();
        while let Some((before, act)) = &self.came[to] {
            path.push(act);
            to = *before;
        }
        path.reverse();
        path
    }
}

fn explore(pair: Pair) {
    let checker = pair.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn links_that_end_and_claims_that_get_no_answer() {
    explore(Pair { inputs: 2, deaths: 0, cuts: 2, silences: 2, expiries: 0, faults: 0 });
}

#[test]
fn processes_that_die() {
    explore(Pair { inputs: 2, deaths: 2, cuts: 1, silences: 0, expiries: 0, faults: 0 });
}

#[test]
fn whatever_goes_wrong_the_pair_can_become_whole_again() {
    let none = Pair { inputs: 1, deaths: 0, cuts: 0, silences: 0, expiries: 0, faults: 0 };
    for pair in [
        Pair { deaths: 1, cuts: 1, ..none },
        Pair { deaths: 1, silences: 1, ..none },
        Pair { deaths: 1, expiries: 1, ..none },
        Pair { deaths: 1, faults: 1, ..none },
        Pair { cuts: 1, silences: 2, ..none },
        Pair { cuts: 1, expiries: 1, faults: 1, ..none },
    ] {
        println!("{} states", becomes_whole(&pair));
    }
}
