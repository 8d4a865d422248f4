//! One association: its state, the chunks that it takes, and what it sends at a flush (RFC 9260 §4, §6, §8, §9).

use core::time::Duration;
use std::net::IpAddr;

use whimbrel_ids::Instant;

use crate::config::Config;
use crate::cookie::Prf;
use crate::endpoint::Counters;
use crate::outbox::{AssociationId, DownReason, Event, Outbox, Path, Refusal};
use crate::packet::{
    Chunk, HEADER_LEN, Parameter, Parameters, T_BIT, Unknown, be32, be64, cause, kind, parameter,
    write_chunk, write_parameter,
};
use crate::path::{Heartbeat, PathState};
use crate::receive::{Data, Receiver, Taken};
use crate::send::Sender;

/// Octets of a SACK without gaps; a packet with less room left is closed first.
const SACK_ROOM: usize = 64;
/// How many RTO.Max the T5-shutdown-guard lasts (RFC 9260 §9.2).
const SHUTDOWN_GUARD_RTOS: u32 = 5;

/// States of RFC 9260 §4. CLOSED has no association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// INIT sent.
    CookieWait,
    /// COOKIE ECHO sent.
    CookieEchoed,
    /// Open.
    Established,
    /// We want to shut down and still have data under way.
    ShutdownPending,
    /// SHUTDOWN sent.
    ShutdownSent,
    /// The peer wants to shut down and we still have data under way.
    ShutdownReceived,
    /// SHUTDOWN ACK sent.
    ShutdownAckSent,
}

impl State {
    /// Whether DATA may leave.
    fn sends_data(self) -> bool {
        matches!(self, State::Established | State::ShutdownPending | State::ShutdownReceived)
    }

    /// Whether DATA is taken.
    fn takes_data(self) -> bool {
        matches!(self, State::Established | State::ShutdownPending | State::ShutdownSent)
    }
}

/// What an association works with while it handles one input.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a Config,
    pub(crate) prf: &'a mut Prf,
    pub(crate) counters: &'a mut Counters,
    pub(crate) out: &'a mut Outbox,
}

/// Whether the rest of a packet is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Stop,
}

#[derive(Clone, Debug)]
pub(crate) struct Association {
    pub(crate) id: AssociationId,
    pub(crate) state: State,
    /// Set when the association has ended and its slot is to be freed.
    pub(crate) ended: bool,
    pub(crate) local_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) local_tag: u32,
    /// Zero until the peer told it.
    pub(crate) peer_tag: u32,
    pub(crate) local_initial_tsn: u32,
    pub(crate) inbound_streams: u16,
    pub(crate) outbound_streams: u16,
    pub(crate) paths: Vec<PathState>,
    pub(crate) primary: usize,
    pub(crate) tx: Sender,
    pub(crate) rx: Receiver,
    /// Chunks other than DATA and SACK that wait for the flush, and the path that they take.
    control: Vec<u8>,
    control_path: usize,
    /// Where the last DATA came from.
    sack_path: usize,
    /// INIT or COOKIE ECHO, for T1.
    pub(crate) handshake: Vec<u8>,
    handshake_due: bool,
    t1: Option<Instant>,
    t1_expiries: u32,
    t1_rto: Duration,
    t2: Option<Instant>,
    t5: Option<Instant>,
    /// Unanswered transmissions in a row over all paths.
    errors: u32,
    /// When the endpoint's timer for this association is set.
    pub(crate) armed: Instant,
    /// Whether it waits for a flush.
    pub(crate) dirty: bool,
}

/// What identifies a new association.
pub(crate) struct Identity {
    pub(crate) id: AssociationId,
    pub(crate) local_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) local_tag: u32,
    pub(crate) local_tsn: u32,
}

