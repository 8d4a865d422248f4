//! Sessions from their beginning to their record.

use std::time::Duration;

use whimbrel_charging::{
    AccountKind, AccountStatus, ChargingDataRequest, ChargingFunction, ChargingOperation, ChargingPolicy,
    ChargingRefusal, ClosingCause, CreditRefusal, Denial, EXPIRED_AT_ONCE_MAX, GrantedUnit,
    MultipleUnitUsage, NotificationType, OCTETS_MAX, SessionReference, UnitResult, UsedUnitContainer,
};

use super::{
    VALIDITY_S, asking, at, create, handle, key, open, policy, release, result, supi, update, used,
    with_credit,
};

/// Balance, reservation, usage, overdraft.
fn octets(chf: &ChargingFunction) -> (u64, u64, u64, u64) {
    let account = chf.account(supi(1)).unwrap().unwrap();
    (account.balance_octets, account.reserved_octets, account.used_octets, account.overdraft_octets)
}

fn granted(octets: u64, threshold: Option<u64>, is_last: bool) -> UnitResult {
    let validity_s = VALIDITY_S;
    UnitResult::Granted(GrantedUnit { octets, threshold_octets: threshold, validity_s, is_last })
}

#[test] // TS 32.290 §5.3.2.2 to §5.3.2.4
fn a_session_reserves_settles_and_gives_the_rest_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 2_500);
    let answer = handle(&mut chf, 0, &create(supi(1), 7, "a"));
    assert_eq!(result(answer), granted(1_000, Some(200), false));
    assert_eq!(octets(&chf), (1_500, 1_000, 0, 0));
    let answer = handle(&mut chf, 1, &update("a", 1, used(1, 100, 700)));
    assert_eq!(result(answer), granted(1_000, Some(200), false));
    assert_eq!(octets(&chf), (700, 1_000, 800, 0));
    let answer = handle(&mut chf, 2, &update("a", 2, used(2, 0, 1_000)));
    assert_eq!(result(answer), granted(700, None, true), "the last quota");
    assert_eq!(octets(&chf), (0, 700, 1_800, 0));
    let answer = handle(&mut chf, 3, &release("a", 3, used(3, 0, 300)));
    assert_eq!(answer.unwrap().units, []);
    assert_eq!(octets(&chf), (400, 0, 2_100, 0));
    let records = chf.records(None, 0, 10).unwrap();
    let [record] = &records[..] else { panic!("{records:?}") };
    let total = record.total();
    assert_eq!((total.uplink_octets, total.downlink_octets, total.time_s), (100, 2_000, 30));
    assert_eq!((record.start, record.end, record.cause), (at(0), at(3), ClosingCause::Released));
    assert_eq!((record.dnn.as_deref(), record.s_nssai.as_deref()), (Some("internet"), Some("1")));
}

#[test]
fn a_request_that_comes_again_gets_the_same_answer_and_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 5_000);
    let first = handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    // The caller has made another identity for it.
    assert_eq!(handle(&mut chf, 1, &create(supi(1), 7, "b")).unwrap(), first);
    for request in [update("a", 1, used(1, 0, 400)), release("a", 2, used(2, 0, 50))] {
        let first = handle(&mut chf, 2, &request).unwrap();
        let before = octets(&chf);
        drop(chf);
        chf = open(folder.path());
        assert_eq!(handle(&mut chf, 9, &request).unwrap(), first);
        assert_eq!(octets(&chf), before);
    }
    assert_eq!(octets(&chf), (4_550, 0, 450, 0));
    assert_eq!(chf.records(None, 0, 10).unwrap().len(), 1);
}

#[test] // TS 32.291 §6.1.6.2.1.8: after a takeover of its consumer a container comes with a request of another number
fn a_container_that_comes_again_in_another_request_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 5_000);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    handle(&mut chf, 1, &update("a", 1, used(1, 0, 400))).unwrap();
    handle(&mut chf, 2, &update("a", 2, used(1, 0, 400))).unwrap();
    assert_eq!(octets(&chf).2, 400);
}

#[test] // A consumer that numbers nothing: free5GC's SMF
fn requests_and_containers_without_numbers_are_distinguished_by_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 5_000);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    let report = |time| UsedUnitContainer { at: Some(at(time)), ..used(0, 0, 100) };
    for time in [1, 1, 2, 2, 3] {
        handle(&mut chf, time, &update("a", 0, report(time))).unwrap();
    }
    assert_eq!(octets(&chf).2, 300);
}

