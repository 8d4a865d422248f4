//! The AMF of this core with a scripted SMF: requests as they leave, answers with messages for UE and gNB, and malformed messages of an SMF.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json};
use whimbrel_control::sm_contexts::{
    HandoverStep, N2SmKind, NewSmContext, SmContextChange, SmfAnswer, SmfMessage, SmfOperation, SmfOrder,
    SmfRequest, UePlace, UserPlaneChange,
};
use whimbrel_control::udm::{NfType, ServiceFault};
use whimbrel_ids::{NrCellId, PduSessionId, PlmnId, SNssai, Tac, Tai};
use whimbrel_nas::sm;
use whimbrel_ngap::ie::{NgranCgi, NrCgi};
use whimbrel_ngap::transfer::{
    HandoverCommandTransfer, PathSwitchRequestAcknowledgeTransfer, PduSessionResourceReleaseCommandTransfer,
    PduSessionResourceSetupRequestTransfer,
};
use whimbrel_sbi::{ClientSettings, SbiClient, SbiRequest, SbiResponse, SbiServer, ServerSettings};
use whimbrel_sbi_types::multipart::{BodyPart, Multipart, NAS_5G, NGAP};

use super::identity::supi_of;
use super::offered::{CallbackPolicy, ServiceAuthorization};
use super::scripted::{
    ScriptedFunction, callbacks_alone, consumer, created, json_response, peer_at, problem, runtime,
};
use super::smf::RemoteSmContexts;
use super::{OrderOutcome, RemoteSmf, SbiInput, SbiThread};
use crate::config::Config;

const SUPI: &str = "imsi-999700000000001";
const ROOT: &str = "http://192.0.2.5:7777/nsmf-pdusession/v1/sm-contexts";
const WITHIN: Duration = Duration::from_secs(5);

fn contexts(answers: Vec<SbiResponse>) -> (RemoteSmContexts, ScriptedFunction) {
    let function = ScriptedFunction::start(move |n| answers.get(n).or(answers.last()).cloned());
    let peer = peer_at(NfType::Smf, function.root.clone(), WITHIN);
    (RemoteSmContexts::new(peer, client(), consumer(), WITHIN), function)
}

fn config() -> Config {
    let text = "sbi: { address: 127.0.0.1:7777, smf: \"http://127.0.0.1:7779\" }";
    crate::config::parse(text, Path::new("core.yaml")).unwrap()
}

fn client() -> SbiClient {
    SbiClient::new(ClientSettings::new("AMF"))
}

fn psi() -> PduSessionId {
    PduSessionId::new(5).unwrap()
}

fn request(operation: SmfOperation) -> SmfRequest {
    SmfRequest { supi: supi_of(SUPI).unwrap(), psi: psi(), operation }
}

fn place() -> UePlace {
    let tai = Tai { plmn: PlmnId::TEST, tac: Tac::new(1).unwrap() };
    let cell = NgranCgi::NrCgi(NrCgi::new(PlmnId::TEST, NrCellId::new(0x1_2345_6789).unwrap()));
    UePlace { tai: Some(tai), cell: Some(cell) }
}

fn create() -> SmfRequest {
    let new = NewSmContext {
        s_nssai: SNssai::sst(1),
        dnn: "internet".parse().unwrap(),
        existing: false,
        emergency: false,
        pei: None,
        place: place(),
        n1: vec![0x2e, 5, 1, 0xc1],
    };
    request(SmfOperation::Create(new.into()))
}

fn update(change: SmContextChange) -> SmfRequest {
    request(SmfOperation::Update { reference: "urn:uuid:1".into(), change: change.into() })
}

/// A body of several parts, as a function writes it.
fn with_parts(json: &Json, parts: &[(&str, &str, &[u8])]) -> (String, Vec<u8>) {
    let json = json.to_string();
    let parts =
        parts.iter().map(|(content_id, content_type, octets)| BodyPart { content_id, content_type, octets });
    Multipart { json: json.as_bytes(), parts: parts.collect() }.write()
}

