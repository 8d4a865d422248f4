//! The consumer of a CHF against what the CHF of free5GC answered (testdata/README.md), and against what no CHF should answer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value as Json, json};
use whimbrel_control::UeAddress;
use whimbrel_control::charging::{
    ChargedSession, ChargingAnswer, ChargingDenial, ChargingGrant, ChargingOperation, ChargingRequest,
    ChargingTrigger, FinalUnitAction, GrantedQuota, RatingGroup, UsedUnits,
};
use whimbrel_control::udm::{Ambr, NfType, ServiceFault};
use whimbrel_ids::{Instant, PduSessionId, SNssai};
use whimbrel_nas::ie::{PduSessionType, SscMode};
use whimbrel_sbi::message::JSON;
use whimbrel_sbi::{ClientSettings, SbiClient, SbiRequest, SbiResponse, SbiServer, ServerSettings};

use super::SbiInput;
use super::charging::Charging;
use super::identity::supi_of;
use super::scripted::{
    ScriptedFunction, callbacks_alone, consumer, created, json_response, peer_at, problem, recorded_response,
    runtime,
};
use crate::config::sbi::ApiRoot;
use crate::config::value::Value;

const FREE5GC: &str = include_str!("testdata/free5gc-chf-9fa9ec9.json");

/// The rating group of all requests.
const GROUP: RatingGroup = RatingGroup(1);

/// A CHF whose answers a test gives, with its consumer.
struct ScriptedChf {
    charging: Charging,
    function: ScriptedFunction,
}

/// `answer` gets the number of the request, from 0, and gives `None` where the CHF is silent.
fn scripted_chf(
    answer: impl Fn(usize) -> Option<SbiResponse> + Send + Sync + 'static,
    within: Duration,
) -> ScriptedChf {
    let function = ScriptedFunction::start(answer);
    ScriptedChf { charging: charging_at(function.root.clone(), within), function }
}

/// The consumer of the CHF at an API root.
pub(super) fn charging_at(root: ApiRoot, within: Duration) -> Charging {
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    Charging::new(peer_at(NfType::Chf, root, within), consumer(), address, [(GROUP, 1000)].into())
}

impl ScriptedChf {
    fn requests(&self) -> Vec<(String, Json)> {
        self.function.requests()
    }
}

/// A CHF that gives the same answer always.
fn constant_chf(response: SbiResponse) -> ScriptedChf {
    scripted_chf(move |_| Some(response.clone()), Duration::from_secs(5))
}

pub(super) fn request(sequence: u32, operation: ChargingOperation) -> ChargingRequest {
    let supi = supi_of("imsi-999700000000001").unwrap();
    let psi = PduSessionId::new(5).unwrap();
    ChargingRequest { supi, psi, charging_id: 77, sequence, operation }
}

pub(super) fn create() -> ChargingRequest {
    let session = ChargedSession {
        s_nssai: SNssai::sst(1),
        dnn: "internet".parse().unwrap(),
        session_type: PduSessionType::Ipv4v6,
        ssc_mode: SscMode::One,
        address: UeAddress {
            ipv4: Some(Ipv4Addr::new(10, 45, 0, 2)),
            ipv6: Some("2001:db8::".parse().unwrap()),
            interface_id: [0; 8],
        },
        ambr: Ambr { ul_kbps: 200_000, dl_kbps: 100_000 },
        tai: None,
        began: Instant(1_795_982_400_000_000),
    };
    request(0, ChargingOperation::Create(session.into(), GROUP))
}

pub(super) fn used(trigger: ChargingTrigger) -> UsedUnits {
    UsedUnits { rating_group: GROUP, uplink: 300, downlink: 500, time_s: 7, trigger, number: 2 }
}

fn update(sequence: u32, trigger: ChargingTrigger, last: bool) -> ChargingRequest {
    request(sequence, ChargingOperation::Update { reference: "r1".into(), used: used(trigger), last })
}

fn release(sequence: u32) -> ChargingRequest {
    let used = used(ChargingTrigger::Final);
    request(sequence, ChargingOperation::Release { reference: "r1".into(), used, deletion: None })
}

