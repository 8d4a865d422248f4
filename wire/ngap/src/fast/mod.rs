//! The messages in the form of `whimbrel-fastwire`, from the same declarations as their PER.
//!
//! A message or sequence is a table, its fields in the order of the declaration, extensions last; an enumerated value
//! is an octet, counted over all the values; a choice is a union whose alternatives are numbered from 1, known
//! extensions after the root, and [`OTHER`] what is kept unread. The root table holds the union of all messages, each
//! numbered [`number`]`(procedure, outcome)`. Identifiers of fixed length are structs. A choice within a list or
//! within a choice has a table around it.
//!
//! Messages of another release are not decoded in part: the negotiation ensures that both sides have the same
//! declarations, so that an alternative or value that is unknown here is an error, whatever its criticality.

#[macro_use]
mod schema;
mod basic;
mod forms;
mod view;

pub use view::View;
pub use whimbrel_fastwire::Form;

use whimbrel_fastwire::{Inline, Plan, ReceivedBuffer, Schema, Slot, Spot, Table, Writer};
use whimbrel_ids::{DecodeError, DecodeErrorKind};

use crate::aper::codec::{self, Int, Own};
use crate::container::OtherChoice;
use crate::ie::{Criticality, TriggeringMessage};
use crate::message::{Message, ProcedureCode};

/// A form for values of type `T`.
pub(crate) trait Fast<T> {
    /// What the value is to the table that holds it.
    const INLINE: Inline;
    /// Writes the value into its field of the table, and appends the objects to which it points.
    fn put(v: &T, spot: Spot, w: &mut Writer<'_>);
    /// Reads the value.
    fn get(slot: Slot<'_, '_>) -> Result<T, DecodeError>;
    /// The name of the form in the schema, after declaring it.
    fn declare(s: &mut Schema) -> String;
}

/// The field positions of a message.
pub(crate) trait Places {
    /// Protocol IE ids, each with its slot.
    const PLACES: &'static [(u16, usize)];
}

/// The number of the alternative that a later release added and a peer carried on.
pub const OTHER: u8 = 255;

/// The number of a message in the union of all.
pub const fn number(procedure_code: ProcedureCode, kind: TriggeringMessage) -> u8 {
    procedure_code.0 * 3 + kind as u8 + 1
}

/// The form of a value within a choice.
enum Arm {
    /// In the place of the offset: it is one, or no larger.
    Here,
    /// Where the offset points to.
    There,
    /// In a table of its own.
    Wrapped,
}

const fn arm(inline: Inline, form: Form) -> Arm {
    match (inline, form) {
        (Inline::Table, _) => Arm::Here,
        (Inline::Union, _) | (_, Form::Plain) => Arm::Wrapped,
        (_, Form::SingleValue) if inline.size() <= 4 => Arm::Here,
        (_, Form::SingleValue) => Arm::There,
    }
}

/// Writes the value of a choice.
pub(crate) fn put_arm<T, C: Fast<T>>(v: &T, spot: Spot, w: &mut Writer<'_>) {
    match arm(C::INLINE, w.form()) {
        Arm::Here => C::put(v, spot, w),
        Arm::There => {
            let there = w.alone(spot, C::INLINE);
            C::put(v, there, w);
        }
        Arm::Wrapped => put_wrapped::<T, C>(v, spot, w),
    }
}

/// Reads the value of a choice.
pub(crate) fn get_arm<T, C: Fast<T>>(slot: Slot<'_, '_>) -> Result<T, DecodeError> {
    match arm(C::INLINE, slot.form()) {
        Arm::Here => C::get(slot),
        Arm::There => C::get(slot.alone(C::INLINE.size())?),
        Arm::Wrapped => get_wrapped::<T, C>(slot),
    }
}

/// The table of an alternative, in the plain form.
pub(crate) fn declare_arm<T, C: Fast<T>>(choice: &str, arm: &str, s: &mut Schema) -> String {
    let name = C::declare(s);
    match C::INLINE {
        Inline::Table => name,
        inline => s.wrapper(&format!("{choice}{arm}Value"), &name, inline),
    }
}

/// Reads a field that may be absent.
pub(crate) fn optional<T, C: Fast<T>>(
    table: &Table<'_, '_>,
    slot: usize,
    name: &'static str,
) -> Result<Option<T>, DecodeError> {
    table.field(slot, C::INLINE, name)?.map(C::get).transpose()
}

/// Reads a mandatory field: a number that is absent is zero.
pub(crate) fn required<T, C: Fast<T>>(
    table: &Table<'_, '_>,
    slot: usize,
    name: &'static str,
) -> Result<T, DecodeError> {
    match (optional::<T, C>(table, slot, name)?, C::INLINE) {
        (Some(v), _) => Ok(v),
        (None, Inline::Scalar(_)) => C::get(table.zero(name)),
        (None, _) => Err(table.missing(name)),
    }
}

/// Writes a table that has this value alone.
fn put_wrapped<T, C: Fast<T>>(v: &T, spot: Spot, w: &mut Writer<'_>) {
    let mut plan = Plan::<2>::new();
    plan.add_only(C::INLINE);
    let table = w.table(spot, &plan);
    C::put(v, plan.spot(table, 0, C::INLINE), w);
}

/// Reads a table that has this value alone.
fn get_wrapped<T, C: Fast<T>>(slot: Slot<'_, '_>) -> Result<T, DecodeError> {
    required::<T, C>(&slot.table()?, 0, "value")
}

/// An octet that counts the values of an enumerated type.
pub(crate) fn get_enumerated<T: Copy>(all: &[T], slot: Slot<'_, '_>) -> Result<T, DecodeError> {
    let [index] = slot.get()?;
    all.get(usize::from(index)).copied().ok_or_else(|| slot.error(DecodeErrorKind::Unknown))
}

/// Declares an enumerated type.
pub(crate) fn declare_enumerated<T: core::fmt::Debug>(name: &str, all: &[T], s: &mut Schema) -> String {
    s.declare(name, |_| {
        let values: Vec<String> = all.iter().map(|v| format!("{v:?}")).collect();
        format!("enum {name}: ubyte {{ {} }}\n", values.join(", "))
    });
    name.to_owned()
}

/// An alternative of a later release: a table of three.
impl Fast<OtherChoice> for Own {
    const INLINE: Inline = Inline::Table;

