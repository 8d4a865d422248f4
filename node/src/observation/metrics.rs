//! Counters, gauges and latencies, and their text for Prometheus.
//!
//! The text format is a dozen lines to write; an exporter crate would bring a second registry and thirty crates.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use whimbrel_ids::Instant;

use super::locked;

mod readers;
mod table;

pub use table::{Metric, page, page_of_read_metrics};
use table::{MetricKind, MetricSource, Unit};

/// Longest latency that is measured, in microseconds: a minute, beyond every guard timer.
const LATENCY_US_MAX: u64 = 60_000_000;
/// Recent percentiles cover between one and two of these.
const RECENT: Duration = Duration::from_secs(5);
/// Upper bounds of the Prometheus buckets, in microseconds.
const BUCKETS_US: [u64; 16] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    5_000_000, 30_000_000,
];

/// Declares an enum whose members are the places of an array, with a word each.
macro_rules! places {
    ($(#[$doc:meta])* $name:ident { $($place:ident $word:literal $help:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $(#[doc = $help] $place,)* }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [$name] = &[$($name::$place,)*];

            /// Its value as a label.
            pub const fn word(self) -> &'static str {
                match self { $($name::$place => $word,)* }
            }
        }
    };
}

places! {
    /// Procedures that are counted and timed.
    ProcedureName {
        NgSetup "ng_setup" "NG Setup (TS 38.413 §8.7.1)",
        RanConfigurationUpdate "ran_configuration_update" "RAN Configuration Update (TS 38.413 §8.7.2)",
        AmfConfigurationUpdate "amf_configuration_update" "AMF Configuration Update (TS 38.413 §8.7.3)",
        Registration "registration" "Registration (TS 23.502 §4.2.2.2.2)",
        UeContextTransfer "ue_context_transfer" "Context transfer of a UE that registers at another AMF (TS 23.502 §4.2.2.2.2 step 5)",
        DeregistrationByUe "deregistration_by_ue" "Deregistration by the UE (TS 23.502 §4.2.2.3.2)",
        DeregistrationByNetwork "deregistration_by_network" "Deregistration by the network (TS 23.502 §4.2.2.3.3)",
        Authentication "authentication" "New keys of a connected UE (TS 33.501 §6.9.4.2)",
        SubscriptionChange "subscription_change" "Change of a subscription (TS 23.502 §4.5.1)",
        ServiceRequest "service_request" "Service request (TS 23.502 §4.2.3.2)",
        ConfigurationUpdate "configuration_update" "UE configuration update (TS 23.502 §4.2.4.2)",
        AnRelease "an_release" "AN release (TS 23.502 §4.2.6)",
        PathSwitch "path_switch" "Xn handover (TS 23.502 §4.9.1.2)",
        Handover "handover" "N2 handover (TS 23.502 §4.9.1.3)",
        PduSessionModifyIndication "pdu_session_modify_indication" "PDU session resource modify indication (TS 38.413 §8.2.5)",
        PduSessionModificationByUe "pdu_session_modification_by_ue" "PDU session modification by the UE (TS 23.502 §4.3.3.2)",
        PduSessionModificationByNetwork "pdu_session_modification_by_network" "PDU session modification by the network (TS 23.502 §4.3.3.2)",
        PduSessionEstablishment "pdu_session_establishment" "PDU session establishment (TS 23.502 §4.3.2.2.1)",
        PduSessionReleaseByUe "pdu_session_release_by_ue" "PDU session release by the UE (TS 23.502 §4.3.4.2)",
        PduSessionReleaseByNetwork "pdu_session_release_by_network" "PDU session release by the network (TS 23.502 §4.3.4.2)",
        UpConnectionActivation "up_connection_activation" "User plane of a session set up again (TS 23.502 §4.2.3.2)",
        UpConnectionDeactivation "up_connection_deactivation" "User plane of a session deactivated (TS 23.502 §4.3.7)",
        SessionRestoration "session_restoration" "Session established again at a UPF that had lost it (TS 23.527 §4.3)",
        PolicyUpdate "policy_update" "An event reported to a PCF, which gives changed policies (TS 23.502 §4.16.5.1)",
        SmContextUpdate "sm_context_update" "A change of a session exchanged with another vendor's SMF (TS 29.502 §5.2.2)",
        ChargingUpdate "charging_update" "Usage of a session reported to the CHF, which gives another quota (TS 32.255 §5.2.2.2)",
    }
}

