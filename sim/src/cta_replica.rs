//! The CTA replica of the simulated CTA: the link to it, and how the CTA is lost.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, Prf};
use whimbrel_ids::Instant;
use whimbrel_ran::gnb;
use whimbrel_resilience::cta_replica::{
    Associations, CtaReplica, LocalAssociation, MessageRoute, PrimaryCta, ReplicaRecord, Snapshot,
};
use whimbrel_resilience::link::{CpfReport, ToCpf};
use whimbrel_resilience::{CtaOrder, Input, OrderOutcome, Outbox};

use crate::partition::{Cut, Survivor};
use crate::region::RegionMessage;
use crate::{GnbIndex, InFlight, Recorder, Sim, SimSubscribers};

/// Least and greatest latency of the link between the two, in microseconds.
const LATENCY_MICROS: (u64, u64) = (10, 60);
/// From a loss to its detection by gNBs that have no other association: a connection that closes.
const ASSOCIATIONS_END_AFTER: Duration = Duration::from_micros(500);
/// From a loss to when the CTA replica serves: a connection that closes, and a decision of the membership.
const TAKEN_OVER_AFTER: Duration = Duration::from_millis(2);

/// A message between a CTA and its CTA replica.
#[derive(Debug)]
pub(crate) enum ReplicaLink {
    /// To the CTA replica of this number.
    Record(u64, ReplicaRecord),
    /// From that one.
    Held(u64, u64),
    /// gNBs detect that the CTA's host is gone.
    AssociationsEnd,
    /// The CTA replica takes over.
    TakesOver,
    /// The time is over in which gNBs had to continue on their second association.
    Grace,
    /// After a partition it is decided which of the two goes on: the CTA, or its replica of this number.
    Decided(u64, Survivor),
}

/// How a CTA is lost, at the n-th input that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtaLoss {
    /// It dies before it has taken the input.
    BeforeInput,
    /// It dies after it has taken the input and before the record has left for the CTA replica: the input is lost.
    BeforeReplication,
    /// The CTA replica has the input; no output of it has left.
    AfterReplication,
    /// The outputs have left, and the CTA replica does not know that.
    AfterOutput,
    /// It is alive and taken for dead. It goes on, and nothing that it does may have an effect.
    FalseAlarm,
}

impl CtaLoss {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::BeforeInput,
        Self::BeforeReplication,
        Self::AfterReplication,
        Self::AfterOutput,
        Self::FalseAlarm,
    ];
}

/// An input that arrived for a dead CTA, or that it did not acknowledge: its sender sends it again.
#[derive(Debug)]
enum MissedInput {
    Up(AssociationId, u16, Vec<IpAddr>),
    Down(AssociationId),
    Ngap(AssociationId, u16, Vec<u8>),
}

/// The source of a CTA's entropy.
type SeededEntropy = (Prf, u64);

/// The CTA replica, the link to it, and how the CTA is lost.
#[derive(Default)]
pub(crate) struct CtaPair {
    cta_replica: Option<CtaReplica<SimSubscribers, SeededEntropy, Recorder>>,
    /// The number of the newest CTA replica.
    cta_replicas: u64,
    /// A CTA that was replaced and does not know it, and the number of its replica.
    replaced: Option<(PrimaryCta<SimSubscribers, SeededEntropy, Recorder>, u64)>,
    ordered: (Instant, Instant),
    /// Inputs that the CTA has taken.
    taken: u64,
    loss: Option<(u64, CtaLoss)>,
    /// At which input the two are cut off from one another, for how long, and which of them goes on.
    cut_at: Option<(u64, Survivor, Duration)>,
    /// The link between the two passes nothing until then.
    pub(crate) cut_until: Instant,
    /// At which inputs the CTA was lost, and how often.
    pub(crate) lost_at: BTreeMap<&'static str, u64>,
    /// The outputs of inputs that the CTA replica has not run yet, and how many inputs it has run.
    caused: VecDeque<Vec<u8>>,
    followed: u64,
    /// gNBs' associations with the CTA replica's host, and how many there ever were.
    pub(crate) associations: Associations,
    physicals: u32,
    /// The CTA dies when the outputs of this input have left.
    last_words: Option<u64>,
    /// It dies when the CTA replica has confirmed this input, before the outputs have left.
    unsent: Option<u64>,
    dead: bool,
    missed: Vec<MissedInput>,
    /// Messages of gNBs that the CTA replica does not have yet: SCTP acknowledges them when it has. One entry per record; `None` for other inputs.
    unacknowledged: VecDeque<Option<MissedInput>>,
    /// So many earlier inputs may be unacknowledged too: SACKs that were lost.
    sacks_lost: usize,
    takeovers: u64,
}

