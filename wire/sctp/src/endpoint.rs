//! The endpoint: many associations behind one port, distinguished by address, port and tag (RFC 9260 §8.4, §8.5).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use core::time::Duration;
use whimbrel_ids::Instant;

use crate::association::{Association, AssociationContext, AssociationIdentity, PacketProgress, State};
use crate::config::Config;
use crate::cookie::{PEER_ADDRESSES_MAX, Prf};
use crate::export::{self, Defect, Progress, SavedStore, Store};
use crate::handshake::reply;
use crate::outbox::{AssociationId, DownReason, Event, Outbox, Path, RequestRefusal};
use crate::packet::{BadPacket, Chunk, Packet, Parameters, T_BIT, cause, kind, write_chunk};
use crate::path::{PathState, suitable_local};

/// An input of an endpoint.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A packet arrived, from its SCTP common header on.
    Packet {
        /// Our address, the peer's, and the peer's UDP port where it was encapsulated.
        path: Path,
        /// The packet with its common header.
        octets: &'a [u8],
    },
    /// Open an association. [`Endpoint::connect`] does the same and returns its identifier.
    Connect(Connect<'a>),
    /// Send a message. [`Endpoint::send`] does the same and returns the error.
    Send(Send<'a>),
    /// Close gracefully: queued messages are delivered first.
    Shutdown {
        /// The association that is to end.
        association: AssociationId,
    },
    /// Close at once.
    Abort {
        /// The association that is to be aborted.
        association: AssociationId,
    },
    /// Ask the peer for a sign of life; [`Endpoint::heard`] says whether one came.
    Probe {
        /// The association whose peer is probed.
        association: AssociationId,
    },
    /// The endpoint stops. Each association is shut down gracefully (RFC 9260 §9.2); one that still stands at `by`, because
    /// DATA or the peer's answer is outstanding, is aborted (§9.1), as is one whose handshake is not complete. New
    /// associations are refused from now on.
    Stop {
        /// When associations that are still up are aborted.
        by: Instant,
    },
    /// Time has passed: runs the timers that are due.
    Tick,
}

/// Where to connect to.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The peer's addresses, the preferred one first.
    pub addresses: &'a [IpAddr],
    /// The peer's SCTP port.
    pub port: u16,
    /// The peer's UDP port (RFC 6951), or zero for SCTP directly over IP.
    pub udp_port: u16,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// The association that carries it.
    pub association: AssociationId,
    /// Identifier of the stream.
    pub stream: u16,
    /// Payload protocol identifier.
    pub ppid: u32,
    /// Whether it may overtake others of its stream.
    pub unordered: bool,
    /// The message, not empty.
    pub octets: &'a [u8],
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets handed in.
    pub packets: u64,
    /// Dropped: wrong checksum.
    pub bad_checksum: u64,
    /// Dropped: too short, or with inconsistent chunk lengths.
    pub malformed: u64,
    /// Ignored: for another port.
    pub foreign: u64,
    /// Dropped: a verification tag that is not the association's (RFC 9260 §8.5).
    pub bad_tag: u64,
    /// Packets of no association (RFC 9260 §8.4).
    pub out_of_the_blue: u64,
    /// Dropped: a cookie that we did not sign.
    pub bad_cookie: u64,
    /// ERROR chunks that peers sent.
    pub errors_reported: u64,
    /// DATA chunks sent again.
    pub data_chunks_retransmitted: u64,
}

/// What a successor of this endpoint needs to abort an association of which it has no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former {
    /// The primary path.
    pub path: Path,
    /// Our SCTP port.
    pub local_port: u16,
    /// The peer's SCTP port.
    pub peer_port: u16,
    /// The verification tag that the peer expects.
    pub peer_tag: u32,
}

/// What the user stores with an association: it is exported together with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserNotes {
    /// Any number; zero if the user has set none.
    pub label: u64,
    /// The number of the user's last output that was queued or dropped; it only grows.
    pub mark: u64,
}

