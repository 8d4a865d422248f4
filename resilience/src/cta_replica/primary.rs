//! The CTA that serves.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_control::udm::Subscribers;
use whimbrel_ids::Instant;

use super::machine::{Machine, Outcome};
use super::record::{Draft, Head, Record, Shape, Snapshot, Step};
use crate::cta::ExternalSource;
use crate::link::CpfCommand;
use crate::replication::{CpfId, Gate};
use crate::{Cta, Entropy, Input, Inspect, Order, OrderOutcome, Outbox};

/// The CTA that serves, alone or with a CTA replica.
pub struct PrimaryCta<S, E, I = ()> {
    machine: Machine<S, E, I>,
    replicated: Option<Replicated>,
    /// CPFs whose links have still to be resumed after a takeover.
    unsettled: BTreeSet<CpfId>,
    /// How far the UEs' time is ahead of this host's, in microseconds.
    ahead_us: i64,
}

/// What an input caused, until the CTA replica holds that input.
struct Held {
    number: u64,
    /// Who said the input, if a CPF.
    from: Option<CpfId>,
    out: Outbox,
}

struct Replicated {
    gate: Gate<Held>,
    /// Whether outputs wait for the CTA replica: not before it has caught up.
    waits: bool,
    /// Inputs before the CTA replica came.
    before: u64,
    /// The last input whose outputs have left, and up to where the CTA replica knows that.
    left: u64,
    told: u64,
    /// How many messages of each CPF the CTA replica holds.
    taken: BTreeMap<CpfId, u64>,
}

impl<S: Subscribers, E: Entropy, I: Inspect> PrimaryCta<S, E, I> {
    /// One that serves alone, and may get a CTA replica.
    pub fn new(cta: Cta<S, E, I>) -> Self {
        Self::of(Machine::new(cta, true), BTreeSet::new(), 0)
    }

    /// One that never gets a CTA replica: nothing is kept for one.
    pub fn without_cta_replica(cta: Cta<S, E, I>) -> Self {
        Self::of(Machine::new(cta, false), BTreeSet::new(), 0)
    }

    pub(super) fn of(machine: Machine<S, E, I>, unsettled: BTreeSet<CpfId>, ahead_us: i64) -> Self {
        Self { machine, replicated: None, unsettled, ahead_us }
    }

    /// What time it is for UEs: that of the host where they began, which goes on through takeovers.
    pub fn time(&self, now: Instant) -> Instant {
        Instant(now.0.saturating_add_signed(self.ahead_us))
    }

    /// When [`Input::Tick`] has something to do, by this host's clock.
    pub fn next_deadline(&self) -> Instant {
        Instant(self.machine.cta.next_deadline().0.saturating_add_signed(-self.ahead_us))
    }

    /// The CTA itself.
    pub fn cta(&self) -> &Cta<S, E, I> {
        &self.machine.cta
    }

    /// The subscribers.
    pub fn subscribers(&mut self) -> &mut S {
        self.machine.cta.subscribers()
    }

    /// What listens to every input.
    pub fn inspect(&mut self) -> &mut I {
        self.machine.cta.inspect()
    }

    /// A CTA replica follows from here, but nothing waits for it yet: first it has to get this, and to catch up. `None`: there is one, links
    /// have still to be resumed, its UEs are run by a part of this program, which a CTA replica would not survive, or it never gets one.
    pub fn snapshot(&mut self) -> Option<Snapshot> {
        if self.replicated.is_some() || !self.unsettled.is_empty() || !self.machine.replicable {
            return None;
        }
        let snapshot = self.machine.snapshot()?;
        let number = self.machine.number;
        let taken = self.machine.links.iter().map(|(&cpf, link)| (cpf, link.taken())).collect();
        self.replicated = Some(Replicated {
            gate: Gate::default(),
            waits: false,
            before: number,
            left: number,
            told: number,
            taken,
        });
        Some(snapshot)
    }

    /// From now on nothing leaves that the CTA replica does not hold. Gives the last input that had left without: when the CTA replica holds that one, it
    /// can take over at any moment.
    pub fn wait(&mut self) -> Option<u64> {
        let replicated = self.replicated.as_mut()?;
        replicated.waits = true;
        Some(self.machine.number)
    }

    /// Whether a CTA replica follows.
    pub fn is_replicated(&self) -> bool {
        self.replicated.is_some()
    }