fn response(status: u16, json: &Json, parts: &[(&str, &str, &[u8])]) -> SbiResponse {
    let (content_type, octets) = with_parts(json, parts);
    let mut response = SbiResponse::empty(StatusCode::from_u16(status).unwrap());
    response.headers.insert("content-type", HeaderValue::try_from(content_type).unwrap());
    SbiResponse { body: octets.into(), ..response }
}

#[test] // TS 29.502 §5.2.2.2, §5.2.2.3, §5.2.2.4
fn an_sm_context_is_created_changed_and_released() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let setup = json!({
        "upCnxState": "ACTIVATING", "n2SmInfoType": "PDU_RES_SETUP_REQ", "n2SmInfo": { "contentId": "ngap-sm" },
    });
    let (smf, function) = contexts(vec![
        created(&format!("{ROOT}/urn:uuid:1"), &json!({ "jsonData": {} })),
        response(200, &setup, &[("ngap-sm", NGAP, &[1, 2])]),
        SbiResponse::no_content(),
        SbiResponse::no_content(),
    ]);
    let answers = runtime.block_on(async {
        let activate = SmContextChange {
            user_plane: Some(UserPlaneChange::Activating),
            place: place(),
            ..SmContextChange::default()
        };
        let set_up =
            SmContextChange { n2: Some((N2SmKind::PduResSetupRsp, vec![3])), ..SmContextChange::default() };
        let release = SmfOperation::Release { reference: "urn:uuid:1".into(), place: place() };
        [
            smf.answer(&create()).await,
            smf.answer(&update(activate)).await,
            smf.answer(&update(set_up)).await,
            smf.answer(&request(release)).await,
        ]
    });
    let message = SmfMessage { n2: Some((N2SmKind::PduResSetupReq, vec![1, 2])), ..SmfMessage::default() };
    assert_eq!(
        answers,
        [
            SmfAnswer::Created { reference: "urn:uuid:1".into() },
            SmfAnswer::Done(message.into()),
            SmfAnswer::Done(Box::default()),
            SmfAnswer::Done(Box::default()),
        ]
    );
    let requests = function.requests();
    let paths: Vec<&str> = requests.iter().map(|(path, _)| path.as_str()).collect();
    let context = "/nsmf-pdusession/v1/sm-contexts/urn:uuid:1";
    let [modify, release] = ["modify", "release"].map(|operation| format!("{context}/{operation}"));
    assert_eq!(paths, ["/nsmf-pdusession/v1/sm-contexts", &modify, &modify, &release]);
    let plmn = json!({ "mcc": "999", "mnc": "70" });
    let location = json!({ "nrLocation": {
        "tai": { "plmnId": plmn, "tac": "000001" }, "ncgi": { "plmnId": plmn, "nrCellId": "123456789" },
    } });
    assert_eq!(
        requests[0].1,
        json!({
            "supi": SUPI, "pduSessionId": 5, "dnn": "internet", "sNssai": { "sst": 1 },
            "servingNfId": consumer().amf.as_str(), "guami": { "plmnId": plmn, "amfId": "020040" },
            "serviceName": "namf-comm", "servingNetwork": plmn, "requestType": "INITIAL_REQUEST",
            "n1SmMsg": { "contentId": "n1-sm-message" }, "anType": "3GPP_ACCESS", "ratType": "NR",
            "ueLocation": location,
            "smContextStatusUri": format!("http://192.0.2.1:7777/callbacks/smf/{SUPI}/5/status"),
            NAS_5G: "2e0501c1",
        })
    );
    assert_eq!(
        requests[1].1,
        json!({ "anType": "3GPP_ACCESS", "ueLocation": location, "upCnxState": "ACTIVATING" })
    );
    assert_eq!(
        requests[2].1,
        json!({
            "anType": "3GPP_ACCESS", "n2SmInfoType": "PDU_RES_SETUP_RSP", "n2SmInfo": { "contentId": "n2-sm-information" },
            NGAP: "03",
        })
    );
}

