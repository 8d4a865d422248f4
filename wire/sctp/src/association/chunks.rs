//! The chunks that an association takes (RFC 9260 §6.2, §8.3, §9, §3.2).

use super::timers::schedule_heartbeat;
use super::{Association, AssociationContext, PacketProgress, State};
use crate::outbox::{DownReason, Event};
use crate::packet::{
    Chunk, Parameter, Parameters, UnknownTypeAction, be32, be64, cause, kind, parameter, write_chunk,
    write_parameter,
};
use crate::receive::{Data, DataOutcome};

impl Association {
    /// Takes one chunk of a packet whose tag was right; INIT, INIT ACK and COOKIE ECHO are the endpoint's.
    pub(crate) fn chunk(
        &mut self,
        chunk: Chunk<'_>,
        from: usize,
        cx: &mut AssociationContext<'_>,
    ) -> PacketProgress {
        match chunk.kind {
            kind::DATA => return self.data(chunk, from, cx),
            kind::SACK => self.sack(chunk, cx),
            kind::HEARTBEAT => self.heartbeat(chunk, from, cx),
            kind::HEARTBEAT_ACK => self.heartbeat_ack(chunk, cx),
            kind::ABORT => {
                let cause = Parameters(chunk.value).next().map(|p| p.kind);
                self.end(DownReason::AbortedByPeer { cause }, cx);
                return PacketProgress::Stop;
            }
            kind::SHUTDOWN => self.shutdown_chunk(chunk, cx),
            kind::SHUTDOWN_ACK => self.shutdown_ack(from, cx),
            kind::SHUTDOWN_COMPLETE => {
                if self.state == State::ShutdownAckSent {
                    self.end(DownReason::Shutdown, cx);
                }
                return PacketProgress::Stop;
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
                let rule = UnknownTypeAction::of_chunk(unknown);
                if rule.report && self.peer_tag != 0 {
                    self.report(cause::UNRECOGNIZED_CHUNK_TYPE, chunk.whole, from, cx);
                }
                if rule.stop {
                    return PacketProgress::Stop;
                }
            }
        }
        if self.ended { PacketProgress::Stop } else { PacketProgress::Continue }
    }

    /// All chunks of a packet were taken.
    pub(crate) fn packet_done(&mut self, cx: &AssociationContext<'_>) {
        self.rx.packet_done(cx.now, cx.config.sack_delay);
    }

    fn data(&mut self, chunk: Chunk<'_>, from: usize, cx: &mut AssociationContext<'_>) -> PacketProgress {
        if !self.state.takes_data() {
            return PacketProgress::Continue;
        }
        let Some(data) = Data::parse(chunk.flags, chunk.value) else {
            self.abort(cause::PROTOCOL_VIOLATION, &[], DownReason::ProtocolViolation, cx);
            return PacketProgress::Stop;
        };
        if data.user.is_empty() {
            let tsn = data.tsn.to_be_bytes();
            self.abort(cause::NO_USER_DATA, &tsn, DownReason::ProtocolViolation, cx); // RFC 9260 §6.2
            return PacketProgress::Stop;
        }
        self.sack_path = from;
        match self.rx.take(data, self.id, &mut cx.out.events) {
            DataOutcome::Fine => PacketProgress::Continue,
            DataOutcome::InvalidStream => {
                let [hi, lo] = data.stream.to_be_bytes();
                self.report(cause::INVALID_STREAM_IDENTIFIER, &[hi, lo, 0, 0], from, cx);
                PacketProgress::Continue
            }
            DataOutcome::OutOfResource => {
                self.abort(cause::OUT_OF_RESOURCE, &[], DownReason::OutOfResource, cx);
                PacketProgress::Stop
            }
        }
    }

