//! The timers of an association: T1, T2, T3, T5, delayed SACK, heartbeats (RFC 9260 §6.3, §8).

use core::time::Duration;

use whimbrel_ids::Instant;

use super::{Association, AssociationContext, State};
use crate::config::Config;
use crate::outbox::{DownReason, Event};
use crate::packet::{cause, kind, parameter, write_chunk, write_parameter};
use crate::path::{Heartbeat, PathState};

impl Association {
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
    pub(crate) fn tick(&mut self, cx: &mut AssociationContext<'_>) {
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

    fn t1_expired(&mut self, cx: &mut AssociationContext<'_>) {
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

    fn t2_expired(&mut self, cx: &mut AssociationContext<'_>) {
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
    fn path_tick(&mut self, i: usize, cx: &mut AssociationContext<'_>) {
        let Some(p) = self.paths.get_mut(i) else { return };
        if p.t3.is_some_and(|t| t <= cx.now) {
            p.t3 = None;
            self.tx.path_timed_out(i, &mut self.paths);
            self.unanswered(i, cx);
        }
        let Some(p) = self.paths.get_mut(i) else { return };
        match p.heartbeat {
            Some(h) if h.deadline <= cx.now => {
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
                    && cx.now.since(p.last_data_sent) < cx.config.heartbeat_interval
                {
                    schedule_heartbeat(p, p.last_data_sent, cx.config); // not idle: DATA watches the path
                } else {
                    self.send_heartbeat(i, cx);
                }
            }
            None => {}
        }
    }

    /// Asks the peer for a sign of life on every path that it has confirmed, whether data is on its way or not (RFC 9260 §8.3: "upon request").
    pub(crate) fn probe(&mut self, cx: &mut AssociationContext<'_>) {
        for i in 0..self.paths.len() {
            match self.paths.get(i).filter(|p| p.confirmed).map(|p| p.heartbeat.as_ref().map(|h| h.nonce)) {
                None => {}
                Some(None) => self.send_heartbeat(i, cx),
                // The one that is out may be lost; its timer goes on, so that a probe costs the association no error more.
                Some(Some(nonce)) => self.heartbeat_chunk(i, nonce, cx),
            }
        }
    }

    /// The information is the path's index and a nonce that only the receiver at that address can return (RFC 9260 §5.4).
    fn send_heartbeat(&mut self, i: usize, cx: &mut AssociationContext<'_>) {
        let nonce = cx.prf.nonce();
        let Some(p) = self.paths.get_mut(i) else { return };
        p.heartbeat = Some(Heartbeat { nonce, sent: cx.now, deadline: cx.now + p.rto });
        self.heartbeat_chunk(i, nonce, cx);
    }

    fn heartbeat_chunk(&mut self, i: usize, nonce: u64, cx: &mut AssociationContext<'_>) {
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
    fn unanswered(&mut self, i: usize, cx: &mut AssociationContext<'_>) {
        let Some(p) = self.paths.get_mut(i) else { return };
        p.back_off(cx.config);
        p.errors = p.errors.saturating_add(1);
        if p.active && p.errors > cx.config.path_max_retrans {
            p.active = false;
            cx.out.events.push(Event::PathDown { association: self.id, remote: p.path.remote });
        }
        // An address that was never confirmed is no evidence about the peer (RFC 9260 §5.4).
        if p.confirmed {
            self.errors = self.errors.saturating_add(1);
        }
        // Losses on several paths at once are no more than each path may have (RFC 9260 §8.1).
        let confirmed = self.paths.iter().filter(|p| p.confirmed).count();
        let of_all_paths =
            cx.config.path_max_retrans.saturating_mul(u32::try_from(confirmed).unwrap_or(u32::MAX));
        let several = if confirmed > 1 { of_all_paths } else { 0 };
        if self.errors > cx.config.association_max_retrans.max(several) {
            self.end(DownReason::Lost, cx);
        }
    }
}

/// When an idle path is next asked: an RTO and HB.interval from now, or at once if its address is not confirmed.
pub(super) fn schedule_heartbeat(p: &mut PathState, from: Instant, config: &Config) {
    p.heartbeat_due = match (p.confirmed, config.heartbeat_interval.is_zero()) {
        (false, _) => from,
        (true, true) => Instant::FAR_FUTURE,
        (true, false) => from + p.rto + config.heartbeat_interval,
    };
}
