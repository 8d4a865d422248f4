//! The consumer of the NRF against an NRF of the tests, over sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use whimbrel_sbi::nrf::{NrfClient, NrfError, NrfSettings, NrfState, authorized, producers, roots_of};
use whimbrel_sbi::server::{ReceivedRequest, ServerSettings};
use whimbrel_sbi::{DiscoveryQuery, SbiResponse, SbiServer, problem};
use whimbrel_sbi_types::common::{NfInstanceId, Percentage, ShortText, UriScheme};
use whimbrel_sbi_types::nnrf::{
    IpEndPoint, NfProfile, NfService, NfStatus, NfType, NotificationData, NotificationEventType, ServiceName,
    SubscriptionData,
};
use whimbrel_sbi_types::{BoundedList, BoundedMap, from_slice};

use crate::common::{WITHIN, client, listener, run};

const AMF: &str = "4947a69a-f61b-4bc1-b9da-47c9c5d14b64";

/// State of the NRF of the tests.
#[derive(Default)]
struct Nrf {
    /// Registered profiles, as JSON.
    profiles: BTreeMap<String, serde_json::Value>,
    /// Requests by their kind.
    requests: BTreeMap<&'static str, usize>,
    /// Validity of discoveries, in seconds.
    validity: Option<u32>,
    /// Seconds that a token lives.
    token_life: u32,
    /// All requests but registrations and those for tokens must have a token.
    demands_tokens: bool,
    /// The answer to heartbeats is the profile, as of free5GC, or nothing, as of Open5GS.
    answers_heartbeats_with_profile: bool,
    /// Heartbeats that are lost: they have no answer.
    loses_heartbeats: usize,
}

type SharedNrf = Arc<Mutex<Nrf>>;

fn serve(nrf: &SharedNrf, at: Option<std::net::TcpListener>) -> SbiServer {
    let nrf = nrf.clone();
    let listener = at.unwrap_or_else(listener);
    SbiServer::start(listener, ServerSettings::default(), move |request| {
        let mut nrf = nrf.lock().unwrap();
        let response = answer(&mut nrf, &request);
        let is_lost = request.method == Method::PATCH && nrf.loses_heartbeats > 0;
        nrf.loses_heartbeats -= usize::from(is_lost);
        async move {
            if is_lost {
                std::future::pending::<()>().await;
            }
            response
        }
    })
    .unwrap()
}

fn answer(nrf: &mut Nrf, request: &ReceivedRequest) -> SbiResponse {
    let path = request.uri.path();
    let id = path.strip_prefix("/nnrf-nfm/v1/nf-instances/").unwrap_or_default().to_owned();
    let kind = match (&request.method, path) {
        (&Method::POST, "/oauth2/token") => "token",
        (&Method::GET, "/nnrf-disc/v1/nf-instances") => "discover",
        (&Method::POST, "/nnrf-nfm/v1/subscriptions") => "subscribe",
        (&Method::DELETE, path) if path.starts_with("/nnrf-nfm/v1/subscriptions/") => "unsubscribe",
        (&Method::PUT, _) => "register",
        (&Method::PATCH, _) => "heartbeat",
        (&Method::DELETE, _) => "deregister",
        _ => return problem::problem(whimbrel_sbi::ProtocolCause::ResourceUriStructureNotFound, "unknown"),
    };
    *nrf.requests.entry(kind).or_default() += 1;
    if nrf.demands_tokens
        && !["register", "token"].contains(&kind)
        && !request.headers.contains_key("authorization")
    {
        return problem::of_status(401, None, "a token is missing");
    }
    match kind {
        "token" => {
            assert!(request.body.starts_with(b"grant_type=client_credentials&nfInstanceId="));
            let n = nrf.requests["token"];
            let body = format!(
                r#"{{"access_token":"t-{n}","token_type":"Bearer","expires_in":{}}}"#,
                nrf.token_life
            );
            SbiResponse::with_body(StatusCode::OK, "application/json", body.into())
        }
        "discover" => {
            let query = request.uri.query().unwrap();
            let target = query.split('&').find_map(|part| part.strip_prefix("target-nf-type=")).unwrap();
            let found: Vec<_> = nrf.profiles.values().filter(|profile| profile["nfType"] == target).collect();
            let mut body = serde_json::json!({"nfInstances": found});
            if let Some(validity) = nrf.validity {
                body["validityPeriod"] = validity.into();
            }
            SbiResponse::json(StatusCode::OK, &body)
        }
        "subscribe" => {
            let mut body: serde_json::Value = request.read().unwrap();
            body["subscriptionId"] = "s/1".into();
            SbiResponse::json(StatusCode::CREATED, &body)
        }
        "unsubscribe" => {
            assert_eq!(path, "/nnrf-nfm/v1/subscriptions/s%2F1");
            SbiResponse::no_content()
        }
        "register" => {
            let mut profile: serde_json::Value = request.read().unwrap();
            profile["heartBeatTimer"] = 1.into();
            nrf.profiles.insert(id, profile.clone());
            SbiResponse::created("/nnrf-nfm/v1/nf-instances/x", &profile)
        }
        "heartbeat" => {
            let Some(profile) = nrf.profiles.get_mut(&id) else {
                return problem::of_status(404, Some("RESOURCE_URI_STRUCTURE_NOT_FOUND"), "unknown instance");
            };
            let patch: serde_json::Value = request.read().unwrap();
            assert_eq!(patch[0]["path"], "/nfStatus");
            if patch[1]["path"] == "/load" {
                profile["load"] = patch[1]["value"].clone();
            }
            match nrf.answers_heartbeats_with_profile {
                true => SbiResponse::json(StatusCode::OK, profile),
                false => SbiResponse::no_content(),
            }
        }
        _ => match nrf.profiles.remove(&id) {
            Some(_) => SbiResponse::no_content(),
            None => problem::of_status(404, None, "unknown instance"),
        },
    }
}

