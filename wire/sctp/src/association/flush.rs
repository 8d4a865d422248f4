//! What leaves an association at a flush, and on which path (RFC 9260 §6.1, §6.4, §6.10, §9.2).

use super::{Association, AssociationContext, State};
use crate::packet::{HEADER_LEN, cause, kind, write_chunk};
use crate::path::PathState;

/// Octets of a SACK without gaps, with room for some; a packet with less room left is closed first.
const SACK_ROOM: usize = 64;

impl Association {
    /// Adds a chunk that leaves at the next flush on the given path, in front of SACK and DATA.
    pub(crate) fn control_chunk(
        &mut self,
        path: usize,
        cx: &mut AssociationContext<'_>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.control.len();
        write(&mut self.control);
        let full =
            self.paths.get(path).is_some_and(|p| self.control.len() > p.max_packet_octets - HEADER_LEN);
        if start > 0 && (full || self.control_path != path) {
            self.open(cx);
            cx.out.packets.buffer().extend_from_slice(&self.control[..start]);
            self.close(self.control_path, cx);
            self.control.drain(..start);
        }
        self.control_path = path;
    }

    /// The path for new DATA: the primary if it answers, else one that does (RFC 9260 §6.4).
    pub(super) fn data_path(&self) -> usize {
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

    pub(super) fn open(&self, cx: &mut AssociationContext<'_>) {
        cx.out.packets.open(self.local_port, self.peer_port, self.peer_tag);
    }

    pub(super) fn close(&self, path: usize, cx: &mut AssociationContext<'_>) {
        if let Some(p) = self.paths.get(path).or(self.paths.first()) {
            cx.out.packets.close(p.path);
        }
    }

    /// Sends all that may leave now: control chunks, SACK, lost DATA, new DATA, bundled.
    pub(crate) fn transmit(&mut self, cx: &mut AssociationContext<'_>) {
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

    fn transmit_data(&mut self, burst: &mut Burst, cx: &mut AssociationContext<'_>) {
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

    fn room(&self, path: usize, cx: &AssociationContext<'_>) -> usize {
        self.paths.get(path).map_or(0, |p| p.max_packet_octets.saturating_sub(cx.out.packets.open_len()))
    }

    fn transmit_handshake(&mut self, cx: &mut AssociationContext<'_>) {
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
    fn progress_shutdown(&mut self, cx: &mut AssociationContext<'_>) {
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

    pub(super) fn send_shutdown(&mut self, cx: &mut AssociationContext<'_>) {
        let cum = self.rx.cumulative_tsn().to_be_bytes();
        self.control_chunk(self.data_path(), cx, |o| {
            write_chunk(o, kind::SHUTDOWN, 0, |o| o.extend_from_slice(&cum));
        });
        self.start_t2(cx);
    }

    pub(super) fn send_shutdown_ack(&mut self, cx: &mut AssociationContext<'_>) {
        self.state = State::ShutdownAckSent;
        self.control_chunk(self.data_path(), cx, |o| write_chunk(o, kind::SHUTDOWN_ACK, 0, |_| {}));
        self.start_t2(cx);
    }

    fn start_t2(&mut self, cx: &AssociationContext<'_>) {
        let rto = self.paths.get(self.data_path()).map_or(cx.config.rto_initial, |p| p.rto);
        self.t2 = Some(cx.now + rto);
    }

    /// Answers a packet of an association that is closing: SHUTDOWN ACK again (RFC 9260 §5.2.4, §9.2).
    pub(crate) fn repeat_shutdown_ack(&mut self, with_error: bool, cx: &mut AssociationContext<'_>) {
        self.send_shutdown_ack(cx);
        if with_error {
            self.report(cause::COOKIE_RECEIVED_WHILE_SHUTTING_DOWN, &[], self.data_path(), cx);
        }
    }

    /// Answers a second COOKIE ECHO, or the first.
    pub(crate) fn send_cookie_ack(&mut self, path: usize, cx: &mut AssociationContext<'_>) {
        self.control_chunk(path, cx, |o| write_chunk(o, kind::COOKIE_ACK, 0, |_| {}));
    }
}

/// The packet that a flush is filling.
struct Burst {
    on: Option<usize>,
    packets: u16,
}

impl Burst {
    /// Has a packet open on `path` with `len` octets of room; false if the burst is long enough.
    fn on(&mut self, a: &Association, path: usize, len: usize, cx: &mut AssociationContext<'_>) -> bool {
        if self.on == Some(path) && a.room(path, cx) >= len {
            self.packets = self.packets.max(1);
            return true;
        }
        if self.packets >= cx.config.burst_packets_max {
            return false;
        }
        self.finish(a, cx);
        a.open(cx);
        self.on = Some(path);
        self.packets += 1;
        true
    }

    fn finish(&mut self, a: &Association, cx: &mut AssociationContext<'_>) {
        if let Some(path) = self.on.take() {
            a.close(path, cx);
        }
    }
}
