//! Rules that agree in which bits they ask for, found by a hash of these bits.
//!
//! A line of eight tags, one cache line, names at most eight buckets; a bucket is one block of at most eight rules. So a
//! look-up costs one line and one block, whatever rules there are: what does not fit is refused, and stays in the scan.

use crate::block::{Block, WordPair, words};
use crate::key::{PacketKey, WORDS};
use crate::rows::RuleRows;
use crate::rule::{Rank, Rule};
use crate::simd::Compare;

/// Tables of a classifier. Each must pay for itself ([`crate::Classifier`]); sixteen look-ups are as long as the scan of
/// some 2,000 rules, and no rule set that we made asked for more than ten.
pub(crate) const TABLES_MAX: usize = 16;
/// Rules of a bucket, and buckets of a line.
const BUCKET: usize = 8;
/// Buckets of a line on average, above which the lines are doubled: of lines twice as full, many would overflow.
const LOAD: usize = 2;
/// The bucket that is always empty: where a look-up goes that finds none, so that no branch is needed.
const NO_BUCKET: u32 = 0;

/// Words and their bits that are hashed; a mask of zero is no part.
pub(crate) type HashedParts = [(u8, u32); 3];

/// Whether a rule asks for all bits of these parts.
pub(crate) fn covers(parts: &HashedParts, rule: &Rule) -> bool {
    parts.iter().all(|(at, mask)| rule.mask[usize::from(*at) % WORDS] & mask == *mask)
}

/// The hash of a packet's or rule's words: multiplications by random odd numbers, universal in the sense of Dietzfelbinger
/// et al., so that an attacker without the numbers cannot aim at a line.
#[inline(always)]
pub(crate) fn hash(parts: &HashedParts, factors: &[u64; 3], words: &[u32; WORDS]) -> u32 {
    let mut sum = 0u64;
    for ((at, mask), factor) in parts.iter().zip(factors) {
        let part = u64::from(words[usize::from(*at) % WORDS] & mask);
        sum = sum.wrapping_add((part + 1).wrapping_mul(*factor));
    }
    (sum ^ sum >> 29).wrapping_mul(factors[0]).rotate_left(32) as u32
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct BucketLine {
    tags: [u32; BUCKET],
    buckets: [u32; BUCKET],
}

const NO_LINE: BucketLine = BucketLine { tags: [0; BUCKET], buckets: [NO_BUCKET; BUCKET] };

type Bucket = Block<BUCKET, 1>;

/// The blocks of all tables. The first one stays empty.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    blocks: Vec<Bucket>,
    free: Vec<u32>,
}

