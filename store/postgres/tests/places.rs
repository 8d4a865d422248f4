//! Which home is which AMF, and the slots of their SQNs (TS 33.102 Annex C).

use super::common::{Home, Server, is_installed, new_database, record};
use std::collections::BTreeMap;

use whimbrel_ids::SNssai;
use whimbrel_postgres::{EnteredHome, HomePlace, PostgresDatabase, SliceUse};
use whimbrel_security::SqnSlot;
use whimbrel_store::{DatabaseFailure, Store, StoreError};

/// The AMF with this pointer.
fn place(pointer: u8) -> HomePlace {
    let amf = format!("99970-0200{:02x}", 0x40 + pointer);
    HomePlace { amf, cta: 0, name: format!("amf {pointer} at host"), sqn_slot: None }
}

/// A home with its connection.
struct Entering {
    file: Store,
    database: PostgresDatabase,
    _home: Home,
}

impl Entering {
    fn new(server: &Server, name: &str) -> Self {
        let home = Home::new(server.settings(name));
        Self { file: home.store(), database: server.database(name), _home: home }
    }

    fn enters(&mut self, place: &HomePlace) -> Result<EnteredHome, StoreError> {
        self.database.enter(&mut self.file, place)
    }

    fn slot(&mut self, place: &HomePlace) -> u8 {
        self.enters(place).unwrap().sqn_slot.unwrap().number()
    }
}

#[test]
fn of_two_files_with_one_amf_identifier_the_second_changes_nothing() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let (mut one, mut other) = (Entering::new(server, &name), Entering::new(server, &name));
    one.enters(&place(1)).unwrap();
    let refused = other.enters(&place(1)).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Database(DatabaseFailure::AmfTaken { by, .. }) if by == "amf 1 at host")
    );
    assert!(refused.to_string().contains("give one of them another amf.pointer"), "{refused}");
    let refused = other.file.add(&record(1)).unwrap_err();
    assert!(matches!(refused, StoreError::Database(DatabaseFailure::AmfTaken { .. })), "{refused}");
    one.enters(&place(1)).unwrap();
    one.file.add(&record(1)).unwrap();
    other.file.catch_up().unwrap();
    assert_eq!(other.file.count().unwrap(), 1, "its replica is up to date");
    // The CTAs of a pair have a file each.
    other.enters(&HomePlace { cta: 2, ..place(1) }).unwrap();
    other.file.add(&record(2)).unwrap();
    // The first one is gone for half a minute.
    for seen in ["clock_timestamp() - interval '31 s'", "'infinity'", "'-infinity'", "'2999-01-01'"] {
        server.sql(&name, &format!("UPDATE whimbrel.home SET seen = {seen}"));
        let mut third = Entering::new(server, &name);
        third.enters(&place(1)).unwrap();
        assert_eq!(third.database.homes(&third.file).unwrap().len(), 2);
    }
}

