//! What the parties compute with: secrets that wipe themselves, entropy that the caller gives, signatures with a domain,
//! keys and what is derived of them.
//!
//! The suite is fixed for version 1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM; Ed25519 (RFC 8032) with strict
//! verification; SHA-256.

use ed25519_dalek::Signer;
use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Declares a secret of `$n` octets: wiped when dropped, compared in constant time, redacted in `Debug`.
#[macro_export]
macro_rules! secret {
    ($(#[$doc:meta])* $name:ident, $n:literal) => {
        $(#[$doc])*
        #[derive(Clone, ::zeroize::Zeroize, ::zeroize::ZeroizeOnDrop)]
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
                bool::from(::subtle::ConstantTimeEq::ct_eq(&self.0[..], &other.0[..]))
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

/// SHA-256 of octets.
pub fn hash(octets: &[u8]) -> [u8; 32] {
    Sha256::digest(octets).into()
}

/// SHA-256 of parts, one after the other.
pub fn hash_parts(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// HKDF-SHA256 of `ikm` with `info` in parts.
pub fn derive<const N: usize>(ikm: &[u8], info: &[&[u8]]) -> Zeroizing<[u8; N]> {
    let mut out = Zeroizing::new([0; N]);
    expand(None, ikm, info, &mut out[..]);
    out
}

/// HKDF-SHA256 of `ikm` under a salt, with `info` in parts.
pub fn derive_salted<const N: usize>(salt: &[u8], ikm: &[u8], info: &[&[u8]]) -> Zeroizing<[u8; N]> {
    let mut out = Zeroizing::new([0; N]);
    expand(Some(salt), ikm, info, &mut out[..]);
    out
}

pub(crate) fn expand(salt: Option<&[u8]>, ikm: &[u8], info: &[&[u8]], out: &mut [u8]) {
    Hkdf::<Sha256>::new(salt, ikm).expand_multi_info(info, out).expect("fewer octets than 255 digests");
}

/// The public half of an X25519 ephemeral key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(pub [u8; 32]);

impl Share {
    /// In place of the share of an ordinary UE, which has none: no share of an attach, since it is of small order.
    pub const NONE: Self = Self([0; 32]);
}

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

    /// The public half.
    pub fn share(&self) -> Share {
        Share(x25519_dalek::PublicKey::from(&self.0).to_bytes())
    }

    /// The secret of this key and the peer's. `None` if the peer's share makes it independent of this key.
    pub fn agree(&self, peer: &Share) -> Option<Zeroizing<[u8; 32]>> {
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

impl Signature {
    /// In its place until a message is signed.
    pub const NONE: Self = Self([0; 64]);
}

/// What a signature of a protocol may be over.
pub trait SignedKind {
    /// Stands before the signed octets, so that one kind never passes for another; ends with a zero octet.
    fn label(self) -> &'static [u8];
}

/// Declares what the signatures of a protocol are over. The name stands before the signed octets, so that one kind never passes for another.
#[macro_export]
macro_rules! signed_kinds {
    ($(#[$doc:meta])* $vis:vis $name:ident, $protocol:literal { $($(#[$d:meta])* $variant:ident = $label:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[$d])* $variant,)+ }

        impl $crate::crypto::SignedKind for $name {
            fn label(self) -> &'static [u8] {
                match self { $(Self::$variant => concat!($protocol, $label, "\0").as_bytes(),)+ }
            }
        }
    };
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

/// K_SEAF = HKDF(ss ‖ DH(user, operator), transcript), under a protocol's label. `None` if the peer's share is of small order.
///
/// ss protects it if an ephemeral key of the user becomes known, DH if the broker's epoch key becomes known later.
pub fn k_seaf(
    label: &[u8],
    ss: &SharedSecret,
    own: &PrivateKey,
    peer: &Share,
    transcript: &[u8; 32],
) -> Option<KSeaf> {
    let dh = own.agree(peer)?;
    let mut ikm = Zeroizing::new([0; 64]);
    ikm[..32].copy_from_slice(ss.octets());
    ikm[32..].copy_from_slice(&dh[..]);
    Some(KSeaf::new(*derive(&ikm[..], &[label, transcript])))
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

    signed_kinds! {
        /// Kinds for this test.
        TestKind, "test " {
            /// The first of two kinds of signature.
            Grant = "grant";
            /// The second, whose octets are the same.
            Refusal = "refusal";
        }
    }

    #[test]
    fn a_signature_of_one_kind_is_none_of_another() {
        assert_eq!(TestKind::Grant.label(), b"test grant\0");
        let key = SigningKey::new(&[7; 32]);
        let signature = key.sign(TestKind::Grant, b"x");
        assert!(key.verifying_key().verifies(TestKind::Grant, b"x", &signature));
        assert!(!key.verifying_key().verifies(TestKind::Refusal, b"x", &signature));
        assert!(!key.verifying_key().verifies(TestKind::Grant, b"y", &signature));
    }

    #[test] // RFC 8032 §5.1.7 leaves room for keys under which anything verifies: the neutral point is one
    fn a_key_of_small_order_is_no_key() {
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(VerifyingKey::from_octets(neutral).is_none());
        assert!(PrivateKey::new([9; 32]).agree(&Share::NONE).is_none());
    }

    #[test] // ss, DH(user, operator) and the transcript
    fn k_seaf_depends_on_each_of_its_parts() {
        let share = |dh: u8| PrivateKey::new([dh; 32]).share();
        let key = |ss: u8, dh: u8, transcript: u8| {
            let (ss, own) = (SharedSecret::new([ss; 32]), PrivateKey::new([7; 32]));
            k_seaf(b"test K_SEAF", &ss, &own, &share(dh), &[transcript; 32]).unwrap()
        };
        let own = key(1, 2, 3);
        assert_eq!(own, key(1, 2, 3));
        for other in [key(9, 2, 3), key(1, 9, 3), key(1, 2, 9), key(2, 1, 3)] {
            assert_ne!(own, other);
        }
    }
}
