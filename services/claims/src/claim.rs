//! What a claim states, and how it is proved and verified.

use std::collections::BTreeSet;

use p3_field::PrimeCharacteristicRing;
use p3_uni_stark::Proof as StarkProof;
use rand::Rng;

use crate::air::{ClaimAir, period};
use crate::digest::{self, ClaimSecret, Digest, DigestOctets, Element, Hasher, Tag, tagged};
use crate::stark::{Config, HEIGHT_MIN, PROOF_OCTETS_MAX, Proof, config, generator};
use crate::table::{DEPTH_MAX, Table};
use crate::trace::{self, ClaimSlot};

/// How many sessions a claim has room for. The same for all operators, so that a claim does not say how many sessions there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slots(u16);

impl Slots {
    /// The fewest: below, the masks of the proof would not cover what it discloses.
    pub const MIN: u16 = 32;
    /// The most: the sum of as many rows stays below 2^42, and a claim's nullifiers take 32 kB.
    pub const MAX: u16 = 1_024;

    /// A power of two from [`Slots::MIN`] to [`Slots::MAX`].
    pub fn new(slots: u16) -> Option<Self> {
        (slots.is_power_of_two() && (Self::MIN..=Self::MAX).contains(&slots)).then_some(Self(slots))
    }

    /// The number of slots.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

const _: () = assert!(Slots::MIN as usize * period(1) >= HEIGHT_MIN);
const _: () = assert!(UNITS_MAX < 1 << 42);

/// The statement that a proof is of: some rows of the table have these nullifiers, and these units together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The table's root and the depth of its tree.
    pub table: (DigestOctets, u8),
    /// One for each slot, in the order of the slots.
    pub nullifiers: Vec<DigestOctets>,
    /// Sum of the rows, in units.
    pub units: u64,
    /// What else the proof is bound to: operator, broker and period. A hash that the caller makes.
    pub context: [u8; 32],
}

/// The highest sum that a claim can have.
pub const UNITS_MAX: u64 = Slots::MAX as u64 * u32::MAX as u64;

/// Why there is no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProveError {
    /// There are more sessions than slots.
    TooMany,
    /// The nonce of this session's secret does not stand in the table.
    NotInTable(usize),
    /// This session stands among those before already.
    Repeated(usize),
    /// The proof system refused its own input.
    Failed,
}

impl core::fmt::Display for ProveError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooMany => f.write_str("there are more sessions than a claim has slots"),
            Self::NotInTable(n) => write!(f, "the nonce of session {n} does not stand in the table"),
            Self::Repeated(n) => write!(f, "session {n} is claimed twice"),
            Self::Failed => f.write_str("the proof system made no proof"),
        }
    }
}

impl core::error::Error for ProveError {}

/// Why a claim is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// The number of nullifiers is no number of slots.
    Slots,
    /// The table's root or depth, or a nullifier, is none.
    Malformed,
    /// A nullifier stands in the claim twice.
    Repeated,
    /// The sum is above [`UNITS_MAX`].
    Overflow,
    /// The octets are no proof.
    Proof,
    /// The proof is of something else.
    NotProven,
}

impl core::fmt::Display for ClaimError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Slots => "the claim has not as many nullifiers as a claim has slots",
            Self::Malformed => {
                "a root or nullifier of the claim is no digest of the field, or the depth is no table's"
            }
            Self::Repeated => "a nullifier stands in the claim twice",
            Self::Overflow => "the sum is higher than that of any table",
            Self::Proof => "the octets are no proof",
            Self::NotProven => "the proof does not prove the claim",
        })
    }
}

impl core::error::Error for ClaimError {}

