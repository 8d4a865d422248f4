//! Counts of messages and processor time, by the procedure that has caused them.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::Instant;

/// Activities of UEs and homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Initial registration, with authentication.
    Registration,
    /// PDU session establishment.
    SessionEstablishment,
    /// Release of the connection, as a gNB asks for it.
    AnRelease,
    /// Service request with uplink data.
    ServiceRequest,
    /// Service request after paging for downlink data.
    Paging,
    /// Xn handover between gNBs of a site.
    HandoverWithinSite,
    /// N2 handover between sites, with the registration after it.
    HandoverBetweenSites,
    /// Registration in another tracking area of the site.
    MobilityWithinSite,
    /// Registration at another site, which fetches the context.
    MobilityBetweenSites,
    /// Periodic registration (T3512).
    PeriodicRegistration,
    /// States that are sent to another home ahead.
    Replication,
    /// UEs go from a home that is drained.
    Removal,
    /// Timers, heartbeats, and UEs that rest.
    Timers,
    /// Homes and gNBs connect.
    Setup,
}

impl Activity {
    /// The procedures of UEs.
    pub const PROCEDURES: [Self; 10] = [
        Self::Registration,
        Self::SessionEstablishment,
        Self::AnRelease,
        Self::ServiceRequest,
        Self::Paging,
        Self::HandoverWithinSite,
        Self::HandoverBetweenSites,
        Self::MobilityWithinSite,
        Self::MobilityBetweenSites,
        Self::PeriodicRegistration,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Registration => "registration",
            Self::SessionEstablishment => "session establishment",
            Self::AnRelease => "AN release",
            Self::ServiceRequest => "service request",
            Self::Paging => "paging, service request",
            Self::HandoverWithinSite => "handover within a site",
            Self::HandoverBetweenSites => "handover between sites",
            Self::MobilityWithinSite => "mobility within a site",
            Self::MobilityBetweenSites => "mobility between sites",
            Self::PeriodicRegistration => "periodic registration",
            Self::Replication => "replication",
            Self::Removal => "removal",
            Self::Timers => "timers",
            Self::Setup => "setup",
        }
    }
}

/// Links between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SiteLink {
    /// gNBs and homes.
    N2,
    /// Homes and UPFs.
    N4,
    /// Homes of one site.
    N14WithinSite,
    /// Homes of different sites.
    N14BetweenSites,
}

/// Steps of a histogram within one doubling: one in a hundred each.
const STEPS: u64 = 64;

/// Times in nanoseconds, with an error of one in a hundred.
#[derive(Clone, Debug, Default)]
struct TimeHistogram {
    counts: BTreeMap<u64, u64>,
    all: u64,
}

impl TimeHistogram {
    fn add(&mut self, nanos: u64) {
        let doubling = u64::from(nanos.max(STEPS).ilog2() - STEPS.ilog2());
        *self.counts.entry(doubling * STEPS + (nanos >> doubling)).or_default() += 1;
        self.all += 1;
    }

    fn percentile(&self, per_cent: u64) -> u64 {
        let mut left = self.all * per_cent / 100;
        for (step, count) in &self.counts {
            match left.checked_sub(*count) {
                Some(rest) => left = rest,
                None => {
                    let doubling = (step / STEPS).saturating_sub(1);
                    return (step - doubling * STEPS) << doubling;
                }
            }
        }
        0
    }
}

/// Of one activity.
#[derive(Clone, Debug, Default)]
struct ActivityFigures {
    completed: u64,
    nanos: u64,
    messages: BTreeMap<SiteLink, (u64, u64)>,
    latencies: BTreeMap<u64, u64>,
}

/// The measured time alone.
#[derive(Clone, Debug, Default)]
struct MeasuredFigures {
    nanos: u64,
    messages: BTreeMap<SiteLink, (u64, u64)>,
    procedures: u64,
    at: Instant,
}

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub struct SiteFigures {
    by_activity: BTreeMap<Activity, ActivityFigures>,
    inputs: TimeHistogram,
    /// Nanoseconds of the reference work, and how often it was done.
    pub(super) reference: (u64, u64),
    measured: Option<(MeasuredFigures, Option<MeasuredFigures>)>,
    /// UEs that the drained home had when its drain began.
    pub drained: u64,
    /// Handovers that have failed; their UEs went to the other cell without one.
    pub handovers_failed: u64,
    /// Messages of other homes that were rejected, as they came late or twice.
    pub n14_errors: u64,
    /// Connections that the core has released.
    pub released_by_core: u64,
    /// Messages of homes that gNBs did not expect.
    pub violations: u64,
    /// Contexts that a home has deleted, since their UEs have come to it again.
    pub superseded: u64,
    /// NAS messages that UEs have discarded.
    pub discarded: u64,
}

impl SiteFigures {
    pub(super) fn spent(&mut self, cause: Activity, nanos: u64, is_input: bool) {
        self.by_activity.entry(cause).or_default().nanos += nanos;
        if is_input && cause != Activity::Timers && cause != Activity::Setup {
            self.inputs.add(nanos);
        }
    }

