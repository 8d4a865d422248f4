//! Rules in blocks of up to 128, in order of rank: a scan ends at the first match, or at the first block that is
//! behind a better match from elsewhere.

use crate::block::{Block, choose_pair, words};
use crate::key::{PacketKey, has, word};
use crate::rows::RuleRows;
use crate::rule::{Rank, Rule};
use crate::simd::Compare;

/// Eight vectors of AVX-512 for each word.
type Block128 = Block<16, 8>;

/// What all of some rules ask of a packet's protocol, type of service, source interface, and of what it has at all ([`word::PROTOCOL`]): a
/// packet that lacks it (without ports, of the other version of IP) matches none of them. Of rules that went it may say less than it could.
#[derive(Clone, Copy, Debug)]
struct Asks {
    value: u32,
    mask: u32,
}

impl Asks {
    /// Of no rules: nothing that a packet can have.
    const NONE: Self = Self { value: (has::NOTHING as u32) << 8, mask: u32::MAX };

    fn of(rule: &Rule) -> Self {
        Self { value: rule.value[word::PROTOCOL], mask: rule.mask[word::PROTOCOL] }
    }

    /// What both ask.
    fn and(self, other: Self) -> Self {
        if self.value == Self::NONE.value && self.mask == Self::NONE.mask {
            return other;
        }
        let mask = self.mask & other.mask & !(self.value ^ other.value);
        Self { value: self.value & mask, mask }
    }

    fn of_all(block: &Block128, rows: &RuleRows) -> Self {
        block.rows().iter().map(|row| Self::of(rows.get(*row))).fold(Self::NONE, Self::and)
    }

    #[inline(always)]
    fn are_met(self, key: &PacketKey) -> bool {
        key.words[word::PROTOCOL] & self.mask == self.value
    }
}

/// A block in its place.
#[derive(Clone, Copy, Debug)]
struct Placed {
    /// Its first rank.
    first: Rank,
    /// Where it is.
    block: u32,
    asks: Asks,
}

#[derive(Clone, Debug)]
pub(crate) struct Scan {
    blocks: Vec<Block128>,
    free: Vec<u32>,
    order: Vec<Placed>,
    /// Of all blocks.
    asks: Asks,
    len: usize,
}

impl Default for Scan {
    fn default() -> Self {
        Self { blocks: Vec::new(), free: Vec::new(), order: Vec::new(), asks: Asks::NONE, len: 0 }
    }
}

impl Scan {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The rows of all rules, in order of rank.
    pub(crate) fn rows(&self) -> impl Iterator<Item = u32> {
        self.order.iter().flat_map(|placed| self.block(placed.block).rows()).copied()
    }

    /// Writes the rows of some rules from this rank on; how many.
    pub(crate) fn rows_from(&self, rank: Rank, rows: &mut [u32]) -> usize {
        let at = self.order.partition_point(|placed| placed.first <= rank).saturating_sub(1);
        let blocks = self.order[at.min(self.order.len())..].iter().take(2);
        let from = blocks.flat_map(|placed| self.block(placed.block).rows_from(rank));
        rows.iter_mut().zip(from).map(|(row, from)| *row = *from).count()
    }

    #[inline(always)]
    fn block(&self, at: u32) -> &Block128 {
        &self.blocks[at as usize]
    }

    pub(crate) fn insert(&mut self, rule: &Rule, row: u32, rows: &RuleRows) {
        self.len += 1;
        let asks = Asks::of(rule);
        self.asks = self.asks.and(asks);
        let after = self.order.partition_point(|placed| placed.first < rule.rank);
        let mut at = after.saturating_sub(1);
        if self.order.is_empty() || (self.is_full(at) && !self.make_room(&mut at, rule.rank, rows)) {
            // Behind all others: most sets come in their order.
            at = self.order.len();
            let block = self.add(Block::new(choose_pair([rule].into_iter())));
            self.order.push(Placed { first: rule.rank, block, asks });
        }
        let placed = &mut self.order[at];
        let block = &mut self.blocks[placed.block as usize];
        block.insert(rule, row);
        if block.len().is_power_of_two() {
            block.choose(rows);
        }
        (placed.first, placed.asks) = (block.first_rank(), placed.asks.and(asks));
    }

