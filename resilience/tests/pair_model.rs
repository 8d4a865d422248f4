//! Two CTAs and etcd, tried in every order: links that end and that only one end has noticed, claims whose answers are lost
//! and that come into effect late or never, leases that run out, processes that die and come again.
//!
//! What they decide is the product's own: [`PrimaryRole`], [`ReplicaRole`] and [`CtaHome::course`] run here as they run in the program. Their logs are
//! lists of inputs, and what has left is a set of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::{Checker, Model, Property};
use whimbrel_resilience::detector::Incarnation;
use whimbrel_resilience::membership::{ClaimAction, ClaimError, CtaHome, CtaInstance, HomeClaim};
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
enum ToReplica {
    Begin,
    Snapshot(Log),
    Record(Input),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ToPrimary {
    Follow(CtaInstance),
    Held(u64),
}

/// The link from the one that called, `replica`, to the other. `up`: which of the ends has not noticed its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Link {
    replica: usize,
    up: [bool; 2],
    whole: bool,
    to_replica: VecDeque<ToReplica>,
    to_primary: VecDeque<ToPrimary>,
}

/// The home's record, its revision, and which lives are listed; at etcd, and as a process knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Record {
    revision: u8,
    home: Option<CtaHome>,
    listed: [Option<u64>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    claim: HomeClaim,
    proposed: Option<CtaHome>,
    /// It is under way to etcd, with the revision that it expects.
    swap: Option<u8>,
}

