//! Steps down a gradient (Adam).

use std::ops::Range;

const MEAN_DECAY: f32 = 0.9;
const SQUARE_DECAY: f32 = 0.999;
/// Step sizes at the beginning and at the end.
const RATE: (f32, f32) = (3e-3, 2e-4);
/// Gradients are scaled down to this length: a single odd trip must not undo what others taught.
const LENGTH_MAX: f32 = 5.0;

#[derive(Clone, Debug)]
pub(crate) struct Adam {
    pub(crate) gradients: Vec<f32>,
    means: Vec<f32>,
    squares: Vec<f32>,
    updates: u64,
    planned: u64,
}

impl Adam {
    /// For so many parameters, and about this many updates.
    pub(crate) fn new(parameters: usize, planned: u64) -> Self {
        let [gradients, means, squares] = [(); 3].map(|()| vec![0.0; parameters]);
        Self { gradients, means, squares, updates: 0, planned: planned.max(1) }
    }

    /// Moves the parameters in these ranges by the gradients, which begin at zero again.
    pub(crate) fn update(
        &mut self,
        parameters: &mut [f32],
        ranges: impl Iterator<Item = Range<usize>> + Clone,
    ) {
        self.updates += 1;
        let progress = (self.updates as f32 / self.planned as f32).min(1.0);
        let rate = RATE.0 * (RATE.1 / RATE.0).powf(progress);
        let unbias = |decay: f32| 1.0 - decay.powf(self.updates.min(100_000) as f32);
        let (of_mean, of_square) = (unbias(MEAN_DECAY), unbias(SQUARE_DECAY));
        let squared: f32 = ranges.clone().map(|r| self.gradients[r].iter().map(|g| g * g).sum::<f32>()).sum();
        let scale = (LENGTH_MAX / squared.sqrt().max(1e-12)).min(1.0);
        for n in ranges.flatten() {
            let gradient = std::mem::take(&mut self.gradients[n]) * scale;
            self.means[n] += (gradient - self.means[n]) * (1.0 - MEAN_DECAY);
            self.squares[n] += (gradient * gradient - self.squares[n]) * (1.0 - SQUARE_DECAY);
            let root = (self.squares[n] / of_square).sqrt();
            parameters[n] -= rate * self.means[n] / of_mean / (root + 1e-8);
        }
    }
}
