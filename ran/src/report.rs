//! Results of a scenario: counts, failures, and times.

use core::time::Duration;
use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use whimbrel_ids::Supi;

use crate::user_plane::StreamReport;

/// The longest recorded time: ten minutes, above all timeouts; longer ones count as this.
const MICROS_MAX: u64 = 600_000_000;
/// Failures and violations stored with their reasons; further ones are only counted.
const KEPT_MAX: usize = 1000;

/// Times of one kind, in microseconds.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        // Three digits: 0.1 %. The bounds are constants, which the constructor takes.
        Self(Histogram::new_with_bounds(1, MICROS_MAX, 3).expect("constant bounds are right"))
    }
}

impl Times {
    /// Adds a single time.
    pub fn add(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).clamp(1, MICROS_MAX));
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The quantile (0 to 1) in microseconds; zero if there are none.
    pub fn quantile_micros(&self, part: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_quantile(part) }
    }

    /// The longest, in microseconds; zero if there are none.
    pub fn max_micros(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.max() }
    }

    fn json(&self) -> Value {
        json!({
            "p50": self.quantile_micros(0.5),
            "p99": self.quantile_micros(0.99),
            "p99.9": self.quantile_micros(0.999),
            "max": self.max_micros(),
        })
    }
}

/// Results of one kind of step.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// Number of starts.
    pub begun: u64,
    /// Number of failures.
    pub failed: u64,
    /// From the time at which it was due (of a first step: at which the UE was to arrive) to its end.
    pub latency: Times,
    /// From the first message sent to the last received.
    pub wire: Times,
}

/// Results of the packets of all streams.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    /// Number of streams that have ended.
    pub counted: u64,
    /// Packets that UEs sent, and the data network.
    pub sent: (u64, u64),
    /// Those that were lost, uplink and downlink.
    pub lost: (u64, u64),
    /// Reordered packets, uplink and downlink.
    pub reordered: (u64, u64),
    /// Duplicate packets, uplink and downlink.
    pub duplicated: (u64, u64),
}

/// The longest gaps in streams during handovers of one kind.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Gaps of the uplink.
    pub uplink: Times,
    /// Gaps of the downlink.
    pub downlink: Times,
    /// From the handover's first message to the UE's arrival at the target.
    pub arrived: Times,
    /// From the handover's first message to the first downlink packet at the target.
    pub first_downlink: Times,
    /// The time without downlink packets around the UE's arrival at the target.
    pub silence: Times,
}

/// A failed step of a UE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    /// SUPI of the UE.
    pub supi: Supi,
    /// The step that failed.
    pub step: &'static str,
    /// The reason as text.
    pub reason: String,
}

/// Results of a scenario, or of one of its rates.
#[derive(Clone, Debug, Default)]
pub struct ScenarioReport {
    /// UEs a second, if they arrived at a rate.
    pub rate: Option<f64>,
    /// UEs that arrived.
    pub arrived: u64,
    /// UEs that completed all steps.
    pub completed: u64,
    /// UEs rejected by their gNBs because of AMF overload: not a failure.
    pub barred: u64,
    /// Arrivals without a free UE.
    pub starved: u64,
    /// How late UEs started because the load generator was busy.
    pub lag: Times,
    /// By the name of the step.
    pub steps: BTreeMap<&'static str, StepReport>,
    /// The failures that are kept.
    pub failures: Vec<StepFailure>,
    /// Number of failures.
    pub failed: u64,
    /// Violations of the standards by the core, as text; stored ones.
    pub violations: Vec<String>,
    /// Number of violations.
    pub violated: u64,
    /// Results of streams.
    pub streams: Streams,
    /// Gaps in streams, by the kind of handover.
    pub gaps: BTreeMap<&'static str, Gaps>,
    /// From the first arrival to the end of the last UE.
    pub elapsed: Duration,
}

impl ScenarioReport {
    pub(crate) fn step(&mut self, name: &'static str) -> &mut StepReport {
        self.steps.entry(name).or_default()
    }

