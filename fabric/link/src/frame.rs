//! The octets of a link: first a greeting each way, then frames.
//!
//! ```text
//! greeting   "WBLK", version, protection, length (2 octets), body
//! frame      length (4 octets), octets
//! control    0x80000000 + length (4 octets), kind, fields
//! record     length (2 octets), sealed octets
//! ```
//! A control frame is for this crate: where the peer is in the host's shared memory, and that the frames that follow go through a ring of it.
//!
//! Without a key the body is the hello, and frames follow. With one it is a message of the handshake, and records follow whose contents,
//! one after the other, are the frames. Numbers in network order. A parser reads what has come so far; a length alone allocates nothing.

use crate::LinkSettings;
use crate::seal::BODY_OCTETS_MAX;

/// Octets in a hello, at most.
pub const HELLO_OCTETS_MAX: usize = 1024;

/// Octets before a greeting's body.
pub(crate) const GREETING_HEADER: usize = 8;
/// Octets before a frame.
pub(crate) const FRAME_HEADER: usize = 4;

const MAGIC: [u8; 4] = *b"WBLK";
const VERSION: u8 = 2;
/// Of a frame's length: it is a control frame.
const CONTROL: u32 = 1 << 31;
const KIND_PLACE: u8 = 1;
const KIND_RING: u8 = 2;
const KIND_MAPPED: u8 = 3;

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
    pub(crate) fn of(settings: &LinkSettings) -> Self {
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

/// Where a process is in the shared memory of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShmAddress {
    /// Number of the pool.
    pub(crate) pool: u64,
    /// Function whose area it is.
    pub(crate) function: u8,
    /// Counts the processes that have had the area.
    pub(crate) incarnation: u32,
}

/// A control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Where the peer is.
    Place(ShmAddress),
    /// All frames that follow go through the ring from the peer, under this generation.
    Ring(u32),
    /// The peer reads the area of this end, which it has named.
    Mapped,
}

/// Appends a control frame.
pub(crate) fn write_control(control: Control, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER]);
    match control {
        Control::Place(ShmAddress { pool, function, incarnation }) => {
            out.push(KIND_PLACE);
            out.extend_from_slice(&pool.to_be_bytes());
            out.push(function);
            out.extend_from_slice(&incarnation.to_be_bytes());
        }
        Control::Ring(generation) => {
            out.push(KIND_RING);
            out.extend_from_slice(&generation.to_be_bytes());
        }
        Control::Mapped => out.push(KIND_MAPPED),
    }
    let length = CONTROL | (out.len() - begin - FRAME_HEADER) as u32;
    out[begin..begin + FRAME_HEADER].copy_from_slice(&length.to_be_bytes());
}

/// The longest control frame's octets.
const CONTROL_OCTETS_MAX: usize = 14;

fn control(octets: &[u8]) -> Option<Control> {
    let (kind, fields) = octets.split_first()?;
    match (*kind, fields) {
        (KIND_PLACE, [rest @ .., a, b, c, d]) => {
            let (function, pool) = rest.split_last()?;
            let pool = u64::from_be_bytes(pool.try_into().ok()?);
            let incarnation = u32::from_be_bytes([*a, *b, *c, *d]);
            Some(Control::Place(ShmAddress { pool, function: *function, incarnation }))
        }
        (KIND_RING, fields) => Some(Control::Ring(u32::from_be_bytes(fields.try_into().ok()?))),
        (KIND_MAPPED, []) => Some(Control::Mapped),
        _ => None,
    }
}

/// What a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkItem<'a> {
    Frame(&'a [u8]),
    Control(Control),
}

/// Octets that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadFrame {
    /// A frame longer than the bound.
    TooLong,
    /// A control frame that none sends, or at a time when none does.
    Control,
}

/// Hands out each complete frame. Returns how many octets they took.
pub(crate) fn frames(
    octets: &[u8],
    octets_max: usize,
    mut each: impl FnMut(LinkItem<'_>) -> Result<(), BadFrame>,
) -> Result<usize, BadFrame> {
    let mut taken = 0;
    while let Some((header, rest)) = octets[taken..].split_first_chunk::<FRAME_HEADER>() {
        let header = u32::from_be_bytes(*header);
        let length = (header & !CONTROL) as usize;
        let is_control = header & CONTROL != 0;
        if length > octets_max || is_control && length > CONTROL_OCTETS_MAX {
            return Err(if is_control { BadFrame::Control } else { BadFrame::TooLong });
        }
        let Some(frame) = rest.get(..length) else { break };
        each(match is_control {
            true => LinkItem::Control(control(frame).ok_or(BadFrame::Control)?),
            false => LinkItem::Frame(frame),
        })?;
        taken += FRAME_HEADER + length;
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(octets: &[u8], max: usize) -> (Vec<Vec<u8>>, Result<usize, BadFrame>) {
        let mut all = Vec::new();
        let end = frames(octets, max, |item| {
            all.extend(if let LinkItem::Frame(f) = item { Some(f.to_vec()) } else { None });
            Ok(())
        });
        (all, end)
    }

    #[test]
    fn control_frames_come_back_and_others_are_refused() {
        let place = Control::Place(ShmAddress { pool: u64::MAX - 1, function: 3, incarnation: 7 });
        let of = |octets: &[u8]| {
            let mut came = None;
            let end = frames(octets, 100, |item| {
                came = if let LinkItem::Control(control) = item { Some(control) } else { None };
                Ok(())
            });
            (came, end)
        };
        for sent in [place, Control::Ring(9), Control::Mapped] {
            let mut octets = Vec::new();
            write_control(sent, &mut octets);
            assert_eq!(of(&octets), (Some(sent), Ok(octets.len())));
            assert_eq!(of(&octets[..octets.len() - 1]), (None, Ok(0)), "it is incomplete");
            octets[4] = 0x77;
            assert_eq!(of(&octets), (None, Err(BadFrame::Control)), "no such kind");
        }
        assert_eq!(of(&[0x80, 0, 0, 0]), (None, Err(BadFrame::Control)));
        assert_eq!(of(&[0x80, 0, 0, 15]), (None, Err(BadFrame::Control)), "longer than any");
        assert_eq!(of(&[0x80, 0, 0, 2, KIND_RING, 0]), (None, Err(BadFrame::Control)), "too short");
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
        assert_eq!(taken(&octets[..4], 9).1, Err(BadFrame::TooLong));
        assert_eq!(taken(&[0x7f, 0xff, 0xff, 0xff], 0x7fff_fffe).1, Err(BadFrame::TooLong));
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
