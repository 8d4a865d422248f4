//! `./x bench foresight`: how often the baselines know the next cell, by the time before the handover.

use whimbrel_foresight::{
    AlongHeading, City, Evaluation, FrequentNeighbour, MarkovOne, MarkovTwo, Size, Trip,
};

/// Trips that predictors learn from, and further ones that they are judged by.
const TRAIN: u64 = 50_000;
const JUDGE: u64 = 20_000;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let (train, judge) = (numbers.next().unwrap_or(TRAIN), numbers.next().unwrap_or(JUDGE));
    let city = City::new(1, Size::CITY);
    println!("{} cells; {train} trips to learn from, {judge} further ones to be judged by", city.cells());
    println!("right predictions of the next cell, in percent of samples, by the time before the handover");
    println!("{:<22} {:>8} {:>8} {:>8} {:>8}", "predictor", "0-1 s", "1-5 s", "5-10 s", "> 10 s");
    let mut predictors = Baselines {
        frequent: FrequentNeighbour::default(),
        one: MarkovOne::default(),
        two: MarkovTwo::default(),
        heading: AlongHeading::new(&city),
    };
    (0..train).for_each(|n| predictors.train(&Trip::new(&city, n)));
    let mut evaluations = [Evaluation::default(); 4];
    (train..train + judge).for_each(|n| predictors.evaluate(&Trip::new(&city, n), &mut evaluations));
    let names = ["frequent neighbour", "Markov, order 1", "Markov, order 2", "along heading *"];
    let mut figures: Vec<String> = Vec::new();
    for (name, evaluation) in names.iter().zip(evaluations) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|interval| 100.0 * evaluation.right(interval));
        println!("{name:<22} {a:>8.1} {b:>8.1} {c:>8.1} {d:>8.1}");
        figures.push(format!("\"{}\":[{a:.1},{b:.1},{c:.1},{d:.1}]", name.trim_end_matches(" *")));
    }
    println!("* needs positions (NRPPa); the others need cells alone");
    println!("{{\"bench\":\"foresight\",\"figures\":{{{}}}}}", figures.join(","));
}

struct Baselines<'a> {
    frequent: FrequentNeighbour,
    one: MarkovOne,
    two: MarkovTwo,
    heading: AlongHeading<'a>,
}

impl Baselines<'_> {
    fn train(&mut self, trip: &Trip) {
        Evaluation::train(&mut self.frequent, trip);
        Evaluation::train(&mut self.one, trip);
        Evaluation::train(&mut self.two, trip);
        Evaluation::train(&mut self.heading, trip);
    }

    fn evaluate(&self, trip: &Trip, evaluations: &mut [Evaluation; 4]) {
        evaluations[0].add(&self.frequent, trip);
        evaluations[1].add(&self.one, trip);
        evaluations[2].add(&self.two, trip);
        evaluations[3].add(&self.heading, trip);
    }
}