impl CtaPair {
    /// The number of the host that serves: how many takeovers there were.
    pub(crate) fn host(&self) -> u64 {
        self.takeovers
    }

    /// The number of the newest CTA replica.
    pub(crate) fn replicas(&self) -> u64 {
        self.cta_replicas
    }

    pub(crate) fn has_replica(&self) -> bool {
        self.cta_replica.is_some()
    }

    /// The CTA has no replica any more.
    pub(crate) fn discard_replica(&mut self) {
        self.cta_replica = None;
        self.caused.clear();
        self.unacknowledged.clear();
        (self.loss, self.last_words) = (None, None);
    }
}

impl Sim {
    /// How many inputs the CTA has taken.
    pub fn inputs_taken(&self) -> u64 {
        self.control.pair.taken
    }

    /// The CTA is lost at the n-th input that it takes from the beginning on, if it has a CTA replica by then.
    pub fn lose_cta_at(&mut self, input: u64, how: CtaLoss) {
        self.control.pair.loss = Some((input, how));
    }

    /// The CTA is lost when its replica has confirmed the input of this number, and before the outputs have left; the record of its next input is
    /// under way then.
    pub fn lose_cta_before_sending(&mut self, number: u64) {
        self.control.pair.unsent = Some(number);
    }

    /// At the n-th input that the CTA takes it and its replica are cut off from one another.
    pub fn cut_cta_at(&mut self, input: u64, survivor: Survivor, time: Duration) {
        self.control.pair.cut_at = Some((input, survivor, time));
    }

    /// SCTP never acknowledges the last inputs of gNBs: after a takeover they send them again.
    pub fn lose_sacks(&mut self, inputs: usize) {
        self.control.pair.sacks_lost = inputs;
    }

    /// How many inputs led to the same octets at the CTA replica.
    pub fn followed(&self) -> u64 {
        self.control.pair.followed
    }

    /// The snapshot for a CTA replica, if there is none yet.
    pub fn snapshot(&mut self) -> Option<Snapshot> {
        self.control.cta.snapshot()
    }

    /// The CTA gets a CTA replica, if it has none and no link has to be resumed.
    pub fn add_cta_replica(&mut self) {
        if self.control.pair.dead || self.control.pair.cta_replica.is_some() {
            return;
        }
        let Some(snapshot) = self.control.cta.snapshot() else { return };
        self.control.cta.begin_holding(); // it has it at once
        let directory = Directory::new(self.config.amf.plmn, self.home_keys.clone());
        let entropy = (Prf::new(&self.rng.octets()), 0);
        let recorder = self.control.cta.inspect().restarted(false);
        let cta_replica =
            CtaReplica::new(snapshot.octets(), directory, SimSubscribers::default(), entropy, recorder);
        self.control.pair.cta_replica = Some(cta_replica.expect("a snapshot is read as it was written"));
        self.control.pair.cta_replicas += 1;
        self.control.pair.associations = Associations::default();
        self.operator_order(CtaOrder::Endpoints(vec![address(self.control.pair.cta_replicas)]));
        let set = [1, 0].map(|next| crate::user_plane::smf(self.control.pair.host() + next).ip());
        self.operator_order(CtaOrder::SmfAddresses(set.to_vec()));
    }

    /// How often a CTA replica has taken over.
    pub fn takeovers(&self) -> u64 {
        self.control.pair.takeovers
    }

    /// At which messages CPFs were lost, and at which inputs the CTA, and how often.
    pub(crate) fn lost_at(&self) -> [BTreeMap<&'static str, u64>; 2] {
        let cpfs = self.control.cluster.as_ref().map(|c| c.lost_at.clone());
        [cpfs.unwrap_or_default(), self.control.pair.lost_at.clone()]
    }

