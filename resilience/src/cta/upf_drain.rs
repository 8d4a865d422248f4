//! Drain of a UPF before maintenance, at the operator's order or at its own request (TS 29.244 §6.2.8.3): it gets no new sessions, and those that it has get
//! another anchor (TS 23.502 §4.3.5). Rounds over all UEs go on, since a procedure may fail or a UE may not be reached.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{Command, DrainStep, Payload, UpfId};
use whimbrel_ids::Instant;

use super::{Cta, Entropy, Inspect, Outbox};

/// UEs that one slice orders to move their sessions. Idle ones are paged.
const SLICE: usize = 8;
/// Pause between two slices: 400 UEs a second, of whose pagings a gNB may get each.
const BETWEEN_SLICES: Duration = Duration::from_millis(20);
/// Pause after the first round, for sessions that were being set up; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two rounds, for UEs that could not be reached.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time for UEs whose sessions are to be released to answer paging and the release. Where a UE has coverage, T3513 and
/// the repeated commands of T3592 are within it.
pub(super) const RELEASE_TIME: Duration = Duration::from_secs(30);

/// A drain that goes on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct UpfDrain {
    /// When the sessions that cannot be moved are released.
    until: Instant,
    /// The operator ordered it, and ends it. Otherwise the UPF did, and it ends with the association.
    is_ordered: bool,
    step: DrainStep,
    /// The slot at which the next slice begins.
    next: u32,
    due: Instant,
    /// Pause after the present round.
    pause: Duration,
}

impl UpfDrain {
    pub(super) fn new(now: Instant, until: Instant, is_ordered: bool) -> Self {
        let step = DrainStep::Movable;
        Self { until, is_ordered, step, next: 0, due: now, pause: FIRST_PAUSE }.at(now)
    }

    /// The drain as it is at a time: each step begins with a round of its own.
    fn at(self, now: Instant) -> Self {
        let step = match now {
            now if now < self.until => DrainStep::Movable,
            now if now < self.until + RELEASE_TIME => DrainStep::All,
            _ => DrainStep::Rest,
        };
        if step == self.step { self } else { Self { step, next: 0, pause: FIRST_PAUSE, ..self } }
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// A slice was ordered to move its sessions, and the next one begins at this slot, unless the round is over.
    fn after_slice(self, now: Instant, next: Option<u32>) -> Self {
        if let Some(next) = next {
            return Self { next, due: now + BETWEEN_SLICES, ..self };
        }
        let next_step = match self.step {
            DrainStep::Movable => self.until,
            DrainStep::All => self.until + RELEASE_TIME,
            DrainStep::Rest => Instant::FAR_FUTURE,
        };
        let (due, pause) = ((now + self.pause).min(next_step), (self.pause * 2).min(PAUSE_MAX));
        Self { next: 0, due, pause, ..self }
    }
}

/// How far the drain of a UPF is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpfDrainProgress {
    /// The UPF that is drained.
    pub upf: UpfId,
    /// When the sessions that cannot be moved are released.
    pub until: Instant,
    /// The operator ordered it; otherwise the UPF asked for its release.
    pub is_ordered: bool,
    /// UEs that still have sessions there.
    pub ues_left: u32,
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// A UPF is to be drained, and sessions that cannot be moved are released at that time; or the drain ends, and the UPF gets sessions again.
    pub fn drain_upf(&mut self, now: Instant, upf: UpfId, until: Option<Instant>, out: &mut Outbox) {
        self.upfs.set_drain(upf, until.map(|until| UpfDrain::new(now, until, true)));
        self.continue_drains(now, out);
    }

    /// The UPFs that are drained.
    pub fn upf_drains(&self) -> impl Iterator<Item = UpfDrainProgress> + '_ {
        self.upfs.drains().map(|(upf, drain)| UpfDrainProgress {
            upf,
            until: drain.until,
            is_ordered: drain.is_ordered,
            ues_left: self.slots.ues_at(upf),
        })
    }

    /// UEs with a session at a UPF.
    pub fn ues_at_upf(&self, upf: UpfId) -> u32 {
        self.slots.ues_at(upf)
    }

    /// The next slice of UEs of each drained UPF is ordered to move its sessions.
    pub(super) fn continue_drains(&mut self, now: Instant, out: &mut Outbox) {
        let due: Vec<_> = self.upfs.drains().filter(|(_, drain)| drain.due <= now).collect();
        for (upf, drain) in due {
            let drain = drain.at(now);
            let (ues, next) = self.slots.with_sessions_at(upf, drain.next, SLICE);
            let order = Payload::Command(Command::DrainUpf(upf, drain.step));
            self.inbox.extend(ues.into_iter().map(|ue| (ue, order.clone())));
            self.upfs.set_drain(upf, Some(drain.after_slice(now, next)));
        }
        self.run(now, out);
    }
}
