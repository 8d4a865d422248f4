//! The primary CTA.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_control::udm::{
    AuthData, Identity, RegistrationChange, Resynchronisation, Subscribers, UdmError,
};
use whimbrel_control::{AssociationId, UeContext, UeId};
use whimbrel_ids::{Instant, SNssai, Supi, Tmsi};
use whimbrel_security::SqnSlot;

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
    /// CPFs whose links still have to be resumed after a takeover.
    unresumed_cpfs: BTreeSet<CpfId>,
    /// How far the UEs' time is ahead of this host's, in microseconds.
    ahead_us: i64,
    /// The NGAP message that the next input carries: its association, and its number there.
    next_message: Option<(AssociationId, u64)>,
    /// Inputs whose NGAP messages were sent since [`PrimaryCta::take_sent_message_numbers`], and how many
    /// each.
    sent_ngap: Vec<(u64, usize)>,
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
    fn sent_ngap(&self) -> Option<(u64, usize)> {
        let messages = self.out.ngap.len();
        (messages > 0).then_some((self.number, messages))
    }
}

struct ReplicationState {
    gate: Gate<HeldOutputs>,
    /// True if outputs wait for the CTA replica, which they do once it has caught up.
    is_holding_outputs: bool,
    /// Number of the last input before the replica connected.
    replica_start: u64,
    /// The last input whose outputs the gate has released to the edge, which has yet to send them.
    last_released: u64,
    /// The last input whose outputs were sent, and the last one of which the replica knows that.
    last_sent: u64,
    last_reported_sent: u64,
    /// Number of messages of each CPF that the CTA replica has too.
    durable_messages: BTreeMap<CpfId, u64>,
}

impl<S: Subscribers, E: Entropy, I: Inspect> PrimaryCta<S, E, I> {
    /// A primary without a replica; one may join later.
    pub fn new(cta: Cta<S, E, I>) -> Self {
        Self::of(Machine::new(cta, true), BTreeSet::new(), 0)
    }

    /// A primary that never gets a replica, and stores nothing for one.
    pub fn without_cta_replica(cta: Cta<S, E, I>) -> Self {
        Self::of(Machine::new(cta, false), BTreeSet::new(), 0)
    }

    pub(super) fn of(machine: Machine<S, E, I>, unresumed_cpfs: BTreeSet<CpfId>, ahead_us: i64) -> Self {
        Self {
            machine,
            replicated: None,
            unresumed_cpfs,
            ahead_us,
            next_message: None,
            sent_ngap: Vec::new(),
        }
    }

    /// The UEs' time: that of the host where they began, continued through takeovers.
    pub fn time(&self, now: Instant) -> Instant {
        Instant(now.0.saturating_add_signed(self.ahead_us))
    }

    /// When [`Input::Tick`] is due, by this host's clock.
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

    /// [`Cta::generate_auth_data`].
    pub fn generate_auth_data(
        &mut self,
        now: Instant,
        identity: Identity,
        resynchronisation: Option<Resynchronisation>,
    ) -> Result<AuthData, UdmError> {
        self.machine.cta.generate_auth_data(now, identity, resynchronisation)
    }

    /// [`Cta::keep_changed_registrations`].
    pub fn keep_changed_registrations(&mut self) {
        self.machine.cta.keep_changed_registrations();
    }

    /// [`Cta::set_sqn_slot`].
    pub fn set_sqn_slot(&mut self, sqn_slot: Option<SqnSlot>) {
        self.machine.cta.set_sqn_slot(sqn_slot);
    }

    /// [`Cta::set_slice_shares`].
    pub fn set_slice_shares(&mut self, shares: BTreeMap<SNssai, u32>) {
        self.machine.cta.set_slice_shares(shares);
    }

    /// [`Cta::take_changed_registrations`].
    pub fn take_changed_registrations(&mut self) -> BTreeMap<Supi, RegistrationChange> {
        self.machine.cta.take_changed_registrations()
    }

