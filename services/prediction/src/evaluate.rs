//! Right and wrong predictions, by the time before the handover.

use crate::city::Cell;
use crate::history::{History, PositionReport};
use crate::trip::Trip;

/// The upper ends of the intervals before a handover in which predictions are counted, in milliseconds; the last one is open (Synergy, figure 7).
pub const BEFORE_HANDOVER_MS: [u64; 3] = [1_000, 5_000, 10_000];

/// Says which cell will serve a UE next.
pub trait Predictor {
    /// What it remembers of each UE, beside the history.
    type Memory: Default;

    /// A UE with this history was handed over to a cell.
    fn learn(&mut self, history: &History, next: Cell);

    /// A UE has this history now.
    fn observe(&self, _memory: &mut Self::Memory, _history: &History, _now_ms: u64) {}

    /// The likeliest next cell. `None` if it knows nothing of the serving cell.
    fn predict(&self, memory: &Self::Memory, history: &History) -> Option<Cell>;
}

/// Predictions that were right, wrong, and not made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// By interval: right, wrong, none.
    pub counts: [[u64; 3]; BEFORE_HANDOVER_MS.len() + 1],
}

impl Evaluation {
    /// Has a predictor learn from a trip's handovers.
    pub fn train(predictor: &mut impl Predictor, trip: &Trip) {
        replay(trip, |history, _, handover| {
            if let Some(next) = handover {
                predictor.learn(history, next);
            }
        });
    }

    /// Asks a predictor at every sample of a trip that a handover follows.
    pub fn add<P: Predictor>(&mut self, predictor: &P, trip: &Trip) {
        let mut predictions = Vec::new();
        let mut memory = P::Memory::default();
        replay(trip, |history, at_ms, handover| {
            let Some(next) = handover else {
                predictor.observe(&mut memory, history, at_ms);
                return predictions.push((at_ms, predictor.predict(&memory, history)));
            };
            for (predicted_ms, cell) in predictions.drain(..) {
                let before_ms = at_ms - predicted_ms;
                let interval = BEFORE_HANDOVER_MS.iter().position(|end| before_ms <= *end);
                let outcome = match cell {
                    Some(cell) if cell == next => 0,
                    Some(_) => 1,
                    None => 2,
                };
                self.counts[interval.unwrap_or(BEFORE_HANDOVER_MS.len())][outcome] += 1;
            }
        });
    }

    /// The share of right predictions in an interval, among all samples.
    #[must_use]
    pub fn right(&self, interval: usize) -> f64 {
        let [right, wrong, none] = self.counts[interval];
        right as f64 / (right + wrong + none).max(1) as f64
    }
}

/// Follows a trip as the core sees it: `visit` gets the history and the time at each sample, and at each handover the next cell too, before
/// that is in the history.
pub(crate) fn replay(trip: &Trip, mut visit: impl FnMut(&History, u64, Option<Cell>)) {
    let mut history = History::default();
    for sample in &trip.samples {
        if history.serving().is_some_and(|(serving, _)| serving != sample.cell) {
            visit(&history, sample.at_ms, Some(sample.cell));
        }
        history.enters(sample.cell, sample.at_ms);
        history.reports(PositionReport { at_ms: sample.at_ms, position: sample.position });
        visit(&history, sample.at_ms, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::city::Point;
    use crate::trip::{SAMPLE_MS, TripSample};

    /// Predicts one cell, always.
    struct Always(Option<Cell>);

    impl Predictor for Always {
        type Memory = ();

        fn learn(&mut self, _: &History, _: Cell) {}

        fn predict(&self, (): &(), _: &History) -> Option<Cell> {
            self.0
        }
    }

    /// Twelve seconds in cell 1, then cell 2, where the trip ends without a further handover.
    fn trip() -> Trip {
        let sample = |n: u64| TripSample {
            at_ms: n * SAMPLE_MS,
            position: Point::default(),
            cell: Cell(if n < 24 { 1 } else { 2 }),
        };
        Trip { samples: (0..30).map(sample).collect() }
    }

    fn evaluated(cell: Option<Cell>) -> [[u64; 3]; 4] {
        let mut evaluation = Evaluation::default();
        evaluation.add(&Always(cell), &trip());
        evaluation.counts
    }

    #[test]
    fn predictions_are_counted_by_the_time_before_the_handover() {
        assert_eq!(evaluated(Some(Cell(2))), [[2, 0, 0], [8, 0, 0], [10, 0, 0], [4, 0, 0]]);
        assert_eq!(evaluated(Some(Cell(3))), [[0, 2, 0], [0, 8, 0], [0, 10, 0], [0, 4, 0]]);
        assert_eq!(evaluated(None)[0], [0, 0, 2]);
    }

    #[test]
    fn the_share_of_right_predictions_is_of_all_samples() {
        let evaluation = Evaluation { counts: [[6, 2, 2], [0, 0, 0], [0, 0, 0], [0, 0, 0]] };
        assert_eq!((evaluation.right(0), evaluation.right(1)), (0.6, 0.0));
    }
}
