//! Subscription concealed identifier: the protection schemes of TS 33.501 Annex C, profile A TS 33.501 §C.3.4.1, profile B
//! TS 33.501 §C.3.4.2.
//!
//! A scheme conceals the MSIN in the octets that NAS carries (TS 24.501 §9.11.3.4: digits as swapped nibbles, 0xF after
//! an odd count). The octets around it (PLMN, routing indicator) belong to `wire/nas`.

use core::fmt;
use std::collections::BTreeMap;

use aes::Aes128Enc;
use aes::cipher::KeyInit;
use p256::elliptic_curve::sec1::ToSec1Point;
use whimbrel_ids::{PlmnId, Supi};
use zeroize::Zeroizing;

use crate::ctr;
use crate::kdf::{Hmac, Sha256};
use crate::secret::ct_eq;

/// Protection scheme identifier (TS 33.501 Annex C.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtectionScheme {
    /// The MSIN in clear.
    Null,
    /// ECIES over Curve25519.
    ProfileA,
    /// ECIES over secp256r1.
    ProfileB,
}

impl ProtectionScheme {
    /// From the 4-bit identifier; `None` for reserved and for operators' own schemes.
    pub const fn from_identifier(v: u8) -> Option<Self> {
        Some(match v {
            0 => Self::Null,
            1 => Self::ProfileA,
            2 => Self::ProfileB,
            _ => return None,
        })
    }

    /// The 4-bit identifier.
    pub const fn identifier(self) -> u8 {
        self as u8
    }
}

/// Why a SUCI gives no SUPI, or a key is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuciError {
    /// No private key of this scheme has this home network public key identifier.
    UnknownKey {
        /// The scheme of the SUCI.
        scheme: ProtectionScheme,
        /// Its home network public key identifier.
        key_id: u8,
    },
    /// The scheme output is too short for its scheme, or longer than a MSIN can make it.
    InvalidLength,
    /// A public key is no point of the curve in the form that the profile demands, or gives no shared secret.
    InvalidPublicKey,
    /// A private key is zero or not below the order of the curve.
    InvalidPrivateKey,
    /// The MAC tag is wrong: another key concealed this, or it was altered.
    TagMismatch,
    /// What was concealed is no MSIN, or makes no SUPI with the PLMN.
    InvalidMsin,
}

impl fmt::Display for SuciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SuciError::UnknownKey { scheme, key_id } => {
                write!(f, "no home network private key of {scheme:?} has the identifier {key_id}")
            }
            SuciError::InvalidLength => f.write_str("the SUCI's scheme output has a wrong length"),
            SuciError::InvalidPublicKey => f.write_str("the public key is no valid point"),
            SuciError::InvalidPrivateKey => f.write_str("the private key is not valid for its curve"),
            SuciError::TagMismatch => f.write_str("the SUCI's MAC tag is wrong: it was made for another key"),
            SuciError::InvalidMsin => f.write_str("the SUCI conceals no valid MSIN"),
        }
    }
}

impl core::error::Error for SuciError {}

/// Octets of the MAC tag of both profiles (Annex C.3.4).
const TAG_OCTETS: usize = 8;
/// Octets of the ephemeral public key of profile A.
const PUBLIC_KEY_A_OCTETS: usize = 32;
/// Octets of the ephemeral public key of profile B: always compressed (Annex C.3.4.2).
const PUBLIC_KEY_B_OCTETS: usize = 33;
/// Digits of an IMSI (TS 23.003 §2.2).
const IMSI_DIGITS_MAX: usize = 15;
/// Octets of the longest concealed text taken: a MSIN has at most 5, a network access identifier at most 253
/// (TS 23.003 §28.7.2, RFC 7542 §2.2).
const PLAIN_OCTETS_MAX: usize = 253;

/// A private key of the home network.
#[derive(Clone)]
pub struct HomeNetworkPrivateKey(Private);

#[derive(Clone)]
enum Private {
    A(x25519_dalek::StaticSecret),
    B(p256::SecretKey),
}

impl fmt::Debug for HomeNetworkPrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HomeNetworkPrivateKey({:?}, …)", self.scheme())
    }
}

/// A public key of the home network, as a USIM holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeNetworkPublicKey(Public);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Public {
    A(x25519_dalek::PublicKey),
    B(p256::PublicKey),
}

impl HomeNetworkPrivateKey {
    /// A key of profile A; every 32 octets are one.
    pub fn profile_a(octets: [u8; 32]) -> Self {
        Self(Private::A(octets.into()))
    }

    /// A key of profile B, big-endian. Errors: [`SuciError::InvalidPrivateKey`].
    pub fn profile_b(octets: &[u8; 32]) -> Result<Self, SuciError> {
        let key = p256::SecretKey::from_slice(octets).map_err(|_| SuciError::InvalidPrivateKey)?;
        Ok(Self(Private::B(key)))
    }

