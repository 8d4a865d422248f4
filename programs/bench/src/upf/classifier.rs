//! Classification: look-ups and updates of the linear list, tuple space search, PartitionSort and ours.

#[path = "../../../../user/classifier/tests/common/mod.rs"]
pub(in crate::upf) mod common;
mod partition_sort;
mod profile;
mod tuple_space;

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value, json};
use whimbrel_classifier::{Classifier, Fields, Instructions, PacketKey, Rank, Rule};

use self::common::Classify;
use self::common::linear::LinearList;
use self::common::rule_sets::{Mix, Random, packet, pdis, rules, stray};
use self::partition_sort::PartitionSort;
use self::tuple_space::TupleSpace;
use super::finish;
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};

/// Sizes of the rule sets.
const SIZES: [usize; 10] = [2, 5, 10, 20, 50, 100, 300, 1_000, 3_000, 10_000];
/// Packets that are looked up in turn: more than a branch predictor keeps in mind.
const KEYS: usize = 8_192;
/// How long a pass may take; of slow classifiers it has fewer packets.
const PASS: Duration = Duration::from_millis(2);
/// Updates that are timed one by one.
const UPDATES: usize = 2_000;
const NAMES: [&str; 7] =
    ["list", "tuple space", "PartitionSort", "scan", "ours", "ours, AVX2", "ours, scalar"];
/// Where ours stands in the names, and what it is bounded by.
const OURS: usize = 4;
const SCAN: usize = 3;

/// What can be chosen.
#[derive(Args, Clone, Copy)]
pub(crate) struct Options {
    /// Packets of each rule set whose answers are compared with the linear list's.
    #[arg(long, default_value_t = 20_000)]
    packets: usize,
    /// The largest rule set.
    #[arg(long, default_value_t = 10_000)]
    rules: usize,
    /// Passes over the packets that are timed, each behind one that only warms the caches.
    #[arg(long, default_value_t = 15)]
    passes: usize,
    /// Seed of rules and packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.rules, self.packets, self.passes) = (2, 100, 1);
    }
}

/// What one size of one mix took, in nanoseconds.
struct Row {
    rules: usize,
    /// Look-ups of packets that match a rule.
    matching: Vec<f64>,
    /// Look-ups of packets that match none: nothing ends them early.
    missing: Vec<f64>,
    /// Of list, tuple space, PartitionSort and ours.
    updates: Vec<Updates>,
    /// Tables of ours, and rules that are in none.
    shape: (usize, usize),
}

/// Nanoseconds of an insertion and of a removal: median and 99th percentile.
struct Updates {
    insert: [f64; 2],
    remove: [f64; 2],
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!("classification: ns a look-up, medians; every answer of every classifier is the linear list's");
    println!(
        "paper (L25GC §5.3, 20 fields): tuple space 260 in its best case, 2,900 at 100 rules in its worst;"
    );
    println!(
        "       PartitionSort the quickest; an update of list 380, tuple space 1,410, PartitionSort 6,140"
    );
    println!("here:  {:?}; tuple space is best at one-tuple, worst at tuple-each", Instructions::best());
    let (mut figures, mut checked) = (Map::new(), 0);
    let mut all = Vec::new();
    for mix in Mix::ALL {
        println!("\n{}\n rules{}   tables + scanned", mix.name(), NAMES.map(|n| format!("{n:>15}")).concat());
        let sizes = SIZES.into_iter().filter(|n| *n <= options.rules);
        let rows: Vec<Row> = sizes.map(|n| row(mix, n, options, &mut checked)).collect();
        print_updates(&rows);
        draw(mix, &rows, plots)?;
        figures.insert(mix.name().into(), json_of(&rows));
        all.push((mix, rows));
    }
    println!("\n{checked} answers compared with the linear list's, all equal");
    let targets = targets(&all);
    let profile = profile::profile(options.seed, options.passes);
    finish(
        "classifier",
        &json!({ "columns": NAMES, "mixes": figures, "checked": checked, "summary": targets, "profile": profile }),
    );
    Ok(())
}

/// Packets of random rules of a set, and packets that match none.
fn keys(mix: Mix, count: usize, seed: u64, list: &LinearList) -> (Vec<PacketKey>, Vec<PacketKey>) {
    let pdis = pdis(mix, count, seed);
    let r = &mut Random::new(seed ^ 0xfeed);
    let matching = (0..KEYS).map(|_| PacketKey::new(&packet(&r.one(&pdis), r))).collect();
    let missing = (0..16 * KEYS).map(|n| {
        let fields = stray(&pdis, r);
        // Where rules ask for ports alone, what has none matches none.
        PacketKey::new(&if n % 2 == 0 { Fields { ports: None, ..fields } } else { fields })
    });
    (matching, missing.filter(|k| list.lookup(k).is_none()).take(KEYS).collect())
}

fn filled<C: Classify>(mut c: C, rules: &[Rule]) -> C {
    rules.iter().for_each(|r| c.insert(*r));
    c
}

