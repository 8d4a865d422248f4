//! What a broker's judge finds of lying operators and users (chapter 3.4.3), and its false alarms. The market is that of the tests of
//! `services/brokers/open/`: virtual time, everything from a seed.

use std::io;
use std::path::Path;

use clap::Args;
use serde_json::json;

use self::market::{Market, NOISE_PPM, Noise, reports_until_blame};
use super::finish;
use crate::plot::{Axis, Plot, Series};

#[allow(dead_code, reason = "the tests of services/brokers/open/ use more of it")]
#[path = "../../../../services/brokers/open/tests/usage/market.rs"]
mod market;

/// The goal: users, reports of each, and the highest share of false alarms.
const USERS: usize = 5;
const REPORTS: usize = 20;
const FALSE_ALARMS_MAX: f64 = 1e-3;
/// What the operator of the goal adds, in millionths.
const SHIFT_PPM: i64 = 10_000;
/// What is added in the plot, in millionths.
const SHIFTS_PPM: [i64; 6] = [5_000, 7_500, 10_000, 20_000, 50_000, 100_000];

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Operators that overstate, and as many that do not: each is watched apart.
    #[arg(long, default_value_t = 20_000)]
    runs: u64,
    /// Markets of 30 operators and 300 users, of which 30 % are dishonest.
    #[arg(long, default_value_t = 20)]
    markets: u64,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.runs, self.markets) = (50, 1);
    }
}

/// Reports per user until blame in each run that ends with one, ascending.
fn found(runs: u64, noise: Noise, shift_ppm: i64, users: usize) -> Vec<usize> {
    let mut found: Vec<usize> =
        (0..runs).filter_map(|seed| reports_until_blame(seed, noise, shift_ppm, users, REPORTS)).collect();
    found.sort_unstable();
    found
}

fn share(part: usize, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

/// Shares of a market: dishonest parties that are found and honest ones that are hurt, of operators and of users.
#[derive(Default)]
struct Hits {
    operators: [(usize, usize); 2],
    users: [(usize, usize); 2],
}

impl Hits {
    fn add(&mut self, market: &Market) {
        for o in 0..market.operators() {
            let (hit, all) = &mut self.operators[usize::from(market.is_dishonest_operator(o))];
            (*hit, *all) = (*hit + usize::from(market.is_shunned(o)), *all + 1);
        }
        for u in 0..market.users() {
            let (hit, all) = &mut self.users[usize::from(market.is_dishonest_user(u))];
            (*hit, *all) = (*hit + usize::from(market.blamed_users[u] > 0), *all + 1);
        }
    }
}

fn of((hit, all): (usize, usize)) -> f64 {
    share(hit, all as u64)
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let runs = options.runs;
    let detected = found(runs, Noise::EachReport, SHIFT_PPM, USERS);
    let alarms = share(found(runs, Noise::EachReport, 0, USERS).len(), runs);
    let quantile =
        |q: f64| detected.get(((detected.len() as f64 * q) as usize).min(detected.len().max(1) - 1));
    let (median, slow) = (quantile(0.5).copied(), quantile(0.99).copied());
    let rate = share(detected.len(), runs);
    println!(
        "an operator that adds 1 % to noise of up to {} % a report: found within {REPORTS} reports of each of {USERS} users in {:.2} % of {runs} runs (goal: all); median {} reports, 99 % {}",
        NOISE_PPM as f64 / 1e4,
        100.0 * rate,
        median.unwrap_or(REPORTS),
        slow.unwrap_or(REPORTS),
    );
    println!("false alarms of an honest one: {alarms:.5} (goal: under {FALSE_ALARMS_MAX})");
    let mut constant = Vec::new();
    for users in [USERS, 10, 20, 40] {
        let few = runs.div_ceil(10);
        let wrong = share(found(few, Noise::EachUser, 0, users).len(), few);
        let right = share(found(few, Noise::EachUser, SHIFT_PPM, users).len(), few);
        println!(
            "the same where each device errs by its own constant share, {users} users: found {:.1} %, false alarms {wrong:.4}",
            100.0 * right
        );
        constant.push(json!({"users": users, "found": right, "false_alarms": wrong}));
    }
    let mut hits = Hits::default();
    for seed in 1..=options.markets {
        let mut market = Market::with_dishonest(seed, 30, 300, 30);
        market.roam(20, 5);
        hits.add(&market);
    }
    let [honest_operators, lying_operators] = hits.operators.map(of);
    let [honest_users, lying_users] = hits.users.map(of);
    println!(
        "30 % lying operators and 30 % lying users (5 to 20 %): shunned {:.1} % of lying and {:.2} % of honest operators, suspended {:.1} % of lying and {:.2} % of honest users",
        100.0 * lying_operators,
        100.0 * honest_operators,
        100.0 * lying_users,
        100.0 * honest_users
    );
    let each = runs.div_ceil(20);
    let median_of = |users: usize| {
        let point = |shift: &i64| {
            let found = found(each, Noise::EachReport, *shift, users);
            let middle = found.get(found.len() / 2).copied();
            middle.map(|reports| (*shift as f64 / 1e4, reports as f64))
        };
        Series { name: format!("{users} users"), points: SHIFTS_PPM.iter().filter_map(point).collect() }
    };
    let plot = Plot {
        title: "Reports until an operator that adds to its reports is blamed",
        x: "added, per cent",
        y: "reports of each user (median)",
        log_y: false,
        axis: Axis::Numbers,
        series: [5, 10, 20].map(median_of).into(),
    };
    plot.write(plots, "bricks-billing")?;
    finish(
        "billing",
        &json!({
            "runs": runs, "users": USERS, "reports": REPORTS, "found": rate, "median_reports": median, "p99_reports": slow,
            "false_alarms": alarms, "goal_false_alarms": FALSE_ALARMS_MAX, "constant_errors": constant,
            "market": {
                "lying_operators_shunned": lying_operators, "honest_operators_shunned": honest_operators,
                "lying_users_suspended": lying_users, "honest_users_suspended": honest_users,
            },
        }),
    );
    Ok(())
}
