//! Messages of every type come through both forms, and say the same as in PER.

use std::collections::BTreeSet;

use proptest::prelude::*;
use whimbrel_ngap::fast::{Form, View};
use whimbrel_ngap::{Message, Source, peek};

const FORMS: [Form; 2] = [Form::Plain, Form::SingleValue];

fn fast(message: &Message, form: Form) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode_fast(form, &mut out);
    out
}

proptest! {
    #[test]
    fn from_per_to_fast_and_back(seed: u64) {
        let per = Message::sample(&mut Source::new(seed)).to_vec();
        let message = Message::decode(&per).unwrap();
        for form in FORMS {
            let received = Message::decode_fast(&fast(&message, form), form);
            prop_assert_eq!(received.as_ref(), Ok(&message));
            prop_assert_eq!(received.unwrap().to_vec(), per.clone());
        }
    }

    #[test] // What stands before a message does not move it: alignment counts from its own start.
    fn wherever_it_is_written(seed: u64, before in 0_usize..9) {
        let message = Message::sample(&mut Source::without_fragments(seed));
        for form in FORMS {
            let mut out = vec![0xee; before];
            message.encode_fast(form, &mut out);
            prop_assert_eq!(&out[before..], &fast(&message, form)[..]);
        }
    }

    #[test]
    fn a_view_finds_the_same_ue_as_a_glance_at_per(seed: u64) {
        let message = Message::sample(&mut Source::without_fragments(seed));
        for form in FORMS {
            let octets = fast(&message, form);
            let view = View::new(&octets, form).unwrap();
            prop_assert_eq!((view.procedure_code(), view.kind()), (message.procedure_code(), message.kind()));
            let (of_per, of_view) = (peek(&message.to_vec()).unwrap(), view.peek());
            prop_assert_eq!(of_per.amf_ue_ngap_id, of_view.amf_ue_ngap_id);
            prop_assert_eq!(of_per.ran_ue_ngap_id, of_view.ran_ue_ngap_id);
            // A glance at PER stops at the names, where a message that has both has no third.
            if of_per.amf_ue_ngap_id.is_none() {
                prop_assert_eq!(of_per.five_g_s_tmsi, of_view.five_g_s_tmsi);
            }
            if let Message::UplinkNasTransport(m) = &message {
                prop_assert_eq!(view.nas_pdu(), Some(&m.nas_pdu[..]));
            }
            prop_assert_eq!(view.to_message(), Ok(message.clone()));
        }
    }
}

#[test]
fn every_type_of_message_was_among_the_samples() {
    let mut source = Source::without_fragments(38_413);
    let mut names = BTreeSet::new();
    for _ in 0..4000 {
        let message = Message::sample(&mut source);
        names.insert(message.name());
        for form in FORMS {
            assert_eq!(Message::decode_fast(&fast(&message, form), form), Ok(message.clone()), "{message:?}");
        }
    }
    let schema = whimbrel_ngap::fast::schema();
    let union = schema.split("union Message {").nth(1).unwrap().split('}').next().unwrap();
    let declared: BTreeSet<&str> =
        union.lines().filter_map(|l| l.trim().split_once(':')).map(|(n, _)| n).collect();
    assert_eq!(names, declared);
}

#[test]
fn single_values_without_tables_make_no_message_longer() {
    let mut source = Source::without_fragments(1);
    let mut saved = 0;
    for _ in 0..2000 {
        let message = Message::sample(&mut source);
        let [plain, single] = FORMS.map(|form| fast(&message, form).len());
        assert!(single <= plain, "{single} octets for {plain}: {message:?}");
        saved += plain - single;
    }
    assert!(saved > 0);
}
