//! The ASN.1 types that NGAP uses, in the fast form.

use whimbrel_fastwire::{Inline, Schema, Slot, Spot, Writer};
use whimbrel_ids::{DecodeError, DecodeErrorKind};

use super::{Fast, get_wrapped, put_wrapped};
use crate::aper::codec::{
    Alone, Bits, BitsExt, Int, IntExt, List, Octets, OctetsSized, Own, Raw, StringExt, Utf8,
};

/// The number here, if the type that carries it has room for it.
fn within<T: Copy + Into<u64>>(v: T, lo: u64, hi: u64, slot: Slot<'_, '_>) -> Result<T, DecodeError> {
    if (lo..=hi).contains(&v.into()) { Ok(v) } else { Err(slot.error(DecodeErrorKind::InvalidValue)) }
}

macro_rules! numbers {
    ($($t:ident $name:literal),* $(,)?) => { $(
        impl<const LO: u64, const HI: u64> Fast<$t> for Int<LO, HI> {
            const INLINE: Inline = Inline::Scalar(size_of::<$t>() as u16);
            fn put(v: &$t, spot: Spot, w: &mut Writer<'_>) {
                w.put(spot.at, v.to_le_bytes());
            }
            fn get(slot: Slot<'_, '_>) -> Result<$t, DecodeError> {
                within($t::from_le_bytes(slot.get()?), LO, HI, slot)
            }
            fn declare(_: &mut Schema) -> String {
                $name.to_owned()
            }
        }
        numbers!($t, IntExt, [const LO: u64, const HI: u64], [LO, HI], 0, u64::MAX);
        numbers!($t, Bits, [const N: u32], [N], 0, u64::MAX >> (64 - N));
        numbers!($t, BitsExt, [const N: u32], [N], 0, u64::MAX >> (64 - N));
    )* };
    // As a plain integer, of other bounds.
    ($t:ident, $c:ident, [$($p:tt)*], [$($a:ident),*], $lo:expr, $hi:expr) => {
        impl<$($p)*> Fast<$t> for $c<$($a),*> {
            const INLINE: Inline = Inline::Scalar(size_of::<$t>() as u16);
            fn put(v: &$t, spot: Spot, w: &mut Writer<'_>) {
                w.put(spot.at, v.to_le_bytes());
            }
            fn get(slot: Slot<'_, '_>) -> Result<$t, DecodeError> {
                within($t::from_le_bytes(slot.get()?), $lo, $hi, slot)
            }
            fn declare(s: &mut Schema) -> String {
                <Int<0, 0> as Fast<$t>>::declare(s)
            }
        }
    };
}
numbers!(u8 "ubyte", u16 "ushort", u32 "uint", u64 "ulong");

impl Fast<bool> for Own {
    const INLINE: Inline = Inline::Scalar(1);
    fn put(v: &bool, spot: Spot, w: &mut Writer<'_>) {
        w.put(spot.at, [u8::from(*v)]);
    }
    fn get(slot: Slot<'_, '_>) -> Result<bool, DecodeError> {
        let [v] = slot.get()?;
        Ok(v != 0)
    }
    fn declare(_: &mut Schema) -> String {
        "bool".to_owned()
    }
}

/// A struct of octets.
impl<const N: usize> Fast<[u8; N]> for Own {
    const INLINE: Inline = Inline::Struct { size: N as u16, align: 1 };
    fn put(v: &[u8; N], spot: Spot, w: &mut Writer<'_>) {
        w.put(spot.at, *v);
    }
    fn get(slot: Slot<'_, '_>) -> Result<[u8; N], DecodeError> {
        slot.get()
    }
    fn declare(s: &mut Schema) -> String {
        let name = format!("Octets{N}");
        s.declare(&name, |_| format!("struct {name} {{ value: [ubyte:{N}]; }}\n"));
        name
    }
}

