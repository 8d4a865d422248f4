//! A backup as it is read: the seal's head and chunks, the archive, and its manifest. Any octets are read or refused; a seal with a changed octet
//! gives nothing.
#![no_main]
#![allow(dead_code, unused_imports, reason = "the program's modules, of which the readers alone are used")]

use std::io::{Read, Write};

use whimbrel_broker_common::crypto::{PrivateKey, Seed};

#[path = "../../../programs/whimbrel/src/archive.rs"]
mod archive;
#[path = "../../../programs/whimbrel/src/backup/manifest.rs"]
mod manifest;
#[path = "../../../programs/whimbrel/src/backup/sealed.rs"]
mod sealed;

use sealed::{Lock, Opener, Sealer, Unlock};

/// Reads the files of an archive, and the first one as its manifest.
fn read_archive(input: impl Read) {
    let mut reader = archive::Reader::new(input);
    let mut is_first = true;
    while let Ok(Some((name, _))) = reader.next_file() {
        assert!(!name.is_empty());
        let mut content = Vec::new();
        if reader.content(&mut content).is_err() {
            return;
        }
        if std::mem::take(&mut is_first) {
            let _ = manifest::Manifest::of(&content);
        }
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let private = PrivateKey::new([7; 32]);
    let lock = Lock::Recipient(private.share());
    let unlock = Unlock::Key(private);

    read_archive(input);
    let _ = manifest::Manifest::of(input);
    let mut rest = input;
    if let Ok(key) = sealed::open_head(&mut rest, Some(&unlock)) {
        read_archive(Opener::new(rest, &key));
    }

    // The input as the content of a seal in which one octet is changed.
    let Some((change, content)) = input.split_first_chunk::<4>() else { return };
    let Ok((head, key)) = sealed::begin(&lock, &Seed::new([1; 32]), &[1; 16]) else { return };
    let length = head.len();
    let mut sealer = Sealer::new(head, &key);
    let mut octets = match sealer.write_all(content).and_then(|()| sealer.finish()) {
        Ok(octets) => octets,
        Err(e) => panic!("{e}"),
    };
    let mut read = Vec::new();
    assert!(Opener::new(&octets[length..], &key).read_to_end(&mut read).is_ok() && read == content);
    let at = (u32::from_be_bytes([0, change[0], change[1], change[2]]) as usize) % octets.len();
    octets[at] ^= change[3].max(1);
    let mut rest = &octets[..];
    let opened = sealed::open_head(&mut rest, Some(&unlock));
    assert!(opened.is_err() || Opener::new(rest, &key).read_to_end(&mut Vec::new()).is_err());
});
