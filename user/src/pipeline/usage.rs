//! Accounting by usage reporting rules (TS 29.244 §5.2.2).

use std::time::Duration;

use whimbrel_ids::{Instant, Seid};
use whimbrel_pfcp::ie::{
    DurationMeasurement, MeasurementInformation, MeasurementMethod, NtpTime, ReportType, ReportingTriggers,
    UrSeqn, UrrId, UsageInformation, UsageReportTrigger, Volume, VolumeMeasurement,
};
use whimbrel_pfcp::msg::SessionReportRequest;
use whimbrel_pfcp::rule::UsageReport;
use whimbrel_pfcp::{Frame, Message};

use super::traffic::Traffic;
use crate::rules::Urr;
use crate::state::{Stored, StoredReader, stored};

/// Octets of both directions.
#[derive(Clone, Copy, Debug, Default)]
struct DirectionOctets {
    ul: u64,
    dl: u64,
}

impl DirectionOctets {
    fn add(&mut self, uplink: bool, octets: u64) {
        if uplink { self.ul += octets } else { self.dl += octets }
    }

    fn with(self, other: Self) -> Self {
        Self { ul: self.ul + other.ul, dl: self.dl + other.dl }
    }

    /// Octets before the limit is reached, in both directions together.
    fn left(self, limit: &Volume) -> u64 {
        let left = |limit: Option<u64>, used: u64| limit.map_or(u64::MAX, |l| l.saturating_sub(used));
        left(limit.total, self.ul + self.dl).min(left(limit.ul, self.ul)).min(left(limit.dl, self.dl))
    }

    fn reached(self, limit: &Volume) -> bool {
        limit.total.is_some_and(|l| self.ul + self.dl >= l)
            || limit.ul.is_some_and(|l| self.ul >= l)
            || limit.dl.is_some_and(|l| self.dl >= l)
    }
}

/// What passed without being counted one by one: packets and octets of each direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BulkUsage {
    pub(crate) ul: (u64, u64),
    pub(crate) dl: (u64, u64),
    pub(crate) first_packet: Instant,
    pub(crate) last_packet: Instant,
}

/// What one URR has counted.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) urr_id: UrrId,
    revision: u16,
    /// The quota is used up: packets stop until the SMF gives another.
    pub(crate) exhausted: bool,
    since_report: DirectionOctets,
    packets: DirectionOctets,
    of_quota: DirectionOctets,
    duration_us: u64,
    duration_of_quota_us: u64,
    start: Instant,
    first_packet: Option<Instant>,
    last_packet: Option<Instant>,
    /// Since when time of use is counted, if it is.
    running: Option<Instant>,
    next_period: Option<Instant>,
    seqn: u32,
    /// Nearly no rule has it.
    monitoring: Option<Box<MonitoringTime>>,
    /// None without reports of traffic.
    traffic: Option<Box<Traffic>>,
}

/// A monitoring time (TS 29.244 §5.2.2.2.1).
#[derive(Clone, Debug)]
struct MonitoringTime {
    /// As the rule has it.
    at: Option<Instant>,
    /// The same, while it is in the future.
    ahead: Option<Instant>,
    /// What was counted before it, to be reported with what comes after.
    before: Option<UsageReport>,
    /// The same, as thresholds see it.
    carried: DirectionOctets,
    carried_us: u64,
}

impl MonitoringTime {
    fn new(urr: &Urr, now: Instant) -> Option<Box<Self>> {
        let at = urr.monitoring?;
        let ahead = Some(at).filter(|at| *at > now);
        Some(Box::new(Self {
            at: Some(at),
            ahead,
            before: None,
            carried: DirectionOctets::default(),
            carried_us: 0,
        }))
    }
}

stored!(DirectionOctets { ul, dl });
stored!(MonitoringTime { at, ahead, before, carried, carried_us });
stored!(Usage {
    urr_id,
    revision,
    exhausted,
    since_report,
    packets,
    of_quota,
    duration_us,
    duration_of_quota_us,
    start,
    first_packet,
    last_packet,
    running,
    next_period,
    seqn,
    monitoring,
    traffic,
});

/// As in a message.
impl Stored for UsageReport {
    fn store(&self, to: &mut Vec<u8>) {
        let m = SessionReportRequest {
            usage_reports: vec![self.clone()],
            ..SessionReportRequest::new(ReportType::USAR)
        };
        Message::from(m).to_octets(Some(Seid(0)), 0).store(to);
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        let octets: Vec<u8> = Stored::restore(from)?;
        match Message::parse(&Frame::parse(&octets).ok()?).ok()? {
            Message::SessionReportRequest(mut m) => m.usage_reports.pop(),
            _ => None,
        }
    }
}

