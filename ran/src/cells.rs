//! UEs on gNBs, wired together: the whole emulated RAN as one pure machine, for the simulated network and for the
//! sockets alike.

use core::cmp::Reverse;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use whimbrel_ids::{GlobalGnbId, Instant, PduSessionId, Qfi, STmsi};
use whimbrel_ngap::{Cause, TransferSyntax};

use crate::gnb::{self, GTPU_HEADROOM, Gnb, GnbConfig, Via, XnMessage};
use crate::outbox::Outbox;
use crate::radio::{UeId, Up};
use crate::ue::{self, Command, MmState, Ue, UeConfig};
use crate::user_plane::{Addresses, Outcome, Stack, Stream, StreamConfig, Task, TaskError};

/// A gNB of the emulated RAN, by its place in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GnbId(pub u16);

/// What happens to the emulated RAN.
#[derive(Debug)]
pub enum Input<'a> {
    /// A gNB's association with the AMF stands, with so many outbound streams, for messages in this transfer syntax.
    AssociationUp(GnbId, u16, TransferSyntax),
    /// It is lost. If a further one stands, the gNB goes on over that.
    AssociationDown(GnbId),
    /// A gNB's further association stands, with the endpoint of [`Output::Associate`].
    FurtherAssociationUp(GnbId),
    /// It is lost.
    FurtherAssociationDown(GnbId),
    /// NGAP came to a gNB over its further association.
    FurtherNgap {
        /// To whom.
        gnb: GnbId,
        /// The SCTP stream.
        stream: u16,
        /// The message.
        octets: &'a [u8],
    },
    /// NGAP came to a gNB.
    Ngap {
        /// To whom.
        gnb: GnbId,
        /// The SCTP stream.
        stream: u16,
        /// The message.
        octets: &'a [u8],
    },
    /// GTP-U came to a gNB.
    Gtpu {
        /// To whom.
        gnb: GnbId,
        /// From where: address and UDP port.
        source: (IpAddr, u16),
        /// The datagram.
        datagram: &'a [u8],
    },
    /// A UE's owner wants something.
    Command(UeId, Command),
    /// A UE's owner wants something done over its newest session.
    Task(UeId, Task),
    /// A UE's program sends a packet over a session.
    Packet(UeId, PduSessionId, &'a [u8]),
    /// A UE's gNB is to release it, for this cause.
    Release(UeId, Cause),
    /// A UE that has no connection camps on another cell.
    Camp(UeId, GnbId),
    /// A UE begins a stream of packets over its newest session with an IPv4 address; the number tells it from the
    /// UE's others.
    Stream(UeId, StreamConfig, u32),
    /// A UE's stream is to end.
    StopStream(UeId),
    /// The other end of a UE's last stream is to send one packet, after so long.
    Ring(UeId, Duration),
    /// A UE is to be handed over to another gNB.
    HandOver(UeId, GnbId, Via),
    /// Time has passed.
    Tick,
}

/// What the emulated RAN wants done.
#[derive(Debug)]
pub enum Output {
    /// Send NGAP.
    Ngap {
        /// From whom.
        gnb: GnbId,
        /// On this SCTP stream.
        stream: u16,
        /// The message.
        octets: Vec<u8>,
    },
    /// The AMF has a further endpoint here: set an association up between it and the gNB.
    Associate(GnbId, IpAddr),
    /// The AMF's endpoint here serves no more: end the gNB's association with it.
    Dissociate(GnbId, IpAddr),
    /// Send NGAP over the further association.
    FurtherNgap {
        /// From whom.
        gnb: GnbId,
        /// On this SCTP stream.
        stream: u16,
        /// The message.
        octets: Vec<u8>,
    },
    /// Send a datagram from a gNB's port 2152.
    Gtpu {
        /// From whom.
        gnb: GnbId,
        /// To this address and UDP port.
        to: (IpAddr, u16),
        /// The datagram.
        datagram: Vec<u8>,
    },
    /// Hand a packet to a UE's program.
    Packet(UeId, PduSessionId, Vec<u8>),
    /// Something happened at a gNB.
    Gnb(GnbId, gnb::Event),
    /// Something happened to a UE.
    Ue(UeId, ue::Event),
    /// A UE's stream has begun to flow.
    StreamFlows(UeId),
    /// A UE's stream has ended, and both sides know.
    StreamEnded(UeId),
    /// A UE's task has come to its end.
    Task(UeId, Result<Outcome, TaskError>),
}

