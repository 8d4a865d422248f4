//! For tests: another function whose answers a test gives, and this core as its consumer.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::LOCATION;
use serde_json::{Value as Json, json};
use whimbrel_control::udm::NfType;
use whimbrel_ids::{AmfId, Guami, PlmnId};
use whimbrel_sbi::message::{JSON, PROBLEM_JSON};
use whimbrel_sbi::{ClientSettings, ReceivedRequest, SbiClient, SbiResponse, SbiServer, ServerSettings};
use whimbrel_sbi_types::common::NfInstanceId;
use whimbrel_sbi_types::multipart::Multipart;

use super::peer::{Peer, PeerSource};
use super::udm::Consumer;
use super::{SbiFigures, SbiInput, SbiThread, uuid_of};
use crate::config::sbi::ApiRoot;
use crate::config::value::Value;
use crate::observation::Console;

/// A function whose answers a test gives, with what it was asked.
pub(super) struct ScriptedFunction {
    pub(super) root: ApiRoot,
    /// Paths of the requests, with their bodies.
    requests: Arc<Mutex<Vec<(String, Json)>>>,
    _server: SbiServer,
}

impl ScriptedFunction {
    /// `answer` gets the number of the request, from 0, and gives `None` where the function is silent.
    pub(super) fn start(answer: impl Fn(usize) -> Option<SbiResponse> + Send + Sync + 'static) -> Self {
        Self::start_beside("/none", SbiResponse::no_content, answer)
    }

    /// The same, with another answer to all requests whose paths begin so; these are not counted.
    pub(super) fn start_beside(
        prefix: &'static str,
        beside: impl Fn() -> SbiResponse + Send + Sync + 'static,
        answer: impl Fn(usize) -> Option<SbiResponse> + Send + Sync + 'static,
    ) -> Self {
        let requests: Arc<Mutex<Vec<_>>> = Arc::default();
        let asked = requests.clone();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server =
            SbiServer::start(listener, ServerSettings::default(), move |request: ReceivedRequest| {
                let mut asked = asked.lock().unwrap();
                let is_beside = request.uri.path().starts_with(prefix);
                let response = if is_beside { Some(beside()) } else { answer(asked.len()) };
                if !is_beside {
                    let body = body_of(&request);
                    asked.push((request.uri.path().to_owned(), body));
                }
                async move {
                    match response {
                        Some(response) => response,
                        None => std::future::pending().await,
                    }
                }
            });
        let server = server.unwrap();
        let root = ApiRoot::read(&format!("http://{}", server.address())).unwrap();
        Self { root, requests, _server: server }
    }

    /// The requests that it has received.
    pub(super) fn requests(&self) -> Vec<(String, Json)> {
        self.requests.lock().unwrap().clone()
    }
}

/// A body as JSON, with the parts beside it as hexadecimal digits by their media types.
fn body_of(request: &ReceivedRequest) -> Json {
    let Ok(Multipart { json, parts }) = Multipart::read(request.content_type(), &request.body) else {
        return serde_json::from_slice(&request.body).unwrap_or_default();
    };
    let mut body: Json = serde_json::from_slice(json).unwrap();
    for part in parts {
        let hex: String = part.octets.iter().map(|octet| format!("{octet:02x}")).collect();
        body[part.content_type] = hex.into();
    }
    body
}

/// The client of a function at an API root.
pub(super) fn peer_at(nf: NfType, root: ApiRoot, within: Duration) -> Peer {
    let console = Console::new(crate::clock::now()).unwrap();
    let client = SbiClient::new(ClientSettings::new("AMF"));
    Peer::new(nf, PeerSource::At(root), client, within, console, Arc::new(SbiFigures::default()))
}

/// This core as a consumer, at 192.0.2.1:7777.
pub(super) fn consumer() -> Consumer {
    let instance = |name| NfInstanceId::new(&uuid_of(name)).unwrap();
    Consumer {
        plmn: PlmnId::TEST,
        guami: Guami { plmn: PlmnId::TEST, amf_id: AmfId::from_octets([2, 0, 0x40]) },
        amf: instance("AMF"),
        smf: instance("SMF"),
        ausf: instance("AUSF"),
        udm: instance("UDM"),
        pcf: instance("PCF"),
        nrf: instance("NRF"),
        chf: instance("CHF"),
        ims_vops: false,
        root: "http://192.0.2.1:7777".into(),
        callback_root: "http://192.0.2.1:7777/callbacks/udm".into(),
    }
}

/// The interfaces of a core that takes callbacks alone.
pub(super) fn callbacks_alone(input: mpsc::Sender<SbiInput>) -> Arc<SbiThread> {
    Arc::new(SbiThread {
        udm: None,
        charging: None,
        policy: None,
        smf: None,
        offered: None,
        nrf: None,
        registered: Vec::new(),
        amfs: None,
        input,
        console: Console::new(crate::clock::now()).unwrap(),
        counts: Arc::new(SbiFigures::default()),
    })
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(super) fn json_response(status: u16, body: &Json) -> SbiResponse {
    SbiResponse::with_body(StatusCode::from_u16(status).unwrap(), JSON, body.to_string().into())
}

pub(super) fn created(location: &str, body: &Json) -> SbiResponse {
    json_response(201, body).header(LOCATION, location.parse().unwrap())
}

pub(super) fn problem(status: u16, cause: &str) -> SbiResponse {
    let body = json!({ "status": status, "cause": cause }).to_string();
    SbiResponse::with_body(StatusCode::from_u16(status).unwrap(), PROBLEM_JSON, body.into())
}

/// A recorded answer: its status, location and body.
pub(super) fn recorded_response(exchange: &Json) -> SbiResponse {
    let status = exchange["status"].as_u64().unwrap().try_into().unwrap();
    let mut response = match exchange.get("body") {
        Some(body) => json_response(status, body),
        None => SbiResponse::empty(StatusCode::from_u16(status).unwrap()),
    };
    if let Some(location) = exchange["location"].as_str() {
        response = response.header(LOCATION, location.parse().unwrap());
    }
    response
}