/// ChargingDataResponse with these unit informations.
fn data_response(informations: Json) -> Json {
    json!({
        "invocationTimeStamp": "2026-11-29T16:20:20Z",
        "invocationSequenceNumber": 1,
        "multipleUnitInformation": informations,
    })
}

fn granted(answer: ChargingAnswer) -> ChargingGrant {
    match answer {
        ChargingAnswer::Granted(grant) => *grant,
        other => panic!("{other:?}"),
    }
}

/// The answers of free5GC's CHF, in order.
fn recorded(recording: &str) -> Vec<SbiResponse> {
    let exchanges: Vec<Json> = serde_json::from_str(recording).unwrap();
    exchanges.iter().map(recorded_response).collect()
}

#[test] // grants nothing at the beginning, and writes empty values of enumerations
fn a_session_is_charged_at_the_chf_of_free5gc() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let answers = recorded(FREE5GC);
    let chf = scripted_chf(move |n| answers.get(n).cloned(), Duration::from_secs(5));
    runtime.block_on(async {
        let grant = granted(chf.charging.answer(&create()).await);
        let reference = "imsi-9997000000000011fce6ef0-82a3-4072-a2ea-964e89a706240";
        assert_eq!(&*grant.reference, reference);
        let quota = GrantedQuota {
            total: Some(1000),
            uplink: Some(1000),
            downlink: Some(1000),
            volume_threshold: Some(800),
            validity_s: Some(10_000),
            ..GrantedQuota::default()
        };
        assert_eq!(grant.quota, Some(quota));
        for sequence in [1, 2] {
            let answer = chf.charging.answer(&update(sequence, ChargingTrigger::QuotaThreshold, false)).await;
            assert_eq!(granted(answer).quota, Some(quota));
        }
        let last = granted(chf.charging.answer(&update(3, ChargingTrigger::QuotaThreshold, false)).await);
        let expected =
            GrantedQuota { volume_threshold: None, last: Some(FinalUnitAction::Terminate), ..quota };
        assert_eq!(last.quota, Some(expected));
        let exhausted = chf.charging.answer(&update(4, ChargingTrigger::QuotaExhausted, false)).await;
        assert_eq!(exhausted, ChargingAnswer::Denied(ChargingDenial::QuotaLimitReached));
        granted(chf.charging.answer(&release(5)).await);

        let requests = chf.requests();
        let paths: Vec<&str> = requests.iter().map(|(path, _)| path.as_str()).collect();
        let root = "/nchf-convergedcharging/v3/chargingdata";
        let first = format!("{root}/{reference}/update");
        let (later, end) = (format!("{root}/r1/update"), format!("{root}/r1/release"));
        assert_eq!(paths, [root, &first, &later, &later, &later, &later, &end]);
        let sequences: Vec<_> =
            requests.iter().map(|(_, body)| body["invocationSequenceNumber"].clone()).collect();
        assert_eq!(sequences, [0, 0, 1, 2, 3, 4, 5]);
        assert!(requests.iter().all(|(_, body)| body.get("retransmissionIndicator").is_none()));
        let of_create = &requests[0].1;
        assert_eq!(of_create["subscriberIdentifier"], "imsi-999700000000001");
        assert_eq!(of_create["chargingId"], 77);
        assert_eq!(of_create["notifyUri"], "http://192.0.2.1:7777/callbacks/chf/imsi-999700000000001/5");
        assert_eq!(of_create["nfConsumerIdentification"]["nodeFunctionality"], "SMF");
        assert_eq!(of_create["nfConsumerIdentification"]["nFIPv4Address"], "192.0.2.1");
        let usage = json!([{ "ratingGroup": 1, "requestedUnit": { "totalVolume": 1000 } }]);
        assert_eq!(of_create["multipleUnitUsage"], usage);
        let session = &of_create["pDUSessionChargingInformation"]["pduSessionInformation"];
        assert_eq!((&session["pduSessionID"], &session["dnnId"]), (&json!(5), &json!("internet")));
        assert_eq!(session["startTime"], "2026-11-29T20:00:00Z");
        assert_eq!(session["authorizedSessionAMBR"]["uplink"], "200 Mbps");
        let address = json!({ "pduIPv4Address": "10.45.0.2", "pduIPv6AddresswithPrefix": "2001:db8::/64" });
        assert_eq!(session["pduAddress"], address);
        // A report of no usage, to which free5GC grants.
        let container = &requests[1].1["multipleUnitUsage"][0]["usedUnitContainer"][0];
        assert_eq!(
            (&container["totalVolume"], &container["quotaManagementIndicator"]),
            (&json!(0), &json!("ONLINE_CHARGING"))
        );
        let container = &requests[2].1["multipleUnitUsage"][0]["usedUnitContainer"][0];
        let volumes = ["totalVolume", "uplinkVolume", "downlinkVolume", "time", "localSequenceNumber"];
        assert_eq!(volumes.map(|name| container[name].as_u64().unwrap()), [800, 300, 500, 7, 2]);
        assert_eq!(container["triggers"][0]["triggerType"], "QUOTA_THRESHOLD");
        let of_release = &requests[6].1;
        assert_eq!(of_release["triggers"][0]["triggerType"], "FINAL");
        assert_eq!(of_release["multipleUnitUsage"][0]["requestedUnit"], json!({ "totalVolume": 0 }));
    });
}

