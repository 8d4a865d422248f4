//! Which TSNs there are: all up to one, and runs above it.

use std::collections::{BTreeSet, VecDeque};

/// TSNs, extended to 64 bits so that order is plain.
#[derive(Clone, Debug)]
pub(crate) struct Tsns {
    /// All up to this one.
    pub(crate) cum: u64,
    /// Inclusive runs above `cum`, in order, not touching.
    pub(crate) runs: VecDeque<(u64, u64)>,
}

impl Tsns {
    pub(crate) fn up_to(cum: u64) -> Self {
        Self { cum, runs: VecDeque::new() }
    }

    pub(crate) fn has(&self, tsn: u64) -> bool {
        let at = self.runs.partition_point(|r| r.1 < tsn);
        tsn <= self.cum || self.runs.get(at).is_some_and(|r| r.0 <= tsn)
    }

    /// Adds one; false if it would make more runs than `runs_max`.
    pub(crate) fn add(&mut self, tsn: u64, runs_max: usize) -> bool {
        if self.has(tsn) {
            return true;
        }
        if tsn == self.cum + 1 {
            self.cum = tsn;
            if let Some(&(start, end)) = self.runs.front()
                && start == tsn + 1
            {
                self.cum = end;
                self.runs.pop_front();
            }
            return true;
        }
        let at = self.runs.partition_point(|r| r.1 < tsn);
        let joins_left = at > 0 && self.runs.get(at - 1).is_some_and(|r| r.1 + 1 == tsn);
        let joins_right = self.runs.get(at).is_some_and(|r| r.0 == tsn + 1);
        match (joins_left, joins_right) {
            (true, true) => {
                if let Some((_, end)) = self.runs.remove(at) {
                    self.runs[at - 1].1 = end;
                }
            }
            (true, false) => self.runs[at - 1].1 = tsn,
            (false, true) => self.runs[at].0 = tsn,
            (false, false) => {
                if self.runs.len() >= runs_max {
                    return false;
                }
                self.runs.insert(at, (tsn, tsn));
            }
        }
        true
    }

    /// Whether the runs are in order, apart and above `cum`, and far from the end of what is counted.
    pub(crate) fn is_sound(&self) -> bool {
        const MAX: u64 = 1 << 62;
        let mut below = self.cum;
        let apart = self.runs.iter().all(|&(start, end)| {
            let apart = start > below.saturating_add(1) && start <= end;
            below = end;
            apart
        });
        apart && self.cum >= 1 && below < MAX
    }

    /// The same without some of them.
    pub(crate) fn without(&self, some: &BTreeSet<u64>) -> Self {
        let cum = some.first().map_or(self.cum, |first| self.cum.min(first - 1));
        let mut runs = VecDeque::new();
        for &(start, end) in [(cum + 1, self.cum)].iter().chain(&self.runs) {
            let mut next = start;
            for &tsn in some.range(start..end.saturating_add(1).max(start)) {
                if tsn > next {
                    runs.push_back((next, tsn - 1));
                }
                next = tsn + 1;
            }
            if next <= end {
                runs.push_back((next, end));
            }
        }
        Self { cum, runs }
    }
}
