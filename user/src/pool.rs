//! Pools of UEs' addresses (TS 29.244 §5.21).

use std::collections::BTreeSet;
use std::ops::Range;

use crate::limits::{POOL_ADDRESSES_MAX, SHARDS_MAX};

/// Numbers of an IPv4 pool that are no UE's, at its begin: the network's own address, and the gateway's.
pub const POOL_RESERVED_FIRST: u32 = 2;

/// The same of an IPv6 pool's prefixes: the gateway's.
pub const POOL_RESERVED_FIRST_IPV6: u32 = 1;

/// Consecutive numbers, each free or taken: IPv4 addresses, or IPv6 prefixes of 64 bits.
///
/// A freed number is reused last: the UE behind an address should not change faster than peers forget it.
#[derive(Clone, Debug)]
pub(crate) struct NumberPool {
    first: u64,
    taken: Vec<u64>,
    len: u32,
    free: u32,
    /// Where the search for a free one begins.
    next: u32,
}

impl NumberPool {
    /// `count` numbers from `first`, cut to the bound.
    pub(crate) fn new(first: u64, count: u64) -> Self {
        let len = count.min(u64::from(POOL_ADDRESSES_MAX)) as u32;
        // Away from where the first sessions' own are.
        Self { first, taken: vec![0; len.div_ceil(64) as usize], len, free: len, next: len / 2 }
    }

    fn position(&self, number: u64) -> Option<u32> {
        let at = number.checked_sub(self.first)?;
        (at < u64::from(self.len)).then_some(at as u32)
    }

    pub(crate) fn holds(&self, number: u64) -> bool {
        self.position(number).is_some()
    }

    fn is_taken(&self, at: u32) -> bool {
        self.taken[at as usize / 64] >> (at % 64) & 1 != 0
    }

    /// Takes that number; false if it is not of the pool or not free.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        match self.position(number) {
            Some(at) if !self.is_taken(at) => {
                self.taken[at as usize / 64] |= 1 << (at % 64);
                self.free -= 1;
                true
            }
            _ => false,
        }
    }

    /// Takes a free number: the one that stands where the session `like` does among all, so that the session can be found from the number
    /// there; or else the next one whose lowest bits, as many as tell so many shards apart, are those of `like`; or else any.
    pub(crate) fn take_any(&mut self, (like, shards): (u32, u8)) -> Option<u64> {
        debug_assert!(shards.is_power_of_two() && shards <= SHARDS_MAX);
        if self.free == 0 {
            return None;
        }
        let own = self.first + u64::from(like);
        if self.first.is_multiple_of(shards.into()) && self.take(own) {
            return Some(own);
        }
        let apart = u64::from(like).wrapping_sub(self.first) % u64::from(shards);
        // A bit for each place of a word whose number is as it should be; words hold a multiple of all shards.
        let every = u64::MAX / ((1u64 << shards) - 1);
        let alike = every << apart;
        self.take_of(alike).or_else(|| self.take_of(u64::MAX))
    }

    /// Takes the next free number among those that a word's bits name.
    fn take_of(&mut self, candidates: u64) -> Option<u64> {
        let words = self.taken.len();
        let begin = self.next as usize / 64;
        // One word more than all: the first may hold free numbers only below where the search begins.
        for i in 0..=words {
            let w = (begin + i) % words;
            let mut free = !self.taken[w] & candidates;
            if i == 0 {
                free &= u64::MAX << (self.next % 64);
            }
            let at = w as u32 * 64 + free.trailing_zeros();
            if free != 0 && at < self.len {
                let number = self.first + u64::from(at);
                self.take(number);
                self.next = if at + 1 == self.len { 0 } else { at + 1 };
                return Some(number);
            }
        }
        None
    }

    /// Gives a number back; what is not of the pool, or free, is left.
    pub(crate) fn give_back(&mut self, number: u64) {
        if let Some(at) = self.position(number)
            && self.is_taken(at)
        {
            self.taken[at as usize / 64] &= !(1 << (at % 64));
            self.free += 1;
        }
    }

    pub(crate) fn free(&self) -> u32 {
        self.free
    }
}

