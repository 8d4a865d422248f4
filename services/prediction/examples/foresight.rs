//! `./x bench foresight [TRAIN] [JUDGE]`: how often baselines and networks know the next cell, by the time before the handover, and what
//! it costs to ask.

use std::time::{Duration, Instant};

use whimbrel_prediction::{
    AlongHeading, Cell, City, CitySize, Evaluation, FrequentNeighbour, MarkovOne, MarkovTwo, PerCell,
    Relations, Signals, TrainedNetwork, Trainer, Trip,
};

/// Trips that predictors learn from, and further ones that they are judged by.
const TRAIN: u64 = 20_000;
const JUDGE: u64 = 3_000;
/// The interval from 1 to 5 s before the handover.
const GOAL_INTERVAL: usize = 1;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let (train, judge) = (numbers.next().unwrap_or(TRAIN), numbers.next().unwrap_or(JUDGE));
    let city = City::new(1, CitySize::CITY);
    println!(
        "{} cells; {train} trips to learn from, {judge} further ones to be judged by",
        city.cell_count()
    );
    let predictors = Predictors::trained(&city, train);
    let mut evaluations = [Evaluation::default(); 7];
    let mut times = [Duration::ZERO; 2];
    let mut samples = 0;
    for number in train..train + judge {
        let trip = Trip::new(&city, number);
        samples += trip.samples.len();
        predictors.evaluate(&trip, &mut evaluations, &mut times);
    }
    println!("right predictions of the next cell, in percent of samples, by the time before the handover");
    println!("{:<28} {:>8} {:>8} {:>8} {:>8}", "predictor", "0-1 s", "1-5 s", "5-10 s", "> 10 s");
    let names = [
        "frequent neighbour",
        "Markov, order 1",
        "Markov, order 2",
        "along heading *",
        "a network per cell *",
        "one network",
        "one network *",
    ];
    let mut figures: Vec<String> = Vec::new();
    for (name, evaluation) in names.iter().zip(&evaluations) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|interval| 100.0 * evaluation.right(interval));
        println!("{name:<28} {a:>8.1} {b:>8.1} {c:>8.1} {d:>8.1}");
        figures.push(format!("\"{name}\":[{a:.1},{b:.1},{c:.1},{d:.1}]"));
    }
    println!("* sees positions (NRPPa), the network per cell the angle alone; the others see cells alone");
    let wrong = |n: usize| 1.0 - evaluations[n].right(GOAL_INTERVAL);
    let fewer = |network: usize, baseline: usize| 100.0 * (1.0 - wrong(network) / wrong(baseline));
    let (cells, positions) = (fewer(5, 2), fewer(6, 3).min(fewer(6, 2)));
    println!(
        "wrong cells at 1-5 s against the best baseline: {cells:.0} % fewer by cells (goal 20), {positions:.0} % fewer by positions (goal 33)"
    );
    let micros = times.map(|t| t.as_secs_f64() * 1e6 / samples as f64);
    println!(
        "a sample taken and scored: {:.2} us by cells, {:.2} us by positions (goal 4: a million UEs every 5 s on a core)",
        micros[0], micros[1]
    );
    println!(
        "{{\"bench\":\"foresight\",\"train\":{train},\"judge\":{judge},\"figures\":{{{}}},\"fewer_wrong\":[{cells:.1},{positions:.1}],\"us\":[{:.2},{:.2}]}}",
        figures.join(","),
        micros[0],
        micros[1]
    );
}

struct Predictors<'a> {
    frequent: FrequentNeighbour,
    one: MarkovOne,
    two: MarkovTwo,
    heading: AlongHeading<'a>,
    per_cell: PerCell,
    networks: [TrainedNetwork; 2],
}

impl<'a> Predictors<'a> {
    fn trained(city: &'a City, train: u64) -> Self {
        let mut relations = Relations::default();
        (0..train.min(5_000)).for_each(|n| relations.add(&Trip::new(city, n)));
        let cells = || (0..=u16::MAX).take(city.cell_count()).map(|c| (u64::from(c), city.antenna(Cell(c))));
        let [mut of_cells, mut of_positions] = [Signals::Cells, Signals::Positions]
            .map(|signals| Trainer::new(1, signals, cells().collect(), &relations, train));
        let mut frequent = FrequentNeighbour::default();
        let (mut one, mut two) = <(MarkovOne, MarkovTwo)>::default();
        let mut heading = AlongHeading::new(city);
        let mut per_cell = PerCell::new(1, city, &relations, train / 10);
        for number in 0..train {
            let trip = Trip::new(city, number);
            Evaluation::train(&mut frequent, &trip);
            Evaluation::train(&mut one, &trip);
            Evaluation::train(&mut two, &trip);
            Evaluation::train(&mut heading, &trip);
            per_cell.learn_trip(&trip);
            of_cells.learn(&trip);
            of_positions.learn(&trip);
        }
        let networks = [of_cells.into_network(), of_positions.into_network()];
        Self { frequent, one, two, heading, per_cell, networks }
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock that predictors must not")]
    fn evaluate(&self, trip: &Trip, evaluations: &mut [Evaluation; 7], times: &mut [Duration; 2]) {
        evaluations[0].add(&self.frequent, trip);
        evaluations[1].add(&self.one, trip);
        evaluations[2].add(&self.two, trip);
        evaluations[3].add(&self.heading, trip);
        evaluations[4].add(&self.per_cell, trip);
        for (n, network) in self.networks.iter().enumerate() {
            let begin = Instant::now();
            evaluations[5 + n].add(network, trip);
            times[n] += begin.elapsed();
        }
    }
}
