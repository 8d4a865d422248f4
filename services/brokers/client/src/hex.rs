//! Hexadecimal text of octets, and back.

use core::fmt::Write;

/// Octets as lower-case hexadecimal digits.
pub fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::with_capacity(2 * octets.len()), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// The octets of hexadecimal digits. `None` for anything else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |b: u8| char::from(b).to_digit(16).map(|v| v as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_text_reads_back() {
        assert_eq!(hex(&[0, 0xaf]), "00af");
        assert_eq!(unhex("00AF"), Some(vec![0, 0xaf]));
        assert!(unhex("0").is_none() && unhex("0g").is_none());
    }
}
