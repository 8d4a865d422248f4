//! Each failure of the database is one sentence, nothing is changed, and the replica still answers.

use std::process::{Command, Stdio};

use super::common::{Home, Server, is_installed, new_database, record};
use whimbrel_postgres::PostgresSettings;
use whimbrel_store::{DatabaseFailure, Store, StoreError, SubscriberStatus};

/// The failure of an edit of subscriber 1, which the replica still has as it was.
fn refused(store: &mut Store) -> DatabaseFailure {
    let supi = record(1).supi;
    let StoreError::Database(failure) =
        store.edit(supi, |r| r.status = SubscriberStatus::Barred).unwrap_err()
    else {
        panic!("the database did not refuse")
    };
    let sentence = failure.to_string();
    assert!(!sentence.contains('\n') && !sentence.ends_with('.'), "{sentence}");
    assert_eq!(store.get(supi).unwrap().unwrap().status, SubscriberStatus::Enabled);
    failure
}

#[test]
fn a_database_that_is_away_comes_back() {
    if !is_installed() {
        return;
    }
    let mut server = Server::started();
    let home = Home::new(server.settings("postgres"));
    let mut store = home.store();
    store.add(&record(1)).unwrap();
    server.kill();
    assert!(matches!(refused(&mut store), DatabaseFailure::Unreachable { .. }));
    server.start(&[]);
    store.edit(record(1).supi, |r| r.status = SubscriberStatus::Barred).unwrap();
    // A restart between two changes is not noticed.
    server.kill();
    server.start(&[]);
    store.edit(record(1).supi, |r| r.status = SubscriberStatus::Enabled).unwrap();
    server.stop();
    assert!(matches!(refused(&mut store), DatabaseFailure::Unreachable { .. }));
}

#[test]
fn a_database_that_does_not_answer() {
    if !is_installed() {
        return;
    }
    let server = Server::started();
    let home = Home::new(server.settings("postgres"));
    let mut store = home.store();
    store.add(&record(1)).unwrap();
    let stopped = |signal: &str| {
        // The server's own processes: by their group of this server alone.
        let pid = std::fs::read_to_string(format!("{}/postmaster.pid", server.data())).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        let children = Command::new("pgrep").args(["-P", &pid]).output().unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        let done = Command::new("kill")
            .arg(format!("-{signal}"))
            .args(children.lines())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(done.success());
    };
    stopped("STOP");
    assert!(matches!(refused(&mut store), DatabaseFailure::Late { .. }));
    stopped("CONT");
    store.edit(record(1).supi, |r| r.status = SubscriberStatus::Barred).unwrap();
}

#[test]
fn a_database_that_another_writer_keeps_locked() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let home = Home::new(server.settings(&name));
    let mut store = home.store();
    store.add(&record(1)).unwrap();
    let lock = "BEGIN; SELECT * FROM whimbrel.state FOR UPDATE; SELECT pg_sleep(60)";
    let mut holder =
        server.program("psql").args(["-qd", &name, "-c", lock]).stdout(Stdio::null()).spawn().unwrap();
    let is_locked =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND wait_event = 'PgSleep'";
    while server.sql(&name, is_locked) != "1" {}
    assert_eq!(refused(&mut store), DatabaseFailure::Busy);
    holder.kill().unwrap();
    holder.wait().unwrap();
    server.sql(&name, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()");
    store.edit(record(1).supi, |r| r.status = SubscriberStatus::Barred).unwrap();
}

#[test]
fn a_wrong_password_and_one_that_was_changed() {
    if !is_installed() {
        return;
    }
    let mut server = Server::started();
    server.sql("postgres", "CREATE ROLE w LOGIN PASSWORD 'right'");
    server.sql("postgres", "CREATE DATABASE w OWNER w");
    server.stop();
    let hba = format!("{}/pg_hba.conf", server.data());
    std::fs::write(&hba, "local all whimbrel trust\nlocal all all scram-sha-256\n").unwrap();
    server.start(&[]);
    let file = server.path().join("password");
    std::fs::write(&file, "right\n").unwrap();
    let settings =
        PostgresSettings { url: server.url("w", "w"), password_file: Some(file.clone()), ca_file: None };
    let home = Home::new(settings.clone());
    home.store().add(&record(1)).unwrap();
    std::fs::write(&file, "wrong\n").unwrap();
    let mut store = home.store();
    let failure = refused(&mut store);
    assert!(matches!(failure, DatabaseFailure::Login { .. }), "{failure:?}");
    assert!(!failure.to_string().contains("wrong"));
    std::fs::write(&file, "right\n").unwrap();
    store.edit(record(1).supi, |_| {}).unwrap();
    let without = Home::new(PostgresSettings { password_file: None, ..settings.clone() });
    let failure = without.store().catch_up().unwrap_err();
    assert!(matches!(failure, StoreError::Database(DatabaseFailure::Login { .. })), "{failure}");
    let absent = Home::new(PostgresSettings { url: server.url("w", "nowhere"), ..settings });
    let failure = absent.store().catch_up().unwrap_err();
    assert!(matches!(failure, StoreError::Database(DatabaseFailure::Login { .. })), "{failure}");
}

