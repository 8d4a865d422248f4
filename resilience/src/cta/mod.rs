//! The CTA as a machine.

mod charging;
mod cpfs;
mod drain;
mod external;
mod first;
mod moves;
mod n14;
mod n4;
mod order;
mod path_switches;
mod questions;
mod ran;
mod recovery;
mod remote_amfs;
mod removal;
mod restart;
mod scan;
mod slots;
mod sm_contexts;
mod sm_policy;
mod snapshot;
mod udm;
mod upf_drain;
mod upfs;
mod versions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::amf::{self, Load, PeerAmfId, RanNodes};
use whimbrel_control::charging::ChargingAnswer;
use whimbrel_control::config::Config;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::open;
use whimbrel_control::remote_amf::{SmContextAnswer, SmContextExchange, SmContextRequest, TransferAnswer};
use whimbrel_control::sm_contexts::{SmfAnswer, SmfOrder};
use whimbrel_control::sm_policy::{PolicyAnswer, PolicyNotification};
use whimbrel_control::udm::{Directory, RegistrationChange, Subscribers, UdmAnswer, UdmRequest};
use whimbrel_control::{
    AssociationId, Batch, Command, Disposition, Effect, Envelope, Flat, HandoverTarget, Output, OutputId,
    Payload, Prf, RanEvent, UeContext, UeEvent, UeId, UpfId,
};
use whimbrel_ids::{AmfUeNgapId, GlobalGnbId, Instant, PduSessionId, SNssai, Supi, Tai, Tmsi};
use whimbrel_ngap::ie::TriggeringMessage;
use whimbrel_ngap::{Message, Peek, ProcedureCode, TransferSyntax};
use whimbrel_security::{SecurityHeaderType, SqnSlot};

use crate::link::{CpfCommand, CpfReport};
use crate::region::Rings;
use crate::replication::CpfId;
use crate::{CodeVersion, Cpf};
pub use charging::ChargingQuery;
use cpfs::{Cpfs, Service};
pub use cpfs::{LogLimits, ProtocolViolation, ReplicationCounters};
pub(crate) use external::{ExternalSource, ExternalValues};
use first::{Asks, FirstMessage, FirstMessageQuery};
use n4::N4Arrival;
use n14::ArrivedUes;
pub use n14::{N14Error, handover_not_reached};
pub use order::{CtaOrder, OrderOutcome};
use path_switches::PathSwitches;
use questions::Questions;
use ran::{Bounds, PendingReset};
pub use recovery::TakeoverTime;
pub use remote_amfs::AmfQuery;
use remote_amfs::RemoteUes;
use removal::Removal;
pub use removal::RemovalProgress;
use restart::RestoringUes;
pub use restart::{
    RestorationOutcome, RestoreError, StoredAmf, StoredUe, StoredUes, SurvivingState, ToStore,
};
use slots::UeSlots;
pub use sm_contexts::SmfQuery;
pub use sm_policy::PolicyQuery;
pub(crate) use snapshot::{CtaState, StateOf};
pub use udm::UdmQuery;
pub use upf_drain::UpfDrainProgress;
use upfs::Upfs;
pub use versions::{AnswerTimes, VersionFigures};

/// The source of the inputs' entropy: the system's generator in the program, a seed in simulation.
pub trait Entropy {
    /// Sixteen unpredictable octets.
    fn draw(&mut self) -> [u8; 16];
}