#[test] // free5GC's SMF takes no part of more than 1,400 octets
fn a_body_of_a_new_session_is_short() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let (smf, function) = contexts(vec![created(&format!("{ROOT}/1"), &json!({}))]);
    runtime.block_on(smf.answer(&create()));
    let body = &function.requests()[0].1;
    assert!(body.to_string().len() < 1_200, "{}", body.to_string().len());
}

#[test] // TS 29.502 §6.1.6.3.3
fn each_stage_of_a_handover_has_its_state() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let (smf, function) = contexts(vec![SbiResponse::no_content()]);
    let stages = [
        (HandoverStep::Preparing, "PREPARING"),
        (HandoverStep::Prepared, "PREPARED"),
        (HandoverStep::Completed, "COMPLETED"),
        (HandoverStep::Cancelled, "CANCELLED"),
    ];
    for (stage, _) in stages {
        let change = SmContextChange { handover: Some(stage), ..SmContextChange::default() };
        runtime.block_on(smf.answer(&update(change)));
    }
    let states: Vec<Json> = function.requests().iter().map(|(_, body)| body["hoState"].clone()).collect();
    assert_eq!(states, stages.map(|(_, state)| Json::from(state)));
}

#[test] // TS 29.502 §6.1.7.3
fn a_refusal_brings_its_messages() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let error =
        json!({ "error": { "status": 403, "cause": "DNN_NOT_SUPPORTED" }, "n1SmMsg": { "contentId": "n1" } });
    let (smf, _function) = contexts(vec![
        response(403, &error, &[("n1", NAS_5G, &[0x2e, 5, 1, 0xc3, 27])]),
        problem(404, "CONTEXT_NOT_FOUND"),
    ]);
    let message = SmfMessage { n1: Some(vec![0x2e, 5, 1, 0xc3, 27]), ..SmfMessage::default() };
    assert_eq!(
        runtime.block_on(smf.answer(&create())),
        SmfAnswer::Refused { status: 403, message: message.into() }
    );
    let change = SmContextChange { n1: Some(vec![1]), ..SmContextChange::default() };
    assert_eq!(
        runtime.block_on(smf.answer(&update(change))),
        SmfAnswer::Refused { status: 404, message: Box::default() }
    );
}

#[test]
fn an_answer_that_cannot_be_used_is_a_fault_of_the_smf() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let info = json!({ "n2SmInfoType": "PDU_RES_SETUP_REQ", "n2SmInfo": { "contentId": "other" } });
    let long = vec![0; 9 << 10];
    for wrong in [
        response(200, &info, &[("n2", NGAP, &[1])]),
        response(200, &json!({ "n2SmInfo": { "contentId": "n2" } }), &[("n2", NGAP, &[1])]),
        response(
            200,
            &json!({ "n2SmInfoType": "OF_REL_19", "n2SmInfo": { "contentId": "n2" } }),
            &[("n2", NGAP, &[1])],
        ),
        response(200, &json!({ "n1SmMsg": { "contentId": "n1" } }), &[("n1", NAS_5G, &long)]),
        json_response(200, &json!({ "n1SmMsg": "x" })),
        SbiResponse { body: "--cut".into(), ..response(200, &json!({}), &[("n1", NAS_5G, &[1])]) },
    ] {
        let (smf, _function) = contexts(vec![wrong]);
        let answer = runtime.block_on(smf.answer(&update(SmContextChange::default())));
        assert_eq!(answer, SmfAnswer::Failed(ServiceFault::InvalidAnswer));
    }
    for location in [ROOT, "http://192.0.2.5/../.."] {
        let (smf, _function) = contexts(vec![created(location, &json!({}))]);
        let answer = runtime.block_on(smf.answer(&create()));
        assert_eq!(answer, SmfAnswer::Failed(ServiceFault::InvalidAnswer), "{location}");
    }
}

/// A core that takes the orders of an SMF, where a UE is in this state.
struct ServedAmf {
    server: SbiServer,
    orders: mpsc::Receiver<(String, u8, SmfOrder)>,
}

