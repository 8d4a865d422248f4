//! The encoding of information elements: the formats of TS 24.007 §11.2.1.1 and the table that each message is written
//! as.
//!
//! The mandatory part is read in order and any error in it fails the message (TS 24.501 §7.5.1). The optional part is
//! read by identifier: unknown or malformed ones are skipped, the first of repeated elements counts, any order is taken
//! (TS 24.501 §7.6.1, TS 24.501 §7.6.2, TS 24.501 §7.6.3, TS 24.501 §7.7.1). What is long is read as far as it goes (TS
//! 24.501 §7.2.2).

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

/// The value part of an information element of one octet or more (format V of TS 24.007 §11.2.1.1.2).
pub trait Ie: Sized {
    /// Reads the value; the reader ends where the element does. Octets that are left over are an extension by a
    /// later release and are ignored (TS 24.501 §7.8 read with TS 24.007 §11.4.2).
    ///
    /// Errors: an invalid value.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Appends the value.
    fn encode(&self, out: &mut Vec<u8>);
}

/// An information element whose value is half an octet (types 1 of TS 24.007 §11.2.1.1.4).
pub trait HalfIe: Sized {
    /// From the four bits, right-aligned; `None` for a reserved value.
    fn from_half(bits: u8) -> Option<Self>;

    /// The four bits, right-aligned.
    fn half(&self) -> u8;
}

/// Any fixed number of octets is a value of its own.
impl<const N: usize> Ie for [u8; N] {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.array("value")
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// Readers of the mandatory part, one per format.
pub(crate) mod mandatory {
    use super::*;

    /// Half an octet in bits 4 to 1, whose other half is read next.
    pub(crate) fn low<T: HalfIe>(r: &mut Reader<'_>, name: &'static str) -> Result<T, DecodeError> {
        let octet = r.peek().ok_or_else(|| r.error(DecodeErrorKind::MissingMandatory, name))?;
        T::from_half(octet & 0x0f).ok_or_else(|| r.error(DecodeErrorKind::InvalidValue, name))
    }

    /// Half an octet in bits 8 to 5.
    pub(crate) fn high<T: HalfIe>(r: &mut Reader<'_>, name: &'static str) -> Result<T, DecodeError> {
        let at = r.error(DecodeErrorKind::InvalidValue, name);
        T::from_half(r.u8(name).map_err(absent)? >> 4).ok_or(at)
    }

    /// Half an octet in bits 4 to 1, beside a spare half octet.
    pub(crate) fn low_only<T: HalfIe>(r: &mut Reader<'_>, name: &'static str) -> Result<T, DecodeError> {
        let at = r.error(DecodeErrorKind::InvalidValue, name);
        T::from_half(r.u8(name).map_err(absent)? & 0x0f).ok_or(at)
    }

    /// A value of `N` octets without a length.
    pub(crate) fn v<T: Ie, const N: usize>(r: &mut Reader<'_>, name: &'static str) -> Result<T, DecodeError> {
        let mut value = r.sub(N, name).map_err(absent)?;
        named(T::decode(&mut value), name)
    }

    /// A value after one octet of length.
    pub(crate) fn lv<T: Ie>(r: &mut Reader<'_>, name: &'static str) -> Result<T, DecodeError> {
        let len = r.u8(name).map_err(absent)?;
        let mut value = r.sub(usize::from(len), name)?;
        named(T::decode(&mut value), name)
    }

    /// A value after two octets of length.
    pub(crate) fn lve<T: Ie>(r: &mut Reader<'_>, name: &'static str) -> Result<T, DecodeError> {
        let len = r.u16(name).map_err(absent)?;
        let mut value = r.sub(usize::from(len), name)?;
        named(T::decode(&mut value), name)
    }

    /// Octets that end before a mandatory element begins lack it.
    fn absent(e: DecodeError) -> DecodeError {
        DecodeError { kind: DecodeErrorKind::MissingMandatory, ..e }
    }

    /// The error attributed to the element, for any field inside it.
    fn named<T>(result: Result<T, DecodeError>, ie: &'static str) -> Result<T, DecodeError> {
        result.map_err(|e| DecodeError { ie, ..e })
    }
}

/// The name under which an identifier octet is looked up: of type 1 elements the half that is not the value.
pub(crate) const fn iei(octet: u8) -> u8 {
    if octet & 0x80 != 0 { octet & 0xf0 } else { octet }
}

/// Readers of the optional part, one per format. Each takes the identifier octet already read, fills the first
/// occurrence, and leaves the reader behind the element; a truncated element ends the message.
pub(crate) mod optional {
    use super::*;

