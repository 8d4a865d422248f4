//! The replication protocol, tried in every order: UEs, a CTA with or without a CTA replica, a few CPFs, links that
//! keep their order, states that are lost and overtake each other, UEs that move, nodes that die and such as only seem to, control
//! functions that leave in order and others that come, replicas that lag.
//!
//! The transitions are the product's own: [`nodes`] has its CTA, its CTA replica and its CPFs with all that they are made of, down to the
//! octets of every link, and real UEs' messages ([`script`]). What is the model's own stands in this file: which message arrives next, and
//! which process is lost. What a gNB receives is compared with what it receives where nothing goes wrong, octet by octet.

mod nodes;
mod script;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use stateright::{Checker, Model, Property};
use whimbrel_control::UeId;
use whimbrel_control::config::Config;
use whimbrel_ids::Instant;
use whimbrel_resilience::LogLimits;
use whimbrel_resilience::replication::{CpfId, UeLogLimits};
use whimbrel_sim::default_config;

use nodes::{In, NodeRef, Nodes, Octets, Out, Terms, sender};
use script::{Part, rehearse};

/// What may befall the small network.
#[derive(Clone, Copy)]
struct Bound {
    ues: usize,
    cpfs: u16,
    backups: usize,
    /// Messages of each UE.
    inputs: usize,
    /// Deaths and false alarms of CPFs together.
    failures: u8,
    /// Whether there are false alarms.
    alarms: bool,
    /// The same of the CTA, which has a CTA replica if there are any.
    cta_failures: u8,
    cta_replica: bool,
    /// States that the network loses.
    losses: u8,
    /// Times that a UE is to be served by another CPF.
    moves: u8,
    /// CPFs that leave in order.
    drains: u8,
    /// CPFs that come.
    joins: u16,
    /// If time passes: the CTA does what is due when nothing is under way, and so often while something is.
    looks: Option<u8>,
    /// How much later that is each time.
    tick: Duration,
    /// How long a log waits for a replica that lags.
    outdated_after: Duration,
    /// Inputs of a UE's log that are kept, at most.
    log: usize,
    hasty: bool,
}

struct Network {
    bound: Bound,
    nodes: Nodes,
    parts: Vec<Part>,
    began: Instant,
}

/// A CPF and its links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cpf {
    node: NodeRef,
    lives: bool,
    /// It is to leave in order; it has.
    drains: bool,
    left: bool,
    /// The CTA listens to it.
    trusted: bool,
    /// Its link leads to the CTA that serves.
    settled: bool,
    down: VecDeque<(u64, Octets)>,
    up: VecDeque<(u64, Octets)>,
    trials: VecDeque<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ue {
    /// How many of its messages have come.
    sent: usize,
    /// How much of it its gNB has received.
    received: usize,
    /// No CPF could take it over.
    lost: bool,
    /// Which of its messages are which inputs of the CTA: those that the CTA replica may lack.
    unsafe_inputs: VecDeque<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    cta: NodeRef,
    cta_replica: Option<NodeRef>,
    records: VecDeque<(Octets, u64)>,
    held: VecDeque<u64>,
    /// One that was replaced and does not know it: what it may still say is what its CTA replica has confirmed already.
    replaced: Option<(NodeRef, VecDeque<u64>)>,
    cpfs: BTreeMap<CpfId, Cpf>,
    between: BTreeSet<(CpfId, Octets)>,
    /// Ends of a link that has ended, with what was lost, and no other one is there yet.
    broken: BTreeSet<(CpfId, CpfId)>,
    ues: Vec<Ue>,
    ticks: u32,
    /// When all was quiet, there was nothing to do any more.
    idled: bool,
    failures: u8,
    /// Of these, those since all backups had all UEs' states last.
    recent: u8,
    cta_failures: u8,
    losses: u8,
    moves: u8,
    drains: u8,
    looks: u8,
    /// What must never be.
    wrong: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Input(usize),
    ToCpf(CpfId),
    ToCta(CpfId),
    Tried(CpfId),
    ToCtaReplica,
    FromCtaReplica,
    ToReplaced,
    /// Of what is between CPFs, the n-th.
    Arrives(usize),
    IsLost(usize),
    /// A link that ended is there again.
    Reaches(CpfId, CpfId),
    Dies(CpfId),
    SeemsDead(CpfId),
    CtaDies,
    CtaSeemsDead,
    /// A CTA that has taken over finds out by itself.
    IsMissed(CpfId),
    Resumes(CpfId),
    Tick,
    Moves(usize, CpfId),
    Drains(CpfId),
    Joins(CpfId),
}