    /// The built-in CPF, if there is one, so that idle UEs can be compacted between inputs.
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
        if self.replicated.is_some() || !self.unresumed_cpfs.is_empty() || !self.machine.replicable {
            return None;
        }
        let snapshot = self.machine.snapshot()?;
        let number = self.machine.number;
        let taken = self.machine.links.iter().map(|(&cpf, link)| (cpf, link.taken())).collect();
        self.replicated = Some(ReplicationState {
            gate: Gate::default(),
            is_holding_outputs: false,
            replica_start: number,
            last_released: number,
            last_sent: number,
            last_reported_sent: number,
            durable_messages: taken,
        });
        Some(snapshot)
    }

    /// Starts to hold outputs until the replica has confirmed their input. Returns the last input before
    /// that; once the replica has it, it can take over at any time.
    pub fn begin_holding(&mut self) -> Option<u64> {
        let replicated = self.replicated.as_mut()?;
        replicated.is_holding_outputs = true;
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
        let received = self.next_message.take();
        if let RecordedStep::CpfLost(cpf) = step {
            self.unresumed_cpfs.remove(&cpf);
        }
        let Some(replicated) = &mut self.replicated else {
            let before = out.ngap.len();
            let ordered = if self.unresumed_cpfs.is_empty() {
                self.machine.run(now, step, ExternalSource::Live, out).ordered
            } else {
                let mut caused = Outbox::default();
                let outcome = self.machine.run(now, step, ExternalSource::Live, &mut caused);
                self.release(caused, out);
                outcome.ordered
            };
            let messages = out.ngap.len() - before;
            self.sent_ngap.extend((messages > 0).then_some((self.machine.number, messages)));
            return (ordered, None);
        };
        let number = self.machine.number + 1;
        let head = RecordHead::new(replicated.last_sent, Some((number, now))).with_received(received);
        let draft = Draft::new(head, &step);
        let from = step.sender().filter(|cpf| self.machine.cta.trusts(*cpf));
        let mut caused = Outbox::default();
        let outcome = self.machine.run(now, step, ExternalSource::Recorded(Default::default()), &mut caused);
        let InputOutcome { ordered, outside: ExternalSource::Recorded(taken) } = outcome else {
            unreachable!("a recorded run returns what it recorded")
        };
        let record = draft.end(&taken, Shape::of(&caused));
        replicated.last_reported_sent = replicated.last_sent;
        replicated.gate.sent();
        replicated.gate.hold(HeldOutputs { number, from, out: caused });
        if !replicated.is_holding_outputs {
            self.acknowledged(number, out);
        }
        (ordered, Some(record))
    }

    /// The CTA replica holds the inputs up to this one: `out` gets what they caused. [`PrimaryCta::mark_outputs_sent`] reports when it has left.
    pub fn acknowledged(&mut self, number: u64, out: &mut Outbox) {
        let Some(replicated) = &mut self.replicated else { return };
        replicated.gate.acknowledged(number.saturating_sub(replicated.replica_start));
        let mut caused = Outbox::default();
        while let Some(held) = replicated.gate.pass() {
            replicated.last_released = held.number;
            if let Some(from) = held.from {
                *replicated.durable_messages.entry(from).or_default() += 1;
            }
            self.sent_ngap.extend(held.sent_ngap());
            caused.append(held.out);
        }
        self.release(caused, out);
    }

    /// The edge has sent all outputs that were released to it. Until then the replica would send them if this
    /// process ended, and must not be informed that they were sent: if neither sent an answer, its UE would
    /// wait seconds for a timer.
    pub fn mark_outputs_sent(&mut self) {
        if let Some(replicated) = &mut self.replicated {
            replicated.last_sent = replicated.last_released;
        }
    }

    /// A record that only reports which outputs were sent, for use when there is no input to send.
    pub fn sent_report(&mut self) -> Option<ReplicaRecord> {
        let replicated = self.replicated.as_mut().filter(|m| m.last_reported_sent < m.last_sent)?;
        replicated.last_reported_sent = replicated.last_sent;
        Some(Draft::left(replicated.last_sent))
    }

    /// The last input.
    pub fn last(&self) -> u64 {
        self.machine.number
    }

    /// The last input that survives the loss of this host; all of them, where nothing waits for a replica.
    pub fn last_durable_input(&self) -> u64 {
        match &self.replicated {
            Some(replicated) if replicated.is_holding_outputs => {
                replicated.replica_start + replicated.gate.confirmed()
            }
            _ => u64::MAX,
        }
    }

    /// How many inputs wait for the CTA replica.
    pub fn waiting(&self) -> usize {
        self.replicated.as_ref().map_or(0, |m| m.gate.waiting().len())
    }

    /// The outputs of the newest input, if they wait for the replica.
    pub fn newest_held_outputs(&self) -> Option<&Outbox> {
        self.replicated.as_ref()?.gate.waiting().next_back().map(|held| &held.out)
    }

    /// The replica is lost, and it is certain that it will not take over: the primary continues without it.
    pub fn continue_without_replica(&mut self, out: &mut Outbox) {
        let Some(mut replicated) = self.replicated.take() else { return };
        let mut caused = Outbox::default();
        for held in replicated.gate.open() {
            self.sent_ngap.extend(held.sent_ngap());
            caused.append(held.out);
        }
        self.release(caused, out);
    }

    /// The next input is this message of an association, by its number there: a replica that takes over knows which messages it has.
    pub fn set_next_message(&mut self, association: AssociationId, number: u64) {
        self.next_message = Some((association, number));
    }

    /// The marks of the NGAP messages that have left since the last call, one each, in their order. Marks only grow, also through a takeover:
    /// that of a message is the same in the primary and in its replica.
    pub fn take_sent_message_numbers(&mut self) -> Vec<u64> {
        let marks = |(number, messages): (u64, usize)| {
            (1..=messages).map(move |nth| (number << MESSAGES_PER_INPUT_BITS) + nth as u64)
        };
        self.sent_ngap.drain(..).flat_map(marks).collect()
    }

    pub(super) fn set_sent_ngap(&mut self, sent_ngap: Vec<(u64, usize)>) {
        self.sent_ngap = sent_ngap;
    }

    fn release(&mut self, mut caused: Outbox, out: &mut Outbox) {
        caused.cpfs.retain(|(to, _)| !self.unresumed_cpfs.contains(to)); // its link has them
        out.append(caused);
    }

    /// Number of a CPF's messages that the replica has too; the CPF may discard them.
    pub fn durable_messages(&self, cpf: CpfId) -> u64 {
        match &self.replicated {
            Some(replicated) => replicated.durable_messages.get(&cpf).copied().unwrap_or(0),
            None => self.machine.links.get(&cpf).map_or(0, |l| l.taken()),
        }
    }

    /// A CPF has acknowledged this many commands.
    pub fn confirmed(&mut self, cpf: CpfId, messages: u64) {
        if let Some(link) = self.machine.links.get_mut(&cpf) {
            link.confirmed(messages);
        }
    }

    /// CPFs whose links still have to be resumed after a takeover.
    pub fn unresumed_cpfs(&self) -> impl Iterator<Item = CpfId> {
        self.unresumed_cpfs.iter().copied()
    }

    /// The link of a CPF went down while links of the former primary's CPFs are being resumed: its commands
    /// wait until its link is resumed. There is no replica yet, so none of them waits for one.
    pub fn suspend_cpf(&mut self, cpf: CpfId) {
        if self.replicated.is_none() && self.machine.cta.trusts(cpf) {
            self.unresumed_cpfs.insert(cpf);
        }
    }

    /// A CPF of the former primary has received this many commands: returns those that it lacks, to be sent first. It repeats its reports
    /// after [`PrimaryCta::durable_messages`]. `None`: its link cannot continue, and it counts as lost.
    pub fn resume(&mut self, cpf: CpfId, has: u64) -> Option<Vec<CpfCommand>> {
        if !self.unresumed_cpfs.remove(&cpf) {
            return None;
        }
        let link = self.machine.links.entry(cpf).or_default();
        Some(link.resume(has)?.cloned().collect())
    }
}
