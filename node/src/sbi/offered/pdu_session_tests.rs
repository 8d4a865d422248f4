//! The SMF of this core for AMFs of other vendors: requests, what the UEs' machines get of them, and the answers.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use hyper::header::{HeaderValue, LOCATION};
use hyper::{HeaderMap, Method};
use serde_json::{Value as Json, json};
use whimbrel_control::remote_amf::{
    AmfOperation, AmfRequest, N1N2Transfer, SmContextError, TransferAnswer, TransferOutcome,
};
use whimbrel_control::udm::{Arp, ServiceFault};
use whimbrel_ids::SNssai;
use whimbrel_sbi::{ClientSettings, SbiClient, SbiRequest, SbiServer, ServerSettings};
use whimbrel_sbi_types::nsmf_pdu_session::N2SmInfoType;

use super::super::super::amf::RemoteAmfs;
use super::super::super::scripted::{ScriptedFunction, consumer, json_response, problem, runtime};
use super::super::{CallbackPolicy, ServiceAuthorization};
use super::*;
use crate::config::{self, Config};

/// The SMF of a core, and the machines of its UEs, whose answers a test gives.
struct ServedSmf {
    services: OfferedServices,
    inputs: mpsc::Receiver<SbiInput>,
    _folder: tempfile::TempDir,
}

fn served_smf() -> ServedSmf {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let text = format!(
        "store:\n  path: {at}/subscribers.db\n  key_file: {at}/store.key\nsbi:\n  address: 192.0.2.1:7777\n  offer: [smf]\ndata_networks:\n  - dnn: internet\n"
    );
    let config: Config = config::parse(&text, Path::new("w.yaml")).unwrap_or_else(|e| panic!("{e}"));
    let sbi = config.sbi.as_ref().unwrap();
    let console = Console::new(crate::clock::now()).unwrap();
    let (input, inputs) = mpsc::channel();
    let mut services = OfferedServices::new(
        sbi.offer.clone(),
        config.amf.plmn,
        "http://192.0.2.1:7777".into(),
        (ServiceAuthorization::new(sbi, &consumer()).unwrap(), CallbackPolicy::new(vec![sbi.address])),
        (crate::subscribers::open(&config.store).unwrap(), |_| panic!("the UDM has subscriptions")),
        (console.clone(), SbiClient::new(ClientSettings::new("SMF"))),
        config.control().smf.data_networks,
    );
    services.use_sm_contexts(SmContextInputs::new(input, console));
    ServedSmf { services, inputs, _folder: folder }
}

impl ServedSmf {
    /// Sends a request. The UE's machine gives `answer`, if it gets one; what it got is returned.
    fn send(
        &self,
        path: &str,
        (content_type, body): (&str, Vec<u8>),
        answer: SmContextAnswer,
    ) -> (SbiResponse, Option<SmContextOperation>) {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
        let request = ReceivedRequest {
            method: Method::POST,
            uri: format!("/nsmf-pdusession/v1/sm-contexts{path}").parse().unwrap(),
            headers,
            body: body.into(),
            peer: "192.0.2.9:40000".parse().unwrap(),
            client_certificate: None,
        };
        runtime().block_on(async {
            let mut served = std::pin::pin!(self.services.serve(&request));
            let mut operation = None;
            let mut answer = Some(answer);
            loop {
                if let Ok(response) = tokio::time::timeout(Duration::from_millis(1), &mut served).await {
                    return (response.unwrap(), operation);
                }
                if let Ok(SbiInput::SmContextRequested { operation: asked, reply }) = self.inputs.try_recv() {
                    operation = Some(asked);
                    reply.send(Box::new(answer.take().unwrap())).unwrap();
                }
            }
        })
    }
}

fn body(json: &Json, n1: Option<&[u8]>, n2: Option<&[u8]>) -> (String, Vec<u8>) {
    let (content_type, octets) = multipart(json.to_string().as_bytes(), n1, n2);
    (content_type.to_str().unwrap().to_owned(), octets)
}

