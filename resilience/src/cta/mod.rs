//! The aggregator itself.

mod n4;
mod ran;
mod slots;
mod upfs;

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::amf::{self, Load, RanNodes};
use whimbrel_control::config::Config;
use whimbrel_control::event::{Deregistered, Dropped};
use whimbrel_control::udm::{Directory, Request, Subscribers};
use whimbrel_control::{
    AssociationId, Batch, CODE_VERSION, Command, Disposition, Effect, Envelope, Event, HandoverTarget,
    OutputId, Payload, Phone, PhoneEvent, PhoneId, Prf, RanEvent, Shard, UpfId,
};
use whimbrel_ids::{AmfUeNgapId, Instant, Supi, Tmsi};
use whimbrel_ngap::ie::{CauseMisc, TriggeringMessage, UeNgapIds};
use whimbrel_ngap::{Message, Peek};

use n4::Arrived;
use ran::Bounds;
use slots::Slots;
use upfs::Upfs;

/// Where the entropy of the inputs comes from: the system's generator at the edge, a seed in simulation.
pub trait Entropy {
    /// Sixteen octets that nobody can foresee.
    fn draw(&mut self) -> [u8; 16];
}

/// What comes to the aggregator.
#[derive(Debug)]
pub enum Input<'a> {
    /// A gNB's association came up, with this many streams towards the gNB.
    AssociationUp {
        /// Which.
        association: AssociationId,
        /// Streams from us to the gNB; 0 is for what concerns no phone.
        outbound_streams: u16,
    },
    /// An association ended or was restarted by its peer (RFC 9260 §5.2).
    AssociationDown(AssociationId),
    /// An NGAP message, and the stream on which it came.
    Ngap(AssociationId, u16, &'a [u8]),
    /// A PFCP message of a UPF.
    Pfcp(UpfId, &'a [u8]),
    /// The operator wants something of a phone.
    Command(PhoneId, Command),
    /// The longest that a message waited lately before it was handed in.
    Waited(Duration),
    /// The store has changed: of these subscribers, or of all (TS 23.502 §4.5.1).
    SubscribersChanged(Option<&'a [Supi]>),
    /// Time passed.
    Tick,
}

/// What leaves the aggregator.
#[derive(Debug, Default)]
pub struct Outbox {
    /// NGAP messages: association, stream, octets.
    pub ngap: Vec<(AssociationId, u16, Vec<u8>)>,
    /// PFCP messages, and to which UPF.
    pub pfcp: Vec<(UpfId, Vec<u8>)>,
    /// What happened to phones.
    pub events: Vec<PhoneEvent>,
    /// What happened to gNBs.
    pub ran_events: Vec<RanEvent>,
    /// What became of UPFs.
    pub upfs: Vec<(UpfId, UpfChange)>,
    /// SCTP associations to be aborted: they are forgotten here.
    pub abort: Vec<AssociationId>,
}

/// What became of a UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpfChange {
    /// The association stands.
    Up,
    /// It stands, and the UPF does not choose tunnels and addresses: it gets no session.
    Unfit,
    /// It does not answer; its sessions are kept for a while (TS 23.527 §4.4).
    Silent,
    /// It answers again, and its sessions stand.
    Back,
    /// It started anew, or was silent for too long: its sessions are gone.
    Lost,
    /// It asks to be left (TS 29.244 §6.2.8.3).
    Leaving,
    /// The association was ended in order.
    Released,
}

/// Listens to every envelope and its batch: recording, replay checks, logs.
pub trait Inspect {
    /// One input was run.
    fn ran(&mut self, envelope: &Envelope, batch: &Batch);
}

/// Listens to nothing.
impl Inspect for () {
    fn ran(&mut self, _: &Envelope, _: &Batch) {}
}

/// A phone as an operator sees it.
pub type PhoneView<'a> = &'a Phone;

/// The aggregator with its shard, on one thread.
pub struct Cta<S, E, I = ()> {
    config: Arc<Config>,
    shard: Shard,
    slots: Slots,
    ran: RanNodes,
    streams: std::collections::BTreeMap<AssociationId, u16>,
    directory: Directory,
    subscribers: S,
    entropy: E,
    upfs: Upfs,
    inspect: I,
    /// Inputs for phones that other inputs caused; run before the next from outside.
    inbox: VecDeque<(PhoneId, Payload)>,
    arrived: Vec<Arrived>,
    bounds: Bounds,
    /// The load that the rule of overload last judged.
    load: Load,
    /// When the gNBs' machines have something to do.
    ran_due: Option<Instant>,
    /// While a first message runs: the name of its connection, and the stream of the one that its phone had.
    superseding: Option<(AmfUeNgapId, u16)>,
}

/// The first message of a connection.
struct First {
    association: AssociationId,
    stream: u16,
    octets: Arc<[u8]>,
}

impl First {
    /// FNV-1a: recognises a repetition by the same gNB, decides nothing else.
    fn digest(&self) -> u64 {
        self.octets
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |h, &o| (h ^ u64::from(o)).wrapping_mul(0x0100_0000_01b3))
    }
}

