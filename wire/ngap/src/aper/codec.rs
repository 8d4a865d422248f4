//! The ASN.1 types that NGAP uses, as codecs of plain Rust values.

use core::marker::PhantomData;
use std::borrow::Cow;

use whimbrel_ids::DecodeErrorKind;

#[cfg(any(test, feature = "samples"))]
use super::sample::Source;
use super::{Aper, Codec, FRAGMENT, Fault, Reader, Writer};
use crate::container::read_extensions;

/// The form that the type itself defines.
pub(crate) struct Own;

impl<T: Aper> Codec<T> for Own {
    fn read(r: &mut Reader<'_>) -> Result<T, Fault> {
        T::read(r)
    }
    fn write(v: &T, w: &mut Writer<'_>) {
        v.write(w);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> T {
        T::sample(s)
    }
}

/// `INTEGER (LO..HI)`.
pub(crate) struct Int<const LO: u64, const HI: u64>;

/// `INTEGER (LO..HI, ...)`.
pub(crate) struct IntExt<const LO: u64, const HI: u64>;

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl<const LO: u64, const HI: u64> Codec<$t> for Int<LO, HI> {
            fn read(r: &mut Reader<'_>) -> Result<$t, Fault> {
                <$t>::try_from(r.whole(LO, HI)?).map_err(|_| Fault::NotComprehended)
            }
            fn write(v: &$t, w: &mut Writer<'_>) {
                w.whole(u64::from(*v), LO, HI);
            }
            #[cfg(any(test, feature = "samples"))]
            fn sample(s: &mut Source) -> $t {
                s.within(LO, HI) as $t
            }
        }
        impl<const LO: u64, const HI: u64> Codec<$t> for IntExt<LO, HI> {
            fn read(r: &mut Reader<'_>) -> Result<$t, Fault> {
                let v = if r.bit()? { r.unconstrained()? } else { r.whole(LO, HI)? };
                <$t>::try_from(v).map_err(|_| Fault::NotComprehended)
            }
            fn write(v: &$t, w: &mut Writer<'_>) {
                let v = u64::from(*v);
                let extended = !(LO..=HI).contains(&v);
                w.bit(extended);
                if extended { w.unconstrained(v) } else { w.whole(v, LO, HI) }
            }
            #[cfg(any(test, feature = "samples"))]
            fn sample(s: &mut Source) -> $t {
                // Beyond the root where the type has room for it.
                let hi = if s.number().is_multiple_of(8) { u64::from(<$t>::MAX).min(i64::MAX as u64) } else { HI };
                s.within(LO, hi) as $t
            }
        }
    )* };
}
integers!(u8, u16, u32, u64);

/// `BIT STRING (SIZE (N))` with `N <= 64`, as a right-aligned number.
pub(crate) struct Bits<const N: u32>;

/// `BIT STRING (SIZE (N, ...))` with `N <= 64`, as a right-aligned number.
pub(crate) struct BitsExt<const N: u32>;

macro_rules! bit_strings {
    ($($t:ty),*) => { $(
        impl<const N: u32> Codec<$t> for Bits<N> {
            fn read(r: &mut Reader<'_>) -> Result<$t, Fault> {
                if N > 16 {
                    r.align();
                }
                let v = if N > 16 && N % 8 == 0 { r.number(N as usize / 8)? } else { r.bits(N)? };
                <$t>::try_from(v).map_err(|_| Fault::NotComprehended)
            }
            fn write(v: &$t, w: &mut Writer<'_>) {
                if N > 16 {
                    w.align();
                }
                w.bits(u64::from(*v) & (u64::MAX >> (64 - N)), N);
            }
            #[cfg(any(test, feature = "samples"))]
            fn sample(s: &mut Source) -> $t {
                s.within(0, u64::MAX >> (64 - N)) as $t
            }
        }
        impl<const N: u32> Codec<$t> for BitsExt<N> {
            fn read(r: &mut Reader<'_>) -> Result<$t, Fault> {
                if r.bit()? {
                    return Err(Fault::NotComprehended);
                }
                <Bits<N> as Codec<$t>>::read(r)
            }
            fn write(v: &$t, w: &mut Writer<'_>) {
                w.bit(false);
                <Bits<N> as Codec<$t>>::write(v, w);
            }
            #[cfg(any(test, feature = "samples"))]
            fn sample(s: &mut Source) -> $t {
                <Bits<N> as Codec<$t>>::sample(s)
            }
        }
    )* };
}
bit_strings!(u8, u16, u32, u64);