impl Asked {
    fn under_way(&self) -> Option<(u8, CtaHome)> {
        Some((self.swap?, self.proposed?))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    Stands { replica: ReplicaRole, log: Option<Log> },
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
    late: Vec<(u8, CtaHome)>,
    lives: u64,
    epoch: u8,
    inputs: u8,
    /// Of this epoch.
    left: BTreeSet<Input>,
    /// A CTA sent outputs after its term had ended.
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
    HearReplica,
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

fn place(node: usize, life: u64) -> CtaInstance {
    CtaInstance { cta: node as u16, incarnation: Incarnation(life) }
}

impl World {
    fn process(&mut self, node: usize) -> &mut Process {
        self.processes[node].as_mut().expect("it lives")
    }

    /// Ends that end of the link.
    fn hang_up(&mut self, node: usize) {
        if let Some(link) = &mut self.link {
            link.up[node] = false;
            link.whole = false;
            if link.up == [false; 2] {
                self.link = None;
            }
        }
    }

    fn send_replica(&mut self, message: ToReplica) {
        if let Some(link) = self.link.as_mut().filter(|l| l.whole) {
            link.to_replica.push_back(message);
        }
    }

    fn send_serving(&mut self, message: ToPrimary) {
        if let Some(link) = self.link.as_mut().filter(|l| l.whole) {
            link.to_primary.push_back(message);
        }
    }

    /// What the inputs up to this one caused leaves.
    fn leave(&mut self, node: usize, until: u64) {
        let epoch = self.epoch;
        let Role::Serves { log, left, cta_replica, .. } = &mut self.process(node).role else {
            unreachable!("only the primary sends outputs")
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

    fn actions(&mut self, node: usize, actions: Vec<PrimaryAction>) {
        for duty in actions {
            match duty {
                PrimaryAction::HoldOutputs => {
                    if let Role::Serves { cta_replica: Some(cta_replica), .. } = &mut self.process(node).role
                    {
                        cta_replica.waits = true;
                    }
                }
                PrimaryAction::ReleaseOutputs => {
                    let Role::Serves { log, cta_replica, .. } = &mut self.process(node).role else {
                        continue;
                    };
                    *cta_replica = None;
                    let all = log.len();
                    self.leave(node, all);
                }
                PrimaryAction::CloseLink => self.hang_up(node),
                PrimaryAction::Claim(claim) => self.ask(node, claim),
                PrimaryAction::ReplicaReady(_) | PrimaryAction::NoReplica => {}
                PrimaryAction::Stop => {
                    self.hang_up(node);
                    self.process(node).role = Role::Stands { replica: ReplicaRole::default(), log: None };
                    break;
                }
            }
        }
    }

    fn ask(&mut self, node: usize, claim: HomeClaim) {
        self.process(node).asked.push_back(Asked { claim, proposed: None, swap: None });
    }

    fn step(&mut self, node: usize, step: Option<ReplicaAction>) {
        let Some(step) = step else { return };
        match step {
            ReplicaAction::Connect(to) => {
                let other = 1 - node;
                let there = self.processes[other]
                    .as_ref()
                    .is_some_and(|p| matches!(p.role, Role::Serves { .. }) && place(other, p.life) == to);
                if there && self.link.is_none() {
                    let follow = ToPrimary::Follow(place(node, self.process(node).life));
                    self.link = Some(Link {
                        replica: node,
                        up: [true; 2],
                        whole: true,
                        to_replica: VecDeque::new(),
                        to_primary: [follow].into(),
                    });
                } else {
                    self.replica_link_lost(node);
                }
            }
            ReplicaAction::Claim(claim) => self.ask(node, claim),
            ReplicaAction::Rejoin => {
                self.lives += 1;
                let life = self.lives;
                self.etcd.listed[node] = Some(life);
                let process = self.process(node);
                process.life = life;
                process.view.listed[node] = Some(life);
            }
            ReplicaAction::Discard => {
                if let Role::Stands { log, .. } = &mut self.process(node).role {
                    *log = None;
                }
                if self.link.as_ref().is_some_and(|l| l.replica == node) {
                    self.hang_up(node);
                }
            }
            ReplicaAction::Serve(home) => self.serve(node, &home),
        }
    }

    fn serve(&mut self, node: usize, home: &CtaHome) {
        let fresh = self.epoch + 1;
        let Role::Stands { log, .. } = &mut self.process(node).role else { unreachable!("it stands by") };
        let log = log.take().unwrap_or(Log { epoch: fresh, inputs: Vec::new() });
        if log.epoch == fresh {
            self.epoch = fresh;
            self.left.clear();
        }
        // What is not known to have left is sent again.
        let serving = PrimaryRole::new(home);
        let all = log.len();
        self.process(node).role = Role::Serves { serving, log, left: 0, cta_replica: None };
        self.leave(node, all);
    }

    fn replica_link_lost(&mut self, node: usize) {
        if let Role::Stands { replica, .. } = &mut self.process(node).role {
            let step = replica.lost();
            let asks = matches!(step, Some(ReplicaAction::Claim(_)));
            self.step(node, step);
            if asks && self.link.as_ref().is_some_and(|l| l.replica == node) {
                self.hang_up(node);
            }
        }
    }

    /// The link has ended, as seen by that one.
    fn lost(&mut self, node: usize) {
        if self.link.as_ref().is_some_and(|l| l.replica == node) {
            self.hang_up(node);
            return self.replica_link_lost(node);
        }
        self.hang_up(node);
        if let Role::Serves { serving, .. } = &mut self.process(node).role {
            let actions = serving.lost();
            self.actions(node, actions);
        }
    }

    fn input(&mut self, node: usize) {
        self.inputs += 1;
        let input = self.inputs;
        let Role::Serves { log, cta_replica, .. } = &mut self.process(node).role else { return };
        log.inputs.push(input);
        let (replicated, waits) = (cta_replica.is_some(), cta_replica.as_ref().is_some_and(|m| m.waits));
        let all = log.len();
        if replicated {
            self.send_replica(ToReplica::Record(input));
        }
        if !waits {
            self.leave(node, all);
        }
    }

    fn replica_receives(&mut self) {
        let Some(link) = &mut self.link else { return };
        let node = link.replica;
        let Some(message) = link.to_replica.pop_front() else { return };
        let Role::Stands { replica, log } = &mut self.process(node).role else { return };
        match message {
            ToReplica::Begin => {
                replica.begun();
            }
            ToReplica::Snapshot(snapshot) => {
                replica.whole();
                let held = snapshot.len();
                *log = Some(snapshot);
                self.send_serving(ToPrimary::Held(held));
            }
            ToReplica::Record(input) => {
                let Some(log) = log else { return };
                log.inputs.push(input);
                let held = log.len();
                self.send_serving(ToPrimary::Held(held));
            }
        }
    }

    fn hear_serving(&mut self) {
        let Some(link) = &mut self.link else { return };
        let node = 1 - link.replica;
        let Some(message) = link.to_primary.pop_front() else { return };
        let process = self.process(node);
        let Role::Serves { serving, log, cta_replica, .. } = &mut process.role else { return };
        match message {
            ToPrimary::Follow(other) => {
                let listed = process.view.listed[usize::from(other.cta)] == Some(other.incarnation.0);
                if serving.follows(other, listed) {
                    *cta_replica = Some(CtaReplica { waits: false, held: log.len() });
                    let snapshot = ToReplica::Snapshot(log.clone());
                    self.send_replica(ToReplica::Begin);
                    self.send_replica(snapshot);
                } else {
                    let actions = serving.lost();
                    self.hang_up(node);
                    self.actions(node, actions);
                }
            }
            ToPrimary::Held(number) => {
                let last = log.len();
                let Some(cta_replica) = cta_replica else { return };
                cta_replica.held = number;
                let waits = cta_replica.waits;
                let actions = serving.held(number, last);
                if waits {
                    self.leave(node, number);
                }
                self.actions(node, actions);
            }
        }
    }

    fn claimed(&mut self, node: usize, outcome: Result<CtaHome, ClaimError>) {
        let Some(Asked { claim, .. }) = self.process(node).asked.pop_front() else { return };
        match &mut self.process(node).role {
            Role::Stands { replica, .. } => {
                let step = replica.claimed(claim, outcome);
                self.step(node, step);
            }
            Role::Serves { serving, .. } => {
                let actions = serving.claimed(claim, outcome);
                self.actions(node, actions);
            }
        }
    }

    /// Etcd shows all that it has; then the first claim goes on, if there is one.
    fn shown(&mut self, node: usize, asks: bool) {
        let etcd = self.etcd.clone();
        let process = self.process(node);
        process.view = etcd;
        if asks && let Some(asked) = process.asked.front_mut() {
            let listed = |place: &CtaInstance| {
                process.view.listed[usize::from(place.cta)] == Some(place.incarnation.0)
            };
            let me = place(node, process.life);
            let (before, proposed) = (process.view.home.as_ref(), asked.proposed.as_ref());
            match CtaHome::course(before, me, asked.claim, proposed, listed) {
                Ok(ClaimAction::Granted(home)) => self.claimed(node, Ok(home)),
                Ok(ClaimAction::Write(home)) => {
                    asked.proposed = Some(home);
                    asked.swap = Some(process.view.revision);
                }
                Err(why) => self.claimed(node, Err(why)),
            }
        }
        let Some(process) = &mut self.processes[node] else { return };
        if let Role::Serves { serving, .. } = &mut process.role {
            let actions = serving.home(process.view.home.as_ref());
            self.actions(node, actions);
        }
    }

    fn write(&mut self, expected: u8, home: CtaHome) {
        if expected == self.etcd.revision {
            self.etcd.revision += 1;
            self.etcd.home = Some(home);
        }
    }

    /// The CTA that the record names, if it is primary, or about to be with the log that it holds.
    fn current(&self) -> Option<&Log> {
        let home = self.etcd.home?;
        let node = usize::from(home.primary.cta);
        let process = self.processes[node].as_ref().filter(|p| place(node, p.life) == home.primary)?;
        match &process.role {
            Role::Serves { log, .. } => Some(log),
            Role::Stands { replica, log } => log.as_ref().filter(|_| replica.is_promoting()),
        }
    }

    /// One serves, the other one holds all that it has, and nothing waits.
    fn is_whole(&self) -> bool {
        let Some(home) = self.etcd.home else { return false };
        let node = usize::from(home.primary.cta);
        let [Some(active), Some(other)] = [&self.processes[node], &self.processes[1 - node]] else {
            return false;
        };
        let (Role::Serves { serving, log, left, .. }, Role::Stands { log: Some(held), .. }) =
            (&active.role, &other.role)
        else {
            return false;
        };
        let pair =
            (home.primary, home.cta_replica) == (place(node, active.life), Some(place(1 - node, other.life)));
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
            let role = Role::Stands { replica: ReplicaRole::default(), log: None };
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
            let up = |node: usize| link.up[node];
            if up(link.replica) && !link.to_replica.is_empty() {
                acts.push(Act::HearReplica);
            }
            if up(1 - link.replica) && !link.to_primary.is_empty() {
                acts.push(Act::HearServing);
            }
            acts.extend((0..2).filter(|&node| up(node) && !link.whole).map(Act::Notice));
            if link.whole && world.cuts < self.cuts {
                acts.push(Act::Cut);
            }
        }
        for node in 0..2 {
            let Some(process) = &world.processes[node] else {
                acts.push(if world.etcd.listed[node].is_some() {
                    Act::Lapse(node)
                } else {
                    Act::Begin(node)
                });
                continue;
            };
            match &process.role {
                Role::Serves { .. } if world.inputs < self.inputs => acts.push(Act::Input(node)),
                Role::Stands { replica, .. } => {
                    if replica.is_looking() {
                        acts.push(Act::Look(node));
                    }
                    if (replica.is_promoting() || world.link.as_ref().is_some_and(|l| l.replica == node))
                        && world.faults < self.faults
                    {
                        acts.push(Act::Fault(node));
                    }
                }
                Role::Serves { .. } => {}
            }
            if let Some(asked) = process.asked.front() {
                acts.push(if asked.swap.is_some() { Act::Swap(node) } else { Act::Ask(node) });
                if world.silences < self.silences {
                    acts.push(Act::Silence(node));
                }
            }
            if process.view != world.etcd {
                acts.push(Act::Watch(node));
            }
            match world.etcd.listed[node] {
                Some(_) if world.expiries < self.expiries => acts.push(Act::Expire(node)),
                None => acts.push(Act::List(node)),
                Some(_) => {}
            }
            if world.deaths < self.deaths {
                acts.push(Act::Die(node));
            }
        }
        acts.extend((0..world.late.len()).map(Act::Late));
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut w = world.clone();
        match act {
            Act::Input(node) => w.input(node),
            Act::HearReplica => w.replica_receives(),
            Act::HearServing => w.hear_serving(),
            Act::Notice(node) => w.lost(node),
            Act::Look(node) => {
                let process = w.process(node);
                let (me, home) = (place(node, process.life), process.view.home);
                let Role::Stands { replica, .. } = &mut process.role else { return None };
                let step = replica.look(me, home.as_ref());
                w.step(node, step);
            }
            Act::Ask(node) => w.shown(node, true),
            Act::Swap(node) => {
                let asked = w.process(node).asked.front_mut()?;
                let (expected, home) = (asked.swap.take()?, asked.proposed?);
                w.write(expected, home);
                w.shown(node, true);
            }
            Act::Watch(node) => w.shown(node, false),
            Act::List(node) => w.etcd.listed[node] = Some(w.process(node).life),
            Act::Lapse(node) => w.etcd.listed[node] = None,
            Act::Begin(node) => {
                w.lives += 1;
                let life = w.lives;
                w.etcd.listed[node] = Some(life);
                let role = Role::Stands { replica: ReplicaRole::default(), log: None };
                let view = w.etcd.clone();
                w.processes[node] = Some(Process { life, view, asked: VecDeque::new(), role });
            }
            Act::Late(which) => {
                let (expected, home) = w.late.remove(which);
                w.write(expected, home);
            }
            Act::Cut => {
                w.cuts += 1;
                w.link.as_mut()?.whole = false;
            }
            Act::Silence(node) => {
                w.silences += 1;
                let asked = w.process(node).asked.front()?.clone();
                w.late.extend(asked.under_way());
                w.claimed(node, Err(ClaimError::NoAnswer));
            }
            Act::Expire(node) => {
                w.expiries += 1;
                w.etcd.listed[node] = None;
            }
            Act::Fault(node) => {
                w.faults += 1;
                let Role::Stands { replica, .. } = &mut w.process(node).role else { return None };
                let step = replica.give_up();
                w.step(node, step);
            }
            Act::Die(node) => {
                w.deaths += 1;
                // What it asked for may still be heard.
                let asked = std::mem::take(&mut w.process(node).asked);
                w.late.extend(asked.iter().filter_map(Asked::under_way));
                w.hang_up(node);
                w.processes[node] = None;
            }
        }
        // What expects a former record comes to nothing.
        let revision = w.etcd.revision;
        w.late.retain(|(expected, ..)| *expected == revision);
        (w != *world).then_some(w)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the primary knows all that has left", |_, world: &World| {
                let known =
                    |log: &Log| log.epoch != world.epoch || world.left.iter().all(|i| log.inputs.contains(i));
                world.current().is_none_or(known)
            }),
            Property::always("no CTA continues alone with lost state", |_, world: &World| !world.stale),
            Property::always("UEs begin again only after a death or a fault", |_, world: &World| {
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
