//! Classifiers beside the linear list, while rules come and go.

use whimbrel_classifier::PacketKey;

use super::Classify;
use super::linear::LinearList;
use super::rule_sets::{Mix, Random, packet, pdis, rules, stray};

/// Inserts and removes rules in random order. After each quarter of the changes, every classifier must find for every packet what the
/// linear list finds.
pub(crate) fn agree(
    mut others: Vec<(String, Box<dyn Classify>)>,
    mix: Mix,
    count: usize,
    packets: usize,
    seed: u64,
) {
    let pdis = pdis(mix, count, seed);
    let rules = rules(&pdis);
    let r = &mut Random::new(seed ^ 0x5eed);
    let mut list = LinearList::default();
    let mut installed = vec![false; rules.len()];
    let (steps, mut matched) = (4, 0);
    for step in 0..steps {
        // Mostly insertions first, mostly removals last.
        for _ in 0..rules.len() {
            let n = r.below(rules.len() as u64) as usize;
            let removes = r.percent([5, 30, 50, 90][step]);
            assert_eq!(list.remove(&rules[n]), installed[n]);
            for (name, c) in &mut others {
                assert_eq!(c.remove(&rules[n]), installed[n], "{name}");
            }
            installed[n] = !removes;
            if installed[n] {
                list.insert(rules[n]);
                others.iter_mut().for_each(|(_, c)| c.insert(rules[n]));
            }
        }
        for (name, c) in &others {
            assert_eq!(c.len(), list.len(), "{name}");
        }
        for n in 0..packets / steps {
            let fields = if n % 4 == 0 { stray(&pdis, r) } else { packet(&r.one(&pdis), r) };
            let key = PacketKey::new(&fields);
            let want = list.lookup(&key);
            matched += usize::from(want.is_some());
            for (name, c) in &others {
                assert_eq!(c.lookup(&key), want, "{name}: {} {count} seed {seed}: {fields:?}", mix.name());
            }
        }
    }
    assert!(matched > packets / 8, "packets that match: {matched} of {packets}");
}