    /// Half an octet beside its half-octet identifier.
    pub(crate) fn tv1<T: HalfIe>(octet: u8, _: &mut Reader<'_>, slot: &mut Option<T>) {
        if slot.is_none() {
            *slot = T::from_half(octet & 0x0f);
        }
    }

    /// A value of `N` octets.
    pub(crate) fn tv<T: Ie, const N: usize>(_: u8, r: &mut Reader<'_>, slot: &mut Option<T>) {
        fill(r, N, slot);
    }

    /// A value after one octet of length.
    pub(crate) fn tlv<T: Ie>(_: u8, r: &mut Reader<'_>, slot: &mut Option<T>) {
        match r.u8("length") {
            Ok(len) => fill(r, usize::from(len), slot),
            Err(_) => end(r),
        }
    }

    /// A value after two octets of length.
    pub(crate) fn tlve<T: Ie>(_: u8, r: &mut Reader<'_>, slot: &mut Option<T>) {
        match r.u16("length") {
            Ok(len) => fill(r, usize::from(len), slot),
            Err(_) => end(r),
        }
    }

    fn fill<T: Ie>(r: &mut Reader<'_>, len: usize, slot: &mut Option<T>) {
        match r.sub(len, "value") {
            Ok(mut value) if slot.is_none() => *slot = T::decode(&mut value).ok(),
            Ok(_) => {}
            Err(_) => end(r),
        }
    }

    /// Skips an unknown element, by the format that its identifier implies.
    ///
    /// Errors: the identifier, if it demands comprehension (TS 24.007 §11.2.4: bits 8 to 5 are zero).
    pub(crate) fn skip(octet: u8, r: &mut Reader<'_>) -> Result<(), u8> {
        let len = match octet >> 4 {
            0 => return Err(octet),
            8.. => Ok(0),
            7 => r.u16("length").map(usize::from),
            _ => r.u8("length").map(usize::from),
        };
        if len.and_then(|n| r.take(n, "value")).is_err() {
            end(r);
        }
        Ok(())
    }

    fn end(r: &mut Reader<'_>) {
        r.take_rest();
    }
}

/// Writers, one per format; an absent optional element writes nothing.
pub(crate) mod write {
    use super::*;

    pub(crate) fn low<T: HalfIe>(value: &T, out: &mut Vec<u8>) {
        out.push(value.half() & 0x0f);
    }

    /// Joins the half octet that [`low`] wrote just before.
    pub(crate) fn high<T: HalfIe>(value: &T, out: &mut [u8]) {
        if let Some(last) = out.last_mut() {
            *last |= value.half() << 4;
        }
    }

    pub(crate) fn low_only<T: HalfIe>(value: &T, out: &mut Vec<u8>) {
        low(value, out);
    }

    pub(crate) fn v<T: Ie, const N: usize>(value: &T, out: &mut Vec<u8>) {
        value.encode(out);
    }

    pub(crate) fn lv<T: Ie>(value: &T, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(0);
        value.encode(out);
        // The types bound their values; a longer one would break the framing of all that follows it.
        out.truncate(at + 1 + usize::from(u8::MAX));
        let len = u8::try_from(out.len() - at - 1).unwrap_or(u8::MAX);
        if let Some(octet) = out.get_mut(at) {
            *octet = len;
        }
    }

    pub(crate) fn lve<T: Ie>(value: &T, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&[0, 0]);
        value.encode(out);
        out.truncate(at + 2 + usize::from(u16::MAX)); // as in `lv`
        let len = u16::try_from(out.len() - at - 2).unwrap_or(u16::MAX);
        if let Some(octets) = out.get_mut(at..at + 2) {
            octets.copy_from_slice(&len.to_be_bytes());
        }
    }

    pub(crate) fn tv1<T: HalfIe>(iei: u8, value: &Option<T>, out: &mut Vec<u8>) {
        if let Some(value) = value {
            out.push(iei | value.half() & 0x0f);
        }
    }

    pub(crate) fn tv<T: Ie, const N: usize>(iei: u8, value: &Option<T>, out: &mut Vec<u8>) {
        if let Some(value) = value {
            out.push(iei);
            value.encode(out);
        }
    }

    pub(crate) fn tlv<T: Ie>(iei: u8, value: &Option<T>, out: &mut Vec<u8>) {
        if let Some(value) = value {
            out.push(iei);
            lv(value, out);
        }
    }

