//! The control packet, on any octets.
#![no_main]

use whimbrel_bfd::{ControlPacket, OCTETS};

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    if let Ok(packet) = ControlPacket::parse(octets) {
        let again = packet.to_octets();
        assert_eq!(again[4..], octets[4..OCTETS]);
        assert_eq!(ControlPacket::parse(&again), Ok(packet));
    }
});
