//! The consumer of a UDM against what UDMs of other makes answered (testdata/README.md).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use whimbrel_control::config::UpSecurity;
use whimbrel_control::udm::{
    AuthMethod, Identity, NfType, ServiceFault, Subscription, UdmAnswer, UdmError, UdmRequest, Vector,
};
use whimbrel_ids::{FiveQi, PduSessionId, SNssai, Supi};
use whimbrel_sbi::message::{JSON, PROBLEM_JSON};
use whimbrel_sbi::{ReceivedRequest, SbiResponse, SbiServer, ServerSettings};

use super::identity::{suci_of, supi_of};
use super::scripted::{consumer, peer_at};
use super::udm::Udm;
use crate::config::sbi::ApiRoot;
use crate::config::value::Value;

const OPEN5GS: &str = include_str!("testdata/open5gs-2.8.0-66.json");
const FREE5GC: &str = include_str!("testdata/free5gc-1.4.5.json");

/// A recorded exchange.
#[derive(Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exchange {
    method: String,
    path: String,
    status: u16,
    location: Option<String>,
    content_type: Option<String>,
    body: Option<serde_json::Value>,
}

/// A UDM that gives recorded answers; one that was not recorded is a failure.
struct RecordedUdm {
    udm: Udm,
    /// Methods and paths of the requests, with their bodies.
    requests: Arc<Mutex<Vec<(String, serde_json::Value)>>>,
    _server: SbiServer,
}

fn recorded_udm(recording: &str) -> RecordedUdm {
    let exchanges: Vec<Exchange> = serde_json::from_str(recording).unwrap();
    let mut answers: BTreeMap<String, Exchange> = BTreeMap::new();
    for exchange in exchanges {
        // The query is the consumer's choice.
        let path = exchange.path.split('?').next().unwrap().to_owned();
        answers.entry(format!("{} {path}", exchange.method)).or_insert(exchange);
    }
    let requests: Arc<Mutex<Vec<_>>> = Arc::default();
    let asked = requests.clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = SbiServer::start(listener, ServerSettings::default(), move |request: ReceivedRequest| {
        let key = format!("{} {}", request.method, request.uri.path());
        let body = serde_json::from_slice(&request.body).unwrap_or_default();
        asked.lock().unwrap().push((key.clone(), body));
        let answer = answers.get(&key).cloned();
        async move {
            let Some(answer) = answer else { return SbiResponse::empty(hyper::StatusCode::IM_A_TEAPOT) };
            let status = hyper::StatusCode::from_u16(answer.status).unwrap();
            let media_type = match answer.content_type.as_deref() {
                Some(text) if text.starts_with(PROBLEM_JSON) => PROBLEM_JSON,
                _ => JSON,
            };
            let mut response = match answer.body {
                Some(body) => SbiResponse::with_body(status, media_type, body.to_string().into()),
                None => SbiResponse::empty(status),
            };
            if let Some(location) = answer.location {
                response = response.header(hyper::header::LOCATION, location.parse().unwrap());
            }
            response
        }
    });
    let server = server.unwrap();
    let root = ApiRoot::read(&format!("http://{}", server.address())).unwrap();
    RecordedUdm { udm: udm_at(root), requests, _server: server }
}

fn udm_at(root: ApiRoot) -> Udm {
    Udm::new(peer_at(NfType::Udm, root, std::time::Duration::from_secs(5)), consumer())
}

