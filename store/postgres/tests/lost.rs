//! A database that has lost commits, or that was promoted without a loss.

use std::process::Command;

use super::common::{Home, Server, is_installed, record};
use whimbrel_postgres::CopyReason;
use whimbrel_security::SqnOffset;
use whimbrel_store::{SharedStore, Store};

fn copied(from: &str, to: &str) {
    let _ = std::fs::remove_dir_all(to);
    assert!(Command::new("cp").args(["-a", from, to]).status().unwrap().success());
}

#[test] // the same system and timeline: only the log of changes shows it
fn an_older_cold_copy_is_noticed_though_it_has_more_changes_by_now() {
    if !is_installed() {
        return;
    }
    let mut server = Server::started();
    let (one, other) = (Home::new(server.settings("postgres")), Home::new(server.settings("postgres")));
    let (mut here, mut there) = (one.store(), other.store());
    (1..=3).for_each(|n| here.add(&record(n)).unwrap());
    server.stop();
    let (data, backup) = (server.data(), server.path().join("backup").display().to_string());
    copied(&data, &backup);
    server.start(&[]);
    here.add(&record(4)).unwrap();
    here.set_sqn_offsets(&[(record(1).supi, SqnOffset::new(77_000))]).unwrap();
    let mut db = server.database("postgres");
    db.merge_offsets(&mut here).unwrap();
    here.catch_up().unwrap();
    server.stop();
    copied(&backup, &data);
    server.start(&[]);
    // The other home was away all the time; its changes take the numbers of those that were lost.
    (5..=9).for_each(|n| there.add(&record(n)).unwrap());
    let mut db = server.database("postgres");
    let mut here = one.alone();
    db.catch_up(&mut here).unwrap();
    let copy = db.take_copy().unwrap();
    assert!(matches!(copy.reason, CopyReason::Lost { .. }), "{copy}");
    let saved = copy.differences.saved.clone().unwrap();
    assert!(
        copy.to_string().contains("has lost changes") && copy.to_string().contains("store copy"),
        "{copy}"
    );
    assert_eq!(here.list(None, 99).unwrap().len(), 8, "1 to 3 and 5 to 9");
    assert_eq!(here.saved_before_loss(), std::slice::from_ref(&saved));
    // What was lost is in the saved file, with its keys.
    let key = one.db().with_file_name("s.key");
    let mut lost = Store::open(&saved, &key).unwrap();
    assert!(lost.get(record(4).supi).unwrap().is_some());
    // The offset with the larger SEQ stayed, and is given to the database again.
    assert_eq!(here.get(record(1).supi).unwrap().unwrap().sqn_offset, SqnOffset::new(77_000));
    assert_eq!(db.merge_offsets(&mut here).unwrap(), 1);
    there.catch_up().unwrap();
    assert_eq!(there.get(record(1).supi).unwrap().unwrap().sqn_offset, SqnOffset::new(77_000));
    // It is put back.
    let rows = lost.sealed_after("", 99).unwrap();
    assert_eq!(db.put_sealed(&here, &rows, false).unwrap(), 1);
    db.catch_up(&mut here).unwrap();
    assert!(here.get(record(4).supi).unwrap().is_some());
    assert_eq!(db.take_copy(), None);
}

#[test]
fn a_promoted_replica_that_lost_nothing_changes_nothing_and_an_url_of_both_finds_it() {
    if !is_installed() {
        return;
    }
    let mut primary = Server::started();
    let mut secondary = Server::new();
    let _ = std::fs::remove_dir_all(secondary.data());
    let data = secondary.data();
    primary.done("pg_basebackup", &["-D", &data, "-R", "-X", "stream", "-c", "fast"]);
    secondary.start(&[]);
    let mut settings = primary.settings("postgres");
    let folders = [&primary, &secondary].map(|s| s.path().display().to_string().replace('/', "%2F"));
    settings.url = format!("postgresql://whimbrel@{},{}/postgres", folders[1], folders[0]);
    let home = Home::new(settings.clone());
    let mut store = home.store();
    (1..=3).for_each(|n| store.add(&record(n)).unwrap());
    let behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()";
    while primary.sql("postgres", behind) != "1" {}
    primary.kill();
    secondary.done("pg_ctl", &["promote", "-D", &data]);
    secondary.sql("postgres", "CHECKPOINT");
    let mut db = whimbrel_postgres::PostgresDatabase::new(settings).unwrap();
    db.catch_up(&mut store).unwrap();
    let copy = db.take_copy().unwrap();
    assert_eq!(copy.reason, CopyReason::OtherTimeline);
    assert_eq!((copy.differences.changed, copy.differences.saved), (0, None));
    store.add(&record(4)).unwrap();
    assert_eq!(store.count().unwrap(), 4);
}

#[test]
fn a_restored_dump_is_the_same_database_in_another_system() {
    if !is_installed() {
        return;
    }
    let first = Server::started();
    let home = Home::new(first.settings("postgres"));
    let mut store = home.store();
    (1..=3).for_each(|n| store.add(&record(n)).unwrap());
    let dump = first.path().join("dump").display().to_string();
    first.done("pg_dump", &["-Fc", "-f", &dump, "postgres"]);
    store.add(&record(4)).unwrap();
    let second = Server::started();
    second.done("pg_restore", &["-d", "postgres", &dump]);
    let mut db = second.database("postgres");
    let mut replica = home.alone();
    db.catch_up(&mut replica).unwrap();
    let copy = db.take_copy().unwrap();
    assert_eq!(copy.reason, CopyReason::Lost { had: 4, has: 3 });
    assert_eq!(
        (copy.differences.changed, copy.differences.first.as_deref()),
        (1, Some("imsi-999700000000004"))
    );
}
