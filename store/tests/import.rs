//! Bulk import and export.

use super::common;

use std::time::Instant;

use common::{Folder, csv, record};
use whimbrel_store::{
    BAD_LINES_MAX, Format, ImportCounts, ImportProblem, InvalidRecord, OnExisting, OperatorCode, Secrets,
    Store, StoreError, SubscriberStatus,
};

const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";

fn import(store: &mut Store, text: &str, format: Format) -> Result<ImportCounts, StoreError> {
    store.import(text.as_bytes(), format, OnExisting::Refuse, &mut |_| {})
}

/// The bad lines that an import reports; asserts that it imported nothing.
fn bad(text: &str, format: Format) -> Vec<(u64, ImportProblem)> {
    let folder = Folder::new();
    let mut store = folder.store();
    let Err(StoreError::Import(lines)) = import(&mut store, text, format) else { panic!("{text}") };
    assert_eq!(store.count().unwrap(), 0);
    lines.into_iter().map(|l| (l.line, l.problem)).collect()
}

#[test]
fn a_hundred_thousand_lines() {
    let folder = Folder::new();
    let mut store = folder.store();
    let text = csv(100_000);
    let start = Instant::now();
    let mut seen = 0;
    let done = store.import(text.as_bytes(), Format::Csv, OnExisting::Refuse, &mut |_| seen += 1).unwrap();
    let took = start.elapsed();
    assert_eq!((done.added, seen, store.count().unwrap()), (100_000, 100_000, 100_000));
    println!("100,000 lines in {took:?}"); // optimised, on a quiet machine: about two seconds
    assert_eq!(store.get(record(99_999).supi).unwrap().unwrap().k, record(99_999).k);
    let size = std::fs::metadata(folder.db()).unwrap().len();
    assert!(size < 40_000_000, "{size} octets");
}

#[test]
fn one_bad_line_is_reported_by_its_number_and_nothing_is_applied() {
    let mut text = csv(1_000);
    text.insert_str(text.match_indices('\n').nth(499).unwrap().0 + 1, &format!("99970123,{K},xyz\n"));
    let problem = ImportProblem::Record(InvalidRecord::Key("opc"));
    assert_eq!(bad(&text, Format::Csv), [(501, problem)]);
}

#[test]
fn every_problem_of_a_row_is_named() {
    let rows = [
        (format!("99970,{K},{K},,"), "supi must be a SUPI of 6 to 15 digits, such as imsi-999700000000001"),
        (format!(",{K},{K},,"), "supi is missing"),
        (format!("999701,,{K},,"), "k is missing"),
        (format!("999701,{K},,,"), "give exactly one of opc and op, or under TUAK of topc and top"),
        (
            format!("999701,{K},{K}"),
            "3 fields where the header has 5: add what is missing, or quote a field that holds a separator",
        ),
        (
            format!("999701,{K},{K},a b,"),
            "dnn must be a DNN of letters, digits, hyphens and dots, such as internet",
        ),
        (
            format!("999701,{K},{K},,82"),
            "5QI 82 cannot carry a default QoS flow: use 5 to 9, 69, 70, 79, 80 or one of the operator's, 128 to 254",
        ),
        (format!("999701,{K},{K},\"x"), "quotation marks are not balanced"),
    ];
    for (row, expected) in rows {
        let found = bad(&format!("supi,k,opc,dnn,five_qi\n{row}\n"), Format::Csv);
        assert_eq!(found.len(), 1, "{row}");
        assert_eq!((found[0].0, found[0].1.to_string().as_str()), (2, expected));
    }
    for (header, expected) in [
        ("supi,opc", "no column is headed k or ki: add it or rename one"),
        ("K,OPc", "no column is headed imsi or supi: add it or rename one"),
        ("supi,k,Ki", "two columns are headed k: remove or rename one"),
        ("", "no column is named: begin the list with a header line such as imsi,k,opc"),
    ] {
        assert_eq!(bad(header, Format::Csv)[0].1.to_string(), expected);
    }
    // A list without a header: its first row, with a key in it, is not repeated.
    let row = format!("999700000000001,{K},{K}\n");
    assert_eq!(bad(&row, Format::Csv)[0].1, ImportProblem::NoHeader);
}

