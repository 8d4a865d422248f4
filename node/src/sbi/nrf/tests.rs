//! The NRF of this core over HTTP/2, with this core's own client as the function of another vendor, and its answers to wrong requests.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use whimbrel_sbi::nrf::{NrfClient, NrfError, NrfSettings, NrfState, authorized, producers, roots_of};
use whimbrel_sbi::tls::{self, PemIdentity};
use whimbrel_sbi::{
    ClientSettings, DiscoveryQuery, ReceivedRequest, SbiClient, SbiRequest, SbiResponse, SbiServer,
    ServerSettings,
};
use whimbrel_sbi_types::BoundedList;
use whimbrel_sbi_types::common::NfInstanceId;
use whimbrel_sbi_types::nnrf::{
    NfProfile, NfStatus, NfType, NotificationData, ServiceName, SubscriptionData,
};

use super::super::{NetworkFunctions, consumer};
use super::NrfService;
use crate::clock;
use crate::config::{self, Config};
use crate::log_limiter::{Lines, with_subscriber};
use crate::observation::Console;

/// Longer than an exchange takes on a busy host.
const WITHIN: Duration = Duration::from_secs(20);
const AMF: &str = "4947a69a-f61b-4bc1-b9da-47c9c5d14b64";
const SMF: &str = "00000000-0000-4000-8000-000000000003";
const CA: &[u8] = include_bytes!("../../../../fabric/sbi/testdata/ca.pem");
const KEY: &[u8] = include_bytes!("../../../../fabric/sbi/testdata/leaf-key.pem");
const SERVER: &[u8] = include_bytes!("../../../../fabric/sbi/testdata/server.pem");
/// Names the instance `AMF`.
const OF_AMF: &[u8] = include_bytes!("../../../../fabric/sbi/testdata/client.pem");
/// An address of another host.
const REMOTE: [u8; 4] = [198, 51, 100, 7];

/// A core that offers an NRF, with its files in a folder.
struct NrfCore {
    folder: tempfile::TempDir,
    port: u16,
}

impl NrfCore {
    fn new() -> Self {
        // The port is free again, and no other test asks for this one.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { folder: tempfile::tempdir().unwrap(), port }
    }

    fn config(&self, lines: &str) -> Config {
        let at = self.folder.path().display();
        let text = format!(
            "store:\n  path: {at}/subscribers.db\n  key_file: {at}/store.key\nsbi:\n  address: 127.0.0.1:{}\n{lines}",
            self.port
        );
        let text = text.replace("FOLDER", &at.to_string());
        config::parse(&text, Path::new("w.yaml")).unwrap_or_else(|e| panic!("{e}"))
    }

    fn start(&self, lines: &str) -> NetworkFunctions {
        let config = self.config(lines);
        let console = Console::new(clock::now()).unwrap();
        let functions = NetworkFunctions::start(&config, console, |_| panic!("there is no subscriber"));
        functions.unwrap().unwrap()
    }