    /// Whether no CTA takes inputs.
    pub(crate) fn has_no_cta(&self) -> bool {
        self.control.pair.dead
    }

    /// Whether nothing is in flight between the two, and all links are resumed after a takeover.
    pub(crate) fn pair_rests(&self) -> bool {
        !self.control.pair.dead
            && self.control.cta.waiting() == 0
            && self.control.cta.unresumed_cpfs().next().is_none()
    }

    /// An input of the CTA.
    pub(crate) fn cta_input(&mut self, input: Input<'_>) {
        if self.control.pair.dead {
            return self.queue_for_successor(input);
        }
        if let Input::Pfcp(upf, octets) = &input {
            self.trace(|| format!("{upf:?} to core: {}", crate::user_plane::pfcp_words(octets)));
        }
        self.control.pair.taken += 1;
        let replicated = self.control.pair.has_replica();
        let cut_at = self.control.pair.cut_at.filter(|(at, ..)| *at == self.control.pair.taken && replicated);
        if let Some((_, survivor, time)) = cut_at {
            self.cut(Cut::CtaReplica(survivor), time);
        }
        let loss = self
            .control
            .pair
            .loss
            .filter(|(at, _)| *at == self.control.pair.taken && self.control.pair.cta_replica.is_some());
        let loss = loss.map(|(_, how)| how);
        if loss.is_some() {
            *self.control.pair.lost_at.entry(name(&input)).or_default() += 1;
        }
        if loss == Some(CtaLoss::BeforeInput) {
            self.lose_cta();
            return self.queue_for_successor(input);
        }
        let mut out = Outbox::default();
        if let Some(meter) = &mut self.observer.meter {
            meter.begin(&input);
        }
        let missed = match &input {
            Input::Ngap(association, stream, octets) => {
                Some(MissedInput::Ngap(*association, *stream, octets.to_vec()))
            }
            _ => None,
        };
        let record = self.control.cta.handle(self.now, input, &mut out);
        self.control.pair.unacknowledged.extend(record.as_ref().map(|_| missed));
        if let Some(meter) = &mut self.observer.meter {
            meter.end(&out);
        }
        match loss {
            Some(CtaLoss::BeforeReplication) => return self.lose_cta(),
            Some(CtaLoss::AfterOutput) => self.control.pair.last_words = Some(self.control.pair.taken),
            _ => {}
        }
        if let Some(record) = record {
            self.control.pair.caused.extend(self.control.cta.newest_held_outputs().map(octets_of));
            self.send_to_cta_replica(record);
        }
        match loss {
            Some(CtaLoss::AfterReplication) => self.lose_cta(),
            // Without a manager no other can take over.
            Some(CtaLoss::FalseAlarm) if self.has_manager() => self.takes_over_soon(),
            _ => self.cta_output(out),
        }
    }

    /// Carries out an order.
    pub(crate) fn operator_order(&mut self, order: CtaOrder) -> OrderOutcome {
        let mut out = Outbox::default();
        let (ordered, record) = self.control.cta.order(self.now, order, &mut out);
        self.control.pair.unacknowledged.extend(record.as_ref().map(|_| None));
        if let Some(record) = record {
            self.control.pair.caused.extend(self.control.cta.newest_held_outputs().map(octets_of));
            self.send_to_cta_replica(record);
        }
        self.cta_output(out);
        ordered
    }

    fn send_to_cta_replica(&mut self, record: ReplicaRecord) {
        let at = self.when_replicated(true);
        let cta_replica = self.control.pair.cta_replicas;
        self.send(at, InFlight::CtaReplica(ReplicaLink::Record(cta_replica, record)));
    }

    fn when_replicated(&mut self, there: bool) -> Instant {
        let (least, greatest) = LATENCY_MICROS;
        let passes_at = self.now.max(self.control.pair.cut_until);
        let at = passes_at + Duration::from_micros(least + self.rng.below(greatest - least));
        let ordered = if there { &mut self.control.pair.ordered.0 } else { &mut self.control.pair.ordered.1 };
        *ordered = at.max(*ordered);
        *ordered
    }

