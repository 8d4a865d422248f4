//! Flat forms: the encoding of a UE's state, inputs and outputs between processes of one core.
//!
//! | form | of |
//! | --- | --- |
//! | [`Checkpoint`] | an idle [`UeContext`](crate::UE) |
//! | [`Delta`] | the edits from one checkpoint of a UE to a later one |
//! | [`Envelope::to_flat`](crate::Envelope::to_flat) | an input |
//! | [`Batch::to_flat`](crate::Batch::to_flat) | the output of an input |
//! | [`Config::to_flat`](crate::config::Config::to_flat) | the configuration |
//! | [`N14::to_flat`](crate::n14::N14::to_flat) | a message between two AMFs |
//!
//! Every form is a frame: its kind (one octet), the version of the form (two), a body, and a CRC-32C over all of that
//! (four; numbers are in network order). Bodies are [postcard](https://postcard.jamesmunns.com), derived from the types:
//! numbers as varints, fields in order, no names, no padding. The octets come from another process, which may run other
//! code or be faulty: each value is checked against its clause before use, allocations are bounded by the length of the
//! octets, and no octets cause a panic.
//!
//! A form may hold keys: [`Flat`] is wiped when it is freed, and `Debug` shows only its length.

pub(crate) mod at_rest;
mod bounds;
mod checkpoint;
mod delta;
mod exchange;
pub(crate) mod octets;
mod packed;
pub(crate) mod text;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use postcard::ser_flavors::Flavor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use checkpoint::Checkpoint;
pub use delta::Delta;
pub use packed::{LogOf, PackedInput};

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The frame holds a [`Checkpoint`].
    Checkpoint = 1,
    /// The frame holds a [`Delta`].
    Delta = 2,
    /// The frame holds an [`Envelope`](crate::Envelope).
    Envelope = 3,
    /// The frame holds a [`Batch`](crate::Batch).
    Batch = 4,
    /// The frame holds a [`Config`](crate::config::Config).
    Config = 5,
    /// The frame holds an [`N14`](crate::n14::N14).
    N14 = 6,
}

/// The version of each form that this program sends within its cluster; a program with other versions is refused.
pub const FORMS: [u16; 5] = [
    checkpoint::VERSION,
    delta::VERSION,
    exchange::ENVELOPE_VERSION,
    exchange::BATCH_VERSION,
    exchange::CONFIG_VERSION,
];

/// Octets before a body.
const HEAD: usize = 3;
/// Octets of the CRC after it.
const CRC: usize = 4;

/// Why octets are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatError {
    /// No frame of this kind.
    NotA(Form),
    /// A version that this program does not read.
    UnknownVersion(u16),
    /// Wrong CRC: octets were changed or lost in transit.
    Damaged,
    /// The body does not decode, or holds a value that its clause forbids.
    Malformed,
    /// Valid values in an invalid combination or number; which.
    Contradiction(&'static str),
    /// A delta of another UE, or with another base.
    OtherBase,
}

impl fmt::Display for FlatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotA(form) => write!(f, "no frame of a {form:?}"),
            Self::UnknownVersion(v) => write!(f, "version {v} of the form is not known here"),
            Self::Damaged => f.write_str("the CRC is wrong"),
            Self::Malformed => f.write_str("the body is malformed"),
            Self::Contradiction(what) => write!(f, "it contradicts itself: {what}"),
            Self::OtherBase => f.write_str("it begins at another checkpoint"),
        }
    }
}

impl std::error::Error for FlatError {}

/// A frame. Clones share the octets. Wiped when it is freed: it may hold keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Flat(Arc<[u8]>);

impl Flat {
    /// All octets, to be sent or stored.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Flat {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        whimbrel_ids::serde_as::octets(from, "a frame", |octets| Some(Self(octets.into())))
    }
}

impl Drop for Flat {
    fn drop(&mut self) {
        if let Some(octets) = Arc::get_mut(&mut self.0) {
            wipe(octets);
        }
    }
}

impl fmt::Debug for Flat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flat({} octets)", self.0.len())
    }
}

/// Wide stores and a barrier: `zeroize()` writes octet by octet.
fn wipe(octets: &mut [u8]) {
    octets.fill(0);
    zeroize::optimization_barrier(octets);
}

