//! What the pipeline's stages share besides the session: counters, buffers, outputs, reports.

use std::collections::VecDeque;

use whimbrel_ids::Instant;

use super::Destination;
use super::advertise::ADVERTISEMENT_OCTETS_MAX;
use super::drops::{Counters, DropReason};
use super::packet::Packet;
use crate::exchange::Report;
use crate::limits::{ERROR_INDICATIONS_PER_SECOND_MAX, OUTPUTS_MAX, REPORTS_MAX};

/// Spare buffers kept for reuse; more are given back to the allocator.
const SPARE_MAX: usize = 1024;

pub(super) struct Shared {
    pub(super) counters: Counters,
    pub(super) outputs: VecDeque<(Destination, Packet)>,
    pub(super) reports: Vec<Report>,
    spare: Vec<Packet>,
    room: usize,
    error_second: u64,
    errors_this_second: u32,
}

impl Shared {
    pub(super) fn new(mtu: usize) -> Self {
        Self {
            counters: Counters::default(),
            outputs: VecDeque::new(),
            reports: Vec::new(),
            spare: Vec::new(),
            // The MTU, and the outer headers that a packet from N3 still has in front of it.
            room: mtu.max(ADVERTISEMENT_OCTETS_MAX) + 128,
            error_second: 0,
            errors_this_second: 0,
        }
    }

    /// An empty packet; a used buffer where one is spare.
    pub(super) fn fresh(&mut self) -> Packet {
        let mut p = self.spare.pop().unwrap_or_else(|| Packet::with_room(self.room));
        p.received(0);
        p
    }

    pub(super) fn recycle(&mut self, mut packet: Packet) {
        if self.spare.len() < SPARE_MAX && packet.room().len() >= self.room {
            self.spare.push(packet);
        }
    }

    /// Sends a packet of the pipeline's own.
    pub(super) fn send(&mut self, to: Destination, packet: Packet) {
        if self.outputs.len() < OUTPUTS_MAX {
            self.outputs.push_back((to, packet));
        } else {
            self.counters.drop(DropReason::OutputFull);
            self.recycle(packet);
        }
    }

    /// Sends octets of the pipeline's own.
    pub(super) fn send_octets(&mut self, to: Destination, octets: &[u8]) {
        let mut packet = self.fresh();
        packet.fill(octets);
        self.send(to, packet);
    }

    pub(super) fn report(&mut self, report: Report) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        } else {
            self.counters.reports_lost += 1;
        }
    }

    /// Whether one more error indication may be sent in this second.
    pub(super) fn may_send_error(&mut self, now: Instant) -> bool {
        if self.error_second != now.as_secs() {
            (self.error_second, self.errors_this_second) = (now.as_secs(), 0);
        }
        self.errors_this_second += 1;
        self.errors_this_second <= ERROR_INDICATIONS_PER_SECOND_MAX
    }
}
