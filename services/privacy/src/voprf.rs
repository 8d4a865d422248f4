//! Verifiable oblivious pseudorandom function of RFC 9497, suite ristretto255-SHA512, verifiable mode (§3.3.2, §4.1).
//!
//! The issuer evaluates a function under its key on an input that it does not see, and proves that the key is the one it has
//! published. Elements are parsed strictly: RFC 9496 §4.3.1 encodings only, the identity refused (RFC 9497 §2.1).
//!
//! Nothing here draws randomness: blinds come from the caller, and the proof's random scalar is derived from the key and the
//! statement, as RFC 6979 does for signatures. The vectors of RFC 9497 §A.1.2 are in `testdata/`.

use curve25519_dalek::constants::RISTRETTO_BASEPOINT_POINT;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{Identity, VartimeMultiscalarMul};
use sha2::{Digest, Sha512};
use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};
use zeroize::{Zeroize, Zeroizing};

/// contextString of RFC 9497 §3.1: version, verifiable mode, suite.
const CONTEXT: &[u8] = b"OPRFV1-\x01-ristretto255-SHA512";

/// Octets of an encoded element.
pub const ELEMENT_OCTETS: usize = 32;

/// Octets of the function's output (Nh of the suite).
pub const OUTPUT_OCTETS: usize = 64;

/// expand_message_xmd of RFC 9380 §5.3.1 with SHA-512, for 64 octets: one digest.
fn expand(message: &[&[u8]], tag: &[u8]) -> Zeroizing<[u8; 64]> {
    /// The input block size of SHA-512.
    const BLOCK: [u8; 128] = [0; 128];
    let tag_len = [u8::try_from(tag.len() + CONTEXT.len()).expect("every tag is shorter than 64 octets")];
    let domain = |hash: &mut Sha512| [tag, CONTEXT, &tag_len].into_iter().for_each(|part| hash.update(part));
    let mut first = Sha512::new();
    first.update(BLOCK);
    message.iter().for_each(|part| first.update(part));
    first.update([0, 64, 0]);
    domain(&mut first);
    let mut second = Sha512::new();
    second.update(first.finalize());
    second.update([1]);
    domain(&mut second);
    Zeroizing::new(second.finalize().into())
}

fn hash_to_scalar(message: &[&[u8]]) -> Scalar {
    Scalar::from_bytes_mod_order_wide(&expand(message, b"HashToScalar-"))
}

/// HashToGroup. An input whose element is the identity, which cannot be found, has none.
fn hash_to_group(input: &[u8]) -> Option<RistrettoPoint> {
    let point = RistrettoPoint::from_uniform_bytes(&expand(&[input], b"HashToGroup-"));
    (point != RistrettoPoint::identity()).then_some(point)
}

/// An element of the group that is not the identity, and its one encoding.
#[derive(Clone, Copy)]
pub struct Element {
    point: RistrettoPoint,
    octets: [u8; ELEMENT_OCTETS],
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.octets == other.octets
    }
}

impl Eq for Element {}

impl core::fmt::Debug for Element {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Element({:02x}{:02x}…)", self.octets[0], self.octets[1])
    }
}

impl Element {
    fn of(point: RistrettoPoint) -> Option<Self> {
        let octets = point.compress().to_bytes();
        (point != RistrettoPoint::identity()).then_some(Self { point, octets })
    }

    /// `None` for octets that are no canonical encoding, and for the identity.
    pub fn from_octets(octets: [u8; ELEMENT_OCTETS]) -> Option<Self> {
        let point = CompressedRistretto(octets).decompress()?;
        (point != RistrettoPoint::identity()).then_some(Self { point, octets })
    }

    /// The encoding of the element.
    pub const fn octets(&self) -> &[u8; ELEMENT_OCTETS] {
        &self.octets
    }

    pub(crate) fn read(r: &mut Reader<'_>, ie: &'static str) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, ie);
        Self::from_octets(r.array(ie)?).ok_or(invalid)
    }
}

/// What an input is blinded with: secret, and used for one input.
#[derive(Clone, Zeroize)]
pub struct Blind(Scalar);

