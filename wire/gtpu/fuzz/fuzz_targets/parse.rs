//! The view and the tunnel messages, on any octets.
#![no_main]

use whimbrel_gtpu::signalling::ErrorIndication;
use whimbrel_gtpu::{Gtpu, remove_extensions_in_transit};

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    if let Ok(m) = Gtpu::parse(octets) {
        assert_eq!(&octets[m.payload_at..][..m.payload.len()], m.payload);
        let _ = ErrorIndication::parse(m.payload);
    }
    let mut copy = octets.to_vec();
    let removed = remove_extensions_in_transit(&mut copy);
    if let Ok(m) = Gtpu::parse_in_transit(octets) {
        assert_eq!(Gtpu::parse_in_transit(&copy[removed..]).map(|m| m.payload), Ok(m.payload));
    }
});
