//! Any octets as a receipt or a statement: what is read is written again in the same octets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_open::usage::{SignedReceipt, Statement};

fn same<T, E>(read: Result<T, E>, write: impl Fn(&T) -> Vec<u8>, octets: &[u8]) {
    if let Ok(value) = read {
        assert_eq!(write(&value), octets);
    }
}

fuzz_target!(|octets: &[u8]| {
    same(SignedReceipt::parse(octets), SignedReceipt::to_octets, octets);
    same(Statement::parse(octets), Statement::to_octets, octets);
});
