//! A session's names: index and generation, its SEID and its TEIDs (TS 33.513 §4.2.2.6).

use whimbrel_ids::{Seid, Teid};

use crate::limits::{SESSIONS_MAX, TEID_INDEX_BITS, TEID_INDEX_BITS_MAX};

/// A session of this UPF: where it stands in the table, and which of the sessions that stood there it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Index in the session tables.
    pub index: u32,
    /// Changes whenever the index is reused, so that a late message finds no session.
    pub generation: u32,
}

impl SessionId {
    /// The UP function's SEID: generation above index; never zero.
    pub const fn seid(self) -> Seid {
        Seid((self.generation as u64) << 32 | (self.index as u64 + 1))
    }

    /// The session that such a SEID names, if any could.
    pub const fn from_seid(seid: Seid) -> Option<Self> {
        let low = (seid.0 & 0xffff_ffff) as u32;
        if low == 0 || low > SESSIONS_MAX {
            None
        } else {
            Some(Self { index: low - 1, generation: (seid.0 >> 32) as u32 })
        }
    }
}

/// A round of [`Teids::permuted`]: what a word is combined with, multiplied with, and shifted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeidRound {
    /// The key's part: the word is combined with it, bit by bit.
    pub key: u32,
    /// Odd, so that the multiplication can be undone; the same in every UPF.
    pub multiplier: u32,
    /// The word is combined with itself, shifted right by so many bits.
    pub shift: u32,
}

/// Multiplier and shift of each round. With three of them every bit of a TEID decides on every bit of what it stands for, half the
/// time each; the tests of this file count it.
const ROUNDS: [(u32, u32); 3] = [(0x9a3f_52c5, 16), (0xd6e8_feb1, 15), (0xb54c_da5b, 16)];

/// How a TEID is made of a session's index and a tag: both are one word of 32 bits, and the TEID is that word under a permutation with a key
/// that is secret. The index has as many bits as the UPF's sessions need, the tag has the rest: it counts the tunnels of an index, so a name
/// comes back only after all others of its index, and no two tunnels have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Teids {
    index_mask: u32,
    rounds: [TeidRound; 3],
    /// What the word is combined with at the end.
    last: u32,
}

impl Teids {
    /// For so many sessions at most, under a secret.
    pub(crate) fn new(sessions_max: u32, seed: u64) -> Self {
        let bits = u32::BITS - sessions_max.leading_zeros();
        let bits = bits.clamp(TEID_INDEX_BITS, TEID_INDEX_BITS_MAX);
        let (one, two) = (mix(seed ^ 0x5445_4944), mix(seed ^ 0x5445_4945));
        let keys = [one as u32, (one >> 32) as u32, two as u32];
        let round = |(key, (multiplier, shift))| TeidRound { key, multiplier, shift };
        let mut rounds = ROUNDS.map(|r| round((0, r)));
        rounds.iter_mut().zip(keys).for_each(|(round, key)| round.key = key);
        Self { index_mask: (1 << bits) - 1, rounds, last: (two >> 32) as u32 }
    }

    /// Bits of a word that are the index: the lowest ones.
    pub fn index_mask(&self) -> u32 {
        self.index_mask
    }

    /// What leads from a TEID to its word, for programs of the kernel: these rounds in order.
    pub fn rounds(&self) -> [TeidRound; 3] {
        self.rounds
    }

    /// What the word is combined with behind the last round.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// The word that a TEID stands for.
    #[inline]
    fn permuted(&self, teid: Teid) -> u32 {
        let word = self.rounds.iter().fold(teid.0, |word, r| {
            let word = (word ^ r.key).wrapping_mul(r.multiplier);
            word ^ word >> r.shift
        });
        word ^ self.last
    }

    /// The TEID that stands for a word.
    fn teid_of(&self, word: u32) -> Teid {
        let word = self.rounds.iter().rev().fold(word ^ self.last, |word, r| {
            // A shift by half the bits is undone by itself, one by a bit less in two steps.
            let word = word ^ word >> r.shift ^ word.checked_shr(2 * r.shift).unwrap_or(0);
            word.wrapping_mul(inverse(r.multiplier)) ^ r.key
        });
        Teid(word)
    }