    pub(crate) fn cta_replica_arrives(&mut self, message: ReplicaLink) {
        match message {
            ReplicaLink::Record(of, record) => {
                let Some(cta_replica) =
                    self.control.pair.cta_replica.as_mut().filter(|_| of == self.control.pair.cta_replicas)
                else {
                    return;
                };
                let before = cta_replica.held();
                let held = cta_replica.take(record.octets()).expect("the CTA replica follows");
                if held > before {
                    let here = cta_replica.newest().map(octets_of);
                    assert_eq!(here, self.control.pair.caused.pop_front(), "the same input led elsewhere");
                    self.control.pair.followed += 1;
                }
                let at = self.when_replicated(false);
                self.send(at, InFlight::CtaReplica(ReplicaLink::Held(of, held)));
            }
            ReplicaLink::Held(of, number) => self.cta_replica_holds(of, number),
            ReplicaLink::AssociationsEnd => self.associations_end(),
            ReplicaLink::TakesOver => self.cta_replica_takes_over(),
            ReplicaLink::Decided(replica, survivor) => {
                let again = || InFlight::CtaReplica(ReplicaLink::Decided(replica, survivor));
                if self.is_witnessed(again, TAKEN_OVER_AFTER) {
                    self.pair_decided(replica, survivor);
                }
            }
            ReplicaLink::Grace => {
                for name in self.control.pair.associations.tick(self.now) {
                    self.cta_input(Input::AssociationDown(name));
                }
            }
        }
    }

    fn cta_replica_holds(&mut self, of: u64, number: u64) {
        let mut out = Outbox::default();
        // A CTA that was replaced does not know it: outputs that its replica had acknowledged leave late.
        if let Some((replaced, _)) =
            self.control.pair.replaced.as_mut().filter(|(_, cta_replica)| *cta_replica == of)
        {
            replaced.acknowledged(number, &mut out);
            out.cpfs.clear(); // its links are closed
            return self.cta_output_of(self.control.pair.host() - 1, out);
        }
        if self.control.pair.dead || of != self.control.pair.cta_replicas || !self.control.pair.has_replica()
        {
            return;
        }
        self.control.cta.acknowledged(number, &mut out);
        let kept = self.control.cta.waiting() + self.control.pair.sacks_lost;
        let held = self.control.pair.unacknowledged.len().saturating_sub(kept);
        self.control.pair.unacknowledged.drain(..held);
        if self.control.pair.last_words.is_some_and(|last| last <= number) {
            self.lose_cta();
            return self.cta_output(out);
        }
        if self.control.pair.unsent.take_if(|at| *at <= number).is_some() {
            self.cta_input(Input::Tick);
            return self.lose_cta();
        }
        self.cta_output(out);
        self.control.cta.mark_outputs_sent();
        if let Some(record) = self.control.cta.sent_report() {
            self.send_to_cta_replica(record);
        }
    }

    /// The CTA is lost, and after a while its CTA replica takes over.
    fn lose_cta(&mut self) {
        self.trace(|| "the CTA is lost".into());
        (self.control.pair.dead, self.control.pair.last_words) = (true, None);
        self.control
            .pair
            .missed
            .extend(std::mem::take(&mut self.control.pair.unacknowledged).into_iter().flatten());
        let at = self.now + ASSOCIATIONS_END_AFTER;
        self.send(at, InFlight::CtaReplica(ReplicaLink::AssociationsEnd));
        self.takes_over_soon();
    }

    fn takes_over_soon(&mut self) {
        let takes_over = || InFlight::CtaReplica(ReplicaLink::TakesOver);
        if self.is_witnessed(takes_over, TAKEN_OVER_AFTER) {
            self.send(self.now + TAKEN_OVER_AFTER, takes_over());
        }
    }

    /// An input arrives for a dead CTA. A gNB sends unacknowledged messages again; CPFs and UPFs
    /// retransmit by themselves, and the membership sends its view to the CTA that takes over.
    fn queue_for_successor(&mut self, input: Input<'_>) {
        let missed = match input {
            Input::AssociationUp { association, outbound_streams, addresses } => {
                MissedInput::Up(association, outbound_streams, addresses)
            }
            Input::AssociationDown(association) => MissedInput::Down(association),
            Input::Ngap(association, stream, octets) => {
                MissedInput::Ngap(association, stream, octets.to_vec())
            }
            _ => return,
        };
        self.control.pair.missed.push(missed);
    }

