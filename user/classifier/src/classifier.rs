//! The classifier: a scan with vector instructions, and in front of it tables for rules that a hash separates.
//!
//! A look-up reads every table (one line of tags, one block of at most eight rules each), then the scan as far as it
//! may hold a better rule. A table costs no more than the scan of [`TABLE_PAYS`] rules, and it exists only while it holds that many.
//! So no rule set, from any SMF, is slower than the scan of all its rules: rules that no table takes well are scanned.

use crate::block;
use crate::choose::{SAMPLE, choose};
use crate::key::PacketKey;
use crate::rows::RuleRows;
use crate::rule::{Rank, Rule};
use crate::scan::Scan;
use crate::simd::{Compare, Instructions, Search, Unit};
use crate::table::{Buckets, TABLES_MAX, TupleTable, best_of};

/// Rules that a table must hold to pay for its look-up, which takes as long as the scan of this many.
const TABLE_PAYS: usize = 128;
/// Rules in the scan from which on a table is considered. Fewer are scanned in less time than a table's look-up and
/// the scan of the rest take together.
const SCAN_FEW: usize = 192;

/// Rules that one update moves into a new table, besides its own: few, to keep each update short.
const FILLED_AT_ONCE: usize = 8;

/// A set of rules in which packets are looked up.
#[derive(Clone, Debug)]
pub struct Classifier {
    unit: Unit,
    tables: Vec<TupleTable>,
    scan: Scan,
    buckets: Buckets,
    rows: RuleRows,
    /// State of the generator of hash factors.
    seed: u64,
    /// While the newest table is filled from the scan: the next rank to move.
    filling: Option<Rank>,
    /// Rules in the scan at which the next table is considered.
    next_choice: usize,
}

impl Classifier {
    /// An empty set that uses the widest vector instructions of this processor. The factors of its hashes are drawn from the
    /// seed, which should be secret: an attacker that knows it can install rules that collide.
    pub fn new(seed: u64) -> Self {
        Self::with(Instructions::best(), seed)
    }

    /// The same with these instructions, or the widest below them that the processor has.
    pub fn with(instructions: Instructions, seed: u64) -> Self {
        Self {
            unit: Unit::new(instructions),
            tables: Vec::new(),
            scan: Scan::default(),
            buckets: Buckets::new(),
            rows: RuleRows::default(),
            seed,
            filling: None,
            next_choice: SCAN_FEW,
        }
    }

    /// A classifier that scans all rules, which bounds what a look-up costs.
    #[cfg(feature = "measure")]
    pub fn scan_alone(instructions: Instructions) -> Self {
        Self { next_choice: usize::MAX, ..Self::with(instructions, 0) }
    }

    /// The number of tables, and of rules that are in none.
    #[cfg(feature = "measure")]
    pub fn shape(&self) -> (usize, usize) {
        (self.tables.len(), self.scan.len())
    }

    /// Adds a rule. Its rank must differ from that of every rule in the set.
    pub fn insert(&mut self, rule: Rule) {
        let row = self.rows.add(rule);
        let taken = self.tables.iter_mut().any(|t| t.insert(&rule, row, &mut self.buckets));
        if !taken {
            self.scan.insert(&rule, row, &self.rows);
        }
        self.fill();
        if self.scan.len() >= self.next_choice {
            self.make_table();
        }
    }

    /// Removes a rule. False if it was not in the set.
    pub fn remove(&mut self, rule: &Rule) -> bool {
        let Self { tables, buckets, scan, rows, .. } = self;
        let in_table = tables
            .iter_mut()
            .enumerate()
            .find_map(|(at, t)| t.remove(rule, buckets).map(|row| (Some(at), row)));
        let Some((at, row)) = in_table.or_else(|| scan.remove(rule.rank, rows).map(|row| (None, row))) else {
            return false;
        };
        rows.release(row);
        match at {
            // A table that is still being filled may have few rules.
            Some(at) if self.filling.is_none() || at + 1 < self.tables.len() => self.dissolve(at),
            _ => {}
        }
        self.fill();
        true
    }

    /// The lowest rank of the rules that a packet matches.
    #[inline]
    pub fn lookup(&self, key: &PacketKey) -> Option<Rank> {
        let rank = if self.tables.is_empty() {
            self.unit.run(ScanAlone(self, key))
        } else {
            self.unit.run(TablesFirst(self, key))
        };
        (rank != Rank::LAST).then_some(rank)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next factor of a hash: an odd number (splitmix64).
    fn factor(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.seed ^ self.seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) | 1
    }

    /// Creates a table, if one would take enough of the scanned rules.
    fn make_table(&mut self) {
        if self.tables.len() >= TABLES_MAX || self.filling.is_some() {
            return;
        }
        let factors = [self.factor(), self.factor(), self.factor()];
        let standing = self.scan.len();
        // Every n-th rule.
        let step = standing.div_ceil(SAMPLE).max(1);
        let rows: Vec<u32> = self.scan.rows().step_by(step).collect();
        let sample: Vec<&Rule> = rows.iter().map(|r| self.rows.get(*r)).collect();
        let (parts, taken) = choose(&factors, &sample, standing);
        if taken < TABLE_PAYS as f32 {
            self.next_choice = standing + standing / 2;
            return;
        }
        let pair = block::choose_pair(sample.into_iter().filter(|r| crate::table::covers(&parts, r)));
        self.tables.push(TupleTable::new(parts, factors, pair));
        self.filling = Some(Rank::new(0, 0));
    }

    /// Moves a few rules from the scan into the newest table, as far as it takes them.
    fn fill(&mut self) {
        let Some(from) = self.filling else { return };
        let mut some = [0; FILLED_AT_ONCE];
        let count = self.scan.rows_from(from, &mut some);
        let (Some(table), true) = (self.tables.last_mut(), count > 0) else { return self.filled() };
        for row in &some[..count] {
            let rule = self.rows.get(*row);
            if table.insert(rule, *row, &mut self.buckets) {
                self.scan.remove(rule.rank, &self.rows);
            }
            self.filling = Some(rule.rank.next());
        }
    }

    fn filled(&mut self) {
        self.filling = None;
        self.next_choice = SCAN_FEW;
        if let Some(last) = self.tables.len().checked_sub(1) {
            self.dissolve(last);
        }
        if self.filling.is_none() && self.scan.len() >= self.next_choice {
            self.make_table();
        }
    }

    /// Removes a table that holds too few rules for its cost; they go back into the scan.
    fn dissolve(&mut self, at: usize) {
        if self.tables[at].len() >= TABLE_PAYS {
            return;
        }
        let mut table = self.tables.remove(at);
        for row in table.take_all(&mut self.buckets) {
            self.scan.insert(self.rows.get(row), row, &self.rows);
        }
        self.next_choice = self.scan.len() + self.scan.len() / 2;
    }
}

/// A look-up where there are no tables.
struct ScanAlone<'a>(&'a Classifier, &'a PacketKey);

/// A look-up in tables, then in the scan.
struct TablesFirst<'a>(&'a Classifier, &'a PacketKey);

impl Search for ScanAlone<'_> {
    type Found = Rank;

    #[inline(always)]
    fn run<C: Compare>(self, c: C) -> Rank {
        self.0.scan.lookup(c, self.1, &self.0.rows, Rank::LAST)
    }
}

impl Search for TablesFirst<'_> {
    type Found = Rank;

    #[inline(always)]
    fn run<C: Compare>(self, c: C) -> Rank {
        let Self(Classifier { tables, buckets, scan, rows, .. }, key) = self;
        scan.lookup(c, key, rows, best_of(c, tables, buckets, key, rows))
    }
}
