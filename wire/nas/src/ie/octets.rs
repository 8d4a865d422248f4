//! Octets that this layer carries without reading, and sets of bits that it keeps as they were received.

use core::fmt;
use core::ops::Deref;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use crate::codec::Ie;

/// Octets of a length from `MIN` to `MAX`, as the clause of the element bounds it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Octets<const MIN: usize, const MAX: usize>(Box<[u8]>);

impl<const MIN: usize, const MAX: usize> Octets<MIN, MAX> {
    /// `None` if there are fewer than `MIN` or more than `MAX`.
    pub fn new(octets: impl Into<Box<[u8]>>) -> Option<Self> {
        let octets = octets.into();
        (MIN..=MAX).contains(&octets.len()).then_some(Self(octets))
    }

    /// The octets themselves.
    pub fn into_inner(self) -> Box<[u8]> {
        self.0
    }
}

impl<const MIN: usize, const MAX: usize> Deref for Octets<MIN, MAX> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<const MIN: usize, const MAX: usize> AsRef<[u8]> for Octets<MIN, MAX> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Debug for Octets<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl<const MIN: usize, const MAX: usize> Ie for Octets<MIN, MAX> {
    /// More than `MAX` octets are refused: an opaque value must not be truncated.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = r.error(DecodeErrorKind::InvalidLength, "value");
        if r.remaining() > MAX {
            return Err(at);
        }
        Self::new(r.take_rest()).ok_or(at)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

/// Writes octets as hexadecimal digits.
pub(crate) fn hex(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    octets.iter().try_for_each(|o| write!(f, "{o:02x}"))
}

/// A set of named bits over octets that are kept as received: a getter and a `with_…` per bit.
macro_rules! bit_octets {
    (
        $(#[$meta:meta])*
        $name:ident [ $min:literal ..= $max:literal ] {
            $( $(#[$doc:meta])* $get:ident $with:ident : $index:literal, $mask:literal; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(crate::ie::Octets<$min, $max>);

        impl $name {
            /// From octets, of which the clause allows a certain number; `None` for another number.
            pub fn from_octets(octets: &[u8]) -> Option<Self> {
                crate::ie::Octets::new(octets).map(Self)
            }

            /// The octets as received or built.
            pub fn octets(&self) -> &[u8] {
                &self.0
            }

            #[allow(dead_code)]
            fn octet(&self, index: usize) -> u8 {
                self.0.get(index).copied().unwrap_or(0)
            }

            #[allow(dead_code)]
            fn with(self, index: usize, mask: u8, value: u8) -> Self {
                let mut octets = self.0.into_inner().into_vec();
                if octets.len() <= index && index < $max {
                    octets.resize(index + 1, 0);
                }
                if let Some(octet) = octets.get_mut(index) {
                    *octet = *octet & !mask | value & mask;
                }
                octets.truncate($max);
                Self::from_octets(&octets).unwrap_or_default()
            }

            $(
                $(#[$doc])*
                pub fn $get(&self) -> bool {
                    self.octet($index) & $mask != 0
                }

                #[doc = concat!("The same with `", stringify!($get), "` set so.")]
                #[must_use]
                pub fn $with(self, on: bool) -> Self {
                    self.with($index, $mask, if on { $mask } else { 0 })
                }
            )*
        }

        /// All bits clear, in the fewest octets.
        impl Default for $name {
            fn default() -> Self {
                Self(crate::ie::Octets::new([0; $min]).expect("the fewest octets are within the bounds"))
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), "("))?;
                crate::ie::octets::hex(&self.0, f)?;
                f.write_str(")")
            }
        }

        impl crate::codec::Ie for $name {
            fn decode(r: &mut whimbrel_ids::Reader<'_>) -> Result<Self, whimbrel_ids::DecodeError> {
                // Octets beyond the clause's are spare, or of a later release.
                let octets = r.take_rest();
                let kept = octets.get(..$max).unwrap_or(octets);
                let short = r.error(whimbrel_ids::DecodeErrorKind::InvalidLength, stringify!($name));
                Self::from_octets(kept).ok_or(short)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
        }
    };
}

/// A set of named bits in half an octet; spare bits are dropped.
macro_rules! bit_half {
    ( $(#[$meta:meta])* $name:ident { $( $(#[$doc:meta])* $field:ident : $mask:literal, )* } ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( $(#[$doc])* pub $field: bool, )* }

        impl crate::codec::HalfIe for $name {
            fn from_half(bits: u8) -> Option<Self> {
                Some(Self { $( $field: bits & $mask != 0, )* })
            }

            fn half(&self) -> u8 {
                0 $( | if self.$field { $mask } else { 0 } )*
            }
        }
    };
}

/// A code in half an octet. What the clause has read as a defined value is listed as a fallback; a code that is
/// neither is refused.
macro_rules! code_half {
    (
        $(#[$meta:meta])*
        $name:ident, $bits:literal { $( $(#[$doc:meta])* $variant:ident = $code:literal $(| $alias:literal)*, )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $( $(#[$doc])* $variant = $code, )* }

        impl crate::codec::HalfIe for $name {
            fn from_half(bits: u8) -> Option<Self> {
                match bits & $bits {
                    $( $code $(| $alias)* => Some(Self::$variant), )*
                    _ => None,
                }
            }

            fn half(&self) -> u8 {
                *self as u8
            }
        }
    };
}

pub(crate) use {bit_half, bit_octets, code_half};