impl Usage {
    /// Of a rule that stood before this process did. The rule may have been updated since; no timer waits longer than it would from now on.
    pub(crate) fn restored(mut self, urr: &Urr, now: Instant) -> Self {
        self.next_period = self.next_period.zip(period(urr)).map(|(at, p)| at.min(now + p));
        self.update(urr, now);
        self
    }

    pub(crate) fn new(urr: &Urr, now: Instant) -> Self {
        let immediately = urr.information.has(MeasurementInformation::ISTM);
        Self {
            urr_id: urr.urr_id,
            revision: urr.revision,
            exhausted: false,
            since_report: DirectionOctets::default(),
            packets: DirectionOctets::default(),
            of_quota: DirectionOctets::default(),
            duration_us: 0,
            duration_of_quota_us: 0,
            start: now,
            first_packet: None,
            last_packet: None,
            running: immediately.then_some(now),
            next_period: period(urr).map(|p| now + p),
            seqn: 0,
            monitoring: MonitoringTime::new(urr, now),
            traffic: Traffic::of(urr),
        }
    }

    /// The rule has been updated: a new quota counts from now.
    pub(crate) fn update(&mut self, urr: &Urr, now: Instant) {
        if self.revision != urr.revision {
            self.revision = urr.revision;
            self.run(urr, now, false);
            self.of_quota = DirectionOctets::default();
            self.duration_of_quota_us = 0;
            self.exhausted = false;
            self.traffic.iter_mut().for_each(|t| t.renew());
        }
        if self.traffic.is_none() {
            self.traffic = Traffic::of(urr);
        }
        match &mut self.monitoring {
            Some(m) if m.at != urr.monitoring => {
                (m.at, m.ahead) = (urr.monitoring, urr.monitoring.filter(|at| *at > now));
            }
            Some(_) => {}
            none => *none = MonitoringTime::new(urr, now),
        }
        let next = period(urr).map(|p| now + p);
        if self.next_period.is_none() || next.is_none() {
            self.next_period = next;
        }
    }

    /// Counts a packet; why a report is due now, if one is.
    pub(crate) fn count(
        &mut self,
        urr: &Urr,
        now: Instant,
        uplink: bool,
        octets: usize,
    ) -> Option<UsageReportTrigger> {
        if urr.information.has(MeasurementInformation::INAM) {
            return None;
        }
        if self.monitoring.is_some() {
            self.split(urr, now);
        }
        self.run(urr, now, true);
        let starts = self.traffic.as_mut().is_some_and(|t| t.packet(urr, now));
        self.first_packet.get_or_insert(now);
        self.last_packet = Some(now);
        self.since_report.add(uplink, octets as u64);
        self.of_quota.add(uplink, octets as u64);
        self.packets.add(uplink, 1);
        let due = self.due(urr);
        match starts && urr.triggers.has(ReportingTriggers::START) {
            true => Some(due.map_or(UsageReportTrigger::START, |d| d | UsageReportTrigger::START)),
            false => due,
        }
    }

    /// Octets that may pass before anything is due; `None` where each packet is to be looked at.
    pub(crate) fn room(&self, urr: &Urr) -> Option<u64> {
        let timed = urr.method.has(MeasurementMethod::DURAT) || urr.inactivity_detection_s.is_some();
        let first = Traffic::is_asked_for(urr) || urr.triggers.has(ReportingTriggers::QUHTI);
        let apart = self.monitoring.is_some() || urr.monitoring.is_some();
        let stopped = self.exhausted || urr.information.has(MeasurementInformation::INAM);
        if timed || first || apart || stopped {
            return None;
        }
        let volume = urr.method.has(MeasurementMethod::VOLUM);
        let quota = urr.volume_quota.filter(|_| volume);
        let threshold = urr.volume_threshold.filter(|_| volume && urr.triggers.has(ReportingTriggers::VOLTH));
        let quota = quota.map_or(u64::MAX, |q| self.of_quota.left(&q));
        let threshold = threshold.map_or(u64::MAX, |t| self.since_report.left(&t));
        // One less than would reach it.
        quota.min(threshold).checked_sub(1)
    }

    /// Counts packets at once that kept to the [`Self::room`] that there was, as if one by one.
    pub(crate) fn absorb(&mut self, urr: &Urr, counted: &BulkUsage) {
        let ((ul_packets, ul), (dl_packets, dl)) = (counted.ul, counted.dl);
        if ul_packets + dl_packets == 0 {
            return;
        }
        self.run(urr, counted.first_packet, true);
        self.run(urr, counted.last_packet, true);
        self.first_packet.get_or_insert(counted.first_packet);
        self.last_packet = Some(counted.last_packet);
        self.packets = self.packets.with(DirectionOctets { ul: ul_packets, dl: dl_packets });
        self.since_report = self.since_report.with(DirectionOctets { ul, dl });
        self.of_quota = self.of_quota.with(DirectionOctets { ul, dl });
    }