impl Blind {
    /// From 64 random octets. `None` for those that give zero.
    pub fn new(octets: &[u8; 64]) -> Option<Self> {
        Self::of(Scalar::from_bytes_mod_order_wide(octets))
    }

    fn of(scalar: Scalar) -> Option<Self> {
        (scalar != Scalar::ZERO).then_some(Self(scalar))
    }

    /// Blind of RFC 9497 §3.3.2. `None` for an input that has no element.
    pub fn blind(&self, input: &[u8]) -> Option<Element> {
        Element::of(hash_to_group(input)? * self.0)
    }
}

impl core::fmt::Debug for Blind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Blind(…)")
    }
}

/// The output of the function on one input: a secret of the client and the issuer.
#[derive(Clone, Zeroize, zeroize::ZeroizeOnDrop)]
pub struct Output([u8; OUTPUT_OCTETS]);

impl Output {
    /// From its octets.
    pub const fn new(octets: [u8; OUTPUT_OCTETS]) -> Self {
        Self(octets)
    }

    /// Its octets: secret.
    pub const fn octets(&self) -> &[u8; OUTPUT_OCTETS] {
        &self.0
    }
}

impl PartialEq for Output {
    fn eq(&self, other: &Self) -> bool {
        bool::from(subtle::ConstantTimeEq::ct_eq(&self.0[..], &other.0[..]))
    }
}

impl Eq for Output {}

impl core::fmt::Debug for Output {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Output(…)")
    }
}

/// The last step of Finalize.
fn finalize(input: &[u8], element: &[u8; ELEMENT_OCTETS]) -> Output {
    let len = u16::try_from(input.len()).expect("inputs are of tens of octets");
    let mut hash = Sha512::new();
    hash.update(len.to_be_bytes());
    hash.update(input);
    hash.update((ELEMENT_OCTETS as u16).to_be_bytes());
    hash.update(element);
    hash.update(b"Finalize");
    Output(hash.finalize().into())
}

/// Proof that a batch was evaluated under the key of a public key: DLEQ of RFC 9497 §2.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    c: Scalar,
    s: Scalar,
}

impl Proof {
    /// Octets of a proof.
    pub const OCTETS: usize = 64;

    /// `None` for scalars that are not reduced.
    pub fn from_octets(octets: &[u8; Self::OCTETS]) -> Option<Self> {
        let scalar = |half: &[u8]| Scalar::from_canonical_bytes(half.try_into().ok()?).into_option();
        Some(Self { c: scalar(&octets[..32])?, s: scalar(&octets[32..])? })
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> [u8; Self::OCTETS] {
        let mut out = [0; Self::OCTETS];
        out[..32].copy_from_slice(self.c.as_bytes());
        out[32..].copy_from_slice(self.s.as_bytes());
        out
    }

    pub(crate) fn read(r: &mut Reader<'_>, ie: &'static str) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, ie);
        Self::from_octets(&r.array(ie)?).ok_or(invalid)
    }

    /// The challenge of a statement and its two commitments.
    fn challenge(key: &Element, m: &RistrettoPoint, z: &RistrettoPoint, t: [RistrettoPoint; 2]) -> Scalar {
        const LEN: &[u8] = &(ELEMENT_OCTETS as u16).to_be_bytes();
        let [m, z, t2, t3] = [*m, *z, t[0], t[1]].map(|point| point.compress().to_bytes());
        let parts = [LEN, &key.octets, LEN, &m, LEN, &z, LEN, &t2, LEN, &t3, b"Challenge"];
        hash_to_scalar(&parts)
    }

    /// The weights of ComputeComposites, one for each pair. All of it is public.
    fn weights(key: &Element, pairs: impl Iterator<Item = ([u8; 32], [u8; 32])>) -> Vec<Scalar> {
        const LEN: &[u8] = &(ELEMENT_OCTETS as u16).to_be_bytes();
        let tag = [b"Seed-", CONTEXT].concat();
        let mut seed = Sha512::new();
        seed.update(LEN);
        seed.update(key.octets);
        seed.update((tag.len() as u16).to_be_bytes());
        seed.update(&tag);
        let seed = seed.finalize();
        let weight = |(i, (c, d)): (u16, ([u8; 32], [u8; 32]))| {
            hash_to_scalar(&[&[0, 64], &seed, &i.to_be_bytes(), LEN, &c, LEN, &d, b"Composite"])
        };
        (0..=u16::MAX).zip(pairs).map(weight).collect()
    }
}

