//! The part that a primary CTA and its replica share.

use whimbrel_control::udm::Subscribers;
use whimbrel_ids::Instant;

use super::record::{Beside, CpfLinks, RecordedStep, Snapshot};
use crate::cta::ExternalSource;
use crate::{Cta, Entropy, Inspect, OrderOutcome, Outbox};

/// A CTA with its ends of the links to CPFs.
pub(super) struct Machine<S, E, I> {
    pub(super) cta: Cta<S, E, I>,
    pub(super) links: CpfLinks,
    /// The last input.
    pub(super) number: u64,
    /// Its time, by the clock of the host where the UEs began.
    pub(super) now: Instant,
    /// Whether there may be a replica: else messages on links are not kept.
    pub(super) replicable: bool,
}

/// The outcome of an input.
pub(super) struct InputOutcome {
    pub(super) ordered: OrderOutcome,
    /// The source of external values, with those recorded or left over.
    pub(super) outside: ExternalSource,
}

impl<S: Subscribers, E: Entropy, I: Inspect> Machine<S, E, I> {
    pub(super) fn new(cta: Cta<S, E, I>, replicable: bool) -> Self {
        Self { cta, links: CpfLinks::new(), number: 0, now: Instant::ZERO, replicable }
    }

    pub(super) fn snapshot(&mut self) -> Option<Snapshot> {
        let beside = Beside { links: &self.links, number: self.number, now: self.now };
        Some(Snapshot::of(&self.cta.state()?, &beside))
    }

    /// Runs an input and appends its outputs to `out`.
    pub(super) fn run(
        &mut self,
        now: Instant,
        step: RecordedStep<'_>,
        outside: ExternalSource,
        out: &mut Outbox,
    ) -> InputOutcome {
        self.number += 1;
        self.now = now;
        let mut lost = None;
        match step {
            RecordedStep::Cpf(from, has, _) if self.replicable && self.cta.trusts(from) => {
                let link = self.links.entry(from).or_default();
                link.took();
                link.confirmed(has);
            }
            RecordedStep::CpfLost(cpf) => lost = Some(cpf),
            _ => {}
        }
        let before = out.cpfs.len();
        self.cta.outside(outside);
        let ordered = step.run(&mut self.cta, now, out);
        let outside = self.cta.outside(ExternalSource::Live);
        if self.replicable {
            for (to, message) in out.cpfs.iter().skip(before) {
                self.links.entry(*to).or_default().sent(message.clone());
            }
        }
        if let Some(lost) = lost {
            self.links.remove(&lost);
        }
        InputOutcome { ordered, outside }
    }
}