fn amf(outcome: OrderOutcome) -> ServedAmf {
    let (input, inputs) = mpsc::channel();
    let (to, orders) = mpsc::channel();
    std::thread::spawn(move || {
        for input in inputs {
            if let SbiInput::SmfOrdered { supi, psi, order, taken } = input {
                let _ = to.send((supi.to_string(), psi.value(), *order));
                let _ = taken.send(outcome);
            }
        }
    });
    let (contexts, _function) = contexts(vec![SbiResponse::no_content()]);
    let config = config();
    let sbi = config.sbi.as_ref().unwrap();
    let smf = RemoteSmf {
        contexts,
        authorization: ServiceAuthorization::new(sbi, &consumer()).unwrap(),
        callbacks: CallbackPolicy::new(vec![config.api.address]),
        root: "http://192.0.2.1:7777".into(),
    };
    let mut edge = callbacks_alone(input);
    let thread: &mut SbiThread = std::sync::Arc::get_mut(&mut edge).unwrap();
    thread.smf = Some(smf);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = SbiServer::start(listener, ServerSettings::default(), move |request| {
        let edge = edge.clone();
        async move { edge.serve(&request).await }
    });
    ServedAmf { server: server.unwrap(), orders }
}

impl ServedAmf {
    async fn post(&self, path: &str, content_type: &str, body: Vec<u8>) -> SbiResponse {
        let uri = format!("http://{}{path}", self.server.address()).parse().unwrap();
        let request = SbiRequest::new(Method::POST, uri, WITHIN);
        let request = request.content(HeaderValue::try_from(content_type).unwrap(), body.into());
        client().send(request).await.unwrap()
    }

    async fn transfer(&self, json: &Json, parts: &[(&str, &str, &[u8])]) -> SbiResponse {
        let (content_type, body) = with_parts(json, parts);
        self.post(&format!("/namf-comm/v1/ue-contexts/{SUPI}/n1-n2-messages"), &content_type, body).await
    }
}

fn message_data() -> Json {
    json!({
        "pduSessionId": 5,
        "n1MessageContainer": { "n1MessageClass": "SM", "n1MessageContent": { "contentId": "GSM_NAS" } },
        "n2InfoContainer": { "n2InformationClass": "SM", "smInfo": {
            "pduSessionId": 5, "sNssai": { "sst": 1 },
            "n2InfoContent": { "ngapIeType": "PDU_RES_SETUP_REQ", "ngapData": { "contentId": "N2SmInformation" } },
        } },
        "n1n2FailureTxfNotifURI": "http://127.0.0.1:9000/failed",
    })
}

const PARTS: [(&str, &str, &[u8]); 2] =
    [("GSM_NAS", NAS_5G, &[0x2e, 5, 1, 0xc2]), ("N2SmInformation", NGAP, &[7])];

#[test] // TS 29.518 §5.2.2.3.1.2
fn messages_of_the_smf_become_an_input_and_are_answered_by_the_state_of_the_ue() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (outcome, status, cause) in [
        (OrderOutcome::Sent, 200, "N1_N2_TRANSFER_INITIATED"),
        (OrderOutcome::NotSent, 200, "N1_MSG_NOT_TRANSFERRED"),
        (OrderOutcome::Paging, 202, "ATTEMPTING_TO_REACH_UE"),
        (OrderOutcome::Unknown, 404, "CONTEXT_NOT_FOUND"),
    ] {
        let amf = amf(outcome);
        let response = runtime.block_on(amf.transfer(&message_data(), &PARTS));
        let body: Json = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((response.status.as_u16(), &body["cause"]), (status, &Json::from(cause)));
        let location = (status == 202)
            .then(|| format!("http://192.0.2.1:7777/namf-comm/v1/ue-contexts/{SUPI}/n1-n2-messages/5"));
        assert_eq!(response.location(), location.as_deref());
        let message = SmfMessage {
            n1: Some(vec![0x2e, 5, 1, 0xc2]),
            n2: Some((N2SmKind::PduResSetupReq, vec![7])),
            failure_uri: Some("http://127.0.0.1:9000/failed".into()),
            ..SmfMessage::default()
        };
        let (supi, psi, order) = amf.orders.recv().unwrap();
        assert_eq!((supi.as_str(), psi), (SUPI, 5));
        assert_eq!(order, SmfOrder::Transfer(message));
    }
}

