//! The processor's time that a piece of work takes, whatever else the machine does meanwhile.

use std::sync::LazyLock;

use rustix::time::{ClockId, clock_gettime};

/// What reading the clock twice adds to what is measured between.
static OVERHEAD: LazyLock<u64> = LazyLock::new(|| {
    let pair = |_| {
        let began = now();
        now() - began
    };
    (0..1000).map(pair).min().unwrap_or(0)
});

/// Nanoseconds that this thread has run.
fn now() -> u64 {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// What `work` gives, and the nanoseconds of processor time that it took.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let overhead = *OVERHEAD;
    let began = now();
    let done = work();
    (done, (now() - began).saturating_sub(overhead))
}