/// The issuer's key pair of an epoch.
#[derive(Clone)]
pub struct IssuerKey {
    secret: Scalar,
    /// Half of the secret: the library encodes twice a batch's points at once.
    half: Scalar,
    public: Element,
}

impl Drop for IssuerKey {
    fn drop(&mut self) {
        self.secret.zeroize();
        self.half.zeroize();
    }
}

impl core::fmt::Debug for IssuerKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "IssuerKey({:?})", self.public)
    }
}

impl IssuerKey {
    /// DeriveKeyPair of RFC 9497 §3.2.1. `None` for a seed that gives no key; none can be found.
    pub fn derive(seed: &[u8; 32], info: &[u8]) -> Option<Self> {
        let len = u16::try_from(info.len()).ok()?.to_be_bytes();
        (0..=u8::MAX).find_map(|counter| {
            let octets = expand(&[seed, &len, info, &[counter]], b"DeriveKeyPair");
            let secret = Scalar::from_bytes_mod_order_wide(&octets);
            let public = Element::of(RistrettoPoint::mul_base(&secret))?;
            let half = secret * Scalar::from(2u8).invert();
            Some(Self { secret, half, public })
        })
    }

    /// The public key.
    pub const fn public(&self) -> &Element {
        &self.public
    }

    /// BlindEvaluate of RFC 9497 §3.3.2 over a batch of at most 65,535 elements, and its proof.
    pub fn evaluate_blinded(&self, blinded: &[Element]) -> (Vec<[u8; ELEMENT_OCTETS]>, Proof) {
        let halves: Vec<_> = blinded.iter().map(|c| c.point * self.half).collect();
        let evaluated: Vec<_> =
            RistrettoPoint::double_and_compress_batch(&halves).into_iter().map(|d| d.to_bytes()).collect();
        let proof = self.prove(blinded, &evaluated, None);
        (evaluated, proof)
    }

    /// GenerateProof; the random scalar is given only to repeat a vector.
    fn prove(
        &self,
        blinded: &[Element],
        evaluated: &[[u8; ELEMENT_OCTETS]],
        random: Option<Scalar>,
    ) -> Proof {
        let pairs = blinded.iter().map(|c| c.octets).zip(evaluated.iter().copied());
        let weights = Proof::weights(&self.public, pairs);
        // Weights and blinded elements are known to both sides.
        let m = RistrettoPoint::vartime_multiscalar_mul(&weights, blinded.iter().map(|c| c.point));
        let z = m * self.secret;
        let random = random.unwrap_or_else(|| {
            let (m, z) = (m.compress().to_bytes(), z.compress().to_bytes());
            let octets = expand(&[b"proof", self.secret.as_bytes(), &m, &z], b"VEIL-v1-Nonce-");
            Scalar::from_bytes_mod_order_wide(&octets)
        });
        let t = [RistrettoPoint::mul_base(&random), m * random];
        let c = Proof::challenge(&self.public, &m, &z, t);
        Proof { c, s: random - c * self.secret }
    }

    /// Evaluate of RFC 9497 §3.3.2: the output for an input that is known. `None` for an input that has no element.
    pub fn evaluate(&self, input: &[u8]) -> Option<Output> {
        let element = hash_to_group(input)? * self.secret;
        Some(finalize(input, &element.compress().to_bytes()))
    }