    pub(crate) fn cta_replica_takes_over(&mut self) {
        // It was discarded, or has taken over already, if a partition was decided meanwhile.
        let Some(cta_replica) = self.control.pair.cta_replica.take() else { return };
        self.trace(|| "the CTA replica takes over".into());
        let (active, first) = cta_replica.take_over();
        self.forget_replicas(false);
        let mut former = std::mem::replace(&mut self.control.cta, active);
        std::mem::swap(self.control.cta.subscribers(), former.subscribers()); // there is one store
        self.control.pair.replaced =
            (!self.control.pair.dead).then_some((former, self.control.pair.cta_replicas));
        (self.control.pair.dead, self.control.pair.loss) = (false, None);
        self.control.pair.caused.clear();
        self.control
            .pair
            .missed
            .extend(std::mem::take(&mut self.control.pair.unacknowledged).into_iter().flatten());
        self.control.pair.takeovers += 1;
        if self.control.pair.replaced.is_some() {
            self.associations_end(); // it detects the takeover in the end, and closes its associations
        }
        self.bind_associations();
        self.operator_order(CtaOrder::TakenOver(vec![address(self.control.pair.cta_replicas - 1)]));
        self.cta_output(first);
        self.resume_links();
        for missed in std::mem::take(&mut self.control.pair.missed) {
            match missed {
                MissedInput::Up(association, outbound_streams, addresses) => {
                    self.cta_input(Input::AssociationUp { association, outbound_streams, addresses });
                }
                MissedInput::Down(association) => self.cta_input(Input::AssociationDown(association)),
                MissedInput::Ngap(association, stream, octets) => {
                    self.ngap_from_gnb(association, self.control.pair.host() - 1, stream, octets);
                }
            }
        }
    }

    /// A message of a gNB. If it was sent to a host that was replaced, the gNB sends it again when it detects that.
    pub(crate) fn ngap_from_gnb(
        &mut self,
        association: AssociationId,
        host: u64,
        stream: u16,
        octets: Vec<u8>,
    ) {
        let from = self.ran.by_association.get(&association);
        let knows_another = from.is_some_and(|index| self.ran.gnbs[index.0].further.is_some());
        if host < self.control.pair.host() && knows_another {
            self.control.pair.missed.push(MissedInput::Ngap(association, stream, octets));
        } else {
            self.cta_input(Input::Ngap(association, stream, &octets));
        }
    }

    /// A gNB detects that the CTA's host is gone, ends the association with it, and continues on the other one: first with what
    /// was not acknowledged (RFC 9260 §11.1).
    pub(crate) fn dissociate(&mut self, index: GnbIndex) {
        let host = self.control.pair.host();
        let node = &mut self.ran.gnbs[index.0];
        let Some(name) = node.association.filter(|_| node.host < host && node.further.is_some()) else {
            return;
        };
        (node.host, node.further) = (host, None);
        let mut again = Vec::new();
        let own = |missed: &mut MissedInput| matches!(missed, MissedInput::Ngap(of, ..) if *of == name);
        for missed in self.control.pair.missed.extract_if(.., own) {
            let MissedInput::Ngap(_, stream, octets) = missed else { continue };
            again.push((stream, octets));
        }
        let own = |t: &InFlight| matches!(t, InFlight::ToCore { association, .. } if *association == name);
        for at in self.queue.messages.iter().filter(|(_, t)| own(t)).map(|(at, _)| *at).collect::<Vec<_>>() {
            let Some(InFlight::ToCore { stream, octets, .. }) = self.queue.messages.remove(&at) else {
                continue;
            };
            again.push((stream, octets));
        }
        for (stream, octets) in again {
            let node = &mut self.ran.gnbs[index.0];
            node.ordered = node.ordered.max(self.now + self.faults.n2_latency(&mut self.rng));
            let at = node.ordered;
            self.send(at, InFlight::ToCore { association: name, host, stream, octets });
        }
        self.gnb(index, gnb::Input::AssociationDown);
    }

    /// The gNBs that are not the peer AMF's.
    pub(crate) fn own_gnbs(&self) -> Vec<GnbIndex> {
        (0..self.ran.gnbs.len()).filter(|&i| !self.ran.gnbs[i].peer_amf).map(GnbIndex).collect()
    }

