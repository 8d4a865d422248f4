//! The city and its trips.

use ed25519_dalek::{Signer, SigningKey};
use proptest::prelude::*;
use whimbrel_prediction::{
    AlongHeading, Cell, City, CitySize, Evaluation, FileError, History, MarkovOne, MarkovTwo, NetworkMemory,
    PositionReport, Predictor, Relations, Signals, TrainedNetwork, Trainer, Trip, public_key,
};

#[test]
fn the_same_seed_and_number_give_the_same_trip() {
    let [a, b] = [0, 1].map(|_| Trip::new(&City::new(7, CitySize::SMALL), 3));
    assert_eq!(a.samples, b.samples);
    assert_ne!(a.samples, Trip::new(&City::new(7, CitySize::SMALL), 4).samples);
    assert_ne!(a.samples, Trip::new(&City::new(8, CitySize::SMALL), 3).samples);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_trip_is_faster_than_its_roads_and_no_cell_serves_for_less_than_the_time_to_trigger(number in any::<u64>()) {
        let city = City::new(1, CitySize::SMALL);
        let trip = Trip::new(&city, number);
        for pair in trip.samples.windows(2) {
            let seconds = (pair[1].at_ms - pair[0].at_ms) as f64 / 1000.0;
            let speed = pair[0].position.distance(pair[1].position) / seconds;
            prop_assert!(speed < 25.0, "{speed} m/s");
        }
        let times: Vec<u64> = trip.handovers().map(|(at_ms, _)| at_ms).collect();
        prop_assert!(times.windows(2).all(|w| w[1] - w[0] >= 1_000), "{times:?}");
    }
}

#[test]
fn trips_cross_cells_and_every_cell_serves_some_trip() {
    let city = City::new(1, CitySize::SMALL);
    let trips: Vec<Trip> = (0..300).map(|n| Trip::new(&city, n)).collect();
    let handovers: usize = trips.iter().map(|t| t.handovers().count()).sum();
    assert!(handovers > 300, "{handovers} handovers in 300 trips");
    let mut serving: Vec<_> = trips.iter().flat_map(|t| t.samples.iter().map(|s| s.cell)).collect();
    serving.sort();
    serving.dedup();
    assert_eq!(serving.len(), city.cell_count());
}

#[test]
fn two_cells_tell_more_than_one() {
    let city = City::new(1, CitySize::SMALL);
    let (mut one, mut two) = <(MarkovOne, MarkovTwo)>::default();
    for n in 0..1_500 {
        let trip = Trip::new(&city, n);
        Evaluation::train(&mut one, &trip);
        Evaluation::train(&mut two, &trip);
    }
    let mut right = [Evaluation::default(); 2];
    for n in 1_500..1_800 {
        let trip = Trip::new(&city, n);
        right[0].add(&one, &trip);
        right[1].add(&two, &trip);
    }
    let shares = right.map(|evaluation| evaluation.right(1));
    assert!(shares[0] + 0.05 < shares[1], "{shares:?}");
}

/// A trained network of the small city, and the trips after those that it learned from.
fn trained(signals: Signals, trips: u64) -> TrainedNetwork {
    let city = City::new(1, CitySize::SMALL);
    let learned: Vec<Trip> = (0..trips).map(|n| Trip::new(&city, n)).collect();
    let mut relations = Relations::default();
    learned.iter().for_each(|trip| relations.add(trip));
    let cells = (0..=u16::MAX).take(city.cell_count()).map(|c| (u64::from(c) + 100, city.antenna(Cell(c))));
    let mut trainer = Trainer::new(1, signals, cells.collect(), &relations, trips);
    for trip in &learned {
        trainer.learn(trip);
    }
    trainer.into_network()
}

fn judged(predictor: &impl Predictor) -> f64 {
    let city = City::new(1, CitySize::SMALL);
    let mut evaluation = Evaluation::default();
    (5_000..5_300).for_each(|n| evaluation.add(predictor, &Trip::new(&city, n)));
    evaluation.right(1)
}

#[test]
fn a_network_knows_more_than_the_baselines_of_its_signals() {
    let city = City::new(1, CitySize::SMALL);
    let (mut one, mut heading) = (MarkovOne::default(), AlongHeading::new(&city));
    for n in 0..1_500 {
        Evaluation::train(&mut one, &Trip::new(&city, n));
        Evaluation::train(&mut heading, &Trip::new(&city, n));
    }
    let wrong = [judged(&one), judged(&trained(Signals::Cells, 1_500))].map(|right| 1.0 - right);
    assert!(wrong[1] < 0.85 * wrong[0], "cells: {wrong:?}");
    let wrong = [judged(&heading), judged(&trained(Signals::Positions, 600))].map(|right| 1.0 - right);
    assert!(wrong[1] < 0.67 * wrong[0], "positions: {wrong:?}");
}

