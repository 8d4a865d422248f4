//! The predictor that Synergy uses (§III-C): a recurrent network per cell.
//!
//! A cell's network sees the angle under which the UE's signal arrives, at each sample since the UE attached there, and gives a probability
//! for each neighbour.

use crate::adam::Adam;
use crate::city::{Cell, City, Point};
use crate::evaluate::{Predictor, replay};
use crate::history::History;
use crate::layer::{Dense, Gru, GruStep, softmax};
use crate::random::Random;
use crate::train::Relations;
use crate::trip::Trip;

const WIDTH: usize = 16;
/// Cosine and sine of the angle of arrival.
const INPUTS: usize = 2;
/// Time between two samples that the network sees.
const STEP_MS: u64 = 1_000;

/// A network for each cell of a city.
#[derive(Clone, Debug)]
pub struct PerCell(Vec<OfCell>);

#[derive(Clone, Debug)]
struct OfCell {
    antenna: Point,
    neighbours: Vec<Cell>,
    gru: Gru,
    output: Dense,
    parameters: Vec<f32>,
    adam: Adam,
}

/// What a cell's network remembers of a UE.
#[derive(Clone, Debug, Default)]
pub struct Attachment {
    state: [f32; WIDTH],
    last: Option<(Cell, u64)>,
}

impl PerCell {
    /// Untrained networks, for about this many visits of each cell.
    #[must_use]
    pub fn new(seed: u64, city: &City, relations: &Relations, visits: u64) -> Self {
        let mut random = Random::new(seed);
        let of = |cell: Cell| {
            let neighbours = relations.most_used(cell);
            let gru = Gru::new(0, WIDTH, INPUTS);
            let output = Dense::new(gru.end(), neighbours.len(), WIDTH);
            let bound = 1.0 / (WIDTH as f64).sqrt();
            let parameters: Vec<f32> =
                (0..output.end()).map(|_| random.between(-bound, bound) as f32).collect();
            let adam = Adam::new(parameters.len(), visits);
            OfCell { antenna: city.antenna(cell), neighbours, gru, output, parameters, adam }
        };
        Self((0..=u16::MAX).take(city.cell_count()).map(Cell).map(of).collect())
    }

    /// Learns from the visits of a trip, each in the network of its cell.
    pub fn learn_trip(&mut self, trip: &Trip) {
        let mut seen: Vec<Point> = Vec::new();
        let mut due_ms = 0;
        replay(trip, |history, at_ms, handover| {
            let (Some((serving, _)), Some(report)) = (history.serving(), history.positions().last()) else {
                return;
            };
            if let Some(next) = handover {
                self.0[usize::from(serving.0)].learn(&seen, next);
                seen.clear();
                due_ms = at_ms;
            } else if at_ms >= due_ms {
                seen.push(report.position);
                due_ms = at_ms + STEP_MS;
            }
        });
    }
}

impl OfCell {
    fn input(&self, at: Point) -> [f32; INPUTS] {
        let [x, y] = [at.x - self.antenna.x, at.y - self.antenna.y];
        [x, y].map(|m| (m / x.hypot(y).max(1.0)) as f32)
    }

    fn learn(&mut self, seen: &[Point], next: Cell) {
        let Some(target) = self.neighbours.iter().position(|n| *n == next) else { return };
        let mut state = [0.0; WIDTH];
        let mut steps = Vec::new();
        for at in seen {
            let mut step = GruStep::default();
            self.gru.forward(&self.parameters, &self.input(*at), &mut state, &mut step);
            steps.push((step, state));
        }
        let weight = 1.0 / steps.len().max(1) as f32;
        let mut of_state = [0.0; WIDTH];
        let gradients = &mut self.adam.gradients;
        for (step, state) in steps.iter().rev() {
            let mut of_scores = vec![0.0; self.neighbours.len()];
            self.output.forward(&self.parameters, state, &mut of_scores);
            softmax(&mut of_scores);
            of_scores[target] -= 1.0;
            of_scores.iter_mut().for_each(|d| *d *= weight);
            self.output.backward(&self.parameters, gradients, state, &of_scores, &mut of_state);
            self.gru.backward(&self.parameters, gradients, step, &mut of_state, &mut [0.0; INPUTS]);
        }
        let all = 0..self.parameters.len();
        self.adam.update(&mut self.parameters, std::iter::once(all));
    }
}

impl Predictor for PerCell {
    type Memory = Attachment;

    fn learn(&mut self, _: &History, _: Cell) {}

    fn observe(&self, memory: &mut Attachment, history: &History, now_ms: u64) {
        let (Some((serving, _)), Some(report)) = (history.serving(), history.positions().last()) else {
            return;
        };
        match memory.last {
            Some((cell, at_ms)) if cell == serving && now_ms < at_ms + STEP_MS => return,
            Some((cell, _)) if cell == serving => {}
            _ => memory.state = [0.0; WIDTH],
        }
        let of = &self.0[usize::from(serving.0)];
        of.gru.forward(
            &of.parameters,
            &of.input(report.position),
            &mut memory.state,
            &mut GruStep::default(),
        );
        memory.last = Some((serving, now_ms));
    }

    fn predict(&self, memory: &Attachment, _: &History) -> Option<Cell> {
        let of = &self.0[usize::from(memory.last?.0.0)];
        let mut scores = vec![0.0; of.neighbours.len()];
        of.output.forward(&of.parameters, &memory.state, &mut scores);
        let best = scores.iter().zip(&of.neighbours).max_by(|a, b| a.0.total_cmp(b.0));
        best.map(|(_, cell)| *cell)
    }
}