    /// The CTA's associations end. gNBs that have a second association detect it there.
    fn associations_end(&mut self) {
        for index in self.own_gnbs() {
            let Some(name) = self.ran.gnbs[index.0].association else { continue };
            if self.ran.gnbs[index.0].gnb.has_further() {
                continue;
            }
            self.end_further(index);
            self.gnb(index, gnb::Input::AssociationDown);
            if !self.ran.gnbs[index.0].gnb.is_up() {
                self.ran.gnbs[index.0].association = None;
                self.ran.by_association.remove(&name);
            }
        }
    }

    /// Names stand for the associations of the CTA replica's host from now on. A gNB that has none there sets up again.
    fn bind_associations(&mut self) {
        let names = self.cta().ran_nodes().held_names();
        for name in self.control.pair.associations.take_over(self.now, names) {
            self.cta_input(Input::AssociationDown(name));
        }
        if let Some(at) = self.control.pair.associations.next_deadline() {
            self.send(at, InFlight::CtaReplica(ReplicaLink::Grace));
        }
        for index in self.own_gnbs() {
            match self.ran.gnbs[index.0].association {
                Some(name) => {
                    let over = self.control.pair.associations.over(name);
                    // The gNB may not have chosen yet which one it continues with.
                    let known = over.is_none() || over == self.ran.gnbs[index.0].further;
                    assert!(known, "{name:?} goes on over the other one");
                    if self.ran.gnbs[index.0].by_hand.is_some() {
                        self.dissociate(index);
                    }
                }
                None if self.ran.gnbs[index.0].by_hand.is_none() => self.connect(index),
                None => {}
            }
        }
    }

    /// A gNB gets the CTA replica's endpoint.
    pub(crate) fn associate(&mut self, index: GnbIndex) {
        if self.control.pair.cta_replica.is_none()
            || self.ran.gnbs[index.0].single
            || self.ran.gnbs[index.0].further.is_some()
        {
            return;
        }
        self.control.pair.physicals += 1;
        self.ran.gnbs[index.0].further = Some(LocalAssociation(self.control.pair.physicals));
        self.gnb(index, gnb::Input::FurtherAssociationUp);
    }

    pub(crate) fn end_further(&mut self, index: GnbIndex) {
        if let Some(over) = self.ran.gnbs[index.0].further.take() {
            self.control.pair.associations.down(over);
            self.gnb(index, gnb::Input::FurtherAssociationDown);
        }
    }

    /// A gNB's message over its association with the CTA replica's host. The gNB may have left for that host meanwhile ([`Self::dissociate`]):
    /// the address is that of the association.
    pub(crate) fn further_to_core(
        &mut self,
        (over, from): (LocalAssociation, IpAddr),
        stream: u16,
        octets: &[u8],
    ) {
        match self.control.pair.associations.take(over, Some(from), octets) {
            MessageRoute::Answered(octets) => {
                let Some(node) = self.ran.gnbs.iter_mut().find(|n| n.further == Some(over)) else { return };
                node.ordered = node.ordered.max(self.now + self.faults.n2_latency(&mut self.rng));
                let at = node.ordered;
                self.send(at, InFlight::FurtherToGnb { over, stream: 0, octets });
            }
            MessageRoute::ToAssociation(name) => self.cta_input(Input::Ngap(name, stream, octets)),
            MessageRoute::NewAssociation | MessageRoute::Dropped => {}
        }
    }

    pub(crate) fn further_to_gnb(&mut self, over: LocalAssociation, stream: u16, octets: &[u8]) {
        let of = |n: &crate::gnbs::GnbNode| n.further == Some(over);
        if let Some(index) = self.ran.gnbs.iter().position(of) {
            self.gnb(GnbIndex(index), gnb::Input::FurtherNgap { stream, octets });
        }
    }

