//! The timers of UEs and gNBs, in the order in which they are due.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_ids::Instant;

use crate::{GnbIndex, UeIndex};

/// The owner of a timer. UEs come before gNBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerOwner {
    Ue(UeIndex),
    Gnb(GnbIndex),
}

#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    in_order: BTreeSet<(Instant, TimerOwner)>,
    of: BTreeMap<TimerOwner, Instant>,
}

impl TimerQueue {
    pub(crate) fn set(&mut self, owner: TimerOwner, deadline: Option<Instant>) {
        let before = match deadline {
            Some(at) => self.of.insert(owner, at),
            None => self.of.remove(&owner),
        };
        if before == deadline {
            return;
        }
        before.map(|at| self.in_order.remove(&(at, owner)));
        deadline.map(|at| self.in_order.insert((at, owner)));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.in_order.first().map(|&(at, _)| at)
    }

    /// The owners of the timers that are due now, each once.
    pub(crate) fn due(&self, now: Instant) -> Vec<TimerOwner> {
        self.in_order.iter().take_while(|(at, _)| *at <= now).map(|&(_, owner)| owner).collect()
    }
}
