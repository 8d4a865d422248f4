//! Predictors that a better one has to beat.

use std::collections::BTreeMap;

use crate::city::{Cell, City};
use crate::evaluate::Predictor;
use crate::history::History;

/// How often each cell came next.
type CellCounts = BTreeMap<Cell, u32>;

fn most(counts: Option<&CellCounts>) -> Option<Cell> {
    counts?.iter().max_by_key(|(cell, count)| (**count, std::cmp::Reverse(**cell))).map(|(cell, _)| *cell)
}

/// The neighbour with which the serving cell had most handovers, in either direction: what a table without direction gives.
#[derive(Clone, Debug, Default)]
pub struct FrequentNeighbour(BTreeMap<Cell, CellCounts>);

impl Predictor for FrequentNeighbour {
    type Memory = ();

    fn learn(&mut self, history: &History, next: Cell) {
        let Some((serving, _)) = history.serving() else { return };
        *self.0.entry(serving).or_default().entry(next).or_default() += 1;
        *self.0.entry(next).or_default().entry(serving).or_default() += 1;
    }

    fn predict(&self, (): &(), history: &History) -> Option<Cell> {
        most(self.0.get(&history.serving()?.0))
    }
}

/// The most frequent next cell of the serving one: a Markov chain of order 1.
#[derive(Clone, Debug, Default)]
pub struct MarkovOne(BTreeMap<Cell, CellCounts>);

impl Predictor for MarkovOne {
    type Memory = ();

    fn learn(&mut self, history: &History, next: Cell) {
        let Some((serving, _)) = history.serving() else { return };
        *self.0.entry(serving).or_default().entry(next).or_default() += 1;
    }

    fn predict(&self, (): &(), history: &History) -> Option<Cell> {
        most(self.0.get(&history.serving()?.0))
    }
}

/// The most frequent next cell after the previous and the serving one: a Markov chain of order 2, which falls back to order 1 where it has
/// not seen the two.
#[derive(Clone, Debug, Default)]
pub struct MarkovTwo {
    pairs: BTreeMap<(Cell, Cell), CellCounts>,
    one: MarkovOne,
}

impl MarkovTwo {
    /// The cells that came next, each with its share, likeliest first. Where the pair has not been seen, those after the serving cell.
    #[must_use]
    pub fn next_cells(&self, history: &History) -> Vec<(Cell, f32)> {
        let Some((serving, _)) = history.serving() else { return Vec::new() };
        let of_pair = history.previous().and_then(|previous| self.pairs.get(&(previous, serving)));
        let Some(counts) = of_pair.or_else(|| self.one.0.get(&serving)) else { return Vec::new() };
        let all: u32 = counts.values().sum();
        let mut next: Vec<(Cell, f32)> =
            counts.iter().map(|(cell, count)| (*cell, *count as f32 / all as f32)).collect();
        next.sort_by(|a, b| b.1.total_cmp(&a.1));
        next
    }
}

impl Predictor for MarkovTwo {
    type Memory = ();

    fn learn(&mut self, history: &History, next: Cell) {
        self.one.learn(history, next);
        let (Some(previous), Some((serving, _))) = (history.previous(), history.serving()) else { return };
        *self.pairs.entry((previous, serving)).or_default().entry(next).or_default() += 1;
    }

    fn predict(&self, memory: &(), history: &History) -> Option<Cell> {
        let seen = || most(self.pairs.get(&(history.previous()?, history.serving()?.0)));
        seen().or_else(|| self.one.predict(memory, history))
    }
}

/// The cell whose antenna is nearest to where the UE will be if it drives on as it does. Needs reported positions.
#[derive(Clone, Debug)]
pub struct AlongHeading<'a> {
    city: &'a City,
    /// Cells with which each one had handovers: only these can come next.
    neighbours: BTreeMap<Cell, CellCounts>,
}

/// Metres ahead at which the next cell is looked for.
const AHEAD_M: f64 = 350.0;
/// Metres that a heading is taken over: less is noise.
const HEADING_M: f64 = 20.0;

impl<'a> AlongHeading<'a> {
    /// The predictor for a city, whose antennas it knows.
    #[must_use]
    pub fn new(city: &'a City) -> Self {
        Self { city, neighbours: BTreeMap::new() }
    }
}

impl Predictor for AlongHeading<'_> {
    type Memory = ();

    fn learn(&mut self, history: &History, next: Cell) {
        let Some((serving, _)) = history.serving() else { return };
        *self.neighbours.entry(serving).or_default().entry(next).or_default() += 1;
    }

    fn predict(&self, (): &(), history: &History) -> Option<Cell> {
        let neighbours = self.neighbours.get(&history.serving()?.0)?;
        let now = history.positions().last()?.position;
        let before =
            history.positions().iter().rev().map(|r| r.position).find(|p| p.distance(now) >= HEADING_M);
        let Some(before) = before else { return most(Some(neighbours)) };
        let ahead = before.towards(now, 1.0 + AHEAD_M / before.distance(now));
        let distance = |cell: &Cell| self.city.antenna(*cell).distance(ahead);
        neighbours.keys().min_by(|a, b| distance(a).total_cmp(&distance(b))).copied()
    }
}