impl Association {
    /// An association in COOKIE-WAIT that knows nothing of its peer yet.
    pub(crate) fn new(who: Identity, config: &Config) -> Self {
        Self {
            id: who.id,
            state: State::CookieWait,
            ended: false,
            local_port: who.local_port,
            peer_port: who.peer_port,
            local_tag: who.local_tag,
            peer_tag: 0,
            local_initial_tsn: who.local_tsn,
            inbound_streams: 0,
            outbound_streams: 0,
            paths: Vec::new(),
            primary: 0,
            tx: Sender::new(who.local_tsn),
            rx: Receiver::new(0, 0, config.receive_window_octets),
            control: Vec::new(),
            control_path: 0,
            sack_path: 0,
            handshake: Vec::new(),
            handshake_due: false,
            t1: None,
            t1_expiries: 0,
            t1_rto: config.rto_initial,
            t2: None,
            t5: None,
            errors: 0,
            armed: Instant::FAR_FUTURE,
            dirty: false,
        }
    }

    /// The index of the path to `remote`.
    pub(crate) fn path_to(&self, remote: IpAddr) -> Option<usize> {
        self.paths.iter().position(|p| p.path.remote == remote)
    }

    /// A valid packet came: the peer's UDP port, or our address, may have changed (RFC 6951 §5.4).
    pub(crate) fn heard_on(&mut self, path: Path) -> usize {
        let at = self.path_to(path.remote).unwrap_or(self.primary);
        if let Some(p) = self.paths.get_mut(at)
            && p.path.remote == path.remote
        {
            p.path.udp_port = path.udp_port;
            if p.path.local.is_unspecified() {
                p.path.local = path.local;
            }
        }
        at
    }

    /// Sends the stored INIT or COOKIE ECHO at the next flush, and again by T1-init or T1-cookie.
    pub(crate) fn start_handshake(&mut self, cx: &Context<'_>) {
        self.handshake_due = true;
        self.t1_rto = cx.config.rto_initial;
        self.t1 = Some(cx.now + self.t1_rto);
    }

    /// Forgets all data, as a peer that restarted does, and takes new tags and numbers.
    pub(crate) fn reset(&mut self, local: (u32, u32), peer: (u32, u32), peer_rwnd: u32, cx: &Context<'_>) {
        (self.local_tag, self.local_initial_tsn) = local;
        self.peer_tag = peer.0;
        self.tx = Sender::new(self.local_initial_tsn);
        self.tx.set_streams(self.outbound_streams);
        self.tx.peer_rwnd = peer_rwnd as usize;
        self.rx = Receiver::new(peer.1, self.inbound_streams, cx.config.receive_window_octets);
        self.control.clear();
        (self.t2, self.t5) = (None, None);
        for p in &mut self.paths {
            *p = PathState::new(p.path, p.confirmed, cx.now, cx.config);
        }
    }

    /// The association is open: stops T1 and tells the user.
    pub(crate) fn established(&mut self, cx: &mut Context<'_>) {
        self.state = State::Established;
        self.t1 = None;
        self.handshake_due = false;
        self.handshake = Vec::new();
        self.errors = 0;
        if let Some(p) = self.paths.get_mut(self.primary) {
            p.confirmed = true;
        }
        for p in &mut self.paths {
            schedule_heartbeat(p, cx.now, cx.config);
        }
        let mut peer: Vec<IpAddr> = self.paths.iter().map(|p| p.path.remote).collect();
        if self.primary < peer.len() {
            peer.swap(0, self.primary);
        }
        cx.out.events.push(Event::Up {
            association: self.id,
            peer: &peer,
            peer_port: self.peer_port,
            inbound_streams: self.inbound_streams,
            outbound_streams: self.outbound_streams,
        });
    }

    /// The association is over; the endpoint frees its slot.
    pub(crate) fn end(&mut self, reason: DownReason, cx: &mut Context<'_>) {
        if !self.ended {
            self.ended = true;
            cx.out.events.push(Event::Down { association: self.id, reason });
        }
    }