    /// As [`IssuerKey::evaluate`], for many.
    pub fn evaluate_all<'a>(&self, inputs: impl Iterator<Item = &'a [u8]>) -> Vec<Option<Output>> {
        let inputs: Vec<_> = inputs.collect();
        let point = |input: &&[u8]| hash_to_group(input).map(|element| element * self.half);
        let halves: Vec<_> = inputs.iter().map(point).collect();
        let known = halves.iter().map(|half| half.unwrap_or(RistrettoPoint::identity()));
        let encoded = RistrettoPoint::double_and_compress_batch(&known.collect::<Vec<_>>());
        let output = |((input, half), element): ((&&[u8], &Option<RistrettoPoint>), CompressedRistretto)| {
            half.map(|_| finalize(input, &element.to_bytes()))
        };
        inputs.iter().zip(&halves).zip(encoded).map(output).collect()
    }
}

/// Finalize of RFC 9497 §3.3.2 over a batch: verifies the proof and takes the blinds off. `None` if the batch was not evaluated
/// under the key of `public`, or is of another length.
pub fn finalize_batch(
    public: &Element,
    inputs: &[impl AsRef<[u8]>],
    blinds: &[Blind],
    blinded: &[Element],
    evaluated: &[Element],
    proof: &Proof,
) -> Option<Vec<Output>> {
    let n = inputs.len();
    let same = [blinds.len(), blinded.len(), evaluated.len()].into_iter().all(|len| len == n);
    if !same || n > usize::from(u16::MAX) || !verify(public, blinded, evaluated, proof) {
        return None;
    }
    // One inversion for the whole batch.
    let mut inverted: Vec<_> = blinds.iter().map(|blind| blind.0).collect();
    Scalar::invert_batch_alloc(&mut inverted);
    let output = |((input, d), inverse): ((&_, &Element), &Scalar)| {
        let input: &[u8] = AsRef::<[u8]>::as_ref(input);
        finalize(input, &(d.point * inverse).compress().to_bytes())
    };
    let outputs = inputs.iter().zip(evaluated).zip(&inverted).map(output).collect();
    inverted.zeroize();
    Some(outputs)
}

