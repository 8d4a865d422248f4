//! Accounts, credit and records of the charging function.

use serde_json::{Value, json};
use whimbrel_charging::{
    ChargedSession, ChargingDataRequest, ChargingOperation, MultipleUnitUsage, SessionKey, SessionReference,
    UsedUnitContainer,
};
use whimbrel_node::config::sbi::ChfSource;
use whimbrel_node::{accounts, clock, config};

use super::{TestServer, UE, answer, ask, conforms, get, openapi, served, served_with, token};

const JSON: &str = "Content-Type: application/json\r\n";
const ACCOUNT: &str = "/api/v1/charging/accounts/imsi-999700000000001";

/// A server of a core with a charging function, and its configuration.
fn charging() -> (TestServer, config::Config) {
    let mut used = None;
    let (server, _) = served_with(|config| {
        config.chf.source = ChfSource::Embedded;
        used = Some(config.clone());
    });
    (server, used.unwrap())
}

/// A session of the subscriber that has ended.
fn charge(config: &config::Config, number: u32) {
    let mut function = accounts::open(config).unwrap();
    let key = SessionKey {
        consumer: None,
        supi: UE.parse().unwrap(),
        charging_id: Some(number),
        pdu_session_id: Some(5),
    };
    let session = ChargedSession {
        resource: format!("r{number}").into(),
        key,
        notify_uri: None,
        dnn: Some("internet".into()),
        s_nssai: Some("1".into()),
    };
    let asking = MultipleUnitUsage { rating_group: 1, requested: Some(Some(400)), used: vec![] };
    let used = UsedUnitContainer { number: 1, uplink: 100, downlink: 200, ..UsedUnitContainer::default() };
    let using = MultipleUnitUsage { rating_group: 1, requested: None, used: vec![used] };
    let reference = SessionReference::Resource(format!("r{number}").into(), None);
    let request =
        |operation, sequence, usage| ChargingDataRequest { operation, sequence, usage: vec![usage] };
    let requests = [
        request(ChargingOperation::Create(session.into()), 0, asking),
        request(ChargingOperation::Release(reference), 1, using),
    ];
    // The last session stays open.
    let requests = if number == 3 { &requests[..1] } else { &requests[..] };
    let answers = function.handle(clock::now(), requests).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[test]
fn accounts_are_made_credited_shown_and_removed() {
    let (server, config) = charging();
    let at = server.address;
    let send = |method: &str, path: &str, body: Value| ask(at, method, path, JSON, &body.to_string());
    assert_eq!(get(at, ACCOUNT).0, 404);
    let (status, account) = send("PUT", ACCOUNT, json!({"kind": "prepaid"}));
    assert_eq!((status, &account["status"], &account["balance_octets"]), (200, &json!("active"), &json!(0)));
    let credit = format!("{ACCOUNT}/credit");
    for _ in 0..2 {
        let (status, account) = send("POST", &credit, json!({"octets": 1000, "reference": "voucher 1"}));
        assert_eq!((status, &account["balance_octets"]), (200, &json!(1000)), "the reference counts once");
    }
    assert_eq!(send("POST", &credit, json!({"octets": 7, "reference": "voucher 1"})).0, 409);
    assert_eq!(send("POST", &credit, json!({"octets": -1001})).0, 422);
    for wrong in [
        json!({}),
        json!({"octets": 1.5}),
        json!({"octets": 9_223_372_036_854_775_808_u64}),
        json!({"octets": 1, "reference": ""}),
        json!({"octets": 1, "reference": "x".repeat(65)}),
        json!({"octets": 1, "euro": 1}),
    ] {
        assert_eq!(send("POST", &credit, wrong.clone()).0, 422, "{wrong}");
    }
    assert_eq!(send("PUT", ACCOUNT, json!({"kind": "free"})).0, 422);
    assert_eq!(
        send("POST", "/api/v1/charging/accounts/imsi-999700000000002/credit", json!({"octets": 1})).0,
        404
    );
    charge(&config, 3);
    let (_, view) = get(at, ACCOUNT);
    assert_eq!(view["account"]["reserved_octets"], json!(400));
    assert_eq!(
        (&view["sessions"][0]["dnn"], &view["sessions"][0]["consumer"]),
        (&json!("internet"), &Value::Null)
    );
    let (_, page) = get(at, "/api/v1/charging/accounts?limit=1");
    assert_eq!((&page["accounts"][0]["supi"], &page["next"]), (&json!(UE), &json!(UE)));
    let (_, page) = get(at, &format!("/api/v1/charging/accounts?after={UE}"));
    assert_eq!((&page["accounts"], &page["next"]), (&json!([]), &Value::Null));
    let (_, account) = send("PUT", ACCOUNT, json!({"kind": "prepaid", "status": "barred"}));
    assert_eq!(account["status"], json!("barred"));
    assert_eq!(ask(at, "DELETE", ACCOUNT, "", "").0, 204);
    assert_eq!(ask(at, "DELETE", ACCOUNT, "", "").0, 404);
    let audit = std::fs::read_to_string(server.folder.path().join("subscribers.db.audit")).unwrap();
    assert!(audit.contains("/credit") && !audit.contains("999700000000001"), "{audit}");
}

#[test]
fn records_are_listed_and_exported_from_a_number_on() {
    let (server, config) = charging();
    let at = server.address;
    ask(at, "PUT", ACCOUNT, JSON, r#"{"kind": "postpaid"}"#);
    (1..=3).for_each(|number| charge(&config, number));
    let (status, page) = get(at, "/api/v1/charging/records?limit=1");
    assert_eq!((status, &page["next"]), (200, &json!(1)));
    let record = &page["records"][0];
    assert_eq!((&record["supi"], &record["total_octets"]), (&json!(UE), &json!(300)));
    assert_eq!(
        (&record["cause"], &record["rating_groups"][0]["rating_group"]),
        (&json!("released"), &json!(1))
    );
    let (_, page) = get(at, "/api/v1/charging/records?after=1");
    assert_eq!((page["records"].as_array().unwrap().len(), &page["next"]), (1, &Value::Null));
    let (_, page) = get(at, "/api/v1/charging/records?supi=imsi-999700000000002");
    assert_eq!(page["records"], json!([]));
    let headers = format!("Authorization: Bearer {}\r\n", token(at));
    let (status, head, csv) = answer(at, "GET", "/api/v1/charging/records.csv?after=1", &headers, "");
    assert!(status == 200 && head.contains("content-type: text/csv"), "{head}");
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("number,session,supi,"), "{csv}");
    assert!(lines[1].starts_with("2,r2,imsi-999700000000001,,2,5,internet,1,20"), "{csv}");
    assert!(lines[1].ends_with(",100,200,300,0,1:100:200:300:0,released"), "{csv}");
    assert_eq!(get(at, "/api/v1/charging/records?after=-1").0, 400);
    let doc = openapi();
    for (path, route) in [
        ("/api/v1/charging/records", "/api/v1/charging/records"),
        ("/api/v1/charging/accounts", "/api/v1/charging/accounts"),
        (ACCOUNT, "/api/v1/charging/accounts/{supi}"),
    ] {
        let schema = &doc["paths"][route]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        conforms(&doc, schema, &get(at, path).1, path);
    }
}

#[test]
fn a_core_without_a_charging_function_says_so() {
    let (server, _) = served();
    let (status, problem) = get(server.address, "/api/v1/charging/accounts");
    assert!(status == 404 && problem.to_string().contains("`sbi.chf: embedded`"), "{problem}");
}
