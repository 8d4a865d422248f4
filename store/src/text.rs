//! Values that JSON and CSV carry as the text that `Display` writes and `FromStr` reads.

use core::fmt::Display;
use core::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<T: Display, S: Serializer>(v: &T, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(v)
}

pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    // A JSON string without escapes could be borrowed, but a reader cannot lend: own it.
    String::deserialize(d)?.parse().map_err(D::Error::custom)
}

/// The same for values that may be absent.
pub(crate) mod option {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(v: &Option<T>, s: S) -> Result<S::Ok, S::Error> {
        match v {
            Some(v) => s.collect_str(v),
            None => s.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(d: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        Option::<String>::deserialize(d)?.map(|t| t.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Implements serde for a type through its text.
macro_rules! serde_as_text {
    ($($name:ty),*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                $crate::text::serialize(self, s)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                $crate::text::deserialize(d)
            }
        }
    )*};
}
pub(crate) use serde_as_text;

/// Octets as hexadecimal text.
pub(crate) fn to_hex(octets: &[u8]) -> String {
    octets
        .iter()
        .flat_map(|o| [o >> 4, o & 0xf])
        .map(|n| char::from(b"0123456789abcdef"[usize::from(n)]))
        .collect()
}

/// `N` octets of hexadecimal text, in either case; white space between the digits does not count.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut digits = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16));
    let mut out = [0; N];
    for octet in &mut out {
        let (high, low) = (digits.next()??, digits.next()??);
        *octet = (high << 4 | low) as u8;
    }
    digits.next().is_none().then_some(out)
}
