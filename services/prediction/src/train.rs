//! Training of the network on trips.

use std::collections::{BTreeMap, BTreeSet};

use crate::adam::Adam;
use crate::city::{Cell, Point};
use crate::evaluate::replay;
use crate::layer::add_scaled;
use crate::network::{NEIGHBOURS_MAX, RELATION, Signals, StepTrace, TrainedNetwork, WIDTH};
use crate::trip::Trip;

/// Trains a network, trip by trip.
#[derive(Debug)]
pub struct Trainer {
    network: TrainedNetwork,
    adam: Adam,
}

/// Counts neighbour relations, from which a network is made.
#[derive(Clone, Debug, Default)]
pub struct Relations(BTreeMap<Cell, BTreeMap<Cell, u32>>);

impl Relations {
    /// Adds those that a trip used.
    pub fn add(&mut self, trip: &Trip) {
        for pair in trip.samples.windows(2).filter(|w| w[0].cell != w[1].cell) {
            *self.0.entry(pair[0].cell).or_default().entry(pair[1].cell).or_default() += 1;
        }
    }

    /// The neighbours of a cell that were used most, most used first.
    pub(crate) fn most_used(&self, cell: Cell) -> Vec<Cell> {
        let mut used: Vec<_> = self.0.get(&cell).into_iter().flatten().collect();
        used.sort_by_key(|(cell, count)| (std::cmp::Reverse(**count), **cell));
        used.iter().take(NEIGHBOURS_MAX).map(|(cell, _)| **cell).collect()
    }
}

impl Trainer {
    /// A trainer of a new network for cells with these names and antennas, for about this many trips.
    #[must_use]
    pub fn new(
        seed: u64,
        signals: Signals,
        cells: Vec<(u64, Point)>,
        relations: &Relations,
        trips: u64,
    ) -> Self {
        let network = TrainedNetwork::new(seed, signals, cells, relations);
        let adam = Adam::new(network.parameters.len(), trips);
        Self { network, adam }
    }

    /// The network as it is.
    #[must_use]
    pub fn into_network(self) -> TrainedNetwork {
        self.network
    }

    /// Learns from a trip. Returns the mean surprise of its handovers in nats, none if it has no handover.
    pub fn learn(&mut self, trip: &Trip) -> Option<f32> {
        let steps = self.steps(trip);
        let known = steps.iter().filter(|(_, next)| next.is_some()).count();
        if known == 0 {
            return None;
        }
        let (surprise, touched) = self.gradients_of(&steps, 1.0 / known as f32);
        let shared = std::iter::once(self.network.layout.shared());
        let ranges = shared.chain(touched.iter().map(|(at, len)| *at..at + len));
        self.adam.update(&mut self.network.parameters, ranges);
        Some(surprise / known as f32)
    }

    /// The steps of a trip, each with the place of the next cell among the neighbours of the serving one.
    fn steps(&self, trip: &Trip) -> Vec<(StepTrace, Option<usize>)> {
        let mut steps: Vec<(StepTrace, Option<usize>)> = Vec::new();
        let mut open = 0;
        replay(trip, |history, at_ms, handover| {
            let Some(next) = handover else {
                steps.extend(
                    self.network.step(steps.last().map(|(s, _)| s), history, at_ms).map(|s| (s, None)),
                );
                return;
            };
            for (step, target) in &mut steps[open..] {
                *target = self.network.neighbours_of(step.serving).iter().position(|n| n.cell == next);
            }
            open = steps.len();
        });
        steps
    }

    /// Leaves the gradients of a trip, and returns the sum of its surprises and the first parameters of all rows and relations used.
    fn gradients_of(
        &mut self,
        steps: &[(StepTrace, Option<usize>)],
        weight: f32,
    ) -> (f32, BTreeSet<(usize, usize)>) {
        let Self { network, adam: Adam { gradients, .. } } = self;
        let (mut surprise, mut touched) = (0.0, BTreeSet::new());
        let mut of_state = [0.0; WIDTH];
        for (step, target) in steps.iter().rev() {
            let mut of_mixed = [0.0; WIDTH];
            if let Some(target) = target {
                let probabilities = network.probabilities(step.serving, &step.mixed, &step.state);
                surprise -= probabilities[*target].max(1e-9).ln();
                let neighbours = network.neighbours_of(step.serving);
                for (n, (neighbour, probability)) in neighbours.iter().zip(probabilities).enumerate() {
                    let d = weight * (probability - if n == *target { 1.0 } else { 0.0 });
                    let direction = network.direction(neighbour);
                    add_scaled(&mut of_state, &direction[..WIDTH], d);
                    add_scaled(&mut of_mixed, &direction[WIDTH..], d);
                    let mut of_direction = [0.0; 2 * WIDTH];
                    add_scaled(&mut of_direction[..WIDTH], &step.state, d);
                    add_scaled(&mut of_direction[WIDTH..], &step.mixed, d);
                    add_scaled(&mut gradients[neighbour.at..], &of_direction, 1.0);
                    gradients[neighbour.at + 2 * WIDTH] += d;
                    touched.insert((neighbour.at, RELATION));
                    let geometry = network.layout.geometry;
                    let nowhere = &mut [0.0; 3];
                    geometry.backward(
                        &network.parameters,
                        gradients,
                        &neighbour.geometry,
                        &of_direction,
                        nowhere,
                    );
                }
            }
            network.backward(gradients, step, &mut of_mixed, &mut of_state);
            touched
                .extend(step.input.rows.iter().flatten().map(|row| (*row, TrainedNetwork::row(*row).len())));
        }
        (surprise, touched)
    }
}
