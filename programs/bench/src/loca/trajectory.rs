//! How far an operator follows a user over reattachments (chapter 4.5.1.3, Figure 4.6): by the formula, and by an attacker that sees the
//! attaches and detaches of a neighbourhood and picks a detach for each attach. A side channel by which it can tell users apart leaves it
//! fewer to choose from.

use std::io;
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::{Random, finish};
use crate::plot::{Axis, Plot, Series};

/// Numbers of other users around.
const NEARBY: [usize; 4] = [40, 80, 160, 320];
/// The time in which a user attaches again, over the period of reattachment.
const WINDOWS: [f64; 6] = [0.01, 0.02, 0.03, 0.05, 0.1, 0.2];
/// A trajectory is inferred if the attacker is right with more than this.
const LIKELY: f64 = 0.01;
/// Marks by which a side channel separates users. 1: it separates none.
const MARKS: [usize; 3] = [1, 4, 16];

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Attaches that are judged for each point.
    #[arg(long, default_value_t = 4_000)]
    attaches: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        self.attaches = 100;
    }
}

/// Whether a user may attach before it detaches: then the detach may come before or after the attach.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    BreakBeforeMake,
    MakeBeforeBreak,
}

impl Order {
    const fn sides(self) -> f64 {
        match self {
            Self::BreakBeforeMake => 1.0,
            Self::MakeBeforeBreak => 2.0,
        }
    }
}

/// The longest trajectory that is inferred, if a link of it is right with this probability.
fn longest(probability: f64) -> f64 {
    if probability >= 1.0 { f64::INFINITY } else { (LIKELY.ln() / probability.ln()).floor() }
}

/// The chapter's: 1 / (1 + NU * W/P) for each link.
fn formula(nearby: usize, window: f64, order: Order) -> f64 {
    1.0 / (1.0 + nearby as f64 * window * order.sides())
}

/// The same by an attacker in drawn neighbourhoods. A trajectory of n links is right with the product of their probabilities, so that the
/// mean of the logarithms counts.
fn simulated(
    nearby: usize,
    window: f64,
    order: Order,
    marks: usize,
    attaches: usize,
    random: &mut Random,
) -> f64 {
    let mut logarithms = 0.0;
    for _ in 0..attaches {
        // The period is 1; the user attaches at 0, after or before its own detach.
        let candidates = 1 + (0..nearby).filter(|_| is_candidate(window, order, marks, random)).count();
        logarithms -= (candidates as f64).ln();
    }
    (logarithms / attaches as f64).exp()
}

/// Whether another user's detach could be that of the attach, and has the same mark.
fn is_candidate(window: f64, order: Order, marks: usize, random: &mut Random) -> bool {
    let detach = random.unit() - 0.5;
    let within = match order {
        Order::BreakBeforeMake => (-window..=0.0).contains(&detach),
        Order::MakeBeforeBreak => (-window..=window).contains(&detach),
    };
    within && random.below(marks) == 0
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let mut random = Random(1);
    println!(
        "longest trajectory that an operator infers with more than 1 % (chapter 4.5.1.3: no more than 4 at NU = 40, W/P = 0.03)"
    );
    println!(
        "{:>5} {:>6} {:>18} {:>18} {:>18} {:>30}",
        "NU",
        "W/P",
        "break before make",
        "make before break",
        "attacker, both",
        "attacker with 4 and 16 marks"
    );
    let mut figures = Vec::new();
    let mut series: Vec<Series> = Vec::new();
    for nearby in NEARBY {
        let mut points = Vec::new();
        for window in WINDOWS {
            let orders = [Order::BreakBeforeMake, Order::MakeBeforeBreak];
            let by_formula = orders.map(|order| longest(formula(nearby, window, order)));
            let mut attacked = |order, marks| {
                longest(simulated(nearby, window, order, marks, options.attaches, &mut random))
            };
            let by_attacker = orders.map(|order| attacked(order, MARKS[0]));
            let marked = [MARKS[1], MARKS[2]].map(|marks| attacked(Order::MakeBeforeBreak, marks));
            println!(
                "{nearby:>5} {window:>6} {:>18} {:>18} {:>18} {:>30}",
                by_formula[0],
                by_formula[1],
                format!("{}, {}", by_attacker[0], by_attacker[1]),
                format!("{}, {}", marked[0], marked[1])
            );
            points.push((window, by_formula[0]));
            figures.push(json!({
                "nearby": nearby, "window": window, "formula": by_formula, "attacker": by_attacker,
                "attacker_with_marks": { "4": marked[0], "16": marked[1] },
            }));
        }
        series.push(Series { name: format!("NU = {nearby}"), points });
    }
    println!(
        "a mark is what stays the same of a user over reattachments, such as its usual volume or destinations: 4 marks leave a quarter of the \
         candidates. Padding of volume to few classes makes few marks"
    );
    Plot {
        title: "Longest trajectory inferred with more than 1 % (Figure 4.6), by the formula",
        x: "W/P",
        y: "reattachments",
        log_y: false,
        axis: Axis::Numbers,
        series,
    }
    .write(plots, "loca-trajectory")?;
    finish("trajectory", &json!(figures));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // chapter 4.5.1.3, Figure 4.6: NU = 40, W/P = 0.03
    fn forty_users_around_leave_five_links_or_three() {
        let of = |order| longest(formula(40, 0.03, order));
        assert_eq!((of(Order::BreakBeforeMake), of(Order::MakeBeforeBreak)), (5.0, 3.0));
    }

    #[test]
    fn the_attacker_is_about_as_good_as_the_formula_and_better_with_marks() {
        let mut random = Random(5);
        let mut of = |marks| simulated(160, 0.05, Order::BreakBeforeMake, marks, 4_000, &mut random);
        let (plain, marked) = (of(1), of(4));
        let expected = formula(160, 0.05, Order::BreakBeforeMake);
        assert!((plain / expected - 1.0).abs() < 0.1, "{plain}, by the formula {expected}");
        assert!(marked > 2.0 * plain, "{marked} with marks, {plain} without");
    }
}