#[test]
fn probabilities_add_up_and_stand_in_order() {
    let (city, network) = (City::new(1, CitySize::SMALL), trained(Signals::Positions, 50));
    let trip = Trip::new(&city, 9_000);
    let (mut memory, mut history) = (NetworkMemory::default(), History::default());
    assert_eq!(network.next_cells(&memory), []);
    for sample in &trip.samples {
        history.enters(sample.cell, sample.at_ms);
        history.reports(PositionReport { at_ms: sample.at_ms, position: sample.position });
        network.observe(&mut memory, &history, sample.at_ms);
        let next = network.next_cells(&memory);
        assert!((next.iter().map(|(_, p)| p).sum::<f32>() - 1.0).abs() < 1e-3, "{next:?}");
        assert!(next.is_sorted_by(|a, b| a.1 >= b.1));
    }
}

#[test]
fn a_cell_that_the_network_does_not_know_changes_nothing() {
    let network = trained(Signals::Cells, 100);
    let (mut memory, mut history) = (NetworkMemory::default(), History::default());
    history.enters(Cell(900), 0);
    network.observe(&mut memory, &history, 0);
    assert_eq!(network.next_cells(&memory), []);
    history.enters(Cell(1), 1_000);
    network.observe(&mut memory, &history, 1_000);
    assert!(!network.next_cells(&memory).is_empty());
}

const SEED: [u8; 32] = [7; 32];

#[test]
fn a_file_gives_the_same_network_again() {
    let network = trained(Signals::Positions, 30);
    let file = network.to_file(&SEED);
    let read = TrainedNetwork::from_file(&file, &[[1; 32], public_key(&SEED)]).unwrap();
    assert_eq!(read.to_file(&SEED), file);
    assert_eq!(read.names(), network.names());
    assert!((judged(&read) - judged(&network)).abs() < 1e-9);
}

#[test]
fn files_that_are_not_what_they_seem_are_refused() {
    let network = trained(Signals::Cells, 5);
    let file = network.to_file(&SEED);
    let trusted = [public_key(&SEED)];
    let read = |file: &[u8]| TrainedNetwork::from_file(file, &trusted).map(drop).unwrap_err();
    assert_eq!(read(b""), FileError::NotANetwork);
    assert_eq!(read(&[0; 200]), FileError::NotANetwork);
    assert_eq!(read(&file[..file.len() - 1]), FileError::Signature);
    let other = network.to_file(&[8; 32]);
    assert_eq!(read(&other), FileError::Signature);
    let mut version = file.clone();
    version[8] = 9;
    assert_eq!(read(&version), FileError::Version(9));
    let mut changed = file.clone();
    changed[500] ^= 1;
    assert_eq!(read(&changed), FileError::Signature);
    // Signed by a trusted key, and still wrong.
    let resigned = |change: fn(&mut Vec<u8>)| {
        let mut body = file[..file.len() - 64].to_vec();
        change(&mut body);
        let signature = SigningKey::from_bytes(&SEED).sign(&body);
        [body, signature.to_bytes().to_vec()].concat()
    };
    let malformed: [fn(&mut Vec<u8>); 6] = [
        |body| body[10] = 7,                      // signals
        |body| body[13 + 8..13 + 16].fill(0xff),  // an antenna that is not a number
        |body| body[13 + 24] = 200,               // too many neighbours
        |body| body[13 + 25..13 + 27].fill(0xff), // a neighbour that is no cell
        |body| body.truncate(body.len() - 4),     // a parameter too few
        |body| body.splice(body.len() - 4.., f32::NAN.to_le_bytes()).for_each(drop),
    ];
    for (n, change) in malformed.into_iter().enumerate() {
        assert!(matches!(read(&resigned(change)), FileError::Malformed(_)), "{n}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_signed_octets_are_refused_or_read(octets in proptest::collection::vec(any::<u8>(), 0..120)) {
        let body = [b"foresigh\x01\x00".as_slice(), &octets].concat();
        let signature = SigningKey::from_bytes(&SEED).sign(&body);
        let file = [body, signature.to_bytes().to_vec()].concat();
        let _ = TrainedNetwork::from_file(&file, &[public_key(&SEED)]);
    }
}
