//! The emulated RAN: UEs and gNBs, connected, as one pure state machine. The simulated network and the sockets both use
//! it.

use core::cmp::Reverse;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use whimbrel_ids::{GlobalGnbId, Instant, PduSessionId, Qfi, STmsi};
use whimbrel_ngap::{Cause, TransferSyntax};
use whimbrel_privacy::token::TokenHash;

use crate::gnb::{
    self, AmfIndex, AmfInput, AmfSelection, ForGnb, GTPU_HEADROOM, Gnb, GnbConfig, Via, XnMessage,
};
use crate::outbox::Outbox;
use crate::radio::{DownlinkMessage, UeId, UplinkMessage};
use crate::ue::{self, MmState, Ue, UeCommand, UeConfig};
use crate::user_plane::{Addresses, Stack, Stream, StreamConfig, Task, TaskError, TaskOutcome};

/// Index of a gNB, in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GnbId(pub u16);

/// Input of the emulated RAN.
#[derive(Debug)]
pub enum Input<'a> {
    /// A gNB's association with the AMF is up, with the number of outbound streams and the transfer syntax.
    AssociationUp(GnbId, u16, TransferSyntax),
    /// It is lost. If a further one is up, the gNB continues over that.
    AssociationDown(GnbId),
    /// A gNB's further association is up, with the endpoint of [`Output::Associate`].
    FurtherAssociationUp(GnbId),
    /// It is lost.
    FurtherAssociationDown(GnbId),
    /// A gNB received an NGAP message over its further association.
    FurtherNgap {
        /// The gNB that receives it.
        gnb: GnbId,
        /// The SCTP stream.
        stream: u16,
        /// The message as it came.
        octets: &'a [u8],
    },
    /// A gNB received an NGAP message.
    Ngap {
        /// The gNB that receives it.
        gnb: GnbId,
        /// The SCTP stream.
        stream: u16,
        /// The message as it came.
        octets: &'a [u8],
    },
    /// Input of a gNB's association with one of its several AMFs ([`Cells::select_among`]).
    Amf(GnbId, AmfIndex, AmfInput<'a>),
    /// A gNB received a GTP-U datagram.
    Gtpu {
        /// The gNB that receives it.
        gnb: GnbId,
        /// Source address and UDP port.
        source: (IpAddr, u16),
        /// The datagram as it came.
        datagram: &'a [u8],
    },
    /// A command to a UE.
    Command(UeId, UeCommand),
    /// A task for the IP stack of a UE's newest session.
    Task(UeId, Task),
    /// A program on a UE sends a packet over a session.
    Packet(UeId, PduSessionId, &'a [u8]),
    /// A UE's gNB requests its release, with this cause.
    Release(UeId, Cause),
    /// An idle UE camps on another cell.
    Camp(UeId, GnbId),
    /// A gNB broadcasts another token, or none: O&M's order, in place of a system information block.
    Broadcast(GnbId, Option<TokenHash>),
    /// Starts a UE's packet stream over its newest session with an IPv4 address; the number distinguishes it from the
    /// UE's other streams.
    Stream(UeId, StreamConfig, u32),
    /// Ends a UE's stream.
    StopStream(UeId),
    /// The other end of a UE's last stream sends one packet, after this delay.
    Ring(UeId, Duration),
    /// Starts a handover of a UE to another gNB.
    HandOver(UeId, GnbId, Via),
    /// A timer may have expired.
    Tick,
}

/// Output of the emulated RAN.
#[derive(Debug)]
pub enum Output {
    /// An NGAP message to be sent.
    Ngap {
        /// The gNB that sends it.
        gnb: GnbId,
        /// On this SCTP stream.
        stream: u16,
        /// The message as it leaves.
        octets: Vec<u8>,
    },
    /// Set up an association with this further endpoint of the AMF.
    Associate(GnbId, IpAddr),
    /// End the gNB's association with this endpoint of the AMF, which was removed.
    Dissociate(GnbId, IpAddr),
    /// Send NGAP over the further association.
    FurtherNgap {
        /// The gNB that sends it.
        gnb: GnbId,
        /// On this SCTP stream.
        stream: u16,
        /// The message as it leaves.
        octets: Vec<u8>,
    },
    /// Send NGAP to one of a gNB's several AMFs, in aligned PER.
    AmfNgap {
        /// The gNB that sends it.
        gnb: GnbId,
        /// The AMF that receives it.
        amf: AmfIndex,
        /// On this SCTP stream.
        stream: u16,
        /// The message as it leaves.
        octets: Vec<u8>,
    },
    /// Send a datagram from a gNB's port 2152.
    Gtpu {
        /// The gNB that sends it.
        gnb: GnbId,
        /// To this address and UDP port.
        to: (IpAddr, u16),
        /// The datagram as it leaves.
        datagram: Vec<u8>,
    },
    /// A packet for a UE's program.
    Packet(UeId, PduSessionId, Vec<u8>),
    /// An event of a gNB.
    Gnb(GnbId, gnb::Event),
    /// An event of a UE.
    Ue(UeId, ue::Event),
    /// The first packet of a UE's stream was answered.
    StreamFlows(UeId),
    /// A UE's stream has ended at both sides.
    StreamEnded(UeId),
    /// A UE's task has ended.
    Task(UeId, Result<TaskOutcome, TaskError>),
}

/// The endpoint of UEs' packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserPlane {
    /// An IP stack in the process.
    Stack,
    /// A program, through [`Output::Packet`] and [`Input::Packet`].
    Program,
}

