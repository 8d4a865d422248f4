//! Checksums of the Internet (RFC 1071).

/// The one's complement sum of big-endian words of 16 bits, not folded.
///
/// It is the same in any order of octets, but for the order of the result's (RFC 1071 §2 B), and the same over words of 32
/// bits once folded: so the loop has nothing to turn round, and the compiler makes vector instructions of it.
pub(crate) fn sum(octets: &[u8], start: u64) -> u64 {
    let (words, rest) = octets.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let native: u64 = words.iter().chain([&last]).map(|w| u64::from(u32::from_ne_bytes(*w))).sum();
    start + u64::from(u16::from_be(folded(native)))
}

/// A sum as 16 bits, of which the checksum is the complement.
pub(crate) fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
