//! A keyed pseudo-random function: expands sixteen octets of entropy and permutes identifiers.

use aes::Aes128;
use aes::cipher::{BlockEncrypt, KeyInit};

/// AES-128 as a pseudo-random function. Deterministic: the same key and input give the same output everywhere.
pub struct Prf(Aes128);

impl Prf {
    /// Keyed with `key`.
    pub fn new(key: &[u8; 16]) -> Self {
        Self(Aes128::new(key.into()))
    }

    /// Sixteen octets for an input.
    pub fn block(&self, input: u128) -> [u8; 16] {
        let mut block = input.to_be_bytes().into();
        self.0.encrypt_block(&mut block);
        block.into()
    }

    /// Permutes 32-bit numbers: a balanced Feistel network of six rounds, so that an observer without the key cannot
    /// relate consecutive inputs.
    pub fn permute(&self, v: u32) -> u32 {
        let (mut l, mut r) = ((v >> 16) as u16, v as u16);
        for round in 0..ROUNDS {
            (l, r) = (r, l ^ self.round(round, r));
        }
        u32::from(l) << 16 | u32::from(r)
    }

    /// The inverse of [`Prf::permute`].
    pub fn restore(&self, v: u32) -> u32 {
        let (mut l, mut r) = ((v >> 16) as u16, v as u16);
        for round in (0..ROUNDS).rev() {
            (l, r) = (r ^ self.round(round, l), l);
        }
        u32::from(l) << 16 | u32::from(r)
    }

    fn round(&self, round: u8, half: u16) -> u16 {
        let block = self.block(u128::from(round) << 16 | u128::from(half));
        u16::from_be_bytes([block[0], block[1]])
    }
}

/// Four rounds make a Feistel network a strong pseudo-random permutation; two more because its halves are small.
const ROUNDS: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation_is_invertible_and_hides_order() {
        let prf = Prf::new(&[7; 16]);
        let images: Vec<u32> = (0..4096).map(|v| prf.permute(v)).collect();
        assert!(images.iter().enumerate().all(|(v, &p)| prf.restore(p) == v as u32));
        let rising = images.windows(2).filter(|w| w[1] > w[0]).count();
        assert!((1800..2300).contains(&rising), "{rising} of 4095 steps rise");
    }
}
