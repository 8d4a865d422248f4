//! The predictor: one recurrent network for all cells.
//!
//! Synergy trains a network per gNB on the samples since the UE attached there. Here all cells share one, whose state goes on from cell to
//! cell. What is particular to a place enters through tables of learned vectors, so that a new cell is served from its first day by the
//! geometry of its neighbours, and better once its vectors are trained.

use crate::city::{Cell, Point};
use crate::evaluate::Predictor;
use crate::history::History;
use crate::layer::{Dense, Gru, GruStep, add_scaled, dot, softmax};
use crate::random::Random;
use crate::train::Relations;

/// Width of the mixed input and of the recurrent state.
pub(crate) const WIDTH: usize = 32;
/// Width of a learned vector.
const VECTOR: usize = 8;
/// Rows of each table, which are chosen by a hash: the serving cell, pairs and triples of cells, squares with and without a heading.
const ROWS: [usize; 6] = [1 << 10, 1 << 12, 1 << 14, 1 << 15, 1 << 17, 1 << 15];
/// Tables that cells alone choose from.
const TABLES_OF_CELLS: usize = 3;
/// Sides of the squares, in metres: small ones, small ones with a heading, large ones with a heading.
const SQUARES_M: [f64; 3] = [60.0, 100.0, 250.0];
const PLAIN: usize = 15;
const INPUTS: usize = PLAIN + ROWS.len() * VECTOR;
/// Metres that a heading is taken over: less is noise.
const HEADING_M: f64 = 15.0;
/// Time between two steps of a UE that stays in its cell.
const STEP_MS: u64 = 2_000;
/// Next cells that are distinguished for each serving cell.
pub(crate) const NEIGHBOURS_MAX: usize = 16;
/// Geometry of a neighbour: its direction, and its distance.
const GEOMETRY: usize = 3;

/// What a predictor is given of each UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// The cells that served it, and when: what any gNB shows.
    Cells,
    /// Its position too (NRPPa, TS 38.455).
    Positions,
}

impl Signals {
    /// The rows of the tables that these signals choose from.
    fn rows(self) -> &'static [usize] {
        match self {
            Self::Cells => &ROWS[..TABLES_OF_CELLS],
            Self::Positions => &ROWS,
        }
    }
}

/// The range of each group of parameters.
#[derive(Clone, Debug)]
pub(crate) struct ParameterLayout {
    pub(crate) tables: usize,
    pub(crate) mix: Dense,
    pub(crate) gru: Gru,
    pub(crate) geometry: Dense,
    /// A vector of twice the width and a bias for each neighbour relation.
    pub(crate) relations: usize,
    pub(crate) end: usize,
}

impl ParameterLayout {
    fn new(signals: Signals, relations: usize) -> Self {
        let mix = Dense::new(0, WIDTH, INPUTS);
        let gru = Gru::new(mix.end(), WIDTH, WIDTH);
        let geometry = Dense::new(gru.end(), 2 * WIDTH, GEOMETRY);
        let tables = geometry.end();
        let relations_at = tables + signals.rows().iter().sum::<usize>() * VECTOR;
        let end = relations_at + relations * RELATION;
        Self { tables, mix, gru, geometry, relations: relations_at, end }
    }

    /// The parameters that every step uses.
    pub(crate) fn shared(&self) -> std::ops::Range<usize> {
        0..self.tables
    }
}

/// Parameters of a neighbour relation.
pub(crate) const RELATION: usize = 2 * WIDTH + 1;

/// A neighbour of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeighbourCell {
    pub(crate) cell: Cell,
    pub(crate) geometry: [f32; GEOMETRY],
    /// Where its vector begins.
    pub(crate) at: usize,
}

/// A trained network.
#[derive(Clone, Debug)]
pub struct TrainedNetwork {
    pub(crate) signals: Signals,
    /// What the cells are called outside.
    pub(crate) names: Vec<u64>,
    pub(crate) antennas: Vec<Point>,
    pub(crate) neighbours: Vec<Vec<NeighbourCell>>,
    pub(crate) layout: ParameterLayout,
    pub(crate) parameters: Vec<f32>,
}