/// Where the packets of UEs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserPlane {
    /// To a stack in the process.
    Stack,
    /// To a program, through [`Output::Packet`] and [`Input::Packet`].
    Program,
}

#[derive(Debug)]
struct Slot {
    ue: Ue,
    gnb: GnbId,
    stack: Option<(PduSessionId, Box<Stack>)>,
    stream: Option<(PduSessionId, Box<Stream>)>,
    /// The deadline that stands in the heap.
    armed: Instant,
    s_tmsi: Option<STmsi>,
    /// Since when downlink packets come in another flow than its QoS rules have for them.
    stray_since: Option<Instant>,
}

/// How long downlink packets may come in another flow than the UE's rules have for them: the UPF learns of a flow that comes
/// after the UE, and of one that goes before it (TS 23.502 §4.3.3.2). No standard value; ours is over the core's repetitions on
/// N4.
const RULES_SETTLE: Duration = Duration::from_secs(2);

/// Something on its way between two machines.
enum Job {
    ToGnb(UeId, Up),
    ToUe(UeId, ue::Input),
    Xn { from: GlobalGnbId, to: GlobalGnbId, message: XnMessage },
}

/// UEs on gNBs.
pub struct Cells {
    gnbs: Vec<Gnb>,
    ues: Vec<Slot>,
    user_plane: UserPlane,
    by_s_tmsi: BTreeMap<STmsi, UeId>,
    deadlines: BinaryHeap<Reverse<(Instant, UeId)>>,
    jobs: VecDeque<Job>,
    from_ue: Outbox<ue::Output>,
    from_gnb: Outbox<gnb::Output>,
    seed: u64,
    /// Uplink packets without a tunnel, dropped.
    pub dropped_uplink: u64,
}

impl Cells {
    /// None yet. `seed` makes the ports and sequence numbers of the UEs' stacks.
    pub fn new(user_plane: UserPlane, seed: u64) -> Self {
        Self {
            gnbs: Vec::new(),
            ues: Vec::new(),
            user_plane,
            by_s_tmsi: BTreeMap::new(),
            deadlines: BinaryHeap::new(),
            jobs: VecDeque::new(),
            from_ue: Outbox::new(),
            from_gnb: Outbox::new(),
            seed,
            dropped_uplink: 0,
        }
    }

    /// Adds a gNB.
    pub fn add_gnb(&mut self, config: GnbConfig) -> GnbId {
        self.gnbs.push(Gnb::new(config));
        GnbId(self.gnbs.len() as u16 - 1)
    }

    /// Adds a UE that camps on a gNB's cell.
    pub fn add_ue(&mut self, gnb: GnbId, config: UeConfig) -> UeId {
        let id = UeId(self.ues.len() as u32);
        let mut ue = Ue::new(config);
        if let Some(gnb) = self.gnbs.get(usize::from(gnb.0)) {
            // Camping says nothing on the radio, and a fresh UE has nothing to do about it.
            ue.handle(Instant::ZERO, ue::Input::Cell(gnb.config().tai()), &mut self.from_ue);
        }
        self.ues.push(Slot {
            ue,
            gnb,
            stack: None,
            stream: None,
            armed: Instant::FAR_FUTURE,
            s_tmsi: None,
            stray_since: None,
        });
        id
    }

    /// How many UEs there are.
    pub fn ues(&self) -> usize {
        self.ues.len()
    }

    /// A UE, if there is one of that number.
    pub fn ue(&self, id: UeId) -> Option<&Ue> {
        self.ues.get(id.index()).map(|p| &p.ue)
    }

    /// A UE, to be changed.
    pub fn ue_mut(&mut self, id: UeId) -> Option<&mut Ue> {
        self.ues.get_mut(id.index()).map(|p| &mut p.ue)
    }

    /// A gNB, if there is one of that number.
    pub fn gnb(&self, id: GnbId) -> Option<&Gnb> {
        self.gnbs.get(usize::from(id.0))
    }

