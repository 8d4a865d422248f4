//! Rotation of the key of a store that is no replica.

use super::common;

use common::{Folder, record};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use whimbrel_store::{Store, StoreError};

struct Rotating(Folder);

impl Rotating {
    fn open(&self) -> Result<Store, StoreError> {
        Store::open(&self.0.db(), &self.0.key())
    }

    fn keys(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.key()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_key_is_rotated_under_a_process_that_runs_and_at_each_moment_all_can_be_read() {
    let folder = Rotating(Folder::new());
    let mut running = folder.open().unwrap();
    let held = [1, 2, 3].map(record);
    held.iter().for_each(|r| running.add(r).unwrap());
    let seen = running.documents_version().unwrap();
    running.change_documents(seen, vec![("user:anna".into(), Some(b"x".to_vec()))]).unwrap();
    let [old] = folder.keys().try_into().unwrap();
    folder.open().unwrap().add_key().unwrap();
    // Killed here: a process that starts reads all, and writes under the new key; that which runs reads on.
    let [new, former] = folder.keys().try_into().unwrap();
    assert!(former == old && new != old);
    let mode = fs::metadata(folder.0.key()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut other = folder.open().unwrap();
    other.note_key().unwrap();
    assert!(!other.is_sealed_with_key().unwrap(), "all of it needs the former key");
    assert!(matches!(other.drop_former_key(), Err(StoreError::NeedsFormerKey { .. })));
    other.add(&record(4)).unwrap();
    running.refresh().unwrap();
    assert_eq!(
        *running.cached(record(4).supi).unwrap().unwrap(),
        *other.get(record(4).supi).unwrap().unwrap()
    );
    assert_eq!(other.seal_again().unwrap(), (4, 1));
    assert_eq!(*running.get(held[0].supi).unwrap().unwrap(), held[0]);
    assert_eq!(running.documents("user").unwrap().1.len(), 1);
    other.drop_former_key().unwrap();
    assert_eq!(folder.keys(), [new]);
    let mut alone = folder.open().unwrap();
    assert_eq!(*alone.get(held[2].supi).unwrap().unwrap(), held[2]);
    assert_eq!(alone.documents("user").unwrap().1.len(), 1);
    fs::write(folder.0.key(), format!("{old}\n")).unwrap();
    assert!(
        matches!(folder.open(), Err(StoreError::WrongKeyFile { .. })),
        "nothing opens under the former key"
    );
    fs::write(folder.0.key(), format!("{old}\n{old}\n{old}\n")).unwrap();
    assert!(matches!(folder.open(), Err(StoreError::KeyFileInvalid { .. })));
}