/// What the network remembers of one UE.
#[derive(Clone, Debug)]
pub struct NetworkMemory {
    state: [f32; WIDTH],
    mixed: [f32; WIDTH],
    /// The serving cell of the last step, and its time.
    last: Option<(Cell, u64)>,
}

impl Default for NetworkMemory {
    fn default() -> Self {
        Self { state: [0.0; WIDTH], mixed: [0.0; WIDTH], last: None }
    }
}

/// One step as the network sees it.
#[derive(Clone, Debug)]
pub(crate) struct StepInput {
    plain: [f32; PLAIN],
    /// First parameter of the row of each table; none without a position.
    pub(crate) rows: [Option<usize>; ROWS.len()],
}

/// What the backward pass needs of one step.
#[derive(Clone, Debug)]
pub(crate) struct StepTrace {
    pub(crate) input: StepInput,
    joined: [f32; INPUTS],
    pub(crate) mixed: [f32; WIDTH],
    gru: GruStep,
    pub(crate) state: [f32; WIDTH],
    pub(crate) serving: Cell,
    pub(crate) at_ms: u64,
}

impl TrainedNetwork {
    /// An untrained network for cells with these names and places of antennas, whose neighbour relations are given by how often each was
    /// used.
    pub(crate) fn new(seed: u64, signals: Signals, cells: Vec<(u64, Point)>, relations: &Relations) -> Self {
        let (names, antennas): (Vec<u64>, Vec<Point>) = cells.into_iter().unzip();
        let chosen: Vec<Vec<Cell>> =
            (0..=u16::MAX).take(antennas.len()).map(|cell| relations.most_used(Cell(cell))).collect();
        let mut network = Self::shaped(signals, names, antennas, &chosen);
        let layout = network.layout.clone();
        let mut random = Random::new(seed);
        let [gates, candidate] = layout.gru.layers();
        for layer in [layout.mix, gates, candidate, layout.geometry] {
            let bound = 1.0 / (layer.columns() as f64).sqrt();
            network.parameters[layer.weights()]
                .iter_mut()
                .for_each(|p| *p = random.between(-bound, bound) as f32);
        }
        network.parameters[layout.tables..layout.relations]
            .iter_mut()
            .for_each(|p| *p = random.between(-0.05, 0.05) as f32);
        network
    }

    /// A network of zeros, for cells and the neighbours of each.
    pub(crate) fn shaped(
        signals: Signals,
        names: Vec<u64>,
        antennas: Vec<Point>,
        chosen: &[Vec<Cell>],
    ) -> Self {
        let layout = ParameterLayout::new(signals, chosen.iter().map(Vec::len).sum());
        let mut at = layout.relations;
        let neighbours = chosen.iter().zip(&antennas).map(|(chosen, from)| {
            let of = |cell: &Cell| {
                let to = antennas[usize::from(cell.0)];
                let [x, y] = [to.x - from.x, to.y - from.y].map(|m| (m / 1_000.0) as f32);
                let neighbour = NeighbourCell { cell: *cell, geometry: [x, y, x.hypot(y)], at };
                at += RELATION;
                neighbour
            };
            chosen.iter().map(of).collect()
        });
        let neighbours = neighbours.collect();
        let parameters = vec![0.0; layout.end];
        Self { signals, names, antennas, neighbours, layout, parameters }
    }

    /// The signals that it needs.
    #[must_use]
    pub fn signals(&self) -> Signals {
        self.signals
    }

    /// What the cells that it knows are called outside, in their order.
    #[must_use]
    pub fn names(&self) -> &[u64] {
        &self.names
    }

