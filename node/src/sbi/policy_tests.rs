//! The consumer of a PCF against recorded answers and notifications of Open5GS and free5GC (testdata/README.md).
//!
//! Answers that no PCF should give are at the end.

use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use whimbrel_control::UeAddress;
use whimbrel_control::policy::{FlowGate, Gbr, packet_filter};
use whimbrel_control::sm_policy::{
    PolicyAnswer, PolicyAssociation, PolicyDecision, PolicyDenial, PolicyNotification, PolicyOperation,
    PolicyReport, PolicyRequest, PolicySession, PolicyTriggers, RuleFailure, SessionRule,
};
use whimbrel_control::udm::{Ambr, Arp, NfType, ServiceFault};
use whimbrel_ids::{FiveQi, PduSessionId, SNssai, Seid};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_sbi::{ClientSettings, SbiClient, SbiRequest, SbiResponse, SbiServer, ServerSettings};
use whimbrel_sbi_types::from_slice;
use whimbrel_sbi_types::npcf_sm::SmPolicyNotification;

use super::SbiInput;
use super::identity::supi_of;
use super::policy::{PolicyControl, read_decision};
use super::scripted::{
    ScriptedFunction, callbacks_alone, consumer, created, json_response, peer_at, problem, recorded_response,
    runtime,
};

const OPEN5GS: &str = include_str!("testdata/open5gs-pcf-2.8.0-66.json");
const FREE5GC: &str = include_str!("testdata/free5gc-pcf-90d88f1.json");
const ROOT: &str = "http://192.0.2.6:7777/npcf-smpolicycontrol/v1/sm-policies";

struct ScriptedPcf {
    policy: PolicyControl,
    function: ScriptedFunction,
}

fn scripted_pcf(
    answer: impl Fn(usize) -> Option<SbiResponse> + Send + Sync + 'static,
    within: Duration,
) -> ScriptedPcf {
    // The UE's AM policy association comes first.
    let ue = || answer_of(FREE5GC, "am-create-full");
    let function = ScriptedFunction::start_beside("/npcf-am-policy-control/", ue, answer);
    let peer = peer_at(NfType::Pcf, function.root.clone(), within);
    ScriptedPcf { policy: PolicyControl::new(peer, consumer()), function }
}

/// A PCF that gives these answers, and then the last one again.
fn pcf_with(answers: Vec<SbiResponse>) -> ScriptedPcf {
    scripted_pcf(move |n| answers.get(n).or(answers.last()).cloned(), Duration::from_secs(5))
}

fn exchange(recording: &str, name: &str) -> Json {
    let mut all: Json = serde_json::from_str(recording).unwrap();
    all.get_mut(name).unwrap_or_else(|| panic!("{name}")).take()
}

fn answer_of(recording: &str, name: &str) -> SbiResponse {
    recorded_response(&exchange(recording, name))
}

/// A recorded decision of a PCF in mid-session.
fn notified(recording: &str, name: &str) -> PolicyDecision {
    let body = exchange(recording, name)["body"].to_string();
    let notification: SmPolicyNotification = from_slice(body.as_bytes()).unwrap();
    read_decision(&notification.sm_policy_decision.unwrap(), |_| ()).unwrap()
}

fn request(operation: PolicyOperation) -> PolicyRequest {
    let supi = supi_of("imsi-999700000000001").unwrap();
    PolicyRequest { supi, psi: PduSessionId::new(5).unwrap(), session: Seid(7), operation }
}

fn create() -> PolicyRequest {
    let session = PolicySession {
        s_nssai: SNssai::sst(1),
        dnn: "internet".parse().unwrap(),
        session_type: PduSessionType::Ipv4,
        address: UeAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, 7)), ipv6: None, interface_id: [0; 8] },
        subscribed: SessionRule {
            ambr: Some(Ambr { ul_kbps: 200_000, dl_kbps: 100_000 }),
            default_qos: Some((FiveQi(9), Arp { priority: 8, may_preempt: false, preemptable: false })),
        },
        tai: None,
    };
    request(PolicyOperation::Create(session.into()))
}

fn update(report: PolicyReport) -> PolicyRequest {
    request(PolicyOperation::Update { reference: "10".into(), report: report.into() })
}

fn delete() -> PolicyRequest {
    request(PolicyOperation::Delete { reference: "".into() })
}