#[test]
fn a_wrong_request_is_refused_with_its_reason_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 5_000);
    let unknown = handle(&mut chf, 0, &create(supi(2), 7, "x"));
    assert_eq!(unknown, Err(ChargingRefusal::UserUnknown));
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    handle(&mut chf, 1, &update("a", 5, used(1, 0, 10))).unwrap();
    let before = octets(&chf);
    let big = |octets| update("a", 6, UsedUnitContainer { total: octets, ..used(2, 0, 0) });
    let many = |groups: u32, containers: usize| ChargingDataRequest {
        usage: (0..groups)
            .map(|rating_group| MultipleUnitUsage {
                rating_group,
                used: vec![used(0, 1, 1); containers],
                ..MultipleUnitUsage::default()
            })
            .collect(),
        ..update("a", 6, used(0, 0, 0))
    };
    let others = ChargingDataRequest {
        operation: ChargingOperation::Update(SessionReference::Resource("a".into(), Some(supi(2)))),
        ..update("a", 6, used(2, 0, 1))
    };
    for (request, refusal) in [
        (update("a", 4, used(2, 0, 10)), ChargingRefusal::SequenceWentBack { last: 5 }),
        (update("b", 6, used(2, 0, 10)), ChargingRefusal::NoSuchResource),
        (others, ChargingRefusal::NoSuchResource),
        (big(1 << 63), ChargingRefusal::VolumeOutOfRange),
        (big(u64::MAX), ChargingRefusal::VolumeOutOfRange),
        (update("a", 6, used(2, u64::MAX, u64::MAX)), ChargingRefusal::VolumeOutOfRange),
        (big(OCTETS_MAX + 1), ChargingRefusal::VolumeOutOfRange),
        (many(1, 257), ChargingRefusal::TooManyContainers),
        (many(257, 0), ChargingRefusal::TooManyRatingGroups),
    ] {
        assert_eq!(handle(&mut chf, 2, &request), Err(refusal), "{request:?}");
        assert_eq!(octets(&chf), before);
    }
    handle(&mut chf, 3, &big(OCTETS_MAX)).unwrap();
    assert_eq!(octets(&chf).3, OCTETS_MAX + 10 - 5_000);
}

#[test]
fn a_refusal_undoes_its_own_request_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 5_000);
    let requests = [
        create(supi(1), 7, "a"),
        create(supi(2), 8, "b"),
        update("a", 1, used(1, 0, 100)),
        update("a", 0, used(2, 0, 100)),
    ];
    let answers = chf.handle(at(0), &requests).unwrap();
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, false]);
    assert_eq!(octets(&chf), (3_900, 1_000, 100, 0));
    assert_eq!(chf.verify().unwrap(), Ok(()));
    // The former session of these identifiers would have been closed.
    chf.put_account(supi(1), AccountKind::Prepaid, AccountStatus::Barred).unwrap();
    assert_eq!(handle(&mut chf, 1, &create(supi(1), 7, "c")), Err(ChargingRefusal::EndUserRequestDenied));
    assert_eq!(chf.totals().unwrap(), (1, 1));
}

#[test]
fn without_credit_no_session_begins_and_an_open_one_gets_no_quota() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 500);
    assert_eq!(result(handle(&mut chf, 0, &create(supi(1), 7, "a"))), granted(500, None, true));
    assert_eq!(handle(&mut chf, 0, &create(supi(1), 8, "b")), Err(ChargingRefusal::QuotaLimitReached));
    let answer = handle(&mut chf, 1, &update("a", 1, used(1, 0, 650)));
    assert_eq!(result(answer), UnitResult::Denied(Denial::QuotaLimitReached));
    assert_eq!(octets(&chf), (0, 0, 650, 150), "usage beyond the credit is not lost");
    handle(&mut chf, 2, &release("a", 2, used(2, 0, 0))).unwrap();
    assert_eq!(chf.totals().unwrap(), (0, 1));
    // The next credit pays the overdraft first.
    chf.credit(at(3), supi(1), 1_150, None).unwrap().unwrap();
    assert_eq!(octets(&chf), (1_000, 0, 650, 0));
}

