use super::*;

const BEGIN: Instant = Instant(1_000_000);

/// Packets of bursts whose stays follow one another as `stay` says of the level that works, in nanoseconds.
struct Load<S> {
    budget: Budget,
    now: Instant,
    /// Bursts of half a millisecond, and packets of a burst.
    bursts: u32,
    packets: u32,
    stay: S,
    random: u64,
}

impl<S: FnMut(ReadLevel, u64) -> u64> Load<S> {
    fn new(percent: u16, bursts: u32, stay: S) -> Self {
        Self {
            budget: Budget::new(percent, BEGIN),
            now: BEGIN,
            bursts,
            packets: 2,
            stay,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn window(&mut self) {
        let lasts = self.budget.window_ends.since(self.now);
        let bursts = u128::from(self.bursts) * lasts.as_micros() / WINDOW.as_micros();
        for _ in 0..bursts {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let stay = (self.stay)(self.budget.at_once(), self.random >> 11);
            self.budget.stayed(stay, self.packets);
        }
        self.now = self.budget.window_ends;
        self.budget.turn(self.now);
    }

    fn cycles(&mut self, cycles: u32) {
        (0..cycles * WINDOWS).for_each(|_| self.window());
    }

    fn level(&self) -> ReadLevel {
        LEVELS[self.budget.level]
    }
}

/// A stay without work of 300 ns and more, whose 95th percentile chance moves by 60 ns; work costs so much a place.
fn noisy(place_ns: u64) -> impl FnMut(ReadLevel, u64) -> u64 {
    move |level, random| {
        // Of few looks one has work, and the packet waits for it then.
        let meets = (random >> 20).is_multiple_of(u64::from(level.looks));
        let tail = if random % 100 < 8 { 300 + random % 900 } else { 0 };
        300 + random % 64 + tail + if meets { place_ns * u64::from(level.idle + 3 * level.stall) } else { 0 }
    }
}

#[test]
fn a_percentile_is_within_a_sixty_fourth_of_the_stay_that_was_added() {
    for ns in [1u64, 32, 90, 1_000, 1_499, 65_536, 5_000_000] {
        let mut stays = Stays::default();
        stays.add(ns, 96);
        stays.add(ns.max(64) * 100, 4);
        let near = |ns: u64, seen: f64| (seen / ns.max(64) as f64 - 1.0).abs() <= 1.0 / 64.0;
        assert!(near(ns, stays.p95()), "{ns}: {}", stays.p95());
        stays.add(ns.max(64) * 100, 4);
        assert!(near(ns.max(64) * 100, stays.p95()), "{ns}: {}", stays.p95());
    }
}

#[test]
fn the_range_of_a_percentile_narrows_with_the_bursts_that_were_counted() {
    let range = |bursts: u64| {
        let mut stays = Stays::default();
        (0..bursts).for_each(|n| stays.add(1_000 + n * 1_000 / bursts, 1));
        let (from, to) = stays.p95_range();
        assert!((from..to).contains(&1_950.0), "{bursts}: {from} to {to}");
        to - from
    };
    let [few, many] = [range(400), range(40_000)];
    assert!(few > 8.0 * many && few < 50.0, "{few} and {many}");
}

#[test]
fn half_of_the_windows_are_without_work_while_the_level_is_looked_for_and_one_of_eight_later() {
    let mut load = Load::new(10, 100, |level: ReadLevel, _| 1_000 + 90 * u64::from(level.idle));
    let without = |load: &mut Load<_>| {
        (0..400)
            .filter(|_| {
                load.window();
                !load.budget.works
            })
            .count()
    };
    load.bursts = 0;
    assert!((160..240).contains(&without(&mut load)));
    load.bursts = 100;
    load.cycles(20);
    assert_eq!(load.level(), LEVELS[FIRST_LEVEL], "one place costs 9 %, two 18");
    let settled = without(&mut load);
    assert!((25..100).contains(&settled), "{settled}");
}

#[test]
fn what_happens_every_four_milliseconds_is_charged_to_both_kinds_of_windows() {
    // For a tenth of each period packets stay for longer, with work or without.
    let mut load = Load::new(10, 100, |_, _| 1_000);
    let (mut with, mut without) = ([0u32; 2], [0u32; 2]);
    for _ in 0..4_000 {
        let slow = load.now.0 % 4_000 < 400;
        let counts = if load.budget.works { &mut with } else { &mut without };
        counts[usize::from(slow)] += 1;
        load.window();
    }
    let part = |[fast, slow]: [u32; 2]| f64::from(slow) / f64::from(fast + slow);
    assert!((part(with) - part(without)).abs() < 0.05, "{} and {}", part(with), part(without));
}

#[test]
fn work_that_costs_nothing_grows_to_the_most() {
    let mut load = Load::new(5, 250, |_, _| 1_000);
    load.cycles(80);
    assert_eq!(load.level(), LEVELS[LEVELS.len() - 1]);
}

#[test]
fn work_shrinks_to_what_the_operator_permits() {
    let stay = |level: ReadLevel| 1_000 + 20 * u64::from(level.idle + level.stall);
    for (percent, places) in [(10, 4), (50, 20), (100, 40)] {
        let mut load = Load::new(percent, 60, |level, _| stay(level));
        load.cycles(300);
        let level = load.level();
        assert!(stay(level) * 100 <= 1_000 * (100 + u64::from(percent)), "{percent} %: {level:?}");
        assert!(level.idle >= places / 2, "{percent} %: {level:?}");
    }
}

#[test]
fn a_budget_below_the_time_of_one_place_still_permits_work_after_few_looks() {
    // One place costs a third of the stay, and 5 % are permitted.
    let mut load = Load::new(5, 400, noisy(100));
    load.cycles(150);
    let level = load.level();
    assert!(level.looks > 1 && level.idle == 1, "{level:?}");
}

#[test]
fn a_small_budget_is_held_where_stays_vary_by_more_than_it() {
    // 10 % of some 500 ns, with places of 10 ns: at least one place after each look, and never as many as would cost 20 %.
    for percent in [10, 30, 50] {
        let mut load = Load::new(percent, 150, noisy(10));
        load.cycles(150);
        let (mut above, mut working) = (0, 0);
        for _ in 0..60 {
            load.cycles(1);
            let (with, without) = load.budget.compared;
            above += u32::from(with * 100 > without * (100 + u64::from(percent) + 5));
            working += u32::from(load.level().idle > 0);
        }
        assert!(above <= 6, "{percent} %: above the budget in {above} of 60 cycles");
        assert_eq!(working, 60, "{percent} %: {:?}", load.level());
    }
}

#[test]
fn one_unlucky_comparison_costs_a_level_for_some_cycles_not_for_seconds() {
    let unlucky = std::cell::Cell::new(true);
    let mut load =
        Load::new(50, 250, |level: ReadLevel, _| if unlucky.get() && level.idle > 0 { 9_000 } else { 1_000 });
    load.cycles(1);
    unlucky.set(false);
    assert_eq!(load.level(), LEVELS[FIRST_LEVEL - 1]);
    load.cycles(RETRY_CYCLES + 2);
    assert!(load.budget.level > FIRST_LEVEL, "{:?}", load.level());
}

#[test]
fn a_level_that_fails_again_and_again_is_tried_ever_less_often() {
    let mut load = Load::new(50, 60, |level: ReadLevel, _| if level.idle > 4 { 9_000 } else { 1_000 });
    let mut tried = |cycles: u32| {
        (0..cycles)
            .filter(|_| {
                load.cycles(1);
                load.level().idle > 4
            })
            .count()
    };
    let first = tried(200);
    tried(2 * RETRY_CYCLES_MAX);
    let later = tried(200);
    assert!(first > 3 && later <= 1, "{first} of the first 200 cycles, {later} of later ones");
}

#[test]
fn work_grows_again_when_packets_no_longer_pay_for_it() {
    let dear = std::cell::Cell::new(true);
    let mut load =
        Load::new(10, 60, |level: ReadLevel, _| if dear.get() && level.idle > 0 { 2_000 } else { 1_000 });
    load.cycles(100);
    assert_eq!(load.budget.level, 0, "nothing is cheap enough");
    dear.set(false);
    load.cycles(RETRY_CYCLES_MAX + 100);
    assert_eq!(load.budget.level, LEVELS.len() - 1);
}

#[test]
fn too_few_packets_decide_nothing() {
    let mut load = Load::new(10, 5, |level: ReadLevel, _| if level.idle > 0 { 5_000 } else { 1_000 });
    load.cycles(9);
    assert_eq!((load.budget.level, load.budget.compared), (FIRST_LEVEL, (0, 0)));
}

#[test]
fn levels_grow_by_no_more_than_twice_where_each_look_has_work() {
    for pair in LEVELS[FIRST_LEVEL..].windows(2) {
        assert!(pair[1].idle <= 2 * pair[0].idle && pair[1].idle > pair[0].idle, "{pair:?}");
        assert!(pair[1].stall >= pair[0].stall && pair[1].looks == 1, "{pair:?}");
    }
    for pair in LEVELS[1..=FIRST_LEVEL].windows(2) {
        assert!(pair[1].idle == 1 && pair[1].looks == pair[0].looks / 4, "{pair:?}");
    }
}

#[test]
fn a_burst_of_half_of_what_a_look_takes_has_no_work_in_its_stalls() {
    let harvest = Harvest::P95 { percent: 50, every: Duration::ZERO };
    let mut background = Background::new(harvest, BEGIN).expect("there is work");
    background.survey = Some(UsageSurvey::default());
    background.budget.level = LEVELS.len() - 1;
    background.budget.works = true;
    assert!(background.in_stalls(BEGIN, FULL - 1).is_some());
    assert!(background.in_stalls(BEGIN, FULL).is_none(), "packets wait: the thread is at saturation");
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

#[test]
fn full_bursts_leave_the_level_where_it_was_when_packets_filled_them() {
    let mut load = Load::new(50, 250, |_, _| 1_000);
    load.cycles(1);
    let level = load.budget.level;
    load.packets = FULL as u32;
    load.cycles(50);
    assert_eq!(load.budget.level, level);
    load.packets = 2;
    load.cycles(10);
    assert!(load.budget.level > level);
}
