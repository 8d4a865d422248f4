//! The city and its trips.

use proptest::prelude::*;
use whimbrel_foresight::{City, Evaluation, MarkovOne, MarkovTwo, Size, Trip};

#[test]
fn the_same_seed_and_number_give_the_same_trip() {
    let [a, b] = [0, 1].map(|_| Trip::new(&City::new(7, Size::SMALL), 3));
    assert_eq!(a.samples, b.samples);
    assert_ne!(a.samples, Trip::new(&City::new(7, Size::SMALL), 4).samples);
    assert_ne!(a.samples, Trip::new(&City::new(8, Size::SMALL), 3).samples);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_trip_is_faster_than_its_roads_and_no_cell_serves_for_less_than_the_time_to_trigger(number in any::<u64>()) {
        let city = City::new(1, Size::SMALL);
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
    let city = City::new(1, Size::SMALL);
    let trips: Vec<Trip> = (0..300).map(|n| Trip::new(&city, n)).collect();
    let handovers: usize = trips.iter().map(|t| t.handovers().count()).sum();
    assert!(handovers > 300, "{handovers} handovers in 300 trips");
    let mut serving: Vec<_> = trips.iter().flat_map(|t| t.samples.iter().map(|s| s.cell)).collect();
    serving.sort();
    serving.dedup();
    assert_eq!(serving.len(), city.cells());
}

#[test]
fn two_cells_tell_more_than_one() {
    let city = City::new(1, Size::SMALL);
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
