//! Users and tokens as sealed documents: one log and one replica for them and the subscribers.

use whimbrel_postgres::CopyReason;
use whimbrel_store::{DatabaseFailure, SharedStore, Store, StoreError};

use super::common::{Home, Server, is_installed, new_database, record};

/// Sets a document from what the store has at this moment.
fn set(store: &mut Store, name: &str, content: Option<&str>) -> Result<(), StoreError> {
    let seen = store.documents_version()?;
    store.change_documents(seen, vec![(name.to_owned(), content.map(|c| c.as_bytes().to_vec()))])
}

fn users(store: &mut Store) -> Vec<(String, String)> {
    let (_, all) = store.documents("user").unwrap();
    all.into_iter().map(|(name, octets)| (name, String::from_utf8(octets.to_vec()).unwrap())).collect()
}

fn user(name: &str, content: &str) -> (String, String) {
    (name.into(), content.into())
}

#[test]
fn a_document_of_one_home_is_at_the_other_with_the_next_look_sealed_and_between_subscribers() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let homes = [Home::new(server.settings(&name)), Home::new(server.settings(&name))];
    let [mut north, mut south] = [homes[0].store(), homes[1].store()];
    north.add(&record(1)).unwrap();
    set(&mut north, "user:anna", Some("first")).unwrap();
    set(&mut north, "token:metrics", Some("t")).unwrap();
    north.add(&record(2)).unwrap();
    south.catch_up().unwrap();
    assert_eq!(users(&mut south), [user("anna", "first")]);
    assert_eq!(south.count().unwrap(), 2);
    let before = south.documents_version().unwrap();
    set(&mut south, "user:anna", Some("second")).unwrap();
    assert!(south.documents_version().unwrap() > before);
    set(&mut south, "token:metrics", None).unwrap();
    north.catch_up().unwrap();
    assert_eq!(users(&mut north), [user("anna", "second")]);
    assert!(north.documents("token").unwrap().1.is_empty());
    let plain = server
        .sql(&name, "SELECT count(*) FROM whimbrel.document WHERE position('second'::bytea IN content) > 0");
    assert_eq!(plain, "0", "the database alone gives nothing away");
    // The file's own reader finds it without the database.
    assert_eq!(users(&mut homes[1].alone()), [user("anna", "second")]);
}

#[test]
fn of_two_changes_from_one_state_one_is_refused_also_of_different_users() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let homes = [Home::new(server.settings(&name)), Home::new(server.settings(&name))];
    let [mut north, mut south] = [homes[0].store(), homes[1].store()];
    set(&mut north, "user:anna", Some("admin")).unwrap();
    set(&mut north, "user:olaf", Some("admin")).unwrap();
    south.catch_up().unwrap();
    // Each takes the role of admin from one: together none would be left.
    set(&mut north, "user:anna", Some("viewer")).unwrap();
    let refused = set(&mut south, "user:olaf", Some("viewer"));
    assert!(matches!(refused, Err(StoreError::DocumentsChangedMeanwhile)), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("your change was not made"));
    south.catch_up().unwrap();
    assert_eq!(users(&mut south), [user("anna", "viewer"), user("olaf", "admin")]);
    // A subscriber that was changed meanwhile is no conflict.
    north.add(&record(1)).unwrap();
    set(&mut south, "user:olaf", Some("operator")).unwrap();
}

#[test]
fn without_the_database_documents_are_read_and_changes_are_refused() {
    if !is_installed() {
        return;
    }
    let mut server = Server::started();
    let home = Home::new(server.settings("postgres"));
    let mut store = home.store();
    set(&mut store, "user:anna", Some("x")).unwrap();
    server.kill();
    for round in 0..2 {
        let refused = set(&mut store, "user:anna", Some("y")).unwrap_err();
        assert!(matches!(refused, StoreError::Database(DatabaseFailure::Unreachable { .. })), "{refused}");
        assert_eq!(users(&mut store), [user("anna", "x")], "{round}");
    }
    let refused = set(&mut home.alone(), "user:anna", Some("y"));
    assert!(matches!(refused, Err(StoreError::Replica { .. })), "without store.postgres, too");
    server.start(&["default_transaction_read_only=on"]);
    let refused = set(&mut store, "user:anna", Some("y"));
    assert!(matches!(refused, Err(StoreError::Database(DatabaseFailure::ReadOnly))), "{refused:?}");
}

