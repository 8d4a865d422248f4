//! The home at which a subscriber is registered (TS 29.503 Nudm_UECM).

use std::collections::BTreeSet;
use std::time::Duration;

use super::common::{Home, Server, is_installed, new_database, record};
use whimbrel_ids::{Instant, Supi};
use whimbrel_postgres::PostgresDatabase;
use whimbrel_store::{OwnRegistration, Store};

const NORTH: &str = "99970-010040";
const SOUTH: &str = "99970-010041";
const SECOND: Duration = Duration::from_secs(1);
/// The time at the homes whose clock is right; the database's has nothing to do with it.
const NOW: Instant = Instant(1_800_000_000_000_000);

fn supi(n: u64) -> Supi {
    record(n).supi
}

/// Two homes of a database, as their threads that follow it see them.
struct Homes {
    server: &'static Server,
    name: String,
    database: PostgresDatabase,
    file: Store,
    _home: Home,
}

impl Homes {
    fn new() -> Self {
        let (server, name) = new_database();
        let home = Home::new(server.settings(&name));
        let (mut database, file) = (server.database(&name), home.store());
        assert_eq!(database.deregistrations(&file, NORTH, 9).unwrap(), []);
        Self { server, name, database, file, _home: home }
    }

    /// The AMF writes registrations, each of so long ago, at this time of its clock. Returns those that it has lost.
    fn registers(&mut self, amf: &str, now: Instant, ages: &[(u64, Duration)]) -> Vec<String> {
        let changes: Vec<_> = ages
            .iter()
            .map(|(n, ago)| OwnRegistration::new(supi(*n), Some(Instant(now.0 - ago.as_micros() as u64))))
            .collect();
        self.database.write_registrations(&self.file, amf, now, &changes).unwrap()
    }

    fn ends(&mut self, amf: &str, n: u64) {
        let gone = [OwnRegistration::new(supi(n), None)];
        assert!(self.database.write_registrations(&self.file, amf, NOW, &gone).unwrap().is_empty());
    }

    /// The AMFs of the subscribers, in their order.
    fn rows(&self) -> String {
        self.server.sql(&self.name, "SELECT amf FROM whimbrel.registration ORDER BY supi")
    }

    /// The subscribers that an AMF learns to have lost; it carries that out.
    fn learns(&mut self, amf: &str) -> Vec<String> {
        let queue = self.database.deregistrations(&self.file, amf, 100).unwrap();
        self.database.remove_deregistrations(&self.file, amf, &queue).unwrap();
        queue.into_iter().filter(|d| !d.is_outdated).map(|d| d.supi).collect()
    }
}

#[test] // TS 23.502 §4.2.2.2.2 step 14d
fn the_later_registration_is_in_force_and_the_former_amf_learns_of_it() {
    if !is_installed() {
        return;
    }
    let mut homes = Homes::new();
    assert_eq!(homes.registers(NORTH, NOW, &[(1, SECOND * 9), (2, SECOND * 9)]), [""; 0]);
    assert_eq!(homes.registers(SOUTH, NOW, &[(1, SECOND * 3)]), [""; 0]);
    assert_eq!(homes.rows(), format!("{SOUTH}\n{NORTH}"));
    assert_eq!(homes.learns(NORTH), [supi(1).imsi()]);
    assert_eq!(homes.learns(NORTH), [""; 0], "once");
    // PostgreSQL was away when the UE was there before: its home has it no more, and the other home learns nothing.
    assert_eq!(homes.registers(NORTH, NOW, &[(1, SECOND * 5)]), [supi(1).imsi()]);
    assert_eq!(homes.learns(SOUTH), [""; 0]);
    // A registration of unknown time is earlier than any other.
    assert_eq!(homes.registers(NORTH, NOW, &[(1, Duration::from_micros(NOW.0))]), [supi(1).imsi()]);
    // The end of a registration that is not in force any more leaves the other one.
    homes.ends(NORTH, 1);
    assert_eq!(homes.rows(), format!("{SOUTH}\n{NORTH}"));
    homes.ends(SOUTH, 1);
    assert_eq!(homes.rows(), NORTH);
    // Back before the former AMF has looked: it keeps the UE.
    assert_eq!(homes.registers(SOUTH, NOW, &[(2, SECOND)]), [""; 0]);
    assert_eq!(homes.registers(NORTH, NOW, &[(2, Duration::ZERO)]), [""; 0]);
    assert_eq!(homes.learns(NORTH), [""; 0]);
    assert_eq!(homes.learns(SOUTH), [supi(2).imsi()]);
}

