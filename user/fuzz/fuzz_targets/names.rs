//! Octets as a question, an answer and a greeting: whatever they are, reading them ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| whimbrel_user::read_names(octets));