    /// The CTA that took over gets the list of CPFs, and resumes each link where the former CTA stopped.
    fn resume_links(&mut self) {
        let Some(cluster) = &mut self.control.cluster else { return };
        let rings = cluster.rings();
        let on_links =
            |t: &InFlight| matches!(t, InFlight::Link(RegionMessage::Down { .. } | RegionMessage::Up { .. }));
        let before = self.queue.messages.len();
        self.queue.messages.retain(|_, t| !on_links(t));
        cluster.under_way -= before - self.queue.messages.len();
        let of_former: Vec<_> = self.control.cta.unresumed_cpfs().collect();
        self.cta_input(Input::Rings(rings));
        for cpf in of_former {
            let Some(cluster) = &mut self.control.cluster else { return };
            // A CPF that is being drained is on no ring, and still serves UEs.
            if !cluster.is_there(cpf) {
                self.cta_input(Input::CpfLost(cpf));
                continue;
            }
            let Some(end) = cluster.ends.get_mut(&cpf) else { continue }; // dead, and to be found out
            let has = end.taken();
            let messages = self.control.cta.resume(cpf, has).expect("both have what the other lacks");
            let taken = self.control.cta.durable_messages(cpf);
            let rest = end.resume(taken).expect("it is kept until it is confirmed");
            let again: Vec<_> =
                rest.cloned().map(|message| RegionMessage::Up { from: cpf, has, message }).collect();
            messages
                .into_iter()
                .for_each(|message| self.link(RegionMessage::Down { to: cpf, taken, message }));
            again.into_iter().for_each(|link| self.link(link));
        }
    }
}

/// The kind of an input, for the report.
fn name(input: &Input<'_>) -> &'static str {
    match input {
        Input::AssociationUp { .. } => "association that comes up",
        Input::AssociationDown(_) => "association that ends",
        Input::AssociationAnswered(_) => "answer to a probe",
        Input::AddressConfirmed(..) => "address of a gNB",
        Input::Ngap(..) => "NGAP message",
        Input::Pfcp(..) => "PFCP message",
        Input::Command(..) | Input::SubscribersChanged(_) | Input::Move(..) => "order",
        Input::Cpf(_, CpfReport::Ran { .. }) => "answer of a CPF",
        Input::Cpf(_, CpfReport::CheckpointHeld { .. }) => "acknowledgement of a state",
        Input::Cpf(..) => "protocol violation report of a CPF",
        Input::CpfLost(_) => "loss of a CPF",
        Input::Rings(_) => "change of the rings",
        Input::PeerAmf(..) => "N14 message",
        Input::Broker(..) => "answer of a broker",
        Input::Udm(..) | Input::DeregisteredByUdm(_) => "message of the UDM",
        Input::Charging(..) => "answer of the CHF",
        Input::Policy(..) | Input::PolicyNotified(..) => "message of the PCF",
        Input::SmContextRequested(_) | Input::TransferAnswered(..) => "message of another vendor's AMF",
        Input::SmContext(..) | Input::SmfOrdered(..) => "message of another vendor's SMF",
        Input::Predicted(..) => "a prediction",
        Input::Tick | Input::Waited(_) => "time",
    }
}

/// The address of the CTA replica of a number; number zero is the first CTA.
fn address(cta_replica: u64) -> IpAddr {
    [10, 0, 0, 2 + (cta_replica % 2) as u8].into()
}

/// All outputs, as octets.
fn octets_of(out: &Outbox) -> Vec<u8> {
    let mut octets = Vec::new();
    for (association, stream, message) in &out.ngap {
        octets.extend([association.0.to_be_bytes().as_slice(), &stream.to_be_bytes(), message].concat());
    }
    for (ue, to, request) in &out.brokers {
        octets.extend(format!("{ue:?} {to:?}").as_bytes());
        octets.extend(format!("{request:?}").bytes());
    }
    for query in &out.udm {
        octets.extend(format!("{query:?}").bytes());
    }
    for query in &out.charging {
        octets.extend(format!("{query:?}").bytes());
    }
    for query in &out.policy {
        octets.extend(format!("{query:?}").bytes());
    }
    octets.extend(format!("{:?}{:?}{:?}", out.amf, out.sm_context_answers, out.sm_contexts).bytes());
    for (upf, message) in &out.pfcp {
        octets.extend([&[upf.0], message.as_slice()].concat());
    }
    for (to, message) in &out.cpfs {
        octets.extend(to.0.to_be_bytes());
        ToCpf::Command(message.clone()).write(&mut octets);
    }
    octets.extend(format!("{:?}{:?}{:?}", out.events, out.ran_events, out.upfs).bytes());
    octets.extend(format!("{:?}{:?}", out.abort, out.probes).bytes());
    octets
}
