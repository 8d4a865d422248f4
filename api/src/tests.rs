//! The API over its socket, as a client meets it; and the OpenAPI document against what is really answered.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::routes::ROUTES;
use super::{HandlerContext, Server, start};
use whimbrel_control::amf::{OverloadOrder, WarningError};
use whimbrel_control::{Event, Procedure, Refusal, SessionOutcome, UeEvent, UeId, UeIdentities};
use whimbrel_node::clock;
use whimbrel_node::config;
use whimbrel_node::observation::{
    ClosedBy, ClusterView, Condition, Console, ConsoleCommand, CpfView, CtaView, FlowView, ForesightView,
    GnbView, HistoryEvent, Level, Metric, Moment, Name, OverloadView, RatesView, RefusalReason,
    RefusalRecord, SessionView, Target, TimerView, TunnelView, UePage, UeView, UpfDrainView, UpfView,
    VersionView, WarningAtGnb, WarningView,
};

mod capture;
mod charging;
mod hostile;
mod live;
mod login;
mod settings;

const UE: &str = "imsi-999700000000001";

/// A server with a store of its own, which goes with it.
struct TestServer {
    server: Server,
    folder: TempDir,
}

impl Deref for TestServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// A console with something to show, and a thread in the control thread's place.
fn served() -> (TestServer, Arc<Console>) {
    served_with(|_| {})
}

