//! Rules by columns, in order of rank, so that one word of a packet meets that word of many rules at once.

use crate::key::{PacketKey, WORDS, has, word};
use crate::rows::RuleRows;
use crate::rule::{Rank, Rule};
use crate::simd::{Compare, Search, Words};

/// Rules of a block that a look-up compares one by one before it goes on by columns: so many take as long.
const ONE_BY_ONE_MAX: u32 = 16;

/// The two words that a block compares first, besides ports and protocol.
pub(crate) type WordPair = [u8; 2];

/// The pair that turns away most, by how many bits of each word the rules ask for.
pub(crate) fn choose_pair<'r>(rules: impl Iterator<Item = &'r Rule>) -> WordPair {
    let mut bits = [0; WORDS];
    for r in rules {
        for (bits, mask) in bits.iter_mut().zip(&r.mask) {
            *bits += mask.count_ones();
        }
    }
    // These two have columns in any case.
    bits[word::PORTS] = 0;
    bits[word::PROTOCOL] = 0;
    let best = |but: usize| {
        let words = (0..WORDS).rev().filter(|at| *at != but);
        words.max_by_key(|at| bits[*at]).unwrap_or(0)
    };
    let first = best(WORDS);
    [first as u8, best(first) as u8]
}

/// The words that blocks of this pair compare.
#[inline(always)]
pub(crate) fn words(key: &PacketKey, pair: WordPair) -> Words {
    let [first, second] = pair;
    Words {
        pair: [key.words[usize::from(first) % WORDS], key.words[usize::from(second) % WORDS]],
        protocol: key.words[word::PROTOCOL],
        ports: key.words[word::PORTS],
    }
}

/// What of `N` rules has columns.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Columns<const N: usize> {
    pub(crate) first_value: [u32; N],
    pub(crate) first_mask: [u32; N],
    pub(crate) second_value: [u32; N],
    pub(crate) second_mask: [u32; N],
    pub(crate) protocol_value: [u32; N],
    pub(crate) protocol_mask: [u32; N],
    /// Local and remote port, as the halves of a key's word stand in memory.
    pub(crate) ports_from: [[u16; 2]; N],
    pub(crate) ports_span: [[u16; 2]; N],
}

/// A word of `N` rules.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Word<const N: usize> {
    pub(crate) value: [u32; N],
    pub(crate) mask: [u32; N],
}

/// What of a rule has columns.
#[derive(Clone, Copy)]
struct RuleRow {
    first: (u32, u32),
    second: (u32, u32),
    protocol: (u32, u32),
    from: [u16; 2],
    span: [u16; 2],
}

/// A place without a rule: no packet meets it.
const NO_ROW: RuleRow = RuleRow {
    first: (u32::MAX, u32::MAX),
    second: (u32::MAX, u32::MAX),
    protocol: (NOTHING, NOTHING),
    from: [0; 2],
    span: [0; 2],
};
const NOTHING: u32 = (has::NOTHING as u32) << 8;

impl RuleRow {
    fn of(rule: &Rule, pair: WordPair) -> Self {
        let [first, second] = pair.map(|at| (rule.value[usize::from(at)], rule.mask[usize::from(at)]));
        let [(remote, remote_to), (local, local_to)] = rule.ports;
        Self {
            first,
            second,
            protocol: (rule.value[word::PROTOCOL], rule.mask[word::PROTOCOL]),
            from: [local, remote],
            span: [local_to - local, remote_to - remote],
        }
    }
}

impl<const N: usize> Columns<N> {
    fn empty() -> Self {
        Self {
            first_value: [NO_ROW.first.0; N],
            first_mask: [NO_ROW.first.1; N],
            second_value: [NO_ROW.second.0; N],
            second_mask: [NO_ROW.second.1; N],
            protocol_value: [NO_ROW.protocol.0; N],
            protocol_mask: [NO_ROW.protocol.1; N],
            ports_from: [NO_ROW.from; N],
            ports_span: [NO_ROW.span; N],
        }
    }

    /// Writes a row at a place, and moves those from there on by one; the last one, which has no place any more.
    fn shift_in(&mut self, at: usize, row: RuleRow) -> RuleRow {
        RuleRow {
            first: (
                shift_in(&mut self.first_value, at, row.first.0),
                shift_in(&mut self.first_mask, at, row.first.1),
            ),
            second: (
                shift_in(&mut self.second_value, at, row.second.0),
                shift_in(&mut self.second_mask, at, row.second.1),
            ),
            protocol: (
                shift_in(&mut self.protocol_value, at, row.protocol.0),
                shift_in(&mut self.protocol_mask, at, row.protocol.1),
            ),
            from: shift_in(&mut self.ports_from, at, row.from),
            span: shift_in(&mut self.ports_span, at, row.span),
        }
    }