#[test] // TS 29.502 §5.2.2.5
fn the_end_of_a_session_becomes_an_input() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let amf = amf(OrderOutcome::Sent);
    let path = format!("/callbacks/smf/{SUPI}/5/status");
    let status =
        |status: &str| json!({ "statusInfo": { "resourceStatus": status } }).to_string().into_bytes();
    let response = runtime.block_on(amf.post(&path, "application/json", status("UPDATED")));
    assert_eq!(response.status, 204);
    let response = runtime.block_on(amf.post(&path, "application/json", status("RELEASED")));
    assert_eq!((response.status.as_u16(), amf.orders.recv().unwrap().2), (204, SmfOrder::Released));
}

#[test]
fn what_an_smf_should_not_send_is_refused() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let amf = amf(OrderOutcome::Sent);
    let changed = |change: &dyn Fn(&mut Json)| {
        let mut data = message_data();
        change(&mut data);
        data
    };
    for (data, cause) in [
        (json!({ "pduSessionId": 5 }), "MANDATORY_IE_MISSING"),
        (
            changed(&|data| data["n1MessageContainer"]["n1MessageClass"] = "LPP".into()),
            "MANDATORY_IE_INCORRECT",
        ),
        (
            changed(&|data| data["n2InfoContainer"]["n2InformationClass"] = "PWS".into()),
            "MANDATORY_IE_INCORRECT",
        ),
        (changed(&|data| data["n2InfoContainer"]["smInfo"] = Json::Null), "MANDATORY_IE_MISSING"),
        (
            changed(&|data| {
                data["n2InfoContainer"]["smInfo"]["n2InfoContent"]["ngapIeType"] = "HANDOVER_CMD".into();
            }),
            "MANDATORY_IE_INCORRECT",
        ),
        (
            changed(&|data| data["n1MessageContainer"]["n1MessageContent"]["contentId"] = "none".into()),
            "INVALID_MSG_FORMAT",
        ),
        (changed(&|data| data["pduSessionId"] = 0.into()), "MANDATORY_IE_INCORRECT"),
    ] {
        let response = runtime.block_on(amf.transfer(&data, &PARTS));
        let body: Json = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((response.status.as_u16(), &body["cause"]), (400, &Json::from(cause)), "{data}");
    }
    // A body of several parts that was cut at each octet.
    let (content_type, body) = with_parts(&message_data(), &PARTS);
    let path = format!("/namf-comm/v1/ue-contexts/{SUPI}/n1-n2-messages");
    for octets in (0..body.len() - 4).step_by(7) {
        let response = runtime.block_on(amf.post(&path, &content_type, body[..octets].to_vec()));
        assert_eq!(response.status, 400, "{octets}");
    }
    for (path, status) in [
        (format!("/namf-comm/v1/ue-contexts/{SUPI}/transfer"), 404),
        ("/namf-comm/v1/ue-contexts/imsi-1x/n1-n2-messages".into(), 404),
        ("/callbacks/smf/x/5/status".into(), 404),
        (format!("/callbacks/smf/{SUPI}/200/status"), 404),
        (format!("/callbacks/smf/{SUPI}/5/other"), 404),
    ] {
        let response = runtime.block_on(amf.post(&path, "application/json", b"{}".to_vec()));
        assert_eq!(response.status, status, "{path}");
    }
    assert!(amf.orders.try_recv().is_err());
}

#[test] // a URI that leads to this core would let an SMF reach, through it, what it cannot reach itself
fn a_failure_is_not_reported_to_this_core() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let amf = amf(OrderOutcome::Paging);
    let own = config().api.address;
    let mut data = message_data();
    data["n1n2FailureTxfNotifURI"] = format!("http://{own}/api/v1/ues").into();
    runtime.block_on(amf.transfer(&data, &PARTS));
    let SmfOrder::Transfer(message) = amf.orders.recv().unwrap().2 else { panic!("a message") };
    assert_eq!((message.failure_uri, message.n1.is_some()), (None, true));
}