/// `BIT STRING (SIZE (8 * N))` or `OCTET STRING (SIZE (N))` of more than two octets.
impl<const N: usize> Aper for [u8; N] {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        if N > 2 {
            return r.array();
        }
        let mut v = [0; N];
        for o in &mut v {
            *o = r.bits(8)? as u8;
        }
        Ok(v)
    }
    fn write(&self, w: &mut Writer<'_>) {
        if N > 2 {
            w.octets(self);
        } else {
            for o in self {
                w.bits(u64::from(*o), 8);
            }
        }
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        core::array::from_fn(|_| s.number() as u8)
    }
}

/// `OCTET STRING`.
pub(crate) struct Octets;

impl Codec<Vec<u8>> for Octets {
    fn read(r: &mut Reader<'_>) -> Result<Vec<u8>, Fault> {
        Ok(r.long_octets()?.into_owned())
    }
    fn write(v: &Vec<u8>, w: &mut Writer<'_>) {
        w.long_octets(v);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Vec<u8> {
        let n = if s.huge() { s.within(0, 70_000) } else { s.within(1, 200) };
        s.octets(n as usize)
    }
}

/// `OCTET STRING (SIZE (LO..HI))` of which `HI` is above two and below 64 K.
pub(crate) struct OctetsSized<const LO: u64, const HI: u64>;

impl<const LO: u64, const HI: u64> Codec<Vec<u8>> for OctetsSized<LO, HI> {
    fn read(r: &mut Reader<'_>) -> Result<Vec<u8>, Fault> {
        let n = r.whole(LO, HI)?;
        Ok(r.octets(n as usize)?.to_vec())
    }
    fn write(v: &Vec<u8>, w: &mut Writer<'_>) {
        debug_assert!((LO..=HI).contains(&(v.len() as u64)));
        let v = &v[..v.len().min(HI as usize)];
        w.whole(v.len() as u64, LO, HI);
        w.octets(v);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Vec<u8> {
        let n = s.length(LO, HI);
        s.octets(n)
    }
}

/// `PrintableString (SIZE (LO..HI, ...))` or `VisibleString` of the same sizes.
pub(crate) struct StringExt<const LO: u64, const HI: u64>;

impl<const LO: u64, const HI: u64> Codec<String> for StringExt<LO, HI> {
    fn read(r: &mut Reader<'_>) -> Result<String, Fault> {
        let octets = if r.bit()? {
            r.long_octets()?
        } else {
            let n = r.whole(LO, HI)?;
            r.octets(n as usize)?.into()
        };
        if !octets.is_ascii() {
            return Err(Fault::NotComprehended);
        }
        String::from_utf8(octets.into_owned()).map_err(|_| Fault::NotComprehended)
    }
    fn write(v: &String, w: &mut Writer<'_>) {
        // Neither string type has room for more than ASCII; what exceeds it is our own doing, and is replaced.
        let ascii: Cow<'_, str> = if v.is_ascii() {
            v.into()
        } else {
            v.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect()
        };
        let n = ascii.len() as u64;
        let extended = !(LO..=HI).contains(&n);
        w.bit(extended);
        if extended {
            w.long_octets(ascii.as_bytes());
        } else {
            w.whole(n, LO, HI);
            w.octets(ascii.as_bytes());
        }
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> String {
        let n = s.within(LO, HI);
        s.letters(n as usize)
    }
}

/// `UTF8String (SIZE (LO..HI, ...))`: its size constraint is not visible to PER.
pub(crate) struct Utf8;

impl Codec<String> for Utf8 {
    fn read(r: &mut Reader<'_>) -> Result<String, Fault> {
        String::from_utf8(r.long_octets()?.into_owned()).map_err(|_| Fault::NotComprehended)
    }
    fn write(v: &String, w: &mut Writer<'_>) {
        w.long_octets(v.as_bytes());
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> String {
        s.letters(20) + "é"
    }
}

/// Above this upper bound a length determinant has the form of one without any (X.691 §11.9.4.1).
const LENGTH_CONSTRAINED_MAX: u64 = 65_536;

/// Room made for items beforehand, per octet that is left: a count alone must not cost memory.
const ROOM_PER_OCTET: usize = 8;

/// Reads `n` items.
fn read_items<T, C: Codec<T>>(r: &mut Reader<'_>, n: usize, items: &mut Vec<T>) -> Result<(), Fault> {
    items.reserve_exact(n.min(r.remaining() * ROOM_PER_OCTET / size_of::<T>().max(1) + 1));
    for _ in 0..n {
        items.push(C::read(r)?);
    }
    Ok(())
}

/// `SEQUENCE (SIZE (LO..HI)) OF`, each item in the form `C`.
pub(crate) struct List<const LO: u64, const HI: u64, C = Own>(PhantomData<C>);

impl<T, const LO: u64, const HI: u64, C: Codec<T>> Codec<Vec<T>> for List<LO, HI, C> {
    fn read(r: &mut Reader<'_>) -> Result<Vec<T>, Fault> {
        if HI < LENGTH_CONSTRAINED_MAX {
            let mut items = Vec::new();
            let n = r.whole(LO, HI)? as usize;
            read_items::<T, C>(r, n, &mut items)?;
            return Ok(items);
        }
        let mut items = Vec::new();
        loop {
            let (n, last) = r.long_count()?;
            if items.len() + n > HI as usize {
                return Err(r.fault(DecodeErrorKind::TooMany));
            }
            read_items::<T, C>(r, n, &mut items)?;
            if last && items.len() < LO as usize {
                return Err(r.fault(DecodeErrorKind::InvalidLength));
            }
            if last {
                return Ok(items);
            }
        }
    }
    fn write(v: &Vec<T>, w: &mut Writer<'_>) {
        debug_assert!((LO..=HI).contains(&(v.len() as u64)), "{} items", v.len());
        let mut v = &v[..v.len().min(HI as usize)];
        if HI < LENGTH_CONSTRAINED_MAX {
            w.whole(v.len() as u64, LO, HI);
        } else {
            while v.len() >= FRAGMENT {
                let (part, rest) = v.split_at((v.len() / FRAGMENT).min(4) * FRAGMENT);
                w.long_count(part.len());
                part.iter().for_each(|item| C::write(item, w));
                v = rest;
            }
            w.long_count(v.len());
        }
        v.iter().for_each(|item| C::write(item, w));
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Vec<T> {
        (0..s.length(LO, HI)).map(|_| C::sample(s)).collect()
    }
}

impl Aper for bool {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.bit()
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.bit(*self);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        s.flip()
    }
}

/// A sequence of one component, its extensions skipped: held as that component.
pub(crate) struct Alone<C = Own>(PhantomData<C>);

impl<T, C: Codec<T>> Codec<T> for Alone<C> {
    fn read(r: &mut Reader<'_>) -> Result<T, Fault> {
        let additions = r.bit()?;
        let extended = r.bit()?;
        let v = C::read(r)?;
        if extended {
            read_extensions(r, |_, _| Ok(false))?;
        }
        if additions {
            r.skip_additions()?;
        }
        Ok(v)
    }
    fn write(v: &T, w: &mut Writer<'_>) {
        w.bits(0, 2);
        C::write(v, w);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> T {
        C::sample(s)
    }
}

/// A value that is only carried on: the octets of its whole encoding, where it fills an open type.
pub(crate) struct Raw;

impl Codec<Vec<u8>> for Raw {
    fn read(r: &mut Reader<'_>) -> Result<Vec<u8>, Fault> {
        // An open type has one octet at least.
        let n = r.remaining().max(1);
        Ok(r.octets(n)?.to_vec())
    }
    fn write(v: &Vec<u8>, w: &mut Writer<'_>) {
        w.octets(v);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Vec<u8> {
        s.octets(20)
    }
}
