//! Any octets as a delivery of usage reports, or as its answer: what is read is written again in the same octets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_open::usage::{Delivery, DeliveryAnswer};

fn same<T, E>(read: Result<T, E>, write: impl Fn(&T) -> Vec<u8>, octets: &[u8]) {
    if let Ok(value) = read {
        assert_eq!(write(&value), octets);
    }
}

fuzz_target!(|octets: &[u8]| {
    same(Delivery::parse(octets), Delivery::to_octets, octets);
    same(DeliveryAnswer::parse(octets), DeliveryAnswer::to_octets, octets);
});
