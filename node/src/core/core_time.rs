//! How long the core itself works on a procedure: the time between receiving a message and having sent what it causes,
//! summed over the procedure's messages. What peers take to answer is not in it.

use std::time::{Duration, Instant};

use tracing::error;
use whimbrel_control::{Batch, Effect, Event, Output, Procedure, UeId};
use whimbrel_resilience::Inspect;

use super::last_inputs::LastInputs;

/// Adds up the time of each UE's procedure.
pub(super) struct CoreTime {
    since: Instant,
    /// Nanoseconds by slot, since the UE's last procedure ended.
    spent: Vec<u32>,
    /// The slot whose input ran last: sending its outputs counts for it.
    last: usize,
    ended: Vec<(usize, Procedure)>,
    /// Where UEs' inputs are noted for the next CTA of this unit.
    last_inputs: Option<LastInputs>,
}

impl Default for CoreTime {
    fn default() -> Self {
        Self { since: Instant::now(), spent: Vec::new(), last: 0, ended: Vec::new(), last_inputs: None }
    }
}

impl CoreTime {
    /// Begins a turn: messages are about to be received.
    pub(super) fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Ends a turn: all outputs are sent. Reports the procedures that ended with it.
    pub(super) fn end(&mut self, mut report: impl FnMut(Procedure, Duration)) {
        self.charge(self.last);
        for (slot, procedure) in self.ended.drain(..) {
            let spent = self.spent.get_mut(slot).map_or(0, std::mem::take);
            report(procedure, Duration::from_nanos(spent.into()));
        }
    }

    /// Has the inputs of UEs noted from now on.
    pub(super) fn note_inputs(&mut self, file: LastInputs) {
        self.last_inputs = Some(file);
    }

    fn charge(&mut self, slot: usize) {
        let now = Instant::now();
        let nanos = u32::try_from((now - self.since).as_nanos()).unwrap_or(u32::MAX);
        self.since = now;
        if let Some(spent) = self.spent.get_mut(slot) {
            *spent = spent.saturating_add(nanos);
        }
    }
}

/// Whether a batch only acknowledges a report of a UPF: what it has changed is the count of octets.
fn is_report(batch: &Batch) -> bool {
    let acknowledges = |output: &Output| matches!(output.effect, Effect::N4Answer { .. });
    !batch.outputs.is_empty() && batch.outputs.iter().all(acknowledges)
}

impl Inspect for CoreTime {
    fn released(&mut self, ue: UeId, clock: u64, batch: &Batch) {
        if let Some(file) = &self.last_inputs
            && !batch.no_effect
            && !is_report(batch)
            && let Err(e) = file.note(ue, clock)
        {
            // Without the file no stored state counts as a UE's last.
            error!("UEs would not stay connected if all control functions ended at once: {e}");
            let _ = file.clear();
            self.last_inputs = None;
        }
        let slot = ue.slot as usize;
        if self.spent.len() <= slot {
            self.spent.resize(slot + 1, 0);
        }
        if clock == 1 {
            self.spent[slot] = 0; // the slot has a new UE
        }
        self.last = slot;
        self.charge(slot);
        for event in &batch.events {
            if let Event::Completed { procedure, .. } = event {
                self.ended.push((slot, *procedure));
            }
        }
    }
}
