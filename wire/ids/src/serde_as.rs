//! How values travel between processes of ours (feature `serde`): as the plainest type that holds them, and what their
//! clause forbids does not come in.

use core::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};

use crate::{AmfId, AmfUeNgapId, Dnn, GlobalGnbId, NrCellId, PduSessionId, Pei, PlmnId, Qfi, SNssai, Tac};

/// Lets a type travel as another: how that is made of it, and how it is made of that, if it can be.
#[macro_export]
macro_rules! serde_as {
    ($($name:ty as $plain:ty: $give:expr, $take:expr;)*) => {$(
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let give: fn(&Self) -> $plain = $give;
                give(self).serialize(to)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let take: fn($plain) -> Option<Self> = $take;
                let no = || <D::Error as ::serde::de::Error>::custom(concat!("no ", stringify!($name)));
                take(<$plain>::deserialize(from)?).ok_or_else(no)
            }
        }
    )*};
}

/// Lets a type travel as a string of octets: how they are seen in it or made of it, and how it is made of them, if it can be.
#[macro_export]
macro_rules! serde_as_octets {
    ($($name:ty: $give:expr, $take:expr;)*) => {$(
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let give = |v: &Self, to: S| to.serialize_bytes(AsRef::<[u8]>::as_ref(&$give(v)));
                give(self, to)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let take: fn(&[u8]) -> Option<Self> = $take;
                $crate::serde_as::octets(from, stringify!($name), take)
            }
        }
    )*};
}

/// Reads a string of octets of which `take` makes a value; `None` is refused.
pub fn octets<'de, D: Deserializer<'de>, T>(
    from: D,
    what: &'static str,
    take: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, D::Error> {
    struct OctetsVisitor<F>(&'static str, F);

    impl<T, F: FnOnce(&[u8]) -> Option<T>> Visitor<'_> for OctetsVisitor<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "the octets of {}", self.0)
        }

        fn visit_bytes<E: Error>(self, octets: &[u8]) -> Result<T, E> {
            let what = self.0;
            (self.1)(octets).ok_or_else(|| E::custom(format_args!("no {what}")))
        }
    }

    from.deserialize_bytes(OctetsVisitor(what, take))
}

serde_as! {
    PlmnId as [u8; 3]: |v| v.nas_octets(), PlmnId::from_nas_octets;
    AmfId as [u8; 3]: |v| v.octets(), |v| Some(AmfId::from_octets(v));
    Tac as u32: |v| v.value(), Tac::new;
    NrCellId as u64: |v| v.value(), NrCellId::new;
    AmfUeNgapId as u64: |v| v.value(), AmfUeNgapId::new;
    PduSessionId as u8: |v| v.value(), PduSessionId::new;
    Qfi as u8: |v| v.value(), Qfi::new;
    SNssai as (u8, Option<u32>): |v| (v.sst, v.sd()), |(sst, sd)| Some(SNssai::new(sst, sd)).filter(|v| v.sd() == sd);
    GlobalGnbId as (PlmnId, u32, u8): |v| (v.plmn, v.gnb_id, v.bits()), |(plmn, id, bits)| GlobalGnbId::new(plmn, id, bits);
    Pei as (bool, u64): Pei::parts, Pei::from_parts;
}

serde_as_octets! {
    Dnn: Dnn::as_str, |v| core::str::from_utf8(v).ok()?.parse().ok();
}
