//! Backups written and restored over real files.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use whimbrel_store::{Status, Store};

use super::*;

const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";
const SUCI_KEY: &str = "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d";

/// A folder with a core's files: `whimbrel.yaml`, the store with a subscriber, users, the key of SUCIs.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        let [db, key, suci] = ["w.db", "w.key", "suci.key"].map(|name| host.path(name).display().to_string());
        fs::write(
            host.file(),
            format!(
                "store: {{ path: {db}, key_file: {key} }}\nhome_network_keys:\n  - {{ id: 1, scheme: A, private_key_file: {suci} }}\n"
            ),
        )
        .unwrap();
        fs::write(host.path("suci.key"), SUCI_KEY).unwrap();
        fs::set_permissions(host.path("suci.key"), fs::Permissions::from_mode(0o600)).unwrap();
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("whimbrel.yaml")
    }

    fn config(&self) -> Config {
        config::load(Some(&self.file())).unwrap().0
    }

    fn store(&self) -> Store {
        subscribers::open(&self.config().store).unwrap()
    }

    fn add(&self, imsi: &str) {
        let record = json!({ "supi": imsi, "k": K, "opc": K });
        self.store().add(&subscribers::record_of(record).unwrap()).unwrap();
    }

    fn backup(&self, name: &str) -> PathBuf {
        let to = self.path(name);
        write(&self.config(), Some(&self.file()), &to, true).unwrap();
        to
    }

    fn restore(&self, archive: &Path) -> Result<Restored, String> {
        restore(archive, Some(&self.file()), false)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

const ONE: &str = "imsi-999700000000001";
const TWO: &str = "imsi-999700000000002";

#[test]
fn a_backup_of_a_store_in_use_restores_users_keys_and_subscribers() {
    let host = Host::new();
    host.add(ONE);
    fs::write(host.path("w.db.accounts"), "{\"users\":[],\"tokens\":[]}").unwrap();
    let core = host.store();
    let archive = host.backup("monday.backup");
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    drop(core);
    host.add(TWO);
    fs::write(host.path("w.db.accounts"), "{}").unwrap();
    fs::write(host.path("w.ues"), "UEs of the core that was stopped").unwrap();
    let done = host.restore(&archive).unwrap();
    assert_eq!((done.subscribers, done.kept_configuration), (1, true));
    assert_eq!(host.store().count().unwrap(), 1);
    assert_eq!(fs::read_to_string(host.path("w.db.accounts")).unwrap(), "{\"users\":[],\"tokens\":[]}");
    assert!(!host.path("w.ues").exists(), "UEs of the former store register again");
    // What was there is beside it, whole.
    let former = config::Store {
        path: host.path("w.db.before-restore"),
        key_file: host.path("w.key.before-restore"),
        ..host.config().store
    };
    assert_eq!(subscribers::open(&former).unwrap().count().unwrap(), 2);
    assert!(!host.names().iter().any(|name| name.contains(".restoring") || name.ends_with(".restore")));
}

#[test]
fn a_new_host_gets_the_configuration_and_the_files_that_it_names() {
    let host = Host::new();
    host.add(ONE);
    let elsewhere = tempfile::tempdir().unwrap();
    let archive = elsewhere.path().join("b");
    let written = write(&host.config(), Some(&host.file()), &archive, true).unwrap();
    assert!(written.files.contains(&host.path("suci.key")), "{written:?}");
    for name in host.names() {
        fs::remove_file(host.path(&name)).unwrap();
    }
    let done = host.restore(&archive).unwrap();
    assert!(!done.kept_configuration && done.set_aside.is_empty());
    assert_eq!(host.config().home_network_keys.len(), 1, "the configuration is valid: its key file is there");
    assert_eq!(host.store().count().unwrap(), 1);
}

#[test]
fn a_store_in_use_is_not_replaced() {
    let host = Host::new();
    host.add(ONE);
    let archive = host.backup("b");
    let before = host.names();
    let core = host.store();
    let e = host.restore(&archive).unwrap_err();
    assert!(e.contains("is in use: stop the core"), "{e}");
    assert_eq!(core.count().unwrap(), 1);
    drop(core);
    assert_eq!(host.names(), before);
}

#[test]
fn a_cut_damaged_foreign_or_newer_backup_changes_nothing() {
    let host = Host::new();
    host.add(ONE);
    let archive = host.backup("b");
    let whole = fs::read(&archive).unwrap();
    host.add(TWO);
    let before = host.names();
    let refused = |octets: &[u8]| {
        fs::write(&archive, octets).unwrap();
        let e = host.restore(&archive).unwrap_err();
        let count = host.store().count().unwrap();
        assert_eq!((count, host.names()), (2, before.clone()), "{e}");
        e
    };
    for length in [0, 100, 700, whole.len() / 2, whole.len() - 2000] {
        let e = refused(&whole[..length]);
        assert!(e.contains("cut short"), "{length}: {e}");
    }
    let mut flipped = whole.clone();
    let at = whole.windows(15).position(|w| w == b"SQLite format 3").unwrap() + 4096;
    flipped[at] ^= 1;
    assert!(refused(&flipped).contains("is damaged"));
    let edited = |from: &str, to: &str| {
        let at = whole.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
        let mut octets = whole.clone();
        octets[at..at + to.len()].copy_from_slice(to.as_bytes());
        octets
    };
    assert!(refused(&edited("\"version\": 1", "\"version\": 9")).contains("later version"));
    assert!(refused(&edited("\"layout\": 2", "\"layout\": 3")).contains("later version"));
    assert!(refused(&edited("whimbrel-backup", "something-other")).contains("is no backup of whimbrel"));
    assert!(refused(b"PK\x03\x04 and so on").contains("cut short"));
    assert!(refused(&[b'x'; 4096]).contains("is no backup of whimbrel"));
}

#[test]
fn a_backup_without_the_key_file_needs_the_key_file_of_its_store() {
    let host = Host::new();
    host.add(ONE);
    let archive = host.path("b");
    let written = write(&host.config(), Some(&host.file()), &archive, false).unwrap();
    assert!(!written.with_key && !written.files.contains(&host.path("w.key")));
    let octets = fs::read(&archive).unwrap();
    let key = fs::read(host.path("w.key")).unwrap();
    assert!(!octets.windows(64).any(|w| w == &key[..64]), "the key is not in it");
    host.restore(&archive).unwrap();
    assert_eq!(host.store().count().unwrap(), 1);
    let kept = fs::read(host.path("w.key")).unwrap();
    fs::remove_file(host.path("w.key")).unwrap();
    assert!(host.restore(&archive).unwrap_err().contains("made without the key file"));
    // The key file of another store.
    fs::write(host.path("w.key"), "ab".repeat(32)).unwrap();
    fs::set_permissions(host.path("w.key"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(host.restore(&archive).is_err());
    fs::write(host.path("w.key"), kept).unwrap();
    assert_eq!(host.store().count().unwrap(), 1, "the former store is in its place");
}

#[test]
fn an_interrupted_restore_is_undone_by_the_next_one() {
    let host = Host::new();
    host.add(ONE);
    let archive = host.backup("b");
    host.add(TWO);
    // A former restore left these; they are not what the interrupted one moved.
    fs::write(host.path("w.key.before-restore"), "old").unwrap();
    // Killed between the store and its key: the store is exchanged, the key is not.
    let entry = |name: &str| json!({ "target": host.path(name), "had": true, "staged": host.path(&format!("{name}.restoring")) });
    fs::write(host.path("w.db.restore"), json!([entry("w.db"), entry("w.key")]).to_string()).unwrap();
    fs::rename(host.path("w.db"), host.path("w.db.before-restore")).unwrap();
    fs::write(host.path("w.db"), "half").unwrap();
    fs::write(host.path("w.key.restoring"), "half").unwrap();
    // The next one fails, at a cut archive, after it has put everything back.
    let whole = fs::read(&archive).unwrap();
    fs::write(host.path("cut"), &whole[..whole.len() - 3000]).unwrap();
    assert!(host.restore(&host.path("cut")).unwrap_err().contains("cut short"));
    assert_eq!(host.store().count().unwrap(), 2);
    host.restore(&archive).unwrap();
    assert_eq!(host.store().count().unwrap(), 1);
}

#[test]
fn a_damaged_store_is_replaced() {
    let host = Host::new();
    host.add(ONE);
    let archive = host.backup("b");
    fs::write(host.path("w.db"), "no database at all, and long enough to be looked at").unwrap();
    assert!(subscribers::open(&host.config().store).is_err());
    host.restore(&archive).unwrap();
    let mut store = host.store();
    assert_eq!(store.get(ONE.parse().unwrap()).unwrap().unwrap().status, Status::Enabled);
}

#[test]
fn an_existing_file_is_not_overwritten_and_a_backup_that_fails_leaves_none() {
    let host = Host::new();
    host.add(ONE);
    let archive = host.backup("b");
    assert!(write(&host.config(), None, &archive, true).unwrap_err().contains("exists"));
    let before = host.names();
    assert!(write(&host.config(), None, &host.path("none/b"), true).is_err());
    assert_eq!(host.names(), before);
    let empty = tempfile::tempdir().unwrap();
    let mut config = host.config();
    config.store.path = empty.path().join("none.db");
    assert!(write(&config, None, &host.path("c"), true).unwrap_err().contains("there is no store"));
    assert!(!config.store.path.exists(), "no empty store is made");
}
