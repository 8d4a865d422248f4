//! The broker's answer to a token, from any octets: what is read is written again in the same octets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_privacy::msg::GroupAnswer;

fn same<T, E>(read: Result<T, E>, write: impl Fn(&T) -> Vec<u8>, octets: &[u8]) {
    if let Ok(value) = read {
        assert_eq!(write(&value), octets);
    }
}

fuzz_target!(|octets: &[u8]| {
    same(GroupAnswer::parse(octets), GroupAnswer::to_octets, octets);
});
