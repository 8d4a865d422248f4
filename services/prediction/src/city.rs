//! A city: roads between junctions, and cells.

use crate::random::Random;

/// Metres between neighbouring junctions before they are shifted.
const BLOCK_M: f64 = 180.0;
/// Spacing of arterial roads, in rows and columns.
const ARTERIAL_EVERY: usize = 4;
const ARTERIAL_M_PER_S: f64 = 16.7;
const STREET_M_PER_S: (f64, f64) = (7.0, 12.0);
/// Share of streets that are left out, so that blocks differ.
const MISSING_STREET_SHARE: f64 = 0.18;
/// Places that many people drive to, with their share of all trips.
const CENTRES: usize = 5;
const CENTRE_SHARE: f64 = 0.55;
/// Path loss exponent of a built-up area, and the standard deviation of shadowing.
const PATH_LOSS_EXPONENT: f64 = 3.5;
const SHADOWING_DB: f64 = 6.0;
/// Correlation distance of shadowing.
const SHADOWING_M: f64 = 60.0;

/// Metres east and north.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Metres to the east.
    pub x: f64,
    /// Metres to the north.
    pub y: f64,
}

impl Point {
    /// Metres to another point.
    #[must_use]
    pub fn distance(self, other: Self) -> f64 {
        (self.x - other.x).hypot(self.y - other.y)
    }

    /// The point at this share of the way to another one.
    pub(crate) fn towards(self, other: Self, share: f64) -> Self {
        Self { x: self.x + (other.x - self.x) * share, y: self.y + (other.y - self.y) * share }
    }
}

/// A cell, by its index in the city.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell(pub u16);

/// How large a city is.
#[derive(Clone, Copy, Debug)]
pub struct CitySize {
    /// Junctions from west to east, and from south to north.
    pub junctions: (usize, usize),
    /// Number of cells.
    pub cells: usize,
}

impl CitySize {
    /// 247 cells on 11 by 9 km.
    pub const CITY: Self = Self { junctions: (61, 50), cells: 247 };
    /// Twelve cells on 2 by 2 km.
    pub const SMALL: Self = Self { junctions: (12, 12), cells: 12 };
}

/// A road from a junction to a neighbouring one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Road {
    pub(crate) to: usize,
    pub(crate) length_m: f64,
    pub(crate) m_per_s: f64,
}

/// A generated city with its cells.
#[derive(Clone, Debug)]
pub struct City {
    seed: u64,
    junctions: Vec<Point>,
    roads: Vec<Vec<Road>>,
    antennas: Vec<Point>,
    centres: Vec<usize>,
    /// Cells that may serve a place, by square of the grid.
    nearby: Vec<Vec<Cell>>,
    squares: (usize, usize),
}

/// Side of the squares by which nearby cells are found, and how far a cell can serve.
const SQUARE_M: f64 = 250.0;
const MAX_CELL_RANGE_M: f64 = 1_600.0;

impl City {
    /// Generates the city of a seed.
    ///
    /// # Panics
    /// If the size has fewer than two junctions each way, or no cell, or more than 65,535.
    #[must_use]
    pub fn new(seed: u64, size: CitySize) -> Self {
        let (columns, rows) = size.junctions;
        assert!(columns > 1 && rows > 1 && (1..=usize::from(u16::MAX)).contains(&size.cells));
        let mut random = Random::new(seed);
        let junctions = junctions(&mut random, columns, rows);
        let roads = roads(&mut random, &junctions, columns);
        let (width, height) = ((columns - 1) as f64 * BLOCK_M, (rows - 1) as f64 * BLOCK_M);
        let cells = cells(&mut random, size.cells, width, height);
        let centres = (0..CENTRES).map(|_| random.below(junctions.len())).collect();
        let squares = ((width / SQUARE_M) as usize + 2, (height / SQUARE_M) as usize + 2);
        let mut city = Self { seed, junctions, roads, antennas: cells, centres, nearby: Vec::new(), squares };
        city.nearby = (0..squares.0 * squares.1).map(|square| city.cells_near(square)).collect();
        city
    }

    /// How many cells there are.
    #[must_use]
    pub fn cell_count(&self) -> usize {
        self.antennas.len()
    }

    /// Where a cell's antenna stands.
    #[must_use]
    pub fn antenna(&self, cell: Cell) -> Point {
        self.antennas[usize::from(cell.0)]
    }

    pub(crate) fn junction_count(&self) -> usize {
        self.junctions.len()
    }

    pub(crate) fn junction(&self, junction: usize) -> Point {
        self.junctions[junction]
    }

    pub(crate) fn roads_from(&self, junction: usize) -> &[Road] {
        &self.roads[junction]
    }