fn creation() -> Json {
    json!({
        "supi": "imsi-999700000000001",
        "pduSessionId": 5,
        "dnn": "internet.mnc070.mcc999.gprs",
        "sNssai": { "sst": 1, "sd": "010203" },
        "servingNfId": "5f0c6bd2-5c6f-4a1f-9f0e-0d2f5a9a9d11",
        "guami": { "plmnId": { "mcc": "999", "mnc": "70" }, "amfId": "020040" },
        "servingNetwork": { "mcc": "999", "mnc": "70" },
        "requestType": "INITIAL_REQUEST",
        "n1SmMsg": { "contentId": N1_PART },
        "anType": "3GPP_ACCESS",
        "ratType": "NR",
        "ueLocation": { "nrLocation": {
            "tai": { "plmnId": { "mcc": "999", "mnc": "70" }, "tac": "000001" },
            "ncgi": { "plmnId": { "mcc": "999", "mnc": "70" }, "nrCellId": "000000010" },
        } },
        "smContextStatusUri": "http://192.0.2.9:8000/namf-callback/v1/smContextStatus/5",
    })
}

fn done() -> SmContextAnswer {
    SmContextAnswer::Updated(Box::default())
}

fn cause(response: &SbiResponse) -> (u16, String) {
    let cause = response.problem().cause.map(|cause| cause.as_str().to_owned());
    (response.status.as_u16(), cause.unwrap_or_default())
}

const NAME: &str = "/0001000004000105";

#[test] // TS 29.502 §5.2.2.2.1
fn a_session_is_created_at_its_location() {
    let smf = served_smf();
    let (content_type, octets) = body(&creation(), Some(&[0x2e, 5, 1]), None);
    let reference = reference(&NAME[1..]).unwrap();
    let created =
        SmContextAnswer::Created { reference, psi: PduSessionId::new(5).unwrap(), s_nssai: SNssai::sst(1) };
    let (response, operation) = smf.send("", (&content_type, octets), created);
    assert_eq!(response.status, 201);
    let location = "http://192.0.2.1:7777/nsmf-pdusession/v1/sm-contexts/0001000004000105";
    assert_eq!(response.headers[LOCATION], location);
    let Some(SmContextOperation::Create(creation)) = operation else { panic!("{operation:?}") };
    assert_eq!((creation.n1.as_slice(), creation.psi.value()), (&[0x2e, 5, 1][..], 5));
    assert_eq!(creation.dnn.unwrap().as_str(), "internet");
    assert_eq!(&*creation.amf.root, "http://192.0.2.9:8000");
    assert_eq!(creation.amf.instance.as_deref(), Some("5f0c6bd2-5c6f-4a1f-9f0e-0d2f5a9a9d11"));
    assert_eq!(creation.tai.unwrap().tac.value(), 1);
}

#[test] // TS 29.502 §6.1.6.2.19: the body has the reject for the UE
fn a_refused_session_has_the_reject_in_its_body() {
    let smf = served_smf();
    let (content_type, octets) = body(&creation(), Some(&[1]), None);
    let refused =
        SmContextAnswer::Refused { error: SmContextError::DnnDenied, n1: Some(vec![7, 8]), n2: None };
    let (response, _) = smf.send("", (&content_type, octets), refused);
    assert_eq!(response.status, 403);
    let content_type = response.headers[CONTENT_TYPE].to_str().unwrap();
    let read = Multipart::read(content_type, &response.body).unwrap();
    let error: SmContextCreateError = from_slice(read.json).unwrap();
    assert_eq!(error.error.cause.unwrap().as_str(), "DNN_DENIED");
    let part = read.part(error.n1_sm_msg.unwrap().content_id.as_str()).unwrap();
    assert_eq!((part.content_type, part.octets), (NAS_5G, &[7, 8][..]));
}

#[test] // TS 29.502 §5.2.2.3.1
fn an_update_is_answered_with_what_the_machine_has_for_ue_and_gnb() {
    let smf = served_smf();
    let json = json!({ "n2SmInfo": { "contentId": N2_PART }, "n2SmInfoType": "PDU_RES_SETUP_RSP" });
    let (content_type, octets) = body(&json, None, Some(&[3, 4]));
    let updated = SmContextUpdated {
        user_plane: Some(UserPlaneState::Activating),
        n2: Some((N2SmKind::PduResSetupReq, vec![9])),
        ..SmContextUpdated::default()
    };
    let answer = SmContextAnswer::Updated(updated.into());
    let path = format!("{NAME}/modify");
    let (response, operation) = smf.send(&path, (&content_type, octets), answer);
    let Some(SmContextOperation::Update(reference, update)) = operation else { panic!("{operation:?}") };
    assert_eq!(reference_text(reference), NAME[1..]);
    assert_eq!(update.n2, Some((N2SmKind::PduResSetupRsp, vec![3, 4])));
    assert_eq!(response.status, 200);
    let read = Multipart::read(response.headers[CONTENT_TYPE].to_str().unwrap(), &response.body).unwrap();
    let data: SmContextUpdatedData = from_slice(read.json).unwrap();
    assert_eq!(data.up_cnx_state, Some(UpCnxState::Activating));
    assert_eq!(data.n2_sm_info_type, Some(N2SmInfoType::PduResSetupReq));
    assert_eq!(read.part(N2_PART).unwrap().octets, [9]);
}