    /// A gNB, to be changed.
    pub fn gnb_mut(&mut self, id: GnbId) -> Option<&mut Gnb> {
        self.gnbs.get_mut(usize::from(id.0))
    }

    /// How many gNBs there are.
    pub fn gnbs(&self) -> usize {
        self.gnbs.len()
    }

    fn gnb_by_id(&self, id: GlobalGnbId) -> Option<GnbId> {
        self.gnbs.iter().position(|g| g.config().id == id).map(|i| GnbId(i as u16))
    }

    /// The gNB on whose cell a UE camps.
    pub fn gnb_of(&self, id: UeId) -> Option<GnbId> {
        self.ues.get(id.index()).map(|p| p.gnb)
    }

    /// Whether every gNB is in service.
    pub fn all_up(&self) -> bool {
        self.gnbs.iter().all(Gnb::is_up)
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox<Output>) {
        match input {
            Input::AssociationUp(gnb, streams, syntax) => {
                self.gnb_takes(now, gnb, gnb::Input::AssociationUp { streams, syntax }, out)
            }
            Input::AssociationDown(gnb) => self.gnb_takes(now, gnb, gnb::Input::AssociationDown, out),
            Input::FurtherAssociationUp(gnb) => {
                self.gnb_takes(now, gnb, gnb::Input::FurtherAssociationUp, out);
            }
            Input::FurtherAssociationDown(gnb) => {
                self.gnb_takes(now, gnb, gnb::Input::FurtherAssociationDown, out);
            }
            Input::FurtherNgap { gnb, stream, octets } => {
                self.gnb_takes(now, gnb, gnb::Input::FurtherNgap { stream, octets }, out);
            }
            Input::Ngap { gnb, stream, octets } => {
                self.gnb_takes(now, gnb, gnb::Input::Ngap { stream, octets }, out);
            }
            Input::Gtpu { gnb, source, datagram } => {
                self.gnb_takes(now, gnb, gnb::Input::Gtpu { source, datagram }, out);
            }
            Input::Command(ue, command) => self.ue_takes(now, ue, ue::Input::Command(command), out),
            Input::Task(ue, task) => self.start_task(now, ue, task, out),
            Input::Packet(ue, session, packet) => self.uplink(now, ue, session, packet, out),
            Input::Release(ue, cause) => {
                if let Some(gnb) = self.gnb_of(ue) {
                    self.gnb_takes(now, gnb, gnb::Input::Release(ue, cause), out);
                }
            }
            Input::Camp(ue, gnb) => self.camp(now, ue, gnb, out),
            Input::Stream(ue, config, id) => self.start_stream(now, ue, config, id, out),
            Input::StopStream(ue) => {
                if let Some((_, stream)) = self.ues.get_mut(ue.index()).and_then(|p| p.stream.as_mut()) {
                    stream.stop(now);
                }
                self.work_stream(now, ue, out);
            }
            Input::Ring(ue, after) => {
                let stream = self.ues.get(ue.index()).and_then(|p| p.stream.as_ref());
                if let Some((session, packet)) = stream.map(|(of, s)| (*of, s.ring(after))) {
                    self.uplink(now, ue, session, &packet, out);
                }
            }
            Input::HandOver(ue, target, via) => {
                if let (Some(gnb), Some(to)) = (self.gnb_of(ue), self.gnb(target).map(Gnb::as_neighbour)) {
                    self.gnb_takes(now, gnb, gnb::Input::HandOver { ue, to, via }, out);
                }
            }
            Input::Tick => self.tick(now, out),
        }
        self.deliver(now, out);
    }

