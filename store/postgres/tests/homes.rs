//! Several homes of one database.

use std::time::{Duration, SystemTime};

use super::common::{Home, csv, is_installed, new_database, record};
use whimbrel_postgres::{CopyReason, PostgresDatabase};
use whimbrel_security::SqnOffset;
use whimbrel_store::{
    Changes, Format, OnExisting, SharedStore, StoreError, SubscriberChange, SubscriberStatus,
};

/// Two homes of a new database.
fn homes() -> (Home, Home, PostgresDatabase) {
    let (server, name) = new_database();
    (Home::new(server.settings(&name)), Home::new(server.settings(&name)), server.database(&name))
}

#[test]
fn a_change_at_one_home_is_at_the_other_with_the_same_sealed_keys() {
    if !is_installed() {
        return;
    }
    let (one, other, mut db) = homes();
    let (mut here, mut there) = (one.store(), other.store());
    let mut r = record(1);
    r.msisdn = Some("4917012345".parse().unwrap());
    here.add(&r).unwrap();
    there.catch_up().unwrap();
    assert_eq!(*there.get(r.supi).unwrap().unwrap(), r);
    let sealed = [&here, &there].map(|store| store.sealed_after("", 9).unwrap());
    assert_eq!(sealed[0], sealed[1]);
    assert_eq!(db.sealed_after(&here, "", 9).unwrap(), sealed[0]);

    there.edit(r.supi, |r| r.status = SubscriberStatus::Barred).unwrap();
    here.catch_up().unwrap();
    assert_eq!(here.get(r.supi).unwrap().unwrap().status, SubscriberStatus::Barred);
    here.remove(r.supi).unwrap();
    there.catch_up().unwrap();
    assert_eq!(there.count().unwrap(), 0);
    assert!(matches!(there.remove(r.supi), Err(StoreError::Unknown(_))));
}

#[test]
fn two_edits_of_one_subscriber_at_once_do_not_overwrite_each_other() {
    if !is_installed() {
        return;
    }
    let (one, other, mut db) = homes();
    let (mut here, mut there) = (one.store(), other.store());
    (1..=2).for_each(|n| here.add(&record(n)).unwrap());
    there.catch_up().unwrap();
    let supi = record(1).supi;
    let refused = there.edit(supi, |r| {
        here.edit(supi, |r| r.msisdn = Some("11111".parse().unwrap())).unwrap();
        r.status = SubscriberStatus::Barred;
    });
    assert!(matches!(refused, Err(StoreError::ChangedMeanwhile(s)) if s == supi), "{refused:?}");
    let now = there.get(supi).unwrap().unwrap();
    assert_eq!((now.status, now.msisdn.as_ref().unwrap().digits()), (SubscriberStatus::Enabled, "11111"));

    // A change that was prepared before another one was made, and comes after it.
    let at = there.replica_position().unwrap().unwrap();
    let before = there.sealed_after("", 1).unwrap().remove(0);
    here.edit(supi, |r| r.msisdn = Some("22222".parse().unwrap())).unwrap();
    let change = |before, after| [SubscriberChange { supi: supi.imsi(), before, after }];
    let refused = db.commit(&there, &at, &change(Some(before.clone()), None));
    assert!(matches!(refused, Err(StoreError::ChangedMeanwhile(_))), "{refused:?}");
    // The other subscriber is none of its business.
    here.edit(record(2).supi, |r| r.msisdn = Some("33333".parse().unwrap())).unwrap();
    there.catch_up().unwrap();
    let at = there.replica_position().unwrap().unwrap();
    here.edit(record(2).supi, |r| r.msisdn = Some("44444".parse().unwrap())).unwrap();
    let before = there.sealed_after("", 1).unwrap().remove(0);
    db.commit(&there, &at, &change(Some(before), None)).unwrap();
    here.catch_up().unwrap();
    assert_eq!(here.count().unwrap(), 1);
}

