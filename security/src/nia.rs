//! The integrity algorithms 128-NIA1, 2 and 3 (TS 33.501 Annex D.3; TS 33.401 Annex B.2).
//!
//! A [`Nia`] is keyed once and holds what can be computed ahead. Lengths are whole octets, as in NAS; the functions
//! inside count bits only because the published test sets do.

use core::fmt;

use aes::Aes128Enc;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use zeroize::Zeroizing;

use crate::nas::IntegrityAlgorithm;
use crate::snow3g::{Snow3g, key_words};
use crate::zuc::Zuc;
use crate::{Bearer, Direction};

/// An integrity algorithm under a key.
#[derive(Clone)]
pub struct Nia(KeyedIntegrity);

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "a key schedule is what this holds; a holder of many boxes it")]
enum KeyedIntegrity {
    Nia0,
    Nia1(Zeroizing<[u32; 4]>),
    Nia2(Cmac),
    Nia3(Zeroizing<[u8; 16]>),
}

impl fmt::Debug for Nia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nia(…)")
    }
}

impl Nia {
    /// The algorithm under a key of 128 bits.
    pub fn new(algorithm: IntegrityAlgorithm, key: &[u8; 16]) -> Self {
        Self(match algorithm {
            IntegrityAlgorithm::Nia0 => KeyedIntegrity::Nia0,
            IntegrityAlgorithm::Nia1 => KeyedIntegrity::Nia1(Zeroizing::new(key_words(key))),
            IntegrityAlgorithm::Nia2 => KeyedIntegrity::Nia2(Cmac::new(key)),
            IntegrityAlgorithm::Nia3 => KeyedIntegrity::Nia3(Zeroizing::new(*key)),
        })
    }

    /// The message authentication code; zeros with NIA0.
    pub fn mac(&self, count: u32, bearer: Bearer, direction: Direction, message: &[u8]) -> [u8; 4] {
        self.mac_bits(count, bearer, direction, message, message.len() * 8)
    }

    /// Over the first `bits` of `message`, whose further bits in the last octet are zero.
    fn mac_bits(
        &self,
        count: u32,
        bearer: Bearer,
        direction: Direction,
        message: &[u8],
        bits: usize,
    ) -> [u8; 4] {
        let mac = match &self.0 {
            KeyedIntegrity::Nia0 => 0,
            KeyedIntegrity::Nia1(key) => nia1(key, count, bearer, direction, message, bits),
            KeyedIntegrity::Nia2(cmac) => {
                let second = u32::from(bearer.value()) << 27 | u32::from(direction.bit()) << 26;
                let head = u64::from(count) << 32 | u64::from(second); // TS 33.401 Annex B.2.3
                cmac.first_word(head, message, bits)
            }
            KeyedIntegrity::Nia3(key) => nia3(key, count, bearer, direction, message, bits),
        };
        mac.to_be_bytes()
    }
}

/// TS 35.215 §4, with FRESH as TS 33.401 Annex B.2.2 fills it.
fn nia1(
    key: &[u32; 4],
    count: u32,
    bearer: Bearer,
    direction: Direction,
    message: &[u8],
    bits: usize,
) -> u32 {
    let fresh = u32::from(bearer.value()) << 27;
    let direction = u32::from(direction.bit());
    let mut snow = Snow3g::new(*key, [fresh ^ direction << 15, count ^ direction << 31, fresh, count]);
    let [z1, z2, z3, z4, z5] = core::array::from_fn(|_| snow.next_word());
    let p = u64::from(z1) << 32 | u64::from(z2);
    let q = u64::from(z3) << 32 | u64::from(z4);
    let mut eval = 0;
    let by_p = Multiplier::new(p);
    for part in message.chunks(8) {
        let mut block = [0; 8];
        block[..part.len()].copy_from_slice(part);
        eval = by_p.times(eval ^ u64::from_be_bytes(block));
    }
    let eval = Multiplier::new(q).times(eval ^ bits as u64);
    (eval >> 32) as u32 ^ z5
}

/// Products with one factor in GF(2^64) modulo x^64 + x^4 + x^3 + x + 1 (TS 35.215 §4.3.2 to §4.3.4).
struct Multiplier {
    /// The factor times each polynomial of degree under 4.
    table: [u64; 16],
}

impl Multiplier {
    fn new(factor: u64) -> Self {
        let mut table = [0; 16];
        table[1] = factor;
        for i in 1..8 {
            table[2 * i] = mul_x(table[i]);
            table[2 * i + 1] = table[2 * i] ^ factor;
        }
        Self { table }
    }