/// Vectors of octets, which differ in how many there may be.
macro_rules! octets {
    ([$($p:tt)*] $c:ty, $lo:expr, $hi:expr) => {
        impl<$($p)*> Fast<Vec<u8>> for $c {
            const INLINE: Inline = Inline::Vector;
            fn put(v: &Vec<u8>, spot: Spot, w: &mut Writer<'_>) {
                w.octets(spot, v);
            }
            fn get(slot: Slot<'_, '_>) -> Result<Vec<u8>, DecodeError> {
                let octets = slot.octets()?;
                if !($lo..=$hi).contains(&octets.len()) {
                    return Err(slot.error(DecodeErrorKind::InvalidLength));
                }
                Ok(octets.to_vec())
            }
            fn declare(_: &mut Schema) -> String {
                "[ubyte]".to_owned()
            }
        }
    };
}
octets!([] Octets, 0, usize::MAX);
octets!([] Raw, 1, usize::MAX); // An open type has one octet at least.
octets!([const LO: u64, const HI: u64] OctetsSized<LO, HI>, LO as usize, HI as usize);

impl<const LO: u64, const HI: u64> Fast<String> for StringExt<LO, HI> {
    const INLINE: Inline = Inline::Vector;
    fn put(v: &String, spot: Spot, w: &mut Writer<'_>) {
        w.string(spot, v);
    }
    fn get(slot: Slot<'_, '_>) -> Result<String, DecodeError> {
        let text = slot.string()?;
        if !text.is_ascii() {
            return Err(slot.error(DecodeErrorKind::InvalidValue));
        }
        Ok(text.to_owned())
    }
    fn declare(_: &mut Schema) -> String {
        "string".to_owned()
    }
}

impl Fast<String> for Utf8 {
    const INLINE: Inline = Inline::Vector;
    fn put(v: &String, spot: Spot, w: &mut Writer<'_>) {
        w.string(spot, v);
    }
    fn get(slot: Slot<'_, '_>) -> Result<String, DecodeError> {
        slot.string().map(str::to_owned)
    }
    fn declare(_: &mut Schema) -> String {
        "string".to_owned()
    }
}

/// For how many items room is made beforehand: a count alone must not cost memory.
const ROOM: usize = 8;

/// A vector; of tables around the items where these are choices.
impl<T, const LO: u64, const HI: u64, C: Fast<T>> Fast<Vec<T>> for List<LO, HI, C> {
    const INLINE: Inline = Inline::Vector;

    fn put(v: &Vec<T>, spot: Spot, w: &mut Writer<'_>) {
        debug_assert!((LO..=HI).contains(&(v.len() as u64)), "{} items", v.len());
        let v = &v[..v.len().min(HI as usize)];
        let at = w.vector(spot, v.len(), C::INLINE);
        let size = usize::from(C::INLINE.size());
        for (i, item) in v.iter().enumerate() {
            let spot = Spot { at: at + i * size, tag: 0 };
            match C::INLINE {
                Inline::Union => put_wrapped::<T, C>(item, spot, w),
                _ => C::put(item, spot, w),
            }
        }
    }

    fn get(slot: Slot<'_, '_>) -> Result<Vec<T>, DecodeError> {
        let items = slot.vector(C::INLINE.size())?;
        if !(LO..=HI).contains(&(items.len() as u64)) {
            return Err(slot.error(DecodeErrorKind::InvalidLength));
        }
        let mut list = Vec::with_capacity(items.len().min(ROOM));
        for item in items.iter() {
            list.push(match C::INLINE {
                Inline::Union => get_wrapped::<T, C>(item)?,
                _ => C::get(item)?,
            });
        }
        Ok(list)
    }

    fn declare(s: &mut Schema) -> String {
        let name = C::declare(s);
        match C::INLINE {
            Inline::Union => format!("[{}]", s.wrapper(&format!("{name}Entry"), &name, Inline::Union)),
            _ => format!("[{name}]"),
        }
    }
}

/// A sequence of one component is that component.
impl<T, C: Fast<T>> Fast<T> for Alone<C> {
    const INLINE: Inline = C::INLINE;
    fn put(v: &T, spot: Spot, w: &mut Writer<'_>) {
        C::put(v, spot, w);
    }
    fn get(slot: Slot<'_, '_>) -> Result<T, DecodeError> {
        C::get(slot)
    }
    fn declare(s: &mut Schema) -> String {
        C::declare(s)
    }
}