    /// Draws a junction where a trip begins or ends: near a centre, or anywhere.
    pub(crate) fn draw_trip_end(&self, random: &mut Random) -> usize {
        if random.unit() >= CENTRE_SHARE {
            return random.below(self.junctions.len());
        }
        let centre = self.junctions[self.centres[random.below(CENTRES)]];
        let near = Point {
            x: centre.x + random.between(-500.0, 500.0),
            y: centre.y + random.between(-500.0, 500.0),
        };
        let distance = |j: &usize| self.junctions[*j].distance(near);
        (0..self.junctions.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
    }

    /// Received power from a cell, in decibels relative to an arbitrary level: path loss, and shadowing that
    /// belongs to the place.
    pub(crate) fn power_db(&self, cell: Cell, at: Point) -> f64 {
        let distance = self.antenna(cell).distance(at).max(10.0);
        -10.0 * PATH_LOSS_EXPONENT * distance.log10() + SHADOWING_DB * self.shadowing(cell, at)
    }

    /// Smooth noise over the plane, of each cell its own: random values at the corners of squares, interpolated.
    fn shadowing(&self, cell: Cell, at: Point) -> f64 {
        let (x, y) = (at.x / SHADOWING_M, at.y / SHADOWING_M);
        let (column, row) = (x.floor(), y.floor());
        let corner = |dx: f64, dy: f64| {
            let place = ((column + dx) as i64 as u64) << 32 ^ ((row + dy) as i64 as u64 & 0xffff_ffff);
            let mut random = Random::new(self.seed ^ place ^ u64::from(cell.0) << 48);
            // The sum of four has nearly a normal distribution; scaled to a variance of one.
            let sum: f64 = (0..4).map(|_| random.unit() - 0.5).sum();
            sum * 3f64.sqrt()
        };
        let (u, v) = (x - column, y - row);
        let south = corner(0.0, 0.0) * (1.0 - u) + corner(1.0, 0.0) * u;
        let north = corner(0.0, 1.0) * (1.0 - u) + corner(1.0, 1.0) * u;
        south * (1.0 - v) + north * v
    }

    /// The cells that can serve a place.
    pub(crate) fn nearby(&self, at: Point) -> &[Cell] {
        let column = ((at.x.max(0.0) / SQUARE_M) as usize).min(self.squares.0 - 1);
        let row = ((at.y.max(0.0) / SQUARE_M) as usize).min(self.squares.1 - 1);
        &self.nearby[row * self.squares.0 + column]
    }

    fn cells_near(&self, square: usize) -> Vec<Cell> {
        let (column, row) = (square % self.squares.0, square / self.squares.0);
        let middle = Point { x: (column as f64 + 0.5) * SQUARE_M, y: (row as f64 + 0.5) * SQUARE_M };
        let mut near: Vec<(f64, u16)> =
            self.antennas.iter().zip(0..).map(|(c, i)| (c.distance(middle), i)).collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        // At the city's edge the nearest ones serve, however far they are.
        let reached =
            near.iter().take_while(|(distance, _)| *distance < MAX_CELL_RANGE_M).count().clamp(1, 10);
        near[..reached].iter().map(|(_, i)| Cell(*i)).collect()
    }
}

fn junctions(random: &mut Random, columns: usize, rows: usize) -> Vec<Point> {
    let shift = BLOCK_M * 0.3;
    let at = |n: usize| ((n % columns) as f64 * BLOCK_M, (n / columns) as f64 * BLOCK_M);
    (0..columns * rows)
        .map(|n| Point {
            x: at(n).0 + random.between(-shift, shift),
            y: at(n).1 + random.between(-shift, shift),
        })
        .collect()
}

fn roads(random: &mut Random, junctions: &[Point], columns: usize) -> Vec<Vec<Road>> {
    let mut roads = vec![Vec::new(); junctions.len()];
    let rows = junctions.len() / columns;
    for from in 0..junctions.len() {
        let (column, row) = (from % columns, from / columns);
        let east = (column + 1 < columns).then_some((from + 1, row.is_multiple_of(ARTERIAL_EVERY)));
        let north = (row + 1 < rows).then_some((from + columns, column.is_multiple_of(ARTERIAL_EVERY)));
        for (to, arterial) in [east, north].into_iter().flatten() {
            let m_per_s =
                if arterial { ARTERIAL_M_PER_S } else { random.between(STREET_M_PER_S.0, STREET_M_PER_S.1) };
            // Arterial roads connect everything: no junction is cut off by a street that is missing.
            let touches_arterial = |n: usize| {
                (n % columns).is_multiple_of(ARTERIAL_EVERY) || (n / columns).is_multiple_of(ARTERIAL_EVERY)
            };
            let may_miss = !arterial && !touches_arterial(from) && !touches_arterial(to);
            if may_miss && random.unit() < MISSING_STREET_SHARE {
                continue;
            }
            let length_m = junctions[from].distance(junctions[to]);
            roads[from].push(Road { to, length_m, m_per_s });
            roads[to].push(Road { to: from, length_m, m_per_s });
        }
    }
    roads
}

/// Cells in rows, every second one shifted by half a distance, each moved a little.
fn cells(random: &mut Random, count: usize, width: f64, height: f64) -> Vec<Point> {
    let columns = ((count as f64 * width / height).sqrt().ceil() as usize).max(1);
    let rows = count.div_ceil(columns);
    let (dx, dy) = (width / columns as f64, height / rows as f64);
    (0..count)
        .map(|n| {
            let (column, row) = (n % columns, n / columns);
            let shifted = column as f64 + if row % 2 == 1 { 0.75 } else { 0.25 };
            Point {
                x: shifted * dx + random.between(-0.2, 0.2) * dx,
                y: (row as f64 + 0.5) * dy + random.between(-0.2, 0.2) * dy,
            }
        })
        .collect()
}