/// Inputs of the CTA.
#[derive(Debug)]
pub enum Input<'a> {
    /// A gNB's association came up, with this many streams towards the gNB.
    AssociationUp {
        /// The association that is up.
        association: AssociationId,
        /// Streams from us to the gNB; 0 is for what concerns no UE.
        outbound_streams: u16,
        /// The peer's addresses that SCTP has confirmed (RFC 9260 §5.4); the first one is the one that it connected from.
        addresses: Vec<IpAddr>,
    },
    /// SCTP has confirmed a further address of an association's peer.
    AddressConfirmed(AssociationId, IpAddr),
    /// The peer of an association gave a sign of life after it was probed ([`Outbox::probes`]).
    AssociationAnswered(AssociationId),
    /// An association ended or was restarted by its peer (RFC 9260 §5.2).
    AssociationDown(AssociationId),
    /// An NGAP message, and the stream on which it came.
    Ngap(AssociationId, u16, &'a [u8]),
    /// A PFCP message of a UPF.
    Pfcp(UpfId, &'a [u8]),
    /// An operator's command for a UE.
    Command(UeId, Command),
    /// The longest queueing delay of recent messages.
    Waited(Duration),
    /// The subscriber store has changed: these subscribers, or all (TS 23.502 §4.5.1).
    SubscribersChanged(Option<&'a [Supi]>),
    /// A report of a CPF of the region.
    Cpf(CpfId, CpfReport),
    /// A CPF of the region was declared lost: its later reports are ignored.
    CpfLost(CpfId),
    /// The CPFs of the region have changed. For lost ones [`Input::CpfLost`] follows; the others drain: their UEs move away, and
    /// [`Outbox::drained`] names them when that is done. A lost CPF never comes back under its number, even if it was declared lost by
    /// mistake.
    Rings(Rings),
    /// Moves a UE to another CPF of the region, now or when no procedure runs: at a handover into that CPF's area, or since its own CPF
    /// drains. The UE stays if that CPF is gone, or its checkpoint does not get there in time.
    Move(UeId, CpfId),
    /// A message of a peer AMF ([`N14`](amf::N14)).
    PeerAmf(PeerAmfId, &'a [u8]),
    /// What came of a question to a broker ([`Outbox::brokers`]).
    Broker(UeId, OutputId, open::BrokerAnswer),
    /// The answer of a remote UDM to a request ([`Outbox::udm`]), with the request.
    Udm(UeId, OutputId, Box<(UdmRequest, UdmAnswer)>),
    /// A remote UDM has deregistered a subscriber from this AMF (TS 29.503 §5.3.2.3.2).
    DeregisteredByUdm(Supi),
    /// The answer of the CHF to a request ([`Outbox::charging`]).
    Charging(UeId, OutputId, Box<ChargingAnswer>),
    /// The answer of the PCF to a request ([`Outbox::policy`]).
    Policy(UeId, OutputId, Box<PolicyAnswer>),
    /// An order of the PCF for a session (TS 29.512 §4.2.3).
    PolicyNotified(UeId, PduSessionId, Box<PolicyNotification>),
    /// The answer of another vendor's SMF to a request ([`Outbox::sm_contexts`]) about a session.
    SmContext(UeId, OutputId, PduSessionId, Box<SmfAnswer>),
    /// An order of that SMF for a session (TS 29.518 §5.2.2.3.1, TS 29.502 §5.2.2.5).
    SmfOrdered(UeId, PduSessionId, Box<SmfOrder>),
    /// A request of another vendor's AMF about an SM context.
    SmContextRequested(Box<SmContextRequest>),
    /// The answer of such an AMF to a transfer ([`Outbox::amf`]).
    TransferAnswered(UeId, TransferAnswer),
    /// The predictor expects a UE at this gNB, in this tracking area, within seconds (Synergy §III-C).
    Predicted(UeId, GlobalGnbId, Tai),
    /// Time that has passed.
    Tick,
}

/// Outputs of the CTA.
#[derive(Debug, Default)]
pub struct Outbox {
    /// NGAP messages: association, stream, octets.
    pub ngap: Vec<(AssociationId, u16, Vec<u8>)>,
    /// PFCP messages, by UPF.
    pub pfcp: Vec<(UpfId, Vec<u8>)>,
    /// Events of UEs.
    pub events: Vec<UeEvent>,
    /// Events of gNBs.
    pub ran_events: Vec<RanEvent>,
    /// State changes of UPFs.
    pub upfs: Vec<(UpfId, UpfChange)>,
    /// Commands to CPFs of the region, in order.
    pub cpfs: Vec<(CpfId, CpfCommand)>,
    /// Draining CPFs without UEs: they may leave.
    pub drained: Vec<CpfId>,
    /// Protocol violations of CPFs, each reported once.
    pub cpf_violations: Vec<(CpfId, ProtocolViolation)>,
    /// How long takeovers took after the loss of a CPF.
    pub takeover_times: Vec<TakeoverTime>,
    /// Messages to peer AMFs ([`N14`](amf::N14)).
    pub n14: Vec<(PeerAmfId, Flat)>,
    /// To brokers: whose question it is, by which the answer comes back ([`Input::Broker`]).
    pub brokers: Vec<(UeId, OutputId, open::BrokerQuestion)>,
    /// To a remote UDM; the answers come back as [`Input::Udm`].
    pub udm: Vec<UdmQuery>,
    /// To the CHF; the answers come back as [`Input::Charging`].
    pub charging: Vec<ChargingQuery>,
    /// To the PCF; the answers come back as [`Input::Policy`].
    pub policy: Vec<PolicyQuery>,
    /// To another vendor's SMF; the answers come back as [`Input::SmContext`].
    pub sm_contexts: Vec<SmfQuery>,
    /// To AMFs of other vendors; the answers to transfers come back as [`Input::TransferAnswered`].
    pub amf: Vec<AmfQuery>,
    /// Answers to requests of such AMFs ([`Input::SmContextRequested`]).
    pub sm_context_answers: Vec<(SmContextExchange, Box<SmContextAnswer>)>,
    /// Messages of peer AMFs that were rejected.
    pub n14_errors: Vec<(PeerAmfId, N14Error)>,
    /// SCTP associations to abort; the CTA has dropped them.
    pub abort: Vec<AssociationId>,
    /// SCTP associations whose peer is to be asked for a sign of life ([`Input::AssociationAnswered`]). While no answer is reported they are
    /// named again, every quarter of a second for 3 s.
    pub probes: Vec<AssociationId>,
    /// UEs to store for the next start of the core ([`CtaOrder::StoreUes`]).
    pub stored: Vec<ToStore>,
}

impl Outbox {
    /// Appends later outputs.
    pub fn append(&mut self, mut later: Outbox) {
        self.ngap.append(&mut later.ngap);
        self.pfcp.append(&mut later.pfcp);
        self.events.append(&mut later.events);
        self.ran_events.append(&mut later.ran_events);
        self.upfs.append(&mut later.upfs);
        self.cpfs.append(&mut later.cpfs);
        self.drained.append(&mut later.drained);
        self.cpf_violations.append(&mut later.cpf_violations);
        self.takeover_times.append(&mut later.takeover_times);
        self.n14.append(&mut later.n14);
        self.brokers.append(&mut later.brokers);
        self.udm.append(&mut later.udm);
        self.charging.append(&mut later.charging);
        self.policy.append(&mut later.policy);
        self.sm_contexts.append(&mut later.sm_contexts);
        self.amf.append(&mut later.amf);
        self.sm_context_answers.append(&mut later.sm_context_answers);
        self.n14_errors.append(&mut later.n14_errors);
        self.abort.append(&mut later.abort);
        self.probes.append(&mut later.probes);
        self.stored.append(&mut later.stored);
    }
}

/// A state change of a UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpfChange {
    /// No answer to a request for an association; more requests follow until there is one.
    Unanswered,
    /// The association is established.
    Up,
    /// It is established, but the UPF does not allocate F-TEIDs and UE addresses: it gets no session.
    Unfit,
    /// The association is established, but the UPF gives UEs addresses that another one gives too: it gets no session.
    PoolTaken {
        /// The UPF that has the pool.
        by: UpfId,
        /// An address of it.
        address: IpAddr,
        /// Length of its prefix, in bits.
        length: u8,
    },
    /// The UPF does not answer; its sessions are kept for a while (TS 23.527 §4.4).
    Silent,
    /// It answers again, and its sessions are intact.
    Back,
    /// It did not answer for too long, or is not back in time after a restart: its sessions are gone.
    Lost,
    /// It asks for the release of the association (TS 29.244 §6.2.8.3).
    Leaving,
    /// The association was released.
    Released,
    /// It restarted: it gets its sessions again when it is connected (TS 23.527 §4.3).
    Restarted,
}

/// Observes inputs and their batches: recording, replay checks, logs.
pub trait Inspect {
    /// One input was run in this process (not called where a region's CPFs run them).
    fn ran(&mut self, _: &Envelope, _: &Batch) {}

    /// An input's outputs are about to leave.
    fn released(&mut self, _: UeId, _clock: u64, _: &Batch) {}
}

/// An observer that observes nothing.
impl Inspect for () {}

/// The CTA, on one thread; its UEs run in a CPF of its own, or in those of its region.
pub struct Cta<S, E, I = ()> {
    config: Arc<Config>,
    service: Service,
    slots: UeSlots,
    ran: RanNodes,
    streams: BTreeMap<AssociationId, u16>,
    directory: Directory,
    subscribers: S,
    entropy: E,
    outside: ExternalSource,
    upfs: Upfs,
    inspect: I,
    /// Inputs for UEs that other inputs caused; run before the next external one.
    inbox: VecDeque<(UeId, Payload)>,
    arrived: Vec<N4Arrival>,
    bounds: Bounds,
    /// The load that the overload rule judged last.
    load: Load,
    /// The next deadline of the gNBs.
    ran_due: Option<Instant>,
    /// First messages that UE contexts were asked about.
    asked: Asks,
    /// Path switches without an answer.
    path_switches: PathSwitches,
    /// Resets that are acknowledged when their UEs' connections are released.
    resetting: Vec<PendingReset>,
    /// UEs that came from peer AMFs.
    arrivals: ArrivedUes,
    /// Questions to brokers.
    questions: Questions,
    /// UEs of this process that have changed since UEs were stored last. `None`: none were.
    unstored: Option<BTreeSet<UeId>>,
    restoring: RestoringUes,
    ended_charging: charging::EndedCharging,
    /// UEs that AMFs of other vendors serve.
    remote_ues: RemoteUes,
    /// The planned removal of this AMF.
    removal: Option<Removal>,
}

/// The CTA's term, stamped into envelopes.
const TERM: u32 = 1;

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// A CTA without UEs. It sets up its N4 associations at the first [`Input::Tick`].
    pub fn new(
        config: Arc<Config>,
        directory: Directory,
        subscribers: S,
        mut entropy: E,
        inspect: I,
        now: Instant,
    ) -> Self {
        let tmsi_key = entropy.draw();
        Self {
            service: Service::Here(Box::new(Cpf::new(config.clone()))),
            slots: UeSlots::new(&tmsi_key, config.amf.amf_id.pointer()),
            ran: RanNodes::new(config.clone()),
            streams: Default::default(),
            directory,
            subscribers,
            entropy,
            outside: ExternalSource::default(),
            upfs: Upfs::new(&config.smf, now),
            inspect,
            config,
            inbox: VecDeque::new(),
            arrived: Vec::new(),
            bounds: Bounds::default(),
            load: Load::default(),
            ran_due: None,
            asked: Asks::default(),
            path_switches: PathSwitches::default(),
            resetting: Vec::new(),
            arrivals: ArrivedUes::default(),
            questions: Questions::default(),
            unstored: None,
            restoring: RestoringUes::default(),
            ended_charging: Default::default(),
            remote_ues: RemoteUes::default(),
            removal: None,
        }
    }

    /// A CTA whose UEs run in the CPFs of its region. Their reports come as [`Input::Cpf`].
    pub fn of_region(
        config: Arc<Config>,
        directory: Directory,
        subscribers: S,
        entropy: E,
        inspect: I,
        rings: Rings,
        now: Instant,
    ) -> Self {
        let service = Service::Region(Box::new(Cpfs::new(rings, now)));
        Self { service, ..Self::new(config, directory, subscribers, entropy, inspect, now) }
    }

    /// Takes one input and runs everything that it causes.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::AssociationUp { association, outbound_streams, addresses } => {
                self.association_up(now, association, outbound_streams, addresses, out);
            }
            Input::AssociationAnswered(association) => {
                let result = self.ran.answered_probe(association);
                self.ran_output(now, association, result, out);
            }
            Input::AddressConfirmed(association, address) => self.ran.confirm_address(association, address),
            Input::AssociationDown(association) => self.association_down(now, association, out),
            Input::Ngap(association, stream, octets) => self.ngap(now, association, stream, octets, out),
            Input::Pfcp(upf, octets) => self.pfcp(now, upf, octets, out),
            Input::Command(ue, command) => self.inbox.push_back((ue, Payload::Command(command))),
            Input::Waited(delay) => self.waited(now, delay, out),
            Input::SubscribersChanged(changed) => self.subscribers_changed(changed),
            Input::Cpf(from, message) => self.up(now, from, message, out),
            Input::CpfLost(cpf) => self.cpf_lost(now, cpf, out),
            Input::Rings(rings) => self.rings(now, rings),
            Input::Move(ue, to) => self.move_ue(now, ue, to, out),
            Input::PeerAmf(from, octets) => self.neighbour(now, from, octets, out),
            Input::Broker(ue, to, answer) => self.inbox.push_back((ue, Payload::Broker { to, answer })),
            Input::Udm(ue, to, exchange) => self.udm_answered(ue, to, &exchange.0, exchange.1),
            Input::DeregisteredByUdm(supi) => self.deregistered_by_udm(supi),
            Input::Charging(ue, to, answer) => self.chf_answered(ue, to, answer),
            Input::Policy(ue, to, answer) => self.pcf_answered(ue, to, answer),
            Input::PolicyNotified(ue, psi, notification) => self.pcf_notified(ue, psi, notification),
            Input::SmContext(ue, to, psi, answer) => self.smf_answered(ue, to, psi, answer),
            Input::SmfOrdered(ue, psi, order) => self.smf_ordered(ue, psi, order),
            Input::SmContextRequested(request) => self.sm_context_requested(now, request, out),
            Input::TransferAnswered(ue, answer) => self.amf_answered(ue, answer),
            Input::Predicted(ue, gnb, tai) => self.predicted(ue, gnb, tai),
            Input::Tick => self.tick(now, out),
        }
        self.run(now, out);
        self.acknowledge_resets(out);
        self.report_released(now, out);
    }

    /// When [`Input::Tick`] has something to do.
    pub fn next_deadline(&self) -> Instant {
        let ues_and_gnbs = self.slots.next_deadline().into_iter().chain(self.ran_due).min();
        let ues_and_gnbs = ues_and_gnbs
            .into_iter()
            .chain(self.ended_charging.next_deadline())
            .chain(self.removal_due())
            .min();
        let ues_and_gnbs = ues_and_gnbs.unwrap_or(Instant::FAR_FUTURE);
        ues_and_gnbs.min(self.upfs.next_deadline()).min(self.next_scan())
    }

    /// Applies a new version of the configuration to later inputs; gNBs get AMF CONFIGURATION UPDATE where it concerns them.
    pub fn configure(&mut self, now: Instant, config: Arc<Config>, out: &mut Outbox) {
        self.configure_cpfs(&config, out);
        let former = std::mem::replace(&mut self.config, config.clone());
        if former.smf.data_networks != config.smf.data_networks {
            let with_sessions = self.slots.sessions().filter(|(_, upfs)| !upfs.is_empty());
            let notice = |(ue, _)| (ue, Payload::Command(Command::PolicyChanged));
            self.inbox.extend(with_sessions.map(notice));
        }
        if config.amf.local_time.differs_from(&former.amf.local_time) {
            let notice = |ue| (ue, Payload::Command(Command::LocalTimeChanged));
            self.inbox.extend(self.slots.with_connections().map(notice));
        }
        let result = self.ran.configure(now, config);
        self.ran_output(now, AssociationId(u32::MAX), result, out);
        self.run(now, out);
    }

    /// Nudm_SDM_Notification to the UEs that are registered under these subscriptions.
    fn subscribers_changed(&mut self, changed: Option<&[Supi]>) {
        let ues: Vec<UeId> = match changed {
            Some(supis) => supis.iter().filter_map(|s| self.directory.registered(*s)).collect(),
            None => self.directory.all_registered().collect(),
        };
        let notice = |ue| (ue, Payload::Command(Command::SubscriptionChanged));
        self.inbox.extend(ues.into_iter().map(notice));
        self.notify_remote_ues(changed);
    }

    /// What is in force.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The gNBs of this CTA.
    pub fn ran_nodes(&self) -> &RanNodes {
        &self.ran
    }

    /// The UEs that are served in this program, in slot order.
    pub fn contexts(&self) -> impl Iterator<Item = &UeContext> {
        self.cpf().into_iter().flat_map(Cpf::contexts)
    }

    /// One UE that is served in this program.
    pub fn context(&self, id: UeId) -> Option<&UeContext> {
        self.cpf()?.context(id)
    }

    /// The CPF of its UEs, where it is a part of this program.
    pub fn cpf(&self) -> Option<&Cpf> {
        match &self.service {
            Service::Here(cpf) => Some(cpf),
            Service::Region(_) => None,
        }
    }

    /// The same, to let UEs rest between two inputs.
    pub fn cpf_mut(&mut self) -> Option<&mut Cpf> {
        match &mut self.service {
            Service::Here(cpf) => Some(cpf),
            Service::Region(_) => None,
        }
    }

    /// Adds a UE as a registration and the release of its connection leave it: for demonstrations and benchmarks with more UEs than can
    /// register in the time. `make` gets the UE's slot and 5G-TMSI. Returns `false` at the limit of UEs, or if UEs are served elsewhere.
    pub fn add_idle_ue(&mut self, now: Instant, make: impl FnOnce(UeId, Tmsi) -> Box<UeContext>) -> bool {
        let Service::Here(cpf) = &mut self.service else { return false };
        let Some(id) = self.slots.allocate(self.config.limits.ues, AssociationId(0)) else { return false };
        let ue = make(id, self.slots.tmsi(id));
        self.slots.stamp(id, now);
        self.slots.tmsi_taken(id);
        self.slots.note(id, ue.clock, &ue.as_batch());
        if let (Some(supi), Some(subscription)) = (ue.amf.supi, ue.amf.subscription.clone()) {
            let registered = UdmAnswer::Registered(Ok(subscription));
            self.directory.follow(id, &UdmRequest::Register(supi), registered);
        }
        cpf.restore_at_rest(ue);
        true
    }

    /// The UE of a subscriber that is registered.
    pub fn find(&self, supi: Supi) -> Option<UeId> {
        self.directory.registered(supi)
    }

    /// True if the UE is in 5GMM-CONNECTED.
    pub fn is_connected(&self, ue: UeId) -> bool {
        self.slots.names(ue).next().is_some()
    }

    /// The UE in the slot that a 5G-TMSI of ours leads to.
    pub fn find_tmsi(&self, tmsi: Tmsi) -> Option<UeId> {
        self.slots.by_tmsi(tmsi)
    }

    /// The UE that an AMF-UE-NGAP-ID of ours names (TS 38.413 §9.3.3.1).
    pub fn find_connection(&self, id: AmfUeNgapId) -> Option<UeId> {
        self.slots.by_amf_ue_ngap_id(id)
    }

    /// Slots in use, and those of them that hold a UE which did not authenticate yet.
    pub fn occupancy(&self) -> (usize, u32) {
        (self.slots.used(), self.slots.unauthenticated_ues())
    }

    /// UEs that are registered.
    pub fn registered(&self) -> usize {
        self.directory.registrations_count()
    }

    /// Has changes of registrations kept for [`Self::take_changed_registrations`]. A CTA replica keeps none.
    pub fn keep_changed_registrations(&mut self) {
        self.directory.keep_changed();
    }

    /// Takes the subscribers whose registration has changed, each with its last change.
    pub fn take_changed_registrations(&mut self) -> BTreeMap<Supi, RegistrationChange> {
        self.directory.take_changed()
    }

    /// [`Directory::set_sqn_slot`]: sequence numbers are not replicated.
    pub fn set_sqn_slot(&mut self, sqn_slot: Option<SqnSlot>) {
        self.directory.set_sqn_slot(sqn_slot);
    }

    /// [`Directory::set_slice_shares`]: a CTA replica follows the answers that depend on them.
    pub fn set_slice_shares(&mut self, shares: BTreeMap<SNssai, u32>) {
        self.directory.set_slice_shares(shares);
    }

    /// The number of UEs in each slice that has a limit.
    pub fn slice_counts(&self) -> impl Iterator<Item = (SNssai, u32)> + '_ {
        self.directory.slice_counts()
    }

    /// The subscribers that are registered.
    pub fn registered_subscribers(&self) -> impl Iterator<Item = Supi> + '_ {
        self.directory.registered_subscribers()
    }

    /// UEs with a connection.
    pub fn connected(&self) -> usize {
        self.slots.connected()
    }

    /// UEs with a connection over this association.
    pub fn connected_over(&self, association: AssociationId) -> usize {
        self.slots.connected_over(association)
    }

    /// The store of subscribers.
    pub fn subscribers(&mut self) -> &mut S {
        &mut self.subscribers
    }

    /// What listens to every input.
    pub fn inspect(&mut self) -> &mut I {
        &mut self.inspect
    }

    fn ngap(
        &mut self,
        now: Instant,
        association: AssociationId,
        stream: u16,
        octets: &[u8],
        out: &mut Outbox,
    ) {
        let peek = whimbrel_ngap::peek(octets);
        match peek {
            Some(Peek { amf_ue_ngap_id: Some(id), .. }) if self.ran.is_set_up(association) => {
                match self.slots.by_amf_ue_ngap_id(id) {
                    // PATH SWITCH REQUEST may come from a gNB without a connection of the UE; other messages from such a gNB do not reach
                    // the UE.
                    Some(ue)
                        if !peek.is_some_and(|p| is_path_switch_request(&p))
                            && !self.slots.concerns(ue, association) =>
                    {
                        let what = "an AMF UE NGAP ID of a UE that was never there";
                        self.unknown_ue(now, association, stream, octets, what, out);
                    }
                    Some(ue)
                        if peek.is_some_and(|p| {
                            self.is_of_second_context(ue, (association, stream), id, &p, out)
                        }) => {}
                    Some(ue) => {
                        self.slots.uses_stream(ue, association, stream);
                        let octets: Arc<[u8]> = octets.into();
                        if let Some(peek) = peek.as_ref().filter(|p| is_path_switch_request(p)) {
                            self.slots.asked_elsewhere(ue, association, id, stream);
                            let by_name = |name| self.slots.by_ran_ue_ngap_id(association, name);
                            if peek.ran_ue_ngap_id.and_then(by_name) != Some(ue) {
                                self.path_switches.insert(ue, (association, stream), peek, &octets);
                            }
                            if self.slots.names(ue).any(|names| names.amf_ue_ngap_id == id) {
                                self.follow_to_gnb(now, ue, association, out);
                            }
                        }
                        let required = peek.is_some_and(|p| is_handover_required(&p));
                        let payload = match required {
                            true => self.handover_required(now, ue, association, octets, out),
                            false => Payload::Ngap { association, octets },
                        };
                        self.inbox.push_back((ue, payload));
                    }
                    None if self.slots.has_just_left(now, id) => {
                        // The target gNB waits for an answer; other gNBs get the release.
                        if let Ok(Message::PathSwitchRequest(m)) = Message::decode(octets) {
                            send(association, stream, &amf::build_failure_after_release(&m), out);
                        }
                    }
                    None => {
                        let what = "an AMF UE NGAP ID of no UE";
                        self.unknown_ue(now, association, stream, octets, what, out);
                    }
                }
            }
            Some(p) if is_initial_ue_message(&p) && self.ran.is_set_up(association) => {
                let first = FirstMessage::new(association, stream, octets);
                self.initial_ue_message(now, &p, first, out);
            }
            _ => self.ran_node(now, association, octets, out),
        }
    }

    /// Whether a message is of a second context that a gNB made since it got HANDOVER REQUEST twice: a CTA replica that takes over repeats
    /// what may not have left ([`crate::cta_replica::CtaReplica::take_over`]). The second context is released; the UE is not affected.
    fn is_of_second_context(
        &mut self,
        ue: UeId,
        (association, stream): (AssociationId, u16),
        ours: AmfUeNgapId,
        message: &Peek,
        out: &mut Outbox,
    ) -> bool {
        let Some(theirs) = message.ran_ue_ngap_id else { return false };
        let is_second = self.slots.is_made_twice(ue, ours, theirs);
        match is_handover_request_acknowledge(message) {
            true if is_second => send(association, stream, &amf::release_of(ours, Some(theirs)), out),
            true => self.slots.made(ue, ours, theirs),
            false => return is_second && is_answer_to_release(message),
        }
        is_second
    }

    /// HANDOVER REQUIRED with the target gNB, and an AMF-UE-NGAP-ID for the UE there: gNBs are shared, and a UE's procedures know of them
    /// only what its inputs say.
    fn handover_required(
        &mut self,
        now: Instant,
        ue: UeId,
        association: AssociationId,
        octets: Arc<[u8]>,
        out: &mut Outbox,
    ) -> Payload {
        let named = self.ran.handover_target(&octets);
        let target = named.and_then(|(association, node)| {
            let amf_ue_ngap_id = self.slots.target_connection(ue)?;
            let (tacs, slices) = (node.tacs.clone(), node.slices.clone());
            Some(HandoverTarget { association, amf_ue_ngap_id, tacs, slices })
        });
        let is_its = self.slots.names(ue).any(|names| names.association == association);
        if let Some(target) = target.as_ref().filter(|_| is_its) {
            self.follow_to_gnb(now, ue, target.association, out);
        }
        Payload::HandoverRequired { association, octets, target }
    }

    /// A prediction, with the target as HANDOVER REQUIRED would get it. For a UE or a gNB that is gone it has no effect.
    fn predicted(&mut self, ue: UeId, gnb: GlobalGnbId, tai: Tai) {
        let Some(association) = self.ran.find(gnb) else { return };
        let Some(node) = self.ran.get(association) else { return };
        let (tacs, slices) = (node.tacs.clone(), node.slices.clone());
        let Some(amf_ue_ngap_id) = self.slots.target_connection(ue) else { return };
        let target = HandoverTarget { association, amf_ue_ngap_id, tacs, slices };
        self.inbox.push_back((ue, Payload::Predicted { target, gnb, tai }));
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(ue) = self.slots.due(now) {
            self.input(now, ue, Payload::Tick, out);
        }
        self.tick_cpfs(now, out);
        if self.ran_due.is_some_and(|due| due <= now) {
            let result = self.ran.tick(now);
            self.ran_output(now, AssociationId(u32::MAX), result, out);
        }
        self.tick_upfs(now, out);
        self.repeat_releases(now, out);
        self.continue_removal(now, out);
    }

    /// Runs inputs that earlier ones caused, oldest first.
    fn run(&mut self, now: Instant, out: &mut Outbox) {
        while let Some((ue, payload)) = self.inbox.pop_front() {
            self.input(now, ue, payload, out);
        }
    }

    /// Stamps an input and runs it. A restored UE for which no CPF has joined yet has none: commands wait for the CPF, and peers repeat the rest.
    fn input(&mut self, now: Instant, ue: UeId, payload: Payload, out: &mut Outbox) {
        if !self.is_served(ue) {
            if let Payload::Command(command) = payload {
                self.restoring.wait(ue, command);
            }
            return;
        }
        if let Some(envelope) = self.stamp(now, ue, payload) {
            self.submit(now, envelope, out);
        }
    }

    /// Stamps an input, unless it is for a UE that is gone.
    fn stamp(&mut self, now: Instant, ue: UeId, payload: Payload) -> Option<Envelope> {
        let (clock, time) = self.slots.stamp(ue, now)?;
        Some(Envelope {
            code_version: CodeVersion::own().0,
            ue,
            cta_term: TERM,
            owner_term: TERM,
            clock,
            time,
            seed: self.outside.draw(&mut self.entropy),
            tmsi: self.slots.tmsi(ue),
            config_version: self.config.version,
            upfs: self.upf_states(),
            payload,
        })
    }

    /// An input was run: its outputs leave. `from`: the gNB that it came from. Returns `false` if nothing leaves, since a NAS COUNT would
    /// be used twice.
    fn ran(
        &mut self,
        now: Instant,
        (ue, clock): (UeId, u64),
        from: Option<AssociationId>,
        batch: Batch,
        out: &mut Outbox,
    ) -> bool {
        let asked = self.asked.remove(ue, clock);
        if !self.slots.use_counts(ue, &batch, proposes_keys) {
            if let Some(asked) = asked {
                self.answered(now, ue, asked, Disposition::Ended, out);
            }
            self.discard(now, ue, DeregistrationReason::Fault, out);
            return false;
        }
        let disposition = batch.disposition;
        let waited = (disposition != Disposition::NotYet).then(|| self.asked.take_waiting(ue)).flatten();
        let rests_at = batch.connected.filter(|_| batch.idle).map(|on| on.association);
        self.inspect.released(ue, clock, &batch);
        self.release(now, (ue, clock), from, batch, asked.as_ref(), out);
        if let Some(asked) = asked {
            self.answered(now, ue, asked, disposition, out);
        }
        if let Some(association) = rests_at {
            self.follow_to_gnb(now, ue, association, out);
        }
        if let Some(first) = waited {
            self.ask_again(now, first, out);
        }
        true
    }

    fn stream(&self, ue: UeId, association: AssociationId) -> u16 {
        self.within(association, self.slots.stream(ue, association))
    }

    /// A stream, or the last that an association has.
    fn within(&self, association: AssociationId, stream: u16) -> u16 {
        let streams = self.streams.get(&association).copied().unwrap_or(1);
        stream.min(streams.saturating_sub(1))
    }

    fn release(
        &mut self,
        now: Instant,
        (ue, clock): (UeId, u64),
        from: Option<AssociationId>,
        mut batch: Batch,
        asked: Option<&FirstMessageQuery>,
        out: &mut Outbox,
    ) {
        if batch.tmsi_taken {
            self.slots.tmsi_taken(ue);
        }
        let begins = !matches!(
            batch.disposition,
            Disposition::OtherUe | Disposition::NotYet | Disposition::Elsewhere(_)
        );
        let former = asked.filter(|_| begins).map(|a| (a.amf_ue_ngap_id, self.begun(ue, a)));
        // A gNB that asks for the UE's path may still have another connection of it, whose release keeps to its stream.
        let left = || Some((self.slots.path_switch_pending(ue)?, self.slots.stream_begun(ue)));
        let former = former.or_else(left);
        let (outputs, events) = (std::mem::take(&mut batch.outputs), std::mem::take(&mut batch.events));
        let Batch { disposition, connected, .. } = batch;
        for (index, output) in (0u16..).zip(outputs) {
            let to = OutputId { clock, index };
            match output.effect {
                Effect::N2 { association, octets } => {
                    // The release of a replaced connection keeps to that connection's stream (TS 38.412 §7).
                    let stream = match former.filter(|&(begun, _)| releases_another(&octets, begun)) {
                        Some((_, stream)) => self.within(association, stream),
                        None => self.stream(ue, association),
                    };
                    self.path_switches.leaves(ue, association, &octets);
                    if is_error_indication(&octets) && !self.finds_fault(now, association, out) {
                        continue;
                    }
                    out.ngap.push((association, stream, octets));
                }
                Effect::N4 { upf, octets } => {
                    self.session_asked(ue, upf, &octets);
                    if let Some(none) = self.ask_upf(now, upf, ue, to, octets, &mut out.pfcp) {
                        self.n4_arrived(now, upf, vec![none], out);
                    }
                }
                Effect::N4Answer { upf, octets } => {
                    if let Some(n4) = self.upfs.get(upf) {
                        n4.answer_report(ue, octets, &mut out.pfcp);
                    }
                }
                Effect::Page { tais, near, cells, octets } => {
                    self.page(now, &tais, (&near, &cells), &octets, out);
                }
                Effect::PeerAmf { to, octets } => {
                    self.leaves(now, ue, &octets);
                    out.n14.push((to, octets));
                }
                Effect::Broker(request) => {
                    let gnb = connected.map(|on| on.association);
                    self.ask_broker(now, gnb, (ue, to, request), out);
                }
                Effect::Udm(request) => self.ask_udm(now, UdmQuery { ue, to, request }, out),
                Effect::Charging(request) => {
                    self.ask_chf(now, ChargingQuery { ue, to, request: *request }, out)
                }
                Effect::Policy(request) => out.policy.push(PolicyQuery { ue, to, request: *request }),
                Effect::SmContext(request) => out.sm_contexts.push(SmfQuery { ue, to, request: *request }),
                Effect::SmContextAnswered(exchange, answer) => {
                    out.sm_context_answers.push((exchange, answer))
                }
                Effect::RemoteAmf(request) => out.amf.push(AmfQuery { ue, to, request: *request }),
            }
        }
        // After the outputs, since their streams follow from the former state: the answer to a gNB that does not get the UE goes back on
        // the stream of its request.
        if !batch.no_effect {
            let was_connected = self.removal.is_some() && self.slots.names(ue).next().is_some();
            self.slots.note(ue, clock, &batch);
            self.relocate_idle(ue, was_connected);
            if let Some(unstored) = &mut self.unstored {
                unstored.insert(ue);
            }
        }
        if self.slots.path_switch_pending(ue).is_none() {
            self.path_switches.settled(ue);
        }
        // The message counts as the UE's if it came over the UE's connection.
        if let Some(association) = from.filter(|&a| connected.is_some_and(|on| on.association == a)) {
            self.slots.heard(ue, association);
        }
        let on = from.or_else(|| self.slots.heard_on(ue));
        out.events.extend(events.into_iter().map(|event| UeEvent { ue, on, event }));
        if disposition == Disposition::Ended {
            self.vacate(now, ue, out);
        }
    }
}

