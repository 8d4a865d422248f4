//! Lets a core have the UEs of a whole network, for demonstrations and measurements.

use tracing::warn;
use whimbrel_control::{Prf, UeContext};
use whimbrel_ids::{Instant, Supi};

use super::control_loop::PrimaryCta;
use crate::observation::{Metric, MetricSample};

/// UE contexts that are added for a demonstration or a measurement, each like one of the UEs that have registered.
pub(super) struct AddedUes {
    prf: Prf,
    /// UEs that have registered and rest.
    like: Vec<UeContext>,
    next: u32,
    of: u32,
}

impl AddedUes {
    /// UEs that are added between two turns: some milliseconds.
    const PER_TURN: u32 = 200;
    /// The digits of the first SUPI: behind all that a store has.
    const FIRST: u64 = 999_705_000_000_000;

    pub(super) fn new(of: u32) -> Self {
        Self { prf: Prf::new(b"UEs of a network"), like: Vec::new(), next: 0, of }
    }

    /// Adds some. Returns whether more are to be added now.
    pub(super) fn turn(&mut self, now: Instant, active: &mut PrimaryCta) -> bool {
        if self.next == self.of {
            return false;
        }
        if self.like.is_empty() {
            let cta = active.cta();
            if cta.registered() < Self::LIKE || cta.connected() > 0 {
                return false;
            }
            let idle = cta.contexts().filter(|ue| ue.is_idle() && !ue.is_connected());
            self.like = idle.cloned().collect();
            if self.like.is_empty() {
                return false;
            }
        }
        for n in self.next..self.of.min(self.next + Self::PER_TURN) {
            let like = &self.like[n as usize % self.like.len()];
            let supi = (Self::FIRST + u64::from(n)).to_string().parse::<Supi>();
            let (Ok(supi), prf) = (supi, &self.prf) else { continue };
            if !active.add_idle_ue(now, |id, tmsi| like.another(id, n.into(), supi, tmsi, prf)) {
                warn!("no more than {n} UEs are added: the limit of UEs is reached");
                self.of = n;
                return false;
            }
            self.next = n + 1;
        }
        true
    }

    /// How many UEs have to be registered before UEs like them are added.
    const LIKE: usize = 16;

    pub(super) fn sample(&self) -> Option<MetricSample> {
        (self.of > 0).then(|| MetricSample { metric: Metric::UesAdded, label: None, value: self.next.into() })
    }
}