#[derive(Debug)]
struct CellSlot {
    ue: Ue,
    gnb: GnbId,
    stack: Option<(PduSessionId, Box<Stack>)>,
    stream: Option<(PduSessionId, Box<Stream>)>,
    /// Its deadline in the heap.
    armed: Instant,
    s_tmsi: Option<STmsi>,
    /// Since when downlink packets use another QoS flow than the UE's rules demand.
    stray_since: Option<Instant>,
}

/// How long downlink packets may use another QoS flow than the UE's rules demand: the UPF gets a new flow after the UE, and
/// removes one before it (TS 23.502 §4.3.3.2). No standard value; longer than the core's repetitions on N4.
const RULES_SETTLE: Duration = Duration::from_secs(2);

/// A message between two state machines.
enum Job {
    ToGnb(UeId, UplinkMessage),
    ToUe(UeId, ue::Input),
    Xn { from: GlobalGnbId, to: GlobalGnbId, message: XnMessage },
}

/// A UE that has left one cell and is not in the other yet.
struct BetweenCells {
    command: DownlinkMessage,
    /// Its packets, which leave when it has arrived.
    uplink: VecDeque<(PduSessionId, Vec<u8>)>,
}

/// Uplink packets of a UE between two cells: a third of a second at 3,000 a second.
const UPLINK_BETWEEN_CELLS_MAX: usize = 1024;

/// UEs on gNBs.
pub struct Cells {
    gnbs: Vec<Gnb>,
    /// The AMFs of gNBs that have several.
    selections: BTreeMap<GnbId, AmfSelection>,
    ues: Vec<CellSlot>,
    user_plane: UserPlane,
    by_s_tmsi: BTreeMap<STmsi, UeId>,
    /// What gNBs broadcast for UEs that attach veiled.
    tokens: BTreeMap<GnbId, Option<TokenHash>>,
    deadlines: BinaryHeap<Reverse<(Instant, UeId)>>,
    jobs: VecDeque<Job>,
    /// UEs between two cells, by when they arrive ([`GnbConfig::handover_interruption`]).
    between_cells: BTreeMap<(Instant, UeId), BetweenCells>,
    from_ue: Outbox<ue::Output>,
    from_gnb: Outbox<gnb::Output>,
    seed: u64,
    /// Dropped uplink packets without a tunnel.
    pub dropped_uplink: u64,
}

