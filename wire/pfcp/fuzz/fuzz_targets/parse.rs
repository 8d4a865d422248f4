//! What is understood is understood the same when written again.
#![no_main]

use whimbrel_pfcp::{Frame, Message};

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let Ok(frame) = Frame::parse(octets) else { return };
    let Ok(message) = Message::parse(&frame) else { return };
    let again = message.to_octets(frame.header.seid, frame.header.sequence);
    let frame = Frame::parse(&again).expect("our own header");
    assert_eq!(Message::parse(&frame), Ok(message));
});