    pub(crate) fn tlve<T: Ie>(iei: u8, value: &Option<T>, out: &mut Vec<u8>) {
        if let Some(value) = value {
            out.push(iei);
            lve(value, out);
        }
    }
}

/// Writes a message as the table of its clause: each row is the name, the field and its format; a row of the
/// optional part begins with its identifier (`0xC0` stands for the half octet `C-`).
macro_rules! message {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $mname:literal $mfield:ident : $mty:ty => $mkind:ident $(($mlen:literal))?, )*
        }
        optional {
            $( $iei:literal $oname:literal $ofield:ident : $oty:ty => $okind:ident $(($olen:literal))?, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( #[doc = concat!($mname, ".")] pub $mfield: $mty, )*
            $( #[doc = concat!($oname, ", if present.")] pub $ofield: Option<$oty>, )*
        }

        impl $name {
            /// The message with its mandatory elements and no optional one.
            #[allow(clippy::new_without_default, clippy::too_many_arguments)]
            pub const fn new($( $mfield: $mty ),*) -> Self {
                Self { $( $mfield, )* $( $ofield: None, )* }
            }

            #[allow(unused_mut, unused_variables)]
            pub(crate) fn decode_body(
                r: &mut whimbrel_ids::Reader<'_>,
            ) -> Result<Self, $crate::error::NasErrorKind> {
                $( let $mfield = $crate::codec::mandatory::$mkind::<$mty $(, $mlen)?>(r, $mname)?; )*
                let mut message = Self::new($( $mfield ),*);
                while let Ok(octet) = r.u8("IEI") {
                    match $crate::codec::iei(octet) {
                        $( $iei => $crate::codec::optional::$okind::<$oty $(, $olen)?>(octet, r, &mut message.$ofield), )*
                        _ => $crate::codec::optional::skip(octet, r)
                            .map_err($crate::error::NasErrorKind::ComprehensionRequired)?,
                    }
                }
                Ok(message)
            }

            // A message without elements writes nothing.
            #[allow(unused_variables, clippy::ptr_arg)]
            pub(crate) fn encode_body(&self, out: &mut Vec<u8>) {
                $( $crate::codec::write::$mkind::<$mty $(, $mlen)?>(&self.$mfield, out); )*
                $( $crate::codec::write::$okind::<$oty $(, $olen)?>($iei, &self.$ofield, out); )*
            }
        }
    };
}

/// Gathers the messages of a protocol: the enum of them, that of their types, and the way from the one to the other.
macro_rules! message_set {
    ( $(#[$meta:meta])* $set:ident { $( $code:literal $title:literal $name:ident, )* } ) => {
        $(#[$meta])*
        // A message lives for one procedure step; boxing the large ones would cost each of them an allocation.
        #[allow(clippy::large_enum_variant)]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $set { $( #[doc = concat!($title, ".")] $name($name), )* }

        /// Which message it is (the code points of the message type octet).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum MessageType { $( #[doc = concat!($title, ".")] $name = $code, )* }

        impl MessageType {
            /// All message types, in the order of the clause's table.
            pub const ALL: &'static [MessageType] = &[ $( MessageType::$name, )* ];

            /// From the message type octet; `None` if it names no message known here.
            pub const fn from_u8(octet: u8) -> Option<Self> {
                match octet { $( $code => Some(Self::$name), )* _ => None }
            }

            /// The message type octet.
            pub const fn value(self) -> u8 {
                self as u8
            }
        }

        /// The name as the standard writes it.
        impl core::fmt::Display for MessageType {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $( Self::$name => $title, )* })
            }
        }

        impl $set {
            /// Which message it is.
            pub const fn message_type(&self) -> MessageType {
                match self { $( Self::$name(_) => MessageType::$name, )* }
            }

            fn decode_body(
                message_type: MessageType,
                r: &mut whimbrel_ids::Reader<'_>,
            ) -> Result<Self, $crate::error::NasErrorKind> {
                Ok(match message_type { $( MessageType::$name => Self::$name($name::decode_body(r)?), )* })
            }

            fn encode_body(&self, out: &mut Vec<u8>) {
                match self { $( Self::$name(m) => m.encode_body(out), )* }
            }
        }

        $( impl From<$name> for $set { fn from(m: $name) -> Self { Self::$name(m) } } )*
    };
}

pub(crate) use {message, message_set};