/// An aggregator begins with term 1; a mirror that takes over counts on.
const TERM: u32 = 1;

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// An aggregator that serves nobody yet. It tries to reach its UPF at the first [`Input::Tick`].
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
            shard: Shard::new(config.clone()),
            slots: Slots::new(&tmsi_key),
            ran: RanNodes::new(config.clone()),
            streams: Default::default(),
            directory,
            subscribers,
            entropy,
            upfs: Upfs::new(&config.smf, now),
            inspect,
            config,
            inbox: VecDeque::new(),
            arrived: Vec::new(),
            bounds: Bounds::default(),
            load: Load::default(),
            ran_due: None,
            superseding: None,
        }
    }

    /// Takes one input and runs everything that it causes.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::AssociationUp { association, outbound_streams } => {
                self.association_up(now, association, outbound_streams, out);
            }
            Input::AssociationDown(association) => self.association_down(now, association, out),
            Input::Ngap(association, stream, octets) => self.ngap(now, association, stream, octets, out),
            Input::Pfcp(upf, octets) => self.pfcp(now, upf, octets, out),
            Input::Command(phone, command) => self.inbox.push_back((phone, Payload::Command(command))),
            Input::Waited(delay) => self.waited(now, delay, out),
            Input::SubscribersChanged(changed) => self.subscribers_changed(changed),
            Input::Tick => self.tick(now, out),
        }
        self.run(now, out);
    }

    /// When [`Input::Tick`] has something to do.
    pub fn next_deadline(&self) -> Instant {
        let phones_and_gnbs = self.slots.next_deadline().into_iter().chain(self.ran_due).min();
        phones_and_gnbs.unwrap_or(Instant::FAR_FUTURE).min(self.upfs.next_deadline())
    }

    /// Puts a new version of the configuration in force for the inputs to come; gNBs are told what concerns them.
    pub fn configure(&mut self, now: Instant, config: Arc<Config>, out: &mut Outbox) {
        self.shard.configure(config.clone());
        let former = std::mem::replace(&mut self.config, config.clone());
        if former.smf.data_networks != config.smf.data_networks {
            let with_sessions = self.shard.iter().filter(|p| !p.sessions.is_empty());
            let notice = |p: &Phone| (p.id, Payload::Command(Command::PolicyChanged));
            self.inbox.extend(with_sessions.map(notice));
        }
        let result = self.ran.configure(now, config);
        self.ran_output(now, AssociationId(u32::MAX), result, out);
        self.run(now, out);
    }

    /// Nudm_SDM_Notification to the phones that are registered under these subscriptions.
    fn subscribers_changed(&mut self, changed: Option<&[Supi]>) {
        let phones: Vec<PhoneId> = match changed {
            Some(supis) => supis.iter().filter_map(|s| self.directory.registered(*s)).collect(),
            None => self.directory.all_registered().collect(),
        };
        let notice = |phone| (phone, Payload::Command(Command::SubscriptionChanged));
        self.inbox.extend(phones.into_iter().map(notice));
    }

    /// The gNBs.
    pub fn ran_nodes(&self) -> &RanNodes {
        &self.ran
    }

    /// The phones, in slot order.
    pub fn phones(&self) -> impl Iterator<Item = PhoneView<'_>> {
        self.shard.iter()
    }

    /// One phone.
    pub fn phone(&self, id: PhoneId) -> Option<PhoneView<'_>> {
        self.shard.phone(id)
    }

    /// The shard, for checkpoints.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The phone of a subscriber that is registered.
    pub fn find(&self, supi: Supi) -> Option<PhoneId> {
        self.directory.registered(supi)
    }

    /// The phone in the slot that a 5G-TMSI of ours leads to.
    pub fn find_tmsi(&self, tmsi: Tmsi) -> Option<PhoneId> {
        self.slots.by_tmsi(tmsi)
    }

    /// Slots in use, and those of them that hold a phone which did not authenticate yet.
    pub fn occupancy(&self) -> (usize, u32) {
        (self.slots.used(), self.slots.strangers())
    }

    /// The subscribers.
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
                    Some(phone) => {
                        if peek.is_some_and(|p| is_path_switch_request(&p)) {
                            self.slots.asked_elsewhere(phone, association, stream);
                        }
                        let required = peek.is_some_and(|p| is_handover_required(&p));
                        let octets = octets.into();
                        let payload = match required {
                            true => self.handover_required(phone, association, octets),
                            false => Payload::Ngap { association, octets },
                        };
                        self.inbox.push_back((phone, payload));
                    }
                    None if self.slots.has_just_left(now, id) => {
                        // Its target waits for an answer; everybody else hears that the phone is let go.
                        if let Ok(Message::PathSwitchRequest(m)) = Message::decode(octets) {
                            send(association, stream, &amf::came_too_late(&m), out);
                        }
                    }
                    None => self.unknown_phone(now, association, stream, octets, out),
                }
            }
            Some(p) if is_initial_ue_message(&p) && self.ran.is_set_up(association) => {
                let first = First { association, stream, octets: octets.into() };
                self.initial_ue_message(now, &p, &first, out);
            }
            _ => self.ran_node(now, association, octets, out),
        }
    }

    /// HANDOVER REQUIRED with the gNB that it names, and an identity for the phone there: gNBs are shared, and a machine knows
    /// of them what its inputs say.
    fn handover_required(
        &mut self,
        phone: PhoneId,
        association: AssociationId,
        octets: Arc<[u8]>,
    ) -> Payload {
        let named = self.ran.handover_target(&octets);
        let target = named.and_then(|(association, node)| {
            let amf_ue_ngap_id = self.slots.target_connection(phone)?;
            let (tacs, slices) = (node.tacs.clone(), node.slices.clone());
            Some(HandoverTarget { association, amf_ue_ngap_id, tacs, slices })
        });
        Payload::HandoverRequired { association, octets, target }
    }

    /// The first message of a connection: to the phone that its 5G-S-TMSI names if that phone owns up to it, else to
    /// a slot of its own.
    fn initial_ue_message(&mut self, now: Instant, peek: &Peek, first: &First, out: &mut Outbox) {
        if !self.ran.admit_first_message(now, first.association) {
            return self.limited(now, Some(first.association), "first_messages_per_s", out);
        }
        if self.settle_name(now, first.association, peek.ran_ue_ngap_id, first.digest(), out) {
            return self.repeated(peek, first, out);
        }
        let amf_id = self.config.amf.amf_id;
        let ours = peek.five_g_s_tmsi.filter(|t| t.set == amf_id.set() && t.pointer == amf_id.pointer());
        let named = ours.and_then(|t| self.slots.by_tmsi(t.tmsi));
        if let Some(phone) = named
            && self.first_message(now, phone, first, true, out) != Disposition::Stranger
        {
            return;
        }
        self.stranger(now, first, named.is_some(), out);
    }

    /// A first message that came twice: what it began goes on.
    fn repeated(&self, peek: &Peek, first: &First, out: &mut Outbox) {
        let named = peek.ran_ue_ngap_id.and_then(|n| self.slots.by_ran_ue_ngap_id(first.association, n));
        let Some(phone) = named else { return };
        let subject = self.shard.phone(phone).map(Phone::subject).unwrap_or_default();
        let event = Event::Dropped { subject, why: Dropped::Duplicate };
        out.events.push(PhoneEvent { phone, on: Some(first.association), event });
    }

    /// Runs a first message in a slot of its own (DESIGN: "strangers"). It may turn out to name a phone after all:
    /// by a 5G-GUTI in the NAS message.
    fn stranger(&mut self, now: Instant, first: &First, asked: bool, out: &mut Outbox) {
        let limits = self.config.limits;
        let bound = if self.slots.strangers_on(first.association) >= limits.strangers_per_gnb {
            Err("strangers_per_gnb")
        } else if self.slots.strangers() >= limits.strangers {
            Err("strangers")
        } else {
            self.slots.allocate(limits.phones, first.association).ok_or("phones")
        };
        let phone = match bound {
            Ok(phone) => phone,
            Err(limit) => {
                self.limited(now, Some(first.association), limit, out);
                if self.ran.may_complain(now, first.association) {
                    let answer = amf::overloaded(&first.octets, CauseMisc::ControlProcessingOverload);
                    send(first.association, first.stream, &answer, out);
                }
                return;
            }
        };
        self.look_at_ran(now, out);
        if let Disposition::Elsewhere(tmsi) = self.first_message(now, phone, first, asked, out) {
            let named = self.slots.by_tmsi(tmsi).filter(|&p| p != phone);
            let owned =
                named.is_some_and(|p| self.first_message(now, p, first, true, out) != Disposition::Stranger);
            if owned {
                self.slots.release(phone);
            } else {
                self.first_message(now, phone, first, true, out);
            }
        }
    }

    fn first_message(
        &mut self,
        now: Instant,
        phone: PhoneId,
        first: &First,
        addressed: bool,
        out: &mut Outbox,
    ) -> Disposition {
        let Some(amf_ue_ngap_id) = self.slots.new_connection(phone) else {
            return Disposition::Ended;
        };
        let (association, octets) = (first.association, first.octets.clone());
        // Its answers keep to the stream of a connection that it begins: known before they leave.
        let (former, stream) = self.slots.began(phone);
        self.slots.begin(phone, first.digest(), first.stream);
        let payload = Payload::InitialUeMessage { association, amf_ue_ngap_id, octets, addressed };
        self.superseding = Some((amf_ue_ngap_id, stream));
        let disposition = self.input(now, phone, payload, out);
        self.superseding = None;
        if disposition == Disposition::Stranger {
            self.slots.begin(phone, former, stream); // the phone that it names has nothing to do with it
        }
        disposition
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(phone) = self.slots.due(now) {
            self.input(now, phone, Payload::Tick, out);
        }
        if self.ran_due.is_some_and(|due| due <= now) {
            let result = self.ran.tick(now);
            self.ran_output(now, AssociationId(u32::MAX), result, out);
        }
        self.tick_upfs(now, out);
    }

    /// Runs what earlier inputs caused, oldest first.
    fn run(&mut self, now: Instant, out: &mut Outbox) {
        while let Some((phone, payload)) = self.inbox.pop_front() {
            self.input(now, phone, payload, out);
        }
    }

    /// Stamps an input, has it run, and releases its outputs.
    fn input(&mut self, now: Instant, phone: PhoneId, payload: Payload, out: &mut Outbox) -> Disposition {
        let Some((clock, time)) = self.slots.stamp(phone, now) else { return Disposition::Ended };
        let from = match &payload {
            Payload::InitialUeMessage { association, .. }
            | Payload::Ngap { association, .. }
            | Payload::HandoverRequired { association, .. } => Some(*association),
            _ => None,
        };
        let envelope = Envelope {
            code_version: CODE_VERSION,
            phone,
            cta_term: TERM,
            owner_term: TERM,
            clock,
            time,
            seed: self.entropy.draw(),
            tmsi: self.slots.tmsi(phone),
            config_version: self.config.version,
            upfs: self.upfs.states(),
            payload,
        };
        // The shard is fit for use after a panic: `poisoned` buries the phone that it was at.
        let shard = AssertUnwindSafe(&mut self.shard);
        let ran = catch_unwind(|| {
            let AssertUnwindSafe(shard) = { shard };
            shard.handle(&envelope)
        });
        let Ok(batch) = ran else {
            self.poisoned(now, phone, out);
            return Disposition::Ended;
        };
        self.inspect.ran(&envelope, &batch);
        self.release(now, phone, from, clock, batch, out)
    }

    /// A phone's machine panicked on an input. The phone is given up, its peers are told what can be told, and the
    /// other phones go on (DESIGN: "poison"; TS 33.117 §4.4.4).
    fn poisoned(&mut self, now: Instant, phone: PhoneId, out: &mut Outbox) {
        let remains = self.shard.bury();
        for (association, connection) in self.connections(phone, remains.as_deref()) {
            let stream = self.stream(phone, association);
            send(association, stream, &amf::release_of(connection), out);
        }
        let subject = remains.as_ref().map_or_else(Default::default, |p| p.subject());
        let sessions = remains.iter().flat_map(|p| p.sessions.values());
        for (upf, seid) in sessions.filter_map(|s| Some((s.upf, s.up_seid?))) {
            let to = OutputId { clock: 0, index: 0 };
            let deletion = whimbrel_control::smf::deletion(seid);
            // Nobody is left to hear that there is no UPF.
            let _ = self.ask_upf(now, upf, phone, to, deletion, &mut out.pfcp);
        }
        if let Some(supi) = subject.supi {
            self.directory.handle(now, phone, Request::Deregister(supi), &mut self.subscribers);
        }
        out.events.push(PhoneEvent {
            phone,
            on: None,
            event: Event::Deregistered { subject, why: Deregistered::Fault },
        });
        self.slots.release(phone);
    }

    /// The connections that a phone has at gNBs, as far as can be told.
    fn connections(&self, phone: PhoneId, remains: Option<&Phone>) -> BTreeSet<(AssociationId, AmfUeNgapId)> {
        let (association, newest) = self.slots.connection(phone);
        let newest =
            association.filter(|_| remains.is_none_or(|p| p.amf.connection.is_none())).map(|a| (a, newest));
        let amf = remains.map(|p| &p.amf);
        let held = amf.into_iter().flat_map(|a| a.connection.iter().chain(&a.source));
        let held = held.map(|c| (c.association, c.amf_ue_ngap_id));
        let target = amf.and_then(|a| a.target.as_ref()).map(|t| (t.association, t.amf_ue_ngap_id));
        newest.into_iter().chain(held).chain(target).collect()
    }

    fn stream(&self, phone: PhoneId, association: AssociationId) -> u16 {
        self.within(association, self.slots.stream(phone, association))
    }

    /// A stream, or the last that an association has.
    fn within(&self, association: AssociationId, stream: u16) -> u16 {
        let streams = self.streams.get(&association).copied().unwrap_or(1);
        stream.min(streams.saturating_sub(1))
    }

    fn release(
        &mut self,
        now: Instant,
        phone: PhoneId,
        from: Option<AssociationId>,
        clock: u64,
        batch: Batch,
        out: &mut Outbox,
    ) -> Disposition {
        if batch.tmsi_taken {
            self.slots.tmsi_taken(phone);
        }
        let disposition = batch.disposition;
        for (index, output) in (0u16..).zip(batch.outputs) {
            let to = OutputId { clock, index };
            match output.effect {
                Effect::N2 { association, octets } => {
                    // The gNB of the connection that a new one takes the place of hears of it where it spoke (TS 38.412 §7).
                    let former = self.superseding.filter(|(new, _)| releases_another(&octets, *new));
                    let stream = match former {
                        Some((_, stream)) => self.within(association, stream),
                        None => self.stream(phone, association),
                    };
                    out.ngap.push((association, stream, octets));
                }
                Effect::N4 { upf, octets } => {
                    if let Some(none) = self.ask_upf(now, upf, phone, to, octets, &mut out.pfcp) {
                        self.n4_arrived(now, upf, vec![none], out);
                    }
                }
                Effect::N4Answer { upf, octets } => {
                    if let Some(n4) = self.upfs.get(upf) {
                        n4.answer_report(phone, octets, &mut out.pfcp);
                    }
                }
                Effect::Page { tais, near, cells, octets } => {
                    self.page(now, &tais, (&near, &cells), &octets, out);
                }
                Effect::Udm(request) => {
                    let outcome = self.directory.handle(now, phone, request, &mut self.subscribers);
                    self.inbox.push_back((phone, Payload::Udm { to, answer: outcome.answer }));
                    if let Some(former) = outcome.superseded {
                        self.inbox.push_back((former, Payload::Command(Command::Superseded)));
                    }
                }
            }
        }
        // What leaves has its stream by what held before: an answer to a gNB that does not get the phone goes where it asked.
        let connection = self.shard.phone(phone).and_then(|p| p.amf.connection.as_ref());
        let at = connection.map(|c| (c.association, c.ran_ue_ngap_id));
        self.slots.note(phone, at, batch.target, batch.authenticated, batch.next_deadline);
        // A message is its sender's; the phone's it is if it came over the phone's connection.
        if let Some(association) = from.filter(|&a| at.is_some_and(|(on, _)| on == a)) {
            self.slots.heard(phone, association);
        }
        let on = from.or_else(|| self.slots.heard_on(phone));
        out.events.extend(batch.events.into_iter().map(|event| PhoneEvent { phone, on, event }));
        if disposition == Disposition::Ended {
            self.slots.release(phone);
        }
        disposition
    }
}

