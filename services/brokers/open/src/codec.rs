//! What messages of brokers are made of: parts behind their length, flags, enumerations of one octet. The crate `veil` writes its messages with the
//! same.

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use crate::crypto::Signature;

/// Parses a whole message: nothing may be left over.
pub fn whole<T>(
    octets: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut r = Reader::new(octets);
    let value = read(&mut r)?;
    if r.is_empty() { Ok(value) } else { Err(r.error(DecodeErrorKind::TrailingOctets, "message")) }
}

/// Reads the first two octets of a message.
pub fn read_type(r: &mut Reader<'_>, message_type: u8, version: u8) -> Result<(), DecodeError> {
    if r.peek() != Some(message_type) {
        return Err(r.error(DecodeErrorKind::Unknown, "message type"));
    }
    r.u8("message type")?;
    let unknown = r.error(DecodeErrorKind::Unknown, "version");
    if r.u8("version")? == version { Ok(()) } else { Err(unknown) }
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

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
}