    /// When it wants a [`Input::Tick`], if at all; perhaps earlier than needed.
    pub fn next_deadline(&self) -> Option<Instant> {
        let gnbs = self.gnbs.iter().filter_map(Gnb::next_deadline);
        gnbs.chain(self.deadlines.peek().map(|Reverse((at, _))| *at)).min()
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox<Output>) {
        for i in 0..self.gnbs.len() {
            let due = self.gnbs.get(i).and_then(Gnb::next_deadline).is_some_and(|at| at <= now);
            if due {
                self.gnb_takes(now, GnbId(i as u16), gnb::Input::Tick, out);
            }
        }
        while self.deadlines.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((at, id))) = self.deadlines.pop() else { break };
            let Some(slot) = self.ues.get_mut(id.index()).filter(|p| p.armed == at) else { continue };
            slot.armed = Instant::FAR_FUTURE;
            if slot.ue.next_deadline().is_some_and(|at| at <= now) {
                self.ue_takes(now, id, ue::Input::Tick, out);
            }
            self.work_stack(now, id, out);
            self.work_stream(now, id, out);
        }
    }

    /// Everything between UEs and gNBs arrives, in order.
    fn deliver(&mut self, now: Instant, out: &mut Outbox<Output>) {
        while let Some(job) = self.jobs.pop_front() {
            match job {
                Job::ToGnb(ue, up) => {
                    if let Some(gnb) = self.gnb_of(ue) {
                        self.gnb_takes(now, gnb, gnb::Input::Radio(ue, up), out);
                    }
                }
                Job::ToUe(ue, input) => self.ue_takes(now, ue, input, out),
                Job::Xn { from, to, message } => {
                    if let Some(gnb) = self.gnb_by_id(to) {
                        self.gnb_takes(now, gnb, gnb::Input::Xn { from, message }, out);
                    }
                }
            }
        }
    }

    fn gnb_takes(&mut self, now: Instant, id: GnbId, input: gnb::Input<'_>, out: &mut Outbox<Output>) {
        let Some(gnb) = self.gnbs.get_mut(usize::from(id.0)) else { return };
        let from = gnb.config().id;
        let mut outputs = core::mem::take(&mut self.from_gnb);
        gnb.handle(now, input, &mut outputs);
        for output in outputs.drain() {
            match output {
                gnb::Output::Ngap { stream, octets } => out.push(Output::Ngap { gnb: id, stream, octets }),
                gnb::Output::Radio(ue, down) => self.jobs.push_back(Job::ToUe(ue, ue::Input::Radio(down))),
                gnb::Output::Page(s_tmsi) => {
                    let here = |p: &&UeId| self.ues.get(p.index()).is_some_and(|p| p.gnb == id);
                    if let Some(ue) = self.by_s_tmsi.get(&s_tmsi).filter(here) {
                        self.jobs.push_back(Job::ToUe(*ue, ue::Input::Paged));
                    }
                }
                gnb::Output::Gtpu { to, datagram } => out.push(Output::Gtpu { gnb: id, to, datagram }),
                gnb::Output::Xn { to, message } => self.jobs.push_back(Job::Xn { from, to, message }),
                gnb::Output::Packet { ue, session, qfi, packet, .. } => {
                    self.judge_flow(now, ue, session, qfi, &packet, out);
                    if let Some(slot) = self.ues.get_mut(ue.index()) {
                        slot.ue.count_packet(false, packet.len());
                    }
                    match self.user_plane {
                        UserPlane::Program => out.push(Output::Packet(ue, session, packet)),
                        UserPlane::Stack => self.stack_takes(now, ue, session, &packet, out),
                    }
                }
                gnb::Output::Associate(address) => out.push(Output::Associate(id, address)),
                gnb::Output::Dissociate(address) => out.push(Output::Dissociate(id, address)),
                gnb::Output::FurtherNgap { stream, octets } => {
                    out.push(Output::FurtherNgap { gnb: id, stream, octets });
                }
                gnb::Output::Event(event) => out.push(Output::Gnb(id, event)),
            }
        }
        self.from_gnb = outputs;
    }

    fn ue_takes(&mut self, now: Instant, id: UeId, input: ue::Input, out: &mut Outbox<Output>) {
        let Some(slot) = self.ues.get_mut(id.index()) else { return };
        slot.ue.handle(now, input, &mut self.from_ue);
        for output in self.from_ue.drain() {
            match output {
                ue::Output::Radio(up) => {
                    if let Up::HandoverComplete { to, .. } = &up
                        && let Some(i) = self.gnbs.iter().position(|g| g.config().id == *to)
                    {
                        slot.gnb = GnbId(i as u16);
                    }
                    self.jobs.push_back(Job::ToGnb(id, up));
                }
                ue::Output::Event(event) => {
                    if matches!(event, ue::Event::SessionUp { .. } | ue::Event::SessionModified { .. }) {
                        slot.stray_since = None;
                    }
                    let gone = match &event {
                        ue::Event::SessionReleased { session, .. } => Some(*session),
                        _ => None,
                    };
                    if slot.stack.as_ref().is_some_and(|(of, _)| gone == Some(*of)) {
                        slot.stack = None;
                    }
                    if slot.stream.as_ref().is_some_and(|(of, _)| gone == Some(*of)) {
                        slot.stream = None;
                    }
                    out.push(Output::Ue(id, event));
                }
            }
        }
        let s_tmsi = slot.ue.s_tmsi();
        if s_tmsi != slot.s_tmsi {
            if let Some(old) = core::mem::replace(&mut slot.s_tmsi, s_tmsi)
                && self.by_s_tmsi.get(&old) == Some(&id)
            {
                self.by_s_tmsi.remove(&old);
            }
            if let Some(new) = s_tmsi {
                self.by_s_tmsi.insert(new, id);
            }
        }
        self.arm(now, id);
    }

    /// Sees to it that a UE's next deadline stands in the heap.
    fn arm(&mut self, now: Instant, id: UeId) {
        let Some(slot) = self.ues.get_mut(id.index()) else { return };
        let stack = slot.stack.as_mut().filter(|(_, s)| s.is_busy()).and_then(|(_, s)| s.next_deadline(now));
        let stream = slot.stream.as_ref().and_then(|(_, s)| s.next_deadline());
        let own = slot.ue.next_deadline();
        let Some(next) = own.into_iter().chain(stack).chain(stream).min() else { return };
        if next < slot.armed {
            slot.armed = next;
            self.deadlines.push(Reverse((next, id)));
        }
    }

    /// A downlink packet must come in the flow that the UE's rules have for it (TS 23.501 §5.7.1.5).
    fn judge_flow(
        &mut self,
        now: Instant,
        id: UeId,
        session: PduSessionId,
        qfi: Option<Qfi>,
        packet: &[u8],
        out: &mut Outbox<Output>,
    ) {
        let Some(slot) = self.ues.get_mut(id.index()) else { return };
        // With one rule there is one flow, which the gNB judges.
        let several = slot.ue.sessions().find(|s| s.id == session).is_some_and(|s| s.rules.len() > 1);
        let wanted = several.then(|| slot.ue.downlink_flow_of(session, packet)).flatten();
        if wanted.is_none() || qfi == wanted {
            slot.stray_since = None;
            return;
        }
        let since = *slot.stray_since.get_or_insert(now);
        if now.since(since) > RULES_SETTLE {
            slot.stray_since = None;
            let violation = ue::Violation::DownlinkFlow(session);
            out.push(Output::Ue(id, ue::Event::Violation(violation)));
        }
    }

    fn stack_takes(
        &mut self,
        now: Instant,
        id: UeId,
        session: PduSessionId,
        packet: &[u8],
        out: &mut Outbox<Output>,
    ) {
        let Some(slot) = self.ues.get_mut(id.index()) else { return };
        if let Some((_, stream)) = slot.stream.as_mut().filter(|(of, _)| *of == session) {
            let (flowed, ended) = (stream.flows(), stream.has_ended());
            let taken = stream.receive(now, packet);
            if stream.flows() && !flowed {
                out.push(Output::StreamFlows(id));
            }
            if stream.has_ended() && !ended {
                out.push(Output::StreamEnded(id));
            }
            if taken {
                return;
            }
        }
        let Some((_, stack)) = slot.stack.as_mut().filter(|(of, _)| *of == session) else { return };
        stack.receive(packet);
        self.work_stack(now, id, out);
    }

    /// Begins a task over the newest session; without one it has failed.
    fn start_task(&mut self, now: Instant, id: UeId, task: Task, out: &mut Outbox<Output>) {
        let seed = self.seed ^ u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let Some(slot) = self.ues.get_mut(id.index()) else { return };
        let Some(info) = slot.ue.sessions().last() else {
            return out.push(Output::Task(id, Err(TaskError::NoAddress)));
        };
        if slot.stack.as_ref().is_none_or(|(of, _)| *of != info.id) {
            let addresses = Addresses { ipv4: info.ipv4, interface_id: info.interface_id };
            slot.stack = Some((info.id, Box::new(Stack::new(now, addresses, info.mtu, seed))));
        }
        if let Some((_, stack)) = &mut slot.stack {
            stack.start(now, task);
        }
        self.work_stack(now, id, out);
    }

    fn work_stack(&mut self, now: Instant, id: UeId, out: &mut Outbox<Output>) {
        let Some(slot) = self.ues.get_mut(id.index()) else { return };
        if let Some((session, stack)) = &mut slot.stack {
            let session = *session;
            let mut packets = Vec::new();
            let outcome = stack.poll(now, &mut |p| packets.push(p));
            for packet in packets {
                self.uplink(now, id, session, &packet, out);
            }
            if let Some(outcome) = outcome {
                out.push(Output::Task(id, outcome));
            }
        }
        self.arm(now, id);
    }

    /// A UE goes to another cell without handover; a connection that it has stays where it is, and so does the UE.
    fn camp(&mut self, now: Instant, id: UeId, gnb: GnbId, out: &mut Outbox<Output>) {
        let Some(tai) = self.gnb(gnb).map(|g| g.config().tai()) else { return };
        let Some(slot) = self.ues.get_mut(id.index()).filter(|p| !p.ue.is_connected()) else { return };
        slot.gnb = gnb;
        self.ue_takes(now, id, ue::Input::Cell(tai), out);
    }

    /// Begins a stream; without a session for it, it never flows.
    fn start_stream(
        &mut self,
        now: Instant,
        id: UeId,
        config: StreamConfig,
        number: u32,
        out: &mut Outbox<Output>,
    ) {
        let Some(slot) = self.ues.get_mut(id.index()) else { return };
        let with_address = slot.ue.sessions().filter_map(|s| Some((s.id, s.ipv4?))).last();
        slot.stream = with_address
            .map(|(session, address)| (session, Box::new(Stream::new(now, config, address, number))));
        self.work_stream(now, id, out);
    }

    /// A UE's stream, if it has or had one.
    pub fn stream(&self, id: UeId) -> Option<&Stream> {
        self.ues.get(id.index())?.stream.as_ref().map(|(_, s)| &**s)
    }

    /// A UE's stream, to look for gaps anew.
    pub fn stream_mut(&mut self, id: UeId) -> Option<&mut Stream> {
        self.ues.get_mut(id.index())?.stream.as_mut().map(|(_, s)| &mut **s)
    }

    fn work_stream(&mut self, now: Instant, id: UeId, out: &mut Outbox<Output>) {
        let Some(slot) = self.ues.get_mut(id.index()) else { return };
        if let Some((session, stream)) = &mut slot.stream {
            let session = *session;
            let mut packets = Vec::new();
            stream.poll(now, &mut |p| packets.push(p));
            for packet in packets {
                self.uplink(now, id, session, &packet, out);
            }
        }
        self.arm(now, id);
    }

    /// A UE's packet into its tunnel; without one the packet is dropped, and an idle UE asks for service.
    fn uplink(
        &mut self,
        now: Instant,
        id: UeId,
        session: PduSessionId,
        packet: &[u8],
        out: &mut Outbox<Output>,
    ) {
        let Some(slot) = self.ues.get_mut(id.index()) else { return };
        let flow = slot.ue.flow_of(session, packet);
        let mut datagram = vec![0; GTPU_HEADROOM + packet.len()];
        datagram[GTPU_HEADROOM..].copy_from_slice(packet);
        let gnb = self.gnbs.get(usize::from(slot.gnb.0));
        match gnb.and_then(|g| g.encapsulate(id, session, flow, &mut datagram, GTPU_HEADROOM)) {
            Some((to, at)) => {
                datagram.drain(..at);
                slot.ue.count_packet(true, packet.len());
                out.push(Output::Gtpu { gnb: slot.gnb, to: (to, whimbrel_gtpu::PORT), datagram });
            }
            None => {
                self.dropped_uplink += 1;
                if slot.ue.state() == MmState::Registered && !slot.ue.is_connected() {
                    self.ue_takes(now, id, ue::Input::Command(Command::ServiceRequest), out);
                }
            }
        }
    }
}