/// Whether this is UE CONTEXT RELEASE COMMAND of a connection other than `current`.
fn releases_another(octets: &[u8], current: AmfUeNgapId) -> bool {
    // Procedure code 41, an initiating message: nothing else is decoded for this.
    if !matches!(octets, [0, 41, ..]) {
        return false;
    }
    match Message::decode(octets) {
        Ok(Message::UeContextReleaseCommand(m)) => match m.ue_ngap_ids {
            UeNgapIds::UeNgapIdPair(ids) => ids.amf_ue_ngap_id != current,
            UeNgapIds::AmfUeNgapId(id) => id != current,
        },
        _ => false,
    }
}

fn is_initial_ue_message(peek: &Peek) -> bool {
    peek.procedure_code == 15 && peek.kind == TriggeringMessage::InitiatingMessage
}

fn is_handover_required(peek: &Peek) -> bool {
    peek.procedure_code == 12 && peek.kind == TriggeringMessage::InitiatingMessage
}

fn is_path_switch_request(peek: &Peek) -> bool {
    peek.procedure_code == 25 && peek.kind == TriggeringMessage::InitiatingMessage
}

fn send(association: AssociationId, stream: u16, message: &Message, out: &mut Outbox) {
    let mut octets = Vec::with_capacity(64);
    message.encode(&mut octets);
    out.ngap.push((association, stream, octets));
}

/// A generator for simulations and tests: the same key gives the same entropy.
impl Entropy for (Prf, u64) {
    fn draw(&mut self) -> [u8; 16] {
        self.1 += 1;
        self.0.block(u128::from(self.1))
    }
}
