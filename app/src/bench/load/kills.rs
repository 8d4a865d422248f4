//! CPFs that die while the load is on, and what UEs had of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::playground::Playground;

/// How often it is looked whether the load has begun, or ended.
const LOOK: Duration = Duration::from_millis(10);

/// Kills one CPF after the other, one every so often, from when the load is on until it is over. Gives how many. Errors: one
/// sentence.
pub(super) fn kill(
    playground: &mut Playground,
    every: Duration,
    on: &AtomicBool,
    over: &AtomicBool,
) -> Result<u32, String> {
    let of = playground.pids().len() - 1;
    let (mut killed, mut due) = (0, None);
    while !over.load(Ordering::Acquire) {
        std::thread::sleep(LOOK);
        if !on.load(Ordering::Acquire) || of == 0 {
            continue;
        }
        // The first one after half of it: a short run sees one too.
        let at = *due.get_or_insert_with(|| Instant::now() + every / 2);
        if Instant::now() >= at {
            playground.lose_cpf(killed as usize % of)?;
            killed += 1;
            due = Some((at + every).max(Instant::now()));
        }
    }
    Ok(killed)
}

/// What the core counted of it. Times are microseconds, and begin when the CTA notices.
pub(super) struct Kills {
    killed: u32,
    taken_over: f64,
    replayed: f64,
    pub(super) lost: f64,
    /// UEs that were at something then or came soon after, and how long they waited: median, slowest hundredth, slowest.
    recovered: f64,
    recovery_us: [f64; 3],
    /// Until each UE had somebody else, the slowest of the losses.
    all_us: f64,
}

impl Kills {
    pub(super) fn told(killed: u32, playground: &Playground) -> Result<Self, String> {
        let client = playground.client();
        let quantile = |of: &str, q: &str| {
            let seconds = client.metric(&format!("whimbrel_recovery{of}_seconds{{quantile=\"{q}\"}}"))?;
            Ok::<f64, String>((seconds * 1e6).round())
        };
        Ok(Self {
            killed,
            taken_over: client.metric("whimbrel_ues_taken_over_total")?,
            replayed: client.metric("whimbrel_inputs_replayed_total")?,
            lost: client.metric("whimbrel_ues_lost_total")?,
            recovered: client.metric("whimbrel_ues_recovered_total")?,
            recovery_us: [quantile("", "0.5")?, quantile("", "0.99")?, quantile("", "1")?],
            all_us: quantile("_all", "1")?,
        })
    }

    pub(super) fn text(&self) -> String {
        let [p50, p99, slowest] = self.recovery_us;
        format!(
            "CPFs killed: {}; UEs taken over: {}, lost: {}; messages run again: {}\n\
             recovery, from when the CTA noticed: {} UEs were at something, or came before their turn: p50 {p50} us, p99 {p99}, slowest \
             {slowest} (aim: under 1000 in the median); each UE had somebody else after {} us at most\n\
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
