//! Any octets as authReqU, whole and as a SUCI's scheme output, and what is sealed in it: what is read is written again in the same octets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_open::msg::{AuthReqU, UserVector};

fn same<T, E>(read: Result<T, E>, write: impl Fn(&T) -> Vec<u8>, octets: &[u8]) {
    if let Ok(value) = read {
        assert_eq!(write(&value), octets);
    }
}

fuzz_target!(|octets: &[u8]| {
    same(AuthReqU::parse(octets), AuthReqU::to_octets, octets);
    same(AuthReqU::from_scheme_output("b.example".parse().unwrap(), 1, octets), AuthReqU::to_scheme_output, octets);
    same(UserVector::parse(octets), UserVector::to_octets, octets);
});
