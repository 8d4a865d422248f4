//! Decoding errors, and the cursor over received octets.

use core::fmt;

/// The kind of a decoding error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeErrorKind {
    /// The octets end before the value does.
    Truncated,
    /// A value that the clause does not allow here.
    InvalidValue,
    /// A length that contradicts the clause or its surroundings.
    InvalidLength,
    /// A mandatory information element is absent.
    MissingMandatory,
    /// A message type, procedure or choice that is not known here.
    Unknown,
    /// More items, or deeper nesting, than the bound allows.
    TooMany,
    /// Octets are left over where none may be.
    TrailingOctets,
}

/// Bad octets: the kind, the information element, and the offset in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// What was wrong.
    pub kind: DecodeErrorKind,
    /// The information element or field, in the standard's words (`"5GS mobile identity"`).
    pub ie: &'static str,
    /// Offset of the first octet of the trouble, from the start of the decoded octets.
    pub offset: usize,
}

impl DecodeError {
    /// An error of `kind` in `ie` at `offset`.
    pub const fn new(kind: DecodeErrorKind, ie: &'static str, offset: usize) -> Self {
        Self { kind, ie, offset }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            DecodeErrorKind::Truncated => "is truncated",
            DecodeErrorKind::InvalidValue => "has an invalid value",
            DecodeErrorKind::InvalidLength => "has an invalid length",
            DecodeErrorKind::MissingMandatory => "is mandatory and missing",
            DecodeErrorKind::Unknown => "is unknown",
            DecodeErrorKind::TooMany => "has too many items",
            DecodeErrorKind::TrailingOctets => "has octets left over",
        };
        write!(f, "{} {} at octet {}", self.ie, what, self.offset)
    }
}

impl core::error::Error for DecodeError {}

/// A cursor over received octets; every read is checked and names what it was reading.
///
/// `base` lets a nested reader report offsets of the whole message.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    octets: &'a [u8],
    at: usize,
    base: usize,
}

impl<'a> Reader<'a> {
    /// A reader over a whole message.
    pub const fn new(octets: &'a [u8]) -> Self {
        Self { octets, at: 0, base: 0 }
    }

    /// A reader over a part that begins at `base` of the whole.
    pub const fn nested(octets: &'a [u8], base: usize) -> Self {
        Self { octets, at: 0, base }
    }

    /// Offset of the next octet in the whole message.
    pub const fn offset(&self) -> usize {
        self.base + self.at
    }

    /// How many octets are left.
    pub const fn remaining(&self) -> usize {
        self.octets.len() - self.at
    }

    /// Whether all octets were read.
    pub const fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The octets not yet read.
    pub fn rest(&self) -> &'a [u8] {
        &self.octets[self.at..]
    }

    /// The next octet, unread.
    pub fn peek(&self) -> Option<u8> {
        self.octets.get(self.at).copied()
    }

    /// An error of `kind` at this place.
    pub const fn error(&self, kind: DecodeErrorKind, ie: &'static str) -> DecodeError {
        DecodeError::new(kind, ie, self.offset())
    }

    /// Takes `n` octets.
    pub fn take(&mut self, n: usize, ie: &'static str) -> Result<&'a [u8], DecodeError> {
        let part = self.octets.get(self.at..).and_then(|o| o.get(..n));
        let part = part.ok_or_else(|| self.error(DecodeErrorKind::Truncated, ie))?;
        self.at += n;
        Ok(part)
    }

    /// Takes all that is left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        let rest = &self.octets[self.at..];
        self.at = self.octets.len();
        rest
    }

    /// Takes `n` octets as a reader of their own.
    pub fn sub(&mut self, n: usize, ie: &'static str) -> Result<Reader<'a>, DecodeError> {
        let base = self.offset();
        Ok(Reader::nested(self.take(n, ie)?, base))
    }

    /// Takes `N` octets as an array.
    pub fn array<const N: usize>(&mut self, ie: &'static str) -> Result<[u8; N], DecodeError> {
        let part = self.take(N, ie)?;
        let mut out = [0; N];
        out.copy_from_slice(part);
        Ok(out)
    }

    /// Reads a single octet.
    pub fn u8(&mut self, ie: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(ie)?[0])
    }

    /// Two octets, big-endian.
    pub fn u16(&mut self, ie: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array(ie)?))
    }

    /// Three octets, big-endian.
    pub fn u24(&mut self, ie: &'static str) -> Result<u32, DecodeError> {
        let [a, b, c] = self.array(ie)?;
        Ok(u32::from_be_bytes([0, a, b, c]))
    }

    /// Four octets, big-endian.
    pub fn u32(&mut self, ie: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array(ie)?))
    }

    /// Eight octets, big-endian.
    pub fn u64(&mut self, ie: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array(ie)?))
    }
}
