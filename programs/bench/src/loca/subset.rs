//! What a sum says of the sessions that it is of (chapter 4.5.1.2, Figure 4.5): how many other subsets of the table have the same sum, by
//! the distributions and by counting in drawn tables; and what the claims of all operators together leave open.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::{Random, finish};
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};

/// Usage of a session: uniform from 1 to this.
const HIGHEST: usize = 5;
/// K/N: one of this many.
const RATIOS: [usize; 8] = [150, 75, 40, 20, 10, 5, 3, 2];
/// What the chapter says of all of these: the base of the growth with N is above this.
const CHAPTER_BASE: f64 = 1.1;

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// The largest table.
    #[arg(long, default_value_t = 900)]
    rows: usize,
    /// Drawn tables of each size.
    #[arg(long, default_value_t = 200)]
    tables: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.rows, self.tables) = (300, 3);
    }
}

/// The distribution of the sum of so many sessions, each of which is in the sum with `included`.
fn sums(sessions: usize, included: f64) -> Vec<f64> {
    let mut sums = vec![0.0; sessions * HIGHEST + 1];
    sums[0] = 1.0;
    for n in 0..sessions {
        for sum in (0..=(n + 1) * HIGHEST).rev() {
            let before: f64 = (1..=HIGHEST.min(sum)).map(|units| sums[sum - units]).sum();
            sums[sum] = sums[sum] * (1.0 - included) + before / HIGHEST as f64 * included;
        }
    }
    sums
}

/// The logarithm of the expected number of subsets of the other N - K sessions whose sum is that of K.
fn expected(rows: usize, claimed: usize) -> f64 {
    // Each of the 2^(N-K) subsets is as likely as any: a session is in one with probability 1/2.
    let (others, own) = (sums(rows - claimed, 0.5), sums(claimed, 1.0));
    let matched: f64 = own.iter().zip(&others).map(|(own, other)| own * other).sum();
    (rows - claimed) as f64 * core::f64::consts::LN_2 + matched.ln()
}

/// The same in one drawn table: the number of subsets, counted.
fn counted(rows: usize, claimed: usize, random: &mut Random) -> f64 {
    let sum: usize = (0..claimed).map(|_| random.below(HIGHEST) + 1).sum();
    let mut subsets = vec![0.0; sum + 1];
    subsets[0] = 1.0f64;
    for _ in claimed..rows {
        let units = random.below(HIGHEST) + 1;
        for at in (units..=sum).rev() {
            subsets[at] += subsets[at - units];
        }
    }
    subsets[sum]
}

/// The base of the exponential that fits best, by least squares over the logarithms.
fn base(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let (xy, xx) = points
        .iter()
        .fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + (x - mx) * (y - my), xx + (x - mx) * (x - mx)));
    (xy / xx).exp()
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!(
        "base of the growth with N of the number of other subsets with the claimed sum; usage uniform from 1 to {HIGHEST}"
    );
    println!("{:>6} {:>9} {:>9} {:>9}", "K/N", "chapter", "formula", "counted");
    let (mut formula, mut simulated, mut figures) = (Vec::new(), Vec::new(), Vec::new());
    let mut random = Random(1);
    for ratio in RATIOS {
        let step = ratio.max(30).next_multiple_of(ratio);
        let sizes: Vec<usize> =
            (1..).map(|n| n * step).take_while(|rows| *rows <= options.rows.max(2 * step)).collect();
        let by_formula: Vec<_> =
            sizes.iter().map(|rows| (*rows as f64, expected(*rows, *rows / ratio))).collect();
        let by_count: Vec<_> = sizes
            .iter()
            .map(|rows| {
                let all = (0..options.tables).map(|_| counted(*rows, *rows / ratio, &mut random));
                (*rows as f64, (all.sum::<f64>() / options.tables as f64).ln())
            })
            .collect();
        let (formula_base, counted_base) = (base(&by_formula), base(&by_count));
        println!(
            "{:>6} {:>9} {formula_base:>9.3} {counted_base:>9.3}",
            format!("1/{ratio}"),
            format!("> {CHAPTER_BASE}")
        );
        formula.push((1.0 / ratio as f64, formula_base));
        simulated.push((1.0 / ratio as f64, counted_base));
        figures.push(json!({ "ratio": 1.0 / ratio as f64, "base": formula_base, "counted": counted_base }));
    }
    Plot {
        title: "Growth of the number of subsets with the claimed sum (Figure 4.5), m = 5",
        x: "K/N",
        y: "base",
        log_y: false,
        axis: Axis::Numbers,
        series: vec![
            Series { name: "formula".into(), points: formula },
            Series { name: "counted".into(), points: simulated },
        ],
    }
    .write(plots, "loca-subset")?;
    let together = together(options.tables.min(20), &mut random);
    finish("subset", &json!({ "bases": figures, "together": together }));
    Ok(())
}

