//! Where the time of a look-up of ours goes at 100 rules: what it takes whatever the rules are, what each sixteen rules add, and what
//! branches cost that the processor does not foresee.

use serde_json::{Map, Value, json};
use whimbrel_classifier::{Classifier, PacketKey};

use super::common::rule_sets::{Mix, Random, packet, pdis, rules};
use super::{KEYS, filled, pass};
use crate::measure::median;

/// Rules of one chunk of the scan, and of the size that is looked into.
const CHUNK: usize = 16;
const RULES: usize = 96;
/// Packets each of which is looked up again and again.
const AGAIN: usize = 32;

/// Nanoseconds of a look-up.
struct Times {
    /// Among so few rules that one chunk holds them, the same packet each time, so that every branch goes as it did before: the median
    /// packet's.
    few: f64,
    /// Among many rules, likewise.
    foreseen: f64,
    /// Among many rules, packets at random.
    many: f64,
}

impl Times {
    fn of(mix: Mix, seed: u64, passes: usize) -> Self {
        let set = |count| {
            let pdis = pdis(mix, count, seed);
            let r = &mut Random::new(seed ^ 0xfeed);
            let keys: Vec<PacketKey> = (0..KEYS).map(|_| PacketKey::new(&packet(&r.one(&pdis), r))).collect();
            (filled(Classifier::new(seed), &rules(&pdis)), keys)
        };
        let ((few, few_keys), (many, many_keys)) = (set(CHUNK), set(RULES));
        let again = |keys: &[PacketKey]| -> Vec<Vec<PacketKey>> {
            keys.iter().take(AGAIN).map(|k| vec![*k; KEYS]).collect()
        };
        let (few_again, many_again) = (again(&few_keys), again(&many_keys));
        let (mut in_few, mut in_many, mut at_random) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..passes {
            in_few.extend(few_again.iter().map(|keys| pass(keys, |k| few.lookup(k))));
            in_many.extend(many_again.iter().map(|keys| pass(keys, |k| many.lookup(k))));
            at_random.push(pass(&many_keys, |k| many.lookup(k)));
        }
        Self { few: median(in_few), foreseen: median(in_many), many: median(at_random) }
    }

    /// What each chunk adds.
    fn of_chunk(&self) -> f64 {
        (self.foreseen - self.few) / (RULES / CHUNK - 1) as f64
    }
}

/// Prints it; the figures.
pub(super) fn profile(seed: u64, passes: usize) -> Value {
    println!(
        "\nours at {RULES} rules, ns: in one chunk of {CHUNK}, each further chunk, branches that are not foreseen"
    );
    let mut figures = Map::new();
    for (mix, name) in [(Mix::AccessList, "access list, IPv4"), (Mix::Pdi, "PDRs of twenty fields")] {
        let t = Times::of(mix, seed, passes);
        println!(
            "  {name}: {:.1} + {} x {:.1} + {:.1} = {:.1}",
            t.few,
            RULES / CHUNK - 1,
            t.of_chunk(),
            t.many - t.foreseen,
            t.many
        );
        let figure = json!({ "chunk": t.few, "further_chunk": t.of_chunk(), "not_foreseen": t.many - t.foreseen, "all": t.many });
        figures.insert(mix.name().into(), figure);
    }
    Value::Object(figures)
}
