//! What the pipeline's stages share besides the session: counters, buffers, outputs, reports.

use std::collections::VecDeque;

use whimbrel_ids::Instant;

use super::Destination;
use super::drops::{Counters, DropReason};
use super::packet::Packet;
use super::slice::Slice;
use crate::config::{Config, SliceRate};
use crate::exchange::Report;
use crate::limits::{ECHOES_PER_SECOND_MAX, ERROR_INDICATIONS_PER_SECOND_MAX, OUTPUTS_MAX, REPORTS_MAX};

/// Spare buffers kept for reuse; more are given back to the allocator.
const SPARE_MAX: usize = 1024;

pub(super) struct Shared {
    pub(super) counters: Counters,
    pub(super) outputs: VecDeque<(Destination, Packet)>,
    pub(super) reports: Vec<Report>,
    pub(super) slices: Box<[Slice]>,
    /// Packets that one session may hold.
    pub(super) held_per_session: usize,
    spare: Vec<Packet>,
    room: usize,
    errors: PerSecond,
    echoes: PerSecond,
}

/// How often something happened in the present second.
#[derive(Default)]
pub(super) struct PerSecond {
    second: u64,
    count: u32,
}

impl PerSecond {
    /// Counts once more; whether that is within the bound.
    pub(super) fn once_more(&mut self, now: Instant, max: u32) -> bool {
        if self.second != now.as_secs() {
            (self.second, self.count) = (now.as_secs(), 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= max
    }
}

impl Shared {
    pub(super) fn new(config: &Config, room: usize) -> Self {
        let slice = |rate: &SliceRate| Slice::new(rate, config.seed);
        Self {
            slices: config.slices.iter().map(slice).collect(),
            counters: Counters::default(),
            outputs: VecDeque::new(),
            reports: Vec::new(),
            held_per_session: config.held_per_session.into(),
            spare: Vec::new(),
            room,
            errors: PerSecond::default(),
            echoes: PerSecond::default(),
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
        self.errors.once_more(now, ERROR_INDICATIONS_PER_SECOND_MAX)
    }

    /// Whether one more echo request may be answered in this second.
    pub(super) fn may_answer_echo(&mut self, now: Instant) -> bool {
        self.echoes.once_more(now, ECHOES_PER_SECOND_MAX)
    }
}