    /// Sends ABORT with one error cause, and ends.
    pub(crate) fn abort(&mut self, code: u16, info: &[u8], reason: DownReason, cx: &mut Context<'_>) {
        if self.peer_tag != 0 {
            self.open(self.data_path(), cx);
            write_chunk(cx.out.packets.buffer(), kind::ABORT, 0, |o| {
                write_parameter(o, code, |o| o.extend_from_slice(info));
            });
            self.close(self.data_path(), cx);
        }
        self.end(reason, cx);
    }

    /// Queues a message.
    pub(crate) fn send(
        &mut self,
        message: (u16, u32, bool),
        octets: &[u8],
        config: &Config,
    ) -> Result<(), Refusal> {
        if self.state != State::Established {
            return Err(Refusal::NotEstablished);
        }
        let packet_max = self.paths.iter().map(|p| p.packet_max).min().ok_or(Refusal::NotEstablished)?;
        self.tx.queue(message, octets, packet_max, config)
    }

    /// Begins a graceful shutdown (RFC 9260 §9.2).
    pub(crate) fn shutdown(&mut self, cx: &mut Context<'_>) {
        match self.state {
            State::Established => {
                self.state = State::ShutdownPending;
                self.t5 = Some(cx.now + cx.config.rto_max * SHUTDOWN_GUARD_RTOS);
            }
            State::CookieWait | State::CookieEchoed => {
                self.abort(cause::USER_INITIATED_ABORT, &[], DownReason::Aborted, cx);
            }
            _ => {}
        }
    }

    /// Takes one chunk of a packet whose tag was right; INIT, INIT ACK and COOKIE ECHO are the endpoint's.
    pub(crate) fn chunk(&mut self, chunk: Chunk<'_>, from: usize, cx: &mut Context<'_>) -> Flow {
        match chunk.kind {
            kind::DATA => return self.data(chunk, from, cx),
            kind::SACK => self.sack(chunk, cx),
            kind::HEARTBEAT => self.heartbeat(chunk, from, cx),
            kind::HEARTBEAT_ACK => self.heartbeat_ack(chunk, cx),
            kind::ABORT => {
                let cause = Parameters(chunk.value).next().map(|p| p.kind);
                self.end(DownReason::AbortedByPeer { cause }, cx);
                return Flow::Stop;
            }
            kind::SHUTDOWN => self.shutdown_chunk(chunk, cx),
            kind::SHUTDOWN_ACK => self.shutdown_ack(from, cx),
            kind::SHUTDOWN_COMPLETE => {
                if self.state == State::ShutdownAckSent {
                    self.end(DownReason::Shutdown, cx);
                }
                return Flow::Stop;
            }
            kind::ERROR => return self.error(chunk, cx),
            kind::COOKIE_ACK => {
                if self.state == State::CookieEchoed {
                    self.established(cx);
                }
            }
            // Only ever first in a packet, where the endpoint takes them.
            kind::INIT | kind::INIT_ACK | kind::COOKIE_ECHO => {}
            unknown => {
                let rule = Unknown::of_chunk(unknown);
                if rule.report && self.peer_tag != 0 {
                    self.report(cause::UNRECOGNIZED_CHUNK_TYPE, chunk.whole, from, cx);
                }
                if rule.stop {
                    return Flow::Stop;
                }
            }
        }
        if self.ended { Flow::Stop } else { Flow::Continue }
    }

    /// All chunks of a packet were taken.
    pub(crate) fn packet_done(&mut self, cx: &Context<'_>) {
        self.rx.packet_done(cx.now, cx.config.sack_delay);
    }

