//! The type-length-value encoding of information elements, and the macros for groups.

use whimbrel_ids::{DecodeErrorKind, Reader};

use crate::error::Error;

/// Most repetitions of one information element in one group. A session needs a PDR per direction and
/// service data flow; 256 is above what a session of this core accepts, and keeps what one datagram can
/// make us allocate small.
pub const REPEATED_IES_MAX: usize = 256;

/// The value part of an information element.
pub(crate) trait Ie: Sized {
    /// The standard's name, for errors.
    const NAME: &'static str;
    /// Reads the value. Octets behind the known part are a later release's and are left (TS 29.244 §7.6.7).
    fn read(r: &mut Reader<'_>) -> Result<Self, Error>;
    /// Appends the value.
    fn write(&self, out: &mut Vec<u8>);
}

/// Appends one information element.
///
/// Panics: if its value exceeds 65,535 octets, which no value of ours can (lists are bounded by their
/// sender's rules).
pub(crate) fn write_ie<T: Ie>(ie_type: u16, value: &T, out: &mut Vec<u8>) {
    out.extend_from_slice(&ie_type.to_be_bytes());
    let at = out.len();
    out.extend_from_slice(&[0, 0]);
    value.write(out);
    let len =
        u16::try_from(out.len() - at - 2).expect("an information element of ours fits its length field");
    out[at..at + 2].copy_from_slice(&len.to_be_bytes());
}

/// Takes the next information element: its type and its value.
pub(crate) fn next_ie<'a>(r: &mut Reader<'a>) -> Result<(u16, Reader<'a>), Error> {
    let ie_type = r.u16("IE type")?;
    let value = r.u16("IE length").and_then(|len| r.sub(usize::from(len), "IE value"));
    value.map(|v| (ie_type, v)).map_err(|e| Error::from(e).within(ie_type))
}

pub(crate) fn read_ie<T: Ie>(ie_type: u16, value: &mut Reader<'_>) -> Result<T, Error> {
    T::read(value).map_err(|e| e.within(ie_type))
}

/// Of an element that may not repeat the first counts (TS 29.244 §7.6.10).
pub(crate) fn read_first<T: Ie>(
    slot: &mut Option<T>,
    ie_type: u16,
    value: &mut Reader<'_>,
) -> Result<(), Error> {
    if slot.is_none() {
        *slot = Some(read_ie(ie_type, value)?);
    }
    Ok(())
}

/// An optional element that cannot be understood counts as absent (TS 29.244 §7.6.7, §7.6.8).
pub(crate) fn read_optional<T: Ie>(slot: &mut Option<T>, ie_type: u16, value: &mut Reader<'_>) {
    if slot.is_none() {
        *slot = read_ie(ie_type, value).ok();
    }
}

pub(crate) fn read_push<T: Ie>(list: &mut Vec<T>, ie_type: u16, value: &mut Reader<'_>) -> Result<(), Error> {
    if list.len() == REPEATED_IES_MAX {
        return Err(Error::new(DecodeErrorKind::TooMany, T::NAME, value.offset()).within(ie_type));
    }
    list.push(read_ie(ie_type, value)?);
    Ok(())
}

/// A group of information elements, or a message body: a struct with its reader and writer.
///
/// A field is `type => name: required|conditional|optional|many Type`. Unknown elements are skipped (TS
/// 29.244 §7.6.9). A bad `conditional` element refuses the group, a bad `optional` one counts as absent.
macro_rules! grouped {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident: $text:literal {
            $( $(#[$fmeta:meta])* $num:literal => $field:ident: $mode:ident $ty:ty, )*
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $crate::codec::grouped!(@ty $mode $ty), )*
        }

        impl $crate::codec::Ie for $name {
            const NAME: &'static str = $text;

            fn read(r: &mut whimbrel_ids::Reader<'_>) -> Result<Self, $crate::error::Error> {
                $( let mut $field = $crate::codec::grouped!(@new $mode $ty); )*
                while !r.is_empty() {
                    let (ie_type, mut value) = $crate::codec::next_ie(r)?;
                    match ie_type {
                        $( $num => $crate::codec::grouped!(@read $mode $field $num value), )*
                        _ => {}
                    }
                    let _ = &mut value; // a group without elements reads none
                }
                let _end = r.offset();
                Ok(Self { $( $field: $crate::codec::grouped!(@done $mode $field $num $ty, _end), )* })
            }

            fn write(&self, out: &mut Vec<u8>) {
                $( $crate::codec::grouped!(@write $mode self.$field, $num, out); )*
                let _ = out; // a group without elements writes none
            }
        }
    )* };

    (@ty required $ty:ty) => { $ty };
    (@ty conditional $ty:ty) => { Option<$ty> };
    (@ty optional $ty:ty) => { Option<$ty> };
    (@ty many $ty:ty) => { Vec<$ty> };

    (@new many $ty:ty) => { Vec::<$ty>::new() };
    (@new $mode:ident $ty:ty) => { Option::<$ty>::None };

    (@read many $f:ident $n:literal $v:ident) => { $crate::codec::read_push(&mut $f, $n, &mut $v)? };
    (@read optional $f:ident $n:literal $v:ident) => { $crate::codec::read_optional(&mut $f, $n, &mut $v) };
    (@read $mode:ident $f:ident $n:literal $v:ident) => { $crate::codec::read_first(&mut $f, $n, &mut $v)? };

    (@done required $f:ident $n:literal $ty:ty, $end:ident) => {
        $f.ok_or($crate::error::Error::missing(<$ty as $crate::codec::Ie>::NAME, $n, $end))?
    };
    (@done $mode:ident $f:ident $n:literal $ty:ty, $end:ident) => { $f };

    (@write required $s:ident.$f:ident, $n:literal, $out:ident) => {
        $crate::codec::write_ie($n, &$s.$f, $out)
    };
    (@write many $s:ident.$f:ident, $n:literal, $out:ident) => {
        for v in &$s.$f { $crate::codec::write_ie($n, v, $out); }
    };
    (@write $mode:ident $s:ident.$f:ident, $n:literal, $out:ident) => {
        if let Some(v) = &$s.$f { $crate::codec::write_ie($n, v, $out); }
    };
}
pub(crate) use grouped;

