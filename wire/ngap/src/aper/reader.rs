//! The cursor over received bits.

use std::borrow::Cow;

use whimbrel_ids::{DecodeError, DecodeErrorKind};

use super::{bits_for, octets_for};

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The bits break the transfer syntax.
    Syntax(DecodeError),
    /// The value is of a later release, or outside its logical range: the criticality of the information element
    /// around it decides (TS 38.413 §10.3.4).
    NotComprehended,
    /// An unknown extension of this id that the sender marked "reject".
    RejectedExtension(u16),
}

impl Fault {
    /// As an error of the octets, for values that are read on their own.
    pub(crate) fn into_decode_error(self, ie: &'static str) -> DecodeError {
        match self {
            Fault::Syntax(e) => e,
            Fault::NotComprehended | Fault::RejectedExtension(_) => {
                DecodeError::new(DecodeErrorKind::Unknown, ie, 0)
            }
        }
    }
}

/// A cursor over bits; every read is checked.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    octets: &'a [u8],
    /// Position in bits.
    at: usize,
    /// Offset of `octets` in the whole message.
    base: usize,
    /// What is being read, for errors.
    pub(crate) ie: &'static str,
}

impl<'a> Reader<'a> {
    /// Over octets that begin at `base` of the whole message.
    pub(crate) fn new(octets: &'a [u8], base: usize, ie: &'static str) -> Self {
        Self { octets, at: 0, base, ie }
    }

    /// Offset in the whole message of the octet that holds the next bit.
    pub(crate) fn offset(&self) -> usize {
        self.base + self.at / 8
    }

    /// A break of the transfer syntax here.
    #[cold]
    pub(crate) fn fault(&self, kind: DecodeErrorKind) -> Fault {
        Fault::Syntax(DecodeError::new(kind, self.ie, self.offset()))
    }

    /// Whether only padding bits of the last octet are left.
    #[cfg(feature = "serde")]
    pub(crate) fn is_at_last_octet(&self) -> bool {
        self.at.div_ceil(8) >= self.octets.len()
    }

    /// How many whole or begun octets are left.
    pub(crate) fn remaining(&self) -> usize {
        self.octets.len() - self.at / 8
    }

    /// Reads a single bit.
    #[inline]
    pub(crate) fn bit(&mut self) -> Result<bool, Fault> {
        let octet = self.octets.get(self.at / 8).ok_or_else(|| self.fault(DecodeErrorKind::Truncated))?;
        let bit = octet >> (7 - self.at % 8) & 1;
        self.at += 1;
        Ok(bit == 1)
    }

    /// Up to 64 bits, unaligned, as a number.
    #[inline]
    pub(crate) fn bits(&mut self, n: u32) -> Result<u64, Fault> {
        debug_assert!(n <= 64);
        if n == 0 {
            return Ok(0);
        }
        // Most fields are within one octet.
        let end = self.at % 8 + n as usize;
        if end > 8 {
            return self.bits_of_many(n);
        }
        let octet = self.octets.get(self.at / 8).ok_or_else(|| self.fault(DecodeErrorKind::Truncated))?;
        self.at += n as usize;
        Ok(u64::from(*octet) >> (8 - end) & ((1 << n) - 1))
    }

    /// Bits in several octets.
    #[inline]
    fn bits_of_many(&mut self, n: u32) -> Result<u64, Fault> {
        let (from, end) = (self.at / 8, self.at % 8 + n as usize);
        let window = match self.octets.get(from..) {
            Some(&[a, b, ..]) if end <= 16 => u32::from_be_bytes([a, b, 0, 0]),
            Some(&[a, b, c, ..]) if end <= 24 => u32::from_be_bytes([a, b, c, 0]),
            _ => return self.bits_of_octets(n),
        };
        self.at += n as usize;
        Ok(u64::from(window >> (32 - end) & ((1 << n) - 1)))
    }

