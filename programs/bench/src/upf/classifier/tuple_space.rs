//! Tuple space search (Srinivasan, Suri, Varghese, SIGCOMM 1999): a hash table for each combination of masks.
//!
//! A range of ports is in the tuple if it is one port; else it is compared behind the hash. Tables are asked in order of
//! their best rank, and no further than a better rule can be. For comparison: the installer of rules decides how many
//! tables there are (Csikor et al., 2019).

use std::collections::BTreeMap;

use whimbrel_classifier::measure::PACKED_WORDS;
use whimbrel_classifier::{PacketKey, Rank, Rule};

use super::common::Classify;

/// Behind every rule.
const LAST: Rank = Rank::new(u32::MAX, u32::MAX);
/// The mark of no rule.
const NONE: u32 = u32::MAX;

/// Rules of one tuple.
#[derive(Clone, Debug)]
struct Table {
    mask: [u32; PACKED_WORDS],
    /// Words that the mask asks for.
    words: Vec<u8>,
    /// The first rule of each chain, a power of two of them; chains are in order of rank.
    heads: Vec<u32>,
    /// Ranks of the rules, for the best one.
    ranks: Vec<Rank>,
}

impl Table {
    fn new(mask: [u32; PACKED_WORDS]) -> Self {
        let words = (0u8..).zip(mask).filter(|(_, mask)| *mask != 0).map(|(at, _)| at).collect();
        Self { mask, words, heads: vec![NONE; 4], ranks: Vec::new() }
    }

    #[inline]
    fn chain(&self, words: &[u32; PACKED_WORDS]) -> usize {
        let hash = self.words.iter().fold(0u64, |hash, at| {
            let at = usize::from(*at) % PACKED_WORDS;
            (hash.rotate_left(5) ^ u64::from(words[at] & self.mask[at])).wrapping_mul(0x517c_c1b7_2722_0a95)
        });
        (hash >> 32) as usize & (self.heads.len() - 1)
    }

    fn best(&self) -> Rank {
        self.ranks.first().copied().unwrap_or(LAST)
    }
}

/// Tuple space search.
#[derive(Clone, Debug, Default)]
pub(super) struct TupleSpace {
    by_mask: BTreeMap<[u32; PACKED_WORDS], usize>,
    tables: Vec<Table>,
    /// The tables by their best rank.
    order: Vec<(Rank, usize)>,
    /// Rules, and the next one of each one's chain.
    rules: Vec<(Rule, u32)>,
    free: Vec<u32>,
}

impl TupleSpace {
    /// Puts a rule into its chain, in order of rank.
    fn link(&mut self, table: usize, row: u32) {
        let (rule, _) = self.rules[row as usize];
        let chain = self.tables[table].chain(rule.value());
        let (mut before, mut next) = (NONE, self.tables[table].heads[chain]);
        while next != NONE && self.rules[next as usize].0.rank() < rule.rank() {
            (before, next) = (next, self.rules[next as usize].1);
        }
        self.rules[row as usize].1 = next;
        match before {
            NONE => self.tables[table].heads[chain] = row,
            before => self.rules[before as usize].1 = row,
        }
    }

    /// Twice as many chains.
    fn grow(&mut self, table: usize) {
        let chains = 2 * self.tables[table].heads.len();
        let heads = std::mem::replace(&mut self.tables[table].heads, vec![NONE; chains]);
        for mut row in heads {
            while row != NONE {
                let next = self.rules[row as usize].1;
                self.link(table, row);
                row = next;
            }
        }
    }

    /// Puts a table to where its best rank now belongs.
    fn reorder(&mut self, table: usize, before: Rank) {
        let best = self.tables[table].best();
        if best == before {
            return;
        }
        if let Ok(at) = self.order.binary_search(&(before, table)) {
            self.order.remove(at);
        }
        if best != LAST {
            let at = self.order.partition_point(|o| *o < (best, table));
            self.order.insert(at, (best, table));
        }
    }
}

impl Classify for TupleSpace {
    fn insert(&mut self, rule: Rule) {
        let tables = &mut self.tables;
        let table = *self.by_mask.entry(*rule.mask()).or_insert_with(|| {
            tables.push(Table::new(*rule.mask()));
            tables.len() - 1
        });
        let row = match self.free.pop() {
            Some(row) => {
                self.rules[row as usize] = (rule, NONE);
                row
            }
            None => {
                self.rules.push((rule, NONE));
                self.rules.len() as u32 - 1
            }
        };
        if self.tables[table].ranks.len() >= self.tables[table].heads.len() {
            self.grow(table);
        }
        self.link(table, row);
        let before = self.tables[table].best();
        let ranks = &mut self.tables[table].ranks;
        ranks.insert(ranks.partition_point(|r| *r < rule.rank()), rule.rank());
        self.reorder(table, before);
    }

    fn remove(&mut self, rule: &Rule) -> bool {
        let Some(&table) = self.by_mask.get(rule.mask()) else { return false };
        let chain = self.tables[table].chain(rule.value());
        let (mut before, mut row) = (NONE, self.tables[table].heads[chain]);
        while row != NONE && self.rules[row as usize].0.rank() != rule.rank() {
            (before, row) = (row, self.rules[row as usize].1);
        }
        if row == NONE {
            return false;
        }
        let next = self.rules[row as usize].1;
        match before {
            NONE => self.tables[table].heads[chain] = next,
            before => self.rules[before as usize].1 = next,
        }
        self.free.push(row);
        let best = self.tables[table].best();
        self.tables[table].ranks.retain(|r| *r != rule.rank());
        self.reorder(table, best);
        true
    }

    #[inline]
    fn lookup(&self, key: &PacketKey) -> Option<Rank> {
        let mut best = LAST;
        for (first, table) in &self.order {
            if *first >= best {
                break;
            }
            let table = &self.tables[*table];
            let mut row = table.heads[table.chain(key.words())];
            while row != NONE {
                let (rule, next) = &self.rules[row as usize];
                if rule.rank() >= best {
                    break;
                }
                if rule.matches(key) {
                    best = rule.rank();
                    break;
                }
                row = *next;
            }
        }
        (best != LAST).then_some(best)
    }

    fn len(&self) -> usize {
        self.rules.len() - self.free.len()
    }
}