/// The sender of a message to a gNB.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaker {
    Serves,
    /// It has just taken over, and repeats what may not have been sent.
    InDoubt,
    Replaced,
}

/// The simulation's configuration without the release of unused connections: schedules differ in how many ticks pass, and the messages to the gNB are
/// compared with those of the one where nothing goes wrong.
fn config() -> Config {
    let mut config = default_config();
    let never = Duration::from_secs(3600);
    (config.timers.connection_idle, config.timers.follow_on) = (never, never);
    config
}

impl Network {
    fn new(bound: Bound) -> Self {
        let ue = UeLogLimits { inputs: bound.log, ..UeLogLimits::default() };
        let terms = Terms {
            config: Arc::new(config()),
            backups: bound.backups,
            logs: LogLimits { ue, outdated_after: bound.outdated_after, ..LogLimits::default() },
            hasty: bound.hasty,
        };
        let beginning = rehearse(&terms, bound.ues, bound.cpfs);
        let roots = beginning.roots(&terms, bound.cta_replica, bound.joins);
        let (began, parts) = (beginning.time, beginning.parts);
        Self { bound, nodes: Nodes::new(terms, roots), parts, began }
    }

    fn id(&self, ue: usize) -> UeId {
        self.parts[ue].id.expect("it is registered")
    }

    /// The CTA hears something.
    fn cta(&self, state: &mut State, heard: &In) {
        let (cta, out) = self.nodes.hear(&state.cta, heard);
        state.cta = cta;
        self.leaves(state, &out, Speaker::Serves);
    }

    /// The outputs that leave a CTA.
    fn leaves(&self, state: &mut State, out: &Out, speaker: Speaker) {
        state.wrong = state.wrong.or(out.wrong);
        for octets in &out.ngap {
            self.gnb_receives(state, octets, speaker);
        }
        if speaker == Speaker::Replaced {
            return;
        }
        for (to, taken, octets) in &out.down {
            if let Some(cpf) = state.cpfs.get_mut(to).filter(|c| c.settled) {
                cpf.down.push_back((*taken, octets.clone()));
            }
        }
        if state.cta_replica.is_some() {
            state.records.extend(out.records.iter().cloned());
        }
        out.drained.iter().for_each(|id| self.goes(state, *id));
    }

    /// A CPF has nothing any more, and goes.
    fn goes(&self, state: &mut State, id: CpfId) {
        let mut served = state.cta.facts.served.values();
        if served.any(|(by, backups)| *by == id || backups.contains(&id)) {
            state.wrong = Some("a drained CPF still has UEs");
        }
        let Some(cpf) = state.cpfs.get_mut(&id).filter(|cpf| cpf.trusted) else { return };
        let gone = Cpf { lives: false, trusted: false, left: true, ..self.fresh(id) };
        *cpf = Cpf { node: cpf.node.clone(), ..gone };
        self.is_lost(state, id);
    }

    /// The gNB receives a message.
    fn gnb_receives(&self, state: &mut State, octets: &Octets, speaker: Speaker) {
        let whose = |p: &Part| p.received.iter().position(|received| received == octets);
        let of = self.parts.iter().enumerate().find_map(|(n, part)| Some((n, whose(part)?)));
        let lost = state.cta.facts.lost > 0;
        match of {
            Some((n, at)) if at == state.ues[n].received && speaker != Speaker::Replaced => {
                state.ues[n].received += 1;
            }
            Some((n, at)) if at < state.ues[n].received && speaker != Speaker::Serves => {}
            Some((n, at)) if at < state.ues[n].received => state.wrong = Some("sent twice"),
            Some(_) => state.wrong = Some("sent out of order, or by a replaced CTA"),
            None if lost => state.ues.iter_mut().for_each(|p| p.lost = true),
            None => state.wrong = Some("an answer that no UE gets where nothing goes wrong"),
        }
    }

    fn cpf(&self, state: &mut State, id: CpfId, heard: &In) {
        let Some(cpf) = state.cpfs.get_mut(&id).filter(|c| c.lives) else { return };
        let (node, out) = self.nodes.hear(&cpf.node, heard);
        cpf.node = node;
        state.wrong = state.wrong.or(out.wrong);
        cpf.up.extend(out.up.iter().cloned());
        cpf.trials.extend(&out.trials);
        state.between.extend(out.peers.iter().cloned());
        self.fenced(state, id);
    }

