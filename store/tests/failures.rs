//! Each failure of files, disk and keys is one sentence, and nothing is lost.

use super::common;

use std::os::unix::fs::PermissionsExt;

use common::{Folder, csv, record};
use rusqlite::Connection;
use whimbrel_store::{Format, OnExisting, Store, StoreError};

fn filled() -> Folder {
    let folder = Folder::new();
    folder.store().add(&record(1)).unwrap();
    folder
}

fn open(folder: &Folder) -> StoreError {
    Store::open(&folder.db(), &folder.key()).unwrap_err()
}

/// One sentence: it names the file and ends without a full stop or a line break.
fn is_a_sentence(e: &StoreError, folder: &Folder) {
    let text = e.to_string();
    assert!(text.contains(folder.path().to_str().unwrap()), "{text}");
    assert!(!text.contains('\n') && !text.ends_with('.'), "{text}");
}

#[test]
fn another_key_file() {
    let folder = filled();
    std::fs::write(folder.key(), "ab".repeat(32)).unwrap();
    std::fs::set_permissions(folder.key(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let e = open(&folder);
    assert!(matches!(e, StoreError::WrongKeyFile { .. }));
    is_a_sentence(&e, &folder);
}

#[test]
fn no_key_file_beside_a_filled_store() {
    let folder = filled();
    std::fs::remove_file(folder.key()).unwrap();
    let e = open(&folder);
    assert!(matches!(e, StoreError::KeyFileMissing { .. }));
    is_a_sentence(&e, &folder);
    assert!(!folder.key().exists(), "a new key would hide the loss");
}

#[test]
fn a_key_file_that_is_none_or_that_others_read() {
    let folder = filled();
    std::fs::write(folder.key(), "not a key\n").unwrap();
    assert!(matches!(open(&folder), StoreError::KeyFileInvalid { .. }));
    std::fs::set_permissions(folder.key(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let e = open(&folder);
    assert!(matches!(e, StoreError::KeyFileExposed { mode: 0o644, .. }));
    is_a_sentence(&e, &folder);
}

#[test]
fn a_damaged_file() {
    let folder = filled();
    std::fs::write(folder.db(), "this was a store once, and is a shopping list now").unwrap();
    let e = open(&folder);
    assert!(matches!(e, StoreError::Corrupt { .. }), "{e}");
    is_a_sentence(&e, &folder);
}

#[test]
fn a_file_with_damaged_pages() {
    let folder = Folder::new();
    let mut store = folder.store();
    store.import(csv(2_000).as_bytes(), Format::Csv, OnExisting::Refuse, &mut |_| {}).unwrap();
    drop(store);
    let mut octets = std::fs::read(folder.db()).unwrap();
    octets[8_192..].fill(0x5a);
    std::fs::write(folder.db(), octets).unwrap();
    let mut store = match Store::open(&folder.db(), &folder.key()) {
        Ok(store) => store,
        Err(e) => return assert!(matches!(e, StoreError::Corrupt { .. }), "{e}"),
    };
    assert!(matches!(store.verify(), Err(StoreError::Corrupt { .. })));
    assert!(matches!(store.list(None, 1_000), Err(StoreError::Corrupt { .. })));
}

#[test]
fn keys_of_one_subscriber_do_not_open_as_those_of_another() {
    let folder = filled();
    folder.store().add(&record(2)).unwrap();
    let db = Connection::open(folder.db()).unwrap();
    db.execute("UPDATE subscriber SET keys = (SELECT keys FROM subscriber WHERE supi LIKE '%2')", [])
        .unwrap();
    let mut store = folder.store();
    assert!(store.get(record(2).supi).is_ok());
    assert!(matches!(store.get(record(1).supi), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_file_of_a_later_version_or_of_another_program() {
    let folder = filled();
    let db = Connection::open(folder.db()).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    let e = open(&folder);
    assert!(matches!(e, StoreError::Newer { version: 99, .. }));
    is_a_sentence(&e, &folder);
    db.pragma_update(None, "application_id", 1).unwrap();
    assert!(matches!(open(&folder), StoreError::Corrupt { .. }));
}

#[test]
fn a_folder_that_is_absent() {
    let folder = Folder::new();
    let path = folder.path().join("absent/subscribers.db");
    let e = Store::open(&path, &folder.key()).unwrap_err();
    assert!(matches!(e, StoreError::Denied { .. }));
    is_a_sentence(&e, &folder);
}
