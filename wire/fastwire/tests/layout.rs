//! The layout itself, octet by octet.

use whimbrel_fastwire::{FIRST_OCTET, Form, Inline, Plan, ReceivedBuffer, Writer};
use whimbrel_ids::{AmfUeNgapId, DecodeErrorKind};
use whimbrel_ngap::fast;
use whimbrel_ngap::*;

fn length(message: &Message, form: Form) -> usize {
    let mut out = Vec::new();
    message.encode_fast(form, &mut out);
    out.len()
}

#[test]
fn a_table_stands_before_what_it_points_to() {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out, Form::Plain);
    let mut plan = Plan::<2>::new();
    plan.add(1, Inline::Vector, 4);
    plan.add(0, Inline::Scalar(2), 2);
    let table = w.table(w.root(), &plan);
    w.put(plan.spot(table, 0, Inline::Scalar(2)).at, 0x1234_u16.to_le_bytes());
    w.octets(plan.spot(table, 1, Inline::Vector), b"abc");
    #[rustfmt::skip]
    assert_eq!(out, [
        12, 0, 0, 0,                // the root is here
        8, 0, 10, 0, 8, 0, 4, 0,    // vtable: its length, the table's, the two fields
        8, 0, 0, 0,                 // the table: the vtable stands eight before
        8, 0, 0, 0,                 // the vector stands eight after
        0x34, 0x12, 0, 0,           // the number, padding
        3, 0, 0, 0, b'a', b'b', b'c',
    ]);
}

#[test]
fn tables_of_one_shape_share_a_vtable() {
    let list = |n: u16| {
        let item = |i| UeAssociatedLogicalNgConnectionItem {
            amf_ue_ngap_id: AmfUeNgapId::new(i),
            ran_ue_ngap_id: None,
        };
        let items = (0..u64::from(n)).map(item).collect();
        Message::from(NgReset::new(CauseNas::Unspecified.into(), ResetType::PartOfNgInterface(items)))
    };
    // Each more costs its offset, that of the vtable, the eight octets of its number, and four that align these.
    let lengths = [2, 4, 6].map(|n| length(&list(n), Form::Plain));
    assert_eq!(lengths.map(|l| l - lengths[0]), [0, 40, 80]);
}

#[test] // Neutrino §4.4: ten octets a number; this message has two
fn a_number_in_a_union_needs_no_table() {
    let id = AmfUeNgapId::new(1).unwrap();
    let command =
        |cause: Cause| Message::from(UeContextReleaseCommand::new(UeNgapIds::AmfUeNgapId(id), cause));
    let message = command(CauseNas::NormalRelease.into());
    let [plain, single] = [Form::Plain, Form::SingleValue].map(|form| length(&message, form));
    assert!(plain - single >= 2 * 10, "{plain} and {single}");
}

/// A table whose vtable is invalid, or outside the buffer.
#[test]
fn vtables_are_looked_at_first() {
    let table = |distance: i32, length: u16| {
        let mut octets = vec![8, 0, 0, 0];
        octets.extend(length.to_le_bytes());
        octets.extend(4_u16.to_le_bytes());
        octets.extend(distance.to_le_bytes());
        octets
    };
    let kind = |octets: &[u8]| ReceivedBuffer::new(octets, Form::Plain).root("root").err().map(|e| e.kind);
    assert_eq!(kind(&table(4, 4)), None);
    assert_eq!(kind(&table(4, 3)), Some(DecodeErrorKind::InvalidLength));
    assert_eq!(kind(&table(4, 10)), Some(DecodeErrorKind::InvalidLength));
    for distance in [9, -1, i32::MIN, i32::MAX] {
        assert_eq!(kind(&table(distance, 4)), Some(DecodeErrorKind::Truncated), "{distance}");
    }
}

#[test]
fn the_first_octet_distinguishes_the_form_from_per() {
    let mut s = Source::without_fragments(3);
    for _ in 0..500 {
        let m = Message::sample(&mut s);
        for form in [Form::Plain, Form::SingleValue] {
            let mut out = Vec::new();
            m.encode_fast(form, &mut out);
            assert_eq!(out[0], FIRST_OCTET);
        }
        assert_ne!(m.to_vec()[0], FIRST_OCTET);
        assert_eq!(m.to_vec()[0] & 0x1f, 0);
    }
}

#[test]
fn a_number_of_the_union_is_that_of_procedure_and_outcome() {
    let mut s = Source::without_fragments(2);
    for _ in 0..500 {
        let m = Message::sample(&mut s);
        let mut out = Vec::new();
        m.encode_fast(Form::SingleValue, &mut out);
        let number = fast::number(m.procedure_code(), m.kind());
        assert_eq!((number - 1) / 3, m.procedure_code().0);
        let root = ReceivedBuffer::new(&out, Form::SingleValue);
        let tag = root.root("NgapPdu").unwrap().field(0, Inline::Union, "message").unwrap().unwrap().tag();
        assert_eq!(tag, number);
    }
}