    /// Bits in more than three octets, or beyond the end.
    fn bits_of_octets(&mut self, n: u32) -> Result<u64, Fault> {
        let mut v = 0u64;
        let mut left = n as usize;
        while left > 0 {
            let octet = self.octets.get(self.at / 8).ok_or_else(|| self.fault(DecodeErrorKind::Truncated))?;
            let have = 8 - self.at % 8;
            let take = have.min(left);
            let part = u64::from(*octet) >> (have - take) & ((1 << take) - 1);
            v = v << take | part;
            self.at += take;
            left -= take;
        }
        Ok(v)
    }

    /// Moves to the next octet boundary.
    #[inline]
    pub(crate) fn align(&mut self) {
        self.at = self.at.next_multiple_of(8);
    }

    /// Aligns and takes `n` octets.
    #[inline]
    pub(crate) fn octets(&mut self, n: usize) -> Result<&'a [u8], Fault> {
        self.align();
        let from = self.at / 8;
        let part = self.octets.get(from..).and_then(|o| o.get(..n));
        let part = part.ok_or_else(|| self.fault(DecodeErrorKind::Truncated))?;
        self.at += n * 8;
        Ok(part)
    }

    /// Aligns and takes `N` octets.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.align();
        let part = self.octets.get(self.at / 8..).and_then(<[u8]>::first_chunk);
        let part = part.ok_or_else(|| self.fault(DecodeErrorKind::Truncated))?;
        self.at += N * 8;
        Ok(*part)
    }

    /// Aligns and takes `n <= 8` octets as a number.
    pub(crate) fn number(&mut self, n: usize) -> Result<u64, Fault> {
        Ok(self.octets(n)?.iter().fold(0, |v, o| v << 8 | u64::from(*o)))
    }

    /// A constrained whole number, `lo..=hi` (X.691 §11.5).
    #[inline]
    pub(crate) fn whole(&mut self, lo: u64, hi: u64) -> Result<u64, Fault> {
        let span = hi - lo;
        let v = match span {
            0 => 0,
            1..=254 => self.bits(bits_for(span + 1))?,
            255 => u64::from(self.array::<1>()?[0]),
            256..=0xffff => u64::from(u16::from_be_bytes(self.array()?)),
            _ => self.indefinite(span)?,
        };
        if v > span { Err(self.fault(DecodeErrorKind::InvalidValue)) } else { Ok(lo + v) }
    }

    /// A whole number with its length in octets (X.691 §11.5.7.4).
    fn indefinite(&mut self, span: u64) -> Result<u64, Fault> {
        let n = 1 + self.bits(bits_for(u64::from(octets_for(span))))?;
        if n > 8 {
            return Err(self.fault(DecodeErrorKind::InvalidLength));
        }
        self.number(n as usize)
    }

    /// An unconstrained whole number (X.691 §11.8) that a caller wants as a natural one of 64 bits.
    pub(crate) fn unconstrained(&mut self) -> Result<u64, Fault> {
        let n = match self.length()? {
            Length::Whole(n) => n,
            Length::Fragment(_) => return Err(self.fault(DecodeErrorKind::InvalidLength)),
        };
        let octets = self.octets(n)?;
        if octets.first().is_some_and(|o| o & 0x80 != 0) {
            return Err(Fault::NotComprehended);
        }
        let significant = octets.iter().skip_while(|o| **o == 0);
        if significant.clone().count() > 8 {
            return Err(Fault::NotComprehended);
        }
        Ok(significant.fold(0, |v, o| v << 8 | u64::from(*o)))
    }

    /// A normally small number (X.691 §11.6).
    pub(crate) fn normally_small(&mut self) -> Result<u64, Fault> {
        if !self.bit()? {
            return self.bits(6);
        }
        match self.length()? {
            Length::Whole(n @ 0..=8) => self.number(n),
            _ => Err(self.fault(DecodeErrorKind::InvalidLength)),
        }
    }

    /// A length determinant without upper bound (X.691 §11.9.3.5 to 11.9.3.8).
    #[inline]
    fn length(&mut self) -> Result<Length, Fault> {
        let [first] = self.array()?;
        let low = usize::from(first & 0x3f);
        match first >> 6 {
            0 | 1 => Ok(Length::Whole(usize::from(first))),
            2 => Ok(Length::Whole(low << 8 | usize::from(self.array::<1>()?[0]))),
            _ => match low {
                k @ 1..=4 => Ok(Length::Fragment(k * super::FRAGMENT)),
                _ => Err(self.fault(DecodeErrorKind::InvalidLength)),
            },
        }
    }

    /// A count under a length determinant without upper bound, and whether it is the last.
    pub(crate) fn long_count(&mut self) -> Result<(usize, bool), Fault> {
        self.align();
        Ok(match self.length()? {
            Length::Whole(n) => (n, true),
            Length::Fragment(n) => (n, false),
        })
    }

    /// Octets under a length determinant without upper bound; copied only where they came in fragments.
    #[inline(always)] // A `Cow` that is returned through memory costs as much as the rest of an IE's head.
    pub(crate) fn long_octets(&mut self) -> Result<Cow<'a, [u8]>, Fault> {
        match self.length()? {
            Length::Whole(n) => Ok(Cow::Borrowed(self.octets(n)?)),
            Length::Fragment(n) => self.fragments(n).map(Cow::Owned),
        }
    }

    /// The content of fragments, of which the first has `n` octets.
    #[cold]
    fn fragments(&mut self, n: usize) -> Result<Vec<u8>, Fault> {
        let mut whole = self.octets(n)?.to_vec();
        // Each fragment takes 16384 octets of the input or more, so the input bounds the loop and the copy.
        loop {
            match self.length()? {
                Length::Whole(n) => {
                    whole.extend_from_slice(self.octets(n)?);
                    return Ok(whole);
                }
                Length::Fragment(n) => whole.extend_from_slice(self.octets(n)?),
            }
        }
    }

    /// A protocol IE (TS 38.413 §9.4.7): its id, the octet that begins with its criticality, and the octets of its value, which are put into
    /// `fragments` instead if they come in such.
    #[inline]
    pub(crate) fn ie(&mut self, fragments: &mut Vec<u8>) -> Result<(u16, u8, &'a [u8]), Fault> {
        fragments.clear();
        self.align();
        // Nearly all are short.
        if let Some(&[high, low, criticality, n @ 0..=127, ref rest @ ..]) = self.octets.get(self.at / 8..)
            && let Some(value) = rest.get(..usize::from(n))
        {
            self.at += (4 + value.len()) * 8;
            return Ok((u16::from_be_bytes([high, low]), criticality, value));
        }
        let [high, low, criticality] = self.array()?;
        let value = match self.length()? {
            Length::Whole(n) => self.octets(n)?,
            Length::Fragment(n) => {
                *fragments = self.fragments(n)?;
                &[]
            }
        };
        Ok((u16::from_be_bytes([high, low]), criticality, value))
    }

    /// An open type (X.691 §11.2): its octets are read by `f` as a reader of their own.
    #[inline]
    pub(crate) fn open<T>(
        &mut self,
        f: impl FnOnce(&mut Reader<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let octets = self.long_octets()?;
        let base = self.offset().saturating_sub(octets.len());
        f(&mut Reader::new(&octets, base, self.ie))
    }

    /// Skips the unknown extension additions of a sequence: a bit map and open types.
    pub(crate) fn skip_additions(&mut self) -> Result<(), Fault> {
        let n = if self.bit()? {
            match self.length()? {
                Length::Whole(n) => n as u64,
                Length::Fragment(_) => return Err(self.fault(DecodeErrorKind::InvalidLength)),
            }
        } else {
            self.bits(6)? + 1
        };
        let mut present = 0u64;
        for _ in 0..n {
            present += u64::from(self.bit()?);
        }
        for _ in 0..present {
            self.long_octets()?;
        }
        Ok(())
    }
}

/// A length determinant.
enum Length {
    /// This many, and no more.
    Whole(usize),
    /// This many, and another length determinant after them.
    Fragment(usize),
}
