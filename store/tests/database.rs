//! Subscribers of other cores. The exports in `testdata/` are those of the programs themselves (its README says how they came about); the
//! other samples are made here.

use super::common;

use std::io::BufRead;

use common::Folder;
use serde_json::{Value, json};
use whimbrel_store::{
    AuthMethod, Core, ImportCounts, ImportProblem, OnExisting, OperatorCode, RatType, Run, SessionType,
    Store, StoreError, SubscribedFlow, SubscriberRecord, SubscriberStatus,
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
    store.import_database(core, files, OnExisting::Refuse, run, &check, &mut |_| {})
}

/// A check that refuses lists of ports, and rates that do not suit the 5QI, as the core does.
fn check(flow: &SubscribedFlow) -> Result<(), String> {
    match flow.filters.iter().find(|text| text.contains(',')) {
        Some(text) => Err(format!("`{text}` is no packet filter")),
        None if (flow.five_qi.0 <= 4) == flow.guaranteed.is_some() => Ok(()),
        None => Err(format!("the rates do not suit 5QI {}", flow.five_qi.0)),
    }
}

/// An exported file of `testdata/`.
fn exported(name: &str) -> (String, Box<dyn BufRead>) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    file(name, std::fs::read(path).unwrap())
}

/// The notes of an import, each as it is printed.
fn notes(done: &ImportCounts) -> Vec<String> {
    done.notes.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_notes(done: &ImportCounts, expected: &[&str]) {
    let found = notes(done);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
    }
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
        assert_eq!((done.added, done.notes), (2, vec![]));
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
    document["slice"][0]["session"][0]["smoke"] = json!("on");
    let expected = [
        "A PCC rule of internet with 5QI 1 and without packet filters is left out, because an application function",
        "imeisv is left out, because a subscription holds no identity of a device. (999700000000001: s.json, line 1)",
        "session.smoke is left out, because its meaning is not known.",
        "session.ue.ipv6: the prefix of 64 bits is imported;",
    ];
    let folder = Folder::new();
    let mut store = folder.store();
    let done =
        import(&mut store, Core::Open5gs, vec![file("s.json", document.to_string())], Run::Keep).unwrap();
    assert_notes(&done, &expected);
}

