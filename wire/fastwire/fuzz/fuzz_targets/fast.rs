//! Any octets in either form: view, decode, encode in both forms and in PER, decode again.
//! `cargo +nightly fuzz run fast`
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_ngap::Message;
use whimbrel_ngap::fast::{Form, View};

const FORMS: [Form; 2] = [Form::Plain, Form::SingleValue];

fuzz_target!(|octets: &[u8]| {
    for form in FORMS {
        if let Ok(view) = View::new(octets, form) {
            let _ = (view.peek(), view.nas_pdu());
        }
        let Ok(message) = Message::decode_fast(octets, form) else { continue };
        for form in FORMS {
            let mut again = Vec::new();
            message.encode_fast(form, &mut again);
            assert_eq!(Message::decode_fast(&again, form).as_ref(), Ok(&message));
        }
        assert_eq!(Message::decode(&message.to_vec()), Ok(message));
    }
});
