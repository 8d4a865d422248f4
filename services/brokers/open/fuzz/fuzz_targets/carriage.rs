//! Any octets as the text of a SUCI and as an EAP packet: what is read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_open::carriage::{EapExpanded, SuciNai};

fuzz_target!(|octets: &[u8]| {
    if let Ok(suci) = SuciNai::parse(octets) {
        assert_eq!(SuciNai::parse(suci.to_text().as_bytes()).as_ref(), Ok(&suci));
        let _ = suci.to_request();
    }
    if let Ok(packet) = EapExpanded::parse(octets) {
        assert_eq!(EapExpanded::parse(&packet.to_octets()).as_ref(), Ok(&packet));
    }
});
