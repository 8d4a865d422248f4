//! Adding, reading, editing and removing subscribers, by one process and by two.

use super::common;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use common::{Folder, record};
use whimbrel_ids::Supi;
use whimbrel_security::{K, Op, SqnOffset};
use whimbrel_store::{
    Changes, DnnConfiguration, InvalidRecord, InvalidSubscription, OperatorCode, StoreError, SubscribedSlice,
    SubscriberStatus, Subscription,
};

#[test]
fn a_subscriber_comes_back_as_it_was_added() {
    let folder = Folder::new();
    let mut r = record(1);
    r.operator_code = OperatorCode::Op(Op::new([7; 16]));
    r.msisdn = Some("+49170123456".parse().unwrap());
    r.status = SubscriberStatus::Barred;
    let mut ims = DnnConfiguration::new("ims".parse().unwrap());
    ims.ipv4 = Some("10.45.0.9".parse().unwrap());
    ims.ipv6 = Some("2001:db8:0:9::/64".parse().unwrap());
    let mut subscription = Subscription { rfsp: Some(256), ..Subscription::default() };
    subscription.slices[0].dnns.push(ims);
    let second = SubscribedSlice {
        s_nssai: "2-0000ab".parse().unwrap(),
        default: false,
        ..subscription.slices[0].clone()
    };
    subscription.slices.push(second);
    r.subscription = Arc::new(subscription);
    folder.store().add(&r).unwrap();
    let mut store = folder.store();
    assert_eq!(*store.get(r.supi).unwrap().unwrap(), r);
    assert_eq!(*store.cached(r.supi).unwrap().unwrap(), r);
    assert_eq!(store.get(record(2).supi).unwrap(), None);
    assert_eq!(store.count().unwrap(), 1);
    store.verify().unwrap();
}

#[test]
fn files_are_private_and_hold_no_key_in_clear() {
    let folder = Folder::new();
    let mut r = record(1);
    r.k = K::new(*b"key to look for!").into();
    let mut store = folder.store();
    store.add(&r).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        let octets = std::fs::read(entry.path()).unwrap();
        assert!(!octets.windows(16).any(|w| w == r.k.octets()), "{:?}", entry.path());
        seen += 1;
    }
    assert!(seen >= 3, "the file, its log and the key");
    assert!(!format!("{r:?}").contains("107, 101, 121"));
}

#[test]
fn a_taken_supi_or_msisdn_is_refused() {
    let folder = Folder::new();
    let mut store = folder.store();
    let mut r = record(1);
    r.msisdn = Some("12345".parse().unwrap());
    store.add(&r).unwrap();
    assert!(matches!(store.add(&r), Err(StoreError::Exists(s)) if s == r.supi));
    let mut other = record(2);
    other.msisdn = r.msisdn.clone();
    assert!(matches!(store.add(&other), Err(StoreError::MsisdnTaken)));
    assert_eq!(store.count().unwrap(), 1);
}

#[test]
fn an_edit_is_whole_or_nothing() {
    let folder = Folder::new();
    let mut store = folder.store();
    let supi = record(1).supi;
    assert!(matches!(store.edit(supi, |_| {}), Err(StoreError::Unknown(_))));
    store.add(&record(1)).unwrap();
    store.edit(supi, |r| r.status = SubscriberStatus::Barred).unwrap();
    let no_slice =
        |r: &mut whimbrel_store::SubscriberRecord| Arc::make_mut(&mut r.subscription).slices.clear();
    let refused = store.edit(supi, no_slice);
    let expected = InvalidRecord::Subscription(InvalidSubscription::SliceCount);
    assert!(matches!(refused, Err(StoreError::Invalid(e)) if e == expected));
    assert!(matches!(store.edit(supi, |r| r.supi = record(9).supi), Err(StoreError::SupiChanged(_))));
    let now = store.get(supi).unwrap().unwrap();
    assert_eq!((now.status, now.subscription.slices.len()), (SubscriberStatus::Barred, 1));
}

#[test]
fn a_removed_subscriber_is_gone() {
    let folder = Folder::new();
    let mut store = folder.store();
    store.add(&record(1)).unwrap();
    assert!(store.cached(record(1).supi).unwrap().is_some());
    store.remove(record(1).supi).unwrap();
    assert_eq!(store.cached(record(1).supi).unwrap(), None);
    assert!(matches!(store.remove(record(1).supi), Err(StoreError::Unknown(_))));
}