/// The list of a card vendor as a spreadsheet writes it: semicolons, a byte order mark, CRLF, quotes, hexadecimal digits in groups.
const VENDORS: &str = "\u{feff}IMSI;\"ICCID\";PIN 1;Ki;OPC;AMF;MSISDN;SQN;\r\n\
    999700000000001;\"8988211000000000001\";1234;465b5ce8 b199b49f aa5f0a2e e238a6bc;\
    \"CD 63 CB 71 95 4A 9F 4E 48 A5 99 4E 37 A0 2B AF\";8000;+49 170 1234567;0000000003E0;\r\n\
    999700000000002;8988211000000000002;1234;465B5CE8B199B49FAA5F0A2EE238A6BC;\
    cd63cb71954a9f4e48a5994e37a02baf;;;0;;\r\n";

#[test]
fn a_card_vendors_list_is_imported_and_names_the_columns_that_are_not() {
    let commas = VENDORS.replace(';', ",");
    let tabs = VENDORS.replace(';', "\t");
    let others = VENDORS.replace("IMSI", "Imsi").replace("Ki", "K").replace("OPC", "op_c");
    for text in [VENDORS, &commas, &tabs, &others] {
        let folder = Folder::new();
        let mut store = folder.store();
        let done = import(&mut store, text, Format::Csv).unwrap();
        assert_eq!((done.added, done.ignored_columns), (2, vec!["ICCID".to_owned(), "PIN 1".to_owned()]));
        let one = store.get("999700000000001".parse().unwrap()).unwrap().unwrap();
        let two = store.get("999700000000002".parse().unwrap()).unwrap().unwrap();
        assert_eq!((&one.k, &one.operator_code), (&two.k, &two.operator_code));
        assert_eq!(one.msisdn.as_ref().unwrap().digits(), "491701234567");
        // SQN 3E0 is SEQ 31: the next one is behind it, where a fresh subscriber has 1. What passed meanwhile is in both.
        let ahead = one.sqn_offset.value().wrapping_sub(two.sqn_offset.value()) % (1 << 43);
        assert!((29..=31).contains(&ahead), "{ahead}");
    }
}

#[test] // TS 35.206 §8.2: OPc follows from K and OP, here those of test set 1 (TS 35.208 §4.3)
fn op_beside_opc_is_compared() {
    let row = |op: &str| format!("IMSI,KI,OP,OPC\n999701,{K},{op},cd63cb71954a9f4e48a5994e37a02baf\n");
    let folder = Folder::new();
    let mut store = folder.store();
    import(&mut store, &row("cdc202d5123e20f62b6d676ac72cb318"), Format::Csv).unwrap();
    let kept = store.get("999701".parse().unwrap()).unwrap().unwrap();
    assert!(matches!(kept.operator_code, OperatorCode::Opc(_)));
    assert_eq!(bad(&row(K), Format::Csv), [(2, ImportProblem::OpAgainstOpc)]);
}

#[test]
fn a_number_that_a_spreadsheet_rounded_is_refused_with_the_fix() {
    let text =
        format!("IMSI;KI;OPC;SQN;sqn_offset\n9,9970E+14;{K};;;\n999701;{K};{K};1f;\n999702;{K};{K};0;7\n");
    let found = bad(&text, Format::Csv);
    assert_eq!(
        found,
        [
            (2, ImportProblem::Rounded("supi")),
            (3, ImportProblem::Field { column: "sqn", expected: "12 hexadecimal digits" }),
            (4, ImportProblem::SqnTwice),
        ]
    );
    assert!(found[0].1.to_string().contains("format the column as text"));
}

#[test]
fn how_a_list_is_written_shows_at_its_first_character() {
    for (text, format) in
        [("\u{feff} [", Format::Json), ("\n{", Format::Json), ("IMSI", Format::Csv), ("", Format::Csv)]
    {
        assert_eq!(Format::detect(&mut text.as_bytes()).unwrap(), format, "{text:?}");
    }
}

