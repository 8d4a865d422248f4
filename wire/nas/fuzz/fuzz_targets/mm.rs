//! Any octets as a 5GMM message, and as its envelope: what is read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_nas::{Envelope, mm};

fuzz_target!(|octets: &[u8]| {
    let _ = Envelope::parse(octets);
    if let Ok(message) = mm::Message::decode(octets) {
        let again = message.to_octets();
        assert_eq!(mm::Message::decode(&again).as_ref(), Ok(&message));
    }
});
