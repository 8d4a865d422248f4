//! Lines to the manager of a unit: a question of a function or an operator, or a list of descriptors. What is read is the same when written again.
#![no_main]
#![allow(dead_code, reason = "the program's module, of which the messages to the manager alone are used")]

#[path = "../../src/function/messages.rs"]
mod messages;

use messages::{Descriptors, ManagerRequest};

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    if let Ok(question) = serde_json::from_slice::<ManagerRequest>(line) {
        let written = serde_json::to_vec(&question).expect("a question is written");
        let again: ManagerRequest = serde_json::from_slice(&written).expect("what is written is read");
        assert_eq!(serde_json::to_vec(&again).expect("a question is written"), written);
    }
    if let Ok(names) = serde_json::from_slice::<Descriptors>(line) {
        let written = serde_json::to_vec(&names).expect("a list is written");
        assert_eq!(serde_json::from_slice::<Descriptors>(&written).expect("what is written is read"), names);
    }
});