    /// What one says that was given up comes at once: it changes nothing, whenever it comes.
    fn fenced(&self, state: &mut State, id: CpfId) {
        let Some(cpf) = state.cpfs.get_mut(&id).filter(|c| !c.trusted && c.settled) else { return };
        for (has, octets) in std::mem::take(&mut cpf.up) {
            self.cta(state, &In::Up { from: id, has, octets });
        }
    }

    /// A CPF at its beginning.
    fn fresh(&self, id: CpfId) -> Cpf {
        Cpf {
            node: self.nodes.root(1 + usize::from(id.0)),
            lives: true,
            drains: false,
            left: false,
            trusted: true,
            settled: true,
            down: VecDeque::new(),
            up: VecDeque::new(),
            trials: VecDeque::new(),
        }
    }

    /// The CTA hears that one is lost, or has gone.
    fn is_lost(&self, state: &mut State, id: CpfId) {
        state.broken.retain(|(from, to)| *from != id && *to != id);
        let members = Self::members(state);
        self.cta(state, &In::Lost(id, members));
    }

    fn rings_change(&self, state: &mut State) {
        let members = Self::members(state);
        self.cta(state, &In::Rings(members));
    }

    /// Those that take UEs, as far as it is known.
    fn members(state: &State) -> BTreeSet<CpfId> {
        let takes = |cpf: &Cpf| cpf.trusted && !cpf.drains;
        state.cpfs.iter().filter(|(_, cpf)| takes(cpf)).map(|(id, _)| *id).collect()
    }

    /// The UEs that are in the middle of something.
    fn at_work(&self, state: &State) -> usize {
        let runs = |(part, ue): &(&Part, &Ue)| ue.sent > 0 && !part.uplinks[ue.sent - 1].rests;
        self.parts.iter().zip(&state.ues).filter(runs).count()
    }

    /// Whether all UEs have had all the time that they need to be backed, by as many as they should.
    fn is_whole(&self, state: &State) -> bool {
        let enough = |(_, backups): &(CpfId, Vec<CpfId>)| backups.len() >= self.bound.backups;
        self.is_quiet(state) && state.cta.facts.lost == 0 && state.cta.facts.served.values().all(enough)
    }

    /// Whether the primary and all backups of a UE live and have the same state of it.
    fn agree(state: &State) -> bool {
        let has = |id: &CpfId, ue: &UeId| {
            let cpf = state.cpfs.get(id).filter(|cpf| cpf.trusted && cpf.lives)?;
            cpf.node.facts.holds.get(ue).copied()
        };
        let mut served = state.cta.facts.served.iter();
        served.all(|(ue, (by, backups))| {
            let newest = has(by, ue);
            newest.is_some() && backups.iter().all(|backup| has(backup, ue) == newest)
        })
    }

    /// The CTA replica takes over. What it had not confirmed, the former cannot say any more, and gNBs say again what it does not have.
    fn take_over(&self, state: &mut State) {
        let Some(cta_replica) = state.cta_replica.take() else { return };
        let held = state
            .held
            .back()
            .copied()
            .unwrap_or(0)
            .max(state.cta.facts.last - state.cta.facts.waiting as u64);
        let (cta, out) = self.nodes.hear(&cta_replica, &In::TakesOver);
        state.cta = cta;
        state.records.clear();
        for (id, cpf) in &mut state.cpfs {
            (cpf.settled, cpf.trusted) = (false, state.cta.facts.unsettled.contains(id));
        }
        for ue in &mut state.ues {
            let missed = ue.unsafe_inputs.iter().filter(|input| **input > held).count();
            ue.sent -= missed;
            ue.unsafe_inputs.clear();
        }
        self.leaves(state, &out, Speaker::InDoubt);
        if self.bound.drains > 0 {
            self.rings_change(state);
        }
    }

    /// Nothing is under way, and nothing is due.
    fn is_quiet(&self, state: &State) -> bool {
        let rests = Self::links_rest(state) && state.broken.is_empty();
        rests && !state.cta.facts.failing_over && !self.is_due(state)
    }

    /// The CTA has something to do by itself, and it was not in vain last time.
    fn is_due(&self, state: &State) -> bool {
        self.bound.looks.is_some() && !state.idled && state.cta.facts.due <= self.next_tick(state)
    }