    /// Four bits of `v` at a time, the most significant first.
    fn times(&self, v: u64) -> u64 {
        let mut sum = 0;
        for shift in (0..64).step_by(4).rev() {
            sum = mul_x(mul_x(mul_x(mul_x(sum)))) ^ self.table[(v >> shift & 0xf) as usize];
        }
        sum
    }
}

/// Multiplication by x, without a branch on the secret.
fn mul_x(v: u64) -> u64 {
    v << 1 ^ (0u64.wrapping_sub(v >> 63) & 0x1b)
}

/// TS 35.221 §4.
fn nia3(
    key: &[u8; 16],
    count: u32,
    bearer: Bearer,
    direction: Direction,
    message: &[u8],
    bits: usize,
) -> u32 {
    let half = u64::from(count) << 32 | u64::from(bearer.value()) << 27;
    let direction = u64::from(direction.bit());
    let second = half ^ direction << 63 ^ direction << 15; // DIRECTION in octets 8 and 14 of the IV
    let mut zuc = Zuc::new(key, &(u128::from(half) << 64 | u128::from(second)).to_be_bytes());
    // Words of the key stream: one before the message's place, the two that cover it.
    let (mut before, mut here, mut after) = (0, zuc.next_word(), zuc.next_word());
    let mut t = 0;
    for part in message.chunks(4) {
        let mut word = [0; 4];
        word[..part.len()].copy_from_slice(part);
        let word = u32::from_be_bytes(word);
        for i in 0..32 {
            let chosen = 0u32.wrapping_sub(word >> (31 - i) & 1);
            t ^= window(here, after, i) & chosen;
        }
        (before, here, after) = (here, after, zuc.next_word());
    }
    let at_length = match bits % 32 {
        0 => here,
        i => window(before, here, i as u32),
    };
    t ^ at_length ^ after
}

/// The 32 bits that begin at bit `i` of two words.
fn window(first: u32, second: u32, i: u32) -> u32 {
    ((u64::from(first) << 32 | u64::from(second)) << i >> 32) as u32
}

/// AES-CMAC with the message's first 64 bits apart (RFC 4493, NIST SP 800-38B).
#[derive(Clone)]
struct Cmac {
    aes: Aes128Enc,
    k1: Zeroizing<u128>,
    k2: Zeroizing<u128>,
}

impl Cmac {
    fn new(key: &[u8; 16]) -> Self {
        let aes = Aes128Enc::new(key.into());
        let double = |v: u128| v << 1 ^ (0u128.wrapping_sub(v >> 127) & 0x87);
        let k1 = double(encrypt(&aes, 0));
        Self { k1: Zeroizing::new(k1), k2: Zeroizing::new(double(k1)), aes }
    }

    /// The first 32 bits of the code of `head` and the first `bits` of `message`.
    fn first_word(&self, head: u64, message: &[u8], bits: usize) -> u32 {
        let (beside_head, rest) = message.split_at(message.len().min(8));
        let mut block = u128::from(head) << 64 | padded(beside_head) >> 64;
        let mut state = 0;
        for part in rest.chunks(16) {
            state = encrypt(&self.aes, state ^ block);
            block = padded(part);
        }
        // How much of the last block is filled: all of it, or a one and zeros follow.
        let last = match (bits + 64) % 128 {
            0 => block ^ *self.k1,
            used => block ^ (1 << 127 >> used) ^ *self.k2,
        };
        (encrypt(&self.aes, state ^ last) >> 96) as u32
    }
}

/// Up to 16 octets at the most significant end.
fn padded(part: &[u8]) -> u128 {
    let mut block = [0; 16];
    block[..part.len()].copy_from_slice(part);
    u128::from_be_bytes(block)
}

fn encrypt(aes: &Aes128Enc, block: u128) -> u128 {
    let mut block = block.to_be_bytes().into();
    aes.encrypt_block(&mut block);
    u128::from_be_bytes(block.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, cipher_input, lines};

    #[test] // TS 33.501 §5.11.1.2; TS 35.217, TS 33.401, TS 35.223: the published sets
    fn all_published_sets() {
        let sets = lines(include_str!("../testdata/nia.txt"));
        for set in &sets {
            let f = set.fields();
            let (key, count, bearer, direction, bits) = cipher_input(&f);
            let algorithm = match &set.name[..4] {
                "eia1" => IntegrityAlgorithm::Nia1,
                "eia2" => IntegrityAlgorithm::Nia2,
                _ => IntegrityAlgorithm::Nia3,
            };
            let mac = Nia::new(algorithm, &key).mac_bits(count, bearer, direction, &bytes(f[5]), bits);
            assert_eq!(mac.to_vec(), bytes(f[6]), "{}", set.name);
        }
        assert_eq!(sets.len(), 20);
    }
}