    /// A tunnel of a session that was given `given` before, and whether there is one of that number: no TEID is zero (TS 29.281 §5.1).
    pub(crate) fn teid(&self, session: SessionId, given: u16) -> Option<Teid> {
        let tag = session.generation.wrapping_add(given.into());
        let word = tag.wrapping_mul(self.index_mask + 1) | session.index & self.index_mask;
        Some(self.teid_of(word)).filter(|t| *t != Teid(0))
    }

    /// The tag of a TEID: generation of its session, and tunnels given before it, as far as the tag has bits.
    fn tag_of(&self, teid: Teid) -> u32 {
        self.permuted(teid) >> self.index_mask.count_ones()
    }

    /// How many tunnels a session of this generation was given before this one.
    pub(crate) fn given_before(&self, session: SessionId, teid: Teid) -> u16 {
        let tags = u32::MAX >> self.index_mask.count_ones();
        (self.tag_of(teid).wrapping_sub(session.generation) & tags) as u16
    }

    /// The generation, like `other` as far as the tag leaves it open, of a session whose first tunnel is this one.
    pub(crate) fn generation_of(&self, teid: Teid, other: u32) -> u32 {
        let tags = u32::MAX >> self.index_mask.count_ones();
        other & !tags | self.tag_of(teid)
    }

    /// Where the session of a TEID would stand.
    #[inline]
    pub fn index_of(&self, teid: Teid) -> u32 {
        self.permuted(teid) & self.index_mask
    }
}

