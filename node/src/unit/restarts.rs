//! When a function that has ended is started again.

use std::time::Duration;

/// A function that lived for so long had started well.
const STARTED_WELL: Duration = Duration::from_secs(10);
/// Ends in a row, each soon after its start, after which a function is given up: with the pauses below some 20 s.
const ENDS_MAX: u32 = 9;
/// The pause before the third start in a row, which doubles up to the longest.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// What is to be done about a function that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartVerdict {
    /// It is started again after this pause.
    StartAfter(Duration),
    /// It ends at each start, and is not started again.
    GiveUp,
}

/// The ends of a function soon after its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restarts {
    in_a_row: u32,
}

impl Restarts {
    /// The function has ended after it had lived for so long.
    pub(super) fn ended(&mut self, lived: Duration) -> RestartVerdict {
        self.in_a_row = if lived >= STARTED_WELL { 1 } else { self.in_a_row + 1 };
        match self.in_a_row {
            1 => RestartVerdict::StartAfter(Duration::ZERO),
            n if n < ENDS_MAX => RestartVerdict::StartAfter((SHORTEST * (1 << (n - 2))).min(LONGEST)),
            _ => RestartVerdict::GiveUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_starts_again_at_once_then_after_longer_pauses_and_is_given_up() {
        let mut restarts = Restarts::default();
        let pauses: Vec<RestartVerdict> = (0..9).map(|_| restarts.ended(Duration::from_millis(20))).collect();
        let after = |ms| RestartVerdict::StartAfter(Duration::from_millis(ms));
        assert_eq!(pauses[..4], [after(0), after(100), after(200), after(400)]);
        assert_eq!(pauses[7..], [after(5000), RestartVerdict::GiveUp]);
    }

    #[test]
    fn a_function_that_had_started_well_starts_again_at_once() {
        let mut restarts = Restarts::default();
        for _ in 0..5 {
            let _ = restarts.ended(Duration::ZERO);
        }
        assert_eq!(restarts.ended(STARTED_WELL), RestartVerdict::StartAfter(Duration::ZERO));
        assert_eq!(restarts.ended(Duration::ZERO), RestartVerdict::StartAfter(SHORTEST));
    }
}
