//! Starts and stops of traffic, and the events that a URR counts (TS 29.244 §5.2.2.2.1, §8.2.19, §8.2.40).
//!
//! An event is a start of what the rule counts: of its service data flows, or of the application that its PDRs name. Traffic starts
//! with the first packet that the rule counts, and again with the first one after a silence.

use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{MeasurementMethod, NtpTime, ReportingTriggers, UsageReportTrigger};

use crate::rules::Urr;
use crate::state::stored;

/// Silence after which traffic has stopped, where the SMF gives no Inactivity Detection Time: that of a UDP flow (RFC 4787 §4.3).
const SILENCE: Duration = Duration::from_secs(120);

/// Events of one report: when there are so many, it is due, whatever the threshold is. Each is reported by its time, in eight octets, and
/// a report is to fit a datagram.
pub(super) const EVENTS_PER_REPORT_MAX: usize = 128;

/// What a URR knows of its traffic.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    /// The last packet, while traffic goes on.
    last: Option<Instant>,
    /// When each event since the last figures was.
    times: Vec<NtpTime>,
    /// Events since the last report.
    since_report: u32,
    of_quota: u32,
}

stored!(Traffic { last, times, since_report, of_quota });

impl Traffic {
    /// Of a rule that asks for any of it.
    pub(super) fn of(urr: &Urr) -> Option<Box<Self>> {
        Self::is_asked_for(urr).then(Box::default)
    }

    pub(super) fn is_asked_for(urr: &Urr) -> bool {
        urr.method.has(MeasurementMethod::EVENT)
            || urr.triggers.has(ReportingTriggers::START)
            || urr.triggers.has(ReportingTriggers::STOPT)
    }

    /// A packet is counted; whether traffic starts with it.
    pub(super) fn packet(&mut self, urr: &Urr, now: Instant) -> bool {
        let starts = self.last.is_none_or(|last| last + silence(urr) <= now);
        self.last = Some(now);
        if starts && urr.method.has(MeasurementMethod::EVENT) {
            self.times.push(NtpTime::at(now));
            self.since_report = self.since_report.saturating_add(1);
            self.of_quota = self.of_quota.saturating_add(1);
        }
        starts
    }

    /// Whether the next packet arms the timer of [`Self::stops_at`].
    pub(super) fn is_silent(&self, urr: &Urr) -> bool {
        urr.triggers.has(ReportingTriggers::STOPT) && self.last.is_none()
    }

    /// When traffic has stopped, if nothing more comes, if a URR asks for it.
    pub(super) fn stops_at(&self, urr: &Urr) -> Option<Instant> {
        let last = self.last.filter(|_| urr.triggers.has(ReportingTriggers::STOPT))?;
        Some(last + silence(urr))
    }

    /// Whether it has stopped by now, and it is not reported yet.
    pub(super) fn stopped(&mut self, urr: &Urr, now: Instant) -> bool {
        let stopped = self.stops_at(urr).is_some_and(|at| at <= now);
        if stopped {
            self.last = None;
        }
        stopped
    }

    /// Whether the quota is used up.
    pub(super) fn is_used_up(&self, urr: &Urr) -> bool {
        urr.method.has(MeasurementMethod::EVENT) && urr.event_quota.is_some_and(|q| self.of_quota >= q)
    }

    /// Whether a report is due.
    pub(super) fn due(&self, urr: &Urr) -> Option<UsageReportTrigger> {
        let threshold = urr.event_threshold.filter(|_| urr.triggers.has(ReportingTriggers::EVETH));
        let reached = self.since_report > 0 && threshold.is_some_and(|t| self.since_report >= t);
        (reached || self.times.len() >= EVENTS_PER_REPORT_MAX).then_some(UsageReportTrigger::EVETH)
    }

    /// A new quota counts from now.
    pub(super) fn renew(&mut self) {
        self.of_quota = 0;
    }

    /// When the events since the last figures were.
    pub(super) fn take_times(&mut self) -> Vec<NtpTime> {
        std::mem::take(&mut self.times)
    }

    /// What was counted has been reported.
    pub(super) fn reported(&mut self) {
        self.since_report = 0;
    }
}

fn silence(urr: &Urr) -> Duration {
    urr.inactivity_detection_s.filter(|s| *s > 0).map_or(SILENCE, |s| Duration::from_secs(s.into()))
}