/// Proves that the rows of these secrets have the sum that the claim states. `seed` is fresh entropy, of which nothing may be known or
/// used again: it hides the sessions.
///
/// Errors: [`ProveError`].
pub fn prove(
    table: &Table,
    secrets: &[ClaimSecret],
    slots: Slots,
    context: [u8; 32],
    seed: &[u8; 32],
) -> Result<(Claim, Vec<u8>), ProveError> {
    if secrets.len() > slots.get() {
        return Err(ProveError::TooMany);
    }
    let (hasher, mut seen) = (Hasher::new(), BTreeSet::new());
    let mut used = Vec::with_capacity(slots.get());
    for (n, secret) in secrets.iter().enumerate() {
        let nonce = digest::octets(&hasher.digest(&tagged(secret.elements(), Tag::Nonce)));
        let (at, row) = table.find(&nonce).ok_or(ProveError::NotInTable(n))?;
        if !seen.insert(at) {
            return Err(ProveError::Repeated(n));
        }
        let way = table.siblings(at).enumerate().map(|(level, other)| (at >> level & 1 == 1, other));
        used.push(ClaimSlot { secret: *secret.elements(), row: Some((row.units, way.collect())) });
    }
    // Which slots are used says nothing: a nullifier shows nothing of its secret. The free ones come last.
    let mut padding = generator(seed, b"padding");
    used.resize_with(slots.get(), || {
        let mut octets = [0; 32];
        padding.fill_bytes(&mut octets);
        ClaimSlot { secret: *ClaimSecret::new(&octets).elements(), row: None }
    });
    prove_slots(&hasher, (table.root(), table.depth()), &used, context, seed)
}

/// The proof for slots as they are, which need not satisfy the constraints.
pub(crate) fn prove_slots(
    hasher: &Hasher,
    (root, depth): (DigestOctets, u8),
    slots: &[ClaimSlot],
    context: [u8; 32],
    seed: &[u8; 32],
) -> Result<(Claim, Vec<u8>), ProveError> {
    let trace = trace::make(hasher, slots, depth);
    let nullifiers = trace.nullifiers.iter().map(digest::octets).collect();
    let claim = Claim { table: (root, depth), nullifiers, units: trace.units, context };
    let root = digest::parse(&root).ok_or(ProveError::Failed)?;
    let public = public_values(hasher, &claim, &root, &trace.nullifiers);
    let proof: StarkProof<Config> =
        p3_uni_stark::prove(&config(seed), &ClaimAir::new(depth), trace.rows, &public)
            .map_err(|_| ProveError::Failed)?;
    let octets = postcard::to_allocvec(&proof).map_err(|_| ProveError::Failed)?;
    Ok((claim, octets))
}

/// What the constraints and the challenges are bound to.
fn public_values(hasher: &Hasher, claim: &Claim, root: &Digest, nullifiers: &[Digest]) -> Vec<Element> {
    let mut values = root.to_vec();
    values.extend(digest::chain(hasher, nullifiers));
    values.extend([0, 16, 32].map(|bits| Element::from_u64(claim.units >> bits & 0xffff)));
    let context = claim.context.as_chunks::<2>().0;
    values.extend(context.iter().map(|octets| Element::from_u16(u16::from_be_bytes(*octets))));
    values
}