    pub(crate) fn fail(&mut self, failure: StepFailure) {
        self.failed += 1;
        self.step(failure.step).failed += 1;
        if self.failures.len() < KEPT_MAX {
            self.failures.push(failure);
        }
    }

    pub(crate) fn count_stream(&mut self, stream: &StreamReport) {
        let (lost, all) = (stream.lost(), &mut self.streams);
        all.counted += 1;
        all.sent.0 += stream.uplink_sent;
        all.sent.1 += stream.downlink_sent;
        all.lost.0 += lost.0;
        all.lost.1 += lost.1;
        all.reordered.0 += u64::from(stream.uplink.reordered);
        all.reordered.1 += u64::from(stream.downlink.reordered);
        all.duplicated.0 += u64::from(stream.uplink.duplicated);
        all.duplicated.1 += u64::from(stream.downlink.duplicated);
    }

    pub(crate) fn gap(&mut self, kind: &'static str, stream: &StreamReport) {
        let gaps = self.gaps.entry(kind).or_default();
        gaps.uplink.add(stream.uplink.gap);
        gaps.downlink.add(stream.downlink.gap);
        let times = [
            (&mut gaps.arrived, stream.arrived),
            (&mut gaps.first_downlink, stream.first_downlink),
            (&mut gaps.silence, stream.silence),
        ];
        for (times, time) in times {
            time.into_iter().for_each(|time| times.add(time));
        }
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.violated += 1;
        if self.violations.len() < KEPT_MAX {
            self.violations.push(what);
        }
    }

    /// Whether all UEs completed all steps, without violations by the core.
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.violated == 0 && self.starved == 0 && self.completed == self.arrived
    }

    /// The report as JSON; times in microseconds.
    pub fn json(&self) -> Value {
        let step = |s: &StepReport| {
            json!({
                "begun": s.begun,
                "failed": s.failed,
                "latency_us": s.latency.json(),
                "wire_us": s.wire.json(),
            })
        };
        let failure =
            |f: &StepFailure| json!({"supi": f.supi.to_string(), "step": f.step, "reason": f.reason});
        json!({
            "rate": self.rate,
            "arrived": self.arrived,
            "completed": self.completed,
            "starved": self.starved,
            "failed": self.failed,
            "barred": self.barred,
            "violated": self.violated,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "steps": self.steps.iter().map(|(name, s)| ((*name).to_owned(), step(s))).collect::<serde_json::Map<_, _>>(),
            "streams": json!({
                "counted": self.streams.counted,
                "sent": both(self.streams.sent),
                "lost": both(self.streams.lost),
                "reordered": both(self.streams.reordered),
                "duplicated": both(self.streams.duplicated),
            }),
            "handover_gaps_us": self.gaps.iter().map(|(kind, gaps)| {
                ((*kind).to_owned(), json!({"uplink": gaps.uplink.json(), "downlink": gaps.downlink.json()}))
            }).collect::<serde_json::Map<_, _>>(),
            "failures": self.failures.iter().map(failure).collect::<Vec<_>>(),
            "violations": self.violations,
        })
    }
}

fn both((uplink, downlink): (u64, u64)) -> Value {
    json!({"uplink": uplink, "downlink": downlink})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_cleanliness() {
        let mut r = ScenarioReport { arrived: 1, completed: 1, ..ScenarioReport::default() };
        (1..=1000).for_each(|n| r.step("register").latency.add(Duration::from_micros(n)));
        r.step("register").latency.add(Duration::MAX);
        let t = &r.steps["register"].latency;
        assert!((500..=502).contains(&t.quantile_micros(0.5)), "{}", t.quantile_micros(0.5));
        assert!(t.max_micros() >= MICROS_MAX);
        assert!(r.is_clean());
        let supi = "imsi-999700000000001".parse().unwrap();
        r.fail(StepFailure { supi, step: "register", reason: "no".into() });
        assert!(!r.is_clean());
        assert_eq!(r.json()["steps"]["register"]["failed"], 1);
    }
}
