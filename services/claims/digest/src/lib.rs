//! Secrets of claimed sessions, and the hashes of a claim: Poseidon2 of width 16 over KoalaBear with its input added, cut to half of its
//! width. Eight elements of the field are a digest.
//!
//! A secret has two images that no one else can connect: its nonce stands in the usage report and in the table, its nullifier in the
//! claim. They come from two permutations, so that no output is published together with the rest of it.
//!
//! A crate of its own, so that a core, which reports, does not link the proof system of `whimbrel-claims`, which settles.
#![forbid(unsafe_code)]

use p3_field::{PrimeCharacteristicRing, PrimeField32};
use p3_koala_bear::{KoalaBear, Poseidon2KoalaBear, default_koalabear_poseidon2_16};
use p3_symmetric::Permutation;

/// An element of the field.
pub type Element = KoalaBear;
/// A digest as elements.
pub type Digest = [Element; 8];
/// The input of a hash: two digests, or one with its tag.
pub type DigestState = [Element; 16];

/// A digest as octets: eight elements of four octets each, big-endian, each below the modulus 2^31 - 2^24 + 1.
pub type DigestOctets = [u8; 32];

/// What stands behind the elements that are hashed, so that no image of one kind is one of another.
#[derive(Clone, Copy, Debug)]
pub enum Tag {
    /// Behind a secret, for its nullifier.
    Nullifier = 1,
    /// Behind a secret, for its nonce.
    Nonce = 2,
    /// Behind a row of the table.
    Leaf = 3,
}

/// The place of the tag in a state.
pub const TAG_AT: usize = 15;

/// What an operator keeps of a session to claim it. Secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClaimSecret(Digest);

impl core::fmt::Debug for ClaimSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ClaimSecret(…)")
    }
}

impl ClaimSecret {
    /// From 32 random octets. Each word is reduced, so that any octets are a secret.
    pub fn new(octets: &[u8; 32]) -> Self {
        Self(words(octets).map(|word| Element::from_u32(word % Element::ORDER_U32)))
    }

    /// The secret itself, for the proof.
    pub const fn elements(&self) -> &Digest {
        &self.0
    }
}

fn words(octets: &DigestOctets) -> [u32; 8] {
    let mut words = [0; 8];
    for (word, octets) in words.iter_mut().zip(octets.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*octets);
    }
    words
}

/// The digest that octets are, unless a word of them is no element.
pub fn parse(octets: &DigestOctets) -> Option<Digest> {
    let words = words(octets);
    words.iter().all(|word| *word < Element::ORDER_U32).then(|| words.map(Element::from_u32))
}

/// The octets of a digest.
pub fn octets(digest: &Digest) -> DigestOctets {
    let mut octets = [0; 32];
    for (octets, element) in octets.as_chunks_mut::<4>().0.iter_mut().zip(digest) {
        *octets = element.as_canonical_u32().to_be_bytes();
    }
    octets
}

/// The hash functions; the permutation's constants are made once.
#[derive(Clone, Debug)]
pub struct Hasher(Poseidon2KoalaBear<16>);

impl Hasher {
    /// With the constants of the permutation.
    #[allow(clippy::new_without_default)] // the constants are no neutral value
    pub fn new() -> Self {
        Self(default_koalabear_poseidon2_16())
    }

    /// The digest of a state.
    pub fn digest(&self, state: &DigestState) -> Digest {
        let out = self.0.permute(*state);
        core::array::from_fn(|n| out[n] + state[n])
    }
}

/// A digest alone, with its tag.
pub fn tagged(digest: &Digest, tag: Tag) -> DigestState {
    let mut state = [Element::ZERO; 16];
    state[..8].copy_from_slice(digest);
    state[TAG_AT] = Element::from_u32(tag as u32);
    state
}

/// A row of the table: nonce, and units in two limbs of 16 bits, the lower one first.
pub fn leaf(nonce: &Digest, units: u32) -> DigestState {
    let mut state = tagged(nonce, Tag::Leaf);
    [state[8], state[9]] = limbs(units);
    state
}

/// Units as the table has them: two limbs of 16 bits, the lower one first.
pub fn limbs(units: u32) -> [Element; 2] {
    [units & 0xffff, units >> 16].map(Element::from_u32)
}

/// Two digests beside each other: nodes of the tree, and the chain of nullifiers.
pub fn pair(left: &Digest, right: &Digest) -> DigestState {
    core::array::from_fn(|n| if n < 8 { left[n] } else { right[n - 8] })
}

/// The nonce of a session's usage report.
pub fn nonce(secret: &ClaimSecret) -> DigestOctets {
    octets(&Hasher::new().digest(&tagged(&secret.0, Tag::Nonce)))
}

/// What a claim of the session shows, so that no second one can be made.
pub fn nullifier(secret: &ClaimSecret) -> DigestOctets {
    octets(&Hasher::new().digest(&tagged(&secret.0, Tag::Nullifier)))
}

/// The digest of a claim's nullifiers in their order.
pub fn chain(hasher: &Hasher, nullifiers: &[Digest]) -> Digest {
    nullifiers.iter().fold([Element::ZERO; 8], |chain, nullifier| hasher.digest(&pair(nullifier, &chain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_above_the_modulus_are_no_digest() {
        let mut at_modulus = [0; 32];
        at_modulus[28..].copy_from_slice(&Element::ORDER_U32.to_be_bytes());
        assert!(parse(&at_modulus).is_none());
        at_modulus[31] -= 1;
        at_modulus[28..].copy_from_slice(&(Element::ORDER_U32 - 1).to_be_bytes());
        assert_eq!(octets(&parse(&at_modulus).unwrap()), at_modulus);
        assert!(parse(&[0xff; 32]).is_none());
    }

    #[test]
    fn nonce_and_nullifier_of_a_secret_differ_and_are_canonical() {
        let secret = ClaimSecret::new(&[0xff; 32]);
        assert_ne!(nonce(&secret), nullifier(&secret));
        assert!(parse(&nonce(&secret)).is_some() && parse(&nullifier(&secret)).is_some());
        assert_ne!(nonce(&secret), nonce(&ClaimSecret::new(&[0xfe; 32])));
        assert_eq!(format!("{secret:?}"), "ClaimSecret(…)");
    }
}