/// What undoes a multiplication with an odd number, modulo 2^32 (Newton's iteration: each step doubles the bits that are right).
const fn inverse(odd: u32) -> u32 {
    let mut x = odd;
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// A mixing of 64 bits (the finaliser of SplitMix64, twice): of a secret seed it makes other numbers that show nothing of it.
pub(crate) const fn mix(mut z: u64) -> u64 {
    let mut round = 0;
    while round < 2 {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        round += 1;
    }
    z
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KEYS: [u64; 4] = [0, 1, 42, 0xdead_beef_0bad_cafe];

    #[test]
    fn seid_and_teid_lead_back_to_the_session() {
        for sessions_max in [1, 1000, (1 << 20) - 1, 1 << 20, 12_000_000, SESSIONS_MAX - 1] {
            for key in KEYS {
                let teids = Teids::new(sessions_max, key);
                for index in [0, 1, 77, sessions_max - 1].map(|i| i.min(sessions_max - 1)) {
                    let id = SessionId { index, generation: 0xdead_beef };
                    assert_eq!(SessionId::from_seid(id.seid()), Some(id));
                    for given in 0..300 {
                        let Some(teid) = teids.teid(id, given) else { continue };
                        assert_eq!(teids.index_of(teid), index);
                        assert_ne!(teid, Teid(0));
                    }
                }
            }
        }
        assert_eq!(SessionId::from_seid(Seid(0)), None);
        assert_eq!(SessionId::from_seid(Seid(u64::from(u32::MAX))), None);
    }

    #[test]
    fn the_permutation_is_undone() {
        for key in KEYS {
            let teids = Teids::new(1000, key);
            for n in 0..100_000u32 {
                let word = n.wrapping_mul(0x9e37_79b9);
                assert_eq!(teids.permuted(teids.teid_of(word)), word);
            }
        }
    }

    #[test] // the one name that there cannot be is left out, and nothing else
    fn no_tunnel_is_zero() {
        let teids = Teids::new(1000, 7);
        let word = teids.permuted(Teid(0));
        let (index, tag) = (word & teids.index_mask, word >> 20);
        let id = |generation| SessionId { index, generation };
        assert_eq!(teids.teid(id(tag), 0), None);
        assert_eq!(teids.teid(id(tag.wrapping_sub(3)), 3), None);
        assert!(teids.teid(id(tag), 1).is_some() && teids.teid(id(tag.wrapping_sub(1)), 0).is_some());
    }

    #[test] // TS 33.513 §4.2.2.6: an index has all its names before one returns
    fn a_former_name_returns_after_all_others_of_its_index() {
        for (sessions_max, names) in [(1000, 4_096), (SESSIONS_MAX - 1, 256)] {
            let teids = Teids::new(sessions_max, 42);
            let name =
                |n: u32| teids.teid(SessionId { index: 7, generation: 0xffff_ff00u32.wrapping_add(n) }, 0);
            let all: BTreeSet<_> = (0..names).map(name).collect();
            assert_eq!(all.len(), names as usize);
            assert_eq!(name(names), name(0));
        }
    }

    #[test] // TS 23.527 §4.3: a session that is restored has the tunnels that it had
    fn a_session_of_a_tunnel_that_is_given_has_it_as_its_first_and_goes_on_from_there() {
        for (sessions_max, teid) in [(1000, Teid(0xdead_beef)), (SESSIONS_MAX - 1, Teid(7))] {
            let teids = Teids::new(sessions_max, 42);
            let generation = teids.generation_of(teid, 0x1234_5678);
            let id = SessionId { index: teids.index_of(teid), generation };
            assert_eq!((teids.teid(id, 0), teids.given_before(id, teid)), (Some(teid), 0));
            let third = teids.teid(id, 2).unwrap();
            assert_eq!(teids.given_before(id, third), 2);
        }
    }

    /// How often each bit of a TEID differs where one bit of the word does, in 65,536 parts.
    fn flips(teids: &Teids, bit: u32, words: impl Iterator<Item = u32>) -> [u32; 32] {
        let (mut flips, mut count) = ([0u64; 32], 0);
        for word in words {
            let differ = teids.teid_of(word).0 ^ teids.teid_of(word ^ 1 << bit).0;
            flips.iter_mut().enumerate().for_each(|(i, n)| *n += u64::from(differ >> i & 1));
            count += 1;
        }
        flips.map(|n| (n * 65_536 / count) as u32)
    }

    #[test]
    fn each_bit_of_index_and_tag_decides_on_each_bit_of_a_teid_evenly() {
        const HALF: std::ops::Range<u32> = 32_768 - 4_000..32_768 + 4_000;
        for key in KEYS {
            let teids = Teids::new(1_000_000, key);
            for bit in 0..32 {
                // Words as they come: indices from the first on, and tags of a few.
                let words = (0..4_096u32).map(|n| n | n.wrapping_mul(0x9e37_79b9) << 20);
                for (at, n) in flips(&teids, bit, words).into_iter().enumerate() {
                    assert!(HALF.contains(&n), "key {key}: bit {bit} flips bit {at} in {n} of 65,536 cases");
                }
            }
        }
    }

    #[test] // sessions that begin one after the other have neighbouring indices, and their tunnels say nothing of it
    fn neither_index_nor_order_shows_in_a_teid() {
        let teids = Teids::new(1_000_000, 42);
        let of = |index| teids.teid(SessionId { index, generation: 9 }, 0).unwrap().0;
        let all: Vec<u32> = (0..65_536).map(of).collect();
        // Evenly over all sixteenths, by the highest and by the lowest bits.
        for shift in [0, 28] {
            let mut counts = [0u32; 16];
            all.iter().for_each(|t| counts[(t >> shift & 15) as usize] += 1);
            assert!(counts.iter().all(|n| (3_800..4_400).contains(n)), "{counts:?}");
        }
        // Neighbours are no nearer to each other than others are.
        let near = |pairs: &mut dyn Iterator<Item = (u32, u32)>| {
            pairs.filter(|(a, b)| a.abs_diff(*b) < 1 << 24).count()
        };
        let neighbours = near(&mut all.windows(2).map(|w| (w[0], w[1])));
        let apart = near(&mut all.iter().zip(&all[30_000..]).map(|(a, b)| (*a, *b)));
        // 1 of 128 each: 512 and 277.
        assert!((400..640).contains(&neighbours) && (200..360).contains(&apart), "{neighbours}, {apart}");
    }

    #[test]
    fn another_key_gives_other_names() {
        let id = SessionId { index: 7, generation: 9 };
        let names: BTreeSet<_> = (0..1_000).map(|key| Teids::new(1000, key).teid(id, 0)).collect();
        assert_eq!(names.len(), 1_000);
    }
}
