//! What the parties compute with: signatures with a domain, HPKE (RFC 9180) and the keys of an attach. Ephemeral X25519 keys, seeds
//! and K_SEAF are those of the crate `open`.
//!
//! The suite is fixed for version 1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM; Ed25519 (RFC 8032) with strict
//! verification; SHA-256.

use aes_gcm::Aes128Gcm;
use aes_gcm::aead::{AeadInOut, KeyInit};
use ed25519_dalek::Signer;
use hkdf::Hkdf;
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{Deserializable, OpModeR, OpModeS, Serializable};
use sha2::{Digest, Sha256};
use whimbrel_ids::PlmnId;
use whimbrel_open::crypto::{KSeaf, PrivateKey, Seed, Share, SharedSecret, Signature, k_seaf};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// SHA-256 of parts, one after the other.
pub fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// HKDF-SHA256 of `ikm` with `info` in parts.
pub(crate) fn derive<const N: usize>(ikm: &[u8], info: &[&[u8]]) -> Zeroizing<[u8; N]> {
    let mut out = Zeroizing::new([0; N]);
    let prk = Hkdf::<Sha256>::new(None, ikm);
    prk.expand_multi_info(info, &mut out[..]).expect("fewer octets than 255 digests");
    out
}

/// `N` octets of a seed, for the use that `label` names.
pub(crate) fn draw<const N: usize>(seed: &Seed, label: &str) -> Zeroizing<[u8; N]> {
    derive(seed.octets(), &[b"VEIL-v1 seed ", label.as_bytes()])
}

/// Whether two strings are equal, in constant time.
pub(crate) fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    bool::from(subtle::ConstantTimeEq::ct_eq(&a[..], &b[..]))
}

/// What a signature is over. The name stands before the signed octets, so that one kind never passes for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// O asks for tokens, under its name.
    TokenRequest,
    /// B's statement on its log of issuing keys.
    TreeHead,
    /// A witness's statement on the same.
    Cosignature,
    /// U's request.
    UserRequest,
    /// A request under the key of a token.
    OperatorRequest,
    /// B's grant.
    Grant,
    /// B's refusal.
    Refusal,
    /// What a session has used, under the key of a token.
    UsageReport,
    /// B's statement on the table of a settlement period.
    PeriodHead,
    /// A witness's statement on the same.
    PeriodCosignature,
    /// O claims, under its name.
    Claim,
    /// B pays a claim.
    Payment,
}

impl Signed {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::TokenRequest => b"VEIL-v1 token request\0",
            Self::TreeHead => b"VEIL-v1 tree head\0",
            Self::Cosignature => b"VEIL-v1 cosignature\0",
            Self::UserRequest => b"VEIL-v1 user request\0",
            Self::OperatorRequest => b"VEIL-v1 operator request\0",
            Self::Grant => b"VEIL-v1 grant\0",
            Self::Refusal => b"VEIL-v1 refusal\0",
            Self::UsageReport => b"VEIL-v1 usage report\0",
            Self::PeriodHead => b"VEIL-v1 period head\0",
            Self::PeriodCosignature => b"VEIL-v1 period cosignature\0",
            Self::Claim => b"VEIL-v1 claim\0",
            Self::Payment => b"VEIL-v1 payment\0",
        }
    }
}

/// An Ed25519 private key.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

/// An Ed25519 public key, in octets that name a point of the curve.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VerifyingKey(ed25519_dalek::VerifyingKey);

impl SigningKey {
    /// Every 32 octets are a key.
    pub fn new(octets: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(octets))
    }

    /// The public half.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey(self.0.verifying_key())
    }

    /// Signs `octets` as what `kind` says they are.
    pub fn sign(&self, kind: Signed, octets: &[u8]) -> Signature {
        Signature(self.0.sign(&[kind.label(), octets].concat()).to_bytes())
    }
}

impl core::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

impl VerifyingKey {
    /// `None` if the octets name no point, or one of small order, under which anything verifies.
    pub fn from_octets(octets: [u8; 32]) -> Option<Self> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(&octets).ok()?;
        (!key.is_weak()).then_some(Self(key))
    }

    /// The octets.
    pub fn octets(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Whether the key's owner signed `octets` as `kind`.
    pub fn verifies(&self, kind: Signed, octets: &[u8], signature: &Signature) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        self.0.verify_strict(&[kind.label(), octets].concat(), &signature).is_ok()
    }
}

impl core::fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let octets = self.octets();
        write!(f, "VerifyingKey({:02x}{:02x}…)", octets[0], octets[1])
    }
}