#[test]
fn what_an_older_backup_lost_of_documents_is_saved_and_the_database_is_followed() {
    if !is_installed() {
        return;
    }
    let mut server = Server::started();
    let home = Home::new(server.settings("postgres"));
    let mut store = home.store();
    set(&mut store, "user:anna", Some("before")).unwrap();
    server.stop();
    let (data, backup) = (server.data(), server.path().join("backup").display().to_string());
    let copy = |from: &str, to: &str| {
        let _ = std::fs::remove_dir_all(to);
        assert!(std::process::Command::new("cp").args(["-a", from, to]).status().unwrap().success());
    };
    copy(&data, &backup);
    server.start(&[]);
    set(&mut store, "user:anna", Some("after")).unwrap();
    set(&mut store, "user:olaf", Some("new")).unwrap();
    server.stop();
    copy(&backup, &data);
    server.start(&[]);
    let mut db = server.database("postgres");
    db.catch_up(&mut store).unwrap();
    let done = db.take_copy().unwrap();
    assert!(matches!(done.reason, CopyReason::Lost { .. }));
    assert_eq!((done.differences.changed, done.differences.documents), (0, 2));
    assert!(done.to_string().contains("and 2 users of the console and API tokens"), "{done}");
    assert_eq!(users(&mut store), [user("anna", "before")]);
    let saved = done.differences.saved.unwrap();
    let mut lost = Store::open(&saved, &home.db().with_file_name("s.key")).unwrap();
    assert_eq!(users(&mut lost), [user("anna", "after"), user("olaf", "new")]);
    let rows = lost.sealed_documents().unwrap();
    assert_eq!(db.put_sealed_documents(&store, &rows, false).unwrap(), 1, "those that are missing");
    db.catch_up(&mut store).unwrap();
    assert_eq!(users(&mut store), [user("anna", "before"), user("olaf", "new")]);
}

#[test]
fn users_of_a_file_that_was_no_replica_are_not_lost() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let homes = [Home::new(server.settings(&name)), Home::new(server.settings(&name))];
    set(&mut homes[0].store(), "user:anna", Some("north")).unwrap();
    let mut alone = homes[1].alone();
    set(&mut alone, "user:anna", Some("south")).unwrap();
    set(&mut alone, "user:olaf", Some("south")).unwrap();
    let refused = homes[1].store().catch_up();
    assert!(
        matches!(refused, Err(StoreError::Database(DatabaseFailure::OwnSubscribers { count: 1, .. }))),
        "{refused:?}"
    );
    assert_eq!(users(&mut alone).len(), 2);
    server.database(&name).put_sealed_documents(&alone, &alone.sealed_documents().unwrap(), false).unwrap();
    homes[1].store().catch_up().unwrap();
    assert_eq!(users(&mut homes[1].alone()), [user("anna", "north"), user("olaf", "south")]);
}

#[test]
fn a_schema_of_the_former_layout_is_brought_to_this_one_and_a_change_by_sql_is_followed() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let home = Home::new(server.settings(&name));
    let mut store = home.store();
    store.add(&record(1)).unwrap();
    server.sql(
        &name,
        "DROP TABLE whimbrel.document, whimbrel.audit, whimbrel.usage; DROP FUNCTION whimbrel.log_document; UPDATE whimbrel.state SET layout = 2",
    );
    let mut store = home.store();
    set(&mut store, "user:anna", Some("x")).unwrap();
    assert_eq!(server.sql(&name, "SELECT layout FROM whimbrel.state"), "3");
    server.sql(&name, "DELETE FROM whimbrel.document");
    store.catch_up().unwrap();
    assert!(users(&mut store).is_empty());
    let refused =
        server.program("psql").args(["-Xq", "-d", &name, "-c", "TRUNCATE whimbrel.document"]).output();
    assert!(String::from_utf8_lossy(&refused.unwrap().stderr).contains("do not follow TRUNCATE"));
}