/// Whether this is UE CONTEXT RELEASE COMMAND of a connection other than `current`.
fn releases_another(octets: &[u8], current: AmfUeNgapId) -> bool {
    let release = |p: &Peek| {
        p.procedure_code == ProcedureCode::UE_CONTEXT_RELEASE
            && p.kind == TriggeringMessage::InitiatingMessage
    };
    let named = whimbrel_ngap::peek(octets).filter(release).and_then(|p| p.amf_ue_ngap_id);
    named.is_some_and(|id| id != current)
}

/// Whether this is SECURITY MODE COMMAND: integrity under new keys, whose COUNTs start at zero (TS 24.501 §4.4.3.1, §9.3.1).
fn proposes_keys(output: &Output) -> bool {
    let Effect::N2 { octets, .. } = &output.effect else { return false };
    let header = SecurityHeaderType::IntegrityProtectedWithNewContext as u8;
    matches!(Message::decode(octets), Ok(Message::DownlinkNasTransport(m)) if m.nas_pdu.get(1) == Some(&header))
}

fn is_initial_ue_message(peek: &Peek) -> bool {
    peek.procedure_code == ProcedureCode::INITIAL_UE_MESSAGE
        && peek.kind == TriggeringMessage::InitiatingMessage
}

fn is_handover_required(peek: &Peek) -> bool {
    peek.procedure_code == ProcedureCode::HANDOVER_PREPARATION
        && peek.kind == TriggeringMessage::InitiatingMessage
}

