//! What is worth keeping of what the fuzzer tries (`fuzz/seeds/parse`): what is understood is understood the same when written again.

use whimbrel_pfcp::{Frame, Message};

/// Whether it is understood.
fn read(octets: &[u8]) -> bool {
    let Ok(frame) = Frame::parse(octets) else { return false };
    let Ok(message) = Message::parse(&frame) else { return false };
    let again = message.to_octets(frame.header.seid, frame.header.sequence);
    let frame = Frame::parse(&again).expect("our own header");
    assert_eq!(Message::parse(&frame), Ok(message));
    true
}

#[test]
#[allow(clippy::disallowed_methods, reason = "saved inputs are in files")]
fn messages_that_were_kept_are_understood_or_refused() {
    let kept = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/parse")).unwrap();
    let all: Vec<_> = kept.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    let understood = all.iter().filter(|octets| read(octets)).count();
    assert!(understood >= 5 && understood < all.len(), "{understood} of {}", all.len());
    for octets in &all {
        for at in 0..octets.len() {
            read(&octets[..at]);
            let mut damaged = octets.clone();
            damaged[at] ^= 0x80;
            read(&damaged);
        }
    }
}
