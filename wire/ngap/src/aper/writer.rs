//! The cursor that bits are written with.

use super::{FRAGMENT, bits_for, octets_for};
use crate::ie::Criticality;

/// Appends bits to a vector of octets.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Bits used in the last octet; 0 when it is full.
    used: u32,
}

impl<'a> Writer<'a> {
    /// After what `out` already holds.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, used: 0 }
    }

    /// Writes a single bit.
    #[inline]
    pub(crate) fn bit(&mut self, v: bool) {
        self.bits(u64::from(v), 1);
    }

    /// The low `n <= 64` bits of `v`, unaligned.
    #[inline]
    pub(crate) fn bits(&mut self, v: u64, n: u32) {
        debug_assert!(n == 64 || v >> n == 0);
        // Most are few, and go into one octet.
        if self.used + n > 8 {
            return self.bits_of_many(v, n);
        }
        if self.used == 0 {
            if n == 0 {
                return;
            }
            self.out.push(0);
        }
        self.used += n;
        if let Some(last) = self.out.last_mut() {
            *last |= (v << (8 - self.used)) as u8;
        }
        self.used %= 8;
    }

    /// Bits that go into several octets.
    fn bits_of_many(&mut self, v: u64, n: u32) {
        let mut left = n;
        if let (true, Some(last)) = (self.used > 0, self.out.last_mut()) {
            left -= 8 - self.used;
            *last |= (v >> left) as u8;
        }
        let rest = (v << (64 - left)).to_be_bytes();
        self.out.extend_from_slice(&rest[..left.div_ceil(8) as usize]);
        self.used = left % 8;
    }

    /// Pads to the next octet boundary.
    #[inline]
    pub(crate) fn align(&mut self) {
        self.used = 0;
    }

    /// Aligns and writes octets.
    #[inline]
    pub(crate) fn octets(&mut self, v: &[u8]) {
        self.used = 0;
        self.out.extend_from_slice(v);
    }

    /// Aligns and writes the `n` low octets of a number.
    fn number(&mut self, v: u64, n: u32) {
        self.octets(&v.to_be_bytes()[8 - n.min(8) as usize..]);
    }

    /// A constrained whole number, `lo..=hi` (X.691 §11.5). A value outside is a bug of the caller; it is clamped.
    #[inline]
    pub(crate) fn whole(&mut self, v: u64, lo: u64, hi: u64) {
        debug_assert!((lo..=hi).contains(&v), "{v} is not within {lo}..={hi}");
        let v = v.clamp(lo, hi) - lo;
        let span = hi - lo;
        match span {
            0 => {}
            1..=254 => self.bits(v, bits_for(span + 1)),
            255 => self.octets(&[v as u8]),
            256..=0xffff => self.octets(&(v as u16).to_be_bytes()),
            _ => {
                let n = octets_for(v);
                self.bits(u64::from(n - 1), bits_for(u64::from(octets_for(span))));
                self.number(v, n);
            }
        }
    }

    /// A natural number as an unconstrained whole number (X.691 §11.8).
    pub(crate) fn unconstrained(&mut self, v: u64) {
        // A leading zero octet keeps the two's complement form positive.
        let n = octets_for(v);
        let sign = v.to_be_bytes()[8 - n as usize] & 0x80 != 0;
        self.octets(&[n as u8 + u8::from(sign)]);
        if sign {
            self.octets(&[0]);
        }
        self.number(v, n);
    }

    /// A normally small number (X.691 §11.6).
    pub(crate) fn normally_small(&mut self, v: u64) {
        if v < 64 {
            self.bits(v, 7);
        } else {
            self.bit(true);
            let n = octets_for(v);
            self.octets(&[n as u8]);
            self.number(v, n);
        }
    }

    /// Octets under a length determinant without upper bound, in fragments where they are many (X.691 §11.9.3.8).
    pub(crate) fn long_octets(&mut self, mut v: &[u8]) {
        self.used = 0;
        while v.len() >= FRAGMENT {
            let (part, rest) = v.split_at((v.len() / FRAGMENT).min(4) * FRAGMENT);
            self.long_count(part.len());
            self.out.extend_from_slice(part);
            v = rest;
        }
        self.long_count(v.len());
        self.out.extend_from_slice(v);
    }

    /// An aligned length determinant without upper bound: of a whole below 16384, or of one to four fragments.
    pub(crate) fn long_count(&mut self, n: usize) {
        self.used = 0;
        match n {
            0..=127 => self.out.push(n as u8),
            128..FRAGMENT => self.out.extend_from_slice(&(0x8000 | n as u16).to_be_bytes()),
            _ => self.out.push(0xc0 | (n / FRAGMENT) as u8),
        }
    }

    /// An open type (X.691 §11.2) that `f` fills. It is written in place and moved by one octet if it turns out
    /// to be 128 octets or longer; only one of 16384 or more is copied out and fragmented.
    #[inline]
    pub(crate) fn open(&mut self, f: impl FnOnce(&mut Writer<'_>)) {
        self.used = 0;
        self.out.push(0);
        self.fill(f);
    }

    /// A protocol IE (TS 38.413 §9.4.7) whose value `f` writes.
    #[inline]
    pub(crate) fn ie(&mut self, id: u16, criticality: Criticality, f: impl FnOnce(&mut Writer<'_>)) {
        let [high, low] = id.to_be_bytes();
        self.octets(&[high, low, (criticality as u8) << 6, 0]);
        self.fill(f);
    }

    /// An open type of which the octet for its length is there.
    #[inline]
    fn fill(&mut self, f: impl FnOnce(&mut Writer<'_>)) {
        let at = self.out.len() - 1;
        f(&mut Writer { out: self.out, used: 0 });
        let n = self.out.len() - at - 1;
        match n {
            // An empty encoding takes one zero octet (X.691 §11.1.3).
            0 => {
                self.out[at] = 1;
                self.out.push(0);
            }
            1..=127 => self.out[at] = n as u8,
            128..FRAGMENT => {
                let [high, low] = (0x8000 | n as u16).to_be_bytes();
                self.out[at] = high;
                self.out.insert(at + 1, low);
            }
            _ => {
                let content = self.out.split_off(at + 1);
                self.out.pop();
                self.long_octets(&content);
            }
        }
    }
}
