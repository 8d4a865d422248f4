//! A process killed in the middle of an import leaves the store as it was.

use super::common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Folder, csv, record};
use whimbrel_store::{Format, OnExisting, Store};

/// Enough that what is not committed yet spills from memory into the log beside the file.
const ROWS: u64 = 20_000;
const FOLDER: &str = "WHIMBREL_STORE_TEST_FOLDER";

/// The part of the process that is killed: not a test of its own unless the path to import to is given.
#[test]
fn import_until_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else { return };
    let mut store = Store::open(&folder.join("subscribers.db"), &folder.join("subscribers.key")).unwrap();
    let text = csv(ROWS);
    let mut n = 0;
    let mut each = |_| {
        n += 1;
        if n % 1_000 == 0 {
            println!("\nimported {n}");
        }
    };
    store.import(text.as_bytes(), Format::Csv, OnExisting::Replace, &mut each).unwrap();
    println!("\nimported all");
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
fn an_import_killed_at_any_point_leaves_all_or_nothing() {
    for (kill_after, expected) in [("1000", 1), ("9000", 1), ("20000", 1), ("all", ROWS)] {
        let folder = Folder::new();
        folder.store().add(&record(7)).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::import_until_killed", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let reached = out.lines().map_while(Result::ok).any(|l| l == format!("imported {kill_after}"));
        assert!(reached, "the import ended before {kill_after}");
        child.kill().unwrap();
        child.wait().unwrap();
        let mut store = folder.store();
        store.verify().unwrap();
        assert_eq!(store.count().unwrap(), expected, "killed after {kill_after}");
        assert!(store.get(record(7).supi).unwrap().is_some());
        store.add(&record(200_000)).unwrap();
    }
}