thread_local! {
    /// A buffer in which frames are written before their length is known.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A buffer that has grown beyond this is freed; a UE's state with a few sessions fits.
const ROOM_MAX: usize = 8192;

/// Writes a frame, and wipes the old copy when the buffer grows.
struct FrameWriter(Vec<u8>);

impl FrameWriter {
    /// The frame of a value; `room` is its estimated length.
    fn frame<T: Serialize>(form: Form, version: u16, room: usize, value: &T) -> Flat {
        let mut to = Self::begin(form, version, room);
        to.value(value);
        to.end()
    }

    /// Appends the frame of a value.
    fn append<T: Serialize>(form: Form, version: u16, room: usize, value: &T, octets: &mut Vec<u8>) {
        let from = octets.len();
        let mut to = Self(std::mem::take(octets));
        to.head(form, version, room);
        to.value(value);
        let crc = crc32c::crc32c(&to.0[from..]);
        to.extend(&crc.to_be_bytes());
        *octets = std::mem::take(&mut to.0);
    }

    fn begin(form: Form, version: u16, room: usize) -> Self {
        let mut to = Self::empty();
        to.head(form, version, room);
        to
    }

    /// A frame that is built from another one's octets.
    fn empty() -> Self {
        Self(ROOM.take())
    }

    fn head(&mut self, form: Form, version: u16, room: usize) {
        self.reserve(HEAD + room + CRC);
        self.0.push(form as u8);
        self.0.extend_from_slice(&version.to_be_bytes());
    }

    fn value<T: Serialize>(&mut self, value: &T) {
        // Serialisation fails only for a sequence of unknown length or a type that refuses it: there is none here.
        postcard::serialize_with_flavor(value, self).expect("the types of a UE can be written");
    }

    fn extend(&mut self, octets: &[u8]) {
        self.reserve(octets.len());
        self.0.extend_from_slice(octets);
    }

    fn reserve(&mut self, more: usize) {
        if self.0.capacity() - self.0.len() < more {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let mut larger = Vec::with_capacity((2 * self.0.capacity()).max(self.0.len() + more));
        larger.extend_from_slice(&self.0);
        wipe(&mut self.0);
        self.0 = larger;
    }

    /// Completes the frame, in a box of its exact size.
    fn end(mut self) -> Flat {
        let crc = crc32c::crc32c(&self.0);
        self.extend(&crc.to_be_bytes());
        Flat(self.0.as_slice().into())
    }
}

impl Drop for FrameWriter {
    fn drop(&mut self) {
        wipe(&mut self.0);
        self.0.clear();
        if (1..=ROOM_MAX).contains(&self.0.capacity()) {
            ROOM.set(std::mem::take(&mut self.0));
        }
    }
}

impl Flavor for &mut FrameWriter {
    type Output = ();

    #[inline]
    fn try_push(&mut self, octet: u8) -> postcard::Result<()> {
        if self.0.len() == self.0.capacity() {
            self.grow(1);
        }
        self.0.push(octet);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, octets: &[u8]) -> postcard::Result<()> {
        self.extend(octets);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// A received frame: its parts, with kind and CRC checked.
struct ReceivedFrame<'a> {
    version: u16,
    body: &'a [u8],
}

impl<'a> ReceivedFrame<'a> {
    fn open(form: Form, octets: &'a [u8]) -> Result<Self, FlatError> {
        let frame = Self::unverified(form, octets)?;
        let (framed, crc) = octets.split_last_chunk::<CRC>().ok_or(FlatError::NotA(form))?;
        if crc32c::crc32c(framed).to_be_bytes() != *crc {
            return Err(FlatError::Damaged);
        }
        Ok(frame)
    }

    /// From octets whose CRC was just computed here.
    fn unverified(form: Form, octets: &'a [u8]) -> Result<Self, FlatError> {
        let (framed, _) = octets.split_last_chunk::<CRC>().ok_or(FlatError::NotA(form))?;
        let (&[kind, v0, v1], body) = framed.split_first_chunk::<HEAD>().ok_or(FlatError::NotA(form))?;
        if kind != form as u8 {
            return Err(FlatError::NotA(form));
        }
        Ok(Self { version: u16::from_be_bytes([v0, v1]), body })
    }
}

/// A digest of a value; equal values have equal digests.
pub(crate) fn digest<T: Serialize>(value: &T) -> u32 {
    let mut to = FrameWriter(Vec::new());
    to.value(value);
    crc32c::crc32c(&to.0)
}

/// Decodes a complete body.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, FlatError> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(FlatError::Malformed),
    }
}

/// Decodes a body of which only one version is read.
fn read_frame<T: DeserializeOwned>(form: Form, version: u16, octets: &[u8]) -> Result<T, FlatError> {
    let frame = ReceivedFrame::open(form, octets)?;
    if frame.version != version {
        return Err(FlatError::UnknownVersion(frame.version));
    }
    read(frame.body)
}

#[cfg(test)]
mod tests;
