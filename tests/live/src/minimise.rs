//! Cuts a case down: what need not be done is left out, as long as the rest still goes wrong (delta debugging).

use std::time::{Duration, Instant};

/// Tries that are worth their time at most.
const TRIES_MAX: usize = 200;

/// The smallest list found for which `fails` holds, within the time. `None` if not even the whole fails again.
pub(crate) fn minimise<T: Clone>(
    all: &[T],
    time: Duration,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Option<Vec<T>> {
    let begin = Instant::now();
    let mut tries = 0;
    let mut try_out = |list: &[T]| {
        tries += 1;
        tries <= TRIES_MAX && begin.elapsed() < time && fails(list)
    };
    // What went wrong was mostly done last.
    let mut n = 8;
    let mut least = loop {
        let tail = all.get(all.len().saturating_sub(n)..).unwrap_or_default();
        if try_out(tail) {
            break tail.to_vec();
        }
        if n >= all.len() {
            return None;
        }
        n *= 4;
    };
    let mut piece = least.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let before = least.len();
        while at < least.len() {
            let end = (at + piece).min(least.len());
            let rest: Vec<T> = least.iter().take(at).chain(least.iter().skip(end)).cloned().collect();
            if try_out(&rest) {
                least = rest;
            } else {
                at = end;
            }
        }
        if piece == 1 && least.len() == before {
            return Some(least);
        }
        piece = piece.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_must_come_together_are_found() {
        let all: Vec<u32> = (0..300).collect();
        let fails = |list: &[u32]| list.contains(&123) && list.contains(&290);
        assert_eq!(minimise(&all, Duration::from_secs(9), fails), Some(vec![123, 290]));
        assert_eq!(minimise(&all, Duration::from_secs(9), |_| false), None);
    }
}
