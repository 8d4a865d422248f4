//! The layers of the network, over one slice of parameters: forward, and backward to gradients.

/// A matrix and a bias within the parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dense {
    at: usize,
    rows: usize,
    columns: usize,
}

impl Dense {
    /// A layer whose parameters begin at `at`.
    pub(crate) fn new(at: usize, rows: usize, columns: usize) -> Self {
        Self { at, rows, columns }
    }

    /// Where the parameters of the next layer may begin.
    pub(crate) fn end(self) -> usize {
        self.at + self.rows * (self.columns + 1)
    }

    pub(crate) fn weights(self) -> std::ops::Range<usize> {
        self.at..self.at + self.rows * self.columns
    }

    /// The parameters, and how many inputs a row sums up.
    pub(crate) fn columns(self) -> usize {
        self.columns
    }

    pub(crate) fn forward(self, parameters: &[f32], input: &[f32], output: &mut [f32]) {
        let (weights, biases) = parameters[self.at..self.end()].split_at(self.rows * self.columns);
        for ((out, row), bias) in output.iter_mut().zip(weights.chunks_exact(self.columns)).zip(biases) {
            *out = dot(row, input) + bias;
        }
    }

    /// Adds to the gradients of the parameters and of the input, from that of the output.
    pub(crate) fn backward(
        self,
        parameters: &[f32],
        gradients: &mut [f32],
        input: &[f32],
        of_output: &[f32],
        of_input: &mut [f32],
    ) {
        let weights = &parameters[self.weights()];
        let (of_weights, of_biases) = gradients[self.at..self.end()].split_at_mut(self.rows * self.columns);
        let rows = weights.chunks_exact(self.columns).zip(of_weights.chunks_exact_mut(self.columns));
        for (((row, of_row), of_bias), d) in rows.zip(of_biases).zip(of_output) {
            *of_bias += d;
            add_scaled(of_row, input, *d);
            add_scaled(of_input, row, *d);
        }
    }
}

/// Eight sums side by side, which the compiler turns into vector instructions.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, b_rest) = b.as_chunks::<8>();
    let mut sums = [0f32; 8];
    for (a, b) in a8.iter().zip(b8) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

pub(crate) fn add_scaled(to: &mut [f32], from: &[f32], factor: f32) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from * factor);
}

pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Turns scores into probabilities.
pub(crate) fn softmax(scores: &mut [f32]) {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|s| *s = (*s - highest).exp());
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|s| *s /= sum);
}

/// A gated recurrent unit: update and reset gates, and a candidate for the new state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gru {
    size: usize,
    gates: Dense,
    candidate: Dense,
}

/// What the backward pass needs of one step.
#[derive(Clone, Debug, Default)]
pub(crate) struct GruStep {
    /// Input, then the state before.
    joined: Vec<f32>,
    /// Input, then the state before as far as the reset gate lets it pass.
    reset: Vec<f32>,
    gates: Vec<f32>,
    candidate: Vec<f32>,
}

impl Gru {
    pub(crate) fn new(at: usize, size: usize, inputs: usize) -> Self {
        let gates = Dense::new(at, 2 * size, inputs + size);
        Self { size, gates, candidate: Dense::new(gates.end(), size, inputs + size) }
    }

    pub(crate) fn end(self) -> usize {
        self.candidate.end()
    }

    pub(crate) fn layers(self) -> [Dense; 2] {
        [self.gates, self.candidate]
    }

