//! What comes over the way between a packet logger and a UPF: a frame of their link, a hello, or a datagram. What is read is the same when written again.
#![no_main]

use whimbrel_user::logger::datagram::{self, HEAD_OCTETS, DatagramHead};
use whimbrel_user::logger::{LoggerFrame, LoggerHello};

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    if let Some(frame) = LoggerFrame::read(octets) {
        let _ = frame.addresses();
        assert_eq!(LoggerFrame::read(&frame.to_octets()), Some(frame));
    }
    if let Some(hello) = LoggerHello::read(octets) {
        assert_eq!(hello.to_octets(), octets);
    }
    if let Some(head) = DatagramHead::read(octets) {
        assert_eq!(DatagramHead::read(&head.to_octets()), Some(head));
        let behind = octets.get(HEAD_OCTETS..).unwrap_or_default();
        assert_eq!(datagram::outcomes(behind).count(), behind.len() / 8);
    }
});
