//! What a simulation tells of what happened in it.

use whimbrel_ids::Instant;

use crate::{EPOCH, Sim};

impl Sim {
    /// Keeps no events from now on, and no inputs: what a long simulation could not hold. They are counted still.
    pub fn discard_events(&mut self) {
        self.observer.quiet = true;
    }

    /// Keeps events again, and what crosses the core's edges.
    pub(crate) fn trace_all(&mut self) {
        self.observer.quiet = false;
        self.observer.trace.get_or_insert_default();
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.observer.trace {
            trace.push((now, line()));
        }
    }

    /// What happened since [`Sim::trace_all`], a line each, with its time in microseconds.
    pub(crate) fn told(&self) -> String {
        let ues = self.ran.ues.iter().enumerate();
        let of_ues =
            ues.flat_map(|(n, t)| t.events.iter().map(move |(at, e)| (*at, format!("UE {n}: {e:?}"))));
        let of_core = self.events.ues.iter().map(|(at, e)| (*at, format!("core: {e:?}")));
        let traced = self.observer.trace.iter().flatten().cloned();
        let mut all: Vec<(Instant, String)> = traced.chain(of_ues).chain(of_core).collect();
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(at, line)| format!("\n  {}: {line}", at.0 - EPOCH.0)).collect()
    }
}