#[test]
fn open5gs_exports_are_imported_with_static_addresses_and_pcc_rules() {
    for name in ["open5gs/subscribers.json", "open5gs/subscribers.bson"] {
        let folder = Folder::new();
        let mut store = folder.store();
        let done = import(&mut store, Core::Open5gs, vec![exported(name)], Run::Keep).unwrap();
        assert_eq!(done.added, 7);
        assert_notes(
            &done,
            &[
                "A PCC rule of ims with 5QI 1 and without packet filters is left out",
                "A PCC rule of ims with 5QI 2 and without packet filters is left out",
                "Of several MSISDNs the first is imported, because a subscriber has one.",
                "PCC rule 2 of internet is imported without its maximum rate, because",
                "PCC rule 3 of internet is left out: `downlink permit out 6 from any 80,443 to assigned` is no packet filter.",
                "imeisv is left out",
                "operator_determined_barring is left out",
                "session.lbo_roaming_allowed is left out",
                "session.smf is left out",
                "session.ue.ipv6: the prefix of 64 bits is imported;",
            ],
        );
        let mut dnn = |imsi: &str, slice: usize, dnn: usize| {
            get(&mut store, imsi).subscription.slices[slice].dnns[dnn].clone()
        };
        assert_eq!(dnn("999700000000001", 0, 0).ipv4, Some("10.45.0.101".parse().unwrap()));
        assert_eq!(dnn("999700000000001", 0, 0).session_ambr.uplink.to_string(), "10 Mbps");
        assert_eq!(dnn("999700000000002", 0, 0).allowed_session_types, [SessionType::Ipv4]);
        assert_eq!(dnn("999700000000003", 0, 0).ipv6, Some("2001:db8:cafe:3::/64".parse().unwrap()));
        assert_eq!(dnn("999700000000003", 0, 2).dnn.as_str(), "internet2");
        assert_eq!(dnn("999700000000004", 1, 0).dnn.as_str(), "iot");
        let both = dnn("999700000000011", 0, 0);
        assert_eq!(both.ipv4, Some("10.45.0.111".parse().unwrap()));
        assert_eq!(both.ipv6, Some("2001:db8:cafe:11::/64".parse().unwrap()));
        assert_eq!(dnn("999700000000012", 1, 0).session_type, SessionType::Ethernet);
        assert_eq!(dnn("999700000000012", 1, 1).ipv6, Some("2001:db8:cafe:12::/64".parse().unwrap()));
        let flows = dnn("999700000000012", 0, 0).flows;
        let names: Vec<_> = flows.iter().map(|f| (f.name.as_str(), f.five_qi.0, f.precedence)).collect();
        assert_eq!(names, [("pcc-1", 1, 1), ("pcc-2", 7, 2)]);
        let text = "permit out 17 from 192.0.2.5/32 5000-5010 to assigned";
        assert_eq!(flows[0].filters, [format!("downlink {text}"), format!("uplink {text}")]);
        assert_eq!(flows[0].guaranteed.map(|rate| rate.uplink.to_string()), Some("128 Kbps".into()));
        assert_eq!(flows[0].maximum.map(|rate| rate.downlink.to_string()), Some("256 Kbps".into()));
        assert!(flows[0].arp.may_preempt && !flows[0].arp.preemptable);
        let mut record = |imsi| get(&mut store, imsi);
        assert_eq!(record("999700000000003").status, SubscriberStatus::Barred);
        assert!(matches!(record("999700000000012").operator_code, OperatorCode::Op(_)));
        assert_eq!(record("999700000000013").subscription.rat_restrictions, [RatType::Nr]);
    }
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
    assert_eq!(done.added, 2);
    assert_notes(&done, &["policyData.ues.amData is left out, because this core has no policy categories."]);
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

/// The collections that free5GC's web console writes for its subscribers.
fn exported_by_free5gc() -> Vec<(String, Box<dyn BufRead>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/free5gc");
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names.iter().map(|name| exported(&format!("free5gc/{}", name.to_str().unwrap()))).collect()
}

#[test]
fn free5gcs_dump_is_imported_with_its_flows() {
    let folder = Folder::new();
    let mut store = folder.store();
    let done = import(&mut store, Core::Free5gc, exported_by_free5gc(), Run::Keep).unwrap();
    assert_eq!(done.added, 2);
    assert_notes(
        &done,
        &[
            "Flow rule 1 of internet is imported without its rates: the rates do not suit 5QI 8.",
            "policyData.ues.amData is left out, because this core has no policy categories.",
            "policyData.ues.chargingData is left out, because this core has no charging.",
            "policyData.ues.smData is left out, because it names again what smData has.",
            "smfSelectionSubscriptionData is left out, because smData has the data networks of each slice.",
            "subscriptionData.identityData is left out, because amData has the MSISDN.",
        ],
    );
    let one = get(&mut store, "208930000000001");
    assert!(matches!(one.operator_code, OperatorCode::Opc(_)));
    assert_eq!(one.msisdn.as_ref().map(|m| m.digits()), Some("49170000001"));
    let slices: Vec<_> = one.subscription.slices.iter().map(|s| (s.s_nssai.to_string(), s.default)).collect();
    assert_eq!(slices, [("1-010203".to_owned(), true), ("1-112233".to_owned(), false)]);
    let flows = |slice: usize| &one.subscription.slices[slice].dnns[0].flows;
    let [best] = &flows(0)[..] else { panic!("{:?}", flows(0)) };
    assert_eq!((best.five_qi.0, best.precedence, best.guaranteed), (8, 128, None));
    assert_eq!(best.filters, ["permit out ip from 1.1.1.1/32 to assigned"]);
    let [voice] = &flows(1)[..] else { panic!("{:?}", flows(1)) };
    assert_eq!((voice.five_qi.0, voice.guaranteed.map(|rate| rate.uplink.kbps())), (1, Some(128)));
    assert_eq!(voice.filters, ["permit out ip from 192.0.2.0/24 to assigned"]);
    assert!(one.subscription.slices[1].dnns[0].up_security.is_some());
    // The web console derives OPc where it got OP, and keeps OP in its own copy.
    assert!(matches!(get(&mut store, "208930000000002").operator_code, OperatorCode::Opc(_)));
}

#[test]
fn a_subscriber_of_free5gc_without_keys_or_twice_is_reported() {
    let [a, b] = ["999700000000001", "999700000000002"].map(free5gc);
    let mut nameless = b[2].clone();
    nameless.as_object_mut().unwrap().remove("ueId");
    let mut other_key = a[0].clone();
    other_key["permanentKey"]["permanentKeyValue"] = json!("00112233445566778899aabbccddeeff");
    let files = vec![
        file("auth.json", lines(&[&a[0], &other_key])),
        file("am.json", lines(&[&a[1], &b[1]])),
        file("sm.json", lines(&[&nameless])),
    ];
    let found = bad(Core::Free5gc, files);
    let expected = [
        "auth.json, line 2: imsi-999700000000001: its keys are in two documents, and differ",
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

#[test]
fn the_list_of_srsran_4g_is_imported_and_subscribers_with_xor_are_named() {
    let folder = Folder::new();
    let mut store = folder.store();
    let done = import(&mut store, Core::Srsran4g, vec![exported("srsran/user_db.csv")], Run::Keep).unwrap();
    assert_eq!(done.added, 3);
    assert_notes(
        &done,
        &[
            "A subscriber with the algorithm XOR is left out, because 5G has Milenage and TUAK alone. (001010123456789: ",
            "The names of the first column are left out",
            "user_db.csv has no slice, no data network and no rates",
        ],
    );
    let one = get(&mut store, "001010123456780");
    assert_eq!(
        (one.subscription.slices[0].dnns[0].five_qi.0, one.subscription.slices[0].dnns[0].ipv4),
        (7, None)
    );
    let two = get(&mut store, "001010123456781");
    assert!(matches!(two.operator_code, OperatorCode::Op(_)));
    assert_eq!(two.subscription.slices[0].dnns[0].ipv4, Some("172.16.0.20".parse().unwrap()));
    let k = "00112233445566778899aabbccddeeff";
    let lines = format!(
        "a,mil,001010000000001,{k},opc,{k},8000,000000001234,7\nb,mil,001010000000002,{k},opx,{k},8000,0,7,dynamic\n"
    );
    let found = bad(Core::Srsran4g, vec![file("user_db.csv", lines)]);
    assert!(found[0].starts_with("user_db.csv, line 1: 9 fields where user_db.csv has 10"), "{found:?}");
    assert!(
        found[1].starts_with("user_db.csv, line 2: 001010000000002: `opx` must be op or opc"),
        "{found:?}"
    );
}

#[test]
fn the_dump_of_openairinterface_is_imported() {
    let folder = Folder::new();
    let mut store = folder.store();
    let done =
        import(&mut store, Core::OpenAirInterface, vec![exported("oai/oai_db.sql")], Run::Keep).unwrap();
    assert_eq!(done.added, 3);
    assert_notes(
        &done,
        &[
            "No slice is subscribed in these files: slice 1 with the DNN `internet` is subscribed. (imsi-001010000000003: ",
            "The SD `123` has not six hexadecimal digits and is read as a decimal number: 00007b. (imsi-001010000000001: ",
            "The table AuthenticationStatus is left out, because it holds no subscription.",
        ],
    );
    let one = get(&mut store, "001010000000001");
    let slice = &one.subscription.slices[0];
    assert_eq!(slice.s_nssai.to_string(), "1-00007b");
    assert_eq!((slice.dnns[0].dnn.as_str(), slice.dnns[0].five_qi.0), ("oai", 6));
    assert_eq!(slice.dnns[0].ipv4, Some("12.1.1.2".parse().unwrap()));
    assert_eq!(slice.dnns[0].session_ambr.uplink.bps(), 10_000_000_000);
    let two = get(&mut store, "001010000000002");
    assert_eq!(two.subscription.ue_ambr.downlink.bps(), 2_000_000_000);
    assert_eq!(two.subscription.slices.len(), 2);
    let found = bad(
        Core::OpenAirInterface,
        vec![file("d.sql", "INSERT INTO `AuthenticationSubscription` (`ueid`) VALUES ('1")],
    );
    assert!(found[0].starts_with("d.sql, line 1: a quoted text is not closed"), "{found:?}");
}

#[test] // TS 33.117 §4.4.4: exports cut anywhere, and with an octet that differs, are imported whole or not at all
fn damaged_exports_are_imported_whole_or_not_at_all() {
    let folder = Folder::new();
    let mut store = folder.store();
    for (core, name) in [
        (Core::Open5gs, "open5gs/subscribers.json"),
        (Core::Open5gs, "open5gs/subscribers.bson"),
        (Core::OpenAirInterface, "oai/oai_db.sql"),
        (Core::Srsran4g, "srsran/user_db.csv"),
    ] {
        let mut whole = Vec::new();
        std::io::Read::read_to_end(&mut exported(name).1, &mut whole).unwrap();
        for at in (0..whole.len()).step_by(1 + whole.len() / 10) {
            let mut other = whole.clone();
            other[at] ^= 0x11;
            for octets in [whole[..at].to_vec(), other] {
                let before = store.count().unwrap();
                let done = store.import_database(
                    core,
                    vec![file(name, octets)],
                    OnExisting::Replace,
                    Run::Keep,
                    &check,
                    &mut |_| {},
                );
                let added = done.map_or(0, |done| done.added);
                assert_eq!(store.count().unwrap(), before + added, "{name} at {at}");
            }
        }
    }
}

/// The tables of Ella Core that are read, with two profiles and three subscribers.
const ELLA: &str = "
    CREATE TABLE profiles (id TEXT PRIMARY KEY, name TEXT, ueAmbrUplink TEXT, ueAmbrDownlink TEXT, allow4G INTEGER, allow5G INTEGER);
    CREATE TABLE network_slices (id TEXT PRIMARY KEY, sst INTEGER, sd TEXT, name TEXT);
    CREATE TABLE data_networks (id TEXT PRIMARY KEY, name TEXT, ipPool TEXT, dns TEXT, mtu INTEGER, ipv6Pool TEXT);
    CREATE TABLE policies (id TEXT PRIMARY KEY, name TEXT, profileID TEXT, sliceID TEXT, dataNetworkID TEXT, var5qi INTEGER, arp INTEGER,
        sessionAmbrUplink TEXT, sessionAmbrDownlink TEXT, isDefault INTEGER);
    CREATE TABLE subscribers (id TEXT PRIMARY KEY, imsi TEXT, sequenceNumber TEXT, permanentKey TEXT, opc TEXT, profileID TEXT);
    CREATE TABLE ip_leases (id TEXT PRIMARY KEY, poolID TEXT, addressBin BLOB, imsi TEXT, type TEXT, poolType TEXT);
    CREATE TABLE subscriber_framed_routes (id TEXT PRIMARY KEY, imsi TEXT, dataNetworkID TEXT, prefix TEXT);
    CREATE TABLE network_rules (id TEXT PRIMARY KEY, policy_id TEXT, action TEXT);
    INSERT INTO profiles VALUES ('p1', 'default', '200 Mbps', '1 Gbps', 1, 1), ('p2', 'lte', '1 Mbps', '1 Mbps', 1, 0);
    INSERT INTO network_slices VALUES ('s1', 1, NULL, 'default'), ('s2', 2, '0000ab', 'video');
    INSERT INTO data_networks VALUES ('d1', 'internet', '10.45.0.0/22', '8.8.8.8', 1400, 'fd00:45::/48'), ('d2', 'ims', '10.46.0.0/22', '8.8.8.8', 1400, '');
    INSERT INTO policies VALUES ('o1', 'default', 'p1', 's1', 'd1', 9, 1, '200 Mbps', '100 Mbps', 1),
        ('o2', 'voice', 'p1', 's1', 'd2', 5, 2, '1 Mbps', '1 Mbps', 0), ('o3', 'video', 'p1', 's2', 'd2', 7, 3, '2 Mbps', '2 Mbps', 0);
    INSERT INTO subscribers VALUES ('u1', '001010000000001', '000000000022', '465b5ce8b199b49faa5f0a2ee238a6bc', 'cd63cb71954a9f4e48a5994e37a02baf', 'p1'),
        ('u2', '001010000000002', '000000000022', '465b5ce8b199b49faa5f0a2ee238a6bc', 'cd63cb71954a9f4e48a5994e37a02baf', 'p1'),
        ('u3', '001010000000003', '000000000022', '465b5ce8b199b49faa5f0a2ee238a6bc', 'cd63cb71954a9f4e48a5994e37a02baf', 'p2');
    INSERT INTO ip_leases VALUES ('l1', 'd1', x'00000000000000000000FFFF0A2D0009', '001010000000002', 'static', 'ipv4'),
        ('l2', 'd1', x'FD000045000000070000000000000000', '001010000000002', 'static', 'ipv6'),
        ('l3', 'd1', x'00000000000000000000FFFF0A2D000A', '001010000000001', 'dynamic', 'ipv4');
    INSERT INTO subscriber_framed_routes VALUES ('r1', '001010000000002', 'd1', '192.168.7.0/24');
    INSERT INTO network_rules VALUES ('n1', 'o2', 'deny');
";

fn sqlite(statements: &str) -> Vec<u8> {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    connection.execute_batch(statements).unwrap();
    connection.serialize(rusqlite::MAIN_DB).unwrap().to_vec()
}

#[test]
fn the_database_of_ella_core_is_imported() {
    let folder = Folder::new();
    let mut store = folder.store();
    let mut octets = sqlite(ELLA);
    // A running core has its file in write-ahead mode.
    octets[18..20].fill(2);
    let done = import(&mut store, Core::EllaCore, vec![file("ella.db", octets)], Run::Keep).unwrap();
    assert_eq!(done.added, 3);
    assert_notes(
        &done,
        &[
            "The network rules of a policy for ims are left out, because they permit and deny packets",
            "The profile does not allow 5G: the subscriber is imported as barred. (001010000000003: ella.db, line 3)",
            "The profile has no policy for 5G: slice 1 with the DNN `internet` is subscribed. (001010000000003: ",
        ],
    );
    let two = get(&mut store, "001010000000002");
    assert_eq!(two.subscription.ue_ambr.uplink.to_string(), "200 Mbps");
    let slices: Vec<_> =
        two.subscription.slices.iter().map(|s| (s.s_nssai.to_string(), s.dnns.len())).collect();
    assert_eq!(slices, [("1".to_owned(), 2), ("2-0000ab".to_owned(), 1)]);
    let [internet, ims] = &two.subscription.slices[0].dnns[..] else { panic!() };
    assert_eq!((internet.five_qi.0, internet.arp.priority_level, internet.default), (9, 1, true));
    assert_eq!(internet.ipv4, Some("10.45.0.9".parse().unwrap()));
    assert_eq!(internet.ipv6, Some("fd00:45:0:7::/64".parse().unwrap()));
    assert_eq!(internet.framed_routes, ["192.168.7.0/24".parse().unwrap()]);
    assert_eq!((internet.session_type, ims.session_type), (SessionType::Ipv4v6, SessionType::Ipv4));
    assert_eq!(
        get(&mut store, "001010000000001").subscription.slices[0].dnns[0].ipv4,
        None,
        "a lease is no static address"
    );
    assert_eq!(get(&mut store, "001010000000003").status, SubscriberStatus::Barred);
}

#[test]
fn a_file_that_is_no_database_of_ella_core_is_refused_with_what_it_is() {
    let view = ELLA
        .replace("CREATE TABLE network_rules", "CREATE TABLE others")
        .replace("INTO network_rules", "INTO others")
        + "CREATE VIEW network_rules AS WITH RECURSIVE n(policy_id) AS (SELECT 1 UNION ALL SELECT policy_id FROM n) SELECT * FROM n;";
    for (octets, expected) in [
        (b"\x1f\x8b\x08".to_vec(), "this is the archive of a backup: unpack ella.db first"),
        (b"imsi,k,opc".to_vec(), "this is no SQLite database"),
        (
            sqlite("CREATE TABLE subscribers (imsi TEXT)"),
            "this is no database of a present Ella Core: the table profiles is missing",
        ),
        (sqlite(&view), "this is no database of a present Ella Core: the table network_rules is missing"),
        (sqlite(ELLA)[..4096].to_vec(), "this database cannot be read: "),
    ] {
        let found = bad(Core::EllaCore, vec![file("ella.db", octets)]);
        assert!(found[0].starts_with(&format!("ella.db, line 1: {expected}")), "{found:?}");
    }
}