/// Runs the requests of a UE's life. Returns the answers of the authentication and of the registration.
async fn life(udm: &Udm, supi: Supi, identity: Identity) -> (UdmAnswer, UdmAnswer) {
    let ask = UdmRequest::GenerateAuthData { identity, rand: [0; 16], resynchronisation: None };
    let authenticated = udm.answer(&ask).await;
    udm.answer(&UdmRequest::ConfirmAuthentication { supi, method: AuthMethod::FiveGAka, success: true })
        .await;
    let registered = udm.answer(&UdmRequest::Register(supi)).await;
    let psi = PduSessionId::new(1).unwrap();
    let dnn = "internet".parse().unwrap();
    udm.answer(&UdmRequest::RegisterSession { supi, psi, s_nssai: SNssai::sst(1), dnn }).await;
    udm.answer(&UdmRequest::DeregisterSession(supi, psi)).await;
    udm.answer(&UdmRequest::Deregister(supi)).await;
    (authenticated, registered)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn subscription(answer: UdmAnswer) -> Subscription {
    match answer {
        UdmAnswer::Registered(Ok(subscription)) => (*subscription).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ue_lives_with_the_udm_of_open5gs() {
    let supi = supi_of("imsi-999700000000001").unwrap();
    let suci = suci_of("suci-0-999-70-0000-0-0-0000000001").unwrap();
    runtime().block_on(async {
        let recorded = recorded_udm(OPEN5GS);
        let (authenticated, registered) = life(&recorded.udm, supi, Identity::Suci(suci)).await;
        let UdmAnswer::AuthData(Ok(data)) = authenticated else { panic!("{authenticated:?}") };
        assert_eq!(data.supi, supi);
        let Vector::FiveGAka(vector) = data.vector else { panic!("another method") };
        assert_eq!(vector.rand.0[..3], [0xa9, 0xac, 0xb9]);
        let subscription = subscription(registered);
        assert_eq!((subscription.ue_ambr.ul_kbps, subscription.slices.len()), (1_000_000, 1));
        let internet = &subscription.slices[0].dnns[0];
        assert!(internet.default && internet.session_types.ipv4 && !internet.session_types.ipv6);
        assert_eq!((internet.five_qi, internet.up_security), (FiveQi(9), None::<UpSecurity>));
        let requests = recorded.requests.lock().unwrap();
        let paths: Vec<&str> = requests.iter().map(|(path, _)| path.as_str()).collect();
        let ue = "imsi-999700000000001";
        let expected = [
            "POST /nudm-ueau/v1/suci-0-999-70-0000-0-0-0000000001/security-information/generate-auth-data"
                .to_owned(),
            format!("POST /nudm-ueau/v1/{ue}/auth-events"),
            format!("PUT /nudm-uecm/v1/{ue}/registrations/amf-3gpp-access"),
            format!("GET /nudm-sdm/v2/{ue}/am-data"),
            format!("GET /nudm-sdm/v2/{ue}/smf-select-data"),
            format!("GET /nudm-sdm/v2/{ue}/sm-data"),
            format!("POST /nudm-sdm/v2/{ue}/sdm-subscriptions"),
            format!("PUT /nudm-uecm/v1/{ue}/registrations/smf-registrations/1"),
            format!("DELETE /nudm-uecm/v1/{ue}/registrations/smf-registrations/1"),
            format!("DELETE /nudm-sdm/v2/{ue}/sdm-subscriptions/96d83ace-ec16-41f1-927b-990b40f22dbc"),
            format!("PATCH /nudm-uecm/v1/{ue}/registrations/amf-3gpp-access"),
        ];
        let gets = |paths: &[&str]| {
            let mut sorted: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
            sorted[3..6].sort();
            sorted
        };
        let mut expected = expected.to_vec();
        expected[3..6].sort();
        assert_eq!(gets(&paths), expected);
        let registration = &requests[2].1;
        assert_eq!(
            registration["deregCallbackUri"],
            "http://192.0.2.1:7777/callbacks/udm/imsi-999700000000001/deregistration"
        );
        assert_eq!(registration["guami"]["amfId"], "020040");
        assert_eq!(requests.last().unwrap().1["purgeFlag"], true);
    });
}

#[test] // an empty MSISDN, empty values of enumerations, slices as eight hexadecimal digits
fn a_ue_lives_with_the_udm_of_free5gc() {
    let supi = supi_of("imsi-999700000000001").unwrap();
    runtime().block_on(async {
        let recorded = recorded_udm(FREE5GC);
        let (authenticated, registered) = life(&recorded.udm, supi, Identity::Supi(supi)).await;
        assert!(matches!(authenticated, UdmAnswer::AuthData(Ok(_))), "{authenticated:?}");
        let subscription = subscription(registered);
        let slices: Vec<_> = subscription.slices.iter().map(|s| (s.s_nssai.to_string(), s.default)).collect();
        assert_eq!(slices, [("1".into(), true), ("1-010203".into(), false)]);
        assert_eq!(subscription.ue_ambr.dl_kbps, 2_000_000);
        let internet = &subscription.slices[0].dnns[0];
        assert_eq!((internet.session_ambr.ul_kbps, internet.session_ambr.dl_kbps), (200_000, 100_000));
    });
}

#[test]
fn a_subscriber_that_the_udm_of_free5gc_does_not_have_is_unknown() {
    let supi = supi_of("imsi-999700000009999").unwrap();
    let identity = Identity::Supi(supi);
    runtime().block_on(async {
        let recorded = recorded_udm(FREE5GC);
        let ask = UdmRequest::GenerateAuthData { identity, rand: [0; 16], resynchronisation: None };
        let answer = recorded.udm.answer(&ask).await;
        assert!(
            matches!(answer, UdmAnswer::AuthData(Err((UdmError::UserNotFound, Some(s)))) if s == supi),
            "{answer:?}"
        );
    });
}

#[test] // EAP-AKA' (TS 29.503 §6.3.6.2.4)
fn the_vector_of_a_subscriber_with_eap_is_read() {
    let identity = Identity::Supi(supi_of("imsi-999700000000003").unwrap());
    runtime().block_on(async {
        let recorded = recorded_udm(FREE5GC);
        let ask = UdmRequest::GenerateAuthData { identity, rand: [0; 16], resynchronisation: None };
        let answer = recorded.udm.answer(&ask).await;
        let UdmAnswer::AuthData(Ok(data)) = answer else { panic!("{answer:?}") };
        assert_eq!(data.vector.method(), AuthMethod::EapAkaPrime);
    });
}

/// A UDM that answers every request so.
async fn answered_with(status: u16, media_type: &'static str, body: Vec<u8>) -> UdmAnswer {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = SbiServer::start(listener, ServerSettings::default(), move |_| {
        let response = SbiResponse::with_body(
            hyper::StatusCode::from_u16(status).unwrap(),
            media_type,
            body.clone().into(),
        );
        async move { response }
    });
    let server = server.unwrap();
    let root = ApiRoot::read(&format!("http://{}", server.address())).unwrap();
    let identity = Identity::Suci(suci_of("suci-0-999-70-0-1-27-aa").unwrap());
    let ask = UdmRequest::GenerateAuthData { identity, rand: [0; 16], resynchronisation: None };
    udm_at(root).answer(&ask).await
}

fn error_of(answer: UdmAnswer) -> UdmError {
    match answer {
        UdmAnswer::AuthData(Err((error, _))) => error,
        other => panic!("{other:?}"),
    }
}

#[test] // TS 29.503 §6.3.7.3
fn each_refusal_of_a_udm_has_its_meaning() {
    let problem = |cause: &str| format!(r#"{{"status":403,"cause":"{cause}"}}"#).into_bytes();
    runtime().block_on(async {
        let cases = [
            (404, "USER_NOT_FOUND", UdmError::UserNotFound),
            (403, "AUTHENTICATION_REJECTED", UdmError::Barred),
            (403, "SERVING_NETWORK_NOT_AUTHORIZED", UdmError::ServingNetworkNotAuthorized),
            (403, "INVALID_HN_PUBLIC_KEY_IDENTIFIER", UdmError::UnknownHomeNetworkKey(27)),
            (403, "INVALID_SCHEME_OUTPUT", UdmError::BadSchemeOutput),
            (501, "UNSUPPORTED_PROTECTION_SCHEME", UdmError::BadSchemeOutput),
            (403, "SOMETHING_ELSE", UdmError::Remote(ServiceFault::Status(403))),
            (500, "SYSTEM_FAILURE", UdmError::Remote(ServiceFault::Status(500))),
        ];
        for (status, cause, expected) in cases {
            let answer = answered_with(status, PROBLEM_JSON, problem(cause)).await;
            assert_eq!(error_of(answer), expected, "{status} {cause}");
        }
    });
}

#[test]
fn what_no_udm_should_answer_is_a_fault_and_no_more() {
    let nested = "[".repeat(10_000).into_bytes();
    let bodies = [
        b"".to_vec(),
        b"null".to_vec(),
        b"{}".to_vec(),
        nested,
        b"{\"authType\":7}".to_vec(),
        vec![0xff; 100],
    ];
    runtime().block_on(async {
        for body in bodies {
            let answer = answered_with(200, JSON, body).await;
            assert_eq!(error_of(answer), UdmError::Remote(ServiceFault::InvalidAnswer));
        }
        let answer = answered_with(200, JSON, vec![b' '; 16 << 20]).await;
        assert_eq!(error_of(answer), UdmError::Remote(ServiceFault::InvalidAnswer));
    });
}

#[test]
fn a_udm_that_is_not_there_is_not_connected() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let root = ApiRoot::read(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let identity = Identity::Supi(supi_of("imsi-999700000000001").unwrap());
    let ask = UdmRequest::GenerateAuthData { identity, rand: [0; 16], resynchronisation: None };
    let answer = runtime().block_on(async { udm_at(root).answer(&ask).await });
    assert_eq!(error_of(answer), UdmError::Remote(ServiceFault::NotConnected));
}
