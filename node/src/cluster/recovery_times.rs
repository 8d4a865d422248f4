//! How long UEs waited after the loss of a CPF until another CPF served them, for the metrics.

use std::time::Duration;

use hdrhistogram::Histogram;
use whimbrel_resilience::TakeoverTime;

use crate::observation::{Metric, MetricSample};

/// Longest time that the histograms distinguish, in microseconds: by then UEs have repeated their messages.
const LONGEST_US: u64 = 60_000_000;
/// The quantiles that are shown.
const QUANTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)];

/// The times since the start.
pub(super) struct RecoveryTimes {
    ues: Histogram<u64>,
    losses: Histogram<u64>,
}

impl Default for RecoveryTimes {
    fn default() -> Self {
        let empty =
            || Histogram::new_with_bounds(1, LONGEST_US, 2).unwrap_or_else(|_| unreachable!("fixed bounds"));
        Self { ues: empty(), losses: empty() }
    }
}

impl RecoveryTimes {
    pub(super) fn add(&mut self, recovered: TakeoverTime) {
        let us = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX).clamp(1, LONGEST_US);
        match recovered {
            TakeoverTime::Ue(took) => self.ues.saturating_record(us(took)),
            TakeoverTime::All(took) => self.losses.saturating_record(us(took)),
        }
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = MetricSample> {
        let of = |metric, times: &Histogram<u64>| {
            QUANTILES.map(|(label, quantile)| {
                let value = if times.is_empty() { 0 } else { times.value_at_quantile(quantile) };
                MetricSample { metric, label: Some(label.into()), value }
            })
        };
        let count = MetricSample { metric: Metric::UesRecovered, label: None, value: self.ues.len() };
        let ues = of(Metric::RecoveryDuration, &self.ues);
        let losses = of(Metric::RecoveryAllDuration, &self.losses);
        std::iter::once(count).chain(ues).chain(losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ues_and_whole_losses_have_samples_of_their_own() {
        let mut times = RecoveryTimes::default();
        (1..=100).for_each(|us| times.add(TakeoverTime::Ue(Duration::from_micros(us))));
        times.add(TakeoverTime::All(Duration::MAX));
        let values: Vec<u64> = times.samples().map(|s| s.value).collect();
        assert_eq!(values[..4], [100, 50, 99, 100]);
        assert!(values[4..].iter().all(|us| *us >= LONGEST_US), "{values:?}");
    }
}