    /// Moves the state one step on.
    pub(crate) fn forward(self, parameters: &[f32], input: &[f32], state: &mut [f32], step: &mut GruStep) {
        step.joined.clear();
        step.joined.extend_from_slice(input);
        step.joined.extend_from_slice(state);
        step.gates.resize(2 * self.size, 0.0);
        self.gates.forward(parameters, &step.joined, &mut step.gates);
        step.gates.iter_mut().for_each(|g| *g = sigmoid(*g));
        let (update, reset) = step.gates.split_at(self.size);
        step.reset.clear();
        step.reset.extend_from_slice(input);
        step.reset.extend(state.iter().zip(reset).map(|(h, r)| h * r));
        step.candidate.resize(self.size, 0.0);
        self.candidate.forward(parameters, &step.reset, &mut step.candidate);
        step.candidate.iter_mut().for_each(|c| *c = c.tanh());
        for ((h, z), c) in state.iter_mut().zip(update).zip(&step.candidate) {
            *h += z * (c - *h);
        }
    }

    /// Turns the gradient of the state after a step into that of the state before it, and adds to those of parameters and input.
    pub(crate) fn backward(
        self,
        parameters: &[f32],
        gradients: &mut [f32],
        step: &GruStep,
        of_state: &mut [f32],
        of_input: &mut [f32],
    ) {
        let inputs = step.joined.len() - self.size;
        let before = &step.joined[inputs..];
        let (update, reset) = step.gates.split_at(self.size);
        let mut of_candidate = vec![0.0; self.size];
        let mut of_gates = vec![0.0; 2 * self.size];
        for i in 0..self.size {
            let (z, c) = (update[i], step.candidate[i]);
            of_candidate[i] = of_state[i] * z * (1.0 - c * c);
            of_gates[i] = of_state[i] * (c - before[i]) * z * (1.0 - z);
            of_state[i] *= 1.0 - z;
        }
        let mut of_reset = vec![0.0; step.reset.len()];
        self.candidate.backward(parameters, gradients, &step.reset, &of_candidate, &mut of_reset);
        for i in 0..self.size {
            let (r, d) = (reset[i], of_reset[inputs + i]);
            of_state[i] += d * r;
            of_gates[self.size + i] = d * before[i] * r * (1.0 - r);
        }
        let mut of_joined = vec![0.0; step.joined.len()];
        self.gates.backward(parameters, gradients, &step.joined, &of_gates, &mut of_joined);
        add_scaled(of_state, &of_joined[inputs..], 1.0);
        add_scaled(of_input, &of_reset[..inputs], 1.0);
        add_scaled(of_input, &of_joined[..inputs], 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The gradients of a sum over the state after two steps, against differences.
    #[test]
    fn gradients_agree_with_differences() {
        let (size, inputs) = (4, 3);
        let gru = Gru::new(0, size, inputs);
        let mut random = Random::new(1);
        let mut parameters: Vec<f32> = (0..gru.end()).map(|_| random.between(-0.8, 0.8) as f32).collect();
        let input: Vec<f32> = (0..2 * inputs).map(|_| random.between(-1.0, 1.0) as f32).collect();
        let run = |parameters: &[f32]| {
            let mut state = vec![0.1; size];
            let steps = [0, 1].map(|n| {
                let mut step = GruStep::default();
                gru.forward(parameters, &input[n * inputs..][..inputs], &mut state, &mut step);
                step
            });
            let weighted = state.iter().zip(1u8..).map(|(h, n)| f64::from(*h) * f64::from(n)).sum::<f64>();
            (weighted, steps)
        };
        let (_, steps) = run(&parameters);
        let mut gradients = vec![0.0; parameters.len()];
        let mut of_state: Vec<f32> = (1u8..=4).map(f32::from).collect();
        for step in steps.iter().rev() {
            gru.backward(&parameters, &mut gradients, step, &mut of_state, &mut vec![0.0; inputs]);
        }
        for n in 0..parameters.len() {
            let at = parameters[n];
            let [up, down] = [1e-2, -1e-2].map(|by| {
                parameters[n] = at + by;
                run(&parameters).0
            });
            parameters[n] = at;
            let difference = (up - down) / 2e-2;
            assert!(
                (difference - f64::from(gradients[n])).abs() < 2e-2,
                "{n}: {difference} {}",
                gradients[n]
            );
        }
    }
}