    /// Takes one input. Without a CTA replica, `out` gets what it causes; with one, the record for the CTA replica comes back, and what
    /// the input causes leaves with [`PrimaryCta::acknowledged`].
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) -> Option<Record> {
        let links = &self.machine.links;
        let step = Step::of(input, |cpf| links.get(&cpf).map_or(0, |l| l.known()));
        self.step(now, step, out).1
    }

    /// Carries out an order of the operator, in the same way.
    pub fn order(&mut self, now: Instant, order: Order, out: &mut Outbox) -> (OrderOutcome, Option<Record>) {
        self.step(now, Step::Order(order), out)
    }

    fn step(&mut self, now: Instant, step: Step<'_>, out: &mut Outbox) -> (OrderOutcome, Option<Record>) {
        let now = self.time(now).max(self.machine.now);
        if let Step::CpfLost(cpf) = step {
            self.unsettled.remove(&cpf);
        }
        let Some(replicated) = &mut self.replicated else {
            let ordered = if self.unsettled.is_empty() {
                self.machine.run(now, step, ExternalSource::Live, out).ordered
            } else {
                let mut caused = Outbox::default();
                let outcome = self.machine.run(now, step, ExternalSource::Live, &mut caused);
                self.leave(caused, out);
                outcome.ordered
            };
            return (ordered, None);
        };
        let number = self.machine.number + 1;
        let draft = Draft::new(Head::new(replicated.left, Some((number, now))), &step);
        let from = step.said_by().filter(|cpf| self.machine.cta.trusts(*cpf));
        let mut caused = Outbox::default();
        let outcome = self.machine.run(now, step, ExternalSource::Recorded(Default::default()), &mut caused);
        let Outcome { ordered, outside: ExternalSource::Recorded(taken) } = outcome else {
            unreachable!("what was to be noted was noted")
        };
        let record = draft.end(&taken, Shape::of(&caused));
        replicated.told = replicated.left;
        replicated.gate.sent();
        replicated.gate.hold(Held { number, from, out: caused });
        if !replicated.waits {
            self.acknowledged(number, out);
        }
        (ordered, Some(record))
    }

    /// The CTA replica holds the inputs up to this one: what they caused leaves.
    pub fn acknowledged(&mut self, number: u64, out: &mut Outbox) {
        let Some(replicated) = &mut self.replicated else { return };
        replicated.gate.acknowledged(number.saturating_sub(replicated.before));
        let mut caused = Outbox::default();
        while let Some(held) = replicated.gate.pass() {
            replicated.left = held.number;
            if let Some(from) = held.from {
                *replicated.taken.entry(from).or_default() += 1;
            }
            caused.append(held.out);
        }
        self.leave(caused, out);
    }

    /// What the CTA replica is to be told when nothing else is to be done: how much has left.
    pub fn left(&mut self) -> Option<Record> {
        let replicated = self.replicated.as_mut().filter(|m| m.told < m.left)?;
        replicated.told = replicated.left;
        Some(Draft::left(replicated.left))
    }

    /// The last input.
    pub fn last(&self) -> u64 {
        self.machine.number
    }

    /// The last input that is not lost with this host; all of them, where nothing waits for a CTA replica.
    pub fn safe(&self) -> u64 {
        match &self.replicated {
            Some(replicated) if replicated.waits => replicated.before + replicated.gate.confirmed(),
            _ => u64::MAX,
        }
    }

    /// How many inputs wait for the CTA replica.
    pub fn waiting(&self) -> usize {
        self.replicated.as_ref().map_or(0, |m| m.gate.waiting().len())
    }

    /// What the newest input has caused, if it waits for the CTA replica.
    pub fn newest(&self) -> Option<&Outbox> {
        self.replicated.as_ref()?.gate.waiting().next_back().map(|held| &held.out)
    }

    /// The CTA replica is lost, and it is certain that it will not take over: service goes on without it.
    pub fn alone(&mut self, out: &mut Outbox) {
        let Some(mut replicated) = self.replicated.take() else { return };
        let mut caused = Outbox::default();
        replicated.gate.open().for_each(|held| caused.append(held.out));
        self.leave(caused, out);
    }

    fn leave(&mut self, mut caused: Outbox, out: &mut Outbox) {
        caused.cpfs.retain(|(to, _)| !self.unsettled.contains(to)); // its link has them
        out.append(caused);
    }

    /// How many messages of a CPF are here to stay: it need not keep them any more.
    pub fn taken(&self, cpf: CpfId) -> u64 {
        match &self.replicated {
            Some(replicated) => replicated.taken.get(&cpf).copied().unwrap_or(0),
            None => self.machine.links.get(&cpf).map_or(0, |l| l.taken()),
        }
    }

    /// A CPF has so many of the messages to it.
    pub fn confirmed(&mut self, cpf: CpfId, messages: u64) {
        if let Some(link) = self.machine.links.get_mut(&cpf) {
            link.confirmed(messages);
        }
    }

    /// CPFs whose links have still to be resumed after a takeover.
    pub fn unsettled(&self) -> impl Iterator<Item = CpfId> {
        self.unsettled.iter().copied()
    }

    /// The link of a CPF has ended within the time in which those of the former CTA are awaited: what it is to get waits
    /// until it is resumed again. There is no CTA replica yet, of which what it gets might wait too.
    pub fn parts(&mut self, cpf: CpfId) {
        if self.replicated.is_none() && self.machine.cta.trusts(cpf) {
            self.unsettled.insert(cpf);
        }
    }

    /// A CPF that served under the former CTA has so many messages of it: gives what it is to get, first of all.
    /// It sends again what it has sent after [`PrimaryCta::taken`] messages. `None`: its link cannot go on, and it counts as lost.
    pub fn resume(&mut self, cpf: CpfId, has: u64) -> Option<Vec<CpfCommand>> {
        if !self.unsettled.remove(&cpf) {
            return None;
        }
        let link = self.machine.links.entry(cpf).or_default();
        Some(link.resume(has)?.cloned().collect())
    }
}