/// VerifyProof of RFC 9497 §2.2.2.
fn verify(public: &Element, blinded: &[Element], evaluated: &[Element], proof: &Proof) -> bool {
    let pairs = blinded.iter().map(|c| c.octets).zip(evaluated.iter().map(|d| d.octets));
    let weights = Proof::weights(public, pairs);
    let sum = |of: &[Element]| RistrettoPoint::vartime_multiscalar_mul(&weights, of.iter().map(|e| e.point));
    let (m, z) = (sum(blinded), sum(evaluated));
    let t2 = RistrettoPoint::vartime_multiscalar_mul(
        [proof.s, proof.c],
        [RISTRETTO_BASEPOINT_POINT, public.point],
    );
    let t3 = RistrettoPoint::vartime_multiscalar_mul([proof.s, proof.c], [m, z]);
    Proof::challenge(public, &m, &z, [t2, t3]) == proof.c
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn scalar(hex: &str) -> Scalar {
        Scalar::from_canonical_bytes(octets(hex).try_into().unwrap()).unwrap()
    }

    #[test] // RFC 9497 §A.1.2: key, blinded and evaluated elements, proofs and outputs are those of the vectors
    fn the_vectors_of_rfc_9497_are_repeated() {
        let text = include_str!("../testdata/rfc9497.txt");
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut key = None;
        let mut vector = std::collections::BTreeMap::new();
        let mut judged = 0;
        for (name, value) in lines.map(|line| line.split_once(" = ").unwrap()) {
            vector.insert(name, value.split(',').collect::<Vec<_>>());
            if name == "pkSm" {
                let seed = octets(vector["Seed"][0]).try_into().unwrap();
                let derived = IssuerKey::derive(&seed, &octets(vector["KeyInfo"][0])).unwrap();
                assert_eq!(derived.secret.as_bytes()[..], octets(vector["skSm"][0]));
                assert_eq!(derived.public.octets[..], octets(value));
                key = Some(derived);
            }
            if name != "Output" {
                continue;
            }
            let key = key.as_ref().unwrap();
            let inputs: Vec<_> = vector["Input"].iter().map(|hex| octets(hex)).collect();
            let blinds: Vec<_> = vector["Blind"].iter().map(|hex| Blind::of(scalar(hex)).unwrap()).collect();
            let blinded: Vec<_> =
                blinds.iter().zip(&inputs).map(|(blind, input)| blind.blind(input).unwrap()).collect();
            for (element, hex) in blinded.iter().zip(&vector["BlindedElement"]) {
                assert_eq!(element.octets[..], octets(hex));
            }
            let (evaluated, own) = key.evaluate_blinded(&blinded);
            for (element, hex) in evaluated.iter().zip(&vector["EvaluationElement"]) {
                assert_eq!(element[..], octets(hex));
            }
            let proof = key.prove(&blinded, &evaluated, Some(scalar(vector["ProofRandomScalar"][0])));
            assert_eq!(proof.to_octets()[..], octets(vector["Proof"][0]));
            let elements: Vec<_> = evaluated.iter().map(|d| Element::from_octets(*d).unwrap()).collect();
            for proof in [proof, own] {
                let outputs =
                    finalize_batch(&key.public, &inputs, &blinds, &blinded, &elements, &proof).unwrap();
                for ((output, input), hex) in outputs.iter().zip(&inputs).zip(&vector["Output"]) {
                    assert_eq!(output.octets()[..], octets(hex));
                    assert_eq!(key.evaluate(input).as_ref(), Some(output));
                    judged += 1;
                }
            }
            let all = key.evaluate_all(inputs.iter().map(|input| &input[..]));
            assert!(all.iter().zip(&inputs).all(|(one, input)| *one == key.evaluate(input)));
        }
        assert_eq!(judged, 8);
    }

    #[test] // RFC 9497 §2.1: DeserializeElement refuses the identity and what is not canonical
    fn degenerate_elements_are_refused() {
        let mut not_reduced = [0xff; 32];
        not_reduced[31] = 0x7f;
        let mut negative = RISTRETTO_BASEPOINT_POINT.compress().to_bytes();
        negative[0] ^= 1;
        for bad in [[0; 32], [0xff; 32], not_reduced, negative] {
            assert!(Element::from_octets(bad).is_none(), "{bad:02x?}");
        }
        assert!(Element::from_octets(RISTRETTO_BASEPOINT_POINT.compress().to_bytes()).is_some());
        assert!(Blind::new(&[0; 64]).is_none());
        assert!(Proof::from_octets(&[0xff; 64]).is_none());
    }

    #[test]
    fn a_proof_holds_for_its_key_and_its_batch_alone() {
        let [key, other] = [1, 2].map(|n| IssuerKey::derive(&[n; 32], b"").unwrap());
        let inputs = [[1u8; 32], [2; 32]];
        let blinds = [3, 4].map(|n| Blind::new(&[n; 64]).unwrap());
        let blinded = [0, 1].map(|i| blinds[i].blind(&inputs[i]).unwrap());
        let (evaluated, proof) = key.evaluate_blinded(&blinded);
        let evaluated: Vec<_> = evaluated.iter().map(|d| Element::from_octets(*d).unwrap()).collect();
        let done = |public: &Element, blinded: &[Element], evaluated: &[Element], proof: &Proof| {
            finalize_batch(public, &inputs, &blinds, blinded, evaluated, proof).is_some()
        };
        assert!(done(key.public(), &blinded, &evaluated, &proof));
        assert!(!done(other.public(), &blinded, &evaluated, &proof));
        let swapped = [evaluated[1], evaluated[0]];
        assert!(!done(key.public(), &blinded, &swapped, &proof));
        assert!(!done(key.public(), &blinded, &evaluated[..1], &proof));
        // One element of the batch under a marked key, the others under the published one.
        let (marked, _) = other.evaluate_blinded(&blinded);
        let mixed = [evaluated[0], Element::from_octets(marked[1]).unwrap()];
        assert!(!done(key.public(), &blinded, &mixed, &proof));
        let altered = Proof { c: proof.c + Scalar::ONE, ..proof };
        assert!(!done(key.public(), &blinded, &evaluated, &altered));
    }
}
