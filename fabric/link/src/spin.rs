//! How long a process looks for the next message before it sleeps.

use core::time::Duration;

use whimbrel_ids::Instant;

/// Looks in vain before a process stops to look: two processes that share one processor only keep each other from it.
const FRUITLESS_MAX: u32 = 4;
/// Of so many sleeps after that, before one it looks again: the processes may have got processors of their own.
const TRIED_EVERY: u32 = 16;

/// When a process that finds nothing looks again at once, and when it sleeps.
#[derive(Debug)]
pub struct Spin {
    longest: Duration,
    until: Instant,
    /// Nothing has come since the last message, and the process looks.
    looks: bool,
    /// Sleeps since something came while the process looked.
    fruitless: u32,
    /// The present pause is counted.
    counted: bool,
}

impl Spin {
    /// Looks for so long at most.
    pub const fn new(longest: Duration) -> Self {
        Self { longest, until: Instant::ZERO, looks: false, fruitless: 0, counted: true }
    }

    /// Notes that something has come.
    pub fn came(&mut self, now: Instant) {
        if core::mem::take(&mut self.looks) {
            self.fruitless = 0;
        }
        let tries = self.fruitless < FRUITLESS_MAX || self.fruitless.is_multiple_of(TRIED_EVERY);
        self.until = if tries { now + self.longest } else { now };
        self.counted = false;
    }

    /// Nothing came. Returns whether to look again at once; if not, the process sleeps.
    pub fn looks_again(&mut self, now: Instant) -> bool {
        self.looks = now < self.until;
        if !self.looks && !core::mem::replace(&mut self.counted, true) {
            self.fruitless = self.fruitless.saturating_add(1);
        }
        self.looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(50);

    /// A message comes; nothing follows within the time. How long the process looks.
    fn pause(spin: &mut Spin, now: &mut Instant) -> Duration {
        spin.came(*now);
        let begun = *now;
        while spin.looks_again(*now) {
            *now = *now + Duration::from_micros(1);
        }
        assert!(!spin.looks_again(*now), "a pause counts once");
        now.since(begun)
    }

    #[test]
    fn a_process_that_looks_in_vain_stops_to_look_and_tries_again_now_and_then() {
        let (mut spin, mut now) = (Spin::new(LONGEST), Instant(1_000_000));
        let looked: Vec<bool> = (0..40).map(|_| !pause(&mut spin, &mut now).is_zero()).collect();
        let at: Vec<usize> = looked.iter().enumerate().filter(|(_, l)| **l).map(|(n, _)| n).collect();
        assert_eq!(at, [0, 1, 2, 3, 16, 32]);
    }

    #[test]
    fn a_message_that_comes_while_a_process_looks_has_it_look_after_each_message() {
        let (mut spin, mut now) = (Spin::new(LONGEST), Instant(1_000_000));
        for _ in 0..16 {
            pause(&mut spin, &mut now);
        }
        spin.came(now);
        assert!(spin.looks_again(now));
        for _ in 0..FRUITLESS_MAX {
            assert_eq!(pause(&mut spin, &mut now), LONGEST);
        }
        assert_eq!(pause(&mut spin, &mut now), Duration::ZERO);
    }
}
