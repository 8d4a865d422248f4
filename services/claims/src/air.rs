//! The constraints of a claim. Each slot has a power of two of rows, and each row one permutation of Poseidon2:
//!
//! | row of the slot | permutation | its digest |
//! | --- | --- | --- |
//! | 0 | secret, tag 1 | nullifier |
//! | 1 | nullifier, chain before | chain |
//! | 2 | secret, tag 2 | nonce |
//! | 3 | nonce, units, tag 3 | leaf |
//! | 4 to 3 + depth | the two children | node; the last is the root, if the slot is used |
//! | rest | free | |
//!
//! Beside the permutation, a row holds what is constant within its slot (secret, units, whether the slot is used), the chain, the side
//! on which the node stands, and the sum of the used slots before. A slot that is not used adds nothing, needs no row of the table,
//! and shows a nullifier like any other.
//!
//! The sum is carried in two limbs of 16 bits each: 1,024 slots of 2^32 units at most are far below the modulus in each limb, and the
//! last row carries them into the three public limbs by bits of its own.

use std::borrow::{Borrow, Cow};

use p3_air::{Air, AirBuilder, BaseAir, WindowAccess};
use p3_field::{Field, PrimeCharacteristicRing};
use p3_koala_bear::{
    GenericPoseidon2LinearLayersKoalaBear, KOALABEAR_POSEIDON2_RC_16_EXTERNAL_FINAL,
    KOALABEAR_POSEIDON2_RC_16_EXTERNAL_INITIAL, KOALABEAR_POSEIDON2_RC_16_INTERNAL,
};
use p3_matrix::dense::RowMajorMatrix;
use p3_poseidon2_air::{Poseidon2Air, Poseidon2Cols, RoundConstants, generate_trace_rows, num_cols};
use p3_uni_stark::SubAirBuilder;

use crate::digest::{DigestState, Element, TAG_AT, Tag};

const SBOX_DEGREE: u64 = 3;
const HALF_FULL_ROUNDS: usize = 4;
const PARTIAL_ROUNDS: usize = 20;
type Layers = GenericPoseidon2LinearLayersKoalaBear;
type Permutation = Poseidon2Air<Element, Layers, 16, SBOX_DEGREE, 0, HALF_FULL_ROUNDS, PARTIAL_ROUNDS>;
type PermutationCols<T> = Poseidon2Cols<T, 16, SBOX_DEGREE, 0, HALF_FULL_ROUNDS, PARTIAL_ROUNDS>;

/// Columns, behind those of the permutation.
pub(crate) const PERMUTATION: usize = num_cols::<16, SBOX_DEGREE, 0, HALF_FULL_ROUNDS, PARTIAL_ROUNDS>();
pub(crate) const SECRET: usize = PERMUTATION;
pub(crate) const UNITS: usize = SECRET + 8;
pub(crate) const USED: usize = UNITS + 2;
pub(crate) const CHAIN: usize = USED + 1;
pub(crate) const SIDE: usize = CHAIN + 8;
pub(crate) const SUM: usize = SIDE + 1;
pub(crate) const CARRY: usize = SUM + 2;
pub(crate) const WIDTH: usize = CARRY + 2 * CARRY_BITS;

/// Bits of a carry: a limb's sum is at most 1,024 * 65,535, and a carry from below.
pub(crate) const CARRY_BITS: usize = 11;

/// Places of the public values.
pub(crate) const ROOT_AT: usize = 0;
pub(crate) const CHAIN_AT: usize = ROOT_AT + 8;
pub(crate) const SUM_AT: usize = CHAIN_AT + 8;
pub(crate) const CONTEXT_AT: usize = SUM_AT + 3;
pub(crate) const PUBLIC: usize = CONTEXT_AT + 16;

/// The row of a slot's leaf.
pub(crate) const LEAF_ROW: usize = 3;

/// The fewest rows of a slot.
const PERIOD_MIN: usize = 16;

