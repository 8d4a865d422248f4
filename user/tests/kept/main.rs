//! What is worth keeping of what the fuzzer tries (`user/fuzz/seeds/packets`), as it is, cut, and one behind the other.

use super::common;
mod input;

#[test]
#[allow(clippy::disallowed_methods, reason = "saved inputs are in files")]
fn inputs_that_were_kept_are_decided_on() {
    let kept = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/packets")).unwrap();
    let mut all: Vec<_> = kept.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(all.len() >= 6);
    all.push(all.concat());
    for input in &all {
        for len in 0..=input.len() {
            input::run(&input[..len]);
        }
    }
}
