//! One association: its state, and what changes it from outside (RFC 9260 §4, §9).

mod chunks;
mod export;
mod flush;
mod timers;

use core::time::Duration;
use std::net::IpAddr;

use whimbrel_ids::Instant;

use crate::config::Config;
use crate::cookie::Prf;
use crate::endpoint::{Counters, UserNotes};
use crate::outbox::{AssociationId, DownReason, Event, Outbox, Path, RequestRefusal};
use crate::packet::{Chunk, T_BIT, cause, kind, write_chunk, write_parameter};
use crate::path::PathState;
use crate::receive::DataReceiver;
use crate::send::DataSender;

/// How many RTO.Max the T5-shutdown-guard lasts (RFC 9260 §9.2).
const SHUTDOWN_GUARD_RTOS: u32 = 5;

/// States of RFC 9260 §4. CLOSED has no association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// INIT has been sent.
    CookieWait,
    /// COOKIE ECHO sent.
    CookieEchoed,
    /// The association is open.
    Established,
    /// We want to shut down and still have data under way.
    ShutdownPending,
    /// SHUTDOWN has been sent.
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
pub(crate) struct AssociationContext<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a Config,
    pub(crate) prf: &'a mut Prf,
    pub(crate) counters: &'a mut Counters,
    pub(crate) out: &'a mut Outbox,
}

/// Whether the rest of a packet is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketProgress {
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
    /// Zero until the peer has sent it.
    pub(crate) peer_tag: u32,
    pub(crate) local_initial_tsn: u32,
    pub(crate) inbound_streams: u16,
    pub(crate) outbound_streams: u16,
    /// The peer's adaptation code point.
    pub(crate) adaptation: Option<u32>,
    pub(crate) paths: Vec<PathState>,
    pub(crate) primary: usize,
    pub(crate) tx: DataSender,
    pub(crate) rx: DataReceiver,
    /// Packets of the peer with chunks for this association.
    pub(crate) heard: u64,
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
    /// A path was confirmed: the endpoint enters its address.
    pub(crate) has_confirmed: bool,
    /// What its user keeps with it.
    pub(crate) notes: UserNotes,
    /// All that was exported of it is void.
    pub(crate) export_void: bool,
}

/// What identifies a new association.
pub(crate) struct AssociationIdentity {
    pub(crate) id: AssociationId,
    pub(crate) local_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) local_tag: u32,
    pub(crate) local_tsn: u32,
}

impl Association {
    /// An association in COOKIE-WAIT that knows nothing of its peer yet.
    pub(crate) fn new(identity: AssociationIdentity, config: &Config) -> Self {
        Self {
            id: identity.id,
            state: State::CookieWait,
            ended: false,
            local_port: identity.local_port,
            peer_port: identity.peer_port,
            local_tag: identity.local_tag,
            peer_tag: 0,
            local_initial_tsn: identity.local_tsn,
            inbound_streams: 0,
            outbound_streams: 0,
            adaptation: None,
            paths: Vec::new(),
            primary: 0,
            tx: DataSender::new(identity.local_tsn),
            rx: DataReceiver::new(0, 0, 0, config),
            heard: 0,
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
            has_confirmed: false,
            notes: UserNotes::default(),
            export_void: false,
        }
    }

    /// The index of the path to `remote`.
    pub(crate) fn path_to(&self, remote: IpAddr) -> Option<usize> {
        self.paths.iter().position(|p| p.path.remote == remote)
    }

    /// True if this address is known to be the peer's: it has answered there, or we have chosen it. Until then the peer has merely listed it,
    /// and another peer that speaks from there is not this one (RFC 9260 §5.4).
    pub(crate) fn owns(&self, remote: IpAddr) -> bool {
        let opening = matches!(self.state, State::CookieWait | State::CookieEchoed);
        self.path_to(remote).and_then(|i| self.paths.get(i)).is_some_and(|p| p.confirmed || opening)
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
    pub(crate) fn start_handshake(&mut self, cx: &AssociationContext<'_>) {
        self.handshake_due = true;
        self.t1_rto = cx.config.rto_initial;
        self.t1 = Some(cx.now + self.t1_rto);
    }

    /// Forgets all data, as a peer that restarted does, and takes new tags and numbers.
    pub(crate) fn reset(
        &mut self,
        local: (u32, u32),
        peer: (u32, u32),
        peer_rwnd: u32,
        cx: &AssociationContext<'_>,
    ) {
        (self.local_tag, self.local_initial_tsn) = local;
        self.peer_tag = peer.0;
        self.tx = DataSender::new(self.local_initial_tsn);
        self.tx.set_streams(self.outbound_streams);
        self.tx.peer_rwnd = peer_rwnd as usize;
        self.rx = DataReceiver::new(peer.1, self.inbound_streams, self.rx.messages(), cx.config);
        self.export_void = true;
        self.control.clear();
        (self.t2, self.t5) = (None, None);
        for p in &mut self.paths {
            *p = PathState::new(p.path, p.confirmed, cx.now, cx.config);
        }
    }

    /// The association is established: stops T1 and makes the event.
    pub(crate) fn established(&mut self, cx: &mut AssociationContext<'_>) {
        self.state = State::Established;
        self.t1 = None;
        self.handshake_due = false;
        self.handshake = Vec::new();
        self.errors = 0;
        if let Some(p) = self.paths.get_mut(self.primary) {
            p.confirmed = true;
        }
        for p in &mut self.paths {
            timers::schedule_heartbeat(p, cx.now, cx.config);
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
            adaptation: self.adaptation,
        });
    }

    /// The association is over; the endpoint frees its slot.
    pub(crate) fn end(&mut self, reason: DownReason, cx: &mut AssociationContext<'_>) {
        if !self.ended {
            self.ended = true;
            if cx.config.return_unacknowledged {
                self.tx.unacknowledged(self.id, &mut cx.out.events);
            }
            cx.out.events.push(Event::Down { association: self.id, reason });
        }
    }

    /// Sends ABORT with one error cause, and ends.
    pub(crate) fn abort(
        &mut self,
        code: u16,
        info: &[u8],
        reason: DownReason,
        cx: &mut AssociationContext<'_>,
    ) {
        if self.peer_tag != 0 {
            self.open(cx);
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
    ) -> Result<(), RequestRefusal> {
        if self.state != State::Established {
            return Err(RequestRefusal::NotEstablished);
        }
        let packet_max =
            self.paths.iter().map(|p| p.max_packet_octets).min().ok_or(RequestRefusal::NotEstablished)?;
        self.tx.queue(message, octets, packet_max, config)
    }

    /// Begins a graceful shutdown (RFC 9260 §9.2).
    pub(crate) fn shutdown(&mut self, cx: &mut AssociationContext<'_>) {
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

    /// Shuts down gracefully, and aborts at `by` if the peer has not completed it by then (RFC 9260 §9.1, §9.2).
    pub(crate) fn stop(&mut self, by: Instant, cx: &mut AssociationContext<'_>) {
        self.shutdown(cx);
        self.t5 = Some(by);
        if by <= cx.now && !self.ended {
            self.abort(cause::USER_INITIATED_ABORT, &[], DownReason::Aborted, cx);
        }
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
