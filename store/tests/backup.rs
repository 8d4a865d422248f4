//! Copies of a store in use, and its layouts.

use super::common;

use std::os::unix::fs::PermissionsExt;

use common::{Folder, csv, record};
use rusqlite::Connection;
use whimbrel_store::{AuthMethod, Format, LAYOUT, OnExisting, Store, StoreError, downgrade, release};

fn layout_of(folder: &Folder) -> i64 {
    let db = Connection::open(folder.db()).unwrap();
    db.pragma_query_value(None, "user_version", |r| r.get(0)).unwrap()
}

#[test]
fn a_copy_of_a_store_in_use_is_one_file_with_what_was_committed() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let mut store = folder.store();
    store.import(csv(2_000).as_bytes(), Format::Csv, OnExisting::Refuse, &mut |_| {}).unwrap();
    // Another process is in the middle of a transaction.
    let other = Connection::open(folder.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; DELETE FROM subscriber").unwrap();
    assert_eq!(store.copy_to(&elsewhere.db()).unwrap(), 2_000);
    other.execute_batch("ROLLBACK").unwrap();
    let files: Vec<_> =
        std::fs::read_dir(elsewhere.path()).unwrap().flatten().map(|f| f.file_name()).collect();
    assert_eq!(files, ["subscribers.db"]);
    assert_eq!(std::fs::metadata(elsewhere.db()).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::copy(folder.key(), elsewhere.key()).unwrap();
    let mut copy = elsewhere.store();
    copy.verify().unwrap();
    assert_eq!(copy.count().unwrap(), 2_000);
    assert_eq!(copy.list(None, 1_000).unwrap(), store.list(None, 1_000).unwrap());
    assert!(store.copy_to(&elsewhere.db()).is_err(), "a file that exists is not written over");
}

#[test]
fn a_store_in_use_cannot_be_released_and_one_that_is_not_becomes_one_file() {
    let folder = Folder::new();
    let mut store = folder.store();
    store.add(&record(1)).unwrap();
    assert!(matches!(release(&folder.db()), Err(StoreError::Locked { .. })));
    assert!(matches!(downgrade(&folder.db()), Err(StoreError::Locked { .. })));
    store.add(&record(2)).unwrap();
    drop(store);
    release(&folder.db()).unwrap();
    let wal = folder.path().join("subscribers.db-wal");
    assert!(!wal.exists());
    assert_eq!(folder.store().count().unwrap(), 2);
}

#[test]
fn the_layout_goes_back_by_one_version_and_up_again_without_loss() {
    let folder = Folder::new();
    folder.store().import(csv(50).as_bytes(), Format::Csv, OnExisting::Refuse, &mut |_| {}).unwrap();
    let before = folder.store().list(None, 100).unwrap();
    assert_eq!((layout_of(&folder), LAYOUT), (2, 2));
    assert_eq!(downgrade(&folder.db()).unwrap(), 1);
    assert_eq!(layout_of(&folder), 1);
    // What a program of that release does: its rows name no method of authentication.
    let db = Connection::open(folder.db()).unwrap();
    let columns: Vec<String> = db
        .prepare("SELECT name FROM pragma_table_info('subscriber')")
        .unwrap()
        .query_map([], |r| r.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(
        !columns.contains(&"auth".to_owned()) && columns.contains(&"algorithm".to_owned()),
        "{columns:?}"
    );
    drop(db);
    assert_eq!(downgrade(&folder.db()).unwrap(), 1, "it is there already");
    assert_eq!(folder.store().list(None, 100).unwrap(), before);
    assert_eq!(layout_of(&folder), 2);
}

#[test]
fn the_layout_does_not_go_back_where_a_subscriber_would_lose_its_method() {
    let folder = Folder::new();
    let mut store = folder.store();
    store.add(&record(1)).unwrap();
    store.edit(record(1).supi, |r| r.auth = AuthMethod::EapAkaPrime).unwrap();
    drop(store);
    let e = downgrade(&folder.db()).unwrap_err();
    assert!(matches!(e, StoreError::NotInPreviousLayout { subscribers: 1, .. }), "{e}");
    assert!(e.to_string().contains("EAP-AKA'"), "{e}");
    assert_eq!(folder.store().get(record(1).supi).unwrap().unwrap().auth, AuthMethod::EapAkaPrime);
}

#[test]
fn a_file_of_a_later_layout_is_not_touched() {
    let folder = Folder::new();
    drop(folder.store());
    let db = Connection::open(folder.db()).unwrap();
    db.pragma_update(None, "user_version", LAYOUT + 1).unwrap();
    drop(db);
    assert!(matches!(downgrade(&folder.db()), Err(StoreError::Newer { version: 3, .. })));
    assert!(matches!(Store::open(&folder.db(), &folder.key()), Err(StoreError::Newer { .. })));
    assert_eq!(layout_of(&folder), LAYOUT + 1);
}
