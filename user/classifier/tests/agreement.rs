//! The classifier finds for every packet what the linear list finds, while rules come and go.

use super::common;

use common::Classify;
use common::agreement::agree;
use common::rule_sets::{Mix, Random, packet};
use whimbrel_classifier::*;

/// The classifier on every kind of instructions, with tables and without.
fn all() -> Vec<(String, Box<dyn Classify>)> {
    let each = Instructions::ALL.into_iter().flat_map(|i| {
        let (tables, scan) = (Classifier::with(i, 7), Classifier::scan_alone(i));
        [
            (format!("tables, {i:?}"), Box::new(tables) as Box<dyn Classify>),
            (format!("scan, {i:?}"), Box::new(scan) as Box<dyn Classify>),
        ]
    });
    each.collect()
}

#[test]
fn up_to_forty_rules_agree_with_the_list() {
    for mix in Mix::ALL {
        for count in 1..40 {
            agree(all(), mix, count, 200, count as u64);
        }
    }
}

#[test]
fn hundreds_of_rules_agree_with_the_list() {
    for mix in Mix::ALL {
        for (count, seed) in [(130, 1), (300, 2), (700, 3)] {
            agree(all(), mix, count, 4_000, seed);
        }
    }
}

#[test]
fn thousands_of_rules_agree_with_the_list() {
    for mix in Mix::ALL {
        agree(all(), mix, 4_000, 4_000, 9);
    }
}

#[test] // TS 29.244 §8.2.11: the lower precedence value wins; of equal ones, here, the lower identity
fn lower_precedence_value_wins_in_any_order_of_installation() {
    let any = Pdi::default();
    let rule = |precedence, id| Rule::new(Rank::new(precedence, id), &any).unwrap();
    let key = PacketKey::new(&packet(&any, &mut Random::new(1)));
    for (_, mut c) in all() {
        assert_eq!(c.lookup(&key), None);
        for (precedence, id) in [(u32::MAX, 3), (255, 2), (100, 9), (100, 8), (255, 1), (u32::MAX, 0)] {
            c.insert(rule(precedence, id));
        }
        for (precedence, id) in [(100, 8), (100, 9), (255, 1), (255, 2), (u32::MAX, 0), (u32::MAX, 3)] {
            assert_eq!(c.lookup(&key), Some(Rank::new(precedence, id)));
            assert!(c.remove(&rule(precedence, id)));
        }
        assert!(c.len() == 0 && c.lookup(&key).is_none());
    }
}
