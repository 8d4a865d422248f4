//! Any octets as the broker's answer to a user, sealed and opened: what is read is written again in the same octets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_open::msg::{AnswerU, UserAnswer};

fn same<T, E>(read: Result<T, E>, write: impl Fn(&T) -> Vec<u8>, octets: &[u8]) {
    if let Ok(value) = read {
        assert_eq!(write(&value), octets);
    }
}

fuzz_target!(|octets: &[u8]| {
    same(AnswerU::parse(octets), AnswerU::to_octets, octets);
    same(UserAnswer::parse(octets), |answer| answer.to_octets().to_vec(), octets);
});