#[test]
fn pages_cover_all_subscribers_once() {
    let folder = Folder::new();
    let mut store = folder.store();
    for n in [5, 1, 4, 2, 3] {
        store.add(&record(n)).unwrap();
    }
    let (mut after, mut seen): (_, Vec<Supi>) = (None, Vec::new());
    loop {
        let page = store.list(after, 2).unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.supi);
        seen.extend(page.iter().map(|r| r.supi));
    }
    assert_eq!(seen, [1, 2, 3, 4, 5].map(|n| record(n).supi));
}

#[test]
fn equal_subscriptions_are_one_in_memory() {
    let folder = Folder::new();
    let mut store = folder.store();
    for n in 1..=2 {
        store.add(&record(n)).unwrap();
    }
    let [a, b] = [1, 2].map(|n| store.cached(record(n).supi).unwrap().unwrap());
    assert!(Arc::ptr_eq(&a.subscription, &b.subscription));
}

#[test]
fn an_sqn_offset_is_durable_and_seen_at_once() {
    let folder = Folder::new();
    let mut store = folder.store();
    let supi = record(1).supi;
    store.add(&record(1)).unwrap();
    store.cached(supi).unwrap();
    store.set_sqn_offsets(&[(supi, SqnOffset::new(77)), (record(2).supi, SqnOffset::new(1))]).unwrap();
    assert_eq!(store.cached(supi).unwrap().unwrap().sqn_offset, SqnOffset::new(77));
    assert_eq!(folder.store().get(supi).unwrap().unwrap().sqn_offset, SqnOffset::new(77));
}

#[test]
fn edits_of_another_process_are_seen_after_a_look() {
    let folder = Folder::new();
    let (mut here, mut there) = (folder.store(), folder.store());
    let supi = record(1).supi;
    there.add(&record(1)).unwrap();
    assert_eq!(here.refresh().unwrap(), Changes::Some(vec![supi]));
    assert_eq!(here.refresh().unwrap(), Changes::None);
    assert_eq!(here.cached(supi).unwrap().unwrap().status, SubscriberStatus::Enabled);
    there.edit(supi, |r| r.status = SubscriberStatus::Barred).unwrap();
    assert_eq!(here.cached(supi).unwrap().unwrap().status, SubscriberStatus::Enabled, "as of the last look");
    assert_eq!(here.refresh().unwrap(), Changes::Some(vec![supi]));
    assert_eq!(here.cached(supi).unwrap().unwrap().status, SubscriberStatus::Barred);
    there.remove(supi).unwrap();
    here.refresh().unwrap();
    assert_eq!(here.cached(supi).unwrap(), None);
}

#[test]
fn a_change_has_the_time_at_which_it_was_made() {
    let microseconds =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as u64;
    let folder = Folder::new();
    let (mut here, mut there) = (folder.store(), folder.store());
    let supi = record(1).supi;
    let before = microseconds() / 1_000 * 1_000;
    there.add(&record(1)).unwrap();
    let after = microseconds();
    std::thread::sleep(std::time::Duration::from_millis(20));
    here.refresh().unwrap();
    let at = here.changed_at(Some(supi)).unwrap();
    assert!((before..=after).contains(&at), "{before} {at} {after}");
    assert_eq!(here.changed_at(None), Some(at));
    here.refresh().unwrap();
    assert_eq!(here.changed_at(Some(supi)), None, "nothing was changed since");
    // The former record was in use until the look.
    here.cached(supi).unwrap();
    there.edit(supi, |r| r.status = SubscriberStatus::Barred).unwrap();
    here.refresh().unwrap();
    assert_eq!(here.changed_at(Some(supi)), None);
}

#[test]
fn a_file_of_a_program_without_times_of_changes_gets_them() {
    let folder = Folder::new();
    drop(folder.store());
    let former = rusqlite::Connection::open(folder.db()).unwrap();
    former.execute_batch("ALTER TABLE change DROP COLUMN at").unwrap();
    let (mut here, mut there) = (folder.store(), folder.store());
    let supi = record(1).supi;
    // That program still runs.
    former.execute("INSERT INTO change (supi) VALUES (?1)", [supi.imsi()]).unwrap();
    assert_eq!(here.refresh().unwrap(), Changes::Some(vec![supi]));
    assert_eq!(here.changed_at(Some(supi)), None);
    there.add(&record(1)).unwrap();
    here.refresh().unwrap();
    assert!(here.changed_at(Some(supi)).is_some());
}

