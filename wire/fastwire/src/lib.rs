//! FlatBuffers, and the form of it in which a union needs no table for a single value: NGAP messages in place of
//! aligned PER, to compare the two.
//!
//! This crate knows the layout, as the FlatBuffers documentation describes it: offsets, vtables (one kept where two
//! are equal), tables, vectors, strings, structs, unions, alignment. What stands in which field is not said here:
//! `whimbrel-ngap` derives it from the one list of messages that its PER comes from (its feature `fast`;
//! `Message::encode_fast`, `Message::decode_fast`, `fast::View`).
//!
//! # The two forms
//!
//! [`Form::Plain`] is FlatBuffers as any reader of it expects: every alternative of a union is a table. The schema
//! for such a reader is `testdata/ngap.fbs`, which [`Schema`] writes.
//!
//! [`Form::SingleValue`] differs in unions alone. An alternative that holds one value has no table around it: a value
//! of up to four octets, or the offset of a vector or string, stands in the place of the offset to that table; a
//! larger one is what the offset points to. That is a vtable of six octets, its offset of four, and one offset to
//! follow less, for each such alternative.
//!
//! # Why no association carries it
//!
//! The paper's gain is that of FlatBuffers over a codec that builds trees. Over the PER of `whimbrel-ngap` there is little: its messages take
//! 1.17 times as long to encode and decode as in this form (median of the messages of `./x bench neutrino fig19`; 1.62 at most, where one
//! sets a context up), which is some 0.05 µs of a message, and 9 times less than with a conventional codec; they are smaller (`fig20`).
//! A service request of 55 µs takes as long with either (`fig7`). An agreement with gNBs (a payload protocol identifier of its own, a digest of the
//! schema) would add a second parser of octets from outside and gain nothing that a phone could notice, so standard gNBs have all of
//! the speed, and the form is kept to show that.
//!
//! Octets would tell themselves apart: PER begins with three bits and five zeros, and a buffer of this crate with the offset of its
//! root, [`FIRST_OCTET`], of which the low five bits are not zero.
//!
//! # Reading
//!
//! [`Octets`] is what came from outside. Nothing in it is trusted: each offset is checked where it is followed, an
//! object that is reached by two ways counts twice against the length of the whole, so that no web of offsets makes a
//! reader visit more than it received, and nothing is copied until the caller asks. Alignment is kept when writing
//! and not asked for when reading.
//!
//! Deviation from other readers: a buffer that shares one string or table between two fields may be refused as having
//! too many objects.

#![forbid(unsafe_code)]

/// How every buffer begins whose root is a table of a union alone, as that of a message is: with the offset of the root,
/// behind the vtable of its two fields.
pub const FIRST_OCTET: u8 = 12;

mod layout;
mod reader;
mod schema;
mod writer;

pub use layout::{Form, Inline, Plan, Spot};
pub use reader::{Octets, Slot, Table, Vector};
pub use schema::Schema;
pub use writer::Writer;