/// The answer to an update, if the CHF's has these unit informations.
async fn answer_with(informations: Json) -> ChargingAnswer {
    let chf = constant_chf(json_response(200, &data_response(informations)));
    chf.charging.answer(&update(1, ChargingTrigger::QuotaThreshold, false)).await
}

#[test] // TS 32.291 §6.1.6.2.1.6
fn each_grant_has_its_meaning() {
    let group = |granted: Json| json!([{ "ratingGroup": 1, "grantedUnit": granted }]);
    let none = GrantedQuota::default();
    let denied = |denial| Err(ChargingAnswer::Denied(denial));
    let limit = || denied(ChargingDenial::QuotaLimitReached);
    let with = |more: Json| {
        let mut information = json!({ "ratingGroup": 1, "grantedUnit": { "totalVolume": 1000, "time": 60 } });
        information.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([information])
    };
    let both = GrantedQuota { total: Some(1000), time_s: Some(60), ..none };
    let cases: Vec<(Json, Result<Option<GrantedQuota>, ChargingAnswer>)> = vec![
        (group(json!({ "totalVolume": 5 })), Ok(Some(GrantedQuota { total: Some(5), ..none }))),
        (group(json!({ "totalVolume": u64::MAX })), Ok(Some(GrantedQuota { total: Some(u64::MAX), ..none }))),
        (
            group(json!({ "totalVolume": 1u64 << 63 })),
            Ok(Some(GrantedQuota { total: Some(1 << 63), ..none })),
        ),
        (group(json!({ "time": 60 })), Ok(Some(GrantedQuota { time_s: Some(60), ..none }))),
        // Zero beside another amount is none.
        (
            group(json!({ "totalVolume": 9, "uplinkVolume": 0, "downlinkVolume": 0, "time": 0 })),
            Ok(Some(GrantedQuota { total: Some(9), ..none })),
        ),
        (group(json!({ "totalVolume": 0 })), limit()),
        (group(json!({ "totalVolume": 0, "uplinkVolume": 0, "time": 0 })), limit()),
        (group(json!({})), limit()),
        (json!([{ "ratingGroup": 1 }]), Ok(None)),
        (json!([]), Ok(None)),
        (json!([{ "ratingGroup": 9, "grantedUnit": { "totalVolume": 5 } }]), Ok(None)),
        (
            json!([
                { "ratingGroup": 9, "grantedUnit": { "totalVolume": 5 } },
                { "ratingGroup": 1, "grantedUnit": { "totalVolume": 6 } },
            ]),
            Ok(Some(GrantedQuota { total: Some(6), ..none })),
        ),
        (with(json!({ "resultCode": "SUCCESS" })), Ok(Some(both))),
        (with(json!({ "resultCode": "QUOTA_MANAGEMENT_NOT_APPLICABLE" })), Ok(None)),
        (with(json!({ "resultCode": "QUOTA_LIMIT_REACHED" })), limit()),
        (with(json!({ "resultCode": "USER_UNKNOWN" })), denied(ChargingDenial::UserUnknown)),
        (with(json!({ "resultCode": "END_USER_SERVICE_DENIED" })), denied(ChargingDenial::ServiceDenied)),
        (with(json!({ "resultCode": "END_USER_SERVICE_REJECTED" })), denied(ChargingDenial::ServiceDenied)),
        (with(json!({ "resultCode": "RATING_FAILED" })), denied(ChargingDenial::RatingFailed)),
        (
            with(
                json!({ "validityTime": 30, "quotaHoldingTime": 40, "volumeQuotaThreshold": 200, "timeQuotaThreshold": 6 }),
            ),
            Ok(Some(GrantedQuota {
                validity_s: Some(30),
                holding_s: Some(40),
                volume_threshold: Some(200),
                time_threshold_s: Some(6),
                ..both
            })),
        ),
        // Thresholds that are reached at once.
        (with(json!({ "volumeQuotaThreshold": 1000, "timeQuotaThreshold": 60 })), Ok(Some(both))),
        (
            with(json!({ "finalUnitIndication": { "finalUnitAction": "TERMINATE" } })),
            Ok(Some(GrantedQuota { last: Some(FinalUnitAction::Terminate), ..both })),
        ),
        (
            with(json!({ "finalUnitIndication": { "finalUnitAction": "REDIRECT",
                "redirectServer": { "redirectAddressType": "URL", "redirectServerAddress": "http://192.0.2.3/" } } })),
            Ok(Some(GrantedQuota { last: Some(FinalUnitAction::Block), ..both })),
        ),
        (
            with(json!({ "finalUnitIndication": { "finalUnitAction": "RESTRICT_ACCESS" } })),
            Ok(Some(GrantedQuota { last: Some(FinalUnitAction::Block), ..both })),
        ),
        (with(json!({ "finalUnitIndication": {} })), Ok(Some(both))),
        (
            group(json!({ "serviceSpecificUnits": 3 })),
            Err(ChargingAnswer::Failed(ServiceFault::InvalidAnswer)),
        ),
        (group(json!({ "totalVolume": -1 })), Err(ChargingAnswer::Failed(ServiceFault::InvalidAnswer))),
    ];
    runtime().block_on(async {
        for (informations, expected) in cases {
            let text = informations.to_string();
            let read = match answer_with(informations).await {
                ChargingAnswer::Granted(grant) => Ok(grant.quota),
                other => Err(other),
            };
            assert_eq!(read, expected, "{text}");
        }
    });
}