fn is_handover_request_acknowledge(peek: &Peek) -> bool {
    peek.procedure_code == ProcedureCode::HANDOVER_RESOURCE_ALLOCATION
        && peek.kind == TriggeringMessage::SuccessfulOutcome
}

/// UE CONTEXT RELEASE COMPLETE, or the error that there is no such context.
fn is_answer_to_release(peek: &Peek) -> bool {
    let complete = peek.procedure_code == ProcedureCode::UE_CONTEXT_RELEASE
        && peek.kind == TriggeringMessage::SuccessfulOutcome;
    complete
        || peek.procedure_code == ProcedureCode::ERROR_INDICATION
            && peek.kind == TriggeringMessage::InitiatingMessage
}

fn is_path_switch_request(peek: &Peek) -> bool {
    is_of_path_switch(peek) && peek.kind == TriggeringMessage::InitiatingMessage
}

/// In PER by its first octets, the choice and the procedure code (TS 38.413 §9.4.3), since every message that leaves is checked.
fn is_error_indication(octets: &[u8]) -> bool {
    match TransferSyntax::of(octets) {
        TransferSyntax::Per => octets.starts_with(&[0x00, ProcedureCode::ERROR_INDICATION.0]),
        TransferSyntax::Fastwire => whimbrel_ngap::peek(octets).is_some_and(|p| {
            p.procedure_code == ProcedureCode::ERROR_INDICATION
                && p.kind == TriggeringMessage::InitiatingMessage
        }),
    }
}

/// The request, or its answer.
fn is_of_path_switch(peek: &Peek) -> bool {
    peek.procedure_code == ProcedureCode::PATH_SWITCH_REQUEST
}

fn send(association: AssociationId, stream: u16, message: &Message, out: &mut Outbox) {
    let mut octets = Vec::with_capacity(64);
    message.encode_in(association.syntax(), &mut octets);
    out.ngap.push((association, stream, octets));
}

/// A generator for simulations and tests: the same key gives the same entropy.
impl Entropy for (Prf, u64) {
    fn draw(&mut self) -> [u8; 16] {
        self.1 += 1;
        self.0.block(u128::from(self.1))
    }
}