type SuiteAead = hpke::aead::AesGcm128;
type SuiteKdf = hpke::kdf::HkdfSha256;
type SuiteKem = hpke::kem::X25519HkdfSha256;
type KemPublic = <SuiteKem as hpke::Kem>::PublicKey;
type KemPrivate = <SuiteKem as hpke::Kem>::PrivateKey;
type KemEncapped = <SuiteKem as hpke::Kem>::EncappedKey;

/// Octets that AES-128-GCM adds.
pub(crate) const TAG_OCTETS: usize = 16;

/// The draws of an HPKE sender.
struct Draw(Seed);

impl TryRng for Draw {
    type Error = core::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        let mut out = [0; 4];
        self.try_fill_bytes(&mut out)?;
        Ok(u32::from_le_bytes(out))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        let mut out = [0; 8];
        self.try_fill_bytes(&mut out)?;
        Ok(u64::from_le_bytes(out))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Self::Error> {
        let prk = Hkdf::<Sha256>::new(None, self.0.octets());
        prk.expand(b"VEIL-v1 draw", out).expect("fewer octets than 255 digests");
        self.0 = Seed::new(*draw(&self.0, "next draw"));
        Ok(())
    }
}

impl TryCryptoRng for Draw {}

/// Seals one message in base mode. Gives the encapsulated key, the ciphertext, and what both ends then share; `None` if the
/// recipient's key is of small order.
pub(crate) fn seal(
    recipient: &Share,
    info: &[u8],
    seed: &Seed,
    message: impl FnOnce(&[u8; 32]) -> (Zeroizing<Vec<u8>>, Vec<u8>),
) -> Option<([u8; 32], Box<[u8]>, Exporter)> {
    let recipient = KemPublic::from_bytes(&recipient.0).ok()?;
    let mut entropy = Draw(Seed::new(*draw(seed, "encapsulation")));
    let (enc, mut context) = hpke::setup_sender_with_rng::<SuiteAead, SuiteKdf, SuiteKem>(
        &OpModeS::Base,
        &recipient,
        info,
        &mut entropy,
    )
    .ok()?;
    let enc = enc.to_bytes().into();
    let (plain, aad) = message(&enc);
    let sealed = context.seal(&plain, &aad).expect("the first of 2^64 messages");
    let mut secret = Zeroizing::new([0; 32]);
    context.export(EXPORTER, &mut secret[..]).expect("32 octets");
    Some((enc, sealed.into(), Exporter(secret)))
}

/// Opens it; `None` if it was not sealed to this key with these octets around it.
pub(crate) fn open(
    key: &PrivateKey,
    enc: &[u8; 32],
    info: &[u8],
    sealed: &[u8],
    aad: &[u8],
) -> Option<(Zeroizing<Vec<u8>>, Exporter)> {
    let octets = Zeroizing::new(key.to_octets());
    let key = KemPrivate::from_bytes(&octets[..]).ok()?;
    let enc = KemEncapped::from_bytes(enc).ok()?;
    let mut context =
        hpke::setup_receiver::<SuiteAead, SuiteKdf, SuiteKem>(&OpModeR::Base, &key, &enc, info).ok()?;
    let plain = Zeroizing::new(context.open(sealed, aad).ok()?);
    let mut secret = Zeroizing::new([0; 32]);
    context.export(EXPORTER, &mut secret[..]).expect("32 octets");
    Some((plain, Exporter(secret)))
}

const EXPORTER: &[u8] = b"VEIL-v1 exporter";

/// What U and B alone share: exported from the HPKE context of U's request. It is the SSK of chapter 4.4.2 for one attach: only the
/// maker of the request that U signed, and the holder of B's key, have it.
#[derive(Clone)]
pub struct Exporter(Zeroizing<[u8; 32]>);

impl Exporter {
    fn cipher(&self, salt: &[u8; 16]) -> (Aes128Gcm, [u8; 12]) {
        let okm = derive::<28>(&self.0[..], &[b"VEIL-v1 challenge", salt]);
        let mut nonce = [0; 12];
        nonce.copy_from_slice(&okm[16..]);
        (Aes128Gcm::new_from_slice(&okm[..16]).expect("16 octets"), nonce)
    }

    /// Seals B's challenge to U. The salt is random for each, so that no two are sealed under one key.
    pub(crate) fn seal(&self, salt: &[u8; 16], plain: &[u8]) -> Box<[u8]> {
        let (cipher, nonce) = self.cipher(salt);
        let mut out = Vec::with_capacity(plain.len() + TAG_OCTETS);
        out.extend_from_slice(plain);
        let tag = cipher.encrypt_inout_detached((&nonce).into(), &[], out.as_mut_slice().into());
        out.extend_from_slice(&tag.expect("far under 64 GiB"));
        out.into()
    }