    /// Whether the next packet starts a timer of it.
    pub(crate) fn starts_timers(&self, urr: &Urr) -> bool {
        let time = urr.method.has(MeasurementMethod::DURAT) && self.running.is_none();
        let holding = urr.triggers.has(ReportingTriggers::QUHTI) && self.last_packet.is_none();
        time || holding || self.traffic.as_ref().is_some_and(|t| t.is_silent(urr))
    }

    /// Lets time of use run on to `now`.
    fn run(&mut self, urr: &Urr, now: Instant, packet: bool) {
        if let Some(since) = self.running {
            let mut passed = now.since(since);
            if let (Some(idle_s), Some(last)) = (urr.inactivity_detection_s, self.last_packet) {
                // Time counts up to that long after the last packet.
                let until = last + Duration::from_secs(idle_s.into());
                passed = until.min(now).since(since);
            }
            let us = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
            self.duration_us = self.duration_us.saturating_add(us);
            self.duration_of_quota_us = self.duration_of_quota_us.saturating_add(us);
            self.running = Some(now);
        } else if packet {
            self.running = Some(now);
        }
    }

    /// Which threshold or quota is reached.
    fn due(&mut self, urr: &Urr) -> Option<UsageReportTrigger> {
        let volume = urr.method.has(MeasurementMethod::VOLUM);
        let time = urr.method.has(MeasurementMethod::DURAT);
        let reached = |us: u64, limit_s: Option<u32>| limit_s.is_some_and(|s| us >= u64::from(s) * 1_000_000);
        let volume_quota = volume && urr.volume_quota.is_some_and(|q| self.of_quota.reached(&q));
        let time_quota = time && reached(self.duration_of_quota_us, urr.time_quota_s);
        let event_quota = self.traffic.as_ref().is_some_and(|t| t.is_used_up(urr));
        if (volume_quota || time_quota || event_quota) && !self.exhausted {
            self.exhausted = true;
            return Some(match (volume_quota, time_quota) {
                (true, _) => UsageReportTrigger::VOLQU,
                (false, true) => UsageReportTrigger::TIMQU,
                (false, false) => UsageReportTrigger::EVEQU,
            });
        }
        if volume
            && urr.triggers.has(ReportingTriggers::VOLTH)
            && urr.volume_threshold.is_some_and(|t| self.since_threshold().reached(&t))
        {
            return Some(UsageReportTrigger::VOLTH);
        }
        if let Some(events) = self.traffic.as_ref().and_then(|t| t.due(urr)) {
            return Some(events);
        }
        let time_threshold = time && urr.triggers.has(ReportingTriggers::TIMTH);
        (time_threshold && reached(self.duration_us + self.carried_us(), urr.time_threshold_s))
            .then_some(UsageReportTrigger::TIMTH)
    }

    /// What counts towards a threshold: a monitoring time does not reset it.
    fn since_threshold(&self) -> DirectionOctets {
        self.monitoring.as_ref().map_or(self.since_report, |m| self.since_report.with(m.carried))
    }

    fn carried_us(&self) -> u64 {
        self.monitoring.as_ref().map_or(0, |m| m.carried_us)
    }

    /// When this URR next wants to be looked at.
    pub(crate) fn deadline(&self, urr: &Urr) -> Option<Instant> {
        let mut at = self.next_period.into_iter().chain(self.monitoring.as_ref().and_then(|m| m.ahead)).min();
        let mut sooner = |t: Option<Instant>| {
            if let Some(t) = t {
                at = Some(at.map_or(t, |a| a.min(t)));
            }
        };
        if let Some(since) = self.running.filter(|_| urr.method.has(MeasurementMethod::DURAT)) {
            let left = |s: u32, us: u64| {
                since + Duration::from_micros((u64::from(s) * 1_000_000).saturating_sub(us))
            };
            if urr.triggers.has(ReportingTriggers::TIMTH) {
                sooner(urr.time_threshold_s.map(|s| left(s, self.duration_us + self.carried_us())));
            }
            if !self.exhausted {
                sooner(urr.time_quota_s.map(|s| left(s, self.duration_of_quota_us)));
            }
        }
        if let Some(last) = self.last_packet.filter(|_| urr.triggers.has(ReportingTriggers::QUHTI)) {
            sooner(urr.quota_holding_s.map(|s| last + Duration::from_secs(s.into())));
        }
        sooner(self.traffic.as_ref().and_then(|t| t.stops_at(urr)));
        at
    }