impl Buckets {
    pub(crate) fn new() -> Self {
        Self { blocks: vec![Block::new([0; 2])], free: Vec::new() }
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> &Bucket {
        &self.blocks[at as usize]
    }

    fn add(&mut self, block: Bucket) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.blocks[at as usize] = block;
                at
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() as u32 - 1
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TupleTable {
    parts: HashedParts,
    factors: [u64; 3],
    lines: Vec<BucketLine>,
    /// The words that all its buckets compare first.
    pair: WordPair,
    /// Buckets in use.
    used: usize,
    /// Number of rules.
    len: usize,
}

impl TupleTable {
    pub(crate) fn new(parts: HashedParts, factors: [u64; 3], pair: WordPair) -> Self {
        Self { parts, factors, lines: vec![NO_LINE; 4], pair, used: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Which line a hash is of: as many bits as there are lines, a power of two.
    #[inline(always)]
    fn line_of(&self, hash: u32) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    /// The bucket in which a packet's rules would be; the empty one where there is none.
    #[inline(always)]
    pub(crate) fn bucket<C: Compare>(&self, c: C, key: &PacketKey) -> u32 {
        let hash = hash(&self.parts, &self.factors, &key.words);
        let line = &self.lines[self.line_of(hash)];
        let tagged = c.tagged(hash, &line.tags);
        // An unused tag is zero, and so may a hash be: its bucket is the empty one.
        let bucket = line.buckets[tagged.trailing_zeros() as usize % BUCKET];
        if tagged == 0 { NO_BUCKET } else { bucket }
    }

    /// The rules in the bucket of a rule, for one that moves them: line, place.
    fn place(&self, hash: u32) -> Option<(usize, usize)> {
        let line = self.line_of(hash);
        let at = (0..BUCKET)
            .find(|at| self.lines[line].tags[*at] == hash && self.lines[line].buckets[*at] != NO_BUCKET)?;
        Some((line, at))
    }

    /// Adds a rule; false if it does not ask for the bits of this table, or its bucket or line is full.
    pub(crate) fn insert(&mut self, rule: &Rule, row: u32, buckets: &mut Buckets) -> bool {
        if !covers(&self.parts, rule) {
            return false;
        }
        let hash = hash(&self.parts, &self.factors, &rule.value);
        if hash == 0 {
            return false; // the tag of unused places
        }
        if let Some((line, at)) = self.place(hash) {
            let block = &mut buckets.blocks[self.lines[line].buckets[at] as usize];
            if block.is_full() {
                return false;
            }
            block.insert(rule, row);
        } else {
            if self.used >= self.lines.len() * LOAD {
                self.grow();
            }
            let line = self.line_of(hash);
            let Some(at) = self.lines[line].buckets.iter().position(|b| *b == NO_BUCKET) else {
                return false;
            };
            let mut block = Block::new(self.pair);
            block.insert(rule, row);
            self.lines[line].tags[at] = hash;
            self.lines[line].buckets[at] = buckets.add(block);
            self.used += 1;
        }
        self.len += 1;
        true
    }

    /// Takes a rule away; its row, if it was there.
    pub(crate) fn remove(&mut self, rule: &Rule, buckets: &mut Buckets) -> Option<u32> {
        if !covers(&self.parts, rule) {
            return None;
        }
        let hash = hash(&self.parts, &self.factors, &rule.value);
        let (line, at) = self.place(hash)?;
        let bucket = self.lines[line].buckets[at];
        let block = &mut buckets.blocks[bucket as usize];
        let row = block.remove(rule.rank)?;
        if block.len() == 0 {
            self.lines[line].tags[at] = 0;
            self.lines[line].buckets[at] = NO_BUCKET;
            buckets.free.push(bucket);
            self.used -= 1;
        }
        self.len -= 1;
        Some(row)
    }

    /// Twice as many lines. Each old line's buckets go to two new ones, so that none overflows.
    fn grow(&mut self) {
        let old = self.lines.len();
        self.lines.resize(2 * old, NO_LINE);
        for line in 0..old {
            for at in 0..BUCKET {
                let (tag, bucket) = (self.lines[line].tags[at], self.lines[line].buckets[at]);
                if bucket != NO_BUCKET && self.line_of(tag) != line {
                    let to = &mut self.lines[line + old];
                    (to.tags[at], to.buckets[at]) = (tag, bucket);
                    let from = &mut self.lines[line];
                    (from.tags[at], from.buckets[at]) = (0, NO_BUCKET);
                }
            }
        }
    }

    /// The rows of all rules; the table is empty then.
    pub(crate) fn take_all(&mut self, buckets: &mut Buckets) -> Vec<u32> {
        let mut all = Vec::with_capacity(self.len);
        for line in &mut self.lines {
            for bucket in line.buckets.iter().filter(|b| **b != NO_BUCKET) {
                let block = &mut buckets.blocks[*bucket as usize];
                all.extend_from_slice(block.rows());
                *block = Block::new([0; 2]);
                buckets.free.push(*bucket);
            }
            *line = NO_LINE;
        }
        (self.used, self.len) = (0, 0);
        all
    }
}

/// The lowest rank of the rules in tables that a packet matches.
#[inline(always)]
pub(crate) fn best_of<C: Compare>(
    c: C,
    tables: &[TupleTable],
    buckets: &Buckets,
    key: &PacketKey,
    rows: &RuleRows,
) -> Rank {
    let mut best = Rank::LAST;
    let mut found = [NO_BUCKET; TABLES_MAX];
    // All lines first, then all blocks: the cache misses of one step do not depend on each other, and overlap.
    for (found, table) in found.iter_mut().zip(tables) {
        *found = table.bucket(c, key);
    }
    for (found, table) in found.iter().zip(tables) {
        best = best.min(buckets.get(*found).lookup(c, words(key, table.pair), key, rows));
    }
    best
}
