//! Frames from gNBs and routers, plain, tagged and through a tunnel of either family, with a key and without.
//!
//! The input is which of four tunnels there is, and a frame.
#![no_main]

use whimbrel_user_io::fuzz;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::frame(input));
