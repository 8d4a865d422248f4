//! The ASN.1 types that NGAP uses, as codecs of plain Rust values.

use core::marker::PhantomData;

use super::{Aper, Codec, Fault, Reader, Writer};
use crate::container::extensions;

/// The form that the type itself defines.
pub(crate) struct Own;

impl<T: Aper> Codec<T> for Own {
    fn read(r: &mut Reader<'_>) -> Result<T, Fault> {
        T::read(r)
    }
    fn write(v: &T, w: &mut Writer<'_>) {
        v.write(w);
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
                <$t>::try_from(r.bits(N)?).map_err(|_| Fault::NotComprehended)
            }
            fn write(v: &$t, w: &mut Writer<'_>) {
                if N > 16 {
                    w.align();
                }
                w.bits(u64::from(*v) & (u64::MAX >> (64 - N)), N);
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
        }
    )* };
}
bit_strings!(u8, u16, u32, u64);

/// `BIT STRING (SIZE (8 * N))` or `OCTET STRING (SIZE (N))` of more than two octets.
impl<const N: usize> Aper for [u8; N] {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut v = [0; N];
        if N > 2 {
            v.copy_from_slice(r.octets(N)?);
        } else {
            for o in &mut v {
                *o = r.bits(8)? as u8;
            }
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
        let n = v.len() as u64;
        let extended = !(LO..=HI).contains(&n);
        w.bit(extended);
        if extended {
            w.long_octets(v.as_bytes());
        } else {
            w.whole(n, LO, HI);
            w.octets(v.as_bytes());
        }
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
}

/// `SEQUENCE (SIZE (LO..HI)) OF`, each item in the form `C`.
pub(crate) struct List<const LO: u64, const HI: u64, C = Own>(PhantomData<C>);

impl<T, const LO: u64, const HI: u64, C: Codec<T>> Codec<Vec<T>> for List<LO, HI, C> {
    fn read(r: &mut Reader<'_>) -> Result<Vec<T>, Fault> {
        let n = r.whole(LO, HI)? as usize;
        // Room for no more items than could stand in the octets that are left, at one octet an item.
        let mut items = Vec::with_capacity(n.min(r.remaining()));
        for _ in 0..n {
            items.push(C::read(r)?);
        }
        Ok(items)
    }
    fn write(v: &Vec<T>, w: &mut Writer<'_>) {
        debug_assert!((LO..=HI).contains(&(v.len() as u64)), "{} items", v.len());
        let v = &v[..v.len().min(HI as usize)];
        w.whole(v.len() as u64, LO, HI);
        for item in v {
            C::write(item, w);
        }
    }
}

impl Aper for bool {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.bit()
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.bit(*self);
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
            extensions(r, |_, _| Ok(false))?;
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
}

/// A value that is only carried on: the octets of its whole encoding, where it fills an open type.
pub(crate) struct Raw;

impl Codec<Vec<u8>> for Raw {
    fn read(r: &mut Reader<'_>) -> Result<Vec<u8>, Fault> {
        let n = r.remaining();
        Ok(r.octets(n)?.to_vec())
    }
    fn write(v: &Vec<u8>, w: &mut Writer<'_>) {
        w.octets(v);
    }
}
