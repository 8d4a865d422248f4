//! A patch of any operations gives a document of bounded size, or leaves it as it was. A line feed stands between document and patch.
#![no_main]

use serde_json::Value;
use whimbrel_nrf::patch::{apply, is_heartbeat};
use whimbrel_nrf::profile::PROFILE_OCTETS_MAX;
use whimbrel_sbi_types::BoundedList;
use whimbrel_sbi_types::common::PatchItem;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let Some(at) = octets.iter().position(|octet| *octet == b'\n') else { return };
    let Ok(document) = serde_json::from_slice::<Value>(&octets[..at]) else { return };
    let Ok(patch) = whimbrel_sbi_types::from_slice::<BoundedList<PatchItem>>(&octets[at + 1..]) else { return };
    is_heartbeat(&patch);
    if let Ok(patched) = apply(&document, &patch) {
        // Signs that JSON writes with an escape have six octets at most.
        assert!(serde_json::to_vec(&patched).unwrap().len() <= 12 * PROFILE_OCTETS_MAX);
        assert_eq!(apply(&document, &patch), Ok(patched));
    }
});