fn decided(answer: PolicyAnswer) -> PolicyAssociation {
    match answer {
        PolicyAnswer::Decided(association) => *association,
        other => panic!("{other:?}"),
    }
}

/// Rules of a decision: identity, number of packet filters, 5QI, and guaranteed rate of the downlink.
fn rules(decision: &PolicyDecision) -> Vec<(&str, usize, Option<u8>, Option<u64>)> {
    let rule = |(id, rule): &'_ (Box<str>, Option<whimbrel_control::sm_policy::PccRule>)| {
        let rule = rule.as_ref()?;
        let qos = rule.qos.as_ref().and_then(|id| decision.qos.iter().find(|(name, _)| name == id)?.1);
        let gbr = qos.and_then(|qos| qos.gbr).map(|gbr| gbr.guaranteed.dl_kbps);
        assert!(!rule.has_unknown_filter, "{id}");
        Some((rule.filters.len(), qos.and_then(|qos| qos.five_qi).map(|five_qi| five_qi.0), gbr))
    };
    let read = decision.rules.iter().filter_map(|entry| Some((&*entry.0, rule(entry)?)));
    read.map(|(id, (filters, five_qi, gbr))| (id, filters, five_qi, gbr)).collect()
}

#[test]
fn a_session_has_the_policies_of_open5gs() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let names = ["sm-create-two-rules", "sm-update-SE_AMBR_CH", "sm-delete-unknown", "sm-delete-unknown"];
    let pcf = pcf_with(names.map(|name| answer_of(OPEN5GS, name)).to_vec());
    runtime.block_on(async {
        let association = decided(pcf.policy.answer(&create()).await);
        let decision = &association.decision;
        assert_eq!(&*association.reference, "10");
        assert_eq!(
            decision.session_rule.ambr,
            Some(Ambr { ul_kbps: 1_000_000, dl_kbps: 1_000_000 }),
            "with DN-Authorization alone"
        );
        assert_eq!(
            rules(decision),
            [("internet-n1", 2, Some(1), Some(82)), ("internet-n2", 1, Some(7), None)]
        );
        assert_eq!(decision.triggers, Some(PolicyTriggers::SESSION_AMBR_CHANGE));
        // Its PCF has no Npcf_SMPolicyControl_Update: the session goes on.
        let report = PolicyReport {
            triggers: PolicyTriggers::SESSION_AMBR_CHANGE,
            failed: vec![("internet-n2".into(), RuleFailure::AllocationFailed)],
            guarantees: vec![("internet-n1".into(), false)],
            ..PolicyReport::default()
        };
        let failed = |status| PolicyAnswer::Failed(ServiceFault::Status(status));
        assert_eq!(pcf.policy.answer(&update(report.clone())).await, failed(400));
        assert_eq!(pcf.policy.answer(&update(report)).await, failed(404), "USER_UNKNOWN of an association");
        decided(pcf.policy.answer(&delete()).await);
    });
    let requests = pcf.function.requests();
    let paths: Vec<&str> =
        requests.iter().map(|(path, _)| path.rsplit("sm-policies").next().unwrap()).collect();
    assert_eq!(paths, ["", "/10/update", "/10/update", "/10/delete"]);
    let (_, context) = &requests[0];
    for (member, value) in [
        ("supi", json!("imsi-999700000000001")),
        ("pduSessionId", json!(5)),
        ("pduSessionType", json!("IPV4")),
        ("dnn", json!("internet")),
        ("sliceInfo", json!({ "sst": 1 })),
        ("ipv4Address", json!("10.45.0.7")),
        ("accessType", json!("3GPP_ACCESS")),
        ("servingNetwork", json!({ "mcc": "999", "mnc": "70" })),
        ("subsSessAmbr", json!({ "uplink": "200 Mbps", "downlink": "100 Mbps" })),
        ("notificationUri", json!("http://192.0.2.1:7777/callbacks/pcf/imsi-999700000000001/5")),
    ] {
        assert_eq!(context[member], value, "{member}");
    }
    let (_, report) = &requests[1];
    assert_eq!(report["repPolicyCtrlReqTriggers"], json!(["SE_AMBR_CH"]));
    assert_eq!(
        report["ruleReports"],
        json!([{ "pccRuleIds": ["internet-n2"], "ruleStatus": "INACTIVE", "failureCode": "RES_ALLO_FAIL" }])
    );
    assert_eq!(
        report["qncReports"],
        json!([{ "refPccRuleIds": ["internet-n1"], "notifType": "NOT_GUARANTEED" }])
    );
}

