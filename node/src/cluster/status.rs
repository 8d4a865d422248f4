//! The status that a CPF shows with `whimbrel cpf --api`. UEs are shown by the CTA.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use whimbrel_ids::Instant;
use whimbrel_resilience::CpfOutbox;
use whimbrel_resilience::link::CpfReport;

use super::heartbeat::IgnoredHeartbeats;
use crate::clock;
use crate::observation::{Condition, Console, Metric, MetricSample};
use crate::sbfd::SbfdFigures;

/// How often the status is set.
const EVERY: Duration = Duration::from_secs(1);
/// Longest time of an input that the histogram distinguishes, in microseconds: the watchdog ends a process that takes longer.
const LONGEST_US: u64 = 1_000_000;
/// The quantiles that are shown.
const QUANTILES: [(&str, f64); 4] = [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999), ("1", 1.0)];

/// Measures inputs, and sets the status now and then.
pub(super) struct StatusReporter {
    console: Arc<Console>,
    due: Instant,
    inputs: Histogram<u64>,
    busy_us: u64,
}

/// The status of a CPF.
#[derive(Debug)]
pub(super) struct CpfStatus {
    /// Its condition, and a sentence about it.
    pub(super) condition: (Condition, String),
    /// Since when it is a member of a CTA's cluster.
    pub(super) member_since: Option<Instant>,
    /// It is registered in etcd.
    pub(super) is_listed: bool,
    /// UEs that it serves.
    pub(super) ues: usize,
    /// UEs of which it is a replica.
    pub(super) checkpoints: usize,
    /// Checkpoints from which a UE could not be served.
    pub(super) unusable_checkpoints: u64,
    /// Messages of other CPFs that could not be read.
    pub(super) unreadable: u64,
    /// Other CPFs, and those of them whose link was lost and to which messages are still sent again.
    pub(super) peers: (usize, usize),
    /// How often it lost its membership.
    pub(super) rejoins: u64,
    /// Incoming links that were rejected.
    pub(super) rejected: u64,
    /// Heartbeats that were not answered.
    pub(super) ignored: IgnoredHeartbeats,
    /// S-BFD probes that were answered and dropped.
    pub(super) sbfd: SbfdFigures,
    /// What its UEs at rest take, if they rest.
    pub(super) memory: Vec<MetricSample>,
}

impl StatusReporter {
    pub(super) fn new(console: Arc<Console>) -> Self {
        let inputs =
            Histogram::new_with_bounds(1, LONGEST_US, 2).unwrap_or_else(|_| unreachable!("fixed bounds"));
        Self { console, due: Instant::ZERO, inputs, busy_us: 0 }
    }

    /// Does what may run inputs of UEs, and counts those that ran, also those that had waited behind a trial. Each has its share of the time.
    pub(super) fn count_inputs(&mut self, out: &mut CpfOutbox, run: impl FnOnce(&mut CpfOutbox)) {
        let (reports, began) = (out.up.len(), clock::now());
        run(out);
        let took = clock::now().since(began);
        let new = out.up.get(reports..).unwrap_or_default();
        let ran = new.iter().filter(|report| matches!(report, CpfReport::Ran { .. })).count() as u64;
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if let Some(each) = us.checked_div(ran) {
            self.inputs.saturating_record_n(each.clamp(1, LONGEST_US), ran);
            self.busy_us = self.busy_us.saturating_add(us);
        }
    }

    /// How many have run.
    pub(super) fn inputs(&self) -> u64 {
        self.inputs.len()
    }

    /// Whether the status is to be set again.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.due;
        if due {
            self.due = now + EVERY;
        }
        due
    }

    /// Sets the status.
    pub(super) fn report(&self, now: Instant, status: CpfStatus) {
        let one = |metric, value| MetricSample { metric, label: None, value };
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let member_us = status.member_since.map_or(0, |at| now.0.saturating_sub(at.0));
        let mut samples = vec![
            one(Metric::CpfInService, u64::from(status.member_since.is_some())),
            one(Metric::CpfInServiceDuration, member_us),
            one(Metric::CpfListed, u64::from(status.is_listed)),
            one(Metric::CpfUes, count(status.ues)),
            one(Metric::CpfReplicasHeld, count(status.checkpoints)),
            one(Metric::CpfCheckpointsUnusable, status.unusable_checkpoints),
            one(Metric::CpfMessagesUnreadable, status.unreadable),
            one(Metric::CpfPeers, count(status.peers.0)),
            one(Metric::CpfPeersResyncing, count(status.peers.1)),
            one(Metric::CpfRejoins, status.rejoins),
            one(Metric::LinkRejected, status.rejected),
            one(Metric::CpfInputs, self.inputs()),
            one(Metric::CpfBusy, self.busy_us),
        ];
        samples.extend(QUANTILES.map(|(label, quantile)| MetricSample {
            metric: Metric::CpfInputDuration,
            label: Some(label.into()),
            value: if self.inputs.is_empty() { 0 } else { self.inputs.value_at_quantile(quantile) },
        }));
        samples.extend(status.ignored.samples());
        samples.extend(status.sbfd.samples());
        samples.extend(status.memory);
        self.console.metrics.set_samples(samples);
        let (condition, sentence) = status.condition;
        self.console.components(|c| c.set("cpf", condition, sentence));
    }
}