impl Cells {
    /// An empty RAN. `seed` determines ports and sequence numbers of the UEs' stacks.
    pub fn new(user_plane: UserPlane, seed: u64) -> Self {
        Self {
            gnbs: Vec::new(),
            selections: BTreeMap::new(),
            ues: Vec::new(),
            user_plane,
            by_s_tmsi: BTreeMap::new(),
            tokens: BTreeMap::new(),
            deadlines: BinaryHeap::new(),
            jobs: VecDeque::new(),
            between_cells: BTreeMap::new(),
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

    /// Has a gNB select among so many AMFs, before its first association.
    pub fn select_among(&mut self, gnb: GnbId, amfs: u8) {
        self.selections.insert(gnb, AmfSelection::new(amfs));
    }

    /// The AMFs of a gNB that has several.
    pub fn selection(&self, gnb: GnbId) -> Option<&AmfSelection> {
        self.selections.get(&gnb)
    }

    /// Adds a UE that camps on a gNB's cell.
    pub fn add_ue(&mut self, gnb: GnbId, config: UeConfig) -> UeId {
        let id = UeId(self.ues.len() as u32);
        let mut ue = Ue::new(config);
        if let Some(gnb) = self.gnbs.get(usize::from(gnb.0)) {
            // A new UE sends nothing when it camps.
            ue.handle(Instant::ZERO, ue::Input::Cell(gnb.config().tai()), &mut self.from_ue);
        }
        self.ues.push(CellSlot {
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

    /// The UE with this number.
    pub fn ue(&self, id: UeId) -> Option<&Ue> {
        self.ues.get(id.index()).map(|p| &p.ue)
    }

    /// The same, mutable.
    pub fn ue_mut(&mut self, id: UeId) -> Option<&mut Ue> {
        self.ues.get_mut(id.index()).map(|p| &mut p.ue)
    }

    /// The gNB with this index.
    pub fn gnb(&self, id: GnbId) -> Option<&Gnb> {
        self.gnbs.get(usize::from(id.0))
    }

    /// The same, mutable.
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

    /// True if every gNB is in service, at each of its AMFs that can be reached.
    pub fn all_up(&self) -> bool {
        self.gnbs.iter().all(Gnb::is_up) && self.selections.values().all(AmfSelection::has_tried_all)
    }

    /// Handles one input.
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
            Input::Amf(gnb, amf, input) => {
                if let (Some(of), Some(selection)) =
                    (self.gnbs.get(usize::from(gnb.0)), self.selections.get_mut(&gnb))
                {
                    selection.handle(of, amf, input);
                    self.follow_selection(now, gnb, out);
                }
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
            Input::Broadcast(gnb, token) => {
                self.tokens.insert(gnb, token);
                self.ues.iter_mut().filter(|p| p.gnb == gnb).for_each(|p| p.ue.hear_token(token));
            }
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

    /// When it needs an [`Input::Tick`]; it may be earlier than necessary.
    pub fn next_deadline(&self) -> Option<Instant> {
        let gnbs = self.gnbs.iter().filter_map(Gnb::next_deadline);
        let arrival = self.between_cells.first_key_value().map(|((at, _), _)| *at);
        gnbs.chain(self.deadlines.peek().map(|Reverse((at, _))| *at)).chain(arrival).min()
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
        while let Some(entry) = self.between_cells.first_entry().filter(|e| e.key().0 <= now) {
            let ((_, ue), BetweenCells { command, uplink }) = entry.remove_entry();
            self.jobs.push_back(Job::ToUe(ue, ue::Input::Radio(command)));
            self.deliver(now, out);
            uplink.iter().for_each(|(session, packet)| self.uplink(now, ue, *session, packet, out));
        }
    }

    /// Delivers all messages between UEs and gNBs, in order.
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

    /// Passes on what the AMF selection of a gNB has for its state machine and for the AMFs.
    fn follow_selection(&mut self, now: Instant, id: GnbId, out: &mut Outbox<Output>) {
        while let Some(selection) = self.selections.get_mut(&id) {
            let to_amf =
                |m: gnb::ForAmf| Output::AmfNgap { gnb: id, amf: m.amf, stream: m.stream, octets: m.octets };
            selection.take_for_amfs().into_iter().map(to_amf).for_each(|output| out.push(output));
            match selection.next_for_gnb() {
                None => return,
                Some(ForGnb::AssociationUp(streams)) => {
                    let syntax = TransferSyntax::Per;
                    self.gnb_handles(now, id, gnb::Input::AssociationUp { streams, syntax }, out);
                }
                Some(ForGnb::AssociationDown) => self.gnb_handles(now, id, gnb::Input::AssociationDown, out),
                Some(ForGnb::Ngap { moved, stream, octets, .. }) => {
                    if let (Some(connection), Some(gnb)) = (moved, self.gnb_mut(id)) {
                        gnb.change_stream(connection, stream);
                    }
                    self.gnb_handles(now, id, gnb::Input::Ngap { stream, octets: &octets }, out);
                }
            }
        }
    }

    fn gnb_takes(&mut self, now: Instant, id: GnbId, input: gnb::Input<'_>, out: &mut Outbox<Output>) {
        self.gnb_handles(now, id, input, out);
        self.follow_selection(now, id, out);
    }

    fn gnb_handles(&mut self, now: Instant, id: GnbId, input: gnb::Input<'_>, out: &mut Outbox<Output>) {
        let Some(gnb) = self.gnbs.get_mut(usize::from(id.0)) else { return };
        let (from, interruption) = (gnb.config().id, gnb.config().handover_interruption);
        let mut outputs = core::mem::take(&mut self.from_gnb);
        gnb.handle(now, input, &mut outputs);
        for output in outputs.drain() {
            match output {
                gnb::Output::Ngap { stream, octets } => {
                    match (self.gnbs.get(usize::from(id.0)), self.selections.get_mut(&id)) {
                        (Some(gnb), Some(selection)) => selection.send(gnb, stream, octets),
                        _ => out.push(Output::Ngap { gnb: id, stream, octets }),
                    }
                }
                gnb::Output::Radio(ue, command @ DownlinkMessage::Handover { .. })
                    if !interruption.is_zero() =>
                {
                    let leaves = BetweenCells { command, uplink: VecDeque::new() };
                    self.between_cells.insert((now + interruption, ue), leaves);
                }
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
                    if let UplinkMessage::HandoverComplete { to, .. } = &up
                        && let Some(i) = self.gnbs.iter().position(|g| g.config().id == *to)
                    {
                        slot.gnb = GnbId(i as u16);
                        if let Some((_, stream)) = &mut slot.stream {
                            stream.at_target(now);
                        }
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

    /// Adds a UE's next deadline to the heap.
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

    /// A downlink packet must use the QoS flow that the UE's rules demand (TS 23.501 §5.7.1.5).
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
        // With one rule there is one flow, which the gNB checks.
        let several = slot.ue.sessions().find(|s| s.id == session).is_some_and(|s| s.rules.len() > 1);
        let expected = several.then(|| slot.ue.downlink_flow_of(session, packet)).flatten();
        if expected.is_none() || qfi == expected {
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

    /// Starts a task over the newest session; without one it fails.
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

    /// An idle UE moves to another cell; a connected one stays.
    fn camp(&mut self, now: Instant, id: UeId, gnb: GnbId, out: &mut Outbox<Output>) {
        let Some(tai) = self.gnb(gnb).map(|g| g.config().tai()) else { return };
        let Some(slot) = self.ues.get_mut(id.index()).filter(|p| !p.ue.is_connected()) else { return };
        slot.gnb = gnb;
        slot.ue.hear_token(self.tokens.get(&gnb).copied().flatten());
        self.ue_takes(now, id, ue::Input::Cell(tai), out);
    }

    /// Starts a stream; without a session for it, no packet is answered.
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

    /// The same, mutable.
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

    /// Sends a UE's packet into its tunnel; without one the packet is dropped, and an idle UE sends a service request.
    fn uplink(
        &mut self,
        now: Instant,
        id: UeId,
        session: PduSessionId,
        packet: &[u8],
        out: &mut Outbox<Output>,
    ) {
        if let Some(away) = self.between_cells.iter_mut().find(|((_, ue), _)| *ue == id).map(|(_, away)| away)
        {
            match away.uplink.len() < UPLINK_BETWEEN_CELLS_MAX {
                true => away.uplink.push_back((session, packet.to_vec())),
                false => self.dropped_uplink += 1,
            }
            return;
        }
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
                // A cell without N2 is barred.
                let barred = gnb.is_none_or(|g| !g.is_up());
                if slot.ue.state() == MmState::Registered && !slot.ue.is_connected() && !barred {
                    self.ue_takes(now, id, ue::Input::Command(UeCommand::ServiceRequest), out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ids::{GlobalGnbId, PlmnId, RanUeNgapId, Tac};

    use super::*;

    #[test] // TS 38.331 §5.3.5.5.2: the UE leaves the source at once and is in the target cell after an interruption
    fn packets_of_a_ue_between_two_cells_wait_for_its_arrival() {
        let id = GlobalGnbId::new(PlmnId::TEST, 1, 28).unwrap();
        let address = IpAddr::from([127, 0, 1, 1]);
        let mut cells = Cells::new(UserPlane::Program, 1);
        let gnb = cells.add_gnb(GnbConfig::new(id, Tac::new(1).unwrap(), Vec::new(), address));
        let tai = cells.gnb(gnb).unwrap().config().tai();
        let ue = UeId(0);
        let command = DownlinkMessage::Handover {
            to: id,
            tai,
            target: RanUeNgapId(1),
            ncc: 0,
            key_set_change: false,
            pci: 1,
            arfcn_dl: 1,
            sessions: Vec::new(),
        };
        let arrives = Instant::ZERO + Duration::from_millis(90);
        cells.between_cells.insert((arrives, ue), BetweenCells { command, uplink: VecDeque::new() });
        let (session, mut out) = (PduSessionId::new(1).unwrap(), Outbox::new());
        for _ in 0..=UPLINK_BETWEEN_CELLS_MAX {
            cells.handle(Instant::ZERO, Input::Packet(ue, session, &[0x45; 20]), &mut out);
        }
        assert_eq!((cells.dropped_uplink, cells.next_deadline()), (1, Some(arrives)));
        cells.handle(Instant(arrives.0 - 1), Input::Tick, &mut out);
        assert_eq!(cells.between_cells.len(), 1);
        cells.handle(arrives, Input::Tick, &mut out);
        assert!(cells.between_cells.is_empty() && cells.next_deadline().is_none());
    }
}
