//! Values of DER (X.690 §8.1), as far as certificates and keys need it.

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;

/// The contents of a value with this tag, and what follows it.
pub(crate) fn value(octets: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, contents, rest) = split(octets)?;
    (found == tag).then_some((contents, rest))
}

/// Tags and contents of values that follow each other, up to the first that is none.
pub(crate) fn values(octets: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = octets;
    core::iter::from_fn(move || {
        let (tag, contents, after) = split(rest)?;
        rest = after;
        Some((tag, contents))
    })
}

fn split(octets: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = octets.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), rest.get(2..)?),
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*tag, contents, rest))
}