#[test] // Npcf_PolicyAuthorization at its PCF: create, modify, delete
fn an_application_function_at_open5gs_changes_a_session() {
    let created = notified(OPEN5GS, "n7-notify-af-create");
    assert_eq!(rules(&created), [("internet-n1-a1", 2, Some(1), Some(96))]);
    let filters = &created.rules[0].1.as_ref().unwrap().filters;
    let expected = packet_filter("downlink permit out 17 from 198.51.100.9 6000 to 10.45.0.7 7000").unwrap();
    assert_eq!(filters[0], expected);
    // The rule has no packet filters: they stay.
    assert_eq!(rules(&notified(OPEN5GS, "n7-notify-af-modify")), [("internet-n1-a1", 0, Some(1), Some(256))]);
    let deleted = notified(OPEN5GS, "n7-notify-af-delete");
    assert_eq!(deleted.rules, [("internet-n1-a1".into(), None)]);
    assert_eq!(deleted.qos, [("internet-n1-a1".into(), None)]);
}

#[test]
fn a_session_has_the_policies_of_free5gc() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let names = ["sm-create-two-rules", "sm-update-SE_AMBR_CH", "sm-update-after-delete", "sm-delete"];
    let pcf = pcf_with(names.map(|name| answer_of(FREE5GC, name)).to_vec());
    runtime.block_on(async {
        let association = decided(pcf.policy.answer(&create()).await);
        let decision = &association.decision;
        assert_eq!(&*association.reference, "imsi-999700000000003-5");
        assert_eq!(
            rules(decision),
            [("PccRuleId-2", 1, Some(1), Some(108)), ("PccRuleId-3", 1, Some(7), None)]
        );
        let qos = decision.qos[0].1.unwrap();
        let rate = |kbps| Ambr { ul_kbps: kbps, dl_kbps: kbps };
        assert_eq!(qos.gbr, Some(Gbr { guaranteed: rate(108), maximum: rate(208) }));
        assert_eq!(qos.arp, None, "it gives rules of the console no priority");
        let all = [
            PolicyTriggers::SESSION_AMBR_CHANGE,
            PolicyTriggers::DEFAULT_QOS_CHANGE,
            PolicyTriggers::QOS_NOTIFICATION,
        ];
        assert!(all.iter().all(|event| decision.triggers.unwrap().has(*event)));
        let changed = decided(pcf.policy.answer(&update(PolicyReport::default())).await);
        assert_eq!(changed.decision.session_rule.ambr, Some(Ambr { ul_kbps: 50_000, dl_kbps: 60_000 }));
        let lost = pcf.policy.answer(&update(PolicyReport::default())).await;
        assert_eq!(lost, PolicyAnswer::Failed(ServiceFault::Status(404)));
        decided(pcf.policy.answer(&delete()).await);
    });
    // Empty values of enumerations, rates with six decimals.
    let af = notified(FREE5GC, "n7-notify-af-create");
    assert_eq!(rules(&af), [("PccRuleId-2", 2, Some(1), Some(96))]);
    assert_eq!(af.gates, [("TcId-2".into(), Some(FlowGate::default()))]);
    let deleted = notified(FREE5GC, "n7-notify-af-delete");
    assert_eq!(deleted.rules, [("PccRuleId-3".into(), None)]);
    let influence = notified(FREE5GC, "n7-notify-influence");
    assert!(influence.rules.iter().flat_map(|(_, rule)| rule).all(|rule| rule.has_application));
}

#[test] // TS 29.512 §5.7.3
fn refusals_of_both_are_the_subscribers_or_the_pcfs_own() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let denied = |denial| PolicyAnswer::Denied(denial);
    let failed = |status| PolicyAnswer::Failed(ServiceFault::Status(status));
    let all = [
        (answer_of(OPEN5GS, "sm-create-unknown-user"), denied(PolicyDenial::UserUnknown)),
        (answer_of(OPEN5GS, "sm-create-unknown-slice"), denied(PolicyDenial::ContextDenied)),
        (answer_of(OPEN5GS, "sm-create-unknown-dnn"), failed(404)),
        (answer_of(FREE5GC, "sm-create-unknown-user"), denied(PolicyDenial::UserUnknown)),
        (answer_of(FREE5GC, "sm-create-without-am-policy"), denied(PolicyDenial::UserUnknown)),
        (problem(500, "SYSTEM_FAILURE"), failed(500)),
        (problem(503, "USER_UNKNOWN"), failed(503)),
    ];
    for (response, expected) in all {
        let pcf = pcf_with(vec![response]);
        assert_eq!(runtime.block_on(pcf.policy.answer(&create())), expected);
    }
}