#[test] // TS 33.102 Annex C.1.1.1
fn each_amf_leases_a_slot_and_keeps_it_until_it_is_removed() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let mut homes: Vec<Entering> = (0..3).map(|_| Entering::new(server, &name)).collect();
    for (n, home) in (0u8..).zip(&mut homes) {
        assert_eq!(home.slot(&place(n)), n);
        assert_eq!(home.file.home().unwrap().sqn_slot, Some(n), "it holds while PostgreSQL is away");
    }
    let mut pair = Entering::new(server, &name);
    assert_eq!(pair.slot(&HomePlace { cta: 2, ..place(1) }), 1, "both CTAs of an AMF have one");
    // A database that has lost the leases: each home has its own again.
    server.sql(&name, "DELETE FROM whimbrel.sqn_slot; DELETE FROM whimbrel.home");
    for (n, home) in (0u8..3).zip(&mut homes).rev() {
        let entered = home.enters(&place(n)).unwrap();
        assert_eq!((entered.sqn_slot, entered.is_lost), (SqnSlot::new(n), true));
        assert!(!home.enters(&place(n)).unwrap().is_lost);
    }
    // One that has lost only its latest commits.
    server.sql(&name, "UPDATE whimbrel.home SET writes = 1");
    assert!(homes[0].enters(&place(0)).unwrap().is_lost);
    server.sql(&name, "UPDATE whimbrel.home SET writes = 9223372036854775807");
    assert!(!homes[0].enters(&place(0)).unwrap().is_lost);

    // A configured slot is in force, and a leased one makes room for it.
    let configured = HomePlace { sqn_slot: SqnSlot::new(2), ..place(0) };
    assert_eq!(homes[0].enters(&configured).unwrap().shared_with.as_deref(), Some("99970-020042"));
    assert_eq!(homes[2].slot(&place(2)), 0);
    assert_eq!(homes[0].enters(&configured).unwrap().shared_with, None);
    let too = HomePlace { sqn_slot: SqnSlot::new(2), ..place(1) };
    assert_eq!(homes[1].enters(&too).unwrap().shared_with.as_deref(), Some("99970-020040"));
    assert_eq!(homes[1].slot(&place(1)), 1);

    // A home that runs is not removed, and the slot of one that is gone is free.
    let Entering { file, database, .. } = &mut homes[0];
    let removed = database.remove_home(file, &place(1).amf).unwrap_err();
    assert!(removed.to_string().contains("the home amf 1 at host runs"), "{removed}");
    server.sql(&name, "UPDATE whimbrel.home SET seen = '-infinity'");
    database.remove_home(file, &place(1).amf).unwrap();
    assert!(database.remove_home(file, &place(1).amf).unwrap_err().to_string().contains("store homes"));
    assert_eq!(Entering::new(server, &name).slot(&place(9)), 1);
}

#[test]
fn more_than_32_homes_share_slots() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let mut home = Entering::new(server, &name);
    home.enters(&place(0)).unwrap();
    let slots = "INSERT INTO whimbrel.sqn_slot SELECT '99970-0300' || lpad(to_hex(n), 2, '0'), n, false FROM generate_series(1, 31) n";
    server.sql(&name, slots);
    let mut late = Entering::new(server, &name);
    let entered = late.enters(&place(33)).unwrap();
    assert_eq!(
        entered.shared_with.as_deref(),
        Some("99970-020040"),
        "the slots have one home each: the first is shared"
    );
    assert_eq!(late.enters(&place(33)).unwrap(), entered, "it stays");
    assert_eq!(home.enters(&place(0)).unwrap().shared_with.as_deref(), Some("99970-020061"));
}

/// The shares of two homes, as their control threads have them in force, and the UEs there.
struct Shares {
    homes: [Entering; 2],
    in_force: [u32; 2],
    used: [u32; 2],
    most: u32,
}

impl Shares {
    /// A look of a home's thread: the share that it leases is in force afterwards, and the one that it gives back is so at its next look.
    fn look(&mut self, n: usize) {
        let of = SliceUse { most: self.most, used: self.used[n], share: self.in_force[n] };
        let Entering { file, database, .. } = &mut self.homes[n];
        let amf = place(n as u8).amf;
        let (granted, target) = database.lease_slice_share(file, &amf, SNssai::sst(1), of).unwrap();
        assert!(granted >= self.in_force[n] && target >= self.used[n]);
        self.in_force[n] = granted.min(target.max(self.used[n]));
    }

    fn admits(&mut self, n: usize) -> bool {
        let has_room = self.used[n] < self.in_force[n];
        self.used[n] += u32::from(has_room);
        assert!(self.used.iter().sum::<u32>() <= self.most);
        has_room
    }
}

