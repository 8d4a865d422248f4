//! Any octets as a list of subscribers, CSV or JSON as the first octet says: all of it is imported, or nothing.
#![no_main]

use std::cell::RefCell;

use whimbrel_store::{Format, OnExisting, Store};

thread_local! {
    static STORE: RefCell<Store> = RefCell::new({
        let folder = std::env::temp_dir().join(format!("whimbrel-fuzz-import-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Store::open(&folder.join("s.db"), &folder.join("s.key")).expect("a store")
    });
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((first, list)) = input.split_first() else { return };
    let format = if first & 1 == 0 { Format::Csv } else { Format::Json };
    STORE.with_borrow_mut(|store| {
        let before = store.count().expect("a count");
        match store.import(list, format, OnExisting::Replace, &mut |_| {}) {
            Ok(done) => assert_eq!(store.count().expect("a count"), before + done.added),
            Err(_) => assert_eq!(store.count().expect("a count"), before),
        }
    });
});