    /// Takes away the row at a place, moves those behind it back by one, and writes the last; the row that was there.
    fn shift_out(&mut self, at: usize, last: RuleRow) -> RuleRow {
        RuleRow {
            first: (
                shift_out(&mut self.first_value, at, last.first.0),
                shift_out(&mut self.first_mask, at, last.first.1),
            ),
            second: (
                shift_out(&mut self.second_value, at, last.second.0),
                shift_out(&mut self.second_mask, at, last.second.1),
            ),
            protocol: (
                shift_out(&mut self.protocol_value, at, last.protocol.0),
                shift_out(&mut self.protocol_mask, at, last.protocol.1),
            ),
            from: shift_out(&mut self.ports_from, at, last.from),
            span: shift_out(&mut self.ports_span, at, last.span),
        }
    }
}

fn shift_in<T: Copy, const N: usize>(column: &mut [T; N], at: usize, value: T) -> T {
    let last = column[N - 1];
    column.copy_within(at..N - 1, at + 1);
    column[at] = value;
    last
}

fn shift_out<T: Copy, const N: usize>(column: &mut [T; N], at: usize, last: T) -> T {
    let value = column[at];
    column.copy_within(at + 1..N, at);
    column[N - 1] = last;
    value
}

#[cfg(test)]
impl<const N: usize> Columns<N> {
    /// Columns of these numbers, with masks of few bits, so that some match.
    pub(crate) fn any(mut next: impl FnMut() -> u32) -> Self {
        let mut masks = || std::array::from_fn(|_| next() & 0x8000_0001);
        let (first_mask, second_mask, protocol_mask) = (masks(), masks(), masks());
        let mut under = |mask: [u32; N]| mask.map(|m| next() & m);
        let (first_value, second_value, protocol_value) =
            (under(first_mask), under(second_mask), under(protocol_mask));
        let mut ports = || std::array::from_fn(|_| [next() as u16, (next() >> 16) as u16]);
        Self {
            first_value,
            first_mask,
            second_value,
            second_mask,
            protocol_value,
            protocol_mask,
            ports_from: ports(),
            ports_span: ports(),
        }
    }
}

/// Up to `N` x `CHUNKS` rules, at most 128; the columns are of `N` each.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Block<const N: usize, const CHUNKS: usize> {
    chunks: [Columns<N>; CHUNKS],
    rank: [[Rank; N]; CHUNKS],
    row: [[u32; N]; CHUNKS],
    /// Bit n: rule n of the chunk asks for words that have no column.
    more: [u16; CHUNKS],
    len: u8,
    pair: WordPair,
    /// The pair leaves of most packets one rule or two: then it is worth its branch, else all columns are compared at
    /// once.
    pair_separates: bool,
    /// Columns of all other words that some rule asks for; of blocks of one chunk, none.
    others: Vec<(u8, [Word<N>; CHUNKS])>,
}

impl<const N: usize, const CHUNKS: usize> Block<N, CHUNKS> {
    /// Rules that have room.
    pub(crate) const ROOM: usize = N * CHUNKS;
    /// The places of a chunk.
    const PLACES: u16 = ((1u32 << N) - 1) as u16;

    pub(crate) fn new(pair: WordPair) -> Self {
        const { assert!(N <= 16 && CHUNKS <= 8) };
        Self {
            chunks: std::array::from_fn(|_| Columns::empty()),
            rank: [[Rank::LAST; N]; CHUNKS],
            row: [[0; N]; CHUNKS],
            more: [0; CHUNKS],
            len: 0,
            pair,
            pair_separates: true,
            others: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.into()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() == Self::ROOM
    }

    fn ranks(&self) -> &[Rank] {
        &self.rank.as_flattened()[..self.len()]
    }

    /// Rank of the first rule.
    pub(crate) fn first_rank(&self) -> Rank {
        self.rank[0][0]
    }

    /// Rank of the last rule.
    pub(crate) fn last_rank(&self) -> Rank {
        self.ranks().last().copied().unwrap_or(Rank::LAST)
    }

    /// Where the rules stand in full.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.row.as_flattened()[..self.len()]
    }

    /// Those of rules from a rank on.
    pub(crate) fn rows_from(&self, rank: Rank) -> &[u32] {
        let at = self.ranks().partition_point(|r| *r < rank);
        &self.rows()[at..]
    }

