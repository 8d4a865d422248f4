//! The key derivation function of TS 33.220 Annex B.2.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroize;

/// HMAC-SHA-256 keyed once, for a key from which several values are derived.
pub(crate) struct KeyedKdf(Hmac<Sha256>);

impl KeyedKdf {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(hmac_of(key))
    }

    /// The 256 bits derived with function code `fc` from `parameters`, in the order P0, P1, …
    pub(crate) fn derive(&self, fc: u8, parameters: &[&[u8]]) -> [u8; 32] {
        let mut hmac = self.0.clone();
        hmac.update(&[fc]);
        for p in parameters {
            hmac.update(p);
            // Every parameter of TS 33.501 is far shorter than the 2 octets of Ln can say.
            hmac.update(&(p.len() as u16).to_be_bytes());
        }
        hmac.finalize().into_bytes().into()
    }
}

/// HMAC-SHA-256 under a key of 32 octets. A key shorter than a block is padded with zeros by RFC 2104, so the block
/// given here is the same key, and cannot have a wrong length.
pub(crate) fn hmac_of(key: &[u8; 32]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let hmac = Hmac::new(&block.into());
    block.zeroize();
    hmac
}

/// KDF of TS 33.220 Annex B.2: HMAC-SHA-256 over S = FC ‖ P0 ‖ L0 ‖ P1 ‖ L1 …
///
/// A parameter longer than 65,535 octets has no encoding; none of TS 33.501 comes near.
pub fn kdf(key: &[u8; 32], fc: u8, parameters: &[&[u8]]) -> [u8; 32] {
    KeyedKdf::new(key).derive(fc, parameters)
}

/// The 128 least significant bits of a derived value (TS 33.501 Annex A.4, A.5, A.8).
pub(crate) fn low_128(derived: [u8; 32]) -> [u8; 16] {
    let mut low = [0; 16];
    low.copy_from_slice(&derived[16..]);
    low
}