/// A plain big-endian number of its own meaning.
macro_rules! number {
    ($( $(#[$meta:meta])* pub struct $name:ident($ty:ident): $text:literal; )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $ty);

        impl $crate::codec::Ie for $name {
            const NAME: &'static str = $text;
            fn read(r: &mut whimbrel_ids::Reader<'_>) -> Result<Self, $crate::error::Error> {
                Ok(Self(r.$ty($text)?))
            }
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0.to_be_bytes());
            }
        }
    )* };
}
pub(crate) use number;

/// A bitmap: octet 5 of the clause is the lowest octet of the number. Octets that a peer of an older
/// release leaves out read as zero, octets of a later one are left unread. `$octets` are written, or, with `at least`, those that are needed.
macro_rules! flags {
    ($( $(#[$meta:meta])* pub struct $name:ident($ty:ident, $octets:literal $(, at least $least:literal)?): $text:literal {
        $( $(#[$fmeta:meta])* $flag:ident = $octet:literal / $bit:literal, )*
    } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $ty);

        #[allow(missing_docs, reason = "where a flag has no line of its own, its name is the clause's")]
        impl $name {
            $( $(#[$fmeta])* pub const $flag: Self = Self(1 << (($octet - 5) * 8 + $bit - 1)); )*

            /// Whether all of `flags` are set.
            pub const fn has(self, flags: Self) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// These and those.
            pub const fn with(self, flags: Self) -> Self {
                Self(self.0 | flags.0)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl $crate::codec::Ie for $name {
            const NAME: &'static str = $text;
            fn read(r: &mut whimbrel_ids::Reader<'_>) -> Result<Self, $crate::error::Error> {
                let mut v = $ty::from(r.u8($text)?).to_le_bytes();
                for octet in &mut v[1..$octets] {
                    if !r.is_empty() {
                        *octet = r.u8($text)?;
                    }
                }
                Ok(Self($ty::from_le_bytes(v)))
            }
            fn write(&self, out: &mut Vec<u8>) {
                let least: &[usize] = &[$octets $(, $least)?];
                out.extend_from_slice($crate::codec::without_zeros(
                    &self.0.to_le_bytes()[..$octets],
                    least[least.len() - 1],
                ));
            }
        }
    )* };
}
pub(crate) use flags;

/// The octets without zeros at their end, but `least` of them.
pub(crate) fn without_zeros(octets: &[u8], least: usize) -> &[u8] {
    let used = octets.iter().rposition(|o| *o != 0).map_or(0, |last| last + 1);
    &octets[..used.max(least)]
}

/// An enumeration of one octet. `mask` takes the clause's bits; an unlisted value is semantically incorrect.
macro_rules! code {
    ($( $(#[$meta:meta])* pub enum $name:ident(mask $mask:literal): $text:literal {
        $( $(#[$fmeta:meta])* $variant:ident = $value:literal, )*
    } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $( $(#[$fmeta])* $variant = $value, )* }

        impl $name {
            /// From its code point.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $( $value => Some(Self::$variant), )*
                    _ => None,
                }
            }
        }

        impl $crate::codec::Ie for $name {
            const NAME: &'static str = $text;
            fn read(r: &mut whimbrel_ids::Reader<'_>) -> Result<Self, $crate::error::Error> {
                let at = r.offset();
                Self::from_code(r.u8($text)? & $mask).ok_or($crate::error::Error::new(
                    whimbrel_ids::DecodeErrorKind::InvalidValue, $text, at,
                ))
            }
            fn write(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
        }
    )* };
}
pub(crate) use code;