#[test] // TS 29.502 §5.2.2.3, §5.2.2.4: JSON alone, and without a body; free5GC's AMF puts urn:uuid: in front of a name
fn requests_without_messages_are_taken_in_json() {
    let smf = served_smf();
    let json = json!({ "upCnxState": "DEACTIVATED" }).to_string().into_bytes();
    let path = format!("/urn:uuid:{}/modify", &NAME[1..]);
    let (response, operation) = smf.send(&path, ("application/json", json), done());
    assert_eq!(response.status, 204);
    let Some(SmContextOperation::Update(_, update)) = operation else { panic!("{operation:?}") };
    assert_eq!(update.user_plane, Some(UserPlaneState::Deactivated));
    let path = format!("{NAME}/release");
    let (response, operation) = smf.send(&path, ("application/json", Vec::new()), done());
    assert_eq!(response.status, 204);
    assert!(matches!(operation, Some(SmContextOperation::Release(_))));
}

#[test] // TS 29.500 §5.2.7.2, TS 29.502 Table 6.1.7.3-1
fn what_is_wrong_is_refused_and_reaches_no_machine() {
    let smf = served_smf();
    let without = |member: &str| {
        let mut json = creation();
        json.as_object_mut().unwrap().remove(member);
        body(&json, Some(&[1]), None)
    };
    let with = |member: &str, value: Json| {
        let mut json = creation();
        json[member] = value;
        body(&json, Some(&[1]), None)
    };
    let update = |json: Json| body(&json, None, Some(&[1]));
    let (content_type, mut octets) = body(&creation(), Some(&[1; 40]), None);
    octets.truncate(octets.len() - 30);
    let modify = format!("{NAME}/modify");
    let cases = [
        ("", (content_type, octets), 400, "INVALID_MSG_FORMAT"),
        ("", without("supi"), 400, "MANDATORY_IE_MISSING"),
        ("", without("pduSessionId"), 400, "MANDATORY_IE_MISSING"),
        ("", without("sNssai"), 400, "MANDATORY_IE_MISSING"),
        ("", without("n1SmMsg"), 400, "MANDATORY_IE_MISSING"),
        ("", without("smContextStatusUri"), 400, "MANDATORY_IE_MISSING"),
        ("", body(&creation(), None, None), 400, "INVALID_MSG_FORMAT"),
        ("", with("pduSessionId", json!(16)), 400, "MANDATORY_IE_INCORRECT"),
        ("", with("supi", json!("nai-a@example")), 403, "SUBSCRIPTION_DENIED"),
        ("", with("smContextStatusUri", json!("http://amf.example/1")), 400, "MANDATORY_IE_INCORRECT"),
        ("", with("smContextStatusUri", json!("http://127.0.0.1:8000/1")), 400, "MANDATORY_IE_INCORRECT"),
        ("", ("application/json".into(), creation().to_string().into_bytes()), 400, "INVALID_MSG_FORMAT"),
        (&modify, update(json!({ "n2SmInfo": { "contentId": N2_PART } })), 400, "MANDATORY_IE_MISSING"),
        (
            &modify,
            update(json!({ "n2SmInfo": { "contentId": N2_PART }, "n2SmInfoType": "OTHER" })),
            400,
            "OPTIONAL_IE_INCORRECT",
        ),
        (
            &modify,
            update(json!({ "n2SmInfo": { "contentId": "x" }, "n2SmInfoType": "PDU_RES_NTY" })),
            400,
            "INVALID_MSG_FORMAT",
        ),
        ("/5/modify", update(json!({})), 404, "CONTEXT_NOT_FOUND"),
        ("/000100000400010g/release", update(json!({})), 404, "CONTEXT_NOT_FOUND"),
        ("/0001000004000105/retrieve", update(json!({})), 404, "RESOURCE_URI_STRUCTURE_NOT_FOUND"),
    ];
    for (path, (content_type, octets), status, expected) in cases {
        let (response, operation) = smf.send(path, (&content_type, octets), done());
        assert_eq!(cause(&response), (status, expected.to_owned()), "{path}");
        assert!(operation.is_none(), "{path}: {operation:?}");
    }
}