    fn data(&mut self, chunk: Chunk<'_>, from: usize, cx: &mut Context<'_>) -> Flow {
        if !self.state.takes_data() {
            return Flow::Continue;
        }
        let Some(data) = Data::parse(chunk.flags, chunk.value) else {
            self.abort(cause::PROTOCOL_VIOLATION, &[], DownReason::ProtocolViolation, cx);
            return Flow::Stop;
        };
        if data.user.is_empty() {
            let tsn = data.tsn.to_be_bytes();
            self.abort(cause::NO_USER_DATA, &tsn, DownReason::ProtocolViolation, cx); // RFC 9260 §6.2
            return Flow::Stop;
        }
        self.sack_path = from;
        match self.rx.take(data, self.id, &mut cx.out.events) {
            Taken::Fine => Flow::Continue,
            Taken::InvalidStream => {
                let [hi, lo] = data.stream.to_be_bytes();
                self.report(cause::INVALID_STREAM_IDENTIFIER, &[hi, lo, 0, 0], from, cx);
                Flow::Continue
            }
            Taken::OutOfResource => {
                self.abort(cause::OUT_OF_RESOURCE, &[], DownReason::OutOfResource, cx);
                Flow::Stop
            }
        }
    }

    fn sack(&mut self, chunk: Chunk<'_>, cx: &mut Context<'_>) {
        if !self.state.sends_data() {
            return;
        }
        let Some(acked) = self.tx.sack(chunk.value, cx.now, &mut self.paths, cx.config) else { return };
        if acked.violation {
            self.abort(cause::PROTOCOL_VIOLATION, &[], DownReason::ProtocolViolation, cx);
            return;
        }
        // A closed window that is still told is a living peer (RFC 9260 §6.1 A).
        if acked.progress || self.tx.peer_rwnd == 0 {
            self.errors = 0;
        }
        self.note_answers(cx);
    }

    /// Paths on which something was just acknowledged answer again.
    fn note_answers(&mut self, cx: &mut Context<'_>) {
        for p in self.paths.iter_mut().filter(|p| p.acked_now > 0 && !p.active) {
            p.active = true;
            cx.out.events.push(Event::PathUp { association: self.id, remote: p.path.remote });
        }
    }

    fn heartbeat(&mut self, chunk: Chunk<'_>, from: usize, cx: &mut Context<'_>) {
        if self.peer_tag == 0 {
            return;
        }
        self.control_chunk(from, cx, |o| {
            write_chunk(o, kind::HEARTBEAT_ACK, 0, |o| o.extend_from_slice(chunk.value));
        });
    }

    /// The peer returned what [`Self::send_heartbeat`] wrote (RFC 9260 §8.3).
    fn heartbeat_ack(&mut self, chunk: Chunk<'_>, cx: &mut Context<'_>) {
        let info = Parameters(chunk.value).next();
        let Some(Parameter { kind: parameter::HEARTBEAT_INFO, value, .. }) = info else { return };
        let (Some(path), Some(nonce)) = (be32(value, 0), be64(value, 4)) else { return };
        let Some(p) = self.paths.get_mut(path as usize) else { return };
        let Some(heartbeat) = p.heartbeat.filter(|h| h.nonce == nonce) else { return };
        p.heartbeat = None;
        p.errors = 0;
        self.errors = 0;
        p.measured(cx.now.since(heartbeat.sent), cx.config);
        let was_up = core::mem::replace(&mut p.active, true) && core::mem::replace(&mut p.confirmed, true);
        p.confirmed = true;
        schedule_heartbeat(p, cx.now, cx.config);
        if !was_up {
            cx.out.events.push(Event::PathUp { association: self.id, remote: p.path.remote });
        }
    }

    fn shutdown_chunk(&mut self, chunk: Chunk<'_>, cx: &mut Context<'_>) {
        if matches!(self.state, State::CookieWait | State::CookieEchoed) {
            return;
        }
        if let Some(cum) = be32(chunk.value, 0) {
            let acked = self.tx.cumulative_ack(cum, cx.now, &mut self.paths, cx.config);
            if acked.violation {
                self.abort(cause::PROTOCOL_VIOLATION, &[], DownReason::ProtocolViolation, cx);
                return;
            }
            self.note_answers(cx);
        }
        match self.state {
            State::Established | State::ShutdownPending => self.state = State::ShutdownReceived,
            // Both sides shut down at once (RFC 9260 §9.2), or our SHUTDOWN ACK was lost.
            State::ShutdownSent | State::ShutdownAckSent => self.send_shutdown_ack(cx),
            _ => {}
        }
    }

