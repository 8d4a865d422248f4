//! Any octets before, within and after the handshake of a link, sealed or not: it ends with a reason or goes on, and holds no more than it may.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| whimbrel_link::hostile::run(input));
