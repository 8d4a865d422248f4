//! Digests to compare octets.

/// A digest of octets, chained to the digest `before`; the same on every replica. It detects divergence and repetition; it is not
/// cryptographic.
pub fn digest(before: u64, octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks::<8>();
    let h = words.iter().fold(mix(before, octets.len() as u64), |h, word| mix(h, u64::from_be_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(h, u64::from_be_bytes(last))
}

/// Each bit of the word affects every bit of the result: higher bits by the product, lower bits by the fold.
fn mix(h: u64, word: u64) -> u64 {
    let h = (h ^ word ^ 0xcbf2_9ce4_8422_2325).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ h >> 32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_bit_and_each_length_changes_the_digest() {
        let octets = [0xa5; 100];
        let mut all: BTreeSet<u64> = (0..octets.len()).map(|n| digest(0, &octets[..n])).collect();
        let zeros = (0..100).map(|n| digest(0, &[0; 100][..n]));
        all.extend(zeros.skip(1)); // the empty string is in both
        for bit in 0..octets.len() * 8 {
            let mut changed = octets;
            changed[bit / 8] ^= 1 << (bit % 8);
            all.insert(digest(0, &changed));
        }
        all.extend([digest(0, &octets), digest(1, &octets)]);
        assert_eq!(all.len(), 100 + 99 + 800 + 2);
    }
}