fn row(mix: Mix, count: usize, options: &Options, checked: &mut usize) -> Row {
    let seed = options.seed.wrapping_mul(0x9e37_79b9).wrapping_add(count as u64);
    let pdis = pdis(mix, count, seed);
    let rules = rules(&pdis);
    let mut mixed = rules.clone();
    let r = &mut Random::new(seed);
    for n in (1..mixed.len()).rev() {
        mixed.swap(n, r.below(n as u64 + 1) as usize);
    }
    let list = filled(LinearList::default(), &rules);
    let tuples = filled(TupleSpace::default(), &mixed);
    let sorted = filled(PartitionSort::default(), &mixed);
    let scan = filled(Classifier::scan_alone(Instructions::Avx512), &mixed);
    let ours = filled(Classifier::new(seed), &mixed);
    let avx2 = filled(Classifier::with(Instructions::Avx2, seed), &mixed);
    let scalar = filled(Classifier::with(Instructions::Scalar, seed), &mixed);
    for n in 0..options.packets {
        let fields = if n % 4 == 0 { stray(&pdis, r) } else { packet(&r.one(&pdis), r) };
        let key = PacketKey::new(&fields);
        let want = list.lookup(&key);
        let answers = [
            tuples.lookup(&key),
            sorted.lookup(&key),
            scan.lookup(&key),
            ours.lookup(&key),
            avx2.lookup(&key),
            scalar.lookup(&key),
        ];
        assert!(answers.iter().all(|a| *a == want), "{} of {count} rules: {fields:?}", mix.name());
        *checked += answers.len();
    }
    let (matching, missing) = keys(mix, count, seed, &list);
    let time = |keys: &[PacketKey]| {
        if keys.is_empty() {
            return vec![f64::NAN; NAMES.len()];
        }
        let mut passes = [(); NAMES.len()].map(|()| Vec::with_capacity(options.passes));
        // All take turns, so that what disturbs this machine for a while disturbs them alike.
        for _ in 0..options.passes {
            let turn = [
                pass(keys, |k| list.lookup(k)),
                pass(keys, |k| tuples.lookup(k)),
                pass(keys, |k| sorted.lookup(k)),
                pass(keys, |k| scan.lookup(k)),
                pass(keys, |k| ours.lookup(k)),
                pass(keys, |k| avx2.lookup(k)),
                pass(keys, |k| scalar.lookup(k)),
            ];
            passes.iter_mut().zip(turn).for_each(|(all, ns)| all.push(ns));
        }
        passes.map(median).to_vec()
    };
    let (matching, missing) = (time(&matching), time(&missing));
    let shape = ours.shape();
    let cells: String = matching.iter().map(|ns| format!("{ns:>15.1}")).collect();
    println!("{count:>6}{cells}   {} + {}", shape.0, shape.1);
    let cells: String = missing.iter().map(|ns| format!("{ns:>15.1}")).collect();
    println!("  none{cells}");
    let updates = vec![
        updates(list, &rules, r),
        updates(tuples, &rules, r),
        updates(sorted, &rules, r),
        updates(ours, &rules, r),
    ];
    Row { rules: count, matching, missing, updates, shape }
}

/// Nanoseconds of a look-up, in a pass over the packets, or over as many as there is time for.
fn pass(keys: &[PacketKey], lookup: impl Fn(&PacketKey) -> Option<Rank>) -> f64 {
    let pass = |keys: &[PacketKey]| {
        let begin = Instant::now();
        for key in keys {
            black_box(lookup(key));
        }
        begin.elapsed()
    };
    let first = &keys[..keys.len().min(64)];
    let fit = PASS.as_nanos() * first.len() as u128 / pass(first).as_nanos().max(1);
    let keys = &keys[..keys.len().min(fit as usize).max(first.len())];
    pass(keys);
    pass(keys).as_nanos() as f64 / keys.len() as f64
}

/// Removals and insertions in turn, each timed alone.
fn updates(mut c: impl Classify, rules: &[Rule], r: &mut Random) -> Updates {
    let timed = |update: &mut dyn FnMut()| {
        let begin = Instant::now();
        update();
        begin.elapsed().as_nanos() as f64
    };
    let (mut inserts, mut removals) = (Vec::new(), Vec::new());
    for _ in 0..UPDATES / 2 {
        let rule = r.one(rules);
        removals.push(timed(&mut || assert!(c.remove(&rule))));
        inserts.push(timed(&mut || c.insert(rule)));
    }
    let figures = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        let last = times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN);
        [median(times), last]
    };
    Updates { insert: figures(inserts), remove: figures(removals) }
}

fn print_updates(rows: &[Row]) {
    println!(
        "an insertion, then a removal, median and 99th percentile, ns: list, tuple space, PartitionSort, ours"
    );
    for row in rows {
        let times = |of: fn(&Updates) -> [f64; 2]| -> String {
            row.updates.iter().map(of).map(|[p50, p99]| format!("{p50:>10.0} {p99:>8.0}")).collect()
        };
        println!("{:>6}{} |{}", row.rules, times(|u| u.insert), times(|u| u.remove));
    }
}