#[test]
fn an_association_that_is_made_twice_is_deleted_once() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let made = |n: u32| created(&format!("{ROOT}/{n}"), &json!({}));
    let gone = SbiResponse::no_content();
    let pcf = pcf_with(vec![made(1), made(2), gone.clone(), made(2), gone]);
    runtime.block_on(async {
        // The answer to the first is lost in a takeover; so is that to the second, which names the same association again.
        for expected in ["1", "2", "2"] {
            assert_eq!(&*decided(pcf.policy.answer(&create()).await).reference, expected);
        }
        decided(pcf.policy.answer(&delete()).await);
        decided(pcf.policy.answer(&delete()).await); // nothing is left
    });
    let requests = pcf.function.requests();
    let paths: Vec<&str> =
        requests.iter().map(|(path, _)| path.rsplit("sm-policies").next().unwrap()).collect();
    assert_eq!(paths, ["", "", "/1/delete", "", "/2/delete"]);
}

#[test]
fn answers_that_no_pcf_should_give_are_failures() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let invalid = PolicyAnswer::Failed(ServiceFault::InvalidAnswer);
    let long = json!({ "pccRules": { "r".repeat(300): null } });
    let deep = format!("{{\"conds\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let many: serde_json::Map<String, Json> = (0..5_000).map(|n| (format!("r{n}"), Json::Null)).collect();
    let text = |body: String| {
        SbiResponse::with_body(hyper::StatusCode::CREATED, whimbrel_sbi::message::JSON, body.into())
            .header(hyper::header::LOCATION, format!("{ROOT}/1").parse().unwrap())
    };
    let all = [
        json_response(201, &json!({})),
        created("http://192.0.2.6/npcf-smpolicycontrol/v1/sm-policies", &json!({})),
        created(&format!("{ROOT}/.."), &json!({})),
        created(&format!("{ROOT}/{}", "9".repeat(300)), &json!({})),
        created(&format!("{ROOT}/1"), &long),
        created(&format!("{ROOT}/1"), &json!({ "pccRules": many })),
        text(deep),
        text("{\"pccRules\":".into()),
        text(format!("{{\"suppFeat\":\"{}\"}}", "0".repeat(1 << 20))),
    ];
    for (n, response) in all.into_iter().enumerate() {
        let pcf = pcf_with(vec![response, SbiResponse::no_content()]);
        assert_eq!(runtime.block_on(pcf.policy.answer(&create())), invalid, "{n}");
    }
    let silent = scripted_pcf(|_| None, Duration::from_millis(50));
    let answer = runtime.block_on(silent.policy.answer(&create()));
    assert_eq!(answer, PolicyAnswer::Failed(ServiceFault::TimedOut));
}

#[test]
fn a_rule_that_is_not_understood_is_marked_and_the_others_are_read() {
    let decision: Json = json!({
        "pccRules": {
            "tos": { "pccRuleId": "tos", "flowInfos": [{ "tosTrafficClass": "2804" }] },
            "text": { "pccRuleId": "text", "flowInfos": [{ "flowDescription": "permit out 17 from moon to assigned" }] },
            "one": { "pccRuleId": "one", "flowInfos": [{ "flowDescription": "permit out 17 from any to assigned 5" }] },
            "closed": { "pccRuleId": "closed", "refTcData": ["t"], "flowInfos": [{ "flowDescription": "permit in ip from any to any" }] }
        },
        "traffContDecs": { "t": { "tcId": "t", "flowStatus": "DISABLED" } }
    });
    let read = read_decision(&from_slice(decision.to_string().as_bytes()).unwrap(), |_| ()).unwrap();
    let unknown: Vec<_> =
        read.rules.iter().map(|(id, rule)| (&**id, rule.as_ref().unwrap().has_unknown_filter)).collect();
    assert_eq!(unknown, [("closed", false), ("one", false), ("text", true), ("tos", true)]);
    assert_eq!(read.gates, [("t".into(), Some(FlowGate { uplink: false, downlink: false }))]);
}

