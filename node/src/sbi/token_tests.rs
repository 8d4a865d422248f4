//! Access tokens of this core's functions as consumers (TS 29.510 §5.4.2.2, TS 33.501 §13.4.1), against an NRF and a UDM of the tests.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::{Method, StatusCode};
use whimbrel_control::udm::NfType;
use whimbrel_sbi::nrf::{NrfClient, NrfState};
use whimbrel_sbi::problem::of_status;
use whimbrel_sbi::{ClientSettings, ReceivedRequest, SbiClient, SbiResponse, SbiServer, ServerSettings};

use super::peer::{Peer, PeerSource, RequestMethod};
use super::{SbiFigures, registration};
use crate::config::{self, Config};
use crate::observation::Console;

/// Longer than an exchange takes on a busy host.
const WITHIN: Duration = Duration::from_secs(20);

#[derive(Default)]
struct TokenPeers {
    /// Types and states of the instances at the NRF, by identity.
    instances: BTreeMap<String, (String, String)>,
    /// Tokens that the NRF has issued.
    tokens: usize,
    /// Types of requesters in discoveries.
    requesters: Vec<String>,
    /// Requests of the UDM: path and token.
    requests: Vec<(String, String)>,
    /// Requests that the UDM refuses with 401.
    refused: usize,
}

type SharedPeers = Arc<Mutex<TokenPeers>>;

fn start(network: &SharedPeers, answer: fn(&mut TokenPeers, &ReceivedRequest) -> SbiResponse) -> SbiServer {
    let network = network.clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    SbiServer::start(listener, ServerSettings::default(), move |request| {
        let response = answer(&mut network.lock().unwrap(), &request);
        async { response }
    })
    .unwrap()
}

fn udm(network: &mut TokenPeers, request: &ReceivedRequest) -> SbiResponse {
    let token = request.headers.get("authorization").map_or("", |value| value.to_str().unwrap());
    network.requests.push((request.uri.path().to_owned(), token.to_owned()));
    if network.refused > 0 {
        network.refused -= 1;
        return of_status(401, None, "the token has another key");
    }
    SbiResponse::no_content()
}