    /// Adds a rule at its place; there must be room.
    pub(crate) fn insert(&mut self, rule: &Rule, row: u32) {
        let len = self.len();
        debug_assert!(len < Self::ROOM);
        let at = self.ranks().partition_point(|r| *r < rule.rank);
        let mut carried = RuleRow::of(rule, self.pair);
        let mut more = u16::from(self.asks_for_more(rule));
        for chunk in at / N..=len / N {
            let from = at.saturating_sub(chunk * N);
            carried = self.chunks[chunk].shift_in(from, carried);
            let bits = &mut self.more[chunk];
            let below = *bits & ((1 << from) - 1);
            let moved = u32::from(*bits - below) << 1 | u32::from(more) << from | u32::from(below);
            more = (moved >> N) as u16 & 1;
            *bits = moved as u16 & Self::PLACES;
        }
        if CHUNKS > 1 {
            self.insert_others(at, rule);
        }
        let ranks = self.rank.as_flattened_mut();
        ranks.copy_within(at..len, at + 1);
        ranks[at] = rule.rank;
        let rows = self.row.as_flattened_mut();
        rows.copy_within(at..len, at + 1);
        rows[at] = row;
        self.len += 1;
    }

    /// The words of a new rule that are in none of the fixed columns.
    fn insert_others(&mut self, at: usize, rule: &Rule) {
        for (word, mask) in (0..).zip(rule.mask) {
            let fixed = self.pair.contains(&word) || [word::PORTS, word::PROTOCOL].contains(&word.into());
            if mask != 0 && !fixed && self.others.iter().all(|(w, _)| *w != word) {
                self.others.push((word, [Word { value: [0; N], mask: [0; N] }; CHUNKS]));
            }
        }
        let len = self.len();
        for (word, columns) in &mut self.others {
            let (mut value, mut mask) = (rule.value[usize::from(*word)], rule.mask[usize::from(*word)]);
            for (chunk, columns) in columns.iter_mut().enumerate().take(len / N + 1).skip(at / N) {
                let from = at.saturating_sub(chunk * N);
                value = shift_in(&mut columns.value, from, value);
                mask = shift_in(&mut columns.mask, from, mask);
            }
        }
    }

    /// Whether a rule asks for words that have no column here.
    fn asks_for_more(&self, rule: &Rule) -> bool {
        let [first, second] = self.pair.map(usize::from);
        let columns = [first, second, word::PORTS, word::PROTOCOL];
        rule.mask.iter().enumerate().any(|(at, mask)| *mask != 0 && !columns.contains(&at))
    }

    /// Takes a rule away; its row, if it was there.
    pub(crate) fn remove(&mut self, rank: Rank) -> Option<u32> {
        let len = self.len();
        let at = self.ranks().iter().position(|r| *r == rank)?;
        let mut carried = NO_ROW;
        let mut more = 0;
        for chunk in (at / N..=(len - 1) / N).rev() {
            let from = at.saturating_sub(chunk * N);
            carried = self.chunks[chunk].shift_out(from, carried);
            let bits = self.more[chunk];
            let below = bits & ((1 << from) - 1);
            self.more[chunk] = below | bits >> 1 & !((1 << from) - 1) | more << (N - 1);
            more = bits >> from & 1;
            // What leaves a chunk that is not the first of them goes to the place that the one before it has last.
            more = if chunk > at / N { bits & 1 } else { more };
        }
        for (_, columns) in &mut self.others {
            let (mut value, mut mask) = (0, 0);
            for chunk in (at / N..=(len - 1) / N).rev() {
                let from = at.saturating_sub(chunk * N);
                value = shift_out(&mut columns[chunk].value, from, value);
                mask = shift_out(&mut columns[chunk].mask, from, mask);
            }
        }
        let ranks = self.rank.as_flattened_mut();
        ranks.copy_within(at + 1..len, at);
        ranks[len - 1] = Rank::LAST;
        let rows = self.row.as_flattened_mut();
        let row = rows[at];
        rows.copy_within(at + 1..len, at);
        self.len -= 1;
        Some(row)
    }

    /// Chooses the first words again, for the present rules.
    pub(crate) fn choose(&mut self, rows: &RuleRows) {
        let pair = choose_pair(self.rows().iter().map(|row| rows.get(*row)));
        if pair != self.pair {
            *self = Self::of(pair, self.rows(), rows);
        } else {
            self.try_pair();
        }
    }

