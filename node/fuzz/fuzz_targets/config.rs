//! Any text as the configuration: it is read, or refused with its places.
#![no_main]
#![allow(
    dead_code,
    unused_imports,
    reason = "the whole of the program's module, of which the reader alone is used"
)]

#[path = "../../src/config/mod.rs"]
mod config;

/// Stands for the program's: the reader of the configuration leaves it empty.
mod unit {
    #[derive(Clone, Debug)]
    pub(crate) struct Place;

    impl Place {
        pub(crate) fn configure(&self, config: crate::config::Config) -> crate::config::Config {
            config
        }
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input)
        && let Err(e) = config::parse(text, std::path::Path::new("whimbrel.yaml"))
    {
        assert!(!e.to_string().is_empty());
    }
});