#[test]
fn a_quota_is_not_the_last_one_while_another_session_may_give_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 1_500);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    assert_eq!(result(handle(&mut chf, 0, &create(supi(1), 8, "b"))), granted(500, Some(100), false));
    handle(&mut chf, 1, &release("a", 1, used(1, 0, 0))).unwrap();
    assert_eq!(
        result(handle(&mut chf, 2, &update("b", 1, used(1, 0, 400)))),
        granted(1_000, Some(200), false)
    );
}

#[test]
fn usage_that_is_reported_without_a_request_leaves_the_rest_of_the_quota() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 1_500);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    for (sequence, requested) in [(1, None), (2, Some(Some(0)))] {
        let usage = vec![asking(requested, Some(used(sequence, 0, 300)))];
        let request = ChargingDataRequest { usage, ..update("a", sequence, used(0, 0, 0)) };
        assert_eq!(handle(&mut chf, 1, &request).unwrap().units, []);
    }
    assert_eq!(octets(&chf), (500, 400, 600, 0));
}

#[test]
fn a_postpaid_subscriber_has_no_limit_and_its_usage_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = open(folder.path());
    chf.put_account(supi(1), AccountKind::Postpaid, AccountStatus::Active).unwrap();
    assert_eq!(result(handle(&mut chf, 0, &create(supi(1), 7, "a"))), UnitResult::NotApplicable);
    handle(&mut chf, 1, &update("a", 1, used(1, 5, 1 << 40))).unwrap();
    handle(&mut chf, 2, &release("a", 2, used(2, 0, 0))).unwrap();
    assert_eq!(chf.account(supi(1)).unwrap().unwrap().postpaid_octets, 5 + (1 << 40));
    assert_eq!(chf.records(Some(supi(1)), 0, 10).unwrap()[0].total().downlink_octets, 1 << 40);
}

#[test]
fn an_account_that_becomes_postpaid_gets_its_reservations_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 1_500);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    chf.put_account(supi(1), AccountKind::Postpaid, AccountStatus::Active).unwrap();
    assert_eq!(result(handle(&mut chf, 1, &update("a", 1, used(1, 0, 300)))), UnitResult::NotApplicable);
    assert_eq!(octets(&chf), (1_500, 0, 0, 0));
    chf.put_account(supi(1), AccountKind::Prepaid, AccountStatus::Active).unwrap();
    assert_eq!(
        result(handle(&mut chf, 2, &update("a", 2, used(2, 0, 300)))),
        granted(1_000, Some(200), false)
    );
    assert_eq!(octets(&chf), (200, 1_000, 300, 0));
}

#[test]
fn a_subscriber_without_an_account_gets_that_of_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let policy =
        ChargingPolicy { default_account: Some((AccountKind::Prepaid, 700)), accounts_max: 1, ..policy() };
    let mut chf = ChargingFunction::open(&folder.path().join("charging.db"), policy).unwrap();
    assert_eq!(result(handle(&mut chf, 0, &create(supi(1), 7, "a"))), granted(700, None, true));
    assert_eq!(handle(&mut chf, 0, &create(supi(2), 8, "b")), Err(ChargingRefusal::TooManyAccounts));
    assert_eq!(chf.totals().unwrap(), (1, 1));
}

#[test]
fn sessions_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let policy = ChargingPolicy { sessions_max: 2, ..policy() };
    let mut chf = ChargingFunction::open(&folder.path().join("charging.db"), policy).unwrap();
    chf.put_account(supi(1), AccountKind::Postpaid, AccountStatus::Active).unwrap();
    handle(&mut chf, 0, &create(supi(1), 1, "a")).unwrap();
    handle(&mut chf, 0, &create(supi(1), 2, "b")).unwrap();
    assert_eq!(handle(&mut chf, 0, &create(supi(1), 3, "c")), Err(ChargingRefusal::TooManySessions));
    handle(&mut chf, 1, &release("a", 1, used(1, 0, 0))).unwrap();
    handle(&mut chf, 2, &create(supi(1), 3, "c")).unwrap();
}

