//! What the three parties compute with: secrets that wipe themselves, entropy that the caller gives, signatures with a domain,
//! HPKE (RFC 9180), and the derivation of K_SEAF.
//!
//! The suite is fixed for version 1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM; Ed25519 (RFC 8032) with strict
//! verification; SHA-256.

use ed25519_dalek::Signer;
use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

pub(crate) use crate::envelope::TAG_OCTETS;
use crate::envelope::{self, OneCipher, Protocol, expand};

/// Declares a secret of `$n` octets: wiped when dropped, compared in constant time, redacted in `Debug`.
macro_rules! secret {
    ($(#[$doc:meta])* $name:ident, $n:literal) => {
        $(#[$doc])*
        #[derive(Clone, Zeroize, ZeroizeOnDrop)]
        pub struct $name([u8; $n]);

        impl $name {
            /// From its octets.
            pub const fn new(octets: [u8; $n]) -> Self {
                Self(octets)
            }

            /// Its octets: secret, so hand them only to what must hold them.
            pub const fn octets(&self) -> &[u8; $n] {
                &self.0
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                bool::from(subtle::ConstantTimeEq::ct_eq(&self.0[..], &other.0[..]))
            }
        }

        impl Eq for $name {}

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }
    };
}

secret! {
    /// Entropy for one attach at one party: 32 octets that no other attach has. All random values of the attach are derived from
    /// it, so that a replay of the same input gives the same octets.
    Seed, 32
}
secret! {
    /// The secret that the broker gives to user and operator (ss, chapter 3.4.1).
    SharedSecret, 32
}
secret! {
    /// Key of the serving network's anchor: what the 5G key hierarchy starts from (TS 33.501 §6.2).
    KSeaf, 32
}
secret! {
    /// Key that stays between user and broker.
    KAusf, 32
}

impl Seed {
    /// `N` octets for the use that `label` names.
    pub(crate) fn derive<const N: usize>(&self, label: &str) -> Zeroizing<[u8; N]> {
        SAP.draw(self, label)
    }
}

/// SHA-256 of octets.
pub fn hash(octets: &[u8]) -> [u8; 32] {
    Sha256::digest(octets).into()
}

/// The public half of an X25519 ephemeral key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(pub [u8; 32]);

/// An X25519 private key: the ephemeral one of an attach, or a broker's key of an epoch.
#[derive(Clone)]
pub struct PrivateKey(x25519_dalek::StaticSecret);

impl PrivateKey {
    /// Every 32 octets are a key.
    pub fn new(octets: [u8; 32]) -> Self {
        Self(octets.into())
    }

    /// Its octets: secret, so hand them only to what must hold them.
    pub fn to_octets(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    pub(crate) fn ephemeral(seed: &Seed) -> Self {
        Self::new(*seed.derive("ephemeral key"))
    }

    /// The public half.
    pub fn share(&self) -> Share {
        Share(x25519_dalek::PublicKey::from(&self.0).to_bytes())
    }

    /// `None` if the peer's share makes the result independent of this key.
    pub(crate) fn agree(&self, peer: &Share) -> Option<Zeroizing<[u8; 32]>> {
        let shared = self.0.diffie_hellman(&peer.0.into());
        shared.was_contributory().then(|| Zeroizing::new(shared.to_bytes()))
    }
}

impl core::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// An Ed25519 private key.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

/// An Ed25519 public key, in octets that name a point of the curve.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VerifyingKey(ed25519_dalek::VerifyingKey);

/// An Ed25519 signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

/// What a signature of a protocol may be over.
pub trait SignedKind {
    /// Stands before the signed octets, so that one kind never passes for another; ends with a zero octet.
    fn label(self) -> &'static [u8];
}

/// What a signature is over. The name stands before the signed octets, so that one kind never passes for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// The user's request.
    UserRequest,
    /// The operator's request.
    OperatorRequest,
    /// The broker's grant.
    Grant,
    /// The broker's refusal.
    Refusal,
    /// An authority's certificate.
    Certificate,
    /// The operator's question for a challenge of an ordinary UE.
    VectorRequest,
    /// The operator's question for the key, with the UE's response.
    Confirmation,
    /// The broker's challenge.
    Challenge,
    /// What the user or the operator has measured.
    UsageReport,
    /// Reports that the operator sends.
    UsageDelivery,
    /// The broker's answer to them.
    UsageAnswer,
    /// The amount that the broker pays for a cycle.
    Receipt,
    /// The sum of receipts.
    Statement,
}

impl SignedKind for Signed {
    fn label(self) -> &'static [u8] {
        match self {
            Self::UserRequest => b"SAP-v1 user request\0",
            Self::OperatorRequest => b"SAP-v1 operator request\0",
            Self::Grant => b"SAP-v1 grant\0",
            Self::Refusal => b"SAP-v1 refusal\0",
            Self::Certificate => b"SAP-v1 certificate\0",
            Self::VectorRequest => b"SAP-v1 vector request\0",
            Self::Confirmation => b"SAP-v1 confirmation\0",
            Self::Challenge => b"SAP-v1 challenge\0",
            Self::UsageReport => b"SAP-v1 usage report\0",
            Self::UsageDelivery => b"SAP-v1 usage delivery\0",
            Self::UsageAnswer => b"SAP-v1 usage answer\0",
            Self::Receipt => b"SAP-v1 receipt\0",
            Self::Statement => b"SAP-v1 statement\0",
        }
    }
}

