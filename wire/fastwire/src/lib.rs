//! FlatBuffers, and the form of it in which a union needs no table for a single value: what NGAP messages look like
//! between a gNB and a core that both know it, in place of aligned PER.
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
//! # Agreement on an association
//!
//! Designed, and not built: no association carries the form yet.
//!
//! - A gNB that knows the form says so before NG SETUP, in a first message of a payload protocol identifier of its own
//!   (that of NGAP is 60): a version, the forms that it knows, and a digest of its schema. A core that knows the form and
//!   has the same digest repeats the one form that it chose, under the same identifier. Silence for a second, another
//!   digest, or an identifier that the core drops, as all others do: the association stays with PER.
//! - The digest is of the whole schema, so both sides have the same declarations and nothing is ever unknown; that is
//!   why the criticality of TS 38.413 §10.3 has no part in this form. A core of a newer release speaks PER to an older
//!   gNB until that is upgraded too.
//! - After the answer each message carries the identifier of its form, so the two never mix; a message under the
//!   identifier that was not agreed on is dropped and counted.
//! - Within the core the octets tell themselves apart: PER begins with three bits and five zeros, and a buffer of this
//!   crate with the offset of its root, [`FIRST_OCTET`], of which the low five bits are not zero. So one log holds both.
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