#[test]
fn a_session_without_a_report_for_two_validity_times_is_closed_and_its_late_usage_is_charged() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 1_500);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    let two = u64::from(2 * VALIDITY_S);
    assert_eq!(chf.expire(at(two - 1)).unwrap(), 0);
    handle(&mut chf, two - 1, &update("a", 1, used(1, 0, 100))).unwrap();
    assert_eq!(chf.expire(at(two)).unwrap(), 0, "a report puts the end off");
    assert_eq!(chf.expire(at(2 * two - 1)).unwrap(), 1);
    assert_eq!(octets(&chf), (1_400, 0, 100, 0));
    let record = &chf.records(None, 0, 10).unwrap()[0];
    assert_eq!((record.number, record.cause), (1, ClosingCause::NoReport));
    // The SMF was away.
    let late = release("a", 2, used(2, 0, 250));
    handle(&mut chf, 3 * two, &late).unwrap();
    handle(&mut chf, 3 * two, &late).unwrap();
    assert_eq!(octets(&chf), (1_150, 0, 350, 0));
    let records = chf.records(None, 1, 10).unwrap();
    assert_eq!((records.len(), records[0].number, records[0].total().total_octets), (1, 2, 350));
    assert_eq!(chf.verify().unwrap(), Ok(()));
}

#[test] // An SMF that has lost its state may start its charging identifiers from the beginning
fn a_create_of_a_consumer_that_has_lost_its_state_begins_a_new_session() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 5_000);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    handle(&mut chf, 1, &update("a", 1, used(1, 0, 100))).unwrap();
    assert_eq!(&*handle(&mut chf, 2, &create(supi(1), 7, "b")).unwrap().resource, "b");
    assert_eq!(chf.records(None, 0, 10).unwrap()[0].cause, ClosingCause::Superseded);
    assert_eq!(octets(&chf), (3_900, 1_000, 100, 0));
    // A last report on the former session, whose identifiers are another one's now.
    handle(&mut chf, 3, &release("a", 2, used(2, 0, 11))).unwrap();
    handle(&mut chf, 3, &release("b", 1, used(1, 0, 22))).unwrap();
    assert_eq!(octets(&chf), (4_867, 0, 133, 0));
}

#[test]
fn a_release_without_a_reference_ends_the_session_of_these_identifiers() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 5_000);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    let by_key = |charging_id| ChargingDataRequest {
        operation: ChargingOperation::Release(SessionReference::Key(key(supi(1), charging_id))),
        ..release("", 1, used(1, 0, 5))
    };
    assert_eq!(handle(&mut chf, 1, &by_key(8)), Err(ChargingRefusal::NoSuchResource));
    handle(&mut chf, 1, &by_key(7)).unwrap();
    handle(&mut chf, 1, &by_key(7)).unwrap();
    assert_eq!(octets(&chf), (4_995, 0, 5, 0));
}

#[test]
fn records_are_deleted_by_their_age() {
    let folder = tempfile::tempdir().unwrap();
    let policy = ChargingPolicy { records_kept: Duration::from_secs(60), ..policy() };
    let mut chf = ChargingFunction::open(&folder.path().join("charging.db"), policy).unwrap();
    chf.put_account(supi(1), AccountKind::Postpaid, AccountStatus::Active).unwrap();
    for i in 0..3 {
        let name = format!("{i}");
        handle(&mut chf, 10 * u64::from(i), &create(supi(1), i, &name)).unwrap();
        handle(&mut chf, 10 * u64::from(i), &release(&name, 1, used(1, 0, 1))).unwrap();
    }
    chf.expire(at(75)).unwrap();
    let left: Vec<_> = chf.records(None, 0, 10).unwrap().iter().map(|record| record.number).collect();
    assert_eq!(left, [3]);
    assert_eq!(chf.account(supi(1)).unwrap().unwrap().postpaid_octets, 3, "accounts stay");
    const { assert!(EXPIRED_AT_ONCE_MAX > 3) };
}

