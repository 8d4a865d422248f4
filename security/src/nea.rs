//! The ciphering algorithms 128-NEA1, 2 and 3 (TS 33.501 Annex D.2; TS 33.401 Annex B.1).
//!
//! A [`Nea`] is keyed once and holds what can be computed ahead. Lengths are whole octets, as in NAS.

use core::fmt;

use aes::Aes128Enc;
use aes::cipher::KeyInit;
use zeroize::Zeroizing;

use crate::nas::CipheringAlgorithm;
use crate::snow3g::{Snow3g, key_words};
use crate::zuc::Zuc;
use crate::{Bearer, Direction, ctr};

/// A ciphering algorithm under a key.
#[derive(Clone)]
pub struct Nea(KeyedCipher);

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "a key schedule is what this holds; a holder of many boxes it")]
enum KeyedCipher {
    Nea0,
    Nea1(Zeroizing<[u32; 4]>),
    Nea2(Aes128Enc),
    Nea3(Zeroizing<[u8; 16]>),
}

impl fmt::Debug for Nea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nea(…)")
    }
}

impl Nea {
    /// The algorithm under a key of 128 bits.
    pub fn new(algorithm: CipheringAlgorithm, key: &[u8; 16]) -> Self {
        Self(match algorithm {
            CipheringAlgorithm::Nea0 => KeyedCipher::Nea0,
            CipheringAlgorithm::Nea1 => KeyedCipher::Nea1(Zeroizing::new(key_words(key))),
            CipheringAlgorithm::Nea2 => KeyedCipher::Nea2(Aes128Enc::new(key.into())),
            CipheringAlgorithm::Nea3 => KeyedCipher::Nea3(Zeroizing::new(*key)),
        })
    }

    /// Ciphers or deciphers `data` in place.
    pub fn apply(&self, count: u32, bearer: Bearer, direction: Direction, data: &mut [u8]) {
        // BEARER ‖ DIRECTION ‖ 0…0, the second word of each algorithm's start.
        let second = u32::from(bearer.value()) << 27 | u32::from(direction.bit()) << 26;
        match &self.0 {
            KeyedCipher::Nea0 => {}
            KeyedCipher::Nea1(key) => {
                let mut snow = Snow3g::new(**key, [second, count, second, count]); // TS 35.215 §3.4
                add(data, || snow.next_word());
            }
            KeyedCipher::Nea2(aes) => {
                let start = u128::from(count) << 96 | u128::from(second) << 64; // TS 33.401 Annex B.1.3
                ctr::apply(aes, start, data);
            }
            KeyedCipher::Nea3(key) => {
                let half = u64::from(count) << 32 | u64::from(second);
                let iv = u128::from(half) << 64 | u128::from(half); // TS 35.221 §3.4
                let mut zuc = Zuc::new(key, &iv.to_be_bytes());
                add(data, || zuc.next_word());
            }
        }
    }
}

/// Adds a key stream of words to octets.
fn add(data: &mut [u8], mut next_word: impl FnMut() -> u32) {
    for part in data.chunks_mut(4) {
        for (octet, key) in part.iter_mut().zip(next_word().to_be_bytes()) {
            *octet ^= key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, cipher_input, lines};

    #[test] // TS 33.501 §5.11.1.1; TS 35.217, TS 35.218, TS 33.401, TS 35.223: the published sets
    fn all_published_sets() {
        let sets = lines(include_str!("../testdata/nea.txt"));
        for set in &sets {
            let f = set.fields();
            let (key, count, bearer, direction, bits) = cipher_input(&f);
            let algorithm = match &set.name[..4] {
                "eea1" => CipheringAlgorithm::Nea1,
                "eea2" => CipheringAlgorithm::Nea2,
                _ => CipheringAlgorithm::Nea3,
            };
            let (mut data, mut expected) = (bytes(f[5]), bytes(f[6]));
            Nea::new(algorithm, &key).apply(count, bearer, direction, &mut data);
            if bits % 8 != 0 {
                let mask = 0xff << (8 - bits % 8);
                *data.last_mut().unwrap() &= mask;
                *expected.last_mut().unwrap() &= mask;
            }
            assert_eq!(data, expected, "{}", set.name);
        }
        assert_eq!(sets.len(), 23);
    }

    #[test]
    fn nea0_leaves_data_as_it_is() {
        let mut data = [1, 2, 3];
        Nea::new(CipheringAlgorithm::Nea0, &[7; 16]).apply(5, Bearer::NAS_3GPP, Direction::Uplink, &mut data);
        assert_eq!(data, [1, 2, 3]);
    }
}