#[test]
fn a_read_only_database_and_a_user_that_may_not_write() {
    if !is_installed() {
        return;
    }
    let mut server = Server::started();
    let home = Home::new(server.settings("postgres"));
    let mut store = home.store();
    store.add(&record(1)).unwrap();
    server.sql("postgres", "CREATE ROLE r LOGIN; GRANT USAGE ON SCHEMA whimbrel TO r; GRANT SELECT ON ALL TABLES IN SCHEMA whimbrel TO r");
    server.stop();
    server.start(&["default_transaction_read_only=on"]);
    assert_eq!(refused(&mut store), DatabaseFailure::ReadOnly);
    server.stop();
    server.start(&[]);
    let reader =
        Home::new(PostgresSettings { url: server.url("r", "postgres"), ..server.settings("postgres") });
    let mut store = reader.store();
    store.catch_up().unwrap();
    assert!(matches!(refused(&mut store), DatabaseFailure::NotPermitted { .. }));
}

#[test]
fn a_schema_of_another_program_and_one_of_a_later_version() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    server.sql(&name, "CREATE SCHEMA whimbrel");
    let failure = Home::new(server.settings(&name)).store().catch_up().unwrap_err();
    assert!(matches!(failure, StoreError::Database(DatabaseFailure::OtherSchema { .. })), "{failure}");
    server.sql(&name, "CREATE TABLE whimbrel.state (layout integer, key_check text); INSERT INTO whimbrel.state VALUES (1, 'x')");
    let failure = Home::new(server.settings(&name)).store().catch_up().unwrap_err();
    assert!(matches!(failure, StoreError::Database(DatabaseFailure::OtherSchema { .. })), "{failure}");

    let (server, name) = new_database();
    let home = Home::new(server.settings(&name));
    let mut connected = home.store();
    connected.add(&record(1)).unwrap();
    server.sql(&name, "UPDATE whimbrel.state SET layout = 9");
    assert_eq!(refused(&mut connected), DatabaseFailure::NewerSchema { layout: 9, known: 3 });
    assert_eq!(refused(&mut home.store()), DatabaseFailure::NewerSchema { layout: 9, known: 3 });
}

#[test]
fn another_key_file_and_a_file_with_subscribers_of_its_own() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    Home::new(server.settings(&name)).store().add(&record(1)).unwrap();
    let other = Home::with_key(server.settings(&name), &format!("{}\n", "cd".repeat(32)));
    let failure = other.store().catch_up().unwrap_err();
    assert!(matches!(failure, StoreError::Database(DatabaseFailure::OtherKey { .. })), "{failure}");

    let own = Home::new(server.settings(&name));
    own.alone().add(&record(7)).unwrap();
    let mut store = own.store();
    let failure = store.catch_up().unwrap_err();
    assert!(
        matches!(failure, StoreError::Database(DatabaseFailure::OwnSubscribers { count: 1, .. })),
        "{failure}"
    );
    assert_eq!(store.count().unwrap(), 1, "nothing was overwritten");
}

#[test]
fn a_replica_is_changed_through_its_database_alone_and_follows_no_other() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let home = Home::new(server.settings(&name));
    home.store().add(&record(1)).unwrap();
    let mut alone = home.alone();
    for refused in [
        alone.add(&record(2)).unwrap_err(),
        alone.edit(record(1).supi, |_| {}).unwrap_err(),
        alone.remove(record(1).supi).unwrap_err(),
    ] {
        assert!(matches!(refused, StoreError::Replica { .. }), "{refused}");
    }
    let (server, other) = new_database();
    let mut db = server.database(&other);
    let failure = whimbrel_store::SharedStore::catch_up(&mut db, &mut alone).unwrap_err();
    assert!(matches!(failure, StoreError::Database(DatabaseFailure::OtherDatabase { .. })), "{failure}");
    assert_eq!(alone.count().unwrap(), 1);
}