    fn next_tick(&self, state: &State) -> Instant {
        self.began + self.bound.tick * (state.ticks + 1)
    }

    /// Nothing is under way.
    fn links_rest(state: &State) -> bool {
        let quiet =
            |c: &Cpf| !c.trusted || c.settled && c.down.is_empty() && c.up.is_empty() && c.trials.is_empty();
        state.cpfs.values().all(quiet)
            && state.between.is_empty()
            && state.records.is_empty()
            && state.held.is_empty()
    }
}

impl Model for Network {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let all = self.bound.cpfs + self.bound.joins;
        let ue = Ue { sent: 0, received: 0, lost: false, unsafe_inputs: VecDeque::new() };
        vec![State {
            cta: self.nodes.root(0),
            cta_replica: self.bound.cta_replica.then(|| self.nodes.root(1 + usize::from(all))),
            records: VecDeque::new(),
            held: VecDeque::new(),
            replaced: None,
            cpfs: (0..self.bound.cpfs).map(CpfId).map(|id| (id, self.fresh(id))).collect(),
            between: BTreeSet::new(),
            broken: BTreeSet::new(),
            ues: vec![ue; self.bound.ues],
            ticks: 0,
            idled: false,
            failures: 0,
            recent: 0,
            cta_failures: 0,
            losses: 0,
            moves: 0,
            drains: 0,
            looks: 0,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let bound = &self.bound;
        for (n, ue) in state.ues.iter().enumerate() {
            let next = self.parts[n].uplinks.get(ue.sent).filter(|_| ue.sent < bound.inputs && !ue.lost);
            actions.extend(next.filter(|u| u.after <= ue.received).map(|_| Action::Input(n)));
            if let Some((by, backups)) =
                state.cta.facts.served.get(&self.id(n)).filter(|_| state.moves < bound.moves)
            {
                let others = state.cpfs.iter().filter(|(id, c)| c.trusted && !c.drains && *id != by);
                // To one that backs it, and to one that does not.
                let mut backs = BTreeSet::new();
                let kinds = others.filter(|(id, _)| backs.insert(backups.contains(id)));
                actions.extend(kinds.map(|(id, _)| Action::Moves(n, *id)));
            }
        }
        for (&id, cpf) in &state.cpfs {
            actions.extend((cpf.lives && !cpf.down.is_empty()).then_some(Action::ToCpf(id)));
            actions.extend((cpf.settled && !cpf.up.is_empty()).then_some(Action::ToCta(id)));
            actions.extend((cpf.lives && !cpf.trials.is_empty()).then_some(Action::Tried(id)));
            actions.extend((cpf.trusted && cpf.lives && !cpf.settled).then_some(Action::Resumes(id)));
            actions.extend((cpf.trusted && !cpf.lives).then_some(Action::IsMissed(id)));
            let may_drain = state.drains < bound.drains && cpf.trusted && !cpf.drains;
            actions.extend(may_drain.then_some(Action::Drains(id)));
            // While a CPF leaves, if one does: before and after are other tests' matter.
            let leaves = state.cpfs.values().any(|cpf| cpf.trusted && cpf.drains);
            let may_fail = state.failures < bound.failures && (bound.drains == 0 || leaves);
            if cpf.trusted && cpf.lives && may_fail {
                actions.push(Action::Dies(id));
                actions.extend(bound.alarms.then_some(Action::SeemsDead(id)));
            }
        }
        actions.extend((!state.records.is_empty()).then_some(Action::ToCtaReplica));
        actions.extend((!state.held.is_empty()).then_some(Action::FromCtaReplica));
        actions
            .extend(state.replaced.as_ref().and_then(|(_, h)| (!h.is_empty()).then_some(Action::ToReplaced)));
        if state.cta_replica.is_some() && state.cta_failures < bound.cta_failures {
            actions.push(Action::CtaDies);
            actions.extend(bound.alarms.then_some(Action::CtaSeemsDead));
        }
        for n in 0..state.between.len() {
            actions.push(Action::Arrives(n));
            actions.extend((state.losses < bound.losses).then_some(Action::IsLost(n)));
        }
        actions.extend(state.broken.iter().map(|(from, to)| Action::Reaches(*from, *to)));
        let next = CpfId(bound.cpfs + bound.joins - 1);
        let comes = state.cpfs.last_key_value().map_or(0, |(id, _)| id.0 + 1);
        actions.extend((comes <= next.0).then_some(Action::Joins(CpfId(comes))));
        // Once more while a link is not there again, where nothing else is under way.
        let rests = Self::links_rest(state);
        let looks = bound.looks.map(|looks| looks + u8::from(rests && state.looks <= looks));
        let may = rests && state.broken.is_empty() || Some(state.looks) < looks;
        let due = may && self.is_due(state);
        actions.extend((state.cta.facts.failing_over || due).then_some(Action::Tick));
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        // Word of a release changes nothing by itself.
        state.idled &= matches!(action, Action::ToCpf(_));
        match action {
            Action::Input(n) => {
                let octets = self.parts[n].uplinks[state.ues[n].sent].octets.clone();
                state.ues[n].sent += 1;
                self.cta(&mut state, &In::Ngap(octets));
                if state.cta_replica.is_some() {
                    let last = state.cta.facts.last;
                    let safe = last - state.cta.facts.waiting as u64;
                    let inputs = &mut state.ues[n].unsafe_inputs;
                    inputs.push_back(last);
                    inputs.retain(|input| *input > safe);
                }
            }
            Action::ToCpf(id) => {
                let (taken, octets) = state.cpfs.get_mut(&id)?.down.pop_front()?;
                self.cpf(&mut state, id, &In::Down { taken, octets });
            }
            Action::ToCta(id) => {
                let (has, octets) = state.cpfs.get_mut(&id)?.up.pop_front()?;
                self.cta(&mut state, &In::Up { from: id, has, octets });
            }
            Action::Tried(id) => {
                let trial = state.cpfs.get_mut(&id)?.trials.pop_front()?;
                self.cpf(&mut state, id, &In::Tried(trial));
            }
            Action::ToCtaReplica => {
                let (octets, left) = state.records.pop_front()?;
                let (cta_replica, out) =
                    self.nodes.hear(state.cta_replica.as_ref()?, &In::Record { octets, left });
                state.cta_replica = Some(cta_replica);
                state.wrong = state.wrong.or(out.wrong);
                state.held.extend(out.held);
            }
            Action::FromCtaReplica => {
                let held = state.held.pop_front()?;
                self.cta(&mut state, &In::Held(held));
                let safe = state.cta.facts.last - state.cta.facts.waiting as u64;
                state.ues.iter_mut().for_each(|p| p.unsafe_inputs.retain(|input| *input > safe));
            }
            Action::ToReplaced => {
                let (cta, mut held) = state.replaced.take()?;
                let (cta, out) = self.nodes.hear(&cta, &In::Held(held.pop_front()?));
                self.leaves(&mut state, &out, Speaker::Replaced);
                state.replaced = Some((cta, held));
            }
            Action::Arrives(n) => {
                let (to, octets) = state.between.iter().nth(n)?.clone();
                state.between.remove(&(to, octets.clone()));
                self.cpf(&mut state, to, &In::Peer(octets));
            }
            Action::IsLost(n) => {
                state.losses += 1;
                let (to, octets) = state.between.iter().nth(n)?.clone();
                state.broken.insert((sender(&octets), to));
                state.between.remove(&(to, octets));
            }
            Action::Reaches(from, to) => {
                state.broken.remove(&(from, to));
                self.cpf(&mut state, from, &In::Reached(to));
            }
            Action::Dies(id) => {
                (state.failures, state.recent) = (state.failures + 1, state.recent + 1);
                let cpf = state.cpfs.get_mut(&id)?;
                (cpf.lives, cpf.trusted) = (false, false);
                cpf.down.clear();
                cpf.trials.clear();
                cpf.up.clear();
                self.is_lost(&mut state, id);
            }
            Action::SeemsDead(id) => {
                (state.failures, state.recent) = (state.failures + 1, state.recent + 1);
                state.cpfs.get_mut(&id)?.trusted = false;
                self.is_lost(&mut state, id);
                self.fenced(&mut state, id);
            }
            Action::IsMissed(id) => {
                state.cpfs.get_mut(&id)?.trusted = false;
                self.is_lost(&mut state, id);
            }
            Action::CtaDies => {
                state.cta_failures += 1;
                self.take_over(&mut state);
                state.held.clear();
            }
            Action::CtaSeemsDead => {
                state.cta_failures += 1;
                let former = (state.cta.clone(), state.held.clone());
                self.take_over(&mut state);
                state.held.clear();
                state.replaced = Some(former);
            }
            Action::Resumes(id) => {
                let cpf = state.cpfs.get_mut(&id)?;
                cpf.down.clear();
                cpf.up.clear();
                cpf.settled = true;
                // Both say how much they have.
                let (has, taken) =
                    (cpf.node.facts.last, state.cta.facts.taken.get(&id).copied().unwrap_or(0));
                self.cpf(&mut state, id, &In::Resumed(taken));
                self.cta(&mut state, &In::Resumes { cpf: id, has });
            }
            Action::Tick => {
                let quiet = Self::links_rest(&state) && state.broken.is_empty();
                let failing_over = state.cta.facts.failing_over;
                let at = self.next_tick(&state);
                state.ticks += 1;
                state.looks += u8::from(!quiet && !failing_over);
                let (cta, out) = self.nodes.hear(&state.cta, &In::Tick(at));
                state.cta = cta;
                state.idled = quiet && !out.caused;
                self.leaves(&mut state, &out, Speaker::Serves);
            }
            Action::Moves(n, to) => {
                state.moves += 1;
                self.cta(&mut state, &In::Move(self.id(n), to));
            }
            Action::Drains(id) => {
                state.drains += 1;
                state.cpfs.get_mut(&id)?.drains = true;
                self.rings_change(&mut state);
            }
            Action::Joins(id) => {
                state.cpfs.insert(id, self.fresh(id));
                self.rings_change(&mut state);
            }
        }
        if state.recent > 0 && self.is_whole(&state) {
            state.recent = 0;
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(READ_YOUR_WRITES, |_, s: &State| s.wrong.is_none()),
            Property::always(ANSWERED, |n: &Network, s: &State| {
                let answered = |(part, ue): (&Part, &Ue)| {
                    let last = ue.sent.checked_sub(1).map_or(0, |last| part.uplinks[last].answered);
                    ue.lost || ue.received == last
                };
                !n.is_quiet(s) || n.parts.iter().zip(&s.ues).all(answered)
            }),
            Property::always(PRUNED, |n: &Network, s: &State| {
                let alone = Self::members(s).len() < 2;
                !n.is_quiet(s) || alone || s.cta.facts.logged <= n.at_work(s)
            }),
            Property::always(NOT_LOST, |n: &Network, s: &State| {
                // A replica that was waited for no longer does not count.
                let backups = (n.bound.backups as u64).saturating_sub(s.cta.facts.lagging).max(1);
                u64::from(s.recent) > backups || s.cta.facts.lost == 0
            }),
            Property::always(CAUGHT_UP, |n: &Network, s: &State| {
                let marked = s.cta.facts.lagging > 0 && s.failures == 0;
                !n.is_quiet(s) || !marked || n.at_work(s) > 0 || Self::agree(s)
            }),
            Property::always(LEAVES, |n: &Network, s: &State| {
                let alone = Self::members(s).is_empty();
                let stays = |cpf: &Cpf| cpf.trusted && cpf.drains;
                !n.is_quiet(s) || alone || n.at_work(s) > 0 || !s.cpfs.values().any(stays)
            }),
            Property::sometimes("a UE is served by its backup", |n: &Network, s: &State| {
                let done = s.ues.iter().any(|p| p.sent == n.bound.inputs);
                n.bound.failures == 0 || s.cta.facts.taken_over > 0 && done
            }),
            Property::sometimes("a CTA replica serves", |n: &Network, s: &State| {
                let done = s.ues.iter().any(|p| p.sent == n.bound.inputs);
                n.bound.cta_failures == 0 || s.cta_failures > 0 && done && n.is_quiet(s)
            }),
            Property::sometimes("a UE moves", |n: &Network, s: &State| {
                n.bound.moves == 0 || s.cta.facts.moved > s.ues.len() as u64
            }),
            Property::sometimes("a CPF leaves", |n: &Network, s: &State| {
                n.bound.drains == 0 || s.cpfs.values().any(|cpf| cpf.left) && s.failures == n.bound.failures
            }),
            Property::sometimes("a CPF that comes serves", |n: &Network, s: &State| {
                let came = |(by, _): &(CpfId, Vec<CpfId>)| by.0 >= n.bound.cpfs;
                let may = n.bound.joins > 0 && n.bound.failures > 1;
                !may || s.cta.facts.served.values().any(came) && s.cta.facts.lost == 0
            }),
            Property::sometimes("a replica that lags is waited for no longer", |n: &Network, s: &State| {
                n.bound.outdated_after > n.bound.tick || n.is_quiet(s) && s.cta.facts.lagging > 0
            }),
            Property::sometimes("another takes a place", |n: &Network, s: &State| {
                let waits = n.bound.outdated_after > n.bound.tick || n.bound.backups > 1;
                let others = || s.cta.facts.served != n.nodes.root(0).facts.served;
                waits || n.is_whole(s) && s.failures == 0 && others()
            }),
        ]
    }
}

const READ_YOUR_WRITES: &str = "read your writes, and say it once";
const ANSWERED: &str = "where all is quiet, everything was answered";
const PRUNED: &str = "where all is quiet, nothing is kept that everybody has";
const NOT_LOST: &str = "as many failures as there are backups cost no UE";
const CAUGHT_UP: &str = "a backup that was outdated has what the others have";
const LEAVES: &str = "where all is quiet, no CPF waits to leave";

const SMALL: Bound = Bound {
    ues: 1,
    cpfs: 3,
    backups: 1,
    inputs: 2,
    failures: 1,
    alarms: true,
    cta_failures: 0,
    cta_replica: false,
    losses: 1,
    moves: 0,
    drains: 0,
    joins: 0,
    looks: None,
    tick: Duration::from_millis(25),
    outdated_after: Duration::from_secs(30),
    log: 64,
    hasty: false,
};

fn every_schedule(bound: Bound) {
    let checker = Network::new(bound).checker().threads(2).spawn_bfs().join();
    let steps = checker.model().nodes.steps();
    println!("{} states, {} deep, {steps} steps of nodes", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

#[test]
fn each_ue_is_answered_and_rests_in_between() {
    let network = Network::new(SMALL);
    let answers = network.parts[0].uplinks.iter().map(|u| (u.after, u.answered, u.rests));
    let all = [(0, 1, true), (0, 2, false), (2, 2, true), (2, 3, false), (3, 3, true)];
    assert_eq!(answers.collect::<Vec<_>>(), all);
}

/// `MODEL="ues=2 inputs=2 cta_failures=1 cta_replica=1"`: any other bound, for as long as it takes.
#[test]
#[ignore = "as large as it is asked to be"]
fn any_bound() {
    let asked = std::env::var("MODEL").unwrap_or_default();
    let mut bound = SMALL;
    for (name, number) in asked.split_whitespace().filter_map(|word| word.split_once('=')) {
        let number: u8 = number.parse().expect("a small number");
        match name {
            "ues" => bound.ues = number.into(),
            "cpfs" => bound.cpfs = number.into(),
            "backups" => bound.backups = number.into(),
            "inputs" => bound.inputs = number.into(),
            "failures" => bound.failures = number,
            "alarms" => bound.alarms = number > 0,
            "cta_failures" => bound.cta_failures = number,
            "cta_replica" => bound.cta_replica = number > 0,
            "losses" => bound.losses = number,
            "moves" => bound.moves = number,
            "drains" => bound.drains = number,
            "joins" => bound.joins = number.into(),
            "looks" => bound.looks = Some(number),
            "outdated_after" => bound.outdated_after = Duration::from_millis(number.into()),
            _ => panic!("there is no bound {name}"),
        }
    }
    every_schedule(bound);
}

#[test]
fn one_failure_of_three_functions_costs_a_ue_nothing() {
    every_schedule(SMALL);
}

#[test]
fn two_failures_never_give_a_stale_answer() {
    every_schedule(Bound { failures: 2, losses: 0, inputs: 1, ..SMALL });
}

#[test]
fn two_ues_do_not_disturb_each_other() {
    every_schedule(Bound { ues: 2, failures: 0, losses: 0, ..SMALL });
}

#[test]
fn a_ue_that_moves_is_answered_by_the_cpf_with_its_checkpoint() {
    every_schedule(Bound { moves: 1, failures: 0, losses: 0, ..SMALL });
}

#[test]
fn the_loss_of_a_cta_that_has_a_cta_replica_costs_no_ue() {
    every_schedule(Bound { cta_replica: true, cta_failures: 1, inputs: 3, failures: 0, losses: 0, ..SMALL });
}

#[test]
fn the_loss_of_a_cta_and_of_a_function_gives_no_stale_answer() {
    every_schedule(Bound {
        cta_replica: true,
        cta_failures: 1,
        inputs: 1,
        losses: 0,
        alarms: false,
        ..SMALL
    });
}

#[test]
fn two_ues_outlive_their_cta() {
    let bound = Bound { ues: 2, cta_replica: true, cta_failures: 1, inputs: 1, ..SMALL };
    every_schedule(Bound { failures: 0, losses: 0, ..bound });
}

/// Two backups, which take two failures.
const DOUBLE: Bound = Bound { backups: 2, alarms: false, inputs: 1, losses: 0, ..SMALL };

#[test]
fn two_failures_cost_a_ue_with_two_backups_nothing() {
    every_schedule(Bound { failures: 2, ..DOUBLE });
}

#[test]
fn a_lagging_backup_fetches_the_checkpoint_of_another() {
    let outdated_after = Duration::from_millis(20);
    every_schedule(Bound { losses: 1, failures: 0, looks: Some(1), outdated_after, ..DOUBLE });
}

#[test]
fn a_failure_beside_a_replica_that_lags_costs_no_ue() {
    let outdated_after = Duration::from_millis(20);
    every_schedule(Bound { losses: 1, failures: 1, looks: Some(0), outdated_after, ..DOUBLE });
}

#[test]
fn a_failure_while_another_takes_the_place_of_a_backup_costs_no_ue() {
    let outdated_after = Duration::from_millis(20);
    every_schedule(Bound { losses: 1, failures: 1, looks: Some(0), outdated_after, inputs: 1, ..SINGLE });
}

/// One failure at a time, or a CPF that leaves or joins.
const SINGLE: Bound = Bound { alarms: false, failures: 0, losses: 0, ..SMALL };

#[test]
fn a_backup_added_in_a_procedure_can_take_over_before_it_ends() {
    every_schedule(Bound { failures: 2, ..SINGLE });
}

#[test]
fn a_cpf_that_leaves_costs_no_ue() {
    every_schedule(Bound { drains: 1, looks: Some(1), ..SINGLE });
}

#[test]
fn a_failure_while_one_leaves_costs_no_ue() {
    every_schedule(Bound { drains: 1, looks: Some(1), failures: 1, inputs: 0, ..SINGLE });
}

#[test]
fn the_loss_of_a_cta_while_one_leaves_costs_no_ue() {
    let bound = Bound { cta_replica: true, cta_failures: 1, inputs: 0, ..SINGLE };
    every_schedule(Bound { drains: 1, looks: Some(0), ..bound });
}

#[test]
fn a_cpf_that_joins_becomes_backup_of_ues_that_lack_one() {
    every_schedule(Bound { cpfs: 2, joins: 1, failures: 2, inputs: 1, ..SINGLE });
}

#[test]
fn one_leaves_and_another_comes_in_its_place() {
    every_schedule(Bound { cpfs: 2, joins: 1, drains: 1, looks: Some(0), inputs: 1, ..SINGLE });
}

#[test]
fn a_ue_whose_checkpoint_does_not_reach_the_target_stays_and_is_answered() {
    let tick = Duration::from_secs(2); // longer than a UE's messages wait for its state
    every_schedule(Bound { moves: 1, losses: 1, looks: Some(0), tick, inputs: 1, ..SINGLE });
}

#[test]
fn at_the_bound_of_the_log_a_ue_loses_its_replay_and_never_sees_a_stale_answer() {
    // Then a failure may cost the UE, for its log is gone: all but that property hold.
    let checker = Network::new(Bound { log: 1, losses: 0, ..SMALL }).checker().threads(2).spawn_bfs().join();
    checker.assert_no_discovery(READ_YOUR_WRITES);
    checker.assert_no_discovery(ANSWERED);
    checker.assert_any_discovery(NOT_LOST);
}

#[test]
fn a_checkpoint_that_leaves_before_its_outputs_is_not_believed() {
    // Why rule 1 stands: in the paper's order a UE waited for ever, if the state outran the outputs that were lost with their sender. The
    // CTA refuses such a state, so that the UE is answered all the same; but then it has no backup, and may be lost.
    let bound = Bound { hasty: true, inputs: 1, losses: 0, ..SMALL };
    let checker = Network::new(bound).checker().threads(2).spawn_bfs().join();
    checker.assert_no_discovery(READ_YOUR_WRITES);
    checker.assert_no_discovery(ANSWERED);
    checker.assert_any_discovery(NOT_LOST);
}
