//! The primary CTA.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_control::udm::Subscribers;
use whimbrel_control::{AssociationId, UeContext, UeId};
use whimbrel_ids::{Instant, Tmsi};

use super::machine::{InputOutcome, Machine};
use super::record::{Draft, RecordHead, RecordedStep, ReplicaRecord, Shape, Snapshot};
use crate::cta::ExternalSource;
use crate::link::CpfCommand;
use crate::replication::{CpfId, Gate};
use crate::{Cpf, Cta, CtaOrder, Entropy, Input, Inspect, OrderOutcome, Outbox};

/// The primary CTA, alone or with a replica.
pub struct PrimaryCta<S, E, I = ()> {
    machine: Machine<S, E, I>,
    replicated: Option<ReplicationState>,
    /// CPFs whose links have still to be resumed after a takeover.
    unsettled: BTreeSet<CpfId>,
    /// How far the UEs' time is ahead of this host's, in microseconds.
    ahead_us: i64,
    /// The message that the next input is.
    received: Option<(AssociationId, u64)>,
    /// Inputs whose NGAP messages have left since [`PrimaryCta::take_marks`], and how many each.
    ngap_left: Vec<(u64, usize)>,
}

/// Room in a mark for the messages of one input.
const MESSAGES_PER_INPUT_BITS: u32 = 16;

/// An input's outputs, until the replica holds the input.
struct HeldOutputs {
    number: u64,
    /// The CPF that sent the input, if one did.
    from: Option<CpfId>,
    out: Outbox,
}

impl HeldOutputs {
    fn ngap_left(&self) -> Option<(u64, usize)> {
        let messages = self.out.ngap.len();
        (messages > 0).then_some((self.number, messages))
    }
}

struct ReplicationState {
    gate: Gate<HeldOutputs>,
    /// Whether outputs wait for the CTA replica: not before it has caught up.
    waits: bool,
    /// Inputs before the CTA replica came.
    before: u64,
    /// The last input whose outputs have passed the gate: the edge has them, and has yet to send them.
    passed: u64,
    /// The last input whose outputs have left, and the last one of which the replica knows that.
    left: u64,
    reported_left: u64,
    /// How many messages of each CPF the CTA replica holds.
    taken: BTreeMap<CpfId, u64>,
}

impl<S: Subscribers, E: Entropy, I: Inspect> PrimaryCta<S, E, I> {
    /// One that is alone, and may get a replica.
    pub fn new(cta: Cta<S, E, I>) -> Self {
        Self::of(Machine::new(cta, true), BTreeSet::new(), 0)
    }

    /// One that never gets a replica: nothing is kept for one.
    pub fn without_cta_replica(cta: Cta<S, E, I>) -> Self {
        Self::of(Machine::new(cta, false), BTreeSet::new(), 0)
    }

    pub(super) fn of(machine: Machine<S, E, I>, unsettled: BTreeSet<CpfId>, ahead_us: i64) -> Self {
        let (received, ngap_left) = (None, Vec::new());
        Self { machine, replicated: None, unsettled, ahead_us, received, ngap_left }
    }

    /// The UEs' time: that of the host where they began, continued through takeovers.
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

    /// The store of subscribers.
    pub fn subscribers(&mut self) -> &mut S {
        self.machine.cta.subscribers()
    }

    /// Its UEs, where it runs them itself, to let them rest between two inputs.
    pub fn cpf_mut(&mut self) -> Option<&mut Cpf> {
        self.machine.cta.cpf_mut()
    }

    /// Adds a UE without inputs ([`Cta::add_idle_ue`]).
    pub fn add_idle_ue(&mut self, now: Instant, make: impl FnOnce(UeId, Tmsi) -> Box<UeContext>) -> bool {
        self.machine.cta.add_idle_ue(now, make)
    }

    /// The observer of every input.
    pub fn inspect(&mut self) -> &mut I {
        self.machine.cta.inspect()
    }

