use super::*;

const BEGIN: Instant = Instant(1_000_000);

/// Packets of bursts of four for one cycle of windows, whose stay is what `stay` says of the work that is done at once.
fn cycle(budget: &mut Budget, now: &mut Instant, stay: impl Fn((u32, u32)) -> u64) {
    for _ in 0..WINDOWS {
        for _ in 0..200 {
            budget.stayed(stay(budget.at_once()), 4);
        }
        *now = *now + WINDOW;
        budget.turn(*now);
    }
}

/// The level after many cycles.
fn level_after(percent: u16, stay: impl Fn((u32, u32)) -> u64) -> (u32, u32) {
    let (mut budget, mut now) = (Budget::new(percent, BEGIN), BEGIN);
    (0..50).for_each(|_| cycle(&mut budget, &mut now, &stay));
    LEVELS[budget.level]
}

#[test]
fn a_percentile_is_within_a_thirty_second_of_the_stay_that_was_added() {
    for ns in [1u64, 32, 90, 1_000, 1_499, 65_536, 5_000_000] {
        let mut stays = Stays::default();
        stays.add(ns, 96);
        stays.add(ns.max(32) * 100, 4);
        let near = |ns: u64| ns.max(32) * 31 / 32..=ns.max(32) * 33 / 32;
        assert!(near(ns).contains(&stays.p95()), "{ns}: {}", stays.p95());
        stays.add(ns.max(32) * 100, 4);
        assert!(near(ns.max(32) * 100).contains(&stays.p95()), "{ns}: {}", stays.p95());
    }
}

#[test]
fn one_window_of_each_cycle_is_without_work() {
    let (mut budget, mut now) = (Budget::new(30, BEGIN), BEGIN);
    let mut at_once = Vec::new();
    for _ in 0..2 * WINDOWS {
        at_once.push(budget.at_once() != (0, 0));
        now = now + WINDOW;
        budget.turn(now);
    }
    let cycle: Vec<bool> = (0..WINDOWS).map(|n| n != 0).collect();
    assert_eq!(at_once, [&cycle[..], &cycle[..]].concat());
}

#[test]
fn work_that_costs_nothing_grows_to_the_most() {
    assert_eq!(level_after(5, |_| 1_000), LEVELS[LEVELS.len() - 1]);
}

#[test]
fn work_shrinks_to_what_the_operator_permits() {
    let stay = |(idle, stall): (u32, u32)| 1_000 + 20 * u64::from(idle) + 90 * u64::from(stall);
    for (percent, most) in [(10, 4), (50, 16), (100, 32)] {
        let at_once = level_after(percent, stay);
        assert!(stay(at_once) * 100 <= 1_000 * (100 + u64::from(percent)), "{percent} %: {at_once:?}");
        assert_eq!(at_once.0, most, "{percent} %");
    }
    assert_eq!(level_after(3, |(idle, _)| 1_000 + 20 * u64::from(idle)), (0, 0), "nothing is cheap enough");
}

#[test]
fn work_grows_again_when_packets_no_longer_pay_for_it() {
    let (mut budget, mut now) = (Budget::new(10, BEGIN), BEGIN);
    (0..20).for_each(|_| cycle(&mut budget, &mut now, |at_once| if at_once.0 > 0 { 2_000 } else { 1_000 }));
    assert_eq!(budget.level, 0);
    (0..2 * RETRY_CYCLES).for_each(|_| cycle(&mut budget, &mut now, |_| 1_000));
    assert_eq!(budget.level, LEVELS.len() - 1);
}

#[test]
fn too_few_packets_decide_nothing() {
    let (mut budget, mut now) = (Budget::new(10, BEGIN), BEGIN);
    for _ in 0..WINDOWS {
        (0..10).for_each(|_| budget.stayed(if budget.at_once().0 > 0 { 5_000 } else { 1_000 }, 1));
        now = now + WINDOW;
        budget.turn(now);
    }
    assert_eq!((budget.level, budget.compared), (1, (0, 0)));
}

#[test]
fn work_in_stalls_counts_as_long_as_the_same_work_after_empty_looks() {
    let counters = |idle_ns, places_idle, places_in_stalls| HarvestCounters {
        idle_ns,
        places_idle,
        places_in_stalls,
        ..HarvestCounters::default()
    };
    assert_eq!(counters(1_000, 50, 25).work_ns(), 1_500);
    assert_eq!(counters(0, 0, 25).work_ns(), 0);
}

#[test]
fn the_cost_is_how_much_longer_packets_stay_with_work() {
    let cost = |p95_with_ns, p95_without_ns| {
        HarvestCounters { p95_with_ns, p95_without_ns, ..HarvestCounters::default() }.cost_percent()
    };
    assert_eq!([cost(1_300, 1_000), cost(900, 1_000), cost(0, 0)], [30, 0, 0]);
}
