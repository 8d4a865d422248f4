//! Any text as the configuration: it is read, or refused with its places.
#![no_main]

use whimbrel_node::config;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input)
        && let Err(e) = config::parse(text, std::path::Path::new("whimbrel.yaml"))
    {
        assert!(!e.to_string().is_empty());
    }
});
