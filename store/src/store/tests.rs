//! Failures that only SQLite's own switches can bring about.

use std::path::PathBuf;
use std::time::Duration;

use whimbrel_security::{K, Opc};

use super::*;
use crate::{Format, OnExisting, OperatorCode};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("whimbrel-store-unit-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn store(&self) -> Store {
        Store::open(&self.0.join("db"), &self.0.join("key")).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn record(n: u64) -> SubscriberRecord {
    let supi = format!("99970{n:010}").parse().unwrap();
    SubscriberRecord::new(supi, K::new([1; 16]), OperatorCode::Opc(Opc::new([2; 16])))
}

#[test]
fn a_full_disk_changes_nothing_and_is_reported() {
    let folder = Folder::new("full");
    let mut store = folder.store();
    store.add(&record(1)).unwrap();
    let pages: i64 = store.db.pragma_query_value(None, "page_count", |r| r.get(0)).unwrap();
    store.db.pragma_update(None, "max_page_count", pages + 4).unwrap();
    let mut text = String::from("supi,k,opc\n");
    for i in 100..2_000 {
        text += &format!("99970{i:010},{i:032x},{i:032x}\n");
    }
    let e = store.import(text.as_bytes(), Format::Csv, OnExisting::Refuse, &mut |_| {}).unwrap_err();
    assert!(matches!(e, StoreError::DiskFull { .. }), "{e}");
    assert_eq!(store.count().unwrap(), 1);
    store.edit(record(1).supi, |r| r.status = crate::SubscriberStatus::Barred).unwrap();
    store.verify().unwrap();
}

#[test]
fn a_locked_database_is_reported_when_the_wait_ends() {
    let folder = Folder::new("locked");
    let (mut store, other) = (folder.store(), folder.store());
    store.db.busy_timeout(Duration::from_millis(20)).unwrap();
    other.db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let add = store.add(&record(1)).unwrap_err();
    assert!(matches!(add, StoreError::Locked { .. }), "{add}");
    let edit = store.edit(record(1).supi, |_| {}).unwrap_err();
    assert!(matches!(edit, StoreError::Locked { .. }), "{edit}");
    // Readers are not kept out.
    assert_eq!(store.count().unwrap(), 0);
    other.db.execute_batch("ROLLBACK").unwrap();
    store.add(&record(1)).unwrap();
}

#[test]
fn subscriptions_without_subscribers_are_dropped() {
    let folder = Folder::new("sweep");
    let mut store = folder.store();
    let rows =
        |s: &Store| s.db.query_row("SELECT count(*) FROM subscription", [], |r| r.get::<_, i64>(0)).unwrap();
    for n in 0..3 {
        store.add(&record(n)).unwrap();
    }
    assert_eq!(rows(&store), 1);
    store.edit(record(1).supi, |r| Arc::make_mut(&mut r.subscription).rfsp = Some(3)).unwrap();
    assert_eq!(rows(&store), 2);
    store.remove(record(1).supi).unwrap();
    assert_eq!(rows(&store), 1);
}