/// An association of a former endpoint that this one continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedAssociation {
    /// Its identifier, unchanged.
    pub association: AssociationId,
    /// What the user has stored with it.
    pub notes: UserNotes,
    /// The primary path.
    pub primary: Path,
    /// The peer's SCTP port.
    pub peer_port: u16,
    /// How many streams we may send on.
    pub outbound_streams: u16,
    /// The peer's adaptation code point.
    pub adaptation: Option<u32>,
    /// Messages delivered since it was set up.
    pub messages: u64,
    /// How many of them were released.
    pub released: u64,
}

/// The state of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssociationStatus {
    /// State of RFC 9260 §4.
    pub state: State,
    /// The primary path.
    pub primary: Path,
    /// How many paths there are, and how many of them are active.
    pub paths: (usize, usize),
    /// Smoothed round-trip time of the primary path, once measured.
    pub srtt: Option<Duration>,
    /// Congestion window of the primary path.
    pub cwnd_octets: usize,
    /// Octets queued or in flight, with their overhead, as counted against the send buffer.
    pub queued_octets: usize,
}

#[derive(Debug, Default)]
struct AssociationSlot {
    generation: u32,
    association: Option<Box<Association>>,
    /// Whether it changed since the last export, and what is exported.
    changed: bool,
    exported: Progress,
}

/// An SCTP endpoint. It does no I/O: packets, time and entropy come in, packets and events go out.
///
/// After a burst of inputs call [`Endpoint::flush`]: only then do SACK and DATA leave, bundled. Replies to packets
/// outside any association may leave at once.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    prf: Prf,
    slots: Vec<AssociationSlot>,
    free: Vec<u32>,
    /// Local port, peer port, peer address.
    by_peer: BTreeMap<(u16, u16, IpAddr), u32>,
    /// Due times, at most one per association; a later deadline is found when the earlier one runs out.
    timers: BTreeSet<(Instant, u32)>,
    /// Associations that may have something to send.
    dirty: Vec<u32>,
    /// Associations with DATA that window or congestion has kept back at the last flush.
    kept_back: BTreeSet<u32>,
    /// Slots that changed since the last export.
    changed: Vec<u32>,
    /// Reused by exports.
    scratch: Vec<u8>,
    counters: Counters,
}

impl Endpoint {
    /// An endpoint. `secret` must be unpredictable, and differ from one start to the next: it keys cookies, tags and
    /// initial TSNs. `now` is taken as the beginning.
    pub fn new(config: Config, secret: [u8; 32], now: Instant) -> Self {
        Self::successor(config, secret, 0, now)
    }

