//! Subscribers of other cores, from the files that mongoexport and mongodump write. The samples are made here.

use super::common;

use std::io::BufRead;

use common::Folder;
use serde_json::{Value, json};
use whimbrel_store::{
    AuthMethod, Core, ImportCounts, ImportProblem, OnExisting, OperatorCode, Run, Store, StoreError,
    SubscriberRecord,
};

const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";

fn file(name: &str, octets: impl Into<Vec<u8>>) -> (String, Box<dyn BufRead>) {
    (name.to_owned(), Box::new(std::io::Cursor::new(octets.into())))
}

fn import(
    store: &mut Store,
    core: Core,
    files: Vec<(String, Box<dyn BufRead>)>,
    run: Run,
) -> Result<ImportCounts, StoreError> {
    store.import_database(core, files, OnExisting::Refuse, run, &mut |_| {})
}

fn bad(core: Core, files: Vec<(String, Box<dyn BufRead>)>) -> Vec<String> {
    let folder = Folder::new();
    let mut store = folder.store();
    let Err(StoreError::Import(lines)) = import(&mut store, core, files, Run::Keep) else {
        panic!("it was imported")
    };
    assert_eq!(store.count().unwrap(), 0, "nothing is half imported");
    lines.iter().map(ToString::to_string).collect()
}

fn get(store: &mut Store, imsi: &str) -> SubscriberRecord {
    SubscriberRecord::clone(&store.get(imsi.parse().unwrap()).unwrap().unwrap())
}

fn open5gs(imsi: &str) -> Value {
    json!({
        "_id": { "$oid": "64f0" }, "imsi": imsi, "msisdn": [], "schema_version": 1, "subscriber_status": 0,
        "security": { "k": K, "amf": "8000", "op": null, "opc": K, "sqn": { "$numberLong": "64" } },
        "ambr": { "downlink": { "value": 2, "unit": 3 }, "uplink": { "value": 1, "unit": 3 } },
        "slice": [{ "sst": 1, "default_indicator": true, "session": [
            { "name": "internet", "type": 3, "qos": { "index": 9, "arp": { "priority_level": 8 } }, "pcc_rule": [] },
        ]}],
    })
}

/// The same document as BSON.
fn bson(value: &Value) -> Vec<u8> {
    fn element(name: &str, value: &Value, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let kind = match value {
            Value::String(text) => {
                body.extend((text.len() as u32 + 1).to_le_bytes());
                body.extend(text.as_bytes());
                body.push(0);
                0x02
            }
            Value::Object(_) => {
                body = bson(value);
                0x03
            }
            Value::Array(items) => {
                let map = items.iter().enumerate().map(|(i, item)| (i.to_string(), item.clone()));
                body = bson(&Value::Object(map.collect()));
                0x04
            }
            Value::Bool(set) => {
                body.push(u8::from(*set));
                0x08
            }
            Value::Null => 0x0a,
            Value::Number(n) => {
                body.extend(n.as_i64().unwrap().to_le_bytes());
                0x12
            }
        };
        out.push(kind);
        out.extend(name.as_bytes());
        out.push(0);
        out.extend(body);
    }
    let mut elements = Vec::new();
    value.as_object().unwrap().iter().for_each(|(name, value)| element(name, value, &mut elements));
    let mut out = (elements.len() as u32 + 5).to_le_bytes().to_vec();
    out.extend(elements);
    out.push(0);
    out
}

#[test]
fn open5gs_is_imported_from_lines_from_an_array_and_from_bson() {
    let [one, two] = ["999700000000001", "999700000000002"].map(open5gs);
    let pretty = |v: &Value| serde_json::to_string_pretty(v).unwrap();
    for octets in [
        format!("{one}\n{two}\n").into_bytes(),
        format!("{}\n{}\n", pretty(&one), pretty(&two)).into_bytes(),
        format!("\u{feff}[{one},\n{two}]\n").into_bytes(),
        pretty(&json!([one, two])).into_bytes(),
        [bson(&one), bson(&two)].concat(),
    ] {
        let folder = Folder::new();
        let mut store = folder.store();
        let done = import(&mut store, Core::Open5gs, vec![file("subscribers", octets)], Run::Keep).unwrap();
        assert_eq!((done.added, done.ignored_columns), (2, vec![]));
        let record = get(&mut store, "999700000000002");
        assert_eq!(record.subscription.ue_ambr.downlink.bps(), 2_000_000_000);
        assert_eq!(record.subscription.slices[0].dnns[0].dnn.as_str(), "internet");
    }
}