    /// How many numbers were learned.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.parameters.len()
    }

    pub(crate) fn neighbours_of(&self, cell: Cell) -> &[NeighbourCell] {
        self.neighbours.get(usize::from(cell.0)).map_or(&[], Vec::as_slice)
    }

    /// Takes a history into a UE's memory, unless that has it already.
    pub fn observe(&self, memory: &mut NetworkMemory, history: &History, now_ms: u64) {
        if let Some((input, serving)) = self.input(memory.last, history, now_ms) {
            let mut step = GruStep::default();
            let mut joined = [0.0; INPUTS];
            self.join(&input, &mut joined);
            self.mix(&joined, &mut memory.mixed);
            self.layout.gru.forward(&self.parameters, &memory.mixed, &mut memory.state, &mut step);
            memory.last = Some((serving, now_ms));
        }
    }

    /// The same, with everything that training needs.
    pub(crate) fn step(
        &self,
        before: Option<&StepTrace>,
        history: &History,
        now_ms: u64,
    ) -> Option<StepTrace> {
        let (input, serving) = self.input(before.map(|s| (s.serving, s.at_ms)), history, now_ms)?;
        let (mut joined, mut mixed) = ([0.0; INPUTS], [0.0; WIDTH]);
        let mut state = before.map_or([0.0; WIDTH], |s| s.state);
        let mut gru = GruStep::default();
        self.join(&input, &mut joined);
        self.mix(&joined, &mut mixed);
        self.layout.gru.forward(&self.parameters, &mixed, &mut state, &mut gru);
        Some(StepTrace { input, joined, mixed, gru, state, serving, at_ms: now_ms })
    }

    /// Adds to the gradients, from those of a step's mixed input and state; that of the state becomes the one of the step before.
    pub(crate) fn backward(
        &self,
        gradients: &mut [f32],
        step: &StepTrace,
        of_mixed: &mut [f32; WIDTH],
        of_state: &mut [f32; WIDTH],
    ) {
        self.layout.gru.backward(&self.parameters, gradients, &step.gru, of_state, of_mixed);
        of_mixed.iter_mut().zip(&step.mixed).for_each(|(d, m)| *d *= 1.0 - m * m);
        let mut of_joined = [0.0; INPUTS];
        self.layout.mix.backward(&self.parameters, gradients, &step.joined, of_mixed, &mut of_joined);
        for (row, d) in step.input.rows.iter().zip(of_joined[PLAIN..].chunks_exact(VECTOR)) {
            if let Some(row) = row {
                add_scaled(&mut gradients[*row..row + VECTOR], d, 1.0);
            }
        }
    }

    /// Parameters of a row of a table.
    pub(crate) fn row(at: usize) -> std::ops::Range<usize> {
        at..at + VECTOR
    }

    fn join(&self, input: &StepInput, joined: &mut [f32; INPUTS]) {
        joined[..PLAIN].copy_from_slice(&input.plain);
        for (row, to) in input.rows.iter().zip(joined[PLAIN..].chunks_exact_mut(VECTOR)) {
            if let Some(row) = row {
                to.copy_from_slice(&self.parameters[*row..row + VECTOR]);
            }
        }
    }

    fn mix(&self, joined: &[f32; INPUTS], mixed: &mut [f32; WIDTH]) {
        self.layout.mix.forward(&self.parameters, joined, mixed);
        mixed.iter_mut().for_each(|m| *m = m.tanh());
    }

    /// The vector by which a neighbour is scored.
    pub(crate) fn direction(&self, neighbour: &NeighbourCell) -> [f32; 2 * WIDTH] {
        let mut direction = [0.0; 2 * WIDTH];
        self.layout.geometry.forward(&self.parameters, &neighbour.geometry, &mut direction);
        add_scaled(&mut direction, &self.parameters[neighbour.at..neighbour.at + 2 * WIDTH], 1.0);
        direction
    }

    /// A probability for each neighbour of a cell, in their order.
    pub(crate) fn probabilities(
        &self,
        serving: Cell,
        mixed: &[f32; WIDTH],
        state: &[f32; WIDTH],
    ) -> Vec<f32> {
        let score = |n: &NeighbourCell| {
            let direction = self.direction(n);
            let bias = self.parameters[n.at + 2 * WIDTH];
            dot(&direction[..WIDTH], state) + dot(&direction[WIDTH..], mixed) + bias
        };
        let mut scores: Vec<f32> = self.neighbours_of(serving).iter().map(score).collect();
        softmax(&mut scores);
        scores
    }

    /// The cells that may serve a UE next, each with its probability, likeliest first.
    #[must_use]
    pub fn next_cells(&self, memory: &NetworkMemory) -> Vec<(Cell, f32)> {
        let Some((serving, _)) = memory.last else { return Vec::new() };
        let probabilities = self.probabilities(serving, &memory.mixed, &memory.state);
        let mut next: Vec<_> =
            self.neighbours_of(serving).iter().map(|n| n.cell).zip(probabilities).collect();
        next.sort_by(|a, b| b.1.total_cmp(&a.1));
        next
    }

    /// The next step of a UE; none before its time, and none in a cell that the network does not know.
    fn input(&self, last: Option<(Cell, u64)>, history: &History, now_ms: u64) -> Option<(StepInput, Cell)> {
        let (serving, since_ms) = history.serving()?;
        let due = last.is_none_or(|(cell, at_ms)| cell != serving || now_ms >= at_ms + STEP_MS);
        let known = |cell: Cell| self.antennas.get(usize::from(cell.0)).copied();
        let antenna = known(serving).filter(|_| due)?;
        let mut plain = [0.0; PLAIN];
        let mut set = |at: usize, value: f64| plain[at] = value.clamp(-4.0, 4.0) as f32;
        let age_s = now_ms.saturating_sub(since_ms) as f64 / 1_000.0;
        set(0, age_s / 60.0);
        set(1, (1.0 + age_s).ln() / 4.0);
        let before = history.cells().iter().rev().skip(1).take(2);
        let mut left_ms = since_ms;
        for (n, (cell, entered_ms)) in before.clone().enumerate() {
            let at = 2 + 4 * n;
            if let Some(there) = known(*cell) {
                set(at, (there.x - antenna.x) / 1_000.0);
                set(at + 1, (there.y - antenna.y) / 1_000.0);
            }
            set(at + 2, left_ms.saturating_sub(*entered_ms) as f64 / 60_000.0);
            set(at + 3, 1.0);
            left_ms = *entered_ms;
        }
        let cells: Vec<u64> = before.map(|(cell, _)| u64::from(cell.0) + 1).collect();
        let [previous, third] = [0, 1].map(|n| cells.get(n).copied().unwrap_or(0));
        let mut keys = [None; ROWS.len()];
        let of_serving = u64::from(serving.0) + 1;
        keys[0] = Some(of_serving);
        keys[1] = Some(of_serving | previous << 16);
        keys[2] = Some(of_serving | previous << 16 | third << 32);
        if let (Signals::Positions, Some(report)) = (self.signals, history.positions().last()) {
            let now = report.position;
            set(10, (now.x - antenna.x) / 500.0);
            set(11, (now.y - antenna.y) / 500.0);
            set(12, 1.0);
            let earlier = history.positions().iter().rev().map(|r| r.position);
            let from = earlier.into_iter().find(|p| p.distance(now) >= HEADING_M);
            let mut octant = 8;
            if let Some(from) = from {
                let (x, y) = (now.x - from.x, now.y - from.y);
                let length = x.hypot(y);
                set(13, x / length);
                set(14, y / length);
                octant = ((y.atan2(x) / std::f64::consts::FRAC_PI_4).round() as i64).rem_euclid(8) as u64;
            }
            let square = |side: f64| {
                let [x, y] = [now.x, now.y].map(|m| (m / side).floor() as i64 as u64 & 0xffff);
                x | y << 16
            };
            keys[3] = Some(square(SQUARES_M[0]));
            keys[4] = Some(square(SQUARES_M[1]) | octant << 32);
            keys[5] = Some(square(SQUARES_M[2]) | octant << 32);
        }
        let mut begin = self.layout.tables;
        let mut rows = [None; ROWS.len()];
        for (n, (key, rows_of_table)) in keys.iter().zip(self.signals.rows()).enumerate() {
            let row = |key: u64| Random::new(key).number() as usize % rows_of_table;
            rows[n] = key.map(|key| begin + row(key) * VECTOR);
            begin += rows_of_table * VECTOR;
        }
        Some((StepInput { plain, rows }, serving))
    }
}

impl Predictor for TrainedNetwork {
    type Memory = NetworkMemory;

    fn learn(&mut self, _: &History, _: Cell) {}

    fn observe(&self, memory: &mut NetworkMemory, history: &History, now_ms: u64) {
        self.observe(memory, history, now_ms);
    }

    fn predict(&self, memory: &NetworkMemory, _: &History) -> Option<Cell> {
        self.next_cells(memory).first().map(|(cell, _)| *cell)
    }
}