#[test] // TS 32.291 §6.1.7.3
fn each_refusal_of_a_chf_has_its_meaning() {
    let denied = ChargingAnswer::Denied;
    let failed = |status| ChargingAnswer::Failed(ServiceFault::Status(status));
    let cases = [
        (403, "QUOTA_LIMIT_REACHED", denied(ChargingDenial::QuotaLimitReached)),
        (403, "END_USER_REQUEST_DENIED", denied(ChargingDenial::ServiceDenied)),
        (403, "END_USER_REQUEST_REJECTED", denied(ChargingDenial::ServiceDenied)),
        (404, "USER_UNKNOWN", denied(ChargingDenial::UserUnknown)),
        (400, "RATING_FAILED", denied(ChargingDenial::RatingFailed)),
        (403, "CHARGING_NOT_APPLICABLE", failed(403)),
        (400, "CHARGING_FAILED", failed(400)),
        (404, "CONTEXT_NOT_FOUND", failed(404)),
        (500, "USER_UNKNOWN", failed(500)),
    ];
    runtime().block_on(async {
        for (status, cause, expected) in cases {
            for request in [create(), update(1, ChargingTrigger::QuotaExhausted, false)] {
                let chf = constant_chf(problem(status, cause));
                assert_eq!(chf.charging.answer(&request).await, expected, "{status} {cause}");
            }
        }
        let plain = constant_chf(SbiResponse::empty(StatusCode::NOT_FOUND));
        assert_eq!(plain.charging.answer(&create()).await, failed(404));
        // In a body of success.
        let body = json!({
            "invocationTimeStamp": "2026-11-29T16:20:20Z",
            "invocationSequenceNumber": 1,
            "invocationResult": { "error": { "status": 403, "cause": "QUOTA_LIMIT_REACHED" } },
        });
        let chf = constant_chf(json_response(200, &body));
        let answer = chf.charging.answer(&update(1, ChargingTrigger::QuotaExhausted, false)).await;
        assert_eq!(answer, denied(ChargingDenial::QuotaLimitReached));
    });
}

