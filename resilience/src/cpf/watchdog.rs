//! Detection of an input that never ends: a second thread samples the progress of the working one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Progress of the working thread, shared with the watching one.
#[derive(Debug, Default)]
pub struct InputProgress(AtomicU64);

impl InputProgress {
    /// An input begins.
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The input has ended.
    pub fn end(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Odd while an input runs, and another number with each.
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reports when one input has run for too long: at so many samples in a row, so that a process that was stopped, and took no samples
/// either, is not blamed.
#[derive(Debug)]
pub struct Watchdog {
    looks_max: u32,
    at: u64,
    looks: u32,
}

impl Watchdog {
    /// One that allows an input `looks_max` samples: its time limit is one less, times the interval between them.
    pub fn new(looks_max: u32) -> Self {
        Self { looks_max, at: 0, looks: 0 }
    }

    /// Takes a sample. Returns whether the running input should have ended.
    pub fn look(&mut self, work: &InputProgress) -> bool {
        let at = work.now();
        if at.is_multiple_of(2) {
            self.looks = 0;
        } else if at == self.at {
            self.looks += 1;
        } else {
            (self.at, self.looks) = (at, 1);
        }
        self.looks > self.looks_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_is_seen_too_often_should_have_ended() {
        let (work, mut dog) = (InputProgress::default(), Watchdog::new(5));
        work.begin();
        assert!((0..5).all(|_| !dog.look(&work)));
        assert!(dog.look(&work));
    }

    #[test]
    fn many_inputs_are_not_one_long_one() {
        let (work, mut dog) = (InputProgress::default(), Watchdog::new(1));
        for _ in 0..100 {
            work.begin();
            assert!(!dog.look(&work));
            work.end();
        }
    }

    #[test]
    fn an_idle_thread_is_not_reported() {
        let (work, mut dog) = (InputProgress::default(), Watchdog::new(1));
        assert!((0..100).all(|_| !dog.look(&work)));
        work.begin();
        assert!(!dog.look(&work));
        work.end();
        assert!((0..100).all(|_| !dog.look(&work)));
    }
}