impl SigningKey {
    /// Every 32 octets are a key.
    pub fn new(octets: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(octets))
    }

    /// The octets, for a store.
    pub fn octets(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The public half.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey(self.0.verifying_key())
    }

    /// Signs `octets` as what `kind` says they are.
    pub fn sign(&self, kind: impl SignedKind, octets: &[u8]) -> Signature {
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

    /// The octets of the key.
    pub fn octets(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Whether the key's owner signed `octets` as `kind`.
    pub fn verifies(&self, kind: impl SignedKind, octets: &[u8], signature: &Signature) -> bool {
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

/// The labels of SAP.
pub(crate) const SAP: Protocol =
    Protocol { seed: b"SAP-v1 seed ", draw: b"SAP-v1 draw", exporter: b"SAP-v1 exporter" };

/// The sender's side of an HPKE context of SAP.
pub(crate) struct Sender(envelope::Sender);

impl Sender {
    /// To `recipient`; `None` if its public key is of small order.
    pub(crate) fn new(recipient: &Share, info: &[u8], seed: &Seed) -> Option<Self> {
        envelope::Sender::new(SAP, recipient, info, seed).map(Self)
    }

    /// The encapsulated key.
    pub(crate) fn enc(&self) -> [u8; 32] {
        self.0.enc
    }

    pub(crate) fn seal(&mut self, plain: &[u8], aad: &[u8]) -> Vec<u8> {
        self.0.seal(plain, aad)
    }

    pub(crate) fn exporter(&self) -> Exporter {
        Exporter(self.0.secret())
    }
}

/// Opens one message of an HPKE context of SAP; `None` if it was not sealed to this key with these octets around it.
pub(crate) fn open(
    key: &PrivateKey,
    enc: &[u8; 32],
    info: &[u8],
    sealed: &[u8],
    aad: &[u8],
) -> Option<(Zeroizing<Vec<u8>>, Exporter)> {
    let (plain, secret) = envelope::open(SAP, key, (enc, info), sealed, aad)?;
    Some((plain, Exporter(secret)))
}

/// What the user and the broker alone share: exported from the HPKE context of the user's request.
#[derive(Clone)]
pub struct Exporter(Zeroizing<[u8; 32]>);

impl Exporter {
    /// K_AUSF of the attach.
    pub fn k_ausf(&self) -> KAusf {
        let mut key = [0; 32];
        expand(&Hkdf::new(None, &self.0[..]), &[b"SAP-v1 K_AUSF"], &mut key);
        KAusf(key)
    }

    fn answer_cipher(&self, salt: &[u8; 16]) -> OneCipher {
        let mut okm = Zeroizing::new([0; 28]);
        expand(&Hkdf::new(Some(salt), &self.0[..]), &[b"SAP-v1 answer"], &mut okm[..]);
        OneCipher::new(&okm)
    }

    /// Seals the broker's answer to the user. The salt is random for each answer, so that no two are sealed under one key.
    pub fn seal(&self, salt: &[u8; 16], plain: &[u8]) -> Vec<u8> {
        self.answer_cipher(salt).seal(plain)
    }

    /// Opens the broker's answer at the user.
    pub fn open(&self, salt: &[u8; 16], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.answer_cipher(salt).open(sealed)
    }
}

impl core::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Exporter(…)")
    }
}

/// K_SEAF = HKDF(ss ‖ DH(user, operator), transcript), where the transcript is H(H(authReqU) ‖ grant). `None` if the peer's share is of small
/// order.
///
/// ss protects it if an ephemeral key of the user becomes known, DH if the broker's epoch key becomes known later.
pub fn k_seaf(ss: &SharedSecret, own: &PrivateKey, peer: &Share, transcript: &[u8; 32]) -> Option<KSeaf> {
    let dh = own.agree(peer)?;
    let mut ikm = Zeroizing::new([0; 64]);
    ikm[..32].copy_from_slice(&ss.0);
    ikm[32..].copy_from_slice(&dh[..]);
    let mut key = [0; 32];
    expand(&Hkdf::new(None, &ikm[..]), &[b"SAP-v1 K_SEAF", transcript], &mut key);
    Some(KSeaf(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted_and_compare() {
        let key = KSeaf::new([1; 32]);
        assert_eq!(format!("{key:?}"), "KSeaf(…)");
        assert_eq!(format!("{:?}", SigningKey::new(&[1; 32])), "SigningKey(…)");
        assert_eq!(format!("{:?}", PrivateKey::new([1; 32])), "PrivateKey(…)");
        assert_eq!(key, key.clone());
        assert_ne!(key, KSeaf::new([2; 32]));
    }

    #[test] // ss, DH(user, operator) and the transcript
    fn k_seaf_depends_on_each_of_its_parts() {
        let share = |dh: u8| PrivateKey::new([dh; 32]).share();
        let key = |ss: u8, dh: u8, transcript: u8| {
            let (ss, own) = (SharedSecret::new([ss; 32]), PrivateKey::new([7; 32]));
            k_seaf(&ss, &own, &share(dh), &[transcript; 32]).unwrap()
        };
        let own = key(1, 2, 3);
        assert_eq!(own, key(1, 2, 3));
        for other in [key(9, 2, 3), key(1, 9, 3), key(1, 2, 9), key(2, 1, 3)] {
            assert_ne!(own, other);
        }
    }

    #[test]
    fn a_signature_of_one_kind_is_none_of_another() {
        let key = SigningKey::new(&[7; 32]);
        let signature = key.sign(Signed::Grant, b"x");
        assert!(key.verifying_key().verifies(Signed::Grant, b"x", &signature));
        assert!(!key.verifying_key().verifies(Signed::Refusal, b"x", &signature));
        assert!(!key.verifying_key().verifies(Signed::Grant, b"y", &signature));
    }

    #[test] // RFC 8032 §5.1.7 leaves room for keys under which anything verifies: the neutral point is one
    fn a_key_of_small_order_is_no_key() {
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(VerifyingKey::from_octets(neutral).is_none());
        assert!(PrivateKey::new([9; 32]).agree(&Share([0; 32])).is_none());
        assert!(Sender::new(&Share([0; 32]), b"", &Seed::new([1; 32])).is_none());
    }

    #[test]
    fn both_ends_of_an_envelope_export_the_same_secret() {
        let key = PrivateKey::new([3; 32]);
        let mut sender = Sender::new(&key.share(), b"info", &Seed::new([4; 32])).unwrap();
        let sealed = sender.seal(b"plain", b"aad");
        let (plain, exporter) = open(&key, &sender.enc(), b"info", &sealed, b"aad").unwrap();
        assert_eq!(&plain[..], b"plain");
        assert_eq!(exporter.k_ausf(), sender.exporter().k_ausf());
        let answer = exporter.seal(&[1; 16], b"answer");
        assert_eq!(&sender.exporter().open(&[1; 16], &answer).unwrap()[..], b"answer");
        assert!(sender.exporter().open(&[2; 16], &answer).is_none());
        for (info, aad) in [(&b"other"[..], &b"aad"[..]), (b"info", b"other")] {
            assert!(open(&key, &sender.enc(), info, &sealed, aad).is_none());
        }
    }
}