    /// Protection scheme of the key.
    pub const fn scheme(&self) -> ProtectionScheme {
        match self.0 {
            Private::A(_) => ProtectionScheme::ProfileA,
            Private::B(_) => ProtectionScheme::ProfileB,
        }
    }

    /// The public key for the USIMs.
    pub fn public_key(&self) -> HomeNetworkPublicKey {
        HomeNetworkPublicKey(match &self.0 {
            Private::A(key) => Public::A(key.into()),
            Private::B(key) => Public::B(key.public_key()),
        })
    }

    /// What a scheme output conceals (Annex C.3.2).
    ///
    /// Costs one multiplication on the curve: some 40 µs for profile A, 150 µs for profile B.
    pub fn deconceal(&self, scheme_output: &[u8]) -> Result<Vec<u8>, SuciError> {
        let public_octets = match self.0 {
            Private::A(_) => PUBLIC_KEY_A_OCTETS,
            Private::B(_) => PUBLIC_KEY_B_OCTETS,
        };
        let concealed = scheme_output.len().checked_sub(public_octets + TAG_OCTETS);
        if concealed.is_none_or(|n| n > PLAIN_OCTETS_MAX) {
            return Err(SuciError::InvalidLength);
        }
        let (ephemeral, rest) = scheme_output.split_at(public_octets);
        let (ciphertext, tag) = rest.split_at(rest.len() - TAG_OCTETS);
        let shared = self.shared_secret(ephemeral)?;
        let keys = EciesKeys::derive(&shared, ephemeral);
        if !ct_eq(&keys.tag(ciphertext), tag) {
            return Err(SuciError::TagMismatch);
        }
        let mut plain = ciphertext.to_vec();
        keys.cipher(&mut plain);
        Ok(plain)
    }

    fn shared_secret(&self, ephemeral: &[u8]) -> Result<Zeroizing<[u8; 32]>, SuciError> {
        match &self.0 {
            Private::A(key) => {
                let octets: [u8; 32] = ephemeral.try_into().map_err(|_| SuciError::InvalidLength)?;
                shared_a(key, &octets.into())
            }
            Private::B(key) => {
                // 33 octets can only be a compressed point: the form is checked with the length.
                let point =
                    p256::PublicKey::from_sec1_bytes(ephemeral).map_err(|_| SuciError::InvalidPublicKey)?;
                Ok(shared_b(key, &point))
            }
        }
    }
}

impl HomeNetworkPublicKey {
    /// A key of profile A; every 32 octets are one.
    pub fn profile_a(octets: [u8; 32]) -> Self {
        Self(Public::A(octets.into()))
    }

    /// A key of profile B, compressed (33 octets) or not (65). Errors: [`SuciError::InvalidPublicKey`].
    pub fn profile_b(octets: &[u8]) -> Result<Self, SuciError> {
        let key = p256::PublicKey::from_sec1_bytes(octets).map_err(|_| SuciError::InvalidPublicKey)?;
        Ok(Self(Public::B(key)))
    }

    /// Protection scheme of the key.
    pub const fn scheme(&self) -> ProtectionScheme {
        match self.0 {
            Public::A(_) => ProtectionScheme::ProfileA,
            Public::B(_) => ProtectionScheme::ProfileB,
        }
    }

    /// Its octets as a USIM is given them; profile B compressed.
    pub fn octets(&self) -> Vec<u8> {
        match &self.0 {
            Public::A(key) => key.as_bytes().to_vec(),
            Public::B(key) => key.to_sec1_point(true).as_bytes().to_vec(),
        }
    }

    /// The scheme output that conceals `plain` under a fresh ephemeral private key (Annex C.3.3).
    ///
    /// The caller draws `ephemeral` at random, once for each SUCI. Errors: [`SuciError::InvalidPrivateKey`] where it
    /// is out of range for profile B (draw again), [`SuciError::InvalidPublicKey`] where this key is of low order.
    pub fn conceal(&self, ephemeral: &[u8; 32], plain: &[u8]) -> Result<Vec<u8>, SuciError> {
        let (public, shared) = match &self.0 {
            Public::A(key) => {
                let own = x25519_dalek::StaticSecret::from(*ephemeral);
                (x25519_dalek::PublicKey::from(&own).as_bytes().to_vec(), shared_a(&own, key)?)
            }
            Public::B(key) => {
                let own = p256::SecretKey::from_slice(ephemeral).map_err(|_| SuciError::InvalidPrivateKey)?;
                (own.public_key().to_sec1_point(true).as_bytes().to_vec(), shared_b(&own, key))
            }
        };
        let keys = EciesKeys::derive(&shared, &public);
        let mut out = public;
        let start = out.len();
        out.extend_from_slice(plain);
        keys.cipher(&mut out[start..]);
        let tag = keys.tag(&out[start..]);
        out.extend_from_slice(&tag);
        Ok(out)
    }
}

