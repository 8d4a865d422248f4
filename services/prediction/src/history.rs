//! What the core sees of a UE that moves.

use crate::city::{Cell, Point};

/// Cells that a history keeps: more than any predictor here looks back.
const CELLS_MAX: usize = 16;
/// Positions that a history keeps.
const POSITIONS_MAX: usize = 32;

/// A position that a gNB reported (NRPPa, TS 38.455).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionReport {
    /// When, in milliseconds.
    pub at_ms: u64,
    /// The position that was reported.
    pub position: Point,
}

/// The cells that served a UE, and its positions in the serving cell where gNBs report them. Bounded; the oldest go first.
#[derive(Clone, Debug, Default)]
pub struct History {
    cells: Vec<(Cell, u64)>,
    positions: Vec<PositionReport>,
}

impl History {
    /// A cell serves the UE from now on: an initial message, a handover or a path switch.
    pub fn enters(&mut self, cell: Cell, at_ms: u64) {
        if self.cells.last().is_some_and(|(serving, _)| *serving == cell) {
            return;
        }
        if self.cells.len() == CELLS_MAX {
            self.cells.remove(0);
        }
        self.cells.push((cell, at_ms));
        self.positions.clear();
    }

    /// A gNB reported the UE's position.
    pub fn reports(&mut self, report: PositionReport) {
        // A late or repeated report adds nothing.
        if self.positions.last().is_some_and(|last| last.at_ms >= report.at_ms) {
            return;
        }
        if self.positions.len() == POSITIONS_MAX {
            self.positions.remove(0);
        }
        self.positions.push(report);
    }

    /// The serving cell, and since when.
    #[must_use]
    pub fn serving(&self) -> Option<(Cell, u64)> {
        self.cells.last().copied()
    }

    /// The cell before the serving one.
    #[must_use]
    pub fn previous(&self) -> Option<Cell> {
        self.cells.len().checked_sub(2).map(|n| self.cells[n].0)
    }

    /// The cells that served it, oldest first.
    #[must_use]
    pub fn cells(&self) -> &[(Cell, u64)] {
        &self.cells
    }

    /// Its positions in the serving cell, oldest first.
    #[must_use]
    pub fn positions(&self) -> &[PositionReport] {
        &self.positions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_bounded_and_keeps_the_newest() {
        let mut history = History::default();
        for n in 0..100u16 {
            history.enters(Cell(n), u64::from(n));
            for report in 0..100 {
                let at_ms = u64::from(n) * 100 + report;
                history.reports(PositionReport { at_ms, position: Point::default() });
            }
        }
        assert_eq!(history.serving(), Some((Cell(99), 99)));
        assert_eq!(history.previous(), Some(Cell(98)));
        assert_eq!((history.cells().len(), history.positions().len()), (CELLS_MAX, POSITIONS_MAX));
        assert_eq!(history.positions()[0].at_ms, 9_968);
    }

    #[test]
    fn repeated_and_late_events_change_nothing() {
        let mut history = History::default();
        history.enters(Cell(1), 10);
        history.enters(Cell(1), 20);
        let report = |at_ms| PositionReport { at_ms, position: Point { x: 1.0, y: 2.0 } };
        [5, 4, 5].into_iter().for_each(|at| history.reports(report(at)));
        assert_eq!(history.serving(), Some((Cell(1), 10)));
        assert_eq!(history.positions(), [report(5)]);
    }
}
