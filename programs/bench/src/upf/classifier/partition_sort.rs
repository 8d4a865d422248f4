//! PartitionSort (Yingchareonthawornchai et al., ICNP 2016), the classifier of L25GC: sets of rules that can be sorted.
//!
//! Two rules can be ordered if, at the first field in which their ranges differ, these do not overlap. A set whose rules
//! can all be ordered is searched like a sorted list, field after field. A new rule goes to the first set where it
//! fits, else to a set of its own, whose order of fields follows what its rules ask for while they are few. Sets are asked
//! in order of their best rank. The sorted list stands in an array here, where the paper has balanced trees: a look-up
//! takes the same comparisons with fewer cache misses, an insertion moves four octets a rule.

use std::cmp::Ordering;

use whimbrel_classifier::measure::{PACKED_WORDS, PLACES};
use whimbrel_classifier::{PacketKey, Rank, Rule};

use super::common::Classify;

/// Fields: those of [`PLACES`], then the remote and the local port.
const FIELDS: usize = PLACES.len() + 2;
/// Behind every rule.
const LAST: Rank = Rank::new(u32::MAX, u32::MAX);
/// Rules of a set up to which its order of fields may still change.
const UNSETTLED: usize = 10;

fn part(words: &[u32; PACKED_WORDS], (at, shift, bits): (usize, u32, u32)) -> u32 {
    words[at] >> shift & u32::MAX >> (32 - bits)
}

type Range = (u32, u32);

/// The range of every field. A mask that is no prefix (of a type of service) accepts all here; a match is confirmed by
/// the whole rule in any case.
fn ranges(rule: &Rule) -> [Range; FIELDS] {
    std::array::from_fn(|field| match PLACES.get(field) {
        Some(place) => {
            let (value, mask) = (part(rule.value(), *place), part(rule.mask(), *place));
            let all = u32::MAX >> (32 - place.2);
            let free = all & !mask;
            if free & free.wrapping_add(1) == 0 { (value, value | free) } else { (0, all) }
        }
        None => {
            let (from, to) = rule.port_ranges()[field - PLACES.len()];
            (from.into(), to.into())
        }
    })
}

fn values(key: &PacketKey) -> [u32; FIELDS] {
    let ports = key.port_pair();
    std::array::from_fn(|field| match PLACES.get(field) {
        Some(place) => part(key.words(), *place),
        None => ports[field - PLACES.len()].into(),
    })
}

/// Rules of the same ranges, in order of rank. The ranges are in the set's order of fields.
#[derive(Clone, Debug)]
struct Entry {
    ranges: [Range; FIELDS],
    rules: Vec<Rule>,
}

/// Where two rules stand to each other; `None` if they cannot be ordered.
fn compare(a: &[Range; FIELDS], b: &[Range; FIELDS]) -> Option<Ordering> {
    let Some((a, b)) = a.iter().zip(b).find(|(a, b)| a != b) else { return Some(Ordering::Equal) };
    if a.1 < b.0 {
        Some(Ordering::Less)
    } else if b.1 < a.0 {
        Some(Ordering::Greater)
    } else {
        None
    }
}

/// A set of rules that can be sorted.
#[derive(Clone, Debug)]
struct Sorted {
    order: [u8; FIELDS],
    entries: Vec<Entry>,
    /// The entries, sorted.
    sorted: Vec<u32>,
    free: Vec<u32>,
    /// Ranks in ascending order.
    ranks: Vec<Rank>,
}