fn shared_a(
    own: &x25519_dalek::StaticSecret,
    other: &x25519_dalek::PublicKey,
) -> Result<Zeroizing<[u8; 32]>, SuciError> {
    let shared = own.diffie_hellman(other);
    // RFC 7748 §6.1: a point of low order gives zero whatever the private key.
    if !shared.was_contributory() {
        return Err(SuciError::InvalidPublicKey);
    }
    Ok(Zeroizing::new(shared.to_bytes()))
}

fn shared_b(own: &p256::SecretKey, other: &p256::PublicKey) -> Zeroizing<[u8; 32]> {
    let shared = p256::ecdh::diffie_hellman(own.to_nonzero_scalar(), other.as_affine());
    let mut octets = Zeroizing::new([0; 32]);
    octets.copy_from_slice(shared.raw_secret_bytes());
    octets
}

/// What the key derivation of both profiles yields (Annex C.3.4): an AES key, its first counter block, a MAC key.
struct EciesKeys {
    aes: Aes128Enc,
    icb: u128,
    mac_key: Zeroizing<[u8; 32]>,
}

impl EciesKeys {
    /// ANSI X9.63 KDF (SEC 1 §3.6.1) with SHA-256; SharedInfo1 is the ephemeral public key.
    fn derive(shared: &[u8; 32], shared_info_1: &[u8]) -> Self {
        let block = |counter: u32| -> Zeroizing<[u8; 32]> {
            let mut sha = Sha256::new();
            sha.update(shared);
            sha.update(&counter.to_be_bytes());
            sha.update(shared_info_1);
            Zeroizing::new(sha.finish())
        };
        let (first, mac_key) = (block(1), block(2));
        let (mut key, mut icb) = (Zeroizing::new([0; 16]), [0; 16]);
        key.copy_from_slice(&first[..16]);
        icb.copy_from_slice(&first[16..]);
        Self { aes: Aes128Enc::new((&*key).into()), icb: u128::from_be_bytes(icb), mac_key }
    }

    fn cipher(&self, data: &mut [u8]) {
        ctr::apply(&self.aes, self.icb, data);
    }

    /// HMAC-SHA-256 of the ciphertext, its first 64 bits; SharedInfo2 is empty.
    fn tag(&self, ciphertext: &[u8]) -> [u8; TAG_OCTETS] {
        let whole = Hmac::new(&self.mac_key).code(&[ciphertext]);
        core::array::from_fn(|i| whole[i])
    }
}

/// The private keys of a home network, by scheme and home network public key identifier (TS 24.501 §9.11.3.4).
#[derive(Clone, Debug, Default)]
pub struct HomeNetworkKeys(BTreeMap<(ProtectionScheme, u8), HomeNetworkPrivateKey>);

impl HomeNetworkKeys {
    /// None: only the null scheme can be resolved.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds a key; returns one that had the same scheme and identifier.
    pub fn insert(&mut self, key_id: u8, key: HomeNetworkPrivateKey) -> Option<HomeNetworkPrivateKey> {
        self.0.insert((key.scheme(), key_id), key)
    }

    /// The SUPI behind a SUCI of type IMSI (TS 33.501 §6.12.2: what the SIDF does).
    pub fn deconceal(
        &self,
        plmn: PlmnId,
        scheme: ProtectionScheme,
        key_id: u8,
        scheme_output: &[u8],
    ) -> Result<Supi, SuciError> {
        if scheme == ProtectionScheme::Null {
            return supi_of_msin(plmn, scheme_output);
        }
        let key = self.0.get(&(scheme, key_id)).ok_or(SuciError::UnknownKey { scheme, key_id })?;
        supi_of_msin(plmn, &key.deconceal(scheme_output)?)
    }
}

/// The SUPI of a network's digits and a MSIN in BCD octets.
pub fn supi_of_msin(plmn: PlmnId, msin: &[u8]) -> Result<Supi, SuciError> {
    if msin.is_empty() || msin.len() > IMSI_DIGITS_MAX.div_ceil(2) {
        return Err(SuciError::InvalidMsin);
    }
    let nibbles = msin.iter().flat_map(|o| [o & 0xf, o >> 4]);
    // Only the very last nibble may be the filler.
    let digits = msin.len() * 2 - usize::from(msin.last().is_some_and(|o| o >> 4 == 0xf));
    Supi::from_digits(plmn.digits().chain(nibbles.take(digits))).ok_or(SuciError::InvalidMsin)
}

/// The MSIN of a SUPI in BCD octets; `None` if the SUPI is not of this network or has no digit beyond it.
pub fn msin_of_supi(plmn: PlmnId, supi: Supi) -> Option<Vec<u8>> {
    if !supi.is_of(plmn) {
        return None;
    }
    let digits: Vec<u8> = supi.digits().skip(plmn.digits().count()).collect();
    let pair = |p: &[u8]| p[0] | p.get(1).copied().unwrap_or(0xf) << 4;
    (!digits.is_empty()).then(|| digits.chunks(2).map(pair).collect())
}

#[cfg(test)]
mod tests;
