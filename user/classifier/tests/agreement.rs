//! Every classifier gives the linear list's answer, whatever rules come and go.

use whimbrel_classifier::generate::{Mix, Random, packet, pdis, rules, stray};
use whimbrel_classifier::*;

/// Classifiers that are tried: ours on every kind of instructions, with and without tables, and those of papers.
fn all() -> Vec<(String, Box<dyn Classify>)> {
    let ours = Instructions::ALL.into_iter().flat_map(|i| {
        let (ours, scan) = (Classifier::with(i, 7), Classifier::scan_alone(i));
        [
            (format!("ours, {i:?}"), Box::new(ours) as Box<dyn Classify>),
            (format!("scan, {i:?}"), Box::new(scan) as Box<dyn Classify>),
        ]
    });
    let others: [(&str, Box<dyn Classify>); 2] = [
        ("tuple space", Box::new(TupleSpace::default())),
        ("partition sort", Box::new(PartitionSort::default())),
    ];
    ours.chain(others.map(|(name, c)| (name.into(), c))).collect()
}

/// Rules come and go in random order; after each so many changes, packets are looked up.
fn agree(mix: Mix, count: usize, packets: usize, seed: u64) {
    let pdis = pdis(mix, count, seed);
    let rules = rules(&pdis);
    let r = &mut Random::new(seed ^ 0x5eed);
    let mut list = List::default();
    let mut others = all();
    let mut standing = vec![false; rules.len()];
    let (steps, mut matched) = (4, 0);
    for step in 0..steps {
        // Mostly insertions first, mostly removals last.
        for _ in 0..rules.len() {
            let n = r.below(rules.len() as u64) as usize;
            let removes = r.percent([5, 30, 50, 90][step]);
            assert_eq!(list.remove(&rules[n]), standing[n]);
            for (name, c) in &mut others {
                assert_eq!(c.remove(&rules[n]), standing[n], "{name}");
            }
            standing[n] = !removes;
            if standing[n] {
                list.insert(rules[n]);
                others.iter_mut().for_each(|(_, c)| c.insert(rules[n]));
            }
        }
        for (name, c) in &others {
            assert_eq!(c.len(), list.len(), "{name}");
        }
        for n in 0..packets / steps {
            let fields = if n % 4 == 0 { stray(&pdis, r) } else { packet(&r.one(&pdis), r) };
            let key = Key::new(&fields);
            let want = list.lookup(&key);
            matched += usize::from(want.is_some());
            for (name, c) in &others {
                assert_eq!(c.lookup(&key), want, "{name}: {} {count} seed {seed}: {fields:?}", mix.name());
            }
        }
    }
    assert!(matched > packets / 8, "packets that match: {matched} of {packets}");
}

#[test]
fn few_rules_in_every_number() {
    for mix in Mix::ALL {
        for count in 1..40 {
            agree(mix, count, 200, count as u64);
        }
    }
}

#[test]
fn some_hundred_rules() {
    for mix in Mix::ALL {
        for (count, seed) in [(130, 1), (300, 2), (700, 3)] {
            agree(mix, count, 4_000, seed);
        }
    }
}

#[test]
fn thousands_of_rules() {
    for mix in Mix::ALL {
        agree(mix, 4_000, 4_000, 9);
    }
}

#[test] // TS 29.244 §8.2.11: the lower precedence value wins; of equal ones, here, the lower identity
fn lower_precedence_value_wins_however_rules_were_installed() {
    let any = Pdi::default();
    let rule = |precedence, id| Rule::new(Rank::new(precedence, id), &any).unwrap();
    let key = Key::new(&packet(&any, &mut Random::new(1)));
    for (_, mut c) in all() {
        assert_eq!(c.lookup(&key), None);
        for (precedence, id) in [(u32::MAX, 3), (255, 2), (100, 9), (100, 8), (255, 1), (u32::MAX, 0)] {
            c.insert(rule(precedence, id));
        }
        for (precedence, id) in [(100, 8), (100, 9), (255, 1), (255, 2), (u32::MAX, 0), (u32::MAX, 3)] {
            assert_eq!(c.lookup(&key), Some(Rank::new(precedence, id)));
            assert!(c.remove(&rule(precedence, id)));
        }
        assert!(c.is_empty() && c.lookup(&key).is_none());
    }
}
