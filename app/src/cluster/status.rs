//! What a CPF says of itself to who runs it (`whimbrel cpf --api`). Of UEs the CTA is asked.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use whimbrel_ids::Instant;

use super::heartbeat::Ignored;
use crate::console::{Condition, Console, Sample};

/// How old what is told may be.
const EVERY: Duration = Duration::from_secs(1);
/// Longest time of an input that is told apart, in microseconds: the watchdog ends who takes longer.
const LONGEST_US: u64 = 1_000_000;
/// What is told of them: median, slowest hundredth, slowest thousandth, slowest.
const QUANTILES: [(&str, f64); 4] = [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999), ("1", 1.0)];

/// The inputs that it ran, and when it told of itself.
pub(super) struct StatusReporter {
    console: Arc<Console>,
    due: Instant,
    inputs: Histogram<u64>,
    busy_us: u64,
}

/// What a CPF is, just now.
#[derive(Debug)]
pub(super) struct State {
    /// How well it serves, in a sentence.
    pub(super) condition: (Condition, String),
    /// Since when it is a member.
    pub(super) member_since: Option<Instant>,
    /// Etcd lists it.
    pub(super) is_listed: bool,
    /// UEs that it serves.
    pub(super) ues: usize,
    /// UEs whose states it holds for others.
    pub(super) states: usize,
    /// States that it could not serve from.
    pub(super) unreadable: u64,
    /// Messages of other CPFs that could not be read.
    pub(super) unread: u64,
    /// Other CPFs, and those of them to which a link has ended and has not been made up for.
    pub(super) others: (usize, usize),
    /// How often it was a member and began anew.
    pub(super) begun_anew: u64,
    /// Calls that were turned away.
    pub(super) turned_away: u64,
    /// Heartbeats that did not count.
    pub(super) ignored: Ignored,
}

impl StatusReporter {
    pub(super) fn new(console: Arc<Console>) -> Self {
        let inputs =
            Histogram::new_with_bounds(1, LONGEST_US, 2).unwrap_or_else(|_| unreachable!("fixed bounds"));
        Self { console, due: Instant::ZERO, inputs, busy_us: 0 }
    }

    /// It ran an input, for so long.
    pub(super) fn ran(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.inputs.saturating_record(us.clamp(1, LONGEST_US));
        self.busy_us = self.busy_us.saturating_add(us);
    }

    /// Whether it is to tell of itself again.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.due;
        if due {
            self.due = now + EVERY;
        }
        due
    }

    /// Tells.
    pub(super) fn tell(&self, now: Instant, state: State) {
        let one = |name, help, value| Sample { name, help, label: None, value };
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let member_us = state.member_since.map_or(0, |at| now.0.saturating_sub(at.0));
        let mut samples = vec![
            one(
                "whimbrel_cpf_member",
                "1 while this CPF is a member of a CTA's cluster",
                u64::from(state.member_since.is_some()),
            ),
            one("whimbrel_cpf_member_seconds", "Seconds since it joined its CTA", member_us),
            one("whimbrel_cpf_listed", "1 while it is registered in etcd", u64::from(state.is_listed)),
            one("whimbrel_cpf_ues", "UEs that it serves", count(state.ues)),
            one("whimbrel_cpf_states_held", "UEs of which it is a replica", count(state.states)),
            one(
                "whimbrel_cpf_states_unreadable_total",
                "Checkpoints from which a UE could not be served, since it joined its CTA",
                state.unreadable,
            ),
            one(
                "whimbrel_cpf_messages_unreadable_total",
                "Messages of other CPFs that could not be decoded: skipped",
                state.unread,
            ),
            one("whimbrel_cpf_peers", "Other CPFs that it knows", count(state.others.0)),
            one(
                "whimbrel_cpf_peers_resyncing",
                "Other CPFs whose link was lost, until all checkpoints were sent again",
                count(state.others.1),
            ),
            one(
                "whimbrel_cpf_rejoins_total",
                "Times that it lost its membership and had to join again",
                state.begun_anew,
            ),
            one("whimbrel_link_rejected_total", "Incoming links that were rejected", state.turned_away),
            one("whimbrel_cpf_inputs_total", "Inputs of UEs that were run", self.inputs.len()),
            one("whimbrel_cpf_busy_seconds_total", "Time spent on these inputs", self.busy_us),
        ];
        samples.extend(QUANTILES.map(|(label, quantile)| Sample {
            name: "whimbrel_cpf_input_seconds",
            help: "Time that one input took, since the start",
            label: Some(("quantile", label.into())),
            value: if self.inputs.is_empty() { 0 } else { self.inputs.value_at_quantile(quantile) },
        }));
        samples.extend(state.ignored.samples());
        self.console.metrics.set_samples(samples);
        let (condition, sentence) = state.condition;
        self.console.components(|c| c.set("CPF", condition, sentence));
    }
}
