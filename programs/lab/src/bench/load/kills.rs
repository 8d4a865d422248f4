//! Kills CPFs during the load, and reads how the UEs fared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::REGION;
use crate::playground::Playground;
use whimbrel_node::observation::Metric;

/// How often the start and the end of the load are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Kills the CPFs in turn, one `every` interval while the load runs. Returns how many. Errors: one sentence.
pub(super) fn kill(
    playground: &mut Playground,
    every: Duration,
    on: &AtomicBool,
    over: &AtomicBool,
) -> Result<u32, String> {
    let of = playground.pids().len() - 1;
    let (mut killed, mut due) = (0, None);
    while !over.load(Ordering::Acquire) {
        std::thread::sleep(CHECK_INTERVAL);
        if !on.load(Ordering::Acquire) || of == 0 {
            continue;
        }
        // The first one after half an interval, so that a short run has one too.
        let at = *due.get_or_insert_with(|| Instant::now() + every / 2);
        if Instant::now() >= at {
            playground.kill_cpf(killed as usize % of, REGION)?;
            killed += 1;
            due = Some((at + every).max(Instant::now()));
        }
    }
    Ok(killed)
}

/// The core's counters of the losses. Times are in microseconds, from the detection by the CTA.
pub(super) struct Kills {
    killed: u32,
    taken_over: f64,
    replayed: f64,
    pub(super) lost: f64,
    /// UEs with a procedure in progress or a message soon after, and how long they waited: median, 99th percentile, maximum.
    recovered: f64,
    recovery_us: [f64; 3],
    /// Longest time until each UE of a lost CPF had a new primary.
    all_us: f64,
}

impl Kills {
    pub(super) fn read(killed: u32, playground: &Playground) -> Result<Self, String> {
        let client = playground.client();
        let quantile = |of: Metric, q: &str| {
            let seconds = client.metric(of, Some(q))?;
            Ok::<f64, String>((seconds * 1e6).round())
        };
        Ok(Self {
            killed,
            taken_over: client.metric(Metric::UesTakenOver, None)?,
            replayed: client.metric(Metric::InputsReplayed, None)?,
            lost: client.metric(Metric::UesLost, None)?,
            recovered: client.metric(Metric::UesRecovered, None)?,
            recovery_us: [
                quantile(Metric::RecoveryDuration, "0.5")?,
                quantile(Metric::RecoveryDuration, "0.99")?,
                quantile(Metric::RecoveryDuration, "1")?,
            ],
            all_us: quantile(Metric::RecoveryAllDuration, "1")?,
        })
    }

    pub(super) fn text(&self) -> String {
        let [p50, p99, slowest] = self.recovery_us;
        format!(
            "CPFs killed: {}; UEs taken over: {}, lost: {}; inputs replayed: {}\n\
             recovery, from the detection by the CTA: {} UEs had a procedure under way, or came before their turn: p50 {p50} us, p99 {p99}, slowest \
             {slowest} (aim: under 1000 in the median); each UE had a new primary after {} us at most\n\
             what UEs had of it, detection included, is in the column `slowest`\n",
            self.killed, self.taken_over, self.lost, self.replayed, self.recovered, self.all_us
        )
    }

    pub(super) fn json(&self) -> Value {
        let [p50, p99, slowest] = self.recovery_us;
        json!({
            "killed": self.killed,
            "taken_over": self.taken_over,
            "lost": self.lost,
            "replayed": self.replayed,
            "recovered": self.recovered,
            "recovery_us": {"p50": p50, "p99": p99, "max": slowest},
            "last_ue_us": self.all_us,
        })
    }
}