/// Bodies that SMFs of other vendors sent (testdata/README.md).
fn recorded(name: &str) -> Vec<(&'static str, String, Vec<u8>)> {
    let peers = [
        ("Open5GS", include_str!("testdata/open5gs-smf-2.7.7-6.json")),
        ("free5GC", include_str!("testdata/free5gc-smf-1.4.4.json")),
    ];
    let of = |(peer, text): (&'static str, &str)| {
        let all: Vec<Json> = serde_json::from_str(text).unwrap();
        let body = all.into_iter().find(|body| body["name"] == name)?;
        let hex = body["body"].as_str().unwrap();
        let octets = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap());
        Some((peer, body["contentType"].as_str().unwrap().to_owned(), octets.collect()))
    };
    peers.into_iter().filter_map(of).collect()
}

#[test]
fn messages_of_other_vendors_smfs_are_taken() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let path = format!("/namf-comm/v1/ue-contexts/{SUPI}/n1-n2-messages");
    for (name, has_n1) in [("transfer", true), ("transfer to page", false)] {
        let bodies = recorded(name);
        assert_eq!(bodies.len(), 2);
        for (peer, content_type, body) in bodies {
            let amf = amf(OrderOutcome::Sent);
            let response = runtime.block_on(amf.post(&path, &content_type, body));
            assert_eq!(response.status, 200, "{peer}: {name}");
            let (_, psi, order) = amf.orders.recv().unwrap();
            let SmfOrder::Transfer(message) = order else { panic!("{peer}: {name}") };
            let Some((N2SmKind::PduResSetupReq, transfer)) = message.n2 else { panic!("{peer}: {name}") };
            PduSessionResourceSetupRequestTransfer::decode(&transfer).unwrap();
            let accept = message.n1.map(|n1| sm::Message::decode(&n1).unwrap().body);
            assert_eq!(accept.is_some(), has_n1, "{peer}: {name}");
            assert!(
                accept.is_none_or(|body| matches!(body, sm::Body::EstablishmentAccept(_))),
                "{peer}: {name}"
            );
            assert_eq!(psi, 1);
        }
    }
}

#[test]
fn answers_of_other_vendors_smfs_are_read() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, kind) in [
        ("ACTIVATING", N2SmKind::PduResSetupReq),
        ("PATH_SWITCH_REQ", N2SmKind::PathSwitchReqAck),
        ("PREPARING", N2SmKind::PduResSetupReq),
        ("PREPARED", N2SmKind::HandoverCmd),
        ("RELEASE REQUEST", N2SmKind::PduResRelCmd),
    ] {
        let bodies = recorded(name);
        assert_eq!(bodies.len(), 2);
        for (peer, content_type, body) in bodies {
            let mut response = SbiResponse::empty(StatusCode::OK);
            response.headers.insert("content-type", HeaderValue::try_from(content_type).unwrap());
            let (smf, _function) = contexts(vec![SbiResponse { body: body.into(), ..response }]);
            let answer = runtime.block_on(smf.answer(&update(SmContextChange::default())));
            let SmfAnswer::Done(message) = answer else { panic!("{peer}: {name}: {answer:?}") };
            let (of, transfer) = message.n2.unwrap();
            assert_eq!(of, kind, "{peer}: {name}");
            let is_read = match kind {
                N2SmKind::PduResSetupReq => PduSessionResourceSetupRequestTransfer::decode(&transfer).is_ok(),
                N2SmKind::PathSwitchReqAck => PathSwitchRequestAcknowledgeTransfer::decode(&transfer).is_ok(),
                N2SmKind::HandoverCmd => HandoverCommandTransfer::decode(&transfer).is_ok(),
                _ => PduSessionResourceReleaseCommandTransfer::decode(&transfer).is_ok(),
            };
            assert!(is_read, "{peer}: {name}");
            assert_eq!(message.n1.is_some(), kind == N2SmKind::PduResRelCmd, "{peer}: {name}");
        }
    }
}
