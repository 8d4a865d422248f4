//! Aligned packed encoding rules (X.691), as much as NGAP uses of them.
//!
//! [`Reader`] and [`Writer`] know bits, alignment, whole numbers and length determinants; [`codec`] knows the
//! ASN.1 types; the macros of `schema` put them together into sequences, choices and messages.

pub(crate) mod codec;
mod reader;
#[cfg(any(test, feature = "samples"))]
pub(crate) mod sample;
mod writer;

pub(crate) use reader::{Fault, Reader};
pub(crate) use writer::Writer;

/// A type that has one form in aligned PER.
pub(crate) trait Aper: Sized {
    /// Reads a value.
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault>;
    /// Writes the value.
    fn write(&self, w: &mut Writer<'_>);
    /// A random value, for tests.
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut sample::Source) -> Self;
}

/// A form for values of type `T` that do not carry their constraint in the type.
pub(crate) trait Codec<T> {
    /// Reads a value.
    fn read(r: &mut Reader<'_>) -> Result<T, Fault>;
    /// Writes the value.
    fn write(v: &T, w: &mut Writer<'_>);
    /// A random value, for tests.
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut sample::Source) -> T;
}

/// How many bits a whole number below `range` takes (X.691 §11.5.3).
const fn bits_for(range: u64) -> u32 {
    if range <= 1 { 0 } else { 64 - (range - 1).leading_zeros() }
}

/// How many octets `v` takes, at least one.
const fn octets_for(v: u64) -> u32 {
    if v == 0 { 1 } else { 8 - v.leading_zeros() / 8 }
}

/// The unit of fragmentation (X.691 §11.9.3.8).
const FRAGMENT: usize = 16 * 1024;

#[cfg(test)]
mod tests;