#[test]
fn the_resource_of_a_session_is_the_last_segment_of_its_location() {
    let body = data_response(json!([{ "ratingGroup": 1, "grantedUnit": { "totalVolume": 5 } }]));
    let root = "http://192.0.2.9:8000/nchf-convergedcharging/v3/chargingdata";
    let of = |location: Option<String>| {
        let response = match location {
            Some(location) => created(&location, &body),
            None => json_response(201, &body),
        };
        async move { constant_chf(response).charging.answer(&create()).await }
    };
    runtime().block_on(async {
        for (location, expected) in [
            (format!("{root}/abc-1.2~3%20"), "abc-1.2~3%20"),
            ("/nchf-convergedcharging/v2/chargingdata/7".into(), "7"),
            // Requests go to the CHF that was asked, whatever host stands here.
            ("https://example.org/x?y=/z#/q".into(), "x"),
            (format!("{root}/{}", "r".repeat(256)), &*"r".repeat(256)),
        ] {
            assert_eq!(&*granted(of(Some(location)).await).reference, expected);
        }
        let long = "r".repeat(10 << 10);
        for wrong in ["", "/", "..", ".", "x y", "x\\y", &"r".repeat(257), &long]
            .map(|end| Some(format!("{root}/{end}")))
        {
            let answer = of(wrong.clone()).await;
            assert_eq!(answer, ChargingAnswer::Failed(ServiceFault::InvalidAnswer), "{wrong:?}");
        }
        for wrong in [None, Some(root.to_owned())] {
            assert_eq!(of(wrong).await, ChargingAnswer::Failed(ServiceFault::InvalidAnswer));
        }
    });
}

#[test]
fn what_no_chf_should_answer_is_a_fault_and_no_more() {
    let bodies = [
        b"".to_vec(),
        b"null".to_vec(),
        b"{}".to_vec(),
        "[".repeat(10_000).into_bytes(),
        br#"{"invocationTimeStamp":7,"invocationSequenceNumber":1}"#.to_vec(),
        br#"{"invocationTimeStamp":"2026-11-29T16:20:20Z","invocationSequenceNumber":99999999999}"#.to_vec(),
        br#"{"invocationTimeStamp":"2026-11-29T16:20:20Z","invocationSequenceNumber":1,"multipleUnitInformation":[{"ratingGroup":1,"grantedUnit":{"totalVolume":18446744073709551616}}]}"#.to_vec(),
        vec![0xff; 100],
        vec![b' '; 16 << 20],
    ];
    runtime().block_on(async {
        for body in bodies {
            let text = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            let chf = constant_chf(SbiResponse::with_body(StatusCode::OK, JSON, body.into()));
            let answer = chf.charging.answer(&update(1, ChargingTrigger::QuotaThreshold, false)).await;
            assert_eq!(answer, ChargingAnswer::Failed(ServiceFault::InvalidAnswer), "{text}");
        }
    });
}

