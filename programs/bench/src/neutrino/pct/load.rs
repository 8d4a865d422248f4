//! Open load: when UEs begin something, and when they are done.

use std::collections::BTreeMap;
use std::ops::Range;

use whimbrel_sim::Rng;

/// What UEs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Procedure {
    /// Registration, and a session.
    Attach,
    /// An idle UE gets its session's user plane back.
    ServiceRequest,
    /// From one gNB to the next, through the core.
    Handover,
}

/// What comes so many nanoseconds after the end of a procedure is a timer's, as when the tunnels of a handover are taken down.
const BY_A_TIMER: u64 = 100_000_000;

/// One UE's procedure.
#[derive(Clone, Copy, Debug)]
struct Run {
    procedure: Procedure,
    /// When it was to begin, whether or not anybody had time for it.
    from: u64,
    /// When the last message of the core for it arrived.
    until: u64,
    done: bool,
}

/// What the UEs are at.
#[derive(Debug, Default)]
pub(super) struct Progress(BTreeMap<u32, Run>);

impl Progress {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn begin(&mut self, ue: u32, procedure: Procedure, at: u64) {
        self.0.insert(ue, Run { procedure, from: at, until: at, done: false });
    }

    /// A procedure is due. Returns whether the UE starts it: a UE that was lost before and attaches goes on with that.
    pub(super) fn begins(&mut self, ue: u32, procedure: Procedure, at: u64) -> bool {
        let before = self.0.get(&ue).map(|r| (r.done, r.procedure));
        match before {
            Some((true, before)) if before != Procedure::Attach => self.begin(ue, procedure, at),
            Some((false, before)) if before == procedure => {}
            _ => return false,
        }
        true
    }

    pub(super) fn procedure(&self, ue: u32) -> Option<Procedure> {
        self.0.get(&ue).map(|r| r.procedure)
    }

    pub(super) fn heard(&mut self, ue: u32, at: u64) {
        if let Some(run) = self.0.get_mut(&ue).filter(|r| !r.done || at < r.until + BY_A_TIMER) {
            run.until = at;
        }
    }

    pub(super) fn done(&mut self, ue: u32) {
        if let Some(run) = self.0.get_mut(&ue) {
            run.done = true;
        }
    }

    pub(super) fn is_under_way(&self, ue: u32) -> bool {
        self.0.get(&ue).is_some_and(|r| !r.done)
    }

    /// The UEs that have begun something by a time, whether or not they are done.
    pub(super) fn begun(&self, now: u64) -> impl Iterator<Item = u32> {
        self.0.iter().filter(move |(_, r)| r.from <= now).map(|(ue, _)| *ue)
    }

    /// The UEs that are at something at a time.
    pub(super) fn under_way(&self, now: u64) -> impl Iterator<Item = u32> {
        self.0.iter().filter(move |(_, r)| !r.done && r.from <= now).map(|(ue, _)| *ue)
    }

    /// How long a UE's procedure took, in nanoseconds, if it is done.
    pub(super) fn time(&self, ue: u32) -> Option<u64> {
        self.0.get(&ue).filter(|r| r.done).map(|r| r.until - r.from)
    }

    /// The UE's procedure was lost with its CPF: it attaches, which is counted until that is done.
    pub(super) fn attaches_again(&mut self, ue: u32) {
        if let Some(run) = self.0.get_mut(&ue) {
            run.procedure = Procedure::Attach;
        }
    }

    /// Completion times, and how many did not complete.
    pub(super) fn times(&self) -> Times {
        self.0.keys().map(|ue| self.time(*ue)).collect()
    }
}

/// How long procedures took.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    nanos: Vec<u64>,
    /// How many did not complete.
    pub(super) failed: usize,
}

impl FromIterator<Option<u64>> for Times {
    /// Of times in nanoseconds; nothing: it did not complete.
    fn from_iter<I: IntoIterator<Item = Option<u64>>>(all: I) -> Self {
        let mut times = Self::default();
        for time in all {
            match time {
                Some(nanos) => times.nanos.push(nanos),
                None => times.failed += 1,
            }
        }
        times.nanos.sort_unstable();
        times
    }
}

impl Times {
    /// How many completed.
    pub(super) fn len(&self) -> usize {
        self.nanos.len()
    }

    /// The time that this part of them did not exceed, in microseconds.
    pub(super) fn quantile(&self, q: f64) -> f64 {
        let last = self.nanos.len().saturating_sub(1);
        self.nanos.get((last as f64 * q).round() as usize).map_or(f64::NAN, |ns| *ns as f64 / 1000.0)
    }
}

/// Poisson arrivals of `count` of the UEs at so many a second, in nanoseconds from the beginning: independent UEs, uniformly at
/// random.
pub(super) fn uniform(rng: &mut Rng, ues: Range<u32>, count: u32, per_s: f64) -> Vec<(u64, u32)> {
    let mut order: Vec<u32> = ues.collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let mut at = 0.0;
    let arrivals = order.into_iter().take(count as usize).map(|ue| {
        let u = (rng.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
        at += -u.ln() / per_s * 1e9;
        (at as u64, ue)
    });
    arrivals.collect()
}

/// A number of UEs start within some nanoseconds, evenly: triggered by one clock.
pub(super) fn burst(ues: u32, within: u64) -> Vec<(u64, u32)> {
    (0..ues).map(|n| (u64::from(n) * within / u64::from(ues.max(1)), n)).collect()
}