#[test] // TS 23.501 §5.15.11.1
fn homes_together_never_admit_more_than_the_limit_and_what_one_does_not_need_the_other_gets() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let mut homes = [0, 1].map(|_| Entering::new(server, &name));
    for (n, home) in (0u8..).zip(&mut homes) {
        home.enters(&place(n)).unwrap();
    }
    for most in [3, 1, 100] {
        let used = [0, 0];
        let mut shares = Shares { homes, in_force: [0, 0], used, most };
        (0..4).for_each(|n| shares.look(n % 2));
        let mut admitted = 0;
        for _ in 0..most + 2 {
            admitted += u32::from(shares.admits(0));
            // In any order, and each home some looks behind.
            [1, 1, 0, 1, 0, 0, 1].into_iter().for_each(|n| shares.look(n));
        }
        assert_eq!((admitted, shares.in_force), (most, [most, 0]), "all that the other does not use");
        assert!(!shares.admits(1));
        // UEs leave, and come to the other home.
        shares.used = [0, 0];
        (0..6).for_each(|n| shares.look(n % 2));
        assert_eq!(shares.in_force.iter().sum::<u32>(), most);
        if most > 1 {
            assert!(shares.admits(1));
        }
        shares.used = [0, 0];
        homes = shares.homes;
        server.sql(&name, "DELETE FROM whimbrel.slice_share");
    }
    // A database that has lost the leases: a home that looks first gets nothing that another one has.
    let mut shares = Shares { homes, in_force: [60, 40], used: [55, 35], most: 100 };
    server.sql(&name, "UPDATE whimbrel.epoch SET epoch = 'of the server before'");
    for n in [0, 1, 0, 1] {
        shares.look(n);
        assert_eq!(shares.in_force, [60, 40], "the server has just started");
    }
    server.sql(&name, "UPDATE whimbrel.epoch SET since = clock_timestamp() - interval '11 s'");
    for n in [0, 0, 1, 0, 1] {
        shares.look(n);
        assert!(shares.in_force.iter().sum::<u32>() <= 100, "{:?}", shares.in_force);
    }
    let Shares { homes: [mut one, _], .. } = shares;
    let amf = place(0).amf;
    assert_eq!(one.database.slice_shares(&one.file, &amf).unwrap().len(), 1);
    one.database.keep_slice_shares(&one.file, &amf, &[]).unwrap();
    assert_eq!(one.database.slice_shares(&one.file, &amf).unwrap(), BTreeMap::new());
    // The home that does not run any more keeps its share, until it is removed.
    server.sql(&name, "UPDATE whimbrel.home SET seen = '-infinity' WHERE amf = '99970-020041'");
    let of = SliceUse { most: 100, used: 0, share: 0 };
    let (granted, _) = one.database.lease_slice_share(&one.file, &amf, SNssai::sst(1), of).unwrap();
    assert!((1..=65).contains(&granted), "{granted}");
}

#[test]
fn a_database_of_layout_1_gets_what_homes_lease_and_keeps_its_subscribers() {
    if !is_installed() {
        return;
    }
    let (server, name) = new_database();
    let home = Home::new(server.settings(&name));
    home.store().add(&record(1)).unwrap();
    let former = "DROP TABLE whimbrel.home, whimbrel.sqn_slot, whimbrel.epoch, whimbrel.slice_share, whimbrel.registration, whimbrel.deregistration, whimbrel.document, whimbrel.audit, whimbrel.usage CASCADE; \
                  DO $$ DECLARE f text; BEGIN FOR f IN SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
                  WHERE n.nspname = 'whimbrel' AND p.proname NOT IN ('log_change', 'refuse_change') LOOP EXECUTE 'DROP FUNCTION ' || f || ' CASCADE'; END LOOP; END $$; \
                  UPDATE whimbrel.state SET layout = 1";
    server.sql(&name, former);
    let mut entering = Entering::new(server, &name);
    assert_eq!(entering.slot(&place(5)), 0);
    entering.file.catch_up().unwrap();
    assert_eq!(entering.file.count().unwrap(), 1);
    assert_eq!(server.sql(&name, "SELECT layout FROM whimbrel.state"), "3");
}