#[test]
fn a_session_without_a_quota_is_recorded() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let body = data_response(json!([{ "ratingGroup": 1, "resultCode": "QUOTA_MANAGEMENT_NOT_APPLICABLE" }]));
    let chf = scripted_chf(
        move |n| Some(if n == 0 { created("/x/r1", &body) } else { SbiResponse::no_content() }),
        Duration::from_secs(5),
    );
    runtime.block_on(async {
        assert_eq!(granted(chf.charging.answer(&create()).await).quota, None);
        granted(chf.charging.answer(&release(1)).await);
        let requests = chf.requests();
        assert_eq!(requests.len(), 2);
        let usage = &requests[1].1["multipleUnitUsage"][0];
        assert_eq!(usage["usedUnitContainer"][0]["quotaManagementIndicator"], "OFFLINE_CHARGING");
        assert_eq!(usage.get("requestedUnit"), None);
    });
}

#[test] // the SMF has no session to which it could belong
fn the_resource_of_a_refused_session_is_released() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let limit = data_response(json!([{ "ratingGroup": 1, "resultCode": "QUOTA_LIMIT_REACHED" }]));
    let chf = scripted_chf(
        move |n| Some(if n == 0 { created("/x/r9", &limit) } else { SbiResponse::no_content() }),
        Duration::from_secs(5),
    );
    runtime.block_on(async {
        let answer = chf.charging.answer(&create()).await;
        assert_eq!(answer, ChargingAnswer::Denied(ChargingDenial::QuotaLimitReached));
        let requests = chf.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[1].0, "/nchf-convergedcharging/v3/chargingdata/r9/release");
        assert_eq!(requests[1].1["invocationSequenceNumber"], 1);
        let container = &requests[1].1["multipleUnitUsage"][0]["usedUnitContainer"][0];
        assert_eq!(container["totalVolume"], 0);
    });
}

#[test]
fn a_last_report_asks_for_nothing_and_reads_no_quota() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let body = data_response(json!([{ "ratingGroup": 1, "grantedUnit": {} }]));
    let chf = constant_chf(json_response(200, &body));
    runtime.block_on(async {
        let answer = chf.charging.answer(&update(3, ChargingTrigger::QuotaExhausted, true)).await;
        assert_eq!(granted(answer), ChargingGrant::default());
        let usage = chf.requests()[0].1["multipleUnitUsage"][0].clone();
        assert_eq!(usage["requestedUnit"], json!({ "totalVolume": 0 }));
    });
}

#[test] // TS 32.290 §5.5: the CHF counts it once
fn a_repeated_request_keeps_its_number_and_is_marked() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let body = data_response(json!([{ "ratingGroup": 1, "grantedUnit": { "totalVolume": 5 } }]));
    let chf = scripted_chf(
        move |n| match n {
            0 => Some(problem(500, "SYSTEM_FAILURE")),
            2 => None,
            _ => Some(json_response(200, &body)),
        },
        Duration::from_secs(1),
    );
    runtime.block_on(async {
        let first = update(1, ChargingTrigger::QuotaThreshold, false);
        let answer = chf.charging.answer(&first).await;
        assert_eq!(answer, ChargingAnswer::Failed(ServiceFault::Status(500)));
        let second = chf.charging.answer(&first).await;
        granted(second.clone());
        // It was answered: the CHF is not asked again.
        assert_eq!(chf.charging.answer(&first).await, second);
        // An answer that is lost.
        granted(chf.charging.answer(&update(2, ChargingTrigger::QuotaThreshold, false)).await);
        let marks: Vec<_> = chf
            .requests()
            .iter()
            .map(|(_, body)| {
                (body["invocationSequenceNumber"].as_u64(), body["retransmissionIndicator"].as_bool())
            })
            .collect();
        assert_eq!(marks, [(Some(1), None), (Some(1), Some(true)), (Some(2), None), (Some(2), Some(true))]);
    });
}

