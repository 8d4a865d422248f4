//! What messages of brokers are made of: heads, fields, parts behind their length, flags, enumerations of one octet, signatures at the end.

use whimbrel_ids::{DecodeError, DecodeErrorKind, PlmnId, Reader};

use crate::crypto::{Share, Signature};

/// Parses a whole message: nothing may be left over.
pub fn whole<T>(
    octets: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut r = Reader::new(octets);
    let value = read(&mut r)?;
    if r.is_empty() { Ok(value) } else { Err(r.error(DecodeErrorKind::TrailingOctets, "message")) }
}

/// The first two octets of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHead {
    /// Type of the message, of all messages of all protocols.
    pub message_type: u8,
    /// Version of the protocol.
    pub version: u8,
}

impl MessageHead {
    /// Begins a message.
    pub fn begin(self) -> Vec<u8> {
        vec![self.message_type, self.version]
    }

    /// Reads this head and no other. Errors: [`DecodeError`] of kind `Unknown`.
    pub fn read(self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        if r.peek() != Some(self.message_type) {
            return Err(r.error(DecodeErrorKind::Unknown, "message type"));
        }
        r.u8("message type")?;
        let unknown = r.error(DecodeErrorKind::Unknown, "version");
        if r.u8("version")? == self.version { Ok(()) } else { Err(unknown) }
    }
}

/// Declares the types of a protocol's messages.
#[macro_export]
macro_rules! message_types {
    ($(#[$doc:meta])* $name:ident, $version:expr; $($variant:ident = $v:literal,)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($variant = $v,)+ }

        impl $name {
            pub(crate) const fn head(self) -> $crate::codec::MessageHead {
                $crate::codec::MessageHead { message_type: self as u8, version: $version }
            }

            /// Whether octets are of this type, by the first of them.
            pub(crate) fn begins(self, octets: &[u8]) -> bool {
                octets.first() == Some(&(self as u8))
            }

            pub(crate) fn begin(self) -> Vec<u8> {
                self.head().begin()
            }

            pub(crate) fn read(self, r: &mut whimbrel_ids::Reader<'_>) -> Result<(), whimbrel_ids::DecodeError> {
                self.head().read(r)
            }
        }
    };
}

/// A field that messages of several protocols have, in the same octets.
pub trait MessageField: Sized {
    /// Name of the field, for errors.
    const NAME: &'static str;
    /// The longest encoding.
    const FIELD_OCTETS_MAX: usize;

    /// Appends its encoding to `out`.
    fn emit(&self, out: &mut Vec<u8>);

    /// Reads it. Errors: [`DecodeError`].
    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// A field that may be absent stands behind a flag.
impl<T: MessageField> MessageField for Option<T> {
    const NAME: &'static str = T::NAME;
    const FIELD_OCTETS_MAX: usize = 1 + T::FIELD_OCTETS_MAX;

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(field) = self {
            field.emit(out);
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if read_flag(r, T::NAME)? { T::read(r).map(Some) } else { Ok(None) }
    }
}

impl MessageField for PlmnId {
    const NAME: &'static str = "PLMN";
    const FIELD_OCTETS_MAX: usize = 3;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.nas_octets());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, Self::NAME);
        Self::from_nas_octets(r.array(Self::NAME)?).ok_or(invalid)
    }
}

impl MessageField for Share {
    const NAME: &'static str = "share";
    const FIELD_OCTETS_MAX: usize = 32;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(r.array(Self::NAME)?))
    }
}

/// A part that is a message of its own, behind its length in two octets. Panics above 65,535 octets.
pub fn emit_part(part: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(part.len()).expect("every message is far shorter than 65,536 octets");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(part);
}

/// Reads a part of at most `max` octets.
pub fn read_part<'a>(r: &mut Reader<'a>, max: usize, ie: &'static str) -> Result<&'a [u8], DecodeError> {
    let too_long = r.error(DecodeErrorKind::InvalidLength, ie);
    let len = usize::from(r.u16(ie)?);
    if len > max { Err(too_long) } else { r.take(len, ie) }
}

/// A flag, 0 or 1, before something that may be absent.
pub fn read_flag(r: &mut Reader<'_>, ie: &'static str) -> Result<bool, DecodeError> {
    let invalid = r.error(DecodeErrorKind::InvalidValue, ie);
    match r.u8(ie)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(invalid),
    }
}

/// An Ed25519 signature.
pub fn read_signature(r: &mut Reader<'_>) -> Result<Signature, DecodeError> {
    Ok(Signature(r.array("signature")?))
}

/// The octets of a message that the user or the operator opens with a secret of the attach: a salt, and the sealed part behind its length.
pub fn salted_message(head: MessageHead, salt: &[u8; 16], sealed: &[u8]) -> Vec<u8> {
    let mut out = head.begin();
    out.extend_from_slice(salt);
    emit_part(sealed, &mut out);
    out
}

/// Salt and sealed part of such a message. Errors: [`DecodeError`], also if the sealed part is longer than `max`.
pub fn parse_salted(
    octets: &[u8],
    head: MessageHead,
    max: usize,
    ie: &'static str,
) -> Result<([u8; 16], Box<[u8]>), DecodeError> {
    whole(octets, |r| {
        head.read(r)?;
        Ok((r.array("salt")?, read_part(r, max, ie)?.into()))
    })
}

/// Gives a message whose last field is `signature` its signature, its octets and its parser. The message has `signed_octets`, all before the
/// signature, and `read`.
#[macro_export]
macro_rules! signed_message {
    ($name:ident as $kind:expr) => {
        impl $name {
            /// Whether the owner of `key` signed it.
            pub fn is_signed_by(&self, key: &$crate::crypto::VerifyingKey) -> bool {
                key.verifies($kind, &self.signed_octets(), &self.signature)
            }

            #[must_use]
            fn with_signature(mut self, key: &$crate::crypto::SigningKey) -> Self {
                self.signature = key.sign($kind, &self.signed_octets());
                self
            }

            /// The octets that `MESSAGES.md` lays out.
            pub fn to_octets(&self) -> Vec<u8> {
                let mut out = self.signed_octets();
                out.extend_from_slice(&self.signature.0);
                out
            }

            /// Parses one. Errors: [`DecodeError`](whimbrel_ids::DecodeError).
            pub fn parse(octets: &[u8]) -> Result<Self, whimbrel_ids::DecodeError> {
                $crate::codec::whole(octets, Self::read)
            }
        }
    };
}

/// A cause in one octet.
pub trait CauseCode: Copy {
    /// Its code point.
    fn code(self) -> u8;

    /// Reads one. Errors: [`DecodeError`] of kind `Unknown`.
    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Declares an enumeration of one octet, and what operators read of each.
#[macro_export]
macro_rules! causes {
    ($(#[$doc:meta])* $name:ident, $ie:literal { $($(#[$d:meta])* $variant:ident = $v:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$d])* $variant = $v,)+ }

        impl $name {
            /// All, in the order of their code points.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub(crate) fn read(r: &mut whimbrel_ids::Reader<'_>) -> Result<Self, whimbrel_ids::DecodeError> {
                let unknown = r.error(whimbrel_ids::DecodeErrorKind::Unknown, $ie);
                match r.u8($ie)? {
                    $($v => Ok(Self::$variant),)+
                    _ => Err(unknown),
                }
            }
        }

        impl $crate::codec::CauseCode for $name {
            fn code(self) -> u8 {
                self as u8
            }

            fn read(r: &mut whimbrel_ids::Reader<'_>) -> Result<Self, whimbrel_ids::DecodeError> {
                Self::read(r)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
}