    /// A snapshot from which a replica follows; outputs do not wait for it yet, since it has to catch up first. `None`: there is a replica,
    /// links have still to be resumed, the UEs run in this process, or this CTA never gets a replica.
    pub fn snapshot(&mut self) -> Option<Snapshot> {
        if self.replicated.is_some() || !self.unsettled.is_empty() || !self.machine.replicable {
            return None;
        }
        let snapshot = self.machine.snapshot()?;
        let number = self.machine.number;
        let taken = self.machine.links.iter().map(|(&cpf, link)| (cpf, link.taken())).collect();
        self.replicated = Some(ReplicationState {
            gate: Gate::default(),
            waits: false,
            before: number,
            passed: number,
            left: number,
            reported_left: number,
            taken,
        });
        Some(snapshot)
    }

    /// From now on outputs wait for the replica. Returns the last input whose outputs did not: when the replica holds it, it can take over
    /// at any moment.
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
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) -> Option<ReplicaRecord> {
        let links = &self.machine.links;
        let step = RecordedStep::of(input, |cpf| links.get(&cpf).map_or(0, |l| l.known()));
        self.step(now, step, out).1
    }

    /// Carries out an order of the operator, in the same way.
    pub fn order(
        &mut self,
        now: Instant,
        order: CtaOrder,
        out: &mut Outbox,
    ) -> (OrderOutcome, Option<ReplicaRecord>) {
        self.step(now, RecordedStep::Order(order), out)
    }

    fn step(
        &mut self,
        now: Instant,
        step: RecordedStep<'_>,
        out: &mut Outbox,
    ) -> (OrderOutcome, Option<ReplicaRecord>) {
        let now = self.time(now).max(self.machine.now);
        let received = self.received.take();
        if let RecordedStep::CpfLost(cpf) = step {
            self.unsettled.remove(&cpf);
        }
        let Some(replicated) = &mut self.replicated else {
            let before = out.ngap.len();
            let ordered = if self.unsettled.is_empty() {
                self.machine.run(now, step, ExternalSource::Live, out).ordered
            } else {
                let mut caused = Outbox::default();
                let outcome = self.machine.run(now, step, ExternalSource::Live, &mut caused);
                self.leave(caused, out);
                outcome.ordered
            };
            let messages = out.ngap.len() - before;
            self.ngap_left.extend((messages > 0).then_some((self.machine.number, messages)));
            return (ordered, None);
        };
        let number = self.machine.number + 1;
        let head = RecordHead::new(replicated.left, Some((number, now))).with_received(received);
        let draft = Draft::new(head, &step);
        let from = step.sender().filter(|cpf| self.machine.cta.trusts(*cpf));
        let mut caused = Outbox::default();
        let outcome = self.machine.run(now, step, ExternalSource::Recorded(Default::default()), &mut caused);
        let InputOutcome { ordered, outside: ExternalSource::Recorded(taken) } = outcome else {
            unreachable!("what was to be noted was noted")
        };
        let record = draft.end(&taken, Shape::of(&caused));
        replicated.reported_left = replicated.left;
        replicated.gate.sent();
        replicated.gate.hold(HeldOutputs { number, from, out: caused });
        if !replicated.waits {
            self.acknowledged(number, out);
        }
        (ordered, Some(record))
    }

    /// The CTA replica holds the inputs up to this one: `out` gets what they caused. [`PrimaryCta::sent`] reports when it has left.
    pub fn acknowledged(&mut self, number: u64, out: &mut Outbox) {
        let Some(replicated) = &mut self.replicated else { return };
        replicated.gate.acknowledged(number.saturating_sub(replicated.before));
        let mut caused = Outbox::default();
        while let Some(held) = replicated.gate.pass() {
            replicated.passed = held.number;
            if let Some(from) = held.from {
                *replicated.taken.entry(from).or_default() += 1;
            }
            self.ngap_left.extend(held.ngap_left());
            caused.append(held.out);
        }
        self.leave(caused, out);
    }

    /// The edge has sent all outputs that it has got. Until then the replica would send them if this process ended, and must not learn
    /// that they have left: an answer that neither sends costs its UE a timer of seconds.
    pub fn sent(&mut self) {
        if let Some(replicated) = &mut self.replicated {
            replicated.left = replicated.passed;
        }
    }

    /// The record that reports how much has left, for when no input is at hand.
    pub fn left(&mut self) -> Option<ReplicaRecord> {
        let replicated = self.replicated.as_mut().filter(|m| m.reported_left < m.left)?;
        replicated.reported_left = replicated.left;
        Some(Draft::left(replicated.left))
    }

    /// The last input.
    pub fn last(&self) -> u64 {
        self.machine.number
    }

    /// The last input that survives the loss of this host; all of them, where nothing waits for a replica.
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

    /// The outputs of the newest input, if they wait for the replica.
    pub fn newest(&self) -> Option<&Outbox> {
        self.replicated.as_ref()?.gate.waiting().next_back().map(|held| &held.out)
    }

    /// The replica is lost, and it is certain that it will not take over: the primary continues without it.
    pub fn alone(&mut self, out: &mut Outbox) {
        let Some(mut replicated) = self.replicated.take() else { return };
        let mut caused = Outbox::default();
        for held in replicated.gate.open() {
            self.ngap_left.extend(held.ngap_left());
            caused.append(held.out);
        }
        self.leave(caused, out);
    }

    /// The next input is this message of an association, by its number there: a replica that takes over knows which messages it has.
    pub fn received(&mut self, association: AssociationId, number: u64) {
        self.received = Some((association, number));
    }

    /// The marks of the NGAP messages that have left since the last call, one each, in their order. Marks only grow, also through a takeover:
    /// that of a message is the same in the primary and in its replica.
    pub fn take_marks(&mut self) -> Vec<u64> {
        let marks = |(number, messages): (u64, usize)| {
            (1..=messages).map(move |nth| (number << MESSAGES_PER_INPUT_BITS) + nth as u64)
        };
        self.ngap_left.drain(..).flat_map(marks).collect()
    }

    pub(super) fn set_ngap_left(&mut self, ngap_left: Vec<(u64, usize)>) {
        self.ngap_left = ngap_left;
    }

    fn leave(&mut self, mut caused: Outbox, out: &mut Outbox) {
        caused.cpfs.retain(|(to, _)| !self.unsettled.contains(to)); // its link has them
        out.append(caused);
    }

    /// Number of a CPF's messages that are safe: it need not keep them any more.
    pub fn taken(&self, cpf: CpfId) -> u64 {
        match &self.replicated {
            Some(replicated) => replicated.taken.get(&cpf).copied().unwrap_or(0),
            None => self.machine.links.get(&cpf).map_or(0, |l| l.taken()),
        }
    }

    /// A CPF has acknowledged this many commands.
    pub fn confirmed(&mut self, cpf: CpfId, messages: u64) {
        if let Some(link) = self.machine.links.get_mut(&cpf) {
            link.confirmed(messages);
        }
    }

    /// CPFs whose links have still to be resumed after a takeover.
    pub fn unsettled(&self) -> impl Iterator<Item = CpfId> {
        self.unsettled.iter().copied()
    }

    /// The link of a CPF has ended while CPFs of the former primary are awaited: its commands wait until the link is resumed. There is no
    /// replica yet, so none of them waits for one.
    pub fn parts(&mut self, cpf: CpfId) {
        if self.replicated.is_none() && self.machine.cta.trusts(cpf) {
            self.unsettled.insert(cpf);
        }
    }

    /// A CPF of the former primary has received this many commands: returns those that it lacks, to be sent first. It repeats its reports
    /// after [`PrimaryCta::taken`]. `None`: its link cannot continue, and it counts as lost.
    pub fn resume(&mut self, cpf: CpfId, has: u64) -> Option<Vec<CpfCommand>> {
        if !self.unsettled.remove(&cpf) {
            return None;
        }
        let link = self.machine.links.entry(cpf).or_default();
        Some(link.resume(has)?.cloned().collect())
    }
}