#[test]
fn more_edits_than_the_log_holds_are_reported_as_all() {
    let folder = Folder::new();
    let (mut here, mut there) = (folder.store(), folder.store());
    let offsets: Vec<_> = (0..5_000).map(|_| (record(1).supi, SqnOffset::ZERO)).collect();
    there.set_sqn_offsets(&offsets).unwrap();
    assert_eq!(here.refresh().unwrap(), Changes::All);
    assert_eq!(here.refresh().unwrap(), Changes::None);
}

#[test]
fn two_processes_that_start_together_share_one_key() {
    let folder = Folder::new();
    let stores: Vec<_> = std::thread::scope(|s| {
        let opening: Vec<_> = (0..4).map(|_| s.spawn(|| folder.store())).collect();
        opening.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for (n, mut store) in (0u64..).zip(stores) {
        store.add(&record(n)).unwrap();
    }
    assert_eq!(folder.store().list(None, 10).unwrap().len(), 4);
}

#[test] // TS 35.231 §6.1: keys and operator codes of TUAK, by JSON, through the file
fn a_subscriber_with_tuak_and_eap() {
    use whimbrel_store::{Algorithm, AuthMethod, SubscriberRecord, WithSecrets};
    let folder = Folder::new();
    let mut store = folder.store();
    for (n, k) in ["11".repeat(16), "22".repeat(32)].iter().enumerate() {
        for code in ["top", "topc"] {
            let supi = format!("9997000000000{n}{}", code.len());
            let text = format!(
                r#"{{"supi": "{supi}", "k": "{k}", "{code}": "{}", "auth": "eap-aka-prime"}}"#,
                "33".repeat(32)
            );
            let record: SubscriberRecord = serde_json::from_str(&text).unwrap();
            assert_eq!((record.algorithm, record.auth), (Algorithm::Tuak, AuthMethod::EapAkaPrime));
            store.add(&record).unwrap();
            let back = store.get(record.supi).unwrap().unwrap();
            assert_eq!(*back, record);
            assert!(back.functions().is_some());
            let json = serde_json::to_string(&WithSecrets(&back)).unwrap();
            assert_eq!(serde_json::from_str::<SubscriberRecord>(&json).unwrap(), record);
        }
    }
    for wrong in [
        format!(r#""k": "{}", "opc": "{}""#, "11".repeat(32), "22".repeat(16)),
        format!(r#""k": "{}", "topc": "{}""#, "11".repeat(16), "22".repeat(16)),
        format!(r#""k": "{0}", "opc": "{0}", "algorithm": "tuak""#, "11".repeat(16)),
        format!(r#""k": "{0}", "opc": "{0}", "auth": "none""#, "11".repeat(16)),
    ] {
        assert!(
            serde_json::from_str::<SubscriberRecord>(&format!(r#"{{"supi": "999700000000009", {wrong}}}"#))
                .is_err()
        );
    }
}

#[test]
fn documents_are_changed_all_or_none_and_only_from_what_they_were() {
    let folder = Folder::new();
    let (mut one, mut other) = (folder.store(), folder.store());
    other.catch_up().unwrap();
    one.catch_up().unwrap();
    let seen = one.documents_version().unwrap();
    let octets = |text: &str| Some(text.as_bytes().to_vec());
    let both = || vec![("user:anna".to_owned(), octets("1")), ("token:anna".to_owned(), octets("2"))];
    one.change_documents(seen, both()).unwrap();
    let refused = other.change_documents(seen, both());
    assert!(matches!(refused, Err(StoreError::DocumentsChangedMeanwhile)), "{refused:?}");
    let (at, users) = other.documents("user").unwrap();
    assert_eq!(users.iter().map(|(n, c)| (n.as_str(), &c[..])).collect::<Vec<_>>(), [("anna", &b"1"[..])]);
    other.change_documents(at, vec![("user:anna".into(), None), ("user:olaf".into(), octets("3"))]).unwrap();
    let (_, users) = one.documents("user").unwrap();
    assert_eq!(users.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["olaf"]);
    assert_eq!(one.documents("token").unwrap().1.len(), 1);
}
