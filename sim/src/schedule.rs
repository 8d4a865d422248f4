//! When UEs and gNBs want a tick: what is due is found without looking at those that want none.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_ids::Instant;

use crate::{GnbIndex, UeIndex};

/// Who wants a tick. UEs come before gNBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whom {
    Ue(UeIndex),
    Gnb(GnbIndex),
}

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    in_order: BTreeSet<(Instant, Whom)>,
    of: BTreeMap<Whom, Instant>,
}

impl Schedule {
    pub(crate) fn set(&mut self, whom: Whom, deadline: Option<Instant>) {
        let before = match deadline {
            Some(at) => self.of.insert(whom, at),
            None => self.of.remove(&whom),
        };
        if before == deadline {
            return;
        }
        before.map(|at| self.in_order.remove(&(at, whom)));
        deadline.map(|at| self.in_order.insert((at, whom)));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.in_order.first().map(|&(at, _)| at)
    }

    /// Who is due now, each once.
    pub(crate) fn due(&self, now: Instant) -> Vec<Whom> {
        self.in_order.iter().take_while(|(at, _)| *at <= now).map(|&(_, whom)| whom).collect()
    }
}