places! {
    /// Why an uplink NAS message was dropped.
    NasDropReason {
        NotNas "not_nas" "Too short or not NAS (TS 24.501 §7.2.1)",
        Integrity "integrity" "Wrong MAC, or a COUNT used before (TS 24.501 §4.4.3.2, §4.4.4.3)",
        Unprotected "unprotected" "Not protected, although it must be (TS 24.501 §4.4.4.3)",
        OutOfState "out_of_state" "Not expected in this state (TS 24.501 §7.4)",
        Duplicate "duplicate" "Repeats a message that is being handled",
        Unserved "unserved" "A payload that this network does not serve",
        Late "late" "An answer after its timer has expired",
    }
}

/// A reading that a part of the program takes.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample {
    /// The metric that is measured.
    pub metric: Metric,
    /// Value of the metric's label, if it has one.
    pub label: Option<String>,
    /// The reading. Of a duration: microseconds, which are written as seconds.
    pub value: u64,
}

impl MetricSample {
    /// The reading as it is written.
    fn shown(&self) -> String {
        match self.metric.definition().unit {
            Unit::Seconds => (self.value as f64 / 1e6).to_string(),
            Unit::None | Unit::Bytes => self.value.to_string(),
        }
    }
}

impl Metric {
    /// Whether parts of the program report its readings.
    pub fn is_of_parts(self) -> bool {
        self.definition().source == MetricSource::Part
    }

    /// Its name, with the label's value where it has one.
    pub fn series(self, label: Option<&str>) -> String {
        match (self.definition().labels.first(), label) {
            (Some(name), Some(value)) => format!("{}{{{name}=\"{}\"}}", self.name(), escaped(value)),
            _ => self.name().into(),
        }
    }
}

/// Latency percentiles, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    pub count: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
}

/// One procedure's latencies: since the start, and lately.
struct Latency {
    total: Histogram<u64>,
    recent: [Histogram<u64>; 2],
    turned: Instant,
    sum_us: u64,
}

impl Latency {
    fn new(now: Instant) -> Self {
        let empty = empty_histogram;
        Self { total: empty(), recent: [empty(), empty()], turned: now, sum_us: 0 }
    }

    /// Drops what is no longer recent.
    fn turn(&mut self, now: Instant) {
        let age = now.since(self.turned);
        if age >= RECENT {
            self.recent.swap(0, 1);
            self.recent[0].reset();
            if age >= RECENT * 2 {
                self.recent[1].reset();
            }
            self.turned = now;
        }
    }
}

/// All metrics of the process.
pub struct Metrics {
    /// By [`Metric`]; those of other sources stay 0.
    values: Vec<AtomicU64>,
    nas_dropped: Vec<AtomicU64>,
    completed: Vec<AtomicU64>,
    refused: Vec<AtomicU64>,
    latencies: Vec<Mutex<Latency>>,
    /// Microseconds of the core's own work, by procedure.
    work: Vec<Mutex<Histogram<u64>>>,
    samples: Mutex<Vec<MetricSample>>,
}

impl Metrics {
    pub(super) fn new(now: Instant) -> Self {
        let zeros = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let procedures = ProcedureName::ALL.len();
        Self {
            values: zeros(Metric::ALL.len()),
            nas_dropped: zeros(NasDropReason::ALL.len()),
            completed: zeros(procedures),
            refused: zeros(procedures),
            latencies: (0..procedures).map(|_| Mutex::new(Latency::new(now))).collect(),
            work: (0..procedures).map(|_| Mutex::new(empty_histogram())).collect(),
            samples: Mutex::default(),
        }
    }