#[test] // TS 29.500 §5.2.7.2: 413
fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let smf = served_smf();
    let ServedSmf { services, inputs, _folder } = smf;
    runtime().block_on(async {
        let services = Arc::new(services);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = SbiServer::start(listener, ServerSettings::default(), move |request| {
            let services = services.clone();
            async move { services.serve(&request).await.unwrap() }
        });
        let server = server.unwrap();
        let uri = format!("http://{}/nsmf-pdusession/v1/sm-contexts", server.address());
        let (content_type, octets) = body(&creation(), Some(&vec![0x2e; 70_000]), None);
        let within = Duration::from_secs(5);
        let mut request = SbiRequest::new(Method::POST, uri.parse().unwrap(), within);
        request.body = octets.into();
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_str(&content_type).unwrap());
        let response = SbiClient::new(ClientSettings::new("AMF")).send(request).await.unwrap();
        assert_eq!(response.status, 413);
        assert!(inputs.try_recv().is_err());
    });
}

fn remote_amfs() -> Arc<RemoteAmfs> {
    let client = SbiClient::new(ClientSettings::new("SMF"));
    let root = "http://192.0.2.1:7777".into();
    RemoteAmfs::new(client, Vec::new(), false, Duration::from_secs(5), root, Arc::default())
}

fn request(root: &str, operation: AmfOperation) -> AmfRequest {
    AmfRequest {
        supi: "999700000000001".parse().unwrap(),
        amf: AmfAddress { instance: None, root: root.into() },
        psi: PduSessionId::new(5).unwrap(),
        operation,
    }
}

fn transfer() -> AmfOperation {
    let arp = Arp { priority: 8, may_preempt: false, preemptable: true };
    let n2 = Some((N2SmKind::PduResSetupReq, vec![1, 2]));
    let reference = reference(&NAME[1..]).unwrap();
    AmfOperation::Transfer(
        N1N2Transfer { reference, s_nssai: SNssai::sst(1), n1: Some(vec![0x2e]), n2, arp }.into(),
    )
}

#[test] // TS 29.518 §5.2.2.3.1: the answers of an AMF
fn the_outcome_of_a_transfer_follows_from_its_status() {
    for (answers, outcome) in [
        (
            vec![json_response(200, &json!({ "cause": "N1_N2_TRANSFER_INITIATED" }))],
            TransferOutcome::Initiated,
        ),
        // free5GC's AMF has another body.
        (vec![json_response(202, &json!({ "data": {} }))], TransferOutcome::Initiated),
        (vec![problem(404, "CONTEXT_NOT_FOUND")], TransferOutcome::UeUnknown),
        (vec![problem(504, "UE_NOT_REACHABLE")], TransferOutcome::NotReachable),
        (vec![problem(409, "UE_IN_CM_IDLE_STATE")], TransferOutcome::NotReachable),
        (
            vec![
                problem(409, "TEMPORARY_REJECT_REGISTRATION_ONGOING"),
                json_response(200, &json!({ "cause": "N1_N2_TRANSFER_INITIATED" })),
            ],
            TransferOutcome::Initiated,
        ),
        (vec![problem(400, "")], TransferOutcome::Failed(ServiceFault::Status(400))),
    ] {
        let expected = answers.len();
        runtime().block_on(async {
            let function = ScriptedFunction::start(move |n| answers.get(n).cloned());
            let root = function.root.uri();
            let answer = remote_amfs().send(&request(&root, transfer())).await;
            let psi = PduSessionId::new(5).unwrap();
            assert_eq!(answer, Some(TransferAnswer { psi, set_up: true, outcome }));
            let paths: Vec<String> = function.requests().into_iter().map(|(path, _)| path).collect();
            assert_eq!(paths.len(), expected);
            assert!(
                paths.iter().all(|p| p == "/namf-comm/v1/ue-contexts/imsi-999700000000001/n1-n2-messages")
            );
        });
    }
}

#[test] // TS 29.502 §5.2.2.5
fn the_end_of_a_session_is_notified_at_the_uri_that_its_amf_named() {
    runtime().block_on(async {
        let function = ScriptedFunction::start(|_| Some(SbiResponse::no_content()));
        let uri = format!("{}/status/5", function.root.uri()).into();
        let end = request(&function.root.uri(), AmfOperation::ContextReleased { uri });
        assert_eq!(remote_amfs().send(&end).await, None);
        let body = json!({ "statusInfo": { "resourceStatus": "RELEASED" } });
        assert_eq!(function.requests(), [("/status/5".into(), body)]);
    });
}
