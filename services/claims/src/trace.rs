//! The rows of a claim.

use p3_field::PrimeCharacteristicRing;
use p3_matrix::dense::RowMajorMatrix;

use crate::air::{
    CARRY, CARRY_BITS, CHAIN, LEAF_ROW, PERMUTATION, SECRET, SIDE, SUM, UNITS, USED, WIDTH, period,
    permutations,
};
use crate::digest::{Digest, DigestState, Element, Hasher, Tag, leaf, limbs, pair, tagged};

/// What a slot claims.
#[derive(Clone, Debug)]
pub(crate) struct ClaimSlot {
    pub(crate) secret: Digest,
    /// The units of its row, and the way from it to the root: which child it is, and the other one. `None` of a slot that is not used.
    pub(crate) row: Option<(u32, Vec<(bool, Digest)>)>,
}

/// The rows, and what they come to: the chain of the nullifiers and the sum of the units.
pub(crate) struct Trace {
    pub(crate) rows: RowMajorMatrix<Element>,
    pub(crate) nullifiers: Vec<Digest>,
    pub(crate) units: u64,
}

/// Makes the rows of slots, whose number is a power of two, for a table of this depth.
pub(crate) fn make(hasher: &Hasher, slots: &[ClaimSlot], depth: u8) -> Trace {
    const BESIDE: usize = WIDTH - PERMUTATION;
    let period = period(depth);
    let mut inputs: Vec<DigestState> = Vec::with_capacity(slots.len() * period);
    let mut beside = vec![[Element::ZERO; BESIDE]; slots.len() * period];
    let (mut chain, mut sums, mut nullifiers) = ([Element::ZERO; 8], [0u64; 2], Vec::new());
    for (slot, beside) in slots.iter().zip(beside.chunks_exact_mut(period)) {
        let units = slot.row.as_ref().map_or(0, |(units, _)| *units);
        let before = chain;
        let mut hash = |state: DigestState| {
            inputs.push(state);
            hasher.digest(&state)
        };
        let nullifier = hash(tagged(&slot.secret, Tag::Nullifier));
        chain = hash(pair(&nullifier, &before));
        nullifiers.push(nullifier);
        let nonce = hash(tagged(&slot.secret, Tag::Nonce));
        let mut node = hash(leaf(&nonce, units));
        let way = slot.row.as_ref().map_or(&[][..], |(_, way)| way);
        for level in 0..usize::from(depth) {
            let (is_right, other) = way.get(level).copied().unwrap_or((false, [Element::ZERO; 8]));
            node = hash(if is_right { pair(&other, &node) } else { pair(&node, &other) });
            beside[LEAF_ROW + 1 + level][SIDE - PERMUTATION] = Element::from_bool(is_right);
        }
        inputs.resize(inputs.len().next_multiple_of(period), [Element::ZERO; 16]);
        for (n, columns) in beside.iter_mut().enumerate() {
            let mut set = |at: usize, values: &[Element]| {
                columns[at - PERMUTATION..][..values.len()].copy_from_slice(values);
            };
            set(SECRET, &slot.secret);
            set(UNITS, &limbs(units));
            set(USED, &[Element::from_bool(slot.row.is_some())]);
            set(CHAIN, if n < 2 { &before } else { &chain });
            set(SUM, &sums.map(Element::from_u64));
        }
        sums[0] += u64::from(units & 0xffff);
        sums[1] += u64::from(units >> 16);
    }
    if let Some(last) = beside.last_mut() {
        let low = sums[0] >> 16;
        let high = (sums[1] + low) >> 16;
        for (n, carry) in [low, high].into_iter().enumerate() {
            for bit in 0..CARRY_BITS {
                let is_set = Element::from_bool(carry >> bit & 1 == 1);
                last[CARRY - PERMUTATION + n * CARRY_BITS + bit] = is_set;
            }
        }
    }
    let permuted = permutations(inputs);
    let mut values = Vec::with_capacity(beside.len() * WIDTH);
    for (permuted, beside) in permuted.values.chunks_exact(PERMUTATION).zip(&beside) {
        values.extend_from_slice(permuted);
        values.extend_from_slice(beside);
    }
    Trace { rows: RowMajorMatrix::new(values, WIDTH), nullifiers, units: sums[0] + (sums[1] << 16) }
}