/// Rows of a slot.
pub(crate) const fn period(depth: u8) -> usize {
    let rows = (LEAF_ROW + 1 + depth as usize).next_power_of_two();
    if rows < PERIOD_MIN { PERIOD_MIN } else { rows }
}

fn constants() -> RoundConstants<Element, 16, HALF_FULL_ROUNDS, PARTIAL_ROUNDS> {
    RoundConstants::new(
        KOALABEAR_POSEIDON2_RC_16_EXTERNAL_INITIAL,
        KOALABEAR_POSEIDON2_RC_16_INTERNAL,
        KOALABEAR_POSEIDON2_RC_16_EXTERNAL_FINAL,
    )
}

/// The columns of the permutations with these inputs.
pub(crate) fn permutations(inputs: Vec<DigestState>) -> RowMajorMatrix<Element> {
    generate_trace_rows::<Element, Layers, 16, SBOX_DEGREE, 0, HALF_FULL_ROUNDS, PARTIAL_ROUNDS>(
        inputs,
        &constants(),
        0,
    )
}

/// The constraints for tables of one depth.
pub(crate) struct ClaimAir {
    permutation: Permutation,
    /// For each kind of row, where it is in a slot.
    rows: Vec<Vec<Element>>,
}

impl ClaimAir {
    pub(crate) fn new(depth: u8) -> Self {
        let period = period(depth);
        let root = LEAF_ROW + usize::from(depth);
        let kind = |is: &dyn Fn(usize) -> bool| (0..period).map(|row| Element::from_bool(is(row))).collect();
        let rows = vec![
            kind(&|row| row == 0),
            kind(&|row| row == 1),
            kind(&|row| row == 2),
            kind(&|row| (LEAF_ROW..root).contains(&row)),
            kind(&|row| row == root),
            kind(&|row| row + 1 == period),
        ];
        Self { permutation: Permutation::new(constants()), rows }
    }
}

impl BaseAir<Element> for ClaimAir {
    fn width(&self) -> usize {
        WIDTH
    }

    fn num_public_values(&self) -> usize {
        PUBLIC
    }

    fn num_periodic_columns(&self) -> usize {
        self.rows.len()
    }

    fn periodic_columns(&self) -> Cow<'_, [Vec<Element>]> {
        Cow::Borrowed(&self.rows)
    }
}

