//! How long UEs stay in a cell.

use std::collections::BTreeMap;

use crate::city::Cell;
use crate::history::History;

/// Intervals of a histogram: half a second each up to [`FINE_MS`], then a third longer each.
const BINS: usize = 32;
const FINE_MS: u64 = 8_000;
const FINE_BINS: usize = 16;
/// Stays that a histogram holds; beyond, all counts are halved, so that newer ones weigh more.
const STAYS_MAX: u32 = 4_096;

/// The interval of a stay of this length.
fn bin(ms: u64) -> usize {
    match ms {
        0..FINE_MS => (ms / (FINE_MS / FINE_BINS as u64)) as usize,
        _ => {
            let longer = ((ms as f64 / FINE_MS as f64).ln() / (4.0f64 / 3.0).ln()) as usize;
            (FINE_BINS + longer).min(BINS - 1)
        }
    }
}

type Histogram = [u32; BINS];

/// The lengths of stays, by the previous cell and the serving one.
#[derive(Clone, Debug, Default)]
pub struct Dwell(BTreeMap<(Option<Cell>, Cell), Histogram>);

impl Dwell {
    /// A UE leaves its serving cell.
    pub fn learn(&mut self, history: &History, now_ms: u64) {
        let Some((serving, since_ms)) = history.serving() else { return };
        for previous in [history.previous(), None] {
            let histogram = self.0.entry((previous, serving)).or_default();
            histogram[bin(now_ms.saturating_sub(since_ms))] += 1;
            if histogram.iter().sum::<u32>() > STAYS_MAX {
                histogram.iter_mut().for_each(|count| *count /= 2);
            }
            if history.previous().is_none() {
                break;
            }
        }
    }

    /// The probability that a UE leaves its serving cell within this time, given that it is still there.
    #[must_use]
    pub fn leaves_within(&self, history: &History, now_ms: u64, within_ms: u64) -> f32 {
        let Some((serving, since_ms)) = history.serving() else { return 0.0 };
        let of = |previous| self.0.get(&(previous, serving));
        let Some(histogram) = of(history.previous()).or_else(|| of(None)) else { return 0.0 };
        let age_ms = now_ms.saturating_sub(since_ms);
        let (first, last) = (bin(age_ms), bin(age_ms + within_ms));
        let all: u32 = histogram[first..].iter().sum();
        let soon: u32 = histogram[first..=last].iter().sum();
        if all == 0 { 0.0 } else { soon as f32 / all as f32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ue_leaves_when_others_did() {
        let mut dwell = Dwell::default();
        let mut history = History::default();
        history.enters(Cell(1), 0);
        history.enters(Cell(2), 10_000);
        for stay_ms in [30_000, 31_000, 29_000, 90_000] {
            dwell.learn(&history, 10_000 + stay_ms);
        }
        let after = |ms: u64| dwell.leaves_within(&history, 10_000 + ms, 5_000);
        assert_eq!(after(1_000), 0.0);
        assert!(after(27_000) > 0.7, "{}", after(27_000));
        assert_eq!(after(60_000), 0.0);
        assert_eq!(after(400_000), 0.0, "no UE has stayed so long");
        history.enters(Cell(3), 200_000);
        assert_eq!(dwell.leaves_within(&history, 201_000, 5_000), 0.0, "nothing is known of it");
    }

    #[test]
    fn counts_are_bounded_and_the_newer_prevail() {
        let mut dwell = Dwell::default();
        let mut history = History::default();
        history.enters(Cell(1), 0);
        (0..10_000).for_each(|_| dwell.learn(&history, 2_000));
        (0..20_000).for_each(|_| dwell.learn(&history, 100_000));
        assert!(dwell.0.values().all(|h| h.iter().sum::<u32>() <= STAYS_MAX));
        assert!(dwell.leaves_within(&history, 0, 5_000) < 0.1);
    }
}