    fn is_full(&self, at: usize) -> bool {
        self.block(self.order[at].block).is_full()
    }

    fn add(&mut self, block: Block128) -> u32 {
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

    /// Makes room in a full block, or in the one that a rule of this rank then belongs to. False for a rule behind all.
    fn make_room(&mut self, at: &mut usize, rank: Rank, rows: &RuleRows) -> bool {
        let last = *at + 1 == self.order.len();
        if last && self.block(self.order[*at].block).last_rank() < rank {
            return false;
        }
        if !last && !self.is_full(*at + 1) {
            // The last rule goes to the next block, which keeps blocks fuller than halves.
            let moved = self.block(self.order[*at].block).last_rank();
            if moved < rank {
                *at += 1;
                return true;
            }
            let from = self.order[*at].block as usize;
            let next = &mut self.order[*at + 1];
            if let Some(row) = self.blocks[from].remove(moved) {
                self.blocks[next.block as usize].insert(rows.get(row), row);
                (next.first, next.asks) = (moved, next.asks.and(Asks::of(rows.get(row))));
            }
            return true;
        }
        let (lower, upper) = {
            let all = self.block(self.order[*at].block).rows();
            let (lower, upper) = all.split_at(Block128::ROOM / 2);
            let of = |list: &[u32]| Block::of(choose_pair(list.iter().map(|r| rows.get(*r))), list, rows);
            (of(lower), of(upper))
        };
        let first = upper.first_rank();
        let asks = Asks::of_all(&upper, rows);
        let placed = &mut self.order[*at];
        placed.asks = Asks::of_all(&lower, rows);
        self.blocks[placed.block as usize] = lower;
        let upper = self.add(upper);
        self.order.insert(*at + 1, Placed { first, block: upper, asks });
        self.ask_all();
        *at += usize::from(first < rank);
        true
    }

    /// Takes a rule away; its row, if it was there.
    pub(crate) fn remove(&mut self, rank: Rank, rows: &RuleRows) -> Option<u32> {
        let at = self.order.partition_point(|placed| placed.first <= rank).checked_sub(1)?;
        let block = self.order[at].block;
        let row = self.blocks[block as usize].remove(rank)?;
        self.len -= 1;
        self.order[at].first = self.block(block).first_rank();
        if self.block(block).len() == 0 {
            self.order.remove(at);
            self.free.push(block);
            self.ask_all();
        } else {
            self.join(at, rows);
        }
        Some(row)
    }

    /// Joins a block with the next one where both fit into one with room to spare.
    fn join(&mut self, at: usize, rows: &RuleRows) {
        let Some(next) = self.order.get(at + 1).map(|placed| placed.block) else { return };
        let block = self.order[at].block;
        if self.block(block).len() + self.block(next).len() > Block128::ROOM * 3 / 4 {
            return;
        }
        let moved = std::mem::replace(&mut self.blocks[next as usize], Block::new([0; 2]));
        for row in moved.rows() {
            self.blocks[block as usize].insert(rows.get(*row), *row);
        }
        self.blocks[block as usize].choose(rows);
        self.order.remove(at + 1);
        self.free.push(next);
        self.order[at].asks = Asks::of_all(self.block(block), rows);
        self.ask_all();
    }

    /// Blocks have come or gone.
    fn ask_all(&mut self) {
        self.asks = self.order.iter().map(|placed| placed.asks).fold(Asks::NONE, Asks::and);
    }

    /// Rank of the first rule before `best` that a packet matches; else `best`.
    #[inline(always)]
    pub(crate) fn lookup<C: Compare>(&self, c: C, key: &PacketKey, rows: &RuleRows, best: Rank) -> Rank {
        if !self.asks.are_met(key) {
            return best;
        }
        for placed in &self.order {
            if placed.first >= best {
                break;
            }
            if !placed.asks.are_met(key) {
                continue;
            }
            let block = self.block(placed.block);
            let rank = block.lookup(c, words(key, block.pair()), key, rows);
            if rank != Rank::LAST {
                return rank.min(best);
            }
        }
        best
    }
}
