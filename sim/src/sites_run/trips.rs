//! The trips of a small city, of which each district is a copy.

use whimbrel_prediction::{Cell, City, CitySize, Trip};

/// Cells of a district: as dense as those of the city of the predictors.
pub(super) const CELLS: usize = 50;
const SIZE: CitySize = CitySize { junctions: (27, 22), cells: CELLS };
/// The easternmost cells are the next site's.
const CELLS_OF_NEXT_SITE: usize = CELLS / 5;
/// Number of different trips.
const TRIPS: u64 = 1_024;

/// Cells with the seconds after which a UE enters them; the first one at zero.
pub(super) type TripCells = Vec<(u64, u16)>;

/// The trips, by the cell in which they begin.
pub(super) struct Trips {
    from: Vec<Vec<TripCells>>,
    of_next_site: [bool; CELLS],
}

impl Trips {
    pub(super) fn new(seed: u64) -> Self {
        let city = City::new(seed, SIZE);
        let mut from = vec![Vec::new(); CELLS];
        for number in 0..TRIPS {
            let trip = Trip::new(&city, number);
            let Some(first) = trip.samples.first() else { continue };
            let began = (0, first.cell.0);
            let cells: TripCells = std::iter::once(began)
                .chain(trip.handovers().map(|(ms, cell)| (ms / 1_000, cell.0)))
                .collect();
            from[usize::from(first.cell.0)].push(cells);
        }
        let mut by_x: Vec<u16> = (0..CELLS as u16).collect();
        by_x.sort_by(|a, b| city.antenna(Cell(*a)).x.total_cmp(&city.antenna(Cell(*b)).x));
        let mut of_next_site = [false; CELLS];
        by_x[CELLS - CELLS_OF_NEXT_SITE..].iter().for_each(|cell| of_next_site[usize::from(*cell)] = true);
        Self { from, of_next_site }
    }

    /// True for a cell of a district that is the next site's.
    pub(super) fn is_of_next_site(&self, cell: u16) -> bool {
        self.of_next_site[usize::from(cell)]
    }

    /// The cells in which trips begin, as often as trips do.
    pub(super) fn beginning(&self, draw: u64) -> u16 {
        let mut nth = (draw % TRIPS) as usize;
        for (cell, trips) in (0..).zip(&self.from) {
            match nth.checked_sub(trips.len()) {
                Some(left) => nth = left,
                None => return cell,
            }
        }
        0
    }

    /// How many trips begin in a cell.
    pub(super) fn count_from(&self, cell: u16) -> usize {
        self.from[usize::from(cell)].len()
    }

    pub(super) fn trip(&self, cell: u16, nth: u16) -> &TripCells {
        &self.from[usize::from(cell)][usize::from(nth)]
    }
}
