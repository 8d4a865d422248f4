//! FlatBuffers, and the form of it in which a union needs no table for a single value: NGAP messages in place of
//! aligned PER, between gNBs and cores that agree on it.
//!
//! This crate knows the layout, as the FlatBuffers documentation describes it: offsets, vtables (one kept where two are
//! equal), tables, vectors, strings, structs, unions, alignment. Which field holds what is not defined here:
//! `whimbrel-ngap` derives it from the one list of messages that its PER comes from (`Message::encode_fast`,
//! `Message::decode_fast`, `fast::View`).
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
//! # How two sides agree
//!
//! A gNB that can says so in the INIT of its SCTP association: an adaptation layer indication (RFC 5061 §4.2.6) whose code point is the
//! digest of the schema, `whimbrel_ngap::fast::DIGEST`. A core whose digest is the same says it too, in its INIT ACK, and from then on both
//! write [`Form::SingleValue`] over that association, from NG SETUP REQUEST to the last message. A peer that does not know the parameter
//! skips it, as its type demands, and a core sends it only to peers that did, so a standard gNB or AMF never notices. Another digest is
//! another number, and leaves the association to PER. Each association negotiates for itself, again when it is set up again.
//!
//! Such a peer reads PER too: the first octet distinguishes the forms. PER begins with three bits and five zeros, and a buffer of this
//! crate with the offset of its root, [`FIRST_OCTET`], of which the low five bits are not zero. So `Message::decode` and `peek` take
//! either, logs of inputs need no mark, and nothing is translated on its way in.
//!
//! What it gains is the paper's where a codec builds trees, and little over the PER of `whimbrel-ngap`, whose messages take 1.17 times
//! as long to encode and decode as in this form and are smaller (`./x bench neutrino fig19`, `fig20`). A service request takes as long in
//! either form, and an attach 1.03 times as long in this one (`fig7`, `fig8`). So standard gNBs have all of the speed, and `whimbrel-lab ran`
//! offers fastwire only when asked.
//!
//! # Reading
//!
//! [`ReceivedBuffer`] is what came from outside. Nothing in it is trusted: each offset is checked where it is followed, an
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
pub use reader::{ReceivedBuffer, Slot, Table, Vector};
pub use schema::Schema;
pub use writer::Writer;