    fn shutdown_ack(&mut self, from: usize, cx: &mut Context<'_>) {
        if !matches!(self.state, State::ShutdownSent | State::ShutdownAckSent) {
            return;
        }
        self.open(from, cx);
        write_chunk(cx.out.packets.buffer(), kind::SHUTDOWN_COMPLETE, 0, |_| {});
        self.close(from, cx);
        self.end(DownReason::Shutdown, cx);
    }

    fn error(&mut self, chunk: Chunk<'_>, cx: &mut Context<'_>) -> Flow {
        cx.counters.errors_reported += 1;
        let stale = Parameters(chunk.value).any(|c| c.kind == cause::STALE_COOKIE);
        if stale && self.state == State::CookieEchoed {
            // RFC 9260 §5.2.6: the peer took too long; a fresh INIT brings a fresh cookie.
            self.state = State::CookieWait;
            self.t1_expiries += 1;
            if self.t1_expiries > cx.config.init_max_retrans {
                self.end(DownReason::NoAnswer, cx);
                return Flow::Stop;
            }
            self.handshake.clear();
            self.start_handshake(cx);
        }
        Flow::Continue
    }

    /// Reports one error cause in an ERROR chunk (RFC 9260 §3.3.10).
    fn report(&mut self, code: u16, info: &[u8], to: usize, cx: &mut Context<'_>) {
        self.control_chunk(to, cx, |o| {
            write_chunk(o, kind::ERROR, 0, |o| write_parameter(o, code, |o| o.extend_from_slice(info)));
        });
    }

    /// Adds a chunk that leaves at the next flush on the given path, in front of SACK and DATA.
    pub(crate) fn control_chunk(
        &mut self,
        path: usize,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.control.len();
        write(&mut self.control);
        let full = self.paths.get(path).is_some_and(|p| self.control.len() > p.packet_max - HEADER_LEN);
        if start > 0 && (full || self.control_path != path) {
            self.open(self.control_path, cx);
            cx.out.packets.buffer().extend_from_slice(&self.control[..start]);
            self.close(self.control_path, cx);
            self.control.drain(..start);
        }
        self.control_path = path;
    }

    /// The path for new DATA: the primary if it answers, else one that does (RFC 9260 §6.4).
    fn data_path(&self) -> usize {
        let usable = |p: &PathState| p.active && p.confirmed;
        if self.paths.get(self.primary).is_some_and(usable) {
            return self.primary;
        }
        let least_errors = || {
            let confirmed = self.paths.iter().enumerate().filter(|(_, p)| p.confirmed);
            confirmed.min_by_key(|(_, p)| p.errors).map(|(i, _)| i)
        };
        self.paths.iter().position(usable).or_else(least_errors).unwrap_or(self.primary)
    }

    /// The path for DATA that was lost on `lost_on`: another one that answers, if there is one (RFC 9260 §6.4.1).
    fn retransmission_path(&self, lost_on: usize) -> usize {
        let failing = self.paths.get(lost_on).is_some_and(|p| p.errors > 0);
        let other = || {
            let usable = |(i, p): (usize, &PathState)| i != lost_on && p.active && p.confirmed;
            self.paths.iter().enumerate().position(usable)
        };
        failing.then(other).flatten().unwrap_or_else(|| self.data_path())
    }

    fn open(&self, _path: usize, cx: &mut Context<'_>) {
        cx.out.packets.open(self.local_port, self.peer_port, self.peer_tag);
    }

    fn close(&self, path: usize, cx: &mut Context<'_>) {
        if let Some(p) = self.paths.get(path).or(self.paths.first()) {
            cx.out.packets.close(p.path);
        }
    }