#[test]
fn a_clock_that_is_an_hour_ahead_and_rows_of_the_future_keep_no_subscriber_at_a_home() {
    if !is_installed() {
        return;
    }
    let mut homes = Homes::new();
    let ahead = NOW + SECOND * 3600;
    assert_eq!(homes.registers(NORTH, ahead, &[(1, SECOND * 2)]), [""; 0]);
    assert_eq!(homes.registers(SOUTH, NOW, &[(1, SECOND)]), [""; 0]);
    assert_eq!(homes.rows(), SOUTH);
    assert_eq!(homes.registers(NORTH, ahead, &[(1, Duration::ZERO)]), [""; 0]);
    assert_eq!(homes.rows(), NORTH);
    for garbage in [i64::MAX, i64::MIN, 0] {
        homes.server.sql(&homes.name, &format!("UPDATE whimbrel.registration SET at = {garbage}"));
        assert_eq!(homes.registers(SOUTH, NOW, &[(1, Duration::ZERO)]), [""; 0], "{garbage}");
        assert_eq!(homes.rows(), SOUTH);
        assert_eq!(homes.registers(NORTH, NOW, &[(1, Duration::ZERO)]), [""; 0]);
    }
}

#[test]
fn rows_of_another_program_are_removed_or_refused_and_a_long_queue_is_read_in_parts() {
    if !is_installed() {
        return;
    }
    let mut homes = Homes::new();
    let queue = "INSERT INTO whimbrel.deregistration SELECT '99970-010040', ";
    homes.server.sql(
        &homes.name,
        &format!("{queue} t, n FROM (VALUES ('', 1), ('no SUPI', -9), (repeat('x', 9999), 3)) v (t, n)"),
    );
    homes.server.sql(
        &homes.name,
        &format!("{queue} (999700000000000 + n)::text, n FROM generate_series(1, 20000) n"),
    );
    let mut rounds = 0;
    while !homes.database.deregistrations(&homes.file, NORTH, 100).unwrap().is_empty() {
        assert!(homes.learns(NORTH).len() <= 100);
        rounds += 1;
    }
    assert_eq!(rounds, 201);
    for amf in ["", "99970-01004", "'; DROP", &"9".repeat(99)] {
        let sql = format!("INSERT INTO whimbrel.registration VALUES ('1', $${amf}$$, 1)");
        let output = homes.server.program("psql").args(["-d", &homes.name, "-c", &sql]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("violates check"), "{amf}");
    }
    // A SUPI that is none is moved like any other.
    homes.server.sql(&homes.name, "INSERT INTO whimbrel.registration VALUES ('no SUPI', '99970-010040', 1)");
    homes.server.sql(&homes.name, "UPDATE whimbrel.registration SET amf = '99970-010041'");
    assert_eq!(homes.learns(NORTH), ["no SUPI"]);
}

#[test]
fn a_home_keeps_the_last_state_of_each_subscriber_in_its_file_until_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let mut store = Store::open(&folder.path().join("s.db"), &folder.path().join("s.key")).unwrap();
        struct Nowhere;
        impl whimbrel_store::SharedStore for Nowhere {
            fn catch_up(&mut self, _: &mut Store) -> Result<(), whimbrel_store::StoreError> {
                Ok(())
            }
            fn commit(
                &mut self,
                _: &Store,
                _: &whimbrel_store::ReplicaPosition,
                _: &[whimbrel_store::SubscriberChange],
            ) -> Result<(), whimbrel_store::StoreError> {
                Ok(())
            }
            fn commit_documents(
                &mut self,
                _: &Store,
                _: &whimbrel_store::ReplicaPosition,
                _: &[whimbrel_store::DocumentChange],
            ) -> Result<(), whimbrel_store::StoreError> {
                Ok(())
            }
        }
        store.follow(Box::new(Nowhere)).unwrap();
        store
    };
    let at = |n: u64, at| OwnRegistration::new(supi(n), at);
    let mut store = open();
    store.note_registrations(&[at(1, Some(Instant(5))), at(2, Some(Instant(6)))]).unwrap();
    store.note_registrations(&[at(1, Some(Instant(7)))]).unwrap();
    drop(store);
    let mut store = open();
    let unwritten = store.unwritten_registrations(9).unwrap();
    assert_eq!(unwritten, [at(1, Some(Instant(7))), at(2, Some(Instant(6)))]);
    // Subscriber 2 leaves while both are written.
    store.note_registrations(&[at(2, None)]).unwrap();
    store.registrations_written(&unwritten).unwrap();
    assert_eq!(store.unwritten_registrations(9).unwrap(), [at(2, None)]);
    store.registrations_written(&[at(2, None)]).unwrap();
    assert_eq!(store.unwritten_registrations_count().unwrap(), 0);
    // After a restart, 1 is gone, and 3 is there, of whose registration nothing is known.
    store.compare_registrations(&BTreeSet::from([supi(3)])).unwrap();
    assert_eq!(store.unwritten_registrations(9).unwrap(), [at(1, None), at(3, Some(Instant(0)))]);
    assert_eq!(
        store.not_registered([1, 3, 4].map(|n| supi(n).imsi()).to_vec()).unwrap(),
        [1, 4].map(|n| supi(n).imsi())
    );
    // The database has lost all.
    store.registrations_written(&store.unwritten_registrations(9).unwrap()).unwrap();
    store.forget_written_registrations().unwrap();
    assert_eq!(store.unwritten_registrations(9).unwrap(), [at(3, Some(Instant(0)))]);
}
