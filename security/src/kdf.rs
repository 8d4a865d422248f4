//! HMAC-SHA-256 (RFC 2104, FIPS 180-4) and the key derivation function of TS 33.220 Annex B.2 on it.
//!
//! A registration derives a dozen keys, each from a block or two. Here the two blocks that depend on the key alone
//! are compressed once per key, and what was hashed is wiped in whole words: half the time of the general crates,
//! whose compression function this uses.

use sha2::block_api::compress256;
use zeroize::{Zeroize, ZeroizeOnDrop, optimization_barrier};

use crate::secret::ct_eq;

/// Octets of a SHA-256 block.
const BLOCK: usize = 64;

/// The initial state of SHA-256 (FIPS 180-4 §5.3.3).
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// SHA-256 in progress.
#[derive(Clone)]
pub(crate) struct Sha256 {
    state: [u32; 8],
    block: [u8; BLOCK],
    /// Octets hashed so far; the last `len % 64` of them wait in `block`.
    len: usize,
}

impl Sha256 {
    pub(crate) const fn new() -> Self {
        Self { state: INITIAL, block: [0; BLOCK], len: 0 }
    }

    /// After one whole block.
    const fn after_block(state: [u32; 8]) -> Self {
        Self { state, block: [0; BLOCK], len: BLOCK }
    }

    pub(crate) fn update(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            let used = self.len % BLOCK;
            let (now, later) = octets.split_at(octets.len().min(BLOCK - used));
            self.block[used..used + now.len()].copy_from_slice(now);
            self.len += now.len();
            octets = later;
            if self.len.is_multiple_of(BLOCK) {
                compress256(&mut self.state, &[self.block]);
            }
        }
    }

    /// The digest, after the padding of FIPS 180-4 §5.1.1.
    pub(crate) fn finish(mut self) -> [u8; 32] {
        let bits = (self.len as u64) * 8;
        let used = self.len % BLOCK;
        self.block[used] = 0x80;
        self.block[used + 1..].fill(0);
        if used + 1 > BLOCK - 8 {
            compress256(&mut self.state, &[self.block]);
            self.block.fill(0);
        }
        self.block[BLOCK - 8..].copy_from_slice(&bits.to_be_bytes());
        compress256(&mut self.state, &[self.block]);
        let mut digest = [0; 32];
        for (octets, word) in digest.chunks_exact_mut(4).zip(self.state) {
            octets.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }
}

impl Drop for Sha256 {
    fn drop(&mut self) {
        // Not `zeroize()`: octet by octet it takes a third as long as the hash itself.
        (self.state, self.block) = ([0; 8], [0; BLOCK]);
        optimization_barrier(self);
    }
}

/// HMAC-SHA-256 under a key of 32 octets, keyed once for all that is authenticated or derived under it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Hmac {
    inner: [u32; 8],
    outer: [u32; 8],
}

impl Hmac {
    /// Under a key.
    pub fn new(key: &[u8; 32]) -> Self {
        let keyed = |pad: u8| {
            let mut block = [pad; BLOCK];
            for (octet, key) in block.iter_mut().zip(key) {
                *octet ^= key;
            }
            let mut state = INITIAL;
            compress256(&mut state, core::slice::from_ref(&block));
            block = [0; BLOCK];
            optimization_barrier(&block);
            state
        };
        Self { inner: keyed(0x36), outer: keyed(0x5c) }
    }

    /// The code of a message given in parts.
    pub fn code(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut inner = Sha256::after_block(self.inner);
        parts.iter().for_each(|p| inner.update(p));
        self.finish(inner)
    }

    /// Whether this is the code of the message, or what it was cut to (RFC 2104 §5: half of it and no less). In constant time.
    pub fn is_code(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        let own = self.code(parts);
        (own.len() / 2..=own.len()).contains(&code.len()) && ct_eq(&own[..code.len()], code)
    }

    /// The 256 bits derived with function code `fc` from `parameters`, in the order P0, P1, …
    pub(crate) fn derive(&self, fc: u8, parameters: &[&[u8]]) -> [u8; 32] {
        let mut inner = Sha256::after_block(self.inner);
        inner.update(&[fc]);
        for p in parameters {
            inner.update(p);
            // Every parameter of TS 33.501 is far shorter than the 2 octets of Ln can say.
            inner.update(&(p.len() as u16).to_be_bytes());
        }
        self.finish(inner)
    }

    fn finish(&self, inner: Sha256) -> [u8; 32] {
        let mut outer = Sha256::after_block(self.outer);
        outer.update(&inner.finish());
        outer.finish()
    }
}

impl core::fmt::Debug for Hmac {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Hmac(…)")
    }
}

/// KDF of TS 33.220 Annex B.2: HMAC-SHA-256 over S = FC ‖ P0 ‖ L0 ‖ P1 ‖ L1 …
///
/// A parameter longer than 65,535 octets has no encoding; none of TS 33.501 comes near.
pub fn kdf(key: &[u8; 32], fc: u8, parameters: &[&[u8]]) -> [u8; 32] {
    Hmac::new(key).derive(fc, parameters)
}

/// The 128 least significant bits of a derived value (TS 33.501 Annex A.4, A.5, A.8).
pub(crate) fn low_128(derived: [u8; 32]) -> [u8; 16] {
    let mut low = [0; 16];
    low.copy_from_slice(&derived[16..]);
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::bytes;
    use sha2::Digest;

    #[test] // RFC 4231 §4.2, §4.3: the short keys are padded with zeros to the 32 octets taken here
    fn hmac_of_published_cases() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(Hmac::new(&key).code(&[b"Hi There"]).to_vec(), bytes(expected));
        key.fill(0);
        key[..4].copy_from_slice(b"Jefe");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(Hmac::new(&key).code(&[b"what do ya ", b"want for nothing?"]).to_vec(), bytes(expected));
    }

    #[test]
    fn a_code_cut_to_half_is_known_and_a_shorter_or_other_one_is_not() {
        let hmac = Hmac::new(&[7; 32]);
        let mut code = hmac.code(&[b"heart", b"beat"]);
        for octets in 0..=32 {
            assert_eq!(hmac.is_code(&[b"heartbeat"], &code[..octets]), octets >= 16, "{octets} octets");
        }
        code[15] ^= 1;
        assert!(!hmac.is_code(&[b"heartbeat"], &code[..16]));
        assert_eq!(format!("{hmac:?}"), "Hmac(…)");
    }

    #[test] // the padding at every length of a block, in any parts
    fn sha_256_is_that_of_the_general_crate() {
        let message: Vec<u8> = (0..200).collect();
        for n in 0..message.len() {
            let expected: [u8; 32] = sha2::Sha256::digest(&message[..n]).into();
            let mut own = Sha256::new();
            own.update(&message[..n / 3]);
            own.update(&message[n / 3..n]);
            assert_eq!(own.finish(), expected, "{n} octets");
        }
    }
}