/// The pools of one family and network, and the static addresses outside them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    pools: Vec<NumberPool>,
    statics: BTreeSet<u64>,
}

impl Pools {
    pub(crate) fn new(pools: Vec<NumberPool>) -> Self {
        Self { pools, statics: BTreeSet::new() }
    }

    /// Takes a free number of the pools at those places, as [`NumberPool::take_any`] does.
    pub(crate) fn take_any(&mut self, of: Range<usize>, like: (u32, u8)) -> Option<u64> {
        self.pools.get_mut(of)?.iter_mut().find_map(|p| p.take_any(like))
    }

    pub(crate) fn take(&mut self, number: u64) -> bool {
        match self.pools.iter_mut().find(|p| p.holds(number)) {
            Some(pool) => pool.take(number),
            None => self.statics.insert(number),
        }
    }

    pub(crate) fn give_back(&mut self, number: u64) {
        match self.pools.iter_mut().find(|p| p.holds(number)) {
            Some(pool) => pool.give_back(number),
            None => {
                self.statics.remove(&number);
            }
        }
    }

    /// Whether a number is in use.
    pub(crate) fn is_taken(&self, number: u64) -> bool {
        match self.pools.iter().find_map(|p| Some((p, p.position(number)?))) {
            Some((pool, at)) => pool.is_taken(at),
            None => self.statics.contains(&number),
        }
    }

    pub(crate) fn free(&self) -> u64 {
        self.pools.iter().map(|p| u64::from(p.free())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session that has no number of its own, of the one shard that there is.
    const ANY: (u32, u8) = (u32::MAX, 1);

    #[test]
    fn a_pool_is_exhausted_and_a_freed_address_comes_back_last() {
        let mut p = NumberPool::new(100, 70);
        assert!(p.take(105));
        assert!(!p.take(105), "taken");
        let all: Vec<_> = std::iter::from_fn(|| p.take_any(ANY)).collect();
        assert_eq!(all, (135..170).chain(100..135).filter(|n| *n != 105).collect::<Vec<_>>());
        p.give_back(150);
        p.give_back(101);
        p.give_back(101);
        assert_eq!((p.take_any(ANY), p.take_any(ANY), p.take_any(ANY)), (Some(150), Some(101), None));

        let mut p = NumberPool::new(0, 3);
        assert_eq!(p.take_any(ANY), Some(1));
        p.give_back(1);
        assert_eq!((p.take_any(ANY), p.take_any(ANY), p.take_any(ANY)), (Some(2), Some(0), Some(1)));
    }

    #[test]
    fn a_session_gets_the_number_that_stands_where_it_does_while_that_is_free() {
        let mut p = NumberPool::new(100, 64);
        assert!(p.take(103));
        let own: Vec<_> = (0..6).map(|index| p.take_any((index, 1)).unwrap()).collect();
        // A session whose own address is in use does not take the next one's.
        assert_eq!(own, [100, 101, 102, 132, 104, 105]);
        p.give_back(104);
        assert_eq!(p.take_any((4, 1)), Some(104));
        assert_eq!(p.take_any((64, 1)), Some(133), "beyond the pool");
    }

    #[test]
    fn static_addresses_outside_the_pools_are_taken_once() {
        let mut p = Pools::new(vec![NumberPool::new(10, 2)]);
        assert!(p.take(99) && !p.take(99));
        p.give_back(99);
        assert!(p.take(99));
        assert_eq!(p.free(), 2);
    }

    #[test]
    fn a_shards_sessions_get_numbers_like_its_own_while_there_are_any() {
        for (shards, first) in [(2, 10u64), (4, 7), (16, 100)] {
            let mut p = NumberPool::new(first, 200);
            for like in (0..u32::from(shards)).chain([77]) {
                let number = p.take_any((like, shards)).unwrap();
                assert_eq!(number % u64::from(shards), u64::from(like) % u64::from(shards), "of {shards}");
            }
            let all = std::iter::from_fn(|| p.take_any((1, shards))).count();
            assert_eq!(all, 200 - 1 - usize::from(shards), "the others when its own are taken");
        }
    }
}
