//! A true claim with some octets of its proof changed, cut or put elsewhere, or any octets as a proof: nothing of it is believed, and nothing
//! makes the verifier panic.
#![no_main]

#[path = "../../tests/changes.rs"]
mod changes;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| changes::judge(octets));
