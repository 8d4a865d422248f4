//! Rotation of the key that all homes have.

use std::fs;

use whimbrel_store::{DatabaseFailure, SharedStore, Store, StoreError};

use super::common::{Home, is_installed, new_database, record};

fn key_file(home: &Home) -> std::path::PathBuf {
    home.db().with_file_name("s.key")
}

fn failure<T: std::fmt::Debug>(done: Result<T, StoreError>) -> DatabaseFailure {
    match done {
        Err(StoreError::Database(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

fn change(store: &mut Store) -> Result<(), StoreError> {
    store.edit(record(1).supi, |r| r.msisdn = None).map(drop)
}

#[test]
fn a_key_is_rotated_while_both_homes_run_and_one_with_the_former_key_serves_on_and_changes_nothing() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let homes = [Home::new(server.settings(&name)), Home::new(server.settings(&name))];
    let [mut north, mut south] = [homes[0].store(), homes[1].store()];
    let held = record(1);
    north.add(&held).unwrap();
    north.add(&record(2)).unwrap();
    let seen = north.documents_version().unwrap();
    north.change_documents(seen, vec![("user:anna".into(), Some(b"x".to_vec()))]).unwrap();
    south.catch_up().unwrap();
    let mut following = server.database(&name);
    following.catch_up(&mut south).unwrap();

    // The operator's command at north ends after the key file was changed.
    homes[0].alone().add_key().unwrap();
    let mut command = homes[0].store();
    assert_eq!(failure(change(&mut command)), DatabaseFailure::FormerKey);
    // And is run again.
    let mut db = server.database(&name);
    assert_eq!(db.seal_again(&command).unwrap(), (2, 1));
    assert_eq!(db.seal_again(&command).unwrap(), (0, 0), "it is done");
    assert!(matches!(command.drop_former_key(), Err(StoreError::NeedsFormerKey { .. })));

    // North, which runs on, reads its key file again by itself.
    north.catch_up().unwrap();
    assert_eq!(*north.get(held.supi).unwrap().unwrap(), held);
    north.edit(held.supi, |r| r.status = whimbrel_store::SubscriberStatus::Barred).unwrap();
    assert!(north.is_sealed_with_key().unwrap());
    north.drop_former_key().unwrap();
    assert_eq!(fs::read_to_string(key_file(&homes[0])).unwrap().lines().count(), 1);
    assert!(homes[0].alone().get(held.supi).unwrap().is_some());

    // South has the former key alone.
    let refusal = failure(following.catch_up(&mut south));
    assert!(matches!(refusal, DatabaseFailure::OtherKey { .. }), "{refusal}");
    assert!(matches!(failure(change(&mut south)), DatabaseFailure::OtherKey { .. }));
    assert_eq!(*south.get(held.supi).unwrap().unwrap(), held, "as it was before");
    assert_eq!(homes[1].alone().documents("user").unwrap().1.len(), 1, "after a restart, too");
    // It gets the new one in front of its own, and goes on without a restart.
    let [new, own] = [0, 1].map(|n| fs::read_to_string(key_file(&homes[n])).unwrap());
    fs::write(key_file(&homes[1]), format!("{new}{own}")).unwrap();
    following.catch_up(&mut south).unwrap();
    assert_eq!(south.get(held.supi).unwrap().unwrap().status, whimbrel_store::SubscriberStatus::Barred);
    change(&mut south).unwrap();
    south.drop_former_key().unwrap();
    assert_eq!(homes[1].alone().count().unwrap(), 2);
    let keys = |home: &Home| home.alone().sealed_after("", 9).unwrap();
    north.catch_up().unwrap();
    assert!(keys(&homes[0]) == keys(&homes[1]), "replicas have the octets of the database");
}

#[test]
fn what_neither_key_opens_ends_a_rotation_without_a_change() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let home = Home::new(server.settings(&name));
    let mut store = home.store();
    (1..=3).for_each(|n| store.add(&record(n)).unwrap());
    server.sql(&name, "UPDATE whimbrel.subscriber SET keys = '\\x00' WHERE supi LIKE '%3'");
    store.add_key().unwrap();
    let store = home.store();
    let refused = server.database(&name).seal_again(&store).unwrap_err();
    assert!(refused.to_string().contains("imsi-999700000000003 in the store is damaged"), "{refused}");
    server.sql(&name, "DELETE FROM whimbrel.subscriber WHERE supi LIKE '%3'");
    assert_eq!(server.database(&name).seal_again(&store).unwrap(), (2, 0));
}