#[test]
fn a_supi_twice_in_the_file_and_one_that_exists() {
    let text = format!("supi,k,opc\n999701,{K},{K}\n999702,{K},{K}\n999701,{K},{K}\n");
    let supi = "999701".parse().unwrap();
    assert_eq!(bad(&text, Format::Csv), [(4, ImportProblem::Repeated { supi, first: 2 })]);
    let folder = Folder::new();
    let mut store = folder.store();
    let text = format!("supi,k,opc,status\n999701,{K},{K},enabled\n");
    import(&mut store, &text, Format::Csv).unwrap();
    let again = import(&mut store, &text, Format::Csv);
    assert!(matches!(again, Err(StoreError::Import(l)) if l[0].problem == ImportProblem::Exists(supi)));
    let text = text.replace("enabled", "barred");
    let skipped = store.import(text.as_bytes(), Format::Csv, OnExisting::Skip, &mut |_| {}).unwrap();
    assert_eq!(skipped, ImportCounts { skipped: 1, ..ImportCounts::default() });
    assert_eq!(store.get(supi).unwrap().unwrap().status, SubscriberStatus::Enabled);
    let replaced = store.import(text.as_bytes(), Format::Csv, OnExisting::Replace, &mut |_| {}).unwrap();
    assert_eq!(replaced, ImportCounts { replaced: 1, ..ImportCounts::default() });
    assert_eq!(store.cached(supi).unwrap().unwrap().status, SubscriberStatus::Barred);
}

#[test]
fn a_report_names_a_bounded_number_of_lines() {
    let text = "supi,k,opc\n".to_owned() + &"x,y,z\n".repeat(1_000);
    assert_eq!(bad(&text, Format::Csv).len(), BAD_LINES_MAX);
}

#[test]
fn all_columns_of_a_row() {
    let folder = Folder::new();
    let mut store = folder.store();
    let text = format!(
        "supi,k,op,amf,algorithm,sqn_offset,status,msisdn,slice,dnn,session_type,five_qi,arp_priority_level,\
         ue_ambr_uplink,ue_ambr_downlink,session_ambr_uplink,session_ambr_downlink,ipv4,ipv6,rfsp\n\
         imsi-999701,{K},{K},9001,milenage,5,barred,+4917012345,2-0000ab,ims; internet,ipv4,5,3,\
         10 Mbps,20 Mbps,1 Mbps,2 Mbps,10.0.0.7,,9\n"
    );
    import(&mut store, &text, Format::Csv).unwrap();
    let r = store.get("999701".parse().unwrap()).unwrap().unwrap();
    let slice = &r.subscription.slices[0];
    assert_eq!((r.amf.0, r.sqn_offset.value(), r.status), ([0x90, 1], 5, SubscriberStatus::Barred));
    assert_eq!((r.subscription.rfsp, slice.s_nssai.to_string().as_str()), (Some(9), "2-0000ab"));
    let [ims, internet] = &slice.dnns[..] else { panic!("two DNNs") };
    assert!(ims.default && !internet.default);
    assert_eq!((ims.ipv4, internet.ipv4), (Some("10.0.0.7".parse().unwrap()), None));
    assert_eq!((ims.five_qi.0, ims.arp.priority_level, ims.session_ambr.downlink.bps()), (5, 3, 2_000_000));
    assert_eq!(ims.allowed_session_types, [ims.session_type]);
    assert_eq!(r.subscription.ue_ambr.uplink.bps(), 10_000_000);
}