#[test] // TS 32.290 §5.3.2.5
fn consumers_are_notified_of_credit_barring_and_removal() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 5_000);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    let orders = |chf: &ChargingFunction| -> Vec<_> {
        chf.notifications().unwrap().into_iter().map(|notification| notification.order).collect()
    };
    chf.credit(at(1), supi(1), 1, None).unwrap().unwrap();
    assert_eq!(orders(&chf), [], "a session that gets further quotas needs no order");
    handle(&mut chf, 1, &update("a", 1, used(1, 0, 5_001))).unwrap();
    chf.credit(at(2), supi(1), 1, None).unwrap().unwrap();
    chf.credit(at(2), supi(1), 1, None).unwrap().unwrap();
    assert_eq!(orders(&chf), [NotificationType::Reauthorization]);
    let sent = chf.notifications().unwrap();
    assert_eq!(sent[0].notify_uri.as_deref(), Some("http://192.0.2.7/notify"));
    chf.notified(&sent).unwrap();
    assert_eq!(orders(&chf), []);
    chf.put_account(supi(1), AccountKind::Prepaid, AccountStatus::Active).unwrap();
    assert_eq!(orders(&chf), [], "nothing has changed");
    chf.put_account(supi(1), AccountKind::Prepaid, AccountStatus::Barred).unwrap();
    assert_eq!(orders(&chf), [NotificationType::Reauthorization]);
    let answer = handle(&mut chf, 3, &update("a", 2, used(2, 0, 1)));
    assert_eq!(result(answer), UnitResult::Denied(Denial::EndUserServiceDenied));
    assert_eq!(handle(&mut chf, 3, &create(supi(1), 8, "b")), Err(ChargingRefusal::EndUserRequestDenied));
    assert!(chf.remove_account(supi(1)).unwrap());
    assert!(!chf.remove_account(supi(1)).unwrap());
    assert_eq!(orders(&chf), [NotificationType::Reauthorization, NotificationType::AbortCharging]);
    let answer = handle(&mut chf, 4, &update("a", 3, used(3, 0, 1)));
    assert_eq!(result(answer), UnitResult::Denied(Denial::UserUnknown));
    handle(&mut chf, 5, &release("a", 4, used(4, 0, 1))).unwrap();
    assert_eq!(orders(&chf), [], "a session that is closed has no consumer to notify");
    assert_eq!(chf.records(None, 0, 10).unwrap()[0].total().total_octets, 5_004);
}

#[test]
fn credit_with_a_reference_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 100);
    for _ in 0..2 {
        let account = chf.credit(at(0), supi(1), 50, Some("voucher 1")).unwrap().unwrap();
        assert_eq!(account.balance_octets, 150);
    }
    let other = chf.credit(at(0), supi(1), 51, Some("voucher 1")).unwrap();
    assert_eq!(other, Err(CreditRefusal::ReferenceUsed));
    let refused = chf.credit(at(0), supi(1), -151, Some("back")).unwrap();
    assert_eq!(refused, Err(CreditRefusal::OutOfRange { balance: 150 }));
    chf.credit(at(0), supi(1), -150, Some("back")).unwrap().unwrap();
    assert_eq!(chf.credit(at(0), supi(2), 1, None).unwrap(), Err(CreditRefusal::Unknown(supi(2))));
}

#[test]
fn pages_of_accounts_and_records_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = open(folder.path());
    for i in 1..=5 {
        chf.put_account(supi(i), AccountKind::Postpaid, AccountStatus::Active).unwrap();
        let name = i.to_string();
        handle(&mut chf, 0, &create(supi(i), 1, &name)).unwrap();
        handle(&mut chf, 0, &release(&name, 1, used(1, 0, i))).unwrap();
    }
    let page = chf.accounts(Some(supi(2)), 2).unwrap();
    assert_eq!(page.iter().map(|account| account.supi).collect::<Vec<_>>(), [supi(3), supi(4)]);
    let page = chf.records(None, 3, 9).unwrap();
    assert_eq!(page.iter().map(|record| record.supi).collect::<Vec<_>>(), [supi(4), supi(5)]);
    assert_eq!(chf.records(Some(supi(2)), 0, 9).unwrap().len(), 1);
}

#[test]
fn a_file_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("charging.db");
    std::fs::write(&path, "no database, but a text that is longer than the header of one of SQLite's files, which is one hundred octets").unwrap();
    let error = ChargingFunction::open(&path, policy()).unwrap_err().to_string();
    assert!(error.contains("does not hold accounts"), "{error}");
    let error = ChargingFunction::open(&folder.path().join("no/charging.db"), policy()).unwrap_err();
    assert!(error.to_string().contains("cannot be opened"), "{error}");
}