    fn put(v: &OtherChoice, spot: Spot, w: &mut Writer<'_>) {
        const ID: Inline = Inline::Scalar(2);
        const CRITICALITY: Inline = Inline::Scalar(1);
        let mut plan = Plan::<3>::new();
        plan.add(2, Inline::Vector, 4);
        plan.add(0, ID, 2);
        plan.add(1, CRITICALITY, 1);
        let table = w.table(spot, &plan);
        w.put(plan.spot(table, 0, ID).at, v.id.to_le_bytes());
        w.put(plan.spot(table, 1, CRITICALITY).at, [v.criticality as u8]);
        w.octets(plan.spot(table, 2, Inline::Vector), &v.value);
    }

    fn get(slot: Slot<'_, '_>) -> Result<OtherChoice, DecodeError> {
        let table = slot.table()?;
        Ok(OtherChoice {
            id: required::<u16, Int<0, 65_535>>(&table, 0, "id")?,
            criticality: required::<Criticality, Own>(&table, 1, "criticality")?,
            value: required::<Vec<u8>, codec::Octets>(&table, 2, "value")?,
        })
    }

    fn declare(s: &mut Schema) -> String {
        <Own as Fast<Criticality>>::declare(s);
        let body = "table OtherChoice {\n  id: ushort;\n  criticality: Criticality;\n  value: [ubyte] (required);\n}\n";
        s.declare("OtherChoice", |_| body.to_owned());
        "OtherChoice".to_owned()
    }
}

impl Message {
    /// Appends the message in the fast form.
    pub fn encode_fast(&self, form: Form, out: &mut Vec<u8>) {
        let mut w = Writer::new(out, form);
        let mut plan = Plan::<2>::new();
        plan.add_only(Inline::Union);
        let table = w.table(w.root(), &plan);
        let spot = plan.spot(table, 0, Inline::Union);
        w.put(spot.tag, [number(self.procedure_code(), self.kind())]);
        self.put_body(spot, &mut w);
    }

    /// Reads a message in the fast form.
    ///
    /// Errors: [`DecodeError`], also for unknown or missing fields: both sides have the same declarations.
    pub fn decode_fast(octets: &[u8], form: Form) -> Result<Message, DecodeError> {
        Self::get_body(Self::body(&ReceivedBuffer::new(octets, form))?)
    }

    /// The place of a message in the root table.
    fn body<'r, 'a>(octets: &'r ReceivedBuffer<'a>) -> Result<Slot<'r, 'a>, DecodeError> {
        let root = octets.root("NgapPdu")?;
        root.field(0, Inline::Union, "NgapPdu")?.ok_or_else(|| root.missing("NgapPdu"))
    }
}

/// A digest of all declarations, which both sides compare before they use the form. It is the SCTP adaptation code point (RFC 5061
/// §4.2.6) by which they find out.
///
/// Another list of messages or fields, or another layout, has another digest: `wire/fastwire/tests/independent.rs` checks its
/// value.
pub const DIGEST: u32 = 0xced8_5b37;

/// The digest of a schema, for single-value unions: FNV-1a over the name of the layout and the text.
pub fn digest(schema: &str) -> u32 {
    let octets = b"single-value unions 1\n".iter().chain(schema.as_bytes());
    octets.fold(0x811c_9dc5, |h, o| (h ^ u32::from(*o)).wrapping_mul(0x0100_0193))
}

/// The schema of the plain form, for other readers of FlatBuffers.
pub fn schema() -> String {
    let mut s = Schema::default();
    Message::declare_all(&mut s);
    s.into_text() + "table NgapPdu {\n  message: Message;\n}\nroot_type NgapPdu;\n"
}
