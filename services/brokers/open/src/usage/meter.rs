//! The counter of a session at the user or the operator, and the cycles of its reports. Both parties number
//! cycles by the time since the session began.

use core::time::Duration;

use whimbrel_ids::Instant;

use super::report::{Direction, Report, ReportedBy};
use crate::id::{Domain, OperatorId, Pseudonym};
use crate::msg::Grant;

/// What a party counts of one session.
#[derive(Clone, Debug)]
pub struct Meter {
    by: ReportedBy,
    broker: Domain,
    pseudonym: Pseudonym,
    operator: OperatorId,
    period: Duration,
    begun: Instant,
    /// The last cycle that was reported, when it ended, and the octets then.
    cycle: u32,
    since: Instant,
    reported: (u64, u64),
    uplink: Direction,
    downlink: Direction,
}

impl Meter {
    /// A session of this grant begins now.
    pub fn new(by: ReportedBy, grant: &Grant, now: Instant) -> Self {
        Self {
            by,
            broker: grant.broker.clone(),
            pseudonym: grant.pseudonym,
            operator: grant.operator,
            period: Duration::from_secs(grant.terms.report_cycle_s.into()),
            begun: now,
            cycle: 0,
            since: now,
            reported: (0, 0),
            uplink: Direction::default(),
            downlink: Direction::default(),
        }
    }

    /// The broker that gets the reports.
    pub const fn broker(&self) -> &Domain {
        &self.broker
    }

    /// The last cycle that was reported.
    pub const fn cycle(&self) -> u32 {
        self.cycle
    }

    /// Counts packets of one direction.
    pub fn count(&mut self, uplink: bool, packets: u64, octets: u64) {
        let direction = if uplink { &mut self.uplink } else { &mut self.downlink };
        let add = |a: u64, b: u64| a.saturating_add(b).min(Direction::COUNT_MAX);
        (direction.packets, direction.octets) =
            (add(direction.packets, packets), add(direction.octets, octets));
    }

    /// Octets so far, uplink and downlink.
    pub const fn octets(&self) -> (u64, u64) {
        (self.uplink.octets, self.downlink.octets)
    }

    /// When the current cycle ends; `None` where the terms have no cycles.
    pub fn cycle_ends(&self) -> Option<Instant> {
        (!self.period.is_zero()).then(|| self.begun + self.period * (self.cycle + 1))
    }

    /// The cycle whose end is closest to now.
    fn nearest(&self, now: Instant) -> u32 {
        let (age, period) = (now.since(self.begun).as_millis(), self.period.as_millis());
        (age + period / 2).checked_div(period).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Whether a cycle has ended, give or take half of one, of which there is no report.
    pub fn is_due(&self, now: Instant) -> bool {
        !self.period.is_zero() && self.nearest(now) > self.cycle
    }

    /// Ends the cycle and reports it. `closed`: no PDU session is open any more.
    pub fn report(&mut self, now: Instant, closed: bool) -> Report {
        self.cycle = self.nearest(now).max(self.cycle.saturating_add(1));
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let end_ms = ms(now.since(self.begun)).min(Report::END_MS_MAX);
        let duration_ms = ms(now.since(self.since)).min(end_ms).min(u32::MAX.into());
        let rate = |octets: u64, before: u64| {
            // Octets in milliseconds: 8 bits of each are kbit/s.
            let kbps = octets.saturating_sub(before).saturating_mul(8) / duration_ms.max(1);
            u32::try_from(kbps).unwrap_or(u32::MAX)
        };
        let kbps = (rate(self.uplink.octets, self.reported.0), rate(self.downlink.octets, self.reported.1));
        (self.since, self.reported) = (now, self.octets());
        Report {
            by: self.by,
            broker: self.broker.clone(),
            pseudonym: self.pseudonym,
            operator: self.operator,
            cycle: self.cycle,
            end_ms,
            duration_ms: duration_ms as u32,
            closed,
            uplink: Direction { kbps: kbps.0, ..self.uplink },
            downlink: Direction { kbps: kbps.1, ..self.downlink },
        }
    }
}
