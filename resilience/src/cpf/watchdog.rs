//! An input that never comes to an end is noticed from beside: by a thread that looks, every so often, at what the working one is at.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the working thread is at. Shared with the one that looks.
#[derive(Debug, Default)]
pub struct InputProgress(AtomicU64);

impl InputProgress {
    /// An input begins.
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// It has come to its end.
    pub fn end(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Odd while an input is at work, and another number with each.
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Says when one input has been at work for too long: at so many looks one after the other, so that a process that was stopped, and does not
/// look either, accuses nobody.
#[derive(Debug)]
pub struct Watchdog {
    looks_max: u32,
    at: u64,
    looks: u32,
}

impl Watchdog {
    /// One whose input may be seen at so many looks and no more: its budget is theirs less one, times the interval between them.
    pub fn new(looks_max: u32) -> Self {
        Self { looks_max, at: 0, looks: 0 }
    }

    /// Looks; whether the input that is at work should have ended.
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
    fn rest_is_not_work() {
        let (work, mut dog) = (InputProgress::default(), Watchdog::new(1));
        assert!((0..100).all(|_| !dog.look(&work)));
        work.begin();
        assert!(!dog.look(&work));
        work.end();
        assert!((0..100).all(|_| !dog.look(&work)));
    }
}