    /// Certificate, key and authority of the tests, as `sbi.tls` names them.
    fn tls_lines(&self) -> &'static str {
        for (name, octets) in [("sbi.pem", SERVER), ("sbi.key", KEY), ("ca.pem", CA)] {
            std::fs::write(self.folder.path().join(name), octets).unwrap();
        }
        "  tls:\n    certificate: FOLDER/sbi.pem\n    key: FOLDER/sbi.key\n    authorities: FOLDER/ca.pem\n"
    }

    fn root(&self) -> whimbrel_sbi::ApiRoot {
        format!("http://127.0.0.1:{}", self.port).parse().unwrap()
    }

    /// The NRF alone, without a server.
    fn service(&self) -> NrfService {
        let config = self.config("  offer: [nrf]\n");
        let sbi = config.sbi.as_ref().unwrap();
        let client = SbiClient::new(ClientSettings::new("NRF"));
        let console = Console::new(clock::now()).unwrap();
        NrfService::new(&config, sbi, &consumer(&config, sbi), console, client).unwrap()
    }

    /// A function of another vendor that registers, with a heartbeat each half second.
    fn function(&self, client: &SbiClient, id: &str, nf_type: NfType) -> NrfClient {
        let mut profile = NfProfile::new(id.parse().unwrap(), nf_type, NfStatus::Registered);
        profile.ipv4_addresses = BoundedList::new(vec![[192, 0, 2, 9].into()]);
        profile.heart_beat_timer = Some(1);
        let mut settings = NrfSettings::new(vec![self.root()], profile);
        settings.retry_every = Duration::from_millis(200);
        // Discoveries and heartbeats carry tokens of the NRF, for the NRF.
        settings.uses_tokens = true;
        NrfClient::start(client.clone(), settings)
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

async fn until(nrf: &NrfClient, is: impl Fn(&NrfState) -> bool) -> NrfState {
    let mut state = nrf.state();
    tokio::time::timeout(WITHIN, state.wait_for(is)).await.unwrap().unwrap().clone()
}

fn is_registered(state: &NrfState) -> bool {
    matches!(state, NrfState::Registered(_))
}

/// Waits for what another task brings about.
async fn eventually(mut is: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + WITHIN;
    while !is().await {
        assert!(tokio::time::Instant::now() < end, "it did not come about");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test] // TS 29.510 §5.2.2.2, §5.2.2.3.2, §5.3.2.2, §5.4.2.2; TS 33.501 §13.4.1: from registration to a service, and over a restart
fn a_function_registers_finds_the_udm_and_uses_it_with_a_token_also_after_a_restart() {
    const LINES: &str = "  offer: [nrf, udm, ausf]\n  token_key: FOLDER/subscribers.nrf.pem\n";
    run(async {
        let core = NrfCore::new();
        let running = core.start(LINES);
        let client = SbiClient::new(ClientSettings::new("AMF"));
        let amf = core.function(&client, AMF, NfType::Amf);
        assert_eq!(until(&amf, is_registered).await, NrfState::Registered(Duration::from_secs(1)));
        // This core's own functions register at its NRF.
        let mut found: Arc<[NfProfile]> = [].into();
        eventually(async || {
            let query = DiscoveryQuery::new(NfType::Udm, [ServiceName::NudmSdm]);
            found = amf.discover(&query).await.unwrap().instances;
            tokio::time::sleep(Duration::from_millis(100)).await;
            amf.notify(&expiring());
            !found.is_empty()
        })
        .await;
        let udm = producers(&found, 0)[0];
        let roots = roots_of(udm, &ServiceName::NudmSdm);
        assert_eq!(roots.iter().map(ToString::to_string).collect::<Vec<_>>(), [core.root().to_string()]);
        let ask = async |token: Option<&whimbrel_sbi_types::nnrf::AccessToken>| {
            let uri = roots[0].uri("/nudm-sdm/v2/imsi-999700000000009/am-data").unwrap();
            let request = SbiRequest::get(uri, WITHIN);
            let request = token.map_or(Some(request.clone()), |token| authorized(request, token)).unwrap();
            client.send(request).await.unwrap()
        };
        assert_eq!(ask(None).await.status, StatusCode::UNAUTHORIZED);
        let token = amf.token(&NfType::Udm, "nudm-sdm").await.unwrap();
        let cause = |response: SbiResponse| response.problem().cause.map(|cause| cause.to_string());
        assert_eq!(cause(ask(Some(&token)).await).as_deref(), Some("USER_NOT_FOUND"));
        let other = amf.token(&NfType::Udm, "nudm-uecm").await.unwrap();
        assert_eq!(ask(Some(&other)).await.status, StatusCode::FORBIDDEN);
        let of_nef = amf.token(&NfType::Nef, "nnef-eventexposure").await;
        assert!(matches!(of_nef, Err(NrfError::Refused(_))), "{of_nef:?}");

        // A restart: instances are still known, heartbeats go on, and the key is the same.
        let smf = core.root().uri(&path(SMF)).unwrap();
        let silent = client.send(SbiRequest::put(smf.clone(), &profile(SMF), WITHIN)).await.unwrap();
        assert_eq!(silent.status, StatusCode::CREATED);
        drop(running);
        until(&amf, |state| matches!(state, NrfState::Unreachable(_))).await;
        let _running = core.start(LINES);
        until(&amf, is_registered).await;
        assert_eq!(client.send(SbiRequest::get(smf, WITHIN)).await.unwrap().status, StatusCode::OK);
        eventually(async || ask(Some(&token)).await.problem().cause.is_some()).await;
        assert_eq!(cause(ask(Some(&token)).await).as_deref(), Some("USER_NOT_FOUND"));
        amf.forget_tokens();
        let token = amf.token(&NfType::Udm, "nudm-sdm").await.unwrap();
        assert_eq!(cause(ask(Some(&token)).await).as_deref(), Some("USER_NOT_FOUND"));

        // An instance that is not registered gets no token.
        amf.deregister().await.unwrap();
        amf.forget_tokens();
        assert!(matches!(amf.token(&NfType::Udm, "nudm-sdm").await, Err(NrfError::Refused(_))));
    });
}

#[test] // TS 29.510 §5.2.2.2: functions of this core beside its NRF
fn each_function_that_is_offered_registers_at_this_cores_nrf() {
    run(async {
        let core = NrfCore::new();
        let _running = core.start("  offer: [nrf, udm, ausf, pcf, chf]\n");
        let client = SbiClient::new(ClientSettings::new("SMF"));
        let smf = core.function(&client, SMF, NfType::Smf);
        until(&smf, is_registered).await;
        for (nf_type, service) in [
            (NfType::Udm, ServiceName::NudmSdm),
            (NfType::Ausf, ServiceName::NausfAuth),
            (NfType::Pcf, ServiceName::NpcfSmpolicycontrol),
            (NfType::Pcf, ServiceName::NpcfAmPolicyControl),
            (NfType::Chf, ServiceName::NchfConvergedcharging),
        ] {
            eventually(async || {
                smf.notify(&expiring());
                let query = DiscoveryQuery::new(nf_type.clone(), [service.clone()]);
                !smf.discover(&query).await.unwrap().instances.is_empty()
            })
            .await;
        }
    });
}

/// A notification after which nothing that was found before is taken for valid.
fn expiring() -> NotificationData {
    let body = json!({"event": "NF_REGISTERED", "nfInstanceUri": format!("http://x/{SMF}")});
    serde_json::from_value(body).unwrap()
}

#[test] // TS 33.501 §13.1, TS 33.310 §6.1.3c.3: with mutual TLS, over real connections
fn with_mutual_tls_own_functions_register_and_a_certificate_is_for_its_instance() {
    run(async {
        let core = NrfCore::new();
        let _running = core.start(&format!("  offer: [nrf, udm]\n{}", core.tls_lines()));
        let client = |certificates: &[u8]| {
            let tls = tls::client(CA, Some(PemIdentity { certificates, key: KEY })).unwrap();
            SbiClient::new(ClientSettings { tls: Some(tls.into()), ..ClientSettings::new("AMF") })
        };
        let root: whimbrel_sbi::ApiRoot = format!("https://127.0.0.1:{}", core.port).parse().unwrap();
        let of_amf = client(OF_AMF);
        let put = async |client: &SbiClient, id: &str| {
            let request = SbiRequest::put(root.uri(&path(id)).unwrap(), &profile(id), WITHIN);
            client.send(request).await.unwrap().status.as_u16()
        };
        assert_eq!(put(&of_amf, AMF).await, 201);
        assert_eq!(put(&of_amf, SMF).await, 403);
        assert_eq!(put(&client(SERVER), SMF).await, 201);
        let unauthenticated = tls::client(CA, None).unwrap();
        let unauthenticated = SbiClient::new(ClientSettings {
            tls: Some(unauthenticated.into()),
            ..ClientSettings::new("AMF")
        });
        let refused = unauthenticated.send(SbiRequest::get(root.uri(&path(AMF)).unwrap(), WITHIN)).await;
        assert!(refused.is_err(), "{refused:?}");
        let udms =
            "/nnrf-disc/v1/nf-instances?target-nf-type=UDM&requester-nf-type=AMF&service-names=nudm-sdm";
        eventually(async || {
            let found = of_amf.send(SbiRequest::get(root.uri(udms).unwrap(), WITHIN)).await.unwrap();
            let found: Value = serde_json::from_slice(&found.body).unwrap();
            found["nfInstances"][0]["nfServices"][0]["scheme"] == "https"
        })
        .await;
    });
}

#[test] // TS 29.510 §5.2.2.3.2: a function that the NRF has forgotten registers again with its next heartbeat
fn a_function_that_is_forgotten_registers_again() {
    run(async {
        let core = NrfCore::new();
        let running = core.start("  offer: [nrf]\n");
        let client = SbiClient::new(ClientSettings::new("AMF"));
        let amf = core.function(&client, AMF, NfType::Amf);
        until(&amf, is_registered).await;
        drop(running);
        std::fs::write(core.folder.path().join("subscribers.nrf.jsonl"), "{").unwrap();
        until(&amf, |state| matches!(state, NrfState::Unreachable(_))).await;
        let _running = core.start("  offer: [nrf]\n");
        until(&amf, is_registered).await;
        eventually(async || {
            amf.notify(&expiring());
            let query = DiscoveryQuery::new(NfType::Amf, []);
            let found = amf.discover(&query).await.map(|found| found.instances).unwrap_or_default();
            found.iter().any(|profile| profile.nf_instance_id.as_str() == AMF)
        })
        .await;
    });
}

#[test] // TS 29.510 §5.2.2.5, §5.2.2.6
fn a_subscriber_is_notified_over_http() {
    run(async {
        let core = NrfCore::new();
        let _running = core.start("  offer: [nrf]\n");
        let client = SbiClient::new(ClientSettings::new("AMF"));
        let amf = core.function(&client, AMF, NfType::Amf);
        until(&amf, is_registered).await;
        let received: Arc<Mutex<Vec<NotificationData>>> = Arc::default();
        let notified = received.clone();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = SbiServer::start(listener, ServerSettings::default(), move |request| {
            let name = request.headers.get("3gpp-sbi-callback").map(|name| name.to_str().unwrap().to_owned());
            assert_eq!(name.as_deref(), Some("Nnrf_NFManagement_NFStatusNotify; apiversion=1"));
            notified.lock().unwrap().push(request.read().unwrap());
            async { SbiResponse::no_content() }
        })
        .unwrap();
        let subscription = |uri: &str| -> SubscriptionData {
            let body = json!({"nfStatusNotificationUri": uri, "reqNfInstanceId": AMF, "reqNfType": "AMF", "subscrCond": {"nfType": "SMF"}});
            serde_json::from_value(body).unwrap()
        };
        // This core sends nothing to itself.
        let refused = amf.subscribe(&subscription(&format!("{}/callbacks/udm/x", core.root()))).await;
        assert!(matches!(refused, Err(NrfError::Refused(problem)) if problem.status == Some(400)));
        let subscribed =
            amf.subscribe(&subscription(&format!("http://{}/n", server.address()))).await.unwrap();
        assert!(subscribed.validity_time.is_some());
        let smf = core.function(&client, SMF, NfType::Smf);
        until(&smf, is_registered).await;
        smf.deregister().await.unwrap();
        eventually(async || received.lock().unwrap().len() == 2).await;
        let events: Vec<String> = received.lock().unwrap().iter().map(|n| n.event.to_string()).collect();
        assert_eq!(events, ["NF_REGISTERED", "NF_DEREGISTERED"]);
        amf.unsubscribe(&subscribed).await.unwrap();
        assert!(
            matches!(amf.unsubscribe(&subscribed).await, Err(NrfError::Refused(p)) if p.status == Some(404))
        );
    });
}

fn request(method: Method, path: &str, body: &Value) -> ReceivedRequest {
    ReceivedRequest {
        method,
        uri: path.parse().unwrap(),
        headers: HeaderMap::new(),
        body: serde_json::to_vec(body).unwrap().into(),
        peer: (REMOTE, 5000).into(),
        client_certificate: None,
    }
}

fn path(id: &str) -> String {
    format!("/nnrf-nfm/v1/nf-instances/{id}")
}

fn profile(id: &str) -> Value {
    json!({"nfInstanceId": id, "nfType": "AMF", "nfStatus": "REGISTERED", "ipv4Addresses": ["192.0.2.9"]})
}

/// Answers within a runtime, in which notifications are sent.
fn served(nrf: &NrfService, request: &ReceivedRequest) -> SbiResponse {
    run(async { nrf.serve(request).unwrap() })
}

fn status(nrf: &NrfService, request: &ReceivedRequest) -> u16 {
    served(nrf, request).status.as_u16()
}

fn put(nrf: &NrfService, profile: &Value) -> SbiResponse {
    served(nrf, &request(Method::PUT, &path(profile["nfInstanceId"].as_str().unwrap()), profile))
}

#[test] // TS 29.510 §6.1.3, §6.2.3, §6.3.3: methods, resources, locations
fn each_resource_has_its_methods_and_no_other() {
    let core = NrfCore::new();
    let nrf = core.service();
    let created = put(&nrf, &profile(AMF));
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(created.location(), Some(format!("{}{}", core.root(), path(AMF)).as_str()));
    assert_eq!(put(&nrf, &profile(AMF)).status, StatusCode::OK);
    let get = |path: &str| request(Method::GET, path, &json!(null));
    let list = served(&nrf, &get("/nnrf-nfm/v1/nf-instances?nf-type=AMF&limit=5"));
    let body: Value = serde_json::from_slice(&list.body).unwrap();
    assert_eq!(body["_links"]["item"], json!([{"href": format!("{}{}", core.root(), path(AMF))}]));
    assert_eq!((status(&nrf, &get(&path(AMF))), status(&nrf, &get(&path(SMF)))), (200, 404));
    let found = served(&nrf, &get("/nnrf-disc/v1/nf-instances?target-nf-type=AMF&requester-nf-type=AMF"));
    assert_eq!(
        (found.status.as_u16(), &found.headers["cache-control"]),
        (200, &HeaderValue::from_static("max-age=30"))
    );
    let malformed =
        served(&nrf, &get("/nnrf-disc/v1/nf-instances?target-nf-type=AMF&requester-nf-type=AMF&limit=x"));
    let problem = malformed.problem();
    assert_eq!((problem.status, problem.invalid_params.unwrap()[0].param.as_str()), (Some(400), "limit"));
    for (method, path, expected) in [
        (Method::POST, path(AMF), 405),
        (Method::PUT, path("x"), 404),
        (Method::PUT, "/nnrf-nfm/v1/nf-instances".into(), 405),
        (Method::GET, "/nnrf-nfm/v1/subscriptions".into(), 405),
        (Method::DELETE, "/nnrf-nfm/v1/subscriptions/x".into(), 404),
        (Method::GET, "/nnrf-nfm/v1/shared-data".into(), 404),
        (Method::GET, "/nnrf-nfm/v2/nf-instances".into(), 404),
        (Method::POST, "/nnrf-disc/v1/nf-instances".into(), 405),
        (Method::GET, "/nnrf-disc/v1/searches/1".into(), 404),
        (Method::GET, "/oauth2/token".into(), 405),
        (Method::DELETE, path(AMF), 204),
        (Method::DELETE, path(AMF), 404),
    ] {
        assert_eq!(status(&nrf, &request(method.clone(), &path, &json!(null))), expected, "{method} {path}");
    }
    run(async { assert!(nrf.serve(&get("/nudm-sdm/v2/x")).is_none()) });
}

#[test]
fn wrong_bodies_are_refused_with_their_cause() {
    let core = NrfCore::new();
    let nrf = core.service();
    put(&nrf, &profile(AMF));
    let of_body = |method: Method, path: &str, body: &[u8]| {
        let mut request = request(method, path, &json!(null));
        request.body = body.to_vec().into();
        let response = served(&nrf, &request);
        (
            response.status.as_u16(),
            response.problem().cause.map(|cause| cause.to_string()).unwrap_or_default(),
        )
    };
    let format = (400, "INVALID_MSG_FORMAT".to_owned());
    let deep = ["[".repeat(10_000), "]".repeat(10_000)].concat();
    let deep_member =
        format!(r#"{{"nfInstanceId":"{AMF}","nfType":"AMF","nfStatus":"REGISTERED","x":{deep}}}"#);
    for body in [&b""[..], b"{", b"\xff", deep.as_bytes(), deep_member.as_bytes()] {
        assert_eq!(of_body(Method::PUT, &path(AMF), body), format);
        assert_eq!(of_body(Method::PATCH, &path(AMF), body).0, 400);
        assert_eq!(of_body(Method::POST, "/nnrf-nfm/v1/subscriptions", body), format);
    }
    let unknown = json!({"nfInstanceId": SMF, "nfType": "NEW_NF", "nfStatus": "NEW_STATUS", "nfServices": [{
        "serviceInstanceId": "1", "serviceName": "nnew-service", "scheme": "http", "nfServiceStatus": "NEW",
        "versions": [{"apiVersionInUri": "v1", "apiFullVersion": "1.0.0"}]}]});
    assert_eq!(put(&nrf, &unknown).status, StatusCode::CREATED, "values of a later release are kept");
    let patch = |item: Value| {
        let body = serde_json::to_vec(&json!([item])).unwrap();
        of_body(Method::PATCH, &path(AMF), &body).0
    };
    assert_eq!(patch(json!({"op": "replace", "path": "/nfStatus", "value": "REGISTERED"})), 204);
    assert_eq!(patch(json!({"op": "add", "path": "/capacity", "value": 7})), 200);
    for outside in ["/x/y", "x", "/nfServices/0/load", "/ipv4Addresses/7"] {
        assert_eq!(patch(json!({"op": "add", "path": outside, "value": 7})), 400, "{outside}");
    }
    assert_eq!(patch(json!({"op": "replace", "path": "/nfInstanceId", "value": SMF})), 403);
    assert_eq!(patch(json!({"op": "merge", "path": "/capacity", "value": 7})), 400);
}

#[test] // over HTTP/2: what is too large is not read
fn a_body_of_16_mib_is_refused() {
    run(async {
        let core = NrfCore::new();
        let _running = core.start("  offer: [nrf]\n");
        let client = SbiClient::new(ClientSettings::new("AMF"));
        let mut large = profile(AMF);
        large["x"] = "y".repeat(16 << 20).into();
        let refused =
            client.send(SbiRequest::put(core.root().uri(&path(AMF)).unwrap(), &large, WITHIN)).await;
        assert!(
            refused.is_err() || refused.as_ref().unwrap().status == StatusCode::PAYLOAD_TOO_LARGE,
            "{refused:?}"
        );
        let small =
            client.send(SbiRequest::put(core.root().uri(&path(AMF)).unwrap(), &profile(AMF), WITHIN)).await;
        assert_eq!(small.unwrap().status, StatusCode::CREATED);
    });
}

#[test] // node/src/sbi/offered/callback_uri.rs: what a sender must not lead others to
fn profiles_and_subscriptions_that_lead_inwards_are_refused() {
    let core = NrfCore::new();
    let nrf = core.service();
    let own_port = core.port;
    let api = core.config("  offer: [nrf]\n").api.address;
    let service = |address: &str, port: u16| {
        json!([{"serviceInstanceId": "1", "serviceName": "namf-comm", "scheme": "http", "nfServiceStatus": "REGISTERED",
            "versions": [{"apiVersionInUri": "v1", "apiFullVersion": "1.0.0"}], "ipEndPoints": [{"ipv4Address": address, "port": port}]}])
    };
    let with = |member: &str, value: Value| {
        let mut profile = profile(AMF);
        profile[member] = value;
        profile
    };
    let callback = |uri: &str| json!([{"notificationType": "N1_MESSAGES", "callbackUri": uri}]);
    let services_by_key = json!({"a": service("127.0.0.1", 9000)[0]});
    for refused in [
        with("ipv4Addresses", json!(["127.0.0.1"])),
        with("ipv4Addresses", json!(["0.0.0.0"])),
        with("ipv4Addresses", json!(["169.254.169.254"])),
        with("ipv6Addresses", json!(["::1"])),
        with("ipv6Addresses", json!(["::ffff:127.0.0.1"])),
        with("nfServices", service("127.0.0.1", 9000)),
        with("nfServices", service("224.0.0.1", 9000)),
        with("nfServiceList", services_by_key),
        with("defaultNotificationSubscriptions", callback("http://127.0.0.1:9000/x")),
        with("defaultNotificationSubscriptions", callback("http://[::1]/x")),
    ] {
        assert_eq!(put(&nrf, &refused).status, 400, "{refused}");
    }
    // A function of the same host may say so, but is not led to this core.
    let local = |profile: &Value| {
        let mut request = request(Method::PUT, &path(AMF), profile);
        request.peer = ([127, 0, 0, 1], 5000).into();
        status(&nrf, &request)
    };
    assert_eq!(local(&with("nfServices", service("127.0.0.5", 9000))), 201);
    for port in [own_port, api.port()] {
        assert_eq!(local(&with("nfServices", service("127.0.0.1", port))), 400, "{port}");
        assert_eq!(
            local(&with("defaultNotificationSubscriptions", callback(&format!("http://127.0.0.1:{port}/")))),
            400
        );
    }
    // By a patch as well.
    assert_eq!(put(&nrf, &profile(AMF)).status, StatusCode::OK);
    let patch = json!([{"op": "replace", "path": "/ipv4Addresses/0", "value": "127.0.0.1"}]);
    assert_eq!(status(&nrf, &request(Method::PATCH, &path(AMF), &patch)), 400);
    let many: Vec<String> = (0..65).map(|n| format!("192.0.2.{n}")).collect();
    assert_eq!(put(&nrf, &with("ipv4Addresses", json!(many))).status, 400);
    for uri in [
        "http://127.0.0.1:9000/",
        "http://localhost/",
        "http://169.254.169.254/latest",
        "ftp://192.0.2.9/",
        "",
    ] {
        let body = json!({"nfStatusNotificationUri": uri});
        let response = served(&nrf, &request(Method::POST, "/nnrf-nfm/v1/subscriptions", &body));
        assert_eq!(
            response.problem().invalid_params.unwrap()[0].param.as_str(),
            "/nfStatusNotificationUri",
            "{uri}"
        );
    }
}

#[test] // this core's own functions are registered by itself alone
fn own_functions_are_not_for_others() {
    let core = NrfCore::new();
    let nrf = core.service();
    let config = core.config("  offer: [nrf]\n");
    let own = consumer(&config, config.sbi.as_ref().unwrap());
    let udm = profile(own.udm.as_str());
    for method in [Method::PUT, Method::DELETE, Method::PATCH] {
        let body = if method == Method::PUT { udm.clone() } else { json!([]) };
        assert_eq!(status(&nrf, &request(method, &path(&own.udm.as_str().to_ascii_uppercase()), &body)), 403);
    }
    let mut from_here = request(Method::PUT, &path(own.udm.as_str()), &udm);
    from_here.peer = ([127, 0, 0, 1], 5000).into();
    assert_eq!(status(&nrf, &from_here), 201);
    assert_eq!(put(&nrf, &profile(own.nrf.as_str())).status, 403);
}

#[test] // one log line for all that find the NRF full
fn a_full_nrf_asks_functions_to_come_again_and_says_so_once() {
    let core = NrfCore::new();
    let nrf = core.service();
    let id = |n: usize| format!("00000000-0000-4000-8000-{n:012}");
    run(async {
        for n in 0..whimbrel_nrf::registry::INSTANCES_MAX - 1 {
            let id = id(n);
            assert_eq!(nrf.serve(&request(Method::PUT, &path(&id), &profile(&id))).unwrap().status, 201);
        }
        let lines = Arc::new(AtomicUsize::new(0));
        with_subscriber(Lines(lines.clone()), || {
            for n in 0..2_000 {
                let id = id(1_000_000 + n);
                let refused = nrf.serve(&request(Method::PUT, &path(&id), &profile(&id))).unwrap();
                assert_eq!(
                    (refused.status.as_u16(), &refused.headers[RETRY_AFTER]),
                    (503, &HeaderValue::from(60))
                );
            }
        });
        assert_eq!(lines.load(Ordering::Relaxed), 1);
        let known = id(7);
        assert_eq!(nrf.serve(&request(Method::PUT, &path(&known), &profile(&known))).unwrap().status, 200);
    });
}

#[test] // TS 33.310 §6.1.3c.3, TS 33.501 §13.3.1.2: a certificate that names an instance is for it alone
fn a_certificate_that_names_an_instance_acts_for_this_one_alone() {
    let core = NrfCore::new();
    let nrf = core.service();
    let with = |pem: &[u8], request: ReceivedRequest| {
        let certificate = CertificateDer::from_pem_slice(pem).unwrap().into_owned();
        let request = ReceivedRequest { client_certificate: Some(certificate), ..request };
        served(&nrf, &request)
    };
    let put = |id: &str| request(Method::PUT, &path(id), &profile(id));
    assert_eq!(with(OF_AMF, put(SMF)).status, 403);
    assert_eq!(with(OF_AMF, put(AMF)).status, 201);
    assert_eq!(with(OF_AMF, put(&AMF.to_ascii_uppercase())).status, 200);
    assert_eq!(with(SERVER, put(SMF)).status, 201, "a certificate without an instance is for all");
    let heartbeat = json!([{"op": "replace", "path": "/nfStatus", "value": "REGISTERED"}]);
    for (id, expected) in [(AMF, 204), (SMF, 403)] {
        assert_eq!(with(OF_AMF, request(Method::PATCH, &path(id), &heartbeat)).status, expected);
    }
    assert_eq!(with(OF_AMF, request(Method::DELETE, &path(SMF), &json!(null))).status, 403);
    let token = |id: &str| {
        let mut request = request(Method::POST, "/oauth2/token", &json!(null));
        let form =
            format!("grant_type=client_credentials&nfInstanceId={id}&targetNfType=NRF&scope=nnrf-disc");
        request.body = form.into();
        request
    };
    assert_eq!(with(OF_AMF, token(AMF)).status, 200);
    let refused = with(OF_AMF, token(SMF));
    let body: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((refused.status.as_u16(), &body["error"]), (400, &json!("invalid_client")));
    assert_eq!(with(SERVER, token(SMF)).status, 200);
    let subscription = |id: &str| {
        let body = json!({"nfStatusNotificationUri": "http://198.51.100.7/n", "reqNfInstanceId": id});
        request(Method::POST, "/nnrf-nfm/v1/subscriptions", &body)
    };
    assert_eq!(with(OF_AMF, subscription(SMF)).status, 403);
    assert_eq!(with(OF_AMF, subscription(AMF)).status, 201);
    let of_smf = with(SERVER, subscription(SMF));
    let name = of_smf.location().unwrap().rsplit('/').next().unwrap().to_owned();
    let delete = || request(Method::DELETE, &format!("/nnrf-nfm/v1/subscriptions/{name}"), &json!(null));
    assert_eq!(with(OF_AMF, delete()).status, 403);
    assert_eq!(with(SERVER, delete()).status, 204);
}

#[test] // RFC 6749 §5.1, §5.2; TS 29.510 §6.3.5
fn tokens_are_signed_by_the_key_whose_public_half_is_beside_the_store() {
    use std::os::unix::fs::PermissionsExt;
    let core = NrfCore::new();
    let nrf = core.service();
    put(&nrf, &profile(AMF));
    let ask = |form: String| {
        let mut request = request(Method::POST, "/oauth2/token", &json!(null));
        request.body = form.into();
        let response = served(&nrf, &request);
        assert_eq!(response.headers["cache-control"], "no-store");
        (response.status.as_u16(), serde_json::from_slice::<Value>(&response.body).unwrap())
    };
    let form = |id: &str| {
        format!("grant_type=client_credentials&nfInstanceId={id}&nfType=AMF&targetNfType=NRF&scope=nnrf-disc")
    };
    let (status, body) = ask(form(AMF));
    assert_eq!(
        (status, &body["token_type"], &body["expires_in"], &body["scope"]),
        (200, &json!("Bearer"), &json!(600), &json!("nnrf-disc"))
    );
    assert_eq!(ask(form(SMF)).1["error"], "invalid_client");
    assert_eq!(ask("scope=x".into()).1["error"], "invalid_request");
    let read = |name: &str| std::fs::read(core.folder.path().join(name)).unwrap();
    let own: NfInstanceId = nrf.nrf().list("nf-type=NRF").unwrap().0[0].clone();
    let verifier =
        whimbrel_sbi::token::TokenVerifier::new(&read("subscribers.nrf.pem"), NfType::Nrf, own.clone())
            .unwrap()
            .expecting_issuer(own);
    let value = format!("Bearer {}", body["access_token"].as_str().unwrap());
    let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::try_from(value).unwrap())]);
    let claims = verifier.check(&headers, &ServiceName::NnrfDisc, whimbrel_sbi::headers::now()).unwrap();
    assert_eq!(claims.sub.as_str(), AMF);
    let mode =
        |name: &str| std::fs::metadata(core.folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("subscribers.nrf.key"), 0o600);
    // The key is that of the first start.
    let public = read("subscribers.nrf.pem");
    drop(core.service());
    assert_eq!(read("subscribers.nrf.pem"), public);
    std::fs::write(core.folder.path().join("subscribers.nrf.key"), "no key").unwrap();
    let config = core.config("  offer: [nrf]\n");
    let (sbi, client) = (config.sbi.clone().unwrap(), SbiClient::new(ClientSettings::new("NRF")));
    let console = Console::new(clock::now()).unwrap();
    let e = NrfService::new(&config, &sbi, &consumer(&config, &sbi), console, client).err().unwrap();
    assert!(e.contains("subscribers.nrf.key, cannot be read"), "{e}");
}
