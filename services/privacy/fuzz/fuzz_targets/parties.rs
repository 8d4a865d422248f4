//! A true message with some octets changed, at each party that receives one: nothing that was changed is accepted.
#![no_main]

#[path = "../../tests/veil/changes.rs"]
mod changes;
#[allow(dead_code)]
#[path = "../../tests/veil/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| changes::judge(octets));
