//! Rules in blocks of up to 128, in order of rank: a scan ends at the first match, or at the first block that is
//! behind a better match from elsewhere.

use crate::block::{Block, choose_pair, words};
use crate::key::Key;
use crate::rows::Rows;
use crate::rule::{Rank, Rule};
use crate::simd::Compare;

/// Eight vectors of AVX-512 for each word.
type Block128 = Block<16, 8>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    blocks: Vec<Block128>,
    free: Vec<u32>,
    /// The first rank of each block, and where the block is.
    order: Vec<(Rank, u32)>,
    len: usize,
}

impl Scan {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The rows of all rules, in order of rank.
    pub(crate) fn rows(&self) -> impl Iterator<Item = u32> {
        self.order.iter().flat_map(|(_, block)| self.block(*block).rows()).copied()
    }

    /// Writes the rows of some rules from this rank on; how many.
    pub(crate) fn rows_from(&self, rank: Rank, rows: &mut [u32]) -> usize {
        let at = self.order.partition_point(|(first, _)| *first <= rank).saturating_sub(1);
        let blocks = self.order[at.min(self.order.len())..].iter().take(2);
        let from = blocks.flat_map(|(_, block)| self.block(*block).rows_from(rank));
        rows.iter_mut().zip(from).map(|(row, from)| *row = *from).count()
    }

    #[inline(always)]
    fn block(&self, at: u32) -> &Block128 {
        &self.blocks[at as usize]
    }

    pub(crate) fn insert(&mut self, rule: &Rule, row: u32, rows: &Rows) {
        self.len += 1;
        let after = self.order.partition_point(|(first, _)| *first < rule.rank);
        let mut at = after.saturating_sub(1);
        if self.order.is_empty() || (self.is_full(at) && !self.make_room(&mut at, rule.rank, rows)) {
            // Behind all others: most sets come in their order.
            at = self.order.len();
            let block = self.add(Block::new(choose_pair([rule].into_iter())));
            self.order.push((rule.rank, block));
        }
        let block = &mut self.blocks[self.order[at].1 as usize];
        block.insert(rule, row);
        if block.len().is_power_of_two() {
            block.choose(rows);
        }
        self.order[at].0 = block.first_rank();
    }

    fn is_full(&self, at: usize) -> bool {
        self.block(self.order[at].1).is_full()
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
    fn make_room(&mut self, at: &mut usize, rank: Rank, rows: &Rows) -> bool {
        let last = *at + 1 == self.order.len();
        if last && self.block(self.order[*at].1).last_rank() < rank {
            return false;
        }
        if !last && !self.is_full(*at + 1) {
            // The last rule goes to the next block, which keeps blocks fuller than halves.
            let moved = self.block(self.order[*at].1).last_rank();
            if moved < rank {
                *at += 1;
                return true;
            }
            let next = self.order[*at + 1].1 as usize;
            if let Some(row) = self.blocks[self.order[*at].1 as usize].remove(moved) {
                self.blocks[next].insert(rows.get(row), row);
                self.order[*at + 1].0 = moved;
            }
            return true;
        }
        let (lower, upper) = {
            let all = self.block(self.order[*at].1).rows();
            let (lower, upper) = all.split_at(Block128::ROOM / 2);
            let of = |list: &[u32]| Block::of(choose_pair(list.iter().map(|r| rows.get(*r))), list, rows);
            (of(lower), of(upper))
        };
        let first = upper.first_rank();
        self.blocks[self.order[*at].1 as usize] = lower;
        let upper = self.add(upper);
        self.order.insert(*at + 1, (first, upper));
        *at += usize::from(first < rank);
        true
    }

    /// Takes a rule away; its row, if it was there.
    pub(crate) fn remove(&mut self, rank: Rank, rows: &Rows) -> Option<u32> {
        let at = self.order.partition_point(|(first, _)| *first <= rank).checked_sub(1)?;
        let block = self.order[at].1;
        let row = self.blocks[block as usize].remove(rank)?;
        self.len -= 1;
        self.order[at].0 = self.block(block).first_rank();
        if self.block(block).len() == 0 {
            self.order.remove(at);
            self.free.push(block);
        } else {
            self.join(at, rows);
        }
        Some(row)
    }

    /// Joins a block with the next one where both fit into one with room to spare.
    fn join(&mut self, at: usize, rows: &Rows) {
        let Some((_, next)) = self.order.get(at + 1).copied() else { return };
        let block = self.order[at].1;
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
    }

    /// Rank of the first rule before `best` that a packet matches; else `best`.
    #[inline(always)]
    pub(crate) fn lookup<C: Compare>(&self, c: C, key: &Key, rows: &Rows, best: Rank) -> Rank {
        for (first, block) in &self.order {
            if *first >= best {
                break;
            }
            let block = self.block(*block);
            let rank = block.lookup(c, words(key, block.pair()), key, rows);
            if rank != Rank::LAST {
                return rank.min(best);
            }
        }
        best
    }
}