    /// What its timers say is due.
    pub(crate) fn timers(&mut self, urr: &Urr, now: Instant) -> Option<UsageReportTrigger> {
        self.split(urr, now);
        self.run(urr, now, false);
        if let (Some(at), Some(p)) = (self.next_period, period(urr))
            && at <= now
        {
            self.next_period = Some(now + p);
            return Some(UsageReportTrigger::PERIO);
        }
        if let (Some(last), Some(s)) = (self.last_packet, urr.quota_holding_s)
            && urr.triggers.has(ReportingTriggers::QUHTI)
            && last + Duration::from_secs(s.into()) <= now
        {
            self.last_packet = None;
            self.running = None;
            return Some(UsageReportTrigger::QUHTI);
        }
        if self.traffic.as_mut().is_some_and(|t| t.stopped(urr, now)) {
            return Some(UsageReportTrigger::STOPT);
        }
        self.due(urr)
    }

    /// Begins a separate measurement, if the monitoring time has come.
    fn split(&mut self, urr: &Urr, now: Instant) {
        let Some(m) = &mut self.monitoring else { return };
        let Some(at) = m.ahead.filter(|at| *at <= now) else { return };
        m.ahead = None;
        m.carried = m.carried.with(self.since_report);
        let counted_us = self.duration_us;
        let mut report = self.figures(urr, at, UsageReportTrigger::MONIT);
        report.usage_information = Some(UsageInformation::BEF);
        let left_us = self.duration_us % 1_000_000;
        if let Some(m) = &mut self.monitoring {
            m.carried_us += counted_us - left_us;
            m.before = Some(report);
        }
    }

    /// The reports of everything since the last one, which begin the next: two where a monitoring time has passed.
    pub(crate) fn report(
        &mut self,
        urr: &Urr,
        now: Instant,
        trigger: UsageReportTrigger,
        reports: &mut Vec<UsageReport>,
    ) {
        let before = self.monitoring.as_mut().and_then(|m| m.before.take());
        let split = before.is_some();
        reports.extend(before.map(|b| UsageReport { usage_report_trigger: trigger, ..b }));
        let usage_information = split.then_some(UsageInformation::AFT);
        reports.push(UsageReport { usage_information, ..self.figures(urr, now, trigger) });
        if let Some(m) = &mut self.monitoring {
            (m.carried, m.carried_us) = (DirectionOctets::default(), 0);
        }
        self.traffic.iter_mut().for_each(|t| t.reported());
    }

    /// What was counted since the last figures.
    fn figures(&mut self, urr: &Urr, now: Instant, trigger: UsageReportTrigger) -> UsageReport {
        self.run(urr, now, false);
        let (o, p) = (std::mem::take(&mut self.since_report), std::mem::take(&mut self.packets));
        let packets = urr.information.has(MeasurementInformation::MNOP);
        let volume = VolumeMeasurement {
            total: Some(o.ul + o.dl),
            ul: Some(o.ul),
            dl: Some(o.dl),
            total_packets: packets.then_some(p.ul + p.dl),
            ul_packets: packets.then_some(p.ul),
            dl_packets: packets.then_some(p.dl),
        };
        let duration_s = u32::try_from(self.duration_us / 1_000_000).unwrap_or(u32::MAX);
        // What is less than a second stays for the next report.
        self.duration_us %= 1_000_000;
        let report = UsageReport {
            start_time: Some(NtpTime::at(self.start)),
            end_time: Some(NtpTime::at(now)),
            volume_measurement: urr.method.has(MeasurementMethod::VOLUM).then_some(volume),
            duration_measurement: urr
                .method
                .has(MeasurementMethod::DURAT)
                .then_some(DurationMeasurement(duration_s)),
            time_of_first_packet: self.first_packet.take().map(NtpTime::at),
            time_of_last_packet: self.last_packet.filter(|_| p.ul + p.dl > 0).map(NtpTime::at),
            event_time_stamps: self.traffic.as_mut().map(|t| t.take_times()).unwrap_or_default(),
            ..UsageReport::new(self.urr_id, UrSeqn(self.seqn), trigger)
        };
        self.seqn = self.seqn.wrapping_add(1);
        self.start = now;
        report
    }
}

fn period(urr: &Urr) -> Option<Duration> {
    let s = urr.period_s.filter(|s| *s > 0 && urr.triggers.has(ReportingTriggers::PERIO))?;
    Some(Duration::from_secs(s.into()))
}