#[test] // TS 29.512 §4.2.3
fn orders_of_a_pcf_reach_the_session_that_the_path_names() {
    let (input, inputs) = mpsc::channel();
    let edge = callbacks_alone(input);
    let orders = std::thread::spawn(move || {
        let mut orders = Vec::new();
        for input in inputs {
            let SbiInput::PolicyNotified { supi, psi, notification, taken } = input else {
                panic!("a PCF's")
            };
            let is_here = supi == supi_of("imsi-999700000000001").unwrap();
            orders.push((psi.value(), *notification));
            taken.send(is_here).unwrap();
        }
        orders
    });
    runtime().block_on(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = SbiServer::start(listener, ServerSettings::default(), move |request| {
            let edge = edge.clone();
            async move { edge.serve(&request).await }
        });
        let server = server.unwrap();
        let client = SbiClient::new(ClientSettings::new("PCF"));
        let post = |path: &str, body: Json| {
            let uri = format!("http://{}/callbacks/pcf/{path}", server.address()).parse().unwrap();
            let request = SbiRequest::post(uri, &body, Duration::from_secs(5));
            let client = client.clone();
            async move { client.send(request).await.unwrap().status.as_u16() }
        };
        let here = "imsi-999700000000001/5";
        let changed = || exchange(OPEN5GS, "n7-notify-af-create")["body"].clone();
        assert_eq!(post(&format!("{here}/update"), changed()).await, 204);
        assert_eq!(post("imsi-999700000000002/5/update", changed()).await, 404);
        let end = json!({ "resourceUri": format!("{ROOT}/1"), "cause": "REACTIVATION_REQUESTED" });
        assert_eq!(post(&format!("{here}/terminate"), end).await, 204);
        for (path, body, status) in [
            (format!("{here}/update"), json!({}), 400),
            (format!("{here}/update"), json!({ "smPolicyDecision": { "pccRules": 1 } }), 400),
            (format!("{here}/update"), json!({ "smPolicyDecision": { "pccRules": { "": null } } }), 400),
            (format!("{here}/terminate"), json!({}), 400),
            (format!("{here}/other"), changed(), 404),
            (here.to_owned(), changed(), 404),
            ("imsi-999700000000001/16/update".to_owned(), changed(), 404),
            ("x/5/update".to_owned(), changed(), 404),
        ] {
            assert_eq!(post(&path, body).await, status, "{path}");
        }
    });
    let orders = orders.join().unwrap();
    let kinds: Vec<_> =
        orders.iter().map(|(psi, order)| (*psi, matches!(order, PolicyNotification::Changed(_)))).collect();
    assert_eq!(kinds, [(5, true), (5, true), (5, false)]);
    assert_eq!(orders[2].1, PolicyNotification::Terminated { reactivate: true });
}

#[test] // TS 29.507 §4.2.2, §4.2.5
fn a_ue_has_one_am_policy_association_while_it_is_registered() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let refused = answer_of(FREE5GC, "am-create-unknown-user"); // with status 200
    let made = answer_of(FREE5GC, "am-create-full");
    let answers = [refused, made, SbiResponse::no_content()];
    let function = ScriptedFunction::start(move |n| answers.get(n).cloned());
    let policy =
        PolicyControl::new(peer_at(NfType::Pcf, function.root.clone(), Duration::from_secs(5)), consumer());
    let supi = supi_of("imsi-999700000000001").unwrap();
    runtime.block_on(async {
        for _ in 0..3 {
            policy.registered(supi).await;
        }
        policy.deregistered(supi).await;
        policy.deregistered(supi).await;
    });
    let requests = function.requests();
    let root = "/npcf-am-policy-control/v1/policies";
    let paths: Vec<&str> = requests.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, [root, root, &format!("{root}/imsi-999700000000001-1")]);
    for (member, value) in [
        ("supi", json!("imsi-999700000000001")),
        ("accessType", json!("3GPP_ACCESS")),
        ("servingPlmn", json!({ "mcc": "999", "mnc": "70" })),
    ] {
        assert_eq!(requests[0].1[member], value, "{member}");
    }
}
