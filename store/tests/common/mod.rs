//! A folder that goes with the test, and records to put into stores.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use whimbrel_security::{K, Opc};
use whimbrel_store::{OperatorCode, Store, SubscriberRecord};

/// The folder of the store's crate, from that of the crate whose tests these are.
pub(crate) const STORE_FOLDER: &str = ".";

/// A folder of its own, removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("whimbrel-store-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.0.join("subscribers.db")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.0.join("subscribers.key")
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.db(), &self.key()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn record(n: u64) -> SubscriberRecord {
    let supi = format!("99970{n:010}").parse().unwrap();
    let mut k = [0; 16];
    k[8..].copy_from_slice(&n.to_be_bytes());
    SubscriberRecord::new(supi, K::new(k), OperatorCode::Opc(Opc::new([0xc0; 16])))
}

/// A CSV of `n` subscribers with three columns.
pub(crate) fn csv(n: u64) -> String {
    let mut text = String::from("supi,k,opc\n");
    for i in 0..n {
        text += &format!("99970{i:010},{i:032x},c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0\n");
    }
    text
}
