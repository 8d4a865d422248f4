//! Backups written and restored over real files.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use whimbrel_broker_common::crypto::PrivateKey;
use whimbrel_store::{Store, SubscriberStatus};

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
        write(&self.config(), Some(&self.file()), &to, true, None).unwrap();
        to
    }

    /// A backup that is sealed for a key, and its content.
    fn sealed_backup(&self, name: &str) -> (PathBuf, Vec<u8>) {
        let to = self.path(name);
        let lock = Lock::Recipient(private().share());
        write(&self.config(), Some(&self.file()), &to, true, Some(&lock)).unwrap();
        let octets = fs::read(&to).unwrap();
        (to, octets)
    }

    fn order<'a>(archive: &'a Path, configuration: &'a Path) -> RestoreOrder<'a> {
        RestoreOrder {
            archive,
            configuration: Some(configuration),
            with_configuration: false,
            allowed: &[],
            unlock: None,
            unauthenticated: false,
        }
    }

    fn restore(&self, archive: &Path) -> Result<Restored, String> {
        let file = self.file();
        restore(&RestoreOrder { unauthenticated: true, ..Self::order(archive, &file) })
    }

    fn restore_sealed(&self, archive: &Path, unlock: Unlock) -> Result<Restored, String> {
        let file = self.file();
        restore(&RestoreOrder { unlock: Some(unlock), ..Self::order(archive, &file) })
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

fn private() -> PrivateKey {
    PrivateKey::new([7; 32])
}

/// An archive with these files, of which each is named with the path to which it belongs.
fn forged(files: &[(&str, PathBuf, Vec<u8>)]) -> Vec<u8> {
    let digest = |content: &[u8]| {
        let mut digest = Digesting { out: io::sink(), context: Context::new(&SHA256) };
        digest.write_all(content).unwrap();
        digest.finish()
    };
    let parts = files.iter().map(|(name, path, content)| {
        json!({ "name": name, "octets": content.len(), "sha256": digest(content), "path": path })
    });
    let manifest = json!({
        "format": FORMAT, "version": 1, "program": "0", "created": "2026-01-01T00:00:00Z", "layout": 1, "subscribers": 0,
        "files": parts.collect::<Vec<_>>(),
    });
    let mut archive = Writer::new(Vec::new());
    archive.octets(MANIFEST, manifest.to_string().as_bytes()).unwrap();
    files.iter().for_each(|(name, _, content)| archive.octets(name, content).unwrap());
    archive.finish().unwrap()
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
    let former = config::StoreConfig {
        path: host.path("w.db.before-restore"),
        key_file: host.path("w.key.before-restore"),
        ..host.config().store
    };
    assert_eq!(subscribers::open(&former).unwrap().count().unwrap(), 2);
    assert!(!host.names().iter().any(|name| name.contains(".restoring") || name.ends_with(".restore")));
}

#[test]
fn accounts_of_the_charging_function_are_restored_as_of_the_backup_and_not_under_a_core_that_uses_them() {
    use whimbrel_charging::{AccountKind, AccountStatus, ChargingFunction};
    use whimbrel_node::accounts;

    // Beside the store, and where the configuration names another file, which is smaller than what is taken as it is.
    for named in [false, true] {
        let host = Host::new();
        if named {
            let yaml = fs::read_to_string(host.file()).unwrap();
            let chf = format!("chf: {{ path: {} }}\n", host.path("chf.db").display());
            fs::write(host.file(), format!("{yaml}{chf}")).unwrap();
        }
        host.add(ONE);
        let supi = ONE.parse().unwrap();
        let open = || accounts::open(&host.config()).unwrap();
        let credit = |function: &mut ChargingFunction, octets, reference: &str| {
            function.credit(clock::now(), supi, octets, Some(reference)).unwrap().unwrap();
        };
        let mut core = open();
        core.put_account(supi, AccountKind::Prepaid, AccountStatus::Active).unwrap();
        credit(&mut core, 5000, "first");
        // It is in the WAL alone, which no copy of the file has.
        let archive = host.backup("monday.backup");
        credit(&mut core, 700, "second");
        let e = host.restore(&archive).unwrap_err();
        assert!(e.contains("stop the core"), "{e}");
        assert_eq!(core.account(supi).unwrap().unwrap().credited_octets, 5700, "nothing was changed");
        drop(core);
        let done = host.restore(&archive).unwrap();
        let file = host.config().charging_file();
        assert!(done.files.contains(&file), "{:?}", done.files);
        let restored = open();
        assert_eq!(restored.account(supi).unwrap().unwrap().credited_octets, 5000);
        restored.verify().unwrap().unwrap();
        assert!(suffixed(&file, ".before-restore").exists());
        assert!(!host.names().iter().any(|name| name.ends_with(".charging") || name.contains(".restoring")));
    }
}

#[test]
fn a_new_host_gets_the_configuration_and_the_files_that_it_names() {
    let host = Host::new();
    host.add(ONE);
    let elsewhere = tempfile::tempdir().unwrap();
    let archive = elsewhere.path().join("b");
    let written = write(&host.config(), Some(&host.file()), &archive, true, None).unwrap();
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
    let written = write(&host.config(), Some(&host.file()), &archive, false, None).unwrap();
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
    assert_eq!(store.get(ONE.parse().unwrap()).unwrap().unwrap().status, SubscriberStatus::Enabled);
}

#[test]
fn an_existing_file_is_not_overwritten_and_a_backup_that_fails_leaves_none() {
    let host = Host::new();
    host.add(ONE);
    let archive = host.backup("b");
    assert!(write(&host.config(), None, &archive, true, None).unwrap_err().contains("exists"));
    let before = host.names();
    assert!(write(&host.config(), None, &host.path("none/b"), true, None).is_err());
    assert_eq!(host.names(), before);
    let empty = tempfile::tempdir().unwrap();
    let mut config = host.config();
    config.store.path = empty.path().join("none.db");
    assert!(write(&config, None, &host.path("c"), true, None).unwrap_err().contains("there is no store"));
    assert!(!config.store.path.exists(), "no empty store is made");
}

#[test]
fn a_sealed_backup_is_restored_with_its_key_alone() {
    let host = Host::new();
    host.add(ONE);
    let (archive, octets) = host.sealed_backup("b");
    assert!(
        !octets.windows(13).any(|w| w == b"SQLite format" || w == &b"manifest.json"[..]),
        "all of it is sealed"
    );
    host.add(TWO);
    let before = host.names();
    assert!(host.restore(&archive).unwrap_err().contains("--key"));
    let other = Unlock::Key(PrivateKey::new([8; 32]));
    assert!(host.restore_sealed(&archive, other).unwrap_err().contains("another key"));
    assert_eq!(host.names(), before);
    assert_eq!(host.restore_sealed(&archive, Unlock::Key(private())).unwrap().subscribers, 1);
    assert_eq!(host.store().count().unwrap(), 1);

    let with_passphrase = host.path("p");
    let passphrase = || zeroize::Zeroizing::new(b"a long passphrase".to_vec());
    let lock = Lock::Passphrase(passphrase());
    write(&host.config(), Some(&host.file()), &with_passphrase, true, Some(&lock)).unwrap();
    assert!(
        host.restore_sealed(&with_passphrase, Unlock::Key(private())).unwrap_err().contains("passphrase")
    );
    host.restore_sealed(&with_passphrase, Unlock::Passphrase(passphrase())).unwrap();
}

#[test]
fn a_sealed_backup_that_was_changed_is_refused_before_anything_is_written() {
    let host = Host::new();
    host.add(ONE);
    // Several chunks, of which the first ones can be read.
    fs::write(host.path("w.db.accounts"), vec![b'x'; 200_000]).unwrap();
    let (archive, octets) = host.sealed_backup("b");
    host.add(TWO);
    // What was there before shows whether a file was made meanwhile.
    fs::write(host.path("w.db.restoring"), "of another").unwrap();
    let mut changed = vec![
        octets[..octets.len() - 1].to_vec(),
        octets[..octets.len() / 2].to_vec(),
        [&octets[..], b"x"].concat(),
    ];
    for at in [3, 20, 90, 200, octets.len() / 2, octets.len() - 1] {
        let mut one = octets.clone();
        one[at] ^= 1;
        changed.push(one);
    }
    for octets in changed {
        fs::write(&archive, octets).unwrap();
        let e = host.restore_sealed(&archive, Unlock::Key(private())).unwrap_err();
        assert_eq!(fs::read_to_string(host.path("w.db.restoring")).unwrap(), "of another", "{e}");
        assert_eq!(host.store().count().unwrap(), 2, "{e}");
    }
}

#[test]
fn an_archive_writes_no_file_outside_the_cores_folders() {
    let host = Host::new();
    host.add(ONE);
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("cron.d-whimbrel");
    let config = fs::read(host.file()).unwrap();
    fs::remove_file(host.file()).unwrap();
    let (archive, file) = (host.path("b"), host.file());
    let store = Path::new("x");
    let refused = |files: &[(&str, PathBuf, Vec<u8>)], allowed: &[PathBuf]| {
        fs::write(&archive, forged(files)).unwrap();
        let before = host.names();
        let order = RestoreOrder { unauthenticated: true, allowed, ..Host::order(&archive, &file) };
        let e = restore(&order).unwrap_err();
        assert_eq!(host.names(), before, "{e}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{e}");
        e
    };
    let yaml = || ("configuration.yaml", host.file(), config.clone());
    let cron = || ("named/0", target.clone(), b"* * * * * root id".to_vec());
    assert!(refused(&[yaml(), cron()], &[]).contains("--allow"));
    let upwards = host.path("../x");
    assert!(refused(&[yaml(), ("named/0", upwards, Vec::new())], &[]).contains("`..`"));
    let twice = [yaml(), ("named/0", host.path("k"), Vec::new()), ("named/1", host.path("k"), Vec::new())];
    assert!(refused(&twice, &[]).contains("twice"));
    // The store that the archive's own configuration names.
    let elsewhere = format!("store: {{ path: {0}/w.db, key_file: {0}/w.key }}", outside.path().display());
    let db = ("subscribers.db", store.to_path_buf(), b"SQLite format 3".to_vec());
    let theirs = [("configuration.yaml", host.file(), elsewhere.into_bytes()), db];
    assert!(refused(&theirs, &[]).contains("--allow"));
    // Allowed, the archive still has no store.
    let e = refused(&[yaml(), cron()], &[outside.path().to_path_buf()]);
    assert!(e.contains("is no backup of whimbrel"), "{e}");
}

#[test]
fn a_journal_beside_a_store_that_is_not_permitted_is_not_followed() {
    let host = Host::new();
    host.add(ONE);
    fs::remove_file(host.file()).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let (victim, journal) = (outside.path().join("victim"), outside.path().join("w.db.restore"));
    fs::write(&victim, "precious").unwrap();
    fs::write(&journal, json!([{ "target": victim, "had": false, "staged": null }]).to_string()).unwrap();
    let theirs = format!("store: {{ path: {0}/w.db, key_file: {0}/w.key }}", outside.path().display());
    let db = ("subscribers.db", PathBuf::from("x"), b"SQLite format 3".to_vec());
    let archive = host.path("b");
    fs::write(&archive, forged(&[("configuration.yaml", host.file(), theirs.into_bytes()), db])).unwrap();
    let before = host.names();
    let e = host.restore(&archive).unwrap_err();
    assert!(e.contains("--allow"), "{e}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(journal.exists());
    assert_eq!(host.names(), before);
}

#[test]
fn an_unsealed_backup_is_restored_on_demand_alone() {
    let host = Host::new();
    host.add(ONE);
    let archive = host.backup("b");
    let file = host.file();
    let e = restore(&Host::order(&archive, &file)).unwrap_err();
    assert!(e.contains("--unauthenticated"), "{e}");
    let e = host.restore_sealed(&archive, Unlock::Key(private())).unwrap_err();
    assert!(e.contains("is not sealed"), "{e}");
    host.restore(&archive).unwrap();
}

#[test]
fn a_journal_that_is_a_link_is_not_followed() {
    let host = Host::new();
    host.add(ONE);
    let archive = host.backup("b");
    let victim = host.path("victim");
    fs::write(&victim, "precious").unwrap();
    let planted = json!([{ "target": victim, "had": false, "staged": null }]);
    fs::write(host.path("planted"), planted.to_string()).unwrap();
    std::os::unix::fs::symlink(host.path("planted"), host.path("w.db.restore")).unwrap();
    assert!(host.restore(&archive).is_err());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn keys_are_made_once_and_not_confused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.key");
    let public = make_key(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(private_key(&file).unwrap().share(), public_key(&public).unwrap());
    assert!(make_key(&file).unwrap_err().contains("exists"));
    assert!(public_key(&file).err().unwrap().contains("is a private key"));
    assert!(private_key(&public).err().unwrap().contains("without .pub"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(private_key(&file).err().unwrap().contains("chmod 600"));
    let words = folder.path().join("passphrase");
    fs::write(&words, "short\n").unwrap();
    fs::set_permissions(&words, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(passphrase(&words).unwrap_err().contains("too short"));
    fs::write(&words, "correct horse battery\nsecond line").unwrap();
    assert_eq!(passphrase(&words).unwrap().as_slice(), b"correct horse battery");
    assert!(passphrase(Path::new("/dev/zero")).is_err(), "the length of what is read is bounded");
}

#[test] // fuzz/seeds/backup
fn kept_backups_are_answered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../node/fuzz/seeds/backup");
    let host = Host::new();
    host.add(ONE);
    let (archive, before) = (host.path("b"), host.names().len() + 1);
    for kept in fs::read_dir(folder).unwrap() {
        let whole = fs::read(kept.unwrap().path()).unwrap();
        for at in (0..whole.len()).step_by(29) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            for octets in [&changed[..], &whole[..at]] {
                fs::write(&archive, octets).unwrap();
                let _ = Manifest::of(octets);
                assert!(host.restore_sealed(&archive, Unlock::Key(private())).is_err());
                assert!(host.restore(&archive).is_err());
                assert_eq!(host.names().len(), before);
            }
        }
    }
}