#[test]
fn fields_of_open5gs_that_are_not_imported_are_named() {
    let mut document = open5gs("999700000000001");
    document["imeisv"] = json!(["3534900698733190"]);
    document["slice"][0]["session"][0]["pcc_rule"] = json!([{ "flow": [] , "qos": { "index": 1 } }]);
    document["slice"][0]["session"][0]["ue"] = json!({ "ipv4": "10.45.0.9", "ipv6": "2001:db8::9" });
    let folder = Folder::new();
    let mut store = folder.store();
    let files = vec![file("s.json", document.to_string())];
    let done = import(&mut store, Core::Open5gs, files, Run::Keep).unwrap();
    assert_eq!(done.ignored_columns, ["imeisv", "session.pcc_rule", "session.ue.ipv6"]);
}

#[test]
fn each_bad_document_of_open5gs_is_reported_by_its_line_and_nothing_is_imported() {
    let good = open5gs("999700000000001");
    let mut key = open5gs("999700000000002");
    key["security"]["k"] = json!("12");
    let mut dnn = open5gs("999700000000003");
    dnn["slice"][0]["session"][0]["name"] = json!("in ternet");
    let lines = format!(
        "{good}\n{key}\n{{\"imsi\": 7}}\n{{\"imsi\": \"99970\"]\n{dnn}\n{}\n{{\"imsi\": \"cut",
        open5gs("999700000000001")
    );
    let found = bad(Core::Open5gs, vec![file("subscribers.json", lines)]);
    let expected = [
        "line 2: 999700000000002: k must be 32",
        "line 3: this is no document of Open5GS",
        "line 4: ",
        "line 5: 999700000000003: ",
        "line 6: imsi-999700000000001 is on line 1 already",
        "line 7: the document ends early",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(&format!("subscribers.json, {expected}")), "{found}: {expected}");
    }
    // No key stands in a message.
    assert!(!found.iter().any(|line| line.contains(K)), "{found:?}");
    let array = format!("[{good},\n {key}\n x]");
    let found = bad(Core::Open5gs, vec![file("a", array)]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("a, line 2: 999700000000002") && found[1].contains("comma"), "{found:?}");
    let cut = bson(&good);
    let found = bad(Core::Open5gs, vec![file("s.bson", &cut[..cut.len() - 4])]);
    assert!(found[0].contains("cut short"), "{found:?}");
}

/// The collections of free5GC for one subscriber: keys, access, sessions.
fn free5gc(imsi: &str) -> [Value; 3] {
    let ue_id = format!("imsi-{imsi}");
    let keys = json!({
        "ueId": ue_id, "authenticationMethod": "5G_AKA", "authenticationManagementField": "8000", "sequenceNumber": "000000000400",
        "permanentKey": { "permanentKeyValue": K, "encryptionKey": 0, "encryptionAlgorithm": 0 },
        "milenage": { "op": { "opValue": "", "encryptionKey": 0 } }, "opc": { "opcValue": K, "encryptionKey": 0 },
    });
    let access = json!({
        "ueId": ue_id, "servingPlmnId": "99970", "gpsis": [format!("msisdn-49170{}", &imsi[10..])],
        "nssai": { "defaultSingleNssais": [{ "sst": 1, "sd": "010203" }], "singleNssais": [{ "sst": 2, "sd": "0000ab" }] },
        "subscribedUeAmbr": { "uplink": "1 Gbps", "downlink": "2 Gbps" },
    });
    let sessions = json!({
        "ueId": ue_id, "servingPlmnId": "99970", "singleNssai": { "sst": 1, "sd": "010203" },
        "dnnConfigurations": { "internet": {
            "pduSessionTypes": { "defaultSessionType": "IPV4", "allowedSessionTypes": ["IPV4"] },
            "sscModes": { "defaultSscMode": "SSC_MODE_1", "allowedSscModes": ["SSC_MODE_2"] },
            "5gQosProfile": { "5qi": 8, "arp": { "priorityLevel": 5, "preemptCap": "MAY_PREEMPT", "preemptVuln": "NOT_PREEMPTABLE" } },
            "sessionAmbr": { "uplink": "200 Mbps", "downlink": "100 Mbps" },
            "staticIpAddress": [{ "ipv4Addr": "10.60.0.7" }],
        }},
    });
    [keys, access, sessions]
}

fn lines(documents: &[&Value]) -> String {
    documents.iter().map(|d| format!("{d}\n")).collect()
}