    /// Sends all that may leave now: control chunks, SACK, lost DATA, new DATA, bundled.
    pub(crate) fn transmit(&mut self, cx: &mut Context<'_>) {
        if self.handshake_due {
            return self.transmit_handshake(cx);
        }
        self.progress_shutdown(cx);
        let mut burst = Burst { on: None, packets: 0 };
        if !self.control.is_empty() {
            burst.on(self, self.control_path, 0, cx);
            cx.out.packets.buffer().extend_from_slice(&self.control);
            self.control.clear();
        }
        if self.rx.sack_due {
            let path = self.sack_path.min(self.paths.len().saturating_sub(1));
            burst.on(self, path, SACK_ROOM, cx);
            let room = self.room(path, cx);
            self.rx.write_sack(cx.out.packets.buffer(), room);
        }
        if self.state.sends_data() {
            self.transmit_data(&mut burst, cx);
        }
        burst.finish(self, cx);
    }

    fn transmit_data(&mut self, burst: &mut Burst, cx: &mut Context<'_>) {
        burst.packets = 0;
        let mut urgent = core::mem::take(&mut self.tx.urgent);
        while let Some((len, lost_on)) = self.tx.next_lost() {
            let path = self.retransmission_path(lost_on);
            let window_full = self.paths.get(path).is_none_or(|p| p.flight >= p.cwnd);
            if window_full && !urgent || !burst.on(self, path, len, cx) {
                return;
            }
            urgent &= burst.packets <= 1 && self.room(path, cx) >= 2 * len;
            match self.tx.retransmit(cx.now, &mut self.paths, path) {
                Some(chunk) => cx.out.packets.buffer().extend_from_slice(chunk),
                None => return,
            }
            cx.counters.data_chunks_retransmitted += 1;
        }
        let path = self.data_path();
        while let Some(len) = self.tx.next_pending_len() {
            let window_full = self.paths.get(path).is_none_or(|p| p.flight >= p.cwnd);
            if window_full || !burst.on(self, path, len, cx) {
                return;
            }
            match self.tx.transmit(cx.now, &mut self.paths, path) {
                Some(chunk) => cx.out.packets.buffer().extend_from_slice(chunk),
                None => return,
            }
        }
    }

    fn room(&self, path: usize, cx: &Context<'_>) -> usize {
        self.paths.get(path).map_or(0, |p| p.packet_max.saturating_sub(cx.out.packets.open_len()))
    }

    fn transmit_handshake(&mut self, cx: &mut Context<'_>) {
        self.handshake_due = false;
        if self.handshake.is_empty() {
            crate::handshake::write_init(self, cx.config);
        }
        // INIT goes out with a tag of zero; peer_tag is zero until INIT ACK (RFC 9260 §8.5.1 A).
        let tag = if self.state == State::CookieWait { 0 } else { self.peer_tag };
        cx.out.packets.open(self.local_port, self.peer_port, tag);
        cx.out.packets.buffer().extend_from_slice(&self.handshake);
        self.close(self.primary, cx);
    }

    /// Takes the next step of a shutdown once nothing is under way any more (RFC 9260 §9.2).
    fn progress_shutdown(&mut self, cx: &mut Context<'_>) {
        match self.state {
            State::ShutdownPending if self.tx.is_empty() => {
                self.state = State::ShutdownSent;
                self.send_shutdown(cx);
            }
            State::ShutdownReceived if self.tx.is_empty() => self.send_shutdown_ack(cx),
            State::ShutdownSent if self.rx.sack_due => self.send_shutdown(cx),
            _ => {}
        }
    }

    fn send_shutdown(&mut self, cx: &mut Context<'_>) {
        let cum = self.rx.cumulative_tsn().to_be_bytes();
        self.control_chunk(self.data_path(), cx, |o| {
            write_chunk(o, kind::SHUTDOWN, 0, |o| o.extend_from_slice(&cum));
        });
        self.start_t2(cx);
    }

