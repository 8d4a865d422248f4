//! The view and the tunnel messages, on any octets.
#![no_main]

use whimbrel_gtpu::Gtpu;
use whimbrel_gtpu::signalling::ErrorIndication;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    if let Ok(m) = Gtpu::parse(octets) {
        assert_eq!(&octets[m.payload_at..][..m.payload.len()], m.payload);
        let _ = ErrorIndication::parse(m.payload);
    }
});
