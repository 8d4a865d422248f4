//! What is worth keeping of what the fuzzers try: `fuzz/seeds/<target>`, whole, cut and damaged.

use super::messages::read_as_every_message;

#[test]
#[allow(clippy::disallowed_methods, reason = "the kept corpus is in files")]
fn messages_that_were_kept_are_understood_or_refused() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds");
    let folders = std::fs::read_dir(seeds).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let all: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    let understood = all.iter().filter(|octets| read_as_every_message(octets) > 0).count();
    assert!(understood >= 12 && understood < all.len(), "{understood} of {}", all.len());
    for octets in &all {
        for at in 0..octets.len() {
            read_as_every_message(&octets[..at]);
            let mut damaged = octets.clone();
            damaged[at] ^= 0x80;
            read_as_every_message(&damaged);
        }
    }
}
