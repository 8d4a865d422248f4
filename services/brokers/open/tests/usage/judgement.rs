//! The parties that the broker blames: the goal, and what lying operators and users, slander, whitewashing and Sybils achieve.

use super::market::{Market, Noise, operator, reports_until_blame, user};

#[test] // The goal: an operator that adds 1 % beyond noise is found within 20 reports per user over five users
fn an_operator_that_adds_one_percent_is_found_within_twenty_reports_of_five_users() {
    let runs = 200;
    let found =
        (0..runs).filter(|n| reports_until_blame(*n, Noise::EachReport, 10_000, 5, 20).is_some()).count();
    assert_eq!(found as u64, runs);
}

#[test] // The goal: false alarms under 1e-3
fn an_honest_operator_is_not_blamed_for_noise() {
    let blamed =
        (0..2_000).filter(|n| reports_until_blame(*n, Noise::EachReport, 0, 5, 20).is_some()).count();
    assert_eq!(blamed, 0);
}

#[test] // A mismatch alone causes no blame
fn one_pair_alone_causes_no_blame_however_much_it_differs() {
    let mut market = Market::new(1, Noise::EachReport, vec![500_000], &[0]);
    (0..100).for_each(|_| assert!(market.report(0, 0).is_empty()));
    assert!(!market.is_shunned(0));
}

#[test]
fn an_operator_that_begins_to_overstate_is_not_covered_by_its_past() {
    let mut market = Market::new(2, Noise::EachReport, vec![0], &[0; 100]);
    (0..100).for_each(|u| assert!(market.report(u, 0).is_empty()));
    let before = market.judge.reputation(operator(0), market.now_s);
    market.set_shift(0, 250_000);
    (0..50).for_each(|u| drop(market.report(u, 0)));
    assert!(before > 50 && market.is_shunned(0), "{before}");
}

#[test] // 30 % lying operators, 30 % lying users
fn dishonest_parties_are_blamed_and_honest_ones_are_served() {
    for seed in 1..=5 {
        let mut market = Market::with_dishonest(seed, 30, 300, 30);
        market.roam(20, 5);
        for o in 0..market.operators() {
            assert_eq!(market.is_shunned(o), market.is_dishonest_operator(o), "operator {o}, seed {seed}");
        }
        let suspects = |dishonest: bool| {
            let of = (0..market.users()).filter(|u| market.is_dishonest_user(*u) == dishonest);
            of.filter(|u| market.blamed_users[*u] > 0).count()
        };
        assert!(suspects(true) >= 85, "{} of 90 lying users are found, seed {seed}", suspects(true));
        assert!(suspects(false) <= 1, "{} of 210 honest users are blamed, seed {seed}", suspects(false));
    }
}

#[test]
fn users_that_slander_one_operator_do_not_bring_it_down_while_they_are_the_lesser_part() {
    let mut market = Market::new(3, Noise::EachReport, vec![0; 6], &[0; 60]);
    (0..20).for_each(|u| market.slander(u, 0));
    market.roam(30, 3);
    assert!(!market.is_shunned(0));
}

#[test] // Sybils weigh half, and are issued by the broker itself
fn new_users_in_the_same_number_do_not_outvote_known_ones() {
    let mut market = Market::new(4, Noise::EachReport, vec![0; 4], &[0; 10]);
    market.roam(20, 3);
    let first = market.join(&[0; 9]);
    (first..first + 9).for_each(|u| market.slander(u, 0));
    for _ in 0..10 {
        (0..first + 9).for_each(|u| drop(market.report(u, 0)));
    }
    assert_eq!(market.blamed_operators[0], 0);
}

#[test]
fn an_operator_under_another_name_begins_low_and_falls_at_once() {
    let mut market = Market::new(5, Noise::EachReport, vec![100_000], &[0; 20]);
    market.roam(5, 2);
    assert!(market.is_shunned(0));
    let renamed = market.rename(0);
    let mut reports = 0;
    while !market.is_shunned(renamed) {
        market.report(reports % 20, renamed);
        reports += 1;
        assert!(reports < 40);
    }
    assert_eq!(market.blamed_operators[renamed], 1, "one blame is enough for a newcomer");
}

#[test] // An operator's own users earn it little: ten comparisons of each pair count
fn a_reputation_is_not_made_by_few_users() {
    let mut own = Market::new(6, Noise::EachReport, vec![0], &[0; 2]);
    (0..1_000).for_each(|n| drop(own.report(n % 2, 0)));
    let mut many = Market::new(6, Noise::EachReport, vec![0], &[0; 100]);
    (0..1_000).for_each(|n| drop(many.report(n % 100, 0)));
    let reputation = |m: &Market| m.judge.reputation(operator(0), m.now_s);
    assert!(reputation(&own) <= 34 && reputation(&many) >= 85, "{} {}", reputation(&own), reputation(&many));
}

#[test]
fn a_blame_is_half_forgotten_after_a_month_and_the_reputation_comes_back() {
    let mut market = Market::new(7, Noise::EachReport, vec![250_000], &[0; 10]);
    (0..10).for_each(|u| drop(market.report(u, 0)));
    let at = |days: u64| market.judge.reputation(operator(0), market.now_s + days * 86_400);
    assert_eq!((at(0), at(30), at(60)), (5, 10, 15));
    assert!(!market.judge.is_suspect(user(0), market.now_s));
}

#[test] // The worst case of noise, which is not the goal's: each device counts wrong to one side for ever
fn constant_errors_of_devices_are_averaged_over_twenty_users() {
    let blamed = (0..300).filter(|n| reports_until_blame(*n, Noise::EachUser, 0, 20, 20).is_some()).count();
    assert!(blamed <= 3, "{blamed} of 300");
}