    fn send_shutdown_ack(&mut self, cx: &mut Context<'_>) {
        self.state = State::ShutdownAckSent;
        self.control_chunk(self.data_path(), cx, |o| write_chunk(o, kind::SHUTDOWN_ACK, 0, |_| {}));
        self.start_t2(cx);
    }

    fn start_t2(&mut self, cx: &Context<'_>) {
        let rto = self.paths.get(self.data_path()).map_or(cx.config.rto_initial, |p| p.rto);
        self.t2 = Some(cx.now + rto);
    }

    /// The earliest of all timers.
    pub(crate) fn deadline(&self) -> Instant {
        let own = [self.t1, self.t2, self.t5, self.rx.sack_by];
        let own = own.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE);
        if !self.state.sends_data() {
            return own;
        }
        self.paths.iter().map(PathState::deadline).fold(own, Instant::min)
    }

    /// Handles every timer that ran out.
    pub(crate) fn tick(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let due = |t: Option<Instant>| t.is_some_and(|t| t <= now);
        if due(self.t5) {
            return self.abort(cause::USER_INITIATED_ABORT, &[], DownReason::Lost, cx);
        }
        if due(self.rx.sack_by) {
            self.rx.sack_due = true;
        }
        if due(self.t1) {
            self.t1_expired(cx);
        }
        if due(self.t2) {
            self.t2_expired(cx);
        }
        if self.state.sends_data() {
            for i in 0..self.paths.len() {
                self.path_tick(i, cx);
            }
        }
    }

    fn t1_expired(&mut self, cx: &mut Context<'_>) {
        self.t1_expiries += 1;
        if self.t1_expiries > cx.config.init_max_retrans {
            return self.end(DownReason::NoAnswer, cx);
        }
        if self.state == State::CookieWait && !self.paths.is_empty() {
            self.primary = (self.primary + 1) % self.paths.len(); // another address may answer
        }
        self.t1_rto = (self.t1_rto * 2).min(cx.config.rto_max);
        self.t1 = Some(cx.now + self.t1_rto);
        self.handshake_due = true;
    }

    fn t2_expired(&mut self, cx: &mut Context<'_>) {
        let path = self.data_path();
        self.unanswered(path, cx);
        if self.ended {
            return;
        }
        match self.state {
            State::ShutdownSent => self.send_shutdown(cx),
            State::ShutdownAckSent => self.send_shutdown_ack(cx),
            _ => self.t2 = None,
        }
    }

    /// T3-rtx and heartbeat of one path.
    fn path_tick(&mut self, i: usize, cx: &mut Context<'_>) {
        let Some(p) = self.paths.get_mut(i) else { return };
        if p.t3.is_some_and(|t| t <= cx.now) {
            p.t3 = None;
            self.tx.path_timed_out(i, &mut self.paths);
            self.unanswered(i, cx);
        }
        let Some(p) = self.paths.get_mut(i) else { return };
        match p.heartbeat {
            Some(h) if h.timeout <= cx.now => {
                p.heartbeat = None;
                self.unanswered(i, cx);
                let last_hope = !self.paths.iter().any(|p| p.active && p.confirmed);
                if let Some(p) = self.paths.get_mut(i) {
                    // Deviation: RFC 9260 §8.3 waits another HB.interval; asking again at once finds a dead peer sooner.
                    let rest = if p.active || last_hope { Duration::ZERO } else { cx.config.rto_max };
                    p.heartbeat_due = cx.now + rest;
                }
            }
            Some(_) => {}
            None if p.heartbeat_due <= cx.now => {
                if p.confirmed
                    && p.active
                    && p.errors == 0
                    && cx.now.since(p.used) < cx.config.heartbeat_interval
                {
                    schedule_heartbeat(p, p.used, cx.config); // not idle: DATA watches the path
                } else {
                    self.send_heartbeat(i, cx);
                }
            }
            None => {}
        }
    }

    /// The information is the path's index and a nonce that only who reads the address can return (RFC 9260 §5.4).
    fn send_heartbeat(&mut self, i: usize, cx: &mut Context<'_>) {
        let nonce = cx.prf.nonce();
        let Some(p) = self.paths.get_mut(i) else { return };
        p.heartbeat = Some(Heartbeat { nonce, sent: cx.now, timeout: cx.now + p.rto });
        self.control_chunk(i, cx, |o| {
            write_chunk(o, kind::HEARTBEAT, 0, |o| {
                write_parameter(o, parameter::HEARTBEAT_INFO, |o| {
                    o.extend_from_slice(&(i as u32).to_be_bytes());
                    o.extend_from_slice(&nonce.to_be_bytes());
                });
            });
        });
    }

    /// Nothing came back in time on a path (RFC 9260 §8.1, §8.2).
    fn unanswered(&mut self, i: usize, cx: &mut Context<'_>) {
        let Some(p) = self.paths.get_mut(i) else { return };
        p.back_off(cx.config);
        p.errors = p.errors.saturating_add(1);
        if p.active && p.errors > cx.config.path_max_retrans {
            p.active = false;
            cx.out.events.push(Event::PathDown { association: self.id, remote: p.path.remote });
        }
        // An address that was never confirmed says nothing of the peer (RFC 9260 §5.4).
        if p.confirmed {
            self.errors = self.errors.saturating_add(1);
        }
        if self.errors > cx.config.association_max_retrans {
            self.end(DownReason::Lost, cx);
        }
    }

    /// Answers a packet of an association that is closing: SHUTDOWN ACK again (RFC 9260 §5.2.4, §9.2).
    pub(crate) fn repeat_shutdown_ack(&mut self, with_error: bool, cx: &mut Context<'_>) {
        self.send_shutdown_ack(cx);
        if with_error {
            self.report(cause::COOKIE_RECEIVED_WHILE_SHUTTING_DOWN, &[], self.data_path(), cx);
        }
    }

    /// Answers a second COOKIE ECHO, or the first.
    pub(crate) fn send_cookie_ack(&mut self, path: usize, cx: &mut Context<'_>) {
        self.control_chunk(path, cx, |o| write_chunk(o, kind::COOKIE_ACK, 0, |_| {}));
    }

    /// The tag of an ABORT or SHUTDOWN COMPLETE is right if it is ours, or the peer's with the T bit (RFC 9260 §8.5.1).
    pub(crate) fn accepts_tag(&self, tag: u32, first: &Chunk<'_>) -> bool {
        match first.kind {
            kind::ABORT | kind::SHUTDOWN_COMPLETE if first.flags & T_BIT != 0 => {
                self.peer_tag != 0 && tag == self.peer_tag
            }
            _ => tag == self.local_tag,
        }
    }
}

/// The packet that a flush is filling.
struct Burst {
    on: Option<usize>,
    packets: u16,
}

impl Burst {
    /// Has a packet open on `path` with `len` octets of room; false if the burst is long enough.
    fn on(&mut self, a: &Association, path: usize, len: usize, cx: &mut Context<'_>) -> bool {
        if self.on == Some(path) && a.room(path, cx) >= len {
            self.packets = self.packets.max(1);
            return true;
        }
        if self.packets >= cx.config.burst_packets_max {
            return false;
        }
        self.finish(a, cx);
        a.open(path, cx);
        self.on = Some(path);
        self.packets += 1;
        true
    }

    fn finish(&mut self, a: &Association, cx: &mut Context<'_>) {
        if let Some(path) = self.on.take() {
            a.close(path, cx);
        }
    }
}

/// When an idle path is next asked: an RTO and HB.interval from now, or at once if its address is not confirmed.
fn schedule_heartbeat(p: &mut PathState, from: Instant, config: &Config) {
    p.heartbeat_due = match (p.confirmed, config.heartbeat_interval.is_zero()) {
        (false, _) => from,
        (true, true) => Instant::FAR_FUTURE,
        (true, false) => from + p.rto + config.heartbeat_interval,
    };
}