    /// Adds to a counter.
    pub fn add(&self, counter: Metric, n: u64) {
        debug_assert_eq!(counter.definition().source, MetricSource::Console, "{counter:?}");
        self.values[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, gauge: Metric, value: u64) {
        debug_assert_eq!(gauge.definition().source, MetricSource::Console, "{gauge:?}");
        self.values[gauge as usize].store(value, Ordering::Relaxed);
    }

    /// The reading of a counter or gauge that is kept here.
    pub fn value(&self, metric: Metric) -> u64 {
        self.values[metric as usize].load(Ordering::Relaxed)
    }

    /// Counts a NAS message that was dropped.
    pub fn nas_dropped(&self, reason: NasDropReason) {
        self.nas_dropped[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A procedure ended well.
    pub fn completed(&self, now: Instant, procedure: ProcedureName, took: Duration) {
        self.completed[procedure as usize].fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).clamp(1, LATENCY_US_MAX);
        let mut latency = locked(&self.latencies[procedure as usize]);
        latency.turn(now);
        latency.total.saturating_record(us);
        latency.recent[0].saturating_record(us);
        latency.sum_us = latency.sum_us.saturating_add(us);
    }

    /// The core worked so long on a procedure, its messages' answers by others not counted.
    pub fn worked(&self, procedure: ProcedureName, spent: Duration) {
        let us = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX).clamp(1, LATENCY_US_MAX);
        locked(&self.work[procedure as usize]).saturating_record(us);
    }

    /// The core's own work on a procedure since the start.
    pub fn work(&self, procedure: ProcedureName) -> Percentiles {
        percentiles(&locked(&self.work[procedure as usize]))
    }

    /// A procedure was refused or failed.
    pub fn refused(&self, procedure: ProcedureName) {
        self.refused[procedure as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often a procedure ended well, and how often it was refused.
    pub fn outcomes(&self, procedure: ProcedureName) -> (u64, u64) {
        let read = |of: &[AtomicU64]| of[procedure as usize].load(Ordering::Relaxed);
        (read(&self.completed), read(&self.refused))
    }

    /// A procedure's latencies over the last five to ten seconds.
    pub fn recent(&self, now: Instant, procedure: ProcedureName) -> Percentiles {
        let mut latency = locked(&self.latencies[procedure as usize]);
        latency.turn(now);
        let mut both = latency.recent[0].clone();
        // The same bounds on both sides, so that the sum cannot fail.
        let _ = both.add(&latency.recent[1]);
        percentiles(&both)
    }

    /// A procedure's latencies since the start.
    pub fn since_start(&self, procedure: ProcedureName) -> Percentiles {
        percentiles(&locked(&self.latencies[procedure as usize]).total)
    }

    /// Replaces the readings of all parts.
    pub fn set_samples(&self, mut samples: Vec<MetricSample>) {
        // Stable, so that the series of a metric stay in their order.
        samples.sort_by_key(|s| s.metric);
        debug_assert!(
            samples.iter().all(|s| s.metric.definition().source == MetricSource::Part),
            "{samples:?}"
        );
        *locked(&self.samples) = samples;
    }

    /// The sum of the readings that parts took of a metric.
    pub fn sample(&self, metric: Metric) -> u64 {
        locked(&self.samples).iter().filter(|s| s.metric == metric).map(|s| s.value).sum()
    }

    /// All metrics in the Prometheus text format, version 0.0.4.
    pub fn prometheus(&self, uptime: Duration) -> String {
        let mut out = String::with_capacity(16 << 10);
        let kept = Metric::ALL.iter().filter(|m| m.definition().source == MetricSource::Console);
        for &metric in kept {
            head(&mut out, metric);
            if metric == Metric::NasDropped {
                for &reason in NasDropReason::ALL {
                    let n = self.nas_dropped[reason as usize].load(Ordering::Relaxed);
                    let _ = writeln!(out, "{} {n}", metric.series(Some(reason.word())));
                }
            } else {
                let _ = writeln!(out, "{} {}", metric.name(), self.value(metric));
            }
        }
        self.procedures(&mut out);
        out + &self.prometheus_of_parts(uptime)
    }

    /// The metrics of the parts and of the process alone: for a CPF, which has no gNBs and no procedures of its own.
    pub fn prometheus_of_parts(&self, uptime: Duration) -> String {
        let mut out = String::new();
        plain(&mut out, Metric::Uptime, uptime.as_secs());
        self.parts(&mut out);
        process(&mut out);
        out
    }

    fn procedures(&self, out: &mut String) {
        head(out, Metric::Procedures);
        let name = Metric::Procedures.name();
        for &p in ProcedureName::ALL {
            let (completed, refused) = self.outcomes(p);
            for (result, n) in [("completed", completed), ("refused", refused)] {
                let _ = writeln!(out, "{name}{{procedure=\"{}\",result=\"{result}\"}} {n}", p.word());
            }
        }
        head(out, Metric::ProcedureDuration);
        let name = Metric::ProcedureDuration.name();
        for &p in ProcedureName::ALL {
            let latency = locked(&self.latencies[p as usize]);
            let (word, count) = (p.word(), latency.total.len());
            for us in BUCKETS_US {
                let n = latency.total.count_between(0, us);
                let le = us as f64 / 1e6;
                let _ = writeln!(out, "{name}_bucket{{procedure=\"{word}\",le=\"{le}\"}} {n}");
            }
            let _ = writeln!(out, "{name}_bucket{{procedure=\"{word}\",le=\"+Inf\"}} {count}");
            let _ = writeln!(out, "{name}_sum{{procedure=\"{word}\"}} {}", latency.sum_us as f64 / 1e6);
            let _ = writeln!(out, "{name}_count{{procedure=\"{word}\"}} {count}");
        }
    }

    fn parts(&self, out: &mut String) {
        let mut last = None;
        for s in locked(&self.samples).iter() {
            if last.replace(s.metric) != Some(s.metric) {
                head(out, s.metric);
            }
            let _ = writeln!(out, "{} {}", s.metric.series(s.label.as_deref()), s.shown());
        }
    }
}

/// Two significant digits up to a minute: 1 % of error in about 20 KB a histogram.
fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 2).unwrap_or_else(|_| unreachable!("fixed bounds"))
}

fn percentiles(of: &Histogram<u64>) -> Percentiles {
    Percentiles {
        count: of.len(),
        p50_us: of.value_at_quantile(0.5),
        p99_us: of.value_at_quantile(0.99),
        p999_us: of.value_at_quantile(0.999),
    }
}

fn head(out: &mut String, metric: Metric) {
    let d = metric.definition();
    let kind = match d.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let _ = writeln!(out, "# HELP {} {}\n# TYPE {} {kind}", d.name, d.help, d.name);
}

fn plain(out: &mut String, metric: Metric, value: impl std::fmt::Display) {
    head(out, metric);
    let _ = writeln!(out, "{} {value}", metric.name());
}

/// A label's value with what the format reserves escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Memory and CPU of this process under the names that dashboards expect.
fn process(out: &mut String) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    // The fields after the name in parentheses: utime and stime are the 12th and 13th, rss the 22nd (proc(5)).
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or_default();
    let resident = field(21) * rustix::param::page_size() as u64;
    plain(out, Metric::ResidentMemory, resident);
    let cpu_s = (field(11) + field(12)) as f64 / rustix::param::clock_ticks_per_second() as f64;
    plain(out, Metric::CpuTime, cpu_s);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_text_is_well_formed() {
        let metrics = Metrics::new(Instant::ZERO);
        metrics.add(Metric::N2Received, 3);
        metrics.nas_dropped(NasDropReason::Integrity);
        for us in [90, 450, 7000] {
            metrics.completed(Instant::ZERO, ProcedureName::Registration, Duration::from_micros(us));
        }
        metrics.refused(ProcedureName::Registration);
        let sample =
            |metric, label: Option<&str>, value| MetricSample { metric, label: label.map(Into::into), value };
        metrics.set_samples(vec![
            sample(Metric::UpfDropped, Some("a\"b"), 1),
            sample(Metric::CpfInServiceDuration, None, 1_500_000),
            sample(Metric::UpfDropped, Some("c"), 2),
            sample(Metric::CpfBusy, None, 250),
        ]);
        let text = metrics.prometheus(Duration::from_secs(9));
        for line in [
            "whimbrel_n2_messages_received_total 3",
            "whimbrel_nas_dropped_total{reason=\"integrity\"} 1",
            "whimbrel_nas_dropped_total{reason=\"late\"} 0",
            "whimbrel_procedures_total{procedure=\"registration\",result=\"completed\"} 3",
            "whimbrel_procedures_total{procedure=\"registration\",result=\"refused\"} 1",
            "whimbrel_procedure_seconds_bucket{procedure=\"registration\",le=\"0.0001\"} 1",
            "whimbrel_procedure_seconds_bucket{procedure=\"registration\",le=\"0.0005\"} 2",
            "whimbrel_procedure_seconds_bucket{procedure=\"registration\",le=\"+Inf\"} 3",
            "whimbrel_procedure_seconds_count{procedure=\"registration\"} 3",
            "whimbrel_upf_dropped_total{reason=\"a\\\"b\"} 1",
            "whimbrel_upf_dropped_total{reason=\"c\"} 2",
            "whimbrel_cpf_in_service_seconds 1.5",
            "whimbrel_cpf_busy_seconds_total 0.00025",
            "whimbrel_uptime_seconds 9",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        let mut declared = std::collections::BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(declared.insert(rest.split(' ').next().unwrap()), "{line} twice");
            } else if !line.starts_with('#') {
                let value = line.rsplit(' ').next().unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn recent_latencies_fade_and_the_total_stays() {
        let metrics = Metrics::new(Instant::ZERO);
        let at = |s: u64| Instant(s * 1_000_000);
        metrics.completed(at(1), ProcedureName::Registration, Duration::from_micros(100));
        assert_eq!(metrics.recent(at(2), ProcedureName::Registration).count, 1);
        assert_eq!(metrics.recent(at(7), ProcedureName::Registration).count, 1);
        assert_eq!(metrics.recent(at(30), ProcedureName::Registration).count, 0);
        let all = metrics.since_start(ProcedureName::Registration);
        assert_eq!((all.count, all.p50_us), (1, 100));
    }
}