    /// An endpoint that succeeds `generation` others with the same secret: their cookies are valid here. Its tags and TSNs differ from theirs.
    pub fn successor(config: Config, secret: [u8; 32], generation: u32, _now: Instant) -> Self {
        Self {
            config: config.sane(),
            prf: Prf::new(secret, generation),
            slots: Vec::new(),
            free: Vec::new(),
            by_peer: BTreeMap::new(),
            timers: BTreeSet::new(),
            dirty: Vec::new(),
            kept_back: BTreeSet::new(),
            changed: Vec::new(),
            scratch: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Handles one input. Refusals come as [`Event::Refused`].
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        let refused = match input {
            Input::Packet { path, octets } => {
                self.packet(now, path, octets, out);
                None
            }
            Input::Connect(c) => self.connect(now, c, out).err().map(|r| (None, r)),
            Input::Send(s) => self.send(s).err().map(|r| (Some(s.association), r)),
            Input::Shutdown { association } => self.close(now, association, out, Association::shutdown),
            Input::Abort { association } => self.close(now, association, out, |a, cx| {
                a.abort(cause::USER_INITIATED_ABORT, &[], DownReason::Aborted, cx);
            }),
            Input::Probe { association } => self.close(now, association, out, Association::probe),
            Input::Stop { by } => {
                self.stop(now, by, out);
                None
            }
            Input::Tick => {
                self.tick(now, out);
                None
            }
        };
        if let Some((association, refusal)) = refused {
            out.events.push(Event::Refused { association, refusal });
        }
    }

    /// When [`Input::Tick`] is due; [`Instant::ZERO`] if a flush is.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.dirty.is_empty() {
            return Some(Instant::ZERO);
        }
        self.timers.first().map(|(t, _)| *t)
    }

    /// Sends what is pending: acknowledgements, DATA and replies, bundled per association.
    pub fn flush(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(slot) = self.dirty.pop() {
            let Self { config, prf, counters, slots, changed, .. } = self;
            let Some(s) = slots.get_mut(slot as usize) else { continue };
            s.note_change(slot, config, changed);
            let Some(a) = s.association.as_deref_mut() else { continue };
            a.dirty = false;
            a.transmit(&mut AssociationContext { now, config, prf, counters, out });
            match a.tx.has_pending() {
                true => self.kept_back.insert(slot),
                false => self.kept_back.remove(&slot),
            };
            let deadline = a.deadline();
            if deadline < a.armed {
                self.timers.remove(&(a.armed, slot));
                a.armed = deadline;
                self.timers.insert((deadline, slot));
            }
        }
    }

    /// Whether a message has not left yet: it waits for a flush, or for a peer's window or the congestion window (RFC 9260 §6.1).
    pub fn has_unsent(&self) -> bool {
        let queued = |slot: &u32| {
            let a = self.slots.get(*slot as usize).and_then(|s| s.association.as_deref());
            a.is_some_and(|a| a.tx.has_pending())
        };
        !self.kept_back.is_empty() || self.dirty.iter().any(queued)
    }

    /// Opens an association; [`Event::Up`] or [`Event::Down`] follows.
    ///
    /// Errors: [`RequestRefusal::InvalidAddress`] without a usable address; [`RequestRefusal::NoRoom`] if the table is full or the
    /// peer has an association already.
    pub fn connect(
        &mut self,
        now: Instant,
        to: Connect<'_>,
        out: &mut Outbox,
    ) -> Result<AssociationId, RequestRefusal> {
        let local_port = self.config.port;
        let usable = |a: &&IpAddr| !a.is_unspecified() && !a.is_multicast();
        let addresses: Vec<IpAddr> =
            to.addresses.iter().filter(usable).copied().take(PEER_ADDRESSES_MAX).collect();
        if addresses.is_empty() || to.port == 0 {
            return Err(RequestRefusal::InvalidAddress);
        }
        if addresses.iter().any(|a| self.holder_of(local_port, to.port, *a).is_some()) {
            return Err(RequestRefusal::NoRoom);
        }
        let id = self.allocate().ok_or(RequestRefusal::NoRoom)?;
        let (local_tag, local_tsn) = self.prf.tag_and_tsn();
        let identity = AssociationIdentity { id, local_port, peer_port: to.port, local_tag, local_tsn };
        let mut a = Association::new(identity, &self.config);
        for remote in addresses {
            let local = suitable_local(&self.config.local_addresses, remote);
            let path = Path { local, remote, udp_port: to.udp_port };
            if a.path_to(remote).is_none() {
                a.paths.push(PathState::new(path, false, now, &self.config));
            }
        }
        self.insert(a);
        self.register(id.slot);
        self.with(Some(id.slot), now, out, |a, cx| a.start_handshake(cx));
        Ok(id)
    }

    /// Queues a message; it leaves at the next flush that window and congestion allow.
    ///
    /// Errors: [`RequestRefusal`]; nothing was queued then.
    pub fn send(&mut self, s: Send<'_>) -> Result<(), RequestRefusal> {
        let Self { config, slots, dirty, .. } = self;
        let a = find(slots, s.association).ok_or(RequestRefusal::UnknownAssociation)?;
        a.send((s.stream, s.ppid, s.unordered), s.octets, config)?;
        if !core::mem::replace(&mut a.dirty, true) {
            dirty.push(s.association.slot);
        }
        Ok(())
    }

    /// Whether messages that arrive from now on are acknowledged only when they are released. Earlier messages are not affected.
    pub fn hold_acknowledgements(&mut self, hold: bool) {
        self.config.hold_acknowledgements = hold;
        let Self { slots, dirty, .. } = self;
        for a in slots.iter_mut().filter_map(|s| s.association.as_deref_mut()) {
            a.rx.hold(hold);
            if !core::mem::replace(&mut a.dirty, true) {
                dirty.push(a.id.slot);
            }
        }
    }

    /// Whether acknowledgements wait for the user's release.
    pub fn holds_acknowledgements(&self) -> bool {
        self.config.hold_acknowledgements
    }

    /// Releases the first `messages` messages of an association, counted since [`Event::Up`] (restarts of the peer included): the next flush
    /// acknowledges them. A stale identifier and messages that were released before have no effect.
    pub fn release(&mut self, association: AssociationId, messages: u64) {
        let Self { slots, dirty, .. } = self;
        let Some(a) = find(slots, association) else { return };
        a.rx.release(messages);
        if a.rx.sack_due && !core::mem::replace(&mut a.dirty, true) {
            dirty.push(association.slot);
        }
    }

    /// Stores this number with an association. A stale identifier has no effect.
    pub fn set_label(&mut self, association: AssociationId, label: u64) {
        self.with_notes(association, |notes| notes.label = label);
    }

    /// Stores this mark with an association, together with what was queued so far. A stale identifier has no effect.
    pub fn set_mark(&mut self, association: AssociationId, mark: u64) {
        self.with_notes(association, |notes| notes.mark = mark);
    }

    /// What the user has stored with an association; `None` if it has ended.
    pub fn notes(&self, association: AssociationId) -> Option<UserNotes> {
        let slot = self.slots.get(association.slot as usize)?;
        Some(slot.association.as_deref().filter(|_| slot.generation == association.generation)?.notes)
    }

    fn with_notes(&mut self, association: AssociationId, set: impl FnOnce(&mut UserNotes)) {
        let Self { config, slots, changed, .. } = self;
        let Some(a) = find(slots, association) else { return };
        set(&mut a.notes);
        if let Some(slot) = slots.get_mut(association.slot as usize) {
            slot.note_change(association.slot, config, changed);
        }
    }

    /// Writes what changed since the last export, for a successor ([`Config::export`]). Call it before packets leave, and, if acknowledgements are
    /// held, before the user acts on events.
    pub fn export(&mut self, store: &mut impl Store) {
        let Self { slots, changed, dirty, config, scratch, .. } = self;
        let layout = store.layout();
        for slot in dirty.iter() {
            if let Some(s) = slots.get_mut(*slot as usize) {
                s.note_change(*slot, config, changed);
            }
        }
        for slot in changed.drain(..) {
            let Some(s) = slots.get_mut(slot as usize) else { continue };
            s.changed = false;
            match s.association.as_deref_mut().filter(|_| slot < store.slots()) {
                Some(a) => a.export(&mut s.exported, &layout, scratch, store),
                None => s.exported.withdraw(slot, store),
            }
        }
    }

    /// Continues the association in a slot of a former endpoint's store; `None` if there is none. It makes no event and sends nothing before
    /// [`Endpoint::resume`], which has to be called before any packet is handled.
    ///
    /// Errors: why it cannot be continued. The peer's next packet is answered by ABORT (RFC 9260 §8.4), and the peer sets up another one.
    pub fn adopt(
        &mut self,
        now: Instant,
        slot: u32,
        saved: &impl SavedStore,
    ) -> Result<Option<AdoptedAssociation>, Defect> {
        let Some(head) = export::read_head(slot, saved)? else { return Ok(None) };
        let a = Association::restore(slot, &head, saved, now, &self.config)?;
        let taken =
            |p: &PathState| p.confirmed && self.holder_of(a.local_port, a.peer_port, p.path.remote).is_some();
        let free = self.slots.get(slot as usize).is_none_or(|s| s.association.is_none());
        let fits = (slot as usize) < self.config.associations_max && a.local_port == self.config.port;
        if !free || !fits || a.paths.iter().any(taken) {
            return Err(Defect::NotOurs);
        }
        while self.slots.len() <= slot as usize {
            self.free.push(self.slots.len() as u32);
            self.slots.push(AssociationSlot::default());
        }
        self.free.retain(|f| *f != slot);
        let adopted = AdoptedAssociation {
            association: a.id,
            notes: a.notes,
            primary: a.paths.get(a.primary).map(|p| p.path).ok_or(Defect::NotOurs)?,
            peer_port: a.peer_port,
            outbound_streams: a.outbound_streams,
            adaptation: a.adaptation,
            messages: a.rx.messages(),
            released: a.rx.released(),
        };
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.generation = a.id.generation;
        }
        self.insert(a);
        self.register(slot);
        Ok(Some(adopted))
    }

    /// Resumes an adopted association. The user has its first `messages` messages; later ones that were not released follow as events.
    /// Packets in flight are sent again at the next flush.
    pub fn resume(&mut self, now: Instant, association: AssociationId, messages: u64, out: &mut Outbox) {
        if find(&mut self.slots, association).is_none() {
            return;
        }
        let hold = self.config.hold_acknowledgements;
        self.with(Some(association.slot), now, out, |a, cx| {
            a.rx.resume(messages, hold, a.id, &mut cx.out.events);
        });
    }

    /// The state of an association; `None` if it has ended.
    pub fn status(&self, association: AssociationId) -> Option<AssociationStatus> {
        let slot = self.slots.get(association.slot as usize)?;
        let a = slot.association.as_deref().filter(|_| slot.generation == association.generation)?;
        let primary = a.paths.get(a.primary)?;
        Some(AssociationStatus {
            state: a.state,
            primary: primary.path,
            paths: (a.paths.len(), a.paths.iter().filter(|p| p.active && p.confirmed).count()),
            srtt: primary.srtt(),
            cwnd_octets: primary.cwnd,
            queued_octets: a.tx.queued_octets(),
        })
    }

    /// How many packets of the peer an association has taken in this process; `None` if it is gone.
    pub fn heard(&self, association: AssociationId) -> Option<u64> {
        let slot = self.slots.get(association.slot as usize)?;
        let a = slot.association.as_deref().filter(|_| slot.generation == association.generation)?;
        Some(a.heard)
    }

    /// All associations that are there.
    pub fn associations(&self) -> impl Iterator<Item = AssociationId> {
        self.slots.iter().filter_map(|s| s.association.as_deref().map(|a| a.id))
    }

    /// What a successor would need to end the associations that are up.
    pub fn formers(&self) -> impl Iterator<Item = Former> {
        let up = self.slots.iter().filter_map(|s| s.association.as_deref()).filter(|a| a.peer_tag != 0);
        up.filter_map(|a| {
            let path = a.paths.get(a.primary)?.path;
            let (local_port, peer_port, peer_tag) = (a.local_port, a.peer_port, a.peer_tag);
            Some(Former { path, local_port, peer_port, peer_tag })
        })
    }

    /// Sends ABORT for an association of the former endpoint that the peer may still have, so that the peer learns of the restart at once and not
    /// only with its next packet (RFC 9260 §8.4). A peer without that association ignores the packet by its tag (§8.5.1).
    pub fn abort_former(&self, former: &Former, out: &mut Outbox) {
        let Former { path, local_port, peer_port, peer_tag } = *former;
        if peer_tag == 0 || self.holder_of(local_port, peer_port, path.remote).is_some() {
            return;
        }
        out.packets.open(local_port, peer_port, peer_tag);
        write_chunk(out.packets.buffer(), kind::ABORT, 0, |_| {});
        out.packets.close(path);
    }

    /// Counters of the endpoint.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(&(t, slot)) = self.timers.first()
            && t <= now
        {
            self.timers.remove(&(t, slot));
            if let Some(a) = self.slots.get_mut(slot as usize).and_then(|s| s.association.as_deref_mut()) {
                a.armed = Instant::FAR_FUTURE;
            }
            self.with(Some(slot), now, out, Association::tick);
        }
    }

    fn stop(&mut self, now: Instant, by: Instant, out: &mut Outbox) {
        self.config.accept_inbound = false;
        let slots: Vec<u32> = self.associations().map(|a| a.slot).collect();
        for slot in slots {
            self.with(Some(slot), now, out, |a, cx| a.stop(by, cx));
        }
    }

    fn close(
        &mut self,
        now: Instant,
        association: AssociationId,
        out: &mut Outbox,
        how: impl FnOnce(&mut Association, &mut AssociationContext<'_>),
    ) -> Option<(Option<AssociationId>, RequestRefusal)> {
        if find(&mut self.slots, association).is_none() {
            return Some((Some(association), RequestRefusal::UnknownAssociation));
        }
        self.with(Some(association.slot), now, out, how);
        None
    }

    fn packet(&mut self, now: Instant, path: Path, octets: &[u8], out: &mut Outbox) {
        self.counters.packets += 1;
        let packet = match Packet::parse(octets) {
            Ok(p) => p,
            Err(BadPacket::Checksum) => return self.counters.bad_checksum += 1,
            Err(BadPacket::Malformed) => return self.count_malformed(),
        };
        if packet.destination != self.config.port {
            return self.counters.foreign += 1;
        }
        let mut chunks = packet.chunks;
        let Some(first) = chunks.next() else { return self.count_malformed() };
        let slot = self.slot_of(packet.destination, packet.source, path.remote);
        match first.kind {
            kind::INIT => return self.on_init(now, path, &packet, first, out),
            kind::COOKIE_ECHO => {
                let Some(slot) = self.on_cookie_echo(now, path, &packet, first, out) else { return };
                return self.take_chunks(now, slot, path, chunks, out);
            }
            _ => {}
        }
        let Some((slot, a)) = slot.and_then(|s| Some((s, self.association_at(s)?))) else {
            return self.out_of_the_blue(path, &packet, out);
        };
        if !a.accepts_tag(packet.tag, &first) {
            if first.kind == kind::SHUTDOWN_ACK && matches!(a.state, State::CookieWait | State::CookieEchoed)
            {
                return self.out_of_the_blue(path, &packet, out); // RFC 9260 §8.5.1 E
            }
            return self.counters.bad_tag += 1;
        }
        if first.kind == kind::INIT_ACK {
            return self.on_init_ack(now, slot, path, &packet, first, out);
        }
        self.take_chunks(now, slot, path, core::iter::once(first).chain(chunks), out);
    }

    fn take_chunks<'a>(
        &mut self,
        now: Instant,
        slot: u32,
        path: Path,
        mut chunks: impl Iterator<Item = Chunk<'a>>,
        out: &mut Outbox,
    ) {
        self.with(Some(slot), now, out, |a, cx| {
            let from = a.heard_on(path);
            a.heard += 1;
            while let Some(chunk) = chunks.next().filter(|_| !a.ended) {
                if a.chunk(chunk, from, cx) == PacketProgress::Stop {
                    break;
                }
            }
            a.packet_done(cx);
        });
    }

    /// A packet of no association (RFC 9260 §8.4). The reply is never longer than what caused it.
    fn out_of_the_blue(&mut self, path: Path, packet: &Packet<'_>, out: &mut Outbox) {
        self.counters.out_of_the_blue += 1;
        if path.remote.is_multicast() || path.remote.is_unspecified() || path.local.is_multicast() {
            return;
        }
        let mut shutdown_ack = false;
        for chunk in packet.chunks {
            match chunk.kind {
                kind::ABORT | kind::SHUTDOWN_COMPLETE | kind::COOKIE_ACK => return,
                kind::ERROR if Parameters(chunk.value).any(|c| c.kind == cause::STALE_COOKIE) => return,
                kind::SHUTDOWN_ACK => shutdown_ack = true,
                _ => {}
            }
        }
        let chunk = if shutdown_ack { kind::SHUTDOWN_COMPLETE } else { kind::ABORT };
        reply(out, path, packet, packet.tag, (chunk, T_BIT), |_| {});
    }

    /// Runs `f` on the association in a slot, then frees or marks it.
    pub(crate) fn with(
        &mut self,
        slot: Option<u32>,
        now: Instant,
        out: &mut Outbox,
        f: impl FnOnce(&mut Association, &mut AssociationContext<'_>),
    ) {
        let Some(slot) = slot else { return };
        let Self { config, prf, counters, slots, dirty, .. } = self;
        let Some(a) = slots.get_mut(slot as usize).and_then(|s| s.association.as_deref_mut()) else { return };
        f(a, &mut AssociationContext { now, config, prf, counters, out });
        let has_confirmed = core::mem::take(&mut a.has_confirmed);
        if a.ended {
            return self.remove(slot);
        }
        if !core::mem::replace(&mut a.dirty, true) {
            dirty.push(slot);
        }
        if has_confirmed {
            self.register(slot);
        }
    }

    pub(crate) fn association_at(&self, slot: u32) -> Option<&Association> {
        self.slots.get(slot as usize)?.association.as_deref()
    }

    pub(crate) fn slot_of(&self, local_port: u16, peer_port: u16, remote: IpAddr) -> Option<u32> {
        self.by_peer.get(&(local_port, peer_port, remote)).copied()
    }

    /// The association of the peer that is at this address, and has not merely listed it ([`Association::owns`]).
    pub(crate) fn holder_of(&self, local_port: u16, peer_port: u16, remote: IpAddr) -> Option<u32> {
        let slot = self.slot_of(local_port, peer_port, remote)?;
        self.association_at(slot)?.owns(remote).then_some(slot)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn prf(&self) -> &Prf {
        &self.prf
    }

    pub(crate) fn prf_mut(&mut self) -> &mut Prf {
        &mut self.prf
    }

    pub(crate) fn count_malformed(&mut self) {
        self.counters.malformed += 1;
    }

    pub(crate) fn count_bad_cookie(&mut self) {
        self.counters.bad_cookie += 1;
    }

    /// A free slot, if there is one; it is taken by [`Endpoint::insert`].
    pub(crate) fn allocate(&mut self) -> Option<AssociationId> {
        if let Some(slot) = self.free.pop() {
            let generation = self.slots.get(slot as usize)?.generation;
            return Some(AssociationId { slot, generation });
        }
        if self.slots.len() >= self.config.associations_max {
            return None;
        }
        self.slots.push(AssociationSlot::default());
        Some(AssociationId { slot: u32::try_from(self.slots.len() - 1).ok()?, generation: 0 })
    }

    pub(crate) fn insert(&mut self, a: Association) {
        if let Some(slot) = self.slots.get_mut(a.id.slot as usize) {
            slot.association = Some(Box::new(a));
        }
    }

    /// Enters the association under each of its peer's addresses, but for those where another peer is known to be. Of two that have listed
    /// an address the later one gets it, so that no host keeps a peer's further addresses from it for longer than it takes to confirm them.
    pub(crate) fn register(&mut self, slot: u32) {
        let Some(a) = self.association_at(slot) else { return };
        let key = |p: &PathState| (a.local_port, a.peer_port, p.path.remote);
        let free = |(local_port, peer_port, remote): &(u16, u16, IpAddr)| {
            self.holder_of(*local_port, *peer_port, *remote).is_none()
        };
        let keys: Vec<_> = a.paths.iter().map(key).filter(free).collect();
        self.by_peer.extend(keys.into_iter().map(|key| (key, slot)));
    }

    fn remove(&mut self, slot: u32) {
        let Some(s) = self.slots.get_mut(slot as usize) else { return };
        let Some(a) = s.association.take() else { return };
        s.generation = s.generation.wrapping_add(1);
        s.note_change(slot, &self.config, &mut self.changed);
        for p in &a.paths {
            let key = (a.local_port, a.peer_port, p.path.remote);
            if self.by_peer.get(&key) == Some(&slot) {
                self.by_peer.remove(&key);
            }
        }
        self.timers.remove(&(a.armed, slot));
        self.kept_back.remove(&slot);
        if a.dirty {
            self.dirty.retain(|d| *d != slot);
        }
        self.free.push(slot);
    }
}

impl AssociationSlot {
    fn note_change(&mut self, slot: u32, config: &Config, changed: &mut Vec<u32>) {
        if config.export && !core::mem::replace(&mut self.changed, true) {
            changed.push(slot);
        }
    }
}

fn find(slots: &mut [AssociationSlot], id: AssociationId) -> Option<&mut Association> {
    let slot = slots.get_mut(id.slot as usize).filter(|s| s.generation == id.generation)?;
    slot.association.as_deref_mut()
}