fn draw(mix: Mix, rows: &[Row], plots: &Path) -> io::Result<()> {
    let series = NAMES.iter().enumerate().map(|(n, name)| Series {
        name: (*name).into(),
        points: rows.iter().enumerate().map(|(at, row)| (at as f64, row.matching[n])).collect(),
    });
    Plot {
        title: &format!("Classification, {} (L25GC, figure 11)", mix.name()),
        x: "rules",
        y: "ns a look-up",
        log_y: true,
        axis: Axis::Names(rows.iter().map(|r| r.rules.to_string()).collect()),
        series: series.collect(),
    }
    .write(plots, &format!("upf-classifier-{}", mix.name()))
}

fn rounded(ns: &[f64]) -> Vec<Value> {
    ns.iter().map(|ns| json!((ns * 10.0).round() / 10.0)).collect()
}

fn json_of(rows: &[Row]) -> Value {
    let row = |r: &Row| {
        json!({
            "rules": r.rules,
            "ns": rounded(&r.matching),
            "ns_none": rounded(&r.missing),
            "insert_ns": r.updates.iter().map(|u| u.insert).collect::<Vec<_>>(),
            "remove_ns": r.updates.iter().map(|u| u.remove).collect::<Vec<_>>(),
            "tables": r.shape.0,
        })
    };
    rows.iter().map(row).collect()
}

/// What was to be reached, beside what was.
fn targets(all: &[(Mix, Vec<Row>)]) -> Value {
    let at = |mix: Mix, rules: usize| {
        let rows = all.iter().find(|(m, _)| *m == mix).map(|(_, rows)| rows);
        rows.and_then(|rows| rows.iter().find(|r| r.rules == rules)).map(|r| r.matching[OURS])
    };
    println!("\nours, ns: reached, and the aim");
    for (mix, name, times) in
        [(Mix::AccessList, "access list, IPv4", 1.0), (Mix::Pdi, "PDRs of twenty fields", 3.0)]
    {
        for (rules, aim) in [(100, 10.0), (1_000, 60.0), (10_000, 120.0)] {
            if let Some(ns) = at(mix, rules) {
                println!("  {name}, {rules} rules: {ns:.1} of {:.0}", times * aim);
            }
        }
    }
    let rows = || all.iter().flat_map(|(mix, rows)| rows.iter().map(move |r| (mix, r)));
    let over = |what: fn(&Row) -> f64| {
        rows().filter(|(_, r)| what(r).is_finite()).max_by(|a, b| what(a.1).total_cmp(&what(b.1)))
    };
    let best: fn(&Row) -> f64 =
        |r| r.matching[OURS] / r.matching[..SCAN].iter().copied().fold(f64::INFINITY, f64::min);
    let best_none: fn(&Row) -> f64 =
        |r| r.missing[OURS] / r.missing[..SCAN].iter().copied().fold(f64::INFINITY, f64::min);
    let scan: fn(&Row) -> f64 = |r| r.matching[OURS] / r.matching[SCAN];
    let scan_none: fn(&Row) -> f64 = |r| r.missing[OURS] / r.missing[SCAN];
    let insert: fn(&Row) -> f64 = |r| r.updates.last().map_or(f64::NAN, |u| u.insert[0]);
    let worst_insert: fn(&Row) -> f64 = |r| r.updates.last().map_or(f64::NAN, |u| u.insert[1]);
    let worst_removal: fn(&Row) -> f64 = |r| r.updates.last().map_or(f64::NAN, |u| u.remove[1]);
    let mut figures = Map::new();
    for (key, name, what) in [
        ("of_the_best_other", "times the best of list, tuple space and PartitionSort, at most", best),
        ("of_the_best_other_none", "the same of packets that match nothing", best_none),
        ("of_the_scan", "times the scan of all rules, at most", scan),
        ("of_the_scan_none", "the same of packets that match nothing", scan_none),
        ("insert_ns", "ns an insertion at the median, at most", insert),
        ("insert_p99_ns", "ns an insertion at the 99th percentile, at most", worst_insert),
        ("remove_p99_ns", "ns a removal at the 99th percentile, at most", worst_removal),
    ] {
        if let Some((mix, row)) = over(what) {
            println!("  {name}: {:.2} ({}, {} rules)", what(row), mix.name(), row.rules);
            figures.insert(key.into(), json!((what(row) * 100.0).round() / 100.0));
        }
    }
    Value::Object(figures)
}

#[cfg(test)]
mod tests {
    use super::common::agreement::agree;
    use super::*;

    #[test]
    fn tuple_space_search_and_partition_sort_agree_with_the_list() {
        let both = || -> Vec<(String, Box<dyn Classify>)> {
            vec![
                ("tuple space".into(), Box::new(TupleSpace::default())),
                ("PartitionSort".into(), Box::new(PartitionSort::default())),
            ]
        };
        for mix in Mix::ALL {
            for count in [1, 2, 7, 25, 130, 300] {
                agree(both(), mix, count, 1_000, count as u64);
            }
        }
    }
}
