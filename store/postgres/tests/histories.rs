//! The audit logs and charging records of several homes in one database.

use whimbrel_ids::Instant;
use whimbrel_postgres::{HomeName, UsageRow};

use super::common::{Home, is_installed, new_database};

const NORTH: HomeName<'_> = HomeName { file: "aa", name: "north" };
const SOUTH: HomeName<'_> = HomeName { file: "bb", name: "south" };

fn line(n: u64) -> (Instant, String) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as u64;
    (Instant(now + n), format!("line {n}"))
}

fn usage(number: u64, session: &str, record: &str) -> UsageRow {
    let (at, _) = line(number);
    UsageRow {
        number,
        session: session.into(),
        supi: format!("imsi-{}", number % 2),
        at,
        record: record.into(),
    }
}

#[test]
fn lines_of_a_log_are_written_once_and_read_at_the_other_homes() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let (replica, mut db) = (Home::new(server.settings(&name)).store(), server.database(&name));
    assert_eq!(db.last_audit_line(&replica, "aa").unwrap(), None);
    let lines: Vec<_> = (1..=3).map(line).collect();
    db.write_audit(&replica, NORTH, &lines[..2]).unwrap();
    // The outcome of a write was unknown, and it is made again with what came after.
    db.write_audit(&replica, NORTH, &lines).unwrap();
    db.write_audit(&replica, SOUTH, &lines[..1]).unwrap();
    assert_eq!(db.last_audit_line(&replica, "aa").unwrap().as_deref(), Some("line 3"));
    let others = db.audit_of_others(&replica, "bb", 2).unwrap();
    let read: Vec<_> = others.iter().map(|e| (e.home.as_str(), e.text.as_str())).collect();
    assert_eq!(read, [("north", "line 3"), ("north", "line 2")], "newest first");
    // Old entries of this home and of homes that are gone are deleted; those of another one are that one's.
    server.sql(
        &name,
        "INSERT INTO whimbrel.home VALUES ('99970-020041', 0, 'bb', 'south', now(), 1); \
         UPDATE whimbrel.audit SET at = at - interval '91 days' WHERE line = 'line 1'",
    );
    db.prune_histories(&replica, "aa", 90, 90).unwrap();
    assert_eq!(server.sql(&name, "SELECT count(*) FROM whimbrel.audit WHERE home = 'aa'"), "2");
    assert_eq!(server.sql(&name, "SELECT count(*) FROM whimbrel.audit WHERE home = 'bb'"), "1");
}

#[test]
fn a_charging_record_is_there_once_with_its_last_usage() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let (replica, mut db) = (Home::new(server.settings(&name)).store(), server.database(&name));
    assert_eq!(db.last_usage(&replica, "aa").unwrap(), None);
    db.write_usage(&replica, NORTH, &[usage(1, "s1", "1"), usage(2, "s2", "2"), usage(3, "s1", "late")])
        .unwrap();
    db.write_usage(&replica, SOUTH, &[usage(1, "s1", "south")]).unwrap();
    assert_eq!(db.last_usage(&replica, "aa").unwrap(), Some((3, "s1".into())));
    let all = |db: &mut whimbrel_postgres::PostgresDatabase, after| {
        let read = db.usage_after(&replica, None, after, 10).unwrap();
        read.into_iter().map(|e| (e.home, e.number, e.text)).collect::<Vec<_>>()
    };
    let first = all(&mut db, 0);
    let texts: Vec<_> = first.iter().map(|(home, _, text)| (home.as_str(), text.as_str())).collect();
    assert_eq!(texts, [("north", "2"), ("north", "late"), ("south", "south")]);
    let last = first.last().unwrap().1;
    // What is written again is not new to a reader; what has changed is.
    db.write_usage(&replica, NORTH, &[usage(2, "s2", "2")]).unwrap();
    assert!(all(&mut db, last).is_empty());
    db.write_usage(&replica, NORTH, &[usage(4, "s2", "later")]).unwrap();
    assert_eq!(all(&mut db, last).len(), 1);
    assert_eq!(db.usage_after(&replica, Some("imsi-1"), 0, 10).unwrap().len(), 2);
}
