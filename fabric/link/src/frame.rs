//! The octets of a link: first a greeting each way, then frames.
//!
//! ```text
//! greeting   "WBLK", version, protection, length (2 octets), body
//! frame      length (4 octets), octets
//! record     length (2 octets), sealed octets
//! ```
//! Without a key the body is the hello, and frames follow. With one it is a message of the handshake, and records follow whose contents,
//! one after the other, are the frames. Numbers in network order. A parser reads what has come so far; a length alone allocates nothing.

use crate::Settings;
use crate::seal::BODY_OCTETS_MAX;

/// Octets in a hello, at most.
pub const HELLO_OCTETS_MAX: usize = 1024;

/// Octets before a greeting's body.
pub(crate) const GREETING_HEADER: usize = 8;
/// Octets before a frame.
pub(crate) const FRAME_HEADER: usize = 4;

const MAGIC: [u8; 4] = *b"WBLK";
const VERSION: u8 = 1;

/// The protection of a link, which must be the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Nothing: frames travel as they are.
    Plain = 0,
    /// The cluster's key.
    Sealed = 1,
}

impl Protection {
    /// The protection of these settings.
    pub(crate) fn of(settings: &Settings) -> Self {
        if settings.keys.is_empty() { Protection::Plain } else { Protection::Sealed }
    }

    fn body_octets_max(self) -> usize {
        match self {
            Protection::Plain => HELLO_OCTETS_MAX,
            Protection::Sealed => BODY_OCTETS_MAX,
        }
    }
}

/// A greeting that cannot be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadGreeting {
    /// The peer uses another protocol.
    Foreign,
    /// The peer uses another version of this protocol.
    Version,
    /// The peer uses a key and this end none, or the reverse.
    Protection,
    /// The hello is too long.
    TooLong,
}

/// How each greeting begins.
pub(crate) fn preamble(protection: Protection) -> [u8; 6] {
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, VERSION, protection as u8]
}

/// Appends a greeting. The hello's length was checked when it was set.
pub(crate) fn write_greeting(protection: Protection, body: &[u8], out: &mut Vec<u8>) {
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&preamble(protection));
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&body[..usize::from(length)]);
}

/// The body of a greeting; `None` while it is incomplete.
///
/// Errors: at the first octet that no greeting has.
pub(crate) fn greeting(octets: &[u8], protection: Protection) -> Result<Option<&[u8]>, BadGreeting> {
    for (at, (octet, expected)) in octets.iter().zip(preamble(protection)).enumerate() {
        if *octet != expected {
            return Err(match at {
                ..4 => BadGreeting::Foreign,
                4 => BadGreeting::Version,
                _ => BadGreeting::Protection,
            });
        }
    }
    let Some((header, rest)) = octets.split_at_checked(GREETING_HEADER) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([header[6], header[7]]));
    if length > protection.body_octets_max() {
        return Err(BadGreeting::TooLong);
    }
    Ok(rest.get(..length))
}

/// Appends a frame. Its length was checked against the bound, which fits.
pub(crate) fn write_frame(octets: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(octets.len() as u32).to_be_bytes());
    out.extend_from_slice(octets);
}

/// A frame longer than the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Hands out each complete frame. Returns how many octets they took.
pub(crate) fn frames(
    octets: &[u8],
    octets_max: usize,
    mut each: impl FnMut(&[u8]),
) -> Result<usize, TooLong> {
    let mut taken = 0;
    while let Some((header, rest)) = octets[taken..].split_first_chunk::<FRAME_HEADER>() {
        let length = u32::from_be_bytes(*header) as usize;
        if length > octets_max {
            return Err(TooLong);
        }
        let Some(frame) = rest.get(..length) else { break };
        each(frame);
        taken += FRAME_HEADER + length;
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(octets: &[u8], max: usize) -> (Vec<Vec<u8>>, Result<usize, TooLong>) {
        let mut all = Vec::new();
        let end = frames(octets, max, |f| all.push(f.to_vec()));
        (all, end)
    }

    #[test]
    fn frames_come_back_however_they_are_cut() {
        let sent: Vec<Vec<u8>> = [0, 1, 5, 300].map(|n| vec![n as u8; n]).to_vec();
        let mut octets = Vec::new();
        sent.iter().for_each(|f| write_frame(f, &mut octets));
        for cut in 0..=octets.len() {
            let (mut all, end) = taken(&octets[..cut], 300);
            let (rest, end) = taken(&octets[end.unwrap()..], 300);
            all.extend(rest);
            assert_eq!((all, end.is_ok()), (sent.clone(), true));
        }
    }

    #[test]
    fn a_frame_beyond_the_bound_is_refused_by_its_length_alone() {
        let mut octets = Vec::new();
        write_frame(&[1; 10], &mut octets);
        assert_eq!(taken(&octets, 10).1, Ok(14));
        assert_eq!(taken(&octets[..4], 9).1, Err(TooLong));
        assert_eq!(taken(&[0xff; 4], u32::MAX as usize - 1).1, Err(TooLong));
    }

    #[test]
    fn a_greeting_is_known_by_its_first_octets() {
        let plain = Protection::Plain;
        let mut octets = Vec::new();
        write_greeting(plain, b"cpf 3", &mut octets);
        for cut in 0..octets.len() {
            assert_eq!(greeting(&octets[..cut], plain), Ok(None));
        }
        assert_eq!(greeting(&octets, plain), Ok(Some(&b"cpf 3"[..])));
        assert_eq!(greeting(&octets, Protection::Sealed), Err(BadGreeting::Protection));
        assert_eq!(greeting(b"G", plain), Err(BadGreeting::Foreign));
        let wrong = [
            (3, BadGreeting::Foreign),
            (4, BadGreeting::Version),
            (5, BadGreeting::Protection),
            (6, BadGreeting::TooLong),
        ];
        for (at, why) in wrong {
            let mut other = octets.clone();
            other[at] ^= 0x40;
            assert_eq!(greeting(&other, plain), Err(why));
        }
    }
}