/// The same with a change of the configuration.
fn served_with(change: impl FnOnce(&mut config::Config)) -> (TestServer, Arc<Console>) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config::default();
    config.store.path = folder.path().join("subscribers.db");
    config.store.key_file = folder.path().join("subscribers.key");
    change(&mut config);
    let config = Arc::new(config);
    let console = Console::new(clock::now()).unwrap();
    let server =
        start("127.0.0.1:0".parse().unwrap(), HandlerContext::new(console.clone(), config, None)).unwrap();
    console.components(|c| c.set("n2", Condition::Up, "SCTP (raw) on 127.0.0.1 port 38412"));
    let served = Arc::downgrade(&console);
    std::thread::spawn(move || {
        while let Some(console) = served.upgrade() {
            match console.commands.take() {
                Some(command) => control(&console, command),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    (TestServer { server, folder }, console)
}

fn control(console: &Console, command: ConsoleCommand) {
    let begin = |target| console.operations.begin(clock::now(), UE.into(), target);
    let ue_id = UeId { slot: 4, generation: 1 };
    let ue = UeView {
        supi: UE.into(),
        state: "registered".into(),
        mode: "idle".into(),
        gnb: Some("gnb-999/70-1".into()),
        cpf: Some(4),
        cpf_code: Some("0000001f".into()),
        canary: true,
        ue_ambr: Some(RatesView::default()),
        timers: vec![TimerView::default()],
        sessions: vec![SessionView {
            id: 1,
            n3_upf: Some(TunnelView::default()),
            flows: vec![FlowView { gfbr: Some(RatesView::default()), ..FlowView::default() }],
            ..SessionView::default()
        }],
        ..UeView::default()
    };
    let _ = match command {
        ConsoleCommand::ListUes(_, reply) => reply.send(UePage { ues: vec![ue], next: None }).is_ok(),
        ConsoleCommand::ShowUe(supi, reply) => reply.send((supi.to_string() == UE).then_some(ue)).is_ok(),
        ConsoleCommand::Cluster(reply) => reply.send(cluster()).is_ok(),
        ConsoleCommand::ListGnbs(reply) => {
            reply.send(vec![GnbView { id: "999/70-1".into(), id_bits: 28, ..GnbView::default() }]).is_ok()
        }
        ConsoleCommand::Deregister(supi, reply) | ConsoleCommand::NotifyReachable(supi, reply) => {
            let known = supi.to_string() == UE;
            reply.send(known.then(|| begin(Target::Reachability(ue_id)))).is_ok()
        }
        ConsoleCommand::Locate(supi, _, reply) => reply.send(supi.to_string() == UE).is_ok(),
        ConsoleCommand::Warn(warning, reply) => {
            let awaited = usize::from(warning.serial_number);
            reply.send(Ok(begin(Target::Warning { of: (4370, 1), awaited, cancelled: false }))).is_ok()
        }
        ConsoleCommand::CancelWarning(id, 1, reply) => {
            reply.send(Ok(begin(Target::Warning { of: (id, 1), awaited: 1, cancelled: true }))).is_ok()
        }
        ConsoleCommand::CancelWarning(_, _, reply) => reply.send(Err(WarningError::Unknown)).is_ok(),
        ConsoleCommand::ListWarnings(reply) => {
            let gnbs = vec![WarningAtGnb::default()];
            reply
                .send(vec![WarningView { gnbs, area: vec!["everywhere".into()], ..WarningView::default() }])
                .is_ok()
        }
        ConsoleCommand::Overload(order, reply) => {
            let overloaded = order == Some(OverloadOrder::Start);
            reply.send(OverloadView { overloaded, order: "rule".into() }).is_ok()
        }
        ConsoleCommand::Removal(_, reply) => {
            reply.send(Err("no other AMF of this one's set is connected".into())).is_ok()
        }
        ConsoleCommand::UpfDrain(upf, order, reply) => {
            let ordered_by = order.map(|_| "operator".to_owned());
            reply
                .send((upf == "upf").then(|| UpfDrainView { upf, ordered_by, ..UpfDrainView::default() }))
                .is_ok()
        }
        ConsoleCommand::Foresight(reply) => reply.send(ForesightView::default()).is_ok(),
        ConsoleCommand::ResetGnb(gnb, reply) => {
            reply.send((gnb.gnb_id == 1).then(|| begin(Target::Reset(gnb)))).is_ok()
        }
        ConsoleCommand::DisconnectGnb(gnb, reply) => reply.send(gnb.gnb_id == 1).is_ok(),
        ConsoleCommand::Reconfigure(_) => true,
        ConsoleCommand::GenerateAuthData(_, _, reply) => {
            reply.send(Err(whimbrel_control::udm::UdmError::UserNotFound)).is_ok()
        }
        ConsoleCommand::DeregisteredByUdm(_) => true,
        ConsoleCommand::OpenNas(_, messages, reply) => reply.send(vec![None; messages.len()]).is_ok(),
        // The gNB refuses at once.
        ConsoleCommand::ModifySession(supi, psi, modification, reply) => {
            let has = supi.to_string() == UE && psi.value() == 1;
            let operation = has.then(|| begin(Target::Session(ue_id, psi, modification)));
            let answered = reply.send(operation).is_ok();
            let refusal = Refusal::RefusedByGnb {
                message: "PDU SESSION RESOURCE MODIFY RESPONSE (PDUSessionResourceFailedToModifyListModRes)",
                cause: "radioNetwork radio-resources-not-available (22)".into(),
            };
            let event = Event::SessionOperation {
                subject: UeIdentities::default(),
                psi,
                procedure: Procedure::PduSessionModificationByNetwork,
                order: None,
                outcome: SessionOutcome::Refused { refusal, more: false },
            };
            console.operations.ue(clock::now(), &UeEvent { ue: ue_id, on: None, event });
            answered
        }
    };
}

/// A pair with a CPF, of which the UEs were not counted.
fn cluster() -> ClusterView {
    let moment = Moment { took_us: Some(12_000), ..moment() };
    ClusterView {
        deployment: "pair",
        ctas: vec![CtaView { role: "primary", term: Some(2), ..CtaView::default() }],
        cpfs: vec![CpfView { state: "serving", primary_of: None, ..CpfView::default() }],
        upfs: vec![UpfView {
            name: "upf".into(),
            address: None,
            usable: true,
            load: 0,
            ues: 0,
            drained: false,
        }],
        versions: vec![VersionView { code: "0000001f".into(), canary: true, ..VersionView::default() }],
        timeline: vec![moment],
        ..ClusterView::default()
    }
}

fn moment() -> Moment {
    Moment {
        at: clock::rfc3339(clock::now()),
        kind: "lost",
        subject: "CPF 3".into(),
        text: "It is lost.".into(),
        took_us: None,
    }
}

/// A UE whose subscriber is not in the store was refused.
fn refused(console: &Console) {
    let record = RefusalRecord {
        subjects: vec!["imsi-999700000000002".into(), "gnb-999/70-1".into()],
        procedure: "registration".into(),
        why: "the subscriber is not in the store".into(),
        answer: "REGISTRATION REJECT with 5GMM cause #3 (Illegal UE)".into(),
        ..RefusalRecord::default()
    };
    let refused = HistoryEvent::Refused(
        Box::new(record),
        RefusalReason::Ue(whimbrel_control::Refusal::UnknownSubscriber),
        ClosedBy::Registration,
    );
    let name = Name::Ue("imsi-999700000000002".parse().unwrap());
    console.histories(|h| h.push(clock::now(), &name, None, refused));
}

#[test] // TS 33.515 §4.2.3.2.5, TS 33.117 §4.2.3.2.5: each access to personal data is logged, without personal data
fn access_to_personal_data_is_logged() {
    let (server, _) = served();
    let (k, opc) = ("00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100");
    let body = format!(r#"{{"supi": "imsi-999700000004242", "k": "{k}", "opc": "{opc}"}}"#);
    let json = "Content-Type: application/json\r\n";
    assert_eq!(ask(server.address, "POST", "/api/v1/subscribers", json, &body).0, 201);
    get(server.address, "/api/v1/subscribers/imsi-999700000004242");
    get(server.address, "/api/v1/subscribers/999700000004242");
    get(server.address, "/api/v1/ues");
    get(server.address, "/api/v1/why/imsi-999700000004242");
    get(server.address, "/api/v1/status");
    get(server.address, "/api/v1/subscribers/imsi-999700000009999");
    let text = std::fs::read_to_string(server.folder.path().join("subscribers.db.audit")).unwrap();
    let name = text.split("subscriber=").nth(1).and_then(|w| w.split(' ').next()).expect("a name");
    assert_eq!(name.len(), 16, "{text}");
    assert_eq!(text.matches(name).count(), 4, "however it was written: {text}");
    assert!(text.contains("GET /api/v1/ues\"") && !text.contains("/status"), "{text}");
    assert!(text.contains("outcome=404") && text.contains("outcome=201"), "{text}");
    // Long enough not to occur by chance among the digits of the names and of the hash chain.
    for secret in ["999700000004242", "700000004242", k, opc] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

/// Sends octets as they are and reads all that comes back.
fn raw(address: SocketAddr, octets: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = stream.write_all(octets);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The token with which tests are taken for commands of this host.
fn token(_: SocketAddr) -> &'static str {
    super::auth::TEST_TOKEN
}

/// A request of this host's commands.
fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
    let headers = format!("Authorization: Bearer {}\r\n{headers}", token(address));
    ask_unauthenticated(address, method, path, &headers, body)
}

/// A request with these headers alone.
fn ask_unauthenticated(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, Value) {
    let (status, _, body) = answer(address, method, path, headers, body);
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// Status, header and body of an answer.
fn answer(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, String) {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    let answer = raw(address, request.as_bytes());
    let status =
        answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (status, head.to_ascii_lowercase(), body.into())
}

fn get(address: SocketAddr, path: &str) -> (u16, Value) {
    ask(address, "GET", path, "", "")
}

#[test]
fn a_cpf_shows_its_status_and_metrics_and_no_ues() {
    let console = Console::new(clock::now()).unwrap();
    console.components(|c| c.set("cpf", Condition::Up, "a CTA accepts this CPF"));
    let at = "127.0.0.1:0".parse().unwrap();
    let server = start(at, HandlerContext::of_cpf(console, at)).unwrap();
    let (status, body) = get(server.address, "/api/v1/status");
    assert!(status == 200 && body["condition"] == "up", "{body}");
    let (status, _, text) = answer(server.address, "GET", "/metrics", "", "");
    assert!(
        status == 200 && text.contains(Metric::Uptime.name()) && !text.contains(Metric::Gnbs.name()),
        "{text}"
    );
    for path in ["/api/v1/subscribers", "/api/v1/ues", "/api/v1/events"] {
        let (status, body) = get(server.address, path);
        assert!(status == 404 && body.to_string().contains("ask the CTA"), "{path}: {body}");
    }
}

fn openapi() -> Value {
    super::openapi::document()
}

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let doc = openapi();
    let mut described: Vec<String> = Vec::new();
    for (path, operations) in doc["paths"].as_object().unwrap() {
        described
            .extend(operations.as_object().unwrap().keys().map(|m| format!("{} {path}", m.to_uppercase())));
    }
    let mut routed: Vec<String> = ROUTES.iter().map(|r| format!("{} {}", r.method, r.path)).collect();
    described.sort();
    routed.sort();
    assert_eq!(described, routed);
    for route in ROUTES {
        let operation = &doc["paths"][route.path][route.method.as_str().to_lowercase()];
        let named: Vec<&str> =
            route.path.split('/').filter_map(|p| p.strip_prefix('{')?.strip_suffix('}')).collect();
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        for name in named {
            assert!(
                parameters.iter().any(|p| p["name"] == name && p["in"] == "path"),
                "{} {name}",
                route.path
            );
        }
    }
}

/// Checks a value against a schema of the document, both ways: no key missing, none undescribed.
fn conforms(doc: &Value, schema: &Value, value: &Value, at: &str) {
    let schema = match schema["$ref"].as_str() {
        Some(name) => doc.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("{at}: no {name}")),
        None => schema,
    };
    if value.is_null() {
        assert!(schema["nullable"] == true, "{at}: null");
        return;
    }
    if let Some(variants) = schema["allOf"].as_array() {
        return variants.iter().for_each(|schema| conforms(doc, schema, value, at));
    }
    let described = schema["type"].as_str().unwrap_or_else(|| panic!("{at}: no type in {schema}"));
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{at}: {value} is none of {words:?}");
    }
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = described == is || described == "number" && is == "integer";
    assert!(fits, "{at}: {is} where {described} is described");
    match value {
        Value::Array(items) => {
            items.iter().for_each(|v| conforms(doc, &schema["items"], v, &format!("{at}[]")))
        }
        Value::Object(map) if schema["properties"].is_object() => {
            let described = schema["properties"].as_object().unwrap();
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required.for_each(|key| assert!(map.contains_key(key), "{at}: {key} is missing"));
            map.keys().for_each(|key| assert!(described.contains_key(key), "{at}: {key} is not described"));
            map.iter().for_each(|(k, v)| conforms(doc, &described[k], v, &format!("{at}.{k}")));
        }
        _ => {}
    }
}

#[test]
fn answers_conform_to_the_openapi_document() {
    let (server, console) = served();
    refused(&console);
    console.events(|e| e.push(clock::now(), Level::Info, "test", UE, "Something."));
    let doc = openapi();
    for (path, route) in [
        ("/api/v1/status", "/api/v1/status"),
        ("/api/v1/gnbs", "/api/v1/gnbs"),
        ("/api/v1/ues", "/api/v1/ues"),
        ("/api/v1/ues/999700000000001", "/api/v1/ues/{supi}"),
        ("/api/v1/why/imsi-999700000000002", "/api/v1/why/{subject}"),
        ("/api/v1/refusals?limit=5", "/api/v1/refusals"),
        ("/api/v1/events?since=0", "/api/v1/events"),
        ("/api/v1/warnings", "/api/v1/warnings"),
        ("/api/v1/overload", "/api/v1/overload"),
        ("/api/v1/foresight", "/api/v1/foresight"),
        ("/api/v1/alarms", "/api/v1/alarms"),
        ("/api/v1/session", "/api/v1/session"),
        ("/api/v1/users", "/api/v1/users"),
        ("/api/v1/tokens", "/api/v1/tokens"),
        ("/api/v1/audit?limit=3", "/api/v1/audit"),
        ("/api/v1/ues?find=999700000000001", "/api/v1/ues"),
        ("/api/v1/ues/999700000000001/signalling", "/api/v1/ues/{supi}/signalling"),
        ("/api/v1/cluster", "/api/v1/cluster"),
        ("/api/v1/network", "/api/v1/network"),
        ("/api/v1/config/defaults", "/api/v1/config/defaults"),
        ("/api/v1/ue-summaries", "/api/v1/ue-summaries"),
        ("/openapi.json", "/openapi.json"),
    ] {
        let (status, body) = get(server.address, path);
        assert_eq!(status, 200, "{path}: {body}");
        conforms(
            &doc,
            &doc["paths"][route]["get"]["responses"]["200"]["content"]["application/json"]["schema"],
            &body,
            path,
        );
    }
    let (status, body) = get(server.address, "/api/v1/ues/imsi-999700000000009");
    assert_eq!(status, 404);
    conforms(&doc, &serde_json::json!({"$ref": "#/components/schemas/Problem"}), &body, "problem");
    for verb in ["deregister", "reachability"] {
        let of = |ue: &str| format!("/api/v1/ues/{ue}/{verb}");
        let (status, operation) = ask(server.address, "POST", &of("imsi-999700000000001"), "", "");
        assert_eq!(status, 202);
        conforms(&doc, &serde_json::json!({"$ref": "#/components/schemas/Operation"}), &operation, verb);
        assert_eq!(ask(server.address, "POST", &of("imsi-999700000000009"), "", "").0, 404);
    }
    let (status, text) = get(server.address, "/metrics");
    assert!(status == 200 && text.as_str().unwrap().contains(Metric::ApiRequests.name()), "{text}");
}

#[test]
fn why_reports_the_present_state_and_the_fix_that_applies_now() {
    let (server, console) = served();
    refused(&console);
    console.configured(Arc::new(whimbrel_node::config::default().control()));
    let why = |subject: &str| {
        let (status, body) = get(server.address, &format!("/api/v1/why/{subject}"));
        assert_eq!(status, 200, "{body}");
        body["sentence"].as_str().unwrap().to_string()
    };
    let unknown = why("999700000000002");
    assert!(
        unknown.contains("its registration was refused at ") && unknown.contains("not in the store"),
        "{unknown}"
    );
    assert!(
        unknown.contains("; fix: `whimbrel subscriber add imsi-999700000000002 --k K --opc OPC`"),
        "{unknown}"
    );
    let (k, opc) = ("00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100");
    let body = format!(r#"{{"supi": "imsi-999700000000002", "k": "{k}", "opc": "{opc}"}}"#);
    let json = "Content-Type: application/json\r\n";
    assert_eq!(ask(server.address, "POST", "/api/v1/subscribers", json, &body).0, 201);
    let added = why("999700000000002");
    assert!(
        added.contains("; the subscriber was added later, but it has not tried again; fix: switch the UE"),
        "{added}"
    );
    let on = why(UE);
    assert!(on.contains("is registered, idle through gnb-999/70-1, with PDU session 1 ("), "{on}");
    assert!(on.contains("one of the canary's UEs (at CPF 4, code 0000001f; `whimbrel canary`)"), "{on}");
    assert!(on.ends_with("; nothing is wrong."), "{on}");
    let silent = why("imsi-999700000000003");
    assert!(silent.contains("is not a subscriber, and no message from it has arrived"), "{silent}");
    assert!(why("999%2F70-1").contains("is up"));
    let silent = why("gnb-999%2F70-77");
    assert!(
        silent.contains("fix: point the gNB at 127.0.0.1 port 38412 for N2, with PLMN 999/70."),
        "{silent}"
    );
    console.components(|c| c.set("n2", Condition::Down, "SCTP is not available"));
    let silent = why("gnb-999%2F70-77");
    assert!(silent.contains("fix: a part of the core is down: SCTP is not available."), "{silent}");
    let (status, problem) = get(server.address, "/api/v1/why/foo");
    assert_eq!(status, 404);
    assert!(
        problem["detail"].as_str().unwrap().starts_with("`foo` is not the name of a known UE or gNB"),
        "{problem}"
    );
}

#[test]
fn bad_input_gets_a_problem_document_and_the_next_request_is_served() {
    let (server, console) = served();
    let address = server.address;
    for (path, status) in [
        ("/console/", 404),
        ("/api/v1/nothing", 404),
        ("/api/v1/ues/imsi-12", 400),
        ("/api/v1/ues/%ff%fe", 400),
        ("/api/v1/ues?limit=0", 400),
        ("/api/v1/ues?limit=9999999999999999999999", 400),
        ("/api/v1/ues?after=zebra", 400),
        ("/api/v1/events?since=-1", 400),
    ] {
        let (got, body) = get(address, path);
        assert_eq!(got, status, "{path}: {body}");
        assert!(body["detail"].is_string(), "{path}: {body}");
    }
    // RFC 9110 §15.5.6: the answer lists the methods.
    let (status, head, _) = answer(address, "PUT", "/api/v1/subscribers", "", "");
    assert!(status == 405 && head.contains("\r\nallow: get, post\r\n"), "{head}");
    assert_eq!(ask(address, "DELETE", "/api/v1/status", "", "").0, 405);
    assert_eq!(ask(address, "POST", "/api/v1/ues/imsi-999700000000001/deregister", "", "x=1").0, 415);
    let large = "x".repeat(300 << 10);
    let json = "Content-Type: application/json\r\n";
    assert_eq!(ask(address, "POST", "/api/v1/ues/imsi-999700000000001/deregister", json, &large).0, 413);
    assert!(console.metrics.value(Metric::ApiRefused) >= 8);
    assert_eq!(get(address, "/api/v1/status").0, 200);
}

#[test]
fn requests_of_foreign_web_pages_are_refused() {
    let (server, _console) = served();
    let a = server.address;
    assert_eq!(ask(a, "GET", "/api/v1/status", "Origin: http://evil.example\r\n", "").0, 403);
    assert_eq!(ask(a, "GET", "/api/v1/status", &format!("Origin: http://{a}\r\n"), "").0, 200);
    let of = |host: &str| {
        let token = token(a);
        let head = format!(
            "GET /api/v1/status HTTP/1.1\r\nHost: {host}:8070\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        raw(a, head.as_bytes())
    };
    assert!(of("evil.example").starts_with("HTTP/1.1 403"), "{}", of("evil.example"));
    assert!(of("localhost").starts_with("HTTP/1.1 200"), "{}", of("localhost"));
}

#[test]
fn garbage_on_the_socket_disturbs_no_other_client() {
    let (server, _console) = served();
    let long = [&b"GET / HTTP/1.1\r\nX: "[..], &vec![b'y'; 64 << 10], b"\r\n\r\n"].concat();
    for octets in [&b"\0\x01\x02\xff garbage\r\n\r\n"[..], b"GET", b"GET / HTTP/9.9\r\n\r\n", &long] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let _ = stream.write_all(octets);
    }
    // Idle connections within the bound do not block others.
    let _idle: Vec<_> = (0..50).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert_eq!(get(server.address, "/api/v1/status").0, 200);
}

#[test]
fn without_the_control_thread_the_state_is_still_shown() {
    let console = Console::new(clock::now()).unwrap();
    console.components(|c| c.set("n2", Condition::Down, "no SCTP"));
    let folder = tempfile::tempdir().unwrap();
    let mut config = config::default();
    config.store.path = folder.path().join("subscribers.db");
    let shared = HandlerContext::new(console, Arc::new(config), None);
    let server = start("127.0.0.1:0".parse().unwrap(), shared).unwrap();
    let (status, body) = get(server.address, "/api/v1/status");
    assert_eq!((status, body["condition"].as_str()), (200, Some("down")));
    let (status, body) = get(server.address, "/api/v1/gnbs");
    assert_eq!(status, 503, "{body}");
}

#[test]
fn the_api_stops_at_once() {
    let (server, _console) = served();
    let address = server.address;
    let _idle = TcpStream::connect(address).unwrap();
    assert_eq!(get(address, "/api/v1/status").0, 200);
    let begun = std::time::Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn subscribers_are_added_shown_changed_and_removed() {
    let (server, _console) = served();
    let a = server.address;
    let json = "Content-Type: application/json\r\n";
    let k = "465b5ce8b199b49faa5f0a2ee238a6bc";
    let body = format!("{{\"supi\": \"{UE}\", \"k\": \"{k}\", \"opc\": \"{k}\"}}");
    let path = format!("/api/v1/subscribers/{UE}");
    let doc = openapi();
    let schema = serde_json::json!({"$ref": "#/components/schemas/Subscriber"});
    let (status, added) = ask(a, "POST", "/api/v1/subscribers", json, &body);
    assert_eq!(status, 201, "{added}");
    conforms(&doc, &schema, &added, "added");
    assert_eq!(ask(a, "POST", "/api/v1/subscribers", json, &body).0, 409);
    let (status, shown) = get(a, &path);
    assert_eq!((status, &shown), (200, &added));
    assert!(!shown.to_string().contains(k), "keys do not leave");
    let (status, page) = get(a, "/api/v1/subscribers?limit=1");
    assert_eq!((status, page["next"].as_str()), (200, Some(UE)));
    conforms(&doc, &serde_json::json!({"$ref": "#/components/schemas/SubscriberPage"}), &page, "page");
    let (status, edited) = ask(a, "PATCH", &path, json, "{\"status\": \"barred\"}");
    assert_eq!((status, edited["status"].as_str()), (200, Some("barred")), "{edited}");
    let (status, problem) = ask(a, "PATCH", &path, json, "{\"subscription\": {\"slices\": []}}");
    assert!(status == 422 && problem["detail"].as_str().unwrap().contains("slices"), "{problem}");
    assert_eq!(get(a, &path).1, edited);
    let (status, problem) = ask(a, "PATCH", &path, json, "{\"supi\": \"imsi-999700000000009\"}");
    assert_eq!(status, 422, "{problem}");
    assert_eq!(ask(a, "PATCH", &path, json, "[]").0, 400);
    assert_eq!(ask(a, "POST", "/api/v1/subscribers", json, "{").0, 400);
    let (status, problem) =
        ask(a, "POST", "/api/v1/subscribers", json, "{\"supi\": \"imsi-999700000000002\"}");
    assert_eq!(status, 422, "{problem}");
    assert_eq!(ask(a, "DELETE", &path, "", "").0, 204);
    assert_eq!(ask(a, "DELETE", &path, "", "").0, 404);
    assert_eq!(get(a, &path).0, 404);
}

#[test]
fn an_import_is_whole_or_nothing() {
    let (server, _console) = served();
    let a = server.address;
    let csv = "Content-Type: text/csv\r\n";
    let k = "465b5ce8b199b49faa5f0a2ee238a6bc";
    let list = |n: u64| {
        let lines = (1..=n).map(|i| format!("9997000000{i:05},{k},{k}\n"));
        format!("supi,k,opc\n{}", lines.collect::<String>())
    };
    let import = "/api/v1/subscribers/import";
    let (status, done) = ask(a, "POST", import, csv, &list(2000));
    assert_eq!((status, done["added"].as_u64()), (200, Some(2000)), "{done}");
    conforms(&openapi(), &serde_json::json!({"$ref": "#/components/schemas/Imported"}), &done, "import");
    let bad = list(3000) + "999700000003001,zebra,00\n";
    let (status, problem) = ask(a, "POST", &format!("{import}?on_existing=skip"), csv, &bad);
    assert!(status == 422 && problem["detail"].as_str().unwrap().contains("line 3002"), "{problem}");
    let (_, page) = get(a, "/api/v1/subscribers?after=imsi-999700000002000");
    assert_eq!(page["subscribers"], serde_json::json!([]));
    let (status, done) = ask(a, "POST", &format!("{import}?on_existing=skip"), csv, &list(2500));
    assert_eq!(
        (status, done["added"].as_u64(), done["skipped"].as_u64()),
        (200, Some(500), Some(2000)),
        "{done}"
    );
    assert_eq!(ask(a, "POST", &format!("{import}?on_existing=x"), csv, &list(1)).0, 400);
    assert_eq!(ask(a, "POST", import, "", "").0, 400, "no list at all");
}

#[test]
fn an_import_names_ignored_columns_and_counts_subscribers_of_another_plmn() {
    let (server, _console) = served();
    let k = "465b5ce8b199b49faa5f0a2ee238a6bc";
    let list = format!("IMSI;ICCID;KI;OPC\r\n001010000000001;89;{k};{k}\r\n999700000000001;90;{k};{k}\r\n");
    let csv = "Content-Type: text/csv\r\n";
    let (status, done) = ask(server.address, "POST", "/api/v1/subscribers/import", csv, &list);
    assert_eq!(
        (status, done["added"].as_u64(), done["other_plmn"].as_u64()),
        (200, Some(2), Some(1)),
        "{done}"
    );
    assert_eq!(done["ignored_columns"], serde_json::json!(["ICCID"]));
}

#[test]
fn a_cta_that_does_not_serve_says_so_of_ues_and_subscribers() {
    let (server, console) = served();
    let a = server.address;
    let (json, import) = ("Content-Type: application/json\r\n", "/api/v1/subscribers/import");
    console.components(|c| c.set("cta", Condition::Up, "this CTA is the primary"));
    assert_eq!(get(a, "/api/v1/subscribers").0, 200);
    let detail = "this CTA does not serve: it follows CTA 2";
    console.components(|c| c.set("cta", Condition::Limited, detail));
    for path in ["/api/v1/ues", "/api/v1/subscribers", "/api/v1/why/imsi-999700000000001", "/api/v1/gnbs"] {
        let (status, problem) = get(a, path);
        assert!(
            status == 503 && problem["detail"].as_str().unwrap().starts_with(detail),
            "{path}: {problem}"
        );
    }
    assert_eq!(ask(a, "POST", import, json, "[]").0, 503, "it would be overwritten");
    assert_eq!(get(a, "/api/v1/status").0, 200);
    assert_eq!(get(a, "/api/v1/refusals").0, 200);
}

#[test] // TS 38.413 §8.2.3.3
fn the_outcome_of_an_order_is_waited_for_and_asked_for_later() {
    let (server, _console) = served();
    let (a, doc) = (server.address, openapi());
    let schema = serde_json::json!({"$ref": "#/components/schemas/Operation"});
    let modify = format!("/api/v1/ues/{UE}/sessions/1/modify?uplink=1Mbps&downlink=1Mbps");
    let (status, refused) = ask(a, "POST", &format!("{modify}&wait=30"), "", "");
    assert_eq!((status, refused["state"].as_str()), (200, Some("failed")), "{refused}");
    conforms(&doc, &schema, &refused, "refused");
    let finding = &refused["findings"][0];
    assert_eq!(finding["cause"], "radioNetwork radio-resources-not-available (22)");
    assert!(finding["message"].as_str().unwrap().contains("PDUSessionResourceFailedToModifyListModRes"));
    let (status, again) = get(a, &format!("/api/v1/operations/{}", refused["id"]));
    assert_eq!((status, &again), (200, &refused));
    // One that nothing ends is given back as it stands.
    let (status, pending) = ask(a, "POST", "/api/v1/gnbs/999%2F70-1/reset?wait=0", "", "");
    assert_eq!((status, pending["state"].as_str()), (202, Some("pending")), "{pending}");
    let (status, all) = get(a, "/api/v1/operations");
    assert_eq!((status, all[0]["id"].as_u64()), (200, pending["id"].as_u64()));
    conforms(
        &doc,
        &doc["paths"]["/api/v1/operations"]["get"]["responses"]["200"]["content"]["application/json"]["schema"],
        &all,
        "all",
    );
    assert_eq!(get(a, "/api/v1/operations/99").0, 404);
    assert_eq!(get(a, "/api/v1/operations/x").0, 400);
    for wait in ["31", "-1", "x"] {
        assert_eq!(ask(a, "POST", &format!("{modify}&wait={wait}"), "", "").0, 400, "{wait}");
    }
}

#[test] // TS 38.413 §8.9.1.2, §8.9.2.2
fn warnings_are_sent_and_cancelled() {
    let (server, _console) = served();
    let a = server.address;
    let json = "Content-Type: application/json\r\n";
    let send = |body: &str| ask(a, "POST", "/api/v1/warnings", json, body);
    let (status, answer) = send(r#"{"message_identifier": 4370, "serial_number": 7, "text": "Flood"}"#);
    assert_eq!((status, answer["gnbs"].as_u64()), (202, Some(7)), "{answer}");
    for (body, status) in [
        ("{", 400),
        (r#"{"message_identifier": 70000, "serial_number": 1}"#, 422),
        (r#"{"message_identifier": 1, "serial_number": 1, "zebra": 1}"#, 422),
        (r#"{"message_identifier": 1, "serial_number": 1, "etws": "rain"}"#, 422),
        (r#"{"message_identifier": 1, "serial_number": 1, "text": "x", "tacs": [16777216]}"#, 422),
        (r#"{"message_identifier": 1, "serial_number": 1, "text": "x", "cells": ["fffffffff0"]}"#, 422),
        (r#"{"message_identifier": 1, "serial_number": 1, "text": "x", "cells": ["1"], "tacs": [1]}"#, 422),
    ] {
        let (got, problem) = send(body);
        assert_eq!(got, status, "{body}: {problem}");
    }
    assert_eq!(ask(a, "DELETE", "/api/v1/warnings/4370/1", "", "").0, 202);
    assert_eq!(ask(a, "DELETE", "/api/v1/warnings/4370/2", "", "").0, 404);
    assert_eq!(ask(a, "DELETE", "/api/v1/warnings/4370/-1", "", "").0, 400);
}

#[test] // TS 38.413 §8.7.4.2.1, §8.7.7.2
fn overload_resets_and_reloads_are_ordered() {
    let (server, _console) = served();
    let a = server.address;
    let (status, answer) = ask(a, "POST", "/api/v1/overload/start", "", "");
    assert_eq!((status, answer["overloaded"].as_bool()), (200, Some(true)), "{answer}");
    assert_eq!(ask(a, "POST", "/api/v1/overload/maybe", "", "").0, 400);
    assert_eq!(ask(a, "POST", "/api/v1/gnbs/gnb-999%2F70-1/reset", "", "").0, 202);
    assert_eq!(ask(a, "POST", "/api/v1/gnbs/999%2F70-2/reset", "", "").0, 404);
    let (status, answer) = ask(a, "POST", "/api/v1/reload", "", "");
    assert_eq!(status, 200, "{answer}");
}