fn count(nrf: &SharedNrf, kind: &str) -> usize {
    nrf.lock().unwrap().requests.get(kind).copied().unwrap_or_default()
}

fn own_profile() -> NfProfile {
    let mut profile = NfProfile::new(AMF.parse().unwrap(), NfType::Amf, NfStatus::Registered);
    profile.ipv4_addresses = Some(BoundedList::one("127.0.0.1".parse().unwrap()));
    profile.load = Percentage::new(0);
    profile
}

fn udm(n: u8, priority: Option<u16>) -> NfProfile {
    let id: NfInstanceId = format!("00000000-0000-4000-8000-0000000000{n:02}").parse().unwrap();
    let mut profile = NfProfile::new(id, NfType::Udm, NfStatus::Registered);
    profile.ipv4_addresses = Some(BoundedList::one([10, 0, 0, n].into()));
    profile.priority = priority;
    profile
}

fn put(nrf: &SharedNrf, profile: &NfProfile) {
    let id = profile.nf_instance_id.to_string();
    nrf.lock().unwrap().profiles.insert(id, serde_json::to_value(profile).unwrap());
}

fn start(at: SocketAddr, change: impl FnOnce(&mut NrfSettings)) -> NrfClient {
    let root = format!("http://{at}").parse().unwrap();
    let mut settings = NrfSettings::new(vec![root], own_profile());
    settings.retry_every = Duration::from_millis(200);
    settings.request_within = Duration::from_secs(2);
    change(&mut settings);
    NrfClient::start(client(), settings)
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + WITHIN;
    while !holds() {
        assert!(Instant::now() < end, "{what} within {WITHIN:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn registered(client: &NrfClient) {
    let mut state = client.state();
    let is_registered = state.wait_for(|state| *state == NrfState::Registered(Duration::from_secs(1)));
    tokio::time::timeout(WITHIN, is_registered).await.unwrap().unwrap();
}

/// Binds an address again as soon as its last server is gone.
async fn rebind(at: SocketAddr) -> std::net::TcpListener {
    let end = Instant::now() + WITHIN;
    loop {
        match std::net::TcpListener::bind(at) {
            Ok(listener) => return listener,
            Err(e) => assert!(Instant::now() < end, "{e}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test] // TS 29.510 §5.2.2.2, §5.2.2.3.2, §5.2.2.4: registration, heartbeats at the NRF's interval, deregistration
fn an_instance_registers_beats_and_deregisters() {
    run(async {
        for answers_heartbeats_with_profile in [false, true] {
            let nrf = SharedNrf::default();
            nrf.lock().unwrap().answers_heartbeats_with_profile = answers_heartbeats_with_profile;
            let server = serve(&nrf, None);
            let client = start(server.address(), |_| {});
            registered(&client).await;
            client.update(|profile| profile.load = Percentage::new(42));
            let started = Instant::now();
            until("two heartbeats", || count(&nrf, "heartbeat") == 2).await;
            assert!(started.elapsed() > Duration::from_millis(900), "{:?}", started.elapsed());
            assert_eq!(nrf.lock().unwrap().profiles[AMF]["load"], 42);
            assert_eq!(count(&nrf, "register"), 1, "a load alone goes with the heartbeat");
            client.update(|profile| profile.capacity = Some(7));
            until("the changed profile", || nrf.lock().unwrap().profiles[AMF]["capacity"] == 7).await;
            client.deregister().await.unwrap();
            assert!(nrf.lock().unwrap().profiles.is_empty());
            client.deregister().await.expect("an instance that is gone already");
            assert!(matches!(&*client.state().borrow(), NrfState::Unregistered(_)));
        }
    });
}

#[test] // TS 29.510 §5.2.2.3.2: a heartbeat without an answer is followed by another, and costs no registration
fn a_lost_heartbeat_is_sent_again() {
    run(async {
        let nrf = SharedNrf::default();
        nrf.lock().unwrap().loses_heartbeats = 2;
        let server = serve(&nrf, None);
        let client = start(server.address(), |_| {});
        let mut state = client.state();
        let lost =
            state.wait_for(|s| matches!(s, NrfState::Unreachable(why) if why.contains("has not answered")));
        tokio::time::timeout(WITHIN, lost).await.unwrap().unwrap();
        registered(&client).await;
        assert!(count(&nrf, "heartbeat") >= 3);
        assert_eq!(count(&nrf, "register"), 1);
    });
}

#[test] // TS 29.510 §5.2.2.3.2: an NRF that has forgotten the instance, was down at the start, or comes back, gets the profile
fn an_instance_registers_again_at_an_nrf_that_comes_back() {
    run(async {
        let nrf = SharedNrf::default();
        let at = listener().local_addr().unwrap();
        let client = start(at, |_| {});
        let mut state = client.state();
        let down =
            state.wait_for(|s| matches!(s, NrfState::Unregistered(why) if why.contains("no connection")));
        tokio::time::timeout(WITHIN, down).await.unwrap().unwrap();
        let server = serve(&nrf, Some(rebind(at).await));
        registered(&client).await;
        drop(server);
        let down = state.wait_for(|s| matches!(s, NrfState::Unreachable(_)));
        tokio::time::timeout(WITHIN, down).await.unwrap().unwrap();
        nrf.lock().unwrap().profiles.clear();
        let _server = serve(&nrf, Some(rebind(at).await));
        registered(&client).await;
        until("the profile is there again", || nrf.lock().unwrap().profiles.contains_key(AMF)).await;
        assert_eq!(count(&nrf, "register"), 2);
    });
}

#[test] // TS 29.510 §5.3.2.2, §6.2.6.2.2: an answer is used for its validity, and longer only while the NRF is down
fn discoveries_are_kept_for_their_validity_and_while_the_nrf_is_down() {
    run(async {
        let nrf = SharedNrf::default();
        nrf.lock().unwrap().validity = Some(1);
        put(&nrf, &udm(1, None));
        let server = serve(&nrf, None);
        let at = server.address();
        let client = start(at, |_| {});
        let query = DiscoveryQuery::new(NfType::Udm, [ServiceName::NudmSdm]);
        let burst = (0..20).map(|_| {
            let (client, query) = (client.clone(), query.clone());
            tokio::spawn(async move { client.discover(&query).await })
        });
        for answer in burst.collect::<Vec<_>>() {
            let answer = answer.await.unwrap().unwrap();
            assert_eq!((answer.instances.len(), answer.is_stale), (1, false));
        }
        assert_eq!(count(&nrf, "discover"), 1, "a burst asks once");
        put(&nrf, &udm(2, None));
        assert_eq!(client.discover(&query).await.unwrap().instances.len(), 1);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(client.discover(&query).await.unwrap().instances.len(), 2);
        drop(server);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let started = Instant::now();
        for _ in 0..50 {
            let answer = client.discover(&query).await.unwrap();
            assert_eq!((answer.instances.len(), answer.is_stale), (2, true));
        }
        assert!(started.elapsed() < Duration::from_secs(5), "each request waits for the NRF");
        let other = DiscoveryQuery::new(NfType::Ausf, [ServiceName::NausfAuth]);
        assert!(matches!(client.discover(&other).await, Err(NrfError::Send(_))));
        nrf.lock().unwrap().profiles.clear();
        let _server = serve(&nrf, Some(rebind(at).await));
        let end = Instant::now() + WITHIN;
        while client.discover(&query).await.unwrap().is_stale {
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(client.discover(&query).await.unwrap().instances.is_empty());
    });
}

#[test] // TS 29.510 §5.2.2.5 to §5.2.2.7: notifications change what is known
fn notifications_change_what_is_known() {
    run(async {
        let nrf = SharedNrf::default();
        nrf.lock().unwrap().validity = Some(3600);
        put(&nrf, &udm(1, None));
        put(&nrf, &udm(2, None));
        let server = serve(&nrf, None);
        let client = start(server.address(), |_| {});
        let query = DiscoveryQuery::new(NfType::Udm, []);
        assert_eq!(client.discover(&query).await.unwrap().instances.len(), 2);
        let notification = |event, profile: NfProfile, is_whole: bool| NotificationData {
            event,
            nf_instance_uri: format!("http://nrf/nnrf-nfm/v1/nf-instances/{}", profile.nf_instance_id)
                .parse()
                .unwrap(),
            nf_profile: is_whole.then_some(profile),
            profile_changes: None,
        };
        client.notify(&notification(NotificationEventType::NfDeregistered, udm(1, None), false));
        client.notify(&notification(NotificationEventType::NfProfileChanged, udm(2, Some(9)), true));
        let known = client.discover(&query).await.unwrap();
        assert_eq!(*known.instances, [udm(2, Some(9))]);
        assert_eq!(count(&nrf, "discover"), 1);
        client.notify(&notification(NotificationEventType::NfRegistered, udm(3, None), true));
        assert_eq!(client.discover(&query).await.unwrap().instances.len(), 2);
        assert_eq!(count(&nrf, "discover"), 2, "a new instance may fit");
        let subscription = SubscriptionData {
            nf_status_notification_uri: "http://amf/nrf-notify".parse().unwrap(),
            ..from_slice(br#"{"nfStatusNotificationUri":"http://x","subscrCond":{"nfType":"UDM"}}"#).unwrap()
        };
        let answer = client.subscribe(&subscription).await.unwrap();
        assert_eq!(answer.subscription_id.as_ref().unwrap().as_str().len(), 3);
        client.unsubscribe(&answer).await.unwrap();
    });
}

#[test] // TS 29.510 §5.4.2.2, TS 33.501 §13.4.1: a token is used until shortly before it expires
fn tokens_are_kept_until_they_expire() {
    run(async {
        let nrf = SharedNrf::default();
        nrf.lock().unwrap().token_life = 2;
        let server = serve(&nrf, None);
        let client = start(server.address(), |_| {});
        let first = client.token(&NfType::Udm, "nudm-sdm").await.unwrap();
        assert_eq!(client.token(&NfType::Udm, "nudm-sdm").await.unwrap(), first);
        assert_eq!(count(&nrf, "token"), 1);
        client.token(&NfType::Udm, "nudm-uecm").await.unwrap();
        assert_eq!(count(&nrf, "token"), 2);
        drop(server);
        assert_eq!(client.token(&NfType::Udm, "nudm-sdm").await.unwrap(), first);
        tokio::time::sleep(Duration::from_millis(2100)).await;
        assert!(matches!(client.token(&NfType::Udm, "nudm-sdm").await, Err(NrfError::Send(_))));
        let request = whimbrel_sbi::SbiRequest::get("http://udm/".parse().unwrap(), WITHIN);
        let request = authorized(request, &first).unwrap();
        assert_eq!(request.headers["authorization"], format!("Bearer {first}"));
        assert!(!format!("{request:?} {first:?}").contains(first.as_str()), "a token is a secret");
        assert!(matches!(client.token(&NfType::Udm, "a\"b").await, Err(NrfError::Unwritable)));
    });
}

#[test] // TS 33.501 §13.4.1: where the NRF demands tokens, heartbeats and discoveries have them
fn requests_to_the_nrf_carry_tokens_where_it_demands_them() {
    run(async {
        let nrf = SharedNrf::default();
        nrf.lock().unwrap().token_life = 60;
        nrf.lock().unwrap().demands_tokens = true;
        let server = serve(&nrf, None);
        let without = start(server.address(), |_| {});
        let query = DiscoveryQuery::new(NfType::Udm, []);
        let refused = without.discover(&query).await;
        assert!(matches!(&refused, Err(NrfError::Refused(p)) if p.status == Some(401)), "{refused:?}");
        drop(without);
        let client = start(server.address(), |settings| settings.uses_tokens = true);
        registered(&client).await;
        client.discover(&query).await.unwrap();
        until("a heartbeat", || count(&nrf, "heartbeat") > 0).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(*client.state().borrow(), NrfState::Registered(Duration::from_secs(1)));
    });
}

#[test] // TS 29.510 §6.1.6.2.2, §6.1.6.2.3: priority, status and addresses of instances and services
fn instances_and_addresses_are_ordered_as_profiles_say() {
    let profiles = [
        udm(1, Some(5)),
        udm(2, Some(1)),
        udm(3, Some(1)),
        NfProfile { nf_status: NfStatus::Suspended, ..udm(4, Some(0)) },
    ];
    let order = |turn| -> Vec<u8> {
        let ordered = producers(&profiles, turn);
        ordered.iter().map(|p| p.ipv4_addresses.as_ref().unwrap()[0].octets()[3]).collect()
    };
    assert_eq!([order(0), order(1), order(2)], [vec![2, 3, 1], vec![3, 2, 1], vec![2, 3, 1]]);
    assert!(producers(&[], 3).is_empty());

    let name = |text: &str| ShortText::new(text).unwrap();
    let mut profile = udm(1, None);
    let mut service = NfService::new(name("1"), ServiceName::NudmSdm, UriScheme::Http);
    let roots = |profile: &NfProfile| -> Vec<String> {
        roots_of(profile, &ServiceName::NudmSdm).iter().map(ToString::to_string).collect()
    };
    profile.nf_services = Some(BoundedList::one(service.clone()));
    assert_eq!(roots(&profile), ["http://10.0.0.1"]);
    let point = |port| IpEndPoint {
        ipv4_address: Some([10, 0, 0, 9].into()),
        ipv6_address: Some("2001:db8::9".parse().unwrap()),
        transport: None,
        port,
    };
    service.ip_end_points = Some(BoundedList::one(point(Some(8000))));
    service.api_prefix = Some(name("/core"));
    service.fqdn = Some("udm.example".parse().unwrap());
    profile.nf_services = Some(BoundedList::one(service.clone()));
    let expected =
        ["http://10.0.0.9:8000/core", "http://[2001:db8::9]:8000/core", "http://udm.example:8000/core"];
    assert_eq!(roots(&profile), expected);
    service.api_prefix = Some(name("http://10.0.0.9:8000"));
    service.scheme = UriScheme::Https;
    service.priority = Some(3);
    let better = NfService {
        priority: Some(2),
        fqdn: Some("best.example".parse().unwrap()),
        ip_end_points: None,
        ..service.clone()
    };
    let down =
        NfService { nf_service_status: "SUSPENDED".parse().unwrap(), priority: Some(1), ..service.clone() };
    let listed = [("a", service), ("b", better), ("c", down)].map(|(id, service)| (name(id), service));
    profile.nf_service_list = BoundedMap::new(listed.into());
    let expected = [
        "https://best.example",
        "https://10.0.0.1",
        "https://udm.example:8000",
        "https://10.0.0.9:8000",
        "https://[2001:db8::9]:8000",
    ];
    assert_eq!(roots(&profile), expected);
    assert!(roots_of(&profile, &ServiceName::NudmUecm).is_empty());
}
