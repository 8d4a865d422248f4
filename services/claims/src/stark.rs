//! The proof system: a STARK with hiding FRI over KoalaBear and its extension of degree five, SHA-256 for commitments and challenges. No
//! set-up, and nothing to trust but the hashes.
//!
//! Soundness: [`proven_bits`] computes the bits that are proven for the parameters, at least [`SECURITY_BITS`] for every claim.

use p3_challenger::{HashChallenger, SerializingChallenger32};
use p3_commit::ExtensionMmcs;
use p3_dft::Radix2DFTSmallBatch;
use p3_field::PrimeCharacteristicRing;
use p3_field::coset::TwoAdicMultiplicativeCoset;
use p3_field::extension::QuinticTrinomialExtensionField;
use p3_fri::{FriParameters, HidingFriPcs};
use p3_merkle_tree::MerkleTreeHidingMmcs;
use p3_symmetric::{CompressionFunctionFromHasher, CryptographicHasher, SerializingHasher};
use p3_uni_stark::{AirLayout, OpeningShape, ProvenSecurity, StarkConfig, StarkSecurityParams};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sha2::{Digest as _, Sha256};

use crate::air::{ClaimAir, period};
use crate::digest::Element;

/// What a proof must withstand: a claim above what is due takes 2^120 work.
pub const SECURITY_BITS: usize = 120;

/// The longest proof. One of 1,024 slots and a million rows has about 500,000 octets.
pub const PROOF_OCTETS_MAX: usize = 1 << 20;

/// Logarithm of the blow-up: a rate of 1/4.
const LOG_BLOWUP: usize = 2;
const QUERIES: usize = 128;
const MAX_LOG_ARITY: usize = 3;
/// Work of the prover before the openings are batched, and before the queries are drawn.
const BATCH_WORK_BITS: usize = 16;
const QUERY_WORK_BITS: usize = 16;
/// Masks of a batched opening: at least the degree of the extension.
const RANDOM_CODEWORDS: usize = 5;
/// Elements of the salt of a leaf: 124 bits.
const SALT: usize = 4;

/// Bits of an element of the extension, and of work to find a collision of SHA-256.
const EXTENSION_BITS: usize = 154;
const HASH_COLLISION_BITS: usize = 128;

/// The fewest rows of a trace: the masks must be more than what the queries and two openings disclose
/// (Section 4.2 of <https://eprint.iacr.org/2024/1037>).
pub(crate) const HEIGHT_MIN: usize = (2 * (QUERIES + 2 * RANDOM_CODEWORDS)).next_power_of_two();

pub(crate) type Extension = QuinticTrinomialExtensionField<Element>;
type LeafHash = SerializingHasher<Sha>;
type NodeHash = CompressionFunctionFromHasher<Sha, 2, 32>;
type Commitments = MerkleTreeHidingMmcs<Element, u8, LeafHash, NodeHash, StdRng, 2, 32, SALT>;
type FriCommitments = ExtensionMmcs<Element, Extension, Commitments>;
type Openings = HidingFriPcs<Element, Radix2DFTSmallBatch<Element>, Commitments, FriCommitments, StdRng>;
type Challenger = SerializingChallenger32<Element, HashChallenger<u8, Sha, 32>>;
pub(crate) type Config = StarkConfig<Openings, Extension, Challenger>;
pub(crate) type Proof = p3_uni_stark::Proof<Config>;

/// SHA-256 as the hash of the proof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sha;

impl CryptographicHasher<u8, [u8; 32]> for Sha {
    /// Any number above one: the tree then hands over rows as slices, which are hashed faster than octet by octet.
    const LANES: usize = 4;

    fn hash_iter<I: IntoIterator<Item = u8>>(&self, input: I) -> [u8; 32] {
        let (mut sha, mut block, mut filled) = (Sha256::new(), [0; 512], 0);
        for octet in input {
            block[filled] = octet;
            filled += 1;
            if filled == block.len() {
                sha.update(block);
                filled = 0;
            }
        }
        sha.update(&block[..filled]);
        sha.finalize().into()
    }

    fn hash_iter_slices<'a, I: IntoIterator<Item = &'a [u8]>>(&self, input: I) -> [u8; 32] {
        let mut sha = Sha256::new();
        input.into_iter().for_each(|slice| sha.update(slice));
        sha.finalize().into()
    }
}

/// A generator for one use, from the seed of a proof.
pub(crate) fn generator(seed: &[u8; 32], what: &[u8]) -> StdRng {
    StdRng::from_seed(
        Sha256::new().chain_update(b"claims v1 ").chain_update(what).chain_update(seed).finalize().into(),
    )
}

fn fri<M>(mmcs: M) -> FriParameters<M> {
    FriParameters {
        log_blowup: LOG_BLOWUP,
        log_final_poly_len: 0,
        max_log_arity: MAX_LOG_ARITY,
        num_queries: QUERIES,
        batch_proof_of_work_bits: BATCH_WORK_BITS,
        commit_proof_of_work_bits: 0,
        query_proof_of_work_bits: QUERY_WORK_BITS,
        mmcs,
    }
}

/// The system with the randomness of one proof. A verifier draws none, whatever the seed.
pub(crate) fn config(seed: &[u8; 32]) -> Config {
    let commitments =
        |what: &[u8]| Commitments::new(LeafHash::new(Sha), NodeHash::new(Sha), 0, generator(seed, what));
    let fri = fri(FriCommitments::new(commitments(b"folding")));
    let masks = generator(seed, b"masks");
    let openings =
        Openings::new(Radix2DFTSmallBatch::default(), commitments(b"trace"), fri, RANDOM_CODEWORDS, masks);
    Config::new(openings, Challenger::from_hasher(b"whimbrel claims v1".to_vec(), Sha))
}

/// The proven bits of soundness of a claim of so many slots in a table of this depth.
pub fn proven_bits(depth: u8, slots: usize) -> usize {
    let (air, fri) = (ClaimAir::new(depth), fri(()));
    let log_height = (slots * period(depth)).ilog2() as usize;
    let domain = TwoAdicMultiplicativeCoset::new(Element::ONE, log_height);
    domain.map_or(0, |domain| {
        let params = StarkSecurityParams::from_air::<Element, Extension, _>(
            fri.security_regime(),
            &air,
            AirLayout::from_air::<Element>(&air),
            domain,
            EXTENSION_BITS,
            HASH_COLLISION_BITS,
            2,
            OpeningShape::hiding(RANDOM_CODEWORDS),
            fri.grinding_sites(),
        );
        let proven = ProvenSecurity::compute(&params, 1 << (log_height + 1));
        proven.unique_decoding_bits.max(proven.list_decoding_bits)
    })
}