    /// How many rules the pair leaves of packets that are for some of the rules.
    fn try_pair(&mut self) {
        const SAMPLE: usize = 8;
        let len = self.len();
        let place = |at: usize| (&self.chunks[at / N], at % N);
        let left = (0..len).step_by(len.div_ceil(SAMPLE).max(1)).map(|packet| {
            let (packet, n) = place(packet);
            let meets = |rule: &usize| {
                let (rule, at) = place(*rule);
                (packet.first_value[n] ^ rule.first_value[at]) & rule.first_mask[at] == 0
                    && (packet.second_value[n] ^ rule.second_value[at]) & rule.second_mask[at] == 0
            };
            (0..len).filter(meets).count()
        });
        let (left, packets) = left.fold((0, 0), |(sum, n), left| (sum + left, n + 1));
        self.pair_separates = left <= 2 * packets;
    }

    /// A block of these rules, for which there must be room.
    pub(crate) fn of(pair: WordPair, list: &[u32], rows: &RuleRows) -> Self {
        let mut block = Self::new(pair);
        for row in list {
            block.insert(rows.get(*row), *row);
        }
        block.try_pair();
        block
    }

    /// The words that the rules ask most of.
    #[inline(always)]
    pub(crate) fn pair(&self) -> WordPair {
        self.pair
    }

    /// Rank of the first rule that a packet matches, or [`Rank::LAST`]. `words` are of this block's pair.
    ///
    /// The first words of all rules without a branch, then all columns of the chunks that have rules left, then the
    /// rest of each rule. Where many rules are left for that, because rules were made that differ in the rest
    /// alone, the rest is compared by columns too.
    #[inline(always)]
    pub(crate) fn lookup<C: Compare>(&self, c: C, words: Words, key: &PacketKey, rows: &RuleRows) -> Rank {
        // A block of one chunk is compared as a whole, so that no more of it is read than the columns.
        let used = if CHUNKS == 1 { &self.chunks[..] } else { &self.chunks[..self.len().div_ceil(N)] };
        let pair_separates = CHUNKS > 1 && self.pair_separates;
        let mut some = 0u128;
        for chunks in used.chunks(64 / N).rev() {
            let mut bits = 0u64;
            for chunk in chunks.iter().rev() {
                let some = if pair_separates { c.pair(words, chunk) } else { c.all(words, chunk) };
                bits = bits << N | u64::from(some);
            }
            some = some << 64 | u128::from(bits);
        }
        let mut one_by_one = ONE_BY_ONE_MAX;
        if !pair_separates {
            // Where some rules ask for more, all are compared: whether the next one does is what no processor foresees.
            let more = self.more != [0; CHUNKS];
            while some != 0 {
                let at = some.trailing_zeros() as usize;
                let (chunk, at) = (at / N % CHUNKS, at % N);
                if !more || rows.get(self.row[chunk][at]).matches_words(key) {
                    return self.rank[chunk][at];
                }
                some &= some - 1;
                one_by_one -= 1;
                if one_by_one == 0 {
                    return c.apart(ByColumns { block: self, words, key, some });
                }
            }
            return Rank::LAST;
        }
        while some != 0 {
            let chunk = some.trailing_zeros() as usize / N % CHUNKS;
            let mut all = c.all(words, &self.chunks[chunk]);
            while all != 0 {
                let at = all.trailing_zeros() as usize % N;
                if self.more[chunk] >> at & 1 == 0 || rows.get(self.row[chunk][at]).matches_words(key) {
                    return self.rank[chunk][at];
                }
                all &= all - 1;
                one_by_one -= 1;
                if one_by_one == 0 {
                    return c.apart(ByColumns { block: self, words, key, some });
                }
            }
            some &= !(u128::from(Self::PLACES) << (chunk * N));
        }
        Rank::LAST
    }
}

/// The rest of a look-up in a block, by columns.
struct ByColumns<'a, const N: usize, const CHUNKS: usize> {
    block: &'a Block<N, CHUNKS>,
    words: Words,
    key: &'a PacketKey,
    some: u128,
}

impl<const N: usize, const CHUNKS: usize> Search for ByColumns<'_, N, CHUNKS> {
    type Found = Rank;

    #[inline(always)]
    fn run<C: Compare>(self, c: C) -> Rank {
        let Self { block, words, key, some } = self;
        for (n, chunk) in block.chunks.iter().enumerate() {
            if (some >> (n * N)) as u16 & Block::<N, CHUNKS>::PLACES == 0 {
                continue;
            }
            let mut all = c.all(words, chunk);
            for (word, columns) in &block.others {
                if all == 0 {
                    break;
                }
                all &= c.word(key.words[usize::from(*word) % WORDS], &columns[n]);
            }
            if all != 0 {
                return block.rank[n][all.trailing_zeros() as usize % N];
            }
        }
        Rank::LAST
    }
}