    fn sack(&mut self, chunk: Chunk<'_>, cx: &mut AssociationContext<'_>) {
        if !self.state.sends_data() {
            return;
        }
        let Some(acked) = self.tx.sack(chunk.value, cx.now, &mut self.paths, cx.config) else { return };
        if acked.violation {
            self.abort(cause::PROTOCOL_VIOLATION, &[], DownReason::ProtocolViolation, cx);
            return;
        }
        // A peer that still advertises a closed window is alive (RFC 9260 §6.1 A).
        if acked.progress || self.tx.peer_rwnd == 0 {
            self.errors = 0;
        }
        self.note_answers(cx);
    }

    /// Paths on which something was just acknowledged answer again.
    fn note_answers(&mut self, cx: &mut AssociationContext<'_>) {
        for p in self.paths.iter_mut().filter(|p| p.acked_now > 0 && !p.active) {
            p.active = true;
            cx.out.events.push(Event::PathUp { association: self.id, remote: p.path.remote });
        }
    }

    fn heartbeat(&mut self, chunk: Chunk<'_>, from: usize, cx: &mut AssociationContext<'_>) {
        if self.peer_tag == 0 {
            return;
        }
        self.control_chunk(from, cx, |o| {
            write_chunk(o, kind::HEARTBEAT_ACK, 0, |o| o.extend_from_slice(chunk.value));
        });
    }

    /// The peer returned what [`Self::send_heartbeat`] wrote (RFC 9260 §8.3).
    fn heartbeat_ack(&mut self, chunk: Chunk<'_>, cx: &mut AssociationContext<'_>) {
        let info = Parameters(chunk.value).next();
        let Some(Parameter { kind: parameter::HEARTBEAT_INFO, value, .. }) = info else { return };
        let (Some(path), Some(nonce)) = (be32(value, 0), be64(value, 4)) else { return };
        let Some(p) = self.paths.get_mut(path as usize) else { return };
        let Some(heartbeat) = p.heartbeat.filter(|h| h.nonce == nonce) else { return };
        p.heartbeat = None;
        p.errors = 0;
        self.errors = 0;
        p.update_rto(cx.now.since(heartbeat.sent), cx.config);
        let was_up = core::mem::replace(&mut p.active, true) && p.confirmed;
        self.has_confirmed |= !core::mem::replace(&mut p.confirmed, true);
        schedule_heartbeat(p, cx.now, cx.config);
        if !was_up {
            cx.out.events.push(Event::PathUp { association: self.id, remote: p.path.remote });
        }
    }

    fn shutdown_chunk(&mut self, chunk: Chunk<'_>, cx: &mut AssociationContext<'_>) {
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

    fn shutdown_ack(&mut self, from: usize, cx: &mut AssociationContext<'_>) {
        if !matches!(self.state, State::ShutdownSent | State::ShutdownAckSent) {
            return;
        }
        self.open(cx);
        write_chunk(cx.out.packets.buffer(), kind::SHUTDOWN_COMPLETE, 0, |_| {});
        self.close(from, cx);
        self.end(DownReason::Shutdown, cx);
    }

    fn error(&mut self, chunk: Chunk<'_>, cx: &mut AssociationContext<'_>) -> PacketProgress {
        cx.counters.errors_reported += 1;
        let stale = Parameters(chunk.value).any(|c| c.kind == cause::STALE_COOKIE);
        if stale && self.state == State::CookieEchoed {
            // RFC 9260 §5.2.6: the peer took too long; a fresh INIT brings a fresh cookie.
            self.state = State::CookieWait;
            self.t1_expiries += 1;
            if self.t1_expiries > cx.config.init_max_retrans {
                self.end(DownReason::NoAnswer, cx);
                return PacketProgress::Stop;
            }
            self.handshake.clear();
            self.start_handshake(cx);
        }
        PacketProgress::Continue
    }

    /// Reports one error cause in an ERROR chunk (RFC 9260 §3.3.10).
    pub(super) fn report(&mut self, code: u16, info: &[u8], to: usize, cx: &mut AssociationContext<'_>) {
        self.control_chunk(to, cx, |o| {
            write_chunk(o, kind::ERROR, 0, |o| write_parameter(o, code, |o| o.extend_from_slice(info)));
        });
    }
}
