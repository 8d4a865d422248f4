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

/// Longest latency that is told apart, in microseconds: a minute, beyond every guard timer.
const LATENCY_US_MAX: u64 = 60_000_000;
/// "Lately" in recent percentiles is between one and two of these.
const RECENT: Duration = Duration::from_secs(5);
/// Upper bounds of the Prometheus buckets, in microseconds.
const BUCKETS_US: [u64; 16] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    5_000_000, 30_000_000,
];

/// Declares an enum whose members are the places of an array, with a word and a line of help each.
macro_rules! places {
    ($(#[$doc:meta])* $name:ident { $($place:ident $word:literal $help:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name { $(#[doc = $help] $place,)* }

        impl $name {
            /// All of them, in order.
            pub(crate) const ALL: &'static [$name] = &[$($name::$place,)*];

            /// Its name outside.
            pub(crate) const fn word(self) -> &'static str {
                match self { $($name::$place => $word,)* }
            }

        }
    };
}

/// The same with the help lines at hand, as Prometheus shows them.
macro_rules! metrics {
    ($(#[$doc:meta])* $name:ident { $($place:ident $word:literal $help:literal,)* }) => {
        places! { $(#[$doc])* $name { $($place $word $help,)* } }

        impl $name {
            /// What it counts.
            pub(crate) const fn help(self) -> &'static str {
                match self { $($name::$place => $help,)* }
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
        UeContextTransfer "ue_context_transfer" "A UE that registers at another AMF (TS 23.502 §4.2.2.2.2 step 5)",
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
        UpConnectionDeactivation "up_connection_deactivation" "User plane of a session let go (TS 23.502 §4.2.6)",
    }
}

metrics! {
    /// What only grows.
    Counter {
        N2In "whimbrel_n2_messages_received_total" "NGAP messages received",
        N2Out "whimbrel_n2_messages_sent_total" "NGAP messages sent",
        N2OctetsIn "whimbrel_n2_received_bytes_total" "Octets of NGAP messages received",
        N2OctetsOut "whimbrel_n2_sent_bytes_total" "Octets of NGAP messages sent",
        N2Foreign "whimbrel_n2_foreign_ppid_total" "SCTP messages that are not NGAP, dropped",
        N2Unsent "whimbrel_n2_unsent_total" "NGAP messages that SCTP had no room for",
        NasRepeated "whimbrel_nas_repeated_total" "NAS messages sent again because no answer came",
        RanReset "whimbrel_ng_reset_total" "NG RESET received",
        RanErrorIndication "whimbrel_ngap_error_indications_total" "ERROR INDICATION received from gNBs",
        RanNeverSetUp "whimbrel_ng_never_set_up_total" "Associations aborted because nobody set up on them",
        RanIdentityTakenOver "whimbrel_ng_setup_takeovers_total" "NG SETUPs under a Global RAN Node ID that was up on another association, which lost it",
        RanIdentityContested "whimbrel_ng_setup_identity_conflicts_total" "Times that two gNBs were found alive under one Global RAN Node ID",
        RanUnserved "whimbrel_ngap_unserved_total" "NGAP messages for nobody here, dropped",
        RanConfigurationTransferred "whimbrel_ran_configuration_transfers_total" "RAN configuration transfers relayed",
        N2Stalled "whimbrel_n2_stalled_total" "Associations aborted because the gNB takes nothing",
        N2Early "whimbrel_n2_early_dropped_total" "NGAP messages beyond what a CTA keeps while another one serves, dropped",
        CtaReplicaRestarts "whimbrel_cta_replica_restarts_total" "Times that this CTA could not follow the one that serves, and began anew",
        RanRefused "whimbrel_ngap_refused_total" "NGAP messages answered with ERROR INDICATION",
        DroppedNotNas "whimbrel_nas_dropped_not_nas_total" "Dropped: too short or not NAS",
        DroppedIntegrity "whimbrel_nas_dropped_integrity_total" "Dropped: wrong MAC or COUNT used before",
        DroppedUnprotected "whimbrel_nas_dropped_unprotected_total" "Dropped: not protected where it must be",
        DroppedOutOfState "whimbrel_nas_dropped_out_of_state_total" "Dropped: nobody awaits it",
        DroppedDuplicate "whimbrel_nas_dropped_duplicate_total" "Dropped: repeats a message being worked on",
        DroppedUnserved "whimbrel_nas_dropped_unserved_total" "Dropped: payload that is not served here",
        DroppedLate "whimbrel_nas_dropped_late_total" "Dropped: an answer that came too late",
        PolicyDiffers "whimbrel_up_security_policies_differ_total" "Path switches whose gNB was told another user plane security policy than ours",
        LocationReports "whimbrel_location_reports_total" "Location reports that were asked for",
        LocationFailures "whimbrel_location_failures_total" "UEs whose place could not be found out",
        CapabilitiesDiffer "whimbrel_ue_security_capabilities_differ_total" "Path switches whose gNB had other security capabilities than the UE told",
        ApiRequests "whimbrel_api_requests_total" "Requests to the API",
        ApiRefused "whimbrel_api_refused_total" "Requests that the API refused",
    }
}

metrics! {
    /// What goes up and down.
    Gauge {
        Gnbs "whimbrel_gnbs" "gNBs that are up",
        UesKnown "whimbrel_ues" "UEs with a context",
        UesRegistered "whimbrel_ues_registered" "UEs in 5GMM-REGISTERED",
        UesConnected "whimbrel_ues_connected" "UEs in 5GMM-CONNECTED mode",
        Sessions "whimbrel_pdu_sessions" "PDU sessions",
        Overloaded "whimbrel_overloaded" "1 while gNBs are told to spare the core",
    }
}

/// A reading taken elsewhere (the user plane's counters), shown as it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Metric name, with `_total` where it only grows. Times and sizes have Prometheus' base units in it: `_seconds`, `_bytes`.
    pub(crate) name: &'static str,
    /// What it counts.
    pub(crate) help: &'static str,
    /// One label and its value, where there are several readings under the name.
    pub(crate) label: Option<(&'static str, String)>,
    /// The reading. Of a time: microseconds, which are shown as seconds.
    pub(crate) value: u64,
}

impl Sample {
    /// The reading as it is shown.
    fn shown(&self) -> String {
        let is_time = self.name.ends_with("_seconds") || self.name.ends_with("_seconds_total");
        if is_time { (self.value as f64 / 1e6).to_string() } else { self.value.to_string() }
    }
}

/// Whether a metric's name has no unit beside Prometheus' base units.
fn has_base_unit(name: &str) -> bool {
    const OTHERS: [&str; 8] =
        ["octets", "microseconds", "milliseconds", "nanoseconds", "us", "ms", "ns", "mib"];
    name.split('_').all(|part| !OTHERS.contains(&part))
}

/// Latency percentiles, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Percentiles {
    pub(crate) count: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) p999_us: u64,
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

    /// Lets go of what is no longer recent.
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

/// All metrics.
pub(crate) struct Metrics {
    counters: Vec<AtomicU64>,
    gauges: Vec<AtomicU64>,
    completed: Vec<AtomicU64>,
    refused: Vec<AtomicU64>,
    latencies: Vec<Mutex<Latency>>,
    /// Microseconds of the core's own work, by procedure.
    work: Vec<Mutex<Histogram<u64>>>,
    samples: Mutex<Vec<Sample>>,
}

impl Metrics {
    pub(super) fn new(now: Instant) -> Self {
        let zeros = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let procedures = ProcedureName::ALL.len();
        Self {
            counters: zeros(Counter::ALL.len()),
            gauges: zeros(Gauge::ALL.len()),
            completed: zeros(procedures),
            refused: zeros(procedures),
            latencies: (0..procedures).map(|_| Mutex::new(Latency::new(now))).collect(),
            work: (0..procedures).map(|_| Mutex::new(empty_histogram())).collect(),
            samples: Mutex::default(),
        }
    }

    /// Counts.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.counters[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, gauge: Gauge, value: u64) {
        self.gauges[gauge as usize].store(value, Ordering::Relaxed);
    }

    /// A counter's reading.
    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Ordering::Relaxed)
    }

    /// A gauge's reading.
    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize].load(Ordering::Relaxed)
    }

    /// A procedure ended well.
    pub(crate) fn completed(&self, now: Instant, procedure: ProcedureName, took: Duration) {
        self.completed[procedure as usize].fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).clamp(1, LATENCY_US_MAX);
        let mut latency = locked(&self.latencies[procedure as usize]);
        latency.turn(now);
        latency.total.saturating_record(us);
        latency.recent[0].saturating_record(us);
        latency.sum_us = latency.sum_us.saturating_add(us);
    }

    /// The core worked so long on a procedure, its messages' answers by others not counted.
    pub(crate) fn worked(&self, procedure: ProcedureName, spent: Duration) {
        let us = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX).clamp(1, LATENCY_US_MAX);
        locked(&self.work[procedure as usize]).saturating_record(us);
    }

    /// The core's own work on a procedure since the start.
    pub(crate) fn work(&self, procedure: ProcedureName) -> Percentiles {
        percentiles(&locked(&self.work[procedure as usize]))
    }

    /// A procedure was refused or failed.
    pub(crate) fn refused(&self, procedure: ProcedureName) {
        self.refused[procedure as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often a procedure ended well, and how often it was refused.
    pub(crate) fn outcomes(&self, procedure: ProcedureName) -> (u64, u64) {
        let read = |of: &[AtomicU64]| of[procedure as usize].load(Ordering::Relaxed);
        (read(&self.completed), read(&self.refused))
    }

    /// A procedure's latencies over the last five to ten seconds.
    pub(crate) fn recent(&self, now: Instant, procedure: ProcedureName) -> Percentiles {
        let mut latency = locked(&self.latencies[procedure as usize]);
        latency.turn(now);
        let mut both = latency.recent[0].clone();
        // The same bounds on both sides, so that the sum cannot fail.
        let _ = both.add(&latency.recent[1]);
        percentiles(&both)
    }

    /// A procedure's latencies since the start.
    pub(crate) fn since_start(&self, procedure: ProcedureName) -> Percentiles {
        percentiles(&locked(&self.latencies[procedure as usize]).total)
    }

    /// Replaces the readings that are taken elsewhere.
    pub(crate) fn set_samples(&self, samples: Vec<Sample>) {
        debug_assert!(samples.iter().all(|s| has_base_unit(s.name)), "{samples:?}");
        *locked(&self.samples) = samples;
    }

    /// The sum of the readings of that name taken elsewhere.
    pub(crate) fn sample(&self, name: &str) -> u64 {
        locked(&self.samples).iter().filter(|s| s.name == name).map(|s| s.value).sum()
    }

    /// All of it in the Prometheus text format, version 0.0.4.
    pub(crate) fn prometheus(&self, uptime: Duration) -> String {
        let mut out = String::with_capacity(16 << 10);
        for &counter in Counter::ALL {
            plain(&mut out, counter.word(), "counter", counter.help(), self.counter(counter));
        }
        for &gauge in Gauge::ALL {
            plain(&mut out, gauge.word(), "gauge", gauge.help(), self.gauge(gauge));
        }
        self.procedures(&mut out);
        out + &self.prometheus_of_samples(uptime)
    }

    /// What is read elsewhere, and the process, alone: of a part that has no gNBs and no procedures.
    pub(crate) fn prometheus_of_samples(&self, uptime: Duration) -> String {
        let mut out = String::new();
        plain(&mut out, "whimbrel_uptime_seconds", "gauge", "Time since the start", uptime.as_secs());
        self.external(&mut out);
        process(&mut out);
        out
    }

    fn procedures(&self, out: &mut String) {
        head(out, "whimbrel_procedures_total", "counter", "Procedures by how they ended");
        for &p in ProcedureName::ALL {
            let (completed, refused) = self.outcomes(p);
            for (result, n) in [("completed", completed), ("refused", refused)] {
                let word = p.word();
                let _ = writeln!(
                    out,
                    "whimbrel_procedures_total{{procedure=\"{word}\",result=\"{result}\"}} {n}"
                );
            }
        }
        let name = "whimbrel_procedure_seconds";
        head(out, name, "histogram", "Time of a procedure from its first message to its last");
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

    fn external(&self, out: &mut String) {
        let mut last = "";
        for s in locked(&self.samples).iter() {
            if s.name != last {
                head(out, s.name, if s.name.ends_with("_total") { "counter" } else { "gauge" }, s.help);
                last = s.name;
            }
            let _ = match &s.label {
                Some((label, value)) => {
                    writeln!(out, "{}{{{label}=\"{}\"}} {}", s.name, escaped(value), s.shown())
                }
                None => writeln!(out, "{} {}", s.name, s.shown()),
            };
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

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn plain(out: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    head(out, name, kind, help);
    let _ = writeln!(out, "{name} {value}");
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
    plain(out, "process_resident_memory_bytes", "gauge", "Resident memory", resident);
    let cpu_s = (field(11) + field(12)) as f64 / rustix::param::clock_ticks_per_second() as f64;
    head(out, "process_cpu_seconds_total", "counter", "CPU time used");
    let _ = writeln!(out, "process_cpu_seconds_total {cpu_s}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_text_is_well_formed() {
        let metrics = Metrics::new(Instant::ZERO);
        metrics.add(Counter::N2In, 3);
        for us in [90, 450, 7000] {
            metrics.completed(Instant::ZERO, ProcedureName::Registration, Duration::from_micros(us));
        }
        metrics.refused(ProcedureName::Registration);
        metrics.set_samples(vec![
            Sample { name: "whimbrel_x_total", help: "x", label: Some(("why", "a\"b".into())), value: 1 },
            Sample { name: "whimbrel_x_total", help: "x", label: Some(("why", "c".into())), value: 2 },
            Sample { name: "whimbrel_y_seconds", help: "y", label: None, value: 1_500_000 },
            Sample { name: "whimbrel_z_seconds_total", help: "z", label: None, value: 250 },
        ]);
        let text = metrics.prometheus(Duration::from_secs(9));
        for line in [
            "whimbrel_n2_messages_received_total 3",
            "whimbrel_procedures_total{procedure=\"registration\",result=\"completed\"} 3",
            "whimbrel_procedures_total{procedure=\"registration\",result=\"refused\"} 1",
            "whimbrel_procedure_seconds_bucket{procedure=\"registration\",le=\"0.0001\"} 1",
            "whimbrel_procedure_seconds_bucket{procedure=\"registration\",le=\"0.0005\"} 2",
            "whimbrel_procedure_seconds_bucket{procedure=\"registration\",le=\"+Inf\"} 3",
            "whimbrel_procedure_seconds_count{procedure=\"registration\"} 3",
            "whimbrel_x_total{why=\"a\\\"b\"} 1",
            "whimbrel_y_seconds 1.5",
            "whimbrel_z_seconds_total 0.00025",
            "whimbrel_uptime_seconds 9",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert_eq!(text.matches("# TYPE whimbrel_x_total").count(), 1);
        let names = Counter::ALL.iter().map(|c| c.word()).chain(Gauge::ALL.iter().map(|g| g.word()));
        names.for_each(|name| assert!(has_base_unit(name), "{name}"));
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