#[test]
fn json_as_an_array_and_one_by_one() {
    let records = [
        format!(r#"{{"supi": "imsi-999701", "k": "{K}", "opc": "{K}"}}"#),
        format!(
            r#"{{"supi": "999702", "k": "{K}", "op": "{K}", "status": "barred", "msisdn": "491701234",
               "subscription": {{"ue_ambr": {{"uplink": "1 Mbps", "downlink": "2 Mbps"}},
                 "slices": [{{"s_nssai": "1"}}, {{"s_nssai": "2-000001", "default": false,
                   "dnns": [{{"dnn": "ims", "default": true, "five_qi": 5}}]}}]}}}}"#
        ),
    ];
    for text in [format!("\n [{}]\n", records.join(",\n")), records.join("\n")] {
        let folder = Folder::new();
        let mut store = folder.store();
        assert_eq!(import(&mut store, &text, Format::Json).unwrap().added, 2);
        let r = store.get("999702".parse().unwrap()).unwrap().unwrap();
        assert_eq!((r.status, r.subscription.slices.len()), (SubscriberStatus::Barred, 2));
        assert_eq!(r.subscription.slices[0].dnns[0].dnn.as_str(), "internet");
    }
}

#[test]
fn subscribers_that_mongoexport_writes_of_open5gs_are_imported() {
    let document = |imsi: &str, sqn: &str| {
        format!(
            r#"{{"_id": {{"$oid": "64f0"}}, "imsi": "{imsi}", "msisdn": ["491701{sqn_digits}"], "imeisv": [],
            "security": {{"k": "465B5CE8 B199B49F AA5F0A2E E238A6BC", "amf": "8000", "op": null,
              "opc": "CD63CB71 954A9F4E 48A5994E 37A02BAF", "sqn": {sqn}}},
            "ambr": {{"downlink": {{"value": 1, "unit": 3}}, "uplink": {{"value": {{"$numberInt": "500"}}, "unit": 2}}}},
            "slice": [{{"sst": 1, "sd": "0000ab", "default_indicator": true, "session": [
              {{"name": "internet", "type": 1, "pcc_rule": [], "ue": {{"ipv4": "10.45.0.9"}}, "_id": {{"$oid": "1"}},
                "qos": {{"index": 7, "arp": {{"priority_level": 5, "pre_emption_capability": 1, "pre_emption_vulnerability": 2}}}},
                "ambr": {{"downlink": {{"value": 20, "unit": 2}}, "uplink": {{"value": 10, "unit": 2}}}}}},
              {{"name": "ims", "type": 3}}]}}],
            "subscriber_status": {{"$numberInt": "0"}}, "schema_version": 1, "__v": 0}}"#,
            sqn_digits = imsi.get(10..).unwrap_or_default(),
        )
    };
    let one = document("999700000000001", r#"{"$numberLong": "992"}"#);
    let two = document("999700000000002", "0")
        .replace(r#""subscriber_status": {"$numberInt": "0"}"#, r#""subscriber_status": 1"#);
    let folder = Folder::new();
    let mut store = folder.store();
    assert_eq!(import(&mut store, &format!("{one}\n{two}\n"), Format::Json).unwrap().added, 2);
    let two = store.get("999700000000002".parse().unwrap()).unwrap().unwrap();
    let one = store.get("999700000000001".parse().unwrap()).unwrap().unwrap();
    assert!(matches!(one.operator_code, OperatorCode::Opc(_)));
    assert_eq!(
        (one.k == record_k(), one.status, two.status),
        (true, SubscriberStatus::Enabled, SubscriberStatus::Barred)
    );
    // SQN 992 is SEQ 31.
    let ahead = one.sqn_offset.value().wrapping_sub(two.sqn_offset.value()) % (1 << 43);
    assert!((29..=31).contains(&ahead), "{ahead}");
    let s = &one.subscription;
    assert_eq!((s.ue_ambr.uplink.bps(), s.ue_ambr.downlink.bps()), (500_000_000, 1_000_000_000));
    assert_eq!(s.slices[0].s_nssai.to_string(), "1-0000ab");
    let [internet, ims] = &s.slices[0].dnns[..] else { panic!("two DNNs") };
    assert!(internet.default && !ims.default && internet.arp.preemptable && !internet.arp.may_preempt);
    assert_eq!((internet.five_qi.0, internet.arp.priority_level, ims.dnn.as_str()), (7, 5, "ims"));
    assert_eq!(
        (internet.ipv4, internet.allowed_session_types.len()),
        (Some("10.45.0.9".parse().unwrap()), 1)
    );
    assert_eq!((internet.session_ambr.uplink.bps(), ims.allowed_session_types.len()), (10_000_000, 3));
    let bad_key = document("999700000000001", "0").replace("465B5CE8", "465B5CE");
    assert_eq!(bad(&bad_key, Format::Json)[0].1, ImportProblem::Record(InvalidRecord::Key("k")));
}

fn record_k() -> whimbrel_security::LongTermKey {
    let octets: Vec<u8> = (0..16).map(|i| u8::from_str_radix(&K[2 * i..2 * i + 2], 16).unwrap()).collect();
    whimbrel_security::K::new(octets.try_into().unwrap()).into()
}

#[test]
fn a_bad_json_record_is_reported_by_its_line() {
    let good = format!(r#"{{"supi": "999701", "k": "{K}", "opc": "{K}"}}"#);
    for (text, line, says) in [
        (format!("[\n{good},\n{{\"supi\": \"x\"}}\n]"), 3, "expected a SUPI"),
        (
            format!("[\n{good},\n{{\"supi\": \"999702\", \"k\": \"{K}\", \"opc\": \"1\"}}\n]"),
            3,
            "opc must be 32",
        ),
        (format!("{good}\n{{\"supi\": \"999702\", \"ki\": \"\"}}"), 2, "unknown field `ki`"),
        (format!("[\n{good},\n\n{good}\n]"), 4, "on line 2 already"),
        (format!("[{good}"), 1, "EOF"),
        (format!("[{good}] x"), 1, "trailing"),
        ("\n7".to_owned(), 2, "invalid type"),
    ] {
        let found = bad(&text, Format::Json);
        assert_eq!(found[0].0, line, "{text}: {}", found[0].1);
        assert!(found[0].1.to_string().contains(says), "{}", found[0].1);
    }
}

#[test]
fn an_export_with_secrets_is_imported_again() {
    let folder = Folder::new();
    let mut store = folder.store();
    let text = format!(
        "supi,k,op,opc,dnn,ipv4,msisdn\n999701,{K},{K},,,,\n999702,{K},,{K},ims;internet,10.0.0.1,12345\n"
    );
    import(&mut store, &text, Format::Csv).unwrap();
    for format in [Format::Csv, Format::Json] {
        let mut out = Vec::new();
        assert_eq!(store.export(&mut out, format, Secrets::Include).unwrap(), 2);
        let other = Folder::new();
        let mut copy = other.store();
        import(&mut copy, &String::from_utf8(out).unwrap(), format).unwrap();
        assert_eq!(copy.list(None, 9).unwrap(), store.list(None, 9).unwrap());
    }
}

#[test]
fn an_export_without_the_flag_holds_no_key() {
    let folder = Folder::new();
    let mut store = folder.store();
    import(&mut store, &format!("supi,k,opc\n999701,{K},{K}\n"), Format::Csv).unwrap();
    for format in [Format::Csv, Format::Json] {
        let mut out = Vec::new();
        store.export(&mut out, format, Secrets::Omit).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("999701") && !text.contains(K), "{text}");
    }
    assert!(!serde_json::to_string(&store.list(None, 1).unwrap()).unwrap().contains(K));
}

#[test] // TS 33.117 §4.4.4: what fuzzing kept, as it is and cut anywhere: all of it is imported, or nothing
fn kept_lists_are_imported_whole_or_not_at_all() {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(common::STORE_FOLDER).join("fuzz/seeds/import");
    let here = Folder::new();
    let mut store = here.store();
    for file in std::fs::read_dir(folder).unwrap() {
        let list = std::fs::read(file.unwrap().path()).unwrap();
        let (format, list) = (if list[0] & 1 == 0 { Format::Csv } else { Format::Json }, &list[1..]);
        for end in (0..list.len()).step_by(1 + list.len() / 60).chain([list.len()]) {
            let before = store.count().unwrap();
            let added =
                store.import(&list[..end], format, OnExisting::Replace, &mut |_| {}).map_or(0, |d| d.added);
            assert_eq!(store.count().unwrap(), before + added);
        }
    }
}
