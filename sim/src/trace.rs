//! Which events of a run are kept, and their text.

use whimbrel_ids::Instant;

use crate::{EPOCH, Sim};

impl Sim {
    /// Events are counted and not kept from now on: those of a long simulation would fill the memory.
    pub fn discard_events(&mut self) {
        self.observer.quiet = true;
    }

    /// Keeps events again, and a trace of all messages.
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
    pub(crate) fn trace_text(&self) -> String {
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