    /// Opens it at U.
    pub(crate) fn open(&self, salt: &[u8; 16], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (cipher, nonce) = self.cipher(salt);
        let (text, tag) = sealed.split_last_chunk::<TAG_OCTETS>()?;
        let mut out = Zeroizing::new(text.to_vec());
        cipher.decrypt_inout_detached((&nonce).into(), &[], out.as_mut_slice().into(), tag.into()).ok()?;
        Some(out)
    }

    /// U's response to the challenge, for this request.
    pub(crate) fn response(&self, challenge: &[u8; 32], request: &[u8; 32]) -> Response {
        Response(*derive(&self.0[..], &[b"VEIL-v1 response", challenge, request]))
    }
}

impl core::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Exporter(…)")
    }
}

/// U's response (RES): it shows O that U is there, and later shows B that O had U there.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Response(pub(crate) [u8; 32]);

impl Response {
    /// From octets that U sent.
    pub const fn new(octets: [u8; 32]) -> Self {
        Self(octets)
    }

    /// The octets.
    pub const fn octets(&self) -> &[u8; 32] {
        &self.0
    }

    /// By what O checks a response that it cannot foresee (HXRES).
    pub fn expected(&self) -> [u8; 32] {
        hash(&[b"VEIL-v1 expected response\0", &self.0])
    }
}

impl core::fmt::Debug for Response {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Response(…)")
    }
}

/// K_SEAF as SAP derives it (crate `open`), where ss is HKDF(half ‖ response): B gives `half` to O and U, and only U's response
/// completes it, so O has no key for a user that is not there. `None` if the peer's share is of small order.
///
/// The serving network is the broker's: its PLMN stands in the transcript, as the serving network name does in TS 33.501 §6.1.1.4.
pub(crate) fn attach_key(
    half: &[u8; 32],
    response: &Response,
    own: &PrivateKey,
    peer: &Share,
    transcript: &[u8; 32],
) -> Option<KSeaf> {
    let mut ikm = Zeroizing::new([0; 64]);
    ikm[..32].copy_from_slice(half);
    ikm[32..].copy_from_slice(response.octets());
    let ss = SharedSecret::new(*derive(&ikm[..], &[b"VEIL-v1 ss"]));
    k_seaf(&ss, own, peer, transcript)
}

/// H(H(U's request) ‖ grant ‖ PLMN of the serving network).
pub(crate) fn transcript(request: &[u8; 32], grant: &[u8], network: PlmnId) -> [u8; 32] {
    hash(&[request, grant, &network.nas_octets()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_of_one_kind_is_none_of_another() {
        let key = SigningKey::new(&[7; 32]);
        let signature = key.sign(Signed::Grant, b"octets");
        assert!(key.verifying_key().verifies(Signed::Grant, b"octets", &signature));
        assert!(!key.verifying_key().verifies(Signed::Refusal, b"octets", &signature));
        let mut weak = [0; 32];
        weak[0] = 1;
        assert!(VerifyingKey::from_octets(weak).is_none());
    }

    #[test]
    fn k_seaf_depends_on_each_of_its_parts() {
        let [u, o] = [1, 2].map(|n| PrivateKey::new([n; 32]));
        let [a, b] = [3, 4].map(|n| Response::new([n; 32]));
        let key = |half, response, own: &PrivateKey, peer: &PrivateKey, transcript| {
            attach_key(&[half; 32], response, own, &peer.share(), &[transcript; 32]).unwrap()
        };
        let base = key(1, &a, &u, &o, 1);
        assert_eq!(key(1, &a, &o, &u, 1), base);
        let third = PrivateKey::new([5; 32]);
        for other in
            [key(2, &a, &u, &o, 1), key(1, &b, &u, &o, 1), key(1, &a, &u, &third, 1), key(1, &a, &u, &o, 2)]
        {
            assert_ne!(other, base);
        }
        assert!(attach_key(&[1; 32], &a, &u, &Share([0; 32]), &[1; 32]).is_none());
        let [home, other] =
            [[0x99, 0xf9, 0x07], [0x00, 0xf1, 0x10]].map(|o| PlmnId::from_nas_octets(o).unwrap());
        assert_ne!(transcript(&[1; 32], b"grant", home), transcript(&[1; 32], b"grant", other));
    }

    #[test]
    fn responses_are_independent_and_redacted() {
        let exporter = Exporter(Zeroizing::new([1; 32]));
        let response = exporter.response(&[1; 32], &[2; 32]);
        assert_ne!(response.octets(), exporter.response(&[3; 32], &[2; 32]).octets());
        assert_ne!(response.octets(), exporter.response(&[1; 32], &[3; 32]).octets());
        assert_eq!(format!("{response:?} {exporter:?}"), "Response(…) Exporter(…)");
    }
}
