//! AES-128 in counter mode (NIST SP 800-38A), for NEA2 and for the SUCI profiles.

use aes::Aes128Enc;
use aes::cipher::BlockCipherEncrypt;

/// Blocks enciphered at a time: what AES instructions keep in flight.
const PARALLEL: usize = 8;

/// Adds the key stream that begins at `counter` (the whole block, counting modulo 2^128) to `data`.
pub(crate) fn apply(aes: &Aes128Enc, mut counter: u128, data: &mut [u8]) {
    for chunk in data.chunks_mut(16 * PARALLEL) {
        let mut blocks = [aes::Block::default(); PARALLEL];
        let blocks = &mut blocks[..chunk.len().div_ceil(16)];
        for block in blocks.iter_mut() {
            *block = counter.to_be_bytes().into();
            counter = counter.wrapping_add(1);
        }
        aes.encrypt_blocks(blocks);
        for (part, key) in chunk.chunks_mut(16).zip(blocks) {
            for (octet, key) in part.iter_mut().zip(key.iter()) {
                *octet ^= key;
            }
        }
    }
}