impl<AB: AirBuilder<F = Element>> Air<AB> for ClaimAir {
    fn eval(&self, builder: &mut AB) {
        let mut permutation = SubAirBuilder::<AB, Permutation, AB::Var>::new(builder, 0..PERMUTATION);
        self.permutation.eval(&mut permutation);
        let main = builder.main();
        let row = Row::<AB>::new(main.current_slice());
        let next = Row::<AB>::new(main.next_slice());
        let public: Vec<AB::Expr> = builder.public_values().iter().map(|value| (*value).into()).collect();
        let kinds: Vec<AB::Expr> = builder.periodic_values().iter().map(|value| (*value).into()).collect();
        let [nullifier, chain, nonce, node, root, last] = &kinds[..] else {
            unreachable!("the constraints declare six kinds of rows")
        };
        let digest = row.digest();

        // Rows 0 and 2 hash the secret, each with its tag.
        let of_secret = nullifier.clone() + nonce.clone();
        let tag = |tag: Tag| AB::Expr::from_u32(tag as u32);
        for n in 0..8 {
            builder.assert_zero(of_secret.clone() * (row.input(n) - row.at(SECRET + n)));
            if 8 + n != TAG_AT {
                builder.assert_zero(of_secret.clone() * row.input(8 + n));
            }
        }
        builder.assert_zero(nullifier.clone() * (row.input(TAG_AT) - tag(Tag::Nullifier)));
        builder.assert_zero(nonce.clone() * (row.input(TAG_AT) - tag(Tag::Nonce)));

        // Row 1 adds the nullifier to the chain, which is the same until the next slot's row 1.
        for n in 0..8 {
            builder.assert_zero(nullifier.clone() * (next.input(n) - digest[n].clone()));
            builder.assert_zero(nullifier.clone() * (next.input(8 + n) - row.at(CHAIN + n)));
            builder.assert_zero(chain.clone() * (next.at(CHAIN + n) - digest[n].clone()));
            let same = next.at(CHAIN + n) - row.at(CHAIN + n);
            builder.when_transition().assert_zero((AB::Expr::ONE - chain.clone()) * same);
            builder.when_first_row().assert_zero(row.at(CHAIN + n));
            builder.when_last_row().assert_zero(row.at(CHAIN + n) - public[CHAIN_AT + n].clone());
        }

        // Row 3 is the leaf of the nonce and the units.
        for (n, digest) in digest.iter().enumerate() {
            builder.assert_zero(nonce.clone() * (next.input(n) - digest.clone()));
            let expected = match n {
                0 | 1 => next.at(UNITS + n),
                _ if 8 + n == TAG_AT => tag(Tag::Leaf),
                _ => AB::Expr::ZERO,
            };
            builder.assert_zero(nonce.clone() * (next.input(8 + n) - expected));
        }

        // The digest of a leaf or node is a child of the next row's node, on its side; that of the last node is the root.
        let right = next.at(SIDE);
        builder.assert_bool(row.at(SIDE));
        for (n, digest) in digest.iter().enumerate() {
            let left = AB::Expr::ONE - right.clone();
            builder.assert_zero(node.clone() * left * (next.input(n) - digest.clone()));
            builder.assert_zero(node.clone() * right.clone() * (next.input(8 + n) - digest.clone()));
            let difference = digest.clone() - public[ROOT_AT + n].clone();
            builder.assert_zero(root.clone() * row.at(USED) * difference);
        }

        // Secret, units and use are the same within a slot.
        builder.assert_bool(row.at(USED));
        for n in SECRET..=USED {
            builder.assert_zero((AB::Expr::ONE - last.clone()) * (next.at(n) - row.at(n)));
        }

        // The sum grows at the end of a slot by the units of one that is used.
        for n in 0..2 {
            let added = last.clone() * row.at(USED) * row.at(UNITS + n);
            builder.when_first_row().assert_zero(row.at(SUM + n));
            builder.when_transition().assert_zero(next.at(SUM + n) - row.at(SUM + n) - added);
        }
        for n in 0..2 * CARRY_BITS {
            builder.assert_bool(row.at(CARRY + n));
        }
        let [low, high] = [0, 1].map(|n| row.carry(n));
        let limb = || AB::Expr::from_u32(1 << 16);
        let total = |n: usize| row.at(SUM + n) + row.at(USED) * row.at(UNITS + n);
        let sum = |n: usize| public[SUM_AT + n].clone();
        builder.when_last_row().assert_zero(total(0) - sum(0) - low.clone() * limb());
        builder.when_last_row().assert_zero(total(1) + low - sum(1) - high.clone() * limb());
        builder.when_last_row().assert_zero(high - sum(2));
    }
}

/// A row as expressions.
struct Row<'a, AB: AirBuilder>(&'a [AB::Var], &'a PermutationCols<AB::Var>);

impl<'a, AB: AirBuilder<F: Field>> Row<'a, AB> {
    fn new(columns: &'a [AB::Var]) -> Self {
        Self(columns, columns[..PERMUTATION].borrow())
    }

    fn at(&self, column: usize) -> AB::Expr {
        self.0[column].into()
    }

    fn input(&self, n: usize) -> AB::Expr {
        self.1.inputs[n].into()
    }

    /// Half of the permutation's output, with its input added.
    fn digest(&self) -> [AB::Expr; 8] {
        let last = &self.1.ending_full_rounds[HALF_FULL_ROUNDS - 1];
        core::array::from_fn(|n| last.post[n].into() + self.input(n))
    }

    fn carry(&self, n: usize) -> AB::Expr {
        let bits =
            (0..CARRY_BITS).map(|bit| self.at(CARRY + n * CARRY_BITS + bit) * AB::Expr::from_u32(1 << bit));
        bits.fold(AB::Expr::ZERO, |sum, bit| sum + bit)
    }
}