#[test]
fn the_collections_of_free5gc_are_joined_by_subscriber() {
    let [a, b] = ["999700000000001", "999700000000002"].map(free5gc);
    // A newer free5GC has other names for the keys.
    let mut keys = b[0].clone();
    for old in ["permanentKey", "milenage", "opc"] {
        keys.as_object_mut().unwrap().remove(old);
    }
    keys["encPermanentKey"] = json!(K);
    keys["encOpcKey"] = json!(K);
    keys["sequenceNumber"] = json!({ "sqnScheme": "NON_TIME_BASED", "sqn": "000000000400" });
    keys["authenticationMethod"] = json!("EAP_AKA_PRIME");
    let policy = json!({ "ueId": "imsi-999700000000001", "subscCats": ["free5gc"] });
    let files = vec![
        file("amData.json", lines(&[&a[1], &b[1]])),
        file("smData.json", serde_json::to_string_pretty(&json!([a[2], b[2]])).unwrap()),
        file("authenticationSubscription.bson", [bson(&a[0]), bson(&keys)].concat()),
        file("policy.json", lines(&[&policy])),
    ];
    let folder = Folder::new();
    let mut store = folder.store();
    let done = import(&mut store, Core::Free5gc, files, Run::Keep).unwrap();
    assert_eq!((done.added, done.ignored_columns), (2, vec!["policyData.ues.amData".to_owned()]));
    let one = get(&mut store, "999700000000001");
    assert!(matches!(one.operator_code, OperatorCode::Opc(_)));
    assert_eq!(one.msisdn.as_ref().map(|m| m.digits()), Some("4917000001"));
    let subscription = &one.subscription;
    assert_eq!(subscription.ue_ambr.downlink.bps(), 2_000_000_000);
    let slices: Vec<_> = subscription.slices.iter().map(|s| (s.s_nssai.to_string(), s.default)).collect();
    assert_eq!(slices, [("1-010203".to_owned(), true), ("2-0000ab".to_owned(), false)]);
    let dnn = &subscription.slices[0].dnns[0];
    assert_eq!((dnn.five_qi.0, dnn.arp.may_preempt, dnn.allowed_session_types.len()), (8, true, 1));
    assert_eq!(dnn.ipv4, Some("10.60.0.7".parse().unwrap()));
    assert_eq!(dnn.session_ambr.uplink.bps(), 200_000_000);
    let two = get(&mut store, "999700000000002");
    assert_eq!((two.auth, &two.k, &two.operator_code), (AuthMethod::EapAkaPrime, &one.k, &one.operator_code));
    // SQN 1024 is SEQ 32 in both forms.
    assert!(two.sqn_offset.value().abs_diff(one.sqn_offset.value()) <= 1);
}

#[test]
fn a_subscriber_of_free5gc_without_keys_or_twice_is_reported() {
    let [a, b] = ["999700000000001", "999700000000002"].map(free5gc);
    let mut nameless = b[2].clone();
    nameless.as_object_mut().unwrap().remove("ueId");
    let files = vec![
        file("auth.json", lines(&[&a[0], &a[0]])),
        file("am.json", lines(&[&a[1], &b[1]])),
        file("sm.json", lines(&[&nameless])),
    ];
    let found = bad(Core::Free5gc, files);
    let expected = [
        "auth.json, line 2: imsi-999700000000001: its keys are in two documents",
        "sm.json, line 1: the document names no subscriber",
        "am.json, line 2: imsi-999700000000002: it has no keys in these files",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn a_rehearsal_says_what_an_import_would_do_and_changes_nothing() {
    let folder = Folder::new();
    let mut store = folder.store();
    let files = |imsis: [&str; 2]| vec![file("s", lines(&imsis.map(open5gs).each_ref()))];
    let both = ["999700000000001", "999700000000002"];
    let done = import(&mut store, Core::Open5gs, files(both), Run::Rehearse).unwrap();
    assert_eq!((done.added, store.count().unwrap()), (2, 0));
    import(&mut store, Core::Open5gs, files(both), Run::Keep).unwrap();
    let Err(StoreError::Import(lines)) =
        import(&mut store, Core::Open5gs, files(["999700000000002", "999700000000003"]), Run::Rehearse)
    else {
        panic!("one exists")
    };
    assert_eq!(lines[0].problem, ImportProblem::Exists("999700000000002".parse().unwrap()));
    assert_eq!(store.count().unwrap(), 2);
}
