//! The broker's table of a settlement period: one row for each reported session, in the order of the nonces, and the root of the Merkle
//! tree over them. The broker publishes the root, witnesses sign it, and each operator computes it from the rows again.

use p3_field::PrimeCharacteristicRing;

use crate::digest::{self, Digest, DigestOctets, Element, Hasher};

/// The most rows: 2^20, as many as the chapter's largest experiment would need days to prove.
pub const ROWS_MAX: usize = 1 << DEPTH_MAX;

/// The depth of the tree over [`ROWS_MAX`] rows.
pub const DEPTH_MAX: u8 = 20;

/// A reported session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// From the usage report.
    pub nonce: DigestOctets,
    /// Units of usage.
    pub units: u32,
}

/// Why rows are no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// There is no row, or there are more than [`ROWS_MAX`].
    Size(usize),
    /// The nonce of this row is not above that of the row before.
    Order(usize),
    /// The nonce of this row is no digest.
    Nonce(usize),
}

impl core::fmt::Display for TableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Size(rows) => write!(f, "a table has 1 to {ROWS_MAX} rows, not {rows}"),
            Self::Order(row) => write!(f, "the nonce of row {row} is not above that of the row before"),
            Self::Nonce(row) => write!(f, "the nonce of row {row} is no digest of the field"),
        }
    }
}

impl core::error::Error for TableError {}

/// The table with its tree.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Row>,
    /// From the leaves, filled up to a power of two, to the root.
    layers: Vec<Vec<Digest>>,
}

/// Levels above the leaves of a table with so many rows; at least one, so that there is a node above them.
pub fn depth(rows: usize) -> u8 {
    rows.next_power_of_two().max(2).ilog2() as u8
}

impl Table {
    /// From rows in strictly ascending order of their nonces. Errors: [`TableError`].
    pub fn new(rows: Vec<Row>) -> Result<Self, TableError> {
        if rows.is_empty() || rows.len() > ROWS_MAX {
            return Err(TableError::Size(rows.len()));
        }
        if let Some(at) = rows.windows(2).position(|pair| pair[0].nonce >= pair[1].nonce) {
            return Err(TableError::Order(at + 1));
        }
        let hasher = Hasher::new();
        let mut leaves = Vec::with_capacity(rows.len().next_power_of_two());
        for (at, row) in rows.iter().enumerate() {
            let nonce = digest::parse(&row.nonce).ok_or(TableError::Nonce(at))?;
            leaves.push(hasher.digest(&digest::leaf(&nonce, row.units)));
        }
        // No secret is known whose nonce is zero, and the row would add nothing.
        let empty = hasher.digest(&digest::leaf(&[Element::ZERO; 8], 0));
        leaves.resize(1 << depth(rows.len()), empty);
        let mut layers = vec![leaves];
        while let Some(last) = layers.last().filter(|last| last.len() > 1) {
            let next =
                last.chunks_exact(2).map(|both| hasher.digest(&digest::pair(&both[0], &both[1]))).collect();
            layers.push(next);
        }
        Ok(Self { rows, layers })
    }

    /// Root of the tree.
    pub fn root(&self) -> DigestOctets {
        digest::octets(&self.layers[self.layers.len() - 1][0])
    }

    /// Levels above the leaves.
    pub fn depth(&self) -> u8 {
        depth(self.rows.len())
    }

    /// Rows of the table, in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The place and the row of a nonce.
    pub fn find(&self, nonce: &DigestOctets) -> Option<(usize, Row)> {
        let at = self.rows.binary_search_by(|row| row.nonce.cmp(nonce)).ok()?;
        Some((at, self.rows[at]))
    }

    /// What stands beside the way from a leaf to the root, from below.
    pub(crate) fn siblings(&self, at: usize) -> impl Iterator<Item = Digest> {
        self.layers[..self.layers.len() - 1]
            .iter()
            .enumerate()
            .map(move |(level, layer)| layer[(at >> level) ^ 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{ClaimSecret, nonce};

    fn rows(count: u8) -> Vec<Row> {
        let mut rows: Vec<Row> = (0..count)
            .map(|n| Row { nonce: nonce(&ClaimSecret::new(&[n; 32])), units: u32::from(n) })
            .collect();
        rows.sort();
        rows
    }

    #[test]
    fn the_depth_is_that_of_the_next_power_of_two() {
        for (count, depth) in [(1, 1), (2, 1), (3, 2), (5, 3), (8, 3)] {
            assert_eq!(Table::new(rows(count)).unwrap().depth(), depth);
        }
    }

    #[test]
    fn every_row_changes_the_root() {
        let rows = rows(5);
        let root = Table::new(rows.clone()).unwrap().root();
        for n in 0..rows.len() {
            let mut other = rows.clone();
            other[n].units += 1;
            assert_ne!(Table::new(other).unwrap().root(), root, "row {n}");
        }
        assert_ne!(Table::new(rows[..4].to_vec()).unwrap().root(), root);
    }

    #[test]
    fn a_nonce_stands_once_and_in_its_order() {
        let mut twice = rows(3);
        twice[1].nonce = twice[0].nonce;
        assert_eq!(Table::new(twice).err(), Some(TableError::Order(1)));
        let mut reversed = rows(3);
        reversed.reverse();
        assert_eq!(Table::new(reversed).err(), Some(TableError::Order(1)));
        assert_eq!(Table::new(Vec::new()).err(), Some(TableError::Size(0)));
        assert_eq!(Table::new(vec![Row { nonce: [0xff; 32], units: 1 }]).err(), Some(TableError::Nonce(0)));
    }
}
