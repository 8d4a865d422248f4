//! Usage reporting rules, counted packet by packet, and reported where the clause says (TS 29.244 §5.2.2).

use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{NtpTime, UsageReportTrigger as Trigger, Volume};
use whimbrel_pfcp::rule::UsageReport;

/// A usage report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    urr: u32,
    /// Which report of the rule it is.
    number: u32,
    why: Trigger,
    /// Octets, uplink and downlink; of a rule for time or events, none.
    octets: [u64; 2],
    seconds: u32,
    /// Of a rule for events: how many.
    events: usize,
    /// Times of the first and of the last packet.
    packets: [Option<NtpTime>; 2],
}

impl Used {
    /// Where the model's time is not the UPF's.
    pub(crate) fn without_times(self) -> Self {
        Self { packets: [None; 2], ..self }
    }

    pub(crate) fn of(r: &UsageReport) -> Self {
        let octets = r.volume_measurement.map_or([0; 2], |v| {
            assert_eq!(v.total, v.ul.zip(v.dl).map(|(ul, dl)| ul + dl));
            [v.ul.unwrap_or(0), v.dl.unwrap_or(0)]
        });
        Self {
            urr: r.urr_id.0,
            number: r.ur_seqn.0,
            why: r.usage_report_trigger,
            octets,
            seconds: r.duration_measurement.map_or(0, |d| d.0),
            events: r.event_time_stamps.len(),
            packets: [r.time_of_first_packet, r.time_of_last_packet],
        }
    }
}

/// A rule, and what it has counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) id: u32,
    /// It counts time, from its first packet on; else octets.
    pub(crate) timed: bool,
    /// It counts neither, but starts of traffic: after so long a silence it starts again.
    pub(crate) silence: Option<Duration>,
    pub(crate) threshold_events: Option<usize>,
    pub(crate) quota_events: Option<usize>,
    pub(crate) threshold: Option<Volume>,
    pub(crate) quota: Option<Volume>,
    pub(crate) threshold_s: Option<u64>,
    pub(crate) quota_s: Option<u64>,
    /// A report of that one is one of this one too.
    pub(crate) linked_to: Option<u32>,
    pub(crate) octets: [u64; 2],
    pub(crate) of_quota: [u64; 2],
    pub(crate) running: Option<Instant>,
    pub(crate) us: u64,
    pub(crate) of_quota_us: u64,
    pub(crate) last: Option<Instant>,
    pub(crate) events: usize,
    pub(crate) of_quota_events: usize,
    pub(crate) exhausted: bool,
    pub(crate) number: u32,
    /// Since the last report: the first packet, the last.
    pub(crate) packets: [Option<Instant>; 2],
}

impl Account {
    /// A new quota counts from now.
    pub(crate) fn renew(&mut self, now: Instant) {
        self.run(now);
        (self.of_quota, self.of_quota_us, self.of_quota_events, self.exhausted) = ([0; 2], 0, 0, false);
    }

    pub(crate) fn count(&mut self, now: Instant, way: usize, octets: u64) {
        self.run(now);
        self.running = Some(now);
        self.packets = [self.packets[0].or(Some(now)), Some(now)];
        self.octets[way] += octets;
        self.of_quota[way] += octets;
        let Some(silence) = self.silence else { return };
        if self.last.is_none_or(|last| now.since(last) >= silence) {
            self.events += 1;
            self.of_quota_events += 1;
        }
        self.last = Some(now);
    }

    fn run(&mut self, now: Instant) {
        if let Some(since) = &mut self.running {
            self.us += now.0 - since.0;
            self.of_quota_us += now.0 - since.0;
            *since = now;
        }
    }

    /// Which limit is reached.
    fn due(&mut self) -> Option<Trigger> {
        let volume = |limit: Option<Volume>, [ul, dl]: [u64; 2]| {
            let reached = |limit: Option<u64>, octets: u64| limit.is_some_and(|l| octets >= l);
            limit.is_some_and(|l| reached(l.total, ul + dl) || reached(l.ul, ul) || reached(l.dl, dl))
        };
        let time = |limit_s: Option<u64>, us: u64| limit_s.is_some_and(|s| us >= s * 1_000_000);
        let events = |limit: Option<usize>, events: usize| limit.is_some_and(|l| events >= l);
        let used_up = volume(self.quota, self.of_quota)
            || time(self.quota_s, self.of_quota_us)
            || events(self.quota_events, self.of_quota_events);
        if used_up && !self.exhausted {
            self.exhausted = true;
            return Some(match (self.timed, self.silence) {
                (true, _) => Trigger::TIMQU,
                (false, None) => Trigger::VOLQU,
                (false, Some(_)) => Trigger::EVEQU,
            });
        }
        if events(self.threshold_events, self.events) {
            return Some(Trigger::EVETH);
        }
        if volume(self.threshold, self.octets) {
            return Some(Trigger::VOLTH);
        }
        time(self.threshold_s, self.us).then_some(Trigger::TIMTH)
    }

    /// When a limit of time is reached next.
    pub(crate) fn next(&self) -> Option<Instant> {
        let since = self.running.filter(|_| self.timed)?;
        let at = |limit_s: Option<u64>, us: u64| {
            limit_s.map(|s| Instant(since.0 + (s * 1_000_000).saturating_sub(us)))
        };
        let quota = at(self.quota_s, self.of_quota_us).filter(|_| !self.exhausted);
        at(self.threshold_s, self.us).into_iter().chain(quota).min()
    }

    /// What was counted since the last report.
    pub(crate) fn report(&mut self, now: Instant, why: Trigger) -> Used {
        self.run(now);
        let octets = std::mem::take(&mut self.octets);
        let seconds = self.us / 1_000_000;
        self.us %= 1_000_000;
        self.number += 1;
        let counts_octets = !self.timed && self.silence.is_none();
        Used {
            urr: self.id,
            number: self.number - 1,
            why,
            octets: if counts_octets { octets } else { [0; 2] },
            seconds: if self.timed { seconds as u32 } else { 0 },
            events: std::mem::take(&mut self.events),
            packets: std::mem::take(&mut self.packets).map(|at| at.map(NtpTime::at)),
        }
    }
}

/// Reports what is due, and what is linked to it: when all have counted.
pub(crate) fn report(accounts: &mut [Account], now: Instant, reports: &mut Vec<Used>) {
    let due: Vec<_> = accounts.iter_mut().map(|a| a.due().map(|why| (a.id, why))).collect();
    for (account, own) in accounts.iter_mut().zip(&due) {
        let linked = due.iter().flatten().any(|(id, _)| Some(*id) == account.linked_to);
        let why = match (own, linked) {
            (Some((_, why)), true) => *why | Trigger::LIUSA,
            (Some((_, why)), false) => *why,
            (None, true) => Trigger::LIUSA,
            (None, false) => continue,
        };
        reports.push(account.report(now, why));
    }
}

/// Lets time pass.
pub(crate) fn advance(accounts: &mut [Account], to: Instant, reports: &mut Vec<Used>) {
    while let Some(at) = accounts.iter().filter_map(Account::next).min().filter(|at| *at <= to) {
        accounts.iter_mut().for_each(|a| a.run(at));
        report(accounts, at, reports);
    }
}
