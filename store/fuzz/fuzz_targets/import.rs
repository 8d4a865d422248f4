//! Any octets as a list of subscribers, CSV or JSON as the first octet says, or as the export of another core: all of it is
//! imported, or nothing.
#![no_main]

use std::cell::RefCell;

use whimbrel_store::{Core, Format, OnExisting, Run, Store};

/// The cores of the octets `2` to `6`.
const CORES: [Core; 5] =
    [Core::Open5gs, Core::Free5gc, Core::EllaCore, Core::OpenAirInterface, Core::Srsran4g];

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
        let core = CORES.get(usize::from(first.wrapping_sub(b'2')));
        let imported = match core {
            Some(core) => {
                let file: Box<dyn std::io::BufRead> = Box::new(std::io::Cursor::new(list.to_vec()));
                let files = vec![("export".to_owned(), file)];
                store.import_database(*core, files, OnExisting::Replace, Run::Keep, &|_| Ok(()), &mut |_| {})
            }
            None => store.import(list, format, OnExisting::Replace, &mut |_| {}),
        };
        match imported {
            Ok(done) => assert_eq!(store.count().expect("a count"), before + done.added),
            Err(_) => assert_eq!(store.count().expect("a count"), before),
        }
    });
});
