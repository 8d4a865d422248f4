//! When accesses are counted: for one period in every N.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The switch between the thread that owns a heap and the timer that opens its counting windows.
///
/// Sampling one access in N would cost a branch that no processor predicts, and would count only a part of the records that are
/// used together. A window counts all accesses for one period, then none for N − 1 periods; the branch is predicted in both.
#[derive(Clone, Debug)]
pub struct Activation(Arc<ActivationState>);

#[derive(Debug)]
struct ActivationState {
    active: AtomicBool,
    every: AtomicU32,
    period: AtomicU32,
}

impl Activation {
    /// Counts in one of `every` periods, and in the first one. With `every` 1, always.
    #[must_use]
    pub fn one_in(every: u32) -> Self {
        let shared = ActivationState {
            active: AtomicBool::new(true),
            every: AtomicU32::new(every.max(1)),
            period: AtomicU32::new(0),
        };
        Self(Arc::new(shared))
    }

    /// The next period begins. A timer calls this, once a millisecond for instance.
    pub fn next_period(&self) {
        let period = self.0.period.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.0.active.store(period.is_multiple_of(self.0.every.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    /// Whether accesses are counted now.
    #[inline]
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.0.active.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_counted_in_one_period_of_n() {
        let activation = Activation::one_in(4);
        let timer = activation.clone();
        let mut active = Vec::new();
        for _ in 0..9 {
            active.push(activation.is_active());
            timer.next_period();
        }
        assert_eq!(active, [true, false, false, false, true, false, false, false, true]);
    }

    #[test]
    fn one_in_one_counts_always() {
        let activation = Activation::one_in(1);
        (0..5).for_each(|_| activation.next_period());
        assert!(activation.is_active());
    }
}