#[test]
fn numbers_are_exchanged_in_one_change_and_a_taken_one_is_refused() {
    if !is_installed() {
        return;
    }
    let (one, other, _) = homes();
    let (mut here, mut there) = (one.store(), other.store());
    let numbered = |n: u64, msisdn: &str| {
        let mut r = record(n);
        r.msisdn = Some(msisdn.parse().unwrap());
        r
    };
    here.add(&numbered(1, "11111")).unwrap();
    here.add(&numbered(2, "22222")).unwrap();
    there.catch_up().unwrap();
    assert!(matches!(there.add(&numbered(3, "22222")), Err(StoreError::MsisdnTaken)));
    // One by one neither may have the other's.
    here.edit(record(1).supi, |r| r.msisdn = None).unwrap();
    here.edit(record(2).supi, |r| r.msisdn = Some("11111".parse().unwrap())).unwrap();
    here.edit(record(1).supi, |r| r.msisdn = Some("22222".parse().unwrap())).unwrap();
    there.catch_up().unwrap();
    let now = there.list(None, 9).unwrap();
    let numbers: Vec<_> = now.iter().map(|r| r.msisdn.as_ref().unwrap().digits()).collect();
    assert_eq!(numbers, ["22222", "11111"]);
}

#[test]
fn an_import_is_at_each_home_whole_and_a_home_that_missed_it_copies_all() {
    if !is_installed() {
        return;
    }
    let (one, other, _) = homes();
    let (mut here, mut there) = (one.store(), other.store());
    there.catch_up().unwrap();
    let mut core = other.alone();
    let list = csv(20_000);
    let done = here.import(list.as_bytes(), Format::Csv, OnExisting::Refuse, &mut |_| {}).unwrap();
    assert_eq!((done.added, here.count().unwrap()), (20_000, 20_000));
    there.catch_up().unwrap();
    assert_eq!(there.list(None, 1000).unwrap(), here.list(None, 1000).unwrap());
    assert_eq!(there.count().unwrap(), 20_000);
    let bad = "supi,k,opc\n999700000000001,1,2\n";
    assert!(matches!(
        there.import(bad.as_bytes(), Format::Csv, OnExisting::Replace, &mut |_| {}),
        Err(StoreError::Import(_))
    ));
    // The core's own connection to the file learns of it.
    assert_eq!(core.refresh().unwrap(), Changes::All);
}

#[test]
fn a_home_that_was_away_for_more_changes_than_the_log_has_copies_all() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let (one, other) = (Home::new(server.settings(&name)), Home::new(server.settings(&name)));
    let (mut here, mut there) = (one.store(), other.store());
    (1..=3).for_each(|n| here.add(&record(n)).unwrap());
    there.catch_up().unwrap();
    drop(there);
    server.sql(
        &name,
        "DO $$ BEGIN FOR n IN 1..10050 LOOP UPDATE whimbrel.subscriber SET status = 'barred' WHERE supi LIKE '%1'; END LOOP; END $$",
    );
    here.remove(record(2).supi).unwrap();
    let mut db = server.database(&name);
    let mut there = other.alone();
    db.catch_up(&mut there).unwrap();
    let copy = db.take_copy().unwrap();
    assert_eq!((copy.reason, copy.differences.changed), (CopyReason::LogCut, 2));
    assert_eq!(there.list(None, 9).unwrap(), here.list(None, 9).unwrap());
    db.catch_up(&mut there).unwrap();
    assert_eq!(db.take_copy(), None);
}

#[test]
fn a_change_by_sql_is_followed_and_one_that_cannot_be_is_refused() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let home = Home::new(server.settings(&name));
    let mut store = home.store();
    store.add(&record(1)).unwrap();
    server.sql(&name, "UPDATE whimbrel.subscriber SET status = 'barred'");
    store.catch_up().unwrap();
    assert_eq!(store.get(record(1).supi).unwrap().unwrap().status, SubscriberStatus::Barred);
    for refused in ["TRUNCATE whimbrel.subscriber", "UPDATE whimbrel.subscriber SET supi = '1'"] {
        let output = server.program("psql").args(["-d", &name, "-c", refused]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("do not follow"), "{refused}");
    }
}