    pub(super) fn sent(&mut self, cause: Activity, link: SiteLink, octets: usize) {
        let counted = self.by_activity.entry(cause).or_default().messages.entry(link).or_default();
        *counted = (counted.0 + 1, counted.1 + octets as u64);
    }

    pub(super) fn completed(&mut self, cause: Activity, took: Duration) {
        let figures = self.by_activity.entry(cause).or_default();
        figures.completed += 1;
        *figures.latencies.entry(took.as_micros() as u64 / 1_000).or_default() += 1;
    }

    fn sums(&self, at: Instant) -> MeasuredFigures {
        let mut sums = MeasuredFigures { at, ..MeasuredFigures::default() };
        for (activity, figures) in &self.by_activity {
            sums.nanos += figures.nanos;
            if Activity::PROCEDURES.contains(activity) {
                sums.procedures += figures.completed;
            }
            for (link, (messages, octets)) in &figures.messages {
                let counted = sums.messages.entry(*link).or_default();
                *counted = (counted.0 + messages, counted.1 + octets);
            }
        }
        sums
    }

    pub(super) fn begin_measured(&mut self, now: Instant) {
        self.measured = Some((self.sums(now), None));
    }

    pub(super) fn end_measured(&mut self, now: Instant) {
        let end = self.sums(now);
        if let Some((_, ended)) = &mut self.measured {
            *ended = Some(end);
        }
    }

    /// How often it has completed.
    pub fn count(&self, activity: Activity) -> u64 {
        self.by_activity.get(&activity).map_or(0, |f| f.completed)
    }

    /// Processor time of homes for one of it, in microseconds.
    pub fn processor_us(&self, activity: Activity) -> f64 {
        self.by_activity.get(&activity).map_or(0.0, |f| per(f.nanos as f64 / 1_000.0, f.completed))
    }

    /// Processor time of homes that an activity has caused in all, in microseconds.
    pub fn processor_us_in_all(&self, activity: Activity) -> f64 {
        self.by_activity.get(&activity).map_or(0.0, |f| f.nanos as f64 / 1_000.0)
    }

    /// Messages of one of it over a link.
    pub fn messages(&self, activity: Activity, link: SiteLink) -> f64 {
        let messages = self.by_activity.get(&activity).and_then(|f| f.messages.get(&link));
        per(messages.map_or(0, |m| m.0) as f64, self.count(activity))
    }

    /// Messages in all that an activity has caused over a link.
    pub fn messages_in_all(&self, activity: Activity, link: SiteLink) -> u64 {
        self.by_activity.get(&activity).and_then(|f| f.messages.get(&link)).map_or(0, |m| m.0)
    }

    /// Messages one after the other: the mean, and the 99th percentile.
    pub fn hops(&self, activity: Activity) -> (f64, u64) {
        let Some(figures) = self.by_activity.get(&activity) else { return (0.0, 0) };
        let sum: u64 = figures.latencies.iter().map(|(hops, count)| hops * count).sum();
        let mut left = figures.completed * 99 / 100;
        let p99 = figures.latencies.iter().find(|(_, count)| match left.checked_sub(**count) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        (per(sum as f64, figures.completed), p99.map_or(0, |(hops, _)| *hops))
    }

    /// Processor time of the reference work, in microseconds.
    pub fn reference_us(&self) -> f64 {
        per(self.reference.0 as f64 / 1_000.0, self.reference.1)
    }

    /// Processor time of an input, in microseconds: the 50th and the 99th percentile.
    pub fn input_us(&self) -> (f64, f64) {
        let us = |per_cent| self.inputs.percentile(per_cent) as f64 / 1_000.0;
        (us(50), us(99))
    }

    fn in_measured(&self, of: impl Fn(&MeasuredFigures) -> u64, ues: u32) -> f64 {
        let Some((begin, Some(end))) = &self.measured else { return 0.0 };
        let hours = end.at.since(begin.at).as_secs_f64() / 3_600.0 * f64::from(ues);
        (of(end) - of(begin)) as f64 / hours
    }

    /// Procedures of a UE in an hour, in the measured time.
    pub fn procedures_per_hour(&self, ues: u32) -> f64 {
        self.in_measured(|m| m.procedures, ues)
    }

    /// Processor time of homes for a UE in an hour, in microseconds.
    pub fn processor_us_per_hour(&self, ues: u32) -> f64 {
        self.in_measured(|m| m.nanos, ues) / 1_000.0
    }

    /// Messages and octets over a link for a UE in an hour.
    pub fn traffic_per_hour(&self, link: SiteLink, ues: u32) -> (f64, f64) {
        let of = |m: &MeasuredFigures| m.messages.get(&link).copied().unwrap_or_default();
        (self.in_measured(|m| of(m).0, ues), self.in_measured(|m| of(m).1, ues))
    }
}

fn per(all: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { all / count as f64 }
}