/// Gives tokens to registered instances alone, which name type, service and number.
fn nrf(network: &mut TokenPeers, request: &ReceivedRequest) -> SbiResponse {
    let path = request.uri.path();
    let parameter = |text: &str, name: &str| {
        let found = text.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    match (&request.method, path) {
        (&Method::POST, "/oauth2/token") => {
            let form = String::from_utf8(request.body.to_vec()).unwrap();
            let of = |name: &str| parameter(&form, name);
            let registered = network.instances.get(&of("nfInstanceId"));
            if registered.is_none_or(|(nf_type, _)| *nf_type != of("nfType")) || of("targetNfType") != "UDM" {
                return of_status(400, None, "invalid_client");
            }
            network.tokens += 1;
            let token = format!("{}.{}.{}", of("nfType"), of("scope"), network.tokens);
            let body = format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":3600}}"#);
            SbiResponse::with_body(StatusCode::OK, "application/json", body.into())
        }
        (&Method::GET, "/nnrf-disc/v1/nf-instances") => {
            network.requesters.push(parameter(request.uri.query().unwrap(), "requester-nf-type"));
            let port: u16 = network.instances["udm"].1.parse().unwrap();
            let service = |name: &str, version: &str| {
                serde_json::json!({"serviceInstanceId": name, "serviceName": name, "scheme": "http", "nfServiceStatus": "REGISTERED",
                    "versions": [{"apiVersionInUri": version, "apiFullVersion": "1.0.0"}],
                    "ipEndPoints": [{"ipv4Address": "127.0.0.1", "port": port}]})
            };
            let body = serde_json::json!({"validityPeriod": 3600, "nfInstances": [{
                "nfInstanceId": "00000000-0000-4000-8000-000000000001", "nfType": "UDM", "nfStatus": "REGISTERED",
                "ipv4Addresses": ["127.0.0.1"],
                "nfServices": [service("nudm-ueau", "v1"), service("nudm-uecm", "v1"), service("nudm-sdm", "v2")],
            }]});
            SbiResponse::json(StatusCode::OK, &body)
        }
        (&Method::PUT, path) => {
            let profile: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            let text = |name: &str| profile[name].as_str().unwrap().to_owned();
            let id = path.rsplit('/').next().unwrap().to_owned();
            network.instances.insert(id, (text("nfType"), text("nfStatus")));
            SbiResponse::json(StatusCode::CREATED, &profile)
        }
        _ => SbiResponse::no_content(),
    }
}

fn config(nrf: &SbiServer, lines: &str) -> Config {
    let text =
        format!("sbi:\n  address: 192.0.2.1:7777\n  nrf: http://{}\n  udm: nrf\n{lines}", nrf.address());
    config::parse(&text, Path::new("w.yaml")).unwrap_or_else(|e| panic!("{e}"))
}

/// This core's functions at the NRF, once all of them are registered, and the UDM as they use it.
async fn registered(config: &Config) -> (Vec<NrfClient>, Peer) {
    let sbi = config.sbi.as_ref().unwrap();
    let client = SbiClient::new(ClientSettings::new("AMF"));
    let clients = registration::register(config, sbi, &super::consumer(config, sbi), &client).unwrap();
    for client in &clients {
        let mut state = client.state();
        // A request to the NRF needs a token in this configuration, but not a registration.
        let is_registered = state.wait_for(|state| matches!(state, NrfState::Registered(_)));
        tokio::time::timeout(WITHIN, is_registered).await.unwrap().unwrap();
    }
    let source = PeerSource::Nrf {
        nrf: clients.clone(),
        target: whimbrel_sbi_types::nnrf::NfType::Udm,
        uses_tokens: sbi.access_tokens,
    };
    let console = Console::new(crate::clock::now()).unwrap();
    let counts = Arc::new(SbiFigures::default());
    let peer = Peer::new(NfType::Udm, source, client, WITHIN, console, counts);
    (clients, peer)
}

async fn send(peer: &Peer, path: &str) -> u16 {
    peer.send("an operation", RequestMethod::Get, path, None).await.unwrap().status
}

/// An operation of each function, with its service.
const OPERATIONS: [(&str, &str, &str); 4] = [
    ("/nudm-ueau/v1/imsi-1/security-information/generate-auth-data", "AUSF", "nudm-ueau"),
    ("/nudm-uecm/v1/imsi-1/registrations/amf-3gpp-access", "AMF", "nudm-uecm"),
    ("/nudm-uecm/v1/imsi-1/registrations/smf-registrations/1", "SMF", "nudm-uecm"),
    ("/nudm-sdm/v2/imsi-1/sm-data", "SMF", "nudm-sdm"),
];

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

/// The servers of a network whose NRF needs no token for itself.
fn network() -> (SharedPeers, SbiServer, SbiServer) {
    let network = SharedPeers::default();
    let (nrf, udm) = (start(&network, nrf_without_tokens), start(&network, udm));
    let port = udm.address().port().to_string();
    network.lock().unwrap().instances.insert("udm".into(), ("UDM".into(), port));
    (network, nrf, udm)
}

/// Gives a token of its own services to everyone.
fn nrf_without_tokens(network: &mut TokenPeers, request: &ReceivedRequest) -> SbiResponse {
    let form = String::from_utf8_lossy(&request.body);
    if request.uri.path() == "/oauth2/token" && form.contains("targetNfType=NRF") {
        let body = r#"{"access_token":"nrf","token_type":"Bearer","expires_in":3600}"#;
        return SbiResponse::with_body(StatusCode::OK, "application/json", body.into());
    }
    nrf(network, request)
}

#[test] // TS 33.501 §13.4.1.1: the token is for the function that consumes, which is registered
fn each_function_shows_a_token_of_its_own() {
    for lines in ["  access_tokens: true\n", "  access_tokens: true\n  offer: [ausf]\n"] {
        run(async {
            let (network, nrf, _udm) = network();
            let config = config(&nrf, lines);
            let (_clients, peer) = registered(&config).await;
            for (path, ..) in OPERATIONS {
                assert_eq!(send(&peer, path).await, 204, "{path}");
            }
            let network = network.lock().unwrap();
            let shown: Vec<_> = network.requests.iter().map(|(_, token)| token.as_str()).collect();
            let expected: Vec<String> = (1..)
                .zip(OPERATIONS)
                .map(|(n, (_, function, service))| format!("Bearer {function}.{service}.{n}"))
                .collect();
            assert_eq!(shown, expected);
            assert_eq!(network.requesters, ["AUSF", "AMF", "SMF", "SMF"]);
            let mut registered: Vec<_> = network.instances.values().filter(|(t, _)| t != "UDM").collect();
            registered.sort();
            let of = |nf_type: &str, status: &str| (nf_type.to_owned(), status.to_owned());
            // An AUSF that offers nothing is not to be found.
            let ausf = if lines.contains("offer") { "REGISTERED" } else { "UNDISCOVERABLE" };
            let expected = [of("AMF", "REGISTERED"), of("AUSF", ausf), of("SMF", "UNDISCOVERABLE")];
            assert_eq!(registered, expected.iter().collect::<Vec<_>>());
        });
    }
}

#[test]
fn without_tokens_the_amf_alone_is_registered_and_asks_for_each_function() {
    run(async {
        let (network, nrf, _udm) = network();
        let config = config(&nrf, "");
        let (clients, peer) = registered(&config).await;
        for (path, ..) in OPERATIONS {
            assert_eq!(send(&peer, path).await, 204, "{path}");
        }
        let network = network.lock().unwrap();
        assert_eq!((clients.len(), network.tokens), (1, 0));
        assert!(network.requests.iter().all(|(_, token)| token.is_empty()));
        assert_eq!(network.requesters, ["AUSF", "AMF", "SMF", "SMF"]);
    });
}

#[test] // RFC 6750 §3.1: a token that is refused is not shown again
fn a_token_that_a_producer_refuses_is_replaced() {
    run(async {
        let (network, nrf, _udm) = network();
        let config = config(&nrf, "  access_tokens: true\n");
        let (_clients, peer) = registered(&config).await;
        network.lock().unwrap().refused = 1;
        let (path, ..) = OPERATIONS[1];
        let answers = [send(&peer, path).await, send(&peer, path).await, send(&peer, path).await];
        assert_eq!(answers, [401, 204, 204]);
        let network = network.lock().unwrap();
        let shown: Vec<_> = network.requests.iter().map(|(_, token)| token.as_str()).collect();
        assert_eq!(shown, ["Bearer AMF.nudm-uecm.1", "Bearer AMF.nudm-uecm.2", "Bearer AMF.nudm-uecm.2"]);
    });
}
