//! A UPF with a session in use and one that is idle, and whatever comes from gNB, data network and SMF; `user/tests/kept` replays what was kept.
#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/kept/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| input::run(octets));