/// Three operators that serve a third each claim all sessions of a table: what the broker believes of a
/// session's operator, when it knows one sum and when it knows all three. Without claims it would believe a
/// third.
fn together(tables: usize, random: &mut Random) -> serde_json::Value {
    println!(
        "what B believes of the true operator of a session, of 3 that claim all sessions between them (prior 0.333)"
    );
    println!("{:>6} {:>9} {:>9} {:>22}", "N", "one sum", "all sums", "assignments left, log2");
    let mut figures = Vec::new();
    for rows in [6, 12, 18, 24] {
        let drawn: Vec<_> = (0..tables).map(|_| posterior(rows, random)).collect();
        let of = |get: &dyn Fn(&(f64, f64, f64)) -> f64| median(drawn.iter().map(get).collect());
        let (one, all, left) = (of(&|d| d.0), of(&|d| d.1), of(&|d| d.2));
        println!("{rows:>6} {one:>9.3} {all:>9.3} {left:>22.1}");
        figures.push(json!({ "rows": rows, "one_sum": one, "all_sums": all, "log2_assignments": left }));
    }
    json!(figures)
}

/// Of one drawn table: the mean belief in the true operator by one sum and by all, and the logarithm of the assignments that are left.
fn posterior(rows: usize, random: &mut Random) -> (f64, f64, f64) {
    let units: Vec<usize> = (0..rows).map(|_| random.below(HIGHEST) + 1).collect();
    let owner = |n: usize| n % 3;
    let sum = |of: usize| (0..rows).filter(|n| owner(*n) == of).map(|n| units[n]).sum::<usize>();
    let sums = [sum(0), sum(1)];
    let without = |left_out: Option<usize>| -> BTreeMap<[usize; 2], f64> {
        let mut counts = BTreeMap::from([([0, 0], 1.0)]);
        for (n, units) in units.iter().enumerate().filter(|(n, _)| Some(*n) != left_out) {
            let mut next: BTreeMap<[usize; 2], f64> = BTreeMap::new();
            for ([first, second], count) in counts {
                for to in [[first + units, second], [first, second + units], [first, second]] {
                    if to[0] <= sums[0] && to[1] <= sums[1] {
                        *next.entry(to).or_default() += count;
                    }
                }
            }
            counts = next;
            debug_assert!(n < rows);
        }
        counts
    };
    let all = without(None);
    let matched =
        |counts: &BTreeMap<[usize; 2], f64>, at: [usize; 2]| counts.get(&at).copied().unwrap_or(0.0);
    let of_one = |counts: &BTreeMap<[usize; 2], f64>, first: usize| -> f64 {
        counts.iter().filter(|(at, _)| at[0] == first).map(|(_, count)| count).sum()
    };
    let (total, total_one) = (matched(&all, sums), of_one(&all, sums[0]));
    let (mut by_all, mut by_one) = (0.0, 0.0);
    let judged: Vec<usize> = (0..rows).filter(|n| owner(*n) == 0).collect();
    for n in &judged {
        let rest = without(Some(*n));
        by_all += matched(&rest, [sums[0] - units[*n], sums[1]]) / total;
        by_one += of_one(&rest, sums[0] - units[*n]) / total_one;
    }
    let judged = judged.len() as f64;
    (by_one / judged, by_all / judged, total.log2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // chapter 4.5.1.2: every subset is counted once
    fn the_formula_is_the_mean_of_what_is_counted() {
        let mut random = Random(3);
        let mean = (0..4_000).map(|_| counted(16, 4, &mut random)).sum::<f64>() / 4_000.0;
        let expected = expected(16, 4).exp();
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} counted, {expected} expected");
    }

    #[test]
    fn the_base_of_an_exponential_is_found() {
        let points: Vec<_> = (1..6).map(|n| (f64::from(n), 2.0 + f64::from(n) * 1.25f64.ln())).collect();
        assert!((base(&points) - 1.25).abs() < 1e-9);
    }
}
