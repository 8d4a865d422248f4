//! What came of a scenario: counts, failures, and how long things took.

use core::time::Duration;
use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use whimbrel_ids::Supi;

/// The longest time that is told apart: ten minutes, above every patience; longer ones count as this.
const MICROS_MAX: u64 = 600_000_000;
/// Failures and violations that are kept with their reasons; the others are counted.
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
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).clamp(1, MICROS_MAX));
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time in microseconds that this part (0 to 1) of them do not exceed; zero if there are none.
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

/// What came of one kind of step.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// How often it was begun.
    pub begun: u64,
    /// How often it failed.
    pub failed: u64,
    /// From the time at which it was due (of a first step: at which the phone was to arrive) to its end.
    pub latency: Times,
    /// From the first message sent to the last received.
    pub wire: Times,
}

/// A phone that did not do a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The phone.
    pub supi: Supi,
    /// The step.
    pub step: &'static str,
    /// Why, in words.
    pub reason: String,
}

/// What came of a scenario, or of one of its rates.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Phones a second, if they came at a rate.
    pub rate: Option<f64>,
    /// Phones that arrived.
    pub arrived: u64,
    /// Phones that did all steps.
    pub completed: u64,
    /// Arrivals for which no phone was free.
    pub starved: u64,
    /// By the name of the step.
    pub steps: BTreeMap<&'static str, StepReport>,
    /// Those of the failures that are kept.
    pub failures: Vec<Failure>,
    /// How many failures there were.
    pub failed: u64,
    /// What the core did against the standards, in words; those that are kept.
    pub violations: Vec<String>,
    /// How many violations there were.
    pub violated: u64,
    /// From the first arrival to the end of the last phone.
    pub elapsed: Duration,
}

impl Report {
    pub(crate) fn step(&mut self, name: &'static str) -> &mut StepReport {
        self.steps.entry(name).or_default()
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failed += 1;
        self.step(failure.step).failed += 1;
        if self.failures.len() < KEPT_MAX {
            self.failures.push(failure);
        }
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.violated += 1;
        if self.violations.len() < KEPT_MAX {
            self.violations.push(what);
        }
    }

    /// Whether every phone did all that it was to do, and the core kept to the standards.
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
        let failure = |f: &Failure| json!({"supi": f.supi.to_string(), "step": f.step, "reason": f.reason});
        json!({
            "rate": self.rate,
            "arrived": self.arrived,
            "completed": self.completed,
            "starved": self.starved,
            "failed": self.failed,
            "violated": self.violated,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "steps": self.steps.iter().map(|(name, s)| ((*name).to_owned(), step(s))).collect::<serde_json::Map<_, _>>(),
            "failures": self.failures.iter().map(failure).collect::<Vec<_>>(),
            "violations": self.violations,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_cleanliness() {
        let mut r = Report { arrived: 1, completed: 1, ..Report::default() };
        (1..=1000).for_each(|n| r.step("register").latency.add(Duration::from_micros(n)));
        r.step("register").latency.add(Duration::MAX);
        let t = &r.steps["register"].latency;
        assert!((500..=502).contains(&t.quantile_micros(0.5)), "{}", t.quantile_micros(0.5));
        assert!(t.max_micros() >= MICROS_MAX);
        assert!(r.is_clean());
        let supi = "imsi-999700000000001".parse().unwrap();
        r.fail(Failure { supi, step: "register", reason: "no".into() });
        assert!(!r.is_clean());
        assert_eq!(r.json()["steps"]["register"]["failed"], 1);
    }
}