impl Sorted {
    /// An order of fields for these rules: what is asked for most stands first.
    fn order_for<'r>(rules: impl Iterator<Item = &'r Rule>) -> [u8; FIELDS] {
        let mut asked = [0u32; FIELDS];
        for rule in rules {
            for (field, (from, to)) in ranges(rule).into_iter().enumerate() {
                asked[field] += (to - from).leading_zeros();
            }
        }
        let mut order = std::array::from_fn(|field| field as u8);
        // Narrow words lack leading bits that do not count.
        let bits = |field: u8| PLACES.get(usize::from(field)).map_or(16, |p| p.2);
        order.sort_by_key(|field| {
            let asked = asked[usize::from(*field)];
            std::cmp::Reverse(asked.saturating_sub((32 - bits(*field)).min(asked)))
        });
        order
    }

    fn new(rule: &Rule) -> Self {
        let order = Self::order_for([rule].into_iter());
        Self { order, entries: Vec::new(), sorted: Vec::new(), free: Vec::new(), ranks: Vec::new() }
    }

    fn in_order(&self, ranges: [Range; FIELDS]) -> [Range; FIELDS] {
        self.order.map(|field| ranges[usize::from(field)])
    }

    /// Where a rule is or belongs; `None` if it cannot be ordered.
    fn place(&self, ranges: &[Range; FIELDS]) -> Option<Result<usize, usize>> {
        let (mut low, mut high) = (0, self.sorted.len());
        while low < high {
            let middle = (low + high) / 2;
            match compare(&self.entries[self.sorted[middle] as usize].ranges, ranges)? {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(Ok(middle)),
            }
        }
        // The neighbours were compared on the way; a rule that is ordered with them is ordered with all.
        Some(Err(low))
    }

    fn insert(&mut self, rule: &Rule) -> bool {
        let ranges = self.in_order(ranges(rule));
        match self.place(&ranges) {
            None => return false,
            Some(Ok(at)) => {
                let rules = &mut self.entries[self.sorted[at] as usize].rules;
                rules.insert(rules.partition_point(|r| r.rank() < rule.rank()), *rule);
            }
            Some(Err(at)) => {
                let entry = Entry { ranges, rules: vec![*rule] };
                let place = match self.free.pop() {
                    Some(place) => {
                        self.entries[place as usize] = entry;
                        place
                    }
                    None => {
                        self.entries.push(entry);
                        self.entries.len() as u32 - 1
                    }
                };
                self.sorted.insert(at, place);
            }
        }
        self.ranks.insert(self.ranks.partition_point(|r| *r < rule.rank()), rule.rank());
        true
    }

    /// Likewise, with another order of fields if that is what it takes.
    fn insert_reordered(&mut self, rule: &Rule) -> bool {
        let all = self.sorted.iter().flat_map(|at| &self.entries[*at as usize].rules);
        let all: Vec<Rule> = all.copied().chain([*rule]).collect();
        let mut other = Self { order: Self::order_for(all.iter()), ..Self::new(rule) };
        let fits = all.iter().all(|r| other.insert(r));
        if fits {
            *self = other;
        }
        fits
    }

    fn remove(&mut self, rule: &Rule) -> bool {
        let Some(Ok(at)) = self.place(&self.in_order(ranges(rule))) else { return false };
        let place = self.sorted[at];
        let rules = &mut self.entries[place as usize].rules;
        let Ok(n) = rules.binary_search_by_key(&rule.rank(), Rule::rank) else { return false };
        rules.remove(n);
        if rules.is_empty() {
            self.sorted.remove(at);
            self.free.push(place);
        }
        if let Ok(n) = self.ranks.binary_search(&rule.rank()) {
            self.ranks.remove(n);
        }
        true
    }

    #[inline]
    fn lookup(&self, key: &PacketKey, values: &[u32; FIELDS]) -> Option<Rank> {
        let (mut low, mut high) = (0, self.sorted.len());
        'search: while low < high {
            let middle = (low + high) / 2;
            let entry = &self.entries[self.sorted[middle] as usize];
            for ((from, to), field) in entry.ranges.iter().zip(&self.order) {
                let value = values[usize::from(*field) % FIELDS];
                if value < *from {
                    high = middle;
                    continue 'search;
                }
                if value > *to {
                    low = middle + 1;
                    continue 'search;
                }
            }
            return entry.rules.iter().find(|r| r.matches(key)).map(Rule::rank);
        }
        None
    }
}

/// The classifier PartitionSort of its authors.
#[derive(Clone, Debug, Default)]
pub(super) struct PartitionSort {
    sets: Vec<Sorted>,
    /// The sets that have rules, by their best rank.
    order: Vec<(Rank, usize)>,
}

impl PartitionSort {
    /// Puts a set to where its best rank now belongs.
    fn reorder(&mut self, set: usize) {
        self.order.retain(|(_, s)| *s != set);
        if let Some(best) = self.sets[set].ranks.first() {
            let at = self.order.partition_point(|o| *o < (*best, set));
            self.order.insert(at, (*best, set));
        }
    }
}

impl Classify for PartitionSort {
    fn insert(&mut self, rule: Rule) {
        let fits = self.sets.iter_mut().position(|s| s.insert(&rule));
        let set = fits.unwrap_or_else(|| {
            let last = self.sets.last_mut().filter(|s| s.ranks.len() < UNSETTLED);
            if !last.is_some_and(|s| s.insert_reordered(&rule)) {
                let mut set = Sorted::new(&rule);
                set.insert(&rule);
                self.sets.push(set);
            }
            self.sets.len() - 1
        });
        if self.sets[set].ranks.first() == Some(&rule.rank()) {
            self.reorder(set);
        }
    }

    fn remove(&mut self, rule: &Rule) -> bool {
        let Some(set) = self.sets.iter_mut().position(|s| s.remove(rule)) else { return false };
        self.reorder(set);
        true
    }

    #[inline]
    fn lookup(&self, key: &PacketKey) -> Option<Rank> {
        let values = values(key);
        let mut best = LAST;
        for (first, set) in &self.order {
            if *first >= best {
                break;
            }
            if let Some(rank) = self.sets[*set].lookup(key, &values) {
                best = best.min(rank);
            }
        }
        (best != LAST).then_some(best)
    }

    fn len(&self) -> usize {
        self.sets.iter().map(|s| s.ranks.len()).sum()
    }
}
