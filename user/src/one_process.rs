//! UPF-C and UPF-U joined by function calls.

use std::net::SocketAddr;

use whimbrel_ids::Instant;

use crate::config::{Config, ConfigError};
use crate::control::{Input, Outbox, UpfC};
use crate::exchange::Report;
use crate::pipeline::UpfU;

/// Both sides in one thread: what a test, a simulation or a small deployment drives.
pub struct Upf {
    /// The PFCP endpoint.
    pub c: UpfC,
    /// The packet pipeline.
    pub u: UpfU,
}

impl Upf {
    /// Errors: what [`Config::check`] finds.
    pub fn new(config: Config, now: Instant) -> Result<Self, ConfigError> {
        Ok(Self { u: UpfU::new(&config)?, c: UpfC::new(config, now)? })
    }

    /// Handles a PFCP datagram to its end: changes are applied, and what the pipeline reports of them is
    /// answered.
    pub fn pfcp(&mut self, now: Instant, peer: SocketAddr, octets: &[u8], out: &mut Outbox) {
        self.c.handle(now, Input::Pfcp { peer, octets }, out);
        self.settle(now, out);
    }

    /// Runs both sides' timers.
    pub fn tick(&mut self, now: Instant, out: &mut Outbox) {
        self.u.tick(now);
        self.c.handle(now, Input::Tick, out);
        self.settle(now, out);
    }

    /// Carries changes and reports between the sides until neither has any.
    pub fn settle(&mut self, now: Instant, out: &mut Outbox) {
        loop {
            for change in out.changes.drain(..) {
                self.u.apply(now, change);
            }
            let reports: Vec<Report> = self.u.take_reports();
            if reports.is_empty() {
                return;
            }
            for report in reports {
                self.c.handle(now, Input::Report(report), out);
            }
        }
    }

    /// When [`Self::tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.c.next_deadline(), self.u.next_deadline()].into_iter().flatten().min()
    }
}