#[test]
fn a_chf_that_is_silent_or_not_there_is_a_fault() {
    runtime().block_on(async {
        let silent = scripted_chf(|_| None, Duration::from_secs(1));
        let answer = silent.charging.answer(&create()).await;
        assert_eq!(answer, ChargingAnswer::Failed(ServiceFault::TimedOut));
        assert_eq!(silent.requests().len(), 2);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let root = ApiRoot::read(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        drop(listener);
        let answer = charging_at(root, Duration::from_secs(5)).answer(&create()).await;
        assert_eq!(answer, ChargingAnswer::Failed(ServiceFault::NotConnected));
    });
}

#[test] // the SMF has given up waiting for the answer to Create
fn a_release_without_a_reference_is_of_the_resource_that_was_created() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let body = data_response(json!([{ "ratingGroup": 1, "grantedUnit": { "totalVolume": 5 } }]));
    let chf = scripted_chf(
        move |n| {
            Some(match n {
                0 => created("/x/r8", &body),
                1 => problem(500, "SYSTEM_FAILURE"),
                _ => SbiResponse::no_content(),
            })
        },
        Duration::from_secs(5),
    );
    let used = used(ChargingTrigger::Final);
    let end = request(1, ChargingOperation::Release { reference: "".into(), used, deletion: None });
    runtime.block_on(async {
        // Nothing was created.
        granted(chf.charging.answer(&end).await);
        granted(chf.charging.answer(&create()).await);
        let answer = chf.charging.answer(&end).await;
        assert_eq!(answer, ChargingAnswer::Failed(ServiceFault::Status(500)));
        granted(chf.charging.answer(&end).await);
        let requests = chf.requests();
        let paths: Vec<&str> = requests.iter().map(|(path, _)| path.as_str()).collect();
        let root = "/nchf-convergedcharging/v3/chargingdata";
        let release = format!("{root}/r8/release");
        assert_eq!(paths, [root, &release, &release]);
        assert_eq!(requests[2].1["retransmissionIndicator"], true);
    });
}

#[test]
fn a_release_of_an_unknown_resource_is_done() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let chf = constant_chf(problem(404, "CONTEXT_NOT_FOUND"));
    runtime.block_on(async {
        granted(chf.charging.answer(&release(4)).await);
        let chf = constant_chf(problem(500, "SYSTEM_FAILURE"));
        let answer = chf.charging.answer(&release(4)).await;
        assert_eq!(answer, ChargingAnswer::Failed(ServiceFault::Status(500)));
    });
}

#[test] // TS 32.290 §5.3.2.5
fn orders_of_a_chf_reach_the_session_that_the_path_names() {
    let (input, inputs) = mpsc::channel();
    let edge = callbacks_alone(input);
    runtime().block_on(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = SbiServer::start(listener, ServerSettings::default(), move |request| {
            let edge = edge.clone();
            async move { edge.serve(&request).await }
        });
        let server = server.unwrap();
        let client = SbiClient::new(ClientSettings::new("CHF"));
        let post = |path: &str, body: Json| {
            let uri = format!("http://{}{path}", server.address()).parse().unwrap();
            let request = SbiRequest::post(uri, &body, Duration::from_secs(5));
            let client = client.clone();
            async move { client.send(request).await.unwrap().status.as_u16() }
        };
        let path = "/callbacks/chf/imsi-999700000000001/5";
        let order = |kind: &str| json!({ "notificationType": kind });
        assert_eq!(post(path, order("REAUTHORIZATION")).await, 204);
        assert_eq!(post(path, order("ABORT_CHARGING")).await, 204);
        assert_eq!(post(path, order("SOMETHING_ELSE")).await, 400);
        assert_eq!(post(path, json!({})).await, 400);
        for wrong in [
            "/callbacks/chf/imsi-999700000000001/16",
            "/callbacks/chf/x/5",
            "/callbacks/chf/imsi-999700000000001",
        ] {
            assert_eq!(post(wrong, order("REAUTHORIZATION")).await, 404, "{wrong}");
        }
    });
    let supi = supi_of("imsi-999700000000001").unwrap();
    let orders: Vec<_> = inputs
        .try_iter()
        .map(|input| match input {
            SbiInput::ChargingNotified { supi, psi, abort } => (supi, psi.value(), abort),
            _ => panic!("another input"),
        })
        .collect();
    assert_eq!(orders, [(supi, 5, false), (supi, 5, true)]);
}
