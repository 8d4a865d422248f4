//! A drive through a city.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::city::{Cell, City, Point};
use crate::random::Random;

/// Time between two samples.
pub(crate) const SAMPLE_MS: u64 = 500;
/// A handover needs a neighbour that is better by this (event A3 of TS 38.331 §5.5.4.4), for [`TIME_TO_TRIGGER_MS`].
const HYSTERESIS_DB: f64 = 3.0;
const TIME_TO_TRIGGER_MS: u64 = 1_000;
/// Drivers differ in which way they take: each road seems longer or shorter to each by up to this.
const PREFERENCE: f64 = 0.35;
/// Share of junctions with a red light, and the longest stop.
const RED_LIGHTS: f64 = 0.3;
const RED_LIGHT_MS: f64 = 20_000.0;

/// Where a UE is at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripSample {
    /// Milliseconds since the trip began.
    pub at_ms: u64,
    /// Position at that time.
    pub position: Point,
    /// The cell that serves it.
    pub cell: Cell,
}

/// A trip: its samples, in order of time.
#[derive(Clone, Debug)]
pub struct Trip {
    /// Every half a second, from the first to the last.
    pub samples: Vec<TripSample>,
}

impl Trip {
    /// The trip of this number in a city: the same for the same city and number.
    #[must_use]
    pub fn new(city: &City, number: u64) -> Self {
        let mut random = Random::new(number.wrapping_mul(0xa076_1d64_78bd_642f) ^ 0x5eed);
        let from = city.draw_trip_end(&mut random);
        let to = city.draw_trip_end(&mut random);
        let positions = drive(city, &route(city, from, to, &mut random), &mut random);
        let mut radio = Radio::new(city, positions[0]);
        let samples = positions
            .into_iter()
            .zip(0u64..)
            .map(|(position, n)| TripSample {
                at_ms: n * SAMPLE_MS,
                position,
                cell: radio.at(city, position),
            })
            .collect();
        Self { samples }
    }

    /// Times and cells of its handovers.
    pub fn handovers(&self) -> impl Iterator<Item = (u64, Cell)> {
        self.samples.windows(2).filter(|w| w[0].cell != w[1].cell).map(|w| (w[1].at_ms, w[1].cell))
    }
}

/// The junctions of the quickest way, as this driver sees it.
fn route(city: &City, from: usize, to: usize, random: &mut Random) -> Vec<usize> {
    let preference = random.number();
    let seconds = |from: usize, to: usize, length: f64, speed: f64| {
        let mut random = Random::new(preference ^ (from as u64) << 32 ^ to as u64);
        length / speed * random.between(1.0 - PREFERENCE, 1.0 + PREFERENCE)
    };
    let mut reached: Vec<Option<(u64, usize)>> = vec![None; city.junction_count()];
    let mut open = BinaryHeap::from([(Reverse(0u64), from, from)]);
    while let Some((Reverse(cost), junction, before)) = open.pop() {
        if reached[junction].is_some() {
            continue;
        }
        reached[junction] = Some((cost, before));
        if junction == to {
            break;
        }
        for road in city.roads_from(junction) {
            let ms = seconds(junction, road.to, road.length_m, road.m_per_s) * 1_000.0;
            open.push((Reverse(cost + ms as u64), road.to, junction));
        }
    }
    let mut way = vec![to];
    let mut at = to;
    while at != from
        && let Some((_, before)) = reached[at]
    {
        at = before;
        way.push(at);
    }
    way.reverse();
    way
}

/// Positions every [`SAMPLE_MS`] along a way, with stops at red lights.
fn drive(city: &City, way: &[usize], random: &mut Random) -> Vec<Point> {
    let hurry = random.between(0.8, 1.15);
    let mut positions = vec![city.junction(way[0])];
    // Time that is left over from the road before.
    let mut spare_s = 0.0;
    let sample_s = SAMPLE_MS as f64 / 1_000.0;
    for step in way.windows(2) {
        let (from, to) = (city.junction(step[0]), city.junction(step[1]));
        let Some(road) = city.roads_from(step[0]).iter().find(|road| road.to == step[1]) else { continue };
        let seconds = road.length_m / (road.m_per_s * hurry * random.between(0.7, 1.1));
        let mut at_s = sample_s - spare_s;
        while at_s < seconds {
            positions.push(from.towards(to, at_s / seconds));
            at_s += sample_s;
        }
        spare_s = (seconds - (at_s - sample_s)).max(0.0);
        if random.unit() < RED_LIGHTS {
            let stops = (random.between(0.0, RED_LIGHT_MS) / SAMPLE_MS as f64) as usize;
            positions.extend(std::iter::repeat_n(to, stops));
        }
    }
    positions
}

/// The serving cell, by received power with hysteresis and time to trigger.
struct Radio {
    serving: Cell,
    /// A better neighbour, and for how long it has been better.
    candidate: Option<(Cell, u64)>,
}

impl Radio {
    fn new(city: &City, at: Point) -> Self {
        Self { serving: best(city, at).0, candidate: None }
    }

    fn at(&mut self, city: &City, at: Point) -> Cell {
        let (cell, power) = best(city, at);
        let better = cell != self.serving && power > city.power_db(self.serving, at) + HYSTERESIS_DB;
        self.candidate = match self.candidate {
            _ if !better => None,
            Some((candidate, ms)) if candidate == cell => Some((cell, ms + SAMPLE_MS)),
            _ => Some((cell, 0)),
        };
        if let Some((cell, TIME_TO_TRIGGER_MS..)) = self.candidate {
            self.serving = cell;
            self.candidate = None;
        }
        self.serving
    }
}

fn best(city: &City, at: Point) -> (Cell, f64) {
    let powers = city.nearby(at).iter().map(|cell| (*cell, city.power_db(*cell, at)));
    powers.max_by(|a, b| a.1.total_cmp(&b.1)).expect("some cell is near every place")
}