#[test] // TS 33.102 Annex C: an offset of AUTS is durable at its home first, and the larger SEQ is that of all
fn offsets_are_merged_by_the_larger_seq_and_no_edit_undoes_them() {
    if !is_installed() {
        return;
    }
    let (one, other, mut db) = homes();
    let (mut here, mut there) = (one.store(), other.store());
    let mut r = record(1);
    r.sqn_offset = SqnOffset::ZERO;
    here.add(&r).unwrap();
    there.catch_up().unwrap();
    here.set_sqn_offsets(&[(r.supi, SqnOffset::new(500))]).unwrap();
    there.set_sqn_offsets(&[(r.supi, SqnOffset::new(900))]).unwrap();
    assert_eq!(db.merge_offsets(&mut there).unwrap(), 1);
    // This home has its own until it has seen the other one, and an edit by another does not change that.
    assert_eq!(here.get(r.supi).unwrap().unwrap().sqn_offset, SqnOffset::new(500));
    assert_eq!(db.merge_offsets(&mut here).unwrap(), 1);
    here.catch_up().unwrap();
    assert_eq!(here.get(r.supi).unwrap().unwrap().sqn_offset, SqnOffset::new(900));
    assert_eq!(db.merge_offsets(&mut here).unwrap(), 0);

    // While an edit is made at one home, the UE resynchronises at the other.
    there
        .edit(r.supi, |edited| {
            edited.status = SubscriberStatus::Barred;
            here.set_sqn_offsets(&[(r.supi, SqnOffset::new(1_000))]).unwrap();
            db.merge_offsets(&mut here).unwrap();
        })
        .unwrap_err(); // it is refused as any change meanwhile
    there.catch_up().unwrap();
    let at = there.replica_position().unwrap().unwrap();
    let before = there.sealed_after("", 1).unwrap().remove(0);
    here.set_sqn_offsets(&[(r.supi, SqnOffset::new(2_000))]).unwrap();
    db.merge_offsets(&mut here).unwrap();
    let mut after = before.clone();
    after.status = "barred".into();
    let change = SubscriberChange { supi: r.supi.imsi(), before: Some(before), after: Some(after) };
    db.commit(&there, &at, &[change]).unwrap();
    there.catch_up().unwrap();
    let now = there.get(r.supi).unwrap().unwrap();
    assert_eq!((now.status, now.sqn_offset), (SubscriberStatus::Barred, SqnOffset::new(2_000)));

    // An older row of the database does not undo an offset that it does not have yet.
    here.catch_up().unwrap();
    here.set_sqn_offsets(&[(r.supi, SqnOffset::new(3_000))]).unwrap();
    there.edit(r.supi, |r| r.status = SubscriberStatus::Enabled).unwrap();
    here.catch_up().unwrap();
    let now = here.get(r.supi).unwrap().unwrap();
    assert_eq!((now.status, now.sqn_offset), (SubscriberStatus::Enabled, SqnOffset::new(3_000)));
}

#[test]
fn a_home_is_woken_by_a_change_of_another() {
    if !is_installed() {
        return;
    }
    let (one, other, mut db) = homes();
    let (mut here, mut there) = (one.store(), other.alone());
    db.catch_up(&mut there).unwrap();
    db.listen();
    here.add(&record(1)).unwrap();
    let begun = SystemTime::now();
    db.wait(Duration::from_secs(60));
    assert!(begun.elapsed().unwrap() < Duration::from_secs(60));
    db.catch_up(&mut there).unwrap();
    assert_eq!(there.count().unwrap(), 1);
}