/// Verifies a claim. That no nullifier was claimed before is for the caller to know.
///
/// Errors: [`ClaimError`].
pub fn verify(claim: &Claim, proof: &[u8]) -> Result<(), ClaimError> {
    let slots = u16::try_from(claim.nullifiers.len()).ok().and_then(Slots::new).ok_or(ClaimError::Slots)?;
    let (root, depth) = claim.table;
    let root = digest::parse(&root).filter(|_| (1..=DEPTH_MAX).contains(&depth));
    let root = root.ok_or(ClaimError::Malformed)?;
    let nullifiers: Option<Vec<Digest>> = claim.nullifiers.iter().map(digest::parse).collect();
    let nullifiers = nullifiers.ok_or(ClaimError::Malformed)?;
    if claim.nullifiers.iter().collect::<BTreeSet<_>>().len() != claim.nullifiers.len() {
        return Err(ClaimError::Repeated);
    }
    if claim.units > UNITS_MAX {
        return Err(ClaimError::Overflow);
    }
    if proof.len() > PROOF_OCTETS_MAX {
        return Err(ClaimError::Proof);
    }
    let octets = proof;
    let proof: Proof = postcard::from_bytes(octets).map_err(|_| ClaimError::Proof)?;
    // A proof has one encoding, and nothing is left over.
    if postcard::to_allocvec(&proof).ok().as_deref() != Some(octets) {
        return Err(ClaimError::Proof);
    }
    // The degree is that of the rows with as many masks: another would be a claim of other slots.
    let rows = slots.get() * period(depth);
    if proof.degree_bits != rows.ilog2() as usize + 1 {
        return Err(ClaimError::Proof);
    }
    let public = public_values(&Hasher::new(), claim, &root, &nullifiers);
    p3_uni_stark::verify(&config(&[0; 32]), &ClaimAir::new(depth), &proof, &public)
        .map_err(|_| ClaimError::NotProven)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::air::CARRY_BITS;
    use crate::stark::{SECURITY_BITS, proven_bits};
    use crate::table::Row;

    const CONTEXT: [u8; 32] = [7; 32];

    fn secret(n: u8) -> ClaimSecret {
        ClaimSecret::new(&[n; 32])
    }

    fn slots() -> Slots {
        Slots::new(Slots::MIN).unwrap()
    }

    /// The sessions of two operators: those of secrets 0 to 4, and of 5 to 10.
    fn table() -> Table {
        table_of((0..11).map(|n| (secret(n), 1_000 + u32::from(n))))
    }

    fn table_of(sessions: impl Iterator<Item = (ClaimSecret, u32)>) -> Table {
        let mut rows: Vec<Row> =
            sessions.map(|(secret, units)| Row { nonce: digest::nonce(&secret), units }).collect();
        rows.sort();
        Table::new(rows).unwrap()
    }

    fn own() -> Vec<ClaimSecret> {
        (0..5).map(secret).collect()
    }

    /// The slot of a session, as an honest operator fills it.
    fn slot(table: &Table, secret: &ClaimSecret) -> ClaimSlot {
        let (at, row) = table.find(&digest::nonce(secret)).unwrap();
        let way = table.siblings(at).enumerate().map(|(level, other)| (at >> level & 1 == 1, other));
        ClaimSlot { secret: *secret.elements(), row: Some((row.units, way.collect())) }
    }

    /// What a prover gets that does not check its own slots. The free ones are of secrets from 100 on.
    fn forged(table: &Table, mut used: Vec<ClaimSlot>) -> Result<(), ClaimError> {
        let free = (100..).map(|n| ClaimSlot { secret: *secret(n).elements(), row: None });
        used.extend(free.take(slots().get() - used.len()));
        let of = (table.root(), table.depth());
        let (claim, proof) = prove_slots(&Hasher::new(), of, &used, CONTEXT, &[1; 32]).unwrap();
        verify(&claim, &proof)
    }

    #[test] // chapter 4.4.5: the sum of the operator's rows, and nothing else, is proved
    fn a_claim_is_proved_and_nothing_in_it_can_be_altered() {
        let (table, other) = (table(), table_of((0..11).map(|n| (secret(n), 1_001 + u32::from(n)))));
        let (claim, proof) = prove(&table, &own(), slots(), CONTEXT, &[1; 32]).unwrap();
        assert_eq!(claim.units, 5 * 1_000 + 10);
        assert_eq!(claim.nullifiers[..5], [0, 1, 2, 3, 4].map(|n| digest::nullifier(&secret(n))));
        assert_eq!(verify(&claim, &proof), Ok(()));
        let altered = |alter: &dyn Fn(&mut Claim)| {
            let mut altered = claim.clone();
            alter(&mut altered);
            verify(&altered, &proof)
        };
        let not_proven = Err(ClaimError::NotProven);
        assert_eq!(altered(&|c| c.table.0 = other.root()), not_proven, "another root");
        assert_eq!(altered(&|c| c.table.1 = 5), not_proven, "another depth");
        assert_eq!(altered(&|c| c.units += 1), not_proven, "inflated sum");
        assert_eq!(altered(&|c| c.units += 1 << 16), not_proven, "inflated in another limb");
        assert_eq!(altered(&|c| c.context[31] ^= 1), not_proven, "another operator's name");
        assert_eq!(altered(&|c| c.nullifiers[9] = digest::nullifier(&secret(200))), not_proven);
        assert_eq!(altered(&|c| c.nullifiers.swap(0, 1)), not_proven, "the order of the slots");
        // What is refused before the proof is looked at.
        assert_eq!(altered(&|c| c.nullifiers[9] = c.nullifiers[8]), Err(ClaimError::Repeated));
        assert_eq!(altered(&|c| c.units = UNITS_MAX + 1), Err(ClaimError::Overflow));
        assert_eq!(altered(&|c| c.nullifiers.truncate(31)), Err(ClaimError::Slots));
        assert_eq!(altered(&|c| c.nullifiers.extend_from_within(..)), Err(ClaimError::Repeated));
        assert_eq!(altered(&|c| c.nullifiers[9] = [0xff; 32]), Err(ClaimError::Malformed));
        assert_eq!(altered(&|c| c.table.0 = [0xff; 32]), Err(ClaimError::Malformed));
        assert_eq!(altered(&|c| c.table.1 = 0), Err(ClaimError::Malformed));
        assert_eq!(altered(&|c| c.table.1 = DEPTH_MAX + 1), Err(ClaimError::Malformed));
        for n in 11..43 {
            // Other nullifiers, as many as a claim of twice the slots has.
            assert!(!claim.nullifiers.contains(&digest::nullifier(&secret(n))));
        }
        let twice = altered(&|c| c.nullifiers.extend((11..43).map(|n| digest::nullifier(&secret(n)))));
        assert_eq!(twice, Err(ClaimError::Proof), "the proof is of fewer rows");
        malformed(&claim, &proof);
    }

    /// Octets that are no proof, or another.
    fn malformed(claim: &Claim, proof: &[u8]) {
        assert_eq!(verify(claim, &[]), Err(ClaimError::Proof));
        assert_eq!(verify(claim, &proof[..proof.len() - 1]), Err(ClaimError::Proof));
        assert_eq!(verify(claim, &[proof, &[0]].concat()), Err(ClaimError::Proof), "an octet is left over");
        assert_eq!(verify(claim, &vec![0; PROOF_OCTETS_MAX + 1]), Err(ClaimError::Proof));
        // The first length, or digit, of less than 128 in two octets in place of one: the same value.
        let at = proof.iter().position(|octet| *octet != 0 && *octet < 0x80).unwrap();
        let longer = [&proof[..at], &[proof[at] | 0x80, 0], &proof[at + 1..]].concat();
        assert_eq!(verify(claim, &longer), Err(ClaimError::Proof), "another encoding");
        assert!(verify(claim, &vec![0xff; 1_000]).is_err());
        for n in 0..64 {
            let mut altered = proof.to_vec();
            let at = n * 104_729 % proof.len();
            altered[at] ^= 1 << (n % 8);
            assert!(verify(claim, &altered).is_err(), "octet {at}");
            assert!(verify(claim, &proof[..at]).is_err(), "{at} octets");
        }
    }

    #[test] // chapter 4.4.5, "no mis-claims", "no over-claims"
    fn a_prover_that_does_not_follow_the_protocol_proves_nothing() {
        let table = table();
        let honest = slot(&table, &secret(1));
        let with = |change: &dyn Fn(&mut ClaimSlot)| {
            let mut slot = honest.clone();
            change(&mut slot);
            forged(&table, vec![slot])
        };
        let not_proven = Err(ClaimError::NotProven);
        assert_eq!(with(&|_| {}), Ok(()));
        assert_eq!(with(&|slot| slot.secret = *secret(50).elements()), not_proven, "a secret of no session");
        let foreign = slot(&table, &secret(9)).row;
        assert_eq!(with(&|slot| slot.row = foreign.clone()), not_proven, "the row of a foreign session");
        assert_eq!(with(&|slot| set_units(slot, 9_999)), not_proven, "inflated usage");
        assert_eq!(with(&|slot| flip_way(slot)), not_proven, "a wrong path");
        assert_eq!(
            forged(&table, vec![honest.clone(), honest]),
            Err(ClaimError::Repeated),
            "one session twice"
        );
    }

    fn set_units(slot: &mut ClaimSlot, units: u32) {
        slot.row = slot.row.take().map(|(_, way)| (units, way));
    }

    fn flip_way(slot: &mut ClaimSlot) {
        for (is_right, _) in slot.row.iter_mut().flat_map(|(_, way)| way.first_mut()) {
            *is_right = !*is_right;
        }
    }

    #[test]
    fn an_operator_claims_sessions_of_its_table_once() {
        let (table, mut twice, mut many) = (table(), own(), own());
        twice.push(secret(2));
        many.extend((0..28).map(secret));
        let error = |secrets: &[ClaimSecret]| prove(&table, secrets, slots(), CONTEXT, &[1; 32]).err();
        assert_eq!(error(&[secret(1), secret(50)]), Some(ProveError::NotInTable(1)));
        assert_eq!(error(&twice), Some(ProveError::Repeated(5)));
        assert_eq!(error(&many), Some(ProveError::TooMany));
    }

    #[test]
    fn the_highest_sum_does_not_wrap() {
        let sessions = || (0..Slots::MIN as u8).map(|n| (secret(n), u32::MAX));
        let secrets: Vec<_> = sessions().map(|(secret, _)| secret).collect();
        let (claim, proof) = prove(&table_of(sessions()), &secrets, slots(), CONTEXT, &[1; 32]).unwrap();
        assert_eq!(claim.units, u64::from(Slots::MIN) * u64::from(u32::MAX));
        assert_eq!(verify(&claim, &proof), Ok(()));
        // What the limbs of a claim of all slots come to stays below the modulus, and its carry in its bits.
        let limb = u64::from(Slots::MAX) * 0xffff;
        let carry = limb >> 16;
        assert!(limb + carry < 0x7f00_0001 && (limb + carry) >> 16 < 1 << CARRY_BITS);
    }

    #[test] // chapter 4.4.5, "session oblivious"
    fn two_proofs_of_a_claim_share_the_nullifiers_of_its_sessions_alone() {
        let table = table();
        let proved = |seed: u8| prove(&table, &own(), slots(), CONTEXT, &[seed; 32]).unwrap();
        let ((first, proof), (second, other)) = (proved(1), proved(2));
        assert_eq!(first.nullifiers[..5], second.nullifiers[..5]);
        assert!(first.nullifiers[5..].iter().all(|nullifier| !second.nullifiers.contains(nullifier)));
        let nonces: Vec<_> = table.rows().iter().map(|row| row.nonce).collect();
        assert!(first.nullifiers.iter().all(|nullifier| !nonces.contains(nullifier)));
        // Commitments, salts and masked values: nothing of 16 octets stands in both, but zeros where no work is asked for.
        let pieces: BTreeSet<&[u8]> = proof.windows(16).collect();
        let says = |piece: &[u8]| piece.iter().filter(|octet| **octet != 0).count() > 8;
        assert!(!other.windows(16).any(|piece| says(piece) && pieces.contains(piece)));
    }

    #[test]
    fn every_claim_has_120_proven_bits_of_soundness() {
        let sizes = [(1, Slots::MIN), (12, 64), (16, 256), (DEPTH_MAX, Slots::MAX)];
        for (depth, slots) in sizes {
            let bits = proven_bits(depth, usize::from(slots));
            assert!(bits >= SECURITY_BITS, "{bits} bits of {slots} slots at depth {depth}");
        }
    }
}
