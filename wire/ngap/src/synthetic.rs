//! Sequences of one to 35 fields, declared as elements of NGAP are: for measurements of codecs by the number of fields.

use whimbrel_fastwire::{Form, ReceivedBuffer, Writer as FastWriter};
use whimbrel_ids::DecodeError;

use crate::aper::codec::{Int, Octets, Own};
use crate::aper::{Aper, Reader, Writer};
use crate::fast::Fast;

/// A sequence made for measurements.
pub trait Synthetic: Sized {
    /// Appends it in aligned PER.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads it from aligned PER.
    ///
    /// Errors: [`DecodeError`] for what is no such sequence.
    fn decode(octets: &[u8]) -> Result<Self, DecodeError>;
    /// Appends it in the fast form.
    fn encode_fast(&self, out: &mut Vec<u8>);
    /// Reads it from the fast form.
    ///
    /// Errors: [`DecodeError`] for what is no such sequence.
    fn decode_fast(octets: &[u8]) -> Result<Self, DecodeError>;
}

/// Declares a sequence at each `=> Name`, of the fields before it. The kinds: `U32`, `Octets`, `U64`, `U8`, `Bool`.
macro_rules! ladder {
    (@ [$($done:tt)*] U32 $f:ident; $($rest:tt)*) => {
        ladder!(@ [$($done)* { $f: u32 as Int<0, 4_294_967_295> }] $($rest)*);
    };
    (@ [$($done:tt)*] Octets $f:ident; $($rest:tt)*) => {
        ladder!(@ [$($done)* { $f: Vec<u8> as Octets }] $($rest)*);
    };
    (@ [$($done:tt)*] U64 $f:ident; $($rest:tt)*) => {
        ladder!(@ [$($done)* { $f: u64 as Int<0, 4_000_000_000_000> }] $($rest)*);
    };
    (@ [$($done:tt)*] U8 $f:ident; $($rest:tt)*) => {
        ladder!(@ [$($done)* { $f: u8 as Int<0, 255> }] $($rest)*);
    };
    (@ [$($done:tt)*] Bool $f:ident; $($rest:tt)*) => {
        ladder!(@ [$($done)* { $f: bool as Own }] $($rest)*);
    };
    (@ [$({ $f:ident: $t:ty as $c:ty })*] => $name:ident; $($rest:tt)*) => {
        sequence! {
            #[doc = concat!("See [`Synthetic`]: `", stringify!($name), "`.")]
            pub struct $name {
                $( #[doc = "A field."] req $f: $t as $c ),*
            }
        }

        impl Synthetic for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                self.write(&mut Writer::new(out));
            }
            fn decode(octets: &[u8]) -> Result<Self, DecodeError> {
                let read = Self::read(&mut Reader::new(octets, 0, stringify!($name)));
                read.map_err(|fault| fault.into_decode_error(stringify!($name)))
            }
            fn encode_fast(&self, out: &mut Vec<u8>) {
                let mut w = FastWriter::new(out, Form::Plain);
                <Own as Fast<$name>>::put(self, w.root(), &mut w);
            }
            fn decode_fast(octets: &[u8]) -> Result<Self, DecodeError> {
                <Own as Fast<$name>>::get(ReceivedBuffer::new(octets, Form::Plain).root_slot(stringify!($name)))
            }
        }

        ladder!(@ [$({ $f: $t as $c })*] $($rest)*);
    };
    (@ [$($done:tt)*]) => {};
}

ladder! { @ []
    U32 f1; => Fields1;
    Octets f2; U64 f3; => Fields3;
    U8 f4; Bool f5; => Fields5;
    U32 f6; Octets f7; => Fields7;
    U64 f8; U8 f9; Bool f10; => Fields10;
    U32 f11; Octets f12; U64 f13; U8 f14; Bool f15; => Fields15;
    U32 f16; Octets f17; U64 f18; U8 f19; Bool f20; => Fields20;
    U32 f21; Octets f22; U64 f23; U8 f24; Bool f25; => Fields25;
    U32 f26; Octets f27; U64 f28; U8 f29; Bool f30; => Fields30;
    U32 f31; Octets f32; U64 f33; U8 f34; Bool f35; => Fields35;
}
